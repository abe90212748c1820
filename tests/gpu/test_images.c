/* SPDX-License-Identifier: MIT */
/* Batches that go to the GPU as bytes: each value is what augment_apply makes of it, a run on them
 * is the run on floats, copied ahead or not, in any order of the streams, with other batches in
 * between and memory that another loader gets again; and every call may fail once. Run as test_gpu
 * is.
 *
 * test_images ops|schedules|failures */
#include "agent/train/trainer.h"
#include "model/data/augment.h"
#include "model/graph/optim.h"
#include "tests/gpu/fixture.h"

/* The CPU's compiler may make one operation of two, which the GPU's must not: then what is resized
 * is only nearly the same. */
#if defined __FMA__ || defined __FP_FAST_FMAF || defined __ARM_FEATURE_FMA
#define RESIZED_ALIKE 1e-6
#else
#define RESIZED_ALIKE 0
#endif

/* ---- values */

enum {
	MOVES_MAX = 400,
	SIDE_MAX = 31,
	CHANNELS_MAX = 3,
	ONE_MAX = SIDE_MAX * SIDE_MAX * CHANNELS_MAX
};

/* Memory of one batch, of the device's kind, as a loader has it. */
struct bytes {
	struct device *d; /* borrowed */
	void *memory;     /* owned */
	float *table;
	struct augment_move *moves;
	int32_t *labels;
	uint8_t *pixels;
};

static void bytes_init(struct bytes *b, struct device *d)
{
	struct rng r;
	const size_t moves = MOVES_MAX * sizeof *b->moves, labels = MOVES_MAX * sizeof *b->labels;
	*b = (struct bytes){.d = d};
	b->memory = d->backend->host_alloc(d, 1024 + moves + labels + MOVES_MAX * ONE_MAX);
	assert_non_null(b->memory);
	b->table = b->memory;
	b->moves = (void *)((char *)b->memory + 1024);
	b->labels = (void *)((char *)b->moves + moves);
	b->pixels = (uint8_t *)b->labels + labels;
	rng_seed(&r, 3, 0);
	for (int i = 0; i < 256; i++)
		b->table[i] = (float)((i / 255.0 - 0.2860) / 0.3530);
	for (size_t i = 0; i < (size_t)MOVES_MAX * ONE_MAX; i++)
		b->pixels[i] = (uint8_t)rng_below(&r, 256);
	for (int i = 0; i < MOVES_MAX; i++)
		b->labels[i] = i % CLASSES;
}

static void bytes_close(struct bytes *b)
{
	b->d->backend->host_release(b->d, b->memory);
}

/* Every shift that leaves a pixel along the edges, some within, mirrored or not, with a zoom. */
static int64_t moves_of(struct bytes *b, const struct shape *s, double zoom)
{
	const int64_t h = s->dim[0], w = s->dim[1];
	const int64_t dys[] = {1 - h, -1, 0, 1, h / 2, h - 1}, dxs[] = {1 - w, -2, 0, 1, w - 1};
	int64_t n = 0;
	for (int flip = 0; flip < 2; flip++)
		for (int i = 0; i < 6; i++)
			for (int k = 0; k < 5; k++)
				b->moves[n++] = (struct augment_move){flip, dxs[k], dys[i], zoom};
	assert_true(n < MOVES_MAX);
	return n;
}

static void compare_values(const struct shape *s, const struct device_images *im, const float *got)
{
	static const struct augment_move still = {.zoom = 1};
	static float want[ONE_MAX];
	const size_t one = shape_count(s);
	for (int64_t k = 0; k < im->count; k++) {
		const struct augment_move *m = im->moves ? &im->moves[k] : &still;
		const double off = m->zoom == 1 ? 0 : RESIZED_ALIKE;
		augment_apply(m, s, im->table, im->pixels + (size_t)k * one, want);
		for (size_t i = 0; i < one; i++)
			if (!(fabs((double)got[(size_t)k * one + i] - want[i]) <= off))
				fail_msg("%ldx%ldx%ld flip %d shift %ld, %ld zoom %g: value %zu is "
				         "%a, want %a",
				        (long)s->dim[0], (long)s->dim[1], (long)s->dim[2], m->flip,
				        (long)m->dx, (long)m->dy, m->zoom, i,
				        (double)got[(size_t)k * one + i], (double)want[i]);
	}
}

