/* SPDX-License-Identifier: MIT */
/* What we know of each peer from our last exchange with it, used to check what it sends next time.
 * Bounded: the oldest entry makes room. */
#ifndef DUNLIN_GOSSIP_POLICY_MEETINGS_H
#define DUNLIN_GOSSIP_POLICY_MEETINGS_H

#include "gossip/policy/sketch.h"

#define MEETINGS_MAX 64

struct meeting {
	struct peer_id id;
	uint64_t at_ms;       /* 0: none */
	struct sketch sketch; /* of what it sent */
	double way;           /* least distance that it should have moved in that exchange */
	double moved;         /* our own path, then */
	uint64_t own, theirs; /* samples trained, then; theirs by its own word */
};

struct meetings { /* begin with zeros */
	struct meeting last[MEETINGS_MAX];
};

void meetings_enter(struct meetings *t, const struct meeting *m);
const struct meeting *meetings_find(const struct meetings *t, const struct peer_id *id); /* NULL */

/* True if the peer should have moved, but sends the same parameters again. m may be NULL: false. */
bool meeting_stands_still(const struct meeting *m, const struct sketch *now);

/* How far apart two agents may be that trained separately since they met or, without m, since the
 * start. moved: our own path until now. Of the peer's path we know only the samples that it
 * claims. */
double meeting_may_be_apart(const struct meeting *m, double moved, uint64_t own, uint64_t theirs);

#endif
