/* SPDX-License-Identifier: MIT */
/* Talks to agents through their control sockets, for scripts that wait for things to happen.
 *
 *     ctl get SOCKET [ID:]FIELD…                      prints one value a line
 *     ctl await SECONDS SOCKET… -- CONDITION…         0 once every condition holds at every socket
 *     ctl schema SCHEMA SOCKET [CMD…]                 0 if every answer is as the schema has it
 *
 * A field is a dotted path into the answer to `status` (peers.alive; gate.last.0.reason, items of a
 * list by their place), or after an ID into that
 * member's entry in the answer to `peers` (ID:state; an unknown member has no fields, and any
 * comparison with them but != fails). A condition is FIELD=VALUE, FIELD!=VALUE, FIELD>=N or
 * FIELD<=N.
 *
 * An agent that does not answer yet, or has stopped, is asked again until the time is up: that is
 * what waiting is for. Then the first condition that does not hold is named on stderr, with what
 * was found instead, and the code is 1.
 *
 * schema asks for everything but to leave: it pauses the agent for a moment, lets it train on, and
 * has it write a checkpoint. Or it asks only for what it is told to. */
#include "tests/integration/schema.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 50
#define ANSWER_MS 10000 /* for one answer: an agent may stand still */
#define ANSWER_MAX (8u << 20)

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int dial(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path) {
		fprintf(stderr, "ctl: %s: too long for a socket's name\n", path);
		exit(2);
	}
	strcpy(a.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* One line from fd, or NULL when it ends, grows too long or takes too long. */
static char *read_line(int fd)
{
	long long deadline = now_ms() + ANSWER_MS;
	size_t len = 0, cap = 4096;
	char *line = malloc(cap);
	while (line) {
		long long left = deadline - now_ms();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			break;
		ssize_t n = read(fd, line + len, cap - len - 1);
		if (n <= 0)
			break;
		len += (size_t)n;
		line[len] = '\0';
		if (line[len - 1] == '\n')
			return line;
		if (len + 1 == cap) {
			char *more = cap < ANSWER_MAX ? realloc(line, cap *= 2) : NULL;
			if (!more)
				break;
			line = more;
		}
	}
	free(line);
	return NULL;
}

/* The answer to one request, a line, NULL if there is none. */
static cJSON *ask_line(const char *path, const char *request)
{
	ssize_t n = (ssize_t)strlen(request);
	int fd = dial(path);
	if (fd < 0)
		return NULL;
	cJSON *answer = NULL;
	char *line = NULL;
	if (send(fd, request, (size_t)n, MSG_NOSIGNAL) == n)
		line = read_line(fd);
	if (line)
		answer = cJSON_Parse(line);
	free(line);
	close(fd);
	return answer;
}

static cJSON *ask(const char *path, const char *cmd)
{
	char request[64];
	snprintf(request, sizeof request, "{\"cmd\":\"%s\"}\n", cmd);
	return ask_line(path, request);
}

static const cJSON *find_member(const cJSON *answer, const char *id, size_t len)
{
	const cJSON *m;
	cJSON_ArrayForEach(m, cJSON_GetObjectItem(answer, "peers"))
	{
		const char *its = cJSON_GetStringValue(cJSON_GetObjectItem(m, "id"));
		if (its && strlen(its) == len && memcmp(its, id, len) == 0)
			return m;
	}
	return NULL;
}

/* The value of a field as text into out; "" if there is none. */
static void field_text(const cJSON *object, const char *path, size_t len, char out[256])
{
	char name[128];
	const char *end = path + len;
	while (object && path < end) {
		const char *dot = memchr(path, '.', (size_t)(end - path));
		size_t n = (size_t)((dot ? dot : end) - path);
		if (n >= sizeof name)
			n = sizeof name - 1;
		memcpy(name, path, n);
		name[n] = '\0';
		object = cJSON_IsArray(object) ? cJSON_GetArrayItem(object, atoi(name))
		                               : cJSON_GetObjectItem(object, name);
		path = dot ? dot + 1 : end;
	}
	out[0] = '\0';
	if (cJSON_IsString(object))
		snprintf(out, 256, "%s", object->valuestring);
	else if (cJSON_IsNumber(object))
		snprintf(out, 256, "%.15g", object->valuedouble);
	else if (cJSON_IsBool(object))
		snprintf(out, 256, "%s", cJSON_IsTrue(object) ? "true" : "false");
}

/* A field, ID:FIELD or FIELD, at a socket. False: no answer. */
static bool look_up(const char *path, const char *field, size_t len, char out[256])
{
	const char *colon = memchr(field, ':', len);
	cJSON *answer = ask(path, colon ? "peers" : "status");
	if (!answer)
		return false;
	const cJSON *object = answer;
	if (colon) {
		object = find_member(answer, field, (size_t)(colon - field));
		len -= (size_t)(colon + 1 - field);
		field = colon + 1;
	}
	field_text(object, field, len, out);
	cJSON_Delete(answer);
	return true;
}

/* Whether a condition holds at a socket; what was found goes into out. */
static bool holds(const char *path, const char *condition, char out[256])
{
	size_t len = strcspn(condition, "=!<>");
	const char *op = condition + len;
	if (!*op || (*op != '=' && op[1] != '=')) {
		fprintf(stderr, "ctl: \"%s\" is no condition\n", condition);
		exit(2);
	}
	const char *value = op + (*op == '=' ? 1 : 2);
	snprintf(out, 256, "no answer");
	if (!look_up(path, condition, len, out))
		return false;
	if (*op == '=')
		return strcmp(out, value) == 0;
	if (*op == '!')
		return strcmp(out, value) != 0;
	double x = atof(out), y = atof(value);
	return out[0] && (*op == '<' ? x <= y : x >= y);
}

/* From one socket to the next as each comes to satisfy its conditions, then once more over all: an
 * early one may have changed again. */
static bool all_hold(char **sockets, int n, char **conditions, int m, long long deadline)
{
	char found[256];
	for (;;) {
		bool waited = false;
		for (int i = 0; i < n * m; i++) {
			const char *path = sockets[i / m], *c = conditions[i % m];
			while (!holds(path, c, found)) {
				if (now_ms() >= deadline) {
					fprintf(stderr, "ctl: %s: wanted %s, found \"%s\"\n", path,
					        c, found);
					return false;
				}
				waited = true;
				poll(NULL, 0, POLL_MS);
			}
		}
		if (!waited)
			return true;
	}
}

/* One answer; form is the command whose answer it should be, if it is not an error. */
static bool answer_fits(
        const struct schema *s, const char *path, const char *form, const char *request)
{
	char why[SCHEMA_WHY] = "no answer";
	cJSON *reply = ask_line(path, request);
	bool good = reply && schema_fits_reply(s, form, reply, why);
	if (!good)
		fprintf(stderr, "ctl: %s: %s: %s\n", path, form, why);
	cJSON_Delete(reply);
	return good;
}

static int check_schema(int argc, char **argv)
{
	static char *all[] = {"status", "peers", "ledger", "exchanges", "pause", "resume",
	        "checkpoint", "version", "nonsense"};
	char **cmds = argc > 4 ? argv + 4 : all, why[SCHEMA_WHY];
	int n = argc > 4 ? argc - 4 : (int)(sizeof all / sizeof *all), bad = 0;
	struct schema s;
	if (!schema_open(&s, argv[2], why)) {
		fprintf(stderr, "ctl: %s: %s\n", argv[2], why);
		return 2;
	}
	for (int i = 0; i < n; i++) {
		char request[128];
		snprintf(request, sizeof request, "{\"cmd\":\"%.64s\",\"tag\":%d}\n", cmds[i], i);
		bad += !answer_fits(&s, argv[3], cmds[i], request);
	}
	if (argc == 4) {
		bad += !answer_fits(&s, argv[3], "ledger", "{\"cmd\":\"ledger\",\"max\":512}\n");
		bad += !answer_fits(
		        &s, argv[3], "exchanges", "{\"cmd\":\"exchanges\",\"max\":1}\n");
		bad += !answer_fits(&s, argv[3], "status", "not JSON\n");
	}
	schema_close(&s);
	return bad != 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "schema") == 0)
		return check_schema(argc, argv);
	if (argc >= 4 && strcmp(argv[1], "get") == 0) {
		for (int i = 3; i < argc; i++) {
			char value[256];
			if (!look_up(argv[2], argv[i], strlen(argv[i]), value)) {
				fprintf(stderr, "ctl: %s does not answer\n", argv[2]);
				return 1;
			}
			puts(value);
		}
		return 0;
	}
	int dashes = 3;
	while (dashes < argc && strcmp(argv[dashes], "--") != 0)
		dashes++;
	if (argc < 6 || strcmp(argv[1], "await") != 0 || dashes > argc - 2 || dashes == 3) {
		fputs("usage: ctl get SOCKET FIELD...\n"
		      "       ctl await SECONDS SOCKET... -- CONDITION...\n"
		      "       ctl schema SCHEMA SOCKET [CMD...]\n",
		        stderr);
		return 2;
	}
	long long deadline = now_ms() + (long long)(atof(argv[2]) * 1000);
	return !all_hold(argv + 3, dashes - 3, argv + dashes + 1, argc - dashes - 1, deadline);
}
