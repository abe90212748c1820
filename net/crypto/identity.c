/* SPDX-License-Identifier: MIT */
/* The identity's files.
 *
 * The key file is written once and only read afterwards, so it can only be lost, not damaged by us.
 * The generation is written before the agent says its first word: a crash costs a number, and no
 * two starts ever have the same one. What fails is the disk, the permissions, or a file that
 * somebody edited; the message says which, and what to do. */
#include "net/crypto/identity.h"

#include "agent/base/buf.h"
#include "net/crypto/keyfile.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "dunlin-identity-1:"
#define STATIC_DOMAIN "dunlin noise static v1" /* the NUL belongs to it */
#define SEED_BYTES crypto_sign_ed25519_SEEDBYTES
#define GENERATION_BYTES_MAX 32 /* of the file */

struct identity_secrets {
	uint8_t file[SEED_BYTES + STATIC_BYTES]; /* the seed of the identity, the static secret */
	uint8_t sign[crypto_sign_ed25519_SECRETKEYBYTES]; /* from the seed */
};

_Static_assert(sizeof(((struct identity_secrets *)0)->file) <= KEYFILE_KEY_MAX, "must fit");
_Static_assert(sizeof(struct peer_id) == crypto_sign_ed25519_PUBLICKEYBYTES, "an id is a key");
_Static_assert(SIGNATURE_BYTES == crypto_sign_ed25519_BYTES, "as Ed25519 has it");
_Static_assert(STATIC_BYTES == crypto_scalarmult_curve25519_BYTES, "as X25519 has it");

const uint8_t *identity_static_secret(const struct identity *i)
{
	return i->secrets->file + SEED_BYTES;
}

void identity__sign(const struct identity *i, const uint8_t *bytes, size_t len,
        uint8_t signature[SIGNATURE_BYTES])
{
	crypto_sign_ed25519_detached(signature, NULL, bytes, len, i->secrets->sign);
}

#define STATIC_SIGNED (sizeof STATIC_DOMAIN + STATIC_BYTES)

static void static_bytes(uint8_t out[STATIC_SIGNED], const uint8_t static_public[STATIC_BYTES])
{
	memcpy(out, STATIC_DOMAIN, sizeof STATIC_DOMAIN);
	memcpy(out + sizeof STATIC_DOMAIN, static_public, STATIC_BYTES);
}

const uint8_t *identity_sign_secret(const struct identity *i)
{
	return i->secrets->sign;
}

int identity_verify_static(const struct peer_id *id, const uint8_t static_public[STATIC_BYTES],
        const uint8_t signature[SIGNATURE_BYTES])
{
	uint8_t bytes[STATIC_SIGNED];
	static_bytes(bytes, static_public);
	return crypto_sign_ed25519_verify_detached(signature, bytes, sizeof bytes, id->bytes)
	               ? ERR_MISMATCH
	               : 0;
}

/* ---- the key file */

static int create_key(struct identity *i, const char *path, struct err *e)
{
	char line[KEYFILE_LINE_MAX];
	randombytes_buf(i->secrets->file, sizeof i->secrets->file);
	keyfile_encode(line, PREFIX, i->secrets->file, sizeof i->secrets->file);
	int rc = keyfile_create(path, line, e);
	sodium_memzero(line, sizeof line);
	return rc;
}

static int load_key(struct identity *i, const char *path, struct err *e)
{
	char *text;
	size_t len;
	int rc = keyfile_read(path, KEYFILE_OURS, &text, &len, e);
	if (rc == ERR_NOTFOUND)
		return create_key(i, path, e);
	if (rc)
		return rc;
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	rc = keyfile_decode(i->secrets->file, sizeof i->secrets->file, PREFIX, text, len, e);
	sodium_free(text);
	if (rc)
		return err_set(e, rc,
		        "%s is damaged: restore it from a copy, or remove it to become a new agent",
		        path);
	return 0;
}

