/* SPDX-License-Identifier: MIT */
/* The lattice at every level that this processor has, against arithmetic in long integers: packed
 * bytes, wraps seen at both sides, opposite differences, what is refused; and many agents that
 * average in random pairs, with nothing else moving them: their sum stays, they come together. */
#include "net/bulk/lattice.h"

#include "agent/base/rng.h"
#include "tests/support.h"

#include <math.h>

#define BLOCKS 120
#define N (BLOCKS * LATTICE_BLOCK - 100) /* the last block is not whole */

static uint32_t hash(uint32_t u)
{
	u = (u ^ u >> 16) * 0x7feb352du;
	u = (u ^ u >> 15) * 0x846ca68bu;
	return u ^ u >> 16;
}

struct pair {
	struct lattice l;
	int8_t scale[BLOCKS];
	float x[2][N];
	uint8_t record[2][BLOCKS * (LATTICE_SUM_BYTES + 256)], difference[2][BLOCKS * 256];
	struct lattice_found found[2][BLOCKS];
};

/* Two vectors a few steps apart. Of eight blocks one has single wraps, one has many, one has an
 * exact half of the lattice between two parameters. */
static void fill(struct pair *p, int bits)
{
	double half = 1 << (bits - 1);
	p->l = (struct lattice){.bits = bits, .count = N, .scale = p->scale};
	for (size_t b = 0; b < BLOCKS; b++)
		p->scale[b] = (int8_t)(-40 + (int)(hash((uint32_t)b) % 50));
	for (size_t i = 0; i < N; i++) {
		uint32_t b = (uint32_t)(i / LATTICE_BLOCK), h = hash((uint32_t)i + 77);
		double units = (double)(h % 200001) - 100000;
		double step = (double)lattice_step(&p->l, b);
		for (int s = 0; s < 2; s++) {
			double u =
			        units +
			        ((double)(hash((uint32_t)(2 * i) + (uint32_t)s) % 10001) / 10001 -
			                0.5) *
			                (half - 1.6);
			if (s && b % 8 == 5 && i % LATTICE_BLOCK == b % 100)
				u += (h & 256 ? half : -2 * half) * (1 + (h >> 9) % 3);
			if (s && b % 8 == 6 && (h >> 9) % 16 == 0)
				u += h & 256 ? 2 * half : -2 * half;
			if (b % 8 == 7 && i % LATTICE_BLOCK == 9)
				u = units + (s ? half : 0);
			p->x[s][i] = (float)(u * step);
		}
	}
}

static int delta_of(int bits, const uint8_t *d, size_t i)
{
	size_t in = i % LATTICE_BLOCK;
	d += i / LATTICE_BLOCK * 32 * (size_t)bits;
	if (bits == 8)
		return (int8_t)d[in];
	int byte = d[in / 32 * 16 + in % 16], nibble = in % 32 < 16 ? byte & 15 : byte >> 4;
	return nibble >= 8 ? nibble - 16 : nibble;
}

static long units_of(const struct pair *p, int side, size_t i)
{
	return lrint((double)p->x[side][i] / (double)lattice_step(&p->l, i / LATTICE_BLOCK));
}

static void check_block(const struct pair *p, int side, size_t b)
{
	long most = 0, squares = 0, want[LATTICE_BLOCK] = {0};
	for (size_t i = 0; i < LATTICE_BLOCK && b * LATTICE_BLOCK + i < N; i++) {
		size_t at = b * LATTICE_BLOCK + i;
		want[i] = units_of(p, !side, at) - units_of(p, side, at);
		most = labs(want[i]) > most ? labs(want[i]) : most;
		squares += want[i] * want[i];
	}
	bool wraps = most >= 1 << (p->l.bits - 1);
	if (b < BLOCKS - 1) /* the last is not whole */
		assert_true(wraps == (b % 8 >= 5));
	assert_int_equal(p->found[side][b].top, wraps ? LATTICE_WRAPPED : most);
	assert_int_equal(p->found[side][b].squares, wraps ? 0 : squares);
	for (size_t i = 0; i < LATTICE_BLOCK && b * LATTICE_BLOCK + i < N; i++)
		assert_int_equal(delta_of(p->l.bits, p->difference[side], b * LATTICE_BLOCK + i),
		        wraps ? 0 : want[i]);
}

