/* SPDX-License-Identifier: MIT */
/* What was seen of peers when an exchange with each last came about, and what can be told by it
 * when they come again. Bounded: the one met longest ago is forgotten. */
#ifndef DUNLIN_GOSSIP_POLICY_MEETINGS_H
#define DUNLIN_GOSSIP_POLICY_MEETINGS_H

#include "gossip/policy/sketch.h"

#define MEETINGS_MAX 64

struct meeting {
	struct peer_id id;
	uint64_t at_ms;       /* 0: none */
	struct sketch sketch; /* of what it sent */
	double way;           /* that it should have gone by that exchange, at least */
	double moved;         /* our own path, then */
	uint64_t own, theirs; /* samples trained, then; theirs by its own word */
};

struct meetings { /* begin with zeros */
	struct meeting last[MEETINGS_MAX];
};

void meetings_enter(struct meetings *t, const struct meeting *m);
const struct meeting *meetings_find(const struct meetings *t, const struct peer_id *id); /* NULL */

/* It was to move, and is where it was, by what it sends now. m may be NULL: false. */
bool meeting_stands_still(const struct meeting *m, const struct sketch *now);

/* How far apart two may be who went their own ways since they met, or, without m, since the
 * beginning. moved: our own path until now; of theirs it is known only how much they have trained,
 * by their own word. */
double meeting_may_be_apart(const struct meeting *m, double moved, uint64_t own, uint64_t theirs);

#endif
