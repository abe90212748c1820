/* SPDX-License-Identifier: MIT */
/* Files of tokens that are right, and every way in which they can be wrong; which windows an epoch
 * has, and that parts of the data stay apart. */
#include "model/data/tokens.h"

#include "model/data/format.h"
#include "tests/model/data_folder.h"

#include <stdbool.h>
#include <sys/stat.h>

#define T 4

static int format_of(const char *name)
{
	int i = 0;
	while (data_format_names[i] && strcmp(data_format_names[i], name) != 0)
		i++;
	assert_non_null(data_format_names[i]);
	return i;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint8_t room[TOKENS_HEADER_BYTES + 4096];

/* A shard of llm.c with n tokens first, first + 1, …; returns its bytes. */
static size_t shard(uint32_t magic, uint32_t version, uint32_t n, uint32_t first)
{
	const size_t width = magic == 20240801 ? 4 : 2;
	memset(room, 0, sizeof room);
	put32(room, magic);
	put32(room + 4, version);
	put32(room + 8, n);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t four[4];
		put32(four, first + i);
		memcpy(room + TOKENS_HEADER_BYTES + i * width, four, width);
	}
	return TOKENS_HEADER_BYTES + n * width;
}

static void open_set(struct dataset *d, const char *format, enum data_part part, int64_t classes)
{
	struct err e = {0};
	if (dataset_read(d, format_of(format), folder, part, classes, T, &e) != 0)
		fail_msg("%s", e.msg);
	assert_non_null(d->tokens);
	assert_true(d->shape.rank == 1 && d->shape.dim[0] == T);
}

static void expect(struct dataset *d, uint32_t i, uint64_t shift, int32_t first)
{
	int32_t x[T], y[T];
	uint8_t scratch[T * TOKENS_WIDTH_MAX];
	struct err e = {0};
	assert_int_equal(tokens_read(d, i, shift, scratch, x, y, &e), 0);
	for (int k = 0; k < T; k++) {
		assert_int_equal(x[k], first + k);
		assert_int_equal(y[k], first + k + 1);
	}
}

static void refuse(
        const char *format, enum data_part part, int64_t classes, int code, const char *text)
{
	struct dataset d;
	struct err e = {0};
	assert_int_equal(dataset_read(&d, format_of(format), folder, part, classes, T, &e), code);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
	assert_null(d.tokens);
}

/* Files in the order of their names; windows of one file alone, wherever they begin. */
static void shards_of_llm_c(void **state)
{
	struct dataset d;
	(void)state;
	put("x_train_10.bin", room, shard(20240520, 1, 12, 500));
	put("x_train_2.bin", room, shard(20240520, 1, 15, 1000));
	put("x_train_1.bin", room, shard(20240520, 1, 8, 200));
	put("x_val_0.bin", room, shard(20240520, 1, 9, 100));
	put("notes.txt", "no", 2);
	open_set(&d, "auto", DATA_TRAIN, 0);
	assert_int_equal(d.classes, 50257);
	assert_int_equal(d.count, 1 + 2 + 2); /* (8 - 4)/4, (12 - 4)/4, (15 - 4)/4 */
	expect(&d, 0, 0, 200);
	expect(&d, 1, 0, 500);
	expect(&d, 2, 3, 507);
	expect(&d, 3, 0, 1000);
	expect(&d, 4, 3, 1007);
	dataset_close(&d);
	open_set(&d, "tokens", DATA_TEST, 0);
	assert_int_equal(d.count, 1);
	expect(&d, 0, 0, 100);
	dataset_close(&d);
	clear_folder();
	put("llama.bin", room, shard(20240801, 7, 40, 100000));
	open_set(&d, "auto", DATA_TRAIN, 0);
	assert_int_equal(d.classes, 128256);
	assert_int_equal(d.count, 8); /* 36 tokens: the last tenth is for testing */
	expect(&d, 7, 3, 100031);
	dataset_close(&d);
	clear_folder();
}

static void files_without_a_header(void **state)
{
	struct dataset d;
	(void)state;
	size_t n = shard(20240520, 1, 100, 7);
	put("a.bin", room + TOKENS_HEADER_BYTES, n - TOKENS_HEADER_BYTES);
	refuse("auto", DATA_TRAIN, 0, ERR_FORMAT, "no data of a known format");
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "too short for the header");
	refuse("tokens16", DATA_TRAIN, 0, ERR_INVALID, "set data.classes");
	open_set(&d, "tokens16", DATA_TRAIN, 300);
	assert_int_equal(d.count, 21); /* (90 - 4)/4 */
	expect(&d, 20, 2, 7 + 82);
	dataset_close(&d);
	open_set(&d, "tokens16", DATA_TEST, 300);
	assert_int_equal(d.count, 1);
	expect(&d, 0, 0, 7 + 90);
	dataset_close(&d);
	n = shard(20240801, 1, 20, 70000);
	put("a.bin", room + TOKENS_HEADER_BYTES, n - TOKENS_HEADER_BYTES);
	open_set(&d, "tokens32", DATA_TRAIN, 80000);
	expect(&d, 1, 0, 70004);
	dataset_close(&d);
	clear_folder();
}

