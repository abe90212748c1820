/* SPDX-License-Identifier: MIT */
/* One IDX file, the format of MNIST and similar sets. Internal to the data set reader and its
 * tests.
 *
 *     ┌───┬───┬──────┬──────┬───────────┬─────┬──────────────────────────────┐
 *     │ 0 │ 0 │ type │ rank │ u32 dim 0 │  …  │ elements, last dim runs first │
 *     └───┴───┴──────┴──────┴───────────┴─────┴──────────────────────────────┘
 *
 * Numbers are big-endian. Only type 8, unsigned bytes, is read. */
#ifndef DUNLIN_MODEL_DATA_IDX_H
#define DUNLIN_MODEL_DATA_IDX_H

#include "agent/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define IDX_RANK_MAX 4
#define IDX_HEADER_MAX (4 + 4 * IDX_RANK_MAX)

struct idx {
	int rank; /* 1, 3 or 4 */
	uint32_t dim[IDX_RANK_MAX];
	size_t header_bytes;
	size_t bytes; /* of the elements: the dims multiplied */
};

/* A whole file in memory; its elements begin at p + header_bytes and end with the file. */
int idx_parse(const uint8_t *p, size_t len, struct idx *x, struct err *e) MUST_CHECK;

/* A whole file, plain or gzip. *data receives its elements, malloc'd and the caller's. Memory grows
 * with the bytes that arrive and never passes what the header promises. */
int idx_read(const char *path, struct idx *x, uint8_t **data, struct err *e) MUST_CHECK;

#endif
