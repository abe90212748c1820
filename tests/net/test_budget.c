/* SPDX-License-Identifier: MIT */
/* What strangers may cost, one rule at a time, with a clock that the test turns. */
#include "agent/base/rng.h"
#include "net/transport/budget.h"
#include "tests/support.h"

static struct budget b;
static uint64_t now;

static int begin(void **state)
{
	static const uint8_t key[16] = {5};
	(void)state;
	now = 1000000;
	budget_init(&b, key, now);
	return 0;
}

static struct peer_addr v4(unsigned n)
{
	return (struct peer_addr){4, {10, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n}, 1};
}

/* The n-th /64, and a host in it. */
static struct peer_addr v6(unsigned n, uint8_t host)
{
	return (struct peer_addr){
	        6, {0x20, 1, [6] = (uint8_t)(n >> 8), [7] = (uint8_t)n, [15] = host}, 1};
}

static enum budget_verdict enter(struct peer_addr a, int *slot)
{
	return budget_enter(&b, &a, now, slot);
}

/* One handshake from the beginning to its end. */
static enum budget_verdict once(struct peer_addr a, bool dh, bool proved)
{
	int slot;
	enum budget_verdict v = enter(a, &slot);
	if (v != BUDGET_OK)
		return v;
	v = budget_handshake(&b, slot, now);
	if (v == BUDGET_OK && dh)
		v = budget_dh(&b, slot, now);
	budget_leave(&b, slot, proved);
	return v;
}

static void test_slots_of_an_address(void **state)
{
	int slot[BUDGET_SLOTS_PREFIX], extra;
	(void)state;
	for (int i = 0; i < BUDGET_SLOTS_PREFIX; i++)
		assert_int_equal(enter(v6(1, (uint8_t)i), &slot[i]), BUDGET_OK);
	assert_int_equal(enter(v6(1, 200), &extra), BUDGET_NO_SLOT_ADDRESS);
	assert_int_equal(extra, -1);
	assert_int_equal(enter(v6(2, 0), &extra), BUDGET_OK);
	budget_leave(&b, slot[7], false);
	assert_int_equal(enter(v6(1, 200), &slot[7]), BUDGET_OK);
	assert_int_equal(enter(v6(1, 201), &extra), BUDGET_NO_SLOT_ADDRESS);
	assert_int_equal(b.refused[BUDGET_NO_SLOT_ADDRESS], 2);
}

/* IPv4 comes as itself or mapped into IPv6, and neighbours are strangers to each other. */
static void test_one_address_two_spellings(void **state)
{
	int slot;
	struct peer_addr mapped = {6, {[10] = 0xff, 0xff, 10, 0, 0, 1}, 1}, other = mapped;
	(void)state;
	other.ip[15] = 2;
	for (int i = 0; i < BUDGET_SLOTS_PREFIX; i++)
		assert_int_equal(enter(i % 2 ? mapped : v4(1), &slot), BUDGET_OK);
	assert_int_equal(enter(mapped, &slot), BUDGET_NO_SLOT_ADDRESS);
	assert_int_equal(enter(v4(1), &slot), BUDGET_NO_SLOT_ADDRESS);
	assert_int_equal(enter(other, &slot), BUDGET_OK);
	assert_int_equal(enter(v4(3), &slot), BUDGET_OK);
}

static void test_slots_in_all(void **state)
{
	int slot, one = -1;
	(void)state;
	for (unsigned i = 0; i < BUDGET_SLOTS; i++) {
		assert_int_equal(enter(v4(i), &slot), BUDGET_OK);
		one = i == 77 ? slot : one;
	}
	assert_int_equal(enter(v4(5000), &slot), BUDGET_NO_SLOT);
	budget_leave(&b, one, true);
	assert_int_equal(enter(v4(5000), &slot), BUDGET_OK);
	assert_int_equal(enter(v4(5001), &slot), BUDGET_NO_SLOT);
	assert_int_equal(b.n_slots, BUDGET_SLOTS);
}

