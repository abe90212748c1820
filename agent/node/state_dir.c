/* SPDX-License-Identifier: MIT */
/* The lock is an flock: the kernel lets go of it whatever way a process ends, so nothing stale can
 * be left. The process id in it is only for the message.
 *
 * Known peers are a help, never a need: a file of them that is damaged is put aside, told, and the
 * agent starts with its seeds alone. It is replaced whole, since an agent may be killed any time.
 *
 * What can fail: a folder that cannot be made or that others may write to, another agent in it, a
 * full disk. */
#include "agent/node/state_dir.h"

#include "agent/json/jsontext.h"
#include "net/transport/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PATH (LIMIT_PATH + 32)

int folder_make_private(const char *path, struct err *e)
{
	char parent[LIMIT_PATH];
	struct stat st;
	int rc = 0;
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n >= sizeof parent)
		return err_set(e, ERR_LIMIT, "a path is longer than %d bytes", LIMIT_PATH - 1);
	memcpy(parent, path, n);
	parent[n] = '\0';
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	if (n > 0)
		rc = file_mkdirs(parent, e);
	if (rc == 0 && mkdir(path, 0700) != 0)
		rc = errno == EEXIST ? file_mkdirs(path, e) /* says whether it is a folder */
		                     : err_errno(e, "create folder %s", path);
	return rc;
}

static int take_lock(struct state_dir *d, struct err *e)
{
	char path[FILE_PATH], pid[32] = {0};
	snprintf(path, sizeof path, "%s/.lock", d->path);
	d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock < 0)
		return err_errno(e, "%s", path);
	if (flock(d->lock, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return err_errno(e, "lock %s", path);
		ssize_t n = pread(d->lock, pid, sizeof pid - 1, 0);
		pid[n > 0 ? strspn(pid, "0123456789") : 0] = '\0';
		return err_set(e, ERR_BUSY,
		        "another agent runs with this state%s%s: give this one another --name, or "
		        "end that one with `dunlin leave`; the state is in %s",
		        pid[0] ? ", process " : "", pid, d->path);
	}
	int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
	if (ftruncate(d->lock, 0) || pwrite(d->lock, pid, (size_t)n, 0) != n)
		return err_errno(e, "write %s", path);
	return 0;
}

int state_dir_open(struct state_dir *d, const char *path, struct err *e)
{
	struct stat st;
	d->lock = -1;
	if (strlen(path) >= sizeof d->path)
		return err_set(e, ERR_LIMIT, "a path is longer than %d bytes", LIMIT_PATH - 1);
	strcpy(d->path, path);
	int rc = folder_make_private(path, e);
	if (rc)
		return rc;
	if (stat(path, &st))
		return err_errno(e, "%s", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(e, ERR_INVALID,
		        "%s: this folder, which holds the agent's keys, belongs to user %u, who "
		        "can "
		        "replace them: chown it to user %u, or choose another --state-dir",
		        path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & 022)
		return err_set(e, ERR_INVALID,
		        "%s: others may write to this folder, which holds the agent's keys: chmod "
		        "go-w it, or choose another --state-dir",
		        path);
	rc = take_lock(d, e);
	if (rc)
		state_dir_close(d);
	return rc;
}

void state_dir_close(struct state_dir *d)
{
	if (d->lock >= 0)
		close(d->lock);
	d->lock = -1;
}

/* ---- known peers: {"version": 1, "peers": ["10.0.0.5:13865", …]} */

int peers_print(const struct peer_addr *peers, int n, struct buf *out)
{
	char text[64];
	int rc = buf_printf(out, "{\"version\": 1, \"peers\": [");
	for (int i = 0; i < n && rc == 0; i++)
		rc = buf_printf(out, "%s\n  \"%s\"", i ? "," : "", peer_addr_text(&peers[i], text));
	return rc ? rc : buf_printf(out, "\n]}\n");
}

static int parse_list(const cJSON *list, struct peer_addr *out, int *n, struct err *e)
{
	for (const cJSON *item = list->child; item; item = item->next) {
		if (*n == STATE_DIR_PEERS)
			return err_set(e, ERR_FORMAT, "more than %d peers", STATE_DIR_PEERS);
		if (!cJSON_IsString(item))
			return err_set(e, ERR_FORMAT, "a peer is not a string");
		int rc = peer_addr_parse(item->valuestring, &out[*n], e);
		if (rc)
			return rc;
		if (out[*n].port == 0)
			return err_set(e, ERR_FORMAT, "a peer has no port");
		(*n)++;
	}
	return 0;
}

int peers_parse(const char *text, size_t len, struct peer_addr *out, int *n, struct err *e)
{
	struct json_fault f;
	cJSON *root = json_parse(text, len, false, &f);
	int rc;
	*n = 0;
	if (!root)
		return err_set(e, ERR_FORMAT, "line %d: %s", f.line, f.text);
	const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "version");
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "peers");
	if (!cJSON_IsNumber(version) || version->valuedouble != 1 || !cJSON_IsArray(list))
		rc = err_set(e, ERR_FORMAT, "not a list of peers of version 1");
	else
		rc = parse_list(list, out, n, e);
	cJSON_Delete(root);
	if (rc)
		*n = 0;
	return rc;
}

