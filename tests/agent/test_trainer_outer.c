/* SPDX-License-Identifier: MIT */
/* The trainer with optimizers around its exchanges: that NoLoCo without momentum is plain averaging
 * to the bit, that it acts when it should, and that a checkpoint has all of it. */
#include "tests/agent/small_set.h"

#include "model/graph/outer.h"

#include <math.h>

#define PARAMS (SIDE * SIDE * CLASSES + CLASSES)

static void one_layer(struct config *c, const char *folder)
{
	small_net(c, folder, "");
	c->train.epochs = 40; /* 600 steps */
	c->gossip.outer = OUTER_NOLOCO;
}

static struct trainer *make(const struct config *c)
{
	struct trainer *t = new_trainer(c);
	struct err e;

	assert_int_equal(trainer_flock(t, 7, false, &e), 0);
	return t;
}

static void merge(struct trainer *t, uint64_t seed)
{
	const size_t end[] = {PARAMS - 3, PARAMS};
	const float k[] = {0.5f, 0.25f};
	float d[PARAMS];
	struct rng r;
	struct err e;

	rng_seed(&r, seed, 1);
	for (int i = 0; i < PARAMS; i++)
		d[i] = 0.1f * (float)rng_normal(&r);
	assert_int_equal(trainer_add(t, d, end, k, 2, &e), 0);
}

static void test_plain_to_the_bit(void **state)
{
	struct config c, d;

	one_layer(&c, *state);
	one_layer(&d, *state);
	d.gossip.outer = OUTER_NONE;
	c.gossip.outer_momentum = 0;
	c.gossip.outer_rate = 1;
	struct trainer *a = make(&c), *b = make(&d);

	for (int i = 0; i < 20; i++) {
		run_steps(a, 3 * i);
		run_steps(b, 3 * i);
		merge(a, (uint64_t)i);
		merge(b, (uint64_t)i);
		assert_alike(a, b, true);
	}
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
	config_close(&d);
}

/* Not before 8 own steps, nor in a merge round: there an exchange is only added. */
static void test_when(void **state)
{
	struct config c, d;

	one_layer(&c, *state);
	one_layer(&d, *state);
	d.gossip.outer = OUTER_NONE;
	struct trainer *a = make(&c), *b = make(&d);

	run_steps(a, 7);
	run_steps(b, 7);
	merge(a, 1);
	merge(b, 1);
	assert_alike(a, b, true);
	run_steps(a, 1);
	run_steps(b, 1);
	assert_alike(a, b, true);
	merge(a, 2);
	merge(b, 2);
	assert_alike(a, b, false);
	for (int i = 0; i < PARAMS; i++) {
		float p[PARAMS];

		graph_get_params(a->net, p);
		assert_true(p[i] == a->phi[i]);
	}
	merge(a, 3); /* no steps since */
	for (int i = 0; i < PARAMS; i++) {
		float p[PARAMS];

		graph_get_params(a->net, p);
		assert_true(fabsf(p[i] - a->phi[i]) < 1e-6f);
	}
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
	config_close(&d);
}

/* The whole run is trained: what comes now is added, the first time as ever after. φ follows. */
static void test_merge_rounds(void **state)
{
	struct config c, d;

	one_layer(&c, *state);
	c.train.epochs = 2;
	d = c;
	d.gossip.outer = OUTER_NONE;
	struct trainer *a = make(&c), *b = make(&d);

	while (!trainer_done(a)) {
		run_steps(a, 1);
		run_steps(b, 1);
	}
	assert_true(a->since_outer >= 8);
	for (int i = 0; i < 3; i++) {
		merge(a, (uint64_t)i);
		merge(b, (uint64_t)i);
		assert_alike(a, b, true);
	}
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

static void resumes(struct config *c, const char *folder)
{
	char path[512];
	struct checkpoint file;
	struct trainer_notes notes;
	struct err e;
	struct trainer *a = make(c), *b = make(c);

	snprintf(path, sizeof path, "%s/outer", folder);
	for (int i = 0; i < 5; i++) {
		run_steps(a, 10);
		merge(a, (uint64_t)i);
	}
	run_steps(a, 4);
	assert_int_equal(trainer_save(a, path, &e), 0);
	assert_int_equal(checkpoint_open(&file, path, &e), 0);
	assert_int_equal(trainer_restore(b, &file, &notes, &e), 0);
	checkpoint_close(&file);
	merge(a, 8);
	merge(b, 8);
	assert_alike(a, b, true);
	for (int i = 0; i < 5; i++) {
		run_steps(a, 7);
		run_steps(b, 7);
		merge(a, 10 + (uint64_t)i);
		merge(b, 10 + (uint64_t)i);
		assert_alike(a, b, true);
	}
	trainer_free(a);
	trainer_free(b);
}

static void test_resume(void **state)
{
	struct config c;

	one_layer(&c, *state);
	resumes(&c, *state);
	c.gossip.outer = OUTER_QGM;
	resumes(&c, *state);
	config_close(&c);
}

/* Of a difference that is given in parts, the same comes as of all of it. */
static void test_parts(void **state)
{
	static const size_t part[] = {20, PARAMS - 3, PARAMS};
	static const float k[] = {0.5f, 0.5f, 0.25f};
	const size_t end[] = {PARAMS - 3, PARAMS};
	const float of_groups[] = {0.5f, 0.25f};
	float d[PARAMS];
	struct config c;
	struct err e;

	one_layer(&c, *state);
	for (c.gossip.outer = OUTER_NONE; c.gossip.outer <= OUTER_QGM; c.gossip.outer++) {
		struct trainer *a = make(&c), *b = make(&c);

		for (int i = 0; i < 6; i++) {
			run_steps(a, 4 + i);
			run_steps(b, 4 + i);
			for (int p = 0; p < PARAMS; p++)
				d[p] = 0.01f * (float)((p * 7 + i) % 11 - 5);
			assert_int_equal(trainer_add(a, d, end, of_groups, 2, &e), 0);
			for (size_t p = 0, at = 0; p < 3; at = part[p++])
				assert_int_equal(
				        trainer_add_part(b, d + at, at, part[p] - at, k[p], &e), 0);
			assert_int_equal(trainer_add_end(b, &e), 0);
			assert_alike(a, b, true);
		}
		trainer_free(a);
		trainer_free(b);
	}
	config_close(&c);
}

/* A state from a peer: φ is its parameters, and there is no momentum. */
static void test_adopted(void **state)
{
	float vectors[2 * PARAMS];
	struct trainer_state s;
	struct config c;
	struct err e;

	one_layer(&c, *state);
	struct trainer *a = make(&c), *b = make(&c);

	for (int i = 0; i < 3; i++) {
		run_steps(a, 10);
		merge(a, (uint64_t)i);
	}
	trainer_get_state(b, vectors, &s);
	assert_int_equal(trainer_adopt_state(a, vectors, &s, &e), 0);
	assert_memory_equal(a->phi, vectors, PARAMS * sizeof *a->phi);
	for (int i = 0; i < PARAMS; i++)
		assert_true(a->outer[i] == 0);
	assert_int_equal(a->since_outer, 0);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_plain_to_the_bit),
	        cmocka_unit_test(test_when),
	        cmocka_unit_test(test_merge_rounds),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_parts),
	        cmocka_unit_test(test_adopted),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
