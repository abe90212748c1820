/* SPDX-License-Identifier: MIT */
/* The subcommands. Each cmd_ function takes the arguments after the program's name (argv[0] is
 * the subcommand) and returns an exit code. */
#ifndef DUNLIN_AGENT_CLI_COMMANDS_H
#define DUNLIN_AGENT_CLI_COMMANDS_H

#include "agent/base/exit_code.h"

#define COMMAND(ID, name, ...) int cmd_##name(int argc, char **argv);
#include "agent/cli/command_rows.h"

#endif
