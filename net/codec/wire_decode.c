/* SPDX-License-Identifier: MIT */
/* Bytes become messages, or an error that says which field of what is wrong. wire_scan.c has looked
 * at the whole before; here each value must be of its type, in its range and in its place. The
 * readers keep the first error, so a decoder reads like the drawing in wire.h.
 *
 * What is read lands in the caller's struct, of which nothing is to be used after an error. The
 * messages of an exchange have a file of their own, wire_exchange.c. */
#include "net/codec/wire.h"
#include "net/codec/wire_scan.h"

#include <assert.h>
#include <string.h>

#define ANY UINT64_MAX
#define MORE WIRE_VALUES_MAX /* elements: what a later version adds is skipped */

static void get_id(struct wire_in *in, const char *name, struct peer_id *id)
{
	wire__bytes(in, name, id->bytes, sizeof id->bytes);
}

static void get_addr(struct wire_in *in, struct peer_addr *a)
{
	uint8_t b[18];
	size_t n = wire__blob(in, "address", b, sizeof b);
	*a = (struct peer_addr){0};
	if (n == 0)
		return;
	if (n != 6 && n != 18) {
		wire__wrong(in, ERR_FORMAT, "address: %zu bytes, not 0, 6 or 18", n);
		return;
	}
	a->family = n == 6 ? 4 : 6;
	memcpy(a->ip, b, n - 2);
	a->port = (uint16_t)(b[n - 2] << 8 | b[n - 1]);
	if (a->port == 0)
		wire__wrong(in, ERR_FORMAT, "address: port 0");
}

static void get_addrs(struct wire_in *in, struct peer_addrs *a)
{
	uint32_t n = wire__array(in, "addresses", 0, MEMBER_ADDRS_MAX);
	for (a->n = 0; a->n < n && in->code == 0; a->n++) {
		get_addr(in, &a->at[a->n]);
		if (a->at[a->n].family == 0)
			wire__wrong(in, ERR_FORMAT, "address: 0 bytes, not 6 or 18");
	}
}

static uint64_t get_generation(struct wire_in *in)
{
	uint64_t g = wire__uint(in, "generation", ANY);
	if (g == 0)
		wire__wrong(in, ERR_FORMAT, "generation: 0, at least 1");
	return g;
}

static void get_protocol(struct wire_in *in, uint16_t *min, uint16_t *max)
{
	*min = (uint16_t)wire__uint(in, "protocol_min", UINT16_MAX);
	*max = (uint16_t)wire__uint(in, "protocol_max", UINT16_MAX);
	if (*min > *max)
		wire__wrong(in, ERR_FORMAT, "protocol: %u to %u", *min, *max);
}

static void get_record(struct wire_in *in, struct member_record *r)
{
	get_id(in, "id", &r->id);
	r->generation = get_generation(in);
	r->nonce = wire__uint(in, "nonce", ANY);
	r->incarnation = wire__uint(in, "incarnation", ANY);
	r->version = wire__uint(in, "version", ANY);
	uint64_t flags = wire__uint(in, "flags", 3);
	r->left = flags & 1;
	r->dialable = flags & 2;
	get_addrs(in, &r->addrs);
	get_protocol(in, &r->protocol_min, &r->protocol_max);
	r->status.model = wire__uint(in, "model", ANY);
	r->status.step = wire__uint(in, "step", ANY);
	r->status.samples = wire__uint(in, "samples", ANY);
	r->status.loss = wire__float(in, "loss"); /* not finite: still what was signed */
}

static void get_accusation(struct wire_in *in, struct accusation *a)
{
	get_id(in, "about", &a->about);
	a->generation = get_generation(in);
	a->incarnation = wire__uint(in, "incarnation", ANY);
	get_id(in, "by", &a->by);
	a->dead = wire__bool(in, "dead");
}

static void get_update(struct wire_in *in, struct gossip_update *u)
{
	uint32_t n = wire__array(in, "update", 1, MORE), used;
	u->kind = (uint8_t)wire__uint(in, "update", UPDATE_ACCUSATION);
	used = u->kind == UPDATE_RECORD ? 15 : 7;
	if (n < used)
		wire__wrong(in, ERR_FORMAT, "update: %u elements, at least %u", n, used);
	if (in->code)
		return;
	if (u->kind == UPDATE_RECORD)
		get_record(in, &u->record);
	else
		get_accusation(in, &u->accusation);
	wire__bytes(in, "signature", u->signature, sizeof u->signature);
	wire__skip(in, n - used);
}

static void get_updates(struct wire_in *in, struct gossip_message *m)
{
	uint32_t n = wire__array(in, "updates", 0, GOSSIP_UPDATES_MAX);
	for (uint32_t i = 0; i < n && in->code == 0; i++)
		get_update(in, &m->update[m->n_updates++]);
}

static void get_sketch(struct wire_in *in, struct member_sketch *s)
{
	get_id(in, "id", &s->id);
	s->generation = get_generation(in);
	s->step = wire__uint(in, "step", ANY);
	s->length = (uint16_t)wire__blob(in, "bytes", s->bytes, sizeof s->bytes);
	wire__bytes(in, "signature", s->signature, sizeof s->signature);
}

