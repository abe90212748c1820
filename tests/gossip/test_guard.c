/* SPDX-License-Identifier: MIT */
/* The guard by hand, and in simulated flocks: agents whose parameters take random steps of one
 * length, and meet in pairs when their guards say so. There Ξ is known. */
#include "gossip/policy/guard.h"
#include "tests/support.h"

#include <math.h>

#define N_MAX 32
#define DIMS 64
#define BATCH 32
#define LR 0.1

struct bed {
	int n, liar; /* liar: −1, none */
	struct guard_word lie;
	double far; /* the liar's distance², times the honest one */
	double lr, done;
	bool alone; /* guards are not asked: each agent begins an exchange every `every` steps */
	int every;
	uint64_t t, exchanges;
	bool looks;
	double truth2; /* Ξ² in the last step, before and after its exchanges */
	struct rng rng;
	double x[N_MAX][DIMS];
	double moved[N_MAX];
	struct guard g[N_MAX];
};

static void open_bed(struct bed *b, int n, uint64_t seed)
{
	memset(b, 0, sizeof *b);
	b->n = n;
	b->liar = -1;
	b->lr = LR;
	rng_seed(&b->rng, seed, 16);
	for (int i = 0; i < n; i++) {
		const struct guard_config c = {.momentum = 0.9,
		        .lr_peak = LR,
		        .step_samples = BATCH,
		        .seed = seed * 100 + (uint64_t)i};
		guard_init(&b->g[i], &c);
	}
}

static double distance2(const double *x, const double *y)
{
	double sum = 0;
	for (int k = 0; k < DIMS; k++)
		sum += (x[k] - y[k]) * (x[k] - y[k]);
	return sum;
}

static double consensus2(const struct bed *b)
{
	double sum = 0;
	for (int i = 0; i < b->n; i++)
		for (int j = 0; j < i; j++)
			sum += distance2(b->x[i], b->x[j]);
	return sum / b->n / b->n;
}

static void train(struct bed *b, int i)
{
	uint64_t signs = rng_u64(&b->rng);
	for (int k = 0; k < DIMS; k++)
		b->x[i][k] += signs >> k & 1 ? b->lr : -b->lr;
	b->moved[i] += b->lr * sqrt(DIMS);
	const struct guard_step s = {.step = b->t,
	        .samples = b->t * BATCH,
	        .lr = b->lr,
	        .moved = b->moved[i],
	        .done = b->done};
	guard_step(&b->g[i], &s);
}

static void meet(struct bed *b, int i, int j)
{
	struct guard_meeting m = {.distance2 = distance2(b->x[i], b->x[j]),
	        .uniform = true,
	        .agents = (uint32_t)b->n};
	struct guard_word a = guard_says(&b->g[i]), c = guard_says(&b->g[j]);
	if (b->liar == i || b->liar == j) {
		m.distance2 *= b->far;
		*(b->liar == i ? &a : &c) = b->lie;
	}
	m.theirs = c;
	guard_met(&b->g[i], &m);
	m.theirs = a;
	guard_met(&b->g[j], &m);
	for (int k = 0; k < DIMS; k++)
		b->x[i][k] = b->x[j][k] = (b->x[i][k] + b->x[j][k]) / 2;
	b->exchanges++;
}

/* A step of all agents; who was in an exchange begins none. */
static void step(struct bed *b)
{
	bool met[N_MAX] = {false};
	b->t++;
	for (int i = 0; i < b->n; i++)
		train(b, i);
	b->truth2 = b->looks ? consensus2(b) / 2 : 0;
	for (int i = 0; i < b->n; i++) {
		bool due = b->alone ? rng_below(&b->rng, (uint64_t)b->every) == 0
		                    : guard_due(&b->g[i]);
		int j = (int)rng_below(&b->rng, (uint64_t)b->n - 1);
		j += j >= i;
		if (!due || met[i] || met[j])
			continue;
		met[i] = met[j] = true;
		meet(b, i, j);
	}
	b->truth2 += b->looks ? consensus2(b) / 2 : 0;
}

static double mean_estimate(const struct bed *b)
{
	double sum = 0;
	for (int i = 0; i < b->n; i++)
		sum += guard_view(&b->g[i]).consensus / b->n;
	return sum;
}

static void near(double x, double y, double relative)
{
	if (!(fabs(x - y) <= relative * fabs(y)))
		fail_msg("%.12g is not %.12g within %g", x, y, relative);
}

