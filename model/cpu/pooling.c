/* SPDX-License-Identifier: MIT */
/* Pools, shortcut, and flatten, which only changes the order. Image by image, each worker its
 * samples. */
#include "model/cpu/cpu.h"

#include <stdlib.h>

/* One image: where its input and output begin in the batch. */
struct image {
	const struct cpu_kernels *k;
	struct window s;
	size_t in, out; /* values in one */
	size_t at_in, at_out;
};
typedef void (*image_fn)(struct op *op, const struct image *i);

static void each_image(struct cpu_device *d, struct op *op, int w, image_fn fn)
{
	const struct layer *l = op->layer;
	struct image i = {
	        .k = d->k,
	        .s = {op->in_shape.dim[0], op->in_shape.dim[1], op->in_shape.dim[2],
	                op->out_shape.dim[0], op->out_shape.dim[1], l->kernel, l->stride, l->pad},
	        .in = shape_count(&op->in_shape),
	        .out = shape_count(&op->out_shape),
	};
	size_t from, to;
	cpu_samples(d, op->batch, w, &from, &to);
	for (size_t n = from; n < to; n++) {
		i.at_in = n * i.in;
		i.at_out = n * i.out;
		fn(op, &i);
	}
}

/* Behind the images of a backward pass. */
static void mask_dx(struct cpu_device *d, struct op *op, int w)
{
	size_t from, to, in = shape_count(&op->in_shape);
	cpu_samples(d, op->batch, w, &from, &to);
	if (op->mask_dx)
		d->k->mask(op->dx[0] + from * in, op->x[0] + from * in, (to - from) * in);
}

/* ---- max_pool: its state says where each maximum was */

static bool is_2x2(const struct op *op)
{
	const struct layer *l = op->layer;
	return l->kernel == 2 && l->stride == 2 && l->pad == 0;
}

static int max_prepare(struct cpu_device *d, struct op *op, struct err *e)
{
	size_t one = is_2x2(op) ? sizeof(uint8_t) : sizeof(int32_t);
	size_t n = shape_count(&op->out_shape) * (size_t)op->batch;
	(void)d;
	op->state = aligned_alloc(64, (n * one + 63) / 64 * 64);
	if (!op->state)
		return err_set(e, ERR_NOMEM, "%.80s: no memory", op->layer->name);
	return 0;
}

static void max_image(struct op *op, const struct image *i)
{
	const float *x = op->x[0] + i->at_in;
	if (is_2x2(op))
		i->k->max_pool2(op->y + i->at_out, (uint8_t *)op->state + i->at_out, x, &i->s);
	else
		i->k->max_pool(op->y + i->at_out, (int32_t *)op->state + i->at_out, x, &i->s);
}

static void max_image_back(struct op *op, const struct image *i)
{
	float *dx = op->dx[0] + i->at_in;
	const float *dy = op->dy + i->at_out;
	if (is_2x2(op))
		i->k->max_pool2_backward(dx, (uint8_t *)op->state + i->at_out, dy,
		        op->y + i->at_out, &i->s, op->mask_dx);
	else
		i->k->max_pool_backward(dx, (int32_t *)op->state + i->at_out, dy, &i->s);
}

static void max_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	(void)p;
	each_image(d, op, w, max_image);
}

static void max_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	(void)p;
	if (!op->dx[0])
		return;
	each_image(d, op, w, max_image_back);
	if (!is_2x2(op))
		mask_dx(d, op, w);
}

/* ---- the others */

static void avg_image(struct op *op, const struct image *i)
{
	i->k->avg_pool(op->y + i->at_out, op->x[0] + i->at_in, &i->s);
}

static void avg_image_back(struct op *op, const struct image *i)
{
	i->k->avg_pool_backward(op->dx[0] + i->at_in, op->dy + i->at_out, &i->s);
}

static void global_image(struct op *op, const struct image *i)
{
	i->k->global_pool(op->y + i->at_out, op->x[0] + i->at_in, i->in / i->out, i->out);
}

static void global_image_back(struct op *op, const struct image *i)
{
	i->k->global_pool_backward(
	        op->dx[0] + i->at_in, op->dy + i->at_out, i->in / i->out, i->out);
}

static void flatten_image(struct op *op, const struct image *i)
{
	i->k->transpose(
	        op->y + i->at_out, op->x[0] + i->at_in, (size_t)(i->s.h * i->s.w), (size_t)i->s.c);
}

static void flatten_image_back(struct op *op, const struct image *i)
{
	i->k->transpose(op->dx[0] + i->at_in, op->dy + i->at_out, (size_t)i->s.c,
	        (size_t)(i->s.h * i->s.w));
}

static void shortcut_image(struct op *op, const struct image *i)
{
	i->k->shortcut(op->y + i->at_out, op->x[0] + i->at_in, &i->s, (size_t)op->layer->units);
}

static void shortcut_image_back(struct op *op, const struct image *i)
{
	i->k->shortcut_backward(
	        op->dx[0] + i->at_in, op->dy + i->at_out, &i->s, (size_t)op->layer->units);
}

static const struct {
	image_fn forward, backward;
} loops[LAYER_KINDS] = {
        [LAYER_AVG_POOL] = {avg_image, avg_image_back},
        [LAYER_GLOBAL_POOL] = {global_image, global_image_back},
        [LAYER_FLATTEN] = {flatten_image, flatten_image_back},
        [LAYER_SHORTCUT] = {shortcut_image, shortcut_image_back},
};

static void run_forward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	(void)p;
	each_image(d, op, w, loops[op->kind].forward);
}

static void run_backward(struct cpu_device *d, const struct program *p, struct op *op, int w)
{
	(void)p;
	if (!op->dx[0])
		return;
	each_image(d, op, w, loops[op->kind].backward);
	mask_dx(d, op, w);
}

const struct cpu_op cpu_op_max_pool = {
        .by_sample = true,
        .prepare = max_prepare,
        .forward = max_forward,
        .backward = max_backward,
};
const struct cpu_op cpu_op_avg_pool = {
        .by_sample = true, .forward = run_forward, .backward = run_backward};
const struct cpu_op cpu_op_global_pool = {
        .by_sample = true, .forward = run_forward, .backward = run_backward};
const struct cpu_op cpu_op_flatten = {
        .by_sample = true, .forward = run_forward, .backward = run_backward};
const struct cpu_op cpu_op_shortcut = {
        .by_sample = true, .forward = run_forward, .backward = run_backward};
