/* SPDX-License-Identifier: MIT */
/* Checkpoints and weights: what is written comes back bit for bit, and no damage, however small,
 * passes. */
#include "tests/support.h"

#include "agent/base/buf.h"
#include "agent/config/config.h"
#include "agent/train/checkpoint.h"
#include "agent/train/run_dir.h"
#include "agent/train/weights.h"

#include <math.h>

#define PARAMS_MAX 256

/* 2x3x1 → flatten → dense 4 → relu → dense 3: 4·6 + 4 + 3·4 + 3 = 43 parameters. */
static void small_arch(struct arch *a)
{
	const struct shape input = {.rank = 3, .dim = {2, 3, 1}};
	struct layer layers[4];
	struct err e;

	assert_int_equal(layer_init(&layers[0], "flatten"), 0);
	assert_int_equal(layer_init(&layers[1], "dense"), 0);
	assert_int_equal(layer_init(&layers[2], "relu"), 0);
	assert_int_equal(layer_init(&layers[3], "dense"), 0);
	layers[1].units = 4;
	layers[3].units = 3;
	assert_int_equal(arch_resolve(a, layers, 4, &input, 3, &e), 0);
	assert_int_equal(a->n_total, 43);
}

static void fill(float *v, float first)
{
	for (int i = 0; i < PARAMS_MAX; i++)
		v[i] = first + 0.37f * (float)i;
}

struct sample {
	struct arch arch;
	float params[PARAMS_MAX], m[PARAMS_MAX], v[PARAMS_MAX];
	struct checkpoint_source source;
};

static void sample_init(struct sample *s)
{
	small_arch(&s->arch);
	fill(s->params, -1.0f);
	fill(s->m, 0.001f);
	fill(s->v, 7e-20f);
	s->source = (struct checkpoint_source){
	        .arch = &s->arch,
	        .state = {.step = 1200,
	                .samples = 76800,
	                .others = 230400,
	                .epoch = 1,
	                .sample = 16800,
	                .n_train = 60000,
	                .optimizer = OPTIM_ADAMW,
	                .optim_steps = 1199,
	                .batch = 64,
	                .accumulate = 2,
	                .train_seed = -5,
	                .data_seed = INT64_MAX,
	                .order_seed = INT64_MIN,
	                .norm = {2, {0.1 + 0.2, 0.5}, {1.0 / 3.0, 0.25}},
	                .best_step = 938,
	                .best_loss = 0.28765432109876543,
	                .origin = {.manifest = {.run = UINT64_MAX,
	                                   .model = 1,
	                                   .init = 0x8000000000000000,
	                                   .count = 43,
	                                   .total = 1200000},
	                        .run = "a run",
	                        .owner = "0123456789abcdef",
	                        .before = "fedcba9876543210",
	                        .before_samples = 77}},
	        .backend = "plain",
	        .device = "plain loops",
	        .choices = "a 1; b \"2\"",
	        .params = s->params,
	        .m = s->m,
	        .v = s->v,
	};
}

static void test_round_trip(void **state)
{
	char path[300];
	float back[PARAMS_MAX];
	struct sample s;
	struct checkpoint c;
	struct buf model;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/a.safetensors", (char *)*state);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, &e), 0);
	/* All but what the compiler puts between the texts and the last number. */
	assert_memory_equal(&c.state, &s.source.state,
	        offsetof(struct checkpoint_state, origin.before) + CHECKPOINT_ID);
	assert_int_equal(c.state.origin.before_samples, s.source.state.origin.before_samples);
	assert_string_equal(c.backend, "plain");
	assert_string_equal(c.device, "plain loops");
	assert_string_equal(c.choices, "a 1; b \"2\"");
	buf_init(&model, 1 << 16);
	assert_int_equal(arch_print(&s.arch, &model), 0);
	assert_string_equal(c.model, model.data);
	buf_close(&model);
	assert_int_equal(weights_check(&c.file, &s.arch, &e), 0);
	weights_copy(&c.file, &s.arch, back);
	assert_memory_equal(back, s.params, 43 * sizeof(float));
	assert_memory_equal(c.m->data, s.m, 43 * sizeof(float));
	assert_memory_equal(c.v->data, s.v, 43 * sizeof(float));
	checkpoint_close(&c);
	arch_close(&s.arch);
}

