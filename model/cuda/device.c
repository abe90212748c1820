/* SPDX-License-Identifier: MIT */
/* The GPU backend's table, and the life of a device: open, memory, failures, close.
 *
 * The happy path: open finds the device and makes streams, handles and pinned memory; graph.c
 * reserves what a model needs (run.c computes it) and takes its vectors by alloc; prepare makes the
 * plans; after that, steps allocate nothing.
 *
 * What can fail: any call, since a GPU may be absent, full, or fall off the bus. A lack of memory
 * is reported with its size and leaves the device as it was. Every other failure is kept and
 * returned by all later calls, because no result of the device can be trusted after it. */
#include "model/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPABILITY_LEAST 75 /* the lowest that the kernels are built for */

extern const struct backend dunlin_backend;

int cuda_fail(struct cuda_device *d, const struct err *first, struct err *e)
{
	if (d->first.code == 0) {
		d->first = *first;
		cuda_answer_settle(d);
	}
	if (e)
		*e = d->first;
	return d->first.code;
}

/* "cuda:0: conv1 forward: cudaMemcpyAsync: an illegal memory access was encountered (…)" */
static int tell(
        struct cuda_device *d, const char *call, const char *text, const char *name, struct err *e)
{
	struct err first;
	err_set(&first, ERR_DEVICE, "cuda:%d: %.80s%s%s: %.*s: %s%s%s%s", d->index, d->where,
	        d->where[0] ? " " : "", d->what, (int)strcspn(call, "("), call, text,
	        name ? " (" : "", name ? name : "", name ? ")" : "");
	return cuda_fail(d, &first, e);
}

int cuda_runtime(struct cuda_device *d, cudaError_t s, const char *call, struct err *e)
{
	if (s == cudaSuccess)
		return 0;
	return tell(d, call, cudaGetErrorString(s), cudaGetErrorName(s), e);
}

int cuda_blas(struct cuda_device *d, cublasStatus_t s, const char *call, struct err *e)
{
	if (s == CUBLAS_STATUS_SUCCESS)
		return 0;
	return tell(d, call, cublasGetStatusString(s), NULL, e);
}

int cuda_dnn(struct cuda_device *d, cudnnStatus_t s, const char *call, struct err *e)
{
	char more[120] = "";
	if (s == CUDNN_STATUS_SUCCESS)
		return 0;
	cudnnGetLastErrorString(more, sizeof more);
	return tell(d, call, cudnnGetErrorString(s), more[0] ? more : NULL, e);
}

int cuda_enter(struct cuda_device *d, const char *what, struct err *e)
{
	if (d->first.code)
		return cuda_fail(d, &d->first, e);
	d->where = "";
	d->what = what;
	return CUDA(cudaSetDevice(d->index));
}

/* Waits for all streams even if one fails: their memory is freed next. */
int cuda_idle(struct cuda_device *d, struct err *e)
{
	cudaStream_t const streams[] = {d->up, d->compute, d->down};
	int rc = 0;
	for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
		if (streams[i] && CUDA(cudaStreamSynchronize(streams[i])) != 0)
			rc = d->first.code;
	return rc;
}

static void *alloc(struct device *dev, size_t bytes)
{
	struct cuda_device *d = cuda(dev);
	struct err none, *e = &none;
	void *p;
	if (cuda_enter(d, "memory", e) != 0 || cuda_take(d, &p, bytes, e) != 0)
		return NULL;
	if (CUDA(cudaMemsetAsync(p, 0, bytes ? bytes : 1, d->compute)) != 0) {
		cuda_drop(d, p);
		return NULL;
	}
	return p;
}

/* Work that still reads or writes it must end first. */
static void release(struct device *dev, void *p)
{
	struct cuda_device *d = cuda(dev);
	if (!p)
		return;
	(void)cudaSetDevice(d->index);
	(void)!cuda_idle(d, NULL);
	cuda_drop(d, p);
}

