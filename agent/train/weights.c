/* SPDX-License-Identifier: MIT */
/* Weights in and out of safetensors files.
 *
 * The idea: a model's tensors are views of one flat vector, so writing is a list of pointers into
 * it and reading is one copy per tensor. Names and shapes are PyTorch's, so that files travel both
 * ways; what PyTorch does not know (the model itself, the normalisation of its input) rides along
 * in the metadata.
 *
 * The happy path of a reader: st_open, weights_check, allocate, weights_copy. What can fail is all
 * in weights_check: it looks at the whole file before the caller touches anything of its own, and
 * it tells everything that is wrong at once, because a user who maps names by hand would otherwise
 * learn them one run at a time. */
#include "agent/train/weights.h"

#include "agent/config/config.h"
#include "agent/config/options.h"
#include "agent/train/gpt2.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_MAX (1ull << 53) /* beyond it JSON readers lose digits */
#define NAMED_MAX 3            /* tensors named per kind of trouble */

bool text_u64(const char *s, uint64_t *out)
{
	size_t len = strlen(s);

	if (len == 0 || len > 16 || strspn(s, "0123456789") != len)
		return false;
	*out = strtoull(s, NULL, 10);
	return *out <= COUNT_MAX;
}

bool text_i64(const char *s, int64_t *out)
{
	const char *digits = s[0] == '-' ? s + 1 : s;
	size_t len = strlen(digits);

	if (len == 0 || len > 19 || strspn(digits, "0123456789") != len)
		return false;
	errno = 0;
	*out = strtoll(s, NULL, 10);
	return errno == 0;
}

bool text_f64(const char *s, double *out)
{
	size_t len = strlen(s);
	char *end;

	/* The set keeps out what strtod also takes: spaces, hexadecimal, inf and nan. */
	if (len == 0 || len > 40 || strspn(s, "0123456789+-.eE") != len)
		return false;
	*out = strtod(s, &end);
	return *end == '\0' && end != s && isfinite(*out);
}

size_t weights_nonfinite(const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, p + i * sizeof bits, sizeof bits);
		if ((bits & 0x7f800000u) == 0x7f800000u)
			return i;
	}
	return n;
}

void weights_view(const struct param_view *v, const float *params, struct st_tensor *out)
{
	*out = (struct st_tensor){
	        .name = v->name,
	        .dtype = ST_F32,
	        .rank = v->shape.rank,
	        .bytes = v->count * sizeof(float),
	        .data = params + v->offset,
	};
	for (int i = 0; i < v->shape.rank; i++)
		out->dim[i] = v->shape.dim[i];
}

void weights_numbers(const double *x, int n, char out[WEIGHTS_NUMBERS])
{
	size_t at = 0;

	for (int i = 0; i < n; i++)
		at += (size_t)snprintf(
		        out + at, WEIGHTS_NUMBERS - at, i > 0 ? " %.17g" : "%.17g", x[i]);
}

int weights_write(const char *path, const struct arch *a, const struct weights_info *info,
        const float *params, struct err *e)
{
	struct st_tensor *tensors = NULL;
	struct buf model;
	char mean[WEIGHTS_NUMBERS], std[WEIGHTS_NUMBERS], step[24], samples[24];
	int rc;

	buf_init(&model, LIMIT_SAFETENSORS_HEADER / 2);
	if (weights_nonfinite(params, a->n_total) < a->n_total) {
		rc = err_set(e, ERR_NONFINITE, "the parameters are not all finite");
		goto out;
	}
	rc = arch_print(a, &model);
	tensors = calloc((size_t)a->n_views, sizeof *tensors);
	if (rc == 0 && tensors == NULL)
		rc = ERR_NOMEM;
	if (rc != 0) {
		err_set(e, rc, "%s", err_text(rc));
		goto out;
	}
	for (int i = 0; i < a->n_views; i++)
		weights_view(&a->views[i], params, &tensors[i]);
	weights_numbers(info->norm.mean, info->norm.n, mean);
	weights_numbers(info->norm.std, info->norm.n, std);
	snprintf(step, sizeof step, "%" PRIu64, info->step);
	snprintf(samples, sizeof samples, "%" PRIu64, info->samples);
	const struct st_meta meta[] = {
	        {"format", WEIGHTS_FORMAT},
	        {"version", WEIGHTS_VERSION},
	        {"model", model.data},
	        {"mean", mean},
	        {"std", std},
	        {"step", step},
	        {"samples", samples},
	};
	rc = st_write(path, tensors, a->n_views, meta, (int)(sizeof meta / sizeof meta[0]), e);
out:
	free(tensors);
	buf_close(&model);
	return rc;
}

int weights_arch(const struct st_file *f, struct arch *out, struct err *e)
{
	const char *json = st_meta(f, "model");
	struct layer *layers = NULL;
	struct shape input;
	int64_t classes;
	int n, rc;

	if (json == NULL)
		return err_set(e, ERR_NOTFOUND, "the file's metadata names no model");
	rc = config_parse_model(json, strlen(json), &layers, &n, &input, &classes, e);
	if (rc == 0)
		rc = arch_resolve(out, layers, n, &input, classes, e);
	free(layers);
	if (rc != 0)
		err_prefix(e, "model in the metadata");
	return rc;
}

