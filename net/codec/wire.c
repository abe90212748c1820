/* SPDX-License-Identifier: MIT */
/* Messages become bytes. msgpack-c packs into the caller's buffer through a callback: it chooses
 * the shortest form of every number and length, and takes no memory. The packer's own results are
 * not looked at one by one; the sink remembers that it was full, and that is the only failure.
 *
 * What is written is asserted to be in range: a message that we made wrongly is our own bug. The
 * layout is drawn in wire.h, and wire_decode.c reads it field by field in the same order. */
#include "net/codec/wire.h"

#include <assert.h>
#include <float.h>
#include <msgpack.h>
#include <string.h>

struct sink {
	uint8_t *out; /* borrowed */
	size_t cap, len;
	bool full;
};

static int sink_write(void *data, const char *bytes, size_t n)
{
	struct sink *s = data;
	if (n > s->cap - s->len) {
		s->full = true;
		return -1;
	}
	memcpy(s->out + s->len, bytes, n);
	s->len += n;
	return 0;
}

static void put_array(msgpack_packer *p, size_t n)
{
	msgpack_pack_array(p, n);
}

static void put_uint(msgpack_packer *p, uint64_t n)
{
	msgpack_pack_uint64(p, n);
}

static void put_bool(msgpack_packer *p, bool b)
{
	if (b)
		msgpack_pack_true(p);
	else
		msgpack_pack_false(p);
}

static void put_bytes(msgpack_packer *p, const uint8_t *bytes, size_t n)
{
	msgpack_pack_bin(p, n);
	msgpack_pack_bin_body(p, bytes, n);
}

static void put_id(msgpack_packer *p, const struct peer_id *id)
{
	put_bytes(p, id->bytes, sizeof id->bytes);
}

static void put_addr(msgpack_packer *p, const struct peer_addr *a)
{
	uint8_t b[18];
	size_t n = a->family == 4 ? 4 : a->family == 6 ? 16 : 0;
	assert(a->family == 0 || (n > 0 && a->port != 0));
	memcpy(b, a->ip, n);
	b[n] = (uint8_t)(a->port >> 8);
	b[n + 1] = (uint8_t)a->port;
	put_bytes(p, b, n ? n + 2 : 0);
}

static void put_addrs(msgpack_packer *p, const struct peer_addrs *a)
{
	assert(a->n <= MEMBER_ADDRS_MAX);
	put_array(p, a->n);
	for (int i = 0; i < a->n; i++) {
		assert(a->at[i].family != 0);
		put_addr(p, &a->at[i]);
	}
}

static void put_record(msgpack_packer *p, const struct member_record *r, const uint8_t *signature)
{
	put_array(p, 15);
	put_uint(p, UPDATE_RECORD);
	put_id(p, &r->id);
	put_uint(p, r->generation);
	put_uint(p, r->nonce);
	put_uint(p, r->incarnation);
	put_uint(p, r->version);
	put_uint(p, (r->left ? 1u : 0) | (r->dialable ? 2u : 0));
	put_addrs(p, &r->addrs);
	put_uint(p, r->protocol_min);
	put_uint(p, r->protocol_max);
	put_uint(p, r->status.model);
	put_uint(p, r->status.step);
	put_uint(p, r->status.samples);
	msgpack_pack_float(p, r->status.loss);
	put_bytes(p, signature, 64);
}

static void put_accusation(msgpack_packer *p, const struct accusation *a, const uint8_t *signature)
{
	put_array(p, 7);
	put_uint(p, UPDATE_ACCUSATION);
	put_id(p, &a->about);
	put_uint(p, a->generation);
	put_uint(p, a->incarnation);
	put_id(p, &a->by);
	put_bool(p, a->dead);
	put_bytes(p, signature, 64);
}

static void put_updates(msgpack_packer *p, const struct gossip_message *m)
{
	assert(m->n_updates <= GOSSIP_UPDATES_MAX);
	put_array(p, m->n_updates);
	for (int i = 0; i < m->n_updates; i++) {
		const struct gossip_update *u = &m->update[i];
		if (u->kind == UPDATE_RECORD)
			put_record(p, &u->record, u->signature);
		else
			put_accusation(p, &u->accusation, u->signature);
	}
}

