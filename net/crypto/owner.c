/* SPDX-License-Identifier: MIT */
/* Keys and what they have signed, as lines of text in files.
 *
 * What holds a secret is created exclusively with mode 0600, and is refused when others can read
 * it, as every key file is. Certificates and lists of revocations hold none: who reads them cannot
 * use them. What fails is the disk, the permissions, or a file that is not what it should be; the
 * message says which. */
#include "net/crypto/owner.h"

#include "agent/base/buf.h"
#include "net/crypto/keyfile.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define OWNER_PREFIX "dunlin-owner-1:"
#define OWNER_KEY_PREFIX "dunlin-ownerkey-1:"
#define INVITE_PREFIX "dunlin-invite-1:"
#define CERTIFICATE_PREFIX "dunlin-certificate-1:"
#define REVOKED_PREFIX "dunlin-revoked-1:"
#define SEED_BYTES crypto_sign_ed25519_SEEDBYTES
#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING

_Static_assert(INVITE_FILE_BYTES == INVITE_BYTES + SEED_BYTES, "alike");
_Static_assert(INVITE_FILE_BYTES <= KEYFILE_KEY_MAX, "must fit");
_Static_assert(CERTIFICATE_BYTES <= KEYFILE_KEY_MAX, "must fit");
#define REVOKED_CHARS_MAX (sizeof REVOKED_PREFIX + REVOCATIONS_BYTES(REVOKED_MAX) * 4 / 3 + 4)

static int start_sodium(struct err *e)
{
	return sodium_init() < 0 ? err_set(e, ERR_SYSTEM, "libsodium does not start") : 0;
}

static size_t trimmed(const char *text, size_t len)
{
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	return len;
}

/* The bytes of the one line of a private file. */
static int load_line(uint8_t *out, size_t n, const char *prefix, const char *path, struct err *e)
{
	char *text;
	size_t len;
	int rc = keyfile_read(path, KEYFILE_OURS_OR_ROOTS, &text, &len, e);
	if (rc)
		return rc;
	rc = keyfile_decode(out, n, prefix, text, trimmed(text, len), e);
	sodium_free(text);
	return rc ? err_prefix(e, "%s", path) : 0;
}

static int create_line(
        const char *path, const char *prefix, const uint8_t *bytes, size_t n, struct err *e)
{
	char line[KEYFILE_LINE_MAX];
	keyfile_encode(line, prefix, bytes, n);
	int rc = keyfile_create(path, line, e);
	sodium_memzero(line, sizeof line);
	return rc;
}

static int write_text(int fd, void *arg, struct err *e)
{
	return file_write_all(fd, arg, strlen(arg), e);
}

/* ---- owners */

void owner_text(const struct owner *o, char out[OWNER_TEXT_MAX])
{
	char line[KEYFILE_LINE_MAX];
	keyfile_encode(line, OWNER_PREFIX, o->key, sizeof o->key);
	size_t n = trimmed(line, strlen(line));
	_Static_assert(sizeof OWNER_PREFIX + KEYFILE_CHARS(SIGN_PUBLIC_BYTES) <= OWNER_TEXT_MAX,
	        "must fit");
	memcpy(out, line, n);
	out[n] = '\0';
}

int owner_create(const char *path, char public_text[OWNER_TEXT_MAX], struct err *e)
{
	uint8_t seed[SEED_BYTES], secret[SIGN_SECRET_BYTES];
	struct owner o;
	int rc = start_sodium(e);
	if (rc)
		return rc;
	randombytes_buf(seed, sizeof seed);
	crypto_sign_ed25519_seed_keypair(o.key, secret, seed);
	rc = create_line(path, OWNER_KEY_PREFIX, seed, sizeof seed, e);
	owner_text(&o, public_text);
	sodium_memzero(seed, sizeof seed);
	sodium_memzero(secret, sizeof secret);
	return rc;
}

int owner_parse(struct owner *out, const char *text, struct err *e)
{
	return keyfile_decode(
	        out->key, sizeof out->key, OWNER_PREFIX, text, trimmed(text, strlen(text)), e);
}

int owner_load(const char *path, struct owner *out, uint8_t **secret, struct err *e)
{
	uint8_t seed[SEED_BYTES];
	*secret = NULL;
	int rc = load_line(seed, sizeof seed, OWNER_KEY_PREFIX, path, e);
	if (rc == 0) {
		*secret = sodium_malloc(SIGN_SECRET_BYTES);
		if (*secret)
			crypto_sign_ed25519_seed_keypair(out->key, *secret, seed);
		else
			rc = err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	}
	sodium_memzero(seed, sizeof seed);
	return rc;
}

