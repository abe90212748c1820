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

#define BACKEND_ABI 7
#define DEVICE_GROUPS_MAX 33 /* of one stage */

struct device_config {
	int index;          /* of several devices of that kind */
	int threads;        /* cpu: 1 or more; 0: cores_usable */
	bool deterministic; /* no choice that depends on timing */
	bool tf32;          /* cuda: products may round their inputs to 10 bits, which is faster */
};

struct device {
	const struct backend *backend;
	char text[96]; /* for people: "cpu (oneDNN 2.6.3, 2 threads)" */
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
	const float *x[LAYER_INPUTS_MAX];
	float *y;
	float *dy;                   /* overwritten where mask_dy is set */
	float *dx[LAYER_INPUTS_MAX]; /* NULL where nobody wants it */
	const float *w, *b;
	float *dw, *db;
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

/* Softmax cross-entropy over the last op's output, logits (B, classes). */
struct loss_result {
	double loss_sum; /* over the samples counted */
	int64_t correct;
	int64_t count;
};

struct program {
	struct op *ops; /* in forward order */
	int n_ops;
	struct backward_step *backward;
	int n_backward;
	int64_t batch, classes;
	struct shape shape; /* of one sample */
	float *input;       /* (B, shape) */
	int32_t *labels;    /* (B), device memory */
	const float *logits;
	float *dlogits;
	bool train;            /* dropout on */
	uint64_t dropout_seed; /* of this step */
	bool accumulate;       /* add to the gradients instead of replacing them */
};

struct optim_args {
	float lr, momentum, weight_decay, beta1, beta2, eps;
	float grad_scale;   /* clipping */
	float bias1, bias2; /* AdamW: 1 − β^t */
	bool nesterov;
	/* NULL, or what is added behind the update, rounded as by `add`: w += add_k·add. The host's
	 * memory, a part of what was given to `stage`: anything else is ERR_INVALID, and nothing
	 * is updated. The caller's again when the update has returned. */
	const float *add;
	float add_k;
};

/* What reserve found, in bytes. */
struct device_room {
	size_t wanted; /* in all */
	size_t fixed;  /* of which so much for any batch, as far as prepare is concerned */
	size_t left;   /* that the device has, where that is not enough */
};

/* How a copy for peers is rounded; the numbers are the wire's (net/bulk/convert.h). */
enum copy_format { COPY_FP32, COPY_BF16 };

/* A copy of n floats of device memory, and a sketch of the first n_sketch of them, as they are
 * copied: rounded. */
struct device_copy {
	const float *x;
	size_t n;
	enum copy_format format;
	void *to;      /* memory of host_alloc where there is one: n words, little-endian */
	/* NULL: none is wanted; else room for its buckets (gossip/policy/sketch.h) */
	float *sketch;
	size_t n_sketch;
	void (*done_cb)(void *arg, int rc);
	void *arg;
};

/* What an update is to add: n floats of the host's, in memory of host_alloc. With done_cb the
 * device also measures them: the sums of their squares, in double, for groups that follow each
 * other (what lies behind the last end is in none), and a sketch of the first n_sketch. */
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

	/* Optional: makes room at once for n pieces that alloc will be asked for, and for what
	 * prepare will need for p (NULL: nothing), whose ops have no memory yet. ERR_NOMEM, and
	 * nothing is taken: it does not fit. What is not reserved can be had all the same, piece by
	 * piece. */
	int (*reserve)(struct device *d, const struct program *p, const size_t *bytes, int n,
	        struct device_room *r, struct err *e);

	/* Zeroed, 64-byte aligned; NULL when there is no more. */
	void *(*alloc)(struct device *d, size_t bytes);
	void (*release)(struct device *d, void *p);
	void (*upload)(struct device *d, void *to, const void *from, size_t bytes);
	void (*download)(struct device *d, void *to, const void *from, size_t bytes);

