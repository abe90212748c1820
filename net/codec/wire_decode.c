/* SPDX-License-Identifier: MIT */
/* Bytes become messages, or an error that says which field of what is wrong. wire_scan.c has looked
 * at the whole before; here each value must be of its type, in its range and in its place, as the
 * table says (wire_table.h). The readers keep the first error.
 *
 * What is read lands in the caller's struct, of which nothing is to be used after an error. What an
 * older peer does not send stays zero; what a newer one sends besides is skipped, but for updates:
 * their bytes are kept as they came, since they are signed and travel on. */
#include "net/codec/wire.h"
#include "net/codec/wire_scan.h"
#include "net/codec/wire_table.h"

#include <assert.h>
#include <string.h>

#define MORE WIRE_VALUES_MAX /* elements: what a later version adds is skipped */

static void get_uint(struct wire_in *in, const struct wire__field *f, uint8_t *base)
{
	uint64_t number = wire__uint(in, f->name, f->unknown ? UINT64_MAX : f->max);
	uint64_t min = f->ordered ? wire__load(base + f[-1].at, f[-1].size) : f->min;
	if (number > f->max)
		number = f->unknown;
	if (number < min)
		wire__wrong(in, ERR_FORMAT, "%s: %llu is under %llu", f->name,
		        (unsigned long long)number, (unsigned long long)min);
	wire__store(base + f->at, f->size, number);
}

static void get_floats(struct wire_in *in, const struct wire__field *f, uint8_t *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		float x = wire__float(in, f->name);
		if (f->high != 0 && !(x >= f->low && x <= f->high))
			wire__wrong(in, ERR_FORMAT, "%s: %g is not from %g to %g", f->name,
			        (double)x, (double)f->low, (double)f->high);
		memcpy(at + i * sizeof x, &x, sizeof x);
	}
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

static void get_addrs(struct wire_in *in, const char *name, struct peer_addrs *a)
{
	uint32_t n = wire__array(in, name, 0, MEMBER_ADDRS_MAX);
	for (a->n = 0; a->n < n && in->code == 0; a->n++) {
		get_addr(in, &a->at[a->n]);
		if (a->at[a->n].family == 0)
			wire__wrong(in, ERR_FORMAT, "address: 0 bytes, not 6 or 18");
	}
}

static void get_update(struct wire_in *in, struct gossip_update *u)
{
	const uint8_t *start = in->at;
	uint8_t signature[64];
	uint32_t n = wire__array(in, "update", 1, MORE);
	u->kind = (uint8_t)wire__uint(in, "update", UPDATE_ACCUSATION);
	wire__get(in, &wire__updates[u->kind], n, 2,
	        u->kind == UPDATE_RECORD ? (void *)&u->record : &u->accusation);
	wire__bytes(in, "signature", signature, sizeof signature);
	size_t len = (size_t)(in->at - start);
	if (len > sizeof u->raw.bytes)
		wire__wrong(
		        in, ERR_FORMAT, "update: %zu bytes, at most %zu", len, sizeof u->raw.bytes);
	if (in->code)
		return;
	u->raw.length = (uint16_t)len;
	memcpy(u->raw.bytes, start, len);
}

static void get_updates(struct wire_in *in, struct gossip_message *m)
{
	uint32_t n = wire__array(in, "updates", 0, GOSSIP_UPDATES_MAX);
	for (uint32_t i = 0; i < n && in->code == 0; i++)
		get_update(in, &m->update[m->n_updates++]);
}

