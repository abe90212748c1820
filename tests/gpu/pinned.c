/* SPDX-License-Identifier: MIT */
/* Pinned host memory. It is mapped twice: the program's view, and the device's, through which
 * copies go. While a copy is under way (that is, until the host knows of its end by a
 * synchronisation) the program must leave the range alone, and that is checked:
 *
 *     the copy reads it     the bytes at the time of the call are kept, and compared when the host
 *                           knows that the copy has ended
 *     the copy writes it    the bytes are spoiled at the call, and the pages of the range cannot be
 *                           touched until then; but first the copies and host functions that are
 *                           before it have had their turn. A page that is touched beside the
 *                           range can be touched from then on, which misses mistakes behind it but
 *                           never tells of one that is none
 *
 * Two copies of one range, one of them writing, must be ordered like all operations. */
#include "tests/gpu/standin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PINNED_MAX 256
#define PAGE ((size_t)4096)

struct use {
	struct gpu_op *op;
	size_t from, to;
	bool write, armed;
	char *kept; /* owned; NULL: it writes */
	struct use *next;
};

struct pinned {
	char *user, *device;
	size_t bytes, mapped;
	struct use *uses;
};

static struct pinned pinned[PINNED_MAX];

void *gpu_pinned_take(size_t bytes)
{
	struct pinned *p = pinned;
	while (p < pinned + PINNED_MAX && p->user)
		p++;
	if (p == pinned + PINNED_MAX)
		return NULL;
	*p = (struct pinned){.bytes = bytes, .mapped = (bytes + PAGE - 1) & ~(PAGE - 1)};
	int fd = memfd_create("pinned", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)p->mapped) != 0)
		gpu_die("pinned memory: memfd_create");
	p->user = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p->device = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p->user == MAP_FAILED || p->device == MAP_FAILED)
		gpu_die("pinned memory: mmap");
	memset(p->device, 0xff, bytes);
	gpu_live(LIVE_PINNED, 1);
	return p->user;
}

static struct pinned *find(const void *at, size_t bytes)
{
	for (struct pinned *p = pinned; p < pinned + PINNED_MAX; p++)
		if (p->user && (const char *)at >= p->user &&
		        (const char *)at + bytes <= p->user + p->bytes)
			return p;
	return NULL;
}

bool gpu_pinned_at(const void *at)
{
	for (struct pinned *p = pinned; p < pinned + PINNED_MAX; p++)
		if (p->user && (const char *)at >= p->user &&
		        (const char *)at < p->user + p->mapped)
			return true;
	return false;
}

void *gpu_pinned_view(const void *at, size_t bytes)
{
	struct pinned *p = find(at, bytes);
	return p ? p->device + ((const char *)at - p->user) : NULL;
}

/* The pages of a range become forbidden, or allowed again. */
static void protect(struct pinned *p, const struct use *u, int prot)
{
	size_t from = u->from & ~(PAGE - 1), to = (u->to + PAGE - 1) & ~(PAGE - 1);
	if (mprotect(p->user + from, to - from, prot) != 0)
		gpu_die("pinned memory: mprotect");
}

/* Called where the host has touched a forbidden page, from a handler of signals: without the lock,
 * which the one who has it would hold across no access to pinned memory. */
bool gpu_pinned_touched(const void *at)
{
	for (struct pinned *p = pinned; p < pinned + PINNED_MAX; p++) {
		if (!p->user || (const char *)at < p->user ||
		        (const char *)at >= p->user + p->mapped)
			continue;
		size_t place = (size_t)((const char *)at - p->user);
		for (struct use *u = p->uses; u; u = u->next)
			if (u->armed && place >= u->from && place < u->to)
				return true;
		mprotect(p->user + (place & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
		return false;
	}
	return false;
}

/* Not while a copy or a host function that comes first may still want what is there. */
static void arm(struct pinned *p, struct use *u)
{
	if (!u->write || u->armed || gpu_behind_host(u->op))
		return;
	for (struct use *v = p->uses; v; v = v->next)
		if (v != u && v->from < u->to && u->from < v->to && !v->op->done)
			return;
	if (!u->op->done)
		memset(p->device + u->from, 0xff, u->to - u->from);
	protect(p, u, PROT_NONE);
	u->armed = true;
}

void gpu_pinned_arm(void)
{
	for (struct pinned *p = pinned; p < pinned + PINNED_MAX; p++)
		for (struct use *u = p->user ? p->uses : NULL; u; u = u->next)
			arm(p, u);
}

void gpu_pinned_busy(struct gpu_op *op, const void *at, size_t bytes, bool write)
{
	struct pinned *p = find(at, bytes);
	struct use *u = calloc(1, sizeof *u);
	if (!p || !u)
		gpu_die("pinned memory: not known");
	u->op = op;
	u->from = (size_t)((const char *)at - p->user);
	u->to = u->from + bytes;
	u->write = write;
	for (struct use *v = p->uses; v; v = v->next)
		if (v->from < u->to && u->from < v->to && (v->write || write) &&
		        !gpu_before(v->op, op))
			gpu_fault("order",
			        "%s (stream %d) and %s (stream %d) use one pinned range, and "
			        "nothing orders them",
			        op->name, op->stream, v->op->name, v->op->stream);
	if (write) {
		arm(p, u);
	} else {
		u->kept = malloc(bytes);
		if (!u->kept)
			gpu_die("no memory");
		memcpy(u->kept, p->device + u->from, bytes);
	}
	u->next = p->uses;
	p->uses = u;
}

/* The part of a kept copy that no other copy writes since is compared; a later write into the same
 * range that is ordered behind it is legitimate. */
static bool changed(const struct pinned *p, const struct use *u)
{
	for (const struct use *v = p->uses; v; v = v->next)
		if (v->write && v->from < u->to && u->from < v->to)
			return false;
	return memcmp(u->kept, p->device + u->from, u->to - u->from) != 0;
}

static void settle(struct pinned *p)
{
	for (struct use *u = p->uses; u; u = u->next)
		if (gpu_host_knows(u->op) && u->kept && changed(p, u))
			gpu_fault("pinned",
			        "the host changed pinned memory while %s (stream %d) read it",
			        u->op->name, u->op->stream);
	for (struct use **at = &p->uses; *at;) {
		struct use *u = *at;
		if (!gpu_host_knows(u->op)) {
			at = &u->next;
			continue;
		}
		if (u->armed)
			protect(p, u, PROT_READ | PROT_WRITE);
		*at = u->next;
		free(u->kept);
		free(u);
	}
	/* Ranges of copies that overlap: the others' pages stay forbidden. */
	for (struct use *u = p->uses; u; u = u->next)
		if (u->armed)
			protect(p, u, PROT_NONE);
		else
			arm(p, u);
}

void gpu_pinned_settle(void)
{
	for (struct pinned *p = pinned; p < pinned + PINNED_MAX; p++)
		if (p->user && p->uses)
			settle(p);
}

const struct gpu_op *gpu_pinned_used(const void *at)
{
	const struct pinned *p = find(at, 1);
	return p && p->uses ? p->uses->op : NULL;
}

bool gpu_pinned_give(void *at)
{
	struct pinned *p = find(at, 1);
	if (!p || p->user != at)
		return false;
	munmap(p->user, p->mapped);
	munmap(p->device, p->mapped);
	while (p->uses) {
		struct use *u = p->uses;
		p->uses = u->next;
		free(u->kept);
		free(u);
	}
	*p = (struct pinned){0};
	gpu_live(LIVE_PINNED, -1);
	return true;
}
