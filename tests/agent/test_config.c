/* SPDX-License-Identifier: MIT */
/* Config files, the environment and the options table. */
#include "agent/cli/cli.h"
#include "agent/config/options.h"
#include "tests/support.h"

#include <math.h>

/* Reads text over the defaults; the problems as one text, to be freed. */
static char *problems_of(const char *text, size_t len)
{
	struct config c;
	struct config_problems p;
	struct buf out;
	config_defaults(&c);
	config_problems_init(&p, "f.json");
	int rc = config_read(&c, text, len, &p);
	rc = config_check(&c, &p) || rc;
	buf_init(&out, 1 << 20);
	assert_int_equal(config_problems_text(&p, &out), 0);
	assert_int_equal(rc != 0, p.n > 0);
	config_close(&c);
	return out.data ? out.data : strdup("");
}

static void expect(const char *text, const char *problems)
{
	char *met = problems_of(text, strlen(text));
	assert_string_equal(met, problems);
	free(met);
}

static void expect_inside(const char *text, const char *part)
{
	char *met = problems_of(text, strlen(text));
	if (!strstr(met, part))
		fail_msg("%s\ngave  %s\nnot   %s", text, met, part);
	free(met);
}

static void test_table_is_sound(void **state)
{
	(void)state;
	for (int i = 0; i < n_settings; i++) {
		const struct setting *s = &settings[i];
		struct config c;
		char why[SETTING_WHY];
		bool negated;
		config_defaults(&c);
		assert_int_equal(setting_find(s->key), i);
		assert_int_equal(setting_find_flag(s->flag, s->taken_by, &negated), i);
		assert_false(negated);
		assert_true(s->offset + s->size <= sizeof c);
		assert_non_null(s->help);
		if (s->type == SET_INT || s->type == SET_REAL) {
			assert_true(s->size == 8 || (s->type == SET_INT && s->max < 2147483648.0));
			assert_int_equal(setting_set_number(s, &c, s->max, why), 0);
			assert_int_equal(setting_set_number(s, &c, s->min, why), 0);
			assert_int_equal(
			        setting_set_number(s, &c, s->max * 1.01 + 1, why), ERR_INVALID);
			assert_int_equal(setting_set_number(s, &c, s->min - 1, why), ERR_INVALID);
			assert_int_equal(setting_set_number(s, &c, NAN, why), ERR_INVALID);
			assert_int_equal(setting_set_bool(s, &c, true, why), ERR_INVALID);
			assert_int_equal(setting_set_string(s, &c, "1", why), ERR_INVALID);
		} else {
			assert_int_equal(setting_set_number(s, &c, 1, why), ERR_INVALID);
		}
		config_close(&c);
	}
}

/* No setting may share bytes with another, or stand outside the section of its key. */
static void test_settings_do_not_overlap(void **state)
{
	(void)state;
	for (int i = 0; i < n_settings; i++)
		for (int j = 0; j < i; j++) {
			const struct setting *a = &settings[i], *b = &settings[j];
			assert_true(a->offset + a->size <= b->offset ||
			            b->offset + b->size <= a->offset);
			if (a->taken_by & b->taken_by)
				assert_string_not_equal(a->flag, b->flag);
			if (a->env && b->env)
				assert_string_not_equal(a->env, b->env);
		}
}

static void test_defaults(void **state)
{
	(void)state;
	struct config c;
	config_defaults(&c);
	assert_string_equal(c.preset, "cnn");
	assert_null(c.layers);
	assert_int_equal(c.train.batch, 64);
	assert_true(c.train.epochs == 10);
	assert_true(c.train.optim.nesterov);
	assert_int_equal(c.train.schedule, SCHEDULE_COSINE);
	assert_int_equal(c.data.partition.parts, 1);
	assert_int_equal(c.log.level, LOG_INFO);
	config_close(&c);
}

