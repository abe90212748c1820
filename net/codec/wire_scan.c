/* SPDX-License-Identifier: MIT */
/* The idea: an attacker's bytes are looked at by one small loop before anything believes them.
 *
 * head() reads what one value says of itself: its type, its number if it is one, how many bytes of
 * content or how many elements follow. It never passes the end. scan() walks over a whole value
 * with head(), without recursion: a stack of "how many are left" as deep as we allow.
 *
 *     [3, [a, b], c]     left: 3 → 2 ┬ 2 → 1 → 0 ┐ 1 → 0
 *                                    └───────────┘
 *
 * A count is believed only if so many bytes are there at all, since every element takes one. So a
 * five-byte message that claims 2^32 elements ends at once, and no work exceeds the message's size.
 * msgpack-c's unpacker would take the count at its word and reserve memory; it is not used.
 *
 * What can fail: bytes missing or left over, too deep, too many, the one byte that MessagePack does
 * not use, and then a value that is of another type, longer or larger than is wanted. */
#include "net/codec/wire_scan.h"

#include "agent/base/buf.h"
#include "net/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum type {
	T_UINT,
	T_NEGATIVE,
	T_BOOL,
	T_NIL,
	T_FLOAT,
	T_DOUBLE,
	T_BIN,
	T_STR,
	T_EXT,
	T_ARRAY,
	T_MAP
};

static const char *const type_names[] = {"a number", "a negative number", "true or false", "nil",
        "a float", "a double", "bytes", "text", "an extension", "an array", "a map"};

struct head {
	enum type type;
	bool shortest;   /* written in no more bytes than needed */
	uint64_t number; /* UINT; BOOL; a FLOAT's bits */
	size_t content;  /* bytes that follow: BIN, STR, EXT */
	uint64_t values; /* that follow: ARRAY, MAP (two for each pair) */
};

/* How the bytes from 0xc0 to 0xdf are made. The operand is a number or a length. */
struct form {
	uint8_t type, operand, fixed; /* bytes of the operand; bytes of content besides */
	uint64_t least;               /* a smaller one has a shorter form */
};
static const struct form forms[32] = {
        [0x00] = {T_NIL, 0, 0, 0},
        /* 0xc1 is never used */
        [0x02] = {T_BOOL, 0, 0, 0},
        [0x03] = {T_BOOL, 0, 0, 0},
        [0x04] = {T_BIN, 1, 0, 0},
        [0x05] = {T_BIN, 2, 0, 0x100},
        [0x06] = {T_BIN, 4, 0, 0x10000},
        [0x07] = {T_EXT, 1, 1, 0},
        [0x08] = {T_EXT, 2, 1, 0x100},
        [0x09] = {T_EXT, 4, 1, 0x10000},
        [0x0a] = {T_FLOAT, 4, 0, 0},
        [0x0b] = {T_DOUBLE, 8, 0, 0},
        [0x0c] = {T_UINT, 1, 0, 0x80},
        [0x0d] = {T_UINT, 2, 0, 0x100},
        [0x0e] = {T_UINT, 4, 0, 0x10000},
        [0x0f] = {T_UINT, 8, 0, 0x100000000},
        [0x10] = {T_NEGATIVE, 1, 0, 0},
        [0x11] = {T_NEGATIVE, 2, 0, 0},
        [0x12] = {T_NEGATIVE, 4, 0, 0},
        [0x13] = {T_NEGATIVE, 8, 0, 0},
        [0x14] = {T_EXT, 0, 2, 0},
        [0x15] = {T_EXT, 0, 3, 0},
        [0x16] = {T_EXT, 0, 5, 0},
        [0x17] = {T_EXT, 0, 9, 0},
        [0x18] = {T_EXT, 0, 17, 0},
        [0x19] = {T_STR, 1, 0, 0x20},
        [0x1a] = {T_STR, 2, 0, 0x100},
        [0x1b] = {T_STR, 4, 0, 0x10000},
        [0x1c] = {T_ARRAY, 2, 0, 0x10},
        [0x1d] = {T_ARRAY, 4, 0, 0x10000},
        [0x1e] = {T_MAP, 2, 0, 0x10},
        [0x1f] = {T_MAP, 4, 0, 0x10000},
};

static void measure(struct head *h, uint64_t n, size_t fixed)
{
	if (h->type == T_BIN || h->type == T_STR || h->type == T_EXT)
		h->content = (size_t)n + fixed; /* n has at most 32 bits here */
	else if (h->type == T_ARRAY || h->type == T_MAP)
		h->values = h->type == T_MAP ? 2 * n : n;
	else
		h->number = n;
}

/* Reads a value's head and moves to what follows it. NULL, or what is wrong. */
static const char *head(const uint8_t **at, const uint8_t *end, struct head *h)
{
	if (*at == end)
		return "it ends too early";
	uint8_t b = *(*at)++;
	*h = (struct head){.type = T_UINT, .shortest = true, .number = b};
	if (b >= 0xe0) {
		h->type = T_NEGATIVE;
	} else if (b >= 0xc0) {
		const struct form *f = &forms[b - 0xc0];
		if (b == 0xc1)
			return "a byte that MessagePack does not use";
		if (f->operand > end - *at)
			return "it ends too early";
		uint64_t n = 0;
		for (int i = 0; i < f->operand; i++)
			n = n << 8 | *(*at)++;
		h->type = f->type;
		h->shortest = n >= f->least;
		measure(h, h->type == T_BOOL ? b & 1u : n, f->fixed);
	} else if (b >= 0xa0) {
		h->type = T_STR;
		measure(h, b & 0x1fu, 0);
	} else if (b >= 0x80) {
		h->type = b >= 0x90 ? T_ARRAY : T_MAP;
		measure(h, b & 0x0fu, 0);
	}
	size_t left = (size_t)(end - *at);
	return h->content > left || h->values > left ? "it promises more than is there" : NULL;
}

