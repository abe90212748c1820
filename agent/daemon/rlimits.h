/* SPDX-License-Identifier: MIT */
/* What the kernel allows this process: no core dump, since it would hold keys, and as many
 * descriptors as there can be. */
#ifndef DUNLIN_AGENT_DAEMON_RLIMITS_H
#define DUNLIN_AGENT_DAEMON_RLIMITS_H

#include <stdint.h>

#define RLIMITS_RESERVED 64 /* descriptors that are not for peers' control connections */

/* Sets them, and returns how many connections the network may hold at one time. What cannot be set
 * is left as it is: an agent that may not lower its limits still runs. */
uint32_t rlimits_set(void);

#endif
