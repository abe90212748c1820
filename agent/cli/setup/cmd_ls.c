/* SPDX-License-Identifier: MIT */
/* dunlin ls: the agents of this user that run on this machine.
 *
 * The happy path: every process that is called as this program is has its sockets looked up in
 * /proc, those that listen on a path are asked for their status, and those that answer as an agent
 * does are shown. So an agent is found wherever its socket is. For root these are everybody's.
 *
 * What can fail: processes come and go meanwhile, which is no error; an agent that is stopped does
 * not answer in time, and is shown as silent. */
#include "agent/cli/ask.h"
#include "agent/json/jsonout.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN_MAX 256 /* agents, at most */
#define INODES_MAX 64 /* sockets of one process that are looked at */

struct found {
	struct client client;
	char socket[LIMIT_PATH];
	struct buf answer;
	cJSON *reply; /* owned; NULL: it is silent */
};

struct ls {
	struct found *at; /* owned */
	int n;
};

static bool ours(long pid)
{
	char path[64], name[32] = "", own[32] = "";
	struct stat st;
	snprintf(path, sizeof path, "/proc/%ld", pid);
	if (stat(path, &st) != 0 || (st.st_uid != geteuid() && geteuid() != 0))
		return false;
	snprintf(path, sizeof path, "/proc/%ld/comm", pid);
	FILE *f = fopen(path, "re"), *g = fopen("/proc/self/comm", "re");
	bool same = f && g && fgets(name, sizeof name, f) && fgets(own, sizeof own, g) &&
	            strcmp(name, own) == 0;
	if (f)
		fclose(f);
	if (g)
		fclose(g);
	return same;
}

/* The inodes of a process's sockets. */
static int sockets_of(long pid, unsigned long inode[INODES_MAX])
{
	char path[96], to[64];
	int n = 0;
	snprintf(path, sizeof path, "/proc/%ld/fd", pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && n < INODES_MAX && (e = readdir(d));) {
		snprintf(path, sizeof path, "/proc/%ld/fd/%ld", pid, strtol(e->d_name, NULL, 10));
		ssize_t len = readlink(path, to, sizeof to - 1);
		to[len > 0 ? len : 0] = '\0';
		if (sscanf(to, "socket:[%lu]", &inode[n]) == 1)
			n++;
	}
	if (d)
		closedir(d);
	return n;
}

static void ask_status(struct ls *l, const char *path)
{
	struct found *f = &l->at[l->n];
	struct err e;
	for (int i = 0; i < l->n; i++)
		if (strcmp(l->at[i].socket, path) == 0)
			return;
	if (l->n == SHOWN_MAX || client_open(&f->client, path, &e) != 0)
		return;
	snprintf(f->socket, sizeof f->socket, "%s", path);
	buf_init(&f->answer, 1 << 20);
	f->reply = NULL;
	if (client_ask(&f->client, "{\"cmd\":\"status\"}", &f->answer, &e) == 0)
		f->reply = cJSON_ParseWithLength(f->answer.data, f->answer.len);
	else if (e.code != ERR_TIMEOUT)
		goto none;
	if (!f->reply || (asked_truth(f->reply, "ok") && asked_has(f->reply, "id"))) {
		l->n++;
		return;
	}
none:
	cJSON_Delete(f->reply);
	buf_close(&f->answer);
	client_close(&f->client);
}

/* Of the listening sockets in that process's /proc/…/net/unix, those that are its own. A path that
 * is not whole is seen from its folder. */
