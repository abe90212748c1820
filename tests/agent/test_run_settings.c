/* SPDX-License-Identifier: MIT */
/* The settings of a run as they travel: only what all agents have alike, and to the letter. */
#include "agent/node/run_settings.h"
#include "tests/support.h"

#include "agent/base/textlist.h"
#include "agent/config/options.h"
#include "net/limits.h"

#include <sodium.h>
#include <string.h>

static const struct manifest manifest = {.run = 1,
        .model = 0x1122334455667788,
        .init = UINT64_MAX,
        .count = 4,
        .total = 5,
        .optimizer = 1,
        .mode = 2,
        .formats = 15,
        .outer = 1,
        .data = 9};

static void print(const struct config *c, struct buf *out)
{
	buf_init(out, SETTINGS_BYTES_MAX);
	assert_int_equal(run_settings_print(c, &manifest, out), 0);
}

static void read_config(struct config *c, const char *text)
{
	struct config_problems p;
	config_defaults(c);
	config_problems_init(&p, NULL);
	if (config_read(c, text, strlen(text), &p))
		fail_msg("%s", p.list[0].text);
}

static void set(struct config *c)
{
	read_config(c, "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", "
	               "\"units\": 10}]}, \"train\": {\"lr\": 0.013, \"epochs\": 3}, "
	               "\"data\": {\"path\": \"/secret/place\", \"augment\": {\"flip\": true}, "
	               "\"seed\": 8}, "
	               "\"run\": {\"init_from\": \"/w.safetensors\", \"threads\": 3}, "
	               "\"agent\": {\"keys\": [\"/k\"], \"name\": \"heron\"}, "
	               "\"gossip\": {\"run\": \"r \\u001b\", \"wire\": \"fp32\"}}");
}

static void test_what_travels(void **state)
{
	static const char *const no[] = {"data.path", "data.train_images", "data.test_labels",
	        "run.init_from", "agent.owner", "agent.keys", "agent.seeds", "run.threads",
	        "data.seed", "agent.name", "agent.invite", "run.device"};
	static const char *const yes[] = {"model", "train.lr", "train.epochs", "train.batch",
	        "data.format", "gossip.run", "gossip.wire", "data.partition.kind", "train.seed"};
	(void)state;
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		assert_false(run_settings_travels(setting_find(no[i])));
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		if (setting_find(yes[i]) >= 0)
			assert_true(run_settings_travels(setting_find(yes[i])));
	/* No path and no list does, whatever it is called. */
	for (int i = 0; i < n_settings; i++)
		if (run_settings_travels(i)) {
			const char *v = settings[i].value ? settings[i].value : "";
			assert_int_not_equal(settings[i].type, SET_LIST);
			assert_true(strcmp(v, "FILE") && strcmp(v, "DIR") && strcmp(v, "PATH"));
		}
}

static void test_round_trip(void **state)
{
	struct config c, theirs, mine;
	struct manifest m;
	struct buf bytes, again;
	struct err e;
	bool given[CONFIG_SETTINGS_MAX] = {false};
	uint8_t h[2][RUN_SETTINGS_HASH];
	(void)state;
	set(&c);
	print(&c, &bytes);
	assert_null(strstr(bytes.data + 72, "secret"));
	assert_null(strstr(bytes.data + 72, "init_from"));
	assert_int_equal(run_settings_read(&theirs, &m, bytes.data, bytes.len, &e), 0);
	assert_int_equal(m.formats, 0);
	m.formats = manifest.formats;
	assert_memory_equal(&m, &manifest, sizeof m);
	read_config(&mine,
	        "{\"train\": {\"lr\": 0.5}, \"data\": {\"path\": \"/mine\", \"seed\": 2}, "
	        "\"model\": {\"layers\": [{\"type\": \"flatten\"}]}}");
	assert_int_equal(run_settings_take(&mine, &theirs, given, &e), 0);
	assert_true(mine.train.optim.lr == 0.013 && mine.train.epochs == 3 && mine.n_layers == 2);
	assert_string_equal(mine.data.path, "/mine");
	assert_string_equal(mine.gossip.run, "r \x1b");
	assert_true(mine.data.seed == 2 && mine.run.threads == 0 && !mine.agent.keys[0]);
	assert_string_equal(mine.run.init_from, "");
	print(&mine, &again);
	assert_int_equal(again.len, bytes.len);
	assert_memory_equal(again.data, bytes.data, bytes.len);
	run_settings_hash(bytes.data, bytes.len, h[0]);
	run_settings_hash(again.data, again.len, h[1]);
	assert_memory_equal(h[0], h[1], sizeof h[0]);
	again.data[again.len - 4] ^= 1;
	run_settings_hash(again.data, again.len, h[1]);
	assert_memory_not_equal(h[0], h[1], sizeof h[0]);
	buf_close(&bytes);
	buf_close(&again);
	config_close(&c);
	config_close(&theirs);
	config_close(&mine);
}

