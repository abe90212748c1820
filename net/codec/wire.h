/* SPDX-License-Identifier: MIT */
/* Messages as bytes: MessagePack arrays, the kind first.
 *
 *     PING      [0, nonce, target, [update…]]
 *     ACK       [1, nonce, [update…]]                        NACK alike, 2
 *     PING_REQ  [3, nonce, target, address, [update…]]
 *     GOSSIP    [4, [update…]]
 *     SYNC      [5, want_reply, [update…]]
 *     SKETCH    [6, id, generation, step, bytes, signature]
 *     HELLO     [64, protocol_min, protocol_max, ciphers]    first message of a handshake
 *               [64, …, id, signature, generation, [address…], flags]   the second and the third
 *     REFUSE    [65, why, words]
 *     PING      [66, nonce]                                  PONG alike, 67
 *     BULK_OPEN [68, token, exchange]                        the last one only if there is one
 *     BYE       [69, why, words]
 *     EXCHANGE  [70, kind, exchange, …], by kind:
 *        OFFER     [70, 0, exchange, manifest, step, samples, clock, mode, format, final, beta,
 *                   sketch]                                  ACCEPT alike, 1
 *        BUSY      [70, 2, exchange, why, words]             ABORT alike, 7; a manifest follows
 *                                                            where why is "unlike"
 *        OPEN      [70, 3, exchange]                         COMMIT alike, 5; ACK alike, 6
 *        END       [70, 4, exchange, [factor…]]
 *        SETTLE    [70, 8, exchange, settlement]
 *        FETCH     [70, 9, exchange, manifest, snapshot, offset]
 *        GIFT      [70, 10, exchange, manifest, snapshot, offset, step, samples, clock,
 *                   optim_steps, optimizer, vectors, [radius…]]
 *
 *     update    [0, id, generation, nonce, incarnation, version, flags, [address…], protocol_min,
 *                protocol_max, model, step, samples, loss, signature]
 *               [1, about, generation, incarnation, by, dead, signature]
 *     id 32 bytes, signature 64, token 16; address 6 or 18 bytes: the IP, then the port with its
 *     high byte first, 0 to 4 of them where there may be several; that of PING_REQ may be empty;
 *     ciphers: a byte each, fastest first; loss: a 32-bit float
 *     manifest  [run, model, init, count, total, optimizer, mode, formats]
 *     beta, factor, radius: 32-bit floats; one factor for each group of layers, one radius more;
 *     sketch: 0 to 1024 bytes
 *
 * BULK_OPEN goes in the clear: whoever is on the way can change the exchange in it, and has then
 * done no more than cut the connection.
 *
 * Integers and lengths are written in their shortest form and accepted in no other. An array may
 * have more elements than are listed here: a later version adds at the end, and gives a kind's
 * number to nothing else. */
#ifndef DUNLIN_NET_CODEC_WIRE_H
#define DUNLIN_NET_CODEC_WIRE_H

#include "agent/base/err.h"
#include "gossip/exchange/exchange.h"
#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Below are the kinds of enum message_kind. */
enum wire_kind {
	WIRE_HELLO = 64,
	WIRE_REFUSE,
	WIRE_PING, /* the session's own, about a connection and not about a member */
	WIRE_PONG,
	WIRE_BULK_OPEN, /* the first words on a bulk connection */
	WIRE_BYE,       /* the last message on a connection */
	WIRE_EXCHANGE,  /* on streams only */
};

/* Why a peer is refused or a connection ends. The words say it for people; the number lets a
 * program act. A number from a later version is kept as it is. */
enum wire_why {
	WHY_OTHER,
	WHY_PROTOCOL,  /* no protocol version, or no cipher, in common */
	WHY_SELF,      /* you dialled yourself, or a copy of you */
	WHY_DUPLICATE, /* another connection of this pair stands */
	WHY_LIST,      /* not on the allow-list, or on the block-list */
	WHY_BUSY,      /* no room; try again later */
	WHY_LEAVING,
	WHY_BROKEN, /* your last message could not be understood */
};

#define WIRE_TOKEN_BYTES 16

/* What the sides of a handshake say of themselves. */
struct wire_hello {
	uint16_t protocol_min, protocol_max;
	uint8_t n_ciphers;
	uint8_t cipher[AEAD_OFFER_MAX]; /* enum aead_id, or unknown to us; fastest first */
	bool identified;                /* the rest is there */
	struct peer_id id;
	uint8_t signature[64]; /* by id, over the Noise static key */
	uint64_t generation;
	struct peer_addrs addrs; /* advertised */
	bool dialable;
};

struct wire_refusal {
	uint16_t why; /* enum wire_why */
	char words[WIRE_WORDS_MAX + 1];
};

struct wire_message {
	uint8_t kind; /* enum message_kind or enum wire_kind */
	union {
		struct gossip_message gossip; /* its kind is the same */
		struct wire_hello hello;
		struct wire_refusal refusal; /* REFUSE, BYE */
		uint64_t nonce;              /* WIRE_PING, WIRE_PONG */
		struct {                     /* WIRE_BULK_OPEN */
			uint8_t token[WIRE_TOKEN_BYTES];
			uint64_t bulk_exchange; /* 0: none was said */
		};
		struct exchange_message exchange;
	};
};

/* Encodes into out of cap bytes, of which WIRE_BYTES_MAX are always enough; *len receives the
 * number used. Updates of our own must be signed already. ERR_LIMIT: cap is too small.
 *
 * A gossip message takes at most gossip_message_bytes(m) less what a datagram's or a frame's
 * sealing adds. */
int wire_encode(const struct wire_message *m, uint8_t *out, size_t cap, size_t *len) MUST_CHECK;
int wire_encode_gossip(
        const struct gossip_message *m, uint8_t *out, size_t cap, size_t *len) MUST_CHECK;

/* Decodes one whole message from anyone's bytes. Every field is in its range then; signatures are
 * not verified. ERR_UNSUPPORTED: well-formed, of a kind that this version does not know (ignore
 * it); ERR_FORMAT or ERR_LIMIT: not a message (drop the peer). No memory is taken.
 *
 * Of an exchange message: mode, format and optimizer are any byte, counts and offsets any number;
 * a `why` that this version does not know is EXCHANGE_OTHER. */
int wire_decode(
        const uint8_t *bytes, size_t len, struct wire_message *out, struct err *e) MUST_CHECK;

#endif
