/* SPDX-License-Identifier: MIT */
/* Decisions of one agent that seldom come up in a run: an offer that crosses that of a stale agent,
 * a connection that comes late, a state that comes in parts, a donor that contradicts the other
 * peers, a run that ends while a state is on its way, what the learner could not take. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static struct flock_config config(void)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12; /* any claim of samples counts */
	return c;
}

/* ---- offers */

/* It slept while its offer was under way, and missed much: it takes a state, no exchange. Peers
 * have lower ids, so that of two offers theirs survives. */
static void test_stale_agent_takes_no_crossing_offer(void **state)
{
	struct flock_config c = config();
	(void)state;
	c.membership.self = bed_id(9);
	c.gate.every_samples = 40 * 32;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	for (int i = 0; i < 100 && !bed_sent(&b, EXCHANGE_OFFER); i++) {
		bed_record(&b, 1, 0, 1);
		bed_pass(&b, 50);
		bed_train(&b, 1, 0.1);
	}
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	b.now_ms += 2000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	bed_record(&b, 1, BED_TOTAL / 2, 1);
	bed_pass(&b, 150);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_OFFERED);
	struct exchange_message m = bed_offer(&b, 77);
	bed_hear(&b, 1, &m);
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_JOINING);
	bed_pass(&b, 200);
	assert_true(bed_view(&b).joining);
}

/* The connection of an exchange that was given up is none of the next with the same peer. */
static void test_late_connection_is_closed(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(1), .exchange = 1};
	struct flock_config c = config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	for (uint64_t k = 1; k <= 2; k++) {
		struct exchange_message m = bed_offer(&b, k);
		bed_hear(&b, 1, &m);
		assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
		m = (struct exchange_message){.kind = EXCHANGE_ABORT, .exchange = k};
		if (k == 1)
			bed_hear(&b, 1, &m);
		bed_pass(&b, k == 1 ? 2000 : 0);
	}
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_PREPARING);
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_null(bed_did(&b, FLOCK_DO_TRANSFER));
	assert_non_null(bed_did(&b, FLOCK_DO_CLOSE));
	e.exchange = 2;
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
}

/* What was trained while the user had us pause was missed, also what we hear of just at its end. */
static void test_news_at_the_end_of_a_pause(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH};
	struct flock_config c = config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	e.wish = WISH_PAUSE;
	bed_step(&b, e);
	/* We hear of the others all the time, and for long enough. */
	for (int i = 0; i < 400; i++) {
		bed_record(&b, 1, 1000, 1);
		bed_pass(&b, 100);
	}
	bed_record(&b, 1, BED_TOTAL / 2, 1);
	e.wish = WISH_RESUME;
	bed_step(&b, e);
	bed_pass(&b, 200);
	assert_true(bed_view(&b).joining);
}

/* The run goes on from where the checkpoint left it, before anybody else is heard of. */
static void test_checkpoint_knows_of_the_others(void **state)
{
	struct flock_config c = config();
	(void)state;
	c.resumed = true;
	c.step = 100;
	c.samples = 3200;
	c.others = 300000;
	bed_open(&b, &c);
	bed_pass(&b, 200);
	assert_int_equal(bed_view(&b).clock, 303200);
}

/* ---- joining */

static int n_peers;
static int donor;       /* who was asked last */
static uint64_t number; /* of that question */

/* Nobody answers probes: news of all of them. */
static void peers_live(void)
{
	for (int i = 1; i <= n_peers; i++)
		bed_record(&b, i, 100000, 0.5f);
}

static struct exchange_message asked(void)
{
	for (int k = 0; k < 200; k++) {
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_FETCH) {
				donor = b.a->send[i].to.bytes[0] - 0x10;
				number = b.a->send[i].message.exchange;
				return b.a->send[i].message;
			}
		peers_live();
		bed_pass(&b, 50);
	}
	fail();
	return (struct exchange_message){0};
}

/* A newcomer among peers far ahead, all at one place, asks for a state. */
static struct exchange_message newcomer(int peers)
{
	struct flock_config c = config();
	n_peers = peers;
	bed_open(&b, &c);
	peers_live();
	for (int i = 1; i <= peers; i++) {
		struct exchange_message m = bed_offer(&b, (uint64_t)i);
		m.terms.clock = 100000 * (uint64_t)peers;
		bed_hear(&b, i, &m);
	}
	return asked();
}

