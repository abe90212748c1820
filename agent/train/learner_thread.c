/* SPDX-License-Identifier: MIT */
/* The thread's side of a learner: the trainer, and what is done between two of its steps.
 *
 *     requests, in their order ─► the run's clock ─► at its end? ─► a step ─► metrics; when due
 *         ▲                                                                   an evaluation and
 *         └────────────────────────────────────────────────────────────────── a checkpoint
 *
 * A merge that the device copies up by itself waits for the next step's update; everything else in
 * this drawing finds it added.
 *
 * The happy path of a step that nobody interrupts looks at three atomics and takes no lock. Whoever
 * says "adopt this, then train" or "pause, then take a snapshot" may rely on that order: `train` is
 * looked at both before and after the requests, and a step needs both to say yes.
 *
 * What can fail: a step (the loss leaves the finite numbers, the device), which ends the training
 * but not the thread, so that a snapshot can still be had; a checkpoint or the metrics on a full
 * disk, which is told and training goes on; a state that does not fit, which changes nothing. */
#include "agent/train/learner_internal.h"

#include "agent/base/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#define NICE 5 /* below the loop's thread; the device's threads inherit it */
#define METRICS_EVERY_STEPS 50

static double clock_s(void)
{
	return 1e-9 * (double)uv_hrtime();
}

void learner__push(struct learner_queue *q, const struct learner_job *j)
{
	const int room = (int)(sizeof q->job / sizeof q->job[0]);

	assert(q->n < room);
	q->job[(q->first + q->n++) % room] = *j;
}

void learner__pop(struct learner_queue *q, struct learner_job *j)
{
	const int room = (int)(sizeof q->job / sizeof q->job[0]);

	assert(q->n > 0);
	*j = q->job[q->first];
	q->first = (q->first + 1) % room;
	q->n--;
}

/* What the learner tells by itself takes the place of an older one of its kind. */
static bool replace(struct learner_queue *q, const struct learner_job *j)
{
	const int room = (int)(sizeof q->job / sizeof q->job[0]);

	for (int i = 0; !j->asked && i < q->n; i++) {
		struct learner_job *old = &q->job[(q->first + i) % room];

		if (!old->asked && old->what == j->what) {
			*old = *j;
			return true;
		}
	}
	return false;
}

void learner__answer(struct learner_thread *l, const struct learner_job *j)
{
	pthread_mutex_lock(&l->lock);
	if (!replace(&l->answers, j))
		learner__push(&l->answers, j);
	pthread_mutex_unlock(&l->lock);
	uv_async_send(&l->wake);
}

static void tell_step(struct learner_thread *l, const struct learner_step *s)
{
	struct learner_ring *r = &l->ring;
	const uint64_t n = atomic_load_explicit(&r->made, memory_order_relaxed);
	uint64_t word[LEARNER_STEP_WORDS];

	memcpy(word, s, sizeof word);
	atomic_store_explicit(&r->begun, n + 1, memory_order_relaxed);
	for (size_t i = 0; i < LEARNER_STEP_WORDS; i++)
		atomic_store_explicit(
		        &r->word[n % LEARNER_STEPS][i], word[i], memory_order_release);
	atomic_store_explicit(&r->made, n + 1, memory_order_release);
	uv_async_send(&l->wake);
}

void learner__fail(struct learner_thread *l, const struct err *e)
{
	if (l->failed.code != 0)
		return;
	struct learner_job j = {.what = LEARNER_SAVE};

	l->failed = *e;
	if (e->code == ERR_DEVICE && learner__keep_save(l, &j))
		learner__answer(l, &j);
	learner__answer(l, &(struct learner_job){.what = LEARNER_FAILED, .err = *e});
}

static void watch_metrics(struct learner_thread *l)
{
	if (l->metrics.broken.code == 0 || l->metrics_told)
		return;
	l->metrics_told = true;
	log_warn("%s: no more metrics are written, training goes on", l->metrics.broken.msg);
}

