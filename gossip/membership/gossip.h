/* SPDX-License-Identifier: MIT */
/* Who is there: the pure core of membership.
 *
 * gossip_step takes one event, with the time in it, and returns what the caller must send, resolve
 * and tell the user, and when it wants to be called again. It has no clock, socket, thread or
 * allocator: the same configuration and events give the same actions, to the byte.
 *
 *     events                    ┌─────────────┐   actions
 *     START TIMER RECEIVED ───► │ gossip_step │ ───► sends (datagram or stream), names to resolve,
 *     RESOLVED PEER_UP …        └─────────────┘      notices, the next deadline
 *
 * The protocol is SWIM (Das et al. 2002) with Lifeguard (Dadgar et al. 2018), with the timings of
 * memberlist, and with signed news: what an agent says of itself is a record signed by it, an
 * accusation is signed by the accuser. The core neither signs nor verifies. It never believes an
 * update that the caller has not verified, and gossip_wants says which ones are worth the work:
 * most news is old. Updates that originate here go out with `ours` set, for the caller to sign. */
#ifndef DUNLIN_GOSSIP_MEMBERSHIP_GOSSIP_H
#define DUNLIN_GOSSIP_MEMBERSHIP_GOSSIP_H

#include "agent/base/err.h"
#include "gossip/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer_id {
	uint8_t bytes[32]; /* an Ed25519 public key */
};

struct peer_addr {
	uint8_t family; /* 0: none, 4 or 6 */
	uint8_t ip[16]; /* the first 4 for family 4 */
	uint16_t port;
};

/* Where an agent is reached, best first. */
struct peer_addrs {
	uint8_t n;
	struct peer_addr at[MEMBER_ADDRS_MAX];
};

/* What an agent says of its training. Small: it rides on datagrams. */
struct member_status {
	uint64_t model; /* hash of what must be equal to exchange parameters */
	uint64_t step;
	uint64_t samples; /* trained in this run by this agent; never falls, restarts included */
	float loss;
};

/* What an agent says of itself. */
struct member_record {
	struct peer_id id;
	uint64_t generation;  /* of its process: raised at each start */
	uint64_t nonce;       /* of its process: random, tells two processes with one key apart */
	uint64_t incarnation; /* raised to refute an accusation */
	uint64_t version;     /* raised at any other change */
	bool left;            /* its last word */
	bool dialable;        /* false: it only dials others (NAT, firewall) */
	struct peer_addrs addrs; /* as it prefers them */
	uint16_t protocol_min, protocol_max;
	struct member_status status;
};

/* What an agent says of another. */
struct accusation {
	struct peer_id about;
	uint64_t generation, incarnation; /* that are accused */
	struct peer_id by;
	bool dead; /* else suspect */
};

enum update_kind { UPDATE_RECORD, UPDATE_ACCUSATION };

/* What a signer wrote, its signature included, to the byte. It is passed on as it came: it may say
 * more than this version knows. The core does not look into it. */
struct signed_bytes {
	uint16_t length;
	uint8_t bytes[GOSSIP_UPDATE_BYTES];
};

struct gossip_update {
	uint8_t kind;
	bool ours; /* sent: to be signed by the caller, `raw` is not filled in */
	union {
		struct member_record record;
		struct accusation accusation;
	};
	struct signed_bytes raw; /* by the record's id, or by the accuser */
};

/* The larger record, on streams only. */
struct member_sketch {
	struct peer_id id;
	uint64_t generation;
	uint64_t step; /* when it was taken */
	uint16_t length;
	uint8_t bytes[GOSSIP_SKETCH_BYTES];
	bool ours;
	uint8_t signature[64];
};

enum message_kind {
	MESSAGE_PING, /* answer with ACK */
	MESSAGE_ACK,
	MESSAGE_NACK,     /* a helper's: I am here, but your target did not answer me */
	MESSAGE_PING_REQ, /* ping `target` for me */
	MESSAGE_GOSSIP,   /* updates alone */
	MESSAGE_SYNC,     /* a page of all that the sender knows; streams only */
	MESSAGE_SKETCH,   /* a sketch; streams only */
};

struct gossip_message {
	uint8_t kind;
	uint64_t nonce;           /* PING, PING_REQ: chosen by the sender; ACK, NACK: echoed */
	struct peer_id target;    /* PING: who is meant; PING_REQ: whom to ping */
	struct peer_addr address; /* PING_REQ: the target's, as the sender uses it */
	bool want_reply;          /* SYNC: send yours; on the first page */
	uint8_t n_updates;
	struct gossip_update update[GOSSIP_UPDATES_MAX];
	struct member_sketch sketch; /* SKETCH */
};

