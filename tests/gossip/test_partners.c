/* SPDX-License-Identifier: MIT */
/* The rules by which partners are chosen, left alone, shut out and waited for, with a clock that
 * the test turns. */
#include "gossip/policy/partners.h"
#include "tests/support.h"

#include <math.h>

#define SECOND 1000ull
#define MINUTE (60 * SECOND)
#define MB 1000000ull

static struct partners *p;
static uint64_t now;

static struct peer_id id(unsigned n)
{
	struct peer_id x = {{0}};
	x.bytes[0] = (uint8_t)n;
	x.bytes[1] = (uint8_t)(n >> 8);
	x.bytes[31] = 0x55;
	return x;
}

static void start(uint64_t seed)
{
	const struct partners_config c = {
	        .seed = seed, .rate = 0.5, .burst = 3, .per_byte_ms = 0.001};
	partners_init(p, &c);
	now = 1000000;
}

static int begin(void **state)
{
	(void)state;
	p = malloc(partners_size());
	if (!p)
		return -1;
	start(1);
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(p);
	return 0;
}

static struct exchange_result result(unsigned n, enum exchange_outcome o)
{
	return (struct exchange_result){
	        .peer = id(n), .ours = true, .outcome = (uint8_t)o, .factor = 1};
}

static void enter(unsigned n, enum exchange_outcome o)
{
	struct exchange_result r = result(n, o);
	r.why = EXCHANGE_ENGAGED;
	partners_result(p, &r, now);
}

static void exchanged(unsigned n, uint64_t bytes, uint64_t took_ms, float factor)
{
	struct exchange_result r = result(n, OUTCOME_EXCHANGED);
	r.bytes_sent = bytes;
	r.bytes_received = bytes / 2;
	r.took_ms = took_ms;
	r.factor = factor;
	partners_result(p, &r, now);
}

static const struct partner *find(unsigned n)
{
	struct peer_id x = id(n);
	return partners_find(p, &x);
}

/* Of the peers from, from + 1, … the number of the one that is drawn; −1: none. */
static int draw(unsigned from, int n)
{
	struct peer_id candidate[64], out;
	for (int i = 0; i < n; i++)
		candidate[i] = id(from + (unsigned)i);
	if (!partners_draw(p, candidate, n, now, &out))
		return -1;
	return out.bytes[0] | out.bytes[1] << 8;
}

static bool is_free(unsigned n)
{
	return draw(n, 1) >= 0;
}

static enum exchange_why admit(unsigned n)
{
	struct peer_id x = id(n);
	return partners_admit(p, &x, now);
}

static uint64_t deadline(unsigned n, uint64_t bytes)
{
	struct peer_id x = id(n);
	return partners_deadline(p, &x, bytes);
}

/* 9 degrees of freedom: over 33.7 once in 10,000 times, under 0.97 as well. */
static double chi_square(const int *count, int n, int total)
{
	double sum = 0, expected = (double)total / n;
	for (int i = 0; i < n; i++)
		sum += (count[i] - expected) * (count[i] - expected) / expected;
	return sum;
}

static void test_draw_is_uniform(void **state)
{
	enum { N = 10, TIMES = 20000 };
	int first[N] = {0}, later[N] = {0}, pairs[N - 1] = {0}, last = -1;
	(void)state;
	for (int s = 0; s < TIMES; s++) {
		start((uint64_t)s);
		first[draw(0, N)]++;
	}
	assert_true(chi_square(first, N, TIMES) < 33.7);
	for (int i = 0; i < TIMES; i++) {
		int k = draw(0, N);
		assert_true(k >= 0 && k != last);
		if (last >= 0)
			pairs[(k - last + N) % N - 1]++; /* whom after whom */
		later[k]++;
		last = k;
	}
	assert_true(chi_square(later, N, TIMES) < 33.7);
	assert_true(chi_square(pairs, N - 1, TIMES - 1) < 31.8);
	assert_int_equal(partners_count(p), 0); /* drawing enters nothing */
}

static void test_draw_of_few(void **state)
{
	(void)state;
	assert_int_equal(draw(0, 0), -1);
	assert_int_equal(draw(7, 1), 7);
	assert_int_equal(draw(7, 1), 7); /* nobody else is there */
	for (int i = 0; i < 20; i++)
		assert_int_equal(draw(7, 2), i % 2 ? 7 : 8);
	enter(8, OUTCOME_BROKEN);
	assert_int_equal(draw(7, 2), 7);
	assert_int_equal(draw(7, 2), 7); /* or free */
	enter(7, OUTCOME_BROKEN);
	assert_int_equal(draw(7, 2), -1);
}

