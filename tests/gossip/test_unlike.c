/* SPDX-License-Identifier: MIT */
/* Peers that train something else: when they are asked, what is remembered of their answers, and
 * whom they end. */
#include "gossip/policy/unlike.h"
#include "tests/gossip/flock_bed.h"

#define OURS 7
#define THEIRS 8
#define MODEL MANIFEST_BIT(MANIFEST_MODEL)
#define RUN MANIFEST_BIT(MANIFEST_RUN)

static struct peer_id id_of(int i)
{
	struct peer_id id = {{0}};
	id.bytes[0] = (uint8_t)i;
	return id;
}

/* ---- what is remembered */

static bool asks(struct unlike *u, int i, uint64_t hash, uint64_t now_ms)
{
	struct peer_id id = id_of(i);
	return unlike_ask(u, &id, hash, now_ms);
}

static bool tells(struct unlike *u, int i, uint64_t hash, uint32_t differs, uint64_t now_ms)
{
	struct peer_id id = id_of(i);
	return unlike_heard(u, &id, hash, differs, now_ms);
}

static uint32_t differs(const struct unlike *u, int i, uint64_t hash)
{
	struct peer_id id = id_of(i);
	return unlike_differs(u, &id, hash);
}

static void test_asked_every_ten_seconds_until_it_answers(void **state)
{
	struct unlike u = {0};
	(void)state;
	assert_true(asks(&u, 1, THEIRS, 1000));
	assert_false(asks(&u, 1, THEIRS, 10999));
	assert_true(asks(&u, 2, THEIRS, 10999)); /* another one */
	assert_true(asks(&u, 1, THEIRS, 11000));
	assert_true(asks(&u, 1, THEIRS + 1, 11001)); /* it has other settings now */
	assert_int_equal(u.n, 2);
	(void)tells(&u, 1, THEIRS + 1, MODEL, 12000);
	assert_false(asks(&u, 1, THEIRS + 1, 60000));
	/* Also at the very beginning of time. */
	assert_true(asks(&u, 3, THEIRS, 0));
	assert_false(asks(&u, 3, THEIRS, 1));
}

static void test_news_is_told(void **state)
{
	struct unlike u = {0};
	(void)state;
	assert_true(tells(&u, 1, THEIRS, MODEL, 1000));
	assert_false(tells(&u, 1, THEIRS, MODEL, 20000)); /* known */
	assert_int_equal(differs(&u, 1, THEIRS), MODEL);
	assert_int_equal(differs(&u, 1, THEIRS + 1), 0); /* it has come back with other settings */
	assert_int_equal(differs(&u, 2, THEIRS), 0);
	assert_true(tells(&u, 1, THEIRS, MODEL | RUN, 20000));
	assert_false(tells(&u, 1, THEIRS, MODEL, 29999)); /* news, but too soon */
	assert_int_equal(differs(&u, 1, THEIRS), MODEL);
	assert_true(tells(&u, 1, THEIRS, RUN, 30000));
	assert_true(tells(&u, 3, THEIRS, RUN, 0));
	assert_int_equal(differs(&u, 3, THEIRS), RUN);
}

/* Nearly all peers are like us: there is no room for them, and no need. */
static void test_who_is_like_us_is_not_remembered(void **state)
{
	struct unlike u = {0};
	(void)state;
	assert_false(tells(&u, 1, OURS, MANIFEST_SAME, 1000));
	assert_int_equal(u.n, 0);
	assert_true(tells(&u, 1, THEIRS, MODEL, 1000));
	assert_false(tells(&u, 1, THEIRS, MANIFEST_SAME, 2000)); /* but this one was not, once */
	assert_int_equal(differs(&u, 1, THEIRS), 0);
	assert_false(asks(&u, 1, THEIRS, 60000));
}

static void test_longest_unheard_is_forgotten(void **state)
{
	struct unlike u = {0};
	(void)state;
	for (int i = 1; i <= UNLIKE_PEERS; i++)
		assert_true(asks(&u, i, THEIRS, 1000 + (uint64_t)i));
	assert_int_equal(u.n, UNLIKE_PEERS);
	(void)tells(&u, 1, THEIRS, MODEL, 9000);
	assert_true(asks(&u, 100, THEIRS, 9500));
	assert_int_equal(u.n, UNLIKE_PEERS);
	assert_int_equal(differs(&u, 1, THEIRS), MODEL);
	assert_false(asks(&u, 3, THEIRS, 9500));
	assert_false(asks(&u, UNLIKE_PEERS, THEIRS, 9500));
	assert_true(asks(&u, 2, THEIRS, 9500));
	assert_true(asks(&u, 3, THEIRS, 9500)); /* whose place that was */
}

