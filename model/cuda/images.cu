/* SPDX-License-Identifier: MIT */
/* Bytes to floats, mirrored, resized and shifted on the way, as model/data/augment.c does it: each
 * value by the same operations in the same order, each rounded by itself (no fused multiply-add).
 * So a sample has the same bits wherever it is made, unless the CPU's compiler fuses operations:
 * then resized samples differ in the last few bits, all others not at all.
 *
 * A block handles one sample at a time, so that each thread does the divisions of a sample once and
 * not for each value. Neighbouring threads write neighbouring values and read nearby ones. */
#include "model/cuda/launch.cuh"

#include "model/data/move.h"

#define ROUNDS 4           /* values of a sample that a thread computes, about */
#define SAMPLES_MAX 65535u /* of a grid's second side */

/* Maps output coordinates to the source, along one axis: first + out × step. */
struct axis {
	double first, step;
};

static __device__ struct axis axis_of(int64_t shift, double zoom, uint32_t size)
{
	double centre = (double)(size - 1) / 2; /* exact */
	struct axis a;
	a.first = __dsub_rn(centre, __ddiv_rn(__dadd_rn((double)shift, centre), zoom));
	a.step = __ddiv_rn(1, zoom);
	return a;
}

/* The neighbour before such a coordinate, and the weight of the one after it. */
struct tap {
	int64_t at;
	float weight;
};

static __device__ struct tap tap_at(struct axis a, uint32_t out)
{
	double x = __dadd_rn(a.first, __dmul_rn((double)out, a.step));
	struct tap t;
	t.at = __double2ll_rd(x);
	t.weight = (float)__dsub_rn(x, (double)t.at);
	return t;
}

/* a + (b − a)·w */
static __device__ float between(float a, float b, float w)
{
	return __fadd_rn(a, __fmul_rn(__fsub_rn(b, a), w));
}

/* A channel of one sample, and where in it pixel (y, x) is; what is outside counts as byte 0. */
struct plane {
	const uint8_t *pixels;
	const float *table;
	uint32_t h, w, c;
};

static __device__ float pixel(const struct plane *p, int64_t y, int64_t x)
{
	if (y < 0 || y >= p->h || x < 0 || x >= p->w)
		return p->table[0];
	return p->table[p->pixels[((uint32_t)y * p->w + (uint32_t)x) * p->c]];
}

static __device__ float resized(const struct plane *p, bool flip, struct tap ty, struct tap tx)
{
	int64_t turn = flip ? -1 : 1, x = flip ? p->w - 1 - tx.at : tx.at, y = ty.at;
	float upper = between(pixel(p, y, x), pixel(p, y, x + turn), tx.weight);
	float lower = between(pixel(p, y + 1, x), pixel(p, y + 1, x + turn), tx.weight);
	return between(upper, lower, ty.weight);
}

static __global__ void images(
        float *__restrict__ out, int32_t *__restrict__ labels, struct cuda_images b)
{
	const uint32_t one = b.h * b.w * b.c;
	for (uint32_t k = blockIdx.y; k < b.count; k += gridDim.y) {
		struct augment_move m = {false, 0, 0, 1};
		struct axis down = {0, 1}, along = {0, 1};
		if (b.moves)
			m = b.moves[k];
		if (m.zoom != 1) {
			down = axis_of(m.dy, m.zoom, b.h);
			along = axis_of(m.dx, m.zoom, b.w);
		}
		EACH (i, one) {
			uint32_t c = i % b.c, x = i / b.c % b.w, y = i / b.c / b.w;
			struct plane p = {b.pixels + k * one + c, b.table, b.h, b.w, b.c};
			int64_t from = x - m.dx;
			out[k * one + i] =
			        m.zoom != 1 ? resized(&p, m.flip, tap_at(down, y), tap_at(along, x))
			                    : pixel(&p, y - m.dy, m.flip ? b.w - 1 - from : from);
		}
		if (blockIdx.x == 0 && threadIdx.x == 0)
			labels[k] = b.labels[k];
	}
}

cudaError_t kernel_images(float *x, int32_t *labels, const struct cuda_images *b, cudaStream_t s)
{
	size_t one = (size_t)b->h * b->w * b->c;
	dim3 grid(grid_of((one + ROUNDS - 1) / ROUNDS),
	        b->count < SAMPLES_MAX ? b->count : SAMPLES_MAX);
	images<<<grid, BLOCK, 0, s>>>(x, labels, *b);
	return cudaGetLastError();
}
