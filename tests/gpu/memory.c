/* SPDX-License-Identifier: MIT */
/* Device memory. One range of addresses is reserved that nobody may touch: these are the addresses
 * that programs get. Behind it lies the memory itself, and a shadow with a cell for every 4 bytes:
 * the last operation that wrote them, the last ones that read them, and by which block and thread.
 *
 *     device    |........|xxxx allocation xxxx|....|xxxx|      no access, ever
 *     memory    |........|....................|....|....|      what kernels and copies use
 *     shadow    a struct cell for every 4 bytes
 *
 * Addresses are not used twice, so what was freed stays known as freed. A program that carves
 * pieces from an allocation by itself may say so (standin_carved): then only the pieces may be
 * used, and what was written to the memory of an earlier piece counts as never written. From the
 * shadow follow: reads of what was never written; two accesses, one a write, by operations of which
 * neither happens before the other; and the same inside a kernel, between blocks or between threads
 * of a block with no barrier between. A pair of threads that write 2 bytes each of one cell is not
 * told apart, so accesses of less than 4 bytes are not checked inside a kernel. */
#include "tests/gpu/standin.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGE ((size_t)256 << 30) /* of addresses; what is not used costs nothing */
#define GRAIN 4
#define GAP 512 /* between allocations */
#define MANY_BLOCKS UINT32_MAX
#define MANY_THREADS UINT16_MAX

struct cell {
	uint32_t write_op, write_block;
	uint16_t write_thread, write_epoch;
	uint32_t read_op, read_block;
	uint16_t read_thread, read_epoch;
	uint32_t other_op; /* an earlier reader, of another stream */
	uint32_t flags;
};
enum { CELL_ATOMIC = 1, CELL_PART = 2, CELL_NEW = 4 /* of a piece, and not yet written */ };

struct allocation {
	uint64_t at;
	size_t bytes;
	bool freed;
	bool carved;
};

struct list {
	struct allocation *item; /* by address */
	int n, max;
	int last; /* that was found */
};

static uint64_t device, next_free; /* addresses */
static char *memory;
static struct cell *shadow;
static struct list allocations, pieces;
static size_t taken;
static uint32_t told_op;
static int told;

static void on_segv(int sig, siginfo_t *info, void *context)
{
	(void)context;
	static const char device_text[] = "standin: touch: the host touches device memory\n";
	static const char pinned_text[] =
	        "standin: touch: the host touches pinned memory that a copy still writes\n";
	const char *text = NULL;
	if (gpu_is_device(info->si_addr))
		text = device_text;
	else if (gpu_pinned_touched(info->si_addr))
		text = pinned_text;
	else if (gpu_pinned_at(info->si_addr))
		return; /* beside what the copy writes: once more */
	if (text && write(2, text, strlen(text)) >= 0)
		_exit(97);
	signal(sig, SIG_DFL);
}

void standin_catch(void)
{
	struct sigaction act = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &act, NULL);
}

static void *reserve(size_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		gpu_die("no %zu bytes of addresses", bytes);
	return p;
}

static void init(void)
{
	device = (uint64_t)reserve(RANGE, PROT_NONE);
	memory = reserve(RANGE, PROT_READ | PROT_WRITE);
	shadow = reserve(RANGE / GRAIN * sizeof *shadow, PROT_READ | PROT_WRITE);
	next_free = device + GAP;
	standin_catch();
}

bool gpu_is_device(const void *p)
{
	return device && (uint64_t)p - device < RANGE;
}