static void text_as_bytes(void **state)
{
	static const char abc[] = "ABCDEFGHIJKLMNOPQRST";
	struct dataset d;
	struct err e = {0};
	char path[128];
	(void)state;
	put("b.txt", abc, 20);
	snprintf(path, sizeof path, "%s/b.txt", folder);
	assert_int_equal(dataset_read(&d, 0, path, DATA_TRAIN, 0, T, &e), 0);
	assert_int_equal(d.classes, 256);
	assert_int_equal(d.count, 3); /* of 18 bytes */
	expect(&d, 2, 1, 'A' + 9);
	dataset_close(&d);
	assert_int_equal(dataset_read(&d, 0, path, DATA_TEST, 0, T, &e), ERR_NOTFOUND);
	/* A folder: only whole words make a test set. */
	put("a-latest.md", abc + 10, 10);
	put("test.txt", abc, 9);
	open_set(&d, "bytes", DATA_TRAIN, 0);
	assert_int_equal(d.count, 1 + 4);
	expect(&d, 0, 0, 'A' + 10);
	expect(&d, 1, 0, 'A');
	dataset_close(&d);
	open_set(&d, "bytes", DATA_TEST, 0);
	assert_int_equal(d.count, 1);
	dataset_close(&d);
	clear_folder();
}

/* Names that CIFAR-100 has, too. */
static void train_bin_may_be_tokens(void **state)
{
	static const char hint[] = "--data-format tokens16";
	struct dataset d;
	(void)state;
	put("train.bin", room, shard(20240520, 1, 40, 700));
	put("test.bin", room, shard(20240520, 1, 12, 0));
	open_set(&d, "auto", DATA_TRAIN, 0);
	assert_int_equal(d.classes, 50257);
	expect(&d, 0, 0, 700);
	dataset_close(&d);
	const size_t n = shard(20240520, 1, 1537, 700); /* as large as a sample of CIFAR-100 */
	put("train.bin", room + TOKENS_HEADER_BYTES, n - TOKENS_HEADER_BYTES - 2);
	put("test.bin", room + TOKENS_HEADER_BYTES, n - TOKENS_HEADER_BYTES);
	refuse("auto", DATA_TRAIN, 0, ERR_FORMAT, hint);
	refuse("auto", DATA_TEST, 0, ERR_FORMAT, hint);
	clear_folder();
}

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Both parts of files that each have a part in have one descriptor for each file. */
static void parts_share_their_files(void **state)
{
	const int before = open_files(), format = format_of("tokens");
	struct dataset train, test;
	struct err e = {0};
	(void)state;
	put("a.bin", room, shard(20240520, 1, 100, 0));
	put("b.bin", room, shard(20240520, 1, 200, 1000));
	open_set(&train, "tokens", DATA_TRAIN, 0);
	assert_int_equal(
	        dataset_read_beside(&test, &train, format, folder, DATA_TEST, 0, T, &e), 0);
	assert_int_equal(open_files(), before + 2);
	assert_int_equal(dataset_files(&train), 2);
	assert_int_equal(dataset_files(&test), 0);
	expect(&train, 0, 0, 0);
	expect(&test, 0, 0, 90);
	expect(&test, 1, 0, 1180); /* (10 - 4)/4 is 1 */
	dataset_close(&test);
	expect(&train, 0, 0, 0);
	/* Another file under that name, and files of the test set alone, are opened. */
	put("c.bin", room, shard(20240520, 1, 100, 0));
	char from[128], to[128];
	snprintf(from, sizeof from, "%s/c.bin", folder);
	snprintf(to, sizeof to, "%s/b.bin", folder);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(
	        dataset_read_beside(&test, &train, format, folder, DATA_TEST, 0, T, &e), 0);
	assert_int_equal(dataset_files(&test), 1);
	expect(&test, 1, 0, 90);
	dataset_close(&test);
	put("a_test.bin", room, shard(20240520, 1, 100, 7));
	assert_int_equal(
	        dataset_read_beside(&test, &train, format, folder, DATA_TEST, 0, T, &e), 0);
	assert_int_equal(dataset_files(&test), 1);
	expect(&test, 0, 0, 7);
	dataset_close(&test);
	dataset_close(&train);
	assert_int_equal(open_files(), before);
	clear_folder();
}

