/* SPDX-License-Identifier: MIT */
/* What of the run an agent has missed: nothing that was trained while it was in touch. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

/* So many times 100 ms, in which it trains, and peer 1 by ten times as much. */
static uint64_t together(int times, uint64_t its)
{
	for (int i = 0; i < times; i++) {
		bed_train(&b, 10, 0.1);
		bed_record(&b, 1, its += 3200, 1);
		bed_pass(&b, 100);
	}
	return its;
}

static int open_bed(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.alone = true;
	bed_open(&b, &c);
	bed_pass(&b, 500);
	bed_record(&b, 1, 0, 1);
	return 0;
}

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

/* Its last record tells of a fifth of the run; at the next look at the clock nobody is there. */
static void test_last_words_are_not_missed(void **state)
{
	uint64_t its = together(10, 0);
	(void)state;
	bed_word(&b, 1, its + BED_TOTAL / 5, 1, true);
	bed_train(&b, 1, 0.1);
	assert_int_equal(bed_view(&b).candidates, 0);
	for (int i = 0; i < 20; i++) {
		bed_train(&b, 1, 0.1);
		bed_pass(&b, 100);
		assert_false(bed_view(&b).joining);
	}
	assert_true(bed_view(&b).clock > BED_TOTAL / 5);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
}

/* It comes back later: what it trained meanwhile, alone, was missed. */
static void test_what_was_trained_apart_is(void **state)
{
	uint64_t its = together(10, 0);
	(void)state;
	bed_word(&b, 1, its, 1, true);
	for (int i = 0; i < 20; i++)
		bed_pass(&b, 100);
	bed_record(&b, 1, its + BED_TOTAL / 5, 1);
	bed_pass(&b, 200);
	assert_true(bed_view(&b).joining);
}

static void event(struct flock_event e, uint64_t exchange)
{
	e.peer = bed_id(1);
	e.exchange = exchange;
	bed_step(&b, e);
}

/* What the donor says of itself when it gives its state is in that state. */
static void test_a_joiner_is_not_stale_at_once(void **state)
{
	struct flock_config c = bed_config();
	struct flock_event moved = {.kind = FLOCK_EVENT_TRANSFERRED},
	                   measured = {.kind = FLOCK_EVENT_MEASURED},
	                   tried = {.kind = FLOCK_EVENT_TRIED};
	(void)state;
	bed_open(&b, &c);
	bed_record(&b, 1, BED_TOTAL / 10, 1);
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	assert_non_null(bed_sent(&b, EXCHANGE_FETCH));
	uint64_t x = bed_sent(&b, EXCHANGE_FETCH)->exchange;
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = x};
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = 5;
	m.gift.samples = m.gift.clock = BED_TOTAL / 2;
	m.gift.step = m.gift.samples / 32;
	m.gift.vectors = m.gift.n = 2;
	bed_hear(&b, 1, &m);
	event((struct flock_event){.kind = FLOCK_EVENT_BULK, .bulk = BULK_CAME}, x);
	moved.transferred.use = USE_FETCH;
	moved.transferred.received = 2 * BED_COUNT;
	event(moved, x);
	measured.measured.slot = SLOT_FETCHED;
	measured.measured.finite = true;
	measured.measured.sketch = &b.place;
	event(measured, x);
	tried.tried = (struct flock_trial){.loss = 1, .own = 2, .initial = 2};
	event(tried, x);
	event((struct flock_event){.kind = FLOCK_EVENT_ADOPTED}, x);
	assert_non_null(bed_said(&b, SAY_JOINED));
	for (int i = 0; i < 10; i++) {
		bed_train(&b, 1, 0.1);
		bed_pass(&b, 100);
		assert_false(bed_view(&b).joining);
	}
	assert_true(bed_view(&b).clock >= BED_TOTAL / 2);
	bed_close(&b);
}

/* One that looked for peers and found none was cut off from them: what they trained was missed. */
static void test_alone_for_want_of_peers(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	for (int alone = 0; alone < 2; alone++) {
		c.alone = alone;
		c.rate_cap = 1e12;
		bed_open(&b, &c);
		bed_pass(&b, 1500);
		assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
		bed_train(&b, 10, 0.1);
		bed_pass(&b, 1500);
		bed_record(&b, 1, BED_TOTAL / 5, 1);
		bed_pass(&b, 200);
		assert_int_equal(bed_view(&b).joining, !alone);
		bed_close(&b);
	}
}

/* It slept, and hears of a fifth of the run that long after; true: that was missed. */
static bool missed_after(uint64_t ms)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	bed_pass(&b, 1000);
	b.now_ms += 2000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	uint64_t woke_ms = b.now_ms;
	while (b.now_ms < woke_ms + ms - 50) { /* it is there all the time */
		bed_record(&b, 1, 0, 1);
		bed_pass(&b, 50);
	}
	bed_record(&b, 1, BED_TOTAL / 5, 1);
	bed_pass(&b, 250);
	bool joining = bed_view(&b).joining;
	bed_close(&b);
	return joining;
}

/* What was trained while we slept is known to all half a minute later; after that it is news. */
static void test_half_a_minute_after_a_sleep(void **state)
{
	(void)state;
	assert_true(missed_after(29900));
	assert_false(missed_after(30000));
}

/* What a machine saw of peers before it slept is old: it looks for them once more. */
static void test_sleep_while_it_looks(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_pass(&b, 900);
	b.now_ms += 6000;
	bed_pass(&b, 900);
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	bed_pass(&b, 300);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_close(&b);
}

