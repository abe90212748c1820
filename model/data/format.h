/* SPDX-License-Identifier: MIT */
/* What a format of data is to the rest: one file with a struct data_format, and a row of
 * DATA_FORMATS. Internal to the readers. */
#ifndef DUNLIN_MODEL_DATA_FORMAT_H
#define DUNLIN_MODEL_DATA_FORMAT_H

#include "model/data/data.h"

#include <glob.h>

/* In the order in which "auto" tries them; data_format_NAME is the row's struct. */
#define DATA_FORMATS(X) X(idx) X(cifar) X(npy) X(tokens) X(tokens16) X(tokens32) X(bytes)

struct data_format {
	/* Whether path has files of this format, by their names or first bytes alone. */
	bool (*detect)(const char *path);
	/* One part, checked whole; d is all zero before but for context and beside. classes was
	 * checked to be in range. On an error d may be filled in part: the caller closes it.
	 * ERR_NOTFOUND: no file of that part is there. */
	int (*read)(struct dataset *d, const char *path, enum data_part part, int64_t classes,
	        struct err *e);
};

#define X(name) extern const struct data_format data_format_##name;
DATA_FORMATS(X)
#undef X

/* 0 to LIMIT_CLASSES. */
int dataset__check_classes(int64_t classes, struct err *e) MUST_CHECK;

/* Every label against the classes, and sets them; classes 0: the largest label + 1. Labels are not
 * negative. */
int dataset__check_labels(struct dataset *d, int64_t classes, struct err *e) MUST_CHECK;

/* The files whose names fit a pattern, to be freed by globfree also after an error. ERR_IO: there
 * are none. */
int data__match(const char *pattern, glob_t *found, struct err *e) MUST_CHECK;

/* out = folder/name; false if that is no file, or too long a path. */
bool data__find(char out[LIMIT_PATH], const char *folder, const char *name);

#endif
