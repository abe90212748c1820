/* SPDX-License-Identifier: MIT */
/* The models of all agents, and the threads that train them.
 *
 *     engine's thread                 workers: a device of 1 thread and a graph each
 *     fleet_begin(i) ───task i──►     batch of i ─► gradient at x_i ─► g_i, or update of x_i
 *     … other agents' events …
 *     fleet_wait(i)  ◄────────────    done
 *
 * A task reads and writes what is agent i's and nothing else, and its batch is a function of (seed,
 * i, the agent's own count of batches). So the bits do not depend on how many workers there are or
 * on which of them takes a task. All functions are for the engine's thread.
 *
 * Vectors are host memory: n_total floats (arch.h), of which the first n_train are trained. With
 * scenario.record.train off there are no vectors: x and g are NULL, tasks do nothing, and losses
 * are NaN. */
#ifndef DUNLIN_AGENT_SIMULATE_FLEET_H
#define DUNLIN_AGENT_SIMULATE_FLEET_H

#include "agent/simulate/scenario.h"

enum fleet_task {
	FLEET_GRAD, /* g_i ← gradient at x_i, mean over the batch; meanwhile x_i may be read */
	FLEET_STEP, /* the same and the own optimizer step on x_i; meanwhile it may not */
};

struct fleet_result {
	double loss;            /* mean over the batch */
	double grad_norm;       /* before clipping */
	int64_t correct, count; /* labels: of tokens T for each sample; see fleet_step_samples */
	/* Of a step that is tested (fleet_plan), else 0: the square of the length of the mean
	 * gradient of its first samples, and how many those were. */
	double part2;
	uint64_t part;
};

struct fleet_eval {
	double loss, accuracy; /* NaN without training */
	int64_t correct, count;
};

struct fleet;

/* Reads data, works out model and splits, takes all memory, gives every agent the same initial
 * parameters (config.train.seed mixed with seed). s is borrowed and must outlive the fleet. threads
 * 0: as many as there are cores. *exit receives what the failure means: an EXIT_ of exit_code.h. */
int fleet_new(struct fleet **out, const struct scenario *s, uint64_t seed, int threads, int *exit,
        struct err *e) MUST_CHECK;
void fleet_free(struct fleet *f); /* stops the workers; tasks under way are waited for */

const struct arch *fleet_arch(const struct fleet *f);
uint32_t fleet_samples(const struct fleet *f);                   /* of the whole training set */
uint32_t fleet_agent_samples(const struct fleet *f, uint32_t i); /* of the agent's part, |D_i| */
int fleet_threads(const struct fleet *f);
/* Bytes of the samples that an agent gets from others for a batch (agents.inject_alpha), and of
 * those that one of the givers sends, on average over steps. */
void fleet_injected(const struct fleet *f, double *in, double *out);

/* Bytes that fleet_new would take, without taking them. */
struct fleet_need {
	size_t params, samples;
	uint64_t bytes;
};
int fleet_need(const struct scenario *s, int threads, struct fleet_need *out, int *exit,
        struct err *e) MUST_CHECK;

/* What the next tasks of agent i take, until it is told again: so many samples, a multiple of
 * train.batch, in micro-batches of train.batch; whether they are to be tested for the norm test
 * (gossip/policy/batch.h); and by what the learning rate is multiplied. train.batch, not tested and
 * 1 from the beginning on. */
void fleet_plan(struct fleet *f, uint32_t i, uint64_t samples, bool tested, double lr_times);
uint64_t fleet_step_samples(const struct fleet *f, uint32_t i);

/* Agent i's next batch. One task of an agent at a time. lr: the rate of a FLEET_STEP. */
void fleet_begin(struct fleet *f, uint32_t i, enum fleet_task task, double lr);
/* ERR_NONFINITE: loss or gradient is not finite, and x_i is as it was. */
int fleet_wait(struct fleet *f, uint32_t i, struct fleet_result *r, struct err *e) MUST_CHECK;

/* Until every task that was begun has ended; fleet_wait is still to come for each. */
void fleet_settle(struct fleet *f);

/* Agent i's optimizer applies gradient g (n_total floats; its own g_i, or a mean of several). Clips
 * as config.train says, keeps momentum in the agent's m. What is behind n_train in g is added to
 * the running statistics. No task of i may be under way. */
int fleet_apply(struct fleet *f, uint32_t i, const float *g, double lr, struct err *e) MUST_CHECK;

/* Agent i's vectors, to read and to write between tasks (see enum fleet_task). */
float *fleet_x(struct fleet *f, uint32_t i);
float *fleet_g(struct fleet *f, uint32_t i);
float *fleet_m(struct fleet *f, uint32_t i); /* momentum, or the first moment */
float *fleet_v(struct fleet *f, uint32_t i); /* the second; NULL with sgd */
uint64_t *fleet_optim_steps(struct fleet *f, uint32_t i);

/* Takes parameters and the optimizer's vectors of agent `from`, or (from < 0) the initial ones. */
void fleet_copy(struct fleet *f, uint32_t to, int64_t from);

/* out ← Σ w[i]·x_i over the agents with use[i] (NULL: all), added up in double in their order;
 * w NULL: the mean. Runs on all workers; all tasks must have been waited for, but FLEET_GRAD. */
void fleet_mean(struct fleet *f, const bool *use, const double *w, float *out);
/* The same of the gradients g_i. */
void fleet_mean_gradient(struct fleet *f, const bool *use, const double *w, float *out);
/* Σ_i ‖x_i − mean‖² / n over the same agents: Ξ², of what is trained. */
double fleet_spread(struct fleet *f, const bool *use, const float *mean);

/* Loss and accuracy of those parameters on at most `most` samples of the test set (0: all), evenly
 * spread and always the same. Runs on all workers. */
int fleet_evaluate(struct fleet *f, const float *x, uint32_t most, struct fleet_eval *r,
        struct err *e) MUST_CHECK;

/* Runs fn(arg, k) for k in [0, n) on the workers and returns when all are done; fn may touch only
 * what is k's own. For methods that move many vectors. */
void fleet_each(struct fleet *f, uint32_t n, void (*fn)(void *arg, uint32_t k), void *arg);

#endif
