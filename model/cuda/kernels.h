/* SPDX-License-Identifier: MIT */
/* The plugin's own kernels, as plain C functions that launch them. Each only puts work into the
 * stream and returns the launch's status. None waits or allocates. None uses atomics, so the same
 * input gives the same bits. Pointers are device memory. Tensors have less than 2^31 elements
 * (prepare checks it); flat vectors may have more. */
#ifndef DUNLIN_MODEL_CUDA_KERNELS_H
#define DUNLIN_MODEL_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of a sum over a flat vector: the same on every device, so that all round alike. */
#define KERNELS_SUM_BLOCKS 128
#define KERNELS_SKETCH_PARTS 64
#define KERNELS_SKETCH_BUCKETS 256 /* agent/base/sketch_hash.h's */
/* Parts that a column's sum is made of, at most. */
#define KERNELS_COLUMN_PARTS 64
#define KERNELS_BYTE_VALUES 256

/* A window over images: in (batch, h, w, c), out (batch, oh, ow, c), channels last. */
struct cuda_window {
	uint32_t batch, h, w, c, oh, ow;
	uint32_t kernel, stride, pad;
};

/* ---- batches of bytes: model/data/augment.h, without its CPU */

struct augment_move;
struct cuda_images {
	const uint8_t *pixels;            /* (count, h, w, c) */
	const struct augment_move *moves; /* (count); NULL: as they are */
	const float *table;               /* KERNELS_BYTE_VALUES */
	const int32_t *labels;            /* (count) */
	uint32_t count, h, w, c;
};
/* Into x (count, h, w, c) and labels (count). */
cudaError_t kernel_images(float *x, int32_t *labels, const struct cuda_images *b, cudaStream_t s);

/* ---- elementwise, n elements */

cudaError_t kernel_relu(float *y, const float *x, uint32_t n, cudaStream_t s);
/* dx = y > 0 ? dy : 0; d = x > 0 ? d : 0 */
cudaError_t kernel_relu_back(
        float *dx, const float *dy, const float *y, uint32_t n, cudaStream_t s);
cudaError_t kernel_mask(float *d, const float *x, uint32_t n, cudaStream_t s);
cudaError_t kernel_gelu(float *y, const float *x, uint32_t n, cudaStream_t s);
cudaError_t kernel_gelu_back(
        float *dx, const float *dy, const float *x, uint32_t n, cudaStream_t s);
/* Element i is kept by (seed, i) alone, see model/device/dropout.h. */
cudaError_t kernel_dropout(float *y, const float *x, uint32_t n, uint64_t seed, uint32_t keep_below,
        float scale, cudaStream_t s);
cudaError_t kernel_add(
        float *y, const float *a, const float *b, uint32_t n, bool relu, cudaStream_t s);
cudaError_t kernel_sum_into(float *sum, const float *part, uint32_t n, cudaStream_t s);

/* ---- rows and columns */

/* y (n / cols, cols) += b (may be NULL), then relu. */
cudaError_t kernel_bias(
        float *y, const float *b, uint32_t n, uint32_t cols, bool relu, cudaStream_t s);
/* out (cols) = the sum of y's rows, added to what is there when accumulate. parts has room for
 * KERNELS_COLUMN_PARTS × cols floats. */
cudaError_t kernel_column_sum(float *out, const float *y, uint32_t rows, uint32_t cols,
        float *parts, bool accumulate, cudaStream_t s);
/* out (batch, cols, rows) = the transposes of in (batch, rows, cols). */
cudaError_t kernel_transpose(float *out, const float *in, uint32_t batch, uint32_t rows,
        uint32_t cols, bool accumulate, cudaStream_t s);

/* ---- pools. which: where in its image each maximum was. x (may be NULL): dx is also set to 0
 * where x is not > 0. */

cudaError_t kernel_max_pool(
        float *y, int32_t *which, const float *x, const struct cuda_window *v, cudaStream_t s);
cudaError_t kernel_max_pool_back(float *dx, const float *dy, const int32_t *which, const float *x,
        const struct cuda_window *v, cudaStream_t s);
cudaError_t kernel_avg_pool(float *y, const float *x, const struct cuda_window *v, cudaStream_t s);
cudaError_t kernel_avg_pool_back(
        float *dx, const float *dy, const float *x, const struct cuda_window *v, cudaStream_t s);
/* x (batch, pixels, c), y (batch, c) */
cudaError_t kernel_global_pool(
        float *y, const float *x, uint32_t batch, uint32_t pixels, uint32_t c, cudaStream_t s);
cudaError_t kernel_global_pool_back(float *dx, const float *dy, const float *x, uint32_t batch,
        uint32_t pixels, uint32_t c, cudaStream_t s);

/* ---- loss: rows of logits z (rows, classes), of which the first count are counted. dz may be
 * NULL. losses and hits are scratch of rows elements each; sum[0] becomes the sum of the losses,
 * sum[1] the number of correct answers. */

cudaError_t kernel_loss(const float *z, const int32_t *labels, uint32_t rows, uint32_t count,
        uint32_t classes, float scale, float *dz, double *losses, int32_t *hits, double *sum,
        cudaStream_t s);

/* ---- flat vectors */

/* parts has room for KERNELS_SUM_BLOCKS doubles; sum[0] becomes the result. */
cudaError_t kernel_sum_squares(
        const float *x, size_t n, double *parts, double *sum, cudaStream_t s);

struct cuda_sgd {
	float lr, momentum, weight_decay, grad_scale;
	float look, grad; /* w -= lr·(look·m + grad·d): (1, 0), or (momentum, 1) for Nesterov */
	const float *add; /* NULL, or then w += add_k·add, as by kernel_add_scaled */
	float add_k;
};
cudaError_t kernel_sgd(
        float *w, float *m, const float *g, size_t n, struct cuda_sgd a, cudaStream_t s);

struct cuda_adamw {
	float beta1, beta2, eps, grad_scale;
	float shrink, step, root; /* 1 − lr·decay, lr / bias1, 1 / √bias2 */
	const float *add;         /* as above */
	float add_k;
};
cudaError_t kernel_adamw(float *w, float *m, float *v, const float *g, size_t n,
        struct cuda_adamw a, cudaStream_t s);

/* x += k·h, rounded twice. */
cudaError_t kernel_add_scaled(float *x, const float *h, size_t n, float k, cudaStream_t s);

/* ---- what peers are given */

/* n parameters as bf16, rounded as by net/bulk/convert.h; the last word of out is filled with
 * zeros. */
cudaError_t kernel_pack_bf16(uint32_t *out, const float *x, size_t n, cudaStream_t s);
/* sketch (KERNELS_SKETCH_BUCKETS) as by sketch_add of gossip/policy/sketch.h, but for the order of
 * the additions, which are in double. Of n floats, or as kernel_pack_bf16 made them. parts has room
 * for KERNELS_SKETCH_PARTS of such, in double. */
cudaError_t kernel_sketch(
        float *sketch, const void *x, bool bf16, size_t n, double *parts, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
