/* SPDX-License-Identifier: MIT */
/* The drawings of a report. A drawing without any value is left out, as are the memberships of
 * flocks in which nothing happened, and the matrices of methods that have no pairs. */
#include "agent/report/page.h"
#include "agent/report/plot.h"
#include "agent/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKS_MAX 12  /* changes of membership that are drawn; with more of them none is */
#define MEMBERS_MAX 4 /* drawings of membership, and of matrices, in a comparison */
#define LOG_FROM 12   /* ratio of values from which an axis is logarithmic */
#define MARK_TEXT 64

/* ---- curves */

struct drawing {
	const char *title, *x_text, *y_text;
	enum curve_of x, y;
	enum axis_unit x_unit, y_unit;
	enum curve_of dashed; /* a second line for each result; the same as y: none */
	const char *dashed_text;
	bool y_zero, y_may_log, step;
};

static const struct drawing drawings[] = {
        {"Accuracy against time", "virtual time", "accuracy", CURVE_TIME, CURVE_ACCURACY,
                AXIS_SECONDS, AXIS_PERCENT, CURVE_ACCURACY, NULL, false, false, false},
        {"Accuracy against bytes", "bytes sent by all", "accuracy", CURVE_BYTES, CURVE_ACCURACY,
                AXIS_BYTES, AXIS_PERCENT, CURVE_ACCURACY, NULL, false, false, false},
        {"Accuracy against samples", "samples of all agents", "accuracy", CURVE_SAMPLES,
                CURVE_ACCURACY, AXIS_COUNT, AXIS_PERCENT, CURVE_ACCURACY, NULL, false, false,
                false},
        {"Loss", "samples of all agents", "loss", CURVE_SAMPLES, CURVE_LOSS, AXIS_COUNT,
                AXIS_NUMBER, CURVE_TRAIN_LOSS, "training", false, true, false},
        {"Consensus distance", "virtual time", "Ξ", CURVE_TIME, CURVE_XI, AXIS_SECONDS, AXIS_NUMBER,
                CURVE_XI_TARGET, "target", true, true, false},
        {"Bytes against time", "virtual time", "bytes sent by all", CURVE_TIME, CURVE_BYTES,
                AXIS_SECONDS, AXIS_BYTES, CURVE_BYTES, NULL, true, true, false},
        {"Agents that are there", "virtual time", "agents", CURVE_TIME, CURVE_LIVE, AXIS_SECONDS,
                AXIS_NUMBER, CURVE_LIVE, NULL, true, false, true},
};
#define N_DRAWINGS (sizeof drawings / sizeof *drawings)

struct lines {
	struct plot_series series[2 * REPORT_RESULTS_MAX];
	struct curve curve[2 * REPORT_RESULTS_MAX];
	char name[REPORT_RESULTS_MAX][LIMIT_NAME + 48];
	size_t n;
};

static int add_line(struct lines *l, const struct sim_result *r, const struct drawing *d,
        enum curve_of y, const char *name, unsigned colour)
{
	struct curve *c = &l->curve[l->n];
	int rc = curve_new(c, r, d->x, y);
	if (rc || !c->any) {
		curve_close(c);
		return rc;
	}
	bool band = y == d->y && r->n_runs > 1;
	l->series[l->n++] = (struct plot_series){.name = name,
	        .x = c->x,
	        .y = c->y,
	        .low = band ? c->low : NULL,
	        .high = band ? c->high : NULL,
	        .n = (size_t)c->n,
	        .colour = colour,
	        .dashed = y != d->y,
	        .step = d->step};
	return 0;
}

static int add_lines(struct lines *l, const struct summary *list, int n, const struct drawing *d)
{
	int rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_line(
		        l, list[i].result, d, d->y, n > 1 ? list[i].label : d->y_text, (unsigned)i);
	for (int i = 0; i < n && !rc && d->dashed != d->y; i++) {
		/* Many dashed lines would hide the others: targets alone are worth it. */
		if (n > MEMBERS_MAX && d->dashed != CURVE_XI_TARGET)
			break;
		if (n > 1)
			snprintf(l->name[i], sizeof l->name[i], "%s, %s", list[i].label,
			        d->dashed_text);
		else
			snprintf(l->name[i], sizeof l->name[i], "%s", d->dashed_text);
		rc = add_line(l, list[i].result, d, d->dashed, l->name[i], (unsigned)i);
	}
	return rc;
}

static void last_values(const struct plot_series *s, double *least, double *most, bool x)
{
	for (size_t k = s->n; k-- > 0;) {
		double v = x ? s->x[k] : s->y[k];
		if (!isfinite(v) || v <= 0)
			continue;
		*least = fmin(*least, v);
		*most = fmax(*most, v);
		if (x)
			break;
	}
}

/* Along x, if the lines end far from each other; along y, if values do. */
static bool wide(const struct lines *l, bool x)
{
	double least = INFINITY, most = 0;
	for (size_t i = 0; i < l->n; i++)
		last_values(&l->series[i], &least, &most, x);
	return most > 0 && most / least > (x ? LOG_FROM : 3 * LOG_FROM);
}

