/* SPDX-License-Identifier: MIT */
/* Which bucket of a sketch a coordinate goes to, and with which sign. Coordinates come in blocks of
 * as many as there are buckets, and within a block no two meet:
 *
 *     block B     0  1  2  3 …  255          the sign of j is bit j/4 of word j%4 of the block
 *                  ╲  ╲  ╲  ╲     ╲           (4 words of 64 bits: a turn of a loop over 4 lanes
 *     buckets        turn(B) + j, mod 256     shifts all of them alike)
 *
 * Turn and signs are hashed from the block's number alone, the same everywhere. */
#ifndef DUNLIN_AGENT_BASE_SKETCH_HASH_H
#define DUNLIN_AGENT_BASE_SKETCH_HASH_H

#include <stdint.h>

#ifdef __CUDACC__ /* the same text for the GPU */
#define SKETCH_HASH_INLINE static inline __host__ __device__
#else
#define SKETCH_HASH_INLINE static inline
#endif

#define SKETCH_BUCKETS 256
#define SKETCH_HASH_LANES 4 /* words of signs to a block */

/* Word k of the block: splitmix64 (S. Vigna), at that place of its sequence. */
SKETCH_HASH_INLINE uint64_t sketch_hash_word(uint64_t block, unsigned k)
{
	uint64_t z = (8 * block + k + 1) * 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Coordinate j of the block goes to bucket (turn + j) % SKETCH_BUCKETS. */
SKETCH_HASH_INLINE unsigned sketch_hash_turn(uint64_t block)
{
	return (unsigned)(sketch_hash_word(block, SKETCH_HASH_LANES) >> 56);
}

/* The signs of the coordinates j with j % SKETCH_HASH_LANES == lane; a set bit turns one round. */
SKETCH_HASH_INLINE uint64_t sketch_hash_signs(uint64_t block, unsigned lane)
{
	return sketch_hash_word(block, lane);
}

/* The same of one coordinate: 1 turns it round. */
SKETCH_HASH_INLINE unsigned sketch_hash_sign(uint64_t block, unsigned j)
{
	uint64_t signs = sketch_hash_signs(block, j % SKETCH_HASH_LANES);
	return (unsigned)(signs >> (j / SKETCH_HASH_LANES)) & 1u;
}

#endif
