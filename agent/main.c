/* SPDX-License-Identifier: MIT */
/* The program: finds the subcommand and runs it. */
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "agent/json/jsontext.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int cmd_version(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return cli_usage_error(CMD_VERSION, "takes no arguments");
	printf("dunlin %s\n", PACKAGE_VERSION);
	return EXIT_OK;
}

static int cmd_help(int argc, char **argv);

static int (*const run[N_COMMANDS])(int argc, char **argv) = {
        [CMD_TRAIN] = cmd_train,
        [CMD_EVAL] = cmd_eval,
        [CMD_EXPORT] = cmd_export,
        [CMD_INSPECT] = cmd_inspect,
        [CMD_CONFIG] = cmd_config,
        [CMD_KEYGEN] = cmd_keygen,
        [CMD_AGENT] = cmd_agent,
        [CMD_STATUS] = cmd_status,
        [CMD_PEERS] = cmd_peers,
        [CMD_TOP] = cmd_top,
        [CMD_LEDGER] = cmd_ledger,
        [CMD_EXCHANGES] = cmd_exchanges,
        [CMD_PAUSE] = cmd_pause,
        [CMD_RESUME] = cmd_resume,
        [CMD_CHECKPOINT] = cmd_checkpoint,
        [CMD_LEAVE] = cmd_leave,
        [CMD_HELP] = cmd_help,
        [CMD_VERSION] = cmd_version,
};

/* N_COMMANDS when there is none of that name, which has been told then. */
static enum command_id find(const char *name)
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

static int cmd_help(int argc, char **argv)
{
	if (argc > 2)
		return cli_usage_error(CMD_HELP, "wants one subcommand at most");
	if (argc < 2 || strcmp(argv[1], "--help") == 0)
		return cli_help(N_COMMANDS);
	enum command_id id = find(argv[1]);
	return id == N_COMMANDS ? EXIT_USAGE : cli_help(id);
}

/* Where the caller closed stdin, stdout or stderr, the next file to be opened would take its
 * number, and receive what is printed. Read-only: what is printed still fails, and is noticed. */
static void fill_standard_fds(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	fill_standard_fds();
	/* A closed pipe is an error to report, like a full disk. */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		fputs("dunlin: a subcommand is missing\nTry `dunlin --help`.\n", stderr);
		return EXIT_USAGE;
	}
	const char *name = argv[1];
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	else if (strcmp(name, "__complete") == 0)
		return cli_finish(cli_complete(argc - 2, argv + 2));
	enum command_id id = find(name);
	return id == N_COMMANDS ? EXIT_USAGE : cli_finish(run[id](argc - 1, argv + 1));
}
