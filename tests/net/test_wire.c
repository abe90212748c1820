/* SPDX-License-Identifier: MIT */
/* Messages to bytes and back, the bound on their size that gossip counts with, and bytes that are
 * no messages. */
#include "agent/base/rng.h"
#include "net/codec/datagram.h"
#include "net/codec/frame.h"
#include "net/codec/wire.h"
#include "tests/support.h"

#include <math.h>

#define SEALING (DATAGRAM_OVERHEAD > FRAME_OVERHEAD_MAX ? DATAGRAM_OVERHEAD : FRAME_OVERHEAD_MAX)

/* ---- random messages */

static uint64_t any_u64(struct rng *r)
{
	return rng_u64(r) >> rng_below(r, 64); /* all lengths alike */
}

static void any_bytes(struct rng *r, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)rng_u64(r);
}

static struct peer_addr any_addr(struct rng *r)
{
	struct peer_addr a = {0};
	static const uint8_t families[] = {0, 4, 6};
	a.family = families[rng_below(r, 3)];
	any_bytes(r, a.ip, a.family == 4 ? 4 : a.family == 6 ? 16 : 0);
	if (a.family)
		a.port = (uint16_t)(1 + rng_below(r, 65535));
	return a;
}

static void any_record(struct rng *r, struct member_record *m)
{
	any_bytes(r, m->id.bytes, 32);
	m->generation = any_u64(r) | 1;
	m->nonce = any_u64(r);
	m->incarnation = any_u64(r);
	m->version = any_u64(r);
	m->left = rng_below(r, 2);
	m->dialable = rng_below(r, 2);
	m->addrs.n = (uint8_t)rng_below(r, MEMBER_ADDRS_MAX + 1);
	for (int i = 0; i < m->addrs.n; i++)
		do
			m->addrs.at[i] = any_addr(r);
		while (m->addrs.at[i].family == 0);
	m->protocol_max = (uint16_t)any_u64(r);
	m->protocol_min = (uint16_t)rng_below(r, m->protocol_max + 1u);
	m->status.model = any_u64(r);
	m->status.step = any_u64(r);
	m->status.samples = any_u64(r);
	m->status.loss = (float)rng_normal(r);
}

static void any_gossip(struct rng *r, struct gossip_message *m)
{
	memset(m, 0, sizeof *m);
	m->kind = (uint8_t)rng_below(r, MESSAGE_SKETCH + 1);
	if (m->kind <= MESSAGE_PING_REQ)
		m->nonce = any_u64(r);
	if (m->kind == MESSAGE_PING || m->kind == MESSAGE_PING_REQ)
		any_bytes(r, m->target.bytes, 32);
	if (m->kind == MESSAGE_PING_REQ)
		m->address = any_addr(r);
	if (m->kind == MESSAGE_SYNC)
		m->want_reply = rng_below(r, 2);
	if (m->kind == MESSAGE_SKETCH) {
		any_bytes(r, m->sketch.id.bytes, 32);
		m->sketch.generation = any_u64(r) | 1;
		m->sketch.step = any_u64(r);
		m->sketch.length = (uint16_t)rng_below(r, GOSSIP_SKETCH_BYTES + 1);
		any_bytes(r, m->sketch.bytes, m->sketch.length);
		any_bytes(r, m->sketch.signature, 64);
		return;
	}
	m->n_updates = (uint8_t)rng_below(r, GOSSIP_UPDATES_MAX + 1);
	for (int i = 0; i < m->n_updates; i++) {
		struct gossip_update *u = &m->update[i];
		u->kind = (uint8_t)rng_below(r, 2);
		any_bytes(r, u->signature, 64);
		if (u->kind == UPDATE_RECORD) {
			any_record(r, &u->record);
			continue;
		}
		any_bytes(r, u->accusation.about.bytes, 32);
		any_bytes(r, u->accusation.by.bytes, 32);
		u->accusation.generation = any_u64(r) | 1;
		u->accusation.incarnation = any_u64(r);
		u->accusation.dead = rng_below(r, 2);
	}
}

