/* SPDX-License-Identifier: MIT */
/* The flock's secrets, from files into locked memory.
 *
 * A secret is random, never a password: its hash, the flock's id, may therefore be shown and sent
 * without telling anything about it. What can go wrong is told with the file and the line, and
 * never with a part of the text. */
#include "net/crypto/secret.h"

#include "net/crypto/keyfile.h"

#include <assert.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#define PREFIX "dunlin-flock-1:"
#define ID_DOMAIN "dunlin flock id v1"

_Static_assert(SECRET_TEXT_MAX >= KEYFILE_LINE_MAX, "keyfile_encode writes that much");

void flock_of(struct flock_id *out, const uint8_t secret[SECRET_BYTES])
{
	crypto_generichash_state st;
	crypto_generichash_init(&st, NULL, 0, sizeof out->bytes);
	crypto_generichash_update(&st, (const uint8_t *)ID_DOMAIN, sizeof ID_DOMAIN);
	crypto_generichash_update(&st, secret, SECRET_BYTES);
	crypto_generichash_final(&st, out->bytes, sizeof out->bytes);
	sodium_memzero(&st, sizeof st);
}

const char *flock_text(const struct flock_id *flock, char out[FLOCK_TEXT])
{
	return sodium_bin2hex(out, FLOCK_TEXT, flock->bytes, (FLOCK_TEXT - 1) / 2);
}

int secret_make(char line[SECRET_TEXT_MAX], struct flock_id *flock, struct err *e)
{
	uint8_t secret[SECRET_BYTES];
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "libsodium does not start");
	randombytes_buf(secret, sizeof secret);
	keyfile_encode(line, PREFIX, secret, sizeof secret);
	flock_of(flock, secret);
	sodium_memzero(secret, sizeof secret);
	return 0;
}

int secret_create(const char *path, struct flock_id *flock, struct err *e)
{
	char line[SECRET_TEXT_MAX];
	int rc = secret_make(line, flock, e);
	if (rc == 0)
		rc = keyfile_create(path, line, e);
	sodium_memzero(line, sizeof line);
	return rc;
}

int secret_keep(const char *path, const uint8_t secret[SECRET_BYTES], struct err *e)
{
	char line[SECRET_TEXT_MAX];
	keyfile_encode(line, PREFIX, secret, SECRET_BYTES);
	int rc = keyfile_create(path, line, e);
	sodium_memzero(line, sizeof line);
	return rc;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static int add_line(struct secrets *s, uint8_t (*keys)[SECRET_BYTES], const char *line, size_t len,
        struct err *e)
{
	while (len && blank(line[0]))
		line++, len--;
	while (len && blank(line[len - 1]))
		len--;
	if (len == 0 || line[0] == '#')
		return 0;
	if (s->n == SECRETS_MAX)
		return err_set(
		        e, ERR_LIMIT, "more than %d secrets: remove the oldest", SECRETS_MAX);
	int rc = keyfile_decode(keys[s->n], SECRET_BYTES, PREFIX, line, len, e);
	if (rc)
		return rc;
	for (int i = 0; i < s->n; i++)
		if (sodium_memcmp(keys[i], keys[s->n], SECRET_BYTES) == 0)
			return err_set(e, ERR_INVALID, "the same secret a second time: remove it");
	flock_of(&s->flock[s->n], keys[s->n]);
	s->n++;
	return 0;
}

static int load_file(
        struct secrets *s, uint8_t (*keys)[SECRET_BYTES], const char *path, struct err *e)
{
	char *text;
	size_t len;
	int rc = keyfile_read(path, KEYFILE_OURS_OR_ROOTS, &text, &len, e);
	int before = s->n, line = 1;
	if (rc == ERR_NOTFOUND)
		return err_set(e, rc,
		        "there is no %s: `dunlin keygen --out %s` makes a new flock's", path, path);
	if (rc)
		return rc;
	for (size_t at = 0; rc == 0 && at < len; line++) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		rc = add_line(s, keys, text + at, n, e);
		if (rc)
			err_prefix(e, "%s, line %d", path, line);
		at += n + 1;
	}
	sodium_free(text);
	if (rc == 0 && s->n == before)
		return err_set(e, ERR_FORMAT, "%s holds no secret: copy the flock's into it", path);
	return rc;
}

int secrets_load(struct secrets *s, const char *const *paths, int n_paths, struct err *e)
{
	int rc = 0;
	assert(n_paths > 0);
	*s = (struct secrets){0};
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "libsodium does not start");
	uint8_t(*keys)[SECRET_BYTES] = sodium_allocarray(SECRETS_MAX, SECRET_BYTES);
	if (!keys)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	memset(keys, 0, (size_t)SECRETS_MAX * SECRET_BYTES);
	for (int i = 0; rc == 0 && i < n_paths; i++)
		rc = load_file(s, keys, paths[i], e);
	/* A stray write would then be a crash, not a flock of one. */
	sodium_mprotect_readonly(keys);
	s->secret = (const uint8_t(*)[SECRET_BYTES])keys;
	if (rc)
		secrets_close(s);
	return rc;
}

void secrets_close(struct secrets *s)
{
	sodium_free((void *)(uintptr_t)s->secret); /* wipes; takes NULL */
	*s = (struct secrets){0};
}
