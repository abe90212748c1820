/* SPDX-License-Identifier: MIT */
/* How far a peer may pull, with numbers that were worked out by hand, and against those who try. */
#include "agent/base/rng.h"
#include "gossip/policy/clip.h"
#include "tests/support.h"

#include <float.h>
#include <math.h>

static struct clip c;

static void near(double a, double b)
{
	if (!(fabs(a - b) <= 1e-5 * fabs(b)))
		fail_msg("%.9g, not %.9g", a, b);
}

/* One exchange at that distance, with one group of layers; returns its factor. */
static float once(double distance, double moved)
{
	double d2 = distance * distance;
	float f, least = clip_factors(&c, &d2, moved, &f);
	assert_true(f == least);
	clip_enter(&c, &d2, moved);
	return f;
}

static void fill(double distance, int n)
{
	for (int i = 0; i < n; i++)
		once(distance, 1e6);
}

/* Before there is a history: what the agent has moved, or its donor's radius; or nothing. */
static void test_cold(void **state)
{
	float donor[2] = {3, 5}, f;
	double d2 = 100;
	(void)state;
	clip_init(&c, 1);
	assert_true(isinf(clip_radius(&c, -1, 0)) && isinf(clip_radius(&c, 0, 0)));
	assert_true(clip_factors(&c, &d2, 0, &f) == 1 && f == 1);
	near(clip_radius(&c, -1, 2.5), 2.5);
	near(clip_radius(&c, 0, 2.5), 2.5);
	near(clip_factors(&c, &d2, 2.5, &f), 0.25);
	clip_inherit(&c, donor, 2);
	clip_cap(&c, 100);
	near(clip_radius(&c, -1, 2.5), 3);
	near(clip_radius(&c, 0, 0), 5);

	/* What enters is ¾ of τ: 2.25, seven times, is not yet a history; eight times is. */
	for (int i = 0; i < CLIP_WARM - 1; i++)
		near(once(10, 2.5), 0.3);
	near(clip_radius(&c, -1, 2.5), 3);
	near(once(10, 2.5), 0.3);
	near(clip_radius(&c, -1, 2.5), 5.625);
	near(clip_radius(&c, 0, 2.5), 9.375);
}

/* A donor says that anything may come: it counts for what our own steps bear out. */
static void test_inherited_is_capped(void **state)
{
	float donor[2] = {FLT_MAX, FLT_MAX}, f;
	double d2 = 1e12;
	(void)state;
	clip_init(&c, 1);
	clip_inherit(&c, donor, 2);
	clip_cap(&c, 2); /* a part of the parameters' length */
	near(clip_radius(&c, -1, 0), 2);
	near(clip_factors(&c, &d2, 0, &f), 2e-6);
	clip_cap(&c, CLIP_OWN_STEPS * 0.01);
	near(clip_radius(&c, -1, 0.01), 0.64);
	near(clip_radius(&c, -1, 1), 4); /* of our own path */
}

/* Of 1 … 8 the smaller four count: 1 + 4 + 9 + 16 = 30, over 4. */
static void test_trimmed(void **state)
{
	static const double shuffled[8] = {3, 8, 1, 6, 2, 7, 5, 4};
	(void)state;
	clip_init(&c, 1);
	for (int i = 0; i < 8; i++)
		once(shuffled[i], 100);
	near(clip_radius(&c, -1, 100), 2.5 * sqrt(30.0 / 4));
	near(clip_radius(&c, 0, 0), 2.5 * sqrt(30.0 / 4));
	/* The next is at 100, so it enters as ¾ of τ = 6.8465: 5.1349. Of 9 the smaller five count.
	 */
	near(once(100, 100), 0.0684653);
	near(c.all.distance[8], 5.1348978);
	near(clip_radius(&c, -1, 100), 2.5 * sqrt(55.0 / 5));
	/* Of 16 eight. */
	clip_init(&c, 1);
	double sum = 0;
	for (int i = 0; i < 16; i++) {
		once(10 + i, i < 8 ? 100 : 0);
		sum += i < 8 ? (10 + i) * (10 + i) : 0;
	}
	near(c.all.distance[15], 25);
	near(clip_radius(&c, -1, 0), 2.5 * sqrt(sum / 8));
}

