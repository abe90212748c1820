/* SPDX-License-Identifier: MIT */
/* The idea: the peer's bytes are read straight into a buffer of our own size, opened where they
 * lie, and handed on from there. Nothing is copied but the beginning of a frame that does not fit
 * any more, to the front.
 *
 *     buf   ┌──────────┬─────────────┬─────────────────┬────────┐
 *           │ consumed │ whole frame │ part of another │  room  │
 *           0        start                            end      cap
 *
 * The happy path is frame_room, read(2) into it, frame_fed, frame_read until it returns 0. A length
 * is compared with our limit for its type as soon as its four bytes are there, before anything
 * waits for it; it is believed only with the tag. Since the header is associated data and the
 * nonce is the frame's number, a frame that was changed, left out, repeated, swapped or taken from
 * another connection does not open, and the reader is dead from then on.
 *
 * Keys: key = H(secret, "key"), and after a while secret = H(secret, "next"). So a key that leaks
 * opens only its own gigabyte, and what was sealed before stays closed. H is BLAKE2b keyed with the
 * secret. Both sides count the same frames and bytes, so they change keys at the same frame. */
#include "net/codec/frame.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

/* ---- openings */

void opening_header(uint8_t out[OPENING_HEADER_BYTES], enum opening_kind kind, size_t length)
{
	assert(length > 0 && length <= OPENING_BYTES_MAX);
	out[0] = (uint8_t)kind;
	out[1] = (uint8_t)length;
	out[2] = (uint8_t)(length >> 8);
}

int opening_parse(const uint8_t in[OPENING_HEADER_BYTES], struct opening *out)
{
	out->kind = in[0];
	out->length = (uint16_t)(in[1] | in[2] << 8);
	if (out->kind != OPENING_HANDSHAKE && out->kind != OPENING_BULK)
		return ERR_FORMAT;
	return out->length == 0 || out->length > OPENING_BYTES_MAX ? ERR_FORMAT : 0;
}

/* ---- keys */

/* BLAKE2b keyed with a secret, over a label (which names the purpose) and more. */
static void derive_from(uint8_t *out, size_t len, const uint8_t secret[FRAME_SECRET_BYTES],
        const char *label, const uint8_t *more, size_t more_len)
{
	crypto_generichash_state s;
	crypto_generichash_init(&s, secret, FRAME_SECRET_BYTES, len);
	crypto_generichash_update(&s, (const uint8_t *)label, strlen(label) + 1);
	crypto_generichash_update(&s, more, more_len);
	crypto_generichash_final(&s, out, len);
	sodium_memzero(&s, sizeof s);
}

static void put_u64(uint8_t out[8], uint64_t n)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(n >> 8 * i);
}

static void derive(uint8_t *out, size_t len, const uint8_t secret[FRAME_SECRET_BYTES],
        const char *label, uint64_t n)
{
	uint8_t number[8];
	put_u64(number, n);
	derive_from(out, len, secret, label, number, sizeof number);
}

void frame_exporter(uint8_t out[FRAME_SECRET_BYTES], const uint8_t from_initiator[32],
        const uint8_t from_responder[32], const uint8_t hash[32])
{
	static const char label[] = "dunlin exporter v1";
	crypto_generichash_state s;
	uint8_t keys[64];
	memcpy(keys, from_initiator, 32);
	memcpy(keys + 32, from_responder, 32);
	crypto_generichash_init(&s, keys, sizeof keys, FRAME_SECRET_BYTES);
	crypto_generichash_update(&s, (const uint8_t *)label, sizeof label);
	crypto_generichash_update(&s, hash, 32);
	crypto_generichash_final(&s, out, FRAME_SECRET_BYTES);
	sodium_memzero(keys, sizeof keys);
	sodium_memzero(&s, sizeof s);
}

