/* SPDX-License-Identifier: MIT */
/* Batches are a function of (seed, epoch, place): the same again, from a saved position, with and
 * without the thread, as floats and as bytes for a device that makes images by itself. Each epoch
 * visits each sample once. Augmentation moves pixels as it says. */
#include "model/data/augment.h"
#include "model/device/device.h"

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 23
#define H 5
#define W 4
#define C 2
#define SIZE (H * W * C)

static uint8_t pixels[COUNT * SIZE];
static int32_t labels[COUNT];
static uint32_t all[COUNT];
static const struct dataset data = {.shape = {3, {H, W, C}},
        .count = COUNT,
        .classes = COUNT,
        .pixels = pixels,
        .labels = labels};

static int make_data(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < COUNT; i++) {
		labels[i] = (int32_t)i;
		all[i] = i;
		for (uint32_t k = 0; k < SIZE; k++)
			pixels[i * SIZE + k] = (uint8_t)(1 + (i * 37 + k * 11) % 255);
	}
	return 0;
}

static struct loader_config config(int64_t batch, int ahead)
{
	return (struct loader_config){.data = &data,
	        .index = all,
	        .n_index = COUNT,
	        .batch = batch,
	        .seed = 5,
	        .augment = {.flip = true, .shift = 1, .scale = 0.2},
	        .norm = {1, {0.3}, {0.5}},
	        .shuffle = true,
	        .ahead = ahead};
}

/* A device that makes images, as far as a loader knows one. */
static int blocks, blocks_max = 1000;
static bool device_failed;

static void *host_alloc(struct device *d, size_t bytes)
{
	(void)d;
	if (blocks == blocks_max)
		return NULL;
	blocks++;
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void host_release(struct device *d, void *p)
{
	(void)d;
	blocks -= p != NULL;
	free(p);
}

static int images(struct device *d, struct program *p, const struct device_images *b, struct err *e)
{
	(void)d, (void)p, (void)b;
	return err_set(e, ERR_UNSUPPORTED, "not here");
}

static int settle(struct device *d, struct err *e)
{
	(void)d;
	return device_failed ? err_set(e, ERR_DEVICE, "it fell off the bus") : 0;
}

static const struct backend makes_images = {
        .host_alloc = host_alloc, .host_release = host_release, .images = images, .settle = settle};
static struct device maker = {.backend = &makes_images};

static struct loader *start(const struct loader_config *c, struct loader_position at)
{
	struct loader *l;
	struct err e = {0};
	if (loader_new(&l, c, at, &e))
		fail_msg("loader_new: %s", e.msg);
	return l;
}

/* The floats of a sample, made in room if the batch is bytes. */
static const float *sample(const struct batch *b, int64_t i, float *room)
{
	static const struct augment_move still = {.zoom = 1};
	assert_true(!b->x == !!b->pixels);
	if (b->x)
		return b->x + i * SIZE;
	augment_apply(
	        b->moves ? &b->moves[i] : &still, &b->shape, b->table, b->pixels + i * SIZE, room);
	return room;
}

static void assert_same(const struct batch *a, const struct batch *b)
{
	float one[SIZE], other[SIZE];
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->epoch, b->epoch);
	assert_memory_equal(a->labels, b->labels, (size_t)a->count * sizeof *a->labels);
	for (int64_t i = 0; i < a->count; i++)
		assert_memory_equal(sample(a, i, one), sample(b, i, other), SIZE * sizeof *a->x);
}

/* Two loaders side by side, n batches. */
static void compare(const struct loader_config *a, const struct loader_config *b, int n)
{
	struct loader *x = start(a, (struct loader_position){0});
	struct loader *y = start(b, (struct loader_position){0});
	while (n--)
		assert_same(loader_next(x), loader_next(y));
	loader_free(x);
	loader_free(y);
}

static void test_thread_changes_nothing(void **state)
{
	(void)state;
	for (int64_t batch = 1; batch < 60; batch += 7) {
		struct loader_config plain = config(batch, 0), same = config(batch, 0);
		compare(&plain, &same, 20);
		for (int ahead = 1; ahead <= LIMIT_READ_AHEAD; ahead += 5) {
			struct loader_config threaded = config(batch, ahead);
			compare(&plain, &threaded, 20);
			threaded.dev = &maker;
			compare(&plain, &threaded, 20);
		}
		same.dev = &maker;
		compare(&plain, &same, 20);
		plain.augment = same.augment = (struct augment){0};
		compare(&plain, &same, 20);
	}
}

