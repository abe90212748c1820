/* SPDX-License-Identifier: MIT */
/* Who may be a member, as the owner of a flock has signed it. No server is asked: everyone that
 * has the owner's public key can check the whole chain.
 *
 *     owner's key ──signs──► invite ──its key signs──► certificate of one agent's id
 *                                                       ▲── and the id itself signs
 *
 *     invite       ┌ label 32 ┬ key 32 ┬ expires u64 ┬ agents u32 ┬ rate u64 ┬ signature 64 ┐
 *     certificate  ┌ invite 148 ┬ id 32 ┬ invite's signature 64 ┬ id's signature 64 ┐
 *     revocations  ┌ version u64 ┬ expires u64 ┬ n u16 ┬ n × (kind u8, name 32) ┬ signature 64 ┐
 *
 * Numbers are little-endian, times are seconds since 1970. A label is filled up with NULs. Every
 * layout has one form only, and every byte of it is signed. Signatures are Ed25519 over a domain,
 * NUL included, and the bytes before the signature; a certificate's cover the whole invite.
 *
 * An invite is made by the owner and given away with the secret half of its key, in a file. Whoever
 * has that file can certify ids, as many as it likes: how many of them count is the invite's
 * number of agents (net/transport/admission.h). But only its own: an id signs that it is of that
 * invite, so nobody can move another's agent into an invite that is full, or revoked.
 *
 * Nothing here has a clock, a file or memory of its own. */
#ifndef DUNLIN_NET_CRYPTO_CERTIFICATE_H
#define DUNLIN_NET_CRYPTO_CERTIFICATE_H

#include "agent/base/err.h"
#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LABEL_BYTES 32 /* a NUL at the end included */
#define INVITE_BYTES 148
#define CERTIFICATE_BYTES 308
#define REVOCATIONS_BYTES(n) (18 + 33 * (size_t)(n) + 64)

#define SIGN_PUBLIC_BYTES 32 /* an Ed25519 key */
#define SIGN_SECRET_BYTES 64 /* as libsodium has it */

/* The public half of an owner's key. */
struct owner {
	uint8_t key[SIGN_PUBLIC_BYTES];
};

struct invite {
	char label[LABEL_BYTES];
	uint8_t key[SIGN_PUBLIC_BYTES]; /* that its certificates are signed with */
	uint64_t expires_s;             /* from then on it is void, and its certificates are */
	uint32_t agents;                /* ids of it that count at one time; at least 1 */
	uint64_t rate;                  /* samples a second of one agent; 0: not stated */
};

struct certificate {
	struct invite invite;
	struct peer_id id;
};

enum revoked_kind { REVOKED_LABEL, REVOKED_ID };

struct revocations {
	uint64_t version; /* a higher one replaces a lower one whole; 0: there is no list */
	uint64_t expires_s;
	uint16_t n;
	struct revoked_entry {
		uint8_t kind;
		uint8_t name[32]; /* a label, or an id */
	} entry[REVOKED_MAX];
};

/* ERR_INVALID says what a label may be: 1 to 31 letters, digits, dots, - and _. */
int label_check(const char *label, struct err *e) MUST_CHECK;

/* invite must be in range. */
void invite_sign(const struct invite *v, const uint8_t owner_secret[SIGN_SECRET_BYTES],
        uint8_t out[INVITE_BYTES]);
/* id_secret: the secret half of id; with another one the certificate is void. */
void certificate_sign(const uint8_t invite[INVITE_BYTES],
        const uint8_t invite_secret[SIGN_SECRET_BYTES], const struct peer_id *id,
        const uint8_t id_secret[SIGN_SECRET_BYTES], uint8_t out[CERTIFICATE_BYTES]);

/* Reads what anyone may have made. ERR_FORMAT: not one; else everything is in range, and nothing
 * is believed yet. len must be exactly that of the layout. */
int invite_read(struct invite *out, const uint8_t *bytes, size_t len) MUST_CHECK;
int certificate_read(struct certificate *out, const uint8_t *bytes, size_t len) MUST_CHECK;

/* The chain, each link in words: ERR_FORMAT (malformed), ERR_MISMATCH (forged, or by another
 * owner), ERR_STALE (expired). *out is filled in if it is not malformed. now_s may be 0: then
 * nothing is expired. */
int invite_verify(struct invite *out, const uint8_t *bytes, size_t len, const struct owner *owner,
        uint64_t now_s, struct err *e) MUST_CHECK;
int certificate_verify(struct certificate *out, const uint8_t *bytes, size_t len,
        const struct owner *owner, uint64_t now_s, struct err *e) MUST_CHECK;

/* The invite's and the id's signature alone, for an invite whose bytes were verified before. */
int certificate_verify_id(const uint8_t bytes[CERTIFICATE_BYTES]) MUST_CHECK;

/* Lists of what is revoked. The bytes used, at most REVOCATIONS_BYTES(REVOKED_MAX). */
size_t revocations_sign(const struct revocations *r, const uint8_t owner_secret[SIGN_SECRET_BYTES],
        uint8_t out[REVOCATIONS_BYTES(REVOKED_MAX)]);
/* As certificate_verify. */
int revocations_verify(struct revocations *out, const uint8_t *bytes, size_t len,
        const struct owner *owner, uint64_t now_s, struct err *e) MUST_CHECK;
/* What its bytes say, believed or not; 0: it is too short. */
uint64_t revocations_version(const uint8_t *bytes, size_t len);
/* Whether it has that invite's label, or that id (which may be NULL). */
bool revocations_have(
        const struct revocations *r, const struct invite *invite, const struct peer_id *id);

#endif
