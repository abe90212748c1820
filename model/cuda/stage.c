/* SPDX-License-Identifier: MIT */
/* Host memory that the device copies from and to by itself, and the difference that an optimizer
 * step adds in its own pass.
 *
 *     up       copy to `dev` ─► `copied`, squares, sketch ─► `measured`    the next copy
 *     compute  forward, backward, …  └─► update: w += k·dev ─► `read` ──────────┘
 *     down                                        copy of both ◄─ `measured` ─► an answer
 *
 * stage only begins the copy, usually a whole forward and backward pass before the update needs it.
 * So the update hardly ever waits for `copied`, after which the host may reuse its memory.
 *
 * Each float is added once. What an update has added is no longer staged, nor is anything before
 * it; the next stage replaces whatever is left. So a stage that no update used does no harm. An
 * address outside of what is staged is refused before anything is launched.
 *
 * What is staged is measured in the stream that copied it, beside the work of compute. So the host
 * can decide whether to add it at all before an update needs it. */
#include "model/cuda/cuda.h"

#include <assert.h>

static bool inside(const void *p, size_t bytes, const void *range, size_t range_bytes)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)range; /* before range: wraps to a huge value */
	return at <= range_bytes && bytes <= range_bytes - at;
}

static struct cuda_pinned *block_of(struct cuda_device *d, const void *p, size_t bytes)
{
	for (int i = 0; i < CUDA_PINNED; i++) {
		struct cuda_pinned *b = &d->pinned[i];
		if (b->at && inside(p, bytes, b->at, b->bytes))
			return b;
	}
	return NULL;
}

bool cuda_is_pinned(struct cuda_device *d, const void *p, size_t bytes)
{
	return block_of(d, p, bytes) != NULL;
}

void *cuda_host_alloc(struct device *dev, size_t bytes)
{
	struct cuda_device *d = cuda(dev);
	struct err none, *e = &none;
	struct cuda_pinned *b = d->pinned;
	void *p = NULL;
	if (cuda_enter(d, "host memory", e) != 0)
		return NULL;
	while (b < d->pinned + CUDA_PINNED && b->at)
		b++;
	if (b == d->pinned + CUDA_PINNED)
		return NULL;
	bytes = bytes ? bytes : 1;
	cudaError_t s = cudaMallocHost(&p, bytes);
	if (s == cudaErrorMemoryAllocation) {
		(void)cudaGetLastError(); /* reported by NULL, not by the next launch */
		return NULL;
	}
	if (cuda_runtime(d, s, "cudaMallocHost", e) != 0)
		return NULL;
	*b = (struct cuda_pinned){p, bytes};
	return p;
}

/* Work that still reads or writes it must end first. */
void cuda_host_release(struct device *dev, void *p)
{
	struct cuda_device *d = cuda(dev);
	if (!p)
		return;
	struct cuda_pinned *b = block_of(d, p, 1);
	assert(b);
	assert(b->at == p);
	(void)cudaSetDevice(d->index);
	(void)!cuda_idle(d, NULL);
	if (inside(d->stage.host, 1, b->at, b->bytes))
		d->stage.n = 0;
	cuda_batch_forget(d);
	(void)cudaFreeHost(p);
	b->at = NULL;
}

int cuda_stage_room(struct cuda_device *d, size_t bytes, struct err *e)
{
	if (d->stage.bytes < bytes)
		d->stage.n = 0;
	return cuda_grow(d, (void **)&d->stage.dev, &d->stage.bytes, bytes, e);
}

static int measure(struct cuda_device *d, const struct device_stage *m, struct err *e)
{
	struct cuda_stage *s = &d->stage;
	size_t from = 0;
	int rc = CUDA(cudaStreamWaitEvent(d->up, s->told, 0));
	for (int g = 0; g < m->n_groups && rc == 0; g++) {
		rc = CUDA(kernel_sum_squares(
		        s->dev + from, m->end[g] - from, s->parts, &s->found->squares[g], d->up));
		from = m->end[g];
	}
	if (rc == 0 && m->sketch)
		rc = CUDA(kernel_sketch(
		        s->found->sketch, s->dev, false, m->n_sketch, s->sketch_parts, d->up));
	return rc ? rc : CUDA(cudaEventRecord(s->measured, d->up));
}

