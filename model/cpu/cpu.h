/* SPDX-License-Identifier: MIT */
/* Inside the cpu backend: what its files share. */
#ifndef DUNLIN_MODEL_CPU_CPU_H
#define DUNLIN_MODEL_CPU_CPU_H

#include "model/cpu/gemm.h"
#include "model/cpu/kernels.h"
#include "model/cpu/pool.h"
#include "model/device/device.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

struct cpu_device {
	struct device base;
	struct pool *pool; /* owned */
	int threads;
	bool generates; /* memory can be made executable, which oneDNN needs */
	const struct cpu_kernels *k;
	dnnl_engine_t engine;  /* owned */
	dnnl_stream_t *stream; /* owned; one per worker */
	struct cpu_gemm gemm;
	double *partial;   /* owned; one cache line per worker, for sums */
	float *scratch;    /* owned, or NULL; see cpu_scratch */
	size_t scratch_floats;
	atomic_int failed; /* a library call failed inside a step */
};

#define PARTIAL_STRIDE 8

/* The samples of worker w. */
static inline void cpu_samples(
        const struct cpu_device *d, int64_t batch, int w, size_t *from, size_t *to)
{
	pool_part((size_t)batch, 1, w, d->threads, from, to);
}

/* Room for that many floats for each worker, which all ops share: what is in it is gone after the
 * op. Called by prepare; may move the room. */
int cpu_scratch(struct cpu_device *d, size_t floats) MUST_CHECK;

static inline float *cpu_scratch_of(const struct cpu_device *d, int w)
{
	return d->scratch + (size_t)w * d->scratch_floats;
}

/* For messages: what is refused, and what to do. */
#define CPU_NO_CODE                                                                      \
	"memory cannot be made executable here, which oneDNN needs: allow it (systemd: " \
	"MemoryDenyWriteExecute=no; SELinux: execmem)"

/* A kind of op. prepare and unprepare are run by one thread, the rest by every worker at the same
 * time, each for its part; a worker may wait for the others by pool_barrier, if all do. */
struct cpu_op {
	/* The workers split the op by samples, and a worker needs no more of its input than its own
	 * samples. If not set, each needs all of it. In the forward pass no memory is reused, so
	 * two ops by samples need no barrier between them. */
	bool by_sample;
	/* Optional. Memory for op->state is the op's until unprepare; also after a failure. */
	int (*prepare)(struct cpu_device *d, struct op *op, struct err *e);
	void (*unprepare)(struct op *op); /* NULL: state is one free()able block, or NULL */
	/* Optional: what is made of the weights before a forward pass. */
	void (*pack)(struct cpu_device *d, struct op *op, int w, bool train);
	void (*forward)(struct cpu_device *d, const struct program *p, struct op *op, int w);
	void (*backward)(struct cpu_device *d, const struct program *p, struct op *op, int w);
	/* Optional: after a whole backward pass, the workers' gradients into one (cpu_reduce). */
	void (*reduce)(struct cpu_device *d, struct op *op, int w);
};

#define X(KIND, name) extern const struct cpu_op cpu_op_##name;
LAYER_LIST(X)
#undef X

/* The gradients of the op's parameters (added to what is there if op->accumulate) = the sum of what
 * each worker found: part[i], all parameters behind each other, or NULL. Every worker calls this,
 * and does its range. */
void cpu_reduce(struct cpu_device *d, struct op *op, const float *const *part, int w);

#endif