static bool changes(const struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 1; k < l->series[i].n; k++)
			if (l->series[i].y[k] != l->series[i].y[0])
				return true;
	return false;
}

static int draw(struct markup *m, const struct summary *list, int n, const struct drawing *d,
        const struct plot_mark *marks, size_t n_marks)
{
	struct lines *l = calloc(1, sizeof *l);
	int rc = l ? add_lines(l, list, n, d) : ERR_NOMEM;
	/* How many are there is worth a drawing if it changes. */
	if (!rc && l->n > 0 && (d->y != CURVE_LIVE || changes(l))) {
		const struct plot p = {.title = d->title,
		        .x_text = d->x_text,
		        .y_text = d->y_text,
		        .x_unit = d->x_unit,
		        .y_unit = d->y_unit,
		        .x_log = n > 1 && wide(l, true),
		        .y_log = d->y_may_log && d->y != CURVE_BYTES && wide(l, false),
		        .y_zero = d->y_zero,
		        .series = l->series,
		        .n_series = l->n,
		        .marks = d->x == CURVE_TIME ? marks : NULL,
		        .n_marks = d->x == CURVE_TIME ? n_marks : 0};
		page_plot_begin(m);
		rc = m->rc ? m->rc : plot_lines(m->buf, &p);
		page_plot_end(m);
	}
	for (size_t i = 0; l && i < l->n; i++)
		curve_close(&l->curve[i]);
	free(l);
	return rc;
}

/* ---- marks */

static bool of_the_network(enum sim_change what)
{
	return what == SIM_PARTED || what == SIM_HEALED;
}

/* Changes of one kind at one time are one mark. 0 if there are more than can be shown. Where the
 * agents have bars, only those of the network are marked. */
static size_t find_marks(const struct sim_run *r, bool network_only, struct plot_mark *marks,
        char (*text)[MARK_TEXT])
{
	size_t n = 0;
	for (int k = 0; k < r->n_membership;) {
		const struct sim_membership *first = &r->membership[k];
		int alike = 0;
		while (k < r->n_membership && r->membership[k].what == first->what &&
		        r->membership[k].time_s == first->time_s) {
			alike++;
			k++;
		}
		if (first->time_s <= 0 || (network_only && !of_the_network(first->what)))
			continue;
		if (n == MARKS_MAX)
			return 0;
		const char *what = sim_change_names[first->what];
		if (of_the_network(first->what))
			snprintf(text[n], MARK_TEXT, "%s", what);
		else if (alike == 1)
			snprintf(text[n], MARK_TEXT, "%u %s", first->agent, what);
		else
			snprintf(text[n], MARK_TEXT, "%d %s", alike, what);
		marks[n] = (struct plot_mark){first->time_s, text[n]};
		n++;
	}
	return n;
}

/* ---- membership */

enum kind { KIND_TRAINS, KIND_PAUSED, KIND_SLOWED, KIND_BAD, KIND_AWAY };
static const char *const kinds[] = {"there", "paused", "slowed", "sends noise"};

struct members {
	struct plot_span *spans; /* owned */
	size_t n;
	double *since;                /* owned, by agent */
	uint8_t *kind, *before_pause; /* owned, by agent: enum kind */
};

static void becomes(struct members *w, uint32_t agent, double time_s, enum kind kind)
{
	if (w->kind[agent] != KIND_AWAY && time_s > w->since[agent])
		w->spans[w->n++] =
		        (struct plot_span){agent, w->since[agent], time_s, w->kind[agent]};
	w->kind[agent] = (uint8_t)kind;
	w->since[agent] = time_s;
}

static void change(struct members *w, const struct sim_membership *c)
{
	switch (c->what) {
	case SIM_JOINED:
		if (w->kind[c->agent] == KIND_AWAY)
			becomes(w, c->agent, c->time_s, KIND_TRAINS);
		break;
	case SIM_LEFT:
	case SIM_CRASHED:
		becomes(w, c->agent, c->time_s, KIND_AWAY);
		break;
	case SIM_PAUSED:
		w->before_pause[c->agent] = w->kind[c->agent];
		becomes(w, c->agent, c->time_s, KIND_PAUSED);
		break;
	case SIM_RESUMED:
		if (w->kind[c->agent] == KIND_PAUSED)
			becomes(w, c->agent, c->time_s, w->before_pause[c->agent]);
		break;
	case SIM_SLOWED:
		becomes(w, c->agent, c->time_s, KIND_SLOWED);
		break;
	case SIM_TURNED_BAD:
		becomes(w, c->agent, c->time_s, KIND_BAD);
		break;
	case SIM_PARTED:
	case SIM_HEALED:
		break;
	}
}