/* A batch through the device: its input and labels, of which those behind the count stay. */
static void check_values(
        struct bytes *b, const struct shape *s, struct graph *n, int64_t count, bool moved)
{
	const struct device_images im = {
	        *s, b->pixels, moved ? b->moves : NULL, b->table, b->labels, count};
	const struct backend *k = b->d->backend;
	const size_t one = shape_count(s), all = one * (size_t)n->program.batch;
	float *got = calloc(all, sizeof *got), *before = calloc(all, sizeof *before);
	int32_t labels[MOVES_MAX];
	struct err e = {0};
	for (size_t i = 0; i < all; i++)
		before[i] = (float)i;
	memset(labels, 0x55, sizeof labels);
	k->upload(b->d, n->input, before, all * sizeof *before);
	k->upload(b->d, n->labels, labels, (size_t)n->program.batch * sizeof *labels);
	must(k->images(b->d, &n->program, &im, &e), &e);
	k->download(b->d, got, n->input, all * sizeof *got);
	k->download(b->d, labels, n->labels, (size_t)n->program.batch * sizeof *labels);
	compare_values(s, &im, got);
	assert_memory_equal(labels, b->labels, (size_t)count * sizeof *labels);
	assert_memory_equal(got + (size_t)count * one, before + (size_t)count * one,
	        (all - (size_t)count * one) * sizeof *got);
	assert_true(count == n->program.batch || labels[count] == 0x55555555);
	free(got);
	free(before);
}

static void values_are_alike(void **state)
{
	static const int64_t sides[][2] = {{12, 12}, {9, 14}, {31, 7}, {1, 5}, {4, 1}};
	static const double zooms[] = {1, 0.55, 0.9, 1.0000001, 1.37, 1.9};
	struct device *d = open_gpu();
	struct bytes b;
	(void)state;
	bytes_init(&b, d);
	for (size_t i = 0; i < 2 * sizeof sides / sizeof *sides; i++) {
		const struct model_case c = {"images",
		        {3, {sides[i / 2][0], sides[i / 2][1], i % 2 ? 3 : 1}},
		        "flatten; dense units=4"};
		struct err e = {0};
		struct arch a;
		struct graph *n;
		make_arch(&a, &c);
		must(graph_new(&n, &a, d, MOVES_MAX, &e), &e);
		for (size_t z = 0; z < sizeof zooms / sizeof *zooms; z++)
			check_values(&b, &c.input, n, moves_of(&b, &c.input, zooms[z]), true);
		check_values(&b, &c.input, n, MOVES_MAX, false);
		check_values(&b, &c.input, n, 1, false);
		graph_free(n);
		arch_close(&a);
	}
	bytes_close(&b);
	device_close(d);
}

/* More batches than there are places, and nobody waits between them. */
static void places_take_turns(void **state)
{
	enum { MANY = 7 };
	const struct model_case c = {"images", {3, {12, 12, 3}}, "flatten; dense units=4"};
	struct device *d = open_gpu();
	struct graph *nets[MANY];
	struct device_images ims[MANY];
	struct err e = {0};
	struct arch a;
	struct bytes b;
	(void)state;
	bytes_init(&b, d);
	moves_of(&b, &c.input, 1);
	make_arch(&a, &c);
	const size_t one = shape_count(&c.input);
	float *got = calloc(one * BATCH, sizeof *got);
	for (int i = 0; i < MANY; i++)
		must(graph_new(&nets[i], &a, d, BATCH, &e), &e);
	control_step(d, true);
	for (int i = 0; i < MANY; i++) {
		const size_t from = (size_t)i * BATCH;
		ims[i] = (struct device_images){c.input, b.pixels + from * one, b.moves + from,
		        b.table, b.labels + from, BATCH};
		if (i % 3 == 0)
			must(d->backend->images_ahead(d, &ims[i], &e), &e);
		must(d->backend->images(d, &nets[i]->program, &ims[i], &e), &e);
	}
	control_step(d, false);
	for (int i = 0; i < MANY; i++) {
		d->backend->download(d, got, nets[i]->input, one * BATCH * sizeof *got);
		compare_values(&c.input, &ims[i], got);
		graph_free(nets[i]);
	}
	free(got);
	arch_close(&a);
	bytes_close(&b);
	device_close(d);
}

