/* SPDX-License-Identifier: MIT */
/* layer_norm: y = γ·x̂ + β with x̂ = (x − μ)/√(σ² + ε), μ and σ² of the n values of one position.
 *
 * batch_norm: y = γ·x̂ + β with x̂ = (x − μ)/√(σ² + ε) for each channel, μ and σ² of the batch; in
 * an evaluation of the running means. Those move by `momentum`, the variance with n − 1 as
 * PyTorch's. A running variance below 0 counts as 0: averaging with a peer can make it so. */
#include "model/plain/plain.h"

#include <math.h>

struct channel {
	double mean, var, inv; /* inv: 1/√(var + ε) */
};

static struct channel measure(const struct program *p, const struct op *op, int64_t c, int64_t n)
{
	const int64_t channels = (int64_t)op->param[0].count;
	struct channel s = {op->param[2].value[c], fmax(op->param[3].value[c], 0), 0};
	if (p->train) {
		s.mean = s.var = 0;
		for (int64_t i = 0; i < n; i++)
			s.mean += op->x[0][i * channels + c];
		s.mean /= (double)n;
		for (int64_t i = 0; i < n; i++) {
			double d = op->x[0][i * channels + c] - s.mean;
			s.var += d * d;
		}
		s.var /= (double)n;
	}
	s.inv = 1 / sqrt(s.var + op->layer->eps);
	return s;
}

static int64_t positions(const struct op *op)
{
	return op->batch * (int64_t)shape_count(&op->in_shape) / (int64_t)op->param[0].count;
}

static void batch_forward(const struct program *p, struct op *op)
{
	const int64_t channels = (int64_t)op->param[0].count, n = positions(op);
	const double m = op->layer->momentum;
	for (int64_t c = 0; c < channels; c++) {
		const struct channel s = measure(p, op, c, n);
		const double scale = s.inv * op->param[0].value[c];
		for (int64_t i = c; i < n * channels; i += channels)
			op->y[i] = (float)((op->x[0][i] - s.mean) * scale + op->param[1].value[c]);
		if (!p->train)
			continue;
		float *mean = &op->param[2].value[c], *var = &op->param[3].value[c];
		*mean = (float)((1 - m) * *mean + m * s.mean);
		*var = (float)((1 - m) * fmax(*var, 0) +
		               m * s.var * (n > 1 ? (double)n / (double)(n - 1) : 1));
	}
}

static void batch_backward(const struct program *p, struct op *op)
{
	const int64_t channels = (int64_t)op->param[0].count, n = positions(op);
	for (int64_t c = 0; c < channels; c++) {
		const struct channel s = measure(p, op, c, n);
		double sum = 0, dot = 0;
		for (int64_t i = c; i < n * channels; i += channels) {
			sum += op->dy[i];
			dot += op->dy[i] * (op->x[0][i] - s.mean) * s.inv;
		}
		op->param[0].grad[c] += (float)dot;
		op->param[1].grad[c] += (float)sum;
		const double scale = s.inv * op->param[0].value[c];
		for (int64_t i = c; op->dx[0] && i < n * channels; i += channels) {
			double hat = (op->x[0][i] - s.mean) * s.inv;
			op->dx[0][i] = (float)(scale * (op->dy[i] - (sum + hat * dot) / (double)n));
		}
	}
}

const struct plain_op plain_op_batch_norm = {batch_forward, batch_backward};

/* Of one position. */
static struct channel measure_row(const struct op *op, const float *x)
{
	const size_t n = op->param[0].count;
	struct channel s = {0};
	for (size_t i = 0; i < n; i++)
		s.mean += x[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		s.var += (x[i] - s.mean) * (x[i] - s.mean) / (double)n;
	s.inv = 1 / sqrt(s.var + op->layer->eps);
	return s;
}

static void layer_forward(const struct program *p, struct op *op)
{
	const size_t n = op->param[0].count, all = (size_t)op->batch * shape_count(&op->in_shape);
	(void)p;
	for (size_t at = 0; at < all; at += n) {
		const struct channel s = measure_row(op, op->x[0] + at);
		for (size_t i = 0; i < n; i++)
			op->y[at + i] = (float)((op->x[0][at + i] - s.mean) * s.inv *
			                                op->param[0].value[i] +
			                        op->param[1].value[i]);
	}
}

static void layer_backward(const struct program *p, struct op *op)
{
	const size_t n = op->param[0].count, all = (size_t)op->batch * shape_count(&op->in_shape);
	(void)p;
	for (size_t at = 0; at < all; at += n) {
		const float *x = op->x[0] + at, *dy = op->dy + at, *gamma = op->param[0].value;
		const struct channel s = measure_row(op, x);
		double sum = 0, dot = 0;
		for (size_t i = 0; i < n; i++) {
			double hat = (x[i] - s.mean) * s.inv;
			sum += (double)dy[i] * gamma[i] / (double)n;
			dot += (double)dy[i] * gamma[i] * hat / (double)n;
			op->param[0].grad[i] += (float)(dy[i] * hat);
			op->param[1].grad[i] += dy[i];
		}
		for (size_t i = 0; op->dx[0] && i < n; i++) {
			double hat = (x[i] - s.mean) * s.inv;
			op->dx[0][at + i] =
			        (float)(s.inv * ((double)dy[i] * gamma[i] - sum - hat * dot));
		}
	}
}

const struct plain_op plain_op_layer_norm = {layer_forward, layer_backward};
