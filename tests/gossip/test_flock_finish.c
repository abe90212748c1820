/* SPDX-License-Identifier: MIT */
/* How a run ends for an agent: merge rounds, the result and the checkpoint, the stay afterwards;
 * and how it leaves at any other time. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static void open_with(int peers, bool evaluates)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.stale = 10; /* of the run: never */
	c.evaluates = evaluates;
	c.format = 1; /* of training: merge rounds are in fp32 */
	bed_open(&b, &c);
	bed_train_with(&b, peers);
	bed_train(&b, 10, 0.1);
}

static int did(uint8_t kind)
{
	int n = 0;
	for (int i = 0; i < b.a->n_actions; i++)
		n += b.a->action[i].kind == kind;
	return n;
}

static void done(bool early)
{
	struct flock_event e = {.kind = FLOCK_EVENT_DONE};
	e.done.stopped_early = early;
	e.done.clock = BED_TOTAL;
	bed_step(&b, e);
}

static void wish(uint8_t w)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH};
	e.wish = w;
	bed_step(&b, e);
}

static void saved(int code)
{
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_SAVED, .code = code});
}

static void exported(int code)
{
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_EXPORTED, .code = code});
}

/* The first of the next steps, 50 ms apart, in which it does this; how long that took. Peers that
 * are there stay there. */
static uint64_t until(uint8_t kind, int peers, uint64_t most_ms)
{
	uint64_t began_ms = b.now_ms;
	while (!bed_did(&b, kind)) {
		if (b.now_ms - began_ms >= most_ms)
			return UINT64_MAX;
		for (int i = 1; i <= peers; i++)
			bed_record(&b, i, BED_TOTAL, 1);
		bed_pass(&b, 50);
	}
	return b.now_ms - began_ms;
}

/* ---- merging */

/* Alone there is nothing to merge. */
static void test_alone_it_is_over_at_once(void **state)
{
	(void)state;
	open_with(0, false);
	done(false);
	assert_int_equal(bed_said(&b, SAY_RUN_TRAINED)->a, BED_TOTAL);
	assert_int_equal(bed_said(&b, SAY_RUN_TRAINED)->b, 320);
	assert_in_range(until(FLOCK_DO_EXPORT, 0, 1000), 0, 200);
	assert_int_equal(did(FLOCK_DO_SAVE), 1); /* the checkpoint behind it */
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
	assert_int_equal(bed_view(&b).merge_rounds, 0);
	assert_true(bed_view(&b).rounds_over);
	assert_true(flock_unsaved(b.core));
}

/* Peers that do not answer are asked until time is up. */
static void test_merge_rounds_have_an_end(void **state)
{
	(void)state;
	open_with(1, false);
	done(false);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	assert_int_not_equal(until(FLOCK_DO_EXPORT, 1, 23000), UINT64_MAX);
	assert_true(bed_view(&b).counts.by_outcome[OUTCOME_TIMEOUT] > 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_FINISHED);
}

/* Its own model is evaluated before the rounds begin, which then have all their time. */
static void test_evaluation_comes_first(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_EVALUATED};
	(void)state;
	open_with(1, true);
	done(false);
	assert_int_equal(did(FLOCK_DO_EVALUATE), 1);
	for (int i = 0; i < 30; i++) {
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 1000);
		assert_null(bed_sent(&b, EXCHANGE_OFFER));
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	e.eval = (struct flock_eval){.correct = 3, .count = 4, .step = 10}; /* one of training's */
	bed_step(&b, e);
	assert_true(bed_view(&b).has_eval && !bed_view(&b).has_local);
	assert_int_equal(bed_view(&b).eval.correct, 3);
	bed_record(&b, 1, BED_TOTAL, 1);
	bed_pass(&b, 500);
	assert_null(bed_sent(&b, EXCHANGE_OFFER));
	e.eval.asked = true;
	bed_step(&b, e);
	assert_true(bed_view(&b).has_local && bed_view(&b).local.correct == 3);
	assert_false(bed_view(&b).has_merged);
	bed_record(&b, 1, BED_TOTAL, 1);
	for (int i = 0; i < 10 && !bed_sent(&b, EXCHANGE_OFFER); i++)
		bed_pass(&b, 50);
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	assert_true(bed_sent(&b, EXCHANGE_OFFER)->terms.final);
	assert_int_equal(bed_sent(&b, EXCHANGE_OFFER)->terms.format, 0);
}