/* ---- verdict */

static void test_peers_are_counted_by_what_they_sent(void **state)
{
	struct unlike u = {0};
	struct unlike_count c = {0};
	(void)state;
	(void)tells(&u, 1, THEIRS, MODEL, 1);
	(void)tells(&u, 2, THEIRS, RUN | MODEL, 1);
	(void)tells(&u, 3, OURS, MODEL, 1); /* it shows our hash, and sent something else */
	(void)tells(&u, 4, THEIRS, MODEL, 1);
	(void)tells(&u, 4, THEIRS, MANIFEST_SAME, 2);
	for (int i = 1; i <= 6; i++) {
		struct peer_id id = id_of(i);
		unlike_count(&u, &c, &id, i == 3 || i == 5 ? OURS : THEIRS, OURS);
	}
	assert_int_equal(c.unlike, 2);
	assert_int_equal(c.other_run, 1);
	assert_int_equal(c.like, 2); /* 4 by its word, 5 by its hash */
	assert_int_equal(c.unknown, 1);
	assert_int_equal(c.differs, MODEL);
}

static void test_two_or_the_only_one_end_a_newcomer(void **state)
{
	(void)state;
	struct unlike_count one = {.unlike = 1, .differs = MODEL},
	                    two = {.unlike = 2, .differs = MODEL};
	assert_int_equal(unlike_verdict(&one), MODEL);
	assert_int_equal(unlike_verdict(&two), MODEL);
	one.unknown = two.unknown = 1;
	assert_int_equal(unlike_verdict(&one), 0);
	assert_int_equal(unlike_verdict(&two), MODEL);
	two.like = 1;
	assert_int_equal(unlike_verdict(&two), 0);
	assert_int_equal(unlike_verdict(&(struct unlike_count){.other_run = 3}), 0);
}

/* ---- an agent among them */

static struct bed b;
static struct manifest foreign;

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

/* Its record names that manifest; 0: it trains nothing. */
static void record_of(int i, const struct manifest *m)
{
	struct manifest ours = b.c.manifest;
	b.c.manifest = *m;
	bed_record(&b, i, 0, 1);
	b.c.manifest = ours;
}

static void open_among(struct flock_config c, int strangers)
{
	bed_open(&b, &c);
	foreign = c.manifest;
	foreign.model++;
	for (int i = 1; i <= strangers; i++)
		record_of(i, &foreign);
}

/* Which of them are asked for their manifest within that time, as bits; each at most once. */
static uint32_t asked_within(uint64_t ms, int strangers)
{
	uint32_t asked = 0;
	for (uint64_t end = b.now_ms + ms; b.now_ms < end;) {
		for (int i = 1; i <= strangers; i++)
			record_of(i, &foreign);
		bed_pass(&b, 50);
		for (int k = 0; k < b.a->n_sends; k++) {
			const struct exchange_message *m = &b.a->send[k].message;
			int who = b.a->send[k].to.bytes[0] - 0x10;
			if (m->kind != EXCHANGE_FETCH)
				continue;
			assert_int_equal(manifest_compare(&m->fetch.manifest, &b.c.manifest), 0);
			assert_int_not_equal(m->exchange, 0);
			assert_int_equal(m->fetch.snapshot, 0);
			assert_int_equal(asked >> who & 1, 0);
			asked |= 1u << who;
		}
	}
	return asked;
}

static void answers(int from, const struct manifest *theirs)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = 1};
	m.busy.why = EXCHANGE_UNLIKE;
	m.busy.manifest = *theirs;
	bed_hear(&b, from, &m);
}

static bool ended(void)
{
	for (int i = 0; i < 14; i++) {
		if (bed_did(&b, FLOCK_DO_LEAVE)) {
			assert_int_equal(bed_did(&b, FLOCK_DO_LEAVE)->code, ERR_MISMATCH);
			assert_non_null(bed_said(&b, SAY_ALL_UNLIKE));
			assert_string_equal(bed_said(&b, SAY_ALL_UNLIKE)->words, "model");
			return true;
		}
		bed_pass(&b, 50);
	}
	return false;
}

