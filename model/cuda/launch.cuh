/* SPDX-License-Identifier: MIT */
/* What the files of kernels share: the size of a block, and grids that walk over any length. */
#ifndef DUNLIN_MODEL_CUDA_LAUNCH_CUH
#define DUNLIN_MODEL_CUDA_LAUNCH_CUH

#include "model/cuda/kernels.h"

#define BLOCK 256
#define GRID_MAX 4096 /* more than any device has at once; each thread then walks on */

/* i over [0, n) for this thread. GRID_MAX · BLOCK added to less than 2^31 stays below 2^32. */
#define EACH(i, n)                                                                                 \
	for (uint32_t i = blockIdx.x * BLOCK + threadIdx.x; i < (n); i += gridDim.x * BLOCK)
#define EACH_OF_MANY(i, n)                                                                         \
	for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < (n);                         \
	        i += (size_t)gridDim.x * BLOCK)

static inline unsigned grid_of(size_t n)
{
	size_t blocks = (n + BLOCK - 1) / BLOCK;
	return (unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX);
}

#endif
