/* SPDX-License-Identifier: MIT */
/* The scales of lattices: what they stand for, what two agents make of theirs, what an exchange
 * teaches. */
#include "gossip/exchange/scales.h"
#include "tests/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_sizes(void **state)
{
	(void)state;
	for (int s = SCALES_LEAST; s < SCALES_MOST; s++) {
		double m = pow(2, s / 2.0);
		assert_int_equal(scales_of((float)(m * (1 - 1e-6))), s);
		assert_int_equal(scales_of((float)(m * (1 + 1e-6))), s + 1);
	}
	assert_int_equal(scales_of(0), SCALES_LEAST);
	assert_int_equal(scales_of(INFINITY), SCALES_MOST);
}

static void test_runs(void **state)
{
	(void)state;
	assert_int_equal(scales_shift(1), 0);
	assert_int_equal(scales_count(1), 1);
	assert_int_equal(scales_count(SCALES_BLOCK), 1);
	assert_int_equal(scales_count(SCALES_BLOCK + 1), 2);
	assert_int_equal(scales_count(SCALES_MAX * SCALES_BLOCK), SCALES_MAX);
	assert_int_equal(scales_shift(SCALES_MAX * SCALES_BLOCK), 0);
	assert_int_equal(scales_shift(SCALES_MAX * SCALES_BLOCK + 1), 1);
	assert_int_equal(scales_count(SCALES_MAX * SCALES_BLOCK + 1), SCALES_MAX / 2 + 1);
	/* The last run of eight blocks has but one. */
	assert_int_equal(scales_shift(8 * SCALES_MAX * SCALES_BLOCK), 3);
	assert_int_equal(scales_count((8 * SCALES_MAX - 15) * SCALES_BLOCK), SCALES_MAX - 1);
	assert_true(scales_count(SIZE_MAX / 4) <= SCALES_MAX);
}

/* Whatever a peer says, both agree, within the bounds, at most four octaves over the lower. */
static void test_agreement(void **state)
{
	(void)state;
	int8_t ab[256], ba[256], other[256];
	for (int a = -128; a < 128; a++) {
		int8_t own[256];
		for (int i = 0; i < 256; i++) {
			own[i] = (int8_t)a;
			other[i] = (int8_t)(i - 128);
		}
		scales_agree(ab, own, other, 256);
		scales_agree(ba, other, own, 256);
		assert_memory_equal(ab, ba, 256);
		for (int i = 0; i < 256; i++) {
			assert_in_range(ab[i] + 200, SCALES_LEAST + 200, SCALES_MOST + 200);
			if (a >= SCALES_LEAST)
				assert_true(ab[i] <= a + SCALES_ABOVE);
			if (abs(a - other[i]) <= SCALES_ABOVE && ab[i] > SCALES_LEAST &&
			        ab[i] < SCALES_MOST)
				assert_int_equal(ab[i], a > other[i] ? a : other[i]);
		}
	}
}

static void test_learning(void **state)
{
	(void)state;
	struct scales s = {0};
	int8_t found[3] = {10, 4, -100}, size[3] = {12, 12, 12}, used[3];
	scales_learn(&s, found, size, NULL, 3, true); /* begins with what is usual */
	scales_learn(&s, found, size, found, 3, false);
	assert_int_equal(s.n, 0);
	scales_learn(&s, found, size, NULL, 3, false);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.scale[0], 10);
	assert_int_equal(s.scale[1], 4);
	assert_int_equal(s.scale[2], -14); /* 24 under the largest */
	memcpy(used, s.scale, sizeof used);
	found[0] = 20;  /* up at once */
	found[1] = -50; /* down by little */
	found[2] = SCALES_WRAPPED;
	scales_learn(&s, found, size, used, 3, false);
	assert_int_equal(s.scale[0], 20);
	assert_int_equal(s.scale[1], 3);
	assert_int_equal(s.scale[2], -4); /* four times as large is −10, but 24 under 20 */
	for (int i = 0; i < 300; i++) { /* nothing moves any more */
		memset(found, SCALES_LEAST, sizeof found);
		scales_learn(&s, found, size, used, 3, false);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(s.scale[i], 12 - 40);
}

/* What a peer says of its own scales, of a wrap that was none, or by parameters that were clipped,
 * makes ours four times as large at most, and never smaller at once. */
static void test_what_a_peer_can_do_to_scales(void **state)
{
	(void)state;
	static const struct {
		int8_t found, used;
		bool clipped;
		int next;
	} cases[] = {
	        {SCALES_WRAPPED, 0, false, 4},
	        {SCALES_WRAPPED, SCALES_ABOVE, false, 4}, /* the peer's was larger */
	        {SCALES_WRAPPED, -2, false, 2},           /* smaller */
	        {SCALES_WRAPPED, SCALES_LEAST + SCALES_ABOVE, false, 0},
	        {9, SCALES_ABOVE, false, 9},
	        {9, SCALES_ABOVE, true, 4},
	        {3, SCALES_ABOVE, true, 3},
	        {-9, 0, true, -1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct scales s = {.n = 1};
		const int8_t size = 30;
		scales_learn(&s, &cases[i].found, &size, &cases[i].used, 1, cases[i].clipped);
		assert_int_equal(s.scale[0], cases[i].next);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_sizes),
	        cmocka_unit_test(test_runs),
	        cmocka_unit_test(test_agreement),
	        cmocka_unit_test(test_learning),
	        cmocka_unit_test(test_what_a_peer_can_do_to_scales),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
