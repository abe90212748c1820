/* SPDX-License-Identifier: MIT */
/* The token that joins a run: what is printed is read back, and nothing else is. */
#include "agent/node/token.h"
#include "tests/support.h"

#include "agent/base/rng.h"

#include <sodium.h>
#include <string.h>

static struct token whole(void)
{
	struct token t = {.has_secret = true, .has_owner = true, .has_invite = true};
	struct flock_id flock;
	for (size_t i = 0; i < sizeof t.secret; i++)
		t.secret[i] = (uint8_t)(i * 5 + 1);
	flock_of(&flock, t.secret);
	memcpy(t.flock, flock.bytes, sizeof t.flock);
	memset(t.hash, 7, sizeof t.hash);
	memset(t.owner.key, 8, sizeof t.owner.key);
	memset(t.invite, 9, sizeof t.invite);
	strcpy(t.run, "fashion \xc3\xbc");
	token_add_seed(&t, "192.168.1.10:13865");
	token_add_seed(&t, "[2001:db8::5]:1");
	token_add_seed(&t, "heron.example");
	return t;
}

static void expect(const char *text, size_t len, int code, const char *words)
{
	struct token t;
	struct err e = {0};
	const struct token zero = {0};
	assert_int_equal(token_parse(&t, text, len, &e), code);
	if (!strstr(e.msg, words))
		fail_msg("\"%s\", not \"%s\"", e.msg, words);
	assert_memory_equal(&t, &zero, sizeof t);
}

static void test_round_trip(void **state)
{
	(void)state;
	for (int kinds = 0; kinds < 8; kinds++) {
		struct token t = whole(), back;
		struct err e;
		char text[TOKEN_TEXT_MAX], again[TOKEN_TEXT_MAX];
		t.has_secret = kinds & 1;
		t.has_invite = kinds & 2;
		t.has_owner = kinds & 6;
		if (!t.has_secret)
			memset(t.secret, 0, sizeof t.secret);
		if (!t.has_owner)
			memset(&t.owner, 0, sizeof t.owner);
		if (!t.has_invite)
			memset(t.invite, 0, sizeof t.invite);
		assert_int_equal(token_is_secret(&t), (kinds & 3) != 0);
		token_print(&t, text);
		assert_int_equal(strncmp(text, "dunlin1", 7), 0);
		assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		                              "0123456789-_"),
		        strlen(text));
		assert_int_equal(token_parse(&back, text, strlen(text), &e), 0);
		assert_memory_equal(&back, &t, sizeof t);
		token_print(&back, again);
		assert_string_equal(again, text);
	}
}

static void test_the_longest(void **state)
{
	struct token t = whole(), back;
	struct err e;
	char text[TOKEN_TEXT_MAX], seed[LIMIT_HOST_PORT];
	(void)state;
	memset(t.run, 'r', sizeof t.run - 1);
	t.n_seeds = 0;
	for (int i = 0; i < TOKEN_SEEDS_MAX + 1; i++) {
		memset(seed, 'a' + i, sizeof seed);
		strcpy(seed + 249, ":65535");
		token_add_seed(&t, seed);
		token_add_seed(&t, seed); /* twice is once */
		assert_int_equal(t.n_seeds, i < TOKEN_SEEDS_MAX ? i + 1 : TOKEN_SEEDS_MAX);
	}
	memset(seed, 'z', sizeof seed - 1);
	seed[sizeof seed - 1] = '\0';
	t.n_seeds--;
	token_add_seed(&t, seed); /* longer than a length can say */
	assert_int_equal(t.n_seeds, TOKEN_SEEDS_MAX - 1);
	t.n_seeds++;
	token_print(&t, text);
	assert_int_equal(token_parse(&back, text, strlen(text), &e), 0);
	assert_memory_equal(&back, &t, sizeof t);
}

/* As mail and terminals do. */
static void test_broken_lines(void **state)
{
	struct token t = whole(), back;
	struct err e;
	char text[TOKEN_TEXT_MAX], broken[3 * TOKEN_TEXT_MAX];
	size_t n = 0;
	(void)state;
	token_print(&t, text);
	broken[n++] = '\n';
	for (size_t i = 0; text[i]; i++) {
		broken[n++] = text[i];
		if (i % 60 == 59) {
			memcpy(broken + n, "\r\n\t ", 4);
			n += 4;
		}
	}
	assert_int_equal(token_parse(&back, broken, n, &e), 0);
	assert_memory_equal(&back, &t, sizeof t);
}

