/* SPDX-License-Identifier: MIT */
/* Reads and checks safetensors files; safetensors_write.c makes them.
 *
 * The whole file is read into memory rather than mapped: if someone truncated a mapped file while
 * we use it, reading the lost pages would kill the process, and all weights are needed anyway.
 * The memory taken is the file's own size; no length inside the file is used to allocate.
 *
 * The happy path is: length, st__scan, cJSON, each tensor by itself, then all together:
 * sorted by offset they must tile the data. Everything that can be wrong with bytes is a plain
 * error that names the tensor.
 *
 * Tensor data lies where the file put it and may be unaligned: copy it out with memcpy. */
#include "model/io/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *text;
	size_t bytes;
} dtypes[] = {
        [ST_F32] = {"F32", 4},
        [ST_F16] = {"F16", 2},
        [ST_BF16] = {"BF16", 2},
        [ST_F64] = {"F64", 8},
        [ST_I64] = {"I64", 8},
        [ST_I32] = {"I32", 4},
        [ST_I16] = {"I16", 2},
        [ST_I8] = {"I8", 1},
        [ST_U8] = {"U8", 1},
        [ST_BOOL] = {"BOOL", 1},
};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

const char *st_dtype_text(enum st_dtype t)
{
	return dtypes[t].text;
}

size_t st_dtype_bytes(enum st_dtype t)
{
	return dtypes[t].bytes;
}

bool st__printable(const char *s)
{
	for (const uint8_t *p = (const uint8_t *)s; *p; p++)
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
			return false;
	return true;
}

static const char *shown(const char *s)
{
	return st__printable(s) ? s : "(unprintable)";
}

/* cJSON keeps numbers as doubles: below 2^53 they are exact. */
static bool whole_number(const cJSON *v, uint64_t *out)
{
	double x = v->valuedouble;
	if (!cJSON_IsNumber(v) || !(x >= 0 && x < 0x1p53) || x != (double)(uint64_t)x)
		return false;
	*out = (uint64_t)x;
	return true;
}

static int read_shape(struct st_tensor *t, const cJSON *shape, struct err *e)
{
	const cJSON *v;
	uint64_t bytes = dtypes[t->dtype].bytes, n;
	if (!cJSON_IsArray(shape))
		return err_set(e, ERR_FORMAT, "no \"shape\" list");
	cJSON_ArrayForEach(v, shape)
	{
		if (t->rank == LIMIT_TENSOR_RANK)
			return err_set(e, ERR_LIMIT, "more than %d dimensions", LIMIT_TENSOR_RANK);
		if (!whole_number(v, &n))
			return err_set(e, ERR_FORMAT, "a dimension that is no whole number");
		t->dim[t->rank++] = (int64_t)n;
		if (__builtin_mul_overflow(bytes, n, &bytes))
			return err_set(e, ERR_LIMIT, "a shape of more than 2^64 bytes");
	}
	t->bytes = bytes;
	return 0;
}

/* One member of the header. data_len bounds the offsets; base is where they count from. */
static int read_tensor(
        struct st_tensor *t, const cJSON *v, const uint8_t *base, size_t data_len, struct err *e)
{
	const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL, *m;
	if (!cJSON_IsObject(v))
		return err_set(e, ERR_FORMAT, "no object");
	cJSON_ArrayForEach(m, v)
	{
		const cJSON **to = !strcmp(m->string, "dtype")          ? &dtype
		                   : !strcmp(m->string, "shape")        ? &shape
		                   : !strcmp(m->string, "data_offsets") ? &offsets
		                                                        : NULL;
		if (!to)
			return err_set(e, ERR_FORMAT, "unknown key \"%.40s\"", shown(m->string));
		if (*to)
			return err_set(e, ERR_FORMAT, "\"%s\" twice", m->string);
		*to = m;
	}
	if (!cJSON_IsString(dtype))
		return err_set(e, ERR_FORMAT, "no \"dtype\" string");
	size_t k = 0;
	while (k < N_DTYPES && strcmp(dtypes[k].text, dtype->valuestring))
		k++;
	if (k == N_DTYPES)
		return err_set(
		        e, ERR_UNSUPPORTED, "unknown dtype \"%.20s\"", shown(dtype->valuestring));
	t->dtype = (enum st_dtype)k;
	int rc = read_shape(t, shape, e);
	if (rc)
		return rc;
	uint64_t from, to;
	if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
	        !whole_number(offsets->child, &from) || !whole_number(offsets->child->next, &to))
		return err_set(e, ERR_FORMAT, "no pair of whole numbers as \"data_offsets\"");
	if (from > to || to > data_len)
		return err_set(e, ERR_FORMAT,
		        "bytes %" PRIu64 " to %" PRIu64 " of %zu: the file is truncated or damaged",
		        from, to, data_len);
	if (to - from != t->bytes)
		return err_set(e, ERR_FORMAT,
		        "%" PRIu64 " bytes, but its shape and dtype need %" PRIu64, to - from,
		        t->bytes);
	t->data = base + from;
	return 0;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct st_meta *)a)->key, ((const struct st_meta *)b)->key);
}

