/* SPDX-License-Identifier: MIT */
/* The consensus guard (after Kong, Lin, Koloskova, Jaggi, Stich 2021): exchanges are begun as often
 * as keeps the consensus distance Ξ, Ξ² = mean of ‖x_i − mean‖², near a target that the training
 * itself sets.
 *
 *     exchange with a uniform partner ──► ½·d²·(n−1)/n, whose mean is Ξ² ──► estimate ─┐
 *     own steps ──► length u ──► unit U ──► target ρ²U²·min(peak rate / rate, c) + u² ──┴► interval
 *     distance since any exchange ≥ interval: an exchange is due
 *
 * Kong's critical distance is proportional to the learning rate times the gradient's noise, which
 * is what an own step is long. The partners of an exchange average their estimates (END carries
 * them), so that an estimate rests on the distances of the whole flock.
 *
 * What a partner says counts between a quarter and four times of our own estimate, and the result
 * stays within a factor of 4 of what we have measured ourselves. The caller bounds the distances.
 *
 * Pure: chance comes from a seed. Distances between exchanges are counted in samples. */
#ifndef DUNLIN_GOSSIP_POLICY_GUARD_H
#define DUNLIN_GOSSIP_POLICY_GUARD_H

#include "agent/base/rng.h"

#include <stdbool.h>

/* What partners tell each other: an estimate of Ξ², and at which learning rate. */
struct guard_word {
	float x2; /* 0: nothing is said */
	float lr; /* the speaker's */
};

enum guard_choice { GUARD_AUTO, GUARD_ON, GUARD_OFF }; /* AUTO: with significance and budget */

struct guard_config {
	double momentum; /* of SGD, or β₁ */
	double lr_peak;  /* the highest learning rate of the run */
	uint64_t
	        step_samples; /* of the first step; 1 … 4096 times that are between two exchanges */
	uint64_t seed;
};

struct guard_step { /* an own step */
	uint64_t step, samples;
	double lr;
	double moved; /* own path so far, merges left out; a shorter one begins anew */
	double done;  /* of the run: 0 … 1 */
};

struct guard_meeting {    /* an exchange that came about, whoever began it */
	double distance2; /* of the two; < 0: not measured */
	bool uniform;    /* the partner was drawn at random; else its distance is no sample of Ξ */
	uint32_t agents; /* of the flock, ourselves included */
	double floor2;   /* of Ξ², under which rounding on the wire does not let it fall */
	struct guard_word theirs;
};

struct guard {
	struct guard_config config;
	struct rng rng;

	uint64_t samples, trained, gained; /* passed; the learner's number; of the last step */
	bool begun;
	uint64_t step;
	double moved;
	double length; /* u: averaged over 32 steps */
	uint32_t lengths;
	double lr, done;

	double x2, own; /* estimates of Ξ²: with the partners', and by ourselves; 0: none */
	double floor2;

	double log_interval; /* of samples */
	double part;         /* of the interval, at random for each */
	uint64_t met_samples;
};

void guard_init(struct guard *g, const struct guard_config *c);
void guard_step(struct guard *g, const struct guard_step *s);
bool guard_due(const struct guard *g);
/* For the partner of an exchange. */
struct guard_word guard_says(const struct guard *g);
void guard_met(struct guard *g, const struct guard_meeting *m);
/* Other parameters were loaded: what was measured of steps and distances is of those before. */
void guard_renew(struct guard *g);

struct guard_view {
	bool known;              /* consensus */
	double consensus;        /* Ξ, estimated */
	double target;           /* 0: no step was measured yet */
	double interval_samples; /* between two exchanges, whoever begins them */
};
struct guard_view guard_view(const struct guard *g);

#endif
