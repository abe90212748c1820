/* SPDX-License-Identifier: MIT */
/* A growing byte buffer with a hard cap, and whole files in and out of it. */
#ifndef DUNLIN_AGENT_BASE_BUF_H
#define DUNLIN_AGENT_BASE_BUF_H

#include "agent/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data; /* owned; always NUL-terminated once anything was added, the NUL not counted */
	size_t len;
	size_t cap;
	size_t max; /* len never exceeds it */
};

void buf_init(struct buf *b, size_t max);
void buf_close(struct buf *b);

/* ERR_NOMEM or, over the cap, ERR_LIMIT; the content is unchanged then. */
int buf_append(struct buf *b, const void *data, size_t len) MUST_CHECK;
int buf_printf(struct buf *b, const char *fmt, ...) MUST_CHECK
        __attribute__((format(printf, 2, 3)));

/* Appends a JSON string literal, quotes included; bytes that are not UTF-8 become U+FFFD. */
int buf_json_string(struct buf *b, const char *s) MUST_CHECK;

/* Bytes of the well-formed UTF-8 sequence at text, 0 when there is none: no overlong form, no
 * surrogate, nothing above U+10FFFF. The NUL at the end stops every sequence. */
size_t utf8_bytes(const char *text);

/* One character of *text made safe to print: *text moves past it, out receives its bytes (no NUL),
 * their number is returned. Control characters become \n, \u001b and the like, a byte that is not
 * UTF-8 becomes U+FFFD; quotes and backslashes stay. *text must not be at its end. */
#define BUF__ESCAPE_MAX 8
size_t buf__escape(const char **text, char out[BUF__ESCAPE_MAX]);

/* Appends a whole regular file; unchanged when that fails. */
int file_read(struct buf *b, const char *path, struct err *e) MUST_CHECK;

/* Creates every missing folder of path, like mkdir -p. */
int file_mkdirs(const char *path, struct err *e) MUST_CHECK;

/* Replaces path so that a reader, or a crash at any moment, sees the old content or the new, never
 * a part: written to path.tmp by fill, fsynced, renamed, and the folder fsynced. */
typedef int (*file_fill_cb)(int fd, void *arg, struct err *e);
int file_replace(
        const char *path, unsigned mode, file_fill_cb fill, void *arg, struct err *e) MUST_CHECK;

/* The end of writing a new file. rc: what the writing returned. Makes its bytes durable, and closes
 * fd in any case. */
int file_finish(int fd, const char *path, int rc, struct err *e) MUST_CHECK;

/* Makes the name of a file durable, new or renamed: fsyncs the folder that path is in. */
int file_sync_folder(const char *path, struct err *e) MUST_CHECK;

/* write(2) until all is written. */
int file_write_all(int fd, const void *data, size_t len, struct err *e) MUST_CHECK;

#endif
