/* SPDX-License-Identifier: MIT */
/* cuDNN's graph calls: descriptors are kept with all that is set in them, and given to the genuine
 * library where there is one. A descriptor is used only when it is final, set only before, and
 * destroyed once. */
#include "tests/gpu/dnn.h"

#include <stdlib.h>
#include <string.h>

#define FALLBACK_WORKSPACE 1024 /* without the genuine library */

typedef struct dnn_descriptor *descriptor;

static cudnnStatus_t leave(cudnnStatus_t s)
{
	gpu_unlock();
	return s;
}

/* ---- handles */

GPU_API cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_NOT_INITIALIZED);
	gpu_slow(__func__);
	*out = calloc(1, sizeof **out);
	if (!*out)
		gpu_die("no memory");
	(*out)->self = *out;
	gpu_live(LIVE_CUDNN, 1);
	return leave(CUDNN_STATUS_SUCCESS);
}

static bool handle_ok(cudnnHandle_t h, const char *function)
{
	if (h && h->self == h)
		return true;
	gpu_fault("cudnn", "%s: not a live handle", function);
	return false;
}

GPU_API cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	if (!handle_ok(h, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	h->self = NULL;
	free(h);
	gpu_live(LIVE_CUDNN, -1);
	return leave(fails ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS);
}

GPU_API cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	if (!handle_ok(h, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	h->stream = s;
	return leave(CUDNN_STATUS_SUCCESS);
}

GPU_API size_t cudnnGetVersion(void)
{
	return CUDNN_VERSION;
}

GPU_API const char *cudnnGetErrorString(cudnnStatus_t s)
{
	return s == CUDNN_STATUS_SUCCESS ? "success" : "an error of the stand-in's cuDNN";
}

GPU_API void cudnnGetLastErrorString(char *text, size_t bytes)
{
	dnn_real_error(text, bytes);
}

/* ---- descriptors */

static bool alive(const struct dnn_descriptor *d, const char *function)
{
	if (d && d->self == d)
		return true;
	gpu_fault("cudnn", "%s: not a live descriptor", function);
	return false;
}

static cudnnStatus_t refused(cudnnStatus_t s, const char *what)
{
	char why[256] = "";
	dnn_real_error(why, sizeof why);
	gpu_fault("cudnn", "the genuine library refuses %s: %d %s", what, (int)s, why);
	return s;
}

GPU_API cudnnStatus_t cudnnBackendCreateDescriptor(
        cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_INTERNAL_ERROR);
	gpu_slow(__func__);
	descriptor d = calloc(1, sizeof *d);
	if (!d)
		gpu_die("no memory");
	d->self = d;
	d->type = type;
	cudnnStatus_t s = dnn_real_create(d);
	if (s) {
		free(d);
		return leave(refused(s, "to make a descriptor"));
	}
	gpu_live(LIVE_DESCRIPTOR, 1);
	*out = d;
	return leave(CUDNN_STATUS_SUCCESS);
}

static void drop(struct dnn_attribute *a)
{
	free(a->data);
	free(a);
}

GPU_API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t one)
{
	descriptor d = one;
	gpu_lock();
	bool fails = gpu_call(__func__);
	if (!alive(d, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	dnn_real_destroy(d);
	while (d->attributes) {
		struct dnn_attribute *a = d->attributes;
		d->attributes = a->next;
		drop(a);
	}
	d->self = NULL;
	free(d);
	gpu_live(LIVE_DESCRIPTOR, -1);
	return leave(fails ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS);
}

static size_t type_bytes(cudnnBackendAttributeType_t t)
{
	switch (t) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	case CUDNN_TYPE_FLOAT:
	case CUDNN_TYPE_DATA_TYPE:
	case CUDNN_TYPE_CONVOLUTION_MODE:
	case CUDNN_TYPE_HEUR_MODE:
	case CUDNN_TYPE_INT32:
		return 4;
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	default:
		gpu_die("cuDNN attributes of type %d are not known", (int)t);
	}
}

static void keep(descriptor d, int name, int64_t count, const void *data, size_t bytes)
{
	struct dnn_attribute **at = &d->attributes, *a = calloc(1, sizeof *a);
	void *copy = malloc(bytes ? bytes : 1);
	if (!a || !copy)
		gpu_die("no memory");
	for (; *at; at = &(*at)->next)
		if ((*at)->name == name) {
			struct dnn_attribute *old = *at;
			*at = old->next;
			drop(old);
			break;
		}
	*a = (struct dnn_attribute){name, count, bytes, memcpy(copy, data, bytes), d->attributes};
	d->attributes = a;
}

const void *dnn_get(const struct dnn_descriptor *d, int name, int64_t count)
{
	for (const struct dnn_attribute *a = d->attributes; a; a = a->next)
		if (a->name == name && a->count == count)
			return a->data;
	gpu_fault("cudnn", "attribute %d is not set, or not %ld of it", name, (long)count);
	return NULL;
}

GPU_API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t one,
        cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
        const void *data)
{
	descriptor d = one;
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_INTERNAL_ERROR);
	gpu_slow(__func__);
	if (!alive(d, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	if (d->final) {
		gpu_fault("cudnn", "attribute %d is set in a final descriptor", (int)name);
		return leave(CUDNN_STATUS_NOT_INITIALIZED);
	}
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		for (int64_t i = 0; i < count; i++)
			if (!alive(((const descriptor *)data)[i], __func__))
				return leave(CUDNN_STATUS_BAD_PARAM);
	if (type == CUDNN_TYPE_HANDLE && !handle_ok(*(const cudnnHandle_t *)data, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	cudnnStatus_t s = dnn_real_set(d, name, type, count, data);
	if (s)
		return leave(refused(s, "an attribute"));
	keep(d, (int)name, count, data, (size_t)count * type_bytes(type));
	return leave(CUDNN_STATUS_SUCCESS);
}

/* A plan may be refused, that is what the heuristics' guesses are for; all else must be right. */
GPU_API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t one)
{
	descriptor d = one;
	gpu_lock();
	const bool plan = d && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
	if (gpu_call(plan ? "cudnnBackendFinalize of a plan" : __func__))
		return leave(CUDNN_STATUS_INTERNAL_ERROR);
	gpu_slow(__func__);
	if (!alive(d, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	cudnnStatus_t s = dnn_real_finalize(d);
	d->final = s == CUDNN_STATUS_SUCCESS;
	if (s && !plan)
		refused(s, "a descriptor");
	return leave(s);
}

/* What is proposed without the genuine library. All but the last round, or depend on timing. */
static const struct dnn_proposal proposals[] = {
        {CUDNN_HEUR_MODE_A, 1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, false},
        {CUDNN_HEUR_MODE_A, 2, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_FFT},
                false},
        {CUDNN_HEUR_MODE_A, 1, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, false},
        {CUDNN_HEUR_MODE_FALLBACK, 2,
                {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6}, false},
        {CUDNN_HEUR_MODE_FALLBACK, 1, {CUDNN_NUMERICAL_NOTE_FFT}, true},
};

static int64_t propose(descriptor d, descriptor *results, int64_t count)
{
	const cudnnBackendHeurMode_t *mode = dnn_get(d, CUDNN_ATTR_ENGINEHEUR_MODE, 1);
	int64_t n = 0;
	for (size_t i = 0; mode && i < sizeof proposals / sizeof *proposals; i++)
		if (proposals[i].mode == *mode && n < count)
			results[n++]->own = &proposals[i];
	return n;
}

static cudnnStatus_t fallback_get(
        descriptor d, cudnnBackendAttributeName_t name, int64_t count, int64_t *got, void *data)
{
	descriptor *others = data;
	switch (name) {
	case CUDNN_ATTR_ENGINEHEUR_RESULTS:
		*got = propose(d, others, count);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINECFG_ENGINE:
		*got = 1;
		others[0]->own = d->own;
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
		*got = d->own ? d->own->n_notes : 0;
		if (d->own)
			memcpy(data, d->own->note, (size_t)*got * sizeof *d->own->note);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
		*got = 1;
		*(int64_t *)data = FALLBACK_WORKSPACE;
		return CUDNN_STATUS_SUCCESS;
	default:
		gpu_fault("cudnn", "attribute %d cannot be asked for", (int)name);
		return CUDNN_STATUS_NOT_SUPPORTED;
	}
}

GPU_API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t one,
        cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
        int64_t *got, void *data)
{
	descriptor d = one, *results = data;
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_INTERNAL_ERROR);
	gpu_slow(__func__);
	if (!alive(d, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	cudnnStatus_t s = d->real ? dnn_real_get(d, name, type, count, got, data)
	                          : fallback_get(d, name, count, got, data);
	if (s)
		return leave(refused(s, "to tell an attribute"));
	if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && results) {
		const descriptor *graph = dnn_get(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 1);
		for (int64_t i = 0; graph && i < *got && i < count; i++)
			results[i]->graph = *graph;
	}
	return leave(CUDNN_STATUS_SUCCESS);
}

int64_t dnn_workspace(const struct dnn_descriptor *plan)
{
	int64_t bytes = FALLBACK_WORKSPACE, one;
	if (plan->real)
		dnn_real_get((descriptor)(uintptr_t)plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
		        CUDNN_TYPE_INT64, 1, &one, &bytes);
	return bytes;
}

GPU_API cudnnStatus_t cudnnBackendExecute(
        cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
	gpu_lock();
	if (gpu_call(__func__))
		return leave(CUDNN_STATUS_EXECUTION_FAILED);
	if (!handle_ok(h, __func__) || !alive(plan, __func__) || !alive(pack, __func__))
		return leave(CUDNN_STATUS_BAD_PARAM);
	return leave(dnn_execute(h, plan, pack));
}
