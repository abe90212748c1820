/* SPDX-License-Identifier: MIT */
/* Two versions of the codec against each other, for every kind of message: today's, and a later one
 * that has three fields more; and an earlier one that lacks what is optional today. */
#include "net/codec/wire_scan.h"
#include "tests/net/wire_fill.h"
#include "tests/support.h"

#define FIELDS_MAX 32

/* What the later version knows besides. */
struct news {
	uint64_t number;
	uint16_t length;
	uint8_t blob[22];
	char text[32];
};

struct later {
	struct wire_message m; /* first: what today's encoder takes */
	struct news news;
	struct wire__field field[FIELDS_MAX];
	struct wire__layout layout;
};

/* The layout of a message with these, whose other fields are at base. */
static void extend(struct later *l, const struct wire__layout *today, const void *base)
{
	size_t to = (size_t)((uint8_t *)&l->news - (const uint8_t *)base);
#define AT(f) .at = (uint16_t)(to + offsetof(struct news, f)), .size = sizeof l->news.f
	const struct wire__field more[] = {
	        {"number", FIELD_UINT, AT(number), .max = UINT64_MAX},
	        {"blob", FIELD_BLOB, AT(blob),
	                .count_at = (uint16_t)(to + offsetof(struct news, length)),
	                .count_size = 2},
	        {"text", FIELD_TEXT, AT(text)},
	};
	assert_true(today->n + 3 <= FIELDS_MAX);
	if (today->n)
		memcpy(l->field, today->field, today->n * sizeof *l->field);
	memcpy(l->field + today->n, more, sizeof more);
	l->layout =
	        (struct wire__layout){today->name, l->field, (uint8_t)(today->n + 3), today->least};
}

static void decode_today(const uint8_t *bytes, size_t len, struct wire_message *out)
{
	struct err e = {0};
	if (wire_decode(bytes, len, out, &e) != 0)
		fail_msg("%s", e.msg);
}

/* As wire_decode, by the later version's table: into where base is, which is within *l. */
static void decode_later(
        const uint8_t *bytes, size_t len, struct later *l, const struct wire__head *h, void *base)
{
	struct wire_in in;
	struct err e = {0};
	assert_int_equal(wire__begin(&in, bytes, len, &e), 0);
	uint32_t n = wire__array(&in, "message", 1, 1024);
	for (int i = 0; i < h->n; i++)
		assert_int_equal(wire__uint(&in, "kind", 255), h->kind[i]);
	wire__get(&in, &l->layout, n, h->n, base);
	if (in.code)
		fail_msg("%s", e.msg);
	assert_true(in.at == in.end);
}

/* Fields are empty, the kind is not. */
static void empty_again(struct later *l, const struct wire_message *of)
{
	memset(&l->m, 0, sizeof l->m);
	memset(&l->news, 0, sizeof l->news);
	l->m.kind = of->kind;
	if (of->kind < WIRE_HELLO)
		l->m.gossip.kind = of->gossip.kind;
	if (of->kind == WIRE_EXCHANGE)
		l->m.exchange.kind = of->exchange.kind;
	if (of->kind == WIRE_HELLO)
		l->m.hello.identified = of->hello.identified;
}

static void test_today_and_a_later_one(void **state)
{
	static const struct news said[] = {{1ull << 40, 3, {1, 2, 3}, "more"}, {1, 0, {0}, ""},
	        {0, 3, {0}, ""}, {0, 0, {0}, ""}};
	static struct later l;
	static struct wire_message m, back;
	struct rng r;
	uint8_t out[WIRE_BYTES_MAX + 100];
	size_t len;
	(void)state;
	rng_seed(&r, 1, 0);
	for (int i = 0; i < 50; i++) {
		for (struct each e = {0}; each_message(&e, &l.m);) {
			if (l.m.kind == WIRE_HELLO && !l.m.hello.identified)
				continue; /* a short one must not become a full one: below */
			extend(&l, e.layout, e.base);
			fill(&r, e.layout, e.base);
			m = l.m;

			/* Today's to the later one: what it does not hear of is zero. */
			assert_int_equal(wire_encode(&m, out, sizeof out, &len), 0);
			empty_again(&l, &m);
			decode_later(out, len, &l, &e.head, e.base);
			assert_memory_equal(&l.m, &m, sizeof m);
			assert_memory_equal(&l.news, &said[3], sizeof l.news);

			/* The later one to today's, and to itself; zeros at the end are not sent,
			 * but a row of zero bytes is not nothing. */
			for (int k = 0; k < 4; k++) {
				l.news = said[k];
				len = wire__put(out, sizeof out, &e.head, &l.layout, e.base);
				assert_true(len > 0);
				decode_today(out, len, &back);
				assert_memory_equal(&back, &m, sizeof m);
				empty_again(&l, &m);
				decode_later(out, len, &l, &e.head, e.base);
				assert_memory_equal(&l.m, &m, sizeof m);
				assert_memory_equal(&l.news, &said[k], sizeof l.news);
			}
		}
	}
}

/* One that has never heard of what is optional, and cannot send it. */
static void test_today_and_an_earlier_one(void **state)
{
	static struct wire_message m, back;
	struct rng r;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len;
	int optional = 0;
	(void)state;
	rng_seed(&r, 2, 0);
	for (struct each e = {0}; each_message(&e, &m);) {
		struct wire__layout earlier = *e.layout;
		earlier.n = earlier.least;
		fill(&r, &earlier, e.base);
		len = wire__put(out, sizeof out, &e.head, &earlier, e.base);
		assert_true(len > 0);
		decode_today(out, len, &back);
		assert_memory_equal(&back, &m, sizeof m);
		for (int i = earlier.least; i < e.layout->n; i++, optional++) {
			/* Zero must be sayable. */
			assert_true(e.layout->field[i].min == 0 && e.layout->field[i].low <= 0);
			assert_int_equal(e.layout->field[i].extra, 0);
		}
	}
	assert_true(optional >= 2); /* of BUSY and ABORT */
}

/* A short HELLO has room for 4 elements more, and a manifest for as many as it likes. */
static void test_inner_parts(void **state)
{
	struct wire_message back;
	(void)state;
	decode_today((const uint8_t *)"\x98\x40\x02\x05\xc4\x01\x00\xc0\xc0\xc0\xc0", 11, &back);
	assert_false(back.hello.identified);
	assert_int_equal(back.hello.protocol_max, 5);
	decode_today(
	        (const uint8_t *)"\x96\x46\x09\x01\x9c\1\2\3\4\5\6\7\x08\2\x0d\x91\xc0\xc0\x06\x07",
	        20, &back);
	assert_int_equal(back.exchange.fetch.manifest.outer, 2);
	assert_int_equal(back.exchange.fetch.manifest.data, 13);
	assert_true(back.exchange.fetch.manifest.formats == 8 && back.exchange.fetch.offset == 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_today_and_a_later_one),
	        cmocka_unit_test(test_today_and_an_earlier_one),
	        cmocka_unit_test(test_inner_parts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
