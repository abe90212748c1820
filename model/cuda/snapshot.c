/* SPDX-License-Identifier: MIT */
/* A copy of the parameters for a peer, while training goes on. It is rounded to the wire format on
 * the device, so that fewer bytes cross the bus.
 *
 *     compute  … step ─► round into `snap`, sketch ─► step ─► step …
 *                              │ `snapped`            ▲ `sent`: the next may overwrite them
 *     down                     └─► copy both to the host ─► host function: done_cb
 *
 * Memory of host_alloc is written by the device itself; for any other it writes `snap_host`, and
 * the answer (answer.c) copies on, as it does with the sketch. */
#include "model/cuda/cuda.h"

int cuda_snapshot_room(struct cuda_device *d, size_t bytes, struct err *e)
{
	if (d->snap_bytes >= bytes)
		return 0;
	cuda_answer_settle(d);
	int rc = d->snap_host ? CUDA(cudaFreeHost(d->snap_host)) : 0;
	d->snap_host = NULL;
	if (rc == 0)
		rc = cuda_grow(d, &d->snap, &d->snap_bytes, bytes, e);
	if (rc == 0 && (rc = CUDA(cudaMallocHost(&d->snap_host, bytes))) != 0)
		d->snap_bytes = 0;
	return rc;
}

/* In compute: rounds the parameters as they are now. */
static int make(struct cuda_device *d, const struct device_copy *c, size_t bytes, struct err *e)
{
	int rc = CUDA(cudaStreamWaitEvent(d->compute, d->sent, 0));
	if (rc == 0 && c->format == COPY_BF16)
		rc = CUDA(kernel_pack_bf16(d->snap, c->x, c->n, d->compute));
	else if (rc == 0)
		rc = CUDA(cudaMemcpyAsync(
		        d->snap, c->x, bytes, cudaMemcpyDeviceToDevice, d->compute));
	if (rc == 0 && c->sketch)
		rc = CUDA(kernel_sketch(d->sketch, d->snap, c->format == COPY_BF16, c->n_sketch,
		        d->sketch_parts, d->compute));
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
	struct cuda_answer *a = cuda_answer_new(d);
	if (!a || c->n > d->snap_bytes / sizeof *c->x)
		return err_set(e, ERR_BUSY, "no room for one more snapshot");
	if (c->sketch && c->n_sketch > c->n)
		return err_set(e, ERR_INVALID, "a sketch of more than is copied");
	const bool straight = cuda_is_pinned(d, c->to, bytes);
	rc = make(d, c, bytes, e);
	if (rc == 0)
		rc = send(d, straight ? c->to : d->snap_host, bytes, c->sketch != NULL, e);
	if (rc)
		return rc;
	if (!straight) {
		a->part[0].to = c->to;
		a->part[0].from = d->snap_host;
		a->part[0].bytes = bytes;
	}
	a->part[1].to = c->sketch;
	a->part[1].from = d->sketch_host;
	a->part[1].bytes = KERNELS_SKETCH_BUCKETS * sizeof *c->sketch;
	a->done_cb = c->done_cb;
	a->arg = c->arg;
	return cuda_answer(d, a, e);
}
