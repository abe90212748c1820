/* SPDX-License-Identifier: MIT */
/* Checkpoints in and out of files.
 *
 * The idea: one table, `fields`, says under which key each number of the state is kept; writing and
 * reading both walk it, so a number cannot be saved and forgotten on the way back. Numbers are
 * decimal strings (safetensors knows no others) with 17 digits where they are doubles, which gives
 * the same bits back.
 *
 * The happy path: st_write (temporary file, fsync, rename) on one side, st_open, crc32, fields on
 * the other. What can fail: a disk that lost or changed bytes (safetensors' own checks find a wrong
 * length, crc32 the rest, metadata included), a file of a newer version, a safetensors file that is
 * no checkpoint. Nothing here looks at a running trainer: whether a sound checkpoint suits it is
 * for trainer_restore to say. */
#include "agent/train/checkpoint.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum field_type { TYPE_U64, TYPE_I64, TYPE_F64, TYPE_HASH };

#define FIELD(key, type, member)                                            \
	{                                                                   \
		key, type, offsetof(struct checkpoint_state, member), false \
	}
#define OPTIONAL(key, type, member)                                        \
	{                                                                  \
		key, type, offsetof(struct checkpoint_state, member), true \
	}

static const struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	bool optional; /* earlier files do not have it; then it is 0 */
} fields[] = {
        FIELD("step", TYPE_U64, step),
        FIELD("samples", TYPE_U64, samples),
        FIELD("others", TYPE_U64, others),
        FIELD("epoch", TYPE_U64, epoch),
        FIELD("sample", TYPE_U64, sample),
        FIELD("train_samples", TYPE_U64, n_train),
        FIELD("optim_steps", TYPE_U64, optim_steps),
        FIELD("batch", TYPE_I64, batch),
        FIELD("accumulate", TYPE_I64, accumulate),
        FIELD("train_seed", TYPE_I64, train_seed),
        FIELD("data_seed", TYPE_I64, data_seed),
        FIELD("order_seed", TYPE_I64, order_seed),
        FIELD("best_step", TYPE_U64, best_step),
        FIELD("best_loss", TYPE_F64, best_loss),
        FIELD("run_hash", TYPE_HASH, origin.manifest.run),
        FIELD("run_model", TYPE_HASH, origin.manifest.model),
        FIELD("run_init", TYPE_HASH, origin.manifest.init),
        FIELD("run_parameters", TYPE_U64, origin.manifest.count),
        FIELD("run_samples", TYPE_U64, origin.manifest.total),
        FIELD("before_samples", TYPE_U64, origin.before_samples),
        OPTIONAL("optim_rate", TYPE_F64, optim_rate),
        OPTIONAL("outer_steps", TYPE_U64, outer_steps),
        OPTIONAL("adaptive_batch", TYPE_U64, adaptive.size),
        OPTIONAL("adaptive_noise", TYPE_F64, adaptive.noise),
        OPTIONAL("adaptive_signal", TYPE_F64, adaptive.signal),
        OPTIONAL("adaptive_tests", TYPE_U64, adaptive.tests),
        OPTIONAL("adaptive_given_noise", TYPE_F64, adaptive.given_noise),
        OPTIONAL("adaptive_given_signal", TYPE_F64, adaptive.given_signal),
        OPTIONAL("adaptive_may_fall", TYPE_U64, adaptive.may_fall),
};

static const struct text {
	const char *key;
	size_t offset, room;
} texts[] = {
        {"run", offsetof(struct checkpoint_state, origin.run), LIMIT_NAME},
        {"owner", offsetof(struct checkpoint_state, origin.owner), CHECKPOINT_ID},
        {"before", offsetof(struct checkpoint_state, origin.before), CHECKPOINT_ID},
};

#define N_FIELDS (sizeof fields / sizeof fields[0])
#define N_TEXTS (sizeof texts / sizeof texts[0])
/* and format, version, model, backend, device, choices, … */
#define N_META (N_FIELDS + N_TEXTS + 10)

static const char *const optimizers[] = {[OPTIM_SGD] = "sgd", [OPTIM_ADAMW] = "adamw"};

/* Over the metadata (but crc32 itself), in any order since a reader may sort it, and then over the
 * data in the file's order. */
