/* SPDX-License-Identifier: MIT */
/* The gate's rules one at a time, against numbers worked out by hand. */
#include "tests/gossip/gate_fixture.h"

#define DAY_MS 86400000u

/* ---- significance */

static void significance_by_hand(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_SIGNIFICANCE);
	c.warm = 3;
	begin(&f, c);
	struct gate_decision d = step(&f, 1, 1, 1.0);
	expect(d, true, REASON_WARMUP);
	assert_false(d.has_change);
	expect(step(&f, 1, 1, 1.0), true, REASON_WARMUP);
	assert_false(gate_view(f.g, f.now).warm);
	expect(step(&f, 1, 1, 1.0), true, REASON_WARMUP);
	assert_true(gate_view(f.g, f.now).warm);
	d = step(&f, 1, 1, 1.5); /* e = 0.84 + 0.24 */
	expect(d, false, REASON_LOCAL);
	assert_true(d.has_change);
	near(d.change, 0.08, 1e-12);
	near(d.delta, 0.1, 0);
	d = step(&f, 1, 1, 2.0); /* e = 0.84 · 1.08 + 0.32 = 1.2272; Δ = 0.1472 / 1.08 */
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, 0.1472 / 1.08, 1e-12);
	d = step(&f, 1, 1, 0.0); /* downwards counts as much: Δ = 0.16 */
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, 0.16, 1e-12);
	struct gate_view v = gate_view(f.g, f.now);
	near(v.average, 0.84 * 1.2272, 1e-12);
	assert_int_equal(v.local, 1);
	assert_int_equal(v.communicating, 5);
	assert_int_equal(v.by_reason[REASON_WARMUP], 3);
	assert_int_equal(v.by_reason[REASON_SIGNIFICANT], 2);
	assert_true(v.budget_left < 0 && v.cap_left < 0);

	gate_renew(f.g); /* warm-up again, and nothing of the old average */
	v = gate_view(f.g, f.now);
	assert_true(!v.warm && !v.has_change && v.average == 0);
	for (int i = 0; i < 3; i++)
		expect(step(&f, 1, 1, 900.0), true, REASON_WARMUP);
	d = step(&f, 1, 1, 900.0);
	expect(d, false, REASON_LOCAL);
	assert_true(d.change == 0);
	end(&f);
}

static void odd_gradients(void **s)
{
	(void)s;
	static const double odd[] = {NAN, INFINITY, -INFINITY, -1.0};
	for (int mode = GATE_SIGNIFICANCE; mode <= GATE_SELSYNC; mode++) {
		struct fixture f;
		struct gate_config c = defaults((enum gate_mode)mode);
		c.warm = 2;
		begin(&f, c);
		for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) /* nor do they warm it up */
			expect(step(&f, 1, 1, odd[i]), false, REASON_LOCAL);
		for (int i = 0; i < 2; i++)
			expect(step(&f, 1, 1, 4.0), true, REASON_WARMUP);
		for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
			struct gate_decision d = step(&f, 1, 1, odd[i]);
			expect(d, false, REASON_LOCAL);
			assert_false(d.has_change);
		}
		near(gate_view(f.g, f.now).average, 4.0, 0);
		struct gate_decision d = step(&f, 1, 1, 4.0);
		expect(d, false, REASON_LOCAL);
		assert_true(d.has_change && d.change == 0);
		end(&f);
	}
	struct fixture f;
	struct gate_config c = defaults(GATE_SIGNIFICANCE);
	c.warm = 1;
	begin(&f, c);
	step(&f, 1, 1, 0.0);
	struct gate_decision d = step(&f, 1, 1, 1e-29); /* from nothing to next to nothing */
	expect(d, true, REASON_SIGNIFICANT);
	assert_false(d.has_change);
	d = step(&f, 1, 1, 1e300); /* e was 1.6e-30: over the bound again */
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, GATE_CHANGE_MAX, 0);
	end(&f);
}

/* Straightforwardly, over the whole history, with the powers written out. */
static double smoothed(const double *x, int n, int width, double a)
{
	double sum = 0, total = 0;
	for (int k = 1; k <= width && k <= n; k++) {
		sum += pow(1 - a, k) * x[n - k];
		total += pow(1 - a, k);
	}
	return sum / total;
}

