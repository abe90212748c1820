/* SPDX-License-Identifier: MIT */
/* Inside the GPU backend. A device has three streams:
 *
 *     up       host → device     ──copied──►  compute waits; up measures what it copied
 *     compute  kernels, cuBLAS, cuDNN, in the program's order
 *     down     device → host     ◄──fence──  compute has come so far
 *
 * Nothing runs in the default stream, nothing is allocated between prepare and unprepare, and the
 * host waits only where it needs a number: for an event, never for a device.
 *
 * The first failure stays: every later call returns it and does nothing. */
#ifndef DUNLIN_MODEL_CUDA_CUDA_H
#define DUNLIN_MODEL_CUDA_CUDA_H

#include "model/cuda/conv_plan.h"
#include "model/cuda/kernels.h"
#include "model/data/move.h"
#include "model/device/device.h"

#include <cublas_v2.h>
#include <cudnn.h>
#include <stdatomic.h>

#define CUDA_SLOTS 4
#define CUDA_SLOT_BYTES ((size_t)1 << 20)
#define CUDA_ANSWERS 32 /* that wait at the same time */
#define CUDA_PINNED 64  /* blocks of host_alloc */
#define CUDA_BLAS_BYTES ((size_t)32 << 20)
#define CUDA_OPEN_BYTES \
	(CUDA_BLAS_BYTES + (CUDA_SLOTS + 1) * CUDA_SLOT_BYTES) /* and small things */
#define CUDA_CONV_BYTES ((int64_t)256 << 20) /* workspace of a convolution, at most */

/* A piece of pinned memory, for copies in one direction. */
struct cuda_slot {
	char *host;         /* owned, pinned, CUDA_SLOT_BYTES */
	char *dev;          /* owned; up only: device memory for what is added */
	cudaEvent_t copied; /* the host may use it again */
	cudaEvent_t used;   /* up only: dev may be overwritten */
};

/* Results of a step: in device memory, and the same in pinned memory. */
struct cuda_numbers {
	double loss[2]; /* the sum, correct answers */
	double squares;
};

/* A done_cb that is called when the stream `down` reaches it; before that, parts of the device's
 * pinned memory are copied to the caller's. */
struct cuda_answer {
	atomic_int state; /* enum answer_state */
	struct {
		void *to; /* borrowed until done_cb; NULL: nothing to copy */
		const void *from;
		size_t bytes;
	} part[2];
	void (*done_cb)(void *arg, int rc);
	void *arg;
};

/* Measurements of a staged vector: in device memory, and the same in pinned memory. */
struct cuda_measured {
	float sketch[KERNELS_SKETCH_BUCKETS];
	double squares[DEVICE_GROUPS_MAX];
};

struct cuda_pinned {
	char *at; /* owned; NULL: a free entry */
	size_t bytes;
};

/* What an update will add. Valid from `stage` until an update has added it, which ends it for that
 * part and for all before it, or until the next `stage`, which replaces it. */
struct cuda_stage {
	float *dev; /* owned: room of `bytes` */
	size_t bytes;
	const float *host;        /* borrowed: the n floats that are copied to dev; may be freed */
	size_t n, used;           /* the first `used` are no longer staged */
	cudaEvent_t copied, read; /* in up; in compute, by the last update */

	struct cuda_measured *found;      /* owned, device */
	struct cuda_measured *found_host; /* owned, pinned */
	double *parts, *sketch_parts;     /* owned: as the device's, which compute uses meanwhile */
	cudaEvent_t measured, told;       /* in up; in down: `found` may be written again */
};

/* A batch of bytes in device memory. */
struct cuda_batch {
	const uint8_t *held;      /* borrowed: the batch's pixels, as its identity; NULL: none */
	cudaEvent_t copied, read; /* in up; in compute, by the kernel */
};

struct cuda_device {
	struct device base; /* first */
	int index;
	bool tf32;
	struct err first;  /* code 0: nothing has failed */
	const char *where; /* borrowed; for errors: the name of the layer that runs, or "" */
	const char *what;  /* "forward", … */

	cudaStream_t up, compute, down;
	cublasHandle_t blas;
	cudnnHandle_t dnn;
	struct cuda_block *blocks; /* owned: all of its memory, see arena.c */
	void *blas_space;          /* owned */
	struct conv_plan *plans;   /* owned: of all convolutions so far */

