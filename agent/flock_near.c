/* SPDX-License-Identifier: MIT */
/* Where we are, and how far from the others: by sketches, which cost a kilobyte and not a model.
 *
 * Our own comes with the snapshots that exchanges take anyway, or now and then with one of its own.
 * Peers tell theirs with offers, and membership carries them to those who never meet. With them an
 * agent notices that two flocks were apart for too long to be averaged, and which of the two should
 * follow the other. */
#include "agent/base/log.h"
#include "agent/flock_core.h"
#include "gossip/sides.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#define SKETCH_EVERY_MS 2000 /* from exchanges' own snapshots */
#define SKETCH_AGE_MS 8000   /* from one of its own, when there is none */
#define SKETCH_SOON_MS 1000  /* the same, when we have moved far since */
#define SKETCH_FAR 0.05      /* of our length */
#define LIE_LEAST 1.0        /* of our length: the first steps are long */
#define LIE_MOST 1.5         /* of it: two that have nothing in common are 1.4 apart */
#define TOLD_MS 10000        /* what a peer told so lately is its place now */

/* How far we may have come since our sketch: the length of the path. */
static double drift(const struct flock_agent *f)
{
	double d = flock__moved(f) - f->sketch_moved;
	return d > 0 ? d : 0;
}

static bool due(const struct flock_agent *f, uint64_t every_ms, uint64_t far_ms)
{
	uint64_t age_ms = f->now_ms - f->sketch_ms;
	return !f->has_sketch || age_ms >= every_ms ||
	       (age_ms >= far_ms && drift(f) > SKETCH_FAR * sketch_norm(&f->sketch));
}

bool flock__snapshot(struct flock_agent *f, enum convert_format format)
{
	bool tell = due(f, SKETCH_EVERY_MS, 0);             /* what comes is judged by it */
	bool sketch = tell || learner_measures(f->learner); /* it is added to that of what comes */
	f->snapping =
	        learner_snapshot(f->learner, f->snapshot, format, sketch ? &f->sketch_next : NULL);
	f->snap_sketched = f->snapping && tell;
	return f->snapping;
}

void flock__snapshot_sketched(struct flock_agent *f, uint64_t step)
{
	uint8_t bytes[SKETCH_BUCKETS * 4];
	if (!f->snap_sketched || !f->node)
		return;
	f->sketch = f->sketch_next;
	f->has_sketch = true;
	f->sketch_ms = f->now_ms;
	f->sketch_moved = flock__moved(f);
	sketch_pack(&f->sketch, bytes);
	node_sketch(f->node, step, bytes, sizeof bytes);
}

void flock__sketch_soon(struct flock_agent *f)
{
	if (due(f, SKETCH_AGE_MS, SKETCH_SOON_MS) && flock__exchange_idle(f) &&
	        flock__snapshot(f, (enum convert_format)f->c.config->gossip.wire))
		f->snap_matters = false;
}

void flock__keep_sketch(
        struct flock_agent *f, const struct peer_id *id, const struct exchange_terms *t)
{
	struct sketch s;
	int at = 0;
	if (t->sketch_length == 0 || !sketch_unpack(&s, t->sketch, t->sketch_length))
		return;
	for (int i = 0; i < FLOCK_SKETCHES; i++) {
		if (f->told[i].at_ms != 0 && peer_id_equal(&f->told[i].id, id)) {
			at = i;
			break;
		}
		if (f->told[i].at_ms < f->told[at].at_ms)
			at = i;
	}
	f->told[at].id = *id;
	f->told[at].at_ms = f->now_ms;
	f->told[at].sketch = s;
}

/* What it told us itself, no longer ago than that; NULL: nothing. */
static const struct sketch *told_by(
        const struct flock_agent *f, const struct peer_id *id, uint64_t ms)
{
	for (int i = 0; i < FLOCK_SKETCHES; i++)
		if (f->told[i].at_ms != 0 && peer_id_equal(&f->told[i].id, id))
			return f->now_ms - f->told[i].at_ms <= ms ? &f->told[i].sketch : NULL;
	return NULL;
}

bool flock__peer_sketch(const struct flock_agent *f, const struct peer_id *id, struct sketch *out)
{
	struct member_view v;
	const struct sketch *told = told_by(f, id, UINT64_MAX);
	bool known = gossip_find(node_gossip(f->node), id, &v) && v.sketch &&
	             sketch_unpack(out, v.sketch->bytes, v.sketch->length);
	if (told && (!known || told_by(f, id, TOLD_MS)))
		*out = *told;
	return known || told;
}

