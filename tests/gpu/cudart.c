/* SPDX-License-Identifier: MIT */
/* The calls of cudart that a backend needs: each counts, may be made to fail, checks its arguments
 * as strictly as the manual, and mostly pushes an operation. A call that frees something and is
 * made to fail frees it all the same: there is nothing that its caller could do about it. */
#include "tests/gpu/standin.h"
#include "tests/gpu/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUevent_st {
	struct CUevent_st *self; /* while it lives */
	struct gpu_op *recorded;
};

static cudaError_t last_error;

void gpu_last_error(cudaError_t e)
{
	last_error = e;
}

/* Takes the lock; not 0: the call fails with that, and the lock is free again. */
static cudaError_t enter(const char *function, cudaError_t usual)
{
	gpu_lock();
	if (!gpu_call(function))
		return cudaSuccess;
	last_error = (cudaError_t)gpu_fail_code((int)usual);
	gpu_unlock();
	return last_error;
}

static cudaError_t leave(cudaError_t e)
{
	if (e != cudaSuccess)
		last_error = e;
	gpu_unlock();
	return e;
}

/* ---- the device */

GPU_API cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t e = enter(__func__, cudaErrorNoDevice);
	if (e)
		return e;
	*count = 1;
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaSetDevice(int device)
{
	cudaError_t e = enter(__func__, cudaErrorDevicesUnavailable);
	return e ? e : leave(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

GPU_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	cudaError_t e = enter(__func__, cudaErrorInvalidDevice);
	if (e)
		return e;
	if (device != 0)
		return leave(cudaErrorInvalidDevice);
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "stand-in");
	p->major = gpu_settings.arch / 10;
	p->minor = gpu_settings.arch % 10;
	p->totalGlobalMem = gpu_settings.memory;
	p->multiProcessorCount = 4;
	p->warpSize = 32;
	p->maxThreadsPerBlock = 1024;
	p->sharedMemPerBlock = 48 << 10;
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	*left = gpu_memory_left();
	*total = gpu_settings.memory;
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	gpu_slow(__func__);
	gpu_finish_all();
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaGetLastError(void)
{
	gpu_lock();
	cudaError_t e = last_error;
	last_error = cudaSuccess;
	gpu_unlock();
	return e;
}

GPU_API cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

GPU_API const char *cudaGetErrorName(cudaError_t e)
{
	static _Thread_local char text[32];
	snprintf(text, sizeof text, "cudaError %d", (int)e);
	return text;
}

GPU_API const char *cudaGetErrorString(cudaError_t e)
{
	return e == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}

/* ---- memory */

GPU_API cudaError_t cudaMalloc(void **out, size_t bytes)
{
	cudaError_t e = enter(__func__, cudaErrorMemoryAllocation);
	if (e)
		return e;
	gpu_slow(__func__);
	*out = bytes ? gpu_memory_take(bytes) : NULL;
	return leave(*out || !bytes ? cudaSuccess : cudaErrorMemoryAllocation);
}

GPU_API cudaError_t cudaFree(void *p)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	gpu_slow(__func__);
	gpu_finish_all();
	if (p && !gpu_memory_give(p)) {
		gpu_fault("free", "cudaFree(%p): not an allocation, or freed before", p);
		return leave(cudaErrorInvalidValue);
	}
	return leave(fails ? (cudaError_t)gpu_fail_code(cudaErrorUnknown) : cudaSuccess);
}

GPU_API cudaError_t cudaMallocHost(void **out, size_t bytes)
{
	cudaError_t e = enter(__func__, cudaErrorMemoryAllocation);
	if (e)
		return e;
	gpu_slow(__func__);
	*out = bytes ? gpu_pinned_take(bytes) : NULL;
	return leave(*out || !bytes ? cudaSuccess : cudaErrorMemoryAllocation);
}

GPU_API cudaError_t cudaFreeHost(void *p)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	gpu_slow(__func__);
	/* The library waits, as far as we know; it does not say that it will. Nothing can be waited
	 * for on a device that fails. */
	const struct gpu_op *user = p && !*standin_failed() ? gpu_pinned_used(p) : NULL;
	if (user)
		gpu_fault("free", "cudaFreeHost(%p): %s (stream %d) may still use it", p,
		        user->name, user->stream);
	gpu_finish_all();
	if (p && !gpu_pinned_give(p)) {
		gpu_fault("free", "cudaFreeHost(%p): not an allocation, or freed before", p);
		return leave(cudaErrorInvalidValue);
	}
	return leave(fails ? (cudaError_t)gpu_fail_code(cudaErrorUnknown) : cudaSuccess);
}

struct copy {
	const void *from; /* the device's address, or the device's view of the host's */
	void *to;
	size_t bytes;
	enum cudaMemcpyKind kind;
	char staged[];
};

static void run_copy(void *arg)
{
	struct copy *c = arg;
	const void *from = c->from;
	void *to = c->to;
	if (c->kind != cudaMemcpyHostToDevice)
		from = gpu_use(c->from, c->bytes, false, "copy");
	if (c->kind != cudaMemcpyDeviceToHost)
		to = gpu_use(c->to, c->bytes, true, "copy");
	if (from && to)
		memcpy(to, from, c->bytes);
}

static const char *copy_name(enum cudaMemcpyKind kind)
{
	return kind == cudaMemcpyHostToDevice   ? "copy to the device"
	       : kind == cudaMemcpyDeviceToHost ? "copy to the host"
	                                        : "copy on the device";
}

/* Pageable memory is staged: what goes to the device before the call returns; what comes from it is
 * waited for. That is what makes it slow. */
