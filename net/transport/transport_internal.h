/* SPDX-License-Identifier: MIT */
/* Inside the transport: what its files share.
 *
 *     transport.c       sockets, who is connected, what comes in
 *     transport_send.c  what goes out, and where
 *     conn.c            one connection: its bytes, its frames, its end
 *     handshake.c       how it comes to be trusted
 *     turn.c            how long peers' messages may keep the loop
 *     kept.c            bulk connections that wait for the pair's next exchange
 *     room.c            how many sockets are for whom, and who goes when there are too few
 *     certificates.c    where the flock has an owner: certificates, and what waits for them
 *     links.c           datagrams: a sealed link with every member that is known
 *     backoff.c         addresses that failed, and when they may be tried again
 */
#ifndef DUNLIN_NET_TRANSPORT_TRANSPORT_INTERNAL_H
#define DUNLIN_NET_TRANSPORT_TRANSPORT_INTERNAL_H

#include "net/codec/datagram.h"
#include "net/codec/wire.h"
#include "net/crypto/noise.h"
#include "net/transport/budget.h"
#include "net/transport/transport.h"
#include "net/transport/verify_budget.h"

enum conn_state {
	CONN_DIALLING, /* TCP's own handshake */
	CONN_OPENING,  /* ours */
	CONN_UP,
	CONN_CLOSING,
};

#define CONN_IN_BYTES (OPENING_HEADER_BYTES + OPENING_BYTES_MAX)
#define CONN_BUF_BYTES (FRAME_MESSAGE_MAX + FRAME_OVERHEAD_MAX)

enum conn_role { CONN_CONTROL, CONN_BULK };

/* A message that waits for its connection. */
struct pending {
	struct pending *next;
	bool addressed; /* only for `to`, whoever is at the address */
	struct peer_id to;
	size_t len;
	uint8_t bytes[];
};

struct conn {
	uv_tcp_t tcp; /* first: a handle is its connection */
	struct transport *t;
	struct conn *next, *prev; /* of all */
	struct conn *chain;       /* of the same hash, when up */
	uint8_t state, role;
	bool initiator;
	bool listed;     /* found by id: the pair's one connection */
	bool heard;      /* the peer, or its machine, answered something */
	bool explained;  /* why it failed has been said */
	bool handed_out; /* a bulk connection of which bulk_cb was told */
	bool kept;       /* a bulk connection that has carried a transfer */
	bool announced;  /* up_cb was called for it */
	bool ourselves;  /* its other end is one of our own connections */
	bool waiting;    /* for the next turn, see turn.c */
	bool resting;    /* the peer's messages have taken their share of our time */
	struct conn *wait_next;
	int slot; /* of the budget, -1: none */
	struct peer_addr remote;
	struct peer_addrs rest; /* to be dialled if there is no connection here */
	struct peer_id id;      /* proven when up; before, who is expected if wanted */
	bool expects_id;
	bool for_certificates;        /* dialled to ask for one */
	bool for_settings;            /* dialled to ask for a run's */
	struct peer_addrs advertised; /* those that can be dialled */
	bool peer_dialable;
	uint64_t certificates_second; /* in which it had us verify so many: */
	uint32_t certificates;
	uint64_t began_ms, up_ms, heard_ms, wrote_ms, pinged_ms, closing_ms;
	uint64_t used_ms; /* the last message that was more than a ping */
	/* opening */
	struct noise noise;
	int secret; /* which of ours the peer has; -1: not known yet */
	const struct aead *aead;
	struct opening opening;
	size_t in_len;
	uint8_t *in; /* owned: of CONN_IN_BYTES; NULL when up */
	struct pending *first, *last;
	uint32_t n_pending;
	/* up */
	struct frame_writer writer;
	struct frame_reader reader;
	bool framed;  /* frames are read, no openings */
	uint8_t *buf; /* owned: the reader's while a part of a frame has come; NULL: t->frames */
	uint8_t exporter[FRAME_SECRET_BYTES];
	uint8_t session[FRAME_SESSION_BYTES]; /* its name on bulk connections */
	uint64_t bulk_attempts;               /* of ours so far */
	struct datagram_window bulk_taken;    /* attempts of the peer that were accepted */
	struct frame_bulk bulk;               /* role bulk */
	struct wire_bulk_open bulk_open;      /* alike: what it says, and what it is for */
};

/* ---- links.c */

struct link_key {
	struct datagram_link link;
	bool ready;
};

struct peer_link {
	struct peer_id id;
	bool member;   /* known by its record, and not by its HELLO alone */
	uint64_t used; /* when last, by links.clock */
	uint64_t generation;
	uint8_t shared[32];
	struct link_key with[SECRETS_MAX]; /* one for each of our secrets */
	uint32_t next;                     /* of the same hash */
};

