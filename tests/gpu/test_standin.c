/* SPDX-License-Identifier: MIT */
/* The stand-in itself: it computes what a GPU would, says nothing of programs that are right, and
 * something of every mistake. Run by tests/gpu/standin.sh, which puts the stand-in first. */
#include "tests/gpu/standin.h"
#include "tests/gpu/trial.h"
#include "tests/support.h"

#include <cublas_v2.h>
#include <math.h>
#include <sched.h>
#include <sys/wait.h>

#define N 300

static cudaStream_t stream[2];
static float *x, *y;  /* device, N each; 16 N for y */
static float *pinned; /* 64 KiB */
#define PINNED_BYTES 65536
#define Y_BYTES ((size_t)N * 16 * sizeof(int64_t))

static void fine(cudaError_t e)
{
	assert_int_equal(e, cudaSuccess);
}

/* x holds i − 100, y zeros. */
static int start(void **state)
{
	(void)state;
	standin_schedule("random", 7);
	standin_fail(0, 0);
	standin_step(0);
	for (int i = 0; i < 2; i++)
		fine(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
	fine(cudaMalloc((void **)&x, N * sizeof(int64_t)));
	fine(cudaMalloc((void **)&y, Y_BYTES));
	fine(cudaMallocHost((void **)&pinned, PINNED_BYTES));
	for (int i = 0; i < N; i++)
		pinned[i] = (float)i - 100;
	fine(cudaMemcpyAsync(x, pinned, N * sizeof *x, cudaMemcpyHostToDevice, stream[0]));
	fine(cudaMemsetAsync(y, 0, Y_BYTES, stream[0]));
	fine(cudaStreamSynchronize(stream[0]));
	assert_int_equal(standin_faults(), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		fine(cudaStreamDestroy(stream[i]));
	fine(cudaFree(x));
	fine(cudaFree(y));
	fine(cudaFreeHost(pinned));
	assert_int_equal(standin_leaks(1), 0);
	standin_reset();
	return 0;
}

/* The mistake was told, in these words. */
static void told(const char *words)
{
	(void)cudaStreamSynchronize(stream[0]);
	(void)cudaStreamSynchronize(stream[1]);
	if (!strstr(standin_fault(), words))
		fail_msg("wanted \"%s\", told \"%s\"", words, standin_fault());
	standin_reset();
}

static void nothing_told(void)
{
	if (standin_faults())
		fail_msg("%s", standin_fault());
}

static void get(void *to, const void *from, size_t bytes)
{
	assert_true(bytes <= PINNED_BYTES);
	fine(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream[0]));
	fine(cudaStreamSynchronize(stream[0]));
	memcpy(to, pinned, bytes);
}

/* ---- what is right */

static void it_computes(void **state)
{
	static const char *const orders[] = {"eager", "lazy", "random"};
	float out[N];
	(void)state;
	for (int k = 0; k < 3; k++) {
		standin_schedule(orders[k], 3);
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
		get(out, y, sizeof out);
		for (int i = 0; i < N; i++)
			assert_true(out[i] == (float)(2 * (k + 1) * (i - 100)));
	}
	fine(trial_launch(TRIAL_SUM, y, x, N, stream[0]));
	get(out, y, sizeof *out);
	assert_true(out[0] == (float)N * (N - 1) / 2 - 100 * N);
	fine(cudaMemsetAsync(y, 0, sizeof *y, stream[0]));
	fine(trial_launch(TRIAL_ATOMICS, y, x, N, stream[0]));
	get(out, y, sizeof *out);
	assert_true(out[0] == 2 * TRIAL_BLOCK);
	nothing_told();
}

static double want_function(int f, float v)
{
	double d = v, a = fabs(d);
	switch (f) {
	case 0:
	case 7:
		return exp(d);
	case 1:
	case 8:
		return log(a + 0.5);
	case 2:
		return erf(d);
	case 3:
		return tanh(d);
	case 4:
		return sqrt(a);
	case 5:
		return d / 3 + 1 / sqrt(a + 1);
	case 6:
		return (double)floorf(v * 7) + (double)ceilf(v) + (double)truncf(v * 3) +
		       (double)rintf(v * 5);
	case 9:
		return pow(a, 1.5);
	case 10:
		return copysign(2, d) + fmax(d, 0.25) - fmin(d, 0.5);
	default:
		return 1 / (d * d + 1);
	}
}

static void functions_are_right(void **state)
{
	static float in[N], out[N * TRIAL_FUNCTIONS];
	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = pinned[i] = ((float)i - 150) * 0.0371f;
	fine(cudaMemcpyAsync(x, pinned, sizeof in, cudaMemcpyHostToDevice, stream[0]));
	fine(trial_launch(TRIAL_FUNCTIONS_OF, y, x, N, stream[0]));
	get(out, y, sizeof out);
	for (int i = 0; i < N * TRIAL_FUNCTIONS; i++) {
		double want = want_function(i % TRIAL_FUNCTIONS, in[i / TRIAL_FUNCTIONS]);
		if (!(fabs(out[i] - want) <= 2e-6 * fabs(want) + 1e-7))
			fail_msg("function %d of %g: %g, not %g", i % TRIAL_FUNCTIONS,
			        (double)in[i / TRIAL_FUNCTIONS], (double)out[i], want);
	}
	nothing_told();
}

/* The same C, by the host's compiler. */
static int64_t want_integer(int f, int64_t v)
{
	int32_t w = (int32_t)v;
	uint32_t u = (uint32_t)v;
	switch (f) {
	case 0:
		return v / 7 + v % 1000;
	case 1:
		return w / 3 - w % 11;
	case 2:
		return u / 10 + (u >> 5) + (u << 3);
	case 3:
		return (v >> 9) ^ (int64_t)((uint64_t)v << 13);
	case 4:
		return (int64_t)((uint64_t)u * 0x9e3779b9u >> 32);
	case 5:
		return (int64_t)w * (w + 1);
	case 6:
		return (int8_t)v + (int16_t)v + (uint8_t)v;
	case 7:
		return v < w ? v : w > 5 ? w : -v;
	case 8:
		return (int64_t)(float)w + (int64_t)((double)v * 0.5);
	case 9:
		return (int64_t)((uint64_t)v * 0x9e3779b97f4a7c15u >> 32);
	default:
		return __builtin_popcount(u) + (w ? __builtin_clz(u) : 32) +
		       (int)((u << 7) | (u >> 25));
	}
}

static void integers_are_right(void **state)
{
	static int64_t in[N], out[N * TRIAL_INTEGERS];
	uint64_t v = 1;
	(void)state;
	for (int i = 0; i < N; i++) {
		v = v * 6364136223846793005u + 1442695040888963407u;
		in[i] = i < 20 ? i - 10 : i % 3 ? (int64_t)v : (int32_t)(v >> 40) - (1 << 23);
		in[i] /= 2; /* w * (w + 1) and −v must be defined */
	}
	memcpy(pinned, in, sizeof in);
	fine(cudaMemcpyAsync(x, pinned, sizeof in, cudaMemcpyHostToDevice, stream[0]));
	fine(trial_launch(TRIAL_INTEGERS_OF, y, x, N, stream[0]));
	get(out, y, sizeof out);
	for (int i = 0; i < N * TRIAL_INTEGERS; i++) {
		int64_t want = want_integer(i % TRIAL_INTEGERS, in[i / TRIAL_INTEGERS]);
		if (out[i] != want)
			fail_msg("integer %d of %ld: %ld, not %ld", i % TRIAL_INTEGERS,
			        (long)in[i / TRIAL_INTEGERS], (long)out[i], (long)want);
	}
	nothing_told();
}

static void events_order_streams(void **state)
{
	cudaEvent_t e;
	(void)state;
	fine(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	for (unsigned long seed = 0; seed < 20; seed++) {
		float out;
		standin_schedule("random", seed);
		fine(cudaMemsetAsync(y, 0, N * sizeof *y, stream[0]));
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
		fine(cudaEventRecord(e, stream[0]));
		fine(cudaStreamWaitEvent(stream[1], e, 0));
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[1]));
		fine(cudaStreamSynchronize(stream[1]));
		get(&out, y, sizeof out);
		assert_true(out == -200);
	}
	fine(cudaEventDestroy(e));
	nothing_told();
}

