/* SPDX-License-Identifier: MIT */
/* Data sets as NumPy writes them, numpy.save("x_train.npy", x). A file is
 *
 *     \x93NUMPY  1 0  length  {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
 *     ───6────── ─2─  2 or 4  ──── text, in Python's notation, padded with spaces, one line ────
 *
 * and then the elements, the last dimension fastest. x_train.npy and x_test.npy have the samples,
 * (N, F), (N, H, W) or (N, H, W, C); y_train.npy and y_test.npy one label for each, (N). Bytes (u1)
 * are treated as the pixels of images and normalised; all other samples become floats and are taken
 * as they are, so they should be scaled before they are saved.
 *
 * What can fail: reading (source.c), a header that is not NumPy's or over the limits, a type or
 * order that is not read, too few or too many bytes, floats that are not finite, files that do not
 * belong together, labels out of range. Nothing in a header is evaluated: it is compared with the
 * few forms that NumPy writes. */
#include "model/data/npy.h"

#include "model/data/source.h"
#include "model/io/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 1024 /* NumPy's own is 128 bytes */

static const struct {
	const char *descr;
	size_t bytes;
} types[] = {
        [NPY_U1] = {"|u1", 1},
        [NPY_I4] = {"<i4", 4},
        [NPY_I8] = {"<i8", 8},
        [NPY_F2] = {"<f2", 2},
        [NPY_F4] = {"<f4", 4},
};

/* ---- the header's text */

struct text {
	const char *at, *end;
};

static bool skip(struct text *t, const char *word)
{
	while (t->at < t->end && *t->at == ' ')
		t->at++;
	size_t n = strlen(word);
	if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
		return false;
	t->at += n;
	return true;
}

static int take_type(struct text *t, struct npy *x, struct err *e)
{
	if (!skip(t, "'"))
		return err_set(e, ERR_UNSUPPORTED, "a record of fields: save one plain array");
	const char *quote = memchr(t->at, '\'', (size_t)(t->end - t->at));
	int n = quote ? (int)(quote - t->at) : 0;
	for (size_t k = 0; k < sizeof types / sizeof *types; k++)
		if (n == 3 && memcmp(t->at, types[k].descr, 3) == 0) {
			x->type = (enum npy_type)k;
			t->at = quote + 1;
			return 0;
		}
	return err_set(e, ERR_UNSUPPORTED,
	        "elements of type '%.*s', expected uint8, int32, int64, float16 or float32, "
	        "little-endian",
	        n > 16 ? 16 : n, t->at);
}

static int take_dimension(struct text *t, struct npy *x, struct err *e)
{
	uint64_t n = 0;
	int digits = 0;
	for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && digits < 12; digits++)
		n = 10 * n + (uint64_t)(*t->at++ - '0');
	if (!digits)
		return err_set(e, ERR_FORMAT, "damaged: the shape in the header is not NumPy's");
	if (x->rank == NPY_RANK_MAX)
		return err_set(e, ERR_UNSUPPORTED, "more than %d dimensions", NPY_RANK_MAX);
	if (n == 0)
		return err_set(e, ERR_FORMAT, "empty: dimension %d is 0", x->rank + 1);
	if (x->rank == 0 ? n >= LIMIT_SAMPLES : n > LIMIT_DIM)
		return err_set(e, ERR_LIMIT, "dimension %d is %llu, at most %u is read",
		        x->rank + 1, (unsigned long long)n,
		        x->rank == 0 ? LIMIT_SAMPLES - 1 : (unsigned)LIMIT_DIM);
	x->dim[x->rank++] = (uint32_t)n;
	return 0;
}

static int take_shape(struct text *t, struct npy *x, struct err *e)
{
	bool last = !skip(t, "(");
	if (last)
		return err_set(e, ERR_FORMAT, "damaged: the header has no shape");
	for (x->rank = 0; !skip(t, ")");) {
		if (last)
			return err_set(
			        e, ERR_FORMAT, "damaged: the shape in the header is not NumPy's");
		skip(t, "");
		int rc = take_dimension(t, x, e);
		if (rc)
			return rc;
		last = !skip(t, ",");
	}
	return x->rank ? 0 : err_set(e, ERR_FORMAT, "one number, expected an array");
}