/* What was begun ahead is there: not copied once more, neither when it is begun again nor when it
 * is wanted, also if a second model has come meanwhile. Counted in calls of the driver's. */
static void ahead_is_copied_once(void **state)
{
	const struct model_case c = {"images", {3, {12, 12, 1}}, "flatten; dense units=4"};
	struct device *d = open_gpu();
	struct graph *n, *second;
	struct err e = {0};
	struct arch a;
	struct bytes b;
	long begun[2], wanted[2];
	(void)state;
	if (!control.calls)
		skip();
	bytes_init(&b, d);
	make_arch(&a, &c);
	must(graph_new(&n, &a, d, BATCH, &e), &e);
	const struct device_images im = {c.input, b.pixels, NULL, b.table, b.labels, BATCH};
	float *got = calloc(shape_count(&c.input) * BATCH, sizeof *got);
	for (int i = 0; i < 2; i++) { /* at first it was not begun */
		long before = control.calls();
		must(d->backend->images(d, &n->program, &im, &e), &e);
		wanted[i] = control.calls() - before;
		for (int k = 0; k < 2 && i == 0; k++) {
			before = control.calls();
			must(d->backend->images_ahead(d, &im, &e), &e);
			begun[k] = control.calls() - before;
		}
		if (i == 0)
			must(graph_new(&second, &a, d, BATCH, &e), &e);
	}
	assert_true(begun[0] > 3);
	assert_int_equal(begun[1], 1); /* which device it is */
	assert_int_equal(wanted[1], wanted[0] - begun[0] + 1);
	d->backend->download(d, got, n->input, shape_count(&c.input) * BATCH * sizeof *got);
	compare_values(&c.input, &im, got);
	free(got);
	graph_free(second);
	graph_free(n);
	arch_close(&a);
	bytes_close(&b);
	device_close(d);
}

/* ---- runs */

enum { SAMPLES = 23, TESTS = 12, SIDE = 12, SIDE_FAILING = 4, STEPS = 5, LOSSES_MAX = 2 * STEPS };

struct set {
	struct arch arch;
	struct dataset data;
	uint32_t index[SAMPLES];
	float *params; /* owned */
};

static void set_init(struct set *s, int64_t side, int64_t channels)
{
	static const char *const layers[] = {
	        "flatten; dense units=16; relu; dropout p=0.2; dense units=4",
	        "conv2d units=4 kernel=3 pad=1; relu; max_pool; flatten; dense units=4"};
	const struct model_case c = {"run", {3, {side, side, channels}}, layers[channels > 1]};
	const size_t bytes = SAMPLES * shape_count(&c.input);
	struct rng r;
	make_arch(&s->arch, &c);
	s->data = (struct dataset){.shape = c.input,
	        .count = SAMPLES,
	        .classes = CLASSES,
	        .pixels = malloc(bytes),
	        .labels = malloc(SAMPLES * sizeof *s->data.labels)};
	s->params = calloc(s->arch.n_total, sizeof *s->params);
	rng_seed(&r, 8, 0);
	for (size_t i = 0; i < bytes; i++)
		s->data.pixels[i] = (uint8_t)rng_below(&r, 256);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		s->data.labels[i] = (int32_t)rng_below(&r, CLASSES);
		s->index[i] = i;
	}
	arch_init_params(&s->arch, 9, s->params);
}

static void set_close(struct set *s)
{
	arch_close(&s->arch);
	dataset_close(&s->data);
	free(s->params);
}

struct plan {
	bool bytes, ahead;
	bool evals;   /* one after each step: other batches use the places meanwhile */
	bool restart; /* in the middle the loader is freed and started anew, with a batch begun */
	bool zoom;
	int steps; /* 0: STEPS */
};

