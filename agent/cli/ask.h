/* SPDX-License-Identifier: MIT */
/* What the subcommands that ask an agent have in common: the question, and showing fields of the
 * answer. A field that is missing or null is shown as ?, and text is escaped before it reaches a
 * terminal. */
#ifndef DUNLIN_AGENT_CLI_ASK_H
#define DUNLIN_AGENT_CLI_ASK_H

#include "agent/cli/cli.h"
#include "agent/control/client.h"
#include "agent/json/jsontext.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* An agent that is being asked. */
struct asked {
	enum command_id id;
	struct config config;
	struct cli_args args;
	struct client client;
	struct buf answer;
	cJSON *reply; /* owned; the last answer, if it was one */
	bool json;    /* --json was given */
};

/* Reads the command line and dials. True: ask_close it in the end. False: return *status. */
bool ask_open(struct asked *a, enum command_id id, int argc, char **argv, int *status) MUST_CHECK;
void ask_close(struct asked *a);

/* One request, then its answer in a->reply, which is ok. Returns an exit code; what is wrong has
 * been told, with the answer itself first if it is a refusal and --json was given. */
int ask(struct asked *a, const char *request) MUST_CHECK;

/* The whole of a subcommand with one request of its own name: prints the answer as it came with
 * --json, else by show_cb. */
int ask_and_show(enum command_id id, int argc, char **argv, void (*show_cb)(const cJSON *));

/* As above with a request of its own, for an agent that is open. */
int ask_show(struct asked *a, const char *request, void (*show_cb)(const cJSON *)) MUST_CHECK;

/* ---- fields; o may be NULL, as a field that is not there */

const cJSON *asked_at(const cJSON *o, const char *key);
bool asked_has(const cJSON *o, const char *key); /* and it is not null */
double asked_number(const cJSON *o, const char *key);
bool asked_truth(const cJSON *o, const char *key);
const char *asked_text(const cJSON *o, const char *key, char out[JSON_SHOWN]); /* cut if long */
void asked_words(FILE *to, const cJSON *o, const char *key);                   /* in full */

/* A number to four digits, or ? where there is none. */
#define ASKED_SHORT 32
const char *asked_real(const cJSON *o, const char *key, char out[ASKED_SHORT]);
const char *asked_duration(double s, char out[ASKED_SHORT]);
const char *asked_bytes(double n, char out[ASKED_SHORT]);

#endif
