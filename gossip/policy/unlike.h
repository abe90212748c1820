/* SPDX-License-Identifier: MIT */
/* Peers whose manifest differs from ours: in which fields, and whether any peer is left to train
 * with.
 *
 * A member's record carries only a hash of its manifest. A peer with another hash is asked for its
 * manifest, which is compared here; what a peer says of a third one does not count. A peer is known
 * by its id and that hash: if it returns with other settings, it is asked again.
 *
 * Pure, like gossip.h. */
#ifndef DUNLIN_GOSSIP_POLICY_UNLIKE_H
#define DUNLIN_GOSSIP_POLICY_UNLIKE_H

#include "gossip/exchange/manifest.h"
#include "gossip/membership/gossip.h"

#define UNLIKE_PEERS 64       /* remembered; of more, those longest not heard of are forgotten */
#define UNLIKE_EVERY_MS 10000 /* a peer is asked, and told of, at most so often */

struct unlike_peer {
	struct peer_id id;
	uint64_t hash;              /* as its record said then */
	uint64_t asked_ms;          /* 0: not */
	uint64_t heard_ms, told_ms; /* the same */
	uint32_t differs;           /* see manifest_compare */
};

/* All zero: nobody is known. */
struct unlike {
	struct unlike_peer peer[UNLIKE_PEERS];
	uint32_t n;
};

/* Its manifest came and differs in these fields (0: none). True: this is new, tell the user. */
bool unlike_heard(struct unlike *u, const struct peer_id *id, uint64_t hash, uint32_t differs,
        uint64_t now_ms);
/* True: ask it now. */
bool unlike_ask(struct unlike *u, const struct peer_id *id, uint64_t hash, uint64_t now_ms);
/* The fields in which it differs; 0: none, or its manifest is unknown. */
uint32_t unlike_differs(const struct unlike *u, const struct peer_id *id, uint64_t hash);

/* The live peers that train, by how they compare with us. */
struct unlike_count {
	uint32_t like, other_run, unlike; /* unlike: of our run */
	uint32_t unknown;                 /* another hash, manifest not received yet */
	uint32_t differs;                 /* all fields that differ in peers of our run */
};
/* One more of them, by its record. */
void unlike_count(const struct unlike *u, struct unlike_count *c, const struct peer_id *id,
        uint64_t hash, uint64_t our_hash);
/* The fields in which the peers of our run differ from us if all of them do; 0: one is like us, or
 * it is not known yet. A single peer is enough only if no unknown peer may be of our run. */
uint32_t unlike_verdict(const struct unlike_count *c);

#endif