void frame_bulk(struct frame_bulk *out, const uint8_t exporter[FRAME_SECRET_BYTES],
        const struct frame_bulk_use *use)
{
	uint8_t u[17];
	put_u64(u, use->exchange);
	put_u64(u + 8, use->attempt);
	u[16] = use->initiator_dials ? 0 : 1;
	derive_from(out->token, sizeof out->token, exporter, "dunlin bulk token v2", u, sizeof u);
	derive_from(out->from_dialler, FRAME_SECRET_BYTES, exporter, "dunlin bulk dialler v2", u,
	        sizeof u);
	derive_from(out->from_listener, FRAME_SECRET_BYTES, exporter, "dunlin bulk listener v2", u,
	        sizeof u);
}

void frame_session(uint8_t out[FRAME_SESSION_BYTES], const uint8_t exporter[FRAME_SECRET_BYTES])
{
	derive(out, FRAME_SESSION_BYTES, exporter, "dunlin bulk session v1", 0);
}

static int keys_set(struct frame_keys *k)
{
	uint8_t key[AEAD_KEY_BYTES];
	derive(key, sizeof key, k->secret, "dunlin frame key v1", 0);
	aead_close(&k->key);
	int rc = aead_init(&k->key, k->aead, key);
	sodium_memzero(key, sizeof key);
	k->frames_left = k->rekey_frames;
	k->bytes_left = k->rekey_bytes;
	return rc;
}

static int keys_init(
        struct frame_keys *k, const struct aead *a, const uint8_t secret[FRAME_SECRET_BYTES])
{
	memset(k, 0, sizeof *k);
	k->aead = a;
	k->overhead = FRAME_HEADER_BYTES + a->tag_bytes;
	k->rekey_frames = FRAME_REKEY_FRAMES;
	k->rekey_bytes = FRAME_REKEY_BYTES;
	memcpy(k->secret, secret, sizeof k->secret);
	return keys_set(k);
}

static void keys_close(struct frame_keys *k)
{
	aead_close(&k->key);
	sodium_memzero(k, sizeof *k);
}

/* Before each frame: is it time for the next key? */
static int keys_ready(struct frame_keys *k)
{
	if (k->frames_left > 0 && k->bytes_left > 0)
		return 0;
	derive(k->secret, sizeof k->secret, k->secret, "dunlin frame next v1", 0);
	return keys_set(k);
}

/* After each. */
static void keys_count(struct frame_keys *k, size_t len)
{
	k->counter++;
	k->frames_left--;
	k->bytes_left -= len < k->bytes_left ? len : k->bytes_left;
}

/* ---- writing */

/* The longest payload of a type on a channel; negative: not there at all. */
static long type_max(uint8_t type, size_t chunk_max)
{
	switch (type) {
	case FRAME_MESSAGE:
		return FRAME_MESSAGE_MAX;
	case FRAME_CHUNK:
		return chunk_max ? (long)chunk_max : -1;
	case FRAME_END:
		return 0;
	default:
		return -1;
	}
}

int frame_writer_init(struct frame_writer *w, const struct aead *a,
        const uint8_t secret[FRAME_SECRET_BYTES], size_t chunk_max)
{
	assert(chunk_max <= FRAME_CHUNK_MAX);
	w->chunk_max = chunk_max;
	w->code = keys_init(&w->keys, a, secret);
	return w->code;
}

void frame_writer_close(struct frame_writer *w)
{
	keys_close(&w->keys);
	w->code = ERR_USAGE;
}

int frame_seal(struct frame_writer *w, enum frame_type type, const uint8_t *payload, size_t len,
        uint8_t *out, size_t *out_len)
{
	long max = type_max((uint8_t)type, w->chunk_max);
	*out_len = 0;
	if (w->code)
		return w->code;
	if (max < 0 || len > (size_t)max)
		return ERR_LIMIT;
	out[0] = (uint8_t)len;
	out[1] = (uint8_t)(len >> 8);
	out[2] = (uint8_t)(len >> 16);
	out[3] = (uint8_t)type;
	w->code = keys_ready(&w->keys);
	if (w->code)
		return w->code;
	w->code = aead_seal(&w->keys.key, w->keys.counter, out, FRAME_HEADER_BYTES, payload, len,
	        out + FRAME_HEADER_BYTES);
	if (w->code)
		return w->code;
	keys_count(&w->keys, len);
	*out_len = len + w->keys.overhead;
	if (type == FRAME_END)
		w->code = ERR_USAGE;
	return 0;
}