/* A loader that is stopped after any number of batches and started at its position goes on as one
 * that was not, whatever the first had read ahead. */
static void test_resumes_anywhere(void **state)
{
	(void)state;
	for (int ahead = 0; ahead < 4; ahead += 3)
		for (int before = 0; before < 9; before++) {
			struct loader_config c = config(7, ahead);
			struct loader *straight = start(&c, (struct loader_position){0});
			struct loader *first = start(&c, (struct loader_position){0});
			for (int i = 0; i < before; i++) {
				loader_next(straight);
				loader_next(first);
			}
			struct loader_position at = loader_position(first);
			assert_int_equal(at.epoch, before * 7 / COUNT);
			assert_int_equal(at.sample, before * 7 % COUNT);
			loader_free(first);
			c.dev = before % 2 ? &maker : NULL;
			struct loader *second = start(&c, at);
			for (int i = 0; i < 9; i++)
				assert_same(loader_next(straight), loader_next(second));
			loader_free(straight);
			loader_free(second);
		}
}

/* A look ahead gives what comes next, moves nothing on, and lets the batch that is held be. */
static void test_looks_ahead(void **state)
{
	(void)state;
	for (int k = 0; k < 6; k++) {
		struct loader_config c = config(5, k % 3), plain = config(5, 0);
		c.dev = k < 3 ? NULL : &maker;
		struct loader *l = start(&c, (struct loader_position){0});
		struct loader *p = start(&plain, (struct loader_position){0});
		for (int i = 0; i < 20; i++) {
			const struct batch *held = loader_next(l), *want = loader_next(p), *next;
			struct loader_position at = loader_position(l);
			while (!(next = loader_peek(l)) && c.ahead)
				sched_yield();
			assert_true(next == loader_peek(l));
			assert_same(held, want);
			assert_int_equal(loader_position(l).sample, at.sample);
			if (!c.ahead) {
				assert_null(next);
				continue;
			}
			assert_true(loader_next(l) == next);
			assert_same(next, loader_next(p));
		}
		loader_free(l);
		loader_free(p);
	}
}

/* Nothing comes behind the last batch, and the first one again after rewinding. */
static void test_looks_no_further_than_the_end(void **state)
{
	(void)state;
	struct loader_config c = config(COUNT, 2);
	c.shuffle = false;
	struct loader *l = start(&c, (struct loader_position){0});
	for (int i = 0; i < 20; i++) {
		const struct batch *next;
		while (!(next = loader_peek(l)))
			sched_yield();
		assert_true(loader_next(l) == next);
		assert_null(loader_peek(l));
		if (i % 2)
			assert_null(loader_next(l));
		assert_null(loader_peek(l));
		loader_rewind(l);
	}
	loader_free(l);
}

static void test_each_epoch_visits_each_sample_once(void **state)
{
	(void)state;
	static const int64_t batches[] = {1, 5, COUNT, 3 * COUNT + 4};
	for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
		struct loader_config c = config(batches[k], 2);
		struct loader *l = start(&c, (struct loader_position){0});
		int order[8][COUNT], seen[COUNT];
		int64_t n = 0;
		while (n < 8 * COUNT) {
			const struct batch *b = loader_next(l);
			assert_int_equal(b->count, batches[k]);
			assert_int_equal(b->epoch, n / COUNT);
			for (int64_t i = 0; i < b->count && n < 8 * COUNT; i++, n++)
				order[n / COUNT][n % COUNT] = b->labels[i];
		}
		loader_free(l);
		for (int epoch = 0; epoch < 8; epoch++) {
			memset(seen, 0, sizeof seen);
			for (int i = 0; i < COUNT; i++)
				seen[order[epoch][i]]++;
			for (int i = 0; i < COUNT; i++)
				assert_int_equal(seen[i], 1);
			if (epoch)
				assert_memory_not_equal(
				        order[epoch], order[epoch - 1], sizeof *order);
		}
	}
}

