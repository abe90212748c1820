/* SPDX-License-Identifier: MIT */
/* A copy of the parameters for the flock, while training goes on. It is made as the wire wants it
 * before it leaves the device, so that nothing else crosses the bus.
 *
 *     compute  … step ─► round into `snap`, sketch ─► step ─► step …
 *                              │ `snapped`            ▲ `sent`: the next may overwrite them
 *     down                     └─► copy both to the host ─► host function: done_cb
 *
 * Memory of host_alloc is written by the device itself; for any other it writes `snap_host`, and
 * the host function copies on, as it does with the sketch.
 *
 * The host function runs on a thread of the driver's and may not call CUDA. A device that fails may
 * never come to it; then those who wait are told by cuda_snapshot_settle. Each is told once:
 * whoever takes its state from WAITING to TELLING does it. */
#include "model/cuda/cuda.h"

#include <sched.h>
#include <string.h>

enum snapshot_state { SNAPSHOT_FREE, SNAPSHOT_WAITING, SNAPSHOT_TELLING };

int cuda_snapshot_room(struct cuda_device *d, size_t bytes, struct err *e)
{
	if (d->snap_bytes >= bytes)
		return 0;
	cuda_snapshot_settle(d);
	int rc = d->snap_host ? CUDA(cudaFreeHost(d->snap_host)) : 0;
	d->snap_host = NULL;
	if (rc == 0)
		rc = cuda_grow(d, &d->snap, &d->snap_bytes, bytes, e);
	if (rc == 0 && (rc = CUDA(cudaMallocHost(&d->snap_host, bytes))) != 0)
		d->snap_bytes = 0;
	return rc;
}

static void tell(struct cuda_snapshot *s, int rc)
{
	int waiting = SNAPSHOT_WAITING;
	if (!atomic_compare_exchange_strong(&s->state, &waiting, SNAPSHOT_TELLING))
		return;
	if (rc == 0 && s->to)
		memcpy(s->to, s->d->snap_host, s->bytes);
	if (rc == 0 && s->sketch)
		memcpy(s->sketch, s->d->sketch_host, KERNELS_SKETCH_BUCKETS * sizeof *s->sketch);
	s->done_cb(s->arg, rc);
	atomic_store(&s->state, SNAPSHOT_FREE);
}

static void CUDART_CB arrived(void *arg)
{
	tell(arg, 0);
}

void cuda_snapshot_settle(struct cuda_device *d)
{
	struct err *e = NULL;
	if (d->down)
		(void)!CUDA(cudaStreamSynchronize(d->down)); /* host functions included */
	for (int i = 0; i < CUDA_SNAPSHOTS; i++) {
		tell(&d->snapshots[i], ERR_DEVICE);
		while (atomic_load(&d->snapshots[i].state) != SNAPSHOT_FREE)
			sched_yield(); /* the driver's thread is at it */
	}
}

static struct cuda_snapshot *unused(struct cuda_device *d)
{
	for (int i = 0; i < CUDA_SNAPSHOTS; i++)
		if (atomic_load(&d->snapshots[i].state) == SNAPSHOT_FREE)
			return &d->snapshots[i];
	return NULL;
}

/* In compute: what is to be sent, as it is now. */
static int make(struct cuda_device *d, const struct device_copy *c, size_t bytes, struct err *e)
{
	int rc = CUDA(cudaStreamWaitEvent(d->compute, d->sent, 0));
	if (rc == 0 && c->format == COPY_BF16)
		rc = CUDA(kernel_pack_bf16(d->snap, c->x, c->n, d->compute));
	else if (rc == 0)
		rc = CUDA(cudaMemcpyAsync(
		        d->snap, c->x, bytes, cudaMemcpyDeviceToDevice, d->compute));
	if (rc == 0 && c->sketch)
		rc = CUDA(kernel_sketch(d->sketch, c->x, c->n_sketch, d->sketch_parts, d->compute));
	return rc ? rc : CUDA(cudaEventRecord(d->snapped, d->compute));
}

static int send(struct cuda_device *d, void *to, size_t bytes, bool sketch, struct err *e)
{
	int rc = CUDA(cudaStreamWaitEvent(d->down, d->snapped, 0));
	if (rc == 0)
		rc = CUDA(cudaMemcpyAsync(to, d->snap, bytes, cudaMemcpyDeviceToHost, d->down));
	if (rc == 0 && sketch)
		rc = CUDA(cudaMemcpyAsync(d->sketch_host, d->sketch,
		        KERNELS_SKETCH_BUCKETS * sizeof *d->sketch, cudaMemcpyDeviceToHost,
		        d->down));
	return rc ? rc : CUDA(cudaEventRecord(d->sent, d->down));
}

int cuda_snapshot(struct device *dev, const struct device_copy *c, struct err *e)
{
	struct cuda_device *d = cuda(dev);
	const size_t bytes = c->n * (c->format == COPY_BF16 ? sizeof(uint16_t) : sizeof(float));
	int rc = cuda_enter(d, "snapshot", e);
	if (rc)
		return rc;
	struct cuda_snapshot *s = unused(d);
	if (!s || c->n > d->snap_bytes / sizeof *c->x)
		return err_set(e, ERR_BUSY, "no room for one more snapshot");
	if (c->sketch && c->n_sketch > c->n)
		return err_set(e, ERR_INVALID, "a sketch of more than is copied");
	const bool straight = cuda_is_pinned(d, c->to, bytes);
	rc = make(d, c, bytes, e);
	if (rc == 0)
		rc = send(d, straight ? c->to : d->snap_host, bytes, c->sketch != NULL, e);
	if (rc)
		return rc;
	s->d = d;
	s->to = straight ? NULL : c->to;
	s->bytes = bytes;
	s->sketch = c->sketch;
	s->done_cb = c->done_cb;
	s->arg = c->arg;
	atomic_store(&s->state, SNAPSHOT_WAITING);
	cudaError_t status = cudaLaunchHostFunc(d->down, arrived, s);
	if (status != cudaSuccess)
		atomic_store(&s->state, SNAPSHOT_FREE);
	return cuda_runtime(d, status, "cudaLaunchHostFunc", e);
}
