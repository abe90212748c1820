/* SPDX-License-Identifier: MIT */
/* What tests of the whole GPU backend share: a device on the stand-in (or a real one), waiting for
 * what it promises, a look for faults and leaks after each test, and every call failing once. */
#ifndef DUNLIN_TESTS_GPU_FIXTURE_H
#define DUNLIN_TESTS_GPU_FIXTURE_H

#include "tests/gpu/control.h"
#include "tests/model/ops_fixture.h"

#include <sched.h>
#include <stdatomic.h>

static inline int nothing_wrong(void **state)
{
	(void)state;
	if (!control.faults)
		return 0;
	if (control.faults() != 0)
		fail_msg("%u faults: %s", control.faults(), control.fault());
	assert_int_equal(control.leaks(1), 0);
	return 0;
}

#define TEST(f) cmocka_unit_test_teardown(f, nothing_wrong)

static inline struct device *open_gpu(void)
{
	struct device *d = open_device("cuda:0", 1);
	control_find();
	return d;
}

static inline void must(int rc, const struct err *e)
{
	if (rc)
		fail_msg("%s", e->msg);
}

/* A done_cb, and its flag. */
static inline void arrived(void *arg, int rc)
{
	atomic_store((atomic_int *)arg, rc == 0 ? 1 : -1);
}

static inline void wait_for(atomic_int *flag)
{
	while (atomic_load(flag) == 0)
		sched_yield();
	assert_int_equal(atomic_load(flag), 1);
}

/* A plan that cannot be made is passed over for the next one: proposals are a guess. */
static inline bool may_pass(const char *function)
{
	return strcmp(function, "cudnnBackendFinalize of a plan") == 0;
}

/* By call and place: "cuda:0: dense1 forward: cublasSgemm: …". */
static inline void check_words(const struct err *why, const char *function)
{
	char name[80]; /* without _v2 */
	snprintf(name, sizeof name, "%.*s", (int)strcspn(function, "_ "), function);
	if (strncmp(why->msg, "cuda:0: ", 8) != 0 ||
	        (!strstr(why->msg, name) && !strstr(why->msg, "kernel_")))
		fail_msg("%s fails, and it is told as: %s", function, why->msg);
}

/* The first failure of a device is told again by whoever asks. */
static inline void stays_so(struct device *d, int rc, const struct err *e)
{
	struct err again = {0};
	if (d && rc == ERR_DEVICE &&
	        (d->backend->settle(d, &again) != rc || strcmp(again.msg, e->msg) != 0))
		fail_msg("it failed with %s, and now %s", e->msg, again.msg);
}

/* A life opens a device, works, and closes it. What fails is returned; marked says how many calls
 * there were when only the end was left. GPU_EVERY=13 in the environment: only every 13th call. */
static inline void fail_each(
        int (*life)(const void *arg, long *marked, struct err *e), const void *arg, int code)
{
	struct err e = {0};
	const char *text = getenv("GPU_EVERY");
	const long every = text && atol(text) > 0 ? atol(text) : 1;
	long total, marked;
	control.fail_call(0, 0);
	must(life(arg, &marked, &e), &e);
	total = control.calls();
	assert_true(total > 100);
	for (long k = 1; k <= total; k += every) {
		struct err why = {0};
		control.fail_call(k, code);
		int rc = life(arg, &marked, &why);
		const char *function = control.failed();
		if (rc == 0 && k <= marked && !may_pass(function))
			fail_msg("call %ld, %s, fails and nobody notices", k, function);
		if (rc != 0 && !why.msg[0])
			fail_msg("call %ld, %s, fails without a word", k, function);
		if (rc == ERR_DEVICE && code == 0)
			check_words(&why, function);
		if (control.faults() != 0)
			fail_msg("call %ld, %s, fails: %s", k, function, control.fault());
		if (control.leaks(1) != 0)
			fail_msg("call %ld, %s, fails and something is left over", k, function);
	}
	control.fail_call(0, 0);
}

#endif