static void test_seeds_and_epochs_differ(void **state)
{
	(void)state;
	struct loader_config a = config(COUNT, 0), b = config(COUNT, 0);
	b.seed = 6;
	struct loader *x = start(&a, (struct loader_position){0});
	struct loader *y = start(&b, (struct loader_position){0});
	assert_memory_not_equal(loader_next(x)->labels, loader_next(y)->labels, sizeof labels);
	loader_free(x);
	loader_free(y);
	/* In a fixed order only augmentation is left to differ between epochs. */
	a.shuffle = false;
	x = start(&a, (struct loader_position){0});
	y = start(&a, (struct loader_position){.epoch = 1});
	const struct batch *p = loader_next(x), *q = loader_next(y);
	assert_memory_equal(p->labels, q->labels, sizeof labels);
	assert_memory_not_equal(p->x, q->x, COUNT * SIZE * sizeof(float));
	loader_free(x);
	loader_free(y);
}

static void test_fixed_order_ends_and_rewinds(void **state)
{
	(void)state;
	static const uint32_t index[] = {7, 3, 22, 0, 9};
	for (int ahead = 0; ahead < 4; ahead++) {
		struct loader_config c = config(2, ahead);
		c.index = index;
		c.n_index = 5;
		c.shuffle = false;
		struct loader *l = start(&c, (struct loader_position){0});
		/* Rewound after the end, at once, and in the middle with batches in flight. */
		for (int stop = 4; stop >= 0; stop--) {
			for (int i = 0; i < stop; i++) {
				const struct batch *b = loader_next(l);
				if (i == 3) {
					assert_null(b);
					assert_null(loader_next(l));
					break;
				}
				assert_int_equal(b->count, i == 2 ? 1 : 2);
				for (int k = 0; k < b->count; k++)
					assert_int_equal(b->labels[k], index[2 * i + k]);
				if (i < 2)
					assert_int_equal(loader_position(l).sample, 2 * i + 2);
			}
			loader_rewind(l);
			assert_int_equal(loader_position(l).sample, 0);
		}
		loader_free(l);
		l = start(&c, (struct loader_position){.sample = 3});
		assert_int_equal(loader_next(l)->labels[0], 0);
		assert_null(loader_next(l));
		loader_free(l);
	}
}

static void test_normalises(void **state)
{
	(void)state;
	struct loader_config c = config(COUNT, 1);
	c.augment = (struct augment){0};
	c.shuffle = false;
	struct loader *l = start(&c, (struct loader_position){0});
	const struct batch *b = loader_next(l);
	for (int i = 0; i < COUNT * SIZE; i++)
		assert_true(fabs(b->x[i] - (pixels[i] / 255.0 - 0.3) / 0.5) < 1e-6);
	loader_free(l);
}

/* The moved image as it is defined, pixel by pixel: mirror, resize, shift. */
static float moved(const struct augment_move *m, const float *table, int y, int x, int c)
{
	double sy = ((double)(y - m->dy) - (H - 1) / 2.0) / m->zoom + (H - 1) / 2.0;
	double sx = ((double)(x - m->dx) - (W - 1) / 2.0) / m->zoom + (W - 1) / 2.0;
	if (m->flip)
		sx = W - 1 - sx;
	double sum = 0;
	for (int py = -1; py <= H; py++)
		for (int px = -1; px <= W; px++) {
			double wy = 1 - fabs(sy - py), wx = 1 - fabs(sx - px);
			bool inside = py >= 0 && py < H && px >= 0 && px < W;
			if (wy > 0 && wx > 0)
				sum += wy * wx *
				       ((double)table[inside ? pixels[(py * W + px) * C + c] : 0] -
				               (double)table[0]);
		}
	return (float)(sum + (double)table[0]);
}

static void test_moves_as_defined(void **state)
{
	(void)state;
	float table[256], out[SIZE];
	static const double zooms[] = {1, 0.6, 1.5};
	for (int i = 0; i < 256; i++)
		table[i] = (float)i / 64 - 1;
	for (int k = 0; k < 3; k++)
		for (int dy = -4; dy <= 4; dy++)
			for (int dx = -3; dx <= 3; dx++)
				for (int flip = 0; flip < 2; flip++) {
					struct augment_move m = {flip, dx, dy, zooms[k]};
					augment_apply(&m, &data.shape, table, pixels, out);
					for (int i = 0; i < SIZE; i++) {
						float want = moved(
						        &m, table, i / (W * C), i / C % W, i % C);
						assert_true(fabsf(out[i] - want) < 1e-5f);
					}
				}
}

