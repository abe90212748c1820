/* SPDX-License-Identifier: MIT */
/* One .npy file. Internal to the data set reader and its tests. */
#ifndef DUNLIN_MODEL_DATA_NPY_H
#define DUNLIN_MODEL_DATA_NPY_H

#include "model/data/format.h"

#define NPY_RANK_MAX 4

enum npy_type { NPY_U1, NPY_I4, NPY_I8, NPY_F2, NPY_F4 };

struct npy {
	enum npy_type type;
	int rank;
	uint32_t dim[NPY_RANK_MAX];
	size_t count;        /* elements */
	size_t header_bytes; /* where they begin */
};

/* The header at the start of a file of which the first len bytes are here. Checks everything
 * before anything is allocated: the elements take at most LIMIT_IDX_BYTES. */
int npy_parse(const uint8_t *p, size_t len, struct npy *x, struct err *e) MUST_CHECK;

/* The elements as they are in the file, malloc'd, the caller's. */
int npy_read(const char *path, struct npy *x, uint8_t **data, struct err *e) MUST_CHECK;

#endif
