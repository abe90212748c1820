/* SPDX-License-Identifier: MIT */
/* Ops without parameters: one kernel each, forward and backward. */
#include "model/cuda/cuda.h"

#include "agent/base/rng.h"
#include "model/device/dropout.h"

static uint32_t n_out(const struct op *op)
{
	return (uint32_t)cuda_count(op, &op->out_shape);
}

static struct cuda_window window_of(const struct op *op)
{
	const int64_t *in = op->in_shape.dim, *out = op->out_shape.dim;
	return (struct cuda_window){.batch = (uint32_t)op->batch,
	        .h = (uint32_t)in[0],
	        .w = (uint32_t)in[1],
	        .c = (uint32_t)in[2],
	        .oh = (uint32_t)out[0],
	        .ow = (uint32_t)out[1],
	        .kernel = (uint32_t)op->layer->kernel,
	        .stride = (uint32_t)op->layer->stride,
	        .pad = (uint32_t)op->layer->pad};
}

static int copy(struct cuda_device *d, float *to, const float *from, uint32_t n, struct err *e)
{
	return CUDA(
	        cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToDevice, d->compute));
}

static int dropout(struct cuda_device *d, const struct program *p, const struct op *op, float *to,
        const float *from, struct err *e)
{
	if (!p->train)
		return copy(d, to, from, n_out(op), e);
	return CUDA(kernel_dropout(to, from, n_out(op), rng_mix(p->dropout_seed, op->index, 0),
	        dropout_keep_below(op->layer->p), (float)(1 / (1 - op->layer->p)), d->compute));
}

static int relu_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	(void)p;
	return CUDA(kernel_relu(op->y, op->x[0], n_out(op), d->compute));
}

static int relu_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	(void)p;
	return CUDA(kernel_relu_back(op->dx[0], op->dy, op->y, n_out(op), d->compute));
}

static int gelu_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	(void)p;
	return CUDA(kernel_gelu(op->y, op->x[0], n_out(op), d->compute));
}

static int gelu_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	(void)p;
	return CUDA(kernel_gelu_back(op->dx[0], op->dy, op->x[0], n_out(op), d->compute));
}

static int dropout_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	return dropout(d, p, op, op->y, op->x[0], e);
}

static int dropout_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	return dropout(d, p, op, op->dx[0], op->dy, e);
}

static int add_forward(struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	(void)p;
	return CUDA(kernel_add(op->y, op->x[0], op->x[1], n_out(op), op->relu, d->compute));
}

static int add_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	int rc = 0;
	(void)p;
	for (int k = 0; k < LAYER_INPUTS_MAX && rc == 0; k++)
		if (op->dx[k])
			rc = copy(d, op->dx[k], op->dy, n_out(op), e);
	return rc;
}

static int flatten_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_transpose(op->y, op->x[0], v.batch, v.h * v.w, v.c, false, d->compute));
}

static int flatten_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(
	        kernel_transpose(op->dx[0], op->dy, v.batch, v.c, v.h * v.w, false, d->compute));
}

/* The pools' kernels apply the mask while they write the gradient: this is where they look. */
static const float *mask_of(const struct op *op)
{
	return op->mask_dx ? op->x[0] : NULL;
}

/* Where each maximum was. */
static int max_pool_count(struct cuda_device *d, const struct op *op, bool want_dx,
        struct cuda_need *n, struct err *e)
{
	(void)d, (void)want_dx, (void)e;
	n->other += cuda_room(n_out(op) * sizeof(int32_t));
	return 0;
}

static int max_pool_prepare(struct cuda_device *d, struct op *op, struct err *e)
{
	return cuda_take(d, &op->state, n_out(op) * sizeof(int32_t), e);
}

static int max_pool_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_max_pool(op->y, op->state, op->x[0], &v, d->compute));
}

static int max_pool_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(
	        kernel_max_pool_back(op->dx[0], op->dy, op->state, mask_of(op), &v, d->compute));
}

static int avg_pool_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_avg_pool(op->y, op->x[0], &v, d->compute));
}

static int avg_pool_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_avg_pool_back(op->dx[0], op->dy, mask_of(op), &v, d->compute));
}

static int global_pool_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_global_pool(op->y, op->x[0], v.batch, v.h * v.w, v.c, d->compute));
}

static int global_pool_backward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	(void)p;
	return CUDA(kernel_global_pool_back(
	        op->dx[0], op->dy, mask_of(op), v.batch, v.h * v.w, v.c, d->compute));
}

const struct cuda_op cuda_op_relu = {.forward = relu_forward, .backward = relu_backward};
const struct cuda_op cuda_op_gelu = {.forward = gelu_forward, .backward = gelu_backward};
const struct cuda_op cuda_op_dropout = {.forward = dropout_forward, .backward = dropout_backward};
const struct cuda_op cuda_op_add = {.forward = add_forward, .backward = add_backward};
const struct cuda_op cuda_op_flatten = {.forward = flatten_forward, .backward = flatten_backward};
const struct cuda_op cuda_op_max_pool = {
        .count = max_pool_count,
        .prepare = max_pool_prepare,
        .forward = max_pool_forward,
        .backward = max_pool_backward,
        .masks = true,
};
const struct cuda_op cuda_op_avg_pool = {
        .forward = avg_pool_forward, .backward = avg_pool_backward, .masks = true};
const struct cuda_op cuda_op_global_pool = {
        .forward = global_pool_forward, .backward = global_pool_backward, .masks = true};
