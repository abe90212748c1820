/* SPDX-License-Identifier: MIT */
/* Lines. The happy path: ranges from all values, margins from the widest tick, then grid, marks,
 * bands, lines and legend. A value that cannot be shown ends a piece of a line; a piece of one
 * point is a dot. Of a line with more points than columns of pixels only the first, lowest,
 * highest and last of each half column are drawn, which looks the same. */
#include "agent/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHARACTER 6.4
#define HEIGHT 280
#define TOP 50 /* title and the y axis' text */
#define X_AXIS 42
#define RIGHT 16
#define TICK_EVERY_X 85 /* about, in pixels */
#define TICK_EVERY_Y 42
#define FROM_ZERO 0.25 /* an x axis that begins below this part of its end begins at 0 */

struct canvas {
	struct markup *m;
	struct plot__frame frame;
	struct axis x, y;
};

static void add_ranges(struct canvas *c, const struct plot *p, size_t n_series)
{
	for (size_t i = 0; i < n_series; i++) {
		const struct plot_series *s = &p->series[i];
		for (size_t k = 0; k < s->n; k++) {
			if (!axis_shows(&c->x, s->x[k]) || !axis_shows(&c->y, s->y[k]))
				continue;
			axis_add(&c->x, s->x[k]);
			axis_add(&c->y, s->y[k]);
			if (s->low && s->high) {
				axis_add(&c->y, s->low[k]);
				axis_add(&c->y, s->high[k]);
			}
		}
	}
}

static void y_axis(struct canvas *c, const char *text)
{
	const struct plot__frame *f = &c->frame;
	char tick[AXIS_TEXT];
	markup_put(c->m, "<path class=\"grid\" d=\"");
	for (int i = 0; i < c->y.n_ticks; i++)
		markup_put(c->m, "M%.1f %.1fH%.1f", f->left, plot__y(f, &c->y, c->y.tick[i]),
		        f->right);
	markup_put(c->m, "M0 0\"/>\n");
	for (int i = 0; i < c->y.n_ticks; i++)
		plot__words(c->m, f->left - 7, plot__y(f, &c->y, c->y.tick[i]) + 4, "m e",
		        axis_tick_text(&c->y, i, tick));
	markup_put(c->m, "<text class=\"m\" x=\"12\" y=\"%.1f\">", f->top - 13);
	markup_cut(c->m, text, 48);
	bool told = c->y.unit == AXIS_COUNT || (c->y.log && c->y.unit == AXIS_BYTES);
	if (*c->y.per && !told)
		markup_put(c->m, " (%s)", c->y.per);
	markup_put(c->m, "</text>\n");
}

/* ---- one line */

struct pen {
	struct canvas *c;
	const struct plot_series *s;
	bool down; /* in the middle of a piece */
	bool dot;  /* which has one point yet */
};

static void pen_up(struct pen *p)
{
	if (p->dot)
		markup_put(p->c->m, "h0");
	p->down = p->dot = false;
}

static void pen_to(struct pen *p, double x, double y)
{
	if (!p->down) {
		markup_put(p->c->m, "M%.1f %.1f", x, y);
		p->dot = true;
	} else {
		if (p->s->step)
			markup_put(p->c->m, "H%.1fV%.1f", x, y);
		else
			markup_put(p->c->m, "L%.1f %.1f", x, y);
		p->dot = false;
	}
	p->down = true;
}

static bool shown(const struct canvas *c, const struct plot_series *s, size_t i)
{
	return axis_shows(&c->x, s->x[i]) && axis_shows(&c->y, s->y[i]);
}

/* The end of the points from i on that share half a column of pixels and can be shown. */
static size_t column_end(const struct canvas *c, const struct plot_series *s, size_t i)
{
	double first = floor(plot__x(&c->frame, &c->x, s->x[i]) * 2);
	size_t k = i + 1;
	while (k < s->n && shown(c, s, k) && floor(plot__x(&c->frame, &c->x, s->x[k]) * 2) == first)
		k++;
	return k;
}

/* The points from i to end that are drawn, in their order; returns how many, at most 4. */
static int chosen(const struct plot_series *s, size_t i, size_t end, size_t out[4])
{
	size_t low = i, high = i;
	for (size_t k = i; k < end; k++) {
		low = s->y[k] < s->y[low] ? k : low;
		high = s->y[k] > s->y[high] ? k : high;
	}
	size_t list[4] = {i, low < high ? low : high, low < high ? high : low, end - 1};
	int n = 0;
	for (int k = 0; k < 4; k++)
		if (!n || list[k] > out[n - 1])
			out[n++] = list[k];
	return n;
}

static void line(struct canvas *c, const struct plot_series *s)
{
	struct pen pen = {.c = c, .s = s};
	markup_put(c->m, "<path class=\"l k%u d%u%s\" d=\"", s->colour % PLOT_COLOURS,
	        s->colour / PLOT_COLOURS % 4, s->dashed ? " d" : "");
	for (size_t i = 0; i < s->n;) {
		if (!shown(c, s, i)) {
			pen_up(&pen);
			i++;
			continue;
		}
		size_t at[4], end = column_end(c, s, i);
		int n = chosen(s, i, end, at);
		for (int k = 0; k < n; k++)
			pen_to(&pen, plot__x(&c->frame, &c->x, s->x[at[k]]),
			        plot__y(&c->frame, &c->y, s->y[at[k]]));
		i = end;
	}
	pen_up(&pen);
	markup_put(c->m, "\"><title>");
	markup_text(c->m, s->name);
	markup_put(c->m, "</title></path>\n");
}

