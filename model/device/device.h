/* SPDX-License-Identifier: MIT */
/* Where a model runs: a backend behind a small table of functions. model/graph/graph.c plans what
 * to run (memory, order, which gradient is added to which); a backend only has to run it.
 *
 * A backend is one const struct backend. "cpu" and "plain" are linked in; others come as plugins,
 * shared objects named dunlin-NAME.so in the plugin folder, whose only exported symbol is
 * `dunlin_backend`, a struct backend with the same abi number.
 *
 * Memory that alloc gives is the device's: the host may touch it only through upload and download.
 * No function here is called from two threads at once for one device, but any number of devices
 * may be open in one process. */
#ifndef DUNLIN_MODEL_DEVICE_DEVICE_H
#define DUNLIN_MODEL_DEVICE_DEVICE_H

#include "agent/base/err.h"
#include "model/arch/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKEND_ABI 9
#define DEVICE_GROUPS_MAX 33 /* of one stage */

struct device_config {
	int index;          /* of several devices of that kind */
	int threads;        /* cpu: 1 or more; 0: cores_usable */
	bool deterministic; /* no choice that depends on timing */
	bool tf32;          /* cuda: TF32 matrix multiplication and convolution, which is faster */
};

struct device {
	const struct backend *backend;
	char text[96]; /* for people: "cpu (oneDNN 2.6.3, v3 loops, 2 threads)" */
};

/* A parameter of an op. */
struct op_param {
	float *value, *grad;
	size_t count;
	bool shared; /* an op whose backward comes before ours has it too: add to its gradient */
};

/* A node made ready to run on a batch. Pointers are device memory, planned by graph.c. */
struct op {
	enum layer_kind kind;
	const struct layer *layer;
	int64_t batch;
	struct shape in_shape, out_shape; /* (the inputs of add are alike) */
	bool relu;                        /* dense, conv2d, add: a relu is fused behind it */
	bool mask_dy;   /* dy must first be masked by y > 0: the backward of that relu */
	bool mask_dx;   /* dx[0] must be masked by x[0] > 0: the backward of the relu that is fused
	                   behind the op whose output we alone read */
	uint32_t index; /* of the node, a part of dropout's seed */
	const float *x[LAYER_INPUTS_MAX]; /* an embedding's: int32_t (B, T) */
	float *y;
	float *dy;                   /* overwritten if mask_dy is set */
	float *dx[LAYER_INPUTS_MAX]; /* NULL where nobody wants it */
	struct op_param param[LAYER_PARAMS_MAX]; /* in the order of arch_node; then zeros */
	int n_param;
	bool accumulate; /* add to the parameters' gradients instead of replacing them */
	void *state; /* the backend's own */
};

/* One entry of the backward order: an op's backward, or sum += part over count floats where a
 * tensor has several readers. */
struct backward_step {
	struct op *op; /* NULL: a sum */
	float *sum;
	const float *part;
	size_t count;
};

/* Softmax cross-entropy over the last op's output, logits (B, positions, classes). */
struct loss_result {
	double loss_sum; /* over the labels counted */
	int64_t correct;
	int64_t count; /* labels: the samples times their positions */
};

struct program {
	struct op *ops; /* in forward order */
	int n_ops;
	struct backward_step *backward;
	int n_backward;
	int64_t batch, classes;
	int64_t positions;  /* labels of a sample */
	size_t n_params;    /* floats of the flat vector */
	struct shape shape; /* of one sample */
	float *input;       /* (B, shape); tokens: int32_t */
	int32_t *labels;    /* (B, positions), device memory */
	const float *logits;
	float *dlogits;
	bool train;            /* dropout on */
	uint64_t dropout_seed; /* of this step */
};

struct optim_args {
	float lr, momentum, weight_decay, beta1, beta2, eps;
	float grad_scale;   /* clipping */
	float bias1, bias2; /* AdamW: 1 − β^t */
	bool nesterov;
	/* NULL, or what is added after the update, rounded as by `add`: w += add_k·add. It is host
	 * memory and must be a part of what was given to `stage`: anything else is ERR_INVALID, and
	 * nothing is updated. The caller may reuse it when the update has returned. */
	const float *add;
	float add_k;
};

/* What reserve found, in bytes. */
struct device_room {
	size_t wanted; /* in total */
	size_t fixed;  /* the part of it that does not depend on the batch size */
	size_t left;   /* what the device has, if that is not enough */
};

/* How a copy for peers is rounded; the numbers are the wire's (net/bulk/convert.h). */
enum copy_format { COPY_FP32, COPY_BF16 };

/* A copy of n floats of device memory, and a sketch of the first n_sketch of the rounded copy. */
struct device_copy {
	const float *x;
	size_t n;
	enum copy_format format;
	void *to;      /* memory of host_alloc where there is one: n words, little-endian */
	/* NULL: no sketch; else room for its buckets (gossip/policy/sketch.h) */
	float *sketch;
	size_t n_sketch;
	void (*done_cb)(void *arg, int rc);
	void *arg;
};

/* What an update will add: n floats in memory of host_alloc. With done_cb the device also measures
 * them: the sum of squares of each group, in double, and a sketch of the first n_sketch floats.
 * Groups follow each other; floats after the last end are in no group. */
struct device_stage {
	const float *x;
	size_t n;
	int n_groups;      /* at most DEVICE_GROUPS_MAX */
	const size_t *end; /* n_groups, ascending, at most n */
	double *squares;   /* n_groups */
	float *sketch;     /* as of device_copy */
	size_t n_sketch;
	void (*done_cb)(void *arg, int rc); /* NULL: nothing is measured */
	void *arg;
};