static void save(struct learner_thread *l, struct learner_job *j)
{
	struct trainer *t = l->trainer;
	const double begin_s = clock_s();
	char path[RUN_DIR_PATH];
	struct err e;

	j->step = t->step;
	if (!l->unsaved)
		return;
	run_dir_checkpoint(l->c.dir, t->step, path);
	if (trainer_save(t, path, &j->err) == 0) {
		j->err.code = 0;
		l->unsaved = false;
		l->saved_step = t->step;
		metrics_checkpoint(&l->metrics, t, path, clock_s() - begin_s);
		if (run_dir_rotate(l->c.dir, l->c.config->run.keep, &e) != 0)
			log_warn("old checkpoints: %s", e.msg);
	}
	l->saved_s = clock_s(); /* also after a failure: not again at every step */
}

static int evaluate_set(
        struct learner_thread *l, enum eval_set set, struct eval_result *r, struct err *e)
{
	const double begin_s = clock_s();
	int rc = trainer_evaluate(l->trainer, set, r, e);

	if (rc == 0)
		metrics_eval(&l->metrics, l->trainer, set, r, clock_s() - begin_s);
	return rc;
}

/* As in `dunlin train`: on the samples held out, and the best model is kept. Two models of one step
 * may be looked at, before and after the merge rounds: the loss tells which is meant. */
static int validate(struct learner_thread *l, struct learner_eval *v, struct err *e)
{
	struct trainer *t = l->trainer;
	char path[RUN_DIR_PATH];
	struct err why;
	int rc = evaluate_set(l, EVAL_VALIDATION, &v->validation, e);

	if (rc != 0)
		return rc;
	v->best_step = t->best_step;
	v->best_loss = t->best_loss;
	if (t->best_step == t->step && t->best_loss == v->validation.loss &&
	        trainer_save(t, run_dir_file(l->c.dir, "best.safetensors", path), &why) != 0)
		log_warn("%s: training goes on", why.msg);
	return 0;
}

static void evaluate(struct learner_thread *l, struct learner_job *j)
{
	struct trainer *t = l->trainer;
	const double begin_s = clock_s();
	enum eval_set set = j->whole || t->part_loader == NULL ? EVAL_TEST : EVAL_TEST_PART;

	j->eval = (struct learner_eval){
	        .step = t->step,
	        .clock = trainer_clock(t),
	        .whole = set == EVAL_TEST,
	        .asked = j->whole,
	};
	if ((t->n_val > 0 && validate(l, &j->eval, &j->err) != 0) ||
	        (t->has_test && evaluate_set(l, set, &j->eval.r, &j->err) != 0))
		return;
	j->err.code = 0;
	j->eval.seconds = clock_s() - begin_s;
}

static void get_state(struct learner_thread *l, struct learner_job *j)
{
	struct trainer *t = l->trainer;
	struct trainer_state s;

	trainer_get_state(t, j->to, &s);
	j->state = (struct learner_state){
	        .step = t->step,
	        .samples = t->samples,
	        .clock = trainer_clock(t),
	        .optim_steps = s.optim_steps,
	        .optimizer = s.optimizer,
	        .vectors = s.vectors,
	        .moved = t->moved,
	};
}

static void adopt(struct learner_thread *l, struct learner_job *j)
{
	const struct trainer_state s = {
	        .optim_steps = j->state.optim_steps,
	        .optimizer = j->state.optimizer,
	        .vectors = j->state.vectors,
	};

	if (trainer_adopt_state(l->trainer, j->from, &s, &j->err) != 0)
		return;
	j->err.code = 0;
	l->unsaved = true;
}

static void merge_failed(struct learner_thread *l, struct err *e)
{
	err_prefix(e, "add to the parameters");
	learner__fail(l, e);
}

/* Whoever waits for a merge that a step has added hears of it. */
static void tell_merged(struct learner_thread *l)
{
	if (!l->merging || trainer_merging(l->trainer))
		return;
	l->merging = false;
	l->merge.step = l->trainer->step;
	learner__answer(l, &l->merge);
}

/* What no step has added is added now: somebody looks, or there are no steps. */
static void end_merge(struct learner_thread *l)
{
	struct err e;

	if (trainer_merged(l->trainer, &e) != 0)
		merge_failed(l, &e);
	tell_merged(l);
}

/* No merge may wait for a step that never comes. */
static bool trains(struct learner_thread *l)
{
	return atomic_load(&l->train) && !l->done && l->failed.code == 0;
}

