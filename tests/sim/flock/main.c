/* SPDX-License-Identifier: MIT */
/* sim_flock: whole agents by the hundred. A seed that fails prints the command that replays it with
 * its trace. --processes shares the seeds out, --stop ends at the first failure, --reach prints
 * what the seeds reached (phase × event × fault), --still runs them without training: the sum over
 * all agents must stay, --lattice lets parameters travel modulo one, --kept runs only those that
 * were kept for a fault that they found, --byzantine lets some lie, --pace slow or mixed sets how
 * long steps take. */
#include "tests/sim/flock/byzantine.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES_MAX 64

/* What one process has seen. */
struct share {
	struct fsim_result sum;
	struct fsim_reach reach;
	uint64_t seeds, failures;
};

struct options {
	struct fsim_setup setup;
	uint64_t first, seeds;
	int processes;
	bool stop, reach, kept;
};

static const char *const paces[PACES] = {"drawn", "slow", "mixed"};

static int usage(void)
{
	fprintf(stderr,
	        "usage: sim_flock [--seeds N] [--first S] [--seed S] [--only FAULT]\n"
	        "    [--agents N] [--still] [--lattice] [--byzantine] [--lie LIE] [--stop]\n"
	        "    [--reach] [--kept] [--pace drawn|slow|mixed] [--processes N]\n");
	return 2;
}

static void print_failure(const struct options *o, const struct fsim_result *r)
{
	printf("%s\n    tests/sim/sim_flock --seed %llu", r->failure, (unsigned long long)r->seed);
	if (o->setup.n > 0)
		printf(" --agents %d", o->setup.n);
	if (o->setup.only >= 0)
		printf(" --only %s", fsim_fault_name(o->setup.only));
	printf("%s", o->setup.byzantine ? " --byzantine" : "");
	if (o->setup.lie >= 0)
		printf(" --lie %s", byz_lie_name(o->setup.lie));
	if (o->setup.pace)
		printf(" --pace %s", paces[o->setup.pace]);
	printf("%s%s\n", o->setup.lattice ? " --lattice" : "", o->setup.still ? " --still" : "");
	fflush(stdout);
}

static void run_share(const struct options *o, int number, struct share *s)
{
	struct fsim_setup setup = o->setup;
	for (uint64_t k = (uint64_t)number; k < o->seeds; k += (uint64_t)o->processes) {
		setup.seed = o->first + k;
		if (o->kept)
			setup = fsim_kept[k];
		struct fsim_result r = fsim_seed(&setup);
		fsim_result_add(&s->sum, &r);
		s->seeds++;
		s->failures += r.failed;
		if (r.failed)
			print_failure(o, &r);
		if (r.failed && o->stop)
			break;
	}
	s->reach = fsim_reached;
}

/* A process that dies has failed, too: its seeds are missing from the sum. */
static bool run_all(const struct options *o, struct share *share)
{
	bool died = false;
	if (o->processes == 1) {
		run_share(o, 0, &share[0]);
		return true;
	}
	for (int i = 0; i < o->processes; i++)
		if (fork() == 0) {
			run_share(o, i, &share[i]);
			_exit(0);
		}
	for (int status; wait(&status) > 0;)
		died = died || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	return !died;
}

static void add_share(struct share *sum, const struct share *s)
{
	uint64_t *to = &sum->reach.by[0][0][0];
	const uint64_t *from = &s->reach.by[0][0][0];
	for (size_t i = 0; i < sizeof s->reach / sizeof *from; i++)
		to[i] += from[i];
	fsim_result_add(&sum->sum, &s->sum);
	sum->seeds += s->seeds;
	sum->failures += s->failures;
}

static void print_reach(const struct fsim_reach *r)
{
	printf("events by phase; of them under how many of the %d faults, and without any\n",
	        FSIM_FAULT_KINDS);
	for (int e = 0; e <= FLOCK_EVENT_WISH; e++) {
		printf("%-12s", fsim_event_name(e));
		for (int p = 0; p < FLOCK_PHASES; p++) {
			int under = 0;
			uint64_t most = r->by[p][e][FSIM_FAULT_KINDS];
			for (int f = 0; f < FSIM_FAULT_KINDS; f++) {
				under += r->by[p][e][f] > 0;
				most = r->by[p][e][f] > most ? r->by[p][e][f] : most;
			}
			printf(" %8s %2d/%llu", most ? flock_phase_text((enum flock_phase)p) : "-",
			        under, (unsigned long long)r->by[p][e][FSIM_FAULT_KINDS]);
		}
		printf("\n");
	}
	printf("never occurred (phase, event: faults)\n");
	for (int p = 0; p < FLOCK_PHASES; p++)
		for (int e = 0; e <= FLOCK_EVENT_WISH; e++) {
			int missing = 0;
			for (int f = 0; f <= FSIM_FAULT_KINDS; f++)
				missing += r->by[p][e][f] == 0;
			if (missing == 0)
				continue;
			printf("  %s, %s:", flock_phase_text((enum flock_phase)p),
			        fsim_event_name(e));
			for (int f = 0; f <= FSIM_FAULT_KINDS && missing <= FSIM_FAULT_KINDS; f++)
				if (r->by[p][e][f] == 0)
					printf(" %s", fsim_fault_name(f));
			printf("%s\n", missing > FSIM_FAULT_KINDS ? " at all" : "");
		}
}

