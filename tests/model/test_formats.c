/* SPDX-License-Identifier: MIT */
/* Folders of CIFAR files that are right, and every way in which they can be wrong; channels that
 * are normalised and moved each by itself. */
#include "model/data/augment.h"
#include "model/data/cifar.h"
#include "tests/model/data_folder.h"

#include <math.h>

#define IMAGE 3072

/* n samples: pixel k of sample i is (first + i + 7 k) mod 251, the label i mod 10 or 100. */
static size_t records(uint8_t *out, int n, int first, int classes)
{
	uint8_t *p = out;
	for (int i = 0; i < n; i++) {
		if (classes == 100)
			*p++ = (uint8_t)(i % 20);
		*p++ = (uint8_t)((first + i) % classes);
		for (int k = 0; k < IMAGE; k++)
			*p++ = (uint8_t)((first + i + 7 * k) % 251);
	}
	return (size_t)(p - out);
}

static uint8_t room[8 * (IMAGE + 2)];

static void test_cifar10(void **state)
{
	(void)state;
	struct dataset d;
	struct err e = {0};
	put("data_batch_1.bin", room, records(room, 3, 0, 10));
	put("data_batch_2.bin", room, records(room, 2, 3, 10));
	put("test_batch.bin", room, records(room, 4, 5, 10));
	assert_int_equal(dataset_read(&d, 0, folder, DATA_TRAIN, 0, 0, &e), 0);
	assert_int_equal(d.count, 5);
	assert_int_equal(d.classes, 10);
	assert_true(d.per_channel);
	assert_true(d.shape.dim[0] == 32 && d.shape.dim[1] == 32 && d.shape.dim[2] == 3);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(d.labels[i], i);
		for (int k = 0; k < 1024; k++)
			for (int c = 0; c < 3; c++)
				assert_int_equal(d.pixels[i * IMAGE + 3 * k + c],
				        (i + 7 * (1024 * c + k)) % 251);
	}
	dataset_close(&d);
	assert_int_equal(dataset_read(&d, 2, folder, DATA_TEST, 12, 0, &e), 0);
	assert_int_equal(d.count, 4);
	assert_int_equal(d.classes, 12);
	dataset_close(&d);
	clear_folder();
}

static void test_cifar100(void **state)
{
	(void)state;
	struct dataset d;
	struct err e = {0};
	put("train.bin", room, records(room, 4, 60, 100));
	assert_int_equal(dataset_read(&d, 0, folder, DATA_TRAIN, 0, 0, &e), 0);
	assert_int_equal(d.classes, 100);
	assert_int_equal(d.labels[3], 63);
	assert_int_equal(d.pixels[0], 60);
	dataset_close(&d);
	expect_error(0, DATA_TEST, 0, ERR_NOTFOUND, "test.bin");
	expect_error(0, DATA_TRAIN, 50, ERR_INVALID, "label 60 of sample 0");
	put("data_batch_1.bin", room, records(room, 1, 0, 10));
	expect_error(0, DATA_TRAIN, 0, ERR_INVALID, "two folders");
	clear_folder();
}

static void test_damaged_cifar(void **state)
{
	(void)state;
	size_t n = records(room, 2, 0, 10);
	expect_error(0, DATA_TRAIN, 0, ERR_FORMAT, "no data of a known format");
	put("data_batch_1", room, n);
	expect_error(2, DATA_TRAIN, 0, ERR_NOTFOUND, "take the binary version");
	put("data_batch_1.bin", room, n - 1);
	expect_error(0, DATA_TRAIN, 0, ERR_FORMAT, "after 1 of them 3072 bytes are left");
	put("data_batch_1.bin", room, 0);
	expect_error(0, DATA_TRAIN, 0, ERR_FORMAT, "empty");
	room[IMAGE + 1] = 10;
	put("data_batch_1.bin", room, n);
	expect_error(0, DATA_TRAIN, 0, ERR_FORMAT, "data_batch_1.bin: label 10 of sample 1");
	records(room, 2, 0, 10);
	put("data_batch_1.bin", room, n);
	put("data_batch_3.bin", room, n);
	expect_error(0, DATA_TRAIN, 0, ERR_MISMATCH, "data_batch_2.bin is missing");
	clear_folder();
	n = records(room, 2, 0, 100);
	room[0] = 20;
	put("train.bin", room, n);
	expect_error(0, DATA_TRAIN, 0, ERR_FORMAT, "label 20 of sample 0");
	clear_folder();
}

