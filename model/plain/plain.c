/* SPDX-License-Identifier: MIT */
/* The plain backend: one thread, no library, each op written as its definition. It is slow. The
 * fast backends are compared with it, and sanitizers run it. */
#include "agent/base/rng.h"
#include "model/device/contract.h"
#include "model/device/device.h"
#include "model/device/dropout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend backend_plain;

static int plain_open(struct device **out, const struct device_config *c, struct err *e)
{
	(void)c;
	*out = calloc(1, sizeof **out);
	if (!*out)
		return err_set(e, ERR_NOMEM, "no memory for a device");
	(*out)->backend = &backend_plain;
	snprintf((*out)->text, sizeof(*out)->text, "plain (one thread, for tests)");
	return 0;
}

static void plain_close(struct device *d)
{
	free(d);
}

static void *plain_alloc(struct device *d, size_t bytes)
{
	(void)d;
	return calloc(1, bytes ? bytes : 1);
}

static void plain_release(struct device *d, void *p)
{
	(void)d;
	free(p);
}

static void plain_copy(struct device *d, void *to, const void *from, size_t bytes)
{
	(void)d;
	memcpy(to, from, bytes);
}

static int plain_prepare(struct device *d, struct program *p, struct err *e)
{
	(void)d, (void)p, (void)e;
	return 0;
}

static void plain_unprepare(struct device *d, struct program *p)
{
	(void)d, (void)p;
}

static void dense_forward(struct op *op)
{
	int64_t in = op->in_shape.dim[op->in_shape.rank - 1], out = op->layer->units;
	int64_t rows = op->batch * (int64_t)shape_count(&op->in_shape) / in;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < out; o++) {
			float s = op->b ? op->b[o] : 0;
			for (int64_t i = 0; i < in; i++)
				s += op->x[0][r * in + i] * op->w[o * in + i];
			op->y[r * out + o] = s;
		}
}

static void dense_backward(struct op *op)
{
	int64_t in = op->in_shape.dim[op->in_shape.rank - 1], out = op->layer->units;
	int64_t rows = op->batch * (int64_t)shape_count(&op->in_shape) / in;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < out; o++) {
			float d = op->dy[r * out + o];
			if (op->db)
				op->db[o] += d;
			for (int64_t i = 0; i < in; i++) {
				op->dw[o * in + i] += d * op->x[0][r * in + i];
				if (op->dx[0])
					op->dx[0][r * in + i] += d * op->w[o * in + i];
			}
		}
}

/* Calls visit for every (output position, input position) pair under a window. */
struct pair {
	int64_t y, x; /* offsets of channel 0 */
	int64_t tap;  /* place in the kernel */
	bool first;   /* of this output position */
};
typedef void (*pair_fn)(struct op *op, const struct pair *p);

static void windows(struct op *op, pair_fn visit)
{
	const struct layer *l = op->layer;
	const int64_t *in = op->in_shape.dim, *out = op->out_shape.dim;
	for (int64_t n = 0; n < op->batch; n++)
		for (int64_t i = 0; i < out[0]; i++)
			for (int64_t j = 0; j < out[1]; j++) {
				bool first = true;
				for (int64_t t = 0; t < l->kernel * l->kernel; t++) {
					int64_t u = i * l->stride - l->pad + t / l->kernel;
					int64_t v = j * l->stride - l->pad + t % l->kernel;
					if (u < 0 || v < 0 || u >= in[0] || v >= in[1])
						continue;
					struct pair p = {((n * out[0] + i) * out[1] + j) * out[2],
					        ((n * in[0] + u) * in[1] + v) * in[2], t, first};
					visit(op, &p);
					first = false;
				}
			}
}

static void conv_pair(struct op *op, const struct pair *p)
{
	int64_t c = op->in_shape.dim[2], k2 = op->layer->kernel * op->layer->kernel;
	for (int64_t o = 0; o < op->out_shape.dim[2]; o++)
		for (int64_t i = 0; i < c; i++)
			op->y[p->y + o] += op->x[0][p->x + i] * op->w[(o * c + i) * k2 + p->tap];
}

static void conv_forward(struct op *op)
{
	int64_t o = op->out_shape.dim[2], n = op->batch * (int64_t)shape_count(&op->out_shape);
	for (int64_t i = 0; i < n; i++)
		op->y[i] = op->b ? op->b[i % o] : 0;
	windows(op, conv_pair);
}

static void conv_back_pair(struct op *op, const struct pair *p)
{
	int64_t c = op->in_shape.dim[2], k2 = op->layer->kernel * op->layer->kernel;
	for (int64_t o = 0; o < op->out_shape.dim[2]; o++)
		for (int64_t i = 0; i < c; i++) {
			float d = op->dy[p->y + o];
			op->dw[(o * c + i) * k2 + p->tap] += d * op->x[0][p->x + i];
			if (op->dx[0])
				op->dx[0][p->x + i] += d * op->w[(o * c + i) * k2 + p->tap];
		}
}

