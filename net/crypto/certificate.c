/* SPDX-License-Identifier: MIT */
/* Layouts have a fixed place for every field, so that there is nothing to parse: a length is right
 * or wrong, and each field is in its range or not. What has a range is checked before a signature
 * is, since that costs a thousand times more.
 *
 * The owner's key is in no layout: it signs, and who checks knows it. So a certificate of another
 * owner is told from a forged one by nobody; the words name both. */
#include "net/crypto/certificate.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define INVITE_DOMAIN "dunlin invite v1"
#define CERTIFICATE_DOMAIN "dunlin certificate v1"
#define CERTIFIED_DOMAIN "dunlin certified v1"
#define REVOKED_DOMAIN "dunlin revoked v1"
#define DOMAIN_MAX 32
#define SIGNATURE 64

enum { INVITE_KEY = LABEL_BYTES, INVITE_EXPIRES = 64, INVITE_AGENTS = 72, INVITE_RATE = 76 };
#define INVITE_SIGNED (INVITE_BYTES - SIGNATURE)
#define ID_SIGNED (CERTIFICATE_BYTES - SIGNATURE)  /* by the id */
#define CERTIFICATE_SIGNED (ID_SIGNED - SIGNATURE) /* by the invite's key */
enum { REVOKED_EXPIRES = 8, REVOKED_COUNT = 16, REVOKED_FIRST = 18, REVOKED_ENTRY = 33 };

_Static_assert(INVITE_RATE + 8 == INVITE_SIGNED, "as drawn");
_Static_assert(INVITE_BYTES + 32 == CERTIFICATE_SIGNED, "as drawn");
_Static_assert(SIGN_PUBLIC_BYTES == crypto_sign_ed25519_PUBLICKEYBYTES &&
                       SIGN_SECRET_BYTES == crypto_sign_ed25519_SECRETKEYBYTES &&
                       SIGNATURE == crypto_sign_ed25519_BYTES,
        "as Ed25519 has it");

static void put_number(uint8_t *out, uint64_t x, int bytes)
{
	for (int i = 0; i < bytes; i++)
		out[i] = (uint8_t)(x >> 8 * i);
}

static uint64_t get_number(const uint8_t *in, int bytes)
{
	uint64_t x = 0;
	for (int i = 0; i < bytes; i++)
		x |= (uint64_t)in[i] << 8 * i;
	return x;
}

/* What is signed: the domain with its NUL, then the bytes. */
#define TEXT_MAX (DOMAIN_MAX + REVOCATIONS_BYTES(REVOKED_MAX))

static size_t signed_text(uint8_t out[TEXT_MAX], const char *domain, const uint8_t *bytes, size_t n)
{
	size_t d = strlen(domain) + 1;
	assert(d <= DOMAIN_MAX && d + n <= TEXT_MAX);
	memcpy(out, domain, d);
	memcpy(out + d, bytes, n);
	return d + n;
}

/* Signs the n bytes at out; the signature follows them. */
static void sign(const char *domain, uint8_t *out, size_t n, const uint8_t *secret)
{
	uint8_t text[TEXT_MAX];
	size_t len = signed_text(text, domain, out, n);
	crypto_sign_ed25519_detached(out + n, NULL, text, len, secret);
}

static bool is_signed(const char *domain, const uint8_t *bytes, size_t n, const uint8_t *key)
{
	uint8_t text[TEXT_MAX];
	size_t len = signed_text(text, domain, bytes, n);
	return crypto_sign_ed25519_verify_detached(bytes + n, text, len, key) == 0;
}

/* ---- labels */

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '-' || c == '_';
}

int label_check(const char *label, struct err *e)
{
	size_t n = strnlen(label, LABEL_BYTES);
	bool good = n > 0 && n < LABEL_BYTES;
	for (size_t i = 0; i < n; i++)
		good = good && is_letter(label[i]);
	return good ? 0
	            : err_set(e, ERR_INVALID,
	                      "a label has 1 to %d characters: letters, digits, dots, - and _",
	                      LABEL_BYTES - 1);
}

