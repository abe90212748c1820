/* SPDX-License-Identifier: MIT */
/* How it ends: the merge rounds when all samples are trained, the result, and leaving, at any time.
 *
 * Merging: the local model is evaluated, then exchanges in fp32, as many as it takes until partners
 * hardly differ, or until time is up; then the merged model is evaluated and written. A finished
 * agent stays until nobody has wanted its share for a while. A result that could not be written (a
 * full disk) is tried again during the stay, which lasts for some tries at least. An agent that was
 * away, and finds nobody to take the result from, has none.
 *
 * Leaving: no new exchange; the one under way ends or is given up; a checkpoint; then everything
 * that holds memory of the driver's (transfers, workers, the learner) has to let go of it; then
 * membership says goodbye. */
#include "gossip/flock/flock_internal.h"

#define MERGE_ROUNDS_MAX 64 /* begun by us; others begin as many */
#define MERGE_STRIKES 4     /* who fails so often in a row is not waited for */
#define FINE 1e-3           /* of our length: from there on fp32 */
#define WRITE_TRIES 4       /* of the result, at least; more while peers want us */
#define WRITE_RETRY_MS 3000

/* The checkpoint behind the export, so that its answer is the last of the two. */
static void write_result(struct flock *f)
{
	struct flock__finish *n = &f->finish;
	n->tries++;
	n->retry_ms = f->now_ms + WRITE_RETRY_MS;
	if (n->exported == WRITTEN_NOT || n->exported == WRITTEN_FAILED) {
		n->exported = WRITTEN_ASKED;
		flock__do(f, FLOCK_DO_EXPORT);
	}
	if (n->saved == WRITTEN_NOT || n->saved == WRITTEN_FAILED) {
		n->saved = WRITTEN_ASKED;
		flock__do(f, FLOCK_DO_SAVE);
	}
}

bool flock_unsaved(const struct flock *f)
{
	const struct flock__finish *n = &f->finish;
	bool written =
	        n->saved == WRITTEN_YES && (n->exported == WRITTEN_YES || n->merge != MERGE_OVER);
	/* What a learner that failed has is not worth keeping. */
	return n->owes && !n->learner_failed && !n->refused && !written;
}

void flock__saved(struct flock *f, const struct flock_event *e)
{
	struct flock__finish *n = &f->finish;
	if (e->code == 0) {
		f->saves++;
		f->saved_step = e->saved_step;
		f->saved_ms = f->now_ms;
	}
	/* The last answer counts: one that was due by itself may come before the export. */
	if (n->saved != WRITTEN_NOT && n->exported != WRITTEN_ASKED)
		n->saved = e->code ? WRITTEN_FAILED : WRITTEN_YES;
}

void flock__exported(struct flock *f, int code)
{
	f->finish.exported = code ? WRITTEN_FAILED : WRITTEN_YES;
	if (code)
		flock__say(f, SAY_UNWRITTEN)->error = code;
}

/* ---- the end of the run */

void flock__run_over(struct flock *f, const struct flock_event *e)
{
	if (f->phase == FLOCK_LEAVING)
		return;
	if (e->done.stopped_early) {
		flock__say(f, SAY_STOPPED_EARLY);
		flock__leave(f, 0);
		return;
	}
	struct flock_say *s = flock__say(f, SAY_RUN_TRAINED);
	s->a = e->done.clock;
	s->b = flock__samples(f);
	flock__tell_clock(f);
	f->finish.run_over = true;
	flock__merge_if_over(f);
}

/* Without a state of the flock it joins first: untrained weights are nothing to merge. */
bool flock__merge_if_over(struct flock *f)
{
	if (!f->finish.run_over || (f->phase != FLOCK_TRAINING && f->phase != FLOCK_PAUSED) ||
	        flock__joining(f) || flock__stale(f) || flock__behind(f))
		return false;
	flock__merge_begin(f);
	return true;
}

/* Its model is none that a user should take for the run's. What it has is in a checkpoint, which
 * names the clock up to which it is worth something. */
void flock__no_result(struct flock *f)
{
	flock__say(f, SAY_NO_RESULT)->a = flock__missed(f);
	flock__leave(f, ERR_STALE);
}

static void start_rounds(struct flock *f)
{
	f->finish.merge = MERGE_ROUNDS;
	f->finish.merge_until_ms = f->now_ms + f->c.merge_ms;
}

void flock__merge_begin(struct flock *f)
{
	flock__phase(f, FLOCK_MERGING);
	if (!f->c.evaluates) {
		start_rounds(f);
		return;
	}
	f->finish.merge = MERGE_LOCAL;
	flock__do(f, FLOCK_DO_EVALUATE);
}

void flock__evaluated(struct flock *f, const struct flock_event *e)
{
	bool tested = e->code == 0 && e->eval.count > 0;
	if (tested) {
		f->eval = e->eval;
		f->has_eval = true;
	}
	if (!e->eval.asked)
		return;
	if (f->finish.merge == MERGE_LOCAL) {
		f->local = e->eval;
		f->has_local = tested;
		start_rounds(f);
	} else {
		f->merged = e->eval;
		f->has_merged = tested;
	}
}

/* Two that are done early are soon near each other, while others have not begun: only when all of
 * them are near, or as many as can be kept, is there nothing left to do. */
