/* SPDX-License-Identifier: MIT */
/* Where we are, and how far from the others: by sketches, which cost a kilobyte and not a model.
 *
 * Our own comes with the snapshots that exchanges take anyway, or now and then with one of its own.
 * Peers tell theirs with offers, and membership carries them to those who never meet. With them an
 * agent notices that two flocks were apart for too long to be averaged, and which of the two should
 * follow the other. */
#include "gossip/flock/flock_internal.h"
#include "gossip/policy/adoption.h"

#include <math.h>

#define SKETCH_EVERY_MS 2000 /* from exchanges' own snapshots */
#define SKETCH_AGE_MS 8000   /* from one of its own, when there is none */
#define SKETCH_SOON_MS 1000  /* the same, when we have moved far since */
#define SKETCH_FAR 0.05      /* of our length */
#define SKETCH_LOST 0.5      /* of it: peers would soon doubt what we send (LIE_LEAST) */
#define LIE_LEAST 1.0        /* of our length: the first steps are long */
#define LIE_MOST 1.5         /* of it: two that have nothing in common are 1.4 apart */
#define TOLD_MS 10000        /* what a peer told so lately is its place now */
#define ALIGNED 16.0         /* clocks that differ by at most this part are equal */
#define AGREE 2              /* peers that must be of one mind for us to give up our state */
#define ADOPT_AGAIN_MS 60000
#define ADOPT_JITTER_MS 3000

/* How far we may have come since our sketch: the length of the path. */
static double drift(const struct flock *f)
{
	double d = flock__moved(f) - f->divergence.moved;
	return d > 0 ? d : 0;
}

static bool due(const struct flock *f, uint64_t every_ms, uint64_t far_ms)
{
	const struct flock__divergence *d = &f->divergence;
	uint64_t age_ms = f->now_ms - d->at_ms;
	if (!d->has_own || age_ms >= every_ms)
		return true;
	double far = drift(f) / sketch_norm(&d->own);
	return far > SKETCH_LOST || (age_ms >= far_ms && far > SKETCH_FAR);
}

/* What comes in an exchange is judged by it. */
bool flock__sketch_due(const struct flock *f)
{
	return due(f, SKETCH_EVERY_MS, 0);
}

void flock__sketch_soon(struct flock *f)
{
	if (due(f, SKETCH_AGE_MS, SKETCH_SOON_MS) && flock__idle(f))
		(void)flock__snapshot(f, SNAPSHOT_SKETCH, flock__plain(f));
}

void flock__own_sketch(struct flock *f, const struct sketch *s, uint64_t step)
{
	struct flock__divergence *d = &f->divergence;
	d->own = *s;
	d->has_own = d->news = true;
	d->at_ms = f->now_ms;
	d->step = step;
	d->moved = flock__moved(f);
	d->past[d->n_past % FLOCK_PAST].clock = flock__clock(f);
	d->past[d->n_past++ % FLOCK_PAST].sketch = *s;
}

/* ---- the peers' */

void flock__keep_sketch(struct flock *f, const struct peer_id *id, const struct exchange_terms *t)
{
	struct flock__divergence *d = &f->divergence;
	struct sketch s;
	int at = 0;
	if (!sketch_unpack(&s, t->sketch, t->sketch_length))
		return;
	for (int i = 0; i < FLOCK_SKETCHES; i++) {
		if (d->told[i].at_ms != 0 && peer_id_equal(&d->told[i].id, id)) {
			at = i;
			break;
		}
		if (d->told[i].at_ms < d->told[at].at_ms)
			at = i;
	}
	d->told[at].id = *id;
	d->told[at].at_ms = f->now_ms;
	d->told[at].step = t->step;
	d->told[at].clock = t->clock;
	d->told[at].sketch = s;
}

/* What it told us itself, no longer ago than that; NULL: nothing. */
static const struct sketch *told_by(const struct flock *f, const struct peer_id *id, uint64_t ms)
{
	const struct flock__divergence *d = &f->divergence;
	for (int i = 0; i < FLOCK_SKETCHES; i++)
		if (d->told[i].at_ms != 0 && peer_id_equal(&d->told[i].id, id))
			return f->now_ms - d->told[i].at_ms <= ms ? &d->told[i].sketch : NULL;
	return NULL;
}

