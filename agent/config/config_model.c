/* SPDX-License-Identifier: MIT */
/* Lists of layers in JSON: {"layers": [{"type": "conv2d", "units": 32}, {"type": "relu"}, …]}.
 *
 * The fields of a layer come from model/arch/arch.h's tables, so a new kind of layer needs nothing
 * here. What is checked is each layer by itself; how they fit together is arch_resolve's to say,
 * once the shape of the data is known. The same reader serves config files, where every problem is
 * told, and the model in a checkpoint's or export's header, where the first one is enough. */
#include "agent/config/config_model.h"

#include "agent/config/options.h"
#include "agent/json/jsontext.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 16

struct reading {
	struct config_problems *problems;
	int number; /* of the layer, from 1 */
	const char *type;
};

static void tell(const struct reading *r, int line, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static void tell(const struct reading *r, int line, const char *fmt, ...)
{
	char text[240];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	config_problem(r->problems, line, "model: layer %d%s%s%s: %s", r->number,
	        r->type ? " (" : "", r->type ? r->type : "", r->type ? ")" : "", text);
}

static void read_name(
        const struct reading *r, const cJSON *item, const char *key, char out[LIMIT_LAYER_NAME])
{
	if (!cJSON_IsString(item))
		tell(r, item->valueint, "%s: must be the name of a layer, not %s", key,
		        json_kind(item));
	else if (!item->valuestring[0])
		tell(r, item->valueint, "%s: must not be empty", key);
	else if (strlen(item->valuestring) >= LIMIT_LAYER_NAME)
		tell(r, item->valueint, "%s: must not be longer than %d bytes", key,
		        LIMIT_LAYER_NAME - 1);
	else
		snprintf(out, LIMIT_LAYER_NAME, "%s", item->valuestring);
}

static void read_from(const struct reading *r, const cJSON *item, struct layer *l)
{
	int inputs = layer_types[l->kind]->inputs;
	if (inputs == 1 && !cJSON_IsArray(item)) {
		read_name(r, item, "from", l->from[0]);
		return;
	}
	if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != inputs) {
		tell(r, item->valueint,
		        inputs == 1 ? "from: must be the name of one layer"
		                    : "from: must be a list of %d names of layers",
		        inputs);
		return;
	}
	int k = 0;
	for (const cJSON *one = item->child; one; one = one->next)
		read_name(r, one, "from", l->from[k++]);
}

static void read_field(
        const struct reading *r, const struct layer_field *f, const cJSON *item, struct layer *l)
{
	char *to = (char *)l + f->offset;
	char text[REAL_TEXT], lo[REAL_TEXT], hi[REAL_TEXT];
	if (f->type == FIELD_BOOL && cJSON_IsBool(item)) {
		bool v = cJSON_IsTrue(item);
		memcpy(to, &v, sizeof v);
		return;
	}
	if (f->type == FIELD_BOOL || !cJSON_IsNumber(item)) {
		tell(r, item->valueint, "%s: must be %s, not %s", f->key,
		        f->type == FIELD_BOOL  ? "true or false"
		        : f->type == FIELD_INT ? "a whole number"
		                               : "a number",
		        json_kind(item));
		return;
	}
	double v = item->valuedouble;
	if (f->type == FIELD_INT && v != floor(v)) {
		tell(r, item->valueint, "%s: must be a whole number, not %s", f->key,
		        real_text(v, text));
	} else if (!(v >= f->min && v <= f->max)) {
		tell(r, item->valueint, "%s: %s is out of range, %s to %s", f->key,
		        real_text(v, text), real_text(f->min, lo), real_text(f->max, hi));
	} else if (f->type == FIELD_INT) {
		int64_t whole = (int64_t)v;
		memcpy(to, &whole, sizeof whole);
	} else {
		memcpy(to, &v, sizeof v);
	}
}

