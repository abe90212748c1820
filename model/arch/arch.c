/* SPDX-License-Identifier: MIT */
/* From a list of layers to shapes and parameters.
 *
 * One pass over the list. Each layer finds its inputs by name, its kind (layer_*.c) gives the shape
 * of its output and declares its parameters, and the views are laid into the flat vector group by
 * group at the end. Nothing depends on the batch size or the device.
 *
 * What can fail is the user's list: the message names the layer by number, kind and name, what was
 * wrong, and the shapes that led there. */
#include "model/arch/arch_internal.h"

#include "agent/base/rng.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(KIND, name) extern const struct layer_type layer_##name;
LAYER_LIST(X)
#undef X
#define X(KIND, name) [LAYER_##KIND] = &layer_##name,
const struct layer_type *const layer_types[LAYER_KINDS] = {LAYER_LIST(X)};
#undef X

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

bool arch__shape_sane(const struct shape *s)
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
		const struct layer_type *t = layer_types[k];
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

int arch__complain(const struct arch *a, int i, struct err *e, int code, const char *what)
{
	const struct layer *l = &a->nodes[i].layer;
	char way[160];
	trail(a, i, way, sizeof way);
	return err_set(e, code, "layer %d (%s%s%.80s): %s; %s", i + 1, layer_types[l->kind]->name,
	        l->name[0] ? " " : "", l->name, what, way);
}

static int name_layers(struct arch *a, struct err *e)
{
	int count[LAYER_KINDS] = {0};
	for (int i = 0; i < a->n_nodes; i++) {
		struct layer *l = &a->nodes[i].layer;
		count[l->kind]++;
		if (!l->name[0])
			snprintf(l->name, sizeof l->name, "%s%d", layer_types[l->kind]->short_name,
			        count[l->kind]);
		for (const char *c = l->name; *c; c++)
			if (!isalnum((unsigned char)*c) && !strchr("_-.", *c))
				return arch__complain(a, i, e, ERR_INVALID,
				        "a name may hold letters, digits, _ - .");
		bool taken = strcmp(l->name, "input") == 0;
		for (int k = 0; k < i && !taken; k++)
			taken = strcmp(l->name, a->nodes[k].layer.name) == 0;
		if (taken)
			return arch__complain(a, i, e, ERR_INVALID, "that name is taken");
	}
	return 0;
}

static int find_inputs(struct arch *a, int i, struct err *e)
{
	struct arch_node *node = &a->nodes[i];
	node->n_in = layer_types[node->layer.kind]->inputs;
	for (int k = 0; k < LAYER_INPUTS_MAX; k++) {
		const char *from = node->layer.from[k];
		node->in[k] = i - 1;
		if (k >= node->n_in) {
			if (from[0])
				return arch__complain(
				        a, i, e, ERR_INVALID, "reads one layer, not two");
			continue;
		}
		if (!from[0]) {
			if (k > 0)
				return arch__complain(a, i, e, ERR_INVALID,
				        "needs \"from\": [one layer, another]");
			continue;
		}
		int j = strcmp(from, "input") == 0 ? -1 : i - 1;
		while (j >= 0 && strcmp(from, a->nodes[j].layer.name) != 0)
			j--;
		if (j < 0 && strcmp(from, "input") != 0) {
			char what[120];
			snprintf(what, sizeof what, "no layer before it is named \"%.80s\"", from);
			return arch__complain(a, i, e, ERR_INVALID, what);
		}
		node->in[k] = j;
	}
	return 0;
}

const struct shape *arch__input(const struct arch *a, const struct arch_node *n, int k)
{
	return n->in[k] < 0 ? &a->input : &a->nodes[n->in[k]].shape;
}

void arch__param(struct arch *a, int i, const char *suffix, struct shape s, enum param_group group,
        enum param_init init, int64_t fan_in)
{
	struct param_view *v = &a->views[a->n_views];
	snprintf(v->name, sizeof v->name, "%s.%s", a->nodes[i].layer.name, suffix);
	v->shape = s;
	v->group = group;
	v->init = init;
	v->fan_in = fan_in;
	a->nodes[i].param[a->nodes[i].n_param++] = a->n_views++;
}