	/* Makes every op ready; nothing is allocated after it. On failure all is undone. */
	int (*prepare)(struct device *d, struct program *p, struct err *e);
	void (*unprepare)(struct device *d, struct program *p);

	int (*forward)(struct device *d, struct program *p, struct err *e);
	/* Loss over the first count rows. scale multiplies dlogits, which are written when train is
	 * set: (softmax − onehot)·scale for those rows, 0 for the others. */
	int (*loss)(struct device *d, struct program *p, int64_t count, float scale,
	        struct loss_result *r, struct err *e);
	int (*backward)(struct device *d, struct program *p, struct err *e);

	/* Over flat vectors. sum_squares is exact enough to compare: accumulated in double. */
	int (*sum_squares)(struct device *d, const float *x, size_t n, double *out, struct err *e);
	int (*sgd)(struct device *d, float *w, float *m, const float *g, size_t n,
	        const struct optim_args *a, struct err *e);
	int (*adamw)(struct device *d, float *w, float *m, float *v, const float *g, size_t n,
	        const struct optim_args *a, struct err *e);

	/* x += k·host, host being the host's memory and x the device's. Two roundings everywhere,
	 * of k·host[i] to a float and of the sum, so that of two agents that move towards each
	 * other by k times the same difference one adds exactly what the other takes away. */
	int (*add)(struct device *d, float *x, const float *host, size_t n, float k, struct err *e);

	/* Optional (NULL): choices made by timing, as text, so that a resumed run makes the same.
	 * The text is "" where nothing was chosen; choose is called before prepare. */
	const char *(*choices)(struct device *d);
	int (*choose)(struct device *d, const char *choices, struct err *e);

	/* Optional: loss only promises its result, which is in *r after this. */
	int (*loss_wait)(struct device *d, struct err *e);

	/* Optional, both or neither: memory of the host's that the device reads and writes by
	 * itself while it computes. 64-byte aligned, not zeroed; NULL when there is no more. */
	void *(*host_alloc)(struct device *d, size_t bytes);
	void (*host_release)(struct device *d, void *p);

	/* Optional: x as it is when the work so far is done, rounded, into the host's memory,
	 * without waiting for it. *c may be gone after the call. done_cb is called once, from any
	 * thread, with 0 or ERR_DEVICE, unless this call fails; ERR_BUSY means that download has to
	 * do. */
	int (*snapshot)(struct device *d, const struct device_copy *c, struct err *e);

	/* Optional: begins to copy up what the next update will add, while the device computes. It
	 * is the caller's again when an update has added a part of it, when the next stage returns,
	 * or when done_cb was called: once, as of snapshot. One at a time: the next stage takes its
	 * place, and what an update has added, or passed over, is not staged any more. *s may be
	 * gone after the call. ERR_BUSY means that `add` has to do. */
	int (*stage)(struct device *d, const struct device_stage *s, struct err *e);

	/* Optional, both or neither, and only with host_alloc: input and labels of a program from a
	 * batch of bytes, moved and converted as by augment_apply; rows behind its count stay as
	 * they are. images_ahead only begins to copy one up, while the device computes; images
	 * takes it from there, or copies it if it has not begun. A batch is known by its pixels'
	 * address. It must stay as it is until the device is done with images, hence from
	 * images_ahead on; only host_release ends that sooner. */
	int (*images_ahead)(struct device *d, const struct device_images *b, struct err *e);
	int (*images)(
	        struct device *d, struct program *p, const struct device_images *b, struct err *e);

	/* Optional: waits until all that was asked for is done, snapshots included, and returns the
	 * device's first failure: upload and download cannot. What download gave after a failure
	 * is zeros. */
	int (*settle)(struct device *d, struct err *e);
};

/* spec: "auto", "cpu", "plain", "cuda" or "cuda:N". auto takes a GPU when there is one. why
 * (may be NULL) receives one line that says what was chosen and for what reason. */
int device_open(struct device **out, const char *spec, const struct device_config *c, char why[160],
        struct err *e) MUST_CHECK;
void device_close(struct device *d);

#endif
