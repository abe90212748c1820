/* SPDX-License-Identifier: MIT */
/* Threads that no signal interrupts. */
#ifndef DUNLIN_AGENT_BASE_THREAD_H
#define DUNLIN_AGENT_BASE_THREAD_H

#include "agent/base/err.h"

#include <pthread.h>

/* As pthread_create, with default attributes: 0 or an errno value. In the new thread, and in all
 * that it starts, every signal is blocked but those that a fault of its own raises. A thread that
 * computes must be started so: generated code may keep the stack pointer elsewhere for a while, and
 * a signal handler would write there. */
int thread_start(pthread_t *t, void *(*run)(void *arg), void *arg) MUST_CHECK;

#endif