/* The donor's answer, and the connection; returns at which number the transfer begins. */
static uint64_t given(uint64_t snapshot, uint64_t offset)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(donor)};
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = number};
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = snapshot;
	m.gift.offset = offset;
	m.gift.step = 1000;
	m.gift.batch = 96;
	m.gift.noise = 50;
	m.gift.samples = 32000;
	m.gift.vectors = 2;
	m.gift.n = 2;
	bed_hear(&b, donor, &m);
	e.exchange = number;
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	return t->transfer.offset;
}

static void transferred(uint64_t received, int code)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number};
	e.transferred.use = USE_FETCH;
	e.transferred.received = received;
	e.code = code;
	bed_step(&b, e);
}

static void measured(struct sketch at)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	assert_non_null(bed_did(&b, FLOCK_DO_MEASURE));
	e.measured.slot = SLOT_FETCHED;
	e.measured.finite = true;
	e.measured.sketch = &at;
	bed_step(&b, e);
}

/* The rest of one snapshot is asked for; the donor has only another by now: from its beginning. */
static void test_parts_are_of_one_snapshot(void **state)
{
	(void)state;
	newcomer(1);
	assert_int_equal(given(5, 0), 0);
	transferred(100, ERR_IO);
	struct exchange_message m = asked();
	assert_int_equal(m.fetch.snapshot, 5);
	assert_int_equal(m.fetch.offset, 100);
	assert_int_equal(given(5, 100), 100);
	transferred(100, ERR_IO);
	m = asked();
	assert_int_equal(m.fetch.offset, 200);
	assert_int_equal(given(6, 0), 0);
	transferred(2 * BED_COUNT, 0);
	assert_non_null(bed_did(&b, FLOCK_DO_MEASURE));
}

/* A state has come, whole, and is good: it is to be adopted. */
static void taken(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRIED};
	transferred(2 * BED_COUNT, 0);
	measured(b.place);
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
	e.tried = (struct flock_trial){.loss = 0.6, .own = 2.3, .initial = 2.3, .test = true};
	bed_step(&b, e);
	assert_non_null(bed_did(&b, FLOCK_DO_ADOPT));
	assert_int_equal(bed_did(&b, FLOCK_DO_ADOPT)->adopt.batch, 96);
	assert_true(bed_did(&b, FLOCK_DO_ADOPT)->adopt.noise == 50);
}

/* Our own learner had no room: another is asked for, and the donor is not to blame. */
static void test_adoption_that_the_learner_did_not_take(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_REFUSED};
	(void)state;
	newcomer(2);
	given(5, 0);
	taken();
	e.refused = FLOCK_DO_ADOPT;
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).quarantined, 0);
	assert_int_equal(asked().fetch.offset, 0);
	assert_int_equal(bed_view(&b).counts.adoptions, 0);
}

static void test_state_that_cannot_be_adopted(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_ADOPTED, .code = ERR_INVALID};
	(void)state;
	newcomer(2);
	given(5, 0);
	taken();
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).quarantined, 1);
	assert_false(bed_view(&b).joined);
	assert_int_equal(asked().fetch.offset, 0);
}

/* A state that took so long that the run is over meanwhile is none of its end. */
static void test_state_that_is_too_old_when_it_comes(void **state)
{
	(void)state;
	newcomer(1);
	given(5, 0);
	bed_record(&b, 1, BED_TOTAL, 0.5f);
	bed_pass(&b, 150);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).joined);
	n_peers = 0; /* what it told last stays */
	asked();
}

/* The same, where that is heard of at the last moment. */
static void test_end_is_heard_of_as_the_state_comes(void **state)
{
	(void)state;
	newcomer(1);
	given(5, 0);
	taken();
	bed_record(&b, 1, BED_TOTAL, 0.5f);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).joined);
	n_peers = 0;
	asked();
}

