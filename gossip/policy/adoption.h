/* SPDX-License-Identifier: MIT */
/* Two flocks that were apart meet: whose side is smaller, ours or that of the peer that we found
 * far from us? Members are counted to the side whose sketch theirs is nearer to. The fewer agents
 * adopt; of as many, those with fewer samples; of as many, the greater id. Agents come first: one
 * that only claims to have trained much must not lead them all. Who has hardly trained counts for
 * nobody: it will join by a peer's state, and until then shows where all began. Both sides go by
 * the same rule, or each would wait for the other. */
#ifndef DUNLIN_GOSSIP_POLICY_ADOPTION_H
#define DUNLIN_GOSSIP_POLICY_ADOPTION_H

#include "gossip/policy/sketch.h"

struct side {
	uint32_t agents;
	uint64_t samples;
};

struct adoption {
	struct sketch ours, theirs;
	struct peer_id self, peer;
	uint64_t fresh; /* who has trained fewer samples counts for nobody */
	struct side we, they;
};

/* Begin with ours, theirs, self, peer and fresh; ourselves are to be added, too. s: its sketch,
 * NULL if none is known; then it counts only if it is one of the two. */
void adoption_add(struct adoption *s, const struct peer_id *id, const struct sketch *sketch,
        uint64_t samples);

enum adoption_verdict {
	ADOPTION_STAY,  /* they are expected to adopt ours */
	ADOPTION_ADOPT, /* we adopt theirs */
	ADOPTION_NONE,  /* nobody there whose parameters are worth anything */
};
enum adoption_verdict adoption_decide(const struct adoption *s);

#endif
