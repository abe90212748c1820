/* SPDX-License-Identifier: MIT */
/* A learner on a loop of its own, with all that the loop has heard of it, for tests. */
#ifndef DUNLIN_TESTS_AGENT_LEARNER_BED_H
#define DUNLIN_TESTS_AGENT_LEARNER_BED_H

#include "tests/agent/small_set.h"

#include "agent/train/learner_thread.h"

#define PATIENCE_S 120 /* then a test that waits in vain is killed */

/* A learner and all that was heard of it. */
struct bed {
	uv_loop_t loop;
	struct config config;
	struct run_dir dir;
	char out[280];
	struct learner *l;
	size_t n;
	int groups;

	char order[128]; /* a letter for each answer, as they came */
	int steps, snapshots, applied, measured, states, adopted, saved, evals, exported, done,
	        failed;
	bool stopped;
	uint64_t first_step, last_step, answer_step, clock;
	bool gap; /* in the numbers of the steps */
	struct learner_step last;
	struct learner_state state;
	struct learner_eval eval;
	struct err err; /* of the last answer that has one */
	float *again;   /* ask for one more snapshot into this at every snapshot */
	void (*check_cb)(struct bed *b);
};

static inline void note(struct bed *b, char letter)
{
	size_t n = strlen(b->order);

	assert_false(b->stopped);
	if (n + 1 < sizeof b->order)
		b->order[n] = letter;
}

static inline void on_steps(void *arg, const struct learner_step *s, int n)
{
	struct bed *b = arg;

	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		if (b->steps++ == 0)
			b->first_step = s[i].r.step;
		else
			b->gap = b->gap || s[i].r.step != b->last_step + 1;
		b->gap = b->gap || s[i].r.samples != 8 * s[i].r.step; /* or a torn one */
		b->last_step = s[i].r.step;
	}
	b->last = s[n - 1];
}

static inline void on_snapshot(void *arg, uint64_t step)
{
	struct bed *b = arg;

	note(b, 's');
	b->snapshots++;
	b->answer_step = step;
	if (b->check_cb != NULL)
		b->check_cb(b);
	if (b->again != NULL)
		assert_true(learner_snapshot(b->l, b->again, CONVERT_FP32, NULL));
}

static inline void on_measured(void *arg)
{
	struct bed *b = arg;

	note(b, 'm');
	b->measured++;
}

static inline void on_applied(void *arg, uint64_t step)
{
	struct bed *b = arg;

	note(b, 'a');
	b->applied++;
	b->answer_step = step;
}

static inline void on_state(void *arg, const struct learner_state *s)
{
	struct bed *b = arg;

	note(b, 'g');
	b->states++;
	b->state = *s;
}

static inline void on_adopted(void *arg, const struct err *e)
{
	struct bed *b = arg;

	note(b, 'd');
	b->adopted++;
	b->err = *e;
}

static inline void on_saved(void *arg, const char *path, uint64_t step, const struct err *e)
{
	struct bed *b = arg;

	note(b, 'c');
	b->saved++;
	b->answer_step = step;
	b->err = *e;
	assert_int_equal(strncmp(path, b->dir.path, strlen(b->dir.path)), 0);
	if (e->code == 0)
		assert_int_equal(access(path, F_OK), 0);
}

static inline void on_eval(void *arg, const struct learner_eval *v, const struct err *e)
{
	struct bed *b = arg;

	note(b, 'e');
	b->evals++;
	b->eval = *v;
	b->err = *e;
}

static inline void on_exported(void *arg, const char *path, const struct err *e)
{
	struct bed *b = arg;

	note(b, 'x');
	b->exported++;
	b->err = *e;
	if (e->code == 0)
		assert_int_equal(access(path, F_OK), 0);
}

static inline void on_done(void *arg, uint64_t clock)
{
	struct bed *b = arg;

	b->done++;
	b->clock = clock;
}

static inline void on_failed(void *arg, const struct err *e)
{
	struct bed *b = arg;

	b->failed++;
	b->err = *e;
}

static inline void on_stopped(void *arg)
{
	struct bed *b = arg;

	b->stopped = true;
}

static inline void add_layer(struct config *c, const char *type, int64_t units)
{
	struct layer *l = realloc(c->layers, (size_t)(c->n_layers + 1) * sizeof *l);

	assert_non_null(l);
	c->layers = l;
	assert_int_equal(layer_init(&l[c->n_layers], type), 0);
	l[c->n_layers++].units = units;
}

