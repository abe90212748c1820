/* SPDX-License-Identifier: MIT */
/* The ciphers of libsodium: ChaCha20-Poly1305 everywhere, AES-256-GCM where the processor has AES
 * instructions (libsodium has no other kind, since one by tables leaks through the cache), AEGIS
 * where the library is new enough. All of them check the tag, in constant time, before they write
 * anything. The key is kept in struct aead_key itself. */
#include "net/crypto/aead_providers.h"

#include <string.h>

_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == AEAD_KEY_BYTES, "a key is 32 bytes");
_Static_assert(crypto_aead_aes256gcm_KEYBYTES == AEAD_KEY_BYTES, "a key is 32 bytes");
_Static_assert(sizeof(crypto_aead_aes256gcm_state) <= AEAD_STATE_BYTES, "its key must fit");
_Static_assert(
        _Alignof(crypto_aead_aes256gcm_state) <= _Alignof(struct aead_key), "and be aligned");

static int init_plain(struct aead_key *k, const uint8_t key[AEAD_KEY_BYTES])
{
	memcpy(k->state.bytes, key, AEAD_KEY_BYTES);
	return 0;
}

static int chacha_seal(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_chacha20poly1305_ietf_encrypt(
	               out, NULL, in, len, ad, ad_len, NULL, nonce, k->state.bytes)
	               ? ERR_SYSTEM
	               : 0;
}

static int chacha_open(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_chacha20poly1305_ietf_decrypt(
	               out, NULL, NULL, in, len, ad, ad_len, nonce, k->state.bytes)
	               ? ERR_MISMATCH
	               : 0;
}

const struct aead aead__sodium_chacha20_poly1305 = {
        .id = AEAD_CHACHA20_POLY1305,
        .provider = "libsodium",
        .nonce_bytes = crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
        .tag_bytes = crypto_aead_chacha20poly1305_ietf_ABYTES,
        .init = init_plain,
        .seal = chacha_seal,
        .open = chacha_open,
};

static int gcm_init(struct aead_key *k, const uint8_t key[AEAD_KEY_BYTES])
{
	if (!crypto_aead_aes256gcm_is_available())
		return ERR_UNSUPPORTED;
	return crypto_aead_aes256gcm_beforenm((void *)k->state.bytes, key) ? ERR_SYSTEM : 0;
}

static int gcm_seal(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_aes256gcm_encrypt_afternm(
	               out, NULL, in, len, ad, ad_len, NULL, nonce, (void *)k->state.bytes)
	               ? ERR_SYSTEM
	               : 0;
}

static int gcm_open(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_aes256gcm_decrypt_afternm(
	               out, NULL, NULL, in, len, ad, ad_len, nonce, (void *)k->state.bytes)
	               ? ERR_MISMATCH
	               : 0;
}

const struct aead aead__sodium_aes_256_gcm = {
        .id = AEAD_AES_256_GCM,
        .provider = "libsodium",
        .nonce_bytes = crypto_aead_aes256gcm_NPUBBYTES,
        .tag_bytes = crypto_aead_aes256gcm_ABYTES,
        .init = gcm_init,
        .seal = gcm_seal,
        .open = gcm_open,
};

#ifdef AEAD_HAVE_AEGIS
_Static_assert(crypto_aead_aegis128l_KEYBYTES <= AEAD_KEY_BYTES, "a part of the key is enough");
_Static_assert(crypto_aead_aegis128l_ABYTES <= AEAD_TAG_MAX, "its tag must fit");
_Static_assert(crypto_aead_aegis128l_NPUBBYTES <= AEAD_NONCE_MAX, "its nonce must fit");

static int aegis_seal(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_aegis128l_encrypt(
	               out, NULL, in, len, ad, ad_len, NULL, nonce, k->state.bytes)
	               ? ERR_SYSTEM
	               : 0;
}

static int aegis_open(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	return crypto_aead_aegis128l_decrypt(
	               out, NULL, NULL, in, len, ad, ad_len, nonce, k->state.bytes)
	               ? ERR_MISMATCH
	               : 0;
}

const struct aead aead__sodium_aegis_128l = {
        .id = AEAD_AEGIS_128L,
        .provider = "libsodium",
        .nonce_bytes = crypto_aead_aegis128l_NPUBBYTES,
        .tag_bytes = crypto_aead_aegis128l_ABYTES,
        .init = init_plain,
        .seal = aegis_seal,
        .open = aegis_open,
};
#endif
