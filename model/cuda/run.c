/* SPDX-License-Identifier: MIT */
/* A program on a GPU: its ops one after the other in the compute stream. Multiplication by cuBLAS,
 * convolutions by cuDNN (conv.c), the rest by kernels of our own.
 *
 * prepare takes the memory that steps need; a step only launches. The masks of fused ReLUs are
 * separate passes, except in the pools, which apply them while they write their gradient. */
#include "model/cuda/cuda.h"

#include "agent/base/rng.h"
#include "model/device/dropout.h"

#include <stdlib.h>

static uint32_t n_out(const struct op *op)
{
	return (uint32_t)cuda_count(op, &op->out_shape);
}

static uint32_t n_in(const struct op *op)
{
	return (uint32_t)cuda_count(op, &op->in_shape);
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

/* ---- preparing */

void cuda_unprepare(struct device *dev, struct program *p)
{
	struct cuda_device *d = cuda(dev);
	(void)cudaSetDevice(d->index);
	(void)!cuda_idle(d, NULL);
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		if (op->kind == LAYER_CONV2D)
			cuda_conv_unprepare(d, op);
		else
			cuda_drop(d, op->state);
		op->state = NULL;
	}
}

static int prepare_op(struct cuda_device *d, struct op *op, struct err *e)
{
	d->where = op->layer->name;
	if (cuda_count(op, &op->in_shape) > INT32_MAX || cuda_count(op, &op->out_shape) > INT32_MAX)
		return err_set(e, ERR_LIMIT,
		        "%.80s: over 2^31 values in a batch; try a smaller batch", op->layer->name);
	if (op->kind == LAYER_CONV2D)
		return cuda_conv_prepare(d, op, e);
	if (op->kind == LAYER_MAX_POOL) /* where each maximum was */
		return cuda_take(d, &op->state, n_out(op) * sizeof(int32_t), e);
	return 0;
}

/* One workspace for all convolutions, owned by the first. */
static int prepare_space(struct cuda_device *d, struct program *p, struct err *e)
{
	size_t bytes = 0;
	struct op *first = NULL;
	void *space;
	int rc = 0;
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == LAYER_CONV2D) {
			size_t one = cuda_conv_space(&p->ops[i]);
			first = first ? first : &p->ops[i];
			bytes = one > bytes ? one : bytes;
		}
	if (!first)
		return 0;
	rc = cuda_take(d, &space, bytes, e);
	if (rc)
		return rc;
	cuda_conv_own(first, space);
	for (int i = 0; i < p->n_ops && rc == 0; i++)
		if (p->ops[i].kind == LAYER_CONV2D)
			rc = cuda_conv_bind(d, &p->ops[i], space, e);
	return rc;
}

/* What all programs of a device share, in bytes. */
struct shared {
	size_t params, columns, losses;
};

static struct shared shared_of(const struct program *p)
{
	size_t params = 0, columns = 0;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		const bool trained = op->kind == LAYER_DENSE || op->kind == LAYER_CONV2D;
		size_t in = (size_t)op->in_shape.dim[op->in_shape.rank - 1];
		size_t out = trained ? (size_t)op->layer->units : 0;
		size_t area = op->kind == LAYER_CONV2D
		                      ? (size_t)(op->layer->kernel * op->layer->kernel)
		                      : 1;
		params += out * in * area + (op->layer->bias ? out : 0);
		columns = out > columns ? out : columns;
	}
	return (struct shared){.params = params * sizeof(float),
	        .columns = columns * KERNELS_COLUMN_PARTS * sizeof(float),
	        .losses = (size_t)p->batch * (sizeof(double) + sizeof(int32_t))};
}

static int prepare_shared(struct cuda_device *d, const struct program *p, struct err *e)
{
	const struct shared s = shared_of(p);
	int rc = cuda_grow(d, (void **)&d->column_parts, &d->column_bytes, s.columns, e);
	if (rc == 0)
		rc = cuda_grow(d, (void **)&d->losses, &d->loss_bytes, s.losses, e);
	if (rc == 0)
		rc = cuda_snapshot_room(d, s.params, e);
	return rc ? rc : cuda_stage_room(d, s.params, e);
}

/* The memory that prepare will take; makes the plans to find out. Assumes that the inputs of all
 * ops but the first need a gradient: if not, a little too much is reserved. */
