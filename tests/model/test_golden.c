/* SPDX-License-Identifier: MIT */
/* Our engine against PyTorch's values in tests/golden: logits, loss and gradients of one batch,
 * then 20 steps of each optimiser, on each backend, with one thread and with two; and the
 * learning-rate schedules. make_golden.py there made the files and says what is in them. Parameters
 * and batches come from a formula that both sides share.
 *
 * Values are compared tensor by tensor, the largest difference over the largest value: PyTorch
 * computed in double, we in single, and rounding alone stays well below the bound. */
#include "agent/config/config.h"
#include "model/graph/optim.h"
#include "model/io/safetensors.h"
#include "tests/model/graph_run.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-4       /* after steps, which magnify rounding */
#define TOLERANCE_FIRST 2e-5 /* before them: near enough to tell one GELU from another */
#define SAMPLES 16

struct golden {
	const char *name;
	const char *where; /* "cpu/2": for messages */
	struct st_file file;
	struct arch arch;
	int64_t batch;
	uint32_t seed; /* of the batches */
	bool sampled;
	double tolerance;
	float *params, *values; /* owned; n_total floats */
	float *x;               /* owned; or tokens */
	int32_t *labels;        /* owned */
};

static void open_file(struct st_file *f, const char *name)
{
	const char *root = getenv("srcdir");
	char path[1024];
	struct err e = {0};
	snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", root ? root : ".", name);
	if (st_open(f, path, &e) != 0)
		fail_msg("%s", e.msg);
}

static const struct st_tensor *find(const struct st_file *f, enum st_dtype type, const char *name)
{
	const struct st_tensor *t = st_find(f, name);
	if (!t || t->dtype != type)
		fail_msg("no tensor %s of type %s", name, st_dtype_text(type));
	return t;
}

static const char *meta(const struct st_file *f, const char *key)
{
	const char *value = st_meta(f, key);
	assert_non_null(value);
	return value;
}

/* The doubles of a tensor that must hold n of them. */
static void read_f64(const struct st_file *f, const char *name, double *out, size_t n)
{
	const struct st_tensor *t = find(f, ST_F64, name);
	assert_int_equal(t->bytes, n * sizeof *out);
	memcpy(out, t->data, t->bytes);
}

/* ---- the shared formula */

static uint32_t mixed_bits(size_t i, uint32_t stream)
{
	uint32_t h = (uint32_t)i * 2654435761u + stream * 40503u + 12345u;
	h = (h ^ h >> 16) * 2246822519u;
	h = (h ^ h >> 13) * 3266489917u;
	return h ^ h >> 16;
}

static void fill_uniform(float *out, size_t n, uint32_t stream, double bound)
{
	for (size_t i = 0; i < n; i++)
		out[i] =
		        (float)(((double)(mixed_bits(i, stream) >> 8) - 0x1p23) * (bound / 0x1p23));
}

static void fill_batch(struct golden *g, uint32_t step)
{
	uint32_t stream = 1000 * (1 + g->seed) + 2 * step;
	const size_t n = (size_t)g->batch * shape_count(&g->arch.input);
	fill_uniform(g->x, g->arch.tokens ? 0 : n, stream, 1.5);
	for (size_t i = 0; g->arch.tokens && i < n; i++)
		((int32_t *)(void *)g->x)[i] =
		        (int32_t)(mixed_bits(i, stream) % (uint64_t)g->arch.classes);
	for (size_t i = 0; i < (size_t)(g->batch * g->arch.positions); i++)
		g->labels[i] = (int32_t)(mixed_bits(i, stream + 1) % (uint64_t)g->arch.classes);
}

/* A view's number in the order of the layers, which need not be that of the flat vector. */
static uint32_t layer_order(const struct arch *a, int view)
{
	uint32_t n = 0;
	for (int i = 0; i < a->n_nodes; i++)
		for (int k = 0; k < a->nodes[i].n_param; k++, n++)
			if (a->nodes[i].param[k] == view)
				return n;
	fail_msg("view %d belongs to no layer", view);
	return n;
}

