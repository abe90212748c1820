/* SPDX-License-Identifier: MIT */
/* Peers whose manifest is not ours: in what they differ, and whether nobody is left to train with.
 *
 * A member's record carries only a hash of its manifest, so a peer with another hash is asked, and
 * its own manifest is compared here; nobody's opinion about a third one counts. A peer is known by
 * its id and that hash: when it comes back with other settings, it is asked anew.
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

/* Its manifest came, and differs in that (0: in nothing). True: it is news, worth telling. */
bool unlike_heard(struct unlike *u, const struct peer_id *id, uint64_t hash, uint32_t differs,
        uint64_t now_ms);
/* True: ask it now. */
bool unlike_ask(struct unlike *u, const struct peer_id *id, uint64_t hash, uint64_t now_ms);
/* In what it was heard to differ; 0: in nothing, or it is not known. */
uint32_t unlike_differs(const struct unlike *u, const struct peer_id *id, uint64_t hash);

/* What the live peers that train are to us. */
struct unlike_count {
	uint32_t like, other_run, unlike; /* unlike: of our run */
	uint32_t unknown;                 /* of another hash, and not heard yet */
	uint32_t differs;                 /* of those of our run: all that differs */
};
/* One more of them, by its record. */
void unlike_count(const struct unlike *u, struct unlike_count *c, const struct peer_id *id,
        uint64_t hash, uint64_t our_hash);
/* In what every peer of our run differs from us; 0: one is like us, or it is not known yet. Of one
 * peer alone this is true only where there is no other who may be of our run. */
uint32_t unlike_verdict(const struct unlike_count *c);

#endif