static uint32_t checksum(
        const struct st_meta *meta, int n_meta, const struct st_tensor *tensors, int n_tensors)
{
	uint32_t sum = 0;
	uLong crc;

	for (int i = 0; i < n_meta; i++) {
		if (strcmp(meta[i].key, "crc32") == 0)
			continue;
		crc = crc32_z(0, (const Bytef *)meta[i].key, strlen(meta[i].key) + 1);
		crc = crc32_z(crc, (const Bytef *)meta[i].value, strlen(meta[i].value) + 1);
		sum += (uint32_t)crc;
	}
	crc = sum;
	for (int i = 0; i < n_tensors; i++)
		if (tensors[i].bytes > 0) /* crc32_z starts anew when it is given no pointer */
			crc = crc32_z(crc, tensors[i].data, tensors[i].bytes);
	return (uint32_t)crc;
}

static void print_field(const struct field *f, const struct checkpoint_state *s, char out[32])
{
	const char *at = (const char *)s + f->offset;
	uint64_t u;
	int64_t i;
	double d;

	switch (f->type) {
	case TYPE_U64:
		memcpy(&u, at, sizeof u);
		snprintf(out, 32, "%" PRIu64, u);
		break;
	case TYPE_HASH:
		memcpy(&u, at, sizeof u);
		snprintf(out, 32, "%016" PRIx64, u);
		break;
	case TYPE_I64:
		memcpy(&i, at, sizeof i);
		snprintf(out, 32, "%" PRId64, i);
		break;
	case TYPE_F64:
		memcpy(&d, at, sizeof d);
		snprintf(out, 32, "%.17g", d);
		break;
	}
}

static bool text_hash(const char *s, uint64_t *out)
{
	*out = strtoull(s, NULL, 16);
	return strlen(s) == 16 && strspn(s, "0123456789abcdef") == 16;
}

static bool parse_field(const struct field *f, const char *text, struct checkpoint_state *s)
{
	char *at = (char *)s + f->offset;

	/* Every field of the state is a naturally aligned 8-byte number. */
	switch (f->type) {
	case TYPE_U64:
		return text_u64(text, (uint64_t *)(void *)at);
	case TYPE_HASH:
		return text_hash(text, (uint64_t *)(void *)at);
	case TYPE_I64:
		return text_i64(text, (int64_t *)(void *)at);
	case TYPE_F64:
		return text_f64(text, (double *)(void *)at);
	}
	return false;
}

static int list_tensors(const struct checkpoint_source *s, struct st_tensor *out)
{
	const struct arch *a = s->arch;
	int n = 0;

	for (; n < a->n_views; n++)
		weights_view(&a->views[n], s->params, &out[n]);
	const struct st_tensor state = {
	        .dtype = ST_F32,
	        .rank = 1,
	        .dim = {(int64_t)a->n_total},
	        .bytes = a->n_total * sizeof(float),
	};
	const struct st_tensor trained = {
	        .dtype = ST_F32,
	        .rank = 1,
	        .dim = {(int64_t)a->n_train},
	        .bytes = a->n_train * sizeof(float),
	};
	if (s->m != NULL) {
		out[n] = state;
		out[n].name = "optim.m";
		out[n++].data = s->m;
	}
	if (s->v != NULL) {
		out[n] = state;
		out[n].name = "optim.v";
		out[n++].data = s->v;
	}
	if (s->phi != NULL) {
		out[n] = out[n + 1] = trained;
		out[n].name = "optim.phi";
		out[n++].data = s->phi;
		out[n].name = "optim.outer";
		out[n++].data = s->outer;
	}
	return n;
}

