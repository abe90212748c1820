/* SPDX-License-Identifier: MIT */
/* The happy path: settings say which socket, the client dials it and asks, the answer is read as
 * JSON and shown. What can fail: the command line (2), the settings (3), nobody answers (9), and
 * what the agent itself says no to (1).
 *
 * The answer comes from a program of the same user, but perhaps of another version. */
#include "agent/cli/ask.h"

#include "agent/config/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of an agent: it is not there, it is silent, or it is something else. */
static bool no_answer(int rc)
{
	return rc == ERR_NOTFOUND || rc == ERR_TIMEOUT || rc == ERR_FORMAT;
}

bool ask_open(struct asked *a, enum command_id id, int argc, char **argv, int *status)
{
	struct err e;
	char path[LIMIT_PATH];
	memset(a, 0, sizeof *a);
	a->id = id;
	a->client.fd = a->client.pidfd = -1;
	if (!cli_begin(&a->config, &a->args, id, argc, argv, status))
		return false;
	buf_init(&a->answer, CLIENT_REPLY_MAX);
	a->json = cli_own(&a->args, id, "--json") != NULL;
	*status = EXIT_CONFIG;
	int rc = paths_socket(&a->config, path, &e);
	if (rc == 0) {
		*status = EXIT_FAILED;
		rc = client_open(&a->client, path, &e);
	}
	if (rc == 0)
		return true;
	*status = cli_fail(no_answer(rc) ? EXIT_NO_AGENT : *status, "%s", e.msg);
	ask_close(a);
	return false;
}

void ask_close(struct asked *a)
{
	cJSON_Delete(a->reply);
	client_close(&a->client);
	buf_close(&a->answer);
	config_close(&a->config);
}

int ask(struct asked *a, const char *request)
{
	struct err e;
	cJSON_Delete(a->reply);
	a->reply = NULL;
	a->answer.len = 0;
	int rc = client_ask(&a->client, request, &a->answer, &e);
	if (rc)
		return cli_fail(no_answer(rc) ? EXIT_NO_AGENT : EXIT_FAILED, "%s", e.msg);
	a->reply = cJSON_ParseWithLength(a->answer.data ? a->answer.data : "", a->answer.len);
	if (!cJSON_IsObject(a->reply))
		return cli_fail(EXIT_NO_AGENT, "this is not the answer of a Dunlin agent");
	if (asked_truth(a->reply, "ok"))
		return EXIT_OK;
	if (a->json)
		printf("%s\n", a->answer.data);
	fputs("dunlin: the agent says: ", stderr);
	asked_words(stderr, a->reply, "error");
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int ask_show(struct asked *a, const char *request, void (*show_cb)(const cJSON *))
{
	int status = ask(a, request);
	if (status != EXIT_OK)
		return status;
	if (a->json)
		printf("%s\n", a->answer.data);
	else
		show_cb(a->reply);
	return EXIT_OK;
}

int ask_and_show(enum command_id id, int argc, char **argv, void (*show_cb)(const cJSON *))
{
	struct asked a;
	char request[64];
	int status;
	if (!ask_open(&a, id, argc, argv, &status))
		return status;
	snprintf(request, sizeof request, "{\"cmd\":\"%s\"}", commands[id].name);
	status = ask_show(&a, request, show_cb);
	ask_close(&a);
	return status;
}

/* ---- fields */

const cJSON *asked_at(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

bool asked_has(const cJSON *o, const char *key)
{
	const cJSON *v = asked_at(o, key);
	return v && !cJSON_IsNull(v);
}

double asked_number(const cJSON *o, const char *key)
{
	const cJSON *v = asked_at(o, key);
	return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

bool asked_truth(const cJSON *o, const char *key)
{
	return cJSON_IsTrue(asked_at(o, key));
}

const char *asked_text(const cJSON *o, const char *key, char out[JSON_SHOWN])
{
	const cJSON *v = asked_at(o, key);
	return json_shown(cJSON_IsString(v) ? v->valuestring : "?", out);
}

void asked_words(FILE *to, const cJSON *o, const char *key)
{
	const cJSON *v = asked_at(o, key);
	for (const char *p = cJSON_IsString(v) ? v->valuestring : "?"; *p;) {
		char c[BUF__ESCAPE_MAX];
		size_t n = buf__escape(&p, c);
		fwrite(c, 1, n, to);
	}
}

const char *asked_real(const cJSON *o, const char *key, char out[ASKED_SHORT])
{
	const cJSON *v = asked_at(o, key);
	if (cJSON_IsNumber(v))
		snprintf(out, ASKED_SHORT, "%.4g", v->valuedouble);
	else
		snprintf(out, ASKED_SHORT, "?");
	return out;
}

const char *asked_duration(double s, char out[ASKED_SHORT])
{
	if (s < 120)
		snprintf(out, ASKED_SHORT, "%.0f s", s);
	else if (s < 7200)
		snprintf(out, ASKED_SHORT, "%.0f min", s / 60);
	else if (s < 172800)
		snprintf(out, ASKED_SHORT, "%.0f h", s / 3600);
	else
		snprintf(out, ASKED_SHORT, "%.0f d", s / 86400);
	return out;
}

const char *asked_bytes(double n, char out[ASKED_SHORT])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	int u = 0;
	for (; n >= 1000 && u < 5; u++)
		n /= 1000;
	snprintf(out, ASKED_SHORT, u && n < 10 ? "%.1f %s" : "%.0f %s", n, units[u]);
	return out;
}
