/* SPDX-License-Identifier: MIT */
/* Streams: queues of operations. An operation runs when those before it in its stream have run,
 * and, if it is a wait, when its event has happened. Eager streams run what is pushed at once; lazy
 * ones only when somebody must know; random ones in any order that CUDA allows, drawn from the
 * seed.
 *
 * Who happens before whom does not depend on the order in which things were run: every operation
 * has a vector clock, for each stream the number of its last operation that is sure to have ended
 * before. A push takes over the stream's clock, the host's (what it has synchronised with), and
 * for a wait the event's. Streams have slots; a slot that is used again goes on counting.
 *
 * Host functions run on a thread of their own, without the lock, as in CUDA: an operation that has
 * one at its head waits for that thread. So that they run even if nobody synchronises, the thread
 * pushes the work before them on after a moment. */
#include "tests/gpu/stream.h"
#include "tests/gpu/standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct CUstream_st {
	int slot;
	struct gpu_op *head, *tail; /* not done yet */
	struct gpu_op *last;        /* pushed, done or not */
};

static struct CUstream_st *streams[GPU_STREAMS_MAX]; /* by slot */
static uint32_t counts[GPU_STREAMS_MAX];
static uint32_t clocks[GPU_STREAMS_MAX][GPU_STREAMS_MAX], host_clock[GPU_STREAMS_MAX];
static struct gpu_op **ops;
static uint32_t n_ops = 1, max_ops;
static struct gpu_op *running;
static _Thread_local bool in_callback;

static void merge(uint32_t *to, const uint32_t *from)
{
	for (int i = 0; i < GPU_STREAMS_MAX; i++)
		if (from[i] > to[i])
			to[i] = from[i];
}

bool gpu_in_callback(void)
{
	return in_callback;
}

struct gpu_op *gpu_op_by_id(uint32_t id)
{
	return ops[id];
}

const struct gpu_op *gpu_running(void)
{
	return running;
}

bool gpu_before(const struct gpu_op *a, const struct gpu_op *b)
{
	return b->clock[a->stream] >= a->seq;
}

bool gpu_host_knows(const struct gpu_op *op)
{
	return host_clock[op->stream] >= op->seq;
}

static void learn(const struct gpu_op *op)
{
	merge(host_clock, op->clock);
	gpu_pinned_settle();
}

/* A host function knows all that came before it. */
static void learn_before(const struct gpu_op *op)
{
	uint32_t own = host_clock[op->stream];
	merge(host_clock, op->clock);
	host_clock[op->stream] = own > op->seq - 1 ? own : op->seq - 1;
	gpu_pinned_settle();
}

bool gpu_behind_host(const struct gpu_op *op)
{
	const struct gpu_op *o = op->done ? op : streams[op->stream]->head;
	for (; o && o != op; o = o->next)
		if (o->host)
			return true;
	return false;
}

cudaStream_t gpu_stream_new(void)
{
	int slot = 0;
	while (slot < GPU_STREAMS_MAX && streams[slot])
		slot++;
	if (slot == GPU_STREAMS_MAX)
		return NULL;
	struct CUstream_st *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->slot = slot;
	streams[slot] = s;
	gpu_live(LIVE_STREAM, 1);
	return s;
}

bool gpu_stream_ok(cudaStream_t s)
{
	for (int i = 0; i < GPU_STREAMS_MAX; i++)
		if (s && streams[i] == s)
			return true;
	return false;
}

static void ended(struct CUstream_st *s, struct gpu_op *op)
{
	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	op->next = NULL;
	op->done = true;
	gpu_changed();
}

/* Runs the operation at a stream's head; false: it cannot yet. */
static bool step(struct CUstream_st *s)
{
	struct gpu_op *op = s->head;
	if (!op || (op->wait && !op->wait->done))
		return false;
	if (op->host) {
		if (!op->handed) {
			op->handed = true;
			gpu_changed();
		}
		return false;
	}
	struct gpu_op *outer = running;
	running = op;
	if (op->run)
		op->run(op->arg);
	free(op->arg);
	op->arg = NULL;
	running = outer;
	ended(s, op);
	return true;
}

/* One step towards the end of an operation. */
static bool advance(const struct gpu_op *op)
{
	struct CUstream_st *s = streams[op->stream];
	while (s->head && s->head->wait && !s->head->wait->done)
		s = streams[s->head->wait->stream];
	return step(s);
}

static bool step_any(void)
{
	int from = (int)(gpu_random() % GPU_STREAMS_MAX);
	for (int i = 0; i < GPU_STREAMS_MAX; i++) {
		struct CUstream_st *s = streams[(from + i) % GPU_STREAMS_MAX];
		if (s && step(s))
			return true;
	}
	return false;
}

