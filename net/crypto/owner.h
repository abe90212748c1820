/* SPDX-License-Identifier: MIT */
/* The files of admission (certificate.h says what they prove):
 *
 *     owner's key    one line, 0600, made once by `dunlin keygen --owner`; stays offline
 *     owner          its public half, a text that every agent has as agent.owner
 *     invite         one line, 0600: an invite and the secret half of its key
 *     certificate    one line, in an agent's state directory
 *     revocations    one line, signed; no secret */
#ifndef DUNLIN_NET_CRYPTO_OWNER_H
#define DUNLIN_NET_CRYPTO_OWNER_H

#include "net/crypto/certificate.h"

#define OWNER_TEXT_MAX 80 /* a public key as text, NUL included */

/* A new owner's key into a new file (ERR_BUSY: it is there already); public receives its text. */
int owner_create(const char *path, char public_text[OWNER_TEXT_MAX], struct err *e) MUST_CHECK;

/* The public half as text. */
void owner_text(const struct owner *o, char out[OWNER_TEXT_MAX]);

/* The text of agent.owner; ERR_FORMAT and others say what is wrong with it. */
int owner_parse(struct owner *out, const char *text, struct err *e) MUST_CHECK;

/* Both halves of an owner's key. *secret is for owner_forget in the end, which wipes it. */
int owner_load(const char *path, struct owner *out, uint8_t **secret, struct err *e) MUST_CHECK;
void owner_forget(uint8_t *secret);

/* A new invite with a key of its own into a new file. v's key is filled in. */
int invite_create(
        const char *path, struct invite *v, const uint8_t *owner_secret, struct err *e) MUST_CHECK;

/* The bytes of an invite's file, with the secret half of its key: the caller wipes them. The chain
 * is not checked. */
#define INVITE_FILE_BYTES (INVITE_BYTES + 32)
int invite_load(const char *path, uint8_t out[INVITE_FILE_BYTES], struct err *e) MUST_CHECK;
/* Replaces the file, mode 0600. */
int invite_save(
        const char *path, const uint8_t bytes[INVITE_FILE_BYTES], struct err *e) MUST_CHECK;

/* Certifies id, whose secret half is needed too, with the invite in that file. The chain is not
 * checked. */
int invite_use(const char *path, const struct peer_id *id,
        const uint8_t id_secret[SIGN_SECRET_BYTES], uint8_t out[CERTIFICATE_BYTES],
        struct err *e) MUST_CHECK;

/* An agent's own certificate. ERR_NOTFOUND: there is no such file. */
int certificate_load(const char *path, uint8_t out[CERTIFICATE_BYTES], struct err *e) MUST_CHECK;
int certificate_save(
        const char *path, const uint8_t bytes[CERTIFICATE_BYTES], struct err *e) MUST_CHECK;

/* A list of revocations as it travels. ERR_NOTFOUND: there is no such file. It is not verified. */
struct revocations_text {
	size_t len;
	uint8_t bytes[REVOCATIONS_BYTES(REVOKED_MAX)];
};
int revocations_load(const char *path, struct revocations_text *out, struct err *e) MUST_CHECK;
int revocations_save(const char *path, const struct revocations_text *r, struct err *e) MUST_CHECK;

#endif
