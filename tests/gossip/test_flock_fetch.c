/* SPDX-License-Identifier: MIT */
/* A joiner and its donors: who is asked, how often and in which order, what a broken transfer, a
 * donor that is gone or a learner without room lead to, and what the donor's word counts for. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

#define AHEAD 100000 /* samples of each peer */

static struct bed b;
static int n_peers;
static int donor;       /* who was asked last */
static uint64_t number; /* of that question */

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static int did(uint8_t kind)
{
	int n = 0;
	for (int i = 0; i < b.a->n_actions; i++)
		n += b.a->action[i].kind == kind;
	return n;
}

static void peers_live(void)
{
	for (int i = 1; i <= n_peers; i++)
		bed_record(&b, i, AHEAD, 0.5f);
}

/* Whether a question goes out in this time. */
static bool asks_within(uint64_t ms, struct exchange_message *m)
{
	for (uint64_t end = b.now_ms + ms;;) {
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_FETCH &&
			        b.a->send[i].message.exchange != number) {
				const struct flock_say *s = bed_said(&b, SAY_JOIN_ASKING);
				donor = b.a->send[i].to.bytes[0] - 0x10;
				assert_int_equal(s->peer.bytes[0] - 0x10, donor);
				assert_int_equal(s->a, b.a->send[i].message.fetch.offset);
				*m = b.a->send[i].message;
				number = m->exchange;
				return true;
			}
		if (b.now_ms >= end)
			return false;
		peers_live();
		bed_pass(&b, 50);
	}
}

static struct exchange_message asked(void)
{
	struct exchange_message m = {0};
	assert_true(asks_within(10000, &m));
	return m;
}

static void newcomer(int peers)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	n_peers = peers;
	number = 0;
	bed_open(&b, &c);
	peers_live();
	for (int i = 1; i <= peers; i++) { /* all at one place */
		struct exchange_message m = bed_offer(&b, (uint64_t)i);
		m.terms.clock = (uint64_t)peers * AHEAD;
		bed_hear(&b, i, &m);
	}
	(void)asked();
	assert_int_equal(bed_said(&b, SAY_JOINS)->a, peers);
	assert_int_equal(bed_said(&b, SAY_JOINS)->b, peers * AHEAD);
	assert_int_equal(bed_said(&b, SAY_PHASE)->a, FLOCK_JOINING);
}

static void busy(void)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = number};
	m.busy.why = EXCHANGE_ENGAGED;
	m.busy.manifest = b.c.manifest;
	bed_hear(&b, donor, &m);
}

static struct exchange_message gift(void)
{
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = number};
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = 5;
	m.gift.step = 1000;
	m.gift.samples = 2 * AHEAD;
	m.gift.clock = 3 * AHEAD;
	m.gift.vectors = 2;
	m.gift.n = 2;
	return m;
}

static void bulk(int from, uint8_t how)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(from), .exchange = number};
	e.bulk = how;
	bed_step(&b, e);
}

static void given(void)
{
	struct exchange_message m = gift();
	bed_hear(&b, donor, &m);
	assert_int_equal(did(FLOCK_DO_OPEN), 1);
	bulk(donor, BULK_CAME);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	assert_true(t->transfer.receives && !t->transfer.sends);
	assert_true(t->transfer.deadline_ms >= 2000);
}

static void transferred(uint64_t received, int code)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number, .code = code};
	e.transferred.use = USE_FETCH;
	e.transferred.received = received;
	e.transferred.bytes_received = 4 * received;
	e.transferred.bytes_sent = 10;
	bed_step(&b, e);
}

static void measured(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	assert_int_equal(did(FLOCK_DO_MEASURE), 1);
	e.measured.slot = SLOT_FETCHED;
	e.measured.finite = true;
	e.measured.sketch = &b.place;
	bed_step(&b, e);
}

static void tried(double loss, int code)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRIED, .code = code};
	assert_int_equal(did(FLOCK_DO_TRY), 1);
	e.tried = (struct flock_trial){.loss = loss, .own = 2.3, .initial = 2.3, .test = true};
	bed_step(&b, e);
}

static uint32_t quarantined(void)
{
	return bed_view(&b).quarantined;
}

/* ---- who is asked */

