/* SPDX-License-Identifier: MIT */
/* The engine: virtual time, who is there, what a step and a transfer cost, and the record of a run.
 * A method decides what agents do with it; one file a method, one row in sim_methods.h.
 *
 *     queue of entries by (time, order of entry) ──► engine ──► the method's functions
 *         a step ends, a timer, bytes arrive,           │            │
 *         an event of the scenario, a record            │            ├─► sim_step, sim_send
 *                                                       ▼            └─► fleet.h: vectors
 *                                          points, trace, progress
 *
 * Same scenario and seed, same run, to the bit, whatever the number of threads: the engine is one
 * thread, entries of one time come in the order in which they were pushed, and every agent has
 * random streams of its own. A method uses sim_rng and nothing else for chance, and no clock.
 *
 * Happy path: sim_new, sim_run, read sim_run's points, sim_free. What can fail: data, memory, and
 * training that leaves the finite numbers, which ends the run with a record of what there was. */
#ifndef DUNLIN_AGENT_SIMULATE_ENGINE_H
#define DUNLIN_AGENT_SIMULATE_ENGINE_H

#include "agent/base/rng.h"
#include "agent/simulate/fleet.h"
#include "agent/simulate/scenario.h"

#include <stdatomic.h>

#define SIM_S 1000000ull /* microseconds */

/* ---- what a run leaves: for tables, reports and comparisons */

struct sim_point {
	double time_s;         /* virtual */
	uint64_t samples;      /* of all agents */
	uint64_t steps;        /* of all agents */
	uint64_t bytes;        /* sent by all agents and servers, modelled */
	uint64_t exchanges;    /* pairs, pulls, pushes; of a collective: rounds */
	uint64_t live;         /* agents; so wide that points have no padding */
	double train_loss;     /* mean of the batches since the point before */
	double loss, accuracy; /* of the method's model (see struct sim_method), on the test set */
	double xi;             /* Ξ of the live agents */
	double xi_target;      /* NaN: the method has none */
	/* With method.control: the largest Ξ that exchanges left to a step since the point before;
	 * NaN: none was measured. */
	double xi_left;
};

struct sim_membership { /* who is there changed */
	double time_s;
	uint32_t agent;
	enum sim_change {
		SIM_JOINED,
		SIM_LEFT,
		SIM_CRASHED,
		SIM_PAUSED,
		SIM_RESUMED,
		SIM_SLOWED,
		SIM_PARTED, /* a partition began or changed; agent: the first of its side */
		SIM_HEALED,
		SIM_TURNED_BAD,
	} what;
	uint32_t live; /* after it */
};

struct sim_run {
	uint64_t seed;
	bool complete;    /* false: stopped by the user, or failed; the points are what there was */
	char failed[160]; /* why; "": it did not fail */
	uint32_t agents;
	uint64_t parameters;
	struct sim_point *points; /* owned; the last one is the end of the run */
	int n_points;
	struct sim_membership *membership; /* owned */
	int n_membership;
	/* owned; met[from × agents + to]: transfers of parameters; of a collective nothing */
	uint32_t *met;
	double target_s; /* time to record.target; NaN: not reached, or none asked for */
	uint64_t target_bytes, target_samples;
	double synchronised; /* fraction of the steps with any exchange: 1 − LSSR; NaN: none */
	double compute_s,
	        wait_s; /* mean over agents: busy, and waiting for others or the network */
	double real_s;  /* what the run took; in no comparison of bits */
	/* All-reduces of models: time and bytes, had they been sent in that format; NaN: none. */
	double fp32_s, fp32_bytes, bf16_s, bf16_bytes;
};
void sim_run_close(struct sim_run *r);

/* ---- running */

struct sim;

struct sim_options {
	uint64_t seed;
	int threads;             /* 0: all cores */
	const atomic_bool *stop; /* borrowed, or NULL: set to end the run soon, as it is */
	/* Called after each point and about once a second of real time; may be NULL. */
	void (*progress)(void *arg, const struct sim *s);
	/* One line of JSON without its newline, for the trace; may be NULL. */
	int (*trace)(void *arg, const char *line, size_t len, struct err *e);
	void *arg;
};

/* Both return 0 or a code; *exit: what it means, an EXIT_ of exit_code.h. out is filled in both
 * cases once sim_new has succeeded. ERR_CANCELLED: stop was set. */
int sim_new(struct sim **out, const struct scenario *s, const struct sim_options *o, int *exit,
        struct err *e) MUST_CHECK;
int sim_run(struct sim *s, struct sim_run *out, int *exit, struct err *e) MUST_CHECK;
void sim_free(struct sim *s);

double sim_done(const struct sim *s);                  /* fraction of the run's samples */
const struct sim_point *sim_last(const struct sim *s); /* NULL: none yet */

/* ---- for methods */

/* A transfer or timer of the method's. */
struct sim_note {
	uint32_t tag;      /* the method's own */
	uint32_t from, to; /* hosts; of a timer: as given */
	uint64_t bytes;    /* 0: a timer */
	void *arg;         /* the method's; the engine never frees it */
};

struct sim_method {
	const char *name; /* in scenario files */
	const char *help; /* small letter, no full stop */

	/* Settings that make no sense together for this method. May be NULL. */
	void (*check)(const struct scenario *s, struct config_problems *p);
	/* Floats for each parameter: of an agent beyond x, g, m, v; and of the run. For --check. */
	int agent_vectors, run_vectors;
	/* Bytes beside them, such as tables of pairs of agents. May be NULL. */
	double (*other_bytes)(const struct scenario *s);

	/* Takes its state (sim_set_state) and begins the first steps. */
	int (*start)(struct sim *s, struct err *e);
	/* Frees its state, whatever start has done. Notes not delivered: see drop. */
	void (*stop)(struct sim *s);

