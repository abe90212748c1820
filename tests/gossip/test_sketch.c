/* SPDX-License-Identifier: MIT */
/* Sketches: the same numbers as a second implementation has, as exact as the theory says, and able
 * to tell a model of the flock from what is none. */
#include "agent/base/rng.h"
#include "gossip/policy/sketch.h"
#include "tests/support.h"

#include <math.h>

#define N 20000

static float x[N], y[N];

static struct sketch sketch_of(const float *v, size_t at, size_t n)
{
	struct sketch s = {{0}};
	sketch_add(&s, v, at, n);
	return s;
}

static double norm2(const float *v, size_t n)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (double)v[i] * (double)v[i];
	return sum;
}

/* Eighths, so that no sum is ever rounded. The numbers are those of a few lines of Python. */
static void test_golden(void **state)
{
	static const float first[8] = {
	        38.875f, -22.625f, 17.375f, 28.25f, -32.125f, 42.375f, -34.75f, -36.125f};
	static const uint8_t bytes[8] = {0, 0x80, 0x1b, 0x42, 0, 0, 0xb5, 0xc1};
	uint8_t out[SKETCH_BUCKETS * 4];
	uint8_t guarded[SKETCH_BUCKETS * 4 + 1] = {0};
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	(void)state;
	for (int i = 0; i < 5000; i++)
		x[i] = (float)((i * i * 7 + i * 13) % 201) / 8 - 12.5f;
	struct sketch s = sketch_of(x, 1000000007, 5000);
	for (int i = 0; i < 8; i++)
		assert_true(s.bucket[i] == first[i]);
	assert_true(s.bucket[255] == 10.375f);
	sketch_pack(&s, out);
	assert_memory_equal(out, bytes, sizeof bytes);
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		s.bucket[i] = 0.1f;
	sketch_pack(&s, guarded);
	assert_int_equal(guarded[SKETCH_BUCKETS * 4 - 1], 0x3d);
	assert_int_equal(guarded[SKETCH_BUCKETS * 4], 0);
	s = sketch_of(x, 1000000007, 5000);
	for (size_t i = 0; i < sizeof out; i++)
		hash = (hash ^ out[i]) * 0x100000001b3u;
	assert_true(hash == 0xb21bc5e260f6e516u);
	assert_true(sketch_norm(&s) * sketch_norm(&s) > 309139.76);
	assert_true(sketch_norm(&s) * sketch_norm(&s) < 309139.77);

	struct sketch t = s; /* in pieces: the same, nothing being rounded */
	memset(&t, 0, sizeof t);
	for (size_t at = 0; at < 5000; at += 625)
		sketch_add(&t, x + at, 1000000007 + at, 625);
	assert_memory_equal(&s, &t, sizeof s);
	memset(&t, 0, sizeof t); /* also where blocks end, and inside of one */
	for (size_t at = 0, n = 0; at < 5000; at += n) {
		n = at == 0 ? 249 : at < 800 ? 256 : at < 1300 ? 3 : 900;
		n = at + n > 5000 ? 5000 - at : n;
		sketch_add(&t, x + at, 1000000007 + at, n);
	}
	assert_memory_equal(&s, &t, sizeof s);
}

/* What the header says of one coordinate is what becomes of it: others read only that. */
static void test_hash(void **state)
{
	static const float one = 1;
	(void)state;
	for (size_t i = 0; i < 3 * SKETCH_BUCKETS; i++) {
		size_t at = (1ull << 33) + 77 + i, j = at % SKETCH_BUCKETS;
		uint64_t block = at / SKETCH_BUCKETS;
		size_t bucket = (sketch_hash_turn(block) + j) % SKETCH_BUCKETS;
		float want = sketch_hash_sign(block, (unsigned)j) ? -1 : 1;
		struct sketch s = sketch_of(&one, at, 1);
		assert_true(s.bucket[bucket] == want);
		assert_true(sketch_norm(&s) == 1);
	}
}