/* The public halves, and the signature of one by the other. */
static int derive(struct identity *i, struct err *e)
{
	uint8_t bytes[STATIC_SIGNED];
	crypto_sign_ed25519_seed_keypair(i->id.bytes, i->secrets->sign, i->secrets->file);
	if (crypto_scalarmult_curve25519_base(i->static_public, identity_static_secret(i)))
		return err_set(e, ERR_SYSTEM, "libsodium does not make a key");
	static_bytes(bytes, i->static_public);
	identity__sign(i, bytes, sizeof bytes, i->static_signature);
	return 0;
}

/* ---- the generation */

static int write_number(int fd, void *arg, struct err *e)
{
	char text[GENERATION_BYTES_MAX];
	int n = snprintf(text, sizeof text, "%" PRIu64 "\n", *(const uint64_t *)arg);
	return file_write_all(fd, text, (size_t)n, e);
}

/* 0 when there is no such file. */
static int read_generation(const char *path, uint64_t *out, struct err *e)
{
	struct buf b;
	char *end;
	*out = 0;
	if (access(path, F_OK) && errno == ENOENT)
		return 0;
	buf_init(&b, GENERATION_BYTES_MAX);
	int rc = file_read(&b, path, e);
	if (rc == 0 || rc == ERR_LIMIT) {
		errno = 0;
		*out = b.len ? strtoull(b.data, &end, 10) : 0;
		if (b.len == 0 || !isdigit((unsigned char)*b.data) || errno || *out == UINT64_MAX ||
		        (*end != '\n' && *end != '\0') || b.len > (size_t)(end - b.data) + 1)
			rc = err_set(e, ERR_FORMAT,
			        "%s holds no number: remove it, peers will tell the last one",
			        path);
	}
	buf_close(&b);
	return rc;
}

static int file_in(char out[PATH_MAX], const char *dir, const char *name, struct err *e)
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);
	return n < PATH_MAX ? 0
	                    : err_set(e, ERR_LIMIT, "the path of the state directory is too long");
}

int identity_set_generation(struct identity *i, const char *dir, uint64_t generation, struct err *e)
{
	char path[PATH_MAX];
	int rc = file_in(path, dir, "generation", e);
	if (rc == 0)
		rc = file_replace(path, 0600, write_number, &generation, e);
	if (rc == 0)
		i->generation = generation;
	return rc;
}

static int raise_generation(struct identity *i, const char *dir, struct err *e)
{
	char path[PATH_MAX];
	uint64_t last;
	int rc = file_in(path, dir, "generation", e);
	if (rc == 0)
		rc = read_generation(path, &last, e);
	return rc ? rc : identity_set_generation(i, dir, last + 1, e);
}

int identity_open(struct identity *i, const char *dir, struct err *e)
{
	char path[PATH_MAX];
	*i = (struct identity){0};
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "libsodium does not start");
	i->secrets = sodium_malloc(sizeof *i->secrets);
	if (!i->secrets)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	int rc = file_mkdirs(dir, e);
	if (rc == 0)
		rc = file_in(path, dir, "identity.key", e);
	if (rc == 0)
		rc = load_key(i, path, e);
	if (rc == 0)
		rc = derive(i, e);
	if (rc == 0)
		rc = raise_generation(i, dir, e);
	if (rc)
		identity_close(i);
	else
		sodium_mprotect_readonly(i->secrets);
	return rc;
}

int identity_look(struct peer_id *id, const char *dir, struct err *e)
{
	char path[PATH_MAX];
	struct identity i = {0};
	int rc = file_in(path, dir, "identity.key", e);
	if (rc == 0 && access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
		return err_set(e, ERR_NOTFOUND, "there is no %s", path);
	if (rc == 0 && sodium_init() < 0)
		rc = err_set(e, ERR_SYSTEM, "libsodium does not start");
	i.secrets = rc ? NULL : sodium_malloc(sizeof *i.secrets);
	if (rc == 0 && !i.secrets)
		rc = err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	if (rc == 0)
		rc = load_key(&i, path, e);
	if (rc == 0)
		rc = derive(&i, e);
	*id = i.id;
	identity_close(&i);
	return rc;
}

void identity_close(struct identity *i)
{
	sodium_free(i->secrets); /* wipes; takes NULL */
	*i = (struct identity){0};
}