void flock__merge_result(struct flock *f, const struct exchange_result *r)
{
	struct flock__finish *n = &f->finish;
	/* 1e-4 of the parameters' length: less than what evaluation can tell. */
	double norm = f->divergence.has_own ? sketch_norm(&f->divergence.own) : 0;
	/* One from before may be rounded, and find no distance where there is some. */
	if (f->phase != FLOCK_MERGING || !r->final)
		return;
	n->rounds++;
	n->fine = n->fine || r->distance < FINE * norm;
	/* How far apart blocks are that were left out nobody has measured, and of a late exchange
	 * nobody knows whether there were any. */
	if (r->distance > 1e-4 * norm || f->x.left_out || r->late) {
		n->n_near = 0;
		return;
	}
	for (int i = 0; i < n->n_near; i++)
		if (peer_id_equal(&n->near[i], &r->peer))
			return;
	if (n->n_near < FLOCK_MERGE_NEAR)
		n->near[n->n_near++] = r->peer;
}

static bool merged(const struct flock *f)
{
	int partners = 0;
	for (int i = 0; i < f->candidates.n; i++) {
		const struct partner *p = partners_find(f->partners, &f->candidates.id[i]);
		partners += !p || (p->quarantine_ms <= f->now_ms && p->strikes < MERGE_STRIKES);
	}
	return f->finish.n_near >= (partners < FLOCK_MERGE_NEAR ? partners : FLOCK_MERGE_NEAR);
}

static void merge_tick(struct flock *f)
{
	struct flock__finish *n = &f->finish;
	if (n->merge != MERGE_ROUNDS)
		return;
	flock__candidates(f);
	bool over = f->now_ms >= n->merge_until_ms || f->candidates.n == 0 || merged(f) ||
	            n->rounds >= 2 * MERGE_ROUNDS_MAX;
	if (over && flock__idle(f)) {
		n->merge = MERGE_OVER;
		n->owes = true;
		n->idle_since_ms = f->now_ms;
		flock__phase(f, FLOCK_FINISHED);
		if (n->rounds > 0 && f->c.evaluates)
			flock__do(f, FLOCK_DO_EVALUATE);
		write_result(f);
	} else if (!over && gate_pays(f->gate, f->now_ms, flock__merge_bytes(f))) {
		flock__offer_any(f, true);
	}
}

static void stay_tick(struct flock *f)
{
	const struct flock__finish *n = &f->finish;
	bool asked = n->exported == WRITTEN_ASKED || n->saved == WRITTEN_ASKED;
	flock__candidates(f);
	bool wanted = f->candidates.n > 0 && f->now_ms - n->idle_since_ms < f->c.stay_ms;
	bool again = flock_unsaved(f) && (wanted || n->tries < WRITE_TRIES);
	if (again && !asked && f->now_ms >= n->retry_ms)
		write_result(f);
	if (asked || again || wanted || !flock__idle(f))
		return;
	flock__leave(f, 0);
}

void flock__finish_tick(struct flock *f)
{
	if (f->phase == FLOCK_MERGING)
		merge_tick(f);
	else if (f->phase == FLOCK_FINISHED)
		stay_tick(f);
}

/* ---- leaving */

void flock__learner_failed(struct flock *f, int code)
{
	if (flock__adopted_failed(f, code))
		return;
	f->finish.learner_failed = true;
	if (f->phase == FLOCK_LEAVING)
		return;
	flock__say(f, SAY_FAILED)->error = code;
	flock__leave(f, code);
}

void flock__leave(struct flock *f, int code)
{
	struct flock__finish *n = &f->finish;
	if (n->leave != LEAVE_NONE)
		return;
	n->owes = n->owes || f->clock.last.step > 0 || f->joined;
	flock__do(f, FLOCK_DO_LEAVE)->code = code;
	flock__phase(f, FLOCK_LEAVING);
	n->leave = LEAVE_MEMBERSHIP;
	if (!f->c.learner)
		return;
	n->leave = LEAVE_EXCHANGE;
	n->leave_until_ms = f->now_ms + f->c.leave_ms / 4;
	flock__tell_clock(f);
	flock__do(f, FLOCK_DO_PAUSE);
	flock__exchange(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_STOP});
	flock__join_close(f);
	flock__donate_close(f);
}

static void stop_learner(struct flock *f)
{
	struct flock__finish *n = &f->finish;
	n->leave = LEAVE_LEARNER;
	if (flock_unsaved(f) && n->merge == MERGE_OVER)
		write_result(f); /* a last try, unless one is under way */
	else if (flock_unsaved(f)) {
		n->saved = WRITTEN_ASKED;
		flock__do(f, FLOCK_DO_SAVE);
	}
	flock__do(f, FLOCK_DO_STOP);
}

/* Transfers and workers hold the driver's memory until they have ended. */
static bool held(const struct flock *f)
{
	return f->x.incoming != INCOMING_NONE || f->join.stage == JOIN_ENDING ||
	       flock__donate_busy(f);
}

void flock__leave_check(struct flock *f)
{
	struct flock__finish *n = &f->finish;
	bool settled = n->leave == LEAVE_EXCHANGE && exchange_state(f->exchange) == EXCHANGE_IDLE &&
	               exchange_unsettled(f->exchange) == 0;
	if (n->leave == LEAVE_EXCHANGE && (settled || f->now_ms >= n->leave_until_ms))
		stop_learner(f);
	if (n->leave == LEAVE_LEARNER && n->learner_stopped && !held(f))
		n->leave = LEAVE_MEMBERSHIP;
	if (n->leave == LEAVE_MEMBERSHIP && !f->membership_stepped) {
		n->leave = LEAVE_LEFT;
		flock__membership(f, &(struct gossip_event){.kind = EVENT_LEAVE});
		flock__do(f, FLOCK_DO_LEFT);
	}
}
