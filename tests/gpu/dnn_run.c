/* SPDX-License-Identifier: MIT */
/* Runs a plan whose graph is one convolution, forward or backward, on the host: sums in double, any
 * strides. The workspace is written over, as the library is free to. */
#include "tests/gpu/dnn.h"

#include <stdlib.h>
#include <string.h>

enum { X, W, Y, TENSORS };
enum kind { FORWARD, DATA, FILTER };

struct tensor {
	int64_t id, dim[4], stride[4];
	size_t bytes;
	void *at; /* device */
};

struct convolution {
	enum kind kind;
	struct tensor t[TENSORS];
	int64_t pad[2], stride[2], dilation[2];
	float alpha;
	bool flip;
	void *space;
	int64_t space_bytes;
};

struct names {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t tensor[TENSORS], convolution, alpha, beta;
};
static const struct names names[] = {
        [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};
static const int written[] = {[FORWARD] = Y, [DATA] = X, [FILTER] = W};

static size_t place(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
	return (size_t)(a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3]);
}

struct views {
	const float *x, *w, *y;
	double *sum;
};

/* One output pixel of one filter: all that it has to do with. */
static void pixel(const struct convolution *c, const struct views *v, int64_t n, int64_t k,
        int64_t p, int64_t q)
{
	const struct tensor *x = &c->t[X], *w = &c->t[W], *y = &c->t[Y];
	size_t out = place(y, n, k, p, q);
	for (int64_t ch = 0; ch < w->dim[1]; ch++)
		for (int64_t r = 0; r < w->dim[2]; r++)
			for (int64_t s = 0; s < w->dim[3]; s++) {
				int64_t i = p * c->stride[0] - c->pad[0] + r * c->dilation[0];
				int64_t j = q * c->stride[1] - c->pad[1] + s * c->dilation[1];
				if (i < 0 || j < 0 || i >= x->dim[2] || j >= x->dim[3])
					continue;
				size_t in = place(x, n, ch, i, j);
				size_t tap = c->flip ? place(w, k, ch, w->dim[2] - 1 - r,
				                               w->dim[3] - 1 - s)
				                     : place(w, k, ch, r, s);
				if (c->kind == FORWARD)
					v->sum[out] += (double)v->x[in] * v->w[tap];
				else if (c->kind == DATA)
					v->sum[in] += (double)v->y[out] * v->w[tap];
				else
					v->sum[tap] += (double)v->x[in] * v->y[out];
			}
}

static void run(void *arg)
{
	const struct convolution *c = arg;
	const struct tensor *y = &c->t[Y], *to = &c->t[written[c->kind]];
	float *at[TENSORS];
	size_t n = to->bytes / sizeof(float);
	for (int i = 0; i < TENSORS; i++) {
		at[i] = gpu_use(c->t[i].at, c->t[i].bytes, i == written[c->kind], "convolution");
		if (!at[i])
			return;
	}
	if (c->space_bytes) {
		void *space = gpu_use(c->space, (size_t)c->space_bytes, true, "workspace");
		if (space)
			memset(space, 0xff, (size_t)c->space_bytes);
	}
	struct views v = {at[X], at[W], at[Y], calloc(n, sizeof(double))};
	if (!v.sum)
		gpu_die("no memory");
	for (int64_t b = 0; b < y->dim[0]; b++)
		for (int64_t k = 0; k < y->dim[1]; k++)
			for (int64_t p = 0; p < y->dim[2]; p++)
				for (int64_t q = 0; q < y->dim[3]; q++)
					pixel(c, &v, b, k, p, q);
	for (size_t i = 0; i < n; i++)
		at[written[c->kind]][i] = (float)(c->alpha * v.sum[i]);
	free(v.sum);
}

/* ---- from descriptors */

static const struct dnn_descriptor *one(const struct dnn_descriptor *d, int name)
{
	const struct dnn_descriptor *const *p = d ? dnn_get(d, name, 1) : NULL;
	return p ? *p : NULL;
}

