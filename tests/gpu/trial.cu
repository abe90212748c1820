/* SPDX-License-Identifier: MIT */
/* Kernels that try the stand-in: some that are right, with the arithmetic that compilers like to
 * make much of, and some with a mistake each. */
#include "tests/gpu/trial.h"

#include <stdint.h>

static __global__ void add(float *y, const float *x, int n)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i < n)
		y[i] += x[i];
}

/* Shared memory, then a shuffle. */
static __global__ void sum(float *out, const float *x, int n, bool with_barrier)
{
	__shared__ float part[TRIAL_BLOCK];
	float mine = 0;
	for (int i = (int)threadIdx.x; i < n; i += TRIAL_BLOCK)
		mine += x[i];
	part[threadIdx.x] = mine;
	if (with_barrier)
		__syncthreads();
	for (int k = TRIAL_BLOCK / 2; k >= 32; k /= 2) {
		if (threadIdx.x < k)
			part[threadIdx.x] += part[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x >= 32)
		return;
	mine = part[threadIdx.x];
	for (int k = 16; k > 0; k /= 2)
		mine += __shfl_xor_sync(0xffffffffu, mine, k);
	if (threadIdx.x == 0)
		*out = mine;
}

static __global__ void functions(float *y, const float *x, int n)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= n)
		return;
	float v = x[i], *to = y + (size_t)i * TRIAL_FUNCTIONS;
	to[0] = expf(v);
	to[1] = logf(fabsf(v) + 0.5f);
	to[2] = erff(v);
	to[3] = tanhf(v);
	to[4] = sqrtf(fabsf(v));
	to[5] = v / 3 + rsqrtf(fabsf(v) + 1);
	to[6] = floorf(v * 7) + ceilf(v) + truncf(v * 3) + rintf(v * 5);
	to[7] = (float)exp((double)v);
	to[8] = (float)log(fabs((double)v) + 0.5);
	to[9] = powf(fabsf(v), 1.5f);
	to[10] = copysignf(2, v) + fmaxf(v, 0.25f) - fminf(v, 0.5f);
	to[11] = (float)(1 / ((double)v * v + 1));
}

static __global__ void integers(int64_t *y, const int64_t *x, int n)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (i >= n)
		return;
	int64_t v = x[i], *to = y + (size_t)i * TRIAL_INTEGERS;
	int32_t w = (int32_t)v;
	uint32_t u = (uint32_t)v;
	to[0] = v / 7 + v % 1000;
	to[1] = w / 3 - w % 11;
	to[2] = u / 10 + (u >> 5) + (u << 3);
	to[3] = (v >> 9) ^ (v << 13);
	to[4] = (int64_t)__umulhi(u, 0x9e3779b9u);
	to[5] = (int64_t)w * (w + 1);
	to[6] = (int8_t)v + (int16_t)v + (uint8_t)v;
	to[7] = v < w ? v : w > 5 ? w : -v;
	to[8] = (int64_t)(float)w + (int64_t)((double)v * 0.5);
	to[9] = (int64_t)((uint64_t)v * 0x9e3779b97f4a7c15ull >> 32);
	to[10] = __popc(u) + __clz(w) + (int)((u << 7) | (u >> 25));
}

/* ---- with a mistake */

static __global__ void out_of_bounds(float *y, int n)
{
	y[threadIdx.x * (n / TRIAL_BLOCK) + 1] = 1;
}

static __global__ void divergent_barrier(float *y)
{
	if (threadIdx.x % 2 == 0)
		__syncthreads();
	y[threadIdx.x] = 1;
}

static __global__ void shared_uninitialised(float *y)
{
	__shared__ float part[TRIAL_BLOCK];
	if (threadIdx.x != 3)
		part[threadIdx.x] = 1;
	__syncthreads();
	y[threadIdx.x] = part[TRIAL_BLOCK - 1 - threadIdx.x];
}

static __global__ void shared_out_of_bounds(float *y, int by)
{
	__shared__ float part[TRIAL_BLOCK];
	part[threadIdx.x + by] = 1;
	__syncthreads();
	y[threadIdx.x] = part[threadIdx.x ? threadIdx.x : 1];
}

static __global__ void global_race(float *y)
{
	y[threadIdx.x / 2] = (float)threadIdx.x;
}

static __global__ void block_race(float *y)
{
	if (threadIdx.x == 0)
		y[0] = (float)blockIdx.x;
}

static __global__ void missing_lane(float *y)
{
	float v = (float)threadIdx.x;
	if (threadIdx.x < 16)
		v = __shfl_xor_sync(0x0000ffffu, v, 16);
	y[threadIdx.x] = v;
}

static __global__ void misaligned(float *y)
{
	*(float *)((char *)y + 2 + 4 * threadIdx.x) = 1;
}

static __global__ void by_atomics(float *y)
{
	atomicAdd(y, 1.0f);
}

cudaError_t trial_launch(enum trial which, float *y, const float *x, int n, cudaStream_t s)
{
	unsigned blocks = (unsigned)((n + TRIAL_BLOCK - 1) / TRIAL_BLOCK);
	switch (which) {
	case TRIAL_ADD:
		add<<<blocks, TRIAL_BLOCK, 0, s>>>(y, x, n);
		break;
	case TRIAL_SUM:
		sum<<<1, TRIAL_BLOCK, 0, s>>>(y, x, n, true);
		break;
	case TRIAL_FUNCTIONS_OF:
		functions<<<blocks, TRIAL_BLOCK, 0, s>>>(y, x, n);
		break;
	case TRIAL_INTEGERS_OF:
		integers<<<blocks, TRIAL_BLOCK, 0, s>>>((int64_t *)y, (const int64_t *)x, n);
		break;
	case TRIAL_ATOMICS:
		by_atomics<<<2, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_NO_BARRIER:
		sum<<<1, TRIAL_BLOCK, 0, s>>>(y, x, n, false);
		break;
	case TRIAL_OUT_OF_BOUNDS:
		out_of_bounds<<<1, TRIAL_BLOCK, 0, s>>>(y, n);
		break;
	case TRIAL_DIVERGENT:
		divergent_barrier<<<1, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_SHARED_UNINITIALISED:
		shared_uninitialised<<<1, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_SHARED_BOUNDS:
		shared_out_of_bounds<<<1, TRIAL_BLOCK, 0, s>>>(y, 1);
		break;
	case TRIAL_GLOBAL_RACE:
		global_race<<<1, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_BLOCK_RACE:
		block_race<<<2, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_MISSING_LANE:
		missing_lane<<<1, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_MISALIGNED:
		misaligned<<<1, TRIAL_BLOCK, 0, s>>>(y);
		break;
	case TRIAL_DEFAULT_STREAM:
		add<<<blocks, TRIAL_BLOCK>>>(y, x, n);
		break;
	}
	return cudaGetLastError();
}
