/* SPDX-License-Identifier: MIT */
/* A decision is written when it is taken, and what came of it is filled in later by its number. By
 * then the ring may have gone round: an outcome whose entry is gone is dropped. A run of local
 * steps grows in place as long as nothing else was written and its reason stays the same. */
#include "gossip/policy/ledger.h"

#include <string.h>

void ledger_init(struct ledger *l)
{
	memset(l, 0, sizeof *l);
	l->next = 1;
}

static struct ledger_entry *find(struct ledger *l, uint64_t number)
{
	struct ledger_entry *e = &l->entry[number % LEDGER_ENTRIES];
	return number > 0 && e->number == number ? e : NULL;
}

uint64_t ledger_decision(struct ledger *l, uint64_t step, uint64_t now_ms,
        const struct gate_decision *d, uint64_t exchange_bytes)
{
	struct ledger_entry *e = find(l, l->next - 1);
	if (!e || d->exchange || e->wanted || e->reason != d->reason || e->steps == UINT32_MAX) {
		e = &l->entry[l->next % LEDGER_ENTRIES];
		*e = (struct ledger_entry){
		        .number = l->next++, .reason = d->reason, .wanted = d->exchange};
	}
	e->step = step;
	e->at_ms = now_ms;
	e->steps++;
	e->has_change = d->has_change;
	e->change = d->change;
	e->delta = d->delta;
	if (!d->exchange)
		e->saved += exchange_bytes;
	return e->number;
}

void ledger_tried(struct ledger *l, uint64_t number, const struct peer_id *peer)
{
	struct ledger_entry *e = find(l, number);
	if (!e)
		return;
	e->tried = true;
	e->peer = *peer;
}

void ledger_outcome(struct ledger *l, uint64_t number, enum exchange_outcome o, uint64_t bytes)
{
	struct ledger_entry *e = find(l, number);
	if (!e)
		return;
	e->settled = true;
	e->outcome = (uint8_t)o;
	e->bytes = bytes;
}

uint32_t ledger_count(const struct ledger *l)
{
	return l->next > LEDGER_ENTRIES ? LEDGER_ENTRIES : (uint32_t)(l->next - 1);
}

const struct ledger_entry *ledger_get(const struct ledger *l, uint32_t i)
{
	return i < ledger_count(l) ? &l->entry[(l->next - 1 - i) % LEDGER_ENTRIES] : NULL;
}
