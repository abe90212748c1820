/* SPDX-License-Identifier: MIT */
/* What is common to all ciphers: the list, the nonces, the measuring, the choice.
 *
 * Which cipher is fastest depends on the machine and on the libraries it has (with AVX-512,
 * libcrypto's ChaCha20-Poly1305 is three times libsodium's), and sealing is what an exchange of
 * parameters mostly costs. So each agent measures for a few milliseconds when it starts, and two
 * agents take the cipher that is best placed in both their orders. Only places are exchanged, not
 * speeds: the rule must give the same answer on both sides, also between versions that measure
 * differently.
 *
 * A provider that fails on this machine (no AES instructions, a libcrypto with a cipher disabled)
 * is left out. libsodium's ChaCha20-Poly1305 never fails, so the order is never empty. */
#include "net/crypto/aead.h"

#include "net/crypto/aead_providers.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEASURE_BYTES (64u * 1024)
#define MEASURE_NS 250000 /* a try takes at least this long; the best of MEASURE_TRIES counts */
#define MEASURE_TRIES 3

const struct aead *const aead_list[] = {
        &aead__sodium_chacha20_poly1305,
        &aead__sodium_aes_256_gcm,
#ifdef AEAD_HAVE_AEGIS
        &aead__sodium_aegis_128l,
#endif
#ifdef HAVE_LIBCRYPTO
        &aead__crypto_chacha20_poly1305,
        &aead__crypto_aes_256_gcm,
#endif
        NULL,
};

const char *aead_name(int id)
{
	static const char *const names[AEAD_IDS] = {
	        [AEAD_CHACHA20_POLY1305] = "ChaCha20-Poly1305",
	        [AEAD_AES_256_GCM] = "AES-256-GCM",
	        [AEAD_AEGIS_128L] = "AEGIS-128L",
	};
	return id >= 0 && id < AEAD_IDS ? names[id] : "unknown cipher";
}

void aead_nonce(enum aead_id id, uint64_t counter, uint8_t out[AEAD_NONCE_MAX])
{
	memset(out, 0, AEAD_NONCE_MAX);
	uint8_t *p = out + (id == AEAD_AEGIS_128L ? 8 : 4);
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(counter >> (id == AEAD_AES_256_GCM ? 56 - 8 * i : 8 * i));
}

int aead_init(struct aead_key *k, const struct aead *a, const uint8_t key[AEAD_KEY_BYTES])
{
	*k = (struct aead_key){0};
	/* Before it libsodium would not use what the processor offers; once done it is cheap. */
	if (sodium_init() < 0)
		return ERR_SYSTEM;
	int rc = a->init(k, key);
	if (rc)
		sodium_memzero(k, sizeof *k);
	else
		k->aead = a;
	return rc;
}

void aead_close(struct aead_key *k)
{
	if (k->aead && k->aead->close)
		k->aead->close(k);
	sodium_memzero(k, sizeof *k);
}

int aead_seal(struct aead_key *k, uint64_t counter, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[AEAD_NONCE_MAX];
	assert(k->aead);
	if (len > AEAD_BYTES_MAX || ad_len > AEAD_AD_MAX)
		return ERR_LIMIT;
	aead_nonce(k->aead->id, counter, nonce);
	int rc = k->aead->seal(k, nonce, ad, ad_len, in, len, out);
	if (rc)
		memset(out, 0, len + k->aead->tag_bytes);
	return rc;
}

int aead_open(struct aead_key *k, uint64_t counter, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[AEAD_NONCE_MAX];
	assert(k->aead);
	if (len < k->aead->tag_bytes)
		return ERR_FORMAT;
	if (len > AEAD_BYTES_MAX + k->aead->tag_bytes || ad_len > AEAD_AD_MAX)
		return ERR_LIMIT;
	aead_nonce(k->aead->id, counter, nonce);
	int rc = k->aead->open(k, nonce, ad, ad_len, in, len, out);
	if (rc)
		memset(out, 0, len - k->aead->tag_bytes);
	return rc;
}

/* ---- measuring */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Bytes a second that are sealed and opened again; 0 if this machine cannot. buf has room for
 * MEASURE_BYTES and a tag. */
static double measure_one(const struct aead *a, uint8_t *buf)
{
	static const uint8_t key[AEAD_KEY_BYTES] = {1};
	struct aead_key k;
	double best = 0;
	uint64_t counter = 0;
	if (aead_init(&k, a, key))
		return 0;
	for (int try = 0; try < MEASURE_TRIES; try++) {
		uint64_t start = now_ns(), took;
		double bytes = 0;
		do {
			if (aead_seal(&k, counter, NULL, 0, buf, MEASURE_BYTES, buf) ||
			        aead_open(&k, counter, NULL, 0, buf, MEASURE_BYTES + a->tag_bytes,
			                buf)) {
				aead_close(&k);
				return 0;
			}
			counter++;
			bytes += MEASURE_BYTES;
			took = now_ns() - start;
		} while (took < MEASURE_NS);
		if (bytes / (double)took > best)
			best = bytes / (double)took;
	}
	aead_close(&k);
	return best * 1e9;
}

int aead_measure(struct aead_order *o, struct err *e)
{
	*o = (struct aead_order){0};
	uint8_t *buf = calloc(1, MEASURE_BYTES + AEAD_TAG_MAX);
	if (!buf)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	for (int i = 0; aead_list[i]; i++) {
		const struct aead *a = aead_list[i];
		double speed = measure_one(a, buf);
		if (speed > o->bytes_per_s[a->id]) {
			o->bytes_per_s[a->id] = speed;
			o->best[a->id] = a;
		}
	}
	free(buf);
	for (int id = 0; id < AEAD_IDS; id++) {
		if (!o->best[id])
			continue;
		int at = o->n++;
		for (; at > 0 && o->bytes_per_s[o->id[at - 1]] < o->bytes_per_s[id]; at--)
			o->id[at] = o->id[at - 1];
		o->id[at] = (uint8_t)id;
	}
	if (o->n == 0)
		return err_set(e, ERR_SYSTEM, "no cipher works: is libsodium installed whole?");
	return 0;
}

/* ---- choosing */

/* The place of a cipher in an order, -1 if it is not there. */
static int place(const struct aead_order *o, int id)
{
	for (int i = 0; i < o->n && i < AEAD_OFFER_MAX; i++)
		if (o->id[i] == id)
			return i;
	return -1;
}

int aead_choose(const struct aead_order *ours, const struct aead_order *theirs, enum aead_id *id)
{
	int best = -1, best_sum = 0;
	for (int i = 0; i < AEAD_IDS; i++) {
		int a = place(ours, i), b = place(theirs, i);
		if (a < 0 || b < 0 || (best >= 0 && a + b >= best_sum))
			continue;
		best = i;
		best_sum = a + b;
	}
	if (best < 0)
		return ERR_UNSUPPORTED;
	*id = (enum aead_id)best;
	return 0;
}

const struct aead *aead_by_id(const struct aead_order *o, enum aead_id id)
{
	return (int)id >= 0 && id < AEAD_IDS ? o->best[id] : NULL;
}
