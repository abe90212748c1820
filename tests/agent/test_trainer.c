/* SPDX-License-Identifier: MIT */
/* The trainer as others in one process use it: several at once do not disturb each other, a restore
 * that does not fit changes nothing, and what is best is decided by validation alone. */
#define SIDE 6
#include "tests/agent/small_set.h"

#include <math.h>

static void small_config(struct config *c, const char *folder)
{
	config_defaults(c);
	snprintf(c->preset, sizeof c->preset, "mlp");
	snprintf(c->data.train_images, sizeof c->data.train_images, "%s/images", folder);
	snprintf(c->data.train_labels, sizeof c->data.train_labels, "%s/labels", folder);
	snprintf(c->data.test_images, sizeof c->data.test_images, "%s/images", folder);
	snprintf(c->data.test_labels, sizeof c->data.test_labels, "%s/labels", folder);
	snprintf(c->run.device, sizeof c->run.device, "cpu");
	c->run.threads = 1;
	c->run.deterministic = true;
	c->train.batch = 8;
	c->train.epochs = 2;
	c->data.validation = 0.25;
	write_data(c->data.train_images, c->data.train_labels);
}

static void test_counts(void **state)
{
	struct config c;
	struct step_result r;
	struct eval_result v;
	struct err e;

	small_config(&c, *state);
	c.train.accumulate = 2;
	struct trainer *t = new_trainer(&c);

	assert_int_equal(t->n_train, 90);
	assert_int_equal(t->n_val, 30);
	assert_int_equal(trainer_steps_total(t), 12); /* 180 samples by 16, rounded up */
	for (int i = 1; i <= 12; i++) {
		assert_false(trainer_done(t));
		assert_int_equal(trainer_step(t, &r, &e), 0);
		assert_int_equal(r.step, i);
		assert_int_equal(r.samples, 16 * i);
		assert_int_equal(r.count, 16);
		assert_int_equal(r.epoch_end, i == 6 || i == 12);
		assert_true(r.loss > 0 && r.grad_norm > 0);
		assert_int_equal(trainer_steps_total(t), 12);
	}
	assert_true(trainer_done(t));
	assert_int_equal(trainer_evaluate(t, EVAL_VALIDATION, &v, &e), 0);
	assert_int_equal(v.count, 30);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &v, &e), 0);
	assert_int_equal(v.count, SAMPLES);
	trainer_free(t);
	config_close(&c);
}

/* Two batches of 8 are one of 16, but for rounding. */
static void test_accumulation(void **state)
{
	struct step_result r, q;
	struct config c, d;
	struct err e;

	small_config(&c, *state);
	small_config(&d, *state);
	c.train.batch = 16;
	d.train.accumulate = 2;
	struct trainer *a = new_trainer(&c), *b = new_trainer(&d);

	for (int i = 0; i < 10; i++) {
		assert_int_equal(trainer_step(a, &r, &e), 0);
		assert_int_equal(trainer_step(b, &q, &e), 0);
		assert_true(fabs(r.loss - q.loss) < 1e-4 * r.loss);
		assert_true(fabs(r.grad_norm - q.grad_norm) < 1e-3 * r.grad_norm);
		assert_int_equal(r.count, q.count);
	}
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
	config_close(&d);
}

static void test_many_in_one_process(void **state)
{
	struct config c, other;

	small_config(&c, *state);
	small_config(&other, *state);
	other.train.seed = 99;
	other.train.optim.kind = OPTIM_ADAMW;
	struct trainer *alone = new_trainer(&c);

	run_steps(alone, 12);
	struct trainer *a = new_trainer(&c), *b = new_trainer(&other), *d = new_trainer(&c);

	for (int i = 0; i < 12; i++) {
		run_steps(a, 1);
		run_steps(b, 1);
		run_steps(d, 1);
	}
	assert_alike(alone, a, true);
	assert_alike(alone, d, true);
	assert_alike(alone, b, false);
	trainer_free(a);
	trainer_free(b);
	trainer_free(d);
	trainer_free(alone);
	config_close(&other);
	config_close(&c);
}