static void conv_backward(struct op *op)
{
	int64_t o = op->out_shape.dim[2], n = op->batch * (int64_t)shape_count(&op->out_shape);
	windows(op, conv_back_pair);
	for (int64_t i = 0; op->db && i < n; i++)
		op->db[i % o] += op->dy[i];
}

static void max_pair(struct op *op, const struct pair *p)
{
	for (int64_t c = 0; c < op->in_shape.dim[2]; c++)
		if (p->first || op->x[0][p->x + c] > op->y[p->y + c])
			op->y[p->y + c] = op->x[0][p->x + c];
}

/* The first position that holds the maximum takes the gradient; dy is used up to mark that. */
static void max_back_pair(struct op *op, const struct pair *p)
{
	for (int64_t c = 0; c < op->in_shape.dim[2]; c++)
		if (op->x[0][p->x + c] == op->y[p->y + c]) {
			op->dx[0][p->x + c] += op->dy[p->y + c];
			op->dy[p->y + c] = 0;
		}
}

static void avg_pair(struct op *op, const struct pair *p)
{
	float share = 1.0f / (float)(op->layer->kernel * op->layer->kernel);
	for (int64_t c = 0; c < op->in_shape.dim[2]; c++)
		op->y[p->y + c] += op->x[0][p->x + c] * share;
}

static void avg_back_pair(struct op *op, const struct pair *p)
{
	float share = 1.0f / (float)(op->layer->kernel * op->layer->kernel);
	for (int64_t c = 0; c < op->in_shape.dim[2]; c++)
		op->dx[0][p->x + c] += op->dy[p->y + c] * share;
}

/* flatten and global pool: for every element of an image, its place in the output. */
static void per_pixel(struct op *op, bool backward)
{
	const int64_t *in = op->in_shape.dim;
	int64_t area = in[0] * in[1], image = area * in[2];
	bool global = op->kind == LAYER_GLOBAL_POOL;
	float share = global ? 1.0f / (float)area : 1;
	for (int64_t i = 0; i < op->batch * image; i++) {
		int64_t n = i / image, pixel = i % image / in[2], c = i % in[2];
		int64_t o = global ? n * in[2] + c : n * image + c * area + pixel;
		if (backward)
			op->dx[0][i] += op->dy[o] * share;
		else
			op->y[o] += op->x[0][i] * share;
	}
}

static float dropout_factor(const struct program *p, const struct op *op, size_t i)
{
	uint64_t seed = rng_mix(p->dropout_seed, op->index, 0);
	if (!p->train)
		return 1;
	return dropout_hash(seed, (uint32_t)i) < dropout_keep_below(op->layer->p)
	               ? (float)(1 / (1 - op->layer->p))
	               : 0;
}

static double normal_cdf(double x)
{
	return 0.5 * erfc(-x / sqrt(2));
}

static void elementwise(struct program *p, struct op *op, size_t n, bool backward)
{
	for (size_t i = 0; i < n; i++) {
		float x = op->x[0][i], y = 0, slope = 0;
		switch (op->kind) {
		case LAYER_RELU:
			y = x > 0 ? x : 0;
			slope = x > 0 ? 1 : 0;
			break;
		case LAYER_GELU:
			y = (float)(x * normal_cdf(x));
			slope = (float)(normal_cdf(x) + x * exp(-0.5 * x * x) * 0.3989422804014327);
			break;
		case LAYER_DROPOUT:
			slope = dropout_factor(p, op, i);
			y = x * slope;
			break;
		default: /* add */
			y = x + op->x[1][i];
			slope = 1;
			break;
		}
		if (!backward)
			op->y[i] = y;
		for (int k = 0; backward && k < LAYER_INPUTS_MAX; k++)
			if (op->dx[k])
				op->dx[k][i] = op->dy[i] * slope;
	}
}

static size_t values(const struct op *op, const struct shape *s)
{
	return (size_t)op->batch * shape_count(s);
}

static void relu_mask(float *d, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(x[i] > 0))
			d[i] = 0;
}

static int plain_forward(struct device *dev, struct program *p, struct err *e)
{
	(void)dev, (void)e;
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		size_t n = values(op, &op->out_shape);
		memset(op->y, 0, n * sizeof *op->y);
		switch (op->kind) {
		case LAYER_DENSE:
			dense_forward(op);
			break;
		case LAYER_CONV2D:
			conv_forward(op);
			break;
		case LAYER_MAX_POOL:
			windows(op, max_pair);
			break;
		case LAYER_AVG_POOL:
			windows(op, avg_pair);
			break;
		case LAYER_GLOBAL_POOL:
		case LAYER_FLATTEN:
			per_pixel(op, false);
			break;
		default:
			elementwise(p, op, n, false);
			break;
		}
		if (op->relu)
			relu_mask(op->y, op->y, n);
	}
	return 0;
}

