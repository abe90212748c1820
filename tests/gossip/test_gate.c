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
	c.warm = 7;
	begin(&f, c);
	for (int i = 1; i <= 7; i++) { /* plain means, both alike */
		assert_false(gate_view(f.g, f.now).warm);
		struct gate_decision d = step(&f, 1, 1, 1.0);
		expect(d, true, REASON_WARMUP);
		assert_int_equal(d.has_change, i > 1);
	}
	assert_true(gate_view(f.g, f.now).warm);
	struct gate_decision d = step(&f, 1, 1, 1.5); /* fast 0.84 + 0.24; slow, of 8: 1.0625 */
	expect(d, false, REASON_LOCAL);
	assert_true(d.has_change);
	near(d.change, log(1.08 / 1.0625), 1e-12);
	near(d.delta, 0.1, 0);
	d = step(&f, 1, 1, 6.0); /* 0.84 · 1.08 + 0.96; 14.5 / 9 */
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, log(1.8672 / (14.5 / 9)), 1e-12);
	for (int i = 10; i <= 12; i++)
		expect(step(&f, 1, 1, 0.0), false, REASON_LOCAL);
	d = step(&f, 1, 1, 0.0); /* downwards counts as much */
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, log(14.5 / 13 / (pow(0.84, 4) * 1.8672)), 1e-12);
	struct gate_view v = gate_view(f.g, f.now);
	near(v.average, pow(0.84, 4) * 1.8672, 1e-12);
	assert_int_equal(v.local, 4);
	assert_int_equal(v.communicating, 9);
	assert_int_equal(v.by_reason[REASON_WARMUP], 7);
	assert_int_equal(v.by_reason[REASON_SIGNIFICANT], 2);
	assert_true(v.budget_left == -1 && v.cap_left == -1);

	gate_renew(f.g); /* warm-up again, and nothing of the old average */
	v = gate_view(f.g, f.now);
	assert_true(!v.warm && !v.has_change && v.change == 0 && v.average == 0);
	for (int i = 0; i < 7; i++)
		expect(step(&f, 1, 1, 900.0), true, REASON_WARMUP);
	d = step(&f, 1, 1, 900.0);
	expect(d, false, REASON_LOCAL);
	assert_true(d.change == 0);
	end(&f);
}

/* With one gradient there is no change yet, with two there is one. */
static void the_second_gradient_tells(void **s)
{
	(void)s;
	for (uint32_t warm = 0; warm < 2; warm++) {
		struct fixture f;
		struct gate_config c = defaults(GATE_SIGNIFICANCE);
		c.warm = warm;
		begin(&f, c);
		expect(step(&f, 1, 1, 1.0), true, REASON_WARMUP);
		expect(step(&f, 1, 1, 1.0), false, REASON_LOCAL);
		end(&f);
	}
}

/* After 50 gradients the slow average forgets: 0.98 of it stays with each. */
static void the_slow_average_is_slow(void **s)
{
	(void)s;
	struct fixture f;
	begin(&f, defaults(GATE_SIGNIFICANCE));
	for (int i = 0; i < 60; i++)
		step(&f, 1, 1, 1.0);
	struct gate_decision d = step(&f, 1, 1, 2.0);
	near(d.change, log(1.16 / 1.02), 1e-12);
	end(&f);
}

