/* SPDX-License-Identifier: MIT */
/* Any bytes as NumPy's file: the header in memory, and all of it as samples and as labels of a data
 * set. Nothing but what the file has may be read. */
#include "model/data/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/dunlin-fuzz-npy-XXXXXX";
static char path[2][sizeof folder + 16];

static void clean(void)
{
	for (int i = 0; i < 2; i++)
		unlink(path[i]);
	rmdir(folder);
}

static void prepare(void)
{
	if (path[0][0])
		return;
	if (!mkdtemp(folder))
		abort();
	snprintf(path[0], sizeof path[0], "%s/x_train.npy", folder);
	snprintf(path[1], sizeof path[1], "%s/y_train.npy", folder);
	atexit(clean);
}

static void put(const char *to, const uint8_t *data, size_t size)
{
	FILE *f = fopen(to, "wb");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct npy x;
	struct err e = {0};
	struct dataset d;
	prepare();
	int rc = npy_parse(data, size, &x, &e);
	if (rc ? e.code != rc || !e.msg[0] : x.header_bytes > size || x.count == 0)
		abort();
	/* An array of (N, 1) is a sample and a label each. */
	put(path[0], data, size);
	put(path[1], data, size);
	e = (struct err){0};
	rc = dataset_read(&d, 0, folder, DATA_TRAIN, 0, 0, &e);
	if (rc) {
		if (e.code != rc || !e.msg[0])
			abort();
		return 0;
	}
	for (uint32_t i = 0; i < d.count; i++)
		if (d.labels[i] < 0 || d.labels[i] >= d.classes)
			abort();
	dataset_close(&d);
	return 0;
}