static void count_call(void *arg)
{
	__atomic_add_fetch((int *)arg, pinned[0] == -200, __ATOMIC_SEQ_CST);
}

/* Nobody synchronises, and the function runs all the same; it may read what was copied before it,
 * though the next copy is already queued. */
static void host_functions_run(void **state)
{
	int calls = 0;
	(void)state;
	standin_schedule("lazy", 1);
	fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
	fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
	for (int i = 0; i < 3; i++) {
		fine(cudaMemcpyAsync(
		        pinned, y, PINNED_BYTES / 8, cudaMemcpyDeviceToHost, stream[0]));
		fine(cudaLaunchHostFunc(stream[0], count_call, &calls));
	}
	while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) < 3)
		sched_yield();
	nothing_told();
}

/* ---- mistakes of kernels */

static void kernels_are_watched(void **state)
{
	static const struct {
		enum trial which;
		const char *words;
	} mistakes[] = {{TRIAL_NO_BARRIER, "shared: "}, {TRIAL_OUT_OF_BOUNDS, "bounds: "},
	        {TRIAL_DIVERGENT, "barrier: "}, {TRIAL_SHARED_UNINITIALISED, "uninitialised"},
	        {TRIAL_SHARED_BOUNDS, "out of bounds of shared"}, {TRIAL_GLOBAL_RACE, "race: "},
	        {TRIAL_BLOCK_RACE, "race: "}, {TRIAL_MISSING_LANE, "shuffle: "},
	        {TRIAL_MISALIGNED, "align: "}, {TRIAL_DEFAULT_STREAM, "default stream"}};
	(void)state;
	for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
		bool far = mistakes[i].which == TRIAL_OUT_OF_BOUNDS;
		(void)trial_launch(mistakes[i].which, y, x,
		        far ? (int)(Y_BYTES / sizeof *y) + TRIAL_BLOCK : N, stream[0]);
		told(mistakes[i].words);
	}
}

