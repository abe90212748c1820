/* SPDX-License-Identifier: MIT */
/* What the GPU backend gives to peers: snapshots rounded as the wire wants them and sketched, into
 * memory of its own or anyone's, against the code that the CPU uses, bit by bit. In random orders,
 * and with every call failing once, test_stage has them, too. Run as test_gpu is. */
#include "tests/gpu/wire_fixture.h"

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
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

/* Of n + 1 floats that are copied, the first n, as they travel. */
static void sketched(const struct wire *w, size_t n, enum copy_format format)
{
	const enum convert_format f = (enum convert_format)format;
	struct sketch want = {0}, got[2];
	struct convert_sums sums = {0};
	uint8_t *to = calloc(n + 1, sizeof(float));
	float *x = calloc(n + 1, sizeof *x);
	for (int i = 0; i < 2; i++)
		snapshot_now(w, (struct device_copy){.x = w->net->params,
		                        .n = n + 1,
		                        .format = format,
		                        .to = to,
		                        .sketch = got[i].bucket,
		                        .n_sketch = n});
	convert_base.pack(f, to, w->f.params, n);
	convert_base.take(f, x, to, NULL, n, TAKE_WORDS, &sums);
	sketch_add(&want, x, 0, n);
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		if (!(fabsf(got[0].bucket[i] - want.bucket[i]) <= 1e-6f * fabsf(want.bucket[i])))
			fail_msg("a sketch of %zu: bucket %d is %g, want %g", n, i,
			        (double)got[0].bucket[i], (double)want.bucket[i]);
	assert_memory_equal(&got[0], &got[1], sizeof got[0]);
	free(to);
	free(x);
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
	graph_set_params(w.net, w.f.params);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (int format = COPY_FP32; format <= COPY_BF16; format++)
			sketched(&w, lengths[i], (enum copy_format)format);
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
	struct graph *equal, *larger;
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
	must(stage(&w, gift, GIFT, &e), &e);
	must(graph_new(&equal, &w.f.arch, w.d, BATCH, &e), &e);
	must(graph_new(&larger, &a, w.d, BATCH, &e), &e);
	assert_int_equal(atomic_load(&flag), 1);
	atomic_store(&flag, 0);
	copy.to = to;
	must(w.k->snapshot(w.d, &copy, &e), &e);
	w.k->host_release(w.d, to);
	assert_int_equal(atomic_load(&flag), 1);
	w.k->host_release(w.d, gift);
	free(any);
	graph_free(larger);
	graph_free(equal);
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

int main(void)
{
	const struct CMUnitTest ops[] = {TEST(words_are_the_wires), TEST(sketches_are_the_flocks),
	        TEST(no_room_is_said), TEST(snapshots_under_way), TEST(no_more_than_that)};
	return cmocka_run_group_tests_name("wire", ops, NULL, NULL);
}
