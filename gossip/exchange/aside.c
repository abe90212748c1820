/* SPDX-License-Identifier: MIT */
/* Unsettled exchanges that were put aside, so that the next one may begin.
 *
 * Snapshot and staging then belong to the next exchange. An agent that has applied needs neither
 * any more. An agent in doubt gives up its right to follow the peer: it has not moved and never
 * will, which DOUBT allows. The price: if the peer has applied, or is about to, and cannot be
 * reached for longer than hold_ms, the exchange is one-sided, and both count it so.
 *
 * Happy path: the peer comes back, is asked (SETTLE), answers, and the result is told, late:
 *
 *     we     the peer     follows
 *     moved  moved        exchanged
 *     moved  not          one-sided
 *     not    moved        one-sided; ABORT tells the peer
 *     not    not          broken; ABORT tells the peer
 *
 * What can fail: the peer is gone, was started anew, or stays away until settle_ms are over; and
 * one that finds no room makes the oldest give way. All of these are counted as one-sided.
 *
 * A step tells one result and sends a few messages at most; what is left is due at once, in the
 * next one. */
#include "gossip/exchange/exchange_internal.h"

#include <string.h>

static void over(struct exchange__aside *p, enum exchange_outcome o, enum exchange_why why,
        const char *words)
{
	if (p->over)
		return;
	p->over = true;
	p->result.outcome = (uint8_t)o;
	p->result.why = (uint8_t)why;
	exchange__words(p->result.words, words);
}

static void tell(struct exchange *x, struct exchange__aside *p)
{
	x->out->done = true;
	x->out->result = p->result;
	exchange__remember(x, &p->result.peer, p->result.exchange, p->result.moved);
	p->used = false;
}

void exchange__put_aside(struct exchange *x)
{
	struct exchange__aside *p = &x->aside[0];
	for (int i = 0; i < EXCHANGE_ASIDE_MAX && p->used; i++)
		if (!x->aside[i].used || x->aside[i].until_ms < p->until_ms)
			p = &x->aside[i];
	if (p->used) {
		over(p, OUTCOME_ONE_SIDED, EXCHANGE_OTHER, "too many are unsettled");
		tell(x, p);
	}
	*p = (struct exchange__aside){.used = true,
	        .result = exchange__describe(x),
	        .until_ms = x->cur.until_ms,
	        .ask_ms = x->cur.ask_ms};
	p->result.late = true;
	x->out->aside = true;
	x->out->so_far = p->result;
	memset(&x->cur, 0, sizeof x->cur);
	x->state = EXCHANGE_IDLE;
}

struct exchange__aside *exchange__find_aside(
        struct exchange *x, const struct peer_id *peer, uint64_t exchange)
{
	for (int i = 0; i < EXCHANGE_ASIDE_MAX; i++) {
		struct exchange__aside *p = &x->aside[i];
		if (p->used && p->result.exchange == exchange &&
		        peer_id_equal(&p->result.peer, peer))
			return p;
	}
	return NULL;
}

int exchange_unsettled(const struct exchange *x)
{
	int n = 0;
	for (int i = 0; i < EXCHANGE_ASIDE_MAX; i++)
		n += x->aside[i].used;
	return n;
}

/* The peer has applied. */
static void peer_applied(struct exchange__aside *p)
{
	if (p->result.moved)
		over(p, OUTCOME_EXCHANGED, EXCHANGE_WILLING, NULL);
	else
		over(p, OUTCOME_ONE_SIDED, EXCHANGE_OTHER, "only the peer has moved");
}

static void on_settle(struct exchange *x, struct exchange__aside *p, uint8_t settlement)
{
	struct exchange_result *r = &p->result;
	if (settlement == SETTLE_UNKNOWN) {
		over(p, OUTCOME_ONE_SIDED, EXCHANGE_UNKNOWN, "the peer was started anew");
		return;
	}
	bool applied = settlement == SETTLE_APPLIED;
	if (!r->moved)
		exchange__abort_to(x, &r->peer, r->exchange, EXCHANGE_OTHER, "it was given up");
	else if (applied)
		exchange__send(x, &r->peer, EXCHANGE_ACK, r->exchange);
	else /* and its answer follows */
		exchange__say_settle(x, &r->peer, r->exchange, SETTLE_APPLIED);
	if (applied)
		peer_applied(p);
	else if (!r->moved)
		over(p, OUTCOME_BROKEN, EXCHANGE_OTHER, "neither has moved");
}

void exchange__aside_message(
        struct exchange *x, struct exchange__aside *p, const struct exchange_message *m)
{
	if (m->kind == EXCHANGE_ACK)
		peer_applied(p);
	else if (m->kind == EXCHANGE_ABORT)
		over(p, p->result.moved ? OUTCOME_ONE_SIDED : OUTCOME_BROKEN,
		        m->busy.why < EXCHANGE_WHYS ? m->busy.why : EXCHANGE_OTHER, m->busy.words);
	else if (m->kind == EXCHANGE_SETTLE)
		on_settle(x, p, m->settlement);
}

void exchange__aside_link(struct exchange *x, const struct exchange_event *e)
{
	for (int i = 0; i < EXCHANGE_ASIDE_MAX; i++) {
		struct exchange__aside *p = &x->aside[i];
		if (!p->used || !peer_id_equal(&p->result.peer, &e->peer))
			continue;
		if (e->kind == EXCHANGE_EVENT_UP)
			p->ask_ms = x->now;
		else if (e->kind == EXCHANGE_EVENT_GONE)
			over(p, OUTCOME_ONE_SIDED, EXCHANGE_OTHER, "the peer is gone");
	}
}

uint64_t exchange__aside_time(struct exchange *x)
{
	uint64_t next = UINT64_MAX;
	for (int i = 0; i < EXCHANGE_ASIDE_MAX; i++) {
		struct exchange__aside *p = &x->aside[i];
		struct exchange_result *r = &p->result;
		if (!p->used)
			continue;
		if (x->now >= p->until_ms)
			over(p, OUTCOME_ONE_SIDED, EXCHANGE_OTHER, "the peer did not come back");
		if (!p->over && x->now >= p->ask_ms && x->out->n_sends < EXCHANGE_SENDS_MAX) {
			exchange__say_settle(
			        x, &r->peer, r->exchange, r->moved ? SETTLE_APPLIED : SETTLE_DOUBT);
			p->ask_ms = exchange__after(x->now, EXCHANGE__ASK_MS);
		}
		if (p->over && !x->out->done) {
			tell(x, p);
			continue;
		}
		uint64_t due = p->over ? x->now : p->ask_ms < p->until_ms ? p->ask_ms : p->until_ms;
		next = due < next ? due : next;
	}
	return next;
}
