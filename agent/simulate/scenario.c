/* SPDX-License-Identifier: MIT */
/* Scenario files: the sections of a config, four sections of its own, and a list of events.
 *
 * The tree of the text is walked once. What belongs to a config goes to config_read_tree with the
 * rest left out; own sections are rows of a table, set by the same functions as a config's
 * settings, so that ranges, wrong kinds and misspelt words are told alike. Nothing stops at the
 * first problem. Only a text that is no JSON at all ends the reading. */
#include "agent/simulate/scenario.h"

#include "agent/config/config_model.h"
#include "agent/config/options.h"
#include "agent/json/jsontext.h"
#include "agent/simulate/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const scenario_speeds[] = {"equal", "uniform", "lognormal", NULL};
static const char *const scenario_splits[] = {
        "iid", "shared", "shard", "dirichlet", "labels", NULL};
static const char *const scenario_wires[] = {"fp32", "bf16", NULL};
static const char *const scenario_topologies[] = {
        "ring", "exponential", "one_peer", "complete", NULL};
static const char *const scenario_controls[] = {"none", "measure", "share", "gradient", NULL};
static const char *const scenario_controls_by[] = {"truth", "estimate", NULL};
static const char *const whats[] = {
        "join", "leave", "crash", "pause", "slow", "partition", "heal", "bad", NULL};
_Static_assert(SPEED_LOGNORMAL == 2 && SPLIT_LABELS == 4 && SIM_WIRE_BF16 == 1 &&
                       TOPOLOGY_COMPLETE == 3 && EVENT_BAD == 7 && CONTROL_GRADIENT == 3 &&
                       CONTROL_BY_ESTIMATE == 1,
        "the lists above follow their enums");

#define ROW(type_, section_, field_, ...)                                \
	{.key = #section_ "." #field_,                                   \
	        .type = type_,                                           \
	        .offset = offsetof(struct scenario, section_.field_),    \
	        .size = sizeof(((struct scenario *)0)->section_.field_), \
	        __VA_ARGS__},
#define INT(section, field, lo, hi, dflt_, help_) \
	ROW(SET_INT, section, field, .min = lo, .max = hi, .dflt = dflt_, .help = help_)
#define REAL(section, field, lo, hi, dflt_, help_) \
	ROW(SET_REAL, section, field, .min = lo, .max = hi, .dflt = dflt_, .help = help_)
#define BOOL(section, field, dflt_, help_) \
	ROW(SET_BOOL, section, field, .dflt = dflt_, .help = help_)
#define CHOICE(section, field, list, dflt_, help_) \
	ROW(SET_CHOICE, section, field, .choices = list, .dflt = dflt_, .help = help_)
#define SECTION(name)
#define END(name)
static const struct setting rows[] = {
#include "agent/simulate/scenario_rows.h"
};
#define N_ROWS ((int)(sizeof rows / sizeof *rows))

static const char *const own_sections[] = {"agents", "network", "method", "record", NULL};
static const char *const config_sections[] = {"model", "gpt", "data", "train", "gossip", NULL};

static bool in_list(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(word, *list) == 0)
			return true;
	return false;
}

const char *scenario_method(const struct scenario *s)
{
	return sim_method_names[s->method.kind];
}

void scenario_defaults(struct scenario *s)
{
	char why[SETTING_WHY];

	memset(s, 0, sizeof *s);
	config_defaults(&s->config);
	snprintf(s->config.preset, sizeof s->config.preset, "mlp");
	snprintf(s->name, sizeof s->name, "scenario");
	for (int i = 0; i < N_ROWS; i++) {
		int rc = setting_set_text(&rows[i], s, rows[i].dflt, why);

		assert(rc == 0);
		(void)rc;
	}
}

static void free_events(struct scenario *s)
{
	for (int k = 0; k < s->n_events; k++)
		free(s->events[k].agents);
	free(s->events);
	s->events = NULL;
	s->n_events = 0;
}

void scenario_close(struct scenario *s)
{
	free_events(s);
	config_close(&s->config);
}

/* ---- reading */

static int find_row(const char *section, const char *key)
{
	char full[2 * LIMIT_NAME];

	snprintf(full, sizeof full, "%s.%s", section, key);
	for (int i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].key, full) == 0)
			return i;
	return -1;
}

