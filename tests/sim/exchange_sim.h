/* SPDX-License-Identifier: MIT */
/* Exchanges between agents in one process, on a clock of its own.
 *
 * Each agent is a real exchange machine with a small vector of parameters; snapshots are packed,
 * taken and added by the real loops of net/bulk/convert.h and clipped by gossip/policy/clip.h.
 * Played here are streams that deliver in order, late, or break with what is under way, connections
 * that cannot be opened, transfers that fail, trainers that take their time, deaths and restarts.
 * One seed decides it all.
 *
 *     simnet.h          the world below: time, hosts, ways, parcels
 *     exchange_sim.c    agents: what a machine's actions set off; life and death; the loop
 *     exchange_links.c  streams
 *     exchange_check.c  the truth about each exchange, and whether the agents' accounts agree
 *
 * A pair may have several streams: one that is broken for one side may still deliver to the other
 * after a newer one does. That is what makes late words come after later ones. */
#ifndef DUNLIN_TESTS_SIM_EXCHANGE_SIM_H
#define DUNLIN_TESTS_SIM_EXCHANGE_SIM_H

#include "gossip/exchange/exchange.h"
#include "gossip/policy/clip.h"
#include "net/bulk/convert.h"
#include "agent/simulate/simnet.h"

#define XSIM_AGENTS 16
#define XSIM_WORDS 1000
#define XSIM_GROUPS 2
#define XSIM_SETTLE_MS 15000
#define XSIM_HOLD_MS EXCHANGE_HOLD_MS

enum xsim_clip { CLIP_NONE, CLIP_RANDOM, CLIP_REAL };

struct xsim_setup {
	int n;
	uint64_t seed;
	size_t words; /* 0: XSIM_WORDS */
	uint8_t mode, format, clip;
	double break_chance; /* of a stream, at each message posted */
	double lose_chance;  /* of a message, and nobody notices */
	double fail_chance;  /* of a transfer */
	double dial_chance;  /* that an agent cannot open a bulk connection */
	double slow_chance;  /* of a message to take a second or two */
	uint32_t away_ms;    /* so long, at most, no new stream comes about after a break */
	uint32_t start_ms;   /* each idle agent offers about so often; 0: only when told to */
	uint64_t gone_ms;    /* after a death the others hear of it; 0: never */
	double false_gone;   /* chance, at each break, that the peer is said to be gone */
	/* The one that kills: a role on entering a state, once. */
	bool kill, kill_offerer, kill_silent; /* silent: before the sends of that step */
	uint8_t kill_state;
	uint32_t restart_ms; /* after a death; 0: never */
};

/* What really happened; [0] is the one who offered. */
struct xsim_truth {
	uint64_t exchange;
	int who[2];
	uint32_t life[2]; /* of the process that took part; 0: did not */
	uint8_t mode;
	bool committed[2], moved[2];
	bool dropped[2];  /* put aside, and has not moved */
	uint64_t hash[2]; /* of the difference without its signs */
	float k[2][XSIM_GROUPS];
	int outcome[2]; /* −1: none yet */
};

struct xsim_agent {
	union {
		struct simnet_host host;
		struct {
			SIMNET_HOST;
		};
	};
	struct peer_id id;
	struct exchange *x; /* owned */
	uint32_t op;        /* raised where late events of the trainer or the transfer are void */
	uint64_t timer_ms;
	uint32_t timers;
	float *v, *snapshot, *staging; /* (words), owned */
	bool has_snapshot, staged;
	uint64_t exchange; /* what staging is of */
	double distance2[XSIM_GROUPS];
	float k[XSIM_GROUPS];
	uint8_t state;
	uint64_t entered_ms; /* that state */
	struct clip clip;
	uint64_t by_outcome[OUTCOMES];
	uint64_t late[OUTCOMES]; /* of these: of exchanges that were put aside */
};

struct xsim_transfer {
	uint64_t exchange;
	int who[2];
	bool ready[2], ended[2];
	uint8_t *wire[2]; /* owned */
};

struct xsim_packet {
	struct simnet_parcel parcel;
	uint32_t stream;
	int end; /* of the receiver */
	struct exchange_message message;
};