/* 72 bytes of anything, then text. */
static void refuses(const char *text, size_t len, const char *words)
{
	static char bytes[SETTINGS_BYTES_MAX + 100];
	struct config theirs;
	struct manifest m;
	struct err e = {0};
	memset(bytes, 'x', 72);
	memcpy(bytes + 72, text, len);
	assert_int_equal(run_settings_read(&theirs, &m, bytes, 72 + len, &e), ERR_FORMAT);
	if (!strstr(e.msg, words))
		fail_msg("\"%s\", not \"%s\"", e.msg, words);
	config_close(&theirs);
}

static void test_what_is_refused(void **state)
{
	struct config c, theirs;
	struct manifest m;
	struct buf b;
	struct err e;
	char *text;
	static char big[SETTINGS_BYTES_MAX + 1];
	(void)state;
	config_defaults(&c);
	print(&c, &b);
	text = b.data + 72;
	size_t len = b.len - 72;
	refuses("", 0, "");
	refuses("{}", 2, "other settings");
	refuses("{\"agent\": {\"name\": \"x\"}}", 24, "other settings");
	refuses("{\"data\": {\"path\": \"/etc\"}}", 26, "other settings");
	refuses("{\"nonsense\": 1}", 15, "nonsense");
	refuses(text, len - 1, "");
	refuses(text, len - 2, "");
	/* The same values, but a space more. */
	char *spaced = malloc(len + 1);
	assert_non_null(spaced);
	memcpy(spaced, text, len);
	spaced[len] = ' ';
	refuses(spaced, len + 1, "spelt");
	free(spaced);
	/* All that travels, and a path with it. */
	struct buf more;
	buf_init(&more, SETTINGS_BYTES_MAX);
	const char *at = strstr(text, "\"data\": {");
	assert_non_null(at);
	assert_int_equal(buf_append(&more, text, (size_t)(at - text) + 9), 0);
	assert_int_equal(buf_printf(&more, "\n    \"path\": \"/etc/passwd\",%s", at + 9), 0);
	refuses(more.data, more.len, "other settings");
	buf_close(&more);
	memset(big, ' ', sizeof big);
	assert_int_equal(run_settings_read(&theirs, &m, big, sizeof big, &e), ERR_FORMAT);
	config_close(&theirs);
	assert_int_equal(run_settings_read(&theirs, &m, big, 71, &e), ERR_FORMAT);
	config_close(&theirs);
	buf_close(&b);
	config_close(&c);
}

/* What a flag says must be what the run has. */
static void test_flags(void **state)
{
	struct config c, mine, theirs;
	struct manifest m;
	struct buf b;
	struct err e;
	bool given[CONFIG_SETTINGS_MAX] = {false};
	(void)state;
	config_defaults(&c);
	c.train.optim.lr = 0.25;
	print(&c, &b);
	config_defaults(&mine);
	given[setting_find("data.seed")] = true;
	given[setting_find("train.lr")] = true;
	mine.data.seed = 77;
	mine.train.optim.lr = 0.25;
	assert_int_equal(run_settings_read(&theirs, &m, b.data, b.len, &e), 0);
	assert_int_equal(run_settings_take(&mine, &theirs, given, &e), 0);
	assert_int_equal(mine.data.seed, 77);
	mine.train.optim.lr = 0.5;
	assert_int_equal(run_settings_take(&mine, &theirs, given, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "--lr: the run has another value"));
	assert_true(mine.train.optim.lr == 0.5);
	config_close(&theirs);
	config_close(&mine);
	config_close(&c);
	buf_close(&b);
}

/* A file from which the same agent starts again. */
static void test_the_file(void **state)
{
	struct config c, back;
	struct buf all, some;
	(void)state;
	set(&c);
	buf_init(&all, 1 << 20);
	buf_init(&some, 1 << 20);
	assert_int_equal(run_settings_file(&c, true, &all), 0);
	read_config(&back, all.data);
	assert_string_equal(back.data.path, "/secret/place");
	assert_string_equal(back.agent.name, "heron");
	assert_int_equal(textlist_count(back.agent.keys), 1);
	assert_true(back.run.threads == 3 && back.n_layers == 2 && back.train.optim.lr == 0.013);
	assert_non_null(strstr(all.data, "\"batch\": 64")); /* travels, a default or not */
	assert_null(strstr(all.data, "\"device\""));
	assert_int_equal(run_settings_file(&c, false, &some), 0);
	assert_non_null(strstr(some.data, "\"lr\": 0.013"));
	assert_null(strstr(some.data, "batch"));
	assert_null(strstr(some.data, "heron"));
	buf_close(&all);
	buf_close(&some);
	config_close(&c);
	config_close(&back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_what_travels),
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_what_is_refused),
	        cmocka_unit_test(test_flags),
	        cmocka_unit_test(test_the_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
