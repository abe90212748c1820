/* SPDX-License-Identifier: MIT */
/* What an agent tells of itself, and what it counts: losses, bytes, rounds, refusals; what it has
 * missed; who is gone; whose rate is usual. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;

static void open_with(double rate_cap, double stale, uint32_t every)
{
	struct flock_config c = bed_config();
	c.rate_cap = rate_cap;
	c.stale = stale;
	c.gate.every_samples = every * UINT64_C(32);
	bed_open(&b, &c);
	bed_train_with(&b, 1);
}

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

/* Seconds in which we hear of peer 1, ten times each, and both train so many samples in all. */
static void in_touch(int seconds, uint64_t *its, int steps)
{
	for (int i = 0; i < 10 * seconds; i++) {
		bed_train(&b, steps, 0.01);
		*its += (uint64_t)steps * 32;
		bed_record(&b, 1, *its, 1);
		bed_pass(&b, 100);
	}
}

/* ---- what was missed */

static void sleep_and_train(uint64_t *its, int steps, uint64_t missed)
{
	b.now_ms += 3000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	bed_train(&b, steps, 0.01);
	*its += missed;
	bed_record(&b, 1, *its, 1);
	bed_pass(&b, 300);
}

/* Stale is who missed more than a share of the run and more than it trained itself meanwhile; what
 * it trained while in touch does not count. */
static void test_missed_is_held_against_own(void **state)
{
	uint64_t its = 0;
	(void)state;
	open_with(1e12, 0.01, 1000000);
	in_touch(40, &its, 2);
	sleep_and_train(&its, 1000, 20000);
	assert_false(bed_view(&b).joining);
	bed_close(&b);
	its = 0;
	open_with(1e12, 0.01, 1000000);
	in_touch(40, &its, 2);
	sleep_and_train(&its, 100, 20000);
	assert_true(bed_view(&b).joining);
}

/* Who was told to pause does nothing about it before the pause, or the run, is over. */
static void test_paused_agent_takes_no_state(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH};
	uint64_t its = 0;
	(void)state;
	open_with(1e12, 0.01, 1000000);
	in_touch(2, &its, 2);
	e.wish = WISH_PAUSE;
	bed_step(&b, e);
	bed_record(&b, 1, its + 50000, 1);
	bed_pass(&b, 500);
	assert_false(bed_view(&b).joining);
	bed_record(&b, 1, BED_TOTAL, 1);
	bed_pass(&b, 500);
	assert_true(bed_view(&b).joining);
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
}

/* ---- who is gone */

static void test_exchange_with_one_that_left(void **state)
{
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct exchange_message offer;
	struct member_view v;
	(void)state;
	open_with(1e12, 10, 1000000);
	bed_train(&b, 10, 0.1);
	bed_record(&b, 1, 320, 1);
	offer = bed_offer(&b, 1);
	bed_hear(&b, 1, &offer);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_PREPARING);
	struct peer_id id = bed_id(1), with = bed_view(&b).exchange_peer;
	assert_memory_equal(&with, &id, sizeof id);
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
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	assert_int_equal(bed_view(&b).counts.by_outcome[OUTCOME_BROKEN], 1);
}

/* ---- words and numbers */

static void test_answer_without_a_sketch(void **state)
{
	(void)state;
	open_with(1e12, 10, 40);
	for (int i = 0; i < 100 && !bed_sent(&b, EXCHANGE_OFFER); i++) {
		bed_record(&b, 1, 0, 1);
		bed_pass(&b, 50);
		bed_train(&b, 1, 0.1);
	}
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	struct exchange_message m = *bed_sent(&b, EXCHANGE_OFFER);
	m.kind = EXCHANGE_ACCEPT;
	m.terms.sketch_length = 0;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ABORT));
	assert_string_equal(bed_sent(&b, EXCHANGE_ABORT)->busy.words, "no sketch");
	assert_int_equal(bed_sent(&b, EXCHANGE_ABORT)->busy.why, EXCHANGE_UNKNOWN);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

static void test_loss_is_smoothed(void **state)
{
	(void)state;
	open_with(1e12, 10, 1000000);
	assert_false(bed_view(&b).has_loss);
	b.loss = 4;
	bed_train(&b, 1, 0.1);
	assert_true(bed_view(&b).has_loss && fabs(bed_view(&b).loss - 4) < 1e-9);
	b.loss = 2;
	bed_train(&b, 1, 0.1);
	assert_true(fabs(bed_view(&b).loss - (4 - 2.0 / 50)) < 1e-9);
	bed_train(&b, 400, 0.1);
	assert_true(bed_view(&b).loss > 2 && bed_view(&b).loss < 2.01);
	assert_int_equal(bed_view(&b).step, 402);
	assert_int_equal(bed_view(&b).samples, 402 * 32);
	assert_int_equal(bed_view(&b).total, BED_TOTAL);
	assert_true(fabs(bed_view(&b).lr - 0.1) < 1e-9);
}