static void check_levels(int bits)
{
	static struct pair p, first;
	const struct lattice_loops *all[LATTICE_LEVELS + 1];
	static float d[2][N], part[N];
	lattice_all(all);
	for (int level = 0; all[level]; level++) {
		lattice_use(all[level]);
		memset(&p, 0, sizeof p);
		fill(&p, bits);
		for (int s = 0; s < 2; s++) /* in two pieces */
			for (size_t at = 0, n = 3 * LATTICE_BLOCK; at < N; at += n, n = N - at)
				assert_true(lattice_pack(&p.l,
				        p.record[s] + at / LATTICE_BLOCK * lattice_record(bits),
				        p.x[s] + at, at, n, NULL));
		for (int s = 0; s < 2; s++) {
			lattice_take(&p.l, p.difference[s], p.found[s], p.record[!s], p.record[s],
			        BLOCKS);
			for (size_t b = 0; b < BLOCKS; b++)
				check_block(&p, s, b);
			lattice_unpack(&p.l, d[s], p.difference[s], 0, N);
		}
		for (size_t i = 0; i < N; i++) {
			float want = lattice_step(&p.l, i / LATTICE_BLOCK) *
			             (float)delta_of(bits, p.difference[0], i);
			assert_true(d[0][i] == want && d[0][i] == -d[1][i]);
		}
		lattice_unpack(&p.l, part, p.difference[0], 100, 1000);
		assert_memory_equal(part, d[0] + 100, 1000 * sizeof *part);
		if (level == 0)
			first = p;
		first.l = p.l; /* it holds a pointer */
		assert_memory_equal(&p, &first, sizeof p);
	}
	lattice_use(NULL);
}

static void test_levels(void **state)
{
	(void)state;
	check_levels(4);
	check_levels(8);
}

static void test_refused(void **state)
{
	(void)state;
	const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
	static float x[N];
	static uint8_t records[BLOCKS * (LATTICE_SUM_BYTES + 256)];
	static int8_t scale[BLOCKS];
	const struct lattice_loops *all[LATTICE_LEVELS + 1];
	lattice_all(all);
	for (int level = 0; all[level]; level++)
		for (int bits = 4; bits <= 8; bits += 4) {
			lattice_use(all[level]);
			memset(scale, bits == 4 ? 4 : 8, sizeof scale); /* steps of 1 */
			struct lattice l = {.bits = bits, .count = N, .scale = scale};
			assert_true(lattice_step(&l, 0) == 1);
			for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
				size_t at = (i * 7919 + 13) % N;
				at = i == 3 ? N - 1 : at;
				x[at] = bad[i];
				assert_false(lattice_pack(&l, records, x, 0, N, NULL));
				x[at] = copysignf(0x1p30f, bad[i]);
				assert_true(lattice_pack(&l, records, x, 0, N, NULL));
				x[at] = 0;
			}
		}
	lattice_use(NULL);
}

/* A peer that says of its own scales that they are tiny makes the steps so small that parameters
 * are 2^31 of them and more: such blocks are left out by both, and are no fault of ours. */
static void test_too_many_steps(void **state)
{
	(void)state;
	static struct pair p;
	const struct lattice_loops *all[LATTICE_LEVELS + 1];
	const int8_t tiny = -100;
	lattice_all(all);
	for (int level = 0; all[level]; level++)
		for (int bits = 4; bits <= 8; bits += 4) {
			lattice_use(all[level]);
			fill(&p, bits);
			for (size_t b = 0; b < BLOCKS; b++)
				p.scale[b] = p.scale[b] > -20 ? tiny : p.scale[b];
			for (size_t i = 0; i < N; i++) {
				p.x[0][i] = 1.0f / 16;
				p.x[1][i] = 0;
			}
			for (int s = 0; s < 2; s++)
				assert_true(lattice_pack(&p.l, p.record[s], p.x[s], 0, N, NULL));
			for (int s = 0; s < 2; s++)
				lattice_take(&p.l, p.difference[s], p.found[s], p.record[!s],
				        p.record[s], BLOCKS);
			for (size_t b = 0; b < BLOCKS; b++)
				for (int s = 0; s < 2 && p.scale[b] == tiny; s++)
					assert_int_equal(p.found[s][b].top, LATTICE_WRAPPED);
		}
	lattice_use(NULL);
}

