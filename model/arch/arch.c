/* SPDX-License-Identifier: MIT */
/* From a list of layers to shapes and parameters.
 *
 * One pass over the list. Each layer finds its inputs by name, a function per kind gives the shape
 * of its output and declares its parameters, and the views are laid into the flat vector group by
 * group at the end. Nothing depends on the batch size or the device.
 *
 * What can fail is the user's list: the message names the layer by number, kind and name, what was
 * wrong, and the shapes that led there. */
#include "model/arch/arch.h"

#include "agent/base/rng.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT(key, field, lo, hi, d)                                              \
	{                                                                       \
		key, FIELD_INT, offsetof(struct layer, field), lo, hi, d, false \
	}
#define INT_REQUIRED(key, field, lo, hi)                                       \
	{                                                                      \
		key, FIELD_INT, offsetof(struct layer, field), lo, hi, 0, true \
	}

static const struct layer_field dense_fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        {"bias", FIELD_BOOL, offsetof(struct layer, bias), 0, 1, 1, false},
};
static const struct layer_field conv2d_fields[] = {
        INT_REQUIRED("units", units, 1, LIMIT_DIM),
        INT("kernel", kernel, 1, 1024, 3),
        INT("stride", stride, 1, 1024, 1),
        INT("pad", pad, 0, 1024, 0),
        {"bias", FIELD_BOOL, offsetof(struct layer, bias), 0, 1, 1, false},
};
/* A pool's stride of 0 means its kernel. */
static const struct layer_field pool_fields[] = {
        INT("kernel", kernel, 1, 1024, 2),
        INT("stride", stride, 0, 1024, 0),
        INT("pad", pad, 0, 1024, 0),
};
static const struct layer_field dropout_fields[] = {
        {"p", FIELD_REAL, offsetof(struct layer, p), 0, 0.99, 0.5, false},
};

#define FIELDS(f) f, (int)(sizeof(f) / sizeof *(f))
const struct layer_type layer_types[LAYER_KINDS] = {
        [LAYER_DENSE] = {"dense", 1, FIELDS(dense_fields)},
        [LAYER_CONV2D] = {"conv2d", 1, FIELDS(conv2d_fields)},
        [LAYER_RELU] = {"relu", 1, NULL, 0},
        [LAYER_GELU] = {"gelu", 1, NULL, 0},
        [LAYER_MAX_POOL] = {"max_pool", 1, FIELDS(pool_fields)},
        [LAYER_AVG_POOL] = {"avg_pool", 1, FIELDS(pool_fields)},
        [LAYER_GLOBAL_POOL] = {"global_pool", 1, NULL, 0},
        [LAYER_DROPOUT] = {"dropout", 1, FIELDS(dropout_fields)},
        [LAYER_FLATTEN] = {"flatten", 1, NULL, 0},
        [LAYER_ADD] = {"add", 2, NULL, 0},
};

/* What an unnamed layer is called, before its number. */
static const char *const short_names[LAYER_KINDS] = {
        [LAYER_DENSE] = "dense",
        [LAYER_CONV2D] = "conv",
        [LAYER_RELU] = "relu",
        [LAYER_GELU] = "gelu",
        [LAYER_MAX_POOL] = "pool",
        [LAYER_AVG_POOL] = "avgpool",
        [LAYER_GLOBAL_POOL] = "gpool",
        [LAYER_DROPOUT] = "dropout",
        [LAYER_FLATTEN] = "flatten",
        [LAYER_ADD] = "add",
};

size_t shape_count(const struct shape *s)
{
	size_t n = 1;
	for (int i = 0; i < s->rank; i++)
		n *= (size_t)s->dim[i];
	return n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
	if (a->rank != b->rank)
		return false;
	for (int i = 0; i < a->rank; i++)
		if (a->dim[i] != b->dim[i])
			return false;
	return true;
}

const char *shape_text(const struct shape *s, char out[64])
{
	size_t n = 0;
	out[0] = 0;
	for (int i = 0; i < s->rank && n < 64; i++)
		n += (size_t)snprintf(
		        out + n, 64 - n, "%s%lld", i ? "x" : "", (long long)s->dim[i]);
	return out;
}