/* Momentum and weight decay: every step changes every weight. */
static inline void bed_config(struct bed *b, const char *folder)
{
	static int runs;
	struct config *c = &b->config;

	memset(b, 0, sizeof *b);
	config_defaults(c);
	c->preset[0] = '\0';
	add_layer(c, "flatten", 0);
	add_layer(c, "dense", 5);
	add_layer(c, "gelu", 0);
	add_layer(c, "dense", CLASSES);
	snprintf(c->data.train_images, sizeof c->data.train_images, "%s/images", folder);
	snprintf(c->data.train_labels, sizeof c->data.train_labels, "%s/labels", folder);
	snprintf(c->data.test_images, sizeof c->data.test_images, "%s/images", folder);
	snprintf(c->data.test_labels, sizeof c->data.test_labels, "%s/labels", folder);
	snprintf(c->run.device, sizeof c->run.device, "plain");
	c->run.threads = 1;
	c->run.checkpoint_s = 0;
	c->run.checkpoint_steps = 0;
	c->train.batch = 8;
	c->train.epochs = 1000;
	c->train.optim.lr = 0.01;
	c->train.optim.momentum = 0.9;
	c->train.optim.weight_decay = 1e-3;
	c->data.validation = 0;
	c->data.ahead = 1;
	write_data(c->data.train_images, c->data.train_labels);
	snprintf(b->out, sizeof b->out, "%s/out%d", folder, runs++);
}

static inline void bed_open(struct bed *b)
{
	const struct learner_callbacks callbacks = {
	        .arg = b,
	        .steps_cb = on_steps,
	        .snapshot_cb = on_snapshot,
	        .measured_cb = on_measured,
	        .applied_cb = on_applied,
	        .state_cb = on_state,
	        .adopted_cb = on_adopted,
	        .saved_cb = on_saved,
	        .eval_cb = on_eval,
	        .exported_cb = on_exported,
	        .done_cb = on_done,
	        .failed_cb = on_failed,
	        .stopped_cb = on_stopped,
	};
	const struct learner_config c = {
	        .loop = &b->loop, .config = &b->config, .dir = &b->dir, .layer_norms = true};
	struct err e;

	assert_int_equal(uv_loop_init(&b->loop), 0);
	assert_int_equal(learner_open(&b->l, &c, NULL, &e), 0);
	assert_int_equal(run_dir_open(&b->dir, b->out, &e), 0);
	b->l->callbacks = callbacks;
	b->n = b->l->info.n_total;
	b->groups = b->l->info.groups.n;
	alarm(PATIENCE_S);
}

static inline void bed_begin(struct bed *b, const char *folder)
{
	bed_config(b, folder);
	bed_open(b);
	learner_begin(b->l);
}

/* Runs the loop until count, which a callback raises, is that many. */
static inline void await(struct bed *b, const int *count, int many)
{
	while (*count < many)
		assert_int_not_equal(uv_run(&b->loop, UV_RUN_ONCE), 0);
}

static inline void bed_close(struct bed *b)
{
	learner_stop(b->l);
	b->again = NULL;
	b->check_cb = NULL;
	while (!b->stopped)
		uv_run(&b->loop, UV_RUN_ONCE);
	learner_free(b->l);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	run_dir_close(&b->dir);
	config_close(&b->config);
	alarm(0);
}

static inline float *vector(const struct bed *b, int vectors)
{
	float *p = calloc(b->n * (size_t)vectors, sizeof *p);

	assert_non_null(p);
	return p;
}

/* A trainer of the same config, to be stepped by hand. */
static inline struct trainer *by_hand(const struct config *c)
{
	struct trainer *t;
	struct err e;

	assert_int_equal(trainer_new(&t, c, NULL, &e), 0);
	assert_int_equal(trainer_flock(t, 0, true, &e), 0);
	return t;
}

static inline void step_to(struct trainer *t, uint64_t step)
{
	struct step_result r;
	struct err e;

	while (t->step < step)
		assert_int_equal(trainer_step(t, &r, &e), 0);
}

static inline void assert_params(struct trainer *t, const float *want)
{
	float *p = malloc(t->arch.n_total * sizeof *p);

	assert_non_null(p);
	graph_get_params(t->net, p);
	assert_memory_equal(p, want, t->arch.n_total * sizeof *p);
	free(p);
}

#endif
