/* SPDX-License-Identifier: MIT */
/* Descriptors: some are reserved for files (checkpoints, data, the log), the control socket and its
 * clients, the loop, bulk transfers; peers get the rest. With few, both halve it. */
#include "agent/daemon/rlimits.h"

#include <sys/resource.h>

#define CONNECTIONS_MIN 16
#define CONNECTIONS_MAX 65536

uint32_t rlimits_set(void)
{
	struct rlimit none = {0, 0}, files;
	(void)setrlimit(RLIMIT_CORE, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return CONNECTIONS_MIN;
	rlim_t before = files.rlim_cur;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) != 0)
		files.rlim_cur = before;
	rlim_t n = files.rlim_cur;
	n = n > 2 * RLIMITS_RESERVED ? n - RLIMITS_RESERVED : n / 2;
	if (n < CONNECTIONS_MIN)
		return CONNECTIONS_MIN;
	return n > CONNECTIONS_MAX ? CONNECTIONS_MAX : (uint32_t)n;
}
