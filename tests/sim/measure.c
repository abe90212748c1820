/* SPDX-License-Identifier: MIT */
/* make sim-membership: how fast, how quiet and how wrong. Each seed of each scenario is a job of
 * its own; a few processes take them one by one, the longest first, and leave their results in
 * shared memory. Nothing depends on who took what, only the speed is measured alone, before all
 * else.
 *
 * The network is a LAN's, 1 ms ± 1 ms, with datagrams lost at random. "Detected" is when the last
 * running agent holds the killed one dead; the killed one is silent, no host answers for it. */
#include "tests/sim/sim.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TABLE_SEEDS 200
#define SWEEP_SEEDS 40
#define EVENT_SEEDS 20
#define HEAL_SEEDS 3
#define JOBS_MAX 4096
#define HOUR_MS 3600000ull
#define GIVE_UP_MS 300000
#define SETTLE_MS 20000 /* the news of who has joined has gone round */

enum job_kind { JOB_HEAL, JOB_DAY, JOB_HALF, JOB_JOIN, JOB_KILL };

struct job {
	uint8_t kind;
	uint32_t nodes, loss; /* percent */
	uint64_t seed;
	/* results */
	bool done;
	double seconds;
	double false_deaths, node_seconds, bytes;
};

struct shared {
	atomic_int next;
	int n;
	struct job job[JOBS_MAX];
};

/* A flock that knows itself, with the counters at zero. */
static void boot(struct sim *s, const struct job *j, uint32_t slots, uint32_t status_every_ms)
{
	char why[256];
	struct sim_config c = {.seed = j->seed, .nodes = j->nodes, .slots = slots};
	c.profile = gossip_lan;
	c.weather.loss = j->loss / 100.0;
	c.weather.jitter_ms = 2;
	c.status_every_ms = status_every_ms;
	sim_init(s, &c);
	for (uint32_t i = 0; i < j->nodes; i++) {
		sim_run(s, s->now_ms + sim_between(s, 0, 2000 / j->nodes));
		sim_start(s, i, true);
	}
	uint64_t begin = s->now_ms;
	do
		sim_run(s, s->now_ms + 5000);
	while (!check_views_equal(s, why, sizeof why) && s->now_ms < begin + GIVE_UP_MS);
	sim_run(s, s->now_ms + SETTLE_MS);
	s->stats = (struct sim_stats){0};
}

static void count(const struct sim *s, struct job *j, uint64_t since_ms)
{
	double node_seconds = (double)(s->now_ms - since_ms) / 1000 * j->nodes;
	j->false_deaths = (double)s->stats.false_deaths;
	j->bytes = (double)s->stats.bytes;
	j->node_seconds = node_seconds;
}

static void run_kill(struct sim *s, struct job *j)
{
	boot(s, j, 0, 1000);
	uint64_t begin = s->now_ms;
	sim_run(s, s->now_ms + sim_between(s, 9000, 11000));
	count(s, j, begin);
	uint32_t victim = (uint32_t)sim_between(s, 0, j->nodes - 1);
	uint64_t killed = s->now_ms;
	sim_stop(s, victim, false);
	while (!check_knows_dead(s, victim) && s->now_ms < killed + GIVE_UP_MS)
		sim_run(s, s->now_ms + 10);
	j->seconds = (double)(s->now_ms - killed) / 1000;
	double bytes = j->bytes, node_seconds = j->node_seconds;
	count(s, j, begin);
	/* Traffic is that of a flock at peace. */
	j->bytes = bytes / node_seconds * j->node_seconds;
}

static void run_day(struct sim *s, struct job *j)
{
	boot(s, j, 0, 1000);
	uint64_t begin = s->now_ms;
	sim_run(s, begin + 24 * HOUR_MS);
	count(s, j, begin);
}

static void wait_equal(struct sim *s, struct job *j, uint64_t step_ms)
{
	char why[256];
	uint64_t begin = s->now_ms;
	while (!check_views_equal(s, why, sizeof why) && s->now_ms < begin + GIVE_UP_MS)
		sim_run(s, s->now_ms + step_ms);
	j->seconds = (double)(s->now_ms - begin) / 1000;
}