/* What was trained while it slept is not in a state from before, though it hears of it later. */
static void slept_while_a_state_came(uint64_t ms)
{
	newcomer(1);
	given(5, 0);
	b.now_ms += ms;
	bed_record(&b, 1, 100000, 0.5f);
	bed_pass(&b, 100);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	bed_train(&b, 20, 0.001);
	bed_record(&b, 1, BED_TOTAL / 2, 0.5f);
	bed_pass(&b, 200);
}

static void test_state_from_before_a_sleep(void **state)
{
	(void)state;
	slept_while_a_state_came(0);
	assert_false(bed_view(&b).joining);
	bed_close(&b);
	slept_while_a_state_came(5000);
	assert_true(bed_view(&b).joining);
}

/* But one in which nothing of the end is missing is taken once. */
static void test_state_of_the_end(void **state)
{
	(void)state;
	newcomer(1);
	bed_record(&b, 1, BED_TOTAL / 100 * 95, 0.5f);
	bed_pass(&b, 150);
	given(5, 0);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).joined);
	for (int i = 0; i < 20; i++) {
		bed_record(&b, 1, BED_TOTAL / 100 * 95, 0.5f);
		bed_pass(&b, 50);
		assert_false(bed_view(&b).joining);
	}
}

/* The state before is kept for 100 steps, and comes back if the loss rises to twice that of the
 * first steps; a loss that is high from the beginning may be that of other data. */
static void adopt(void)
{
	newcomer(3);
	given(5, 0);
	taken();
	bed_pass(&b, 100);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_non_null(bed_said(&b, SAY_JOINED));
	assert_in_range(bed_said(&b, SAY_JOINED)->a, 100, 5000);
	b.loss = 3;
}

static uint64_t restored(double loss)
{
	b.loss = loss;
	bed_train(&b, 1, 0.001);
	peers_live();
	bed_pass(&b, 200);
	return bed_view(&b).counts.restored;
}

static void test_adopted_state_is_watched(void **state)
{
	(void)state;
	adopt();
	bed_train(&b, 50, 0.001);
	assert_int_equal(restored(3), 0);
	assert_int_equal(restored(400), 1);
	assert_int_equal(bed_view(&b).quarantined, 1);
}

static void test_adopted_state_is_watched_for_100_steps(void **state)
{
	(void)state;
	adopt();
	bed_train(&b, 99, 0.001);
	assert_int_equal(restored((double)NAN), 1);
	bed_close(&b);
	adopt();
	bed_train(&b, 100, 0.001);
	assert_int_equal(restored((double)NAN), 0);
}

/* With the state before comes what was trained with it: held against what others trained since. */
static void test_restored_state_is_no_staler(void **state)
{
	struct flock_config c = config();
	(void)state;
	c.stale = 0.09;
	n_peers = 1;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 3031, 0.001); /* 96,992 samples, the other 100,000 */
	b.now_ms += 2000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	(void)asked();
	given(5, 0);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).joined);
	bed_train(&b, 98, 0.001);
	assert_false(bed_view(&b).joining);
	assert_int_equal(restored((double)NAN), 1); /* 100,160 by now */
	assert_false(bed_view(&b).joining);
}

/* All peers say that they are elsewhere; true: we follow them. */
static bool all_are_elsewhere(void)
{
	static uint64_t numbers;
	bool follows = false;
	peers_live();
	for (int i = 1; i <= n_peers; i++) {
		struct sketch far = bed_place(-10, 0.1 * i);
		struct exchange_message m = bed_offer(&b, 1000 + ++numbers);
		m.terms.clock = 100000 * (uint64_t)n_peers;
		sketch_pack(&far, m.terms.sketch);
		bed_hear(&b, i, &m);
		assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
		follows = follows || (bed_said(&b, SAY_APART) && bed_said(&b, SAY_APART)->flag);
	}
	return follows;
}

/* An agent that goes from one flock to another and back would never train. */
static void test_state_is_given_up_once_a_minute(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_true(bed_view(&b).joined);
	bed_train(&b, 10, 0.001);
	assert_false(all_are_elsewhere());
	for (int i = 0; i < 580; i++) {
		peers_live();
		bed_pass(&b, 100);
	}
	assert_false(all_are_elsewhere());
	for (int i = 0; i < 30; i++) {
		peers_live();
		bed_pass(&b, 100);
	}
	assert_true(all_are_elsewhere());
}

