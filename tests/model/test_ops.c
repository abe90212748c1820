/* SPDX-License-Identifier: MIT */
/* Every op on every backend. The plain backend's gradients are checked by finite differences of its
 * own loss; the cpu backend, with 1, 2 and 3 threads, is compared with the plain one: logits, loss,
 * correct answers, gradients, and the optimisers' steps. */
#include "model/cpu/kernels.h"
#include "model/graph/graph.h"
#include "model/graph/optim.h"
#include "tests/model/ops_fixture.h"

#include "agent/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The loss is exact to about 1e-7, so a slope over 2h = 6e-3 is to about 3e-5. A kink of a relu or
 * a maximum between the two points is told by the two one-sided slopes, and that parameter is
 * passed over; few may be. */
static void check_differences(const struct model_case *c)
{
	struct fixture f;
	struct loss_result r;
	fixture_init(&f, c);
	struct device *d = open_device("plain", 1);
	struct graph *n = make_net(&f, d);
	double at = train_once(n, &f, false, &r), norm = 0;
	get_grads(n, f.grads);
	for (size_t i = 0; i < f.arch.n_train; i++)
		norm += (double)f.grads[i] * f.grads[i];
	norm = sqrt(norm / (double)f.arch.n_train);
	struct rng pick;
	rng_seed(&pick, 11, 0);
	int checked = 0, kinks = 0;
	for (int i = 0; i < 60; i++) {
		size_t k = rng_below(&pick, f.arch.n_train);
		float keep = f.params[k], h = 3e-3f;
		f.params[k] = keep + h;
		graph_set_params(n, f.params);
		double up = train_once(n, &f, false, &r);
		f.params[k] = keep - h;
		graph_set_params(n, f.params);
		double down = train_once(n, &f, false, &r);
		f.params[k] = keep;
		double slope = (up - down) / (2 * h), bend = fabs(up - 2 * at + down) / h;
		if (bend > 0.02 * (fabs(slope) + norm)) {
			kinks++;
			continue;
		}
		checked++;
		if (fabs(slope - f.grads[k]) > 0.01 * (fabs(slope) + norm))
			fail_msg("%s: parameter %zu: gradient %g, by differences %g", c->name, k,
			        (double)f.grads[k], slope);
	}
	if (checked < 20)
		fail_msg("%s: only %d parameters checked, %d kinks", c->name, checked, kinks);
	graph_free(n);
	device_close(d);
	fixture_close(&f);
}

static void gradients_match_finite_differences(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_CASES; i++)
		check_differences(&cases[i]);
}

static void cpu_matches_plain(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1)
		for (size_t i = 0; i < N_CASES; i++)
			check_backend(&cases[i], "cpu", threads);
}

static void optimisers_match(void **state)
{
	(void)state;
	static const struct optim_config configs[] = {
	        {.kind = OPTIM_SGD, .weight_decay = 1e-2},
	        {.kind = OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-2},
	        {.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .clip = 0.1},
	        {.kind = OPTIM_ADAMW,
	                .beta1 = 0.9,
	                .beta2 = 0.99,
	                .eps = 1e-8,
	                .weight_decay = 0.1},
	};
	for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
		struct fixture f;
		struct err e = {0};
		fixture_init(&f, &cases[4]);
		struct device *d[2] = {open_device("plain", 1), open_device("cpu", 2)};
		for (int i = 0; i < 2; i++) {
			struct graph *n = make_net(&f, d[i]);
			struct optim o;
			assert_int_equal(optim_init(&o, &configs[k], n, &e), 0);
			for (int step = 0; step < 10; step++) {
				struct loss_result r;
				double norm;
				train_once(n, &f, false, &r);
				assert_int_equal(optim_step(&o, 0.05, &norm, &e), 0);
			}
			graph_get_params(n, i == 0 ? f.grads : f.more);
			optim_close(&o);
			graph_free(n);
			device_close(d[i]);
		}
		assert_true(apart(f.more, f.grads, f.arch.n_total) < 1e-4);
		assert_true(apart(f.more, f.params, f.arch.n_total) > 1e-3);
		fixture_close(&f);
	}
}

/* Bit by bit, at an odd length and place: both agents of a pair must move alike, whatever they run
 * on. The factors are such that one rounding instead of two shows. */
