/* SPDX-License-Identifier: MIT */
/* The training loop of `dunlin train` and of the learner's thread: what one process trains of a
 * run. A step, and what is due behind it.
 *
 *     train_run_begin ─► train_run_step, again and again ─► train_run_end
 *                          step ─► metrics; when due an evaluation, then a checkpoint
 *
 * Used by one thread at a time, the trainer's. */
#ifndef DUNLIN_AGENT_TRAIN_TRAIN_RUN_H
#define DUNLIN_AGENT_TRAIN_TRAIN_RUN_H

#include "agent/train/learner.h"
#include "agent/train/metrics.h"
#include "agent/train/run_dir.h"

struct train_run_callbacks {
	void *arg;
	void (*stepped_cb)(void *arg, const struct step_result *r, double seconds);
	/* What was due behind a step is done, or e->code is not 0. What they return ends the step:
	 * 0 to go on, else the step's error, with e. */
	int (*evaluated_cb)(void *arg, const struct learner_eval *v, const struct err *e);
	int (*saved_cb)(void *arg, const struct err *e);
	void (*warns_cb)(void *arg); /* before a warning is logged; may be NULL */
};

struct train_run {
	struct trainer *trainer;   /* borrowed */
	const struct run_dir *dir; /* borrowed */
	struct train_run_callbacks cb;
	struct metrics metrics;
	bool metrics_told; /* the user knows that the metrics file is broken */
	bool unsaved;      /* the last checkpoint holds other parameters; for the caller, too */
	bool saved;        /* there is a checkpoint of saved_step */
	uint64_t saved_step;
	uint64_t first_step;  /* of this process */
	uint64_t evaluations; /* of the run, made or missed; in a flock */
	double begin_s, saved_s;
	double busy_s;         /* spent in steps since the last line of metrics */
	uint64_t busy_samples; /* trained in them */
};

/* Opens the metrics and tells them the start; resumed: dir has a checkpoint of the trainer's step.
 * When it fails, there are only no metrics. */
int train_run_begin(struct train_run *r, struct trainer *t, const struct run_dir *dir,
        const struct train_run_callbacks *cb, bool resumed, struct err *e) MUST_CHECK;

/* All samples of the run are trained, or run.stop_after steps of this process. */
bool train_run_over(const struct train_run *r);

/* As trainer_step, and all that is due behind it. */
int train_run_step(struct train_run *r, struct err *e) MUST_CHECK;

/* A checkpoint, and rotation; nothing unless `unsaved`. */
int train_run_save(struct train_run *r, struct err *e) MUST_CHECK;

/* What is held out, with which the best model is kept, and the test set, or with whole false the
 * part of it that agents of a flock look at. ERR_IO: all is measured, but the best model could not
 * be written. */
int train_run_evaluate(
        struct train_run *r, bool whole, struct learner_eval *v, struct err *e) MUST_CHECK;
int train_run_evaluate_set(
        struct train_run *r, enum eval_set set, struct eval_result *out, struct err *e) MUST_CHECK;

/* Tells the metrics the end, and closes them. failed: 0 or the code of what ended it; stopped: the
 * word for an end before the run is over. Nothing if it did not begin, or has ended. */
void train_run_end(struct train_run *r, int failed, const char *stopped);

double train_run_now_s(void); /* a clock that does not jump */

#endif
