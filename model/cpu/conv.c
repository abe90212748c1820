/* SPDX-License-Identifier: MIT */
/* Convolutions by oneDNN, one set of primitives per worker for its share of the batch, each on one
 * thread.
 *
 *     params (O, I, kh, kw) ──reorder once a step──► the library's own blocked weights, shared
 *     x (H, W, C) ──► y (OH, OW, O)                  activations stay channels last
 *     dW: each worker its own, in the library's order ──reorder──► (O, I, kh, kw) ──summed──► grads
 *
 * Everything is created in prepare, buffers for the library's scratch included, so that a step
 * allocates nothing. prepare fails if there is not enough memory, if the library does not support
 * the shape, or if memory cannot be made executable for the library's generated code. */
#include "model/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 6

/* A primitive with its arguments bound. */
struct call {
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t arg[ARGS_MAX];
	int n;
};

struct part {
	size_t from, to; /* samples */
	struct call forward, weights, data, unpack;
	float *dw;        /* owned; plain order, then the bias's */
	float *dw_packed; /* owned; NULL where the library's order is plain */
	void *scratch;    /* owned; one call at a time uses it */
};

struct conv {
	size_t n_weights, n_bias;
	struct call pack_forward, pack_data;
	float *w_forward, *w_data;              /* owned; NULL where the library's order is plain */
	dnnl_memory_desc_t md_forward, md_data; /* the order that the first worker's calls chose */
	bool chosen;
	int threads;
	const float **part_dw; /* owned: each part's dw */
	struct part part[];
};

/* What describes one worker's convolution to the library. */
struct shapes {
	dnnl_dims_t x, w, b, y, stride, pad_before, pad_after;
	dnnl_memory_desc_t x_md, w_any, w_plain, b_md, y_md;
	dnnl_memory_desc_t w_forward, w_data; /* any for the first worker, then what that chose */
};

static float *floats(size_t n)
{
	size_t bytes = (n * sizeof(float) + 63) / 64 * 64;
	float *p = aligned_alloc(64, bytes ? bytes : 64);
	if (p)
		memset(p, 0, bytes);
	return p;
}

static void call_close(struct call *c)
{
	for (int i = 0; i < c->n; i++)
		dnnl_memory_destroy(c->arg[i].memory);
	if (c->primitive)
		dnnl_primitive_destroy(c->primitive);
	memset(c, 0, sizeof *c);
}

static dnnl_status_t bind(struct cpu_device *d, struct call *c, int what,
        const dnnl_memory_desc_t *md, const void *at)
{
	dnnl_memory_t m;
	dnnl_status_t s = dnnl_memory_create(&m, md, d->engine, (void *)(uintptr_t)at);
	if (s == dnnl_success)
		c->arg[c->n++] = (dnnl_exec_arg_t){what, m};
	return s;
}

static void run(struct cpu_device *d, const struct call *c, int w)
{
	if (dnnl_primitive_execute(c->primitive, d->stream[w], c->n, c->arg) != dnnl_success)
		d->failed = 1;
}

static void describe(struct shapes *s, const struct op *op, const struct conv *v, int64_t samples)
{
	const struct layer *l = op->layer;
	const int64_t *in = op->in_shape.dim, *out = op->out_shape.dim;
	memset(s, 0, sizeof *s);
	memcpy(s->x, (int64_t[]){samples, in[2], in[0], in[1]}, 4 * sizeof(int64_t));
	memcpy(s->y, (int64_t[]){samples, out[2], out[0], out[1]}, 4 * sizeof(int64_t));
	memcpy(s->w, (int64_t[]){out[2], in[2], l->kernel, l->kernel}, 4 * sizeof(int64_t));
	s->b[0] = out[2];
	for (int i = 0; i < 2; i++) {
		s->stride[i] = l->stride;
		s->pad_before[i] = l->pad;
		s->pad_after[i] = (out[i] - 1) * l->stride + l->kernel - in[i] - l->pad;
	}
	dnnl_memory_desc_init_by_tag(&s->x_md, 4, s->x, dnnl_f32, dnnl_nhwc);
	dnnl_memory_desc_init_by_tag(&s->y_md, 4, s->y, dnnl_f32, dnnl_nhwc);
	dnnl_memory_desc_init_by_tag(&s->w_any, 4, s->w, dnnl_f32, dnnl_format_tag_any);
	dnnl_memory_desc_init_by_tag(&s->w_plain, 4, s->w, dnnl_f32, dnnl_oihw);
	dnnl_memory_desc_init_by_tag(&s->b_md, 1, s->b, dnnl_f32, dnnl_a);
	s->w_forward = v->chosen ? v->md_forward : s->w_any;
	s->w_data = v->chosen ? v->md_data : s->w_any;
}