static void test_without_optimiser_state(void **state)
{
	char path[300];
	struct sample s;
	struct checkpoint c;
	struct err e;

	sample_init(&s);
	s.source.state.optimizer = OPTIM_SGD;
	s.source.v = NULL;
	snprintf(path, sizeof path, "%s/sgd.safetensors", (char *)*state);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	assert_int_equal(checkpoint_open(&c, path, &e), 0);
	assert_int_equal(c.state.optimizer, OPTIM_SGD);
	assert_non_null(c.m);
	assert_null(c.v);
	checkpoint_close(&c);
	arch_close(&s.arch);
}

/* A model of one dense layer whose name has so many bytes. */
static int named_arch(struct arch *a, size_t bytes, struct err *e)
{
	char name[512] = "", json[1024];
	struct layer *layers;
	struct shape input;
	int64_t classes;
	int n, rc;

	memset(name, 'n', bytes);
	snprintf(json, sizeof json,
	        "{\"input\":[2,3,1],\"classes\":3,\"layers\":[{\"type\":\"flatten\"},"
	        "{\"type\":\"dense\",\"name\":\"%s\",\"units\":3}]}",
	        name);
	rc = config_parse_model(json, strlen(json), &layers, &n, &input, &classes, e);
	if (rc == 0)
		rc = arch_resolve(a, layers, n, &input, classes, e);
	free(layers);
	return rc;
}

/* Tensors are called as their layers, with .weight behind: here of 71, 255 and 256 bytes. */
static void test_long_names(void **state)
{
	const struct weights_info info = {.norm = {1, {0.25}, {0.5}}};
	const float params[21] = {1, 2, 3};
	float back[21];
	char path[300], want[300];
	struct arch a, again;
	struct st_file f;
	struct err e = {0};

	snprintf(path, sizeof path, "%s/names.safetensors", (char *)*state);
	for (const size_t *n = (const size_t[]){71, 255, 256, 0}; *n; n++) {
		memset(want, 'n', *n);
		strcpy(want + *n - 7, ".weight");
		assert_int_equal(named_arch(&a, *n - 7, &e), 0);
		assert_int_equal(weights_write(path, &a, &info, params, &e), 0);
		assert_int_equal(st_open(&f, path, &e), 0);
		assert_non_null(st_find(&f, want));
		assert_int_equal(weights_arch(&f, &again, &e), 0);
		assert_int_equal(weights_check(&f, &again, &e), 0);
		weights_copy(&f, &again, back);
		assert_memory_equal(back, params, sizeof params);
		st_close(&f);
		arch_close(&a);
		arch_close(&again);
	}
	assert_int_equal(named_arch(&a, 250, &e), ERR_FORMAT);
	assert_non_null(strstr(e.msg, "layer 2 (dense): name: must not be longer than 249 bytes"));
}

