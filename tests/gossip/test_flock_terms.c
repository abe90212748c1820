/* SPDX-License-Identifier: MIT */
/* Who offers an exchange, or gives a state, does not dictate: mode, weight, time of a merge round,
 * sketch, radius, and how far it pulls in all. */
#include "tests/gossip/flock_bed.h"

#include <float.h>
#include <math.h>

static struct bed b;

static int open_bed(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12; /* any claim of samples counts */
	bed_open(&b, &c);
	bed_train_with(&b, 2);
	bed_train(&b, 10, 0.1);
	return 0;
}

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static void refused(const struct exchange_message *m, const char *words)
{
	bed_hear(&b, 1, m);
	const struct exchange_message *busy = bed_sent(&b, EXCHANGE_BUSY);
	assert_non_null(busy);
	assert_non_null(strstr(busy->busy.words, words));
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

static void test_honest_offer_is_taken(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
}

static void test_foreign_mode(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	m.terms.mode = EXCHANGE_PUSH;
	refused(&m, "another mode");
}

static void test_larger_weight(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	m.terms.beta = 1;
	refused(&m, "larger weight");
	m.exchange = 2;
	m.terms.beta = 0.25f; /* a smaller one does no harm */
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
}

/* Its word that the run is over counts for gossip.stale of the run, no more. */
static void test_merge_round_too_early(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	m.terms.final = true;
	m.terms.clock = 2 * BED_TOTAL;
	refused(&m, "before the run is over");
	bed_record(&b, 2, (uint64_t)(0.95 * BED_TOTAL), 1);
	bed_pass(&b, 200);
	m.exchange = 2;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
}

static void test_sketch_is_required(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	m.terms.sketch_length = 0;
	refused(&m, "no sketch");
	m = bed_offer(&b, 2);
	memset(m.terms.sketch, 0xff, 4); /* a NaN */
	refused(&m, "no sketch");
}

/* Before its first step an agent has one, too. */
static void test_sketch_of_the_initial_weights(void **state)
{
	struct flock_config c = bed_config();
	struct bed young;
	(void)state;
	bed_open(&young, &c);
	bed_pass(&young, 50);
	assert_non_null(bed_did(&young, FLOCK_DO_SNAPSHOT));
	bed_train_with(&young, 1);
	struct exchange_message m = bed_offer(&young, 1);
	bed_hear(&young, 1, &m);
	const struct exchange_message *accept = bed_sent(&young, EXCHANGE_ACCEPT);
	assert_non_null(accept);
	assert_int_equal(accept->terms.sketch_length, SKETCH_BUCKETS * 4);
	bed_close(&young);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_honest_offer_is_taken, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_foreign_mode, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_larger_weight, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_merge_round_too_early, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_sketch_is_required, open_bed, close_bed),
	        cmocka_unit_test(test_sketch_of_the_initial_weights),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
