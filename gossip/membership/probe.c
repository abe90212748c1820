/* SPDX-License-Identifier: MIT */
/* One probe at a time, of the next member in a shuffled order (SWIM, section 4.3):
 *
 *     0 ms            timeout                     interval
 *     ├── PING ─────────┼── PING_REQ to 3 helpers ───┤
 *     │                 │   PING on a stream         │ no ACK by any way: suspect
 *     ◄── ACK           ◄── ACK, through a helper    │
 *
 * Lifeguard: a helper whose ping fails says so (NACK), so that silence from helpers is a sign that
 * we ourselves are cut off; each such sign stretches our timings (health 0..7). A suspect is told
 * in the very ping what it is accused of.
 *
 * Where no address of a member is proven, and at the timeout, each of its addresses is pinged.
 *
 * One that cannot be dialled (NAT) pings on streams, so that a stream stands with each peer that it
 * has met, and is probed by those alone. The others go by its records, which it renews all the
 * time, and probe it when none has come for long. */
#include "gossip/membership/gossip_internal.h"

#include <string.h>

static uint64_t stretched(const struct gossip *g, uint32_t ms)
{
	return (uint64_t)ms * (g->health + 1);
}

static uint64_t new_nonce(struct gossip *g)
{
	uint64_t n;
	do
		n = rng_u64(&g->rng);
	while (n == 0);
	return n;
}

void gossip__probe_add(struct gossip *g, uint32_t i)
{
	/* At a random place, so that newcomers are not all probed last. */
	if (g->n_order == g->members_max)
		return;
	uint32_t at = (uint32_t)rng_below(&g->rng, g->n_order + 1u);
	g->order[g->n_order++] = g->order[at];
	g->order[at] = i;
}

#define UNHEARD_MS 60000

static bool to_be_probed(const struct gossip *g, const struct member *m)
{
	return gossip__present(m) &&
	       (m->record.dialable || m->connected || m->met || g->now - m->heard > UNHEARD_MS);
}

static uint32_t next_target(struct gossip *g)
{
	for (int round = 0; round < 2; round++) {
		while (g->order_next < g->n_order) {
			uint32_t i = g->order[g->order_next++];
			if (to_be_probed(g, &g->members[i]))
				return i;
		}
		g->n_order = g->order_next = 0;
		for (uint32_t i = 0; i < g->n_members; i++)
			if (gossip__present(&g->members[i]))
				g->order[g->n_order++] = i;
		rng_shuffle(&g->rng, g->order, g->n_order);
	}
	return NONE;
}

static bool can_send(const struct member *m)
{
	return m->record.dialable || m->connected;
}

static enum gossip_channel best_channel(const struct member *m)
{
	return m->record.dialable ? CHANNEL_DATAGRAM : CHANNEL_STREAM;
}

static void ping(struct gossip *g, uint32_t i, uint64_t nonce, enum gossip_channel c)
{
	struct member *m = &g->members[i];
	struct gossip_send *s = gossip__send(g, MESSAGE_PING, c);
	if (!s)
		return;
	gossip__send_member(s, m);
	s->message.nonce = nonce;
	s->message.target = m->record.id;
	if (m->state == MEMBER_SUSPECT)
		gossip__put_accusation(g, &s->message, i);
	gossip__piggyback(g, &s->message, &m->record.id);
}

/* One of its addresses, without news: it may go nowhere. */
static void ping_at(struct gossip *g, uint32_t i, uint64_t nonce, const struct peer_addr *a)
{
	struct member *m = &g->members[i];
	struct gossip_send *s = gossip__send(g, MESSAGE_PING, CHANNEL_DATAGRAM);
	if (!s)
		return;
	gossip__send_back(s, &m->record.id, a);
	s->message.nonce = nonce;
	s->message.target = m->record.id;
	if (m->state == MEMBER_SUSPECT)
		gossip__put_accusation(g, &s->message, i);
}

static void begin(struct gossip *g)
{
	struct probe *p = &g->probe;
	g->probe_at = g->now + stretched(g, g->config.profile.probe_interval);
	p->target = next_target(g);
	if (p->target == NONE)
		return;
	p->nonce[0] = new_nonce(g);
	p->at.n = 0;
	p->nacks = p->nacks_wanted = 0;
	p->ask_helpers_at = g->now + stretched(g, g->config.profile.probe_timeout);
	p->end_at = g->probe_at;
	g->counters.probes++;
	const struct member *m = &g->members[p->target];
	enum gossip_channel c = gossip__self(g)->record.dialable ? best_channel(m) : CHANNEL_STREAM;
	if (!can_send(m)) {
		p->ask_helpers_at = g->now;
		return;
	}
	ping(g, p->target, p->nonce[0], c);
	if (c == CHANNEL_STREAM)
		return;
	p->at = gossip__addrs(m);
	for (int k = 1; k < p->at.n; k++) {
		p->nonce[k] = new_nonce(g);
		if (!m->proven)
			ping_at(g, p->target, p->nonce[k], &p->at.at[k]);
	}
}

