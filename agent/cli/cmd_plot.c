/* SPDX-License-Identifier: MIT */
/* dunlin plot LOG...: draws what agents have written: their metrics files, or the log of dunlin
 * top, one line for each agent. FILE.svg has one drawing, FILE.html a page with one for each name
 * after --y. The file is written as a whole or not at all. */
#include "agent/base/log.h"
#include "agent/cli/cli.h"
#include "agent/report/page.h"
#include "agent/report/series_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_BYTES_MAX (1u << 20)
#define DRAWINGS_MAX 16

struct plot_command {
	const char *x, *title, *out; /* borrowed */
	char names[256];             /* of --y, taken apart */
	const char *y[DRAWINGS_MAX]; /* into names */
	int n_y;
	struct buf events; /* the file of events, taken apart */
	struct plot_mark mark[PLOT_MARKS_MAX];
	size_t n_marks;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);
	return n > k && strcmp(text + n - k, end) == 0;
}

static int read_events(struct plot_command *c, const char *path, struct err *e)
{
	buf_init(&c->events, EVENTS_BYTES_MAX);
	int rc = path ? file_read(&c->events, path, e) : 0;
	char *rest = c->events.data, *save = NULL;
	if (rc || !rest)
		return rc;
	for (char *line = strtok_r(rest, "\n", &save); line && c->n_marks < PLOT_MARKS_MAX;
	        line = strtok_r(NULL, "\n", &save)) {
		char *end;
		double x = strtod(line, &end);
		if (end == line || *end != '\t' || !isfinite(x))
			return err_set(
			        e, ERR_FORMAT, "%s: a line is not a time, a tab and a text", path);
		c->mark[c->n_marks++] = (struct plot_mark){x, end + 1};
	}
	return 0;
}

static int read_series(struct series_set *s, const struct plot_command *c,
        const struct cli_args *args, const char *y, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < args->n_files && !rc; i++) {
		struct buf text;
		buf_init(&text, SERIES_FILE_MAX);
		rc = file_read(&text, args->file[i], e);
		if (!rc)
			rc = series_add(s, args->file[i], &text, c->x, y, e);
		buf_close(&text);
	}
	if (!rc && s->n == 0)
		rc = err_set(e, ERR_NOTFOUND, "%s: nothing to draw", y);
	series_finish(s, c->x);
	return rc;
}

static int draw(struct buf *out, const struct plot_command *c, const struct series_set *s,
        const char *y, bool alone)
{
	struct plot_series lines[PLOT_SERIES_MAX];
	struct plot_mark marks[PLOT_MARKS_MAX];
	bool timed = strcmp(c->x, "time") == 0;
	for (size_t i = 0; i < s->n; i++)
		lines[i] = (struct plot_series){.name = s->list[i].name,
		        .x = s->list[i].x,
		        .y = s->list[i].y,
		        .n = s->list[i].n,
		        .colour = (unsigned)i};
	for (size_t i = 0; i < c->n_marks; i++)
		marks[i] = (struct plot_mark){c->mark[i].x - s->begin, c->mark[i].text};
	const struct plot p = {.title = c->title && c->n_y == 1 ? c->title : y,
	        .x_text = c->x,
	        .y_text = y,
	        .x_unit = series_unit(c->x),
	        .y_unit = series_unit(y),
	        .y_zero = series_unit(y) != AXIS_PERCENT,
	        .series = lines,
	        .n_series = s->n,
	        .marks = marks,
	        .n_marks = timed ? c->n_marks : 0,
	        .alone = alone,
	        .width = alone ? 720 : 0,
	        .height = alone ? 400 : 0};
	return plot_lines(out, &p);
}

static int draw_all(struct buf *out, const struct plot_command *c, const struct cli_args *args,
        bool page, struct err *e)
{
	struct markup m = {.buf = out};
	int rc = 0;
	if (page) {
		page_begin(&m, c->title ? c->title : "Training", "");
		page_plots_begin(&m);
	}
	for (int i = 0; i < c->n_y && !rc; i++) {
		struct series_set s;
		series_init(&s);
		rc = read_series(&s, c, args, c->y[i], e);
		if (!rc) {
			if (page)
				page_plot_begin(&m);
			rc = draw(out, c, &s, c->y[i], !page);
			if (page)
				page_plot_end(&m);
			if (rc)
				err_set(e, rc, "drawing: %s", err_text(rc));
		}
		series_close(&s);
	}
	if (page) {
		page_plots_end(&m);
		page_end(&m, PACKAGE_VERSION);
	}
	if (!rc && m.rc)
		rc = err_set(e, m.rc, "page: %s", err_text(m.rc));
	return rc;
}

/* The names of --y. 0, or the exit code for what was wrong, which is told. */
static int split_names(struct plot_command *c, const char *y, bool page)
{
	char *save = NULL;
	if ((size_t)snprintf(c->names, sizeof c->names, "%s", y) >= sizeof c->names)
		return cli_usage_error(CMD_PLOT, "--y: too long");
	for (char *t = strtok_r(c->names, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		if (c->n_y == DRAWINGS_MAX)
			return cli_usage_error(
			        CMD_PLOT, "--y: more than %d drawings", DRAWINGS_MAX);
		c->y[c->n_y++] = t;
	}
	if (c->n_y == 0 || (c->n_y > 1 && !page))
		return cli_usage_error(
		        CMD_PLOT, "--y: one name was expected; a page takes several");
	return 0;
}

static int run_plot(const struct cli_args *args)
{
	struct plot_command c = {.out = cli_own(args, CMD_PLOT, "--out")};
	const char *x = cli_own(args, CMD_PLOT, "--x"), *y = cli_own(args, CMD_PLOT, "--y");
	struct buf text;
	struct err e;
	int status;

	if (!c.out || (!ends_with(c.out, ".svg") && !ends_with(c.out, ".html")))
		return cli_usage_error(CMD_PLOT, "--out: a FILE.svg or FILE.html was expected");
	const bool page = ends_with(c.out, ".html");
	c.x = x ? x : "time";
	c.title = cli_own(args, CMD_PLOT, "--title");
	status = split_names(&c, y ? y : page ? "loss,accuracy" : "loss", page);
	if (status)
		return status;
	buf_init(&text, PAGE_BYTES_MAX);
	int rc = read_events(&c, cli_own(args, CMD_PLOT, "--events"), &e);
	if (!rc)
		rc = draw_all(&text, &c, args, page, &e);
	if (!rc)
		rc = page_save(&text, c.out, &e);
	if (rc)
		log_error("%s", e.msg);
	buf_close(&text);
	buf_close(&c.events);
	return rc ? exit_code(rc, EXIT_DATA) : EXIT_OK;
}

int cmd_plot(int argc, char **argv)
{
	struct config c;
	struct cli_args args;
	int status;

	if (!cli_begin(&c, &args, CMD_PLOT, argc, argv, &status))
		return status;
	status = run_plot(&args);
	config_close(&c);
	return status;
}
