/* SPDX-License-Identifier: MIT */
/* What a learner writes and reads: checkpoints, metrics, data; and what it says when it cannot. */
#include "tests/agent/learner_bed.h"

static void divergence_is_told(void **state)
{
	char text[4096] = "", path[RUN_DIR_PATH];
	struct bed b;

	bed_config(&b, *state);
	b.config.train.optim.lr = 1e30;
	bed_open(&b);
	learner_begin(b.l);
	float *p = vector(&b, 2);

	learner_train(b.l);
	await(&b, &b.failed, 1);
	assert_int_equal(b.err.code, ERR_NONFINITE);
	int steps = b.steps;

	learner_train(b.l);
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 1);
	assert_int_equal(b.answer_step, steps);
	/* Not even when the parameters are sound again: what made it diverge is still there. */
	memset(p, 0, 2 * b.n * sizeof *p);
	assert_true(learner_adopt(b.l, p, &(struct learner_state){.vectors = 2}));
	assert_true(learner_evaluate(b.l, true));
	await(&b, &b.evals, 1);
	assert_true(b.adopted == 1 && b.err.code == 0);
	bed_close(&b);
	assert_int_equal(b.failed, 1);
	assert_int_equal(b.steps, steps);
	b.dir.path = b.out;
	FILE *f = fopen(run_dir_file(&b.dir, "metrics.jsonl", path), "r");

	assert_non_null(f);
	assert_true(fread(text, 1, sizeof text - 1, f) > 0);
	fclose(f);
	assert_non_null(strstr(text, "\"event\":\"start\""));
	assert_non_null(strstr(text, "\"reason\":\"diverged\""));
	free(p);
}

static void checkpoints_come_and_may_fail(void **state)
{
	char path[RUN_DIR_PATH], nowhere[300];
	struct checkpoint k;
	uint64_t *steps;
	struct bed b;
	struct err e;
	int n;

	bed_config(&b, *state);
	b.config.run.checkpoint_steps = 5;
	b.config.run.keep = 2;
	b.config.run.stop_after = 23;
	bed_open(&b);
	learner_begin(b.l);
	learner_others(b.l, 1000);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_true(b.saved > 0 && b.err.code == 0);
	b.saved = 0;
	assert_true(learner_save(b.l, true));
	await(&b, &b.saved, 1);
	assert_int_equal(b.answer_step, 23);
	assert_int_equal(run_dir_list(&b.dir, &steps, &n, &e), 0);
	assert_int_equal(n, 2);
	assert_int_equal(steps[0], 23);
	assert_int_equal(steps[1], 20);
	free(steps);

	/* Who goes on from it knows what the others had done. */
	assert_int_equal(checkpoint_open(&k, run_dir_checkpoint(&b.dir, 23, path), &e), 0);
	struct trainer *t = by_hand(&b.config);

	assert_int_equal(trainer_restore(t, &k, NULL, &e), 0);
	checkpoint_close(&k);
	assert_int_equal(trainer_clock(t), 1000 + 23 * 8);
	trainer_free(t);

	/* A merge after it changes the parameters but not the step: it is written anew. */
	float *p = vector(&b, 1), kk[EXCHANGE_GROUPS_MAX] = {1, 1, 1};

	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	assert_true(learner_apply(b.l, p, kk, b.groups));
	assert_true(learner_save(b.l, true));
	assert_true(learner_snapshot(b.l, p, CONVERT_FP32, NULL));
	await(&b, &b.snapshots, 2);
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	t = by_hand(&b.config);
	assert_int_equal(trainer_restore(t, &k, NULL, &e), 0);
	checkpoint_close(&k);
	assert_params(t, p);
	trainer_free(t);
	bed_close(&b);
	free(p);

	/* With nowhere to write, training goes on. */
	bed_config(&b, *state);
	b.config.run.checkpoint_steps = 5;
	b.config.run.stop_after = 50;
	bed_open(&b);
	snprintf(nowhere, sizeof nowhere, "%s/nowhere", (char *)*state);
	b.dir.path = nowhere;
	learner_begin(b.l);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_int_equal(b.steps, 50);
	assert_true(b.saved > 0);
	b.saved = b.exported = 0;
	assert_true(learner_save(b.l, true));
	await(&b, &b.saved, 1);
	assert_int_equal(b.err.code, ERR_IO);
	assert_true(learner_export(b.l, "x"));
	await(&b, &b.exported, 1);
	assert_int_equal(b.err.code, ERR_IO);
	assert_int_equal(b.failed, 0);
	bed_close(&b);
}

