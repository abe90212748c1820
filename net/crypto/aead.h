/* SPDX-License-Identifier: MIT */
/* Sealing bytes with a key and a counter.
 *
 * A cipher is what two agents agree on; it may have several providers, of which each agent uses
 * its own fastest: ChaCha20-Poly1305 from libsodium opens what libcrypto's has sealed. An entry of
 * aead_list is one cipher by one provider.
 *
 *     start:      aead_measure ──► struct aead_order: usable ciphers, fastest first
 *     handshake:  the ids are exchanged, aead_choose gives both sides the same one
 *     session:    aead_init(key, aead_by_id(order, id), 32 bytes) once per direction
 *                 aead_seal / aead_open with a counter that never repeats under that key
 *
 * No function here compares secrets other than in constant time, nor branches on them. */
#ifndef DUNLIN_NET_CRYPTO_AEAD_H
#define DUNLIN_NET_CRYPTO_AEAD_H

#include "agent/base/err.h"
#include "net/limits.h"

#include <stddef.h>
#include <stdint.h>

/* As on the wire: numbers are never reused. */
enum aead_id { AEAD_CHACHA20_POLY1305, AEAD_AES_256_GCM, AEAD_AEGIS_128L, AEAD_IDS };

#define AEAD_KEY_BYTES 32 /* AEGIS-128L uses the first 16 */
#define AEAD_TAG_MAX 32   /* what sealing adds: 16 bytes, 32 by AEGIS-128L; aead_tag tells */
#define AEAD_NONCE_MAX 16

#define AEAD_STATE_BYTES 512 /* libsodium's expanded AES key, the largest */

struct aead;

/* A key of one direction, ready to use. The caller's memory; it is wiped by aead_close. One thread
 * at a time may use it, since libcrypto keeps its work in it: others take a second aead_init of the
 * same key. It may be moved only while closed. */
struct aead_key {
	const struct aead *aead; /* NULL: closed */
	union {
		_Alignas(16) uint8_t bytes[AEAD_STATE_BYTES];
		void *handle; /* owned: libcrypto's context */
	} state;
};

/* One cipher by one provider. The functions are for aead.c and its tests, which know the nonces
 * they want; everybody else calls aead_seal and aead_open. */
struct aead {
	enum aead_id id;
	const char *provider; /* "libsodium", "libcrypto" */
	size_t nonce_bytes, tag_bytes;
	int (*init)(struct aead_key *k, const uint8_t key[AEAD_KEY_BYTES]);
	void (*close)(struct aead_key *k);
	int (*seal)(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
	        const uint8_t *in, size_t len, uint8_t *out);
	int (*open)(struct aead_key *k, const uint8_t *nonce, const void *ad, size_t ad_len,
	        const uint8_t *in, size_t len, uint8_t *out);
};

/* All that were compiled in, NULL-terminated, whether or not this machine can run them. The first
 * is libsodium's ChaCha20-Poly1305, which always runs. */
extern const struct aead *const aead_list[];

/* The ciphers of one agent. What a peer offers is the same without best and speed. */
struct aead_order {
	uint8_t n;
	uint8_t id[AEAD_OFFER_MAX];        /* fastest first; a peer's may hold ids unknown to us */
	const struct aead *best[AEAD_IDS]; /* by id: the fastest provider; NULL: not usable here */
	double bytes_per_s[AEAD_IDS];      /* by id: sealed and opened again, by the best */
};

/* Tries every entry of aead_list for about a millisecond each, on the thread that calls. */
int aead_measure(struct aead_order *o, struct err *e) MUST_CHECK;

/* The cipher that both agents use: the one with the least sum of places in both orders, of equals
 * the one with the lowest number. aead_choose(a, b) is aead_choose(b, a). ERR_UNSUPPORTED if there
 * is none in common. */
int aead_choose(const struct aead_order *ours, const struct aead_order *theirs,
        enum aead_id *id) MUST_CHECK;

/* Our provider of a cipher, NULL if we have none. */
const struct aead *aead_by_id(const struct aead_order *o, enum aead_id id);

/* The name of a cipher, "unknown cipher" for a foreign number. */
const char *aead_name(int id);

/* ERR_UNSUPPORTED: not on this machine; ERR_NOMEM. key may be wiped afterwards. */
int aead_init(
        struct aead_key *k, const struct aead *a, const uint8_t key[AEAD_KEY_BYTES]) MUST_CHECK;

/* Does nothing to a key that is closed or all zero. */
void aead_close(struct aead_key *k);

/* The bytes that sealing with this key adds. */
static inline size_t aead_tag(const struct aead_key *k)
{
	return k->aead->tag_bytes;
}

/* Seals len bytes (at most AEAD_BYTES_MAX) into len + aead_tag(k). out may be in; otherwise they
 * must not overlap. No memory is taken. ERR_LIMIT: too long; ERR_SYSTEM: the provider failed. out
 * is zeroed then. */
int aead_seal(struct aead_key *k, uint64_t counter, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out) MUST_CHECK;

/* Opens len bytes, the tag included, into len - aead_tag(k); out may be in. ERR_FORMAT: shorter
 * than a tag; ERR_MISMATCH: not sealed with this key, counter and ad, or changed since. out is
 * zeroed then: unchecked bytes are never seen. */
int aead_open(struct aead_key *k, uint64_t counter, const void *ad, size_t ad_len,
        const uint8_t *in, size_t len, uint8_t *out) MUST_CHECK;

/* The nonce of a counter: as Noise has it for the first two (zeros, then the counter in 8 bytes,
 * little-endian for ChaCha20-Poly1305, big-endian for AES-256-GCM), little-endian in the last 8 of
 * 16 for AEGIS-128L. */
void aead_nonce(enum aead_id id, uint64_t counter, uint8_t out[AEAD_NONCE_MAX]);

#endif
