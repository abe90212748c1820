/* SPDX-License-Identifier: MIT */
/* nvcc's half of a launch. k<<<grid, block, shared, stream>>>(arguments) becomes a push of the
 * configuration, and a stub that pops it and launches the function that a constructor registered
 * under the stub's address. Arguments are copied at the launch; the kernel runs later. */
#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX 1024
#define MODULES_MAX 64
#define SHARED_MAX (48u << 10)

struct configuration {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};

struct launch {
	const struct ptx_kernel *kernel;
	dim3 grid, block;
	size_t shared;
	unsigned char arguments[];
};

static struct function {
	const void *stub;
	const struct ptx_module *module;
	char *name;
} functions[FUNCTIONS_MAX];
static int n_functions;
static struct ptx_module *modules[MODULES_MAX]; /* a handle points to one */
static int n_modules;
static _Thread_local struct configuration pushed[4];
static _Thread_local int n_pushed;

GPU_API void **__cudaRegisterFatBinary(void *wrapper);
GPU_API void __cudaRegisterFatBinaryEnd(void **handle);
GPU_API void __cudaUnregisterFatBinary(void **handle);
GPU_API char __cudaInitModule(void **handle);
GPU_API void __cudaRegisterFunction(void **handle, const char *stub, char *function,
        const char *name, int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size);
GPU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s);
GPU_API cudaError_t __cudaPopCallConfiguration(
        dim3 *grid, dim3 *block, size_t *shared, void *stream);
GPU_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *stub);
GPU_API cudaError_t __cudaLaunchKernel(
        cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s);

void **__cudaRegisterFatBinary(void *wrapper)
{
	gpu_lock();
	if (n_modules == MODULES_MAX)
		gpu_die("more than %d fat binaries", MODULES_MAX);
	modules[n_modules] = gpu_load_fatbin(wrapper);
	gpu_unlock();
	return (void **)&modules[n_modules++];
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

char __cudaInitModule(void **handle)
{
	(void)handle;
	return 0;
}

void __cudaRegisterFunction(void **handle, const char *stub, char *function, const char *name,
        int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
	(void)function, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
	gpu_lock();
	if (n_functions == FUNCTIONS_MAX)
		gpu_die("more than %d kernels", FUNCTIONS_MAX);
	functions[n_functions].stub = stub;
	functions[n_functions].module = *(struct ptx_module **)handle;
	functions[n_functions++].name = strdup(name);
	gpu_unlock();
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
	pushed[n_pushed++] = (struct configuration){grid, block, shared, s};
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	const struct configuration *c = &pushed[--n_pushed];
	*grid = c->grid;
	*block = c->block;
	*shared = c->shared;
	memcpy(stream, &c->stream, sizeof c->stream);
	return cudaSuccess;
}

static void run_launch(void *arg)
{
	struct launch *l = arg;
	ptx_run(l->kernel, l->arguments, l->grid, l->block, l->shared);
}

static bool bad_shape(dim3 g, dim3 b, size_t shared)
{
	uint64_t threads = (uint64_t)b.x * b.y * b.z;
	return !threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > INT32_MAX ||
	       g.y > 65535 || g.z > 65535 || shared > SHARED_MAX;
}

static cudaError_t launch(
        const struct function *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	const char *name = f->name;
	const struct ptx_kernel *k = ptx_find(gpu_other_kernels(), name);
	if (!k)
		k = ptx_find(f->module, name);
	if (!k) {
		gpu_fault("launch", "%s: no such kernel", name);
		return cudaErrorInvalidDeviceFunction;
	}
	if (bad_shape(grid, block, shared + k->shared_bytes) ||
	        (k->threads_max && block.x * block.y * block.z > k->threads_max)) {
		gpu_fault("launch", "%s: grid %u,%u,%u block %u,%u,%u shared %zu", name, grid.x,
		        grid.y, grid.z, block.x, block.y, block.z, shared);
		return cudaErrorInvalidConfiguration;
	}
	struct launch *l = calloc(1, sizeof *l + k->param_bytes + 16);
	if (!l)
		gpu_die("no memory");
	*l = (struct launch){k, grid, block, shared};
	for (int i = 0; i < k->n_params; i++)
		memcpy(l->arguments + k->params[i].at, args[i], k->params[i].bytes);
	return gpu_push(s, k->name, run_launch, l) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

GPU_API cudaError_t cudaLaunchKernel(
        const void *stub, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	cudaKernel_t k;
	cudaError_t e = __cudaGetKernel(&k, stub);
	return e ? e : __cudaLaunchKernel(k, grid, block, args, shared, s);
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *stub)
{
	for (int i = 0; i < n_functions; i++)
		if (functions[i].stub == stub) {
			*out = (cudaKernel_t)(void *)&functions[i];
			return cudaSuccess;
		}
	return cudaErrorInvalidDeviceFunction;
}

cudaError_t __cudaLaunchKernel(
        cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	const struct function *f = (const struct function *)(void *)kernel;
	gpu_lock();
	cudaError_t e = gpu_call(f->name) ? (cudaError_t)gpu_fail_code(cudaErrorLaunchFailure)
	                                  : launch(f, grid, block, args, shared, s);
	if (e)
		gpu_last_error(e);
	gpu_unlock();
	return e;
}
