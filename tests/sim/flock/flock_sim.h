/* SPDX-License-Identifier: MIT */
/* Whole agents in one process, on a clock of its own.
 *
 * Each agent is the product's own core (gossip/flock). Played here are the network (datagrams,
 * streams, bulk connections), the disk, the user, and a learner: a noisy quadratic of a few
 * parameters, so that means, distances and convergence can be computed exactly. One seed decides
 * everything, so the same seed gives the same run.
 *
 *     simnet.h   the world below: time, hosts, who can reach whom, parcels, ways
 *     world.c    the network: what becomes of a message
 *     bulk.c     bulk connections and the transfers over them
 *     toy.c      the learner
 *     process.c  an agent: what a core's actions set off; life, death and disk
 *     check.c    the truth about each exchange, and the invariants
 *     rules.c    the core's rules, seen from outside
 *     liar.c     agents that do not belong here
 *     byzantine.h  agents that lie, up to a third of all, and what must hold then
 *     script.c   the script of a seed: what goes wrong, and when
 *     run.c      one seed from start to verdict */
#ifndef DUNLIN_TESTS_SIM_FLOCK_FLOCK_SIM_H
#define DUNLIN_TESTS_SIM_FLOCK_FLOCK_SIM_H

#include "gossip/flock/flock.h"
#include "agent/simulate/simnet.h"

#define FSIM_AGENTS 24
#define FSIM_PARAMS 64 /* at most */
#define FSIM_GROUPS 2
#define FSIM_VECTORS 2
#define FSIM_QUEUE 8  /* of the learner */
#define FSIM_CONNS 16 /* bulk connections of one agent, at one time */
#define FSIM_FAULTS 12
#define FSIM_BATCH 32
#define FSIM_MERGE_MS 20000
#define FSIM_STALE 0.1              /* of the run */
#define FSIM_LIES 64                /* that are remembered */
#define FSIM_STATE_LIE (1ull << 63) /* in the tag of a state */
#define BYZ_OFFERS 256              /* that are remembered, of byzantine.h */
#define BYZ_STATE (1ull << 62)      /* in the tag of a state: a liar has made it up */

/* What the world holds for later: an event of a core, with all that it borrows. */
struct fsim_item {
	struct simnet_parcel parcel;
	bool stream; /* it comes on one */
	struct flock_event e;
	struct exchange_message exchange;
	struct gossip_message gossip;
	struct sketch sketch;
	struct flock_trained step;
	int8_t found, size;
};

struct fsim_checkpoint {
	bool there;
	float state[FSIM_VECTORS * FSIM_PARAMS];
	uint64_t step, samples, others, optim_steps;
};

struct fsim_disk {
	struct fsim_checkpoint now, older;
	uint64_t generation, progress; /* progress: own samples in the run */
	bool full;
};

struct fsim_toy {
	float x[FSIM_PARAMS], m[FSIM_PARAMS];
	float before[FSIM_VECTORS * FSIM_PARAMS]; /* the last adoption */
	bool restores;
	bool training, done, failed, stopped;
	uint64_t step, samples, others, optim_steps;
	double moved;
	uint64_t set_step; /* at which the parameters were set */
	uint32_t step_ms;
	uint64_t answered_ms; /* answers come in order */
	uint32_t turn;        /* of entries in the queue: older ones are void */
	struct flock_action request[FSIM_QUEUE];
	int n;
};

/* Who holds a buffer. */
enum fsim_owner { OWNER_NONE, OWNER_LEARNER, OWNER_TRANSFER, OWNER_WORKER };

struct fsim_conn {
	uint64_t exchange;
	int with;
	bool there, started; /* there: the core was told */
	bool kept;           /* it has carried another exchange before */
	uint64_t since_ms;
	uint32_t op;                            /* of entries in the queue: older ones are void */
	struct flock_action how;                /* of started */
	float data[FSIM_VECTORS * FSIM_PARAMS]; /* what this side sends */
	float in[FSIM_VECTORS * FSIM_PARAMS];   /* what it receives, once both ends run */
	uint64_t n_data, tag, n_in, tag_in;
};