static void test_any_damage_is_noticed(void **state)
{
	struct token t = whole(), back;
	char text[TOKEN_TEXT_MAX], bad[TOKEN_TEXT_MAX];
	(void)state;
	token_print(&t, text);
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++) {
		strcpy(bad, text);
		bad[i] = bad[i] == 'A' ? 'B' : 'A';
		assert_int_not_equal(token_parse(&back, bad, len, NULL), 0);
		assert_int_not_equal(token_parse(&back, text, i, NULL), 0);
	}
	expect(text, len - 5, ERR_FORMAT, "damaged");
	strcpy(bad, text);
	strcat(bad, "AAAA");
	expect(bad, len + 4, ERR_FORMAT, "damaged");
}

static void test_what_is_no_token(void **state)
{
	char longest[TOKEN_TEXT_MAX + 1];
	(void)state;
	expect("", 0, ERR_FORMAT, "not a token: it should begin with dunlin1");
	expect("dunlin1", 7, ERR_FORMAT, "damaged");
	expect("dunlin2AAAA", 11, ERR_UNSUPPORTED, "another version");
	expect("dunlin-flock-1:AAAA", 19, ERR_FORMAT, "a key or an invite, and no token");
	expect("hello", 5, ERR_FORMAT, "should begin with");
	expect("dunlin1\0AAAAAAAA", 16, ERR_FORMAT, "damaged");
	memset(longest, 'A', sizeof longest);
	expect(longest, sizeof longest, ERR_LIMIT, "longer than any token");
}

/* The checksum fits, but it is not what Dunlin would print. */
static void forge(const uint8_t *bytes, size_t n)
{
	static const uint8_t domain[] = "dunlin1";
	uint8_t all[200], hash[32];
	char text[400] = "dunlin1";
	crypto_generichash_state st;
	memcpy(all, bytes, n);
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, domain, sizeof domain);
	crypto_generichash_update(&st, all, n);
	crypto_generichash_final(&st, hash, sizeof hash);
	memcpy(all + n, hash, 4);
	sodium_bin2base64(
	        text + 7, sizeof text - 7, all, n + 4, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	expect(text, strlen(text), ERR_FORMAT, "not one that Dunlin makes");
}

static void test_a_checksum_is_no_proof(void **state)
{
	static const char *const seeds[] = {"", "h:0", ":80", "h:99999", "a b", "h\x1b", "[1"};
	uint8_t b[128] = {0};
	(void)state;
	for (size_t n = 1; n < 35; n++)
		forge(b, n); /* cut in every field; 35 is a whole one */
	b[0] = 8;
	forge(b, 35); /* a flag of nobody's */
	b[0] = 4;
	forge(b, 35); /* an invite, but no owner */
	b[0] = 0;
	forge(b, 36); /* a byte too many */
	b[33] = LIMIT_NAME;
	forge(b, 35 + LIMIT_NAME); /* a name that is too long, or longer than what is left */
	b[33] = 0;
	b[34] = TOKEN_SEEDS_MAX + 1;
	for (int i = 0; i <= TOKEN_SEEDS_MAX; i++)
		memcpy(b + 35 + 2 * i, (char[]){1, (char)('a' + i)}, 2);
	forge(b, 35 + 2 * (TOKEN_SEEDS_MAX + 1));
	b[34] = 2;
	b[38] = 'a';
	forge(b, 39); /* one seed twice */
	b[34] = 1;
	for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
		size_t n = strlen(seeds[i]);
		b[35] = (uint8_t)n;
		memcpy(b + 36, seeds[i], n);
		forge(b, 36 + n);
	}
	memset(b, 0, sizeof b);
	b[0] = 1;
	forge(b, 67); /* a secret of another flock */
	memset(b, 0, sizeof b);
	b[33] = 2;
	b[34] = 'a';
	forge(b, 37); /* a name with a NUL in it */
}

static void test_invites(void **state)
{
	struct token t = {0};
	struct invite v = {.label = "lab", .agents = 2, .expires_s = 1000};
	uint8_t owner[SIGN_SECRET_BYTES], key[SIGN_SECRET_BYTES];
	struct err e;
	(void)state;
	assert_int_equal(token_check_invite(&t, 5, &e), 0);
	crypto_sign_ed25519_keypair(t.owner.key, owner);
	crypto_sign_ed25519_keypair(v.key, key);
	invite_sign(&v, owner, t.invite);
	t.has_owner = t.has_invite = true;
	assert_int_equal(token_check_invite(&t, 999, &e), 0);
	assert_int_equal(token_check_invite(&t, 1000, &e), ERR_STALE);
	assert_non_null(strstr(e.msg, "label lab has expired"));
	t.owner.key[3] ^= 1;
	assert_int_equal(token_check_invite(&t, 999, &e), ERR_MISMATCH);
}

static int setup(void **state)
{
	(void)state;
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_the_longest),
	        cmocka_unit_test(test_broken_lines),
	        cmocka_unit_test(test_any_damage_is_noticed),
	        cmocka_unit_test(test_what_is_no_token),
	        cmocka_unit_test(test_a_checksum_is_no_proof),
	        cmocka_unit_test(test_invites),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