static void selsync_smooths_twice(void **s)
{
	(void)s;
	enum { STEPS = 300, WIDTH = 25 };
	static double norms[STEPS], average[STEPS], change[STEPS];
	struct fixture f;
	struct gate_config c = defaults(GATE_SELSYNC);
	c.warm = WIDTH;
	c.smooth = 0.01;
	c.delta = 0.02;
	begin(&f, c);
	struct rng r;
	rng_seed(&r, 1, 2);
	int n_changes = 0, fired = 0;
	for (int i = 0; i < STEPS; i++) {
		norms[i] = (i < 150 ? 3 : 6) * exp(0.4 * rng_normal(&r));
		struct gate_decision d = step(&f, 1, 1, norms[i]);
		average[i] = smoothed(norms, i + 1, WIDTH, c.smooth);
		if (i + 1 <= WIDTH) { /* the window fills, then there is one s, but no Δ */
			expect(d, true, REASON_WARMUP);
			assert_false(d.has_change);
			continue;
		}
		change[n_changes++] = fabs(average[i] - average[i - 1]) / average[i - 1];
		double want = smoothed(change, n_changes, WIDTH, c.smooth);
		assert_true(d.has_change);
		near(d.change, want, 1e-9);
		expect(d, want >= c.delta, want >= c.delta ? REASON_SIGNIFICANT : REASON_LOCAL);
		fired += d.exchange;
	}
	assert_in_range(fired, 1, STEPS - WIDTH - 1); /* both sides of δ were seen */
	end(&f);
}

/* ---- every, always, random */

static void plain_modes(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, defaults(GATE_EVERY));
	for (int i = 1; i <= 40; i++)
		expect(step(&f, 1, 1, 1), i % 10 == 0, i % 10 ? REASON_LOCAL : REASON_MODE);
	expect(step(&f, 1, 9, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 5, 1), true, REASON_MODE); /* four steps late */
	expect(step(&f, 1, 9, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1000, 1), true, REASON_MODE);
	expect(step(&f, 1, 1, 1), false, REASON_LOCAL); /* and only once for all of them */
	f.step = 3;                                     /* an older state was loaded */
	for (int i = 2; i <= 10; i++)
		expect(step(&f, 1, 1, 1), i == 10, i < 10 ? REASON_LOCAL : REASON_MODE);
	end(&f);

	begin(&f, defaults(GATE_ALWAYS));
	for (int i = 0; i < 10; i++)
		expect(step(&f, 1, 1, i == 5 ? NAN : 1), true, REASON_MODE);
	end(&f);

	begin(&f, defaults(GATE_RANDOM));
	int n = 0;
	for (int i = 0; i < 10000; i++)
		n += step(&f, 1, 3, 1).exchange;
	near(n, 2500, 0.07); /* four standard deviations */
	end(&f);
}

static uint64_t trace(uint64_t seed, enum gate_mode mode)
{
	struct fixture f;
	struct gate_config c = defaults(mode);
	c.seed = seed;
	c.exchanges_per_s = 1;
	begin(&f, c);
	struct rng r;
	rng_seed(&r, 3, 4);
	uint64_t hash = 0;
	for (int i = 0; i < 2000; i++) {
		struct gate_decision d = step(&f, 20, 1, exp(rng_normal(&r)));
		hash = rng_mix(hash, d.exchange, d.reason);
		if (d.exchange && rng_below(&r, 3) > 0)
			gate_owed(f.g, f.now);
		else if (d.exchange)
			gate_spent(f.g, f.now, 100 * KB, true, true);
	}
	end(&f);
	return hash;
}

static void same_seed_same_decisions(void **s)
{
	(void)s;
	for (int m = 0; m < GATE_MODES; m++) {
		enum gate_mode mode = (enum gate_mode)m;
		if (mode == GATE_SELSYNC)
			continue; /* its window is a setting that defaults() has not */
		assert_true(trace(1, mode) == trace(1, mode));
		assert_false(trace(1, mode) == trace(2, mode));
	}
}

/* ---- precedence */