static void golden_open(struct golden *g, const char *name)
{
	struct layer *layers;
	struct shape input;
	int64_t classes;
	int n;
	struct err e = {0};
	struct buf printed;
	memset(g, 0, sizeof *g);
	g->name = name;
	open_file(&g->file, name);
	const char *model = meta(&g->file, "model");
	g->batch = atoll(meta(&g->file, "batch"));
	g->seed = (uint32_t)atoll(meta(&g->file, "seed"));
	g->sampled = strcmp(meta(&g->file, "values"), "sampled") == 0;
	if (config_parse_model(model, strlen(model), &layers, &n, &input, &classes, &e) != 0 ||
	        arch_resolve(&g->arch, layers, n, &input, classes, &e) != 0)
		fail_msg("%s: %s", name, e.msg);
	free(layers);
	/* Whoever wrote the file knew our canonical form. */
	buf_init(&printed, LIMIT_CONFIG_BYTES);
	assert_int_equal(arch_print(&g->arch, &printed), 0);
	assert_string_equal(printed.data, model);
	buf_close(&printed);

	g->params = calloc(g->arch.n_total, sizeof *g->params);
	g->values = calloc(g->arch.n_total, sizeof *g->values);
	g->x = calloc((size_t)g->batch * shape_count(&input), sizeof *g->x);
	g->labels = calloc((size_t)(g->batch * g->arch.positions), sizeof *g->labels);
	assert_true(g->params && g->values && g->x && g->labels);
	for (int v = 0; v < g->arch.n_views; v++) {
		const struct param_view *p = &g->arch.views[v];
		float *at = g->params + p->offset;
		fill_uniform(at, p->count, layer_order(&g->arch, v), 2 / sqrt((double)p->fan_in));
		if (strstr(p->name, ".running_var"))
			for (size_t i = 0; i < p->count; i++)
				at[i] = fabsf(at[i]);
	}
}

static void golden_close(struct golden *g)
{
	st_close(&g->file);
	arch_close(&g->arch);
	free(g->params);
	free(g->values);
	free(g->x);
	free(g->labels);
}

/* ---- comparing */

static void check_apart(
        const struct golden *g, const char *what, const float *got, const float *want, size_t n)
{
	double worst = 0, top = 0;
	for (size_t i = 0; i < n; i++) {
		double off = fabs((double)got[i] - (double)want[i]);
		worst = off > worst || isnan(off) ? off : worst;
		top = fmax(top, fabs((double)want[i]));
	}
	if (!(worst <= g->tolerance * top))
		fail_msg("%s on %s: %s is off by %.2g of its largest value %g", g->name, g->where,
		        what, worst / top, top);
}

static void check_losses(const struct golden *g, const char *what, const double *got, size_t n)
{
	double want[64];
	assert_true(n <= 64);
	read_f64(&g->file, what, want, n);
	for (size_t i = 0; i < n; i++)
		if (!(fabs(got[i] - want[i]) <= g->tolerance * want[i]))
			fail_msg("%s on %s: %s[%zu] is %.9g, not %.9g", g->name, g->where, what, i,
			        got[i], want[i]);
}

/* Every view of a flat vector against the tensors named prefix + view. */
static void check_views(const struct golden *g, const char *prefix, const float *flat)
{
	for (int v = 0; v < g->arch.n_views; v++) {
		const struct param_view *p = &g->arch.views[v];
		const float *at = flat + p->offset;
		char name[LIMIT_TENSOR_NAME + 64];
		if (p->group == PARAM_STAT && strcmp(prefix, "grad.") == 0)
			continue;
		snprintf(name, sizeof name, "%s%s", prefix, p->name);
		const struct st_tensor *t = find(&g->file, ST_F32, name);
		float *want = malloc(t->bytes);
		assert_non_null(want);
		memcpy(want, t->data, t->bytes);
		if (g->sampled) {
			assert_int_equal(t->bytes, (1 + SAMPLES) * sizeof *want);
			float got[SAMPLES], norm;
			double squares = 0;
			for (size_t i = 0; i < p->count; i++)
				squares += (double)at[i] * at[i];
			norm = (float)sqrt(squares);
			for (size_t i = 0; i < SAMPLES; i++)
				got[i] = at[(2 * i + 1) * p->count / (2 * (size_t)SAMPLES)];
			check_apart(g, name, &norm, want, 1);
			check_apart(g, name, got, want + 1, SAMPLES);
		} else {
			assert_int_equal(t->rank, p->shape.rank);
			for (int i = 0; i < t->rank; i++)
				assert_int_equal(t->dim[i], p->shape.dim[i]);
			check_apart(g, name, at, want, p->count);
		}
		free(want);
	}
}

/* ---- running */

static double train_batch(struct golden *g, struct graph *n, uint32_t step)
{
	struct loss_result r;
	struct err e = {0};
	fill_batch(g, step);
	if (graph_train(n, g->x, g->labels, false, 1 / (float)g->batch, step, &r, &e) != 0)
		fail_msg("%s", e.msg);
	assert_int_equal(r.count, g->batch * g->arch.positions);
	return r.loss_sum / (double)r.count;
}