static void get_gossip(struct wire_in *in, struct gossip_message *m)
{
	if (m->kind <= MESSAGE_PING_REQ)
		m->nonce = wire__uint(in, "nonce", ANY);
	if (m->kind == MESSAGE_PING || m->kind == MESSAGE_PING_REQ)
		get_id(in, "target", &m->target);
	if (m->kind == MESSAGE_PING_REQ)
		get_addr(in, &m->address);
	if (m->kind == MESSAGE_SYNC)
		m->want_reply = wire__bool(in, "want_reply");
	if (m->kind == MESSAGE_SKETCH)
		get_sketch(in, &m->sketch);
	else
		get_updates(in, m);
}

/* Returns how many elements it took, the kind included. */
static uint32_t get_hello(struct wire_in *in, uint32_t n, struct wire_hello *h)
{
	get_protocol(in, &h->protocol_min, &h->protocol_max);
	h->n_ciphers = (uint8_t)wire__blob(in, "ciphers", h->cipher, sizeof h->cipher);
	h->identified = n >= 9;
	if (!h->identified)
		return 4;
	get_id(in, "id", &h->id);
	wire__bytes(in, "signature", h->signature, sizeof h->signature);
	h->generation = get_generation(in);
	get_addrs(in, &h->addrs);
	h->dialable = wire__uint(in, "flags", ANY) & 1;
	return 9;
}

static void get_refusal(struct wire_in *in, struct wire_refusal *r)
{
	r->why = (uint16_t)wire__uint(in, "why", UINT16_MAX);
	wire__words(in, r->words, WIRE_WORDS_MAX);
}

static uint32_t get_bulk_open(struct wire_in *in, uint32_t n, struct wire_message *m)
{
	wire__bytes(in, "token", m->token, sizeof m->token);
	if (n < 3)
		return 2;
	m->bulk_exchange = wire__uint(in, "exchange", ANY);
	return 3;
}

/* Every kind: its name, and how many elements it has at least, the kind included. */
static const struct {
	uint8_t kind, fields;
	const char *name;
} kinds[] = {
        {MESSAGE_PING, 4, "ping"},
        {MESSAGE_ACK, 3, "ack"},
        {MESSAGE_NACK, 3, "nack"},
        {MESSAGE_PING_REQ, 5, "ping-req"},
        {MESSAGE_GOSSIP, 2, "gossip"},
        {MESSAGE_SYNC, 3, "sync"},
        {MESSAGE_SKETCH, 6, "sketch"},
        {WIRE_HELLO, 4, "hello"},
        {WIRE_REFUSE, 3, "refuse"},
        {WIRE_PING, 2, "session ping"},
        {WIRE_PONG, 2, "session pong"},
        {WIRE_BULK_OPEN, 2, "bulk-open"},
        {WIRE_BYE, 3, "bye"},
        {WIRE_EXCHANGE, 3, "exchange"},
};
#define KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static int find_kind(uint64_t kind)
{
	for (int i = 0; i < KINDS; i++)
		if (kinds[i].kind == kind)
			return i;
	return -1;
}

static void get_body(struct wire_in *in, uint32_t n, uint32_t used, struct wire_message *m)
{
	switch (m->kind) {
	case WIRE_HELLO:
		used = get_hello(in, n, &m->hello);
		break;
	case WIRE_REFUSE:
	case WIRE_BYE:
		get_refusal(in, &m->refusal);
		break;
	case WIRE_PING:
	case WIRE_PONG:
		m->nonce = wire__uint(in, "nonce", ANY);
		break;
	case WIRE_BULK_OPEN:
		used = get_bulk_open(in, n, m);
		break;
	case WIRE_EXCHANGE:
		used = wire__exchange(in, n, &m->exchange);
		break;
	default:
		m->gossip.kind = m->kind;
		get_gossip(in, &m->gossip);
	}
	if (in->code == 0)
		wire__skip(in, n - used);
}

int wire_decode(const uint8_t *bytes, size_t len, struct wire_message *out, struct err *e)
{
	struct wire_in in;
	memset(out, 0, sizeof *out);
	int rc = wire__begin(&in, bytes, len, e);
	if (rc)
		return rc;
	uint32_t n = wire__array(&in, "message", 1, MORE);
	uint64_t kind = wire__uint(&in, "kind", ANY);
	if (in.code)
		return in.code;
	int k = find_kind(kind);
	if (k < 0)
		return err_set(e, ERR_UNSUPPORTED, "message: kind %llu is not known here",
		        (unsigned long long)kind);
	in.where = kinds[k].name;
	if (n < kinds[k].fields) {
		wire__wrong(&in, ERR_FORMAT, "%u elements, at least %u", n, kinds[k].fields);
		return in.code;
	}
	out->kind = kinds[k].kind;
	get_body(&in, n, kinds[k].fields, out);
	assert(in.code || in.at == in.end);
	return in.code;
}
