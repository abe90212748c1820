/* SPDX-License-Identifier: MIT */
#include "gossip/policy/meetings.h"

#define SAME 1e-5   /* of its length: rounding of 32-bit sums */
#define SHOULD 1e-2 /* of its length: less is not worth an accusation */

void meetings_enter(struct meetings *t, const struct meeting *m)
{
	struct meeting *at = &t->last[0];
	for (int i = 0; i < MEETINGS_MAX; i++) {
		struct meeting *x = &t->last[i];
		if (peer_id_equal(&x->id, &m->id)) {
			at = x;
			break;
		}
		if (x->at_ms < at->at_ms)
			at = x;
	}
	*at = *m;
}

const struct meeting *meetings_find(const struct meetings *t, const struct peer_id *id)
{
	for (int i = 0; i < MEETINGS_MAX; i++)
		if (t->last[i].at_ms != 0 && peer_id_equal(&t->last[i].id, id))
			return &t->last[i];
	return NULL;
}

bool meeting_stands_still(const struct meeting *m, const struct sketch *now)
{
	double norm = sketch_norm(now);
	return m && m->way >= SHOULD * norm && sketch_distance(&m->sketch, now) <= SAME * norm;
}

/* Assume that the peer's path grows with its samples as ours does. A peer that claims too many
 * samples escapes this check, but it is still clipped. */
double meeting_may_be_apart(const struct meeting *m, double moved, uint64_t own, uint64_t theirs)
{
	if (m && m->moved <= moved) { /* else our path began anew since */
		moved -= m->moved;
		own = own > m->own ? own - m->own : 0;
		theirs = theirs > m->theirs ? theirs - m->theirs : 0;
	}
	double times = own > 0 && theirs > own ? (double)theirs / (double)own : 1;
	return moved * (1 + times);
}