/* ---- by hand */

static void told(struct guard *g, uint64_t step, double moved, double lr, double done)
{
	const struct guard_step s = {
	        .step = step, .samples = step * BATCH, .lr = lr, .moved = moved, .done = done};
	guard_step(g, &s);
}

/* (ρ · length · √stretch · √slack)², and one step. */
static double target_of(double length, double stretch, double slack)
{
	return length * sqrt(1.44 * stretch * slack + 1);
}

static void target_by_hand(void **s)
{
	(void)s;
	struct guard g;
	const struct guard_config c = {.momentum = 0.6, .lr_peak = 0.4, .step_samples = BATCH};
	guard_init(&g, &c);
	assert_true(guard_view(&g).target <= 0 && !guard_view(&g).known);
	told(&g, 1, 3, 0.4, 0);
	told(&g, 2, 4, 0.4, 0);
	near(guard_view(&g).target, target_of(1, 4, 1), 1e-12); /* 1.6 / 0.4 = 4 */
	told(&g, 6, 12, 0.4, 0);                         /* three were left out: 2 each */
	near(guard_view(&g).target, target_of(1.5, 4, 1), 1e-12);
	told(&g, 6, 13.5, 0.4, 0); /* the same step once more counts as one */
	near(guard_view(&g).target, target_of(1.5, 4, 1), 1e-12);
	told(&g, 7, 0.5, 0.4, 0); /* the parameters were set: no step */
	near(guard_view(&g).target, target_of(1.5, 4, 1), 1e-12);
	told(&g, 8, 2, 0.1, 0.5); /* 1.5 again; a quarter of the learning rate */
	near(guard_view(&g).target, target_of(1.5, 4, 4), 1e-12);
	told(&g, 9, 3.5, 0.001, 0.5); /* at most 16 */
	near(guard_view(&g).target, target_of(1.5, 4, 16), 1e-12);
	told(&g, 10, 5, 0.001, 0.95); /* 1 + 15/2 in the middle of the last tenth */
	near(guard_view(&g).target, target_of(1.5, 4, 8.5), 1e-9);
	told(&g, 11, 6.5, 0, 1);
	near(guard_view(&g).target, target_of(1.5, 4, 1), 1e-12);
	for (uint64_t i = 12; i < 400; i++) /* an average over 32 steps forgets */
		told(&g, i, 6.5 + 7 * (double)(i - 11), 0.4, 0);
	near(guard_view(&g).target, target_of(7, 4, 1), 1e-3);
}

static void estimate_by_hand(void **s)
{
	(void)s;
	struct guard g;
	const struct guard_config c = {.lr_peak = 0.1, .step_samples = BATCH};
	struct guard_meeting m = {.distance2 = 4, .uniform = true, .agents = 5};
	guard_init(&g, &c);
	told(&g, 1, 1, 0.1, 0);
	guard_met(&g, &m); /* the first one: ½ · 4 · 4/5 */
	near(guard_view(&g).consensus, sqrt(1.6), 1e-6);
	near((double)guard_says(&g).x2, 1.6, 1e-6);
	near((double)guard_says(&g).lr, 0.1, 1e-6);
	m.theirs = (struct guard_word){2.4f, 0.1f}; /* ¾ · (1.6 + 2.4) / 2 + ¼ · 1.6 */
	guard_met(&g, &m);
	near(guard_view(&g).consensus, sqrt(1.9), 1e-6);
	m.uniform = false; /* one chosen because it is far says nothing */
	guard_met(&g, &m);
	near(guard_view(&g).consensus, sqrt(1.9), 1e-6);
	m.uniform = true;
	m.distance2 = -1; /* push: nothing was measured */
	guard_met(&g, &m);
	near(guard_view(&g).consensus, sqrt(1.9), 1e-6);
	told(&g, 2, 2, 0.05, 0); /* a lower learning rate brings nobody nearer */
	near(guard_view(&g).consensus, sqrt(1.9), 1e-6);
	m.distance2 = 1e9; /* at most 16 times the estimate; the partner's is at twice the rate */
	m.theirs = (struct guard_word){4 * 1.9f, 0.1f};
	guard_met(&g, &m);
	near(guard_view(&g).consensus, sqrt(1.9 * (0.75 + 4)), 1e-6);
}

