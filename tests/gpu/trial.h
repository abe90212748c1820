/* SPDX-License-Identifier: MIT */
/* Kernels for the stand-in's own test. Each works on n floats (or 64-bit integers) of x, and writes
 * y; those behind TRIAL_ATOMICS have a mistake. */
#ifndef DUNLIN_TESTS_GPU_TRIAL_H
#define DUNLIN_TESTS_GPU_TRIAL_H

#include <cuda_runtime_api.h>

#define TRIAL_BLOCK 128
#define TRIAL_FUNCTIONS 12 /* results for each element */
#define TRIAL_INTEGERS 11

enum trial {
	TRIAL_ADD,
	TRIAL_SUM,
	TRIAL_FUNCTIONS_OF,
	TRIAL_INTEGERS_OF,
	TRIAL_ATOMICS,
	TRIAL_NO_BARRIER,
	TRIAL_OUT_OF_BOUNDS,
	TRIAL_DIVERGENT,
	TRIAL_SHARED_UNINITIALISED,
	TRIAL_SHARED_BOUNDS,
	TRIAL_GLOBAL_RACE,
	TRIAL_BLOCK_RACE,
	TRIAL_MISSING_LANE,
	TRIAL_MISALIGNED,
	TRIAL_DEFAULT_STREAM
};

#ifdef __cplusplus
extern "C"
#endif
        cudaError_t
        trial_launch(enum trial which, float *y, const float *x, int n, cudaStream_t s);

#endif
