/* SPDX-License-Identifier: MIT */
/* The messages of an exchange to bytes and back, and bytes that are none: what a peer says here
 * decides how weights move. */
#include "net/codec/wire.h"
#include "tests/support.h"

/* ---- what comes of bytes */

static int decode(const void *bytes, size_t len, struct wire_message *m, struct err *e)
{
	uint8_t *exact = malloc(len + 1); /* for AddressSanitizer to watch its end */
	assert_non_null(exact);
	memcpy(exact, bytes, len);
	int rc = wire_decode(exact, len, m, e);
	free(exact);
	return rc;
}

static void decodes(const void *bytes, size_t len, struct wire_message *m)
{
	struct err e = {0};
	if (decode(bytes, len, m, &e) != 0)
		fail_msg("%s", e.msg);
	assert_int_equal(m->kind, WIRE_EXCHANGE);
}

static void refused(const void *bytes, size_t len, int code, const char *words)
{
	struct wire_message m;
	struct err e = {0};
	int rc = decode(bytes, len, &m, &e);
	if (rc != code || !strstr(e.msg, words))
		fail_msg("%d \"%s\", not %d \"…%s…\"", rc, e.msg, code, words);
}
#define REFUSED(literal, words) refused(literal, sizeof(literal) - 1, ERR_FORMAT, words)
#define DECODES(literal, m) decodes(literal, sizeof(literal) - 1, m)

/* ---- tests */

#define MANIFEST "\x98\x01\x02\x03\x04\x05\x01\x02\x03"
#define ONE "\xca\x3f\x80\x00\x00"
#define HALF "\xca\x3f\x00\x00\x00"
#define NOTHING "\xca\x00\x00\x00\x00"
#define OVER_ONE "\xca\x3f\x80\x00\x01"
#define MINUS "\xca\xbf\x00\x00\x00"
#define HUGE "\xca\x7f\x80\x00\x00"
#define NO_NUMBER "\xca\x7f\xc0\x00\x00"
#define OFFER(mode, format, beta, sketch) \
	"\x9c\x46\x00\x01" MANIFEST "\x06\x07\x08" mode format "\xc3" beta sketch
#define GIFT(optimizer, vectors, radius) \
	"\x9d\x46\x0a\x01" MANIFEST "\x06\x07\x08\x09\x0a\x0b" optimizer vectors radius

static bool is_the_manifest(const struct manifest *m)
{
	return m->run == 1 && m->model == 2 && m->init == 3 && m->count == 4 && m->total == 5 &&
	       m->optimizer == 1 && m->mode == 2 && m->formats == 3;
}

/* What peers of other versions agree on must not change by accident. */
static void test_the_bytes_are_these(void **state)
{
	struct wire_message w;
	const struct exchange_message *m = &w.exchange;
	(void)state;
	DECODES(OFFER("\x02", "\x01", HALF, "\xc4\x02\xaa\xbb"), &w);
	assert_true(m->kind == EXCHANGE_OFFER && m->exchange == 1);
	assert_true(is_the_manifest(&m->terms.manifest));
	assert_true(m->terms.step == 6 && m->terms.samples == 7 && m->terms.clock == 8);
	assert_true(m->terms.mode == 2 && m->terms.format == 1 && m->terms.final);
	assert_true(m->terms.beta == 0.5f && m->terms.sketch_length == 2);
	assert_memory_equal(m->terms.sketch, "\xaa\xbb", 2);
	DECODES("\x95\x46\x02\x01\x02\xa2no", &w);
	assert_true(m->kind == EXCHANGE_BUSY && m->busy.why == EXCHANGE_ENGAGED);
	assert_string_equal(m->busy.words, "no");
	DECODES("\x95\x46\x07\x01\x03\xa0", &w);
	assert_true(m->kind == EXCHANGE_ABORT && m->busy.why == EXCHANGE_BUDGET);
	DECODES("\x96\x46\x02\x01\x0b\xa0" MANIFEST, &w);
	assert_true(m->kind == EXCHANGE_BUSY && m->busy.why == EXCHANGE_UNLIKE);
	assert_true(is_the_manifest(&m->busy.manifest));
	DECODES("\x95\x46\x02\x01\x0b\xa0", &w); /* an optional field: zeros */
	assert_true(m->busy.why == EXCHANGE_UNLIKE && m->busy.manifest.count == 0);
	DECODES("\x93\x46\x03\xcd\x01\x00", &w);
	assert_true(m->kind == EXCHANGE_OPEN && m->exchange == 256);
	DECODES("\x94\x46\x04\x01\x92" HALF ONE, &w);
	assert_true(m->kind == EXCHANGE_END && m->end.n == 2);
	assert_true(m->end.factor[0] == 0.5f && m->end.factor[1] == 1);
	DECODES("\x93\x46\x05\x01", &w);
	assert_int_equal(m->kind, EXCHANGE_COMMIT);
	DECODES("\x93\x46\x06\x01", &w);
	assert_int_equal(m->kind, EXCHANGE_ACK);
	DECODES("\x94\x46\x08\x01\x02", &w);
	assert_true(m->kind == EXCHANGE_SETTLE && m->settlement == SETTLE_APPLIED);
	DECODES("\x96\x46\x09\x01" MANIFEST "\x06\x07", &w);
	assert_true(m->kind == EXCHANGE_FETCH && is_the_manifest(&m->fetch.manifest));
	assert_true(m->fetch.snapshot == 6 && m->fetch.offset == 7);
	DECODES(GIFT("\x0c", "\x03", "\x92" HALF ONE), &w);
	assert_true(m->kind == EXCHANGE_GIFT && is_the_manifest(&m->gift.manifest));
	assert_true(m->gift.snapshot == 6 && m->gift.offset == 7 && m->gift.step == 8);
	assert_true(m->gift.samples == 9 && m->gift.clock == 10 && m->gift.optim_steps == 11);
	assert_true(m->gift.optimizer == 12 && m->gift.vectors == 3 && m->gift.n == 1);
	assert_true(m->gift.radius[0] == 0.5f && m->gift.radius[1] == 1);
	DECODES("\x94\x46\x0b\x01\xcd\x1f\x40", &w);
	assert_true(m->kind == EXCHANGE_SOON && m->step_ms == 8000);
	/* A manifest may grow as well. */
	DECODES("\x96\x46\x09\x01\x9b\x01\x02\x03\x04\x05\x01\x02\x03\x02\x08\xa3new\x06\x07", &w);
	assert_true(is_the_manifest(&m->fetch.manifest) && m->fetch.snapshot == 6);
	assert_true(m->fetch.manifest.outer == 2 && m->fetch.manifest.data == 8);
}