/* rules.c: what it knows of an agent in this life. */
struct fsim_rules {
	uint64_t samples;     /* own, as last told; of all lives */
	uint64_t others, own; /* known when it last was in touch with the others */
	uint64_t then;        /* others, without what the core had not looked at by then */
	uint64_t known;       /* samples of others, now */
	uint64_t known_own;   /* own, when these were last news */
	uint64_t at_ms;       /* of its last event */
	uint64_t apart_ms; /* when it last woke up, or was cut off; 0: not since it is in touch */
	uint64_t exchange; /* the last that it offered or accepted */
	uint64_t applied;  /* the last that has moved it */
	uint64_t woke_ms, lonely_ms, stale_ms, looks_ms, join_ms, offer_ms, settle_ms;
	uint64_t snapshot_ms, snapshot_others, snapshot_own;
	uint64_t failed_ms[FSIM_AGENTS]; /* the last exchange with that one */
	uint64_t given_ms[FSIM_AGENTS];  /* a place that waits for its connection; 0: none */
	double radius;
	double tokens[FSIM_AGENTS]; /* exchanges that each may still begin with us */
	uint64_t tokens_ms[FSIM_AGENTS];
	uint8_t phase;
	uint8_t state; /* of its exchange, before this event */
	bool alone, stale, was_stale, joining, was_joining, joined, gave_up;
	struct {
		uint64_t exchange; /* 0: free */
		uint64_t since_ms;
	} aside[EXCHANGE_ASIDE_MAX]; /* unsettled: its end is to be told */
};

struct fsim_agent {
	union {
		struct simnet_host host;
		struct {
			SIMNET_HOST;
		};
	};
	struct peer_id id;
	struct peer_addr addr;
	bool leaving;
	int exit_code;
	bool left;
	uint64_t behind_ms; /* its clock stood still while the machine was suspended */
	struct flock *core; /* in memory */
	uint8_t *memory;    /* owned */
	size_t memory_bytes;
	uint64_t wake_ms;
	uint32_t timer;
	struct fsim_toy toy;
	struct fsim_disk disk;
	float snapshot[FSIM_PARAMS], staging[FSIM_PARAMS];
	int8_t scale; /* of all parameters, which the snapshot travels by */
	bool wrapped; /* the partner was further apart than that can tell: nothing is in staging */
	uint8_t format; /* of the last transfer */
	float donated[FSIM_VECTORS * FSIM_PARAMS], fetched[FSIM_VECTORS * FSIM_PARAMS];
	enum fsim_owner owner[4]; /* by enum flock_slot */
	uint64_t tag;             /* of the state in DONATED: no two have the same */
	uint64_t from[FSIM_VECTORS * FSIM_PARAMS]; /* of which state each number in FETCHED is */
	int readers;                               /* transfers that read SLOT_DONATED */
	int unsent[FSIM_AGENTS]; /* to that peer, of which the core has not heard yet */
	struct fsim_conn conn[FSIM_CONNS];
	uint32_t ops;
	struct fsim_rules rules;
	/* check.c */
	uint64_t clock, began_ms;
	uint32_t judged[FSIM_AGENTS]; /* quarantines of that one that were looked at */
	bool parted;                  /* in this life, or the one before */
	uint64_t exchange_since_ms, exchange_number;
	bool exported, in_time; /* in_time: before merging was broken off */
	float result[FSIM_PARAMS];
	uint64_t dead_since_ms[FSIM_AGENTS]; /* by peer: held dead, though it is honest and runs */
	uint32_t looks[FSIM_AGENTS], suspects[FSIM_AGENTS]; /* of these, held suspect or dead */
	uint64_t final;             /* its last exchange that is a merge round */
	double merged[FSIM_AGENTS]; /* how far that one has moved it in merge rounds */
	double pulled[FSIM_AGENTS]; /* the same in other exchanges, since it has begun to merge */
	bool outvoted;              /* most who had trained before it lie about that */
	uint64_t lied_at; /* step at which it has adopted a liar's state, + 1; 0: it has not */
	uint64_t merging_ms, exported_ms;
	uint64_t pulled_ms; /* the last exchange with a liar, of its own or that it heard of */
	uint64_t met_ms[FSIM_AGENTS], met_then_ms[FSIM_AGENTS]; /* then: when it exported */
	uint32_t knew;           /* peers it could merge with by then, a bit each */
	uint32_t exported_fault; /* how many faults had begun or ended by then */
	uint8_t phase;
	bool joins;         /* it has said so, and has to do it */
	bool mixes;         /* two donors' parameters, and has said that they are near */
	bool may_join;      /* it has said why */
	bool finished;      /* in this life */
	bool was_full;      /* its disk, in this life */
	uint64_t adoptions; /* in this life */
};