static void test_channels_have_their_own_statistics(void **state)
{
	(void)state;
	uint8_t pixels[] = {0, 51, 255, 51, 0, 51, 255, 51};
	struct dataset d = {
	        .shape = {3, {1, 2, 2}}, .count = 2, .pixels = pixels, .per_channel = true};
	struct normalisation norm;
	dataset_statistics(&d, (uint32_t[]){0, 1}, 2, &norm);
	assert_int_equal(norm.n, 2);
	assert_true(norm.mean[0] == 0.5 && norm.std[0] == 0.5);
	assert_true(fabs(norm.mean[1] - 0.2) < 1e-12 && norm.std[1] == 1);
}

/* Tables that are alike give what one table gives, moved or not. */
static void test_channels_move_as_one(void **state)
{
	(void)state;
	uint8_t pixels[5 * 6 * 3];
	int32_t label = 0;
	uint32_t index = 0;
	for (size_t i = 0; i < sizeof pixels; i++)
		pixels[i] = (uint8_t)(1 + i * 11 % 255);
	struct dataset d = {
	        .shape = {3, {5, 6, 3}}, .count = 1, .pixels = pixels, .labels = &label};
	struct loader_config one = {.data = &d,
	        .index = &index,
	        .n_index = 1,
	        .batch = 1,
	        .augment = {.flip = true, .shift = 2},
	        .norm = {1, {0.3}, {0.5}},
	        .shuffle = true};
	for (int scale = 0; scale < 2; scale++) {
		struct loader *a, *b;
		one.augment.scale = scale * 0.3;
		struct loader_config three = one;
		three.norm = (struct normalisation){3, {0.3, 0.3, 0.3}, {0.5, 0.5, 0.5}};
		assert_int_equal(loader_new(&a, &one, (struct loader_position){0}, NULL), 0);
		assert_int_equal(loader_new(&b, &three, (struct loader_position){0}, NULL), 0);
		for (int i = 0; i < 50; i++) {
			const struct batch *x = loader_next(a), *y = loader_next(b);
			for (size_t k = 0; k < sizeof pixels; k++)
				assert_true(fabsf(x->x[k] - y->x[k]) < 1e-5f);
		}
		loader_free(a);
		loader_free(b);
	}
}

static void test_each_channel_has_its_table(void **state)
{
	(void)state;
	uint8_t pixels[] = {0, 255, 255, 0};
	int32_t label = 0;
	uint32_t index = 0;
	struct err e = {0};
	struct dataset d = {
	        .shape = {3, {2, 1, 2}}, .count = 1, .pixels = pixels, .labels = &label};
	struct loader_config c = {.data = &d,
	        .index = &index,
	        .n_index = 1,
	        .batch = 1,
	        .norm = {2, {0.5, 0}, {0.5, 2}}};
	struct loader *l;
	assert_int_equal(loader_new(&l, &c, (struct loader_position){0}, NULL), 0);
	assert_memory_equal(loader_next(l)->x, ((float[]){-1, 0.5f, 1, 0}), 4 * sizeof(float));
	loader_free(l);
	c.norm.n = 3;
	assert_int_equal(loader_new(&l, &c, (struct loader_position){0}, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "normalised for 3 channels"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cifar10),
	        cmocka_unit_test(test_cifar100),
	        cmocka_unit_test(test_damaged_cifar),
	        cmocka_unit_test(test_channels_have_their_own_statistics),
	        cmocka_unit_test(test_channels_move_as_one),
	        cmocka_unit_test(test_each_channel_has_its_table),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
