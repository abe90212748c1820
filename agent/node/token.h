/* SPDX-License-Identifier: MIT */
/* A token: one string that says how to join a run.
 *
 *     dunlin1AAQx…     "dunlin1" and base64url of the below, which PROTOCOL.md part 13 lays out
 *
 *     flags, flock's id, hash of the run's settings, perhaps the flock's secret, the owner's public
 *     key and an invite of the owner's, name of the run, addresses to join at, checksum
 *
 * With the secret or an invite in it, it is a secret like a key file. */
#ifndef DUNLIN_AGENT_NODE_TOKEN_H
#define DUNLIN_AGENT_NODE_TOKEN_H

#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "net/crypto/owner.h"
#include "net/crypto/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_SEEDS_MAX 4
#define TOKEN_FLOCK_BYTES 16 /* the beginning of the flock's id */
#define TOKEN_HASH_BYTES 16  /* see run_settings.h */
#define TOKEN_CHECKSUM 4
#define TOKEN_BYTES_MAX                                                                  \
	(1 + TOKEN_FLOCK_BYTES + TOKEN_HASH_BYTES + SECRET_BYTES + SIGN_PUBLIC_BYTES +   \
	        INVITE_FILE_BYTES + LIMIT_NAME + 1 + TOKEN_SEEDS_MAX * LIMIT_HOST_PORT + \
	        TOKEN_CHECKSUM)
#define TOKEN_TEXT_MAX (7 + TOKEN_BYTES_MAX * 4 / 3 + 4) /* NUL included */

struct token {
	uint8_t flock[TOKEN_FLOCK_BYTES], hash[TOKEN_HASH_BYTES];
	bool has_secret, has_owner, has_invite; /* with an invite there is an owner */
	uint8_t secret[SECRET_BYTES];
	struct owner owner;
	uint8_t invite[INVITE_FILE_BYTES];
	char run[LIMIT_NAME];
	int n_seeds;
	char seed[TOKEN_SEEDS_MAX][LIMIT_HOST_PORT]; /* as hostport_parse takes them */
};

/* Whether others must not see it. */
bool token_is_secret(const struct token *t);

/* The text, without a newline. The caller wipes it, and t, if it is secret. */
void token_print(const struct token *t, char out[TOKEN_TEXT_MAX]);

/* Reads what anyone may have made. White space is skipped anywhere: mail and terminals break lines.
 * The error says what is wrong, and nothing of the text; *out is zero then. */
int token_parse(struct token *out, const char *text, size_t len, struct err *e) MUST_CHECK;

/* From a file that nobody else can use; ERR_NOTFOUND: there is none. And into a new one, mode 0600,
 * with the newline that line has; ERR_BUSY: it is there already. */
#define TOKEN_FILE_MAX 4096
int token_load(struct token *out, const char *path, struct err *e) MUST_CHECK;
int token_create(const char *path, const char *line, struct err *e) MUST_CHECK;

/* Adds a seed; one that is there already, or for which there is no room, is left out. */
void token_add_seed(struct token *t, const char *seed);

/* An invite in it that is forged, of another owner, or has expired. now_s: see certificate.h. */
int token_check_invite(const struct token *t, uint64_t now_s, struct err *e) MUST_CHECK;

void token_wipe(struct token *t);

#endif