static void damaged_files(void **state)
{
	static const uint32_t magic = 20240520;
	(void)state;
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "no file of tokens to train on");
	size_t n = shard(magic, 1, 20, 0);
	put("s.bin", room, 1000);
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "s.bin: 1000 bytes: too short");
	put("s.bin", room, n - 1);
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "truncated: its header says 20 tokens");
	put("s.bin", room, n + 2);
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "bytes behind its end");
	put("s.bin", room, n);
	refuse("tokens", DATA_TRAIN, 10, ERR_FORMAT,
	        "s.bin: token 10 (counted from 0), at byte 1044, is 10: the vocabulary");
	refuse("tokens", DATA_TEST, 0, ERR_NOTFOUND, "too short");
	put("t.bin", room, shard(20240801, 1, 20, 0));
	refuse("tokens", DATA_TRAIN, 0, ERR_MISMATCH, "another tokenizer");
	clear_folder();
	put("s.bin", room, shard(20240521, 1, 20, 0));
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "magic number 20240521");
	put("s.bin", room, shard(magic, 7, 20, 0));
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "version 7");
	put("s.bin", room, shard(magic, 1, 20, 0));
	put32(room + 8, 1u << 31);
	put("s.bin", room, n);
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "-2147483648 tokens");
	put("s.bin", room, shard(magic, 1, 7, 0));
	refuse("tokens", DATA_TRAIN, 0, ERR_FORMAT, "smaller data.context");
	put("s.bin", "odd", 3);
	refuse("tokens16", DATA_TRAIN, 100, ERR_FORMAT, "not whole tokens of 2 bytes");
	refuse("tokens32", DATA_TRAIN, 100, ERR_FORMAT, "not whole tokens of 4 bytes");
	struct dataset d;
	struct err e = {0};
	assert_int_equal(
	        dataset_read(&d, 0, folder, DATA_TRAIN, 0, LIMIT_CONTEXT + 1, &e), ERR_FORMAT);
	assert_int_equal(
	        dataset_read(&d, format_of("bytes"), folder, DATA_TRAIN, 0, LIMIT_CONTEXT + 1, &e),
	        ERR_INVALID);
	assert_non_null(strstr(e.msg, "expected 1 to"));
	clear_folder();
}

static void open_pattern(struct dataset *d, const char *names, enum data_part part)
{
	struct err e = {0};
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, names);
	if (dataset_read(d, 0, path, part, 0, T, &e) != 0)
		fail_msg("%s", e.msg);
}

/* In the order of their names' bytes, whatever the locale; a file of such a name is no pattern. */
static void shards_by_a_pattern(void **state)
{
	struct dataset d;
	struct err e = {0};
	char path[128];
	(void)state;
	put("x_10.bin", room, shard(20240520, 1, 8, 100));
	put("x_2.bin", room, shard(20240520, 1, 8, 200));
	put("X_3.bin", room, shard(20240520, 1, 8, 300));
	put("x_val.bin", room, shard(20240520, 1, 8, 400));
	put("y_1.bin", "no shard", 8);
	open_pattern(&d, "[xX]_*.bin", DATA_TRAIN);
	assert_int_equal(d.count, 3);
	expect(&d, 0, 0, 300);
	expect(&d, 1, 0, 100);
	expect(&d, 2, 0, 200);
	dataset_close(&d);
	open_pattern(&d, "[xX]_*.bin", DATA_TEST);
	assert_int_equal(d.count, 1);
	expect(&d, 0, 0, 400);
	dataset_close(&d);
	put("z*.bin", room, shard(20240520, 1, 10, 500));
	put("z_.bin", room, shard(20240520, 1, 10, 600));
	open_pattern(&d, "z*.bin", DATA_TRAIN);
	assert_int_equal(d.count, 1);
	expect(&d, 0, 0, 500);
	dataset_close(&d);
	put("a.txt", "ABCDEFGHIJKL", 12);
	put("b.txt", "abcdefghijkl", 12);
	open_pattern(&d, "?.txt", DATA_TRAIN); /* bytes, by its end */
	assert_int_equal(d.count, 2);
	expect(&d, 1, 0, 'a');
	dataset_close(&d);
	snprintf(path, sizeof path, "%s/%s", folder, "w*.bin");
	for (int format = 0; format < 2; format++) {
		const char *name = format ? "tokens" : "auto";
		assert_int_equal(
		        dataset_read(&d, format_of(name), path, DATA_TRAIN, 0, T, &e), ERR_IO);
		assert_non_null(strstr(e.msg, "w*.bin: no file has a name like this"));
	}
	clear_folder();
}

