/* SPDX-License-Identifier: MIT */
/* One axis of a plot: the range that its values need, round ticks, and their texts.
 *
 *     axis_init ── axis_add for each value ── axis_finish ── axis_at, axis_tick_text */
#ifndef DUNLIN_AGENT_REPORT_AXIS_H
#define DUNLIN_AGENT_REPORT_AXIS_H

#include <stdbool.h>

enum axis_unit {
	AXIS_NUMBER,
	AXIS_COUNT,   /* 20k, 3M */
	AXIS_PERCENT, /* of 1: 0.5 is shown as 50 */
	AXIS_BYTES,
	AXIS_SECONDS,
	AXIS_UNITS
};

#define AXIS_TICKS_MAX 16
#define AXIS_TEXT 24

struct axis {
	enum axis_unit unit;
	bool log;
	bool zero;  /* the range begins at 0; of no effect with log */
	bool tight; /* the range ends with the values, not with a tick */
	bool any;   /* some value was taken */
	double low, high;
	double step;     /* between ticks; 0: a logarithmic axis with ticks 1, 2, 5 */
	double scale;    /* what is shown is value × scale */
	const char *per; /* the unit of what is shown, static: "MB"; "" if there is none */
	double tick[AXIS_TICKS_MAX];
	int n_ticks;
};

void axis_init(struct axis *a, enum axis_unit unit, bool log);

/* Whether an axis can show the value: finite, and above 0 on a logarithmic one. */
bool axis_shows(const struct axis *a, double v);

/* Widens the range; what cannot be shown is ignored. */
void axis_add(struct axis *a, double v);

/* Chooses unit, ends and about so many ticks. Without any value the range is 0 to 1. */
void axis_finish(struct axis *a, int ticks);

/* Where the value is, 0 at the low end and 1 at the high one; within −1 to 2. */
double axis_at(const struct axis *a, double v);

/* The text of tick i; returns out. */
const char *axis_tick_text(const struct axis *a, int i, char out[AXIS_TEXT]);

/* A value with its unit for tables and titles: "1.50 GB", "84.2 %", "12 min"; "–" if not finite. */
const char *axis_text(enum axis_unit unit, double v, char out[AXIS_TEXT]);

#endif