void owner_forget(uint8_t *secret)
{
	sodium_free(secret);
}

/* ---- invites */

int invite_create(const char *path, struct invite *v, const uint8_t *owner_secret, struct err *e)
{
	uint8_t bytes[INVITE_FILE_BYTES], secret[SIGN_SECRET_BYTES];
	int rc = start_sodium(e);
	if (rc)
		return rc;
	randombytes_buf(bytes + INVITE_BYTES, SEED_BYTES);
	crypto_sign_ed25519_seed_keypair(v->key, secret, bytes + INVITE_BYTES);
	invite_sign(v, owner_secret, bytes);
	rc = create_line(path, INVITE_PREFIX, bytes, sizeof bytes, e);
	sodium_memzero(bytes, sizeof bytes);
	sodium_memzero(secret, sizeof secret);
	return rc;
}

int invite_load(const char *path, uint8_t out[INVITE_FILE_BYTES], struct err *e)
{
	return load_line(out, INVITE_FILE_BYTES, INVITE_PREFIX, path, e);
}

int invite_save(const char *path, const uint8_t bytes[INVITE_FILE_BYTES], struct err *e)
{
	char line[KEYFILE_LINE_MAX];
	keyfile_encode(line, INVITE_PREFIX, bytes, INVITE_FILE_BYTES);
	int rc = file_replace(path, 0600, write_text, line, e);
	sodium_memzero(line, sizeof line);
	return rc;
}

int invite_use(const char *path, const struct peer_id *id,
        const uint8_t id_secret[SIGN_SECRET_BYTES], uint8_t out[CERTIFICATE_BYTES], struct err *e)
{
	uint8_t bytes[INVITE_FILE_BYTES], secret[SIGN_SECRET_BYTES], key[SIGN_PUBLIC_BYTES];
	int rc = invite_load(path, bytes, e);
	if (rc == 0) {
		crypto_sign_ed25519_seed_keypair(key, secret, bytes + INVITE_BYTES);
		certificate_sign(bytes, secret, id, id_secret, out);
	}
	sodium_memzero(bytes, sizeof bytes);
	sodium_memzero(secret, sizeof secret);
	return rc;
}

/* ---- certificates */

int certificate_load(const char *path, uint8_t out[CERTIFICATE_BYTES], struct err *e)
{
	return load_line(out, CERTIFICATE_BYTES, CERTIFICATE_PREFIX, path, e);
}

int certificate_save(const char *path, const uint8_t bytes[CERTIFICATE_BYTES], struct err *e)
{
	char line[KEYFILE_LINE_MAX];
	keyfile_encode(line, CERTIFICATE_PREFIX, bytes, CERTIFICATE_BYTES);
	return file_replace(path, 0600, write_text, line, e);
}

/* ---- revocations */

int revocations_save(const char *path, const struct revocations_text *r, struct err *e)
{
	char line[REVOKED_CHARS_MAX] = REVOKED_PREFIX;
	size_t at = strlen(REVOKED_PREFIX);
	sodium_bin2base64(line + at, sizeof line - at - 1, r->bytes, r->len, VARIANT);
	memcpy(line + strlen(line), "\n", 2);
	return file_replace(path, 0644, write_text, line, e);
}

int revocations_load(const char *path, struct revocations_text *out, struct err *e)
{
	struct buf b;
	size_t at = strlen(REVOKED_PREFIX);
	out->len = 0;
	int rc = start_sodium(e);
	if (rc)
		return rc;
	if (access(path, F_OK) && errno == ENOENT)
		return err_set(e, ERR_NOTFOUND, "there is no %s", path);
	buf_init(&b, REVOKED_CHARS_MAX);
	rc = file_read(&b, path, e);
	size_t len = b.data ? trimmed(b.data, b.len) : 0;
	if (rc == 0 && (len <= at || memcmp(b.data, REVOKED_PREFIX, at) != 0 ||
	                       sodium_base642bin(out->bytes, sizeof out->bytes, b.data + at,
	                               len - at, NULL, &out->len, NULL, VARIANT)))
		rc = err_set(e, ERR_FORMAT,
		        "%s is no list of revoked agents: it should begin with %s", path,
		        REVOKED_PREFIX);
	buf_close(&b);
	return rc;
}