/* The members may be in any order; NumPy sorts them. */
static int take_members(struct text *t, struct npy *x, struct err *e)
{
	unsigned seen = 0;
	int rc = skip(t, "{") ? 0 : err_set(e, ERR_FORMAT, "damaged: the header is no table");
	while (!rc && !skip(t, "}")) {
		if (skip(t, "'descr':")) {
			seen |= 1;
			rc = take_type(t, x, e);
		} else if (skip(t, "'fortran_order':")) {
			seen |= 2;
			if (!skip(t, "False"))
				rc = err_set(e, ERR_UNSUPPORTED,
				        "in Fortran's order: save numpy.ascontiguousarray(x)");
		} else if (skip(t, "'shape':")) {
			seen |= 4;
			rc = take_shape(t, x, e);
		} else
			rc = err_set(e, ERR_FORMAT,
			        "damaged: the header has something that NumPy does not write");
		skip(t, ",");
	}
	if (!rc && seen != 7)
		rc = err_set(e, ERR_FORMAT, "damaged: type, order or shape is missing");
	return rc;
}

int npy_parse(const uint8_t *p, size_t len, struct npy *x, struct err *e)
{
	memset(x, 0, sizeof *x);
	if (len < 12 || memcmp(p, "\x93NUMPY", 6) != 0)
		return err_set(e, ERR_FORMAT, "not a file of numpy.save");
	if (p[6] < 1 || p[6] > 3)
		return err_set(
		        e, ERR_UNSUPPORTED, "version %d of the format, expected 1 to 3", p[6]);
	size_t start = p[6] == 1 ? 10 : 12, length = (size_t)p[8] | (size_t)p[9] << 8;
	if (p[6] > 1)
		length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	if (length > HEADER_MAX - start)
		return err_set(e, ERR_LIMIT, "a header of %zu bytes, at most %d are read", length,
		        HEADER_MAX);
	if (len < start + length)
		return err_set(e, ERR_FORMAT, "truncated: the header has %zu bytes, %zu are there",
		        start + length, len);
	struct text t = {(const char *)p + start, (const char *)p + start + length};
	int rc = take_members(&t, x, e);
	if (rc)
		return rc;
	uint64_t count = 1;
	for (int i = 0; i < x->rank; i++) {
		if (count > LIMIT_IDX_BYTES / types[x->type].bytes / x->dim[i])
			return err_set(e, ERR_LIMIT,
			        "the header promises more than %llu bytes, the most that is read",
			        LIMIT_IDX_BYTES);
		count *= x->dim[i];
	}
	x->count = (size_t)count;
	x->header_bytes = start + length;
	return 0;
}

/* ---- a file */

int npy_read(const char *path, struct npy *x, uint8_t **data, struct err *e)
{
	uint8_t head[HEADER_MAX], *p = NULL;
	size_t n, have = 0, want = 0;
	struct source s;
	bool more = false;
	int rc = source_open(&s, path, e);
	if (rc)
		goto out;
	rc = s.read(&s, head, sizeof head, &n, e);
	if (!rc)
		rc = npy_parse(head, n, x, e);
	if (!rc) {
		want = x->count * types[x->type].bytes;
		have = n - x->header_bytes;
		more = have > want;
	}
	if (!rc && !more)
		rc = source_take(&s, head + x->header_bytes, have, want, &p, &have, e);
	if (!rc && !more && have == want)
		rc = source_end(&s, &more, e);
	s.close(&s);
	if (!rc && (more || have < want))
		rc = err_set(e, ERR_FORMAT, "%s: %zu elements need %zu bytes after the header%s",
		        more ? "too long" : "truncated", x->count, want,
		        more ? ", the file has more" : "");
out:
	if (rc) {
		free(p);
		err_prefix(e, "%s", path);
	} else
		*data = p;
	return rc;
}

/* ---- elements */

