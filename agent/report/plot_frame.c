/* SPDX-License-Identifier: MIT */
/* What all drawings have: the outer element, style, title, x axis, marks and legend.
 *
 * Nobody can measure text here, since the reader's fonts are unknown; a character is taken to be
 * as wide as CHARACTER, which is a little more than the average of the usual fonts. */
#include "agent/report/plot.h"

#include <math.h>
#include <string.h>

#define CHARACTER 6.4  /* wide, at a size of 12 */
#define KEY 22         /* the line before a name, with its gap */
#define LEGEND_NAME 34 /* characters of a name in the legend */
#define TITLE_MAX 64
#define LABEL_GAP 13 /* between the texts of two marks */

/* Okabe and Ito's colours, for white and, lighter, for a dark ground. */
static const char style[] =
        ".plot{--g0:#fff;--g1:#1f2933;--g2:#5f6b76;--g3:#e3e7eb;--g4:#9aa5b1;"
        "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0518c;--c4:#c98500;--c5:#3a9ad9;"
        "--c6:#7a5c3e;--c7:#4b5563;"
        "font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
        "@media(prefers-color-scheme:dark){.plot{--g0:#12171d;--g1:#e6eaee;--g2:#a3aeb9;"
        "--g3:#2a333d;--g4:#66727e;--c0:#4db1ee;--c1:#ff8b4a;--c2:#2fcf9f;--c3:#e79bc6;"
        "--c4:#f2b632;--c5:#9bd6ff;--c6:#c9a582;--c7:#b8c2cc}}"
        ".plot text{fill:var(--g1)}.plot .t{font-size:14px;font-weight:600}"
        ".plot .m{fill:var(--g2)}.plot .e{text-anchor:end}.plot .c{text-anchor:middle}"
        ".plot .s{font-size:10px}.plot .h{paint-order:stroke;stroke:var(--g0);stroke-width:3px}"
        ".plot .bg{fill:var(--g0)}.plot .grid{stroke:var(--g3);fill:none}"
        ".plot .axis{stroke:var(--g4);fill:none}"
        ".plot .mark{stroke:var(--g4);stroke-dasharray:4 3;fill:none}"
        ".plot .l{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
        ".plot .b{opacity:.16;stroke:none}.plot .d{stroke-dasharray:6 4}"
        ".plot .d1{stroke-dasharray:7 3}.plot .d2{stroke-dasharray:2 4}"
        ".plot .d3{stroke-dasharray:8 3 2 3}";

void plot_style(struct markup *m)
{
	if (!m->rc)
		m->rc = buf_append(m->buf, style, sizeof style - 1);
	for (int i = 0; i < PLOT_COLOURS; i++)
		markup_put(
		        m, ".plot .k%d{stroke:var(--c%d)}.plot .f%d{fill:var(--c%d)}", i, i, i, i);
}

void plot__begin(struct markup *m, const struct plot__frame *f, const char *title, bool alone)
{
	markup_put(m, "<svg class=\"plot\" role=\"img\" viewBox=\"0 0 %.0f %.0f\"%s aria-label=\"",
	        f->width, f->height, alone ? " xmlns=\"http://www.w3.org/2000/svg\"" : "");
	markup_text(m, title);
	markup_put(m, "\">\n");
	if (alone) {
		markup_put(m, "<style>");
		plot_style(m);
		markup_put(m, "</style>\n<rect class=\"bg\" width=\"%.0f\" height=\"%.0f\"/>\n",
		        f->width, f->height);
	}
	markup_put(m, "<text class=\"t\" x=\"12\" y=\"20\">");
	markup_cut(m, title, TITLE_MAX);
	markup_put(m, "</text>\n");
}

void plot__end(struct markup *m)
{
	markup_put(m, "</svg>\n");
}

