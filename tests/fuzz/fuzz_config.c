/* SPDX-License-Identifier: MIT */
/* Any bytes as a config file and as the model of a checkpoint. What is accepted must be settings
 * that print and read back to the same; what is refused must say why. */
#include "agent/config/config.h"
#include "agent/config/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x)                  \
	do {                     \
		if (!(x))        \
			abort(); \
	} while (0)

static void fuzz_config(const char *text, size_t size)
{
	static struct config c, again;
	static struct config_problems p;
	struct buf out, out_again;
	config_defaults(&c);
	config_defaults(&again);
	config_problems_init(&p, "f.json");
	buf_init(&out, 64 << 20);
	buf_init(&out_again, 64 << 20);
	int rc = config_read(&c, text, size, &p);
	bool accepted = rc == 0;
	MUST(accepted == (p.n == 0));
	rc = config_check(&c, &p);
	MUST((rc == 0 && accepted) == (p.n == 0));
	MUST(config_problems_text(&p, &out) == 0);
	for (size_t i = 0; i < out.len; i++) /* nothing of the file's may drive a terminal */
		MUST((unsigned char)out.data[i] >= ' ' || out.data[i] == '\n');
	buf_close(&out);
	buf_init(&out, 64 << 20);
	config_problems_init(&p, NULL);
	MUST(!accepted || config_print(&c, true, &out) == 0);
	if (accepted && out.len <= LIMIT_CONFIG_BYTES) {
		MUST(config_read(&again, out.data, out.len, &p) == 0);
		MUST(config_print(&again, true, &out_again) == 0);
		MUST(strcmp(out.data, out_again.data) == 0);
	}
	buf_close(&out);
	buf_close(&out_again);
	config_close(&c);
	config_close(&again);
}

static void fuzz_model(const char *text, size_t size)
{
	struct layer *layers;
	struct shape input;
	struct arch arch;
	struct err e = {0};
	int64_t classes;
	int n;
	if (config_parse_model(text, size, &layers, &n, &input, &classes, &e)) {
		MUST(!layers && e.code && e.msg[0]);
		return;
	}
	MUST(layers && n > 0 && n <= LIMIT_LAYERS && classes > 0 && classes <= LIMIT_CLASSES);
	if (arch_resolve(&arch, layers, n, &input, classes, &e) == 0)
		arch_close(&arch);
	free(layers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_config((const char *)data, size);
	fuzz_model((const char *)data, size);
	return 0;
}
