/* SPDX-License-Identifier: MIT */
/* Reads IDX files. The header is checked before anything is allocated, and it alone decides how
 * much is read: a file that ends early or goes on after its last element is refused with both
 * numbers, so a half-finished download is noticed before training and not as a strange accuracy.
 *
 * zlib's gz functions read plain files and gzip files alike, told by the first two bytes. Memory is
 * taken as bytes arrive, doubling up to the size in the header: neither a tiny file with a huge
 * size in its header nor a gzip bomb costs more than the bytes that it really has.
 *
 * What can fail: the file cannot be opened or is no regular file, a header that is not IDX or over
 * the limits, a damaged gzip stream, and too few or too many bytes. */
#include "model/data/idx.h"

#include "agent/base/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define IDX_TYPE_U8 0x08
#define READ_FIRST (1u << 20) /* bytes allocated before any have arrived */
#define READ_STEP (1u << 28)  /* gzread takes an unsigned and returns an int */

/* "60000 images of 28x28", "10000 labels": what the header says the file holds. */
static const char *idx_text(const struct idx *x, char out[96])
{
	if (x->rank == 1)
		snprintf(out, 96, "%u labels", x->dim[0]);
	else if (x->rank == 3)
		snprintf(out, 96, "%u images of %ux%u", x->dim[0], x->dim[1], x->dim[2]);
	else
		snprintf(out, 96, "%u images of %ux%ux%u", x->dim[0], x->dim[1], x->dim[2],
		        x->dim[3]);
	return out;
}

/* Checks the first len bytes of a file as far as they are header: type, rank, every dimension and
 * their product against the limits. len may be more than the header. */
static int parse_header(const uint8_t *p, size_t len, struct idx *x, struct err *e)
{
	memset(x, 0, sizeof *x);
	if (len < 4)
		return err_set(e, ERR_FORMAT, "not an IDX file: %zu bytes are too few", len);
	if (p[0] || p[1])
		return err_set(e, ERR_FORMAT,
		        "not an IDX file: it begins %02x %02x %02x %02x, expected 00 00 08 and "
		        "the number of dimensions",
		        p[0], p[1], p[2], p[3]);
	if (p[2] != IDX_TYPE_U8)
		return err_set(e, ERR_UNSUPPORTED,
		        "IDX element type 0x%02x, expected 0x08 (unsigned bytes)", p[2]);
	if (p[3] != 1 && p[3] != 3 && p[3] != 4)
		return err_set(e, ERR_UNSUPPORTED,
		        "%u dimensions, expected 1 (labels), 3 or 4 (images)", p[3]);

	x->rank = p[3];
	x->header_bytes = 4 + 4 * (size_t)x->rank;
	if (len < x->header_bytes)
		return err_set(e, ERR_FORMAT,
		        "truncated: the header needs %zu bytes, there are %zu", x->header_bytes,
		        len);
	uint64_t bytes = 1;
	for (int i = 0; i < x->rank; i++) {
		const uint8_t *q = p + 4 + 4 * i;
		uint32_t n =
		        (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
		if (n == 0 && i == 0)
			return err_set(e, ERR_FORMAT, "empty: it holds 0 samples");
		if (n == 0)
			return err_set(
			        e, ERR_FORMAT, "images without pixels: dimension %d is 0", i + 1);
		if (i == 0 ? n >= LIMIT_SAMPLES : n > LIMIT_DIM)
			return err_set(e, ERR_LIMIT, "dimension %d is %u, at most %u is read",
			        i + 1, n, i == 0 ? LIMIT_SAMPLES - 1 : (unsigned)LIMIT_DIM);
		x->dim[i] = n;
		if (bytes > LIMIT_IDX_BYTES / n)
			return err_set(e, ERR_LIMIT,
			        "the header promises more than %llu bytes, the most that is read",
			        LIMIT_IDX_BYTES);
		bytes *= n;
	}
	x->bytes = (size_t)bytes;
	return 0;
}

static int idx_truncated(const struct idx *x, size_t have, struct err *e)
{
	char text[96];
	return err_set(e, ERR_FORMAT, "truncated: %s need %zu bytes, the file has %zu",
	        idx_text(x, text), x->header_bytes + x->bytes, x->header_bytes + have);
}

static int idx_too_long(const struct idx *x, struct err *e)
{
	char text[96];
	return err_set(e, ERR_FORMAT, "too long: %s need %zu bytes, the file has more",
	        idx_text(x, text), x->header_bytes + x->bytes);
}

int idx_parse(const uint8_t *p, size_t len, struct idx *x, struct err *e)
{
	int rc = parse_header(p, len, x, e);
	if (rc)
		return rc;
	size_t have = len - x->header_bytes;
	if (have < x->bytes)
		return idx_truncated(x, have, e);
	if (have > x->bytes)
		return idx_too_long(x, e);
	return 0;
}

/* gzread until len bytes or the end; *got says how many came. */
static int read_some(gzFile gz, uint8_t *to, size_t len, size_t *got, struct err *e)
{
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
			return err_set(e, ERR_FORMAT, "damaged gzip data: %s", why);
		}
		if (n == 0)
			return 0;
		*got += (size_t)n;
	}
	return 0;
}