static void test_newcomer_among_strangers_ends(void **state)
{
	(void)state;
	open_among(bed_config(), 2);
	assert_int_equal(asked_within(400, 2), 6);
	answers(1, &foreign);
	assert_non_null(bed_said(&b, SAY_UNLIKE));
	assert_int_equal(bed_said(&b, SAY_UNLIKE)->peer.bytes[0] - 0x10, 1);
	assert_int_equal(bed_view(&b).differs, MODEL);
	assert_false(ended()); /* the other may be like us */
	answers(2, &foreign);
	assert_true(ended());
	assert_false(flock_unsaved(b.core));
}

/* Strangers that do not answer are waited for a little longer than peers; then it goes on alone. */
static void test_strangers_that_do_not_answer(void **state)
{
	(void)state;
	open_among(bed_config(), 1);
	assert_int_equal(asked_within(3900, 1), 2);
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	assert_int_equal(asked_within(300, 1), 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_int_equal(bed_view(&b).unlike, 1);
	assert_int_equal(bed_view(&b).candidates, 0);
}

/* That we differ is no matter of opinion. */
static void test_our_own_manifest_is_no_difference(void **state)
{
	(void)state;
	open_among(bed_config(), 1);
	(void)asked_within(300, 1);
	answers(1, &b.c.manifest);
	assert_null(bed_said(&b, SAY_UNLIKE));
	assert_false(ended());
}

/* Who is there without training is nobody's peer: it is neither asked nor waited for. */
static void test_one_that_trains_nothing_is_not_asked(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct member_view v;
	(void)state;
	open_among(bed_config(), 1);
	struct peer_id id = bed_id(1);
	assert_true(gossip_find(flock_membership(b.core), &id, &v));
	m.update[0].kind = UPDATE_RECORD;
	m.update[0].raw.length = 1;
	m.update[0].record = v.record;
	m.update[0].record.status.model = 0;
	m.update[0].record.version += 1000;
	m.update[0].record.incarnation += 1000;
	e.membership.kind = EVENT_RECEIVED;
	e.membership.received.from = id;
	e.membership.received.channel = CHANNEL_STREAM;
	e.membership.received.message = &m;
	bed_step(&b, e);
	answers(1, &foreign);
	assert_null(bed_said(&b, SAY_UNLIKE));
	assert_int_equal(asked_within(1500, 0), 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	assert_int_equal(bed_view(&b).unlike, 0);
}

static bool ends_by_two(struct flock_config c, int steps)
{
	open_among(c, 2);
	(void)asked_within(6000, 2);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	if (steps > 0)
		bed_train(&b, steps, 0.1);
	answers(1, &foreign);
	answers(2, &foreign);
	for (int i = 1; i <= 2; i++)
		record_of(i, &foreign);
	bool did = ended();
	if (did) /* what it has is worth nothing */
		assert_false(flock_unsaved(b.core));
	bed_close(&b);
	return did;
}

/* Who began a run, or has a part in one, is not ended by strangers that come later. */
static void test_only_a_newcomer_ends(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	assert_true(ends_by_two(c, 0));
	assert_true(ends_by_two(c, 19)); /* of 32 samples: 640 are a while */
	assert_false(ends_by_two(c, 20));
	c.alone = true;
	assert_false(ends_by_two(c, 0));
	c = bed_config();
	c.resumed = true;
	assert_false(ends_by_two(c, 0));
}

/* Who has a part in the run has time: one question in ten seconds, whoever it goes to. */
static void test_strangers_are_asked_one_by_one(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.alone = true;
	open_among(c, 3);
	for (int i = 0; i < 2; i++) {
		uint32_t asked = asked_within(9900, 3);
		assert_true(asked == 2 || asked == 4 || asked == 8);
	}
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_asked_every_ten_seconds_until_it_answers),
	        cmocka_unit_test(test_news_is_told),
	        cmocka_unit_test(test_who_is_like_us_is_not_remembered),
	        cmocka_unit_test(test_longest_unheard_is_forgotten),
	        cmocka_unit_test(test_peers_are_counted_by_what_they_sent),
	        cmocka_unit_test(test_two_or_the_only_one_end_a_newcomer),
	        TEST(test_newcomer_among_strangers_ends),
	        TEST(test_strangers_that_do_not_answer),
	        TEST(test_our_own_manifest_is_no_difference),
	        TEST(test_one_that_trains_nothing_is_not_asked),
	        cmocka_unit_test(test_only_a_newcomer_ends),
	        TEST(test_strangers_are_asked_one_by_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
