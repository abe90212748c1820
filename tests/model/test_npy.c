/* SPDX-License-Identifier: MIT */
/* Folders of NumPy's files that are right, and every way in which they can be wrong. */
#include "model/data/npy.h"
#include "tests/model/data_folder.h"

#include <math.h>

#define NPY 3 /* its place in data_format_names */

/* A file as numpy.save writes it: the header is padded to a multiple of 64 bytes. */
static void save(const char *name, const char *dict, const void *data, size_t len)
{
	static uint8_t room[1 << 12];
	size_t text = strlen(dict), header = (10 + text + 1 + 63) / 64 * 64;
	assert_true(header + len <= sizeof room);
	memset(room, ' ', header);
	memcpy(room, "\x93NUMPY\x01\x00", 8);
	room[8] = (uint8_t)(header - 10);
	room[9] = (uint8_t)((header - 10) >> 8);
	memcpy(room + 10, dict, text);
	room[header - 1] = '\n';
	memcpy(room + header, data, len);
	put(name, room, header + len);
}

#define DICT(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }"

static const int64_t labels[3] = {2, 0, 1};

static void save_labels(void)
{
	save("y_train.npy", DICT("<i8", "(3,)"), labels, sizeof labels);
}

static void test_bytes_are_images(void **state)
{
	(void)state;
	struct dataset d;
	struct err e = {0};
	uint8_t pixels[3 * 2 * 2 * 2];
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(10 * i);
	save("x_train.npy", DICT("|u1", "(3, 2, 2, 2)"), pixels, sizeof pixels);
	save_labels();
	assert_string_equal(data_format_names[NPY], "npy");
	assert_int_equal(dataset_read(&d, 0, folder, DATA_TRAIN, 0, 0, &e), 0);
	assert_int_equal(d.count, 3);
	assert_int_equal(d.classes, 3);
	assert_true(d.shape.dim[0] == 2 && d.shape.dim[1] == 2 && d.shape.dim[2] == 2);
	assert_memory_equal(d.pixels, pixels, sizeof pixels);
	assert_true(!d.values && d.labels[0] == 2 && d.labels[1] == 0 && d.labels[2] == 1);
	dataset_close(&d);
	expect_error(0, DATA_TEST, 0, ERR_NOTFOUND, "no x_test.npy");
	expect_error(NPY, DATA_TRAIN, 2, ERR_INVALID, "label 2 of sample 0");
	clear_folder();
}

/* What the samples are once they are floats, whatever they were. */
static void expect_values(const float *want, size_t n)
{
	struct dataset d;
	struct err e = {0};
	struct normalisation norm;
	if (dataset_read(&d, NPY, folder, DATA_TRAIN, 0, 0, &e))
		fail_msg("%s", e.msg);
	assert_null(d.pixels);
	assert_memory_equal(d.values, want, n * sizeof *want);
	dataset_statistics(&d, (uint32_t[]){0, 1, 2}, 3, &norm);
	assert_true(norm.n == 1 && norm.mean[0] == 0 && norm.std[0] == 1);
	dataset_close(&d);
}

static void test_numbers_become_floats(void **state)
{
	(void)state;
	static const float f4[6] = {0, -1.5f, 2, 1e-30f, 1e30f, 7};
	static const uint16_t f2[6] = {0x0000, 0xc000, 0x3555, 0x0001, 0x7bff, 0x8400};
	static const int32_t i4[6] = {0, -1, 1 << 20, -(1 << 20), 5, 6};
	static const int64_t i8[6] = {0, -1, 1 << 20, -(1 << 20), 5, 6};
	static const float ints[6] = {0, -1, 1 << 20, -(1 << 20), 5, 6};
	static const float halves[6] = {
	        0, -2, 0.333251953125f, 5.9604644775390625e-8f, 65504, -6.103515625e-5f};
	save_labels();
	save("x_train.npy", DICT("<f4", "(3, 2)"), f4, sizeof f4);
	expect_values(f4, 6);
	save("x_train.npy", DICT("<f2", "(3, 2)"), f2, sizeof f2);
	expect_values(halves, 6);
	save("x_train.npy", DICT("<i4", "(3, 2, 1)"), i4, sizeof i4);
	expect_values(ints, 6);
	save("x_train.npy", DICT("<i8", "(3, 1, 2, 1)"), i8, sizeof i8);
	expect_values(ints, 6);
	/* In any order, and without spaces. */
	save("x_train.npy", "{'shape':(3,2),'fortran_order':False,'descr':'<f4'}", f4, sizeof f4);
	expect_values(f4, 6);
	clear_folder();
}

static void expect_header(const char *dict, int code, const char *text)
{
	static const float zero[64];
	save("x_train.npy", dict, zero, sizeof zero);
	expect_error(NPY, DATA_TRAIN, 0, code, text);
}