static void apply(struct learner_thread *l, const struct learner_job *j)
{
	struct trainer *t = l->trainer;
	const size_t *end = l->base.info.groups.end;
	const int n = l->base.info.groups.n;
	struct err e;
	int rc;

	l->unsaved = true;
	l->merge = *j; /* the trainer borrows k */
	l->merging = true;
	if (trains(l))
		rc = trainer_merge(t, j->from, end, l->merge.k, n, &e);
	else
		rc = trainer_add(t, j->from, end, l->merge.k, n, &e);
	if (rc != 0)
		merge_failed(l, &e);
	tell_merged(l);
}

static void do_job(struct learner_thread *l, struct learner_job *j)
{
	struct trainer *t = l->trainer;
	char path[RUN_DIR_PATH];

	end_merge(l); /* before anything looks at the parameters, and before the next one */
	j->step = t->step;
	switch (j->what) {
	case LEARNER_SNAPSHOT:
		if (!learner__snapshot(l, j))
			return;
		break;
	case LEARNER_MEASURE:
		if (!learner__measure(l, j))
			return;
		break;
	case LEARNER_APPLY:
		apply(l, j);
		return;
	case LEARNER_GET:
		get_state(l, j);
		if (!learner__sound(l))
			return;
		break;
	case LEARNER_ADOPT:
		adopt(l, j);
		break;
	case LEARNER_SAVE:
		save(l, j);
		break;
	case LEARNER_EVALUATE:
		evaluate(l, j);
		break;
	case LEARNER_EXPORT:
		if (trainer_export(t, run_dir_file(l->c.dir, j->name, path), &j->err) == 0)
			j->err.code = 0;
		break;
	case LEARNER_DONE:
	case LEARNER_FAILED:
		break;
	}
	learner__answer(l, j);
}

static bool take(struct learner_thread *l, struct learner_job *j)
{
	bool there;

	if (!atomic_load(&l->asked))
		return false;
	pthread_mutex_lock(&l->lock);
	there = l->requests.n > 0;
	if (there)
		learner__pop(&l->requests, j);
	atomic_store(&l->asked, l->requests.n > 0);
	pthread_mutex_unlock(&l->lock);
	return there;
}

/* Until something is asked for or said. */
static void wait_change(struct learner_thread *l)
{
	pthread_mutex_lock(&l->lock);
	while (!l->poked && l->requests.n == 0)
		pthread_cond_wait(&l->changed, &l->lock);
	l->poked = false;
	pthread_mutex_unlock(&l->lock);
}

static void watch_end(struct learner_thread *l)
{
	const uint64_t limit = (uint64_t)l->c.config->run.stop_after;
	struct trainer *t = l->trainer;

	trainer_set_others(t, atomic_load(&l->others));
	if (l->done || (!trainer_done(t) && (limit == 0 || t->step - l->first_step < limit)))
		return;
	l->done = true;
	end_merge(l);
	learner__answer(l, &(struct learner_job){.what = LEARNER_DONE, .clock = trainer_clock(t)});
}

/* How many of the run's evaluations are behind its clock. */
static uint64_t evaluations(const struct learner_thread *l)
{
	const struct trainer *t = l->trainer;
	double epochs = (double)trainer_clock(t) / (double)trainer_epoch_samples(t);

	return (uint64_t)(epochs / l->c.config->run.eval_epochs);
}

/* What the learner does by itself behind a step. */
static void after_step(struct learner_thread *l, const struct step_result *r)
{
	const struct config *c = l->c.config;
	struct trainer *t = l->trainer;
	const bool due = evaluations(l) > l->evaluations;
	struct learner_job j = {.what = LEARNER_EVALUATE};

	if (r->step % METRICS_EVERY_STEPS == 0 || due || trainer_done(t)) {
		metrics_step(&l->metrics, t, r, (double)l->busy_samples / l->busy_s);
		l->busy_s = 0;
		l->busy_samples = 0;
	}
	if (due && trainer_evaluates(t)) {
		evaluate(l, &j);
		learner__answer(l, &j);
	}
	l->evaluations = evaluations(l);
	if ((c->run.checkpoint_steps > 0 && r->step % (uint64_t)c->run.checkpoint_steps == 0) ||
	        (c->run.checkpoint_s > 0 && clock_s() - l->saved_s >= c->run.checkpoint_s)) {
		j = (struct learner_job){.what = LEARNER_SAVE};
		save(l, &j);
		learner__answer(l, &j);
	}
	learner__keep(l, clock_s());
	watch_metrics(l);
}

