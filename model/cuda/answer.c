/* SPDX-License-Identifier: MIT */
/* Tells the host what the device has finished, while neither waits for the other.
 *
 *     down   … copy to pinned memory ─► host function: copy to the caller, done_cb
 *
 * The host function runs on a thread of the driver and may not call CUDA. A device that fails may
 * never run it; then cuda_answer_settle calls done_cb. Each done_cb is called once: by the one that
 * changes the state from WAITING to TELLING. */
#include "model/cuda/cuda.h"

#include <sched.h>
#include <string.h>

enum answer_state { ANSWER_FREE, ANSWER_WAITING, ANSWER_TELLING };

static void tell(struct cuda_answer *a, int rc)
{
	int waiting = ANSWER_WAITING;
	if (!atomic_compare_exchange_strong(&a->state, &waiting, ANSWER_TELLING))
		return;
	for (int i = 0; i < 2 && rc == 0; i++)
		if (a->part[i].to)
			memcpy(a->part[i].to, a->part[i].from, a->part[i].bytes);
	a->done_cb(a->arg, rc);
	atomic_store(&a->state, ANSWER_FREE);
}

static void CUDART_CB arrived(void *arg)
{
	tell(arg, 0);
}

void cuda_answer_settle(struct cuda_device *d)
{
	struct err *e = NULL;
	if (d->down)
		(void)!CUDA(cudaStreamSynchronize(d->down)); /* host functions included */
	for (int i = 0; i < CUDA_ANSWERS; i++) {
		tell(&d->answers[i], ERR_DEVICE);
		while (atomic_load(&d->answers[i].state) != ANSWER_FREE)
			sched_yield(); /* the driver's thread is in done_cb */
	}
}

struct cuda_answer *cuda_answer_new(struct cuda_device *d)
{
	for (int i = 0; i < CUDA_ANSWERS; i++)
		if (atomic_load(&d->answers[i].state) == ANSWER_FREE) {
			memset(d->answers[i].part, 0, sizeof d->answers[i].part);
			return &d->answers[i];
		}
	return NULL;
}

int cuda_answer(struct cuda_device *d, struct cuda_answer *a, struct err *e)
{
	atomic_store(&a->state, ANSWER_WAITING);
	cudaError_t status = cudaLaunchHostFunc(d->down, arrived, a);
	if (status != cudaSuccess)
		atomic_store(&a->state, ANSWER_FREE);
	return cuda_runtime(d, status, "cudaLaunchHostFunc", e);
}
