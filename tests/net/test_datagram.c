/* SPDX-License-Identifier: MIT */
/* Datagrams between two agents in memory: what opens, what does not, and the window against a plain
 * account of all numbers; the table of hints against a plain list. */
#include "agent/base/rng.h"
#include "net/codec/datagram.h"
#include "tests/support.h"

#include <sodium.h>

struct agent {
	struct peer_id id;
	uint8_t identity[64];
	uint64_t number;
};

static struct agent a, b;
static uint8_t flock[32] = {7};

static int setup(void **state)
{
	(void)state;
	if (sodium_init() < 0)
		return -1;
	uint8_t seed[32] = {1};
	crypto_sign_seed_keypair(a.id.bytes, a.identity, seed);
	seed[0] = 2;
	crypto_sign_seed_keypair(b.id.bytes, b.identity, seed);
	return 0;
}

static void link_up(struct datagram_link *l, const struct agent *self, const struct agent *peer,
        uint64_t self_generation, uint64_t peer_generation, const uint8_t *secret)
{
	uint8_t shared[32];
	assert_int_equal(datagram_shared(shared, self->identity, &peer->id), 0);
	datagram_init(l, &(struct datagram_pair){.shared = shared,
	                         .secret = secret,
	                         .self = self->id,
	                         .peer = peer->id,
	                         .self_generation = self_generation,
	                         .peer_generation = peer_generation});
}

