/* SPDX-License-Identifier: MIT */
/* Each column has its width and a rank: the columns with the highest rank go first where the
 * terminal is narrow. An agent that is gone keeps its last numbers; its phase says that it is gone.
 *
 * Widths are counted in characters, of which the text of agents can have any number of bytes each,
 * taken to be one column wide: a name or a reason has no others. */
#include "agent/cli/top_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELL 80 /* bytes of a cell's text, JSON_SHOWN among them */
_Static_assert(CELL >= JSON_SHOWN, "a name fits");

static const char *show_name(const struct watched *w, char out[CELL])
{
	(void)out;
	return w->name;
}

static const char *show_phase(const struct watched *w, char out[CELL])
{
	(void)out;
	return w->state == WATCH_UP ? w->phase : watch_state_text(w->state);
}

static const char *show(double v, int digits, const char *unit, char out[CELL])
{
	if (isnan(v))
		return "-";
	snprintf(out, CELL, "%.*f%s", digits, v, unit);
	return out;
}

static const char *show_step(const struct watched *w, char out[CELL])
{
	return show(w->value[WATCH_STEP], 0, "", out);
}

static const char *show_loss(const struct watched *w, char out[CELL])
{
	return show(w->value[WATCH_LOSS], 3, "", out);
}

/* The newest there is: of the merged model, of the local one at the end, of the last epoch. */
static const char *show_accuracy(const struct watched *w, char out[CELL])
{
	static const enum watch_field best[] = {WATCH_MERGED, WATCH_LOCAL, WATCH_ACCURACY};
	int i = 0;
	while (i < 2 && isnan(w->value[best[i]]))
		i++;
	return show(100 * w->value[best[i]], 2, "%", out);
}

static const char *show_run(const struct watched *w, char out[CELL])
{
	return show(100 * w->value[WATCH_CLOCK] / w->value[WATCH_TOTAL], 1, "%", out);
}

static const char *show_peers(const struct watched *w, char out[CELL])
{
	return show(w->value[WATCH_PEERS], 0, "", out);
}

/* The change and what is worth an exchange, where the gate goes by that; else what it goes by. */
static const char *show_gate(const struct watched *w, char out[CELL])
{
	char change[CELL];
	if (strcmp(w->mode, "significance") != 0 && strcmp(w->mode, "selsync-code") != 0)
		return w->mode[0] ? w->mode : "-";
	snprintf(out, CELL, "%.20s/%.3g", show(w->value[WATCH_CHANGE], 3, "", change),
	        w->value[WATCH_DELTA]);
	return out;
}

static const char *show_reason(const struct watched *w, char out[CELL])
{
	(void)out;
	return w->reason[0] ? w->reason : "-";
}

static const char *show_lssr(const struct watched *w, char out[CELL])
{
	return show(w->value[WATCH_LSSR], 3, "", out);
}

static const char *show_distance(const struct watched *w, char out[CELL])
{
	double v = w->value[WATCH_DISTANCE];
	return show(v, v < 10 ? 3 : v < 100 ? 2 : 1, "", out);
}

/* The consensus distance beside the guard's target. */
static const char *show_guard(const struct watched *w, char out[CELL])
{
	char xi[CELL];
	if (isnan(w->value[WATCH_TARGET]))
		return "-";
	snprintf(out, CELL, "%.20s/%.3g", show(w->value[WATCH_XI], 3, "", xi),
	        w->value[WATCH_TARGET]);
	return out;
}

static const char *show_exchanges(const struct watched *w, char out[CELL])
{
	return show(w->value[WATCH_BEGUN] + w->value[WATCH_TAKEN], 0, "", out);
}

static const char *show_sent(const struct watched *w, char out[CELL])
{
	double exchanged = w->value[WATCH_SENT], n = w->value[WATCH_NET_SENT];
	if (!isnan(exchanged))
		n += exchanged;
	return show(n / 1e6, n < 1e7 ? 2 : n < 1e8 ? 1 : 0, " MB", out);
}