static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, bool relu)
{
	dnnl_post_ops_t ops;
	dnnl_status_t s = dnnl_primitive_attr_create(attr);
	if (s == dnnl_success)
		s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
	if (s != dnnl_success || !relu)
		return s;
	if ((s = dnnl_post_ops_create(&ops)) != dnnl_success)
		return s;
	s = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
	if (s == dnnl_success)
		s = dnnl_primitive_attr_set_post_ops(*attr, ops);
	dnnl_post_ops_destroy(ops);
	return s;
}

/* Copies between the plain order and the library's. */
static dnnl_status_t reorder(struct cpu_device *d, struct call *c, const dnnl_memory_desc_t *from,
        const void *src, const dnnl_memory_desc_t *to, void *dst)
{
	dnnl_primitive_desc_t pd;
	dnnl_status_t s =
	        dnnl_reorder_primitive_desc_create(&pd, from, d->engine, to, d->engine, NULL);
	if (s != dnnl_success)
		return s;
	s = dnnl_primitive_create(&c->primitive, pd);
	dnnl_primitive_desc_destroy(pd);
	if (s == dnnl_success)
		s = bind(d, c, DNNL_ARG_FROM, from, src);
	return s == dnnl_success ? bind(d, c, DNNL_ARG_TO, to, dst) : s;
}

/* The three primitives of one worker before they are bound to memory. */
struct descs {
	dnnl_primitive_attr_t attr[2]; /* [1] with the fused relu */
	dnnl_primitive_desc_t forward, weights, data;
};

static void descs_close(struct descs *x)
{
	dnnl_primitive_desc_t pd[] = {x->forward, x->weights, x->data};
	for (int i = 0; i < 3; i++)
		if (pd[i])
			dnnl_primitive_desc_destroy(pd[i]);
	for (int i = 0; i < 2; i++)
		if (x->attr[i])
			dnnl_primitive_attr_destroy(x->attr[i]);
}

static dnnl_status_t descs_init(
        struct cpu_device *d, struct descs *x, const struct op *op, const struct shapes *s)
{
	dnnl_convolution_desc_t c;
	const dnnl_memory_desc_t *b = op->param[1].value ? &s->b_md : NULL;
	dnnl_status_t st = attributes(&x->attr[0], false);
	memset(&c, 0, sizeof c);
	if (st == dnnl_success)
		st = attributes(&x->attr[1], op->relu);
	if (st == dnnl_success)
		st = dnnl_convolution_forward_desc_init(&c, dnnl_forward_training,
		        dnnl_convolution_direct, &s->x_md, &s->w_any, b, &s->y_md, s->stride,
		        s->pad_before, s->pad_after);
	if (st == dnnl_success)
		st = dnnl_primitive_desc_create(&x->forward, &c, x->attr[1], d->engine, NULL);
	if (st == dnnl_success)
		st = dnnl_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct,
		        &s->x_md, &s->w_any, b, &s->y_md, s->stride, s->pad_before, s->pad_after);
	if (st == dnnl_success)
		st = dnnl_primitive_desc_create(&x->weights, &c, x->attr[0], d->engine, x->forward);
	if (st != dnnl_success || !op->dx[0])
		return st;
	st = dnnl_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &s->x_md,
	        &s->w_data, &s->y_md, s->stride, s->pad_before, s->pad_after);
	if (st == dnnl_success)
		st = dnnl_primitive_desc_create(&x->data, &c, x->attr[0], d->engine, x->forward);
	return st;
}

