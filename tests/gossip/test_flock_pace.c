/* SPDX-License-Identifier: MIT */
/* Agents whose steps are slow, or of very different speed. A snapshot waits for the end of a step,
 * so the time that a transfer is given follows the longer step of the two. */
#include "tests/gossip/flock_bed.h"

#define FLOOR_MS 2000 /* of a transfer of so few bytes */

static struct bed b;

static void step_takes(uint64_t ms)
{
	for (uint64_t at = 0; at < ms; at += 500) {
		bed_record(&b, 1, 3200, 1);
		bed_pass(&b, ms - at < 500 ? ms - at : 500);
	}
	bed_train(&b, 1, 0.1);
}

/* With that many steps between offers of ours; its last three took so long. */
static void open_with(uint64_t every, uint64_t ms0, uint64_t ms1, uint64_t ms2)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.gate.every_samples = 32 * every;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	step_takes(ms0);
	step_takes(ms1);
	step_takes(ms2);
}

/* How long the transfer may take, once it has its connection at once. */
static uint64_t transfer_ms(uint64_t number)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(1), .exchange = number};
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	return t->transfer.deadline_ms;
}

/* One offers to us whose steps take that long, by its word. */
static uint64_t offered(uint32_t told_ms, uint32_t *say_ms)
{
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.step_ms = told_ms;
	bed_hear(&b, 1, &m);
	const struct exchange_message *accept = bed_sent(&b, EXCHANGE_ACCEPT);
	assert_non_null(accept);
	*say_ms = accept->terms.step_ms;
	uint64_t ms = transfer_ms(1);
	bed_close(&b);
	return ms;
}

static void test_own_steps(void **state)
{
	uint32_t say_ms;
	(void)state;
	open_with(1000000, 100, 100, 100); /* not worth a word */
	assert_int_equal(offered(0, &say_ms), FLOOR_MS);
	assert_int_equal(say_ms, 0);
	open_with(1000000, 3000, 3000, 3000);
	assert_int_equal(offered(0, &say_ms), FLOOR_MS + 3 * 3000);
	assert_int_equal(say_ms, 3000);
	/* A long pause between two steps is not their length. */
	open_with(1000000, 100, 100, 60000);
	assert_int_equal(offered(0, &say_ms), FLOOR_MS);
	assert_int_equal(say_ms, 0);
}

/* The step under way has taken that long already, and is the first that does. */
static void test_step_under_way(void **state)
{
	uint32_t say_ms;
	(void)state;
	open_with(1000000, 100, 100, 100);
	for (int i = 0; i < 5; i++) {
		bed_record(&b, 1, 3200, 1);
		bed_pass(&b, 500);
	}
	assert_int_equal(offered(0, &say_ms), FLOOR_MS + 3 * 2500);
	assert_int_equal(say_ms, 2500);
}

/* After a pause the steps of before say nothing, nor does the pause. */
static void test_steps_after_a_pause(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH, .wish = WISH_PAUSE};
	uint32_t say_ms;
	(void)state;
	open_with(1000000, 1000, 1000, 1000);
	bed_step(&b, e);
	for (int i = 0; i < 30; i++) {
		bed_record(&b, 1, 3200, 1);
		bed_pass(&b, 500);
	}
	e.wish = WISH_RESUME;
	bed_step(&b, e);
	step_takes(3000);
	assert_int_equal(offered(0, &say_ms), FLOOR_MS + 3 * 3000);
	assert_int_equal(say_ms, 3000);
}

/* What waits for a long step is not tried on a connection that may be dead. */
static void test_fresh_connections(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		uint64_t ms = slow ? 600 : 100;
		open_with(4, ms, ms, ms);
		for (int i = 0; i < 20 && !bed_sent(&b, EXCHANGE_OFFER); i++)
			step_takes(ms);
		const struct exchange_message *offer = bed_sent(&b, EXCHANGE_OFFER);
		assert_non_null(offer);
		struct exchange_message m = *offer;
		m.kind = EXCHANGE_ACCEPT;
		bed_hear(&b, 1, &m);
		assert_non_null(bed_did(&b, FLOCK_DO_OPEN));
		assert_int_equal(bed_did(&b, FLOCK_DO_OPEN)->fresh, slow);
		bed_close(&b);
	}
}

/* Who trains no more has no steps to wait for. */
static void test_none_in_merge_rounds(void **state)
{
	int offers = 0;
	(void)state;
	open_with(1000000, 3000, 3000, 3000);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	for (int i = 0; i < 160; i++) {
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 50);
		const struct exchange_message *m = bed_sent(&b, EXCHANGE_OFFER);
		if (!m)
			continue;
		offers++;
		assert_true(m->terms.final);
		assert_int_equal(m->terms.step_ms, 0);
	}
	assert_true(offers > 1);
	bed_close(&b);
}