/* ---- comparing, field by field */

static void same_addr(const struct peer_addr *a, const struct peer_addr *b)
{
	assert_int_equal(a->family, b->family);
	assert_memory_equal(a->ip, b->ip, 16);
	assert_int_equal(a->port, b->port);
}

static void same_addrs(const struct peer_addrs *a, const struct peer_addrs *b)
{
	assert_int_equal(a->n, b->n);
	for (int i = 0; i < MEMBER_ADDRS_MAX; i++)
		same_addr(&a->at[i], &b->at[i]);
}

static void same_record(const struct member_record *a, const struct member_record *b)
{
	assert_memory_equal(&a->id, &b->id, 32);
	assert_true(a->generation == b->generation && a->nonce == b->nonce);
	assert_true(a->incarnation == b->incarnation && a->version == b->version);
	assert_true(a->left == b->left && a->dialable == b->dialable);
	same_addrs(&a->addrs, &b->addrs);
	assert_int_equal(a->protocol_min, b->protocol_min);
	assert_int_equal(a->protocol_max, b->protocol_max);
	assert_true(a->status.model == b->status.model && a->status.step == b->status.step);
	assert_true(a->status.samples == b->status.samples);
	assert_memory_equal(&a->status.loss, &b->status.loss, 4);
}

static void same_gossip(const struct gossip_message *a, const struct gossip_message *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_true(a->nonce == b->nonce && a->want_reply == b->want_reply);
	assert_memory_equal(&a->target, &b->target, 32);
	same_addr(&a->address, &b->address);
	assert_int_equal(a->n_updates, b->n_updates);
	for (int i = 0; i < a->n_updates; i++) {
		const struct gossip_update *u = &a->update[i], *v = &b->update[i];
		assert_int_equal(u->kind, v->kind);
		assert_memory_equal(u->signature, v->signature, 64);
		assert_false(v->ours);
		if (u->kind == UPDATE_RECORD) {
			same_record(&u->record, &v->record);
			continue;
		}
		assert_memory_equal(&u->accusation.about, &v->accusation.about, 32);
		assert_memory_equal(&u->accusation.by, &v->accusation.by, 32);
		assert_true(u->accusation.generation == v->accusation.generation);
		assert_true(u->accusation.incarnation == v->accusation.incarnation);
		assert_int_equal(u->accusation.dead, v->accusation.dead);
	}
	assert_memory_equal(&a->sketch.id, &b->sketch.id, 32);
	assert_true(a->sketch.generation == b->sketch.generation);
	assert_true(a->sketch.step == b->sketch.step && a->sketch.length == b->sketch.length);
	assert_memory_equal(a->sketch.bytes, b->sketch.bytes, GOSSIP_SKETCH_BYTES);
	assert_memory_equal(a->sketch.signature, b->sketch.signature, 64);
}

static void decodes(const uint8_t *bytes, size_t len, struct wire_message *m)
{
	struct err e = {0};
	if (wire_decode(bytes, len, m, &e) != 0)
		fail_msg("%s", e.msg);
}

/* Refused with that code, by an error that has these words in it. */
static void refused(const uint8_t *bytes, size_t len, int code, const char *words)
{
	struct wire_message m;
	struct err e = {0};
	uint8_t *exact = malloc(len + 1); /* for AddressSanitizer to watch its end */
	assert_non_null(exact);
	memcpy(exact, bytes, len);
	int rc = wire_decode(exact, len, &m, &e);
	free(exact);
	if (rc != code || !strstr(e.msg, words))
		fail_msg("%d \"%s\", not %d \"…%s…\"", rc, e.msg, code, words);
	assert_int_equal(e.code, code);
}

/* ---- tests */

