/* SPDX-License-Identifier: MIT */
/* The loops over parameters at every level that this processor has, against plain arithmetic: all
 * bf16 words, ties, NaN and infinities, tails of any length, words that are not aligned. */
#include "net/bulk/convert.h"

#include "agent/base/rng.h"
#include "tests/support.h"

#include <math.h>

static uint32_t bits_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static float float_of(uint32_t u)
{
	float x;
	memcpy(&x, &u, sizeof x);
	return x;
}

/* Every level in turn. */
#define FOR_LEVELS(c)                                      \
	const struct convert *levels_[CONVERT_LEVELS + 1]; \
	convert_all(levels_);                              \
	for (const struct convert *const *at_ = levels_, *c; (c = *at_) != NULL; at_++)

/* The nearest of the two bf16 neighbours, found by distance in double; ties to the even one. */
static uint16_t nearest_bf16(float x)
{
	uint16_t below = (uint16_t)(bits_of(x) >> 16), above = (uint16_t)(below + 1);
	double lo = (double)float_of((uint32_t)below << 16);
	double hi = (double)float_of((uint32_t)above << 16);
	if (isinf(hi)) /* as if the exponent went on */
		hi = copysign(ldexp(1, 128), hi);
	double to_lo = fabs((double)x - lo), to_hi = fabs(hi - (double)x);
	if (to_lo == to_hi)
		return below & 1 ? above : below;
	return to_lo < to_hi ? below : above;
}

static void test_rounding(void **state)
{
	(void)state;
	enum { N = 4096 };
	static float in[N];
	static uint8_t wire[2 * N];
	struct rng r;
	rng_seed(&r, 1, 0);
	for (size_t i = 0; i < N; i++) {
		uint32_t u;
		do
			u = (uint32_t)rng_u64(&r);
		while ((u & 0x7f800000u) == 0x7f800000u);
		if (i % 4 == 0)
			u = (u & 0xffff0000u) | 0x8000u; /* a tie */
		if (i % 4 == 1)
			u = (u & 0xffff0000u) | (0x7fffu + (u & 2)); /* beside one */
		in[i] = float_of(u);
	}
	in[0] = float_of(0x7f7fffffu); /* the largest fp32 is over the largest bf16 */
	in[1] = float_of(0x00000001u);
	in[2] = float_of(0x80000000u);
	FOR_LEVELS(c)
	{
		memset(wire, 0, sizeof wire);
		c->pack(CONVERT_BF16, wire, in, N);
		for (size_t i = 0; i < N; i++) {
			uint16_t got;
			memcpy(&got, wire + 2 * i, 2);
			assert_int_equal(got, nearest_bf16(in[i]));
		}
		assert_int_equal(wire[0] | wire[1] << 8, 0x7f80);
	}
}

static void test_not_numbers_stay(void **state)
{
	(void)state;
	const uint32_t odd[] = {0x7fffffffu, 0x7f800001u, 0xffffffffu, 0xff800001u, 0x7f80ffffu,
	        0x7f800000u, 0xff800000u};
	enum { N = sizeof odd / sizeof *odd };
	float in[N];
	uint8_t wire[2 * N];
	memcpy(in, odd, sizeof in);
	FOR_LEVELS(c)
	{
		c->pack(CONVERT_BF16, wire, in, N);
		for (size_t i = 0; i < N; i++) {
			uint16_t half;
			memcpy(&half, wire + 2 * i, 2);
			float back = float_of((uint32_t)half << 16);
			assert_true(isnan(in[i]) ? isnan(back) : isinf(back));
			assert_int_equal(signbit(in[i]) != 0, signbit(back) != 0);
		}
	}
}

/* All 65,536 words: each is what it was after a way there and back, and finite or not as libm says.
 */
static void test_every_bf16(void **state)
{
	(void)state;
	FOR_LEVELS(c)
	for (uint32_t half = 0; half < 0x10000u; half++) {
		struct convert_sums sums = {0};
		uint16_t word = (uint16_t)half, again;
		float y;
		c->take(CONVERT_BF16, &y, (const uint8_t *)&word, NULL, 1, TAKE_WORDS, &sums);
		assert_int_equal(bits_of(y), half << 16);
		assert_int_equal(convert_finite(&sums), isfinite(y) != 0);
		c->pack(CONVERT_BF16, (uint8_t *)&again, &y, 1);
		if (!isnan(y))
			assert_int_equal(again, word);
	}
}