/* The last one at or before an address, or -1. */
static int before(const struct list *l, uint64_t at)
{
	int low = 0, high = l->n;
	while (low < high) {
		int mid = (low + high) / 2;
		if (l->item[mid].at <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

static void insert(struct list *l, uint64_t at, size_t bytes)
{
	int i = before(l, at) + 1;
	if (l->n == l->max) {
		l->max = l->max ? 2 * l->max : 256;
		l->item = realloc(l->item, (size_t)l->max * sizeof *l->item);
		if (!l->item)
			gpu_die("no memory");
	}
	memmove(&l->item[i + 1], &l->item[i], (size_t)(l->n++ - i) * sizeof *l->item);
	l->item[i] = (struct allocation){.at = at, .bytes = bytes};
}

static struct allocation *find_in(struct list *l, uint64_t at)
{
	if (l->last < l->n && at - l->item[l->last].at < l->item[l->last].bytes)
		return &l->item[l->last];
	int i = before(l, at);
	if (i < 0)
		return NULL;
	l->last = i;
	return &l->item[i];
}

void *gpu_memory_take(size_t bytes)
{
	if (!device)
		init();
	uint64_t at = (next_free + GAP + 255) & ~(uint64_t)255;
	if (taken + bytes > gpu_settings.memory || at + bytes + GAP > device + RANGE)
		return NULL;
	insert(&allocations, at, bytes);
	next_free = at + bytes;
	taken += bytes;
	gpu_live(LIVE_DEVICE, 1);
	return (void *)at;
}

size_t gpu_memory_left(void)
{
	return gpu_settings.memory > taken ? gpu_settings.memory - taken : 0;
}

/* The allocation at or before an address, or the piece of it. */
static struct allocation *find(uint64_t at)
{
	struct allocation *a = find_in(&allocations, at);
	return a && a->carved && at - a->at < a->bytes ? find_in(&pieces, at) : a;
}

/* The cells of memory that was never used are not even looked at. */
static void forget(uint64_t at, size_t bytes)
{
	static unsigned char there[1 << 16];
	const size_t page = 4096, first = (at - device) / GRAIN,
	             last = (at - device + bytes - 1) / GRAIN;
	char *from = (char *)((uintptr_t)&shadow[first] & ~(uintptr_t)(page - 1)),
	     *end = (char *)&shadow[last + 1];
	for (; from < end; from += sizeof there * page) {
		size_t n = ((size_t)(end - from) + page - 1) / page;
		n = n < sizeof there ? n : sizeof there;
		if (mincore(from, n * page, there) != 0)
			gpu_die("the shadow is not there");
		for (size_t i = 0; i < n; i++) {
			size_t c = (size_t)(from + i * page - (char *)shadow) / sizeof *shadow;
			const size_t after = c + page / sizeof *shadow + 1;
			for (; (there[i] & 1) && c <= after; c++)
				if (c >= first && c <= last)
					shadow[c].flags |= CELL_NEW;
		}
	}
}

void standin_carved(const void *p, size_t bytes)
{
	const uint64_t at = (uint64_t)p;
	gpu_lock();
	struct allocation *a = find_in(&allocations, at), *old = find_in(&pieces, at + bytes - 1);
	if (!a || a->freed || at - a->at + bytes > a->bytes ||
	        (bytes > 0 && old && old->at + old->bytes > at))
		gpu_fault("carve", "%zu bytes at %p: not free memory of an allocation", bytes, p);
	else
		a->carved = true;
	if (bytes > 0) {
		gpu_slow(__func__);
		insert(&pieces, at, bytes);
		forget(at, bytes);
	}
	gpu_unlock();
}

void standin_dropped(const void *p)
{
	gpu_lock();
	if (*standin_failed()) /* a synchronisation may be what failed, and then nothing runs on */
		gpu_finish_all();
	int i = before(&pieces, (uint64_t)p);
	if (i < 0 || pieces.item[i].at != (uint64_t)p)
		gpu_fault("carve", "%p is dropped and was not carved", p);
	else
		memmove(&pieces.item[i], &pieces.item[i + 1],
		        (size_t)(--pieces.n - i) * sizeof *pieces.item);
	gpu_unlock();
}

bool gpu_memory_give(void *p)
{
	struct allocation *a = find_in(&allocations, (uint64_t)p);
	if (!a || a->at != (uint64_t)p || a->freed)
		return false;
	const int inside = before(&pieces, a->at + a->bytes - 1);
	if (a->carved && inside >= 0 && pieces.item[inside].at >= a->at)
		gpu_fault("leak", "an allocation is freed of which a piece of %zu bytes is in use",
		        pieces.item[inside].bytes);
	a->carved = false;
	a->freed = true;
	taken -= a->bytes;
	gpu_live(LIVE_DEVICE, -1);
	/* Whole pages go back to the system; nothing reads them again. */
	uint64_t from = (a->at - device + 4095) & ~(uint64_t)4095, to = a->at - device + a->bytes;
	to &= ~(uint64_t)4095;
	if (to > from) {
		madvise(memory + from, to - from, MADV_DONTNEED);
		madvise(shadow + from / GRAIN, (to - from) / GRAIN * sizeof *shadow, MADV_DONTNEED);
	}
	return true;
}

static const char *why_not(uint64_t at, size_t bytes)
{
	struct allocation *a = find(at);
	if (a && at - a->at < a->bytes)
		return a->freed                        ? "freed memory"
		       : at - a->at + bytes > a->bytes ? "past the end"
		                                       : NULL;
	if (!gpu_is_device((const void *)at))
		return "not device memory";
	return "outside any allocation";
}

bool gpu_range_ok(const void *at, size_t bytes, const char *what)
{
	const char *why = bytes ? why_not((uint64_t)at, bytes) : NULL;
	if (why)
		gpu_fault("bounds", "%s: %zu bytes at %p: %s", what, bytes, at, why);
	return !why;
}

/* Few faults of one operation are enough. */
static bool tell(uint32_t op)
{
	if (op != told_op)
		told_op = op, told = 0;
	return told++ < 3;
}

static bool ordered(uint32_t a, const struct gpu_who *who)
{
	static uint32_t last_a, last_b;
	if (a == last_a && who->op == last_b)
		return true;
	if (!gpu_before(gpu_op_by_id(a), gpu_op_by_id(who->op)))
		return false;
	last_a = a, last_b = who->op;
	return true;
}

static void disorder(const char *does, const char *did, uint32_t a, const struct gpu_who *who)
{
	if (!tell(who->op))
		return;
	const struct gpu_op *was = gpu_op_by_id(a), *is = gpu_op_by_id(who->op);
	gpu_fault("order", "%s (stream %d) %s what %s (stream %d) %s, and nothing orders them",
	        is->name, is->stream, does, was->name, was->stream, did);
}

static void race(const char *kind, uint32_t block, uint16_t thread, const struct gpu_who *who)
{
	if (tell(who->op))
		gpu_fault("race",
		        "%s: global memory, %s: block %u thread %u and block %u thread %u",
		        gpu_op_by_id(who->op)->name, kind, block, thread, who->block, who->thread);
}

/* Between two threads of one kernel, with the same block's barriers taken into account. */
static bool apart(uint32_t block, uint16_t thread, uint16_t epoch, const struct gpu_who *who)
{
	return block != who->block || (thread != who->thread && epoch == who->epoch);
}

static void note_read(struct cell *c, const struct gpu_who *who)
{
	if (c->read_op == who->op) {
		if (c->read_block != who->block)
			c->read_block = MANY_BLOCKS;
		if (c->read_thread != who->thread)
			c->read_thread = c->read_epoch == who->epoch ? MANY_THREADS : who->thread;
	} else {
		if (c->read_op && gpu_op_by_id(c->read_op)->stream != gpu_op_by_id(who->op)->stream)
			c->other_op = c->read_op;
		c->read_op = who->op;
		c->read_block = who->block;
		c->read_thread = who->thread;
	}
	c->read_epoch = who->epoch;
}

static void check_cell(struct cell *c, enum gpu_access access, const struct gpu_who *who, bool part)
{
	bool write = access != ACCESS_READ;
	bool atomic = access == ACCESS_ATOMIC && c->flags & CELL_ATOMIC;
	bool alone = part || c->flags & CELL_PART;
	if (c->write_op == who->op) {
		if (!alone && !atomic &&
		        apart(c->write_block, c->write_thread, c->write_epoch, who))
			race(write ? "two writes" : "read of a write", c->write_block,
			        c->write_thread, who);
	} else if (!c->write_op || (c->flags & CELL_NEW && access != ACCESS_WRITE)) {
		if (access != ACCESS_WRITE && tell(who->op))
			gpu_fault("uninitialised",
			        "%s: block %u thread %u reads what was never written",
			        gpu_op_by_id(who->op)->name, who->block, who->thread);
	} else if (!ordered(c->write_op, who)) {
		disorder(write ? "overwrites" : "reads", "wrote", c->write_op, who);
	}
	if (!write) {
		note_read(c, who);
		return;
	}
	if (c->read_op == who->op) {
		if (!alone && apart(c->read_block, c->read_thread, c->read_epoch, who))
			race("write of a read", c->read_block, c->read_thread, who);
	} else if (c->read_op && !ordered(c->read_op, who)) {
		disorder("overwrites", "reads", c->read_op, who);
	}
	if (c->other_op && c->other_op != who->op && !ordered(c->other_op, who))
		disorder("overwrites", "reads", c->other_op, who);
	c->write_op = who->op;
	c->write_block = who->block;
	c->write_thread = who->thread;
	c->write_epoch = who->epoch;
	c->flags = (access == ACCESS_ATOMIC ? CELL_ATOMIC : 0u) | (part ? CELL_PART : 0u);
}

void *gpu_touch(uint64_t at, size_t bytes, enum gpu_access access, const struct gpu_who *who)
{
	struct allocation *a = find(at);
	if (!a || a->freed || at - a->at + bytes > a->bytes || at < a->at) {
		if (tell(who->op))
			gpu_fault("bounds", "%s: block %u thread %u %s %zu bytes at %#lx: %s",
			        gpu_op_by_id(who->op)->name, who->block, who->thread,
			        access == ACCESS_READ ? "reads" : "writes", bytes,
			        (unsigned long)at, why_not(at, bytes));
		return NULL;
	}
	size_t from = (at - device) / GRAIN, to = (at - device + bytes - 1) / GRAIN;
	for (size_t i = from; i <= to; i++)
		check_cell(&shadow[i], access, who, bytes < GRAIN);
	return memory + (at - device);
}

void *gpu_use(const void *at, size_t bytes, bool write, const char *what)
{
	const struct gpu_op *op = gpu_running();
	struct gpu_who who = {.op = op->id};
	if (!gpu_range_ok(at, bytes, what))
		return NULL;
	return gpu_touch((uint64_t)at, bytes, write ? ACCESS_WRITE : ACCESS_READ, &who);
}