static void test_both_ways(void **state)
{
	struct datagram_link ab, ba;
	uint8_t packet[GOSSIP_DATAGRAM_BYTES], out[DATAGRAM_PAYLOAD_MAX], payload[1200];
	size_t len;
	uint64_t hint;
	(void)state;
	link_up(&ab, &a, &b, 5, 9, flock);
	link_up(&ba, &b, &a, 9, 5, flock);
	randombytes_buf(payload, sizeof payload);
	static const size_t sizes[] = {0, 1, 100, DATAGRAM_PAYLOAD_MAX};
	for (size_t i = 0; i < 4; i++) {
		size_t n = sizes[i];
		assert_int_equal(datagram_seal(&ab, &a.number, payload, n, packet), 0);
		assert_int_equal(datagram_peek(packet, n + DATAGRAM_OVERHEAD, &hint), 0);
		assert_true(hint == ba.recv_hint && hint == datagram_hint(flock, &a.id));
		assert_int_equal(datagram_open(&ba, packet, n + DATAGRAM_OVERHEAD, out, &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(out, payload, n);
		assert_int_equal(
		        datagram_open(&ba, packet, n + DATAGRAM_OVERHEAD, out, &len), ERR_BUSY);

		assert_int_equal(datagram_seal(&ba, &b.number, payload, n, packet), 0);
		assert_int_equal(datagram_open(&ab, packet, n + DATAGRAM_OVERHEAD, out, &len), 0);
		assert_int_equal(len, n);
	}
	assert_int_equal(datagram_seal(&ab, &a.number, payload, DATAGRAM_PAYLOAD_MAX + 1, packet),
	        ERR_LIMIT);
	datagram_close(&ab);
	assert_true(sodium_is_zero((const uint8_t *)&ab, sizeof ab));
}

static void test_what_does_not_open(void **state)
{
	struct datagram_link ab, ba, other;
	struct agent c = {0};
	uint8_t packet[200], out[200], wrong[32] = {8};
	size_t len, n = 20 + DATAGRAM_OVERHEAD;
	(void)state;
	crypto_sign_keypair(c.id.bytes, c.identity);
	link_up(&ab, &a, &b, 5, 9, flock);
	link_up(&ba, &b, &a, 9, 5, flock);
	assert_int_equal(
	        datagram_seal(&ab, &a.number, (const uint8_t *)"01234567890123456789", 20, packet),
	        0);
	/* Back to its sender, another generation of either, another flock, another agent. */
	assert_int_equal(datagram_open(&ab, packet, n, out, &len), ERR_MISMATCH);
	link_up(&other, &b, &a, 10, 5, flock);
	assert_int_equal(datagram_open(&other, packet, n, out, &len), ERR_MISMATCH);
	link_up(&other, &b, &a, 9, 6, flock);
	assert_int_equal(datagram_open(&other, packet, n, out, &len), ERR_MISMATCH);
	link_up(&other, &b, &a, 9, 5, wrong);
	assert_int_equal(datagram_open(&other, packet, n, out, &len), ERR_MISMATCH);
	assert_true(other.recv_hint != ba.recv_hint);
	link_up(&other, &b, &c, 9, 5, flock);
	assert_int_equal(datagram_open(&other, packet, n, out, &len), ERR_MISMATCH);
	/* A member who knows everything but the secret half of either identity. */
	uint8_t guess[32];
	assert_int_equal(datagram_shared(guess, c.identity, &a.id), 0);
	datagram_init(&other, &(struct datagram_pair){.shared = guess,
	                              .secret = flock,
	                              .self = b.id,
	                              .peer = a.id,
	                              .self_generation = 9,
	                              .peer_generation = 5});
	assert_int_equal(datagram_open(&other, packet, n, out, &len), ERR_MISMATCH);
	/* Any changed bit, any other length. */
	for (size_t i = 0; i < n; i++) {
		packet[i] ^= (uint8_t)(1 << i % 8);
		int rc = datagram_open(&ba, packet, n, out, &len);
		assert_int_equal(rc, i == 0 ? ERR_FORMAT : ERR_MISMATCH);
		assert_int_equal(len, 0);
		packet[i] ^= (uint8_t)(1 << i % 8);
	}
	for (size_t i = 0; i < n; i++)
		assert_true(datagram_open(&ba, packet, i, out, &len) < 0);
	assert_true(ba.window.top == 0); /* none of that moved the window */
	assert_int_equal(datagram_open(&ba, packet, n, out, &len), 0);
	uint8_t huge[GOSSIP_DATAGRAM_BYTES + 1] = {DATAGRAM_VERSION};
	uint64_t hint;
	assert_int_equal(datagram_peek(huge, sizeof huge, &hint), ERR_FORMAT);
	assert_int_equal(datagram_peek(huge, sizeof huge - 1, &hint), 0);
}

static void test_ids_that_are_no_keys(void **state)
{
	uint8_t out[32];
	struct peer_id zero = {{0}}, one = {{1}}, ff;
	(void)state;
	memset(&ff, 0xff, sizeof ff);
	assert_int_equal(datagram_shared(out, a.identity, &zero), ERR_INVALID);
	assert_int_equal(datagram_shared(out, a.identity, &one), ERR_INVALID); /* order 1 */
	assert_int_equal(datagram_shared(out, a.identity, &ff), ERR_INVALID);
	assert_true(sodium_is_zero(out, sizeof out));
}

/* Numbers around a wandering place, beside an account of every number that was taken. */
static void test_window(void **state)
{
	enum { ALL = 60000 };
	static bool taken[ALL];
	struct datagram_window w = {0};
	struct rng r;
	uint64_t top = 0, place = 1;
	int accepted = 0;
	(void)state;
	rng_seed(&r, 3, 0);
	assert_false(datagram_window_take(&w, 0));
	for (int i = 0; i < 40000 && place < ALL - 3000; i++) {
		uint64_t n = 1 + place + rng_below(&r, 40);
		if (rng_below(&r, 8) == 0) /* a late one */
			n = n > 1500 ? n - rng_below(&r, 1500) : 1;
		if (rng_below(&r, 500) == 0)
			place += rng_below(&r, 2500);
		place += rng_below(&r, 3);
		bool expected = !taken[n] && (n > top || top - n < DATAGRAM_WINDOW);
		assert_int_equal(datagram_window_take(&w, n), expected);
		taken[n] |= expected;
		top = n > top ? n : top;
		accepted += expected;
	}
	assert_true(accepted > 10000);
	/* The edges, and the end of all numbers. */
	w = (struct datagram_window){0};
	/* The last number there is: what counts up to it must end. */
	struct datagram_window last = {0};
	assert_true(datagram_window_take(&last, UINT64_MAX - 1));
	assert_true(datagram_window_take(&last, UINT64_MAX));
	assert_false(datagram_window_take(&last, UINT64_MAX));

	assert_true(datagram_window_take(&w, 5000));
	assert_true(datagram_window_take(&w, 5000 - DATAGRAM_WINDOW + 1));
	assert_false(datagram_window_take(&w, 5000 - DATAGRAM_WINDOW));
	assert_true(datagram_window_take(&w, 5000 + DATAGRAM_WINDOW));
	assert_false(datagram_window_take(&w, 5000));
	assert_true(datagram_window_take(&w, UINT64_MAX));
	assert_false(datagram_window_take(&w, UINT64_MAX));
	assert_true(datagram_window_take(&w, UINT64_MAX - 1));
	assert_false(datagram_window_take(&w, 5001));
}

/* Few hints and values, so that they meet often. */
static void test_table(void **state)
{
	enum { ROOM = 64, HINTS = 24, VALUES = 6 };
	bool there[HINTS][VALUES] = {{false}};
	int same[HINTS] = {0}, used = 0;
	uint32_t found[DATAGRAM_SAME_HINT];
	uint8_t key[16] = {9};
	struct rng r;
	void *memory = malloc(datagram_table_size(ROOM));
	struct datagram_table *t = datagram_table_init(memory, ROOM, key);
	(void)state;
	rng_seed(&r, 4, 0);
	int full = 0, crowded = 0;
	for (int i = 0; i < 50000; i++) {
		uint32_t h = (uint32_t)rng_below(&r, HINTS), v = (uint32_t)rng_below(&r, VALUES);
		if (rng_below(&r, 100) < 60) {
			int expected = there[h][v]                     ? 0
			               : same[h] == DATAGRAM_SAME_HINT ? ERR_LIMIT
			               : used == ROOM                  ? ERR_LIMIT
			                                               : 0;
			crowded += same[h] == DATAGRAM_SAME_HINT;
			full += used == ROOM;
			assert_int_equal(datagram_table_add(t, h * 1000003ull, v), expected);
			if (expected == 0 && !there[h][v]) {
				there[h][v] = true;
				same[h]++;
				used++;
			}
		} else {
			datagram_table_remove(t, h * 1000003ull, v);
			same[h] -= there[h][v];
			used -= there[h][v];
			there[h][v] = false;
		}
		uint32_t look = (uint32_t)rng_below(&r, HINTS);
		int n = datagram_table_find(t, look * 1000003ull, found);
		assert_int_equal(n, same[look]);
		for (int k = 0; k < n; k++)
			assert_true(found[k] < VALUES && there[look][found[k]]);
		assert_int_equal(datagram_table_find(t, rng_u64(&r) | 1ull << 63, found), 0);
	}
	assert_true(full > 0 && crowded > 0);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_both_ways),
	        cmocka_unit_test(test_what_does_not_open),
	        cmocka_unit_test(test_ids_that_are_no_keys),
	        cmocka_unit_test(test_window),
	        cmocka_unit_test(test_table),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