struct links {
	struct peer_link *link; /* owned */
	uint32_t max, n;
	uint32_t *chain; /* owned */
	uint32_t chain_mask;
	struct datagram_table *table; /* in memory */
	void *memory;                 /* owned */
	uint64_t number;
	uint64_t clock; /* counts uses */
};

int links_init(struct links *l, uint32_t max) MUST_CHECK;
void links_close(struct links *l);
/* Makes a link, or renews it. Where all places are taken the link that was not used for longest
 * gives way, and before those of members that of somebody who only said HELLO. */
void links_set(struct transport *t, const struct peer_id *id, uint64_t generation, bool member);
void links_renew(struct transport *t); /* our own generation has changed */
/* The bytes of a sealed datagram, 0: no link. */
size_t links_seal(struct transport *t, const struct peer_id *to, const uint8_t *payload, size_t len,
        uint8_t out[GOSSIP_DATAGRAM_BYTES]);
/* Who sent it, and what; false: a stranger, a replay, noise. */
bool links_open(struct transport *t, const uint8_t *packet, size_t len, struct peer_id *from,
        uint8_t *out, size_t *out_len);

/* ---- backoff.c */

#define BACKOFF_ADDRESSES 512

struct backoff_entry {
	struct peer_addr addr;
	uint32_t failures;
	uint64_t until_ms, used_ms;
};

struct backoff {
	struct backoff_entry entry[BACKOFF_ADDRESSES];
	uint32_t n;
};

bool backoff_allows(const struct backoff *b, const struct peer_addr *a, uint64_t now_ms);
/* Returns how often it has failed in a row. */
uint32_t backoff_failed(struct backoff *b, const struct peer_addr *a, uint64_t now_ms);
void backoff_worked(struct backoff *b, const struct peer_addr *a);

/* ---- addr.c */

/* An IPv4 address as IPv6 sockets have it. */
void peer_addr_map(struct peer_addr *a);

/* ---- transport.c */

#define CONN_CHAINS 1024

struct transport {
	struct transport_config config;
	uv_tcp_t listener;
	uv_udp_t udp;
	uv_timer_t tick;
	uv_idle_t turn;              /* runs while somebody waits for a turn, and once more */
	uv_timer_t rest;             /* runs while a connection rests */
	struct verify_budget shares; /* of our time, by peer; signatures are counted elsewhere */
	bool turning;
	struct conn *waiting_first, *waiting_last; /* for the next turn */
	uint64_t turn_ms, turn_ns; /* which it is, and what messages have taken of it */
	struct conn *conns;
	struct conn *chain[CONN_CHAINS];
	struct budget budget;
	struct conn *half_open[BUDGET_SLOTS_ALL]; /* by slot, while it is used */
	uint32_t sessions_max, dials_max;         /* sockets for them */
	struct backoff backoff;
	struct links links;
	struct transport_counters counters;
	struct peer_addr bound;
	bool dual_stack;                 /* IPv4 goes through the IPv6 sockets */
	struct transport_wanted *wanted; /* owned; NULL: nothing waits for a certificate yet */
	uint64_t said_second;            /* lines for the log in this second */
	uint32_t said, unsaid;
	int handles; /* open ones; the last to close frees */
	bool closing;
	bool accept_owed; /* there was no memory for a connection that came; the tick tries again */
	void (*closed_cb)(void *arg);
	void *closed_arg;
	uint8_t datagram[65536]; /* where the next one is read */
	/* Where frames are read. Whole ones are dealt with before anything else is read; of a
	 * connection that has sent a part of one, that part moves to a buffer of its own. */
	uint8_t frames[CONN_BUF_BYTES];
};

