/* SPDX-License-Identifier: MIT */
/* The subcommands. Each cmd_ function takes the arguments after the program's name (argv[0] is
 * the subcommand) and returns an exit code. */
#ifndef DUNLIN_AGENT_CLI_COMMANDS_H
#define DUNLIN_AGENT_CLI_COMMANDS_H

#include "agent/base/exit_code.h"

int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_peers(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_ledger(int argc, char **argv);
int cmd_exchanges(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_leave(int argc, char **argv);

#endif
