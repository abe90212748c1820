/* SPDX-License-Identifier: MIT */
/* Runs a kernel: block after block in random order, and of a block one thread after the other, each
 * until it must wait at a barrier or for its warp. Since every access is noted with the number of
 * barriers that have passed, a race shows whatever the order was. A barrier that some threads reach
 * and others do not, and a shuffle from a lane that takes no part, are faults. */
#include "tests/gpu/ptx_thread.h"

#include <stdlib.h>
#include <string.h>

#define TOLD_MAX 3

struct ptx_block ptx_block;

unsigned long standin_instructions(void)
{
	return ptx_block.n_instructions;
}

bool ptx_tell(void)
{
	return ptx_block.told++ < TOLD_MAX;
}

static uint64_t shuffled(const struct ptx_thread *t, const struct ptx_ins *n, bool *in_range)
{
	int lane = t->number % PTX_WARP, to;
	int b = (int)(t->r[n->s[1]] & 31), c = (int)t->r[n->s[2]], segment = c >> 8 & 31;
	int most = (lane & segment) | (c & 31 & ~segment), least = lane & segment;
	switch (n->mode) {
	case SHUFFLE_DOWN:
		to = lane + b;
		*in_range = to <= most;
		break;
	case SHUFFLE_UP:
		to = lane - b;
		*in_range = to >= most;
		break;
	case SHUFFLE_BFLY:
		to = lane ^ b;
		*in_range = to <= most;
		break;
	default:
		to = least | (b & ~segment);
		*in_range = to <= most;
	}
	if (!*in_range)
		to = lane;
	if (!(t->mask >> to & 1)) {
		if (ptx_tell())
			gpu_fault("shuffle",
			        "%s: PTX line %d: lane %d reads lane %d, which takes no part",
			        ptx_block.kernel->name, n->line, lane, to);
		to = lane;
	}
	return ptx_block.threads[t->number - lane + to].offers;
}

/* When all lanes of the mask are there, the shuffle happens; true then. */
static bool join_warp(struct ptx_thread *t)
{
	int first = t->number / PTX_WARP * PTX_WARP;
	const struct ptx_ins *n = &ptx_block.kernel->code[t->pc];
	uint64_t out[PTX_WARP] = {0};
	bool in_range[PTX_WARP] = {0};
	uint32_t mask = t->mask;
	for (int l = 0; l < PTX_WARP; l++) {
		const struct ptx_thread *other = &ptx_block.threads[first + l];
		if (mask >> l & 1 &&
		        (first + l >= ptx_block.n_threads || other->state != THREAD_IN_WARP ||
		                other->pc != t->pc || other->mask != mask))
			return false;
	}
	for (int l = 0; l < PTX_WARP; l++)
		if (mask >> l & 1 && n->op == OP_SHFL)
			out[l] = shuffled(&ptx_block.threads[first + l], n, &in_range[l]);
	for (int l = 0; l < PTX_WARP; l++)
		if (mask >> l & 1) {
			struct ptx_thread *other = &ptx_block.threads[first + l];
			other->r[n->d[0]] = out[l];
			if (n->n_d > 1)
				other->r[n->d[1]] = in_range[l];
			other->pc++;
			other->state = THREAD_READY;
		}
	return true;
}

/* All threads that can run do, in random order. */
static void run_ready(int *ready, int n)
{
	while (n > 0) {
		int k = (int)(gpu_random() % (uint32_t)n);
		struct ptx_thread *t = &ptx_block.threads[ready[k]];
		ready[k] = ready[--n];
		ptx_step(t);
		uint32_t mask = t->mask;
		if (t->state != THREAD_IN_WARP || !join_warp(t))
			continue;
		for (int l = 0; l < PTX_WARP; l++)
			if (mask >> l & 1)
				ready[n++] = t->number / PTX_WARP * PTX_WARP + l;
	}
}

static void stuck_in_warp(const struct ptx_thread *t)
{
	if (ptx_tell())
		gpu_fault("shuffle", "%s: PTX line %d: thread %d waits for ever for the lanes %#x",
		        ptx_block.kernel->name, ptx_block.kernel->code[t->pc].line, t->number,
		        t->mask);
}