static void test_same_seed_same_draws(void **state)
{
	int a[50], same = 0;
	(void)state;
	for (int i = 0; i < 50; i++)
		a[i] = draw(0, 20);
	start(1);
	for (int i = 0; i < 50; i++)
		assert_int_equal(draw(0, 20), a[i]);
	start(2);
	for (int i = 0; i < 50; i++)
		same += draw(0, 20) == a[i];
	assert_true(same < 20);
}

/* How long peer n is left alone after the last result. */
static uint64_t waits(unsigned n)
{
	return find(n)->free_ms - now;
}

static void test_back_off(void **state)
{
	static const enum exchange_outcome kinds[] = {
	        OUTCOME_TIMEOUT, OUTCOME_BROKEN, OUTCOME_ONE_SIDED};
	(void)state;
	for (unsigned k = 0; k < 3; k++) {
		uint64_t base = SECOND;
		for (int i = 0; i < 10; i++) {
			enter(k, kinds[k]);
			assert_in_range(waits(k), base / 2, base * 3 / 2);
			base = base < 64 * SECOND ? 2 * base : base;
			assert_false(is_free(k));
			now = find(k)->free_ms - 1;
			assert_false(is_free(k));
			now++;
			assert_true(is_free(k));
		}
		assert_int_equal(find(k)->failed, 10);
		exchanged(k, MB, 100, 1);
		enter(k, kinds[k]);
		assert_in_range(waits(k), SECOND / 2, SECOND * 3 / 2);
		exchanged(k, MB, 100, 1); /* theirs, say: it is there again */
		assert_true(is_free(k));
	}
	/* Many that fail at once come back at many times. */
	uint64_t least = UINT64_MAX, most = 0;
	for (unsigned i = 100; i < 164; i++) {
		enter(i, OUTCOME_TIMEOUT);
		least = waits(i) < least ? waits(i) : least;
		most = waits(i) > most ? waits(i) : most;
	}
	assert_true(least < 600 && most > 1400);
}

static void test_busy(void **state)
{
	uint64_t least = UINT64_MAX, most = 0;
	(void)state;
	for (int i = 0; i < 500; i++) {
		now += SECOND; /* the last one is over: none shortens another */
		enter(1, OUTCOME_BUSY);
		least = waits(1) < least ? waits(1) : least;
		most = waits(1) > most ? waits(1) : most;
	}
	assert_in_range(least, 50, 53);
	assert_in_range(most, 197, 200);
	assert_int_equal(find(1)->failed, 0);
	assert_int_equal(find(1)->strikes, 0);

	/* Where steps are short, sooner. */
	partners_pace(p, 0.5, 3, 2);
	for (int i = 0; i < 100; i++) {
		now += SECOND;
		enter(5, OUTCOME_BUSY);
		assert_in_range(waits(5), 2, 8);
	}
	partners_pace(p, 0.5, 3, 50);

	/* One put aside may fail while another offer is out, whose answer shortens nothing. */
	enter(4, OUTCOME_BROKEN);
	uint64_t broken = waits(4);
	enter(4, OUTCOME_BUSY);
	assert_true(broken >= 500 && waits(4) == broken);

	/* What lasts longer than an exchange is not asked for ten times a second. */
	struct exchange_result r = result(2, OUTCOME_BUSY);
	r.why = EXCHANGE_BUDGET;
	partners_result(p, &r, now);
	partners_result(p, &r, now);
	partners_result(p, &r, now);
	assert_in_range(waits(2), 2 * SECOND, 6 * SECOND);
	assert_int_equal(find(2)->failed, 0);

	/* That we were busy says nothing of them. */
	r = result(3, OUTCOME_BUSY);
	r.ours = false;
	partners_result(p, &r, now);
	assert_null(find(3));
}

static void test_unlike(void **state)
{
	(void)state;
	enter(1, OUTCOME_UNLIKE);
	assert_true(waits(1) == 5 * MINUTE);
	assert_int_equal(find(1)->failed, 1);
	assert_false(is_free(1));
	assert_int_equal(admit(1), EXCHANGE_WILLING); /* to be told in words what differs */
	now += 5 * MINUTE;
	assert_true(is_free(1));
}