static void test_every_key_is_read(void **state)
{
	(void)state;
	static const char text[] =
	        "{\"model\": \"mlp\", // why not\n"
	        "\"data\": {\"train_images\": \"a/\\u00e9\", \"classes\": 10, \"seed\": "
	        "9007199254740991,\n"
	        "  \"augment\": {\"flip\": true, \"shift\": 2, \"scale\": 0.1},\n"
	        "  \"partition\": {\"kind\": \"label\", \"parts\": 8, \"part\": 7, \"seed\": 5}},\n"
	        "/* two\n lines */ \"train\": {\"optimizer\": \"adamw\", \"lr\": 1e-3, \"batch\": "
	        "3.2e1},\n"
	        "\"run\": {\"resume\": true, \"keep\": 1}, \"log\": {\"level\": \"debug\"}}";
	struct config c;
	struct config_problems p;
	config_defaults(&c);
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(&c, text, strlen(text), &p), 0);
	assert_string_equal(c.preset, "mlp");
	assert_string_equal(c.data.train_images, "a/é");
	assert_int_equal(c.data.classes, 10);
	assert_int_equal(c.data.seed, 9007199254740991);
	assert_true(c.data.augment.flip);
	assert_int_equal(c.data.augment.shift, 2);
	assert_true(c.data.augment.scale == 0.1);
	assert_int_equal(c.data.partition.kind, PARTITION_LABEL);
	assert_int_equal(c.data.partition.parts, 8);
	assert_int_equal(c.data.partition.part, 7);
	assert_int_equal(c.data.partition.seed, 5);
	assert_int_equal(c.train.optim.kind, OPTIM_ADAMW);
	assert_true(c.train.optim.lr == 1e-3);
	assert_int_equal(c.train.batch, 32);
	assert_true(c.run.resume);
	assert_int_equal(c.run.keep, 1);
	assert_int_equal(c.log.level, LOG_DEBUG);
	config_close(&c);
}

static void test_problems_name_key_line_and_nearest(void **state)
{
	(void)state;
	expect("{\n\"train\": {\n\"lerning_rate\": 1}}",
	        "f.json:3: unknown key \"train.lerning_rate\"; did you mean \"train.lr\"?\n");
	expect("{\"train\": {\"batch\": 0}}",
	        "f.json:1: train.batch: 0 is out of range, 1 to 1048576\n");
	expect("{\"train\": {\"lr\":\n\"x\"}}",
	        "f.json:1: train.lr: must be a number, not a string\n");
	expect("{\"train\": {\"batch\": 1.5}}",
	        "f.json:1: train.batch: must be a whole number, not 1.5\n");
	expect("{\"train\": {\"optimizer\": \"sdg\"}}",
	        "f.json:1: train.optimizer: \"sdg\" is not one of sgd, adamw; did you mean "
	        "\"sgd\"?\n");
	expect("{\"train\": {\"optimizer\": [1]}}",
	        "f.json:1: train.optimizer: must be one of sgd, adamw, not a list\n");
	expect("{\"data\": {\"augment\": {\"flip\": 1}}}",
	        "f.json:1: data.augment.flip: must be true or false, not a number\n");
	expect("{\"trian\": {}}", "f.json:1: unknown key \"trian\"; did you mean \"train\"?\n");
	expect("{\"data\": {\"agument\": {}}}",
	        "f.json:1: unknown key \"data.agument\"; did you mean \"data.augment\"?\n");
	expect("{\"batch_size\": 1}",
	        "f.json:1: unknown key \"batch_size\"; did you mean \"train.batch\"?\n");
	expect("{\"train\": 3}", "f.json:1: train: must be an object of settings, not a number\n");
	expect("{\"model\": \"cmn\"}",
	        "f.json:1: model: \"cmn\" is not one of mlp, cnn, resnet20, gpt; did you mean "
	        "\"cnn\"?\n");
	expect("{\"run\": {\"device\": \"\"}}", "f.json:1: run.device: must not be empty\n");
	expect("[]", "f.json:1: a config must be an object, {…}, not a list\n");
	expect_inside("{\"train.lr\": 1}", "unknown key \"train.lr\"; sections are nested");
	expect_inside(
	        "{\"data\": {\"seed\": 9007199254740993}}", "data.seed: 9007199254740992 is out");
	expect_inside("{\"\\u001b[31m\": 1}", "unknown key \"\\x1b[31m\"");
	expect_inside("{\"zzzzzzzzzz\": 1}", "`dunlin config init` lists all keys");
}

