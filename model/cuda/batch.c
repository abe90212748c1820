/* SPDX-License-Identifier: MIT */
/* Batches as bytes: copied to the device while it computes, then converted by a kernel.
 *
 *     up       copy B ─────────┐ `copied`       copy C ─────────┐
 *     compute  … step A …      └─► images B ─► step B …         └─► images C ─► step C …
 *                                      │ `read`       ▲ copy of D into the same buffer waits
 *
 * Two buffers take turns: one is read while the other is filled. A buffer is filled after the
 * kernel that read it last, and read after the copies that filled it. Unlike other uploads the data
 * are not copied to a pinned slot first: they are in memory of host_alloc, and do not change until
 * the host has waited for the step's result, which comes after the kernel.
 *
 * A batch that was not copied ahead is copied when it is needed: the first one, and any that the
 * loader did not have ready. A batch that was copied ahead but overwritten meanwhile (by an
 * evaluation between two steps) is copied again. */
#include "model/cuda/cuda.h"

#include <assert.h>

/* What a buffer holds: the table first, then the rest. */
struct layout {
	size_t one;                   /* values of a sample */
	size_t moves, labels, pixels; /* where each begins */
	size_t bytes;
};

static struct layout layout_of(const struct shape *shape, int64_t count)
{
	struct layout l = {.one = 1};
	for (int i = 0; i < shape->rank; i++)
		l.one *= (size_t)shape->dim[i];
	l.moves = KERNELS_BYTE_VALUES * sizeof(float);
	l.labels = l.moves + (size_t)count * sizeof(struct augment_move);
	l.pixels = l.labels + (size_t)count * sizeof(int32_t);
	l.bytes = (l.pixels + (size_t)count * l.one + 255) / 256 * 256;
	return l;
}

void cuda_batch_forget(struct cuda_device *d)
{
	d->batches[0].held = d->batches[1].held = NULL;
}

size_t cuda_batch_bytes(const struct program *p)
{
	return 2 * layout_of(&p->shape, p->batch).bytes;
}

int cuda_batch_room(struct cuda_device *d, const struct program *p, struct err *e)
{
	const size_t bytes = cuda_batch_bytes(p);
	if (d->batch_bytes < bytes)
		cuda_batch_forget(d);
	return cuda_grow(d, (void **)&d->batch_memory, &d->batch_bytes, bytes, e);
}

static char *place(const struct cuda_device *d, const struct cuda_batch *s)
{
	return d->batch_memory + (size_t)(s - d->batches) * (d->batch_bytes / 2);
}

static int copy(struct cuda_device *d, char *to, const void *from, size_t bytes, struct err *e)
{
	return CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->up));
}

static struct cuda_batch *find(struct cuda_device *d, const struct device_images *b)
{
	for (int i = 0; i < 2; i++)
		if (d->batches[i].held == b->pixels)
			return &d->batches[i];
	return NULL;
}

/* Into the buffer that was filled less recently. */
static int begin(struct cuda_device *d, const struct device_images *b, struct cuda_batch **out,
        struct err *e)
{
	struct cuda_batch *s = *out = &d->batches[d->next_batch++ % 2];
	const struct layout l = layout_of(&b->shape, b->count);
	const size_t count = (size_t)b->count;
	char *to = place(d, s);
	assert(2 * l.bytes <= d->batch_bytes);
	s->held = NULL;
	int rc = CUDA(cudaStreamWaitEvent(d->up, s->read, 0));
	if (rc == 0)
		rc = copy(d, to, b->table, KERNELS_BYTE_VALUES * sizeof *b->table, e);
	if (rc == 0 && b->moves)
		rc = copy(d, to + l.moves, b->moves, count * sizeof *b->moves, e);
	if (rc == 0)
		rc = copy(d, to + l.labels, b->labels, count * sizeof *b->labels, e);
	if (rc == 0)
		rc = copy(d, to + l.pixels, b->pixels, count * l.one, e);
	if (rc == 0)
		rc = CUDA(cudaEventRecord(s->copied, d->up));
	if (rc == 0)
		s->held = b->pixels;
	return rc;
}

int cuda_images_ahead(struct device *dev, const struct device_images *b, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	struct cuda_batch *s;
	int rc = cuda_enter(d, "images ahead", e);
	if (rc || find(d, b))
		return rc;
	return begin(d, b, &s, e);
}

int cuda_images(struct device *dev, struct program *p, const struct device_images *b, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	int rc = cuda_enter(d, "images", e);
	struct cuda_batch *s = find(d, b);
	assert(b->shape.rank == 3 && b->count <= p->batch);
	if (rc == 0 && !s)
		rc = begin(d, b, &s, e);
	if (rc)
		return rc;
	const struct layout l = layout_of(&b->shape, b->count);
	const char *from = place(d, s);
	const struct cuda_images k = {
	        .pixels = (const uint8_t *)(from + l.pixels),
	        .moves = b->moves ? (const void *)(from + l.moves) : NULL,
	        .table = (const void *)from,
	        .labels = (const void *)(from + l.labels),
	        .count = (uint32_t)b->count,
	        .h = (uint32_t)b->shape.dim[0],
	        .w = (uint32_t)b->shape.dim[1],
	        .c = (uint32_t)b->shape.dim[2],
	};
	s->held = NULL; /* its memory is another batch's soon */
	rc = CUDA(cudaStreamWaitEvent(d->compute, s->copied, 0));
	if (rc == 0)
		rc = CUDA(kernel_images(p->input, p->labels, &k, d->compute));
	return rc ? rc : CUDA(cudaEventRecord(s->read, d->compute));
}
