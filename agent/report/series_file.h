/* SPDX-License-Identifier: MIT */
/* Values over time, step or samples out of files that agents leave: metrics (JSON lines, see
 * agent/train/metrics.h) and the log of `dunlin top` (columns with tabs). */
#ifndef DUNLIN_AGENT_REPORT_SERIES_FILE_H
#define DUNLIN_AGENT_REPORT_SERIES_FILE_H

#include "agent/base/buf.h"
#include "agent/report/plot.h"

#define SERIES_FILE_MAX (256u << 20) /* bytes of a file */
#define SERIES_NAME 96
#define SERIES_TERMS 4

struct series {
	char name[SERIES_NAME]; /* of the agent, or of the file */
	double *x, *y;          /* owned */
	size_t n, room;
};
struct series_set {
	struct series *list; /* owned */
	size_t n;            /* at most PLOT_SERIES_MAX */
	double begin;        /* with x time: the earliest time met, which is 0 in x; else NaN */
	double end;
};

void series_init(struct series_set *s);
void series_close(struct series_set *s);

/* Adds the file's series; text is all of it and is changed. x: a name such as "time" or "step"; y:
 * one, or a sum of up to SERIES_TERMS with + between them. A log has a series for each agent, of
 * the lines in which it is up; metrics have one, of the evaluations for "accuracy" and of the steps
 * otherwise. Lines without a number for both are skipped; a name that no line has is an error. */
int series_add(struct series_set *s, const char *path, struct buf *text, const char *x,
        const char *y, struct err *e) MUST_CHECK;

/* Makes times count from the first one of all files. */
void series_finish(struct series_set *s, const char *x);

/* How a value of that name is shown. */
enum axis_unit series_unit(const char *name);

#endif
