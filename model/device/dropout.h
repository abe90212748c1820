/* SPDX-License-Identifier: MIT */
/* Which elements a dropout layer drops: a function of the step's seed, the layer and the element's
 * place in the whole batch. So every backend and any number of threads agree, and the backward pass
 * needs no stored mask. */
#ifndef DUNLIN_MODEL_DEVICE_DROPOUT_H
#define DUNLIN_MODEL_DEVICE_DROPOUT_H

#include <stdint.h>

#ifdef __CUDACC__ /* the same source for the GPU */
#define DROPOUT_INLINE static inline __host__ __device__
#else
#define DROPOUT_INLINE static inline
#endif

/* The finaliser lowbias32 (C. Wellons), twice over a counter: cheap, and it vectorises. */
DROPOUT_INLINE uint32_t dropout_scramble(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ (x >> 16);
}

/* Kept when below this share of 2^32. */
DROPOUT_INLINE uint32_t dropout_hash(uint64_t seed, uint32_t element)
{
	return dropout_scramble(
	        dropout_scramble(element ^ (uint32_t)seed) + (uint32_t)(seed >> 32));
}

DROPOUT_INLINE uint32_t dropout_keep_below(double p)
{
	return (uint32_t)((1 - p) * 4294967295.0);
}

#endif
