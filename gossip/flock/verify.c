/* SPDX-License-Identifier: MIT */
/* What a partner sent, before it is used.
 *
 *     transfer whole ──► measured: finite? how far, by group? a sketch of it ──► judged ──► machine
 *
 * Two questions are asked of the sketch. Is it near what the peer's own sketch has told
 * (flock__lied)? And has the peer moved since we last met? In a symmetric exchange both sides go
 * towards each other, by a way that both know; and they train. A peer that sends the same
 * parameters again did neither, while everybody else is drawn to it. Clipping does not help at the
 * end, when nobody trains any more: among those who average, the one that never moves wins.
 *
 * Only what is the same up to rounding counts, and only when the peer should have moved by much
 * more than that. A peer that moves a little each time is not noticed here; clipping bounds what it
 * can do, and what it has moved us by in all is bounded by our own path. What is accused is not
 * used, and the peer is asked again later; after some accusations in a row it is quarantined. */
#include "gossip/flock/flock_internal.h"

#include <math.h>
#include <string.h>

#define NEAR 1e-4        /* of our length: nobody is drawn to a peer that is so near */
#define MERGE_PULL 4     /* radii that one peer may move us in all merge rounds */
#define WRAPPED_SHARE 16 /* of the blocks: more than one in so many, and the exchange is given up */
#define LIES 2           /* accusations in a row, before one more is held against a peer */

/* Trained, by its own word. */
static uint64_t samples_of(const struct flock *f, const struct peer_id *id)
{
	struct member_view v;
	return gossip_find(f->membership, id, &v) ? v.record.status.samples : 0;
}

void flock__met(struct flock *f, const struct exchange_result *r)
{
	double beta = (double)(r->final ? FLOCK_FINAL_BETA : f->c.beta);
	struct meeting m = {.id = r->peer,
	        .at_ms = f->now_ms,
	        .sketch = f->x.heard,
	        .moved = flock__moved(f),
	        .own = flock__samples(f),
	        .theirs = samples_of(f, &r->peer)};
	if (r->mode == EXCHANGE_PAIR && r->outcome == OUTCOME_EXCHANGED)
		m.way = beta * (double)r->factor * r->distance;
	if (f->x.has_heard)
		meetings_enter(&f->meetings, &m);
}

double flock__may_be_apart(const struct flock *f, const struct peer_id *id)
{
	return meeting_may_be_apart(meetings_find(&f->meetings, id), flock__moved(f),
	        flock__samples(f), samples_of(f, id));
}

/* ---- how far one peer may move us */

void flock__path(struct flock *f)
{
	const struct flock_trained *s = &f->clock.last;
	partners_path(f->partners, s->step, s->moved);
	if (s->step > f->clock.set_step)
		clip_cap(&f->clip,
		        CLIP_OWN_STEPS * s->moved / (double)(s->step - f->clock.set_step));
}

/* Nobody trains in merge rounds: there the radius of the training before is the measure, and
 * without one the parameters' own length. */
static double pull_left(struct flock *f, const struct peer_id *id)
{
	if (!exchange_final(f->exchange))
		return flock__pull_left(f, id);
	const struct partner *p = partners_find(f->partners, id);
	double radius = (double)clip_radius(&f->clip, -1, flock__moved(f));
	double norm = f->divergence.has_own ? sketch_norm(&f->divergence.own) : 0;
	/* Before its radius is warm, after a restart, an agent knows too little to go by it. */
	double most = isfinite(radius) ? MERGE_PULL * radius : norm;
	if (f->clip.all.n < CLIP_WARM && most < norm)
		most = norm;
	double left = p ? most - p->merged : most;
	return left > 0 ? left : 0;
}

/* The length of what is added: the shares are by group. */
static double pull(const struct flock *f, const float *k)
{
	double sum = 0;
	for (int g = 0; g < f->c.n_groups; g++)
		sum += (double)k[g] * (double)k[g] * f->x.distance2[g];
	return sqrt(sum);
}

