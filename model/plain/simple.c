/* SPDX-License-Identifier: MIT */
/* Ops that look at each element by itself, or only at its place. */
#include "model/plain/plain.h"

#include "agent/base/rng.h"
#include "model/device/dropout.h"

#include <math.h>

static float dropout_factor(const struct program *p, const struct op *op, size_t i)
{
	uint64_t seed = rng_mix(p->dropout_seed, op->index, 0);
	if (!p->train)
		return 1;
	return dropout_hash(seed, (uint32_t)i) < dropout_keep_below(op->layer->p)
	               ? (float)(1 / (1 - op->layer->p))
	               : 0;
}

static double normal_cdf(double x)
{
	return 0.5 * erfc(-x / sqrt(2));
}

/* GPT-2's approximation of x·Φ(x): 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))). */
static float tanh_gelu(float x, float *slope)
{
	const double k = 0.7978845608028654, c = 0.044715;
	double t = tanh(k * (x + c * x * x * x));
	*slope = (float)(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * c * x * x));
	return (float)(0.5 * x * (1 + t));
}

static void elementwise(const struct program *p, struct op *op, bool backward)
{
	size_t n = (size_t)op->batch * shape_count(&op->out_shape);
	for (size_t i = 0; i < n; i++) {
		float x = op->x[0][i], y = 0, slope = 0;
		switch (op->kind) {
		case LAYER_RELU:
			y = x > 0 ? x : 0;
			slope = x > 0 ? 1 : 0;
			break;
		case LAYER_GELU:
			if (op->layer->tanh) {
				y = tanh_gelu(x, &slope);
				break;
			}
			y = (float)(x * normal_cdf(x));
			slope = (float)(normal_cdf(x) + x * exp(-0.5 * x * x) * 0.3989422804014327);
			break;
		case LAYER_DROPOUT:
			slope = dropout_factor(p, op, i);
			y = x * slope;
			break;
		default: /* add */
			y = x + op->x[1][i];
			slope = 1;
			break;
		}
		if (!backward)
			op->y[i] = y;
		for (int k = 0; backward && k < LAYER_INPUTS_MAX; k++)
			if (op->dx[k])
				op->dx[k][i] = op->dy[i] * slope;
	}
}

/* flatten and global pool: for every element of an image, its place in the output. */
static void per_pixel(struct op *op, bool backward)
{
	const int64_t *in = op->in_shape.dim;
	int64_t area = in[0] * in[1], image = area * in[2];
	bool global = op->kind == LAYER_GLOBAL_POOL;
	float share = global ? 1.0f / (float)area : 1;
	for (int64_t i = 0; i < op->batch * image; i++) {
		int64_t n = i / image, pixel = i % image / in[2], c = i % in[2];
		int64_t o = global ? n * in[2] + c : n * image + c * area + pixel;
		if (backward)
			op->dx[0][i] += op->dy[o] * share;
		else
			op->y[o] += op->x[0][i] * share;
	}
}

static void each_forward(const struct program *p, struct op *op)
{
	elementwise(p, op, false);
}

static void each_backward(const struct program *p, struct op *op)
{
	elementwise(p, op, true);
}

static void pixel_forward(const struct program *p, struct op *op)
{
	(void)p;
	per_pixel(op, false);
}

static void pixel_backward(const struct program *p, struct op *op)
{
	(void)p;
	per_pixel(op, true);
}

const struct plain_op plain_op_relu = {each_forward, each_backward};
const struct plain_op plain_op_gelu = {each_forward, each_backward};
const struct plain_op plain_op_dropout = {each_forward, each_backward};
const struct plain_op plain_op_add = {each_forward, each_backward};
const struct plain_op plain_op_flatten = {pixel_forward, pixel_backward};
const struct plain_op plain_op_global_pool = {pixel_forward, pixel_backward};
