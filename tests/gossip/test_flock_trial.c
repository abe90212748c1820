/* SPDX-License-Identifier: MIT */
/* One peer's word does not make us give up our state, and a state that was fetched is tried before
 * it is believed. */
#include "tests/gossip/flock_bed.h"

#include <float.h>
#include <math.h>

static struct bed b;
static float radius; /* that donors tell */

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
	for (int i = 0; i <= m.gift.n; i++)
		m.gift.radius[i] = radius;
	return m;
}

/* The state comes, whole, from that peer. */
static void transfer(int donor, const struct exchange_message *fetch)
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
}

static void measured(const struct sketch *s)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	e.measured.slot = SLOT_FETCHED;
	e.measured.finite = true;
	e.measured.sketch = s;
	bed_step(&b, e);
}

/* The peer that was asked for its state gives it. */
static int give(int peers)
{
	for (int i = 1; i <= peers; i++)
		for (int k = 0; k < b.a->n_sends; k++) {
			struct exchange_message fetch = b.a->send[k].message;
			struct peer_id id = bed_id(i);
			if (fetch.kind == EXCHANGE_FETCH && peer_id_equal(&b.a->send[k].to, &id)) {
				transfer(i, &fetch);
				return i;
			}
		}
	fail();
	return 0;
}

static void tried(double loss, double own, double initial, bool test)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRIED};
	e.tried = (struct flock_trial){.loss = loss, .own = own, .initial = initial, .test = test};
	bed_step(&b, e);
}

/* One that meets a flock far ahead asks one of its peers. */
static int joiner(struct flock_config c, int peers, float loss)
{
	bed_open(&b, &c);
	for (int i = 1; i <= peers; i++)
		bed_record(&b, i, 100000, loss);
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	int donor = give(peers);
	measured(&b.place);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	assert_null(bed_did(&b, FLOCK_DO_ADOPT));
	return donor;
}

static int newcomer(int peers, float loss)
{
	return joiner(bed_config(), peers, loss);
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
	const struct flock_say *s = bed_said(&b, SAY_JOIN_WORSE);
	assert_non_null(s);
	assert_in_range(s->peer.bytes[0] - 0x10, 1, 5);
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
	assert_in_range(bed_said(&b, SAY_JOIN_WORSE)->a, 2249999, 2250001);
	assert_in_range(bed_said(&b, SAY_JOIN_WORSE)->b, 2119999, 2120001); /* a tenth of the way */
	refused();
}

/* By the larger half of their reports, whoever told first: here at most 2.28. */
static void test_reports_are_of_the_larger_half(void **state)
{
	static const float losses[] = {2.2f, 0.1f, 0.2f, 2.1f};
	(void)state;
	for (int i = 0; i < 2; i++) {
		int donor = newcomer(5, 0.5f), n = 0;
		for (int k = 1; k <= 5; k++)
			if (k != donor)
				bed_record(&b, k, 100000, losses[n++]);
		tried(i == 0 ? 2.27 : 2.29, 2.3, 2.3, true);
		if (i == 1) {
			refused();
			continue;
		}
		assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
		bed_close(&b);
	}
}

