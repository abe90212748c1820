/* SPDX-License-Identifier: MIT */
/* How it ends: the merge rounds when all samples are trained, and leaving, at any time.
 *
 * Merging: the local model is evaluated, then exchanges in fp32, as many as it takes until partners
 * hardly differ, or until time is up; then the merged model is evaluated and written. Who is
 * through stays until nobody has wanted its share for a while. A result that could not be written
 * (a full disk) is tried again during the stay, which lasts for some tries at least. Who was away,
 * and finds nobody to take the result from, has none.
 *
 * Leaving: no new exchange; the one under way ends or is given up; a checkpoint; then everything
 * that holds our memory (transfers, workers, the learner) has to let go of it. What could not be
 * written is flock_unsaved, for the exit code. */
#include "agent/base/log.h"
#include "agent/flock_core.h"

#include <assert.h>

#define MERGE_ROUNDS_MAX 64 /* begun by us; others begin as many */
#define MERGE_STRIKES 4     /* who fails so often in a row is not waited for */
#define MERGE_PAUSE_MS 10
#define RESULT_TRIES 4 /* at least; more while peers want us */
#define RESULT_RETRY_MS 3000

void flock__merge_begin(struct flock_agent *f)
{
	flock__phase(f, FLOCK_MERGING);
	f->merge_until_ms = 0; /* set when the local model is evaluated */
	if (!trainer_evaluates(learner_trainer(f->learner)) || !learner_evaluate(f->learner, true))
		f->merge_until_ms = f->now_ms + (uint64_t)(f->c.config->gossip.merge_s * 1000);
}

/* The checkpoint behind the export, so that its answer is the last of the two. */
static void ask_result(struct flock_agent *f)
{
	f->result_tries++;
	f->result_ms = f->now_ms + RESULT_RETRY_MS;
	f->exported = f->finished;
	f->result_asked = (f->finished || learner_export(f->learner, "final.safetensors")) &&
	                  learner_save(f->learner);
	if (!f->result_asked)
		log_warn("the result is not written yet: the learner's queue is full");
}

static void write_result(struct flock_agent *f)
{
	f->owes = true;
	f->merge_evaluated = true;
	flock__phase(f, FLOCK_FINISHED);
	f->idle_since_ms = f->now_ms;
	if (f->merge_rounds > 0 && trainer_evaluates(learner_trainer(f->learner)) &&
	        !learner_evaluate(f->learner, true))
		log_warn("the merged model is not evaluated: the learner's queue is full");
	ask_result(f);
}

/* Two that are done early are soon near each other, while others have not begun: only when all of
 * them are near, or as many as can be kept, is there nothing left to do. */
void flock__merge_result(struct flock_agent *f, const struct exchange_result *r)
{
	/* 1e-4 of the parameters' length: less than what evaluation can tell. */
	double norm = f->has_sketch ? sketch_norm(&f->sketch) : 0;
	if (f->phase != FLOCK_MERGING || r->outcome != OUTCOME_EXCHANGED)
		return;
	f->merge_rounds++;
	if (r->distance > 1e-4 * norm) {
		f->n_merge_near = 0;
		return;
	}
	for (int i = 0; i < f->n_merge_near; i++)
		if (peer_id_equal(&f->merge_near[i], &r->peer))
			return;
	if (f->n_merge_near < FLOCK_MERGE_NEAR)
		f->merge_near[f->n_merge_near++] = r->peer;
}

static bool merged(const struct flock_agent *f)
{
	int partners = 0;
	for (int i = 0; i < f->n_candidates; i++) {
		const struct partner *p = partners_find(f->partners, &f->candidate[i]);
		partners += !p || (p->quarantine_ms <= f->now_ms && p->strikes < MERGE_STRIKES);
	}
	return f->n_merge_near >= (partners < FLOCK_MERGE_NEAR ? partners : FLOCK_MERGE_NEAR);
}

/* Its model is none that a user should take for the run's. What it has is in a checkpoint, which
 * names the clock up to which it is worth something. */
void flock__end_stale(struct flock_agent *f)
{
	log_error("the flock trained %llu of the run's %llu samples while this agent was away, and "
	          "no peer is left to take the result from: no result is written here",
	        (unsigned long long)flock__missed(f), (unsigned long long)f->total);
	log_error("take final.safetensors from another agent of this run; `dunlin export` makes "
	          "weights of this agent's own, older model from its last checkpoint");
	flock__phase(f, FLOCK_LEAVING);
	f->c.finished_cb(f->c.arg, ERR_STALE);
}