static void test_nothing_learnt(void **state)
{
	(void)state;
	enter(1, OUTCOME_CROSSED);
	enter(1, OUTCOME_CANCELLED);
	enter(1, OUTCOMES);
	assert_null(find(1));
	enter(1, OUTCOME_TIMEOUT);
	struct partner before = *find(1);
	now += 10;
	enter(1, OUTCOME_CROSSED);
	enter(1, OUTCOME_CANCELLED);
	assert_memory_equal(find(1), &before, sizeof before);
}

static void test_bad(void **state)
{
	static const struct {
		int code;
		const char *text;
	} bad[] = {{ERR_NONFINITE, "sent numbers that are not finite"},
	        {ERR_FORMAT, "sent malformed data"}, {ERR_LIMIT, "sent more than was agreed"},
	        {ERR_MISMATCH, "sent something else than was agreed"},
	        {0, "sent what cannot be used"}};
	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct exchange_result r = result(i, OUTCOME_BAD);
		r.code = bad[i].code;
		r.ours = i % 2;
		partners_result(p, &r, now);
		assert_string_equal(find(i)->reason, bad[i].text);
		assert_true(find(i)->quarantine_ms == now + MINUTE);
		assert_int_equal(find(i)->failed, 1);
		assert_false(is_free(i));
		assert_int_equal(admit(i), EXCHANGE_QUARANTINED);
	}
	now += MINUTE - 1;
	assert_false(is_free(0));
	assert_int_equal(admit(0), EXCHANGE_QUARANTINED);
	now++;
	assert_true(is_free(0));
	assert_int_equal(admit(0), EXCHANGE_WILLING);
}

static void test_quarantine_doubles(void **state)
{
	static const uint64_t minutes[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
	struct peer_id x = id(9);
	char longest[PARTNER_REASON_MAX + 8];
	(void)state;
	for (size_t i = 0; i < sizeof minutes / sizeof *minutes; i++) {
		partners_quarantine(p, &x, "its gift was no model of ours", now);
		assert_true(find(9)->quarantine_ms == now + minutes[i] * MINUTE);
		now = find(9)->quarantine_ms;
		assert_true(is_free(9));
	}
	assert_string_equal(find(9)->reason, "its gift was no model of ours");
	assert_int_equal(find(9)->quarantines, 9);
	memset(longest, 'x', sizeof longest);
	memcpy(longest + PARTNER_REASON_MAX - 2, "\xc3\xa4", 3); /* ä, half of which would fit */
	partners_quarantine(p, &x, longest, now);
	assert_int_equal(strlen(find(9)->reason), PARTNER_REASON_MAX - 2);
	partners_quarantine(p, &x, "", now);
	assert_string_equal(find(9)->reason, "");
}

/* Each digit an exchange: 1 was clipped hard. Returns after how many there was a quarantine. */
static int clipped(unsigned n, const char *exchanges)
{
	for (int i = 0; exchanges[i]; i++) {
		exchanged(n, MB, 100, exchanges[i] == '1' ? 0.099f : 0.1f);
		if (find(n)->quarantine_ms > now)
			return i + 1;
	}
	return 0;
}

static void test_clipped(void **state)
{
	(void)state;
	assert_int_equal(clipped(1, "111"), 3);
	assert_string_equal(find(1)->reason,
	        "its parameters had to be clipped hard in 3 of its last 5 exchanges");
	assert_int_equal(admit(1), EXCHANGE_QUARANTINED);
	assert_int_equal(clipped(2, "10101"), 5);
	assert_int_equal(clipped(3, "1100010001100010"), 0);
	assert_int_equal(clipped(4, "0000000011001"), 13);
	exchanged(5, MB, 100, NAN);
	exchanged(5, MB, 100, 0);
	exchanged(5, 0, 0, -1);
	assert_true(find(5)->quarantine_ms > now);
	/* Afterwards it begins anew, but for the time. */
	now += MINUTE;
	assert_int_equal(clipped(1, "11011"), 4);
	assert_true(find(1)->quarantine_ms == now + 2 * MINUTE);
	/* Whoever began it, in whatever mode, at the end too. */
	for (int i = 0; i < 3; i++) {
		struct exchange_result r = result(6, OUTCOME_EXCHANGED);
		r.ours = i == 0;
		r.final = i == 1;
		r.mode = (uint8_t)i;
		r.factor = 0.01f;
		partners_result(p, &r, now);
	}
	assert_true(find(6)->quarantine_ms > now);
	assert_int_equal(find(6)->exchanged, 3);
	assert_true(find(6)->last_ms == now);
}

/* 0.5 a second, 3 at once. */
static void test_rate(void **state)
{
	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++)
			assert_int_equal(admit(1), EXCHANGE_WILLING);
		assert_int_equal(admit(1), EXCHANGE_RATE);
		now += 1999;
		assert_int_equal(admit(1), EXCHANGE_RATE);
		now++;
		assert_int_equal(admit(1), EXCHANGE_WILLING);
		assert_int_equal(admit(1), EXCHANGE_RATE);
		assert_int_equal(admit(2), EXCHANGE_WILLING);
		now += 1000 * MINUTE;
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(admit(1), EXCHANGE_WILLING);
	now -= 10 * MINUTE; /* a clock that goes back gives nothing */
	assert_int_equal(admit(1), EXCHANGE_RATE);
}

