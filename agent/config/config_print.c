/* SPDX-License-Identifier: MIT */
/* Settings back into a file: `config show` prints what is in force, `config init` the same with a
 * comment above each line. Both are read back by config_load to equal settings; the example can
 * therefore not fall behind the program. Fails only for lack of memory. */
#include "agent/config/config_model.h"
#include "agent/config/options.h"

#include <stdio.h>
#include <string.h>

static const char head[] =
        "// Settings of Dunlin, see dunlin(1). Every line is optional: these are the defaults, or\n"
        "// the flags given when this file was written. Environment variables are stronger than\n"
        "// this file, flags are stronger still. Paths are relative to where dunlin is started.\n";

static int print_layer(const struct layer *l, struct buf *out)
{
	const struct layer_type *t = layer_types[l->kind];
	struct layer plain;
	char text[REAL_TEXT];
	int rc = layer_init(&plain, t->name);
	if (rc == 0)
		rc = buf_printf(out, "{\"type\": \"%s\"", t->name);
	if (rc == 0 && l->name[0] && (rc = buf_printf(out, ", \"name\": ")) == 0)
		rc = buf_json_string(out, l->name);
	for (int k = 0; k < LAYER_INPUTS_MAX && l->from[k][0] && rc == 0; k++) {
		rc = buf_printf(out, k ? ", " : ", \"from\": [");
		if (rc == 0)
			rc = buf_json_string(out, l->from[k]);
	}
	if (rc == 0 && l->from[0][0])
		rc = buf_printf(out, "]");
	for (int i = 0; i < t->n_fields && rc == 0; i++) {
		const struct layer_field *f = &t->fields[i];
		const char *from = (const char *)l + f->offset;
		int64_t whole;
		double real;
		bool truth;
		size_t size = f->type == FIELD_BOOL ? sizeof truth : sizeof whole;
		if (!f->required && memcmp(from, (const char *)&plain + f->offset, size) == 0)
			continue;
		if (f->type == FIELD_INT) {
			memcpy(&whole, from, sizeof whole);
			rc = buf_printf(out, ", \"%s\": %lld", f->key, (long long)whole);
		} else if (f->type == FIELD_REAL) {
			memcpy(&real, from, sizeof real);
			rc = buf_printf(out, ", \"%s\": %s", f->key, real_text(real, text));
		} else {
			memcpy(&truth, from, sizeof truth);
			rc = buf_printf(out, ", \"%s\": %s", f->key, truth ? "true" : "false");
		}
	}
	return rc ? rc : buf_printf(out, "}");
}

static int print_model(const struct config *c, struct buf *out)
{
	if (!c->layers)
		return buf_json_string(out, c->preset);
	int rc = buf_printf(out, "{\"layers\": [\n");
	for (int i = 0; i < c->n_layers && rc == 0; i++) {
		rc = buf_printf(out, "    ");
		if (rc == 0)
			rc = print_layer(&c->layers[i], out);
		if (rc == 0)
			rc = buf_printf(out, i + 1 < c->n_layers ? ",\n" : "\n");
	}
	return rc ? rc : buf_printf(out, "  ]}");
}

/* "// course of the learning rate: constant, step, cosine (--schedule)" */
static int print_comment(const struct setting *s, bool flags, int depth, struct buf *out)
{
	char lo[REAL_TEXT], hi[REAL_TEXT];
	const bool number = s->type == SET_INT || s->type == SET_REAL;
	int rc = buf_printf(out, "%*s// %s", 2 * depth, "", s->help);
	for (int i = 0; s->type == SET_CHOICE && s->choices[i] && rc == 0; i++)
		rc = buf_printf(out, "%s %s", i ? "," : ":", s->choices[i]);
	if (rc == 0 && (flags || number))
		rc = buf_printf(out, " (%s", flags ? s->flag : "");
	if (rc == 0 && flags && s->env)
		rc = buf_printf(out, ", %s", s->env);
	if (rc == 0 && number)
		rc = buf_printf(out, "%s%s to %s", flags ? "; " : "", real_text(s->min, lo),
		        real_text(s->max, hi));
	return rc ? rc : buf_printf(out, flags || number ? ")\n" : "\n");
}

/* Closes the sections that the next key is not in, and opens those that it is in. Keys of a section
 * stand together in the table, so one look at the key before is enough. */
static int change_section(const char *last, const char *key, int *depth, struct buf *out)
{
	size_t common = 0;
	int rc = 0, keep = 1;
	for (size_t i = 0; last[i] && last[i] == key[i]; i++)
		if (key[i] == '.') {
			common = i + 1;
			keep++;
		}
	while (*depth > keep && rc == 0)
		rc = buf_printf(out, "\n%*s}", 2 * --*depth, "");
	if (rc == 0)
		rc = buf_printf(out, *last ? ",\n" : "");
	const char *dot;
	for (const char *p = key + common; (dot = strchr(p, '.')) && rc == 0; p = dot + 1)
		rc = buf_printf(out, "%*s\"%.*s\": {\n", 2 * (*depth)++, "", (int)(dot - p), p);
	return rc;
}

int settings_print(const struct setting *rows, int n, const void *c, const struct print_how *how,
        const char **last, int *depth, struct buf *out)
{
	int rc = 0;
	for (int i = 0; i < n && rc == 0; i++) {
		const struct setting *s = &rows[i];
		const char *dot = strrchr(s->key, '.');
		if (how->leave_out && how->leave_out(s->key))
			continue;
		rc = change_section(*last, s->key, depth, out);
		if (rc == 0 && how->comments)
			rc = print_comment(s, how->flags, *depth, out);
		if (rc == 0)
			rc = buf_printf(out, "%*s\"%s\": ", 2 * *depth, "", dot ? dot + 1 : s->key);
		if (rc == 0)
			rc = s->type == SET_MODEL ? print_model(c, out) : setting_print(s, c, out);
		*last = s->key;
	}
	return rc;
}

int config_print(const struct config *c, bool comments, struct buf *out)
{
	const struct print_how how = {.comments = comments, .flags = true};
	int depth = 1;
	const char *last = "";
	int rc = buf_printf(out, "%s{\n", comments ? head : "");
	if (rc == 0)
		rc = settings_print(settings, n_settings, c, &how, &last, &depth, out);
	while (--depth > 0 && rc == 0)
		rc = buf_printf(out, "\n%*s}", 2 * depth, "");
	return rc ? rc : buf_printf(out, "\n}\n");
}
