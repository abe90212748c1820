/* SPDX-License-Identifier: MIT */
/* Places tensors of known size and lifetime in one arena. Pure arithmetic. */
#ifndef DUNLIN_MODEL_GRAPH_PLAN_H
#define DUNLIN_MODEL_GRAPH_PLAN_H

#include <stddef.h>

#define PLAN_ALIGN 64

struct plan_extent {
	size_t bytes;
	int from, to;  /* alive at these times, both included */
	size_t offset; /* out, a multiple of PLAN_ALIGN */
};

/* Gives every extent an offset so that no two that are alive at one time overlap; returns the
 * arena's size in bytes. Largest first, each at the lowest offset that is free for its lifetime:
 * not optimal, but within a few per cent on chains and residual networks. */
unsigned long long plan_arena(struct plan_extent *x, int n);

#endif