static void unknown(
        const char *section, const cJSON *item, const char *const *known, struct config_problems *p)
{
	char shown[JSON_SHOWN];
	const char *meant = nearest(item->string, known);

	json_shown(item->string, shown);
	if (meant)
		config_problem(p, item->valueint,
		        "unknown key \"%s%s%s\"; did you mean \"%s%s%s\"?", section,
		        *section ? "." : "", shown, section, *section ? "." : "", meant);
	else
		config_problem(p, item->valueint,
		        "unknown key \"%s%s%s\"; `dunlin simulate init` lists all keys", section,
		        *section ? "." : "", shown);
}

static void read_row(
        struct scenario *s, const struct setting *row, const cJSON *item, struct config_problems *p)
{
	char why[SETTING_WHY], wants[SETTING_WHY];
	int rc = ERR_INVALID;

	if (cJSON_IsNumber(item))
		rc = setting_set_number(row, s, item->valuedouble, why);
	else if (cJSON_IsBool(item))
		rc = setting_set_bool(row, s, cJSON_IsTrue(item), why);
	else if (cJSON_IsString(item))
		rc = setting_set_string(row, s, item->valuestring, why);
	else
		snprintf(why, sizeof why, "must be %.100s, not %s", setting_wants(row, wants),
		        json_kind(item));
	if (rc)
		config_problem(p, item->valueint, "%s: %s", row->key, why);
}

static void read_own(struct scenario *s, const cJSON *object, struct config_problems *p)
{
	const char *known[N_ROWS + 1];
	const size_t len = strlen(object->string);
	char shown[JSON_SHOWN];
	int n = 0;

	if (!cJSON_IsObject(object)) {
		config_problem(p, object->valueint, "%s: must be an object of settings, not %s",
		        object->string, json_kind(object));
		return;
	}
	for (int i = 0; i < N_ROWS; i++)
		if (strncmp(rows[i].key, object->string, len) == 0 && rows[i].key[len] == '.')
			known[n++] = rows[i].key + len + 1;
	known[n] = NULL;
	for (const cJSON *item = object->child; item; item = item->next) {
		const int row = find_row(object->string, item->string);

		if (json_repeats(object, item))
			config_problem(p, item->valueint, "key \"%s.%s\" is given twice",
			        object->string, json_shown(item->string, shown));
		else if (row >= 0)
			read_row(s, &rows[row], item, p);
		else
			unknown(object->string, item, known, p);
	}
}

static int by_number(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void read_event_agents(
        struct scenario_event *v, const cJSON *list, int number, struct config_problems *p)
{
	const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;

	if (n < 1 || n > SCENARIO_AGENTS_MAX) {
		config_problem(p, list->valueint,
		        "events: event %d: agents: must be a list of 1 to %d numbers of agents",
		        number, SCENARIO_AGENTS_MAX);
		return;
	}
	v->agents = malloc((size_t)n * sizeof *v->agents);
	for (const cJSON *item = list->child; item && v->agents; item = item->next) {
		const double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

		if (!(d >= 0 && d < SCENARIO_AGENTS_MAX && d == (uint32_t)d)) {
			config_problem(p, item->valueint,
			        "events: event %d: agents: must be whole numbers from 0", number);
			return;
		}
		v->agents[v->n_agents++] = (uint32_t)d;
	}
	if (!v->agents)
		config_problem(p, 0, "events: out of memory");
	else
		qsort(v->agents, v->n_agents, sizeof *v->agents, by_number);
}

static void read_event_number(double *to, double max, const char *key, const cJSON *item,
        int number, struct config_problems *p)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= max))
		config_problem(p, item->valueint,
		        "events: event %d: %s: must be a number from 0 to %g", number, key, max);
	else
		*to = item->valuedouble;
}

static void read_event_what(
        struct scenario_event *v, const cJSON *item, int number, struct config_problems *p)
{
	char shown[JSON_SHOWN];

	for (int k = 0; cJSON_IsString(item) && whats[k]; k++)
		if (strcmp(item->valuestring, whats[k]) == 0) {
			v->what = (enum scenario_what)k;
			return;
		}
	const char *meant = cJSON_IsString(item) ? nearest(item->valuestring, whats) : NULL;