struct fsim_truth {
	uint64_t exchange;
	int who[2];
	uint32_t life[2];
	bool applied[2], reported[2];
	uint8_t outcome[2];
	float k[2][FSIM_GROUPS];
	float d[2][FSIM_PARAMS];
};

enum fsim_fault_kind {
	FSIM_PARTITION,
	FSIM_TWO_FLOCKS, /* a partition from near the beginning, in which both sides train */
	FSIM_CRASH,      /* and back, from its disk */
	FSIM_CRASH_FOR_GOOD,
	FSIM_CRASH_ACTION, /* between two actions of a step */
	FSIM_LOST_DISK,
	FSIM_STALE_DISK,
	FSIM_FREEZE,
	FSIM_SLEEP, /* a freeze across the end of the run */
	FSIM_SLOW,
	FSIM_FULL_DISK,
	FSIM_FULL_QUEUES,
	FSIM_BROKEN_BULK,
	FSIM_LOSS,
	FSIM_USER_PAUSE,
	FSIM_USER_LEAVE,
	FSIM_USER_RETURN,
	FSIM_LATE_JOIN,
	FSIM_CRASH_DONOR, /* while a state goes out, and back at once */
	FSIM_FAULT_KINDS
};

/* Lies of byzantine.h. */
enum byz_lie {
	BYZ_SKETCH,     /* it is elsewhere */
	BYZ_NO_SKETCH,  /* nobody knows where */
	BYZ_SAMPLES,    /* it has trained a run's worth more */
	BYZ_CLOCK,      /* the run is over */
	BYZ_ACCUSE,     /* an honest agent is dead */
	BYZ_STALL,      /* it never opens the connection */
	BYZ_DONOR,      /* the state is none of the flock */
	BYZ_RADIUS,     /* of a donor: nothing is far */
	BYZ_SETTLE,     /* what it has done about an exchange */
	BYZ_BUSY_STALE, /* you are; nobody has asked */
	BYZ_BUSY_APART,
	BYZ_ANSWER_STALE, /* the same, as an answer */
	BYZ_ANSWER_APART,
	BYZ_MODE, /* of an offer */
	BYZ_BETA,
	BYZ_FINAL,   /* before the run is over */
	BYZ_NAN,     /* in parameters */
	BYZ_FAR,     /* parameters that nobody has */
	BYZ_PULL,    /* parameters that lead away, a little each time */
	BYZ_FETCHES, /* states that it never takes */
	BYZ_LIES
};

struct byz_offer { /* as the liar's core made it */
	uint64_t exchange;
	uint8_t lie, mode;
	bool final;
	float beta;
};

struct fsim_fault {
	uint8_t kind;
	int who;
	uint64_t from_ms, to_ms; /* equal where there is nothing to end */
};

/* Where agents begin that do not train. */
enum fsim_still { STILL_NONE, STILL_RANDOM, STILL_LINE, STILL_ROUNDED, STILL_TWO };

/* How long steps take. */
enum fsim_pace {
	PACE_DRAWN,
	PACE_SLOW,  /* 4 to 6.2 s, of all */
	PACE_MIXED, /* of the last 30 to 100 times as long as of others; a user's defaults */
	PACES
};

struct fsim_setup {
	uint64_t seed;
	uint8_t pace;   /* enum fsim_pace */
	int n;          /* 0: drawn */
	int only;       /* of all faults this one; −1: as drawn */
	bool still;     /* agents begin apart and do not move by training; nobody dies */
	bool lattice;   /* parameters travel modulo one: mod8 or mod4 */
	bool byzantine; /* some lie: byzantine.h */
	int lie;        /* of all lies this one; −1: as drawn */
	bool verbose;
};

