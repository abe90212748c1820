/* SPDX-License-Identifier: MIT */
/* The layout is renaming and transposing: no number changes, so what goes out and comes in again
 * has the same bits. Which model it is rides in config.json there and in the metadata here, so a
 * file that is taken in gets the metadata that our own would have had, and all that reads weights
 * works with it.
 *
 * What can fail on the way in: a head of its own, a config.json of another model; on the way out:
 * a model that is not preset gpt's list of layers, the disk. */
#include "agent/train/gpt2.h"

#include "agent/base/buf.h"
#include "agent/config/gpt2_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "transformer."

enum fate { FATE_KEPT, FATE_TRANSPOSED, FATE_MASK, FATE_HEAD };

static bool ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0;
}

static const char *bare(const char *name)
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? name + strlen(PREFIX) : name;
}

static bool is_transposed(const char *name)
{
	static const char *const ends[] = {".attn.c_attn.weight", ".attn.c_proj.weight",
	        ".mlp.c_fc.weight", ".mlp.c_proj.weight"};
	bool is = false;

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		is = is || ends_with(name, ends[i]);
	return is && strncmp(name, "h.", 2) == 0;
}

/* What becomes of a tensor, and our name for it. */
static enum fate judge(const char *theirs, const char **ours)
{
	const char *name = bare(theirs);
	const bool in_block = strncmp(name, "h.", 2) == 0;