static void test_gossip_comes_back(void **state)
{
	struct rng r;
	struct gossip_message m;
	struct wire_message back;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	(void)state;
	rng_seed(&r, 1, 0);
	for (int i = 0; i < 3000; i++) {
		any_gossip(&r, &m);
		assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
		assert_true(len + SEALING <= gossip_message_bytes(&m));
		decodes(out, len, &back);
		assert_int_equal(back.kind, m.kind);
		same_gossip(&m, &back.gossip);
	}
}

/* Of full messages as many as there may be, and all IPv6; else some. */
static void longest(struct peer_addrs *a, int news)
{
	bool full = news == GOSSIP_UPDATES_MAX;
	a->n = (uint8_t)(full ? MEMBER_ADDRS_MAX : news % (MEMBER_ADDRS_MAX + 1));
	for (int k = 0; k < MEMBER_ADDRS_MAX; k++)
		a->at[k].family = full || k % 2 == 0 ? 6 : 4;
}

/* No integer, address or array can be longer than in these. */
static void test_the_longest_fit_their_bound(void **state)
{
	struct gossip_message m;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	(void)state;
	for (int kind = 0; kind <= MESSAGE_SKETCH; kind++) {
		for (int news = 0; news <= GOSSIP_UPDATES_MAX; news++) {
			for (int records = 0; records <= news; records++) {
				memset(&m, 0xff, sizeof m);
				m.kind = (uint8_t)kind;
				m.want_reply = true;
				m.address.family = 6;
				m.n_updates = kind == MESSAGE_SKETCH ? 0 : (uint8_t)news;
				m.sketch.length = GOSSIP_SKETCH_BYTES;
				for (int i = 0; i < news; i++) {
					struct gossip_update *u = &m.update[i];
					u->kind = i < records ? UPDATE_RECORD : UPDATE_ACCUSATION;
					if (u->kind == UPDATE_RECORD) {
						u->record.left = u->record.dialable = true;
						longest(&u->record.addrs, news);
					} else {
						u->accusation.dead = true;
					}
				}
				assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
				assert_true(len + SEALING <= gossip_message_bytes(&m));
			}
		}
	}
}

static void roundtrip(const struct wire_message *m, struct wire_message *back)
{
	uint8_t out[WIRE_BYTES_MAX];
	size_t len, part;
	assert_int_equal(wire_encode(m, out, sizeof out, &len), 0);
	assert_true(len <= WIRE_HELLO_MAX);
	decodes(out, len, back);
	assert_int_equal(back->kind, m->kind);
	for (size_t cap = 0; cap < len; cap++)
		assert_int_equal(wire_encode(m, out, cap, &part), ERR_LIMIT);
	for (size_t cut = 0; cut < len; cut++)
		refused(out, cut, ERR_FORMAT, "");
	out[len] = 0;
	refused(out, len + 1, ERR_FORMAT, "more after its end");
}

