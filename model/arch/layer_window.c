/* SPDX-License-Identifier: MIT */
/* Kinds with a window that moves over an image: conv2d, max_pool, avg_pool; and shortcut, the
 * window of one pixel that a residual block has beside it. */
#include "model/arch/arch_internal.h"

#include <stdio.h>

static const struct layer_field conv2d_fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        INT_FIELD("kernel", kernel, 1, 1024, 3),
        INT_FIELD("stride", stride, 1, 1024, 1),
        INT_FIELD("pad", pad, 0, 1024, 0),
        BOOL_FIELD("bias", bias, 1),
        STD_FIELD,
};
/* A pool's stride of 0 means its kernel. */
static const struct layer_field pool_fields[] = {
        INT_FIELD("kernel", kernel, 1, 1024, 2),
        INT_FIELD("stride", stride, 0, 1024, 0),
        INT_FIELD("pad", pad, 0, 1024, 0),
};

static const struct layer_field shortcut_fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        INT_FIELD("stride", stride, 1, 1024, 1),
};

/* How many positions the window has along one axis, or 0. */
static int64_t positions(int64_t in, const struct layer *l)
{
	int64_t room = in + 2 * l->pad - l->kernel;
	return room < 0 ? 0 : room / l->stride + 1;
}

/* The output has as many channels as asked for. */
static int resolve_window(struct arch *a, int i, int64_t channels, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct layer *l = &n->layer;
	const struct shape *in = arch__input(a, n, 0);
	int64_t h = positions(in->dim[0], l), w = positions(in->dim[1], l);
	if (h == 0 || w == 0) {
		char what[96], text[64];
		snprintf(what, sizeof what,
		        "a kernel of %lld does not fit its input %s with pad %lld",
		        (long long)l->kernel, shape_text(in, text), (long long)l->pad);
		return arch__complain(a, i, e, ERR_INVALID, what);
	}
	n->shape = (struct shape){3, {h, w, channels}};
	return 0;
}

static int wants_image(const struct arch *a, int i, struct err *e)
{
	return arch__complain(a, i, e, ERR_INVALID, "wants an image (height x width x channels)");
}

static int resolve_conv2d(struct arch *a, int i, struct err *e)
{
	const struct arch_node *n = &a->nodes[i];
	const struct layer *l = &n->layer;
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank != 3)
		return wants_image(a, i, e);
	int64_t c = in->dim[2], fan_in = c * l->kernel * l->kernel;
	int rc = resolve_window(a, i, l->units, e);
	if (rc)
		return rc;
	struct shape w = {4, {l->units, c, l->kernel, l->kernel}};
	if (!arch__shape_sane(&w))
		return arch__complain(a, i, e, ERR_LIMIT, "too many parameters");
	arch__weights(a, i, w, fan_in);
	return 0;
}

static int resolve_pool(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	struct layer *l = &n->layer;
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank != 3)
		return wants_image(a, i, e);
	if (l->stride == 0)
		l->stride = l->kernel;
	if (l->pad * 2 > l->kernel)
		return arch__complain(a, i, e, ERR_INVALID, "pad may be at most half the kernel");
	return resolve_window(a, i, in->dim[2], e);
}

static int resolve_shortcut(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct layer *l = &n->layer;
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank != 3)
		return wants_image(a, i, e);
	if (l->units < in->dim[2])
		return arch__complain(
		        a, i, e, ERR_INVALID, "units: fewer than its input's channels");
	n->shape.dim[0] = (in->dim[0] - 1) / l->stride + 1;
	n->shape.dim[1] = (in->dim[1] - 1) / l->stride + 1;
	n->shape.dim[2] = l->units;
	return 0;
}

const struct layer_type layer_conv2d = {
        .name = "conv2d",
        .short_name = "conv",
        .inputs = 1,
        FIELDS(conv2d_fields),
        .resolve = resolve_conv2d,
        .takes_relu = true,
        .masks_input = true,
};
const struct layer_type layer_max_pool = {
        .name = "max_pool",
        .short_name = "pool",
        .inputs = 1,
        FIELDS(pool_fields),
        .resolve = resolve_pool,
        .masks_input = true,
};
const struct layer_type layer_avg_pool = {
        .name = "avg_pool",
        .short_name = "avgpool",
        .inputs = 1,
        FIELDS(pool_fields),
        .resolve = resolve_pool,
        .masks_input = true,
};
/* Without parameters: every stride-th pixel, and zeros in the channels that the input lacks. */
const struct layer_type layer_shortcut = {
        .name = "shortcut",
        .short_name = "short",
        .inputs = 1,
        FIELDS(shortcut_fields),
        .resolve = resolve_shortcut,
};