	*ours = strcmp(name, "wte.weight") == 0   ? "embed.weight"
	        : strcmp(name, "wpe.weight") == 0 ? "embed.position"
	                                          : name;
	if (strcmp(name, "lm_head.weight") == 0)
		return FATE_HEAD;
	if (in_block && (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias")))
		return FATE_MASK;
	return is_transposed(name) ? FATE_TRANSPOSED : FATE_KEPT;
}

bool gpt2_is_theirs(const struct st_file *f)
{
	return st_meta(f, "model") == NULL && (st_find(f, "wte.weight") != NULL ||
	                                              st_find(f, PREFIX "wte.weight") != NULL);
}

/* (rows, columns) to (columns, rows); from may be unaligned. */
static void transpose(const void *from, int64_t rows, int64_t columns, float *to)
{
	const unsigned char *p = from;

	for (int64_t i = 0; i < rows; i++)
		for (int64_t k = 0; k < columns; k++)
			memcpy(to + k * rows + i, p + (i * columns + k) * (int64_t)sizeof *to,
			        sizeof *to);
}

/* What is no matrix of floats stays as it is: its shape or type is refused later. */
static int transpose_tensor(struct st_file *f, struct st_tensor *t, struct err *e)
{
	if (t->rank != 2 || t->dtype != ST_F32)
		return 0;
	float *to = st_keep(f, (size_t)t->bytes);
	const int64_t rows = t->dim[0], columns = t->dim[1];

	if (to == NULL)
		return err_set(e, ERR_NOMEM, "no memory for tensor %.80s", t->name);
	if (t->bytes > 0)
		transpose(t->data, rows, columns, to);
	t->dim[0] = columns;
	t->dim[1] = rows;
	t->data = to;
	return 0;
}

static int check_head(const struct st_file *f, const struct st_tensor *head, struct err *e)
{
	const struct st_tensor *wte = st_find(f, "embed.weight");

	if (wte != NULL && head->dtype == wte->dtype && head->bytes == wte->bytes &&
	        memcmp(head->data, wte->data, (size_t)wte->bytes) == 0)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
	        "lm_head.weight is not wte.weight: a model whose head has a weight of its own is "
	        "not read");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names with the prefix and without may have become one. */
static int check_names(const struct st_file *f, struct err *e)
{
	const char **name = calloc((size_t)f->n_tensors + 1, sizeof *name);
	int rc = name == NULL ? err_set(e, ERR_NOMEM, "no memory for the names") : 0;

	for (int i = 0; i < f->n_tensors && rc == 0; i++)
		name[i] = f->tensors[i].name;
	if (rc == 0)
		qsort(name, (size_t)f->n_tensors, sizeof *name, by_name);
	for (int i = 1; i < f->n_tensors && rc == 0; i++)
		if (strcmp(name[i - 1], name[i]) == 0)
			rc = err_set(e, ERR_FORMAT,
			        "tensor %.80s twice, with \"" PREFIX "\" before it and without",
			        name[i]);
	free(name);
	return rc;
}

static int take_tensors(struct st_file *f, struct err *e)
{
	struct st_tensor head = {.name = NULL};
	int n = 0, rc = 0;

	for (int i = 0; i < f->n_tensors && rc == 0; i++) {
		struct st_tensor t = f->tensors[i];
		const enum fate fate = judge(t.name, &t.name);

		if (fate == FATE_MASK)
			continue;
		if (fate == FATE_HEAD) {
			head = t;
			continue;
		}
		if (fate == FATE_TRANSPOSED)
			rc = transpose_tensor(f, &t, e);
		f->tensors[n++] = t;
	}
	f->n_tensors = n;
	if (rc == 0)
		rc = check_names(f, e);
	return rc == 0 && head.name != NULL ? check_head(f, &head, e) : rc;
}

/* ---- the model */

static int make_arch(const struct gpt2_config *c, struct arch *a, struct err *e)
{
	const struct arch_gpt sizes = {c->layers, c->width, c->heads};
	const struct shape input = {1, {c->positions}};
	int rc = arch_preset(a, "gpt", &sizes, &input, c->vocabulary, e);

	for (int i = 0; i < a->n_nodes && rc == 0; i++) {
		struct layer *l = &a->nodes[i].layer;

		if (l->kind == LAYER_LAYER_NORM)
			l->eps = c->eps;
		else if (l->kind == LAYER_GELU)
			l->tanh = c->tanh;
	}
	return rc;
}

/* Our own metadata in the place of theirs. */
static int set_meta(struct st_file *f, const struct arch *a, struct err *e)
{
	struct buf text;

	buf_init(&text, LIMIT_SAFETENSORS_HEADER);
	int rc = arch_print(a, &text);
	char *model = rc == 0 ? st_keep(f, text.len + 1) : NULL;
	struct st_meta *meta = calloc(5, sizeof *meta);

	if (model == NULL || meta == NULL) {
		free(meta);
		buf_close(&text);
		return err_set(e, rc != 0 ? rc : ERR_NOMEM, "no memory for the metadata");
	}
	memcpy(model, text.data, text.len + 1);
	buf_close(&text);
	meta[0] = (struct st_meta){"mean", "0"}; /* by key */
	meta[1] = (struct st_meta){"model", model};
	meta[2] = (struct st_meta){"samples", "0"};
	meta[3] = (struct st_meta){"std", "1"};
	meta[4] = (struct st_meta){"step", "0"};
	free(f->meta);
	f->meta = meta;
	f->n_meta = 5;
	return 0;
}

static int take_config(struct st_file *f, const char *path, struct err *e)
{
	struct gpt2_config c;
	struct arch a = {0};
	struct buf text;

	if (access(path, F_OK) != 0)
		return 0;
	buf_init(&text, LIMIT_CONFIG_BYTES);
	int rc = file_read(&text, path, e);

	if (rc == 0) {
		rc = gpt2_config_parse(&c, text.data != NULL ? text.data : "", text.len, e);
		if (rc == 0)
			rc = make_arch(&c, &a, e);
		if (rc == 0)
			rc = set_meta(f, &a, e);
		if (rc != 0)
			err_prefix(e, "%s", path);
	}
	arch_close(&a);
	buf_close(&text);
	return rc;
}

int gpt2_take(struct st_file *f, const char *config, struct err *e)
{
	int rc = take_tensors(f, e);

	return rc != 0 ? rc : take_config(f, config, e);
}

/* ---- out */

static const struct layer *first_of(const struct arch *a, enum layer_kind kind)
{
	for (int i = 0; i < a->n_nodes; i++)
		if (a->nodes[i].layer.kind == kind)
			return &a->nodes[i].layer;
	return NULL;
}

/* What the model would be if it were a GPT-2. */
static bool read_sizes(const struct arch *a, struct gpt2_config *c)
{
	const struct layer *embed = first_of(a, LAYER_EMBEDDING);
	const struct layer *attn = first_of(a, LAYER_ATTENTION);
	const struct layer *norm = first_of(a, LAYER_LAYER_NORM), *gelu = first_of(a, LAYER_GELU);

	if (embed == NULL || attn == NULL || norm == NULL || gelu == NULL)
		return false;
	*c = (struct gpt2_config){
	        .width = embed->units,
	        .heads = attn->heads,
	        .positions = a->input.dim[0],
	        .vocabulary = a->classes,
	        .eps = norm->eps,
	        .tanh = gelu->tanh,
	};
	for (int i = 0; i < a->n_nodes; i++)
		c->layers += a->nodes[i].layer.kind == LAYER_ATTENTION;
	return true;
}

/* Initial values aside. */
static bool same_node(const struct arch_node *x, const struct arch_node *y)
{
	const struct layer *l = &x->layer, *m = &y->layer;
	bool same = l->kind == m->kind && strcmp(l->name, m->name) == 0 && x->n_in == y->n_in &&
	            shape_equal(&x->shape, &y->shape) && x->n_param == y->n_param;

	for (int i = 0; i < x->n_in && same; i++)
		same = x->in[i] == y->in[i];
	return same && (l->kind != LAYER_ATTENTION || l->heads == m->heads) &&
	       (l->kind != LAYER_LAYER_NORM || l->eps == m->eps) &&
	       (l->kind != LAYER_GELU || l->tanh == m->tanh);
}

/* Only a model that is the preset's, layer by layer, is a GPT-2. */
static int describe(const struct arch *a, struct gpt2_config *c, struct err *e)
{
	struct arch want = {0};
	struct err why;
	int differs = 0;

	if (!read_sizes(a, c) || make_arch(c, &want, &why) != 0) {
		arch_close(&want);
		return err_set(e, ERR_UNSUPPORTED,
		        "the model is no GPT-2: only preset gpt has this layout");
	}
	while (differs < a->n_nodes && differs < want.n_nodes &&
	        same_node(&a->nodes[differs], &want.nodes[differs]))
		differs++;
	const bool same = differs == a->n_nodes && differs == want.n_nodes;

	arch_close(&want);
	return same ? 0
	            : err_set(e, ERR_UNSUPPORTED,
	                      "the model is no GPT-2: layer %d is not that of preset gpt, the only "
	                      "model that has this layout",
	                      differs + 1);
}

struct out {
	char (*name)[LIMIT_TENSOR_NAME + sizeof PREFIX]; /* owned */
	struct st_tensor *tensor;                        /* owned */
	float *turned;                                   /* owned: transposed weights */
};

static int fill_out(const struct arch *a, const float *params, struct out *o, struct err *e)
{
	float *to = o->turned = malloc(a->n_decay * sizeof *to);

	o->name = calloc((size_t)a->n_views, sizeof *o->name);
	o->tensor = calloc((size_t)a->n_views, sizeof *o->tensor);
	if (o->name == NULL || o->tensor == NULL || to == NULL)
		return err_set(e, ERR_NOMEM, "no memory for %zu weights", a->n_decay);
	for (int i = 0; i < a->n_views; i++) {
		const struct param_view *v = &a->views[i];
		struct st_tensor *t = &o->tensor[i];
		const char *name = strcmp(v->name, "embed.weight") == 0     ? "wte.weight"
		                   : strcmp(v->name, "embed.position") == 0 ? "wpe.weight"
		                                                            : v->name;

		snprintf(o->name[i], sizeof o->name[i], PREFIX "%s", name);
		*t = (struct st_tensor){
		        .name = o->name[i],
		        .dtype = ST_F32,
		        .rank = v->shape.rank,
		        .bytes = v->count * sizeof(float),
		        .data = params + v->offset,
		};
		for (int k = 0; k < v->shape.rank; k++)
			t->dim[k] = v->shape.dim[k];
		if (!is_transposed(v->name))
			continue;
		transpose(params + v->offset, v->shape.dim[0], v->shape.dim[1], to);
		t->dim[0] = v->shape.dim[1];
		t->dim[1] = v->shape.dim[0];
		t->data = to;
		to += v->count;
	}
	return 0;
}

static int fill_text(int fd, void *arg, struct err *e)
{
	const struct buf *text = arg;

	return file_write_all(fd, text->data, text->len, e);
}

static int write_config(const char *path, const struct gpt2_config *c, struct err *e)
{
	struct buf text;

	buf_init(&text, LIMIT_CONFIG_BYTES);
	int rc = gpt2_config_print(c, &text);

	rc = rc != 0 ? err_set(e, rc, "%s: %s", path, err_text(rc))
	             : file_replace(path, 0644, fill_text, &text, e);
	buf_close(&text);
	return rc;
}

/* Until the end there is none: what is written so far is no model, to us or to transformers. */
static int remove_config(const char *path, struct err *e)
{
	if (unlink(path) == 0)
		return file_sync_folder(path, e);
	return errno == ENOENT ? 0 : err_errno(e, "remove %s", path);
}

int gpt2_write(const char *folder, const struct arch *a, const float *params, struct err *e)
{
	static const struct st_meta meta = {"format", "pt"};
	char weights[LIMIT_PATH], config[LIMIT_PATH];
	struct gpt2_config c;
	struct out o = {0};
	int rc = describe(a, &c, e);

	if (rc != 0)
		return rc;
	if (snprintf(weights, sizeof weights, "%s/model.safetensors", folder) >=
	                (int)sizeof weights ||
	        snprintf(config, sizeof config, "%s/config.json", folder) >= (int)sizeof config)
		return err_set(e, ERR_LIMIT, "%.80s: too long a path", folder);
	rc = fill_out(a, params, &o, e);
	if (rc == 0)
		rc = file_mkdirs(folder, e);
	if (rc == 0)
		rc = remove_config(config, e);
	if (rc == 0)
		rc = st_write(weights, o.tensor, a->n_views, &meta, 1, e);
	if (rc == 0)
		rc = write_config(config, &c, e);
	free(o.name);
	free(o.tensor);
	free(o.turned);
	return rc;
}
