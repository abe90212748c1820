/* SPDX-License-Identifier: MIT */
/* Reading logs and metrics. A line that was half written when its process was killed is skipped, as
 * is any that has no number where one is wanted. Memory grows with the points of the file, whose
 * size is bounded; series beyond PLOT_SERIES_MAX are an error. */
#include "agent/report/series_file.h"

#include "agent/base/limits.h"
#include "agent/json/jsontext.h"

#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 128

void series_init(struct series_set *s)
{
	*s = (struct series_set){.begin = NAN, .end = NAN};
}

void series_close(struct series_set *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->list[i].x);
		free(s->list[i].y);
	}
	free(s->list);
	series_init(s);
}

static int find(struct series_set *s, const char *name, struct series **out, struct err *e)
{
	for (size_t i = 0; i < s->n; i++) {
		if (strncmp(s->list[i].name, name, SERIES_NAME - 1) == 0) {
			*out = &s->list[i];
			return 0;
		}
	}
	if (s->n == PLOT_SERIES_MAX)
		return err_set(e, ERR_LIMIT, "more than %d lines to draw", PLOT_SERIES_MAX);
	struct series *list = realloc(s->list, (s->n + 1) * sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a series");
	s->list = list;
	*out = &list[s->n++];
	**out = (struct series){0};
	snprintf((*out)->name, SERIES_NAME, "%s", name);
	return 0;
}

static int add_point(struct series *s, double x, double y, struct err *e)
{
	if (s->n == s->room) {
		size_t room = s->room ? s->room * 2 : 256;
		double *xs = realloc(s->x, room * sizeof *xs);
		if (xs)
			s->x = xs;
		double *ys = xs ? realloc(s->y, room * sizeof *ys) : NULL;
		if (!ys)
			return err_set(e, ERR_NOMEM, "no memory for %zu points", room);
		s->y = ys;
		s->room = room;
	}
	s->x[s->n] = x;
	s->y[s->n++] = y;
	return 0;
}

/* "a+b" taken apart in place; 0 terms: there are too many. */
static int split_terms(char *text, const char *terms[SERIES_TERMS])
{
	int n = 0;
	for (char *rest = NULL, *t = strtok_r(text, "+", &rest); t;
	        t = strtok_r(NULL, "+", &rest)) {
		if (n == SERIES_TERMS)
			return 0;
		terms[n++] = t;
	}
	return n;
}

static bool number(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && *end == '\0' && isfinite(*out);
}

/* Takes a line out of *rest, which ends where the text does. */
static char *next_line(char **rest)
{
	char *line = *rest;
	if (!*line)
		return NULL;
	char *end = line + strcspn(line, "\n");
	*rest = *end ? end + 1 : end;
	*end = '\0';
	return line;
}

/* ---- the log of top */

static int split_columns(char *line, char *out[COLUMNS_MAX])
{
	int n = 0;
	for (char *s = line; s && n < COLUMNS_MAX; n++) {
		out[n] = s;
		s = strchr(s, '\t');
		if (s)
			*s++ = '\0';
	}
	return n;
}

static int column_of(char *const *head, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(head[i], name) == 0)
			return i;
	return -1;
}

struct log_columns {
	int x, y[SERIES_TERMS], n_terms, name, state, least;
};

static int find_columns(struct log_columns *c, char *head, const char *x, const char **terms,
        int n_terms, struct err *e)
{
	char *names[COLUMNS_MAX];
	int n = split_columns(head, names);
	*c = (struct log_columns){.n_terms = n_terms};
	c->x = column_of(names, n, x);
	c->name = column_of(names, n, "name");
	c->state = column_of(names, n, "state");
	if (c->name < 0 || c->state < 0)
		return err_set(e, ERR_FORMAT, "neither metrics nor a log of dunlin top");
	if (c->x < 0)
		return err_set(e, ERR_NOTFOUND, "there is no column %s", x);
	for (int i = 0; i < n_terms; i++) {
		c->y[i] = column_of(names, n, terms[i]);
		if (c->y[i] < 0)
			return err_set(e, ERR_NOTFOUND, "there is no column %s", terms[i]);
	}
	c->least = n;
	return 0;
}