static void test_save_and_restore(void **state)
{
	char path[300];
	struct trainer_notes notes;
	struct checkpoint k;
	struct config c;
	struct err e;

	small_config(&c, *state);
	snprintf(path, sizeof path, "%s/k.safetensors", (char *)*state);
	struct trainer *a = new_trainer(&c), *b = new_trainer(&c);

	run_steps(a, 7);
	assert_int_equal(trainer_save(a, path, &e), 0);
	run_steps(a, 9);
	run_steps(b, 3); /* to be forgotten */
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	assert_int_equal(trainer_restore(b, &k, &notes, &e), 0);
	assert_int_equal(notes.n, 0);
	assert_int_equal(b->step, 7);
	run_steps(b, 9);
	assert_alike(a, b, true);

	/* Another seed is noted, and goes on. */
	c.train.seed++;
	assert_int_equal(trainer_restore(b, &k, &notes, &e), 0);
	assert_int_equal(notes.n, 1);
	assert_non_null(strstr(notes.text[0], "train.seed"));
	checkpoint_close(&k);
	trainer_free(a);
	trainer_free(b);
	config_close(&c);
}

static void test_misfit_changes_nothing(void **state)
{
	char path[300];
	struct checkpoint k;
	struct config c, adamw, more, cnn;
	struct err e;

	small_config(&c, *state);
	small_config(&adamw, *state);
	small_config(&more, *state);
	small_config(&cnn, *state);
	adamw.train.optim.kind = OPTIM_ADAMW;
	more.data.validation = 0.1;
	snprintf(cnn.preset, sizeof cnn.preset, "cnn");
	const struct {
		const struct config *config;
		const char *word;
	} cases[] = {{&adamw, "optimizer"}, {&more, "training samples"}, {&cnn, "model"}};

	snprintf(path, sizeof path, "%s/m.safetensors", (char *)*state);
	struct trainer *a = new_trainer(&c);

	run_steps(a, 2);
	assert_int_equal(trainer_save(a, path, &e), 0);
	assert_int_equal(checkpoint_open(&k, path, &e), 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct trainer *t = new_trainer(cases[i].config),
		               *same = new_trainer(cases[i].config);

		run_steps(t, 1);
		run_steps(same, 1);
		assert_int_equal(trainer_restore(t, &k, NULL, &e), ERR_MISMATCH);
		assert_non_null(strstr(e.msg, cases[i].word));
		assert_int_equal(t->step, 1);
		run_steps(t, 2);
		run_steps(same, 2);
		assert_alike(t, same, true);
		trainer_free(t);
		trainer_free(same);
	}
	checkpoint_close(&k);
	trainer_free(a);
	config_close(&cnn);
	config_close(&more);
	config_close(&adamw);
	config_close(&c);
}

static void test_best_is_validation(void **state)
{
	struct eval_result v;
	struct config c;
	struct err e;

	small_config(&c, *state);
	struct trainer *t = new_trainer(&c);

	run_steps(t, 5);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &v, &e), 0);
	assert_int_equal(t->best_step, 0);
	assert_int_equal(trainer_evaluate(t, EVAL_VALIDATION, &v, &e), 0);
	assert_int_equal(t->best_step, 5);
	assert_true(t->best_loss == v.loss);
	trainer_free(t);

	c.data.validation = 0;
	c.data.test_images[0] = '\0';
	t = new_trainer(&c);
	assert_int_equal(trainer_evaluate(t, EVAL_VALIDATION, &v, &e), ERR_NOTFOUND);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &v, &e), ERR_NOTFOUND);
	trainer_free(t);
	config_close(&c);
}

/* Agents with different parts of the data must see it normalised alike. */
static void test_parts_share_normalisation(void **state)
{
	struct config c;

	small_config(&c, *state);
	struct trainer *whole = new_trainer(&c);

	c.data.partition.kind = PARTITION_SHARD;
	c.data.partition.parts = 3;
	c.data.partition.part = 1;
	struct trainer *part = new_trainer(&c);

	assert_int_equal(part->n_train, 30);
	assert_true(part->norm.mean[0] == whole->norm.mean[0] &&
	            part->norm.std[0] == whole->norm.std[0]);
	trainer_free(part);
	trainer_free(whole);
	config_close(&c);
}

/* The schedule of one of three agents is the flock's: it goes by the whole set and by what the
 * others have done. */
