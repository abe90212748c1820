/* SPDX-License-Identifier: MIT */
/* Weights in several files, and tensors of 16 bits.
 *
 *     {"metadata": {"total_size": 548105171},
 *      "weight_map": {"h.0.ln_1.bias": "model-00001-of-00002.safetensors", …}}
 *
 * Each file is read as one alone is, and checked against the index: each tensor must be where the
 * index has it, and be named there. A file is a plain name in the index's own folder, so that an
 * index leads nowhere else. The tensors stay in their files' memory, which the set owns.
 *
 * What can fail: the index is not JSON of this form, names too many files or one outside; a file is
 * missing or damaged; the two do not agree. */
#include "agent/base/buf.h"
#include "model/io/half.h"
#include "model/io/safetensors.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 1000
#define FILE_NAME_MAX 200

static int by_tensor(const void *a, const void *b)
{
	return strcmp(((const struct st_row *)a)->tensor, ((const struct st_row *)b)->tensor);
}

static int read_row(struct st_row *r, const cJSON *v, struct err *e)
{
	const char *name = v->string;
	if (!st__printable(name))
		return err_set(e, ERR_FORMAT, "control characters in the name of a tensor");
	if (!cJSON_IsString(v))
		return err_set(e, ERR_FORMAT, "tensor %.80s: no name of a file", name);
	if (!v->valuestring[0] || v->valuestring[0] == '.' || strchr(v->valuestring, '/') ||
	        strlen(v->valuestring) > FILE_NAME_MAX || !st__printable(v->valuestring))
		return err_set(e, ERR_FORMAT,
		        "tensor %.80s: its file must have a plain name, in the index's folder",
		        name);
	*r = (struct st_row){name, v->valuestring};
	return 0;
}

static int read_rows(struct st_index *x, struct err *e)
{
	const cJSON *map = cJSON_GetObjectItemCaseSensitive(x->json, "weight_map"), *v;
	if (!cJSON_IsObject(map) || !map->child)
		return err_set(e, ERR_FORMAT, "no \"weight_map\" with tensors in it");
	const int n = cJSON_GetArraySize(map);
	if (n > LIMIT_TENSORS)
		return err_set(e, ERR_LIMIT, "%d tensors, at most %d are read", n, LIMIT_TENSORS);
	x->rows = calloc((size_t)n, sizeof *x->rows);
	if (!x->rows)
		return err_set(e, ERR_NOMEM, "no memory for %d tensors", n);
	cJSON_ArrayForEach(v, map)
	{
		int rc = read_row(&x->rows[x->n_rows++], v, e);
		if (rc)
			return rc;
	}
	qsort(x->rows, (size_t)n, sizeof *x->rows, by_tensor);
	for (int i = 1; i < n; i++)
		if (by_tensor(&x->rows[i - 1], &x->rows[i]) == 0)
			return err_set(e, ERR_FORMAT, "tensor %.80s twice", x->rows[i].tensor);
	return 0;
}

int st__parse_index(struct st_index *x, const void *bytes, size_t len, struct err *e)
{
	const uint8_t *p = bytes;
	memset(x, 0, sizeof *x);
	while (len > 0 && (p[len - 1] == '\n' || p[len - 1] == '\r')) /* as editors leave it */
		len--;
	int rc = st__read_json(&x->json, p, len, "the index", e);
	if (!rc)
		rc = read_rows(x, e);
	if (rc)
		st__close_index(x);
	return rc;
}

void st__close_index(struct st_index *x)
{
	cJSON_Delete(x->json);
	free(x->rows);
	memset(x, 0, sizeof *x);
}

/* Every tensor of a file must be the index's. */
static int check_file(
        const struct st_index *x, const struct st_file *part, const char *file, struct err *e)
{
	for (int i = 0; i < part->n_tensors; i++) {
		const struct st_row want = {part->tensors[i].name, NULL};
		const struct st_row *r =
		        bsearch(&want, x->rows, (size_t)x->n_rows, sizeof want, by_tensor);
		if (!r)
			return err_set(e, ERR_MISMATCH, "tensor %.80s of %.80s is not in the index",
			        want.tensor, file);
		if (strcmp(r->file, file) != 0)
			return err_set(e, ERR_MISMATCH,
			        "tensor %.80s is in %.60s, the index has it in %.60s", want.tensor,
			        file, r->file);
	}
	return 0;
}

