/* SPDX-License-Identifier: MIT */
/* The command line's parts that a script cannot reach, and the man page, whose lists must be those
 * of the tables. Where a list differs, the right one is printed: it is copied between its marks. */
#include "agent/base/textlist.h"
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "tests/support.h"

/* Text for a man page: hyphens that stay hyphens when they are copied. */
static void roff(struct buf *b, const char *text)
{
	for (; *text; text++)
		assert_int_equal(buf_printf(b, *text == '-' ? "\\-" : "%c", *text), 0);
}

#define ADD(...) assert_int_equal(buf_printf(b, __VA_ARGS__), 0)

static void settings_text(struct buf *b)
{
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		char lo[REAL_TEXT], hi[REAL_TEXT];
		ADD(".It Va %s , Fl %s", s->key, s->flag + 1);
		if (s->value)
			ADD(" Ar %s", s->value);
		if (s->env)
			ADD(" , Ev %s", s->env);
		ADD("\n%c", s->help[0] >= 'a' && s->help[0] <= 'z' ? s->help[0] - 32 : s->help[0]);
		roff(b, s->help + 1);
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

static void layers_text(struct buf *b)
{
	for (int k = 0; k < LAYER_KINDS; k++) {
		const struct layer_type *t = &layer_types[k];
		char text[REAL_TEXT];
		ADD(".It Cm %s\n%s", t->name, t->n_fields ? "Takes " : "Takes no fields");
		for (int i = 0; i < t->n_fields; i++) {
			const struct layer_field *f = &t->fields[i];
			ADD("%s%s", i ? ", " : "", f->key);
			if (f->required)
				ADD(" (needed)");
			else if (f->type == FIELD_BOOL)
				ADD(" (%s)", f->dflt != 0 ? "true" : "false");
			else
				ADD(" (%s)", real_text(f->dflt, text));
		}
		ADD(".\n");
	}
}

static void exits_text(struct buf *b)
{
#define X(name, value, text) ADD(".It %d\n%c%s.\n", value, (text)[0] - 32, (text) + 1);
	EXIT_CODES(X)
#undef X
}

static char *read_man_page(void)
{
	char path[1024];
	struct buf page;
	struct err e;
	const char *srcdir = getenv("srcdir");
	snprintf(path, sizeof path, "%s/agent/dunlin.1", srcdir ? srcdir : ".");
	buf_init(&page, 1 << 20);
	if (file_read(&page, path, &e))
		fail_msg("%s", e.msg);
	return page.data;
}

/* What stands between the marks of that name must be what fill writes. */
static void compare_part(const char *name, void (*fill)(struct buf *))
{
	char begin[64], end[64];
	char *page = read_man_page();
	struct buf want;
	buf_init(&want, 1 << 20);
	fill(&want);
	snprintf(begin, sizeof begin, ".\\\" begin %s\n", name);
	snprintf(end, sizeof end, ".\\\" end %s\n", name);
	char *from = strstr(page, begin), *to = strstr(page, end);
	assert_non_null(from);
	assert_non_null(to);
	from += strlen(begin);
	if ((size_t)(to - from) != want.len || memcmp(from, want.data, want.len) != 0) {
		fputs(want.data, stderr);
		fail_msg("agent/dunlin.1 has another list of %s", name);
	}
	buf_close(&want);
	free(page);
}

static void test_man_page_lists_the_settings(void **state)
{
	(void)state;
	compare_part("settings", settings_text);
}

static void test_man_page_lists_the_layers(void **state)
{
	(void)state;
	compare_part("layers", layers_text);
}

static void test_man_page_lists_the_exit_codes(void **state)
{
	(void)state;
	compare_part("exit codes", exits_text);
}

static void test_man_page_names_subcommands_and_flags(void **state)
{
	(void)state;
	char *page = read_man_page(), line[128];
	for (int i = 0; i < N_COMMANDS; i++) {
		snprintf(line, sizeof line, "\n.It Cm %s", commands[i].name);
		if (!strstr(page, line))
			fail_msg("no subcommand %s", commands[i].name);
		for (int k = 0; k < CLI_FLAGS_MAX && commands[i].flags[k].flag; k++) {
			snprintf(line, sizeof line, "Fl %s", commands[i].flags[k].flag + 1);
			if (!strstr(page, line))
				fail_msg("no flag %s", commands[i].flags[k].flag);
		}
	}
	free(page);
}

static void test_exit_codes(void **state)
{
	(void)state;
	assert_int_equal(exit_code(0, EXIT_DATA), EXIT_OK);
	assert_int_equal(exit_code(ERR_FORMAT, EXIT_DATA), EXIT_DATA);
	assert_int_equal(exit_code(ERR_IO, EXIT_MODEL), EXIT_MODEL);
	assert_int_equal(exit_code(ERR_NONFINITE, EXIT_DATA), EXIT_DIVERGED);
	assert_int_equal(exit_code(ERR_DEVICE, EXIT_DATA), EXIT_DEVICE);
	assert_int_equal(exit_code(ERR_USAGE, EXIT_DATA), EXIT_USAGE);
	assert_int_equal(exit_code(ERR_NOMEM, EXIT_DATA), EXIT_FAILED);
}

static void test_arguments_and_own_flags(void **state)
{
	(void)state;
	struct config c;
	struct cli_args a;
	int status = -1;
	char *given[] = {"eval", "--json", "--batch=7", "--", "--odd", NULL};
	assert_true(cli_begin(&c, &a, CMD_EVAL, 5, given, &status));
	assert_int_equal(a.n_files, 1);
	assert_string_equal(a.file[0], "--odd");
	assert_string_equal(cli_own(&a, CMD_EVAL, "--json"), "");
	assert_int_equal(c.train.batch, 7);
	config_close(&c);
	char *bare[] = {"eval", "w.safetensors", NULL};
	assert_true(cli_begin(&c, &a, CMD_EVAL, 2, bare, &status));
	assert_null(cli_own(&a, CMD_EVAL, "--json"));
	config_close(&c);
	/* No settings, so the environment's config is not read. */
	setenv("DUNLIN_CONFIG", "/nowhere", 1);
	char *inspect[] = {"inspect", "f", NULL};
	assert_true(cli_begin(&c, &a, CMD_INSPECT, 2, inspect, &status));
	config_close(&c);
	unsetenv("DUNLIN_CONFIG");
}

static void test_lists(void **state)
{
	(void)state;
	const struct setting *keys = &settings[setting_find("agent.keys")];
	struct config c;
	struct buf out;
	char why[SETTING_WHY], *long_text = calloc(1, LIMIT_LIST + 1);
	config_defaults(&c);
	assert_int_equal(textlist_count(c.agent.keys), 0);
	assert_int_equal(setting_set_text(keys, &c, "a,b c", why), 0);
	assert_memory_equal(c.agent.keys, "a\0b c\0", 7);
	/* What is wrong leaves the list as it was. */
	assert_int_equal(setting_set_text(keys, &c, "x,,y", why), ERR_INVALID);
	assert_int_equal(setting_set_text(keys, &c, "1,2,3,4", why), ERR_INVALID);
	memset(long_text, 'x', LIMIT_LIST);
	assert_int_equal(setting_set_text(keys, &c, long_text, why), ERR_INVALID);
	assert_non_null(strstr(why, "longer than"));
	assert_memory_equal(c.agent.keys, "a\0b c\0", 7);
	long_text[LIMIT_LIST - 6] = 0; /* one byte too many beside a and b c */
	assert_int_equal(setting_add(keys, &c, long_text, why), ERR_INVALID);
	long_text[LIMIT_LIST - 8] = 0;
	assert_int_equal(setting_add(keys, &c, long_text, why), 0);
	assert_int_equal(textlist_count(c.agent.keys), 3);
	const char *items[3];
	assert_int_equal(textlist_items(c.agent.keys, items, 2), 2);
	assert_string_equal(items[1], "b c");
	assert_int_equal(setting_set_text(keys, &c, "\"q\",z", why), 0);
	buf_init(&out, 4096);
	assert_int_equal(setting_print(keys, &c, &out), 0);
	assert_string_equal(out.data, "[\"\\\"q\\\"\", \"z\"]");
	buf_close(&out);
	free(long_text);
	config_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_man_page_lists_the_settings),
	        cmocka_unit_test(test_man_page_lists_the_layers),
	        cmocka_unit_test(test_man_page_lists_the_exit_codes),
	        cmocka_unit_test(test_man_page_names_subcommands_and_flags),
	        cmocka_unit_test(test_exit_codes),
	        cmocka_unit_test(test_arguments_and_own_flags),
	        cmocka_unit_test(test_lists),
	};
	unsetenv("DUNLIN_CONFIG");
	for (int i = 0; i < n_settings; i++)
		if (settings[i].env)
			unsetenv(settings[i].env);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
