/* SPDX-License-Identifier: MIT */
/* Allow- and block-lists from text and files; and that the table of limits has every limit. */
#include "agent/base/buf.h"
#include "net/transport/lists.h"
#include "tests/support.h"

#define ID_A "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
#define ID_B "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"

static struct peer_id id(const char *hex)
{
	struct peer_id x;
	for (int i = 0; i < 32; i++) {
		unsigned byte;
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		x.bytes[i] = (uint8_t)byte;
	}
	return x;
}

static void test_parse(void **state)
{
	static const char text[] =
	        "# the lab\n\n  " ID_B "\t# heron\r\n" ID_A "\n" ID_B
	        "\n8A88E3DD7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5d";
	struct id_list l;
	struct err e;
	struct peer_id a = id(ID_A), b = id(ID_B), c = b, d = b;
	(void)state;
	c.bytes[31] = 0x5d;
	d.bytes[0] = 0;
	assert_int_equal(id_list_parse(&l, text, sizeof text - 1, &e), 0);
	assert_int_equal(l.n, 3);
	assert_true(id_list_has(&l, &a) && id_list_has(&l, &b) && id_list_has(&l, &c));
	assert_false(id_list_has(&l, &d));
	id_list_close(&l);
	assert_int_equal(id_list_parse(&l, "", 0, &e), 0);
	assert_int_equal(l.n, 0);
	assert_false(id_list_has(&l, &a));
}

static void wrong(const char *text, size_t len, int code, const char *words)
{
	struct id_list l;
	struct err e = {0};
	int rc = id_list_parse(&l, text, len, &e);
	if (rc != code || !strstr(e.msg, words))
		fail_msg("%d \"%s\", not \"…%s…\"", rc, e.msg, words);
	assert_null(l.id);
	assert_int_equal(l.n, 0);
}

static void test_wrong_lines(void **state)
{
	static char cut[] = "#\n#\n" ID_A;
	size_t full = sizeof cut - 1;
	(void)state;
	wrong(cut, full - 1, ERR_FORMAT, "line 3: an id has 64 digits, this has 63");
	wrong(ID_A "0", 65, ERR_FORMAT, "line 1: an id has 64 digits, this has 65");
	wrong(ID_A "\n\nheron\n", 72, ERR_FORMAT, "line 3: an id has only the digits");
	wrong(ID_A " " ID_B, 129, ERR_FORMAT, "line 1: an id has only the digits");
	wrong("\0\0", 2, ERR_FORMAT, "line 1");

	size_t n = LIST_IDS_MAX + 1, each = sizeof ID_A;
	char *many = malloc(n * each);
	struct id_list l;
	struct err e;
	assert_non_null(many);
	for (size_t i = 0; i < n; i++)
		memcpy(many + i * each, ID_A "\n", each);
	wrong(many, n * each, ERR_LIMIT, "line 65537: more than 65536 ids");
	assert_int_equal(id_list_parse(&l, many, (n - 1) * each, &e), 0);
	assert_int_equal(l.n, 1);
	id_list_close(&l);
	free(many);
}

static void test_files(void **state)
{
	char allow[300], block[300];
	struct lists l;
	struct err e = {0};
	struct peer_id a = id(ID_A), b = id(ID_B);
	snprintf(allow, sizeof allow, "%s/allow", (char *)*state);
	snprintf(block, sizeof block, "%s/block", (char *)*state);
	lists_init(&l);
	assert_true(lists_permit(&l, &a));
	assert_int_equal(lists_load(&l, NULL, NULL, &e), 0);
	assert_true(lists_permit(&l, &a));

	write_file(block, ID_A "\n", 65);
	assert_int_equal(lists_load(&l, NULL, block, &e), 0);
	assert_false(lists_permit(&l, &a));
	assert_true(lists_permit(&l, &b));
	write_file(allow, ID_A "\n" ID_B "\n", 130);
	assert_int_equal(lists_load(&l, allow, block, &e), 0);
	assert_false(lists_permit(&l, &a)); /* the block-list has the last word */
	assert_true(lists_permit(&l, &b));

	/* A wrong file, either of the two, changes neither list. */
	write_file(allow, "", 0);
	write_file(block, ID_B "\nx\n", 67);
	assert_int_equal(lists_load(&l, allow, block, &e), ERR_FORMAT);
	assert_non_null(strstr(e.msg, block));
	assert_non_null(strstr(e.msg, "line 2"));
	assert_true(lists_permit(&l, &b));
	assert_false(lists_permit(&l, &a));
	write_file(block, ID_B "\n", 65);
	write_file(allow, "y", 1);
	assert_true(lists_load(&l, allow, block, &e) < 0);
	assert_true(lists_permit(&l, &b));
	assert_true(lists_load(&l, "/nonexistent/list", NULL, &e) < 0);
	assert_non_null(strstr(e.msg, "/nonexistent/list"));
	assert_true(lists_permit(&l, &b));

	write_file(allow, "# nobody\n", 9);
	assert_int_equal(lists_load(&l, allow, NULL, &e), 0);
	assert_false(lists_permit(&l, &a));
	assert_false(lists_permit(&l, &b));
	lists_close(&l);
	assert_true(lists_permit(&l, &a));
}

static bool in_table(const char *name, size_t len)
{
	for (int i = 0; i < limit_count; i++)
		if (strlen(limit_list[i].name) == len && !memcmp(limit_list[i].name, name, len))
			return true;
	return false;
}

/* Every `#define NAME value` of a header of limits. */
static int check_header(const char *path)
{
	const char *srcdir = getenv("srcdir");
	char full[512], name[64];
	struct buf text;
	struct err e;
	int n = 0;
	snprintf(full, sizeof full, "%s/%s", srcdir ? srcdir : ".", path);
	buf_init(&text, 1 << 20);
	if (file_read(&text, full, &e) != 0)
		fail_msg("%s", e.msg);
	for (const char *at = text.data; (at = strstr(at, "\n#define ")); n++) {
		at += 9;
		size_t len = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
		snprintf(name, sizeof name, "%.*s", (int)len, at);
		bool guard = len > 2 && memcmp(at + len - 2, "_H", 2) == 0;
		if (at[len] == '(' || guard || strcmp(name, "X") == 0)
			continue;
		if (!in_table(at, len))
			fail_msg("%s: %s is not in the table of net/limits.c", path, name);
	}
	buf_close(&text);
	return n;
}

static void test_every_limit_is_shown(void **state)
{
	(void)state;
	assert_true(check_header("agent/base/limits.h") > 10);
	assert_true(check_header("gossip/limits.h") > 10);
	assert_true(check_header("net/limits.h") > 5);
	for (int i = 0; i < limit_count; i++) {
		assert_true(limit_list[i].value > 0);
		assert_true(strlen(limit_list[i].meaning) > 3);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(limit_list[i].name, limit_list[k].name);
	}
	assert_true(in_table("BUDGET_SLOTS", 12));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_parse),
	        cmocka_unit_test(test_wrong_lines),
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_every_limit_is_shown),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
