/* SPDX-License-Identifier: MIT */
/* What a transformer on tokens has beside dense layers and norms:
 *
 * embedding: token ids (T) to rows of its weight, plus a row that is learned for each position.
 * attention: causal self-attention. Its input (T, 3C) is queries, keys and values side by side, as
 * a dense layer makes them; each in turn is its heads side by side.
 * head: one number for each token of the vocabulary, by the weight of the model's embedding, which
 * so is one parameter with two readers. */
#include "model/arch/arch_internal.h"

static const struct layer_field embedding_fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        REAL_FIELD("std", std, 1e-12, 1e3, 0.02),
};

static const struct layer_field attention_fields[] = {
        INT_REQUIRED("heads", heads, 1, LIMIT_DIM),
};

static int resolve_embedding(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	if (n->in[0] >= 0 || a->input.rank != 1)
		return arch__complain(
		        a, i, e, ERR_INVALID, "wants tokens: it reads the data alone");
	struct shape w = {2, {a->classes, n->layer.units}};
	n->shape = (struct shape){2, {a->input.dim[0], n->layer.units}};
	if (!arch__shape_sane(&w) || !arch__shape_sane(&n->shape))
		return arch__complain(a, i, e, ERR_LIMIT, "too many parameters");
	arch__param(a, i, "weight", w, PARAM_WEIGHT, INIT_NORMAL, 1);
	a->views[a->n_views - 1].std = n->layer.std;
	arch__param(a, i, "position", n->shape, PARAM_WEIGHT, INIT_NORMAL, 1);
	a->views[a->n_views - 1].std = n->layer.std;
	return 0;
}

static int resolve_attention(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct shape *in = arch__input(a, n, 0);
	if (in->rank != 2 || in->dim[1] % 3 || in->dim[1] / 3 % n->layer.heads)
		return arch__complain(a, i, e, ERR_INVALID,
		        "wants queries, keys and values for each position: 3 x width, and a width "
		        "that its heads divide");
	n->shape.dim[1] = in->dim[1] / 3;
	return 0;
}

static int resolve_head(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct shape *in = arch__input(a, n, 0);
	int from = -1, found = 0;
	for (int k = 0; k < i; k++)
		if (a->nodes[k].layer.kind == LAYER_EMBEDDING) {
			from = k;
			found++;
		}
	if (found != 1)
		return arch__complain(a, i, e, ERR_INVALID,
		        "uses the weight of the embedding before it, of which there must be one");
	if (in->rank != 2 || in->dim[1] != a->nodes[from].layer.units)
		return arch__complain(
		        a, i, e, ERR_INVALID, "wants positions as wide as the embedding's");
	n->param[n->n_param++] = a->nodes[from].param[0];
	n->shape.dim[1] = a->classes;
	return 0;
}

const struct layer_type layer_embedding = {
        .name = "embedding",
        .short_name = "embed",
        .inputs = 1,
        .reads_tokens = true,
        FIELDS(embedding_fields),
        .resolve = resolve_embedding,
};
const struct layer_type layer_attention = {
        .name = "attention",
        .short_name = "attn",
        .inputs = 1,
        FIELDS(attention_fields),
        .resolve = resolve_attention,
};
const struct layer_type layer_head = {
        .name = "head",
        .short_name = "head",
        .inputs = 1,
        .resolve = resolve_head,
        .masks_input = true,
};
