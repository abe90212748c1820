/* SPDX-License-Identifier: MIT */
/* Whether a state that was fetched is believed, and whether it stays so.
 *
 *     fetched ──► the learner tries it ──► adopted ──► 100 steps: is it as good as it seemed?
 *                        └► refused: another donor         └► no: back to the state before
 *
 * A trial compares losses on the same samples: of the fetched state, of our own parameters and of
 * the initial weights. What is not finite or worse than the initial weights is no model. On samples
 * that nobody trains on, a state must also come at least half the way from the initial loss to our
 * own. A newcomer has no own to compare with, only the losses that peers report of their training,
 * which are lower: a tenth of the way will do, so that zeros do not pass and an overfitted flock
 * does. On our own training samples that would be unjust: with splits by label nobody is as good on
 * them as we are. Only a loss that is not finite is held against the donor.
 *
 * A state can be good in a trial and bad to train on, for instance by its optimizer's vectors. So
 * the one before is kept. It comes back when the loss is not finite or, over some steps, above
 * twice the trial's, above what we had, and above twice that of the first step: training losses
 * contain dropout and augmentation, that of a trial does not. The first step's loss is that of the
 * parameters as they were tried; from the second on the donor's momentum moves them. Who gave it is
 * quarantined. Until some steps have passed this check nobody gets what we made of it: no exchange,
 * and no state for joiners. */
#include "gossip/flock/flock_internal.h"

#include <math.h>

#define WATCHED_STEPS 100
#define WATCHED_LEAST 8  /* steps whose mean loss counts; before, we keep to ourselves */
#define TIMES 2.0        /* the trial's loss */
#define OWN_WAY 0.5      /* from the initial loss to our own */
#define NEWCOMER_WAY 0.1 /* the same, to what peers report */
#define REPORTS_MAX 64
#define REPORTS_LEAST 2

bool flock__quarantined(const struct flock *f, const struct peer_id *id)
{
	const struct partner *p = partners_find(f->partners, id);
	return p && p->quarantine_ms > f->now_ms;
}

/* The upper median of the losses that peers report, the donor's left out: of two the larger, so
 * that one liar of two cannot lower it. NaN: too few do. */
static double reported(const struct flock *f)
{
	double v[REPORTS_MAX];
	int n = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership) && n < REPORTS_MAX; i++) {
		struct member_view m = gossip_member(f->membership, i);
		double loss = (double)m.record.status.loss;
		if (!flock__is_candidate(f, &m) || flock__quarantined(f, &m.record.id) ||
		        !(loss >= 0) || isinf(loss) || peer_id_equal(&m.record.id, &f->join.donor))
			continue;
		int k = n++;
		for (; k > 0 && v[k - 1] > loss; k--)
			v[k] = v[k - 1];
		v[k] = loss;
	}
	return n < REPORTS_LEAST ? (double)NAN : v[n / 2];
}

/* The largest loss at which a state is believed. */
static double most(const struct flock *f, const struct flock_trial *t)
{
	bool newcomer = !f->join.anew && !f->c.resumed;
	double held = newcomer ? reported(f) : t->own, share = newcomer ? NEWCOMER_WAY : OWN_WAY;
	double initial = isfinite(t->initial) ? t->initial : (double)INFINITY;
	if (!t->test)
		return initial;
	if (isinf(initial))
		return isfinite(held) ? TIMES * held : initial;
	return isfinite(held) && held < initial ? initial - share * (initial - held) : initial;
}

bool flock__believes(struct flock *f)
{
	const struct flock_trial *t = &f->join.trial;
	double limit = most(f, t);
	f->counts.tried++;
	if (isfinite(t->loss) && t->loss <= limit)
		return true;
	f->counts.refused++;
	struct flock_say *s = flock__say(f, SAY_JOIN_WORSE);
	s->peer = f->join.donor;
	s->a = isfinite(t->loss) && t->loss < 1e9 ? (uint64_t)(1e6 * t->loss) : UINT64_MAX;
	s->b = isfinite(limit) && limit < 1e9 ? (uint64_t)(1e6 * limit) : UINT64_MAX;
	return false;
}

