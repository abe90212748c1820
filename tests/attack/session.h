/* SPDX-License-Identifier: MIT */
/* A peer of an agent's, made of blocking calls, that can be made to misbehave at any byte. */
#ifndef DUNLIN_TESTS_ATTACK_SESSION_H
#define DUNLIN_TESTS_ATTACK_SESSION_H

#include "net/codec/frame.h"
#include "net/codec/wire.h"
#include "net/crypto/aead.h"
#include "net/crypto/identity.h"
#include "net/crypto/noise.h"
#include "net/crypto/secret.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who attacks, and whom. */
struct attacker {
	struct sockaddr_in target;
	struct identity identity;
	const struct secrets *secrets;    /* borrowed */
	const struct aead_order *ciphers; /* borrowed */
};

/* Where a connection is damaged: byte positions, each direction counted from 0; -1: nowhere. */
struct damage {
	long flip_sent, flip_received;
	long cut; /* nothing from this position on is sent, then the connection is shut */
};
#define NO_DAMAGE ((struct damage){-1, -1, -1})

struct session {
	int fd;
	struct damage damage;
	size_t sent, received; /* bytes so far */
	bool shut;             /* the cut has come: nothing more goes out */
	struct noise noise;
	struct frame_writer writer;
	struct frame_reader reader;
	uint8_t *buf; /* owned: the reader's */
	uint8_t first[OPENING_HEADER_BYTES + OPENING_BYTES_MAX];
	size_t first_len; /* the first message, as it was sent */
	struct peer_id peer;
	const struct aead *cipher; /* of the agent's choice */
	uint8_t exporter[FRAME_SECRET_BYTES];
	uint64_t bulk_attempts;
};

long long now_ms(void);

/* A connection from the loopback address 127.1.x.y that n stands for, so that attacks may come from
 * many places; -1 if it could not be made. Nothing waits on it for longer than a minute. */
int dial_from(unsigned n, const struct sockaddr_in *to);

/* Each begins where the last one ended. 0, or what went wrong; ERR_IO is the connection's end, a
 * silence after our cut included. The session is closed in any case by session_close. */
int session_dial(struct session *s, const struct attacker *a, unsigned from, struct damage d);
int session_shake(struct session *s, const struct attacker *a);
/* Both, patiently: an agent that closes without a byte may have had enough of strangers for now. */
int session_open(struct session *s, const struct attacker *a, unsigned from);
int session_send(struct session *s, const struct wire_message *m);
int session_send_bytes(struct session *s, enum frame_type type, const uint8_t *bytes, size_t len);
/* The next message that the agent sends. */
int session_read(struct session *s, struct wire_message *m);
void session_close(struct session *s);

/* A bulk connection for the exchange or FETCH of that number, whose own direction is at its end;
 * the caller closes it. -1: it could not be made. */
int session_bulk(struct session *s, const struct attacker *a, unsigned from, uint64_t exchange);

/* Nothing more is sent. */
void session_shut(struct session *s);

/* Reads until the agent closes: 0, and bytes that came are counted; ERR_BUSY if it does not. After
 * a quarter of a second of silence our side is shut. */
int session_drain(struct session *s);

#endif
