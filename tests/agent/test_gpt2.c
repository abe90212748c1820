/* SPDX-License-Identifier: MIT */
/* GPT-2's weights in Hugging Face's layout. tests/golden/gpt2 is such a model as transformers would
 * write it, in two files and three kinds of floats, and tests/golden/gpt2.safetensors what PyTorch
 * computes with it: make_golden.py has the network under their names. What goes out must be that
 * layout again, and everything that can be wrong with such a folder is said in words. */
#include "tests/support.h"

#include "agent/config/gpt2_config.h"
#include "agent/train/checkpoint.h"
#include "agent/train/gpt2.h"
#include "agent/train/weights.h"
#include "tests/model/graph_run.h"

#include <math.h>
#include <sys/stat.h>

#define T 6
#define VOCABULARY 11
#define TENSORS_MAX 64

static const char *golden(const char *name, char out[512])
{
	const char *root = getenv("srcdir");

	snprintf(out, 512, "%s/tests/golden/%s", root != NULL ? root : ".", name);
	return out;
}

static const char *in(void *const *state, const char *name, char out[512])
{
	snprintf(out, 512, "%s/%s", (const char *)*state, name);
	return out;
}

/* The model at path and its parameters, the caller's. */
static float *load(const char *path, struct arch *a)
{
	struct st_file f;
	struct err e;

	if (checkpoint_open_weights(&f, path, &e) != 0 || weights_arch(&f, a, &e) != 0 ||
	        weights_check(&f, a, &e) != 0)
		fail_msg("%s", e.msg);
	float *params = malloc(a->n_total * sizeof *params);

	assert_non_null(params);
	weights_copy(&f, a, params);
	st_close(&f);
	return params;
}

static void refuse(const char *path, int code, const char *text)
{
	struct st_file f;
	struct arch a;
	struct err e;
	int rc = checkpoint_open_weights(&f, path, &e);

	if (rc == 0) {
		rc = weights_arch(&f, &a, &e);
		if (rc == 0) {
			rc = weights_check(&f, &a, &e);
			arch_close(&a);
		}
		st_close(&f);
	}
	if (rc != code || strstr(e.msg, text) == NULL)
		fail_msg("%d, \"%s\": not %d, \"%s\"", rc, rc != 0 ? e.msg : "", code, text);
}

/* ---- in */

static void check_logits(const char *path, const char *backend)
{
	char name[512];
	struct arch a;
	struct st_file f;
	struct device *dev;
	struct graph *net;
	struct loss_result r;
	struct err e;
	const struct device_config dc = {.threads = 2};
	int32_t tokens[T], labels[T] = {0};
	float got[T * VOCABULARY], want[T * VOCABULARY], most = 0;
	float *params = load(path, &a);

	assert_int_equal(st_open(&f, golden("gpt2.safetensors", name), &e), 0);
	assert_int_equal(st_find(&f, "logits")->bytes, sizeof want);
	memcpy(want, st_find(&f, "logits")->data, sizeof want);
	for (int i = 0; i < T; i++) {
		int64_t v;

		memcpy(&v, (const char *)st_find(&f, "tokens")->data + 8 * i, sizeof v);
		tokens[i] = (int32_t)v;
	}
	st_close(&f);
	assert_int_equal(device_open(&dev, backend, &dc, NULL, &e), 0);
	assert_int_equal(graph_new(&net, &a, dev, 1, &e), 0);
	graph_set_params(net, params);
	assert_int_equal(graph_eval(net, tokens, labels, 1, &r, &e), 0);
	graph_logits(net, got);
	for (int i = 0; i < T * VOCABULARY; i++)
		most = fmaxf(most, fabsf(want[i]));
	for (int i = 0; i < T * VOCABULARY; i++)
		if (!(fabsf(got[i] - want[i]) <= 1e-5f * most))
			fail_msg("%s: logit %d is %g, not %g", backend, i, (double)got[i],
			        (double)want[i]);
	graph_free(net);
	device_close(dev);
	arch_close(&a);
	free(params);
}

