/* SPDX-License-Identifier: MIT */
/* Ids are free, labels are not: twenty ids with one certificate count for its agents, no more. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;

#define OURS 1   /* labels: peer 1 is ours, */
#define THEIRS 9 /* those from SYBIL on are theirs */
#define SYBIL 3
#define SYBILS 20
#define OWN_RATE 320 /* samples a second */

static void certify(int i, uint64_t label, uint32_t agents, uint64_t rate)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	e.membership.kind = EVENT_CERTIFIED;
	e.membership.certified.id = bed_id(i);
	e.membership.certified.label = label;
	e.membership.certified.rate = rate;
	e.membership.certified.agents = agents;
	bed_step(&b, e);
}

/* Seconds in which we and peer 1 train; n others say what they like. By how much the samples of
 * others grow. */
static uint64_t grown_in(int seconds, int n, uint64_t claim)
{
	struct flock_view v = bed_view(&b);
	uint64_t before = v.clock - v.samples;
	for (int k = 1; k <= seconds; k++) {
		bed_train(&b, OWN_RATE / 32, 0.1);
		bed_record(&b, 1, v.samples + (uint64_t)k * OWN_RATE, 1);
		for (int i = SYBIL; i < SYBIL + n; i++)
			bed_record(&b, i, claim, 1);
		bed_pass(&b, 1000);
	}
	v = bed_view(&b);
	return v.clock - v.samples - before;
}

/* Ourselves and peer 1, for some seconds, so that rates are known; then n ids of a label for that
 * many agents. */
static void open_with(int n, uint64_t label, uint32_t agents, uint64_t rate)
{
	struct flock_config c = bed_config();
	c.manifest.total = 1ull << 40;
	c.peer_rate = 4;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	certify(0, OURS, 8, 0);
	certify(1, OURS, 8, 0);
	(void)grown_in(5, 0, 0);
	for (int i = SYBIL; i < SYBIL + n; i++) {
		bed_record(&b, i, 0, 1);
		certify(i, label, agents, rate);
	}
	bed_record(&b, 1, b.samples, 1);
	bed_pass(&b, 250);
}

static void close_bed(void)
{
	bed_close(&b);
}

/* Whatever twenty ids claim, the clock takes what two agents could have trained. */
static void test_claims_of_one_label(void **state)
{
	const uint64_t rate = 1000, seconds = 20;
	(void)state;
	open_with(SYBILS, THEIRS, 2, rate);
	uint64_t grown = 0;
	for (uint64_t k = 1; k <= seconds; k++) { /* at any time: the run is some seconds older */
		grown += grown_in(1, SYBILS, 1ull << 39);
		assert_in_range(grown, 2 * rate * k, 2 * rate * (k + 8) + OWN_RATE * (k + 8));
	}
	close_bed();
	/* The only label: they count singly. */
	open_with(SYBILS, OURS, 2, rate);
	assert_true(grown_in((int)seconds, SYBILS, 1ull << 39) >= SYBILS * rate * seconds);
	close_bed();
}

/* What its ids say in offers is passed on as far as it counts: for two agents, not for twenty. */
static void test_offers_of_one_label_claim_together(void **state)
{
	const uint64_t rate = 1000, seconds = 20;
	uint64_t sum = 0;
	(void)state;
	open_with(SYBILS, THEIRS, 2, rate);
	(void)grown_in((int)seconds, SYBILS, 1);
	for (int i = SYBIL; i < SYBIL + SYBILS; i++) {
		struct exchange_message m = bed_offer(&b, (uint64_t)i);
		m.terms.samples = 1ull << 39;
		m.terms.clock = 0;
		bed_hear(&b, i, &m);
		bed_pass(&b, 50);
	}
	for (int i = SYBIL; i < SYBIL + SYBILS; i++) {
		struct peer_id id = bed_id(i);
		struct member_view v;
		if (gossip_find(flock_membership(b.core), &id, &v))
			sum += v.samples;
	}
	assert_in_range(sum, 2 * rate * seconds, 2 * rate * (seconds + 10));
	close_bed();
}

