/* SPDX-License-Identifier: MIT */
/* The product's own core as a method: n whole agents, each a struct flock that flock_step drives,
 * on the engine's clock and links, with models that the fleet trains.
 *
 *     engine ── a step ended ──────────► learner.c ──┐ events
 *            ── all bytes came ────────► bulk.c ─────┤
 *            ── tick ─► queue (simnet) ► messages.c ─┴─► flock_step ─► actions ─► the same files
 *
 *     ../methods/dunlin.c  what the engine calls: start, step ended, bytes came, who is there
 *     process.c            an agent's life: its core, what its actions set off, timers
 *     messages.c           datagrams, streams and their dials; what each takes
 *     bulk.c               bulk connections and transfers
 *     learner.c            what the core asks of a learner, between two steps
 *
 * Played here are the network, the disk (which never fails) and the user. Time is told in whole
 * milliseconds, as the product's loop has it. All entries of one millisecond come in the order in
 * which they were pushed, and all of it is the engine's thread: the same seed gives the same run.
 *
 * What is modelled: a message takes the latency, and its bytes by the rate of both links; one that
 * is lost on a stream comes a retransmission later. A stream, and a bulk connection, needs round
 * trips before it stands. Parameters go over shared links as the engine has them. Not modelled: the
 * processor's time for sealing, snapshots and merges, TCP's slow start, IP headers. */
#ifndef DUNLIN_AGENT_SIMULATE_FLOCK_WORLD_H
#define DUNLIN_AGENT_SIMULATE_FLOCK_WORLD_H

/* Membership has an event of that name, too. */
#define EVENT_LEAVE SCENARIO_EVENT_LEAVE
#include "agent/simulate/engine.h"
#undef EVENT_LEAVE
#include "agent/simulate/simnet.h"
#include "agent/train/learner.h"
#include "gossip/flock/flock.h"
#include "gossip/policy/batch.h"
#include "net/bulk/lattice.h"

#define WORLD_REQUESTS 16 /* of a learner */
#define WORLD_CONNS 12    /* bulk connections of one agent at one time */
#define WORLD_NOBODY UINT32_MAX

/* What the world holds for later: an event of a core, with all that it borrows. Only the members
 * that its kind needs are filled in. */
struct world_item {
	struct simnet_parcel parcel;
	bool stream; /* it comes on one */
	uint32_t bytes;
	struct flock_event e;
	struct flock_trained step;
	struct sketch sketch;
	struct exchange_message exchange;
	struct gossip_message gossip; /* last: most of it is often unused */
};

/* One end of a bulk connection; the other end is found by the number of the exchange. */
struct world_conn {
	uint64_t exchange; /* 0: free */
	uint32_t with;
	uint32_t op; /* of entries in the queue: older ones are void */
	bool started, sent, received;
	struct flock_action how;
	uint64_t n_out, n_in;         /* parameters */
	uint64_t bytes_out, bytes_in; /* on the wire */
	uint64_t since_ms;
};

struct world_learner {
	bool training, stepping, done, stopped, restores;
	uint64_t step, samples, others, agents;
	struct batch_config batch_config;
	struct batch_state batch; /* with train.batch_adapt */
	double lr_times;          /* of the step under way */
	double lr;                /* of the last one; 0: the parameters were set since */
	uint64_t since_outer;     /* steps */
	double moved, momentum_norm;
	uint64_t since_set; /* steps since the parameters were set */
	struct flock_action request[WORLD_REQUESTS];
	int n;
	bool turn;     /* an entry of the queue will serve the requests */
	float *before; /* owned: the state before the last adoption, or NULL */
	uint64_t before_optim_steps;
};

struct world_agent {
	union {
		struct simnet_host host;
		struct {
			SIMNET_HOST;
		};
	};
	struct peer_id id;
	struct peer_addr addr;
	bool leaving;       /* told to; the engine has it no more */
	uint8_t phase;      /* enum flock_phase, as it has said */
	struct flock *core; /* in memory */
	uint8_t *memory;    /* owned */
	uint64_t generation, progress;
	uint64_t wake_ms;  /* as the core wants it */
	uint64_t armed_ms; /* the earliest entry that will look at it */
	struct world_learner learner;
	struct world_conn conn[WORLD_CONNS];
	uint32_t ops;
	uint32_t sending, receiving; /* transfers of parameters */
	/* Owned; taken at the first use. By enum flock_slot. */
	uint8_t *snapshot;
	uint8_t *noise; /* the same: what a bad agent sends in its place; NULL: nothing else */
	float *staging, *donated, *fetched;
	float *phi, *outer;                    /* of NoLoCo, n_train floats each */
	double distance2[EXCHANGE_GROUPS_MAX]; /* of staging */
	bool finite;
	struct { /* of the last snapshot, and what came after it */
		uint8_t format;
		struct lattice l; /* of a format that is one; scale: used */
		bool refused;     /* it could not be packed */
		int8_t used[SCALES_MAX], size[SCALES_MAX], found[SCALES_MAX];
		uint64_t wrapped;     /* blocks */
		double rounding2;     /* its share of distance2 */
		struct sketch sketch; /* of the parameters, for a lattice */
	} last;
	struct sim_entry *held; /* owned: what comes while it is paused */
	uint32_t n_held, room_held;
};

