/* SPDX-License-Identifier: MIT */
/* embedding. A token may be anywhere in the batch, and several times: in the backward pass the
 * workers split columns, not samples. Each adds its columns of every row of dy in their order, so
 * that there is nothing to lock, and the sums are the same for any number of threads. */
#include "model/cpu/cpu.h"

#include <string.h>

static void forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	const int32_t *token = (const int32_t *)(const void *)op->x[0];
	const size_t t = (size_t)op->out_shape.dim[0], c = (size_t)op->out_shape.dim[1];
	size_t from, to;
	(void)p;
	cpu_samples(d, op->batch, w, &from, &to);
	for (size_t r = from * t; r < to * t; r++)
		d->k->add(op->y + r * c, op->param[0].value + (size_t)token[r] * c,
		        op->param[1].value + r % t * c, c, false);
}

/* The worker's columns of a gradient begin as 0, unless they are added to what is there. */
static void clear(const struct op *op, int k, size_t c, size_t from, size_t n)
{
	const struct op_param *p = &op->param[k];
	for (size_t r = 0; !op->accumulate && !p->shared && r < p->count / c; r++)
		memset(p->grad + r * c + from, 0, n * sizeof(float));
}

static void backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	const int32_t *token = (const int32_t *)(const void *)op->x[0];
	const size_t t = (size_t)op->out_shape.dim[0], c = (size_t)op->out_shape.dim[1];
	size_t from, to;
	(void)p;
	pool_part(c, 16, w, d->threads, &from, &to);
	if (from == to)
		return;
	clear(op, 0, c, from, to - from);
	clear(op, 1, c, from, to - from);
	for (size_t r = 0; r < (size_t)op->batch * t; r++) {
		const float *dy = op->dy + r * c + from;
		d->k->sum_into(op->param[0].grad + (size_t)token[r] * c + from, dy, to - from);
		d->k->sum_into(op->param[1].grad + r % t * c + from, dy, to - from);
	}
}

const struct cpu_op cpu_op_embedding = {
        .by_sample = true, .forward = forward, .backward = backward};