void arch__weights(struct arch *a, int i, struct shape w, int64_t fan_in)
{
	const struct layer *l = &a->nodes[i].layer;
	struct shape b = {1, {w.dim[0]}};
	arch__param(
	        a, i, "weight", w, PARAM_WEIGHT, l->std > 0 ? INIT_NORMAL : INIT_UNIFORM, fan_in);
	a->views[a->n_views - 1].std = l->std;
	if (l->bias)
		arch__param(a, i, "bias", b, PARAM_PLAIN, l->std > 0 ? INIT_ZEROS : INIT_UNIFORM,
		        fan_in);
}

bool arch__tied(const struct arch *a, int i, int view)
{
	for (int j = 0; j < i; j++)
		for (int k = 0; k < a->nodes[j].n_param; k++)
			if (a->nodes[j].param[k] == view)
				return true;
	return false;
}

static int resolve_node(struct arch *a, int i, struct err *e)
{
	struct arch_node *n = &a->nodes[i];
	const struct layer_type *type = layer_types[n->layer.kind];
	n->shape = *arch__input(a, n, 0);
	for (int k = 0; k < n->n_in && a->tokens; k++)
		if (n->in[k] < 0 && !type->reads_tokens)
			return arch__complain(a, i, e, ERR_INVALID,
			        "reads the data, which are tokens: only an embedding does that");
	int rc = type->resolve ? type->resolve(a, i, e) : 0;
	if (rc == 0 && !arch__shape_sane(&n->shape))
		return arch__complain(a, i, e, ERR_LIMIT, "its output is too large");
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
			return arch__complain(
			        a, i, e, ERR_INVALID, "no later layer reads its output");
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
	if (input->rank < 1 || input->rank > 3 || !arch__shape_sane(input))
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
	for (int i = 0; i < n; i++) {
		a->nodes[i].layer = layers[i];
		a->tokens = a->tokens || layer_types[layers[i].kind]->reads_tokens;
	}
	if ((rc = name_layers(a, e)) != 0)
		goto out;
	for (int i = 0; i < n; i++)
		if ((rc = find_inputs(a, i, e)) != 0 || (rc = resolve_node(a, i, e)) != 0)
			goto out;
	const struct shape *last = &a->nodes[n - 1].shape;
	a->positions = a->tokens ? input->dim[0] : 1;
	if (last->dim[last->rank - 1] != classes || last->rank != (a->tokens ? 2 : 1)) {
		char what[96], text[64];
		snprintf(what, sizeof what, "the last layer gives %s, the data has %lld %s",
		        shape_text(last, text), (long long)classes,
		        a->tokens ? "tokens for each position" : "classes");
		rc = arch__complain(a, n - 1, e, ERR_INVALID, what);
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

int arch_check_batch(const struct arch *a, int64_t batch, struct err *e)
{
	for (int i = 0; i < a->n_nodes; i++) {
		const struct shape *in = arch__input(a, &a->nodes[i], 0);
		if (a->nodes[i].layer.kind == LAYER_BATCH_NORM && batch < 2 &&
		        shape_count(in) == (size_t)in->dim[in->rank - 1])
			return arch__complain(a, i, e, ERR_INVALID,
			        "one value of a channel is nothing to normalise: it needs a batch "
			        "of 2 or more");
	}
	return 0;
}

void arch_close(struct arch *a)
{
	free(a->nodes);
	free(a->views);
	memset(a, 0, sizeof *a);
}

/* One random stream per view: a layer more does not change the others. */
static void init_view(const struct param_view *v, struct rng *r, float *values)
{
	float bound = 1.0f / sqrtf((float)v->fan_in);
	for (size_t k = 0; k < v->count; k++) {
		if (v->init == INIT_UNIFORM)
			values[k] = (2 * rng_f32(r) - 1) * bound;
		else if (v->init == INIT_NORMAL)
			values[k] = (float)(rng_normal(r) * v->std);
		else
			values[k] = v->init == INIT_ONES ? 1 : 0;
	}
}

void arch_init_params(const struct arch *a, uint64_t seed, float *values)
{
	for (int i = 0; i < a->n_views; i++) {
		struct rng r;
		rng_seed(&r, seed, (uint64_t)i);
		init_view(&a->views[i], &r, values + a->views[i].offset);
	}
}