/* 32 are remembered, not 33. */
static void test_window(void **state)
{
	(void)state;
	clip_init(&c, 1);
	fill(0.5, 1);
	fill(1, 31);
	near(clip_radius(&c, -1, 0), 2.5 * sqrt((15 + 0.25) / 16));
	fill(1, 1);
	near(clip_radius(&c, -1, 0), 2.5);
	fill(1, 1000);
	near(once(8, 0), 0.3125);
	near(c.all.distance[(c.all.n - 1) % CLIP_HISTORY], 1.875);
	near(clip_radius(&c, -1, 0), 2.5);
}

/* What one bad partner in three, 1,000 times as far as the others, can do to τ. */
static void test_bad_partner(void **state)
{
	struct rng r;
	(void)state;
	clip_init(&c, 1);
	fill(1, CLIP_WARM);
	rng_seed(&r, 1, 0);
	for (int i = 0; i < 30000; i++) {
		bool bad = i % 3 == 0;
		float f = once(bad ? 1000 : 0.9 + 0.2 * rng_f64(&r), 0);
		assert_true(bad ? f < 0.004f : f == 1);
	}
}

/* One that was there from the first step, when nothing could be clipped. */
static void test_bad_beginning(void **state)
{
	(void)state;
	clip_init(&c, 1);
	for (int i = 0; i < CLIP_WARM; i++)
		near(once(i % 3 == 0 ? 1000 : 1, 1e6), 1);
	for (int i = 0; i < 30000; i++) {
		bool bad = i % 2 == 0; /* and comes more often now */
		float f = once(bad ? 1000 : 1, 0);
		assert_true(bad ? f < 0.004f : f == 1);
	}
}

/* A flock that is farther apart from now on is followed, one that is nearer too. */
static void test_follows(void **state)
{
	int n = 0;
	(void)state;
	clip_init(&c, 1);
	fill(1, CLIP_HISTORY);
	near(once(10, 0), 0.25);
	while (once(10, 0) < 1)
		assert_true(++n < 3 * CLIP_HISTORY);
	fill(10, CLIP_HISTORY);
	near(clip_radius(&c, -1, 0), 25);
	fill(0.1, CLIP_HISTORY);
	near(clip_radius(&c, -1, 0), 0.25);
}

/* Partners that meet less often than before are farther apart, by what they have trained: that is
 * no attack, whatever the history says. A group may use its usual share of it. */
static void test_own_path(void **state)
{
	const double usual[2] = {16, 9}, rarer[2] = {1600, 900}, hidden[2] = {16, 900};
	float f[2];
	(void)state;
	clip_init(&c, 2);
	for (int i = 0; i < CLIP_HISTORY; i++)
		clip_enter(&c, usual, 7);
	near(clip_radius(&c, -1, 7), 12.5);
	near(clip_radius(&c, -1, 19), 12.5); /* 12 is less */
	near(clip_radius(&c, -1, 57), 50);
	near(clip_radius(&c, 0, 57), 40);
	near(clip_radius(&c, 1, 57), 30);
	near(clip_factors(&c, rarer, 7, f), 0.25);
	near(clip_factors(&c, rarer, 57.001, f), 1);
	near(clip_factors(&c, hidden, 22, f), 0.3); /* 2.5 · 3, or 0.6 · 15, of 30 */

	/* It is counted from the last exchange, and anew after a join. */
	clip_enter(&c, usual, 57);
	near(clip_radius(&c, -1, 57), 12.5);
	near(clip_radius(&c, -1, 20), 20);
}

