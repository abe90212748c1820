/* SPDX-License-Identifier: MIT */
/* Whoever trains: a table of functions for what is asked of it, callbacks for what it tells. The
 * trainer on a thread of this process (learner_thread.h) is one; a process of the user's can be
 * another. The loop's thread asks, the learner does it between two steps and answers on the loop;
 * neither ever waits for the other.
 *
 *     loop         learner_snapshot, _apply, _pause, …          callbacks
 *                     │ requests, a bounded queue                  ▲
 *     learner         └──► between two steps ──► step ──► step ────┘
 *
 * All of it is for the loop's thread. No function returns what is decided later: a request is taken
 * or refused at once, and its outcome comes in a callback. */
#ifndef DUNLIN_AGENT_TRAIN_LEARNER_H
#define DUNLIN_AGENT_TRAIN_LEARNER_H

#include "agent/base/err.h"
#include "agent/train/trainer.h"
#include "gossip/exchange/exchange.h"
#include "gossip/policy/sketch.h"
#include "net/bulk/convert.h"
#include "net/bulk/lattice.h"

#include <stdbool.h>
#include <stdint.h>

/* Parameters that are clipped together: contiguous, in the order of the flat vector, ends
 * exclusive. Each weight tensor is a group where there is room for that many, biases and norms are
 * one. The same at every agent with the same model. What is behind the last end (statistics) is not
 * clipped. */
struct learner_groups {
	int n;
	size_t end[EXCHANGE_GROUPS_MAX];
};
void learner_groups_of(struct learner_groups *g, const struct arch *a);
/* The same of any model: the parameters of each weight tensor, and of all that is trained. */
void learner_groups_make(struct learner_groups *g, const size_t *weights, int n, size_t n_train);

struct learner_step {
	struct step_result r;
	uint64_t clock;     /* the run's, as the step knew it */
	double layer_norms; /* Σ ‖g_layer‖; 0 unless asked for in the config */
	double moved; /* path of the parameters since they were set: Σ ‖x_{t+1} − x_t‖, merges
	                 left out, estimated from every 16th step; see trainer_flock */
	double seconds; /* that the step took */
	bool no_loss;   /* r.loss is not known */
	/* With train.batch_adapt, else 0: samples of the step, and the norm test's averages,
	 * 0 while they are not known. */
	uint64_t batch;
	double noise, signal;
};

/* A whole state in memory: parameters, then the optimiser's vectors, n floats each. Who adopts one
 * keeps its own step, samples and clock. */
struct learner_state {
	uint64_t step, samples, clock, optim_steps;
	uint8_t optimizer, vectors; /* 2 or 3: n, momentum or moments */
	double moved;
	uint64_t batch; /* as of learner_step; 0: not said */
	double noise, signal;
};

/* How long a difference is: Σ d² for each of learner_groups, and what a sketch makes of the trained
 * parameters of it. */
struct learner_measure {
	double group2[EXCHANGE_GROUPS_MAX];
	bool finite; /* all of it, statistics included */
	struct sketch sketch;
};

/* What a state's parameters are worth, see trainer_try. */
struct learner_trial {
	struct trainer_trial t;
};

struct learner_eval {
	struct eval_result r; /* test; count 0: there is no test set */
	/* At most run.eval_samples of what data.validation holds out; count 0: nothing is held out.
	 * The best is the lowest validation loss so far of this agent's model, as its steps and
	 * merges made it, and stands in best.safetensors. */
	struct eval_result validation;
	uint64_t best_step;
	double best_loss;
	uint64_t step, clock;
	bool whole; /* the whole test set; else a part of it */
	bool asked; /* learner_evaluate with whole asked for it; else it is a look in passing */
	double seconds;
};

enum learner_refusal { LEARNER_NO_SNAPSHOT, LEARNER_NO_STATE };

