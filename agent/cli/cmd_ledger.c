/* SPDX-License-Identifier: MIT */
/* dunlin ledger, dunlin exchanges: what an agent's gate has decided and what came of it, and with
 * whom it has exchanged; the newest first. */
#include "agent/cli/ask.h"
#include "agent/control/control.h"

#include <stdio.h>
#include <stdlib.h>

/* A peer's first digits, or - where there is none. */
static const char *peer_of(const cJSON *entry, char out[JSON_SHOWN])
{
	return asked_has(entry, "peer") ? asked_text(entry, "peer", out) : "-";
}

static void show_ledger(const cJSON *o)
{
	const cJSON *list = asked_at(o, "entries"), *e;
	if (cJSON_GetArraySize(list) == 0) {
		printf("no decisions yet\n");
		return;
	}
	printf("%8s  %8s  %8s  %6s  %-11s  %10s  %10s  %-12s  %-9s  %8s  %8s\n", "NUMBER", "AGO",
	        "STEP", "STEPS", "REASON", "CHANGE", "DELTA", "PEER", "OUTCOME", "SENT", "SAVED");
	cJSON_ArrayForEach(e, list)
	{
		char reason[JSON_SHOWN], peer[JSON_SHOWN], outcome[JSON_SHOWN];
		char ago[ASKED_SHORT], change[ASKED_SHORT], delta[ASKED_SHORT];
		char sent[ASKED_SHORT], saved[ASKED_SHORT];
		printf("%8.0f  %8s  %8.0f  %6.0f  %-11s  %10s  %10s  %-12.12s  %-9s  %8s  %8s\n",
		        asked_number(e, "number"), asked_duration(asked_number(e, "ago_s"), ago),
		        asked_number(e, "step"), asked_number(e, "steps"),
		        asked_text(e, "reason", reason),
		        asked_has(e, "change") ? asked_real(e, "change", change) : "-",
		        asked_real(e, "delta", delta), peer_of(e, peer),
		        asked_has(e, "outcome") ? asked_text(e, "outcome", outcome) : "-",
		        asked_bytes(asked_number(e, "bytes"), sent),
		        asked_bytes(asked_number(e, "saved"), saved));
	}
}

static void show_exchanges(const cJSON *o)
{
	const cJSON *list = asked_at(o, "entries"), *e;
	if (cJSON_GetArraySize(list) == 0) {
		printf("no exchanges yet\n");
		return;
	}
	printf("%8s  %8s  %-12s  %-6s  %-4s  %-9s  %8s  %8s  %10s  %6s  %10s  %6s  %s\n", "NUMBER",
	        "AGO", "PEER", "BY", "MODE", "OUTCOME", "SENT", "RECEIVED", "TOOK", "DELAY",
	        "DISTANCE", "FACTOR", "WHY");
	cJSON_ArrayForEach(e, list)
	{
		char peer[JSON_SHOWN], mode[JSON_SHOWN], outcome[JSON_SHOWN], why[JSON_SHOWN];
		char ago[ASKED_SHORT], distance[ASKED_SHORT], factor[ASKED_SHORT];
		char sent[ASKED_SHORT], received[ASKED_SHORT], delay[ASKED_SHORT];
		printf("%8.0f  %8s  %-12.12s  %-6s  %-4s  %-9s  %8s  %8s  %7.0f ms  %6s  %10s  %6s "
		       " "
		       "%s",
		        asked_number(e, "number"), asked_duration(asked_number(e, "ago_s"), ago),
		        peer_of(e, peer), asked_truth(e, "ours") ? "us" : "peer",
		        asked_text(e, "mode", mode), asked_text(e, "outcome", outcome),
		        asked_bytes(asked_number(e, "bytes_sent"), sent),
		        asked_bytes(asked_number(e, "bytes_received"), received),
		        asked_number(e, "took_ms"),
		        asked_has(e, "delay") ? asked_real(e, "delay", delay) : "-",
		        asked_has(e, "distance") ? asked_real(e, "distance", distance) : "-",
		        asked_real(e, "factor", factor),
		        asked_has(e, "why") ? asked_text(e, "why", why) : "-");
		if (asked_has(e, "words")) {
			printf(": ");
			asked_words(stdout, e, "words");
		}
		putchar('\n');
	}
}

/* With --max, if it is given. */
static int ask_list(enum command_id id, int argc, char **argv, void (*show_cb)(const cJSON *))
{
	struct asked a;
	char request[96];
	int status;
	if (!ask_open(&a, id, argc, argv, &status))
		return status;
	const char *max = cli_own(&a.args, id, "--max");
	snprintf(request, sizeof request, "{\"cmd\":\"%s\",\"max\":%d}", commands[id].name,
	        max ? atoi(max) : CONTROL_ENTRIES);
	status = ask_show(&a, request, show_cb);
	ask_close(&a);
	return status;
}

int cmd_ledger(int argc, char **argv)
{
	return ask_list(CMD_LEDGER, argc, argv, show_ledger);
}

int cmd_exchanges(int argc, char **argv)
{
	return ask_list(CMD_EXCHANGES, argc, argv, show_exchanges);
}