int checkpoint_write(const char *path, const struct checkpoint_source *s, struct err *e)
{
	const struct arch *a = s->arch;
	struct st_meta meta[N_META];
	char values[N_FIELDS][32], mean[WEIGHTS_NUMBERS], std[WEIGHTS_NUMBERS], version[16],
	        crc[16];
	struct st_tensor *tensors = NULL;
	struct buf model;
	int n = 0, n_tensors, rc;

	buf_init(&model, LIMIT_SAFETENSORS_HEADER / 2);
	rc = arch_print(a, &model);
	tensors = calloc((size_t)a->n_views + 4, sizeof *tensors);
	if (rc == 0 && tensors == NULL)
		rc = ERR_NOMEM;
	if (rc != 0) {
		err_set(e, rc, "%s", err_text(rc));
		goto out;
	}
	n_tensors = list_tensors(s, tensors);
	for (int i = 0; i < n_tensors; i++) {
		size_t count = tensors[i].bytes / sizeof(float);

		if (weights_nonfinite(tensors[i].data, count) < count) {
			rc = err_set(e, ERR_NONFINITE, "%s has values that are not finite",
			        tensors[i].name);
			goto out;
		}
	}
	snprintf(version, sizeof version, "%d",
	        s->phi != NULL || s->state.norm.n > 1 ? CHECKPOINT_VERSION
	                                              : CHECKPOINT_VERSION_RUN);
	meta[n++] = (struct st_meta){"format", CHECKPOINT_FORMAT};
	meta[n++] = (struct st_meta){"version", version};
	meta[n++] = (struct st_meta){"model", model.data};
	meta[n++] = (struct st_meta){"backend", s->backend};
	meta[n++] = (struct st_meta){"device", s->device};
	meta[n++] = (struct st_meta){"choices", s->choices};
	meta[n++] = (struct st_meta){"optimizer", optimizers[s->state.optimizer]};
	for (size_t i = 0; i < N_TEXTS; i++)
		meta[n++] =
		        (struct st_meta){texts[i].key, (const char *)&s->state + texts[i].offset};
	for (size_t i = 0; i < N_FIELDS; i++) {
		print_field(&fields[i], &s->state, values[i]);
		meta[n++] = (struct st_meta){fields[i].key, values[i]};
	}
	weights_numbers(s->state.norm.mean, s->state.norm.n, mean);
	weights_numbers(s->state.norm.std, s->state.norm.n, std);
	meta[n++] = (struct st_meta){"mean", mean};
	meta[n++] = (struct st_meta){"std", std};
	snprintf(crc, sizeof crc, "%08" PRIx32, checksum(meta, n, tensors, n_tensors));
	meta[n++] = (struct st_meta){"crc32", crc};
	rc = st_write(path, tensors, n_tensors, meta, n, e);
out:
	free(tensors);
	buf_close(&model);
	return rc;
}

/* old: it does not say of which run it is. */
static int check_kind(const struct st_file *f, bool *old, struct err *e)
{
	const char *format = st_meta(f, "format"), *version = st_meta(f, "version");
	uint64_t v;

	if (format == NULL || strcmp(format, CHECKPOINT_FORMAT) != 0)
		return err_set(e, ERR_MISMATCH, "not a checkpoint of Dunlin%s",
		        format != NULL && strcmp(format, WEIGHTS_FORMAT) == 0
		                ? " but exported weights: use --init-from"
		                : "");
	if (version == NULL || !text_u64(version, &v) || v == 0)
		return err_set(e, ERR_FORMAT, "damaged: no version number");
	if (v > CHECKPOINT_VERSION)
		return err_set(e, ERR_UNSUPPORTED,
		        "version %" PRIu64 " is newer than this program's %d: update dunlin", v,
		        CHECKPOINT_VERSION);
	*old = v < CHECKPOINT_VERSION_RUN;
	return 0;
}

static int check_sum(const struct st_file *f, struct err *e)
{
	const char *text = st_meta(f, "crc32");
	char want[16];

	snprintf(want, sizeof want, "%08" PRIx32,
	        checksum(f->meta, f->n_meta, f->tensors, f->n_tensors));
	if (text == NULL || strcmp(text, want) != 0)
		return err_set(e, ERR_FORMAT, "damaged: its checksum does not fit its content");
	return 0;
}

static int read_texts(const struct st_file *f, struct checkpoint_state *s, struct err *e)
{
	for (size_t i = 0; i < N_TEXTS; i++) {
		const char *text = st_meta(f, texts[i].key);

		if (text == NULL || strlen(text) >= texts[i].room)
			return err_set(e, ERR_FORMAT, "damaged: no usable \"%s\" in the metadata",
			        texts[i].key);
		memcpy((char *)s + texts[i].offset, text, strlen(text) + 1);
	}
	return 0;
}

static int read_state(const struct st_file *f, struct checkpoint_state *s, struct err *e)
{
	const char *kind = st_meta(f, "optimizer");
	size_t k = 0;

	for (size_t i = 0; i < N_FIELDS; i++) {
		const char *text = st_meta(f, fields[i].key);

		/* Earlier files do not have it: their order was data_seed's. */
		if (text == NULL && strcmp(fields[i].key, "order_seed") == 0)
			s->order_seed = s->data_seed;
		else if (text == NULL && fields[i].optional)
			continue;
		else if (text == NULL || !parse_field(&fields[i], text, s))
			return err_set(e, ERR_FORMAT, "damaged: no usable \"%s\" in the metadata",
			        fields[i].key);
	}
	if (weights_normalisation(f, &s->norm, NULL) != 0)
		return err_set(e, ERR_FORMAT, "damaged: no usable \"mean\" in the metadata");
	while (kind != NULL && k < sizeof optimizers / sizeof optimizers[0] &&
	        strcmp(kind, optimizers[k]) != 0)
		k++;
	if (kind == NULL || k == sizeof optimizers / sizeof optimizers[0])
		return err_set(e, ERR_FORMAT, "damaged: no known optimizer in the metadata");
	s->optimizer = k;
	/* Of a step that another agent made, the samples are among the others'. */
	if (s->n_train == 0 || s->sample >= s->n_train || s->step > s->samples + s->others ||
	        s->batch < 1 || s->batch > LIMIT_BATCH || s->accumulate < 1 ||
	        s->accumulate > LIMIT_BATCH || s->best_step > s->step)
		return err_set(e, ERR_FORMAT, "damaged: its numbers contradict each other");
	return read_texts(f, s, e);
}

