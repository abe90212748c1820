/* SPDX-License-Identifier: MIT */
/* Small models that have every op in every role, and a comparison of a backend with the plain one
 * on them: for the tests of all backends. */
#ifndef DUNLIN_TESTS_MODEL_OPS_FIXTURE_H
#define DUNLIN_TESTS_MODEL_OPS_FIXTURE_H

#include "agent/base/rng.h"
#include "tests/model/graph_run.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 5
#define CLASSES 4

struct model_case {
	const char *name;
	struct shape input;
	/* "type key=value …; type …": short enough to read all cases at a glance */
	const char *layers;
};

/* What each is there for: fused and unfused relus, odd sizes, strides, padding, no bias, windows
 * that overlap or leave an edge, several readers, and every kind at least once. */
static const struct model_case cases[] = {
        {"dense", {1, {7}}, "dense units=4"},
        {"dense chain", {1, {130}},
                "dense units=150; relu; dense units=70 bias=0; gelu; dense units=4"},
        {"relu last", {1, {9}}, "dense units=4; relu"},
        {"image flattened", {3, {5, 4, 3}}, "flatten; dense units=8; relu; dense units=4"},
        {"conv", {3, {6, 5, 3}}, "conv2d units=4 kernel=3 pad=1; relu; flatten; dense units=4"},
        {"conv strides", {3, {9, 8, 2}},
                "conv2d units=5 kernel=3 stride=2 pad=1 bias=0; conv2d units=6 kernel=2; gelu; "
                "global_pool; dense units=4"},
        {"conv 5x5, 1 channel", {3, {12, 12, 1}},
                "conv2d units=16 kernel=5 pad=2; relu; max_pool; conv2d units=32 kernel=1; relu; "
                "max_pool; flatten; dense units=4"},
        {"pool leaves an edge", {3, {7, 5, 3}},
                "conv2d units=8 kernel=3 pad=1; relu; max_pool; flatten; dense units=4"},
        {"pools overlap", {3, {9, 9, 2}},
                "conv2d units=4 kernel=3 pad=1; max_pool kernel=3 stride=2 pad=1; relu; "
                "avg_pool kernel=3 stride=1 pad=1; flatten; dense units=4"},
        {"pool behind relu overlaps", {3, {8, 8, 2}},
                "conv2d units=4 kernel=3 pad=1; relu; max_pool kernel=3 stride=2; flatten; dense "
                "units=4"},
        {"average behind relu", {3, {8, 6, 3}},
                "conv2d units=4 kernel=3 pad=1; relu; avg_pool; conv2d units=5 kernel=2; relu; "
                "global_pool; dense units=4"},
        {"dropout", {1, {40}}, "dense units=64; relu; dropout p=0.3; dense units=4"},
        {"residual", {3, {6, 6, 3}},
                "conv2d units=4 kernel=3 pad=1 name=a; relu name=b; conv2d units=4 kernel=3 pad=1 "
                "name=c; add from=b,c; relu; conv2d units=4 kernel=1 name=d; add from=relu2,d; "
                "max_pool; flatten; dense units=4"},
        {"added to itself", {1, {6}}, "dense units=4 name=a; add from=a,a"},
        {"batch norm", {3, {5, 4, 3}},
                "conv2d units=20 kernel=3 pad=1 bias=0 std=0.3; batch_norm momentum=0.3; relu; "
                "conv2d units=4 kernel=3 bias=0 name=c; batch_norm eps=0.01; gelu; flatten; dense "
                "units=4"},
        {"batch norm of vectors", {1, {9}},
                "batch_norm; relu; dense units=70 bias=0; batch_norm; relu; dense units=4"},
        {"shortcuts", {3, {7, 6, 3}},
                "conv2d units=3 kernel=3 pad=1 std=1; gelu name=b; shortcut units=5 stride=2 "
                "name=s; conv2d units=5 kernel=3 stride=2 pad=1 bias=0 std=1 from=b; batch_norm "
                "name=n; add from=n,s; relu; global_pool; dense units=4"},
        {"layer norm", {3, {5, 4, 3}},
                "layer_norm; conv2d units=6 kernel=3 pad=1; relu; layer_norm eps=0.01; gelu "
                "tanh=1; "
                "flatten; dense units=37; gelu tanh=1; layer_norm; dense units=4"},
        {"tokens", {1, {6}}, "embedding units=5 std=0.5; dense units=4"},
        {"gpt", {1, {9}},
                "embedding units=12 std=0.7 name=e; layer_norm; dense units=36 std=0.4; attention "
                "heads=3; dense units=12 name=p; add from=e,p name=r; layer_norm; dense units=20; "
                "gelu tanh=1; dense units=12 name=m; add from=r,m; layer_norm; head"},
        {"attention twice, 2 heads", {1, {21}},
                "embedding units=34 std=0.5 name=e; dense units=102; attention heads=2; relu; "
                "dense units=102; attention heads=17; head name=h; dense units=4 from=h"},
        {"flatten behind relu", {3, {4, 4, 2}},
                "conv2d units=3 kernel=3; relu; flatten; dropout p=0.5; dense units=4"},
};
#define N_CASES (sizeof cases / sizeof *cases)

