/* SPDX-License-Identifier: MIT */
/* What of stream.c only the runtime's own calls need. */
#ifndef DUNLIN_TESTS_GPU_STREAM_H
#define DUNLIN_TESTS_GPU_STREAM_H

#include "tests/gpu/standin.h"

cudaStream_t gpu_stream_new(void);
bool gpu_stream_ok(cudaStream_t s);
struct gpu_op *gpu_stream_last(cudaStream_t s); /* NULL: nothing was ever pushed */
void gpu_stream_free(cudaStream_t s);
void gpu_run_now(struct gpu_op *op);  /* as eager streams do */
void gpu_run_some(struct gpu_op *op); /* a step towards its end */
void gpu_push_wait(cudaStream_t s, struct gpu_op *event);
void gpu_push_host(cudaStream_t s, void (*run)(void *), void *arg);

#endif