/* A change that is nothing among all parameters, but much for the few of one group. */
static void test_small_group(void **state)
{
	const double usual[3] = {100, 1e-4, 1}, hidden[3] = {100, 1, 1}, far[3] = {40400, 1e-4, 1};
	float f[3], radius[4];
	(void)state;
	clip_init(&c, 3);
	for (int i = 0; i < CLIP_HISTORY; i++)
		clip_enter(&c, usual, 1e6);
	assert_true(clip_factors(&c, usual, 0, f) == 1);
	near(clip_factors(&c, hidden, 0, f), 0.025);
	assert_true(f[0] == 1 && f[2] == 1);
	near(f[1], 0.025);
	/* Far in all: no group may move by more than the whole. 2.5·√101.0001 of √40401.0001. */
	double overall = 2.5 * sqrt(101.0001 / 40401.0001);
	near(clip_factors(&c, far, 0, f), 25 / sqrt(40400));
	near(f[0], 25 / sqrt(40400));
	near(f[1], overall);
	near(f[2], overall);

	clip_export(&c, 0, radius);
	near(radius[0], 2.5 * sqrt(101.0001));
	near(radius[1], 25);
	near(radius[2], 0.025);
	near(radius[3], 2.5);
	clip_init(&c, 3);
	clip_inherit(&c, radius, 4);
	near(clip_factors(&c, hidden, 1e6, f), 0.025);
}

/* A group that nobody has ever changed: zeros are no history, or it would be shut for good. */
static void test_zeros(void **state)
{
	const double still[2] = {1, 0}, moves[2] = {1, 1e-6};
	float f[2];
	(void)state;
	clip_init(&c, 2);
	for (int i = 0; i < CLIP_HISTORY; i++) {
		assert_true(clip_factors(&c, still, 5, f) == 1);
		clip_enter(&c, still, 5);
	}
	assert_true(clip_factors(&c, moves, 5, f) == 1);
	near(clip_radius(&c, 1, 5), 5);
	clip_init(&c, 1);
	for (int i = 0; i < CLIP_HISTORY; i++)
		assert_true(once(0, 0) == 1);
	assert_true(once(3, 0) == 1);
}

/* What cannot come, and what a donor may say: nothing of it becomes a number that harms. */
static void test_not_numbers(void **state)
{
	static const double bad[] = {INFINITY, -INFINITY, NAN, -1};
	const float lies[5] = {INFINITY, NAN, -1, 7, 9};
	const double huge[3] = {DBL_MAX, DBL_MAX, 1}, most[3] = {1e90, 1e90, 1e90};
	float f[3], radius[4];
	(void)state;
	clip_init(&c, 3);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		double d2[3] = {1, bad[i], 1};
		clip_factors(&c, d2, 1e6, f);
		assert_true(f[1] == 0);
		assert_true(clip_factors(&c, d2, 0, f) == 0);
		clip_enter(&c, d2, 0);
	}
	assert_true(clip_factors(&c, huge, 0, f) == 0); /* their sum is not finite */
	clip_enter(&c, huge, 0);
	assert_int_equal(c.all.n, 0);
	assert_int_equal(c.group[0].n, 0);

	clip_cap(&c, 100);
	clip_inherit(&c, lies, 5); /* one more than there are groups */
	clip_export(&c, 0, radius);
	assert_true(radius[0] == 0 && radius[1] == 0 && radius[2] == 0);
	near(radius[3], 7);
	clip_inherit(&c, lies, 2); /* and fewer */
	assert_true(isinf(clip_radius(&c, 2, 0)));

	for (int i = 0; i < CLIP_HISTORY; i++)
		clip_enter(&c, most, 0);
	assert_true(clip_radius(&c, 0, 0) == FLT_MAX);
	assert_true(clip_radius(&c, 0, (double)INFINITY) == FLT_MAX);
	assert_true(clip_factors(&c, most, 0, f) > 0 && f[0] < 1);
	clip_init(&c, 3);
	assert_true(isinf(clip_radius(&c, 0, (double)NAN)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cold),
	        cmocka_unit_test(test_inherited_is_capped),
	        cmocka_unit_test(test_trimmed),
	        cmocka_unit_test(test_window),
	        cmocka_unit_test(test_bad_beginning),
	        cmocka_unit_test(test_bad_partner),
	        cmocka_unit_test(test_follows),
	        cmocka_unit_test(test_own_path),
	        cmocka_unit_test(test_small_group),
	        cmocka_unit_test(test_zeros),
	        cmocka_unit_test(test_not_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