static const struct column {
	const char *title;
	int width, rank;
	bool left;
	const char *(*show_cb)(const struct watched *w, char out[CELL]);
} columns[] = {
        {"NAME", 10, 0, true, show_name},
        {"PHASE", 8, 0, true, show_phase},
        {"STEP", 7, 1, false, show_step},
        {"LOSS", 6, 1, false, show_loss},
        {"ACC", 7, 1, false, show_accuracy},
        {"RUN", 6, 1, false, show_run},
        {"PEERS", 5, 2, false, show_peers},
        {"Δ/δ", 12, 4, false, show_gate},
        {"REASON", 11, 7, true, show_reason},
        {"LSSR", 5, 6, false, show_lssr},
        {"DIST", 8, 5, false, show_distance},
        {"Ξ/Ξ*", 12, 8, false, show_guard},
        {"EXCH", 6, 3, false, show_exchanges},
        {"SENT", 8, 2, false, show_sent},
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

/* The highest rank that is shown. */
static int fitting(int width)
{
	for (int rank = 7;; rank--) {
		int sum = -2;
		for (int i = 0; i < COLUMNS; i++)
			sum += columns[i].rank <= rank ? columns[i].width + 2 : 0;
		if (sum <= width || rank == 0)
			return rank;
	}
}

static bool begins_character(char c)
{
	return ((unsigned char)c & 0xc0) != 0x80;
}

/* The text in its width, cut or filled up, and what stands between it and the one before; *left is
 * what the line still has room for. */
static int add_cell(struct buf *out, const struct column *c, const char *text, int *left)
{
	int chars = 0, width = c->width, rc = 0;
	size_t len = 0;
	if (c != &columns[0]) {
		rc = *left >= 2 ? buf_append(out, "  ", 2) : 0;
		*left -= 2;
	}
	width = width < *left ? width : *left;
	for (; text[len]; len++) {
		if (begins_character(text[len]) && ++chars > width)
			break;
	}
	chars = chars < width ? chars : width;
	if (rc || width <= 0)
		return rc;
	*left -= width;
	int fill = width - chars;
	return buf_printf(
	        out, "%*s%.*s%*s", c->left ? 0 : fill, "", (int)len, text, c->left ? fill : 0, "");
}

static int add_line(struct buf *out, const struct watched *w, int rank, int width)
{
	char text[CELL];
	int rc = 0, left = width;
	for (int i = 0; i < COLUMNS && rc == 0; i++)
		if (columns[i].rank <= rank)
			rc = add_cell(out, &columns[i],
			        w ? columns[i].show_cb(w, text) : columns[i].title, &left);
	return rc;
}

static const char *colour_of(const struct watched *w)
{
	if (!w)
		return "\033[1m";
	if (w->state == WATCH_SILENT)
		return "\033[33m";
	return w->state == WATCH_UP ? "" : "\033[2m";
}

int top_table(struct buf *out, const struct watched *w, int n, int width, bool colour)
{
	int rank = fitting(width), rc = 0;
	for (int i = -1; i < n && rc == 0; i++) {
		const struct watched *row = i < 0 ? NULL : &w[i];
		const char *on = colour ? colour_of(row) : "";
		rc = buf_printf(out, "%s", on);
		if (rc == 0)
			rc = add_line(out, row, rank, width);
		if (rc == 0)
			rc = buf_printf(out, "%s\n", on[0] ? "\033[0m" : "");
	}
	return rc;
}

/* ---- lines for plots */

int top_log_header(struct buf *out)
{
	int rc = buf_printf(out, "time\tname\tstate\tphase\treason");
	for (int i = 0; i < WATCH_FIELD_COUNT && rc == 0; i++)
		rc = buf_printf(out, "\t%s", watch_names[i]);
	return rc ? rc : buf_append(out, "\n", 1);
}

int top_log_line(struct buf *out, const struct watched *w, double time_s)
{
	int rc =
	        buf_printf(out, "%.3f\t%s\t%s\t%s\t%s", time_s, w->name, watch_state_text(w->state),
	                w->phase[0] ? w->phase : "-", w->reason[0] ? w->reason : "-");
	for (int i = 0; i < WATCH_FIELD_COUNT && rc == 0; i++)
		rc = isnan(w->value[i]) ? buf_printf(out, "\t-")
		                        : buf_printf(out, "\t%.15g", w->value[i]);
	return rc ? rc : buf_append(out, "\n", 1);
}
