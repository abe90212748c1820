/* SPDX-License-Identifier: MIT */
/* The significance gate, as it is unless told otherwise, on synthetic gradients: ‖g‖² is log-normal
 * with log-sd 0.5, which is what a batch of 32 gives. How often does it fire while nothing changes,
 * and how many steps after the norm has changed by a quarter? Seconds, and no training. */
#include "gossip/policy/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_SD 0.5
#define CHANGE 1.25 /* of the norm: its square changes by 1.5625 */
#define BATCH 32
#define STEPS 1000000
#define SEEDS 1001
#define SETTLE 500
#define LATE 1000 /* what is not noticed by then counts as this */

static struct gate *gate;
static struct rng rng;
static uint64_t samples;

static void begin(uint64_t seed)
{
	const struct gate_config c = {.mode = GATE_SIGNIFICANCE,
	        .delta = 0.35,
	        .smooth = 0.16,
	        .slow = 0.02,
	        .warm = 25,
	        .step_samples = BATCH};
	struct err e;
	if (gate_init(gate, &c, 0, &e) < 0)
		abort();
	rng_seed(&rng, 16, seed);
	samples = 0;
}

static bool fires(double scale)
{
	samples += BATCH;
	const struct gate_step s = {
	        .samples = samples, .norm2 = scale * scale * exp(LOG_SD * rng_normal(&rng))};
	return gate_step(gate, &s).reason == REASON_SIGNIFICANT;
}

static int steps_until(uint64_t seed, double scale)
{
	begin(seed);
	for (int i = 0; i < SETTLE; i++)
		fires(1);
	for (int i = 1; i < LATE; i++)
		if (fires(scale))
			return i;
	return LATE;
}

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int median_after(double scale)
{
	static int steps[SEEDS];
	int within = 0;
	for (int i = 0; i < SEEDS; i++) {
		steps[i] = steps_until((uint64_t)i, scale);
		within += steps[i] <= 30;
	}
	qsort(steps, SEEDS, sizeof *steps, ascending);
	printf("the norm changes by %.2f: fires after %d steps (median of %d seeds), within 30 in "
	       "%.1f %%\n",
	        scale, steps[SEEDS / 2], SEEDS, 100.0 * within / SEEDS);
	return steps[SEEDS / 2];
}

int main(void)
{
	int fired = 0;
	gate = malloc(gate_size());
	if (!gate)
		abort();
	begin(0);
	for (int i = 0; i < STEPS; i++)
		fired += fires(1);
	double pct = ceil(10000.0 * fired / STEPS) / 100;
	int up = median_after(CHANGE), down = median_after(1 / CHANGE),
	    most = up > down ? up : down;
	printf("bar gate_noise_fires_pct %.2f <= 1 %s\n", pct, pct <= 1 ? "ok" : "short");
	printf("bar gate_after_change_steps %d <= 30 %s\n", most, most <= 30 ? "ok" : "short");
	free(gate);
	return 0;
}