	struct cuda_slot to_device[CUDA_SLOTS], to_host[CUDA_SLOTS];
	unsigned next_up;
	cudaEvent_t fence;            /* recorded in compute, for a copy that must come after it */
	cudaEvent_t uploaded;         /* recorded in up */
	cudaEvent_t answered;         /* recorded in down, after the numbers */
	struct cuda_numbers *numbers; /* owned, device */
	struct cuda_numbers *numbers_host; /* owned, pinned */
	double *parts;                     /* owned: KERNELS_SUM_BLOCKS */
	struct loss_result *promised;      /* borrowed from loss until loss_wait; NULL: none */

	/* Taken by the first prepare that needs it, grown by later ones; a program's own memory is
	 * in its ops' states. */
	float *column_parts; /* owned */
	size_t column_bytes;
	double *losses; /* owned: one double and one int32_t for each row */
	size_t loss_bytes;

	void *snap;      /* owned, device */
	void *snap_host; /* owned, pinned */
	size_t snap_bytes;
	double *sketch_parts;        /* owned, device */
	float *sketch, *sketch_host; /* owned: KERNELS_SKETCH_BUCKETS, device; pinned */
	cudaEvent_t snapped, sent;   /* compute has copied; down has copied on */
	struct cuda_answer answers[CUDA_ANSWERS];

	struct cuda_pinned pinned[CUDA_PINNED];
	struct cuda_stage stage;

	char *batch_memory; /* owned: one half for each of batches */
	size_t batch_bytes;
	struct cuda_batch batches[2];
	unsigned next_batch;
};

static inline struct cuda_device *cuda(struct device *d)
{
	return (struct cuda_device *)(void *)d;
}

/* ---- device.c: errors */

/* Every function that may fail calls this first: binds the calling thread to this device. */
int cuda_enter(struct cuda_device *d, const char *what, struct err *e) MUST_CHECK;

/* Status to error. call is the text of the call; the part before its bracket is printed. */
int cuda_runtime(struct cuda_device *d, cudaError_t s, const char *call, struct err *e) MUST_CHECK;
int cuda_blas(struct cuda_device *d, cublasStatus_t s, const char *call, struct err *e) MUST_CHECK;
int cuda_dnn(struct cuda_device *d, cudnnStatus_t s, const char *call, struct err *e) MUST_CHECK;
/* Records a failure unless there was one before; returns the first one. */
int cuda_fail(struct cuda_device *d, const struct err *first, struct err *e);

#define CUDA(call) cuda_runtime(d, call, #call, e)
#define BLAS(call) cuda_blas(d, call, #call, e)
#define DNN(call) cuda_dnn(d, call, #call, e)

/* Waits for all streams. */
int cuda_idle(struct cuda_device *d, struct err *e) MUST_CHECK;

/* ---- arena.c: memory */

/* Device memory; *p is NULL afterwards if there was none, which is an error but not a lasting one.
 */
int cuda_take(struct cuda_device *d, void **p, size_t bytes, struct err *e) MUST_CHECK;
/* Frees a piece that is no longer used: it may be reused at once. NULL is allowed. */
void cuda_drop(struct cuda_device *d, void *p);
/* Room for pieces together, each of which counts as cuda_room says. *left is what the GPU has, when
 * that is not enough. */
int cuda_reserve(struct cuda_device *d, size_t bytes, size_t *left, struct err *e) MUST_CHECK;
size_t cuda_room(size_t bytes);
void cuda_arena_close(struct cuda_device *d);
/* The same when *have is less than bytes; what was there is lost. */
int cuda_grow(
        struct cuda_device *d, void **p, size_t *have, size_t bytes, struct err *e) MUST_CHECK;

/* ---- copy.c */

int cuda_copy_open(struct cuda_device *d, struct err *e) MUST_CHECK;
void cuda_copy_close(struct cuda_device *d);
void cuda_upload(struct device *d, void *to, const void *from, size_t bytes);
void cuda_download(struct device *d, void *to, const void *from, size_t bytes);
int cuda_add(struct device *d, float *x, const float *host, size_t n, float k, struct err *e);
/* bytes of numbers at an offset, once compute has come to here: copied down behind an event. */
int cuda_ask(struct cuda_device *d, size_t offset, size_t bytes, struct err *e) MUST_CHECK;

/* ---- snapshot.c */

int cuda_snapshot_room(struct cuda_device *d, size_t bytes, struct err *e) MUST_CHECK;
int cuda_snapshot(struct device *d, const struct device_copy *c, struct err *e);