static void test_flock_clock(void **state)
{
	struct config c;
	struct step_result r, q;
	struct err e;

	small_config(&c, *state);
	c.train.schedule = SCHEDULE_COSINE;
	c.train.warmup_epochs = 0.5;
	struct trainer *alone = new_trainer(&c);

	c.data.partition.kind = PARTITION_SHARD;
	c.data.partition.parts = 3;
	struct trainer *t = new_trainer(&c);

	assert_int_equal(t->n_train, 30);
	assert_int_equal(t->schedule.total, 60);
	assert_int_equal(trainer_flock(t, 0, false, &e), 0);
	assert_int_equal(t->n_whole, 90);
	assert_int_equal(t->schedule.total, 180);
	assert_int_equal(t->schedule.warmup, 45);
	assert_int_equal(trainer_steps_total(t), 23);
	run_steps(alone, 15);
	trainer_set_others(t, 120);
	trainer_set_others(t, 7); /* never falls */
	assert_int_equal(trainer_clock(t), 120);
	assert_int_equal(trainer_epoch(t), 1);
	assert_int_equal(trainer_step(alone, &r, &e), 0);
	assert_int_equal(trainer_step(t, &q, &e), 0);
	assert_true(r.lr == q.lr && r.lr < c.train.optim.lr);
	assert_int_equal(q.samples, 8); /* its own */
	assert_false(trainer_done(t));
	trainer_set_others(t, 172);
	assert_true(trainer_done(t));

	/* Who is no one of a flock has no others, not even by a checkpoint. */
	trainer_set_others(alone, 1000);
	assert_false(trainer_done(alone));
	trainer_free(t);
	trainer_free(alone);
	config_close(&c);
}

static double length(const float *a, const float *b, size_t from, size_t to)
{
	double sum = 0;

	for (size_t i = from; i < to; i++) {
		double d = b != NULL ? (double)a[i] - (double)b[i] : (double)a[i];

		sum += d * d;
	}
	return sqrt(sum);
}

/* Against the path measured from copies, and the norms against the gradients. */
static void test_path_and_norms(void **state)
{
	for (int kind = 0; kind < 3; kind++) {
		double path = 0, norms = 0;
		struct config c;
		struct err e;

		small_config(&c, *state);
		c.train.optim.kind = kind == 2 ? OPTIM_ADAMW : OPTIM_SGD;
		c.train.optim.nesterov = kind == 1;
		struct trainer *t = new_trainer(&c);
		const size_t n = t->arch.n_total;

		assert_int_equal(trainer_flock(t, 0, true, &e), 0);
		for (int i = 1; i <= 80; i++) {
			float *before = params_of(t);

			run_steps(t, 1);
			float *after = params_of(t);

			path += length(after, before, 0, n);
			t->dev->backend->download(t->dev, before, t->net->grads, n * sizeof *after);
			norms = 0;
			for (int v = 0; v < t->arch.n_views; v++)
				norms += length(before, NULL, t->arch.views[v].offset,
				        t->arch.views[v].offset + t->arch.views[v].count);
			assert_true(fabs(t->layer_norms - norms) <= 1e-6 * norms);
			free(before);
			free(after);
			if (kind == 0 && i == 16)
				assert_true(fabs(t->moved - path) < 1e-3 * path);
		}
		/* Estimated from every 16th step; of AdamW only a bound. */
		assert_true(t->moved > 0.5 * path && (kind == 2 || t->moved < 2 * path));
		trainer__params_set(t);
		assert_true(t->moved == 0);
		trainer_free(t);
		config_close(&c);
	}
}

/* From one agent to another that is at the same place: the next steps are the same, bit by bit. */
static void test_state_of_a_peer(void **state)
{
	for (int kind = 0; kind < 2; kind++) {
		struct trainer_state s, wrong;
		struct config c, d;
		struct err e;

		small_config(&c, *state);
		small_config(&d, *state);
		c.train.optim.kind = d.train.optim.kind = kind == 1 ? OPTIM_ADAMW : OPTIM_SGD;
		d.train.seed++;
		struct trainer *a = new_trainer(&c), *b = new_trainer(&d), *same = new_trainer(&d);
		const size_t n = a->arch.n_total, all = (size_t)trainer_vectors(a) * n;
		float *p = malloc(all * sizeof *p);

		assert_non_null(p);
		assert_int_equal(trainer_vectors(a), kind == 1 ? 3 : 2);
		run_steps(a, 5);
		run_steps(b, 5);
		run_steps(same, 5);
		trainer_get_state(a, p, &s);
		wrong = s;
		wrong.optimizer ^= 1;
		assert_int_equal(trainer_adopt_state(b, p, &wrong, &e), ERR_MISMATCH);
		wrong = s;
		wrong.optim_steps = UINT64_MAX;
		assert_int_equal(trainer_adopt_state(b, p, &wrong, &e), ERR_INVALID);
		float keep = p[all - 1];

		p[all - 1] = -INFINITY;
		assert_int_equal(trainer_adopt_state(b, p, &s, &e), ERR_NONFINITE);
		p[all - 1] = -1;
		if (kind == 1) /* nothing squared is negative */
			assert_int_equal(trainer_adopt_state(b, p, &s, &e), ERR_INVALID);
		if (kind == 1) { /* a momentum that the second moment does not cover */
			float was = p[all - 1 - n];
			p[all - 1] = 0;
			p[all - 1 - n] = 1e-3f;
			assert_int_equal(trainer_adopt_state(b, p, &s, &e), ERR_INVALID);
			p[all - 1 - n] = was;
		}
		p[all - 1] = keep;
		run_steps(b, 1);
		run_steps(same, 1);
		assert_alike(b, same, true); /* nothing has happened */
		run_steps(a, 1);
		trainer_get_state(a, p, &s);
		b->optim.steps += 100;
		assert_int_equal(trainer_adopt_state(b, p, &s, &e), 0);
		assert_int_equal(b->optim.steps, a->optim.steps);
		run_steps(a, 4);
		run_steps(b, 4);
		assert_alike(a, b, true);
		free(p);
		trainer_free(a);
		trainer_free(b);
		trainer_free(same);
		config_close(&c);
		config_close(&d);
	}
}

