/* SPDX-License-Identifier: MIT */
/* The bounds of membership. Over a bound of members the peers longest dead are forgotten first; a
 * live one that finds no room is refused; both are counted. */
#ifndef DUNLIN_GOSSIP_LIMITS_H
#define DUNLIN_GOSSIP_LIMITS_H

#include <stdint.h>

#define GOSSIP_MEMBERS 4096         /* known peers, the dead and departed included */
#define GOSSIP_MEMBERS_MAX 65536    /* what a configuration may ask for */
#define GOSSIP_RETIRED_PER_MEMBER 4 /* slots for forgotten agents whose counts are remembered */

#define GOSSIP_DATAGRAM_BYTES 1200 /* of payload, sealing included */
#define GOSSIP_UPDATES_MAX 8       /* on one message */
#define GOSSIP_UPDATE_BYTES 320    /* of a signed update, a later version's fields included */
#define GOSSIP_SKETCH_BYTES 1024
#define MEMBER_ADDRS_MAX 4 /* addresses of one agent */

#define GOSSIP_SENDS_MAX 16 /* of one step; more follow at once in the next */
#define GOSSIP_NOTICES_MAX 64
#define GOSSIP_RESOLVES_MAX 4
#define GOSSIP_SEEDS_MAX 64
#define GOSSIP_SEED_ADDRESSES 8

#define GOSSIP_RELAYS 64      /* indirect probes that we help with at one time */
#define GOSSIP_SYNCS 32       /* whole states that we are sending at one time */
#define GOSSIP_REMEMBERED 256 /* addresses of earlier runs that are still to be tried */
#define GOSSIP_ACCUSERS 8     /* distinct ones that a suspicion keeps */
#define GOSSIP_REFUTED 8      /* accusers that a member has refuted lately */
#define GOSSIP_HEALTH_MAX 7
#define GOSSIP_SAMPLES_MAX (1ull << 44) /* that one agent may claim */
#define GOSSIP_TRANSMITS_MAX 32         /* of one update, whatever the flock's size */

_Static_assert(GOSSIP_SENDS_MAX >= 8 + 1 + MEMBER_ADDRS_MAX,
        "a probe's helpers, its stream ping and a ping to each address go out in one step");
_Static_assert(GOSSIP_MEMBERS <= GOSSIP_MEMBERS_MAX, "the default must be allowed");

#endif
