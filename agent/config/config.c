/* SPDX-License-Identifier: MIT */
/* From a file and the environment to struct config.
 *
 * The file is parsed into a tree (jsontext.c), and the tree is walked against the options table: a
 * path of keys is a setting, a section, or unknown. Nothing stops at the first problem; each is
 * added to the list with its line, and the setting keeps the value it had, so that the checks which
 * follow still have something to look at. Only a text that is no JSON at all ends the reading.
 *
 * The happy path is config_defaults, config_load, config_env, flags (cli.c), config_check. */
#include "agent/config/config.h"

#include "agent/base/textlist.h"
#include "agent/config/config_model.h"
#include "agent/config/hostport.h"
#include "agent/config/options.h"
#include "agent/config/paths.h"
#include "agent/json/jsontext.h"
#include "gossip/exchange/exchange.h"
#include "gossip/policy/gate.h"
#include "model/graph/outer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 128 /* a dotted path; what is longer is unknown anyway */

void config_problems_init(struct config_problems *p, const char *path)
{
	memset(p, 0, sizeof *p);
	p->path = path;
}

void config_problem(struct config_problems *p, int line, const char *fmt, ...)
{
	if (p->n == LIMIT_CONFIG_ERRORS) {
		p->untold++;
		return;
	}
	/* Sorted by line; those of no line come last, each in the order in which they were met. */
	int at = p->n++;
	for (; line > 0 && at > 0; at--) {
		int before = p->list[at - 1].line;
		if (before > 0 && before <= line)
			break;
		p->list[at] = p->list[at - 1];
	}
	p->list[at].line = line;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(p->list[at].text, sizeof p->list[at].text, fmt, ap);
	va_end(ap);
}

int config_problems_text(const struct config_problems *p, struct buf *out)
{
	int rc = 0;
	for (int i = 0; i < p->n && rc == 0; i++) {
		const struct config_problem *one = &p->list[i];
		if (one->line > 0)
			rc = buf_printf(out, "%s:%d: ", p->path ? p->path : "config", one->line);
		if (rc == 0)
			rc = buf_printf(out, "%s\n", one->text);
	}
	if (rc == 0 && p->untold)
		rc = buf_printf(out, "and %d more\n", p->untold);
	return rc;
}

void config_defaults(struct config *c)
{
	char why[SETTING_WHY];
	memset(c, 0, sizeof *c);
	for (int i = 0; i < n_settings; i++) {
		int rc = setting_set_text(&settings[i], c, settings[i].dflt, why);
		assert(rc == 0);
		(void)rc;
	}
}

void config_close(struct config *c)
{
	free(c->layers);
	c->layers = NULL;
	c->n_layers = 0;
}

static bool is_section(const char *key)
{
	size_t n = strlen(key);
	for (int i = 0; i < n_settings; i++)
		if (strncmp(settings[i].key, key, n) == 0 && settings[i].key[n] == '.')
			return true;
	return false;
}

static void read_list(
        struct config *c, const struct setting *s, const cJSON *list, struct config_problems *p)
{
	char why[SETTING_WHY];
	setting_clear(s, c);
	for (const cJSON *item = list->child; item; item = item->next) {
		if (!cJSON_IsString(item))
			config_problem(p, item->valueint,
			        "%s: must be a list of strings, not of %s", s->key,
			        json_kind(item));
		else if (setting_add(s, c, item->valuestring, why))
			config_problem(p, item->valueint, "%s: %s", s->key, why);
		else
			continue;
		return;
	}
}