static cudaError_t copy_async(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	bool to_device = gpu_is_device(to), from_device = gpu_is_device(from);
	const char *name = copy_name(kind);
	if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDefault ||
	        to_device != (kind != cudaMemcpyDeviceToHost) ||
	        from_device != (kind != cudaMemcpyHostToDevice)) {
		gpu_fault("copy", "%s: the pointers are of another kind", name);
		return cudaErrorInvalidValue;
	}
	if ((to_device && !gpu_range_ok(to, bytes, name)) ||
	        (from_device && !gpu_range_ok(from, bytes, name)))
		return cudaErrorInvalidValue;
	const void *host = to_device ? from : to;
	bool has_host = !(to_device && from_device), stage = false;
	void *view = has_host ? gpu_pinned_view(host, bytes) : NULL;
	if (has_host && !view) {
		if (gpu_settings.strict)
			gpu_fault("slow", "%s: the host's memory is not pinned", name);
		stage = to_device;
	}
	struct copy *c = malloc(sizeof *c + (stage ? bytes : 0));
	if (!c)
		gpu_die("no memory");
	*c = (struct copy){.from = from, .to = to, .bytes = bytes, .kind = kind};
	if (stage)
		c->from = memcpy(c->staged, from, bytes);
	else if (view && to_device)
		c->from = view;
	else if (view)
		c->to = view;
	/* What the copy uses must be known before it can run. */
	enum gpu_order order = gpu_settings.order;
	if (order == ORDER_EAGER)
		gpu_settings.order = ORDER_LAZY;
	struct gpu_op *op = gpu_push(s, name, run_copy, c);
	gpu_settings.order = order;
	if (!op)
		return cudaErrorInvalidResourceHandle;
	if (view)
		gpu_pinned_busy(op, host, bytes, !to_device);
	if (has_host && !view && !to_device)
		gpu_finish(op);
	else if (order == ORDER_EAGER)
		gpu_run_now(op);
	return cudaSuccess;
}

GPU_API cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	return leave(bytes ? copy_async(to, from, bytes, kind, s) : cudaSuccess);
}

struct fill {
	void *to;
	int value;
	size_t bytes;
};

static void run_fill(void *arg)
{
	struct fill *f = arg;
	void *to = gpu_use(f->to, f->bytes, true, "memset");
	if (to)
		memset(to, f->value, f->bytes);
}

GPU_API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!bytes)
		return leave(cudaSuccess);
	struct fill *f = malloc(sizeof *f);
	if (!f)
		gpu_die("no memory");
	*f = (struct fill){to, value, bytes};
	if (!gpu_range_ok(to, bytes, "memset")) {
		free(f);
		return leave(cudaErrorInvalidValue);
	}
	return leave(
	        gpu_push(s, "memset", run_fill, f) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* ---- streams and events */

GPU_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	cudaError_t e = enter(__func__, cudaErrorMemoryAllocation);
	if (e)
		return e;
	if (flags != cudaStreamNonBlocking)
		gpu_fault("stream", "a stream is made that waits for the default stream");
	*out = gpu_stream_new();
	return leave(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

static cudaError_t no_stream(const char *function)
{
	gpu_fault("stream", "%s: not a live stream", function);
	return leave(cudaErrorInvalidResourceHandle);
}

GPU_API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	if (!gpu_stream_ok(s))
		return no_stream(__func__);
	gpu_stream_free(s);
	return leave(fails ? (cudaError_t)gpu_fail_code(cudaErrorUnknown) : cudaSuccess);
}

GPU_API cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!gpu_stream_ok(s))
		return no_stream(__func__);
	if (gpu_stream_last(s))
		gpu_finish(gpu_stream_last(s));
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!gpu_stream_ok(s))
		return no_stream(__func__);
	gpu_push_host(s, fn, arg);
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	(void)flags;
	cudaError_t e = enter(__func__, cudaErrorMemoryAllocation);
	if (e)
		return e;
	gpu_slow(__func__);
	*out = calloc(1, sizeof **out);
	if (!*out)
		gpu_die("no memory");
	(*out)->self = *out;
	gpu_live(LIVE_EVENT, 1);
	return leave(cudaSuccess);
}

static cudaError_t no_event(const char *function)
{
	gpu_fault("event", "%s: not a live event", function);
	return leave(cudaErrorInvalidResourceHandle);
}

static bool event_ok(cudaEvent_t e)
{
	return e && e->self == e;
}

GPU_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	gpu_lock();
	bool fails = gpu_call(__func__);
	if (!event_ok(event))
		return no_event(__func__);
	event->self = NULL;
	free(event);
	gpu_live(LIVE_EVENT, -1);
	return leave(fails ? (cudaError_t)gpu_fail_code(cudaErrorUnknown) : cudaSuccess);
}

GPU_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!event_ok(event))
		return no_event(__func__);
	event->recorded = gpu_push(s, "event", NULL, NULL);
	return leave(event->recorded ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* An event that was never recorded holds nobody up, as in CUDA. */
GPU_API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags)
{
	(void)flags;
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!event_ok(event))
		return no_event(__func__);
	if (!gpu_stream_ok(s))
		return no_stream(__func__);
	if (event->recorded)
		gpu_push_wait(s, event->recorded);
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!event_ok(event))
		return no_event(__func__);
	if (event->recorded)
		gpu_finish(event->recorded);
	return leave(cudaSuccess);
}

GPU_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t e = enter(__func__, cudaErrorUnknown);
	if (e)
		return e;
	if (!event_ok(event))
		return no_event(__func__);
	if (event->recorded && !event->recorded->done) {
		gpu_run_some(event->recorded);
		gpu_unlock();
		return cudaErrorNotReady;
	}
	if (event->recorded)
		gpu_finish(event->recorded);
	return leave(cudaSuccess);
}
