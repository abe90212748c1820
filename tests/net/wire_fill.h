/* SPDX-License-Identifier: MIT */
/* Messages made from the codec's own table, so that a new field is in every test of it: random
 * ones, and the longest that there can be. Structs must be zero before. */
#ifndef DUNLIN_TESTS_NET_WIRE_FILL_H
#define DUNLIN_TESTS_NET_WIRE_FILL_H

#include "agent/base/rng.h"
#include "net/codec/wire.h"
#include "net/codec/wire_table.h"

#include <assert.h>
#include <string.h>

/* A signed update in its bytes, with a signature that need not fit. */
static inline void forge(struct gossip_update *u, const uint8_t signature[64])
{
	const struct wire__head h = {1, {u->kind}, 1};
	size_t n = wire__put(u->raw.bytes, GOSSIP_UPDATE_BYTES - 66, &h, &wire__updates[u->kind],
	        u->kind == UPDATE_RECORD ? (void *)&u->record : &u->accusation);
	assert(n);
	memcpy(u->raw.bytes + n, "\xc4\x40", 2);
	memcpy(u->raw.bytes + n + 2, signature, 64);
	u->raw.length = (uint16_t)(n + 66);
}

static inline uint64_t fill_u64(struct rng *r)
{
	return rng_u64(r) >> rng_below(r, 64); /* all lengths alike */
}

static inline void fill_bytes(struct rng *r, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = r ? (uint8_t)rng_u64(r) : 0xff;
}

/* Up to and including most; the longest without r. */
static inline size_t fill_count(struct rng *r, size_t most)
{
	return r ? rng_below(r, most + 1) : most;
}

static inline void fill_addr(struct rng *r, struct peer_addr *a, bool none)
{
	static const uint8_t families[] = {6, 4, 0};
	a->family = r ? families[rng_below(r, none ? 3 : 2)] : 6;
	fill_bytes(r, a->ip, a->family == 4 ? 4 : a->family == 6 ? 16 : 0);
	a->port = a->family ? (uint16_t)(1 + fill_count(r, 65534)) : 0;
}

static inline void fill_floats(
        struct rng *r, const struct wire__field *f, uint8_t *at, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float x = f->high;
		if (r && f->high != 0)
			x = f->high * (1 - rng_f32(r));
		else if (r)
			fill_bytes(r, (uint8_t *)&x, sizeof x); /* any bits, a NaN's too */
		memcpy(at + i * sizeof x, &x, sizeof x);
	}
}

static inline void fill(struct rng *r, const struct wire__layout *l, void *base);

static inline void fill_updates(struct rng *r, struct gossip_message *m)
{
	uint8_t signature[64];
	m->n_updates = (uint8_t)fill_count(r, GOSSIP_UPDATES_MAX);
	for (int i = 0; i < m->n_updates; i++) {
		struct gossip_update *u = &m->update[i];
		u->kind = r && rng_below(r, 2) ? UPDATE_ACCUSATION : UPDATE_RECORD;
		fill(r, &wire__updates[u->kind],
		        u->kind == UPDATE_RECORD ? (void *)&u->record : &u->accusation);
		fill_bytes(r, signature, sizeof signature);
		forge(u, signature);
	}
}

static inline void fill_field(struct rng *r, const struct wire__field *f, uint8_t *base)
{
	uint8_t *at = base + f->at;
	uint64_t number = f->max;
	size_t n;
	switch ((enum wire__type)f->type) {
	case FIELD_UINT:
		if (r && f->max - f->min < 256)
			number = f->min + rng_below(r, f->max - f->min + 1);
		else if (r)
			number = fill_u64(r) % f->max + f->min;
		if (r && f->ordered)
			wire__store(base + f[-1].at, f[-1].size, number / 2);
		wire__store(at, f->size, number);
		return;
	case FIELD_FLAGS:
	case FIELD_BOOL:
		for (int i = 0; i < f->size; i++)
			at[i] = (uint8_t)fill_count(r, 1);
		return;
	case FIELD_FLOAT:
		fill_floats(r, f, at, 1);
		return;
	case FIELD_FLOATS:
		n = fill_count(r, f->size / sizeof(float) - f->extra);
		fill_floats(r, f, at, n + f->extra);
		wire__store(base + f->count_at, f->count_size, n);
		return;
	case FIELD_BYTES:
		fill_bytes(r, at, f->size);
		return;
	case FIELD_BLOB:
		n = fill_count(r, f->size);
		fill_bytes(r, at, n);
		wire__store(base + f->count_at, f->count_size, n);
		return;
	case FIELD_TEXT:
		memset(at, 'w', fill_count(r, f->size - 1u));
		return;
	case FIELD_ADDR:
		fill_addr(r, (struct peer_addr *)at, true);
		return;
	case FIELD_ADDRS:
		((struct peer_addrs *)at)->n = (uint8_t)fill_count(r, MEMBER_ADDRS_MAX);
		for (int i = 0; i < ((struct peer_addrs *)at)->n; i++)
			fill_addr(r, &((struct peer_addrs *)at)->at[i], false);
		return;
	case FIELD_INNER:
		fill(r, f->inner, at);
		return;
	case FIELD_UPDATES:
		fill_updates(r, (struct gossip_message *)base);
		return;
	}
}

static inline void fill(struct rng *r, const struct wire__layout *l, void *base)
{
	for (int i = 0; i < l->n; i++)
		fill_field(r, &l->field[i], base);
}

/* Every message in turn, and then false: an empty one of its kind, where its fields are, and what
 * they are. */
struct each {
	int next;
	struct wire__head head;
	const struct wire__layout *layout;
	void *base;
};

static inline bool each_message(struct each *e, struct wire_message *m)
{
	while (e->next < WIRE_EXCHANGE && !wire__messages[e->next].name)
		e->next++;
	int kind = e->next++;
	if (kind >= WIRE_EXCHANGE + EXCHANGE_KINDS + 1)
		return false;
	memset(m, 0, sizeof *m);
	m->kind = (uint8_t)(kind < WIRE_EXCHANGE ? kind : WIRE_EXCHANGE);
	e->layout = &wire__messages[m->kind];
	e->head = (struct wire__head){1, {m->kind}, 0};
	e->base = m;
	if (kind < WIRE_HELLO) {
		m->gossip.kind = m->kind;
		e->base = kind == MESSAGE_SKETCH ? (void *)&m->gossip.sketch : &m->gossip;
	} else if (kind == WIRE_EXCHANGE + EXCHANGE_KINDS) {
		m->kind = e->head.kind[0] = WIRE_HELLO;
		m->hello.identified = true;
		e->layout = &wire__hello_full;
	} else if (kind >= WIRE_EXCHANGE) {
		m->exchange.kind = (uint8_t)(kind - WIRE_EXCHANGE);
		e->head = (struct wire__head){2, {m->kind, m->exchange.kind}, 0};
		e->layout = &wire__exchanges[m->exchange.kind];
		e->base = &m->exchange;
	}
	return true;
}

#endif