static void test_everything_wrong_at_once_by_line(void **state)
{
	(void)state;
	expect("{\"data\": {\"partition\": {\n\"part\": 4}},\n\"train\": {\"batch\": 0,\n"
	       "\"batch\": 8,\n\"x_y_z\": null,\n\"schedule\": \"step\"}}",
	        "f.json:2: data.partition.part: must be below data.partition.parts, 1, not 4: "
	        "parts count from 0\n"
	        "f.json:3: train.batch: 0 is out of range, 1 to 1048576\n"
	        "f.json:4: key \"train.batch\" is given twice\n"
	        "f.json:5: unknown key \"train.x_y_z\"; `dunlin config init` lists all keys\n"
	        "f.json:6: train.schedule: \"step\" needs train.step_epochs above 0\n");
}

static void test_problems_of_one_line_keep_their_order(void **state)
{
	(void)state;
	expect("{\"train\": {\"batch\": 0, \"epochs\": 0, \"accumulate\": 0}}",
	        "f.json:1: train.batch: 0 is out of range, 1 to 1048576\n"
	        "f.json:1: train.epochs: 0 is out of range, 0.0001 to 1000000\n"
	        "f.json:1: train.accumulate: 0 is out of range, 1 to 65536\n");
}

static void test_too_many_problems_are_counted(void **state)
{
	(void)state;
	char text[4096] = "{", *end = text + 1;
	for (int i = 0; i < LIMIT_CONFIG_ERRORS + 5; i++)
		end += sprintf(end, "%s\"key%d\": 1", i ? "," : "", i);
	strcpy(end, "}");
	expect_inside(text, "\nand 5 more\n");
}

static void test_settings_together(void **state)
{
	(void)state;
	expect_inside("{\"data\": {\"test_labels\": \"\"}}",
	        "data.test_images: needs data.test_labels too");
	expect_inside("{\"data\": {\"test_images\": \"\"}}",
	        "data.test_labels: needs data.test_images too");
	expect("{\"data\": {\"test_images\": \"\", \"test_labels\": \"\"}}", "");
	expect_inside("{\"train\": {\"momentum\": 0}}", "train.nesterov: needs train.momentum");
	expect("{\"train\": {\"momentum\": 0, \"nesterov\": false}}", "");
	expect("{\"train\": {\"momentum\": 0, \"optimizer\": \"adamw\"}}", "");
	expect_inside(
	        "{\"data\": {\"partition\": {\"kind\": \"shard\", \"parts\": 4, \"part\": 4}}}",
	        "data.partition.part: must be below");
	expect("{\"data\": {\"partition\": {\"kind\": \"shard\", \"parts\": 4, \"part\": 3}}}", "");
	expect_inside("{\"data\": {\"partition\": {\"parts\": 4}}}", "kind is \"all\"");
	expect_inside("{\"train\": {\"batch\": 1048576, \"accumulate\": 2}}", "batch × accumulate");
	expect_inside("{\"gossip\": {\"gate\": \"budget\"}}", "gossip.gate: \"budget\" needs");
	expect("{\"gossip\": {\"gate\": \"budget\", \"bytes_per_day\": 1}}", "");
	expect_inside("{\"run\": {\"device\": \"cuda:\"}}", "run.device: must be auto");
	expect("{\"run\": {\"device\": \"cuda:3\"}}", "");
}