static void soon(int from, uint64_t of, uint32_t step_ms)
{
	struct exchange_message m = {.kind = EXCHANGE_SOON, .exchange = of, .step_ms = step_ms};
	bed_hear(&b, from, &m);
}

/* How long a donor is waited for; it says so. */
static uint64_t waited_ms(uint32_t step_ms)
{
	struct exchange_message m;
	uint64_t since = b.now_ms;
	int first = donor;
	soon(donor, number, step_ms);
	assert_true(asks_within(60000, &m));
	assert_int_not_equal(donor, first);
	return b.now_ms - since;
}

/* It copies its state at the end of its step: the joiner waits for so long, up to 20 s, and then
 * asks another. */
static void test_slow_donor_is_awaited(void **state)
{
	(void)state;
	newcomer(4);
	assert_in_range(waited_ms(0), 5000, 5700); /* and as much where it says nothing */
	assert_in_range(waited_ms(8000), 13000, 13700);
	assert_in_range(waited_ms(UINT32_MAX), 25000, 25700);
	/* Nor is it worth saying again, nor by others, nor of anything else. */
	uint64_t since = b.now_ms;
	struct exchange_message m;
	soon(donor % 4 + 1, number, 8000);
	soon(donor, number + 1, 8000);
	soon(donor, number, 1000);
	soon(donor, number, 8000);
	assert_true(asks_within(60000, &m));
	assert_in_range(b.now_ms - since, 6000, 8000);
	/* Its answer comes late, and is taken. */
	soon(donor, number, 8000);
	assert_false(asks_within(12000, &m));
	given();
}

/* Each of them once before anybody is asked again; from turn to turn we wait longer. */
static void test_all_are_asked_in_turn(void **state)
{
	uint64_t last_ms = 0, waited[3] = {0};
	(void)state;
	newcomer(5);
	for (int turn = 0; turn < 3; turn++) {
		uint32_t seen = 0;
		for (int i = 0; i < 5; i++) {
			if (turn + i > 0) {
				(void)asked();
				waited[turn] += i == 0 ? b.now_ms - last_ms : 0;
			}
			assert_int_equal(seen >> donor & 1, 0);
			seen |= 1u << donor;
			busy();
			assert_non_null(bed_said(&b, SAY_JOIN_BUSY));
			assert_int_equal(bed_said(&b, SAY_JOIN_BUSY)->peer.bytes[0] - 0x10, donor);
			last_ms = b.now_ms;
		}
	}
	assert_true(waited[1] >= 400 && waited[2] >= waited[1] + 100);
}

/* All are busy for ever: after some attempts it trains from what it has, and says so. */
static void test_nobody_gives_a_state(void **state)
{
	struct exchange_message m;
	int n = 1;
	(void)state;
	newcomer(2);
	for (busy(); asks_within(10000, &m); n++)
		busy();
	assert_int_equal(n, 27); /* of 40 attempts every third finds nobody left to ask */
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_false(bed_view(&b).joined);
	assert_false(bed_view(&b).joining);
}

/* Those who have trained something are asked first. */
static void asks_who_has_trained(int peers, int trained)
{
	struct flock_config c = bed_config();
	struct exchange_message m;
	c.rate_cap = 1e12;
	n_peers = 0;
	number = 0;
	bed_open(&b, &c);
	for (int k = 0; k < 100 && !asks_within(0, &m); k++) {
		for (int i = 1; i <= peers; i++)
			bed_record(&b, i, i == trained ? AHEAD : 0, 0.5f);
		bed_pass(&b, 50);
	}
	assert_int_equal(donor, trained);
	assert_true(bed_view(&b).joining);
}

static void test_who_has_trained_is_asked(void **state)
{
	(void)state;
	asks_who_has_trained(9, 7);
	bed_close(&b);
	asks_who_has_trained(2, 1);
}

static void test_quarantined_is_not_asked(void **state)
{
	(void)state;
	newcomer(2);
	int bad = donor;
	given();
	transferred(3, ERR_NONFINITE);
	assert_int_equal(quarantined(), 1);
	const struct flock_say *s = bed_said(&b, SAY_JOIN_BROKEN);
	assert_non_null(s);
	assert_int_equal(s->error, ERR_NONFINITE);
	assert_int_equal(s->a, 3);
	assert_int_equal(s->b, 2 * BED_COUNT);
	for (int i = 0; i < 4; i++) {
		struct exchange_message m = asked();
		assert_int_equal(m.fetch.offset, 0); /* of what it gave nothing is kept */
		assert_int_not_equal(donor, bad);
		busy();
	}
}

