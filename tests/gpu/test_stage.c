/* SPDX-License-Identifier: MIT */
/* What peers have to add, on the GPU: copied up and measured while it computes, and added by the
 * update itself; against the code that the CPU uses, sums bit by bit. Then whole exchanges, with
 * snapshots on their way down, in random orders, and with every call failing once. Run as test_gpu
 * is.
 *
 * test_stage ops|schedules|failures */
#include "tests/gpu/wire_fixture.h"

/* ---- updates that add */

enum { N = 3001, SPLIT = 1234, PLACE = 5 }; /* PLACE: where in its block the addition lies */

static const struct optim_args updates[] = {
        {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .grad_scale = 1},
        {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .grad_scale = 0.7f, .nesterov = true},
        {.lr = 0.1f,
                .beta1 = 0.9f,
                .beta2 = 0.99f,
                .eps = 1e-3f,
                .weight_decay = 0.1f,
                .grad_scale = 0.9f,
                .bias1 = 0.1f,
                .bias2 = 0.01f},
};
enum { UPDATES = sizeof updates / sizeof *updates };

/* Parameters, momentum, squares and gradient of N floats each. */
struct vectors {
	float *w, *m, *v, *g;
};

static struct vectors vectors_new(const struct wire *w)
{
	static float x[4][N];
	for (int i = 0; i < 4; i++)
		fill(x[i], N, (uint64_t)i);
	for (int i = 0; i < N; i++)
		x[2][i] *= x[2][i];
	return (struct vectors){to_device(w, x[0], N), to_device(w, x[1], N), to_device(w, x[2], N),
	        to_device(w, x[3], N)};
}

static void vectors_free(const struct wire *w, const struct vectors *x)
{
	w->k->release(w->d, x->w);
	w->k->release(w->d, x->m);
	w->k->release(w->d, x->v);
	w->k->release(w->d, x->g);
}

/* Floats [from, to), with what is to be added for those from there on. */
static int update(const struct wire *w, const struct vectors *x, const struct optim_args *kind,
        size_t from, size_t to, const float *add, struct err *e)
{
	struct optim_args a = *kind;
	a.add = add;
	a.add_k = 0.3f;
	if (a.beta2 > 0)
		return w->k->adamw(
		        w->d, x->w + from, x->m + from, x->v + from, x->g + from, to - from, &a, e);
	return w->k->sgd(w->d, x->w + from, x->m + from, x->g + from, to - from, &a, e);
}

static void the_same(const struct wire *w, const float *a, const float *b, const char *what)
{
	static float x[2][N];
	w->k->download(w->d, x[0], a, sizeof x[0]);
	w->k->download(w->d, x[1], b, sizeof x[1]);
	for (int i = 0; i < N; i++)
		if (memcmp(&x[0][i], &x[1][i], sizeof x[0][i]) != 0)
			fail_msg("%s, element %d: %a, want %a", what, i, (double)x[0][i],
			        (double)x[1][i]);
}

static void added_at_once(const struct wire *w, const struct optim_args *kind, float *host)
{
	struct vectors one = vectors_new(w), two = vectors_new(w);
	struct err e = {0};
	must(update(w, &two, kind, 0, N, NULL, &e), &e);
	must(w->k->add(w->d, two.w, host, N, 0.3f, &e), &e);
	control_step(w->d, true);
	must(stage(w, host, N, &e), &e);
	must(update(w, &one, kind, 0, SPLIT, host, &e), &e);
	must(update(w, &one, kind, SPLIT, N, host + SPLIT, &e), &e);
	control_step(w->d, false);
	memset(host, 0xff, N * sizeof *host); /* it is ours again */
	the_same(w, one.w, two.w, "parameters");
	the_same(w, one.m, two.m, "momentum");
	the_same(w, one.v, two.v, "squares");
	vectors_free(w, &one);
	vectors_free(w, &two);
}

static void updates_add_as_add_does(void **state)
{
	struct wire w;
	(void)state;
	wire_init(&w);
	float *block = w.k->host_alloc(w.d, (N + PLACE) * sizeof *block);
	assert_non_null(block);
	for (int i = 0; i < UPDATES; i++) {
		fill(block, N + PLACE, 9);
		added_at_once(&w, &updates[i], block + PLACE);
	}
	w.k->host_release(w.d, block);
	wire_close(&w);
}