static void print_lies(const struct fsim_result *r)
{
	printf("lie             times told\n");
	for (int k = 0; k < BYZ_LIES; k++)
		if (r->lied[k] > 0)
			printf("%-14s %11llu\n", byz_lie_name(k), (unsigned long long)r->lied[k]);
	printf("never told:");
	for (int k = 0; k < BYZ_LIES; k++)
		if (r->lied[k] == 0)
			printf(" %s", byz_lie_name(k));
	printf("\n%llu states of liars adopted; honest results are at most %.2f of the run's way "
	       "off\n",
	        (unsigned long long)r->lies_adopted, r->worst_off);
}

static int find_lie(const char *name)
{
	for (int k = 0; k < BYZ_LIES; k++)
		if (!strcmp(byz_lie_name(k), name))
			return k;
	return -1;
}

static uint8_t find_pace(const char *name)
{
	uint8_t k = 0;
	while (k < PACES && strcmp(paces[k], name) != 0)
		k++;
	return k;
}

static int find_fault(const char *name)
{
	for (int k = 0; k < FSIM_FAULT_KINDS; k++)
		if (!strcmp(fsim_fault_name(k), name))
			return k;
	return -1;
}

static bool parse(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {{"seeds", required_argument, NULL, 'n'},
	        {"first", required_argument, NULL, 'f'}, {"seed", required_argument, NULL, 's'},
	        {"only", required_argument, NULL, 'o'}, {"agents", required_argument, NULL, 'a'},
	        {"processes", required_argument, NULL, 'p'}, {"still", no_argument, NULL, 'l'},
	        {"lattice", no_argument, NULL, 'm'}, {"stop", no_argument, NULL, 'x'},
	        {"reach", no_argument, NULL, 'r'}, {"kept", no_argument, NULL, 'k'},
	        {"byzantine", no_argument, NULL, 'b'}, {"lie", required_argument, NULL, 'i'},
	        {"pace", required_argument, NULL, 'P'}, {0}};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
		switch (c) {
		case 'n':
			o->seeds = strtoull(optarg, NULL, 10);
			break;
		case 's':
			o->seeds = 1;
			o->setup.verbose = true;
			/* fall through */
		case 'f':
			o->first = strtoull(optarg, NULL, 10);
			break;
		case 'o':
			o->setup.only = find_fault(optarg);
			if (o->setup.only < 0)
				return false;
			break;
		case 'a':
			o->setup.n = atoi(optarg);
			if (o->setup.n < 2 || o->setup.n > FSIM_AGENTS)
				return false;
			break;
		case 'p':
			o->processes = atoi(optarg);
			if (o->processes < 1 || o->processes > PROCESSES_MAX)
				return false;
			break;
		case 'l':
			o->setup.still = true;
			break;
		case 'm':
			o->setup.lattice = true;
			break;
		case 'b':
			o->setup.byzantine = true;
			break;
		case 'i':
			o->setup.byzantine = true;
			o->setup.lie = find_lie(optarg);
			if (o->setup.lie < 0)
				return false;
			break;
		case 'P':
			o->setup.pace = find_pace(optarg);
			if (o->setup.pace == PACES)
				return false;
			break;
		case 'x':
			o->stop = true;
			break;
		case 'r':
			o->reach = true;
			break;
		case 'k':
			o->kept = true;
			for (o->seeds = 0; fsim_kept[o->seeds].seed != 0;)
				o->seeds++;
			break;
		default:
			return false;
		}
	return optind == argc;
}

int main(int argc, char **argv)
{
	struct options o = {
	        .setup = {.only = -1, .lie = -1}, .first = 1, .seeds = 100, .processes = 1};
	static struct share sum;
	struct timespec from, to;
	if (!parse(argc, argv, &o))
		return usage();
	struct share *share = mmap(NULL, PROCESSES_MAX * sizeof *share, PROT_READ | PROT_WRITE,
	        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (share == MAP_FAILED)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &from);
	bool lived = run_all(&o, share);
	clock_gettime(CLOCK_MONOTONIC, &to);
	for (int i = 0; i < o.processes; i++)
		add_share(&sum, &share[i]);
	double real =
	        (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	const struct fsim_result *r = &sum.sum;
	printf("%llu seeds, %llu failures, %llu steps, %.0f s virtual in %.1f s: %.0f times real "
	       "time\n%llu exchanges, %llu one-sided, %llu adoptions (%llu of flocks that met), "
	       "%llu deaths (%llu between actions), %llu stale agents without a result\n",
	        (unsigned long long)sum.seeds, (unsigned long long)sum.failures,
	        (unsigned long long)r->steps, (double)r->virtual_ms / 1000, real,
	        (double)r->virtual_ms / 1000 / real, (unsigned long long)r->exchanges,
	        (unsigned long long)r->one_sided, (unsigned long long)r->adoptions,
	        (unsigned long long)r->met, (unsigned long long)r->crashes,
	        (unsigned long long)r->crashes_between, (unsigned long long)r->no_results);
	if (o.setup.byzantine)
		print_lies(r);
	if (o.reach)
		print_reach(&sum.reach);
	if (!lived)
		printf("a process died\n");
	return sum.failures > 0 || !lived;
}