static void get_field(struct wire_in *in, const struct wire__field *f, uint8_t *base)
{
	uint8_t *at = base + f->at;
	uint64_t flags;
	uint32_t n;
	switch ((enum wire__type)f->type) {
	case FIELD_UINT:
		get_uint(in, f, base);
		return;
	case FIELD_FLAGS:
		flags = wire__uint(in, f->name, UINT64_MAX);
		for (int i = 0; i < f->size; i++)
			at[i] = flags >> i & 1;
		return;
	case FIELD_BOOL:
		*at = wire__bool(in, f->name);
		return;
	case FIELD_FLOAT:
		get_floats(in, f, at, 1);
		return;
	case FIELD_FLOATS:
		n = wire__array(in, f->name, f->extra, (uint32_t)(f->size / sizeof(float)));
		get_floats(in, f, at, n);
		wire__store(base + f->count_at, f->count_size, n ? n - f->extra : 0);
		return;
	case FIELD_BYTES:
		wire__bytes(in, f->name, at, f->size);
		return;
	case FIELD_BLOB:
		wire__store(
		        base + f->count_at, f->count_size, wire__blob(in, f->name, at, f->size));
		return;
	case FIELD_TEXT:
		wire__text(in, f->name, (char *)at, f->size - 1u);
		return;
	case FIELD_ADDR:
		get_addr(in, (struct peer_addr *)at);
		return;
	case FIELD_ADDRS:
		get_addrs(in, f->name, (struct peer_addrs *)at);
		return;
	case FIELD_INNER:
		wire__get(in, f->inner, wire__array(in, f->name, 0, MORE), 0, at);
		return;
	case FIELD_UPDATES:
		get_updates(in, (struct gossip_message *)base);
		return;
	}
}

void wire__get(
        struct wire_in *in, const struct wire__layout *l, uint32_t n, uint32_t others, void *base)
{
	const char *outer = in->where;
	if (in->code)
		return;
	in->where = l->name;
	if (n < l->least + others) {
		wire__wrong(in, ERR_FORMAT, "%u elements, at least %u", n, l->least + others);
		return;
	}
	n -= others;
	for (uint32_t i = 0; i < n && i < l->n && in->code == 0; i++)
		get_field(in, &l->field[i], base);
	wire__skip(in, n > l->n ? n - l->n : 0);
	in->where = in->code ? in->where : outer;
}

static void get_exchange(struct wire_in *in, uint32_t n, struct exchange_message *m)
{
	uint64_t kind = wire__uint(in, "kind", UINT64_MAX);
	if (kind >= EXCHANGE_KINDS) {
		wire__wrong(in, ERR_UNSUPPORTED, "kind %llu is not known here",
		        (unsigned long long)kind);
		return;
	}
	m->kind = (uint8_t)kind;
	wire__get(in, &wire__exchanges[kind], n, 2, m);
}

static void get_body(struct wire_in *in, uint32_t n, struct wire_message *m)
{
	const struct wire__layout *l = &wire__messages[m->kind];
	void *base = m;
	if (m->kind == WIRE_EXCHANGE) {
		get_exchange(in, n, &m->exchange);
		return;
	}
	if (m->kind == WIRE_HELLO && n > wire__hello_full.least) {
		m->hello.identified = true;
		l = &wire__hello_full;
	} else if (m->kind < WIRE_HELLO) {
		m->gossip.kind = m->kind;
		base = m->kind == MESSAGE_SKETCH ? (void *)&m->gossip.sketch : &m->gossip;
	}
	wire__get(in, l, n, 1, base);
}

int wire_decode(const uint8_t *bytes, size_t len, struct wire_message *out, struct err *e)
{
	struct wire_in in;
	memset(out, 0, sizeof *out);
	int rc = wire__begin(&in, bytes, len, e);
	if (rc)
		return rc;
	uint32_t n = wire__array(&in, "message", 1, MORE);
	uint64_t kind = wire__uint(&in, "kind", UINT64_MAX);
	if (in.code)
		return in.code;
	if (kind >= WIRE__MESSAGES || !wire__messages[kind].name)
		return err_set(e, ERR_UNSUPPORTED, "message: kind %llu is not known here",
		        (unsigned long long)kind);
	in.where = wire__messages[kind].name;
	out->kind = (uint8_t)kind;
	get_body(&in, n, out);
	assert(in.code || in.at == in.end);
	return in.code;
}
