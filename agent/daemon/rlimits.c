/* SPDX-License-Identifier: MIT */
/* Descriptors: files of data that stay open have theirs. Of the others some are reserved for files
 * (checkpoints, the log), the control socket and its clients, the loop, bulk transfers; peers get
 * the rest. With few, both halve it. */
#include "agent/daemon/rlimits.h"

#include <sys/resource.h>

#define CONNECTIONS_MIN 16
#define CONNECTIONS_MAX 65536

void rlimits_set(void)
{
	struct rlimit none = {0, 0}, all;
	(void)setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &all) != 0)
		return;
	all.rlim_cur = all.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &all);
}

uint32_t rlimits_connections(uint32_t files)
{
	struct rlimit all;
	if (getrlimit(RLIMIT_NOFILE, &all) != 0)
		return CONNECTIONS_MIN;
	rlim_t n = all.rlim_cur > files ? all.rlim_cur - files : 0;
	n = n > 2 * RLIMITS_RESERVED ? n - RLIMITS_RESERVED : n / 2;
	if (n < CONNECTIONS_MIN)
		return CONNECTIONS_MIN;
	return n > CONNECTIONS_MAX ? CONNECTIONS_MAX : (uint32_t)n;
}