static void test_session_messages_come_back(void **state)
{
	struct wire_message m = {.kind = WIRE_HELLO}, back;
	struct rng r;
	(void)state;
	rng_seed(&r, 2, 0);
	m.hello.protocol_min = 300;
	m.hello.protocol_max = 65535;
	m.hello.n_ciphers = AEAD_OFFER_MAX;
	any_bytes(&r, m.hello.cipher, AEAD_OFFER_MAX);
	roundtrip(&m, &back);
	assert_false(back.hello.identified);
	assert_int_equal(back.hello.protocol_min, 300);
	assert_int_equal(back.hello.protocol_max, 65535);
	assert_int_equal(back.hello.n_ciphers, AEAD_OFFER_MAX);
	assert_memory_equal(back.hello.cipher, m.hello.cipher, AEAD_OFFER_MAX);

	m.hello.identified = m.hello.dialable = true;
	any_bytes(&r, m.hello.id.bytes, 32);
	any_bytes(&r, m.hello.signature, 64);
	m.hello.generation = UINT64_MAX;
	m.hello.addrs = (struct peer_addrs){
	        4, {{6, {1, 2, [15] = 16}, 7946}, {4, {1, 2, 3, 4}, 1}, {6, {1}, 2}, {6, {2}, 3}}};
	roundtrip(&m, &back);
	assert_true(back.hello.identified && back.hello.dialable);
	assert_memory_equal(&back.hello.id, &m.hello.id, 32);
	assert_memory_equal(back.hello.signature, m.hello.signature, 64);
	assert_true(back.hello.generation == UINT64_MAX);
	same_addrs(&back.hello.addrs, &m.hello.addrs);

	m = (struct wire_message){.kind = WIRE_REFUSE, .refusal.why = WHY_PROTOCOL};
	memset(m.refusal.words, 'x', WIRE_WORDS_MAX);
	roundtrip(&m, &back);
	assert_int_equal(back.refusal.why, WHY_PROTOCOL);
	assert_string_equal(back.refusal.words, m.refusal.words);
	m = (struct wire_message){.kind = WIRE_BYE, .refusal = {60000, "until tomorrow"}};
	roundtrip(&m, &back);
	assert_int_equal(back.refusal.why, 60000);
	assert_string_equal(back.refusal.words, "until tomorrow");
	m = (struct wire_message){.kind = WIRE_PING, .nonce = 1ull << 40};
	roundtrip(&m, &back);
	assert_true(back.nonce == 1ull << 40);
	m.kind = WIRE_PONG;
	roundtrip(&m, &back);
	assert_true(back.nonce == 1ull << 40);
	m = (struct wire_message){.kind = WIRE_BULK_OPEN};
	any_bytes(&r, m.token, sizeof m.token);
	roundtrip(&m, &back);
	assert_memory_equal(back.token, m.token, sizeof m.token);
}

/* What peers of other versions agree on must not change by accident. */
static void test_the_bytes_are_these(void **state)
{
	static const uint8_t expected[] =
	        "\x94\x00\xcd\x01\x00\xc4\x20"
	        "\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11"
	        "\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11\x11"
	        "\x11\x11\x11\x11\x91\x9f\x00\xc4\x20"
	        "\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22"
	        "\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22"
	        "\x22\x22\x22\x22\x01\x02\x03\x04\x02\x91\xc4\x06\x0a\x00\x00"
	        "\x05\x1f\x0a\x05\x06\x07\x08\x09\xca\x3f\x80\x00\x00\xc4"
	        "\x40";
	struct gossip_message m = {.kind = MESSAGE_PING, .nonce = 256, .n_updates = 1};
	struct member_record *r = &m.update[0].record;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	(void)state;
	memset(&m.target, 0x11, 32);
	memset(&r->id, 0x22, 32);
	r->generation = 1;
	r->nonce = 2;
	r->incarnation = 3;
	r->version = 4;
	r->dialable = true;
	r->addrs = (struct peer_addrs){1, {{4, {10, 0, 0, 5}, 7946}}};
	r->protocol_min = 5;
	r->protocol_max = 6;
	r->status = (struct member_status){7, 8, 9, 1.0f};
	assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
	assert_int_equal(len, sizeof expected - 1 + 64);
	assert_memory_equal(out, expected, sizeof expected - 1);

	struct wire_message refuse = {.kind = WIRE_REFUSE, .refusal = {WHY_BUSY, "no"}};
	assert_int_equal(wire_encode(&refuse, out, sizeof out, &len), 0);
	assert_int_equal(len, 6);
	assert_memory_equal(out, "\x93\x41\x05\xa2no", 6);
}

/* A diverged agent's record must still be the one that it signed. */
static void test_a_loss_keeps_its_bits(void **state)
{
	static const uint32_t bits[] = {0x7fc00000, 0xffc12345, 0x7f800000, 0xff800000, 0x80000000};
	(void)state;
	for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
		struct gossip_message m = {.kind = MESSAGE_GOSSIP, .n_updates = 1};
		struct wire_message back;
		uint8_t out[WIRE_BYTES_MAX];
		size_t len;
		m.update[0].record.generation = 1;
		memcpy(&m.update[0].record.status.loss, &bits[i], 4);
		assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
		decodes(out, len, &back);
		assert_memory_equal(&back.gossip.update[0].record.status.loss, &bits[i], 4);
	}
}

