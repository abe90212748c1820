/* SPDX-License-Identifier: MIT */
/* One peer's word does not make us give up our state, and a state that was fetched is tried before
 * it is believed. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;

static void open_with(struct flock_config c, int peers)
{
	bed_open(&b, &c);
	bed_train_with(&b, peers);
	bed_train(&b, 30, 0.1);
}

static struct exchange_message gift(const struct exchange_message *fetch)
{
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = fetch->exchange};
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = 5;
	m.gift.step = 1000;
	m.gift.samples = 32000;
	m.gift.vectors = 2;
	m.gift.n = 2;
	return m;
}

/* The state comes, whole, from that peer; it is like ours. */
static void give(int donor, const struct exchange_message *fetch)
{
	struct exchange_message m = gift(fetch);
	struct flock_event e = {.peer = bed_id(donor), .exchange = m.exchange};
	bed_hear(&b, donor, &m);
	assert_non_null(bed_did(&b, FLOCK_DO_OPEN));
	e.kind = FLOCK_EVENT_BULK;
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
	memset(&e, 0, sizeof e);
	e.kind = FLOCK_EVENT_TRANSFERRED;
	e.exchange = m.exchange;
	e.transferred.use = USE_FETCH;
	e.transferred.received = 2 * BED_COUNT;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_MEASURE));
	memset(&e, 0, sizeof e);
	e.kind = FLOCK_EVENT_MEASURED;
	e.measured.slot = SLOT_FETCHED;
	e.measured.finite = true;
	e.measured.sketch = &b.place;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	assert_null(bed_did(&b, FLOCK_DO_ADOPT));
}

static void tried(double loss, double own, double initial, bool test)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRIED};
	e.tried = (struct flock_trial){.loss = loss, .own = own, .initial = initial, .test = test};
	bed_step(&b, e);
}

/* A newcomer that meets a flock far ahead asks one of its peers. */
static int newcomer(int peers, float loss)
{
	struct flock_config c = bed_config();
	bed_open(&b, &c);
	for (int i = 1; i <= peers; i++)
		bed_record(&b, i, 100000, loss);
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	const struct exchange_message *fetch = bed_sent(&b, EXCHANGE_FETCH);
	assert_non_null(fetch);
	for (int i = 1; i <= peers; i++)
		for (int k = 0; k < b.a->n_sends; k++) {
			struct peer_id id = bed_id(i);
			if (b.a->send[k].message.kind == EXCHANGE_FETCH &&
			        peer_id_equal(&b.a->send[k].to, &id)) {
				struct exchange_message copy = *fetch;
				give(i, &copy);
				return i;
			}
		}
	fail();
	return 0;
}

static void test_good_state_is_taken(void **state)
{
	(void)state;
	newcomer(3, 0.5f);
	tried(0.6, 2.3, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	bed_close(&b);
}

static void refused(void)
{
	assert_null(bed_did(&b, FLOCK_DO_ADOPT));
	assert_non_null(bed_said(&b, SAY_JOIN_WORSE));
	assert_int_equal(bed_view(&b).counts.refused, 1);
	bed_close(&b);
}

static void test_not_finite(void **state)
{
	(void)state;
	newcomer(3, 0.5f);
	tried((double)NAN, 2.3, 2.3, true);
	refused();
}

static void test_worse_than_the_initial_weights(void **state)
{
	(void)state;
	newcomer(1, 0.5f);
	tried(2.4, 2.3, 2.3, false);
	refused();
}

/* As zeros are: no worse than the initial weights, but far from what peers report. */
static void test_newcomer_goes_by_what_peers_report(void **state)
{
	(void)state;
	newcomer(3, 0.5f);
	tried(2.25, 2.3, 2.3, true);
	refused();
}

/* Of one peer nobody knows whether it lies: the trial decides alone. */
static void test_one_report_is_none(void **state)
{
	(void)state;
	newcomer(2, 0.5f); /* of whom one is the donor */
	tried(2.25, 2.3, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	bed_close(&b);
}

/* ---- what was taken stays good, or goes */

static int adopted(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_ADOPTED};
	int donor = newcomer(3, 0.5f);
	tried(0.6, 2.3, 2.3, true);
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	return donor;
}

static void test_loss_that_grows_restores(void **state)
{
	(void)state;
	struct peer_id donor = bed_id(adopted());
	b.loss = 1.3; /* over twice the trial's, but better than what we had */
	bed_train(&b, 20, 0.1);
	bed_pass(&b, 100);
	assert_null(bed_did(&b, FLOCK_DO_RESTORE));
	b.loss = 30;
	bed_train(&b, 20, 0.1);
	b.now_ms += 200;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_non_null(bed_did(&b, FLOCK_DO_RESTORE));
	const struct partner *p = partners_find(bed_view(&b).partners, &donor);
	assert_true(p && p->quarantine_ms > b.now_ms);
	bed_close(&b);
}

static void test_failed_learner_restores(void **state)
{
	(void)state;
	adopted();
	bed_train(&b, 2, 0.1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_FAILED, .code = ERR_NONFINITE});
	assert_null(bed_did(&b, FLOCK_DO_LEAVE));
	b.now_ms += 200;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_non_null(bed_did(&b, FLOCK_DO_RESTORE));
	assert_non_null(bed_did(&b, FLOCK_DO_TRAIN));
	bed_close(&b);
}

