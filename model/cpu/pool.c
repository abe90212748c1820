/* SPDX-License-Identifier: MIT */
/* Two counters carry everything: `round` goes up when a run begins, and the barrier's `phase` when
 * the last worker has come. A waiter watches its counter for a short while, then goes on watching
 * but lets others have the core, then sleeps on a condition; whoever moves a counter wakes the
 * sleepers, if there are any.
 *
 * The happy path takes no lock: the workers of one step are seldom more than some microseconds
 * apart. Nothing can fail after pool_new. */
#include "model/cpu/pool.h"

#include "agent/base/cores.h"
#include "agent/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPIN_ROUNDS 1000 /* of `pause`: about 10 to 50 µs */
#define YIELD_ROUNDS \
	2000 /* of sched_yield: about 1 ms, all of it for whoever else wants the core */

struct worker {
	struct pool *pool;
	int index;
	pthread_t thread;
};

struct pool {
	int threads;
	int spin;
	struct worker *workers; /* owned; [0] is the caller and has no thread */
	pool_fn fn;
	void *arg;
	bool stop;
	_Alignas(64) atomic_uint round;
	_Alignas(64) atomic_uint phase;
	_Alignas(64) atomic_int come; /* at the barrier */
	atomic_int sleepers;
	pthread_mutex_t lock;
	pthread_cond_t moved;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

static void wait_change(struct pool *p, atomic_uint *word, unsigned old)
{
	for (int i = 0; i < p->spin; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		relax();
	}
	/* Sleeping and waking costs more than most waits, above all in a virtual machine. */
	for (int i = 0; i < YIELD_ROUNDS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return;
		sched_yield();
	}
	/* Count ourselves as a sleeper before the last look: either we see the change, or the
	 * worker that makes it sees us. */
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleepers, 1);
	while (atomic_load(word) == old)
		pthread_cond_wait(&p->moved, &p->lock);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->lock);
}

static void change(struct pool *p, atomic_uint *word)
{
	atomic_fetch_add(word, 1);
	if (atomic_load(&p->sleepers) > 0) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->moved);
		pthread_mutex_unlock(&p->lock);
	}
}

void pool_barrier(struct pool *p)
{
	if (p->threads == 1)
		return;
	unsigned phase = atomic_load(&p->phase);
	if (atomic_fetch_add(&p->come, 1) + 1 == p->threads) {
		atomic_store(&p->come, 0);
		change(p, &p->phase);
	} else {
		wait_change(p, &p->phase, phase);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	for (unsigned round = 0;; round++) {
		wait_change(p, &p->round, round);
		if (p->stop)
			return NULL;
		p->fn(p->arg, w->index);
		pool_barrier(p);
	}
}

void pool_run(struct pool *p, pool_fn fn, void *arg)
{
	p->fn = fn;
	p->arg = arg;
	if (p->threads > 1)
		change(p, &p->round);
	fn(arg, 0);
	pool_barrier(p);
}

int pool_new(struct pool **out, int threads, struct err *e)
{
	struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
	struct worker *workers = calloc((size_t)threads, sizeof *workers);
	*out = NULL;
	if (!p || !workers) {
		free(p);
		free(workers);
		return err_set(e, ERR_NOMEM, "no memory for %d threads", threads);
	}
	*p = (struct pool){.threads = 1, .workers = workers};
	p->spin = threads > cores_usable().n ? 0 : SPIN_ROUNDS;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->moved, NULL);
	for (int i = 1; i < threads; i++) {
		workers[i] = (struct worker){.pool = p, .index = i};
		if (thread_start(&workers[i].thread, work, &workers[i]) != 0) {
			pool_free(p);
			return err_set(
			        e, ERR_SYSTEM, "cannot start thread %d of %d", i + 1, threads);
		}
		p->threads = i + 1; /* no worker reads it before the first round */
	}
	*out = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	p->stop = true;
	change(p, &p->round);
	for (int i = 1; i < p->threads; i++)
		pthread_join(p->workers[i].thread, NULL);
	pthread_cond_destroy(&p->moved);
	pthread_mutex_destroy(&p->lock);
	free(p->workers);
	free(p);
}