void flock__adopted(struct flock *f)
{
	const struct flock_trial *t = &f->join.trial;
	double own = isfinite(t->own) ? t->own : 0;
	f->adopted = (struct flock__adopted){.on = true,
	        .donor = f->join.donor,
	        .since = f->clock.last.step,
	        .until = f->clock.last.step + WATCHED_STEPS,
	        .trial = t->loss,
	        .own = f->clock.has_loss && f->clock.loss > own ? f->clock.loss : own,
	        .others_then = f->clock.others_then,
	        .own_then = f->clock.own_then,
	        .others_met = f->clock.others_met,
	        .own_met = f->clock.own_met,
	        .joined = f->joined};
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++)
		f->claims.of[i].clipped_then = f->claims.of[i].clipped;
}

void flock__adopted_steps(struct flock *f, const struct flock_trained *s, int n)
{
	struct flock__adopted *a = &f->adopted;
	for (int i = 0; i < n && a->on && !a->due; i++) {
		if (s[i].step <= a->since || s[i].no_loss)
			continue; /* was under way; or of this one nothing is known */
		a->sum += s[i].loss;
		uint64_t steps = s[i].step - a->since;
		double mean = a->sum / (double)steps;
		if (steps == 1)
			a->first = mean;
		bool worse = mean > TIMES * a->trial && mean > a->own && mean > TIMES * a->first;
		a->due = !isfinite(s[i].loss) || (steps >= WATCHED_LEAST && worse);
		a->on = a->due || s[i].step < a->until;
	}
}

bool flock__adopted_unproven(const struct flock *f)
{
	const struct flock__adopted *a = &f->adopted;
	return a->on && f->phase == FLOCK_TRAINING && f->clock.last.step < a->since + WATCHED_LEAST;
}

bool flock__adopted_failed(struct flock *f, int code)
{
	struct flock__adopted *a = &f->adopted;
	if (code != ERR_NONFINITE || !a->on || f->phase == FLOCK_LEAVING)
		return false;
	a->sum = (double)NAN;
	a->due = true;
	return true;
}

/* What an exchange under way is about is the state that goes: that one ends first. */
void flock__adopted_tick(struct flock *f)
{
	struct flock__adopted *a = &f->adopted;
	if (!a->due || !flock__idle(f) || f->phase == FLOCK_LEAVING)
		return;
	double mean = a->sum / (double)(f->clock.last.step - a->since);
	struct flock_say *s = flock__say(f, SAY_RESTORED);
	s->peer = a->donor;
	s->a = isfinite(mean) && mean < 1e9 ? (uint64_t)(1e6 * mean) : UINT64_MAX;
	s->b = (uint64_t)(1e6 * (a->trial < 1e9 ? a->trial : 1e9));
	partners_quarantine(f->partners, &a->donor,
	        "gave a state that did not stay as good as it was when it was tried", f->now_ms);
	f->counts.restored++;
	f->joined = a->joined;
	f->clock.others_then = a->others_then;
	f->clock.own_then = a->own_then;
	f->clock.others_met = a->others_met;
	f->clock.own_met = a->own_met;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++)
		f->claims.of[i].clipped = f->claims.of[i].clipped_then;
	f->clock.last.moved = f->divergence.moved = 0;
	f->clock.set_step = f->clock.last.step;
	f->clock.has_loss = false;
	f->divergence.has_own = false; /* a fresh one comes at once */
	partners_path(f->partners, f->clock.last.step, 0);
	clip_init(&f->clip, f->c.n_groups);
	gate_renew(f->gate);
	guard_renew(&f->guard);
	a->on = a->due = false;
	flock__do(f, FLOCK_DO_RESTORE);
	if (f->phase == FLOCK_TRAINING)
		flock__do(f, FLOCK_DO_TRAIN);
}
