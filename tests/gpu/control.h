/* SPDX-License-Identifier: MIT */
/* The stand-in's knobs, for tests that also run on a GPU, where all of them are NULL. GPU_STANDIN
 * is the stand-in's file; it is loaded with the plugin, so this looks when a device is open. */
#ifndef DUNLIN_TESTS_GPU_CONTROL_H
#define DUNLIN_TESTS_GPU_CONTROL_H

#include "model/device/device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

static struct {
	unsigned (*faults)(void);
	const char *(*fault)(void);
	int (*leaks)(int print);
	int (*blocks)(void);
	long (*calls)(void);
	void (*fail_call)(long call, int code);
	const char *(*failed)(void);
	void (*memory)(size_t bytes);
	void (*schedule)(const char *order, unsigned long seed);
	void (*step)(int inside);
	unsigned long (*instructions)(void);
	void (*catch)(void);
} control;

static inline void control_find(void)
{
	const char *path = getenv("GPU_STANDIN");
	void *lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (control.catch)
		control.catch(); /* cmocka takes the signal at the start of each test */
	if (!lib || control.faults)
		return;
	*(void **)&control.faults = dlsym(lib, "standin_faults");
	*(void **)&control.fault = dlsym(lib, "standin_fault");
	*(void **)&control.leaks = dlsym(lib, "standin_leaks");
	*(void **)&control.blocks = dlsym(lib, "standin_blocks");
	*(void **)&control.calls = dlsym(lib, "standin_calls");
	*(void **)&control.fail_call = dlsym(lib, "standin_fail");
	*(void **)&control.failed = dlsym(lib, "standin_failed");
	*(void **)&control.memory = dlsym(lib, "standin_memory");
	*(void **)&control.schedule = dlsym(lib, "standin_schedule");
	*(void **)&control.step = dlsym(lib, "standin_step");
	*(void **)&control.catch = dlsym(lib, "standin_catch");
	control.catch();
	*(void **)&control.instructions = dlsym(lib, "standin_instructions");
}

/* Of the GPU: what others do is not watched. */
static inline void control_step(const struct device *d, bool inside)
{
	if (control.step && d->backend->name[0] == 'c' && d->backend->name[1] == 'u')
		control.step(inside);
}

#endif
