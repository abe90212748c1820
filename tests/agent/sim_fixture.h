/* SPDX-License-Identifier: MIT */
/* Results of simulations that never ran, with round numbers. */
#ifndef DUNLIN_TESTS_AGENT_SIM_FIXTURE_H
#define DUNLIN_TESTS_AGENT_SIM_FIXTURE_H

#include "agent/simulate/result.h"
#include "tests/support.h"

#include <math.h>

#define FIXTURE_POINTS 21

/* Its accuracy rises to `best` as fast as `rate` says; seeds differ by a hundredth. */
static inline void fixture_run(
        struct sim_run *r, uint64_t seed, uint32_t agents, double best, double rate)
{
	*r = (struct sim_run){.seed = seed,
	        .complete = true,
	        .agents = agents,
	        .parameters = 52650,
	        .n_points = FIXTURE_POINTS,
	        .target_s = 40 * rate,
	        .target_bytes = (uint64_t)(4e8 * rate),
	        .synchronised = 0.125,
	        .compute_s = 90,
	        .wait_s = 10,
	        .fp32_s = NAN,
	        .fp32_bytes = NAN,
	        .bf16_s = NAN,
	        .bf16_bytes = NAN};
	r->points = calloc(FIXTURE_POINTS, sizeof *r->points);
	assert_non_null(r->points);
	for (int k = 0; k < FIXTURE_POINTS; k++) {
		double part = (double)k / (FIXTURE_POINTS - 1);
		r->points[k] = (struct sim_point){.time_s = 600 * part * rate,
		        .samples = (uint64_t)(360000 * part),
		        .steps = (uint64_t)(11250 * part),
		        .bytes = (uint64_t)(4e9 * part * rate * rate),
		        .exchanges = (uint64_t)(2000 * part),
		        .live = agents - (part > 0.5),
		        .train_loss = k ? 0.3 + 2 * exp(-6 * part) : NAN,
		        .loss = 0.4 + 1.9 * exp(-6 * part),
		        .accuracy = best - (best - 0.1) * exp(-8 * part) + 0.01 * (double)seed,
		        .xi = 0.3 * part * exp(-2 * part),
		        .xi_target = 0.05};
	}
	r->met = calloc((size_t)agents * agents, sizeof *r->met);
	assert_non_null(r->met);
	for (uint32_t i = 0; i < agents; i++)
		for (uint32_t k = 0; k < agents; k++)
			r->met[i * agents + k] = i == k ? 0 : (i * 7 + k * 13) % 11;
	r->membership = calloc(6, sizeof *r->membership);
	assert_non_null(r->membership);
	const struct sim_membership list[] = {{60, 1, SIM_PAUSED, agents},
	        {120, 1, SIM_RESUMED, agents}, {200, 2, SIM_CRASHED, agents - 1},
	        {300, 0, SIM_PARTED, agents - 1}, {400, 0, SIM_HEALED, agents - 1},
	        {450, 3, SIM_SLOWED, agents - 1}};
	memcpy(r->membership, list, sizeof list);
	r->n_membership = 6;
}

static inline void fixture_result(struct sim_result *r, const char *name, const char *method,
        double lr, int seeds, double best, double rate)
{
	memset(r, 0, sizeof *r);
	scenario_defaults(&r->scenario);
	snprintf(r->name, sizeof r->name, "%s", name);
	snprintf(r->scenario.name, sizeof r->scenario.name, "%s", name);
	snprintf(r->method, sizeof r->method, "%s", method);
	r->scenario.config.train.optim.lr = lr;
	r->scenario.agents.count = 16;
	r->runs = calloc((size_t)seeds, sizeof *r->runs);
	assert_non_null(r->runs);
	r->n_runs = seeds;
	for (int i = 0; i < seeds; i++)
		fixture_run(&r->runs[i], (uint64_t)i + 1, 16, best, rate);
}

#endif
