/* SPDX-License-Identifier: MIT */
/* A convolution as a graph of one operation.
 *
 *     tensors x, w, y ─┐
 *     convolution ─────┴► operation ─► graph ─► heuristics ─► configs ─► the first that suits
 *
 * The older calls with an algorithm each are deprecated, and do not tell how precise an algorithm
 * is. Engines of the graph have notes about it, and these decide: no engine whose sums depend on
 * timing, so that a resumed run has the same bits; none that rounds its inputs without --tf32.
 *
 * What can fail: a shape for which no engine is left; memory, in the library. */
#include "model/cuda/conv_plan.h"

#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t desc;

#define CONFIGS 16 /* proposals of the heuristics that are tried, at most */
_Static_assert(CONV_PLAN_PARTS >= 6 + 2 * (CONFIGS + 3), "a graph and two searches");

static int fail(cudnnStatus_t s, const char *call, struct err *e)
{
	char more[160] = "";
	size_t n = strcspn(call, "(");
	cudnnGetLastErrorString(more, sizeof more);
	return err_set(e, ERR_DEVICE, "%.*s: %s%s%s", (int)n, call, cudnnGetErrorString(s),
	        more[0] ? ": " : "", more);
}

#define TRY(call)                                       \
	do {                                            \
		cudnnStatus_t status_ = (call);         \
		if (status_ != CUDNN_STATUS_SUCCESS)    \
			return fail(status_, #call, e); \
	} while (0)

static int make(struct conv_plan *p, cudnnBackendDescriptorType_t type, desc *out, struct err *e)
{
	if (p->n_parts == CONV_PLAN_PARTS)
		return err_set(e, ERR_LIMIT, "a plan of too many parts");
	TRY(cudnnBackendCreateDescriptor(type, out));
	p->part[p->n_parts++] = *out;
	return 0;
}

static int drop_last(struct conv_plan *p, struct err *e)
{
	TRY(cudnnBackendDestroyDescriptor(p->part[--p->n_parts]));
	return 0;
}

static int make_tensor(struct conv_plan *p, int64_t id, int64_t n, int64_t c, int64_t h, int64_t w,
        desc *t, struct err *e)
{
	const int64_t dims[] = {n, c, h, w}, strides[] = {c * h * w, 1, w * c, c}, align = 16;
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;
	int rc = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, t, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(
	        *t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
	TRY(cudnnBackendSetAttribute(*t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
	TRY(cudnnBackendSetAttribute(*t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
	TRY(cudnnBackendSetAttribute(*t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
	TRY(cudnnBackendSetAttribute(
	        *t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
	TRY(cudnnBackendFinalize(*t));
	return 0;
}

static int make_convolution(
        struct conv_plan *p, const struct conv_plan_shape *s, desc *c, struct err *e)
{
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t spatial = 2, pad[] = {s->pad, s->pad}, stride[] = {s->stride, s->stride};
	const int64_t dilation[] = {1, 1};
	int rc = make(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, c, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
	TRY(cudnnBackendSetAttribute(
	        *c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
	TRY(cudnnBackendFinalize(*c));
	return 0;
}

/* The names of one operation's attributes in each direction. */
struct names {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};
static const struct names names[] = {
        [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [CONV_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static int make_graph(struct conv_plan *p, cudnnHandle_t h, enum conv_plan_kind kind,
        const struct conv_plan_shape *s, desc *graph, struct err *e)
{
	const struct names *n = &names[kind];
	const float one = 1, zero = 0;
	desc x, w, y, convolution, op;
	int rc = make_tensor(p, 1, s->n, s->c, s->h, s->w, &x, e);
	if (rc == 0)
		rc = make_tensor(p, 2, s->k, s->c, s->kernel, s->kernel, &w, e);
	if (rc == 0)
		rc = make_tensor(p, 3, s->n, s->k, s->p, s->q, &y, e);
	if (rc == 0)
		rc = make_convolution(p, s, &convolution, e);
	if (rc == 0)
		rc = make(p, n->type, &op, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(op, n->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
	TRY(cudnnBackendSetAttribute(op, n->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w));
	TRY(cudnnBackendSetAttribute(op, n->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
	TRY(cudnnBackendSetAttribute(
	        op, n->convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution));
	TRY(cudnnBackendSetAttribute(op, n->alpha, CUDNN_TYPE_FLOAT, 1, &one));
	TRY(cudnnBackendSetAttribute(op, n->beta, CUDNN_TYPE_FLOAT, 1, &zero));
	TRY(cudnnBackendFinalize(op));
	rc = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(
	        *graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
	TRY(cudnnBackendSetAttribute(
	        *graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op));
	TRY(cudnnBackendFinalize(*graph));
	return 0;
}

static bool note_suits(cudnnBackendNumericalNote_t note, bool tf32)
{
	switch (note) {
	case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
	case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
	case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
	case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6: /* large tiles cancel digits */
	case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
		return false;
	case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* with floats: TF32 */
		return tf32;
	default:
		return true;
	}
}

/* The engine that a config is for, and whether its notes allow it. */
static int config_suits(struct conv_plan *p, desc config, bool tf32, bool *suits, struct err *e)
{
	cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t n = 0, one;
	desc engine;
	int rc = make(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, e);
	if (rc)
		return rc;
	TRY(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
	        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine));
	TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
	        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note));
	*suits = true;
	for (int64_t i = 0; i < n; i++)
		*suits = *suits && note_suits(note[i], tf32);
	return drop_last(p, e);
}

/* A config that the library cannot make a plan of is skipped, whatever the error: the proposals are
 * guesses, and an engine that is compiled at run time may fail in its own ways. If the device is
 * gone, the next call reports it. */
static int try_config(struct conv_plan *p, cudnnHandle_t h, desc config, int64_t workspace_max,
        bool *taken, struct err *e)
{
	int64_t one;
	desc run;
	int rc = make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &run, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(
	        run, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
	TRY(cudnnBackendSetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
	        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
	if (cudnnBackendFinalize(run) == CUDNN_STATUS_SUCCESS) {
		TRY(cudnnBackendGetAttribute(run, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
		        CUDNN_TYPE_INT64, 1, &one, &p->workspace));
		*taken = p->workspace <= workspace_max;
	}
	if (!*taken)
		return drop_last(p, e);
	p->run = run;
	return 0;
}

/* What the heuristics propose in one mode, in their order. */
static int search(struct conv_plan *p, cudnnHandle_t h, desc graph, cudnnBackendHeurMode_t mode,
        bool tf32, int64_t workspace_max, bool *taken, struct err *e)
{
	desc heuristics, config[CONFIGS];
	int64_t n = 0;
	int rc = make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics, e);
	if (rc)
		return rc;
	TRY(cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
	        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
	TRY(cudnnBackendSetAttribute(
	        heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	TRY(cudnnBackendFinalize(heuristics));
	for (int i = 0; i < CONFIGS; i++)
		if ((rc = make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i], e)) != 0)
			return rc;
	TRY(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
	        CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &n, config));
	for (int64_t i = 0; i < n && i < CONFIGS && !*taken; i++) {
		bool suits = false;
		rc = config_suits(p, config[i], tf32, &suits, e);
		if (rc == 0 && suits)
			rc = try_config(p, h, config[i], workspace_max, taken, e);
		if (rc)
			return rc;
	}
	return 0;
}

/* Nothing can be done if a descriptor cannot be destroyed. */
static void close_plan(struct conv_plan *p)
{
	while (p->n_parts > 0)
		(void)!drop_last(p, NULL);
	free(p);
}

static int make_plan(
        struct conv_plan *p, cudnnHandle_t h, bool tf32, int64_t workspace_max, struct err *e)
{
	bool taken = false;
	desc graph;
	int rc = make_graph(p, h, p->kind, &p->shape, &graph, e);
	if (rc == 0)
		rc = search(p, h, graph, CUDNN_HEUR_MODE_A, tf32, workspace_max, &taken, e);
	if (rc == 0 && !taken)
		rc = search(p, h, graph, CUDNN_HEUR_MODE_FALLBACK, tf32, workspace_max, &taken, e);
	if (rc == 0 && !taken)
		rc = err_set(e, ERR_UNSUPPORTED, "cuDNN has no exact engine for this convolution%s",
		        tf32 ? "" : "; run.tf32 permits others");
	return rc;
}

int conv_plan_get(const struct conv_plan **out, struct conv_plan **list, cudnnHandle_t h,
        enum conv_plan_kind kind, const struct conv_plan_shape *s, bool tf32, int64_t workspace_max,
        struct err *e)
{
	struct conv_plan *p;
	for (p = *list; p; p = p->next)
		if (p->kind == kind && memcmp(&p->shape, s, sizeof *s) == 0) {
			*out = p;
			return 0;
		}
	p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory for a plan");
	p->kind = kind;
	p->shape = *s;
	int rc = make_plan(p, h, tf32, workspace_max, e);
	if (rc) {
		close_plan(p);
		return rc;
	}
	p->next = *list;
	*out = *list = p;
	return 0;
}

void conv_plan_free_all(struct conv_plan **list)
{
	while (*list) {
		struct conv_plan *p = *list;
		*list = p->next;
		close_plan(p);
	}
}

int conv_pack_init(
        cudnnBackendDescriptor_t *pack, void *x, void *w, void *y, void *workspace, struct err *e)
{
	const int64_t id[] = {1, 2, 3};
	void *const data[] = {x, w, y};
	TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack));
	TRY(cudnnBackendSetAttribute(
	        *pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data));
	TRY(cudnnBackendSetAttribute(
	        *pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, id));
	TRY(cudnnBackendSetAttribute(
	        *pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
	TRY(cudnnBackendFinalize(*pack));
	return 0;
}

void conv_pack_close(cudnnBackendDescriptor_t *pack)
{
	if (*pack)
		cudnnBackendDestroyDescriptor(*pack);
	*pack = NULL;
}