void plot__words(struct markup *m, double x, double y, const char *classes, const char *text)
{
	markup_put(m, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", classes, x, y);
	markup_cut(m, text, TITLE_MAX);
	markup_put(m, "</text>\n");
}

double plot__x(const struct plot__frame *f, const struct axis *a, double v)
{
	return f->left + (f->right - f->left) * axis_at(a, v);
}

double plot__y(const struct plot__frame *f, const struct axis *a, double v)
{
	return f->bottom - (f->bottom - f->top) * axis_at(a, v);
}

void plot__x_axis(
        struct markup *m, const struct plot__frame *f, const struct axis *a, const char *text)
{
	char tick[AXIS_TEXT];
	double free_from = -1e9; /* ticks whose texts would touch are left without */

	markup_put(m, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f", f->left, f->bottom, f->right);
	for (int i = 0; i < a->n_ticks; i++)
		markup_put(m, "M%.1f %.1fv4", plot__x(f, a, a->tick[i]), f->bottom);
	markup_put(m, "\"/>\n");
	for (int i = 0; i < a->n_ticks; i++) {
		double x = plot__x(f, a, a->tick[i]);
		double half = CHARACTER / 2 * (double)strlen(axis_tick_text(a, i, tick));
		x = fmin(x, f->width - half - 2);
		if (x - half < free_from)
			continue;
		free_from = x + half + CHARACTER;
		plot__words(m, x, f->bottom + 17, "m c", tick);
	}
	markup_put(m, "<text class=\"m c\" x=\"%.1f\" y=\"%.1f\">", (f->left + f->right) / 2,
	        f->bottom + 34);
	markup_cut(m, text, TITLE_MAX);
	/* A count has its unit at each tick, and so have bytes on a logarithmic axis. */
	bool told = a->unit == AXIS_COUNT || (a->log && a->unit == AXIS_BYTES);
	if (*a->per && !told)
		markup_put(m, " (%s)", a->per);
	markup_put(m, "</text>\n");
}

void plot__marks(struct markup *m, const struct plot__frame *f, const struct axis *a,
        const struct plot_mark *marks, size_t n)
{
	double free_from = -1e9;
	for (size_t i = 0; i < n && i < PLOT_MARKS_MAX; i++) {
		if (!axis_shows(a, marks[i].x) || marks[i].x < a->low || marks[i].x > a->high)
			continue;
		double x = plot__x(f, a, marks[i].x);
		markup_put(m, "<g><path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/><title>", x, f->top,
		        f->bottom);
		markup_text(m, marks[i].text);
		markup_put(m, "</title>");
		if (x - LABEL_GAP >= free_from || free_from < 0) {
			free_from = x;
			markup_put(m,
			        "<text class=\"m s e h\" transform=\"translate(%.1f %.1f) "
			        "rotate(-90)\">",
			        x - 4, f->top + 4);
			markup_cut(m, marks[i].text, 28);
			markup_put(m, "</text>");
		}
		markup_put(m, "</g>\n");
	}
}

/* One name with its line or square; nothing is written without m. */
static void entry(struct markup *m, const struct plot__entry *e, double x, double y)
{
	unsigned colour = e->colour % PLOT_COLOURS, dash = e->colour / PLOT_COLOURS % 4;
	if (e->filled)
		markup_put(m,
		        "<rect class=\"f%u\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"10\" "
		        "rx=\"2\"/>",
		        colour, x, y - 9);
	else
		markup_put(m, "<path class=\"l k%u d%u%s\" d=\"M%.1f %.1fh15\"/>", colour, dash,
		        e->dashed ? " d" : "", x, y - 4);
	markup_put(m, "<text x=\"%.1f\" y=\"%.1f\">", x + KEY, y);
	markup_cut(m, e->name, LEGEND_NAME);
	markup_put(m, "<title>");
	markup_text(m, e->name);
	markup_put(m, "</title></text>\n");
}

int plot__legend(struct markup *m, const struct plot__entry *entries, size_t n, double left,
        double right, double y)
{
	double x = left;
	int rows = n > 0;
	for (size_t i = 0; i < n; i++) {
		double length = fmin((double)markup_length(entries[i].name), LEGEND_NAME);
		double wide = KEY + CHARACTER * length + 14;
		if (x > left && x + wide - 14 > right) {
			x = left;
			rows++;
		}
		if (m)
			entry(m, &entries[i], x, y + (rows - 1) * PLOT__LEGEND_ROW);
		x += wide;
	}
	return rows;
}
