/* SPDX-License-Identifier: MIT */
/* A model compiled for one device and one batch size, with its parameters and gradients. All
 * memory is taken by graph_new; a step allocates nothing. One thread at a time. */
#ifndef DUNLIN_MODEL_GRAPH_GRAPH_H
#define DUNLIN_MODEL_GRAPH_GRAPH_H

#include "model/arch/arch.h"
#include "model/data/data.h"
#include "model/device/device.h"

struct graph {
	const struct arch *arch; /* borrowed */
	struct device *dev;      /* borrowed */
	float *params;           /* owned, device memory, arch->n_total floats */
	float *grads;            /* owned, device memory, arch->n_total floats */
	struct program program;
	float *input;    /* owned, device memory */
	int32_t *labels; /* owned, device memory */
	void *arena;     /* owned, device memory: activations and their gradients */
	float *stats; /* owned, the host's memory: room for stats.c, 3 × (n_total − n_train) */
};

int graph_new(struct graph **out, const struct arch *a, struct device *d, int64_t batch,
        struct err *e) MUST_CHECK;
void graph_free(struct graph *n);

/* Host copies of the whole flat vector, arch->n_total floats. */
void graph_set_params(struct graph *n, const float *values);
void graph_get_params(struct graph *n, float *values);

/* 0, or the device's first failure: whether what was copied from it, or to it, can be trusted. */
int graph_check(struct graph *n, struct err *e) MUST_CHECK;

/* One forward and backward over a full batch of a loader, in two halves. The first gives the device
 * its work; *r is there after graph_wait, which comes next but for graph_ahead. That one (NULL:
 * nothing) tells what batch will be next, for the device to fetch while it computes. The
 * gradients are those of the loss summed over the batch times scale (1/B for its mean), added to
 * what is there when accumulate is set. dropout_seed must differ from step to step.
 *
 * The batch is the loader's again after graph_wait: the result came behind the device's last work
 * on it. What was fetched ahead stays as it is until it was the batch, since the loader gives it
 * next and only then fills its place again. */
int graph_train_begin(struct graph *n, const struct batch *b, bool accumulate, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e) MUST_CHECK;
/* The same with the loss of the first count samples alone: all of the batch goes forward. It is a
 * look at a gradient: running statistics stay as they are. */
int graph_train_part(struct graph *n, const struct batch *b, int64_t count, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e) MUST_CHECK;
/* Forward alone, as in training: running statistics move. */
int graph_forward(
        struct graph *n, const struct batch *b, uint64_t dropout_seed, struct err *e) MUST_CHECK;
/* Forward only, dropout off; the batch may be a shorter one. */
int graph_eval_begin(
        struct graph *n, const struct batch *b, struct loss_result *r, struct err *e) MUST_CHECK;
int graph_ahead(struct graph *n, const struct batch *next, struct err *e) MUST_CHECK;
int graph_wait(struct graph *n, struct err *e) MUST_CHECK;

#endif