static void test_rate_of_an_address(void **state)
{
	(void)state;
	for (int i = 0; i < BUDGET_BURST; i++)
		assert_int_equal(once(v4(1), false, false), BUDGET_OK);
	assert_int_equal(once(v4(1), false, false), BUDGET_RATE_ADDRESS);
	assert_int_equal(once(v4(2), false, false), BUDGET_OK);
	now += 1000 / BUDGET_RATE - 1;
	assert_int_equal(once(v4(1), false, false), BUDGET_RATE_ADDRESS);
	now += 1;
	assert_int_equal(once(v4(1), false, false), BUDGET_OK);
	assert_int_equal(once(v4(1), false, false), BUDGET_RATE_ADDRESS);
	/* However long it stayed away, no more than a burst. */
	now += 1ull << 60;
	for (int i = 0; i < BUDGET_BURST; i++)
		assert_int_equal(once(v4(1), false, false), BUDGET_OK);
	assert_int_equal(once(v4(1), false, false), BUDGET_RATE_ADDRESS);
}

static void test_rate_in_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BUDGET_BURST_ALL; i++)
		assert_int_equal(once(v4(i), false, false), BUDGET_OK);
	assert_int_equal(once(v4(9999), false, false), BUDGET_RATE_OVERALL);
	now += 1000;
	for (unsigned i = 0; i < BUDGET_RATE_ALL; i++)
		assert_int_equal(once(v4(10000 + i), false, false), BUDGET_OK);
	assert_int_equal(once(v4(9999), false, false), BUDGET_RATE_OVERALL);
}

static void test_those_who_prove_themselves_pay_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < 10 * BUDGET_BURST_ALL; i++)
		assert_int_equal(once(v4(1), true, true), BUDGET_OK);
	assert_int_equal(b.handshakes.level, BUDGET_BURST_ALL * 1000);
	assert_int_equal(b.dhs.level, BUDGET_DH_BURST_ALL * 1000);
	/* What is given back never makes more than a burst: 1,000 tokens are not saved up. */
	for (int i = 0; i < BUDGET_DH_BURST; i++)
		assert_int_equal(once(v4(1), true, false), BUDGET_OK);
	assert_int_equal(once(v4(1), true, false), BUDGET_DH_ADDRESS);
}

static void test_diffie_hellmans(void **state)
{
	(void)state;
	for (int i = 0; i < BUDGET_DH_BURST; i++)
		assert_int_equal(once(v4(1), true, false), BUDGET_OK);
	assert_int_equal(once(v4(1), true, false), BUDGET_DH_ADDRESS);
	now += 1000;
	for (int i = 0; i < BUDGET_DH_RATE; i++)
		assert_int_equal(once(v4(1), true, false), BUDGET_OK);
	assert_int_equal(once(v4(1), true, false), BUDGET_DH_ADDRESS);
	/* Many addresses: the purse of all, filled up in a long pause, is emptied by them. */
	now += 1000000;
	for (unsigned i = 0; i < BUDGET_DH_BURST_ALL; i++)
		assert_int_equal(once(v4(100 + i), true, false), BUDGET_OK);
	assert_int_equal(once(v4(99), true, false), BUDGET_DH_OVERALL);
	assert_int_equal(once(v4(99), false, false), BUDGET_OK); /* without one */
	assert_int_equal(b.refused[BUDGET_DH_OVERALL], 1);
}

static void test_bytes_and_time(void **state)
{
	int slow, late;
	(void)state;
	assert_int_equal(enter(v4(1), &slow), BUDGET_OK);
	now += 100;
	assert_int_equal(enter(v4(1), &late), BUDGET_OK);
	assert_int_equal(budget_bytes(&b, slow, 1000, now), BUDGET_OK);
	assert_int_equal(budget_bytes_left(&b, slow), BUDGET_BYTES - 1000);
	assert_int_equal(budget_bytes(&b, slow, BUDGET_BYTES - 999, now), BUDGET_BYTES_OVER);
	assert_int_equal(budget_bytes(&b, slow, SIZE_MAX, now), BUDGET_BYTES_OVER);
	assert_int_equal(budget_bytes(&b, slow, BUDGET_BYTES - 1000, now), BUDGET_OK);
	assert_int_equal(budget_bytes(&b, slow, 1, now), BUDGET_BYTES_OVER);

	now = 1000000 + BUDGET_HANDSHAKE_MS - 1;
	assert_int_equal(budget_bytes(&b, slow, 0, now), BUDGET_OK);
	now++;
	assert_int_equal(budget_bytes(&b, slow, 0, now), BUDGET_TIME_OVER);
	assert_int_equal(budget_dh(&b, slow, now), BUDGET_TIME_OVER);
	budget_leave(&b, slow, false);
	assert_int_equal(budget_bytes(&b, late, 1, now), BUDGET_OK);
	budget_leave(&b, late, false);
}