static void close_device(struct device *dev)
{
	struct cuda_device *d = cuda(dev);
	(void)cudaSetDevice(d->index);
	(void)!cuda_idle(d, NULL);
	cuda_answer_settle(d);
	cuda_copy_close(d);
	conv_plan_free_all(&d->plans);
	if (d->dnn)
		(void)cudnnDestroy(d->dnn);
	if (d->blas)
		(void)cublasDestroy(d->blas);
	cuda_drop(d, d->blas_space);
	cuda_drop(d, d->column_parts);
	cuda_drop(d, d->losses);
	cuda_arena_close(d);
	if (d->down)
		(void)cudaStreamDestroy(d->down);
	if (d->compute)
		(void)cudaStreamDestroy(d->compute);
	if (d->up)
		(void)cudaStreamDestroy(d->up);
	free(d);
}

static int find(struct cuda_device *d, struct err *e)
{
	struct cudaDeviceProp is;
	int n = 0;
	cudaError_t s = cudaGetDeviceCount(&n);
	if (s != cudaSuccess || n == 0)
		return err_set(e, ERR_NOTFOUND, "no GPU for cuda: %s",
		        s != cudaSuccess ? cudaGetErrorString(s) : "none is there");
	if (d->index >= n)
		return err_set(e, ERR_NOTFOUND, "there is no cuda:%d, only %d GPU%s", d->index, n,
		        n == 1 ? "" : "s");
	int rc = CUDA(cudaGetDeviceProperties(&is, d->index));
	if (rc)
		return rc;
	if (is.major * 10 + is.minor < CAPABILITY_LEAST)
		return err_set(e, ERR_UNSUPPORTED,
		        "cuda:%d, %.48s, is of compute capability %d.%d; 7.5 is the least",
		        d->index, is.name, is.major, is.minor);
	size_t dnn = cudnnGetVersion();
	snprintf(d->base.text, sizeof d->base.text, "cuda:%d (%.40s, sm_%d%d, cuDNN %zu.%zu%s)",
	        d->index, is.name, is.major, is.minor, dnn / 10000, dnn / 100 % 100,
	        d->tf32 ? ", TF32" : "");
	return 0;
}

static int open_libraries(struct cuda_device *d, struct err *e)
{
	cublasMath_t math = d->tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH;
	int rc = CUDA(cudaStreamCreateWithFlags(&d->up, cudaStreamNonBlocking));
	if (rc == 0)
		rc = CUDA(cudaStreamCreateWithFlags(&d->compute, cudaStreamNonBlocking));
	if (rc == 0)
		rc = CUDA(cudaStreamCreateWithFlags(&d->down, cudaStreamNonBlocking));
	if (rc == 0)
		rc = cuda_take(d, &d->blas_space, CUDA_BLAS_BYTES, e);
	if (rc == 0)
		rc = BLAS(cublasCreate(&d->blas));
	if (rc == 0)
		rc = BLAS(cublasSetStream(d->blas, d->compute));
	/* Behind the stream, which resets it. With memory of our own the sums keep their order. */
	if (rc == 0)
		rc = BLAS(cublasSetWorkspace(d->blas, d->blas_space, CUDA_BLAS_BYTES));
	if (rc == 0)
		rc = BLAS(cublasSetMathMode(d->blas, math));
	if (rc == 0)
		rc = DNN(cudnnCreate(&d->dnn));
	if (rc == 0)
		rc = DNN(cudnnSetStream(d->dnn, d->compute));
	return rc;
}

static int open_device(struct device **out, const struct device_config *c, struct err *e)
{
	struct cuda_device *d = calloc(1, sizeof *d);
	*out = NULL;
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for a device");
	d->base.backend = &dunlin_backend;
	d->index = c->index;
	d->tf32 = c->tf32;
	d->where = "";
	d->what = "open";
	int rc = find(d, e);
	if (rc) { /* no other call before this: there may be no driver */
		free(d);
		return rc;
	}
	size_t left;
	(void)cudaGetLastError(); /* an earlier device's: not for this one's launches */
	rc = cuda_enter(d, "open", e);
	if (rc == 0)
		rc = cuda_reserve(d, CUDA_OPEN_BYTES, &left, e);
	if (rc == 0)
		rc = open_libraries(d, e);
	if (rc == 0)
		rc = cuda_copy_open(d, e);
	if (rc) {
		close_device(&d->base);
		return rc;
	}
	*out = &d->base;
	return 0;
}

