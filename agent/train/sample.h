/* SPDX-License-Identifier: MIT */
/* Text from a trained gpt, a token at a time. */
#ifndef DUNLIN_AGENT_TRAIN_SAMPLE_H
#define DUNLIN_AGENT_TRAIN_SAMPLE_H

#include "agent/base/rng.h"
#include "model/graph/graph.h"

struct sample_config {
	double temperature; /* logits are divided by it; 0: always the likeliest */
	int64_t top_k;      /* drawn from so many of the likeliest; 0: from all */
};

/* The place of the drawn one of n logits, which are used up. Of equal ones the first. */
int32_t sample_pick(float *logits, int64_t n, const struct sample_config *c, struct rng *r);

/* A window of the text: all memory is taken by sample_new. */
struct sampler {
	struct graph *net;        /* borrowed; of batches of one */
	int32_t *tokens, *labels; /* owned, T each */
	float *logits;            /* owned, one for each token of the vocabulary */
	int64_t n;                /* tokens in the window */
};
int sample_init(struct sampler *s, struct graph *net, struct err *e) MUST_CHECK;
void sample_close(struct sampler *s);

/* Appends a token, which is in the vocabulary; when the window is full its first one goes. */
void sample_add(struct sampler *s, int32_t token);

/* Draws the token that follows at least one. It is not added. */
int sample_next(struct sampler *s, const struct sample_config *c, struct rng *r, int32_t *token,
        struct err *e) MUST_CHECK;

#endif
