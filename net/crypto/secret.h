/* SPDX-License-Identifier: MIT */
/* The flock's secret: 256 random bits in a file that is copied to every machine.
 *
 *     dunlin-flock-1:<base64url of 32 bytes and a checksum>
 *
 * To rotate it, a file may hold up to three, one a line (lines with # are comments), or several
 * files may be given: the first secret is the one that we dial with, all are accepted. */
#ifndef DUNLIN_NET_CRYPTO_SECRET_H
#define DUNLIN_NET_CRYPTO_SECRET_H

#include "agent/base/err.h"
#include "net/limits.h"

#include <stddef.h>
#include <stdint.h>

#define SECRET_BYTES 32
#define SECRET_TEXT_MAX 480 /* a line, newline and NUL included */
#define FLOCK_ID_BYTES 32

/* The id of the flock that a secret makes: a hash, safe to show, and bound by every handshake. */
struct flock_id {
	uint8_t bytes[FLOCK_ID_BYTES];
};

struct secrets {
	int n;
	const uint8_t (*secret)[SECRET_BYTES]; /* owned; locked in memory, wiped when closed */
	struct flock_id flock[SECRETS_MAX];    /* of each */
};

/* Reads one or more files, in that order. The message says what to change, and shows nothing of a
 * secret. */
int secrets_load(
        struct secrets *s, const char *const *paths, int n_paths, struct err *e) MUST_CHECK;
void secrets_close(struct secrets *s);

/* Makes a new secret as a line of text. The caller wipes it. */
int secret_make(char line[SECRET_TEXT_MAX], struct flock_id *flock, struct err *e) MUST_CHECK;

/* The same into a new file, mode 0600; one that is there already is refused. */
int secret_create(const char *path, struct flock_id *flock, struct err *e) MUST_CHECK;

/* Writes a secret that came another way; alike. */
int secret_keep(const char *path, const uint8_t secret[SECRET_BYTES], struct err *e) MUST_CHECK;

/* The id of the flock that a secret makes. */
void flock_of(struct flock_id *out, const uint8_t secret[SECRET_BYTES]);

/* The first bytes of an id, enough to tell flocks apart by eye; returns out. */
#define FLOCK_TEXT 17
const char *flock_text(const struct flock_id *flock, char out[FLOCK_TEXT]);

#endif
