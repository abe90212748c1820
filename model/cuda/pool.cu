/* SPDX-License-Identifier: MIT */
/* Pools. The forward pass has one thread for each output. The backward pass has one for each input,
 * which gathers from every window that covers it: no two threads write to one place, and the sums
 * keep their order. */
#include "model/cuda/launch.cuh"

/* The coordinates of element i of (batch, h, w, c). */
struct place {
	uint32_t c, x, y, n;
};

static __device__ struct place place_of(uint32_t i, uint32_t h, uint32_t w, uint32_t c)
{
	struct place p;
	p.c = i % c;
	i /= c;
	p.x = i % w;
	i /= w;
	p.y = i % h;
	p.n = i / h;
	return p;
}

/* [*from, *to) of an input of that length under output o, padding cut off. */
static __device__ void under(uint32_t o, uint32_t length, const struct cuda_window &v,
        uint32_t *from, uint32_t *to)
{
	uint32_t begin = o * v.stride, end = begin + v.kernel;
	*from = begin < v.pad ? 0 : begin - v.pad;
	*to = end < v.pad ? 0 : end - v.pad;
	*to = *to < length ? *to : length;
}

/* [*from, *to) of the outputs, of which there are so many, whose windows cover input i. */
static __device__ void over(uint32_t i, uint32_t outputs, const struct cuda_window &v,
        uint32_t *from, uint32_t *to)
{
	uint32_t at = i + v.pad;
	*from = at < v.kernel ? 0 : (at - v.kernel) / v.stride + 1;
	*to = at / v.stride + 1;
	*to = *to < outputs ? *to : outputs;
}

static __global__ void max_pool(float *__restrict__ y, int32_t *__restrict__ which,
        const float *__restrict__ x, struct cuda_window v, uint32_t n)
{
	EACH (i, n) {
		struct place p = place_of(i, v.oh, v.ow, v.c);
		const float *image = x + p.n * (v.h * v.w * v.c) + p.c;
		uint32_t i0, i1, j0, j1;
		under(p.y, v.h, v, &i0, &i1);
		under(p.x, v.w, v, &j0, &j1);
		uint32_t at = i0 * v.w + j0;
		float top = image[at * v.c];
		for (uint32_t a = i0; a < i1; a++)
			for (uint32_t b = j0; b < j1; b++) {
				float value = image[(a * v.w + b) * v.c];
				if (value > top) {
					top = value;
					at = a * v.w + b;
				}
			}
		y[i] = top;
		which[i] = (int32_t)at;
	}
}

static __global__ void max_pool_back(float *__restrict__ dx, const float *__restrict__ dy,
        const int32_t *__restrict__ which, const float *__restrict__ x, struct cuda_window v,
        uint32_t n)
{
	EACH (i, n) {
		struct place p = place_of(i, v.h, v.w, v.c);
		uint32_t first = p.n * (v.oh * v.ow * v.c) + p.c, i0, i1, j0, j1;
		int32_t own = (int32_t)(p.y * v.w + p.x);
		float sum = 0;
		over(p.y, v.oh, v, &i0, &i1);
		over(p.x, v.ow, v, &j0, &j1);
		for (uint32_t a = i0; a < i1; a++)
			for (uint32_t b = j0; b < j1; b++) {
				uint32_t o = first + (a * v.ow + b) * v.c;
				if (which[o] == own)
					sum += dy[o];
			}
		dx[i] = x && !(x[i] > 0) ? 0 : sum;
	}
}

/* Padding counts as zeros. */
static __global__ void avg_pool(
        float *__restrict__ y, const float *__restrict__ x, struct cuda_window v, uint32_t n)
{
	float share = 1.0f / (float)(v.kernel * v.kernel);
	EACH (i, n) {
		struct place p = place_of(i, v.oh, v.ow, v.c);
		const float *image = x + p.n * (v.h * v.w * v.c) + p.c;
		uint32_t i0, i1, j0, j1;
		float sum = 0;
		under(p.y, v.h, v, &i0, &i1);
		under(p.x, v.w, v, &j0, &j1);
		for (uint32_t a = i0; a < i1; a++)
			for (uint32_t b = j0; b < j1; b++)
				sum += image[(a * v.w + b) * v.c];
		y[i] = sum * share;
	}
}