/* While the device has other work, none of which is waited for: a second one only waits for the
 * first to have come up. */
static void staged_meanwhile(void **state)
{
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	if (!control.schedule)
		skip();
	control.schedule("lazy", 0);
	struct vectors x = vectors_new(&w);
	float *h = w.k->host_alloc(w.d, N * sizeof *h);
	fill(h, N, 2);
	must(update(&w, &x, &updates[0], 0, N, NULL, &e), &e);
	unsigned long before = control.instructions();
	must(stage(&w, h, N, &e), &e);
	must(stage(&w, h, N, &e), &e);
	assert_true(control.instructions() == before);
	struct graph *equal; /* needs no more room, so what is staged stays */
	must(graph_new(&equal, &w.f.arch, w.d, BATCH, &e), &e);
	must(update(&w, &x, &updates[0], 0, N, h, &e), &e);
	graph_free(equal);
	vectors_free(&w, &x);
	assert_true(control.instructions() > before);
	w.k->host_release(w.d, h);
	wire_close(&w);
}

/* What was not staged is refused, and the parameters are what they were. */
static void only_what_is_staged(void **state)
{
	struct vectors x, same;
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	x = vectors_new(&w);
	same = vectors_new(&w);
	float *h = w.k->host_alloc(w.d, 3 * N * sizeof *h), *any = calloc(N, sizeof *any);
	const float *staged = h + N;
	fill(h, 3 * (size_t)N, 2);
#define REFUSED(from, to, add) \
	assert_int_equal(update(&w, &x, &updates[0], from, to, add, &e), ERR_INVALID)
	REFUSED(0, N, staged);
	assert_int_equal(stage(&w, any, N, &e), ERR_BUSY);
	assert_int_equal(stage(&w, h + 2 * N + 1, N, &e), ERR_BUSY);
	assert_int_equal(stage(&w, h, w.n + 1, &e), ERR_BUSY);
	REFUSED(0, N, any);
	must(stage(&w, staged, N, &e), &e);
	REFUSED(0, N, any);
	REFUSED(0, N, staged + 1);
	REFUSED(0, N, staged - 1);
	REFUSED(0, 1, staged + N);
	REFUSED(0, 1, staged - 1);
	the_same(&w, x.w, same.w, "parameters");
	the_same(&w, x.m, same.m, "momentum");
	/* Used once, and no more, nor what was passed over. */
	must(update(&w, &x, &updates[0], 10, 20, staged + 10, &e), &e);
	REFUSED(10, 20, staged + 10);
	REFUSED(0, 5, staged);
	must(update(&w, &x, &updates[0], 20, N, staged + 20, &e), &e);
	REFUSED(N - 1, N, staged + N - 1);
	/* The next takes the place of what is left; what is gone is not staged. */
	must(stage(&w, h, N, &e), &e);
	must(stage(&w, staged, N, &e), &e);
	REFUSED(0, N, h);
	w.k->host_release(w.d, h);
	REFUSED(0, N, staged);
#undef REFUSED
	vectors_free(&w, &x);
	vectors_free(&w, &same);
	free(any);
	wire_close(&w);
}

/* ---- distances */

enum { GROUPS = 5, SKETCHED = 2900 };
static const size_t ends[GROUPS] = {1, 700, 700, SPLIT, N};

struct measured {
	double squares[GROUPS];
	struct sketch sketch;
	atomic_int flag;
};

static int measure(const struct wire *w, const float *host, struct measured *m, struct err *e)
{
	return w->k->stage(w->d,
	        &(struct device_stage){.x = host,
	                .n = N,
	                .n_groups = GROUPS,
	                .end = ends,
	                .squares = m->squares,
	                .sketch = m->sketch.bucket,
	                .n_sketch = SKETCHED,
	                .done_cb = arrived,
	                .arg = &m->flag},
	        e);
}

static void measured_right(const float *host, const struct measured *m)
{
	struct sketch want = {0};
	size_t at = 0;
	for (int g = 0; g < GROUPS; g++) {
		double sum = 0;
		for (; at < ends[g]; at++)
			sum += (double)host[at] * (double)host[at];
		if (!(fabs(m->squares[g] - sum) <= 1e-13 * sum))
			fail_msg("squares of group %d: %.17g, want %.17g", g, m->squares[g], sum);
	}
	sketch_add(&want, host, 0, SKETCHED);
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		if (!(fabsf(m->sketch.bucket[i] - want.bucket[i]) <= 1e-6f * fabsf(want.bucket[i])))
			fail_msg("bucket %d is %g, want %g", i, (double)m->sketch.bucket[i],
			        (double)want.bucket[i]);
}

