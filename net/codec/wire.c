/* SPDX-License-Identifier: MIT */
/* Messages become bytes, as the table says (wire_table.h). msgpack-c packs into the caller's buffer
 * through a callback: it chooses the shortest form of every number and length, and takes no memory.
 * The packer's own results are not looked at one by one; the sink remembers that it was full, and
 * that is the only failure.
 *
 * What is written is asserted to be in range: a message that we made wrongly is our own bug. An
 * update goes out in the bytes that its signer wrote. */
#include "net/codec/wire.h"

#include "net/codec/wire_table.h"

#include <assert.h>
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

static void put_bytes(msgpack_packer *p, const uint8_t *bytes, size_t n)
{
	msgpack_pack_bin(p, n);
	msgpack_pack_bin_body(p, bytes, n);
}

static void put_text(msgpack_packer *p, const char *text, size_t max)
{
	size_t n = strnlen(text, max);
	msgpack_pack_str(p, n);
	msgpack_pack_str_body(p, text, n);
}

static void put_bool(msgpack_packer *p, bool b)
{
	if (b)
		msgpack_pack_true(p);
	else
		msgpack_pack_false(p);
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
	msgpack_pack_array(p, a->n);
	for (int i = 0; i < a->n; i++) {
		assert(a->at[i].family != 0);
		put_addr(p, &a->at[i]);
	}
}

static void put_floats(msgpack_packer *p, const struct wire__field *f, const uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float x;
		memcpy(&x, at + i * sizeof x, sizeof x);
		assert(f->high == 0 || (x >= f->low && x <= f->high));
		msgpack_pack_float(p, x);
	}
}

static void put_updates(msgpack_packer *p, const struct gossip_message *m)
{
	assert(m->n_updates <= GOSSIP_UPDATES_MAX);
	msgpack_pack_array(p, m->n_updates);
	for (int i = 0; i < m->n_updates; i++) {
		const struct signed_bytes *raw = &m->update[i].raw;
		assert(raw->length > 0 && raw->length <= sizeof raw->bytes);
		p->callback(p->data, (const char *)raw->bytes, raw->length);
	}
}

static void put_inner(msgpack_packer *p, const struct wire__layout *l, const void *base);

static void put_field(msgpack_packer *p, const struct wire__field *f, const void *base)
{
	const uint8_t *at = (const uint8_t *)base + f->at;
	uint64_t count =
	        f->count_size ? wire__load((const uint8_t *)base + f->count_at, f->count_size) : 0;
	uint64_t number = 0;
	switch ((enum wire__type)f->type) {
	case FIELD_UINT:
		number = wire__load(at, f->size);
		assert(number >= f->min && number <= f->max);
		assert(!f->ordered ||
		        number >= wire__load((const uint8_t *)base + f[-1].at, f[-1].size));
		msgpack_pack_uint64(p, number);
		return;
	case FIELD_FLAGS:
		for (int i = 0; i < f->size; i++)
			number |= (uint64_t)(at[i] != 0) << i;
		msgpack_pack_uint64(p, number);
		return;
	case FIELD_BOOL:
		put_bool(p, *at);
		return;
	case FIELD_FLOAT:
		put_floats(p, f, at, 1);
		return;
	case FIELD_FLOATS:
		count += f->extra;
		assert(count <= f->size / sizeof(float));
		msgpack_pack_array(p, count);
		put_floats(p, f, at, count);
		return;
	case FIELD_BYTES:
		put_bytes(p, at, f->size);
		return;
	case FIELD_BLOB:
		assert(count <= f->size);
		put_bytes(p, at, count);
		return;
	case FIELD_TEXT:
		put_text(p, (const char *)at, f->size - 1u);
		return;
	case FIELD_ADDR:
		put_addr(p, (const struct peer_addr *)at);
		return;
	case FIELD_ADDRS:
		put_addrs(p, (const struct peer_addrs *)at);
		return;
	case FIELD_INNER:
		put_inner(p, f->inner, at);
		return;
	case FIELD_UPDATES:
		put_updates(p, base);
		return;
	}
}

static bool is_zero(const struct wire__field *f, const uint8_t *base)
{
	if (f->count_size)
		return wire__load(base + f->count_at, f->count_size) == 0;
	for (size_t i = 0; i < f->size; i++)
		if (base[f->at + i])
			return false;
	return true;
}

/* How many fields to send: none of those that are zero at the end, if they are optional. */
static uint32_t count_fields(const struct wire__layout *l, const void *base)
{
	uint32_t n = l->n;
	while (n > l->least && is_zero(&l->field[n - 1], base))
		n--;
	return n;
}

static void put_fields(
        msgpack_packer *p, const struct wire__layout *l, uint32_t n, const void *base)
{
	for (uint32_t i = 0; i < n; i++)
		put_field(p, &l->field[i], base);
}

static void put_inner(msgpack_packer *p, const struct wire__layout *l, const void *base)
{
	uint32_t n = count_fields(l, base);
	msgpack_pack_array(p, n);
	put_fields(p, l, n, base);
}

size_t wire__put(uint8_t *out, size_t cap, const struct wire__head *h, const struct wire__layout *l,
        const void *base)
{
	struct sink s = {.out = out, .cap = cap};
	msgpack_packer p;
	uint32_t n = count_fields(l, base);
	msgpack_packer_init(&p, &s, sink_write);
	msgpack_pack_array(&p, n + h->n + h->after);
	for (int i = 0; i < h->n; i++)
		msgpack_pack_uint64(&p, h->kind[i]);
	put_fields(&p, l, n, base);
	return s.full ? 0 : s.len;
}

static int encode(struct wire__head h, const struct wire__layout *l, const void *base, uint8_t *out,
        size_t cap, size_t *len)
{
	*len = wire__put(out, cap, &h, l, base);
	return *len ? 0 : ERR_LIMIT;
}

int wire_encode_gossip(const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len)
{
	assert(m->kind <= MESSAGE_SKETCH);
	const void *base = m->kind == MESSAGE_SKETCH ? (const void *)&m->sketch : m;
	struct wire__head h = {1, {m->kind}, 0};
	return encode(h, &wire__messages[m->kind], base, out, cap, len);
}

int wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len)
{
	const struct exchange_message *x = &m->exchange;
	struct wire__head h = {1, {m->kind}, 0};
	if (m->kind < WIRE_HELLO) {
		assert(m->kind == m->gossip.kind);
		return wire_encode_gossip(&m->gossip, out, cap, len);
	}
	assert(m->kind < WIRE__MESSAGES);
	if (m->kind == WIRE_EXCHANGE) {
		assert(x->kind < EXCHANGE_KINDS);
		h = (struct wire__head){2, {m->kind, x->kind}, 0};
		return encode(h, &wire__exchanges[x->kind], x, out, cap, len);
	}
	const struct wire__layout *l = &wire__messages[m->kind];
	if (m->kind == WIRE_HELLO && m->hello.identified)
		l = &wire__hello_full;
	return encode(h, l, m, out, cap, len);
}
