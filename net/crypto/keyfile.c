/* SPDX-License-Identifier: MIT */
/* Files of keys.
 *
 * A key is text, so that it survives mail, terminals and secret stores, and has a checksum, since a
 * mistyped key would otherwise only show as silence from everybody. A file that others can use is
 * refused instead of repaired: whoever could read it may have done so. What is created is created
 * exclusively, so that two processes cannot both believe that theirs is the key.
 *
 * The base64 of libsodium takes the same time for all contents. */
#include "net/crypto/keyfile.h"

#include "agent/base/buf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING

static void checksum(
        uint8_t out[KEYFILE_CHECKSUM], const char *prefix, const uint8_t *bytes, size_t n)
{
	crypto_generichash_state st;
	uint8_t hash[crypto_generichash_BYTES];
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, (const uint8_t *)prefix, strlen(prefix) + 1);
	crypto_generichash_update(&st, bytes, n);
	crypto_generichash_final(&st, hash, sizeof hash);
	memcpy(out, hash, KEYFILE_CHECKSUM);
	sodium_memzero(&st, sizeof st);
	sodium_memzero(hash, sizeof hash);
}

void keyfile_encode(char out[KEYFILE_LINE_MAX], const char *prefix, const uint8_t *bytes, size_t n)
{
	uint8_t whole[KEYFILE_KEY_MAX + KEYFILE_CHECKSUM];
	size_t at = strlen(prefix), chars = KEYFILE_CHARS(n);
	assert(n <= KEYFILE_KEY_MAX && at + chars + 2 <= KEYFILE_LINE_MAX);
	memcpy(whole, bytes, n);
	checksum(whole + n, prefix, bytes, n);
	memcpy(out, prefix, at);
	sodium_bin2base64(out + at, chars + 1, whole, n + KEYFILE_CHECKSUM, VARIANT);
	memcpy(out + at + chars, "\n", 2);
	sodium_memzero(whole, sizeof whole);
}

/* What stands where the prefix should, as far as it can be told. */
static int wrong_prefix(const char *prefix, const char *text, size_t len, struct err *e)
{
	size_t family = strlen(prefix) - 2; /* without "1:" */
	if (len > family && memcmp(text, prefix, family) == 0)
		return err_set(
		        e, ERR_UNSUPPORTED, "not of version 1: made by another version of Dunlin?");
	if (len > 7 && memcmp(text, "dunlin-", 7) == 0)
		return err_set(
		        e, ERR_FORMAT, "another kind of key: it should begin with %s", prefix);
	return err_set(e, ERR_FORMAT, "not a key: it should begin with %s", prefix);
}

int keyfile_decode(
        uint8_t *bytes, size_t n, const char *prefix, const char *text, size_t len, struct err *e)
{
	uint8_t whole[KEYFILE_KEY_MAX + KEYFILE_CHECKSUM], sum[KEYFILE_CHECKSUM];
	size_t at = strlen(prefix), got;
	int rc = 0;
	assert(n <= KEYFILE_KEY_MAX);
	if (len < at || memcmp(text, prefix, at) != 0)
		return wrong_prefix(prefix, text, len, e);
	if (len - at != KEYFILE_CHARS(n))
		return err_set(e, ERR_FORMAT,
		        "%zu characters follow %s where %zu belong: copy it whole", len - at,
		        prefix, (size_t)KEYFILE_CHARS(n));
	if (sodium_base642bin(
	            whole, n + KEYFILE_CHECKSUM, text + at, len - at, NULL, &got, NULL, VARIANT) ||
	        got != n + KEYFILE_CHECKSUM) {
		rc = err_set(e, ERR_FORMAT,
		        "a character that cannot be there: only A-Z a-z 0-9 - _ can");
	} else {
		checksum(sum, prefix, whole, n);
		if (sodium_memcmp(sum, whole + n, sizeof sum))
			rc = err_set(e, ERR_FORMAT, "the checksum does not fit: mistyped?");
		else
			memcpy(bytes, whole, n);
	}
	sodium_memzero(whole, sizeof whole);
	return rc;
}

