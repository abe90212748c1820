/* SPDX-License-Identifier: MIT */
/* Convolutions by cuDNN's graphs. A plan is made once for a shape and a direction, and kept by the
 * device for every layer and program that needs it; a pack binds it to memory. To run a plan on a
 * pack takes one call, which neither allocates nor waits. */
#ifndef DUNLIN_MODEL_CUDA_CONV_PLAN_H
#define DUNLIN_MODEL_CUDA_CONV_PLAN_H

#include "agent/base/err.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

enum conv_plan_kind { CONV_FORWARD, CONV_DATA, CONV_FILTER };

/* x (n, h, w, c), w (k, kernel, kernel, c), y (n, p, q, k): channels last in all of them. */
struct conv_plan_shape {
	int64_t n, c, h, w;
	int64_t k, kernel, stride, pad;
	int64_t p, q;
};

#define CONV_PLAN_PARTS 48 /* descriptors that belong to a plan, at most */
struct conv_plan {
	cudnnBackendDescriptor_t part[CONV_PLAN_PARTS]; /* owned */
	int n_parts;
	cudnnBackendDescriptor_t run; /* of the parts: what is executed */
	int64_t workspace;            /* bytes that it needs */
	enum conv_plan_kind kind;
	struct conv_plan_shape shape;
	struct conv_plan *next; /* owned */
};

/* The plan from the list, or a new one that is added to it. Takes the first engine, in the order
 * that the library proposes, that sums in the same order each time, keeps the inputs' precision
 * (tf32, which is the same for the whole list, permits TF32) and needs at most so much workspace.
 * ERR_UNSUPPORTED: there is none. Other failures are the library's, named in e. */
int conv_plan_get(const struct conv_plan **out, struct conv_plan **list, cudnnHandle_t h,
        enum conv_plan_kind kind, const struct conv_plan_shape *s, bool tf32, int64_t workspace_max,
        struct err *e) MUST_CHECK;

void conv_plan_free_all(struct conv_plan **list);

/* Device memory for a plan, aligned to 16 bytes. *pack is NULL or to be closed. */
int conv_pack_init(cudnnBackendDescriptor_t *pack, void *x, void *w, void *y, void *workspace,
        struct err *e) MUST_CHECK;
void conv_pack_close(cudnnBackendDescriptor_t *pack);

#endif