/* Of another donor, of which nobody knows whether it is near the first, all is asked for. */
static void test_other_donor_is_asked_for_all(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12;
	n_peers = 2;
	number = 0;
	bed_open(&b, &c);
	(void)asked();
	int first = donor;
	given();
	transferred(100, ERR_TIMEOUT);
	assert_int_equal(asked().fetch.offset, 0);
	assert_int_equal(donor, 3 - first);
	assert_non_null(bed_said(&b, SAY_JOIN_OTHER_DONOR));
	assert_false(bed_said(&b, SAY_JOIN_OTHER_DONOR)->flag);
}

/* More of them are busy than can be remembered: they are asked all the same. */
static void test_many_donors(void **state)
{
	struct exchange_message m;
	uint32_t seen = 0;
	(void)state;
	newcomer(12);
	for (int i = 0; i < 12; i++) {
		seen |= 1u << donor;
		busy();
		assert_true(asks_within(5000, &m));
	}
	int n = 0;
	for (int i = 1; i <= 12; i++)
		n += (seen >> i & 1) != 0;
	assert_true(n >= 9);
}

/* Nobody waits for the answer to a question that could not be sent. */
static void test_question_that_was_not_sent(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_UNSENT};
	struct exchange_message m;
	(void)state;
	newcomer(2);
	int first = donor;
	e.peer = bed_id(donor);
	e.exchange = number + 2; /* of something else */
	bed_step(&b, e);
	assert_false(asks_within(1000, &m));
	e.exchange = number;
	e.peer = bed_id(3 - donor);
	bed_step(&b, e);
	assert_false(asks_within(1000, &m));
	e.peer = bed_id(donor);
	bed_step(&b, e);
	assert_true(asks_within(1000, &m));
	assert_int_equal(donor, 3 - first);
}

/* A donor that is lost before its state comes is asked again when it is back, or another is. */
static void test_donor_that_leaves(void **state)
{
	struct exchange_message m;
	(void)state;
	newcomer(2);
	int gone = donor;
	bed_word(&b, gone, AHEAD, 0.5f, true);
	n_peers = 0;
	bed_record(&b, 3 - gone, AHEAD, 0.5f);
	assert_true(asks_within(1000, &m));
	assert_int_equal(donor, 3 - gone);
}

static void test_donor_that_leaves_in_the_middle(void **state)
{
	(void)state;
	newcomer(4);
	int gone = donor;
	given();
	bed_word(&b, gone, AHEAD, 0.5f, true);
	assert_int_equal(did(FLOCK_DO_CANCEL), 1);
	n_peers = 0;
	for (int i = 1; i <= 4; i++)
		if (i != gone)
			bed_record(&b, i, AHEAD, 0.5f);
	transferred(100, ERR_CANCELLED);
	struct exchange_message m = asked();
	assert_int_not_equal(donor, gone);
	assert_int_equal(m.fetch.offset, 100); /* the others are near: the rest will do */
}

/* Parameters may be of two donors that are near each other, the optimizer's vectors of one. */
static void test_rest_of_the_optimizer_is_of_one_donor(void **state)
{
	(void)state;
	newcomer(4);
	given();
	transferred(BED_COUNT + 50, ERR_TIMEOUT);
	assert_int_equal(asked().fetch.offset, BED_COUNT);
	assert_true(bed_said(&b, SAY_JOIN_OTHER_DONOR)->flag);
}

static void tells_place(int peer, double off)
{
	static uint64_t numbers = 1000;
	struct exchange_message m = bed_offer(&b, ++numbers);
	struct sketch at = bed_place(10, off);
	m.terms.clock = 4 * AHEAD;
	sketch_pack(&at, m.terms.sketch);
	bed_hear(&b, peer, &m);
}

/* The first donor had its copy at 0, and is two short of the three others by now, which are at that
 * place: Ξ is 0.866. Of which number on the next one is asked. */
