/* SPDX-License-Identifier: MIT */
/* Budget and cap over long simulated runs, with gradients whose changes come in bursts, peers that
 * make offers and peers that have no time. */
#include "tests/gossip/gate_fixture.h"

/* Gradients whose changes come in bursts: log‖g‖² is autocorrelated, and at times jumps about. */
struct series {
	struct rng rng;
	double x;
	int burst;
};

static double next_norm2(struct series *s)
{
	s->x = 0.9 * s->x + 0.3 * rng_normal(&s->rng);
	if (s->burst == 0 && rng_below(&s->rng, 500) == 0)
		s->burst = 40;
	if (s->burst > 0)
		s->burst--;
	return exp(s->x + (s->burst > 0 ? 1.5 * rng_normal(&s->rng) : 0));
}

struct load {
	uint64_t step_ms, steps;
	double offers_per_s, nobody; /* peers' offers; how often ours meets none */
	uint64_t took_ms;            /* an exchange */
};
struct sum {
	uint64_t ours, others, bytes;
	double seconds;
};

#define LOG 4096
struct spending {
	size_t n;
	uint64_t at[LOG], bytes[LOG];
};

static struct sum run(struct fixture *f, struct series *series, struct load l, struct spending *log)
{
	struct sum sum = {.seconds = (double)(l.steps * l.step_ms) / 1000};
	uint64_t busy_until = 0;
	bool ours = false;
	for (uint64_t i = 0; i < l.steps; i++) {
		struct gate_decision d = step(f, l.step_ms, 1, next_norm2(series));
		bool offer = rng_f64(&series->rng) * 1000 < l.offers_per_s * (double)l.step_ms;
		if (busy_until > 0) {
			if (f->now < busy_until)
				continue;
			gate_spent(f->g, f->now, 100 * KB, ours, true);
			busy_until = 0;
		} else if (d.exchange && rng_f64(&series->rng) < l.nobody) {
			gate_owed(f->g, f->now);
		} else if (d.exchange || (offer && gate_admits(f->g, f->now, 100 * KB))) {
			ours = d.exchange;
			busy_until = f->now + l.took_ms;
			*(ours ? &sum.ours : &sum.others) += 1;
			sum.bytes += 100 * KB;
			if (log && log->n < LOG) {
				log->at[log->n] = f->now;
				log->bytes[log->n++] = 100 * KB;
			}
		}
	}
	return sum;
}

static void report(const char *what, double got, double target)
{
	print_message("# %-44s %.4g of %.4g\n", what, got, target);
}

static void budget_meets_its_targets(void **s)
{
	(void)s;
	static const struct {
		const char *name;
		double exchanges_per_s, bytes_per_s, bytes_per_day, target, offers_per_s, nobody;
		uint64_t took_ms;
	} rows[] = {
	        {"exchanges/s, alone", 0.5, 0, 0, 0.5, 0, 0, 30},
	        {"exchanges/s, as many offers", 0.5, 0, 0, 0.5, 0.5, 0, 30},
	        {"exchanges/s, too many offers", 0.5, 0, 0, 0.5, 5, 0, 30},
	        {"exchanges/s, half of ours meet nobody", 0.5, 0, 0, 0.5, 0.1, 0.5, 30},
	        {"exchanges/s, slow ones", 0.5, 0, 0, 0.5, 0.2, 0, 1200},
	        {"exchanges/s, a rare one", 0.02, 0, 0, 0.02, 0.01, 0, 30},
	        {"bytes/s", 0, 30e3, 0, 0.3, 0.1, 0.2, 30},
	        {"bytes/day", 0, 0, 864e6, 0.1, 0.04, 0.2, 30},
	        {"the strictest of three, the day", 5, 30e3, 864e6, 0.1, 0.04, 0, 30},
	        {"the strictest of three, exchanges", 0.05, 30e3, 864e6, 0.05, 0.02, 0, 30},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct fixture f;
		struct gate_config c = defaults(GATE_BUDGET);
		c.warm = 25;
		c.exchanges_per_s = rows[i].exchanges_per_s;
		c.bytes_per_s = rows[i].bytes_per_s;
		c.bytes_per_day = rows[i].bytes_per_day;
		begin(&f, c);
		struct series series = {.x = 0};
		rng_seed(&series.rng, 9, i);
		/* 20 steps a second, then 100, then 4; a tenth of an hour to settle each time. */
		static const uint64_t step_ms[] = {50, 10, 250};
		for (int k = 0; k < 3; k++) {
			struct load l = {step_ms[k], 360000 / step_ms[k], rows[i].offers_per_s,
			        rows[i].nobody, rows[i].took_ms};
			run(&f, &series, l, NULL);
			l.steps = 21600000 / step_ms[k];
			struct sum sum = run(&f, &series, l, NULL);
			double rate = (double)(sum.ours + sum.others) / sum.seconds;
			report(rows[i].name, rate, rows[i].target);
			near(rate, rows[i].target, 0.1);
			/* Neither side takes what is kept for the other. */
			if (rows[i].offers_per_s >= rows[i].target)
				near((double)sum.ours, (double)sum.others, 0.3);
		}
		assert_true(gate_view(f.g, f.now).budget_left >= 0);
		end(&f);
	}
}

