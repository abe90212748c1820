/* SPDX-License-Identifier: MIT */
/* What a person sees of a run while it goes: on a terminal one line that is written over, elsewhere
 * a plain line now and then. All of it on stderr; stdout is for results. */
#ifndef DUNLIN_AGENT_CLI_PROGRESS_H
#define DUNLIN_AGENT_CLI_PROGRESS_H

#include "agent/train/trainer.h"

#include <stdbool.h>

struct progress {
	bool quiet;    /* the log level is below info */
	bool terminal; /* rewrite one line */
	bool json;     /* lines go through the log, to stay JSON */
	bool drawn;    /* a line is on the terminal, without its end */
	double next_s; /* when the next one is due */
	/* Over the last steps, older ones fading: sums and their weights. */
	double loss, correct, count, samples, seconds; /* count: of labels */
};

void progress_init(struct progress *p, const struct config *c);

/* After each step. seconds: what the step took, without evaluations and checkpoints; now_s: any
 * clock that does not jump. */
void progress_step(struct progress *p, const struct trainer *t, const struct step_result *r,
        double seconds, double now_s);

/* A line of its own, above the one that is written over. */
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Takes the rewritten line off the terminal, before somebody else writes there. */
void progress_clear(struct progress *p);

#endif