/* The state that is asked for, as far as it goes. */
static const struct exchange_message *fetch(int from, uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = number};
	m.fetch.manifest = b.c.manifest;
	bed_hear(&b, from, &m);
	if (bed_did(&b, FLOCK_DO_TAKE_STATE)) {
		struct flock_event e = {.kind = FLOCK_EVENT_STATE};
		e.state = (struct flock_state){.step = 10, .vectors = 2};
		bed_step(&b, e);
	}
	return bed_sent(&b, EXCHANGE_GIFT);
}

static void transferred(int to, uint64_t number, int code)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(to), .exchange = number};
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
	uint8_t use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number, .code = code};
	e.transferred.use = use;
	e.transferred.bytes_sent = 2000;
	e.transferred.bytes_received = 30;
	bed_step(&b, e);
}

static void test_donations_are_counted(void **state)
{
	struct flock_counts *c = &(struct flock_counts){0};
	(void)state;
	open_with(1e12, 10, 1000000);
	bed_train(&b, 10, 0.1);
	assert_non_null(fetch(2, 1));
	uint64_t copy = bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot;
	transferred(2, 1, 0);
	assert_non_null(bed_said(&b, SAY_DONATED));
	assert_int_equal(bed_said(&b, SAY_DONATED)->a, 10);
	assert_int_equal(bed_view(&b).counts.donations, 1);
	assert_non_null(fetch(3, 2));
	assert_int_equal(bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot, copy);
	transferred(3, 2, ERR_IO);
	assert_non_null(bed_said(&b, SAY_DONATION_BROKEN));
	assert_int_equal(bed_said(&b, SAY_DONATION_BROKEN)->error, ERR_IO);
	*c = bed_view(&b).counts;
	assert_int_equal(c->donations, 1);
	assert_int_equal(c->donated_bytes, 4000);
	assert_int_equal(c->bytes_sent, 4000);
	assert_int_equal(c->bytes_received, 60);
	/* A copy that is old, and that nobody reads, makes room for a fresh one. */
	bed_pass(&b, 20000);
	assert_non_null(fetch(4, 3));
	assert_int_not_equal(bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot, copy);
}

static void test_refusals_say_why(void **state)
{
	struct flock_config c = bed_config();
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = 1};
	(void)state;
	bed_open(&b, &c);
	m.fetch.manifest = b.c.manifest;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_string_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.words, "nothing to give now");
	m.fetch.manifest.model++;
	bed_hear(&b, 1, &m);
	assert_string_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.words, "another run or model");
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_UNLIKE);
}

/* ---- rates */

/* Two fast peers that offered, but never exchanged with us, do not make their rate usual. */
static void test_strangers_rates_are_not_usual(void **state)
{
	struct flock_config c = bed_config();
	uint64_t its[4] = {0};
	(void)state;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	bed_train_with(&b, 3);
	for (int i = 0; i < 50; i++) {
		bed_train(&b, 1, 0.1);
		for (int k = 1; k <= 3; k++)
			bed_record(&b, k, its[k] += k == 1 ? 32 : 4000, 1);
		bed_pass(&b, 100);
	}
	for (int k = 2; k <= 3; k++) {
		struct exchange_message m = bed_offer(&b, (uint64_t)k);
		bed_hear(&b, k, &m);
		assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
		m = (struct exchange_message){.kind = EXCHANGE_ABORT, .exchange = (uint64_t)k};
		bed_hear(&b, k, &m);
	}
	uint64_t before = bed_view(&b).clock;
	bed_record(&b, 1, 1ull << 39, 1);
	for (int i = 0; i < 50; i++) {
		bed_train(&b, 1, 0.1);
		for (int k = 2; k <= 3; k++)
			bed_record(&b, k, its[k] += 4000, 1);
		bed_pass(&b, 100);
	}
	/* 5 s of 256 times our own rate, and of theirs. */
	assert_true(bed_view(&b).clock - before < 5 * (320 * 257 + 2 * 40000) * 3 / 2);
	assert_true(bed_view(&b).clock - before > 3 * 320 * 256);
}

/* Pulls of the time before the parameters were set do not count. */
static void test_pulls_end_with_the_parameters(void **state)
{
	static _Alignas(64) uint8_t memory[1 << 20];
	struct partners_config c = {.seed = 1, .rate = 1, .burst = 4, .per_byte_ms = 0.001};
	struct partners *p = (struct partners *)memory;
	struct peer_id id = bed_id(1);
	(void)state;
	assert_true(partners_size() <= sizeof memory);
	partners_init(p, &c);
	partners_path(p, 1, 1);
	partners_pulled(p, &id, 3, false, 1000);
	assert_true(fabs(partners_pull_left(p, &id) - 1) < 1e-9);
	partners_path(p, 2, 0);
	partners_path(p, 3, 1);
	assert_true(fabs(partners_pull_left(p, &id) - 4) < 1e-9);
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_missed_is_held_against_own),
	        TEST(test_paused_agent_takes_no_state),
	        TEST(test_exchange_with_one_that_left),
	        TEST(test_answer_without_a_sketch),
	        TEST(test_loss_is_smoothed),
	        TEST(test_donations_are_counted),
	        TEST(test_refusals_say_why),
	        TEST(test_strangers_rates_are_not_usual),
	        cmocka_unit_test(test_pulls_end_with_the_parameters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
