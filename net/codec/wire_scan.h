/* SPDX-License-Identifier: MIT */
/* Reading MessagePack that anyone may have sent. wire__begin looks at the whole of it once, with
 * every bound; then the values are taken one after the other. The first thing that is wrong is
 * kept, with its name, and all that is taken after it is zero: look at `code` once, at the end. */
#ifndef DUNLIN_NET_CODEC_WIRE_SCAN_H
#define DUNLIN_NET_CODEC_WIRE_SCAN_H

#include "agent/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_in {
	const uint8_t *at, *end; /* borrowed */
	int code;                /* 0 so far, or what went wrong */
	struct err *e;
	const char *where; /* the message's name, for errors */
};

/* ERR_FORMAT unless the bytes are exactly one value; ERR_LIMIT over WIRE_DEPTH_MAX or
 * WIRE_VALUES_MAX. */
int wire__begin(struct wire_in *in, const uint8_t *bytes, size_t len, struct err *e) MUST_CHECK;

/* Says what is wrong, unless something was already. */
void wire__wrong(struct wire_in *in, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* The next value, of the type that is wanted. */
uint64_t wire__uint(struct wire_in *in, const char *name, uint64_t max);
bool wire__bool(struct wire_in *in, const char *name);
float wire__float(struct wire_in *in, const char *name);
void wire__bytes(struct wire_in *in, const char *name, uint8_t *out, size_t len);  /* exactly */
size_t wire__blob(struct wire_in *in, const char *name, uint8_t *out, size_t max); /* at most */
/* For people's eyes, with a NUL added: control characters and what is not UTF-8 become '?'. */
void wire__text(struct wire_in *in, const char *name, char *out, size_t max);

/* An array's number of elements; wrong if fewer than least or more than most. */
uint32_t wire__array(struct wire_in *in, const char *name, uint32_t least, uint32_t most);

/* Passes over n whole values. */
void wire__skip(struct wire_in *in, uint32_t n);

#endif