static int count_lines(const char *path, const char *with)
{
	char line[4096];
	FILE *f = fopen(path, "r");
	int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof line, f) != NULL)
		n += strstr(line, with) != NULL;
	fclose(f);
	return n;
}

/* Whoever replaces a file makes another one. */
static ino_t file_number(const struct bed *b, const char *name)
{
	char path[RUN_DIR_PATH];
	struct stat st;

	return stat(run_dir_file(&b->dir, name, path), &st) == 0 ? st.st_ino : 0;
}

/* 30 of 120 samples are held out, 90 are an epoch; of the 30 ten are looked at. */
static void what_is_held_out_is_evaluated(void **state)
{
	for (int tested = 0; tested < 2; tested++) {
		char path[RUN_DIR_PATH];
		struct bed b;

		bed_config(&b, *state);
		b.config.data.validation = 0.25;
		b.config.run.eval_samples = 10;
		b.config.train.epochs = 3;
		if (!tested)
			b.config.data.test_images[0] = b.config.data.test_labels[0] = '\0';
		bed_open(&b);
		learner_begin(b.l);
		learner_train(b.l);
		await(&b, &b.done, 1);
		assert_int_equal(b.err.code, 0);
		assert_int_equal(b.eval.validation.count, 10);
		assert_int_equal(b.eval.r.count, tested ? 10 : 0);
		assert_true(b.eval.validation.loss > 0 && b.eval.best_step > 0);
		assert_true(b.eval.best_loss <= b.eval.validation.loss);
		assert_true(learner_evaluate(b.l, true));
		b.evals = 0;
		await(&b, &b.evals, 1);
		assert_int_equal(b.eval.validation.count, 10); /* or losses were of other images */
		assert_int_equal(b.eval.r.count, tested ? SAMPLES : 0);
		run_dir_file(&b.dir, "metrics.jsonl", path);
		assert_int_equal(count_lines(path, "\"set\":\"validation\""), 4);
		assert_int_equal(count_lines(path, "\"set\":\"test-part\""), tested ? 3 : 0);
		assert_int_not_equal(file_number(&b, "best.safetensors"), 0);
		bed_close(&b);
	}
}

/* Before and after merge rounds the step is the same: what they made worse is not the best. */
static void the_best_is_the_best(void **state)
{
	float k[EXCHANGE_GROUPS_MAX];
	struct bed b;

	bed_config(&b, *state);
	b.config.data.validation = 0.25;
	b.config.train.epochs = 1;
	bed_open(&b);
	float *d = vector(&b, 1);
	learner_begin(b.l);
	learner_train(b.l);
	await(&b, &b.done, 1);
	assert_true(learner_evaluate(b.l, true));
	b.evals = 0;
	await(&b, &b.evals, 1);
	const double best = b.eval.best_loss;
	const ino_t file = file_number(&b, "best.safetensors");

	assert_true(best == b.eval.validation.loss && file != 0);
	for (size_t i = 0; i < b.n; i++)
		d[i] = i % 2 ? 3 : -3;
	for (int i = 0; i < b.groups; i++)
		k[i] = 1;
	assert_true(learner_apply(b.l, d, k, b.groups));
	assert_true(learner_evaluate(b.l, true));
	b.evals = 0;
	await(&b, &b.evals, 1);
	assert_true(b.eval.validation.loss > best && b.eval.best_loss == best);
	assert_int_equal(file_number(&b, "best.safetensors"), file);
	bed_close(&b);
	free(d);
}

static void what_cannot_open_says_so(void **state)
{
	struct learner_config c = {0};
	enum trainer_part part;
	struct learner *l;
	struct bed b;
	struct err e;

	bed_config(&b, *state);
	c.config = &b.config;
	snprintf(b.config.data.train_images, sizeof b.config.data.train_images, "/nonexistent");
	assert_int_equal(learner_open(&l, &c, &part, &e), ERR_IO);
	assert_null(l);
	assert_int_equal(part, TRAINER_DATA);
	assert_non_null(strstr(e.msg, "/nonexistent"));
	snprintf(b.config.data.train_images, sizeof b.config.data.train_images, "%s/images",
	        (char *)*state);
	snprintf(b.config.run.device, sizeof b.config.run.device, "abacus");
	assert_int_not_equal(learner_open(&l, &c, &part, &e), 0);
	assert_int_equal(part, TRAINER_DEVICE);
	config_close(&b.config);
}

