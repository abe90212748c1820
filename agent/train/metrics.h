/* SPDX-License-Identifier: MIT */
/* The metrics file: one JSON object a line, written whole as soon as it is known.
 *
 *     {"event":"start","time":…,"step":0,…}   a process begins; resumed, its step is the one it
 *                                             goes on from, and replaces lines of later steps that
 *                                             a process before it may have left
 *     {"event":"step",…}                      that one step's loss, not an average; with
 *                                             train.batch_adapt its samples, and S/G of the norm
 *                                             test
 *     {"event":"eval","set":"test",…}
 *                                             or "test-part": some of it, the same each time;
 *                                             or "validation": what is held out, of which a
 *                                             flock's agents take some, too
 *     {"event":"checkpoint",…}
 *     {"event":"end","reason":"done",…}       absent when the process was killed
 *
 * Every line has step and samples, this agent's own, and clock, the samples of its whole flock as
 * far as it knows; epoch goes by the clock. Everything in it was measured. */
#ifndef DUNLIN_AGENT_TRAIN_METRICS_H
#define DUNLIN_AGENT_TRAIN_METRICS_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/train/trainer.h"

#include <stdbool.h>

struct metrics {
	int fd;            /* owned */
	struct buf line;   /* reused */
	struct err broken; /* code != 0: a write failed, nothing more is written */
};

/* Appends to path; a last line that a killed process left half written is cut off. */
int metrics_open(struct metrics *m, const char *path, struct err *e) MUST_CHECK;
void metrics_close(struct metrics *m);

/* These never stop a run: the first failure is kept in m->broken for the caller to tell. */
void metrics_start(struct metrics *m, const struct trainer *t, bool resumed);
void metrics_step(struct metrics *m, const struct trainer *t, const struct step_result *r,
        double samples_per_s);
void metrics_eval(struct metrics *m, const struct trainer *t, enum eval_set set,
        const struct eval_result *r, double seconds);
void metrics_checkpoint(
        struct metrics *m, const struct trainer *t, const char *path, double seconds);
void metrics_end(struct metrics *m, const struct trainer *t, const char *reason, double seconds);

#endif
