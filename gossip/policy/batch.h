/* SPDX-License-Identifier: MIT */
/* How large the batch should be, after Lau, Li, Xu, Liu, Kolar 2024 (the norm test for local
 * gradient methods): it is too small while the noise of the gradient is longer than η times the
 * gradient. With S the trace of the covariance of one sample's gradient and G the square of the
 * length of the true one, n agents with batches of b together have the noise S/(n·b), so
 *
 *     b ≥ S / (η²·G·n)
 *
 * Neither is known, but two batches of different size at the same parameters tell both: the square
 * of the length of a batch's gradient is G + S/b on average. A step in micro-batches has two, the
 * first of its micro-batches and all of them together.
 *
 *     every 8th step ─► s, g ─► averages S, G ─► every 64th step, after 32 tests: a new b
 *
 * Pure. All sizes are in samples and multiples of the micro-batch. */
#ifndef DUNLIN_GOSSIP_POLICY_BATCH_H
#define DUNLIN_GOSSIP_POLICY_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct batch_config {
	double eta;     /* η */
	uint64_t micro; /* b is a multiple of it */
	uint64_t first; /* b of a new run, and never less */
	uint64_t most;  /* first or more */
};

/* Must survive a restart. Of a state that a donor gave, its averages count less with each own test
 * and nothing after 32 of them; until then b may fall. So a donor's lie does not last. */
struct batch_state {
	uint64_t size;                    /* b */
	double noise, signal;             /* S and G, of the own tests */
	uint64_t tests;                   /* own */
	double given_noise, given_signal; /* a donor's; 0: none */
	uint64_t may_fall;                /* 0 or 1 */
};

void batch_start(struct batch_state *b, const struct batch_config *c);
/* From a file, which may hold anything. */
void batch_restored(struct batch_state *b, const struct batch_config *c);
/* From a donor, who may say anything: size 0 says nothing, and nothing changes. */
void batch_given(struct batch_state *b, const struct batch_config *c, uint64_t size, double noise,
        double signal);

/* Is this one of the steps (counted from 1) that are tested? */
bool batch_tested(uint64_t step);
/* The squares of the lengths of the mean gradients of `part` samples and of all of them, `whole`,
 * part < whole. What is not finite is left out. */
void batch_test(struct batch_state *b, uint64_t part, double part2, uint64_t whole, double whole2);
/* Behind a step. True: the size is another one. */
bool batch_decide(
        struct batch_state *b, const struct batch_config *c, uint64_t step, uint64_t agents);

/* Samples of the next step, when `left` of the run's `total` are left to all agents: in the last
 * hundredth of the run b is halved until the steps of all do not go beyond its end. */
uint64_t batch_now(const struct batch_state *b, const struct batch_config *c, uint64_t agents,
        uint64_t left, uint64_t total);

/* S and G as they are known: averages whose weights add up to 1. False: not yet known. */
bool batch_known(const struct batch_state *b, double *noise, double *signal);

#endif
