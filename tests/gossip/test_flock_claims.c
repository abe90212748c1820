/* SPDX-License-Identifier: MIT */
/* What a peer claims to have trained moves the run's clock no faster than anybody could train. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

#define OWN_RATE 320.0 /* samples a second */

/* So many seconds in which we train, and peer 2 as fast; peer 1 says what it likes. */
static void pass(int seconds, uint64_t claim, double its_rate)
{
	static uint64_t honest, growing;
	if (seconds == 0) {
		honest = 0;
		growing = claim;
		return;
	}
	for (int i = 0; i < seconds; i++) {
		bed_train(&b, (int)(OWN_RATE / 32), 0.1);
		honest += (uint64_t)OWN_RATE;
		growing += (uint64_t)its_rate;
		bed_record(&b, 2, honest, 1);
		if (its_rate > 0)
			bed_record(&b, 1, growing, 1);
		bed_pass(&b, 1000);
	}
}

static void open_for(double rate_cap, uint32_t members, bool resumed)
{
	struct flock_config c = bed_config();
	c.membership.members_max = members;
	c.resumed = resumed;
	c.rate_cap = rate_cap;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	bed_train_with(&b, 2);
	pass(0, 0, 0);
	pass(5, 0, 0);
}

static void open_with(double rate_cap)
{
	open_for(rate_cap, 64, false);
}

/* Of others. */
static uint64_t counted(void)
{
	struct flock_view v = bed_view(&b);
	return v.clock - v.samples;
}

static void test_record_is_capped(void **state)
{
	(void)state;
	open_with(0);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	/* A first claim: 256 times what the honest have trained, or could have since the start. */
	assert_true(counted() - before <= 256 * 3000);
	assert_int_equal(bed_view(&b).capped, 1);
	before = counted();
	pass(10, 1ull << 39, 0);
	assert_true(counted() - before <= (uint64_t)(257 * OWN_RATE * 1.2 * 10));
	bed_close(&b);
}

