/* SPDX-License-Identifier: MIT */
/* One step of a graph on floats of the caller's, from its start to its result. */
#ifndef DUNLIN_TESTS_MODEL_GRAPH_RUN_H
#define DUNLIN_TESTS_MODEL_GRAPH_RUN_H

#include "model/graph/graph.h"

/* x: (B, input shape), floats or tokens */
static inline int graph_train(struct graph *n, const void *x, const int32_t *labels,
        bool accumulate, float scale, uint64_t dropout_seed, struct loss_result *r, struct err *e)
{
	const bool tokens = n->arch->tokens;
	const struct batch b = {.x = tokens ? NULL : (float *)x,
	        .tokens = tokens ? (int32_t *)x : NULL,
	        .labels = (int32_t *)labels,
	        .shape = n->arch->input,
	        .count = n->program.batch};
	int rc = graph_train_begin(n, &b, accumulate, scale, dropout_seed, r, e);
	return rc ? rc : graph_wait(n, e);
}

/* Over the first count <= B samples. */
static inline int graph_eval(struct graph *n, const void *x, const int32_t *labels, int64_t count,
        struct loss_result *r, struct err *e)
{
	const bool tokens = n->arch->tokens;
	const struct batch b = {.x = tokens ? NULL : (float *)x,
	        .tokens = tokens ? (int32_t *)x : NULL,
	        .labels = (int32_t *)labels,
	        .shape = n->arch->input,
	        .count = count};
	int rc = graph_eval_begin(n, &b, r, e);
	return rc ? rc : graph_wait(n, e);
}

/* The logits of the last evaluation, (B, positions, classes): training overwrites its own on its
 * way back. */
static inline void graph_logits(struct graph *n, float *out)
{
	size_t count = (size_t)(n->program.batch * n->program.positions * n->program.classes);
	n->dev->backend->download(n->dev, out, n->program.logits, count * sizeof(float));
}

#endif
