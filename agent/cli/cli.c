/* SPDX-License-Identifier: MIT */
/* From argv to settings.
 *
 * Flags are strongest but come first, since they name the config file. So argv is read twice: once
 * over plain defaults, which finds everything wrong with the command line itself (exit code 2), and
 * once more over file and environment, when nothing can be wrong with it any more. What is wrong
 * with file, environment or the settings together is told all at once (exit code 3).
 *
 * A flag is --flag VALUE or --flag=VALUE; a boolean one is --flag, --no-flag or --flag=no. "--"
 * ends the flags, "-" is a plain argument. */
#include "agent/cli/cli.h"

#include "agent/base/log.h"
#include "agent/config/options.h"
#include "agent/json/jsontext.h"
#include "gossip/flock/flock.h"
#include "net/limits.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

const struct command commands[N_COMMANDS] = {
#define COMMAND(ID, name_, args_, least, most, settings_, summary_, ...) \
	[CMD_##ID] = {.name = #name_,                                    \
	        .args = args_,                                           \
	        .args_min = least,                                       \
	        .args_max = most,                                        \
	        .summary = summary_,                                     \
	        .settings = settings_,                                   \
	        .flags = {__VA_ARGS__},                                  \
	        .run = cmd_##name_},
#include "agent/cli/command_rows.h"
};

int cli_fail(int code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("dunlin: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return code;
}

int cli_usage_error(enum command_id id, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "dunlin %s: ", commands[id].name);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\nTry `dunlin %s --help`.\n", commands[id].name);
	va_end(ap);
	return EXIT_USAGE;
}

static int stdout_failed(int error)
{
	/* What is still in the buffer would fail again, and be told again. */
	__fpurge(stdout);
	clearerr(stdout);
	return cli_fail(EXIT_FAILED, "write to stdout: %s", error ? strerror(error) : "failed");
}

int cli_print(const struct buf *text)
{
	if (fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0)
		return EXIT_OK;
	return stdout_failed(errno);
}

int cli_finish(int status)
{
	bool failed = ferror(stdout);
	errno = 0;
	if (fflush(stdout) != 0 || failed)
		return stdout_failed(errno);
	return status;
}

enum command_id cli_find(const char *name)
{
	const char *names[N_COMMANDS + 1] = {NULL};
	char shown[JSON_SHOWN];
	for (int i = 0; i < N_COMMANDS; i++) {
		names[i] = commands[i].name;
		if (strcmp(names[i], name) == 0)
			return (enum command_id)i;
	}
	const char *meant = nearest(name, names);
	fprintf(stderr, "dunlin: unknown subcommand \"%s\"", json_shown(name, shown));
	if (meant)
		fprintf(stderr, "; did you mean \"%s\"?", meant);
	fputs("\nTry `dunlin --help`.\n", stderr);
	return N_COMMANDS;
}

static int find_own(const struct command *cmd, const char *flag)
{
	for (int i = 0; i < CLI_FLAGS_MAX && cmd->flags[i].flag; i++)
		if (strcmp(cmd->flags[i].flag, flag) == 0)
			return i;
	return -1;
}

const char *cli_own(const struct cli_args *a, enum command_id id, const char *flag)
{
	int i = find_own(&commands[id], flag);
	return i >= 0 ? a->own[i] : NULL;
}

/* Tells so, with the flag that was likely meant. */
static int unknown_flag(enum command_id id, const char *flag)
{
	const struct command *cmd = &commands[id];
	const char *others[CLI_FLAGS_MAX + 3] = {"--help"};
	char shown[JSON_SHOWN], word[JSON_SHOWN];
	bool negated;
	int n = 1, best = JSON_SHOWN;
	json_shown(flag, shown);
	if (setting_find_flag(flag, TAKEN_BY_ANY, &negated) >= 0 || strcmp(flag, "--config") == 0)
		return cli_usage_error(id, "%s is not a flag of this subcommand", shown);
	for (int i = 0; i < CLI_FLAGS_MAX && cmd->flags[i].flag; i++)
		others[n++] = cmd->flags[i].flag;
	if (cmd->settings)
		others[n++] = "--config";
	const char *meant = nearest(flag, others);
	snprintf(word, sizeof word, "%s", flag + strspn(flag, "-"));
	for (char *p = word; *p; p++)
		*p = *p == '-' ? '_' : *p;
	for (int i = 0; i < n_settings && !meant; i++) {
		int d = setting_nearness(word, &settings[i]);
		if (settings[i].taken_by & cmd->settings && d >= 0 && d < best) {
			best = d;
			others[0] = settings[i].flag;
		}
	}
	if (!meant && best < JSON_SHOWN)
		meant = others[0];
	return meant ? cli_usage_error(id, "unknown flag %s; did you mean %s?", shown, meant)
	             : cli_usage_error(id, "unknown flag %s", shown);
}

struct reader {
	enum command_id id;
	int argc, at;
	char **argv;
	struct config *c;
	struct cli_args *a;
	bool help;
};

/* The value of a flag that needs one: what stands behind = or in the next argument, unless that is
 * a flag itself. NULL: none. */
static const char *take_value(struct reader *r, const char *inline_value)
{
	if (inline_value)
		return inline_value;
	if (r->at + 1 >= r->argc || strncmp(r->argv[r->at + 1], "--", 2) == 0)
		return NULL;
	return r->argv[++r->at];
}

static int read_setting_flag(
        struct reader *r, const char *flag, int index, bool negated, const char *inline_value)
{
	const struct setting *s = &settings[index];
	char why[SETTING_WHY];
	const char *value = NULL;
	if (s->type != SET_BOOL)
		value = take_value(r, inline_value);
	else if (negated && inline_value)
		return cli_usage_error(r->id, "%s takes no value", flag);
	else
		value = inline_value ? inline_value : negated ? "false" : "true";
	if (!value)
		return cli_usage_error(r->id, "%s needs a value: %s %s", flag, flag, s->value);
	int rc;
	if (s->type == SET_LIST) {
		/* The first flag replaces what file and environment say, the others add to it. An
		 * empty one adds nothing. */
		if (!r->a->given[index])
			setting_clear(s, r->c);
		rc = value[0] ? setting_add(s, r->c, value, why) : 0;
	} else {
		rc = setting_set_text(s, r->c, value, why);
	}
	r->a->given[index] = true;
	if (rc)
		return cli_usage_error(r->id, "%s: %s", flag, why);
	return 0;
}

static int check_own(enum command_id id, const struct cli_flag *f, const char *value)
{
	char shown[JSON_SHOWN];
	size_t len = strlen(value);
	long long n = len <= 10 && strspn(value, "0123456789") == len ? atoll(value) : 0;
	if (!f->max || (n >= 1 && n <= f->max))
		return 0;
	return cli_usage_error(id, "%s must be a whole number from 1 to %d, not \"%s\"", f->flag,
	        f->max, json_shown(value, shown));
}

static int read_flag(struct reader *r)
{
	const struct command *cmd = &commands[r->id];
	char flag[64];
	const char *arg = r->argv[r->at], *eq = strchr(arg, '=');
	const char *inline_value = eq ? eq + 1 : NULL;
	bool negated;
	int n = snprintf(
	        flag, sizeof flag, "%.*s", eq ? (int)(eq - arg) : (int)strnlen(arg, 1024), arg);
	if (n < 0 || n >= (int)sizeof flag)
		return unknown_flag(r->id, flag);
	int own = find_own(cmd, flag), index = setting_find_flag(flag, cmd->settings, &negated);
	bool config = cmd->settings && strcmp(flag, "--config") == 0;
	if ((strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) && !eq) {
		r->help = true;
		return 0;
	}
	if (own >= 0 && !cmd->flags[own].value) {
		r->a->own[own] = "";
		return eq ? cli_usage_error(r->id, "%s takes no value", flag) : 0;
	}
	if (own >= 0 || config) {
		const char *value = take_value(r, inline_value);
		if (!value || !value[0])
			return cli_usage_error(r->id, "%s needs a value: %s %s", flag, flag,
			        own >= 0 ? cmd->flags[own].value : "FILE");
		*(own >= 0 ? &r->a->own[own] : &r->a->config) = value;
		return own >= 0 ? check_own(r->id, &cmd->flags[own], value) : 0;
	}
	if (index < 0)
		return unknown_flag(r->id, flag);
	return read_setting_flag(r, flag, index, negated, inline_value);
}

/* Over all arguments; the first that is wrong ends it. */
static int read_args(struct reader *r)
{
	const struct command *cmd = &commands[r->id];
	bool flags = true;
	char shown[JSON_SHOWN];
	for (r->at = 1; r->at < r->argc && !r->help; r->at++) {
		const char *arg = r->argv[r->at];
		if (flags && strcmp(arg, "--") == 0) {
			flags = false;
		} else if (flags && arg[0] == '-' && arg[1]) {
			int rc = read_flag(r);
			if (rc)
				return rc;
		} else if (r->a->n_files == cmd->args_max) {
			return cli_usage_error(
			        r->id, "unexpected argument \"%s\"", json_shown(arg, shown));
		} else {
			r->a->file[r->a->n_files++] = arg;
		}
	}
	if (!r->help && r->a->n_files < cmd->args_min)
		return cli_usage_error(r->id, "needs %s", cmd->args);
	return 0;
}

bool cli_parse(struct config *c, struct cli_args *a, enum command_id id, int argc, char **argv,
        int *status)
{
	struct reader r = {.id = id, .argc = argc, .argv = argv, .c = c, .a = a};
	memset(a, 0, sizeof *a);
	config_defaults(c);
	*status = read_args(&r);
	if (*status == 0 && r.help)
		*status = cli_help(id);
	else if (*status == 0)
		return true;
	config_close(c);
	return false;
}

int cli_collect(struct config *c, const struct cli_args *a, enum command_id id, int argc,
        char **argv, struct config_problems *p)
{
	struct cli_args again = {0};
	struct reader r = {.id = id, .argc = argc, .argv = argv, .c = c, .a = &again};
	config_close(c);
	config_defaults(c);
	config_problems_init(p, NULL);
	int rc = a->config ? config_load(c, a->config, p) : 0;
	rc = config_env(c, p) || rc;
	rc = read_args(&r) || rc;
	rc = config_check(c, p) || rc;
	return rc ? ERR_INVALID : 0;
}

void cli_tell(const struct config_problems *p)
{
	struct buf text;
	buf_init(&text, 1 << 20);
	if (config_problems_text(p, &text) == 0)
		fputs(text.data ? text.data : "", stderr);
	else
		fputs("dunlin: out of memory\n", stderr);
	buf_close(&text);
}

bool cli_begin(struct config *c, struct cli_args *a, enum command_id id, int argc, char **argv,
        int *status)
{
	struct config_problems p;
	if (!cli_parse(c, a, id, argc, argv, status))
		return false;
	if (!commands[id].settings)
		return true;
	const char *env = getenv("DUNLIN_CONFIG");
	if (!a->config && env && env[0])
		a->config = env;
	if (cli_collect(c, a, id, argc, argv, &p) == 0) {
		log_setup(&(struct log_config){.level = (enum log_level)c->log.level,
		        .format = (enum log_format)c->log.format});
		return true;
	}
	cli_tell(&p);
	config_close(c);
	*status = EXIT_CONFIG;
	return false;
}
