/* SPDX-License-Identifier: MIT */
/* Finds the PTX in what nvcc has put into a program. A registered wrapper points to one or several
 * fat binaries, each a header and entries, machine code (kind 2) and PTX (kind 1) for
 * architectures; an entry may be compressed with zstd. As the driver would, the newest PTX that is
 * not newer than the device is taken. */
#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u

struct wrapper {
	uint32_t magic, version;
	const unsigned char *data;
	void *more;
};

struct header {
	uint32_t magic;
	uint16_t version, bytes;
	uint64_t content;
};

struct entry {
	uint16_t kind, unknown;
	uint32_t header;
	uint64_t bytes;
	uint32_t compressed, unknown2;
	uint16_t minor, major;
	uint32_t arch;
	uint64_t unknown3[2];
	uint64_t flags_or_none;
	uint64_t plain_bytes;
};

static char *unpack(const struct entry *e, const unsigned char *data)
{
	typedef size_t decompress_fn(void *, size_t, const void *, size_t);
	size_t n = e->compressed ? e->plain_bytes : e->bytes;
	char *text = calloc(1, n + 1);
	if (!text)
		gpu_die("no memory");
	if (!e->compressed) {
		memcpy(text, data, n);
		return text;
	}
	void *lib = dlopen("libzstd.so.1", RTLD_NOW);
	decompress_fn *decompress = lib ? (decompress_fn *)dlsym(lib, "ZSTD_decompress") : NULL;
	if (!decompress)
		gpu_die("the PTX is compressed and there is no libzstd.so.1");
	if (decompress(text, n, data, e->compressed) > n)
		gpu_die("the PTX cannot be decompressed");
	return text;
}

static struct ptx_module *load_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) != 0)
		gpu_die("GPU_PTX=%s cannot be read", path);
	long n = ftell(f);
	rewind(f);
	char *text = calloc(1, (size_t)n + 1);
	if (!text || fread(text, 1, (size_t)n, f) != (size_t)n)
		gpu_die("GPU_PTX=%s cannot be read", path);
	fclose(f);
	struct ptx_module *m = ptx_load(text);
	free(text);
	return m;
}

const struct ptx_module *gpu_other_kernels(void)
{
	static struct ptx_module *m;
	const char *file = getenv("GPU_PTX");
	if (!m && file && *file)
		m = load_file(file);
	return m;
}

struct ptx_module *gpu_load_fatbin(const void *registered)
{
	const struct wrapper *w = registered;
	struct header h;
	memcpy(&h, w->data, sizeof h);
	if (w->magic != WRAPPER_MAGIC || h.magic != FATBIN_MAGIC)
		gpu_die("not a fat binary");
	const unsigned char *best = NULL, *at = w->data + h.bytes, *end = at + h.content;
	struct entry e, found = {0};
	for (; at < end; at += e.header + e.bytes) {
		memcpy(&e, at, sizeof e);
		if (e.kind == 1 && (int)e.arch <= gpu_settings.arch && e.arch > found.arch) {
			found = e;
			best = at + e.header;
		}
	}
	if (!best)
		return NULL; /* as with a driver, a launch fails, nothing else */
	char *text = unpack(&found, best);
	struct ptx_module *m = ptx_load(text);
	free(text);
	return m;
}
