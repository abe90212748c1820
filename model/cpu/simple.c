/* SPDX-License-Identifier: MIT */
/* Ops without parameters, by samples: each worker runs the loops of kernels.c over its own. */
#include "model/cpu/cpu.h"

#include "agent/base/rng.h"
#include "model/device/dropout.h"

#include <stdlib.h>
#include <string.h>

static struct window window_of(const struct op *op)
{
	const struct layer *l = op->layer;
	return (struct window){op->in_shape.dim[0], op->in_shape.dim[1], op->in_shape.dim[2],
	        op->out_shape.dim[0], op->out_shape.dim[1], l->kernel, l->stride, l->pad};
}

static bool pool_is_2x2(const struct op *op)
{
	const struct layer *l = op->layer;
	return l->kernel == 2 && l->stride == 2 && l->pad == 0;
}

int cpu_simple_prepare(struct op *op, struct err *e)
{
	if (op->kind != LAYER_MAX_POOL)
		return 0;
	/* Where each maximum was. */
	size_t one = pool_is_2x2(op) ? sizeof(uint8_t) : sizeof(int32_t);
	size_t n = shape_count(&op->out_shape) * (size_t)op->batch;
	op->state = aligned_alloc(64, (n * one + 63) / 64 * 64);
	if (!op->state)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	return 0;
}

static void run_dropout(struct cpu_device *d, const struct program *p, const struct op *op,
        float *y, const float *x, size_t first, size_t n)
{
	d->k->dropout(y, x, first, n, rng_mix(p->dropout_seed, op->index, 0),
	        dropout_keep_below(op->layer->p), (float)(1 / (1 - op->layer->p)));
}

void cpu_simple_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	size_t in = shape_count(&op->in_shape), out = shape_count(&op->out_shape), from, to;
	const struct cpu_kernels *k = d->k;
	cpu_samples(d, op->batch, w, &from, &to);
	const float *x = op->x[0] + from * in;
	float *y = op->y + from * out;
	size_t n = (to - from) * out;
	struct window s = window_of(op);
	switch (op->kind) {
	case LAYER_RELU:
		k->relu(y, x, n);
		return;
	case LAYER_GELU:
		k->gelu(y, x, n);
		return;
	case LAYER_ADD:
		k->add(y, x, op->x[1] + from * in, n, op->relu);
		return;
	case LAYER_DROPOUT:
		if (p->train)
			run_dropout(d, p, op, y, x, from * out, n);
		else
			memcpy(y, x, n * sizeof *y);
		return;
	default:
		break;
	}
	for (size_t i = from; i < to; i++, x += in, y += out) {
		if (op->kind == LAYER_MAX_POOL && pool_is_2x2(op))
			k->max_pool2(y, (uint8_t *)op->state + i * out, x, &s);
		else if (op->kind == LAYER_MAX_POOL)
			k->max_pool(y, (int32_t *)op->state + i * out, x, &s);
		else if (op->kind == LAYER_AVG_POOL)
			k->avg_pool(y, x, &s);
		else if (op->kind == LAYER_GLOBAL_POOL)
			k->global_pool(y, x, in / out, out);
		else if (op->kind == LAYER_FLATTEN)
			k->transpose(y, x, (size_t)(s.h * s.w), (size_t)s.c);
	}
}

/* The kinds whose backward is the same for every element. */
static bool elementwise_backward(
        struct cpu_device *d, const struct program *p, struct op *op, size_t at, size_t n)
{
	const struct cpu_kernels *k = d->k;
	float *dx = op->dx[0] ? op->dx[0] + at : NULL, *dy = op->dy + at;
	switch (op->kind) {
	case LAYER_RELU:
		memcpy(dx, dy, n * sizeof *dx);
		k->mask(dx, op->y + at, n);
		return true;
	case LAYER_GELU:
		k->gelu_backward(dx, dy, op->x[0] + at, n);
		return true;
	case LAYER_DROPOUT:
		run_dropout(d, p, op, dx, dy, at, n);
		return true;
	case LAYER_ADD:
		if (op->mask_dy)
			k->mask(dy, op->y + at, n);
		if (dx)
			memcpy(dx, dy, n * sizeof *dx);
		if (op->dx[1])
			memcpy(op->dx[1] + at, dy, n * sizeof *dy);
		return true;
	default:
		return false;
	}
}

void cpu_simple_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	size_t in = shape_count(&op->in_shape), out = shape_count(&op->out_shape), from, to;
	const struct cpu_kernels *k = d->k;
	bool masked = false;
	cpu_samples(d, op->batch, w, &from, &to);
	if (!op->dx[0] && !op->dx[1])
		return;
	if (!elementwise_backward(d, p, op, from * out, (to - from) * out)) {
		struct window s = window_of(op);
		for (size_t i = from; i < to; i++) {
			float *dx = op->dx[0] + i * in;
			const float *dy = op->dy + i * out, *y = op->y + i * out;
			if (op->kind == LAYER_MAX_POOL && pool_is_2x2(op)) {
				k->max_pool2_backward(
				        dx, (uint8_t *)op->state + i * out, dy, y, &s, op->mask_dx);
				masked = true;
			} else if (op->kind == LAYER_MAX_POOL) {
				k->max_pool_backward(dx, (int32_t *)op->state + i * out, dy, &s);
			} else if (op->kind == LAYER_AVG_POOL) {
				k->avg_pool_backward(dx, dy, &s);
			} else if (op->kind == LAYER_GLOBAL_POOL) {
				k->global_pool_backward(dx, dy, in / out, out);
			} else if (op->kind == LAYER_FLATTEN) {
				k->transpose(dx, dy, (size_t)s.c, (size_t)(s.h * s.w));
			}
		}
	}
	if (op->mask_dx && !masked)
		k->mask(op->dx[0] + from * in, op->x[0] + from * in, (to - from) * in);
}