static void test_settings_of_an_agent(void **state)
{
	(void)state;
	expect("{\"agent\": {\"name\": \"heron-2_b\", \"listen\": \":0\", \"advertise\": "
	       "[\"h.example:1\", \"[::1]:2\", \"h\"],\n"
	       "\"seeds\": [\"[::1]:80\", \"10.0.0.5:1\", \"h\", \"::1\"], \"keys\": []}}",
	        "");
	expect("{\"agent\": {\"name\": \"a/b\",\n\"listen\": \"13865\",\n\"advertise\": "
	       "[\"h:1\", \":1\"],\n\"seeds\": [\"::1:13865\", \"h:0\", \"h h:1\"]}}",
	        "f.json:1: agent.name: may only have letters, digits, - and _, and must not begin "
	        "with -\n"
	        "f.json:2: agent.listen: \"13865\": write a port alone with a colon, as :80\n"
	        "f.json:3: agent.advertise: \":1\": the host is missing\n"
	        "f.json:4: agent.seeds: \"::1:13865\": write an IPv6 address with a port in "
	        "brackets, [::1]:80\n"
	        "f.json:4: agent.seeds: \"h:0\": needs a host, and a port other than 0\n"
	        "f.json:4: agent.seeds: \"h h:1\": not the name or address of a host\n");
	expect_inside("{\"agent\": {\"name\": \"-a\"}}", "agent.name: may only have letters");
	expect_inside("{\"agent\": {\"advertise\": [\"a:1\", \"a:2\", \"a:3\", \"a:4\", "
	              "\"a:5\"]}}",
	        "agent.advertise: must not have more than 4 items");
	expect_inside(
	        "{\"agent\": {\"listen\": \"h:65536\"}}", "the port must be a number up to 65535");
	expect_inside("{\"agent\": {\"listen\": \"h:\"}}", "the port after the colon is missing");
	expect_inside("{\"agent\": {\"listen\": \"[::1:1\"}}",
	        "write an IPv6 address as [::1] or [::1]:80");
	expect_inside("{\"agent\": {\"listen\": \"[h]:1\"}}", "in brackets is not an IPv6");
	expect_inside("{\"agent\": {\"listen\": \"[::1]1\"}}", "write an IPv6 address as [::1]");
	expect_inside("{\"agent\": {\"advertise\": [\"h:0\"]}}", "nobody can dial port 0");
	expect_inside(
	        "{\"agent\": {\"seeds\": \"a:1\"}}", "must be a list of strings, not a string");
	expect_inside(
	        "{\"agent\": {\"seeds\": [1]}}", "must be a list of strings, not of a number");
	expect_inside("{\"agent\": {\"keys\": [\"a\",\n\"\"]}}",
	        "f.json:2: agent.keys: must not have an empty item");
	expect_inside("{\"agent\": {\"keys\": [\"a\", \"b\", \"c\", \"d\"]}}",
	        "agent.keys: must not have more than 3 items");
}

static void test_syntax_faults_say_where_and_what(void **state)
{
	(void)state;
	expect("", "f.json:1: column 1: expected a value, but the text ends here\n");
	expect("{\n  \"a\": 1,\n}", "f.json:3: column 1: a comma before }: remove it\n");
	expect_inside("{\"a\": [1,]}", "a comma before ]");
	expect("{\"é\" 1}", "f.json:1: column 6: expected a colon after the key, found 1\n");
	expect_inside("{'a': 1}", "found ': strings take double quotes");
	expect_inside("# c", "found #: a comment begins with //");
	expect_inside("{} x", "expected the end of the text, found x");
	expect_inside("{}{}", "expected the end of the text, found {");
	expect_inside("{\"a\": 01}", "must not begin with 0");
	expect_inside("{\"a\": 1.}", "after its point");
	expect_inside("{\"a\": 1e}", "in its exponent");
	expect_inside("{\"a\": -}", "after its sign");
	expect_inside("{\"a\": 1e999}", "too large");
	expect_inside("{\"a\": 11111111111111111111111111111111111111111}", "more than 40");
	expect_inside("{\"a\": nan}", "found n");
	expect_inside("{\"a\": \"\\u0000\"}", "\\u0000 is not allowed");
	expect_inside("{\"a\": \"\\ud800\"}", "half a surrogate pair");
	expect_inside("{\"a\": \"\\u00\x11\x11\"}", "four hexadecimal");
	expect_inside("{\"a\": \"\\x\"}", "unknown escape");
	expect_inside("{\"a\": \"x\ny\"}", "not closed on its line");
	expect_inside("{\"a\": \"\x01\"}", "control character 0x01");
	expect_inside("{\"a\": \"\xc3(\"}", "byte 0xc3 is not UTF-8");
	expect_inside("{\"a\": \"\xed\xa0\x80\"}", "byte 0xed is not UTF-8");
	expect_inside("\n/* {}", "f.json:2: column 1: a comment that begins with /*");
	expect_inside("{\"a\" /* \n */ : /", "f.json:2: column 7: expected a value, found /");
	char *met = problems_of("{}\0{}", 5);
	assert_string_equal(
	        met, "f.json:1: column 3: expected the end of the text, found byte 0x00\n");
	free(met);
	expect("\xef\xbb\xbf{\"train\": {\"lr\": 1}} // end", "");
	expect("{\"run\": {\"out\": \"http://x /* y */\"}}", "");
}

