/* SPDX-License-Identifier: MIT */
/* Shared links: rates that are max-min fair, bytes that all come through, and what changes. */
#include "agent/base/rng.h"
#include "agent/simulate/links.h"
#include "tests/support.h"

#include <math.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * fabs(b))

static uint32_t start(struct links *l, uint64_t bytes, uint32_t a, uint32_t b, uint64_t now_ms)
{
	return sim_links_start(l, bytes, (uint32_t[]){a, b}, 2, now_ms);
}

/* The known example: three flows, two links; one is alone on what the others leave. */
static void test_example(void **state)
{
	struct links l;
	(void)state;
	sim_links_init(&l, 2);
	sim_links_capacity(&l, 0, 1000e3, 0);
	sim_links_capacity(&l, 1, 3000e3, 0);
	uint32_t a = sim_links_start(&l, 100000, (uint32_t[]){0}, 1, 0);
	assert_int_equal(l.flow[a].end_ms, 100);
	uint32_t b = start(&l, 100000, 0, 1, 0);
	uint32_t c = sim_links_start(&l, 100000, (uint32_t[]){1}, 1, 0);
	NEAR(l.flow[a].rate, 500.0);
	NEAR(l.flow[b].rate, 500.0);
	NEAR(l.flow[c].rate, 2500.0);
	assert_int_equal(l.flow[c].end_ms, 40);
	/* Who is through leaves its share to the others, as far as they can use it. */
	NEAR(sim_links_stop(&l, c, 40) + 1, 1.0);
	NEAR(l.flow[b].rate, 500.0);
	assert_int_equal(l.n_changed, 0);
	NEAR(sim_links_stop(&l, a, 100), 50000.0);
	assert_int_equal(l.n_changed, 1);
	assert_int_equal(l.changed[0], b);
	assert_int_equal(l.flow[b].end_ms, 150);
	sim_links_close(&l);
}

/* A link that is shut holds its flows until it opens; the others do not notice. */
static void test_shut(void **state)
{
	struct links l;
	(void)state;
	sim_links_init(&l, 3);
	for (uint32_t i = 0; i < 3; i++)
		sim_links_capacity(&l, i, 1000e3, 0);
	uint32_t a = start(&l, 10000, 0, 1, 0),
	         b = sim_links_start(&l, 10000, (uint32_t[]){2}, 1, 0);
	uint32_t version = l.flow[b].version;
	sim_links_capacity(&l, 1, 0, 5);
	assert_true(l.flow[a].end_ms == LINKS_NEVER);
	sim_links_capacity(&l, 1, 500e3, 1000);
	assert_int_equal(l.flow[a].end_ms, 1010);
	assert_true(sim_links_current(&l, b, version));
	assert_int_equal(sim_links_start(&l, 7, NULL, 0, 1000), 3);
	assert_int_equal(l.flow[3].end_ms, 1000);
	sim_links_close(&l);
}

/* By definition: each flow has a link that is full and on which none has a higher rate. */
static void check_fair(const struct links *l)
{
	for (uint32_t f = 1; f <= l->n_flows; f++) {
		bool held = !l->flow[f].there;
		for (int k = 0; k < l->flow[f].n && !held; k++) {
			double sum = 0, most = 0;
			for (uint32_t g = 1; g <= l->n_flows; g++)
				for (int m = 0; l->flow[g].there && m < l->flow[g].n; m++)
					if (l->flow[g].link[m] == l->flow[f].link[k]) {
						sum += l->flow[g].rate;
						most = fmax(most, l->flow[g].rate);
					}
			double capacity = l->link[l->flow[f].link[k]].capacity;
			assert_true(sum <= capacity * (1 + 1e-9));
			held = sum >= capacity * (1 - 1e-9) && l->flow[f].rate >= most * (1 - 1e-9);
		}
		assert_true(held);
	}
}

/* Flows at random over links at random: fair at all times, and every byte comes through. */
static void test_random(void **state)
{
	struct links l;
	struct rng r;
	double sent = 0, came = 0;
	uint64_t now = 0;
	(void)state;
	rng_seed(&r, 7, 1);
	sim_links_init(&l, 12);
	for (uint32_t i = 0; i < 12; i++)
		sim_links_capacity(&l, i, 1e3 * (double)(1 + rng_below(&r, 1000)), 0);
	for (int turn = 0; turn < 2000; turn++) {
		uint32_t next = 0;
		for (uint32_t f = 1; f <= l.n_flows; f++)
			if (l.flow[f].there && (!next || l.flow[f].end_ms < l.flow[next].end_ms))
				next = f;
		if (next && (rng_below(&r, 3) == 0 || l.n_flows - l.n_spare > 20)) {
			now = l.flow[next].end_ms > now ? l.flow[next].end_ms : now;
			double left = sim_links_stop(&l, next, now);
			assert_true(left < 1);
			came -= left;
		} else {
			uint32_t a = (uint32_t)rng_below(&r, 12);
			uint32_t b = (a + 1 + (uint32_t)rng_below(&r, 11)) % 12;
			uint64_t bytes = 1 + rng_below(&r, 100000);
			now += rng_below(&r, 3);
			sent += (double)bytes;
			start(&l, bytes, a, b, now);
		}
		check_fair(&l);
	}
	for (uint32_t f = 1; f <= l.n_flows; f++)
		if (l.flow[f].there)
			came -= sim_links_stop(&l, f, now + 1000000);
	assert_true(sent > 1e6 && fabs(came) < 1);
	sim_links_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_example),
	        cmocka_unit_test(test_shut),
	        cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
