/* SPDX-License-Identifier: MIT */
/* What the GPU backend does for exchanges: snapshots rounded as the wire wants them and sketched,
 * into memory of its own or anyone's; and what peers have to add, copied up while it computes and
 * added by the update itself. All of it against the code that the CPU uses, bit by bit; then in
 * random orders, and with every call failing once. Run as test_gpu is.
 *
 * test_wire ops|schedules|failures */
#include "gossip/sketch.h"
#include "net/convert.h"
#include "tests/gpu/fixture.h"

#include <limits.h>

/* A model that makes room for snapshots of 76,254 floats. */
static const struct model_case room = {"room", {1, {300}}, "dense units=250; relu; dense units=4"};

struct wire {
	struct fixture f;
	struct device *d;
	const struct backend *k;
	struct net *net;
	size_t n; /* of its parameters */
};

static void wire_init(struct wire *w)
{
	fixture_init(&w->f, &room);
	w->d = open_gpu();
	w->k = w->d->backend;
	w->net = make_net(&w->f, w->d);
	w->n = w->f.arch.n_total;
}

static void wire_close(struct wire *w)
{
	net_free(w->net);
	device_close(w->d);
	fixture_close(&w->f);
}

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void fill(float *x, size_t n, uint64_t seed)
{
	struct rng r;
	rng_seed(&r, seed, 0);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)rng_normal(&r);
}

/* NULL: there is no memory, or no device any more. */
static float *to_device(const struct wire *w, const float *x, size_t n)
{
	float *there = w->k->alloc(w->d, n * sizeof *x);
	if (there)
		w->k->upload(w->d, there, x, n * sizeof *x);
	return there;
}

/* Nothing here may wait for the device as a whole, or take memory. */
static void snapshot_now(const struct wire *w, struct device_copy c)
{
	atomic_int flag = 0;
	struct err e = {0};
	c.done_cb = arrived;
	c.arg = &flag;
	control_step(w->d, true);
	must(w->k->snapshot(w->d, &c, &e), &e);
	control_step(w->d, false);
	wait_for(&flag);
}

/* ---- rounding */

enum { SPECIALS = 2 * 256 * 2 * 7, PACKED = SPECIALS + 1001 };

/* Every sign and exponent with an odd and an even last place and what may lie behind that: ties,
 * beside ties, infinities, every sort of NaN, what is denormal or overflows; then any bits. */
static void specials(float x[PACKED])
{
	static const uint32_t behind[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x007f8001};
	struct rng r;
	size_t n = 0;
	for (uint32_t top = 0; top < 512; top++)
		for (uint32_t odd = 0; odd < 2; odd++)
			for (size_t k = 0; k < 7; k++)
				x[n++] = float_of(top << 23 | odd << 16 | behind[k]);
	rng_seed(&r, 4, 0);
	while (n < PACKED)
		x[n++] = float_of((uint32_t)rng_u64(&r));
}

static void packed_as_the_cpu_does(const struct wire *w, const float *there, const float *x,
        size_t n, enum copy_format format, uint8_t *to)
{
	static uint8_t want[PACKED * sizeof *x];
	const size_t bytes = n * convert_word((enum convert_format)format);
	memset(to, 0x5a, bytes + 4);
	snapshot_now(w, (struct device_copy){there, n, format, .to = to});
	convert_base.pack((enum convert_format)format, want, x, n);
	for (size_t i = 0; i < bytes; i++)
		if (to[i] != want[i])
			fail_msg("format %d, byte %zu of %zu: %02x, want %02x", (int)format, i,
			        bytes, to[i], want[i]);
	for (size_t i = bytes; i < bytes + 4; i++)
		assert_int_equal(to[i], 0x5a);
}

