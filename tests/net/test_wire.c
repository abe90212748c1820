/* SPDX-License-Identifier: MIT */
/* Messages to bytes and back, the bound on their size that gossip counts with, and bytes that are
 * no messages. */
#include "net/codec/datagram.h"
#include "net/codec/frame.h"
#include "net/codec/wire.h"
#include "tests/net/wire_fill.h"
#include "tests/support.h"

#define SEALING (DATAGRAM_OVERHEAD > FRAME_OVERHEAD_MAX ? DATAGRAM_OVERHEAD : FRAME_OVERHEAD_MAX)

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

static void encodes(const struct wire_message *m, uint8_t out[WIRE_BYTES_MAX], size_t *len)
{
	assert_int_equal(wire_encode(m, out, WIRE_BYTES_MAX, len), 0);
	if (m->kind < WIRE_HELLO) {
		struct gossip_message unsigned_yet = m->gossip;
		for (int i = 0; i < GOSSIP_UPDATES_MAX; i++)
			unsigned_yet.update[i].raw.length = 0; /* what the core sends of its own */
		assert_true(*len + SEALING <= gossip_message_bytes(&unsigned_yet));
		assert_true(*len + SEALING <= gossip_message_bytes(&m->gossip));
	} else if (m->kind != WIRE_EXCHANGE) {
		assert_true(*len <= WIRE_HELLO_MAX);
	}
}

static void comes_back(struct rng *r, const struct each *e, struct wire_message *m)
{
	struct wire_message back;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	fill(r, e->layout, e->base);
	encodes(m, out, &len);
	decodes(out, len, &back);
	assert_memory_equal(&back, m, sizeof back);
}

static void test_every_kind_comes_back(void **state)
{
	struct rng r;
	struct wire_message m;
	int kinds = 0;
	(void)state;
	rng_seed(&r, 1, 0);
	for (int i = 0; i < 300; i++)
		for (struct each e = {0}; each_message(&e, &m); kinds++)
			comes_back(&r, &e, &m);
	assert_int_equal(kinds, 300 * (7 + 6 + EXCHANGE_KINDS + 1));
}

/* No integer, text, address or array can be longer than in these. */
static void test_the_longest_fit_their_bound(void **state)
{
	struct wire_message m;
	(void)state;
	for (struct each e = {0}; each_message(&e, &m);)
		comes_back(NULL, &e, &m);
}

/* Bounds are tight where many addresses and few records meet. */
static void test_any_mixture_fits_its_bound(void **state)
{
	struct wire_message m, back;
	uint8_t out[WIRE_BYTES_MAX], signature[64] = {0};
	size_t len;
	(void)state;
	for (int n = 0; n <= GOSSIP_UPDATES_MAX; n++) {
		for (int records = 0; records <= n; records++) {
			memset(&m, 0, sizeof m);
			m.kind = m.gossip.kind = MESSAGE_PING_REQ;
			fill(NULL, &wire__messages[m.kind], &m.gossip);
			m.gossip.n_updates = (uint8_t)n;
			for (int i = 0; i < n; i++) {
				struct gossip_update *u = &m.gossip.update[i];
				memset(u, 0, sizeof *u);
				u->kind = i < records ? UPDATE_RECORD : UPDATE_ACCUSATION;
				fill(NULL, &wire__updates[u->kind],
				        i < records ? (void *)&u->record : &u->accusation);
				if (i < records) {
					u->record.addrs.n = (uint8_t)(i % (MEMBER_ADDRS_MAX + 1));
					u->record.addrs.at[0].family = n % 2 ? 4 : 6;
				}
				forge(u, signature);
			}
			encodes(&m, out, &len);
			decodes(out, len, &back);
			assert_int_equal(back.gossip.n_updates, n);
		}
	}
}