/* Builds what the encoder would not. */
struct made {
	uint8_t bytes[70000];
	size_t len;
};

static void put(struct made *m, const void *bytes, size_t n)
{
	memcpy(m->bytes + m->len, bytes, n);
	m->len += n;
}
#define PUT(m, literal) put(m, literal, sizeof(literal) - 1)

static void put_bin(struct made *m, uint8_t n, int fill)
{
	PUT(m, "\xc4");
	put(m, &n, 1);
	memset(m->bytes + m->len, fill, n);
	m->len += n;
}

static void test_later_versions_may_add(void **state)
{
	static const char nested[] = "\x92\x81\xa1k\xd4\x01\x02\x93\xc0\xd1\xff\x00\xcb"
	                             "\x01\x02\x03\x04\x05\x06\x07\x08";
	struct wire_message back;
	struct made m = {.len = 0};
	(void)state;
	/* ACK [1, 9, [accusation and two more], a nested value, nil] */
	PUT(&m, "\x95\x01\x09\x91\x99\x01");
	put_bin(&m, 32, 0xaa);
	PUT(&m, "\x03\x04");
	put_bin(&m, 32, 0xbb);
	PUT(&m, "\xc3");
	put_bin(&m, 64, 0xcc);
	PUT(&m, "\xe0\xa3new");
	put(&m, nested, sizeof nested - 1);
	PUT(&m, "\xc0");
	decodes(m.bytes, m.len, &back);
	assert_int_equal(back.kind, MESSAGE_ACK);
	assert_true(back.gossip.nonce == 9 && back.gossip.n_updates == 1);
	const struct gossip_update *u = &back.gossip.update[0];
	assert_int_equal(u->kind, UPDATE_ACCUSATION);
	assert_true(u->accusation.generation == 3 && u->accusation.incarnation == 4);
	assert_true(u->accusation.dead && u->signature[63] == 0xcc);

	refused((const uint8_t *)"\x92\x50\xc0", 3, ERR_UNSUPPORTED, "kind 80");
	refused((const uint8_t *)"\x92\xcd\x01\x00\xc0", 5, ERR_UNSUPPORTED, "kind 256");
}

static void test_bombs(void **state)
{
	static struct made m;
	(void)state;
	refused((const uint8_t *)"\xdd\xff\xff\xff\xff", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xdf\xff\xff\xff\xff", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xdf\x80\x00\x00\x00", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xc6\xff\xff\xff\xff", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xdb\xff\xff\xff\xff", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xc9\xff\xff\xff\xff", 5, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xd8\x00\x01", 3, ERR_FORMAT, "promises more");
	refused((const uint8_t *)"\xdc\x00", 2, ERR_FORMAT, "ends too early");
	refused((const uint8_t *)"", 0, ERR_FORMAT, "ends too early");
	refused((const uint8_t *)"\x92\x04\xc1", 3, ERR_FORMAT, "does not use");

	memset(m.bytes, 0x91, 60000);
	refused(m.bytes, 60000, ERR_LIMIT, "too deep");
	/* [4, [[[[]]]]]: one too deep; with one less it is only a wrong update. */
	refused((const uint8_t *)"\x92\x04\x91\x91\x91\x90", 6, ERR_LIMIT, "too deep");
	refused((const uint8_t *)"\x92\x04\x91\x91\x90", 5, ERR_FORMAT, "an array");

	m.len = 0;
	PUT(&m, "\xdc\xff\x00\x04\x90");
	memset(m.bytes + m.len, 0, 0xff00 - 2);
	refused(m.bytes, m.len + 0xff00 - 2, ERR_LIMIT, "too many");
	/* GOSSIP [4, [], 0 …]: 1024 values in all are accepted, one more is not. */
	struct wire_message back;
	m.len = 0;
	PUT(&m, "\xdc\x03\xff\x04\x90");
	memset(m.bytes + m.len, 0, 1021);
	decodes(m.bytes, m.len + 1021, &back);
	m.bytes[1] = 0x04;
	m.bytes[2] = 0x00;
	refused(m.bytes, m.len + 1022, ERR_LIMIT, "too many");
}