/* ---- answer.c */

/* One that is not under way, with nothing to copy; NULL: all are. */
struct cuda_answer *cuda_answer_new(struct cuda_device *d);
/* Behind all that down has been given. */
int cuda_answer(struct cuda_device *d, struct cuda_answer *a, struct err *e) MUST_CHECK;
/* Waits for those under way. Of a device that has failed those that will never come are called
 * back with ERR_DEVICE. */
void cuda_answer_settle(struct cuda_device *d);

/* ---- stage.c */

void *cuda_host_alloc(struct device *d, size_t bytes);
void cuda_host_release(struct device *d, void *p);
/* Whether all of it lies in one block of host_alloc. */
bool cuda_is_pinned(struct cuda_device *d, const void *p, size_t bytes);
/* So that so much can be staged. */
int cuda_stage_room(struct cuda_device *d, size_t bytes, struct err *e) MUST_CHECK;
int cuda_stage(struct device *d, const struct device_stage *s, struct err *e);
/* Around an update: where the n floats lie that were staged at host, for what compute is given
 * next; then that it has been given that. host may be NULL, *out is then. ERR_INVALID, and nothing
 * has happened: they were not. */
int cuda_staged(struct cuda_device *d, const float *host, size_t n, const float **out,
        struct err *e) MUST_CHECK;
int cuda_stage_used(struct cuda_device *d, const float *host, size_t n, struct err *e) MUST_CHECK;

/* ---- batch.c */

/* So that two batches of that program can be there: the bytes, and the room. */
size_t cuda_batch_bytes(const struct program *p);
int cuda_batch_room(struct cuda_device *d, const struct program *p, struct err *e) MUST_CHECK;
/* Forgets what was copied ahead: its memory may soon hold another batch. */
void cuda_batch_forget(struct cuda_device *d);
int cuda_images_ahead(struct device *d, const struct device_images *b, struct err *e);
int cuda_images(struct device *d, struct program *p, const struct device_images *b, struct err *e);

/* ---- ops: run.c; dense.c, simple.c, and conv.c with conv_plan.c */

int cuda_reserve_all(struct device *d, const struct program *p, const size_t *bytes, int n,
        struct device_room *r, struct err *e);
int cuda_prepare(struct device *d, struct program *p, struct err *e);
void cuda_unprepare(struct device *d, struct program *p);
int cuda_forward(struct device *d, struct program *p, struct err *e);
int cuda_backward(struct device *d, struct program *p, struct err *e);

static inline size_t cuda_count(const struct op *op, const struct shape *s)
{
	size_t n = (size_t)op->batch;
	for (int i = 0; i < s->rank; i++)
		n *= (size_t)s->dim[i];
	return n;
}

/* Device memory that ops will take, in bytes as cuda_room counts: what depends on the batch, what
 * does not, and the largest workspace. */
struct cuda_need {
	size_t other, fixed, space;
};

/* A kind of op. */
struct cuda_op {
	/* Adds what prepare will take; the op has no memory yet. May be NULL. */
	int (*count)(struct cuda_device *d, const struct op *op, bool want_dx, struct cuda_need *n,
	        struct err *e);
	int (*prepare)(struct cuda_device *d, struct op *op, struct err *e); /* may be NULL */
	/* NULL: state is a piece of cuda_take, or NULL. */
	void (*unprepare)(struct cuda_device *d, struct op *op);
	int (*forward)(
	        struct cuda_device *d, const struct program *p, struct op *op, struct err *e);
	/* With dy masked where that is to be done. */
	int (*backward)(
	        struct cuda_device *d, const struct program *p, struct op *op, struct err *e);
	bool masks; /* backward has also applied mask_dx */
};

extern const struct cuda_op cuda_op_dense, cuda_op_conv2d, cuda_op_relu, cuda_op_gelu,
        cuda_op_max_pool, cuda_op_avg_pool, cuda_op_global_pool, cuda_op_dropout, cuda_op_flatten,
        cuda_op_add;

/* Of a convolution: bytes of workspace that it needs; who frees it; and everything bound to its
 * memory. */
size_t cuda_conv_space(const struct op *op);
void cuda_conv_own(struct op *op, void *space);
int cuda_conv_bind(struct cuda_device *d, struct op *op, void *space, struct err *e) MUST_CHECK;

#endif