/* The kind in it that a GPU does not have; NULL: it has all. */
static inline const char *cpu_only(const struct model_case *c)
{
	static const char *const kinds[] = {"embedding", "batch_norm", "layer_norm", "shortcut"};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strstr(c->layers, kinds[i]))
			return kinds[i];
	return NULL;
}

static inline void parse_field(struct layer *l, char *word)
{
	char *value = strchr(word, '=');
	assert_non_null(value);
	*value++ = 0;
	if (strcmp(word, "name") == 0) {
		snprintf(l->name, sizeof l->name, "%s", value);
	} else if (strcmp(word, "from") == 0) {
		char *second = strchr(value, ',');
		if (second) {
			*second++ = 0;
			snprintf(l->from[1], sizeof l->from[1], "%s", second);
		}
		snprintf(l->from[0], sizeof l->from[0], "%s", value);
	} else {
		const struct layer_type *t = layer_types[l->kind];
		int i = 0;
		while (i < t->n_fields && strcmp(t->fields[i].key, word) != 0)
			i++;
		assert_true(i < t->n_fields);
		void *at = (char *)l + t->fields[i].offset;
		if (t->fields[i].type == FIELD_INT)
			*(int64_t *)at = atoll(value);
		else if (t->fields[i].type == FIELD_REAL)
			*(double *)at = atof(value);
		else
			*(bool *)at = atoi(value) != 0;
	}
}

static inline void make_arch(struct arch *a, const struct model_case *c)
{
	struct layer layers[32];
	struct err e = {0};
	int n = 0;
	char text[512], *rest = text, *part;
	snprintf(text, sizeof text, "%s", c->layers);
	while ((part = strsep(&rest, ";")) != NULL) {
		char *word, *words = part;
		bool first = true;
		while ((word = strsep(&words, " ")) != NULL) {
			if (!*word)
				continue;
			if (first)
				assert_int_equal(layer_init(&layers[n], word), 0);
			else
				parse_field(&layers[n], word);
			first = false;
		}
		n++;
	}
	if (arch_resolve(a, layers, n, &c->input, CLASSES, &e) != 0)
		fail_msg("%s: %s", c->name, e.msg);
}

static inline struct device *open_device(const char *spec, int threads)
{
	struct device *d;
	struct err e = {0};
	struct device_config c = {.threads = threads};
	if (device_open(&d, spec, &c, NULL, &e) != 0)
		fail_msg("%s: %s", spec, e.msg);
	return d;
}

#define LABELS_MAX (BATCH * 21)

/* Inputs, labels and parameters of a case, the same every time. */
struct fixture {
	struct arch arch;
	float *x; /* or tokens */
	float *params, *grads, *more;
	int32_t labels[LABELS_MAX];
};

static inline void fixture_init(struct fixture *f, const struct model_case *c)
{
	struct rng r;
	make_arch(&f->arch, c);
	size_t n = shape_count(&c->input) * BATCH;
	f->x = calloc(n, sizeof *f->x);
	f->params = calloc(f->arch.n_total, sizeof *f->params);
	f->grads = calloc(f->arch.n_total, sizeof *f->grads);
	f->more = calloc(f->arch.n_total, sizeof *f->more);
	rng_seed(&r, 7, 1);
	for (size_t i = 0; i < n; i++)
		if (f->arch.tokens)
			((int32_t *)(void *)f->x)[i] = (int32_t)rng_below(&r, CLASSES);
		else
			f->x[i] = (float)rng_normal(&r);
	assert_true(f->arch.positions * BATCH <= LABELS_MAX);
	for (int i = 0; i < BATCH * f->arch.positions; i++)
		f->labels[i] = (int32_t)rng_below(&r, CLASSES);
	arch_init_params(&f->arch, 3, f->params);
}

