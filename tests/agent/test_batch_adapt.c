/* SPDX-License-Identifier: MIT */
/* The trainer with a batch that grows: what it measures beside the exact values of a small network,
 * that measuring changes no bit of the training, and that a run which was interrupted is the same
 * to the bit. The rule itself is tests/gossip/test_batch.c's. */
#include "tests/agent/small_set.h"

#include <math.h>

#define PARAMS (SIDE * SIDE * CLASSES + CLASSES)

static void one_layer(struct config *c, const char *folder)
{
	small_net(c, folder, "");
	c->train.epochs = 200;
	c->train.batch_adapt = BATCH_ADAPT_NORM;
}

static struct step_result step(struct trainer *t)
{
	struct step_result r;
	struct err e;

	assert_int_equal(trainer_step(t, &r, &e), 0);
	return r;
}

/* The mean of n gradients and of the squares of their distances from it: one sample at a time. */
static void exact(const struct config *like, double *noise, double *signal)
{
	static double of[SAMPLES][PARAMS];
	struct config c = *like;
	double mean[PARAMS] = {0}, squares = 0;
	float g[PARAMS];

	c.train.batch = c.train.accumulate = 1;
	c.train.batch_adapt = BATCH_ADAPT_OFF;
	struct trainer *t = new_trainer(&c);

	assert_int_equal(t->arch.n_total, PARAMS);
	for (int i = 0; i < SAMPLES; i++) {
		step(t);
		t->dev->backend->download(t->dev, g, t->net->grads, sizeof g);
		for (int k = 0; k < PARAMS; k++) {
			of[i][k] = (double)g[k];
			mean[k] += (double)g[k] / SAMPLES;
		}
	}
	*signal = 0;
	for (int k = 0; k < PARAMS; k++) {
		*signal += mean[k] * mean[k];
		for (int i = 0; i < SAMPLES; i++)
			squares += (of[i][k] - mean[k]) * (of[i][k] - mean[k]);
	}
	/* An epoch has each sample once: of a set of N the noise is that of N − 1, and what is
	 * left of it in all of them together is part of the signal. */
	*noise = squares / (SAMPLES - 1);
	*signal -= *noise / SAMPLES;
	trainer_free(t);
}

/* With a learning rate of 0, the mean of many tests. */
static void estimate(const struct config *c, int tests, double *noise, double *signal)
{
	struct trainer *t = new_trainer(c);
	double was_noise = 0, was_signal = 0;

	*noise = *signal = 0;
	for (int k = 0; k < 8 * tests; k++) {
		const uint64_t before = t->batch.tests;

		assert_int_equal(step(t).count, c->train.batch * c->train.accumulate);
		assert_int_equal(t->batch.tests, before + (t->step % 8 == 0));
		if (t->batch.tests == before)
			continue;
		*noise += (t->batch.noise - 0.97 * was_noise) / 0.03 / tests;
		*signal += (t->batch.signal - 0.97 * was_signal) / 0.03 / tests;
		was_noise = t->batch.noise;
		was_signal = t->batch.signal;
	}
	trainer_free(t);
}

static void test_estimate(void **state)
{
	static const struct {
		int64_t batch, times;
	} as[] = {{8, 3}, {24, 1}};
	double noise, signal, s, g;
	struct config c;

	one_layer(&c, *state);
	c.train.optim.lr = 0;
	c.train.epochs = 2000;
	exact(&c, &noise, &signal);
	for (size_t i = 0; i < sizeof as / sizeof as[0]; i++) {
		c.train.batch = as[i].batch;
		c.train.accumulate = as[i].times;
		c.train.batch_max = as[i].batch * as[i].times; /* it stays as it is */
		estimate(&c, 900, &s, &g);
		if (fabs(s / noise - 1) > 0.1 || fabs(g / signal - 1) > 0.1)
			fail_msg("%d × %d: S %g, exactly %g; G %g, exactly %g", (int)as[i].batch,
			        (int)as[i].times, s, noise, g, signal);
	}
	config_close(&c);
}

/* Until the first decision the same bits, whether it is looked or not. */
static void test_looking_changes_nothing(void **state)
{
	struct config on, off;
	float p[PARAMS], q[PARAMS];

	one_layer(&on, *state);
	one_layer(&off, *state);
	off.train.batch_adapt = BATCH_ADAPT_OFF;
	for (int times = 1; times <= 2; times++) {
		on.train.accumulate = off.train.accumulate = times;
		struct trainer *a = new_trainer(&on), *b = new_trainer(&off);

		for (int i = 0; i < 63; i++) {
			const struct step_result x = step(a), y = step(b);

			assert_true(x.loss == y.loss && x.grad_norm == y.grad_norm);
		}
		assert_int_equal(a->batch.tests, 7);
		assert_int_equal(b->batch.tests, 0);
		graph_get_params(a->net, p);
		graph_get_params(b->net, q);
		assert_memory_equal(p, q, sizeof p);
		trainer_free(a);
		trainer_free(b);
	}
	config_close(&on);
	config_close(&off);
}