struct xsim_stream {
	int who[2];
	bool open[2], closed[2];
	bool broken;
	uint64_t last_ms[2], cut_ms[2]; /* by the receiver's end: last arrival; nothing after */
};

struct xsim {
	union {
		struct simnet net;
		struct {
			SIMNET_SHARED;
		};
	};
	struct xsim_setup setup;
	size_t group_end[XSIM_GROUPS];
	const struct convert *convert;
	struct xsim_agent agent[XSIM_AGENTS];
	struct xsim_transfer transfer[2 * XSIM_AGENTS];
	uint32_t n_transfers;
	struct xsim_stream *stream; /* owned */
	uint32_t n_streams, room_streams;
	struct xsim_truth *truth; /* owned */
	uint32_t n_truths, room_truths;
	double *bound; /* (words), owned: what rounding may have done to the sum, at most */
	bool killed;
	uint64_t clipped;  /* results with a factor under 1 */
	bool starting;     /* agents begin exchanges of their own */
	char failure[200]; /* empty: all is well */
};

enum xsim_event_kind {
	XSIM_ARRIVE,         /* a: packet */
	XSIM_OPEN,           /* a: stream, b: end */
	XSIM_CLOSE,          /* a: stream, b: end */
	XSIM_TIMER,          /* a: agent, b: which */
	XSIM_BEGIN,          /* a: agent: time to think of an exchange */
	XSIM_SNAPSHOT_TAKEN, /* a: agent, b: op */
	XSIM_BULK,           /* a: agent + 64 × enum exchange_bulk, b: truth */
	XSIM_MOVED,          /* a: agent + 64 × transfer's failure, b: op */
	XSIM_APPLIED,        /* a: agent, b: op */
	XSIM_GONE,           /* a: who hears it, b: who is gone */
	XSIM_RESTART,        /* a: agent */
};

void xsim_init(struct xsim *f, const struct xsim_setup *s);
void xsim_close(struct xsim *f);
/* Until that time, or nothing is left to happen, or a check has failed. */
void xsim_run(struct xsim *f, uint64_t until_ms);
/* Offers an exchange; both must be alive, `from` idle. */
void xsim_start(struct xsim *f, int from, int to);
/* Until all who live are idle, and nothing is put aside; false: not so after a minute. */
bool xsim_settle(struct xsim *f);
void xsim_kill(struct xsim *f, int i);
void xsim_restart(struct xsim *f, int i);

/* ---- between the files */

void xsim_push(struct xsim *f, uint64_t after_ms, enum xsim_event_kind k, uint32_t a, uint32_t b);
bool xsim_chance(struct xsim *f, double p);
uint64_t xsim_between(struct xsim *f, uint64_t from, uint64_t to);
void xsim_fail(struct xsim *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct exchange_terms xsim_terms(const struct xsim *f);
int xsim_find(const struct xsim *f, const struct peer_id *id);
void xsim_step(struct xsim *f, int i, struct exchange_event e);

void links_post(struct xsim *f, int from, int to, const struct exchange_message *m);
void links_event(struct xsim *f, const struct sim_entry *e);
void links_dead(struct xsim *f, int i);

/* Called as things happen. */
void truth_sent(struct xsim *f, int from, int to, const struct exchange_message *m);
struct xsim_truth *truth_find(struct xsim *f, uint64_t exchange);
void truth_aside(struct xsim *f, int i, const struct exchange_result *so_far);
void truth_moved(struct xsim *f, int i, uint64_t exchange, const float *k, uint64_t hash);
void truth_result(struct xsim *f, int i, const struct exchange_result *r);
/* At the end. */
struct xsim_sum {
	uint32_t whole, broken, one_sided; /* exchanges in truth */
	uint32_t counted;                  /* accounts of one-sided ones */
	uint32_t uncertain;                /* of these, where both or none had moved */
};
struct xsim_sum truth_check(struct xsim *f);
/* The flock's sum by coordinate, (words) doubles. */
void xsim_sums(const struct xsim *f, double *sum);
double xsim_consensus2(const struct xsim *f); /* Ξ² */

#endif
