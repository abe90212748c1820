/* SPDX-License-Identifier: MIT */
/* The command line: which subcommands there are, which flags each takes, and the way from argv to a
 * checked struct config. */
#ifndef DUNLIN_AGENT_CLI_CLI_H
#define DUNLIN_AGENT_CLI_CLI_H

#include "agent/cli/commands.h"
#include "agent/config/config.h"

#include <stdbool.h>

enum command_id {
#define COMMAND(ID, ...) CMD_##ID,
#include "agent/cli/command_rows.h"
	N_COMMANDS
};

/* A flag that is a subcommand's own and no setting. */
struct cli_flag {
	const char *flag;
	const char *value; /* the value's name in the help; NULL: it takes none */
	const char *help;
	int max; /* the value is a whole number from 1 to max; 0: it is any text */
};

#define CLI_FLAGS_MAX 10
struct command {
	const char *name;
	const char *args; /* "CHECKPOINT OUT.safetensors" */
	int args_min, args_max;
	const char *summary;
	unsigned settings; /* TAKEN_BY_ of options.h; 0: none, and so no --config */
	struct cli_flag flags[CLI_FLAGS_MAX];
	int (*run)(int argc, char **argv);
};
extern const struct command commands[N_COMMANDS];

/* The subcommand of that name. N_COMMANDS: there is none, and stderr says so. */
enum command_id cli_find(const char *name);

#define CLI_ARGS_MAX 64
struct cli_args {
	const char *config;             /* borrowed from argv or the environment; NULL: none */
	const char *file[CLI_ARGS_MAX]; /* borrowed from argv: the arguments that are no flags */
	int n_files;
	const char *own[CLI_FLAGS_MAX]; /* by commands[].flags; see cli_own */
	bool given[CONFIG_SETTINGS_MAX]; /* by setting: its flag was given */
};

/* The whole front of a subcommand: flags, defaults, config file, environment, checks, the log.
 * True: c and a are filled, go on (and config_close(c) in the end). False: return *status, since
 * --help was answered or everything wrong has been told on stderr. argv[0] is the subcommand. */
bool cli_begin(struct config *c, struct cli_args *a, enum command_id id, int argc, char **argv,
        int *status) MUST_CHECK;

/* The parts of cli_begin, for a subcommand that has something to do between them. cli_parse checks
 * the flags and fills a (c is left at the defaults and the flags); cli_collect reads file,
 * environment and flags into c and what is wrong into p, 0 if nothing is; cli_tell puts it on
 * stderr. */
bool cli_parse(struct config *c, struct cli_args *a, enum command_id id, int argc, char **argv,
        int *status) MUST_CHECK;
int cli_collect(struct config *c, const struct cli_args *a, enum command_id id, int argc,
        char **argv, struct config_problems *p) MUST_CHECK;
void cli_tell(const struct config_problems *p);

/* The value of one of the subcommand's own flags ("" if it takes none), or NULL when it was not
 * given: cli_own(&a, CMD_EVAL, "--json"). */
const char *cli_own(const struct cli_args *a, enum command_id id, const char *flag);

/* "dunlin train: …" on stderr, and where to read on; returns EXIT_USAGE. */
int cli_usage_error(enum command_id id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "dunlin: …" on stderr; returns code. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Help on stdout: of one subcommand, or of all with id N_COMMANDS. Returns the exit code. */
int cli_help(enum command_id id);

/* For the shell completion, words[n - 1] being the one under the cursor: candidates on stdout, one
 * a line; "FILE" on a line asks for file names. */
int cli_complete(int n, char **words);

/* Prints text on stdout, at once; EXIT_FAILED, told, if it does not take it. */
int cli_print(const struct buf *text);

/* The exit code of a command that is done: EXIT_FAILED, told, if stdout could not take all that was
 * printed to it. */
int cli_finish(int status);

#endif