/* A peer's word counts for 4.5 s, or for as long as our own steps are. */
static void test_told_steps(void **state)
{
	uint32_t say_ms;
	(void)state;
	open_with(1000000, 100, 100, 100);
	assert_int_equal(offered(4000, &say_ms), FLOOR_MS + 3 * 4000);
	assert_int_equal(say_ms, 0); /* each speaks of its own */
	open_with(1000000, 100, 100, 100);
	assert_int_equal(offered(UINT32_MAX, &say_ms), FLOOR_MS + 3 * 4500);
	open_with(1000000, 6000, 6000, 6000);
	assert_int_equal(offered(UINT32_MAX, &say_ms), FLOOR_MS + 3 * 6000);
	open_with(1000000, 6000, 6000, 6000);
	assert_int_equal(offered(1000, &say_ms), FLOOR_MS + 3 * 6000);
}

/* The same with the answer to an offer of ours, which was made without it. */
static void test_told_in_the_answer(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		open_with(10, 100, 100, 100);
		for (int i = 0; i < 20 && !bed_sent(&b, EXCHANGE_OFFER); i++)
			step_takes(100);
		assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
		struct exchange_message m = *bed_sent(&b, EXCHANGE_OFFER);
		assert_int_equal(m.terms.step_ms, 0);
		m.kind = EXCHANGE_ACCEPT;
		m.terms.step_ms = slow ? 4000 : 0;
		bed_hear(&b, 1, &m);
		assert_int_equal(transfer_ms(m.exchange), slow ? FLOOR_MS + 3 * 4000 : FLOOR_MS);
		bed_close(&b);
	}
}

/* ---- a joiner asks */

static void ask(uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = number};
	m.fetch.manifest = b.c.manifest;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_did(&b, FLOCK_DO_TAKE_STATE));
}

static void state_taken(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_STATE};
	e.state = (struct flock_state){.step = 10, .vectors = 2};
	bed_step(&b, e);
}

/* A donor copies its state at the end of its step, and says how long that takes. Its place is the
 * joiner's until then. */
static void test_donor_tells_slow_steps(void **state)
{
	(void)state;
	open_with(1000000, 100, 100, 100);
	ask(7);
	assert_int_equal(b.a->n_sends, 0); /* the copy will be there at once */
	bed_close(&b);
	open_with(1000000, 19000, 19000, 19000);
	ask(7);
	const struct exchange_message *m = bed_sent(&b, EXCHANGE_SOON);
	assert_non_null(m);
	assert_int_equal(m->exchange, 7);
	assert_int_equal(m->step_ms, 19000);
	step_takes(19000);
	state_taken();
	m = bed_sent(&b, EXCHANGE_GIFT);
	assert_non_null(m);
	assert_int_equal(m->exchange, 7);
	bed_close(&b);
}

/* But not for ever, should the learner be stuck. */
static void test_place_without_a_copy(void **state)
{
	(void)state;
	open_with(1000000, 19000, 19000, 19000);
	ask(7);
	step_takes(40000);
	state_taken();
	assert_null(bed_sent(&b, EXCHANGE_GIFT));
	bed_close(&b);
}

/* By the bytes of the format that is agreed. */
static void test_time_follows_the_format(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.exchange_bytes[0] = 40000000;
	c.exchange_bytes[1] = 20000000;
	for (uint8_t format = 0; format < 2; format++) {
		bed_open(&b, &c);
		bed_train_with(&b, 1);
		for (int i = 0; i < 3; i++)
			step_takes(100);
		struct exchange_message m = bed_offer(&b, 1);
		m.terms.format = format;
		bed_hear(&b, 1, &m);
		assert_int_equal(transfer_ms(1), format == 0 ? 40000 : 20000); /* 1 MB a second */
		bed_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_own_steps),
	        cmocka_unit_test(test_step_under_way),
	        cmocka_unit_test(test_steps_after_a_pause),
	        cmocka_unit_test(test_none_in_merge_rounds),
	        cmocka_unit_test(test_fresh_connections),
	        cmocka_unit_test(test_told_steps),
	        cmocka_unit_test(test_told_in_the_answer),
	        cmocka_unit_test(test_donor_tells_slow_steps),
	        cmocka_unit_test(test_place_without_a_copy),
	        cmocka_unit_test(test_time_follows_the_format),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
