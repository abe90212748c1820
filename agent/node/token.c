/* SPDX-License-Identifier: MIT */
/* The happy path: white space is dropped, base64 becomes bytes, the checksum fits, and each field
 * is taken off the front; in the end nothing is left. A text has one form only: what is printed
 * again is the same.
 *
 * What can fail: it is cut, mistyped, of a later version or no token at all. A secret is in stack
 * memory that is wiped. */
#include "agent/node/token.h"

#include "agent/config/hostport.h"
#include "net/crypto/keyfile.h"

#include <assert.h>
#include <ctype.h>
#include <sodium.h>
#include <string.h>

#define PREFIX "dunlin"
#define TOKEN_VERSION '1'
_Static_assert(TOKEN_FILE_MAX == KEYFILE_BYTES_MAX && TOKEN_TEXT_MAX < TOKEN_FILE_MAX, "alike");
_Static_assert(UINT8_MAX < LIMIT_HOST_PORT && LIMIT_NAME <= UINT8_MAX, "lengths have a byte");
#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING

enum { HAS_SECRET = 1, HAS_OWNER = 2, HAS_INVITE = 4, HAS_ALL = 7 };

bool token_is_secret(const struct token *t)
{
	return t->has_secret || t->has_invite;
}

void token_wipe(struct token *t)
{
	sodium_memzero(t, sizeof *t);
}

void token_add_seed(struct token *t, const char *seed)
{
	for (int i = 0; i < t->n_seeds; i++)
		if (strcmp(t->seed[i], seed) == 0)
			return;
	size_t n = strlen(seed);
	if (t->n_seeds < TOKEN_SEEDS_MAX && n > 0 && n <= UINT8_MAX)
		memcpy(t->seed[t->n_seeds++], seed, n + 1);
}

static void checksum(uint8_t out[TOKEN_CHECKSUM], const uint8_t *bytes, size_t n)
{
	static const uint8_t domain[] = "dunlin1";
	crypto_generichash_state st;
	uint8_t hash[crypto_generichash_BYTES];
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, domain, sizeof domain);
	crypto_generichash_update(&st, bytes, n);
	crypto_generichash_final(&st, hash, sizeof hash);
	memcpy(out, hash, TOKEN_CHECKSUM);
	sodium_memzero(&st, sizeof st);
	sodium_memzero(hash, sizeof hash);
}

/* ---- out */

static uint8_t *put(uint8_t *to, const void *from, size_t n)
{
	memcpy(to, from, n);
	return to + n;
}

static uint8_t *put_text(uint8_t *to, const char *text)
{
	size_t n = strlen(text);
	assert(n <= UINT8_MAX);
	*to++ = (uint8_t)n;
	return put(to, text, n);
}

void token_print(const struct token *t, char out[TOKEN_TEXT_MAX])
{
	uint8_t bytes[TOKEN_BYTES_MAX], *at = bytes;
	assert(t->n_seeds <= TOKEN_SEEDS_MAX && (t->has_owner || !t->has_invite));
	*at++ = (uint8_t)((t->has_secret ? HAS_SECRET : 0) | (t->has_owner ? HAS_OWNER : 0) |
	                  (t->has_invite ? HAS_INVITE : 0));
	at = put(at, t->flock, sizeof t->flock);
	at = put(at, t->hash, sizeof t->hash);
	if (t->has_secret)
		at = put(at, t->secret, sizeof t->secret);
	if (t->has_owner)
		at = put(at, t->owner.key, sizeof t->owner.key);
	if (t->has_invite)
		at = put(at, t->invite, sizeof t->invite);
	at = put_text(at, t->run);
	*at++ = (uint8_t)t->n_seeds;
	for (int i = 0; i < t->n_seeds; i++)
		at = put_text(at, t->seed[i]);
	size_t n = (size_t)(at - bytes);
	checksum(at, bytes, n);
	strcpy(out, PREFIX);
	out[strlen(PREFIX)] = TOKEN_VERSION;
	sodium_bin2base64(out + strlen(PREFIX) + 1, TOKEN_TEXT_MAX - strlen(PREFIX) - 1, bytes,
	        n + TOKEN_CHECKSUM, VARIANT);
	sodium_memzero(bytes, sizeof bytes);
}

/* ---- in */

struct reader {
	const uint8_t *at, *end; /* borrowed */
};

static bool take(struct reader *r, void *out, size_t n)
{
	if ((size_t)(r->end - r->at) < n)
		return false;
	memcpy(out, r->at, n);
	r->at += n;
	return true;
}

/* A text with its length before it, and no NUL in it; size: of the array. */
static bool take_text(struct reader *r, char *out, size_t size)
{
	uint8_t n;
	if (!take(r, &n, 1) || n >= size || !take(r, out, n))
		return false;
	out[n] = '\0';
	return strlen(out) == n;
}

