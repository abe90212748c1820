/* SPDX-License-Identifier: MIT */
/* A program on a GPU: its ops one after the other in the compute stream. Multiplication by cuBLAS
 * (dense.c), convolutions by cuDNN (conv.c), the rest by kernels of our own (simple.c).
 *
 * prepare takes the memory that steps need; a step only launches. The masks of fused ReLUs are
 * separate passes, except in the pools, which apply them while they write their gradient. */
#include "model/cuda/cuda.h"

/* Kinds that a GPU does not have are missing here, and a model with one is refused. */
static const struct cuda_op *const ops[LAYER_KINDS] = {
        [LAYER_DENSE] = &cuda_op_dense,
        [LAYER_CONV2D] = &cuda_op_conv2d,
        [LAYER_RELU] = &cuda_op_relu,
        [LAYER_GELU] = &cuda_op_gelu,
        [LAYER_MAX_POOL] = &cuda_op_max_pool,
        [LAYER_AVG_POOL] = &cuda_op_avg_pool,
        [LAYER_GLOBAL_POOL] = &cuda_op_global_pool,
        [LAYER_DROPOUT] = &cuda_op_dropout,
        [LAYER_FLATTEN] = &cuda_op_flatten,
        [LAYER_ADD] = &cuda_op_add,
};

/* The plugin does not have layer_types. */
#define X(KIND, name) [LAYER_##KIND] = #name,
static const char *const kind_names[LAYER_KINDS] = {LAYER_LIST(X)};
#undef X

static uint32_t n_out(const struct op *op)
{
	return (uint32_t)cuda_count(op, &op->out_shape);
}

static uint32_t n_in(const struct op *op)
{
	return (uint32_t)cuda_count(op, &op->in_shape);
}

/* ---- preparing */

void cuda_unprepare(struct device *dev, struct program *p)
{
	struct cuda_device *d = cuda(dev);
	(void)cudaSetDevice(d->index);
	(void)!cuda_idle(d, NULL);
	for (int i = 0; i < p->n_ops; i++) {
		struct op *op = &p->ops[i];
		if (ops[op->kind] && ops[op->kind]->unprepare)
			ops[op->kind]->unprepare(d, op);
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
	return ops[op->kind]->prepare ? ops[op->kind]->prepare(d, op, e) : 0;
}

static int check_kinds(const struct program *p, struct err *e)
{
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		if (op->kind == LAYER_GELU && op->layer->tanh)
			return err_set(e, ERR_UNSUPPORTED,
			        "%.80s: gelu with tanh runs on the CPU only: use --device cpu",
			        op->layer->name);
		if (!ops[op->kind])
			return err_set(e, ERR_UNSUPPORTED,
			        "%.80s: layers of type %s run on the CPU only: use --device cpu",
			        op->layer->name, kind_names[op->kind]);
	}
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
	size_t columns = 0;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		size_t out = op->n_param ? (size_t)op->out_shape.dim[op->out_shape.rank - 1] : 0;
		columns = out > columns ? out : columns;
	}
	return (struct shared){.params = p->n_params * sizeof(float),
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
	struct cuda_need n = {0};
	/* Also for snapshots and for what is staged. */
	n.fixed = cuda_room(s.columns) + 2 * cuda_room(s.params);
	n.other = cuda_room(s.losses) + cuda_room(cuda_batch_bytes(p));
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		d->where = op->layer->name;
		int rc = ops[op->kind]->count ? ops[op->kind]->count(d, op, i > 0, &n, e) : 0;
		if (rc)
			return rc;
	}
	d->where = "";
	r->fixed = n.fixed;
	r->wanted += n.fixed + n.other + cuda_room(n.space);
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
		rc = check_kinds(p, e);
	if (rc == 0 && p)
		rc = count(d, p, r, e);
	return rc ? rc : cuda_reserve(d, r->wanted, &r->left, e);
}

int cuda_prepare(struct device *dev, struct program *p, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "prepare", e);
	if (rc == 0)
		rc = check_kinds(p, e);
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

/* ---- the program */

int cuda_forward(struct device *dev, struct program *p, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "forward", e);
	for (int i = 0; i < p->n_ops && rc == 0; i++) {
		struct op *op = &p->ops[i];
		d->where = op->layer->name;
		rc = ops[op->kind]->forward(d, p, op, e);
	}
	return rc;
}

static int op_backward(struct cuda_device *d, struct program *p, struct op *op, struct err *e)
{
	const struct cuda_op *k = ops[op->kind];
	int rc = 0;
	d->where = op->layer->name;
	if (op->mask_dy)
		rc = CUDA(kernel_mask(op->dy, op->y, n_out(op), d->compute));
	if (rc)
		return rc;
	if (op->n_param > 0 || op->dx[0] || op->dx[1])
		rc = k->backward(d, p, op, e);
	if (rc == 0 && op->mask_dx && op->dx[0] && !k->masks)
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
