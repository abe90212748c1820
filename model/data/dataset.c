/* SPDX-License-Identifier: MIT */
/* What data sets of every format have in common: every label is checked against the number of
 * classes when a set is read, so that no later code has to check again.
 *
 * Pixels stay bytes: a quarter of the memory of floats, and the loader converts them for free while
 * it copies. */
#include "model/data/format.h"
#include "model/data/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int dataset__check_classes(int64_t classes, struct err *e)
{
	if (classes < 0 || classes > LIMIT_CLASSES)
		return err_set(e, ERR_INVALID,
		        "%lld classes, expected 1 to %d, or 0 for the labels' own",
		        (long long)classes, LIMIT_CLASSES);
	return 0;
}

int dataset__check_labels(struct dataset *d, int64_t classes, struct err *e)
{
	int32_t most = 0;
	for (uint32_t i = 0; i < d->count; i++) {
		if (classes && d->labels[i] >= classes)
			return err_set(e, ERR_INVALID,
			        "label %d of sample %u (counted from 0) is out of range: with %lld "
			        "classes labels are 0 to %lld",
			        d->labels[i], i, (long long)classes, (long long)classes - 1);
		most = d->labels[i] > most ? d->labels[i] : most;
	}
	d->classes = classes ? classes : (int64_t)most + 1;
	return 0;
}

void dataset_close(struct dataset *d)
{
	free(d->labels);
	free(d->values);
	free(d->pixels);
	tokens_close(d->tokens);
	memset(d, 0, sizeof *d);
}

uint32_t dataset_files(const struct dataset *d)
{
	return d->tokens ? tokens_files(d->tokens) : 0;
}

/* Of channel c of every groups. */
static void statistics(const struct dataset *d, const uint32_t *index, uint32_t n, size_t c,
        size_t groups, double *mean, double *std)
{
	/* Integer sums are exact, so the order of the samples does not matter. They cannot
	 * overflow: at most 2^36 pixels, each with a square below 2^16. */
	size_t size = shape_count(&d->shape);
	uint64_t sum = 0, squares = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *p = d->pixels + index[i] * size;
		for (size_t k = c; k < size; k += groups) {
			uint32_t v = p[k];
			sum += v;
			squares += v * v;
		}
	}
	double count = (double)n * (double)(size / groups);
	*mean = count > 0 ? (double)sum / count / 255 : 0;
	double var = count > 0 ? (double)squares / count / (255 * 255) - *mean * *mean : 0;
	/* All pixels are equal: 1 keeps the loader's division defined. */
	*std = var > 1e-12 ? sqrt(var) : 1;
}

void dataset_statistics(
        const struct dataset *d, const uint32_t *index, uint32_t n, struct normalisation *out)
{
	*out = (struct normalisation){.n = 1, .std = {1}};
	if (!d->pixels)
		return;
	if (d->per_channel && d->shape.dim[2] <= LIMIT_NORM_CHANNELS)
		out->n = (int)d->shape.dim[2];
	for (int c = 0; c < out->n; c++)
		statistics(d, index, n, (size_t)c, (size_t)out->n, &out->mean[c], &out->std[c]);
}
