/* SPDX-License-Identifier: MIT */
/* The ciphers of OpenSSL's libcrypto, where configure found it: AES-256-GCM about twice as fast as
 * libsodium's, ChaCha20-Poly1305 two to four times.
 *
 * A key is an EVP_CIPHER_CTX made once, with the cipher fetched and the key expanded; sealing and
 * opening only give it a new nonce. libcrypto decrypts before it has checked the tag (in constant
 * time), so a failed open has written its output: aead_open wipes it. */
#include "net/crypto/aead_providers.h"

#include <openssl/evp.h>
#include <string.h>

_Static_assert(AEAD_BYTES_MAX <= INT32_MAX && AEAD_AD_MAX <= INT32_MAX, "EVP counts in int");

#define TAG_BYTES 16

static int init(struct aead_key *k, const uint8_t *key, const EVP_CIPHER *cipher)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	if (!ctx)
		return ERR_NOMEM;
	if (EVP_CipherInit_ex(ctx, cipher, NULL, key, NULL, 1) != 1) {
		EVP_CIPHER_CTX_free(ctx);
		return ERR_UNSUPPORTED;
	}
	k->state.handle = ctx;
	return 0;
}

static int chacha_init(struct aead_key *k, const uint8_t key[AEAD_KEY_BYTES])
{
	return init(k, key, EVP_chacha20_poly1305());
}

static int gcm_init(struct aead_key *k, const uint8_t key[AEAD_KEY_BYTES])
{
	return init(k, key, EVP_aes_256_gcm());
}

static void close_key(struct aead_key *k)
{
	EVP_CIPHER_CTX_free(k->state.handle); /* wipes the key */
}

/* From the nonce to the last byte but the tag. */
static int run(EVP_CIPHER_CTX *ctx, int sealing, const uint8_t *nonce, const void *ad,
        size_t ad_len, const uint8_t *in, size_t len, uint8_t *out)
{
	int n;
	if (EVP_CipherInit_ex(ctx, NULL, NULL, NULL, nonce, sealing) != 1)
		return ERR_SYSTEM;
	if (ad_len && EVP_CipherUpdate(ctx, NULL, &n, ad, (int)ad_len) != 1)
		return ERR_SYSTEM;
	if (len && (EVP_CipherUpdate(ctx, out, &n, in, (int)len) != 1 || (size_t)n != len))
		return ERR_SYSTEM;
	return 0;
}

static int seal(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	EVP_CIPHER_CTX *ctx = k->state.handle;
	int n, rc = run(ctx, 1, nonce, ad, ad_len, in, len, out);
	if (rc)
		return rc;
	if (EVP_CipherFinal_ex(ctx, out + len, &n) != 1 ||
	        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out + len) != 1)
		return ERR_SYSTEM;
	return 0;
}

static int open(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	EVP_CIPHER_CTX *ctx = k->state.handle;
	uint8_t tag[TAG_BYTES], none[TAG_BYTES];
	int n, rc;
	len -= TAG_BYTES;
	memcpy(tag, in + len, TAG_BYTES); /* EVP takes no const */
	rc = run(ctx, 0, nonce, ad, ad_len, in, len, out);
	if (rc)
		return rc;
	if (EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) != 1)
		return ERR_SYSTEM;
	return EVP_CipherFinal_ex(ctx, none, &n) == 1 ? 0 : ERR_MISMATCH;
}

const struct aead aead__crypto_chacha20_poly1305 = {
        .id = AEAD_CHACHA20_POLY1305,
        .provider = "libcrypto",
        .nonce_bytes = 12,
        .tag_bytes = TAG_BYTES,
        .init = chacha_init,
        .close = close_key,
        .seal = seal,
        .open = open,
};

const struct aead aead__crypto_aes_256_gcm = {
        .id = AEAD_AES_256_GCM,
        .provider = "libcrypto",
        .nonce_bytes = 12,
        .tag_bytes = TAG_BYTES,
        .init = gcm_init,
        .close = close_key,
        .seal = seal,
        .open = open,
};
