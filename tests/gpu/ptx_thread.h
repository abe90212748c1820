/* SPDX-License-Identifier: MIT */
/* The block that runs: what the parts of the interpreter share. */
#ifndef DUNLIN_TESTS_GPU_PTX_THREAD_H
#define DUNLIN_TESTS_GPU_PTX_THREAD_H

#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#define PTX_WARP 32
#define PTX_THREADS_MAX 1024

enum ptx_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_IN_WARP, THREAD_DONE };

struct ptx_thread {
	int pc;
	enum ptx_state state;
	uint16_t number;
	uint32_t mask;   /* of a shuffle */
	uint64_t offers; /* its value */
	uint64_t *r;
	unsigned char *local;
};

struct ptx_shared_cell {
	uint16_t writer, write_epoch, reader, read_epoch; /* threads count from 1 */
	bool written, ours, atomic;
};

struct ptx_block {
	const struct ptx_kernel *kernel;
	const unsigned char *arguments;
	struct ptx_thread threads[PTX_THREADS_MAX];
	int n_threads;
	unsigned char *shared;          /* static, then dynamic */
	struct ptx_shared_cell *shadow; /* a cell for every 4 bytes */
	size_t static_bytes, shared_bytes;
	struct gpu_who who;
	int told;
	unsigned long n_instructions;
};
extern struct ptx_block ptx_block;

/* A few faults of one launch are enough. */
bool ptx_tell(void);

/* The bytes of the part-th element at an instruction's address; where nothing is harmed if it is
 * a bad one. */
unsigned char *ptx_at(struct ptx_thread *t, const struct ptx_ins *n, size_t part, size_t bytes,
        enum gpu_access access);

/* Runs a thread until it waits or ends. */
void ptx_step(struct ptx_thread *t);

#endif
