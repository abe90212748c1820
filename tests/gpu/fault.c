/* SPDX-License-Identifier: MIT */
/* Settings, the lock, what went wrong, what is still alive, and which call is made to fail. A fault
 * does not stop the program: what follows it may tell more. At the end of the process faults and
 * leaks make the exit code 97, whatever the program thought of itself. */
#include "tests/gpu/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAULT 97
#define FAULTS_TOLD 20

struct gpu_settings gpu_settings = {.order = ORDER_RANDOM, .arch = 75, .memory = 1u << 30};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned n_faults;
static char first_fault[400];
static long n_calls;
static char failed[80];
static uint64_t random_state = 88172645463325252u;
static int live[LIVE_KINDS];
static const char *const live_names[LIVE_KINDS] = {"device allocations", "pinned allocations",
        "streams", "events", "cuBLAS handles", "cuDNN handles", "cuDNN descriptors"};

void gpu_lock(void)
{
	pthread_mutex_lock(&lock);
}

void gpu_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void gpu_wait(void)
{
	pthread_cond_wait(&changed, &lock);
}

bool gpu_wait_ms(int ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += (long)ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return pthread_cond_timedwait(&changed, &lock, &t) != ETIMEDOUT;
}

void gpu_changed(void)
{
	pthread_cond_broadcast(&changed);
}

void gpu_fault(const char *kind, const char *fmt, ...)
{
	char text[360];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (n_faults == 0)
		snprintf(first_fault, sizeof first_fault, "%s: %s", kind, text);
	if (n_faults++ < FAULTS_TOLD)
		fprintf(stderr, "standin: %s: %s\n", kind, text);
}

_Noreturn void gpu_die(const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	fputs("standin: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(EXIT_FAULT);
}

void gpu_live(enum gpu_kind kind, int by)
{
	live[kind] += by;
}

uint32_t gpu_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

bool gpu_call(const char *function)
{
	if (gpu_in_callback())
		gpu_fault("callback", "%s is called by a host function", function);
	n_calls++;
	if (n_calls == gpu_settings.fail_at ||
	        (gpu_settings.fail_on && gpu_settings.fail_at && n_calls > gpu_settings.fail_at)) {
		if (!failed[0])
			snprintf(failed, sizeof failed, "%s", function);
		if (getenv("GPU_VERBOSE"))
			fprintf(stderr, "standin: call %ld, %s, fails\n", n_calls, function);
		return true;
	}
	if (gpu_settings.order == ORDER_RANDOM && gpu_random() % 4 == 0)
		gpu_progress();
	return false;
}

int gpu_fail_code(int usual)
{
	return gpu_settings.fail_code ? gpu_settings.fail_code : usual;
}

void gpu_slow(const char *function)
{
	if (gpu_settings.strict && gpu_settings.in_step)
		gpu_fault("slow", "%s inside a step", function);
}

unsigned standin_faults(void)
{
	return n_faults;
}

const char *standin_fault(void)
{
	return first_fault;
}

void standin_reset(void)
{
	n_faults = 0;
	first_fault[0] = 0;
}

long standin_calls(void)
{
	return n_calls;
}

void standin_fail(long call, int code)
{
	gpu_settings.fail_at = call;
	gpu_settings.fail_code = code > 0 ? code : 0;
	gpu_settings.fail_on = code < 0;
	failed[0] = 0;
	n_calls = 0;
}

const char *standin_failed(void)
{
	return failed;
}

void standin_memory(size_t bytes)
{
	gpu_settings.memory = bytes;
}

void standin_schedule(const char *order, unsigned long seed)
{
	if (strcmp(order, "eager") == 0)
		gpu_settings.order = ORDER_EAGER;
	else if (strcmp(order, "lazy") == 0)
		gpu_settings.order = ORDER_LAZY;
	else if (strcmp(order, "random") == 0)
		gpu_settings.order = ORDER_RANDOM;
	else
		gpu_die("GPU_SCHED=%s: eager, lazy or random", order);
	random_state = 88172645463325252u ^ (seed * 0x9e3779b97f4a7c15u);
	if (!random_state)
		random_state = 1;
	for (int i = 0; i < 8; i++)
		gpu_random();
}

void standin_strict(int strict)
{
	gpu_settings.strict = strict != 0;
}

void standin_step(int inside)
{
	gpu_settings.in_step = inside != 0;
}

int standin_leaks(int print)
{
	int n = 0;
	for (int i = 0; i < LIVE_KINDS; i++) {
		n += live[i];
		if (live[i] && print)
			fprintf(stderr, "standin: leak: %d %s\n", live[i], live_names[i]);
	}
	return n;
}

int standin_blocks(void)
{
	return live[LIVE_DEVICE];
}

static const char *from_env(const char *name)
{
	const char *text = getenv(name);
	return text && *text ? text : NULL;
}

__attribute__((constructor)) static void settle(void)
{
	const char *text = from_env("GPU_SEED");
	unsigned long seed = text ? strtoul(text, NULL, 10) : 1;
	text = from_env("GPU_SCHED");
	standin_schedule(text ? text : "random", seed);
	text = from_env("GPU_FAIL");
	if (text) {
		char *end;
		gpu_settings.fail_at = strtol(text, &end, 10);
		if (*end == ':')
			gpu_settings.fail_code = atoi(end + 1);
		gpu_settings.fail_on = *end == '+';
	}
	text = from_env("GPU_STRICT");
	gpu_settings.strict = text && atoi(text) != 0;
	text = from_env("GPU_ARCH");
	if (text)
		gpu_settings.arch = atoi(text);
	text = from_env("GPU_MEMORY");
	if (text)
		gpu_settings.memory = strtoull(text, NULL, 10);
}

__attribute__((destructor)) static void tell(void)
{
	int leaks = gpu_settings.fail_on ? 0 : standin_leaks(1);
	if (from_env("GPU_VERBOSE"))
		fprintf(stderr, "standin: %ld calls\n", n_calls);
	if (n_faults == 0 && leaks == 0)
		return;
	fprintf(stderr, "standin: %u faults, %d leaks\n", n_faults, leaks);
	_exit(EXIT_FAULT);
}
