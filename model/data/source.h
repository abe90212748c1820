/* SPDX-License-Identifier: MIT */
/* The bytes of a data file, from first to last: a plain or gzip file. Internal to the readers of
 * the formats.
 *
 * Nothing is mapped: a file that is cut while it is read is an error here, not a signal. */
#ifndef DUNLIN_MODEL_DATA_SOURCE_H
#define DUNLIN_MODEL_DATA_SOURCE_H

#include "agent/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
	/* len bytes, or what is left of the file; *got says how many came. */
	int (*read)(struct source *s, uint8_t *to, size_t len, size_t *got, struct err *e);
	/* After the last byte: whether the checksum is there and right, if there is one. */
	int (*finish)(struct source *s, struct err *e);
	void (*close)(struct source *s);
	void *state; /* owned by close */
};

/* A regular file, plain or gzip, told by its first bytes and not by its name. */
int source_open(struct source *s, const char *path, struct err *e) MUST_CHECK;

/* A file descriptor of a regular file; the caller closes it. */
int source_open_fd(const char *path, int *fd, struct err *e) MUST_CHECK;

/* Up to want bytes, in memory that is malloc'd and the caller's; *got is less than want if the file
 * ends before. The first n of them are copied from head. Memory grows with the bytes that arrive:
 * neither a tiny file with a huge size in its header nor a gzip bomb costs more than it has. */
int source_take(struct source *s, const uint8_t *head, size_t n, size_t want, uint8_t **data,
        size_t *got, struct err *e) MUST_CHECK;

/* At the place where the file should end; *more: it does not. Otherwise its checksum is right. */
int source_end(struct source *s, bool *more, struct err *e) MUST_CHECK;

#endif
