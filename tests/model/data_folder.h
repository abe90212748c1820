/* SPDX-License-Identifier: MIT */
/* A folder of data files that a test writes. */
#ifndef DUNLIN_TESTS_MODEL_DATA_FOLDER_H
#define DUNLIN_TESTS_MODEL_DATA_FOLDER_H

#include "model/data/data.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/dunlin-data-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static void clear_folder(void)
{
	char path[400];
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (struct dirent *f; (f = readdir(dir));) {
		snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
		if (f->d_name[0] != '.')
			unlink(path);
	}
	closedir(dir);
}

static int remove_folder(void **state)
{
	(void)state;
	clear_folder();
	return rmdir(folder);
}

static void put(const char *name, const void *data, size_t len)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static inline void expect_error(
        int format, enum data_part part, int64_t classes, int code, const char *text)
{
	struct dataset d;
	struct err e = {0};
	assert_int_equal(dataset_read(&d, format, folder, part, classes, 0, &e), code);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
	assert_true(!d.pixels && !d.values && !d.labels);
}

#endif
