/* SPDX-License-Identifier: MIT */
/* The report of one simulation, or of several side by side: a table for the terminal, and a page
 * with curves, membership, who exchanged with whom, and all that is needed to repeat it. */
#ifndef DUNLIN_AGENT_REPORT_REPORT_H
#define DUNLIN_AGENT_REPORT_REPORT_H

#include "agent/report/markup.h"
#include "agent/report/summary.h"

#define REPORT_RESULTS_MAX 64

struct report {
	const struct sim_result *results; /* borrowed, as all pointers here */
	int n_results;                    /* 1 to REPORT_RESULTS_MAX */
	bool best_lr;                     /* see summarise */
	const char *command;              /* that made it; NULL: not told */
	const char *version;              /* of the program */
};

/* A row for each result. Appended to out. */
int report_table(const struct report *r, struct buf *out, struct err *e) MUST_CHECK;

/* The page, appended to out; report_save puts it into a file, as a whole or not at all. */
int report_page(const struct report *r, struct buf *out, struct err *e) MUST_CHECK;
int report_save(const struct report *r, const char *path, struct err *e) MUST_CHECK;

/* Of report_plots.c: the drawings of the page. */
int report__plots(struct markup *m, const struct summary *list, int n) MUST_CHECK;

#endif