static void silence_is_broken(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_EVERY);
	c.every = 1000000;
	c.silence_steps = 7;
	begin(&f, c);
	for (int i = 1; i < 7; i++)
		expect(step(&f, 1, 1, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE);
	gate_spent(f.g, f.now, 10, true, false); /* tried is not done */
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE);
	gate_spent(f.g, f.now, 10, false, true); /* a peer's does as well as ours */
	expect(step(&f, 1, 6, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE);
	end(&f);

	c.silence_steps = 0;
	c.silence_ms = 500;
	begin(&f, c);
	expect(step(&f, 499, 1, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE);
	gate_spent(f.g, f.now + 200, 10, true, true);
	expect(step(&f, 699, 1, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE);
	end(&f);
}

static void cap_before_silence_before_mode(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.exchanges_per_s = 1e-6;
	c.cap_bytes_per_s = 1000; /* an exchange is 100 s of it */
	c.silence_steps = 3;
	c.warm = 1000;
	begin(&f, c);
	expect(step(&f, 1, 1, 1), true, REASON_WARMUP);
	gate_spent(f.g, f.now, 100 * KB, true, true);
	for (int i = 0; i < 5; i++) /* nothing goes over the cap, be it silent or not */
		expect(step(&f, 1, 1, 1), false, REASON_CAP);
	assert_false(gate_admits(f.g, f.now));
	expect(step(&f, 99990, 1, 1), false, REASON_CAP);
	expect(step(&f, 5, 1, 1), true, REASON_SILENCE); /* which overrules the spacing */
	gate_spent(f.g, f.now, 100 * KB, true, true);
	expect(step(&f, 100000, 1, 1), false, REASON_BUDGET); /* wanted, but too soon */
	assert_true(gate_admits(f.g, f.now));
	near(gate_view(f.g, f.now).cap_left, 100e3, 1e-9);
	end(&f);
}

static void exchanges_count_without_bytes(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.exchanges_per_s = 1;
	c.warm = 1000;
	begin(&f, c);
	for (int i = 0; i < 4; i++) { /* what a puller uploads: nothing */
		expect(step(&f, 0, 1, 1), i == 0, i == 0 ? REASON_WARMUP : REASON_BUDGET);
		gate_spent(f.g, f.now, 0, true, true);
	}
	expect(step(&f, 1999, 1, 1), false, REASON_BUDGET); /* half of the tokens are ours */
	expect(step(&f, 1, 1, 1), true, REASON_WARMUP);
	end(&f);
}

/* ---- owed */

static void owed_is_tried_again(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, defaults(GATE_EVERY));
	step(&f, 1, 1, 1);
	expect(step(&f, 1, 9, 1), true, REASON_MODE);
	uint64_t least = 50;
	for (int i = 0; i < 12; i++) {
		gate_owed(f.g, f.now);
		assert_true(gate_view(f.g, f.now).owed);
		uint64_t from = f.now;
		struct gate_decision d;
		while (!(d = step(&f, 1, 1, 1)).exchange) /* every tenth would have liked one */
			assert_true(d.reason == REASON_LOCAL || d.reason == REASON_OWED);
		expect(d, true, REASON_OWED);
		assert_in_range(f.now - from, least, least * 2);
		least = least * 2 < 2500 ? least * 2 : 2500;
	}
	assert_in_range(gate_view(f.g, f.now).by_reason[REASON_OWED], 500, 5000);
	gate_spent(f.g, f.now, 10, false, true);
	assert_false(gate_view(f.g, f.now).owed);
	for (int i = 1; i < 10; i++) /* nothing has piled up */
		expect(step(&f, 1, 1, 1), false, REASON_LOCAL);
	expect(step(&f, 1, 1, 1), true, REASON_MODE);
	gate_owed(f.g, f.now); /* and the wait is short again */
	expect(step(&f, 100, 1, 1), true, REASON_OWED);
	end(&f);

	struct gate_config c = defaults(GATE_SIGNIFICANCE);
	c.warm = 1000; /* nor is every step of a warm-up tried */
	begin(&f, c);
	int tried = 0;
	for (int i = 0; i < 1000; i++)
		if (step(&f, 10, 1, 1).exchange) {
			gate_owed(f.g, f.now);
			tried++;
		}
	assert_in_range(tried, 5, 12);
	end(&f);
}

static void quota_survives(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.bytes_per_day = 1e6; /* ten exchanges */
	c.silence_steps = 1;
	const uint64_t noon = 20000 * UINT64_C(86400) + 43200;
	begin(&f, c);
	struct gate_quota q = {0, 0};
	gate_quota_set(f.g, &q, noon); /* nothing is known: days from midnight */
	assert_int_equal(gate_quota_get(f.g, noon).day_start_s, noon - 43200);
	for (int i = 0; i < 7; i++) {
		expect(step(&f, 1000, 1, 1), true, REASON_SILENCE);
		gate_spent(f.g, f.now, 100 * KB, true, true);
	}
	q = gate_quota_get(f.g, noon + 7);
	assert_int_equal(q.bytes, 700 * KB);
	end(&f);

	begin(&f, c); /* an hour later, after a restart */
	gate_quota_set(f.g, &q, noon + 3600);
	assert_int_equal(gate_view(f.g, f.now).day_bytes, 700 * KB);
	assert_int_equal(gate_quota_get(f.g, noon + 3600).day_start_s, noon - 43200);
	for (int i = 0; i < 3; i++) {
		assert_true(gate_admits(f.g, f.now));
		expect(step(&f, 1000, 1, 1), true, REASON_SILENCE);
		gate_spent(f.g, f.now, 100 * KB, i > 0, true);
	}
	expect(step(&f, 1000, 1, 1), false, REASON_BUDGET); /* not even for silence */
	assert_false(gate_admits(f.g, f.now));
	assert_true(gate_view(f.g, f.now).budget_left == 0);
	uint64_t rest = (43200 - 3600 - 4) * UINT64_C(1000);
	expect(step(&f, rest - 1, 1, 1), false, REASON_BUDGET);
	expect(step(&f, 1, 1, 1), true, REASON_SILENCE); /* midnight */
	gate_spent(f.g, f.now, 100 * KB, true, true);
	q = gate_quota_get(f.g, noon + 43200);
	assert_int_equal(q.day_start_s, noon + 43200);
	assert_int_equal(q.bytes, 100 * KB);
	/* Asked, or set, days later: a new day. A clock that went back: used stays used. */
	assert_int_equal(gate_quota_get(f.g, noon + 43200 + 86399).bytes, 100 * KB);
	assert_int_equal(gate_quota_get(f.g, noon + 43200 + 86400).bytes, 0);
	gate_quota_set(f.g, &q, noon + 43200 + 3 * 86400 + 5);
	assert_int_equal(gate_view(f.g, f.now).day_bytes, 0);
	assert_int_equal(gate_quota_get(f.g, noon + 43200 + 3 * 86400 + 5).day_start_s,
	        noon + 43200 + 3 * 86400);
	gate_quota_set(f.g, &q, noon);
	assert_int_equal(gate_view(f.g, f.now).day_bytes, 100 * KB);
	assert_int_equal(gate_view(f.g, f.now + DAY_MS - 1).day_bytes, 100 * KB);
	assert_int_equal(gate_view(f.g, f.now + DAY_MS).day_bytes, 0);
	end(&f);

	begin(&f, c); /* never told the time: the day began with the gate */
	step(&f, 5000, 1, 1);
	assert_int_equal(gate_quota_get(f.g, noon).day_start_s, noon - 5);
	end(&f);
}

static void a_quota_has_room_for_an_exchange(void **s)
{
	(void)s;
	struct err e;
	struct gate *g = malloc(gate_size());
	struct gate_config c = defaults(GATE_BUDGET);
	c.bytes_per_day = 1e6;
	assert_int_equal(gate_init(g, &c, 0, &e), 0);
	c.bytes_per_day = 99e3;
	assert_int_equal(gate_init(g, &c, 0, &e), ERR_INVALID);
	assert_non_null(strstr(e.msg, "gossip.bytes_per_day"));
	c.mode = GATE_EVERY; /* which has no quota */
	assert_int_equal(gate_init(g, &c, 0, &e), 0);
	free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(significance_by_hand),
	        cmocka_unit_test(odd_gradients),
	        cmocka_unit_test(selsync_smooths_twice),
	        cmocka_unit_test(plain_modes),
	        cmocka_unit_test(same_seed_same_decisions),
	        cmocka_unit_test(silence_is_broken),
	        cmocka_unit_test(cap_before_silence_before_mode),
	        cmocka_unit_test(exchanges_count_without_bytes),
	        cmocka_unit_test(owed_is_tried_again),
	        cmocka_unit_test(quota_survives),
	        cmocka_unit_test(a_quota_has_room_for_an_exchange),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