void flock__merge_tick(struct flock_agent *f)
{
	if (f->merge_until_ms == 0)
		return; /* the local model is being evaluated */
	flock__candidates(f);
	bool over = f->now_ms >= f->merge_until_ms || f->n_candidates == 0 || merged(f) ||
	            f->merge_rounds >= 2 * MERGE_ROUNDS_MAX;
	if (over && flock__exchange_idle(f))
		write_result(f);
	else if (!over && f->now_ms >= f->merge_next_ms) {
		f->merge_next_ms = f->now_ms + MERGE_PAUSE_MS;
		flock__exchange_begin(f, true);
	}
}

void flock__stay_tick(struct flock_agent *f)
{
	flock__candidates(f);
	bool wanted = f->n_candidates > 0 &&
	              f->now_ms - f->idle_since_ms < (uint64_t)(f->c.config->gossip.stay_s * 1000);
	bool again = flock_unsaved(f) && (wanted || f->result_tries < RESULT_TRIES);
	if (again && !f->result_asked && f->now_ms >= f->result_ms)
		ask_result(f);
	if (f->result_asked || again || wanted || !flock__exchange_idle(f))
		return;
	flock__phase(f, FLOCK_LEAVING);
	f->c.finished_cb(f->c.arg, 0);
}

/* ---- leaving */

static void on_handle_closed(uv_handle_t *h)
{
	struct flock_agent *f = h->data;
	if (--f->handles > 0)
		return;
	f->node = NULL;
	f->left_cb(f->c.arg);
}

/* Transfers and workers hold our memory until they have ended; a cancelled one ends at once. */
static void maybe_left(struct flock_agent *f)
{
	if (!f->stopping || !f->learner_stopped || f->bulk || f->sketching || flock__join_busy(f) ||
	        flock__gift_busy(f))
		return;
	f->stopping = false;
	uv_timer_stop(&f->leave_timer);
	uv_close((uv_handle_t *)&f->tick, on_handle_closed);
	uv_close((uv_handle_t *)&f->exchange_timer, on_handle_closed);
	uv_close((uv_handle_t *)&f->leave_timer, on_handle_closed);
}

bool flock_unsaved(const struct flock_agent *f)
{
	/* What a learner that failed has is not worth keeping. */
	return f->owes && !f->learner_failed && !f->refused &&
	       !(f->kept && (f->finished || !f->merge_evaluated));
}

static void stop_learner(struct flock_agent *f)
{
	f->learner_stopping = true;
	if (f->merge_evaluated) { /* a last try, unless one is under way or the result is there */
		if (flock_unsaved(f) && !f->result_asked)
			ask_result(f);
	} else if (flock_unsaved(f) && !learner_save(f->learner))
		log_warn("no last checkpoint: the learner's queue is full");
	learner_stop(f->learner);
}

void flock__learner_stopped(void *arg)
{
	struct flock_agent *f = arg;
	f->learner_stopped = true;
	maybe_left(f);
}

static void on_leave_timer(uv_timer_t *t)
{
	struct flock_agent *f = t->data;
	f->now_ms = uv_now(f->c.loop);
	bool patience = f->now_ms < f->leave_until_ms;
	if (f->learner_stopping)
		maybe_left(f);
	else if (!patience || (exchange_state(f->exchange) == EXCHANGE_IDLE &&
	                              exchange_unsettled(f->exchange) == 0))
		stop_learner(f);
}

void flock_leave(struct flock_agent *f, void (*left_cb)(void *arg))
{
	assert(!f->left_cb);
	f->left_cb = left_cb;
	f->owes = f->owes || f->last.r.step > 0 || f->joined;
	f->now_ms = uv_now(f->c.loop);
	flock__phase(f, FLOCK_LEAVING);
	flock__tell_status(f);
	learner_pause(f->learner);
	flock__exchange_event(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_STOP});
	flock__join_close(f);
	flock__gift_close(f);
	f->stopping = true;
	f->leave_until_ms = f->now_ms + (uint64_t)(f->c.config->agent.leave_s * 250);
	uv_timer_stop(&f->tick);
	uv_timer_start(&f->leave_timer, on_leave_timer, 0, 20);
}