static uint64_t little(const uint8_t *p, size_t n)
{
	uint64_t v = 0;
	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

/* Element i; a float16 or float32 may be anything. */
static double element(const struct npy *x, const uint8_t *data, size_t i)
{
	uint64_t v = little(data + i * types[x->type].bytes, types[x->type].bytes);
	uint32_t bits = (uint32_t)v;
	float f;
	switch (x->type) {
	case NPY_I4:
		return (int32_t)bits;
	case NPY_I8:
		return (double)(int64_t)v;
	case NPY_F2:
		return half_to_float((uint16_t)v);
	case NPY_F4:
		memcpy(&f, &bits, sizeof f);
		return f;
	case NPY_U1:
		break;
	}
	return (double)v;
}

static int take_samples(struct dataset *d, const char *path, struct err *e)
{
	struct npy x;
	uint8_t *data;
	int rc = npy_read(path, &x, &data, e);
	if (rc)
		return rc;
	d->count = x.dim[0];
	if (x.rank == 1)
		rc = err_set(e, ERR_MISMATCH,
		        "one number for each sample, expected at least 2 "
		        "dimensions: are x and y swapped?");
	else if (x.rank == 2)
		d->shape = (struct shape){.rank = 3, .dim = {1, 1, x.dim[1]}};
	else
		d->shape = (struct shape){
		        .rank = 3, .dim = {x.dim[1], x.dim[2], x.rank == 4 ? x.dim[3] : 1}};
	if (!rc && x.type == NPY_U1) {
		d->pixels = data;
		return 0;
	}
	if (!rc) {
		d->values = malloc(x.count * sizeof *d->values);
		if (!d->values)
			rc = err_set(e, ERR_NOMEM, "no memory for %zu numbers", x.count);
	}
	for (size_t i = 0; !rc && i < x.count; i++) {
		d->values[i] = (float)element(&x, data, i);
		if (!isfinite(d->values[i]))
			rc = err_set(e, ERR_NONFINITE, "sample %zu (counted from 0) is not finite",
			        i / (x.count / d->count));
	}
	free(data);
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

static int take_labels(struct dataset *d, const char *path, int64_t classes, struct err *e)
{
	struct npy x;
	uint8_t *data;
	int rc = npy_read(path, &x, &data, e);
	if (rc)
		return rc;
	if (x.type == NPY_F2 || x.type == NPY_F4)
		rc = err_set(e, ERR_UNSUPPORTED, "labels are floats: save them as int64");
	else if (x.count != x.dim[0])
		rc = err_set(e, ERR_UNSUPPORTED, "more than one label for a sample");
	else if (x.count != d->count)
		rc = err_set(e, ERR_MISMATCH,
		        "%zu labels for %u samples: the two files do not belong together", x.count,
		        d->count);
	d->labels = rc ? NULL : malloc(x.count * sizeof *d->labels);
	if (!rc && !d->labels)
		rc = err_set(e, ERR_NOMEM, "no memory for %zu labels", x.count);
	for (size_t i = 0; !rc && i < x.count; i++) {
		double label = element(&x, data, i);
		if (label < 0 || label >= LIMIT_CLASSES)
			rc = err_set(e, ERR_INVALID,
			        "label %.0f of sample %zu (counted from 0), expected 0 to %d",
			        label, i, LIMIT_CLASSES - 1);
		else
			d->labels[i] = (int32_t)label;
	}
	free(data);
	if (!rc)
		rc = dataset__check_labels(d, classes, e);
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

/* ---- the folder */

static const char *const names[][2] = {
        [DATA_TRAIN] = {"x_train.npy", "y_train.npy"},
        [DATA_TEST] = {"x_test.npy", "y_test.npy"},
};

static bool detect(const char *folder)
{
	char path[LIMIT_PATH];
	return data__find(path, folder, names[DATA_TRAIN][0]) ||
	       data__find(path, folder, names[DATA_TEST][0]);
}

static int read_part(
        struct dataset *d, const char *folder, enum data_part part, int64_t classes, struct err *e)
{
	char samples[LIMIT_PATH], labels[LIMIT_PATH];
	bool has[2] = {data__find(samples, folder, names[part][0]),
	        data__find(labels, folder, names[part][1])};
	if (!has[0] && !has[1])
		return err_set(e, ERR_NOTFOUND, "%s: there is no %s", folder, names[part][0]);
	if (!has[0] || !has[1])
		return err_set(e, ERR_MISMATCH, "%s: %s is there, %s is missing", folder,
		        names[part][has[0] ? 0 : 1], names[part][has[0] ? 1 : 0]);
	d->per_channel = true;
	int rc = take_samples(d, samples, e);
	return rc ? rc : take_labels(d, labels, classes, e);
}

const struct data_format data_format_npy = {.detect = detect, .read = read_part};
