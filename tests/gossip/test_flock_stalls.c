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

static void test_last_place_is_for_known_peers(void **state)
{
	(void)state;
	for (int i = 0; i < FLOCK_DONATIONS - 1; i++)
		assert_true(gives(3 + i, 1));
	assert_false(gives(9, 1));
	/* Who did not come is not served again at once. */
	bed_pass(&b, 15200);
	assert_false(gives(3, 2));
	assert_true(gives(9, 2));
}

static void test_least_rate(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(3), .exchange = 1};
	(void)state;
	assert_true(gives(3, 1));
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	assert_true(t->transfer.deadline_ms <= 10000); /* two kilobytes */
	uint8_t use = t->use;
	memset(&e, 0, sizeof e);
	e.kind = FLOCK_EVENT_TRANSFERRED;
	e.exchange = 1;
	e.transferred.use = use;
	e.code = ERR_TIMEOUT;
	bed_step(&b, e);
	assert_false(gives(3, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_no_bulk_connection, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(
	                test_last_place_is_for_known_peers, open_bed, close_bed),
	        cmocka_unit_test_setup_teardown(test_least_rate, open_bed, close_bed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