static __global__ void avg_pool_back(float *__restrict__ dx, const float *__restrict__ dy,
        const float *__restrict__ x, struct cuda_window v, uint32_t n)
{
	float share = 1.0f / (float)(v.kernel * v.kernel);
	EACH (i, n) {
		struct place p = place_of(i, v.h, v.w, v.c);
		uint32_t first = p.n * (v.oh * v.ow * v.c) + p.c, i0, i1, j0, j1;
		float sum = 0;
		over(p.y, v.oh, v, &i0, &i1);
		over(p.x, v.ow, v, &j0, &j1);
		for (uint32_t a = i0; a < i1; a++)
			for (uint32_t b = j0; b < j1; b++)
				sum += dy[first + (a * v.ow + b) * v.c] * share;
		dx[i] = x && !(x[i] > 0) ? 0 : sum;
	}
}

static __global__ void global_pool(float *__restrict__ y, const float *__restrict__ x, uint32_t n,
        uint32_t pixels, uint32_t c)
{
	float share = 1.0f / (float)pixels;
	EACH (i, n) {
		const float *image = x + i / c * (pixels * c) + i % c;
		float sum = 0;
		for (uint32_t k = 0; k < pixels; k++)
			sum += image[k * c];
		y[i] = sum * share;
	}
}

static __global__ void global_pool_back(float *__restrict__ dx, const float *__restrict__ dy,
        const float *__restrict__ x, uint32_t n, uint32_t pixels, uint32_t c)
{
	float share = 1.0f / (float)pixels;
	EACH (i, n) {
		float d = dy[i / (pixels * c) * c + i % c] * share;
		dx[i] = x && !(x[i] > 0) ? 0 : d;
	}
}

cudaError_t kernel_max_pool(
        float *y, int32_t *which, const float *x, const struct cuda_window *v, cudaStream_t s)
{
	uint32_t n = v->batch * v->oh * v->ow * v->c;
	max_pool<<<grid_of(n), BLOCK, 0, s>>>(y, which, x, *v, n);
	return cudaGetLastError();
}

cudaError_t kernel_max_pool_back(float *dx, const float *dy, const int32_t *which, const float *x,
        const struct cuda_window *v, cudaStream_t s)
{
	uint32_t n = v->batch * v->h * v->w * v->c;
	max_pool_back<<<grid_of(n), BLOCK, 0, s>>>(dx, dy, which, x, *v, n);
	return cudaGetLastError();
}

cudaError_t kernel_avg_pool(float *y, const float *x, const struct cuda_window *v, cudaStream_t s)
{
	uint32_t n = v->batch * v->oh * v->ow * v->c;
	avg_pool<<<grid_of(n), BLOCK, 0, s>>>(y, x, *v, n);
	return cudaGetLastError();
}

cudaError_t kernel_avg_pool_back(
        float *dx, const float *dy, const float *x, const struct cuda_window *v, cudaStream_t s)
{
	uint32_t n = v->batch * v->h * v->w * v->c;
	avg_pool_back<<<grid_of(n), BLOCK, 0, s>>>(dx, dy, x, *v, n);
	return cudaGetLastError();
}

cudaError_t kernel_global_pool(
        float *y, const float *x, uint32_t batch, uint32_t pixels, uint32_t c, cudaStream_t s)
{
	uint32_t n = batch * c;
	global_pool<<<grid_of(n), BLOCK, 0, s>>>(y, x, n, pixels, c);
	return cudaGetLastError();
}

cudaError_t kernel_global_pool_back(float *dx, const float *dy, const float *x, uint32_t batch,
        uint32_t pixels, uint32_t c, cudaStream_t s)
{
	uint32_t n = batch * pixels * c;
	global_pool_back<<<grid_of(n), BLOCK, 0, s>>>(dx, dy, x, n, pixels, c);
	return cudaGetLastError();
}
