/* SPDX-License-Identifier: MIT */
/* What one partner may do to our parameters: how far it moves us in all, in training and in merge
 * rounds; and who is accused of standing still. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

#define STEP 0.1 /* of training: how long it is */

static struct bed b;
static int who;         /* offers */
static uint64_t number; /* of the last exchange */
static bool evaluates;

static int open_bed(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12; /* any claim of samples counts */
	c.stale = 10;      /* of the run: never */
	/* Nobody answers our own offers of merge rounds: the peer's, of a lower id, cross them. */
	c.membership.self = bed_id(9);
	c.evaluates = evaluates;
	who = 1;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	return 0;
}

static int close_bed(void **state)
{
	(void)state;
	evaluates = false;
	bed_close(&b);
	return 0;
}

/* It offers and sends parameters that are that far away, at that place; true: they are used. */
static bool comes(double distance, struct sketch at, bool final)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(who)};
	struct exchange_message m = bed_offer(&b, ++number);
	m.terms.final = final;
	m.terms.clock = final ? BED_TOTAL : 0;
	bed_hear(&b, who, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	e.exchange = number;
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
	e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number};
	e.transferred.use = USE_EXCHANGE;
	e.transferred.received = BED_COUNT;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_MEASURE));
	e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = true;
	e.measured.distance2[0] = distance * distance;
	e.measured.sketch = &at;
	bed_step(&b, e);
	return bed_sent(&b, EXCHANGE_END) != NULL;
}

/* The same, to its end; returns how far that moves us. */
static double exchange_now(double distance, struct sketch at, bool final)
{
	struct exchange_message m = {.kind = EXCHANGE_END};
	assert_true(comes(distance, at, final));
	m.exchange = number;
	m.end.n = 2;
	m.end.factor[0] = m.end.factor[1] = 1;
	bed_hear(&b, who, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_COMMIT));
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = number};
	bed_hear(&b, who, &m);
	assert_non_null(bed_did(&b, FLOCK_DO_APPLY));
	assert_int_equal(bed_did(&b, FLOCK_DO_APPLY)->apply.n, 2);
	double moved = (double)bed_did(&b, FLOCK_DO_APPLY)->apply.k[0] * distance;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	m = (struct exchange_message){.kind = EXCHANGE_ACK, .exchange = number};
	bed_hear(&b, who, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	return moved;
}

/* The rest of an exchange that was verified. */
static void to_its_end(void)
{
	struct exchange_message m = {.kind = EXCHANGE_END, .exchange = number};
	m.end.n = 2;
	m.end.factor[0] = m.end.factor[1] = 1;
	bed_hear(&b, who, &m);
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = number};
	bed_hear(&b, who, &m);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	m.kind = EXCHANGE_ACK;
	bed_hear(&b, who, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

static double exchange(double distance, struct sketch at, bool final)
{
	double moved = exchange_now(distance, at, final);
	bed_pass(&b, 100);
	return moved;
}

/* Never the same place twice. */
static double pulled(int exchanges, double distance, bool final)
{
	double sum = 0;
	for (int i = 0; i < exchanges; i++)
		sum += exchange(distance, bed_place(10, 0.01 * (i % 7 + 1)), final);
	return sum;
}

static void test_pull_in_training(void **state)
{
	(void)state;
	bed_train(&b, 20, STEP);
	double path = 20 * STEP, sum = pulled(40, 1, false);
	assert_true(sum > 0.9 * 4 * path && sum <= 4.001 * path);
	/* More of our own is more of its. */
	bed_train(&b, 20, STEP);
	sum += pulled(40, 1, false);
	assert_true(sum > 0.9 * 8 * path && sum <= 8.001 * path);
	/* What lies more than 256 steps back no longer counts, neither ours nor its. */
	bed_train(&b, 400, STEP / 400);
	assert_true(pulled(40, 1, false) <= 4 * 1.001 * STEP);
}

static void certify(int i, uint64_t label)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	e.membership.kind = EVENT_CERTIFIED;
	e.membership.certified.id = bed_id(i);
	e.membership.certified.label = label;
	e.membership.certified.agents = 1;
	bed_step(&b, e);
}

static void leaves(int i)
{
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct peer_id id = bed_id(i);
	struct member_view v;
	assert_true(gossip_find(flock_membership(b.core), &id, &v));
	m.update[0].kind = UPDATE_RECORD;
	m.update[0].raw.length = 1;
	m.update[0].record = v.record;
	m.update[0].record.left = true;
	m.update[0].record.version += 100;
	e.membership.kind = EVENT_RECEIVED;
	e.membership.received.from = id;
	e.membership.received.channel = CHANNEL_STREAM;
	e.membership.received.message = &m;
	bed_step(&b, e);
}