static void test_nesting_and_counts_are_bounded(void **state)
{
	(void)state;
	size_t n = 300000;
	char *text = malloc(n + 1);
	memset(text, '[', n);
	text[n] = 0;
	expect_inside(text, "nested more than 32 deep");
	strcpy(text, "{\"a\": [1");
	for (size_t at = 8; at + 1 < n; at += 2)
		memcpy(text + at, ",1", 3);
	expect_inside(text, "more than 65536 values");
	free(text);
	char *large = calloc(1, LIMIT_CONFIG_BYTES + 2);
	memset(large, ' ', LIMIT_CONFIG_BYTES + 1);
	expect_inside(large, "f.json: larger than 1048576 bytes");
	free(large);
}

static void test_layers(void **state)
{
	(void)state;
	static const char text[] = "{\"model\": {\"layers\": [\n"
	                           "{\"type\": \"conv2d\", \"units\": 4, \"bias\": false},\n"
	                           "{\"type\": \"relu\", \"name\": \"r\", \"from\": \"input\"},\n"
	                           "{\"type\": \"dropout\", \"p\": 0.25, \"from\": [\"r\"]},\n"
	                           "{\"type\": \"add\", \"from\": [\"r\", \"conv1\"]}]}}";
	struct config c, again;
	struct config_problems p;
	struct buf out;
	config_defaults(&c);
	config_problems_init(&p, NULL);
	assert_int_equal(config_read(&c, text, strlen(text), &p), 0);
	assert_int_equal(c.n_layers, 4);
	assert_string_equal(c.preset, "");
	assert_int_equal(c.layers[0].kind, LAYER_CONV2D);
	assert_int_equal(c.layers[0].units, 4);
	assert_int_equal(c.layers[0].kernel, 3);
	assert_false(c.layers[0].bias);
	assert_string_equal(c.layers[1].name, "r");
	assert_string_equal(c.layers[1].from[0], "input");
	assert_true(c.layers[2].p == 0.25);
	assert_string_equal(c.layers[3].from[1], "conv1");

	/* What is printed is read back to the same. */
	buf_init(&out, 1 << 20);
	assert_int_equal(config_print(&c, true, &out), 0);
	config_defaults(&again);
	assert_int_equal(config_read(&again, out.data, out.len, &p), 0);
	assert_int_equal(again.n_layers, 4);
	assert_memory_equal(again.layers, c.layers, 4 * sizeof *c.layers);
	buf_close(&out);
	config_close(&again);

	/* A preset from a stronger source takes the list's place. */
	char why[SETTING_WHY];
	assert_int_equal(setting_set_text(&settings[setting_find("model")], &c, "mlp", why), 0);
	assert_null(c.layers);
	assert_string_equal(c.preset, "mlp");
	config_close(&c);
}

static void test_layer_problems(void **state)
{
	(void)state;
#define LAYERS(x) "{\"model\": {\"layers\": [{\"type\": \"relu\"},\n" x "]}}"
	expect(LAYERS("{\"type\": \"conv2d\", \"units\": 3, \"kernal\": 3}"),
	        "f.json:2: model: layer 2 (conv2d): unknown key \"kernal\"; did you mean "
	        "\"kernel\"?\n");
	expect(LAYERS("{\"type\": \"conv3d\"}"),
	        "f.json:2: model: layer 2: unknown type \"conv3d\"; did you mean \"conv2d\"?\n");
	expect(LAYERS("{\"type\": \"dense\"}"),
	        "f.json:2: model: layer 2 (dense): \"units\" is missing\n");
	expect(LAYERS("{\"units\": 2}"), "f.json:2: model: layer 2: has no \"type\"\n");
	expect(LAYERS("{\"type\": \"dense\", \"units\": 0}"),
	        "f.json:2: model: layer 2 (dense): units: 0 is out of range, 1 to 16777216\n");
	expect_inside(
	        LAYERS("{\"type\": \"dense\", \"units\": 1.5}"), "must be a whole number, not 1.5");
	expect_inside(LAYERS("{\"type\": \"dense\", \"units\": 2, \"units\": 3}"), "given twice");
	expect_inside(LAYERS("{\"type\": \"dense\", \"units\": true}"),
	        "units: must be a whole number, not true or false");
	expect_inside(
	        LAYERS("{\"type\": \"add\", \"from\": \"a\"}"), "a list of 2 names of layers");
	expect_inside(
	        LAYERS("{\"type\": \"relu\", \"from\": [\"a\", \"b\"]}"), "name of one layer");
	expect_inside(LAYERS("{\"type\": \"relu\", \"qqqqqq\": 1}"), "it takes type, name, from");
	expect_inside(LAYERS("3"), "layer 2: must be an object");
	expect_inside("{\"model\": {\"layers\": []}}", "0 layers are out of range, 1 to 1024");
	expect_inside("{\"model\": {\"layers\": 3}}", "model.layers: must be a list, not a number");
	expect_inside("{\"model\": {}}", "model: \"layers\" is missing");
	expect_inside("{\"model\": {\"layer\": []}}", "unknown key \"model.layer\"");
}

