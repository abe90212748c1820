/* SPDX-License-Identifier: MIT */
/* What the command line tells about itself, all of it from the tables: help texts, and candidates
 * for the shell's completion. */
#include "agent/cli/cli.h"
#include "agent/config/options.h"

#include <stdio.h>
#include <string.h>

#define FLAG_WIDTH 26
#define DEFAULT_WIDTH 24

static void print_flag(const char *flag, const char *value, const char *help)
{
	char left[96];
	snprintf(left, sizeof left, "%s%s%s", flag, value ? " " : "", value ? value : "");
	printf("  %-*s %s", FLAG_WIDTH, left, help);
}

static void print_own(const struct cli_flag *f)
{
	print_flag(f->flag, f->value, f->help);
	printf(f->max ? "; N is 1 to %d\n" : "\n", f->max);
}

/* The flag, its choices and its default; a long one on a line of its own. */
static void print_setting(const struct setting *s)
{
	char flag[64];
	snprintf(flag, sizeof flag, "--%s%s", s->type == SET_BOOL ? "[no-]" : "", s->flag + 2);
	print_flag(flag, s->value, s->help);
	for (int i = 0; s->type == SET_CHOICE && s->choices[i]; i++)
		printf("%s %s", i ? "," : ":", s->choices[i]);
	if (strlen(s->dflt) > DEFAULT_WIDTH)
		printf("\n  %-*s", FLAG_WIDTH, "");
	if (s->dflt[0])
		printf(" (%s)", s->dflt);
	putchar('\n');
}

static void print_settings(unsigned taken_by)
{
	char section[LIMIT_NAME] = "none";
	printf("\nSettings. Each is also a key of the config file, in the section named above it.\n"
	       "Defaults are in parentheses.\n");
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		char here[LIMIT_NAME];
		const char *dot = strrchr(s->key, '.');
		if (!(s->taken_by & taken_by))
			continue;
		snprintf(here, sizeof here, "%.*s", dot ? (int)(dot - s->key) : 0, s->key);
		if (strcmp(here, section) != 0)
			printf(here[0] ? "\n %s:\n" : "\n", here);
		snprintf(section, sizeof section, "%s", here);
		print_setting(s);
	}
}

static void print_exit_codes(void)
{
	printf("\nExit codes:\n");
#define X(name, value, text) printf("  %2d  %s\n", value, text);
	EXIT_CODES(X)
#undef X
}

int cli_help(enum command_id id)
{
	if (id == N_COMMANDS) {
		printf("Usage: dunlin SUBCOMMAND [flags]\n\n"
		       "Trains neural networks, on one machine or on many that come and go.\n\n"
		       "Subcommands:\n");
		for (int i = 0; i < N_COMMANDS; i++)
			printf("  %-10s %s\n", commands[i].name, commands[i].summary);
		printf("\n`dunlin SUBCOMMAND --help` lists its flags; dunlin(1) is the manual.\n"
		       "`dunlin train` alone trains a small network on Fashion-MNIST.\n");
		print_exit_codes();
		return EXIT_OK;
	}
	const struct command *cmd = &commands[id];
	printf("Usage: dunlin %s [flags]%s%s\n\n%c%s.\n\nFlags:\n", cmd->name,
	        cmd->args[0] ? " " : "", cmd->args, cmd->summary[0] - 'a' + 'A', cmd->summary + 1);
	for (int i = 0; i < CLI_FLAGS_MAX && cmd->flags[i].flag; i++)
		print_own(&cmd->flags[i]);
	if (cmd->settings) {
		print_flag("--config", "FILE", "config file, JSON with comments (DUNLIN_CONFIG)");
		putchar('\n');
	}
	print_flag("--help", NULL, "show this help");
	putchar('\n');
	if (cmd->settings)
		print_settings(cmd->settings);
	return EXIT_OK;
}

int cmd_help(int argc, char **argv)
{
	if (argc > 2)
		return cli_usage_error(CMD_HELP, "name one subcommand at most");
	if (argc < 2 || strcmp(argv[1], "--help") == 0)
		return cli_help(N_COMMANDS);
	enum command_id id = cli_find(argv[1]);
	return id == N_COMMANDS ? EXIT_USAGE : cli_help(id);
}

int cmd_version(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return cli_usage_error(CMD_VERSION, "takes no arguments");
	printf("dunlin %s\n", PACKAGE_VERSION);
	return EXIT_OK;
}

/* ---- completion */

/* Values of the flag before the cursor. False: it takes none, so something else is wanted. */
static bool complete_value(const struct command *cmd, const char *flag)
{
	bool negated;
	int index = setting_find_flag(flag, cmd->settings, &negated);
	for (int i = 0; i < CLI_FLAGS_MAX && cmd->flags[i].flag; i++)
		if (strcmp(cmd->flags[i].flag, flag) == 0) {
			if (cmd->flags[i].value && strcmp(cmd->flags[i].value, "FILE") == 0)
				puts("FILE");
			return cmd->flags[i].value != NULL;
		}
	if (strcmp(flag, "--config") == 0) {
		puts("FILE");
		return true;
	}
	if (index < 0 || settings[index].type == SET_BOOL)
		return false;
	const struct setting *s = &settings[index];
	for (int i = 0; s->choices && s->choices[i]; i++)
		puts(s->choices[i]);
	if (strcmp(s->key, "run.device") == 0)
		puts("auto\ncpu\nplain\ncuda");
	else if (strcmp(s->value, "FILE") == 0 || strcmp(s->value, "DIR") == 0)
		puts("FILE");
	return true;
}

static void complete_flags(const struct command *cmd)
{
	puts("--help");
	if (cmd->settings)
		puts("--config");
	for (int i = 0; i < CLI_FLAGS_MAX && cmd->flags[i].flag; i++)
		puts(cmd->flags[i].flag);
	for (int i = 0; i < n_settings; i++) {
		if (!(settings[i].taken_by & cmd->settings))
			continue;
		puts(settings[i].flag);
		if (settings[i].type == SET_BOOL)
			printf("--no-%s\n", settings[i].flag + 2);
	}
}

int cli_complete(int n, char **words)
{
	if (n <= 1) {
		for (int i = 0; i < N_COMMANDS; i++)
			puts(commands[i].name);
		puts("--help\n--version");
		return EXIT_OK;
	}
	int id = 0;
	while (id < N_COMMANDS && strcmp(commands[id].name, words[0]) != 0)
		id++;
	if (id == N_COMMANDS)
		return EXIT_OK;
	if (complete_value(&commands[id], words[n - 2]))
		return EXIT_OK;
	if (words[n - 1][0] == '-')
		complete_flags(&commands[id]);
	else if (id == CMD_CONFIG && n == 2)
		puts("init\ncheck\nshow");
	else if (id == CMD_HELP)
		for (int i = 0; i < N_COMMANDS; i++)
			puts(commands[i].name);
	else if (commands[id].args_max > 0)
		puts("FILE");
	else
		complete_flags(&commands[id]);
	return EXIT_OK;
}