/* Names of the files that are open, borrowed from the index. */
struct names {
	const char *name[FILES_MAX];
};

static int open_file(struct st_file *f, struct names *open, const struct st_index *x,
        const char *folder, const char *file, struct err *e)
{
	char path[LIMIT_PATH];
	for (int i = 0; i < f->n_parts; i++)
		if (!strcmp(open->name[i], file))
			return 0;
	if (f->n_parts == FILES_MAX)
		return err_set(e, ERR_LIMIT, "more than %d files", FILES_MAX);
	if (snprintf(path, sizeof path, "%s%s", folder, file) >= (int)sizeof path)
		return err_set(e, ERR_LIMIT, "too long a path");
	int rc = st_open(&f->parts[f->n_parts], path, e);
	if (rc)
		return rc;
	open->name[f->n_parts++] = file;
	return check_file(x, &f->parts[f->n_parts - 1], file, e);
}

/* One list of all. As many tensors as rows, and each has its row: so each row has its tensor. */
static int join(struct st_file *f, const struct st_index *x, struct err *e)
{
	f->tensors = calloc((size_t)x->n_rows, sizeof *f->tensors);
	if (!f->tensors)
		return err_set(e, ERR_NOMEM, "no memory for %d tensors", x->n_rows);
	for (int i = 0; i < f->n_parts; i++)
		for (int k = 0; k < f->parts[i].n_tensors; k++)
			f->tensors[f->n_tensors++] = f->parts[i].tensors[k];
	for (int i = 0; i < x->n_rows && f->n_tensors < x->n_rows; i++)
		if (!st_find(f, x->rows[i].tensor))
			return err_set(e, ERR_MISMATCH,
			        "tensor %.80s is not in %.80s, where the index has it",
			        x->rows[i].tensor, x->rows[i].file);
	return 0;
}

static int open_files(
        struct st_file *f, const struct st_index *x, const char *path, struct err *e)
{
	char folder[LIMIT_PATH];
	struct names open;
	const char *slash = strrchr(path, '/');
	int rc = 0;
	snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash + 1 - path) : 0, path);
	f->parts = calloc(FILES_MAX, sizeof *f->parts);
	if (!f->parts)
		return err_set(e, ERR_NOMEM, "no memory for the list of files");
	for (int i = 0; i < x->n_rows && !rc; i++)
		rc = open_file(f, &open, x, folder, x->rows[i].file, e);
	return rc ? rc : join(f, x, e);
}

int st_open_index(struct st_file *f, const char *path, struct err *e)
{
	struct st_index x;
	struct buf text;
	memset(f, 0, sizeof *f);
	buf_init(&text, LIMIT_SAFETENSORS_HEADER);
	int rc = file_read(&text, path, e);
	if (rc) {
		buf_close(&text);
		return rc;
	}
	rc = st__parse_index(&x, text.data ? text.data : "", text.len, e);
	buf_close(&text);
	if (!rc) {
		rc = open_files(f, &x, path, e);
		st__close_index(&x);
	}
	if (rc) {
		st_close(f);
		err_prefix(e, "%s", path);
	}
	return rc;
}

/* ---- 16 bits */

int st_widen(struct st_file *f, struct err *e)
{
	for (int i = 0; i < f->n_tensors; i++) {
		struct st_tensor *t = &f->tensors[i];
		const bool half = t->dtype == ST_F16;
		if (!half && t->dtype != ST_BF16)
			continue;
		const size_t n = (size_t)(t->bytes / 2);
		float *to = st_keep(f, n * sizeof *to);
		if (!to)
			return err_set(e, ERR_NOMEM, "no memory for tensor %.80s", t->name);
		for (size_t k = 0; k < n; k++) {
			uint16_t v;
			memcpy(&v, (const uint8_t *)t->data + 2 * k, sizeof v);
			to[k] = half ? half_to_float(v) : bf16_to_float(v);
		}
		t->dtype = ST_F32;
		t->bytes = n * sizeof *to;
		t->data = to;
	}
	return 0;
}
