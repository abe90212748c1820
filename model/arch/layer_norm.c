/* SPDX-License-Identifier: MIT */
/* layer_norm: the values of each position (the last dimension) normalised by themselves, then
 * scaled and shifted.
 * batch_norm: each channel (the last dimension) normalised over the batch and all positions, then
 * scaled and shifted. What an evaluation uses instead, running means of the statistics, is not
 * trained, but exchanged and saved as all parameters are. */
#include "model/arch/arch_internal.h"

static const struct layer_field batch_fields[] = {
        REAL_FIELD("eps", eps, 1e-12, 1, 1e-5),
        REAL_FIELD("momentum", momentum, 0, 1, 0.1),
};

static const struct layer_field layer_fields[] = {
        REAL_FIELD("eps", eps, 1e-12, 1, 1e-5),
};

static int resolve_layer(struct arch *a, int i, struct err *e)
{
	const struct shape *in = arch__input(a, &a->nodes[i], 0);
	struct shape c = {1, {in->dim[in->rank - 1]}};
	(void)e;
	arch__param(a, i, "weight", c, PARAM_PLAIN, INIT_ONES, 1);
	arch__param(a, i, "bias", c, PARAM_PLAIN, INIT_ZEROS, 1);
	return 0;
}

static int resolve_batch(struct arch *a, int i, struct err *e)
{
	const struct shape *in = arch__input(a, &a->nodes[i], 0);
	struct shape c = {1, {in->dim[in->rank - 1]}};
	(void)e;
	arch__param(a, i, "weight", c, PARAM_PLAIN, INIT_ONES, 1);
	arch__param(a, i, "bias", c, PARAM_PLAIN, INIT_ZEROS, 1);
	arch__param(a, i, "running_mean", c, PARAM_STAT, INIT_ZEROS, 1);
	arch__param(a, i, "running_var", c, PARAM_STAT, INIT_ONES, 1);
	return 0;
}

const struct layer_type layer_batch_norm = {
        .name = "batch_norm",
        .short_name = "norm",
        .inputs = 1,
        FIELDS(batch_fields),
        .resolve = resolve_batch,
        .takes_relu = true,
};
const struct layer_type layer_layer_norm = {
        .name = "layer_norm",
        .short_name = "lnorm",
        .inputs = 1,
        FIELDS(layer_fields),
        .resolve = resolve_layer,
};