static int read_meta(struct st_file *f, const cJSON *v, struct err *e)
{
	const cJSON *m;
	if (f->meta || !cJSON_IsObject(v))
		return err_set(e, ERR_FORMAT, "\"__metadata__\" twice, or no object");
	/* Never of 0 bytes: f->meta also says that metadata was seen. */
	f->meta = calloc((size_t)cJSON_GetArraySize(v) + 1, sizeof *f->meta);
	if (!f->meta)
		return err_set(e, ERR_NOMEM, "no memory for the metadata");
	cJSON_ArrayForEach(m, v)
	{
		if (!cJSON_IsString(m) || !st__printable(m->string))
			return err_set(e, ERR_FORMAT,
			        "metadata \"%.60s\" is no plain name and string", shown(m->string));
		f->meta[f->n_meta++] = (struct st_meta){m->string, m->valuestring};
	}
	qsort(f->meta, (size_t)f->n_meta, sizeof *f->meta, by_key);
	for (int i = 1; i < f->n_meta; i++)
		if (!strcmp(f->meta[i - 1].key, f->meta[i].key))
			return err_set(e, ERR_FORMAT, "metadata \"%.60s\" twice", f->meta[i].key);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* An empty tensor shares its offset with the one after it, and comes first. */
static int by_data(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	if (x->data != y->data)
		return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Unique names, and data without holes or overlaps from the first byte to the last. */
static int check_tiling(struct st_file *f, const uint8_t *base, size_t data_len, struct err *e)
{
	struct st_tensor *t = f->tensors;
	const uint8_t *expected = base;
	qsort(t, (size_t)f->n_tensors, sizeof *t, by_name);
	for (int i = 1; i < f->n_tensors; i++)
		if (!strcmp(t[i - 1].name, t[i].name))
			return err_set(e, ERR_FORMAT, "tensor %.80s twice", t[i].name);
	qsort(t, (size_t)f->n_tensors, sizeof *t, by_data);
	for (int i = 0; i < f->n_tensors; i++) {
		if ((const uint8_t *)t[i].data != expected)
			return err_set(e, ERR_FORMAT,
			        "tensor %.80s: its data leaves a hole or overlaps", t[i].name);
		expected += t[i].bytes;
	}
	if (expected != base + data_len)
		return err_set(e, ERR_FORMAT, "%zu bytes after the last tensor",
		        (size_t)(base + data_len - expected));
	return 0;
}

static int read_members(struct st_file *f, const uint8_t *base, size_t data_len, struct err *e)
{
	const cJSON *root = f->json, *m;
	int n = cJSON_GetArraySize(root), rc = 0;
	if (n > LIMIT_TENSORS)
		return err_set(e, ERR_LIMIT, "%d tensors, at most %d are read", n, LIMIT_TENSORS);
	f->tensors = calloc((size_t)n + 1, sizeof *f->tensors);
	if (!f->tensors)
		return err_set(e, ERR_NOMEM, "no memory for %d tensors", n);
	cJSON_ArrayForEach(m, root)
	{
		if (!strcmp(m->string, "__metadata__")) {
			rc = read_meta(f, m, e);
			if (rc)
				return rc;
			continue;
		}
		struct st_tensor *t = &f->tensors[f->n_tensors++];
		t->name = m->string;
		rc = st__printable(t->name) ? read_tensor(t, m, base, data_len, e)
		                        : err_set(e, ERR_FORMAT, "control characters in its name");
		if (rc)
			return err_prefix(e, "tensor %.80s", shown(t->name)), rc;
	}
	return check_tiling(f, base, data_len, e);
}

/* The header's length, from the first 8 bytes of a file of len bytes. */
static int header_length(const uint8_t *p, uint64_t len, size_t *out, struct err *e)
{
	uint64_t n = 0;
	if (len < 8)
		return err_set(
		        e, ERR_FORMAT, "not a safetensors file: only %" PRIu64 " bytes", len);
	for (int i = 7; i >= 0; i--)
		n = n << 8 | p[i];
	if (n > LIMIT_SAFETENSORS_HEADER)
		return err_set(e, ERR_LIMIT,
		        "not a safetensors file, or its header of %" PRIu64
		        " bytes is over the limit "
		        "of %u",
		        n, LIMIT_SAFETENSORS_HEADER);
	if (n > len - 8)
		return err_set(e, ERR_FORMAT,
		        "truncated: the header needs %" PRIu64 " bytes, %" PRIu64 " follow", n,
		        len - 8);
	*out = (size_t)n;
	return 0;
}

int st__read_json(void **json, const uint8_t *p, size_t n, const char *what, struct err *e)
{
	int rc = st__scan(p, n, what, e);
	if (rc)
		return rc;
	/* A copy with zeros behind it: some versions of cJSON look a byte beyond a given length. */
	char *text = calloc(1, n + 8);
	if (!text)
		return err_set(e, ERR_NOMEM, "no memory for %s of %zu bytes", what, n);
	memcpy(text, p, n);
	*json = cJSON_ParseWithLengthOpts(text, n + 1, NULL, true);
	free(text);
	return *json ? 0 : err_set(e, ERR_FORMAT, "%s is not valid JSON", what);
}

static int read_json(struct st_file *f, const uint8_t *header, size_t n, struct err *e)
{
	return st__read_json(&f->json, header, n, "the header", e);
}

int st_parse(struct st_file *f, const void *bytes, size_t len, struct err *e)
{
	const uint8_t *p = bytes;
	size_t n;
	memset(f, 0, sizeof *f);
	int rc = header_length(p, len, &n, e);
	if (!rc)
		rc = read_json(f, p + 8, n, e);
	if (!rc)
		rc = read_members(f, p + 8 + n, len - 8 - n, e);
	if (rc)
		st_close(f);
	return rc;
}

static int read_exactly(int fd, uint8_t *to, size_t len, struct err *e)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, to + got, len - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "read");
		if (n == 0)
			return err_set(e, ERR_IO, "the file became shorter while it was read");
		got += (size_t)n;
	}
	return 0;
}

