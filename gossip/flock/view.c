/* SPDX-License-Identifier: MIT */
/* What can be told of an agent's part in its flock. Only what was measured. */
#include "gossip/flock/flock_internal.h"

#include <math.h>
#include <string.h>

const char *flock_phase_text(enum flock_phase p)
{
	static const char text[FLOCK_PHASES][12] = {[FLOCK_LOOKING] = "looking",
	        [FLOCK_JOINING] = "joining",
	        [FLOCK_TRAINING] = "training",
	        [FLOCK_PAUSED] = "paused",
	        [FLOCK_MERGING] = "merging",
	        [FLOCK_FINISHED] = "finished",
	        [FLOCK_LEAVING] = "leaving"};
	return text[p];
}

const struct gossip *flock_membership(const struct flock *f)
{
	return f->membership;
}

uint64_t flock_samples(const struct flock *f)
{
	return flock__samples(f);
}

struct gate_quota flock_quota(const struct flock *f, uint64_t wall_s)
{
	return gate_quota_get(f->gate, wall_s);
}

static uint32_t quarantined(const struct flock *f)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < partners_count(f->partners); i++)
		n += partners_get(f->partners, i)->quarantine_ms > f->now_ms;
	return n;
}

int flock_consensus(const struct flock *f, double *consensus)
{
	struct sketch all[FLOCK_SKETCHES + 1];
	*consensus = 0;
	if (!f->c.learner || !f->divergence.has_own)
		return 0;
	int n = flock__peer_sketches(f, all, FLOCK_SKETCHES);
	all[n] = f->divergence.own;
	if (n > 0)
		*consensus = sketch_consensus(all, n + 1);
	return n;
}

static void view_distances(const struct flock *f, struct flock_view *v)
{
	float radius = clip_radius(&f->clip, -1, flock__moved(f));
	v->has_distance = f->has_distance;
	v->distance = f->last_distance;
	v->distance_rms = f->rms;
	v->radius = isfinite(radius) ? (double)radius : 0;
	v->radius_warm = f->clip.all.n >= CLIP_WARM;
}

/* Enters one into the n that are sorted. */
static void sort_in(uint64_t *all, int n, uint64_t one)
{
	for (; n > 0 && all[n - 1] > one; n--)
		all[n] = all[n - 1];
	all[n] = one;
}

static double middle(const uint64_t *sorted, int n)
{
	return ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
}

static void view_delays(const struct flock *f, struct flock_view *v)
{
	uint64_t delay[FLOCK_RECENT], decided[FLOCK_RECENT];
	int n = 0;
	for (uint64_t i = 0; i < f->n_recent && i < FLOCK_RECENT; i++) {
		const struct exchange_result *r = &f->recent[i];
		if (!r->timed)
			continue;
		sort_in(delay, n, r->delay);
		sort_in(decided, n++, r->delay_decided);
	}
	v->timed = n > 0;
	if (n == 0)
		return;
	v->delay = middle(delay, n);
	v->delay_decided = middle(decided, n);
}

void flock_view(const struct flock *f, struct flock_view *v)
{
	memset(v, 0, sizeof *v);
	v->phase = f->phase;
	if (!f->c.learner)
		return;
	v->step = f->clock.last.step;
	v->samples = flock__samples(f);
	v->clock = flock__clock(f);
	v->total = f->c.manifest.total;
	v->has_loss = f->clock.has_loss;
	v->loss = f->clock.loss;
	v->lr = f->clock.last.lr;
	v->batch = f->clock.last.batch;
	v->outer = (uint8_t)f->c.manifest.outer;
	if (f->clock.last.noise > 0 && f->clock.last.signal > 0)
		v->noise = f->clock.last.noise / f->clock.last.signal;
	v->has_eval = f->has_eval;
	v->has_local = f->has_local;
	v->has_merged = f->has_merged;
	v->eval = f->eval;
	v->local = f->local;
	v->merged = f->merged;
	v->gate = f->gate;
	v->ledger = &f->ledger;
	v->partners = f->partners;
	v->exchange_state = exchange_state(f->exchange);
	if (v->exchange_state != EXCHANGE_IDLE)
		v->exchange_peer = exchange_peer(f->exchange);
	view_distances(f, v);
	view_delays(f, v);
	v->guards = f->c.guard;
	v->guard = guard_view(&f->guard);
	struct format_choice wire = flock__wire(f);
	v->format = wire.format;
	v->format_why = wire.why;
	v->counts = f->counts;
	v->recent = f->recent;
	v->n_recent = f->n_recent;
	v->candidates = (uint32_t)f->candidates.n;
	v->unlike = f->candidates.unlike;
	v->differs = flock__unlike_count(f).differs;
	v->quarantined = quarantined(f);
	v->capped = f->claims.capped;
	v->donor = f->join.donor;
	v->join_count = f->join.count;
	v->join_total = f->join.total;
	v->joined = f->joined;
	v->joining = f->join.stage != JOIN_NONE;
	v->saved_step = f->saved_step;
	v->saves = f->saves;
	v->saved_ms = f->saved_ms;
	v->exchanged_ms = f->exchanged_ms;
	v->finished = f->finish.exported == WRITTEN_YES;
	v->merge_rounds = f->finish.rounds;
	v->rounds_over = f->finish.merge == MERGE_OVER;
}
