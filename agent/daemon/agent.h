/* SPDX-License-Identifier: MIT */
/* A whole agent, from its first signal handler to its last goodbye. */
#ifndef DUNLIN_AGENT_DAEMON_AGENT_H
#define DUNLIN_AGENT_DAEMON_AGENT_H

#include "agent/base/buf.h"
#include "agent/base/exit_code.h"
#include "agent/config/config.h"
#include "gossip/exchange/manifest.h"

struct agent_options {
	const struct config *config; /* borrowed, as all of these */
	const char *config_path;     /* its file, for the join lines; NULL: none */
	const bool *given;           /* by setting: a flag gave it; for the join lines */
	/* What the run has that was meant to be joined, without its formats; NULL: any will do. */
	const struct manifest *expected;
	/* The greeting goes to stdout, what went wrong to stderr. Both return an exit code: the
	 * first 0 or its own, the second the one that it gets. */
	int (*print_cb)(const struct buf *text);
	int (*fail_cb)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
};

/* All checks of a start: settings, files, keys, data, model, checkpoint, whether the port is free.
 * Nothing is bound, locked for longer than a look, or written. Prints what a start would do, with
 * json as JSON; returns the exit code that a start would end with, or 0. */
int agent_rehearse(const struct agent_options *o, bool json) MUST_CHECK;

/* Runs until the agent has left its flock; returns the exit code. Once in a process, since it takes
 * the signals; the caller has set SIGHUP to be ignored until then. */
int agent_run(const struct agent_options *o) MUST_CHECK;

#endif