/* At the beginning of a run peers themselves are not far. */
static void test_peers_report_little(void **state)
{
	(void)state;
	newcomer(3, 2.2f);
	tried(2.21, 2.3, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	bed_close(&b);
	newcomer(3, 2.2f);
	tried(2.299, 2.3, 2.3, true);
	refused();
}

/* Who goes on from a checkpoint has something to lose, and goes by its own loss. */
static void test_resumed_goes_by_its_own_loss(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.resumed = true;
	c.step = 10;
	c.samples = 320;
	joiner(c, 3, 0.5f);
	tried(1.7, 1, 2.3, true); /* less than half the way from 2.3 to 1 */
	refused();
	joiner(c, 3, 0.5f);
	tried(1.6, 1, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	bed_close(&b);
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
	radius = 1; /* that the donor tells */
	struct peer_id donor = bed_id(adopted());
	radius = 0;
	assert_true(bed_view(&b).radius > 0);
	b.loss = 1.3; /* over twice the trial's, but better than what we had */
	bed_train(&b, 20, 0.1);
	bed_pass(&b, 100);
	assert_null(bed_did(&b, FLOCK_DO_RESTORE));
	b.loss = 30;
	bed_train(&b, 20, 0.1);
	b.now_ms += 200;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_non_null(bed_did(&b, FLOCK_DO_RESTORE));
	const struct flock_say *s = bed_said(&b, SAY_RESTORED);
	assert_non_null(s);
	assert_memory_equal(&s->peer, &donor, sizeof donor);
	assert_true(bed_view(&b).guard.target <= 0); /* no step of this state was measured */
	assert_true(bed_view(&b).radius <= 0);       /* nor how far partners are from it */
	assert_false(bed_view(&b).has_loss);
	assert_int_equal(s->b, 600000); /* millionths: the trial's, */
	assert_in_range(s->a, 1300000, 30000000);
	assert_false(bed_view(&b).joined);
	const struct partner *p = partners_find(bed_view(&b).partners, &donor);
	assert_true(p && p->quarantine_ms > b.now_ms);
	/* Nobody may move us before the first step of what is there again. */
	struct peer_id other = bed_id(donor.bytes[0] == 0x11 ? 2 : 1);
	assert_true(partners_pull_left(bed_view(&b).partners, &other) <= 0);
	bed_close(&b);
}

/* A loss that is no higher than what we had before is no reason to go back. */
static void test_no_worse_than_before_stays(void **state)
{
	(void)state;
	adopted();
	b.loss = 0.5;
	bed_train(&b, 1, 0.1);
	b.loss = 2.2; /* over twice the trial's, and four times that of the first step */
	bed_train(&b, 30, 0.1);
	b.now_ms += 200;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_null(bed_did(&b, FLOCK_DO_RESTORE));
	bed_close(&b);
}

/* As a donor's momentum makes it: the parameters are good, and the first step leads away. */
static void test_momentum_that_leads_away_restores(void **state)
{
	(void)state;
	adopted();
	b.loss = 0.6;
	bed_train(&b, 1, 0.1);
	b.loss = 30;
	bed_train(&b, 7, 5);
	b.now_ms += 200;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_non_null(bed_did(&b, FLOCK_DO_RESTORE));
	bed_close(&b);
}

/* The path is as long as the donor's momentum makes it: it does not bear out the donor's radius. */
static void test_momentum_widens_no_radius(void **state)
{
	(void)state;
	radius = FLT_MAX;
	adopted();
	radius = 0;
	double most = 0.25 * sketch_norm(&b.place);
	assert_true(most > 0 && fabs(bed_view(&b).radius - most) <= 0.001 * most);
	bed_train(&b, 1, 0.001);
	assert_true(fabs(bed_view(&b).radius - 0.064) < 1e-6); /* 64 such steps */
	bed_train(&b, 1, 1e20);
	assert_true(bed_view(&b).radius > 0 && bed_view(&b).radius <= 1.001 * most);
	assert_false(bed_view(&b).radius_warm);
	bed_close(&b);
}

static bool takes_offer(uint64_t number)
{
	struct exchange_message m = bed_offer(&b, number);
	bed_hear(&b, 1, &m);
	return bed_sent(&b, EXCHANGE_ACCEPT);
}

/* What we adopted is nobody else's before some steps of ours have shown that it is good. */
static void test_first_steps_are_ours_alone(void **state)
{
	(void)state;
	adopted();
	b.loss = 0.6;
	bed_pass(&b, 200);
	bed_train(&b, 7, 0.1);
	assert_false(takes_offer(1));
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_JOINING);
	bed_train(&b, 1, 0.1);
	assert_true(takes_offer(2));
	bed_close(&b);
}

/* What others train while we make no exchange does not reach our model: a learner that takes
 * longer for its first steps than they for a part of the run takes another state. */
static void others_train(int own)
{
	adopted();
	b.loss = 0.6;
	bed_pass(&b, 200);
	bed_train(&b, own, 0.1);
	for (int k = 1; k <= 20; k++) {
		for (int i = 1; i <= 3; i++)
			bed_record(&b, i, 100000 + 3000 * (uint64_t)k, 0.5f);
		bed_pass(&b, 200);
	}
}

static void test_first_steps_that_take_long_are_too_old(void **state)
{
	(void)state;
	others_train(7);
	assert_true(bed_view(&b).joining);
	bed_close(&b);
	others_train(8);
	assert_false(bed_view(&b).joining);
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
	c.gate.every_samples = 40 * 32;
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
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	assert_true(bed_view(&b).joining);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING); /* and we train on */
	/* But nobody gets what is to be given up. */
	for (int k = 0; k < 60; k++) {
		bed_train(&b, 1, 0.1);
		assert_null(bed_sent(&b, EXCHANGE_OFFER));
		bed_pass(&b, 50);
	}
	struct exchange_message m = bed_offer(&b, 3);
	bed_hear(&b, 2, &m);
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_JOINING);
	bed_close(&b);
}