static void odd_words_say_nothing(void **s)
{
	(void)s;
	static const float odd[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e38f, 1e-38f};
	enum { ODD = sizeof odd / sizeof *odd };
	for (int i = 0; i < ODD * ODD; i++) {
		struct guard g;
		const struct guard_config c = {.lr_peak = 0.1, .step_samples = BATCH};
		struct guard_meeting m = {.distance2 = 2, .uniform = true, .agents = 2};
		guard_init(&g, &c);
		told(&g, 1, 1, 0.1, 0);
		guard_met(&g, &m);
		near(guard_view(&g).consensus, sqrt(0.5), 1e-6);
		m.theirs = (struct guard_word){odd[i / ODD], odd[i % ODD]};
		guard_met(&g, &m);
		double x2 = pow(guard_view(&g).consensus, 2);
		assert_true(x2 >= 0.5 * (0.25 + 0.75 * 0.625) - 1e-6);
		assert_true(x2 <= 0.5 * (0.25 + 0.75 * 2.5) + 1e-6);
		if (i / ODD < 5 || i % ODD < 5) /* no number, or none over 0 */
			near(x2, 0.5, 1e-6);
		assert_true(isfinite(guard_view(&g).interval_samples));
	}
	struct guard g; /* a flock that stands still has no target: the interval stays */
	const struct guard_config c = {.step_samples = BATCH};
	struct guard_meeting m = {.uniform = true, .agents = 2};
	guard_init(&g, &c);
	for (uint64_t i = 1; i < 50; i++) {
		told(&g, i, 0, 0, 0);
		guard_met(&g, &m);
	}
	near(guard_view(&g).interval_samples, 4 * BATCH, 1e-9);
}

/* Who meets nobody but liars goes by what it measures, up to a factor. */
static void words_alone_do_not_lead(void **s)
{
	(void)s;
	struct guard g;
	const struct guard_config c = {.lr_peak = 0.1, .step_samples = BATCH};
	struct guard_meeting m = {
	        .distance2 = 2, .uniform = true, .agents = 2, .theirs = {1e30f, 0.1f}};
	guard_init(&g, &c);
	told(&g, 1, 1, 0.1, 0);
	for (int i = 0; i < 100; i++)
		guard_met(&g, &m);
	near(guard_view(&g).consensus, 2 * sqrt(0.5), 1e-6);
}

/* The distances before are of other parameters; the interval is of the run. */
static void renewed_it_knows_nothing(void **s)
{
	(void)s;
	struct guard g;
	const struct guard_config c = {.lr_peak = 0.1, .step_samples = BATCH};
	const struct guard_meeting m = {
	        .distance2 = 400, .uniform = true, .agents = 5, .floor2 = 7};
	guard_init(&g, &c);
	told(&g, 1, 1, 0.1, 0);
	told(&g, 2, 2, 0.1, 0);
	guard_met(&g, &m);
	double interval = guard_view(&g).interval_samples;
	assert_true(guard_view(&g).known && guard_view(&g).target > 0);
	guard_renew(&g);
	assert_true(!guard_view(&g).known && guard_view(&g).target <= 0);
	assert_true(guard_says(&g).x2 <= 0);
	guard_met(&g, &m); /* no target yet */
	assert_true(guard_view(&g).target <= 0);
	near(guard_view(&g).interval_samples, interval, 1e-12);
	told(&g, 3, 0, 0.1, 0);
	told(&g, 4, 3, 0.1, 0);
	near(guard_view(&g).target, sqrt(pow(target_of(3, 1, 1), 2) + 7), 1e-12);
}

static void due_after_the_interval(void **s)
{
	(void)s;
	struct guard g;
	double least = 1e9, most = 0;
	const struct guard_config c = {.lr_peak = 0.1, .step_samples = 100};
	const struct guard_meeting m = {.distance2 = -1, .agents = 2};
	guard_init(&g, &c);
	uint64_t samples = 1000000, step = 0; /* those of an earlier life do not count */
	for (int i = 0; i < 300; i++) {
		uint64_t from = samples;
		while (!guard_due(&g)) {
			const struct guard_step one = {.step = ++step, .samples = ++samples};
			guard_step(&g, &one);
		}
		least = fmin(least, (double)(samples - from));
		most = fmax(most, (double)(samples - from));
		guard_met(&g, &m);
	}
	assert_in_range(least, 200, 310); /* 400 · 0.75; the first step counts for 100 */
	assert_in_range(most, 490, 501);
}