static void test_offer_is_capped(void **state)
{
	(void)state;
	open_with(0);
	bed_record(&b, 1, 1000, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.samples = m.terms.clock = 1ull << 39;
	m.terms.beta = 1; /* it is refused, and its words count all the same */
	bed_hear(&b, 1, &m);
	bed_pass(&b, 200);
	/* A word of the clock counts for gossip.stale of the run at most. */
	assert_true(counted() - before <= (uint64_t)(0.1 * (double)(1ull << 40)) + 256 * 1700);
	/* Nor is more of it passed on. */
	struct peer_id id = bed_id(1);
	struct member_view v;
	assert_true(gossip_find(flock_membership(b.core), &id, &v));
	assert_in_range(v.samples, 1000, 256 * 3000);
	bed_close(&b);
}

/* A hundred times as fast as three others, us among them: it loses nothing. */
static void test_fast_peer_counts(void **state)
{
	(void)state;
	open_with(0);
	pass(0, 1000, 0);
	for (uint64_t i = 1; i <= 20; i++) {
		bed_record(&b, 3, i * (uint64_t)OWN_RATE, 1);
		pass(1, 0, 100 * OWN_RATE);
	}
	assert_int_equal(bed_view(&b).capped, 0);
	assert_true(counted() >= (uint64_t)(19 * 100 * OWN_RATE));
	bed_close(&b);
}

/* The first seconds, in which no rate is known, may be the whole of a short run. */
static void test_first_seconds_count(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	bed_record(&b, 1, 32, 1);
	bed_pass(&b, 100);
	bed_record(&b, 1, 640, 1);
	bed_pass(&b, 100);
	assert_int_equal(counted(), 640);
	bed_close(&b);
}

/* The first to claim anything, where nobody has trained yet, is not the measure of the others. */
static void test_early_lie_is_capped(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1000;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	bed_train_with(&b, 3);
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	assert_true(counted() <= 3 * 1000); /* we are here for less than 3 s */
	bed_close(&b);
	c.rate_cap = 0;
	bed_open(&b, &c);
	bed_train_with(&b, 3);
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	assert_int_equal(counted(), 0);
	bed_close(&b);
}

/* A newcomer waits for the others' news, and goes by what most of them claim. */
static void test_newcomer_goes_by_the_median(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	assert_int_equal(counted(), 0);
	bed_record(&b, 2, 3000, 1);
	bed_record(&b, 3, 3200, 1);
	bed_pass(&b, 400);
	assert_true(counted() >= 6200 && counted() <= 6200 + 256 * 3200);
	bed_close(&b);
}

/* Before it trains an agent goes by those who have trained; afterwards the others count, too. */
static void test_zeros_have_no_say_before_we_train(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	bed_open(&b, &c);
	bed_record(&b, 1, 100000, 1);
	for (int i = 2; i <= 5; i++)
		bed_record(&b, i, 0, 1);
	bed_pass(&b, 800);
	assert_int_equal(counted(), 100000);
	bed_close(&b);
}

/* Of one that counts as it says there is nothing to say. */
static void test_what_counts_is_not_said(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12;
	bed_open(&b, &c);
	for (int i = 0; i < 30; i++) {
		bed_record(&b, 1, BED_TOTAL / 10, 1);
		assert_null(bed_said(&b, SAY_CAPPED));
		bed_pass(&b, 50);
		assert_null(bed_said(&b, SAY_CAPPED));
	}
	assert_int_equal(counted(), BED_TOTAL / 10);
	bed_close(&b);
}

/* A pause makes us no slower, and the cap of the others no lower. */
static void test_idle_time_is_no_rate(void **state)
{
	(void)state;
	open_with(0);
	pass(5, 0, 0);
	struct flock_event wish = {.kind = FLOCK_EVENT_WISH, .wish = WISH_PAUSE};
	bed_step(&b, wish);
	for (int i = 0; i < 100; i++) {
		bed_record(&b, 2, 3200, 1);
		bed_pass(&b, 1000);
	}
	wish.wish = WISH_RESUME;
	bed_step(&b, wish);
	bed_record(&b, 1, 1000, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 1000);
	assert_true(counted() - before >= (uint64_t)(200 * OWN_RATE));
	bed_close(&b);
}

/* What was trained in an earlier life makes us no faster in this one. */
static void test_earlier_life_is_no_rate(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.manifest.total = 1ull << 40;
	c.resumed = true;
	c.step = 100000;
	c.samples = 3200000;
	bed_open(&b, &c);
	b.step = c.step;
	b.samples = c.samples;
	bed_train_with(&b, 2);
	pass(0, 0, 0);
	pass(5, 0, 0);
	bed_record(&b, 1, 1000, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 1000);
	assert_true(counted() - before <= (uint64_t)(300 * OWN_RATE));
	bed_close(&b);
}

/* A claim that is taken back before anybody looked at it was one all the same. */
static void test_withdrawn_claim(void **state)
{
	(void)state;
	open_with(OWN_RATE);
	pass(5, 0, 0);
	uint64_t before = counted();
	for (int i = 0; i < 10; i++) {
		bed_record(&b, 20 + i, 1ull << 39, 1);
		bed_record(&b, 20 + i, 100, 1);
	}
	bed_pass(&b, 1000);
	assert_true(counted() - before <= (uint64_t)(10 * 20 * OWN_RATE));
	bed_close(&b);
}

static void test_stated_rate(void **state)
{
	(void)state;
	open_with(1000);
	bed_record(&b, 1, 100, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	pass(10, 0, 0);
	uint64_t grown = counted() - before;
	assert_true(grown >= 10000 && grown <= 10 * (1000 + (uint64_t)OWN_RATE) + 2000);
	bed_close(&b);
}

static void test_quarantined_stands_still(void **state)
{
	(void)state;
	open_with(1000);
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 200);
	struct exchange_message m = bed_offer(&b, 1);
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = 1};
	bed_hear(&b, 1, &m); /* out of turn */
	assert_int_equal(bed_view(&b).quarantined, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	pass(10, 0, 0);
	assert_true(counted() - before <= (uint64_t)(11 * OWN_RATE));
	bed_close(&b);
}

/* The user hears of a claim that is worth a word, once a minute. */
static void test_capped_is_said(void **state)
{
	int said = 0;
	struct peer_id id = bed_id(1);
	(void)state;
	open_with(0);
	bed_record(&b, 1, 1ull << 33, 1); /* under a hundredth of this long run */
	for (int i = 0; i < 10; i++) {
		bed_pass(&b, 50);
		assert_null(bed_said(&b, SAY_CAPPED));
	}
	assert_int_equal(bed_view(&b).capped, 1);
	for (uint64_t end = b.now_ms + 61000; b.now_ms < end;) {
		bed_train(&b, 1, 0.1);
		bed_record(&b, 1, 1ull << 39, 1);
		bed_record(&b, 2, b.samples, 1);
		bed_pass(&b, 50);
		const struct flock_say *s = bed_said(&b, SAY_CAPPED);
		if (!s)
			continue;
		said++;
		assert_memory_equal(&s->peer, &id, sizeof id);
		assert_int_equal(s->a, 1ull << 39);
		assert_true(s->b < 1ull << 33);
	}
	assert_int_equal(said, 2);
	bed_close(&b);
}

/* The first that we hear of its samples is what it says in an offer: news of it was crowded out. */
static void test_first_claim_in_an_offer(void **state)
{
	(void)state;
	open_with(OWN_RATE);
	bed_record(&b, 3, 0, 1);
	uint64_t before = counted();
	struct exchange_message m = bed_offer(&b, 1);
	m.terms.samples = 1000;
	m.terms.clock = 0;
	bed_hear(&b, 3, &m);
	bed_pass(&b, 300);
	assert_in_range(counted() - before, 1000, 1100);
	bed_close(&b);
}

/* What is heard of an id, that is gone by now, or there. */
static void heard_of(uint32_t number, uint64_t samples, bool left)
{
	static uint64_t version;
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct member_record *r = &m.update[0].record;
	m.update[0].kind = UPDATE_RECORD;
	m.update[0].raw.length = 1;
	version++;
	*r = (struct member_record){.generation = 1,
	        .nonce = 5,
	        .incarnation = version,
	        .version = version,
	        .left = left,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .status = {.model = manifest_hash(&b.c.manifest), .step = 1, .samples = samples}};
	memset(&r->id, 0xcc, sizeof r->id);
	memcpy(r->id.bytes, &number, sizeof number);
	e.membership.kind = EVENT_RECEIVED;
	e.membership.received.from = r->id;
	e.membership.received.channel = CHANNEL_STREAM;
	e.membership.received.message = &m;
	bed_step(&b, e);
}

/* An id that came and went, and trained so much. */
static void came_and_went(uint32_t number, uint64_t samples)
{
	heard_of(number, samples, true);
}

/* As row 12 of the attacks: more than an agent tells apart. Who is there counts all the same, and
 * nothing that counted is lost. */
static void many_ids(bool resumed)
{
	open_for(OWN_RATE, 2048, resumed);
	bed_record(&b, 201, 1, 1);
	bed_pass(&b, 300);
	uint64_t before = counted();
	for (uint32_t i = 0; i < 1500; i++) {
		came_and_went(i, 2);
		if (i % 50 == 0)
			bed_pass(&b, 100);
	}
	bed_pass(&b, 300);
	assert_in_range(counted() - before, 2000, 3000);
	before = counted();
	for (int i = 3; i < 200; i++)
		bed_record(&b, i, 500, 1);
	bed_pass(&b, 200);
	/* New ones, for whom others made room, have no first claim: ids that come and go would add
	 * one each. */
	assert_in_range(counted() - before, 0, 197 * (uint64_t)(0.3 * OWN_RATE));
	bed_pass(&b, 2000);
	assert_int_equal(counted() - before, 197 * 500);
	for (int i = 3; i < 200; i++)
		bed_record(&b, i, 600, 1);
	bed_record(&b, 201, 10, 1); /* was there all the time, with less than those who went */
	bed_pass(&b, 300);
	assert_int_equal(counted() - before, 197 * 600 + 9);
	bed_close(&b);
}

static void test_ids_that_came_and_went(void **state)
{
	(void)state;
	many_ids(false);
	many_ids(true); /* the age of the run is not known yet: first claims are judged later */
}

/* Room for one is made by taking another out: all that are left are found where they are. */
static void test_room_is_made_for_many(void **state)
{
	(void)state;
	open_for(OWN_RATE, 4096, false);
	for (uint32_t i = 0; i < 500; i++)
		heard_of(i, 10, false);
	bed_pass(&b, 100);
	uint64_t before = counted();
	for (uint32_t i = 1000; i < 1500; i++) /* nearly as many as there is room for */
		came_and_went(i, 2);
	bed_pass(&b, 100);
	for (uint32_t i = 2000; i < 2400; i++)
		heard_of(i, 3, false);
	bed_pass(&b, 300);
	assert_int_equal(counted() - before, 500 * 2 + 400 * 3);
	for (uint32_t i = 0; i < 500; i++)
		heard_of(i, 20, false);
	bed_pass(&b, 300);
	assert_int_equal(counted() - before, 500 * 2 + 400 * 3 + 500 * 10);
	assert_int_equal(bed_view(&b).capped, 0);
	bed_close(&b);
}

/* One that does not train goes by the rates of those who do: what a lie adds is as much as they
 * train in so many times the time, not what they have trained. */
static void test_looking_on_goes_by_the_others_rates(void **state)
{
	struct flock_config c = bed_config();
	uint64_t its = 100000;
	(void)state;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	for (int k = 0; k < 40; k++) {
		its += 32;
		for (int i = 2; i <= 3; i++)
			bed_record(&b, i, its, 1);
		bed_pass(&b, 100);
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
	bed_record(&b, 1, 1000, 1);
	bed_pass(&b, 200);
	uint64_t before = counted();
	bed_record(&b, 1, 1ull << 39, 1);
	bed_pass(&b, 1000);
	assert_in_range(counted() - before, 256 * 320, 2 * 256 * 320);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_record_is_capped),
	        cmocka_unit_test(test_offer_is_capped),
	        cmocka_unit_test(test_fast_peer_counts),
	        cmocka_unit_test(test_first_seconds_count),
	        cmocka_unit_test(test_early_lie_is_capped),
	        cmocka_unit_test(test_newcomer_goes_by_the_median),
	        cmocka_unit_test(test_zeros_have_no_say_before_we_train),
	        cmocka_unit_test(test_what_counts_is_not_said),
	        cmocka_unit_test(test_idle_time_is_no_rate),
	        cmocka_unit_test(test_earlier_life_is_no_rate),
	        cmocka_unit_test(test_withdrawn_claim),
	        cmocka_unit_test(test_stated_rate),
	        cmocka_unit_test(test_quarantined_stands_still),
	        cmocka_unit_test(test_capped_is_said),
	        cmocka_unit_test(test_first_claim_in_an_offer),
	        cmocka_unit_test(test_ids_that_came_and_went),
	        cmocka_unit_test(test_room_is_made_for_many),
	        cmocka_unit_test(test_looking_on_goes_by_the_others_rates),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
