/* SPDX-License-Identifier: MIT */
/* Signals reach the waiting thread from everywhere, and threads that compute get none. */
#include "agent/daemon/signals.h"

#include "agent/base/thread.h"
#include "tests/support.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static void *mask_of(void *arg)
{
	pthread_sigmask(SIG_BLOCK, NULL, arg);
	return NULL;
}

static void threads_get_no_signals(void **state)
{
	static const int blocked[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGPROF};
	sigset_t before, mask, after;
	pthread_t t;
	(void)state;
	mask_of(&before);
	assert_int_equal(thread_start(&t, mask_of, &mask), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++)
		assert_int_equal(sigismember(&mask, blocked[i]), 1);
	assert_int_equal(sigismember(&mask, SIGSEGV), 0);
	mask_of(&after);
	assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

struct news {
	sem_t come;
	atomic_int last;
};

static void tell(void *arg, int signum)
{
	struct news *n = arg;
	atomic_store(&n->last, signum);
	sem_post(&n->come);
}

static void *stand(void *arg)
{
	while (sem_wait(arg) != 0)
		;
	return NULL;
}

/* As a library's that was there before main. */
static void all_reach_the_waiting_thread(void **state)
{
	static struct news first, second;
	pthread_t foreign;
	sem_t over;
	struct err e;
	(void)state;
	sem_init(&over, 0, 0);
	sem_init(&first.come, 0, 0);
	sem_init(&second.come, 0, 0);
	assert_int_equal(pthread_create(&foreign, NULL, stand, &over), 0);
	assert_int_equal(signals_start(tell, &first, false, NULL, &e), 0);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(i % 2 ? kill(getpid(), SIGHUP) : pthread_kill(foreign, SIGHUP), 0);
		stand(&first.come);
		assert_int_equal(atomic_load(&first.last), SIGHUP);
	}
	signals_to(tell, &second);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	stand(&second.come);
	assert_int_equal(atomic_load(&second.last), SIGTERM);
	signals_to(NULL, NULL);
	sem_post(&over);
	pthread_join(foreign, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(threads_get_no_signals),
	        cmocka_unit_test(all_reach_the_waiting_thread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
