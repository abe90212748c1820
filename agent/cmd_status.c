/* SPDX-License-Identifier: MIT */
/* dunlin status, dunlin peers, dunlin leave: ask the agent of that name, and show its answer: as it
 * came with --json, for people otherwise. leave waits until the agent is gone, so that what follows
 * it in a script finds the name free.
 *
 * The answer comes from a program of the same user, but perhaps of another version: a field that is
 * missing is shown as ?, and its text is escaped before it reaches a terminal. */
#include "agent/cli.h"
#include "agent/client.h"
#include "agent/jsontext.h"
#include "agent/places.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define LEAVE_WAIT_MS 30000

/* ---- fields */

static double number(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
	return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static const char *text(const cJSON *o, const char *key, char out[JSON_SHOWN])
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
	return json_shown(cJSON_IsString(v) ? v->valuestring : "?", out);
}

static bool truth(const cJSON *o, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, key));
}

static const char *duration(double s, char out[32])
{
	if (s < 120)
		snprintf(out, 32, "%.0f s", s);
	else if (s < 7200)
		snprintf(out, 32, "%.0f min", s / 60);
	else if (s < 172800)
		snprintf(out, 32, "%.0f h", s / 3600);
	else
		snprintf(out, 32, "%.0f d", s / 86400);
	return out;
}

static const char *bytes(double n, char out[32])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	int u = 0;
	for (; n >= 1000 && u < 5; u++)
		n /= 1000;
	snprintf(out, 32, u && n < 10 ? "%.1f %s" : "%.0f %s", n, units[u]);
	return out;
}

/* ---- for people */

static void show_status(const cJSON *o)
{
	const cJSON *peers = cJSON_GetObjectItemCaseSensitive(o, "peers");
	const cJSON *net = cJSON_GetObjectItemCaseSensitive(o, "net");
	const cJSON *loop = cJSON_GetObjectItemCaseSensitive(o, "loop");
	const cJSON *gossip = cJSON_GetObjectItemCaseSensitive(o, "membership");
	char a[JSON_SHOWN], b[JSON_SHOWN], c[32], d[32];
	const cJSON *id = cJSON_GetObjectItemCaseSensitive(o, "id");
	printf("%s, dunlin %s, up %s, generation %.0f\n", text(o, "name", a), text(o, "version", b),
	        duration(number(o, "uptime_s"), c), number(o, "generation"));
	/* Longer than what json_shown keeps, and of use only as a whole. */
	if (cJSON_IsString(id) && strspn(id->valuestring, "0123456789abcdef") == 64)
		printf("id       %.64s\n", id->valuestring);
	printf("address  listens on %s, peers are told %s%s\n", text(o, "listen", a),
	        text(o, "advertise", b), truth(o, "dialable") ? "" : ", not dialable");
	printf("peers    %.0f alive, %.0f suspect, %.0f dead, %.0f left; own health %.0f (0 is "
	       "fine, 7 ill)\n",
	        number(peers, "alive"), number(peers, "suspect"), number(peers, "dead"),
	        number(peers, "left"), number(o, "health"));
	printf("network  %.0f connections, %s sent, %s received, %.0f strangers refused\n",
	        number(net, "connections"), bytes(number(net, "bytes_sent"), c),
	        bytes(number(net, "bytes_received"), d), number(net, "strangers_refused"));
	printf("probes   %.0f, of which %.0f failed\n", number(gossip, "probes"),
	        number(gossip, "probes_failed"));
	printf("loop     late by %.1f ms (p99), %.1f ms at most; %.0f slow callbacks; %s "
	       "resident\n",
	        number(loop, "lag_us_p99") / 1000, number(loop, "lag_us_max") / 1000,
	        number(loop, "slow_callbacks"), bytes(1024 * number(o, "rss_kb"), c));
}

static const char *link_of(const cJSON *peer)
{
	if (truth(peer, "connected"))
		return "connected";
	if (truth(peer, "unreachable"))
		return "unreachable";
	return truth(peer, "dialable") ? "datagrams" : "not dialable";
}

static void show_peers(const cJSON *o)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "peers"), *peer;
	if (cJSON_GetArraySize(list) == 0) {
		printf("no peers yet\n");
		return;
	}
	printf("%-12s  %-26s  %-8s  %-8s  %-12s  %s\n", "ID", "ADDRESS", "STATE", "FOR", "LINK",
	        "SAMPLES");
	cJSON_ArrayForEach(peer, list)
	{
		char id[JSON_SHOWN], addr[JSON_SHOWN], state[JSON_SHOWN], since[32];
		printf("%-12.12s  %-26s  %-8s  %-8s  %-12s  %.0f\n", text(peer, "id", id),
		        text(peer, "addr", addr), text(peer, "state", state),
		        duration(number(peer, "since_s"), since), link_of(peer),
		        number(peer, "samples"));
	}
}

static void show_left(const cJSON *o)
{
	char name[JSON_SHOWN];
	printf("%s has left its flock\n", text(o, "name", name));
}

/* ---- asking */

static int show(const struct buf *answer, bool json, void (*show_cb)(const cJSON *))
{
	cJSON *o = cJSON_ParseWithLength(answer->data ? answer->data : "", answer->len);
	char why[JSON_SHOWN];
	int status = EXIT_OK;
	if (!cJSON_IsObject(o))
		status = cli_fail(EXIT_NO_AGENT, "the answer is not one of a Dunlin agent");
	else if (json)
		printf("%s\n", answer->data);
	else if (truth(o, "ok"))
		show_cb(o);
	if (status == EXIT_OK && !truth(o, "ok"))
		status = cli_fail(EXIT_FAILED, "the agent says: %s", text(o, "error", why));
	cJSON_Delete(o);
	return status;
}

static int ask(enum command_id id, int argc, char **argv, void (*show_cb)(const cJSON *))
{
	struct config c;
	struct cli_args a;
	struct client client = {.fd = -1};
	struct buf answer;
	struct err e;
	char path[LIMIT_PATH], request[64];
	int status, rc;
	if (!cli_begin(&c, &a, id, argc, argv, &status))
		return status;
	buf_init(&answer, CLIENT_REPLY_MAX);
	snprintf(request, sizeof request, "{\"cmd\":\"%s\"}", commands[id].name);
	rc = place_socket(&c, path, &e);
	status = EXIT_CONFIG;
	if (rc == 0) {
		status = EXIT_FAILED;
		rc = client_open(&client, path, &e);
	}
	if (rc == 0)
		rc = client_ask(&client, request, &answer, &e);
	if (rc == 0 && id == CMD_LEAVE)
		rc = client_wait_end(&client, LEAVE_WAIT_MS, &e);
	if (rc)
		status = cli_fail(rc == ERR_NOTFOUND ? EXIT_NO_AGENT : status, "%s", e.msg);
	else
		status = show(&answer, cli_own(&a, id, "--json") != NULL, show_cb);
	client_close(&client);
	buf_close(&answer);
	config_close(&c);
	return status;
}

int cmd_status(int argc, char **argv)
{
	return ask(CMD_STATUS, argc, argv, show_status);
}

int cmd_peers(int argc, char **argv)
{
	return ask(CMD_PEERS, argc, argv, show_peers);
}

int cmd_leave(int argc, char **argv)
{
	return ask(CMD_LEAVE, argc, argv, show_left);
}