/* One that could not be done, or that the learner did not take, is none; nobody waits for it. */
static void without_evaluation(struct flock_event e)
{
	open_with(1, true);
	done(false);
	bed_step(&b, e);
	assert_false(bed_view(&b).has_local);
	for (int i = 0; i < 10 && !bed_sent(&b, EXCHANGE_OFFER); i++) {
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 50);
	}
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	bed_close(&b);
}

static void test_evaluation_that_fails(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_EVALUATED, .code = ERR_NOMEM};
	(void)state;
	e.eval = (struct flock_eval){.correct = 3, .count = 4, .asked = true};
	without_evaluation(e);
	e.code = 0;
	e.eval.count = 0; /* no test set */
	without_evaluation(e);
	e = (struct flock_event){.kind = FLOCK_EVENT_REFUSED};
	e.refused = FLOCK_DO_EVALUATE;
	without_evaluation(e);
}

/* Who stopped early, for its user's reasons, has no result of the run: a checkpoint, and it goes.
 */
static void test_stopped_early(void **state)
{
	(void)state;
	open_with(1, false);
	done(true);
	assert_non_null(bed_said(&b, SAY_STOPPED_EARLY));
	assert_int_equal(bed_view(&b).phase, FLOCK_LEAVING);
	assert_int_equal(did(FLOCK_DO_LEAVE), 1);
	assert_int_equal(bed_did(&b, FLOCK_DO_LEAVE)->code, 0);
	assert_int_equal(did(FLOCK_DO_SAVE), 1);
	assert_int_equal(did(FLOCK_DO_EXPORT), 0);
	done(false); /* twice changes nothing */
	assert_int_equal(bed_view(&b).phase, FLOCK_LEAVING);
	assert_null(bed_said(&b, SAY_RUN_TRAINED));
}

/* ---- the result */

/* Written once; then it stays for others as long as they are there and for a while more. */
static void test_result_is_written_once(void **state)
{
	int writes = 0;
	(void)state;
	open_with(1, false);
	done(false);
	bed_word(
	        &b, 1, BED_TOTAL, 1, true); /* it leaves: nothing to merge, but somebody may come */
	(void)until(FLOCK_DO_EXPORT, 0, 1000);
	exported(0);
	assert_true(flock_unsaved(b.core)); /* not without the checkpoint */
	saved(0);
	assert_false(flock_unsaved(b.core));
	bed_record(&b, 2, BED_TOTAL, 1);
	uint64_t began_ms = b.now_ms;
	while (!bed_did(&b, FLOCK_DO_LEAVE) && b.now_ms - began_ms < 60000) {
		bed_record(&b, 2, BED_TOTAL, 1);
		bed_pass(&b, 50);
		writes += did(FLOCK_DO_EXPORT) + did(FLOCK_DO_SAVE);
	}
	assert_int_equal(writes, 0);
	assert_in_range(b.now_ms - began_ms, 2500, 3300); /* stay_ms after the last exchange */
	assert_true(bed_view(&b).finished);
}

/* Where the last peer leaves nobody is stayed for. */
static void test_nobody_is_stayed_for(void **state)
{
	(void)state;
	open_with(1, false);
	done(false);
	assert_int_not_equal(until(FLOCK_DO_EXPORT, 1, 23000), UINT64_MAX);
	exported(0);
	saved(0);
	bed_word(&b, 1, BED_TOTAL, 1, true);
	assert_in_range(until(FLOCK_DO_LEAVE, 0, 5000), 0, 400);
}

