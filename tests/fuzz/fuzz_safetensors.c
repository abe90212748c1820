/* SPDX-License-Identifier: MIT */
/* Any bytes as a safetensors file: every byte of every tensor, name and metadata that the parser
 * promises is touched, and names are found again. */
#include "model/io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct st_file f;
	struct err e = {0};
	int rc = st_parse(&f, data, size, &e);
	if (rc) {
		if (e.code != rc || !e.msg[0])
			abort();
		return 0;
	}
	volatile size_t sum = 0;
	for (int i = 0; i < f.n_tensors; i++) {
		const struct st_tensor *t = &f.tensors[i];
		const uint8_t *p = t->data;
		uint64_t bytes = st_dtype_bytes(t->dtype);
		for (int k = 0; k < t->rank; k++)
			bytes *= (uint64_t)t->dim[k];
		if (bytes != t->bytes || p < data || p + bytes > data + size)
			abort();
		for (uint64_t k = 0; k < bytes; k++)
			sum += p[k];
		if (i < 64 && st_find(&f, t->name) != t)
			abort();
	}
	for (int i = 0; i < f.n_meta; i++)
		sum += strlen(f.meta[i].key) + strlen(f.meta[i].value);
	(void)sum;
	st_close(&f);
	return 0;
}
