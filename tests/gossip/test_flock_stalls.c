/* SPDX-License-Identifier: MIT */
/* Peers that begin something and let us wait: an exchange whose bulk connection never comes, a
 * state that is asked for and not fetched. Others get their turn. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

static int open_bed(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.exchange_bytes[0] = c.exchange_bytes[1] = 100000000; /* a deadline of 100 s */
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

static bool takes_offer(int from, uint64_t number)
{
	struct exchange_message m = bed_offer(&b, number);
	bed_hear(&b, from, &m);
	return bed_sent(&b, EXCHANGE_ACCEPT) != NULL;
}

static void test_no_bulk_connection(void **state)
{
	int taken = 0;
	(void)state;
	assert_true(takes_offer(1, 1));
	bed_pass(&b, 3050);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	assert_int_equal(bed_view(&b).counts.by_outcome[OUTCOME_TIMEOUT], 1);
	/* It offers ten times a second, for a minute: it gets a few turns, of 3 s each. */
	uint64_t busy_ms = 0;
	for (uint64_t k = 2; k < 602; k++) {
		taken += takes_offer(1, k);
		bed_pass(&b, 100);
		busy_ms += bed_view(&b).exchange_state != EXCHANGE_IDLE ? 100 : 0;
	}
	assert_true(taken >= 1 && taken <= 7);
	assert_true(busy_ms <= 25000);
	for (int k = 0; k < 80 && bed_view(&b).exchange_state != EXCHANGE_IDLE; k++)
		bed_pass(&b, 50);
	assert_true(takes_offer(2, 1000));
}

static bool gives(int to, uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = number};
	m.fetch.manifest = b.c.manifest;
	bed_hear(&b, to, &m);
	if (bed_did(&b, FLOCK_DO_TAKE_STATE)) {
		struct flock_event e = {.kind = FLOCK_EVENT_STATE};
		e.state = (struct flock_state){.step = 10, .vectors = 2};
		bed_step(&b, e);
	}
	return bed_sent(&b, EXCHANGE_GIFT) != NULL;
}

/* Its bulk connection comes; the use that the transfer has. */
static uint8_t opens(int from, uint64_t number)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(from), .exchange = number};
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	return t->use;
}

static void test_last_place_is_for_known_peers(void **state)
{
	(void)state;
	bed_pass(&b, 50); /* it looks at them every 100 ms, at this moment, too */
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++)
		assert_true(gives(3 + i, 1));
	assert_false(gives(9, 1));
	/* There are 15 s, to the last moment. */
	bed_pass(&b, 15000);
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++)
		(void)opens(3 + i, 1);
	bed_close(&b);
	open_bed(state);
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++)
		assert_true(gives(3 + i, 1));
	/* Who did not come is not served again at once. */
	bed_pass(&b, 15200);
	assert_false(gives(3, 2));
	assert_true(gives(9, 2));
}

static void ends(uint8_t use, uint64_t number)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number};
	e.transferred.use = use;
	e.code = ERR_CANCELLED;
	bed_step(&b, e);
}

static void times_out(uint8_t use, uint64_t number, uint64_t bytes)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number};
	e.transferred.use = use;
	e.transferred.bytes_sent = bytes;
	e.code = ERR_TIMEOUT;
	bed_step(&b, e);
}

/* Who takes next to nothing is left alone for a while; who is on a slow link asks for the rest. */
static void test_least_rate(void **state)
{
	(void)state;
	assert_true(gives(3, 1));
	uint8_t use = opens(3, 1);
	assert_true(bed_did(&b, FLOCK_DO_TRANSFER)->transfer.deadline_ms <= 10000); /* 2 kB */
	bed_pass(&b, 10000);
	times_out(use, 1, 2000);
	assert_false(gives(3, 2));
	assert_true(gives(4, 3));
	use = opens(4, 3);
	bed_pass(&b, 10000);
	times_out(use, 3, 50000);
	assert_true(gives(4, 4));
}

/* A slow upload, shared by four, is no reason to break a transfer off: 31 kB/s have to do. */
static void test_slow_upload(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_close(&b);
	c.manifest.count = 1000000; /* 8 MB */
	bed_open(&b, &c);
	bed_train_with(&b, 2);
	bed_train(&b, 10, 0.1);
	assert_true(gives(3, 1));
	opens(3, 1);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_true(t->transfer.deadline_ms >= 8000000 / 31);
}

/* Three read slowly, and so does a fourth as soon as there is room: a newcomer gets its turn. */
static void test_slow_readers_give_way(void **state)
{
	uint8_t use[FLOCK_DONATIONS - 1];
	(void)state;
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++) {
		assert_true(gives(3 + i, 1));
		use[i] = opens(3 + i, 1);
		bed_pass(&b, 100);
	}
	assert_false(gives(9, 1)); /* each has a turn of some seconds */
	assert_null(bed_did(&b, FLOCK_DO_CANCEL));
	bed_pass(&b, 6000);
	assert_false(gives(9, 2));
	const struct flock_action *a = bed_did(&b, FLOCK_DO_CANCEL);
	assert_non_null(a);
	assert_int_equal(a->use, use[0]);
	ends(use[0], 1);
	assert_false(gives(8, 3)); /* the place is another's */
	assert_false(gives(3, 3)); /* and who had its turn must not take it */
	assert_true(gives(9, 3));
	/* Nobody gives way to who has just had its turn. */
	bed_pass(&b, 4000);
	assert_false(gives(3, 4));
	assert_null(bed_did(&b, FLOCK_DO_CANCEL));
	assert_false(gives(8, 4));
	assert_non_null(bed_did(&b, FLOCK_DO_CANCEL));
}

/* So do some that have asked and do not come. */
static void test_who_does_not_come_gives_way(void **state)
{
	(void)state;
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++)
		assert_true(gives(3 + i, 1));
	bed_pass(&b, 6000);
	assert_false(gives(9, 2));
	assert_null(bed_did(&b, FLOCK_DO_CANCEL));
	assert_true(gives(9, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_no_bulk_connection, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_last_place_is_for_known_peers, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_least_rate, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_slow_upload, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_slow_readers_give_way, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_who_does_not_come_gives_way, open_bed, close_bed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