/* Nothing is significant here: others may have all of it. */
static void what_we_do_not_need_is_for_others(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.exchanges_per_s = 0.1;
	begin(&f, c);
	int n = 0;
	for (int i = 0; i < 10000; i++) {
		step(&f, 1000, 1, 1);
		if (!gate_admits(f.g, f.now, 100 * KB))
			continue;
		gate_spent(f.g, f.now, 100 * KB, false, true);
		n++;
	}
	near(n, 1000, 0.02);
	end(&f);
}

/* It is δ that chooses, not an empty bucket. An exchange each 40 steps, of which the first 20 are
 * too soon: one in 20 of the others would have to be significant if they were independent; Δ stays
 * large for some steps, so it is one in 12. */
static void delta_is_a_quantile(void **s)
{
	(void)s;
	static const double first[] = {1e-3, 0.1, 10}; /* wherever it begins */
	for (int i = 0; i < 3; i++) {
		struct fixture f;
		struct gate_config c = defaults(GATE_BUDGET);
		c.delta = first[i];
		c.exchanges_per_s = 0.5;
		c.incoming_share = 0;
		begin(&f, c);
		struct rng r;
		rng_seed(&r, 8, 9);
		int over = 0, n = 0;
		for (int k = 0; k < 60000; k++) {
			struct gate_decision d = step(&f, 50, 1, exp(0.5 * rng_normal(&r)));
			if (d.exchange)
				gate_spent(f.g, f.now, 100 * KB, true, true);
			if (k < 20000)
				continue;
			n++;
			over += d.change >= d.delta;
		}
		report("share of steps that are significant", (double)over / n, 0.083);
		near((double)over / n, 0.083, 0.2);
		end(&f);
	}
}

static void days_are_spent_evenly(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.bytes_per_day = 40e6; /* 400 exchanges */
	begin(&f, c);
	struct gate_quota q = {0, 0};
	gate_quota_set(f.g, &q, 0);
	struct series series = {.x = 0};
	rng_seed(&series.rng, 10, 0);
	const struct load hour = {500, 7200, 0.002, 0.1, 2000};
	for (int day = 0; day < 3; day++) {
		struct sum sum = {0};
		for (int h = 0; h < 24; h++)
			sum.bytes += run(&f, &series, hour, NULL).bytes;
		report("bytes of a day", (double)sum.bytes, c.bytes_per_day);
		/* one that was begun before midnight is paid for after it */
		assert_true(sum.bytes <= 40000 * KB + 100 * KB);
		near((double)sum.bytes, c.bytes_per_day, 0.1);
	}
	q.bytes = 30 * 1000 * KB; /* at noon three quarters are gone: the rest has to do */
	gate_quota_set(f.g, &q, 43200);
	uint64_t bytes = 0;
	for (int h = 0; h < 6; h++)
		bytes += run(&f, &series, hour, NULL).bytes;
	report("bytes of an afternoon that must save", (double)bytes, 5e6);
	near((double)bytes, 5e6, 0.2);
	end(&f);
}

static void no_burst_empties_the_bucket(void **s)
{
	(void)s;
	struct fixture f;
	struct gate_config c = defaults(GATE_BUDGET);
	c.exchanges_per_s = 1;
	c.warm = 1;
	c.delta = 1e-6;
	begin(&f, c);
	uint64_t last = 0;
	int n = 0;
	for (int i = 0; i < 400; i++) { /* everything is significant */
		struct gate_decision d = step(&f, 10, 1, pow(1.2, i));
		if (!d.exchange)
			continue;
		assert_true(n == 0 || f.now - last >= 500);
		gate_spent(f.g, f.now, 100 * KB, true, true);
		last = f.now;
		n++;
	}
	assert_in_range(n, 5, 6); /* half a bucket, and half of what came in */
	end(&f);
}

