/* SPDX-License-Identifier: MIT */
/* The input is a script for a connection: an honest writer seals frames, somebody on the way
 * changes, repeats, leaves out and adds bytes, and the reader gets it in pieces. What the reader
 * hands on must be the beginning of what was sent, to the byte, and END only where it was. */
#include "tests/net/frame_push.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHUNK 70000
#define FRAMES 12
#define ROOM (3 * (CHUNK + FRAME_OVERHEAD_MAX))

static struct {
	const uint8_t *at, *end;
} script;

static size_t next(size_t bytes)
{
	size_t n = 0;
	while (bytes-- > 0)
		n = n << 8 | (script.at < script.end ? *script.at++ : 0);
	return n;
}

static uint8_t wire[ROOM];
static size_t wire_len, sent_len[FRAMES];
static uint8_t sent_type[FRAMES];
static int n_sent;

static void seal_frames(struct frame_writer *w)
{
	static uint8_t out[CHUNK + 100 + FRAME_OVERHEAD_MAX];
	int n = (int)(next(1) % FRAMES);
	wire_len = 0;
	for (n_sent = 0; n_sent < n; n_sent++) {
		enum frame_type type = (enum frame_type)(next(1) % 5);
		size_t len = next(1), k;
		if (len > 250) /* few are long, so that most runs are quick */
			len = (len - 250) * (CHUNK / 5 + 10);
		memset(out + FRAME_HEADER_BYTES, n_sent, len);
		int rc = frame_seal(w, type, out + FRAME_HEADER_BYTES, len, out, &k);
		if (rc == ERR_LIMIT) {
			n--;
			n_sent--;
			continue;
		}
		if (rc || wire_len + k > ROOM)
			return; /* after END, or enough */
		memcpy(wire + wire_len, out, k);
		wire_len += k;
		sent_len[n_sent] = len;
		sent_type[n_sent] = (uint8_t)type;
	}
}

/* Changes what was sent, or not. */
static void tamper(void)
{
	size_t what = next(1), at = wire_len ? next(3) % wire_len : 0, n = 1 + next(1);
	if (what % 4 == 0 || wire_len == 0)
		return;
	if (what % 4 == 1) { /* change */
		wire[at] ^= (uint8_t)next(1);
		return;
	}
	if (what % 4 == 2) { /* leave out */
		n = n < wire_len - at ? n : wire_len - at;
		memmove(wire + at, wire + at + n, wire_len - at - n);
		wire_len -= n;
		return;
	}
	for (; n > 0 && wire_len < ROOM; n--) { /* add */
		memmove(wire + at + 1, wire + at, wire_len - at);
		wire[at] = (uint8_t)next(1);
		wire_len++;
	}
}

/* How many bytes at the beginning are as they were sent; SIZE_MAX: all. A byte that is added may
 * equal the one that it pushes on, so where tamper worked does not tell. */
static size_t tampered(void)
{
	static uint8_t before[ROOM];
	const size_t len = wire_len;
	size_t same = 0;

	memcpy(before, wire, len);
	tamper();
	while (same < len && same < wire_len && before[same] == wire[same])
		same++;
	return same == len && len == wire_len ? SIZE_MAX : same;
}

static void check(const struct frame *f, int i)
{
	if (i >= n_sent || f->type != sent_type[i] || f->len != sent_len[i])
		abort();
	for (size_t k = 0; k < f->len; k++)
		if (f->payload[k] != (uint8_t)i)
			abort();
}

static void read_frames(struct frame_reader *r, size_t intact)
{
	size_t at = 0, whole = 0;
	int n = 0, rc = 0;
	struct err e = {0};
	bool ended = false;
	while (at < wire_len && rc == 0) {
		struct frame f;
		size_t piece = 1 + next(2), left = wire_len - at;
		at += frame_push(r, wire + at, piece < left ? piece : left);
		while ((rc = frame_read(r, &f, &e)) > 0) {
			check(&f, n);
			whole += f.len + r->keys.overhead;
			ended = f.type == FRAME_END;
			n++;
		}
	}
	if (rc < 0 && (e.code != rc || !e.msg[0] || frame_read(r, &(struct frame){0}, &e) != rc))
		abort();
	/* Not one frame that holds a changed byte; all of them if none was changed. */
	if (whole > intact || (intact == SIZE_MAX && (rc < 0 || n != n_sent)))
		abort();
	if (r->ended != ended)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct frame_writer w;
	static struct frame_reader r;
	static uint8_t buf[CHUNK + FRAME_OVERHEAD_MAX];
	static const uint8_t secret[FRAME_SECRET_BYTES] = {1};
	if (sodium_init() < 0)
		abort();
	script.at = data;
	script.end = data + size;
	size_t chunk = next(1) % 2 ? CHUNK : 0;
	if (frame_writer_init(&w, aead_list[0], secret, chunk) ||
	        frame_reader_init(&r, aead_list[0], secret, chunk, buf, sizeof buf))
		abort();
	uint64_t frames = 1 + next(1) % 8, bytes = 1 + next(3);
	w.keys.frames_left = w.keys.rekey_frames = frames;
	r.keys.frames_left = r.keys.rekey_frames = frames;
	w.keys.bytes_left = w.keys.rekey_bytes = bytes;
	r.keys.bytes_left = r.keys.rekey_bytes = bytes;
	seal_frames(&w);
	size_t intact = tampered();
	read_frames(&r, intact);
	frame_writer_close(&w);
	frame_reader_close(&r);

	struct opening o;
	if (size >= OPENING_HEADER_BYTES && opening_parse(data, &o) == 0 &&
	        (o.length == 0 || o.length > OPENING_BYTES_MAX))
		abort();
	return 0;
}
