/* SPDX-License-Identifier: MIT */
/* The run's clock, and what of it this agent's model has no part of; and the candidates.
 *
 * The clock is the samples of all agents; budget, schedules and the end of the run go by it. What
 * is known of the others comes from two sides: their records, as far as they count (claims.c),
 * which take seconds to spread, but no fewer than our own checkpoint knew of; and what partners
 * have heard, which takes one exchange. A partner's word counts for no more than a share of the run
 * beyond the records.
 *
 * While we train and hear of the others all the time, what they train reaches our model by
 * exchanges, however rare these are. It does not when we slept (a stopped process, a suspended
 * laptop) or were cut off from everybody: what we hear of afterwards, until the next exchange, was
 * missed. So it is when we were paused, or started from a checkpoint, or have made too few steps
 * with a state that we took to exchange it. But the last words of a peer that leaves are no news of
 * that kind, though nobody is left when we look at the clock. An agent that has missed more than
 * gossip.stale of the run, and more than it trained by itself meanwhile, is stale: its model is not
 * the flock's, and it takes a donor's state. Of two that were cut off from each other only one can
 * be.
 *
 * A slow agent in touch misses nothing by that account, but may fall behind all the same: between
 * two of its steps fast peers go so far that exchanges with them are clipped to nearly nothing.
 * Then it drags them, and the merged model, back to where it is. It takes a donor's state as well.
 * That a peer has trained much is no sign of it: the news may be of hours, and come at once. What
 * counts is what peers train after an exchange with them that hardly moved us.
 *
 * What cannot be known: an agent that wakes up, or starts from an old checkpoint, when all others
 * are gone and nobody is left who has heard of their samples, has no reason to think that it missed
 * any. It trains what is left of the run by its own account.
 *
 * Candidates are the live peers of our run that can be reached: partners are drawn from them. */
#include "gossip/flock/flock_internal.h"

#define CANDIDATES_MS 200
#define CLOCK_NEWS_MS 30000 /* in which samples that somebody trained are known to all */
#define SLEPT_MS 1000       /* between two ticks */
#define SLEPT_LONG_MS 5000  /* longer than a busy machine keeps a tick waiting */
#define BEHIND 8.0          /* times our own samples, that a faster peer trains */
#define AGREE 2             /* of these, where there are as many */
#define CUT_OFF_MS 1000     /* without a candidate: the last words of one that left take less */

uint64_t flock__samples(const struct flock *f)
{
	return f->clock.base + f->clock.last.samples;
}

double flock__moved(const struct flock *f)
{
	return f->clock.last.moved;
}

static uint64_t others(const struct flock *f)
{
	uint64_t known = f->claims.others;
	if (known < f->clock.kept)
		known = f->clock.kept;
	uint64_t most = known + (uint64_t)(f->c.stale * (double)f->c.manifest.total);
	uint64_t told = f->clock.told < most ? f->clock.told : most;
	return told > known ? told : known;
}

uint64_t flock__clock(const struct flock *f)
{
	return others(f) + flock__samples(f);
}

uint64_t flock__missed(const struct flock *f)
{
	uint64_t now = others(f);
	return now > f->clock.others_then ? now - f->clock.others_then : 0;
}

bool flock__slept(const struct flock *f)
{
	return f->clock.slept_ms != 0 && f->now_ms - f->clock.slept_ms < CLOCK_NEWS_MS;
}

bool flock__stale(const struct flock *f)
{
	/* What it trains on while a state comes makes it no less stale. */
	uint64_t now = f->clock.own_join ? f->clock.own_join : flock__samples(f);
	uint64_t missed = flock__missed(f),
	         own = now > f->clock.own_then ? now - f->clock.own_then : 0;
	return (double)missed > f->c.stale * (double)f->c.manifest.total && missed > own;
}

/* Candidates with whom an exchange hardly moved us, and that have each trained so much since. */
static int faster(const struct flock *f, double than)
{
	const struct flock__counted *of = f->claims.of;
	int n = 0;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++) {
		struct member_view v;
		n += of[i].used && of[i].clipped > 0 &&
		     (double)of[i].counted > (double)of[i].clipped + than &&
		     !flock__quarantined(f, &of[i].id) &&
		     gossip_find(f->membership, &of[i].id, &v) && flock__is_candidate(f, &v);
	}
	return n;
}

/* Of two partners of which one trains many times as fast each finds the other far away, and clips
 * it: exchanges carry the slow one along no more. Two peers must be so fast, if there are two, by
 * what they train while we train what we have since an exchange last moved us, or less. */
bool flock__behind(const struct flock *f)
{
	const struct flock__clock *c = &f->clock;
	double missed = (double)others(f) - (double)c->others_met;
	double own = (double)flock__samples(f) - (double)c->own_met;
	int needed = f->candidates.n < AGREE ? f->candidates.n : AGREE;
	return needed > 0 && own > 0 && missed > f->c.stale * (double)f->c.manifest.total &&
	       faster(f, BEHIND * own) >= needed;
}

bool flock__nearly_over(const struct flock *f)
{
	double left = (double)f->c.manifest.total - (double)flock__clock(f);
	return left <= f->c.stale * (double)f->c.manifest.total;
}

