/* SPDX-License-Identifier: MIT */
/* The table of formats. A format is named, or told by the names of the files in the folder; what is
 * in the files is then checked by its reader, which alone decides. */
#include "model/data/format.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define X(name) #name,
const char *const data_format_names[] = {"auto", DATA_FORMATS(X) NULL};
#undef X

#define X(name) &data_format_##name,
static const struct data_format *const formats[] = {NULL, DATA_FORMATS(X)};
#undef X
#define N_FORMATS ((int)(sizeof formats / sizeof *formats))

bool data__find(char out[LIMIT_PATH], const char *folder, const char *name)
{
	int n = snprintf(out, LIMIT_PATH, "%s/%s", folder, name);
	return n > 0 && n < LIMIT_PATH && access(out, F_OK) == 0;
}

bool data_is_pattern(const char *path)
{
	return strpbrk(path, "*?[") && access(path, F_OK) != 0;
}

int data__match(const char *pattern, glob_t *found, struct err *e)
{
	memset(found, 0, sizeof *found);
	const int rc = glob(pattern, GLOB_NOSORT, NULL, found);
	if (rc == GLOB_NOSPACE)
		return err_set(e, ERR_NOMEM, "%s: no memory for the names of its files", pattern);
	if (rc || !found->gl_pathc)
		return err_set(e, ERR_IO, "%s: no file has a name like this", pattern);
	return 0;
}

static int check_there(const char *path, struct err *e)
{
	glob_t found;
	if (!data_is_pattern(path))
		return access(path, R_OK) ? err_errno(e, "%s", path) : 0;
	const int rc = data__match(path, &found, e);
	globfree(&found);
	return rc;
}

/* The first format whose files are there. */
static int detect(const char *path, int *format, struct err *e)
{
	const int rc = check_there(path, e);
	if (rc)
		return rc;
	for (int i = 1; i < N_FORMATS; i++)
		if (formats[i]->detect(path)) {
			*format = i;
			return 0;
		}
	return err_set(
	        e, ERR_FORMAT, "%s: no data of a known format is there: see data.path", path);
}

int dataset_read_beside(struct dataset *d, const struct dataset *other, int format,
        const char *path, enum data_part part, int64_t classes, int64_t context, struct err *e)
{
	memset(d, 0, sizeof *d);
	d->context = context;
	d->beside = other;
	int rc = dataset__check_classes(classes, e);
	if (!rc && !format)
		rc = detect(path, &format, e);
	if (!rc)
		rc = formats[format]->read(d, path, part, classes, e);
	d->beside = NULL;
	if (rc)
		dataset_close(d);
	return rc;
}

int dataset_read(struct dataset *d, int format, const char *path, enum data_part part,
        int64_t classes, int64_t context, struct err *e)
{
	return dataset_read_beside(d, NULL, format, path, part, classes, context, e);
}
