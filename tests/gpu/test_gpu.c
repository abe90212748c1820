/* SPDX-License-Identifier: MIT */
/* The GPU backend against the plain and the cpu backend: every op there and back, optimisers,
 * additions, sums, snapshots while training goes on, twenty steps of both presets, and every call
 * of CUDA failing once. Run by tests/gpu/ops.sh and others on the stand-in, which then must have
 * seen nothing wrong and nothing left over; or by make check-gpu on a GPU.
 *
 * test_gpu ops|train|snapshots|schedules|failures */
#include "model/graph/optim.h"
#include "tests/gpu/fixture.h"

#define STEPS 20

/* ---- ops */

static void ops_match_plain(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_CASES; i++) {
		if (cpu_only(&cases[i]))
			check_refused(&cases[i], "cuda:0");
		else
			check_backend(&cases[i], "cuda:0", 1);
	}
}

/* AdamW divides a gradient by its own size: one that is nothing but rounding moves its parameter as
 * far as any other, and its sign is each backend's own, unless eps is well above it. Hence an eps
 * of 1e-3 here. With the 1e-8 that users have, test_kernels.c compares the step by itself, on the
 * same gradients. */
static const struct optim_config optimisers[] = {
        {.kind = OPTIM_SGD, .weight_decay = 1e-2},
        {.kind = OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-2},
        {.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .clip = 0.1},
        {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1},
};

/* A preset for images of 12 × 12 in one or three colours, or one of these; and data. The last two
 * are for what is done many hundred times. */
enum { SMALL_MLP, SMALL_CNN, TINY_MLP, TINY_CNN, SMALLS };
static const struct model_case small[SMALLS] = {
        {"small mlp", {3, {12, 12, 1}},
                "flatten; dense units=24; relu; dropout p=0.2; dense units=16; gelu; dense "
                "units=4"},
        {"small cnn", {3, {12, 12, 1}},
                "conv2d units=4 kernel=3 pad=1; relu; max_pool; conv2d units=6 kernel=3; relu; "
                "avg_pool; flatten; dropout p=0.2; dense units=4"},
        {"tiny mlp", {3, {4, 4, 1}}, "flatten; dense units=8; relu; dropout p=0.2; dense units=4"},
        {"tiny cnn", {3, {4, 4, 1}},
                "conv2d units=2 kernel=3 pad=1; relu; max_pool; conv2d units=3 kernel=2 pad=1; "
                "gelu; avg_pool; flatten; dense units=4"},
};

struct job {
	struct arch arch;
	size_t pixels;
	float *x, *params;
	int32_t labels[BATCH];
};

static void job_init(struct job *j, const char *preset, int64_t colours)
{
	struct shape input = {3, {12, 12, colours}};
	struct err e = {0};
	struct rng r;
	int own = 0;
	while (own < SMALLS && preset != small[own].name)
		own++;
	if (own < SMALLS) {
		input = small[own].input;
		make_arch(&j->arch, &small[own]);
	} else if (arch_preset(&j->arch, preset, NULL, &input, CLASSES, &e) != 0)
		fail_msg("%s: %s", preset, e.msg);
	j->pixels = shape_count(&input) * BATCH;
	j->x = calloc(j->pixels, sizeof *j->x);
	j->params = calloc(j->arch.n_total, sizeof *j->params);
	rng_seed(&r, 5, 0);
	for (size_t i = 0; i < j->pixels; i++)
		j->x[i] = (float)rng_normal(&r);
	for (int i = 0; i < BATCH; i++)
		j->labels[i] = (int32_t)rng_below(&r, CLASSES);
	arch_init_params(&j->arch, 9, j->params);
}

static void job_close(struct job *j)
{
	arch_close(&j->arch);
	free(j->x);
	free(j->params);
}

struct run {
	struct device *dev; /* borrowed */
	struct graph *net;
	struct optim optim;
	int steps;
	float *x; /* owned: this step's input */
};

