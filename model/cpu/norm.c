/* SPDX-License-Identifier: MIT */
/* batch_norm, by samples. A worker measures its own rows and waits once for the others; then each
 * combines what all have found by itself, in the same order: only the partial results are shared.
 *
 *     forward   own rows: mean, Σ(x − mean)² ─╫─ of all rows; y = x·scale + shift, relu
 *     backward  own rows: Σdy, Σdy·x̂         ─╫─ of all rows; dx = a·dy + b·x + c
 *
 * A running variance below 0 counts as 0: averaging with a peer can make it so. */
#include "model/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

/* One worker's. Arrays of as many as there are channels. */
struct part {
	double *mean, *squares; /* read by all: of its rows; backward: Σdy, Σdy·x̂ */
	double *all_mean, *all_inv;
	float *a, *b, *c; /* factors, or room */
	size_t rows;
};

struct norm {
	size_t channels, rows; /* rows: of the whole batch */
	struct part part[];
};

static int prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	const size_t c = op->param[0].count, t = (size_t)d->threads;
	/* Of one worker, rounded to cache lines. */
	const size_t doubles = (c + 7) / 8 * 8, floats = (c + 15) / 16 * 16;
	const size_t bytes = 4 * doubles * sizeof(double) + 3 * floats * sizeof(float);
	const size_t head = (sizeof(struct norm) + t * sizeof(struct part) + 63) / 64 * 64;
	struct norm *s = aligned_alloc(64, head + t * bytes);
	if (!s)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	op->state = s;
	s->channels = c;
	s->rows = (size_t)op->batch * (shape_count(&op->in_shape) / c);
	for (size_t w = 0; w < t; w++) {
		struct part *p = &s->part[w];
		double *at = (double *)(void *)((char *)s + head + w * bytes);
		size_t from, to;
		cpu_samples(d, op->batch, (int)w, &from, &to);
		p->rows = (to - from) * (shape_count(&op->in_shape) / c);
		p->mean = at;
		p->squares = at + doubles;
		p->all_mean = at + 2 * doubles;
		p->all_inv = at + 3 * doubles;
		p->a = (float *)(void *)(at + 4 * doubles);
		p->b = p->a + floats;
		p->c = p->b + floats;
	}
	return 0;
}

/* The first of worker w's values. */
static size_t begin(const struct cpu_device *d, const struct op *op, int w)
{
	size_t from, to;
	cpu_samples(d, op->batch, w, &from, &to);
	return from * shape_count(&op->in_shape);
}

static void run_means(struct op *op, const struct norm *s, size_t c, double mean, double squares)
{
	const double m = op->layer->momentum;
	const double n = s->rows > 1 ? (double)(s->rows - 1) : 1;
	float *var = &op->param[3].value[c];
	op->param[2].value[c] = (float)((1 - m) * op->param[2].value[c] + m * mean);
	*var = (float)((1 - m) * (*var > 0 ? *var : 0) + m * squares / n);
}

/* Of all rows, from the workers' means and sums of squares (Chan et al.). */
static void combine(struct cpu_device *d, struct op *op, int w)
{
	struct norm *s = op->state;
	struct part *mine = &s->part[w];
	for (size_t c = 0; c < s->channels; c++) {
		double n = 0, mean = 0, squares = 0;
		for (int i = 0; i < d->threads; i++) {
			const struct part *p = &s->part[i];
			if (p->rows == 0)
				continue;
			const double k = (double)p->rows, off = p->mean[c] - mean;
			mean += off * k / (n + k);
			squares += p->squares[c] + off * off * n * k / (n + k);
			n += k;
		}
		mine->all_mean[c] = mean;
		mine->all_inv[c] = 1 / sqrt(squares / n + op->layer->eps);
		if (w == 0)
			run_means(op, s, c, mean, squares);
	}
}

static void forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct norm *s = op->state;
	struct part *mine = &s->part[w];
	const size_t at = begin(d, op, w);
	if (p->train) {
		d->k->moments(op->x[0] + at, mine->rows, s->channels, mine->mean, mine->squares,
		        mine->a, mine->b, mine->c);
		pool_barrier(d->pool);
		combine(d, op, w);
	}
	for (size_t c = 0; c < s->channels; c++) {
		double mean = mine->all_mean[c], inv = mine->all_inv[c];
		if (!p->train) {
			double var = op->param[3].value[c];
			mean = op->param[2].value[c];
			inv = 1 / sqrt((var > 0 ? var : 0) + op->layer->eps);
		}
		mine->a[c] = (float)(op->param[0].value[c] * inv);
		mine->b[c] = (float)(op->param[1].value[c] - op->param[0].value[c] * inv * mean);
	}
	d->k->scale_shift(
	        op->y + at, op->x[0] + at, mine->a, mine->b, mine->rows, s->channels, op->relu);
}

static void add_grad(const struct op *op, int k, size_t c, double value)
{
	float *grad = &op->param[k].grad[c];
	*grad = (op->accumulate ? *grad : 0) + (float)value;
}

static void backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	struct norm *s = op->state;
	struct part *mine = &s->part[w];
	const size_t at = begin(d, op, w);
	(void)p;
	if (op->mask_dy)
		d->k->mask(op->dy + at, op->y + at, mine->rows * s->channels);
	for (size_t c = 0; c < s->channels; c++)
		mine->a[c] = (float)mine->all_mean[c];
	d->k->products(op->dy + at, op->x[0] + at, mine->a, mine->rows, s->channels, mine->mean,
	        mine->squares, mine->b, mine->c);
	pool_barrier(d->pool);
	const double n = (double)s->rows;
	for (size_t c = 0; c < s->channels; c++) {
		double sum = 0, dot = 0, inv = mine->all_inv[c];
		for (int i = 0; i < d->threads; i++) {
			sum += s->part[i].mean[c];
			dot += s->part[i].squares[c] * inv;
		}
		if (w == 0) {
			add_grad(op, 0, c, dot);
			add_grad(op, 1, c, sum);
		}
		/* dx = γ·inv·(dy − Σdy/n − x̂·Σdy·x̂/n) */
		const double scale = op->param[0].value[c] * inv;
		mine->a[c] = (float)scale;
		mine->b[c] = (float)(-scale * dot * inv / n);
		mine->c[c] = (float)(scale * (mine->all_mean[c] * dot * inv - sum) / n);
	}
	if (op->dx[0])
		d->k->blend(op->dx[0] + at, op->dy + at, op->x[0] + at, mine->a, mine->b, mine->c,
		        mine->rows, s->channels);
}

const struct cpu_op cpu_op_batch_norm = {
        .by_sample = true, .prepare = prepare, .forward = forward, .backward = backward};
