/* SPDX-License-Identifier: MIT */
/* Files written are read back equal, files of others are read, and everything that the format
 * forbids is refused with a reason. */
#include "model/io/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/dunlin-safetensors-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/w.safetensors", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

/* A file in memory: header text, then n bytes 0, 1, 2, … Exactly sized, so that a sanitizer sees
 * the first byte read beyond it. */
static uint8_t *make_file(const char *header, size_t header_len, size_t n, size_t *len)
{
	*len = 8 + header_len + n;
	uint8_t *p = malloc(*len);
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)((uint64_t)header_len >> (8 * i));
	memcpy(p + 8, header, header_len);
	for (size_t i = 0; i < n; i++)
		p[8 + header_len + i] = (uint8_t)i;
	return p;
}

static void refuse_bytes(const uint8_t *p, size_t len, const char *text)
{
	struct st_file f;
	struct err e = {0};
	int rc = st_parse(&f, p, len, &e);
	if (!rc)
		fail_msg("accepted, but \"%s\" was expected", text);
	assert_int_equal(rc, e.code);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
	assert_null(f.tensors);
	assert_null(f.json);
}

static void refuse(const char *header, size_t data, const char *text)
{
	size_t len;
	uint8_t *p = make_file(header, strlen(header), data, &len);
	refuse_bytes(p, len, text);
	free(p);
}

static void accept(const char *header, size_t data, int n_tensors, int n_meta)
{
	size_t len;
	struct st_file f;
	struct err e = {0};
	uint8_t *p = make_file(header, strlen(header), data, &len);
	if (st_parse(&f, p, len, &e))
		fail_msg("%s: %s", header, e.msg);
	assert_int_equal(f.n_tensors, n_tensors);
	assert_int_equal(f.n_meta, n_meta);
	st_close(&f);
	free(p);
}