/* The only one that was there has left before we decide: nobody is there to train with. */
static void test_peer_that_left_while_we_look(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_record(&b, 1, 0, 1);
	bed_pass(&b, 650);
	bed_word(&b, 1, 0, 1, true);
	for (int i = 0; i < 40 && bed_view(&b).phase == FLOCK_LOOKING; i++)
		bed_pass(&b, 50);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_null(bed_said(&b, SAY_TRAINS_AT_ONCE));
	assert_non_null(bed_said(&b, SAY_ALONE));
	bed_close(&b);
}

/* From the first peer that it sees it waits for the others' news, no longer. */
static void test_looks_for_700_ms(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_record(&b, 1, 0, 1);
	bed_pass(&b, 700);
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	bed_pass(&b, 50);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_int_equal(bed_said(&b, SAY_TRAINS_AT_ONCE)->a, 1);
	assert_int_equal(bed_said(&b, SAY_TRAINS_AT_ONCE)->b, 0);
	bed_close(&b);
}

/* Samples of an earlier life count as our own, and all hear of them; the learner hears of the
 * others', in which a partner's view of the clock counts ours no second time. */
static void test_whose_samples_are_whose(void **state)
{
	struct flock_config c = bed_config();
	struct flock_action clock = {0};
	(void)state;
	c.samples_before = 1000;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 100, 0.1);
	assert_int_equal(flock_samples(b.core), 1000 + 3200);
	for (int i = 0; i < 120; i++) { /* its record is renewed every 5 s */
		bed_record(&b, 1, 0, 1);
		bed_pass(&b, 50);
	}
	assert_int_equal(gossip_self(flock_membership(b.core))->status.samples, 4200);
	assert_int_equal(gossip_self(flock_membership(b.core))->status.step, 100);
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.samples = 0;
	m.terms.clock = 10000;
	bed_hear(&b, 1, &m);
	for (int i = 0; i < 10; i++) {
		bed_pass(&b, 50);
		if (bed_did(&b, FLOCK_DO_CLOCK))
			clock = *bed_did(&b, FLOCK_DO_CLOCK);
	}
	assert_int_equal(bed_view(&b).clock, 10000);
	assert_int_equal(clock.others, 10000 - 3200);
	assert_int_equal(clock.agents, 2);
	bed_close(&b);
}

/* The run is nearly over, and nobody is left who could give what was missed: no result. */
static void nobody_gives(uint64_t its, bool result)
{
	struct flock_config c = bed_config();
	c.resumed = true;
	c.samples = 320;
	c.step = 10;
	c.rate_cap = 1e12;
	bed_open(&b, &c);
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++) {
		bed_record(&b, 1, its, 1);
		bed_pass(&b, 50);
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
	uint64_t began_ms = b.now_ms;
	bed_word(&b, 1, its, 1, true);
	for (int k = 0; k < 100 && bed_view(&b).phase == FLOCK_JOINING; k++)
		bed_pass(&b, 50);
	/* Somebody may come, for as long as a start waits. */
	assert_in_range(b.now_ms - began_ms, 900, 1600);
	assert_int_equal(bed_view(&b).phase, result ? FLOCK_TRAINING : FLOCK_LEAVING);
	const struct flock_say *s = bed_said(&b, SAY_JOIN_NOBODY);
	assert_int_equal(s && s->flag, result); /* it goes on from its checkpoint */
	s = bed_said(&b, SAY_NO_RESULT);
	assert_int_equal(s ? s->a : 0, result ? 0 : its);
	bed_close(&b);
}

static void test_no_result_without_a_donor(void **state)
{
	(void)state;
	nobody_gives(BED_TOTAL / 2, true);
	nobody_gives(BED_TOTAL / 100 * 95, false);
}

/* Found out and left in one step: nothing is asked of a learner that was told to stop, though a
 * sketch of where we are is due. */
static void test_nothing_is_taken_from_who_leaves(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12;
	c.join_ms = 0;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	b.now_ms += 2000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	bed_train(&b, 10, 1);
	bed_record(&b, 1, BED_TOTAL / 100 * 95, 1);
	bed_word(&b, 1, BED_TOTAL / 100 * 95, 1, true);
	for (int k = 0; k < 10 && bed_view(&b).phase == FLOCK_TRAINING; k++) {
		b.now_ms += 50;
		bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_LEAVING);
	assert_non_null(bed_said(&b, SAY_NO_RESULT));
	assert_non_null(bed_did(&b, FLOCK_DO_STOP));
	assert_null(bed_did(&b, FLOCK_DO_SNAPSHOT));
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(
	                test_last_words_are_not_missed, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_what_was_trained_apart_is, open_bed, close_bed),
	        cmocka_unit_test(test_a_joiner_is_not_stale_at_once),
	        cmocka_unit_test(test_alone_for_want_of_peers),
	        cmocka_unit_test(test_half_a_minute_after_a_sleep),
	        cmocka_unit_test(test_sleep_while_it_looks),
	        cmocka_unit_test(test_peer_that_left_while_we_look),
	        cmocka_unit_test(test_looks_for_700_ms),
	        cmocka_unit_test(test_whose_samples_are_whose),
	        cmocka_unit_test(test_no_result_without_a_donor),
	        cmocka_unit_test(test_nothing_is_taken_from_who_leaves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