/* What a larger batch does to ‖g‖² by itself is no change of the gradient. */
static void another_batch_is_no_change(void **s)
{
	(void)s;
	for (int mode = GATE_SIGNIFICANCE; mode <= GATE_SELSYNC; mode++) {
		struct fixture f;
		struct gate_config c = defaults((enum gate_mode)mode);
		const double signal = 2, noise = 320, before = signal + noise / 32,
		             after = signal + noise / 128;
		bool root = mode == GATE_SELSYNC;
		c.warm = 10;
		begin(&f, c);
		for (int i = 0; i < 100; i++)
			step(&f, 1, 1, root ? sqrt(before) : before);
		gate_batch(f.g, signal, noise, 32, 128);
		for (int i = 0; i < 100; i++) {
			struct gate_decision d = step(&f, 1, 4, root ? sqrt(after) : after);
			expect(d, false, REASON_LOCAL);
			assert_true(d.change < 1e-9);
		}
		near(gate_view(f.g, f.now).average, root ? sqrt(after) : after, 1e-12);
		/* What is not known changes nothing. */
		gate_batch(f.g, 0, 0, 32, 128);
		gate_batch(f.g, NAN, 1, 32, 128);
		gate_batch(f.g, 1, 1, 0, 128);
		assert_true(step(&f, 1, 4, root ? sqrt(after) : after).change < 1e-9);
		gate_batch(f.g, -3, 32, 128, 256); /* nothing but noise */
		near(gate_view(f.g, f.now).average, root ? sqrt(after / 2) : after / 2, 1e-9);
		end(&f);
	}
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
	for (int i = 0; i < 60; i++) /* nothing, and next to nothing, is no change */
		step(&f, 1, 1, 0.0);
	expect(step(&f, 1, 1, 1e-30), false, REASON_LOCAL);
	struct gate_decision d = step(&f, 1, 1, 1e300);
	expect(d, true, REASON_SIGNIFICANT);
	near(d.change, log(0.16 / 0.02), 1e-9);
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
	f.samples = 3;                                  /* an older state was loaded */
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
	c.every_samples = 1000000 * BATCH;
	c.silence_samples = 7 * BATCH;
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

	c.silence_samples = 0;
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
	c.silence_samples = 3 * BATCH;
	c.warm = 1000;
	begin(&f, c);
	expect(step(&f, 1, 1, 1), true, REASON_WARMUP);
	gate_spent(f.g, f.now, 100 * KB, true, true);
	for (int i = 0; i < 5; i++) /* nothing goes over the cap, be it silent or not */
		expect(step(&f, 1, 1, 1), false, REASON_CAP);
	assert_false(gate_admits(f.g, f.now, 100 * KB));
	expect(step(&f, 99990, 1, 1), false, REASON_CAP);
	expect(step(&f, 5, 1, 1), true, REASON_SILENCE); /* which overrules the spacing */
	gate_spent(f.g, f.now, 100 * KB, true, true);
	expect(step(&f, 100000, 1, 1), false, REASON_BUDGET); /* wanted, but too soon */
	assert_true(gate_admits(f.g, f.now, 100 * KB));
	near(gate_view(f.g, f.now).cap_left, 100e3, 1e-9);
	/* An offer in a longer format is paid by a full bucket, and leaves a debt. */
	assert_true(gate_admits(f.g, f.now, 400 * KB));
	gate_spent(f.g, f.now, 50 * KB, true, true);
	assert_true(gate_admits(f.g, f.now, 50 * KB));
	assert_false(gate_admits(f.g, f.now, 51 * KB));
	assert_false(gate_admits(f.g, f.now, 400 * KB));
	end(&f);
}

/* The guard's wants come after the mode's own, and are paid for like these. */
static void the_guard_is_heard(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_EVERY);
	c.cap_bytes_per_s = 1000;
	begin(&f, c);
	struct gate_step one = {.norm2 = 1, .due = true};
	for (uint64_t i = 1; i <= 10; i++) {
		one.samples = f.samples += BATCH;
		one.now_ms = f.now;
		struct gate_decision d = gate_step(f.g, &one);
		expect(d, true, REASON_GUARD); /* each starts `every` anew */
	}
	gate_spent(f.g, f.now, 100 * KB, true, true);
	one.samples += BATCH;
	expect(gate_step(f.g, &one), false, REASON_CAP);
	one.due = false;
	one.samples += BATCH;
	expect(gate_step(f.g, &one), false, REASON_LOCAL);
	one.due = true;
	one.samples += 10 * BATCH;
	one.now_ms += 200000;
	expect(gate_step(f.g, &one), true, REASON_MODE);
	end(&f);
}

