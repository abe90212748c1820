/* SPDX-License-Identifier: MIT */
/* Ops with a window that moves over an image: convolution and the pools. */
#include "model/plain/plain.h"

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
			op->y[p->y + o] +=
			        op->x[0][p->x + i] * op->param[0].value[(o * c + i) * k2 + p->tap];
}

static void conv_forward(const struct program *prog, struct op *op)
{
	int64_t o = op->out_shape.dim[2], n = op->batch * (int64_t)shape_count(&op->out_shape);
	(void)prog;
	for (int64_t i = 0; i < n; i++)
		op->y[i] = op->param[1].value ? op->param[1].value[i % o] : 0;
	windows(op, conv_pair);
}

static void conv_back_pair(struct op *op, const struct pair *p)
{
	int64_t c = op->in_shape.dim[2], k2 = op->layer->kernel * op->layer->kernel;
	for (int64_t o = 0; o < op->out_shape.dim[2]; o++)
		for (int64_t i = 0; i < c; i++) {
			float d = op->dy[p->y + o];
			op->param[0].grad[(o * c + i) * k2 + p->tap] += d * op->x[0][p->x + i];
			if (op->dx[0])
				op->dx[0][p->x + i] +=
				        d * op->param[0].value[(o * c + i) * k2 + p->tap];
		}
}

static void conv_backward(const struct program *prog, struct op *op)
{
	int64_t o = op->out_shape.dim[2], n = op->batch * (int64_t)shape_count(&op->out_shape);
	(void)prog;
	windows(op, conv_back_pair);
	for (int64_t i = 0; op->param[1].grad && i < n; i++)
		op->param[1].grad[i % o] += op->dy[i];
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

static void max_forward(const struct program *p, struct op *op)
{
	(void)p;
	windows(op, max_pair);
}

static void max_backward(const struct program *p, struct op *op)
{
	(void)p;
	windows(op, max_back_pair);
}

static void avg_forward(const struct program *p, struct op *op)
{
	(void)p;
	windows(op, avg_pair);
}

static void avg_backward(const struct program *p, struct op *op)
{
	(void)p;
	windows(op, avg_back_pair);
}

/* Of every output position: the pixel that it copies. */
static void shortcut(struct op *op, bool back)
{
	const int64_t *in = op->in_shape.dim, *out = op->out_shape.dim, s = op->layer->stride;
	for (int64_t i = 0; i < op->batch * out[0] * out[1]; i++) {
		int64_t n = i / (out[0] * out[1]), u = i / out[1] % out[0] * s, v = i % out[1] * s;
		int64_t x = ((n * in[0] + u) * in[1] + v) * in[2];
		for (int64_t c = 0; c < in[2]; c++) {
			if (back)
				op->dx[0][x + c] = op->dy[i * out[2] + c];
			else
				op->y[i * out[2] + c] = op->x[0][x + c];
		}
	}
}

static void shortcut_forward(const struct program *p, struct op *op)
{
	(void)p;
	shortcut(op, false);
}

static void shortcut_backward(const struct program *p, struct op *op)
{
	(void)p;
	shortcut(op, true);
}

const struct plain_op plain_op_conv2d = {conv_forward, conv_backward};
const struct plain_op plain_op_max_pool = {max_forward, max_backward};
const struct plain_op plain_op_avg_pool = {avg_forward, avg_backward};
const struct plain_op plain_op_shortcut = {shortcut_forward, shortcut_backward};