static uint64_t asked_of_another(double others)
{
	newcomer(4);
	int first = donor;
	given();
	for (int i = 1; i <= 4; i++)
		tells_place(i, i == first ? others - 2 : others);
	transferred(100, ERR_TIMEOUT);
	struct exchange_message m = asked();
	assert_int_not_equal(donor, first);
	assert_int_equal(bed_said(&b, SAY_JOIN_OTHER_DONOR)->flag, m.fetch.offset > 0);
	bed_close(&b);
	return m.fetch.offset;
}

/* Near is up to four times as far as peers are from their mean, 3.46 here. */
static void test_rest_is_of_a_donor_that_is_near(void **state)
{
	(void)state;
	assert_int_equal(asked_of_another(3.4), 100);
	assert_int_equal(asked_of_another(3.55), 0);
}

/* News of its steps may be on its way: one that has trained nothing yet, as far as is known, is
 * asked where there is nobody else. */
static void test_one_that_tells_no_steps(void **state)
{
	struct flock_config c = bed_config();
	struct exchange_message m;
	(void)state;
	c.rate_cap = 1e12;
	n_peers = 1;
	number = 0;
	bed_open(&b, &c);
	b.earlier = true;
	assert_true(asks_within(3000, &m));
	assert_int_equal(donor, 1);
}

/* ---- connections */

/* Whom we cannot dial dials us, if it can. */
static void test_donor_that_cannot_be_dialled(void **state)
{
	struct exchange_message m;
	(void)state;
	newcomer(2);
	int first = donor;
	m = gift();
	bed_hear(&b, donor, &m);
	bulk(donor, BULK_CANNOT_DIAL);
	assert_non_null(bed_sent(&b, EXCHANGE_OPEN));
	assert_int_equal(bed_sent(&b, EXCHANGE_OPEN)->exchange, number);
	assert_false(asks_within(9000, &m));
	bulk(donor, BULK_FAILED);
	(void)asked();
	assert_int_not_equal(donor, first);
}

static void test_connection_has_ten_seconds(void **state)
{
	struct exchange_message m;
	(void)state;
	newcomer(2);
	int first = donor;
	m = gift();
	bed_hear(&b, donor, &m);
	bulk(3 - donor, BULK_CAME); /* whose is that? */
	assert_int_equal(did(FLOCK_DO_TRANSFER), 0);
	assert_int_equal(did(FLOCK_DO_CLOSE), 1);
	assert_false(asks_within(9900, &m));
	assert_true(asks_within(1000, &m));
	assert_int_not_equal(donor, first);
}

/* ---- its answer */

static void unfit(struct exchange_message m)
{
	newcomer(1);
	m.exchange = number;
	bed_hear(&b, donor, &m);
	assert_int_equal(did(FLOCK_DO_OPEN), 0);
	assert_non_null(bed_said(&b, SAY_JOIN_UNFIT));
	assert_int_equal(bed_said(&b, SAY_JOIN_UNFIT)->error, ERR_MISMATCH);
	assert_int_equal(quarantined(), 0);
	bed_close(&b);
}

/* A state of something else, or from the middle, is none. */
static void test_gift_that_does_not_fit(void **state)
{
	struct exchange_message m;
	(void)state;
	newcomer(1);
	m = gift();
	bed_close(&b);
	m.gift.vectors = 3;
	unfit(m);
	m.gift.vectors = 2;
	m.gift.optimizer = 1;
	unfit(m);
	m.gift.optimizer = 0;
	m.gift.snapshot = 0;
	unfit(m);
	m.gift.snapshot = 5;
	m.gift.offset = 1;
	unfit(m);
	m.gift.offset = 0;
	m.gift.manifest.init++;
	unfit(m);
	newcomer(1);
	given();
}

/* What it has trained is told with it, and passed on. */
static void test_gift_tells_samples(void **state)
{
	struct member_view v;
	(void)state;
	newcomer(2);
	given();
	bed_pass(&b, 100);
	struct peer_id id = bed_id(donor);
	assert_true(gossip_find(flock_membership(b.core), &id, &v));
	assert_int_equal(v.samples, 2 * AHEAD);
	assert_int_equal(bed_view(&b).clock, 3 * AHEAD);
}