static void step(struct learner_thread *l)
{
	struct trainer *t = l->trainer;
	const double begin_s = clock_s();
	struct learner_step s = {0};
	struct err e;

	if (trainer_step(t, &s.r, &e) != 0) {
		tell_merged(l);
		learner__fail(l, &e);
		return;
	}
	l->unsaved = true;
	s.clock = trainer_clock(t);
	s.layer_norms = t->layer_norms;
	s.moved = t->moved;
	s.seconds = clock_s() - begin_s;
	l->busy_s += s.seconds;
	l->busy_samples += (uint64_t)s.r.count;
	tell_step(l, &s);
	tell_merged(l);
	after_step(l, &s.r);
}

static void work(struct learner_thread *l)
{
	struct learner_job j;

	for (;;) {
		/* Both before the requests: what was asked for earlier than they were set is seen
		 * below. */
		const bool stop = atomic_load(&l->stop), train = atomic_load(&l->train);

		while (take(l, &j))
			do_job(l, &j);
		if (stop)
			return;
		watch_end(l);
		if (train && trains(l)) {
			step(l);
		} else {
			end_merge(l);
			wait_change(l);
		}
	}
}

/* The loop can reach it from here on. */
static void begin(struct learner_thread *l)
{
	const struct config *c = l->c.config;
	struct trainer *t = l->trainer;
	char path[RUN_DIR_PATH];
	struct err e;

	if (metrics_open(&l->metrics,
	            c->run.metrics[0] != '\0' ? c->run.metrics
	                                      : run_dir_file(l->c.dir, "metrics.jsonl", path),
	            &e) != 0)
		l->metrics.broken = e;
	l->first_step = l->saved_step = t->step;
	l->evaluations = evaluations(l);
	l->unsaved = true;
	l->begin_s = l->saved_s = clock_s();
	metrics_start(&l->metrics, t, t->step > 0);
	watch_metrics(l);
}

static void end(struct learner_thread *l)
{
	const char *reason = "stopped";

	(void)learner__sound(l); /* and no snapshot is under way any more */
	if (l->failed.code != 0)
		reason = l->failed.code == ERR_NONFINITE ? "diverged" : "failed";
	else if (l->done)
		reason = trainer_done(l->trainer) ? "done" : "stop_after";
	metrics_end(&l->metrics, l->trainer, reason, clock_s() - l->begin_s);
	watch_metrics(l);
	metrics_close(&l->metrics);
	atomic_store(&l->ended, true);
	uv_async_send(&l->wake);
}

/* A trainer, or open_err says why there is none. */
static void open_trainer(struct learner_thread *l)
{
	int rc = trainer_new(&l->trainer, l->c.config, &l->part, &l->open_err);

	if (rc == 0) {
		l->part = TRAINER_DATA;
		rc = trainer_flock(l->trainer, l->c.identity, l->c.layer_norms, &l->open_err);
	}
	l->open_err.code = rc;
}

/* Another nice value is a wish: without it training works, the loop is only less prompt. */
static void give_way(void)
{
	int now;

	errno = 0;
	now = getpriority(PRIO_PROCESS, 0); /* 0: of this thread */
	if (errno != 0 || setpriority(PRIO_PROCESS, 0, now + NICE) != 0)
		log_debug("the learner's thread has no lower priority: %s", strerror(errno));
}

void *learner__thread(void *arg)
{
	struct learner_thread *l = arg;

	pthread_setname_np(pthread_self(), "learner");
	give_way(); /* before there are threads that inherit it */
	open_trainer(l);
	pthread_mutex_lock(&l->lock);
	l->opened = true;
	pthread_cond_broadcast(&l->changed);
	while (l->open_err.code == 0 && !l->begun && !atomic_load(&l->stop))
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
	if (l->begun) {
		begin(l);
		work(l);
		end(l);
	}
	return NULL;
}