int flock__peer_sketches(const struct flock_agent *f, struct sketch *out, int max)
{
	const struct gossip *g = node_gossip(f->node);
	int n = 0;
	for (uint32_t i = 0; i < gossip_count(g) && n < max; i++) {
		struct member_view v = gossip_member(g, i);
		if (v.state == MEMBER_ALIVE && v.record.status.model == f->model_hash &&
		        flock__peer_sketch(f, &v.record.id, &out[n]))
			n++;
	}
	return n;
}

/* Whoever has since made as many steps again may be anywhere. */
int flock__witnesses(const struct flock_agent *f, const struct peer_id *donor,
        const struct sketch *side, struct sketch *out, int max)
{
	const struct gossip *g = node_gossip(f->node);
	int n = 0;
	for (uint32_t i = 0; i < gossip_count(g) && n < max; i++) {
		struct member_view v = gossip_member(g, i);
		if (v.state != MEMBER_ALIVE || v.record.status.model != f->model_hash ||
		        peer_id_equal(&v.record.id, donor) ||
		        !flock__peer_sketch(f, &v.record.id, &out[n]))
			continue;
		bool fresh = told_by(f, &v.record.id, TOLD_MS) ||
		             (v.sketch && v.sketch->step >= v.record.status.step / 2);
		if (fresh && (!side || sketch_nearer(&out[n], side, &f->sketch)))
			n++;
	}
	return n;
}

/* Farther than four times what is usual between us and partners, and not by a little. Young flocks
 * move fast, so without a history only half of the parameters' own length counts as far. */
bool flock__apart(const struct flock_agent *f, const struct sketch *theirs)
{
	if (!f->has_sketch)
		return false;
	double d = sketch_distance(&f->sketch, theirs), norm = sketch_norm(&f->sketch);
	bool warm = f->clip.all.n >= CLIP_WARM;
	double usual = warm ? clip_radius(&f->clip, -1, flock__moved(f)) / 2 : 0;
	double far = warm ? 4 * usual : 0.5 * norm;
	d -= 2 * drift(f); /* they will have moved as much as we have */
	return d > far && d > 0.15 * norm;
}

/* What came is not what the peer's sketch has told of it, or is so far away that nobody can be who
 * began with our weights. Our own sketch is that of the snapshot, or nearly; theirs is a little
 * older, and rough, so only what cannot be an honest mistake counts. */
bool flock__lied(const struct flock_agent *f, const struct peer_id *peer, double distance)
{
	struct sketch theirs;
	if (!f->has_sketch)
		return false;
	double norm = sketch_norm(&f->sketch), limit = LIE_MOST * norm;
	if (flock__peer_sketch(f, peer, &theirs)) {
		double told = 2 * sketch_distance(&f->sketch, &theirs) + LIE_LEAST * norm;
		limit = told < limit ? told : limit;
	}
	return distance > limit;
}

void flock__consider_adopting(
        struct flock_agent *f, const struct peer_id *peer, const struct sketch *theirs)
{
	const struct gossip *g = node_gossip(f->node);
	struct sides sides = {.ours = f->sketch,
	        .theirs = *theirs,
	        .self = f->c.self,
	        .peer = *peer,
	        .fresh = flock__fresh(f)};
	if (f->phase != FLOCK_TRAINING || f->adopt_ms != 0 ||
	        (f->adopted_ms != 0 && f->now_ms - f->adopted_ms < 60000))
		return;
	sides_add(&sides, &f->c.self, &f->sketch, flock__samples(f));
	for (uint32_t i = 0; i < gossip_count(g); i++) {
		struct member_view v = gossip_member(g, i);
		struct sketch s;
		bool known = flock__peer_sketch(f, &v.record.id, &s);
		if (v.state == MEMBER_ALIVE && v.record.status.model == f->model_hash)
			sides_add(&sides, &v.record.id, known ? &s : NULL, v.record.status.samples);
	}
	enum sides_verdict verdict = sides_decide(&sides);
	if (verdict == SIDES_NONE)
		return;
	char id[13];
	node_short_id(peer, id);
	log_write(verdict == SIDES_ADOPT ? LOG_WARN : LOG_INFO,
	        "apart %s: its parameters are far from ours; its side has %u agents and %" PRIu64
	        " samples, ours %u and %" PRIu64 ": %s",
	        id, sides.they.agents, sides.they.samples, sides.we.agents, sides.we.samples,
	        verdict == SIDES_ADOPT ? "this agent adopts theirs"
	                               : "it is expected to adopt ours");
	if (verdict != SIDES_ADOPT)
		return;
	f->adopt_ms = f->now_ms + randombytes_uniform(3000);
	f->adopt_from = *peer;
}