static void test_grows_and_ends(void **state)
{
	static const double lr[] = {
	        [BATCH_LR_KEEP] = 1, [BATCH_LR_SQRT] = 2, [BATCH_LR_LINEAR] = 4};
	struct config c;

	one_layer(&c, *state);
	c.train.batch_max = 32;
	c.train.schedule = SCHEDULE_CONSTANT;
	c.train.warmup_epochs = 0;
	for (c.train.batch_lr = 0; c.train.batch_lr < 3; c.train.batch_lr++) {
		struct trainer *t = new_trainer(&c);
		struct step_result r = {0};
		int64_t most = 0;

		while (!trainer_done(t)) {
			const uint64_t next = trainer_step_samples(t);

			r = step(t);
			assert_int_equal(r.count, next);
			assert_int_equal(r.count % 8, 0);
			if (r.count > most)
				most = r.count;
			if (r.count == 32)
				assert_true(fabs(r.lr / c.train.optim.lr - lr[c.train.batch_lr]) <
				            1e-12);
		}
		assert_int_equal(most, 32);
		assert_int_equal(t->samples, 200 * SAMPLES); /* 8 each at the end: exactly */
		trainer_free(t);
	}
	config_close(&c);
}

static void test_resume(void **state)
{
	char path[512];
	struct checkpoint file;
	struct trainer_notes notes;
	struct config c;
	struct err e;

	one_layer(&c, *state);
	c.train.batch_max = 64;
	snprintf(path, sizeof path, "%s/adapts", (char *)*state);
	struct trainer *a = new_trainer(&c), *b = new_trainer(&c);
	uint64_t first = 0;

	for (int i = 0; i < 300; i++)
		step(a);
	assert_true(a->batch.size > 8);
	first = a->batch.size;
	assert_int_equal(trainer_save(a, path, &e), 0);
	assert_int_equal(checkpoint_open(&file, path, &e), 0);
	assert_int_equal(trainer_restore(b, &file, &notes, &e), 0);
	checkpoint_close(&file);
	assert_int_equal(notes.n, 0);
	for (int i = 0; i < 130; i++) {
		const struct step_result x = step(a), y = step(b);

		assert_true(x.loss == y.loss && x.grad_norm == y.grad_norm && x.count == y.count);
	}
	assert_true(a->batch.size > first); /* a decision was made on the averages */
	assert_memory_equal(&a->batch, &b->batch, sizeof a->batch);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

/* A joiner has the donor's batch, but no more than it may have itself. */
static void test_given_by_a_donor(void **state)
{
	float vectors[2 * PARAMS];
	double noise, signal;
	struct trainer_state s;
	struct config c, d;
	struct err e;

	one_layer(&c, *state);
	one_layer(&d, *state);
	c.train.batch_max = 64;
	d.train.batch_max = 24;
	struct trainer *a = new_trainer(&c), *b = new_trainer(&d);

	for (int i = 0; i < 400; i++)
		step(a);
	assert_true(a->batch.size > 24);
	assert_int_equal(trainer_batch(b, &noise, &signal), 8);
	assert_true(noise == 0 && signal == 0);
	assert_int_equal(trainer_batch(a, &noise, &signal), a->batch.size);
	assert_true(noise > 0);
	trainer_get_state(a, vectors, &s);
	assert_int_equal(s.batch, a->batch.size);
	assert_int_equal(trainer_adopt_state(b, vectors, &s, &e), 0);
	assert_int_equal(trainer_step_samples(b), 24);
	assert_true(s.noise == noise && s.signal == signal);
	assert_int_equal(trainer_batch(b, &noise, &signal), 24);
	assert_true(s.noise == noise && s.signal == signal);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
	config_close(&d);
}

/* Another agent's checkpoint is a donor's word: its averages count once they rest on enough. */
static void test_checkpoint_of_another(void **state)
{
	char path[512];
	struct checkpoint file;
	struct trainer_notes notes;
	struct config c;
	struct err e;

	one_layer(&c, *state);
	c.train.batch_max = 64;
	snprintf(path, sizeof path, "%s/another", (char *)*state);
	for (int steps = 100; steps <= 300; steps += 200) { /* every eighth is a test */
		struct trainer *a = new_trainer(&c), *b = new_trainer(&c);
		double noise, signal, given, given_signal;

		for (int i = 0; i < steps; i++)
			step(a);
		trainer_set_origin(a, &(struct checkpoint_origin){.owner = "one"});
		trainer_set_origin(b, &(struct checkpoint_origin){.owner = "another"});
		trainer_batch(a, &noise, &signal);
		assert_int_equal(noise > 0, steps == 300);
		assert_int_equal(trainer_save(a, path, &e), 0);
		assert_int_equal(checkpoint_open(&file, path, &e), 0);
		assert_int_equal(trainer_restore(b, &file, &notes, &e), 0);
		checkpoint_close(&file);
		assert_int_equal(trainer_batch(b, &given, &given_signal), a->batch.size);
		assert_true(given == noise && given_signal == signal);
		assert_int_equal(b->batch.tests, 0);
		trainer_free(a);
		trainer_free(b);
	}
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_estimate),
	        cmocka_unit_test(test_looking_changes_nothing),
	        cmocka_unit_test(test_grows_and_ends),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_given_by_a_donor),
	        cmocka_unit_test(test_checkpoint_of_another),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
