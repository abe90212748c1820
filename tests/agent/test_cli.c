/* SPDX-License-Identifier: MIT */
/* The command line's parts that a script cannot reach. */
#include "agent/base/textlist.h"
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "agent/train/trainer.h"
#include "tests/support.h"

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
	/* A device that lacks a layer is not a broken one: model and device do not go together. */
	assert_int_equal(trainer_exit_code(ERR_UNSUPPORTED, TRAINER_DEVICE), EXIT_CONFIG);
	assert_int_equal(trainer_exit_code(ERR_NOTFOUND, TRAINER_DEVICE), EXIT_DEVICE);
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