/* How many numbers there are; 0: too many, or something else. */
static int parse_numbers(const char *text, double *x)
{
	char one[32];
	int n = 0;

	for (size_t len; *text != '\0'; text += len + (text[len] == ' ')) {
		len = strcspn(text, " ");
		if (n == LIMIT_NORM_CHANNELS || len == 0 || len >= sizeof one)
			return 0;
		memcpy(one, text, len);
		one[len] = '\0';
		if (!text_f64(one, &x[n++]))
			return 0;
	}
	return n;
}

int weights_normalisation(const struct st_file *f, struct normalisation *norm, struct err *e)
{
	const char *m = st_meta(f, "mean"), *s = st_meta(f, "std");
	bool usable;

	if (m == NULL || s == NULL)
		return err_set(e, ERR_NOTFOUND, "the file's metadata has no mean and std");
	norm->n = parse_numbers(m, norm->mean);
	usable = norm->n > 0 && parse_numbers(s, norm->std) == norm->n;
	for (int i = 0; i < norm->n && usable; i++)
		usable = fabs(norm->mean[i]) <= 1e6 && norm->std[i] >= 1e-9 && norm->std[i] <= 1e6;
	if (!usable)
		return err_set(e, ERR_FORMAT, "metadata: mean or std is not a usable number");
	return 0;
}

static const char index_end[] = ".index.json";

static bool is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_index(const char *path)
{
	const size_t n = strlen(path), m = strlen(index_end);

	return n >= m && strcmp(path + n - m, index_end) == 0;
}

bool weights_are_many(const char *path)
{
	return is_folder(path) || is_index(path);
}

/* Hugging Face's names of a folder's files. */
static int choose_file(const char *path, char file[LIMIT_PATH], char config[LIMIT_PATH],
        bool *index, struct err *e)
{
	const char *slash = strrchr(path, '/');
	int a, b;

	if (is_folder(path)) {
		a = snprintf(file, LIMIT_PATH, "%s/model.safetensors", path);
		b = snprintf(config, LIMIT_PATH, "%s/config.json", path);
		*index = a < LIMIT_PATH && access(file, F_OK) != 0;
		if (*index)
			a = snprintf(file, LIMIT_PATH, "%s/model.safetensors%s", path, index_end);
		if (*index && a < LIMIT_PATH && access(file, F_OK) != 0)
			return err_set(e, ERR_IO,
			        "%s: neither model.safetensors nor model.safetensors.index.json is "
			        "in this folder",
			        path);
	} else {
		a = snprintf(file, LIMIT_PATH, "%s", path);
		b = snprintf(config, LIMIT_PATH, "%.*sconfig.json",
		        slash != NULL ? (int)(slash + 1 - path) : 0, path);
		*index = is_index(path);
	}
	return a < LIMIT_PATH && b < LIMIT_PATH
	               ? 0
	               : err_set(e, ERR_LIMIT, "%.80s: too long a path", path);
}

int weights_open(struct st_file *f, const char *path, struct err *e)
{
	char file[LIMIT_PATH], config[LIMIT_PATH];
	bool index;
	int rc = choose_file(path, file, config, &index, e);

	if (rc == 0)
		rc = index ? st_open_index(f, file, e) : st_open(f, file, e);
	if (rc != 0)
		return rc;
	rc = st_widen(f, e);
	if (rc == 0 && gpt2_is_theirs(f))
		rc = gpt2_take(f, config, e);
	if (rc != 0) {
		st_close(f);
		err_prefix(e, "%s", path);
	}
	return rc;
}

static bool is_optimiser(const char *name)
{
	return strcmp(name, "optim.m") == 0 || strcmp(name, "optim.v") == 0 ||
	       strcmp(name, "optim.phi") == 0 || strcmp(name, "optim.outer") == 0;
}

static const struct param_view *find_view(const struct arch *a, const char *name)
{
	for (int i = 0; i < a->n_views; i++)
		if (strcmp(a->views[i].name, name) == 0)
			return &a->views[i];
	return NULL;
}

/* Of an embedding's positions the first are enough: a model of shorter samples is the same one. */
static bool same_shape(const struct param_view *v, const struct st_tensor *t)
{
	const size_t n = strlen(v->name), m = strlen(".position");
	const bool longer = n > m && strcmp(v->name + n - m, ".position") == 0;

	if (t->rank != v->shape.rank)
		return false;
	for (int i = 0; i < t->rank; i++)
		if (t->dim[i] != v->shape.dim[i] &&
		        !(i == 0 && longer && t->dim[i] > v->shape.dim[i]))
			return false;
	return true;
}

static const char *dims_text(const struct st_tensor *t, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (int i = 0; i < t->rank && used < size; i++) {
		int n = snprintf(
		        out + used, size - used, "%s%" PRId64, i > 0 ? "x" : "", t->dim[i]);

		used += (size_t)n;
	}
	return t->rank == 0 ? "a scalar" : out;
}