/* After the last element: the end of the file, and of a gzip stream its checksum. */
static int read_end(gzFile gz, const struct idx *x, struct err *e)
{
	uint8_t more;
	size_t got;
	int rc = read_some(gz, &more, 1, &got, e);
	if (rc)
		return rc;
	if (got)
		return idx_too_long(x, e);
	int code; /* gzread does not report a stream that ends before its checksum */
	const char *why = gzerror(gz, &code);
	if (code == Z_BUF_ERROR)
		return err_set(e, ERR_FORMAT, "damaged gzip data: %s", why);
	return 0;
}

static int read_elements(gzFile gz, const struct idx *x, const uint8_t *head, size_t head_len,
        uint8_t **data, struct err *e)
{
	size_t have = head_len - x->header_bytes, cap = 0;
	uint8_t *p = NULL;
	int rc = 0;
	if (have > x->bytes)
		return idx_too_long(x, e);
	do {
		size_t bigger = cap ? 2 * cap : READ_FIRST, got;
		bigger = bigger < x->bytes ? bigger : x->bytes;
		uint8_t *q = realloc(p, bigger);
		if (!q) {
			rc = err_set(e, ERR_NOMEM, "no memory for %zu bytes", bigger);
			goto out;
		}
		p = q;
		if (!cap)
			memcpy(p, head + x->header_bytes, have);
		cap = bigger;
		rc = read_some(gz, p + have, cap - have, &got, e);
		if (rc)
			goto out;
		have += got;
	} while (have == cap && cap < x->bytes);
	rc = have < x->bytes ? idx_truncated(x, have, e) : read_end(gz, x, e);
out:
	if (rc)
		free(p);
	else
		*data = p;
	return rc;
}

/* Only regular files: a pipe or a device could make us wait for ever. */
static int open_regular(const char *path, gzFile *gz, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_errno(e, "open");
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(e, ERR_IO, "not a regular file");
	}
	*gz = gzdopen(fd, "rb");
	if (!*gz) {
		close(fd);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	gzbuffer(*gz, 1u << 17);
	return 0;
}

int idx_read(const char *path, struct idx *x, uint8_t **data, struct err *e)
{
	uint8_t head[IDX_HEADER_MAX];
	size_t head_len;
	gzFile gz;
	int rc = open_regular(path, &gz, e);
	if (rc)
		goto out;
	rc = read_some(gz, head, sizeof head, &head_len, e);
	if (!rc)
		rc = parse_header(head, head_len, x, e);
	if (!rc)
		rc = read_elements(gz, x, head, head_len, data, e);
	gzclose_r(gz);
out:
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}