static void look_at(struct ls *l, long pid)
{
	unsigned long inode[INODES_MAX], number;
	char path[64], line[600], at[200], whole[LIMIT_PATH];
	unsigned flags;
	int n = sockets_of(pid, inode);
	snprintf(path, sizeof path, "/proc/%ld/net/unix", pid);
	FILE *f = n > 0 ? fopen(path, "re") : NULL;
	while (f && fgets(line, sizeof line, f)) {
		bool own = false;
		if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu %199[^\n]", &flags, &number, at) != 3)
			continue;
		for (int i = 0; i < n; i++)
			own = own || inode[i] == number;
		if (!own || !(flags & 0x10000)) /* it listens */
			continue;
		if (at[0] == '/')
			ask_status(l, at);
		else if (at[0] != '@' && snprintf(whole, sizeof whole, "/proc/%ld/cwd/%s", pid,
		                                 at) < (int)sizeof whole)
			ask_status(l, whole);
	}
	if (f)
		fclose(f);
}

static void look(struct ls *l)
{
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		long pid = strtol(e->d_name, NULL, 10);
		if (pid > 0 && ours(pid))
			look_at(l, pid);
	}
	if (d)
		closedir(d);
}

static const char *phase_of(const struct found *f, char out[JSON_SHOWN])
{
	const cJSON *t = asked_at(f->reply, "training");
	if (!f->reply)
		return "silent";
	return cJSON_IsObject(t) ? asked_text(t, "phase", out) : "membership";
}

static const char *run_of(const struct found *f, char out[JSON_SHOWN])
{
	const cJSON *t = asked_at(f->reply, "training");
	return cJSON_IsObject(t) ? asked_text(t, "run", out) : "";
}

static int print_json(const struct ls *l)
{
	struct buf b;
	struct json_out j = {.buf = &b};
	char a[JSON_SHOWN];
	buf_init(&b, 1 << 20);
	json_open(&j, NULL, '[');
	for (int i = 0; i < l->n; i++) {
		const struct found *f = &l->at[i];
		json_open(&j, NULL, '{');
		json_text(&j, "name", f->reply ? asked_text(f->reply, "name", a) : NULL);
		json_text(&j, "run", run_of(f, a));
		json_text(&j, "phase", phase_of(f, a));
		json_count(&j, "pid", (uint64_t)f->client.pid);
		json_text(&j, "socket", f->socket);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	int rc = j.rc ? j.rc : buf_append(&b, "\n", 1);
	int status = rc ? cli_fail(EXIT_FAILED, "%s", err_text(rc)) : cli_print(&b);
	buf_close(&b);
	return status;
}

static void print_rows(const struct ls *l)
{
	char name[JSON_SHOWN], run[JSON_SHOWN], phase[JSON_SHOWN];
	printf("%-16s %-20s %-10s %8s  %s\n", "NAME", "RUN", "PHASE", "PID", "SOCKET");
	for (int i = 0; i < l->n; i++) {
		const struct found *f = &l->at[i];
		const char *socket = f->socket;
		printf("%-16s %-20s %-10s %8ld  ",
		        f->reply ? asked_text(f->reply, "name", name) : "?", run_of(f, run),
		        phase_of(f, phase), (long)f->client.pid);
		while (*socket) {
			char c[BUF__ESCAPE_MAX];
			fwrite(c, 1, buf__escape(&socket, c), stdout);
		}
		putchar('\n');
	}
}

int cmd_ls(int argc, char **argv)
{
	struct config c;
	struct cli_args a;
	struct ls l = {0};
	int status;
	if (!cli_begin(&c, &a, CMD_LS, argc, argv, &status))
		return status;
	l.at = calloc(SHOWN_MAX, sizeof *l.at);
	status = EXIT_OK;
	if (!l.at)
		status = cli_fail(EXIT_FAILED, "%s", err_text(ERR_NOMEM));
	else
		look(&l);
	if (l.at && cli_own(&a, CMD_LS, "--json"))
		status = print_json(&l);
	else if (l.at && l.n > 0)
		print_rows(&l);
	else if (l.at)
		fputs("dunlin: no agent of this user runs on this machine\n", stderr);
	for (int i = 0; i < l.n; i++) {
		cJSON_Delete(l.at[i].reply);
		buf_close(&l.at[i].answer);
		client_close(&l.at[i].client);
	}
	free(l.at);
	config_close(&c);
	return status;
}