static inline void fixture_close(struct fixture *f)
{
	arch_close(&f->arch);
	free(f->x);
	free(f->params);
	free(f->grads);
	free(f->more);
}

static inline double train_once(
        struct graph *n, const struct fixture *f, bool accumulate, struct loss_result *r)
{
	struct err e = {0};
	if (graph_train(n, f->x, f->labels, accumulate, 1.0f / BATCH, 99, r, &e) != 0)
		fail_msg("%s", e.msg);
	return r->loss_sum / (double)r->count;
}

static inline struct graph *make_net(const struct fixture *f, struct device *d)
{
	struct graph *n;
	struct err e = {0};
	if (graph_new(&n, &f->arch, d, BATCH, &e) != 0)
		fail_msg("%s", e.msg);
	graph_set_params(n, f->params);
	return n;
}

static inline void get_grads(struct graph *n, float *out)
{
	n->dev->backend->download(n->dev, out, n->grads, n->arch->n_total * sizeof *out);
}

/* Largest difference over the largest value. */
static inline double apart(const float *a, const float *b, size_t n)
{
	double worst = 0, top = 1e-6; /* what is 0 but for rounding may differ */
	for (size_t i = 0; i < n; i++) {
		worst = fmax(worst, fabs((double)a[i] - b[i]));
		top = fmax(top, fabs((double)b[i]));
	}
	return worst / top;
}

/* A model that a backend cannot run is refused. */
static inline void check_refused(const struct model_case *c, const char *spec)
{
	struct fixture f;
	struct graph *n;
	struct err e = {0};
	fixture_init(&f, c);
	struct device *d = open_device(spec, 1);
	assert_int_equal(graph_new(&n, &f.arch, d, BATCH, &e), ERR_UNSUPPORTED);
	if (!strstr(e.msg, "on the CPU only"))
		fail_msg("%s: %s", c->name, e.msg);
	device_close(d);
	fixture_close(&f);
}

static inline void check_backend(const struct model_case *c, const char *spec, int threads)
{
	struct fixture f;
	struct loss_result want, got;
	float want_z[LABELS_MAX * CLASSES], got_z[LABELS_MAX * CLASSES];
	fixture_init(&f, c);
	struct device *dp = open_device("plain", 1), *dt = open_device(spec, threads);
	struct graph *np = make_net(&f, dp), *nt = make_net(&f, dt);
	for (int pass = 0; pass < 2; pass++) { /* the second is added to the first */
		double lp = train_once(np, &f, pass == 1, &want);
		double lt = train_once(nt, &f, pass == 1, &got);
		get_grads(np, f.grads);
		get_grads(nt, f.more);
		if (fabs(lp - lt) > 1e-5)
			fail_msg("%s on %s/%d: loss %g, want %g", c->name, spec, threads, lt, lp);
		assert_int_equal(got.correct, want.correct);
		for (int v = 0; v < f.arch.n_views; v++) {
			const struct param_view *p = &f.arch.views[v];
			double off = apart(f.more + p->offset, f.grads + p->offset, p->count);
			if (off > 2e-5)
				fail_msg("%s on %s/%d: gradient of %s is off by %g", c->name, spec,
				        threads, p->name, off);
		}
	}
	graph_get_params(np, f.grads); /* statistics move in the forward pass */
	graph_get_params(nt, f.more);
	for (size_t i = 0; i < f.arch.n_total; i++)
		if (fabs((double)f.grads[i] - f.more[i]) > 1e-6 * (1 + fabs((double)f.grads[i])))
			fail_msg("%s on %s/%d: value %zu is %g, want %g", c->name, spec, threads, i,
			        (double)f.more[i], (double)f.grads[i]);
	struct err e = {0};
	assert_int_equal(graph_eval(np, f.x, f.labels, BATCH - 2, &want, &e), 0);
	assert_int_equal(graph_eval(nt, f.x, f.labels, BATCH - 2, &got, &e), 0);
	assert_true(fabs(want.loss_sum - got.loss_sum) < 1e-4 * (double)f.arch.positions);
	assert_int_equal(got.correct, want.correct);
	assert_int_equal(got.count, (BATCH - 2) * f.arch.positions);
	graph_logits(np, want_z);
	graph_logits(nt, got_z);
	if (apart(got_z, want_z, (size_t)(BATCH * f.arch.positions) * CLASSES) > 1e-5)
		fail_msg("%s on %s/%d: logits differ", c->name, spec, threads);
	graph_free(np);
	graph_free(nt);
	device_close(dp);
	device_close(dt);
	fixture_close(&f);
}

#endif