static void limit_pull(struct flock *f, float *factor)
{
	struct peer_id from = exchange_peer(f->exchange);
	double beta = (double)(exchange_final(f->exchange) ? FLOCK_FINAL_BETA : f->c.beta);
	double left = pull_left(f, &from), way = beta * pull(f, factor);
	for (int g = 0; g < f->c.n_groups && way > left; g++)
		factor[g] = (float)((double)factor[g] * left / way);
}

void flock__pulled(struct flock *f, const struct exchange_actions *a)
{
	if (f->x.has_distance2)
		partners_pulled(f->partners, &a->peer, pull(f, a->k), exchange_final(f->exchange),
		        f->now_ms);
}

/* What a lattice's rounding adds moves us as the rest does, and the peer has a say in the steps.
 * Only the guard's estimate leaves it out. */
static void measure(struct flock *f, const struct flock_event *e)
{
	double sum = 0;
	memcpy(f->x.distance2, e->measured.distance2, f->c.n_groups * sizeof *f->x.distance2);
	f->x.rounding2 = e->measured.rounding2;
	f->x.left_out = e->measured.wrapped > 0;
	for (int g = 0; g < f->c.n_groups; g++)
		sum += f->x.distance2[g];
	f->x.has_distance2 = true;
	f->x.own_factor =
	        clip_factors(&f->clip, f->x.distance2, flock__moved(f), f->x.moved.moved.factor);
	f->x.moved.moved.distance = sqrt(sum);
	limit_pull(f, f->x.moved.moved.factor);
}

static int judge(const struct flock *f)
{
	struct peer_id from = exchange_peer(f->exchange);
	const struct partner *p = partners_find(f->partners, &from);
	double distance = f->x.moved.moved.distance;
	/* In merge rounds the mean of all may be where the peer was when we last met. */
	bool still = f->x.has_heard && distance > NEAR * sketch_norm(&f->x.heard) &&
	             meeting_stands_still(meetings_find(&f->meetings, &from), &f->x.heard);
	if (!still && !flock__lied(f, &from, distance))
		return 0;
	/* Its sketch may be older than its parameters, once; or it came back from an older
	 * checkpoint. A peer that goes on like that is not mistaken. */
	return p && p->doubts >= LIES ? ERR_MISMATCH : ERR_INVALID;
}

/* Nobody trains in merge rounds: who is doubted there stays where it was until it exchanges, and
 * that it did is no second reason. */
static void ask_again(struct flock *f)
{
	struct peer_id from = exchange_peer(f->exchange);
	const struct meeting *last = meetings_find(&f->meetings, &from);
	if (!last || !exchange_final(f->exchange))
		return;
	struct meeting m = *last;
	m.way = 0;
	meetings_enter(&f->meetings, &m);
}

/* Of what is used, and nothing else: else a peer could make all our steps coarse by what nobody
 * believes. */
static void learn_scales(struct flock *f, const struct flock_event *e)
{
	bool clipped = false;
	for (int g = 0; g < f->c.n_groups; g++)
		clipped = clipped || f->x.moved.moved.factor[g] < 1;
	if (e->measured.n_scales > 0)
		scales_learn(&f->x.scales, e->measured.found, e->measured.size,
		        e->measured.blocks > 0 ? f->x.used : NULL, e->measured.n_scales, clipped);
}

/* More blocks were further apart than the lattice can tell. */
static bool too_far(const struct flock_event *e)
{
	return e->code == 0 && e->measured.wrapped > e->measured.blocks / WRAPPED_SHARE;
}

void flock__verify(struct flock *f, const struct flock_event *e)
{
	bool wanted = f->x.incoming == INCOMING_MEASURE;
	struct exchange_event m = f->x.moved;
	f->x.incoming = INCOMING_NONE;
	if (!wanted)
		return;
	if (too_far(e))
		m.moved.code = ERR_LIMIT;
	else if (e->code == 0 && e->measured.finite) {
		f->x.has_heard = e->measured.sketch;
		if (e->measured.sketch)
			f->x.heard = *e->measured.sketch;
		measure(f, e);
		m = f->x.moved;
		m.moved.code = judge(f);
		if (m.moved.code == ERR_INVALID)
			ask_again(f);
		else if (m.moved.code == 0)
			learn_scales(f, e);
	} else
		m.moved.code = e->code ? e->code : ERR_NONFINITE;
	flock__exchange(f, &m);
}
