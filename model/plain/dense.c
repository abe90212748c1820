/* SPDX-License-Identifier: MIT */
/* Dense layers: y[o] = b[o] + Σ_i x[i] W[o, i] for every row of the batch. The head is one, with
 * the weight of the embedding. */
#include "model/plain/plain.h"

static void forward(const struct program *p, struct op *op)
{
	int64_t in = op->in_shape.dim[op->in_shape.rank - 1];
	int64_t out = op->out_shape.dim[op->out_shape.rank - 1];
	int64_t rows = op->batch * (int64_t)shape_count(&op->in_shape) / in;
	const float *w = op->param[0].value, *b = op->param[1].value;
	(void)p;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < out; o++) {
			float s = b ? b[o] : 0;
			for (int64_t i = 0; i < in; i++)
				s += op->x[0][r * in + i] * w[o * in + i];
			op->y[r * out + o] = s;
		}
}

static void backward(const struct program *p, struct op *op)
{
	int64_t in = op->in_shape.dim[op->in_shape.rank - 1];
	int64_t out = op->out_shape.dim[op->out_shape.rank - 1];
	int64_t rows = op->batch * (int64_t)shape_count(&op->in_shape) / in;
	const float *w = op->param[0].value;
	float *dw = op->param[0].grad, *db = op->param[1].grad;
	(void)p;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < out; o++) {
			float d = op->dy[r * out + o];
			if (db)
				db[o] += d;
			for (int64_t i = 0; i < in; i++) {
				dw[o * in + i] += d * op->x[0][r * in + i];
				if (op->dx[0])
					op->dx[0][r * in + i] += d * w[o * in + i];
			}
		}
}

const struct plain_op plain_op_dense = {forward, backward};
const struct plain_op plain_op_head = {forward, backward};