/* Nobody can be met: silence, debt and guard do not ask at each step, and none is tried. */
static void alone_nothing_is_tried(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_EVERY);
	c.silence_samples = 50 * BATCH;
	begin(&f, c);
	struct gate_step one = {.norm2 = 1, .due = true, .alone = true};
	for (int i = 1; i <= 200; i++) {
		if (i == 150)
			gate_owed(f.g, f.now);
		one.samples = f.samples += BATCH;
		one.now_ms = f.now += 10000;
		enum gate_reason every = i < 150 ? REASON_MODE : REASON_OWED;
		expect(gate_step(f.g, &one), false, i % 10 == 0 ? every : REASON_LOCAL);
	}
	struct gate_view v = gate_view(f.g, f.now);
	assert_int_equal(v.local, 200);
	assert_int_equal(v.communicating, 0);
	one.alone = false;
	one.samples = f.samples += BATCH;
	expect(gate_step(f.g, &one), true, REASON_SILENCE);
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

/* However small the cap is. */
static void a_byte_a_second(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_ALWAYS);
	c.cap_bytes_per_s = 1;
	c.exchange_bytes = 1;
	begin(&f, c);
	expect(step(&f, 0, 1, 1), true, REASON_MODE);
	gate_spent(f.g, f.now, 2, true, true);
	expect(step(&f, 999, 1, 1), false, REASON_CAP);
	expect(step(&f, 1, 1, 1), true, REASON_MODE);
	end(&f);
}

/* What a day has left at its end comes in twice as fast as evenly, no faster. */
static void a_day_has_no_haste(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	const struct gate_quota q = {0, 0};
	c.bytes_per_day = 86400 * 1000.0; /* an exchange in 100 s */
	begin(&f, c);
	gate_quota_set(f.g, &q, 86400 - 3600);
	near(gate_view(f.g, f.now).budget_left, 8 * 100e3, 1e-9);
	near(gate_view(f.g, f.now + 200000).budget_left, 12 * 100e3, 1e-9);
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
	gate_spent(f.g, f.now, 10, false, true);
	gate_retry(f.g, 2); /* steps are short */
	gate_owed(f.g, f.now);
	expect(step(&f, 1, 1, 1), false, REASON_LOCAL);
	expect(step(&f, 3, 1, 1), true, REASON_OWED);
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
	c.silence_samples = 1;
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
		assert_true(gate_admits(f.g, f.now, (uint64_t)(3 - i) * 100 * KB));
		assert_false(gate_admits(f.g, f.now, (uint64_t)(3 - i) * 100 * KB + 1));
		expect(step(&f, 1000, 1, 1), true, REASON_SILENCE);
		gate_spent(f.g, f.now, 100 * KB, i > 0, true);
	}
	expect(step(&f, 1000, 1, 1), false, REASON_BUDGET); /* not even for silence */
	assert_false(gate_admits(f.g, f.now, 100 * KB));
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
	c.bytes_per_day = 1e6;
	c.first_bytes = 2000000;
	assert_int_equal(gate_check(&c, &e), ERR_INVALID);
	c.first_bytes = 0;
	c.mode = GATE_EVERY; /* which has no quota */
	assert_int_equal(gate_init(g, &c, 0, &e), 0);
	free(g);
}

/* After a renewal nothing is left of the steps before: changes are those of a new gate. */
static void renewed_is_as_new(void **s)
{
	(void)s;
	for (int mode = GATE_SIGNIFICANCE; mode <= GATE_SELSYNC; mode++) {
		struct fixture f, fresh;
		struct gate_config c = defaults((enum gate_mode)mode);
		c.warm = 5;
		begin(&f, c);
		begin(&fresh, c);
		for (int i = 0; i < 40; i++)
			step(&f, 1, 1, 50.0 + i % 7);
		gate_renew(f.g);
		for (int i = 0; i < 80; i++) {
			struct gate_decision d = step(&f, 1, 1, 1.0 + i % 5);
			struct gate_decision e = step(&fresh, 1, 1, 1.0 + i % 5);
			assert_int_equal(d.exchange, e.exchange);
			assert_int_equal(d.has_change, e.has_change);
			if (d.has_change)
				near(d.change, e.change, 1e-12);
		}
		end(&f);
		end(&fresh);
	}
}

/* Up by a fifth of log δ for an exchange; down by as much for a token that came in, but for no more
 * than one at once, however long the step took. */
