/* SPDX-License-Identifier: MIT */
/* Loops that the compiler vectorises, as in model/cpu/kernels.c: one text without intrinsics, built
 * once for each level of the processor, with `restrict` and a fixed number of lanes to make it
 * possible. Every sum is taken lane by lane in the order written here.
 *
 * A received chunk is looked at once while it is in the cache: converted, its largest magnitude
 * found (an unsigned maximum of the bits without the sign, which is at the same time the check for
 * NaN and infinities: their exponent makes them larger than any number), our
 * snapshot subtracted and the squares summed. Differences are single precision, since those are
 * what will be added; squares are doubles, which cannot overflow however many there are.
 *
 * KERNELS_SUFFIX names the table that this compilation defines. */
#include "net/bulk/convert.h"

#include <string.h>

#define LANES 8
#define ROUNDED 16 /* at once: what makes gcc use its widest registers */

/* The processor's own prefetching stops at the end of a page: its successor is asked for here. */
#define PAGE_BYTES 4096

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
#define QUIET 0x00400000u

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS uint32_t bits_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

ALWAYS float float_of(uint32_t u)
{
	float x;
	memcpy(&x, &u, sizeof x);
	return x;
}

/* The nearest bf16, as the upper half of the word; the lower half is noise. Adding just under half
 * of the last place, and one more if that place is odd, carries exactly when rounding up is due. A
 * NaN must not be carried into the sign; chosen by a mask, which every compiler vectorises. */
ALWAYS uint32_t round_bf16(float x)
{
	uint32_t u = bits_of(x);
	uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
	uint32_t nan = 0u - ((u & ~SIGN) > INFINITE);
	return (rounded & ~nan) | ((u | QUIET) & nan);
}

ALWAYS uint32_t word(enum convert_format f, const uint8_t *wire, size_t i)
{
	if (f == CONVERT_BF16) {
		uint16_t half;
		memcpy(&half, wire + 2 * i, sizeof half);
		return (uint32_t)half << 16;
	}
	uint32_t u;
	memcpy(&u, wire + 4 * i, sizeof u);
	return u;
}

/* The bytes need not be ours: a prefetch reads nothing. */
ALWAYS void prefetch(const void *p, bool to_write)
{
	const void *next = (const void *)((uintptr_t)p + PAGE_BYTES);
	if (to_write)
		__builtin_prefetch(next, 1);
	else
		__builtin_prefetch(next, 0);
}

ALWAYS uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

ALWAYS void put_bf16(uint8_t *wire, size_t i, float s)
{
	uint16_t half = (uint16_t)(round_bf16(s) >> 16);
	memcpy(wire + 2 * i, &half, sizeof half);
}

static void pack(enum convert_format f, uint8_t *restrict wire, const float *restrict s, size_t n)
{
	if (f == CONVERT_FP32) {
		memcpy(wire, s, n * sizeof *s);
		return;
	}
	size_t whole = n - n % ROUNDED;
	for (size_t i = 0; i < whole; i += ROUNDED) {
		prefetch(s + i, false);
		for (size_t l = 0; l < ROUNDED; l++)
			put_bf16(wire, i + l, s[i + l]);
	}
	for (size_t i = whole; i < n; i++)
		put_bf16(wire, i, s[i]);
}

/* f and the three choices are constants where this is used. A row of short loops over the lanes:
 * the compiler makes each a few instructions, where it gives up on all of them in one. */
ALWAYS void take_all(enum convert_format f, bool compare, bool difference, bool measure,
        float *restrict out, const uint8_t *restrict wire, const uint8_t *restrict ours, size_t n,
        struct convert_sums *restrict sums)
{
	double sum[LANES] = {0};
	uint32_t top[LANES] = {0};
	size_t whole = n - n % LANES;
	for (size_t i = 0; i < whole; i += LANES) {
		uint32_t u[LANES];
		float d[LANES] = {0};
		if (compare)
			prefetch(ours + i * convert_word(f), false);
		prefetch(out + i, true);
		for (size_t l = 0; l < LANES; l++)
			u[l] = word(f, wire, i + l);
		for (size_t l = 0; l < LANES; l++)
			top[l] = larger(top[l], u[l] & ~SIGN);
		for (size_t l = 0; compare && l < LANES; l++)
			d[l] = float_of(u[l]) - float_of(word(f, ours, i + l));
		for (size_t l = 0; measure && l < LANES; l++)
			sum[l] += (double)d[l] * (double)d[l];
		for (size_t l = 0; l < LANES; l++)
			out[i + l] = difference ? d[l] : float_of(u[l]);
	}
	for (size_t i = whole; i < n; i++) {
		uint32_t u = word(f, wire, i);
		float d = compare ? float_of(u) - float_of(word(f, ours, i)) : 0;
		top[0] = larger(top[0], u & ~SIGN);
		sum[0] += measure ? (double)d * (double)d : 0;
		out[i] = difference ? d : float_of(u);
	}
	for (size_t l = 0; l < LANES; l++) {
		sums->distance2 += sum[l];
		sums->top = larger(sums->top, top[l]);
	}
}

ALWAYS void take_format(enum convert_format f, float *out, const uint8_t *wire, const uint8_t *ours,
        size_t n, enum convert_take how, struct convert_sums *sums)
{
	if (how == TAKE_UNMEASURED)
		take_all(f, true, true, false, out, wire, ours, n, sums);
	else if (how == TAKE_DIFFERENCE)
		take_all(f, true, true, true, out, wire, ours, n, sums);
	else if (ours)
		take_all(f, true, false, true, out, wire, ours, n, sums);
	else
		take_all(f, false, false, false, out, wire, ours, n, sums);
}

static void take(enum convert_format f, float *out, const uint8_t *wire, const uint8_t *ours,
        size_t n, enum convert_take how, struct convert_sums *sums)
{
	if (f == CONVERT_BF16)
		take_format(CONVERT_BF16, out, wire, ours, n, how, sums);
	else
		take_format(CONVERT_FP32, out, wire, ours, n, how, sums);
}

static void add(float *restrict x, const float *restrict difference, float k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += k * difference[i];
}

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

const struct convert PASTE(convert_, KERNELS_SUFFIX) = {
        .name = TEXT(KERNELS_SUFFIX),
        .pack = pack,
        .take = take,
        .add = add,
};
