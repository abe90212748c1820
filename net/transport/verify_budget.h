/* SPDX-License-Identifier: MIT */
/* What the verification of news may cost. A signature costs as much as a thousand look-ups, and who
 * passes on a bad one has not looked at it: agents verify what they pass on. So
 *
 *     - a peer's third bad signature within a minute ends its session, and its news is not heard
 *       for a minute, by whatever way it comes;
 *     - a peer has a purse: VERIFY_BURST verifications at once, VERIFY_RATE a second after that;
 *     - its messages on streams may take SHARE_PCT of a core, and SHARE_BURST_MS at once; then its
 *       connection is not read for a while, whatever it sends (turn.c);
 *     - datagrams may not wait, so what they bring after VERIFY_TURN_US of verification in one turn
 *       of the loop is left out. Streams wait, see turn.c.
 *
 * What is left out is counted; membership repeats whatever matters.
 *
 * Honest peers stay far below it. In a flock of 128 a newcomer's first whole state has 127 records
 * and as many sketches, and after a partition at most as many accusations: 381 at once. After that
 * each agent publishes a record every 45 s, so 3 a second are new; and a whole state every 30 s may
 * bring 127 sketches that are newer than ours: 11 a second in all, if one peer brought everything.
 *
 * No clock, no allocation: the time comes in. Peers are found in a table of fixed size; one that is
 * forgotten for another begins with a full purse. Those whose news is not heard are forgotten last.
 */
#ifndef DUNLIN_NET_TRANSPORT_VERIFY_BUDGET_H
#define DUNLIN_NET_TRANSPORT_VERIFY_BUDGET_H

#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define VERIFY_WAYS 4
#define VERIFY_SETS (VERIFY_PEERS / VERIFY_WAYS)

struct verify_peer {
	uint64_t key;     /* the id's first bytes; 0: free */
	uint64_t level;   /* thousandths of a verification */
	uint64_t at_ms;   /* when that was so */
	uint64_t deaf_ms; /* until then its news is not heard */
	uint64_t bad_ms;  /* when the last bad signature came */
	uint32_t bad;     /* in a row, none over a minute after the last */
	int64_t share_ns; /* of a core that its messages may still take, at share_ms */
	uint64_t share_ms;
};

struct verify_budget {
	uint64_t seed; /* random: nobody chooses whom it displaces */
	uint64_t turn_ms, turn_us;
	uint64_t verified, bad, left_out;
	struct verify_peer peer[VERIFY_SETS][VERIFY_WAYS];
};

void verify_init(struct verify_budget *b, uint64_t seed);

/* May one signature that `from` brought be verified? The turn is known by now_ms, which does not
 * change within one. False: leave the news out; it is counted. */
bool verify_may(
        struct verify_budget *b, const struct peer_id *from, bool datagram, uint64_t now_ms);

/* It was verified, in so many microseconds. True: that was a bad one too many, end the session. */
bool verify_done(struct verify_budget *b, const struct peer_id *from, bool good, uint64_t took_us,
        uint64_t now_ms);

/* Its messages have taken so long. True: that was its share for now. 0 ns only asks. */
bool verify_share(
        struct verify_budget *b, const struct peer_id *from, uint64_t ns, uint64_t now_ms);

#endif
