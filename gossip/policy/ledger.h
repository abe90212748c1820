/* SPDX-License-Identifier: MIT */
/* The last decisions of the gate and their outcomes, in a ring that overwrites the oldest.
 * Consecutive local steps share one entry with a count. */
#ifndef DUNLIN_GOSSIP_POLICY_LEDGER_H
#define DUNLIN_GOSSIP_POLICY_LEDGER_H

#include "gossip/exchange/exchange.h"
#include "gossip/policy/gate.h"

#define LEDGER_ENTRIES 512

struct ledger_entry {
	uint64_t number;      /* from 1, never reused */
	uint32_t steps;       /* how many decisions in a row this stands for */
	uint8_t reason;       /* enum gate_reason */
	bool wanted;          /* the gate asked for an exchange */
	uint64_t step, at_ms; /* this and the next three: of the last of them */
	bool has_change;
	double change, delta;
	bool tried;   /* an exchange was tried; the rest tells of it */
	bool settled; /* outcome is known */
	struct peer_id peer;
	uint64_t bytes;  /* uploaded by it */
	uint64_t saved;  /* not uploaded: steps × what an exchange takes, for local ones */
	uint8_t outcome; /* enum exchange_outcome */
};

struct ledger {
	uint64_t next;                             /* number of the next entry; begins at 1 */
	struct ledger_entry entry[LEDGER_ENTRIES]; /* number n is at n % LEDGER_ENTRIES */
};

void ledger_init(struct ledger *l);
/* Returns the entry's number: for ledger_outcome, if an exchange is tried. */
uint64_t ledger_decision(struct ledger *l, uint64_t step, uint64_t now_ms,
        const struct gate_decision *d, uint64_t exchange_bytes);
/* Both do nothing if the entry has been overwritten. */
void ledger_tried(struct ledger *l, uint64_t number, const struct peer_id *peer);
void ledger_outcome(struct ledger *l, uint64_t number, enum exchange_outcome o, uint64_t bytes);
/* How many there are, and the i-th, newest first; NULL: no such. */
uint32_t ledger_count(const struct ledger *l);
const struct ledger_entry *ledger_get(const struct ledger *l, uint32_t i);

#endif