/* What failed is tried again after 3 s, and nothing else. */
static void test_only_what_failed_is_written_again(void **state)
{
	(void)state;
	open_with(0, false);
	done(false);
	(void)until(FLOCK_DO_EXPORT, 0, 1000);
	exported(0);
	saved(ERR_IO);
	uint64_t ms = until(FLOCK_DO_SAVE, 0, 5000);
	assert_in_range(ms, 2500, 3200);
	assert_int_equal(did(FLOCK_DO_EXPORT), 0);
	struct flock_event full = {.kind = FLOCK_EVENT_REFUSED};
	full.refused = FLOCK_DO_SAVE;
	bed_step(&b, full);
	ms = until(FLOCK_DO_SAVE, 0, 5000);
	assert_in_range(ms, 2500, 3200);
	saved(0);
	assert_false(flock_unsaved(b.core));
	bed_close(&b);
	open_with(0, false);
	done(false);
	(void)until(FLOCK_DO_EXPORT, 0, 1000);
	exported(ERR_IO);
	assert_int_equal(bed_said(&b, SAY_UNWRITTEN)->error, ERR_IO);
	saved(0);
	ms = until(FLOCK_DO_EXPORT, 0, 5000);
	assert_in_range(ms, 2500, 3200);
	assert_int_equal(did(FLOCK_DO_SAVE), 0);
	exported(0);
	assert_false(flock_unsaved(b.core));
}

/* ---- leaving */

static void test_who_has_nothing_leaves_nothing(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_SAVE), 0);
	assert_int_equal(did(FLOCK_DO_PAUSE), 1);
	assert_int_equal(did(FLOCK_DO_STOP), 1);
	assert_int_equal(until(FLOCK_DO_LEFT, 0, 1000), UINT64_MAX); /* its learner still runs */
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STOPPED});
	assert_in_range(until(FLOCK_DO_LEFT, 0, 1000), 0, 100);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_LEAVE) + did(FLOCK_DO_LEFT), 0);
}

/* What a learner that failed has is worth nothing. */
static void test_learner_that_fails(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_FAILED, .code = ERR_NOMEM};
	(void)state;
	open_with(1, false);
	bed_step(&b, e);
	assert_int_equal(bed_said(&b, SAY_FAILED)->error, ERR_NOMEM);
	assert_int_equal(bed_did(&b, FLOCK_DO_LEAVE)->code, ERR_NOMEM);
	assert_int_equal(did(FLOCK_DO_SAVE), 0);
	assert_false(flock_unsaved(b.core));
}

/* An exchange that can no longer be given up is waited for, for a quarter of the time that there
 * is; one that can is given up. */
static void committed(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(1), .exchange = 1};
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.clock = 0;
	bed_hear(&b, 1, &m);
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .exchange = 1};
	e.transferred.use = USE_EXCHANGE;
	e.transferred.received = BED_COUNT;
	bed_step(&b, e);
	e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = true;
	e.measured.sketch = &b.place;
	bed_step(&b, e);
	m = (struct exchange_message){.kind = EXCHANGE_END, .exchange = 1};
	m.end.n = b.c.n_groups;
	m.end.factor[0] = m.end.factor[1] = 1;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_COMMIT));
}

static void test_leaving_in_an_exchange(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_COMMIT, .exchange = 1};
	(void)state;
	open_with(1, false);
	committed();
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_PAUSE), 1);
	assert_int_equal(did(FLOCK_DO_STOP), 0);
	bed_hear(&b, 1, &m);
	assert_int_equal(did(FLOCK_DO_APPLY), 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	assert_int_equal(did(FLOCK_DO_STOP), 0);
	m.kind = EXCHANGE_ACK;
	bed_hear(&b, 1, &m);
	assert_int_equal(did(FLOCK_DO_STOP), 1);
	assert_int_equal(did(FLOCK_DO_SAVE), 1);
	bed_close(&b);
	open_with(1, false);
	committed();
	wish(WISH_LEAVE);
	assert_in_range(until(FLOCK_DO_STOP, 1, 20000), 4900, 5200);
	bed_close(&b);
	open_with(1, false);
	m = bed_offer(&b, 1);
	bed_hear(&b, 1, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_PREPARING);
	wish(WISH_LEAVE);
	assert_non_null(bed_sent(&b, EXCHANGE_ABORT));
	assert_int_equal(did(FLOCK_DO_STOP), 1);
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_alone_it_is_over_at_once),
	        TEST(test_merge_rounds_have_an_end),
	        TEST(test_evaluation_comes_first),
	        cmocka_unit_test(test_evaluation_that_fails),
	        TEST(test_stopped_early),
	        TEST(test_result_is_written_once),
	        TEST(test_nobody_is_stayed_for),
	        TEST(test_only_what_failed_is_written_again),
	        TEST(test_who_has_nothing_leaves_nothing),
	        TEST(test_learner_that_fails),
	        TEST(test_leaving_in_an_exchange),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
