/* SPDX-License-Identifier: MIT */
/* Finds a backend by name: the two that are linked in, or a plugin. A plugin is opened only when it
 * is asked for (or by auto), so machines without its libraries work as well. */
#include "model/device/device.h"

#include "agent/base/cores.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PLUGIN_DIR
#define PLUGIN_DIR "/usr/local/lib/dunlin"
#endif

extern const struct backend backend_cpu, backend_plain;

static const struct backend *plugin(const char *name, struct err *e)
{
	char path[512];
	const char *dir = getenv("DUNLIN_PLUGIN_DIR");
	snprintf(path, sizeof path, "%s/dunlin-%s.so", dir && *dir ? dir : PLUGIN_DIR, name);
	/* Kept loaded for the process's life: its devices may outlive any handle. */
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib && access(path, F_OK) != 0) {
		err_set(e, ERR_NOTFOUND, "no %s backend is installed", name);
		return NULL;
	}
	if (!lib) {
		err_set(e, ERR_NOTFOUND, "the %s backend cannot be loaded: %s", name, dlerror());
		return NULL;
	}
	const struct backend *b = dlsym(lib, "dunlin_backend");
	dlclose(lib);
	if (!b || b->abi != BACKEND_ABI) {
		err_set(e, ERR_MISMATCH, "%s is not a backend of this version of dunlin", path);
		return NULL;
	}
	return b;
}

static int open_cuda(struct device **out, const struct device_config *c, struct err *e)
{
	const struct backend *b = plugin("cuda", e);
	if (!b)
		return e ? e->code : ERR_NOTFOUND;
	return b->open(out, c, e);
}

static int open_named(
        struct device **out, const char *spec, const struct device_config *c, struct err *e)
{
	if (strcmp(spec, "cpu") == 0)
		return backend_cpu.open(out, c, e);
	if (strcmp(spec, "plain") == 0)
		return backend_plain.open(out, c, e);
	if (strcmp(spec, "cuda") == 0)
		return open_cuda(out, c, e);
	if (strncmp(spec, "cuda:", 5) == 0) {
		struct device_config with = *c;
		char *end;
		long index = strtol(spec + 5, &end, 10);
		if (end != spec + 5 && !*end && index >= 0 && index < 1024) {
			with.index = (int)index;
			return open_cuda(out, &with, e);
		}
	}
	return err_set(e, ERR_INVALID, "no device \"%s\": auto, cpu, plain, cuda or cuda:N", spec);
}

/* The device's name; a number of threads that the user did not choose is explained. */
static void name_device(const struct device *d, const struct device_config *c, char out[136])
{
	bool by_quota = d->backend == &backend_cpu && c->threads <= 0 && cores_usable().quota;
	snprintf(out, 136, "%s%s", d->text, by_quota ? ", limited by the CPU quota" : "");
}

int device_open(struct device **out, const char *spec, const struct device_config *c, char why[160],
        struct err *e)
{
	struct err none = {0};
	char name[136];
	int rc;
	*out = NULL;
	if (strcmp(spec, "auto") != 0) {
		rc = open_named(out, spec, c, e);
		if (rc)
			return rc;
		name_device(*out, c, name);
		if (why)
			snprintf(why, 160, "%s, as asked for", name);
	} else if (open_cuda(out, c, &none) == 0) {
		if (why)
			snprintf(why, 160, "%s: there is a GPU", (*out)->text);
	} else {
		rc = backend_cpu.open(out, c, e);
		if (rc)
			return rc;
		name_device(*out, c, name);
		if (why)
			snprintf(why, 160, "%s: %.*s", name, (int)(157 - strlen(name)), none.msg);
	}
	return 0;
}

void device_close(struct device *d)
{
	if (d)
		d->backend->close(d);
}