static bool read_tensor(struct tensor *t, const struct dnn_descriptor *d)
{
	const int64_t *id = d ? dnn_get(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1) : NULL;
	const int64_t *dim = d ? dnn_get(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4) : NULL;
	const int64_t *stride = d ? dnn_get(d, CUDNN_ATTR_TENSOR_STRIDES, 4) : NULL;
	const cudnnDataType_t *type = d ? dnn_get(d, CUDNN_ATTR_TENSOR_DATA_TYPE, 1) : NULL;
	if (!id || !dim || !stride || !type || *type != CUDNN_DATA_FLOAT)
		return false;
	t->id = *id;
	t->bytes = sizeof(float);
	for (int i = 0; i < 4; i++) {
		t->dim[i] = dim[i];
		t->stride[i] = stride[i];
		t->bytes += (size_t)((dim[i] - 1) * stride[i]) * sizeof(float);
	}
	return true;
}

static bool read_pair(int64_t out[2], const struct dnn_descriptor *d, int name)
{
	const int64_t *p = dnn_get(d, name, 2);
	if (p)
		memcpy(out, p, 2 * sizeof *p);
	return p != NULL;
}

static bool read_graph(struct convolution *c, const struct dnn_descriptor *op)
{
	const struct names *n = names;
	while (n < names + 3 && op && n->type != op->type)
		n++;
	if (!op || n == names + 3) {
		gpu_fault("cudnn", "a graph that is not one convolution is not known here");
		return false;
	}
	c->kind = (enum kind)(n - names);
	for (int i = 0; i < TENSORS; i++)
		if (!read_tensor(&c->t[i], one(op, (int)n->tensor[i])))
			return false;
	const struct dnn_descriptor *conv = one(op, (int)n->convolution);
	const float *alpha = dnn_get(op, (int)n->alpha, 1), *beta = dnn_get(op, (int)n->beta, 1);
	const cudnnConvolutionMode_t *mode =
	        conv ? dnn_get(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 1) : NULL;
	if (!conv || !alpha || !beta || !mode ||
	        !read_pair(c->pad, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) ||
	        !read_pair(c->stride, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) ||
	        !read_pair(c->dilation, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS))
		return false;
	if (*beta != 0 || c->t[W].dim[1] != c->t[X].dim[1]) {
		gpu_fault("cudnn", "beta and groups are not known here");
		return false;
	}
	c->alpha = *alpha;
	c->flip = *mode == CUDNN_CONVOLUTION;
	return true;
}

static bool bind(struct convolution *c, const struct dnn_descriptor *pack)
{
	const int64_t *ids = dnn_get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, TENSORS);
	void *const *data = dnn_get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, TENSORS);
	void *const *space = dnn_get(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1);
	if (!ids || !data || !space)
		return false;
	for (int i = 0; i < TENSORS; i++)
		for (int j = 0; j < TENSORS; j++)
			if (ids[j] == c->t[i].id)
				c->t[i].at = data[j];
	c->space = *space;
	for (int i = 0; i < TENSORS; i++) {
		if (!gpu_range_ok(c->t[i].at, c->t[i].bytes, "convolution"))
			return false;
		if ((uintptr_t)c->t[i].at % 16 != 0) {
			gpu_fault("cudnn", "a tensor is not aligned as its descriptor says");
			return false;
		}
	}
	return !c->space_bytes || gpu_range_ok(c->space, (size_t)c->space_bytes, "workspace");
}

cudnnStatus_t dnn_execute(
        cudnnHandle_t h, const struct dnn_descriptor *plan, const struct dnn_descriptor *pack)
{
	static const char *const words[] = {
	        "convolution", "convolution of gradients", "convolution for filters"};
	if (!plan->final || !pack->final) {
		gpu_fault("cudnn", "a plan is executed that is not final");
		return CUDNN_STATUS_BAD_PARAM;
	}
	const struct dnn_descriptor *config = one(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	const struct dnn_descriptor *graph = config ? config->graph : NULL;
	if (config && config->own && !config->own->exact)
		gpu_fault("cudnn", "an engine is run that is not exact, by its notes");
	struct convolution *c = calloc(1, sizeof *c);
	if (!c)
		gpu_die("no memory");
	c->space_bytes = dnn_workspace(plan);
	if (!graph || !read_graph(c, one(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)) || !bind(c, pack)) {
		free(c);
		return CUDNN_STATUS_EXECUTION_FAILED;
	}
	return gpu_push(h->stream, words[c->kind], run, c) ? CUDNN_STATUS_SUCCESS
	                                                   : CUDNN_STATUS_EXECUTION_FAILED;
}
