/* SPDX-License-Identifier: MIT */
/* Files of keys: one line of text, versioned and checksummed, that nobody else can use. Internal
 * to secrets, identities and owners. A secret's text is in memory of sodium_malloc throughout. */
#ifndef DUNLIN_NET_CRYPTO_KEYFILE_H
#define DUNLIN_NET_CRYPTO_KEYFILE_H

#include "agent/base/err.h"
#include "net/limits.h"

#include <stddef.h>
#include <stdint.h>

#define KEYFILE_CHECKSUM 4
#define KEYFILE_KEY_MAX 320 /* bytes of keys, and what they have signed, in one line */

/* The characters of a line, prefix not counted: base64url of n bytes and the checksum. */
#define KEYFILE_CHARS(n) (((n) + KEYFILE_CHECKSUM) * 8 / 6 + (((n) + KEYFILE_CHECKSUM) % 3 != 0))
#define KEYFILE_LINE_MAX 480 /* with prefix, newline and NUL */
_Static_assert(KEYFILE_CHARS(KEYFILE_KEY_MAX) + 32 <= KEYFILE_LINE_MAX, "the longest must fit");

/* "prefix" base64url(bytes, checksum) "\n" and a NUL. */
void keyfile_encode(char out[KEYFILE_LINE_MAX], const char *prefix, const uint8_t *bytes, size_t n);

/* A line without white space around it. The message says what is wrong, and nothing of the text. */
int keyfile_decode(uint8_t *bytes, size_t n, const char *prefix, const char *text, size_t len,
        struct err *e) MUST_CHECK;

/* Whose a key file may be. Our own has at most mode 0600. Root's has at most 0640, since systemd
 * and Kubernetes give a service its secrets so: root's, with a group that may read them. */
enum keyfile_keeper { KEYFILE_OURS, KEYFILE_OURS_OR_ROOTS };

/* Reads a file that nobody else can use. *text is to be sodium_free'd. ERR_NOTFOUND: there is
 * no such file; ERR_INVALID: not a plain file, or not kept as it should be. */
int keyfile_read(const char *path, enum keyfile_keeper keeper, char **text, size_t *len,
        struct err *e) MUST_CHECK;

/* Creates a file that is not there yet (ERR_BUSY: it is), mode 0600, and makes it durable. */
int keyfile_create(const char *path, const char *line, struct err *e) MUST_CHECK;

#endif