static void words_are_the_wires(void **state)
{
	static const size_t lengths[] = {1, 2, 255, PACKED - 1, PACKED};
	static float x[PACKED];
	struct wire w;
	(void)state;
	wire_init(&w);
	specials(x);
	float *there = to_device(&w, x, PACKED);
	uint8_t *any = malloc(sizeof x + 4), *ours = w.k->host_alloc(w.d, sizeof x + 8);
	assert_non_null(ours);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (int format = COPY_FP32; format <= COPY_BF16; format++) {
			enum copy_format f = (enum copy_format)format;
			size_t from = PACKED - lengths[i]; /* so that places are odd and even */
			packed_as_the_cpu_does(&w, there + from, x + from, lengths[i], f, any);
			packed_as_the_cpu_does(&w, there + from, x + from, lengths[i], f, ours + 4);
		}
	w.k->host_release(w.d, ours);
	w.k->release(w.d, there);
	free(any);
	wire_close(&w);
}

/* ---- sketches */

/* Of n + 1 floats that are copied, the first n. */
static void sketched(const struct wire *w, size_t n)
{
	struct sketch want = {0}, got[2];
	uint16_t *to = calloc(n + 1, sizeof *to);
	sketch_add(&want, w->f.params, 0, n);
	for (int i = 0; i < 2; i++)
		snapshot_now(w, (struct device_copy){.x = w->net->params,
		                        .n = n + 1,
		                        .format = COPY_BF16,
		                        .to = to,
		                        .sketch = got[i].bucket,
		                        .n_sketch = n});
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		if (!(fabsf(got[0].bucket[i] - want.bucket[i]) <= 1e-6f * fabsf(want.bucket[i])))
			fail_msg("a sketch of %zu: bucket %d is %g, want %g", n, i,
			        (double)got[0].bucket[i], (double)want.bucket[i]);
	assert_memory_equal(&got[0], &got[1], sizeof got[0]);
	free(to);
}

static void sketches_are_the_flocks(void **state)
{
	static const size_t lengths[] = {0, 1, 255, 256, 257, 20000, 70000};
	struct sketch s;
	struct err e = {0};
	struct wire w;
	float to;
	(void)state;
	wire_init(&w);
	fill(w.f.params, w.n, 8);
	net_set_params(w.net, w.f.params);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		sketched(&w, lengths[i]);
	const struct device_copy more = {
	        w.net->params, 1, COPY_FP32, &to, s.bucket, .n_sketch = 2, .done_cb = arrived};
	assert_int_equal(w.k->snapshot(w.d, &more, &e), ERR_INVALID);
	wire_close(&w);
}

static void no_room_is_said(void **state)
{
	atomic_int flag = 0;
	struct wire w;
	struct err e = {0};
	float to;
	(void)state;
	wire_init(&w);
	const struct device_copy c = {
	        w.net->params, w.n + 1, COPY_BF16, &to, .done_cb = arrived, .arg = &flag};
	assert_int_equal(w.k->snapshot(w.d, &c, &e), ERR_BUSY);
	assert_int_equal(atomic_load(&flag), 0);
	wire_close(&w);
}

/* One that is under way, or staged, comes first when a larger model makes more room, or when its
 * memory is given back. */
static void snapshots_under_way(void **state)
{
	const struct model_case c = {"larger", {1, {300}}, "dense units=260; relu; dense units=4"};
	enum { GIFT = 100 };
	atomic_int flag = 0;
	struct net *equal, *larger;
	struct err e = {0};
	struct arch a;
	struct wire w;
	(void)state;
	wire_init(&w);
	if (!control.schedule)
		skip();
	control.schedule("lazy", 0);
	make_arch(&a, &c);
	uint16_t *to = w.k->host_alloc(w.d, w.n * sizeof *to);
	uint16_t *any = calloc(w.n, sizeof *any); /* comes by way of the device's own memory */
	struct device_copy copy = {
	        w.net->params, w.n, COPY_BF16, any, .done_cb = arrived, .arg = &flag};
	float *gift = w.k->host_alloc(w.d, GIFT * sizeof *gift);
	fill(gift, GIFT, 1);
	must(w.k->snapshot(w.d, &copy, &e), &e);
	must(w.k->stage(w.d, gift, GIFT, &e), &e);
	must(net_new(&equal, &w.f.arch, w.d, BATCH, &e), &e);
	must(net_new(&larger, &a, w.d, BATCH, &e), &e);
	assert_int_equal(atomic_load(&flag), 1);
	atomic_store(&flag, 0);
	copy.to = to;
	must(w.k->snapshot(w.d, &copy, &e), &e);
	w.k->host_release(w.d, to);
	assert_int_equal(atomic_load(&flag), 1);
	w.k->host_release(w.d, gift);
	free(any);
	net_free(larger);
	net_free(equal);
	arch_close(&a);
	wire_close(&w);
}

