/* SPDX-License-Identifier: MIT */
/* A second learner behind the table of functions: a few numbers that move towards a target, on a
 * timer of the loop. It answers on later turns of the loop, as any learner does. */
#ifndef DUNLIN_TESTS_AGENT_TOY_LEARNER_H
#define DUNLIN_TESTS_AGENT_TOY_LEARNER_H

#include "agent/train/learner.h"
#include "tests/support.h"

#include <assert.h>
#include <math.h>
#include <uv.h>

#define TOY_N 24 /* parameters, in two groups */
#define TOY_JOBS 16
#define TOY_TOTAL 1000000 /* samples of the run; a step is one, until the test has seen enough */

enum toy_what {
	TOY_SNAPSHOT,
	TOY_MEASURE,
	TOY_APPLY,
	TOY_TAKE_STATE,
	TOY_TRY,
	TOY_ADOPT,
	TOY_RESTORE,
	TOY_SAVE,
	TOY_EVALUATE,
	TOY_EXPORT,
	TOY_KINDS
};

struct toy_job {
	enum toy_what what;
	void *to;
	const float *from;
	enum convert_format format;
	struct sketch *sketch;
	float k[2];
};

struct toy {
	struct learner l; /* first */
	uv_timer_t timer;
	float x[TOY_N], target;
	double applied[TOY_N]; /* by merges, in all */
	uint64_t step, samples, others;
	bool training, stopping, done;
	bool enough; /* the next step trains all that is left */
	bool full;   /* it takes no requests */
	bool hold;   /* it answers no evaluation */
	struct toy_job job[TOY_JOBS];
	int n_jobs;
	int did[TOY_KINDS], trains, pauses, buffers;
};

static inline bool toy_ask(struct learner *l, struct toy_job j)
{
	struct toy *t = (struct toy *)l;
	if (t->stopping || t->full || t->n_jobs == TOY_JOBS)
		return false;
	t->job[t->n_jobs++] = j;
	return true;
}

/* ---- what is asked for */

static inline void toy_measure_now(struct toy *t, const struct toy_job *j)
{
	struct learner_measure *m = j->to;
	memset(m, 0, sizeof *m);
	for (int i = 0; i < TOY_N; i++)
		m->group2[i >= TOY_N / 2] += (double)j->from[i] * (double)j->from[i];
	m->finite = isfinite(m->group2[0] + m->group2[1]);
	sketch_add(&m->sketch, j->from, 0, TOY_N);
	t->l.callbacks.measured_cb(t->l.callbacks.arg);
}

static inline void toy_apply_now(struct toy *t, const struct toy_job *j)
{
	for (int i = 0; i < TOY_N; i++) {
		float part = j->k[i >= TOY_N / 2] * j->from[i];
		t->x[i] += part;
		t->applied[i] += (double)part;
	}
	t->l.callbacks.applied_cb(t->l.callbacks.arg, t->step);
}

static inline void toy_snapshot_now(struct toy *t, const struct toy_job *j)
{
	convert_best()->pack(j->format, j->to, t->x, TOY_N);
	if (j->sketch) {
		float y[TOY_N];
		struct convert_sums sums = {0};
		convert_best()->take(j->format, y, j->to, NULL, TOY_N, TAKE_WORDS, &sums);
		memset(j->sketch, 0, sizeof *j->sketch);
		sketch_add(j->sketch, y, 0, TOY_N);
	}
	t->l.callbacks.snapshot_cb(t->l.callbacks.arg, t->step);
}

static inline void toy_state_now(struct toy *t, const struct toy_job *j)
{
	memset(j->to, 0, 2 * sizeof t->x);
	memcpy(j->to, t->x, sizeof t->x);
	t->l.callbacks.state_cb(t->l.callbacks.arg, &(struct learner_state){.step = t->step,
	                                                    .samples = t->samples,
	                                                    .clock = t->samples + t->others,
	                                                    .vectors = 2});
}

static inline void toy_do(struct toy *t, const struct toy_job *j)
{
	const struct learner_callbacks *c = &t->l.callbacks;
	const struct err fine = {0};
	t->did[j->what]++;
	switch (j->what) {
	case TOY_SNAPSHOT:
		toy_snapshot_now(t, j);
		break;
	case TOY_MEASURE:
		toy_measure_now(t, j);
		break;
	case TOY_APPLY:
		toy_apply_now(t, j);
		break;
	case TOY_TAKE_STATE:
		toy_state_now(t, j);
		break;
	case TOY_TRY:
		*(struct learner_trial *)j->to = (struct learner_trial){
		        .t = {.loss = 1, .own = 1, .initial = 2, .test = true}};
		c->tried_cb(c->arg, &fine);
		break;
	case TOY_RESTORE:
		break;
	case TOY_ADOPT:
		memcpy(t->x, j->from, sizeof t->x);
		c->adopted_cb(c->arg, &fine);
		break;
	case TOY_SAVE:
		c->saved_cb(c->arg, "nowhere", t->step, &fine);
		break;
	case TOY_EVALUATE:
		c->eval_cb(c->arg,
		        &(struct learner_eval){.r = {.loss = 1, .correct = 9, .count = 10},
		                .step = t->step,
		                .clock = t->samples + t->others,
		                .whole = true,
		                .asked = true},
		        &fine);
		break;
	default:
		c->exported_cb(c->arg, "nowhere", &fine);
		break;
	}
}