static void test_deadline_by_hand(void **state)
{
	(void)state;
	/* The first guess is 1 MB/s, the floor 2 s, the ceiling 10 min. */
	assert_int_equal(deadline(1, 0), 2000);
	assert_int_equal(deadline(1, MB), 2000);
	assert_int_equal(deadline(1, 30 * MB), 30000);
	assert_int_equal(deadline(1, UINT64_MAX), 600000);
	/* ms per byte 1, 2, 3, 5, 20: median 3, deviations 0 1 2 2 17, MAD 2. (The larger way.) */
	static const uint64_t ms[] = {20, 1, 5, 2, 3};
	for (int i = 0; i < 5; i++)
		exchanged(1, 1000, ms[i] * 1000, 1);
	assert_in_range(deadline(1, 10000), 109999, 110001);
	/* And 7: between 3 and 5; deviations 1 1 2 3 3 16, MAD 2.5. */
	exchanged(1, 1000, 7000, 1);
	assert_in_range(deadline(1, 10000), 139999, 140001);
	/* All alike: twice as long. */
	for (int i = 0; i < PARTNER_TIMES; i++)
		exchanged(1, 1000, 4000, 1);
	assert_in_range(deadline(1, 10000), 79999, 80001);
	exchanged(1, 0, 500000, 1); /* nothing moved: no speed */
	assert_in_range(deadline(1, 10000), 79999, 80001);
	assert_int_equal(find(1)->n_times, 6 + PARTNER_TIMES);
}

static void test_deadline_after_timeouts(void **state)
{
	(void)state;
	uint64_t expected = 2000;
	for (int i = 0; i < 20; i++) {
		struct exchange_result r = result(1, OUTCOME_TIMEOUT);
		assert_int_equal(deadline(1, MB), expected);
		r.deadline_ms = expected;
		partners_result(p, &r, now);
		expected = expected < 300000 ? 2 * expected : 600000;
	}
	/* At the ceiling it stays: after one success the next is waited for as before. */
	for (int i = 0; i < 10; i++) {
		struct exchange_result r = result(3, OUTCOME_TIMEOUT);
		r.deadline_ms = deadline(3, 300 * MB);
		partners_result(p, &r, now);
	}
	assert_true(find(3)->stretch == 2);
	/* Other failures do not: they say nothing of the time that is needed. */
	enter(2, OUTCOME_BROKEN);
	enter(2, OUTCOME_ONE_SIDED);
	enter(2, OUTCOME_BUSY);
	assert_int_equal(deadline(2, MB), 2000);
	/* A fast link comes down to the floor again, by an eighth each time. */
	exchanged(1, MB, 100, 1);
	assert_int_equal(deadline(1, MB), 600000);
	uint64_t before = 600000;
	int n = 0;
	while (deadline(1, MB) > 2000) {
		exchanged(1, MB, 100, 1);
		assert_true(deadline(1, MB) <= before && deadline(1, MB) >= before * 6 / 8);
		before = deadline(1, MB);
		assert_true(++n < 60);
	}
	assert_true(n > 30);
}

/* A link at that many ms for a transfer of 1 MB: tries, and how many of them came to nothing. */
static int tries(unsigned n, uint64_t need_ms, int times)
{
	int failed = 0;
	for (int i = 0; i < times; i++) {
		uint64_t given = deadline(n, MB);
		if (given >= need_ms) {
			exchanged(n, MB, need_ms, 1);
			continue;
		}
		struct exchange_result r = result(n, OUTCOME_TIMEOUT);
		r.deadline_ms = r.took_ms = given;
		partners_result(p, &r, now);
		failed++;
	}
	return failed;
}

