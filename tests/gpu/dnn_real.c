/* SPDX-License-Identifier: MIT */
/* The genuine cuDNN beside the stand-in's: every descriptor is made there too, for a device that is
 * described by a file (GPU_DEVICES/smNN.json), so that the library's own checks, heuristics and
 * notes on precision decide about plans. It has no device and hence no handle: where a descriptor
 * wants one it gets the description of the device. GPU_CUDNN names its file; without it, or with
 * "none", every graph has one plan. */
#include "tests/gpu/dnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t desc;

static struct {
	void *lib;
	cudnnStatus_t (*create)(cudnnBackendDescriptorType_t, desc *);
	cudnnStatus_t (*destroy)(desc);
	cudnnStatus_t (*set)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
	        int64_t, const void *);
	cudnnStatus_t (*get)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
	        int64_t, int64_t *, void *);
	cudnnStatus_t (*finalize)(desc);
	void (*error)(char *, size_t);
} real;
static desc device;

static void *function(const char *name)
{
	void *p = dlsym(real.lib, name);
	if (!p)
		gpu_die("the genuine cuDNN has no %s", name);
	return p;
}

static void describe_device(void)
{
	char path[512], text[8192], why[256] = "";
	const char *folder = getenv("GPU_DEVICES");
	snprintf(path, sizeof path, "%s/sm%d.json", folder ? folder : ".", gpu_settings.arch);
	FILE *f = fopen(path, "rb");
	if (!f)
		gpu_die("%s cannot be read", path);
	size_t n = fread(text, 1, sizeof text, f);
	fclose(f);
	cudnnStatus_t s = real.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device);
	if (!s)
		s = real.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
		        (int64_t)n, text);
	if (!s)
		s = real.finalize(device);
	if (s) {
		real.error(why, sizeof why);
		gpu_die("the genuine cuDNN refuses %s: %d %s", path, (int)s, why);
	}
}

bool dnn_real(void)
{
	static bool asked;
	const char *path = getenv("GPU_CUDNN");
	if (asked || !path || !*path || strcmp(path, "none") == 0)
		return real.lib;
	asked = true;
	real.lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!real.lib)
		gpu_die("GPU_CUDNN: %s", dlerror());
	*(void **)&real.create = function("cudnnBackendCreateDescriptor");
	*(void **)&real.destroy = function("cudnnBackendDestroyDescriptor");
	*(void **)&real.set = function("cudnnBackendSetAttribute");
	*(void **)&real.get = function("cudnnBackendGetAttribute");
	*(void **)&real.finalize = function("cudnnBackendFinalize");
	*(void **)&real.error = function("cudnnGetLastErrorString");
	describe_device();
	return true;
}

cudnnStatus_t dnn_real_create(struct dnn_descriptor *d)
{
	return dnn_real() ? real.create(d->type, &d->real) : CUDNN_STATUS_SUCCESS;
}

void dnn_real_destroy(struct dnn_descriptor *d)
{
	if (d->real)
		real.destroy(d->real);
}

/* Descriptors among the values are ours; the library wants its own. */
static void translate(desc *out, const void *data, int64_t count)
{
	struct dnn_descriptor *const *in = data;
	for (int64_t i = 0; i < count; i++)
		out[i] = in[i]->real;
}

cudnnStatus_t dnn_real_set(struct dnn_descriptor *d, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, const void *data)
{
	desc own[64];
	if (!d->real)
		return CUDNN_STATUS_SUCCESS;
	if (type == CUDNN_TYPE_HANDLE) {
		if (name != CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
			return CUDNN_STATUS_SUCCESS;
		return real.set(d->real, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
		        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
	}
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
		if (count > 64)
			return CUDNN_STATUS_NOT_SUPPORTED;
		translate(own, data, count);
		data = own;
	}
	return real.set(d->real, name, type, count, data);
}

cudnnStatus_t dnn_real_get(struct dnn_descriptor *d, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, int64_t *got, void *data)
{
	desc own[64];
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && data) {
		if (count > 64)
			return CUDNN_STATUS_NOT_SUPPORTED;
		translate(own, data, count); /* they are filled, not replaced */
		data = own;
	}
	return real.get(d->real, name, type, count, got, data);
}

cudnnStatus_t dnn_real_finalize(struct dnn_descriptor *d)
{
	if (!d->real)
		return CUDNN_STATUS_SUCCESS;
	if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
		real.set(d->real, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		        1, &device);
	return real.finalize(d->real);
}

void dnn_real_error(char *text, size_t bytes)
{
	if (real.lib)
		real.error(text, bytes);
	else if (bytes)
		text[0] = 0;
}