static void test_ranges(void **state)
{
	struct wire_message w;
	(void)state;
	/* beta, over 0 to 1 */
	DECODES(OFFER("\xcc\xff", "\xcc\xff", ONE, "\xc4\x00"), &w);
	assert_true(w.exchange.terms.mode == 255 && w.exchange.terms.sketch_length == 0);
	REFUSED(OFFER("\x00", "\x00", NOTHING, "\xc4\x00"), "offer: beta: 0 is not from");
	REFUSED(OFFER("\x00", "\x00", "\xca\x80\x00\x00\x00", "\xc4\x00"), "beta: -0 is not from");
	REFUSED(OFFER("\x00", "\x00", OVER_ONE, "\xc4\x00"), "beta: 1 is not from");
	REFUSED(OFFER("\x00", "\x00", MINUS, "\xc4\x00"), "beta: -0.5 is not");
	REFUSED(OFFER("\x00", "\x00", NO_NUMBER, "\xc4\x00"), "beta: ");
	REFUSED(OFFER("\x00", "\x00", HUGE, "\xc4\x00"), "beta: inf");
	REFUSED(OFFER("\x00", "\x00", "\xcb\x3f\xe0\0\0\0\0\0\0", "\xc4\x00"), "a double");
	REFUSED(OFFER("\xcd\x01\x00", "\x00", ONE, "\xc4\x00"), "mode: 256 is over 255");
	REFUSED(OFFER("\x00", "\xcd\x01\x00", ONE, "\xc4\x00"), "format: 256 is over 255");
	/* factors */
	DECODES("\x94\x46\x04\x01\x90", &w);
	assert_int_equal(w.exchange.end.n, 0);
	DECODES("\x94\x46\x04\x01\x91" NOTHING, &w);
	REFUSED("\x94\x46\x04\x01\x92" ONE OVER_ONE, "end: factor: 1 is not from 0 to 1");
	REFUSED("\x94\x46\x04\x01\x91" MINUS, "factor: -0.5");
	REFUSED("\x94\x46\x04\x01\x91" NO_NUMBER, "factor: ");
	REFUSED("\x94\x46\x04\x01\x91\x01", "a number, not a float");
	/* radii, vectors */
	DECODES(GIFT("\x00", "\x02", "\x91\xca\x7f\x7f\xff\xff"), &w);
	assert_int_equal(w.exchange.gift.n, 0);
	REFUSED(GIFT("\x00", "\x02", "\x90"), "radius: 0 elements, at least 1");
	REFUSED(GIFT("\x00", "\x02", "\x91" HUGE), "gift: radius: inf");
	REFUSED(GIFT("\x00", "\x02", "\x91" NO_NUMBER), "radius: ");
	REFUSED(GIFT("\x00", "\x02", "\x91" MINUS), "radius: -0.5");
	REFUSED(GIFT("\x00", "\x01", "\x91" ONE), "vectors: 1 is under 2");
	REFUSED(GIFT("\x00", "\x04", "\x91" ONE), "vectors: 4 is over 3");
	REFUSED(GIFT("\xcd\x01\x00", "\x02", "\x91" ONE), "optimizer: 256 is over 255");
	/* the rest */
	REFUSED("\x93\x46\x03\x00", "open: exchange: 0 is under 1");
	REFUSED("\x93\x46\xff\x01", "kind: a negative number");
	REFUSED("\x92\x46\x03", "open: 2 elements, at least 3");
	REFUSED("\x93\x46\x00\x01", "offer: 3 elements, at least 12");
	REFUSED("\x94\x46\x08\x01\x03", "settle: settlement: 3 is over 2");
	REFUSED("\x96\x46\x09\x01\x97\x01\x02\x03\x04\x05\x01\x02\x06\x07", "manifest: 7 elements");
	REFUSED("\x96\x46\x07\x01\x0b\xa0\xc0", "abort: manifest: nil");
	REFUSED("\x95\x46\x02\x01\xff\xa0", "busy: why: a negative number");
	REFUSED("\x95\x46\x02\x01\x01\xc4\x00", "busy: words: bytes, not text");
}