static void additions_are_alike(void **state)
{
	enum { N = 5003, FROM = 3 };
	static float x[N], h[N], want[N], got[N];
	static const struct {
		const char *spec;
		int threads;
	} on[] = {{"plain", 1}, {"cpu", 1}, {"cpu", 2}, {"cpu", 3}};
	struct err e = {0};
	struct rng r;
	int once = 0;
	(void)state;
	rng_seed(&r, 3, 0);
	for (int i = 0; i < N; i++) {
		volatile float product;
		x[i] = want[i] = (float)rng_normal(&r);
		h[i] = (float)rng_normal(&r);
		if (i < FROM)
			continue;
		product = 0.3f * h[i];
		want[i] += product;
		once += fmaf(0.3f, h[i], x[i]) != want[i];
	}
	assert_true(once > 100);
	for (size_t k = 0; k < sizeof on / sizeof *on; k++) {
		struct device *d = open_device(on[k].spec, on[k].threads);
		const struct backend *b = d->backend;
		float *there = b->alloc(d, sizeof x);
		b->upload(d, there, x, sizeof x);
		assert_int_equal(b->add(d, there + FROM, h + FROM, N - FROM, 0.3f, &e), 0);
		b->download(d, got, there, sizeof x);
		assert_memory_equal(got, want, sizeof x);
		b->release(d, there);
		device_close(d);
	}
}

static void a_bad_gradient_changes_nothing(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	struct optim o;
	struct loss_result r;
	double norm;
	fixture_init(&f, &cases[0]);
	struct device *d = open_device("cpu", 2);
	struct graph *n = make_net(&f, d);
	assert_int_equal(optim_init(&o, &(struct optim_config){.momentum = 0.9}, n, &e), 0);
	f.x[3] = NAN;
	train_once(n, &f, false, &r);
	assert_true(isnan(r.loss_sum));
	assert_int_equal(optim_step(&o, 0.1, &norm, &e), ERR_NONFINITE);
	graph_get_params(n, f.more);
	assert_memory_equal(f.more, f.params, f.arch.n_total * sizeof *f.more);
	optim_close(&o);
	graph_free(n);
	device_close(d);
	fixture_close(&f);
}

/* A run that diverges is noticed by its loss, so no loop may make a number of NaN; and no loop may
 * convert one to an integer, as the clang build with its sanitizers would tell. */
static void nan_stays_nan(void **state)
{
	(void)state;
	const struct cpu_kernels *k = &cpu_kernels_base;
	float x[9], y[9], one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	bool correct;
	for (int i = 1; i < 9; i++) {
		void (*const gelu[])(float *, const float *, size_t) = {k->gelu, k->gelu_tanh};
		void (*const back[])(float *, const float *, const float *, size_t) = {
		        k->gelu_backward, k->gelu_tanh_backward};
		for (int j = 0; j < 9; j++)
			x[j] = (float)j / 4 - 1;
		x[i] = NAN;
		for (int which = 0; which < 2; which++) {
			gelu[which](y, x, 9);
			assert_true(isnan(y[i]) && !isnan(y[0]));
			back[which](y, one, x, 9);
			assert_true(isnan(y[i]) && !isnan(y[0]));
		}
		assert_true(isnan(k->softmax_loss(x, 9, 0, NULL, 1, &correct)));
		memcpy(y, x, sizeof y);
		k->causal_softmax(y, 3, 1); /* (3, 3): of row 0 the first, of row 1 two, all of 2 */
		bool used = i == 3 || i == 4 || i >= 6;
		assert_int_equal(isnan(y[3] + y[4] + y[6] + y[7] + y[8]), used);
	}
}

/* The choice of GEMM is what a checkpoint carries: the same text gives the same choices. */
static void choices_travel(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	fixture_init(&f, &cases[1]);
	struct device *a = open_device("cpu", 2), *b = open_device("cpu", 2);
	struct graph *na = make_net(&f, a);
	char *text = strdup(a->backend->choices(a));
	assert_true(strlen(text) > 10);
	/* Turn every choice round: b must obey, not measure. */
	for (char *c = text; *c; c++)
		if (c[1] == 0 || c[1] == ';')
			*c = *c == 'b' ? 'd' : 'b';
	assert_int_equal(b->backend->choose(b, text, &e), 0);
	struct graph *nb = make_net(&f, b);
	assert_string_equal(b->backend->choices(b), text);
	assert_int_equal(b->backend->choose(b, "NT 1x2x3/4,5,6 q", &e), ERR_FORMAT);
	assert_int_equal(b->backend->choose(b, "NT 1x2", &e), ERR_FORMAT);
	free(text);
	graph_free(na);
	graph_free(nb);
	device_close(a);
	device_close(b);
	fixture_close(&f);
}

