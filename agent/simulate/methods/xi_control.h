/* SPDX-License-Identifier: MIT */
/* Control of the consensus distance (Kong, Lin, Koloskova, Jaggi, Stich, ICML 2021): agents gossip
 * again before their next step until Ξ is at or below a bound.
 *
 *     share       Ξ ≤ f·Ξ_max; f is method.control_factor, and Ξ_max the largest Ξ of the phase in
 *                 a run without control (method.control_max): `measure` records it
 *     gradient    Ξ ≤ c·φ; c is method.control_factor, φ a moving average of mean_i ‖g_i‖
 *
 * The phase is given in shares of the run's samples: method.control_from and control_to. Outside
 * of it nobody gossips again. Ξ is the true one, or with method.control_by the one that agents
 * could know, (2/p)·Θ with Θ² = (1/n) Σ ‖Σ_j w_ij·x_j − x_i‖², p of the graph. */
#ifndef DUNLIN_AGENT_SIMULATE_METHODS_XI_CONTROL_H
#define DUNLIN_AGENT_SIMULATE_METHODS_XI_CONTROL_H

#include "agent/simulate/engine.h"

/* Gossip rounds, or exchanges for each agent, after one step: an end for bounds out of reach. */
#define CONTROL_ROUNDS_MAX 1000

/* The method's to keep, zeroed at first. */
struct xi_control {
	double phi;      /* moving average of gradient norms; 0: none yet */
	uint32_t rounds; /* again since the last step */

	/* For agents that go their own ways. */
	bool *held; /* owned, by agent: begins no step before Ξ is small enough */
	uint32_t n_held;
	bool moved, near; /* models have changed since Ξ was looked at; it was small enough */
	/* Has an exchange under way; tries to begin one with whom it draws. */
	bool (*busy)(struct sim *s, uint32_t i);
	int (*exchange)(struct sim *s, uint32_t i, struct err *e);
};

bool xi_control_measures(const struct sim *s); /* Ξ is wanted now, to measure or to control */
void xi_control_gradient(struct sim *s, struct xi_control *c, double mean_norm);

/* The bound now; NaN: none. */
double xi_control_bound(struct sim *s, const struct xi_control *c);

/* After an exchange that left this Ξ, with no step since: whether to gossip again. */
bool xi_control_again(struct sim *s, struct xi_control *c, double xi);

/* Agents that go their own ways: at the end of a step an agent is held while Ξ is above the bound,
 * and all who are held exchange with random peers, one exchange of each after the other. If nobody
 * can, they go on.
 *
 * xi_control_step instead of sim_step; xi_control_wake at the end of all else that the engine
 * calls, with `moved` set before it where models have changed. */
int xi_control_open(struct sim *s, struct xi_control *c, struct err *e) MUST_CHECK;
void xi_control_close(struct xi_control *c);
int xi_control_step(struct sim *s, struct xi_control *c, uint32_t i, struct err *e) MUST_CHECK;
int xi_control_wake(struct sim *s, struct xi_control *c, struct err *e) MUST_CHECK;
void xi_control_gone(struct xi_control *c, uint32_t i);

#endif
