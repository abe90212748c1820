/* SPDX-License-Identifier: MIT */
/* Presets, and a model as text: canonical JSON for files, a table for people. */
#include "model/arch/arch_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const arch_presets[] = {"mlp", "cnn", "resnet20", "gpt", NULL};

#define GPT_BLOCK 10                                        /* layers of one */
#define PRESET_LAYERS (3 + GPT_BLOCK * ARCH_GPT_LAYERS_MAX) /* at most */
_Static_assert(PRESET_LAYERS <= LIMIT_LAYERS, "a preset is a model");

static struct layer *append(struct layer *list, int *n, const char *type)
{
	struct layer *l = &list[(*n)++];
	int rc = layer_init(l, type);
	assert(rc == 0); /* our own list names only known kinds */
	return l;
}

static void dense(struct layer *list, int *n, int64_t units)
{
	append(list, n, "dense")->units = units;
}

static void conv3x3(struct layer *list, int *n, int64_t units)
{
	struct layer *l = append(list, n, "conv2d");
	l->units = units;
	l->pad = 1;
}

/* A 3×3 convolution of a residual network and its norm; the initial weights as in He et al.:
 * normal, of variance 2 / (9 · units). */
static void conv_norm(struct layer *list, int *n, int64_t units, int64_t stride)
{
	struct layer *l = append(list, n, "conv2d");
	l->units = units;
	l->stride = stride;
	l->pad = 1;
	l->bias = false;
	l->std = sqrt(2.0 / (9.0 * (double)units));
	append(list, n, "batch_norm");
}

static void name_layer(struct layer *l, const char *base, int stage, int block)
{
	snprintf(l->name, sizeof l->name, "%s%d.%d", base, stage, block);
}

/* He et al. for CIFAR: 3 stages of 3 blocks, shortcuts without parameters.
 *
 *     ──┬── conv ─ norm ─ relu ─ conv ─ norm ── add ─ relu ──►
 *       └──────────── (shortcut) ────────────────┘ */
static void resnet20(struct layer *list, int *n, int64_t classes)
{
	struct layer *out;
	conv_norm(list, n, 16, 1);
	out = append(list, n, "relu");
	name_layer(out, "relu", 0, 0);
	for (int stage = 0; stage < 3; stage++)
		for (int block = 0; block < 3; block++) {
			const int64_t units = 16 << stage, stride = stage && !block ? 2 : 1;
			const struct layer *from = out;
			if (stride == 2) {
				struct layer *s = append(list, n, "shortcut");
				s->units = units;
				s->stride = stride;
				name_layer(s, "shortcut", stage + 1, block + 1);
				from = s;
			}
			conv_norm(list, n, units, stride);
			if (stride == 2)
				snprintf(list[*n - 2].from[0], sizeof list->from[0], "%s",
				        out->name);
			append(list, n, "relu");
			conv_norm(list, n, units, 1);
			name_layer(&list[*n - 1], "norm", stage + 1, block + 1);
			struct layer *sum = append(list, n, "add");
			snprintf(sum->from[0], sizeof sum->from[0], "%s", list[*n - 2].name);
			snprintf(sum->from[1], sizeof sum->from[1], "%s", from->name);
			out = append(list, n, "relu");
			name_layer(out, "relu", stage + 1, block + 1);
		}
	append(list, n, "global_pool");
	dense(list, n, classes);
}

/* A layer named h.BLOCK.NAME, as Hugging Face names GPT-2's. */
static struct layer *in_block(
        struct layer *list, int *n, const char *type, int64_t block, const char *name)
{
	struct layer *l = append(list, n, type);
	snprintf(l->name, sizeof l->name, "h.%d.%s", (int)block, name);
	return l;
}

static void gpt_dense(
        struct layer *list, int *n, int64_t block, const char *name, int64_t units, double std)
{
	struct layer *l = in_block(list, n, "dense", block, name);
	l->units = units;
	l->std = std;
}