static void fill_members(
        struct members *w, const struct sim_result *r, const struct sim_run *run, double end_s)
{
	int64_t there = r->scenario.agents.count - r->scenario.agents.absent;
	for (uint32_t i = 0; i < run->agents; i++)
		w->kind[i] = i < there ? KIND_TRAINS : KIND_AWAY;
	for (int k = 0; k < run->n_membership; k++)
		if (run->membership[k].agent < run->agents)
			change(w, &run->membership[k]);
	for (uint32_t i = 0; i < run->agents; i++)
		becomes(w, i, end_s, KIND_AWAY);
}

/* For the legend, which is needed if there is more than one. */
static size_t kinds_met(const struct members *w)
{
	unsigned most = 0;
	for (size_t i = 0; i < w->n; i++)
		most = w->spans[i].colour > most ? w->spans[i].colour : most;
	return most > 0 ? most + 1 : 0;
}

static int draw_members(struct markup *m, const struct summary *s, bool alone)
{
	struct plot_mark marks[MARKS_MAX];
	char text[MARKS_MAX][MARK_TEXT];
	const struct sim_run *run = &s->result->runs[0];
	struct members w = {0};
	char title[96];
	size_t n = run->agents, room = n + (size_t)run->n_membership + 1;
	double end_s = run->n_points > 0 ? run->points[run->n_points - 1].time_s : 0;
	int rc = ERR_NOMEM;

	w.spans = calloc(room, sizeof *w.spans);
	w.since = calloc(n + 1, sizeof *w.since);
	w.kind = calloc(n + 1, 1);
	w.before_pause = calloc(n + 1, 1);
	if (w.spans && w.since && w.kind && w.before_pause) {
		fill_members(&w, s->result, run, end_s);
		snprintf(title, sizeof title, "Membership%s%.60s", alone ? "" : " of ",
		        alone ? "" : s->label);
		const struct plot_spans p = {.title = title,
		        .x_text = "virtual time",
		        .x_unit = AXIS_SECONDS,
		        .x_high = end_s,
		        .n_rows = n,
		        .spans = w.spans,
		        .n_spans = w.n,
		        .kinds = kinds,
		        .n_kinds = kinds_met(&w),
		        .marks = marks,
		        .n_marks = find_marks(run, true, marks, text)};
		page_plot_begin(m);
		rc = m->rc ? m->rc : plot_spans(m->buf, &p);
		page_plot_end(m);
	}
	free(w.spans);
	free(w.since);
	free(w.kind);
	free(w.before_pause);
	return rc;
}

/* ---- who met whom */

static int draw_matrix(struct markup *m, const struct summary *s, bool alone)
{
	const struct sim_result *r = s->result;
	size_t n = r->runs[0].agents;
	double *sum = calloc(n * n + 1, sizeof *sum), all = 0;
	char title[96];
	int rc = sum ? 0 : ERR_NOMEM;
	for (int i = 0; sum && i < r->n_runs; i++) {
		const struct sim_run *run = &r->runs[i];
		for (size_t k = 0; run->met && run->agents == n && k < n * n; k++) {
			sum[k] += run->met[k];
			all += run->met[k];
		}
	}
	if (!rc && all > 0) {
		snprintf(title, sizeof title, "Who sent to whom%s%.60s", alone ? "" : ": ",
		        alone ? "" : s->label);
		const struct plot_matrix p = {.title = title,
		        .row_text = "sender",
		        .column_text = "receiver",
		        .value = sum,
		        .n = n};
		page_plot_begin(m);
		rc = m->rc ? m->rc : plot_matrix(m->buf, &p);
		page_plot_end(m);
	}
	free(sum);
	return rc;
}

static bool happened(const struct summary *s)
{
	return s->result->n_runs > 0 && s->result->runs[0].n_membership > 0;
}

int report__plots(struct markup *m, const struct summary *list, int n)
{
	struct plot_mark marks[MARKS_MAX];
	char text[MARKS_MAX][MARK_TEXT];
	size_t n_marks = 0;
	int rc = 0, drawn = 0;

	if (n == 1 && list[0].result->n_runs > 0)
		n_marks = find_marks(&list[0].result->runs[0], false, marks, text);
	page_section(m, "Curves");
	page_plots_begin(m);
	for (size_t i = 0; i < N_DRAWINGS && !rc; i++)
		rc = draw(m, list, n, &drawings[i], marks, n_marks);
	page_plots_end(m);
	page_section(m, "Agents");
	page_plots_begin(m);
	for (int i = 0; i < n && !rc && drawn < MEMBERS_MAX; i++) {
		if (!happened(&list[i]) && n > 1)
			continue;
		if (list[i].result->n_runs == 0)
			continue;
		rc = draw_members(m, &list[i], n == 1);
		drawn++;
	}
	for (int i = 0; i < n && !rc && i < MEMBERS_MAX; i++)
		if (list[i].result->n_runs > 0)
			rc = draw_matrix(m, &list[i], n == 1);
	page_plots_end(m);
	return rc;
}