static void test_theirs_computes_the_same(void **state)
{
	char path[512];
	(void)state;

	check_logits(golden("gpt2", path), "plain");
	check_logits(golden("gpt2", path), "cpu");
	check_logits(golden("gpt2/model.safetensors.index.json", path), "cpu");
}

/* ---- out, and in again */

static void test_what_goes_out_is_theirs(void **state)
{
	char path[512];
	struct arch a, b;
	struct st_file ours, theirs;
	struct buf x, y;
	struct err e;
	float *p = load(golden("gpt2", path), &a), *q;

	assert_int_equal(gpt2_write(in(state, "new/out", path), &a, p, &e), 0);
	q = load(path, &b);
	buf_init(&x, 1 << 20);
	buf_init(&y, 1 << 20);
	assert_int_equal(arch_print(&a, &x), 0);
	assert_int_equal(arch_print(&b, &y), 0);
	assert_string_equal(x.data, y.data);
	assert_int_equal(a.n_total, b.n_total);
	assert_memory_equal(p, q, a.n_total * sizeof *p);
	assert_int_equal(st_open(&ours, in(state, "new/out/model.safetensors", path), &e), 0);
	assert_string_equal(st_meta(&ours, "format"), "pt");
	assert_int_equal(ours.n_meta, 1);
	/* The same names and shapes as theirs, but for the masks. */
	assert_int_equal(
	        st_open_index(&theirs, golden("gpt2/model.safetensors.index.json", path), &e), 0);
	assert_int_equal(st_widen(&theirs, &e), 0);
	assert_int_equal(ours.n_tensors, theirs.n_tensors - 4);
	for (int i = 0; i < ours.n_tensors; i++) {
		const struct st_tensor *t = &ours.tensors[i], *u = st_find(&theirs, t->name);

		assert_non_null(u);
		assert_true(t->dtype == ST_F32 && u->dtype == ST_F32 && t->rank == u->rank);
		assert_memory_equal(t->dim, u->dim, (size_t)t->rank * sizeof *t->dim);
		assert_memory_equal(t->data, u->data, t->bytes);
	}
	st_close(&ours);
	st_close(&theirs);
	buf_close(&x);
	buf_close(&y);
	arch_close(&a);
	arch_close(&b);
	free(p);
	free(q);
}

