/* SPDX-License-Identifier: MIT */
/* Membership under every fault there is: a thousand seeds of the simulator in tests/sim, n from 3
 * to 64, with the invariants of tests/sim/check.c after every step and equal views a minute after
 * the faults. SIM_SEEDS sets their number. A seed that fails is printed with its replay.
 *
 * Each invariant catches a bug: tests/sim/mutants (make sim-mutants) breaks the rules of the core
 * one by one in a copy, and the simulation fails by the invariant that guards the rule:
 *
 *     back       an older record is as good as a newer one; so is an older generation
 *     resurrect  an equal incarnation raises the dead; any record at all does
 *     self       what others say of us makes us our own peer; we are among those whom we probe
 *     bounds     sends without an end; one member too many; writes beyond the memory; datagrams
 *                as long as they come; whole states on datagrams
 *     invented   another's record is touched up in passing
 *     ours       another's accusation goes out as ours
 *     clock      the clock follows a lower count; one who comes back is counted twice
 *     vanish     the living are forgotten for newcomers; the forgotten are not counted
 *     busy       the next deadline is always now
 *     rush       dead in a whole state is dead
 *     equal      accusations are not refuted; suspicions never run out; nothing heals; a lost
 *                generation is not found again; two with one key are not told; nobody is
 *                suspected; news is not passed on */
#include "tests/sim/sim.h"
#include "tests/support.h"

#include <stdbool.h>

static struct seed_result run(uint64_t seed)
{
	struct seed_options o = {.seed = seed, .only = -1};
	return seed_run(&o);
}

static void test_queue_in_order(void **state)
{
	(void)state;
	struct sim_queue q = {0};
	struct sim_entry e;
	struct rng r;
	uint64_t at = 0, order = 0;
	rng_seed(&r, 1, 1);
	for (uint32_t i = 0; i < 5000; i++)
		queue_push(&q, (struct sim_entry){.at_ms = rng_below(&r, 500), .a = i});
	for (int i = 0; i < 5000; i++) {
		assert_true(queue_pop(&q, &e));
		assert_true(e.at_ms > at || (e.at_ms == at && (i == 0 || e.order > order)));
		assert_int_equal(e.a, e.order);
		at = e.at_ms;
		order = e.order;
	}
	assert_false(queue_pop(&q, &e));
	queue_close(&q);
}

/* What nobody signed does not verify, and what was signed does not once it is altered. */
static void test_truth(void **state)
{
	(void)state;
	static struct sim s;
	struct sim_config c = {.nodes = 3, .seed = 1, .profile = gossip_lan, .check = true};
	sim_init(&s, &c);
	struct gossip_update u = {.kind = UPDATE_RECORD}, v;
	u.record.id = s.key[1].id;
	u.record.generation = 1;
	assert_false(truth_verify(&s, &u));
	assert_false(truth_published(&s, &u.record));
	truth_sign(&s, 1, &u);
	assert_true(truth_verify(&s, &u));
	assert_true(truth_published(&s, &u.record));
	v = u;
	v.record.incarnation++;
	assert_false(truth_verify(&s, &v));
	assert_false(truth_published(&s, &v.record));
	v = u;
	v.record.id = s.key[2].id;
	assert_false(truth_verify(&s, &v));
	v = u;
	truth_sign(&s, 2, &v);
	assert_false(truth_verify(&s, &v));
	sim_close(&s);
}

static void test_same_seed_same_run(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct seed_result a = run(seed), b = run(seed), other = run(seed + 1);
		assert_true(a.steps > 0);
		assert_int_equal(a.steps, b.steps);
		assert_true(a.hash == b.hash);
		assert_true(a.hash != other.hash);
	}
}

static void test_seeds(void **state)
{
	(void)state;
	const char *env = getenv("SIM_SEEDS");
	uint64_t n = env && *env ? strtoull(env, NULL, 10) : 1000;
	uint64_t failed = 0, forged = 0, steps = 0;
	uint32_t smallest = UINT32_MAX, largest = 0;
	assert_true(n > 0);
	for (uint64_t seed = 1; seed <= n; seed++) {
		struct seed_result r = run(seed);
		forged += r.forged;
		steps += r.steps;
		smallest = r.nodes < smallest ? r.nodes : smallest;
		largest = r.nodes > largest ? r.nodes : largest;
		if (r.failed) {
			failed++;
			print_message("# seed %llu, %u nodes, %s\n"
			              "#     tests/sim/sim_membership --seed %llu --verbose\n",
			        (unsigned long long)seed, r.nodes, r.failure,
			        (unsigned long long)seed);
		}
	}
	print_message("# %llu seeds, %llu steps, %llu forgeries refused\n", (unsigned long long)n,
	        (unsigned long long)steps, (unsigned long long)forged);
	assert_int_equal(failed, 0);
	/* The seeds were what they are meant to be. */
	assert_int_equal(smallest, 3);
	assert_true(forged > 0);
	if (n >= 1000)
		assert_true(largest > 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_queue_in_order),
	        cmocka_unit_test(test_truth),
	        cmocka_unit_test(test_same_seed_same_run),
	        cmocka_unit_test(test_seeds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
