/* SPDX-License-Identifier: MIT */
/* A flock in one process, on a clock of its own.
 *
 * Each agent is a real membership core; everything around it is played here: the network, the
 * hosts' clocks, restarts, signatures, and the caller's part of the contract in
 * gossip/membership/gossip.h. One seed decides everything, so the same seed gives the same run to
 * the byte.
 *
 *     simnet.h   the world below: time, hosts, who can reach whom, parcels
 *     sim.c      life: the loop, processes, what a core's actions set off
 *     network.c  what becomes of a message: datagrams, and streams that are dialled and given up
 *     truth.c    what was really published and signed, by which the rest is judged
 *     check.c    the invariants, after every step; whether all views are equal
 *     faults.c   the script of a seed: what goes wrong, and when
 *     forger.c   an insider who lies
 *     seed.c     one seed from start to verdict
 *     measure.c  the table and the bars of make sim-membership */
#ifndef DUNLIN_TESTS_SIM_SIM_H
#define DUNLIN_TESTS_SIM_SIM_H

#include "gossip/membership/gossip.h"
#include "agent/simulate/simnet.h"

#define SIM_CANARY_BYTES 64
#define SIM_CANARY 0xa5
#define SIM_SEEDS_PER_NODE 3
#define SIM_REMEMBERED 32
#define SIM_FAULTS 24
#define SIM_NEVER SIMNET_NEVER

enum sim_entry_kind {
	SIM_TIMER,   /* a: node, b: which timer of it */
	SIM_ARRIVE,  /* a: packet */
	SIM_DIAL,    /* a: way, b: epoch */
	SIM_STREAM,  /* a: way, b: epoch: the first packet of a stream may be there */
	SIM_BREAK,   /* a: way, b: epoch: a stream to a silent peer is given up */
	SIM_STATUS,  /* a: node, b: its life: it has trained a little */
	SIM_FAULT,   /* a: number in the script; b: 0 begins, 1 ends */
	SIM_FORGE,   /* a: node of the forger */
	SIM_RUN_END, /* of sim_run */
};

/* What a process is told. */
enum sim_packet_kind { PACKET_MESSAGE, PACKET_UP, PACKET_DOWN, PACKET_RESOLVED };

struct sim_packet {
	struct simnet_parcel parcel;
	uint8_t kind;
	uint8_t channel;
	bool late; /* has waited for a slow receiver already */
	int seed;  /* RESOLVED */
	struct peer_id id;
	struct peer_addr source; /* UP: where it was dialled */
	struct gossip_message message;
};

/* The latest dial, by way. */
struct sim_dial {
	bool by_id; /* it knows whom it wants */
	struct peer_addr at;
};

/* What an observer has seen of a key, to notice when it goes back. */
struct sim_shadow {
	bool known;
	bool spoke; /* with the observer itself, since it is known */
	uint8_t state;
	uint32_t seen; /* the step it was last seen in */
	uint64_t generation, incarnation, version;
};

/* An identity, and all that its owner ever told. */
struct sim_key {
	struct peer_id id;
	uint64_t secret;
	uint64_t samples; /* really trained, in all of its lives; what a forger claims */
	uint32_t node[2]; /* who runs with it: two where a key was copied */
	int n_nodes;
	bool forger;
};

/* A host, with at most one process at a time. */
struct sim_node {
	union {
		struct simnet_host host;
		struct {
			SIMNET_HOST;
		};
	};
	uint32_t key;
	struct peer_addr addr;  /* where it is */
	struct peer_addrs told; /* where it says it is: there, and perhaps where nobody is */
	bool forger;
	/* kept on disk */
	uint64_t generation, samples;
	int n_remembered;
	struct peer_addr remembered[SIM_REMEMBERED];
	int n_seeds;
	uint32_t seed_node[SIM_SEEDS_PER_NODE];
	/* the process */
	struct gossip *core; /* in memory */
	uint8_t *memory;     /* owned; a canary follows */
	size_t memory_bytes;
	struct sim_shadow *shadow; /* owned, one for each key */
	struct sim_shadow self, self_before;
	uint32_t stamp, known; /* of check.c: the step, and how many are known */
	uint64_t clock, evicted, evicted_before;
	uint64_t started_ms, nonce;
	uint64_t step;
	bool told_same_key;
	/* its timer */
	uint64_t deadline_ms; /* by its own clock */
	uint64_t timer_at_ms; /* SIM_NEVER: none is set */
	uint32_t timer;
	uint32_t spins;
	uint64_t spin_ms;
	/* its clock and its troubles */
	uint64_t offset_ms;
	bool still; /* its clock stands */
	uint64_t still_ms;
	uint32_t slow_ms;
	uint64_t handled_ms; /* when a slow one will be through with what has come */
};

