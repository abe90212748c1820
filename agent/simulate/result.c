/* SPDX-License-Identifier: MIT */
/* Results as lines of JSON: the head, then each run with its points, changes of membership and
 * meetings. Lines keep every single text small, whatever the number of agents and points, so the
 * limits of the parser hold for each of them.
 *
 * What is read may be anybody's file: every number has its range, arrays grow with what is there,
 * and what does not fit the scenario in the head is refused with its line. */
#include "agent/simulate/result.h"

#include "agent/json/jsontext.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WHOLE_MAX 9007199254740992.0 /* up to it doubles are exact */
#define POINTS_MAX 100000            /* of one run */
#define MEMBERSHIP_MAX 1000000
#define MET_BYTES_MAX (1ull << 30) /* of all runs together */
#define SCENARIO_TEXT_MAX (1u << 20)

void sim_result_close(struct sim_result *r)
{
	for (int i = 0; i < r->n_runs; i++)
		sim_run_close(&r->runs[i]);
	free(r->runs);
	scenario_close(&r->scenario);
	memset(r, 0, sizeof *r);
}

/* ---- fields, for both ways */

/* LATER: a real that older files do not have. */
enum kept_type { KEPT_REAL, KEPT_LATER, KEPT_WHOLE, KEPT_WHOLE32, KEPT_BOOL };
struct field {
	const char *key;
	enum kept_type type;
	size_t at;
};
#define OF(type, owner, name)                                    \
	{                                                        \
#name, KEPT_##type, offsetof(struct owner, name) \
	}

static const struct field point_fields[] = {
        OF(REAL, sim_point, time_s),
        OF(WHOLE, sim_point, samples),
        OF(WHOLE, sim_point, steps),
        OF(WHOLE, sim_point, bytes),
        OF(WHOLE, sim_point, exchanges),
        OF(WHOLE, sim_point, live),
        OF(REAL, sim_point, train_loss),
        OF(REAL, sim_point, loss),
        OF(REAL, sim_point, accuracy),
        OF(REAL, sim_point, xi),
        OF(REAL, sim_point, xi_target),
        OF(LATER, sim_point, xi_left),
        {NULL, KEPT_REAL, 0},
};
static const struct field run_fields[] = {
        OF(WHOLE, sim_run, seed),
        OF(BOOL, sim_run, complete),
        OF(WHOLE32, sim_run, agents),
        OF(WHOLE, sim_run, parameters),
        OF(REAL, sim_run, target_s),
        OF(WHOLE, sim_run, target_bytes),
        OF(WHOLE, sim_run, target_samples),
        OF(REAL, sim_run, synchronised),
        OF(REAL, sim_run, compute_s),
        OF(REAL, sim_run, wait_s),
        OF(REAL, sim_run, real_s),
        OF(LATER, sim_run, fp32_s),
        OF(LATER, sim_run, fp32_bytes),
        OF(LATER, sim_run, bf16_s),
        OF(LATER, sim_run, bf16_bytes),
        {NULL, KEPT_REAL, 0},
};
static const struct field change_fields[] = {
        OF(REAL, sim_membership, time_s),
        OF(WHOLE32, sim_membership, agent),
        OF(WHOLE32, sim_membership, live),
        {NULL, KEPT_REAL, 0},
};

static int print_fields(struct buf *out, const struct field *f, const void *from)
{
	int rc = 0;
	for (const struct field *first = f; f->key && !rc; f++) {
		const char *at = (const char *)from + f->at;
		const char *comma = f == first ? "" : ",";
		if (f->type == KEPT_WHOLE)
			rc = buf_printf(
			        out, "%s\"%s\":%" PRIu64, comma, f->key, *(const uint64_t *)at);
		else if (f->type == KEPT_WHOLE32)
			rc = buf_printf(
			        out, "%s\"%s\":%" PRIu32, comma, f->key, *(const uint32_t *)at);
		else if (f->type == KEPT_BOOL)
			rc = buf_printf(out, "%s\"%s\":%s", comma, f->key,
			        *(const bool *)at ? "true" : "false");
		else if (isfinite(*(const double *)at))
			rc = buf_printf(out, "%s\"%s\":%.17g", comma, f->key, *(const double *)at);
		else
			rc = buf_printf(out, "%s\"%s\":null", comma, f->key);
	}
	return rc;
}

