/* SPDX-License-Identifier: MIT */
/* A stand-in for a GPU, for tests: shared libraries with the names and symbol versions of cudart,
 * cuBLAS and cuDNN that come first on the library path, so that the unmodified plugin runs on them.
 *
 * Device memory has addresses that the host cannot touch. Streams are queues that run at once, as
 * late as they may, or in a seeded random order. Kernels are the PTX that the compiler has put into
 * the plugin, interpreted. What a program must not do is a fault: it is counted, told on stderr
 * with both calls that are at odds, and the process's exit code becomes 97.
 *
 *     fault.c    settings, faults, live objects, the k-th call that fails
 *     memory.c   device memory and its shadow; pinned.c: host memory that copies use
 *     stream.c   operations, streams, who happens before whom, host functions
 *     cudart.c   the runtime's calls; launch.c: nvcc's half of <<<>>>; fatbin.c: finds the PTX
 *     ptx_*.c    the interpreter
 *     cublas.c, cudnn*.c
 *
 * Settings come from the environment:
 *     GPU_SCHED=eager|lazy|random, GPU_SEED=N
 *     GPU_FAIL=K         the K-th call fails; K:CODE with that code; K+ with all after it
 *     GPU_STRICT=1       what is slow is a fault too: copies from pageable memory, calls that
 *                        synchronise or allocate inside a step
 *     GPU_ARCH=75        which PTX to take, and which device to be
 *     GPU_PTX=FILE       a PTX file whose kernels take the place of those in the program
 *     GPU_MEMORY=BYTES   how much the device has
 *     GPU_CUDNN=FILE     the genuine cuDNN, or none; GPU_DEVICES=FOLDER with smNN.json
 *
 * All functions but gpu_lock want the lock. */
#ifndef DUNLIN_TESTS_GPU_STANDIN_H
#define DUNLIN_TESTS_GPU_STANDIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_API __attribute__((visibility("default")))
#define GPU_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define GPU_STREAMS_MAX 16

enum gpu_order { ORDER_EAGER, ORDER_LAZY, ORDER_RANDOM };
enum gpu_kind {
	LIVE_DEVICE,
	LIVE_PINNED,
	LIVE_STREAM,
	LIVE_EVENT,
	LIVE_CUBLAS,
	LIVE_CUDNN,
	LIVE_DESCRIPTOR,
	LIVE_KINDS
};

struct gpu_settings {
	enum gpu_order order;
	long fail_at; /* 0: never */
	int fail_code;
	bool fail_on; /* and all later ones */
	bool strict;
	bool in_step;
	int arch;
	size_t memory;
};
extern struct gpu_settings gpu_settings;

/* ---- fault.c */
void gpu_lock(void);
void gpu_unlock(void);
/* Waits for a change that another thread makes; gives the lock up meanwhile. */
void gpu_wait(void);
bool gpu_wait_ms(int ms);
void gpu_changed(void);
void gpu_fault(const char *kind, const char *fmt, ...) GPU_PRINTF(2, 3);
_Noreturn void gpu_die(const char *fmt, ...) GPU_PRINTF(1, 2);
void gpu_live(enum gpu_kind kind, int by);
uint32_t gpu_random(void);
/* Counts a call of the API and lets others' work go on; true: it must fail. */
bool gpu_call(const char *function);
/* The code that a failing call returns. */
int gpu_fail_code(int usual);
/* A fault in strict mode when inside a step. */
void gpu_slow(const char *function);

/* ---- memory.c */
struct gpu_who {
	uint32_t op, block;
	uint16_t thread, epoch;
};
enum gpu_access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC };
bool gpu_is_device(const void *p);
void *gpu_memory_take(size_t bytes); /* NULL: no more */
bool gpu_memory_give(void *p);       /* false: not an allocation */
size_t gpu_memory_left(void);
/* Whether a live allocation holds all of it; a fault that speaks of what otherwise. */
bool gpu_range_ok(const void *device, size_t bytes, const char *what);
/* An access by a running operation, checked and noted. Returns where the bytes are, or NULL. */
void *gpu_touch(uint64_t device, size_t bytes, enum gpu_access access, const struct gpu_who *who);
/* The same for a whole range, by the operation that runs. */
void *gpu_use(const void *device, size_t bytes, bool write, const char *what);

