/* SPDX-License-Identifier: MIT */
/* The ledger: runs of local steps, outcomes that come late, and the ring's end. */
#include "gossip/policy/ledger.h"
#include "tests/support.h"

static void ledger_runs_and_wraps(void **s)
{
	(void)s;
	static struct ledger l;
	memset(&l, 0xa5, sizeof l);
	ledger_init(&l);
	assert_int_equal(ledger_count(&l), 0);
	assert_null(ledger_get(&l, 0));
	struct gate_decision local = {false, REASON_LOCAL, true, 0.02, 0.1};
	struct gate_decision over = {false, REASON_CAP, true, 0.3, 0.1};
	struct gate_decision yes = {true, REASON_OWED, false, 0, 0.1};
	struct gate_decision waits = {false, REASON_OWED, false, 0, 0.1};
	struct peer_id peer = {{9}};

	for (unsigned i = 0; i < 5; i++) {
		local.change = 0.01 * i;
		assert_int_equal(ledger_decision(&l, 10 + i, 100 + i, &local, 50), 1);
	}
	const struct ledger_entry *e = ledger_get(&l, 0);
	assert_int_equal(e->steps, 5);
	assert_int_equal(e->step, 14);
	assert_int_equal(e->at_ms, 104);
	assert_int_equal(e->saved, 250);
	assert_true(e->change == local.change);
	assert_int_equal(ledger_decision(&l, 15, 105, &over, 50), 2); /* another reason */
	assert_int_equal(ledger_decision(&l, 16, 106, &yes, 50), 3);
	assert_int_equal(ledger_decision(&l, 17, 107, &yes, 50), 4); /* each try by itself */
	assert_int_equal(ledger_decision(&l, 18, 108, &waits, 50), 5);
	assert_int_equal(ledger_decision(&l, 19, 109, &waits, 50), 5);
	assert_int_equal(ledger_decision(&l, 20, 110, &yes, 50), 6);
	ledger_tried(&l, 3, &peer);
	ledger_outcome(&l, 3, OUTCOME_TIMEOUT, 33);
	e = ledger_get(&l, 3);
	assert_int_equal(e->number, 3);
	assert_true(e->wanted && e->tried && e->settled);
	assert_int_equal(e->outcome, OUTCOME_TIMEOUT);
	assert_int_equal(e->bytes, 33);
	assert_int_equal(e->saved, 0);
	assert_memory_equal(&e->peer, &peer, sizeof peer);
	assert_false(ledger_get(&l, 2)->tried || ledger_get(&l, 2)->settled);
	assert_int_equal(ledger_count(&l), 6);
	assert_null(ledger_get(&l, 6));

	for (unsigned i = 0; i < 2 * LEDGER_ENTRIES; i++) {
		unsigned n = i + 7;
		ledger_decision(&l, i, i, &yes, 50);
		assert_int_equal(ledger_count(&l), n < LEDGER_ENTRIES ? n : LEDGER_ENTRIES);
	}
	for (uint32_t i = 0; i < LEDGER_ENTRIES; i++) {
		assert_int_equal(ledger_get(&l, i)->number, 6 + 2 * LEDGER_ENTRIES - i);
		assert_false(ledger_get(&l, i)->tried);
	}
	assert_null(ledger_get(&l, LEDGER_ENTRIES));
	/* Too late, not yet, never. */
	const uint64_t gone[] = {3, 6 + LEDGER_ENTRIES, l.next, 0, UINT64_MAX};
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
		ledger_tried(&l, gone[i], &peer);
		ledger_outcome(&l, gone[i], OUTCOME_BAD, 1);
	}
	for (uint32_t i = 0; i < LEDGER_ENTRIES; i++)
		assert_false(ledger_get(&l, i)->tried || ledger_get(&l, i)->settled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ledger_runs_and_wraps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