/* Every dimension in range and the product countable. */
static bool shape_sane(const struct shape *s)
{
	unsigned long long n = 1;
	for (int i = 0; i < s->rank; i++) {
		if (s->dim[i] < 1 || s->dim[i] > LIMIT_DIM)
			return false;
		n *= (unsigned long long)s->dim[i]; /* at most 2^24 · 2^33 */
		if (n > LIMIT_PARAMS)
			return false;
	}
	return true;
}

int layer_init(struct layer *l, const char *type)
{
	memset(l, 0, sizeof *l);
	for (int k = 0; k < LAYER_KINDS; k++) {
		const struct layer_type *t = &layer_types[k];
		if (strcmp(t->name, type) != 0)
			continue;
		l->kind = (enum layer_kind)k;
		for (int i = 0; i < t->n_fields; i++) {
			const struct layer_field *f = &t->fields[i];
			char *at = (char *)l + f->offset;
			if (f->type == FIELD_INT)
				*(int64_t *)(void *)at = (int64_t)f->dflt;
			else if (f->type == FIELD_REAL)
				*(double *)(void *)at = f->dflt;
			else
				*(bool *)(void *)at = f->dflt != 0;
		}
		return 0;
	}
	return ERR_NOTFOUND;
}

/* "input 28x28x1 → conv1 26x26x32 → …": the last few shapes up to node i. */
static void trail(const struct arch *a, int i, char *out, size_t size)
{
	char text[64];
	int first = i > 3 ? i - 3 : 0;
	int n = snprintf(out, size, first ? "… " : "input %s ", shape_text(&a->input, text));
	for (int k = first; k < i && n >= 0 && (size_t)n < size; k++)
		n += snprintf(out + n, size - (size_t)n, "→ %.80s %s ", a->nodes[k].layer.name,
		        shape_text(&a->nodes[k].shape, text));
}

static int complain(const struct arch *a, int i, struct err *e, int code, const char *what)
{
	const struct layer *l = &a->nodes[i].layer;
	char way[160];
	trail(a, i, way, sizeof way);
	return err_set(e, code, "layer %d (%s%s%.80s): %s; %s", i + 1, layer_types[l->kind].name,
	        l->name[0] ? " " : "", l->name, what, way);
}

static int name_layers(struct arch *a, struct err *e)
{
	int count[LAYER_KINDS] = {0};
	for (int i = 0; i < a->n_nodes; i++) {
		struct layer *l = &a->nodes[i].layer;
		count[l->kind]++;
		if (!l->name[0])
			snprintf(l->name, sizeof l->name, "%s%d", short_names[l->kind],
			        count[l->kind]);
		for (const char *c = l->name; *c; c++)
			if (!isalnum((unsigned char)*c) && !strchr("_-.", *c))
				return complain(a, i, e, ERR_INVALID,
				        "a name may hold letters, digits, _ - .");
		bool taken = strcmp(l->name, "input") == 0;
		for (int k = 0; k < i && !taken; k++)
			taken = strcmp(l->name, a->nodes[k].layer.name) == 0;
		if (taken)
			return complain(a, i, e, ERR_INVALID, "that name is taken");
	}
	return 0;
}

static int find_inputs(struct arch *a, int i, struct err *e)
{
	struct arch_node *node = &a->nodes[i];
	node->n_in = layer_types[node->layer.kind].inputs;
	for (int k = 0; k < LAYER_INPUTS_MAX; k++) {
		const char *from = node->layer.from[k];
		node->in[k] = i - 1;
		if (k >= node->n_in) {
			if (from[0])
				return complain(a, i, e, ERR_INVALID, "reads one layer, not two");
			continue;
		}
		if (!from[0]) {
			if (k > 0)
				return complain(a, i, e, ERR_INVALID,
				        "needs \"from\": [one layer, another]");
			continue;
		}
		int j = strcmp(from, "input") == 0 ? -1 : i - 1;
		while (j >= 0 && strcmp(from, a->nodes[j].layer.name) != 0)
			j--;
		if (j < 0 && strcmp(from, "input") != 0) {
			char what[120];
			snprintf(what, sizeof what, "no layer before it is named \"%.80s\"", from);
			return complain(a, i, e, ERR_INVALID, what);
		}
		node->in[k] = j;
	}
	return 0;
}

static const struct shape *input_shape(const struct arch *a, const struct arch_node *n, int k)
{
	return n->in[k] < 0 ? &a->input : &a->nodes[n->in[k]].shape;
}