/* Of LABEL_BYTES: nothing but NULs after the first. */
static bool label_padded(const uint8_t *bytes)
{
	bool ended = false;
	if (label_check((const char *)bytes, NULL))
		return false;
	for (int i = 0; i < LABEL_BYTES; i++) {
		if (ended && bytes[i])
			return false;
		ended = ended || !bytes[i];
	}
	return true;
}

/* ---- invites */

void invite_sign(const struct invite *v, const uint8_t owner_secret[SIGN_SECRET_BYTES],
        uint8_t out[INVITE_BYTES])
{
	assert(label_check(v->label, NULL) == 0 && v->expires_s > 0);
	assert(v->agents >= 1 && v->agents <= INVITE_AGENTS_MAX && v->rate <= INVITE_RATE_MAX);
	memset(out, 0, INVITE_BYTES);
	memcpy(out, v->label, strlen(v->label));
	memcpy(out + INVITE_KEY, v->key, sizeof v->key);
	put_number(out + INVITE_EXPIRES, v->expires_s, 8);
	put_number(out + INVITE_AGENTS, v->agents, 4);
	put_number(out + INVITE_RATE, v->rate, 8);
	sign(INVITE_DOMAIN, out, INVITE_SIGNED, owner_secret);
}

int invite_read(struct invite *out, const uint8_t *bytes, size_t len)
{
	*out = (struct invite){0};
	if (len != INVITE_BYTES || !label_padded(bytes))
		return ERR_FORMAT;
	memcpy(out->label, bytes, LABEL_BYTES);
	memcpy(out->key, bytes + INVITE_KEY, sizeof out->key);
	out->expires_s = get_number(bytes + INVITE_EXPIRES, 8);
	out->agents = (uint32_t)get_number(bytes + INVITE_AGENTS, 4);
	out->rate = get_number(bytes + INVITE_RATE, 8);
	if (out->expires_s == 0 || out->agents < 1 || out->agents > INVITE_AGENTS_MAX ||
	        out->rate > INVITE_RATE_MAX)
		return ERR_FORMAT;
	return 0;
}

int invite_verify(struct invite *out, const uint8_t *bytes, size_t len, const struct owner *owner,
        uint64_t now_s, struct err *e)
{
	if (invite_read(out, bytes, len))
		return err_set(e, ERR_FORMAT, "the invite is malformed");
	if (!is_signed(INVITE_DOMAIN, bytes, INVITE_SIGNED, owner->key))
		return err_set(e, ERR_MISMATCH,
		        "the invite of label %s is not signed by this owner: it is forged, or "
		        "another owner's",
		        out->label);
	if (now_s >= out->expires_s)
		return err_set(e, ERR_STALE, "the invite of label %s has expired", out->label);
	return 0;
}

/* ---- certificates */

void certificate_sign(const uint8_t invite[INVITE_BYTES],
        const uint8_t invite_secret[SIGN_SECRET_BYTES], const struct peer_id *id,
        const uint8_t id_secret[SIGN_SECRET_BYTES], uint8_t out[CERTIFICATE_BYTES])
{
	memcpy(out, invite, INVITE_BYTES);
	memcpy(out + INVITE_BYTES, id->bytes, sizeof id->bytes);
	sign(CERTIFICATE_DOMAIN, out, CERTIFICATE_SIGNED, invite_secret);
	sign(CERTIFIED_DOMAIN, out, ID_SIGNED, id_secret);
}

int certificate_read(struct certificate *out, const uint8_t *bytes, size_t len)
{
	*out = (struct certificate){0};
	if (len != CERTIFICATE_BYTES || invite_read(&out->invite, bytes, INVITE_BYTES))
		return ERR_FORMAT;
	memcpy(out->id.bytes, bytes + INVITE_BYTES, sizeof out->id.bytes);
	return 0;
}

int certificate_verify_id(const uint8_t bytes[CERTIFICATE_BYTES])
{
	const uint8_t *key = bytes + INVITE_KEY, *id = bytes + INVITE_BYTES;
	return is_signed(CERTIFICATE_DOMAIN, bytes, CERTIFICATE_SIGNED, key) &&
	                       is_signed(CERTIFIED_DOMAIN, bytes, ID_SIGNED, id)
	               ? 0
	               : ERR_MISMATCH;
}

