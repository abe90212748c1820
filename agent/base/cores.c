/* SPDX-License-Identifier: MIT */
/* A container or a systemd unit is often allowed so much time of all cores, while every core is
 * there for it to run on. As many threads as cores then use up their time together and are all
 * stopped for the rest of each period, those that the others wait for too.
 *
 *     /proc/self/cgroup       0::/kubepods/pod1/main           which group we are in
 *     /proc/self/mountinfo    … / /sys/fs/cgroup … cgroup2 …   where its files are
 *     …/kubepods/pod1/main/cpu.max    150000 100000            1.5 cores
 *     …/kubepods/pod1/cpu.max         max 100000               no quota
 *
 * Every group on the way to the top may have a quota, and the smallest counts. Version 1 of control
 * groups has a tree for the cpu controller alone, and two files instead of one. A container may see
 * a part of the tree only: what is mounted then begins with its own group, and is all there is to
 * read. Whatever cannot be read is no quota. */
#include "agent/base/cores.h"

#include "agent/base/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { V1, V2, VERSIONS };

/* In a list such as "rw,cpu,cpuacct". */
static bool lists(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (strncmp(p, word, n) == 0 && (!p[n] || p[n] == ','))
			return true;
	return false;
}

static FILE *open_below(const char *folder, const char *name)
{
	char path[3 * LIMIT_PATH];

	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return NULL;
	return fopen(path, "re");
}

/* Our groups, "" where there is none: lines of "number:controllers:path". */
static void read_groups(const char *root, char group[VERSIONS][LIMIT_PATH])
{
	FILE *f = open_below(root, "proc/self/cgroup");
	char line[LIMIT_PATH + 256];

	group[V1][0] = group[V2][0] = '\0';
	while (f && fgets(line, sizeof line, f)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (!controllers[1])
			snprintf(group[V2], LIMIT_PATH, "%s", path);
		else if (lists(controllers + 1, "cpu"))
			snprintf(group[V1], LIMIT_PATH, "%s", path);
	}
	if (f)
		fclose(f);
}

/* The first number of a file, and the second if it has one. */
static void read_numbers(const char *folder, const char *name, long long *a, long long *b)
{
	FILE *f = open_below(folder, name);

	if (f && fscanf(f, "%lld %lld", a, b) == EOF)
		*a = 0;
	if (f)
		fclose(f);
}

/* Of one group, in cores; 0: none, which the files write as "max" or -1. */
static int quota_here(const char *folder, int version)
{
	long long quota_us = 0, period_us = 0, none;

	if (version == V2) {
		read_numbers(folder, "cpu.max", &quota_us, &period_us);
	} else {
		read_numbers(folder, "cpu.cfs_quota_us", &quota_us, &none);
		read_numbers(folder, "cpu.cfs_period_us", &period_us, &none);
	}
	if (quota_us <= 0 || period_us <= 0)
		return 0;
	long long cores = (quota_us - 1) / period_us + 1;
	return cores < INT_MAX ? (int)cores : 0;
}

/* What of group is below the top of a mount; nothing where that top is not above it. */
static const char *below(const char *group, const char *top)
{
	size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);

	if (strncmp(group, top, n) != 0 || (group[n] && group[n] != '/') ||
	        strncmp(group + n, "/..", 3) == 0)
		return "";
	return group + n;
}

/* The smallest quota of a group and of all above it, up to the mount's own. */
static int quota_up(const char *root, const char *mount, const char *group, int version)
{
	char folder[3 * LIMIT_PATH];
	int least = 0;
	size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, mount);

	if (top >= sizeof folder)
		return 0;
	snprintf(folder + top, sizeof folder - top, "%s", group);
	for (;;) {
		int n = quota_here(folder, version);
		char *last = strrchr(folder + top, '/');

		if (n > 0 && (least == 0 || n < least))
			least = n;
		if (!last)
			return least;
		*last = '\0';
	}
}

int cores_quota(const char *root)
{
	char group[VERSIONS][LIMIT_PATH], top[LIMIT_PATH], mount[LIMIT_PATH], type[16],
	        options[256];
	FILE *f = open_below(root, "proc/self/mountinfo");
	char *line = NULL;
	size_t size = 0;
	int least = 0;

	_Static_assert(LIMIT_PATH == 1024, "the widths below");
	read_groups(root, group);
	while (f && getline(&line, &size, f) > 0) {
		const char *end = strstr(line, " - ");
		int version;

		if (!end || sscanf(line, "%*s %*s %*s %1023s %1023s", top, mount) != 2 ||
		        sscanf(end, " - %15s %*s %255s", type, options) != 2)
			continue;
		if (strcmp(type, "cgroup2") == 0)
			version = V2;
		else if (strcmp(type, "cgroup") == 0 && lists(options, "cpu"))
			version = V1;
		else
			continue;
		if (!group[version][0])
			continue;
		int n = quota_up(root, mount, below(group[version], top), version);
		if (n > 0 && (least == 0 || n < least))
			least = n;
	}
	free(line);
	if (f)
		fclose(f);
	return least;
}

struct cores cores_limited(int cores, int quota)
{
	bool limited = quota > 0 && quota < cores;

	return (struct cores){limited ? quota : cores, limited};
}

struct cores cores_usable(void)
{
	cpu_set_t set;
	long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
	                                                     : sysconf(_SC_NPROCESSORS_ONLN);

	return cores_limited(n > 0 ? (int)n : 1, cores_quota(""));
}

int cores_level(void)
{
#ifdef HAVE_X86_KERNELS
	__builtin_cpu_init();
	bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	          __builtin_cpu_supports("bmi2");
	bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	          __builtin_cpu_supports("avx512vl");
	return v4 ? 4 : v3 ? 3 : 0;
#else
	return 0;
#endif
}