static int count(
        struct cuda_device *d, const struct program *p, struct device_room *r, struct err *e)
{
	const struct shared s = shared_of(p);
	size_t space = 0;
	/* Also for snapshots and for what is staged. */
	r->fixed = cuda_room(s.columns) + 2 * cuda_room(s.params);
	r->wanted += cuda_room(s.losses) + cuda_room(cuda_batch_bytes(p));
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		d->where = op->layer->name;
		if (op->kind == LAYER_MAX_POOL)
			r->wanted += cuda_room(n_out(op) * sizeof(int32_t));
		if (op->kind != LAYER_CONV2D)
			continue;
		int rc = cuda_conv_count(d, op, i > 0, &space, e);
		if (rc)
			return rc;
		r->fixed += cuda_room(cuda_conv_packed(op));
	}
	d->where = "";
	r->wanted += r->fixed + cuda_room(space);
	return 0;
}

int cuda_reserve_all(struct device *dev, const struct program *p, const size_t *bytes, int n,
        struct device_room *r, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, p ? "model" : "memory", e);
	*r = (struct device_room){0};
	for (int i = 0; i < n; i++)
		r->wanted += cuda_room(bytes[i]);
	if (rc == 0 && p)
		rc = count(d, p, r, e);
	return rc ? rc : cuda_reserve(d, r->wanted, &r->left, e);
}

int cuda_prepare(struct device *dev, struct program *p, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "prepare", e);
	for (int i = 0; i < p->n_ops && rc == 0; i++)
		rc = prepare_op(d, &p->ops[i], e);
	d->where = "";
	if (rc == 0)
		rc = prepare_space(d, p, e);
	if (rc == 0)
		rc = prepare_shared(d, p, e);
	if (rc == 0)
		rc = cuda_batch_room(d, p, e);
	if (rc)
		cuda_unprepare(dev, p);
	return rc;
}

/* ---- dense: y = x Wᵀ + b, W (out, in). cuBLAS is column-major: a row-major (r, c) is its
 * column-major (c, r), so each multiplication is written transposed. */

struct dense {
	int rows, in, out;
};

static struct dense dense_of(const struct op *op)
{
	int in = (int)op->in_shape.dim[op->in_shape.rank - 1];
	return (struct dense){(int)(n_in(op) / (uint32_t)in), in, (int)op->layer->units};
}

static int dense_forward(struct cuda_device *d, struct op *op, struct err *e)
{
	const struct dense s = dense_of(op);
	const float one = 1, zero = 0;
	int rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_T, CUBLAS_OP_N, s.out, s.rows, s.in, &one,
	        op->w, s.in, op->x[0], s.in, &zero, op->y, s.out));
	if (rc == 0 && (op->b || op->relu))
		rc = CUDA(kernel_bias(
		        op->y, op->b, n_out(op), (uint32_t)s.out, op->relu, d->compute));
	return rc;
}

static int dense_backward(struct cuda_device *d, struct op *op, bool accumulate, struct err *e)
{
	const struct dense s = dense_of(op);
	const float one = 1, zero = 0, *keep = accumulate ? &one : &zero;
	int rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_T, s.in, s.out, s.rows, &one,
	        op->x[0], s.in, op->dy, s.out, keep, op->dw, s.in));
	if (rc == 0 && op->db)
		rc = CUDA(kernel_column_sum(op->db, op->dy, (uint32_t)s.rows, (uint32_t)s.out,
		        d->column_parts, accumulate, d->compute));
	if (rc == 0 && op->dx[0])
		rc = BLAS(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_N, s.in, s.rows, s.out, &one,
		        op->w, s.in, op->dy, s.out, &zero, op->dx[0], s.in));
	return rc;
}

/* ---- ops without parameters */

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

