/* SPDX-License-Identifier: MIT */
/* SIGINT, SIGTERM and SIGHUP, taken by a thread that does nothing else.
 *
 * No handler runs in a thread that computes: oneDNN's generated matrix multiplication keeps the
 * stack pointer in the heap for a while, and a handler's frame would damage what lies there. And a
 * process whose other threads all hang can still be ended. */
#ifndef DUNLIN_AGENT_DAEMON_SIGNALS_H
#define DUNLIN_AGENT_DAEMON_SIGNALS_H

#include "agent/base/err.h"

#include <stdbool.h>

/* On the waiting thread. It must return soon: until then no other signal is noticed. */
typedef void (*signals_fn)(void *arg, int signum);

/* Blocks the three in the calling thread, and so in all that it starts later; from now on cb gets
 * them. Once, before any other thread is started. A SIGINT or SIGTERM that comes a second or more
 * after the first ends the process with EXIT_INTERRUPTED, whatever it is doing, after last_words (a
 * whole line; NULL: none) on stderr; one that comes earlier belongs to the first, since `timeout`
 * and other wrappers send it twice. With stop_on_hup SIGHUP counts as one of these, unless the
 * process was started with it ignored (nohup). */
int signals_start(signals_fn cb, void *arg, bool stop_on_hup, const char *last_words,
        struct err *e) MUST_CHECK;

/* Another function takes them from now on, or, with NULL, none: they only count. The one before has
 * returned and is not called any more. */
void signals_to(signals_fn cb, void *arg);

#endif