/* A PING_REQ around an address. */
static void address(const char *bytes, size_t n, const char *words)
{
	struct made m = {.len = 0};
	PUT(&m, "\x95\x03\x01");
	put_bin(&m, 32, 1);
	put(&m, bytes, n);
	PUT(&m, "\x90");
	refused(m.bytes, m.len, ERR_FORMAT, words);
}

/* The start of a GOSSIP with one record, up to its addresses. */
static void addresses(const char *bytes, size_t n, const char *words)
{
	struct made m = {.len = 0};
	PUT(&m, "\x92\x04\x91\x9f\x00");
	put_bin(&m, 32, 1);
	PUT(&m, "\x01\x02\x03\x04\x02");
	put(&m, bytes, n);
	PUT(&m, "\x05\x06\x07\x08\x09\xca\x3f\x80\x00\x00");
	put_bin(&m, 64, 2);
	refused(m.bytes, m.len, ERR_FORMAT, words);
}

/* A GOSSIP with one record, in which the bytes between two fixed parts are given. */
static void record(const char *generation, const char *flags, const char *protocol,
        const char *loss, size_t loss_len, const char *words)
{
	struct made m = {.len = 0};
	struct wire_message back;
	PUT(&m, "\x92\x04\x91\x9f\x00");
	put_bin(&m, 32, 1);
	put(&m, generation, 1);
	PUT(&m, "\x02\x03\x04");
	put(&m, flags, 1);
	PUT(&m, "\x90");
	put(&m, protocol, 2);
	PUT(&m, "\x07\x08\x09");
	put(&m, loss, loss_len);
	put_bin(&m, 64, 2);
	if (words)
		refused(m.bytes, m.len, ERR_FORMAT, words);
	else
		decodes(m.bytes, m.len, &back);
}

