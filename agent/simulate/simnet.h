/* SPDX-License-Identifier: MIT */
/* The world that every simulation here stands on: a clock, what happens next, hosts, and the links
 * between them.
 *
 *     simnet.c         time, chance, hosts, who can reach whom, datagrams
 *     simnet_stream.c  parcels, and streams: dialled, up, in order, cut
 *     queue.c          what happens next, by time
 *
 *        push ──► queue ──► next ──► the simulation's own loop ──► a core's step
 *                                                                      │
 *     host ── way ──► host        datagram: 0, 1 or 2 copies, late ◄───┤
 *             │                   stream: dial ─► up ─► in order ─► cut │
 *             └ parcels under way, or that wait for the dial      ◄────┘
 *
 * It decides nothing about a core and calls nobody back: entries of the queue have kinds of the
 * simulation's own, and parcels carry what it likes. How long a dial takes, and whether what is
 * lost on a stream comes late (membership) or ends the stream (whole agents), is the simulation's
 * choice; the bookkeeping is here. One seed decides everything, so the order of draws is a part of
 * the contract. There is no largest number of hosts; n × n ways take 56 bytes each. */
#ifndef DUNLIN_AGENT_SIMULATE_SIMNET_H
#define DUNLIN_AGENT_SIMULATE_SIMNET_H

#include "agent/base/rng.h"
#include "agent/simulate/queue.h"

#define SIMNET_NEVER UINT64_MAX

/* The members that simulations read and set all the time. A simulation has them under their own
 * names, too:  union { struct simnet net; struct { SIMNET_SHARED; }; };  and likewise for hosts. */
#define SIMNET_SHARED                                                                      \
	struct rng rng;                                                                    \
	struct sim_queue queue; /* owned */                                                \
	uint64_t now_ms;                                                                   \
	double loss, duplicate;       /* chances of a datagram, of 1 */                    \
	uint32_t delay_ms, jitter_ms; /* of a datagram: so long, and up to so much more */ \
	uint32_t nat_ms               /* 0: datagrams reach hosts that cannot be dialled; else: so \
	                               * long after such a host has sent one the other way */

#define SIMNET_HOST                                                                     \
	uint32_t life;         /* raised at each start of its process */                \
	uint32_t group;        /* only hosts of one group reach each other */           \
	uint64_t frozen_until; /* its process stands still before that time */          \
	bool alive;            /* its process runs */                                   \
	bool refuses;          /* it does not, but its host answers: nobody is there */ \
	bool isolated;                                                                  \
	bool dialable /* streams to it can be opened by others */

struct simnet_host {
	SIMNET_HOST;
};

/* From one host to another. A stream is two of them, which are up at the same time. */
struct simnet_way {
	bool blocked;   /* lets nothing through */
	bool dialling;  /* the first host dials the second */
	bool stalled;   /* something on the stream does not get through */
	bool moving;    /* an entry of the queue will look at the first parcel */
	uint32_t up;    /* streams that stand, as far as the first host knows */
	uint32_t epoch; /* raised when a stream begins and ends: earlier entries are void */
	uint32_t first, last, n; /* parcels under way, or that wait for the dial */
	uint64_t since_ms;       /* dialling, or stalled */
	uint64_t last_ms;        /* arrival of the latest parcel of the stream */
	uint64_t barred_ms;      /* nothing can be dialled before that time */
	uint64_t datagram_ms;    /* of the last one, + 1: an open door in a NAT */
};

/* What is under way to a host. It is the first member of the simulation's own struct. */
struct simnet_parcel {
	uint32_t next; /* on the same way; or of the free ones */
	uint32_t from, to;
	uint32_t life;  /* of the receiver's process, where it matters */
	uint32_t epoch; /* of the stream */
	uint64_t at_ms;
};

struct simnet {
	SIMNET_SHARED;
	uint32_t n_hosts;
	void *host; /* the caller's, `stride` bytes apart */
	size_t stride;
	struct simnet_way *way; /* owned, from × n_hosts + to */
	size_t parcel_bytes;
	uint8_t **chunk; /* owned: parcels, by number from 1 */
	uint32_t n_chunks, free_parcel;
	uint64_t lost; /* datagrams */
};

/* Zeroes *s. host: the first of n_hosts, each the first member of what the simulation keeps for
 * one; they must stay where they are. */
void simnet_init(
        struct simnet *s, uint32_t n_hosts, void *host, size_t stride, size_t parcel_bytes);
void simnet_close(struct simnet *s);

/* ---- time and chance */

void simnet_push(struct simnet *s, uint64_t after_ms, uint32_t kind, uint32_t a, uint32_t b);
/* The next entry, and it is its time; false: there is none until then. */
bool simnet_next(struct simnet *s, uint64_t until_ms, struct sim_entry *out);
bool simnet_chance(struct simnet *s, double p); /* draws nothing where p is 0 */
uint64_t simnet_between(struct simnet *s, uint64_t low, uint64_t high); /* both included */

/* ---- hosts */

struct simnet_host *simnet_host(const struct simnet *s, uint32_t i);
/* Its process stands still: the entry comes again when it moves on. */
bool simnet_frozen(struct simnet *s, uint32_t host, const struct sim_entry *e);
/* Whether groups and rules let anything through that way. */
bool simnet_open(const struct simnet *s, uint32_t from, uint32_t to);
bool simnet_open_both(const struct simnet *s, uint32_t a, uint32_t b);

/* Draws what becomes of a datagram that is sent now: how many copies arrive, and how much later. */
int simnet_datagram(struct simnet *s, uint32_t from, uint32_t to, uint64_t after_ms[2]);
uint64_t simnet_delay(struct simnet *s);

/* ---- parcels */

uint32_t simnet_parcel_new(struct simnet *s, uint32_t from, uint32_t to); /* its header is zero */
void *simnet_parcel(const struct simnet *s, uint32_t parcel);             /* stays where it is */
void simnet_parcel_free(struct simnet *s, uint32_t parcel);

/* ---- streams */

struct simnet_way *simnet_way(const struct simnet *s, uint32_t from, uint32_t to);
/* A way has a number, for entries of the queue. */
uint32_t simnet_way_number(const struct simnet *s, uint32_t from, uint32_t to);
uint32_t simnet_way_from(const struct simnet *s, uint32_t number);
uint32_t simnet_way_to(const struct simnet *s, uint32_t number);

/* A parcel is on its way behind all others; or waits for the dial. */
void simnet_append(struct simnet *s, uint32_t parcel);
uint32_t simnet_take(struct simnet *s, struct simnet_way *w); /* the first; 0: none */
/* Begins to dial: an entry `kind` (a: the way's number, b: its epoch) comes then. */
void simnet_dial(struct simnet *s, uint32_t from, uint32_t to, uint64_t after_ms, uint32_t kind);
/* The dial of such an entry is still wanted. */
bool simnet_dials(const struct simnet *s, uint32_t number, uint32_t epoch);
void simnet_connect(struct simnet *s, uint32_t a, uint32_t b);
/* Ends the stream or the dial: what is under way is lost. cut: of both directions; true: it was
 * up. */
void simnet_clear(struct simnet *s, struct simnet_way *w);
bool simnet_cut(struct simnet *s, uint32_t a, uint32_t b);
/* Notes that nothing gets through, and since when. */
void simnet_stall(const struct simnet *s, struct simnet_way *w);
/* When a parcel arrives that could be there at at_ms: never before an earlier one. */
uint64_t simnet_in_order(uint64_t *last_ms, uint64_t at_ms);

#endif
