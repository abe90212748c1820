/* SPDX-License-Identifier: MIT */
/* When NoLoCo's outer steps are taken, and with how much momentum (model/graph/outer.h).
 *
 * On random pairs the outer momentum is one agent's memory of moves that its partners did not make.
 * Up to α = 0.7 the distance between agents still shrinks; 0.9, which is usual where all agents
 * average at once, diverges from 16 agents on. */
#ifndef DUNLIN_GOSSIP_POLICY_OUTER_H
#define DUNLIN_GOSSIP_POLICY_OUTER_H

#include <stdbool.h>
#include <stdint.h>

#define OUTER_MOMENTUM_MAX 0.7
#define OUTER_STEPS_LEAST 8 /* own steps between two outer ones */
#define OUTER_END 20        /* the last part of the run, in which there is no momentum */

struct outer_plan {
	bool step; /* else the exchange is added, and φ moves with it */
	double momentum;
};

/* steps: own ones since the last outer step; clock, total: samples of the run. Once all of them are
 * trained come the merge rounds, whose exchanges average and nothing else. */
static inline struct outer_plan outer_plan(
        double momentum, uint64_t steps, uint64_t clock, uint64_t total)
{
	uint64_t left = total > clock ? total - clock : 0;
	return (struct outer_plan){.step = left > 0 && steps >= OUTER_STEPS_LEAST,
	        .momentum = left <= total / OUTER_END ? 0 : momentum};
}

#endif