static int run_init(struct run *r, const struct job *j, struct device *d,
        const struct optim_config *c, struct err *e)
{
	*r = (struct run){.dev = d, .x = calloc(j->pixels, sizeof *r->x)};
	int rc = graph_new(&r->net, &j->arch, d, BATCH, e);
	if (rc)
		return rc;
	graph_set_params(r->net, j->params);
	return optim_init(&r->optim, c, r->net, e);
}

static void run_close(struct run *r)
{
	if (r->optim.net)
		optim_close(&r->optim);
	if (r->net)
		graph_free(r->net);
	free(r->x);
}

/* Nothing inside a step may wait for the device as a whole, or take memory. */
static int run_step(struct run *r, const struct job *j, struct loss_result *loss, struct err *e)
{
	double norm;
	for (size_t i = 0; i < j->pixels; i++)
		r->x[i] = j->x[i] * (1 + 0.1f * (float)(r->steps % 3));
	control_step(r->dev, true);
	int rc = graph_train(
	        r->net, r->x, j->labels, false, 1.0f / BATCH, (uint64_t)r->steps, loss, e);
	if (rc == 0)
		rc = optim_step(&r->optim, 0.02, &norm, e);
	control_step(r->dev, false);
	r->steps++;
	return rc;
}

/* Parameters after so many steps, and the last loss. */
static double train(const struct job *j, struct device *d, const struct optim_config *c, int steps,
        float *params)
{
	struct err e = {0};
	struct loss_result loss = {0};
	struct run r;
	must(run_init(&r, j, d, c, &e), &e);
	for (int i = 0; i < steps; i++)
		must(run_step(&r, j, &loss, &e), &e);
	graph_get_params(r.net, params);
	run_close(&r);
	return loss.loss_sum / BATCH;
}

static void compare_training(const char *preset, int64_t colours, const struct optim_config *c,
        int steps, const char *with)
{
	struct job j;
	job_init(&j, preset, colours);
	float *want = calloc(j.arch.n_total, sizeof *want),
	      *got = calloc(j.arch.n_total, sizeof *got);
	struct device *cpu = open_device(with, 1), *gpu = open_gpu();
	double want_loss = train(&j, cpu, c, steps, want), got_loss = train(&j, gpu, c, steps, got);
	if (fabs(want_loss - got_loss) > 1e-4 * fabs(want_loss) + 1e-6)
		fail_msg("%s: loss %g, want %g", preset, got_loss, want_loss);
	for (int v = 0; v < j.arch.n_views; v++) {
		const struct param_view *p = &j.arch.views[v];
		double off = apart(got + p->offset, want + p->offset, p->count);
		if (off > 1e-4)
			fail_msg("%s: %s is off by %g", preset, p->name, off);
	}
	assert_true(apart(got, j.params, j.arch.n_total) > 1e-3);
	device_close(cpu);
	device_close(gpu);
	free(want);
	free(got);
	job_close(&j);
}

static void optimisers_match(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof optimisers / sizeof *optimisers; k++)
		compare_training(small[SMALL_MLP].name, 1, &optimisers[k], 5, "plain");
}

/* Bit by bit, at an odd length and place, and longer than what is copied at once. */
static void additions_are_alike(void **state)
{
	enum { N = 1500007, FROM = 3, ONE_COPY = 1 << 18 };
	float *x = calloc(N, sizeof *x), *h = calloc(N, sizeof *h), *got = calloc(N, sizeof *got);
	struct device *d = open_gpu();
	struct err e = {0};
	struct rng r;
	(void)state;
	rng_seed(&r, 3, 0);
	for (int i = 0; i < N; i++) {
		x[i] = (float)rng_normal(&r);
		h[i] = (float)rng_normal(&r);
	}
	float *there = d->backend->alloc(d, N * sizeof *x);
	assert_non_null(there);
	d->backend->upload(d, there, x, N * sizeof *x);
	must(d->backend->add(d, there + FROM, h + FROM, N - FROM, 0.3f, &e), &e);
	must(d->backend->add(d, there, h, ONE_COPY, -0.7f, &e), &e);
	d->backend->download(d, got, there, N * sizeof *x);
	for (int i = 0; i < N; i++) {
		volatile float product = 0.3f * h[i], second = -0.7f * h[i];
		volatile float sum = i < FROM ? x[i] : x[i] + product;
		float want = i < ONE_COPY ? sum + second : sum;
		if (got[i] != want)
			fail_msg("element %d: %a, want %a", i, (double)got[i], (double)want);
	}
	d->backend->release(d, there);
	device_close(d);
	free(x);
	free(h);
	free(got);
}

