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

/* The first format whose files are there. */
static int detect(const char *path, int *format, struct err *e)
{
	if (access(path, R_OK))
		return err_errno(e, "%s", path);
	for (int i = 1; i < N_FORMATS; i++)
		if (formats[i]->detect(path)) {
			*format = i;
			return 0;
		}
	return err_set(e, ERR_FORMAT, "%s: no data of a known format is there: see data.path",
	        path);
}

int dataset_read(struct dataset *d, int format, const char *path, enum data_part part,
        int64_t classes, int64_t context, struct err *e)
{
	memset(d, 0, sizeof *d);
	d->context = context;
	int rc = dataset__check_classes(classes, e);
	if (!rc && !format)
		rc = detect(path, &format, e);
	if (!rc)
		rc = formats[format]->read(d, path, part, classes, e);
	if (rc)
		dataset_close(d);
	return rc;
}