/* take and add for n parameters, one byte off any alignment, against the formula. */
static void check_exchange(const struct convert *c, enum convert_format f, size_t n)
{
	struct rng r;
	float *y = calloc(n, sizeof *y), *s = calloc(n, sizeof *s), *x = calloc(n, sizeof *x);
	float *got = calloc(n + 1, sizeof *got);
	uint8_t *wire = malloc(4 * n + 1), *w = wire + 1;
	uint8_t *ours = malloc(4 * n + 1), *o = ours + 1;
	assert_true(y && s && x && got && wire && ours);
	rng_seed(&r, n, (uint64_t)f);
	for (size_t i = 0; i < n; i++) {
		y[i] = 8 * rng_f32(&r) - 4;
		s[i] = 8 * rng_f32(&r) - 4;
		x[i] = 8 * rng_f32(&r) - 4;
	}
	c->pack(f, w, y, n);
	c->pack(f, o, s, n);

	double distance2 = 0;
	float *delta = calloc(n, sizeof *delta), *q = calloc(n, sizeof *q);
	assert_true(delta && q);
	for (size_t i = 0; i < n; i++) {
		q[i] = f == CONVERT_BF16 ? float_of((uint32_t)nearest_bf16(y[i]) << 16) : y[i];
		float qs = f == CONVERT_BF16 ? float_of((uint32_t)nearest_bf16(s[i]) << 16) : s[i];
		delta[i] = q[i] - qs;
		distance2 += (double)delta[i] * (double)delta[i];
	}
	for (enum convert_take how = TAKE_WORDS; how <= TAKE_UNMEASURED; how++) {
		struct convert_sums sums = {0};
		got[n] = 77;
		c->take(f, got, w, o, n, how, &sums);
		assert_memory_equal(got, how != TAKE_WORDS ? delta : q, n * sizeof *got);
		assert_true(got[n] == 77);
		if (how == TAKE_UNMEASURED)
			assert_true(sums.distance2 == 0);
		else
			assert_true(fabs(sums.distance2 - distance2) <= 1e-12 * distance2);
		assert_true(convert_finite(&sums));
	}
	memcpy(got, x, n * sizeof *x);
	c->add(got, delta, 0.25f, n);
	for (size_t i = 0; i < n; i++)
		assert_true(fabsf(got[i] - (x[i] + 0.25f * delta[i])) <= 1e-6f);
	free(y), free(s), free(x), free(got), free(wire), free(ours), free(delta), free(q);
}

static void test_exchange(void **state)
{
	(void)state;
	static const size_t counts[] = {1, 2, 15, 16, 17, 31, 33, 1023, 1024, 1025, 5000};
	FOR_LEVELS(c)
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int f = 0; f < CONVERT_WORDS; f++)
			check_exchange(c, (enum convert_format)f, counts[i]);
}

/* One bad word anywhere, of any kind, is seen. */
static void test_finite(void **state)
{
	(void)state;
	enum { N = 1100 };
	static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff810000u};
	static float y[N], out[N];
	static uint8_t wire[4 * N], ours[4 * N];
	FOR_LEVELS(c)
	for (int f = 0; f < CONVERT_WORDS; f++)
		for (size_t at = 0; at < N; at += 7)
			for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
				struct convert_sums sums = {0};
				y[at] = float_of(bad[k]);
				c->pack((enum convert_format)f, wire, y, N);
				y[at] = 0;
				c->take((enum convert_format)f, out, wire, ours, N, TAKE_WORDS,
				        &sums);
				assert_false(convert_finite(&sums));
			}
}

/* Two huge numbers are finite, their difference is not: the sum tells. */
static void test_overflow(void **state)
{
	(void)state;
	float y = 3e38f, s = -3e38f, out;
	FOR_LEVELS(c)
	{
		struct convert_sums sums = {0};
		c->take(CONVERT_FP32, &out, (const uint8_t *)&y, (const uint8_t *)&s, 1,
		        TAKE_DIFFERENCE, &sums);
		assert_true(convert_finite(&sums));
		assert_true(isinf(sums.distance2) != 0);
	}
}

/* What one side gains the other loses: with sums that are exact, the mean stays to the bit. */
static void test_mean_stays(void **state)
{
	(void)state;
	enum { N = 64 };
	float a[N], b[N], a0[N], b0[N], to_a[N], to_b[N];
	uint8_t wire_a[4 * N], wire_b[4 * N];
	struct convert_sums sums_a = {0}, sums_b = {0};
	const struct convert *c = convert_best();
	for (int f = 0; f < CONVERT_WORDS; f++) {
		for (int i = 0; i < N; i++) {
			a0[i] = a[i] = (float)(i * 37 % 64) + 0.001953125f * (float)i;
			b0[i] = b[i] = (float)(i * 11 % 64) - 0.00390625f * (float)i;
		}
		c->pack((enum convert_format)f, wire_a, a, N);
		c->pack((enum convert_format)f, wire_b, b, N);
		c->take((enum convert_format)f, to_a, wire_b, wire_a, N, TAKE_DIFFERENCE, &sums_a);
		c->take((enum convert_format)f, to_b, wire_a, wire_b, N, TAKE_DIFFERENCE, &sums_b);
		c->add(a, to_a, 0.5f, N);
		c->add(b, to_b, 0.5f, N);
		for (int i = 0; i < N; i++) {
			assert_true(to_a[i] == -to_b[i]);
			assert_true(a[i] + b[i] == a0[i] + b0[i]);
		}
		assert_true(sums_a.distance2 == sums_b.distance2);
	}
}

/* Small or large, all of it is there; what cannot be is NULL. */
static void test_vector(void **state)
{
	(void)state;
	static const size_t counts[] = {1, 524287, 524288, 524289, 3000001};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		float *v = convert_vector(counts[i]);
		assert_non_null(v);
		memset(v, 1, counts[i] * sizeof *v);
		free(v);
	}
	assert_null(convert_vector(SIZE_MAX));
	assert_null(convert_vector(SIZE_MAX / sizeof(float)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rounding),
	        cmocka_unit_test(test_not_numbers_stay),
	        cmocka_unit_test(test_every_bf16),
	        cmocka_unit_test(test_exchange),
	        cmocka_unit_test(test_finite),
	        cmocka_unit_test(test_overflow),
	        cmocka_unit_test(test_mean_stays),
	        cmocka_unit_test(test_vector),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