bool flock__peer_sketch(const struct flock *f, const struct peer_id *id, struct sketch *out)
{
	struct member_view v;
	const struct sketch *told = told_by(f, id, UINT64_MAX);
	bool known = gossip_find(f->membership, id, &v) && v.sketch &&
	             sketch_unpack(out, v.sketch->bytes, v.sketch->length);
	if (told && (!known || told_by(f, id, TOLD_MS)))
		*out = *told;
	return known || told;
}

/* ---- who is far

 * All agents train, so a sketch is far from one of another time. They are compared at an equal
 * clock of the run: with the sketch of ours that is nearest to it. */

/* What that peer last told us, or membership if that is of a later step; the run's clock then, or
 * NULL. Membership does not say it: it is as far in the run as the peer was in its steps. */
static const struct sketch *latest_of(
        const struct flock *f, const struct peer_id *id, struct sketch *room, double *clock)
{
	const struct flock__divergence *d = &f->divergence;
	const struct sketch *latest = NULL;
	struct member_view v;
	uint64_t step = 0;
	for (int i = 0; i < FLOCK_SKETCHES; i++) {
		if (d->told[i].at_ms == 0 || !peer_id_equal(&d->told[i].id, id))
			continue;
		step = d->told[i].step;
		const struct partner *p = partners_find(f->partners, id);
		if (p && p->last_ms >= d->told[i].at_ms)
			break; /* we have met since */
		latest = &d->told[i].sketch;
		*clock = (double)d->told[i].clock;
		break;
	}
	if (gossip_find(f->membership, id, &v) && v.sketch && v.sketch->step > step &&
	        v.record.status.step >= v.sketch->step &&
	        sketch_unpack(room, v.sketch->bytes, v.sketch->length)) {
		latest = room;
		*clock = (double)flock__clock(f) * (double)v.sketch->step /
		         (double)v.record.status.step;
	}
	return latest;
}

bool flock__was_apart(const struct flock *f, const struct peer_id *id, double *distance)
{
	const struct flock__divergence *d = &f->divergence;
	struct sketch room;
	double clock = 0, off = INFINITY;
	const struct sketch *theirs = latest_of(f, id, &room, &clock), *ours = NULL;
	for (uint32_t i = 0; theirs && i < FLOCK_PAST && i < d->n_past; i++) {
		double x = fabs((double)d->past[i].clock - clock);
		if (x >= off)
			continue;
		off = x;
		ours = &d->past[i].sketch;
	}
	if (!ours || off > clock / ALIGNED)
		return false;
	*distance = sketch_distance(ours, theirs);
	return true;
}

int flock__peer_sketches(const struct flock *f, struct sketch *out, int max)
{
	int n = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership) && n < max; i++) {
		struct member_view v = gossip_member(f->membership, i);
		if (flock__is_candidate(f, &v) && v.record.status.step > 0 &&
		        flock__peer_sketch(f, &v.record.id, &out[n]))
			n++;
	}
	return n;
}

/* One without a step in this life has nothing to say, whatever it trained in an earlier one. */
bool flock__others_live(const struct flock *f, const struct peer_id *donor)
{
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view v = gossip_member(f->membership, i);
		if (flock__is_candidate(f, &v) && !flock__quarantined(f, &v.record.id) &&
		        !peer_id_equal(&v.record.id, donor) &&
		        v.record.status.samples >= f->c.fresh && v.record.status.step > 0)
			return true;
	}
	return false;
}

/* A peer that has made as many steps again since its sketch may be anywhere. */
int flock__witnesses(
        const struct flock *f, const struct peer_id *donor, bool apart, struct sketch *out, int max)
{
	int n = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership) && n < max; i++) {
		struct member_view v = gossip_member(f->membership, i);
		/* One that has made no step tells the sketch of the initial weights. */
		if (!flock__is_candidate(f, &v) || peer_id_equal(&v.record.id, donor) ||
		        flock__quarantined(f, &v.record.id) || v.record.status.step == 0 ||
		        !flock__peer_sketch(f, &v.record.id, &out[n]))
			continue;
		bool fresh = told_by(f, &v.record.id, TOLD_MS) ||
		             (v.sketch && v.sketch->step >= v.record.status.step / 2);
		if (fresh && (!apart || flock__apart(f, &out[n])))
			n++;
	}
	return n;
}

/* ---- what they tell */

