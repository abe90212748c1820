/* SPDX-License-Identifier: MIT */
/* Membership over time, and the matrix of exchanges. Both have a row for each agent; with more
 * agents than PLOT_ROWS_MAX neighbours share a row, so that a drawing of a thousand is no larger
 * than one of a hundred. */
#include "agent/report/plot.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP 34
#define X_AXIS 42
#define CHARACTER 6.4
#define ROW_NAME 14 /* characters of an agent's name */
#define SPANS_MAX 20000
#define SHADES 12 /* of the matrix */
#define MATRIX_LEFT 34

/* ---- membership */

static double row_height(size_t rows)
{
	return rows <= 8 ? 22 : rows <= 16 ? 15 : rows <= 40 ? 9 : rows <= 80 ? 5 : 3;
}

static void row_names(
        struct markup *m, const struct plot__frame *f, const struct plot_spans *p, size_t rows)
{
	double each = row_height(rows);
	size_t stride = (size_t)ceil(13 / each);
	char number[24];
	for (size_t i = 0; i < rows; i += stride) {
		size_t agent = i * p->n_rows / rows;
		const char *name = p->names ? p->names[agent] : number;
		snprintf(number, sizeof number, "%zu", agent);
		markup_put(m, "<text class=\"m s e\" x=\"%.1f\" y=\"%.1f\">", f->left - 6,
		        f->top + ((double)i + 0.5) * each + 3.5);
		markup_cut(m, name, ROW_NAME);
		markup_put(m, "</text>\n");
	}
}

static double names_width(const struct plot_spans *p)
{
	size_t widest = 4;
	for (size_t i = 0; p->names && i < p->n_rows; i++) {
		size_t n = markup_length(p->names[i]);
		widest = n > widest ? n : widest;
	}
	return CHARACTER * 0.9 * (double)(widest < ROW_NAME ? widest : ROW_NAME);
}

static void bars(struct markup *m, const struct plot__frame *f, const struct axis *x,
        const struct plot_spans *p, size_t rows)
{
	double each = row_height(rows), gap = each > 6 ? 2 : 0.5;
	for (size_t i = 0; i < p->n_spans && i < SPANS_MAX; i++) {
		const struct plot_span *s = &p->spans[i];
		if (s->row >= p->n_rows || !isfinite(s->from) || !isfinite(s->to))
			continue;
		double from = fmax(s->from, x->low), to = fmin(s->to, x->high);
		if (to < from)
			continue;
		size_t row = s->row * rows / p->n_rows;
		double at = plot__x(f, x, from);
		markup_put(m,
		        "<rect class=\"f%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
		        "height=\"%.1f\"/>\n",
		        s->colour % PLOT_COLOURS, at, f->top + (double)row * each + gap / 2,
		        fmax(plot__x(f, x, to) - at, 0.5), each - gap);
	}
}

int plot_spans(struct buf *b, const struct plot_spans *p)
{
	struct markup m = {.buf = b};
	struct plot__frame f = {.width = PLOT_WIDTH, .top = TOP, .right = PLOT_WIDTH - 16};
	struct plot__entry entries[PLOT_COLOURS];
	struct axis x;
	size_t rows = p->n_rows < PLOT_ROWS_MAX ? p->n_rows : PLOT_ROWS_MAX;
	size_t n = 0;

	axis_init(&x, p->x_unit, false);
	x.tight = true;
	axis_add(&x, p->x_low);
	axis_add(&x, p->x_high);
	f.left = 16 + names_width(p);
	f.bottom = f.top + row_height(rows) * (double)(rows ? rows : 1) + 4;
	axis_finish(&x, (int)((f.right - f.left) / 85));
	for (; p->kinds && n < p->n_kinds && n < PLOT_COLOURS; n++)
		entries[n] = (struct plot__entry){
		        .name = p->kinds[n], .colour = (unsigned)n, .filled = true};
	int lines = plot__legend(NULL, entries, n, 12, f.right, 0);
	f.height = f.bottom + X_AXIS + lines * PLOT__LEGEND_ROW + 4;
	plot__begin(&m, &f, p->title, p->alone);
	row_names(&m, &f, p, rows);
	bars(&m, &f, &x, p, rows);
	plot__marks(&m, &f, &x, p->marks, p->n_marks);
	plot__x_axis(&m, &f, &x, p->x_text);
	plot__legend(&m, entries, n, 12, f.right, f.bottom + X_AXIS + 12);
	plot__end(&m);
	return m.rc;
}

/* ---- matrix */