/* One too many of each: nothing is written behind its end. */
static void test_too_many(void **state)
{
	uint8_t b[2000];
	size_t n;
	(void)state;
	static const char end[] = "\x94\x46\x04\x01\xdc\x00\x21",
	                  gift[] = GIFT("\0", "\2", "\xdc\0\x22");
	memcpy(b, end, n = sizeof end - 1);
	for (int i = 0; i < EXCHANGE_GROUPS_MAX + 1; i++, n += 5)
		memcpy(b + n, ONE, 5);
	refused(b, n, ERR_FORMAT, "factor: 33 elements, at most 32");
	memcpy(b, gift, n = sizeof gift - 1);
	for (int i = 0; i < EXCHANGE_GROUPS_MAX + 2; i++, n += 5)
		memcpy(b + n, ONE, 5);
	refused(b, n, ERR_FORMAT, "radius: 34 elements, at most 33");
	static const char offer[] = OFFER("\0", "\0", ONE, "\xc5\x04\x01");
	memcpy(b, offer, n = sizeof offer - 1);
	memset(b + n, 1, GOSSIP_SKETCH_BYTES + 1);
	refused(b, n + GOSSIP_SKETCH_BYTES + 1, ERR_FORMAT, "sketch: 1025 bytes, at most 1024");
	static const char busy[] = "\x95\x46\x02\x01\x01\xd9\xa1";
	memcpy(b, busy, n = sizeof busy - 1);
	memset(b + n, 'x', EXCHANGE_WORDS_MAX + 1);
	refused(b, n + EXCHANGE_WORDS_MAX + 1, ERR_FORMAT, "words: 161 bytes, at most 160");
}

static void test_later_versions(void **state)
{
	struct wire_message w;
	(void)state;
	refused("\x93\x46\x0c\x01", 4, ERR_UNSUPPORTED, "kind 12 is not known");
	refused("\x93\x46\xcd\x01\x00\xc0", 6, ERR_UNSUPPORTED, "kind 256");
	DECODES("\x95\x46\x02\x01\x0d\xa0", &w);
	assert_int_equal(w.exchange.busy.why, EXCHANGE_OTHER);
	DECODES("\x95\x46\x02\x01\xcd\x01\x02\xa0", &w);
	assert_int_equal(w.exchange.busy.why, EXCHANGE_OTHER);
	/* Text is made safe for a terminal. */
	DECODES("\x95\x46\x02\x01\x01\xa7\x1b[2J\0\x7f\xc3", &w);
	assert_string_equal(w.exchange.busy.words, "?[2J???");
}

/* Whose bulk connection it is, for which exchange, and the how-manieth. */
static void test_bulk_open(void **state)
{
	struct wire_message m = {.kind = WIRE_BULK_OPEN}, back;
	static const uint64_t exchanges[] = {0, 1, 300, UINT64_MAX};
	uint8_t out[64];
	size_t len;
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		memset(m.bulk.session, 3, sizeof m.bulk.session);
		memset(m.bulk.token, 7, sizeof m.bulk.token);
		m.bulk.exchange = exchanges[i];
		m.bulk.attempt = exchanges[3 - i] ? exchanges[3 - i] : 1;
		assert_int_equal(wire_encode(&m, out, sizeof out, &len), 0);
		assert_int_equal(out[0], 0x95);
		assert_int_equal(decode(out, len, &back, NULL), 0);
		assert_int_equal(back.kind, WIRE_BULK_OPEN);
		assert_memory_equal(&back.bulk, &m.bulk, sizeof m.bulk);
	}
#define OPEN(exchange, attempt) \
	"\x95\x44\xc4\x08"      \
	"01234567"              \
	"\xc4\x10"              \
	"0123456789abcdef" exchange attempt
	REFUSED(OPEN("\xc0", "\x01"), "bulk-open: exchange: nil");
	REFUSED(OPEN("\xff", "\x01"), "exchange: a negative number");
	REFUSED(OPEN("\x01", "\x00"), "attempt: 0");
#undef OPEN
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_bytes_are_these),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_too_many),
	        cmocka_unit_test(test_later_versions),
	        cmocka_unit_test(test_bulk_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
