/* SPDX-License-Identifier: MIT */
/* The binary version of CIFAR-10 and CIFAR-100. A file is records without a header; which of the
 * two it is only the names tell:
 *
 *     data_batch_1.bin … data_batch_5.bin, test_batch.bin    ┌───────┬───────┬───────┬───────┐
 *                                                  CIFAR-10  │ label │ red   │ green │ blue  │
 *                                                            └───────┴───────┴───────┴───────┘
 *     train.bin, test.bin                           ┌────────┬───────┬───────┬───────┬───────┐
 *                                        CIFAR-100  │ coarse │ label │ red   │ green │ blue  │
 *                                                   └────────┴───────┴───────┴───────┴───────┘
 *     bytes                                             1        1      1024    1024    1024
 *
 * A channel is 32 rows of 32 pixels; in memory the channels of a pixel stand together, as the
 * backends expect. Without a magic number little can be checked: that a file is whole records, that
 * no file of a numbered row is missing, and that each label (coarse ones too) is in range, which a
 * file of another kind does not pass. Files may be gzip. */
#include "model/data/cifar.h"

#include "model/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 32
#define PLANE (SIDE * SIDE)
#define CHANNELS 3
#define FILE_BYTES_MAX ((size_t)1 << 30) /* the largest real one has 154 MB */
#define FILES_MAX 99

struct kind {
	int labels; /* bytes */
	int classes, coarse;
	const char *train, *test;
	const char *otherwise; /* what files of such names may be, for people */
};

static const struct kind kinds[] = {
        {1, 10, 0, "data_batch_%d.bin", "test_batch.bin", ""},
        {2, 100, 20, "train.bin", "test.bin",
                "; tokens without a header are named: --data-format tokens16"},
};

/* Room for the samples of one more file. */
static int grow(struct dataset *d, uint32_t more, struct err *e)
{
	size_t n = (size_t)d->count + more;
	uint8_t *pixels = realloc(d->pixels, n * CHANNELS * PLANE);
	if (pixels)
		d->pixels = pixels;
	int32_t *labels = realloc(d->labels, n * sizeof *labels);
	if (labels)
		d->labels = labels;
	return pixels && labels ? 0 : err_set(e, ERR_NOMEM, "no memory for %zu images", n);
}

/* (C, H, W) to (H, W, C). */
static void interleave(const uint8_t *from, uint8_t *to)
{
	for (int i = 0; i < PLANE; i++)
		for (int c = 0; c < CHANNELS; c++)
			*to++ = from[c * PLANE + i];
}

static int take_records(
        struct dataset *d, const struct kind *k, const uint8_t *p, size_t len, struct err *e)
{
	const size_t record = (size_t)k->labels + CHANNELS * PLANE;
	if (!len)
		return err_set(e, ERR_FORMAT, "empty: it holds 0 samples");
	if (len % record)
		return err_set(e, ERR_FORMAT,
		        "truncated, or not CIFAR-%d: a sample has %zu bytes, and after %zu of "
		        "them %zu bytes are left%s",
		        k->classes, record, len / record, len % record, k->otherwise);
	int rc = grow(d, (uint32_t)(len / record), e);
	for (size_t i = 0; i < len / record && !rc; i++, p += record) {
		const int label = p[k->labels - 1];
		if (label >= k->classes || (k->coarse && p[0] >= k->coarse))
			return err_set(e, ERR_FORMAT,
			        "label %d of sample %zu (counted from 0) is out of range: not a "
			        "file of CIFAR-%d, or damaged%s",
			        label >= k->classes ? label : p[0], i, k->classes, k->otherwise);
		d->labels[d->count] = label;
		interleave(p + k->labels, d->pixels + (size_t)d->count * CHANNELS * PLANE);
		d->count++;
	}
	return rc;
}