	/* The step or gradient of agent i that sim_step began has ended, and i is live. */
	int (*stepped)(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e);
	/* A timer ran out, or all bytes of a transfer have arrived, at a host that is live and can
	 * be reached from the sender. Paused hosts get theirs when they resume. May be NULL if
	 * neither is used. */
	int (*noted)(struct sim *s, const struct sim_note *n, struct err *e);
	/* The transfer failed: an end crashed, left, or is on the other side of a partition; told
	 * at once. Or the run ended: then it is called for every note. May be NULL. */
	void (*drop)(struct sim *s, const struct sim_note *n);
	/* Who is there, or who can reach whom, changed. Of a joiner: x_i is the initial model, and
	 * the method gives it one and starts it. Of one that left or crashed: its step and its
	 * notes are dropped already. May be NULL. */
	int (*changed)(struct sim *s, uint32_t i, enum sim_change what, struct err *e);
	/* n_total floats: the model to evaluate, such as a server's. NULL (or NULL returned): the
	 * mean of the live agents. */
	const float *(*model)(struct sim *s);
	/* Whether the run may end, asked once all samples are trained on and no step is under way.
	 * NULL: when no note is under way either. */
	bool (*finished)(struct sim *s);
	bool controlled; /* knows method.control */
	/* Its target for Ξ; NULL: none. */
	double (*xi_target)(struct sim *s);
};

extern const struct sim_method *const sim_methods[]; /* by enum, see sim_methods.h */
extern const char *const sim_method_names[];         /* the same, NULL-terminated */

void sim_set_state(struct sim *s, void *state);
void *sim_state(const struct sim *s);

const struct scenario *sim_scenario(const struct sim *s);
struct fleet *sim_fleet(const struct sim *s);
uint64_t sim_now(const struct sim *s);    /* microseconds since the run began */
uint32_t sim_agents(const struct sim *s); /* all, present or not; the server is host number n */
bool sim_live(const struct sim *s, uint32_t i); /* there, paused or not */
bool sim_paused(const struct sim *s, uint32_t i);
bool sim_bad(const struct sim *s, uint32_t i); /* sends noise: see sim_sent */
uint32_t sim_n_live(const struct sim *s);
const bool *sim_live_set(const struct sim *s); /* by agent, for fleet_mean */
/* Both are live and on one side of every partition. The server is with agent 0. */
bool sim_reaches(const struct sim *s, uint32_t a, uint32_t b);
bool sim_whole(const struct sim *s); /* all live agents reach each other, and none is paused */
struct rng *sim_rng(struct sim *s);  /* the method's */
struct rng *sim_agent_rng(struct sim *s, uint32_t i); /* an agent's */

/* The learning rate now, by the run's clock, which counts the samples of steps that have ended. */
double sim_lr(const struct sim *s);
uint64_t sim_samples(const struct sim *s);
uint64_t sim_total(const struct sim *s);
bool sim_over(const struct sim *s); /* all samples have been trained on */
/* They have, or will be by steps that are under way. Agents that go their own ways ask before each
 * step; rounds that all take part in ask sim_over. */
bool sim_over_soon(const struct sim *s);
uint64_t sim_steps(const struct sim *s, uint32_t i); /* that agent i has ended */
bool sim_computes(const struct sim *s, uint32_t i);  /* a step is under way */

/* Agent i computes from now on; `stepped` comes after its compute time (a pause makes it longer).
 * It must be live, and no other step of it under way. */
void sim_step(struct sim *s, uint32_t i, enum fleet_task task);

/* `noted` after that time, if host n->from is live then; n->bytes must be 0. */
int sim_timer(struct sim *s, uint64_t after_us, const struct sim_note *n, struct err *e) MUST_CHECK;
/* n->bytes over the links of n->from and n->to, then the latency; then `noted` or `drop`. Bytes
 * are counted when it begins. parameters: it counts as a meeting of the two in sim_run.met. */
int sim_send(struct sim *s, const struct sim_note *n, bool parameters, struct err *e) MUST_CHECK;
/* One way from a to b, in microseconds. */
uint64_t sim_latency(const struct sim *s, uint32_t a, uint32_t b);
uint32_t sim_server(const struct sim *s); /* its host number: sim_agents */

/* Bytes of one model on the wire (method.wire, record.parameters). */
uint64_t sim_model_bytes(const struct sim *s);
/* An all-reduce of so many bytes among the live agents: its time, of the faster of ring and
 * halving-doubling on the slowest link (ALGORITHMS 11), and the bytes that all send together. */
uint64_t sim_allreduce(const struct sim *s, uint64_t bytes, uint64_t *total_bytes);
/* Ξ of the live agents now: computes steps that are under way to their end. */
double sim_distance(struct sim *s);
/* An exchange left this Ξ: for sim_point.xi_left. */
void sim_measured(struct sim *s, double xi);
/* An all-reduce of one model, counted in both formats: its time in that of the scenario. */
uint64_t sim_allreduce_model(struct sim *s);
/* Adds to the run's bytes and exchanges what no sim_send has counted. */
void sim_count(struct sim *s, uint64_t bytes, uint64_t exchanges);
/* Agent i took part in an exchange since its last step: for sim_run.synchronised. */
void sim_met(struct sim *s, uint32_t i);
/* What agent i sends for x: x itself, or noise in `room` (n_total floats) if it is bad. */
const float *sim_sent(struct sim *s, uint32_t i, const float *x, float *room);

/* A line of the trace: {"t":…,"what":what,…}; fmt gives the other members, "\"a\":%u,\"b\":%u". */
int sim_trace(struct sim *s, const char *what, const char *fmt, ...) MUST_CHECK
        __attribute__((format(printf, 3, 4)));

#endif
