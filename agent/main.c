/* SPDX-License-Identifier: MIT */
/* The program: finds the subcommand and runs it. */
#include "agent/cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
	enum command_id id = cli_find(name);
	return id == N_COMMANDS ? EXIT_USAGE : cli_finish(commands[id].run(argc - 1, argv + 1));
}