/* More tokens than are looked at when a set is opened: damage is where a look at all finds it. */
static void large_files_are_checked_when_asked(void **state)
{
	enum { BYTES = (64 << 20) + 2 * 70000 };
	static const uint8_t wrong[2] = {255, 255};
	struct tokens_summary found;
	struct dataset d;
	struct err e = {0};
	char path[128];
	(void)state;
	memset(room, 0, sizeof room);
	put("a.bin", room, 800);
	put("b_test.bin", room, 800);
	put("c.bin", room, 0);
	snprintf(path, sizeof path, "%s/c.bin", folder);
	assert_int_equal(truncate(path, BYTES), 0); /* a hole: zeros */
	open_set(&d, "tokens16", DATA_TRAIN, 50000);
	assert_int_equal(dataset_check_tokens(&d, &found, &e), 0);
	assert_int_equal(found.files, 2);
	assert_int_equal(found.tokens, 400 + BYTES / 2);
	assert_int_equal(found.largest, 0);
	dataset_close(&d);
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, BYTES - 2, SEEK_SET), 0);
	assert_int_equal(fwrite(wrong, 1, 2, f), 2);
	assert_int_equal(fclose(f), 0);
	open_set(&d, "tokens16", DATA_TRAIN, 50000);
	assert_int_equal(dataset_check_tokens(&d, &found, &e), ERR_FORMAT);
	snprintf(path, sizeof path,
	        "c.bin: token %d (counted from 0), at byte %d, is 65535: the vocabulary has 50000",
	        BYTES / 2 - 1, BYTES - 2);
	assert_string_equal(e.msg, path);
	dataset_close(&d);
	open_set(&d, "tokens16", DATA_TRAIN, 65536);
	assert_int_equal(dataset_check_tokens(&d, &found, &e), 0);
	assert_int_equal(found.largest, 65535);
	dataset_close(&d);
	clear_folder();
}

