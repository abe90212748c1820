/* SPDX-License-Identifier: MIT */
/* Dense layers: y = x Wᵀ + b, W (out, in); the head, with the weight of the embedding. The workers
 * split features, not samples: each computes its columns of y, its rows of dW and its columns of
 * dx, so that no gradient has to be summed over workers and a weight is read by one of them only.
 *
 *     forward   y[:, o]  = x W[o, :]ᵀ + b[o]          o: this worker's outputs
 *     backward  dW[o, :] = dy[:, o]ᵀ x,  db[o] = Σ dy[:, o]
 *               dx[:, i] = dy W[:, i]                  i: this worker's inputs
 */
#include "model/cpu/cpu.h"

#include <stdlib.h>

#define GRAIN 64 /* features: narrower strips make slow, thin multiplications */

struct product {
	struct gemm_shape shape;
	enum gemm_library library;
	size_t from, to; /* features */
};

struct dense {
	size_t rows, in, out;
	struct {
		struct product forward, weights, data;
	} part[]; /* one per worker */
};

/* The worker's features of n, written where the shape wants their count. */
static void plan(struct cpu_device *d, struct product *p, size_t n, int w, int32_t *count)
{
	pool_part(n, n >= GRAIN * (size_t)d->threads ? GRAIN : 16, w, d->threads, &p->from, &p->to);
	*count = (int32_t)(p->to - p->from);
	if (p->from < p->to)
		p->library = gemm_choose(&d->gemm, &p->shape);
}

static int prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	struct dense *s = calloc(1, sizeof *s + (size_t)d->threads * sizeof s->part[0]);
	if (!s)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	s->in = (size_t)op->in_shape.dim[op->in_shape.rank - 1];
	s->out = (size_t)op->out_shape.dim[op->out_shape.rank - 1];
	s->rows = (size_t)op->batch * (shape_count(&op->in_shape) / s->in);
	op->state = s;
	if (s->rows > INT32_MAX)
		return err_set(e, ERR_LIMIT, "%.80s: too many rows in a batch", op->layer->name);
	int32_t m = (int32_t)s->rows, i = (int32_t)s->in, o = (int32_t)s->out;
	for (int w = 0; w < d->threads; w++) {
		struct product *p = &s->part[w].forward;
		p->shape = (struct gemm_shape){false, true, m, 0, i, i, i, o};
		plan(d, p, s->out, w, &p->shape.n);
		p = &s->part[w].weights;
		p->shape = (struct gemm_shape){true, false, 0, i, m, o, i, i};
		plan(d, p, s->out, w, &p->shape.m);
		if (!op->dx[0])
			continue;
		p = &s->part[w].data;
		p->shape = (struct gemm_shape){false, false, m, 0, o, o, i, i};
		plan(d, p, s->in, w, &p->shape.n);
	}
	return 0;
}

static void multiply(struct cpu_device *d, const struct product *p, const float *a, const float *b,
        bool accumulate, float *c)
{
	if (gemm_run(p->library, &p->shape, a, b, accumulate ? 1 : 0, c) != 0)
		d->failed = 1;
}

static void forward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct dense *s = op->state;
	const float *b = op->param[1].value;
	(void)prog;
	const struct product *p = &s->part[w].forward;
	if (p->from == p->to)
		return;
	multiply(d, p, op->x[0], op->param[0].value + p->from * s->in, false, op->y + p->from);
	if (b || op->relu)
		d->k->bias(op->y + p->from, b ? b + p->from : NULL, s->rows, p->to - p->from,
		        s->out, op->relu);
}

static void backward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct dense *s = op->state;
	float *dw = op->param[0].grad, *db = op->param[1].grad;
	(void)prog;
	const struct product *p = &s->part[w].weights;
	size_t mine = p->to - p->from;
	if (op->mask_dy) {
		d->k->mask_part(op->dy + p->from, op->y + p->from, s->rows, mine, s->out);
		pool_barrier(d->pool);
	}
	if (mine > 0) {
		multiply(d, p, op->dy + p->from, op->x[0], op->accumulate || op->param[0].shared,
		        dw + p->from * s->in);
		if (db)
			d->k->column_sum(db + p->from, op->dy + p->from, s->rows, mine, s->out,
			        op->accumulate);
	}
	p = &s->part[w].data;
	if (!op->dx[0] || p->from == p->to)
		return;
	multiply(d, p, op->dy, op->param[0].value + p->from, false, op->dx[0] + p->from);
	if (op->mask_dx)
		d->k->mask_part(
		        op->dx[0] + p->from, op->x[0] + p->from, s->rows, p->to - p->from, s->in);
}

const struct cpu_op cpu_op_dense = {.prepare = prepare, .forward = forward, .backward = backward};
const struct cpu_op cpu_op_head = {.prepare = prepare, .forward = forward, .backward = backward};
