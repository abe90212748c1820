/* SPDX-License-Identifier: MIT */
/* The handshakes of the Noise protocol framework, revision 34: bytes in, bytes out.
 *
 * Dunlin speaks Noise_XXpsk0_25519_ChaChaPoly_SHA256, with the flock's secret as the psk:
 *
 *     dialler                          listener
 *       -> psk, e                        reading this proves the psk, by symmetric work alone
 *       <- e, ee, s, es                  the first Diffie-Hellman, when this is written
 *       -> s, se
 *
 * The patterns XX, NN and IK with psk0 to psk3, several at once, are there as well: published
 * vectors exist for some of them, and one table runs them all. */
#ifndef DUNLIN_NET_CRYPTO_NOISE_H
#define DUNLIN_NET_CRYPTO_NOISE_H

#include "agent/base/err.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOISE_KEY_BYTES 32 /* X25519 keys, psks, and those of a split */
#define NOISE_TAG_BYTES 16
#define NOISE_HASH_BYTES 32

#define NOISE_PROTOCOL "Noise_XXpsk0_25519_ChaChaPoly_SHA256"

/* What the three messages of XXpsk0 have besides their payloads. */
#define NOISE_XXPSK0_1 (NOISE_KEY_BYTES + NOISE_TAG_BYTES)
#define NOISE_XXPSK0_2 (2 * NOISE_KEY_BYTES + 2 * NOISE_TAG_BYTES)
#define NOISE_XXPSK0_3 (NOISE_KEY_BYTES + 2 * NOISE_TAG_BYTES)

/* All pointers are borrowed for the call of noise_init. */
struct noise_config {
	const char *protocol; /* NOISE_PROTOCOL */
	bool initiator;
	const void *prologue;
	size_t prologue_len;          /* at most NOISE_PROLOGUE_MAX */
	const uint8_t *static_secret; /* X25519; NULL where the pattern has no s of ours */
	const uint8_t *static_public; /* of it: computing it here would be a stranger's gain */
	const uint8_t *remote_static; /* NULL where it is not known before (all but IK's dialler) */
	const uint8_t (*psks)[NOISE_KEY_BYTES]; /* as many as the name has psk modifiers */
	int n_psks;
};

#define NOISE_TOKENS_MAX 8
#define NOISE_MESSAGES_MAX 3

/* A handshake under way; the caller's memory, nothing else is taken. All fields are noise.c's. */
struct noise {
	uint8_t tokens[NOISE_MESSAGES_MAX][NOISE_TOKENS_MAX];
	uint8_t n_messages, next; /* messages of the pattern, the one that is due */
	bool initiator;
	bool failed;
	bool has_key, has_e, has_rs;
	uint8_t n_psks, psks_used;
	uint8_t dh_count; /* Diffie-Hellmans done so far, by a failed one too: for budgets */
	uint64_t nonce;
	uint8_t h[NOISE_HASH_BYTES], ck[NOISE_HASH_BYTES], k[NOISE_KEY_BYTES];
	uint8_t s[NOISE_KEY_BYTES], s_public[NOISE_KEY_BYTES];
	uint8_t e[NOISE_KEY_BYTES], e_public[NOISE_KEY_BYTES];
	uint8_t rs[NOISE_KEY_BYTES], re[NOISE_KEY_BYTES];
	uint8_t psks[NOISE_PSKS_MAX][NOISE_KEY_BYTES];
};

/* ERR_UNSUPPORTED: a protocol that is not in the table; ERR_INVALID: keys are missing that the
 * pattern wants, or there are too many. */
int noise_init(struct noise *n, const struct noise_config *c, struct err *e) MUST_CHECK;

/* Wipes everything; also due after noise_split and after failures (where it does no more harm). */
void noise_close(struct noise *n);

/* The next message of ours, with a payload inside (sealed, unless the pattern has no key yet: with
 * psk0 it always has), into out; *written is its length. Any failure wipes the handshake, and every
 * later call fails: ERR_LIMIT (out_max, or NOISE_MESSAGE_MAX, is too small), ERR_INVALID (not our
 * turn), ERR_MISMATCH (the peer's key is of those that give an all-zero secret). */
int noise_write(struct noise *n, const void *payload, size_t len, uint8_t *out, size_t out_max,
        size_t *written) MUST_CHECK;

/* Reads the peer's next message; payload receives what was inside, at most payload_max bytes, and
 * nothing before it is proven. Must not overlap. Any failure wipes the handshake, as above, and is
 * one of ERR_FORMAT (too short), ERR_LIMIT (too long for payload_max), ERR_INVALID (not its turn),
 * ERR_MISMATCH (another psk, prologue or key, or a changed byte: there is no telling which).
 *
 * Reading the first message of a psk0 pattern does no Diffie-Hellman: 0 tells a listener that the
 * sender has the psk, or replays one who had, and that answering (which costs some) is worth it. */
int noise_read(struct noise *n, const uint8_t *message, size_t len, void *payload,
        size_t payload_max, size_t *payload_len) MUST_CHECK;

/* Whether noise_write, not noise_read, is due. */
bool noise_my_turn(const struct noise *n);

/* Whether all messages went through. */
bool noise_done(const struct noise *n);

/* The keys of the session, one for each direction, and the hash of all that was said, which binds
 * whatever is derived later to this session. Then wipes the handshake. Only after noise_done. */
int noise_split(struct noise *n, uint8_t send[NOISE_KEY_BYTES], uint8_t receive[NOISE_KEY_BYTES],
        uint8_t hash[NOISE_HASH_BYTES]) MUST_CHECK;

/* The peer's static key once it is known (proven, for the messages so far), else NULL. Until the
 * next call on n. */
const uint8_t *noise_remote_static(const struct noise *n);

/* Whether these two, which are not done, are the ends of one handshake. */
bool noise_meets(const struct noise *initiator, const struct noise *responder);

/* For tests with published vectors only: the ephemeral key that the next e of ours will be. */
void noise__set_ephemeral(struct noise *n, const uint8_t secret[NOISE_KEY_BYTES]);

#endif