/* Nobody waits for what another end of a pipe may write some day. */
static void a_pipe_is_no_file(void **state)
{
	char path[128];
	struct dataset d;
	struct err e = {0};
	(void)state;
	snprintf(path, sizeof path, "%s/pipe.bin", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	alarm(60); /* who waits is killed */
	refuse("auto", DATA_TRAIN, 0, ERR_FORMAT, "no data of a known format");
	refuse("tokens", DATA_TRAIN, 0, ERR_IO, "pipe.bin: not a regular file");
	assert_int_equal(dataset_read(&d, 0, path, DATA_TRAIN, 0, T, &e), ERR_FORMAT);
	alarm(0);
	clear_folder();
}

/* A file that changes while we train: an error in words, with either kind of loader. */
static void a_file_that_breaks_in_training(void **state)
{
	uint32_t index[24];
	char path[128];
	(void)state;
	for (uint32_t i = 0; i < 24; i++)
		index[i] = i;
	snprintf(path, sizeof path, "%s/s.bin", folder);
	for (int ahead = 0; ahead < 2; ahead++)
		for (int cut = 0; cut < 2; cut++) {
			struct dataset d;
			struct loader *l;
			struct err e = {0};
			const size_t n = shard(20240520, 1, 112, 0);
			put("s.bin", room, n);
			open_set(&d, "tokens", DATA_TRAIN, 0);
			assert_int_equal(d.count, 24);
			const struct loader_config c = {.data = &d,
			        .index = index,
			        .n_index = 24,
			        .batch = 1,
			        .norm = {.n = 1, .std = {1}},
			        .ahead = ahead};
			if (cut)
				assert_int_equal(truncate(path, (off_t)n - 100), 0);
			else
				put("s.bin", memset(room, 255, n), n);
			assert_int_equal(loader_new(&l, &c, (struct loader_position){0}, &e), 0);
			int given = 0;
			while (loader_next(l))
				given++;
			assert_int_equal(given, cut ? 15 : 0); /* 62 tokens are left */
			assert_null(loader_next(l));
			assert_int_equal(loader_failed(l, &e), ERR_FORMAT);
			assert_non_null(strstr(e.msg, cut ? "s.bin: it has become shorter"
			                                  : "s.bin: token 0 (counted from 0)"));
			loader_free(l);
			dataset_close(&d);
			clear_folder();
		}
}

/* Every window that a loader gives in an epoch begins o after a multiple of T, o is that of the
 * data's seed and the epoch, and does not depend on the order. */
static void an_epoch_moves_its_windows(void **state)
{
	enum { COUNT = 40, EPOCHS = 6 };
	uint32_t index[COUNT];
	uint64_t shift[2][EPOCHS];
	struct dataset d;
	struct err e = {0};
	(void)state;
	for (uint32_t i = 0; i < COUNT; i++)
		index[i] = i;
	put("t_train.bin", room, shard(20240520, 1, (COUNT + 1) * T + 3, 0));
	put("t_val.bin", room, shard(20240520, 1, 99, 0));
	open_set(&d, "tokens", DATA_TRAIN, 0);
	assert_int_equal(d.count, COUNT);
	for (int order = 0; order < 2; order++) {
		struct loader *l;
		const struct loader_config c = {.data = &d,
		        .index = index,
		        .n_index = COUNT,
		        .batch = COUNT,
		        .seed = 100 + (uint64_t)order,
		        .window_seed = 5,
		        .norm = {.n = 1, .std = {1}},
		        .shuffle = true,
		        .ahead = order};
		assert_int_equal(loader_new(&l, &c, (struct loader_position){0}, &e), 0);
		for (int epoch = 0; epoch < EPOCHS; epoch++) {
			const struct batch *b = loader_next(l);
			char seen[COUNT] = {0};
			assert_true(b && b->tokens && !b->x && !b->pixels);
			shift[order][epoch] = (uint64_t)b->tokens[0] % T;
			for (int64_t i = 0; i < b->count; i++) {
				const int32_t *x = b->tokens + i * T, *y = b->labels + i * T;
				assert_int_equal(x[0] % T, shift[order][epoch]);
				assert_int_equal(seen[x[0] / T]++, 0);
				for (int k = 0; k < T; k++)
					assert_true(x[k] == x[0] + k && y[k] == x[k] + 1);
			}
		}
		loader_free(l);
	}
	assert_memory_equal(shift[0], shift[1], sizeof shift[0]);
	bool moved = false;
	for (int i = 1; i < EPOCHS; i++)
		moved = moved || shift[0][i] != shift[0][0];
	assert_true(moved);
	dataset_close(&d);
	clear_folder();
}

/* No token of the samples that are held out is trained on, however far windows move. */
static void validation_is_apart(void **state)
{
	uint32_t *train, *val, n_train, n_val;
	struct dataset d;
	struct err e = {0};
	(void)state;
	put("t_train.bin", room, shard(20240520, 1, 11 * T, 0));
	put("t_val.bin", room, shard(20240520, 1, 99, 0));
	open_set(&d, "tokens", DATA_TRAIN, 0);
	const struct partition all = {.kind = PARTITION_ALL};
	assert_int_equal(data_split(&d, &all, 0.2, &train, &n_train, &val, &n_val, &e), 0);
	assert_int_equal(n_train, 7);
	assert_int_equal(n_val, 2);
	expect(&d, val[0], 0, 8 * T);
	expect(&d, val[1], 0, 9 * T);
	expect(&d, train[6], T - 1, 7 * T - 1); /* its last label is token 8 T - 1 */
	free(train);
	free(val);
	assert_int_equal(data_split(&d, &all, 0, &train, &n_train, &val, &n_val, &e), 0);
	assert_int_equal(n_train, 10);
	free(train);
	free(val);
	assert_int_equal(
	        data_split(&d, &all, 0.9, &train, &n_train, &val, &n_val, &e), ERR_INVALID);
	const struct partition label = {.kind = PARTITION_LABEL, .parts = 2, .alpha = 1};
	assert_int_equal(
	        data_split(&d, &label, 0, &train, &n_train, &val, &n_val, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "labels of tokens"));
	dataset_close(&d);
	clear_folder();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(shards_of_llm_c),
	        cmocka_unit_test(files_without_a_header),
	        cmocka_unit_test(text_as_bytes),
	        cmocka_unit_test(train_bin_may_be_tokens),
	        cmocka_unit_test(parts_share_their_files),
	        cmocka_unit_test(damaged_files),
	        cmocka_unit_test(shards_by_a_pattern),
	        cmocka_unit_test(large_files_are_checked_when_asked),
	        cmocka_unit_test(a_pipe_is_no_file),
	        cmocka_unit_test(a_file_that_breaks_in_training),
	        cmocka_unit_test(an_epoch_moves_its_windows),
	        cmocka_unit_test(validation_is_apart),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