static void test_round_trip(void **state)
{
	(void)state;
	float w[6] = {1, -2, 3.5f, 4, 5, 6}, b[1] = {7};
	int64_t step = 1234567890123;
	uint8_t none = 0;
	const struct st_tensor t[] = {
	        {"conv1.weight", ST_F32, 4, {1, 2, 3, 1}, sizeof w, w},
	        {"scalar \"é\\", ST_F32, 0, {0}, sizeof b, b},
	        {"empty", ST_U8, 2, {0, 5}, 0, &none},
	        {"step", ST_I64, 1, {1}, sizeof step, &step},
	};
	const struct st_meta m[] = {{"model", "{\"a\":\n[1]}"}, {"format", "pt"}};
	struct st_file f;
	struct err e = {0};
	assert_int_equal(st_write(path, t, 4, m, 2, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	assert_int_equal(f.n_tensors, 4);
	for (int i = 0; i < 4; i++) {
		const struct st_tensor *r = st_find(&f, t[i].name);
		assert_non_null(r);
		assert_int_equal(r->dtype, t[i].dtype);
		assert_int_equal(r->rank, t[i].rank);
		assert_memory_equal(r->dim, t[i].dim, sizeof r->dim);
		assert_int_equal(r->bytes, t[i].bytes);
		assert_memory_equal(r->data, t[i].data, t[i].bytes);
	}
	assert_ptr_equal(st_find(&f, "conv1.weight"), f.tensors);
	assert_ptr_equal(st_find(&f, "step"), f.tensors + 3);
	assert_null(st_find(&f, "conv1"));
	assert_string_equal(st_meta(&f, "format"), "pt");
	assert_string_equal(st_meta(&f, "model"), "{\"a\":\n[1]}");
	assert_null(st_meta(&f, "none"));
	st_close(&f);
	assert_int_equal(st_write(path, NULL, 0, NULL, 0, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	assert_int_equal(f.n_tensors, 0);
	st_close(&f);
}

/* Whatever the header's length, the data begins on a 64-byte boundary. */
static void test_alignment(void **state)
{
	(void)state;
	char name[80] = "";
	for (size_t n = 1; n < 70; n++) {
		memset(name, 'a', n);
		struct st_tensor t = {name, ST_U8, 1, {1}, 1, "x"};
		struct st_file f;
		assert_int_equal(st_write(path, &t, 1, NULL, 0, NULL), 0);
		assert_int_equal(st_open(&f, path, NULL), 0);
		assert_string_equal(f.tensors[0].name, name);
		assert_int_equal(((const char *)f.tensors[0].data - (const char *)f.map) % 64, 0);
		st_close(&f);
	}
}

/* Every byte that a file lacks is noticed. */
static void test_truncated_anywhere(void **state)
{
	(void)state;
	const char *h = "{\"a\":{\"dtype\":\"I16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}  ";
	size_t len;
	uint8_t *whole = make_file(h, strlen(h), 12, &len);
	for (size_t n = 0; n < len; n++) {
		uint8_t *part = malloc(n + 1);
		memcpy(part, whole, n);
		refuse_bytes(part, n, "");
		FILE *f = fopen(path, "wb");
		assert_int_equal(fwrite(part, 1, n, f), n);
		fclose(f);
		struct st_file st;
		struct err e = {0};
		assert_true(st_open(&st, path, &e) < 0);
		assert_memory_equal(e.msg, path, strlen(path));
		free(part);
	}
	free(whole);
}

#define A(from, to) "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"
#define B(from, to) "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"
#define ONE(dtype, shape, offsets) \
	"{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_accepts(void **state)
{
	(void)state;
	accept("{}", 0, 0, 0);
	accept("{}      ", 0, 0, 0);
	accept("{ " A("0", "2") " , \n" B("2", "4") " }", 4, 2, 0);
	accept("{" B("2", "4") "," A("0", "2") "}", 4, 2, 0);
	accept("{\"__metadata__\":{}," A("0", "2") "}", 2, 1, 0);
	accept("{\"__metadata__\":{\"k\":\"\\u00e9\\n\\ud83d\\ude00\x7f\"}," A("0", "2") "}", 2, 1,
	        1);
	accept(ONE("\"F64\"", "[]", "[0,8]"), 8, 1, 0);
	accept(ONE("\"BF16\"", "[1,1,1,1,1,1,1,3]", "[0,6]"), 6, 1, 0);
	accept(ONE("\"BOOL\"", "[4,0]", "[0,0]"), 0, 1, 0);
}

static void test_tiling(void **state)
{
	(void)state;
	refuse("{" A("0", "2") "," B("3", "5") "}", 5, "hole");
	refuse("{" A("0", "2") "," B("1", "3") "}", 3, "overlap");
	refuse("{" A("0", "2") "," B("0", "2") "}", 2, "overlap");
	refuse("{" A("1", "3") "}", 3, "hole");
	refuse("{" A("0", "2") "}", 3, "1 bytes after the last tensor");
	refuse("{}", 3, "3 bytes after");
	refuse("{" A("0", "2") "," B("2", "4") "}", 3, "tensor b: bytes 2 to 4 of 3");
	refuse("{" A("2", "0") "}", 2, "bytes 2 to 0");
	refuse("{" A("0", "2") "," A("2", "4") "}", 4, "tensor a twice");
	refuse("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "\"k\" twice");
	refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
}

static void test_bad_tensors(void **state)
{
	(void)state;
	refuse(ONE("\"F32\"", "[2]", "[0,4]"), 4,
	        "tensor w: 4 bytes, but its shape and dtype need 8");
	refuse(ONE("\"U8\"", "[2]", "[0,3]"), 3,
	        "tensor w: 3 bytes, but its shape and dtype need 2");
	refuse(ONE("\"F8_E4M3\"", "[2]", "[0,2]"), 2, "tensor w: unknown dtype \"F8_E4M3\"");
	refuse(ONE("\"\\u001b[31m\"", "[2]", "[0,2]"), 2, "unknown dtype \"(unprintable)\"");
	refuse(ONE("7", "[2]", "[0,2]"), 2, "dtype");
	refuse(ONE("\"U8\"", "2", "[0,2]"), 2, "shape");
	refuse(ONE("\"U8\"", "[-2]", "[0,2]"), 2, "dimension");
	refuse(ONE("\"U8\"", "[2.5]", "[0,2]"), 2, "dimension");
	refuse(ONE("\"U8\"", "[\"2\"]", "[0,2]"), 2, "dimension");
	refuse(ONE("\"U8\"", "[1e999]", "[0,2]"), 2, "dimension");
	refuse(ONE("\"U8\"", "[9007199254740992]", "[0,2]"), 2, "dimension");
	refuse(ONE("\"U8\"", "[1,1,1,1,1,1,1,1,2]", "[0,2]"), 2, "more than 8 dimensions");
	/* 2^52 × 2^12 × 4 wraps to 0 bytes if nobody looks. */
	refuse(ONE("\"F32\"", "[4503599627370496,4096]", "[0,0]"), 0, "2^64");
	refuse(ONE("\"U8\"", "[2]", "[0]"), 2, "data_offsets");
	refuse(ONE("\"U8\"", "[2]", "[0,2,2]"), 2, "data_offsets");
	refuse(ONE("\"U8\"", "[2]", "[0,\"2\"]"), 2, "data_offsets");
	refuse(ONE("\"U8\"", "[2]", "[0,9007199254740991]"), 2, "truncated or damaged");
	refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "data_offsets");
	refuse("{\"w\":{\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "dtype");
	refuse("{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "twice");
	refuse("{\"w\":{\"extra\":1}}", 0, "unknown key \"extra\"");
	refuse("{\"w\":[1]}", 0, "tensor w: no object");
	refuse("{\"w\":null}", 0, "tensor w");
	refuse("{\"a\\u001bb\":{}}", 0, "control characters");
	refuse("{\"__metadata__\":[]}", 0, "__metadata__");
	refuse("{\"__metadata__\":{\"k\":1}}", 0, "\"k\"");
}

static void test_bad_headers(void **state)
{
	(void)state;
	refuse("", 0, "no JSON object");
	refuse(" {}", 0, "no JSON object");
	refuse("[]", 0, "no JSON object");
	refuse("{", 0, "ends in the middle");
	refuse("{\"a", 0, "string");
	refuse("{\"a\\\"", 0, "string");
	refuse("{]", 0, "not valid JSON");
	refuse("{\"a\":}", 0, "not valid JSON");
	refuse("{\"a\":1,}", 0, "not valid JSON");
	refuse("{} {}", 0, "goes on after");
	refuse("{}\n", 0, "goes on after");
	refuse("{\"a\":[[[1]]]}", 0, "nested deeper");
	refuse("{\"a\\u0000b\":1}", 0, "string");
	refuse("{\"a\nb\":1}", 0, "string");
	refuse("{\"\xff\":1}", 0, "UTF-8");
	refuse("{\"\xc0\xaf\":1}", 0, "UTF-8");
	refuse("{\"\xed\xa0\x80\":1}", 0, "UTF-8");
	refuse("{\"\xf4\x90\x80\x80\":1}", 0, "UTF-8");
	refuse("{\"\xe2\x82\":1}", 0, "UTF-8");
	refuse("{\x01}", 0, "byte 0x01");
	refuse("{\xc2\xa0}", 0, "byte 0xc2");
	size_t len;
	uint8_t *p = make_file("{\0}", 3, 0, &len);
	refuse_bytes(p, len, "byte 0x00");
	p[7] = 0x80;
	refuse_bytes(p, len, "over the limit");
	memset(p, 0, 8);
	p[0] = 4;
	refuse_bytes(p, len, "truncated: the header needs 4 bytes, 3 follow");
	free(p);
}

/* Nesting as deep as the limit on bytes allows must not exhaust the stack, nor commas memory. */
static void test_hostile_size(void **state)
{
	(void)state;
	size_t n = LIMIT_SAFETENSORS_HEADER, len;
	char *h = malloc(n);
	memset(h, '[', n);
	h[0] = '{';
	uint8_t *p = make_file(h, n, 0, &len);
	refuse_bytes(p, len, "nested deeper");
	free(p);
	memset(h, ',', n);
	memcpy(h, "{\"a\":[", 6);
	h[n - 2] = ']';
	h[n - 1] = '}';
	p = make_file(h, n, 0, &len);
	refuse_bytes(p, len, "too many");
	free(p);
	free(h);
}

static void test_bad_paths(void **state)
{
	(void)state;
	struct st_file f;
	struct err e;
	assert_int_equal(st_open(&f, "/nonexistent/w", &e), ERR_IO);
	assert_string_equal(e.msg, "/nonexistent/w: open: No such file or directory");
	assert_int_equal(st_open(&f, folder, &e), ERR_IO);
	assert_non_null(strstr(e.msg, "not a regular file"));
	assert_true(st_write("/nonexistent/w", NULL, 0, NULL, 0, &e) < 0);
	assert_non_null(strstr(e.msg, "/nonexistent/w"));
}

/* Every half and bfloat16 there is, against their definitions. */
static void test_sixteen_bits(void **state)
{
	(void)state;
	static uint16_t raw[65536];
	static const struct st_tensor t[] = {{"half", ST_F16, 2, {256, 256}, sizeof raw, raw},
	        {"bf16", ST_BF16, 1, {65536}, sizeof raw, raw}};
	struct st_file f;
	struct err e;
	for (unsigned i = 0; i < 65536; i++)
		raw[i] = (uint16_t)i;
	assert_int_equal(st_write(path, t, 2, NULL, 0, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	assert_int_equal(st_widen(&f, &e), 0);
	for (int k = 0; k < 2; k++) {
		const struct st_tensor *w = st_find(&f, t[k].name);
		const int bits = k ? 7 : 10, bias = k ? 127 : 15, top = 2 * bias + 1;
		assert_true(w->dtype == ST_F32 && w->bytes == 65536 * 4 && w->rank == t[k].rank);
		for (unsigned i = 0; i < 65536; i++) {
			const int exponent = (int)(i & 0x7fff) >> bits;
			const double m = (double)(i & ((1u << bits) - 1)), one = ldexp(1, bits);
			double want = exponent ? ldexp(one + m, exponent - bias - bits)
			                       : ldexp(m, 1 - bias - bits);
			float got;
			memcpy(&got, (const char *)w->data + 4 * i, 4);
			if (exponent == top && m > 0) {
				assert_true(isnan(got));
				continue;
			}
			want = exponent == top ? (double)INFINITY : want;
			assert_true((double)got == (i >> 15 ? -want : want) &&
			            (signbit(got) != 0) == (i >> 15));
		}
	}
	st_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_alignment),
	        cmocka_unit_test(test_sixteen_bits),
	        cmocka_unit_test(test_truncated_anywhere),
	        cmocka_unit_test(test_accepts),
	        cmocka_unit_test(test_tiling),
	        cmocka_unit_test(test_bad_tensors),
	        cmocka_unit_test(test_bad_headers),
	        cmocka_unit_test(test_hostile_size),
	        cmocka_unit_test(test_bad_paths),
	};
	return cmocka_run_group_tests_name("safetensors", tests, make_folder, remove_folder);
}