static void tell_unknown_field(
        const struct reading *r, const struct layer_type *t, const cJSON *item)
{
	const char *keys[FIELDS_MAX + 4] = {"type", "name", "from"};
	char shown[JSON_SHOWN], all[160] = "";
	size_t n = 0;
	for (int i = 0; i < t->n_fields && i < FIELDS_MAX; i++)
		keys[3 + i] = t->fields[i].key;
	const char *meant = nearest(item->string, keys);
	for (int i = 0; keys[i] && n < sizeof all; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", keys[i]);
	json_shown(item->string, shown);
	if (meant)
		tell(r, item->valueint, "unknown key \"%s\"; did you mean \"%s\"?", shown, meant);
	else
		tell(r, item->valueint, "unknown key \"%s\"; it takes %s", shown, all);
}

/* The layer's type, looked up first, since it says what the other keys mean. */
static int read_type(struct reading *r, const cJSON *object, struct layer *l)
{
	const char *names[LAYER_KINDS + 1] = {NULL};
	char shown[JSON_SHOWN];
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
	for (int k = 0; k < LAYER_KINDS; k++)
		names[k] = layer_types[k]->name;
	if (!type) {
		tell(r, object->valueint, "has no \"type\"");
	} else if (!cJSON_IsString(type)) {
		tell(r, type->valueint, "type: must be a string, not %s", json_kind(type));
	} else if (layer_init(l, type->valuestring)) {
		const char *meant = nearest(type->valuestring, names);
		json_shown(type->valuestring, shown);
		if (meant)
			tell(r, type->valueint, "unknown type \"%s\"; did you mean \"%s\"?", shown,
			        meant);
		else
			tell(r, type->valueint, "unknown type \"%s\"; dunlin(1) lists all types",
			        shown);
	} else {
		r->type = layer_types[l->kind]->name;
		return 0;
	}
	return ERR_INVALID;
}

static void read_layer(struct reading *r, const cJSON *object, struct layer *l)
{
	bool seen[FIELDS_MAX] = {false};
	char shown[JSON_SHOWN];
	r->type = NULL;
	if (!cJSON_IsObject(object)) {
		tell(r, object->valueint, "must be an object, {\"type\": …}, not %s",
		        json_kind(object));
		return;
	}
	if (read_type(r, object, l))
		return;
	const struct layer_type *t = layer_types[l->kind];
	for (const cJSON *item = object->child; item; item = item->next) {
		int f = 0;
		while (f < t->n_fields && strcmp(t->fields[f].key, item->string) != 0)
			f++;
		if (json_repeats(object, item)) {
			tell(r, item->valueint, "key \"%s\" is given twice",
			        json_shown(item->string, shown));
		} else if (f < t->n_fields && f < FIELDS_MAX) {
			seen[f] = true;
			read_field(r, &t->fields[f], item, l);
		} else if (strcmp(item->string, "name") == 0) {
			read_name(r, item, "name", l->name);
		} else if (strcmp(item->string, "from") == 0) {
			read_from(r, item, l);
		} else if (strcmp(item->string, "type") != 0) {
			tell_unknown_field(r, t, item);
		}
	}
	for (int f = 0; f < t->n_fields && f < FIELDS_MAX; f++)
		if (t->fields[f].required && !seen[f])
			tell(r, object->valueint, "\"%s\" is missing", t->fields[f].key);
}

/* The list at "layers", malloc'd; NULL when anything was told. */
static struct layer *read_layers(const cJSON *list, int *n, struct config_problems *p)
{
	int before = p->n + p->untold;
	int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
	if (!cJSON_IsArray(list)) {
		config_problem(
		        p, list->valueint, "model.layers: must be a list, not %s", json_kind(list));
		return NULL;
	}
	if (count < 1 || count > LIMIT_LAYERS) {
		config_problem(p, list->valueint,
		        "model.layers: %d layers are out of range, 1 to %d", count, LIMIT_LAYERS);
		return NULL;
	}
	struct layer *layers = calloc((size_t)count, sizeof *layers);
	if (!layers) {
		config_problem(p, list->valueint, "model.layers: out of memory");
		return NULL;
	}
	struct reading r = {.problems = p};
	for (const cJSON *item = list->child; item; item = item->next) {
		struct layer *l = &layers[r.number++];
		read_layer(&r, item, l);
	}
	*n = count;
	if (p->n + p->untold > before) {
		free(layers);
		return NULL;
	}
	return layers;
}

void model_read(struct config *c, const cJSON *object, struct config_problems *p)
{
	char shown[JSON_SHOWN];
	const cJSON *list = NULL;
	for (const cJSON *item = object->child; item; item = item->next) {
		if (strcmp(item->string, "layers") != 0)
			config_problem(p, item->valueint,
			        "unknown key \"model.%s\"; a model is the name of a preset or "
			        "{\"layers\": […]}",
			        json_shown(item->string, shown));
		else if (list)
			config_problem(p, item->valueint, "key \"model.layers\" is given twice");
		else
			list = item;
	}
	if (!list) {
		config_problem(p, object->valueint, "model: \"layers\" is missing");
		return;
	}
	int n = 0;
	struct layer *layers = read_layers(list, &n, p);
	if (!layers)
		return;
	free(c->layers);
	c->layers = layers;
	c->n_layers = n;
	c->preset[0] = 0;
}

/* [28, 28, 1] */
static int read_shape(const cJSON *list, struct shape *s)
{
	int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
	if (n < 1 || n > SHAPE_RANK_MAX)
		return ERR_FORMAT;
	memset(s, 0, sizeof *s);
	for (const cJSON *d = list->child; d; d = d->next) {
		double v = d->valuedouble;
		if (!cJSON_IsNumber(d) || v != floor(v) || v < 1 || v > LIMIT_DIM)
			return ERR_FORMAT;
		s->dim[s->rank++] = (int64_t)v;
	}
	return 0;
}

int config_parse_model(const char *json, size_t len, struct layer **layers, int *n,
        struct shape *input, int64_t *classes, struct err *e)
{
	static const char *const keys[] = {"input", "classes", "layers"};
	const cJSON *found[3] = {NULL};
	struct json_fault fault;
	struct config_problems problems;
	int rc = 0;
	*layers = NULL;
	*n = 0;
	if (len > LIMIT_CONFIG_BYTES)
		return err_set(e, ERR_LIMIT, "model: larger than %u bytes", LIMIT_CONFIG_BYTES);
	cJSON *root = json_parse(json, len, false, &fault);
	if (!root)
		return err_set(e, ERR_FORMAT, "model: column %d: %s", fault.column, fault.text);
	for (const cJSON *item = cJSON_IsObject(root) ? root->child : NULL; item;
	        item = item->next) {
		int k = 0;
		while (k < 3 && strcmp(keys[k], item->string) != 0)
			k++;
		if (k == 3 || found[k]) {
			char shown[JSON_SHOWN];
			rc = err_set(e, ERR_FORMAT, "model: unknown or repeated key \"%s\"",
			        json_shown(item->string, shown));
			goto out;
		}
		found[k] = item;
	}
	for (int k = 0; k < 3 && rc == 0; k++)
		if (!found[k])
			rc = err_set(e, ERR_FORMAT, "model: \"%s\" is missing", keys[k]);
	if (rc)
		goto out;
	if (read_shape(found[0], input)) {
		rc = err_set(e, ERR_FORMAT, "model: \"input\" is not a shape");
		goto out;
	}
	double v = found[1]->valuedouble;
	if (!cJSON_IsNumber(found[1]) || v != floor(v) || v < 1 || v > LIMIT_CLASSES) {
		rc = err_set(e, ERR_FORMAT, "model: \"classes\" is not 1 to %d", LIMIT_CLASSES);
		goto out;
	}
	*classes = (int64_t)v;
	config_problems_init(&problems, NULL);
	*layers = read_layers(found[2], n, &problems);
	if (!*layers)
		rc = err_set(e, ERR_FORMAT, "%s", problems.list[0].text);
out:
	cJSON_Delete(root);
	return rc;
}