/* An id that goes and another of the same label are one agent. */
static void test_pull_of_a_label(void **state)
{
	(void)state;
	certify(9, 1);
	for (int i = 1; i <= 2; i++) {
		bed_record(&b, i, 0, 1);
		certify(i, 2);
	}
	bed_pass(&b, 250);
	bed_train(&b, 20, STEP);
	double sum = pulled(15, 1, false);
	assert_true(sum > 6);
	bed_record(&b, 1, 0, 1);
	leaves(1);
	bed_record(&b, 2, 0, 1);
	bed_pass(&b, 250);
	who = 2;
	sum += pulled(15, 1, false);
	assert_true(sum <= 4.001 * 20 * STEP);
}

static void test_pull_in_merge_rounds(void **state)
{
	(void)state;
	bed_train(&b, 100, STEP);
	pulled(16, 0.4, false);
	bed_record(&b, 1, BED_TOTAL, 1);
	bed_pass(&b, 200);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	double radius = bed_view(&b).radius;
	assert_true(radius > 0 && radius < 2);
	double sum = pulled(40, 0.8, true);
	assert_true(sum > 3.9 * radius && sum <= 4.001 * radius);
	assert_in_range(bed_view(&b).merge_rounds, 20, 40);
}

/* A peer that sends the same again has not moved, though it should have. */
static void test_standing_still(void **state)
{
	struct sketch same = bed_place(10, 0.05);
	(void)state;
	bed_train(&b, 100, STEP);
	exchange(1, same, false);
	assert_false(comes(1, same, false));
}

/* Nor should one have that may not have applied the exchange: its ACK never came. */
static void test_standing_still_in_doubt(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_END};
	struct sketch same = bed_place(10, 0.05);
	(void)state;
	bed_train(&b, 100, STEP);
	assert_true(comes(1, same, false));
	m.exchange = number;
	m.end.n = 2;
	m.end.factor[0] = m.end.factor[1] = 1;
	bed_hear(&b, 1, &m);
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = number};
	bed_hear(&b, 1, &m);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	for (int i = 0; i < 50; i++) {
		bed_record(&b, 1, 320, 1);
		bed_pass(&b, 100);
	}
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	assert_true(comes(1, same, false));
}

/* Twice may be a mistake of an honest peer: it is not used, no more. The third time is held against
 * it. */
static void test_third_doubt_is_held_against_a_peer(void **state)
{
	struct sketch same = bed_place(10, 0.05);
	(void)state;
	bed_train(&b, 100, STEP);
	exchange(1, same, false);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(bed_view(&b).quarantined, 0);
		assert_false(comes(1, same, false));
		bed_pass(&b, 10000); /* that it is left alone */
	}
	assert_int_equal(bed_view(&b).quarantined, 1);
}

/* All samples are trained, and the peer's too. */
static void merging(int peers)
{
	for (int i = 1; i <= peers; i++)
		bed_record(&b, i, BED_TOTAL, 1);
	bed_pass(&b, 200);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
}

/* In merge rounds, where nobody trains, one that is doubted is let in the next time. */
static void test_doubted_once_in_merge_rounds(void **state)
{
	struct sketch same = bed_place(10, 0.05);
	(void)state;
	bed_train(&b, 100, STEP);
	merging(1);
	exchange_now(0.5, same, true);
	assert_false(comes(0.5, same, true));
	for (int i = 0; i < 40 && !bed_sent(&b, EXCHANGE_OFFER); i++) {
		bed_record(&b, 1, BED_TOTAL, 1); /* it is left alone for a while */
		bed_pass(&b, 50);
	}
	assert_true(comes(0.5, same, true));
	assert_int_equal(bed_view(&b).quarantined, 0);
}

/* But at the place where we are by now nobody is drawn anywhere. */
static void test_standing_where_we_are(void **state)
{
	struct sketch same = bed_place(10, 0.05);
	(void)state;
	bed_train(&b, 100, STEP);
	exchange(1, same, false);
	assert_true(comes(0.0005, same, false));
}

static void evaluated(double loss)
{
	struct flock_event e = {.kind = FLOCK_EVENT_EVALUATED};
	assert_non_null(bed_did(&b, FLOCK_DO_EVALUATE));
	e.eval = (struct flock_eval){.loss = loss, .correct = 9, .count = 10, .asked = true};
	bed_step(&b, e);
}

static void until_finished(int peers)
{
	for (int i = 0; i < 40 && bed_view(&b).phase == FLOCK_MERGING; i++) {
		for (int k = 1; k <= peers; k++)
			bed_record(&b, k, BED_TOTAL, 1);
		bed_pass(&b, 100);
	}
}