/* ---- reading */

size_t frame_reader_bytes(size_t chunk_max)
{
	size_t most = chunk_max > FRAME_MESSAGE_MAX ? chunk_max : (size_t)FRAME_MESSAGE_MAX;
	return most + FRAME_OVERHEAD_MAX;
}

int frame_reader_init(struct frame_reader *r, const struct aead *a,
        const uint8_t secret[FRAME_SECRET_BYTES], size_t chunk_max, uint8_t *buf, size_t cap)
{
	assert(chunk_max <= FRAME_CHUNK_MAX && cap >= frame_reader_bytes(chunk_max));
	r->chunk_max = chunk_max;
	r->buf = buf;
	r->cap = cap;
	r->start = r->end = 0;
	r->ended = false;
	r->code = keys_init(&r->keys, a, secret);
	return r->code;
}

void frame_reader_close(struct frame_reader *r)
{
	keys_close(&r->keys);
	r->code = ERR_USAGE;
}

uint8_t *frame_room(struct frame_reader *r, size_t *len)
{
	if (r->start > 0) {
		memmove(r->buf, r->buf + r->start, r->end - r->start);
		r->end -= r->start;
		r->start = 0;
	}
	*len = r->cap - r->end;
	return r->buf + r->end;
}

void frame_fed(struct frame_reader *r, size_t len)
{
	assert(len <= r->cap - r->end);
	r->end += len;
}

size_t frame_held(const struct frame_reader *r)
{
	return r->end - r->start;
}

void frame_reader_move(struct frame_reader *r, uint8_t *buf, size_t cap)
{
	assert(cap >= frame_reader_bytes(r->chunk_max));
	memmove(buf, r->buf + r->start, frame_held(r));
	r->end = frame_held(r);
	r->start = 0;
	r->buf = buf;
	r->cap = cap;
}

/* Opens the frame that lies whole at start. */
static int open_frame(struct frame_reader *r, uint8_t type, size_t len, struct frame *out)
{
	uint8_t *header = r->buf + r->start, *body = header + FRAME_HEADER_BYTES;
	int rc = keys_ready(&r->keys);
	if (rc)
		return rc;
	rc = aead_open(&r->keys.key, r->keys.counter, header, FRAME_HEADER_BYTES, body,
	        len + r->keys.overhead - FRAME_HEADER_BYTES, body);
	if (rc)
		return rc;
	keys_count(&r->keys, len);
	r->start += len + r->keys.overhead;
	r->ended = type == FRAME_END;
	*out = (struct frame){.type = type, .payload = body, .len = len};
	return 1;
}

int frame_read(struct frame_reader *r, struct frame *out, struct err *e)
{
	size_t have = r->end - r->start;
	if (r->code)
		return err_set(e, r->code, "this connection has failed before");
	if (r->ended && have > 0)
		return r->code = err_set(e, ERR_FORMAT, "bytes after the end of the connection");
	if (have < FRAME_HEADER_BYTES)
		return 0;
	const uint8_t *h = r->buf + r->start;
	size_t len = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16;
	uint8_t type = h[3];
	long max = type_max(type, r->chunk_max);
	if (max < 0)
		return r->code = err_set(e, ERR_FORMAT, "frame of unknown type %u", type);
	if (len > (size_t)max)
		return r->code = err_set(e, ERR_LIMIT, "frame of %zu bytes, at most %ld", len, max);
	if (have < len + r->keys.overhead)
		return 0;
	int rc = open_frame(r, type, len, out);
	if (rc < 0)
		r->code = err_set(e, rc, "frame %llu does not open: it was changed on the way",
		        (unsigned long long)r->keys.counter);
	return rc;
}
