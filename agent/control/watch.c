/* SPDX-License-Identifier: MIT */
/* The happy path: dial, ask, read until a newline, keep the fields, and ask again on the same
 * connection a second later.
 *
 * What can fail: there is no socket, or a socket without a listener (absent, or gone if it was
 * there once); a listener that takes the connection and says nothing (silent: its last question
 * stands, so that the answer is read if it comes, and the end of the connection if that comes
 * first); an answer that is none of an agent's (the connection is given up; silent). What an answer
 * says is another program's word: the size is bounded, numbers are taken only where they are
 * numbers, text is escaped. */
#include "agent/control/watch.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST "{\"cmd\":\"status\"}\n"

const char *const watch_names[WATCH_FIELD_COUNT] = {
#define X(id, name, path) name,
        WATCH_FIELDS(X)
#undef X
};

static const char *const paths[WATCH_FIELD_COUNT] = {
#define X(id, name, path) path,
        WATCH_FIELDS(X)
#undef X
};

const char *watch_state_text(enum watch_state s)
{
	static const char *const text[WATCH_STATES] = {"absent", "up", "silent", "gone"};
	return text[s];
}

void watch_init(struct watched *w, const char *path)
{
	memset(w, 0, sizeof *w);
	w->path = path;
	w->fd = -1;
	buf_init(&w->answer, WATCH_REPLY_MAX);
	/* Until it says its name: that of the file, without .sock. */
	const char *slash = strrchr(path, '/');
	json_shown(slash ? slash + 1 : path, w->name);
	char *dot = strrchr(w->name, '.');
	if (dot && dot != w->name && strcmp(dot, ".sock") == 0)
		*dot = '\0';
	for (int i = 0; i < WATCH_FIELD_COUNT; i++)
		w->value[i] = NAN;
}

static void hang_up(struct watched *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	w->asked = false;
	w->answer.len = 0;
}

void watch_close(struct watched *w)
{
	hang_up(w);
	buf_close(&w->answer);
}

static void dial(struct watched *w)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int cause = ENAMETOOLONG;
	if (strlen(w->path) < sizeof to.sun_path) {
		strcpy(to.sun_path, w->path);
		w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (w->fd >= 0 && connect(w->fd, (const struct sockaddr *)&to, sizeof to) == 0)
			return;
		cause = errno;
	}
	hang_up(w);
	/* A backlog that is full belongs to somebody who takes no connections. */
	if (cause == EAGAIN)
		w->state = WATCH_SILENT;
	else if (w->state != WATCH_ABSENT)
		w->state = WATCH_GONE;
}

void watch_ask(struct watched *w, int64_t now_ms)
{
	if (w->asked) {
		if (now_ms - w->asked_ms >= WATCH_SILENT_MS)
			w->state = WATCH_SILENT;
		return;
	}
	if (w->fd < 0)
		dial(w);
	if (w->fd < 0)
		return;
	/* Shorter than any socket's buffer, which is empty: all of it or an end. */
	if (send(w->fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != sizeof REQUEST - 1) {
		hang_up(w);
		return;
	}
	w->asked = true;
	w->asked_ms = now_ms;
}

/* ---- an answer */

/* a.b.c, c being any kind of value; NULL: it is not there. */
static const cJSON *find(const cJSON *o, const char *path)
{
	char key[32];
	while (o && *path) {
		size_t n = strcspn(path, ".");
		if (n >= sizeof key)
			return NULL;
		memcpy(key, path, n);
		key[n] = '\0';
		o = cJSON_GetObjectItemCaseSensitive(o, key);
		path += n + (path[n] == '.');
	}
	return o;
}

static double number(const cJSON *o, const char *path)
{
	const cJSON *v = path[0] ? find(o, path) : NULL;
	return cJSON_IsNumber(v) && isfinite(v->valuedouble) ? v->valuedouble : (double)NAN;
}

static void text(const cJSON *o, const char *path, const char *otherwise, char out[JSON_SHOWN])
{
	const cJSON *v = find(o, path);
	json_shown(cJSON_IsString(v) ? v->valuestring : otherwise, out);
}

/* What every local step has spared, by what the ledger says that one step did. */
static double saved(struct watched *w, const cJSON *last)
{
	const cJSON *entry;
	cJSON_ArrayForEach(entry, last)
	{
		double bytes = number(entry, "saved"), steps = number(entry, "steps");
		if (bytes > 0 && steps > 0)
			w->exchange_bytes = bytes / steps;
	}
	return w->exchange_bytes > 0 ? w->value[WATCH_LOCAL_STEPS] * w->exchange_bytes
	                             : (double)NAN;
}

static bool keep(struct watched *w)
{
	cJSON *o = cJSON_ParseWithLength(w->answer.data ? w->answer.data : "", w->answer.len);
	bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "ok"));
	if (ok) {
		for (int i = 0; i < WATCH_FIELD_COUNT; i++)
			w->value[i] = number(o, paths[i]);
		const cJSON *last = find(o, "gate.last");
		w->value[WATCH_SAVED] = saved(w, last);
		text(o, "name", "?", w->name);
		text(o, "training.phase", "member", w->phase);
		text(o, "gate.mode", "", w->mode);
		text(cJSON_GetArrayItem(last, 0), "reason", "", w->reason);
		w->state = WATCH_UP;
	}
	cJSON_Delete(o);
	return ok;
}

void watch_read(struct watched *w)
{
	char part[16384];
	while (w->fd >= 0) {
		ssize_t n = recv(w->fd, part, sizeof part, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			hang_up(w); /* the next dial will tell what that means */
			return;
		}
		const char *end = memchr(part, '\n', (size_t)n);
		size_t len = end ? (size_t)(end - part) : (size_t)n;
		/* Nothing follows an answer before the next question. */
		if (!w->asked || (end && len + 1 != (size_t)n) ||
		        buf_append(&w->answer, part, len) != 0 || (end && !keep(w))) {
			w->state = WATCH_SILENT;
			hang_up(w);
			return;
		}
		if (end) {
			w->asked = false;
			w->answer.len = 0;
			return;
		}
	}
}