/* Of the file that was opened: the path may name another one a moment later. */
static int check_file(int fd, const char *path, enum keyfile_keeper keeper, struct err *e)
{
	struct stat st;
	uid_t self = geteuid();
	if (fstat(fd, &st))
		return err_errno(e, "stat %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "%s is not a regular file", path);
	bool roots = keeper == KEYFILE_OURS_OR_ROOTS && st.st_uid == 0;
	unsigned mode = st.st_mode & 07777, most = roots ? 0640 : 0600;
	if (st.st_uid != self && !roots)
		return err_set(e, ERR_INVALID,
		        "%s belongs to user %u (mode %04o), who can change it, and not to user %u: "
		        "run chown %u and chmod 600 on it, or on a copy",
		        path, (unsigned)st.st_uid, mode, (unsigned)self, (unsigned)self);
	if (mode & ~most)
		return err_set(e, ERR_INVALID,
		        "%s belongs to user %u and has mode %04o, but only up to %04o is safe from "
		        "others: run chmod %o on it",
		        path, (unsigned)st.st_uid, mode, most, st.st_uid == self ? 0600 : 0640);
	return 0;
}

/* The folder's owner can put another file of ours, or of root's, in the key's place. */
static int check_folder(const char *path, struct err *e)
{
	char folder[PATH_MAX];
	struct stat st;
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	if (n >= sizeof folder)
		return err_set(e, ERR_LIMIT, "a path is longer than %d bytes", PATH_MAX - 1);
	memcpy(folder, path, n);
	strcpy(folder + n, n > 0 ? "" : slash ? "/" : ".");
	if (stat(folder, &st))
		return err_errno(e, "stat %s", folder);
	if (st.st_uid == geteuid() || st.st_uid == 0)
		return 0;
	return err_set(e, ERR_INVALID,
	        "the folder of %s belongs to user %u, who can replace the key: chown it to user "
	        "%u, "
	        "or keep the key in a folder of your own",
	        path, (unsigned)st.st_uid, (unsigned)geteuid());
}

static int read_all(int fd, const char *path, char *text, size_t *len, struct err *e)
{
	for (;;) {
		/* One byte more than may be there, to see that it is not. */
		ssize_t n = read(fd, text + *len, KEYFILE_BYTES_MAX + 1 - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "read %s", path);
		if (n == 0)
			return 0;
		*len += (size_t)n;
		if (*len > KEYFILE_BYTES_MAX)
			return err_set(e, ERR_LIMIT, "%s is larger than %d bytes: not a key file",
			        path, KEYFILE_BYTES_MAX);
	}
}

int keyfile_read(
        const char *path, enum keyfile_keeper keeper, char **text, size_t *len, struct err *e)
{
	*text = NULL;
	*len = 0;
	if (sodium_init() < 0)
		return err_set(e, ERR_SYSTEM, "libsodium does not start");
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_NOTFOUND, "there is no %s", path);
	if (fd < 0)
		return err_errno(e, "open %s", path);
	int rc = check_folder(path, e);
	if (rc == 0)
		rc = check_file(fd, path, keeper, e);
	if (rc)
		goto out;
	*text = sodium_malloc(KEYFILE_BYTES_MAX + 1);
	rc = *text ? read_all(fd, path, *text, len, e)
	           : err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
out:
	close(fd);
	if (rc) {
		sodium_free(*text);
		*text = NULL;
	}
	return rc;
}

int keyfile_create(const char *path, const char *line, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_BUSY, "%s is there already", path);
	if (fd < 0)
		return err_errno(e, "create %s", path);
	int rc = file_finish(fd, path, file_write_all(fd, line, strlen(line), e), e);
	if (rc == 0)
		rc = file_sync_folder(path, e);
	if (rc)
		unlink(path);
	return rc;
}