/* A part of a large test set is spread over all of it. */
static void test_part_of_the_test_set(void **state)
{
	enum { MANY = 5000, PART_SAMPLES = 2000 }; /* run.eval_samples's default */
	static uint8_t pixels[16 + MANY * SIDE * SIDE] = {
	        0, 0, 8, 3, 0, 0, MANY >> 8, MANY & 255, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
	static uint8_t classes[8 + MANY] = {0, 0, 8, 1, 0, 0, MANY >> 8, MANY & 255};
	struct eval_result v, w;
	struct config c;
	struct err e;

	small_config(&c, *state);
	for (int i = 0; i < MANY; i++) {
		classes[8 + i] = (uint8_t)(i % CLASSES);
		memset(pixels + 16 + i * SIDE * SIDE, i % 251, SIDE * SIDE);
	}
	snprintf(c.data.test_images, sizeof c.data.test_images, "%s/many", (char *)*state);
	snprintf(c.data.test_labels, sizeof c.data.test_labels, "%s/classes", (char *)*state);
	write_file(c.data.test_images, pixels, sizeof pixels);
	write_file(c.data.test_labels, classes, sizeof classes);
	struct trainer *t = new_trainer(&c);

	assert_int_equal(trainer_flock(t, 0, false, &e), 0);
	for (uint32_t i = 0; i < PART_SAMPLES; i++)
		assert_int_equal(t->part_index[i], i * 5 / 2);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST_PART, &v, &e), 0);
	assert_int_equal(v.count, PART_SAMPLES);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST, &w, &e), 0);
	assert_int_equal(w.count, MANY);
	assert_true(v.loss != w.loss && fabs(v.loss - w.loss) < 0.1 * w.loss);
	assert_int_equal(trainer_evaluate(t, EVAL_TEST_PART, &w, &e), 0);
	assert_true(v.loss == w.loss); /* the same ones again */
	trainer_free(t);
	config_close(&c);
}

static void test_failures_say_what(void **state)
{
	enum trainer_part part;
	struct trainer *t;
	struct config c;
	struct err e;

	small_config(&c, *state);
	snprintf(c.data.train_images, sizeof c.data.train_images, "%s/none", (char *)*state);
	assert_int_not_equal(trainer_new(&t, &c, &part, &e), 0);
	assert_int_equal(part, TRAINER_DATA);
	assert_null(t);
	config_close(&c);

	small_config(&c, *state);
	snprintf(c.preset, sizeof c.preset, "nothing");
	assert_int_not_equal(trainer_new(&t, &c, &part, &e), 0);
	assert_int_equal(part, TRAINER_MODEL);
	config_close(&c);

	small_config(&c, *state);
	snprintf(c.run.device, sizeof c.run.device, "abacus");
	assert_int_not_equal(trainer_new(&t, &c, &part, &e), 0);
	assert_int_equal(part, TRAINER_DEVICE);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_counts),
	        cmocka_unit_test(test_accumulation),
	        cmocka_unit_test(test_many_in_one_process),
	        cmocka_unit_test(test_save_and_restore),
	        cmocka_unit_test(test_misfit_changes_nothing),
	        cmocka_unit_test(test_best_is_validation),
	        cmocka_unit_test(test_parts_share_normalisation),
	        cmocka_unit_test(test_flock_clock),
	        cmocka_unit_test(test_path_and_norms),
	        cmocka_unit_test(test_state_of_a_peer),
	        cmocka_unit_test(test_part_of_the_test_set),
	        cmocka_unit_test(test_failures_say_what),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