int cifar_read(struct dataset *d, const char *path, int classes, struct err *e)
{
	const struct kind *k = &kinds[classes == 100];
	struct source s;
	uint8_t *data = NULL;
	size_t len;
	bool more;
	int rc = source_open(&s, path, e);
	if (rc)
		goto out;
	rc = source_take(&s, (const uint8_t *)"", 0, FILE_BYTES_MAX, &data, &len, e);
	if (!rc)
		rc = source_end(&s, &more, e);
	if (!rc && more)
		rc = err_set(
		        e, ERR_LIMIT, "more than %zu bytes, the most that is read", FILE_BYTES_MAX);
	s.close(&s);
	if (!rc)
		rc = take_records(d, k, data, len, e);
	free(data);
out:
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

static bool find(char out[LIMIT_PATH], const char *folder, const char *name, int number)
{
	char one[32];
	if (strcmp(name, kinds[0].train) == 0)
		snprintf(one, sizeof one, "data_batch_%d.bin", number);
	else
		snprintf(one, sizeof one, "%s", name);
	return data__find(out, folder, one);
}

static bool has(const struct kind *k, const char *folder, enum data_part part)
{
	char path[LIMIT_PATH];
	bool there = false;
	for (int i = 1; i <= FILES_MAX && !there; i++)
		there = find(path, folder, part == DATA_TRAIN ? k->train : k->test, i);
	return there;
}

/* train.bin is a name for anything: what begins as tokens is not ours. */
static bool detect(const char *folder)
{
	if (has(&kinds[0], folder, DATA_TRAIN) || has(&kinds[0], folder, DATA_TEST))
		return true;
	return (has(&kinds[1], folder, DATA_TRAIN) || has(&kinds[1], folder, DATA_TEST)) &&
	       !data_format_tokens.detect(folder);
}

/* All files of data_batch_1.bin, data_batch_2.bin, …; none may be missing in between. */
static int read_numbered(struct dataset *d, const char *folder, struct err *e)
{
	char path[LIMIT_PATH];
	int rc = 0, missing = 0;
	for (int i = 1; i <= FILES_MAX && !rc; i++) {
		const bool there = find(path, folder, kinds[0].train, i);
		if (!there && !missing)
			missing = i;
		else if (there && missing)
			rc = err_set(e, ERR_MISMATCH,
			        "%s: data_batch_%d.bin is missing, but there is data_batch_%d.bin",
			        folder, missing, i);
		else if (there)
			rc = cifar_read(d, path, 10, e);
	}
	return rc;
}

static int read_part(
        struct dataset *d, const char *folder, enum data_part part, int64_t classes, struct err *e)
{
	const bool ten = has(&kinds[0], folder, part), hundred = has(&kinds[1], folder, part);
	const struct kind *k = &kinds[hundred];
	char path[LIMIT_PATH];
	int rc;
	if (ten && hundred)
		return err_set(e, ERR_INVALID,
		        "%s: files of CIFAR-10 and of CIFAR-100: keep them in two folders", folder);
	if (!ten && !hundred)
		return err_set(e, ERR_NOTFOUND, "%s: there is no %s%s", folder,
		        part == DATA_TRAIN ? "data_batch_1.bin or train.bin"
		                           : "test_batch.bin or test.bin",
		        data__find(path, folder, "data_batch_1") ||
		                        data__find(path, folder, "train")
		                ? ": the Python version is not read, take the binary version"
		                : "");
	d->shape = (struct shape){.rank = 3, .dim = {SIDE, SIDE, CHANNELS}};
	d->per_channel = true;
	if (ten && part == DATA_TRAIN)
		rc = read_numbered(d, folder, e);
	else
		rc = find(path, folder, part == DATA_TRAIN ? k->train : k->test, 1)
		             ? cifar_read(d, path, k->classes, e)
		             : err_set(e, ERR_NOTFOUND, "%s: it is gone", path);
	if (rc)
		return rc;
	rc = dataset__check_labels(d, classes ? classes : k->classes, e);
	if (rc)
		err_prefix(e, "%s", folder);
	return rc;
}

const struct data_format data_format_cifar = {.detect = detect, .read = read_part};
