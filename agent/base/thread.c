/* SPDX-License-Identifier: MIT */
/* A new thread inherits the mask of the one that starts it, so that one wears it for the moment. */
#include "agent/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *t, void *(*run)(void *arg), void *arg)
{
	/* A blocked fault kills without a word; a sanitizer's handler has something to say. */
	static const int faults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
	sigset_t mask, before;
	int rc;

	sigfillset(&mask);
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
		sigdelset(&mask, faults[i]);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	rc = pthread_create(t, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}