/* Farther than four times what is usual between us and partners, and not by a little. Young flocks
 * move fast, so without a history only half of the parameters' own length counts as far. */
bool flock__apart(const struct flock *f, const struct sketch *theirs)
{
	if (!f->divergence.has_own)
		return false;
	double d = sketch_distance(&f->divergence.own, theirs);
	double norm = sketch_norm(&f->divergence.own);
	bool warm = f->clip.all.n >= CLIP_WARM;
	double usual = warm ? clip_radius(&f->clip, -1, flock__moved(f)) / 2 : 0;
	double far = warm ? 4 * usual : 0.5 * norm;
	d -= 2 * drift(f); /* they will have moved as much as we have */
	return d > far && d > 0.15 * norm;
}

/* What came is not what the peer's sketch has told of it, or is so far away that nobody can be who
 * began with our weights. Our own sketch is that of the snapshot, or nearly; theirs is a little
 * older, and rough, so only what cannot be an honest mistake counts. */
bool flock__lied(const struct flock *f, const struct peer_id *peer, double distance)
{
	struct sketch theirs;
	if (!f->divergence.has_own)
		return false;
	double norm = sketch_norm(&f->divergence.own), limit = LIE_MOST * norm;
	if (flock__peer_sketch(f, peer, &theirs)) {
		double told = 2 * sketch_distance(&f->divergence.own, &theirs) + LIE_LEAST * norm;
		limit = told < limit ? told : limit;
	}
	return distance > limit;
}

/* ---- giving up our state for another's */

void flock__consider_adopting(
        struct flock *f, const struct peer_id *peer, const struct sketch *theirs)
{
	struct flock__divergence *d = &f->divergence;
	struct adoption sides = {.ours = d->own,
	        .theirs = *theirs,
	        .self = f->c.membership.self,
	        .peer = *peer,
	        .fresh = f->c.fresh};
	uint32_t live = 0;
	if (f->phase != FLOCK_TRAINING || d->adopt_ms != 0 || flock__joining(f) ||
	        (d->adopted_ms != 0 && f->now_ms - d->adopted_ms < ADOPT_AGAIN_MS))
		return;
	adoption_add(&sides, &f->c.membership.self, &d->own, flock__samples(f));
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view v = gossip_member(f->membership, i);
		struct sketch s;
		bool known = flock__peer_sketch(f, &v.record.id, &s);
		if (!flock__is_candidate(f, &v) || flock__quarantined(f, &v.record.id))
			continue;
		adoption_add(&sides, &v.record.id, known ? &s : NULL, v.record.status.samples);
		live += v.record.status.samples >= f->c.fresh;
	}
	enum adoption_verdict verdict = adoption_decide(&sides);
	if (verdict == ADOPTION_NONE)
		return;
	/* One peer alone, where there are others, does not make a flock that we follow. */
	if (verdict == ADOPTION_ADOPT && sides.they.agents < (live < AGREE ? live : AGREE))
		return;
	struct flock_say *s = flock__say(f, SAY_APART);
	s->peer = *peer;
	s->a = sides.they.agents;
	s->b = sides.they.samples;
	s->c = sides.we.agents;
	s->d = sides.we.samples;
	s->flag = verdict == ADOPTION_ADOPT;
	if (verdict != ADOPTION_ADOPT)
		return;
	d->adopt_ms = f->now_ms + 1 + rng_below(&f->rng, ADOPT_JITTER_MS);
	d->adopt_from = *peer;
}

/* This agent was away while the others trained: it takes a donor's state, as if it had just come.
 */
bool flock__catch_up(struct flock *f)
{
	bool stale = flock__stale(f);
	if ((!stale && !flock__behind(f)) || !flock__idle(f) || flock__joining(f))
		return false;
	struct flock_say *s = flock__say(f, SAY_STALE);
	s->a = flock__missed(f);
	s->flag = !stale;
	f->divergence.adopt_ms = 0;
	f->clock.own_join = flock__samples(f);
	flock__join_begin(f, NULL, true);
	return true;
}

bool flock__adopt_if_due(struct flock *f)
{
	struct flock__divergence *d = &f->divergence;
	if (d->adopt_ms == 0 || f->now_ms < d->adopt_ms || !flock__idle(f) || flock__joining(f))
		return false;
	d->adopt_ms = 0;
	flock__join_begin(f, &d->adopt_from, true);
	return true;
}