static int add_log_line(
        struct series_set *s, const struct log_columns *c, char *line, bool timed, struct err *e)
{
	char *cell[COLUMNS_MAX];
	struct series *to;
	double x, y = 0, term;
	if (split_columns(line, cell) < c->least || !number(cell[c->x], &x))
		return 0;
	if (timed) {
		s->begin = fmin(s->begin, x);
		s->end = fmax(s->end, x);
	}
	if (strcmp(cell[c->state], "up") != 0)
		return 0;
	for (int i = 0; i < c->n_terms; i++) {
		if (!number(cell[c->y[i]], &term))
			return 0;
		y += term;
	}
	int rc = find(s, cell[c->name], &to, e);
	return rc ? rc : add_point(to, x, y, e);
}

static int add_log(struct series_set *s, char *text, const char *x, const char **terms, int n_terms,
        struct err *e)
{
	struct log_columns c;
	char *line = next_line(&text);
	int rc = find_columns(&c, line, x, terms, n_terms, e);
	while (!rc && (line = next_line(&text)))
		rc = add_log_line(s, &c, line, strcmp(x, "time") == 0, e);
	return rc;
}

/* ---- metrics */

static bool member(const cJSON *object, const char *name, double *out)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
	if (!cJSON_IsNumber(v))
		return false;
	*out = v->valuedouble;
	return true;
}

/* Of evaluations the accuracy; of all else what single steps say. */
static bool wanted(const cJSON *object, const char *y)
{
	const cJSON *event = cJSON_GetObjectItemCaseSensitive(object, "event");
	const char *kind = strcmp(y, "accuracy") == 0 ? "eval" : "step";
	return cJSON_IsString(event) && strcmp(event->valuestring, kind) == 0;
}

static int add_metrics(struct series_set *s, const char *path, char *text, const char *x,
        const char **terms, int n_terms, struct err *e)
{
	struct json_fault fault;
	struct series *to = NULL;
	char copy[LIMIT_PATH], *line;
	int rc = 0;
	snprintf(copy, sizeof copy, "%s", path);
	/* out/two/metrics.jsonl is of two. */
	char *folder = strrchr(copy, '/');
	if (folder) {
		*folder = '\0';
		folder = basename(copy);
	}
	while (!rc && (line = next_line(&text))) {
		cJSON *object = json_parse(line, strlen(line), false, &fault);
		double at, y = 0, term;
		bool good = object && wanted(object, terms[0]) && member(object, x, &at);
		for (int i = 0; good && i < n_terms; i++) {
			good = member(object, terms[i], &term);
			y += good ? term : 0;
		}
		cJSON_Delete(object);
		if (!good)
			continue;
		if (strcmp(x, "time") == 0) {
			s->begin = fmin(s->begin, at);
			s->end = fmax(s->end, at);
		}
		if (!to)
			rc = find(s, folder ? folder : path, &to, e);
		if (!rc)
			rc = add_point(to, at, y, e);
	}
	if (!rc && !to)
		rc = err_set(e, ERR_NOTFOUND, "no line has both %s and %s", x, terms[0]);
	return rc;
}

int series_add(struct series_set *s, const char *path, struct buf *text, const char *x,
        const char *y, struct err *e)
{
	const char *terms[SERIES_TERMS];
	char copy[256];
	int rc = ERR_INVALID;
	if ((size_t)snprintf(copy, sizeof copy, "%s", y) >= sizeof copy)
		return err_set(e, ERR_INVALID, "%.40s…: too long a name", y);
	int n = split_terms(copy, terms);
	if (n == 0)
		return err_set(e, ERR_INVALID, "%s: one to %d names with + were expected", y,
		        SERIES_TERMS);
	if (text->len == 0)
		rc = err_set(e, ERR_FORMAT, "the file is empty");
	else if (text->data[0] == '{')
		rc = add_metrics(s, path, text->data, x, terms, n, e);
	else
		rc = add_log(s, text->data, x, terms, n, e);
	if (rc)
		err_prefix(e, "%s", path);
	return rc;
}

void series_finish(struct series_set *s, const char *x)
{
	if (strcmp(x, "time") != 0 || !isfinite(s->begin))
		return;
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->list[i].n; k++)
			s->list[i].x[k] -= s->begin;
}

enum axis_unit series_unit(const char *name)
{
	if (strstr(name, "bytes"))
		return AXIS_BYTES;
	if (strstr(name, "accuracy") || strcmp(name, "lssr") == 0)
		return AXIS_PERCENT;
	if (strcmp(name, "time") == 0)
		return AXIS_SECONDS;
	if (strcmp(name, "step") == 0 || strcmp(name, "samples") == 0 || strcmp(name, "clock") == 0)
		return AXIS_COUNT;
	return AXIS_NUMBER;
}