static void test_deadline_follows(void **state)
{
	(void)state;
	assert_int_equal(tries(1, 1500, 40), 0);
	assert_in_range(deadline(1, MB), 2999, 3001);
	assert_in_range(tries(1, 15000, 40), 3, 6); /* ten times slower, for good */
	assert_int_equal(tries(1, 15000, 1000), 0);
	assert_in_range(deadline(1, MB), 29999, 30001);
	assert_int_equal(tries(1, 1500, 40), 0); /* and fast again */
	assert_in_range(deadline(1, MB), 2999, 3001);
	assert_in_range(tries(2, 100000, 100), 6, 12); /* slow from the first */
	assert_int_equal(tries(2, 100000, 100), 0);
	assert_in_range(tries(3, 700000, 50), 50, 50); /* more than anybody is given */
	assert_int_equal(deadline(3, MB), 600000);
}

static void test_table(void **state)
{
	struct peer_id x = id(5);
	(void)state;
	now = 0;
	partners_quarantine(p, &x, "a", now);
	assert_true(find(5)->used_ms > 0); /* it is no free slot, even at the time 0 */
	for (unsigned i = 0; i < PARTNERS_MAX; i++) {
		now = 10 + i;
		enter(i, OUTCOME_BUSY);
	}
	assert_int_equal(partners_count(p), PARTNERS_MAX);
	for (unsigned i = 0; i < PARTNERS_MAX; i++)
		assert_non_null(find(i));
	now = 5000;
	enter(0, OUTCOME_BUSY); /* used: the longest unused are 1, 2, 3, 4, (5), 6 */
	for (unsigned i = 1; i <= 5; i++)
		assert_int_equal(admit(10000 + i), EXCHANGE_WILLING);
	for (unsigned i = 1; i <= 7; i++)
		assert_int_equal(find(i) != NULL, i == 5 || i == 7);
	assert_non_null(find(0));
	assert_int_equal(partners_count(p), PARTNERS_MAX);

	/* All others come and go; who is in quarantine stays until it is over. */
	for (unsigned i = 0; i < 3 * PARTNERS_MAX; i++) {
		now += 10;
		admit(20000 + i);
	}
	assert_true(now < MINUTE);
	assert_int_equal(admit(5), EXCHANGE_QUARANTINED);
	now += MINUTE;
	for (unsigned i = 0; i < PARTNERS_MAX; i++)
		admit(30000 + i);
	assert_null(find(5));

	/* With everybody in it, one has to go: again the one not heard of for longest. */
	for (unsigned i = 0; i < PARTNERS_MAX; i++) {
		x = id(30000 + i);
		partners_quarantine(p, &x, "b", ++now);
	}
	assert_int_equal(admit(1), EXCHANGE_WILLING);
	assert_null(find(30000));
	assert_non_null(find(30001));
	assert_int_equal(admit(2), EXCHANGE_WILLING); /* and now the one that is in none */
	assert_null(find(1));
	assert_non_null(find(30001));

	unsigned seen = 0;
	for (uint32_t i = 0; i < partners_count(p); i++)
		seen += partners_find(p, &partners_get(p, i)->id) == partners_get(p, i);
	assert_int_equal(seen, PARTNERS_MAX);
	assert_null(partners_get(p, partners_count(p)));
}

/* What one peer has moved us by is at most 4 × our own path in the same window. */
static void test_pulls(void **state)
{
	struct peer_id a = id(1), other = id(2);
	(void)state;
	assert_true(partners_pull_left(p, &a) <= 0); /* who has not moved is not to be led */
	partners_path(p, 10, 1.0);
	assert_true(fabs(partners_pull_left(p, &a) - 4) < 1e-9);
	partners_pulled(p, &a, 3, false, now);
	partners_pulled(p, &a, 100, true, now); /* merge rounds are counted by themselves */
	assert_true(fabs(partners_pull_left(p, &a) - 1) < 1e-9);
	assert_true(fabs(partners_pull_left(p, &other) - 4) < 1e-9);
	assert_true(fabs(find(1)->merged - 100) < 1e-9);
	/* Half a window later the path goes on, and so does the account. */
	partners_path(p, 138, 1.5);
	assert_true(fabs(partners_pull_left(p, &a) - 3) < 1e-9);
	partners_pulled(p, &a, 1, false, now);
	assert_true(fabs(partners_pull_left(p, &a) - 2) < 1e-9);
	/* Another half: what was before the window counts no more, neither path nor pull. */
	partners_path(p, 266, 2.0);
	assert_true(fabs(partners_pull_left(p, &a) - 3) < 1e-9);
	/* New parameters, a new path. */
	partners_path(p, 267, 0);
	assert_true(partners_pull_left(p, &other) <= 0);
}