static void sums_are_exact(void **state)
{
	static const size_t lengths[] = {1, 31, 256, 257, 5003, 300001};
	struct err e = {0};
	(void)state;
	for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
		size_t n = lengths[k];
		float *x = calloc(n, sizeof *x);
		double want = 0, got, again;
		struct rng r;
		rng_seed(&r, k, 0);
		for (size_t i = 0; i < n; i++) {
			x[i] = (float)rng_normal(&r);
			want += (double)x[i] * x[i];
		}
		struct device *d = open_gpu();
		float *there = d->backend->alloc(d, n * sizeof *x);
		d->backend->upload(d, there, x, n * sizeof *x);
		must(d->backend->sum_squares(d, there, n, &got, &e), &e);
		must(d->backend->sum_squares(d, there, n, &again, &e), &e);
		if (fabs(got - want) > 1e-12 * want)
			fail_msg("%zu squares: %.17g, want %.17g", n, got, want);
		assert_true(got == again);
		d->backend->release(d, there);
		device_close(d);
		free(x);
	}
}

/* More classes than a warp has lanes. */
static void many_classes(void **state)
{
	enum { MANY = 70 };
	struct shape input = {1, {9}};
	struct loss_result r[2];
	struct layer l;
	struct err e = {0};
	float x[9 * BATCH], params[10 * MANY], grads[2][10 * MANY];
	int32_t labels[BATCH] = {69, 0, 31, 32, 68};
	(void)state;
	for (int i = 0; i < 9 * BATCH; i++)
		x[i] = (float)(i * 7 % 13) * 0.3f - 1.5f;
	for (int i = 0; i < 10 * MANY; i++)
		params[i] = (float)(i * 11 % 17) * 0.1f - 0.8f;
	for (int k = 0; k < 2; k++) {
		struct arch a;
		struct graph *n;
		must(layer_init(&l, "dense"), &e);
		l.units = MANY;
		must(arch_resolve(&a, &l, 1, &input, MANY, &e), &e);
		struct device *d = k ? open_gpu() : open_device("plain", 1);
		must(graph_new(&n, &a, d, BATCH, &e), &e);
		graph_set_params(n, params);
		must(graph_train(n, x, labels, false, 0.2f, 1, &r[k], &e), &e);
		get_grads(n, grads[k]);
		graph_free(n);
		device_close(d);
		arch_close(&a);
	}
	assert_true(fabs(r[0].loss_sum - r[1].loss_sum) < 1e-5 * r[0].loss_sum);
	assert_int_equal(r[0].correct, r[1].correct);
	assert_true(apart(grads[1], grads[0], 10 * MANY) < 1e-5);
}

static void a_bad_gradient_changes_nothing(void **state)
{
	struct job j;
	struct run r;
	struct err e = {0};
	struct loss_result loss;
	(void)state;
	job_init(&j, "mlp", 1);
	j.x[7] = NAN;
	struct device *d = open_gpu();
	must(run_init(&r, &j, d, &optimisers[1], &e), &e);
	assert_int_equal(run_step(&r, &j, &loss, &e), ERR_NONFINITE);
	float *params = calloc(j.arch.n_total, sizeof *params);
	graph_get_params(r.net, params);
	assert_memory_equal(params, j.params, j.arch.n_total * sizeof *params);
	free(params);
	run_close(&r);
	device_close(d);
	job_close(&j);
}

/* ---- training */

static void presets_train_alike(void **state)
{
	(void)state;
	compare_training("mlp", 1, &optimisers[1], STEPS, "cpu");
	compare_training("cnn", 1, &optimisers[1], STEPS, "cpu");
	compare_training("cnn", 3, &optimisers[3], 3, "cpu");
}