/* Whoever floods from ever new addresses is forgotten, those with a slot are not. */
static void test_addresses_are_forgotten(void **state)
{
	int kept, slot;
	(void)state;
	assert_int_equal(enter(v4(1), &kept), BUDGET_OK);
	assert_int_equal(budget_handshake(&b, kept, now), BUDGET_OK);
	for (int i = 0; i < BUDGET_BURST - 1; i++)
		assert_int_equal(once(v4(1), false, false), BUDGET_OK);
	for (int i = 0; i < BUDGET_BURST; i++)
		assert_int_equal(once(v4(2), false, false), BUDGET_OK);
	assert_int_equal(once(v4(2), false, false), BUDGET_RATE_ADDRESS);
	for (unsigned i = 0; i < 3 * BUDGET_ADDRESSES; i++) {
		b.handshakes.level = BUDGET_BURST_ALL * 1000;
		assert_int_equal(once(v6(i, 0), false, false), BUDGET_OK);
		/* Used now and then, so never the one that was seen longest ago. */
		if (i % 100 == 0)
			assert_int_equal(once(v4(2), false, false), BUDGET_RATE_ADDRESS);
	}
	assert_int_equal(b.n_addresses, BUDGET_ADDRESSES);
	assert_int_equal(once(v4(1), false, false), BUDGET_RATE_ADDRESS); /* it held a slot */
	budget_leave(&b, kept, false);
	for (unsigned i = 0; i < BUDGET_ADDRESSES; i++) {
		b.handshakes.level = BUDGET_BURST_ALL * 1000;
		assert_int_equal(once(v6(10000 + i, 0), false, false), BUDGET_OK);
	}
	assert_int_equal(once(v4(1), false, false), BUDGET_OK); /* forgotten: a full purse */
	assert_int_equal(enter(v4(1), &slot), BUDGET_OK);
	assert_true(slot >= 0);
}

/* Anything in any order: the books stay in balance. */
static void test_random_life(void **state)
{
	int held[BUDGET_SLOTS_ALL], n = 0;
	struct rng r;
	uint64_t served = 0;
	(void)state;
	rng_seed(&r, 6, 0);
	for (int i = 0; i < 200000; i++) {
		now += rng_below(&r, 20);
		if (rng_below(&r, 2) && n > 0) {
			int k = (int)rng_below(&r, (uint64_t)n);
			if (!b.slot[held[k]].paid && rng_below(&r, 2))
				(void)budget_handshake(&b, held[k], now);
			bool proved = rng_below(&r, 2);
			struct peer_addr at = v4((unsigned)rng_below(&r, 1000));
			if (proved)
				budget_known(&b, &at, now);
			budget_leave(&b, held[k], proved);
			held[k] = held[--n];
		} else {
			int slot;
			unsigned from = (unsigned)rng_below(&r, rng_below(&r, 2) ? 5 : 3000);
			struct peer_addr at = v4(from);
			for (int s;
			        rng_below(&r, 2) && (s = budget_gives_way(&b, &at, now)) >= 0;) {
				int k = 0;
				while (held[k] != s)
					k++;
				held[k] = held[--n];
				budget_leave(&b, s, false);
			}
			if (enter(v4(from), &slot) == BUDGET_OK) {
				assert_true(n < BUDGET_SLOTS_ALL);
				held[n++] = slot;
				served++;
			}
		}
		assert_int_equal(b.n_slots, n);
	}
	assert_true(served > 10000);
	while (n > 0)
		budget_leave(&b, held[--n], false);
	for (int i = 0; i < BUDGET_ADDRESSES; i++)
		assert_int_equal(b.address[i].slots, 0);
	for (int i = 0; i < BUDGET_CROWDS; i++)
		assert_true(b.crowd[0][i] == 0 && b.crowd[1][i] == 0);
	assert_true(b.n_known == BUDGET_KNOWN && b.n_known_slots == 0);
}

