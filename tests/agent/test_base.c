/* SPDX-License-Identifier: MIT */
/* The bottom layer: errors, random numbers, buffers and files. */
#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/rng.h"
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- err */

static void err_codes_have_texts(void **state)
{
	(void)state;
	assert_string_equal(err_text(0), "no error");
	assert_string_equal(err_text(ERR_LIMIT), "over a limit");
	assert_string_equal(err_text(1), "unknown error");
	assert_string_equal(err_text(-1000), "unknown error");
}

static void err_set_fills_and_returns(void **state)
{
	(void)state;
	struct err e;
	assert_int_equal(err_set(&e, ERR_FORMAT, "line %d", 7), ERR_FORMAT);
	assert_int_equal(e.code, ERR_FORMAT);
	assert_string_equal(e.msg, "line 7");
	assert_int_equal(err_set(NULL, ERR_FORMAT, "line %d", 7), ERR_FORMAT);
	errno = ENOENT;
	assert_int_equal(err_errno(&e, "open %s", "x"), ERR_IO);
	assert_string_equal(e.msg, "open x: No such file or directory");
}

static void err_prefix_keeps_the_cause(void **state)
{
	(void)state;
	struct err e;
	char lots[400];
	memset(lots, 'p', sizeof lots - 1);
	lots[sizeof lots - 1] = '\0';
	err_set(&e, ERR_FORMAT, "line 7");
	assert_int_equal(err_prefix(&e, "load %s", "a"), ERR_FORMAT);
	assert_string_equal(e.msg, "load a: line 7");
	err_prefix(&e, "%s", lots);
	assert_non_null(strstr(e.msg, ": load a: line 7"));
	err_set(&e, ERR_FORMAT, "%s", lots);
	assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
	err_prefix(&e, "load");
	assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
	assert_memory_equal(e.msg, "load: ppp", 9);
}

/* ---- rng */

static void rng_is_the_same_everywhere(void **state)
{
	(void)state;
	struct rng r;
	/* Worked out apart from this code, from the published definitions. */
	rng_seed(&r, 1, 2);
	assert_true(rng_u64(&r) == 0xe94e8f870b27c98d);
	for (int i = 0; i < 98; i++)
		rng_u64(&r);
	assert_true(rng_u64(&r) == 0x6013f8a81596cd9f);
	assert_true(rng_mix(1, 2, 3) == 0xd0734750fde362b3);
}

static void rng_streams_differ(void **state)
{
	(void)state;
	struct rng a, b, c, d;
	rng_seed(&a, 1, 2);
	rng_seed(&b, 1, 3);
	rng_seed(&c, 2, 2);
	rng_seed(&d, 1, 2);
	uint64_t x = rng_u64(&a);
	assert_true(x != rng_u64(&b));
	assert_true(x != rng_u64(&c));
	assert_true(x == rng_u64(&d));
	assert_true(rng_mix(1, 2, 3) != rng_mix(1, 3, 2));
}

static void rng_numbers_have_their_moments(void **state)
{
	(void)state;
	struct rng r;
	double mean = 0, square = 0, gamma = 0, small = 0, unit = 0;
	int n = 20000, seen[7] = {0};
	rng_seed(&r, 42, 0);
	for (int i = 0; i < n; i++) {
		double x = rng_normal(&r);
		float f = rng_f32(&r);
		double d = rng_f64(&r);
		mean += x / n;
		square += x * x / n;
		gamma += rng_gamma(&r, 3) / n;
		small += rng_gamma(&r, 0.3) / n;
		unit += d / n;
		assert_true(f >= 0 && f < 1);
		assert_true(d >= 0 && d < 1);
		seen[rng_below(&r, 7)]++;
	}
	/* Five standard errors of each. */
	assert_true(fabs(mean) < 0.036);
	assert_true(fabs(square - 1) < 0.051);
	assert_true(fabs(gamma - 3) < 0.062);
	assert_true(fabs(small - 0.3) < 0.02);
	assert_true(fabs(unit - 0.5) < 0.011);
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], n / 7 - 250, n / 7 + 250);
}

static void rng_shuffle_permutes(void **state)
{
	(void)state;
	struct rng r;
	uint32_t v[100], fixed = 0, seen[100] = {0};
	rng_seed(&r, 7, 0);
	for (uint32_t i = 0; i < 100; i++)
		v[i] = i;
	rng_shuffle(&r, v, 100);
	for (uint32_t i = 0; i < 100; i++) {
		assert_in_range(v[i], 0, 99);
		seen[v[i]]++;
		fixed += v[i] == i;
	}
	for (int i = 0; i < 100; i++)
		assert_int_equal(seen[i], 1);
	assert_true(fixed < 10);
	rng_shuffle(&r, v, 1);
	rng_shuffle(&r, v, 0);
}