static atomic_bool may_go;

/* As arrived, but the first one keeps the driver's thread. */
static void arrived_late(void *arg, int rc)
{
	while (!atomic_load(&may_go))
		sched_yield();
	arrived(arg, rc);
}

/* More than can be under way, and more memory than there are blocks for: told, and nothing lost. */
static void no_more_than_that(void **state)
{
	enum { MANY = 100 };
	atomic_int flag[MANY] = {0};
	float to[MANY];
	void *blocks[MANY];
	int asked = 0, taken = 0;
	struct err e = {0};
	struct wire w;
	(void)state;
	wire_init(&w);
	if (!control.schedule)
		skip();
	atomic_store(&may_go, false);
	for (int rc = 0; rc == 0; asked += rc == 0) {
		assert_true(asked < MANY);
		const struct device_copy c = {w.net->params, 1, COPY_FP32, &to[asked],
		        .done_cb = arrived_late, .arg = &flag[asked]};
		rc = w.k->snapshot(w.d, &c, &e);
		assert_true(rc == 0 || rc == ERR_BUSY);
	}
	assert_true(asked > 1);
	atomic_store(&may_go, true);
	must(w.k->settle(w.d, &e), &e);
	for (int i = 0; i < asked; i++)
		assert_int_equal(atomic_load(&flag[i]), 1);
	while (taken < MANY && (blocks[taken] = w.k->host_alloc(w.d, 100)))
		taken++;
	assert_true(taken > 1 && taken < MANY);
	while (taken > 0)
		w.k->host_release(w.d, blocks[--taken]);
	wire_close(&w);
}

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
	must(w->k->stage(w->d, host, N, &e), &e);
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

/* What was not staged is refused, and the parameters are what they were. */
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
	must(w.k->stage(w.d, h, N, &e), &e);
	must(w.k->stage(w.d, h, N, &e), &e);
	assert_true(control.instructions() == before);
	struct net *equal; /* needs no more room, so what is staged stays */
	must(net_new(&equal, &w.f.arch, w.d, BATCH, &e), &e);
	must(update(&w, &x, &updates[0], 0, N, h, &e), &e);
	net_free(equal);
	vectors_free(&w, &x);
	assert_true(control.instructions() > before);
	w.k->host_release(w.d, h);
	wire_close(&w);
}

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
	assert_int_equal(w.k->stage(w.d, any, N, &e), ERR_BUSY);
	assert_int_equal(w.k->stage(w.d, h + 2 * N + 1, N, &e), ERR_BUSY);
	assert_int_equal(w.k->stage(w.d, h, w.n + 1, &e), ERR_BUSY);
	REFUSED(0, N, any);
	must(w.k->stage(w.d, staged, N, &e), &e);
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
	must(w.k->stage(w.d, h, N, &e), &e);
	must(w.k->stage(w.d, staged, N, &e), &e);
	REFUSED(0, N, h);
	w.k->host_release(w.d, h);
	REFUSED(0, N, staged);
#undef REFUSED
	vectors_free(&w, &x);
	vectors_free(&w, &same);
	free(any);
	wire_close(&w);
}

/* ---- all at once */

enum { ROUNDS = 4 };
struct result {
	float params[ROUNDS][N];
	uint16_t words[ROUNDS][N];
	struct sketch sketches[ROUNDS];
};

/* The memory of a step in an exchange: what comes up, what goes down. */
struct exchange {
	struct vectors x;
	float *gift;
	uint16_t *words;
	atomic_int flag;
};