struct run {
	struct device *d; /* borrowed */
	struct graph *net;
	struct optim optim;
	struct loader *train, *test;
	double losses[LOSSES_MAX];
	int n_losses;
};

static int open_loader(struct run *r, const struct set *s, const struct plan *p, bool train,
        struct loader_position at, struct err *e)
{
	const struct loader_config c = {.data = &s->data,
	        .index = s->index,
	        .n_index = train ? SAMPLES : TESTS,
	        .batch = BATCH,
	        .seed = 4,
	        .augment = {.flip = train,
	                .shift = train ? 3 : 0,
	                .scale = train && p->zoom ? 0.2 : 0},
	        .norm = {1, {0.3}, {0.4}},
	        .shuffle = train,
	        .ahead = 1,
	        .dev = p->bytes ? r->d : NULL};
	return loader_new(train ? &r->train : &r->test, &c, at, e);
}

static int run_open(
        struct run *r, const struct set *s, const struct plan *p, struct device *d, struct err *e)
{
	static const struct optim_config sgd = {.kind = OPTIM_SGD, .momentum = 0.9};
	const struct loader_position start = {0};
	*r = (struct run){.d = d};
	int rc = graph_new(&r->net, &s->arch, d, BATCH, e);
	if (rc == 0) {
		graph_set_params(r->net, s->params);
		rc = optim_init(&r->optim, &sgd, r->net, e);
	}
	if (rc == 0)
		rc = open_loader(r, s, p, true, start, e);
	return rc ? rc : open_loader(r, s, p, false, start, e);
}

static void run_close(struct run *r)
{
	loader_free(r->train);
	loader_free(r->test);
	if (r->optim.net)
		optim_close(&r->optim);
	if (r->net)
		graph_free(r->net);
}

/* The batch after the one held, which is ready some time. */
static const struct batch *peek(struct loader *l)
{
	const struct batch *b;
	while (!(b = loader_peek(l)))
		sched_yield();
	return b;
}

/* As the trainer does it. Nothing in a step may wait for the device as a whole, or take memory. */
static int run_step(struct run *r, const struct plan *p, uint64_t seed, struct err *e)
{
	const struct batch *b = loader_next(r->train);
	struct loss_result loss;
	double norm;
	assert_true(!b->x == p->bytes);
	control_step(r->d, true);
	int rc = graph_train_begin(r->net, b, false, 1.0f / BATCH, seed, &loss, e);
	if (rc == 0 && p->ahead)
		rc = graph_ahead(r->net, peek(r->train), e);
	if (rc == 0)
		rc = graph_wait(r->net, e);
	if (rc == 0)
		rc = optim_step(&r->optim, 0.05, &norm, e);
	control_step(r->d, false);
	r->losses[r->n_losses++] = loss.loss_sum / BATCH;
	return rc;
}

static int run_work(struct run *r, const struct set *s, const struct plan *p, struct err *e)
{
	const int steps = p->steps ? p->steps : STEPS;
	int rc = 0;
	for (int i = 0; i < steps && rc == 0; i++) {
		if (p->restart && i == 2) {
			const struct loader_position at = loader_position(r->train);
			loader_free(r->train);
			r->train = NULL;
			rc = open_loader(r, s, p, true, (struct loader_position){at.epoch, 1}, e);
		}
		if (rc == 0)
			rc = run_step(r, p, (uint64_t)i, e);
		if (rc == 0 && p->evals) {
			struct eval_result v;
			rc = eval_run(r->net, r->test, &v, e);
			r->losses[r->n_losses++] = v.loss;
		}
	}
	return rc;
}

/* Losses and parameters, on a device of its own; params may be NULL. */
static void run_whole(const struct set *s, const struct plan *p, const char *order,
        unsigned long seed, struct run *r, float *params)
{
	struct err e = {0};
	if (control.schedule)
		control.schedule(order, seed);
	struct device *d = open_gpu();
	must(run_open(r, s, p, d, &e), &e);
	must(run_work(r, s, p, &e), &e);
	graph_get_params(r->net, params);
	must(graph_check(r->net, &e), &e);
	run_close(r);
	device_close(d);
}