/* A batch as bytes. All of it lies in memory of host_alloc. */
struct augment_move;
struct device_images {
	struct shape shape;               /* (H, W, C) */
	const uint8_t *pixels;            /* count × H × W × C */
	const struct augment_move *moves; /* count of them; NULL: as they are */
	const float *table;               /* 256: the value of each byte */
	const int32_t *labels;
	int64_t count;
};

struct backend {
	int abi;
	const char *name;

	int (*open)(struct device **out, const struct device_config *c, struct err *e);
	void (*close)(struct device *d);

	/* Optional: reserves memory for n pieces that alloc will be asked for, and for what prepare
	 * will need for p (NULL: nothing), whose ops have no memory yet. ERR_NOMEM: it does not
	 * fit, and nothing is reserved. alloc also works without a reservation. */
	int (*reserve)(struct device *d, const struct program *p, const size_t *bytes, int n,
	        struct device_room *r, struct err *e);

	/* Zeroed, 64-byte aligned; NULL: out of memory. */
	void *(*alloc)(struct device *d, size_t bytes);
	void (*release)(struct device *d, void *p);
	void (*upload)(struct device *d, void *to, const void *from, size_t bytes);
	void (*download)(struct device *d, void *to, const void *from, size_t bytes);

	/* Makes every op ready; nothing is allocated after it. On failure all is undone. */
	int (*prepare)(struct device *d, struct program *p, struct err *e);
	void (*unprepare)(struct device *d, struct program *p);

	int (*forward)(struct device *d, struct program *p, struct err *e);
	/* Loss over the first count samples. scale multiplies dlogits, which are written when train
	 * is set: (softmax − onehot)·scale/positions for those samples, 0 for the others. */
	int (*loss)(struct device *d, struct program *p, int64_t count, float scale,
	        struct loss_result *r, struct err *e);
	int (*backward)(struct device *d, struct program *p, struct err *e);

	/* Over flat vectors. sum_squares is exact enough to compare: accumulated in double. */
	int (*sum_squares)(struct device *d, const float *x, size_t n, double *out, struct err *e);
	int (*sgd)(struct device *d, float *w, float *m, const float *g, size_t n,
	        const struct optim_args *a, struct err *e);
	int (*adamw)(struct device *d, float *w, float *m, float *v, const float *g, size_t n,
	        const struct optim_args *a, struct err *e);

	/* x += k·host, where host is host memory and x device memory. Every backend rounds twice:
	 * k·host[i] to a float, then the sum. So when two agents move towards each other by k times
	 * the same difference, one adds exactly what the other subtracts. */
	int (*add)(struct device *d, float *x, const float *host, size_t n, float k, struct err *e);

	/* Optional (NULL): choices made by timing, as text, so that a resumed run makes the same.
	 * The text is "" where nothing was chosen; choose is called before prepare. */
	const char *(*choices)(struct device *d);
	int (*choose)(struct device *d, const char *choices, struct err *e);

	/* Optional: if there is one, loss returns before its result is known; this waits for it and
	 * fills in the *r of that call. */
	int (*loss_wait)(struct device *d, struct err *e);

	/* Optional, both or neither: host memory that the device can read and write by itself while
	 * it computes. 64-byte aligned, not zeroed; NULL: out of memory. */
	void *(*host_alloc)(struct device *d, size_t bytes);
	void (*host_release)(struct device *d, void *p);

	/* Optional: copies x, as it is after all work given so far, to host memory, rounded,
	 * without waiting. *c is not needed after the call. done_cb is called once, from any
	 * thread, with 0 or ERR_DEVICE, unless this call fails. ERR_BUSY: use download instead. */
	int (*snapshot)(struct device *d, const struct device_copy *c, struct err *e);

	/* Optional: begins to copy to the device what the next update will add, while the device
	 * computes. The caller may reuse the memory when an update has added a part of it, when the
	 * next stage returns, or when done_cb was called (once, as for snapshot). One at a time:
	 * the next stage replaces it, and what an update has added or skipped is no longer staged.
	 * *s is not needed after the call. ERR_BUSY: use `add` instead. */
	int (*stage)(struct device *d, const struct device_stage *s, struct err *e);

	/* Optional, both or neither, and only with host_alloc: makes input and labels of a program
	 * from a batch of bytes, augmented and converted as by augment_apply; rows after its count
	 * keep their values. images_ahead begins to copy a batch to the device while it computes;
	 * images uses that copy, or makes one. A batch is identified by the address of its pixels.
	 * It must not change from images_ahead on until the device has finished images, or until
	 * host_release. */
	int (*images_ahead)(struct device *d, const struct device_images *b, struct err *e);
	int (*images)(
	        struct device *d, struct program *p, const struct device_images *b, struct err *e);

	/* Optional: waits until all work is done, snapshots included, and returns the device's
	 * first failure, which upload and download cannot report. After a failure download gives
	 * zeros. */
	int (*settle)(struct device *d, struct err *e);
};

/* spec: "auto", "cpu", "plain", "cuda" or "cuda:N". auto takes a GPU when there is one. why (may
 * be NULL) receives one line: what was chosen, and why. */
int device_open(struct device **out, const char *spec, const struct device_config *c, char why[160],
        struct err *e) MUST_CHECK;
void device_close(struct device *d);

#endif