static int read_field(const struct field *f, const cJSON *v, void *into)
{
	char *at = (char *)into + f->at;
	if (f->type == KEPT_BOOL) {
		if (!cJSON_IsBool(v))
			return ERR_FORMAT;
		*(bool *)at = cJSON_IsTrue(v);
		return 0;
	}
	const bool real = f->type == KEPT_REAL || f->type == KEPT_LATER;

	if ((real && cJSON_IsNull(v)) || (f->type == KEPT_LATER && !v)) {
		*(double *)at = NAN;
		return 0;
	}
	if (!cJSON_IsNumber(v))
		return ERR_FORMAT;
	double most = f->type == KEPT_WHOLE32 ? UINT32_MAX : WHOLE_MAX;
	if (real) {
		*(double *)at = v->valuedouble;
		return 0;
	}
	if (v->valuedouble < 0 || v->valuedouble > most || floor(v->valuedouble) != v->valuedouble)
		return ERR_FORMAT;
	if (f->type == KEPT_WHOLE)
		*(uint64_t *)at = (uint64_t)v->valuedouble;
	else
		*(uint32_t *)at = (uint32_t)v->valuedouble;
	return 0;
}

static int read_fields(const struct field *f, const cJSON *object, void *into, struct err *e)
{
	for (; f->key; f++)
		if (read_field(f, cJSON_GetObjectItemCaseSensitive(object, f->key), into))
			return err_set(e, ERR_FORMAT,
			        "%s is missing or not a number that it can be", f->key);
	return 0;
}

/* ---- writing */

static int print_head(const struct sim_result *r, struct buf *out)
{
	struct buf text;
	buf_init(&text, SCENARIO_TEXT_MAX);
	int rc = scenario_print(&r->scenario, false, &text);
	if (!rc)
		rc = buf_printf(out,
		        "{\"format\":\"%s\",\"version\":\"%s\",\"name\":", RESULT_FORMAT,
		        PACKAGE_VERSION);
	if (!rc)
		rc = buf_json_string(out, r->name);
	if (!rc)
		rc = buf_printf(out, ",\"method\":");
	if (!rc)
		rc = buf_json_string(out, r->method);
	if (!rc)
		rc = buf_printf(out, ",\"runs\":%d,\"scenario\":", r->n_runs);
	if (!rc)
		rc = buf_json_string(out, text.data);
	if (!rc)
		rc = buf_printf(out, "}\n");
	buf_close(&text);
	return rc;
}

/* {"met":[from, to, count, to, count, …]}, for each agent that sent to any. */
static int print_met(const struct sim_run *r, uint32_t from, struct buf *out)
{
	const uint32_t *row = r->met + (size_t)from * r->agents;
	bool any = false;
	int rc = 0;
	for (uint32_t to = 0; to < r->agents && !rc; to++) {
		if (!row[to])
			continue;
		if (!any)
			rc = buf_printf(out, "{\"met\":[%" PRIu32, from);
		any = true;
		if (!rc)
			rc = buf_printf(out, ",%" PRIu32 ",%" PRIu32, to, row[to]);
	}
	return rc || !any ? rc : buf_printf(out, "]}\n");
}

static int print_run(const struct sim_run *r, struct buf *out)
{
	int rc = buf_printf(out, "{\"run\":{\"failed\":");
	if (!rc)
		rc = buf_json_string(out, r->failed);
	if (!rc)
		rc = buf_printf(out, ",");
	if (!rc)
		rc = print_fields(out, run_fields, r);
	if (!rc)
		rc = buf_printf(out, "}}\n");
	for (int i = 0; i < r->n_points && !rc; i++) {
		rc = buf_printf(out, "{\"point\":{");
		if (!rc)
			rc = print_fields(out, point_fields, &r->points[i]);
		if (!rc)
			rc = buf_printf(out, "}}\n");
	}
	for (int i = 0; i < r->n_membership && !rc; i++) {
		rc = buf_printf(out, "{\"change\":{\"what\":\"%s\",",
		        sim_change_names[r->membership[i].what]);
		if (!rc)
			rc = print_fields(out, change_fields, &r->membership[i]);
		if (!rc)
			rc = buf_printf(out, "}}\n");
	}
	for (uint32_t i = 0; r->met && i < r->agents && !rc; i++)
		rc = print_met(r, i, out);
	return rc;
}

int sim_result_print(const struct sim_result *r, struct buf *out)
{
	int rc = print_head(r, out);
	for (int i = 0; i < r->n_runs && !rc; i++)
		rc = print_run(&r->runs[i], out);
	return rc;
}