/* Bytes on the wire, sealing included: what an encoder must not exceed, and what simulations count.
 * With the most updates that this core puts on a datagram it is at most GOSSIP_DATAGRAM_BYTES. */
size_t gossip_message_bytes(const struct gossip_message *m);

enum gossip_channel { CHANNEL_DATAGRAM, CHANNEL_STREAM };

enum gossip_event_kind {
	EVENT_START,     /* first; seeds and remembered peers are tried */
	EVENT_TIMER,     /* the deadline has come (an early one does no harm) */
	EVENT_RECEIVED,  /* a message from an authenticated peer, its updates verified */
	EVENT_RESOLVED,  /* a seed's addresses; none: it could not be resolved */
	EVENT_PEER_UP,   /* a stream with that peer stands, whoever dialled */
	EVENT_PEER_DOWN, /* the last stream with it is gone, or dialling it failed */
	EVENT_STATUS,    /* our own status changed */
	EVENT_SKETCH,    /* our own sketch changed */
	EVENT_ADDRESS,   /* our own addresses or dialability changed */
	EVENT_REMEMBER,  /* an address kept from an earlier run, to be tried */
	EVENT_SAMPLES,   /* a peer of our model told us its count itself, outside of its record */
	EVENT_FORBIDDEN, /* our lists no longer permit a peer; nothing it says may come in again
	                    until they do */
	EVENT_LEAVE,     /* say goodbye; sends go out at once, then stop calling */
	EVENT_CERTIFIED, /* what a member's certificate, or our own, says of it */
};

struct gossip_event {
	uint8_t kind;
	uint64_t now_ms; /* monotonic; jumps are noticed and survived */
	union {
		struct {
			struct peer_id from;
			struct peer_addr address; /* where it came from; may be none */
			uint8_t channel;
			const struct gossip_message *message; /* borrowed for the call */
		} received;
		struct {
			int seed;
			int n;
			struct peer_addr address[GOSSIP_SEED_ADDRESSES];
		} resolved;
		struct {
			struct peer_id id;
			struct peer_addr address; /* UP: where we dialled it; may be none */
		} peer;
		struct member_status status;
		struct {
			uint64_t step;
			uint16_t length;
			const uint8_t *bytes; /* borrowed for the call */
		} sketch;
		struct {
			struct peer_addrs addrs;
			bool dialable;
		} address;
		struct peer_addr remember;
		struct {
			struct peer_id id;
			uint64_t count;
		} samples;
		struct {
			struct peer_id id;
			uint64_t label;  /* hash of whose agent it is; 0: not known */
			uint64_t rate;   /* samples a second that it may train; 0: not stated */
			uint32_t agents; /* that the label stands for */
		} certified;
	};
};

struct gossip_send {
	uint8_t channel;
	bool to_id; /* else to whoever is at address: streams only */
	struct peer_id id;
	struct peer_addrs addrs; /* where id may be, the first one first: a datagram goes there
	                            alone, a dial tries all; none if a stream must stand */
	struct gossip_message message;
};

enum notice_kind {
	NOTICE_JOINED, /* a peer is alive that was not, or not known */
	NOTICE_SUSPECT,
	NOTICE_FAILED,
	NOTICE_LEFT,
	NOTICE_UPDATED,     /* its address, dialability or protocol changed */
	NOTICE_UNREACHABLE, /* others reach it, we do not */
	NOTICE_REACHABLE,
	NOTICE_REFUTED,    /* we were accused, and said no */
	NOTICE_SAME_KEY,   /* another process runs with our key, right now */
	NOTICE_GENERATION, /* our generation was raised past one that we had lost: persist it */
	NOTICE_REFUSED,    /* a peer found no room: see limits.h */
	NOTICE_TIME_JUMP,  /* the clock jumped, or we were stopped: deadlines were moved along */
};

struct gossip_notice {
	uint8_t kind;
	struct peer_id id;
	uint64_t value; /* GENERATION: ours; TIME_JUMP: milliseconds */
};

struct gossip_actions {
	int n_sends;
	struct gossip_send send[GOSSIP_SENDS_MAX];
	int n_notices;
	struct gossip_notice notice[GOSSIP_NOTICES_MAX]; /* more are counted, not kept */
	int n_resolve;
	int resolve[GOSSIP_RESOLVES_MAX]; /* seeds by index */
	uint64_t deadline_ms;             /* call TIMER then, or any event before */
};