/* The header's length is checked first, so that a wrong file of any size is refused unread. */
static int read_file(int fd, bool whole, uint8_t **map, size_t *len, struct err *e)
{
	struct stat st;
	uint8_t head[8];
	size_t n;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_IO, "not a regular file");
	*len = (size_t)st.st_size;
	int rc = *len < 8 ? 0 : read_exactly(fd, head, 8, e);
	if (!rc)
		rc = header_length(head, *len, &n, e);
	if (rc)
		return rc;
	if (!whole)
		*len = 8 + n;
	*map = malloc(*len);
	if (!*map)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes", *len);
	memcpy(*map, head, 8);
	return read_exactly(fd, *map + 8, *len - 8, e);
}

static int parse_meta(struct st_file *f, const uint8_t *bytes, size_t len, struct err *e)
{
	int rc = read_json(f, bytes + 8, len - 8, e);
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(f->json, "__metadata__");
	if (!rc && meta)
		rc = read_meta(f, meta, e);
	if (rc)
		st_close(f);
	return rc;
}

static int open_file(struct st_file *f, const char *path, bool whole, struct err *e)
{
	uint8_t *map = NULL;
	size_t len = 0;
	memset(f, 0, sizeof *f);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	if (fd < 0) {
		rc = err_errno(e, "open");
		goto out;
	}
	rc = read_file(fd, whole, &map, &len, e);
	close(fd);
	if (!rc)
		rc = whole ? st_parse(f, map, len, e) : parse_meta(f, map, len, e);
	if (rc || !whole)
		free(map);
	else
		f->map = map;
out:
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

int st_open(struct st_file *f, const char *path, struct err *e)
{
	return open_file(f, path, true, e);
}

int st_open_meta(struct st_file *f, const char *path, struct err *e)
{
	return open_file(f, path, false, e);
}

void *st_keep(struct st_file *f, size_t bytes)
{
	struct st_kept *k = malloc(sizeof *k + bytes);
	if (!k)
		return NULL;
	k->next = f->kept;
	f->kept = k;
	return k + 1;
}

void st_close(struct st_file *f)
{
	for (struct st_kept *k = f->kept, *next; k; k = next) {
		next = k->next;
		free(k);
	}
	for (int i = 0; i < f->n_parts; i++)
		st_close(&f->parts[i]);
	free(f->parts);
	cJSON_Delete(f->json);
	free(f->meta);
	free(f->tensors);
	free(f->map);
	memset(f, 0, sizeof *f);
}

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
	for (int i = 0; i < f->n_tensors; i++)
		if (!strcmp(f->tensors[i].name, name))
			return &f->tensors[i];
	return NULL;
}

const char *st_meta(const struct st_file *f, const char *key)
{
	for (int i = 0; i < f->n_meta; i++)
		if (!strcmp(f->meta[i].key, key))
			return f->meta[i].value;
	return NULL;
}
