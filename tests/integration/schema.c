/* SPDX-License-Identifier: MIT */
/* Two walks: lint goes over the schema alone and knows every keyword in one table, fits goes over
 * schema and value together and can rely on what lint has seen. What is said of a fault begins with
 * the place, such as $.gate.last[0].reason.
 *
 * Stricter than the standard in one point: a name that comes twice in an object does not fit. */
#include "tests/integration/schema.h"

#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64 /* of refs, too: a ring of them ends here */
#define PLACE 256
#define DEFS "#/$defs/"

struct place {
	char text[PLACE];
	int depth;
};

static bool fault(char why[SCHEMA_WHY], const struct place *at, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static bool fault(char why[SCHEMA_WHY], const struct place *at, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(why, SCHEMA_WHY, "%s: ", at->text);
	va_start(ap, fmt);
	vsnprintf(why + n, SCHEMA_WHY - (size_t)n, fmt, ap);
	va_end(ap);
	return false;
}

static struct place below(const struct place *at, const char *name)
{
	struct place p = {.depth = at->depth + 1};
	int n = snprintf(p.text, PLACE, "%s.%s", at->text, name);
	if (n >= PLACE)
		memcpy(p.text + PLACE - 4, "...", 4);
	return p;
}

static struct place item(const struct place *at, int i)
{
	char name[16];
	snprintf(name, sizeof name, "%d", i);
	return below(at, name);
}

static const cJSON *get(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* ---- the schema by itself */

struct lint {
	const cJSON *root;
	char *why;
};

static bool lint(struct lint *l, const cJSON *node, const struct place *at);

static const char *const types[] = {
        "object", "array", "string", "number", "integer", "boolean", "null"};

static bool is_type(const cJSON *name)
{
	for (size_t i = 0; cJSON_IsString(name) && i < sizeof types / sizeof *types; i++)
		if (strcmp(types[i], name->valuestring) == 0)
			return true;
	return false;
}

static const cJSON *resolve(const cJSON *root, const char *ref)
{
	if (strncmp(ref, DEFS, strlen(DEFS)) != 0)
		return NULL;
	return get(get(root, "$defs"), ref + strlen(DEFS));
}

static bool lint_note(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	return cJSON_IsString(k) || fault(l->why, at, "wants a string");
}

static bool lint_named(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	if (!cJSON_IsObject(k))
		return fault(l->why, at, "wants an object");
	for (const cJSON *m = k->child; m; m = m->next) {
		struct place p = below(at, m->string);
		if (get(k, m->string) != m)
			return fault(l->why, &p, "comes twice");
		if (!lint(l, m, &p))
			return false;
	}
	return true;
}

static bool lint_properties(
        struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	if (!get(owner, "additionalProperties"))
		return fault(l->why, at, "additionalProperties must be false beside it");
	return lint_named(l, owner, k, at);
}

static bool lint_closed(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	if (!cJSON_IsFalse(k))
		return fault(l->why, at, "only false is known");
	return get(owner, "properties") || fault(l->why, at, "wants properties beside it");
}

static bool lint_ref(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	if (!cJSON_IsString(k) || !resolve(l->root, k->valuestring))
		return fault(l->why, at, "wants " DEFS "NAME, of which there is one");
	return true;
}

static bool lint_type(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	const cJSON *t;
	(void)owner;
	if (is_type(k))
		return true;
	if (!cJSON_IsArray(k) || !k->child)
		return fault(l->why, at, "wants a type or some");
	cJSON_ArrayForEach(t, k)
	{
		if (!is_type(t))
			return fault(l->why, at, "one of these is no type");
	}
	return true;
}

static bool lint_required(
        struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	const cJSON *name;
	if (!cJSON_IsArray(k))
		return fault(l->why, at, "wants a list");
	cJSON_ArrayForEach(name, k)
	{
		if (!cJSON_IsString(name) || !get(get(owner, "properties"), name->valuestring))
			return fault(l->why, at, "one of these is no property");
	}
	return true;
}

static bool lint_items(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	return lint(l, k, at);
}

static bool lint_enum(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	return (cJSON_IsArray(k) && k->child) || fault(l->why, at, "wants a list of values");
}

static bool lint_const(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)l, (void)owner, (void)k, (void)at;
	return true;
}

static bool lint_any(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	const cJSON *one;
	int i = 0;
	(void)owner;
	if (!cJSON_IsArray(k) || !k->child)
		return fault(l->why, at, "wants a list of schemas");
	cJSON_ArrayForEach(one, k)
	{
		struct place p = item(at, i++);
		if (!lint(l, one, &p))
			return false;
	}
	return true;
}

static bool lint_number(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	(void)owner;
	return cJSON_IsNumber(k) || fault(l->why, at, "wants a number");
}

static bool lint_pattern(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at)
{
	regex_t r;
	(void)owner;
	if (!cJSON_IsString(k) || regcomp(&r, k->valuestring, REG_EXTENDED | REG_NOSUB) != 0)
		return fault(l->why, at, "wants a regular expression");
	regfree(&r);
	return true;
}

static const struct {
	const char *name;
	bool (*lint)(struct lint *l, const cJSON *owner, const cJSON *k, const struct place *at);
} keywords[] = {
        {"$schema", lint_note},
        {"$id", lint_note},
        {"title", lint_note},
        {"description", lint_note},
        {"$defs", lint_named},
        {"$ref", lint_ref},
        {"type", lint_type},
        {"properties", lint_properties},
        {"additionalProperties", lint_closed},
        {"required", lint_required},
        {"items", lint_items},
        {"minItems", lint_number},
        {"maxItems", lint_number},
        {"enum", lint_enum},
        {"const", lint_const},
        {"anyOf", lint_any},
        {"minimum", lint_number},
        {"maximum", lint_number},
        {"pattern", lint_pattern},
};

static bool lint(struct lint *l, const cJSON *node, const struct place *at)
{
	if (!cJSON_IsObject(node))
		return fault(l->why, at, "a schema is an object here");
	if (at->depth > DEPTH_MAX)
		return fault(l->why, at, "too deep");
	for (const cJSON *k = node->child; k; k = k->next) {
		struct place p = below(at, k->string);
		size_t i = 0, n = sizeof keywords / sizeof *keywords;
		while (i < n && strcmp(keywords[i].name, k->string) != 0)
			i++;
		if (i == n)
			return fault(l->why, &p, "this keyword is not known");
		if (get(node, k->string) != k)
			return fault(l->why, &p, "comes twice");
		if (!keywords[i].lint(l, node, k, &p))
			return false;
	}
	return true;
}

bool schema_parse(struct schema *s, const char *text, size_t len, char why[SCHEMA_WHY])
{
	struct place top = {.text = "#"};
	s->root = cJSON_ParseWithLength(text, len);
	struct lint l = {.root = s->root, .why = why};
	bool good = s->root ? lint(&l, s->root, &top) : fault(why, &top, "is not JSON");
	if (!good)
		schema_close(s);
	return good;
}

bool schema_open(struct schema *s, const char *path, char why[SCHEMA_WHY])
{
	static const size_t max = 1u << 20;
	FILE *f = fopen(path, "rb");
	char *text = f ? malloc(max) : NULL;
	size_t n = text ? fread(text, 1, max, f) : 0;
	bool whole = text && n < max && !ferror(f);
	s->root = NULL;
	if (!whole)
		snprintf(why, SCHEMA_WHY, "%s cannot be read", path);
	bool good = whole && schema_parse(s, text, n, why);
	free(text);
	if (f)
		fclose(f);
	return good;
}

void schema_close(struct schema *s)
{
	cJSON_Delete(s->root);
	s->root = NULL;
}

/* ---- a value against it */

struct fit {
	const cJSON *root;
	char *why;
};

static bool fits(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at);

static bool has_type(const char *type, const cJSON *v)
{
	switch (type[0]) {
	case 'o':
		return cJSON_IsObject(v);
	case 'a':
		return cJSON_IsArray(v);
	case 's':
		return cJSON_IsString(v);
	case 'b':
		return cJSON_IsBool(v);
	case 'i':
		return cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
	default:
		return type[2] == 'l' ? cJSON_IsNull(v) : cJSON_IsNumber(v);
	}
}

static bool fits_type(struct fit *f, const cJSON *type, const cJSON *v, const struct place *at)
{
	const cJSON *t;
	if (cJSON_IsString(type))
		return has_type(type->valuestring, v) ||
		       fault(f->why, at, "is not of type %s", type->valuestring);
	cJSON_ArrayForEach(t, type)
	{
		if (has_type(t->valuestring, v))
			return true;
	}
	return fault(f->why, at, "is of none of the types");
}

static bool fits_object(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at)
{
	const cJSON *known = get(node, "properties"), *name;
	cJSON_ArrayForEach(name, get(node, "required"))
	{
		if (!get(v, name->valuestring))
			return fault(f->why, at, "\"%s\" is missing", name->valuestring);
	}
	for (const cJSON *m = known ? v->child : NULL; m; m = m->next) {
		struct place p = below(at, m->string);
		const cJSON *of = get(known, m->string);
		if (!of)
			return fault(f->why, &p, "is not in the schema");
		if (get(v, m->string) != m)
			return fault(f->why, &p, "comes twice");
		if (!fits(f, of, m, &p))
			return false;
	}
	return true;
}

static bool fits_array(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at)
{
	const cJSON *of = get(node, "items"), *least = get(node, "minItems"), *one;
	const cJSON *most = get(node, "maxItems");
	int i = 0, n = cJSON_GetArraySize(v);
	if ((least && n < least->valuedouble) || (most && n > most->valuedouble))
		return fault(f->why, at, "has %d items", n);
	cJSON_ArrayForEach(one, v)
	{
		struct place p = item(at, i++);
		if (of && !fits(f, of, one, &p))
			return false;
	}
	return true;
}

static bool fits_number(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at)
{
	const cJSON *least = get(node, "minimum"), *most = get(node, "maximum");
	if ((least && v->valuedouble < least->valuedouble) ||
	        (most && v->valuedouble > most->valuedouble))
		return fault(f->why, at, "%g is out of range", v->valuedouble);
	return true;
}

static bool fits_pattern(struct fit *f, const char *pattern, const cJSON *v, const struct place *at)
{
	regex_t r;
	if (regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return fault(f->why, at, "no memory for a pattern");
	bool good = regexec(&r, v->valuestring, 0, NULL, 0) == 0;
	regfree(&r);
	return good || fault(f->why, at, "\"%.64s\" is not as %s", v->valuestring, pattern);
}

static bool fits_choice(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at)
{
	const cJSON *one = get(node, "const"), *list = get(node, "enum"), *any = get(node, "anyOf");
	char *said = cJSON_IsString(v) ? v->valuestring : "";
	if (one && !cJSON_Compare(one, v, true))
		return fault(f->why, at, "\"%.64s\" is not the constant", said);
	if (list) {
		bool found = false;
		cJSON_ArrayForEach(one, list)
		{
			found = found || cJSON_Compare(one, v, true);
		}
		if (!found)
			return fault(f->why, at, "\"%.64s\" is not in the list", said);
	}
	cJSON_ArrayForEach(one, any)
	{
		if (fits(f, one, v, at))
			return true;
	}
	return !any; /* of the faults, the last choice's is told */
}

static bool fits(struct fit *f, const cJSON *node, const cJSON *v, const struct place *at)
{
	const cJSON *ref = get(node, "$ref"), *type = get(node, "type");
	const cJSON *pattern = get(node, "pattern");
	if (at->depth > DEPTH_MAX)
		return fault(f->why, at, "too deep");
	if (ref) {
		struct place same = *at;
		same.depth++;
		if (!fits(f, resolve(f->root, ref->valuestring), v, &same))
			return false;
	}
	if (type && !fits_type(f, type, v, at))
		return false;
	if (!fits_choice(f, node, v, at))
		return false;
	if (cJSON_IsObject(v))
		return fits_object(f, node, v, at);
	if (cJSON_IsArray(v))
		return fits_array(f, node, v, at);
	if (cJSON_IsNumber(v))
		return fits_number(f, node, v, at);
	return !pattern || !cJSON_IsString(v) || fits_pattern(f, pattern->valuestring, v, at);
}

bool schema_fits(const struct schema *s, const char *name, const cJSON *value, char why[SCHEMA_WHY])
{
	struct fit f = {.root = s->root, .why = why};
	struct place top = {.text = "$"};
	const cJSON *node = get(get(s->root, "$defs"), name);
	if (!node)
		return fault(why, &top, "the schema has no \"%s\"", name);
	return fits(&f, node, value, &top);
}

bool schema_fits_reply(
        const struct schema *s, const char *cmd, const cJSON *reply, char why[SCHEMA_WHY])
{
	char name[64];
	if (!cJSON_IsTrue(get(reply, "ok")))
		return schema_fits(s, "error_reply", reply, why);
	snprintf(name, sizeof name, "%s_reply", cmd);
	return schema_fits(s, name, reply, why);
}
