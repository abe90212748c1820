/* SPDX-License-Identifier: MIT */
/* Reads IDX files, one by one and as the pair of images and labels that is a data set. The header
 * is checked before anything is allocated, and it alone decides how much is read: a file that ends
 * early or goes on after its last element is refused with both numbers, so a half-finished download
 * is noticed before training and not as a strange accuracy. Then the two files are checked against
 * each other.
 *
 * What can fail: reading (source.c), a header that is not IDX or over the limits, too few or too
 * many bytes, files that do not belong together, labels out of range. */
#include "model/data/idx.h"

#include "agent/base/limits.h"
#include "model/data/format.h"
#include "model/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDX_TYPE_U8 0x08

/* "60000 images of 28x28", "10000 labels": what the header says the file holds. */
static const char *idx_text(const struct idx *x, char out[96])
{
	if (x->rank == 1)
		snprintf(out, 96, "%u labels", x->dim[0]);
	else if (x->rank == 3)
		snprintf(out, 96, "%u images of %ux%u", x->dim[0], x->dim[1], x->dim[2]);
	else
		snprintf(out, 96, "%u images of %ux%ux%u", x->dim[0], x->dim[1], x->dim[2],
		        x->dim[3]);
	return out;
}

/* Checks the first len bytes of a file as far as they are header: type, rank, every dimension and
 * their product against the limits. len may be more than the header. */
