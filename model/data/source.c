/* SPDX-License-Identifier: MIT */
/* zlib's gz functions read plain files and gzip files alike, told by the first two bytes. What can
 * fail: the file cannot be opened or is no regular file, a damaged gzip stream, memory. */
#include "model/data/source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define READ_FIRST (1u << 20) /* bytes allocated before any have arrived */
#define READ_STEP (1u << 28)  /* gzread takes an unsigned and returns an int */

static int gz_read(struct source *s, uint8_t *to, size_t len, size_t *got, struct err *e)
{
	gzFile gz = s->state;
	*got = 0;
	while (*got < len) {
		size_t want = len - *got < READ_STEP ? len - *got : READ_STEP;
		int n = gzread(gz, to + *got, (unsigned)want);
		if (n < 0) {
			int code;
			const char *why = gzerror(gz, &code);
			if (code == Z_ERRNO)
				return err_errno(e, "read");
			if (code == Z_MEM_ERROR)
				return err_set(e, ERR_NOMEM, "out of memory");
			return err_set(e, ERR_FORMAT,
			        "damaged gzip data, after %lld bytes unpacked: %s",
			        (long long)gztell(gz), why);
		}
		if (n == 0)
			return 0;
		*got += (size_t)n;
	}
	return 0;
}

static int gz_finish(struct source *s, struct err *e)
{
	int code; /* gzread does not report a stream that ends before its checksum */
	const char *why = gzerror(s->state, &code);
	if (code == Z_BUF_ERROR)
		return err_set(e, ERR_FORMAT, "damaged gzip data: %s", why);
	return 0;
}

static void gz_close(struct source *s)
{
	gzclose_r(s->state);
}

/* Only regular files: a pipe or a device could make us wait for ever. */
int source_open_fd(const char *path, int *fd, struct err *e)
{
	struct stat st;
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return err_errno(e, "open");
	if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(*fd);
		return err_set(e, ERR_IO, "not a regular file");
	}
	return 0;
}

int source_open(struct source *s, const char *path, struct err *e)
{
	int fd;
	int rc = source_open_fd(path, &fd, e);
	if (rc)
		return rc;
	gzFile gz = gzdopen(fd, "rb");
	if (!gz) {
		close(fd);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	gzbuffer(gz, 1u << 17);
	*s = (struct source){.read = gz_read, .finish = gz_finish, .close = gz_close, .state = gz};
	return 0;
}

int source_take(struct source *s, const uint8_t *head, size_t n, size_t want, uint8_t **data,
        size_t *got, struct err *e)
{
	size_t have = n, cap = 0;
	uint8_t *p = NULL;
	int rc = 0;
	do {
		size_t bigger = cap ? 2 * cap : READ_FIRST, more;
		bigger = bigger < want ? bigger : want;
		uint8_t *q = realloc(p, bigger);
		if (!q) {
			rc = err_set(e, ERR_NOMEM, "no memory for %zu bytes", bigger);
			goto out;
		}
		p = q;
		if (!cap)
			memcpy(p, head, n);
		cap = bigger;
		rc = s->read(s, p + have, cap - have, &more, e);
		if (rc)
			goto out;
		have += more;
	} while (have == cap && cap < want);
	*data = p;
	*got = have;
	return 0;
out:
	free(p);
	return rc;
}

int source_end(struct source *s, bool *more, struct err *e)
{
	uint8_t byte;
	size_t got;
	int rc = s->read(s, &byte, 1, &got, e);
	*more = got > 0;
	return rc || *more ? rc : s->finish(s, e);
}