/* Timings, all in milliseconds. */
struct gossip_profile {
	uint32_t probe_interval, probe_timeout;
	uint32_t gossip_interval;
	uint32_t gossip_fanout;
	uint32_t sync_interval;
	uint32_t heal_interval;
	uint32_t suspicion_mult, suspicion_max_mult;
	uint32_t retransmit_mult;
	uint32_t helpers;
	uint32_t status_interval; /* our own status is news at most so often, and rarer in large
	                             flocks */
};

extern const struct gossip_profile gossip_lan, gossip_wan;

/* An agent that need not come back, and what it has trained in our run, as a checkpoint of it says:
 * that goes on counting, once, whether the agent is met again or not. */
struct gossip_departed {
	struct peer_id id;
	uint64_t samples; /* 0: there is none */
};

struct gossip_config {
	struct gossip_profile profile;
	struct peer_id self;
	uint64_t generation; /* as persisted, already raised for this start; at least 1 */
	uint64_t nonce;      /* random */
	uint64_t seed;       /* of the core's own choices */
	struct peer_addrs addrs;
	bool dialable;
	uint16_t protocol_min, protocol_max;
	struct member_status status; /* samples: what this agent has trained before */
	struct gossip_departed departed;
	int n_seeds;
	uint32_t members_max; /* 0: GOSSIP_MEMBERS; the dead count too */
};

enum member_state { MEMBER_ALIVE, MEMBER_SUSPECT, MEMBER_DEAD, MEMBER_LEFT };

/* A peer as we see it. */
struct member_view {
	struct member_record record;
	struct peer_addrs addrs; /* those that can be dialled, the one in use first */
	bool proven;             /* it has answered us there */
	uint8_t state;
	uint64_t since_ms;    /* in that state */
	bool unreachable;     /* others reach it, we do not */
	bool connected;       /* a stream stands */
	uint64_t label, rate; /* see EVENT_CERTIFIED; 0: none */
	uint32_t agents;      /* alike */
	uint64_t samples;     /* its highest count in our run, whatever its record says now */
	const struct member_sketch *sketch; /* NULL: none known; borrowed until the next step */
};

struct gossip_counters {
	uint64_t refused;        /* live peers for whom there was no room */
	uint64_t evicted;        /* dead ones forgotten to make room */
	uint64_t dropped_relays; /* indirect probes that we had no room to help with */
	uint64_t dropped_syncs;  /* whole-state answers that we had no room to give */
	uint64_t dropped_notices;
	uint64_t refutations;
	uint64_t probes, probes_failed;
	uint64_t time_jumps;
};

struct gossip;

/* Memory that a core with this configuration takes; it never takes more. */
size_t gossip_size(const struct gossip_config *c);

/* Makes a core in memory of the caller's, aligned for any type and of gossip_size bytes, zeroed. */
int gossip_init(struct gossip **out, void *memory, size_t size, const struct gossip_config *c,
        struct err *e) MUST_CHECK;

/* actions is overwritten. */
void gossip_step(
        struct gossip *g, const struct gossip_event *event, struct gossip_actions *actions);

/* Would this update, if it is genuine, tell us anything? If not, do not bother to verify it, and
 * leave it out of RECEIVED. */
bool gossip_wants(const struct gossip *g, const struct gossip_update *u);
bool gossip_wants_sketch(const struct gossip *g, const struct member_sketch *s);

/* Our own label; 0: the flock has no owner. */
uint64_t gossip_label(const struct gossip *g);

/* Whether those that take part are of more than one label. */
bool gossip_many_labels(const struct gossip *g);

/* Looking around, between steps. Members are numbered 0 to count − 1 in no lasting order. */
uint32_t gossip_count(const struct gossip *g);
uint32_t gossip_count_state(const struct gossip *g, enum member_state s);
struct member_view gossip_member(const struct gossip *g, uint32_t i);
bool gossip_find(const struct gossip *g, const struct peer_id *id, struct member_view *out);
const struct member_record *gossip_self(const struct gossip *g);
uint32_t gossip_health(const struct gossip *g); /* 0: fine … 7: we ourselves seem ill */
struct gossip_counters gossip_counters(const struct gossip *g);

/* The run's clock: samples trained by all agents of our model that were ever known, each at its
 * highest count, the departed included. Never falls. */
uint64_t gossip_clock(const struct gossip *g);

bool peer_id_equal(const struct peer_id *a, const struct peer_id *b);
bool peer_addr_equal(const struct peer_addr *a, const struct peer_addr *b);

/* Could an agent be there? Not at a wildcard, a multicast or a broadcast address, nor at port 0. */
bool peer_addr_usable(const struct peer_addr *a);

#endif
