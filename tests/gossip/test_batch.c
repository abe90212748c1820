/* SPDX-License-Identifier: MIT */
/* The rule that makes batches larger, on made-up S and G: what is wanted, how fast it is followed,
 * that nothing makes it smaller but what may. */
#include "gossip/policy/batch.h"
#include "tests/support.h"

#include <math.h>

static const struct batch_config config = {.eta = 0.8, .micro = 32, .first = 32, .most = 1024};

/* Squares of lengths as they are on average, for batches of part and of whole. */
static void feed(struct batch_state *b, double s, double g, int tests)
{
	for (int i = 0; i < tests; i++) {
		double part = (double)b->size / 2, whole = (double)b->size;
		batch_test(b, b->size / 2, g + s / part, b->size, g + s / whole);
	}
}

static void grows_to(double s, double g, uint64_t agents, uint64_t want)
{
	struct batch_state b;
	uint64_t was;
	batch_start(&b, &config);
	feed(&b, s, g, 32);
	for (uint64_t step = 64; step < 64 * 20; step += 64) {
		was = b.size;
		bool changed = batch_decide(&b, &config, step, agents);
		assert_int_equal(changed, b.size != was);
		assert_true(b.size >= was && b.size <= 2 * was);
		feed(&b, s, g, 8);
	}
	assert_int_equal(b.size, want);
}

/* S/(0.64·G·n), to the next multiple of 32. */
static void test_rule(void **state)
{
	(void)state;
	grows_to(100, 1, 1, 160);  /* 156.25 */
	grows_to(100, 1, 4, 64);   /* 39.1 */
	grows_to(100, 1, 16, 32);  /* 9.8 */
	grows_to(1000, 1, 4, 416); /* 390.6 */
	grows_to(0.5, 0.005, 1, 160);
	grows_to(1e6, 1, 1, 1024); /* the cap */
	grows_to(10, -1, 1, 1024); /* no signal: half as much again each time */
	grows_to(-10, 1, 1, 32);   /* no noise */
	grows_to(NAN, 1, 1, 32);
	grows_to(1e300, 1e-300, 1, 1024);
}

static void test_estimates(void **state)
{
	struct batch_state b;
	double s, g;
	(void)state;
	batch_start(&b, &config);
	assert_false(batch_known(&b, &s, &g));
	for (int i = 0; i < 31; i++)
		batch_test(&b, 8, 3 + 40.0 / 8, 64, 3 + 40.0 / 64);
	assert_false(batch_known(&b, &s, &g));
	assert_false(batch_decide(&b, &config, 64, 1));
	feed(&b, 40, 3, 1);
	assert_true(batch_known(&b, &s, &g));
	assert_true(fabs(s - 40) < 1e-9 && fabs(g - 3) < 1e-9);
	assert_false(batch_decide(&b, &config, 63, 1)); /* each 64th step */
	assert_true(batch_tested(8) && !batch_tested(9));
}

/* Newer tests count more, and S and G are averaged apart: a mean of ratios would be wrong. */
static void test_averages(void **state)
{
	struct batch_state b;
	double s, g;
	(void)state;
	batch_start(&b, &config);
	for (int i = 0; i < 400; i++)
		feed(&b, i % 2 ? 150 : 50, i % 2 ? 0.5 : 1.5, 1);
	assert_true(batch_known(&b, &s, &g));
	assert_true(fabs(s / g - 100) < 5); /* the mean of the ratios is 167 */
	feed(&b, 10, 1, 100);
	assert_true(batch_known(&b, &s, &g) && s / g < 20);
}

static void test_never_smaller(void **state)
{
	struct batch_state b;
	(void)state;
	batch_start(&b, &config);
	b.size = 512;
	feed(&b, 100, 1, 200);
	assert_false(batch_decide(&b, &config, 64, 1));
	assert_int_equal(b.size, 512);
}

