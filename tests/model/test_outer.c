/* SPDX-License-Identifier: MIT */
/* Optimizers around the exchanges: the sum that pairs keep, that the momentum which is allowed is
 * stable on random pairs, and that QGM's short form is its definition. */
#include "agent/base/rng.h"
#include "gossip/policy/outer.h"
#include "model/graph/outer.h"
#include "tests/support.h"

#include <math.h>

#define AGENTS 16
#define N 64

struct fleet {
	float x[AGENTS][N], phi[AGENTS][N], o[AGENTS][N];
	struct rng rng;
};

static void begin(struct fleet *f, uint64_t seed)
{
	rng_seed(&f->rng, seed, 1);
	for (int i = 0; i < AGENTS; i++)
		for (int k = 0; k < N; k++) {
			f->x[i][k] = f->phi[i][k] = (float)rng_normal(&f->rng);
			f->o[i][k] = 0;
		}
}

static double sum(const struct fleet *f)
{
	double s = 0;
	for (int i = 0; i < AGENTS; i++)
		for (int k = 0; k < N; k++)
			s += (double)f->x[i][k];
	return s;
}

static double spread(const struct fleet *f)
{
	double all = 0;
	for (int k = 0; k < N; k++) {
		double mean = 0;
		for (int i = 0; i < AGENTS; i++)
			mean += (double)f->x[i][k] / AGENTS;
		for (int i = 0; i < AGENTS; i++)
			all += ((double)f->x[i][k] - mean) * ((double)f->x[i][k] - mean);
	}
	return all / AGENTS;
}

/* The average alone; then what NoLoCo adds, for both. */
static void pair(struct fleet *f, float alpha, float omega, double *change)
{
	const uint32_t i = (uint32_t)rng_below(&f->rng, AGENTS);
	const uint32_t j = (i + 1 + (uint32_t)rng_below(&f->rng, AGENTS - 1)) % AGENTS;
	const double before = sum(f);
	for (int k = 0; k < N; k++) {
		const float d = 0.5f * (f->x[j][k] - f->x[i][k]);
		f->x[i][k] += d;
		f->x[j][k] -= d;
	}
	*change = fmax(*change, fabs(sum(f) - before));
	for (int s = 0; s < 2; s++) {
		const uint32_t a = s ? j : i;
		float c[N];
		memcpy(c, f->x[a], sizeof c);
		outer_noloco(c, f->phi[a], f->o[a], N, alpha, omega);
		outer_follow(f->x[a], c, N, 1);
	}
}

/* Mean factor of Ξ² for each round of AGENTS/2 pairs. */
static double factor(float alpha, float omega)
{
	double all = 0, change = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fleet f;
		begin(&f, seed);
		const double was = spread(&f);
		for (int k = 0; k < 30 * AGENTS / 2; k++)
			pair(&f, alpha, omega, &change);
		all += spread(&f) / was / 20;
	}
	return pow(all, 1.0 / 30);
}

static void test_stable_on_random_pairs(void **state)
{
	(void)state;
	const double plain = factor(0, 1), chosen = factor(0.5f, 0.7f), most = factor(0.7f, 0.7f);
	if (!(plain < 0.65 && chosen < 0.95 && most < 1))
		fail_msg("factors %g, %g, %g", plain, chosen, most);
	assert_true(factor(0.9f, 1) > 1); /* what the bound is for */
}

