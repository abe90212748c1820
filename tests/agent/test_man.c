/* SPDX-License-Identifier: MIT */
/* The man page. Its lists, between the marks `begin NAME` and `end NAME`, are made from the
 * program's tables: with --write (`make man`) this program writes them into agent/dunlin.1, as a
 * test it fails where the page has others. */
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "tests/support.h"

#define ADD(...) assert_int_equal(buf_printf(b, __VA_ARGS__), 0)

/* Text for a man page: hyphens that stay hyphens when they are copied. */
static void roff(struct buf *b, const char *text)
{
	for (; *text; text++)
		ADD(*text == '-' ? "\\-" : "%c", *text);
}

/* A help text as a sentence, without its full stop. */
static void sentence(struct buf *b, const char *help)
{
	ADD("%c", help[0] >= 'a' && help[0] <= 'z' ? help[0] - 32 : help[0]);
	roff(b, help + 1);
}

static void add_commands(struct buf *b)
{
	for (int i = 0; i < N_COMMANDS; i++) {
		const struct command *c = &commands[i];
		ADD(".It Cm %s%s%s\n", c->name, c->args[0] ? " Ar " : "", c->args);
		sentence(b, c->summary);
		ADD(".\n");
		if (c->settings)
			ADD("Takes\n.Fl -config\nand settings.\n");
		for (int k = 0; k < CLI_FLAGS_MAX && c->flags[k].flag; k++) {
			const struct cli_flag *f = &c->flags[k];
			ADD("%s.It Fl %s%s%s\n", k ? "" : ".Bl -tag -width Ds -compact\n",
			        f->flag + 1, f->value ? " Ar " : "", f->value ? f->value : "");
			sentence(b, f->help);
			ADD(".\n");
			if (f->max)
				ADD("From 1 to %d.\n", f->max);
		}
		if (c->flags[0].flag)
			ADD(".El\n");
	}
}

static void add_settings(struct buf *b)
{
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		char lo[REAL_TEXT], hi[REAL_TEXT];
		ADD(".It Va %s , Fl %s", s->key, s->flag + 1);
		if (s->value)
			ADD(" Ar %s", s->value);
		if (s->env)
			ADD(" , Ev %s", s->env);
		ADD("\n");
		sentence(b, s->help);
		for (int k = 0; s->type == SET_CHOICE && s->choices[k]; k++)
			ADD("%s %s", k ? "," : ":", s->choices[k]);
		ADD(".\n");
		if (s->type == SET_INT || s->type == SET_REAL)
			ADD("From %s to %s.\n", real_text(s->min, lo), real_text(s->max, hi));
		ADD("Default: ");
		roff(b, s->dflt[0] ? s->dflt : "empty");
		ADD(".\n");
	}
}

static void add_layers(struct buf *b)
{
	for (int k = 0; k < LAYER_KINDS; k++) {
		const struct layer_type *t = layer_types[k];
		char text[REAL_TEXT];
		ADD(".It Cm %s\n%s", t->name, t->n_fields ? "Takes " : "Takes no fields");
		for (int i = 0; i < t->n_fields; i++) {
			const struct layer_field *f = &t->fields[i];
			ADD("%s%s", i ? ", " : "", f->key);
			if (f->required)
				ADD(" (required)");
			else if (f->type == FIELD_BOOL)
				ADD(" (%s)", f->dflt != 0 ? "true" : "false");
			else
				ADD(" (%s)", real_text(f->dflt, text));
		}
		ADD(".\n");
	}
}

static void add_exit_codes(struct buf *b)
{
#define X(name, value, text)    \
	ADD(".It %d\n", value); \
	sentence(b, text);      \
	ADD(".\n");
	EXIT_CODES(X)
#undef X
}

static const struct {
	const char *name;
	void (*add)(struct buf *b);
} lists[] = {{"subcommands", add_commands}, {"settings", add_settings}, {"layers", add_layers},
        {"exit codes", add_exit_codes}};

static const char *page_path(char out[1024])
{
	const char *srcdir = getenv("srcdir");
	snprintf(out, 1024, "%s/agent/dunlin.1", srcdir ? srcdir : ".");
	return out;
}

/* The page as it is, and as it must be: everything outside of the marks is kept. */
static void make_page(struct buf *is, struct buf *b)
{
	char path[1024], mark[64];
	struct err e;
	buf_init(is, 1 << 20);
	buf_init(b, 1 << 20);
	if (file_read(is, page_path(path), &e))
		fail_msg("%s", e.msg);
	char *from = is->data;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		snprintf(mark, sizeof mark, ".\\\" begin %s\n", lists[i].name);
		char *begin = strstr(from, mark);
		snprintf(mark, sizeof mark, ".\\\" end %s\n", lists[i].name);
		char *end = begin ? strstr(begin, mark) : NULL;
		if (!end)
			fail_msg("%s: no marks of %s, or not in this order", path, lists[i].name);
		begin = strchr(begin, '\n') + 1;
		ADD("%.*s", (int)(begin - from), from);
		lists[i].add(b);
		from = end;
	}
	ADD("%s", from);
}

static void test_man_page_has_the_lists_of_the_tables(void **state)
{
	struct buf is, must;
	(void)state;
	make_page(&is, &must);
	if (strcmp(is.data, must.data) != 0)
		fail_msg("agent/dunlin.1 is out of date: run `make man`");
	buf_close(&is);
	buf_close(&must);
}

static int write_page(void)
{
	char path[1024];
	struct buf is, must;
	make_page(&is, &must);
	FILE *f = fopen(page_path(path), "w");
	bool ok = f && fputs(must.data, f) >= 0;
	ok = f && fclose(f) == 0 && ok;
	if (!ok)
		perror(path);
	buf_close(&is);
	buf_close(&must);
	return !ok;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_man_page_has_the_lists_of_the_tables),
	};
	if (argc > 1 && strcmp(argv[1], "--write") == 0)
		return write_page();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
