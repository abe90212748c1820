/* SPDX-License-Identifier: MIT */
/* Ops that look at each element by itself, by samples: each worker runs the loops of kernels.c over
 * its own. */
#include "model/cpu/cpu.h"

#include "agent/base/rng.h"
#include "model/device/dropout.h"

#include <string.h>

/* A worker's elements [at, at + n); inputs and output are alike. */
struct range {
	size_t at, n;
};

static struct range mine(const struct cpu_device *d, const struct op *op, int w)
{
	size_t one = shape_count(&op->out_shape), from, to;
	cpu_samples(d, op->batch, w, &from, &to);
	return (struct range){from * one, (to - from) * one};
}

static void mask_dx(const struct cpu_device *d, struct op *op, struct range r)
{
	if (op->mask_dx)
		d->k->mask(op->dx[0] + r.at, op->x[0] + r.at, r.n);
}

static void relu_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	d->k->relu(op->y + r.at, op->x[0] + r.at, r.n);
}

static void relu_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	if (!op->dx[0])
		return;
	memcpy(op->dx[0] + r.at, op->dy + r.at, r.n * sizeof(float));
	d->k->mask(op->dx[0] + r.at, op->y + r.at, r.n);
	mask_dx(d, op, r);
}

static void gelu_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	(op->layer->tanh ? d->k->gelu_tanh : d->k->gelu)(op->y + r.at, op->x[0] + r.at, r.n);
}

static void gelu_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	if (!op->dx[0])
		return;
	(op->layer->tanh ? d->k->gelu_tanh_backward : d->k->gelu_backward)(
	        op->dx[0] + r.at, op->dy + r.at, op->x[0] + r.at, r.n);
	mask_dx(d, op, r);
}

static void run_dropout(struct cpu_device *d, const struct program *p, const struct op *op,
        float *to, const float *from, struct range r)
{
	d->k->dropout(to + r.at, from + r.at, r.at, r.n, rng_mix(p->dropout_seed, op->index, 0),
	        dropout_keep_below(op->layer->p), (float)(1 / (1 - op->layer->p)));
}

static void dropout_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	if (p->train)
		run_dropout(d, p, op, op->y, op->x[0], r);
	else
		memcpy(op->y + r.at, op->x[0] + r.at, r.n * sizeof(float));
}

static void dropout_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	if (!op->dx[0])
		return;
	run_dropout(d, p, op, op->dx[0], op->dy, r);
	mask_dx(d, op, r);
}

static void add_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	d->k->add(op->y + r.at, op->x[0] + r.at, op->x[1] + r.at, r.n, op->relu);
}

static void add_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct range r = mine(d, op, w);
	(void)p;
	if (op->mask_dy)
		d->k->mask(op->dy + r.at, op->y + r.at, r.n);
	for (int k = 0; k < LAYER_INPUTS_MAX; k++)
		if (op->dx[k])
			memcpy(op->dx[k] + r.at, op->dy + r.at, r.n * sizeof(float));
}

const struct cpu_op cpu_op_relu = {
        .by_sample = true, .forward = relu_forward, .backward = relu_backward};
const struct cpu_op cpu_op_gelu = {
        .by_sample = true, .forward = gelu_forward, .backward = gelu_backward};
const struct cpu_op cpu_op_dropout = {
        .by_sample = true, .forward = dropout_forward, .backward = dropout_backward};
const struct cpu_op cpu_op_add = {
        .by_sample = true, .forward = add_forward, .backward = add_backward};