/* ---- scales */

/* What a scale stands for is told apart without a wrap; in mod8 also what is five times as far. */
static void test_steps(void **state)
{
	(void)state;
	for (int s = SCALES_LEAST; s < SCALES_MOST; s++) {
		double m = pow(2, s / 2.0);
		const int8_t one = (int8_t)s;
		for (int bits = 4; bits <= 8; bits += 4) {
			struct lattice l = {.bits = bits, .count = 1, .scale = &one};
			double most = (1 << (bits - 1)) - 1, far = bits == 4 ? 1 : 5;
			assert_true(most * (double)lattice_step(&l, 0) >= far * m);
			assert_true(most * (double)lattice_step(&l, 0) <= (far == 1 ? 2 : 8) * m);
		}
	}
}

/* One step may be rounding, however coarse the step is: it makes no scale larger. */
static void test_a_step_says_nothing(void **state)
{
	(void)state;
	const int8_t scale = 0;
	for (int bits = 4; bits <= 8; bits += 4) {
		struct lattice l = {.bits = bits, .count = 1, .scale = &scale};
		float step = lattice_step(&l, 0);
		for (uint8_t top = 0; top < 1 << (bits - 1); top++) {
			struct lattice_found f = {.top = top};
			assert_int_equal(lattice_scale(&l, 0, &f),
			        top < 2 ? SCALES_LEAST : scales_of(1.25f * step * (float)top));
		}
		assert_int_equal(
		        lattice_scale(&l, 0, &(struct lattice_found){.top = LATTICE_WRAPPED}),
		        SCALES_WRAPPED);
	}
}

/* ---- agents that average, and nothing else */

#define AGENTS 8
#define COUNT 1500
#define ROUNDS 40

struct agents {
	float x[AGENTS][COUNT];
	struct scales s[AGENTS];
	double sum[COUNT], most; /* at the beginning; the largest |x| */
};

static double consensus(const struct agents *f)
{
	double all = 0;
	for (size_t i = 0; i < COUNT; i++) {
		double mean = 0;
		for (int a = 0; a < AGENTS; a++)
			mean += (double)f->x[a][i] / AGENTS;
		for (int a = 0; a < AGENTS; a++)
			all += ((double)f->x[a][i] - mean) * ((double)f->x[a][i] - mean);
	}
	return sqrt(all / AGENTS);
}

static void learn(struct agents *f, int a, const float *d, const struct lattice *l,
        const struct lattice_found *found)
{
	int8_t most[8], size[8];
	memset(most, SCALES_LEAST, sizeof most);
	memset(size, SCALES_LEAST, sizeof size);
	for (size_t i = 0; i < COUNT; i++) {
		size_t b = i / LATTICE_BLOCK;
		int8_t m = l ? lattice_scale(l, b, &found[b]) : scales_of(1.25f * fabsf(d[i]));
		int8_t s = scales_of(fabsf(f->x[a][i]));
		most[b] = m > most[b] ? m : most[b];
		size[b] = s > size[b] ? s : size[b];
	}
	scales_learn(&f->s[a], most, size, l ? l->scale : NULL, scales_count(COUNT), false);
}

