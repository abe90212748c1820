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

#include <math.h>
#include <string.h>

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
	w->client.fd = w->client.pidfd = -1;
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
	client_close(&w->client);
	w->asked = false;
	w->answer.len = 0;
}

void watch_close(struct watched *w)
{
	hang_up(w);
	buf_close(&w->answer);
}

void watch_ask(struct watched *w, int64_t now_ms)
{
	struct err e;
	if (w->asked) {
		if (now_ms - w->asked_ms >= WATCH_SILENT_MS)
			w->state = WATCH_SILENT;
		return;
	}
	int rc = w->client.fd < 0 ? client_open(&w->client, w->path, &e) : 0;
	if (rc == ERR_TIMEOUT)
		w->state = WATCH_SILENT;
	else if (rc && w->state != WATCH_ABSENT)
		w->state = WATCH_GONE;
	if (rc)
		return;
	/* Never waits: the answer to the last request has come, so that one was read. */
	w->asked = client_send(&w->client, "{\"cmd\":\"status\"}", &e) == 0;
	w->asked_ms = now_ms;
	if (!w->asked)
		hang_up(w);
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
	struct err e;
	bool whole;
	int rc = client_read(&w->client, &w->answer, &whole, &e);
	if (rc == ERR_NOTFOUND || rc == ERR_IO) {
		hang_up(w); /* the next dial will tell what that means */
	} else if (rc || (!w->asked && w->answer.len > 0) || (whole && !keep(w))) {
		w->state = WATCH_SILENT;
		hang_up(w);
	} else if (whole) {
		w->asked = false;
		w->answer.len = 0;
	}
}