/* The user sees what merging was worth: the model is evaluated before and after it. */
static void test_merged_model_is_evaluated(void **state)
{
	(void)state;
	bed_close(&b);
	evaluates = true;
	open_bed(state);
	bed_train(&b, 100, STEP);
	merging(1);
	evaluated(0.5);
	assert_true(bed_view(&b).has_local && !bed_view(&b).has_merged);
	bed_pass(&b, 100);
	exchange_now(0.0005, bed_place(10, 0.01), true);
	for (int i = 0; i < 20 && !bed_did(&b, FLOCK_DO_EVALUATE); i++)
		bed_pass(&b, 50);
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
	assert_non_null(bed_did(&b, FLOCK_DO_EXPORT));
	evaluated(0.4);
	assert_true(bed_view(&b).has_merged);
	assert_true(bed_view(&b).local.loss == 0.5 && bed_view(&b).merged.loss == 0.4);
}

/* Merging is over when all are near: after one that was far the others are asked again, and count
 * again. */
static void test_near_again(void **state)
{
	(void)state;
	bed_train(&b, 100, STEP);
	bed_record(&b, 2, 0, 1);
	merging(2);
	exchange_now(0.0005, bed_place(10, 0.01), true);
	who = 2;
	exchange_now(0.5, bed_place(10, 0.02), true);
	who = 1;
	exchange_now(0.0005, bed_place(10, 0.03), true);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	who = 2;
	exchange_now(0.0005, bed_place(10, 0.04), true);
	until_finished(2);
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
	assert_int_equal(bed_view(&b).merge_rounds, 4);
}

/* Whichever of them was the far one. */
static void test_both_are_near_again(void **state)
{
	(void)state;
	bed_train(&b, 100, STEP);
	bed_record(&b, 2, 0, 1);
	merging(2);
	exchange_now(0.0005, bed_place(10, 0.01), true);
	who = 2;
	exchange_now(0.5, bed_place(10, 0.02), true);
	exchange_now(0.0005, bed_place(10, 0.03), true);
	until_finished(2);
	assert_int_equal(bed_view(&b).merge_rounds, 3);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
}

/* Of more than eight partners eight are enough, and no more are remembered. */
static void test_eight_are_near(void **state)
{
	(void)state;
	bed_train(&b, 100, STEP);
	for (int i = 2; i <= 8; i++)
		bed_record(&b, i, 0, 1);
	bed_record(&b, 20, 0, 1);
	bed_record(&b, 21, 0, 1);
	merging(8);
	for (int i = 1; i <= 8; i++) {
		who = i;
		exchange_now(0.0005, bed_place(10, 0.01 * i), true);
	}
	who = 20;
	exchange_now(0.0005, bed_place(10, 0.2), true);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	bed_pass(&b, 150);
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
	assert_int_equal(bed_view(&b).merge_rounds, 9);
}

/* One that is done before us merges with us; our own rounds begin when we are done. */
static void test_round_of_training_is_none_of_ours(void **state)
{
	(void)state;
	bed_train(&b, 100, STEP);
	exchange(0.0005, bed_place(10, 0.01), true);
	/* Nor is one that goes on while our run ends. */
	assert_true(comes(0.0005, bed_place(10, 0.02), false));
	merging(1);
	to_its_end();
	until_finished(1);
	assert_int_equal(bed_view(&b).merge_rounds, 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
}

/* One in quarantine is no partner that has to be near before merging is over. */
static void test_quarantined_is_not_merged_with(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_COMMIT};
	(void)state;
	bed_train(&b, 100, STEP);
	bed_record(&b, 2, 0, 1);
	merging(2);
	struct exchange_message o = bed_offer(&b, ++number);
	o.terms.final = true;
	o.terms.clock = BED_TOTAL;
	bed_hear(&b, 2, &o);
	m.exchange = number;
	bed_hear(&b, 2, &m); /* out of turn */
	assert_int_equal(bed_view(&b).quarantined, 1);
	exchange_now(0.0005, bed_place(10, 0.01), true);
	until_finished(2);
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_pull_in_training, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_pull_of_a_label, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_pull_in_merge_rounds, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_merged_model_is_evaluated, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_near_again, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_both_are_near_again, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_eight_are_near, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_round_of_training_is_none_of_ours, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_quarantined_is_not_merged_with, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_standing_still, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_standing_still_in_doubt, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_third_doubt_is_held_against_a_peer, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_doubted_once_in_merge_rounds, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_standing_where_we_are, open_bed, close_bed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