/* From two that are far we hear that they are: we follow. */
static void apart(uint64_t seed)
{
	struct flock_config c = bed_config();
	c.seed = seed;
	open_with(c, 3);
	for (int i = 1; i <= 3; i++)
		bed_record(&b, i, i == 3 ? 3200 : 50000, 1);
	far_offer(2, 1);
	assert_null(bed_said(&b, SAY_APART));
	far_offer(1, 2);
	assert_true(bed_said(&b, SAY_APART) && bed_said(&b, SAY_APART)->flag);
}

/* Until we ask for a state, and whom. */
static uint64_t asked_after(int *donor)
{
	uint64_t began_ms = b.now_ms;
	while (b.now_ms - began_ms < 10000) {
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_FETCH) {
				assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
				*donor = b.a->send[i].to.bytes[0] - 0x10;
				return b.now_ms - began_ms;
			}
		for (int i = 1; i <= 3; i++)
			bed_record(&b, i, i == 3 ? 3200 : 50000, 1);
		bed_pass(&b, 50);
	}
	fail();
	return 0;
}

/* The one by whose word we follow is asked, within three seconds, and not by all who follow at one
 * time. */
static void test_who_is_followed_is_asked(void **state)
{
	uint64_t least = UINT64_MAX, most = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		int donor = 0;
		apart(seed);
		uint64_t ms = asked_after(&donor);
		assert_int_equal(donor, 1);
		least = ms < least ? ms : least;
		most = ms > most ? ms : most;
		bed_close(&b);
	}
	assert_true(most <= 3150);
	assert_true(most - least > 1000);
}

/* An exchange that goes on when it is time ends first. */
static void test_who_follows_ends_its_exchange(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(3), .exchange = 3};
	int donor = 0;
	(void)state;
	apart(1);
	struct exchange_message m = bed_offer(&b, 3);
	m.terms.step_ms = 4000; /* the transfer has some time */
	bed_hear(&b, 3, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
	for (int k = 0; k < 80; k++) {
		for (int i = 1; i <= 3; i++)
			bed_record(&b, i, i == 3 ? 3200 : 50000, 1);
		bed_pass(&b, 50);
		assert_false(bed_view(&b).joining);
	}
	m = (struct exchange_message){.kind = EXCHANGE_ABORT, .exchange = 3};
	bed_hear(&b, 3, &m);
	e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .code = ERR_CANCELLED};
	e.exchange = 3;
	e.transferred.use = USE_EXCHANGE;
	bed_step(&b, e);
	assert_in_range(asked_after(&donor), 0, 200);
	bed_close(&b);
}

/* Where nobody else is there one is enough. */
static void test_the_only_peer_is_followed(void **state)
{
	(void)state;
	open_with(bed_config(), 1);
	bed_record(&b, 1, 50000, 1);
	far_offer(1, 1);
	assert_true(bed_said(&b, SAY_APART) && bed_said(&b, SAY_APART)->flag);
	bed_close(&b);
}

/* Who has left, or is in quarantine, is on no side. */
static void far_pair(bool quarantined, bool left)
{
	struct exchange_message m;
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(2), .exchange = 50};
	open_with(bed_config(), 3);
	if (quarantined) { /* it sends what is not finite */
		m = bed_offer(&b, 50);
		bed_hear(&b, 2, &m);
		e.bulk = BULK_CAME;
		bed_step(&b, e);
		e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .exchange = 50};
		e.transferred.use = USE_EXCHANGE;
		e.transferred.received = BED_COUNT;
		bed_step(&b, e);
		e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
		e.measured.slot = SLOT_STAGING;
		bed_step(&b, e);
		assert_int_equal(bed_view(&b).quarantined, 1);
	}
	for (int i = 1; i <= 3; i++)
		bed_record(&b, i, i == 3 ? 3200 : 50000, 1);
	far_offer(2, 51); /* so its place is known */
	if (left)
		bed_word(&b, 2, 50000, 1, true);
	far_offer(1, 52);
}