/* ---- flocks */

static void the_estimate_is_the_consensus(void **s)
{
	(void)s;
	static const int sizes[] = {8, 32};
	for (int k = 0; k < 2; k++)
		for (int alone = 0; alone < 2; alone++) {
			double ratio = 0;
			int times = 0;
			for (uint64_t seed = 0; seed < 50; seed++) {
				struct bed b;
				open_bed(&b, sizes[k], seed);
				b.alone = alone;
				b.every = 10;
				for (int t = 0; t < 600; t++) {
					b.looks = t >= 300 && t % 30 == 0;
					step(&b);
					if (!b.looks)
						continue;
					ratio += mean_estimate(&b) / sqrt(b.truth2);
					times++;
				}
			}
			print_message("# n = %d, %s: estimate / truth %.3f\n", sizes[k],
			        alone ? "at random times" : "guarded", ratio / times);
			near(ratio / times, 1, 0.25);
		}
}

/* From an interval that is far too long, and one that is far too short. */
static void the_target_is_reached(void **s)
{
	(void)s;
	static const double first[] = {1, 400};
	for (int k = 0; k < 2; k++) {
		double ratio = 0;
		int times = 0;
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct bed b;
			open_bed(&b, 16, seed);
			for (int i = 0; i < b.n; i++)
				b.g[i].log_interval = log(first[k] * BATCH);
			while (b.exchanges < 30 * 16 / 2) /* 30 for each agent */
				step(&b);
			b.looks = true;
			for (uint64_t from = b.exchanges; b.exchanges < from + 40;) {
				step(&b);
				ratio += sqrt(b.truth2) / guard_view(&b.g[0]).target;
				times++;
			}
		}
		print_message("# from %.0f steps: truth / target %.3f\n", first[k], ratio / times);
		near(ratio / times, 1, 0.2);
	}
}

/* The mean distance between an agent's exchanges, in steps. */
static double interval_of(struct bed *b, int steps)
{
	uint64_t from = b->exchanges;
	for (int t = 0; t < steps; t++)
		step(b);
	return (double)steps * b->n / 2 / (double)(b->exchanges - from);
}

static void a_lower_rate_lengthens_it_tenfold(void **s)
{
	(void)s;
	double before = 0, after = 0;
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct bed b;
		open_bed(&b, 16, seed);
		interval_of(&b, 1000);
		before += interval_of(&b, 1000);
		b.lr /= 10;
		interval_of(&b, 3000);
		after += interval_of(&b, 4000);
	}
	print_message(
	        "# a tenth of the learning rate: %.1f steps become %.1f\n", before / 6, after / 6);
	assert_true(after / before > 5 && after / before <= 10);
}

static void a_liar_is_bounded(void **s)
{
	(void)s;
	static const struct guard_word lies[] = {{1e30f, 0.1f}, {1e-30f, 0.1f}, {1, 1e-20f}};
	for (int k = 0; k < 3; k++) {
		double ratio = 0;
		int times = 0;
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct bed b;
			open_bed(&b, 8, seed);
			b.liar = 3;
			b.lie = lies[k];
			b.far = 6.25; /* what the clip radius lets through */
			for (int t = 0; t < 600; t++) {
				b.looks = t >= 400 && t % 20 == 0;
				step(&b);
				for (int i = 0; b.looks && i < b.n; i++) {
					if (i == b.liar)
						continue;
					ratio += guard_view(&b.g[i]).consensus / sqrt(b.truth2);
					times++;
				}
			}
		}
		print_message("# a liar of 8 says %g: estimate / truth %.2f\n", (double)lies[k].x2,
		        ratio / times);
		assert_true(ratio / times > 0.5 && ratio / times < 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(target_by_hand),
	        cmocka_unit_test(estimate_by_hand),
	        cmocka_unit_test(odd_words_say_nothing),
	        cmocka_unit_test(words_alone_do_not_lead),
	        cmocka_unit_test(renewed_it_knows_nothing),
	        cmocka_unit_test(due_after_the_interval),
	        cmocka_unit_test(the_estimate_is_the_consensus),
	        cmocka_unit_test(the_target_is_reached),
	        cmocka_unit_test(a_lower_rate_lengthens_it_tenfold),
	        cmocka_unit_test(a_liar_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
