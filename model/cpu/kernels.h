/* SPDX-License-Identifier: MIT */
/* The cpu backend's own loops. The file is compiled once per instruction set, plain, x86-64-v3
 * (AVX2) and x86-64-v4 (AVX-512), and the best table that the processor can run is taken at start.
 * Each function works on a range that its caller chose; none allocates or waits. */
#ifndef DUNLIN_MODEL_CPU_KERNELS_H
#define DUNLIN_MODEL_CPU_KERNELS_H

#include "model/device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A window over images: in (h, w, c), out (oh, ow, c), channels last. */
struct window {
	int64_t h, w, c, oh, ow, kernel, stride, pad;
};

struct cpu_kernels {
	const char *name;

	void (*relu)(float *y, const float *x, size_t n);
	void (*mask)(float *d, const float *x, size_t n); /* d = x > 0 ? d : 0 */
	void (*add)(float *y, const float *a, const float *b, size_t n, bool relu);
	void (*gelu)(float *y, const float *x, size_t n);
	void (*gelu_backward)(float *dx, const float *dy, const float *x, size_t n);
	void (*gelu_tanh)(float *y, const float *x, size_t n);
	void (*gelu_tanh_backward)(float *dx, const float *dy, const float *x, size_t n);

	/* Element i of the whole tensor is kept or dropped by (seed, i) alone; these are elements
	 * [first, first + n). keep_below: of 2^32. */
	void (*dropout)(float *y, const float *x, size_t first, size_t n, uint64_t seed,
	        uint32_t keep_below, float scale);

	/* y (rows, cols of ld): y += b, then relu. */
	void (*bias)(float *y, const float *b, size_t rows, size_t cols, size_t ld, bool relu);
	/* sum over rows of y (rows, cols of ld) into s, added to it when accumulate. */
	void (*column_sum)(
	        float *s, const float *y, size_t rows, size_t cols, size_t ld, bool accumulate);
	/* As mask, over a (rows, cols) part of matrices with leading dimension ld. */
	void (*mask_part)(float *d, const float *x, size_t rows, size_t cols, size_t ld);

	/* Max pool of one image; which: where each maximum was, for the backward pass. The 2×2 pool
	 * with stride 2 and no padding has loops of its own; which then is one byte per output,
	 * else a 32-bit position per output. mask: also set dx to 0 where y is not > 0. */
	void (*max_pool2)(float *y, uint8_t *which, const float *x, const struct window *s);
	void (*max_pool2_backward)(float *dx, const uint8_t *which, const float *dy, const float *y,
	        const struct window *s, bool mask);
	void (*max_pool)(float *y, int32_t *which, const float *x, const struct window *s);
	void (*max_pool_backward)(
	        float *dx, const int32_t *which, const float *dy, const struct window *s);
	void (*avg_pool)(float *y, const float *x, const struct window *s);
	void (*avg_pool_backward)(float *dx, const float *dy, const struct window *s);
	void (*global_pool)(float *y, const float *x, size_t pixels, size_t c);
	void (*global_pool_backward)(float *dx, const float *dy, size_t pixels, size_t c);

	/* Over the rows of x (rows, cols): each column's mean and Σ(x − mean)²; 0 of no rows. Room
	 * for cols floats in a, b, c. */
	void (*moments)(const float *x, size_t rows, size_t cols, double *mean, double *squares,
	        float *a, float *b, float *c);
	/* Over the rows: Σd and Σd·(x − mean) of each column. Room in a, b. */
	void (*products)(const float *d, const float *x, const float *mean, size_t rows,
	        size_t cols, double *sum, double *dot, float *a, float *b);
	/* y = a·x + b by columns, then relu. */
	void (*scale_shift)(float *y, const float *x, const float *a, const float *b, size_t rows,
	        size_t cols, bool relu);
	/* dx = a·dy + b·x + c by columns. */
	void (*blend)(float *dx, const float *dy, const float *x, const float *a, const float *b,
	        const float *c, size_t rows, size_t cols);
	/* Each row of (rows, cols) by itself: y = γ·x̂ + β; stat (rows, 2) is mean, 1/√(σ² + ε).
	 * Backward: dx (may be NULL), and what is added to dγ and dβ. */
	void (*layer_norm)(float *y, const float *x, const float *gamma, const float *beta,
	        size_t rows, size_t cols, double eps, float *stat);
	void (*layer_norm_backward)(float *dx, const float *dy, const float *x, const float *gamma,
	        const float *stat, size_t rows, size_t cols, float *dgamma, float *dbeta);
	/* (t, t) scores: row i's first i + 1 become the softmax of their products with scale, the
	 * others 0. Backward: d is dP before and dS after. */
	void (*causal_softmax)(float *s, size_t t, float scale);
	void (*causal_softmax_backward)(float *d, const float *p, size_t t, float scale);
	/* One image: every stride-th pixel, its c channels followed by zeros up to oc; and back. */
	void (*shortcut)(float *y, const float *x, const struct window *s, size_t oc);
	void (*shortcut_backward)(float *dx, const float *dy, const struct window *s, size_t oc);

	/* out (cols, rows) = the transpose of in (rows, cols). */
	void (*transpose)(float *out, const float *in, size_t rows, size_t cols);

	/* One row of logits. Returns the loss; d (may be NULL) = (softmax − onehot)·scale. */
	double (*softmax_loss)(const float *z, size_t classes, int32_t label, float *d, float scale,
	        bool *correct);

	double (*sum_squares)(const float *x, size_t n);
	void (*sum_into)(float *sum, const float *part, size_t n);
	/* x += k·h, rounded twice on every processor. */
	void (*add_scaled)(float *x, const float *h, size_t n, float k);
	void (*sgd)(float *w, float *m, const float *g, size_t n, const struct optim_args *a);
	void (*adamw)(
	        float *w, float *m, float *v, const float *g, size_t n, const struct optim_args *a);
};

extern const struct cpu_kernels cpu_kernels_base, cpu_kernels_v3, cpu_kernels_v4;

#endif