/* Lets one in as the transport does; returns how many had to go. */
static int crowd_in(struct peer_addr a, int *slot)
{
	int gone = 0;
	for (int s; (s = budget_gives_way(&b, &a, now)) >= 0; gone++)
		budget_leave(&b, s, false);
	assert_int_equal(enter(a, slot), BUDGET_OK);
	return gone;
}

/* It still has the slot that it got then: a slot that came free is the next one's. */
static bool stays(int slot, uint64_t since_ms)
{
	return b.slot[slot].used && b.slot[slot].deadline_ms == since_ms + BUDGET_HANDSHAKE_MS;
}

/* Full: of the prefix with most of them the oldest goes. Those with few stay. */
static void test_crowds_give_way(void **state)
{
	int few[3], first = -1, slot;
	struct peer_addr other = v4(1 << 16), six = v6(9, 1), newcomer = v4(3 << 16);
	(void)state;
	assert_int_equal(crowd_in(other, &few[0]), 0);
	assert_int_equal(crowd_in(six, &few[1]), 0);
	assert_int_equal(crowd_in(other, &few[2]), 0);
	now++;
	/* 16 hosts of one /24 and 16 of another, the second with more connections. */
	for (unsigned i = 0; i < BUDGET_SLOTS - 3; i++) {
		unsigned net = i % 5 < 2 ? 7 : 8;
		assert_int_equal(crowd_in(v4(net << 8 | i % 16), &slot), 0);
		first = first < 0 && net == 8 ? slot : first;
	}
	assert_int_equal(budget_gives_way(&b, &newcomer, now), first);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(crowd_in(v4(8 << 8 | i % 16), &slot), 1);
	assert_int_equal(crowd_in(newcomer, &slot), 1);
	for (int i = 0; i < 3; i++)
		assert_true(stays(few[i], now - 1));
	/* Of one address that has its share: its own oldest. */
	for (unsigned i = 2; i < BUDGET_SLOTS_PREFIX; i++)
		(void)crowd_in(other, &slot);
	assert_int_equal(budget_gives_way(&b, &other, now), few[0]);
	assert_true(stays(few[1], now - 1));
}

/* Where an agent has proved itself there is room, whatever strangers elsewhere do. */
static void test_the_known_have_slots_of_their_own(void **state)
{
	int slot;
	struct peer_addr friend = v4(1), late = v4(2);
	(void)state;
	budget_known(&b, &friend, now);
	for (unsigned i = 0; i < BUDGET_SLOTS; i++)
		assert_int_equal(crowd_in(v4(i + 10), &slot), 0);
	for (int i = 0; i < BUDGET_SLOTS_PREFIX; i++) {
		assert_int_equal(budget_gives_way(&b, &friend, now), -1);
		assert_int_equal(enter(friend, &slot), BUDGET_OK);
	}
	assert_int_equal(b.n_slots, BUDGET_SLOTS + BUDGET_SLOTS_PREFIX);
	b.handshakes.level = b.dhs.level = 0; /* strangers have used them up */
	assert_int_equal(budget_handshake(&b, slot, now), BUDGET_OK);
	assert_int_equal(budget_dh(&b, slot, now), BUDGET_OK);
	assert_int_equal(crowd_in(late, &slot), 1);
	assert_int_equal(budget_handshake(&b, slot, now), BUDGET_RATE_OVERALL);
	/* Strangers from ever new addresses do not make us forget it. */
	for (unsigned i = 0; i < 3 * BUDGET_ADDRESSES; i++)
		(void)crowd_in(v4(i << 8), &slot);
	assert_true(budget_gives_way(&b, &friend, now) >= 0); /* of its own address */
	assert_int_equal(b.n_known_slots, BUDGET_SLOTS_PREFIX);
}