static void test_example_is_the_defaults(void **state)
{
	(void)state;
	for (int comments = 0; comments < 2; comments++) {
		struct config plain, read;
		struct config_problems p;
		struct buf out;
		config_defaults(&plain);
		/* Other values first: what the example does not set would stay. */
		memset(&read, 0, sizeof read);
		config_problems_init(&p, NULL);
		buf_init(&out, 1 << 20);
		assert_int_equal(config_print(&plain, comments, &out), 0);
		assert_int_equal(config_read(&read, out.data, out.len, &p), 0);
		assert_int_equal(config_check(&read, &p), 0);
		for (int i = 0; i < n_settings; i++) {
			const struct setting *s = &settings[i];
			const char *a = (const char *)&plain + s->offset;
			const char *b = (const char *)&read + s->offset;
			assert_memory_equal(a, b, s->size);
			assert_true(p.set_at[i] > 0);
			assert_true(!comments || strstr(out.data, s->help));
		}
		buf_close(&out);
		config_close(&read);
	}
}

static void test_files(void **state)
{
	char path[512];
	struct config c;
	struct config_problems p;
	static char large[LIMIT_CONFIG_BYTES + 1];
	config_defaults(&c);
	snprintf(path, sizeof path, "%s/c.json", (char *)*state);
	config_problems_init(&p, NULL);
	assert_true(config_load(&c, path, &p) != 0);
	assert_int_equal(p.n, 1);
	assert_non_null(strstr(p.list[0].text, "No such file"));

	write_file(path, "{\"train\": {\"lr\": 0.5}}", 22);
	config_problems_init(&p, NULL);
	assert_int_equal(config_load(&c, path, &p), 0);
	assert_true(c.train.optim.lr == 0.5);

	memset(large, ' ', sizeof large);
	write_file(path, large, sizeof large);
	config_problems_init(&p, NULL);
	assert_true(config_load(&c, path, &p) != 0);
	assert_int_equal(p.n, 1);

	config_problems_init(&p, NULL);
	assert_true(config_load(&c, *state, &p) != 0);
	assert_int_equal(p.n, 1);
	config_close(&c);
}

static void test_environment(void **state)
{
	(void)state;
	struct config c;
	struct config_problems p;
	config_defaults(&c);
	config_problems_init(&p, NULL);
	setenv("DUNLIN_THREADS", "3", 1);
	setenv("DUNLIN_LOG_FORMAT", "json", 1);
	assert_int_equal(config_env(&c, &p), 0);
	assert_int_equal(c.run.threads, 3);
	assert_int_equal(c.log.format, LOG_JSON);
	setenv("DUNLIN_THREADS", "0x4", 1);
	assert_int_equal(config_env(&c, &p), ERR_INVALID);
	assert_string_equal(p.list[0].text,
	        "environment variable DUNLIN_THREADS: must be a whole number, not \"0x4\"");
	assert_int_equal(c.run.threads, 3);
	unsetenv("DUNLIN_THREADS");
	unsetenv("DUNLIN_LOG_FORMAT");
	config_close(&c);
}

static void test_precedence(void **state)
{
	char path[512];
	struct config c;
	struct cli_args a;
	int status;
	snprintf(path, sizeof path, "%s/p.json", (char *)*state);
	static const char text[] = "{\"run\": {\"threads\": 2, \"device\": \"cpu\", \"keep\": 7}}";
	write_file(path, text, strlen(text));
	setenv("DUNLIN_THREADS", "3", 1);
	setenv("DUNLIN_DEVICE", "plain", 1);
	char *argv[] = {"train", "--threads=4", "--config", path, "--no-nesterov", NULL};
	assert_true(cli_begin(&c, &a, CMD_TRAIN, 5, argv, &status));
	assert_int_equal(c.train.batch, 64);        /* default */
	assert_int_equal(c.run.keep, 7);            /* file */
	assert_string_equal(c.run.device, "plain"); /* environment over file */
	assert_int_equal(c.run.threads, 4);         /* flag over environment */
	assert_false(c.train.optim.nesterov);
	assert_string_equal(a.config, path);
	unsetenv("DUNLIN_THREADS");
	unsetenv("DUNLIN_DEVICE");
	config_close(&c);
}

