/* SPDX-License-Identifier: MIT */
/* A model compiled for one device and one batch size, with its parameters and gradients. All
 * memory is taken by net_new; a step allocates nothing. One thread at a time. */
#ifndef DUNLIN_MODEL_NET_H
#define DUNLIN_MODEL_NET_H

#include "model/arch.h"
#include "model/data.h"
#include "model/device.h"

struct net {
	const struct arch *arch; /* borrowed */
	struct device *dev;      /* borrowed */
	float *params;           /* owned, device memory, arch->n_total floats */
	float *grads;            /* owned, device memory, arch->n_total floats */
	struct program program;
	size_t activation_bytes;
	float *input;    /* owned, device memory */
	int32_t *labels; /* owned, device memory */
	void *arena;     /* owned, device memory: activations and their gradients */
};

int net_new(struct net **out, const struct arch *a, struct device *d, int64_t batch,
        struct err *e) MUST_CHECK;
void net_free(struct net *n);

int64_t net_batch(const struct net *n);

/* Host copies of the whole flat vector, arch->n_total floats. */
void net_set_params(struct net *n, const float *values);
void net_get_params(struct net *n, float *values);

/* 0, or the device's first failure: whether what was copied from it, or to it, can be trusted. */
int net_check(struct net *n, struct err *e) MUST_CHECK;

/* One forward and backward over a full batch: x is (B, input shape), host memory. The gradients are
 * those of the loss summed over the batch times scale (1/B for its mean), added to what is there
 * when accumulate is set. dropout_seed must differ from step to step. */
int net_train(struct net *n, const float *x, const int32_t *labels, bool accumulate, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e) MUST_CHECK;

/* Forward only, dropout off, over the first count <= B samples. */
int net_eval(struct net *n, const float *x, const int32_t *labels, int64_t count,
        struct loss_result *r, struct err *e) MUST_CHECK;

/* The same on a batch of a loader, in two halves. The first gives the device its work; *r is there
 * after net_wait, which comes next but for net_ahead. That one (NULL: nothing) tells what batch
 * will be next, for the device to fetch while it computes.
 *
 * The batch is the loader's again after net_wait: the result came behind the device's last work on
 * it. What was fetched ahead stays as it is until it was the batch, since the loader gives it next
 * and only then fills its place again. */
int net_train_begin(struct net *n, const struct batch *b, bool accumulate, float scale,
        uint64_t dropout_seed, struct loss_result *r, struct err *e) MUST_CHECK;
int net_eval_begin(
        struct net *n, const struct batch *b, struct loss_result *r, struct err *e) MUST_CHECK;
int net_ahead(struct net *n, const struct batch *next, struct err *e) MUST_CHECK;
int net_wait(struct net *n, struct err *e) MUST_CHECK;

/* The logits of the last net_eval, (B, classes); net_train's are overwritten on its way back. */
void net_logits(struct net *n, float *out);

#endif
