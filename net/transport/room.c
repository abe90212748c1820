/* SPDX-License-Identifier: MIT */
/* Who may hold a socket when there are few. Whoever has the flock's secret can make as many ids as
 * it likes and a session under each: without a bound they would take every descriptor, and then no
 * checkpoint can be written, no control socket answered, no newcomer taken.
 *
 *     connections_max   ┌ strangers 1/4 ┬ known 1/8 ┬ dials 1/8 ┬ sessions: the rest ┐
 *
 * Where all sessions are taken a new one still begins, and the one goes whose peer has no member's
 * record, of these the longest unused; if all have one, the longest unused of all. An honest peer
 * loses little by it: a session is dialled again when there is something to say. */
#include "net/transport/transport_internal.h"

#define ENOUGH 1024 /* connections_max from which the budget's own limits hold */

void room__init(struct transport *t)
{
	uint32_t n = t->config.connections_max;
	t->sessions_max = t->dials_max = UINT32_MAX;
	if (n == 0)
		return;
	t->dials_max = n / 8;
	if (n < ENOUGH) {
		t->budget.slots_max = (uint16_t)(n / 4);
		t->budget.known_max =
		        (uint16_t)(n < 8 * BUDGET_SLOTS_KNOWN ? n / 8 : BUDGET_SLOTS_KNOWN);
	}
	t->sessions_max = n - t->dials_max - t->budget.slots_max - t->budget.known_max;
}

static bool is_member(const struct transport *t, const struct conn *c)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	return cb->member_cb && cb->member_cb(cb->arg, &c->id);
}

void room__for_session(struct transport *t, struct conn *new)
{
	struct conn *first = NULL;
	uint32_t n = 0;
	bool member = true;
	for (struct conn *c = t->conns; c; c = c->next)
		n += c->state == CONN_UP;
	if (n < t->sessions_max)
		return;
	for (struct conn *c = t->conns; c; c = c->next) {
		if (c == new || c->state != CONN_UP)
			continue;
		bool m = is_member(t, c);
		if (!first || (member && !m) || (member == m && c->used_ms < first->used_ms)) {
			first = c;
			member = m;
		}
	}
	if (first && member)
		conn__bye(
		        first, WHY_BUSY, "no room for more connections: dial again when you must");
	else if (first)
		conn__close(first);
}

bool room__for_dial(const struct transport *t)
{
	uint32_t n = 0;
	for (const struct conn *c = t->conns; c; c = c->next)
		n += c->initiator && c->state < CONN_UP;
	return n < t->dials_max;
}

void room__for_accepted(struct transport *t)
{
	if (t->config.connections_max == 0 || t->counters.connections < t->config.connections_max)
		return;
	for (struct conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->state == CONN_CLOSING)
			conn__close(c);
	}
}