static void test_headers_that_are_not_read(void **state)
{
	(void)state;
	save_labels();
	expect_header(DICT("<f8", "(3, 2)"), ERR_UNSUPPORTED, "type '<f8'");
	expect_header(DICT(">f4", "(3, 2)"), ERR_UNSUPPORTED, "type '>f4'");
	expect_header(DICT("|O", "(3, 2)"), ERR_UNSUPPORTED, "type '|O'");
	expect_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
	        ERR_UNSUPPORTED, "a record of fields");
	expect_header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", ERR_UNSUPPORTED,
	        "Fortran");
	expect_header(DICT("<f4", "(64,)"), ERR_MISMATCH, "swapped");
	expect_header(DICT("<f4", "()"), ERR_FORMAT, "one number");
	expect_header(DICT("<f4", "(3, 0)"), ERR_FORMAT, "dimension 2 is 0");
	expect_header(DICT("<f4", "(3, 1, 1, 1, 1)"), ERR_UNSUPPORTED, "more than 4 dimensions");
	expect_header(DICT("<f4", "(4294967296, 2)"), ERR_LIMIT, "dimension 1 is 4294967296");
	expect_header(DICT("<f4", "(2000000000, 60000)"), ERR_LIMIT, "promises more than");
	expect_header(DICT("<f4", "(3 2)"), ERR_FORMAT, "the shape");
	expect_header(DICT("<f4", "(-3, 2)"), ERR_FORMAT, "the shape");
	expect_header("{'descr': '<f4', 'shape': (3, 2), }", ERR_FORMAT, "is missing");
	expect_header("{'descr': '<f4', 'evil': 1}", ERR_FORMAT, "NumPy does not write");
	expect_header("", ERR_FORMAT, "no table");
	expect_header(DICT("<f4", "(3, 2)"), ERR_FORMAT, "too long");
	expect_header(DICT("<f4", "(3, 30)"), ERR_FORMAT, "truncated");
	put("x_train.npy", "PK\3\4 not NumPy's", 16);
	expect_error(NPY, DATA_TRAIN, 0, ERR_FORMAT, "not a file of numpy.save");
	put("x_train.npy", "\x93NUMPY\x09\0\0\0\0\0", 12);
	expect_error(NPY, DATA_TRAIN, 0, ERR_UNSUPPORTED, "version 9");
	put("x_train.npy", "\x93NUMPY\x02\0\0\0\1\0", 12);
	expect_error(NPY, DATA_TRAIN, 0, ERR_LIMIT, "a header of 65536 bytes");
	put("x_train.npy", "\x93NUMPY\x01\0\x76\0{'", 12);
	expect_error(NPY, DATA_TRAIN, 0, ERR_FORMAT, "truncated: the header");
	clear_folder();
}

static void test_files_that_do_not_fit(void **state)
{
	(void)state;
	float x[6] = {0};
	static const int64_t minus[3] = {0, -1, 0}, large[3] = {0, 0, INT64_MAX};
	static const float float_labels[3];
	save("x_train.npy", DICT("<f4", "(3, 2)"), x, sizeof x);
	expect_error(0, DATA_TRAIN, 0, ERR_MISMATCH, "y_train.npy is missing");
	save("y_train.npy", DICT("<i8", "(2,)"), labels, 16);
	expect_error(0, DATA_TRAIN, 0, ERR_MISMATCH, "2 labels for 3 samples");
	save("y_train.npy", DICT("<i8", "(3,)"), minus, sizeof minus);
	expect_error(0, DATA_TRAIN, 0, ERR_INVALID, "label -1 of sample 1");
	save("y_train.npy", DICT("<i8", "(3,)"), large, sizeof large);
	expect_error(0, DATA_TRAIN, 0, ERR_INVALID, "of sample 2");
	save("y_train.npy", DICT("<f4", "(3,)"), float_labels, sizeof float_labels);
	expect_error(0, DATA_TRAIN, 0, ERR_UNSUPPORTED, "labels are floats");
	save("y_train.npy", DICT("<i8", "(1, 3)"), labels, sizeof labels);
	expect_error(0, DATA_TRAIN, 0, ERR_UNSUPPORTED, "more than one label");
	save_labels();
	x[4] = NAN;
	save("x_train.npy", DICT("<f4", "(3, 2)"), x, sizeof x);
	expect_error(0, DATA_TRAIN, 0, ERR_NONFINITE, "sample 2 (counted from 0) is not finite");
	clear_folder();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bytes_are_images),
	        cmocka_unit_test(test_numbers_become_floats),
	        cmocka_unit_test(test_headers_that_are_not_read),
	        cmocka_unit_test(test_files_that_do_not_fit),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
