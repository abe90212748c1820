/* SPDX-License-Identifier: MIT */
/* The device's memory: a few large blocks, divided into pieces.
 *
 *     block  |xx piece xx|gap|xxxx piece xxxx|gap|······ free ······|
 *
 * One block is taken when the device is opened, for its own needs, and one for each model. The size
 * of a model's block is computed before its first piece is taken (cuda_reserve): either all of a
 * model fits or nothing is taken, and the error can name the whole size. A piece that fits into no
 * block gets a block of its own. A piece goes to the first gap that is large enough; a block is
 * freed with its last piece.
 *
 * Between two pieces there is an unused gap, so that a write just over the end of one does not
 * damage the next. Memory checkers see only blocks, so the tests' stand-in for a GPU is told of
 * every piece and finds an access outside of them; a real CUDA library has no such functions, and
 * then they are not called. */
#include "model/cuda/cuda.h"

#include <stdlib.h>

#define ALIGN ((size_t)256)
#define GAP ((size_t)512)
#define BLOCK_LEAST ((size_t)2 << 20) /* the GPU's own pages are as large */

struct piece {
	char *at;
	size_t room;        /* with the gap after it */
	struct piece *next; /* owned; by address */
};

struct cuda_block {
	char *at; /* owned */
	size_t bytes;
	struct piece *pieces;    /* owned */
	struct cuda_block *next; /* owned */
};

extern void standin_carved(const void *p, size_t bytes) __attribute__((weak));
extern void standin_dropped(const void *p) __attribute__((weak));

size_t cuda_room(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN + GAP;
}

/* Where a piece would go, and the link that would point to it; NULL: no room in this block. */
static struct piece **place(struct cuda_block *b, size_t room, char **at)
{
	struct piece **link = &b->pieces;
	*at = b->at;
	for (; *link && (size_t)((*link)->at - *at) < room; link = &(*link)->next)
		*at = (*link)->at + (*link)->room;
	return *link || (size_t)(b->at + b->bytes - *at) >= room ? link : NULL;
}

static struct piece **place_anywhere(struct cuda_device *d, size_t room, char **at)
{
	struct piece **link = NULL;
	for (struct cuda_block *b = d->blocks; b && !link; b = b->next)
		link = place(b, room, at);
	return link;
}

static int none_left(struct cuda_device *d, size_t bytes, size_t *left, struct err *e)
{
	size_t all = 0;
	(void)cudaGetLastError(); /* reported here, not by the next launch */
	int rc = CUDA(cudaMemGetInfo(left, &all));
	if (rc)
		return rc;
	return err_set(e, ERR_NOMEM,
	        "cuda:%d: %.80s%s%s wants %zu MB and the GPU has %zu of its %zu MB left", d->index,
	        d->where, d->where[0] ? " " : "", d->what, (bytes >> 20) + 1, *left >> 20,
	        all >> 20);
}

/* *left is what there is, when that is not enough. */
static int add_block(struct cuda_device *d, size_t bytes, size_t *left, struct err *e)
{
	struct cuda_block *b = calloc(1, sizeof *b);
	if (!b)
		return err_set(e, ERR_NOMEM, "no memory to keep account of the GPU's");
	b->bytes = bytes < BLOCK_LEAST ? BLOCK_LEAST : bytes;
	cudaError_t s = cudaMalloc((void **)&b->at, b->bytes);
	if (s != cudaSuccess) {
		free(b);
		return s == cudaErrorMemoryAllocation ? none_left(d, bytes, left, e)
		                                      : cuda_runtime(d, s, "cudaMalloc", e);
	}
	if (standin_carved)
		standin_carved(b->at, 0);
	b->next = d->blocks;
	d->blocks = b;
	return 0;
}

static void free_block(struct cuda_device *d, struct cuda_block **link)
{
	struct cuda_block *b = *link;
	struct err *e = NULL;
	*link = b->next;
	(void)!CUDA(cudaFree(b->at)); /* a failure stays with the device */
	free(b);
}

int cuda_reserve(struct cuda_device *d, size_t bytes, size_t *left, struct err *e)
{
	char *at;
	for (struct cuda_block **b = &d->blocks; *b;) /* an earlier try's */
		if ((*b)->pieces)
			b = &(*b)->next;
		else
			free_block(d, b);
	return place_anywhere(d, bytes, &at) ? 0 : add_block(d, bytes, left, e);
}

int cuda_take(struct cuda_device *d, void **p, size_t bytes, struct err *e)
{
	const size_t room = cuda_room(bytes ? bytes : 1);
	size_t left;
	struct piece *new = calloc(1, sizeof *new);
	*p = NULL;
	if (!new)
		return err_set(e, ERR_NOMEM, "no memory to keep account of the GPU's");
	struct piece **link = place_anywhere(d, room, &new->at);
	if (!link) {
		int rc = add_block(d, room, &left, e);
		if (rc) {
			free(new);
			return rc;
		}
		link = place(d->blocks, room, &new->at);
	}
	new->room = room;
	new->next = *link;
	*link = new;
	*p = new->at;
	if (standin_carved)
		standin_carved(*p, bytes ? bytes : 1);
	return 0;
}

void cuda_drop(struct cuda_device *d, void *p)
{
	struct cuda_block **b = &d->blocks;
	struct piece **link;
	if (!p)
		return;
	for (;; b = &(*b)->next) {
		for (link = &(*b)->pieces; *link && (*link)->at != p;)
			link = &(*link)->next;
		if (*link)
			break;
	}
	struct piece *gone = *link;
	*link = gone->next;
	free(gone);
	if (standin_dropped)
		standin_dropped(p);
	if (!(*b)->pieces)
		free_block(d, b);
}

int cuda_grow(struct cuda_device *d, void **p, size_t *have, size_t bytes, struct err *e)
{
	if (*have >= bytes)
		return 0;
	int rc = cuda_idle(d, e);
	cuda_drop(d, *p);
	*p = NULL;
	*have = 0;
	if (rc == 0)
		rc = cuda_take(d, p, bytes, e);
	if (rc == 0)
		*have = bytes;
	return rc;
}

void cuda_arena_close(struct cuda_device *d)
{
	while (d->blocks)
		free_block(d, &d->blocks);
}
