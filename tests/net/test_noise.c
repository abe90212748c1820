/* SPDX-License-Identifier: MIT */
/* The handshake against published vectors, and against everything a peer may do wrong. */
#include "net/crypto/noise.h"
#include "tests/golden/noise.h"
#include "tests/support.h"

#include "net/crypto/aead.h"

#include <sodium.h>

#define MESSAGE 512

static size_t unhex(uint8_t *out, size_t max, const char *hex)
{
	size_t n;
	assert_int_equal(sodium_hex2bin(out, max, hex, strlen(hex), NULL, &n, NULL), 0);
	return n;
}

/* ---- published vectors */

struct vector_keys {
	uint8_t prologue[64], s[32], s_public[32], rs[32], e[32], psks[2][32];
};

static void vector_start(struct noise *n, const struct noise_vector *v, bool initiator)
{
	struct vector_keys k;
	struct err e = {0};
	const char *s = initiator ? v->init_static : v->resp_static;
	const char *const *psks = initiator ? v->init_psks : v->resp_psks;
	struct noise_config c = {.protocol = v->protocol,
	        .initiator = initiator,
	        .prologue = k.prologue,
	        .psks = (const uint8_t(*)[32])k.psks};
	c.prologue_len = unhex(
	        k.prologue, sizeof k.prologue, initiator ? v->init_prologue : v->resp_prologue);
	if (s) {
		unhex(k.s, 32, s);
		crypto_scalarmult_curve25519_base(k.s_public, k.s);
		c.static_secret = k.s;
		c.static_public = k.s_public;
	}
	if (initiator && v->init_remote_static) {
		unhex(k.rs, 32, v->init_remote_static);
		c.remote_static = k.rs;
	}
	for (; c.n_psks < 2 && psks[c.n_psks]; c.n_psks++)
		unhex(k.psks[c.n_psks], 32, psks[c.n_psks]);
	assert_int_equal(noise_init(n, &c, &e), 0);
	unhex(k.e, 32, initiator ? v->init_ephemeral : v->resp_ephemeral);
	noise__set_ephemeral(n, k.e);
}

static void vector_session(const struct noise_vector *v, struct noise side[2], int at)
{
	uint8_t keys[2][2][32], hash[2][32], want[MESSAGE], payload[MESSAGE], out[MESSAGE];
	uint64_t counters[2] = {0};
	for (int i = 0; i < 2; i++)
		assert_int_equal(noise_split(&side[i], keys[i][0], keys[i][1], hash[i]), 0);
	assert_memory_equal(hash[0], hash[1], 32);
	assert_memory_equal(keys[0][0], keys[1][1], 32);
	assert_memory_equal(keys[0][1], keys[1][0], 32);
	if (v->handshake_hash) {
		assert_int_equal(unhex(want, sizeof want, v->handshake_hash), 32);
		assert_memory_equal(hash[0], want, 32);
	}
	for (; v->messages[at].payload; at++) {
		struct aead_key k;
		size_t len = unhex(payload, sizeof payload, v->messages[at].payload);
		size_t sealed = unhex(want, sizeof want, v->messages[at].ciphertext);
		assert_int_equal(aead_init(&k, aead_list[0], keys[at % 2][0]), 0);
		assert_int_equal(aead_seal(&k, counters[at % 2]++, NULL, 0, payload, len, out), 0);
		assert_int_equal(sealed, len + aead_tag(&k));
		assert_memory_equal(out, want, sealed);
		aead_close(&k);
	}
}

static void test_vectors(void **state)
{
	(void)state;
	const size_t n = sizeof noise_vectors / sizeof *noise_vectors;
	assert_int_equal(n, 6);
	for (size_t i = 0; i < n; i++) {
		const struct noise_vector *v = &noise_vectors[i];
		struct noise side[2];
		int at = 0;
		vector_start(&side[0], v, true);
		vector_start(&side[1], v, false);
		for (; !noise_done(&side[0]); at++) {
			uint8_t payload[MESSAGE], want[MESSAGE], out[MESSAGE];
			struct noise *writer = &side[at % 2], *reader = &side[1 - at % 2];
			size_t len = unhex(payload, sizeof payload, v->messages[at].payload), got;
			size_t bytes = unhex(want, sizeof want, v->messages[at].ciphertext);
			assert_true(noise_my_turn(writer));
			assert_false(noise_my_turn(reader));
			assert_int_equal(
			        noise_write(writer, payload, len, out, sizeof out, &got), 0);
			assert_int_equal(got, bytes);
			assert_memory_equal(out, want, bytes);
			assert_int_equal(noise_read(reader, want, bytes, out, sizeof out, &got), 0);
			assert_int_equal(got, len);
			assert_memory_equal(out, payload, len);
		}
		assert_true(noise_done(&side[1]));
		vector_session(v, side, at);
	}
}