static void never_written(void **state)
{
	float *z;
	(void)state;
	fine(cudaMalloc((void **)&z, N * sizeof *z));
	fine(trial_launch(TRIAL_ADD, y, z, N, stream[0]));
	told("uninitialised");
	fine(cudaFree(z));
	fine(trial_launch(TRIAL_ADD, y, z, N, stream[0]));
	told("freed memory");
}

/* ---- mistakes of the host */

static void streams_without_an_event(void **state)
{
	static const char *const orders[] = {"eager", "lazy", "random"};
	(void)state;
	for (int k = 0; k < 3; k++) {
		standin_schedule(orders[k], 1);
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[0]));
		fine(trial_launch(TRIAL_ADD, y, x, N, stream[1]));
		told("nothing orders them");
	}
	/* A reader and a later writer. */
	fine(cudaMemcpyAsync(pinned, y, N * 4, cudaMemcpyDeviceToHost, stream[0]));
	fine(cudaMemsetAsync(y, 0, N * 4, stream[1]));
	told("nothing orders them");
	/* Two copies to one place on the host. */
	fine(cudaMemcpyAsync(pinned, y, N * 4, cudaMemcpyDeviceToHost, stream[0]));
	fine(cudaMemcpyAsync(pinned, x, N * 4, cudaMemcpyDeviceToHost, stream[1]));
	told("one pinned range");
}

static void pinned_memory_used_early(void **state)
{
	static const char *const orders[] = {"eager", "lazy", "random"};
	(void)state;
	for (int k = 0; k < 3; k++) {
		standin_schedule(orders[k], 1);
		fine(cudaMemcpyAsync(x, pinned, N * 4, cudaMemcpyHostToDevice, stream[0]));
		pinned[5] = (float)(1000 + k);
		told("changed pinned memory");
	}
	/* Beside a result that is under way there may be others. */
	standin_catch();
	standin_schedule("lazy", 1);
	fine(cudaMemcpyAsync(pinned + 1, x, 8, cudaMemcpyDeviceToHost, stream[0]));
	pinned[0] = pinned[3] + 1;
	fine(cudaStreamSynchronize(stream[0]));
	assert_true(pinned[1] == -100 && pinned[2] == -99);
	nothing_told();
}