/* Do not ask a peer that is silent itself: its missing NACK would count against our own health. */
#define SPOKE_MS 30000

static bool can_help(const struct gossip *g, const struct member *m)
{
	return m->spoke > 0 && g->now - m->spoke < SPOKE_MS && m->state == MEMBER_ALIVE &&
	       m != &g->members[g->probe.target] && can_send(m) &&
	       (!m->unreachable || m->connected);
}

static void ask_helpers(struct gossip *g)
{
	struct probe *p = &g->probe;
	struct member *t = &g->members[p->target];
	struct peer_addrs at = gossip__addrs(t);
	uint32_t asked[8];
	uint32_t n = 0, most = g->config.profile.helpers < 8 ? g->config.profile.helpers : 8;
	p->ask_helpers_at = NEVER;
	for (uint32_t tries = 0; n < most && tries < 4 * most; tries++) {
		uint32_t i = gossip__pick(g, can_help);
		bool again = i == NONE;
		for (uint32_t k = 0; k < n && !again; k++)
			again = asked[k] == i;
		if (again)
			continue;
		const struct member *h = &g->members[i];
		struct gossip_send *s = gossip__send(g, MESSAGE_PING_REQ, best_channel(h));
		if (!s)
			break;
		gossip__send_member(s, h);
		s->message.nonce = p->nonce[0];
		s->message.target = t->record.id;
		s->message.address = at.n > 0 ? at.at[0] : (struct peer_addr){0};
		gossip__piggyback(g, &s->message, &h->record.id);
		asked[n++] = i;
	}
	p->nacks_wanted = n;
	if (can_send(t))
		ping(g, p->target, p->nonce[0], CHANNEL_STREAM);
	t->proven = false;
	for (int k = 0; p->at.n > 1 && k < p->at.n; k++)
		ping_at(g, p->target, p->nonce[k], &p->at.at[k]);
}

static void fail(struct gossip *g)
{
	struct probe *p = &g->probe;
	uint32_t i = p->target, silent = p->nacks_wanted - p->nacks;
	uint32_t worse = p->nacks_wanted > 0 ? silent : 1;
	p->target = NONE;
	g->health = g->health + worse > GOSSIP_HEALTH_MAX ? GOSSIP_HEALTH_MAX : g->health + worse;
	g->counters.probes_failed++;
	gossip__silent(&g->members[i]);
	gossip__suspect(g, i);
}

static void relay_timers(struct gossip *g)
{
	for (int i = 0; i < GOSSIP_RELAYS; i++) {
		struct relay *r = &g->relay[i];
		if (r->nonce == 0 || g->now < r->end_at)
			continue;
		struct gossip_send *s =
		        gossip__send(g, MESSAGE_NACK, (enum gossip_channel)r->channel);
		if (!s)
			return;
		gossip__send_back(s, &r->from, &r->address);
		s->message.nonce = r->their_nonce;
		r->nonce = 0;
	}
}

void gossip__probe_timers(struct gossip *g)
{
	struct probe *p = &g->probe;
	relay_timers(g);
	if (p->target != NONE && !gossip__present(&g->members[p->target]))
		p->target = NONE; /* settled by others meanwhile */
	if (p->target != NONE && g->now >= p->ask_helpers_at && g->now < p->end_at)
		ask_helpers(g);
	if (p->target != NONE && g->now >= p->end_at)
		fail(g);
	if (g->now >= g->probe_at)
		begin(g);
}

uint64_t gossip__probe_deadline(const struct gossip *g)
{
	uint64_t d = g->probe_at;
	if (g->probe.target != NONE && g->probe.ask_helpers_at < d)
		d = g->probe.ask_helpers_at;
	for (int i = 0; i < GOSSIP_RELAYS; i++)
		if (g->relay[i].nonce != 0 && g->relay[i].end_at < d)
			d = g->relay[i].end_at;
	return d;
}

/* A datagram's source is anybody's word: whoever caught one on its way can send it on from
 * elsewhere. So news goes only where that agent has answered us, or on a stream. */
static void answer_news(struct gossip *g, struct gossip_send *s, const struct peer_id *to,
        const struct peer_addr *at, uint8_t channel)
{
	uint32_t i = gossip__find(g, to);
	if (channel == CHANNEL_STREAM || (i != NONE && gossip__proven_at(&g->members[i], at)))
		gossip__piggyback(g, &s->message, to);
}

static struct gossip_send *answer(
        struct gossip *g, const struct gossip_event *e, enum message_kind kind, uint64_t nonce)
{
	struct gossip_send *s = gossip__send(g, kind, (enum gossip_channel)e->received.channel);
	if (!s)
		return NULL;
	gossip__send_back(s, &e->received.from, &e->received.address);
	s->message.nonce = nonce;
	return s;
}