/* ---- our own protocol */

struct pair {
	uint8_t secret[2][32], public[2][32];
	uint8_t psks[2][1][32];
	const char *prologue[2];
	struct noise side[2]; /* dialler, listener */
};

static void pair_start(struct pair *p, const char *protocol)
{
	struct err e = {0};
	int n_psks = strstr(protocol, "psk") ? 1 : 0;
	for (int i = 0; i < 2; i++) {
		struct noise_config c = {.protocol = protocol,
		        .initiator = i == 0,
		        .prologue = p->prologue[i],
		        .prologue_len = strlen(p->prologue[i]),
		        .static_secret = p->secret[i],
		        .static_public = p->public[i],
		        .psks = (const uint8_t(*)[32])p->psks[i],
		        .n_psks = n_psks};
		assert_int_equal(noise_init(&p->side[i], &c, &e), 0);
	}
}

static void pair_init(struct pair *p)
{
	assert_true(sodium_init() >= 0);
	for (int i = 0; i < 2; i++) {
		memset(p->secret[i], 17 + i, 32);
		crypto_scalarmult_curve25519_base(p->public[i], p -> secret[i]);
		memset(p->psks[i], 99, 32);
		p->prologue[i] = "dunlin";
	}
	pair_start(p, NOISE_PROTOCOL);
}

/* The nth message, from whoever's turn it is; returns its length. */
static size_t pair_write(struct pair *p, int n, uint8_t out[MESSAGE])
{
	size_t len;
	assert_int_equal(noise_write(&p->side[n % 2], "payload", 7, out, MESSAGE, &len), 0);
	return len;
}

static int pair_read(struct pair *p, int n, const uint8_t *message, size_t len)
{
	uint8_t payload[MESSAGE];
	size_t got;
	memset(payload, 0xee, sizeof payload);
	int rc = noise_read(&p->side[1 - n % 2], message, len, payload, sizeof payload, &got);
	if (rc == 0) {
		assert_int_equal(got, 7);
		assert_memory_equal(payload, "payload", 7);
	} else {
		assert_int_equal(got, 0);
		assert_null(memmem(payload, sizeof payload, "payload", 7));
	}
	return rc;
}

static void assert_poisoned(const struct noise *given)
{
	struct noise n = *given, clean;
	uint8_t out[MESSAGE], key[32] = {0};
	size_t len;
	memset(&clean, 0, sizeof clean);
	clean.failed = true;
	clean.dh_count = n.dh_count;
	assert_memory_equal(&n, &clean, sizeof n);
	assert_false(noise_done(&n));
	assert_false(noise_my_turn(&n));
	assert_null(noise_remote_static(&n));
	assert_int_equal(noise_write(&n, "", 0, out, sizeof out, &len), ERR_INVALID);
	assert_int_equal(noise_read(&n, out, 200, out, sizeof out, &len), ERR_INVALID);
	assert_int_equal(noise_split(&n, key, key, key), ERR_INVALID);
	assert_true(sodium_is_zero(key, sizeof key));
}

static void test_xxpsk0(void **state)
{
	(void)state;
	const size_t overhead[] = {NOISE_XXPSK0_1, NOISE_XXPSK0_2, NOISE_XXPSK0_3};
	struct pair p;
	uint8_t message[MESSAGE], first[MESSAGE], keys[2][2][32], hash[2][32];
	pair_init(&p);
	for (int n = 0; n < 3; n++) {
		size_t len = pair_write(&p, n, message);
		assert_int_equal(len, overhead[n] + 7);
		if (n == 0)
			memcpy(first, message, len);
		assert_int_equal(pair_read(&p, n, message, len), 0);
		/* Who knows the secret is heard before any work that costs. */
		assert_int_equal(p.side[1].dh_count, n == 0 ? 0 : n == 1 ? 2 : 3);
	}
	assert_memory_equal(noise_remote_static(&p.side[0]), p.public[1], 32);
	assert_memory_equal(noise_remote_static(&p.side[1]), p.public[0], 32);
	for (int i = 0; i < 2; i++) {
		assert_true(noise_done(&p.side[i]));
		assert_int_equal(noise_split(&p.side[i], keys[i][0], keys[i][1], hash[i]), 0);
		assert_poisoned(&p.side[i]);
	}
	assert_memory_equal(keys[0][0], keys[1][1], 32);
	assert_memory_equal(keys[0][1], keys[1][0], 32);
	assert_memory_not_equal(keys[0][0], keys[0][1], 32);
	assert_memory_equal(hash[0], hash[1], 32);

	/* Another handshake has other keys, although nothing was changed. */
	pair_start(&p, NOISE_PROTOCOL);
	pair_write(&p, 0, message);
	assert_memory_not_equal(message, first, 32);
}

