/* SPDX-License-Identifier: MIT */
/* A data set from its pair of IDX files. Each file is checked by itself in idx.c; here they are
 * checked against each other, and every label against the number of classes, so that no later code
 * has to check again.
 *
 * Pixels stay bytes: a quarter of the memory of floats, and the loader converts them for free while
 * it copies. */
#include "model/data/data.h"
#include "model/data/idx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The largest label sets the classes when the caller named none. */
static int take_labels(struct dataset *d, const uint8_t *raw, int64_t classes, struct err *e)
{
	uint8_t most = 0;
	for (uint32_t i = 0; i < d->count; i++) {
		if (classes && raw[i] >= classes)
			return err_set(e, ERR_INVALID,
			        "label %u of sample %u (counted from 0) is out of range: with %lld "
			        "classes labels are 0 to %lld",
			        raw[i], i, (long long)classes, (long long)classes - 1);
		most = raw[i] > most ? raw[i] : most;
		d->labels[i] = raw[i];
	}
	d->classes = classes ? classes : (int64_t)most + 1;
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
	rc = take_labels(d, raw, classes, e);
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
	if (classes < 0 || classes > LIMIT_CLASSES)
		return err_set(e, ERR_INVALID,
		        "%lld classes, expected 1 to %d, or 0 for the labels' own",
		        (long long)classes, LIMIT_CLASSES);
	int rc = read_images(d, images, e);
	if (!rc)
		rc = read_labels(d, images, labels, classes, e);
	if (rc)
		dataset_close(d);
	return rc;
}

void dataset_close(struct dataset *d)
{
	free(d->labels);
	free(d->pixels);
	memset(d, 0, sizeof *d);
}

void dataset_statistics(
        const struct dataset *d, const uint32_t *index, uint32_t n, double *mean, double *std)
{
	/* Integer sums are exact, so the order of the samples does not matter. They cannot
	 * overflow: at most 2^36 pixels, each with a square below 2^16. */
	size_t size = shape_count(&d->shape);
	uint64_t sum = 0, squares = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *p = d->pixels + index[i] * size;
		for (size_t k = 0; k < size; k++) {
			uint32_t v = p[k];
			sum += v;
			squares += v * v;
		}
	}
	double count = (double)n * (double)size;
	*mean = count > 0 ? (double)sum / count / 255 : 0;
	double var = count > 0 ? (double)squares / count / (255 * 255) - *mean * *mean : 0;
	/* All pixels are equal: 1 keeps the loader's division defined. */
	*std = var > 1e-12 ? sqrt(var) : 1;
}
