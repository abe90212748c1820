/* SPDX-License-Identifier: MIT */
/* A run's folder: its lock, its checkpoints by the steps inside them, and which of them may go.
 *
 * Files are written elsewhere, each atomically, so whatever stands under its final name was whole
 * once. What may go wrong: two processes by mistake in one folder (flock, which the kernel lets go
 * of whatever way a process ends), the rest of a write that was cut off (NAME.tmp, removed at
 * start), and a disk that damaged a checkpoint since (put aside, the one before it is taken). */
#include "agent/train/run_dir.h"

#include "agent/base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX "checkpoint-"
#define SUFFIX ".safetensors"
#define DIGITS 12

const char *run_dir_file(const struct run_dir *o, const char *name, char out[RUN_DIR_PATH])
{
	snprintf(out, RUN_DIR_PATH, "%s/%s", o->path, name);
	return out;
}

const char *run_dir_checkpoint(const struct run_dir *o, uint64_t step, char out[RUN_DIR_PATH])
{
	snprintf(out, RUN_DIR_PATH, "%s/" PREFIX "%0*" PRIu64 SUFFIX, o->path, DIGITS, step);
	return out;
}

static bool checkpoint_name(const char *name, uint64_t *step)
{
	char digits[24], again[64];
	size_t len = strlen(name), fixed = strlen(PREFIX) + strlen(SUFFIX);

	if (len <= fixed || len - fixed >= sizeof digits ||
	        strncmp(name, PREFIX, strlen(PREFIX)) != 0)
		return false;
	memcpy(digits, name + strlen(PREFIX), len - fixed);
	digits[len - fixed] = '\0';
	if (!text_u64(digits, step))
		return false;
	snprintf(again, sizeof again, PREFIX "%0*" PRIu64 SUFFIX, DIGITS, *step);
	return strcmp(name, again) == 0;
}

