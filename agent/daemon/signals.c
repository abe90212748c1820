/* SPDX-License-Identifier: MIT */
/* The happy path: the three signals are blocked everywhere, so they stay pending until the waiting
 * thread takes them by sigwait, on its own stack, where any function may be called.
 *
 * A thread that a library started before main (some builds of OpenBLAS do) does not know of that
 * mask. What the kernel delivers there is sent on to the waiting thread by a handler. */
#include "agent/daemon/signals.h"

#include "agent/base/exit_code.h"
#include "agent/base/thread.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_AFTER_NS 1000000000

/* Of the process, as the signals are. */
static struct {
	pthread_t thread;
	sigset_t set;
	bool stop_on_hup;
	const char *last_words;
	bool stopping; /* the first has come */
	struct timespec first;
	pthread_mutex_t lock; /* of what follows; held while cb runs */
	signals_fn cb;
	void *arg;
} signals = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void send_on(int signum)
{
	pthread_kill(signals.thread, signum);
}

/* Nothing here may wait: whoever reads stderr may be what hangs. */
static _Noreturn void end_at_once(void)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

	if (signals.last_words && poll(&out, 1, 0) == 1 && out.revents == POLLOUT &&
	        write(STDERR_FILENO, signals.last_words, strlen(signals.last_words)) < 0)
		_exit(EXIT_INTERRUPTED);
	_exit(EXIT_INTERRUPTED);
}

/* False: it belongs to the first. */
static bool counts(int signum)
{
	struct timespec now;

	if (signum == SIGHUP && !signals.stop_on_hup)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!signals.stopping) {
		signals.stopping = true;
		signals.first = now;
		return true;
	}
	long long ns = (now.tv_sec - signals.first.tv_sec) * 1000000000LL + now.tv_nsec -
	               signals.first.tv_nsec;
	if (ns >= SECOND_AFTER_NS)
		end_at_once();
	return false;
}

static void *wait_for_signals(void *arg)
{
	int signum;

	(void)arg;
	pthread_setname_np(pthread_self(), "signals");
	for (;;) {
		if (sigwait(&signals.set, &signum) != 0 || !counts(signum))
			continue;
		pthread_mutex_lock(&signals.lock);
		if (signals.cb)
			signals.cb(signals.arg, signum);
		pthread_mutex_unlock(&signals.lock);
	}
	return NULL;
}

int signals_start(signals_fn cb, void *arg, bool stop_on_hup, const char *last_words, struct err *e)
{
	const int all[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction forward = {.sa_handler = send_on, .sa_flags = SA_RESTART}, old;

	signals.cb = cb;
	signals.arg = arg;
	signals.stop_on_hup = stop_on_hup;
	signals.last_words = last_words;
	sigemptyset(&signals.set);
	for (int i = 0; i < 3; i++) {
		/* A blocked signal is kept even if it is ignored, so that one is left alone. */
		if (all[i] != SIGHUP || !stop_on_hup || sigaction(SIGHUP, NULL, &old) != 0 ||
		        old.sa_handler != SIG_IGN)
			sigaddset(&signals.set, all[i]);
	}
	pthread_sigmask(SIG_BLOCK, &signals.set, NULL);
	if (thread_start(&signals.thread, wait_for_signals, NULL) != 0)
		return err_set(e, ERR_SYSTEM,
		        "no thread to wait for signals: is a limit on threads "
		        "too low?");
	for (int i = 0; i < 3; i++)
		if (sigismember(&signals.set, all[i]) == 1)
			sigaction(all[i], &forward, NULL);
	return 0;
}

void signals_to(signals_fn cb, void *arg)
{
	pthread_mutex_lock(&signals.lock);
	signals.cb = cb;
	signals.arg = arg;
	pthread_mutex_unlock(&signals.lock);
}