static void read_setting(struct config *c, int index, const cJSON *item, struct config_problems *p)
{
	const struct setting *s = &settings[index];
	char why[SETTING_WHY], wants[SETTING_WHY];
	int rc;
	p->set_at[index] = item->valueint;
	if (s->type == SET_MODEL && cJSON_IsObject(item)) {
		model_read(c, item, p);
		return;
	}
	if (s->type == SET_LIST && cJSON_IsArray(item)) {
		read_list(c, s, item, p);
		return;
	}
	if (cJSON_IsNumber(item)) {
		rc = setting_set_number(s, c, item->valuedouble, why);
	} else if (cJSON_IsBool(item)) {
		rc = setting_set_bool(s, c, cJSON_IsTrue(item), why);
	} else if (cJSON_IsString(item)) {
		rc = setting_set_string(s, c, item->valuestring, why);
	} else {
		rc = ERR_INVALID;
		snprintf(why, sizeof why, "must be %.100s, not %s", setting_wants(s, wants),
		        json_kind(item));
	}
	if (rc)
		config_problem(p, item->valueint, "%s: %s", s->key, why);
}

static void tell_unknown(const char *key, const cJSON *item, struct config_problems *p)
{
	char near[LIMIT_NAME], shown[JSON_SHOWN];
	json_shown(key, shown);
	if (strchr(item->string, '.'))
		config_problem(p, item->valueint,
		        "unknown key \"%s\"; sections are nested objects, {\"train\": {\"lr\": 1}}",
		        shown);
	else if (setting_nearest_key(key, near))
		config_problem(
		        p, item->valueint, "unknown key \"%s\"; did you mean \"%s\"?", shown, near);
	else
		config_problem(p, item->valueint,
		        "unknown key \"%s\"; `dunlin config init` lists all keys", shown);
}

/* prefix is "" or "train."; the depth is bounded by the table, since only its sections are
 * entered. */
static void read_section(
        struct config *c, const cJSON *object, const char *prefix, struct config_problems *p)
{
	for (const cJSON *item = object->child; item; item = item->next) {
		char key[KEY_MAX], shown[JSON_SHOWN];
		int n = snprintf(key, sizeof key, "%s%s", prefix, item->string);
		bool plain = n < KEY_MAX && !strchr(item->string, '.');
		int index = plain ? setting_find(key) : -1;
		if (json_repeats(object, item)) {
			config_problem(p, item->valueint, "key \"%s\" is given twice",
			        json_shown(key, shown));
		} else if (index >= 0) {
			read_setting(c, index, item, p);
		} else if (plain && is_section(key) && cJSON_IsObject(item)) {
			char inner[KEY_MAX + 1];
			snprintf(inner, sizeof inner, "%s.", key);
			read_section(c, item, inner, p);
		} else if (plain && is_section(key)) {
			config_problem(p, item->valueint,
			        "%s: must be an object of settings, not %s", key, json_kind(item));
		} else {
			tell_unknown(key, item, p);
		}
	}
}

void config_read_tree(struct config *c, const cJSON *root, struct config_problems *p)
{
	read_section(c, root, "", p);
}

static int told(const struct config_problems *p, int before)
{
	return p->n + p->untold > before ? ERR_INVALID : 0;
}

int config_read(struct config *c, const char *text, size_t len, struct config_problems *p)
{
	int before = p->n + p->untold;
	struct json_fault fault;
	if (len > LIMIT_CONFIG_BYTES) {
		config_problem(p, 0, "%s: larger than %u bytes", p->path ? p->path : "config",
		        LIMIT_CONFIG_BYTES);
		return ERR_LIMIT;
	}
	cJSON *root = json_parse(text, len, true, &fault);
	if (!root)
		config_problem(p, fault.line, "column %d: %s", fault.column, fault.text);
	else if (!cJSON_IsObject(root))
		config_problem(p, root->valueint, "a config must be an object, {…}, not %s",
		        json_kind(root));
	else
		read_section(c, root, "", p);
	cJSON_Delete(root);
	return told(p, before);
}

int config_load(struct config *c, const char *path, struct config_problems *p)
{
	struct buf text;
	struct err e;
	p->path = path;
	buf_init(&text, LIMIT_CONFIG_BYTES + 1);
	int rc = file_read(&text, path, &e);
	if (rc)
		config_problem(p, 0, "config file: %s", e.msg);
	else
		rc = config_read(c, text.data ? text.data : "", text.len, p);
	buf_close(&text);
	return rc;
}