static int parse_header(const uint8_t *p, size_t len, struct idx *x, struct err *e)
{
	memset(x, 0, sizeof *x);
	if (len < 4)
		return err_set(e, ERR_FORMAT, "not an IDX file: %zu bytes are too few", len);
	if (p[0] || p[1])
		return err_set(e, ERR_FORMAT,
		        "not an IDX file: it begins %02x %02x %02x %02x, expected 00 00 08 and "
		        "the number of dimensions",
		        p[0], p[1], p[2], p[3]);
	if (p[2] != IDX_TYPE_U8)
		return err_set(e, ERR_UNSUPPORTED,
		        "IDX element type 0x%02x, expected 0x08 (unsigned bytes)", p[2]);
	if (p[3] != 1 && p[3] != 3 && p[3] != 4)
		return err_set(e, ERR_UNSUPPORTED,
		        "%u dimensions, expected 1 (labels), 3 or 4 (images)", p[3]);

	x->rank = p[3];
	x->header_bytes = 4 + 4 * (size_t)x->rank;
	if (len < x->header_bytes)
		return err_set(e, ERR_FORMAT,
		        "truncated: the header needs %zu bytes, there are %zu", x->header_bytes,
		        len);
	uint64_t bytes = 1;
	for (int i = 0; i < x->rank; i++) {
		const uint8_t *q = p + 4 + 4 * i;
		uint32_t n =
		        (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
		if (n == 0 && i == 0)
			return err_set(e, ERR_FORMAT, "empty: it holds 0 samples");
		if (n == 0)
			return err_set(
			        e, ERR_FORMAT, "images without pixels: dimension %d is 0", i + 1);
		if (i == 0 ? n >= LIMIT_SAMPLES : n > LIMIT_DIM)
			return err_set(e, ERR_LIMIT, "dimension %d is %u, at most %u is read",
			        i + 1, n, i == 0 ? LIMIT_SAMPLES - 1 : (unsigned)LIMIT_DIM);
		x->dim[i] = n;
		if (bytes > LIMIT_IDX_BYTES / n)
			return err_set(e, ERR_LIMIT,
			        "the header promises more than %llu bytes, the most that is read",
			        LIMIT_IDX_BYTES);
		bytes *= n;
	}
	x->bytes = (size_t)bytes;
	return 0;
}

static int idx_truncated(const struct idx *x, size_t have, struct err *e)
{
	char text[96];
	return err_set(e, ERR_FORMAT, "truncated: %s need %zu bytes, the file has %zu",
	        idx_text(x, text), x->header_bytes + x->bytes, x->header_bytes + have);
}

static int idx_too_long(const struct idx *x, struct err *e)
{
	char text[96];
	return err_set(e, ERR_FORMAT, "too long: %s need %zu bytes, the file has more",
	        idx_text(x, text), x->header_bytes + x->bytes);
}

int idx_parse(const uint8_t *p, size_t len, struct idx *x, struct err *e)
{
	int rc = parse_header(p, len, x, e);
	if (rc)
		return rc;
	size_t have = len - x->header_bytes;
	if (have < x->bytes)
		return idx_truncated(x, have, e);
	if (have > x->bytes)
		return idx_too_long(x, e);
	return 0;
}

/* The elements, of which head has the first; then the end of the file. */
static int read_elements(struct source *s, const struct idx *x, const uint8_t *head,
        size_t head_len, uint8_t **data, struct err *e)
{
	size_t have = head_len - x->header_bytes;
	uint8_t *p;
	bool more = false;
	if (have > x->bytes)
		return idx_too_long(x, e);
	int rc = source_take(s, head + x->header_bytes, have, x->bytes, &p, &have, e);
	if (rc)
		return rc;
	rc = have < x->bytes ? idx_truncated(x, have, e) : source_end(s, &more, e);
	if (!rc && more)
		rc = idx_too_long(x, e);
	if (rc)
		free(p);
	else
		*data = p;
	return rc;
}

int idx_read(const char *path, struct idx *x, uint8_t **data, struct err *e)
{
	uint8_t head[IDX_HEADER_MAX];
	size_t head_len;
	struct source s;
	int rc = source_open(&s, path, e);
	if (rc)
		goto out;
	rc = s.read(&s, head, sizeof head, &head_len, e);
	if (!rc)
		rc = parse_header(head, head_len, x, e);
	if (!rc)
		rc = read_elements(&s, x, head, head_len, data, e);
	s.close(&s);
out:
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

static int read_images(struct dataset *d, const char *path, struct err *e)
{
	struct idx x;
	int rc = idx_read(path, &x, &d->pixels, e);
	if (rc)
		return rc;
	if (x.rank == 1)
		return err_set(e, ERR_MISMATCH,
		        "%s: this holds labels, images were expected: are the two files swapped?",
		        path);
	d->count = x.dim[0];
	d->shape =
	        (struct shape){.rank = 3, .dim = {x.dim[1], x.dim[2], x.rank == 4 ? x.dim[3] : 1}};
	return 0;
}

static int read_labels(
        struct dataset *d, const char *images, const char *path, int64_t classes, struct err *e)
{
	struct idx x;
	uint8_t *raw = NULL;
	int rc = idx_read(path, &x, &raw, e);
	if (rc)
		return rc;
	if (x.rank != 1) {
		rc = err_set(e, ERR_MISMATCH,
		        "%s: this holds images, labels were expected: are the two files swapped?",
		        path);
		goto out;
	}
	if (x.dim[0] != d->count) {
		rc = err_set(e, ERR_MISMATCH,
		        "%u labels for the %u images of %s: the two files do not belong together",
		        x.dim[0], d->count, images);
		err_prefix(e, "%s", path);
		goto out;
	}
	d->labels = malloc(d->count * sizeof *d->labels);
	if (!d->labels) {
		rc = err_set(e, ERR_NOMEM, "%s: no memory for %u labels", path, d->count);
		goto out;
	}
	for (uint32_t i = 0; i < d->count; i++)
		d->labels[i] = raw[i];
	rc = dataset__check_labels(d, classes, e);
	if (rc)
		err_prefix(e, "%s", path);
out:
	free(raw);
	return rc;
}

int dataset_read_idx(
        struct dataset *d, const char *images, const char *labels, int64_t classes, struct err *e)
{
	memset(d, 0, sizeof *d);
	int rc = dataset__check_classes(classes, e);
	if (!rc)
		rc = read_images(d, images, e);
	if (!rc)
		rc = read_labels(d, images, labels, classes, e);
	if (rc)
		dataset_close(d);
	return rc;
}

/* MNIST's own names. */
static bool find_pair(
        const char *folder, enum data_part part, char images[LIMIT_PATH], char labels[LIMIT_PATH])
{
	const char *which = part == DATA_TRAIN ? "train" : "t10k";
	bool have[2] = {false, false};
	for (int gz = 0; gz < 2; gz++) {
		const char *end = gz ? ".gz" : "";
		char name[64];
		snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", which, end);
		have[0] = have[0] || data__find(images, folder, name);
		snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", which, end);
		have[1] = have[1] || data__find(labels, folder, name);
	}
	return have[0] || have[1];
}

static bool detect(const char *path)
{
	char images[LIMIT_PATH], labels[LIMIT_PATH];
	return find_pair(path, DATA_TRAIN, images, labels) ||
	       find_pair(path, DATA_TEST, images, labels);
}

/* If only one of the two is there, opening the other fails with its name. */
static int read_pair(struct dataset *d, const char *path, enum data_part part, int64_t classes,
        struct err *e)
{
	char images[LIMIT_PATH], labels[LIMIT_PATH];
	if (!find_pair(path, part, images, labels))
		return err_set(e, ERR_NOTFOUND,
		        "%s: there is no %s-images-idx3-ubyte, plain or .gz", path,
		        part == DATA_TRAIN ? "train" : "t10k");
	return dataset_read_idx(d, images, labels, classes, e);
}

const struct data_format data_format_idx = {.detect = detect, .read = read_pair};