static void test_model_of_a_file(void **state)
{
	(void)state;
	struct shape input = {3, {28, 28, 1}}, shape;
	struct arch made, read;
	struct buf text, again;
	struct layer *layers;
	struct err e;
	int64_t classes;
	int n;
	buf_init(&text, 1 << 20);
	buf_init(&again, 1 << 20);
	assert_int_equal(arch_preset(&made, "cnn", NULL, &input, 10, &e), 0);
	assert_int_equal(arch_print(&made, &text), 0);
	assert_int_equal(
	        config_parse_model(text.data, text.len, &layers, &n, &shape, &classes, &e), 0);
	assert_true(shape_equal(&shape, &input));
	assert_int_equal(classes, 10);
	assert_int_equal(arch_resolve(&read, layers, n, &shape, classes, &e), 0);
	assert_int_equal(arch_print(&read, &again), 0);
	assert_string_equal(again.data, text.data);
	free(layers);
	arch_close(&made);
	arch_close(&read);
	buf_close(&text);
	buf_close(&again);
	static const char *const wrong[] = {"", "{}", "[]", "{\"input\":[1],\"classes\":2}",
	        "{\"input\":[0],\"classes\":2,\"layers\":[{\"type\":\"relu\"}]}",
	        "{\"input\":[1,1,1,1,1],\"classes\":2,\"layers\":[{\"type\":\"relu\"}]}",
	        "{\"input\":[1],\"classes\":1e9,\"layers\":[{\"type\":\"relu\"}]}",
	        "{\"input\":[1],\"classes\":2,\"layers\":[{\"type\":\"rule\"}]}",
	        "{\"input\":[1],\"classes\":2,\"classes\":2,\"layers\":[{\"type\":\"relu\"}]}",
	        "{\"input\":[1],\"classes\":2,\"x\":2,\"layers\":[{\"type\":\"relu\"}]}",
	        "{/**/\"input\":[1],\"classes\":2,\"layers\":[{\"type\":\"relu\"}]}"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		e.msg[0] = 0;
		assert_true(config_parse_model(wrong[i], strlen(wrong[i]), &layers, &n, &shape,
		                    &classes, &e) != 0);
		assert_null(layers);
		assert_true(strncmp(e.msg, "model", 5) == 0);
	}
}

static void test_nearness(void **state)
{
	(void)state;
	assert_int_equal(nearness("train", "train"), 0);
	assert_int_equal(nearness("trian", "train"), 1);
	assert_int_equal(nearness("batchs", "batch"), 1);
	assert_int_equal(nearness("export", "eval"), -1);
	char word[4096];
	memset(word, 'a', sizeof word - 1);
	word[sizeof word - 1] = 0;
	assert_int_equal(nearness(word, "a"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_table_is_sound),
	        cmocka_unit_test(test_settings_do_not_overlap),
	        cmocka_unit_test(test_defaults),
	        cmocka_unit_test(test_every_key_is_read),
	        cmocka_unit_test(test_problems_name_key_line_and_nearest),
	        cmocka_unit_test(test_everything_wrong_at_once_by_line),
	        cmocka_unit_test(test_problems_of_one_line_keep_their_order),
	        cmocka_unit_test(test_too_many_problems_are_counted),
	        cmocka_unit_test(test_settings_together),
	        cmocka_unit_test(test_settings_of_an_agent),
	        cmocka_unit_test(test_syntax_faults_say_where_and_what),
	        cmocka_unit_test(test_nesting_and_counts_are_bounded),
	        cmocka_unit_test(test_layers),
	        cmocka_unit_test(test_layer_problems),
	        cmocka_unit_test(test_example_is_the_defaults),
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_environment),
	        cmocka_unit_test(test_precedence),
	        cmocka_unit_test(test_model_of_a_file),
	        cmocka_unit_test(test_nearness),
	};
	unsetenv("DUNLIN_CONFIG");
	for (int i = 0; i < n_settings; i++)
		if (settings[i].env)
			unsetenv(settings[i].env);
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