static int simple_forward(
        struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct cuda_window v = window_of(op);
	const float *x = op->x[0];
	switch (op->kind) {
	case LAYER_RELU:
		return CUDA(kernel_relu(op->y, x, n_out(op), d->compute));
	case LAYER_GELU:
		return CUDA(kernel_gelu(op->y, x, n_out(op), d->compute));
	case LAYER_DROPOUT:
		return dropout(d, p, op, op->y, x, e);
	case LAYER_ADD:
		return CUDA(kernel_add(op->y, x, op->x[1], n_out(op), op->relu, d->compute));
	case LAYER_MAX_POOL:
		return CUDA(kernel_max_pool(op->y, op->state, x, &v, d->compute));
	case LAYER_AVG_POOL:
		return CUDA(kernel_avg_pool(op->y, x, &v, d->compute));
	case LAYER_GLOBAL_POOL:
		return CUDA(kernel_global_pool(op->y, x, v.batch, v.h * v.w, v.c, d->compute));
	case LAYER_FLATTEN:
		return CUDA(kernel_transpose(op->y, x, v.batch, v.h * v.w, v.c, false, d->compute));
	default:
		return err_set(e, ERR_UNSUPPORTED, "%.80s: not on a GPU", op->layer->name);
	}
}

/* masked: the kernel that wrote dx has applied the mask, too. */
static int simple_backward(
        struct cuda_device *d, const struct program *p, struct op *op, bool *masked, struct err *e)
{
	const struct cuda_window v = window_of(op);
	const float *x = op->mask_dx ? op->x[0] : NULL;
	float *dx = op->dx[0];
	int rc = 0;
	switch (op->kind) {
	case LAYER_RELU:
		return CUDA(kernel_relu_back(dx, op->dy, op->y, n_out(op), d->compute));
	case LAYER_GELU:
		return CUDA(kernel_gelu_back(dx, op->dy, op->x[0], n_out(op), d->compute));
	case LAYER_DROPOUT:
		return dropout(d, p, op, dx, op->dy, e);
	case LAYER_ADD:
		for (int k = 0; k < LAYER_INPUTS_MAX && rc == 0; k++)
			if (op->dx[k])
				rc = copy(d, op->dx[k], op->dy, n_out(op), e);
		return rc;
	case LAYER_FLATTEN:
		return CUDA(
		        kernel_transpose(dx, op->dy, v.batch, v.c, v.h * v.w, false, d->compute));
	default:
		break;
	}
	*masked = true;
	if (op->kind == LAYER_MAX_POOL)
		return CUDA(kernel_max_pool_back(dx, op->dy, op->state, x, &v, d->compute));
	if (op->kind == LAYER_AVG_POOL)
		return CUDA(kernel_avg_pool_back(dx, op->dy, x, &v, d->compute));
	return CUDA(kernel_global_pool_back(dx, op->dy, x, v.batch, v.h * v.w, v.c, d->compute));
}

/* ---- the program */

int cuda_forward(struct device *dev, struct program *p, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "forward", e);
	for (int i = 0; i < p->n_ops && rc == 0; i++) {
		struct op *op = &p->ops[i];
		d->where = op->layer->name;
		if (op->kind == LAYER_CONV2D)
			rc = cuda_conv_forward(d, op, e);
		else if (op->kind == LAYER_DENSE)
			rc = dense_forward(d, op, e);
		else
			rc = simple_forward(d, p, op, e);
	}
	return rc;
}

static int op_backward(struct cuda_device *d, struct program *p, struct op *op, struct err *e)
{
	bool masked = false;
	int rc = 0;
	d->where = op->layer->name;
	if (op->mask_dy)
		rc = CUDA(kernel_mask(op->dy, op->y, n_out(op), d->compute));
	if (rc)
		return rc;
	if (op->kind == LAYER_CONV2D)
		rc = cuda_conv_backward(d, op, p->accumulate, e);
	else if (op->kind == LAYER_DENSE)
		rc = dense_backward(d, op, p->accumulate, e);
	else if (op->dx[0] || op->dx[1])
		rc = simple_backward(d, p, op, &masked, e);
	if (rc == 0 && op->mask_dx && op->dx[0] && !masked)
		rc = CUDA(kernel_mask(op->dx[0], op->x[0], n_in(op), d->compute));
	return rc;
}

int cuda_backward(struct device *dev, struct program *p, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "backward", e);
	for (int i = 0; i < p->n_backward && rc == 0; i++) {
		struct backward_step *s = &p->backward[i];
		if (s->op)
			rc = op_backward(d, p, s->op, e);
		else
			rc = CUDA(kernel_sum_into(s->sum, s->part, (uint32_t)s->count, d->compute));
	}
	return rc;
}
