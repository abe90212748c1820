/* SPDX-License-Identifier: MIT */
/* What several tests need: cmocka with the headers it wants before it, and a folder for files. */
#ifndef DUNLIN_TESTS_SUPPORT_H
#define DUNLIN_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Group setup and teardown: *state is the path of a folder of the test's own. */
static inline int make_folder(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char path[256];
	snprintf(path, sizeof path, "%s/dunlin-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(path))
		return -1;
	*state = strdup(path);
	return *state ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline int remove_folder(void **state)
{
	int rc = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(*state);
	return rc;
}

static inline void write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

#endif
