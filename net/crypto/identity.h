/* SPDX-License-Identifier: MIT */
/* Who an agent is: an Ed25519 key pair, whose public half is its id, kept in its state directory.
 *
 * The handshake's static key is an X25519 key of its own, vouched for by a signature of the
 * identity: what the handshake computes with never signs. All signatures begin with a word about
 * what is signed: none can be passed off as another kind.
 *
 *     DIR/identity.key   both secret keys, 0600, created once
 *     DIR/generation     how often this identity has started
 *
 * The caller must hold the lock of the state directory. */
#ifndef DUNLIN_NET_CRYPTO_IDENTITY_H
#define DUNLIN_NET_CRYPTO_IDENTITY_H

#include "agent/base/err.h"
#include "gossip/membership/gossip.h"

#include <stdint.h>

#define SIGNATURE_BYTES 64
#define STATIC_BYTES 32 /* an X25519 key, public or secret */

struct identity_secrets;

struct identity {
	struct peer_id id;
	uint64_t generation; /* of this start, already persisted; at least 1 */
	uint8_t static_public[STATIC_BYTES];
	uint8_t static_signature[SIGNATURE_BYTES]; /* of static_public, by id */
	struct identity_secrets *secrets;          /* owned; locked in memory, wiped when closed */
};

/* Loads the identity from dir, or makes dir and a new one, and raises the generation. Key files
 * that others can read are refused. */
int identity_open(struct identity *i, const char *dir, struct err *e) MUST_CHECK;
void identity_close(struct identity *i);

/* The id in dir, which is only looked at. ERR_NOTFOUND: there is none yet. */
int identity_look(struct peer_id *id, const char *dir, struct err *e) MUST_CHECK;

/* Persists a generation that is higher than ours: peers knew a later one than the directory, which
 * was restored from a copy. */
int identity_set_generation(
        struct identity *i, const char *dir, uint64_t generation, struct err *e) MUST_CHECK;

/* The secret half of the handshake's key, for noise_init; borrowed until identity_close. */
const uint8_t *identity_static_secret(const struct identity *i);

/* The secret half of the id, 64 bytes as libsodium has it, for datagram_shared; borrowed too. */
const uint8_t *identity_sign_secret(const struct identity *i);

/* Whether id vouches for that static key: ERR_MISMATCH if not. */
int identity_verify_static(const struct peer_id *id, const uint8_t static_public[STATIC_BYTES],
        const uint8_t signature[SIGNATURE_BYTES]) MUST_CHECK;

/* An Ed25519 signature by i of bytes that begin with their domain. */
void identity__sign(const struct identity *i, const uint8_t *bytes, size_t len,
        uint8_t signature[SIGNATURE_BYTES]);

#endif