/* The layer before, added to the one that the branch began with; returns the sum. */
static const struct layer *gpt_sum(
        struct layer *list, int *n, int64_t block, const char *name, const struct layer *x)
{
	struct layer *sum = in_block(list, n, "add", block, name);
	snprintf(sum->from[0], sizeof sum->from[0], "%s", x->name);
	snprintf(sum->from[1], sizeof sum->from[1], "%s", sum[-1].name);
	return sum;
}

/* GPT-2. Weights are normal with 0.02 at first, those that write to the residual stream by √(2L)
 * less, which they do 2L times.
 *
 *     embed ─┬─ ln_1 ─ c_attn ─ attn ─ c_proj ─ add ─┬─ ln_2 ─ c_fc ─ gelu ─ c_proj ─ add ─ …
 *            └───────────────────────────────────┘   └────────────────────────────────┘
 *     … ─ ln_f ─ head (the embedding's weight) */
static void gpt(struct layer *list, int *n, const struct arch_gpt *g)
{
	const int64_t c = g->width;
	const double std = 0.02, residual = std / sqrt(2.0 * (double)g->layers);
	struct layer *embed = append(list, n, "embedding");
	const struct layer *x = embed;
	embed->units = c;
	embed->std = std;
	snprintf(embed->name, sizeof embed->name, "embed");
	for (int64_t b = 0; b < g->layers; b++) {
		in_block(list, n, "layer_norm", b, "ln_1");
		gpt_dense(list, n, b, "attn.c_attn", 3 * c, std);
		in_block(list, n, "attention", b, "attn")->heads = g->heads;
		gpt_dense(list, n, b, "attn.c_proj", c, residual);
		x = gpt_sum(list, n, b, "add_1", x);
		in_block(list, n, "layer_norm", b, "ln_2");
		gpt_dense(list, n, b, "mlp.c_fc", 4 * c, std);
		in_block(list, n, "gelu", b, "mlp.act")->tanh = true;
		gpt_dense(list, n, b, "mlp.c_proj", c, residual);
		x = gpt_sum(list, n, b, "add_2", x);
	}
	snprintf(append(list, n, "layer_norm")->name, sizeof list->name, "ln_f");
	append(list, n, "head");
}

static int make_list(struct layer *list, int *n, const char *name, const struct arch_gpt *sizes,
        int64_t classes, struct err *e)
{
	if (strcmp(name, "mlp") == 0) {
		append(list, n, "flatten");
		dense(list, n, 512);
		append(list, n, "relu");
		dense(list, n, 256);
		append(list, n, "relu");
		dense(list, n, classes);
	} else if (strcmp(name, "cnn") == 0) {
		conv3x3(list, n, 32);
		append(list, n, "relu");
		conv3x3(list, n, 32);
		append(list, n, "relu");
		append(list, n, "max_pool");
		conv3x3(list, n, 64);
		append(list, n, "relu");
		append(list, n, "max_pool");
		append(list, n, "flatten");
		dense(list, n, 128);
		append(list, n, "relu");
		dense(list, n, classes);
	} else if (strcmp(name, "resnet20") == 0) {
		resnet20(list, n, classes);
	} else if (strcmp(name, "gpt") == 0) {
		if (sizes->layers < 1 || sizes->layers > ARCH_GPT_LAYERS_MAX || sizes->heads < 1 ||
		        sizes->width < sizes->heads || sizes->width > LIMIT_DIM / 4 ||
		        sizes->width % sizes->heads)
			return err_set(e, ERR_INVALID,
			        "preset gpt: 1 to %d layers, and heads that divide the width; not "
			        "%lld layers, width %lld, %lld heads",
			        ARCH_GPT_LAYERS_MAX, (long long)sizes->layers,
			        (long long)sizes->width, (long long)sizes->heads);
		gpt(list, n, sizes);
	} else {
		return err_set(e, ERR_NOTFOUND,
		        "no preset is named \"%s\"; there are mlp, cnn, resnet20 and gpt", name);
	}
	return 0;
}

