/* SPDX-License-Identifier: MIT */
/* Which wire format an agent's offers name, and why (gossip.wire).
 *
 *     stated                              that one, if it can be
 *     auto: both move, and we can pack    mod8
 *     else                                the plain one, bf16
 *
 * mod8 has half of bf16's bytes and, with few agents and many, on fast links and slow ones, about
 * its accuracy or more; mod4 has half again, and is better for a few agents on slow links only:
 * where agents meet rarely its 16 values do not cover how far apart they are
 * (tests/bench/RESULTS.md). A small model on a fast link gains little by 8 bits, and loses nothing.
 * So what a link carries decides how often agents meet, not how; and nothing that a peer
 * says or does changes the format of another pair.
 *
 * Pure. What one exchange is in is agreed by the pair: see exchange/exchange.c. */
#ifndef DUNLIN_GOSSIP_POLICY_FORMAT_H
#define DUNLIN_GOSSIP_POLICY_FORMAT_H

#include <stdint.h>

#define FORMAT_AUTO (-1)

enum format_why {
	FORMAT_STATED,
	FORMAT_PACKS,    /* auto: this agent packs, and both move */
	FORMAT_UNPACKED, /* it cannot pack: its device, or batch norm */
	FORMAT_ONE_WAY,  /* push and pull: a lattice tells differences, and one has none to tell */
	FORMAT_FIRST,    /* for now: no exchange has filled the scales yet */
	FORMAT_MERGE,    /* for now: merge rounds */
	FORMAT_WHYS
};
const char *format_why_text(enum format_why w); /* "stated", "packs", "unpacked", … */

struct format_config {
	int stated;        /* the number of a format, or FORMAT_AUTO */
	uint64_t accepted; /* formats that we can take and send: 1 << number of each */
	uint64_t scaled;   /* those that are lattices */
	uint8_t fine;      /* the lattice of auto */
	uint8_t plain;
	uint8_t mode; /* enum exchange_mode */
};

struct format_choice {
	uint8_t format, why;
};
struct format_choice format_choose(const struct format_config *c);

#endif