/* The tensor of that name, checked to be a flat and finite fp32 vector; NULL when absent. */
static int read_vector(
        const struct st_file *f, const char *name, const struct st_tensor **out, struct err *e)
{
	const struct st_tensor *t = st_find(f, name);

	*out = t;
	if (t == NULL)
		return 0;
	if (t->dtype != ST_F32 || t->rank != 1)
		return err_set(e, ERR_FORMAT, "damaged: %s is not a vector of F32", name);
	if (weights_nonfinite(t->data, t->bytes / 4) < t->bytes / 4)
		return err_set(e, ERR_NONFINITE, "%s has values that are not finite", name);
	return 0;
}

int checkpoint__read(struct checkpoint *c, struct err *e)
{
	const struct st_file *f = &c->file;
	int rc = read_state(f, &c->state, e);

	if (rc == 0)
		rc = read_vector(f, "optim.m", &c->m, e);
	if (rc == 0)
		rc = read_vector(f, "optim.v", &c->v, e);
	if (rc == 0)
		rc = read_vector(f, "optim.phi", &c->phi, e);
	if (rc == 0)
		rc = read_vector(f, "optim.outer", &c->outer, e);
	if (rc != 0)
		return rc;
	c->model = st_meta(f, "model");
	c->backend = st_meta(f, "backend");
	c->device = st_meta(f, "device");
	c->choices = st_meta(f, "choices");
	if (c->model == NULL || c->backend == NULL || c->device == NULL || c->choices == NULL)
		return err_set(e, ERR_FORMAT, "damaged: metadata is missing");
	return 0;
}

static int finish_open(struct checkpoint *c, struct err *e)
{
	bool old = false;
	int rc = check_kind(&c->file, &old, e);

	if (rc == 0 && old)
		rc = err_set(e, ERR_UNSUPPORTED,
		        "it was written by an earlier dunlin and does not say of which run it is: "
		        "begin anew in another --out, with its weights by --init-from");
	if (rc == 0)
		rc = check_sum(&c->file, e);
	if (rc == 0)
		rc = checkpoint__read(c, e);
	if (rc != 0)
		checkpoint_close(c);
	return rc;
}

int checkpoint_open(struct checkpoint *c, const char *path, struct err *e)
{
	int rc;

	memset(c, 0, sizeof *c);
	rc = st_open(&c->file, path, e);
	if (rc != 0) {
		memset(c, 0, sizeof *c);
		return rc;
	}
	rc = finish_open(c, e);
	if (rc != 0)
		err_prefix(e, "%s", path);
	return rc;
}

int checkpoint_open_weights(struct st_file *f, const char *path, struct err *e)
{
	struct checkpoint c;
	const char *format;
	bool old = false;
	int rc = weights_open(f, path, e);

	if (rc != 0)
		return rc;
	format = st_meta(f, "format");
	if (format == NULL || strcmp(format, CHECKPOINT_FORMAT) != 0)
		return 0;
	c = (struct checkpoint){.file = *f};
	rc = check_kind(f, &old, e);
	if (rc == 0)
		rc = check_sum(f, e);
	if (rc == 0 && !old)
		rc = checkpoint__read(&c, e);
	if (rc != 0) {
		err_prefix(e, "%s", path);
		st_close(f);
	}
	return rc;
}

int checkpoint_parse(struct checkpoint *c, const void *bytes, size_t len, struct err *e)
{
	int rc;

	memset(c, 0, sizeof *c);
	rc = st_parse(&c->file, bytes, len, e);
	if (rc != 0) {
		memset(c, 0, sizeof *c);
		return rc;
	}
	return finish_open(c, e);
}

void checkpoint_close(struct checkpoint *c)
{
	st_close(&c->file);
	memset(c, 0, sizeof *c);
}
