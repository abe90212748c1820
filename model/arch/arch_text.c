/* SPDX-License-Identifier: MIT */
/* Presets, and a model as text: canonical JSON for files, a table for people. */
#include "model/arch/arch.h"

#include <stdio.h>
#include <string.h>

const char *const arch_presets[] = {"mlp", "cnn", NULL};

static struct layer *append(struct layer *list, int *n, const char *type)
{
	struct layer *l = &list[(*n)++];
	if (layer_init(l, type) != 0)
		l->kind =
		        LAYER_KINDS; /* our own list names only known kinds; resolve would refuse */
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

int arch_preset(
        struct arch *a, const char *name, const struct shape *input, int64_t classes, struct err *e)
{
	struct layer list[16];
	int n = 0;
	memset(a, 0, sizeof *a);
	if (strcmp(name, "mlp") == 0) {
		append(list, &n, "flatten");
		dense(list, &n, 512);
		append(list, &n, "relu");
		dense(list, &n, 256);
		append(list, &n, "relu");
		dense(list, &n, classes);
	} else if (strcmp(name, "cnn") == 0) {
		conv3x3(list, &n, 32);
		append(list, &n, "relu");
		conv3x3(list, &n, 32);
		append(list, &n, "relu");
		append(list, &n, "max_pool");
		conv3x3(list, &n, 64);
		append(list, &n, "relu");
		append(list, &n, "max_pool");
		append(list, &n, "flatten");
		dense(list, &n, 128);
		append(list, &n, "relu");
		dense(list, &n, classes);
	} else {
		return err_set(
		        e, ERR_NOTFOUND, "no preset is named \"%s\"; there are mlp and cnn", name);
	}
	int rc = arch_resolve(a, list, n, input, classes, e);
	if (rc)
		return err_prefix(e, "preset %s", name);
	snprintf(a->preset, sizeof a->preset, "%s", name);
	return 0;
}

static int print_layer(const struct arch *a, int i, struct buf *out)
{
	const struct arch_node *n = &a->nodes[i];
	const struct layer_type *t = &layer_types[n->layer.kind];
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
			count += a->views[n->param[k]].count;
		rc = buf_printf(out, "%-14s %-12s %-14s %12zu\n", n->layer.name,
		        layer_types[n->layer.kind].name, shape_text(&n->shape, text), count);
	}
	return rc ? rc : buf_printf(out, "%-14s %-12s %-14s %12zu\n", "", "", "", a->n_total);
}
