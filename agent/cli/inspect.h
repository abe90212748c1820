/* SPDX-License-Identifier: MIT */
/* What is in a file, written for people or as one JSON object. */
#ifndef DUNLIN_AGENT_CLI_INSPECT_H
#define DUNLIN_AGENT_CLI_INSPECT_H

#include "agent/base/buf.h"
#include "model/data/idx.h"
#include "model/io/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

/* Kind, metadata, model and, for each tensor, range and norm. nonfinite receives how many values of
 * all tensors are not finite. */
int inspect_safetensors(
        struct buf *b, const struct st_file *f, bool json, uint64_t *nonfinite) MUST_CHECK;

/* Kind, shape, range, and for labels how often each occurs. data has x->bytes elements. */
int inspect_idx(struct buf *b, const struct idx *x, const uint8_t *data, bool json) MUST_CHECK;

#endif
