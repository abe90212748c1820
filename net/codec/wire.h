/* SPDX-License-Identifier: MIT */
/* Messages as bytes: MessagePack arrays, the kind first, then the fields that wire_table.c lists:
 *
 *     [kind, field …]          an exchange's: [70, kind, field …]
 *
 * A list of updates is an array of [kind, field …, signature].
 *
 * BULK_OPEN goes in the clear: its token fits only the exchange and the attempt in it, so whoever
 * is on the way and changes them has done no more than cut the connection.
 *
 * Integers and lengths are written in their shortest form and accepted in no other. An array may
 * have more elements than we know: a later version adds at the end, and gives a kind's number to
 * nothing else. */
#ifndef DUNLIN_NET_CODEC_WIRE_H
#define DUNLIN_NET_CODEC_WIRE_H

#include "agent/base/err.h"
#include "gossip/exchange/exchange.h"
#include "gossip/membership/gossip.h"
#include "net/crypto/certificate.h"
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
	WIRE_CERTIFICATES,      /* of ids that are spoken of next, or were asked for */
	WIRE_WANT_CERTIFICATES, /* of these ids */
	WIRE_REVOKED,           /* the owner's list */
	WIRE_WANT_SETTINGS,     /* of the run, for one who is about to join */
	WIRE_SETTINGS,
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
	WHY_BROKEN,      /* your last message could not be understood */
	WHY_CERTIFICATE, /* none of the owner's, or not a valid one */
};

#define WIRE_SESSION_BYTES 8
#define WIRE_TOKEN_BYTES 16
#define WIRE_ADMISSION_BYTES (CERTIFICATES_MAX * CERTIFICATE_BYTES)
_Static_assert(REVOCATIONS_BYTES(REVOKED_MAX) <= WIRE_ADMISSION_BYTES &&
                       32 * CERTIFICATES_WANTED <= WIRE_ADMISSION_BYTES,
        "a list, or ids, fit into what certificates take");
_Static_assert(WIRE_ADMISSION_BYTES + 8 <= WIRE_BYTES_MAX, "with its kind and its length");

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
	uint16_t certificate_length; /* 0: none, else CERTIFICATE_BYTES */
	uint8_t certificate[CERTIFICATE_BYTES];
};

/* Certificates, ids or a list of revocations, one after the other. */
struct wire_admission {
	uint16_t length;
	uint8_t bytes[WIRE_ADMISSION_BYTES];
};

/* A part of the settings of the sender's run; WANT_SETTINGS has the offset alone. */
struct wire_settings {
	uint32_t offset, total; /* total 0: it has no run */
	uint16_t length;
	uint8_t bytes[SETTINGS_PART];
};
_Static_assert(SETTINGS_PART + 24 <= WIRE_BYTES_MAX, "with its kind and its numbers");

struct wire_refusal {
	uint16_t why; /* enum wire_why */
	char words[WIRE_WORDS_MAX + 1];
};

struct wire_bulk_open {
	uint8_t session[WIRE_SESSION_BYTES], token[WIRE_TOKEN_BYTES];
	uint64_t exchange; /* 0: none was said */
	uint64_t attempt;
};

struct wire_message {
	uint8_t kind; /* enum message_kind or enum wire_kind */
	union {
		struct gossip_message gossip; /* its kind is the same */
		struct wire_hello hello;
		struct wire_refusal refusal; /* REFUSE, BYE */
		uint64_t nonce;              /* WIRE_PING, WIRE_PONG */
		struct wire_bulk_open bulk;  /* WIRE_BULK_OPEN */
		struct exchange_message exchange;
		struct wire_admission admission; /* CERTIFICATES, WANT_CERTIFICATES, REVOKED */
		struct wire_settings settings;   /* WANT_SETTINGS, SETTINGS */
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

/* Signs what the core marks as ours, which must be by this identity; an update gets its bytes. */
struct identity;
void wire_sign_update(const struct identity *i, struct gossip_update *u);
void wire_sign_sketch(const struct identity *i, struct member_sketch *s);

/* Whether whoever it is by has signed what wire_decode made: ERR_MISMATCH if not; ERR_FORMAT: it
 * has no bytes. */
int wire_verify_update(const struct gossip_update *u) MUST_CHECK;
int wire_verify_sketch(const struct member_sketch *s) MUST_CHECK;

#endif