static void test_after_100_steps_it_is_ours(void **state)
{
	(void)state;
	adopted();
	b.loss = 0.6;
	bed_train(&b, 101, 0.1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_FAILED, .code = ERR_NONFINITE});
	assert_non_null(bed_did(&b, FLOCK_DO_LEAVE));
	bed_close(&b);
}

/* ---- apart */

static void says_apart(uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = number};
	m.busy.why = EXCHANGE_APART;
	bed_hear(&b, 1, &m);
}

/* From its offer, which is not taken, the peer's sketch is known: far away. */
static void far_offer(int from, uint64_t number)
{
	struct exchange_message m = bed_offer(&b, number);
	struct sketch far = bed_place(10, 30);
	sketch_pack(&far, m.terms.sketch);
	bed_hear(&b, from, &m);
}

static void test_one_far_peer_is_not_followed(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	open_with(c, 2);
	bed_record(&b, 1, 50000, 1);
	bed_record(&b, 2, 3200, 1);
	far_offer(1, 1);
	const struct exchange_message *busy = bed_sent(&b, EXCHANGE_BUSY);
	assert_non_null(busy);
	assert_int_equal(busy->busy.why, EXCHANGE_APART);
	bed_pass(&b, 3500);
	assert_false(bed_view(&b).joining);
	/* With another one there it is a flock. */
	bed_record(&b, 1, 50000, 1);
	bed_record(&b, 2, 3200, 1);
	far_offer(2, 2);
	bed_pass(&b, 5000);
	assert_true(bed_view(&b).joining);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING); /* and we train on */
	bed_close(&b);
}

static void test_apart_unasked_is_nothing(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.gate.every = 1;
	open_with(c, 1);
	bed_record(&b, 1, 50000, 1);
	b.place = bed_place(10, 30); /* so its sketch is known, and taken for near */
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.beta = 1;
	bed_hear(&b, 1, &m);
	says_apart(77);
	assert_null(bed_said(&b, SAY_APART));
	bed_pass(&b, 3500);
	/* The same as the answer to our offer. */
	bed_record(&b, 1, 50000, 1);
	bed_pass(&b, 100);
	bed_train(&b, 1, 0);
	const struct exchange_message *offer = bed_sent(&b, EXCHANGE_OFFER);
	assert_non_null(offer);
	says_apart(offer->exchange);
	assert_non_null(bed_said(&b, SAY_APART));
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_good_state_is_taken),
	        cmocka_unit_test(test_not_finite),
	        cmocka_unit_test(test_worse_than_the_initial_weights),
	        cmocka_unit_test(test_newcomer_goes_by_what_peers_report),
	        cmocka_unit_test(test_one_report_is_none),
	        cmocka_unit_test(test_loss_that_grows_restores),
	        cmocka_unit_test(test_failed_learner_restores),
	        cmocka_unit_test(test_after_100_steps_it_is_ours),
	        cmocka_unit_test(test_one_far_peer_is_not_followed),
	        cmocka_unit_test(test_apart_unasked_is_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