static double edge(const struct canvas *c, const double *values, size_t i, double otherwise)
{
	return plot__y(&c->frame, &c->y, axis_shows(&c->y, values[i]) ? values[i] : otherwise);
}

static bool banded(const struct canvas *c, const struct plot_series *s, size_t i)
{
	return shown(c, s, i) && isfinite(s->low[i]) && isfinite(s->high[i]);
}

/* There along the upper edge and back along the lower one, for each piece. */
static void band(struct canvas *c, const struct plot_series *s)
{
	if (!s->low || !s->high)
		return;
	markup_put(c->m, "<path class=\"b f%u\" d=\"M0 0", s->colour % PLOT_COLOURS);
	for (size_t i = 0; i < s->n;) {
		size_t end = i;
		while (end < s->n && banded(c, s, end))
			end++;
		size_t stride = (end - i) / (size_t)(c->frame.right - c->frame.left) + 1;
		for (size_t k = i; k < end; k += stride)
			markup_put(c->m, "%c%.1f %.1f", k == i ? 'M' : 'L',
			        plot__x(&c->frame, &c->x, s->x[k]), edge(c, s->high, k, s->y[k]));
		for (size_t k = end; k > i;) {
			k = k - i > stride ? k - stride : i;
			markup_put(c->m, "L%.1f %.1f", plot__x(&c->frame, &c->x, s->x[k]),
			        edge(c, s->low, k, c->y.low));
		}
		markup_put(c->m, "%s", end > i ? "Z" : "");
		i = end + 1;
	}
	markup_put(c->m, "\"/>\n");
}

/* ---- the whole */

static void measure(struct canvas *c, const struct plot *p, size_t n_series)
{
	struct plot__frame *f = &c->frame;
	int height = p->height > 0 ? p->height : HEIGHT;
	f->width = p->width > 0 ? p->width : PLOT_WIDTH;
	f->top = TOP;
	f->bottom = height - X_AXIS;
	f->right = f->width - RIGHT;
	axis_init(&c->x, p->x_unit, p->x_log);
	axis_init(&c->y, p->y_unit, p->y_log);
	c->x.tight = true;
	c->y.zero = p->y_zero;
	add_ranges(c, p, n_series);
	if (!c->x.log && c->x.any && c->x.low < FROM_ZERO * c->x.high)
		axis_add(&c->x, 0);
	axis_finish(&c->y, (int)((f->bottom - f->top) / TICK_EVERY_Y));
	size_t widest = 1;
	char tick[AXIS_TEXT];
	for (int i = 0; i < c->y.n_ticks; i++) {
		size_t n = strlen(axis_tick_text(&c->y, i, tick));
		widest = n > widest ? n : widest;
	}
	f->left = 16 + CHARACTER * (double)widest;
	axis_finish(&c->x, (int)((f->right - f->left) / TICK_EVERY_X));
}

int plot_lines(struct buf *b, const struct plot *p)
{
	struct markup m = {.buf = b};
	struct canvas c = {.m = &m};
	struct plot__entry entries[PLOT_SERIES_MAX + 1];
	char more[48];
	size_t n = p->n_series < PLOT_SERIES_MAX ? p->n_series : PLOT_SERIES_MAX, n_entries = 0;

	measure(&c, p, n);
	for (; n_entries < n; n_entries++) {
		const struct plot_series *s = &p->series[n_entries];
		entries[n_entries] = (struct plot__entry){
		        .name = s->name, .colour = s->colour, .dashed = s->dashed};
	}
	if (p->n_series > n) {
		snprintf(more, sizeof more, "and %zu more, not drawn", p->n_series - n);
		entries[n_entries++] = (struct plot__entry){.name = more, .dashed = true};
	}
	/* A single line that is called as its axis needs no legend. */
	if (n == 1 && p->y_text && p->series[0].name && !strcmp(p->y_text, p->series[0].name))
		n_entries = 0;
	struct plot__frame *f = &c.frame;
	int rows = plot__legend(NULL, entries, n_entries, 12, f->right, 0);
	f->height = f->bottom + X_AXIS + rows * PLOT__LEGEND_ROW + 4;
	plot__begin(&m, f, p->title, p->alone);
	y_axis(&c, p->y_text);
	plot__x_axis(&m, f, &c.x, p->x_text);
	markup_put(&m, "<g class=\"lines\" data-x=\"%.9g %.9g %d %.9g %s\" ", c.x.low, c.x.high,
	        c.x.log, c.x.scale, c.x.per);
	markup_put(&m, "data-y=\"%.9g %.9g %d %.9g %s\" data-at=\"%.1f %.1f %.1f %.1f\">\n",
	        c.y.low, c.y.high, c.y.log, c.y.scale, c.y.per, f->left, f->right, f->bottom,
	        f->top);
	for (size_t i = 0; i < n; i++)
		band(&c, &p->series[i]);
	for (size_t i = n; i-- > 0;) /* the first one on top */
		line(&c, &p->series[i]);
	markup_put(&m, "</g>\n");
	plot__marks(&m, f, &c.x, p->marks, p->n_marks);
	if (!c.y.any)
		plot__words(
		        &m, (f->left + f->right) / 2, (f->top + f->bottom) / 2, "m c", "no values");
	plot__legend(&m, entries, n_entries, 12, f->right, f->bottom + X_AXIS + 12);
	plot__end(&m);
	return m.rc;
}
