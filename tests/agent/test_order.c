/* SPDX-License-Identifier: MIT */
/* The order of the data in a flock, with the default seeds: each agent has its own, as it has its
 * own augmentation and dropout, and goes on in it from a checkpoint. What all agents must share
 * stays shared. */
#include "tests/support.h"

#include "agent/config/config.h"
#include "agent/train/trainer.h"

#include <math.h>

#define SAMPLES 200
#define SIDE 5
#define PIXELS (SIDE * SIDE)
#define BATCH 10
#define FIRST 100 /* samples that are compared */

/* Image i is bright by i + 1 all over, unless all are alike. A shifted one has a black border. */
static void small_config(struct config *c, const char *folder, bool alike)
{
	static uint8_t pixels[16 + SAMPLES * PIXELS] = {
	        0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
	static uint8_t labels[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};

	config_defaults(c);
	snprintf(c->preset, sizeof c->preset, "mlp");
	snprintf(c->data.train_images, sizeof c->data.train_images, "%s/images", folder);
	snprintf(c->data.train_labels, sizeof c->data.train_labels, "%s/labels", folder);
	c->data.test_images[0] = '\0';
	c->data.classes = 2;
	snprintf(c->run.device, sizeof c->run.device, "cpu");
	c->run.threads = 1;
	c->run.deterministic = true;
	c->train.batch = BATCH;
	for (int i = 0; i < SAMPLES; i++) {
		labels[8 + i] = (uint8_t)(alike ? 0 : i % 2);
		memset(pixels + 16 + i * PIXELS, alike ? 1 : i + 1, PIXELS);
	}
	write_file(c->data.train_images, pixels, sizeof pixels);
	write_file(c->data.train_labels, labels, sizeof labels);
}

static struct trainer *agent(const struct config *c, uint64_t identity)
{
	struct trainer *t;
	struct err e;

	assert_int_equal(trainer_new(&t, c, NULL, &e), 0);
	assert_int_equal(trainer_flock(t, identity, false, &e), 0);
	return t;
}

static void run_steps(struct trainer *t, int n)
{
	struct step_result r;
	struct err e;

	for (int i = 0; i < n; i++)
		assert_int_equal(trainer_step(t, &r, &e), 0);
}

static bool alike(struct trainer *a, struct trainer *b)
{
	const size_t bytes = a->arch.n_total * sizeof(float);
	float *p = malloc(bytes), *q = malloc(bytes);

	assert_true(p != NULL && q != NULL);
	graph_get_params(a->net, p);
	graph_get_params(b->net, q);
	bool same = memcmp(p, q, bytes) == 0;

	free(p);
	free(q);
	return same;
}

/* What an agent is given to train on. */
struct seen {
	int index[2 * SAMPLES];
	uint32_t border[SAMPLES]; /* by index, as seen last: a bit for each black pixel */
};

static void look(struct trainer *t, int n, struct seen *s)
{
	for (int i = 0; i < n; i += BATCH) {
		const struct batch *b = loader_next(t->loader);

		for (int k = 0; k < BATCH; k++) {
			const float *x = b->x + k * PIXELS;
			uint32_t border = 0;
			int at = -1;

			for (int p = 0; p < PIXELS; p++) {
				long v = lround(
				        255 * ((double)x[p] * t->norm.std[0] + t->norm.mean[0]));

				if (v == 0)
					border |= 1u << p;
				else
					at = (int)v - 1;
			}
			assert_in_range(at, 0, SAMPLES - 1);
			s->index[i + k] = at;
			s->border[at] = border;
		}
	}
}

static int same_places(const struct seen *a, const struct seen *b)
{
	int n = 0;

	for (int i = 0; i < FIRST; i++)
		n += a->index[i] == b->index[i];
	return n;
}

static int same_borders(const struct seen *a, const struct seen *b)
{
	int n = 0;

	for (int i = 0; i < SAMPLES; i++)
		n += a->border[i] == b->border[i];
	return n;
}

static void test_agents_differ(void **state)
{
	struct seen one, two, again;
	struct config c;

	small_config(&c, *state, false);
	c.data.augment.shift = 2; /* 25 ways */
	struct trainer *a = agent(&c, 1), *b = agent(&c, 2), *d = agent(&c, 1);

	look(a, SAMPLES, &one);
	look(b, SAMPLES, &two);
	look(d, SAMPLES, &again);
	assert_true(same_places(&one, &two) < 10);
	assert_true(same_borders(&one, &two) < 40);
	assert_int_equal(same_places(&one, &again), FIRST);
	assert_int_equal(same_borders(&one, &again), SAMPLES);
	assert_int_not_equal(a->order_seed, b->order_seed);
	trainer_free(a);
	trainer_free(b);
	trainer_free(d);
	config_close(&c);
}

/* data.seed still means something: another one gives the same agent another order. */
static void test_seed_counts_too(void **state)
{
	struct seen one, two;
	struct config c;

	small_config(&c, *state, false);
	struct trainer *a = agent(&c, 1);

	c.data.seed++;
	struct trainer *b = agent(&c, 1);

	look(a, FIRST, &one);
	look(b, FIRST, &two);
	assert_true(same_places(&one, &two) < 10);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

static void test_epoch_has_every_sample_once(void **state)
{
	int count[2][SAMPLES] = {{0}}, same = 0;
	struct seen s;
	struct config c;

	small_config(&c, *state, false);
	struct trainer *t = agent(&c, 3);

	look(t, 2 * SAMPLES, &s);
	for (int i = 0; i < 2 * SAMPLES; i++)
		count[i / SAMPLES][s.index[i]]++;
	for (int i = 0; i < SAMPLES; i++) {
		assert_int_equal(count[0][i], 1);
		assert_int_equal(count[1][i], 1);
		same += s.index[i] == s.index[SAMPLES + i];
	}
	assert_true(same < 20);
	trainer_free(t);
	config_close(&c);
}

/* Initial weights, what is held out, parts and normalisation. */
static void test_rest_is_shared(void **state)
{
	int owner[SAMPLES] = {0};
	struct config c, d;

	small_config(&c, *state, false);
	c.data.validation = 0.25;
	c.data.partition.kind = PARTITION_SHARD;
	c.data.partition.parts = 2;
	d = c;
	d.data.partition.part = 1;
	struct trainer *a = agent(&c, 1), *b = agent(&d, 2);

	assert_true(alike(a, b));
	assert_true(a->norm.mean[0] == b->norm.mean[0]);
	assert_true(a->norm.std[0] == b->norm.std[0]);
	assert_int_equal(a->n_val, 50);
	assert_int_equal(b->n_val, 50);
	assert_memory_equal(a->val_index, b->val_index, 50 * sizeof *a->val_index);
	for (uint32_t i = 0; i < 50; i++)
		owner[a->val_index[i]]++;
	for (uint32_t i = 0; i < 75; i++) {
		owner[a->train_index[i]]++;
		owner[b->train_index[i]]++;
	}
	for (int i = 0; i < SAMPLES; i++)
		assert_int_equal(owner[i], 1);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

/* All images are alike, so that only dropout can make a difference. */
static void test_dropout_differs(void **state)
{
	static const char with[] =
	        "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", "
	        "\"units\": 16}, {\"type\": \"dropout\", \"p\": 0.5}, "
	        "{\"type\": \"dense\", \"units\": 2}]}}";

	for (int dropout = 0; dropout < 2; dropout++) {
		struct config_problems p;
		struct config c;

		small_config(&c, *state, true);
		config_problems_init(&p, "layers");
		if (dropout)
			assert_int_equal(config_read(&c, with, sizeof with - 1, &p), 0);
		struct trainer *a = agent(&c, 1), *b = agent(&c, 2), *d = agent(&c, 1);

		assert_true(alike(a, b));
		run_steps(a, 3);
		run_steps(b, 3);
		run_steps(d, 3);
		assert_int_equal(alike(a, b), !dropout);
		assert_true(alike(a, d));
		trainer_free(a);
		trainer_free(b);
		trainer_free(d);
		config_close(&c);
	}
}

/* The same agent goes on to the bit. Another one takes the state and begins its own order. */
static void test_resume(void **state)
{
	struct seen begin, on;
	struct trainer_notes notes;
	struct checkpoint k;
	struct config c;
	struct err e;
	char path[300];

	small_config(&c, *state, false);
	c.data.augment.shift = 1;
	snprintf(path, sizeof path, "%s/order.safetensors", (char *)*state);
	struct trainer *a = agent(&c, 1), *same = agent(&c, 1), *other = agent(&c, 2);
	struct trainer *fresh = agent(&c, 2);

	run_steps(a, 7);
	assert_int_equal(trainer_save(a, path, &e), 0);
	run_steps(a, 20); /* into the next epoch */
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	assert_int_equal(k.state.order_seed, a->order_seed);
	assert_int_equal(trainer_restore(same, &k, &notes, &e), 0);
	assert_int_equal(notes.n, 0);
	run_steps(same, 20);
	assert_true(alike(a, same));

	assert_int_equal(trainer_restore(other, &k, &notes, &e), 0);
	assert_int_equal(notes.n, 1);
	assert_non_null(strstr(notes.text[0], "order"));
	assert_int_equal(other->samples, 7 * BATCH);
	look(fresh, FIRST, &begin);
	look(other, FIRST, &on);
	assert_int_equal(same_places(&begin, &on), FIRST);
	checkpoint_close(&k);
	trainer_free(a);
	trainer_free(same);
	trainer_free(other);
	trainer_free(fresh);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_agents_differ),
	        cmocka_unit_test(test_seed_counts_too),
	        cmocka_unit_test(test_epoch_has_every_sample_once),
	        cmocka_unit_test(test_rest_is_shared),
	        cmocka_unit_test(test_dropout_differs),
	        cmocka_unit_test(test_resume),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