static int answer(
        struct cuda_device *d, const struct device_stage *m, struct cuda_answer *a, struct err *e)
{
	struct cuda_stage *s = &d->stage;
	const size_t from = m->sketch ? 0 : offsetof(struct cuda_measured, squares);
	const size_t end =
	        offsetof(struct cuda_measured, squares) + (size_t)m->n_groups * sizeof *m->squares;
	int rc = CUDA(cudaStreamWaitEvent(d->down, s->measured, 0));
	if (rc == 0)
		rc = CUDA(cudaMemcpyAsync((char *)s->found_host + from, (char *)s->found + from,
		        end - from, cudaMemcpyDeviceToHost, d->down));
	if (rc == 0)
		rc = CUDA(cudaEventRecord(s->told, d->down));
	if (rc)
		return rc;
	a->part[0].to = m->squares;
	a->part[0].from = s->found_host->squares;
	a->part[0].bytes = (size_t)m->n_groups * sizeof *m->squares;
	a->part[1].to = m->sketch;
	a->part[1].from = s->found_host->sketch;
	a->part[1].bytes = sizeof s->found_host->sketch;
	a->done_cb = m->done_cb;
	a->arg = m->arg;
	return cuda_answer(d, a, e);
}

static bool measurable(const struct device_stage *m)
{
	size_t from = 0;
	if (m->n_groups < 0 || m->n_groups > DEVICE_GROUPS_MAX || m->n_sketch > m->n)
		return false;
	for (int g = 0; g < m->n_groups; g++) {
		if (m->end[g] < from || m->end[g] > m->n)
			return false;
		from = m->end[g];
	}
	return true;
}

int cuda_stage(struct device *dev, const struct device_stage *m, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	struct cuda_stage *s = &d->stage;
	struct cuda_answer *a = NULL;
	const size_t bytes = m->n * sizeof *m->x;
	int rc = cuda_enter(d, "stage", e);
	if (rc)
		return rc;
	if (m->n > s->bytes / sizeof *m->x || !cuda_is_pinned(d, m->x, bytes) ||
	        (m->done_cb && !(a = cuda_answer_new(d))))
		return err_set(e, ERR_BUSY, "no room to stage %zu floats", m->n);
	if (a && !measurable(m))
		return err_set(e, ERR_INVALID, "what is measured is not what is staged");
	rc = CUDA(cudaEventSynchronize(s->copied)); /* an unused stage: its memory is free */
	if (rc == 0)
		rc = CUDA(cudaStreamWaitEvent(d->up, s->read, 0));
	if (rc == 0)
		rc = CUDA(cudaMemcpyAsync(s->dev, m->x, bytes, cudaMemcpyHostToDevice, d->up));
	if (rc == 0)
		rc = CUDA(cudaEventRecord(s->copied, d->up));
	s->host = m->x;
	s->n = rc == 0 ? m->n : 0;
	s->used = 0;
	if (rc == 0 && a)
		rc = measure(d, m, e);
	return rc || !a ? rc : answer(d, m, a, e);
}

/* The index of a float in what is staged; huge if it lies before that. */
static size_t place(const struct cuda_stage *s, const float *host)
{
	return ((uintptr_t)host - (uintptr_t)s->host) / sizeof *host;
}

int cuda_staged(
        struct cuda_device *d, const float *host, size_t n, const float **out, struct err *e)
{
	struct cuda_stage *s = &d->stage;
	*out = NULL;
	if (!host)
		return 0;
	size_t at = place(s, host);
	if (at < s->used || at > s->n || s->n - at < n)
		return err_set(e, ERR_INVALID, "what is to be added has not been staged");
	*out = s->dev + at;
	return CUDA(cudaStreamWaitEvent(d->compute, s->copied, 0));
}

int cuda_stage_used(struct cuda_device *d, const float *host, size_t n, struct err *e)
{
	struct cuda_stage *s = &d->stage;
	if (!host)
		return 0;
	s->used = place(s, host) + n;
	int rc = CUDA(cudaEventRecord(s->read, d->compute));
	return rc ? rc : CUDA(cudaEventSynchronize(s->copied));
}
