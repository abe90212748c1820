/* SPDX-License-Identifier: MIT */
/* Which wire format an agent offers, and why. */
#include "gossip/policy/format.h"

#include "gossip/exchange/exchange.h"
#include "tests/support.h"

#define FP32 0
#define BF16 1
#define MOD8 2
#define MOD4 3
#define LATTICES (1 << MOD8 | 1 << MOD4)
#define ALL 15
#define PLAIN 3 /* of an agent that cannot pack */

static void chosen(int stated, uint64_t accepted, uint8_t mode, int format, enum format_why why)
{
	struct format_choice c = format_choose(&(struct format_config){.stated = stated,
	        .accepted = accepted,
	        .scaled = LATTICES,
	        .fine = MOD8,
	        .plain = BF16,
	        .mode = mode});
	assert_int_equal(c.format, format);
	assert_int_equal(c.why, why);
}

static void test_automatic(void **state)
{
	(void)state;
	chosen(FORMAT_AUTO, ALL, EXCHANGE_PAIR, MOD8, FORMAT_PACKS);
	chosen(FORMAT_AUTO, PLAIN, EXCHANGE_PAIR, BF16, FORMAT_UNPACKED);
	chosen(FORMAT_AUTO, ALL, EXCHANGE_PUSH, BF16, FORMAT_ONE_WAY);
	chosen(FORMAT_AUTO, PLAIN, EXCHANGE_PULL, BF16, FORMAT_ONE_WAY);
}

/* What is stated is taken wherever it can be. */
static void test_stated(void **state)
{
	(void)state;
	for (int format = 0; format < 4; format++)
		chosen(format, ALL, EXCHANGE_PAIR, format, FORMAT_STATED);
	for (uint8_t mode = EXCHANGE_PUSH; mode <= EXCHANGE_PULL; mode++) {
		chosen(FP32, PLAIN, mode, FP32, FORMAT_STATED);
		chosen(MOD4, ALL, mode, BF16, FORMAT_ONE_WAY);
	}
	chosen(MOD8, PLAIN, EXCHANGE_PAIR, BF16, FORMAT_UNPACKED);
	chosen(BF16, PLAIN, EXCHANGE_PAIR, BF16, FORMAT_STATED);
}

static void test_every_reason_has_a_word(void **state)
{
	(void)state;
	for (int a = 0; a < FORMAT_WHYS; a++) {
		assert_true(format_why_text((enum format_why)a)[0]);
		for (int b = 0; b < a; b++)
			assert_string_not_equal(format_why_text((enum format_why)a),
			        format_why_text((enum format_why)b));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_automatic),
	        cmocka_unit_test(test_stated),
	        cmocka_unit_test(test_every_reason_has_a_word),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