/* One channel takes a path of its own when mirrored. */
static void test_mirrors_one_channel(void **state)
{
	(void)state;
	float table[256], out[6];
	const uint8_t src[6] = {1, 2, 3, 4, 5, 6};
	const float want[6] = {0, 3, 2, 0, 6, 5};
	struct shape s = {3, {2, 3, 1}};
	for (int i = 0; i < 256; i++)
		table[i] = (float)i;
	augment_apply(&(struct augment_move){true, 1, 0, 1}, &s, table, src, out);
	assert_memory_equal(out, want, sizeof want);
}

static void test_draws_cover_the_range(void **state)
{
	(void)state;
	struct rng r;
	rng_seed(&r, 1, 1);
	struct augment a = {.flip = true, .shift = 2, .scale = 0.1};
	int flips = 0, at[5] = {0}, down[5] = {0};
	double least = 2, most = 0;
	for (int i = 0; i < 1000; i++) {
		struct augment_move m;
		augment_draw(&a, &r, &m);
		flips += m.flip;
		assert_true(m.dx >= -2 && m.dx <= 2 && m.dy >= -2 && m.dy <= 2);
		at[m.dx + 2]++;
		down[m.dy + 2]++;
		least = fmin(least, m.zoom);
		most = fmax(most, m.zoom);
	}
	assert_true(flips > 400 && flips < 600);
	for (int i = 0; i < 5; i++)
		assert_true(at[i] > 100 && at[i] < 300 && down[i] > 100 && down[i] < 300);
	assert_true(least >= 0.9 && least < 0.91 && most <= 1.1 && most > 1.09);
}

static void refuse(struct loader_config c, uint64_t sample, int code, const char *text)
{
	struct loader *l;
	struct err e = {0};
	assert_int_equal(loader_new(&l, &c, (struct loader_position){.sample = sample}, &e), code);
	assert_null(l);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
}

static void test_refuses(void **state)
{
	(void)state;
	static const uint32_t beyond[] = {0, COUNT};
	struct loader_config c = config(4, 1);
	refuse(c, COUNT, ERR_MISMATCH, "position");
	c.n_index = 0;
	refuse(c, 0, ERR_INVALID, "no samples");
	c = config(4, 1);
	c.index = beyond;
	c.n_index = 2;
	refuse(c, 0, ERR_INVALID, "sample 23 of a set of 23");
	refuse(config(0, 1), 0, ERR_INVALID, "batch of 0");
	refuse(config(LIMIT_BATCH + 1, 1), 0, ERR_INVALID, "batch of");
	refuse(config(4, LIMIT_READ_AHEAD + 1), 0, ERR_INVALID, "ahead");
	refuse(config(4, -1), 0, ERR_INVALID, "ahead");
	c = config(4, 1);
	c.norm.std[0] = 0;
	refuse(c, 0, ERR_INVALID, "deviation 0");
	c = config(4, 1);
	c.augment.shift = W;
	refuse(c, 0, ERR_INVALID, "images of 5x4 allow 0 to 3");
	c.augment.shift = -1;
	refuse(c, 0, ERR_INVALID, "shift");
	c = config(4, 1);
	c.augment.scale = 1;
	refuse(c, 0, ERR_INVALID, "scale");
	c.augment.scale = NAN;
	refuse(c, 0, ERR_INVALID, "scale");
	c = config(4, 1);
	c.dev = &maker;
	blocks_max = 0;
	refuse(c, 0, ERR_NOMEM, "no memory for 2 batches of 4");
	device_failed = true;
	refuse(c, 0, ERR_DEVICE, "bus");
	device_failed = false;
	blocks_max = 1000;
}

static int all_given_back(void **state)
{
	(void)state;
	assert_int_equal(blocks, 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_thread_changes_nothing),
	        cmocka_unit_test(test_resumes_anywhere),
	        cmocka_unit_test(test_looks_ahead),
	        cmocka_unit_test(test_looks_no_further_than_the_end),
	        cmocka_unit_test(test_each_epoch_visits_each_sample_once),
	        cmocka_unit_test(test_seeds_and_epochs_differ),
	        cmocka_unit_test(test_fixed_order_ends_and_rewinds),
	        cmocka_unit_test(test_normalises),
	        cmocka_unit_test(test_moves_as_defined),
	        cmocka_unit_test(test_mirrors_one_channel),
	        cmocka_unit_test(test_draws_cover_the_range),
	        cmocka_unit_test(test_refuses),
	};
	return cmocka_run_group_tests_name("loader", tests, make_data, all_given_back);
}
