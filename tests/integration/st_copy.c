/* SPDX-License-Identifier: MIT */
/* st_copy IN OUT: reads a safetensors file and writes what it understood. For
 * safetensors_python.sh, which compares the two. */
#include "model/io/safetensors.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct st_file f;
	struct err e = {0};
	if (argc != 3) {
		fprintf(stderr, "usage: st_copy IN OUT\n");
		return 2;
	}
	int rc = st_open(&f, argv[1], &e);
	if (!rc) {
		rc = st_write(argv[2], f.tensors, f.n_tensors, f.meta, f.n_meta, &e);
		st_close(&f);
	}
	if (rc)
		fprintf(stderr, "st_copy: %s\n", e.msg);
	return rc ? 1 : 0;
}
