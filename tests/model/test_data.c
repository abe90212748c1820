/* SPDX-License-Identifier: MIT */
/* IDX files that are right, and every way in which they can be wrong; splits that are disjoint,
 * covering and the same for everyone. */
#include "agent/base/limits.h"
#include "model/data/data.h"
#include "model/data/idx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static char folder[64], images[128], labels[128];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/dunlin-data-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(images, sizeof images, "%s/images", folder);
	snprintf(labels, sizeof labels, "%s/labels", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(images);
	unlink(labels);
	return rmdir(folder);
}

/* An IDX file of the given header whose elements are (i × step) mod 251, len of them. */
static size_t make_idx(uint8_t *out, int rank, const uint32_t *dim, size_t len, unsigned step)
{
	size_t n = 0;
	out[n++] = 0;
	out[n++] = 0;
	out[n++] = 8;
	out[n++] = (uint8_t)rank;
	for (int i = 0; i < rank; i++)
		for (int k = 24; k >= 0; k -= 8)
			out[n++] = (uint8_t)(dim[i] >> k);
	for (size_t i = 0; i < len; i++)
		out[n++] = (uint8_t)(i * step % 251);
	return n;
}

static void write_plain(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void write_gzip(const char *path, const void *data, size_t len)
{
	gzFile f = gzopen(path, "wb9");
	assert_non_null(f);
	assert_int_equal(gzwrite(f, data, (unsigned)len), len);
	assert_int_equal(gzclose(f), Z_OK);
}

/* 6 images of 2x3 and 6 labels 0, 1, 2, 3, 4, 5. */
static void write_pair(void)
{
	uint8_t b[128];
	write_plain(images, b, make_idx(b, 3, (uint32_t[]){6, 2, 3}, 36, 7));
	write_plain(labels, b, make_idx(b, 1, (uint32_t[]){6}, 6, 1));
}

static void expect_error(int code, const char *part, int64_t classes)
{
	struct dataset d;
	struct err e = {0};
	assert_int_equal(dataset_read_idx(&d, images, labels, classes, &e), code);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, part))
		fail_msg("\"%s\" is not in \"%s\"", part, e.msg);
	assert_null(d.pixels);
	assert_null(d.labels);
}

static void test_reads_plain_and_gzip(void **state)
{
	(void)state;
	uint8_t b[128];
	struct dataset d;
	struct err e;
	for (int gzip = 0; gzip < 2; gzip++) {
		void (*put)(const char *, const void *, size_t) = gzip ? write_gzip : write_plain;
		put(images, b, make_idx(b, 3, (uint32_t[]){6, 2, 3}, 36, 7));
		put(labels, b, make_idx(b, 1, (uint32_t[]){6}, 6, 1));
		assert_int_equal(dataset_read_idx(&d, images, labels, 0, &e), 0);
		assert_int_equal(d.count, 6);
		assert_int_equal(d.classes, 6);
		assert_int_equal(d.shape.rank, 3);
		assert_int_equal(d.shape.dim[0], 2);
		assert_int_equal(d.shape.dim[1], 3);
		assert_int_equal(d.shape.dim[2], 1);
		for (int i = 0; i < 36; i++)
			assert_int_equal(d.pixels[i], i * 7 % 251);
		for (int i = 0; i < 6; i++)
			assert_int_equal(d.labels[i], i);
		dataset_close(&d);
	}
}

static void test_four_dimensions_are_channels(void **state)
{
	(void)state;
	uint8_t b[128];
	struct dataset d;
	write_plain(images, b, make_idx(b, 4, (uint32_t[]){2, 2, 4, 3}, 48, 1));
	write_plain(labels, b, make_idx(b, 1, (uint32_t[]){2}, 2, 1));
	assert_int_equal(dataset_read_idx(&d, images, labels, 10, NULL), 0);
	assert_int_equal(d.classes, 10);
	assert_int_equal(d.shape.dim[1], 4);
	assert_int_equal(d.shape.dim[2], 3);
	assert_int_equal(d.pixels[47], 47);
	dataset_close(&d);
}

/* More than the first allocation, so that memory must grow. */
static void test_reads_more_than_one_step(void **state)
{
	(void)state;
	size_t count = 700, size = 64 * 64, len = count * size;
	uint8_t *b = malloc(len + 64), one[800];
	struct dataset d;
	size_t n = make_idx(b, 3, (uint32_t[]){(uint32_t)count, 64, 64}, len, 3);
	for (int gzip = 0; gzip < 2; gzip++) {
		(gzip ? write_gzip : write_plain)(images, b, n);
		write_plain(labels, one, make_idx(one, 1, (uint32_t[]){(uint32_t)count}, count, 0));
		assert_int_equal(dataset_read_idx(&d, images, labels, 2, NULL), 0);
		assert_memory_equal(d.pixels, b + 16, len);
		dataset_close(&d);
	}
	free(b);
}

