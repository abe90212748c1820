/* SPDX-License-Identifier: MIT */
/* Parameters as multiples of a step, sent modulo 2^bits: the formats mod8 and mod4. A step is a
 * power of two, the same at both agents of a pair, and belongs to a run of blocks of 256
 * parameters; the last block is padded with zeros.
 *
 *     we pack      q = round(x / step)           on the wire: q mod 2^bits, and for each block
 *                                                Σ weight·q modulo 2^32
 *     we receive   δ = (theirs − ours) mod 2^bits, the value nearest to 0;  D = step·δ
 *     we apply     x += k·D
 *
 * The peer computes −δ from the same bytes, so the two move by opposite amounts and the sum of both
 * vectors stays, however coarse the step is. If two parameters are further apart than half the
 * lattice, δ is wrong by a multiple of 2^bits ("wrapped"). The block's sums then disagree, at both
 * agents alike: both have the same four numbers. Such a block is left out by both, without a
 * message about it. So is one that holds δ = −2^(bits − 1), which has no opposite.
 *
 * A record is what travels of a block; a packed difference has no sums:
 *
 *     record      ┌ sum, 4 bytes, little-endian ┬ 32·bits bytes ┐
 *     difference                                ┌ 32·bits bytes ┐
 *     bits 8      byte i = q[i] mod 256
 *     bits 4      byte 16 j + i = q[32 j + i] mod 16 | (q[32 j + 16 + i] mod 16) << 4,  i < 16
 *
 * Loops over ranges that the caller chose; none allocates, waits or fails. Any thread. */
#ifndef DUNLIN_NET_BULK_LATTICE_H
#define DUNLIN_NET_BULK_LATTICE_H

#include "gossip/exchange/scales.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LATTICE_BLOCK 256
#define LATTICE_SUM_BYTES 4
#define LATTICE_WRAPPED 255 /* instead of the largest |δ| */

/* A vector of count parameters, and the scale of each run of its blocks: what both agents use. */
struct lattice {
	int bits; /* 8 or 4 */
	size_t count;
	int shift;           /* block b has scale[b >> shift]: see scales_shift */
	const int8_t *scale; /* borrowed: scales_count(count) of them */
};

static inline size_t lattice_blocks(size_t count)
{
	return (count + LATTICE_BLOCK - 1) / LATTICE_BLOCK;
}

/* Bytes of count parameters as records, and as a packed difference. */
static inline size_t lattice_record(int bits)
{
	return LATTICE_SUM_BYTES + 32 * (size_t)bits;
}

static inline size_t lattice_difference(int bits, size_t count)
{
	return lattice_blocks(count) * 32 * (size_t)bits;
}

/* The step of a block where the scale says M: between M/6 and M/4 in mod4, which tells differences
 * up to M; between M/23 and M/16 in mod8, which tells five times as much. */
float lattice_step(const struct lattice *l, size_t block);

/* What is found in a block that came. */
struct lattice_found {
	uint8_t top;     /* the largest |δ|, or LATTICE_WRAPPED: then the difference is 0 */
	int32_t squares; /* Σ δ² */
};

/* What that says of the block's scale, for scales_learn. A difference of one step may be rounding
 * alone, and says nothing of how far the two are apart. */
int8_t lattice_scale(const struct lattice *l, size_t block, const struct lattice_found *found);

struct lattice_loops {
	const char *name; /* "base", "v3", "v4" */

	/* Whole blocks of x, each with its own step's inverse, to records. top: the bits of the
	 * largest |x| of each block. A value that is not finite or not under 2^31 steps is packed
	 * as some number: the caller looks at top. */
	void (*pack)(int bits, uint8_t *records, uint32_t *top, const float *x,
	        const float *inverse, size_t blocks);

	/* Records, theirs and ours, to packed differences. */
	void (*take)(int bits, uint8_t *difference, struct lattice_found *found,
	        const uint8_t *theirs, const uint8_t *ours, size_t blocks);

	/* out = step·δ of whole blocks. */
	void (*unpack)(
	        int bits, float *out, const uint8_t *difference, const float *step, size_t blocks);
};

/* Parameters first … first + n − 1 of x, which begins with parameter `first`, to their records;
 * first is the beginning of a block, and n ends one or the vector. size, which may be NULL, gets
 * scales_of(max |x|) of each run of blocks, joined with what it holds. A block with a parameter of
 * 2^31 steps or more is packed so that it counts as wrapped: the peer may have asked for steps that
 * small. False: a parameter is not finite, and the records are worth nothing. */
bool lattice_pack(const struct lattice *l, uint8_t *records, const float *x, size_t first, size_t n,
        int8_t *size);

/* Records of whole blocks from `first` on. */
void lattice_take(const struct lattice *l, uint8_t *difference, struct lattice_found *found,
        const uint8_t *theirs, const uint8_t *ours, size_t blocks);

/* D of parameters first … first + n − 1; difference is the whole vector's. */
void lattice_unpack(
        const struct lattice *l, float *out, const uint8_t *difference, size_t first, size_t n);

/* All that this processor can run, the plainest first, NULL-terminated; lattice_use chooses among
 * them, for tests and measurements: before any thread uses them. NULL: the best. */
#define LATTICE_LEVELS 3
void lattice_all(const struct lattice_loops *out[LATTICE_LEVELS + 1]);
void lattice_use(const struct lattice_loops *loops);

extern const struct lattice_loops lattice_base, lattice_v3, lattice_v4;

#endif
