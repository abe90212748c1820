/* SPDX-License-Identifier: MIT */
/* The plain backend: one thread, no library, each op written as its definition (the other files of
 * this folder). It is slow. The fast backends are compared with it, and sanitizers run it. */
#include "model/plain/plain.h"

#include "model/device/contract.h"

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

#define X(KIND, name) [LAYER_##KIND] = &plain_op_##name,
static const struct plain_op *const ops[LAYER_KINDS] = {LAYER_LIST(X)};
#undef X

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
		ops[op->kind]->forward(p, op);
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
	ops[op->kind]->backward(p, op);
	if (op->mask_dx)
		relu_mask(op->dx[0], op->x[0], n_in);
}

static int plain_backward(struct device *dev, struct program *p, struct err *e)
{
	(void)dev, (void)e;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		for (int k = 0; k < op->n_param && !op->accumulate; k++)
			memset(op->param[k].grad, 0, op->param[k].count * sizeof(float));
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
	count *= p->positions;
	scale /= (float)p->positions;
	*r = (struct loss_result){.count = count};
	for (int64_t i = 0; i < p->batch * p->positions; i++) {
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
	UNCONTRACTED_BODY(void) dev, (void)e;
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
