/* SPDX-License-Identifier: MIT */
/* Any bytes as the life of a membership core: a small configuration, then events of any kind, with
 * any content, from a handful of identities (its own among them), at any time. Whatever comes, the
 * bounds hold, the run's clock does not fall, and the core is not its own peer. The memory is
 * exactly what gossip_size asks for, so that AddressSanitizer sees the first byte beyond. */
#include "gossip/membership/gossip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IDS 8
#define EVENTS_MAX 2000

struct input {
	const uint8_t *at;
	size_t left;
};

static uint8_t take(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

static uint64_t take_word(struct input *in)
{
	uint64_t x = 0;
	for (int i = 0; i < 8; i++)
		x = x << 8 | take(in);
	return x;
}

/* Mostly small, as counters are; now and then the ends of the range, or anything. */
static uint64_t take_number(struct input *in)
{
	uint8_t b = take(in);
	if (b < 0xf0)
		return b & 7;
	if (b < 0xf8)
		return UINT64_MAX - (b & 7);
	return take_word(in);
}

static struct peer_id take_id(struct input *in)
{
	struct peer_id id;
	memset(&id, 0x11 * (take(in) % IDS + 1), sizeof id);
	return id;
}

static struct peer_addr take_addr(struct input *in)
{
	uint8_t b = take(in);
	struct peer_addr a = {.family = b < 0xf0 ? 4 : (uint8_t)(b & 7), .port = b & 7};
	a.ip[0] = 10;
	a.ip[3] = b & 7;
	return a;
}

static struct peer_addrs take_addrs(struct input *in)
{
	uint8_t b = take(in);
	struct peer_addrs a = {.n = b < 0xf8 ? b % (MEMBER_ADDRS_MAX + 1) : b};
	for (int i = 0; i < MEMBER_ADDRS_MAX && i < a.n; i++)
		a.at[i] = take_addr(in);
	return a;
}

static struct member_status take_status(struct input *in)
{
	return (struct member_status){.model = 1,
	        .step = take_number(in),
	        .samples = take_number(in),
	        .loss = (float)take(in)};
}

static void take_update(struct input *in, struct gossip_update *u)
{
	uint8_t b = take(in);
	memset(u, 0, sizeof *u);
	u->kind = b < 0xf0 ? b & 1 : b;
	u->ours = b & 2;
	u->raw.length = b & 0x20 ? GOSSIP_UPDATE_BYTES : 0;
	if (u->kind == UPDATE_RECORD) {
		struct member_record *r = &u->record;
		r->id = take_id(in);
		r->generation = take_number(in);
		r->nonce = take_number(in);
		r->incarnation = take_number(in);
		r->version = take_number(in);
		r->left = (b & 0x0c) == 0x0c;
		r->dialable = b & 0x10;
		r->addrs = take_addrs(in);
		r->protocol_min = r->protocol_max = b & 3;
		r->status = take_status(in);
	} else {
		u->accusation = (struct accusation){.about = take_id(in),
		        .by = take_id(in),
		        .generation = take_number(in),
		        .incarnation = take_number(in),
		        .dead = b & 4};
	}
}

/* The nonce of the last ping that went out: answers to it mean something. */
static uint64_t last_nonce(const struct gossip_actions *a, uint64_t before)
{
	for (int i = 0; i < a->n_sends; i++)
		if (a->send[i].message.kind == MESSAGE_PING)
			before = a->send[i].message.nonce;
	return before;
}

static void take_message(struct input *in, struct gossip_message *m, uint64_t nonce)
{
	uint8_t b = take(in);
	memset(m, 0, sizeof *m);
	m->kind = b < 0xf0 ? b % 7 : b;
	m->want_reply = b & 8;
	m->nonce = b & 0x10 ? nonce : take_number(in);
	m->target = take_id(in);
	m->address = take_addr(in);
	uint8_t n = take(in);
	m->n_updates = n < 0xf8 ? n % (GOSSIP_UPDATES_MAX + 1) : n;
	for (int i = 0; i < GOSSIP_UPDATES_MAX && i < m->n_updates; i++)
		take_update(in, &m->update[i]);
	if (m->kind != MESSAGE_SKETCH)
		return;
	m->sketch.id = take_id(in);
	m->sketch.generation = take_number(in);
	m->sketch.step = take_number(in);
	m->sketch.length = (uint16_t)(take(in) * 9);
}

static void demand(bool held)
{
	if (!held)
		abort();
}

static void check_actions(const struct gossip_actions *a, const struct gossip_config *c)
{
	demand(a->n_sends >= 0 && a->n_sends <= GOSSIP_SENDS_MAX);
	demand(a->n_notices >= 0 && a->n_notices <= GOSSIP_NOTICES_MAX);
	demand(a->n_resolve >= 0 && a->n_resolve <= GOSSIP_RESOLVES_MAX);
	for (int i = 0; i < a->n_resolve; i++)
		demand(a->resolve[i] >= 0 && a->resolve[i] < c->n_seeds);
	for (int i = 0; i < a->n_sends; i++) {
		const struct gossip_send *s = &a->send[i];
		demand(s->message.n_updates <= GOSSIP_UPDATES_MAX);
		demand(s->message.kind <= MESSAGE_SKETCH);
		demand(!s->to_id || !peer_id_equal(&s->id, &c->self));
		demand(s->addrs.n <= MEMBER_ADDRS_MAX);
		if (s->channel == CHANNEL_DATAGRAM)
			demand(s->message.kind < MESSAGE_SYNC && s->to_id && s->addrs.n > 0 &&
			        gossip_message_bytes(&s->message) <= GOSSIP_DATAGRAM_BYTES);
		for (int k = 0; k < s->message.n_updates; k++) {
			const struct gossip_update *u = &s->message.update[k];
			if (u->ours)
				demand(peer_id_equal(u->kind == UPDATE_RECORD ? &u->record.id
				                                              : &u->accusation.by,
				        &c->self));
		}
	}
}

static void check_members(const struct gossip *g, const struct gossip_config *c)
{
	uint32_t n = gossip_count(g), by_state = 0;
	struct member_view v;
	demand(n <= c->members_max);
	for (uint32_t i = 0; i < n; i++) {
		v = gossip_member(g, i);
		demand(!peer_id_equal(&v.record.id, &c->self) && v.state <= MEMBER_LEFT);
		demand(!v.sketch || v.sketch->length <= GOSSIP_SKETCH_BYTES);
		demand(gossip_find(g, &v.record.id, &v));
	}
	for (int i = MEMBER_ALIVE; i <= MEMBER_LEFT; i++)
		by_state += gossip_count_state(g, (enum member_state)i);
	demand(by_state == n && gossip_health(g) <= GOSSIP_HEALTH_MAX);
}

/* The next event; false if the input is at its end. */
static bool take_event(struct input *in, struct gossip_event *e, struct gossip_message *m,
        uint64_t nonce, uint64_t *now, uint64_t deadline)
{
	static const uint8_t bytes[GOSSIP_SKETCH_BYTES];
	uint8_t b = take(in);
	if (in->left == 0)
		return false;
	memset(e, 0, sizeof *e);
	e->kind = b < 0xf0 ? b % 12 : b;
	switch (b >> 4 & 7) {
	case 0:
		*now = deadline;
		break;
	case 1:
		*now = take_number(in) * 1000 + *now;
		break;
	case 2:
		*now -= take(in);
		break;
	case 3:
		*now = take_word(in);
		break;
	default:
		*now += b >> 4;
	}
	e->now_ms = *now;
	switch (e->kind) {
	case EVENT_RECEIVED:
		take_message(in, m, nonce);
		e->received.from = take_id(in);
		e->received.address = take_addr(in);
		e->received.channel = b & 1;
		e->received.message = m;
		break;
	case EVENT_RESOLVED:
		e->resolved.seed = (int)take(in) - 2;
		e->resolved.n = (int)(take(in) % (GOSSIP_SEED_ADDRESSES + 1));
		for (int i = 0; i < e->resolved.n; i++)
			e->resolved.address[i] = take_addr(in);
		break;
	case EVENT_PEER_UP:
	case EVENT_PEER_DOWN:
		e->peer.id = take_id(in);
		e->peer.address = take_addr(in);
		break;
	case EVENT_STATUS:
		e->status = take_status(in);
		break;
	case EVENT_SKETCH:
		e->sketch.step = take_number(in);
		e->sketch.length = (uint16_t)(take(in) * 4);
		e->sketch.bytes = bytes;
		break;
	case EVENT_ADDRESS:
		e->address.addrs = take_addrs(in);
		e->address.dialable = b & 1;
		break;
	case EVENT_REMEMBER:
		e->remember = take_addr(in);
		break;
	default:
		break;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gossip_actions a;
	static struct gossip_message m;
	struct input in = {data, size};
	struct err err = {0};
	struct gossip *g;
	struct gossip_event e = {.kind = EVENT_START};
	uint8_t b = take(&in);
	struct gossip_config c = {.profile = b & 1 ? gossip_lan : gossip_wan,
	        .generation = 1 + (b >> 1 & 3),
	        .nonce = 1,
	        .seed = b,
	        .dialable = b & 8,
	        .n_seeds = b >> 4 & 3,
	        .members_max = 1u + take(&in) % 10u};
	c.self = take_id(&in);
	c.addrs.n = 1;
	c.addrs.at[0] = take_addr(&in);
	c.status = take_status(&in);
	size_t need = gossip_size(&c);
	void *memory = calloc(1, need);
	demand(memory != NULL);
	demand(gossip_init(&g, memory, need - 1, &c, &err) == ERR_NOMEM);
	demand(gossip_init(&g, memory, need, &c, &err) == 0);
	uint64_t now = take_number(&in), clock = gossip_clock(g), nonce = 0;
	e.now_ms = now;
	gossip_step(g, &e, &a);
	for (int i = 0; i < EVENTS_MAX; i++) {
		check_actions(&a, &c);
		check_members(g, &c);
		demand(gossip_clock(g) >= clock);
		clock = gossip_clock(g);
		nonce = last_nonce(&a, nonce);
		if (!take_event(&in, &e, &m, nonce, &now, a.deadline_ms))
			break;
		if (e.kind == EVENT_RECEIVED && m.n_updates > 0)
			(void)gossip_wants(g, &m.update[0]);
		gossip_step(g, &e, &a);
	}
	free(memory);
	return 0;
}