/* Walks over one value and all in it. */
static int scan(const uint8_t **at, const uint8_t *end, const char **why)
{
	uint64_t left[WIRE_DEPTH_MAX + 1] = {1};
	int depth = 0, seen = 0;
	while (depth > 0 || left[0] > 0) {
		struct head h;
		if (left[depth] == 0) {
			depth--;
			continue;
		}
		left[depth]--;
		*why = head(at, end, &h);
		if (*why)
			return ERR_FORMAT;
		*at += h.content;
		*why = "too many values";
		if (++seen > WIRE_VALUES_MAX)
			return ERR_LIMIT;
		if (h.type != T_ARRAY && h.type != T_MAP)
			continue;
		*why = "arrays too deep inside each other";
		if (++depth > WIRE_DEPTH_MAX)
			return ERR_LIMIT;
		left[depth] = h.values;
	}
	return 0;
}

int wire__begin(struct wire_in *in, const uint8_t *bytes, size_t len, struct err *e)
{
	const char *why;
	*in = (struct wire_in){.at = bytes, .end = bytes + len, .e = e, .where = "message"};
	const uint8_t *at = bytes;
	int rc = scan(&at, in->end, &why);
	if (rc == 0 && at != in->end) {
		rc = ERR_FORMAT;
		why = "there is more after its end";
	}
	if (rc)
		wire__wrong(in, rc, "%s", why);
	return rc;
}

void wire__wrong(struct wire_in *in, int code, const char *fmt, ...)
{
	char text[128];
	va_list ap;
	if (in->code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	in->code = err_set(in->e, code, "%s: %s", in->where, text);
}

/* The next value's head if it is of the type and in its shortest form. */
static bool take(struct wire_in *in, const char *name, enum type wanted, struct head *h)
{
	*h = (struct head){0};
	if (in->code)
		return false;
	const char *why = head(&in->at, in->end, h);
	if (why)
		wire__wrong(in, ERR_FORMAT, "%s: %s", name, why);
	else if (h->type != wanted)
		wire__wrong(in, ERR_FORMAT, "%s: %s, not %s", name, type_names[h->type],
		        type_names[wanted]);
	else if (!h->shortest)
		wire__wrong(in, ERR_FORMAT, "%s: not in its shortest form", name);
	return in->code == 0;
}

uint64_t wire__uint(struct wire_in *in, const char *name, uint64_t max)
{
	struct head h;
	if (!take(in, name, T_UINT, &h))
		return 0;
	if (h.number > max) {
		wire__wrong(in, ERR_FORMAT, "%s: %llu is over %llu", name,
		        (unsigned long long)h.number, (unsigned long long)max);
		return 0;
	}
	return h.number;
}

bool wire__bool(struct wire_in *in, const char *name)
{
	struct head h;
	return take(in, name, T_BOOL, &h) && h.number;
}

float wire__float(struct wire_in *in, const char *name)
{
	struct head h;
	float f = 0;
	if (take(in, name, T_FLOAT, &h)) {
		uint32_t bits = (uint32_t)h.number;
		memcpy(&f, &bits, sizeof f);
	}
	return f;
}

static size_t copy(struct wire_in *in, const char *name, enum type t, void *out, size_t max)
{
	struct head h;
	if (!take(in, name, t, &h))
		return 0;
	if (h.content > max) {
		wire__wrong(in, ERR_FORMAT, "%s: %zu bytes, at most %zu", name, h.content, max);
		return 0;
	}
	if (h.content)
		memcpy(out, in->at, h.content);
	in->at += h.content;
	return h.content;
}

size_t wire__blob(struct wire_in *in, const char *name, uint8_t *out, size_t max)
{
	return copy(in, name, T_BIN, out, max);
}

void wire__bytes(struct wire_in *in, const char *name, uint8_t *out, size_t len)
{
	size_t n = copy(in, name, T_BIN, out, len);
	if (n != len)
		wire__wrong(in, ERR_FORMAT, "%s: %zu bytes, not %zu", name, n, len);
}

void wire__text(struct wire_in *in, const char *name, char *out, size_t max)
{
	size_t n = copy(in, name, T_STR, out, max), width;
	out[n] = '\0'; /* stops every sequence */
	for (char *at = out; at < out + n; at += width) {
		uint8_t first = (uint8_t)at[0], second = (uint8_t)at[1];
		width = utf8_bytes(at);
		bool c0 = first < 0x20 || first == 0x7f, c1 = first == 0xc2 && second < 0xa0;
		if (c0 || c1 || width == 0)
			memset(at, '?', width = width ? width : 1);
	}
}

uint32_t wire__array(struct wire_in *in, const char *name, uint32_t least, uint32_t most)
{
	struct head h;
	if (!take(in, name, T_ARRAY, &h))
		return 0;
	if (h.values < least || h.values > most) {
		wire__wrong(in, ERR_FORMAT, "%s: %llu elements, %s %u", name,
		        (unsigned long long)h.values, h.values < least ? "at least" : "at most",
		        h.values < least ? least : most);
		return 0;
	}
	return (uint32_t)h.values;
}

void wire__skip(struct wire_in *in, uint32_t n)
{
	for (uint32_t i = 0; i < n && in->code == 0; i++) {
		const char *why;
		int rc = scan(&in->at, in->end, &why);
		if (rc)
			wire__wrong(in, rc, "%s", why); /* not after wire__begin */
	}
}
