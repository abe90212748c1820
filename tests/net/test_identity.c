/* SPDX-License-Identifier: MIT */
/* Secrets and identities: their files, and the static key that is signed. */
#include "net/crypto/identity.h"
#include "net/crypto/secret.h"
#include "tests/support.h"

#include <sodium.h>
#include <sys/stat.h>

#define PATH 512

static const char *path_in(void **state, const char *name)
{
	static char path[16][PATH];
	static int at;
	char *p = path[at++ % 16];
	snprintf(p, PATH, "%s/%s", (const char *)*state, name);
	return p;
}

static size_t read_text(const char *path, char out[PATH])
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	size_t n = fread(out, 1, PATH - 1, f);
	out[n] = '\0';
	fclose(f);
	return n;
}

static const char *secret_file(void **state, const char *name, const char *text)
{
	const char *path = path_in(state, name);
	write_file(path, text, strlen(text));
	assert_int_equal(chmod(path, 0600), 0);
	return path;
}

/* ---- secrets */

/* The bytes 0 to 31, and those of 32 zeros; the format must not change. */
#define COUNTING "dunlin-flock-1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh_VNJ-N"
#define ZERO "dunlin-flock-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAzgcqg"

static void test_secret_format(void **state)
{
	struct secrets s;
	struct err e = {0};
	const char *path = secret_file(state, "known", "# the old one\n\n " COUNTING "\r\n" ZERO);
	if (secrets_load(&s, &path, 1, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(s.n, 2);
	for (int i = 0; i < SECRET_BYTES; i++) {
		assert_int_equal(s.secret[0][i], i);
		assert_int_equal(s.secret[1][i], 0);
	}
	char text[FLOCK_TEXT];
	assert_string_equal(flock_text(&s.flock[0], text), "fb094efcd3affe95");
	assert_string_equal(flock_text(&s.flock[1], text), "3b48fa6fae44c8c7");
	secrets_close(&s);
	assert_null(s.secret);
	assert_int_equal(s.n, 0);
	secrets_close(&s);
}

static void test_secret_create(void **state)
{
	const char *a = path_in(state, "a.key"), *b = path_in(state, "b.key");
	struct flock_id flock[2];
	struct secrets s;
	struct stat st;
	struct err e = {0};
	char text[PATH], again[PATH];
	mode_t mask = umask(0);
	assert_int_equal(secret_create(a, &flock[0], &e), 0);
	umask(mask);
	assert_int_equal(secret_create(b, &flock[1], &e), 0);
	assert_int_equal(stat(a, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(read_text(a, text), 15 + 48 + 1);
	assert_int_equal(secret_create(a, &flock[1], &e), ERR_BUSY);
	read_text(a, again);
	assert_string_equal(text, again);
	assert_int_equal(secret_create(path_in(state, "none/x"), &flock[1], &e), ERR_IO);

	/* A link to a file that is not there yet is there already. */
	assert_int_equal(symlink(path_in(state, "target"), path_in(state, "link")), 0);
	assert_int_equal(secret_create(path_in(state, "link"), &flock[1], &e), ERR_BUSY);

	assert_int_equal(secrets_load(&s, (const char *[]){a, b}, 2, &e), 0);
	assert_int_equal(s.n, 2);
	assert_memory_equal(&s.flock[0], &flock[0], sizeof flock[0]);
	assert_memory_not_equal(s.secret[0], s.secret[1], SECRET_BYTES);
	assert_memory_not_equal(s.secret[0], &s.flock[0], SECRET_BYTES);
	secrets_close(&s);
}

static void refused(void **state, const char *content, int code, const char *says)
{
	const char *path = secret_file(state, "bad", content);
	struct secrets s;
	struct err e = {0};
	assert_int_equal(secrets_load(&s, &path, 1, &e), code);
	assert_null(s.secret);
	if (!strstr(e.msg, says))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
	assert_non_null(strstr(e.msg, path));
	assert_null(strstr(e.msg, "AAECAw")); /* nothing of a secret */
}

static void test_secret_refused(void **state)
{
	char text[8192];
	struct secrets s;
	struct err e = {0};
	refused(state, "", ERR_FORMAT, "holds no secret");
	refused(state, "\n# only a comment\n", ERR_FORMAT, "holds no secret");
	refused(state, "hunter2\n", ERR_FORMAT,
	        "line 1: not a key: it should begin with dunlin-flock-1:");
	refused(state, ZERO "\n" ZERO "x\n", ERR_FORMAT, "line 2: 49 characters follow");
	refused(state, "dunlin-flock-1:", ERR_FORMAT, "0 characters follow");
	refused(state, "dunlin-flock-2:AAAA", ERR_UNSUPPORTED, "another version");
	refused(state, "dunlin-identity-1:AAAA", ERR_FORMAT, "another kind of key");
	refused(state, "dunlin-f", ERR_FORMAT, "another kind of key");
	refused(state, ZERO "\n" COUNTING "\n" ZERO "\n", ERR_INVALID, "line 3: the same secret");

	/* Every mistyped or exchanged character is noticed. */
	for (size_t at = 15; at < strlen(COUNTING); at++) {
		strcpy(text, COUNTING);
		text[at] = text[at] == 'x' ? 'y' : 'x';
		refused(state, text, ERR_FORMAT, "the checksum does not fit");
		strcpy(text, COUNTING);
		text[at] = '+';
		refused(state, text, ERR_FORMAT, "a character that cannot be there");
	}
	strcpy(text, COUNTING);
	text[20] = COUNTING[21], text[21] = COUNTING[20];
	refused(state, text, ERR_FORMAT, "the checksum does not fit");

	memset(text, '\n', KEYFILE_BYTES_MAX + 1);
	text[KEYFILE_BYTES_MAX + 1] = '\0';
	refused(state, text, ERR_LIMIT, "larger than 4096 bytes");

	const char *paths[4];
	for (int i = 0; i < 4; i++) {
		struct flock_id flock;
		char name[16];
		snprintf(name, sizeof name, "n%d", i);
		paths[i] = path_in(state, name);
		assert_int_equal(secret_create(paths[i], &flock, &e), 0);
	}
	assert_int_equal(secrets_load(&s, paths, 3, &e), 0);
	secrets_close(&s);
	assert_int_equal(secrets_load(&s, paths, 4, &e), ERR_LIMIT);
	assert_non_null(strstr(e.msg, "more than 3"));
}

static void test_secret_permissions(void **state)
{
	static const mode_t open_modes[] = {0644, 0604, 0620, 0602, 0610, 0601, 0660, 0666};
	const char *path = secret_file(state, "open", ZERO "\n");
	const char *missing = path_in(state, "missing"), *folder = *state;
	struct secrets s;
	struct err e = {0};
	for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
		assert_int_equal(chmod(path, open_modes[i]), 0);
		assert_int_equal(secrets_load(&s, &path, 1, &e), ERR_INVALID);
		assert_non_null(strstr(e.msg, "chmod 600"));
	}
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(secrets_load(&s, &path, 1, &e), 0);
	secrets_close(&s);
	assert_int_equal(secrets_load(&s, &missing, 1, &e), ERR_NOTFOUND);
	assert_non_null(strstr(e.msg, "dunlin keygen"));
	assert_int_equal(secrets_load(&s, &folder, 1, &e), ERR_INVALID);
	assert_int_equal(mkfifo(path_in(state, "fifo"), 0600), 0);
	const char *fifo = path_in(state, "fifo");
	assert_int_equal(secrets_load(&s, &fifo, 1, &e), ERR_INVALID);
}

/* What user `self` is told of a file of `owner` and this mode; "": it is taken. */
static const char *told(const char *path, uid_t self, uid_t owner, mode_t mode)
{
	static struct err e;
	struct secrets s;
	/* In this order: chown may take bits of the mode away. The group stays root's, and so is
	 * ours. */
	assert_int_equal(chown(path, owner, (gid_t)-1), 0);
	assert_int_equal(chmod(path, mode), 0);
	assert_int_equal(seteuid(self), 0);
	int rc = secrets_load(&s, &path, 1, &e);
	assert_int_equal(seteuid(0), 0);
	if (rc == 0)
		secrets_close(&s);
	return rc ? e.msg : "";
}

/* What systemd and Kubernetes hand to a service is root's, and its group may read it. */
static void test_secret_owners(void **state)
{
	enum { ROOT = 0, US = 4242, OTHER = 4243 };
	static const mode_t roots[] = {0440, 0640}, open[] = {0444, 0644, 0660, 0740};
	const char *path = secret_file(state, "owned", ZERO "\n");
	if (geteuid() != 0) {
		print_message("only root can give files to other users\n");
		skip();
	}
	assert_int_equal(chmod(*state, 0755), 0);
	for (int m = 0; m < 2; m++) {
		assert_string_equal(told(path, US, ROOT, roots[m]), "");
		assert_string_equal(told(path, ROOT, ROOT, roots[m]), "");
		assert_non_null(strstr(told(path, US, US, roots[m]), "run chmod 600 on it"));
	}
	assert_string_equal(told(path, US, US, 0600), "");
	for (int m = 0; m < 4; m++)
		assert_non_null(strstr(told(path, US, ROOT, open[m]), "run chmod 640 on it"));
	assert_non_null(strstr(told(path, US, ROOT, 0644), "user 0 and has mode 0644"));
	/* Who owns it can give it another content. */
	assert_non_null(strstr(told(path, US, OTHER, 0640), "user 4243 (mode 0640)"));
	assert_non_null(strstr(told(path, ROOT, OTHER, 0600), "chown 0 and chmod 600"));
	/* Who owns its folder can put another file there. */
	assert_int_equal(chown(*state, OTHER, (gid_t)-1), 0);
	assert_non_null(strstr(told(path, US, US, 0600), "belongs to user 4243, who can replace"));
	assert_non_null(
	        strstr(told(path, ROOT, ROOT, 0600), "belongs to user 4243, who can replace"));
	assert_int_equal(chown(*state, ROOT, (gid_t)-1), 0);
	assert_string_equal(told(path, US, US, 0600), "");
}

/* ---- identities */

static void test_identity_files(void **state)
{
	const char *dir = path_in(state, "deep/state");
	struct identity a, b;
	struct stat st;
	struct err e = {0};
	uint8_t secret[STATIC_BYTES], public[STATIC_BYTES];
	if (identity_open(&a, dir, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(a.generation, 1);
	memcpy(secret, identity_static_secret(&a), sizeof secret);
	crypto_scalarmult_curve25519_base(public, secret);
	assert_memory_equal(public, a.static_public, sizeof public);
	assert_int_equal(stat(path_in(state, "deep/state/identity.key"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);

	/* The same agent at its next start. */
	assert_int_equal(identity_open(&b, dir, &e), 0);
	assert_int_equal(b.generation, 2);
	assert_memory_equal(&a.id, &b.id, sizeof a.id);
	assert_memory_equal(a.static_signature, b.static_signature, SIGNATURE_BYTES);
	assert_memory_equal(identity_static_secret(&b), secret, sizeof secret);
	assert_int_equal(identity_set_generation(&b, dir, 40, &e), 0);
	assert_int_equal(b.generation, 40);
	identity_close(&b);
	assert_null(b.secrets);
	assert_int_equal(identity_open(&b, dir, &e), 0);
	assert_int_equal(b.generation, 41);
	identity_close(&b);

	/* Another directory, another agent: both of its keys. */
	assert_int_equal(identity_open(&b, path_in(state, "other"), &e), 0);
	assert_memory_not_equal(&a.id, &b.id, sizeof a.id);
	assert_memory_not_equal(a.static_public, b.static_public, STATIC_BYTES);
	identity_close(&b);
	identity_close(&a);
	identity_close(&a);
}

static void identity_refused(void **state, int code, const char *says)
{
	struct identity i;
	struct err e = {0};
	assert_int_equal(identity_open(&i, path_in(state, "bad-state"), &e), code);
	assert_null(i.secrets);
	if (!strstr(e.msg, says))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
}

static void test_identity_refused(void **state)
{
	static const char *const numbers[] = {"", "x", "-1\n", " 1\n", "1 \n", "1\n\n", "1x",
	        "18446744073709551615\n", "99999999999999999999\n",
	        "1111111111111111111111111111111111111111111\n"};
	const char *key = path_in(state, "bad-state/identity.key");
	struct identity i;
	struct err e = {0};
	char good[PATH], path[PATH];
	snprintf(path, sizeof path, "%s", key);
	assert_int_equal(identity_open(&i, path_in(state, "bad-state"), &e), 0);
	identity_close(&i);
	size_t len = read_text(path, good);
	/* Root's or not: no group has a part in an identity. */
	assert_int_equal(chmod(path, 0640), 0);
	identity_refused(state, ERR_INVALID, "chmod 600");
	assert_int_equal(chmod(path, 0600), 0);

	write_file(path, good, len / 2);
	identity_refused(state, ERR_FORMAT, "is damaged: restore it");
	write_file(path, "", 0);
	identity_refused(state, ERR_FORMAT, "is damaged");
	good[30] ^= 1;
	write_file(path, good, len);
	identity_refused(state, ERR_FORMAT, "is damaged");
	good[30] ^= 1;
	write_file(path, good, len);

	for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
		write_file(path_in(state, "bad-state/generation"), numbers[n], strlen(numbers[n]));
		identity_refused(state, ERR_FORMAT, "holds no number: remove it");
	}
	write_file(path_in(state, "bad-state/generation"), "18446744073709551613", 20);
	assert_int_equal(identity_open(&i, path_in(state, "bad-state"), &e), 0);
	assert_true(i.generation == UINT64_MAX - 1);
	identity_close(&i);
	assert_int_equal(unlink(path_in(state, "bad-state/generation")), 0);
	assert_int_equal(identity_open(&i, path_in(state, "bad-state"), &e), 0);
	assert_int_equal(i.generation, 1);
	identity_close(&i);
}

static void test_static_key(void **state)
{
	struct identity a, b;
	struct err e = {0};
	assert_int_equal(identity_open(&a, path_in(state, "static-a"), &e), 0);
	assert_int_equal(identity_open(&b, path_in(state, "static-b"), &e), 0);
	assert_int_equal(identity_verify_static(&a.id, a.static_public, a.static_signature), 0);
	assert_int_equal(
	        identity_verify_static(&b.id, a.static_public, a.static_signature), ERR_MISMATCH);
	assert_int_equal(
	        identity_verify_static(&a.id, b.static_public, a.static_signature), ERR_MISMATCH);
	for (size_t n = 0; n < SIGNATURE_BYTES; n++) {
		a.static_signature[n] ^= 4;
		assert_int_equal(identity_verify_static(&a.id, a.static_public, a.static_signature),
		        ERR_MISMATCH);
		a.static_signature[n] ^= 4;
	}
	/* A signature of the bare key, without the word in front, is none. */
	identity__sign(&a, a.static_public, STATIC_BYTES, b.static_signature);
	assert_int_equal(
	        identity_verify_static(&a.id, a.static_public, b.static_signature), ERR_MISMATCH);
	identity_close(&a);
	identity_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_secret_format),
	        cmocka_unit_test(test_secret_create),
	        cmocka_unit_test(test_secret_refused),
	        cmocka_unit_test(test_secret_permissions),
	        cmocka_unit_test(test_secret_owners),
	        cmocka_unit_test(test_identity_files),
	        cmocka_unit_test(test_identity_refused),
	        cmocka_unit_test(test_static_key),
	};
	return sodium_init() < 0
	               ? 1
	               : cmocka_run_group_tests_name("identity", tests, make_folder, remove_folder);
}