static void test_strangers(void **state)
{
	(void)state;
	struct pair p;
	uint8_t message[MESSAGE];
	pair_init(&p);
	p.psks[0][0][31] ^= 1;
	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(pair_read(&p, 0, message, pair_write(&p, 0, message)), ERR_MISMATCH);
	assert_int_equal(p.side[1].dh_count, 0);
	assert_poisoned(&p.side[1]);

	p.psks[0][0][31] ^= 1;
	p.prologue[0] = "dunlim";
	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(pair_read(&p, 0, message, pair_write(&p, 0, message)), ERR_MISMATCH);
	assert_int_equal(p.side[1].dh_count, 0);
	assert_poisoned(&p.side[1]);
}

/* Brings both sides to where the nth message is written but not read. */
static size_t advance(struct pair *p, int n, uint8_t message[MESSAGE])
{
	pair_start(p, NOISE_PROTOCOL);
	for (int i = 0; i < n; i++)
		assert_int_equal(pair_read(p, i, message, pair_write(p, i, message)), 0);
	return pair_write(p, n, message);
}

static void test_changed_bytes(void **state)
{
	(void)state;
	struct pair p;
	uint8_t message[MESSAGE];
	pair_init(&p);
	for (int n = 0; n < 3; n++) {
		size_t len = advance(&p, n, message);
		struct noise *reader = &p.side[1 - n % 2], before = *reader;
		for (size_t at = 0; at < len; at++) {
			uint8_t flip = (uint8_t)(1u << (at % 8));
			message[at] ^= flip;
			assert_int_equal(pair_read(&p, n, message, len), ERR_MISMATCH);
			assert_poisoned(reader);
			message[at] ^= flip;
			*reader = before;
		}
		for (size_t cut = 0; cut < len; cut++) {
			assert_int_equal(pair_read(&p, n, message, cut),
			        cut < len - 7 ? ERR_FORMAT : ERR_MISMATCH);
			assert_poisoned(reader);
			*reader = before;
		}
		assert_int_equal(pair_read(&p, n, message, len + 1), ERR_MISMATCH);
		*reader = before;
		assert_int_equal(pair_read(&p, n, message, len), 0);
	}
}

static void test_small_order(void **state)
{
	(void)state;
	static const char *const points[] = {
	        "0000000000000000000000000000000000000000000000000000000000000000",
	        "0100000000000000000000000000000000000000000000000000000000000000",
	        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	};
	struct pair p;
	uint8_t message[MESSAGE], out[MESSAGE];
	size_t len;
	pair_init(&p);
	for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
		pair_start(&p, "Noise_XX_25519_ChaChaPoly_SHA256"); /* has no tag to forge */
		unhex(message, 32, points[i]);
		assert_int_equal(noise_read(&p.side[1], message, 32, out, sizeof out, &len), 0);
		assert_int_equal(
		        noise_write(&p.side[1], "", 0, out, sizeof out, &len), ERR_MISMATCH);
		assert_int_equal(len, 0);
		assert_poisoned(&p.side[1]);
	}
}