static bool take_seed(struct reader *r, struct token *t)
{
	struct hostport h;
	int before = t->n_seeds;
	char seed[LIMIT_HOST_PORT];
	if (!take_text(r, seed, sizeof seed))
		return false;
	for (const char *p = seed; *p; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	if (hostport_parse(seed, &h, NULL) || !h.host[0] || h.port == 0)
		return false;
	token_add_seed(t, seed);
	return t->n_seeds == before + 1;
}

static bool take_all(struct token *t, const uint8_t *bytes, size_t n)
{
	struct reader r = {bytes, bytes + n};
	uint8_t flags, seeds;
	if (!take(&r, &flags, 1) || flags & ~HAS_ALL ||
	        (flags & HAS_INVITE && !(flags & HAS_OWNER)))
		return false;
	t->has_secret = flags & HAS_SECRET;
	t->has_owner = flags & HAS_OWNER;
	t->has_invite = flags & HAS_INVITE;
	if (!take(&r, t->flock, sizeof t->flock) || !take(&r, t->hash, sizeof t->hash))
		return false;
	if ((t->has_secret && !take(&r, t->secret, sizeof t->secret)) ||
	        (t->has_owner && !take(&r, t->owner.key, sizeof t->owner.key)) ||
	        (t->has_invite && !take(&r, t->invite, sizeof t->invite)))
		return false;
	if (!take_text(&r, t->run, sizeof t->run) || !take(&r, &seeds, 1) ||
	        seeds > TOKEN_SEEDS_MAX)
		return false;
	for (int i = 0; i < seeds; i++)
		if (!take_seed(&r, t))
			return false;
	return r.at == r.end;
}

/* The secret, if there is one, must be that flock's. */
static bool of_its_flock(const struct token *t)
{
	struct flock_id flock;
	if (!t->has_secret)
		return true;
	flock_of(&flock, t->secret);
	return memcmp(flock.bytes, t->flock, sizeof t->flock) == 0;
}

static int wrong_beginning(const char *text, size_t len, struct err *e)
{
	size_t n = strlen(PREFIX);
	if (len > n && memcmp(text, PREFIX, n) == 0 && isdigit((unsigned char)text[n]))
		return err_set(e, ERR_UNSUPPORTED,
		        "a token of another version of Dunlin: this one reads %s%c…", PREFIX,
		        TOKEN_VERSION);
	if (len > n && memcmp(text, PREFIX "-", n + 1) == 0)
		return err_set(e, ERR_FORMAT,
		        "a key or an invite, and no token: `dunlin invite` prints one");
	return err_set(
	        e, ERR_FORMAT, "not a token: it should begin with %s%c", PREFIX, TOKEN_VERSION);
}

static int parse(struct token *t, const char *text, size_t len, struct err *e)
{
	uint8_t bytes[TOKEN_BYTES_MAX], sum[TOKEN_CHECKSUM];
	const char *begin = text + strlen(PREFIX) + 1;
	size_t n = 0;
	int rc = 0;
	if (len < strlen(PREFIX) + 1 || memcmp(text, PREFIX "1", strlen(PREFIX) + 1) != 0)
		return wrong_beginning(text, len, e);
	if (sodium_base642bin(bytes, sizeof bytes, begin, (size_t)(text + len - begin), NULL, &n,
	            NULL, VARIANT) ||
	        n <= TOKEN_CHECKSUM) {
		rc = err_set(e, ERR_FORMAT, "the token is damaged: copy all of it");
		goto out;
	}
	n -= TOKEN_CHECKSUM;
	checksum(sum, bytes, n);
	if (memcmp(sum, bytes + n, sizeof sum) != 0)
		rc = err_set(e, ERR_FORMAT,
		        "the token is damaged, its checksum does not fit: copy all of it");
	else if (!take_all(t, bytes, n) || !of_its_flock(t))
		rc = err_set(e, ERR_FORMAT,
		        "the token is not one that Dunlin makes, though its checksum fits");
out:
	sodium_memzero(bytes, sizeof bytes);
	return rc;
}

int token_parse(struct token *out, const char *text, size_t len, struct err *e)
{
	char dense[TOKEN_TEXT_MAX];
	size_t n = 0;
	int rc = 0;
	*out = (struct token){0};
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "libsodium does not start");
	for (size_t i = 0; i < len && rc == 0; i++)
		if (isspace((unsigned char)text[i]))
			continue;
		else if (n == sizeof dense)
			rc = err_set(e, ERR_LIMIT, "longer than any token: copy it alone");
		else
			dense[n++] = text[i];
	if (rc == 0)
		rc = parse(out, dense, n, e);
	sodium_memzero(dense, sizeof dense);
	if (rc)
		token_wipe(out);
	return rc;
}

int token_load(struct token *out, const char *path, struct err *e)
{
	char *text;
	size_t len;
	int rc = keyfile_read(path, KEYFILE_OURS_OR_ROOTS, &text, &len, e);
	*out = (struct token){0};
	if (rc)
		return rc;
	rc = token_parse(out, text, len, e);
	sodium_free(text);
	return rc;
}

int token_create(const char *path, const char *line, struct err *e)
{
	return keyfile_create(path, line, e);
}

int token_check_invite(const struct token *t, uint64_t now_s, struct err *e)
{
	struct invite v;
	if (!t->has_invite)
		return 0;
	int rc = invite_verify(&v, t->invite, INVITE_BYTES, &t->owner, now_s, e);
	return rc ? err_prefix(e, "the invite in the token") : 0;
}
