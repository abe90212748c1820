/* SPDX-License-Identifier: MIT */
/* The trainer of a network with batch_norm: what moves running statistics, and what must not. */
#include "tests/agent/small_set.h"

#include "model/graph/outer.h"

#include <math.h>

static void with_norm(struct config *c, const char *folder)
{
	small_net(c, folder,
	        "{\"type\": \"dense\", \"units\": 6}, {\"type\": \"batch_norm\"}, "
	        "{\"type\": \"relu\"},");
	c->train.epochs = 40;
	c->train.optim.lr = 0.05;
}

static bool same_stats(struct trainer *t, const float *before)
{
	const size_t n = t->arch.n_train;
	float *now = params_of(t);
	const bool same = memcmp(now + n, before + n, (t->arch.n_total - n) * sizeof *now) == 0;

	free(now);
	return same;
}

/* Tested every 8th step: with a batch of one part half of it goes forward once more. */
static void test_norm_test_moves_them_once(void **state)
{
	struct config on, off;

	with_norm(&on, *state);
	with_norm(&off, *state);
	on.train.batch_adapt = BATCH_ADAPT_NORM;
	struct trainer *a = new_trainer(&on), *b = new_trainer(&off);

	run_steps(a, 24);
	run_steps(b, 24);
	assert_int_equal(a->batch.tests, 3);
	assert_alike(a, b, true);
	trainer_free(a);
	trainer_free(b);
	config_close(&on);
	config_close(&off);
}

/* A weight at the edge of what a float can hold: the loss is no number, the statistics of before
 * are kept, also where the norm test has looked in between. */
static void test_step_that_fails_moves_nothing(void **state)
{
	struct step_result r;
	struct config c;
	struct err e;

	with_norm(&c, *state);
	c.train.batch_adapt = BATCH_ADAPT_NORM;
	for (int steps = 6; steps <= 7; steps++) {
		struct trainer *t = new_trainer(&c);

		run_steps(t, steps);
		float *p = params_of(t);

		p[0] = 3e38f;
		graph_set_params(t->net, p);
		assert_int_equal(trainer_step(t, &r, &e), ERR_NONFINITE);
		assert_true(same_stats(t, p));
		free(p);
		trainer_free(t);
	}
	config_close(&c);
}

/* The momentum of QGM is that of what is trained. */
static void test_qgm_collects_no_statistics(void **state)
{
	static const float k[] = {0.5f, 0.5f};
	struct config c;
	struct err e;

	with_norm(&c, *state);
	c.gossip.outer = OUTER_QGM;
	struct trainer *t = new_trainer(&c);

	assert_int_equal(trainer_flock(t, 7, false, &e), 0);
	const struct arch *a = &t->arch;
	const size_t end[] = {a->n_decay, a->n_train};
	float *d = params_of(t), *state_of = malloc(2 * a->n_total * sizeof *state_of);
	struct trainer_state s;

	assert_non_null(state_of);
	for (size_t i = 0; i < a->n_total; i++)
		d[i] = 0.1f;
	for (int i = 0; i < 4; i++) {
		run_steps(t, 1);
		assert_int_equal(trainer_add(t, d, end, k, 2, &e), 0);
		assert_int_equal(trainer_add_part(t, d, 0, a->n_train, 0.5f, &e), 0);
		assert_int_equal(trainer_add_part(t, d + a->n_train, a->n_train,
		                         a->n_total - a->n_train, 0.5f, &e),
		        0);
		assert_int_equal(trainer_add_end(t, &e), 0);
	}
	trainer_get_state(t, state_of, &s);
	for (size_t i = a->n_train; i < a->n_total; i++)
		assert_true(state_of[a->n_total + i] == 0);
	free(state_of);
	free(d);
	trainer_free(t);
	config_close(&c);
}

/* Normalised over one value each channel is 0: nothing would be learnt, without a word. */
static void test_batch_of_one_is_refused(void **state)
{
	enum trainer_part part;
	struct trainer *t;
	struct config c;
	struct err e;

	with_norm(&c, *state);
	c.train.batch = 1;
	c.train.accumulate = 8;
	assert_int_equal(trainer_new(&t, &c, &part, &e), ERR_INVALID);
	assert_int_equal(part, TRAINER_MODEL);
	assert_non_null(strstr(e.msg, "batch_norm norm1"));
	assert_non_null(strstr(e.msg, "a batch of 2 or more"));
	c.train.batch = 2;
	t = new_trainer(&c);
	run_steps(t, 1);
	trainer_free(t);
	config_close(&c);
}