static void test_who_does_not_count_is_on_no_side(void **state)
{
	(void)state;
	far_pair(false, false);
	assert_non_null(bed_said(&b, SAY_APART));
	assert_int_equal(bed_said(&b, SAY_APART)->a, 2);
	assert_int_equal(bed_said(&b, SAY_APART)->b, 100000);
	assert_int_equal(bed_said(&b, SAY_APART)->c, 1);
	assert_int_equal(bed_said(&b, SAY_APART)->d, b.samples);
	assert_true(bed_said(&b, SAY_APART)->flag);
	bed_close(&b);
	far_pair(true, false);
	assert_null(bed_said(&b, SAY_APART)); /* one peer alone is no flock */
	bed_close(&b);
	far_pair(false, true);
	assert_null(bed_said(&b, SAY_APART));
	bed_close(&b);
}

/* Two peers are far away, and one of them is asked for its state. */
static int far_flock(void)
{
	struct flock_config c = bed_config();
	open_with(c, 2);
	for (int i = 1; i <= 2; i++) {
		bed_record(&b, i, 50000, 1);
		far_offer(i, (uint64_t)i);
	}
	for (int k = 0; k < 200 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	return give(2);
}

/* Of a donor and a single witness nobody knows who lies: our own state stays. */
static void test_the_one_witness_must_agree(void **state)
{
	(void)state;
	struct sketch far = bed_place(10, 30);
	struct peer_id donor = bed_id(far_flock());
	measured(&b.place);
	assert_null(bed_did(&b, FLOCK_DO_TRY));
	assert_non_null(bed_said(&b, SAY_JOIN_IMPLAUSIBLE));
	const struct partner *p = partners_find(bed_view(&b).partners, &donor);
	assert_true(!p || p->quarantine_ms <= b.now_ms);
	bed_close(&b);
	far_flock();
	measured(&far);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	/* And once it is ours, it is not asked for again. */
	tried(0.6, 1, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	bed_pass(&b, 1000);
	assert_false(bed_view(&b).joining);
	bed_close(&b);
}

/* Stale after a sleep: one of the peers is asked for its state, and gives it. */
static int slept(int peers)
{
	b.now_ms += 7000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	for (int k = 0; k < 200 && !bed_sent(&b, EXCHANGE_FETCH); k++) {
		for (int i = 1; i <= peers; i++)
			bed_record(&b, i, 400000, 1);
		bed_pass(&b, 50);
	}
	assert_non_null(bed_said(&b, SAY_STALE));
	assert_in_range(bed_said(&b, SAY_STALE)->a, 200000, peers * 400000);
	return give(peers);
}

/* Where there are others, a donor alone does not make us give up our state, though it is nobody's
 * word that we missed something: one of them must say that it is where they are. */
static void test_stale_needs_a_second_peer(void **state)
{
	(void)state;
	struct sketch new = bed_place(12, 0);
	open_with(bed_config(), 2);
	int donor = slept(2);
	measured(&new);
	assert_null(bed_did(&b, FLOCK_DO_TRY));
	b.place = new;
	struct exchange_message m = bed_offer(&b, 9);
	b.place = bed_place(10, 0);
	bed_hear(&b, 3 - donor, &m);
	for (int i = 0; i < 10 && !bed_did(&b, FLOCK_DO_TRY); i++)
		bed_pass(&b, 50);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	bed_close(&b);
}

static void test_stale_waits_for_a_witness_and_goes_on(void **state)
{
	(void)state;
	struct sketch new = bed_place(12, 0);
	open_with(bed_config(), 2);
	struct peer_id donor = bed_id(slept(2));
	bool refused = false;
	measured(&new);
	for (int i = 0; i < 240 && !refused; i++) {
		for (int k = 1; k <= 2; k++)
			bed_record(&b, k, 400000, 1);
		bed_pass(&b, 50);
		assert_null(bed_did(&b, FLOCK_DO_TRY));
		refused = bed_said(&b, SAY_JOIN_IMPLAUSIBLE);
		assert_true(!refused || i > 190);
	}
	assert_true(refused);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	const struct partner *p = partners_find(bed_view(&b).partners, &donor);
	assert_true(!p || p->quarantine_ms <= b.now_ms);
	/* No other state comes only to be refused for the same reason. */
	for (int i = 0; i < 200; i++) {
		for (int k = 1; k <= 2; k++)
			bed_record(&b, k, 400000, 1);
		bed_pass(&b, 50);
		assert_null(bed_sent(&b, EXCHANGE_FETCH));
	}
	assert_true(bed_view(&b).joining);
	b.place = new;
	for (int k = 1; k <= 2; k++) {
		struct exchange_message m = bed_offer(&b, (uint64_t)k);
		bed_hear(&b, k, &m);
	}
	b.place = bed_place(10, 0);
	for (int i = 0; i < 100 && !bed_sent(&b, EXCHANGE_FETCH); i++) {
		for (int k = 1; k <= 2; k++)
			bed_record(&b, k, 400000, 1);
		bed_pass(&b, 50);
	}
	(void)give(2);
	measured(&new);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	bed_close(&b);
}

/* One that has trained in an earlier life alone has no sketch to wait for. */
static void test_stale_waits_for_nobody_without_steps(void **state)
{
	(void)state;
	struct sketch new = bed_place(12, 0);
	open_with(bed_config(), 2);
	int other = 3 - slept(2);
	b.earlier = true;
	bed_record(&b, other, 400000, 1);
	measured(&new);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	bed_close(&b);
}

/* With one peer there is no other to ask: the trial decides. */
static void test_stale_with_one_peer(void **state)
{
	(void)state;
	struct sketch new = bed_place(12, 0);
	open_with(bed_config(), 1);
	slept(1);
	measured(&new);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	bed_close(&b);
}

/* What its guard has measured is of the parameters that it gave up. */
static void test_guard_of_another_state(void **state)
{
	(void)state;
	struct sketch new = bed_place(12, 0);
	open_with(bed_config(), 1);
	slept(1);
	measured(&new);
	tried(0.6, 2.3, 2.3, true);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	assert_true(bed_view(&b).guard.target > 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).guard.target <= 0);
	bed_train(&b, 2, 0.1);
	assert_true(bed_view(&b).guard.target > 0);
	bed_close(&b);
}

/* One in quarantine is no witness, and nobody waits for it. */
static void test_quarantined_is_no_witness(void **state)
{
	(void)state;
	struct sketch new = bed_place(-10, 0);
	open_with(bed_config(), 2);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, 2, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = 1};
	bed_hear(&b, 2, &m); /* out of turn */
	assert_int_equal(bed_view(&b).quarantined, 1);
	assert_int_equal(slept(2), 1);
	measured(&new);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	bed_close(&b);
}

