/* SPDX-License-Identifier: MIT */
/* For tests that call the kernels of model/cuda/kernels.h one by one: numbers on the host and on
 * the device, room for results, and a comparison.
 *
 *     |guard|xxxx what a kernel may use xxxx|guard|
 *
 * Guards hold NaN: one that is read spoils the result, and one that is written is seen at the end.
 * On the stand-in, which tells of everything behind an allocation's end by itself, none is there.
 * Room for results is not written at all, so that the stand-in tells of a kernel that reads it, and
 * of elements that a kernel leaves out. */
#ifndef DUNLIN_TESTS_GPU_KERNELS_FIXTURE_H
#define DUNLIN_TESTS_GPU_KERNELS_FIXTURE_H

#include "model/cuda/kernels.h"
#include "model/device/dropout.h"
#include "tests/gpu/control.h"
#include "tests/support.h"

#include <float.h>
#include <math.h>

#define GUARD 512
#define BUFFERS_MAX 512
#define STAGE_BYTES ((size_t)8 << 20)
#define WANT_MAX ((size_t)1 << 21)

static struct buffer {
	char *dev; /* owned, device: guard, bytes, guard */
	size_t bytes;
	void *host; /* owned */
} buffers[BUFFERS_MAX];
static int n_buffers;
static cudaStream_t stream;
static char *stage;           /* owned, pinned */
static double want[WANT_MAX]; /* what the comparison below is with */

static inline void fine(cudaError_t e)
{
	if (e != cudaSuccess)
		fail_msg("%s: %s", cudaGetErrorName(e), cudaGetErrorString(e));
}

static inline void *at(const struct buffer *b)
{
	return b->dev + GUARD;
}

static inline size_t guard_behind(void)
{
	return control.faults ? 0 : GUARD;
}

/* Bytes to the device; the stage is free again afterwards. */
static inline void send(void *to, const void *from, size_t bytes)
{
	assert_true(bytes <= STAGE_BYTES);
	memcpy(stage, from, bytes);
	fine(cudaMemcpyAsync(to, stage, bytes, cudaMemcpyHostToDevice, stream));
	fine(cudaStreamSynchronize(stream));
}

/* Where they came to: the stage. */
static inline const void *fetch(const void *from, size_t bytes)
{
	assert_true(bytes <= STAGE_BYTES);
	fine(cudaMemcpyAsync(stage, from, bytes, cudaMemcpyDeviceToHost, stream));
	fine(cudaStreamSynchronize(stream));
	return stage;
}

/* Device memory of so many bytes that has not been written. */
static inline void *room(size_t bytes)
{
	assert_true(n_buffers < BUFFERS_MAX);
	struct buffer *b = &buffers[n_buffers++];
	*b = (struct buffer){.bytes = bytes};
	fine(cudaMalloc((void **)&b->dev, GUARD + bytes + guard_behind()));
	fine(cudaMemsetAsync(b->dev, 0xff, GUARD, stream));
	fine(cudaMemsetAsync(b->dev + GUARD + bytes, 0xff, guard_behind(), stream));
	return at(b);
}

static inline float *floats(size_t n)
{
	return room(n * sizeof(float));
}

/* The same on the host and on the device. */
struct numbers {
	float *host, *dev;
};

/* Eighths between −4 and 4: zeros and ties are among them, and sums of them are exact. */
static inline struct numbers numbers(size_t n, uint32_t seed)
{
	struct numbers x = {.host = calloc(n, sizeof *x.host), .dev = floats(n)};
	buffers[n_buffers - 1].host = x.host;
	for (size_t i = 0; i < n; i++)
		x.host[i] = (float)(dropout_scramble((uint32_t)i + seed * 7919) % 65) * 0.125f - 4;
	send(x.dev, x.host, n * sizeof *x.host);
	return x;
}

/* After a change of the host's. */
static inline void again(struct numbers x, size_t n)
{
	send(x.dev, x.host, n * sizeof *x.host);
}

/* n floats of the device against want, to so many roundings of the value or of floor, whichever is
 * the greater. NaN is wanted where want has one. */
static inline void compare(const char *what, const float *dev, size_t n, double ulps, double floor)
{
	const float *got = fetch(dev, n * sizeof *got);
	for (size_t i = 0; i < n; i++) {
		double off = fabs((double)got[i] - want[i]);
		if (isnan(want[i]) ? isnan(got[i])
		                   : off <= ulps * FLT_EPSILON * fmax(fabs(want[i]), floor))
			continue;
		fail_msg("%s: element %zu of %zu is %.9g, want %.9g", what, i, n, (double)got[i],
		        want[i]);
	}
}

/* value, in which i counts, is what each of n floats must be. */
#define EXPECT(what, dev, n, ulps, floor, value)              \
	do {                                                  \
		assert_true((size_t)(n) <= WANT_MAX);         \
		for (size_t i = 0; i < (size_t)(n); i++)      \
			want[i] = (double)(value);            \
		compare(what, dev, (size_t)(n), ulps, floor); \
	} while (0)
#define EXPECT_EXACTLY(what, dev, n, value) EXPECT(what, dev, n, 0, 0, value)

static inline int open_stream(void **state)
{
	(void)state;
	fine(cudaSetDevice(0));
	fine(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	fine(cudaMallocHost((void **)&stage, STAGE_BYTES));
	control_find();
	return 0;
}

static inline int close_stream(void **state)
{
	(void)state;
	fine(cudaFreeHost(stage));
	fine(cudaStreamDestroy(stream));
	if (control.leaks)
		assert_int_equal(control.leaks(1), 0);
	return 0;
}

static inline void check_guard(const char *guard, size_t bytes, int which, const char *side)
{
	const unsigned char *got = fetch(guard, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != 0xff)
			fail_msg("buffer %d: something is written %s it", which, side);
}

/* Frees what a test has taken, guards looked at; also in between. */
static inline void drop_buffers(void)
{
	for (; n_buffers > 0; n_buffers--) {
		struct buffer *b = &buffers[n_buffers - 1];
		check_guard(b->dev, GUARD, n_buffers, "before");
		check_guard(b->dev + GUARD + b->bytes, guard_behind(), n_buffers, "behind");
		fine(cudaFree(b->dev));
		free(b->host);
	}
}

static inline int nothing_wrong(void **state)
{
	(void)state;
	drop_buffers();
	if (control.faults && control.faults() != 0)
		fail_msg("%u faults: %s", control.faults(), control.fault());
	return 0;
}

#endif