/* Of an image each position counts. */
static void test_batch_of_one_image(void **state)
{
	static const char model[] = "{\"model\": {\"layers\": [{\"type\": \"batch_norm\"}, "
	                            "{\"type\": \"flatten\"}, "
	                            "{\"type\": \"dense\", \"units\": 3}]}}";
	struct config_problems p;
	struct config c;

	small_net(&c, *state, "");
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(&c, model, strlen(model), &p), 0);
	c.train.batch = 1;
	struct trainer *t = new_trainer(&c);

	run_steps(t, 1);
	trainer_free(t);
	config_close(&c);
}

/* Statistics that differ wildly, of agents with different parts and orders: the same bits come, and
 * all else stays as it was. */
static void test_recalibration_knows_parameters_alone(void **state)
{
	struct config c, d;
	struct err e;

	with_norm(&c, *state);
	with_norm(&d, *state);
	c.data.validation = d.data.validation = 0.1;
	d.data.partition.kind = PARTITION_SHARD;
	d.data.partition.parts = 3;
	d.data.partition.part = 1;
	struct trainer *a = new_trainer(&c), *b = new_trainer(&d), *twin = new_trainer(&c);

	assert_int_equal(trainer_flock(a, 7, false, &e), 0);
	assert_int_equal(trainer_flock(twin, 7, false, &e), 0);
	assert_int_equal(trainer_flock(b, 8, false, &e), 0);
	run_steps(a, 20);
	run_steps(twin, 20);
	run_steps(b, 3);
	float *p = params_of(a);
	const size_t n = a->arch.n_train;

	graph_set_params(b->net, p);
	for (size_t i = n; i < a->arch.n_total; i++)
		p[i] = 1e6f;
	graph_set_params(a->net, p);
	assert_int_equal(trainer_recalibrate(a, &e), 0);
	assert_false(same_stats(a, p));
	assert_int_equal(trainer_recalibrate(b, &e), 0);
	assert_alike(a, b, true);
	/* Training never reads them. */
	run_steps(a, 5);
	run_steps(twin, 5);
	float *x = params_of(a), *y = params_of(twin);

	assert_memory_equal(x, y, n * sizeof *x);
	free(x);
	free(y);
	free(p);
	trainer_free(a);
	trainer_free(b);
	trainer_free(twin);
	config_close(&c);
	config_close(&d);
}

/* Of the input itself, in one batch. */
static void test_recalibration_is_exact(void **state)
{
	static const char model[] = "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, "
	                            "{\"type\": \"batch_norm\"}, "
	                            "{\"type\": \"dense\", \"units\": 3}]}}";
	struct config_problems p;
	struct config c;
	struct err e;

	small_net(&c, *state, "");
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(&c, model, strlen(model), &p), 0);
	c.train.batch = SAMPLES;
	struct trainer *t = new_trainer(&c);

	assert_int_equal(trainer_recalibrate(t, &e), 0);
	float *x = params_of(t), *stats = x + t->arch.n_train;

	for (int k = 0; k < SIDE * SIDE; k++) {
		const uint8_t *pixel = t->train_data.pixels + k;
		double mean = 0, var = 0;

		for (int i = 0; i < SAMPLES; i++)
			mean += pixel[i * SIDE * SIDE] / 255.0 / SAMPLES;
		for (int i = 0; i < SAMPLES; i++)
			var += pow(pixel[i * SIDE * SIDE] / 255.0 - mean, 2) / (SAMPLES - 1);
		mean = (mean - t->norm.mean[0]) / t->norm.std[0];
		var /= t->norm.std[0] * t->norm.std[0];
		assert_true(fabs((double)stats[k] - mean) < 1e-5);
		assert_true(fabs((double)stats[SIDE * SIDE + k] - var) < 1e-5);
	}
	free(x);
	trainer_free(t);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_norm_test_moves_them_once),
	        cmocka_unit_test(test_step_that_fails_moves_nothing),
	        cmocka_unit_test(test_qgm_collects_no_statistics),
	        cmocka_unit_test(test_batch_of_one_is_refused),
	        cmocka_unit_test(test_batch_of_one_image),
	        cmocka_unit_test(test_recalibration_knows_parameters_alone),
	        cmocka_unit_test(test_recalibration_is_exact),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
