/* SPDX-License-Identifier: MIT */
/* What the engine's files share: engine.c has the loop, agents.c who is there, transfers.c notes
 * and links, record.c points and trace. */
#ifndef DUNLIN_AGENT_SIMULATE_ENGINE_INTERNAL_H
#define DUNLIN_AGENT_SIMULATE_ENGINE_INTERNAL_H

#include "agent/simulate/engine.h"
#include "agent/simulate/links.h"
#include "agent/simulate/queue.h"
#include "model/graph/optim.h"

/* Entries of the queue, which counts microseconds here. */
enum sim_kind {
	SIM_STEP,   /* a: agent, b: its turn */
	SIM_RESUME, /* a: agent, b: its turn of pauses */
	SIM_NOTE,   /* a: slot, b: its turn: deliver */
	SIM_LOST,   /* the same: drop */
	SIM_FLOW,   /* a: flow, b: its version: all bytes are sent */
	SIM_EVENT,  /* a: number of the scenario's event */
	SIM_END,    /* record.max_s */
	SIM_CHURN,  /* agents.churn_every_s */
	SIM_REPLACE, /* a: agent that is joined in the place of one that crashed */
};

struct sim_agent {
	bool live, paused, bad, computing, met;
	uint32_t side;        /* of a partition */
	uint32_t turn, pause; /* of entries in the queue: older ones are void */
	uint64_t paused_until_us, step_end_us, step_us, since_us;
	double step_ms; /* mean */
	double slow;    /* EVENT_SLOW */
	double noise;   /* EVENT_BAD */
	enum fleet_task task;
	struct rng rng;
	uint64_t steps, met_steps;
	uint64_t computed_us, live_us;
};

/* A note under way. */
struct sim_slot {
	struct sim_note note;
	bool used;
	bool parameters;
	uint32_t turn;
	uint32_t flow; /* 0: none */
	uint32_t next; /* free one, + 1; 0: none */
};

struct sim {
	const struct scenario *scenario; /* borrowed */
	const struct sim_method *method;
	struct sim_options options;
	struct fleet *fleet; /* owned */
	void *state;         /* the method's */
	struct sim_queue queue;
	uint64_t now_us;
	uint32_t n;
	struct sim_agent *agent; /* owned */
	bool *live;              /* owned, by agent */
	uint32_t n_live, n_computing;
	struct rng rng, churn;
	uint64_t churn_steps; /* steps when agents were last replaced */
	uint32_t churn_idle;  /* times that there were none in between */
	struct schedule schedule;
	uint64_t samples, steps, total;
	bool ended;

	struct links links;
	struct sim_slot *slot; /* owned */
	uint32_t n_slots, n_used;
	uint32_t free_slot; /* the first, + 1; 0: none */
	uint32_t *flow_slot; /* owned, by flow */
	uint32_t n_flow_slots;

	uint64_t bytes, exchanges;
	uint64_t injected_bytes, injected_us; /* of a step: samples of other agents */
	float *mean; /* owned */
	double loss_sum;
	uint64_t loss_n;
	double xi_left; /* NaN: not measured */
	struct sim_run run;
	int points_room, membership_room, next_point;
	uint64_t told_us; /* real time of the last progress */
};

/* agents.c */
int sim__agents_open(struct sim *s, struct err *e) MUST_CHECK;
int sim__event(struct sim *s, const struct scenario_event *v, struct err *e) MUST_CHECK;
/* Begins, and goes on with, replacing agents. */
int sim__churn(struct sim *s, bool begin, struct err *e) MUST_CHECK;
int sim__replace(struct sim *s, uint32_t i, struct err *e) MUST_CHECK;
int sim__resume(struct sim *s, uint32_t i, struct err *e) MUST_CHECK;

/* transfers.c */
int sim__links_open(struct sim *s, struct err *e) MUST_CHECK;
void sim__links_close(struct sim *s);
int sim__flow_ended(struct sim *s, uint32_t flow, uint32_t version, struct err *e) MUST_CHECK;
int sim__deliver(struct sim *s, uint32_t slot, uint32_t turn, bool lost, struct err *e) MUST_CHECK;
/* Drops what can no longer arrive: of an agent that is gone, or across a partition. */
void sim__drop_unreachable(struct sim *s);
void sim__drop_all(struct sim *s);

/* record.c */
int sim__point(struct sim *s, bool last, struct err *e) MUST_CHECK;
int sim__membership(struct sim *s, uint32_t agent, enum sim_change what, struct err *e) MUST_CHECK;
void sim__progress(struct sim *s, bool now);
uint64_t sim__real_us(void);

static inline void sim__push(
        struct sim *s, uint64_t at_us, enum sim_kind kind, uint32_t a, uint32_t b)
{
	queue_push(&s->queue, (struct sim_entry){.at_ms = at_us, .kind = kind, .a = a, .b = b});
}

#endif