/* The relative error of an estimated distance², over many pairs of that kind. */
static void errors(int kind, double *bias, double *rms)
{
	enum { TIMES = 600, LENGTH = 2000 };
	struct rng r;
	double sum = 0, squares = 0;
	rng_seed(&r, 7, (uint64_t)kind);
	for (int t = 0; t < TIMES; t++) {
		size_t at = (size_t)t * LENGTH;
		for (size_t i = 0; i < LENGTH; i++) {
			float v[] = {rng_f32(&r) - 0.5f, 1, (float)i, i & 1 ? -1 : 1,
			        (float)(i % 10 == 3), sinf((float)i * 0.01f)};
			x[i] = rng_f32(&r) * 1000;
			y[i] = x[i] + v[kind];
		}
		struct sketch a = sketch_of(x, at, LENGTH), b = sketch_of(y, at, LENGTH);
		for (size_t i = 0; i < LENGTH; i++)
			y[i] -= x[i];
		double d = sketch_distance(&a, &b), e = d * d / norm2(y, LENGTH) - 1;
		sum += e;
		squares += e * e;
	}
	*bias = sum / TIMES;
	*rms = sqrt(squares / TIMES);
}

/* √(2/256) = 0.088 in the square, no bias, and that for differences with any pattern. */
static void test_accuracy(void **state)
{
	(void)state;
	for (int kind = 0; kind < 6; kind++) {
		double bias, rms;
		errors(kind, &bias, &rms);
		if (fabs(bias) > 0.015 || rms < 0.078 || rms > 0.100)
			fail_msg("kind %d: bias %.4f, error %.4f", kind, bias, rms);
	}
}

static void test_linear(void **state)
{
	struct rng r;
	(void)state;
	rng_seed(&r, 3, 0);
	for (int i = 0; i < N; i++) {
		x[i] = rng_f32(&r) - 0.5f;
		y[i] = rng_f32(&r) - 0.5f;
	}
	struct sketch a = sketch_of(x, 5, N), b = sketch_of(y, 5, N);
	for (int i = 0; i < N; i++)
		x[i] = 3 * x[i] - y[i];
	struct sketch c = sketch_of(x, 5, N);
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		assert_true(fabsf(c.bucket[i] - (3 * a.bucket[i] - b.bucket[i])) < 1e-4f);
	/* The place of a coordinate matters. */
	b = sketch_of(x, 6, N);
	assert_true(sketch_distance(&b, &c) > sketch_norm(&c));
	b = sketch_of(x, 5 + (1ull << 32), N);
	assert_true(sketch_distance(&b, &c) > sketch_norm(&c));
}

static void test_bytes(void **state)
{
	static const float edges[] = {0, -0.0f, 1e-45f, -3.4e38f, 1.17549435e-38f};
	uint8_t bytes[SKETCH_BUCKETS * 4];
	struct sketch s = {{0}}, t;
	struct rng r;
	(void)state;
	rng_seed(&r, 4, 0);
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		s.bucket[i] = i < 5 ? edges[i] : (float)rng_normal(&r);
	sketch_pack(&s, bytes);
	assert_true(sketch_unpack(&t, bytes, sizeof bytes));
	assert_memory_equal(&s, &t, sizeof s);
	assert_false(sketch_unpack(&t, bytes, sizeof bytes - 1));
	assert_false(sketch_unpack(&t, bytes, sizeof bytes + 1));
	assert_false(sketch_unpack(&t, bytes, 0));
	static const float bad[] = {INFINITY, -INFINITY, NAN};
	for (int i = 0; i < 3; i++)
		for (int at = 0; at < SKETCH_BUCKETS; at += 255) {
			struct sketch u = s;
			u.bucket[at] = bad[i];
			sketch_pack(&u, bytes);
			assert_false(sketch_unpack(&t, bytes, sizeof bytes));
		}
}

/* 1, 2 and 6 in one bucket, and their negatives in another: mean 3, squares 4 + 1 + 9, twice,
 * over 3. */
static void test_consensus(void **state)
{
	struct sketch s[3] = {{{0}}};
	static const float v[3] = {1, 2, 6};
	(void)state;
	for (int i = 0; i < 3; i++) {
		s[i].bucket[0] = v[i];
		s[i].bucket[255] = -v[i];
	}
	assert_true(fabs(sketch_consensus(s, 3) - sqrt(28.0 / 3)) < 1e-12);
	assert_true(sketch_consensus(s, 1) == 0 && sketch_consensus(s, 0) == 0);
	s[1] = s[2] = s[0];
	assert_true(sketch_consensus(s, 3) == 0);
}

