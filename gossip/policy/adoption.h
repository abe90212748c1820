/* SPDX-License-Identifier: MIT */
/* Two flocks that were apart meet: whose side is smaller, ours or that of the peer that we found
 * far from us? A member counts for the side whose sketch is nearer to its own. The side with fewer
 * agents adopts; if these are equal, the side with fewer samples; if these are equal too, the one
 * of the greater id. Agents count first because one agent that only claims many samples must not
 * lead all others. Agents that have barely trained are ignored: they will join from a peer's state,
 * and until then they hold the initial weights. Both sides use the same rule; otherwise each would
 * wait for the other. */
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
	uint64_t fresh; /* agents with fewer trained samples are ignored */
	struct side we, they;
};

/* Set ours, theirs, self, peer and fresh first; add this agent, too. sketch: NULL if none is known;
 * then the agent counts only if it is self or peer. */
void adoption_add(struct adoption *s, const struct peer_id *id, const struct sketch *sketch,
        uint64_t samples);

enum adoption_verdict {
	ADOPTION_STAY,  /* they are expected to adopt ours */
	ADOPTION_ADOPT, /* we adopt theirs */
	ADOPTION_NONE,  /* nobody on their side has trained enough */
};
enum adoption_verdict adoption_decide(const struct adoption *s);

#endif