/* Also in the first seconds, before anybody's rate is known, where a cap is stated. */
static void test_rate_of_an_invite_from_the_start(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.manifest.total = 1ull << 40;
	c.rate_cap = 1000 * OWN_RATE;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_record(&b, SYBIL, 0, 1);
	certify(SYBIL, SYBIL, 1, OWN_RATE);
	bed_record(&b, SYBIL, 1ull << 30, 1);
	bed_pass(&b, 250);
	assert_in_range(bed_view(&b).clock - bed_view(&b).samples, 1, 4 * OWN_RATE);
	close_bed();
}

/* The rate of an invite takes the place of gossip.rate_cap, for its agents alone. */
static void test_rate_of_an_invite(void **state)
{
	(void)state;
	open_with(1, THEIRS, 1, 2000);
	uint64_t grown = grown_in(10, 1, 1ull << 39);
	assert_true(grown >= 10 * 2000 && grown <= 20 * (2000 + OWN_RATE));
	close_bed();
	open_with(1, THEIRS, 1, 0);
	assert_true(grown_in(10, 1, 1ull << 39) > 100 * 2000);
	close_bed();
}

/* What one id of a label does not claim is left for the others. */
static void test_no_more_than_is_claimed(void **state)
{
	(void)state;
	open_with(2, THEIRS, 2, 2000);
	uint64_t grown = grown_in(1, 2, 8000);
	assert_true(grown >= 2 * 8000 && grown <= 2 * 8000 + 2 * OWN_RATE);
	close_bed();
}

/* And what one does claim is not: the other gets the rest of what one agent may. */
static void test_no_more_than_is_left(void **state)
{
	(void)state;
	open_with(2, THEIRS, 1, 1000);
	struct flock_view v = bed_view(&b);
	uint64_t before = v.clock - v.samples;
	bed_record(&b, SYBIL, 5000, 1);
	bed_record(&b, SYBIL + 1, 1ull << 39, 1);
	bed_pass(&b, 250);
	v = bed_view(&b);
	assert_in_range(v.clock - v.samples - before, 5500, 8500);
	close_bed();
}

/* An id that goes and one that comes are one agent. */
static void test_churn_counts_once(void **state)
{
	const uint64_t rate = 1000;
	(void)state;
	open_with(1, THEIRS, 1, rate);
	struct flock_view v = bed_view(&b);
	uint64_t before = v.clock - v.samples;
	for (int i = SYBIL; i < SYBIL + SYBILS; i++) {
		bed_record(&b, i, 1ull << 39, 1);
		certify(i, THEIRS, 1, rate);
		bed_pass(&b, 1000);
	}
	v = bed_view(&b);
	assert_true(v.clock - v.samples - before <= rate * (SYBILS + 10) + 20 * OWN_RATE);
	close_bed();
}

/* A busy machine: the loop's clock goes on by a tick, and the other has not moved since. */
static void tick_in_no_time(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TIMER, .awake_ms = b.now_ms};
	bed_pass(&b, 200);
	e.awake_ms = b.now_ms;
	e.now_ms = b.now_ms += 200;
	flock_step(b.core, &e, b.a);
}

static void forbid(int i)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	e.membership.kind = EVENT_FORBIDDEN;
	e.membership.peer.id = bed_id(i);
	bed_step(&b, e);
}