static const dnnl_memory_desc_t *query(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* Weights in the library's order, made once and read by every worker; out is where they are. */
static dnnl_status_t shared_weights(struct cpu_device *d, const struct op *op,
        const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *want, struct call *pack,
        float **packed, const float **out)
{
	if (dnnl_memory_desc_equal(plain, want)) {
		*out = op->param[0].value;
		return dnnl_success;
	}
	if (!*packed) {
		*packed = floats(dnnl_memory_desc_get_size(want) / sizeof(float));
		if (!*packed)
			return dnnl_out_of_memory;
		dnnl_status_t s = reorder(d, pack, plain, op->param[0].value, want, *packed);
		if (s != dnnl_success)
			return s;
	}
	*out = *packed;
	return dnnl_success;
}

static size_t scratch_bytes(const struct descs *x)
{
	dnnl_primitive_desc_t pd[] = {x->forward, x->weights, x->data};
	size_t most = 0;
	for (int i = 0; i < 3; i++) {
		size_t n = pd[i] ? dnnl_memory_desc_get_size(query(pd[i], dnnl_query_scratchpad_md))
		                 : 0;
		most = n > most ? n : most;
	}
	return most;
}

#define TRY(call)                          \
	if ((st = (call)) != dnnl_success) \
	return st

static dnnl_status_t bind_part(struct cpu_device *d, struct op *op, struct conv *v, struct part *p,
        const struct shapes *s, const struct descs *x)
{
	size_t in = shape_count(&op->in_shape) * p->from;
	size_t out = shape_count(&op->out_shape) * p->from;
	const dnnl_memory_desc_t *md;
	const float *w;
	dnnl_status_t st;
	p->dw = floats(v->n_weights + v->n_bias);
	p->scratch = floats(scratch_bytes(x) / sizeof(float) + 1);
	if (!p->dw || !p->scratch)
		return dnnl_out_of_memory;

	struct call *c = &p->forward;
	TRY(dnnl_primitive_create(&c->primitive, x->forward));
	md = query(x->forward, dnnl_query_weights_md);
	TRY(shared_weights(d, op, &s->w_plain, md, &v->pack_forward, &v->w_forward, &w));
	TRY(bind(d, c, DNNL_ARG_SRC, &s->x_md, op->x[0] + in));
	TRY(bind(d, c, DNNL_ARG_WEIGHTS, md, w));
	if (op->param[1].value)
		TRY(bind(d, c, DNNL_ARG_BIAS, &s->b_md, op->param[1].value));
	TRY(bind(d, c, DNNL_ARG_DST, &s->y_md, op->y + out));
	TRY(bind(d, c, DNNL_ARG_SCRATCHPAD, query(x->forward, dnnl_query_scratchpad_md),
	        p->scratch));

	c = &p->weights;
	TRY(dnnl_primitive_create(&c->primitive, x->weights));
	md = query(x->weights, dnnl_query_diff_weights_md);
	if (!dnnl_memory_desc_equal(md, &s->w_plain)) {
		p->dw_packed = floats(dnnl_memory_desc_get_size(md) / sizeof(float));
		if (!p->dw_packed)
			return dnnl_out_of_memory;
		TRY(reorder(d, &p->unpack, md, p->dw_packed, &s->w_plain, p->dw));
	}
	TRY(bind(d, c, DNNL_ARG_SRC, &s->x_md, op->x[0] + in));
	TRY(bind(d, c, DNNL_ARG_DIFF_DST, &s->y_md, op->dy + out));
	TRY(bind(d, c, DNNL_ARG_DIFF_WEIGHTS, md, p->dw_packed ? p->dw_packed : p->dw));
	if (op->param[1].value)
		TRY(bind(d, c, DNNL_ARG_DIFF_BIAS, &s->b_md, p->dw + v->n_weights));
	TRY(bind(d, c, DNNL_ARG_SCRATCHPAD, query(x->weights, dnnl_query_scratchpad_md),
	        p->scratch));
	if (!op->dx[0])
		return dnnl_success;

	c = &p->data;
	TRY(dnnl_primitive_create(&c->primitive, x->data));
	md = query(x->data, dnnl_query_weights_md);
	TRY(shared_weights(d, op, &s->w_plain, md, &v->pack_data, &v->w_data, &w));
	TRY(bind(d, c, DNNL_ARG_DIFF_DST, &s->y_md, op->dy + out));
	TRY(bind(d, c, DNNL_ARG_WEIGHTS, md, w));
	TRY(bind(d, c, DNNL_ARG_DIFF_SRC, &s->x_md, op->dx[0] + in));
	TRY(bind(d, c, DNNL_ARG_SCRATCHPAD, query(x->data, dnnl_query_scratchpad_md), p->scratch));
	return dnnl_success;
}

static dnnl_status_t prepare_part(struct cpu_device *d, struct op *op, struct conv *v, int w)
{
	struct part *p = &v->part[w];
	struct shapes s;
	struct descs x = {0};
	cpu_samples(d, op->batch, w, &p->from, &p->to);
	if (p->from == p->to)
		return dnnl_success;
	describe(&s, op, v, (int64_t)(p->to - p->from));
	dnnl_status_t st = descs_init(d, &x, op, &s);
	if (st == dnnl_success && !v->chosen) {
		v->md_forward = *query(x.forward, dnnl_query_weights_md);
		if (x.data)
			v->md_data = *query(x.data, dnnl_query_weights_md);
		v->chosen = true;
	}
	if (st == dnnl_success)
		st = bind_part(d, op, v, p, &s, &x);
	descs_close(&x);
	return st;
}

static void unprepare(struct op *op)
{
	struct conv *v = op->state;
	if (!v)
		return;
	for (int w = 0; w < v->threads; w++) {
		struct part *p = &v->part[w];
		call_close(&p->forward);
		call_close(&p->weights);
		call_close(&p->data);
		call_close(&p->unpack);
		free(p->dw);
		free(p->dw_packed);
		free(p->scratch);
	}
	call_close(&v->pack_forward);
	call_close(&v->pack_data);
	free(v->w_forward);
	free(v->w_data);
	free(v->part_dw);
	free(v);
	op->state = NULL;
}

static int prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	size_t t = (size_t)d->threads;
	struct conv *v = calloc(1, sizeof *v + t * sizeof *v->part);
	if (!v)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	op->state = v;
	v->threads = d->threads;
	v->part_dw = calloc(t, sizeof *v->part_dw);
	if (!v->part_dw) {
		unprepare(op);
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	}
	v->n_weights = op->param[0].count;
	v->n_bias = op->param[1].count;
	for (int w = 0; w < d->threads; w++) {
		dnnl_status_t st = prepare_part(d, op, v, w);
		v->part_dw[w] = v->part[w].dw;
		if (st == dnnl_success)
			continue;
		unprepare(op);
		if (st == dnnl_out_of_memory)
			return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
		if (!d->generates)
			return err_set(e, ERR_DEVICE,
			        "%.80s: " CPU_NO_CODE ", or use --device plain, which is slow",
			        op->layer->name);
		return err_set(e, ERR_UNSUPPORTED,
		        "%.80s: oneDNN has no convolution for this shape (status %d)",
		        op->layer->name, (int)st);
	}
	return 0;
}