/* Loss, gradients and logits of a case. */
static double look(const struct model_case *c, const char *spec, float *grads, float *logits)
{
	struct fixture f;
	struct loss_result r;
	struct err e = {0};
	fixture_init(&f, c);
	struct device *d = open_device(spec, 1);
	struct graph *n = make_net(&f, d);
	const double loss = train_once(n, &f, false, &r);
	assert_true(f.arch.n_total < 500);
	get_grads(n, grads);
	assert_int_equal(graph_eval(n, f.x, f.labels, BATCH, &r, &e), 0);
	graph_logits(n, logits);
	graph_free(n);
	device_close(d);
	fixture_close(&f);
	return loss;
}

/* A layer that only copies is left out. A relu behind it must not become a part of what is before
 * it, where others read that: each pair is the same network without such a layer. */
static void copies_change_nothing(void **state)
{
	static const struct model_case pairs[][2] = {
	        {{"dropout", {1, {9}},
	                 "dense units=6 name=a; dropout p=0; relu name=r; add from=a,r; dense "
	                 "units=4"},
	                {"none", {1, {9}},
	                        "dense units=6 name=a; relu name=r; add from=a,r; dense units=4"}},
	        {{"the first of two", {1, {9}},
	                 "dense units=6; dropout p=0 name=a; dropout p=0; relu name=r; add "
	                 "from=a,r; dense units=4"},
	                {"none", {1, {9}},
	                        "dense units=6 name=a; relu name=r; add from=a,r; dense units=4"}},
	        {{"two flattens", {3, {3, 3, 2}},
	                 "conv2d units=6 kernel=3 name=a; flatten; relu name=r; flatten from=a "
	                 "name=b; add from=b,r; dense units=4"},
	                {"one", {3, {3, 3, 2}},
	                        "conv2d units=6 kernel=3; flatten name=b; relu name=r; add "
	                        "from=b,r; dense units=4"}},
	};
	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		for (int on_cpu = 0; on_cpu < 2; on_cpu++) {
			float g[2][500] = {{0}}, z[2][BATCH * CLASSES];
			double loss[2];
			for (int k = 0; k < 2; k++)
				loss[k] = look(&pairs[i][k], on_cpu ? "cpu" : "plain", g[k], z[k]);
			if (fabs(loss[0] - loss[1]) > 1e-6 || apart(g[0], g[1], 500) > 1e-5 ||
			        apart(z[0], z[1], BATCH * CLASSES) > 1e-5)
				fail_msg("%s: loss %g, without it %g", pairs[i][0].name, loss[0],
				        loss[1]);
		}
}

static void unknown_devices_are_named(void **state)
{
	(void)state;
	struct device *d;
	struct err e = {0};
	struct device_config c = {.threads = 1};
	assert_int_equal(device_open(&d, "gpu", &c, NULL, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "gpu"));
	assert_int_equal(device_open(&d, "cuda:x", &c, NULL, &e), ERR_INVALID);
	setenv("DUNLIN_PLUGIN_DIR", "/nonexistent", 1);
	assert_int_equal(device_open(&d, "cuda:0", &c, NULL, &e), ERR_NOTFOUND);
	char why[160];
	assert_int_equal(device_open(&d, "auto", &c, why, &e), 0);
	assert_non_null(strstr(why, "cpu"));
	assert_non_null(strstr(why, "cuda"));
	device_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(gradients_match_finite_differences),
	        cmocka_unit_test(cpu_matches_plain),
	        cmocka_unit_test(optimisers_match),
	        cmocka_unit_test(additions_are_alike),
	        cmocka_unit_test(a_bad_gradient_changes_nothing),
	        cmocka_unit_test(nan_stays_nan),
	        cmocka_unit_test(choices_travel),
	        cmocka_unit_test(copies_change_nothing),
	        cmocka_unit_test(unknown_devices_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
