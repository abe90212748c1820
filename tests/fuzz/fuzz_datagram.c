/* SPDX-License-Identifier: MIT */
/* Datagrams: any bytes must not open; a genuine one opens once, and with any change not at all. The
 * input also tells in which order genuine ones arrive, and who sends under which hint: beside both
 * stands a plain account. */
#include "net/codec/datagram.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct datagram_link ab, ba;

static void link_up(void)
{
	static const uint8_t secret[32] = {1};
	struct peer_id id[2];
	uint8_t key[2][64], seed[32] = {0}, shared[32];
	if (sodium_init() < 0)
		abort();
	for (int i = 0; i < 2; i++) {
		seed[0] = (uint8_t)i;
		crypto_sign_seed_keypair(id[i].bytes, key[i], seed);
	}
	for (int i = 0; i < 2; i++) {
		if (datagram_shared(shared, key[i], &id[!i]))
			abort();
		datagram_init(i ? &ba : &ab, &(struct datagram_pair){.shared = shared,
		                                     .secret = secret,
		                                     .self = id[i],
		                                     .peer = id[!i],
		                                     .self_generation = 1,
		                                     .peer_generation = 1});
	}
}

static void genuine(const uint8_t *data, size_t size)
{
	static uint8_t packet[GOSSIP_DATAGRAM_BYTES], out[DATAGRAM_PAYLOAD_MAX];
	static uint64_t number;
	size_t len = size < DATAGRAM_PAYLOAD_MAX ? size : DATAGRAM_PAYLOAD_MAX, n;
	if (datagram_seal(&ab, &number, data, len, packet))
		abort();
	size_t full = len + DATAGRAM_OVERHEAD, at = size ? (data[0] * 5u) % full : 0;
	uint8_t flip = size > 1 && data[1] ? data[1] : 1;
	packet[at] ^= flip;
	if (datagram_open(&ba, packet, full, out, &n) == 0 || n != 0)
		abort();
	packet[at] ^= flip;
	if (datagram_open(&ba, packet, full - 1, out, &n) == 0)
		abort();
	if (datagram_open(&ba, packet, full, out, &n) || n != len || memcmp(out, data, len) != 0)
		abort();
	if (datagram_open(&ba, packet, full, out, &n) != ERR_BUSY)
		abort();
}

/* Two bytes a step: forward or back from the highest number. */
static void window(const uint8_t *data, size_t size)
{
	enum { ALL = 1 << 16 };
	static uint8_t taken[ALL];
	struct datagram_window w = {0};
	uint64_t top = 0;
	memset(taken, 0, sizeof taken);
	for (size_t i = 0; i + 1 < size; i += 2) {
		uint64_t by = (data[i] & 0x0fu) << 8 | data[i + 1];
		uint64_t n = data[i] & 0x80 ? top + by : top > by ? top - by : 0;
		if (n >= ALL)
			return;
		bool expected = n > 0 && !taken[n] && (n > top || top - n < DATAGRAM_WINDOW);
		if (datagram_window_take(&w, n) != expected)
			abort();
		taken[n] |= expected;
		top = n > top ? n : top;
	}
}

/* One byte a step: 8 hints, 8 values, add or remove. */
static void table(const uint8_t *data, size_t size)
{
	static uint64_t memory[512];
	uint8_t key[16] = {0};
	bool there[8][8] = {{false}};
	if (datagram_table_size(20) > sizeof memory)
		abort();
	memcpy(key, data, size < 16 ? size : 16);
	struct datagram_table *t = datagram_table_init(memory, 20, key);
	for (size_t i = 0; i < size; i++) {
		unsigned h = data[i] & 7, v = data[i] >> 3 & 7;
		if (data[i] & 0x80)
			there[h][v] |= datagram_table_add(t, h, v) == 0;
		else
			datagram_table_remove(t, h, v);
		if (!(data[i] & 0x80))
			there[h][v] = false;
		for (unsigned x = 0; x < 8; x++) {
			uint32_t found[DATAGRAM_SAME_HINT];
			int n = datagram_table_find(t, x, found), expected = 0;
			for (unsigned y = 0; y < 8; y++)
				expected += there[x][y];
			if (n != expected)
				abort();
			while (n-- > 0)
				if (!there[x][found[n]])
					abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t out[DATAGRAM_PAYLOAD_MAX];
	static bool ready;
	size_t n;
	uint64_t hint;
	if (!ready)
		link_up();
	ready = true;
	if (datagram_open(&ba, data, size, out, &n) == 0)
		abort();
	if (datagram_peek(data, size, &hint) == 0 && size > GOSSIP_DATAGRAM_BYTES)
		abort();
	genuine(data, size);
	window(data, size);
	table(data, size < 256 ? size : 256);
	return 0;
}
