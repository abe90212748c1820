/* SPDX-License-Identifier: MIT */
/* Errors. A fallible function returns 0 or a negative code from ERR_CODES; where detail helps it
 * also fills a struct err, passed last. Each layer that passes an error up may prefix it, so that
 * the user reads "load run/best.safetensors: tensor conv1.weight: shape 32x1x3x3, not 32x3x3x3". */
#ifndef DUNLIN_AGENT_BASE_ERR_H
#define DUNLIN_AGENT_BASE_ERR_H

#define ERR_CODES(X)                                \
	X(ERR_NOMEM, -1, "out of memory")           \
	X(ERR_IO, -2, "input/output error")         \
	X(ERR_FORMAT, -3, "malformed data")         \
	X(ERR_LIMIT, -4, "over a limit")            \
	X(ERR_INVALID, -5, "invalid value")         \
	X(ERR_MISMATCH, -6, "does not match")       \
	X(ERR_UNSUPPORTED, -7, "not supported")     \
	X(ERR_NONFINITE, -8, "not a finite number") \
	X(ERR_NOTFOUND, -9, "not found")            \
	X(ERR_BUSY, -10, "in use")                  \
	X(ERR_DEVICE, -11, "device failure")        \
	X(ERR_USAGE, -12, "wrong usage")            \
	X(ERR_SYSTEM, -13, "system call failed")    \
	X(ERR_CANCELLED, -14, "given up")           \
	X(ERR_TIMEOUT, -15, "took too long")        \
	X(ERR_STALE, -16, "out of date")

enum err_code {
#define X(name, value, text) name = value,
	ERR_CODES(X)
#undef X
};

struct err {
	int code;
	char msg[256];
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* The fixed text of a code; "no error" for 0, "unknown error" for a foreign one. */
const char *err_text(int code);

/* Fills e (which may be NULL) and returns code. Long messages are cut. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set with ERR_IO, appending ": " and the text of errno. */
int err_errno(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the message and returns e->code (ERR_INVALID if e is NULL). */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