/* One exchange; the first of the two that have none fills their scales from plain numbers. */
static void exchange(struct agents *f, int bits, int a, int b, const float *k)
{
	static uint8_t record[2][6 * (LATTICE_SUM_BYTES + 256)], difference[2][6 * 256];
	struct lattice_found found[2][6] = {0};
	float d[2][COUNT];
	int8_t scale[8];
	const int who[2] = {a, b};
	struct lattice l = {.bits = bits, .count = COUNT, .scale = scale};
	bool plain = f->s[a].n == 0 || f->s[b].n == 0;
	if (!plain)
		scales_agree(scale, f->s[a].scale, f->s[b].scale, scales_count(COUNT));
	for (int s = 0; s < 2 && !plain; s++)
		assert_true(lattice_pack(&l, record[s], f->x[who[s]], 0, COUNT, NULL));
	for (int s = 0; s < 2; s++) {
		if (plain) {
			for (size_t i = 0; i < COUNT; i++)
				d[s][i] = f->x[who[!s]][i] - f->x[who[s]][i];
			continue;
		}
		lattice_take(
		        &l, difference[s], found[s], record[!s], record[s], lattice_blocks(COUNT));
		lattice_unpack(&l, d[s], difference[s], 0, COUNT);
	}
	for (int s = 0; s < 2; s++) {
		learn(f, who[s], d[s], plain ? NULL : &l, found[s]);
		for (size_t i = 0; i < COUNT; i++)
			f->x[who[s]][i] += k[i * 3 / COUNT] * d[s][i];
	}
}

static void begin(struct agents *f, struct rng *r)
{
	memset(f, 0, sizeof *f);
	for (int a = 0; a < AGENTS; a++)
		for (size_t i = 0; i < COUNT; i++) {
			double size = pow(2, -(double)(i / 300));
			f->x[a][i] = (float)((rng_f64(r) - 0.5) * size * 0.02);
			f->x[a][i] += (float)(hash((uint32_t)i) % 1000) / 1000 - 0.5f;
			f->sum[i] += (double)f->x[a][i];
		}
}

static void check_sum(const struct agents *f, int exchanges)
{
	for (size_t i = 0; i < COUNT; i++) {
		double sum = 0;
		for (int a = 0; a < AGENTS; a++)
			sum += (double)f->x[a][i];
		/* Each exchange rounds two numbers under 1 to fp32. */
		assert_true(fabs(sum - f->sum[i]) <= sqrt(2.0 * exchanges) * 4 * 0x1p-25);
	}
}

/* Ξ/Ξ0 of random pairs, ROUNDS rounds of AGENTS/2 exchanges. */
static double together(int bits, uint64_t seed)
{
	static struct agents f;
	const float k[3] = {0.5f, 0.5f, 0.5f};
	struct rng r;
	int order[AGENTS];
	rng_seed(&r, seed, 0);
	begin(&f, &r);
	double before = consensus(&f);
	for (int round = 0; round < ROUNDS; round++) {
		for (int a = 0; a < AGENTS; a++)
			order[a] = a;
		for (int a = AGENTS - 1; a > 0; a--) {
			int b = (int)rng_below(&r, (uint32_t)a + 1), t = order[a];
			order[a] = order[b];
			order[b] = t;
		}
		for (int a = 0; a < AGENTS; a += 2)
			exchange(&f, bits, order[a], order[a + 1], k);
	}
	check_sum(&f, ROUNDS * AGENTS / 2);
	return consensus(&f) / before;
}

static void test_together(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		double eight = together(8, seed), four = together(4, seed);
		print_message("seed %d: mod8 %.2g, mod4 %.2g\n", (int)seed, eight, four);
		assert_true(eight <= 1e-3);
		assert_true(four <= 0.03);
	}
}

/* With clipping by group, and far more exchanges: nothing piles up. */
static void test_sum_stays(void **state)
{
	(void)state;
	for (int bits = 4; bits <= 8; bits += 4) {
		static struct agents f;
		struct rng r;
		rng_seed(&r, 9, 0);
		begin(&f, &r);
		for (int i = 0; i < 1000; i++) {
			const float k[3] = {0.5f, 0.5f * rng_f32(&r), 0.01f};
			int a = (int)rng_below(&r, AGENTS), b = (int)rng_below(&r, AGENTS - 1);
			exchange(&f, bits, a, b + (b >= a), k);
		}
		check_sum(&f, 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_levels),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_too_many_steps),
	        cmocka_unit_test(test_steps),
	        cmocka_unit_test(test_a_step_says_nothing),
	        cmocka_unit_test(test_together),
	        cmocka_unit_test(test_sum_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