/* ---- stream.c */
struct gpu_op {
	uint32_t id, seq;
	int stream; /* slot */
	bool done, host, handed;
	const char *name;
	void (*run)(void *arg);
	void *arg; /* owned, freed when it has run (a host function's: borrowed) */
	struct gpu_op *wait, *next;
	uint32_t clock[GPU_STREAMS_MAX]; /* of each stream, what has happened before its end */
};
/* Takes over arg, also when it fails. NULL after a fault: no live stream. */
struct gpu_op *gpu_push(cudaStream_t s, const char *name, void (*run)(void *), void *arg);
struct gpu_op *gpu_op_by_id(uint32_t id);
const struct gpu_op *gpu_running(void);
bool gpu_before(const struct gpu_op *a, const struct gpu_op *b);
bool gpu_host_knows(const struct gpu_op *op);
/* A host function is to run before it, and may still use what it will overwrite. */
bool gpu_behind_host(const struct gpu_op *op);
void gpu_finish(struct gpu_op *op); /* runs what it takes; the host knows then */
void gpu_finish_all(void);
void gpu_progress(void); /* in random order, some work */
bool gpu_in_callback(void);

/* ---- pinned.c */
void *gpu_pinned_take(size_t bytes);
bool gpu_pinned_give(void *p);
/* A copy that the host does not know to be over, or NULL. */
const struct gpu_op *gpu_pinned_used(const void *p);
/* The device's view of a range of pinned memory, or NULL. */
void *gpu_pinned_view(const void *p, size_t bytes);
/* A copy was queued that reads or writes that range. */
void gpu_pinned_busy(struct gpu_op *op, const void *p, size_t bytes, bool write);
void gpu_pinned_settle(void); /* the host knows more than before */
void gpu_pinned_arm(void);    /* a host function has ended */
bool gpu_pinned_at(const void *p);
/* A forbidden page was touched there; false: beside what is under way, and it is forbidden no more.
 */
bool gpu_pinned_touched(const void *at);

/* ---- cudart.c */
void gpu_last_error(cudaError_t e); /* what cudaGetLastError is to tell */

/* ---- fatbin.c */
struct ptx_module *gpu_load_fatbin(const void *wrapper); /* NULL: too new for the device */
const struct ptx_module *gpu_other_kernels(void);        /* GPU_PTX's, or NULL */

/* ---- for tests, by dlsym; a real library has none of them */
GPU_API unsigned standin_faults(void);
GPU_API const char *standin_fault(void); /* the first one's text, or "" */
GPU_API void standin_reset(void);
GPU_API long standin_calls(void);
/* The call with that number from now on fails, 0: none. A code of 0 is the function's own; of -1
 * that too, and all later calls fail as well. */
GPU_API void standin_fail(long call, int code);
GPU_API const char *standin_failed(void); /* the function that was made to fail, or "" */
GPU_API void standin_memory(size_t bytes);
GPU_API void standin_schedule(const char *order, unsigned long seed);
GPU_API void standin_strict(int strict);
GPU_API void standin_step(int inside);
GPU_API void standin_catch(void); /* SIGSEGV, which memory.c explains */
GPU_API int standin_leaks(int print);
GPU_API int standin_blocks(void); /* of device memory that are allocated */
GPU_API unsigned long standin_instructions(void);

/* ---- for the backend, which looks whether they are there: a piece of an allocation is given to
 * somebody, or not any more. 0 bytes: the allocation there is for carving. */
GPU_API void standin_carved(const void *p, size_t bytes);
GPU_API void standin_dropped(const void *p);

#endif