static void put_sketch(msgpack_packer *p, const struct member_sketch *s)
{
	assert(s->length <= GOSSIP_SKETCH_BYTES);
	put_id(p, &s->id);
	put_uint(p, s->generation);
	put_uint(p, s->step);
	put_bytes(p, s->bytes, s->length);
	put_bytes(p, s->signature, 64);
}

static void put_gossip(msgpack_packer *p, const struct gossip_message *m)
{
	static const uint8_t fields[] = {4, 3, 3, 5, 2, 3, 6};
	assert(m->kind <= MESSAGE_SKETCH);
	put_array(p, fields[m->kind]);
	put_uint(p, m->kind);
	if (m->kind <= MESSAGE_PING_REQ)
		put_uint(p, m->nonce);
	if (m->kind == MESSAGE_PING || m->kind == MESSAGE_PING_REQ)
		put_id(p, &m->target);
	if (m->kind == MESSAGE_PING_REQ)
		put_addr(p, &m->address);
	if (m->kind == MESSAGE_SYNC)
		put_bool(p, m->want_reply);
	if (m->kind == MESSAGE_SKETCH) {
		assert(m->n_updates == 0);
		put_sketch(p, &m->sketch);
	} else {
		put_updates(p, m);
	}
}

static void put_hello(msgpack_packer *p, const struct wire_hello *h)
{
	assert(h->n_ciphers <= AEAD_OFFER_MAX && h->protocol_min <= h->protocol_max);
	put_array(p, h->identified ? 9 : 4);
	put_uint(p, WIRE_HELLO);
	put_uint(p, h->protocol_min);
	put_uint(p, h->protocol_max);
	put_bytes(p, h->cipher, h->n_ciphers);
	if (!h->identified)
		return;
	put_id(p, &h->id);
	put_bytes(p, h->signature, sizeof h->signature);
	put_uint(p, h->generation);
	put_addrs(p, &h->addrs);
	put_uint(p, h->dialable ? 1 : 0);
}

static void put_words(msgpack_packer *p, const char *words, size_t max)
{
	size_t n = strnlen(words, max);
	msgpack_pack_str(p, n);
	msgpack_pack_str_body(p, words, n);
}

static void put_refusal(msgpack_packer *p, uint8_t kind, const struct wire_refusal *r)
{
	put_array(p, 3);
	put_uint(p, kind);
	put_uint(p, r->why);
	put_words(p, r->words, WIRE_WORDS_MAX);
}

/* ---- exchanges */

static void put_manifest(msgpack_packer *p, const struct manifest *m)
{
	put_array(p, 8);
	put_uint(p, m->run);
	put_uint(p, m->model);
	put_uint(p, m->init);
	put_uint(p, m->count);
	put_uint(p, m->total);
	put_uint(p, m->optimizer);
	put_uint(p, m->mode);
	put_uint(p, m->formats);
}

static void put_floats(msgpack_packer *p, const float *x, size_t n, float most)
{
	put_array(p, n);
	for (size_t i = 0; i < n; i++) {
		assert(x[i] >= 0 && x[i] <= most);
		msgpack_pack_float(p, x[i]);
	}
}

static void put_terms(msgpack_packer *p, const struct exchange_terms *t)
{
	assert(t->beta > 0 && t->beta <= 1 && t->sketch_length <= GOSSIP_SKETCH_BYTES);
	put_manifest(p, &t->manifest);
	put_uint(p, t->step);
	put_uint(p, t->samples);
	put_uint(p, t->clock);
	put_uint(p, t->mode);
	put_uint(p, t->format);
	put_bool(p, t->final);
	msgpack_pack_float(p, t->beta);
	put_bytes(p, t->sketch, t->sketch_length);
}