struct learner_callbacks { /* on the loop; any may be NULL */
	void *arg;
	void (*steps_cb)(void *arg, const struct learner_step *s, int n);
	void (*snapshot_cb)(void *arg, uint64_t step);
	void (*measured_cb)(void *arg);
	void (*applied_cb)(void *arg, uint64_t step);
	void (*state_cb)(void *arg, const struct learner_state *s);
	/* Instead of snapshot_cb or state_cb: what was asked for cannot be had now, for instance
	 * since a parameter is not finite. A learner on a thread never says this. */
	void (*refused_cb)(void *arg, enum learner_refusal what, const struct err *e);
	/* Each err below: code 0, or what went wrong. A state that was not adopted changed nothing;
	 * a checkpoint that was not written (a full disk) does not end the training. saved_cb and
	 * eval_cb are also called for what the learner did by itself: checkpoints by
	 * run.checkpoint_s and _steps, evaluations by run.eval_epochs, on a part of the test set.
	 * Of such an outcome that the loop has not heard of when the next one is there,
	 * only the newer is told. */
	void (*tried_cb)(void *arg, const struct err *e);
	void (*adopted_cb)(void *arg, const struct err *e);
	void (*saved_cb)(void *arg, const char *path, uint64_t step, const struct err *e);
	void (*eval_cb)(void *arg, const struct learner_eval *v, const struct err *e);
	void (*exported_cb)(void *arg, const char *path, const struct err *e);
	/* It trains no more: the run's samples are all trained, or (with a clock below info.total)
	 * the run.stop_after steps of this process are. Once. Requests are still done. */
	void (*done_cb)(void *arg, uint64_t clock);
	void (*failed_cb)(void *arg, const struct err *e); /* the same: diverged, device */
	void (*stopped_cb)(void *arg); /* after learner_stop: the thread has ended */
};

/* A snapshot or a difference in a format of net/bulk/lattice.h. */
struct learner_lattice {
	struct lattice l;
	int8_t size[SCALES_MAX]; /* written by a snapshot: see lattice_pack */
	bool refused;            /* the same: a parameter is not finite, and all is worth nothing */
};

/* What never changes once a learner is open. */
struct learner_info {
	size_t n_total, n_train; /* parameters; the first n_train of them are trained */
	int vectors;             /* of a state: 2 or 3, see learner_state */
	struct learner_groups groups;
	uint64_t total;             /* samples of the whole run: epochs × the whole set */
	bool evaluates;             /* there is something to evaluate a model on */
	bool packs;                 /* learner_pack and learner_apply_packed may be asked for */
	bool measures;              /* learner_measure may be asked for; else the caller measures */
	const char *model, *device; /* for people; borrowed from the learner */
	uint64_t context;           /* tokens of a sample; 0: samples are no tokens */
	uint32_t files;             /* of data, that stay open */
};

struct learner;

/* The functions below have the same names and say what each does. False: it takes no more requests
 * now, or was told to stop. Buffers are borrowed from the caller until the callback. */
struct learner_ops {
	void *(*buffer)(struct learner *l, size_t bytes);
	void (*buffer_free)(struct learner *l, void *p);
	void (*begin)(struct learner *l);
	void (*train)(struct learner *l);
	void (*pause)(struct learner *l);
	void (*others)(struct learner *l, uint64_t samples);
	void (*agents)(struct learner *l, uint64_t n); /* optional */
	bool (*snapshot)(
	        struct learner *l, void *to, enum convert_format format, struct sketch *sketch);
	bool (*measure)(struct learner *l, const float *difference, struct learner_measure *to);
	bool (*apply)(struct learner *l, const float *difference, const float *k, int n_groups);
	/* Only with info.packs: */
	bool (*pack)(struct learner *l, void *to, enum convert_format format,
	        struct learner_lattice *lattice, struct sketch *sketch);
	bool (*apply_packed)(struct learner *l, const uint8_t *difference,
	        const struct learner_lattice *lattice, const float *k, int n_groups);
	bool (*take_state)(struct learner *l, float *to);
	bool (*try)(struct learner *l, const float *from, struct learner_trial *to);
	bool (*adopt)(struct learner *l, const float *from, const struct learner_state *s);
	bool (*restore)(struct learner *l);
	bool (*save)(struct learner *l, bool wished);
	bool (*evaluate)(struct learner *l, bool whole);
	bool (*export)(struct learner *l, const char *name);
	void (*stop)(struct learner *l);
	void (*free)(struct learner *l);
};

/* What every learner begins with. */
struct learner {
	const struct learner_ops *ops;
	struct learner_info info;
	struct learner_callbacks callbacks; /* set before learner_begin */
	uint64_t steps_dropped;             /* that steps_cb was not told of, being late */
};

/* Memory for learner_snapshot, _measure and _apply, which the trainer can reach by itself where it
 * is a GPU or another process; not zeroed. Before learner_begin, and given back after stopped_cb.
 * NULL: none left. */
static inline void *learner_buffer(struct learner *l, size_t bytes)
{
	return l->ops->buffer(l, bytes);
}