/* Whoever has a site's /48 has 65,536 /64s, and is one crowd all the same. */
static void test_a_site_is_one_crowd(void **state)
{
	int honest, neighbour, slot;
	struct peer_addr other = v6(1, 1);
	(void)state;
	other.ip[2] = 9; /* another /48 */
	assert_int_equal(crowd_in(other, &honest), 0);
	assert_int_equal(crowd_in(v6(0, 1), &neighbour), 0);
	now++;
	for (unsigned i = 0; i < BUDGET_SLOTS - 2; i++)
		assert_int_equal(crowd_in(v6(1 + i % 100, 1), &slot), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(crowd_in(v6(1000 + i, 1), &slot), 1);
	assert_true(stays(honest, now - 1));
	/* In a crowd the addresses with most connections go first. */
	budget_init(&b, b.key, now);
	assert_int_equal(crowd_in(v6(0, 1), &neighbour), 0);
	now++;
	for (unsigned i = 0; i < BUDGET_SLOTS - 1; i++)
		assert_int_equal(crowd_in(v6(1 + i % 100, 1), &slot), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(crowd_in(v6(1 + i % 100, 1), &slot), 1);
	assert_true(stays(neighbour, now - 1));
}

/* A stranger has an agent's address: behind the same router, on the same machine. */
static void test_a_shared_address(void **state)
{
	int agent, slot;
	struct peer_addr shared = v4(1);
	(void)state;
	budget_known(&b, &shared, now);
	assert_int_equal(crowd_in(shared, &agent), 0);
	assert_int_equal(budget_handshake(&b, agent, now), BUDGET_OK);
	assert_int_equal(budget_dh(&b, agent, now), BUDGET_OK);
	now++;
	for (int i = 0; i < 10 * BUDGET_SLOTS_PREFIX; i++)
		(void)crowd_in(shared, &slot);
	assert_true(stays(agent, now - 1));
	budget_leave(&b, agent, true);
	/* Its handshakes fail; the agent's are still tried. */
	while (b.n_slots > 0)
		budget_leave(&b, b.slot_first, false);
	for (int i = 0; i < 2 * BUDGET_BURST; i++)
		assert_int_equal(once(shared, false, false), BUDGET_OK);
	assert_int_equal(once(shared, true, true), BUDGET_OK);
	assert_int_equal(b.handshakes.level, BUDGET_BURST_ALL * 1000); /* others' is whole */
	for (int i = 0; i < 2 * BUDGET_DH_BURST; i++)
		assert_int_equal(once(shared, true, false), BUDGET_OK);
	/* In all, too, it is bounded. */
	int n = 0;
	while (once(shared, false, false) == BUDGET_OK)
		assert_true(++n < BUDGET_BURST_ALL);
	/* Where no agent is known nothing is added. */
	for (int i = 0; i < BUDGET_BURST; i++)
		assert_int_equal(once(v4(2), false, false), BUDGET_OK);
	assert_int_equal(once(v4(2), false, false), BUDGET_RATE_ADDRESS);
}

static void test_texts(void **state)
{
	(void)state;
	for (int v = 0; v < BUDGET_VERDICTS; v++)
		assert_true(strlen(budget_text((enum budget_verdict)v)) > 5);
	assert_string_equal(budget_text(BUDGET_VERDICTS), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(test_slots_of_an_address, begin),
	        cmocka_unit_test_setup(test_one_address_two_spellings, begin),
	        cmocka_unit_test_setup(test_slots_in_all, begin),
	        cmocka_unit_test_setup(test_rate_of_an_address, begin),
	        cmocka_unit_test_setup(test_rate_in_all, begin),
	        cmocka_unit_test_setup(test_those_who_prove_themselves_pay_nothing, begin),
	        cmocka_unit_test_setup(test_diffie_hellmans, begin),
	        cmocka_unit_test_setup(test_bytes_and_time, begin),
	        cmocka_unit_test_setup(test_addresses_are_forgotten, begin),
	        cmocka_unit_test_setup(test_crowds_give_way, begin),
	        cmocka_unit_test_setup(test_the_known_have_slots_of_their_own, begin),
	        cmocka_unit_test_setup(test_a_site_is_one_crowd, begin),
	        cmocka_unit_test_setup(test_a_shared_address, begin),
	        cmocka_unit_test_setup(test_random_life, begin),
	        cmocka_unit_test(test_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
