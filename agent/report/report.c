/* SPDX-License-Identifier: MIT */
/* Table and page. What can fail is memory alone: results were checked when they were made or
 * read. A run that failed or was stopped is told above everything else. */
#include "agent/report/report.h"

#include "agent/report/axis.h"
#include "agent/report/page.h"
#include "agent/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCENARIO_TEXT_MAX (1u << 20)
#define ALLREDUCE_LINE 256

/* ---- the table */

struct column {
	enum summary_field field;
	enum axis_unit unit;
	const char *head;
	bool error; /* shown with its standard error */
};
static const struct column columns[] = {
        {SUMMARY_ACCURACY, AXIS_PERCENT, "accuracy", true},
        {SUMMARY_LOSS, AXIS_NUMBER, "loss", true},
        {SUMMARY_TARGET_TIME, AXIS_SECONDS, "to target", false},
        {SUMMARY_TARGET_BYTES, AXIS_BYTES, "bytes to it", false},
        {SUMMARY_TIME, AXIS_SECONDS, "time", false},
        {SUMMARY_BYTES, AXIS_BYTES, "sent", false},
        {SUMMARY_SAMPLES, AXIS_COUNT, "samples", false},
        {SUMMARY_EXCHANGES, AXIS_COUNT, "exchanges", false},
        {SUMMARY_SYNCHRONISED, AXIS_PERCENT, "synchronised", false},
        {SUMMARY_XI, AXIS_NUMBER, "Ξ", false},
        {SUMMARY_WAITING, AXIS_PERCENT, "waiting", false},
};
#define N_COLUMNS ((int)(sizeof columns / sizeof *columns))
enum { COLUMN_NAME, COLUMN_METHOD, COLUMN_LR, COLUMN_SEEDS, COLUMN_FIRST };
_Static_assert(COLUMN_FIRST + sizeof columns / sizeof *columns <= TABLE_COLUMNS, "they fit");

/* "84.20 ± 0.12 %": with its standard error where it means most. */
static void set_mean(
        struct table *t, int row, int column, const struct column *c, const struct mean *s)
{
	char text[AXIS_TEXT];
	double error = fabs(s->error) > 1e-9 * fabs(s->mean) ? s->error : 0;
	if (s->n == 0)
		return;
	if (!c->error || !isfinite(s->error))
		table_set(t, row, column, "%s", axis_text(c->unit, s->mean, text));
	else if (c->unit == AXIS_PERCENT)
		table_set(t, row, column, "%.2f ± %.2f %%", 100 * s->mean, 100 * error);
	else
		table_set(t, row, column, "%.4f ± %.4f", s->mean, error);
}

/* Learning rates are shown where they differ, or were chosen. */
static bool rates_differ(const struct summary *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i].tried > 1 || list[i].result->scenario.config.train.optim.lr !=
		                                 list[0].result->scenario.config.train.optim.lr)
			return true;
	return false;
}

/* Seeds that did not reach the target are not in the means of those that did: it is told. */
static void set_target(struct table *t, int row, const struct summary *s)
{
	char text[AXIS_TEXT];
	const struct mean *m = &s->field[SUMMARY_TARGET_TIME];
	int column = COLUMN_FIRST;
	while (columns[column - COLUMN_FIRST].field != SUMMARY_TARGET_TIME)
		column++;
	if (s->result->scenario.record.target <= 0 || m->n == s->result->n_runs)
		return;
	if (m->n == 0)
		table_set(t, row, column, "not reached");
	else
		table_set(t, row, column, "%s (%d of %d)", axis_text(AXIS_SECONDS, m->mean, text),
		        m->n, s->result->n_runs);
}

static void set_row(struct table *t, int row, const struct summary *s, bool rates)
{
	double lr = s->result->scenario.config.train.optim.lr;
	table_set(t, row, COLUMN_NAME, "%s", s->label);
	table_set(t, row, COLUMN_METHOD, "%s", s->result->method);
	if (rates && s->tried > 1)
		table_set(t, row, COLUMN_LR, "%.4g, best of %d", lr, s->tried);
	else if (rates)
		table_set(t, row, COLUMN_LR, "%.4g", lr);
	if (s->complete < s->result->n_runs)
		table_set(t, row, COLUMN_SEEDS, "%d of %d", s->complete, s->result->n_runs);
	else
		table_set(t, row, COLUMN_SEEDS, "%d", s->result->n_runs);
	for (int k = 0; k < N_COLUMNS; k++)
		set_mean(t, row, COLUMN_FIRST + k, &columns[k], &s->field[columns[k].field]);
	set_target(t, row, s);
}

