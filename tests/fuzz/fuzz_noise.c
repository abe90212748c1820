/* SPDX-License-Identifier: MIT */
/* Handshake messages of a peer who may have the flock's secret and says anything.
 *
 * The first byte says how far an honest handshake gets before the fuzzer's bytes take the place of
 * a message, and on which side; bit 4 picks XX without a psk, where the first message has no tag
 * that a fuzzer would have to guess, bit 5 that its bytes are xored into the honest message
 * instead. Whatever comes, a handshake that fails is poisoned, and only the honest message ends
 * well where there is a tag. */
#include "net/crypto/noise.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t message[NOISE_MESSAGE_MAX + 1], payload[NOISE_MESSAGE_MAX];

static void start(struct noise side[2], bool psk)
{
	static const uint8_t psks[1][32] = {{42}};
	for (int i = 0; i < 2; i++) {
		uint8_t secret[32], public[32], ephemeral[32];
		struct err e;
		memset(secret, 1 + i, sizeof secret);
		memset(ephemeral, 3 + i, sizeof ephemeral);
		crypto_scalarmult_curve25519_base(public, secret);
		const struct noise_config c = {
		        .protocol = psk ? NOISE_PROTOCOL : "Noise_XX_25519_ChaChaPoly_SHA256",
		        .initiator = i == 0,
		        .static_secret = secret,
		        .static_public = public,
		        .psks = psks,
		        .n_psks = psk};
		int rc = noise_init(&side[i], &c, &e);
		assert(rc == 0);
		noise__set_ephemeral(&side[i], ephemeral);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct noise side[2];
	size_t len, got;
	if (size < 1 || size > sizeof message)
		return 0;
	int honest = data[0] % 4, rc = 0;
	bool psk = !(data[0] & 16), changed = true;
	if (honest == 3)
		honest = 0;
	start(side, psk);
	data++, size--;
	for (int i = 0; i <= honest; i++) {
		struct noise *reader = &side[1 - i % 2];
		rc = noise_write(&side[i % 2], "hello", 5, message, NOISE_MESSAGE_MAX, &len);
		assert(rc == 0);
		if (i == honest && data[-1] & 32) {
			changed = false;
			for (size_t at = 0; at < size && at < len; at++) {
				message[at] ^= data[at];
				changed = changed || data[at];
			}
		} else if (i == honest) {
			changed = size != len || memcmp(message, data, len) != 0;
			memcpy(message, data, size);
			len = size;
		}
		rc = noise_read(reader, message, len, payload, sizeof payload, &got);
		assert(i < honest ? rc == 0 : rc == 0 || noise_my_turn(reader) == false);
	}
	struct noise *reader = &side[1 - honest % 2];
	if (psk || honest > 0)
		assert((rc == 0) == !changed);
	if (rc == 0 && noise_my_turn(reader))
		rc = noise_write(reader, "x", 1, message, NOISE_MESSAGE_MAX, &len);
	if (rc) {
		assert(reader->failed && !noise_done(reader) && !noise_remote_static(reader));
		assert(sodium_is_zero(reader->s, sizeof reader->s));
	}
	noise_close(&side[0]);
	noise_close(&side[1]);
	return 0;
}
