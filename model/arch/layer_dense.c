/* SPDX-License-Identifier: MIT */
/* dense: y = x Wᵀ + b over the last dimension, W (units, width). */
#include "model/arch/arch_internal.h"

static const struct layer_field fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        BOOL_FIELD("bias", bias, 1),
        STD_FIELD,
};

static int resolve(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank > 2)
		return arch__complain(a, i, e, ERR_INVALID,
		        "wants a vector, not an image: put a flatten or global_pool before it");
	int64_t width = in->dim[in->rank - 1];
	n->shape.dim[in->rank - 1] = n->layer.units;
	struct shape w = {2, {n->layer.units, width}};
	if (!arch__shape_sane(&w))
		return arch__complain(a, i, e, ERR_LIMIT, "too many parameters");
	arch__weights(a, i, w, width);
	return 0;
}

const struct layer_type layer_dense = {
        .name = "dense",
        .short_name = "dense",
        .inputs = 1,
        FIELDS(fields),
        .resolve = resolve,
        .takes_relu = true,
        .masks_input = true,
};
