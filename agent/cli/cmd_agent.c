/* SPDX-License-Identifier: MIT */
/* dunlin agent: settings and flags; agent/daemon/agent.c does the rest. */
#include "agent/cli/cli.h"
#include "agent/daemon/agent.h"
#include "net/limits.h"

#include <signal.h>
#include <stdio.h>

static int print_limits(void)
{
	for (int i = 0; i < limit_count; i++)
		printf("%-26s %12llu  %s\n", limit_list[i].name, limit_list[i].value,
		        limit_list[i].meaning);
	return EXIT_OK;
}

int cmd_agent(int argc, char **argv)
{
	struct config config;
	struct cli_args args;
	int status;
	signal(SIGHUP, SIG_IGN); /* until it is taken: see signals.h */
	if (!cli_begin(&config, &args, CMD_AGENT, argc, argv, &status))
		return status;
	const struct agent_options o = {.config = &config,
	        .config_path = args.config,
	        .given = args.given,
	        .print_cb = cli_print,
	        .fail_cb = cli_fail};
	if (cli_own(&args, CMD_AGENT, "--print-limits"))
		status = print_limits();
	else if (cli_own(&args, CMD_AGENT, "--dry-run"))
		status = agent_rehearse(&o, cli_own(&args, CMD_AGENT, "--json") != NULL);
	else if (cli_own(&args, CMD_AGENT, "--json"))
		status = cli_usage_error(CMD_AGENT, "--json needs --dry-run");
	else
		status = agent_run(&o);
	config_close(&config);
	return status;
}