static struct checkpoint_origin origin_of(const char *run, const char *owner)
{
	struct checkpoint_origin o = {.manifest = {.run = (uint64_t)run[0], .total = 1000}};

	snprintf(o.run, sizeof o.run, "%s", run);
	snprintf(o.owner, sizeof o.owner, "%s", owner);
	return o;
}

static void refused_for(struct trainer *t, const struct checkpoint *k,
        const struct checkpoint_origin *o, const char *words)
{
	struct err e;

	trainer_set_origin(t, o);
	assert_int_equal(trainer_restore(t, k, NULL, &e), ERR_MISMATCH);
	if (strstr(e.msg, words) == NULL)
		fail_msg("\"%s\" without \"%s\"", e.msg, words);
	assert_int_equal(t->step, 0);
}

/* Of which run it is, and whose. */
static void a_checkpoint_is_of_a_run_and_an_agent(void **state)
{
	const struct checkpoint_origin mine = origin_of("a", "me"), yours = origin_of("a", "you");
	struct checkpoint_origin o = origin_of("b", "me");
	char path[300];
	struct checkpoint k;
	struct bed b;
	struct err e;

	bed_config(&b, *state);
	snprintf(path, sizeof path, "%s/o.safetensors", (char *)*state);
	struct trainer *t = by_hand(&b.config), *u = by_hand(&b.config);
	float *params = malloc(t->arch.n_total * sizeof *params);

	trainer_set_origin(t, &mine);
	step_to(t, 4);
	assert_non_null(params);
	graph_get_params(t->net, params);
	t->others = 50;
	assert_int_equal(trainer_save(t, path, &e), 0);
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	refused_for(u, &k, &o, "of the run \"a\" with other settings than this one (gossip.run)");
	o.manifest.total = 2000;
	o.manifest.init = 1;
	refused_for(u, &k, &o, "(gossip.run, train.seed or run.init_from, train.epochs, data)");
	o = (struct checkpoint_origin){0};
	refused_for(u, &k, &o, "written by \"dunlin agent\"");
	o = mine;
	o.manifest.mode = EXCHANGE_PUSH; /* how agents exchange is no part of a state */
	trainer_set_origin(u, &o);
	assert_int_equal(trainer_restore(u, &k, NULL, &e), 0);
	assert_true(u->step == 4 && u->samples == t->samples && u->others == 50);
	assert_int_equal(u->origin.before_samples, 0);

	/* Another agent: parameters and optimiser, the rest is told apart. */
	trainer_set_origin(u, &yours);
	assert_int_equal(trainer_restore(u, &k, NULL, &e), 0);
	assert_params(u, params);
	assert_true(u->step == 4 && u->samples == 0 && u->others == 50 + t->samples);
	assert_true(u->origin.before_samples == t->samples && u->optim.steps == t->optim.steps);
	assert_string_equal(u->origin.before, "me");
	checkpoint_close(&k);
	step_to(u, 5);
	const uint64_t one = u->samples;

	assert_int_equal(trainer_save(u, path, &e), 0);
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	trainer_free(u);
	u = by_hand(&b.config);
	trainer_set_origin(u, &yours);
	assert_int_equal(trainer_restore(u, &k, NULL, &e), 0);
	assert_true(u->step == 5 && u->samples == one && u->others == 50 + t->samples);
	assert_true(u->origin.before_samples == t->samples);
	assert_string_equal(u->origin.before, "me");
	checkpoint_close(&k);
	trainer_free(t);
	trainer_free(u);
	free(params);
	config_close(&b.config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(divergence_is_told),
	        cmocka_unit_test(checkpoints_come_and_may_fail),
	        cmocka_unit_test(what_is_held_out_is_evaluated),
	        cmocka_unit_test(the_best_is_the_best),
	        cmocka_unit_test(what_cannot_open_says_so),
	        cmocka_unit_test(a_checkpoint_is_of_a_run_and_an_agent),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