static void touch_device(void)
{
	*(volatile float *)x = 1;
}

static void touch_pinned(void)
{
	(void)cudaMemcpyAsync(pinned, y, Y_BYTES / 2, cudaMemcpyDeviceToHost, stream[0]);
	(void)*(volatile float *)(pinned + 2000);
}

static void touch_number(void)
{
	(void)cudaMemcpyAsync(pinned + 1, y, 4, cudaMemcpyDeviceToHost, stream[0]);
	(void)*(volatile float *)(pinned + 1);
}

static void leak(void)
{
	exit(0);
}

static void fault(void)
{
	(void)cudaMemsetAsync(y, 0, 4, NULL);
	end(NULL);
	(void)cudaMemsetAsync(y, 0, 4, NULL);
	exit(0);
}

static void ends_badly(void (*run)(void), const char *name)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		(void)!freopen("/dev/null", "w", stderr);
		standin_catch(); /* cmocka has a handler of its own */
		run();
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 97)
		fail_msg("%s: status %#x", name, status);
}

static void the_process_ends_badly(void **state)
{
	(void)state;
	ends_badly(touch_device, "the host touches device memory");
	ends_badly(touch_pinned, "the host touches pinned memory");
	ends_badly(touch_number, "the host reads a number that is under way");
	ends_badly(leak, "a leak");
	ends_badly(fault, "a fault");
}

static void calls_are_checked(void **state)
{
	cublasHandle_t h;
	const float one = 1, zero = 0;
	float on_stack[4] = {0};
	(void)state;
	assert_int_not_equal(
	        cudaMemcpyAsync(y, x, N * 100, cudaMemcpyDeviceToDevice, stream[0]), 0);
	told("bounds");
	assert_int_not_equal(cudaMemcpyAsync(y, x, 4, cudaMemcpyHostToDevice, stream[0]), 0);
	told("of another kind");
	assert_int_not_equal(cudaFree(x + 1), 0);
	told("free: ");
	standin_strict(1);
	fine(cudaMemcpyAsync(y, on_stack, 16, cudaMemcpyHostToDevice, stream[0]));
	told("not pinned");
	standin_step(1);
	fine(cudaDeviceSynchronize());
	told("inside a step");
	standin_step(0);
	standin_strict(0);
	assert_int_equal(cublasCreate(&h), 0);
	assert_int_equal(cublasSetStream(h, stream[0]), 0);
	assert_int_equal(
	        cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &one, x, 2, x, 4, &zero, y, 2),
	        0);
	fine(cudaStreamSynchronize(stream[0]));
	nothing_told();
	assert_int_not_equal(
	        cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, 2, 3, 4, &one, x, 2, x, 4, &zero, y, 2),
	        0);
	told("lda 2");
	assert_int_equal(cublasDestroy(h), 0);
}

static void the_kth_call_fails(void **state)
{
	void *p;
	(void)state;
	standin_fail(2, 0);
	fine(cudaMemsetAsync(y, 0, 4, stream[0]));
	assert_int_equal(cudaMalloc(&p, 4), cudaErrorMemoryAllocation);
	fine(cudaMalloc(&p, 4));
	standin_fail(1, cudaErrorIllegalAddress);
	assert_int_equal(cudaFree(p), cudaErrorIllegalAddress);
	assert_int_equal(standin_calls(), 1);
	nothing_told();
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, end)
	const struct CMUnitTest tests[] = {TEST(it_computes), TEST(functions_are_right),
	        TEST(integers_are_right), TEST(events_order_streams), TEST(host_functions_run),
	        TEST(kernels_are_watched), TEST(never_written), TEST(streams_without_an_event),
	        TEST(pinned_memory_used_early), TEST(the_process_ends_badly),
	        TEST(calls_are_checked), TEST(the_kth_call_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
