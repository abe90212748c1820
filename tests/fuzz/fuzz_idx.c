/* SPDX-License-Identifier: MIT */
/* Any bytes as an IDX file: in memory, where every promised element is touched, and as a file,
 * plain or gzip as the bytes have it. Both must agree on what is not gzip. */
#include "model/data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Something that the compiler cannot leave out. */
static unsigned touch(const uint8_t *p, size_t n)
{
	volatile unsigned sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += p[i];
	return sum;
}

static int read_as_file(const uint8_t *data, size_t size, struct idx *x)
{
	char path[64];
	uint8_t *elements = NULL;
	struct err e = {0};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int rc = idx_read(path, x, &elements, &e);
	if (rc == 0)
		touch(elements, x->bytes);
	else if (e.code != rc || !e.msg[0])
		abort();
	free(elements);
	close(fd);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct idx x, y;
	struct err e = {0};
	int rc = idx_parse(data, size, &x, &e);
	if (rc == 0)
		touch(data + x.header_bytes, x.bytes);
	else if (e.code != rc || !e.msg[0])
		abort();
	int again = read_as_file(data, size, &y);
	if (rc == 0 && (again || x.bytes != y.bytes))
		abort();
	return 0;
}