/* ---- reading */

struct reader {
	struct sim_result *result;
	int n_wanted; /* runs that the head promises */
	int room_points, room_membership;
	uint64_t met_bytes;
};

static int read_text(const cJSON *object, const char *key, char *out, size_t room, struct err *e)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
	if (!cJSON_IsString(v) || strlen(v->valuestring) >= room)
		return err_set(e, ERR_FORMAT, "%s is missing or too long", key);
	memcpy(out, v->valuestring, strlen(v->valuestring) + 1);
	return 0;
}

static int read_scenario(struct scenario *s, const char *text, struct err *e)
{
	struct config_problems p;
	config_problems_init(&p, "scenario");
	int rc = scenario_read(s, text, strlen(text), &p);
	if (rc)
		err_set(e, ERR_FORMAT, "the scenario in it is not one that this version reads");

	return rc ? ERR_FORMAT : 0;
}

static int read_head(struct reader *d, const cJSON *object, struct err *e)
{
	struct sim_result *r = d->result;
	char format[32];
	const cJSON *runs = cJSON_GetObjectItemCaseSensitive(object, "runs");
	const cJSON *scenario = cJSON_GetObjectItemCaseSensitive(object, "scenario");

	if (read_text(object, "format", format, sizeof format, e) || strcmp(format, RESULT_FORMAT))
		return err_set(e, ERR_FORMAT, "not a result of dunlin simulate");
	int rc = read_text(object, "name", r->name, sizeof r->name, e);
	if (!rc)
		rc = read_text(object, "method", r->method, sizeof r->method, e);
	if (rc)
		return rc;
	if (!cJSON_IsNumber(runs) || runs->valuedouble < 0 ||
	        runs->valuedouble > SCENARIO_SEEDS_MAX ||
	        floor(runs->valuedouble) != runs->valuedouble || !cJSON_IsString(scenario))
		return err_set(e, ERR_FORMAT, "runs or scenario is missing or wrong");
	d->n_wanted = (int)runs->valuedouble;
	r->runs = calloc((size_t)d->n_wanted + 1, sizeof *r->runs);
	if (!r->runs)
		return err_set(e, ERR_NOMEM, "no memory for %d runs", d->n_wanted);
	return read_scenario(&r->scenario, scenario->valuestring, e);
}

static int read_run(struct reader *d, const cJSON *object, struct err *e)
{
	struct sim_result *r = d->result;
	if (r->n_runs == d->n_wanted)
		return err_set(e, ERR_FORMAT, "more runs than its head says");
	struct sim_run *run = &r->runs[r->n_runs++];
	d->room_points = d->room_membership = 0;
	int rc = read_fields(run_fields, object, run, e);
	if (!rc)
		rc = read_text(object, "failed", run->failed, sizeof run->failed, e);
	if (!rc && run->agents != r->scenario.agents.count)
		rc = err_set(e, ERR_FORMAT, "another number of agents than in the scenario");
	return rc;
}

/* Room for one more of the list, whose length is n; the most is a bound of ours. */
static int more(void **list, int n, int *room, int most, size_t size, struct err *e)
{
	if (n < *room)
		return 0;
	int want = *room ? *room * 2 : 64;
	void *larger = n < most ? realloc(*list, (size_t)want * size) : NULL;
	if (!larger)
		return err_set(e, n < most ? ERR_NOMEM : ERR_LIMIT, "more than %d of one kind", n);
	*list = larger;
	*room = want;
	return 0;
}

static int read_point(struct reader *d, struct sim_run *run, const cJSON *object, struct err *e)
{
	struct sim_point p;
	void *list = run->points;
	int rc = read_fields(point_fields, object, &p, e);
	if (!rc)
		rc = more(&list, run->n_points, &d->room_points, POINTS_MAX, sizeof p, e);
	if (rc)
		return rc;
	run->points = list;
	if (p.live > run->agents)
		return err_set(e, ERR_FORMAT, "more agents live than there are");
	run->points[run->n_points++] = p;
	return 0;
}