static void test_turns_and_limits(void **state)
{
	(void)state;
	static uint8_t big[NOISE_MESSAGE_MAX + 64];
	struct pair p;
	uint8_t message[MESSAGE];
	size_t len;
	pair_init(&p);
	assert_int_equal(noise_write(&p.side[1], "", 0, message, MESSAGE, &len), ERR_INVALID);
	assert_poisoned(&p.side[1]);
	assert_int_equal(noise_read(&p.side[0], message, 100, message, MESSAGE, &len), ERR_INVALID);
	assert_poisoned(&p.side[0]);

	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(noise_split(&p.side[0], big, big, big), ERR_INVALID);
	assert_poisoned(&p.side[0]);

	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(noise_write(&p.side[0], "x", 1, message, NOISE_XXPSK0_1, &len), ERR_LIMIT);
	assert_poisoned(&p.side[0]);

	/* The largest message goes through, one byte more does not. */
	size_t most = NOISE_MESSAGE_MAX - NOISE_XXPSK0_1;
	static uint8_t payload[NOISE_MESSAGE_MAX], got[NOISE_MESSAGE_MAX];
	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(noise_write(&p.side[0], payload, most, big, sizeof big, &len), 0);
	assert_int_equal(len, NOISE_MESSAGE_MAX);
	struct noise before = p.side[1];
	assert_int_equal(noise_read(&p.side[1], big, len, got, most - 1, &len), ERR_LIMIT);
	p.side[1] = before;
	assert_int_equal(noise_read(&p.side[1], big, NOISE_MESSAGE_MAX + 1, got, sizeof got, &len),
	        ERR_LIMIT);
	p.side[1] = before;
	assert_int_equal(noise_read(&p.side[1], big, NOISE_MESSAGE_MAX, got, most, &len), 0);
	assert_int_equal(len, most);
	pair_start(&p, NOISE_PROTOCOL);
	assert_int_equal(
	        noise_write(&p.side[0], payload, most + 1, big, sizeof big, &len), ERR_LIMIT);

	noise_close(&p.side[1]);
	assert_poisoned(&p.side[1]);
	struct noise zero;
	memset(&zero, 0, sizeof zero);
	assert_false(noise_done(&zero));
}

static void test_refused_configurations(void **state)
{
	(void)state;
	static const char *const protocols[] = {"", "Noise_", "Noise__25519_ChaChaPoly_SHA256",
	        "Noise_XX_25519_ChaChaPoly_SHA512", "Noise_XK_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk4_25519_ChaChaPoly_SHA256", "Noise_NNpsk3_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk_25519_ChaChaPoly_SHA256", "Noise_XXpsk0+_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk0psk1_25519_ChaChaPoly_SHA256", "Noise_XXp_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk1+psk0_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk0+psk0_25519_ChaChaPoly_SHA256", "noise_XX_25519_ChaChaPoly_SHA256",
	        "Noise_XXpsk0_25519_ChaChaPoly_SHA256 ",
	        "Noise_XXfallback_25519_ChaChaPoly_SHA256"};
	static const uint8_t key[32] = {1}, psks[4][32];
	const struct noise_config good = {.protocol = NOISE_PROTOCOL,
	        .static_secret = key,
	        .static_public = key,
	        .psks = psks,
	        .n_psks = 1};
	struct noise n;
	struct err e;
	assert_int_equal(noise_init(&n, &good, &e), 0);
	for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
		for (int n_psks = 0; n_psks <= 2; n_psks++) {
			struct noise_config c = good;
			c.protocol = protocols[i];
			c.n_psks = n_psks;
			assert_int_equal(noise_init(&n, &c, &e), ERR_UNSUPPORTED);
			assert_poisoned(&n);
		}
	struct noise_config bad[] = {good, good, good, good, good, good, good};
	bad[0].static_secret = NULL;
	bad[1].static_public = NULL;
	bad[2].n_psks = 0;
	bad[3].n_psks = 2;
	bad[4].remote_static = key;
	bad[5].protocol = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
	bad[6].protocol = "Noise_IKpsk2_25519_ChaChaPoly_SHA256";
	bad[6].initiator = true;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(noise_init(&n, &bad[i], &e), ERR_INVALID);
		assert_non_null(strstr(e.msg, "wants"));
		assert_poisoned(&n);
	}
	struct noise_config c = good;
	c.prologue = key;
	c.prologue_len = NOISE_PROLOGUE_MAX + 1;
	assert_int_equal(noise_init(&n, &c, &e), ERR_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_vectors),
	        cmocka_unit_test(test_xxpsk0),
	        cmocka_unit_test(test_strangers),
	        cmocka_unit_test(test_changed_bytes),
	        cmocka_unit_test(test_small_order),
	        cmocka_unit_test(test_turns_and_limits),
	        cmocka_unit_test(test_refused_configurations),
	};
	return cmocka_run_group_tests_name("noise", tests, NULL, NULL);
}
