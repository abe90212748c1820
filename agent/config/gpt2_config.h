/* SPDX-License-Identifier: MIT */
/* config.json of a GPT-2 as Hugging Face's transformers write and read it. */
#ifndef DUNLIN_AGENT_CONFIG_GPT2_CONFIG_H
#define DUNLIN_AGENT_CONFIG_GPT2_CONFIG_H

#include "agent/base/buf.h"
#include "agent/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpt2_config {
	int64_t layers, width, heads;
	int64_t positions, vocabulary;
	double eps; /* of its norms */
	bool tanh;  /* gelu by tanh */
};

/* Refuses what Dunlin's gpt cannot be. An absent key has GPT-2's own value, as it has there. */
int gpt2_config_parse(
        struct gpt2_config *c, const char *text, size_t len, struct err *e) MUST_CHECK;

int gpt2_config_print(const struct gpt2_config *c, struct buf *out) MUST_CHECK;

#endif
