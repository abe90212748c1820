/* SPDX-License-Identifier: MIT */
/* Any bytes as a shard of tokens, and as files without a header: every sample that such a set says
 * it has can be read, or is refused in words, wherever its windows begin. */
#include "model/data/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONTEXT 3

static char path[] = "/tmp/dunlin-fuzz-tokens-XXXXXX";
static int fd = -1;

static void clean(void)
{
	unlink(path);
}

static void prepare(void)
{
	if (fd >= 0)
		return;
	if ((fd = mkstemp(path)) < 0)
		abort();
	atexit(clean);
}

static int format_of(const char *name)
{
	int i = 0;
	while (strcmp(data_format_names[i], name) != 0)
		i++;
	return i;
}

static void read_all(const struct dataset *d)
{
	struct err e = {0};
	uint8_t scratch[CONTEXT * TOKENS_WIDTH_MAX];
	int32_t x[CONTEXT], y[CONTEXT];
	for (uint32_t i = 0; i < d->count; i++)
		for (uint64_t shift = 0; shift < CONTEXT; shift++) {
			/* The set is small: all of it was checked. */
			if (tokens_read(d, i, shift, scratch, x, y, &e))
				abort();
			for (int k = 0; k < CONTEXT; k++)
				if (x[k] < 0 || x[k] >= d->classes || y[k] < 0 ||
				        y[k] >= d->classes)
					abort();
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		const char *format;
		int64_t classes;
	} tries[] = {{"tokens", 0}, {"tokens", 300}, {"tokens16", 1000}, {"tokens32", 1 << 18},
	        {"bytes", 0}};
	prepare();
	if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
		for (int part = DATA_TRAIN; part <= DATA_TEST; part++) {
			struct dataset d;
			struct err e = {0};
			int rc = dataset_read(&d, format_of(tries[i].format), path,
			        (enum data_part)part, tries[i].classes, CONTEXT, &e);
			if (rc) {
				if (e.code != rc || !e.msg[0] || d.tokens)
					abort();
				continue;
			}
			read_all(&d);
			dataset_close(&d);
		}
	return 0;
}