static void test_truncated(void **state)
{
	(void)state;
	uint8_t b[128];
	char text[128];
	write_pair();
	size_t n = make_idx(b, 3, (uint32_t[]){6, 2, 3}, 36, 7);
	for (size_t cut = 0; cut < n; cut++) {
		write_plain(images, b, cut);
		snprintf(text, sizeof text, "6 images of 2x3 need 52 bytes, the file has %zu", cut);
		expect_error(ERR_FORMAT,
		        cut < 4    ? "too few"
		        : cut < 16 ? "header needs 16"
		                   : text,
		        0);
	}
	write_gzip(images, b, n - 1);
	expect_error(ERR_FORMAT, "need 52 bytes, the file has 51", 0);
	snprintf(text, sizeof text, "%.100s: ", images);
	expect_error(ERR_FORMAT, text, 0);
}

static void test_too_long(void **state)
{
	(void)state;
	uint8_t b[128];
	write_pair();
	write_gzip(images, b, make_idx(b, 3, (uint32_t[]){6, 2, 3}, 37, 7));
	expect_error(ERR_FORMAT, "too long: 6 images of 2x3 need 52 bytes", 0);
	write_pair();
	/* So short a set that the bytes read for the header hold all of it and more. */
	write_plain(labels, b, make_idx(b, 1, (uint32_t[]){6}, 9, 1));
	expect_error(ERR_FORMAT, "too long: 6 labels need 14 bytes", 0);
}

/* Any cut through a gzip stream, its checksum too, and a flipped bit in the checksum. */
static void test_damaged_gzip(void **state)
{
	(void)state;
	uint8_t b[128], z[256];
	write_pair();
	write_gzip(images, b, make_idx(b, 3, (uint32_t[]){6, 2, 3}, 36, 7));
	FILE *f = fopen(images, "rb");
	size_t n = fread(z, 1, sizeof z, f);
	fclose(f);
	struct dataset d;
	assert_int_equal(dataset_read_idx(&d, images, labels, 0, NULL), 0);
	dataset_close(&d);
	for (size_t cut = 2; cut < n; cut++) {
		write_plain(images, z, cut);
		expect_error(ERR_FORMAT, images, 0);
	}
	z[n - 6] ^= 1;
	write_plain(images, z, n);
	expect_error(ERR_FORMAT, "damaged gzip", 0);
}