struct world {
	union {
		struct simnet net;
		struct {
			SIMNET_SHARED;
		};
	};
	struct sim *sim;
	uint32_t n;
	struct world_agent *agent; /* owned */
	struct flock_config base;  /* what all cores have in common */
	struct learner_groups groups;
	size_t n_total, n_train;
	int vectors;
	bool trains;
	bool adapts; /* the batch */
	struct batch_config batch;
	uint64_t total;
	float *initial;                /* owned; NULL without training */
	float *room;                   /* owned: n_total floats */
	struct flock_actions *actions; /* owned */
	uint64_t tick_ms;              /* of the earliest tick under way */
	struct err *failed;            /* borrowed during a call; code 0: nothing has failed */
	uint64_t steps;                /* of all cores */
};

enum world_kind {
	WORLD_DELIVER, /* a: item */
	WORLD_TIMER,   /* a: agent */
	WORLD_TURN,    /* a: agent, b: its life: its learner serves requests */
	WORLD_DIAL,    /* a: way, b: epoch */
	WORLD_BREAK,   /* the same: a stream is given up */
	WORLD_END,     /* a: agent × WORLD_CONNS + connection, b: op: a transfer ends */
	WORLD_STARTS,  /* a: agent, b: its life: its process starts */
};

/* Tags of notes. */
enum world_tag { WORLD_TICK, WORLD_BYTES };

/* Parameters under way from one agent to another. */
struct world_flight {
	uint64_t exchange;
	uint32_t life[2]; /* of the sender and the receiver */
};

/* process.c       */
struct world_agent *world_agent(struct world *w, uint32_t i);
uint32_t world_item(struct world *w, uint32_t to, uint8_t kind); /* its event is zero */
struct world_item *world_get(const struct world *w, uint32_t item);
void world_later(struct world *w, uint32_t item, uint64_t after_ms);
void world_start(struct world *w, uint32_t i);
void world_kill(struct world *w, uint32_t i); /* its process is gone, without a word */
void world_step(struct world *w, uint32_t i, struct flock_event *e);
void world_timer(struct world *w, uint32_t i);
void world_fail(struct world *w, int code, const char *what);

/* messages.c  */
uint32_t world_find(const struct world *w, const struct peer_id *id); /* WORLD_NOBODY */
bool world_reaches(const struct world *w, uint32_t a, uint32_t b);
uint64_t world_latency_ms(const struct world *w, uint32_t a, uint32_t b, uint64_t bytes);
void world_gossip(struct world *w, uint32_t from, const struct gossip_send *s);
void world_post(
        struct world *w, uint32_t from, const struct peer_id *to, const struct exchange_message *m);
void world_dial(struct world *w, uint32_t way, uint32_t epoch);
void world_break(struct world *w, uint32_t way, uint32_t epoch);
void world_gone(struct world *w, uint32_t i, bool closes); /* closes: its host says so */

/* bulk.c      */
void world_bulk(struct world *w, uint32_t i, const struct flock_action *a);
void world_bulk_ends(struct world *w, uint32_t i, int conn, uint32_t op);
void world_bulk_gone(struct world *w, uint32_t i);
void world_bytes(struct world *w, const struct sim_note *n, bool came);

/* learner.c      */
void world_learner_open(struct world *w, uint32_t i);
void world_learner_close(struct world *w, uint32_t i);
void world_ask(struct world *w, uint32_t i, const struct flock_action *a);
void world_turn(struct world *w, uint32_t i);
void world_stepped(struct world *w, uint32_t i, const struct fleet_result *r);
/* The difference between what `from` sent, as it travels, and what `to` did; and how far it is. */
void world_receive(struct world *w, uint32_t from, uint32_t to, uint8_t format);
float *world_vector(size_t n); /* zeroed; aborts without memory */

#endif
