/* SPDX-License-Identifier: MIT */
/* What a peer claims to have trained moves the run's clock no faster than anybody could train. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

#define OWN_RATE 320.0 /* samples a second */

/* So many seconds in which we train, and peer 2 as fast; peer 1 says what it likes. */
static void pass(int seconds, uint64_t claim, double its_rate)
{
	static uint64_t honest, growing;
	if (seconds == 0) {
		honest = 0;
		growing = claim;
		return;
	}
	for (int i = 0; i < seconds; i++) {
		bed_train(&b, (int)(OWN_RATE / 32), 0.1);
		honest += (uint64_t)OWN_RATE;
		growing += (uint64_t)its_rate;
		bed_record(&b, 2, honest, 1);
		if (its_rate > 0)
			bed_record(&b, 1, growing, 1);
		bed_pass(&b, 1000);
	}
}

static void open_with(double rate_cap)
{
	struct flock_config c = bed_config();
	c.rate_cap = rate_cap;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	bed_train_with(&b, 2);
	pass(0, 0, 0);
	pass(5, 0, 0);
}

/* Of others. */
static uint64_t counted(void)
{
	struct flock_view v = bed_view(&b);
	return v.clock - v.samples;
}

static void test_record_is_capped(void **state)
{
	(void)state;
	open_with(0);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	/* A first claim: 256 times what the honest have trained, or could have since the start. */
	assert_true(counted() - before <= 256 * 3000);
	assert_int_equal(bed_view(&b).capped, 1);
	before = counted();
	pass(10, 1ull << 39, 0);
	assert_true(counted() - before <= (uint64_t)(257 * OWN_RATE * 1.2 * 10));
	bed_close(&b);
}

static void test_offer_is_capped(void **state)
{
	(void)state;
	open_with(0);
	bed_record(&b, 1, 1000, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.samples = m.terms.clock = 1ull << 39;
	m.terms.beta = 1; /* it is refused, and its words count all the same */
	bed_hear(&b, 1, &m);
	bed_pass(&b, 200);
	/* A word of the clock counts for gossip.stale of the run at most. */
	assert_true(counted() - before <= (uint64_t)(0.1 * (double)(1ull << 40)) + 256 * 1700);
	bed_close(&b);
}

/* A hundred times as fast as the others: it loses nothing. */
static void test_fast_peer_counts(void **state)
{
	(void)state;
	open_with(0);
	pass(0, 1000, 0);
	pass(20, 0, 100 * OWN_RATE);
	assert_int_equal(bed_view(&b).capped, 0);
	assert_true(counted() >= (uint64_t)(19 * 100 * OWN_RATE));
	bed_close(&b);
}

/* The first seconds, in which no rate is known, may be the whole of a short run. */
static void test_first_seconds_count(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	bed_record(&b, 1, 32, 1);
	bed_pass(&b, 100);
	bed_record(&b, 1, 640, 1);
	bed_pass(&b, 100);
	assert_int_equal(counted(), 640);
	bed_close(&b);
}

static void test_stated_rate(void **state)
{
	(void)state;
	open_with(1000);
	bed_record(&b, 1, 100, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	pass(10, 0, 0);
	uint64_t grown = counted() - before;
	assert_true(grown >= 10000 && grown <= 10 * (1000 + (uint64_t)OWN_RATE) + 2000);
	bed_close(&b);
}

static void test_quarantined_stands_still(void **state)
{
	(void)state;
	open_with(1000);
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = 1};
	bed_hear(&b, 1, &m); /* out of turn */
	assert_int_equal(bed_view(&b).quarantined, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	pass(10, 0, 0);
	assert_true(counted() - before <= (uint64_t)(11 * OWN_RATE));
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_record_is_capped),
	        cmocka_unit_test(test_offer_is_capped),
	        cmocka_unit_test(test_fast_peer_counts),
	        cmocka_unit_test(test_first_seconds_count),
	        cmocka_unit_test(test_stated_rate),
	        cmocka_unit_test(test_quarantined_stands_still),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
