/* SPDX-License-Identifier: MIT */
/* sim_membership: the simulator's command line.
 *
 *     sim_membership [--seeds N] [--first N]    that many seeds, one line for each that fails
 *     sim_membership --seed N [--verbose]       one seed again, with all that happened
 *     sim_membership --measure [--processes N]  the table and bars of make sim-membership
 *
 * --nodes N and --fault NAME override what a seed draws; --stop ends with the first that fails. */
#include "tests/sim/sim.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
	fprintf(stderr,
	        "usage: sim_membership [--seeds N] [--first N] [--seed N] [--nodes N]\n"
	        "       [--fault NAME] [--verbose] [--stop] [--measure] [--processes N]\nfaults:");
	for (int i = 0; i < FAULT_KINDS; i++)
		fprintf(stderr, " %s", fault_name(i));
	fprintf(stderr, "\n");
	return 2;
}

static int run_seeds(struct seed_options o, uint64_t first, uint64_t n, bool stop)
{
	uint64_t failed = 0, steps = 0, slowest = 0, forged = 0;
	for (uint64_t i = 0; i < n && !(stop && failed); i++) {
		o.seed = first + i;
		struct seed_result r = seed_run(&o);
		steps += r.steps;
		forged += r.forged;
		if (!r.failed && r.healed_ms > slowest)
			slowest = r.healed_ms;
		if (!r.failed)
			continue;
		failed++;
		printf("seed %llu fails with %u nodes, %s\n    tests/sim/sim_membership --seed "
		       "%llu",
		        (unsigned long long)o.seed, r.nodes, r.failure, (unsigned long long)o.seed);
		if (o.nodes)
			printf(" --nodes %u", o.nodes);
		if (o.only >= 0)
			printf(" --fault %s", fault_name(o.only));
		printf(" --verbose\n");
	}
	printf("%llu seeds, %llu failed; %llu steps, %llu forgeries refused, equal views after at "
	       "most %.1f s\n",
	        (unsigned long long)n, (unsigned long long)failed, (unsigned long long)steps,
	        (unsigned long long)forged, (double)slowest / 1000);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {{"seeds", required_argument, NULL, 'n'},
	        {"first", required_argument, NULL, 'f'}, {"seed", required_argument, NULL, 's'},
	        {"nodes", required_argument, NULL, 'c'}, {"fault", required_argument, NULL, 'k'},
	        {"verbose", no_argument, NULL, 'v'}, {"stop", no_argument, NULL, 'x'},
	        {"measure", no_argument, NULL, 'm'}, {"processes", required_argument, NULL, 'p'},
	        {NULL, 0, NULL, 0}};
	struct seed_options o = {.only = -1};
	uint64_t first = 1, n = 1000;
	int opt, processes = 1;
	bool measure = false, stop = false;
	while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (opt) {
		case 'n':
			n = strtoull(optarg, NULL, 10);
			break;
		case 'f':
			first = strtoull(optarg, NULL, 10);
			break;
		case 's':
			first = strtoull(optarg, NULL, 10);
			n = 1;
			break;
		case 'c':
			o.nodes = (uint32_t)strtoul(optarg, NULL, 10);
			if (o.nodes < 2 || o.nodes > 1024)
				return usage();
			break;
		case 'k':
			for (o.only = 0; o.only < FAULT_KINDS; o.only++)
				if (strcmp(optarg, fault_name(o.only)) == 0)
					break;
			if (o.only == FAULT_KINDS)
				return usage();
			break;
		case 'v':
			o.verbose = true;
			break;
		case 'x':
			stop = true;
			break;
		case 'm':
			measure = true;
			break;
		case 'p':
			processes = atoi(optarg);
			break;
		default:
			return usage();
		}
	}
	if (optind < argc)
		return usage();
	return measure ? !measure_all(processes) : run_seeds(o, first, n, stop);
}