/* 0 means never, also at the very beginning of time. */
static void test_given_at_the_beginning_of_time(void **state)
{
	struct peer_id a = id(1);
	(void)state;
	partners_given(p, &a, 0);
	assert_int_equal(find(1)->given_ms, 1);
	partners_given(p, &a, 7);
	assert_int_equal(find(1)->given_ms, 7);
	now = 0;
	assert_true(is_free(1) && is_free(2)); /* the one that is known, and another */
}

/* Who begins and lets us wait is not let in again at once, longer each time, and gets no longer
 * deadline for it. */
static void test_stalls_shut_both_ways(void **state)
{
	struct peer_id a = id(1);
	struct exchange_result r = result(1, OUTCOME_TIMEOUT);
	uint64_t shut = 0, deadline = partners_deadline(p, &a, MB);
	(void)state;
	r.ours = false;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(partners_admit(p, &a, now), EXCHANGE_WILLING);
		partners_result(p, &r, now);
		assert_int_equal(partners_admit(p, &a, now), EXCHANGE_OTHER);
		assert_int_equal(draw(1, 1), -1);
		assert_true(find(1)->shut_ms - now > shut / 2);
		shut = find(1)->shut_ms - now;
		now += shut + 10 * SECOND;
	}
	assert_true(shut >= 4 * SECOND);
	assert_int_equal(partners_deadline(p, &a, MB), deadline);
	/* A peer that is busy is not shut out: it may have time when it comes itself. */
	enter(2, OUTCOME_BUSY);
	a = id(2);
	assert_int_equal(partners_admit(p, &a, now), EXCHANGE_WILLING);
	a = id(3);
	partners_stalled(p, &a, now);
	assert_int_equal(partners_admit(p, &a, now), EXCHANGE_OTHER);
	exchanged(3, MB, 100, 1);
	assert_int_equal(partners_admit(p, &a, now), EXCHANGE_WILLING);
}

/* A peer that begins and lets us wait is left alone for four times as long from the first time on:
 * it cannot have more than about a fifth of our time. */
static void test_a_wait_costs_four_times(void **state)
{
	struct exchange_result r = result(1, OUTCOME_TIMEOUT);
	(void)state;
	r.took_ms = r.deadline_ms = 3 * SECOND;
	r.ours = false;
	for (int i = 0; i < 3; i++) {
		partners_result(p, &r, now);
		assert_in_range(waits(1), 6 * SECOND, 18 * SECOND);
		now = find(1)->free_ms;
	}
	/* However long it was. */
	r = result(2, OUTCOME_TIMEOUT);
	r.took_ms = r.deadline_ms = 600 * SECOND;
	r.ours = false;
	partners_result(p, &r, now);
	assert_in_range(waits(2), 1200 * SECOND, 3600 * SECOND);
	/* It may give up just before the time is up, or break, or send what is worth nothing. */
	static const enum exchange_outcome kinds[] = {
	        OUTCOME_BROKEN, OUTCOME_BAD, OUTCOME_ONE_SIDED};
	for (unsigned k = 0; k < 3; k++) {
		struct peer_id a = id(10 + k);
		r = result(10 + k, kinds[k]);
		r.took_ms = r.deadline_ms = 20 * SECOND;
		r.ours = false;
		partners_result(p, &r, now);
		assert_in_range(waits(10 + k), 40 * SECOND, 120 * SECOND);
		assert_true(find(10 + k)->shut_ms == find(10 + k)->free_ms);
		/* An earlier one that was put aside and comes about makes up for nothing. */
		r = result(10 + k, OUTCOME_EXCHANGED);
		r.late = true;
		partners_result(p, &r, now);
		assert_int_not_equal(partners_admit(p, &a, now), EXCHANGE_WILLING);
	}
	/* What we began and lost, perhaps by a slow link, is no reason. */
	r = result(3, OUTCOME_BROKEN);
	r.took_ms = r.deadline_ms = 30 * SECOND;
	partners_result(p, &r, now);
	assert_in_range(waits(3), SECOND / 2, SECOND * 3 / 2);
	/* Nor is that an offer was not answered; but to accept and be silent is. */
	r = result(4, OUTCOME_TIMEOUT);
	r.took_ms = r.deadline_ms = 3 * SECOND;
	partners_result(p, &r, now);
	assert_in_range(waits(4), SECOND / 2, SECOND * 3 / 2);
	r = result(5, OUTCOME_TIMEOUT);
	r.took_ms = r.deadline_ms = 13 * SECOND;
	partners_result(p, &r, now);
	assert_in_range(waits(5), 20 * SECOND, 60 * SECOND);
	/* Nor what it took beyond its time, in which this process stood still. */
	for (unsigned k = 6; k < 8; k++) {
		r = result(k, OUTCOME_TIMEOUT);
		r.took_ms = 3600 * SECOND;
		r.deadline_ms = 5 * SECOND;
		r.ours = k == 6;
		partners_result(p, &r, now);
		assert_in_range(waits(k), 10 * SECOND, 30 * SECOND);
	}
}

