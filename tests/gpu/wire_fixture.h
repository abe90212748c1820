/* SPDX-License-Identifier: MIT */
/* What tests of exchanges on the GPU share: a device with a model, and vectors there. */
#ifndef DUNLIN_TESTS_GPU_WIRE_FIXTURE_H
#define DUNLIN_TESTS_GPU_WIRE_FIXTURE_H

#include "gossip/policy/sketch.h"
#include "net/bulk/convert.h"
#include "tests/gpu/fixture.h"

#include <limits.h>

/* A model that makes room for snapshots of 76,254 floats. */
static const struct model_case room = {"room", {1, {300}}, "dense units=250; relu; dense units=4"};

struct wire {
	struct fixture f;
	struct device *d;
	const struct backend *k;
	struct graph *net;
	size_t n; /* of its parameters */
};

static inline void wire_init(struct wire *w)
{
	fixture_init(&w->f, &room);
	w->d = open_gpu();
	w->k = w->d->backend;
	w->net = make_net(&w->f, w->d);
	w->n = w->f.arch.n_total;
}

static inline void wire_close(struct wire *w)
{
	graph_free(w->net);
	device_close(w->d);
	fixture_close(&w->f);
}

static inline void fill(float *x, size_t n, uint64_t seed)
{
	struct rng r;
	rng_seed(&r, seed, 0);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)rng_normal(&r);
}

/* NULL: there is no memory, or no device any more. */
static inline float *to_device(const struct wire *w, const float *x, size_t n)
{
	float *there = w->k->alloc(w->d, n * sizeof *x);
	if (there)
		w->k->upload(w->d, there, x, n * sizeof *x);
	return there;
}

/* Without measuring. */
static inline int stage(const struct wire *w, const float *host, size_t n, struct err *e)
{
	return w->k->stage(w->d, &(struct device_stage){.x = host, .n = n}, e);
}

#endif