void gossip__on_ping(struct gossip *g, const struct gossip_event *e)
{
	const struct gossip_message *m = e->received.message;
	if (!peer_id_equal(&m->target, &g->config.self))
		return; /* for whoever had our address before */
	struct gossip_send *s = answer(g, e, MESSAGE_ACK, m->nonce);
	uint32_t i = gossip__find(g, &e->received.from);
	if (!s)
		return;
	/* Whoever pings us and is held dead or suspect wants to know; so does one that has left, or
	 * whose name we know at another address: it lost its generation, or shares its key. Behind
	 * a NAT an address tells nothing: such a one is always told. */
	const struct member *x = i == NONE ? NULL : &g->members[i];
	if (x && (x->state == MEMBER_DEAD || x->state == MEMBER_SUSPECT))
		gossip__put_accusation(g, &s->message, i);
	bool elsewhere =
	        x && (!x->record.dialable || !gossip__is_at(&x->record, &e->received.address));
	if (x && (elsewhere || x->state == MEMBER_LEFT))
		gossip__put_record(g, &s->message, i);
	answer_news(g, s, &e->received.from, &e->received.address, e->received.channel);
}

void gossip__on_ping_req(struct gossip *g, const struct gossip_event *e)
{
	const struct gossip_message *m = e->received.message;
	struct relay *free_slot = NULL;
	if (peer_id_equal(&m->target, &g->config.self))
		return;
	for (int i = 0; i < GOSSIP_RELAYS && !free_slot; i++)
		if (g->relay[i].nonce == 0)
			free_slot = &g->relay[i];
	uint32_t i = gossip__find(g, &m->target);
	const struct member *t = i == NONE ? NULL : &g->members[i];
	struct gossip_send *s =
	        free_slot ? gossip__send(g, MESSAGE_PING, t ? best_channel(t) : CHANNEL_DATAGRAM)
	                  : NULL;
	if (!s) {
		g->counters.dropped_relays++;
		return;
	}
	struct peer_addrs at = {peer_addr_usable(&m->address), {m->address}};
	if (t)
		at = gossip__addrs(t);
	gossip__send_to(s, &m->target, &at);
	s->message.nonce = new_nonce(g);
	s->message.target = m->target;
	gossip__piggyback(g, &s->message, &m->target);
	*free_slot = (struct relay){.nonce = s->message.nonce,
	        .their_nonce = m->nonce,
	        .from = e->received.from,
	        .target = m->target,
	        .address = e->received.address,
	        .channel = e->received.channel,
	        .end_at = g->now + g->config.profile.probe_timeout};
	for (int k = 1; t && t->record.dialable && !t->proven && k < at.n; k++)
		ping_at(g, i, free_slot->nonce, &at.at[k]);
}

/* The answer to our own probe. If it came through a helper, the direct path does not work. */
static void probe_answered(struct gossip *g, int k, bool direct, uint8_t channel)
{
	struct member *m = &g->members[g->probe.target];
	if (direct && channel == CHANNEL_DATAGRAM && k < g->probe.at.n)
		gossip__answered(m, &g->probe.at.at[k]);
	g->probe.target = NONE;
	m->hearsay = false;
	if (g->health > 0)
		g->health--;
	if (direct) {
		if (m->unreachable)
			gossip__notice(g, NOTICE_REACHABLE, &m->record.id, 0);
		m->unreachable = false;
		m->misses = 0;
	} else if (m->record.dialable && !m->unreachable && ++m->misses >= 3) {
		m->unreachable = true;
		gossip__notice(g, NOTICE_UNREACHABLE, &m->record.id, 0);
	}
}

void gossip__on_ack(struct gossip *g, const struct gossip_event *e)
{
	uint64_t nonce = e->received.message->nonce;
	struct probe *p = &g->probe;
	for (int k = 0; p->target != NONE && (k == 0 || k < p->at.n); k++)
		if (nonce == p->nonce[k]) {
			const struct peer_id *target = &g->members[p->target].record.id;
			probe_answered(g, k, peer_id_equal(&e->received.from, target),
			        e->received.channel);
			return;
		}
	for (int i = 0; i < GOSSIP_RELAYS; i++) {
		struct relay *r = &g->relay[i];
		if (r->nonce == 0 || r->nonce != nonce ||
		        !peer_id_equal(&e->received.from, &r->target))
			continue;
		struct gossip_send *s =
		        gossip__send(g, MESSAGE_ACK, (enum gossip_channel)r->channel);
		r->nonce = 0;
		if (!s)
			return;
		gossip__send_back(s, &r->from, &r->address);
		s->message.nonce = r->their_nonce;
		answer_news(g, s, &r->from, &r->address, r->channel);
		return;
	}
}

void gossip__on_nack(struct gossip *g, const struct gossip_event *e)
{
	struct probe *p = &g->probe;
	if (p->target != NONE && e->received.message->nonce == p->nonce[0] &&
	        p->nacks < p->nacks_wanted)
		p->nacks++;
}
