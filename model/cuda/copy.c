/* SPDX-License-Identifier: MIT */
/* Copies between host and device, through pinned memory, piece by piece: a GPU can read host memory
 * by itself only if it is pinned, and the callers' memory is not.
 *
 *     upload    memcpy to a slot ─► up: copy ─► `copied`           compute waits for the last copy
 *     add       memcpy to a slot ─► up: copy to the slot's device memory ─► compute: x += k·that
 *     download  down: copy to a slot ─► wait for `copied` ─► memcpy, while the next slots fill
 *
 * A slot is reused once its event has happened. Copies begin after all work that compute was given
 * so far, so that nothing is overwritten while a kernel still reads it.
 *
 * upload and download cannot report a failure; the device remembers it. */
#include "model/cuda/cuda.h"

#include <string.h>

static int make_event(struct cuda_device *d, cudaEvent_t *event, struct err *e)
{
	return CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

static int take_pinned(struct cuda_device *d, void **p, size_t bytes, struct err *e)
{
	return CUDA(cudaMallocHost(p, bytes));
}

static int open_slots(struct cuda_device *d, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < CUDA_SLOTS && rc == 0; i++) {
		struct cuda_slot *u = &d->to_device[i], *h = &d->to_host[i];
		rc = take_pinned(d, (void **)&u->host, CUDA_SLOT_BYTES, e);
		if (rc == 0)
			rc = take_pinned(d, (void **)&h->host, CUDA_SLOT_BYTES, e);
		if (rc == 0)
			rc = cuda_take(d, (void **)&u->dev, CUDA_SLOT_BYTES, e);
		if (rc == 0)
			rc = make_event(d, &u->copied, e);
		if (rc == 0)
			rc = make_event(d, &u->used, e);
		if (rc == 0)
			rc = make_event(d, &h->copied, e);
	}
	return rc;
}

enum { EVENTS = 13 }; /* events that do not belong to a slot */

static void events_of(struct cuda_device *d, cudaEvent_t *out[EVENTS])
{
	cudaEvent_t *const all[EVENTS] = {&d->fence, &d->uploaded, &d->answered, &d->snapped,
	        &d->sent, &d->stage.copied, &d->stage.read, &d->stage.measured, &d->stage.told,
	        &d->batches[0].copied, &d->batches[0].read, &d->batches[1].copied,
	        &d->batches[1].read};
	memcpy(out, all, sizeof all);
}

static int open_stage(struct cuda_device *d, struct cuda_stage *s, struct err *e)
{
	int rc = cuda_take(d, (void **)&s->parts, KERNELS_SUM_BLOCKS * sizeof *s->parts, e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&s->sketch_parts,
		        KERNELS_SKETCH_PARTS * KERNELS_SKETCH_BUCKETS * sizeof *s->sketch_parts, e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&s->found, sizeof *s->found, e);
	return rc ? rc : take_pinned(d, (void **)&s->found_host, sizeof *s->found_host, e);
}

int cuda_copy_open(struct cuda_device *d, struct err *e)
{
	int rc = open_slots(d, e);
	cudaEvent_t *events[EVENTS];
	events_of(d, events);
	for (int i = 0; i < EVENTS && rc == 0; i++)
		rc = make_event(d, events[i], e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&d->numbers, sizeof *d->numbers, e);
	if (rc == 0)
		rc = take_pinned(d, (void **)&d->numbers_host, sizeof *d->numbers_host, e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&d->parts, KERNELS_SUM_BLOCKS * sizeof *d->parts, e);
	const size_t buckets = KERNELS_SKETCH_BUCKETS;
	if (rc == 0)
		rc = cuda_take(d, (void **)&d->sketch_parts,
		        KERNELS_SKETCH_PARTS * buckets * sizeof *d->sketch_parts, e);
	if (rc == 0)
		rc = cuda_take(d, (void **)&d->sketch, buckets * sizeof *d->sketch, e);
	if (rc == 0)
		rc = take_pinned(d, (void **)&d->sketch_host, buckets * sizeof *d->sketch_host, e);
	return rc ? rc : open_stage(d, &d->stage, e);
}

static void drop_pinned(void *p)
{
	if (p)
		(void)cudaFreeHost(p);
}

static void drop_event(cudaEvent_t event)
{
	if (event)
		(void)cudaEventDestroy(event);
}

void cuda_copy_close(struct cuda_device *d)
{
	cudaEvent_t *events[EVENTS];
	events_of(d, events);
	for (int i = 0; i < CUDA_SLOTS; i++) {
		struct cuda_slot *u = &d->to_device[i], *h = &d->to_host[i];
		drop_pinned(u->host);
		drop_pinned(h->host);
		cuda_drop(d, u->dev);
		drop_event(u->copied);
		drop_event(u->used);
		drop_event(h->copied);
	}
	for (int i = 0; i < EVENTS; i++)
		drop_event(*events[i]);
	cuda_drop(d, d->numbers);
	drop_pinned(d->numbers_host);
	cuda_drop(d, d->parts);
	cuda_drop(d, d->snap);
	drop_pinned(d->snap_host);
	cuda_drop(d, d->sketch_parts);
	cuda_drop(d, d->sketch);
	drop_pinned(d->sketch_host);
	cuda_drop(d, d->stage.dev);
	cuda_drop(d, d->stage.parts);
	cuda_drop(d, d->stage.sketch_parts);
	cuda_drop(d, d->stage.found);
	drop_pinned(d->stage.found_host);
	cuda_drop(d, d->batch_memory);
}