static int make_table(struct table *t, const struct summary *list, int n)
{
	int rc = table_init(t, n + 1, COLUMN_FIRST + N_COLUMNS);
	if (rc)
		return rc;
	table_set(t, 0, COLUMN_NAME, "scenario");
	table_set(t, 0, COLUMN_METHOD, "method");
	table_set(t, 0, COLUMN_LR, "lr");
	table_set(t, 0, COLUMN_SEEDS, "seeds");
	for (int k = 0; k < N_COLUMNS; k++)
		table_set(t, 0, COLUMN_FIRST + k, "%s", columns[k].head);
	bool rates = rates_differ(list, n);
	for (int i = 0; i < n; i++)
		set_row(t, i + 1, &list[i], rates);
	return 0;
}

/* What all-reduces take in either format, and when the run would have ended. False: there are
 * none. */
static bool allreduce_line(const struct summary *s, char out[ALLREDUCE_LINE])
{
	const double time = s->field[SUMMARY_TIME].mean;
	const double full = s->field[SUMMARY_FP32_TIME].mean;
	const double half = s->field[SUMMARY_BF16_TIME].mean;
	const bool bf16 = s->result->scenario.method.wire == SIM_WIRE_BF16;
	const double rest = time - (bf16 ? half : full);
	char full_s[AXIS_TEXT], half_s[AXIS_TEXT], full_b[AXIS_TEXT], half_b[AXIS_TEXT];
	char full_end[AXIS_TEXT], half_end[AXIS_TEXT];

	if (!isfinite(full) || !isfinite(half))
		return false;
	axis_text(AXIS_BYTES, s->field[SUMMARY_FP32_BYTES].mean, full_b);
	axis_text(AXIS_BYTES, s->field[SUMMARY_BF16_BYTES].mean, half_b);
	snprintf(out, ALLREDUCE_LINE,
	        "all-reduce of fp32: %s in %s, the run %s; of bf16: %s in %s, the run %s", full_b,
	        axis_text(AXIS_SECONDS, full, full_s),
	        axis_text(AXIS_SECONDS, rest + full, full_end), half_b,
	        axis_text(AXIS_SECONDS, half, half_s),
	        axis_text(AXIS_SECONDS, rest + half, half_end));
	return true;
}

static int allreduce_lines(const struct summary *list, int n, struct buf *out)
{
	char line[ALLREDUCE_LINE], label[sizeof list->label];
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		if (!allreduce_line(&list[i], line))
			continue;
		memcpy(label, list[i].label, sizeof label);
		for (char *c = label; *c; c++) /* nobody's name may drive a terminal */
			if ((unsigned char)*c < ' ' || *c == 0x7f)
				*c = '?';
		rc = buf_printf(out, "%s: %s\n", label, line);
	}
	return rc;
}

int report_table(const struct report *r, struct buf *out, struct err *e)
{
	struct summary list[REPORT_RESULTS_MAX];
	struct table t;
	int n = r->n_results, rc = ERR_LIMIT;
	if (n >= 1 && n <= REPORT_RESULTS_MAX)
		rc = n = summarise(list, r->results, n, r->best_lr, e);
	if (rc > 0) {
		rc = make_table(&t, list, n);
		if (!rc)
			rc = table_text(&t, out);
		if (!rc)
			rc = allreduce_lines(list, n, out);
		table_close(&t);
	}
	return rc ? err_set(e, rc, "table of %d results: %s", r->n_results, err_text(rc)) : 0;
}

/* ---- the page */

static void notes(struct markup *m, const struct summary *list, int n)
{
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < list[i].result->n_runs; k++) {
			const struct sim_run *run = &list[i].result->runs[k];
			if (run->complete)
				continue;
			markup_put(m, "<p class=\"note\">");
			markup_text(m, list[i].label);
			markup_put(m, ", seed %" PRIu64 ": ", run->seed);
			markup_text(m, run->failed[0] ? run->failed : "stopped before its end");
			markup_put(m, "</p>\n");
		}
	}
}