static void check_first(struct golden *g, struct graph *n)
{
	size_t count = (size_t)(g->batch * g->arch.positions * g->arch.classes);
	float *logits = malloc(2 * count * sizeof *logits), *want = logits + count;
	struct loss_result r;
	struct err e = {0};
	assert_non_null(logits);
	graph_set_params(n, g->params);
	fill_batch(g, 0);
	assert_int_equal(graph_eval(n, g->x, g->labels, g->batch, &r, &e), 0);
	/* A backward pass may use the logits' memory again, so they are read here. */
	graph_logits(n, logits);
	const struct st_tensor *t = find(&g->file, ST_F32, "logits");
	assert_int_equal(t->bytes, count * sizeof *want);
	memcpy(want, t->data, t->bytes);
	check_apart(g, "logits", logits, want, count);
	double loss = r.loss_sum / (double)r.count;
	check_losses(g, st_find(&g->file, "eval_loss") ? "eval_loss" : "loss", &loss, 1);
	loss = train_batch(g, n, 0);
	check_losses(g, "loss", &loss, 1);
	n->dev->backend->download(n->dev, g->values, n->grads, g->arch.n_total * sizeof(float));
	check_views(g, "grad.", g->values);
	free(logits);
}

/* False when the file has no such run. */
static bool check_run(struct golden *g, struct graph *n, const char *run)
{
	enum { STEPS = 20 };
	double s[8], lr[STEPS], losses[STEPS], norm;
	char name[64];
	struct optim o;
	struct err e = {0};
	snprintf(name, sizeof name, "%s.settings", run);
	if (!st_find(&g->file, name))
		return false;
	read_f64(&g->file, name, s, 8);
	struct optim_config c = {.kind = s[0] != 0 ? OPTIM_ADAMW : OPTIM_SGD,
	        .momentum = s[1],
	        .nesterov = s[2] != 0,
	        .weight_decay = s[3],
	        .beta1 = s[4],
	        .beta2 = s[5],
	        .eps = s[6],
	        .clip = s[7]};
	snprintf(name, sizeof name, "%s.lr", run);
	read_f64(&g->file, name, lr, STEPS);
	graph_set_params(n, g->params);
	assert_int_equal(optim_init(&o, &c, n, &e), 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		losses[i] = train_batch(g, n, i);
		if (optim_step(&o, lr[i], &norm, &e) != 0)
			fail_msg("%s", e.msg);
	}
	optim_close(&o);
	snprintf(name, sizeof name, "%s.losses", run);
	check_losses(g, name, losses, STEPS);
	graph_get_params(n, g->values);
	snprintf(name, sizeof name, "%s.param.", run);
	check_views(g, name, g->values);
	return true;
}

static void model_matches(void **state)
{
	static const struct {
		const char *text, *spec;
		int threads;
	} devices[] = {{"plain", "plain", 1}, {"cpu/1", "cpu", 1}, {"cpu/2", "cpu", 2}};
	static const char *const runs[] = {"sgd", "momentum", "nesterov", "adamw"};
	struct golden g;
	golden_open(&g, *state);
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		struct device_config c = {.threads = devices[i].threads};
		struct device *d;
		struct graph *n = NULL;
		struct err e = {0};
		int done = 0;
		g.where = devices[i].text;
		if (device_open(&d, devices[i].spec, &c, NULL, &e) != 0 ||
		        graph_new(&n, &g.arch, d, g.batch, &e) != 0)
			fail_msg("%s: %s", devices[i].text, e.msg);
		g.tolerance = TOLERANCE_FIRST;
		check_first(&g, n);
		g.tolerance = TOLERANCE;
		for (size_t k = 0; k < sizeof runs / sizeof *runs; k++)
			done += check_run(&g, n, runs[k]);
		assert_int_equal(done, g.sampled ? 2 : 4);
		graph_free(n);
		device_close(d);
	}
	golden_close(&g);
}

static void schedules_match(void **state)
{
	static const char *const names[] = {
	        "constant", "step", "warmup_step", "cosine", "warmup_cosine"};
	struct st_file f;
	(void)state;
	open_file(&f, "schedules");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		double s[6], factors[512];
		char name[64];
		snprintf(name, sizeof name, "%s.settings", names[i]);
		read_f64(&f, name, s, 6);
		struct schedule c = {(enum schedule_kind)s[0], (uint64_t)s[1], (uint64_t)s[2],
		        (uint64_t)s[3], s[4], s[5]};
		assert_true(c.total < 512);
		snprintf(name, sizeof name, "%s.factors", names[i]);
		read_f64(&f, name, factors, c.total + 1);
		for (uint64_t k = 0; k <= c.total; k++)
			if (!(fabs(schedule_factor(&c, k) - factors[k]) < 1e-9))
				fail_msg("%s: after %u samples %.12g, not %.12g", names[i],
				        (unsigned)k, schedule_factor(&c, k), factors[k]);
	}
	st_close(&f);
}

#define MODEL(file)                                                      \
	{                                                                \
		file " matches", model_matches, NULL, NULL, (void *)file \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        MODEL("dense"),
	        MODEL("conv"),
	        MODEL("pools"),
	        MODEL("residual"),
	        MODEL("norms"),
	        MODEL("layer_norms"),
	        MODEL("gpt"),
	        MODEL("mlp"),
	        MODEL("cnn"),
	        cmocka_unit_test(schedules_match),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