uint64_t transport__now(const struct transport *t);
void transport__say(struct transport *t, enum transport_level level, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
struct conn *transport__find(const struct transport *t, const struct peer_id *id);
/* By the lists, and by its certificate where there is an owner. */
bool transport__permits(const struct transport *t, const struct peer_id *id);
/* Says goodbye to a peer that is not permitted, in words. */
void transport__refuse(struct conn *c);
/* The connection is proven: takes its place, or gives way to one that is there. */
void transport__up(struct transport *t, struct conn *c);
/* It is going away: leaves its place. */
void transport__down(struct transport *t, struct conn *c, enum conn_state was);
void transport__handle_closed(struct transport *t);
void transport__received(struct transport *t, struct conn *c, const uint8_t *bytes, size_t len);
/* The control connection that a bulk connection belongs to, and its keys, which are given out once;
 * NULL: nobody's, or it was accepted before. */
struct conn *transport__bulk_owner(
        struct transport *t, const struct wire_bulk_open *open, struct frame_bulk *keys);

/* ---- kept.c */

/* One that can be used at once; NULL: there is none. */
struct conn *kept__find(struct transport *t, const struct peer_id *id);
void kept__forget(struct transport *t, const struct peer_id *id); /* NULL: everybody's */
/* If descriptors are short all go. */
void kept__give_way(struct transport *t);

/* ---- room.c */

/* How many sockets are for whom. */
void room__init(struct transport *t);
/* A session begins: if there are too many, one goes. */
void room__for_session(struct transport *t, struct conn *c);
/* A dial begins; false: too many are under way. */
bool room__for_dial(const struct transport *t);
/* A connection came: those that only wait for the end of their goodbyes go now, if need be. */
void room__for_accepted(struct transport *t);

/* ---- conn.c */

/* Dials the first of the addresses that has not failed lately, then the next, until one answers;
 * NULL: none is left. */
struct conn *conn__dial(struct transport *t, const struct peer_addrs *a, const struct peer_id *id);
/* What c was dialled for, at the next of its addresses; false: there is none. */
bool conn__dial_next(struct conn *c);
/* Where the peer of an established connection can be dialled, best first. */
struct peer_addrs conn__where(const struct conn *c);
struct conn *conn__dial_bulk(struct transport *t, struct conn *control, uint64_t exchange);
/* A bulk connection of that peer's whose next opening may come from either side; takes fd. */
void conn__keep(struct transport *t, const struct peer_id *id, int fd);
/* Opens it for an exchange, as if it had been dialled. */
void conn__reopen(struct conn *c, struct conn *control, uint64_t exchange);
void conn__accept(struct transport *t);
/* Sends one encoded message, now or when it is up; false: no room, dropped. to: for that peer
 * alone, so it is dropped if another one is at that address; NULL: for whoever is. */
bool conn__send(struct conn *c, const struct peer_id *to, const uint8_t *bytes, size_t len);
/* Says goodbye, with words if there are any, and closes once that is written. */
void conn__bye(struct conn *c, enum wire_why why, const char *words);
void conn__close(struct conn *c);
void conn__flush(struct conn *c); /* what waited for it to be up */
bool conn__put_opening(struct conn *c, enum opening_kind kind, const uint8_t *bytes, size_t len);
/* Gives the socket of a bulk connection away, and closes. */
void conn__hand_out(struct conn *c, const struct peer_id *id, const struct frame_bulk *keys,
        const struct aead *aead);
void conn__tick(struct conn *c, uint64_t now_ms);

/* Its turn has come again: one frame, then it waits or reads on. */
void conn__resume(struct conn *c);

/* ---- turn.c */

bool turn__over(struct transport *t);
uint64_t turn__cpu_ns(void); /* of this thread */
/* By handling a message; the CPU's part of it counts for the peer. */
void turn__spent(struct conn *c, uint64_t ns, uint64_t cpu_ns);
bool turn__rests(struct conn *c);  /* whether its peer has had its share for now */
void turn__wait(struct conn *c);   /* until the next one */
void turn__forget(struct conn *c); /* it waits no more */

/* ---- settings.c */

/* WANT_SETTINGS or SETTINGS. */
void settings__received(struct conn *c, const struct wire_message *m);
/* A connection is gone, and no other is dialled in its place. */
void settings__down(struct conn *c);

/* ---- certificates.c: nothing of it does anything without config.admission */

bool certificates__admit(const struct transport *t, const struct peer_id *id);
void certificates__tick(struct transport *t); /* the time */
void certificates__put(const struct transport *t, struct wire_hello *h);
void certificates__hello(struct transport *t, const struct wire_hello *h);
/* To be called before m is sent on c. */
void certificates__before(struct conn *c, const struct gossip_message *m);
void certificates__up(struct conn *c);
void certificates__pass_on_list(struct transport *t);
/* Keeps a record until its certificate comes; false: that is not what it lacks, or no room. */
bool certificates__hold(struct transport *t, const struct peer_id *from,
        const struct peer_addr *address, enum gossip_channel channel,
        const struct gossip_update *u);
/* Asks for what is waited for, as often as is due. */
void certificates__ask(struct transport *t, uint64_t now_ms);
int certificates__held(const struct transport *t); /* records that wait */
void certificates__received(struct conn *c, const struct wire_message *m);

/* ---- handshake.c */

/* The dialler's first message; false: it could not be made. */
bool handshake__begin(struct conn *c);
/* A whole opening has come, in c->in. */
void handshake__read(struct conn *c);

#endif