static void rng_shuffle_is_even(void **state)
{
	(void)state;
	struct rng r;
	int seen[27] = {0}, orders = 0;
	rng_seed(&r, 7, 1);
	for (int i = 0; i < 6000; i++) {
		uint32_t v[3] = {0, 1, 2};
		rng_shuffle(&r, v, 3);
		seen[v[0] * 9 + v[1] * 3 + v[2]]++;
	}
	for (int i = 0; i < 27; i++) {
		if (seen[i] == 0)
			continue;
		assert_in_range(seen[i], 850, 1150);
		orders++;
	}
	assert_int_equal(orders, 6);
}

/* ---- buf */

static void buf_grows_to_its_cap(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 1000);
	for (int i = 0; i < 100; i++)
		assert_int_equal(buf_append(&b, "0123456789", 10), 0);
	assert_int_equal(b.len, 1000);
	assert_int_equal(buf_append(&b, "x", 1), ERR_LIMIT);
	assert_int_equal(buf_printf(&b, "%d", 1), ERR_LIMIT);
	assert_int_equal(buf_json_string(&b, ""), ERR_LIMIT);
	assert_int_equal(buf_append(&b, "", 0), 0);
	assert_int_equal(b.len, 1000);
	assert_int_equal(strlen(b.data), 1000);
	assert_true(b.cap <= 1001);
	buf_close(&b);
	assert_null(b.data);
	assert_int_equal(b.len, 0);
}

static void buf_keeps_content_when_full(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 8);
	assert_int_equal(buf_printf(&b, "%s-%d", "ab", 12), 0);
	assert_string_equal(b.data, "ab-12");
	assert_int_equal(buf_json_string(&b, "cd"), ERR_LIMIT); /* 4 bytes, 3 are left */
	assert_string_equal(b.data, "ab-12");
	assert_int_equal(b.len, 5);
	assert_int_equal(buf_json_string(&b, "c"), 0);
	assert_string_equal(b.data, "ab-12\"c\"");
	buf_close(&b);
}

static void buf_has_no_cap_at_the_largest(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, SIZE_MAX);
	assert_int_equal(buf_append(&b, "x", SIZE_MAX - 1), ERR_NOMEM);
	assert_int_equal(buf_append(&b, "x", 1), 0);
	assert_int_equal(buf_append(&b, "x", SIZE_MAX - 1), ERR_LIMIT);
	assert_string_equal(b.data, "x");
	buf_close(&b);
}

static void json_strings_are_escaped(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out;
	} cases[] = {
	        {"", "\"\""},
	        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
	        {"\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\""},
	        {"\x01\x1b[0m\x7f", "\"\\u0001\\u001b[0m\\u007f\""},
	        {"\u00e4\u20ac\U0001f426", "\"\u00e4\u20ac\U0001f426\""},
	        {"\xc2\x9b", "\"\\u009b\""},
	        {"\xc2\xa0", "\"\xc2\xa0\""},
	        {"\xff", "\"\ufffd\""},
	        {"a\xc3", "\"a\ufffd\""},
	        {"\xc0\xaf", "\"\ufffd\ufffd\""},           /* overlong */
	        {"\xe0\x80\xaf", "\"\ufffd\ufffd\ufffd\""}, /* overlong */
	        {"\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\""}, /* surrogate */
	        {"\xf4\x90\x80\x80", "\"\ufffd\ufffd\ufffd\ufffd\""},
	        {"\xe2\x82", "\"\ufffd\ufffd\""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf b;
		buf_init(&b, 100);
		assert_int_equal(buf_json_string(&b, cases[i].in), 0);
		assert_string_equal(b.data, cases[i].out);
		buf_close(&b);
	}
}

/* ---- files, in a folder of their own */

static void files_are_read_whole(void **state)
{
	const char *dir = *state;
	struct err e;
	struct buf b;
	char path[300];
	size_t n = 100001;
	char *want = malloc(n);
	assert_non_null(want);
	for (size_t i = 0; i < n; i++)
		want[i] = (char)(i * 7);
	snprintf(path, sizeof path, "%s/a", dir);
	write_file(path, want, n);
	buf_init(&b, n);
	assert_int_equal(file_read(&b, path, &e), 0);
	assert_int_equal(b.len, n);
	assert_memory_equal(b.data, want, n);
	buf_close(&b);

	buf_init(&b, n);
	assert_int_equal(buf_append(&b, "head", 4), 0);
	assert_int_equal(file_read(&b, path, &e), ERR_LIMIT);
	assert_non_null(strstr(e.msg, "/a: larger than 100001 bytes"));
	assert_int_equal(b.len, 4);
	assert_string_equal(b.data, "head");
	buf_close(&b);
	free(want);
}