static void add_param(struct arch *a, int i, const char *suffix, struct shape s,
        enum param_group group, int64_t fan_in)
{
	struct param_view *v = &a->views[a->n_views];
	snprintf(v->name, sizeof v->name, "%s.%s", a->nodes[i].layer.name, suffix);
	v->shape = s;
	v->group = group;
	v->fan_in = fan_in;
	a->nodes[i].param[a->nodes[i].n_param++] = a->n_views++;
}

/* How many positions the window has along one axis, or 0. */
static int64_t windows(int64_t in, int64_t kernel, int64_t stride, int64_t pad)
{
	int64_t room = in + 2 * pad - kernel;
	return room < 0 ? 0 : room / stride + 1;
}

static int resolve_dense(struct arch *a, int i, const struct shape *in, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	if (in->rank > 2)
		return complain(a, i, e, ERR_INVALID,
		        "wants a vector, not an image: put a flatten or global_pool before it");
	int64_t width = in->dim[in->rank - 1];
	n->shape = *in;
	n->shape.dim[in->rank - 1] = n->layer.units;
	struct shape w = {2, {n->layer.units, width}}, b = {1, {n->layer.units}};
	if (!shape_sane(&w))
		return complain(a, i, e, ERR_LIMIT, "too many parameters");
	add_param(a, i, "weight", w, PARAM_WEIGHT, width);
	if (n->layer.bias)
		add_param(a, i, "bias", b, PARAM_PLAIN, width);
	return 0;
}

/* conv2d and the pools with a window: the same arithmetic, channels apart. */
static int resolve_window(struct arch *a, int i, const struct shape *in, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	struct layer *l = &n->layer;
	bool conv = l->kind == LAYER_CONV2D;
	if (in->rank != 3)
		return complain(a, i, e, ERR_INVALID, "wants an image (height x width x channels)");
	if (!conv && l->stride == 0)
		l->stride = l->kernel;
	if (!conv && l->pad * 2 > l->kernel)
		return complain(a, i, e, ERR_INVALID, "pad may be at most half the kernel");
	int64_t h = windows(in->dim[0], l->kernel, l->stride, l->pad);
	int64_t w = windows(in->dim[1], l->kernel, l->stride, l->pad);
	if (h == 0 || w == 0) {
		char what[96], text[64];
		snprintf(what, sizeof what,
		        "a kernel of %lld does not fit its input %s with pad %lld",
		        (long long)l->kernel, shape_text(in, text), (long long)l->pad);
		return complain(a, i, e, ERR_INVALID, what);
	}
	int64_t c = in->dim[2];
	n->shape = (struct shape){3, {h, w, conv ? l->units : c}};
	if (!conv)
		return 0;
	struct shape ws = {4, {l->units, c, l->kernel, l->kernel}}, bs = {1, {l->units}};
	if (!shape_sane(&ws))
		return complain(a, i, e, ERR_LIMIT, "too many parameters");
	int64_t fan_in = c * l->kernel * l->kernel;
	add_param(a, i, "weight", ws, PARAM_WEIGHT, fan_in);
	if (l->bias)
		add_param(a, i, "bias", bs, PARAM_PLAIN, fan_in);
	return 0;
}

static int resolve_node(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct shape *in = input_shape(a, n, 0);
	int rc = 0;
	n->shape = *in;
	switch (n->layer.kind) {
	case LAYER_DENSE:
		rc = resolve_dense(a, i, in, e);
		break;
	case LAYER_CONV2D:
	case LAYER_MAX_POOL:
	case LAYER_AVG_POOL:
		rc = resolve_window(a, i, in, e);
		break;
	case LAYER_GLOBAL_POOL:
		if (in->rank != 3)
			return complain(a, i, e, ERR_INVALID, "wants an image");
		n->shape = (struct shape){1, {in->dim[2]}};
		break;
	case LAYER_FLATTEN:
		n->shape = (struct shape){1, {(int64_t)shape_count(in)}};
		break;
	case LAYER_ADD:
		if (!shape_equal(in, input_shape(a, n, 1)))
			return complain(
			        a, i, e, ERR_INVALID, "adds two outputs of different shapes");
		break;
	case LAYER_RELU:
	case LAYER_GELU:
	case LAYER_DROPOUT:
	case LAYER_KINDS:
		break;
	}
	if (rc == 0 && !shape_sane(&n->shape))
		return complain(a, i, e, ERR_LIMIT, "its output is too large");
	return rc;
}