static void run_heal(struct sim *s, struct job *j)
{
	boot(s, j, 0, 30000);
	for (uint32_t i = 0; i < j->nodes; i++)
		s->node[i].group = i % 2;
	sim_run(s, s->now_ms + 48 * HOUR_MS);
	for (uint32_t i = 0; i < j->nodes; i++)
		s->node[i].group = 0;
	/* They are not of one mind by chance: each half holds the other dead. */
	struct member_view v;
	if (!gossip_find(s->node[0].core, &s->key[1].id, &v) || v.state != MEMBER_DEAD)
		s->stats.false_deaths = UINT32_MAX;
	wait_equal(s, j, 100);
	count(s, j, 0);
}

static void run_half(struct sim *s, struct job *j)
{
	boot(s, j, 0, 1000);
	sim_run(s, s->now_ms + sim_between(s, 9000, 11000));
	uint64_t begin = s->now_ms;
	for (uint32_t i = 0; i < j->nodes / 2; i++)
		sim_stop(s, 2 * i + 1, false);
	for (uint32_t i = 0; i < j->nodes / 2; i++)
		while (!check_knows_dead(s, 2 * i + 1) && s->now_ms < begin + GIVE_UP_MS)
			sim_run(s, s->now_ms + 10);
	j->seconds = (double)(s->now_ms - begin) / 1000;
	count(s, j, begin);
}

static void run_join(struct sim *s, struct job *j)
{
	boot(s, j, 2 * j->nodes, 1000);
	for (uint32_t i = 0; i < j->nodes; i++) {
		sim_run(s, s->now_ms + sim_between(s, 0, 1900 / j->nodes));
		sim_start(s, j->nodes + i, true);
	}
	wait_equal(s, j, 10);
	count(s, j, 0);
}

static void run_job(struct job *j)
{
	static struct sim s;
	switch (j->kind) {
	case JOB_HEAL:
		run_heal(&s, j);
		break;
	case JOB_DAY:
		run_day(&s, j);
		break;
	case JOB_HALF:
		run_half(&s, j);
		break;
	case JOB_JOIN:
		run_join(&s, j);
		break;
	default:
		run_kill(&s, j);
	}
	sim_close(&s);
	j->done = true;
}

static void work(struct shared *sh)
{
	int i;
	while ((i = atomic_fetch_add(&sh->next, 1)) < sh->n)
		run_job(&sh->job[i]);
}