/* Cut anywhere, with room for less, with something behind it. */
static void test_no_more_and_no_less(void **state)
{
	struct rng r;
	struct wire_message m;
	uint8_t out[WIRE_BYTES_MAX + 1], part[WIRE_BYTES_MAX];
	size_t len, part_len;
	(void)state;
	rng_seed(&r, 2, 0);
	for (struct each e = {0}; each_message(&e, &m);) {
		fill(&r, e.layout, e.base);
		encodes(&m, out, &len);
		for (size_t cut = 0; cut < len; cut++) {
			refused(out, cut, ERR_FORMAT, "");
			assert_int_equal(wire_encode(&m, part, cut, &part_len), ERR_LIMIT);
		}
		out[len] = 0xc0;
		refused(out, len + 1, ERR_FORMAT, "more after its end");
	}
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
	uint8_t out[WIRE_BYTES_MAX], zero[64] = {0};
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
	r->status = (struct member_status){.model = 7, .step = 8, .samples = 9, .loss = 1.0f};
	forge(&m.update[0], zero);
	assert_int_equal(wire_encode_gossip(&m, out, sizeof out, &len), 0);
	assert_int_equal(len, sizeof expected - 1 + 64);
	assert_memory_equal(out, expected, sizeof expected - 1);

	struct wire_message refuse = {.kind = WIRE_REFUSE, .refusal = {WHY_BUSY, "no"}};
	assert_int_equal(wire_encode(&refuse, out, sizeof out, &len), 0);
	assert_int_equal(len, 6);
	assert_memory_equal(out, "\x93\x41\x05\xa2no", 6);
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
	/* ACK [1, 9, [an accusation with two more], a nested value, nil] */
	PUT(&m, "\x95\x01\x09\x91\x99\x01");
	put_bin(&m, 32, 0xaa);
	PUT(&m, "\x03\x04");
	put_bin(&m, 32, 0xbb);
	PUT(&m, "\xc3\xe0\xa3new");
	put_bin(&m, 64, 0xcc);
	put(&m, nested, sizeof nested - 1);
	PUT(&m, "\xc0");
	decodes(m.bytes, m.len, &back);
	assert_int_equal(back.kind, MESSAGE_ACK);
	assert_true(back.gossip.nonce == 9 && back.gossip.n_updates == 1);
	const struct gossip_update *u = &back.gossip.update[0];
	assert_int_equal(u->kind, UPDATE_ACCUSATION);
	assert_true(u->accusation.generation == 3 && u->accusation.incarnation == 4);
	assert_true(u->accusation.dead && u->raw.length == 2 + 34 + 2 + 34 + 1 + 5 + 66);
	assert_memory_equal(u->raw.bytes, "\x99\x01\xc4", 3);

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
	record("\x01", "\x7f", "\x05\x05", "\xca\0\0\0\0", 5, NULL); /* later versions' */
	record("\x01", "\x03", "\x06\x05", "\xca\0\0\0\0", 5, "record: protocol_max: 5 is under 6");
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
	refused((const uint8_t *)"\x94\x40\x02\x01\xc4\x00", 6, ERR_FORMAT,
	        "hello: protocol_max: 1 is under 2");
	refused((const uint8_t *)"\x94\x40\xce\0\1\0\0\x01\xc4\x00", 10, ERR_FORMAT, "over 65535");

	PUT(&m, "\x94\x40\x01\x01");
	put_bin(&m, AEAD_OFFER_MAX + 1, 0);
	refused(m.bytes, m.len, ERR_FORMAT, "ciphers: 9 bytes, at most 8");
	m.len = 0;
	PUT(&m, "\x95\x44");
	put_bin(&m, 8, 0);
	put_bin(&m, 15, 0);
	PUT(&m, "\x01\x01");
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
	        cmocka_unit_test(test_every_kind_comes_back),
	        cmocka_unit_test(test_the_longest_fit_their_bound),
	        cmocka_unit_test(test_any_mixture_fits_its_bound),
	        cmocka_unit_test(test_no_more_and_no_less),
	        cmocka_unit_test(test_the_bytes_are_these),
	        cmocka_unit_test(test_later_versions_may_add),
	        cmocka_unit_test(test_bombs),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_words_are_made_safe),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