int arch_preset(struct arch *a, const char *name, const struct arch_gpt *sizes,
        const struct shape *input, int64_t classes, struct err *e)
{
	const struct arch_gpt usual = ARCH_GPT_DEFAULT;
	int n = 0;
	memset(a, 0, sizeof *a);
	struct layer *list = calloc(PRESET_LAYERS, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a model");
	int rc = make_list(list, &n, name, sizes ? sizes : &usual, classes, e);
	if (rc == 0) {
		rc = arch_resolve(a, list, n, input, classes, e);
		if (rc)
			err_prefix(e, "preset %s", name);
	}
	free(list);
	if (rc == 0)
		snprintf(a->preset, sizeof a->preset, "%s", name);
	return rc;
}

static int print_layer(const struct arch *a, int i, struct buf *out)
{
	const struct arch_node *n = &a->nodes[i];
	const struct layer_type *t = layer_types[n->layer.kind];
	int rc = buf_printf(out, "%s{\"type\":\"%s\",\"name\":\"%s\",\"from\":[", i ? "," : "",
	        t->name, n->layer.name);
	for (int k = 0; k < n->n_in && rc == 0; k++)
		rc = buf_printf(out, "%s\"%s\"", k ? "," : "",
		        n->in[k] < 0 ? "input" : a->nodes[n->in[k]].layer.name);
	if (rc == 0)
		rc = buf_printf(out, "]");
	for (int k = 0; k < t->n_fields && rc == 0; k++) {
		const struct layer_field *f = &t->fields[k];
		const char *at = (const char *)&n->layer + f->offset;
		if (f->later &&
		        (f->type == FIELD_BOOL ? *(const bool *)(const void *)at == (f->dflt != 0)
		                               : *(const double *)(const void *)at == f->dflt))
			continue;
		if (f->type == FIELD_INT)
			rc = buf_printf(out, ",\"%s\":%lld", f->key,
			        (long long)*(const int64_t *)(const void *)at);
		else if (f->type == FIELD_REAL)
			rc = buf_printf(
			        out, ",\"%s\":%.17g", f->key, *(const double *)(const void *)at);
		else
			rc = buf_printf(out, ",\"%s\":%s", f->key,
			        *(const bool *)(const void *)at ? "true" : "false");
	}
	return rc ? rc : buf_printf(out, "}");
}

int arch_print(const struct arch *a, struct buf *out)
{
	int rc = buf_printf(out, "{\"input\":[");
	for (int i = 0; i < a->input.rank && rc == 0; i++)
		rc = buf_printf(out, "%s%lld", i ? "," : "", (long long)a->input.dim[i]);
	if (rc == 0)
		rc = buf_printf(out, "],\"classes\":%lld,\"layers\":[", (long long)a->classes);
	for (int i = 0; i < a->n_nodes && rc == 0; i++)
		rc = print_layer(a, i, out);
	return rc ? rc : buf_printf(out, "]}");
}

int arch_describe(const struct arch *a, struct buf *out)
{
	char text[64];
	int rc = buf_printf(out, "%-14s %-12s %-14s %12s\n%-14s %-12s %-14s\n", "layer", "type",
	        "output", "parameters", "input", "", shape_text(&a->input, text));
	for (int i = 0; i < a->n_nodes && rc == 0; i++) {
		const struct arch_node *n = &a->nodes[i];
		size_t count = 0;
		for (int k = 0; k < n->n_param; k++)
			if (!arch__tied(a, i, n->param[k]))
				count += a->views[n->param[k]].count;
		rc = buf_printf(out, "%-14s %-12s %-14s %12zu\n", n->layer.name,
		        layer_types[n->layer.kind]->name, shape_text(&n->shape, text), count);
	}
	return rc ? rc : buf_printf(out, "%-14s %-12s %-14s %12zu\n", "", "", "", a->n_total);
}
