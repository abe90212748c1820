/* SPDX-License-Identifier: MIT */
/* How descriptors are shared out between data, peers and the rest. */
#include "agent/daemon/rlimits.h"
#include "tests/support.h"

#include <sys/resource.h>

static void of(rlim_t soft, rlim_t hard)
{
	const struct rlimit r = {soft, hard};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static void test_shares(void **state)
{
	struct rlimit r;
	(void)state;
	of(100, 600);
	rlimits_set();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	assert_int_equal(r.rlim_cur, 600);
	assert_int_equal(getrlimit(RLIMIT_CORE, &r), 0);
	assert_int_equal(r.rlim_cur, 0);
	assert_int_equal(rlimits_connections(0), 600 - RLIMITS_RESERVED);
	assert_int_equal(rlimits_connections(1), 599 - RLIMITS_RESERVED);
	assert_int_equal(rlimits_connections(300), 300 - RLIMITS_RESERVED);
	/* Half of what is left, and never nothing. */
	assert_int_equal(rlimits_connections(500), 50);
	assert_int_equal(rlimits_connections(590), 16);
	assert_int_equal(rlimits_connections(700), 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