static int loss(struct device *dev, struct program *p, int64_t count, float scale,
        struct loss_result *r, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "loss", e);
	*r = (struct loss_result){.count = count};
	if (rc)
		return rc;
	rc = CUDA(kernel_loss(p->logits, p->labels, (uint32_t)p->batch, (uint32_t)count,
	        (uint32_t)p->classes, scale, p->train ? p->dlogits : NULL, d->losses,
	        (int32_t *)(d->losses + p->batch), d->numbers->loss, d->compute));
	if (rc == 0)
		rc = cuda_ask(d, offsetof(struct cuda_numbers, loss), sizeof d->numbers->loss, e);
	d->promised = rc == 0 ? r : NULL;
	return rc;
}

static int loss_wait(struct device *dev, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "loss", e);
	if (rc == 0 && d->promised) {
		rc = CUDA(cudaEventSynchronize(d->answered));
		d->promised->loss_sum = rc ? 0 : d->numbers_host->loss[0];
		d->promised->correct = rc ? 0 : (int64_t)d->numbers_host->loss[1];
	}
	d->promised = NULL;
	return rc;
}

static int sum_squares(struct device *dev, const float *x, size_t n, double *out, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "sum of squares", e);
	*out = 0;
	if (rc == 0)
		rc = CUDA(kernel_sum_squares(x, n, d->parts, &d->numbers->squares, d->compute));
	if (rc == 0)
		rc = cuda_ask(
		        d, offsetof(struct cuda_numbers, squares), sizeof d->numbers->squares, e);
	if (rc == 0)
		rc = CUDA(cudaEventSynchronize(d->answered));
	if (rc == 0)
		*out = d->numbers_host->squares;
	return rc;
}

static int sgd(struct device *dev, float *w, float *m, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	struct cuda_sgd s = {.lr = a->lr,
	        .momentum = a->momentum,
	        .weight_decay = a->weight_decay,
	        .grad_scale = a->grad_scale,
	        .look = a->nesterov ? a->momentum : 1,
	        .grad = a->nesterov ? 1 : 0,
	        .add_k = a->add_k};
	int rc = cuda_enter(d, "sgd", e);
	if (rc == 0)
		rc = cuda_staged(d, a->add, n, &s.add, e);
	if (rc == 0)
		rc = CUDA(kernel_sgd(w, m, g, n, s, d->compute));
	return rc ? rc : cuda_stage_used(d, a->add, n, e);
}

static int adamw(struct device *dev, float *w, float *m, float *v, const float *g, size_t n,
        const struct optim_args *a, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	struct cuda_adamw s = {.beta1 = a->beta1,
	        .beta2 = a->beta2,
	        .eps = a->eps,
	        .grad_scale = a->grad_scale,
	        .shrink = 1 - a->lr * a->weight_decay,
	        .step = a->lr / a->bias1,
	        .root = 1 / __builtin_sqrtf(a->bias2),
	        .add_k = a->add_k};
	int rc = cuda_enter(d, "adamw", e);
	if (rc == 0)
		rc = cuda_staged(d, a->add, n, &s.add, e);
	if (rc == 0)
		rc = CUDA(kernel_adamw(w, m, v, g, n, s, d->compute));
	return rc ? rc : cuda_stage_used(d, a->add, n, e);
}

static int settle(struct device *dev, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "end", e);
	if (rc == 0)
		rc = cuda_idle(d, e);
	cuda_answer_settle(d);
	return rc == 0 && d->first.code ? cuda_fail(d, &d->first, e) : rc;
}

const struct backend dunlin_backend __attribute__((visibility("default"))) = {
        .abi = BACKEND_ABI,
        .name = "cuda",
        .open = open_device,
        .close = close_device,
        .reserve = cuda_reserve_all,
        .alloc = alloc,
        .release = release,
        .upload = cuda_upload,
        .download = cuda_download,
        .prepare = cuda_prepare,
        .unprepare = cuda_unprepare,
        .forward = cuda_forward,
        .loss = loss,
        .backward = cuda_backward,
        .sum_squares = sum_squares,
        .sgd = sgd,
        .adamw = adamw,
        .add = cuda_add,
        .loss_wait = loss_wait,
        .host_alloc = cuda_host_alloc,
        .host_release = cuda_host_release,
        .snapshot = cuda_snapshot,
        .stage = cuda_stage,
        .images_ahead = cuda_images_ahead,
        .images = cuda_images,
        .settle = settle,
};
