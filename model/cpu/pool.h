/* SPDX-License-Identifier: MIT */
/* A team of threads that all run the same function, each on its own part.
 *
 * Why not OpenMP: its idle threads spin for as long as the process's environment says, for every
 * team alike, which ruins several agents on one machine. Here a waiting thread spins for a few tens
 * of microseconds (not at all when there are more threads than cores), then gives the core to
 * whoever wants it for about a millisecond, and then sleeps. */
#ifndef DUNLIN_MODEL_CPU_POOL_H
#define DUNLIN_MODEL_CPU_POOL_H

#include "agent/base/err.h"

#include <stddef.h>

struct pool;

typedef void (*pool_fn)(void *arg, int worker);

/* threads >= 1; the thread that calls pool_run is one of them. */
int pool_new(struct pool **out, int threads, struct err *e) MUST_CHECK;
void pool_free(struct pool *p);

/* Runs fn(arg, 0..threads-1) and returns when all are done. One caller at a time. */
void pool_run(struct pool *p, pool_fn fn, void *arg);

/* Inside fn, called by every worker the same number of times: none goes on before all have come,
 * and what each wrote before it is seen by all after it. */
void pool_barrier(struct pool *p);

/* The part of [0, n) that is worker w's of t, in multiples of grain but for the end. */
static inline void pool_part(size_t n, size_t grain, int w, int t, size_t *from, size_t *to)
{
	size_t blocks = (n + grain - 1) / grain;
	size_t a = blocks * (size_t)w / (size_t)t * grain;
	size_t b = blocks * (size_t)(w + 1) / (size_t)t * grain;
	*from = a < n ? a : n;
	*to = b < n ? b : n;
}

#endif
