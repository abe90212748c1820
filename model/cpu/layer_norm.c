/* SPDX-License-Identifier: MIT */
/* layer_norm, by samples. Each worker sums the gradients of γ and β over its own rows; they are
 * added up behind the whole backward pass. */
#include "model/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

struct norm {
	size_t cols;
	float *stat;        /* (rows of the batch, 2): mean, 1/√(σ² + ε) */
	const float **part; /* one per worker: dγ, then dβ */
	float memory[];
};

static int prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	const size_t c = op->param[0].count, t = (size_t)d->threads;
	const size_t rows = (size_t)op->batch * (shape_count(&op->in_shape) / c);
	const size_t one = (2 * c + 15) / 16 * 16; /* whole cache lines for each worker */
	struct norm *s = calloc(
	        1, sizeof *s + (2 * rows + t * one) * sizeof(float) + t * sizeof *s->part + 64);
	if (!s)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	op->state = s;
	s->cols = c;
	s->part = (const float **)(void *)s->memory;
	float *at = (float *)(void *)(s->part + t);
	for (size_t w = 0; w < t; w++, at += one)
		s->part[w] = at;
	s->stat = at;
	return 0;
}

/* Where worker w's rows begin, and how many they are. */
static size_t rows_of(
        const struct cpu_device *d, const struct op *op, const struct norm *s, int w, size_t *n)
{
	const size_t one = shape_count(&op->in_shape) / s->cols;
	size_t from, to;
	cpu_samples(d, op->batch, w, &from, &to);
	*n = (to - from) * one;
	return from * one;
}

static void forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	const struct norm *s = op->state;
	size_t n, row = rows_of(d, op, s, w, &n), at = row * s->cols;
	(void)p;
	d->k->layer_norm(op->y + at, op->x[0] + at, op->param[0].value, op->param[1].value, n,
	        s->cols, op->layer->eps, s->stat + 2 * row);
}

static void backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	const struct norm *s = op->state;
	size_t n, row = rows_of(d, op, s, w, &n), at = row * s->cols;
	float *part = (float *)(uintptr_t)s->part[w];
	(void)p;
	memset(part, 0, 2 * s->cols * sizeof *part);
	d->k->layer_norm_backward(op->dx[0] ? op->dx[0] + at : NULL, op->dy + at, op->x[0] + at,
	        op->param[0].value, s->stat + 2 * row, n, s->cols, part, part + s->cols);
}

static void reduce(struct cpu_device *d, struct op *op, int w)
{
	const struct norm *s = op->state;
	cpu_reduce(d, op, s->part, w);
}

const struct cpu_op cpu_op_layer_norm = {
        .by_sample = true,
        .prepare = prepare,
        .forward = forward,
        .backward = backward,
        .reduce = reduce,
};