/* Lets those that wait at a barrier go on; returns how many there are, 0 at the block's end. */
static int pass_barrier(int *ready)
{
	int n = 0, done = 0, line = -1;
	bool mixed = false;
	for (int i = 0; i < ptx_block.n_threads; i++) {
		struct ptx_thread *t = &ptx_block.threads[i];
		if (t->state == THREAD_IN_WARP) {
			stuck_in_warp(t);
			return 0;
		}
		if (t->state == THREAD_DONE) {
			done++;
			continue;
		}
		int here = ptx_block.kernel->code[t->pc].line;
		mixed = mixed || (line >= 0 && line != here);
		line = here;
		t->state = THREAD_READY;
		t->pc++;
		ready[n++] = i;
	}
	if (n > 0 && (done || mixed) && ptx_tell())
		gpu_fault("barrier", "%s: PTX line %d: reached by %d of %d threads%s",
		        ptx_block.kernel->name, line, n, ptx_block.n_threads,
		        mixed ? ", and others at another" : "");
	ptx_block.who.epoch++;
	return n;
}

static void run_block(uint64_t number, dim3 grid)
{
	static int ready[PTX_THREADS_MAX];
	struct ptx_block *b = &ptx_block;
	b->who.block = (uint32_t)number;
	b->who.epoch = 1;
	memset(b->shared, 0xff, b->shared_bytes);
	memset(b->shadow, 0, (b->shared_bytes / 4 + 1) * sizeof *b->shadow);
	for (int v = 0; v < b->kernel->n_shared; v++) {
		const struct ptx_part *p = &b->kernel->shared[v];
		for (size_t i = p->at / 4; i < (p->at + p->bytes + 3) / 4; i++)
			b->shadow[i].ours = true;
	}
	for (size_t i = b->static_bytes / 4; i < b->shared_bytes / 4; i++)
		b->shadow[i].ours = true;
	for (int i = 0; i < b->n_threads; i++) {
		struct ptx_thread *t = &b->threads[i];
		t->pc = 0;
		t->state = THREAD_READY;
		t->r[SPECIAL_CTAID_X] = number % grid.x;
		t->r[SPECIAL_CTAID_Y] = number / grid.x % grid.y;
		t->r[SPECIAL_CTAID_Z] = number / grid.x / grid.y;
		ready[i] = i;
	}
	for (int n = b->n_threads; n > 0; n = pass_barrier(ready))
		run_ready(ready, n);
}

static void set_registers(struct ptx_thread *t, dim3 grid, dim3 block)
{
	unsigned i = t->number;
	const uint64_t specials[SPECIALS] = {i % block.x, i / block.x % block.y,
	        i / block.x / block.y, block.x, block.y, block.z, 0, 0, 0, grid.x, grid.y, grid.z,
	        i % PTX_WARP, PTX_WARP};
	memcpy(t->r, specials, sizeof specials);
	memcpy(t->r + SPECIALS, ptx_block.kernel->constants,
	        (size_t)ptx_block.kernel->n_constants * sizeof *t->r);
}

static uint32_t *shuffled_blocks(uint64_t n)
{
	uint32_t *order = malloc(n * sizeof *order);
	if (!order)
		gpu_die("no memory");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = gpu_random() % (i + 1);
		order[i] = order[j];
		order[j] = (uint32_t)i;
	}
	return order;
}

void ptx_run(const struct ptx_kernel *k, const unsigned char *arguments, dim3 grid, dim3 block,
        size_t dynamic)
{
	struct ptx_block *b = &ptx_block;
	size_t words = SPECIALS + (size_t)k->n_constants + (size_t)k->n_registers;
	uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
	b->kernel = k;
	b->arguments = arguments;
	b->n_threads = (int)(block.x * block.y * block.z);
	b->static_bytes = (k->shared_bytes + 15) & ~(size_t)15;
	b->shared_bytes = b->static_bytes + dynamic;
	b->who.op = gpu_running()->id;
	b->told = 0;
	uint64_t *registers = calloc((size_t)b->n_threads * words, sizeof *registers);
	unsigned char *locals = calloc((size_t)b->n_threads, k->local_bytes + 16);
	uint32_t *order = shuffled_blocks(n);
	b->shared = malloc(b->shared_bytes + 16);
	b->shadow = malloc((b->shared_bytes / 4 + 1) * sizeof *b->shadow);
	if (!registers || !locals || !b->shared || !b->shadow)
		gpu_die("no memory");
	for (int i = 0; i < b->n_threads; i++) {
		struct ptx_thread *t = &b->threads[i];
		t->number = (uint16_t)i;
		t->r = registers + (size_t)i * words;
		t->local = locals + (size_t)i * (k->local_bytes + 16);
		set_registers(t, grid, block);
	}
	for (uint64_t i = 0; i < n; i++)
		run_block(order[i], grid);
	free(registers);
	free(locals);
	free(order);
	free(b->shared);
	free(b->shadow);
}