	config_problem(p, item->valueint,
	        "events: event %d: what: %s is not one of join, leave, crash, pause, slow, "
	        "partition, heal, bad%s%s%s",
	        number, cJSON_IsString(item) ? json_shown(item->valuestring, shown) : "it",
	        meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
}

static void read_event(
        struct scenario_event *v, const cJSON *object, int number, struct config_problems *p)
{
	static const char *const known[] = {"at_s", "what", "agents", "for_s", "factor", NULL};
	bool at = false, what = false;

	*v = (struct scenario_event){.for_s = 10, .factor = 5};
	for (const cJSON *item = object->child; item; item = item->next) {
		if (json_repeats(object, item)) {
			config_problem(p, item->valueint, "events: event %d: a key is given twice",
			        number);
		} else if (strcmp(item->string, "at_s") == 0) {
			at = true;
			read_event_number(&v->at_s, 1e9, "at_s", item, number, p);
		} else if (strcmp(item->string, "what") == 0) {
			what = true;
			read_event_what(v, item, number, p);
		} else if (strcmp(item->string, "agents") == 0) {
			read_event_agents(v, item, number, p);
		} else if (strcmp(item->string, "for_s") == 0) {
			read_event_number(&v->for_s, 1e9, "for_s", item, number, p);
		} else if (strcmp(item->string, "factor") == 0) {
			read_event_number(&v->factor, 1e6, "factor", item, number, p);
		} else {
			unknown("events", item, known, p);
		}
	}
	if (!at || !what)
		config_problem(p, object->valueint, "events: event %d: \"%s\" is missing", number,
		        at ? "what" : "at_s");
}

static int by_time(const void *a, const void *b)
{
	const struct scenario_event *x = a, *y = b;

	return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

static void read_events(struct scenario *s, const cJSON *list, struct config_problems *p)
{
	const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;

	if (n < 0 || n > SCENARIO_EVENTS_MAX) {
		config_problem(p, list->valueint, "events: must be a list of at most %d events",
		        SCENARIO_EVENTS_MAX);
		return;
	}
	free_events(s);
	s->events = calloc((size_t)n + 1, sizeof *s->events);
	if (!s->events) {
		config_problem(p, 0, "events: out of memory");
		return;
	}
	for (const cJSON *item = list->child; item; item = item->next) {
		if (!cJSON_IsObject(item)) {
			config_problem(p, item->valueint, "events: must be objects, not %s",
			        json_kind(item));
			continue;
		}
		read_event(&s->events[s->n_events], item, s->n_events + 1, p);
		s->n_events++;
	}
	/* A stable sort: few events, and mostly sorted. */
	for (int i = 1; i < s->n_events; i++)
		for (int j = i; j > 0 && by_time(&s->events[j - 1], &s->events[j]) > 0; j--) {
			const struct scenario_event v = s->events[j];

			s->events[j] = s->events[j - 1];
			s->events[j - 1] = v;
		}
}

/* A name is printed as it is: no byte of it may drive a terminal. */
static bool printable(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return false;
	return true;
}

static void read_name(struct scenario *s, const cJSON *item, struct config_problems *p)
{
	if (!cJSON_IsString(item) || strlen(item->valuestring) >= sizeof s->name ||
	        !item->valuestring[0])
		config_problem(p, item->valueint, "name: must be a string of 1 to %zu bytes",
		        sizeof s->name - 1);
	else if (!printable(item->valuestring))
		config_problem(p, item->valueint, "name: must have no control characters");
	else
		snprintf(s->name, sizeof s->name, "%s", item->valuestring);
}

static void read_root(struct scenario *s, cJSON *root, struct config_problems *p)
{
	static const char *const known[] = {"name", "model", "gpt", "data", "train", "gossip",
	        "agents", "network", "method", "record", "events", NULL};

	for (const cJSON *item = root->child; item; item = item->next) {
		if (json_repeats(root, item))
			config_problem(
			        p, item->valueint, "key \"%s\" is given twice", item->string);
		else if (strcmp(item->string, "name") == 0)
			read_name(s, item, p);
		else if (strcmp(item->string, "events") == 0)
			read_events(s, item, p);
		else if (in_list(item->string, own_sections))
			read_own(s, item, p);
		else if (!in_list(item->string, config_sections))
			unknown("", item, known, p);
	}
	/* The rest is a config's. */
	for (cJSON *item = root->child, *next; item; item = next) {
		next = item->next;
		if (!in_list(item->string, config_sections))
			cJSON_Delete(cJSON_DetachItemViaPointer(root, item));
	}
	config_read_tree(&s->config, root, p);
}

int scenario_read(struct scenario *s, const char *text, size_t len, struct config_problems *p)
{
	const int before = p->n + p->untold;
	struct json_fault fault;
	cJSON *root;

	if (len > LIMIT_CONFIG_BYTES) {
		config_problem(p, 0, "%s: larger than %u bytes", p->path ? p->path : "scenario",
		        LIMIT_CONFIG_BYTES);
		return ERR_LIMIT;
	}
	root = json_parse(text, len, true, &fault);
	if (!root)
		config_problem(p, fault.line, "column %d: %s", fault.column, fault.text);
	else if (!cJSON_IsObject(root))
		config_problem(p, root->valueint, "a scenario must be an object, {…}, not %s",
		        json_kind(root));
	else
		read_root(s, root, p);
	cJSON_Delete(root);
	return p->n + p->untold > before ? ERR_INVALID : 0;
}

int scenario_load(struct scenario *s, const char *path, struct config_problems *p)
{
	struct buf text;
	struct err e;
	int rc;

	p->path = path;
	buf_init(&text, LIMIT_CONFIG_BYTES + 1);
	rc = file_read(&text, path, &e);
	if (rc)
		config_problem(p, 0, "scenario: %s", e.msg);
	else
		rc = scenario_read(s, text.data ? text.data : "", text.len, p);
	buf_close(&text);
	return rc;
}

/* ---- printing */

static const char head[] =
        "// A scenario of `dunlin simulate`, see dunlin(1). Every line is optional: these are the\n"
        "// defaults. model, data and train are as in a config file; train.epochs is the length "
        "of\n"
        "// the run: passes over the data by all agents together.\n";

/* What a scenario may not set, or says in another way. */
static bool not_ours(const char *key)
{
	static const char *const out[] = {"data.partition.", "data.augment.", "data.read_ahead",
	        "train.accumulate", "run.", "agent.", "log."};

	for (size_t i = 0; i < sizeof out / sizeof *out; i++)
		if (strncmp(key, out[i], strlen(out[i])) == 0)
			return true;
	return false;
}

static bool not_in_example(const char *key)
{
	return not_ours(key) || strncmp(key, "gossip.", 7) == 0;
}

static int print_event(const struct scenario_event *v, struct buf *out)
{
	char at[REAL_TEXT], length[REAL_TEXT], factor[REAL_TEXT];
	int rc = buf_printf(out,
	        "    {\"at_s\": %s, \"what\": \"%s\", \"for_s\": %s, \"factor\": %s",
	        real_text(v->at_s, at), whats[v->what], real_text(v->for_s, length),
	        real_text(v->factor, factor));

	for (uint32_t k = 0; k < v->n_agents && rc == 0; k++)
		rc = buf_printf(out, "%s%u", k ? ", " : ", \"agents\": [", v->agents[k]);
	return rc ? rc : buf_printf(out, v->n_agents ? "]}" : "}");
}

static int print_events(const struct scenario *s, bool comments, struct buf *out)
{
	int rc = 0;

	if (comments)
		rc = buf_printf(out,
		        "  // what happens when: join, leave, crash, pause (for_s), slow "
		        "(factor),\n"
		        "  // partition, heal, bad (factor); such as\n"
		        "  // {\"at_s\": 60, \"what\": \"crash\", \"agents\": [3, 4]}\n");
	if (rc == 0)
		rc = buf_printf(out, "  \"events\": [%s", s->n_events ? "\n" : "");
	for (int k = 0; k < s->n_events && rc == 0; k++) {
		rc = print_event(&s->events[k], out);
		if (rc == 0)
			rc = buf_printf(out, k + 1 < s->n_events ? ",\n" : "\n  ");
	}
	return rc ? rc : buf_printf(out, "]\n}\n");
}

int scenario_print(const struct scenario *s, bool comments, struct buf *out)
{
	const struct print_how how = {
	        .comments = comments, .leave_out = comments ? not_in_example : not_ours};
	const char *last = "name";
	int depth = 1;
	int rc = buf_printf(out, "%s{\n  \"name\": ", comments ? head : "");

	if (rc == 0)
		rc = buf_json_string(out, s->name);
	if (rc == 0)
		rc = settings_print(settings, n_settings, &s->config, &how, &last, &depth, out);
	if (rc == 0)
		rc = settings_print(rows, N_ROWS, s, &how, &last, &depth, out);
	while (--depth > 0 && rc == 0)
		rc = buf_printf(out, "\n%*s}", 2 * depth, "");
	if (rc == 0)
		rc = buf_printf(out, ",\n");
	return rc ? rc : print_events(s, comments, out);
}

/* ---- checking */

static void check_event(const struct scenario *s, int k, struct config_problems *p)
{
	const struct scenario_event *v = &s->events[k];
	const uint32_t last = v->n_agents ? v->agents[v->n_agents - 1] : 0;

	if (v->what != EVENT_HEAL && v->n_agents == 0)
		config_problem(
		        p, 0, "events: \"%s\" at %g s needs agents", whats[v->what], v->at_s);
	if (last >= s->agents.count)
		config_problem(p, 0, "events: \"%s\" at %g s: agent %u, but there are %lld from 0",
		        whats[v->what], v->at_s, last, (long long)s->agents.count);
	if (v->what == EVENT_SLOW && v->factor < 0.001)
		config_problem(
		        p, 0, "events: \"slow\" at %g s: factor must be at least 0.001", v->at_s);
}

static void check_injection(const struct scenario *s, struct config_problems *p)
{
	if (s->agents.split == SPLIT_IID || s->agents.split == SPLIT_SHARED)
		config_problem(p, 0,
		        "agents.inject_alpha: needs a split in which agents have parts of their "
		        "own, such as labels");
	if (!s->record.train)
		config_problem(p, 0, "agents.inject_alpha: needs samples: record.train");
	if (s->agents.count < 2)
		config_problem(p, 0, "agents.inject_alpha: needs two agents");
}

static void check_control(const struct scenario *s, struct config_problems *p)
{
	if (!sim_methods[s->method.kind]->controlled)
		config_problem(p, 0, "method.control: %s has none; dpsgd, adpsgd and gossip do",
		        scenario_method(s));
	if (!s->record.train)
		config_problem(p, 0, "method.control: needs models: record.train");
	if (s->method.control_from >= s->method.control_to)
		config_problem(p, 0, "method.control_from: must be below control_to");
	if (s->method.control == CONTROL_SHARE && s->method.control_max <= 0)
		config_problem(p, 0,
		        "method.control: share needs control_max: the largest distance of the "
		        "phase, from a run with \"control\": \"measure\"");
	if (s->method.control_by == CONTROL_BY_ESTIMATE && strcmp(scenario_method(s), "dpsgd") != 0)
		config_problem(p, 0, "method.control_by: an estimate needs a graph: dpsgd");
}

int scenario_check(const struct scenario *s, struct config_problems *p)
{
	const int before = p->n + p->untold;
	const struct sim_method *m = sim_methods[s->method.kind];
	const struct augment *a = &s->config.data.augment;

	if (config_check(&s->config, p)) {
		/* told */
	}
	if (s->agents.absent >= s->agents.count)
		config_problem(p, 0, "agents.absent: must be below agents.count: somebody begins");
	if (s->config.data.partition.kind != PARTITION_ALL)
		config_problem(p, 0, "data.partition: a scenario splits data by agents.split");
	if (s->config.train.accumulate != 1)
		config_problem(p, 0, "train.accumulate: must be 1 in a scenario");
	if (s->config.train.batch_adapt != BATCH_ADAPT_OFF &&
	        (strcmp(scenario_method(s), "dunlin") != 0 || !s->record.train))
		config_problem(p, 0,
		        "train.batch_adapt: needs models, and the method dunlin: no other adapts");
	if (a->flip || a->shift || a->scale > 0)
		config_problem(p, 0, "data.augment: is not simulated");
	if (!s->record.train && (!s->record.parameters || !s->record.samples))
		config_problem(p, 0,
		        "record.train: without training set record.parameters and record.samples");
	if (s->record.train && s->record.parameters)
		config_problem(p, 0, "record.parameters: is for record.train false");
	for (int k = 0; k < s->n_events; k++)
		check_event(s, k, p);
	if (s->agents.inject_alpha > 0 && s->agents.inject_beta > 0)
		check_injection(s, p);
	if (s->method.control != CONTROL_NONE)
		check_control(s, p);
	if (m->check)
		m->check(s, p);
	return p->n + p->untold > before ? ERR_INVALID : 0;
}
