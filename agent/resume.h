/* SPDX-License-Identifier: MIT */
/* Going on where an earlier run has stopped. */
#ifndef DUNLIN_AGENT_RESUME_H
#define DUNLIN_AGENT_RESUME_H

#include "agent/outdir.h"
#include "agent/trainer.h"

/* Restores the newest whole checkpoint of the folder; path gets its name. What is damaged is put
 * aside, and what differs is only told: both in the log. ERR_NOTFOUND: there is none, and the
 * trainer is as it was. */
int resume_newest(
        struct trainer *t, struct outdir *dir, char path[OUTDIR_PATH], struct err *e) MUST_CHECK;

#endif