static void test_state_that_no_other_peer_has(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	transferred(2 * BED_COUNT, 0);
	measured(bed_place(-10, 0));
	assert_null(bed_did(&b, FLOCK_DO_TRY));
	assert_non_null(bed_said(&b, SAY_JOIN_IMPLAUSIBLE));
	assert_int_equal(bed_view(&b).quarantined, 1);
}

static void test_state_that_all_have(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	transferred(2 * BED_COUNT, 0);
	measured(bed_place(10, 0.1));
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
}

/* Of one witness nobody knows whether it or the donor lies. */
static void test_one_witness_is_none(void **state)
{
	(void)state;
	newcomer(2);
	given(5, 0);
	transferred(2 * BED_COUNT, 0);
	measured(bed_place(-10, 0));
	assert_non_null(bed_did(&b, FLOCK_DO_TRY));
}

/* What peers told before we slept is old: the state is not used, but nobody is accused. */
static void test_witnesses_from_before_a_sleep(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	b.now_ms += 2000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	peers_live();
	transferred(2 * BED_COUNT, 0);
	measured(bed_place(-10, 0));
	assert_non_null(bed_said(&b, SAY_JOIN_IMPLAUSIBLE));
	assert_int_equal(bed_view(&b).quarantined, 0);
}

/* Half a minute later all have told anew. */
static void test_witnesses_long_after_a_sleep(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	b.now_ms += 2000;
	for (int i = 0; i < 310; i++) {
		peers_live();
		bed_pass(&b, 100);
	}
	for (int i = 1; i <= 3; i++) {
		struct exchange_message m = bed_offer(&b, 10 + (uint64_t)i);
		m.terms.clock = 300000;
		bed_hear(&b, i, &m);
	}
	transferred(2 * BED_COUNT, 0);
	measured(bed_place(-10, 0));
	assert_non_null(bed_said(&b, SAY_JOIN_IMPLAUSIBLE));
	assert_int_equal(bed_view(&b).quarantined, 1);
}

/* How many questions have gone out until then, and to whom the last. */
static int asks_within(uint64_t ms)
{
	int n = 0;
	for (uint64_t end = b.now_ms + ms; b.now_ms < end;) {
		peers_live();
		bed_pass(&b, 50);
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_FETCH) {
				donor = b.a->send[i].to.bytes[0] - 0x10;
				number = b.a->send[i].message.exchange;
				n++;
			}
	}
	return n;
}

/* A donor has 5 s for its answer, then another is asked. */
static void test_donor_has_time_to_answer(void **state)
{
	(void)state;
	newcomer(2);
	int first = donor;
	assert_int_equal(asks_within(4800), 0);
	assert_int_equal(asks_within(1000), 1);
	assert_int_not_equal(donor, first);
}

/* The user is told why; with nobody else to ask, the same is asked again, after a pause. */
static void test_donor_is_busy(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY};
	(void)state;
	newcomer(1);
	assert_int_equal(donor, 1);
	m.exchange = number;
	m.busy.manifest = b.c.manifest;
	strcpy(m.busy.words, "no state to give now");
	bed_hear(&b, donor, &m);
	assert_null(bed_said(&b, SAY_JOIN_UNFIT));
	assert_non_null(bed_said(&b, SAY_JOIN_BUSY));
	assert_string_equal(bed_said(&b, SAY_JOIN_BUSY)->words, "no state to give now");
	assert_int_equal(asks_within(150), 0);
	assert_int_equal(asks_within(1500), 1);
	assert_int_equal(donor, 1);
}

/* A second answer changes nothing of a transfer under way. */
static void test_gift_out_of_turn(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_GIFT};
	(void)state;
	newcomer(1);
	given(5, 0);
	m.exchange = number;
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = 6;
	m.gift.vectors = 1;
	m.gift.n = 2;
	bed_hear(&b, donor, &m);
	assert_null(bed_did(&b, FLOCK_DO_OPEN));
	assert_int_equal(b.a->n_says, 0);
	m.kind = EXCHANGE_BUSY;
	bed_hear(&b, donor, &m);
	assert_int_equal(b.a->n_says, 0);
	taken();
}

