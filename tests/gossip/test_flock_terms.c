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

/* Who has not heard in half a minute what all have has been away; all may merge. */
static void test_clock_that_is_far_behind(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	(void)state;
	bed_close(&b);
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.fresh = BED_TOTAL;
	bed_open(&b, &c);
	bed_record(&b, 2, BED_TOTAL / 2, 1);
	bed_train_with(&b, 1);
	for (int i = 0; i < 650; i++) {
		bed_train(&b, 1, 0.001);
		bed_record(&b, 2, BED_TOTAL / 2, 1);
		bed_pass(&b, 100);
	}
	m.terms.clock = (uint64_t)(0.45 * BED_TOTAL);
	bed_record(&b, 1, 3200, 1);
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	m = (struct exchange_message){.kind = EXCHANGE_ABORT, .exchange = 1};
	bed_hear(&b, 1, &m);
	bed_pass(&b, 3000);
	m = bed_offer(&b, 2);
	m.terms.clock = (uint64_t)(0.39 * BED_TOTAL);
	bed_record(&b, 1, 3200, 1);
	refused(&m, "far behind");
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_STALE);
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
/* In an answer to our offer as well. */
static void test_sketch_is_required_of_who_accepts(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	for (int with = 0; with < 2; with++) {
		c.gate.every_samples = 32;
		bed_open(&b, &c);
		bed_train_with(&b, 1);
		bed_train(&b, 30, 0.1);
		bed_record(&b, 1, 3200, 1);
		bed_pass(&b, 3500); /* an offer of ours has come to nothing */
		bed_record(&b, 1, 3200, 1);
		bed_pass(&b, 100);
		for (int i = 0; i < 200 && !bed_sent(&b, EXCHANGE_OFFER); i++)
			bed_train(&b, 1, 0.1);
		const struct exchange_message *offer = bed_sent(&b, EXCHANGE_OFFER);
		assert_non_null(offer);
		struct exchange_message m = bed_offer(&b, offer->exchange);
		m.kind = EXCHANGE_ACCEPT;
		if (!with)
			m.terms.sketch_length = 0;
		bed_hear(&b, 1, &m);
		bool goes_on = bed_view(&b).exchange_state != EXCHANGE_IDLE;
		if (!goes_on) /* no error of ours */
			assert_int_equal(bed_said(&b, SAY_EXCHANGE)->result->code, 0);
		assert_true(goes_on == (with == 1));
		bed_close(&b);
	}
}

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

/* A snapshot that came without one changes nothing of what is told. */
static void test_snapshot_without_a_sketch(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_SNAPSHOT};
	struct exchange_message m = bed_offer(&b, 1);
	struct sketch told;
	(void)state;
	e.snapshot.step = 10;
	bed_step(&b, e);
	bed_hear(&b, 1, &m);
	const struct exchange_message *accept = bed_sent(&b, EXCHANGE_ACCEPT);
	assert_non_null(accept);
	assert_true(sketch_unpack(&told, accept->terms.sketch, accept->terms.sketch_length));
	assert_true(sketch_distance(&told, &b.place) < 1e-6);
}

/* One that has gone far since its last sketch takes another at once: peers hold what it sends
 * against what it tells. */
static void test_sketch_keeps_up(void **state)
{
	struct exchange_message m = bed_offer(&b, 1);
	struct sketch told;
	(void)state;
	for (int i = 1; i <= 2; i++) {
		bed_train(&b, 10, 0.1 * sketch_norm(&b.place));
		b.place = bed_place(10 + 5 * i, 0);
		bed_pass(&b, 100);
	}
	bed_hear(&b, 1, &m);
	const struct exchange_message *accept = bed_sent(&b, EXCHANGE_ACCEPT);
	assert_non_null(accept);
	assert_true(sketch_unpack(&told, accept->terms.sketch, accept->terms.sketch_length));
	assert_true(sketch_distance(&told, &b.place) < 1e-3);
}

/* What is left of the day's quota pays for an exchange in our format, but not in the offer's. */
static void test_offer_is_paid_in_its_own_format(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.format = 1;
	c.gate.mode = GATE_BUDGET;
	c.gate.bytes_per_day = 3 * BED_COUNT;
	c.gate.exchange_bytes = c.exchange_bytes[1];
	c.gate.incoming_share = 0.5;
	for (uint8_t format = 0; format < 2; format++) {
		bed_open(&b, &c);
		bed_train_with(&b, 1);
		struct exchange_message m = bed_offer(&b, 1);
		m.terms.format = format;
		bed_hear(&b, 1, &m);
		const struct exchange_message *busy = bed_sent(&b, EXCHANGE_BUSY);
		assert_true((busy != NULL) == (format == 0));
		assert_true(!busy || busy->busy.why == EXCHANGE_BUDGET);
		bed_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_honest_offer_is_taken, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_foreign_mode, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_larger_weight, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_clock_that_is_far_behind, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_merge_round_too_early, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_sketch_is_required, open_bed, close_bed),
	        cmocka_unit_test(test_sketch_is_required_of_who_accepts),
	        cmocka_unit_test(test_sketch_of_the_initial_weights),
	        cmocka_unit_test_setup_teardown(
	                test_snapshot_without_a_sketch, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_sketch_keeps_up, open_bed, close_bed),
	        cmocka_unit_test(test_offer_is_paid_in_its_own_format),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
