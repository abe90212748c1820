/* SPDX-License-Identifier: MIT */
/* Texts as tokens, in files that are read as training goes. Internal to the readers and the loader.
 *
 *     a shard   ├──────┼──────┼──────┼──────┼───┤   N tokens: ⌊(N − T)/T⌋ samples
 *     moved by o   ├──────┼──────┼──────┤           sample i is o + iT … o + iT + T, 0 <= o < T
 *
 * A sample is a window of T + 1 tokens of one shard: the first T are the input, the last T the
 * labels. All windows move by the same o, which the loader draws for each epoch, and without which
 * a model would see the same cuts again and again. */
#ifndef DUNLIN_MODEL_DATA_TOKENS_H
#define DUNLIN_MODEL_DATA_TOKENS_H

#include "model/data/data.h"

#define TOKENS_HEADER_BYTES 1024
#define TOKENS_SHARDS_MAX 512 /* files that stay open */
#define TOKENS_WIDTH_MAX 4    /* bytes of a token */

/* The header of a shard of llm.c: 256 little-endian int32: magic, version, count of tokens. */
struct tokens_header {
	int width;          /* bytes of a token: 2 or 4 */
	int64_t vocabulary; /* of the tokenizer that such files are made with */
	uint64_t count;
};
int tokens_parse(
        const uint8_t p[TOKENS_HEADER_BYTES], struct tokens_header *h, struct err *e) MUST_CHECK;

/* Sample i, moved by shift, as its T inputs and T labels. Checks every token against the
 * vocabulary: an error names the file and the token's place in it. scratch: T × TOKENS_WIDTH_MAX
 * bytes. Any number of threads may read. */
int tokens_read(const struct dataset *d, uint32_t i, uint64_t shift, uint8_t *scratch,
        int32_t *inputs, int32_t *labels, struct err *e) MUST_CHECK;

void tokens_close(struct tokens *t);
uint32_t tokens_files(const struct tokens *t); /* descriptors of its own */

#endif
