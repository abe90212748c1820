/* SPDX-License-Identifier: MIT */
/* sim_flock [--seeds N] [--first S] [--seed S] [--only FAULT] [--agents N] [--reach]: whole agents
 * by the hundred; a seed that fails is replayed with its trace by --seed. */
#include "tests/sim/flock/flock_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	uint64_t first = 1, seeds = 100;
	struct fsim_setup s = {.only = -1};
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *v = argv[i + 1];
		if (!strcmp(argv[i], "--seeds"))
			seeds = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i], "--first"))
			first = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i], "--agents"))
			s.n = atoi(v);
		else if (!strcmp(argv[i], "--seed")) {
			first = strtoull(v, NULL, 10);
			seeds = 1;
			s.verbose = true;
		} else if (!strcmp(argv[i], "--only")) {
			for (int k = 0; k < FSIM_FAULT_KINDS; k++)
				if (!strcmp(fsim_fault_name(k), v))
					s.only = k;
		}
	}
	uint64_t failures = 0, steps = 0, ms = 0, exchanges = 0, adoptions = 0, one = 0,
	         crashes = 0;
	for (uint64_t k = first; k < first + seeds; k++) {
		s.seed = k;
		struct fsim_result r = fsim_seed(&s);
		steps += r.steps, ms += r.virtual_ms, exchanges += r.exchanges;
		adoptions += r.adoptions, one += r.one_sided, crashes += r.crashes;
		if (r.failed) {
			failures++;
			printf("%s\n", r.failure);
		}
	}
	printf("%llu seeds, %llu failures, %llu steps, %.0f s virtual, %llu exchanges (%llu "
	       "one-sided), %llu adoptions, %llu deaths\n",
	        (unsigned long long)seeds, (unsigned long long)failures, (unsigned long long)steps,
	        (double)ms / 1000, (unsigned long long)exchanges, (unsigned long long)one,
	        (unsigned long long)adoptions, (unsigned long long)crashes);
	return failures > 0;
}