static bool leftover_name(const char *name)
{
	const char *end = SUFFIX ".tmp";
	size_t len = strlen(name);

	return len > strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

static int remove_leftovers(const struct run_dir *o, struct err *e)
{
	DIR *dir = opendir(o->path);
	struct dirent *d;
	int rc = 0;

	if (dir == NULL)
		return err_errno(e, "%s", o->path);
	while (rc == 0 && (d = readdir(dir)) != NULL)
		if (leftover_name(d->d_name) && unlinkat(dirfd(dir), d->d_name, 0) != 0)
			rc = err_errno(e, "%s/%s: remove", o->path, d->d_name);
	closedir(dir);
	return rc;
}

int run_dir_open(struct run_dir *o, const char *path, struct err *e)
{
	char lock[RUN_DIR_PATH];
	int rc;

	*o = (struct run_dir){.path = path, .lock = -1};
	rc = file_mkdirs(path, e);
	if (rc != 0)
		return rc;
	o->lock = open(run_dir_file(o, ".lock", lock), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (o->lock < 0)
		return err_errno(e, "%s", lock);
	if (flock(o->lock, LOCK_EX | LOCK_NB) != 0)
		rc = errno == EWOULDBLOCK ? err_set(e, ERR_BUSY,
		                                    "%s: another dunlin is at work in this folder: "
		                                    "choose another --out",
		                                    path)
		                          : err_errno(e, "%s: lock", lock);
	if (rc == 0)
		rc = remove_leftovers(o, e);
	if (rc != 0)
		run_dir_close(o);
	return rc;
}

void run_dir_close(struct run_dir *o)
{
	if (o->lock >= 0)
		close(o->lock);
	o->lock = -1;
}

struct entry {
	uint64_t name, step; /* the number in its name, and the step inside the file */
};

/* Of two copies the one that is named rightly comes first. */
static int newest_first(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? 1 : -1;
	if ((x->name == x->step) != (y->name == y->step))
		return x->name == x->step ? -1 : 1;
	return (x->name < y->name) - (x->name > y->name);
}

/* By its metadata alone; where they cannot be read, its name has to do. */
static uint64_t step_inside(const struct run_dir *o, uint64_t name)
{
	char path[RUN_DIR_PATH];
	struct st_file f;
	struct err e;
	const char *text;
	uint64_t step;

	if (st_open_meta(&f, run_dir_checkpoint(o, name, path), &e) != 0)
		return name;
	text = st_meta(&f, "step");
	if (text == NULL || !text_u64(text, &step))
		step = name;
	st_close(&f);
	return step;
}

int run_dir_list(const struct run_dir *o, uint64_t **names, int *n, struct err *e)
{
	DIR *dir = opendir(o->path);
	struct entry *list = NULL;
	uint64_t name;
	int count = 0, room = 0;
	struct dirent *d;

	*names = NULL;
	*n = 0;
	if (dir == NULL)
		return err_errno(e, "%s", o->path);
	while ((d = readdir(dir)) != NULL) {
		if (!checkpoint_name(d->d_name, &name))
			continue;
		if (count == room) {
			room = room > 0 ? 2 * room : 16;
			struct entry *more = realloc(list, (size_t)room * sizeof *list);

			if (more == NULL) {
				free(list);
				closedir(dir);
				return err_set(e, ERR_NOMEM, "no memory for a list of files");
			}
			list = more;
		}
		list[count++] = (struct entry){name, step_inside(o, name)};
	}
	closedir(dir);
	if (count == 0)
		return 0;
	qsort(list, (size_t)count, sizeof *list, newest_first);
	*names = calloc((size_t)count, sizeof **names);
	for (int i = 0; *names != NULL && i < count; i++)
		(*names)[i] = list[i].name;
	free(list);
	if (*names == NULL)
		return err_set(e, ERR_NOMEM, "no memory for a list of files");
	*n = count;
	return 0;
}

/* Only what cannot be a checkpoint any more is put aside; a newer version, or a disk that does not
 * answer now, is told to the user instead. */
static bool damaged(int rc)
{
	return rc == ERR_FORMAT || rc == ERR_NONFINITE || rc == ERR_MISMATCH || rc == ERR_LIMIT;
}

static int put_aside(const char *path, struct err *e)
{
	char to[RUN_DIR_PATH + 16];

	snprintf(to, sizeof to, "%s.damaged", path);
	return rename(path, to) == 0 ? 0 : err_errno(e, "%s: rename", path);
}

int run_dir_newest(const struct run_dir *o, struct checkpoint *c, char path[RUN_DIR_PATH],
        run_dir_damaged_cb damaged_cb, void *arg, struct err *e)
{
	uint64_t *names;
	int n, rc = run_dir_list(o, &names, &n, e);

	if (rc != 0)
		return rc;
	rc = ERR_NOTFOUND;
	for (int i = 0; i < n && rc == ERR_NOTFOUND; i++) {
		struct err why;

		rc = checkpoint_open(c, run_dir_checkpoint(o, names[i], path), &why);
		if (rc == 0)
			break;
		if (!damaged(rc)) {
			rc = err_set(e, rc, "%s", why.msg);
			break;
		}
		rc = put_aside(path, e);
		if (rc == 0) {
			damaged_cb(path, &why, arg);
			rc = ERR_NOTFOUND;
		}
	}
	if (rc == ERR_NOTFOUND)
		err_set(e, rc, "%s: no whole checkpoint", o->path);
	free(names);
	return rc;
}

int run_dir_rotate(const struct run_dir *o, int64_t keep, struct err *e)
{
	char path[RUN_DIR_PATH];
	uint64_t *names;
	int n, rc = run_dir_list(o, &names, &n, e);

	for (int i = 0; rc == 0 && i < n; i++)
		if (i >= keep && unlink(run_dir_checkpoint(o, names[i], path)) != 0)
			rc = err_errno(e, "%s: remove", path);
	free(names);
	return rc;
}
