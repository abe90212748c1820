/* SPDX-License-Identifier: MIT */
/* Runs a fuzz target over the files named on the command line, each once: what libFuzzer's own main
 * does with them, for builds without it. So every build with sanitizers, gcc's as well, goes
 * through the seeds and the inputs that once broke something. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	/* Exactly as large as the input, so that AddressSanitizer sees a read past its end. */
	FILE *f = fopen(path, "rb");
	long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
	uint8_t *data = size >= 0 ? malloc((size_t)size) : NULL;
	int ok = size == 0 || data;
	if (ok) {
		rewind(f);
		ok = fread(data, 1, (size_t)size, f) == (size_t)size;
	}
	if (ok)
		LLVMFuzzerTestOneInput(data, (size_t)size);
	else
		fprintf(stderr, "cannot read %s\n", path);
	free(data);
	if (f)
		fclose(f);
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	int rc = 0;
	for (int i = 1; i < argc; i++)
		rc |= replay(argv[i]);
	return rc;
}