/* A donor's averages count at once, less with each own test, and not at all after 32. */
static void test_given(void **state)
{
	struct batch_state b;
	double s, g;
	(void)state;
	batch_start(&b, &config);
	feed(&b, 7, 7, 40);
	batch_given(&b, &config, 0, 1, 1); /* says nothing */
	assert_int_equal(b.tests, 40);
	batch_given(&b, &config, 256, 100, 1);
	assert_int_equal(b.size, 256);
	assert_true(batch_known(&b, &s, &g) && s == 100 && g == 1);
	assert_true(batch_decide(&b, &config, 64, 1));
	assert_int_equal(b.size, 160); /* it may fall */
	feed(&b, 1000, 1, 16);
	assert_true(batch_known(&b, &s, &g) && s > 100 && s < 1000);
	feed(&b, 1000, 1, 16);
	assert_true(batch_known(&b, &s, &g));
	assert_true(fabs(s - 1000) < 1e-6 && fabs(g - 1) < 1e-9);
}

/* Whatever a donor says is bounded by the own cap, and is forgotten. */
static void test_lies(void **state)
{
	static const double lies[] = {1e300, INFINITY, NAN, -1e300, 0};
	(void)state;
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		struct batch_state b;
		batch_start(&b, &config);
		batch_given(&b, &config, UINT64_MAX - i, lies[i], i % 2 ? NAN : 1);
		assert_int_equal(b.size, 1024);
		for (uint64_t step = 64; step <= 256; step += 64) {
			feed(&b, 100, 1, 8);
			(void)!batch_decide(&b, &config, step, 1);
			assert_true(b.size >= 32 && b.size <= 1024);
		}
		assert_int_equal(b.size, 160); /* by its own 32 tests */
		assert_int_equal(b.may_fall, 0);
	}
}

/* Tests that find no noise decide nothing: a donor's size may still fall by later ones. */
static void test_given_size_without_noise(void **state)
{
	struct batch_state b;
	(void)state;
	batch_start(&b, &config);
	batch_given(&b, &config, 1024, 0, 0);
	feed(&b, -10, 1, 32);
	assert_false(batch_decide(&b, &config, 64, 1));
	assert_int_equal(b.may_fall, 1);
	feed(&b, 100, 1, 200);
	assert_true(batch_decide(&b, &config, 128, 1));
	assert_int_equal(b.size, 160);
	assert_int_equal(b.may_fall, 0);
}

static void test_restored(void **state)
{
	struct batch_state b = {.size = 100, .noise = 4, .signal = 2, .tests = 50};
	(void)state;
	batch_restored(&b, &config);
	assert_int_equal(b.size, 128);
	assert_true(b.noise == 4 && b.signal == 2 && b.tests == 50);
	b.size = UINT64_MAX;
	b.noise = NAN;
	batch_restored(&b, &config);
	assert_int_equal(b.size, 32);
	assert_int_equal(b.tests, 0);
}

/* In the last hundredth, so that the steps of all do not go beyond the end. */
static void test_end(void **state)
{
	struct batch_state b = {.size = 256};
	(void)state;
	assert_int_equal(batch_now(&b, &config, 4, 1500, 100000), 256); /* not yet */
	assert_int_equal(batch_now(&b, &config, 4, 1000, 50000), 256);
	assert_int_equal(batch_now(&b, &config, 4, 1000, 100000), 128); /* 4 · 256 > 1000 */
	assert_int_equal(batch_now(&b, &config, 4, 1024, 200000), 256);
	assert_int_equal(batch_now(&b, &config, 4, 300, 100000), 64);
	assert_int_equal(batch_now(&b, &config, 4, 1, 100000), 32);
	assert_int_equal(batch_now(&b, &config, 4, 0, 100000), 32);
	assert_int_equal(b.size, 256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rule),
	        cmocka_unit_test(test_estimates),
	        cmocka_unit_test(test_averages),
	        cmocka_unit_test(test_never_smaller),
	        cmocka_unit_test(test_given),
	        cmocka_unit_test(test_lies),
	        cmocka_unit_test(test_given_size_without_noise),
	        cmocka_unit_test(test_restored),
	        cmocka_unit_test(test_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
