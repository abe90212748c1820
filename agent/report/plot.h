/* SPDX-License-Identifier: MIT */
/* Drawings as SVG: lines over time or bytes, with bands for standard errors; membership; who
 * exchanged with whom.
 *
 *     title
 *     y (unit)                        The colours are those of Okabe and Ito, which colour-blind
 *     2 ┤      ╭────                  readers can tell apart, one set for light and one for dark.
 *     1 ┤  ╭───╯                      After eight, lines are dashed. A drawing stands alone in a
 *     0 ┼──┴────┬───                  file, or in a page that has plot_style in its head.
 *       0       1
 *            x (unit)                 Nothing here trusts its input: texts are escaped and cut,
 *     ── one  ── two                  values that are no numbers leave a gap, and a line has at
 *                                     most a few points for each column of pixels. */
#ifndef DUNLIN_AGENT_REPORT_PLOT_H
#define DUNLIN_AGENT_REPORT_PLOT_H

#include "agent/report/axis.h"
#include "agent/report/markup.h"

#include <stdbool.h>
#include <stddef.h>

#define PLOT_SERIES_MAX 64 /* more are not drawn, and the legend says how many */
#define PLOT_MARKS_MAX 64  /* the same, silently */
#define PLOT_ROWS_MAX 128  /* of membership and of the matrix; rows beyond are put together */
#define PLOT_COLOURS 8
#define PLOT_WIDTH 480

/* Pointers are borrowed for the time of the call, here and below. */
struct plot_series {
	const char *name;
	const double *x, *y;
	const double *low, *high; /* a band around y; NULL: none */
	size_t n;
	unsigned colour; /* from 0 */
	bool dashed;     /* a target or a reference */
	bool step;       /* keeps its value until the next one */
};

struct plot_mark {
	double x;
	const char *text;
};

struct plot {
	const char *title;
	const char *x_text, *y_text; /* without units */
	enum axis_unit x_unit, y_unit;
	bool x_log, y_log;
	bool y_zero; /* the axis begins at 0 */
	const struct plot_series *series;
	size_t n_series;
	const struct plot_mark *marks; /* vertical lines */
	size_t n_marks;
	bool alone;        /* a file of its own, not a part of a page */
	int width, height; /* of the drawing without legend; 0: as usual */
};
int plot_lines(struct buf *b, const struct plot *p) MUST_CHECK;

/* When each member was there: a row for each, a bar from one time to another. */
struct plot_span {
	unsigned row;
	double from, to;
	unsigned colour; /* of what it did then */
};
struct plot_spans {
	const char *title, *x_text;
	enum axis_unit x_unit;
	double x_low, x_high;
	const char *const *names; /* by row; NULL: numbers */
	size_t n_rows;
	const struct plot_span *spans;
	size_t n_spans;
	const char *const *kinds; /* by colour, for the legend; NULL: none */
	size_t n_kinds;
	const struct plot_mark *marks;
	size_t n_marks;
	bool alone;
};
int plot_spans(struct buf *b, const struct plot_spans *p) MUST_CHECK;

/* A square of counts, darker for more. */
struct plot_matrix {
	const char *title;
	const char *row_text, *column_text; /* "from", "to" */
	const double *value;                /* n × n, row by row */
	size_t n;
	bool alone;
};
int plot_matrix(struct buf *b, const struct plot_matrix *p) MUST_CHECK;

/* The style sheet of drawings, for the head of a page. */
void plot_style(struct markup *m);

/* Of plot_frame.c, for the drawings: outer element with title, legend, axes. */
struct plot__frame {
	double left, top, right, bottom; /* of the area with the data */
	double width, height;            /* of the whole drawing */
};
void plot__begin(struct markup *m, const struct plot__frame *f, const char *title, bool alone);
void plot__end(struct markup *m);
void plot__words(struct markup *m, double x, double y, const char *classes, const char *text);
double plot__x(const struct plot__frame *f, const struct axis *a, double v);
double plot__y(const struct plot__frame *f, const struct axis *a, double v);
void plot__x_axis(
        struct markup *m, const struct plot__frame *f, const struct axis *a, const char *text);
void plot__marks(struct markup *m, const struct plot__frame *f, const struct axis *a,
        const struct plot_mark *marks, size_t n);

/* Rows that a legend of these names needs, and the legend, its first row at y. Names are cut. */
struct plot__entry {
	const char *name;
	unsigned colour;
	bool dashed, filled;
};
#define PLOT__LEGEND_ROW 18
int plot__legend(struct markup *m, const struct plot__entry *entries, size_t n, double left,
        double right, double y);

#endif