/* Offsets group by group, so that decay and training are ranges of the vector. */
static int place_views(struct arch *a, struct err *e)
{
	size_t at = 0;
	for (int g = PARAM_WEIGHT; g <= PARAM_STAT; g++) {
		for (int i = 0; i < a->n_views; i++) {
			struct param_view *v = &a->views[i];
			if (v->group != (enum param_group)g)
				continue;
			v->offset = at;
			v->count = shape_count(&v->shape);
			at += v->count;
		}
		if (g == PARAM_WEIGHT)
			a->n_decay = at;
		else if (g == PARAM_PLAIN)
			a->n_train = at;
	}
	a->n_total = at;
	if (at > LIMIT_PARAMS)
		return err_set(e, ERR_LIMIT, "the model has %zu parameters, the limit is %llu", at,
		        LIMIT_PARAMS);
	if (a->n_train == 0)
		return err_set(e, ERR_INVALID, "the model has no parameters to train");
	return 0;
}

/* Every output must be read by someone: a layer left dangling is a mistake in a name. */
static int check_readers(const struct arch *a, struct err *e)
{
	for (int i = 0; i + 1 < a->n_nodes; i++) {
		bool read = false;
		for (int k = i + 1; k < a->n_nodes && !read; k++)
			for (int j = 0; j < a->nodes[k].n_in; j++)
				read = read || a->nodes[k].in[j] == i;
		if (!read)
			return complain(a, i, e, ERR_INVALID, "no later layer reads its output");
	}
	return 0;
}

int arch_resolve(struct arch *a, const struct layer *layers, int n, const struct shape *input,
        int64_t classes, struct err *e)
{
	int rc;
	memset(a, 0, sizeof *a);
	if (n < 1 || n > LIMIT_LAYERS)
		return err_set(e, ERR_LIMIT, "a model has 1 to %d layers, not %d", LIMIT_LAYERS, n);
	if (classes < 1 || classes > LIMIT_CLASSES)
		return err_set(e, ERR_LIMIT, "1 to %d classes, not %lld", LIMIT_CLASSES,
		        (long long)classes);
	if (input->rank < 1 || input->rank > 3 || !shape_sane(input))
		return err_set(e, ERR_LIMIT, "the data's shape is out of range");
	a->input = *input;
	a->classes = classes;
	a->nodes = calloc((size_t)n, sizeof *a->nodes);
	a->views = calloc((size_t)n * LAYER_PARAMS_MAX, sizeof *a->views);
	if (!a->nodes || !a->views) {
		rc = err_set(e, ERR_NOMEM, "no memory for %d layers", n);
		goto out;
	}
	a->n_nodes = n;
	for (int i = 0; i < n; i++)
		a->nodes[i].layer = layers[i];
	if ((rc = name_layers(a, e)) != 0)
		goto out;
	for (int i = 0; i < n; i++)
		if ((rc = find_inputs(a, i, e)) != 0 || (rc = resolve_node(a, i, e)) != 0)
			goto out;
	const struct shape *last = &a->nodes[n - 1].shape;
	if (last->dim[last->rank - 1] != classes || last->rank != 1) {
		char what[96], text[64];
		snprintf(what, sizeof what, "the last layer gives %s, the data has %lld classes",
		        shape_text(last, text), (long long)classes);
		rc = complain(a, n - 1, e, ERR_INVALID, what);
		goto out;
	}
	if ((rc = check_readers(a, e)) != 0)
		goto out;
	rc = place_views(a, e);
out:
	if (rc)
		arch_close(a);
	return rc;
}

void arch_close(struct arch *a)
{
	free(a->nodes);
	free(a->views);
	memset(a, 0, sizeof *a);
}

void arch_init_params(const struct arch *a, uint64_t seed, float *values)
{
	for (int i = 0; i < a->n_views; i++) {
		const struct param_view *v = &a->views[i];
		struct rng r; /* one stream per view: a layer more does not change the others */
		rng_seed(&r, seed, (uint64_t)i);
		float bound = 1.0f / sqrtf((float)v->fan_in);
		for (size_t k = 0; k < v->count; k++)
			values[v->offset + k] = (2 * rng_f32(&r) - 1) * bound;
	}
}
