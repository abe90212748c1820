/* SPDX-License-Identifier: MIT */
/* The safetensors file format: an 8-byte little-endian length, a JSON header, raw tensors.
 *
 *     ┌────────┬───────────────────────────────────────────────┬──────────────┐
 *     │ u64 n  │ n bytes: {"__metadata__":{…},"conv1.weight":  │ data, tensor │
 *     │        │ {"dtype":"F32","shape":[32,1,3,3],            │ after tensor │
 *     │        │  "data_offsets":[0,1152]},…}  padded (we: 64) │ no holes     │
 *     └────────┴───────────────────────────────────────────────┴──────────────┘
 *
 * The reader trusts nothing: sizes are bounded by the file's own length, offsets must tile the data
 * exactly, shapes must multiply to their bytes, names must be unique. */
#ifndef DUNLIN_MODEL_IO_SAFETENSORS_H
#define DUNLIN_MODEL_IO_SAFETENSORS_H

#include "agent/base/err.h"
#include "agent/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum st_dtype { ST_F32, ST_F16, ST_BF16, ST_F64, ST_I64, ST_I32, ST_I16, ST_I8, ST_U8, ST_BOOL };

struct st_tensor {
	const char *name;
	enum st_dtype dtype;
	int rank;
	int64_t dim[LIMIT_TENSOR_RANK];
	uint64_t bytes;
	const void
	        *data; /* written from, or, when read, inside the file's bytes: maybe unaligned */
};

struct st_meta {
	const char *key, *value;
};

struct st_file {
	struct st_tensor *tensors; /* owned, in the order of their data */
	int n_tensors;
	struct st_meta *meta; /* owned, by key */
	int n_meta;
	void *map; /* owned: the file's bytes */
	void *json; /* owned: names and metadata live in it */
	struct st_kept *kept;  /* owned: see st_keep */
	struct st_file *parts; /* owned: the files of an index, to which the tensors belong */
	int n_parts;
};

/* A piece of memory, which begins behind it. */
struct st_kept {
	struct st_kept *next;
	max_align_t align[];
};

/* Reads path and checks it whole (not the values). */
int st_open(struct st_file *f, const char *path, struct err *e) MUST_CHECK;

/* The same over the files that an index names, model.safetensors.index.json of Hugging Face's, in
 * its folder: {"weight_map": {tensor: file, …}, …}. Files and index must have the same tensors.
 * There is no metadata. */
int st_open_index(struct st_file *f, const char *path, struct err *e) MUST_CHECK;

/* The header's metadata alone: no tensors; the data are neither read nor checked. */
int st_open_meta(struct st_file *f, const char *path, struct err *e) MUST_CHECK;

/* The same as st_open over bytes in memory, which stay the caller's and must outlive f. */
int st_parse(struct st_file *f, const void *bytes, size_t len, struct err *e) MUST_CHECK;

void st_close(struct st_file *f);

/* NULL when there is none of that name. */
const struct st_tensor *st_find(const struct st_file *f, const char *name);
const char *st_meta(const struct st_file *f, const char *key);

/* F16 and BF16 become F32, in memory of the file's. */
int st_widen(struct st_file *f, struct err *e) MUST_CHECK;

/* Memory that st_close frees, for tensors and names that are made from the file's; NULL: there is
 * none. */
void *st_keep(struct st_file *f, size_t bytes);

/* Writes atomically (file_replace): the metadata, then the tensors in the given order. */
int st_write(const char *path, const struct st_tensor *tensors, int n_tensors,
        const struct st_meta *meta, int n_meta, struct err *e) MUST_CHECK;

const char *st_dtype_text(enum st_dtype t); /* "F32" */
size_t st_dtype_bytes(enum st_dtype t);

/* Internal: an index in memory. */
struct st_row {
	const char *tensor, *file; /* file: in the index's folder */
};
struct st_index {
	struct st_row *rows; /* owned, by tensor */
	int n_rows;
	void *json; /* owned */
};
int st__parse_index(struct st_index *x, const void *bytes, size_t len, struct err *e) MUST_CHECK;
void st__close_index(struct st_index *x);

/* Internal: refuses text that must not reach the JSON parser; what is it: "the header". */
int st__scan(const uint8_t *h, size_t len, const char *what, struct err *e) MUST_CHECK;

/* Internal: scans and parses; *json is a cJSON tree, the caller's. */
int st__read_json(
        void **json, const uint8_t *p, size_t n, const char *what, struct err *e) MUST_CHECK;

/* Internal. Names are printed to terminals: no control characters (C0, DEL, and C1 in UTF-8). */
bool st__printable(const char *s);

#endif