static inline void toy_step(struct toy *t)
{
	const struct learner_callbacks *c = &t->l.callbacks;
	uint64_t clock = t->samples + t->others;
	if (clock >= TOY_TOTAL) {
		t->done = true;
		c->done_cb(c->arg, clock);
		return;
	}
	for (int i = 0; i < TOY_N; i++)
		t->x[i] += 0.01f * (t->target + (float)i - t->x[i]);
	t->samples += t->enough ? TOY_TOTAL - clock : 1;
	t->step++;
	struct learner_step s = {.r = {.step = t->step,
	                                 .samples = t->samples,
	                                 .loss = 1,
	                                 .count = 1,
	                                 .grad_norm = 1,
	                                 .lr = 0.01},
	        .clock = t->samples + t->others,
	        .moved = (double)t->step};
	c->steps_cb(c->arg, &s, 1);
}

static inline void toy_stopped(uv_handle_t *h)
{
	struct toy *t = h->data;
	t->l.callbacks.stopped_cb(t->l.callbacks.arg);
}

static inline void toy_turn(uv_timer_t *timer)
{
	struct toy *t = timer->data;
	int n = t->n_jobs; /* what an answer asks for waits for the next turn */
	while (n-- > 0) {
		struct toy_job j = t->job[0];
		if (j.what == TOY_EVALUATE && t->hold)
			return;
		memmove(t->job, t->job + 1, (size_t)--t->n_jobs * sizeof *t->job);
		toy_do(t, &j);
	}
	if (t->training && !t->done && !t->stopping)
		toy_step(t);
	if (t->stopping && t->n_jobs == 0 && !uv_is_closing((uv_handle_t *)timer))
		uv_close((uv_handle_t *)timer, toy_stopped);
}

/* ---- the table */

static inline void *toy_buffer(struct learner *l, size_t bytes)
{
	((struct toy *)l)->buffers++;
	return malloc(bytes);
}

static inline void toy_buffer_free(struct learner *l, void *p)
{
	((struct toy *)l)->buffers--;
	free(p);
}

static inline void toy_begin(struct learner *l)
{
	uv_timer_start(&((struct toy *)l)->timer, toy_turn, 1, 1);
}

static inline void toy_train(struct learner *l)
{
	((struct toy *)l)->training = true;
	((struct toy *)l)->trains++;
}

static inline void toy_pause(struct learner *l)
{
	((struct toy *)l)->training = false;
	((struct toy *)l)->pauses++;
}

static inline void toy_others(struct learner *l, uint64_t samples)
{
	((struct toy *)l)->others = samples;
}

static inline bool toy_snapshot(
        struct learner *l, void *to, enum convert_format format, struct sketch *sketch)
{
	return toy_ask(
	        l, (struct toy_job){
	                   .what = TOY_SNAPSHOT, .to = to, .format = format, .sketch = sketch});
}

static inline bool toy_measure(struct learner *l, const float *d, struct learner_measure *to)
{
	return toy_ask(l, (struct toy_job){.what = TOY_MEASURE, .from = d, .to = to});
}

static inline bool toy_apply(struct learner *l, const float *d, const float *k, int n_groups)
{
	assert_int_equal(n_groups, 2);
	return toy_ask(l, (struct toy_job){.what = TOY_APPLY, .from = d, .k = {k[0], k[1]}});
}

static inline bool toy_take_state(struct learner *l, float *to)
{
	return toy_ask(l, (struct toy_job){.what = TOY_TAKE_STATE, .to = to});
}

static inline bool toy_adopt(struct learner *l, const float *from, const struct learner_state *s)
{
	assert_int_equal(s->vectors, 2);
	return toy_ask(l, (struct toy_job){.what = TOY_ADOPT, .from = from});
}

static inline bool toy_try(struct learner *l, const float *from, struct learner_trial *to)
{
	return toy_ask(l, (struct toy_job){.what = TOY_TRY, .from = from, .to = to});
}

static inline bool toy_restore(struct learner *l)
{
	return toy_ask(l, (struct toy_job){.what = TOY_RESTORE});
}

static inline bool toy_save(struct learner *l, bool wished)
{
	(void)wished;
	return toy_ask(l, (struct toy_job){.what = TOY_SAVE});
}

static inline bool toy_evaluate(struct learner *l, bool whole)
{
	assert_true(whole);
	return toy_ask(l, (struct toy_job){.what = TOY_EVALUATE});
}

static inline bool toy_export(struct learner *l, const char *name)
{
	(void)name;
	return toy_ask(l, (struct toy_job){.what = TOY_EXPORT});
}

static inline void toy_stop(struct learner *l)
{
	((struct toy *)l)->stopping = true;
}

static inline void toy_free(struct learner *l)
{
	(void)l; /* the test's memory */
}

static const struct learner_ops toy_ops = {.buffer = toy_buffer,
        .buffer_free = toy_buffer_free,
        .begin = toy_begin,
        .train = toy_train,
        .pause = toy_pause,
        .others = toy_others,
        .snapshot = toy_snapshot,
        .measure = toy_measure,
        .apply = toy_apply,
        .take_state = toy_take_state,
        .try = toy_try,
        .adopt = toy_adopt,
        .restore = toy_restore,
        .save = toy_save,
        .evaluate = toy_evaluate,
        .export = toy_export,
        .stop = toy_stop,
        .free = toy_free};

static inline void toy_init(struct toy *t, uv_loop_t *loop, float target, bool measures)
{
	*t = (struct toy){.target = target,
	        .l = {.ops = &toy_ops,
	                .info = {.n_total = TOY_N,
	                        .n_train = TOY_N,
	                        .vectors = 2,
	                        .groups = {.n = 2, .end = {TOY_N / 2, TOY_N}},
	                        .total = TOY_TOTAL,
	                        .evaluates = true,
	                        .measures = measures,
	                        .model = "toy",
	                        .device = "none"}}};
	for (int i = 0; i < TOY_N; i++)
		t->x[i] = 1;
	uv_timer_init(loop, &t->timer);
	t->timer.data = t;
}

#endif
