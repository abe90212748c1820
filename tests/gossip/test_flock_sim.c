/* SPDX-License-Identifier: MIT */
/* Whole agents under every fault there is: a thousand seeds of the simulator in tests/sim/flock,
 * 2 to 24 agents each, with the invariants of check.c after every event. SIM_SEEDS sets their
 * number. A seed that fails is printed with its replay. tests/sim/flock_mutants (make sim-flock)
 * breaks the core's rules one by one, and the simulation must notice. */
#include "tests/sim/flock/flock_sim.h"
#include "tests/support.h"

static struct fsim_result run(struct fsim_setup s)
{
	struct fsim_result r = fsim_seed(&s);
	if (r.failed)
		print_message("# %s\n#     tests/sim/sim_flock --seed %llu%s%s\n", r.failure,
		        (unsigned long long)s.seed, s.lattice ? " --lattice" : "",
		        s.still                ? " --still"
		        : s.pace == PACE_SLOW  ? " --pace slow"
		        : s.pace == PACE_MIXED ? " --pace mixed"
		                               : "");
	return r;
}

static void test_same_seed_same_run(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct fsim_result a = run((struct fsim_setup){.seed = seed, .only = -1});
		struct fsim_result b = run((struct fsim_setup){.seed = seed, .only = -1});
		struct fsim_result other = run((struct fsim_setup){.seed = seed + 1, .only = -1});
		assert_true(a.steps > 0);
		assert_int_equal(a.steps, b.steps);
		assert_true(a.hash == b.hash);
		assert_true(a.hash != other.hash);
	}
}

/* Without training, deaths and adoptions the sum over all agents stays. */
static void test_sum_stays(void **state)
{
	(void)state;
	struct fsim_result sum = {0};
	uint64_t failed = 0;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fsim_setup s = {.seed = seed, .only = -1, .still = true};
		struct fsim_result r = run(s);
		failed += r.failed;
		fsim_result_add(&sum, &r);
	}
	assert_int_equal(failed, 0);
	assert_int_equal(sum.crashes, 0);
	assert_true(sum.exchanges > 100);
}

/* The same, and all else, where parameters travel modulo a lattice. */
static void test_lattices(void **state)
{
	(void)state;
	struct fsim_result sum = {0};
	uint64_t failed = 0;
	for (uint64_t seed = 1; seed <= 36; seed++) {
		struct fsim_setup s = {
		        .seed = seed, .only = -1, .lattice = true, .still = seed % 3 == 0};
		struct fsim_result r = run(s);
		failed += r.failed;
		fsim_result_add(&sum, &r);
	}
	assert_int_equal(failed, 0);
	print_message("# %llu exchanges modulo a lattice\n", (unsigned long long)sum.lattices);
	assert_true(sum.lattices > sum.exchanges / 2);
}

static void test_kept(void **state)
{
	(void)state;
	for (int i = 0; fsim_kept[i].seed != 0; i++)
		assert_false(run(fsim_kept[i]).failed);
}

/* Up to a third of the agents lie; make sim-byzantine has more of them. */
static void test_liars(void **state)
{
	(void)state;
	struct fsim_result sum = {0};
	uint64_t failed = 0;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct fsim_setup s = {.seed = seed, .only = -1, .byzantine = true, .lie = -1};
		struct fsim_result r = fsim_seed(&s);
		if (r.failed)
			print_message("# %s\n#     tests/sim/sim_flock --byzantine --seed %llu\n",
			        r.failure, (unsigned long long)seed);
		failed += r.failed;
		fsim_result_add(&sum, &r);
	}
	assert_int_equal(failed, 0);
	assert_true(sum.exchanges > 1000);
	for (int k = 0; k < BYZ_LIES; k++)
		assert_true(sum.lied[k] > 0 || k == BYZ_SAMPLES);
}

/* Steps that take longer than a transfer may: nothing times out, and agents exchange all the same.
 */
static void test_slow_steps(void **state)
{
	(void)state;
	struct fsim_result sum = {0};
	uint64_t failed = 0;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct fsim_setup s = {.seed = seed, .only = -1, .pace = PACE_SLOW};
		struct fsim_result r = run(s);
		failed += r.failed;
		fsim_result_add(&sum, &r);
	}
	assert_int_equal(failed, 0);
	assert_true(sum.trained_together > 10 * 10);
	assert_int_equal(sum.one_sided, 0);
}

/* One agent is 30 to 100 times as slow as the others: it exchanges, and nothing goes wrong. */
static void test_mixed_steps(void **state)
{
	(void)state;
	for (uint64_t seed = 5; seed <= 6; seed++) {
		struct fsim_setup s = {.seed = seed, .only = -1, .pace = PACE_MIXED};
		struct fsim_result r = run(s);
		assert_false(r.failed);
		assert_int_equal(r.no_results, 0);
		assert_true(r.last_exchanged > 25);
	}
}

static void test_seeds(void **state)
{
	(void)state;
	const char *env = getenv("SIM_SEEDS");
	uint64_t n = env && *env ? strtoull(env, NULL, 10) : 1000, failed = 0;
	struct fsim_result sum = {0};
	int smallest = FSIM_AGENTS, largest = 0;
	assert_true(n > 0);
	for (uint64_t seed = 1; seed <= n; seed++) {
		struct fsim_result r = run((struct fsim_setup){.seed = seed, .only = -1});
		failed += r.failed;
		fsim_result_add(&sum, &r);
		smallest = r.n < smallest ? r.n : smallest;
		largest = r.n > largest ? r.n : largest;
	}
	print_message("# %llu seeds, %llu steps, %llu exchanges, %llu one-sided, %llu adoptions\n",
	        (unsigned long long)n, (unsigned long long)sum.steps,
	        (unsigned long long)sum.exchanges, (unsigned long long)sum.one_sided,
	        (unsigned long long)sum.adoptions);
	assert_int_equal(failed, 0);
	/* The seeds were what they are meant to be. */
	assert_int_equal(smallest, 2);
	assert_true(sum.exchanges > 10 * n);
	assert_true(sum.adoptions > 0);
	if (n < 1000)
		return;
	assert_true(largest > 20);
	assert_int_equal(sum.faults, (1u << FSIM_FAULT_KINDS) - 1);
	assert_true(sum.one_sided > 0);
	assert_true(sum.no_results > 0);
	assert_true(sum.crashes_between > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_same_seed_same_run),
	        cmocka_unit_test(test_sum_stays),
	        cmocka_unit_test(test_lattices),
	        cmocka_unit_test(test_kept),
	        cmocka_unit_test(test_liars),
	        cmocka_unit_test(test_slow_steps),
	        cmocka_unit_test(test_mixed_steps),
	        cmocka_unit_test(test_seeds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
