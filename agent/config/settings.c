/* SPDX-License-Identifier: MIT */
/* What can be done with one row of the options table: find it, set it from a number, a word or a
 * flag's text, print it, and guess which one was meant.
 *
 * Values are stored through offset and size, so this is the one file that knows how wide an int of
 * struct config is. What can fail is the value; why then holds the rest of a sentence that begins
 * with the key or the flag, such as "0 is out of range, 1 to 1048576". */
#include "agent/base/textlist.h"
#include "agent/config/options.h"
#include "agent/json/jsontext.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int setting_find(const char *key)
{
	for (int i = 0; i < n_settings; i++)
		if (strcmp(settings[i].key, key) == 0)
			return i;
	return -1;
}

int setting_find_flag(const char *flag, unsigned taken_by, bool *negated)
{
	bool no = strncmp(flag, "--no-", 5) == 0;
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		if (!(s->taken_by & taken_by))
			continue;
		*negated = no && s->type == SET_BOOL && strcmp(s->flag + 2, flag + 5) == 0;
		if (*negated || strcmp(s->flag, flag) == 0)
			return i;
	}
	return -1;
}

const char *real_text(double v, char out[REAL_TEXT])
{
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(out, REAL_TEXT, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	/* Small enough to be a count: people would not write 1e+06. */
	if (fabs(v) < 1e15 && v == floor(v))
		snprintf(out, REAL_TEXT, "%.0f", v + 0.0);
	return out;
}

const char *setting_wants(const struct setting *s, char out[SETTING_WHY])
{
	size_t n;
	switch (s->type) {
	case SET_INT:
		return "a whole number";
	case SET_REAL:
		return "a number";
	case SET_BOOL:
		return "true or false";
	case SET_TEXT:
		return "a string";
	case SET_LIST:
		return "a list of strings";
	case SET_CHOICE:
	case SET_MODEL:
		break;
	}
	n = (size_t)snprintf(out, SETTING_WHY, "one of ");
	for (int i = 0; s->choices[i] && n < SETTING_WHY; i++)
		n += (size_t)snprintf(
		        out + n, SETTING_WHY - n, "%s%s", i ? ", " : "", s->choices[i]);
	return out;
}

static int wrong_kind(const struct setting *s, const char *met, char why[SETTING_WHY])
{
	char wants[SETTING_WHY];
	snprintf(why, SETTING_WHY, "must be %.100s, not %.60s", setting_wants(s, wants), met);
	return ERR_INVALID;
}

int setting_set_number(const struct setting *s, void *c, double v, char why[SETTING_WHY])
{
	char text[REAL_TEXT], lo[REAL_TEXT], hi[REAL_TEXT];
	char *to = (char *)c + s->offset;
	if (s->type != SET_INT && s->type != SET_REAL)
		return wrong_kind(s, "a number", why);
	if (s->type == SET_INT && v != floor(v)) {
		snprintf(why, SETTING_WHY, "must be a whole number, not %s", real_text(v, text));
		return ERR_INVALID;
	}
	if (!(v >= s->min && v <= s->max)) {
		snprintf(why, SETTING_WHY, "%s is out of range, %s to %s", real_text(v, text),
		        real_text(s->min, lo), real_text(s->max, hi));
		return ERR_INVALID;
	}
	int64_t wide = s->type == SET_INT ? (int64_t)v : 0;
	int32_t narrow = s->size == sizeof narrow ? (int32_t)wide : 0;
	if (s->type == SET_REAL)
		memcpy(to, &v, sizeof v);
	else if (s->size == sizeof narrow)
		memcpy(to, &narrow, sizeof narrow);
	else
		memcpy(to, &wide, sizeof wide);
	return 0;
}

int setting_set_bool(const struct setting *s, void *c, bool v, char why[SETTING_WHY])
{
	if (s->type != SET_BOOL)
		return wrong_kind(s, v ? "true" : "false", why);
	memcpy((char *)c + s->offset, &v, sizeof v);
	return 0;
}

static int set_word(const struct setting *s, void *c, const char *v, char why[SETTING_WHY])
{
	char wants[SETTING_WHY], shown[JSON_SHOWN];
	for (int i = 0; s->choices[i]; i++) {
		if (strcmp(s->choices[i], v) != 0)
			continue;
		if (s->type == SET_CHOICE) {
			memcpy((char *)c + s->offset, &i, sizeof i);
			return 0;
		}
		struct config *config = c; /* no other table has a model */
		snprintf(config->preset, sizeof config->preset, "%s", v);
		free(config->layers);
		config->layers = NULL;
		config->n_layers = 0;
		return 0;
	}
	const char *meant = nearest(v, s->choices);
	snprintf(why, SETTING_WHY, "\"%s\" is not %.80s%s%s%s", json_shown(v, shown),
	        setting_wants(s, wants), meant ? "; did you mean \"" : "", meant ? meant : "",
	        meant ? "\"?" : "");
	return ERR_INVALID;
}

int setting_set_string(const struct setting *s, void *c, const char *v, char why[SETTING_WHY])
{
	if (s->type == SET_CHOICE || s->type == SET_MODEL)
		return set_word(s, c, v, why);
	if (s->type != SET_TEXT)
		return wrong_kind(s, "a string", why);
	size_t n = strlen(v);
	if (n >= s->size) {
		snprintf(why, SETTING_WHY, "must not be longer than %zu bytes", s->size - 1);
		return ERR_INVALID;
	}
	if ((double)n < s->min) {
		snprintf(why, SETTING_WHY, "must not be empty");
		return ERR_INVALID;
	}
	memcpy((char *)c + s->offset, v, n + 1);
	return 0;
}

void setting_clear(const struct setting *s, void *c)
{
	assert(s->type == SET_LIST);
	memset((char *)c + s->offset, 0, s->size);
}

int setting_add(const struct setting *s, void *c, const char *item, char why[SETTING_WHY])
{
	char *list = (char *)c + s->offset;
	assert(s->type == SET_LIST);
	if (!item[0]) {
		snprintf(why, SETTING_WHY, "must not have an empty item");
		return ERR_INVALID;
	}
	if (textlist_count(list) >= (int)s->max) {
		snprintf(why, SETTING_WHY, "must not have more than %d items", (int)s->max);
		return ERR_INVALID;
	}
	if (textlist_add(list, s->size, item)) {
		snprintf(why, SETTING_WHY, "must not be longer than %zu bytes in all", s->size - 1);
		return ERR_INVALID;
	}
	return 0;
}

/* "a,b": the list of both; "": an empty one. */
static int set_list(const struct setting *s, void *c, const char *v, char why[SETTING_WHY])
{
	char before[LIMIT_LIST], items[LIMIT_LIST];
	int rc = 0;
	assert(s->size <= sizeof before);
	if (strlen(v) >= sizeof items) {
		snprintf(why, SETTING_WHY, "must not be longer than %zu bytes in all",
		        sizeof items - 1);
		return ERR_INVALID;
	}
	strcpy(items, v);
	memcpy(before, (char *)c + s->offset, s->size);
	setting_clear(s, c);
	char *rest = items[0] ? items : NULL;
	for (char *item; rc == 0 && (item = strsep(&rest, ","));)
		rc = setting_add(s, c, item, why);
	if (rc)
		memcpy((char *)c + s->offset, before, s->size);
	return rc;
}

int setting_set_text(const struct setting *s, void *c, const char *v, char why[SETTING_WHY])
{
	if (s->type == SET_LIST)
		return set_list(s, c, v, why);
	char shown[JSON_SHOWN], met[JSON_SHOWN + 2];
	snprintf(met, sizeof met, "\"%s\"", json_shown(v, shown));
	if (s->type == SET_BOOL) {
		static const char *const words[] = {
		        "false", "true", "no", "yes", "off", "on", "0", "1"};
		for (int i = 0; i < 8; i++)
			if (strcmp(v, words[i]) == 0)
				return setting_set_bool(s, c, i % 2, why);
		return wrong_kind(s, met, why);
	}
	if (s->type == SET_INT || s->type == SET_REAL) {
		/* strtod also takes spaces, hexadecimal, inf and nan. */
		char *end = NULL;
		double d = v[strspn(v, "0123456789.eE+-")] == 0 ? strtod(v, &end) : 0;
		if (!end || end == v || *end || !isfinite(d))
			return wrong_kind(s, met, why);
		return setting_set_number(s, c, d, why);
	}
	return setting_set_string(s, c, v, why);
}

static int print_list(const char *list, struct buf *out)
{
	int rc = buf_printf(out, "[");
	for (const char *i = NULL; rc == 0 && (i = textlist_next(list, i));) {
		rc = i == list ? 0 : buf_printf(out, ", ");
		if (rc == 0)
			rc = buf_json_string(out, i);
	}
	return rc ? rc : buf_printf(out, "]");
}

int setting_print(const struct setting *s, const void *c, struct buf *out)
{
	const char *from = (const char *)c + s->offset;
	char text[REAL_TEXT];
	double real;
	int64_t wide;
	int32_t narrow;
	switch (s->type) {
	case SET_INT:
		memcpy(&narrow, from, sizeof narrow);
		wide = narrow;
		if (s->size == sizeof wide)
			memcpy(&wide, from, sizeof wide);
		return buf_printf(out, "%lld", (long long)wide);
	case SET_REAL:
		memcpy(&real, from, sizeof real);
		return buf_printf(out, "%s", real_text(real, text));
	case SET_BOOL:
		return buf_printf(out, *(const bool *)(const void *)from ? "true" : "false");
	case SET_CHOICE:
		memcpy(&narrow, from, sizeof narrow);
		return buf_json_string(out, s->choices[narrow]);
	case SET_LIST:
		return print_list(from, out);
	case SET_TEXT:
	case SET_MODEL:
		break;
	}
	return buf_json_string(out, from);
}

int setting_print_text(const struct setting *s, const void *c, struct buf *out)
{
	const char *from = (const char *)c + s->offset;
	int choice;
	assert(s->type != SET_LIST);
	switch (s->type) {
	case SET_CHOICE:
		memcpy(&choice, from, sizeof choice);
		return buf_printf(out, "%s", s->choices[choice]);
	case SET_TEXT:
	case SET_MODEL:
		return buf_printf(out, "%s", from);
	default:
		return setting_print(s, c, out);
	}
}