/* Of a state that two donors gave parts of nobody knows whose is bad. */
static void test_state_of_two_donors(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	int first = donor;
	transferred(100, ERR_TIMEOUT);
	struct exchange_message m = asked();
	assert_int_not_equal(donor, first);
	assert_int_equal(m.fetch.offset, 100);
	assert_int_equal(given(6, 100), 100);
	transferred(2 * BED_COUNT - 100, 0);
	measured(bed_place(-10, 0));
	assert_non_null(bed_said(&b, SAY_JOIN_IMPLAUSIBLE));
	assert_int_equal(bed_view(&b).quarantined, 0);
}

/* Whoever has adopted a state exchanges after some good steps, and can tell where it is. */
static void test_adopted_state_is_exchanged(void **state)
{
	(void)state;
	newcomer(3);
	given(5, 0);
	taken();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	bed_train(&b, 20, 0.001);
	struct exchange_message m = bed_offer(&b, 500);
	m.terms.clock = 300000;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_int_equal(bed_sent(&b, EXCHANGE_ACCEPT)->terms.sketch_length, SKETCH_BUCKETS * 4);
}

/* ---- donating */

static struct exchange_message fetch(int from, uint64_t snapshot, uint64_t offset)
{
	static uint64_t numbers;
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = ++numbers};
	m.fetch.manifest = b.c.manifest;
	m.fetch.snapshot = snapshot;
	m.fetch.offset = offset;
	bed_hear(&b, from, &m);
	if (bed_did(&b, FLOCK_DO_TAKE_STATE)) {
		struct flock_event e = {.kind = FLOCK_EVENT_STATE};
		e.state = (struct flock_state){.step = 10, .vectors = 2};
		bed_step(&b, e);
	}
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
	return *bed_sent(&b, EXCHANGE_GIFT);
}

static void test_rest_is_of_the_same_copy(void **state)
{
	struct flock_config c = config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 2);
	bed_train(&b, 10, 0.1);
	struct exchange_message m = fetch(1, 0, 0);
	uint64_t copy = m.gift.snapshot;
	assert_int_equal(fetch(1, copy, 100).gift.offset, 100);
	m = fetch(1, copy + 2, 100);
	assert_int_equal(m.gift.snapshot, copy);
	assert_int_equal(m.gift.offset, 0);
}

/* ---- the end */

/* The initial weights are no result: a state comes first. */
static void test_run_ends_while_a_state_comes(void **state)
{
	(void)state;
	newcomer(1);
	given(5, 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	bed_pass(&b, 200);
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_stale_agent_takes_no_crossing_offer),
	        TEST(test_late_connection_is_closed),
	        TEST(test_news_at_the_end_of_a_pause),
	        TEST(test_checkpoint_knows_of_the_others),
	        TEST(test_adoption_that_the_learner_did_not_take),
	        TEST(test_state_that_cannot_be_adopted),
	        TEST(test_state_that_is_too_old_when_it_comes),
	        TEST(test_end_is_heard_of_as_the_state_comes),
	        TEST(test_state_from_before_a_sleep),
	        TEST(test_state_of_the_end),
	        TEST(test_state_is_given_up_once_a_minute),
	        TEST(test_adopted_state_is_watched),
	        TEST(test_adopted_state_is_watched_for_100_steps),
	        TEST(test_restored_state_is_no_staler),
	        TEST(test_parts_are_of_one_snapshot),
	        TEST(test_state_that_no_other_peer_has),
	        TEST(test_state_that_all_have),
	        TEST(test_one_witness_is_none),
	        TEST(test_witnesses_from_before_a_sleep),
	        TEST(test_witnesses_long_after_a_sleep),
	        TEST(test_donor_has_time_to_answer),
	        TEST(test_donor_is_busy),
	        TEST(test_gift_out_of_turn),
	        TEST(test_state_of_two_donors),
	        TEST(test_adopted_state_is_exchanged),
	        TEST(test_rest_is_of_the_same_copy),
	        TEST(test_run_ends_while_a_state_comes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