static void cap_holds_over_any_window(void **s)
{
	(void)s;
	static const double caps[] = {20e3, 70e3, 400e3}; /* an exchange: 5, 1.4 and 0.25 s of it */
	static const enum gate_mode modes[] = {GATE_ALWAYS, GATE_SIGNIFICANCE, GATE_BUDGET};
	static struct spending log;
	for (size_t i = 0; i < 9; i++) {
		struct fixture f;
		struct gate_config c = defaults(modes[i / 3]);
		c.cap_bytes_per_s = caps[i % 3];
		c.bytes_per_s = 1e6;
		c.silence_samples = 20 * BATCH;
		begin(&f, c);
		struct series series = {.x = 0};
		rng_seed(&series.rng, 11, i);
		log.n = 0;
		struct load l = {20, 25000, 3, 0.2, i % 2 || i < 3 ? 1 : 700};
		struct sum sum = run(&f, &series, l, &log);
		assert_in_range(log.n, 10, LOG - 1);
		double burst = fmax(2 * c.cap_bytes_per_s, 100e3);
		for (size_t from = 0; from < log.n; from++) {
			double bytes = 0;
			for (size_t to = from; to < log.n; to++) {
				double seconds = (double)(log.at[to] - log.at[from]) / 1000;
				bytes += (double)log.bytes[to];
				assert_true(bytes <= c.cap_bytes_per_s * seconds + burst + 1e-3);
			}
		}
		/* What is wanted all the time is had as far as the cap goes. */
		if (c.mode == GATE_ALWAYS && c.cap_bytes_per_s < 100e3)
			near((double)sum.bytes / sum.seconds, c.cap_bytes_per_s, 0.1);
		end(&f);
	}
	struct fixture f; /* a debt is paid off first, whoever made it */
	struct gate_config c = defaults(GATE_ALWAYS);
	c.cap_bytes_per_s = 100e3;
	begin(&f, c);
	gate_spent(f.g, f.now, 1000 * KB, false, false);
	assert_true(gate_view(f.g, f.now).cap_left == 0);
	expect(step(&f, 8999, 1, 1), false, REASON_CAP);
	expect(step(&f, 1, 1, 1), true, REASON_MODE);
	end(&f);
}

/* The default rule on gradients whose ‖g‖² is as noisy as a small batch's (log-sd 0.5). */
static void begin_default(struct fixture *f, struct rng *r, uint64_t seed, int settle)
{
	struct gate_config c = defaults(GATE_SIGNIFICANCE);
	c.warm = 25;
	c.delta = 0.35;
	begin(f, c);
	rng_seed(r, 5, seed);
	for (int i = 0; i < settle; i++)
		step(f, 1, 1, exp(0.5 * rng_normal(r)));
}

static void noise_is_no_change(void **s)
{
	(void)s;
	struct fixture f;
	struct rng r;
	int fired = 0;
	begin_default(&f, &r, 6, 25);
	for (int k = 0; k < 100000; k++)
		fired += step(&f, 1, 1, exp(0.5 * rng_normal(&r))).exchange;
	print_message("# stationary noise: %.2f %% of steps are significant\n", fired / 1000.0);
	assert_in_range(fired, 1, 1000);
	end(&f);
}

/* The norm, not its square, rises or falls by a quarter. */
static void a_change_is_noticed(void **s)
{
	(void)s;
	static const double factors[] = {1.25, 1 / 1.25};
	for (int i = 0; i < 2; i++) {
		int soon = 0;
		for (uint64_t seed = 0; seed < 200; seed++) {
			struct fixture f;
			struct rng r;
			double scale = factors[i] * factors[i];
			bool fired = false;
			begin_default(&f, &r, seed, 300);
			for (int k = 0; k < 30; k++)
				fired |= step(&f, 1, 1, scale * exp(0.5 * rng_normal(&r))).exchange;
			soon += fired;
			end(&f);
		}
		print_message("# noticed within 30 steps: %.1f %% of changes by %.2f\n", soon / 2.0,
		        factors[i]);
		assert_in_range(soon, 120, 200);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(budget_meets_its_targets),
	        cmocka_unit_test(what_we_do_not_need_is_for_others),
	        cmocka_unit_test(delta_is_a_quantile),
	        cmocka_unit_test(days_are_spent_evenly),
	        cmocka_unit_test(no_burst_empties_the_bucket),
	        cmocka_unit_test(cap_holds_over_any_window),
	        cmocka_unit_test(noise_is_no_change),
	        cmocka_unit_test(a_change_is_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
