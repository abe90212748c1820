/* SPDX-License-Identifier: MIT */
/* Running statistics in an exchange: two agents that are near each other move by the same, no
 * difference moves a channel far, and no variance falls below 0. */
#include "agent/base/rng.h"
#include "model/graph/optim.h"
#include "model/graph/stats.h"
#include "tests/support.h"

#include <math.h>

#define UNITS 5
#define STATS (2 * 2 * UNITS) /* of two layers: means, then variances */

/* Two batch_norms with something that is trained around them. */
static struct graph *begin(struct arch *a, struct device **d)
{
	static const char *const kinds[] = {"batch_norm", "dense", "batch_norm", "dense"};
	const struct shape input = {1, {UNITS}};
	const struct device_config one = {.threads = 1};
	struct layer layers[4];
	struct graph *n;
	struct err e;

	for (int i = 0; i < 4; i++) {
		assert_int_equal(layer_init(&layers[i], kinds[i]), 0);
		if (i % 2 == 1)
			layers[i].units = UNITS;
	}
	assert_int_equal(arch_resolve(a, layers, 4, &input, UNITS, &e), 0);
	assert_int_equal(a->n_total - a->n_train, STATS);
	assert_int_equal(device_open(d, "plain", &one, NULL, &e), 0);
	assert_int_equal(graph_new(&n, a, *d, 4, &e), 0);
	return n;
}

static void end(struct graph *n, struct arch *a, struct device *d)
{
	graph_free(n);
	device_close(d);
	arch_close(a);
}

static bool is_mean(int i)
{
	return i % (2 * UNITS) < UNITS;
}

/* The place of its channel's variance. */
static int variance(int i)
{
	return is_mean(i) ? i + UNITS : i;
}

static void draw(struct rng *r, double spread, float *x)
{
	for (int i = 0; i < STATS; i++)
		x[i] = (float)(is_mean(i) ? spread * rng_normal(r) : 0.5 + 1.5 * rng_f64(r));
}

static void merge(struct graph *n, const float *x, const float *difference, float k, float *out)
{
	const size_t groups_end[] = {n->arch->n_decay, n->arch->n_train};
	const float of_groups[] = {1, k}; /* statistics: the smallest */
	const size_t bytes = STATS * sizeof *x;
	float all[256] = {0};
	struct optim o = {
	        .net = n, .merge = {.difference = all, .end = groups_end, .k = of_groups, .n = 2}};
	struct err e;

	assert_true(n->arch->n_total <= 256);
	memcpy(all + n->arch->n_train, difference, bytes);
	n->dev->backend->upload(n->dev, n->params + n->arch->n_train, x, bytes);
	assert_int_equal(optim_add(&o, &e), 0);
	n->dev->backend->download(n->dev, out, n->params + n->arch->n_train, bytes);
}

/* Means up to 2 σ and variances up to 4 times apart: the sum of both stays, exactly. */
static void test_near_agents_move_alike(void **state)
{
	struct device *d;
	struct arch a;
	struct graph *n = begin(&a, &d);
	struct rng r;

	(void)state;
	rng_seed(&r, 1, 1);
	for (int round = 0; round < 200; round++) {
		float x[STATS], y[STATS], of_x[STATS], of_y[STATS], got[STATS];

		draw(&r, 0.2, x);
		draw(&r, 0.2, y);
		for (int i = 0; i < STATS; i++) {
			of_x[i] = y[i] - x[i];
			of_y[i] = x[i] - y[i];
		}
		merge(n, x, of_x, 0.5f, got);
		for (int i = 0; i < STATS; i++)
			assert_true(got[i] == x[i] + 0.5f * of_x[i]);
		merge(n, y, of_y, 0.5f, got);
		for (int i = 0; i < STATS; i++)
			assert_true(got[i] == y[i] - 0.5f * of_x[i]);
	}
	end(n, &a, d);
}

static void assert_bounded(const float *x, const float *got)
{
	for (int i = 0; i < STATS; i++) {
		const double var = fmax((double)x[variance(i)], 0), s2 = var + 1e-5;
		const double a = (double)got[i];

		if (is_mean(i) && fabs(a - (double)x[i]) > 1.0001 * sqrt(s2))
			fail_msg("mean %d: from %g to %g, σ² %g", i, (double)x[i], a, s2);
		if (!is_mean(i) && !(a >= 0.2499 * var && a <= 4.0001 * s2))
			fail_msg("variance %d: from %g to %g", i, (double)x[i], a);
	}
}

static void test_no_difference_moves_far(void **state)
{
	static const float most[] = {3, 1e3f, 1e38f};
	struct device *d;
	struct arch a;
	struct graph *n = begin(&a, &d);
	struct rng r;

	(void)state;
	rng_seed(&r, 2, 1);
	for (int round = 0; round < 300; round++) {
		float x[STATS], difference[STATS], got[STATS];

		draw(&r, 5, x);
		x[UNITS] = 0;         /* a channel that is always the same */
		x[UNITS + 1] = -0.5f; /* of a checkpoint from when that could be */
		for (int i = 0; i < STATS; i++)
			difference[i] = most[round % 3] * (float)(2 * rng_f64(&r) - 1);
		merge(n, x, difference, 0.5f, got);
		assert_bounded(x, got);
	}
	end(n, &a, d);
}

/* What a peer said was true when it said so: ours has fallen since. */
static void test_delayed_difference(void **state)
{
	float x[STATS], late[STATS], got[STATS];
	struct device *d;
	struct arch a;
	struct graph *n = begin(&a, &d);

	(void)state;
	for (int i = 0; i < STATS; i++) {
		x[i] = is_mean(i) ? 0 : 0.1f;
		late[i] = is_mean(i) ? 0 : -0.9f;
	}
	merge(n, x, late, 0.5f, got);
	for (int i = 0; i < STATS; i++)
		assert_true(is_mean(i) ? got[i] == 0 : got[i] > 0);
	end(n, &a, d);
}

static void test_parts(void **state)
{
	struct device *d;
	struct arch a;
	struct graph *n = begin(&a, &d);
	float x[STATS], difference[STATS], whole[STATS], parts[STATS];
	struct rng r;
	struct err e;

	(void)state;
	rng_seed(&r, 3, 1);
	draw(&r, 1, x);
	for (int i = 0; i < STATS; i++)
		difference[i] = (float)rng_normal(&r) * 4;
	merge(n, x, difference, 0.5f, whole);
	for (size_t cut = 0; cut <= STATS; cut++) {
		const size_t from = a.n_train;

		n->dev->backend->upload(n->dev, n->params + from, x, sizeof x);
		assert_int_equal(stats_add(n, difference, from, cut, 0.5f, &e), 0);
		assert_int_equal(
		        stats_add(n, difference + cut, from + cut, STATS - cut, 0.5f, &e), 0);
		n->dev->backend->download(n->dev, parts, n->params + from, sizeof parts);
		assert_memory_equal(parts, whole, sizeof parts);
	}
	end(n, &a, d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_near_agents_move_alike),
	        cmocka_unit_test(test_no_difference_moves_far),
	        cmocka_unit_test(test_delayed_difference),
	        cmocka_unit_test(test_parts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