/* While a snapshot is on its way down the next steps are taken, and what is to be added is on its
 * way up; the host uses its memory again as soon as it may. */
static int exchange_step(
        const struct wire *w, struct exchange *x, int i, struct result *out, struct err *e)
{
	const struct optim_args *kind = &updates[i % UPDATES];
	const struct device_copy c = {
	        x->x.w, N, COPY_BF16, x->words, out->sketches[i].bucket, N, arrived, &x->flag};
	bool asked = false;
	atomic_store(&x->flag, 0);
	fill(x->gift, N, (uint64_t)i);
	control_step(w->d, true);
	int rc = w->k->stage(w->d, x->gift, N, e);
	if (rc == 0)
		rc = update(w, &x->x, kind, 0, SPLIT, x->gift, e);
	if (rc == 0)
		rc = update(w, &x->x, kind, SPLIT, N, x->gift + SPLIT, e);
	if (rc == 0) {
		rc = w->k->snapshot(w->d, &c, e);
		asked = rc == 0;
		fill(x->gift, N, 77); /* ours again, also if it goes up once more */
	}
	if (rc == 0)
		rc = w->k->stage(w->d, x->gift, N, e);
	if (rc == 0)
		rc = update(w, &x->x, kind, 0, N, x->gift, e);
	control_step(w->d, false);
	/* Of a device that has failed it was told then. */
	while (asked && rc == 0 && atomic_load(&x->flag) == 0)
		sched_yield();
	if (asked && atomic_load(&x->flag) == 0)
		fail_msg("a snapshot was never told of");
	if (atomic_load(&x->flag) == 1)
		memcpy(out->words[i], x->words, sizeof out->words[i]);
	w->k->download(w->d, out->params[i], x->x.w, sizeof out->params[i]);
	return rc ? rc : w->k->settle(w->d, e);
}

/* marked: as of fail_each's lives. */
static int exchanges(const struct wire *w, struct result *out, long *marked, struct err *e)
{
	struct exchange x = {.x = vectors_new(w),
	        .gift = w->k->host_alloc(w->d, N * sizeof *x.gift),
	        .words = w->k->host_alloc(w->d, N * sizeof *x.words)};
	int rc = w->k->settle(w->d, e);
	if (rc == 0 && (!x.x.w || !x.x.m || !x.x.v || !x.x.g || !x.gift || !x.words))
		rc = err_set(e, ERR_NOMEM, "no memory for an exchange");
	for (int i = 0; i < ROUNDS && rc == 0; i++)
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
	must(exchanges(&w, &want, &marked, &e), &e);
	for (unsigned long seed = 0; seed <= 20; seed++) {
		control.schedule(seed ? "random" : "lazy", seed);
		must(exchanges(&w, &got, &marked, &e), &e);
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
		rc = net_new(&w.net, &f->arch, w.d, BATCH, e);
	if (rc == 0) {
		w.k = w.d->backend;
		rc = exchanges(&w, &out, marked, e);
	}
	if (w.net)
		net_free(w.net);
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
	const struct CMUnitTest ops[] = {TEST(words_are_the_wires), TEST(sketches_are_the_flocks),
	        TEST(no_room_is_said), TEST(snapshots_under_way), TEST(no_more_than_that),
	        TEST(staged_meanwhile), TEST(updates_add_as_add_does), TEST(only_what_is_staged)};
	const struct CMUnitTest schedules[] = {TEST(orders_do_not_matter)};
	const struct CMUnitTest failures[] = {TEST(every_call_may_fail)};
	const char *what = argc > 1 ? argv[1] : "ops";
	if (strcmp(what, "ops") == 0)
		return cmocka_run_group_tests_name(what, ops, NULL, NULL);
	if (strcmp(what, "schedules") == 0)
		return cmocka_run_group_tests_name(what, schedules, NULL, NULL);
	if (strcmp(what, "failures") == 0)
		return cmocka_run_group_tests_name(what, failures, NULL, NULL);
	fprintf(stderr, "test_wire ops|schedules|failures\n");
	return 2;
}