/* The bucket fills while no step is made: asked later it pays. */
static void time_alone_fills_the_cap(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_ALWAYS);
	c.cap_bytes_per_s = 100e3;
	begin(&f, c);
	gate_spent(f.g, f.now, 200 * KB, true, true);
	assert_false(gate_pays(f.g, f.now, 100 * KB));
	assert_false(gate_admits(f.g, f.now + 900, 100 * KB));
	assert_true(gate_admits(f.g, f.now + 1000, 100 * KB));
	assert_true(gate_pays(f.g, f.now + 1000, 100 * KB));
	end(&f);
}

/* What is left is what both buckets hold; a debt in one takes nothing from the other. */
static void budget_is_of_two_buckets(void **s)
{
	(void)s;
	for (int ours = 0; ours < 2; ours++) {
		struct fixture f;
		struct gate_config c = defaults(GATE_BUDGET);
		c.bytes_per_s = 1;
		begin(&f, c);
		near(gate_view(f.g, f.now).budget_left, 8 * 100e3, 1e-9);
		gate_spent(f.g, f.now, 350 * KB, ours, true);
		near(gate_view(f.g, f.now).budget_left, 4.5 * 100e3, 1e-9);
		gate_spent(f.g, f.now, 350 * KB, ours, true);
		near(gate_view(f.g, f.now).budget_left, 4 * 100e3, 1e-9);
		end(&f);
	}
}

static void budget_follows_its_tokens(void **s)
{
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	(void)s;
	c.delta = 0.4;
	c.warm = 25;
	c.exchanges_per_s = 1;
	begin(&f, c);
	for (int i = 0; i < 30; i++)
		step(&f, 1, 1, i % 2 ? 0.9 : 1.1);
	for (int i = 0; i < 5; i++) /* half a minute: the bucket is full */
		step(&f, 6000, 1, i % 2 ? 0.9 : 1.1);
	double before = step(&f, 1, 1, 1.1).delta;
	struct gate_decision d = step(&f, 3600000, 1, 0.9);
	expect(d, false, REASON_LOCAL);
	double after = step(&f, 1, 1, 1.1).delta;
	near(after / before, exp(-0.2), 0.01);
	d = step(&f, 1, 1, 100);
	expect(d, true, REASON_SIGNIFICANT);
	struct gate_view v = gate_view(f.g, f.now);
	assert_true(v.has_change && v.change == d.change);
	near(step(&f, 1, 1, 100).delta / d.delta, exp(0.2), 0.01);
	/* A tenth of a second is a tenth of a token; the fuller the bucket, the more it weighs. */
	before = step(&f, 1, 1, 12).delta;
	step(&f, 100, 1, 12);
	near(step(&f, 1, 1, 12).delta / before, exp(-0.2 * 0.1 * 4), 0.02);
	end(&f);
}

/* A budget's threshold begins where the user says. */
static void budget_begins_at_delta(void **s)
{
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	(void)s;
	c.delta = 0.4;
	c.exchanges_per_s = 1;
	begin(&f, c);
	near(step(&f, 1, 1, 1.0).delta, 0.4, 0.05);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(significance_by_hand),
	        cmocka_unit_test(the_second_gradient_tells),
	        cmocka_unit_test(the_slow_average_is_slow),
	        cmocka_unit_test(another_batch_is_no_change),
	        cmocka_unit_test(renewed_is_as_new),
	        cmocka_unit_test(budget_begins_at_delta),
	        cmocka_unit_test(time_alone_fills_the_cap),
	        cmocka_unit_test(budget_is_of_two_buckets),
	        cmocka_unit_test(budget_follows_its_tokens),
	        cmocka_unit_test(odd_gradients),
	        cmocka_unit_test(selsync_smooths_twice),
	        cmocka_unit_test(plain_modes),
	        cmocka_unit_test(same_seed_same_decisions),
	        cmocka_unit_test(silence_is_broken),
	        cmocka_unit_test(cap_before_silence_before_mode),
	        cmocka_unit_test(the_guard_is_heard),
	        cmocka_unit_test(alone_nothing_is_tried),
	        cmocka_unit_test(exchanges_count_without_bytes),
	        cmocka_unit_test(a_byte_a_second),
	        cmocka_unit_test(a_day_has_no_haste),
	        cmocka_unit_test(owed_is_tried_again),
	        cmocka_unit_test(quota_survives),
	        cmocka_unit_test(a_quota_has_room_for_an_exchange),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
