/* SPDX-License-Identifier: MIT */
/* Causal self-attention, by samples; every head of a sample by itself:
 *
 *     S = Q Kᵀ     P = softmax of the rows, up to the diagonal, of S/√width     Y = P V
 *     dP = dY Vᵀ   dS = P (dP − Σ P dP)/√width    dV = Pᵀ dY   dQ = dS K   dK = dSᵀ Q
 *
 * Q, K, V are columns of one matrix, so the products have its leading dimension. P is computed
 * again in the backward pass: a worker has room for two T×T matrices, of the device, whatever the
 * number of layers. */
#include "model/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

enum { SCORES, OUTPUT, D_SCORES, D_QUERY, D_KEY, D_VALUE, PRODUCTS };

struct attention {
	size_t t, c, width; /* of a head */
	struct {
		struct gemm_shape shape;
		enum gemm_library library;
	} product[PRODUCTS];
};

static int prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	struct attention *s = calloc(1, sizeof *s);
	op->state = s;
	if (!s || cpu_scratch(d, 2 * shape_count(&(struct shape){
	                                     2, {op->in_shape.dim[0], op->in_shape.dim[0]}})))
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	s->t = (size_t)op->in_shape.dim[0];
	s->c = (size_t)op->out_shape.dim[1];
	s->width = s->c / (size_t)op->layer->heads;
	const int32_t t = (int32_t)s->t, c = (int32_t)s->c, h = (int32_t)s->width, x = 3 * c;
	const struct gemm_shape shapes[PRODUCTS] = {
	        [SCORES] = {false, true, t, t, h, x, x, t},
	        [OUTPUT] = {false, false, t, h, t, t, x, c},
	        [D_SCORES] = {false, true, t, t, h, c, x, t},
	        [D_QUERY] = {false, false, t, h, t, t, x, x},
	        [D_KEY] = {true, false, t, h, t, t, x, x},
	        [D_VALUE] = {true, false, t, h, t, t, c, x},
	};
	for (int i = 0; i < PRODUCTS; i++) {
		s->product[i].shape = shapes[i];
		s->product[i].library = gemm_choose(&d->gemm, &shapes[i]);
	}
	return 0;
}

static void multiply(
        struct cpu_device *d, const struct op *op, int i, const float *a, const float *b, float *c)
{
	const struct attention *s = op->state;
	if (gemm_run(s->product[i].library, &s->product[i].shape, a, b, 0, c) != 0)
		d->failed = 1;
}

/* P of the head whose queries begin at q. */
static void weights(struct cpu_device *d, const struct op *op, const float *q, float *p)
{
	const struct attention *s = op->state;
	multiply(d, op, SCORES, q, q + s->c, p);
	d->k->causal_softmax(p, s->t, 1 / sqrtf((float)s->width));
}

static void forward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct attention *s = op->state;
	float *p = cpu_scratch_of(d, w);
	size_t from, to;
	(void)prog;
	cpu_samples(d, op->batch, w, &from, &to);
	for (size_t n = from; n < to; n++)
		for (size_t at = 0; at < s->c; at += s->width) {
			const float *q = op->x[0] + n * s->t * 3 * s->c + at;
			weights(d, op, q, p);
			multiply(d, op, OUTPUT, p, q + 2 * s->c, op->y + n * s->t * s->c + at);
		}
}

static void backward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct attention *s = op->state;
	float *p = cpu_scratch_of(d, w), *ds = p + s->t * s->t;
	size_t from, to;
	(void)prog;
	cpu_samples(d, op->batch, w, &from, &to);
	for (size_t n = from; op->dx[0] && n < to; n++)
		for (size_t at = 0; at < s->c; at += s->width) {
			const size_t in = n * s->t * 3 * s->c + at;
			const float *q = op->x[0] + in, *dy = op->dy + n * s->t * s->c + at;
			float *dq = op->dx[0] + in;
			weights(d, op, q, p);
			multiply(d, op, D_VALUE, p, dy, dq + 2 * s->c);
			multiply(d, op, D_SCORES, dy, q + 2 * s->c, ds);
			d->k->causal_softmax_backward(ds, p, s->t, 1 / sqrtf((float)s->width));
			multiply(d, op, D_QUERY, ds, q + s->c, dq);
			multiply(d, op, D_KEY, ds, q, dq + s->c);
		}
}

const struct cpu_op cpu_op_attention = {
        .by_sample = true, .prepare = prepare, .forward = forward, .backward = backward};
