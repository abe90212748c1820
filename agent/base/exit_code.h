/* SPDX-License-Identifier: MIT */
/* What the program exits with. */
#ifndef DUNLIN_AGENT_BASE_EXIT_CODE_H
#define DUNLIN_AGENT_BASE_EXIT_CODE_H

#include "agent/base/err.h"

#define EXIT_CODES(X)                                                                        \
	X(EXIT_OK, 0, "done; also after SIGINT or SIGTERM, once everything is saved")        \
	X(EXIT_FAILED, 1, "an unexpected failure: memory, disk, network, output")            \
	X(EXIT_USAGE, 2, "wrong usage: an unknown subcommand, flag or argument")             \
	X(EXIT_CONFIG, 3,                                                                    \
	        "a setting or a file that it names is wrong, or all peers have other settings") \
	X(EXIT_DATA, 4, "data is missing or wrong")                                          \
	X(EXIT_MODEL, 5, "a model, checkpoint or weights file is missing or wrong")          \
	X(EXIT_DIVERGED, 6, "training diverged: the loss is not a finite number")            \
	X(EXIT_DEVICE, 7, "the device failed or is not there")                               \
	X(EXIT_INTERRUPTED, 8, "a second signal came before everything was saved")           \
	X(EXIT_NO_AGENT, 9, "no agent answers")                                              \
	X(EXIT_STALE, 10,                                                                    \
	        "the run ended while the agent was away: it has no result to write")

enum exit_code {
#define X(name, value, text) name = value,
	EXIT_CODES(X)
#undef X
};

/* The exit code for an error: some say it by themselves (device, not finite, usage, memory), the
 * others mean whatever the caller was busy with, such as EXIT_DATA. 0 gives EXIT_OK. */
int exit_code(int err_code, int busy_with);

#endif