/* The network's mood. Chances are of 1. */
struct sim_weather {
	double loss, duplicate;
	uint32_t delay_ms, jitter_ms;
	double resolve_failure;
};

enum sim_fault_kind {
	FAULT_PARTITION,
	FAULT_ONE_WAY,
	FAULT_BRIDGE,
	FAULT_ISOLATE,
	FAULT_SLOW,
	FAULT_PAUSE,
	FAULT_CRASH,
	FAULT_RESTART,      /* with its state */
	FAULT_RESTART_LOST, /* without */
	FAULT_LEAVE,
	FAULT_LEAVE_RETURN,
	FAULT_CLOCK_FORWARD,
	FAULT_CLOCK_BACK,
	FAULT_CLOCK_STILL,
	FAULT_LATE_JOIN,
	FAULT_TWIN, /* a second process with the same key */
	FAULT_WEATHER,
	FAULT_MOVE, /* to another address */
	FAULT_FORGER,
	FAULT_SYBILS, /* the forger makes more members than there is room for */
	FAULT_KINDS,
};

struct sim_fault {
	uint8_t kind;
	uint32_t node, other;
	uint64_t from_ms, to_ms; /* equal where there is nothing to end */
	uint64_t value;
};

struct sim_stats {
	uint64_t steps, sends, bytes;
	uint64_t unwanted, forged;
	uint64_t false_deaths; /* running ones declared dead, once for each incarnation */
};

struct sim_config {
	uint64_t seed;
	uint32_t nodes;       /* at first; slots for more are kept for those who come later */
	uint32_t slots;       /* nodes and forgers, 0: nodes */
	uint32_t extra_keys;  /* identities without a node, for a forger to make up */
	uint32_t members_max; /* 0: plenty */
	struct gossip_profile profile;
	struct sim_weather weather;
	uint32_t status_every_ms; /* about; 0: status stands still */
	bool check;               /* invariants after every step */
	bool verbose;
};

struct sim {
	union {
		struct simnet net;
		struct {
			SIMNET_SHARED;
		};
	};
	struct sim_config config;
	uint32_t n_nodes, n_keys;
	struct sim_node *node; /* owned */
	struct sim_key *key;   /* owned */
	struct sim_dial *dial; /* owned, by way */
	double resolve_failure;
	struct gossip_actions actions; /* of the step at hand */
	/* truth.c: contents that were signed by their owner */
	uint64_t *published; /* owned */
	size_t n_published, room_published;
	/* forger.c */
	struct gossip_update *caught; /* owned, what a forger has overheard */
	uint32_t n_caught;
	/* faults.c */
	struct sim_fault fault[SIM_FAULTS];
	int n_faults;
	bool sybils, liar,
	        quiet; /* there were sybils; a count that is not one; training stands still */
	/* measure.c: whose deaths were counted, the highest for each key */
	uint64_t *death_counted; /* owned */
	uint64_t hash;           /* of all actions */
	bool failed;
	char failure[512];
	struct sim_stats stats;
};

/* sim.c */
void sim_init(struct sim *s, const struct sim_config *c);
void sim_set_weather(struct sim *s, const struct sim_weather *w);
void sim_close(struct sim *s);
void sim_run(struct sim *s, uint64_t until_ms); /* or until it has failed */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_say(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_push(struct sim *s, uint64_t at_ms, uint32_t kind, uint32_t a, uint32_t b);
void sim_arm(struct sim *s, uint32_t n);
uint64_t sim_local(const struct sim *s, const struct sim_node *p);
bool sim_chance(struct sim *s, double p);
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high); /* both included */