/* One of four takes our offers and is silent: as its deadline grows, so do the pauses. */
static void test_a_silent_peer_gets_a_fifth(void **state)
{
	uint64_t begin_ms = now, held = 0, longest = 0;
	(void)state;
	while (now - begin_ms < 360 * MINUTE) {
		int k = draw(0, 4);
		if (k >= 0) {
			struct peer_id to = id((unsigned)k);
			struct exchange_result r = result((unsigned)k,
			        k == 0 ? OUTCOME_TIMEOUT : OUTCOME_EXCHANGED);
			r.deadline_ms = partners_deadline(p, &to, MB);
			r.took_ms = k == 0 ? r.deadline_ms : 200;
			r.bytes_sent = r.bytes_received = MB;
			now += r.took_ms;
			held += k == 0 ? r.took_ms : 0;
			longest = k == 0 && r.took_ms > longest ? r.took_ms : longest;
			partners_result(p, &r, now);
		}
		now += SECOND;
	}
	assert_true(held < (now - begin_ms) / 4);
	assert_true(longest >= 10 * MINUTE); /* a link as slow as that is found */
}

/* Exchanges make up for doubts, but not those of merge rounds. */
static void test_doubts(void **state)
{
	struct exchange_result doubt = result(1, OUTCOME_BROKEN),
	                       good = result(1, OUTCOME_EXCHANGED);
	(void)state;
	doubt.code = ERR_INVALID;
	good.final = true;
	partners_result(p, &doubt, now);
	partners_result(p, &good, now);
	partners_result(p, &doubt, now);
	assert_int_equal(find(1)->doubts, 2);
	good.final = false;
	partners_result(p, &good, now);
	assert_int_equal(find(1)->doubts, 0);
}

#define IDS 30 /* that do not answer, beside two that do */

/* Of so many draws, those of peers 1 and 2; 3 and on have not exchanged. */
static int known_of(int draws)
{
	int known = 0;
	for (int i = 0; i < draws; i++)
		known += draw(1, 2 + IDS) <= 2;
	return known;
}

/* Ids are free: whoever makes many that do not answer must not have most of our draws. */
static void test_new_peers_that_fail(void **state)
{
	(void)state;
	exchanged(1, MB, 100, 1);
	exchanged(2, MB, 100, 1);
	assert_in_range(known_of(1000), 20, 130); /* uniform: 62 or 63 */
	for (unsigned k = 0; k < 40; k++)
		enter(1000 + k, k % 2 ? OUTCOME_TIMEOUT : OUTCOME_BROKEN);
	assert_in_range(known_of(1000), 880, 990); /* the others are tried, too */
	/* Where nobody else is free they are all there is. */
	assert_true(draw(3, IDS) >= 3);
}

/* A refusal is an answer, and one that comes about makes up for one that did not. */
static void test_new_peers_that_answer(void **state)
{
	(void)state;
	exchanged(1, MB, 100, 1);
	exchanged(2, MB, 100, 1);
	for (unsigned k = 0; k < 40; k++) {
		enter(1000 + k, OUTCOME_BUSY);
		enter(2000 + k, OUTCOME_UNLIKE);
		enter(2, OUTCOME_TIMEOUT); /* is none of them */
	}
	now += 100 * SECOND;
	assert_in_range(known_of(1000), 20, 130);
	for (unsigned k = 0; k < 40; k++)
		enter(3000 + k, OUTCOME_BROKEN);
	for (unsigned k = 0; k < 30; k++)
		exchanged(4000 + k, MB, 100, 1);
	assert_in_range(known_of(1000), 20, 130);
}

