/* SPDX-License-Identifier: MIT */
/* Loops that the compiler vectorises, built once for each level of the processor like
 * convert_loops.c; KERNELS_SUFFIX names the table that this compilation defines.
 *
 * A block of 256 deltas as bytes stays in the first-level cache between short loops over it. In a
 * block of 4 bits, 16 bytes hold 32 parameters in a row, so that no lane crosses another. Weights
 * belong to places of the packed block, all low nibbles first. As two signed 16-bit halves they
 * make the check two multiply-adds of 16-bit pairs. x86 has no shifts of bytes, hence masks. */
#include "net/bulk/lattice.h"

#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define BLOCK LATTICE_BLOCK
#define HALF 16
#define PAGE_BYTES 4096
#define CACHE_LINE 64

/* Odd and well mixed, so that a wrapped block passes with a chance of about 2^-32. Numbers of the
 * protocol: weight of place i = mix(i + 1), see PROTOCOL.md. */
#define MIX1(i) (((uint32_t)(i) + 1u) * 0x9e3779b9u)
#define MIX2(u) (((u) ^ (u) >> 15) * 0x85ebca6bu)
#define WEIGHT(i) ((MIX2(MIX1(i)) ^ MIX2(MIX1(i)) >> 13) | 1u)
#define LOW(i) ((int16_t)(WEIGHT(i) & 0xffffu))
#define HIGH(i) ((int16_t)((WEIGHT(i) - (uint32_t)(int32_t)LOW(i)) >> 16))
#define FOUR(W, i) W(i), W((i) + 1), W((i) + 2), W((i) + 3)
#define SIXTEEN(W, i) FOUR(W, i), FOUR(W, (i) + 4), FOUR(W, (i) + 8), FOUR(W, (i) + 12)
#define SIXTY(W, i) SIXTEEN(W, i), SIXTEEN(W, (i) + 16), SIXTEEN(W, (i) + 32), SIXTEEN(W, (i) + 48)
#define ALL(W) SIXTY(W, 0), SIXTY(W, 64), SIXTY(W, 128), SIXTY(W, 192)

static const uint32_t weight[BLOCK] = {ALL(WEIGHT)};
static const int16_t weight_low[BLOCK] = {ALL(LOW)}, weight_high[BLOCK] = {ALL(HIGH)};

/* The hardware's prefetching stops at the end of a page. The bytes need not be ours. */
ALWAYS void ahead(const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += CACHE_LINE)
		__builtin_prefetch((const void *)((uintptr_t)p + PAGE_BYTES + i));
}

/* The nearest number, ties to even; what is none, or too large, becomes some number. gcc has an
 * instruction for that; elsewhere such a conversion is not defined, so it is kept from it. */
ALWAYS int32_t nearest(float x)
{
#if defined(__GNUC__) && !defined(__clang__)
	return __builtin_irintf(x);
#else
	x = x < 2147483520.0f ? x : 2147483520.0f;
	x = x > -2147483520.0f ? x : -2147483520.0f;
	return (int32_t)__builtin_rintf(x);
#endif
}

/* Signed, since the first level has a maximum of no other 32-bit numbers. */
ALWAYS int32_t magnitude(float x)
{
	int32_t u;
	memcpy(&u, &x, sizeof u);
	return u & 0x7fffffff;
}

ALWAYS void pack_any(int bits, uint8_t *restrict out, uint32_t *restrict top,
        const float *restrict x, const float *restrict inverse, size_t blocks)
{
	for (size_t b = 0; b < blocks; b++, x += BLOCK, out += LATTICE_SUM_BYTES + 32 * bits) {
		uint8_t *restrict to = out + LATTICE_SUM_BYTES;
		uint32_t sum = 0;
		int32_t most = 0;
		float inv = inverse[b];
		ahead(x, BLOCK * sizeof *x);
		for (int i = 0; i < BLOCK; i++) {
			int32_t m = magnitude(x[i]);
			most = m > most ? m : most;
		}
		for (int i = 0; bits == 8 && i < BLOCK; i++) {
			int32_t q = nearest(x[i] * inv);
			sum += weight[i] * (uint32_t)q;
			to[i] = (uint8_t)q;
		}
		for (int j = 0; bits == 4 && j < BLOCK / 2; j += HALF)
			for (int i = j; i < j + HALF; i++) {
				uint32_t q = (uint32_t)nearest(x[i + j] * inv);
				uint32_t r = (uint32_t)nearest(x[i + j + HALF] * inv);
				sum += weight[i] * q + weight[i + BLOCK / 2] * r;
				to[i] = (uint8_t)((q & 15) | (r & 15) << 4);
			}
		memcpy(out, &sum, sizeof sum);
		top[b] = (uint32_t)most;
	}
}