static void pack(struct cpu_device *d, struct op *op, int w, bool train)
{
	struct conv *v = op->state;
	if ((int)(op->index % (uint32_t)d->threads) != w)
		return;
	if (v->w_forward)
		run(d, &v->pack_forward, w);
	if (v->w_data && train)
		run(d, &v->pack_data, w);
}

static void forward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct conv *v = op->state;
	(void)prog;
	if (v->part[w].from < v->part[w].to)
		run(d, &v->part[w].forward, w);
}

static void backward(struct cpu_device *d, const struct program *prog, struct op *op, int w)
{
	const struct conv *v = op->state;
	const struct part *p = &v->part[w];
	size_t in = shape_count(&op->in_shape), out = shape_count(&op->out_shape);
	size_t samples = p->to - p->from;
	(void)prog;
	if (samples == 0)
		return;
	if (op->mask_dy)
		d->k->mask(op->dy + p->from * out, op->y + p->from * out, samples * out);
	run(d, &p->weights, w);
	if (p->dw_packed)
		run(d, &p->unpack, w);
	if (!op->dx[0])
		return;
	run(d, &p->data, w);
	if (op->mask_dx)
		d->k->mask(op->dx[0] + p->from * in, op->x[0] + p->from * in, samples * in);
}

static void reduce(struct cpu_device *d, struct op *op, int w)
{
	const struct conv *v = op->state;
	cpu_reduce(d, op, v->part_dw, w);
}

const struct cpu_op cpu_op_conv2d = {
        .by_sample = true,
        .prepare = prepare,
        .unprepare = unprepare,
        .pack = pack,
        .forward = forward,
        .backward = backward,
        .reduce = reduce,
};