static void test_apart_unasked_is_nothing(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.gate.every_samples = 1 * 32;
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
	        cmocka_unit_test(test_reports_are_of_the_larger_half),
	        cmocka_unit_test(test_peers_report_little),
	        cmocka_unit_test(test_resumed_goes_by_its_own_loss),
	        cmocka_unit_test(test_one_report_is_none),
	        cmocka_unit_test(test_loss_that_grows_restores),
	        cmocka_unit_test(test_no_worse_than_before_stays),
	        cmocka_unit_test(test_momentum_that_leads_away_restores),
	        cmocka_unit_test(test_momentum_widens_no_radius),
	        cmocka_unit_test(test_first_steps_are_ours_alone),
	        cmocka_unit_test(test_first_steps_that_take_long_are_too_old),
	        cmocka_unit_test(test_failed_learner_restores),
	        cmocka_unit_test(test_after_100_steps_it_is_ours),
	        cmocka_unit_test(test_one_far_peer_is_not_followed),
	        cmocka_unit_test(test_who_is_followed_is_asked),
	        cmocka_unit_test(test_who_follows_ends_its_exchange),
	        cmocka_unit_test(test_the_only_peer_is_followed),
	        cmocka_unit_test(test_who_does_not_count_is_on_no_side),
	        cmocka_unit_test(test_the_one_witness_must_agree),
	        cmocka_unit_test(test_stale_needs_a_second_peer),
	        cmocka_unit_test(test_stale_waits_for_a_witness_and_goes_on),
	        cmocka_unit_test(test_stale_with_one_peer),
	        cmocka_unit_test(test_guard_of_another_state),
	        cmocka_unit_test(test_stale_waits_for_nobody_without_steps),
	        cmocka_unit_test(test_quarantined_is_no_witness),
	        cmocka_unit_test(test_apart_unasked_is_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