/* Some to choose from: all are different and free, and each is as likely as any other. */
static void test_some_of_them(void **state)
{
	enum { N = 12, OF = 3, TIMES = 6000 };
	struct peer_id all[N], out[OF];
	int drawn[N] = {0};
	(void)state;
	for (unsigned i = 0; i < N; i++)
		all[i] = id(i);
	enter(5, OUTCOME_BROKEN); /* which waits for a while */
	partners_drawn(p, &all[7]);
	for (int t = 0; t < TIMES; t++) {
		assert_int_equal(partners_sample(p, all, N, now, OF, out), OF);
		for (int k = 0; k < OF; k++) {
			unsigned i = out[k].bytes[0];
			drawn[i]++;
			assert_false(peer_id_equal(&out[k], &out[(k + 1) % OF]));
		}
	}
	for (int i = 0; i < N; i++)
		if (i == 5 || i == 7)
			assert_int_equal(drawn[i], 0);
		else
			assert_in_range(drawn[i], TIMES * OF / 10 - 200, TIMES * OF / 10 + 200);
	assert_int_equal(partners_sample(p, &all[7], 1, now, OF, out), 1); /* the last, if alone */
	assert_int_equal(partners_sample(p, &all[5], 1, now, OF, out), 0);
	assert_int_equal(partners_sample(p, all, 2, now, OF, out), 2);
}

/* Scales that did not fit cost one exchange; a format that a peer has refused it will not take the
 * next time either. */
static void test_plain_formats(void **state)
{
	(void)state;
	struct exchange_result far = result(1, OUTCOME_BROKEN), no = result(1, OUTCOME_BUSY);
	far.code = ERR_LIMIT;
	no.why = EXCHANGE_UNKNOWN;
	exchanged(1, MB, 10, 1);
	assert_int_equal(find(1)->plain, PLAIN_NOT);
	partners_result(p, &far, now);
	assert_int_equal(find(1)->plain, PLAIN_ONCE);
	assert_int_equal(find(1)->strikes, 0);
	assert_true(find(1)->free_ms > now);
	partners_result(p, &far, now);
	assert_int_equal(find(1)->strikes, 1);
	exchanged(1, MB, 10, 1);
	assert_int_equal(find(1)->plain, PLAIN_NOT);
	far.code = ERR_INVALID;
	partners_result(p, &far, now);
	assert_int_equal(find(1)->plain, PLAIN_ONCE);
	assert_int_equal(find(1)->strikes, 1);
	exchanged(1, MB, 10, 1);
	assert_int_equal(find(1)->plain, PLAIN_NOT);
	far.code = ERR_LIMIT;
	partners_result(p, &no, now);
	partners_result(p, &far, now);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(find(1)->plain, PLAIN_EVER);
		exchanged(1, MB, 10, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_draw_is_uniform, begin, end),
	        cmocka_unit_test_setup_teardown(test_draw_of_few, begin, end),
	        cmocka_unit_test_setup_teardown(test_same_seed_same_draws, begin, end),
	        cmocka_unit_test_setup_teardown(test_back_off, begin, end),
	        cmocka_unit_test_setup_teardown(test_busy, begin, end),
	        cmocka_unit_test_setup_teardown(test_unlike, begin, end),
	        cmocka_unit_test_setup_teardown(test_nothing_learnt, begin, end),
	        cmocka_unit_test_setup_teardown(test_bad, begin, end),
	        cmocka_unit_test_setup_teardown(test_quarantine_doubles, begin, end),
	        cmocka_unit_test_setup_teardown(test_clipped, begin, end),
	        cmocka_unit_test_setup_teardown(test_rate, begin, end),
	        cmocka_unit_test_setup_teardown(test_deadline_by_hand, begin, end),
	        cmocka_unit_test_setup_teardown(test_deadline_after_timeouts, begin, end),
	        cmocka_unit_test_setup_teardown(test_deadline_follows, begin, end),
	        cmocka_unit_test_setup_teardown(test_table, begin, end),
	        cmocka_unit_test_setup_teardown(test_pulls, begin, end),
	        cmocka_unit_test_setup_teardown(test_stalls_shut_both_ways, begin, end),
	        cmocka_unit_test_setup_teardown(test_a_wait_costs_four_times, begin, end),
	        cmocka_unit_test_setup_teardown(test_pulls, begin, end),
	        cmocka_unit_test_setup_teardown(test_given_at_the_beginning_of_time, begin, end),
	        cmocka_unit_test_setup_teardown(test_a_wait_costs_four_times, begin, end),
	        cmocka_unit_test_setup_teardown(test_a_silent_peer_gets_a_fifth, begin, end),
	        cmocka_unit_test_setup_teardown(test_doubts, begin, end),
	        cmocka_unit_test_setup_teardown(test_new_peers_that_fail, begin, end),
	        cmocka_unit_test_setup_teardown(test_new_peers_that_answer, begin, end),
	        cmocka_unit_test_setup_teardown(test_some_of_them, begin, end),
	        cmocka_unit_test_setup_teardown(test_plain_formats, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