/* −2^(bits − 1) has no opposite: 0 at both, where the sums then disagree. */
ALWAYS void subtract(int bits, int8_t *restrict d, const uint8_t *theirs, const uint8_t *ours)
{
	for (int i = 0; bits == 8 && i < BLOCK; i++) {
		uint8_t v = (uint8_t)(theirs[i] - ours[i]);
		d[i] = (int8_t)(v == 128 ? 0 : v);
	}
	for (int i = 0; bits == 4 && i < BLOCK / 2; i++) {
		uint8_t low = (uint8_t)(theirs[i] - ours[i]) & 15;
		uint8_t high = (uint8_t)((theirs[i] & 0xf0) - (ours[i] & 0xf0)) >> 4;
		low = low == 8 ? 0 : low;
		high = high == 8 ? 0 : high;
		d[i] = (int8_t)((low ^ 8) - 8);
		d[i + BLOCK / 2] = (int8_t)((high ^ 8) - 8);
	}
}

ALWAYS void store(int bits, uint8_t *restrict out, const int8_t *restrict d)
{
	if (bits == 8)
		memcpy(out, d, BLOCK);
	for (int i = 0; bits == 4 && i < BLOCK / 2; i++)
		out[i] = (uint8_t)((d[i] & 15) | (d[i + BLOCK / 2] & 15) << 4);
}

ALWAYS void take_any(int bits, uint8_t *restrict difference, struct lattice_found *restrict found,
        const uint8_t *theirs, const uint8_t *ours, size_t blocks)
{
	const size_t len = 32 * (size_t)bits, record = LATTICE_SUM_BYTES + len;
	for (size_t b = 0; b < blocks; b++, theirs += record, ours += record, difference += len) {
		int8_t d[BLOCK];
		int32_t low = 0, high = 0, squares = 0;
		uint8_t top = 0;
		uint32_t their_sum, our_sum;
		memcpy(&their_sum, theirs, sizeof their_sum);
		memcpy(&our_sum, ours, sizeof our_sum);
		ahead(ours, record);
		subtract(bits, d, theirs + LATTICE_SUM_BYTES, ours + LATTICE_SUM_BYTES);
		for (int i = 0; i < BLOCK; i++) {
			low += (int32_t)weight_low[i] * (int16_t)d[i];
			high += (int32_t)weight_high[i] * (int16_t)d[i];
			squares += (int32_t)(int16_t)d[i] * (int16_t)d[i];
		}
		for (int i = 0; i < BLOCK; i++) {
			uint8_t a = (uint8_t)(d[i] < 0 ? -d[i] : d[i]);
			top = a > top ? a : top;
		}
		if (their_sum - our_sum != (uint32_t)low + ((uint32_t)high << 16)) {
			top = LATTICE_WRAPPED;
			squares = 0;
			memset(d, 0, sizeof d);
		}
		store(bits, difference, d);
		found[b] = (struct lattice_found){.top = top, .squares = squares};
	}
}

/* Bytes first: wider lanes would cost four times as much. */
ALWAYS void unpack_any(int bits, float *restrict out, const uint8_t *restrict difference,
        const float *restrict step, size_t blocks)
{
	for (size_t b = 0; b < blocks; b++, out += BLOCK, difference += 32 * bits) {
		float s = step[b];
		int8_t d[BLOCK];
		if (bits == 8)
			memcpy(d, difference, BLOCK);
		for (int j = 0; bits == 4 && j < BLOCK / 2; j += HALF)
			for (int i = j; i < j + HALF; i++) {
				d[i + j] = (int8_t)(((difference[i] & 15) ^ 8) - 8);
				d[i + j + HALF] = (int8_t)(((difference[i] >> 4) ^ 8) - 8);
			}
		for (int i = 0; i < BLOCK; i++)
			out[i] = s * (float)d[i];
	}
}

/* ---- one copy for each width */

static void pack(int bits, uint8_t *records, uint32_t *top, const float *x, const float *inverse,
        size_t blocks)
{
	if (bits == 4)
		pack_any(4, records, top, x, inverse, blocks);
	else
		pack_any(8, records, top, x, inverse, blocks);
}

static void take(int bits, uint8_t *difference, struct lattice_found *found, const uint8_t *theirs,
        const uint8_t *ours, size_t blocks)
{
	if (bits == 4)
		take_any(4, difference, found, theirs, ours, blocks);
	else
		take_any(8, difference, found, theirs, ours, blocks);
}

static void unpack(
        int bits, float *out, const uint8_t *difference, const float *step, size_t blocks)
{
	if (bits == 4)
		unpack_any(4, out, difference, step, blocks);
	else
		unpack_any(8, out, difference, step, blocks);
}

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

const struct lattice_loops PASTE(lattice_, KERNELS_SUFFIX) = {
        .name = TEXT(KERNELS_SUFFIX),
        .pack = pack,
        .take = take,
        .unpack = unpack,
};
