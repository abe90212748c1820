/* SPDX-License-Identifier: MIT */
/* Noise, from a table.
 *
 * A pattern is a short list of tokens for each message (noise_pattern.c). Writing and reading walk
 * the same list, so the two sides cannot differ but in the direction. Everything said goes into a
 * running hash h, everything secret into a chaining key ck; each mix gives the key of the next
 * seal. Names below are the specification's.
 *
 * The happy path: noise_init on both sides, then noise_write and noise_read in turn until
 * noise_done, then noise_split. What can fail is the peer: a message too short or too long, a tag
 * that does not fit, a key of small order. Then everything is wiped and the object refuses all
 * further work, so that no caller can go on with half a handshake by mistake.
 *
 * Tags are compared, and X25519 computed, in constant time by libsodium; the branches here depend
 * on the pattern, on lengths and on failures, all of which the other side may know. */
#include "net/crypto/noise.h"

#include "net/crypto/noise_pattern.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

_Static_assert(crypto_scalarmult_curve25519_BYTES == NOISE_KEY_BYTES, "X25519 keys");
_Static_assert(crypto_hash_sha256_BYTES == NOISE_HASH_BYTES, "SHA256");
_Static_assert(crypto_auth_hmacsha256_BYTES == NOISE_HASH_BYTES, "HMAC-SHA256");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == NOISE_TAG_BYTES, "ChaChaPoly");

/* ---- the symmetric state */

static void hmac(const uint8_t key[NOISE_HASH_BYTES], const void *a, size_t a_len, const void *b,
        size_t b_len, uint8_t out[NOISE_HASH_BYTES])
{
	crypto_auth_hmacsha256_state st;
	crypto_auth_hmacsha256_init(&st, key, NOISE_HASH_BYTES);
	crypto_auth_hmacsha256_update(&st, a, a_len);
	crypto_auth_hmacsha256_update(&st, b, b_len);
	crypto_auth_hmacsha256_final(&st, out);
	sodium_memzero(&st, sizeof st);
}

/* HKDF of ck with count outputs; out[0] may be ck. */
static void hkdf(const uint8_t ck[NOISE_HASH_BYTES], const void *input, size_t len, int count,
        uint8_t *const out[])
{
	uint8_t temp[NOISE_HASH_BYTES], last[NOISE_HASH_BYTES] = {0};
	hmac(ck, input, len, "", 0, temp);
	for (uint8_t i = 1; i <= count; i++) {
		hmac(temp, last, i == 1 ? 0 : sizeof last, &i, 1, last);
		memcpy(out[i - 1], last, sizeof last);
	}
	sodium_memzero(temp, sizeof temp);
	sodium_memzero(last, sizeof last);
}

static void mix_hash(struct noise *n, const void *data, size_t len)
{
	crypto_hash_sha256_state st;
	crypto_hash_sha256_init(&st);
	crypto_hash_sha256_update(&st, n->h, sizeof n->h);
	crypto_hash_sha256_update(&st, data, len);
	crypto_hash_sha256_final(&st, n->h);
	sodium_memzero(&st, sizeof st);
}

static void mix_key(struct noise *n, const uint8_t input[NOISE_KEY_BYTES])
{
	hkdf(n->ck, input, NOISE_KEY_BYTES, 2, (uint8_t *const[]){n->ck, n->k});
	n->nonce = 0;
	n->has_key = true;
}

static void mix_key_and_hash(struct noise *n, const uint8_t psk[NOISE_KEY_BYTES])
{
	uint8_t temp[NOISE_HASH_BYTES];
	hkdf(n->ck, psk, NOISE_KEY_BYTES, 3, (uint8_t *const[]){n->ck, temp, n->k});
	mix_hash(n, temp, sizeof temp);
	n->nonce = 0;
	n->has_key = true;
	sodium_memzero(temp, sizeof temp);
}