/* Later work in the stream waits for all work that compute has been given. */
static int behind_compute(struct cuda_device *d, cudaStream_t stream, struct err *e)
{
	int rc = CUDA(cudaEventRecord(d->fence, d->compute));
	return rc ? rc : CUDA(cudaStreamWaitEvent(stream, d->fence, 0));
}

/* The next slot of `up`, filled. */
static int fill(struct cuda_device *d, const void *from, size_t bytes, struct cuda_slot **out,
        struct err *e)
{
	struct cuda_slot *s = &d->to_device[d->next_up++ % CUDA_SLOTS];
	int rc = CUDA(cudaEventSynchronize(s->copied));
	if (rc == 0)
		memcpy(s->host, from, bytes);
	*out = s;
	return rc;
}

static size_t piece(size_t at, size_t bytes)
{
	return bytes - at < CUDA_SLOT_BYTES ? bytes - at : CUDA_SLOT_BYTES;
}

static int upload(struct cuda_device *d, char *to, const char *from, size_t bytes, struct err *e)
{
	struct cuda_slot *s;
	int rc = behind_compute(d, d->up, e);
	for (size_t at = 0; at < bytes && rc == 0; at += CUDA_SLOT_BYTES) {
		rc = fill(d, from + at, piece(at, bytes), &s, e);
		if (rc == 0)
			rc = CUDA(cudaMemcpyAsync(
			        to + at, s->host, piece(at, bytes), cudaMemcpyHostToDevice, d->up));
		if (rc == 0)
			rc = CUDA(cudaEventRecord(s->copied, d->up));
	}
	if (rc == 0)
		rc = CUDA(cudaEventRecord(d->uploaded, d->up));
	if (rc == 0)
		rc = CUDA(cudaStreamWaitEvent(d->compute, d->uploaded, 0));
	return rc;
}

void cuda_upload(struct device *dev, void *to, const void *from, size_t bytes)
{
	struct cuda_device *d = cuda(dev);
	struct err e;
	if (cuda_enter(d, "upload", &e) == 0)
		(void)!upload(d, to, from, bytes, &e);
}

static int download(struct cuda_device *d, char *to, const char *from, size_t bytes, struct err *e)
{
	size_t asked = 0, got = 0;
	int rc = behind_compute(d, d->down, e);
	while (got < bytes && rc == 0) {
		struct cuda_slot *s = &d->to_host[asked / CUDA_SLOT_BYTES % CUDA_SLOTS];
		if (asked < bytes && asked - got < CUDA_SLOTS * CUDA_SLOT_BYTES) {
			rc = CUDA(cudaMemcpyAsync(s->host, from + asked, piece(asked, bytes),
			        cudaMemcpyDeviceToHost, d->down));
			if (rc == 0)
				rc = CUDA(cudaEventRecord(s->copied, d->down));
			asked += CUDA_SLOT_BYTES;
			continue;
		}
		s = &d->to_host[got / CUDA_SLOT_BYTES % CUDA_SLOTS];
		rc = CUDA(cudaEventSynchronize(s->copied));
		if (rc == 0)
			memcpy(to + got, s->host, piece(got, bytes));
		got += CUDA_SLOT_BYTES;
	}
	return rc;
}

void cuda_download(struct device *dev, void *to, const void *from, size_t bytes)
{
	struct cuda_device *d = cuda(dev);
	struct err e;
	if (cuda_enter(d, "download", &e) != 0 || download(d, to, from, bytes, &e) != 0)
		memset(to, 0, bytes); /* never the old content of the memory */
}

int cuda_add(struct device *dev, float *x, const float *host, size_t n, float k, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	const size_t most = CUDA_SLOT_BYTES / sizeof *x;
	struct cuda_slot *s;
	int rc = cuda_enter(d, "add", e);
	for (size_t at = 0; at < n && rc == 0; at += most) {
		size_t some = n - at < most ? n - at : most;
		rc = fill(d, host + at, some * sizeof *x, &s, e);
		if (rc == 0)
			rc = CUDA(cudaStreamWaitEvent(d->up, s->used, 0));
		if (rc == 0)
			rc = CUDA(cudaMemcpyAsync(
			        s->dev, s->host, some * sizeof *x, cudaMemcpyHostToDevice, d->up));
		if (rc == 0)
			rc = CUDA(cudaEventRecord(s->copied, d->up));
		if (rc == 0)
			rc = CUDA(cudaStreamWaitEvent(d->compute, s->copied, 0));
		if (rc == 0)
			rc = CUDA(kernel_add_scaled(
			        x + at, (const float *)(void *)s->dev, some, k, d->compute));
		if (rc == 0)
			rc = CUDA(cudaEventRecord(s->used, d->compute));
	}
	return rc;
}

int cuda_ask(struct cuda_device *d, size_t offset, size_t bytes, struct err *e)
{
	int rc = behind_compute(d, d->down, e);
	if (rc == 0)
		rc = CUDA(cudaMemcpyAsync((char *)d->numbers_host + offset,
		        (const char *)d->numbers + offset, bytes, cudaMemcpyDeviceToHost, d->down));
	return rc ? rc : CUDA(cudaEventRecord(d->answered, d->down));
}
