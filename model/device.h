/* SPDX-License-Identifier: MIT */
/* Where a model runs: a backend behind a small table of functions. model/net.c plans what to run
 * (memory, order, which gradient is added to which); a backend only has to run it.
 *
 * A backend is one const struct backend. "cpu" and "plain" are linked in; others come as plugins,
 * shared objects named dunlin-NAME.so in the plugin folder, whose only exported symbol is
 * `dunlin_backend`, a struct backend with the same abi number.
 *
 * Memory that alloc gives is the device's: the host may touch it only through upload and download.
 * No function here is called from two threads at once for one device, but any number of devices
 * may be open in one process. */
#ifndef DUNLIN_MODEL_DEVICE_H
#define DUNLIN_MODEL_DEVICE_H

#include "agent/base/err.h"
#include "model/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKEND_ABI 1

struct device_config {
	int index;          /* of several devices of that kind */
	int threads;        /* cpu: 1 or more; 0: as many as there are cores */
	bool deterministic; /* no choice that depends on timing */
};

struct device {
	const struct backend *backend;
	char text[96]; /* for people: "cpu (oneDNN 2.6.3, 2 threads)" */
};

/* A node made ready to run on a batch. Pointers are device memory, planned by net.c. */
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
	const float *input;    /* (B, input shape) */
	const int32_t *labels; /* (B), device memory */
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
};

struct backend {
	int abi;
	const char *name;

	int (*open)(struct device **out, const struct device_config *c, struct err *e);
	void (*close)(struct device *d);

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

	/* Optional (NULL): choices made by timing, as text, so that a resumed run makes the same.
	 * The text is "" where nothing was chosen; choose is called before prepare. */
	const char *(*choices)(struct device *d);
	int (*choose)(struct device *d, const char *choices, struct err *e);
};

/* spec: "auto", "cpu", "plain", "cuda" or "cuda:N". auto takes a GPU when there is one. why
 * (may be NULL) receives one line that says what was chosen and for what reason. */
int device_open(struct device **out, const char *spec, const struct device_config *c, char why[160],
        struct err *e) MUST_CHECK;
void device_close(struct device *d);

#endif
