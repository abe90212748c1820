/* SPDX-License-Identifier: MIT */
/* What is sent to peers, computed on the device so that only that crosses the bus: parameters as
 * bf16, and their sketch; and a sketch of what peers sent. */
#include "agent/base/sketch_hash.h"
#include "model/cuda/launch.cuh"

static_assert(SKETCH_BUCKETS == KERNELS_SKETCH_BUCKETS, "it is one sketch");
static_assert(SKETCH_BUCKETS == BLOCK, "a thread sums a bucket");

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
#define QUIET 0x00400000u

/* The nearest bf16, ties to even: the same bits as net/bulk/convert_loops.c gives. */
static __device__ uint32_t bf16(float x)
{
	uint32_t u = __float_as_uint(x);
	if ((u & ~SIGN) > INFINITE) /* a NaN must not be carried into the sign */
		return (u | QUIET) >> 16;
	return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

/* Two for each thread, so that all writes are whole words; after an odd last one comes a zero. */
static __global__ void pack_bf16(uint32_t *__restrict__ out, const float *__restrict__ x, size_t n)
{
	EACH_OF_MANY (i, (n + 1) / 2) {
		uint32_t high = 2 * i + 1 < n ? bf16(x[2 * i + 1]) : 0;
		out[i] = bf16(x[2 * i]) | high << 16;
	}
}

template <bool BF16> static __device__ float word_of(const uint32_t *x, size_t i)
{
	if (!BF16)
		return __uint_as_float(x[i]);
	uint32_t two = x[i / 2];
	return __uint_as_float(i % 2 ? two & 0xffff0000u : two << 16);
}

/* A block takes every KERNELS_SKETCH_PARTS-th block of coordinates, and a thread its bucket's
 * coordinate in each: parts (KERNELS_SKETCH_PARTS, SKETCH_BUCKETS). Neighbours read neighbours, but
 * for the place where the turn begins. */
template <bool BF16>
static __global__ void sketch_parts(
        double *__restrict__ parts, const uint32_t *__restrict__ x, size_t n)
{
	double sum = 0;
	for (size_t b = blockIdx.x; b * SKETCH_BUCKETS < n; b += KERNELS_SKETCH_PARTS) {
		unsigned j = (threadIdx.x - sketch_hash_turn(b)) % SKETCH_BUCKETS;
		size_t i = b * SKETCH_BUCKETS + j;
		if (i < n) {
			double v = (double)word_of<BF16>(x, i);
			sum += sketch_hash_sign(b, j) ? -v : v;
		}
	}
	parts[blockIdx.x * SKETCH_BUCKETS + threadIdx.x] = sum;
}

static __global__ void sketch_total(float *__restrict__ sketch, const double *__restrict__ parts)
{
	double sum = 0;
	for (unsigned k = 0; k < KERNELS_SKETCH_PARTS; k++)
		sum += parts[k * SKETCH_BUCKETS + threadIdx.x];
	sketch[threadIdx.x] = (float)sum;
}

cudaError_t kernel_pack_bf16(uint32_t *out, const float *x, size_t n, cudaStream_t s)
{
	pack_bf16<<<grid_of((n + 1) / 2), BLOCK, 0, s>>>(out, x, n);
	return cudaGetLastError();
}

cudaError_t kernel_sketch(
        float *sketch, const void *x, bool bf16, size_t n, double *parts, cudaStream_t s)
{
	const uint32_t *words = (const uint32_t *)x;
	if (bf16)
		sketch_parts<true><<<KERNELS_SKETCH_PARTS, BLOCK, 0, s>>>(parts, words, n);
	else
		sketch_parts<false><<<KERNELS_SKETCH_PARTS, BLOCK, 0, s>>>(parts, words, n);
	cudaError_t rc = cudaGetLastError();
	if (rc != cudaSuccess)
		return rc;
	sketch_total<<<1, BLOCK, 0, s>>>(sketch, parts);
	return cudaGetLastError();
}
