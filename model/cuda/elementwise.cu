/* SPDX-License-Identifier: MIT */
/* Kernels that compute each element, or each element of a row, by itself. One thread handles
 * elements that lie a whole grid apart, so that neighbouring threads read neighbouring memory. */
#include "model/cuda/launch.cuh"

#include "model/device/dropout.h"

static __global__ void relu(float *__restrict__ y, const float *__restrict__ x, uint32_t n)
{
	EACH (i, n)
		y[i] = x[i] > 0 ? x[i] : 0;
}

static __global__ void relu_back(float *__restrict__ dx, const float *__restrict__ dy,
        const float *__restrict__ y, uint32_t n)
{
	EACH (i, n)
		dx[i] = y[i] > 0 ? dy[i] : 0;
}

static __global__ void mask(float *__restrict__ d, const float *__restrict__ x, uint32_t n)
{
	EACH (i, n)
		if (!(x[i] > 0))
			d[i] = 0;
}

/* Φ(x) of the normal distribution. */
static __device__ float normal_cdf(float x)
{
	return 0.5f * (1 + erff(x * 0.70710678f));
}

static __global__ void gelu(float *__restrict__ y, const float *__restrict__ x, uint32_t n)
{
	EACH (i, n)
		y[i] = x[i] * normal_cdf(x[i]);
}

static __global__ void gelu_back(float *__restrict__ dx, const float *__restrict__ dy,
        const float *__restrict__ x, uint32_t n)
{
	EACH (i, n) {
		float v = x[i], density = expf(-0.5f * v * v) * 0.39894228f;
		dx[i] = dy[i] * (normal_cdf(v) + v * density);
	}
}

static __global__ void dropout(float *__restrict__ y, const float *__restrict__ x, uint32_t n,
        uint64_t seed, uint32_t keep_below, float scale)
{
	EACH (i, n)
		y[i] = dropout_hash(seed, i) < keep_below ? x[i] * scale : 0;
}

static __global__ void add(float *__restrict__ y, const float *a, const float *b, uint32_t n,
        bool with_relu)
{
	EACH (i, n) {
		float s = a[i] + b[i];
		y[i] = with_relu && !(s > 0) ? 0 : s;
	}
}

static __global__ void sum_into(float *__restrict__ sum, const float *__restrict__ part, uint32_t n)
{
	EACH (i, n)
		sum[i] += part[i];
}

static __global__ void bias(float *__restrict__ y, const float *__restrict__ b, uint32_t n,
        uint32_t cols, bool with_relu)
{
	EACH (i, n) {
		float s = b ? y[i] + b[i % cols] : y[i];
		y[i] = with_relu && !(s > 0) ? 0 : s;
	}
}

/* Written in order, read across: of the two, scattered reads are the cheaper. */
static __global__ void transpose(float *__restrict__ out, const float *__restrict__ in, uint32_t n,
        uint32_t rows, uint32_t cols, bool accumulate)
{
	EACH (i, n) {
		uint32_t one = rows * cols, at = i % one;
		float v = in[i - at + at % rows * cols + at / rows];
		out[i] = accumulate ? out[i] + v : v;
	}
}

cudaError_t kernel_relu(float *y, const float *x, uint32_t n, cudaStream_t s)
{
	relu<<<grid_of(n), BLOCK, 0, s>>>(y, x, n);
	return cudaGetLastError();
}

cudaError_t kernel_relu_back(float *dx, const float *dy, const float *y, uint32_t n, cudaStream_t s)
{
	relu_back<<<grid_of(n), BLOCK, 0, s>>>(dx, dy, y, n);
	return cudaGetLastError();
}

cudaError_t kernel_mask(float *d, const float *x, uint32_t n, cudaStream_t s)
{
	mask<<<grid_of(n), BLOCK, 0, s>>>(d, x, n);
	return cudaGetLastError();
}

cudaError_t kernel_gelu(float *y, const float *x, uint32_t n, cudaStream_t s)
{
	gelu<<<grid_of(n), BLOCK, 0, s>>>(y, x, n);
	return cudaGetLastError();
}

cudaError_t kernel_gelu_back(float *dx, const float *dy, const float *x, uint32_t n, cudaStream_t s)
{
	gelu_back<<<grid_of(n), BLOCK, 0, s>>>(dx, dy, x, n);
	return cudaGetLastError();
}

cudaError_t kernel_dropout(float *y, const float *x, uint32_t n, uint64_t seed, uint32_t keep_below,
        float scale, cudaStream_t s)
{
	dropout<<<grid_of(n), BLOCK, 0, s>>>(
	        y, x, n, seed, keep_below, scale);
	return cudaGetLastError();
}

cudaError_t kernel_add(
        float *y, const float *a, const float *b, uint32_t n, bool with_relu, cudaStream_t s)
{
	add<<<grid_of(n), BLOCK, 0, s>>>(y, a, b, n, with_relu);
	return cudaGetLastError();
}

cudaError_t kernel_sum_into(float *sum, const float *part, uint32_t n, cudaStream_t s)
{
	sum_into<<<grid_of(n), BLOCK, 0, s>>>(sum, part, n);
	return cudaGetLastError();
}

cudaError_t kernel_bias(
        float *y, const float *b, uint32_t n, uint32_t cols, bool with_relu, cudaStream_t s)
{
	bias<<<grid_of(n), BLOCK, 0, s>>>(y, b, n, cols, with_relu);
	return cudaGetLastError();
}

cudaError_t kernel_transpose(float *out, const float *in, uint32_t batch, uint32_t rows,
        uint32_t cols, bool accumulate, cudaStream_t s)
{
	uint32_t n = batch * rows * cols;
	transpose<<<grid_of(n), BLOCK, 0, s>>>(out, in, n, rows, cols, accumulate);
	return cudaGetLastError();
}