int certificate_verify(struct certificate *out, const uint8_t *bytes, size_t len,
        const struct owner *owner, uint64_t now_s, struct err *e)
{
	if (certificate_read(out, bytes, len))
		return err_set(e, ERR_FORMAT, "the certificate is malformed");
	int rc = invite_verify(&out->invite, bytes, INVITE_BYTES, owner, now_s, e);
	if (rc)
		return rc;
	if (certificate_verify_id(bytes))
		return err_set(e, ERR_MISMATCH,
		        "the certificate is not signed by both the invite of label %s and the id: "
		        "it is forged",
		        out->invite.label);
	return 0;
}

/* ---- what is revoked */

size_t revocations_sign(const struct revocations *r, const uint8_t owner_secret[SIGN_SECRET_BYTES],
        uint8_t out[REVOCATIONS_BYTES(REVOKED_MAX)])
{
	uint8_t *at = out + REVOKED_FIRST;
	assert(r->version > 0 && r->expires_s > 0 && r->n <= REVOKED_MAX);
	put_number(out, r->version, 8);
	put_number(out + REVOKED_EXPIRES, r->expires_s, 8);
	put_number(out + REVOKED_COUNT, r->n, 2);
	for (int i = 0; i < r->n; i++, at += REVOKED_ENTRY) {
		assert(r->entry[i].kind == REVOKED_ID || label_padded(r->entry[i].name));
		at[0] = r->entry[i].kind;
		memcpy(at + 1, r->entry[i].name, sizeof r->entry[i].name);
	}
	sign(REVOKED_DOMAIN, out, (size_t)(at - out), owner_secret);
	return (size_t)(at - out) + SIGNATURE;
}

static int revocations_read(struct revocations *out, const uint8_t *bytes, size_t len)
{
	*out = (struct revocations){0};
	if (len < REVOCATIONS_BYTES(0) || len > REVOCATIONS_BYTES(REVOKED_MAX))
		return ERR_FORMAT;
	uint16_t n = (uint16_t)get_number(bytes + REVOKED_COUNT, 2);
	if (n > REVOKED_MAX || len != REVOCATIONS_BYTES(n))
		return ERR_FORMAT;
	out->version = get_number(bytes, 8);
	out->expires_s = get_number(bytes + REVOKED_EXPIRES, 8);
	for (; out->n < n; out->n++) {
		const uint8_t *at = bytes + REVOKED_FIRST + REVOKED_ENTRY * out->n;
		if (at[0] > REVOKED_ID || (at[0] == REVOKED_LABEL && !label_padded(at + 1)))
			return ERR_FORMAT;
		out->entry[out->n].kind = at[0];
		memcpy(out->entry[out->n].name, at + 1, sizeof out->entry[0].name);
	}
	return out->version > 0 && out->expires_s > 0 ? 0 : ERR_FORMAT;
}

int revocations_verify(struct revocations *out, const uint8_t *bytes, size_t len,
        const struct owner *owner, uint64_t now_s, struct err *e)
{
	if (revocations_read(out, bytes, len))
		return err_set(e, ERR_FORMAT, "the list of revoked agents is malformed");
	if (!is_signed(REVOKED_DOMAIN, bytes, len - SIGNATURE, owner->key))
		return err_set(e, ERR_MISMATCH,
		        "the list of revoked agents is not signed by this owner: it is forged, or "
		        "another owner's");
	if (now_s >= out->expires_s)
		return err_set(e, ERR_STALE, "the list of revoked agents has expired");
	return 0;
}

uint64_t revocations_version(const uint8_t *bytes, size_t len)
{
	return len < REVOKED_EXPIRES ? 0 : get_number(bytes, 8);
}

bool revocations_have(
        const struct revocations *r, const struct invite *invite, const struct peer_id *id)
{
	_Static_assert(LABEL_BYTES == sizeof r->entry[0].name, "a label is compared whole");
	for (int i = 0; i < r->n; i++) {
		const struct revoked_entry *x = &r->entry[i];
		const void *name = x->kind == REVOKED_LABEL ? (const void *)invite->label
		                   : id                     ? (const void *)id->bytes
		                                            : NULL;
		if (name && memcmp(x->name, name, sizeof x->name) == 0)
			return true;
	}
	return false;
}