int config_env(struct config *c, struct config_problems *p)
{
	int before = p->n + p->untold;
	char why[SETTING_WHY];
	for (int i = 0; i < n_settings; i++) {
		const char *v = settings[i].env ? getenv(settings[i].env) : NULL;
		if (!v)
			continue;
		if (setting_set_text(&settings[i], c, v, why))
			config_problem(p, 0, "environment variable %s: %s", settings[i].env, why);
		else
			p->set_at[i] = 0;
	}
	return told(p, before);
}

/* A problem of the settings together, at the line of the first one if the file has it. */
static void clash(struct config_problems *p, const char *key, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static void clash(struct config_problems *p, const char *key, const char *fmt, ...)
{
	char text[SETTING_WHY];
	int index = setting_find(key);
	assert(index >= 0);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	config_problem(p, p->set_at[index], "%s: %s", key, text);
}

/* auto, cpu, cuda:1: a backend's name and perhaps a number. */
static bool device_sane(const char *d)
{
	size_t n = strspn(d, "abcdefghijklmnopqrstuvwxyz0123456789");
	if (n > 0 && d[n] == ':')
		return strspn(d + n + 1, "0123456789") == strlen(d + n + 1) && d[n + 1] &&
		       strlen(d + n + 1) <= 4;
	return n > 0 && d[n] == 0;
}

static void check_agent(const struct config *c, struct config_problems *p)
{
	struct hostport h;
	struct err e;
	if (!paths_name_ok(c->agent.name))
		clash(p, "agent.name",
		        "may only have letters, digits, - and _, and must not begin with -");
	if (hostport_parse(c->agent.listen, &h, &e))
		clash(p, "agent.listen", "%s", e.msg);
	for (const char *s = NULL; (s = textlist_next(c->agent.advertise, s));) {
		if (hostport_parse(s, &h, &e))
			clash(p, "agent.advertise", "%s", e.msg);
		else if (!h.host[0])
			clash(p, "agent.advertise", "\"%s\": the host is missing", s);
		else if (h.port == 0)
			clash(p, "agent.advertise",
			        "\"%s\": nobody can dial port 0; leave the port out to tell peers "
			        "the one that the agent listens on",
			        s);
	}
	for (const char *s = NULL; (s = textlist_next(c->agent.seeds, s));) {
		if (hostport_parse(s, &h, &e))
			clash(p, "agent.seeds", "%s", e.msg);
		else if (!h.host[0] || !h.port)
			clash(p, "agent.seeds", "\"%.100s\": needs a host, and a port other than 0",
			        s);
	}
}

static void check_guest(const struct config *c, struct config_problems *p)
{
	if (!c->agent.guest)
		return;
	if (!c->agent.train)
		clash(p, "agent.guest", "needs agent.train: a guest trains");
	if (c->gossip.outer != OUTER_NONE)
		clash(p, "agent.guest",
		        "a guest has no outer optimizer: needs gossip.outer "
		        "\"none\"");
	if (c->gossip.gate == GATE_SELSYNC)
		clash(p, "agent.guest",
		        "a guest tells no norms of layers: gossip.gate "
		        "\"selsync-code\" needs them");
}

static void check_outer(const struct config *c, struct config_problems *p)
{
	if (c->gossip.outer == OUTER_NONE)
		return;
	if (c->gossip.exchange != EXCHANGE_PAIR)
		clash(p, "gossip.outer", "needs gossip.exchange \"pair\": both must move");
	if (c->gossip.outer == OUTER_QGM &&
	        (c->train.optim.kind != OPTIM_SGD || c->train.optim.momentum <= 0))
		clash(p, "gossip.outer",
		        "\"qgm\" is a momentum of sgd: needs train.optimizer \"sgd\" and "
		        "train.momentum above 0");
}

int config_check(const struct config *c, struct config_problems *p)
{
	int before = p->n + p->untold;
	const struct partition *part = &c->data.partition;
	if (!c->data.path[0] && c->data.format > DATA_FORMAT_IDX)
		clash(p, "data.format", "needs data.path: the folder of the data");
	if (c->data.test_images[0] && !c->data.test_labels[0])
		clash(p, "data.test_images",
		        "needs data.test_labels too; leave both empty for no test");
	if (!c->data.test_images[0] && c->data.test_labels[0])
		clash(p, "data.test_labels",
		        "needs data.test_images too; leave both empty for no test");
	if (part->part >= part->parts)
		clash(p, "data.partition.part",
		        "must be below data.partition.parts, %u, not %u: parts count from 0",
		        part->parts, part->part);
	if (part->kind == PARTITION_ALL && part->parts > 1)
		clash(p, "data.partition.parts",
		        "%u parts, but data.partition.kind is \"all\": choose \"shard\" or "
		        "\"label\"",
		        part->parts);
	if (c->data.classes == 1)
		clash(p, "data.classes", "must be at least 2, or 0 for as many as the labels have");
	if (c->train.optim.kind == OPTIM_SGD && c->train.optim.nesterov &&
	        c->train.optim.momentum == 0)
		clash(p, "train.nesterov",
		        "needs train.momentum above 0; or set train.nesterov to false");
	if (c->train.schedule == SCHEDULE_STEP && c->train.step_epochs == 0)
		clash(p, "train.schedule", "\"step\" needs train.step_epochs above 0");
	if (c->train.batch * c->train.accumulate > LIMIT_BATCH)
		clash(p, "train.accumulate", "batch × accumulate is %lld, more than %d",
		        (long long)(c->train.batch * c->train.accumulate), LIMIT_BATCH);
	if (c->train.batch_adapt != BATCH_ADAPT_OFF && c->train.batch * c->train.accumulate < 2)
		clash(p, "train.batch_adapt",
		        "the norm test compares parts of a step: needs train.batch of at least 2");
	check_outer(c, p);
	check_guest(c, p);
	if (!device_sane(c->run.device))
		clash(p, "run.device", "must be auto, cpu, plain, cuda or cuda:N");
	if (c->gossip.gate == GATE_BUDGET && c->gossip.exchanges_per_s <= 0 &&
	        c->gossip.bytes_per_s <= 0 && c->gossip.bytes_per_day <= 0)
		clash(p, "gossip.gate",
		        "\"budget\" needs gossip.exchanges_per_second, gossip.bytes_per_second or "
		        "gossip.bytes_per_day above 0");
	check_agent(c, p);
	return told(p, before);
}

int config_check_data(const struct arch *a, const struct dataset *d, struct err *e)
{
	if (a->tokens == (d->tokens != NULL))
		return 0;
	return err_set(e, ERR_MISMATCH,
	        a->tokens ? "the model reads tokens, which these data are not: see data.format"
	                  : "the data are tokens, and the model has no embedding: preset gpt has");
}

int config_arch(const struct config *c, const struct dataset *d, struct arch *out, struct err *e)
{
	const struct arch_gpt gpt = {c->gpt.layers, c->gpt.width, c->gpt.heads};
	int rc = c->layers ? arch_resolve(out, c->layers, c->n_layers, &d->shape, d->classes, e)
	                   : arch_preset(out, c->preset, &gpt, &d->shape, d->classes, e);
	if (rc == 0 && (rc = config_check_data(out, d, e)) != 0)
		arch_close(out);
	return rc;
}

int config_arch_to_train(
        const struct config *c, const struct dataset *d, struct arch *out, struct err *e)
{
	int rc = config_arch(c, d, out, e);

	if (rc == 0 && (rc = arch_check_batch(out, c->train.batch, e)) != 0)
		arch_close(out);
	return rc;
}
