/* SPDX-License-Identifier: MIT */
/* Convolutions. Parameters have PyTorch's order, (O, I, kh, kw); channels-last convolutions want
 * (O, kh, kw, I). So the weights are packed before the forward pass and used packed in the backward
 * pass; their gradient is unpacked, and added to the old one if steps accumulate.
 *
 *     forward   w ─pack─► packed;  y = conv(x, packed);  y += b, relu
 *     backward  dpacked = filter(x, dy) ─unpack─► dw;  db = Σ dy;  dx = data(packed, dy)
 *
 * prepare finds the plans and binds them to their memory. All convolutions of a program share one
 * workspace, since they run one after the other; the first one owns it. */
#include "model/cuda/cuda.h"

#include <stdlib.h>

/* A plan, and the memory that this layer runs it on. */
struct run {
	const struct conv_plan *plan;  /* borrowed from the device; NULL: not needed */
	cudnnBackendDescriptor_t pack; /* owned */
};

struct conv {
	struct run forward, data, filter;
	float *packed; /* owned: weights, then as much for their gradient */
	float *dpacked;
	void *space; /* owned; NULL: another's */
};

static uint32_t inputs(const struct op *op)
{
	return (uint32_t)op->in_shape.dim[2];
}

static uint32_t outputs(const struct op *op)
{
	return (uint32_t)op->out_shape.dim[2];
}

static uint32_t taps(const struct op *op)
{
	return (uint32_t)(op->layer->kernel * op->layer->kernel);
}

static struct conv_plan_shape shape_of(const struct op *op)
{
	const struct layer *l = op->layer;
	const int64_t *in = op->in_shape.dim, *out = op->out_shape.dim;
	return (struct conv_plan_shape){.n = op->batch,
	        .c = in[2],
	        .h = in[0],
	        .w = in[1],
	        .k = out[2],
	        .kernel = l->kernel,
	        .stride = l->stride,
	        .pad = l->pad,
	        .p = out[0],
	        .q = out[1]};
}

/* A failure of the library is a failure of the device; that no plan exists is not. */
static int told(struct cuda_device *d, const struct op *op, int rc, struct err *e)
{
	struct err first;
	if (rc != ERR_DEVICE)
		return rc ? err_prefix(e, "%.80s", op->layer->name) : 0;
	first = *e;
	err_prefix(&first, "cuda:%d: %.80s %s", d->index, op->layer->name, d->what);
	return cuda_fail(d, &first, e);
}

static int plan(struct cuda_device *d, struct run *r, enum conv_plan_kind kind, const struct op *op,
        struct err *e)
{
	struct conv_plan_shape s = shape_of(op);
	int rc = conv_plan_get(&r->plan, &d->plans, d->dnn, kind, &s, d->tf32, CUDA_CONV_BYTES, e);
	return told(d, op, rc, e);
}

static size_t space_of(const struct run *r)
{
	return r->plan ? (size_t)r->plan->workspace : 0;
}

/* Floats of the packed weights, so that the gradient behind them begins aligned. */
static size_t packed_floats(const struct op *op)
{
	return ((size_t)outputs(op) * inputs(op) * taps(op) + 63) / 64 * 64;
}

static size_t packed_bytes(const struct op *op)
{
	return 2 * packed_floats(op) * sizeof(float);
}

static int count(struct cuda_device *d, const struct op *op, bool want_dx, struct cuda_need *n,
        struct err *e)
{
	static const enum conv_plan_kind kinds[] = {CONV_FORWARD, CONV_FILTER, CONV_DATA};
	struct run r = {0};
	int rc = 0;
	for (int i = 0; i < (want_dx ? 3 : 2) && rc == 0; i++) {
		rc = plan(d, &r, kinds[i], op, e);
		if (rc == 0 && space_of(&r) > n->space)
			n->space = space_of(&r);
	}
	n->fixed += cuda_room(packed_bytes(op));
	return rc;
}

static int prepare(struct cuda_device *d, struct op *op, struct err *e)
{
	if (packed_floats(op) > INT32_MAX)
		return err_set(
		        e, ERR_LIMIT, "%.80s: too many weights for one layer", op->layer->name);
	struct conv *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	op->state = c;
	int rc = plan(d, &c->forward, CONV_FORWARD, op, e);
	if (rc == 0)
		rc = plan(d, &c->filter, CONV_FILTER, op, e);
	if (rc == 0 && op->dx[0])
		rc = plan(d, &c->data, CONV_DATA, op, e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&c->packed, packed_bytes(op), e);
	if (rc == 0)
		c->dpacked = c->packed + packed_floats(op);
	return rc;
}

size_t cuda_conv_space(const struct op *op)
{
	const struct conv *c = op->state;
	size_t a = space_of(&c->forward), b = space_of(&c->filter), more = space_of(&c->data);
	a = a > b ? a : b;
	return a > more ? a : more;
}

void cuda_conv_own(struct op *op, void *space)
{
	((struct conv *)op->state)->space = space;
}

int cuda_conv_bind(struct cuda_device *d, struct op *op, void *space, struct err *e)
{
	struct conv *c = op->state;
	void *x = (void *)op->x[0];
	int rc = conv_pack_init(&c->forward.pack, x, c->packed, op->y, space, e);
	if (rc == 0)
		rc = conv_pack_init(&c->filter.pack, x, c->dpacked, op->dy, space, e);
	if (rc == 0 && c->data.plan)
		rc = conv_pack_init(&c->data.pack, op->dx[0], c->packed, op->dy, space, e);
	return told(d, op, rc, e);
}

static void unprepare(struct cuda_device *d, struct op *op)
{
	struct conv *c = op->state;
	if (!c)
		return;
	conv_pack_close(&c->data.pack);
	conv_pack_close(&c->filter.pack);
	conv_pack_close(&c->forward.pack);
	cuda_drop(d, c->packed);
	cuda_drop(d, c->space);
	free(c);
	op->state = NULL;
}

static int forward(struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct conv *c = op->state;
	(void)p;
	int rc = CUDA(kernel_transpose(c->packed, op->param[0].value, outputs(op), inputs(op),
	        taps(op), false, d->compute));
	if (rc == 0)
		rc = DNN(cudnnBackendExecute(d->dnn, c->forward.plan->run, c->forward.pack));
	if (rc == 0 && (op->param[1].value || op->relu))
		rc = CUDA(kernel_bias(op->y, op->param[1].value,
		        (uint32_t)cuda_count(op, &op->out_shape), outputs(op), op->relu,
		        d->compute));
	return rc;
}

static int backward(struct cuda_device *d, const struct program *p, struct op *op, struct err *e)
{
	const struct conv *c = op->state;
	const bool accumulate = op->accumulate;
	(void)p;
	uint32_t n = (uint32_t)cuda_count(op, &op->out_shape), k = outputs(op);
	int rc = DNN(cudnnBackendExecute(d->dnn, c->filter.plan->run, c->filter.pack));
	if (rc == 0)
		rc = CUDA(kernel_transpose(op->param[0].grad, c->dpacked, k, taps(op), inputs(op),
		        accumulate, d->compute));
	if (rc == 0 && op->param[1].grad)
		rc = CUDA(kernel_column_sum(op->param[1].grad, op->dy, n / k, k, d->column_parts,
		        accumulate, d->compute));
	if (rc == 0 && op->dx[0])
		rc = DNN(cudnnBackendExecute(d->dnn, c->data.plan->run, c->data.pack));
	return rc;
}

const struct cuda_op cuda_op_conv2d = {
        .count = count,
        .prepare = prepare,
        .unprepare = unprepare,
        .forward = forward,
        .backward = backward,
};