static void op_backward(struct program *p, struct op *op)
{
	size_t n_in = values(op, &op->in_shape), n_out = values(op, &op->out_shape);
	if (op->mask_dy)
		relu_mask(op->dy, op->y, n_out);
	if (op->dx[0])
		memset(op->dx[0], 0, n_in * sizeof(float));
	switch (op->kind) {
	case LAYER_DENSE:
		dense_backward(op);
		break;
	case LAYER_CONV2D:
		conv_backward(op);
		break;
	case LAYER_MAX_POOL:
		windows(op, max_back_pair);
		break;
	case LAYER_AVG_POOL:
		windows(op, avg_back_pair);
		break;
	case LAYER_GLOBAL_POOL:
	case LAYER_FLATTEN:
		per_pixel(op, true);
		break;
	default:
		elementwise(p, op, n_out, true);
		break;
	}
	if (op->mask_dx)
		relu_mask(op->dx[0], op->x[0], n_in);
}

static int plain_backward(struct device *dev, struct program *p, struct err *e)
{
	(void)dev, (void)e;
	for (int i = 0; i < p->n_ops && !p->accumulate; i++) {
		struct op *op = &p->ops[i];
		int64_t in = op->in_shape.dim[op->in_shape.rank - 1], out = op->layer->units;
		int64_t area = op->kind == LAYER_CONV2D ? op->layer->kernel * op->layer->kernel : 1;
		if (op->dw)
			memset(op->dw, 0, (size_t)(in * out * area) * sizeof(float));
		if (op->db)
			memset(op->db, 0, (size_t)out * sizeof(float));
	}
	for (int i = 0; i < p->n_backward; i++) {
		struct backward_step *s = &p->backward[i];
		if (s->op)
			op_backward(p, s->op);
		for (size_t k = 0; !s->op && k < s->count; k++)
			s->sum[k] += s->part[k];
	}
	return 0;
}

static int plain_loss(struct device *dev, struct program *p, int64_t count, float scale,
        struct loss_result *r, struct err *e)
{
	(void)dev, (void)e;
	*r = (struct loss_result){.count = count};
	for (int64_t i = 0; i < p->batch; i++) {
		const float *z = p->logits + i * p->classes;
		double top = z[0], sum = 0;
		int64_t best = 0;
		for (int64_t c = 1; c < p->classes; c++)
			if (z[c] > top) {
				top = z[c];
				best = c;
			}
		for (int64_t c = 0; c < p->classes; c++)
			sum += exp(z[c] - top);
		for (int64_t c = 0; c < p->classes && p->train; c++) {
			double softmax = exp(z[c] - top) / sum, one = c == p->labels[i];
			p->dlogits[i * p->classes + c] =
			        i < count ? (float)((softmax - one) * scale) : 0;
		}
		if (i >= count)
			continue;
		r->loss_sum += log(sum) + top - z[p->labels[i]];
		r->correct += best == p->labels[i];
	}
	return 0;
}

static int plain_sum_squares(
        struct device *dev, const float *x, size_t n, double *out, struct err *e)
{
	(void)dev, (void)e;
	*out = 0;
	for (size_t i = 0; i < n; i++)
		*out += (double)x[i] * x[i];
	return 0;
}

static int plain_sgd(struct device *dev, float *w, float *m, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	(void)dev, (void)e;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] * a->grad_scale + a->weight_decay * w[i];
		m[i] = a->momentum * m[i] + d;
		w[i] -= a->lr * (a->nesterov ? d + a->momentum * m[i] : m[i]);
	}
	return 0;
}

static int plain_adamw(struct device *dev, float *w, float *m, float *v, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	(void)dev, (void)e;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] * a->grad_scale;
		w[i] -= a->lr * a->weight_decay * w[i];
		m[i] = a->beta1 * m[i] + (1 - a->beta1) * d;
		v[i] = a->beta2 * v[i] + (1 - a->beta2) * d * d;
		w[i] -= a->lr * (m[i] / a->bias1) / (sqrtf(v[i] / a->bias2) + a->eps);
	}
	return 0;
}

UNCONTRACTED static int plain_add(
        struct device *dev, float *x, const float *host, size_t n, float k, struct err *e)
{
	UNCONTRACTED_BODY
	(void)dev, (void)e;
	for (size_t i = 0; i < n; i++)
		x[i] += k * host[i];
	return 0;
}

const struct backend backend_plain = {
        .abi = BACKEND_ABI,
        .name = "plain",
        .open = plain_open,
        .close = plain_close,
        .alloc = plain_alloc,
        .release = plain_release,
        .upload = plain_copy,
        .download = plain_copy,
        .prepare = plain_prepare,
        .unprepare = plain_unprepare,
        .forward = plain_forward,
        .loss = plain_loss,
        .backward = plain_backward,
        .sum_squares = plain_sum_squares,
        .sgd = plain_sgd,
        .adamw = plain_adamw,
        .add = plain_add,
};