struct fsim {
	union {
		struct simnet net;
		struct {
			SIMNET_SHARED;
		};
	};
	struct fsim_setup setup;
	struct rng noise, more; /* more: what was added later, so that seeds stay as they are */
	int n, params;
	size_t group_end[FSIM_GROUPS];
	uint64_t total;
	struct manifest manifest;
	int liar, stranger; /* −1: none */
	bool stranger_lies, spoiled;
	uint64_t lie[FSIM_LIES], n_lies; /* by exchange */
	bool lie_in_data[FSIM_LIES];     /* it was in parameters, not in a message */
	uint32_t lies[FSIM_AGENTS];      /* by agent, a bit each; 0: it is honest */
	uint64_t lied[BYZ_LIES], lies_adopted;
	struct byz_offer offer[BYZ_OFFERS];
	uint64_t n_offers;
	double worst_off;             /* of an honest result, of the way */
	double peer_rate, cap;        /* cap: bytes a second of upload; 0: none */
	double rate_cap;              /* samples a second that one peer may claim; 0: as usual */
	float optimum[FSIM_PARAMS];   /* at the beginning of the run */
	float way[FSIM_PARAMS];       /* how far the optimum moves until its end */
	float elsewhere[FSIM_PARAMS]; /* how far it is from there for the other side */
	float initial[FSIM_PARAMS];
	struct fsim_agent agent[FSIM_AGENTS];
	struct flock_actions actions;
	struct fsim_truth *truth; /* owned */
	uint32_t n_truths, room_truths;
	struct fsim_fault fault[FSIM_FAULTS];
	int n_faults;
	uint32_t faults_changed; /* begun or ended */
	uint64_t together_ms;    /* since when there is no partition */
	uint64_t faults_end_ms;
	/* the weather */
	uint64_t far_ms; /* that a message on a stream may take until all is well; 0: as usual */
	double full_chance, bulk_break_chance, crash_action_chance;
	int crash_action_agent;
	uint32_t active; /* faults under way, a bit each */
	uint64_t trained_together, last_exchanged, steps, exchanges, adoptions, one_sided, crashes,
	        crashes_between, met, no_results;
	uint64_t lattices;       /* of the exchanges */
	uint32_t occurred;       /* faults, a bit each */
	uint64_t trained;        /* samples, by all agents, in truth */
	uint64_t states;         /* donated, by all */
	double sum[FSIM_PARAMS]; /* STILL: over all agents, as it should be */
	uint64_t hash;
	char failure[300]; /* empty: all is well */
};

/* What the queue holds. */
enum fsim_entry_kind {
	FSIM_DELIVER, /* a: item */
	FSIM_TIMER,   /* a: agent, b: timer */
	FSIM_TURN,    /* a: agent, b: turn of its learner */
	FSIM_DIAL,    /* a: way, b: epoch */
	FSIM_BREAK,   /* the same: a stream is given up */
	FSIM_END,     /* a: agent + 64 × connection, b: op: a transfer ends */
	FSIM_FAULT,   /* a: number, b: 0 begins, 1 ends */
	FSIM_STARTS,  /* a: agent: its process starts */
	FSIM_DIES,    /* a: agent, b: its life: and starts again soon */
};

/* What has been reached: phase × event × faults under way. */
struct fsim_reach {
	uint64_t by[FLOCK_PHASES][FLOCK_EVENT_WISH + 1][FSIM_FAULT_KINDS + 1];
};
extern struct fsim_reach fsim_reached;

/* run.c */
struct fsim_result {
	uint64_t seed;
	bool failed;
	char failure[400];
	int n;
	uint64_t trained_together; /* exchanges that were no merge rounds, of each side */
	uint64_t last_exchanged;   /* of these the last agent's */
	uint32_t faults; /* that occurred, a bit each */
	uint64_t hash, steps, virtual_ms, exchanges, one_sided;
	uint64_t lattices;                 /* exchanges modulo one */
	uint64_t adoptions, met;           /* met: of these, by flocks that were apart */
	uint64_t crashes, crashes_between; /* between: two actions of one step */
	uint64_t no_results;               /* agents that left as stale */
	uint64_t lied[BYZ_LIES], lies_adopted;
	double worst_off;
};
struct fsim_result fsim_seed(const struct fsim_setup *s);