/* A flock: a common path from common weights, and everyone's own way beside it. */
#define PEERS 7
#define AGE 40
static struct {
	float base[N], drift[N];
	struct sketch peer[PEERS];
} f;

static void model(float *out, unsigned agent, float age)
{
	struct rng r;
	rng_seed(&r, 11, agent);
	for (int i = 0; i < N; i++)
		out[i] = f.base[i] + age * f.drift[i] + 0.1f * (rng_f32(&r) - 0.5f);
}

static int make_flock(void **state)
{
	struct rng r;
	(void)state;
	rng_seed(&r, 10, 0);
	for (int i = 0; i < N; i++) {
		f.base[i] = rng_f32(&r) - 0.5f;
		f.drift[i] = 0.01f * (rng_f32(&r) - 0.5f);
	}
	for (unsigned i = 0; i < PEERS; i++) {
		model(x, i, AGE);
		f.peer[i] = sketch_of(x, 0, N);
	}
	return 0;
}

static bool plausible(const float *v, int n)
{
	struct sketch s = sketch_of(v, 0, N);
	return sketch_plausible(&s, f.peer, n);
}

static void test_plausible(void **state)
{
	struct rng r;
	(void)state;
	rng_seed(&r, 12, 0);
	for (int n = 1; n <= PEERS; n++) {
		for (float age = 0; age <= 2 * AGE; age += 10) { /* news is late, either way */
			model(y, 99, age);
			assert_true(plausible(y, n));
		}
		model(y, 99, AGE);
		for (int i = 0; i < N; i++)
			x[i] = -y[i];
		assert_false(plausible(x, n));
		for (int i = 0; i < N; i++)
			x[i] = 10 * y[i];
		assert_false(plausible(x, n));
		for (int i = 0; i < N; i++)
			x[i] = y[(i + 1) % N];
		assert_false(plausible(x, n));
		for (int i = 0; i < N; i++)
			x[i] = rng_f32(&r) - 0.5f;
		assert_false(plausible(x, n));
		memset(x, 0, sizeof x);
		assert_false(plausible(x, n));
		y[N / 2] = NAN;
		assert_false(plausible(y, n));
		y[N / 2] = INFINITY;
		assert_false(plausible(y, n));
	}
	assert_false(plausible(y, 0));
	memset(x, 0, sizeof x);
	assert_true(plausible(x, 0)); /* nobody to ask */
}

/* A flock that is far apart, small beside that, knows its models by their distances. */
static void test_plausible_far_apart(void **state)
{
	struct rng r;
	struct sketch peer[PEERS + 1];
	(void)state;
	rng_seed(&r, 13, 0);
	for (int k = 0; k <= PEERS; k++) {
		for (int i = 0; i < N; i++)
			x[i] = (float)(rng_normal(&r) + 0.3);
		peer[k] = sketch_of(x, 0, N);
	}
	assert_true(sketch_distance(&peer[0], &peer[1]) > sketch_norm(&peer[0]));
	assert_true(sketch_plausible(&peer[PEERS], peer, PEERS));
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		peer[PEERS].bucket[i] *= 10;
	assert_false(sketch_plausible(&peer[PEERS], peer, PEERS));
}

/* Less than half of the peers lie, in favour of a bad donor or against a good one. */
static void test_liars(void **state)
{
	struct sketch peer[PEERS], gift;
	(void)state;
	for (int k = 0; k < PEERS; k++) {
		peer[k] = f.peer[k];
		for (int i = 0; i < SKETCH_BUCKETS && k < 3; i++)
			peer[k].bucket[i] *= k == 0 ? -1000 : 1e30f;
	}
	model(x, 99, AGE);
	gift = sketch_of(x, 0, N);
	assert_true(sketch_plausible(&gift, peer, PEERS));
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		gift.bucket[i] *= -1;
	assert_false(sketch_plausible(&gift, peer, PEERS));
	for (int k = 0; k < 3; k++)
		peer[k] = gift;
	assert_false(sketch_plausible(&gift, peer, PEERS));
}

