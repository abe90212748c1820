/* SPDX-License-Identifier: MIT */
/* A model on batches of a loader: as floats or as bytes that the device makes images of, begun
 * ahead or not, it learns the same. The device is the plain one, with images added in the simplest
 * way: it keeps what it began to copy ahead, and looks whether the batch is still that when it is
 * used. */
#include "model/data/augment.h"
#include "model/graph/optim.h"
#include "tests/model/ops_fixture.h"

#include <sched.h>

enum { SAMPLES = 23, STEPS = 12, ONE = 6 * 5 * 3 };

static uint8_t pixels[SAMPLES * ONE];
static int32_t classes[SAMPLES];
static uint32_t all[SAMPLES];
static const struct dataset data = {.shape = {3, {6, 5, 3}},
        .count = SAMPLES,
        .classes = CLASSES,
        .pixels = pixels,
        .labels = classes};
static const struct model_case model = {"net", {3, {6, 5, 3}},
        "conv2d units=4 kernel=3; relu; flatten; dropout p=0.2; dense units=4"};

/* ---- the device */

static struct {
	const uint8_t *at; /* what was begun; NULL: nothing */
	uint8_t kept[BATCH * ONE];
	int begun, used; /* how often */
} staged;

static void *host_alloc(struct device *d, size_t bytes)
{
	(void)d;
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void host_release(struct device *d, void *p)
{
	(void)d;
	free(p);
}

static int images_ahead(struct device *d, const struct device_images *b, struct err *e)
{
	(void)d, (void)e;
	assert_true(shape_equal(&b->shape, &data.shape));
	staged.at = b->pixels;
	staged.begun++;
	memcpy(staged.kept, b->pixels, (size_t)b->count * ONE);
	return 0;
}

static int images(struct device *d, struct program *p, const struct device_images *b, struct err *e)
{
	(void)d, (void)e;
	if (staged.at == b->pixels) {
		staged.used++;
		assert_memory_equal(staged.kept, b->pixels, (size_t)b->count * ONE);
	}
	staged.at = NULL;
	for (int64_t i = 0; i < b->count; i++) {
		p->labels[i] = b->labels[i];
		augment_apply(
		        &b->moves[i], &b->shape, b->table, b->pixels + i * ONE, p->input + i * ONE);
	}
	return 0;
}

/* ---- runs */

enum form { FLOATS, BYTES, BYTES_AHEAD };

static struct loader *open_loader(struct device *d, bool shuffle)
{
	const struct loader_config c = {.data = &data,
	        .index = all,
	        .n_index = SAMPLES,
	        .batch = BATCH,
	        .seed = 3,
	        .augment = {.flip = true, .shift = 2, .scale = 0.1},
	        .norm = {1, {0.4}, {0.3}},
	        .shuffle = shuffle,
	        .ahead = 1,
	        .dev = d};
	struct loader *l;
	struct err e = {0};
	if (loader_new(&l, &c, (struct loader_position){0}, &e))
		fail_msg("%s", e.msg);
	return l;
}

static void train(struct graph *n, struct loader *l, enum form form, double *losses)
{
	static const struct optim_config sgd = {.kind = OPTIM_SGD, .momentum = 0.9};
	struct optim o;
	struct err e = {0};
	assert_int_equal(optim_init(&o, &sgd, n, &e), 0);
	for (int i = 0; i < STEPS; i++) {
		const struct batch *b = loader_next(l), *next = NULL;
		struct loss_result r;
		double norm;
		assert_int_equal(graph_train_begin(n, b, false, 0.2f, (uint64_t)i, &r, &e), 0);
		while (form == BYTES_AHEAD && !(next = loader_peek(l)))
			sched_yield();
		assert_int_equal(graph_ahead(n, next, &e), 0);
		assert_int_equal(graph_wait(n, &e), 0);
		assert_int_equal(optim_step(&o, 0.05, &norm, &e), 0);
		assert_int_equal(r.count, BATCH);
		losses[i] = r.loss_sum;
	}
	optim_close(&o);
}

/* The last batch is a short one. */
static double evaluate(struct graph *n, struct loader *l)
{
	const struct batch *b;
	struct loss_result r;
	struct err e = {0};
	double sum = 0;
	int64_t count = 0;
	while ((b = loader_next(l)) != NULL) {
		assert_int_equal(graph_eval_begin(n, b, &r, &e), 0);
		assert_int_equal(graph_ahead(n, loader_peek(l), &e), 0);
		assert_int_equal(graph_wait(n, &e), 0);
		sum += r.loss_sum;
		count += r.count;
	}
	assert_int_equal(count, SAMPLES);
	return sum;
}

static void run(enum form form, double losses[STEPS + 1], float *params)
{
	struct fixture f;
	struct device *d = open_device("plain", 1);
	struct backend with = *d->backend;
	with.host_alloc = host_alloc;
	with.host_release = host_release;
	with.images_ahead = images_ahead;
	with.images = images;
	if (form != FLOATS)
		d->backend = &with;
	memset(&staged, 0, sizeof staged);
	fixture_init(&f, &model);
	struct graph *n = make_net(&f, d);
	struct loader *l = open_loader(d, true), *v = open_loader(d, false);
	train(n, l, form, losses);
	assert_int_equal(staged.begun, form == BYTES_AHEAD ? STEPS : 0);
	assert_int_equal(staged.used, form == BYTES_AHEAD ? STEPS - 1 : 0);
	losses[STEPS] = evaluate(n, v);
	graph_get_params(n, params);
	loader_free(l);
	loader_free(v);
	graph_free(n);
	fixture_close(&f);
	device_close(d);
}

static void test_learns_the_same_from_bytes(void **state)
{
	enum { ROOM = 1 << 12 };
	static float want[ROOM], got[ROOM];
	double want_losses[STEPS + 1], losses[STEPS + 1];
	(void)state;
	run(FLOATS, want_losses, want);
	assert_true(want_losses[0] > 0);
	for (int form = BYTES; form <= BYTES_AHEAD; form++) {
		run((enum form)form, losses, got);
		assert_memory_equal(losses, want_losses, sizeof losses);
		assert_memory_equal(got, want, sizeof got);
	}
}

static int make_data(void **state)
{
	struct rng r;
	(void)state;
	rng_seed(&r, 1, 0);
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)rng_below(&r, 256);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		classes[i] = (int32_t)rng_below(&r, CLASSES);
		all[i] = i;
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns_the_same_from_bytes)};
	return cmocka_run_group_tests_name("net", tests, make_data, NULL);
}