/* process.c */
void sim_start(struct sim *s, uint32_t n, bool with_state);
void sim_stop(struct sim *s, uint32_t n, bool refuses);
void sim_leave(struct sim *s, uint32_t n);
void sim_move(struct sim *s, uint32_t n);
void sim_tell_addrs(struct sim_node *p, uint32_t n, uint32_t kind);
void sim_step(struct sim *s, uint32_t n, struct gossip_event *e);
void sim_receive(struct sim *s, uint32_t packet);
void sim_train(struct sim *s, uint32_t n);

/* network.c */
struct sim_packet *sim_packet(struct sim *s, uint32_t i);
void sim_message_copy(struct gossip_message *to, const struct gossip_message *from);
uint32_t network_packet(struct sim *s, uint32_t from, uint32_t to, uint8_t kind);
void network_send(struct sim *s, uint32_t from, const struct gossip_send *send);
void network_datagram(struct sim *s, uint32_t from, uint32_t to, const struct gossip_message *m);
void network_resolve(struct sim *s, uint32_t n, int seed);
void network_stopped(struct sim *s, uint32_t n, bool refuses);
void network_dial(struct sim *s, uint32_t way, uint32_t epoch);
void network_stream(struct sim *s, uint32_t way, uint32_t epoch);
void network_break(struct sim *s, uint32_t way, uint32_t epoch);

/* truth.c */
void truth_make_id(struct sim *s, uint32_t key);
int truth_key(const struct sim *s, const struct peer_id *id); /* −1: nobody's */
uint64_t truth_hash(uint64_t h, uint64_t word);
uint64_t truth_hash_bytes(uint64_t h, const void *bytes, size_t n);
uint64_t truth_record(const struct member_record *r);
uint64_t truth_update(const struct gossip_update *u);
uint64_t truth_sketch(const struct member_sketch *k);
void truth_sign(struct sim *s, uint32_t key, struct gossip_update *u);
void truth_sign_sketch(struct sim *s, uint32_t key, struct member_sketch *k);
bool truth_verify(const struct sim *s, const struct gossip_update *u);
bool truth_verify_sketch(const struct sim *s, const struct member_sketch *k);
void truth_publish(struct sim *s, const struct member_record *r);
bool truth_published(const struct sim *s, const struct member_record *r);
uint64_t truth_clock(const struct sim *s); /* samples that all have trained */

/* check.c */
void check_started(struct sim *s, uint32_t n);
void check_step(struct sim *s, uint32_t n, const struct gossip_event *e);
bool check_views_equal(struct sim *s, char *why, size_t why_bytes);
bool check_clocks_equal(struct sim *s, char *why, size_t why_bytes);
bool check_knows_dead(const struct sim *s, uint32_t key);

/* faults.c */
const char *fault_name(int kind);
void faults_draw(struct sim *s, uint64_t from_ms, uint64_t to_ms);
void faults_add(struct sim *s, uint8_t kind, uint64_t from_ms, uint64_t to_ms);
void faults_apply(struct sim *s, uint32_t i, bool end);
void faults_stop(struct sim *s);

/* forger.c */
void forger_start(struct sim *s, uint32_t n);
void forger_stop(struct sim *s, uint32_t n);
void forger_act(struct sim *s, uint32_t n);
void forger_receive(struct sim *s, uint32_t n, const struct sim_packet *p);

/* seed.c: one seed as make check runs it. n: 0 draws it. */
struct seed_result {
	bool failed;
	char failure[640];
	uint32_t nodes;
	uint64_t hash, steps, virtual_ms, healed_ms;
	uint64_t forged;
};
struct seed_options {
	uint64_t seed;
	uint32_t nodes;
	int only; /* of all faults this one; −1: as drawn */
	bool verbose;
};
struct seed_result seed_run(const struct seed_options *o);

/* measure.c: prints; false if a bar is short. */
bool measure_all(int processes);

#endif
