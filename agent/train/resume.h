/* SPDX-License-Identifier: MIT */
/* Going on where an earlier run has stopped. */
#ifndef DUNLIN_AGENT_TRAIN_RESUME_H
#define DUNLIN_AGENT_TRAIN_RESUME_H

#include "agent/train/run_dir.h"
#include "agent/train/trainer.h"

/* Restores the newest whole checkpoint of the folder; path gets its name. What is damaged is put
 * aside, and what differs is only told: both in the log. Without one, resumed is false and the
 * trainer as it was. */
int resume_newest(struct trainer *t, const struct run_dir *dir, char path[RUN_DIR_PATH],
        bool *resumed, struct err *e) MUST_CHECK;

#endif