/* And what was measured can be added, without another copy. */
static void measured_and_added(void **state)
{
	static struct measured m[2];
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	struct vectors one = vectors_new(&w), two = vectors_new(&w);
	float *h = w.k->host_alloc(w.d, N * sizeof *h);
	fill(h, N, 3);
	must(update(&w, &two, &updates[0], 0, N, NULL, &e), &e);
	must(w.k->add(w.d, two.w, h, N, 0.3f, &e), &e);
	for (int i = 0; i < 2; i++) {
		atomic_store(&m[i].flag, 0);
		control_step(w.d, true);
		must(measure(&w, h, &m[i], &e), &e);
		control_step(w.d, false);
		wait_for(&m[i].flag);
		measured_right(h, &m[i]);
	}
	assert_memory_equal(&m[0], &m[1], sizeof m[0]);
	memset(h, 0xff, N * sizeof *h); /* it is ours again, and theirs is as it was */
	must(update(&w, &one, &updates[0], 0, N, h, &e), &e);
	the_same(&w, one.w, two.w, "parameters");
	w.k->host_release(w.d, h);
	vectors_free(&w, &one);
	vectors_free(&w, &two);
	wire_close(&w);
}

/* As many as there is room for, and then every block of a sum has its part. */
static void measured_whole(void **state)
{
	struct sketch want = {0}, got;
	atomic_int flag = 0;
	double squares, sum = 0;
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	float *h = w.k->host_alloc(w.d, (w.n + 1) * sizeof *h);
	fill(h, w.n + 1, 4);
	assert_int_equal(stage(&w, h, w.n + 1, &e), ERR_BUSY);
	for (size_t i = 0; i < w.n; i++)
		sum += (double)h[i] * (double)h[i];
	sketch_add(&want, h, 0, w.n);
	must(w.k->stage(w.d,
	             &(struct device_stage){
	                     h, w.n, 1, &w.n, &squares, got.bucket, w.n, arrived, &flag},
	             &e),
	        &e);
	wait_for(&flag);
	assert_true(fabs(squares - sum) <= 1e-12 * sum);
	assert_true(sketch_distance(&got, &want) <= 1e-6 * sketch_norm(&want));
	w.k->host_release(w.d, h);
	wire_close(&w);
}

/* What is not a finite number makes its group's sum one that is not, and no other's. */
static void measured_not_finite(void **state)
{
	static const float bad[] = {INFINITY, -INFINITY, NAN};
	static struct measured m;
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	float *h = w.k->host_alloc(w.d, N * sizeof *h);
	for (int i = 0; i < 3; i++) {
		fill(h, N, 3);
		h[SPLIT - 1] = bad[i];
		atomic_store(&m.flag, 0);
		must(measure(&w, h, &m, &e), &e);
		wait_for(&m.flag);
		for (int g = 0; g < GROUPS; g++)
			assert_int_equal(isfinite(m.squares[g]) != 0, ends[g] != SPLIT);
	}
	w.k->host_release(w.d, h);
	wire_close(&w);
}