static int read_change(struct reader *d, struct sim_run *run, const cJSON *object, struct err *e)
{
	struct sim_membership c = {0};
	void *list = run->membership;
	char what[16];
	int rc = read_fields(change_fields, object, &c, e), i = 0;
	if (!rc)
		rc = read_text(object, "what", what, sizeof what, e);
	if (!rc)
		rc = more(
		        &list, run->n_membership, &d->room_membership, MEMBERSHIP_MAX, sizeof c, e);
	if (rc)
		return rc;
	run->membership = list;
	while (i <= SIM_TURNED_BAD && strcmp(sim_change_names[i], what) != 0)
		i++;
	if (i > SIM_TURNED_BAD || c.agent >= run->agents || c.live > run->agents)
		return err_set(e, ERR_FORMAT, "a change that cannot be");
	c.what = (enum sim_change)i;
	run->membership[run->n_membership++] = c;
	return 0;
}

static bool number_below(const cJSON *v, double end, uint32_t *out)
{
	if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble >= end ||
	        floor(v->valuedouble) != v->valuedouble)
		return false;
	*out = (uint32_t)v->valuedouble;
	return true;
}

static int read_met(struct reader *d, struct sim_run *run, const cJSON *list, struct err *e)
{
	uint32_t from, to, count;
	const cJSON *v = cJSON_IsArray(list) ? list->child : NULL;
	size_t n = run->agents;
	if (!run->met) {
		d->met_bytes += n * n * sizeof *run->met;
		run->met = d->met_bytes <= MET_BYTES_MAX ? calloc(n * n, sizeof *run->met) : NULL;
		if (!run->met)
			return err_set(e, ERR_LIMIT, "too large: who met whom");
	}
	if (!number_below(v, run->agents, &from))
		return err_set(e, ERR_FORMAT, "met: a list of numbers of agents was expected");
	for (v = v->next; v; v = v->next->next) {
		if (!number_below(v, run->agents, &to) || !v->next ||
		        !number_below(v->next, (double)UINT32_MAX + 1, &count))
			return err_set(e, ERR_FORMAT, "met: an agent and a count were expected");
		run->met[from * n + to] = count;
	}
	return 0;
}

static int read_line(struct reader *d, const char *line, size_t len, bool first, struct err *e)
{
	struct json_fault fault;
	cJSON *object = json_parse(line, len, false, &fault);
	if (!object)
		return err_set(e, ERR_FORMAT, "%s", fault.text);
	const cJSON *v = cJSON_IsObject(object) ? object->child : NULL;
	struct sim_run *run =
	        d->result->n_runs > 0 ? &d->result->runs[d->result->n_runs - 1] : NULL;
	int rc;
	if (first)
		rc = read_head(d, object, e);
	else if (v && strcmp(v->string, "run") == 0)
		rc = read_run(d, v, e);
	else if (v && run && strcmp(v->string, "point") == 0)
		rc = read_point(d, run, v, e);
	else if (v && run && strcmp(v->string, "change") == 0)
		rc = read_change(d, run, v, e);
	else if (v && run && strcmp(v->string, "met") == 0)
		rc = read_met(d, run, v, e);
	else
		rc = err_set(e, ERR_FORMAT, "neither run, point, change nor met");
	cJSON_Delete(object);
	return rc;
}

static int read_lines(struct reader *d, const struct buf *text, const char *path, struct err *e)
{
	int number = 0, rc = 0;
	const char *s = text->len ? text->data : "";
	while (*s && !rc) {
		size_t len = strcspn(s, "\n");
		rc = read_line(d, s, len, number == 0, e);
		number++;
		s += len + (s[len] == '\n');
	}
	if (rc) {
		err_prefix(e, "%s:%d", path, number);
		return rc;
	}
	if (number == 0 || d->result->n_runs != d->n_wanted)
		return err_set(e, ERR_FORMAT, "%s: not whole", path);
	return 0;
}

int sim_result_load(struct sim_result *r, const char *path, struct err *e)
{
	struct reader d = {.result = r};
	char inside[LIMIT_PATH + sizeof RESULT_FILE];
	struct stat st;
	struct buf text;

	memset(r, 0, sizeof *r);
	scenario_defaults(&r->scenario);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		int n = snprintf(inside, sizeof inside, "%s/%s", path, RESULT_FILE);
		if (n < 0 || (size_t)n >= sizeof inside)
			return err_set(e, ERR_LIMIT, "%s: a path that is too long", path);
		path = inside;
	}
	buf_init(&text, RESULT_BYTES_MAX);
	int rc = file_read(&text, path, e);
	if (!rc)
		rc = read_lines(&d, &text, path, e);
	buf_close(&text);
	if (rc)
		sim_result_close(r);
	return rc;
}