/* Whatever a file lacks, what is wrong comes before a long name ends. */
static void test_long_names_in_errors(void **state)
{
	const struct weights_info info = {.norm = {1, {0.25}, {0.5}}};
	const float params[21] = {0};
	char path[300];
	struct arch a, other;
	struct st_file f;
	struct err e = {0};

	snprintf(path, sizeof path, "%s/other.safetensors", (char *)*state);
	assert_int_equal(named_arch(&a, 249, &e), 0);
	assert_int_equal(named_arch(&other, 248, &e), 0);
	assert_int_equal(weights_write(path, &a, &info, params, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	assert_int_equal(weights_check(&f, &other, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "2 missing (nnn"));
	assert_non_null(strstr(e.msg, "2 not in the model (nnn"));
	st_close(&f);
	arch_close(&a);
	arch_close(&other);
}

/* The model reached through the file's own description is the same one. */
static void test_arch_from_metadata(void **state)
{
	const struct weights_info info = {.norm = {1, {0.25}, {0.5}}, .step = 3, .samples = 9};
	char path[300];
	struct normalisation norm;
	struct sample s;
	struct arch again;
	struct st_file f;
	struct checkpoint c;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/w.safetensors", (char *)*state);
	assert_int_equal(weights_write(path, &s.arch, &info, s.params, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	assert_int_equal(weights_arch(&f, &again, &e), 0);
	assert_int_equal(weights_check(&f, &again, &e), 0);
	assert_int_equal(weights_normalisation(&f, &norm, &e), 0);
	assert_true(norm.n == 1 && norm.mean[0] == 0.25 && norm.std[0] == 0.5);
	st_close(&f);
	/* Sound, but nothing to resume from. */
	assert_int_equal(checkpoint_open(&c, path, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "--init-from"));
	arch_close(&again);
	arch_close(&s.arch);
}

/* Files from before agents had orders of their own. */
static void test_without_order_seed(void **state)
{
	struct st_meta meta[64];
	struct checkpoint old = {0};
	struct st_file f;
	struct sample s;
	struct err e;
	char path[300];
	int n = 0;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/o.safetensors", (char *)*state);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	assert_int_equal(st_open(&f, path, &e), 0);
	for (int i = 0; i < f.n_meta; i++)
		if (strcmp(f.meta[i].key, "order_seed") != 0)
			meta[n++] = f.meta[i];
	assert_int_equal(n, f.n_meta - 1);
	snprintf(path, sizeof path, "%s/old.safetensors", (char *)*state);
	assert_int_equal(st_write(path, f.tensors, f.n_tensors, meta, n, &e), 0);
	st_close(&f);
	assert_int_equal(st_open(&old.file, path, &e), 0);
	assert_int_equal(checkpoint__read(&old, &e), 0);
	assert_int_equal(old.state.order_seed, INT64_MAX);
	checkpoint_close(&old);
	arch_close(&s.arch);
}

static void read_whole(const char *path, struct buf *b)
{
	struct err e;

	buf_init(b, 1 << 20);
	assert_int_equal(file_read(b, path, &e), 0);
}

/* Whether these bytes would be taken for a checkpoint of that model. */
static int takes(const struct arch *a, const void *bytes, size_t len)
{
	struct checkpoint c;
	struct err e = {0};
	int rc = checkpoint_parse(&c, bytes, len, &e);

	if (rc == 0) {
		rc = weights_check(&c.file, a, &e);
		checkpoint_close(&c);
	}
	if (rc != 0) {
		assert_int_equal(e.code, rc);
		assert_true(e.msg[0] != '\0');
	}
	return rc == 0;
}

static void test_every_damage_is_found(void **state)
{
	char path[300];
	struct sample s;
	struct buf b;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/d.safetensors", (char *)*state);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	read_whole(path, &b);
	assert_true(takes(&s.arch, b.data, b.len));
	for (size_t i = 0; i < b.len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			b.data[i] = (char)(b.data[i] ^ (1 << bit));
			if (takes(&s.arch, b.data, b.len))
				fail_msg("bit %d of byte %zu of %zu changed unnoticed", bit, i,
				        b.len);
			b.data[i] = (char)(b.data[i] ^ (1 << bit));
		}
	}
	for (size_t len = 0; len < b.len; len++)
		assert_false(takes(&s.arch, b.data, len));
	buf_close(&b);
	arch_close(&s.arch);
}

static void test_nonfinite_is_not_written(void **state)
{
	const struct weights_info info = {.norm = {1, {0}, {1}}};
	const float bad[] = {NAN, INFINITY, -INFINITY};
	char path[300];
	struct sample s;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/n.safetensors", (char *)*state);
	for (int i = 0; i < 3; i++) {
		s.params[42] = bad[i];
		assert_int_equal(checkpoint_write(path, &s.source, &e), ERR_NONFINITE);
		assert_int_equal(weights_write(path, &s.arch, &info, s.params, &e), ERR_NONFINITE);
		s.params[42] = 0;
		s.v[0] = bad[i];
		assert_int_equal(checkpoint_write(path, &s.source, &e), ERR_NONFINITE);
		s.v[0] = 0;
	}
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	arch_close(&s.arch);
}

/* A file with these tensors, checked against the small model. */
static int check_tensors(const char *folder, const struct st_tensor *t, int n, struct err *e)
{
	char path[300];
	struct arch a;
	struct st_file f;
	int rc;

	small_arch(&a);
	snprintf(path, sizeof path, "%s/t.safetensors", folder);
	assert_int_equal(st_write(path, t, n, NULL, 0, e), 0);
	assert_int_equal(st_open(&f, path, e), 0);
	rc = weights_check(&f, &a, e);
	st_close(&f);
	arch_close(&a);
	return rc;
}

static void test_wrong_tensors_are_named(void **state)
{
	float values[PARAMS_MAX];
	struct st_tensor t[8];
	struct arch a;
	struct err e;

	fill(values, 1);
	small_arch(&a);
	assert_int_equal(a.n_views, 4);
	for (int i = 0; i < 4; i++)
		weights_view(&a.views[i], values, &t[i]);
	assert_int_equal(check_tensors(*state, t, 4, &e), 0);

	assert_int_equal(check_tensors(*state, t, 3, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "1 missing"));
	assert_non_null(strstr(e.msg, a.views[3].name));

	t[4] = t[0];
	t[4].name = "extra.weight";
	assert_int_equal(check_tensors(*state, t, 5, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "extra.weight"));

	const int64_t rows = t[0].dim[0];

	t[0].dim[0] = t[0].dim[1];
	t[0].dim[1] = rows;
	assert_int_equal(check_tensors(*state, t, 4, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "dense1.weight: 6x4, not 4x6"));
	t[0].dim[1] = t[0].dim[0];
	t[0].dim[0] = rows;

	t[1].dtype = ST_I32;
	assert_int_equal(check_tensors(*state, t, 4, &e), ERR_MISMATCH);
	assert_non_null(strstr(e.msg, "I32, not F32"));
	t[1].dtype = ST_F32;

	values[10] = NAN;
	assert_int_equal(check_tensors(*state, t, 4, &e), ERR_NONFINITE);
	assert_non_null(strstr(e.msg, "dense1.weight"));
	arch_close(&a);
}

static void test_numbers_are_strict(void **state)
{
	const char *const bad[] = {"", " 1", "1 ", "+1", "-", "1x", "0x10", "1e", "nan", "inf",
	        "1e999", "99999999999999999999999"};
	uint64_t u;
	int64_t i;
	double d;

	(void)state;
	for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
		assert_false(text_u64(bad[k], &u));
		assert_false(text_i64(bad[k], &i));
	}
	for (size_t k = 0; k < sizeof bad / sizeof bad[0] - 1; k++)
		if (strcmp(bad[k], "+1") != 0)
			assert_false(text_f64(bad[k], &d));
	assert_false(text_u64("-1", &u));
	assert_false(text_u64("9007199254740993", &u));
	assert_true(text_u64("9007199254740992", &u) && u == 1ull << 53);
	assert_false(text_i64("9223372036854775808", &i));
	assert_true(text_i64("-9223372036854775808", &i) && i == INT64_MIN);
	assert_true(text_f64("-1.5e-3", &d) && d == -1.5e-3);
}

static void count_damaged(const char *path, const struct err *why, void *arg)
{
	assert_non_null(strstr(path, "checkpoint-000000000030"));
	assert_true(why->msg[0] != '\0');
	++*(int *)arg;
}

static void test_folder(void **state)
{
	char out[300], path[RUN_DIR_PATH];
	struct run_dir o, second;
	struct sample s;
	struct checkpoint c;
	struct err e;
	uint64_t *steps;
	int n, damaged = 0;

	sample_init(&s);
	s.source.state.best_step = 0;
	snprintf(out, sizeof out, "%s/run/deep", (char *)*state);
	assert_int_equal(run_dir_open(&o, out, &e), 0);
	assert_int_equal(run_dir_open(&second, out, &e), ERR_BUSY);
	assert_int_equal(run_dir_newest(&o, &c, path, count_damaged, &damaged, &e), ERR_NOTFOUND);
	for (uint64_t step = 10; step <= 40; step += 10) {
		s.source.state.step = step;
		assert_int_equal(
		        checkpoint_write(run_dir_checkpoint(&o, step, path), &s.source, &e), 0);
	}
	write_file(run_dir_file(&o, "checkpoint-12.safetensors", path), "x", 1);
	write_file(run_dir_file(&o, "checkpoint-000000000050.safetensors.tmp", path), "x", 1);

	assert_int_equal(run_dir_rotate(&o, 3, &e), 0);
	assert_int_equal(run_dir_list(&o, &steps, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_int_equal(steps[0], 40);
	assert_int_equal(steps[2], 20);
	free(steps);

	assert_int_equal(unlink(run_dir_checkpoint(&o, 40, path)), 0);
	assert_int_equal(truncate(run_dir_checkpoint(&o, 30, path), 700), 0);
	assert_int_equal(run_dir_newest(&o, &c, path, count_damaged, &damaged, &e), 0);
	assert_int_equal(damaged, 1);
	assert_int_equal(c.state.step, 20);
	checkpoint_close(&c);
	/* Put aside, so it is not met again and does not count among the kept. */
	assert_int_equal(run_dir_list(&o, &steps, &n, &e), 0);
	assert_int_equal(n, 1);
	free(steps);
	run_dir_close(&o);

	assert_int_equal(run_dir_open(&o, out, &e), 0);
	assert_int_equal(
	        access(run_dir_file(&o, "checkpoint-000000000050.safetensors.tmp", path), F_OK),
	        -1);
	assert_int_equal(access(run_dir_file(&o, "checkpoint-12.safetensors", path), F_OK), 0);
	run_dir_close(&o);
	arch_close(&s.arch);
}

static void no_damage(const char *path, const struct err *why, void *arg)
{
	(void)path, (void)arg;
	fail_msg("%s", why->msg);
}

/* A copy or a new name makes a checkpoint neither newer nor safe from rotation. */
static void test_step_inside_counts(void **state)
{
	char out[300], path[RUN_DIR_PATH], to[RUN_DIR_PATH];
	struct run_dir o;
	struct sample s;
	struct checkpoint c;
	struct err e;
	uint64_t *names;
	int n;

	sample_init(&s);
	s.source.state.best_step = 0;
	snprintf(out, sizeof out, "%s/renamed", (char *)*state);
	assert_int_equal(run_dir_open(&o, out, &e), 0);
	for (uint64_t step = 10; step <= 30; step += 10) {
		s.source.state.step = step;
		assert_int_equal(
		        checkpoint_write(run_dir_checkpoint(&o, step, path), &s.source, &e), 0);
	}
	run_dir_checkpoint(&o, 10, path);
	assert_int_equal(rename(path, run_dir_checkpoint(&o, 99, to)), 0);
	assert_int_equal(link(run_dir_checkpoint(&o, 20, path), run_dir_checkpoint(&o, 98, to)), 0);
	assert_int_equal(run_dir_newest(&o, &c, path, no_damage, NULL, &e), 0);
	assert_int_equal(c.state.step, 30);
	checkpoint_close(&c);
	assert_int_equal(run_dir_list(&o, &names, &n, &e), 0);
	assert_int_equal(n, 4);
	assert_true(names[0] == 30 && names[1] == 20 && names[2] == 98 && names[3] == 99);
	free(names);
	assert_int_equal(run_dir_rotate(&o, 2, &e), 0);
	assert_int_equal(run_dir_list(&o, &names, &n, &e), 0);
	assert_true(n == 2 && names[0] == 30 && names[1] == 20);
	free(names);
	run_dir_close(&o);
	arch_close(&s.arch);
}

static void rewrite(const char *path, const char *from, const char *to)
{
	struct buf b;
	struct err e;
	char *at;

	buf_init(&b, 1 << 20);
	assert_int_equal(file_read(&b, path, &e), 0);
	at = memmem(b.data, b.len, from, strlen(from));
	assert_non_null(at);
	memcpy(at, to, strlen(to));
	write_file(path, b.data, b.len);
	buf_close(&b);
}

/* One that does not say of which run it is is neither taken nor called damaged. */
static void test_earlier_version(void **state)
{
	char path[300];
	struct sample s;
	struct checkpoint c;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/v1.safetensors", (char *)*state);
	assert_int_equal(checkpoint_write(path, &s.source, &e), 0);
	rewrite(path, "\"version\":\"3\"", "\"version\":\"1\"");
	assert_int_equal(checkpoint_open(&c, path, &e), ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "--out"));
	arch_close(&s.arch);
}

/* What earlier programs can read they are given; the rest they shall call newer, not damaged. */
static void test_versions(void **state)
{
	float *phi;
	char path[300];
	struct sample s;
	struct checkpoint c;
	struct err e;

	sample_init(&s);
	snprintf(path, sizeof path, "%s/versions.safetensors", (char *)*state);
	phi = calloc(s.arch.n_train, sizeof *phi);
	assert_non_null(phi);
	for (int kind = 0; kind < 3; kind++) {
		struct checkpoint_source source = s.source;

		source.state.norm = (struct normalisation){1, {0.5}, {1}};
		if (kind == 1)
			source.phi = source.outer = phi;
		if (kind == 2)
			source.state.norm = (struct normalisation){2, {0.5, 0.25}, {1, 2}};
		assert_int_equal(checkpoint_write(path, &source, &e), 0);
		assert_int_equal(checkpoint_open(&c, path, &e), 0);
		assert_string_equal(st_meta(&c.file, "version"), kind == 0 ? "2" : "3");
		checkpoint_close(&c);
	}
	rewrite(path, "\"version\":\"3\"", "\"version\":\"4\"");
	assert_int_equal(checkpoint_open(&c, path, &e), ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "update dunlin"));
	free(phi);
	arch_close(&s.arch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_round_trip),
	        cmocka_unit_test(test_without_optimiser_state),
	        cmocka_unit_test(test_without_order_seed),
	        cmocka_unit_test(test_arch_from_metadata),
	        cmocka_unit_test(test_long_names),
	        cmocka_unit_test(test_long_names_in_errors),
	        cmocka_unit_test(test_every_damage_is_found),
	        cmocka_unit_test(test_nonfinite_is_not_written),
	        cmocka_unit_test(test_versions),
	        cmocka_unit_test(test_wrong_tensors_are_named),
	        cmocka_unit_test(test_numbers_are_strict),
	        cmocka_unit_test(test_folder),
	        cmocka_unit_test(test_step_inside_counts),
	        cmocka_unit_test(test_earlier_version),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
