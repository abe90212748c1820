/* SPDX-License-Identifier: MIT */
/* What flows on a connection, as bytes in and bytes out.
 *
 * Before the session stands, a message of the handshake (or of a bulk connection's opening) goes in
 * the clear but for what Noise seals itself:
 *
 *     opening   ┌ kind u8 ┬ length u16 ┬ message ┐
 *
 * Then each direction is a row of frames, sealed with a key of its own:
 *
 *     frame     ┌ length u24, type u8 ┬ sealed payload (length bytes) ┬ tag ┐
 *               └── associated data ──┘
 *
 * Numbers are little-endian. The nonce is the frame's number in its direction, from 0. After
 * FRAME_REKEY_FRAMES frames or FRAME_REKEY_BYTES bytes both sides derive the next key and forget
 * the last; the count goes on. The last frame is END: a connection that ends without it was cut.
 *
 * Nothing here blocks, allocates or knows a socket. A writer and a reader belong to one thread at a
 * time, and must not be moved while open (see net/crypto/aead.h). */
#ifndef DUNLIN_NET_CODEC_FRAME_H
#define DUNLIN_NET_CODEC_FRAME_H

#include "agent/base/err.h"
#include "net/crypto/aead.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- openings */

enum opening_kind { OPENING_HANDSHAKE = 1, OPENING_BULK = 2 };

#define OPENING_HEADER_BYTES 3

struct opening {
	uint8_t kind;
	uint16_t length;
};

void opening_header(uint8_t out[OPENING_HEADER_BYTES], enum opening_kind kind, size_t length);

/* From the first OPENING_HEADER_BYTES of a connection, or of the other side's answer. ERR_FORMAT
 * for a kind that does not exist or a length of 0 or over OPENING_BYTES_MAX: drop the connection,
 * say nothing. */
int opening_parse(const uint8_t in[OPENING_HEADER_BYTES], struct opening *out) MUST_CHECK;

/* ---- keys */

#define FRAME_SECRET_BYTES 32
#define FRAME_TOKEN_BYTES 16
#define FRAME_SESSION_BYTES 8

/* What both sides keep of a handshake to open bulk connections later. From the two keys of the
 * split, the initiator's sending one first, and the handshake's hash. Knowing it helps to read no
 * frame of the control channel. */
void frame_exporter(uint8_t out[FRAME_SECRET_BYTES], const uint8_t from_initiator[32],
        const uint8_t from_responder[32], const uint8_t hash[32]);

/* What a bulk connection is, within its session. Attempts of one dialler never repeat, so neither
 * do keys, whatever exchange they are for. */
struct frame_bulk_use {
	uint64_t exchange;
	uint64_t attempt;     /* counted by the dialler over the whole session, from 1 */
	bool initiator_dials; /* the dialler of the control connection dials this one, too */
};

/* The token that opens a bulk connection, and the secrets of its two directions, the one of whoever
 * dials the bulk connection first. Take each use once. */
struct frame_bulk {
	uint8_t token[FRAME_TOKEN_BYTES];
	uint8_t from_dialler[FRAME_SECRET_BYTES], from_listener[FRAME_SECRET_BYTES];
};
void frame_bulk(struct frame_bulk *out, const uint8_t exporter[FRAME_SECRET_BYTES],
        const struct frame_bulk_use *use);

/* The name of a session on its bulk connections: it tells the listener whose token to compute. No
 * secret: who listens can read it, and gains nothing. */
void frame_session(uint8_t out[FRAME_SESSION_BYTES], const uint8_t exporter[FRAME_SECRET_BYTES]);

/* ---- frames */

enum frame_type { FRAME_MESSAGE = 1, FRAME_CHUNK = 2, FRAME_END = 3 };

#define FRAME_HEADER_BYTES 4
#define FRAME_OVERHEAD_MAX (FRAME_HEADER_BYTES + AEAD_TAG_MAX)

/* One direction's keys. */
struct frame_keys {
	struct aead_key key;
	const struct aead *aead;            /* borrowed, static */
	size_t overhead;                    /* what a frame has besides its payload */
	uint8_t secret[FRAME_SECRET_BYTES]; /* the next key comes from it */
	uint64_t counter;                   /* frames so far */
	uint64_t frames_left, bytes_left;   /* under this key */
	uint64_t rekey_frames, rekey_bytes; /* limits.h; a test may set less */
};

struct frame_writer {
	struct frame_keys keys;
	size_t chunk_max; /* 0: a control channel */
	int code;         /* 0, or why nothing more can be sealed */
};

/* secret may be wiped afterwards. chunk_max is at most FRAME_CHUNK_MAX. ERR_UNSUPPORTED or
 * ERR_NOMEM from the cipher. */
int frame_writer_init(struct frame_writer *w, const struct aead *a,
        const uint8_t secret[FRAME_SECRET_BYTES], size_t chunk_max) MUST_CHECK;
void frame_writer_close(struct frame_writer *w); /* wipes; harmless on zeros or twice */

/* Seals len bytes of payload into out, which has room for len + FRAME_OVERHEAD_MAX; *out_len
 * receives how much of it is the frame. payload may be out + FRAME_HEADER_BYTES, to seal in place;
 * otherwise they must not overlap. ERR_LIMIT: longer
 * than that type may be (the writer lives on); ERR_USAGE: after END; or the cipher's failure, after
 * which nothing more can be sealed. */
int frame_seal(struct frame_writer *w, enum frame_type type, const uint8_t *payload, size_t len,
        uint8_t *out, size_t *out_len) MUST_CHECK;

struct frame {
	uint8_t type;     /* enum frame_type */
	uint8_t *payload; /* in the reader's buffer, until frame_room or frame_read */
	size_t len;
};

struct frame_reader {
	struct frame_keys keys;
	size_t chunk_max;
	uint8_t *buf; /* borrowed */
	size_t cap, start, end;
	bool ended;
	int code; /* 0, or why it is dead */
};

/* Room for one frame of the longest kind: what buf must have. With exactly this much, a row of
 * chunks of chunk_max bytes is not copied. */
size_t frame_reader_bytes(size_t chunk_max);

int frame_reader_init(struct frame_reader *r, const struct aead *a,
        const uint8_t secret[FRAME_SECRET_BYTES], size_t chunk_max, uint8_t *buf,
        size_t cap) MUST_CHECK;
void frame_reader_close(struct frame_reader *r);

/* Where the next bytes from the connection go, and how many at most: never 0 after frame_read has
 * returned 0. Then say how many came. */
uint8_t *frame_room(struct frame_reader *r, size_t *len);
void frame_fed(struct frame_reader *r, size_t len);

/* How much of a frame that is not whole it holds. */
size_t frame_held(const struct frame_reader *r);

/* What it holds goes to another buffer, of at least frame_reader_bytes, which is the reader's from
 * now on. So readers that hold nothing may share one. */
void frame_reader_move(struct frame_reader *r, uint8_t *buf, size_t cap);

/* The next whole frame. 1: *out is filled in; 0: more bytes are needed; negative, for ever: the
 * connection is to be dropped. ERR_FORMAT: a type that does not exist or bytes after END;
 * ERR_LIMIT: a length over the type's; ERR_MISMATCH: it was not sealed by the peer as the next
 * frame. */
int frame_read(struct frame_reader *r, struct frame *out, struct err *e) MUST_CHECK;

#endif