/* Sums of neighbours, so that at most PLOT_ROWS_MAX rows are left. Owned by the caller. */
static double *folded(const struct plot_matrix *p, size_t rows)
{
	double *sum = calloc(rows * rows + 1, sizeof *sum);
	for (size_t i = 0; sum && i < p->n; i++) {
		for (size_t k = 0; k < p->n; k++) {
			double v = p->value[i * p->n + k];
			if (isfinite(v) && v > 0)
				sum[i * rows / p->n * rows + k * rows / p->n] += v;
		}
	}
	return sum;
}

/* All cells of one shade are one path: cells of a row that follow each other are one stroke. */
static void shade(
        struct markup *m, const double *value, size_t rows, double most, int which, double each)
{
	bool any = false;
	for (size_t i = 0; i < rows; i++) {
		for (size_t k = 0; k < rows; k++) {
			size_t from = k;
			while (k < rows && value[i * rows + k] > 0 &&
			        (int)ceil(value[i * rows + k] / most * SHADES) == which)
				k++;
			if (k == from)
				continue;
			if (!any)
				markup_put(m, "<path class=\"f0\" opacity=\"%.2f\" d=\"",
				        0.12 + 0.88 * which / SHADES);
			any = true;
			markup_put(m, "M%.2f %.2fh%.2fv%.2fh%.2fz",
			        MATRIX_LEFT + (double)from * each, TOP + 18 + (double)i * each,
			        (double)(k - from) * each, each, -(double)(k - from) * each);
		}
	}
	if (any)
		markup_put(m, "\"/>\n");
}

static void matrix_axes(struct markup *m, const struct plot_matrix *p, size_t rows, double each)
{
	size_t stride = rows > 8 ? (rows + 7) / 8 : 1;
	double side = each * (double)rows;
	for (size_t i = 0; i < rows; i += stride) {
		char number[24];
		snprintf(number, sizeof number, "%zu", i * p->n / rows);
		double at = ((double)i + 0.5) * each;
		plot__words(m, MATRIX_LEFT - 5, TOP + 18 + at + 3.5, "m s e", number);
		plot__words(m, MATRIX_LEFT + at, TOP + 18 + side + 13, "m s c", number);
	}
	markup_put(m, "<rect class=\"axis\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\"/>\n",
	        MATRIX_LEFT, TOP + 18, side, side);
	plot__words(m, 12, TOP + 10, "m", p->row_text);
	plot__words(m, MATRIX_LEFT + side / 2, TOP + 18 + side + 30, "m c", p->column_text);
}

/* From the lightest to the darkest, with their counts. */
static void scale(struct markup *m, double x, double most)
{
	char text[AXIS_TEXT];
	plot__words(m, x, TOP + 10, "m s", "exchanges");
	for (int i = 1; i <= SHADES; i++)
		markup_put(m,
		        "<rect class=\"f0\" opacity=\"%.2f\" x=\"%.1f\" y=\"%d\" width=\"14\" "
		        "height=\"10\"/>\n",
		        0.12 + 0.88 * i / SHADES, x, TOP + 18 + 10 * (SHADES - i));
	plot__words(m, x + 20, TOP + 27, "m s", axis_text(AXIS_COUNT, most, text));
	plot__words(m, x + 20, TOP + 17 + 10 * SHADES, "m s", most > SHADES ? "few" : "1");
}

int plot_matrix(struct buf *b, const struct plot_matrix *p)
{
	struct markup m = {.buf = b};
	size_t rows = p->n < PLOT_ROWS_MAX ? p->n : PLOT_ROWS_MAX;
	double side = fmin(PLOT_WIDTH - MATRIX_LEFT - 90, 40.0 * (double)rows), most = 0;
	double each = rows ? side / (double)rows : 0;
	struct plot__frame f = {.width = PLOT_WIDTH, .height = TOP + 18 + side + 40};
	double *value = folded(p, rows);

	if (!value)
		return ERR_NOMEM;
	for (size_t i = 0; i < rows * rows; i++)
		most = fmax(most, value[i]);
	plot__begin(&m, &f, p->title, p->alone);
	for (int i = 1; i <= SHADES && most > 0; i++)
		shade(&m, value, rows, most, i, each);
	matrix_axes(&m, p, rows, each);
	if (most > 0)
		scale(&m, MATRIX_LEFT + side + 16, most);
	else
		plot__words(&m, MATRIX_LEFT + side / 2, TOP + 18 + side / 2, "m c", "none");
	plot__end(&m);
	free(value);
	return m.rc;
}