/* More peers than are asked: no more than those are looked at. */
static void test_many_peers(void **state)
{
	static struct sketch peer[3 * SKETCH_PEERS_MAX];
	(void)state;
	for (int k = 0; k < 3 * SKETCH_PEERS_MAX; k++)
		if (k < SKETCH_PEERS_MAX)
			peer[k] = f.peer[k % PEERS];
	assert_true(sketch_plausible(&f.peer[0], peer, 3 * SKETCH_PEERS_MAX));
	assert_false(sketch_plausible(&f.peer[0], peer + SKETCH_PEERS_MAX, 2 * SKETCH_PEERS_MAX));
}

static int by_size(const void *a, const void *b)
{
	double p = *(const double *)a, q = *(const double *)b;
	return (p > q) - (p < q);
}

/* The lower one of the middle. */
static double middle(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, by_size);
	return v[(n - 1) / 2];
}

/* As a second implementation has it. */
static double spread_of(const struct sketch *peer, int n)
{
	double usual[PEERS], distance[PEERS];
	for (int i = 0; i < n; i++) {
		int m = 0;
		for (int k = 0; k < n; k++)
			if (k != i)
				distance[m++] = sketch_distance(&peer[i], &peer[k]);
		usual[i] = middle(distance, m);
	}
	return middle(usual, n) / sqrt(2);
}

/* Peers around the origin, and a model beside all of them: four spreads from the middle one, and
 * not a thousandth more, it may be. */
static void test_four_spreads(void **state)
{
	struct rng r;
	(void)state;
	rng_seed(&r, 14, 0);
	for (int t = 0; t < 300; t++) {
		struct sketch peer[PEERS] = {{{0}}}, given = {{0}};
		double from[PEERS];
		int n = 2 + t % (PEERS - 1);
		for (int k = 0; k < n; k++) {
			for (int i = 0; i < 6; i++)
				peer[k].bucket[i] = (float)rng_normal(&r);
			from[k] = sketch_norm(&peer[k]);
		}
		qsort(from, (size_t)n, sizeof *from, by_size);
		double most = 4 * spread_of(peer, n), near2 = from[n / 2] * from[n / 2];
		for (int beyond = 0; beyond < 2; beyond++) {
			double to = most * (beyond ? 1.001 : 0.999);
			assert_true(to * to > near2 && to > from[n / 2] / 2);
			given.bucket[200] = (float)sqrt(to * to - near2);
			assert_int_equal(sketch_plausible(&given, peer, n), !beyond);
		}
	}
}

/* One peer has no spread: half of its length it may be. */
static void test_one_peer_has_no_spread(void **state)
{
	struct sketch peer = {{1}}, near = {{1, 0.5f}}, far = {{1, 0.51f}};
	(void)state;
	assert_true(sketch_plausible(&near, &peer, 1));
	assert_false(sketch_plausible(&far, &peer, 1));
}

/* To be as near is not to be nearer. */
static void test_nearer(void **state)
{
	struct sketch here = {{1}}, one = {{2}}, other = {{0}}, far = {{4}};
	(void)state;
	assert_true(sketch_nearer(&here, &one, &far));
	assert_false(sketch_nearer(&here, &far, &one));
	assert_false(sketch_nearer(&here, &one, &other));
	assert_false(sketch_nearer(&here, &one, &one));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden),
	        cmocka_unit_test(test_hash),
	        cmocka_unit_test(test_accuracy),
	        cmocka_unit_test(test_linear),
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_consensus),
	        cmocka_unit_test_setup(test_plausible, make_flock),
	        cmocka_unit_test(test_plausible_far_apart),
	        cmocka_unit_test_setup(test_liars, make_flock),
	        cmocka_unit_test_setup(test_many_peers, make_flock),
	        cmocka_unit_test(test_four_spreads),
	        cmocka_unit_test(test_one_peer_has_no_spread),
	        cmocka_unit_test(test_nearer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
