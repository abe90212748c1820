/* SPDX-License-Identifier: MIT */
/* What the kernel allows this process: no core dump, since it would hold keys, and as many
 * descriptors as there can be. */
#ifndef DUNLIN_AGENT_DAEMON_RLIMITS_H
#define DUNLIN_AGENT_DAEMON_RLIMITS_H

#include <stdint.h>

#define RLIMITS_RESERVED 64 /* descriptors that are not for peers' control connections */

/* Sets them. What cannot be set is left as it is: an agent that may not lower its limits still
 * runs. */
void rlimits_set(void);

/* How many connections the network may hold at one time, where so many files of data stay open. */
uint32_t rlimits_connections(uint32_t files);

#endif
