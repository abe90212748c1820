/* SPDX-License-Identifier: MIT */
/* Methods in which all agents wait for each other: rounds of own steps, then a meeting.
 *
 *     members of the round:  step, step … ─┐
 *                            step, step … ─┼─ all wait ─► cost ─► … time … ─► meet ─► next round
 *                            step, step … ─┘
 *
 * An agent that crashes holds the others up for method.timeout_s; one that leaves does not. A pause
 * or a partition holds up the meeting until its end. A joiner fetches a model from the first live
 * agent, takes its state at the end of a meeting, and is in the next round.
 *
 * A method's state begins with a struct collective, filled with its three functions; the other
 * functions of its struct sim_method are the ones below. */
#ifndef DUNLIN_AGENT_SIMULATE_METHODS_COLLECTIVE_H
#define DUNLIN_AGENT_SIMULATE_METHODS_COLLECTIVE_H

#include "agent/simulate/engine.h"

enum collective_place {
	COLLECTIVE_OUT,
	COLLECTIVE_SEEKS, /* wants to fetch; from here down nobody has the run's state */
	COLLECTIVE_FETCHING,
	COLLECTIVE_READY,
	COLLECTIVE_RUNS,
	COLLECTIVE_WAITS,
	COLLECTIVE_LOST
};

struct collective {
	enum fleet_task task;
	/* Agent i's step has ended: true: it takes another one before the meeting. NULL: never. */
	bool (*more)(struct sim *s, uint32_t i, const struct fleet_result *r);
	/* All members wait: how long the meeting takes, and counts its bytes. */
	uint64_t (*cost)(struct sim *s);
	/* After that time: moves the vectors of the members. */
	int (*meet)(struct sim *s, struct err *e);
	/* Chooses members of the next round by setting `in` to false. NULL: all. */
	void (*choose)(struct sim *s);

	/* Filled in by collective_start, for reading. */
	bool *in;              /* owned, by agent: member of this round, and live */
	uint64_t *round_steps; /* owned, by agent: steps of this round */
	uint64_t rounds;       /* meetings so far */
	uint8_t *place;        /* owned, by agent: enum collective_place */
	bool meeting;          /* its time runs */
	bool again;            /* set by meet: another meeting follows before the next round */
};

/* state, malloc'd, begins with a struct collective and is the engine's from now on, even if this
 * fails. */
int collective_start(struct sim *s, void *state, struct err *e) MUST_CHECK;
void collective_stop(struct sim *s); /* frees the state too */
int collective_stepped(
        struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e) MUST_CHECK;
int collective_noted(struct sim *s, const struct sim_note *n, struct err *e) MUST_CHECK;
void collective_drop(struct sim *s, const struct sim_note *n);
int collective_changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e) MUST_CHECK;

uint32_t collective_members(const struct sim *s);
/* All-reduce of one model among the live agents, counted; every member meets. */
uint64_t collective_allreduce(struct sim *s);
/* Every member takes x (n_total floats). */
void collective_spread(struct sim *s, const float *x);
/* x of the members ← their mean. ERR_NOMEM. */
int collective_average(struct sim *s, struct err *e) MUST_CHECK;
/* After FLEET_GRAD: every member's optimizer applies its own gradient at that rate. */
int collective_apply(struct sim *s, double lr, struct err *e) MUST_CHECK;

#endif
