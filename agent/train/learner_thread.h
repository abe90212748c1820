/* SPDX-License-Identifier: MIT */
/* The learner of this program: the trainer on a thread of its own.
 *
 *     loop thread      requests, a bounded queue              callbacks, at each wake-up
 *                         │                                      ▲ uv_async
 *     learner thread      └──► between two steps ──► step ──► step ─┘ steps, a bounded ring
 *
 * Steps that the loop had no time to hear of are counted and left out, oldest first; answers never
 * are. The thread runs niced: a probe is more urgent than a gradient. */
#ifndef DUNLIN_AGENT_TRAIN_LEARNER_THREAD_H
#define DUNLIN_AGENT_TRAIN_LEARNER_THREAD_H

#include "agent/train/learner.h"
#include "agent/train/run_dir.h"

#include <uv.h>

#define LEARNER_STEPS 1024  /* not yet heard of by the loop */
#define LEARNER_REQUESTS 32 /* not yet done */

struct learner_config {
	uv_loop_t *loop;             /* borrowed */
	const struct config *config; /* borrowed */
	struct run_dir *dir;         /* borrowed: checkpoints, metrics; open at learner_begin */
	uint64_t identity;           /* of this agent; see trainer_flock */
	bool layer_norms;            /* compute them */
};

/* Starts the thread and waits until it has a trainer: before the loop runs, since reading data
 * takes its time and what is wrong with it must be told first. part as in trainer_new. */
int learner_open(struct learner **out, const struct learner_config *c, enum trainer_part *part,
        struct err *e) MUST_CHECK;

/* Of a learner that learner_open made. The caller's before learner_begin (to restore a checkpoint)
 * and after stopped_cb; in between only for reading what never changes. */
struct trainer *learner_trainer(struct learner *l);

#endif