/* Ids that come and go outnumber the others, but the run is not as old as they say. */
static void churn(uint64_t rate, double cap)
{
	struct flock_config c = bed_config();
	c.manifest.total = 1ull << 40;
	c.rate_cap = cap;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	certify(0, OURS, 2, 0);
	certify(1, OURS, 2, 0);
	(void)grown_in(5, 0, 0);
	struct flock_view v = bed_view(&b);
	uint64_t before = v.clock - v.samples;
	for (int i = SYBIL; i < SYBIL + SYBILS; i++) {
		bed_record(&b, i, 1ull << 39, 1);
		certify(i, THEIRS, 1, rate);
		bed_pass(&b, 1000);
		bed_record(&b, 1, b.samples, 1);
		tick_in_no_time();
		forbid(i);
	}
	v = bed_view(&b);
	assert_true(v.clock - v.samples - before <= 2 * rate * SYBILS + 20 * OWN_RATE);
	close_bed();
}

static void test_churn_is_no_age(void **state)
{
	(void)state;
	churn(1000, 10 * OWN_RATE);
	churn(1000, 0);
}

/* Nor when they come all at once, or were there before us. */
static void crowd(double cap, bool late)
{
	const uint64_t rate = 1000, earlier = late ? 1000 * OWN_RATE : 0;
	struct flock_config c = bed_config();
	c.manifest.total = 1ull << 40;
	c.rate_cap = cap;
	c.resumed = late;
	bed_open(&b, &c);
	certify(0, OURS, 3, 0);
	for (int turn = 0; turn < 2; turn++) {
		for (int i = SYBIL; i < SYBIL + SYBILS && turn == !late; i++) {
			bed_record(&b, i, 1ull << 39, 1);
			certify(i, THEIRS, 1, rate);
		}
		for (int i = 1; i <= 2; i++) {
			bed_record(&b, i, b.samples + earlier, 1);
			certify(i, OURS, 3, 0);
		}
		bed_pass(&b, 1500);
		assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
		for (int k = 0; k < 15; k++) {
			bed_train(&b, OWN_RATE / 32, 0.1);
			for (int i = 1; i <= 2; i++)
				bed_record(&b, i, b.samples + earlier, 1);
			bed_pass(&b, 1000);
		}
	}
	struct flock_view v = bed_view(&b);
	/* Before any rate is known a claim counts up to 256 times what others have trained. */
	uint64_t lie = rate * (100 + earlier / OWN_RATE) + (cap > 0 ? 0 : 300 * earlier);
	uint64_t honest = 2 * (v.samples + earlier);
	assert_in_range(v.clock - v.samples, honest, honest + lie);
	close_bed();
}

static void test_crowd_is_no_age(void **state)
{
	(void)state;
	crowd(0, false);
	crowd(0, true);
	crowd(10 * OWN_RATE, false);
	crowd(10 * OWN_RATE, true);
}

/* Each median asks all labels again: an honest agent that comes late is not taken for a liar
 * because those who say how old the run is have said how fast they are. */