static void nonce_bytes(uint64_t nonce, uint8_t out[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
	memset(out, 0, 4);
	for (int i = 0; i < 8; i++)
		out[4 + i] = (uint8_t)(nonce >> (8 * i));
}

/* Adds a tag once there is a key; returns the length of out. */
static size_t encrypt_and_hash(struct noise *n, const void *in, size_t len, uint8_t *out)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	if (!n->has_key) {
		memmove(out, in, len);
		mix_hash(n, out, len);
		return len;
	}
	nonce_bytes(n->nonce++, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt(
	        out, NULL, in, len, n->h, sizeof n->h, NULL, nonce, n->k);
	mix_hash(n, out, len + NOISE_TAG_BYTES);
	return len + NOISE_TAG_BYTES;
}

/* len has the tag in it, if there is one. */
static int decrypt_and_hash(struct noise *n, const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	if (n->has_key) {
		nonce_bytes(n->nonce++, nonce);
		if (crypto_aead_chacha20poly1305_ietf_decrypt(
		            out, NULL, NULL, in, len, n->h, sizeof n->h, nonce, n->k))
			return ERR_MISMATCH;
	} else if (len) {
		memcpy(out, in, len);
	}
	mix_hash(n, in, len);
	return 0;
}

/* ---- the handshake state */

/* libsodium refuses the points of small order, whose result is all zero: a peer who sends one
 * would make us agree on a secret that everybody knows. */
static int mix_dh(struct noise *n, const uint8_t *secret, const uint8_t *point)
{
	uint8_t shared[NOISE_KEY_BYTES];
	int rc = crypto_scalarmult_curve25519(shared, secret, point) ? ERR_MISMATCH : 0;
	n->dh_count++;
	if (rc == 0)
		mix_key(n, shared);
	sodium_memzero(shared, sizeof shared);
	return rc;
}

/* The tokens that are the same in both directions. */
static int mix_token(struct noise *n, enum noise_token t)
{
	switch (t) {
	case TOKEN_EE:
		return mix_dh(n, n->e, n->re);
	case TOKEN_ES:
		return n->initiator ? mix_dh(n, n->e, n->rs) : mix_dh(n, n->s, n->re);
	case TOKEN_SE:
		return n->initiator ? mix_dh(n, n->s, n->re) : mix_dh(n, n->e, n->rs);
	case TOKEN_SS:
		return mix_dh(n, n->s, n->rs);
	default:
		assert(t == TOKEN_PSK);
		mix_key_and_hash(n, n->psks[n->psks_used++]);
		return 0;
	}
}

static void make_ephemeral(struct noise *n)
{
	if (!n->has_e) /* else a test has set it */
		randombytes_buf(n->e, sizeof n->e);
	crypto_scalarmult_curve25519_base(n->e_public, n->e);
	n->has_e = true;
}

static size_t message_overhead(const struct noise *n)
{
	bool key = n->has_key;
	size_t bytes = 0;
	for (const uint8_t *t = n->tokens[n->next]; *t != TOKEN_END; t++) {
		if (*t == TOKEN_E)
			bytes += NOISE_KEY_BYTES;
		if (*t == TOKEN_S)
			bytes += NOISE_KEY_BYTES + (key ? NOISE_TAG_BYTES : 0u);
		/* e gives a key only where the pattern has a psk, all but s give one anyway. */
		key = key || (*t == TOKEN_E ? n->n_psks > 0 : *t != TOKEN_S);
	}
	return bytes + (key ? NOISE_TAG_BYTES : 0u);
}

/* What the handshake has cost stays known. */
static int fail(struct noise *n, int rc)
{
	uint8_t dh_count = n->dh_count;
	sodium_memzero(n, sizeof *n);
	n->dh_count = dh_count;
	n->failed = true;
	return rc;
}

int noise_write(struct noise *n, const void *payload, size_t len, uint8_t *out, size_t out_max,
        size_t *written)
{
	uint8_t *p = out;
	int rc = 0;
	*written = 0;
	if (!noise_my_turn(n))
		return fail(n, ERR_INVALID);
	size_t overhead = message_overhead(n);
	if (out_max > NOISE_MESSAGE_MAX)
		out_max = NOISE_MESSAGE_MAX;
	if (out_max < overhead || len > out_max - overhead)
		return fail(n, ERR_LIMIT);
	for (const uint8_t *t = n->tokens[n->next]; *t != TOKEN_END && rc == 0; t++) {
		if (*t == TOKEN_E) {
			make_ephemeral(n);
			memcpy(p, n->e_public, NOISE_KEY_BYTES);
			mix_hash(n, p, NOISE_KEY_BYTES);
			if (n->n_psks)
				mix_key(n, n->e_public);
			p += NOISE_KEY_BYTES;
		} else if (*t == TOKEN_S) {
			p += encrypt_and_hash(n, n->s_public, NOISE_KEY_BYTES, p);
		} else {
			rc = mix_token(n, (enum noise_token) * t);
		}
	}
	if (rc)
		return fail(n, rc);
	p += encrypt_and_hash(n, len ? payload : "", len, p);
	assert((size_t)(p - out) == overhead + len);
	*written = (size_t)(p - out);
	n->next++;
	return 0;
}

int noise_read(struct noise *n, const uint8_t *message, size_t len, void *payload,
        size_t payload_max, size_t *payload_len)
{
	const uint8_t *p = message;
	int rc = 0;
	*payload_len = 0;
	if (n->failed || noise_done(n) || noise_my_turn(n))
		return fail(n, ERR_INVALID);
	size_t overhead = message_overhead(n);
	if (len < overhead)
		return fail(n, ERR_FORMAT);
	if (len > NOISE_MESSAGE_MAX || len - overhead > payload_max)
		return fail(n, ERR_LIMIT);
	for (const uint8_t *t = n->tokens[n->next]; *t != TOKEN_END && rc == 0; t++) {
		if (*t == TOKEN_E) {
			memcpy(n->re, p, NOISE_KEY_BYTES);
			mix_hash(n, n->re, NOISE_KEY_BYTES);
			if (n->n_psks)
				mix_key(n, n->re);
			p += NOISE_KEY_BYTES;
		} else if (*t == TOKEN_S) {
			size_t sealed = NOISE_KEY_BYTES + (n->has_key ? NOISE_TAG_BYTES : 0u);
			rc = decrypt_and_hash(n, p, sealed, n->rs);
			n->has_rs = true;
			p += sealed;
		} else {
			rc = mix_token(n, (enum noise_token) * t);
		}
	}
	if (rc == 0)
		rc = decrypt_and_hash(n, p, len - (size_t)(p - message), payload);
	if (rc)
		return fail(n, rc);
	*payload_len = len - overhead;
	n->next++;
	return 0;
}

bool noise_done(const struct noise *n)
{
	return !n->failed && n->n_messages > 0 && n->next == n->n_messages;
}

bool noise_my_turn(const struct noise *n)
{
	return !n->failed && n->next < n->n_messages && (n->next % 2 == 0) == n->initiator;
}

const uint8_t *noise_remote_static(const struct noise *n)
{
	return n->has_rs ? n->rs : NULL;
}

int noise_split(struct noise *n, uint8_t send[NOISE_KEY_BYTES], uint8_t receive[NOISE_KEY_BYTES],
        uint8_t hash[NOISE_HASH_BYTES])
{
	if (!noise_done(n))
		return fail(n, ERR_INVALID);
	uint8_t *first = n->initiator ? send : receive, *second = n->initiator ? receive : send;
	hkdf(n->ck, "", 0, 2, (uint8_t *const[]){first, second});
	memcpy(hash, n->h, NOISE_HASH_BYTES);
	(void)fail(n, 0); /* the keys are handed out once */
	return 0;
}

int noise_init(struct noise *n, const struct noise_config *c, struct err *e)
{
	struct noise_pattern p;
	memset(n, 0, sizeof *n);
	n->failed = true;
	int rc = sodium_init() < 0 ? err_set(e, ERR_SYSTEM, "libsodium does not start") : 0;
	if (rc == 0)
		rc = noise__pattern(&p, c->protocol, e);
	if (rc == 0)
		rc = noise__check(&p, c, e);
	if (rc)
		return rc;
	n->failed = false;
	n->initiator = c->initiator;
	n->n_messages = p.n_messages;
	n->n_psks = p.n_psks;
	memcpy(n->tokens, p.tokens, sizeof n->tokens);
	if (c->static_secret) {
		memcpy(n->s, c->static_secret, NOISE_KEY_BYTES);
		memcpy(n->s_public, c->static_public, NOISE_KEY_BYTES);
	}
	if (c->remote_static)
		memcpy(n->rs, c->remote_static, NOISE_KEY_BYTES);
	n->has_rs = c->remote_static != NULL;
	for (int i = 0; i < c->n_psks; i++)
		memcpy(n->psks[i], c->psks[i], NOISE_KEY_BYTES);
	size_t len = strlen(c->protocol);
	if (len <= NOISE_HASH_BYTES)
		memcpy(n->h, c->protocol, len);
	else
		crypto_hash_sha256(n->h, (const uint8_t *)c->protocol, len);
	memcpy(n->ck, n->h, sizeof n->ck);
	mix_hash(n, c->prologue_len ? c->prologue : "", c->prologue_len);
	if (p.knows_responder)
		mix_hash(n, n->initiator ? n->rs : n->s_public, NOISE_KEY_BYTES);
	return 0;
}

void noise_close(struct noise *n)
{
	(void)fail(n, 0);
}

bool noise_meets(const struct noise *initiator, const struct noise *responder)
{
	return !sodium_is_zero(responder->re, NOISE_KEY_BYTES) &&
	       memcmp(initiator->e_public, responder->re, NOISE_KEY_BYTES) == 0;
}

void noise__set_ephemeral(struct noise *n, const uint8_t secret[NOISE_KEY_BYTES])
{
	memcpy(n->e, secret, NOISE_KEY_BYTES);
	n->has_e = true;
}
