/* SPDX-License-Identifier: MIT */
/* How fast the simulator is with the agent's own core, and whether a run repeats to the bit:
 *
 *     sim_speed DATA 64x500     64 agents, 500 steps each of the mlp preset, batch 32
 *     sim_speed DATA 1000       1,000 agents, logistic regression, 200 steps of 0.5 s each
 *     sim_speed DATA repeat     16 agents with a crash and a late joiner: 1 thread, 2, and 2 again
 *
 * DATA is a folder with Fashion-MNIST. A line "bar …" for each figure. */
#include "agent/base/err.h"
#include "agent/simulate/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINEAR "{\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 10}]}"
#define SAMPLES 60000.0 /* of the training set */

static struct sim_run run(const char *data, const char *model, const char *more, int threads)
{
	char text[2000];
	struct config_problems p;
	struct scenario s;
	struct sim *sim;
	struct sim_run r;
	struct err e;
	int status;
	snprintf(text, sizeof text,
	        "{\"name\": \"bench\", \"model\": %s, \"data\": {\"path\": \"%s\"}, "
	        "\"method\": {\"kind\": \"dunlin\"}, %s}",
	        model, data, more);
	config_problems_init(&p, "bench");
	scenario_defaults(&s);
	if (scenario_read(&s, text, strlen(text), &p) || scenario_check(&s, &p)) {
		fprintf(stderr, "sim_speed: the scenario is not one\n");
		exit(99);
	}
	const struct sim_options o = {.seed = 1, .threads = threads};
	if (sim_new(&sim, &s, &o, &status, &e) || sim_run(sim, &r, &status, &e)) {
		fprintf(stderr, "sim_speed: %s\n", e.msg);
		exit(99);
	}
	sim_free(sim);
	scenario_close(&s);
	const struct sim_point *l = &r.points[r.n_points - 1];
	printf("%u agents, %d threads: %.1f s virtual in %.1f s, %llu samples, %llu exchanges, "
	       "%.1f MB, accuracy %.4f\n",
	        r.agents, threads, l->time_s, r.real_s, (unsigned long long)l->samples,
	        (unsigned long long)l->exchanges, (double)l->bytes / 1e6, l->accuracy);
	fflush(stdout);
	return r;
}

static uint64_t bits_that_differ(const struct sim_run *a, const struct sim_run *b)
{
	uint64_t n = 0;
	const uint8_t *x = (const uint8_t *)a->points, *y = (const uint8_t *)b->points;
	if (a->n_points != b->n_points)
		return UINT32_MAX;
	for (size_t i = 0; i < (size_t)a->n_points * sizeof *a->points; i++)
		n += (uint64_t)__builtin_popcount(x[i] ^ y[i]);
	for (size_t i = 0; i < (size_t)a->agents * a->agents; i++)
		n += (uint64_t)__builtin_popcount(a->met[i] ^ b->met[i]);
	return n;
}

static void repeats(const char *data)
{
	const char *what =
	        "\"agents\": {\"count\": 16, \"absent\": 1, \"step_ms\": 20}, \"train\": "
	        "{\"batch\": 32, \"epochs\": 0.6}, \"events\": [{\"at_s\": 2, \"what\": "
	        "\"crash\", \"agents\": [3]}, {\"at_s\": 1, \"what\": \"join\", \"agents\": "
	        "[15]}]";
	struct sim_run one = run(data, LINEAR, what, 1), two = run(data, LINEAR, what, 2);
	struct sim_run again = run(data, LINEAR, what, 2);
	uint64_t bits = bits_that_differ(&one, &two) + bits_that_differ(&two, &again);
	printf("bar sim_repeat_diff %llu <= 0 %s\n", (unsigned long long)bits,
	        bits == 0 ? "ok" : "short");
	sim_run_close(&one);
	sim_run_close(&two);
	sim_run_close(&again);
}

static void timed(const char *data, bool large)
{
	char more[400];
	double samples = large ? 1000 * 200 * 32.0 : 64 * 500 * 32.0;
	snprintf(more, sizeof more,
	        "\"agents\": {\"count\": %d, \"step_ms\": %d}, \"train\": {\"batch\": 32, "
	        "\"epochs\": %.9g}, \"record\": {\"points\": 5, \"test_samples\": 1000}",
	        large ? 1000 : 64, large ? 500 : 100, samples / SAMPLES);
	struct sim_run r = run(data, large ? LINEAR : "\"mlp\"", more, 2);
	double speedup = r.points[r.n_points - 1].time_s / r.real_s;
	if (large)
		printf("bar sim_1000_speedup %.3f >= 1 %s\n", speedup,
		        speedup >= 1 ? "ok" : "short");
	else
		printf("bar sim_64x500_s %.1f <= 120 %s\n", r.real_s,
		        r.real_s <= 120 ? "ok" : "short");
	sim_run_close(&r);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[2], "repeat") == 0)
		repeats(argv[1]);
	else if (argc == 3 && (strcmp(argv[2], "1000") == 0 || strcmp(argv[2], "64x500") == 0))
		timed(argv[1], strcmp(argv[2], "1000") == 0);
	else {
		fprintf(stderr, "usage: sim_speed DATA 64x500|1000|repeat\n");
		return 2;
	}
	return 0;
}