enum { SNAP_STEPS = 4, SNAPS = 2 * SNAP_STEPS };

static int ask_copy(const struct graph *n, float *to, atomic_int *flag, struct err *e)
{
	const struct device_copy c = {
	        n->params, n->arch->n_total, COPY_FP32, to, .done_cb = arrived, .arg = flag};
	return n->dev->backend->snapshot(n->dev, &c, e);
}

/* The parameters as they are now, at once or some time. */
static void snap(const struct run *r, float *to, atomic_int *flag, bool in_haste)
{
	struct err e = {0};
	if (in_haste)
		must(ask_copy(r->net, to, flag, &e), &e);
	else
		graph_get_params(r->net, to);
}

/* Steps, with a snapshot before and after an addition between them; what each snapshot must hold is
 * what a run without haste had there. */
static void gossip_run(
        const struct job *j, struct device *d, float *snaps, float *end, bool in_haste)
{
	size_t n = j->arch.n_total;
	atomic_int flags[SNAPS] = {0};
	float *gift = calloc(n, sizeof *gift);
	struct err e = {0};
	struct loss_result loss;
	struct run r;
	must(run_init(&r, j, d, &optimisers[1], &e), &e);
	for (int s = 0; s < SNAPS; s += 2) {
		must(run_step(&r, j, &loss, &e), &e);
		snap(&r, snaps + (size_t)s * n, &flags[s], in_haste);
		for (size_t i = 0; i < n; i++)
			gift[i] = (float)((i * 7 + (size_t)s) % 11) * 0.01f;
		must(d->backend->add(d, r.net->params, gift, n, 0.25f, &e), &e);
		snap(&r, snaps + (size_t)(s + 1) * n, &flags[s + 1], in_haste);
	}
	for (int s = 0; s < SNAPS && in_haste; s++)
		wait_for(&flags[s]);
	graph_get_params(r.net, end);
	run_close(&r);
	free(gift);
}

static void snapshots_are_of_their_step(void **state)
{
	struct job j;
	(void)state;
	job_init(&j, small[SMALL_MLP].name, 1);
	size_t n = j.arch.n_total;
	float *want = calloc(n * SNAPS, sizeof *want), *got = calloc(n * SNAPS, sizeof *got);
	float *want_end = calloc(n, sizeof *want_end), *got_end = calloc(n, sizeof *got_end);
	struct device *d = open_gpu();
	assert_non_null(d->backend->snapshot);
	gossip_run(&j, d, want, want_end, false);
	gossip_run(&j, d, got, got_end, true);
	device_close(d);
	for (int s = 0; s < SNAPS; s++)
		if (memcmp(want + (size_t)s * n, got + (size_t)s * n, n * sizeof *got) != 0)
			fail_msg("snapshot %d is of another moment", s);
	assert_memory_equal(want_end, got_end, n * sizeof *got_end);
	free(want);
	free(got);
	free(want_end);
	free(got_end);
	job_close(&j);
}

/* ---- in any order */

/* Three steps of two models: the same bits whatever the order. */
static void orders_do_not_matter(void **state)
{
	struct device *d = open_gpu();
	(void)state;
	if (!control.schedule)
		skip();
	device_close(d);
	for (int k = 0; k < 2; k++) {
		struct job j;
		job_init(&j, small[k].name, 1);
		size_t n = j.arch.n_total;
		float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
		control.schedule("eager", 0);
		d = open_gpu();
		train(&j, d, &optimisers[1], 3, want);
		device_close(d);
		for (unsigned long seed = 0; seed <= 20; seed++) {
			control.schedule(seed ? "random" : "lazy", seed);
			d = open_gpu();
			train(&j, d, &optimisers[1], 3, got);
			device_close(d);
			if (memcmp(want, got, n * sizeof *got) != 0)
				fail_msg("%s: seed %lu gives other bits", small[k].name, seed);
		}
		free(want);
		free(got);
		job_close(&j);
	}
}