/* Groups and sketches of what is not staged: refused, and what is staged stays. */
static void only_what_is_measured(void **state)
{
	static size_t end[DEVICE_GROUPS_MAX + 1];
	static double squares[DEVICE_GROUPS_MAX];
	static float sketch[SKETCH_BUCKETS];
	atomic_int flag = 0;
	struct wire w;
	struct err e = {0};
	(void)state;
	wire_init(&w);
	struct vectors x = vectors_new(&w);
	float *h = w.k->host_alloc(w.d, N * sizeof *h);
	fill(h, N, 2);
	must(stage(&w, h, N, &e), &e);
	struct device_stage good = {h, N, 2, end, squares, sketch, N, arrived, &flag}, m = good;
	end[0] = 5, end[1] = N + 1;
	assert_int_equal(w.k->stage(w.d, &m, &e), ERR_INVALID);
	end[0] = 6, end[1] = 5;
	assert_int_equal(w.k->stage(w.d, &m, &e), ERR_INVALID);
	end[1] = 6;
	m.n_groups = -1;
	assert_int_equal(w.k->stage(w.d, &m, &e), ERR_INVALID);
	m = good;
	m.n_sketch = N + 1;
	assert_int_equal(w.k->stage(w.d, &m, &e), ERR_INVALID);
	for (int g = 0; g <= DEVICE_GROUPS_MAX; g++)
		end[g] = (size_t)g + 1;
	m = good;
	m.n_groups = DEVICE_GROUPS_MAX + 1;
	assert_int_equal(w.k->stage(w.d, &m, &e), ERR_INVALID);
	assert_int_equal(atomic_load(&flag), 0);
	must(update(&w, &x, &updates[0], 0, N, h, &e), &e);
	/* All groups there may be; groups without a sketch; neither, but an answer. */
	m.n_groups = DEVICE_GROUPS_MAX;
	must(w.k->stage(w.d, &m, &e), &e);
	wait_for(&flag);
	for (int g = 0; g < DEVICE_GROUPS_MAX; g++)
		assert_true(squares[g] == (double)h[g] * (double)h[g]);
	atomic_store(&flag, 0);
	m.sketch = NULL;
	m.x = h + 7;
	m.n = N - 7;
	m.n_sketch = 0;
	must(w.k->stage(w.d, &m, &e), &e);
	wait_for(&flag);
	for (int g = 0; g < DEVICE_GROUPS_MAX; g++)
		assert_true(squares[g] == (double)h[7 + g] * (double)h[7 + g]);
	atomic_store(&flag, 0);
	must(w.k->stage(w.d,
	             &(struct device_stage){.x = h, .n = N, .done_cb = arrived, .arg = &flag}, &e),
	        &e);
	wait_for(&flag);
	w.k->host_release(w.d, h);
	vectors_free(&w, &x);
	wire_close(&w);
}

/* ---- all at once */

enum { ROUNDS = 4 };
struct result {
	float params[ROUNDS][N];
	uint16_t words[ROUNDS][N];
	struct sketch sketches[ROUNDS];
	double squares[ROUNDS][2][GROUPS];
	struct sketch differences[ROUNDS][2];
};

/* The memory of a step in an exchange: what comes up, what goes down. */
struct exchange {
	struct vectors x;
	float *gift;
	uint16_t *words;
	struct measured m[2];
	atomic_int flag;
};

static bool awaited(const atomic_int *flag, bool asked, int rc)
{
	/* Of a device that has failed it was told then. */
	while (asked && rc == 0 && atomic_load(flag) == 0)
		sched_yield();
	return !asked || atomic_load(flag) != 0;
}

/* While a snapshot is on its way down the next steps are taken, and what is to be added is on its
 * way up and measured; the host uses its memory again as soon as it may. */
static int exchange_step(
        const struct wire *w, struct exchange *x, int i, struct result *out, struct err *e)
{
	const struct optim_args *kind = &updates[i % UPDATES];
	const struct device_copy c = {
	        x->x.w, N, COPY_BF16, x->words, out->sketches[i].bucket, N, arrived, &x->flag};
	bool asked = false, measured[2] = {false};
	atomic_store(&x->flag, 0);
	for (int k = 0; k < 2; k++)
		atomic_store(&x->m[k].flag, 0);
	fill(x->gift, N, (uint64_t)i);
	control_step(w->d, true);
	int rc = measure(w, x->gift, &x->m[0], e);
	measured[0] = rc == 0;
	if (rc == 0)
		rc = update(w, &x->x, kind, 0, SPLIT, x->gift, e);
	if (rc == 0)
		rc = update(w, &x->x, kind, SPLIT, N, x->gift + SPLIT, e);
	if (rc == 0) {
		rc = w->k->snapshot(w->d, &c, e);
		asked = rc == 0;
		fill(x->gift, N, 77); /* ours again, also if it goes up once more */
	}
	if (rc == 0) {
		rc = measure(w, x->gift, &x->m[1], e);
		measured[1] = rc == 0;
	}
	if (rc == 0)
		rc = update(w, &x->x, kind, 0, N, x->gift, e);
	control_step(w->d, false);
	if (!awaited(&x->flag, asked, rc) || !awaited(&x->m[0].flag, measured[0], rc) ||
	        !awaited(&x->m[1].flag, measured[1], rc))
		fail_msg("a snapshot or a measurement was never told of");
	if (atomic_load(&x->flag) == 1)
		memcpy(out->words[i], x->words, sizeof out->words[i]);
	for (int k = 0; k < 2; k++)
		if (atomic_load(&x->m[k].flag) == 1) {
			memcpy(out->squares[i][k], x->m[k].squares, sizeof x->m[k].squares);
			out->differences[i][k] = x->m[k].sketch;
		}
	w->k->download(w->d, out->params[i], x->x.w, sizeof out->params[i]);
	return rc ? rc : w->k->settle(w->d, e);
}

