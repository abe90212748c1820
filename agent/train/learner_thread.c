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
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BEFORE_STEPS 200 /* that the state before an adoption is kept */
#define NICE 5           /* below the loop's thread; the device's threads inherit it */

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

/* What was measured counts, though the best model was not written. */
static void forgive_unwritten(struct err *e)
{
	if (e->code != ERR_IO)
		return;
	log_warn("%s: training goes on", e->msg);
	e->code = 0;
}

/* What exchanges made of the statistics no step will put right: before the model is the result,
 * they are measured anew. Without that it is one all the same. */
static void recalibrate(struct learner_thread *l)
{
	struct err e;

	if (!l->mixed)
		return;
	l->mixed = false;
	l->run.unsaved = true;
	if (trainer_recalibrate(l->trainer, &e) != 0)
		log_warn("running statistics of batch_norm: %s: they stay as they are", e.msg);
}

static void evaluate(struct learner_thread *l, struct learner_job *j)
{
	if (j->whole)
		recalibrate(l);
	j->err.code = train_run_evaluate(&l->run, j->whole, &j->eval, &j->err);
	j->eval.asked = j->whole;
	forgive_unwritten(&j->err);
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
	        .batch = s.batch,
	        .noise = s.noise,
	        .signal = s.signal,
	};
}

/* Without memory for it there is no way back, and that is all. */
static void keep_before(struct learner_thread *l)
{
	const size_t n = (size_t)trainer_vectors(l->trainer) * l->trainer->arch.n_total;

	if (l->before == NULL)
		l->before = malloc(n * sizeof *l->before);
	if (l->before == NULL)
		return;
	trainer_get_state(l->trainer, l->before, &l->before_state);
	l->before_step = l->trainer->step;
}

static void forget_before(struct learner_thread *l)
{
	if (l->before == NULL || l->trainer->step < l->before_step + BEFORE_STEPS)
		return;
	free(l->before);
	l->before = NULL;
}

static void restore(struct learner_thread *l, struct learner_job *j)
{
	if (l->before == NULL ||
	        trainer_adopt_state(l->trainer, l->before, &l->before_state, &j->err) != 0) {
		/* There is no way back, so it ends: the core takes any other code for that. */
		struct err e = {0};
		l->failed.code = 0;
		(void)!err_set(&e, ERR_NOMEM, "the state before the adoption is not there");
		learner__fail(l, &e);
		return;
	}
	l->run.unsaved = true;
	if (l->failed.code == ERR_NONFINITE)
		l->failed.code = 0;
}

static void try(struct learner_thread *l, struct learner_job *j)
{
	j->err.code = trainer_try(l->trainer, j->from, &j->trial->t, &j->err);
	if (j->err.code == ERR_DEVICE)
		learner__fail(l, &j->err);
}

static void adopt(struct learner_thread *l, struct learner_job *j)
{
	const struct trainer_state s = {
	        .optim_steps = j->state.optim_steps,
	        .optimizer = j->state.optimizer,
	        .vectors = j->state.vectors,
	        .batch = j->state.batch,
	        .noise = j->state.noise,
	        .signal = j->state.signal,
	};

	keep_before(l);
	if (trainer_adopt_state(l->trainer, j->from, &s, &j->err) != 0)
		return;
	j->err.code = 0;
	l->run.unsaved = true;
	l->mixed = true;
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

	l->run.unsaved = true;
	l->mixed = true; /* until a step: nobody knows yet which one is the last */
	l->merge = *j;   /* the trainer borrows k */
	l->merging = true;
	if (j->packed != NULL)
		rc = learner__apply_packed(l, j, &e);
	else if (trains(l))
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
	case LEARNER_TRY:
		try(l, j);
		break;
	case LEARNER_ADOPT:
		adopt(l, j);
		break;
	case LEARNER_RESTORE:
		restore(l, j);
		break;
	case LEARNER_SAVE:
		j->err.code = train_run_save(&l->run, &j->err);
		break;
	case LEARNER_EVALUATE:
		evaluate(l, j);
		break;
	case LEARNER_EXPORT:
		recalibrate(l);
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
	struct trainer *t = l->trainer;

	trainer_set_others(t, atomic_load(&l->others));
	trainer_set_agents(t, atomic_load(&l->agents));
	if (l->done || !train_run_over(&l->run))
		return;
	l->done = true;
	end_merge(l);
	learner__answer(l, &(struct learner_job){.what = LEARNER_DONE, .clock = trainer_clock(t)});
}

/* ---- a step, and what is due behind it */

static void stepped(void *arg, const struct step_result *r, double seconds)
{
	struct learner_thread *l = arg;
	const struct trainer *t = l->trainer;

	struct learner_step s = {
	        .r = *r,
	        .clock = trainer_clock(t),
	        .layer_norms = t->layer_norms,
	        .moved = t->moved,
	        .seconds = seconds,
	};

	if (trainer_batch(t, &s.noise, &s.signal) > 0)
		s.batch = r->step_samples;
	tell_step(l, &s);
	tell_merged(l);
}

static int evaluated(void *arg, const struct learner_eval *v, const struct err *e)
{
	struct learner_job j = {.what = LEARNER_EVALUATE, .eval = *v, .err = *e};

	forgive_unwritten(&j.err);
	learner__answer(arg, &j);
	return 0;
}

static int saved(void *arg, const struct err *e)
{
	struct learner_thread *l = arg;

	learner__answer(l,
	        &(struct learner_job){.what = LEARNER_SAVE, .step = l->trainer->step, .err = *e});
	return 0;
}

static void step(struct learner_thread *l)
{
	struct err e;

	if (train_run_step(&l->run, &e) != 0) {
		tell_merged(l);
		learner__fail(l, &e);
		return;
	}
	l->mixed = false;
	learner__keep(l, train_run_now_s());
	forget_before(l);
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
	const struct train_run_callbacks cb = {
	        .arg = l, .stepped_cb = stepped, .evaluated_cb = evaluated, .saved_cb = saved};
	struct err e;

	if (train_run_begin(&l->run, l->trainer, l->c.dir, &cb, l->trainer->step > 0, &e) != 0)
		log_warn("%s: no more metrics are written, training goes on", e.msg);
	l->run.unsaved = true; /* the checkpoint may be another agent's */
}

static void end(struct learner_thread *l)
{
	(void)learner__sound(l); /* and no snapshot is under way any more */
	train_run_end(&l->run, l->failed.code, "stopped");
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