static void snapshots_in_any_order(void **state)
{
	struct device *d = open_gpu();
	device_close(d);
	if (!control.schedule)
		skip();
	for (unsigned long seed = 0; seed < 20; seed++) {
		control.schedule("random", seed);
		snapshots_are_of_their_step(state);
	}
	control.schedule("lazy", 0);
	snapshots_are_of_their_step(state);
}

/* ---- failures */

/* Opens, trains, makes a snapshot, takes a gift. What fails is returned; marked says how many calls
 * there were when only the end was left. */
static int whole_life(const void *job, long *marked, struct err *e)
{
	const struct job *j = job;
	struct device *d = NULL;
	struct device_config config = {.threads = 1};
	struct loss_result loss;
	struct run r = {0};
	atomic_int flag = 0;
	size_t n = j->arch.n_total;
	float *copy = calloc(n, sizeof *copy);
	int rc = device_open(&d, "cuda:0", &config, NULL, e);
	if (rc == 0)
		rc = run_init(&r, j, d, &optimisers[2], e);
	for (int i = 0; i < 2 && rc == 0; i++) {
		rc = run_step(&r, j, &loss, e);
		bool asked = false;
		if (rc == 0) {
			atomic_store(&flag, 0);
			rc = ask_copy(r.net, copy, &flag, e);
			asked = rc == 0;
		}
		if (rc == 0)
			rc = d->backend->add(d, r.net->params, copy, n, 0.5f, e);
		struct err none = {0};
		int settled = asked ? d->backend->settle(d, rc ? &none : e) : 0;
		if (rc == 0)
			rc = settled;
		/* Told, well or not: nobody waits for ever. */
		if (asked && atomic_load(&flag) == 0)
			fail_msg("a snapshot was never told of");
	}
	if (rc == 0)
		graph_get_params(r.net, copy);
	if (rc == 0)
		rc = d->backend->settle(d, e);
	stays_so(d, rc, e);
	*marked = control.calls ? control.calls() : 0;
	if (d)
		run_close(&r);
	device_close(d);
	free(copy);
	return rc;
}

static void every_call_may_fail(void **state)
{
	(void)state;
	device_close(open_gpu());
	if (!control.fail_call)
		skip();
	control.schedule("random", 1);
	for (int i = TINY_MLP; i <= TINY_CNN; i++) {
		struct job j;
		job_init(&j, small[i].name, 1);
		fail_each(whole_life, &j, 0);
		if (i == TINY_MLP)
			fail_each(whole_life, &j, -1); /* the device is gone for good */
		job_close(&j);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest ops[] = {TEST(ops_match_plain), TEST(optimisers_match),
	        TEST(additions_are_alike), TEST(sums_are_exact), TEST(many_classes),
	        TEST(a_bad_gradient_changes_nothing)};
	const struct CMUnitTest training[] = {
	        TEST(presets_train_alike), TEST(snapshots_are_of_their_step)};
	const struct CMUnitTest snapshots[] = {TEST(snapshots_are_of_their_step)};
	const struct CMUnitTest schedules[] = {
	        TEST(orders_do_not_matter), TEST(snapshots_in_any_order)};
	const struct CMUnitTest failures[] = {TEST(every_call_may_fail)};
	const char *what = argc > 1 ? argv[1] : "ops";
	if (strcmp(what, "ops") == 0)
		return cmocka_run_group_tests_name(what, ops, NULL, NULL);
	if (strcmp(what, "train") == 0)
		return cmocka_run_group_tests_name(what, training, NULL, NULL);
	if (strcmp(what, "snapshots") == 0)
		return cmocka_run_group_tests_name(what, snapshots, NULL, NULL);
	if (strcmp(what, "schedules") == 0)
		return cmocka_run_group_tests_name(what, schedules, NULL, NULL);
	if (strcmp(what, "failures") == 0)
		return cmocka_run_group_tests_name(what, failures, NULL, NULL);
	fprintf(stderr, "test_gpu ops|train|snapshots|schedules|failures\n");
	return 2;
}
