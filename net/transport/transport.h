/* SPDX-License-Identifier: MIT */
/* Connections and datagrams between agents, on a libuv loop.
 *
 *     transport_send ──► a stream to that peer (dialled if need be), or a sealed datagram
 *     transport_post ──► the same stream, for the messages of an exchange
 *     message_cb, exchange_cb
 *                    ◄── messages of peers that have proved the flock's key and their identity
 *     up_cb, down_cb ◄── the first stream with a peer stands; the last one is gone
 *
 * One TCP and one UDP socket on the same port; both take IPv4 and IPv6 if that is wanted. A pair
 * of agents keeps one control connection, whoever dialled; where both dial at once, the one that
 * the lower id dialled survives. Beside it a pair may open bulk connections, by a token that only
 * the two can know, so that megabytes never stand before a probe.
 *
 * Everything runs on the loop's thread and returns at once. Queues are bounded: what does not fit
 * is dropped and counted, since membership repeats whatever matters. */
#ifndef DUNLIN_NET_TRANSPORT_TRANSPORT_H
#define DUNLIN_NET_TRANSPORT_TRANSPORT_H

#include "agent/base/err.h"
#include "gossip/exchange/exchange.h"
#include "gossip/membership/gossip.h"
#include "net/codec/frame.h"
#include "net/crypto/aead.h"
#include "net/crypto/identity.h"
#include "net/crypto/secret.h"
#include "net/transport/admission.h"
#include "net/transport/lists.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#define PROTOCOL_MIN 3
#define PROTOCOL_MAX 3

struct transport;
struct wire_settings; /* net/codec/wire.h */

enum transport_level { TRANSPORT_DEBUG, TRANSPORT_INFO, TRANSPORT_WARN };

struct transport_callbacks {
	void *arg;
	/* A gossip message: decoded, in range, its signatures not verified. from is proven; address
	 * is where it came from. m is the callee's to change, for the call. */
	void (*message_cb)(void *arg, const struct peer_id *from, const struct peer_addr *address,
	        enum gossip_channel channel, struct gossip_message *m);
	/* dialled: where we dialled it; none if the peer dialled us. */
	void (*up_cb)(void *arg, const struct peer_id *id, const struct peer_addr *dialled);
	void (*down_cb)(void *arg, const struct peer_id *id);
	/* An exchange's message: decoded, in range, over a stream with `from`, who is proven. */
	void (*exchange_cb)(
	        void *arg, const struct peer_id *from, const struct exchange_message *m);
	/* A bulk connection that the peer opened, or the answer to transport_bulk: fd is the
	 * callee's now (a connected, non-blocking socket), keys say how to seal on it; -1: it did
	 * not come about. exchange: what it was asked for, by whichever side; 0: not said. It may
	 * come late, when that exchange has been given up: compare, and close the fd. kept: it has
	 * carried a transfer before, and nobody knows yet whether the peer's end still stands. */
	void (*bulk_cb)(void *arg, const struct peer_id *id, uint64_t exchange, int fd,
	        bool we_dialled, bool kept, const struct frame_bulk *keys, const struct aead *aead);
	/* An answer to transport_ask_settings, from whoever was dialled at that address, who is
	 * proven; NULL: there is and will be none. May be NULL, as the next. */
	void (*settings_cb)(
	        void *arg, const struct peer_addr *dialled, const struct wire_settings *s);
	/* Whether that peer has a member's record; may be NULL. */
	bool (*member_cb)(void *arg, const struct peer_id *id);
	/* For the log: what happened and what to do about it. */
	void (*say_cb)(void *arg, enum transport_level level, const char *text);
};

struct transport_config {
	uv_loop_t *loop;                  /* borrowed */
	const struct identity *identity;  /* borrowed */
	const struct secrets *secrets;    /* borrowed */
	const struct aead_order *ciphers; /* borrowed */
	const struct lists *lists;        /* borrowed; may be NULL */
	struct admission *admission;      /* borrowed; NULL: the flock has no owner */
	struct sockaddr_storage listen;   /* port 0: any */
	/* listen is [::], and IPv4 is wanted there too; where there is no IPv6, 0.0.0.0 instead.
	 * False: listen is taken as it is, and an IPv6 socket takes no IPv4. */
	bool dual_stack;
	uint64_t generation;
	struct peer_addrs advertise; /* what peers are told; may be none */
	bool dialable;
	/* What a peer that asks for the settings of our run is told, at most SETTINGS_BYTES_MAX;
	 * borrowed; 0 bytes: there is no run. */
	const uint8_t *settings;
	uint32_t settings_length;
	uint16_t protocol_min, protocol_max; /* PROTOCOL_MIN and _MAX; a test may set others */
	uint32_t peers_max;
	/* Sockets for connections at one time, at least 16; 0: as many as come. room.c says who
	 * goes when there are too few. */
	uint32_t connections_max;
	struct transport_callbacks callbacks;
};

