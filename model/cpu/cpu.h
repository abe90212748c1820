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
	atomic_int failed; /* a library call failed inside a step */
};

#define PARTIAL_STRIDE 8

/* True: the workers split the op by samples. False: each worker needs all of the op's input. In
 * the forward pass no memory is reused, so two ops by samples need no barrier between them. */
static inline bool cpu_by_sample(const struct op *op)
{
	return op->kind != LAYER_DENSE;
}

/* The samples of worker w. */
static inline void cpu_samples(
        const struct cpu_device *d, int64_t batch, int w, size_t *from, size_t *to)
{
	pool_part((size_t)batch, 1, w, d->threads, from, to);
}

/* For messages: what is refused, and what to do. */
#define CPU_NO_CODE                                                                      \
	"memory cannot be made executable here, which oneDNN needs: allow it (systemd: " \
	"MemoryDenyWriteExecute=no; SELinux: execmem)"

/* Each kind of op: prepare and unprepare are run by one thread (unprepare also after a prepare that
 * failed), the rest by every worker. Memory for state is the op's until unprepare. */

/* conv.c. pack: weights into the library's order, before a forward pass. reduce: after a whole
 * backward pass, the workers' gradients into one. */
int cpu_conv_prepare(struct cpu_device *d, struct op *op, struct err *e);
void cpu_conv_unprepare(struct op *op);
void cpu_conv_pack(struct cpu_device *d, struct op *op, int w, bool train);
void cpu_conv_forward(struct cpu_device *d, struct op *op, int w);
void cpu_conv_backward(struct cpu_device *d, struct op *op, int w);
void cpu_conv_reduce(struct cpu_device *d, struct op *op, int w, bool accumulate);

/* dense.c; its state is one free()able block. */
int cpu_dense_prepare(struct cpu_device *d, struct op *op, struct err *e);
void cpu_dense_forward(struct cpu_device *d, struct op *op, int w);
void cpu_dense_backward(struct cpu_device *d, struct op *op, int w, bool accumulate);

/* simple.c: all that has no parameters; its state is one free()able block, or NULL. */
int cpu_simple_prepare(struct op *op, struct err *e);
void cpu_simple_forward(struct cpu_device *d, const struct program *p, struct op *op, int w);
void cpu_simple_backward(struct cpu_device *d, const struct program *p, struct op *op, int w);

#endif