int state_dir_load_peers(
        const struct state_dir *d, struct peer_addr *out, int *n, struct err *damage, struct err *e)
{
	char path[FILE_PATH], aside[FILE_PATH + 16];
	struct buf text;
	*n = 0;
	damage->code = 0;
	snprintf(path, sizeof path, "%s/peers.json", d->path);
	snprintf(aside, sizeof aside, "%s.damaged", path);
	if (access(path, F_OK) != 0 && errno == ENOENT)
		return 0;
	buf_init(&text, LIMIT_PEERS_FILE);
	int rc = file_read(&text, path, damage);
	if (rc == 0)
		rc = peers_parse(text.data ? text.data : "", text.len, out, n, damage);
	buf_close(&text);
	if (rc == ERR_IO || rc == ERR_NOMEM) /* the file may be fine */
		return err_set(e, rc, "%s", damage->msg);
	if (rc && rename(path, aside) != 0)
		return err_errno(e, "rename %s", path);
	return 0;
}

static int fill_file(int fd, void *arg, struct err *e)
{
	const struct buf *text = arg;
	return file_write_all(fd, text->data, text->len, e);
}

int state_dir_save_peers(
        const struct state_dir *d, const struct peer_addr *peers, int n, struct err *e)
{
	char path[FILE_PATH];
	struct buf text;
	snprintf(path, sizeof path, "%s/peers.json", d->path);
	buf_init(&text, LIMIT_PEERS_FILE);
	int rc = peers_print(peers, n, &text);
	if (rc)
		err_set(e, rc, "%s: %s", path, err_text(rc));
	else
		rc = file_replace(path, 0600, fill_file, &text, e);
	buf_close(&text);
	return rc;
}

void state_dir_load_progress(const struct state_dir *d, struct state_dir_progress *out)
{
	char path[LIMIT_PATH + 16];
	struct state_dir_progress p;
	struct buf b;
	struct err e;
	*out = (struct state_dir_progress){0};
	snprintf(path, sizeof path, "%s/progress", d->path);
	buf_init(&b, 256);
	if (file_read(&b, path, &e) == 0 &&
	        sscanf(b.data, "run %" SCNx64 " samples %" SCNu64 " day %" SCNu64 " bytes %" SCNu64,
	                &p.run, &p.samples, &p.day_start_s, &p.day_bytes) == 4 &&
	        p.samples <= GOSSIP_SAMPLES_MAX)
		*out = p;
	buf_close(&b);
}

static int fill_progress(int fd, void *arg, struct err *e)
{
	const struct state_dir_progress *p = arg;
	char text[128];
	int n = snprintf(text, sizeof text,
	        "run %" PRIx64 " samples %" PRIu64 " day %" PRIu64 " bytes %" PRIu64 "\n", p->run,
	        p->samples, p->day_start_s, p->day_bytes);
	return file_write_all(fd, text, (size_t)n, e);
}

int state_dir_save_progress(
        const struct state_dir *d, const struct state_dir_progress *p, struct err *e)
{
	char path[LIMIT_PATH + 16];
	struct state_dir_progress copy = *p;
	snprintf(path, sizeof path, "%s/progress", d->path);
	return file_replace(path, 0600, fill_progress, &copy, e);
}

int state_dir_save_revoked(
        const struct state_dir *d, const struct revocations_text *list, struct err *e)
{
	char path[LIMIT_PATH + 16];
	snprintf(path, sizeof path, "%s/revoked", d->path);
	return revocations_save(path, list, e);
}