/* One kind of trouble: how often, and the first few told. */
struct trouble {
	int count;
	char text[160];
};

__attribute__((format(printf, 2, 3))) static void tell(struct trouble *t, const char *fmt, ...)
{
	size_t used = strlen(t->text);
	va_list ap;

	if (t->count++ >= NAMED_MAX)
		return;
	if (t->count > 1 && used + 2 < sizeof t->text) {
		memcpy(t->text + used, ", ", 3);
		used += 2;
	}
	va_start(ap, fmt);
	vsnprintf(t->text + used, sizeof t->text - used, fmt, ap);
	va_end(ap);
}

static void check_tensor(const struct param_view *v, const struct st_tensor *t,
        struct trouble *shape, struct trouble *type, struct trouble *value)
{
	char have[128], want[64];

	if (!same_shape(v, t))
		tell(shape, "%.80s: %s, not %s", v->name, dims_text(t, have, sizeof have),
		        shape_text(&v->shape, want));
	else if (t->dtype != ST_F32)
		tell(type, "%.80s: %s, not F32", v->name, st_dtype_text(t->dtype));
	else if (weights_nonfinite(t->data, v->count) < v->count)
		tell(value, "%.80s", v->name);
}

int weights_check(const struct st_file *f, const struct arch *a, struct err *e)
{
	struct trouble all[5] = {{0}};
	struct trouble *missing = &all[0], *extra = &all[1], *shape = &all[2], *type = &all[3],
	               *value = &all[4];
	static const char *const what[] = {
	        "missing", "not in the model", "of another shape", "of another type", "not finite"};
	char text[sizeof e->msg] = "";
	size_t used = 0;

	for (int i = 0; i < a->n_views; i++) {
		const struct st_tensor *t = st_find(f, a->views[i].name);

		if (t == NULL)
			tell(missing, "%.80s", a->views[i].name);
		else
			check_tensor(&a->views[i], t, shape, type, value);
	}
	for (int i = 0; i < f->n_tensors; i++)
		if (find_view(a, f->tensors[i].name) == NULL && !is_optimiser(f->tensors[i].name))
			tell(extra, "%.80s", f->tensors[i].name);
	for (int i = 0; i < 5; i++) {
		if (all[i].count == 0 || used >= sizeof text)
			continue;
		int n = snprintf(text + used, sizeof text - used, "%s%d %s (%s%s)",
		        used > 0 ? "; " : "", all[i].count, what[i], all[i].text,
		        all[i].count > NAMED_MAX ? ", …" : "");
		used += (size_t)n;
	}
	if (used == 0)
		return 0;
	return err_set(e, value->count > 0 ? ERR_NONFINITE : ERR_MISMATCH, "tensors: %s", text);
}

/* What two layers of one name would compute differently with the same weights. */
static int check_layer(const struct layer *ours, const struct layer *theirs, struct err *e)
{
	char have[REAL_TEXT], want[REAL_TEXT];

	if (ours->kind == LAYER_ATTENTION && ours->heads != theirs->heads)
		return err_set(e, ERR_MISMATCH,
		        "layer %.80s: %" PRId64 " heads, but the model here has %" PRId64
		        " (gpt.heads)",
		        ours->name, theirs->heads, ours->heads);
	if (ours->kind == LAYER_GELU && ours->tanh != theirs->tanh)
		return err_set(e, ERR_MISMATCH, "layer %.80s: gelu %s tanh, but the model here %s",
		        ours->name, theirs->tanh ? "with" : "without",
		        ours->tanh ? "with it" : "without");
	if (ours->kind == LAYER_LAYER_NORM && ours->eps != theirs->eps)
		return err_set(e, ERR_MISMATCH,
		        "layer %.80s: eps %s, but the model here has %s (\"eps\" of the layer in "
		        "model.layers)",
		        ours->name, real_text(theirs->eps, have), real_text(ours->eps, want));
	return 0;
}

int weights_check_model(const struct st_file *f, const struct arch *a, struct err *e)
{
	struct arch theirs;
	int rc = weights_arch(f, &theirs, e);

	if (rc != 0)
		return rc == ERR_NOTFOUND ? 0 : rc;
	for (int i = 0; i < a->n_nodes && rc == 0; i++)
		for (int k = 0; k < theirs.n_nodes && rc == 0; k++) {
			const struct layer *l = &a->nodes[i].layer, *m = &theirs.nodes[k].layer;

			if (l->kind == m->kind && strcmp(l->name, m->name) == 0)
				rc = check_layer(l, m, e);
		}
	arch_close(&theirs);
	return rc;
}

void weights_copy(const struct st_file *f, const struct arch *a, float *out)
{
	memset(out, 0, a->n_total * sizeof *out);
	for (int i = 0; i < a->n_views; i++) {
		const struct st_tensor *t = st_find(f, a->views[i].name);

		memcpy(out + a->views[i].offset, t->data, a->views[i].count * sizeof *out);
	}
}