/* With α = 0 and ω = 1 it is averaging, to the bit; and with any, pairs keep the sum of their p. */
static void test_plain_average(void **state)
{
	struct fleet f;
	float alone[AGENTS][N];
	double change = 0;
	(void)state;
	begin(&f, 5);
	for (int round = 0; round < 50; round++) {
		struct fleet g = f;
		for (int i = 0; i < AGENTS; i++)
			memset(g.o[i], 0, sizeof g.o[i]);
		pair(&g, 0, 1, &change);
		const uint32_t i = (uint32_t)rng_below(&f.rng, AGENTS);
		const uint32_t j = (i + 1 + (uint32_t)rng_below(&f.rng, AGENTS - 1)) % AGENTS;
		memcpy(alone, f.x, sizeof alone);
		for (int k = 0; k < N; k++) {
			const float d = 0.5f * (alone[j][k] - alone[i][k]);
			alone[i][k] += d;
			alone[j][k] -= d;
		}
		assert_memory_equal(alone, g.x, sizeof alone);
		pair(&f, 0.5f, 0.7f, &change);
	}
	assert_true(change < 1e-4); /* of 1,024 floats of about 1 */
}

/* φ is x after each outer step, and o how far it went. */
static void test_phi(void **state)
{
	struct fleet f;
	double change = 0;
	(void)state;
	begin(&f, 6);
	for (int k = 0; k < 40; k++) {
		struct fleet was = f;
		pair(&f, 0.5f, 0.7f, &change);
		for (int i = 0; i < AGENTS; i++)
			for (int p = 0; p < N; p++) {
				assert_true(f.x[i][p] == f.phi[i][p]);
				if (f.phi[i][p] != was.phi[i][p])
					assert_true(fabsf(f.phi[i][p] - was.phi[i][p] - f.o[i][p]) <
					            1e-5f);
			}
	}
}

static void test_plan(void **state)
{
	(void)state;
	assert_false(outer_plan(0.5, 7, 0, 1000).step);
	assert_true(outer_plan(0.5, 8, 0, 1000).step);
	assert_true(outer_plan(0.5, 8, 949, 1000).momentum == 0.5);
	assert_true(outer_plan(0.5, 8, 950, 1000).momentum == 0);
	assert_true(outer_plan(0.5, 8, 999, 1000).step);
	assert_false(outer_plan(0.5, 8, 1000, 1000).step); /* a merge round */
	assert_false(outer_plan(0.5, 900, 2000, 1000).step);
}

/* Step and merge keep m as the definition has it: the movement from one step to the next. */
static void test_qgm(void **state)
{
	const struct optim_args a = {.lr = 0.1f,
	        .momentum = 0.9f,
	        .weight_decay = 0.01f,
	        .grad_scale = 0.5f,
	        .nesterov = true};
	float w[N], m[N] = {0}, g[N], d[N];
	double x[N], q[N] = {0};
	struct rng r;
	(void)state;
	rng_seed(&r, 7, 1);
	for (int k = 0; k < N; k++)
		x[k] = (double)(w[k] = (float)rng_normal(&r));
	for (int step = 0; step < 30; step++) {
		for (int k = 0; k < N; k++) {
			g[k] = (float)rng_normal(&r);
			d[k] = (float)rng_normal(&r);
		}
		const bool merges = step % 3 == 0;
		outer_qgm_step(w, m, g, N, &a, 0.2f);
		if (merges) {
			outer_follow(w, d, N, 0.25f);
			outer_qgm_merged(m, d, N, 0.25f, 0.9f, 0.2f);
		}
		for (int k = 0; k < N; k++) {
			const double was = x[k], of = 0.5 * (double)g[k] + 0.01 * x[k];
			x[k] -= 0.1 * (of + 0.9 * (0.9 * q[k] + of));
			x[k] += merges ? 0.25 * (double)d[k] : 0;
			q[k] = 0.9 * q[k] + 0.1 * (was - x[k]) / 0.2;
			assert_true(fabs(x[k] - (double)w[k]) < 1e-4);
			assert_true(fabs(q[k] - (double)m[k]) < 1e-4);
		}
	}
	assert_true(outer_qgm_rate(0.05, 0.1) == 0.05 && outer_qgm_rate(0, 0.1) == 0.02 * 0.1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_stable_on_random_pairs),
	        cmocka_unit_test(test_plain_average),
	        cmocka_unit_test(test_phi),
	        cmocka_unit_test(test_plan),
	        cmocka_unit_test(test_qgm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