static void test_votes_are_counted_anew(void **state)
{
	const uint64_t earlier = 1000000000;
	struct flock_config c = bed_config();
	(void)state;
	c.manifest.total = 1ull << 40;
	c.fresh = 1ull << 40; /* trains at once */
	bed_open(&b, &c);
	for (int i = 1; i <= 2; i++) {
		bed_record(&b, i, earlier, 1);
		certify(i, THEIRS, 2, 0);
	}
	bed_pass(&b, 1500);
	certify(0, OURS, 1, 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	for (int k = 0; k < 15; k++) {
		bed_train(&b, OWN_RATE / 32, 0.1);
		for (int i = 1; i <= 2; i++)
			bed_record(&b, i, earlier + b.samples, 1);
		bed_pass(&b, 1000);
	}
	struct flock_view v = bed_view(&b);
	assert_int_equal(v.clock, 2 * earlier + 3 * v.samples);
	bed_record(&b, SYBIL, earlier, 1);
	certify(SYBIL, SYBIL, 1, 0);
	bed_pass(&b, 250);
	assert_true(bed_view(&b).clock >= 3 * earlier);
	close_bed();
}

/* And none has more votes than agents: of us and one of theirs the lower counts. */
static void test_one_vote_for_each_agent(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.manifest.total = 1ull << 40;
	c.fresh = 1ull << 40;
	bed_open(&b, &c);
	bed_train_with(&b, 0);
	certify(0, OURS, 1, 0);
	(void)grown_in(5, 0, 0);
	bed_word(&b, 1, 0, 1, true);
	for (int i = SYBIL; i < SYBIL + 3; i++) {
		bed_record(&b, i, 1ull << 39, 1);
		certify(i, THEIRS, 1, 0);
	}
	bed_pass(&b, 500);
	struct flock_view v = bed_view(&b);
	assert_in_range(v.clock - v.samples, OWN_RATE, 1000 * v.samples);
	close_bed();
}

/* And those that stand still have none where rates are asked for: the one that trains is heard,
 * wherever it stands among them. */
static void test_who_stands_still_has_no_vote(void **state)
{
	struct flock_config c = bed_config();
	uint64_t its = 100000;
	(void)state;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	certify(0, OURS, 2, 0);
	for (int k = 0; k < 40; k++) {
		its += 32;
		for (int i = SYBIL; i < SYBIL + 12; i++) {
			bed_record(&b, i, i == SYBIL ? its : 100000, 1);
			certify(i, THEIRS, 1, 0);
		}
		bed_pass(&b, 100);
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
	bed_record(&b, 1, 1000, 1);
	certify(1, OURS, 2, 0);
	bed_pass(&b, 200);
	uint64_t before = bed_view(&b).clock;
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 1000);
	assert_in_range(bed_view(&b).clock - before, 1000, 4 * 256 * OWN_RATE);
	close_bed();
}

/* More labels than are told apart: the later ones count singly, as where there are none. */
static void test_more_labels_than_are_told_apart(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.membership.members_max = 512;
	bed_open(&b, &c);
	certify(0, OURS, 8, 0);
	bed_record(&b, 1, 0, 1);
	for (int i = 0; i < 300; i++) { /* of one agent, one after another */
		certify(1, 1000 + (uint64_t)i, 1, 0);
		bed_record(&b, 1, 0, 1);
		bed_pass(&b, 250);
	}
	assert_int_equal(bed_view(&b).candidates, 1);
	for (int i = SYBIL; i < SYBIL + 4; i++) {
		bed_record(&b, i, 0, 1);
		certify(i, 2000, 1, 0);
	}
	bed_pass(&b, 250);
	assert_int_equal(bed_view(&b).candidates, 1 + 4);
	close_bed();
}

/* A record comes before what its certificate says: until then it is nobody's. */
static void test_no_label_yet(void **state)
{
	(void)state;
	open_with(1, THEIRS, 1, OWN_RATE);
	struct flock_view v = bed_view(&b);
	uint64_t before = v.clock - v.samples;
	uint32_t candidates = v.candidates;
	for (int i = SYBIL + 1; i < SYBIL + SYBILS; i++)
		bed_record(&b, i, 1ull << 39, 1);
	bed_pass(&b, 500);
	v = bed_view(&b);
	assert_int_equal(v.candidates, candidates);
	assert_int_equal(v.clock - v.samples, before);
	for (int i = SYBIL + 1; i < SYBIL + SYBILS; i++)
		certify(i, THEIRS, 1, OWN_RATE);
	bed_pass(&b, 500);
	v = bed_view(&b);
	assert_int_equal(v.candidates, candidates);
	assert_true(v.clock - v.samples - before <= 20 * OWN_RATE);
	close_bed();
}

/* Partners and witnesses are drawn from candidates: two of twenty. */
static void test_who_counts(void **state)
{
	(void)state;
	open_with(SYBILS, THEIRS, 2, 0);
	assert_int_equal(bed_view(&b).candidates, 1 + 2);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, SYBIL + 2, &m); /* one above the lowest two */
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(bed_view(&b).counts.busy_given, 1);
	m = bed_offer(&b, 2);
	bed_hear(&b, SYBIL + 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_int_equal(bed_view(&b).counts.busy_given, 1);
	close_bed();
	open_with(SYBILS, OURS, 2, 0);
	assert_int_equal(bed_view(&b).candidates, 1 + SYBILS);
	close_bed();
}

/* Ids in their order as far as eight bytes tell, from the first one on. */
static void test_who_counts_of_two_that_are_alike(void **state)
{
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct flock_event offers = {.kind = FLOCK_EVENT_MESSAGE};
	(void)state;
	open_with(1, THEIRS, 1, 0);
	for (uint8_t i = 1; i <= 3; i++) {
		struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
		struct member_view v;
		struct peer_id id = bed_id(SYBIL);
		assert_true(gossip_find(flock_membership(b.core), &id, &v));
		m.update[0].kind = UPDATE_RECORD;
		m.update[0].raw.length = 1;
		m.update[0].record = v.record;
		memset(&m.update[0].record.id, 0x60, sizeof id);
		m.update[0].record.id.bytes[7] = i;
		if (i == 3) { /* the highest, though its second byte is the lowest */
			m.update[0].record.id.bytes[0] = 0x61;
			m.update[0].record.id.bytes[1] = 0;
		}
		m.update[0].record.nonce = 1000u + i;
		e.membership.kind = EVENT_RECEIVED;
		e.membership.received.from = m.update[0].record.id;
		e.membership.received.channel = CHANNEL_STREAM;
		e.membership.received.message = &m;
		bed_step(&b, e);
		e = (struct flock_event){.kind = FLOCK_EVENT_MEMBERSHIP};
		e.membership.kind = EVENT_CERTIFIED;
		e.membership.certified.id = m.update[0].record.id;
		e.membership.certified.label = 2000;
		e.membership.certified.agents = 1;
		bed_step(&b, e);
	}
	bed_pass(&b, 250);
	assert_int_equal(bed_view(&b).candidates, 1 + 1 + 1);
	struct exchange_message offer = bed_offer(&b, 1);
	offers.message = &offer;
	offers.peer = m.update[0].record.id;
	bed_step(&b, offers);
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	close_bed();
}

/* Whichever label was known first. */
static void test_who_counts_of_the_first_label(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	for (int i = SYBIL; i < SYBIL + SYBILS; i++) {
		bed_record(&b, i, 0, 1);
		certify(i, THEIRS, 2, 0);
	}
	bed_pass(&b, 250);
	certify(0, OURS, 1, 0);
	bed_pass(&b, 250);
	assert_int_equal(bed_view(&b).candidates, 2);
	close_bed();
}

/* Nor do we know one whose record has not come: it could be any of them. */
static void test_unknown_ids_wait(void **state)
{
	(void)state;
	open_with(1, THEIRS, 2, 0);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, 50, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	close_bed();
}

/* A new id does not come in the place of one in quarantine. */
static void test_quarantine_keeps_the_place(void **state)
{
	(void)state;
	open_with(2, THEIRS, 1, 0);
	assert_int_equal(bed_view(&b).candidates, 2);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, SYBIL, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = 1};
	bed_hear(&b, SYBIL, &m); /* out of turn */
	assert_int_equal(bed_view(&b).quarantined, 1);
	bed_pass(&b, 400);
	m = bed_offer(&b, 2);
	bed_hear(&b, SYBIL + 1, &m);
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	/* It is drawn as little, but peer 1 is; the one in quarantine is no candidate to draw. */
	assert_int_equal(bed_view(&b).candidates, 2 - 1);
	close_bed();
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

/* One label has half of the places for joiners, however many agents it has. */
static void test_donations(void **state)
{
	(void)state;
	open_with(4, THEIRS, 4, 0);
	for (int i = 0; i < FLOCK_DONATIONS; i++)
		assert_int_equal(gives(SYBIL + i, 1), i < FLOCK_DONATIONS / 2);
	assert_true(gives(1, 1));
	close_bed();
}

/* What its ids begin, they begin together. */
static void test_offers_of_one_label(void **state)
{
	int given = 0;
	(void)state;
	open_with(SYBILS, THEIRS, 2, 0);
	for (uint64_t k = 1; k <= 10; k++) /* a place is kept: only tokens are spent */
		given += gives(SYBIL, k) + gives(SYBIL + 1, k);
	assert_int_equal(given, 2 * 4);
	/* Both are gone, and others are the lowest now: theirs are spent, too. */
	for (int i = SYBIL; i < SYBIL + 2; i++)
		forbid(i);
	b.now_ms += 250;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	assert_int_equal(bed_view(&b).candidates, 1 + 2);
	int paid = 0;
	for (uint64_t k = 1; k <= 10; k++) {
		(void)gives(SYBIL + 2, k);
		paid += bed_sent(&b, EXCHANGE_BUSY)->busy.why != EXCHANGE_RATE;
	}
	assert_true(paid <= 2); /* a quarter of a second, eight a second */
	bed_record(&b, 1, b.samples, 1);
	b.now_ms += 500;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	for (uint64_t k = 11; k <= 20; k++) {
		(void)gives(SYBIL + 2, k);
		paid += bed_sent(&b, EXCHANGE_BUSY)->busy.why != EXCHANGE_RATE;
	}
	assert_in_range(paid, 4, 6); /* in half a second more, four more */
	close_bed();
}

static void test_pulls_of_one_label(void **state)
{
	struct partners_config c = {.seed = 1, .rate = 4, .burst = 4, .per_byte_ms = 0.001};
	struct partners *p = malloc(partners_size());
	(void)state;
	assert_non_null(p);
	partners_init(p, &c);
	partners_path(p, 10, 1.0);
	for (int i = 0; i < 3; i++) {
		struct peer_id id = bed_id(i);
		partners_pulled(p, &id, 3, false, 1000);
		partners_label(p, &id, i < 2 ? THEIRS : OURS);
	}
	assert_true(fabs(partners_label_pull_left(p, THEIRS, 2) - 2) < 1e-9);
	assert_true(fabs(partners_label_pull_left(p, THEIRS, 1)) < 1e-9);
	assert_true(fabs(partners_label_pull_left(p, OURS, 1) - 1) < 1e-9);
	partners_path(p, 138, 1.0);
	partners_path(p, 266, 1.0);
	partners_path(p, 267, 2.0);
	assert_true(fabs(partners_label_pull_left(p, THEIRS, 1) - 4) < 1e-9);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_claims_of_one_label),
	        cmocka_unit_test(test_offers_of_one_label_claim_together),
	        cmocka_unit_test(test_rate_of_an_invite),
	        cmocka_unit_test(test_no_more_than_is_claimed),
	        cmocka_unit_test(test_no_more_than_is_left),
	        cmocka_unit_test(test_churn_counts_once),
	        cmocka_unit_test(test_churn_is_no_age),
	        cmocka_unit_test(test_crowd_is_no_age),
	        cmocka_unit_test(test_votes_are_counted_anew),
	        cmocka_unit_test(test_one_vote_for_each_agent),
	        cmocka_unit_test(test_who_stands_still_has_no_vote),
	        cmocka_unit_test(test_more_labels_than_are_told_apart),
	        cmocka_unit_test(test_no_label_yet),
	        cmocka_unit_test(test_who_counts),
	        cmocka_unit_test(test_who_counts_of_two_that_are_alike),
	        cmocka_unit_test(test_who_counts_of_the_first_label),
	        cmocka_unit_test(test_unknown_ids_wait),
	        cmocka_unit_test(test_quarantine_keeps_the_place),
	        cmocka_unit_test(test_donations),
	        cmocka_unit_test(test_offers_of_one_label),
	        cmocka_unit_test(test_pulls_of_one_label),
	        cmocka_unit_test(test_rate_of_an_invite_from_the_start),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
