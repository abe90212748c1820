/* SPDX-License-Identifier: MIT */
/* What verification may cost: forged news, news that is genuine but too much, and that an honest
 * flock of 128 is never hit. */
#include "net/transport/verify_budget.h"
#include "tests/support.h"

static struct verify_budget b;
static uint64_t now;

static int begin(void **state)
{
	(void)state;
	now = 1000000;
	verify_init(&b, 7);
	return 0;
}

static struct peer_id id_of(uint32_t n)
{
	struct peer_id id = {{0}};
	for (size_t i = 0; i < sizeof id.bytes; i++)
		id.bytes[i] = (uint8_t)((n + 1) * 2654435761u >> (i % 4 * 8));
	return id;
}

/* n signatures that a peer brought; returns how often its session ended. */
static int bring(uint32_t peer, int n, bool good, bool datagram)
{
	struct peer_id id = id_of(peer);
	int ended = 0;
	for (int i = 0; i < n; i++)
		if (verify_may(&b, &id, datagram, now))
			ended += verify_done(&b, &id, good, 70, now);
	return ended;
}

/* The attack as it was seen: 175,000 in 10 s. */
static void forged_news_ends_the_session(void **state)
{
	int ended = 0;
	(void)state;
	for (int ms = 0; ms < 10000; ms++, now++)
		ended += bring(1, 17, false, ms % 2);
	assert_int_equal(ended, 1);
	assert_int_equal(b.verified, VERIFY_BAD_MAX);
	assert_int_equal(b.left_out, 170000 - VERIFY_BAD_MAX);
	assert_int_equal(bring(2, 1, true, true), 0);
	assert_int_equal(b.verified, VERIFY_BAD_MAX + 1);
	now += VERIFY_DEAF_MS; /* heard again, and as bad as before */
	assert_int_equal(bring(1, 100, false, false), 1);
	assert_int_equal(b.bad, 2 * VERIFY_BAD_MAX);
}

static void a_bad_one_now_and_then_is_forgiven(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++, now += VERIFY_DEAF_MS + 1)
		assert_int_equal(bring(1, VERIFY_BAD_MAX - 1, false, false), 0);
	assert_int_equal(b.left_out, 0);
}

static void a_flood_of_genuine_news_has_a_rate(void **state)
{
	(void)state;
	for (int ms = 0; ms < 10000; ms++, now++)
		bring(1, 20, true, false);
	assert_in_range(b.verified, VERIFY_BURST, VERIFY_BURST + 10 * VERIFY_RATE + 1);
	uint64_t before = b.verified;
	bring(2, VERIFY_BURST, true, false); /* another is not hit */
	assert_int_equal(b.verified, before + VERIFY_BURST);
}

/* Of many senders, so that no purse is the reason. */
static void datagrams_of_a_turn_have_2_ms(void **state)
{
	(void)state;
	for (uint32_t peer = 0; peer < 100; peer++)
		bring(peer, 7, true, true);
	assert_in_range(b.turn_us, VERIFY_TURN_US, VERIFY_TURN_US + 70);
	uint64_t before = b.verified;
	bring(100, 8, true, false); /* streams wait instead */
	assert_int_equal(b.verified, before + 8);
	now++;
	bring(101, 1, true, true);
	assert_int_equal(b.verified, before + 9);
}

/* An hour of what one peer could bring at most in a flock of 128, and a partition in it; by the
 * figures of the LAN profile, which is the faster one. */
static void an_honest_flock_of_128_is_not_hit(void **state)
{
	enum { OTHERS = 127, SYNC_S = 30, PUBLISHED_S = 5 * (1 + OTHERS / 16) };
	(void)state;
	bring(1, 2 * OTHERS, true, false); /* a whole state: records, sketches */
	for (int s = 1; s <= 3600; s++) {
		now += 1000;
		bring(1, OTHERS / PUBLISHED_S + 1, true, true);
		if (s % SYNC_S == 0)
			bring(1, OTHERS, true, false); /* sketches */
		if (s == 1800)
			bring(1, 2 * OTHERS, true, false); /* records and accusations */
	}
	assert_int_equal(b.left_out, 0);
}

/* More ids than the table has places: those that are not heard are not forgotten for them. */
static void the_deaf_are_forgotten_last(void **state)
{
	(void)state;
	assert_int_equal(bring(1, VERIFY_BAD_MAX, false, false), 1);
	for (uint32_t peer = 2; peer < 10 * VERIFY_PEERS; peer++, now += peer % 64 == 0)
		bring(peer, 1, true, false);
	uint64_t before = b.verified;
	bring(1, 1, true, false);
	assert_int_equal(b.verified, before);
}

/* A flood takes its share of a core and no more, also over new sessions; others are not hit. */
static void a_flood_takes_its_share(void **state)
{
	struct peer_id flood = id_of(1), other = id_of(2);
	uint64_t taken_us = 0;
	(void)state;
	for (int ms = 0; ms < 10000; ms++, now++) {
		for (int i = 0; i < 100 && !verify_share(&b, &flood, 0, now); i++) {
			(void)verify_share(&b, &flood, 10000, now);
			taken_us += 10;
		}
		assert_false(verify_share(&b, &other, SHARE_PCT * 5000, now));
	}
	assert_in_range(taken_us, SHARE_PCT * 100000 + SHARE_BURST_MS * 900,
	        SHARE_PCT * 100000 + SHARE_BURST_MS * 1100);
	now += 10000; /* quiet for long: a burst, no more */
	assert_false(verify_share(&b, &flood, SHARE_BURST_MS * 1000000 - 1, now));
	assert_true(verify_share(&b, &flood, 1, now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(forged_news_ends_the_session, begin),
	        cmocka_unit_test_setup(a_bad_one_now_and_then_is_forgiven, begin),
	        cmocka_unit_test_setup(a_flood_of_genuine_news_has_a_rate, begin),
	        cmocka_unit_test_setup(datagrams_of_a_turn_have_2_ms, begin),
	        cmocka_unit_test_setup(an_honest_flock_of_128_is_not_hit, begin),
	        cmocka_unit_test_setup(the_deaf_are_forgotten_last, begin),
	        cmocka_unit_test_setup(a_flood_takes_its_share, begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