static void put_gift(msgpack_packer *p, const struct exchange_message *m)
{
	assert(m->gift.vectors >= 2 && m->gift.vectors <= 3);
	assert(m->gift.n <= EXCHANGE_GROUPS_MAX);
	put_manifest(p, &m->gift.manifest);
	put_uint(p, m->gift.snapshot);
	put_uint(p, m->gift.offset);
	put_uint(p, m->gift.step);
	put_uint(p, m->gift.samples);
	put_uint(p, m->gift.clock);
	put_uint(p, m->gift.optim_steps);
	put_uint(p, m->gift.optimizer);
	put_uint(p, m->gift.vectors);
	put_floats(p, m->gift.radius, m->gift.n + 1u, FLT_MAX);
}

static void put_exchange(msgpack_packer *p, const struct exchange_message *m)
{
	static const uint8_t fields[EXCHANGE_KINDS] = {12, 12, 5, 3, 4, 3, 3, 5, 4, 6, 13};
	const bool refusal = m->kind == EXCHANGE_BUSY || m->kind == EXCHANGE_ABORT;
	const bool unlike = refusal && m->busy.why == EXCHANGE_UNLIKE;
	assert(m->kind < EXCHANGE_KINDS && m->exchange != 0);
	put_array(p, fields[m->kind] + unlike);
	put_uint(p, WIRE_EXCHANGE);
	put_uint(p, m->kind);
	put_uint(p, m->exchange);
	switch ((enum exchange_message_kind)m->kind) {
	case EXCHANGE_OFFER:
	case EXCHANGE_ACCEPT:
		put_terms(p, &m->terms);
		return;
	case EXCHANGE_BUSY:
	case EXCHANGE_ABORT:
		assert(m->busy.why < EXCHANGE_WHYS);
		put_uint(p, m->busy.why);
		put_words(p, m->busy.words, EXCHANGE_WORDS_MAX);
		if (unlike)
			put_manifest(p, &m->busy.manifest);
		return;
	case EXCHANGE_END:
		assert(m->end.n <= EXCHANGE_GROUPS_MAX);
		put_floats(p, m->end.factor, m->end.n, 1);
		return;
	case EXCHANGE_SETTLE:
		assert(m->settlement <= SETTLE_APPLIED);
		put_uint(p, m->settlement);
		return;
	case EXCHANGE_FETCH:
		put_manifest(p, &m->fetch.manifest);
		put_uint(p, m->fetch.snapshot);
		put_uint(p, m->fetch.offset);
		return;
	case EXCHANGE_GIFT:
		put_gift(p, m);
		return;
	case EXCHANGE_OPEN:
	case EXCHANGE_COMMIT:
	case EXCHANGE_ACK:
	case EXCHANGE_KINDS:
		return;
	}
}

static void put_message(msgpack_packer *p, const struct wire_message *m)
{
	switch (m->kind) {
	case WIRE_HELLO:
		put_hello(p, &m->hello);
		return;
	case WIRE_REFUSE:
	case WIRE_BYE:
		put_refusal(p, m->kind, &m->refusal);
		return;
	case WIRE_PING:
	case WIRE_PONG:
		put_array(p, 2);
		put_uint(p, m->kind);
		put_uint(p, m->nonce);
		return;
	case WIRE_BULK_OPEN:
		put_array(p, m->bulk_exchange ? 3 : 2);
		put_uint(p, m->kind);
		put_bytes(p, m->token, sizeof m->token);
		if (m->bulk_exchange)
			put_uint(p, m->bulk_exchange);
		return;
	case WIRE_EXCHANGE:
		put_exchange(p, &m->exchange);
		return;
	default:
		assert(m->kind == m->gossip.kind);
		put_gossip(p, &m->gossip);
	}
}

int wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len)
{
	struct sink s = {.out = out, .cap = cap};
	msgpack_packer p;
	msgpack_packer_init(&p, &s, sink_write);
	put_message(&p, m);
	*len = s.full ? 0 : s.len;
	return s.full ? ERR_LIMIT : 0;
}

int wire_encode_gossip(const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len)
{
	struct sink s = {.out = out, .cap = cap};
	msgpack_packer p;
	msgpack_packer_init(&p, &s, sink_write);
	put_gossip(&p, m);
	*len = s.full ? 0 : s.len;
	return s.full ? ERR_LIMIT : 0;
}