static void complete(struct gpu_op *op)
{
	if (running)
		gpu_die("%s: an operation waits for another", op->name);
	while (!op->done)
		if (!(gpu_settings.order == ORDER_RANDOM ? step_any() : advance(op)))
			gpu_wait();
}

void gpu_progress(void)
{
	if (running)
		return;
	for (uint32_t n = gpu_random() % 3; n > 0; n--)
		step_any();
}

void gpu_finish(struct gpu_op *op)
{
	complete(op);
	learn(op);
}

void gpu_finish_all(void)
{
	for (int i = 0; i < GPU_STREAMS_MAX; i++)
		if (streams[i] && streams[i]->last)
			gpu_finish(streams[i]->last);
}

struct gpu_op *gpu_stream_last(cudaStream_t s)
{
	return s->last;
}

void gpu_stream_free(cudaStream_t s)
{
	if (s->last)
		complete(s->last);
	streams[s->slot] = NULL;
	free(s);
	gpu_live(LIVE_STREAM, -1);
}

static struct gpu_op *new_op(cudaStream_t s, const char *name)
{
	struct gpu_op *op = calloc(1, sizeof *op);
	if (n_ops >= max_ops) {
		max_ops = max_ops ? max_ops * 2 : 1024;
		ops = realloc(ops, max_ops * sizeof *ops);
	}
	if (!op || !ops)
		gpu_die("no memory");
	op->id = n_ops;
	op->stream = s->slot;
	op->name = name;
	ops[n_ops++] = op;
	return op;
}

static struct gpu_op *append(cudaStream_t s, struct gpu_op *op)
{
	uint32_t *clock = clocks[s->slot];
	merge(clock, host_clock);
	if (op->wait)
		merge(clock, op->wait->clock);
	op->seq = clock[s->slot] = ++counts[s->slot];
	memcpy(op->clock, clock, sizeof op->clock);
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = s->last = op;
	return op;
}

struct gpu_op *gpu_push(cudaStream_t s, const char *name, void (*run)(void *), void *arg)
{
	if (!gpu_stream_ok(s)) {
		gpu_fault("stream", "%s: %s", name,
		        s ? "the stream is not alive" : "on the default stream");
		free(arg);
		return NULL;
	}
	struct gpu_op *op = new_op(s, name);
	op->run = run;
	op->arg = arg;
	append(s, op);
	if (gpu_settings.order == ORDER_EAGER)
		complete(op);
	return op;
}

void gpu_run_now(struct gpu_op *op)
{
	complete(op);
}

void gpu_run_some(struct gpu_op *op)
{
	advance(op);
}

void gpu_push_wait(cudaStream_t s, struct gpu_op *event)
{
	struct gpu_op *op = new_op(s, "wait");
	op->wait = event;
	append(s, op);
}

/* The thread of host functions. */
static void *call_host(void *unused)
{
	(void)unused;
	in_callback = true;
	gpu_lock();
	for (;;) {
		struct CUstream_st *found = NULL, *waiting = NULL;
		for (int i = 0; i < GPU_STREAMS_MAX; i++) {
			struct CUstream_st *s = streams[i];
			if (s && s->head && s->head->host && s->head->handed)
				found = s;
			for (struct gpu_op *op = s ? s->head : NULL; op; op = op->next)
				if (op->host)
					waiting = s;
		}
		if (!found) {
			if (!waiting)
				gpu_wait();
			else if (!gpu_wait_ms(2) && !running)
				for (int i = 0; i < 100 && waiting->head && !waiting->head->handed;
				        i++)
					advance(waiting->head);
			continue;
		}
		struct gpu_op *op = found->head;
		learn_before(op);
		gpu_unlock();
		op->run(op->arg);
		gpu_lock();
		op->arg = NULL;
		learn(op);
		ended(found, op);
		gpu_pinned_arm();
	}
	return NULL;
}

void gpu_push_host(cudaStream_t s, void (*run)(void *), void *arg)
{
	static bool started;
	pthread_t thread;
	if (!started) {
		if (pthread_create(&thread, NULL, call_host, NULL) != 0)
			gpu_die("no thread for host functions");
		pthread_detach(thread);
		started = true;
	}
	struct gpu_op *op = new_op(s, "host function");
	op->host = true;
	op->run = run;
	op->arg = arg;
	append(s, op);
	if (gpu_settings.order == ORDER_EAGER)
		advance(op);
	gpu_changed();
}