static void test_ranges(void **state)
{
	struct made m = {.len = 0};
	(void)state;
	address("\xc4\x05\x7f\0\0\1\1", 7, "5 bytes, not 0, 6 or 18");
	address("\xc4\x06\x7f\0\0\1\0\0", 8, "port 0");
	address("\xc4\x13\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", 21, "at most 18");
	address("\xa0", 1, "text, not bytes");
	address("\xc5\x00\x06\x7f\0\0\1\1\1", 9, "shortest");
#define FOUR "\xc4\x06\x7f\0\0\1\1\1"
	addresses("\x95" FOUR FOUR FOUR FOUR FOUR, 41, "at most 4");
	addresses("\x92" FOUR "\xc4\x00", 11, "0 bytes, not 6 or 18");
	addresses("\x91\xc4\x06\x7f\0\0\1\0\0", 9, "port 0");
	addresses(FOUR, 8, "an array");

	record("\x01", "\x03", "\x05\x05", "\xca\0\0\0\0", 5, NULL);
	record("\x00", "\x03", "\x05\x05", "\xca\0\0\0\0", 5, "generation: 0");
	record("\xff", "\x03", "\x05\x05", "\xca\0\0\0\0", 5, "a negative number");
	record("\x01", "\x04", "\x05\x05", "\xca\0\0\0\0", 5, "flags: 4 is over 3");
	record("\x01", "\x03", "\x06\x05", "\xca\0\0\0\0", 5, "protocol: 6 to 5");
	record("\x01", "\x03", "\x05\x05", "\xcb\0\0\0\0\0\0\0\0", 9, "a double, not a float");
	record("\x01", "\x03", "\x05\x05", "\x00", 1, "a number, not a float");

	refused((const uint8_t *)"\x93\x01\xcf\0\0\0\0\0\0\0\1\x90", 12, ERR_FORMAT, "shortest");
	refused((const uint8_t *)"\x93\x01\xcc\x7f\x90", 5, ERR_FORMAT, "shortest");
	refused((const uint8_t *)"\x93\x01\xc2\x90", 4, ERR_FORMAT, "ack: nonce: true or false");
	refused((const uint8_t *)"\x92\x01\x01", 3, ERR_FORMAT, "ack: 2 elements, at least 3");
	refused((const uint8_t *)"\x93\x05\x01\x90", 4, ERR_FORMAT, "sync: want_reply: a number");
	refused((const uint8_t *)"\x92\x04\x99\0\0\0\0\0\0\0\0\0", 12, ERR_FORMAT, "at most 8");
	refused((const uint8_t *)"\x92\x04\x91\x91\x02", 5, ERR_FORMAT, "2 is over 1");
	refused((const uint8_t *)"\x92\x04\x91\x91\x01", 5, ERR_FORMAT, "1 elements, at least 7");
	refused((const uint8_t *)"\x92\x04\x91\x91\x00", 5, ERR_FORMAT, "1 elements, at least 15");
	refused((const uint8_t *)"\x90", 1, ERR_FORMAT, "0 elements");
	refused((const uint8_t *)"\x81\x00\x00", 3, ERR_FORMAT, "a map, not an array");
	refused((const uint8_t *)"\x94\x40\x02\x01\xc4\x00", 6, ERR_FORMAT, "protocol: 2 to 1");
	refused((const uint8_t *)"\x94\x40\xce\0\1\0\0\x01\xc4\x00", 10, ERR_FORMAT, "over 65535");

	PUT(&m, "\x94\x40\x01\x01");
	put_bin(&m, AEAD_OFFER_MAX + 1, 0);
	refused(m.bytes, m.len, ERR_FORMAT, "ciphers: 9 bytes, at most 8");
	m.len = 0;
	PUT(&m, "\x92\x44");
	put_bin(&m, 15, 0);
	refused(m.bytes, m.len, ERR_FORMAT, "token: 15 bytes, not 16");
	m.len = 0;
	PUT(&m, "\x96\x06");
	put_bin(&m, 32, 0);
	PUT(&m, "\x01\x01\xc5\x04\x01");
	m.len += GOSSIP_SKETCH_BYTES + 1;
	put_bin(&m, 64, 0);
	refused(m.bytes, m.len, ERR_FORMAT, "sketch: bytes: 1025 bytes, at most 1024");
}

static void test_words_are_made_safe(void **state)
{
	struct made m = {.len = 0};
	struct wire_message back;
	(void)state;
	decodes((const uint8_t *)"\x93\x41\x01\xa7\x1b[2J\0\x7f\xc3", 11, &back);
	assert_string_equal(back.refusal.words, "?[2J???");
	/* U+0080 to U+009F command a terminal, too, and so may bytes that are not UTF-8. */
	decodes((const uint8_t *)"\x93\x41\x01\xad\xc2\x9b"
	                         "2J\x9b\xc2\xa0\xe2\x80\xa6\xc3\xa9\xc2",
	        17, &back);
	assert_string_equal(back.refusal.words, "??2J?\xc2\xa0\xe2\x80\xa6\xc3\xa9?");
	PUT(&m, "\x93\x45\x00\xd9\xc9");
	m.len += WIRE_WORDS_MAX + 1;
	refused(m.bytes, m.len, ERR_FORMAT, "bye: words: 201 bytes, at most 200");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_gossip_comes_back),
	        cmocka_unit_test(test_the_longest_fit_their_bound),
	        cmocka_unit_test(test_session_messages_come_back),
	        cmocka_unit_test(test_the_bytes_are_these),
	        cmocka_unit_test(test_a_loss_keeps_its_bits),
	        cmocka_unit_test(test_later_versions_may_add),
	        cmocka_unit_test(test_bombs),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_words_are_made_safe),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