/* What the figures do not say by themselves. */
static void about(struct markup *m, const struct summary *list, int n)
{
	char line[ALLREDUCE_LINE];

	for (int i = 0; i < n; i++) {
		if (allreduce_line(&list[i], line)) {
			markup_put(m, "<p class=\"soft\">");
			markup_text(m, list[i].label);
			markup_put(m, ", %s.</p>\n", line);
		}
		if (!list[i].result->scenario.record.train) {
			markup_put(m, "<p class=\"soft\">");
			markup_text(m, list[i].label);
			markup_put(m, ": a model of bytes and time alone: nothing was trained, so "
			              "it has no accuracy.</p>\n");
		}
	}
}

/* What is needed to repeat one result: its scenario has method, seeds and all settings. */
static void repeat(struct markup *m, const struct summary *s, bool open)
{
	struct buf text;
	markup_put(m, "<details%s><summary>", open ? " open=\"open\"" : "");
	markup_text(m, s->label);
	markup_put(m, "</summary>\n<p class=\"soft\">Seeds");
	for (int k = 0; k < s->result->n_runs; k++)
		markup_put(m, " %" PRIu64, s->result->runs[k].seed);
	markup_put(m, ". Save this as scenario.json and run <code>dunlin simulate "
	              "scenario.json</code>.</p>\n<pre>");
	buf_init(&text, SCENARIO_TEXT_MAX);
	int rc = scenario_print(&s->result->scenario, false, &text);
	if (!rc)
		markup_text(m, text.data);
	else if (!m->rc)
		m->rc = rc;
	buf_close(&text);
	markup_put(m, "</pre></details>\n");
}

static void subtitle(const struct summary *list, int n, char out[128])
{
	const struct sim_result *r = list[0].result;
	if (n > 1)
		snprintf(out, 128, "%d simulations side by side; bands and ± are standard errors",
		        n);
	else
		snprintf(out, 128, "%.40s, %" PRId64 " agents, %d %s", r->method,
		        r->scenario.agents.count, r->n_runs, r->n_runs == 1 ? "seed" : "seeds");
}

static int write_page(struct markup *m, const struct report *r, const struct summary *list, int n)
{
	struct table t;
	char below[128];
	int rc = make_table(&t, list, n);
	if (!rc) {
		subtitle(list, n, below);
		page_begin(m, n > 1 ? "Comparison of simulations" : list[0].label, below);
		notes(m, list, n);
		page_section(m, "Final figures");
		if (n == 1)
			table_html_list(&t, m);
		else
			table_html(&t, m);
		markup_put(m, "<p class=\"soft\">Time is virtual. Sent: bytes of all agents and "
		              "servers, modelled. Synchronised: steps with an exchange. "
		              "Ξ: consensus distance of the agents.</p>\n");
		about(m, list, n);
		rc = report__plots(m, list, n);
	}
	if (!rc) {
		page_section(m, "To repeat it");
		if (r->command) {
			markup_put(m, "<pre>");
			markup_text(m, r->command);
			markup_put(m, "</pre>\n");
		}
		for (int i = 0; i < n; i++)
			repeat(m, &list[i], false);
		page_end(m, r->version);
		rc = m->rc;
	}
	table_close(&t);
	return rc;
}

int report_page(const struct report *r, struct buf *out, struct err *e)
{
	struct summary list[REPORT_RESULTS_MAX];
	struct markup m = {.buf = out};
	int n = r->n_results, rc = ERR_LIMIT;
	if (n >= 1 && n <= REPORT_RESULTS_MAX)
		rc = n = summarise(list, r->results, n, r->best_lr, e);
	if (rc > 0)
		rc = write_page(&m, r, list, n);
	return rc ? err_set(e, rc, "report of %d results: %s", r->n_results, err_text(rc)) : 0;
}

int report_save(const struct report *r, const char *path, struct err *e)
{
	struct buf text;
	buf_init(&text, PAGE_BYTES_MAX);
	int rc = report_page(r, &text, e);
	if (!rc)
		rc = page_save(&text, path, e);
	buf_close(&text);
	return rc;
}
