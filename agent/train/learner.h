/* SPDX-License-Identifier: MIT */
/* The trainer on a thread of its own. The loop's thread asks, the learner does it between two steps
 * and answers on the loop; neither ever waits for the other.
 *
 *     loop thread      learner_snapshot, _apply, _pause, …       callbacks, at each wake-up
 *                         │ requests, a bounded queue               ▲ uv_async
 *     learner thread      └──► between two steps ──► step ──► step ─┘ steps, a bounded ring
 *
 * Steps that the loop had no time to hear of are counted and left out, oldest first; answers never
 * are. The thread runs niced: a probe is more urgent than a gradient. */
#ifndef DUNLIN_AGENT_TRAIN_LEARNER_H
#define DUNLIN_AGENT_TRAIN_LEARNER_H

#include "agent/base/err.h"
#include "agent/train/run_dir.h"
#include "agent/train/trainer.h"
#include "gossip/exchange/exchange.h"
#include "gossip/policy/sketch.h"
#include "net/bulk/convert.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define LEARNER_STEPS 1024  /* not yet heard of by the loop */
#define LEARNER_REQUESTS 32 /* not yet done */

/* Parameters that are clipped together: contiguous, in the order of the flat vector, ends
 * exclusive. Each weight tensor is a group where there is room for that many, biases and norms are
 * one. The same at every agent with the same model. What is behind the last end (statistics) is not
 * clipped. */
struct learner_groups {
	int n;
	size_t end[EXCHANGE_GROUPS_MAX];
};

struct learner_step {
	struct step_result r;
	uint64_t clock;     /* the run's, as the step knew it */
	double layer_norms; /* Σ ‖g_layer‖; 0 unless asked for in the config */
	double moved; /* path of the parameters since they were set: Σ ‖x_{t+1} − x_t‖, merges
	                 left out, estimated from every 16th step; see trainer_flock */
	double seconds; /* that the step took */
};

/* A whole state in memory: parameters, then the optimiser's vectors, n floats each. Who adopts one
 * keeps its own step, samples and clock. */
struct learner_state {
	uint64_t step, samples, clock, optim_steps;
	uint8_t optimizer, vectors; /* 2 or 3: n, momentum or moments */
	double moved;
};

/* How long a difference is: Σ d² for each of learner_groups, and what a sketch makes of the trained
 * parameters of it. */