static void add(struct shared *sh, int kind, uint32_t nodes, uint32_t loss, int seeds)
{
	for (int i = 0; i < seeds; i++)
		sh->job[sh->n++] = (struct job){.kind = (uint8_t)kind,
		        .nodes = nodes,
		        .loss = loss,
		        .seed = (uint64_t)(i + 1)};
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct sum {
	double median, p99, worst;
	double deaths, node_hours, bytes_per_second;
	int n;
	bool complete;
};

static struct sum sum_up(const struct shared *sh, int kind, uint32_t nodes, uint32_t loss)
{
	struct sum out = {.complete = true};
	double *v = calloc((size_t)sh->n, sizeof *v), bytes = 0, node_seconds = 0;
	if (!v)
		abort();
	for (int i = 0; i < sh->n; i++) {
		const struct job *j = &sh->job[i];
		if (j->kind != kind || j->nodes != nodes || j->loss != loss)
			continue;
		out.complete &= j->done;
		v[out.n++] = j->seconds;
		out.deaths += j->false_deaths;
		bytes += j->bytes;
		node_seconds += j->node_seconds;
	}
	qsort(v, (size_t)out.n, sizeof *v, by_value);
	if (out.n) {
		out.median = v[out.n / 2];
		out.p99 = v[(out.n * 99 - 1) / 100];
		out.worst = v[out.n - 1];
	}
	out.node_hours = node_seconds / 3600;
	out.bytes_per_second = bytes / node_seconds;
	free(v);
	return out;
}

/* Virtual over real time; the machine's other work only makes it smaller. */
static double speedup(uint32_t nodes)
{
	static struct sim s;
	struct timespec a, b;
	struct job j = {.nodes = nodes, .seed = 1};
	boot(&s, &j, 0, 1000);
	uint64_t begin = s.now_ms;
	clock_gettime(CLOCK_MONOTONIC, &a);
	sim_run(&s, begin + 120000);
	clock_gettime(CLOCK_MONOTONIC, &b);
	sim_close(&s);
	double real = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
	return 120 / real;
}

static bool bar(const char *name, double value, const char *op, double bound, bool complete)
{
	bool ok = complete && (op[0] == '<' ? value <= bound : value >= bound);
	printf("bar %s %.2f %s %g %s\n", name, value, op, bound, ok ? "ok" : "short");
	return ok;
}

static void print_row(const struct shared *sh, uint32_t nodes, uint32_t loss)
{
	struct sum x = sum_up(sh, JOB_KILL, nodes, loss);
	printf("%5u %5u %% %9.2f s %9.2f s %12.4f %13.0f %7d\n", nodes, loss, x.median, x.p99,
	        x.deaths / x.node_hours, x.bytes_per_second, x.n);
}

static bool report(const struct shared *sh, double speed)
{
	static const uint32_t sizes[] = {8, 32, 128}, losses[] = {0, 10, 30};
	static const double bounds[] = {6.5, 8.8, 11.6};
	static const char *const names[] = {"detect_s_n8", "detect_s_n32", "detect_s_n128"};
	bool ok = true;
	const char *head =
	        "    n    loss    median         p99   false deaths     bytes per   seeds\n"
	        "             kill → all know it       a node-hour   node, second\n";
	printf("%s", head);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++)
			print_row(sh, sizes[i], losses[k]);
	printf("\nLoss sweep\n%s", head);
	for (uint32_t loss = 0; loss <= 50; loss += 10)
		print_row(sh, 33, loss);
	struct sum half = sum_up(sh, JOB_HALF, 64, 0), join = sum_up(sh, JOB_JOIN, 16, 0);
	struct sum day = sum_up(sh, JOB_DAY, 32, 10), heal = sum_up(sh, JOB_HEAL, 32, 0);
	printf("\nHalf of 64 crash at once: all know all after %.1f s (median), %.1f s (worst of "
	       "%d);"
	       " false deaths %.0f\n",
	        half.median, half.worst, half.n, half.deaths);
	printf("16 join 16 within a second: equal views after %.2f s (median), %.2f s (worst of "
	       "%d)\n",
	        join.median, join.worst, join.n);
	printf("Apart for 48 h, 16 and 16: equal views after %.1f s (median), %.1f s (worst of "
	       "%d)\n",
	        heal.median, heal.worst, heal.n);
	printf("24 h, 32 agents, 10 %% loss: %.0f false deaths, %.0f bytes per node and second\n\n",
	        day.deaths, day.bytes_per_second);
	for (int i = 0; i < 3; i++) {
		struct sum x = sum_up(sh, JOB_KILL, sizes[i], 0);
		ok &= bar(names[i], x.median, "<=", bounds[i], x.complete);
	}
	ok &= bar("false_deaths_24h_n32_loss10", day.deaths, "<=", 0, day.complete);
	ok &= bar("sim_speedup_n128", speed, ">=", 50, true);
	ok &= bar("heal_48h_s", heal.worst, "<=", 90, heal.complete && heal.deaths < UINT32_MAX);
	return ok;
}

bool measure_all(int processes)
{
	struct shared *sh =
	        mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return false;
	double speed = speedup(128);
	add(sh, JOB_HEAL, 32, 0, HEAL_SEEDS);
	add(sh, JOB_DAY, 32, 10, 1);
	add(sh, JOB_KILL, 128, 30, TABLE_SEEDS);
	add(sh, JOB_KILL, 128, 10, TABLE_SEEDS);
	add(sh, JOB_KILL, 128, 0, TABLE_SEEDS);
	add(sh, JOB_HALF, 64, 0, EVENT_SEEDS);
	for (uint32_t loss = 0; loss <= 50; loss += 10)
		add(sh, JOB_KILL, 33, loss, SWEEP_SEEDS);
	for (uint32_t loss = 0; loss <= 30; loss += loss ? 20 : 10) {
		add(sh, JOB_KILL, 32, loss, TABLE_SEEDS);
		add(sh, JOB_KILL, 8, loss, TABLE_SEEDS);
	}
	add(sh, JOB_JOIN, 16, 0, EVENT_SEEDS);
	fflush(stdout);
	for (int i = 1; i < processes; i++)
		if (fork() == 0) {
			work(sh);
			_exit(0);
		}
	work(sh);
	while (wait(NULL) > 0)
		;
	bool ok = report(sh, speed);
	munmap(sh, sizeof *sh);
	return ok;
}