/* Against the same by floats. */
static void compare_runs(const struct set *s, struct plan p, unsigned long seeds)
{
	const size_t n = s->arch.n_total;
	float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
	struct plan floats = p;
	struct run a, b;
	floats.bytes = floats.ahead = false;
	run_whole(s, &floats, "eager", 0, &a, want);
	for (unsigned long seed = 0; seed <= seeds; seed++) {
		run_whole(s, &p, seed ? "random" : "lazy", seed, &b, got);
		assert_int_equal(a.n_losses, b.n_losses);
		for (int i = 0; i < a.n_losses; i++)
			if (!(fabs(a.losses[i] - b.losses[i]) <= 1e-6 * a.losses[i]))
				fail_msg("seed %lu: loss %d is %.9g, want %.9g", seed, i,
				        b.losses[i], a.losses[i]);
		if (apart(got, want, n) > (p.zoom && RESIZED_ALIKE > 0 ? 1e-5 : 0))
			fail_msg("seed %lu: the parameters are off by %g", seed,
			        apart(got, want, n));
	}
	assert_true(apart(want, s->params, n) > 1e-3);
	free(want);
	free(got);
}

static const struct plan plans[] = {
        {.bytes = true},
        {.bytes = true, .ahead = true, .zoom = true},
        {.bytes = true, .ahead = true, .evals = true},
        {.bytes = true, .ahead = true, .restart = true, .zoom = true},
        {.bytes = true, .evals = true, .restart = true},
};
#define N_PLANS (sizeof plans / sizeof *plans)

static void bytes_train_as_floats(void **state)
{
	(void)state;
	for (int64_t channels = 1; channels <= 3; channels += 2) {
		struct set s;
		set_init(&s, SIDE, channels);
		for (size_t i = 0; i < N_PLANS; i++)
			compare_runs(&s, plans[i], 1);
		set_close(&s);
	}
}

static void orders_do_not_matter(void **state)
{
	struct set s;
	(void)state;
	device_close(open_gpu());
	if (!control.schedule)
		skip();
	set_init(&s, SIDE, 1);
	for (size_t i = 0; i < N_PLANS; i++)
		compare_runs(&s, plans[i], 20);
	set_close(&s);
}

/* ---- failures */

static int life(const void *arg, long *marked, struct err *e)
{
	static const struct plan p = {
	        .bytes = true, .ahead = true, .evals = true, .restart = true, .steps = 3};
	const struct device_config config = {.threads = 1};
	const struct set *s = arg;
	struct device *d = NULL;
	struct run r = {0};
	int rc = device_open(&d, "cuda:0", &config, NULL, e);
	if (rc == 0)
		rc = run_open(&r, s, &p, d, e);
	if (rc == 0)
		rc = run_work(&r, s, &p, e);
	if (rc == 0)
		rc = graph_check(r.net, e);
	*marked = control.calls();
	run_close(&r);
	device_close(d);
	return rc;
}

static void every_call_may_fail(void **state)
{
	struct set s;
	(void)state;
	device_close(open_gpu());
	if (!control.fail_call)
		skip();
	set_init(&s, SIDE_FAILING, 1);
	control.schedule("random", 1);
	fail_each(life, &s, 0);
	fail_each(life, &s, -1); /* the device is gone for good */
	set_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest ops[] = {TEST(values_are_alike), TEST(places_take_turns),
	        TEST(ahead_is_copied_once), TEST(bytes_train_as_floats)};
	const struct CMUnitTest schedules[] = {TEST(orders_do_not_matter)};
	const struct CMUnitTest failures[] = {TEST(every_call_may_fail)};
	const char *what = argc > 1 ? argv[1] : "ops";
	if (strcmp(what, "ops") == 0)
		return cmocka_run_group_tests_name("images", ops, NULL, NULL);
	if (strcmp(what, "schedules") == 0)
		return cmocka_run_group_tests_name("images", schedules, NULL, NULL);
	if (strcmp(what, "failures") == 0)
		return cmocka_run_group_tests_name("images", failures, NULL, NULL);
	fprintf(stderr, "test_images ops|schedules|failures\n");
	return 2;
}
