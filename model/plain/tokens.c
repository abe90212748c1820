/* SPDX-License-Identifier: MIT */
/* embedding: y[t] = W[token t] + P[t].
 * attention, for each head by itself and position i over the positions j <= i:
 *
 *     p[i, j] = softmax_j(q_i · k_j / √width)        y_i = Σ_j p[i, j] v_j */
#include "model/plain/plain.h"

#include <math.h>

static void embedding(struct op *op, bool back)
{
	const int32_t *token = (const int32_t *)(const void *)op->x[0];
	int64_t positions = op->out_shape.dim[0], c = op->out_shape.dim[1];
	for (int64_t r = 0; r < op->batch * positions; r++) {
		int64_t w = token[r] * c, at = r % positions * c;
		for (int64_t i = 0; i < c; i++) {
			if (!back) {
				op->y[r * c + i] =
				        op->param[0].value[w + i] + op->param[1].value[at + i];
				continue;
			}
			op->param[0].grad[w + i] += op->dy[r * c + i];
			op->param[1].grad[at + i] += op->dy[r * c + i];
		}
	}
}

static void embedding_forward(const struct program *p, struct op *op)
{
	(void)p;
	embedding(op, false);
}

static void embedding_backward(const struct program *p, struct op *op)
{
	(void)p;
	embedding(op, true);
}

/* One head of one sample: where its queries, keys, values and its output begin. */
struct head {
	int64_t q, k, v, y;
	int64_t ld, ld_y; /* from one position to the next */
	int64_t width;
};

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

static double score(const struct op *op, const struct head *h, int64_t i, int64_t j)
{
	const float *q = op->x[0] + h->q + i * h->ld, *k = op->x[0] + h->k + j * h->ld;
	return dot(q, k, h->width) / sqrt((double)h->width);
}

/* p[i, j] is e^(score − this). */
static double log_sum(const struct op *op, const struct head *h, int64_t i)
{
	double top = score(op, h, i, 0), sum = 0;
	for (int64_t j = 1; j <= i; j++)
		top = fmax(top, score(op, h, i, j));
	for (int64_t j = 0; j <= i; j++)
		sum += exp(score(op, h, i, j) - top);
	return top + log(sum);
}

static void head_forward(struct op *op, const struct head *h)
{
	for (int64_t i = 0; i < op->in_shape.dim[0]; i++) {
		double sum = log_sum(op, h, i);
		for (int64_t j = 0; j <= i; j++) {
			double p = exp(score(op, h, i, j) - sum);
			for (int64_t c = 0; c < h->width; c++)
				op->y[h->y + i * h->ld_y + c] +=
				        (float)(p * op->x[0][h->v + j * h->ld + c]);
		}
	}
}

/* ds[i, j] = p[i, j] (dp[i, j] − Σ_j p[i, j] dp[i, j]), dp[i, j] = dy_i · v_j. */
static void head_backward(struct op *op, const struct head *h)
{
	const float *x = op->x[0];
	float *dx = op->dx[0];
	for (int64_t i = 0; dx && i < op->in_shape.dim[0]; i++) {
		const float *dy = op->dy + h->y + i * h->ld_y;
		double sum = log_sum(op, h, i), mean = 0;
		for (int64_t j = 0; j <= i; j++)
			mean += exp(score(op, h, i, j) - sum) *
			        dot(dy, x + h->v + j * h->ld, h->width);
		for (int64_t j = 0; j <= i; j++) {
			double p = exp(score(op, h, i, j) - sum);
			double ds = p * (dot(dy, x + h->v + j * h->ld, h->width) - mean) /
			            sqrt((double)h->width);
			for (int64_t c = 0; c < h->width; c++) {
				int64_t q = h->q + i * h->ld + c, k = h->k + j * h->ld + c;
				dx[h->v + j * h->ld + c] += (float)(p * dy[c]);
				dx[q] += (float)(ds * x[k]);
				dx[k] += (float)(ds * x[q]);
			}
		}
	}
}

static void attention(struct op *op, void (*run)(struct op *op, const struct head *h))
{
	int64_t positions = op->in_shape.dim[0], c = op->out_shape.dim[1];
	int64_t heads = op->layer->heads, width = c / heads;
	for (int64_t i = 0; i < op->batch * heads; i++) {
		int64_t at = i / heads * positions, q = at * 3 * c + i % heads * width;
		struct head h = {q, q + c, q + 2 * c, at * c + i % heads * width, 3 * c, c, width};
		run(op, &h);
	}
}

static void attention_forward(const struct program *p, struct op *op)
{
	(void)p;
	attention(op, head_forward);
}

static void attention_backward(const struct program *p, struct op *op)
{
	(void)p;
	attention(op, head_backward);
}

const struct plain_op plain_op_embedding = {embedding_forward, embedding_backward};
const struct plain_op plain_op_attention = {attention_forward, attention_backward};