static void refuse_out(
        void *const *state, const struct arch *a, const float *params, const char *text)
{
	char path[512];
	struct err e;

	assert_int_equal(
	        gpt2_write(in(state, "refused", path), a, params, &e), ERR_UNSUPPORTED);
	if (strstr(e.msg, text) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", text, e.msg);
	assert_int_not_equal(access(path, F_OK), 0);
}

static void test_other_models_have_no_such_layout(void **state)
{
	char path[512];
	struct arch a, mlp;
	struct err e;
	float *p = load(golden("gpt2", path), &a);
	const struct shape input = {3, {4, 4, 1}};

	assert_int_equal(arch_preset(&mlp, "mlp", NULL, &input, 3, &e), 0);
	refuse_out(state, &mlp, p, "no GPT-2: only preset gpt has this layout");
	arch_close(&mlp);
	assert_int_equal(a.nodes[8].layer.kind, LAYER_GELU);
	a.nodes[8].layer.tanh = false; /* of one block alone: the other is unlike it */
	refuse_out(state, &a, p, "layer 19 is not that of preset gpt");
	a.nodes[8].layer.tanh = true;
	a.nodes[13].layer.heads = 4;
	assert_int_equal(a.nodes[13].layer.kind, LAYER_ATTENTION);
	refuse_out(state, &a, p, "layer 14 is not");
	arch_close(&a);
	free(p);
}

/* A list of layers may have one that is called like theirs. */
static void test_our_own_names_stay(void **state)
{
	static const float one[2] = {1, 2};
	const struct st_tensor t[] = {{"wte.weight", ST_F32, 1, {1}, 4, one},
	        {"h.0.mlp.c_fc.weight", ST_F32, 2, {1, 2}, 8, one}};
	const struct st_meta ours[] = {{"format", WEIGHTS_FORMAT}, {"model", "{}"}};
	char path[512];
	struct st_file f;
	struct err e;

	for (int n = 0; n <= 2; n += 2) {
		assert_int_equal(
		        st_write(in(state, "wte.safetensors", path), t, 2, ours, n, &e), 0);
		assert_int_equal(checkpoint_open_weights(&f, path, &e), 0);
		assert_int_equal(st_find(&f, "wte.weight") != NULL, n == 2);
		assert_int_equal(st_find(&f, "h.0.mlp.c_fc.weight")->dim[0], n == 2 ? 1 : 2);
		st_close(&f);
	}
}

/* ---- damage */

/* A folder in the layout, in one file, whose tensors may be changed. */
struct work {
	char path[256];
	struct st_file file;
	struct st_tensor t[TENSORS_MAX];
	int n;
};

static void work_open(struct work *w, void *const *state)
{
	char path[512];
	struct arch a;
	struct err e;
	float *p = load(golden("gpt2", path), &a);

	snprintf(w->path, sizeof w->path, "%s/work", (const char *)*state);
	assert_int_equal(gpt2_write(w->path, &a, p, &e), 0);
	snprintf(path, sizeof path, "%s/model.safetensors", w->path);
	assert_int_equal(st_open(&w->file, path, &e), 0);
	assert_true(w->file.n_tensors < TENSORS_MAX - 2);
	w->n = w->file.n_tensors;
	memcpy(w->t, w->file.tensors, (size_t)w->n * sizeof *w->t);
	arch_close(&a);
	free(p);
}

static struct st_tensor *tensor(struct work *w, const char *name)
{
	for (int i = 0; i < w->n; i++)
		if (strcmp(w->t[i].name, name) == 0)
			return &w->t[i];
	fail_msg("no tensor %s", name);
	return NULL;
}

static void work_write(struct work *w)
{
	char path[512];
	struct err e;

	snprintf(path, sizeof path, "%s/model.safetensors", w->path);
	assert_int_equal(st_write(path, w->t, w->n, NULL, 0, &e), 0);
}

/* Writes the tensors as they are, wants that error, and takes them back to what they were. */
static void refuse_tensors(struct work *w, int code, const char *text)
{
	work_write(w);
	refuse(w->path, code, text);
	w->n = w->file.n_tensors;
	memcpy(w->t, w->file.tensors, (size_t)w->n * sizeof *w->t);
}

static void test_damaged_tensors(void **state)
{
	struct work w;
	struct st_tensor *t;
	float other[VOCABULARY * 8] = {0}, none[8] = {NAN};

	work_open(&w, state);
	t = tensor(&w, "transformer.h.1.ln_2.bias");
	*t = w.t[--w.n];
	refuse_tensors(&w, ERR_MISMATCH, "1 missing (h.1.ln_2.bias)");
	t = tensor(&w, "transformer.h.0.attn.c_attn.bias");
	t->name = "transformer.h.0.attn.rotary";
	refuse_tensors(&w, ERR_MISMATCH,
	        "1 missing (h.0.attn.c_attn.bias); 1 not in the model (h.0.attn.rotary)");
	t = tensor(&w, "transformer.h.0.mlp.c_fc.weight"); /* as a dense layer has it */
	assert_true(t->dim[0] == 8 && t->dim[1] == 32);
	t->dim[0] = 32;
	t->dim[1] = 8;
	refuse_tensors(&w, ERR_MISMATCH, "of another shape (h.0.mlp.c_fc.weight: 8x32, not 32x8)");
	t = tensor(&w, "transformer.h.0.mlp.c_fc.weight");
	t->rank = 3;
	t->dim[2] = 1;
	refuse_tensors(&w, ERR_MISMATCH, "(h.0.mlp.c_fc.weight: 8x32x1, not 32x8)");
	t = tensor(&w, "transformer.wpe.weight");
	t->dim[0]--;
	t->bytes -= 8 * sizeof(float);
	refuse_tensors(&w, ERR_MISMATCH, "(embed.position: 5x8, not 6x8)");
	t = tensor(&w, "transformer.ln_f.bias");
	t->dtype = ST_I32;
	refuse_tensors(&w, ERR_MISMATCH, "of another type (ln_f.bias: I32, not F32)");
	t = tensor(&w, "transformer.ln_f.bias");
	t->data = none;
	refuse_tensors(&w, ERR_NONFINITE, "1 not finite (ln_f.bias)");
	t = &w.t[w.n++]; /* the same name with the prefix and without */
	*t = *tensor(&w, "transformer.ln_f.bias");
	t->name = "ln_f.bias";
	refuse_tensors(&w, ERR_FORMAT, "tensor ln_f.bias twice, with \"transformer.\" before it");
	t = &w.t[w.n++];
	*t = *tensor(&w, "transformer.wte.weight");
	t->name = "lm_head.weight";
	t->data = other;
	refuse_tensors(&w, ERR_UNSUPPORTED, "lm_head.weight is not wte.weight");
	t = &w.t[w.n++]; /* a head that is tied may be there */
	*t = *tensor(&w, "transformer.wte.weight");
	t->name = "lm_head.weight";
	for (int i = 0; i < w.n; i++) /* and the prefix need not */
		if (strncmp(w.t[i].name, "transformer.", 12) == 0)
			w.t[i].name += 12;
	work_write(&w);
	check_logits(w.path, "cpu");
	st_close(&w.file);
}

static void set_eps(struct arch *a, double eps)
{
	for (int i = 0; i < a->n_nodes; i++)
		if (a->nodes[i].layer.kind == LAYER_LAYER_NORM)
			a->nodes[i].layer.eps = eps;
}

/* Weights for more positions than the model has, but not for other heads or another eps. */
static void test_what_a_trainer_takes(void **state)
{
	char path[512];
	const struct arch_gpt sizes = {2, 8, 2}, heads = {2, 8, 4};
	const struct shape shorter = {1, {4}};
	struct arch whole, a;
	struct st_file f;
	struct err e;
	float *p = load(golden("gpt2", path), &whole), *q = malloc(whole.n_total * sizeof *q);
	(void)state;

	assert_non_null(q);
	assert_int_equal(checkpoint_open_weights(&f, path, &e), 0);
	assert_int_equal(arch_preset(&a, "gpt", &sizes, &shorter, VOCABULARY, &e), 0);
	assert_int_equal(weights_check(&f, &a, &e), 0);
	assert_int_equal(weights_check_model(&f, &a, &e), ERR_MISMATCH);
	assert_string_equal(e.msg,
	        "layer h.0.ln_1: eps 0.0009765625, but the model here has 1e-05 (\"eps\" of the "
	        "layer in model.layers)");
	set_eps(&a, 0x1p-10);
	assert_int_equal(weights_check_model(&f, &a, &e), 0);
	weights_copy(&f, &a, q);
	for (int i = 0; i < a.n_views; i++) {
		const struct param_view *v = &a.views[i], *u = &whole.views[i];

		assert_string_equal(v->name, u->name);
		assert_memory_equal(q + v->offset, p + u->offset, v->count * sizeof *q);
	}
	arch_close(&a);
	assert_int_equal(arch_preset(&a, "gpt", &heads, &shorter, VOCABULARY, &e), 0);
	set_eps(&a, 0x1p-10);
	assert_int_equal(weights_check(&f, &a, &e), 0);
	assert_int_equal(weights_check_model(&f, &a, &e), ERR_MISMATCH);
	assert_string_equal(e.msg, "layer h.0.attn: 2 heads, but the model here has 4 (gpt.heads)");
	arch_close(&a);
	arch_close(&whole);
	st_close(&f);
	free(p);
	free(q);
}

static void test_damaged_indexes(void **state)
{
	char path[512], folder[512], copy[512];
	struct err e;
	struct st_file f;

	assert_int_equal(mkdir(in(state, "index", folder), 0777), 0);
	refuse(folder, ERR_IO, "neither model.safetensors nor model.safetensors.index.json");
	snprintf(path, sizeof path, "%.200s/model.safetensors.index.json", folder);
	const struct {
		const char *text, *want;
		int code;
	} rows[] = {
	        {"", "the index is no JSON object", ERR_FORMAT},
	        {"{\"weight_map\": {}", "the index ends in the middle", ERR_FORMAT},
	        {"{\"weight_map\" {}}", "the index is not valid JSON", ERR_FORMAT},
	        {"{\"weight_map\": [[[[]]]]}", "nested deeper", ERR_FORMAT},
	        {"{\"weight_map\": {}}\n", "no \"weight_map\" with tensors", ERR_FORMAT},
	        {"{\"weight_map\": {\"a\": 3}}", "tensor a: no name of a file", ERR_FORMAT},
	        {"{\"weight_map\": {\"a\": \"../b\"}}", "tensor a: its file must", ERR_FORMAT},
	        {"{\"weight_map\": {\"a\": \"..\"}}", "tensor a: its file must", ERR_FORMAT},
	        {"{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}", "tensor a twice", ERR_FORMAT},
	        {"{\"weight_map\": {\"a\": \"b\"}}", "b: open: No such file", ERR_IO},
	        {"{\"weight_map\": {\"x\": \"m\"}}", "tensor y of m is not in the index",
	                ERR_MISMATCH},
	        {"{\"weight_map\": {\"x\": \"m\", \"y\": \"m\", \"z\": \"m\"}}",
	                "tensor z is not in m, where the index has it", ERR_MISMATCH},
	        {"{\"weight_map\": {\"x\": \"m\", \"y\": \"n\"}}",
	                "tensor y is in m, the index has it in n", ERR_MISMATCH},
	};
	const struct st_tensor two[] = {
	        {"x", ST_F32, 1, {1}, 4, "abcd"}, {"y", ST_F32, 1, {1}, 4, "efgh"}};

	snprintf(copy, sizeof copy, "%.200s/m", folder);
	assert_int_equal(st_write(copy, two, 2, NULL, 0, &e), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		write_file(path, rows[i].text, strlen(rows[i].text));
		refuse(folder, rows[i].code, rows[i].want);
	}
	write_file(path, "{\"weight_map\": {\"x\": \"m\", \"y\": \"m\"}}\r\n", 38);
	assert_int_equal(st_open_index(&f, path, &e), 0);
	assert_int_equal(f.n_tensors, 2);
	assert_memory_equal(st_find(&f, "y")->data, "efgh", 4);
	st_close(&f);
}

static void refuse_config(const char *text, int code, const char *want)
{
	struct gpt2_config c;
	struct err e = {0};

	if (gpt2_config_parse(&c, text, strlen(text), &e) != code || strstr(e.msg, want) == NULL)
		fail_msg("%s: \"%s\", not \"%s\"", text, e.msg, want);
}

static void test_configs(void **state)
{
	static const char plain[] = "{\"model_type\": \"gpt2\"}";
	struct gpt2_config c, d;
	struct buf text;
	struct err e;
	(void)state;

	assert_int_equal(gpt2_config_parse(&c, plain, strlen(plain), &e), 0);
	assert_true(c.layers == 12 && c.width == 768 && c.heads == 12 && c.positions == 1024 &&
	            c.vocabulary == 50257 && c.eps == 1e-5 && c.tanh);
	c = (struct gpt2_config){3, 48, 6, 77, 300, 1e-6, false};
	buf_init(&text, 4096);
	assert_int_equal(gpt2_config_print(&c, &text), 0);
	assert_int_equal(gpt2_config_parse(&d, text.data, text.len, &e), 0);
	assert_true(d.layers == 3 && d.width == 48 && d.heads == 6 && d.positions == 77 &&
	            d.vocabulary == 300 && d.eps == 1e-6 && !d.tanh);
	assert_non_null(strstr(text.data, "\"eos_token_id\": null"));
	buf_close(&text);
	refuse_config("", ERR_FORMAT, "line 1, column 1");
	refuse_config("[]", ERR_FORMAT, "no object but a list");
	refuse_config("{}", ERR_UNSUPPORTED, "no \"model_type\": \"gpt2\"");
	refuse_config("{\n\"model_type\": \"llama\"}", ERR_UNSUPPORTED,
	        "line 2: model_type must be \"gpt2\"");
#define WITH(more) "{\"model_type\": \"gpt2\", " more "}"
	refuse_config(WITH("\"n_head\": 7"), ERR_INVALID, "n_embd 768 is no multiple of n_head 7");
	refuse_config(WITH("\"n_layer\": 0"), ERR_UNSUPPORTED, "n_layer must be a whole number");
	refuse_config(WITH("\"n_layer\": 101"), ERR_UNSUPPORTED, "from 1 to 100");
	refuse_config(WITH("\"vocab_size\": 2.5"), ERR_UNSUPPORTED, "vocab_size must be");
	refuse_config(WITH("\"n_positions\": \"9\""), ERR_UNSUPPORTED, "n_positions must be");
	refuse_config(WITH("\"n_embd\": 12, \"n_embd\": 12"), ERR_FORMAT, "given twice");
	refuse_config(WITH("\"n_inner\": 100"), ERR_UNSUPPORTED, "n_inner must be null or 4");
	refuse_config(WITH("\"activation_function\": \"relu\""), ERR_UNSUPPORTED, "gelu_new");
	refuse_config(WITH("\"layer_norm_epsilon\": 0"), ERR_UNSUPPORTED, "from 1e-12 to 1");
	refuse_config(WITH("\"tie_word_embeddings\": false"), ERR_UNSUPPORTED,
	        "tie_word_embeddings must be true");
	refuse_config(WITH("\"scale_attn_by_inverse_layer_idx\": true"), ERR_UNSUPPORTED,
	        "scale_attn_by_inverse_layer_idx must be false");
}

/* Beside the weights: the file is named, and that there is none is no error. */
static void test_a_folders_config(void **state)
{
	char path[512];
	struct work w;
	struct st_file f;
	struct arch a;
	struct err e;

	work_open(&w, state);
	work_write(&w);
	snprintf(path, sizeof path, "%s/config.json", w.path);
	write_file(path, "{\"model_type\": \"gpt2\"}", 22);
	refuse(w.path, ERR_MISMATCH, "missing"); /* GPT-2's own sizes are others */
	write_file(path, "{\"model_type\": \"bert\"}", 22);
	refuse(w.path, ERR_UNSUPPORTED, "config.json: line 1: model_type must be");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(checkpoint_open_weights(&f, w.path, &e), 0);
	assert_int_equal(weights_arch(&f, &a, &e), ERR_NOTFOUND);
	st_close(&f);
	st_close(&w.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_theirs_computes_the_same),
	        cmocka_unit_test(test_what_goes_out_is_theirs),
	        cmocka_unit_test(test_other_models_have_no_such_layout),
	        cmocka_unit_test(test_our_own_names_stay),
	        cmocka_unit_test(test_damaged_tensors),
	        cmocka_unit_test(test_what_a_trainer_takes),
	        cmocka_unit_test(test_damaged_indexes),
	        cmocka_unit_test(test_configs),
	        cmocka_unit_test(test_a_folders_config),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