/* ---- transfers */

/* Who is slow gives the rest, unless there is somebody else; who gives nothing does not. */
static void test_slow_donor(void **state)
{
	struct exchange_message m;
	(void)state;
	newcomer(1);
	given();
	transferred(50, ERR_TIMEOUT);
	m = asked();
	assert_int_equal(m.fetch.offset, 50);
	assert_int_equal(m.fetch.snapshot, 5);
	bed_close(&b);
	newcomer(2);
	int first = donor;
	given();
	transferred(50, ERR_TIMEOUT);
	m = asked();
	assert_int_not_equal(donor, first);
	assert_int_equal(m.fetch.offset, 50);
	assert_int_equal(m.fetch.snapshot, 0); /* it has another */
	bed_close(&b);
	newcomer(2);
	first = donor;
	given();
	transferred(50, ERR_IO); /* the connection broke: it may be there again */
	m = asked();
	assert_int_equal(donor, first);
	assert_int_equal(m.fetch.snapshot, 5);
	struct flock_view v = bed_view(&b);
	assert_int_equal(v.counts.bytes_received, 200);
	assert_int_equal(v.counts.bytes_sent, 10);
	assert_int_equal(v.join_count, 50);
	assert_int_equal(v.join_total, 2 * BED_COUNT);
}

/* ---- our own learner */

static void test_learner_without_room_for_a_trial(void **state)
{
	(void)state;
	newcomer(2);
	int first = donor;
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried(0.6, ERR_BUSY);
	struct exchange_message m = asked();
	assert_int_equal(donor, first); /* which is not to blame */
	assert_int_equal(m.fetch.offset, 0);
	assert_int_equal(quarantined(), 0);
	/* Another failure of ours: another donor, who may have a state that fits. */
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried(0.6, ERR_NOMEM);
	assert_non_null(bed_said(&b, SAY_JOIN_ADOPT_FAILED));
	assert_int_equal(asked().fetch.offset, 0);
	assert_int_not_equal(donor, first);
	assert_int_equal(quarantined(), 0);
}

/* What could not be measured is asked for again. */
static void test_state_that_could_not_be_measured(void **state)
{
	struct exchange_message m;
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
		newcomer(1);
		given();
		transferred(2 * BED_COUNT, 0);
		e.code = i == 0 ? ERR_NOMEM : 0;
		e.measured.slot = SLOT_FETCHED;
		e.measured.finite = true;
		e.measured.sketch = i == 0 ? &b.place : NULL;
		bed_step(&b, e);
		assert_int_equal(did(FLOCK_DO_TRY), 0);
		assert_true(asks_within(1000, &m));
		bed_close(&b);
	}
}

/* A worse state may be that of an honest flock on other data: its donor is only not asked again. */
static void test_worse_state(void **state)
{
	(void)state;
	newcomer(2);
	int first = donor;
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried(100, 0);
	assert_int_equal(quarantined(), 0);
	assert_int_equal(asked().fetch.offset, 0);
	assert_int_not_equal(donor, first);
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried((double)NAN, 0);
	assert_int_equal(quarantined(), 1);
}

/* An agent that leaves while a state comes in, or is measured, lets both end first. */
static void leaves_after(bool whole)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH};
	int left = 0;
	newcomer(1);
	given();
	if (whole)
		transferred(2 * BED_COUNT, 0);
	e.wish = WISH_LEAVE;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_CANCEL), !whole);
	if (!whole)
		transferred(10, ERR_CANCELLED);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STOPPED});
	for (int i = 0; i < 10; i++) {
		left += did(FLOCK_DO_LEFT);
		bed_pass(&b, 50);
	}
	assert_int_equal(left, !whole);
	if (whole) {
		e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
		e.measured.slot = SLOT_FETCHED;
		e.measured.sketch = &b.place;
		bed_step(&b, e);
		assert_int_equal(did(FLOCK_DO_TRY), 0);
		for (int i = 0; i < 10; i++) {
			left += did(FLOCK_DO_LEFT);
			bed_pass(&b, 50);
		}
		assert_int_equal(left, 1);
	}
	bed_close(&b);
}

