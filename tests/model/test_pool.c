/* SPDX-License-Identifier: MIT */
/* The thread pool: every part is run once, barriers hold, and it ends. */
#include "model/cpu/pool.h"
#include "tests/support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define THREADS_MAX 9

struct task {
	struct pool *pool;
	int threads;
	int ran[THREADS_MAX]; /* plain ints: the pool alone must order them */
	int stage[2][THREADS_MAX];
	atomic_int early;
};

static void once(void *arg, int w)
{
	((struct task *)arg)->ran[w]++;
}

static void every_worker_runs_once(void **state)
{
	(void)state;
	for (int t = 1; t <= THREADS_MAX; t++) {
		struct task task = {0};
		struct err e;
		assert_int_equal(pool_new(&task.pool, t, &e), 0);
		for (int round = 0; round < 300; round++)
			pool_run(task.pool, once, &task);
		for (int w = 0; w < THREADS_MAX; w++)
			assert_int_equal(task.ran[w], w < t ? 300 : 0);
		pool_free(task.pool);
	}
}

/* Each writes its slot, waits, and must then see what all others wrote. */
static void staged(void *arg, int w)
{
	struct task *t = arg;
	for (int round = 1; round <= 200; round++) {
		int *now = t->stage[round % 2];
		now[w] = round;
		pool_barrier(t->pool);
		for (int i = 0; i < t->threads; i++)
			if (now[i] != round)
				atomic_fetch_add(&t->early, 1);
	}
}

static void barriers_hold(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 5; threads++) {
		struct task t = {.threads = threads};
		struct err e;
		assert_int_equal(pool_new(&t.pool, threads, &e), 0);
		pool_run(t.pool, staged, &t);
		assert_int_equal(atomic_load(&t.early), 0);
		pool_free(t.pool);
	}
}

static void parts_cover_everything_once(void **state)
{
	(void)state;
	for (size_t n = 0; n < 200; n++)
		for (int t = 1; t < 9; t++)
			for (size_t grain = 1; grain <= 64; grain *= 4) {
				size_t next = 0, from, to;
				for (int w = 0; w < t; w++) {
					pool_part(n, grain, w, t, &from, &to);
					assert_int_equal(from, next);
					assert_true(to >= from && (to == n || to % grain == 0));
					next = to;
				}
				assert_int_equal(next, n);
			}
}

/* A handler must not run on a stack that generated code has borrowed. */
static void no_signals(void *arg, int w)
{
	sigset_t mask;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	((struct task *)arg)->ran[w] = sigismember(&mask, SIGTERM);
}

static void workers_take_no_signals(void **state)
{
	struct task task = {0};
	struct err e;
	(void)state;
	assert_int_equal(pool_new(&task.pool, 3, &e), 0);
	pool_run(task.pool, no_signals, &task);
	assert_int_equal(task.ran[0], 0); /* the caller's own */
	assert_int_equal(task.ran[1], 1);
	assert_int_equal(task.ran[2], 1);
	pool_free(task.pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_worker_runs_once),
	        cmocka_unit_test(barriers_hold),
	        cmocka_unit_test(parts_cover_everything_once),
	        cmocka_unit_test(workers_take_no_signals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