static void follow(struct flock *f)
{
	struct flock__clock *c = &f->clock;
	flock__count(f);
	uint64_t now = others(f), own = flock__samples(f);
	uint64_t gap_ms = c->followed_ms != 0 ? f->awake_ms - c->followed_ms : 0;
	bool slept = gap_ms > SLEPT_MS;
	if (f->candidates.n == 0) { /* it looks five times a second: one may have come since */
		f->candidates.at_ms = 0;
		flock__candidates(f);
	}
	if (f->candidates.n > 0 || c->lonely_ms == 0)
		c->lonely_ms = f->now_ms;
	/* An agent that begins alone is cut off from nobody; one that looked for peers may be. */
	bool cut_off = f->now_ms - c->lonely_ms >= CUT_OFF_MS && (c->others > 0 || !f->c.alone);
	c->followed_ms = f->awake_ms;
	if (slept)
		c->slept_ms = f->now_ms;
	if (gap_ms > SLEPT_LONG_MS && f->phase == FLOCK_LOOKING)
		flock__look(f); /* what it has seen is old */
	if (slept || cut_off)
		c->apart_until_ms = f->now_ms + CLOCK_NEWS_MS;
	if (now == c->others)
		return;
	/* In touch, neither side's samples are missed by the other: what was missed before is held
	 * against what we trained before. News comes late, and is held against all that we trained
	 * since the last news. */
	bool in_touch = f->now_ms >= c->apart_until_ms && !flock__adopted_unproven(f);
	if (f->phase == FLOCK_TRAINING && in_touch) {
		c->others_then += now - c->others;
		c->own_then += own - c->own;
	}
	c->others = now;
	c->own = own;
}

/* A slow exchange, or state, may have begun before we were cut off, or slept. */
static bool snapshot_is_new(const struct flock *f)
{
	return f->clock.snapshot_ms + CLOCK_NEWS_MS >= f->clock.apart_until_ms;
}

static void met(struct flock *f, uint64_t others, uint64_t own)
{
	f->clock.others_met = others;
	f->clock.own_met = own;
	for (int i = 0; i < FLOCK_COUNTED_SLOTS; i++)
		f->claims.of[i].clipped = 0;
}

void flock__in_touch(struct flock *f, bool from_donor)
{
	struct flock__clock *c = &f->clock;
	follow(f); /* else what came in since the last look would be news, and missed */
	bool since_snapshot = from_donor && flock__nearly_over(f);
	c->others_then = since_snapshot ? c->others_snapshot : others(f);
	c->own_then = since_snapshot ? c->own_snapshot : flock__samples(f);
	met(f, c->others_then, c->own_then);
	c->own_join = 0;
	if (!from_donor || snapshot_is_new(f))
		c->apart_until_ms = 0;
}

void flock__clock_snapshot(struct flock *f)
{
	f->clock.others_snapshot = f->clock.others;
	f->clock.own_snapshot = flock__samples(f);
	f->clock.snapshot_ms = f->now_ms;
}

void flock__clock_exchanged(struct flock *f)
{
	struct flock__clock *c = &f->clock;
	if (c->others_snapshot >= c->others_met)
		met(f, c->others_snapshot, c->own_snapshot);
	if (c->others_snapshot <= c->others_then)
		return;
	c->others_then = c->others_snapshot;
	c->own_then = c->own_snapshot;
	if (snapshot_is_new(f))
		c->apart_until_ms = 0;
}

void flock__clock_clipped(struct flock *f, const struct peer_id *id)
{
	struct flock__counted *e = flock__counted(f, id);
	if (e && e->clipped == 0)
		e->clipped = e->claimed;
}

void flock__told_clock(struct flock *f, uint64_t clock)
{
	/* Our own part of that clock is at most what we know of it now. */
	uint64_t ours = flock__samples(f), least = clock > ours ? clock - ours : 0;
	if (least > f->clock.told)
		f->clock.told = least;
}

void flock__tell_clock(struct flock *f)
{
	struct flock__clock *c = &f->clock;
	f->status_news = true;
	follow(f);
	/* The samples of others that a checkpoint names are those that its model has a part of. */
	if (!flock__stale(f) && c->others + c->base != c->learner) {
		c->learner = c->others + c->base;
		struct flock_action *a = flock__do(f, FLOCK_DO_CLOCK);
		a->others = c->learner;
		a->agents = (uint64_t)f->candidates.n + 1;
	}
	if (f->now_ms - c->at_ms >= CLOCK_NEWS_MS) {
		c->at_ms = f->now_ms;
		c->known = c->mid;
		c->mid = flock__clock(f);
	}
}

/* ---- candidates */

bool flock__is_candidate(const struct flock *f, const struct member_view *v)
{
	return v->state == MEMBER_ALIVE && v->record.status.model == f->model_hash &&
	       flock__label_counts(f, v);
}

void flock__candidates(struct flock *f)
{
	struct flock__candidates *c = &f->candidates;
	if (c->at_ms != 0 && f->now_ms - c->at_ms < CANDIDATES_MS)
		return;
	c->at_ms = f->now_ms;
	c->n = 0;
	c->unlike = 0;
	flock__labels_look(f);
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view v = gossip_member(f->membership, i);
		if (v.state != MEMBER_ALIVE || v.record.status.model == 0)
			continue;
		if (v.record.status.model != f->model_hash ||
		        unlike_differs(&f->unlike, &v.record.id, f->model_hash) != 0)
			c->unlike++;
		else if (!v.unreachable && (v.connected || v.record.dialable) &&
		         flock__label_counts(f, &v) && c->n < FLOCK_CANDIDATES)
			c->id[c->n++] = v.record.id;
	}
}