static void test_leaving_while_a_state_comes(void **state)
{
	(void)state;
	leaves_after(false);
	leaves_after(true);
}

/* ---- what is adopted */

static void test_adopted_state(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_ADOPTED};
	(void)state;
	newcomer(3);
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried(0.6, 0);
	const struct flock_action *x = bed_did(&b, FLOCK_DO_ADOPT);
	assert_non_null(x);
	assert_int_equal(x->adopt.step, 1000);
	assert_int_equal(x->adopt.samples, 2 * AHEAD);
	assert_int_equal(x->adopt.clock, 3 * AHEAD);
	assert_int_equal(x->adopt.vectors, 2);
	assert_non_null(bed_said(&b, SAY_JOIN_TAKEN));
	assert_int_equal(bed_said(&b, SAY_JOIN_TAKEN)->a, 1000);
	assert_int_equal(bed_said(&b, SAY_JOIN_TAKEN)->peer.bytes[0] - 0x10, donor);
	assert_int_equal(bed_said(&b, SAY_JOIN_TAKEN)->b, 2); /* witnesses beside the donor */
	bed_step(&b, e);
	assert_non_null(bed_said(&b, SAY_JOINED));
	assert_int_equal(bed_said(&b, SAY_JOINED)->b, 3 * AHEAD);
	assert_int_equal(did(FLOCK_DO_RELEASE), 1);
	assert_int_equal(bed_did(&b, FLOCK_DO_RELEASE)->slot, SLOT_FETCHED);
	assert_int_equal(did(FLOCK_DO_TRAIN), 1);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_int_equal(bed_view(&b).counts.adoptions, 1);
	assert_true(bed_view(&b).joined);
	assert_int_equal(
	        bed_view(&b).exchanged_ms, b.now_ms); /* of that moment, as by an exchange */
}

/* With a stated rate a first claim counts for our own time, until the rates of those who had
 * trained before us tell how old the run is. */
static void test_age_of_the_run_is_measured(void **state)
{
	struct flock_config c = bed_config();
	struct flock_event e = {.kind = FLOCK_EVENT_ADOPTED};
	struct flock_view v;
	(void)state;
	c.rate_cap = 1000;
	n_peers = 3;
	number = 0;
	bed_open(&b, &c);
	peers_live();
	(void)asked();
	given();
	transferred(2 * BED_COUNT, 0);
	measured();
	tried(0.6, 0);
	bed_step(&b, e);
	b.loss = 0.6;
	for (uint64_t k = 1; k <= 160; k++) {
		bed_train(&b, 3, 0.001);
		for (int i = 1; i <= 3; i++)
			bed_record(&b, i, AHEAD + 100 * k, 0.5f);
		bed_pass(&b, 100);
		v = bed_view(&b);
		uint64_t others = v.clock - v.samples;
		if (k == 70)
			assert_true(others < 3 * 20000);
		if (k == 160)
			assert_in_range(others, 3 * 45000, 3 * 70000);
	}
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_slow_donor_is_awaited),
	        TEST(test_all_are_asked_in_turn),
	        TEST(test_nobody_gives_a_state),
	        TEST(test_who_has_trained_is_asked),
	        TEST(test_quarantined_is_not_asked),
	        TEST(test_other_donor_is_asked_for_all),
	        TEST(test_many_donors),
	        TEST(test_question_that_was_not_sent),
	        TEST(test_donor_that_leaves),
	        TEST(test_donor_that_leaves_in_the_middle),
	        TEST(test_rest_of_the_optimizer_is_of_one_donor),
	        cmocka_unit_test(test_rest_is_of_a_donor_that_is_near),
	        TEST(test_one_that_tells_no_steps),
	        TEST(test_donor_that_cannot_be_dialled),
	        TEST(test_connection_has_ten_seconds),
	        TEST(test_gift_that_does_not_fit),
	        TEST(test_gift_tells_samples),
	        TEST(test_slow_donor),
	        TEST(test_learner_without_room_for_a_trial),
	        cmocka_unit_test(test_state_that_could_not_be_measured),
	        TEST(test_worse_state),
	        cmocka_unit_test(test_leaving_while_a_state_comes),
	        TEST(test_adopted_state),
	        TEST(test_age_of_the_run_is_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