static inline void learner_buffer_free(struct learner *l, void *p) /* p may be NULL */
{
	l->ops->buffer_free(l, p);
}

/* The callbacks may come from now on. It does not train before learner_train. */
static inline void learner_begin(struct learner *l)
{
	l->ops->begin(l);
}

static inline void learner_train(struct learner *l) /* or go on */
{
	l->ops->train(l);
}

/* After the step under way; requests are still done. */
static inline void learner_pause(struct learner *l)
{
	l->ops->pause(l);
}

/* What all other agents have trained so far. */
static inline void learner_others(struct learner *l, uint64_t samples)
{
	l->ops->others(l, samples);
}

/* How many train now, this one included. */
static inline void learner_agents(struct learner *l, uint64_t n)
{
	if (l->ops->agents)
		l->ops->agents(l, n);
}

/* Each of the following ends in its callback, in the order in which they were asked for, between
 * two steps (at once when it does not train). A GPU's snapshot holds what a step left and comes
 * some steps later, so that its answer may come behind others; so may what it measures. A learner
 * whose device has failed gives nothing any more: failed_cb, and no answer. */

/* All parameters, as words of that format in to (of learner_buffer); sketch, which may be NULL,
 * gets that of the trained ones, as they are in to. */
static inline bool learner_snapshot(
        struct learner *l, void *to, enum convert_format format, struct sketch *sketch)
{
	return l->ops->snapshot(l, to, format, sketch);
}

/* Of n_total floats of learner_buffer, by the device, which keeps them for learner_apply: until
 * then they must not change, unless they are measured again. Only with info.measures. */
static inline bool learner_measure(
        struct learner *l, const float *difference, struct learner_measure *to)
{
	return l->ops->measure(l, difference, to);
}

/* One k for each group, copied; statistics move by the smallest. Of learner_buffer, too. On a
 * device that copies by itself a merge is added with the next step, and answered after it; whatever
 * is asked for later, and the end of training, finds it added. */
static inline bool learner_apply(
        struct learner *l, const float *difference, const float *k, int n_groups)
{
	return l->ops->apply(l, difference, k, n_groups);
}

/* As learner_snapshot and learner_apply, and ending in the same callbacks, for a format of
 * net/bulk/lattice.h; the lattice is borrowed as well. The sketch is that of the parameters
 * themselves. Only with info.packs. */
static inline bool learner_pack(struct learner *l, void *to, enum convert_format format,
        struct learner_lattice *lattice, struct sketch *sketch)
{
	return l->ops->pack(l, to, format, lattice, sketch);
}

static inline bool learner_apply_packed(struct learner *l, const uint8_t *difference,
        const struct learner_lattice *lattice, const float *k, int n_groups)
{
	return l->ops->apply_packed(l, difference, lattice, k, n_groups);
}

static inline bool learner_take_state(struct learner *l, float *to) /* vectors × n_total floats */
{
	return l->ops->take_state(l, to);
}

static inline bool learner_adopt(
        struct learner *l, const float *from, const struct learner_state *s)
{
	return l->ops->adopt(l, from, s);
}

/* The losses of a state's parameters, of our own and of the initial ones; nothing changes. */
static inline bool learner_try(struct learner *l, const float *from, struct learner_trial *to)
{
	return l->ops->try(l, from, to);
}

/* The state from before the last learner_adopt, which is kept for 200 steps if there was memory
 * for it; without an answer. A learner that has failed since then because of numbers that are none
 * trains again. */
static inline bool learner_restore(struct learner *l)
{
	return l->ops->restore(l);
}

/* A checkpoint, and rotation. wished: by a user, who may ask for any number: there is always a
 * place for one that the agent itself wants. */
static inline bool learner_save(struct learner *l, bool wished)
{
	return l->ops->save(l, wished);
}

/* Before this (with whole) and before an export the running statistics are measured anew, if there
 * are some and others have changed them since the last step: see trainer_recalibrate. */
static inline bool learner_evaluate(struct learner *l, bool whole)
{
	return l->ops->evaluate(l, whole);
}

/* The weights, to a file of that name among its results; copied. */
static inline bool learner_export(struct learner *l, const char *name)
{
	return l->ops->export(l, name);
}

/* Ends after what was asked for before; what is asked for later is refused. Steps stop at once. */
static inline void learner_stop(struct learner *l)
{
	l->ops->stop(l);
}

static inline void learner_free(struct learner *l) /* after stopped_cb, or before learner_begin */
{
	if (l)
		l->ops->free(l);
}

#endif