static void odd_files_are_refused(void **state)
{
	const char *dir = *state;
	struct err e;
	struct buf b;
	char path[300];
	buf_init(&b, 100);
	snprintf(path, sizeof path, "%s/none", dir);
	assert_int_equal(file_read(&b, path, &e), ERR_IO);
	assert_non_null(strstr(e.msg, "/none: No such file"));
	assert_int_equal(file_read(&b, dir, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "not a regular file"));
	snprintf(path, sizeof path, "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_read(&b, path, &e), ERR_INVALID);
	assert_null(b.data);
	snprintf(path, sizeof path, "%s/empty", dir);
	write_file(path, "", 0);
	assert_int_equal(file_read(&b, path, &e), 0);
	assert_string_equal(b.data, "");
	buf_close(&b);
}

static void folders_are_made(void **state)
{
	const char *dir = *state;
	struct err e;
	struct stat st;
	char path[300];
	snprintf(path, sizeof path, "%s/x//y/z/", dir);
	assert_int_equal(file_mkdirs(path, &e), 0);
	assert_int_equal(file_mkdirs(path, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(file_mkdirs("/", &e), 0);
	assert_int_equal(file_mkdirs("", &e), ERR_IO);
	snprintf(path, sizeof path, "%s/file", dir);
	write_file(path, "", 0);
	assert_int_equal(file_mkdirs(path, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "is not a folder"));
	snprintf(path, sizeof path, "%s/file/below", dir);
	assert_int_equal(file_mkdirs(path, &e), ERR_INVALID);
}

struct fill {
	const char *text, *path;
	int rc;
};

static int fill(int fd, void *arg, struct err *e)
{
	struct fill *f = arg;
	struct buf b;
	buf_init(&b, 100);
	/* While it is being filled a reader must still see the old content, or none. */
	if (access(f->path, F_OK) == 0) {
		assert_int_equal(file_read(&b, f->path, e), 0);
		assert_string_equal(b.data, "old");
	}
	buf_close(&b);
	int rc = file_write_all(fd, f->text, strlen(f->text), e);
	return rc ? rc : f->rc ? err_set(e, f->rc, "fill failed") : 0;
}

static void assert_content(const char *path, const char *want)
{
	struct buf b;
	struct err e;
	buf_init(&b, 1000);
	assert_int_equal(file_read(&b, path, &e), 0);
	assert_string_equal(b.data, want);
	buf_close(&b);
}

static void files_are_replaced_whole(void **state)
{
	const char *dir = *state;
	struct err e;
	struct stat st;
	char path[300], tmp[310];
	snprintf(path, sizeof path, "%s/r", dir);
	snprintf(tmp, sizeof tmp, "%s.tmp", path);
	struct fill f = {.text = "old", .path = path};
	assert_int_equal(file_replace(path, 0600, fill, &f, &e), 0);
	assert_content(path, "old");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	f.text = "part";
	f.rc = ERR_NONFINITE;
	assert_int_equal(file_replace(path, 0600, fill, &f, &e), ERR_NONFINITE);
	assert_non_null(strstr(e.msg, "r.tmp: fill failed"));
	assert_content(path, "old");
	assert_int_equal(access(tmp, F_OK), -1);

	write_file(tmp, "left by a crash, longer than the new", 36);
	f.text = "new";
	f.rc = 0;
	assert_int_equal(file_replace(path, 0600, fill, &f, &e), 0);
	assert_content(path, "new");
	assert_int_equal(access(tmp, F_OK), -1);
}

static void only_files_are_replaced(void **state)
{
	const char *dir = *state;
	struct err e;
	char path[300];
	snprintf(path, sizeof path, "%s/none/r", dir);
	struct fill f = {.text = "x", .path = path};
	assert_int_equal(file_replace(path, 0600, fill, &f, &e), ERR_IO);
	assert_non_null(strstr(e.msg, "No such file"));
	assert_int_equal(file_replace(dir, 0600, fill, &f, &e), ERR_INVALID);
	snprintf(path, sizeof path, "%s/fifo2", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_replace(path, 0600, fill, &f, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "not a regular file"));
}

static void write_errors_are_told(void **state)
{
	(void)state;
	struct err e;
	int fd = open("/dev/full", O_WRONLY);
	if (fd < 0)
		skip();
	assert_int_equal(file_write_all(fd, "x", 1, &e), ERR_IO);
	assert_non_null(strstr(e.msg, "No space left"));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(err_codes_have_texts),
	        cmocka_unit_test(err_set_fills_and_returns),
	        cmocka_unit_test(err_prefix_keeps_the_cause),
	        cmocka_unit_test(rng_is_the_same_everywhere),
	        cmocka_unit_test(rng_streams_differ),
	        cmocka_unit_test(rng_numbers_have_their_moments),
	        cmocka_unit_test(rng_shuffle_permutes),
	        cmocka_unit_test(rng_shuffle_is_even),
	        cmocka_unit_test(buf_grows_to_its_cap),
	        cmocka_unit_test(buf_keeps_content_when_full),
	        cmocka_unit_test(buf_has_no_cap_at_the_largest),
	        cmocka_unit_test(json_strings_are_escaped),
	        cmocka_unit_test(files_are_read_whole),
	        cmocka_unit_test(odd_files_are_refused),
	        cmocka_unit_test(folders_are_made),
	        cmocka_unit_test(files_are_replaced_whole),
	        cmocka_unit_test(only_files_are_replaced),
	        cmocka_unit_test(write_errors_are_told),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
