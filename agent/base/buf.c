/* SPDX-License-Identifier: MIT */
/* Bytes in memory and in files.
 *
 * A buf grows by doubling up to its cap, so that whoever fills it from outside can be careless
 * about sizes: what is too large is refused, with the content as it was before.
 *
 * Files are read whole and replaced whole. The happy path of a replacement is create path.tmp,
 * fill, fsync, rename over path, fsync the folder; the order matters, because after a crash a
 * rename may have reached the disk before the data that it names. Possible failures are a full or
 * read-only disk, a folder that is not there, or fill itself: then path.tmp is removed and path is
 * untouched. Only when the last fsync fails is the new content in place and an error returned. */
#include "agent/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max < SIZE_MAX ? max : SIZE_MAX - 1};
}

void buf_close(struct buf *b)
{
	free(b->data);
	buf_init(b, b->max);
}

/* Room for extra more bytes and the NUL. */
static int grow(struct buf *b, size_t extra)
{
	if (extra > b->max - b->len)
		return ERR_LIMIT;
	size_t need = b->len + extra + 1;
	if (need <= b->cap)
		return 0;
	size_t cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	char *data = realloc(b->data, cap);
	if (!data)
		return ERR_NOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

static void cut(struct buf *b, size_t len)
{
	b->len = len;
	if (b->data)
		b->data[len] = '\0';
}

int buf_append(struct buf *b, const void *data, size_t len)
{
	int rc = grow(b, len);
	if (rc)
		return rc;
	if (len)
		memcpy(b->data + b->len, data, len);
	cut(b, b->len + len);
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	int rc = n < 0 ? ERR_INVALID : grow(b, (size_t)n);
	if (rc == 0) {
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
	return rc;
}

size_t utf8_bytes(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	if (s[0] < 0x80)
		return 1;
	size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : s[0] >= 0xe0 && s[0] <= 0xef ? 3 : 4;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	unsigned char lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
	if (s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

size_t buf__escape(const char **text, char out[BUF__ESCAPE_MAX])
{
	const unsigned char *s = (const unsigned char *)*text;
	const char *plain = "\b\f\n\r\t", *letter = "bfnrt", *p;
	size_t n = utf8_bytes(*text);
	*text += n ? n : 1;
	if (n == 0) /* U+FFFD */
		return (size_t)snprintf(out, BUF__ESCAPE_MAX, "\xef\xbf\xbd");
	if (n == 1 && s[0] && (p = strchr(plain, s[0])))
		return (size_t)snprintf(out, BUF__ESCAPE_MAX, "\\%c", letter[p - plain]);
	/* C0, DEL and C1: the last two are legal in JSON, but a terminal obeys them. */
	if (n == 1 && (s[0] < 0x20 || s[0] == 0x7f))
		return (size_t)snprintf(out, BUF__ESCAPE_MAX, "\\u%04x", s[0]);
	if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)
		return (size_t)snprintf(out, BUF__ESCAPE_MAX, "\\u%04x", s[1]);
	memcpy(out, s, n);
	return n;
}

int buf_json_string(struct buf *b, const char *s)
{
	size_t before = b->len;
	int rc = buf_append(b, "\"", 1);
	while (rc == 0 && *s) {
		char c[BUF__ESCAPE_MAX];
		if (*s == '"' || *s == '\\')
			rc = buf_append(b, "\\", 1);
		size_t n = buf__escape(&s, c);
		if (rc == 0)
			rc = buf_append(b, c, n);
	}
	if (rc == 0)
		rc = buf_append(b, "\"", 1);
	if (rc)
		cut(b, before);
	return rc;
}

static int read_fd(struct buf *b, int fd, const char *path, struct err *e)
{
	char chunk[16384];
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n == 0)
			return buf_append(b, "", 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "read %s", path);
		int rc = buf_append(b, chunk, (size_t)n);
		if (rc == ERR_LIMIT)
			return err_set(e, rc, "%s: larger than %zu bytes", path, b->max);
		if (rc)
			return err_set(e, rc, "%s: %s", path, err_text(rc));
	}
}

int file_read(struct buf *b, const char *path, struct err *e)
{
	size_t before = b->len;
	struct stat st;
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
	if (fd < 0)
		return err_errno(e, "open %s", path);
	if (fstat(fd, &st))
		rc = err_errno(e, "stat %s", path);
	else if (!S_ISREG(st.st_mode))
		rc = err_set(e, ERR_INVALID, "%s is not a regular file", path);
	else
		rc = read_fd(b, fd, path, e);
	close(fd);
	if (rc)
		cut(b, before);
	return rc;
}

static int make_folder(const char *path, struct err *e)
{
	struct stat st;
	if (mkdir(path, 0777) == 0)
		return 0;
	int cause = errno;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		return err_set(e, ERR_INVALID, "%s is there and is not a folder", path);
	}
	errno = cause;
	return err_errno(e, "create folder %s", path);
}

int file_mkdirs(const char *path, struct err *e)
{
	char *p = strdup(path);
	if (!p)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	int rc = 0;
	for (char *s = p; rc == 0 && *s; s++) {
		if (*s != '/' || s == p)
			continue;
		*s = '\0';
		rc = make_folder(p, e);
		*s = '/';
	}
	if (rc == 0)
		rc = make_folder(p, e);
	free(p);
	return rc;
}

int file_write_all(int fd, const void *data, size_t len, struct err *e)
{
	const char *p = data;
	while (len) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "write");
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A folder that we may write but not read cannot be opened, and some file systems know no fsync of
 * folders: neither is a reason to fail. */
int file_sync_folder(const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!folder)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	int rc = 0, fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 ? errno != EACCES : fsync(fd) && errno != EINVAL && errno != ENOTSUP)
		rc = err_errno(e, "fsync %s", folder);
	if (fd >= 0)
		close(fd);
	free(folder);
	return rc;
}

int file_finish(int fd, const char *path, int rc, struct err *e)
{
	if (rc)
		err_prefix(e, "%s", path);
	else if (fsync(fd))
		rc = err_errno(e, "fsync %s", path);
	if (close(fd) && rc == 0) /* NFS tells of a full disk here */
		rc = err_errno(e, "close %s", path);
	return rc;
}

static int fill_file(const char *tmp, unsigned mode, file_fill_cb fill, void *arg, struct err *e)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
	if (fd < 0)
		return err_errno(e, "create %s", tmp);
	return file_finish(fd, tmp, fill(fd, arg, e), e);
}

int file_replace(const char *path, unsigned mode, file_fill_cb fill, void *arg, struct err *e)
{
	struct stat st;
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* root could rename over /dev/null */
		return err_set(e, ERR_INVALID, "%s is there and is not a regular file", path);
	char *tmp;
	if (asprintf(&tmp, "%s.tmp", path) < 0)
		return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
	unlink(tmp); /* of a process that was killed */
	int rc = fill_file(tmp, mode, fill, arg, e);
	if (rc == 0 && rename(tmp, path))
		rc = err_errno(e, "rename %s to %s", tmp, path);
	if (rc)
		unlink(tmp);
	else
		rc = file_sync_folder(path, e);
	free(tmp);
	return rc;
}