static void test_bad_headers(void **state)
{
	(void)state;
	static const struct {
		uint8_t head[20];
		int code;
		const char *text;
	} bad[] = {
	        {"\x89PNG____________", ERR_FORMAT, "not an IDX file: it begins 89 50 4e 47"},
	        {{0, 0, 0x0d, 3}, ERR_UNSUPPORTED, "element type 0x0d"},
	        {{0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 1}, ERR_UNSUPPORTED, "2 dimensions"},
	        {{0, 0, 8, 0}, ERR_UNSUPPORTED, "0 dimensions"},
	        {{0, 0, 8, 255}, ERR_UNSUPPORTED, "255 dimensions"},
	        {{0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, ERR_FORMAT, "empty"},
	        {{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, ERR_FORMAT, "dimension 3 is 0"},
	        {{0, 0, 8, 3, 255, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, ERR_LIMIT, "dimension 1 is"},
	        {{0, 0, 8, 3, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1}, ERR_LIMIT, "dimension 2 is"},
	        {{0, 0, 8, 3, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, ERR_LIMIT, "promises more"},
	        /* 2^36 bytes are promised and none are there: an error, not 64 GB of memory. */
	        {{0, 0, 8, 3, 1, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 1}, ERR_FORMAT, "truncated"},
	};
	write_pair();
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_plain(images, bad[i].head, 16);
		expect_error(bad[i].code, bad[i].text, 0);
	}
}

static void test_files_that_do_not_fit(void **state)
{
	(void)state;
	uint8_t b[128];
	char swap[128];
	write_pair();
	write_plain(labels, b, make_idx(b, 1, (uint32_t[]){5}, 5, 1));
	expect_error(ERR_MISMATCH, "5 labels for the 6 images", 0);
	write_pair();
	expect_error(ERR_INVALID, "label 4 of sample 4", 4);
	expect_error(ERR_INVALID, "-1 classes", -1);
	expect_error(ERR_INVALID, "classes", LIMIT_CLASSES + 1);
	strcpy(swap, images);
	strcpy(images, labels);
	expect_error(ERR_MISMATCH, "swapped", 0);
	strcpy(labels, swap);
	strcpy(images, swap);
	expect_error(ERR_MISMATCH, "swapped", 0);
	snprintf(labels, sizeof labels, "%s/labels", folder);
	strcpy(swap, images);
	strcpy(images, folder);
	expect_error(ERR_IO, "not a regular file", 0);
	strcpy(images, "/nonexistent/images");
	expect_error(ERR_IO, "/nonexistent/images: open: No such file", 0);
	strcpy(images, swap);
}

static void test_statistics(void **state)
{
	(void)state;
	uint8_t pixels[] = {0, 255, 51, 51, 9, 9};
	struct dataset d = {.shape = {3, {1, 2, 1}}, .count = 3, .pixels = pixels};
	struct normalisation norm;
	dataset_statistics(&d, (uint32_t[]){0, 1}, 2, &norm);
	assert_true(fabs(norm.mean[0] - 0.35) < 1e-12);
	assert_true(fabs(norm.std[0] - sqrt((1 + 2 * 0.04) / 4 - 0.35 * 0.35)) < 1e-12);
	dataset_statistics(&d, (uint32_t[]){2}, 1, &norm);
	assert_true(fabs(norm.mean[0] - 9 / 255.0) < 1e-12);
	assert_true(norm.n == 1 && norm.std[0] == 1);
}

#define COUNT 1003
#define CLASSES 7

static int32_t split_labels[COUNT];
static const struct dataset split_data = {
        .count = COUNT, .classes = CLASSES, .labels = split_labels};

static void make_labels(void)
{
	for (int i = 0; i < COUNT; i++)
		split_labels[i] = i * i % CLASSES; /* only some classes, and of uneven size */
}

/* Runs every part of a split and checks that each sample is seen by exactly one of them; parts that
 * are empty are told by an error. Returns the size of the largest. */
static uint32_t check_cover(struct partition p, double validation)
{
	int seen[COUNT] = {0};
	uint32_t *first_val = NULL, n_first = 0, largest = 0;
	for (p.part = 0; p.part < p.parts; p.part++) {
		uint32_t *train, *val, n_train, n_val;
		struct err e = {0};
		int rc =
		        data_split(&split_data, &p, validation, &train, &n_train, &val, &n_val, &e);
		if (rc) {
			assert_int_equal(rc, ERR_INVALID);
			assert_non_null(strstr(e.msg, "larger alpha or fewer parts"));
			assert_null(train);
			assert_null(val);
			continue;
		}
		assert_true(n_train > 0);
		largest = n_train > largest ? n_train : largest;
		for (uint32_t i = 0; i < n_train; i++)
			seen[train[i]]++;
		if (!first_val) {
			first_val = val;
			n_first = n_val;
			for (uint32_t i = 0; i < n_val; i++)
				seen[val[i]]++;
		} else {
			assert_int_equal(n_val, n_first);
			assert_memory_equal(val, first_val, n_val * sizeof *val);
			free(val);
		}
		free(train);
	}
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(seen[i], 1);
	free(first_val);
	return largest;
}

static void test_split_covers(void **state)
{
	(void)state;
	make_labels();
	static const double alphas[] = {1e-300, 1e-3, 0.1, 1, 100, 1e300};
	for (uint32_t parts = 1; parts < 9; parts += 2) {
		uint32_t rest = COUNT - 100; /* 0.1 of 1003, rounded */
		struct partition p = {.kind = PARTITION_SHARD, .parts = parts, .seed = parts};
		assert_int_equal(check_cover(p, 0.1), (rest + parts - 1) / parts);
		p.kind = PARTITION_LABEL;
		for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
			p.alpha = alphas[i];
			uint32_t largest = check_cover(p, 0.1);
			/* An enormous alpha is an even split, up to one sample for each class. */
			if (alphas[i] > 1e9)
				assert_true(largest <= rest / parts + CLASSES);
		}
	}
	struct partition all = {.kind = PARTITION_ALL, .parts = 1};
	assert_int_equal(check_cover(all, 0), COUNT);
	assert_int_equal(check_cover(all, 0.25), COUNT - 251);
	assert_int_equal(check_cover(all, 1e-9), COUNT - 1);
}

/* With a small alpha a class belongs almost wholly to one part. */
static void test_small_alpha_is_uneven(void **state)
{
	(void)state;
	make_labels();
	uint32_t *train, *val, n_train, n_val, of[CLASSES] = {0}, total[CLASSES] = {0};
	struct partition p = {.kind = PARTITION_LABEL, .parts = 2, .alpha = 1e-3, .seed = 4};
	int whole = 0, present = 0;
	if (data_split(&split_data, &p, 0, &train, &n_train, &val, &n_val, NULL)) {
		p.part = 1;
		assert_int_equal(
		        data_split(&split_data, &p, 0, &train, &n_train, &val, &n_val, NULL), 0);
	}
	for (uint32_t i = 0; i < n_train; i++)
		of[split_labels[train[i]]]++;
	for (int i = 0; i < COUNT; i++)
		total[split_labels[i]]++;
	for (int c = 0; c < CLASSES; c++) {
		present += total[c] > 0;
		whole += total[c] > 0 && (of[c] == 0 || of[c] == total[c]);
	}
	assert_true(whole >= present - 1);
	free(train);
	free(val);
}

/* So small an alpha that every draw underflows to 0: a class goes to one part, and not always to
 * the same. */
static void test_vanishing_alpha(void **state)
{
	(void)state;
	make_labels();
	uint32_t *train, *val, n_train, n_val, sum[2] = {0};
	struct partition p = {.kind = PARTITION_LABEL, .parts = 2, .alpha = 1e-300};
	for (p.seed = 0; p.seed < 16; p.seed++)
		for (p.part = 0; p.part < 2; p.part++)
			if (!data_split(&split_data, &p, 0, &train, &n_train, &val, &n_val, NULL)) {
				sum[p.part] += n_train;
				free(train);
				free(val);
			}
	assert_int_equal(sum[0] + sum[1], 16 * COUNT);
	assert_true(sum[0] > 4 * COUNT && sum[1] > 4 * COUNT);
}

static void test_split_depends_on_the_seed_alone(void **state)
{
	(void)state;
	make_labels();
	uint32_t *train[3], *val[3], n_train[3], n_val[3];
	struct partition p = {.kind = PARTITION_SHARD, .parts = 3, .part = 1, .seed = 9};
	for (int i = 0; i < 3; i++) {
		p.seed = i < 2 ? 9 : 10;
		assert_int_equal(data_split(&split_data, &p, 0.2, &train[i], &n_train[i], &val[i],
		                         &n_val[i], NULL),
		        0);
	}
	assert_memory_equal(train[0], train[1], n_train[0] * sizeof **train);
	assert_memory_equal(val[0], val[1], n_val[0] * sizeof **val);
	assert_memory_not_equal(train[0], train[2], n_train[2] * sizeof **train);
	assert_memory_not_equal(val[0], val[2], n_val[2] * sizeof **val);
	for (int i = 0; i < 3; i++) {
		free(train[i]);
		free(val[i]);
	}
}

static void test_split_refuses(void **state)
{
	(void)state;
	make_labels();
	static const struct {
		struct partition p;
		double validation;
		const char *text;
	} bad[] = {
	        {{.kind = PARTITION_ALL}, 1, "validation share 1"},
	        {{.kind = PARTITION_ALL}, -0.1, "validation share"},
	        {{.kind = PARTITION_ALL}, NAN, "validation share"},
	        {{.kind = PARTITION_ALL}, 0.9999, "leaves no sample"},
	        {{.kind = PARTITION_SHARD, .parts = 3, .part = 3}, 0, "part 3 of 3"},
	        {{.kind = PARTITION_SHARD}, 0, "part 0 of 0"},
	        {{.kind = PARTITION_SHARD, .parts = COUNT + 1}, 0, "fewer parts"},
	        {{.kind = PARTITION_LABEL, .parts = UINT32_MAX, .alpha = 1}, 0, "fewer parts"},
	        {{.kind = PARTITION_LABEL, .parts = 2, .alpha = 0}, 0, "alpha 0"},
	        {{.kind = PARTITION_LABEL, .parts = 2, .alpha = NAN}, 0, "alpha"},
	        {{.kind = PARTITION_LABEL, .parts = 2, .alpha = INFINITY}, 0, "alpha"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		uint32_t *train, *val, n_train, n_val;
		struct err e = {0};
		assert_int_equal(data_split(&split_data, &bad[i].p, bad[i].validation, &train,
		                         &n_train, &val, &n_val, &e),
		        ERR_INVALID);
		if (!strstr(e.msg, bad[i].text))
			fail_msg("\"%s\" is not in \"%s\"", bad[i].text, e.msg);
		assert_null(train);
		assert_null(val);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reads_plain_and_gzip),
	        cmocka_unit_test(test_four_dimensions_are_channels),
	        cmocka_unit_test(test_reads_more_than_one_step),
	        cmocka_unit_test(test_truncated),
	        cmocka_unit_test(test_too_long),
	        cmocka_unit_test(test_damaged_gzip),
	        cmocka_unit_test(test_bad_headers),
	        cmocka_unit_test(test_files_that_do_not_fit),
	        cmocka_unit_test(test_statistics),
	        cmocka_unit_test(test_split_covers),
	        cmocka_unit_test(test_small_alpha_is_uneven),
	        cmocka_unit_test(test_vanishing_alpha),
	        cmocka_unit_test(test_split_depends_on_the_seed_alone),
	        cmocka_unit_test(test_split_refuses),
	};
	return cmocka_run_group_tests_name("data", tests, make_folder, remove_folder);
}