/* Numbers of wire formats that are lattices, as net/bulk/convert.h has them. */
#define FSIM_MOD8 2
#define FSIM_MOD4 3
/* Seeds that fail where a fault of the core is put back; the last has seed 0. */
extern const struct fsim_setup fsim_kept[];
void fsim_result_add(struct fsim_result *sum, const struct fsim_result *r);
void fsim_fail(struct fsim *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Also where some lie: fsim_fail says nothing there. */
void fsim_fail_always(struct fsim *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fsim_trace(struct fsim *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum fsim_still fsim_still_kind(const struct fsim *w);
const char *fsim_fault_name(int kind);  /* FSIM_FAULT_KINDS: "none" */
const char *fsim_event_name(int event); /* of enum flock_event_kind */

/* world.c */
void world_push(struct fsim *w, uint64_t after_ms, uint32_t kind, uint32_t a, uint32_t b);
bool world_chance(struct fsim *w, double p);
bool world_odd(struct fsim *w, double p); /* the same, while faults may be */
uint64_t world_between(struct fsim *w, uint64_t low, uint64_t high); /* both included */
uint32_t world_item(struct fsim *w, int to, uint8_t kind);
struct fsim_item *world_get(struct fsim *w, uint32_t item);
void world_later(struct fsim *w, uint32_t item, uint64_t after_ms);
bool world_reaches(const struct fsim *w, int from, int to);
int world_find(const struct fsim *w, const struct peer_id *id);
struct simnet_way *world_way(struct fsim *w, int from, int to);
void world_gossip(struct fsim *w, int from, const struct gossip_send *s);
void world_post(
        struct fsim *w, int from, const struct peer_id *to, const struct exchange_message *m);
/* A message that no core has sent. */
void world_inject(struct fsim *w, int from, int to, const struct exchange_message *m);
void world_dial(struct fsim *w, uint32_t way, uint32_t epoch);
void world_break(struct fsim *w, uint32_t way, uint32_t epoch);
void world_dead(struct fsim *w, int i);

/* bulk.c */
void bulk_open(struct fsim *w, int from, const struct flock_action *a);
void bulk_close(struct fsim *w, int i, uint64_t exchange);
void bulk_transfer(struct fsim *w, int i, const struct flock_action *a);
void bulk_cancel_use(struct fsim *w, int i, const struct flock_action *a);
void bulk_ends(struct fsim *w, int i, int conn, uint32_t op);
bool fsim_packs(const struct fsim *w, int i); /* parameters modulo a lattice */
float bulk_step(const struct fsim_agent *g, uint8_t format); /* of a lattice */
void bulk_dead(struct fsim *w, int i);

/* toy.c */
void toy_open(struct fsim *w, int i, const struct fsim_checkpoint *from);
void toy_ask(struct fsim *w, int i, const struct flock_action *a);
void toy_turn(struct fsim *w, int i, uint32_t turn);
void toy_wake(struct fsim *w, int i);
void toy_measure(struct fsim *w, int i, uint8_t slot);
float toy_optimum(const struct fsim *w, int p, uint64_t clock); /* of parameter p */

/* process.c */
void process_start(struct fsim *w, int i);
void process_kill(struct fsim *w, int i);
void process_step(struct fsim *w, int i, struct flock_event *e);

/* check.c */
void check_step(struct fsim *w, int i, const struct flock_event *e);
void check_action(struct fsim *w, int i, const struct flock_action *a);
void check_owner(
        struct fsim *w, int i, enum flock_slot s, enum fsim_owner from, enum fsim_owner to);
void check_applied(struct fsim *w, int i, const struct flock_action *a);
void check_result(struct fsim *w, int i, const struct exchange_result *r);
void check_exported(struct fsim *w, int i);
void check_adopts(struct fsim *w, int i);
void check_trains(struct fsim *w, int i);
void check_left(struct fsim *w, int i);
void check_said(struct fsim *w, int i, const struct flock_say *s);
double check_distance(const struct fsim *w, const float *x, const float *y); /* NULL: 0 */
void check_end(struct fsim *w);

/* rules.c */
void rules_start(struct fsim *w, int i, const struct flock_config *c);
void rules_step(struct fsim *w, int i, const struct flock_event *e, const struct flock_view *v);
void rules_sent(struct fsim *w, int i, int to, const struct exchange_message *m);

/* liar.c */
void liar_draw(struct fsim *w);
bool liar_is_odd(const struct fsim *w, int i); /* one of the two */
bool liar_said(const struct fsim *w, uint64_t exchange);
int liar_gave(const struct fsim *w, int i); /* numbers of what that one has fetched */
void liar_message(struct fsim *w, int from, struct exchange_message *m);
bool liar_swallows(const struct fsim *w, int from, const struct exchange_message *m);
void liar_data(struct fsim *w, int from, struct fsim_conn *c);
void liar_record(struct fsim *w, struct gossip_message *m);

/* script.c */
void script_draw(struct fsim *w);
void script_donates(struct fsim *w, int donor, int joiner, uint64_t ms); /* for so long */
void script_apply(struct fsim *w, uint32_t fault, bool end);

#endif