struct transport_counters {
	uint64_t bytes_sent, bytes_received;
	uint64_t datagrams_sent, datagrams_received, datagrams_refused;
	uint64_t streams_dialled, streams_accepted, handshakes_failed, strangers_refused;
	uint64_t messages_dropped; /* of ours: a queue was full */
	uint32_t connections, half_open;
	uint64_t news_forbidden; /* about peers that the lists forbid, or that lack a certificate */
	/* Filled in by whoever verifies: */
	uint64_t news_forged;     /* with a bad signature */
	uint64_t news_unverified; /* left out: over a peer's budget */
};

/* Listens at once. ERR_IO names the address that could not be had. */
int transport_new(
        struct transport **out, const struct transport_config *c, struct err *e) MUST_CHECK;

/* Says END on every stream and closes; closed_cb (may be NULL) is called on the loop when the
 * memory is gone. No other callback comes after this call. */
void transport_close(struct transport *t, void (*closed_cb)(void *arg), void *arg);

/* The address that was bound, with the real port; [::] for both families. */
struct peer_addr transport_bound(const struct transport *t);

/* What the core wants sent; updates that are `ours` must be signed already. */
void transport_send(struct transport *t, const struct gossip_send *s);

/* A message of an exchange, over the pair's stream; if there is none, the addresses are dialled,
 * one after the other, and the message waits for whoever proves to be `to`. False: it was dropped,
 * and counted. True promises nothing: a connection may end before it is written. down_cb may be
 * called from within. */
bool transport_post(struct transport *t, const struct peer_id *to, const struct peer_addrs *addrs,
        const struct exchange_message *m);

/* A bulk connection for an exchange, to a peer with whom a stream stands; ends in bulk_cb, later.
 * fresh: not one that was kept. ERR_NOTFOUND: no stream; ERR_UNSUPPORTED: the peer cannot be
 * dialled, ask it to dial us; ERR_IO. */
int transport_bulk(struct transport *t, const struct peer_id *id, uint64_t exchange, bool fresh,
        struct err *e) MUST_CHECK;

/* Takes back the fd of a bulk connection on which both directions have ended in order. It is kept
 * for the pair's next exchange, whichever side begins it; see kept.c for how long. */
void transport_bulk_keep(struct transport *t, const struct peer_id *id, int fd);

/* Asks for the settings of the run, from an offset on, who listens at that address, over the stream
 * that was dialled for it, which is dialled now if there is none. False: it cannot be; else
 * settings_cb says what came of it, though one that is of an earlier version never answers. */
bool transport_ask_settings(struct transport *t, const struct peer_addr *at, uint32_t offset);

/* A member's generation, as its record says: datagrams to and from it use it. Also forgets a
 * generation that is over. */
void transport_generation(struct transport *t, const struct peer_id *id, uint64_t generation);

/* Ends the session with a peer that misbehaves, if there is one, and says why, to it and to the
 * log. down_cb may be called from within. */
void transport_expel(struct transport *t, const struct peer_id *id, const char *words);

/* Whether the lists permit it and, where there is an owner, its certificate. */
bool transport_permits(const struct transport *t, const struct peer_id *id);
/* A list of revocations came from a file: peers get it too. */
void transport_revoked(struct transport *t);

/* After the lists were read anew: cuts sessions that they forbid. Also after our own generation or
 * address changed. */
void transport_recheck(struct transport *t);
void transport_set_self(struct transport *t, uint64_t generation,
        const struct peer_addrs *advertise, bool dialable);

struct transport_counters transport_counters(const struct transport *t);

/* "10.0.0.5:13865", "[::1]:13865" into out; returns out. And back; ERR_FORMAT. */
const char *peer_addr_text(const struct peer_addr *a, char out[64]);
int peer_addr_parse(const char *text, struct peer_addr *out, struct err *e) MUST_CHECK;
struct peer_addr peer_addr_from(const struct sockaddr *s);
void peer_addr_to(const struct peer_addr *a, struct sockaddr_storage *out);

#endif
