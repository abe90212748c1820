/* SPDX-License-Identifier: MIT */
/* How many threads this process can keep busy, and with which instructions. */
#ifndef DUNLIN_AGENT_BASE_CORES_H
#define DUNLIN_AGENT_BASE_CORES_H

#include <stdbool.h>

struct cores {
	int n;      /* at least 1 */
	bool quota; /* the CPU quota of its control group (a container, a unit) makes it so few */
};

/* The cores that the calling thread may run on, and no more than its CPU quota pays for, rounded
 * up. */
struct cores cores_usable(void);

/* The same with a quota, in cores, 0 meaning none; and the quota by files of proc and of control
 * groups below root: "" in earnest, a folder of their own in tests. */
struct cores cores_limited(int cores, int quota);
int cores_quota(const char *root);

/* The highest x86-64 level, 3 (AVX2) or 4 (AVX-512), of which this processor has what our compiled
 * loops use; 0: neither. */
int cores_level(void);

#endif
