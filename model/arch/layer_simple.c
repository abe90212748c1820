/* SPDX-License-Identifier: MIT */
/* Kinds without parameters that look at each element by itself (relu, gelu, dropout, add) or only
 * at its place (flatten, global_pool). */
#include "model/arch/arch_internal.h"

static const struct layer_field dropout_fields[] = {
        REAL_FIELD("p", p, 0, 0.99, 0.5),
};

static const struct layer_field gelu_fields[] = {
        {"tanh", FIELD_BOOL, offsetof(struct layer, tanh), 0, 1, 0, false, true},
};

static bool drops_nothing(const struct layer *l, const struct shape *in)
{
	(void)in;
	return l->p == 0;
}

static int resolve_add(struct arch *a, int i, struct err *e)
{
	const struct arch_node *n = &a->nodes[i];
	if (!shape_equal(arch__input(a, n, 0), arch__input(a, n, 1)))
		return arch__complain(a, i, e, ERR_INVALID, "adds two outputs of different shapes");
	return 0;
}

static int resolve_flatten(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	(void)e;
	n->shape = (struct shape){1, {(int64_t)shape_count(arch__input(a, n, 0))}};
	return 0;
}

/* Reading an image of one channel, or of one pixel, in another order changes nothing. */
static bool flatten_is_copy(const struct layer *l, const struct shape *in)
{
	(void)l;
	return in->rank != 3 || in->dim[2] == 1 || in->dim[0] * in->dim[1] == 1;
}

static int resolve_global_pool(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank != 3)
		return arch__complain(a, i, e, ERR_INVALID, "wants an image");
	n->shape = (struct shape){1, {in->dim[2]}};
	return 0;
}

const struct layer_type layer_relu = {
        .name = "relu", .short_name = "relu", .inputs = 1, .masks_input = true};
const struct layer_type layer_gelu = {
        .name = "gelu",
        .short_name = "gelu",
        .inputs = 1,
        FIELDS(gelu_fields),
        .masks_input = true,
};
const struct layer_type layer_dropout = {
        .name = "dropout",
        .short_name = "dropout",
        .inputs = 1,
        FIELDS(dropout_fields),
        .masks_input = true,
        .is_copy = drops_nothing,
};
const struct layer_type layer_add = {
        .name = "add",
        .short_name = "add",
        .inputs = 2,
        .resolve = resolve_add,
        .takes_relu = true,
};
const struct layer_type layer_flatten = {
        .name = "flatten",
        .short_name = "flatten",
        .inputs = 1,
        .resolve = resolve_flatten,
        .masks_input = true,
        .is_copy = flatten_is_copy,
};
const struct layer_type layer_global_pool = {
        .name = "global_pool",
        .short_name = "gpool",
        .inputs = 1,
        .resolve = resolve_global_pool,
        .masks_input = true,
};
