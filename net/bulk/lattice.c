/* SPDX-License-Identifier: MIT */
/* Ranges of parameters over the loops of lattice_loops.c, a few blocks at a time: the steps of the
 * blocks, the last block's padding, ranges that begin or end inside a block. */
#include "net/bulk/lattice.h"

#include "agent/base/cores.h"

#include <assert.h>
#include <string.h>

#define AT_ONCE 16 /* blocks */

/* Under M: a scale of 2m or 2m + 1 is at most √2·2^m, and 7·2^(m − 2) is more than that. With 8
 * bits there is room for more: 127·2^(m − 4) is at least 5 M, for the next partner may be much
 * further away than the last one; the rounding is still about a hundredth of the squared distance.
 */
#define UNDER_4 2
#define UNDER_8 4

static const struct lattice_loops *chosen;

void lattice_all(const struct lattice_loops *out[LATTICE_LEVELS + 1])
{
	int n = 0;
	out[n++] = &lattice_base;
#ifdef HAVE_X86_KERNELS
	if (cores_level() >= 3)
		out[n++] = &lattice_v3;
	if (cores_level() >= 4)
		out[n++] = &lattice_v4;
#endif
	out[n] = NULL;
}

static const struct lattice_loops *loops(void)
{
	const struct lattice_loops *all[LATTICE_LEVELS + 1], *best = chosen;
	lattice_all(all);
	for (int i = 0; all[i] && !chosen; i++)
		best = all[i];
	return best;
}

void lattice_use(const struct lattice_loops *l)
{
	chosen = l;
}

static float power(int e)
{
	uint32_t u = (uint32_t)(e + 127) << 23;
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}

/* Of the step. Rounded down: m of 2m + 1. */
static int exponent(const struct lattice *l, size_t block)
{
	int s = l->scale[block >> l->shift];
	int m = (s - (s & 1)) / 2;
	return m - (l->bits == 4 ? UNDER_4 : UNDER_8);
}

float lattice_step(const struct lattice *l, size_t block)
{
	return power(exponent(l, block));
}

static size_t fewer(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The bits of NaN and infinities are larger than any number's. */
static bool is_finite(uint32_t top)
{
	return top < 0x7f800000u;
}

/* 2^31 steps and more do not fit into 32 bits. */
static bool fits(uint32_t top, float inverse)
{
	float largest;
	memcpy(&largest, &top, sizeof largest);
	return largest * inverse < 2147483520.0f;
}

/* Another sum than that of the parameters. */
static void spoil(uint8_t *record)
{
	for (int i = 0; i < LATTICE_SUM_BYTES; i++)
		record[i] ^= 0x5a;
}

static void join_size(int8_t *size, uint32_t top)
{
	float largest;
	memcpy(&largest, &top, sizeof largest);
	int8_t s = scales_of(largest);
	*size = s > *size ? s : *size;
}

/* At most AT_ONCE whole blocks. */
static bool pack_some(const struct lattice *l, uint8_t *records, const float *x, size_t block,
        size_t blocks, int8_t *size)
{
	float inverse[AT_ONCE];
	uint32_t top[AT_ONCE];
	bool good = true;
	for (size_t b = 0; b < blocks; b++)
		inverse[b] = power(-exponent(l, block + b));
	loops()->pack(l->bits, records, top, x, inverse, blocks);
	for (size_t b = 0; b < blocks; b++) {
		good = good && is_finite(top[b]);
		if (!fits(top[b], inverse[b]))
			spoil(records + b * lattice_record(l->bits));
		if (size)
			join_size(&size[(block + b) >> l->shift], top[b]);
	}
	return good;
}

bool lattice_pack(const struct lattice *l, uint8_t *records, const float *x, size_t first, size_t n,
        int8_t *size)
{
	size_t block = first / LATTICE_BLOCK, whole = n / LATTICE_BLOCK, k;
	bool good = true;
	assert(first % LATTICE_BLOCK == 0 && first + n <= l->count);
	assert(n % LATTICE_BLOCK == 0 || first + n == l->count);
	for (size_t b = 0; b < whole; b += k) {
		k = fewer(whole - b, AT_ONCE);
		good = pack_some(l, records + b * lattice_record(l->bits), x + b * LATTICE_BLOCK,
		               block + b, k, size) &&
		       good;
	}
	if (n % LATTICE_BLOCK > 0) {
		float last[LATTICE_BLOCK] = {0};
		memcpy(last, x + whole * LATTICE_BLOCK, n % LATTICE_BLOCK * sizeof *x);
		good = pack_some(l, records + whole * lattice_record(l->bits), last, block + whole,
		               1, size) &&
		       good;
	}
	return good;
}

int8_t lattice_scale(const struct lattice *l, size_t block, const struct lattice_found *found)
{
	if (found->top == LATTICE_WRAPPED)
		return SCALES_WRAPPED;
	if (found->top <= 1)
		return SCALES_LEAST;
	return scales_of(1.25f * lattice_step(l, block) * (float)found->top);
}

void lattice_take(const struct lattice *l, uint8_t *difference, struct lattice_found *found,
        const uint8_t *theirs, const uint8_t *ours, size_t blocks)
{
	loops()->take(l->bits, difference, found, theirs, ours, blocks);
}

void lattice_unpack(
        const struct lattice *l, float *out, const uint8_t *difference, size_t first, size_t n)
{
	const size_t len = 32 * (size_t)l->bits;
	size_t k;
	assert(first + n <= l->count);
	for (size_t at = first, end = first + n; at < end; at += k, out += k) {
		size_t block = at / LATTICE_BLOCK, inside = at % LATTICE_BLOCK;
		size_t blocks = fewer((end - at) / LATTICE_BLOCK, AT_ONCE);
		float step[AT_ONCE], part[LATTICE_BLOCK];
		if (inside > 0 || blocks == 0) {
			step[0] = lattice_step(l, block);
			k = fewer(LATTICE_BLOCK - inside, end - at);
			loops()->unpack(l->bits, part, difference + block * len, step, 1);
			memcpy(out, part + inside, k * sizeof *out);
			continue;
		}
		for (size_t b = 0; b < blocks; b++)
			step[b] = lattice_step(l, block + b);
		k = blocks * LATTICE_BLOCK;
		loops()->unpack(l->bits, out, difference + block * len, step, blocks);
	}
}