struct learner_measure {
	double group2[EXCHANGE_GROUPS_MAX];
	bool finite; /* all of it, statistics included */
	struct sketch sketch;
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

struct learner_callbacks { /* on the loop; any may be NULL */
	void *arg;
	void (*steps_cb)(void *arg, const struct learner_step *s, int n);
	void (*snapshot_cb)(void *arg, uint64_t step);
	void (*measured_cb)(void *arg);
	void (*applied_cb)(void *arg, uint64_t step);
	void (*state_cb)(void *arg, const struct learner_state *s);
	/* Each err below: code 0, or what went wrong. A state that was not adopted changed nothing;
	 * a checkpoint that was not written (a full disk) does not end the training. saved_cb and
	 * eval_cb are also called for what the learner did by itself: checkpoints by
	 * run.checkpoint_s and _steps, evaluations by run.eval_epochs, on a part of the test set.
	 * Of such an outcome that the loop has not heard of when the next one is there,
	 * only the newer is told. */
	void (*adopted_cb)(void *arg, const struct err *e);
	void (*saved_cb)(void *arg, const char *path, uint64_t step, const struct err *e);
	void (*eval_cb)(void *arg, const struct learner_eval *v, const struct err *e);
	void (*exported_cb)(void *arg, const char *path, const struct err *e);
	/* It trains no more: the run's samples are all trained, or (with a clock below
	 * learner_total) the run.stop_after steps of this process are. Once. Requests are still
	 * done. */
	void (*done_cb)(void *arg, uint64_t clock);
	void (*failed_cb)(void *arg, const struct err *e); /* the same: diverged, device */
	void (*stopped_cb)(void *arg); /* after learner_stop: the thread has ended */
};

struct learner_config {
	uv_loop_t *loop;             /* borrowed */
	const struct config *config; /* borrowed */
	struct run_dir *dir;         /* borrowed: checkpoints, metrics; open at learner_begin */
	uint64_t identity;           /* of this agent; see trainer_flock */
	bool layer_norms;            /* compute them */
	struct learner_callbacks callbacks;
};

struct learner;

/* Starts the thread and waits until it has a trainer: before the loop runs, since reading data
 * takes its time and what is wrong with it must be told first. part as in trainer_new. */
int learner_open(struct learner **out, const struct learner_config *c, enum trainer_part *part,
        struct err *e) MUST_CHECK;

/* Instead of those in the config, before learner_begin. */
void learner_set_callbacks(struct learner *l, const struct learner_callbacks *c);

/* The caller's before learner_begin (to restore a checkpoint) and after stopped_cb; in between only
 * for reading what never changes: arch, texts, counts of samples. */
struct trainer *learner_trainer(struct learner *l);
const struct learner_groups *learner_groups(const struct learner *l);
uint64_t learner_total(
        const struct learner *l); /* samples of the whole run: epochs × the whole set */

/* Memory for learner_snapshot and learner_apply, that the device can reach by itself where it is of
 * that kind; not zeroed. Before learner_begin, and given back after stopped_cb. NULL: none left. */
void *learner_buffer(struct learner *l, size_t bytes);
void learner_buffer_free(struct learner *l, void *p); /* p may be NULL */

/* The callbacks may come from now on. It does not train before learner_train. */
void learner_begin(struct learner *l);

void learner_train(struct learner *l); /* or go on */
void learner_pause(struct learner *l); /* after the step under way; requests are still done */
void learner_others(struct learner *l, uint64_t samples); /* trained by all other agents, so far */

/* Each ends in its callback, in the order in which they were asked for, between two steps (at once
 * when it does not train). A GPU's snapshot holds what a step left and comes some steps later, so
 * that its answer may come behind others; so may what it measures. Of a device that has failed
 * nothing is given any more: failed_cb, and no answer. Buffers are borrowed until then. False: the
 * queue is full. */
/* All parameters, as words of that format in to (of learner_buffer); sketch, which may be NULL,
 * gets that of the trained ones, as they are in to. */
bool learner_snapshot(
        struct learner *l, void *to, enum convert_format format, struct sketch *sketch);
/* Of n_total floats of learner_buffer, by the device, which keeps them for learner_apply: until
 * then they must not change, unless they are measured again. Only where learner_measures. */
bool learner_measures(const struct learner *l);
bool learner_measure(struct learner *l, const float *difference, struct learner_measure *to);
/* One k for each of learner_groups, copied; statistics move by the smallest. Of learner_buffer,
 * too. On a device that copies by itself a merge is added with the next step, and answered after
 * it; whatever is asked for later, and the end of training, finds it added. */
bool learner_apply(struct learner *l, const float *difference, const float *k, int n_groups);
bool learner_get_state(struct learner *l, float *to); /* trainer_vectors × n_total floats */
bool learner_adopt(struct learner *l, const float *from, const struct learner_state *s);
bool learner_save(struct learner *l); /* a checkpoint, and rotation */
bool learner_evaluate(struct learner *l, bool whole);
bool learner_export(struct learner *l, const char *name); /* of a file in dir; copied */

/* Ends the thread after what was asked for before; what is asked for later is refused. Steps stop
 * at once. */
void learner_stop(struct learner *l);
void learner_free(struct learner *l); /* after stopped_cb, or before learner_begin */

/* That the loop did not hear of; as of the last wake-up. */
uint64_t learner_steps_dropped(const struct learner *l);

#endif