/* marked: as of fail_each's lives. */
static int exchanges(
        const struct wire *w, int rounds, struct result *out, long *marked, struct err *e)
{
	struct exchange x = {.x = vectors_new(w),
	        .gift = w->k->host_alloc(w->d, N * sizeof *x.gift),
	        .words = w->k->host_alloc(w->d, N * sizeof *x.words)};
	int rc = w->k->settle(w->d, e);
	if (rc == 0 && (!x.x.w || !x.x.m || !x.x.v || !x.x.g || !x.gift || !x.words))
		rc = err_set(e, ERR_NOMEM, "no memory for an exchange");
	for (int i = 0; i < rounds && rc == 0; i++)
		rc = exchange_step(w, &x, i, out, e);
	*marked = control.calls ? control.calls() : 0;
	w->k->host_release(w->d, x.gift);
	w->k->host_release(w->d, x.words);
	vectors_free(w, &x.x);
	return rc;
}

static void orders_do_not_matter(void **state)
{
	static struct result want, got;
	struct err e = {0};
	struct wire w;
	long marked;
	(void)state;
	wire_init(&w);
	if (!control.schedule)
		skip();
	control.schedule("eager", 0);
	must(exchanges(&w, ROUNDS, &want, &marked, &e), &e);
	for (unsigned long seed = 0; seed <= 20; seed++) {
		control.schedule(seed ? "random" : "lazy", seed);
		must(exchanges(&w, ROUNDS, &got, &marked, &e), &e);
		if (memcmp(&want, &got, sizeof got) != 0)
			fail_msg("seed %lu gives other bits", seed);
	}
	wire_close(&w);
}

static int whole_life(const void *fixture, long *marked, struct err *e)
{
	static struct result out;
	const struct fixture *f = fixture;
	struct device_config config = {.threads = 1};
	struct wire w = {0};
	int rc = device_open(&w.d, "cuda:0", &config, NULL, e);
	*marked = LONG_MAX;
	if (rc == 0)
		rc = graph_new(&w.net, &f->arch, w.d, BATCH, e);
	if (rc == 0) {
		w.k = w.d->backend;
		rc = exchanges(&w, UPDATES, &out, marked, e);
	}
	if (w.net)
		graph_free(w.net);
	device_close(w.d);
	return rc;
}

static void every_call_may_fail(void **state)
{
	struct fixture f;
	(void)state;
	device_close(open_gpu());
	if (!control.fail_call)
		skip();
	fixture_init(&f, &room);
	control.schedule("random", 1);
	fail_each(whole_life, &f, 0);
	fail_each(whole_life, &f, -1); /* the device is gone for good */
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest ops[] = {TEST(staged_meanwhile), TEST(updates_add_as_add_does),
	        TEST(only_what_is_staged), TEST(measured_and_added), TEST(measured_whole),
	        TEST(measured_not_finite), TEST(only_what_is_measured)};
	const struct CMUnitTest schedules[] = {TEST(orders_do_not_matter)};
	const struct CMUnitTest failures[] = {TEST(every_call_may_fail)};
	const char *what = argc > 1 ? argv[1] : "ops";
	if (strcmp(what, "ops") == 0)
		return cmocka_run_group_tests_name(what, ops, NULL, NULL);
	if (strcmp(what, "schedules") == 0)
		return cmocka_run_group_tests_name(what, schedules, NULL, NULL);
	if (strcmp(what, "failures") == 0)
		return cmocka_run_group_tests_name(what, failures, NULL, NULL);
	fprintf(stderr, "test_stage ops|schedules|failures\n");
	return 2;
}
