/* SPDX-License-Identifier: MIT */
/* Many exchange machines together (tests/sim/exchange_sim.h): what exchanges do to the parameters
 * of a flock, and that nothing which happens to streams, transfers and processes lets two accounts
 * of one exchange disagree. The checks and their names are in tests/sim/exchange_check.c. */
#include "tests/sim/exchange_sim.h"
#include "tests/support.h"

#include <math.h>

static const char *const formats[] = {"fp32", "bf16"};

static void fine(const struct xsim *f)
{
	if (f->failure[0])
		fail_msg("seed %llu: %s", (unsigned long long)f->setup.seed, f->failure);
}

static void settled(struct xsim *f)
{
	bool idle = xsim_settle(f);
	fine(f);
	if (!idle)
		fail_msg("seed %llu: not idle after a minute", (unsigned long long)f->setup.seed);
}

/* One pair after the other, each at random. */
static void exchanges(struct xsim *f, int n)
{
	for (int k = 0; k < n; k++) {
		int i = (int)rng_below(&f->rng, (uint64_t)f->setup.n);
		int j = (int)rng_below(&f->rng, (uint64_t)f->setup.n - 1);
		xsim_start(f, i, j + (j >= i));
		settled(f);
	}
}

/* ---- what it does to parameters */

/* With learning rate 0 the mean stays: each coordinate's sum drifts by no more than the rounding of
 * the additions can explain, which the simulator adds up. */
static void test_mean_stays(void **unused)
{
	(void)unused;
	for (int i = 0; i < 6; i++) {
		struct xsim_setup s = {.n = 8,
		        .seed = (uint64_t)i + 1,
		        .format = i & 1 ? CONVERT_BF16 : CONVERT_FP32,
		        .clip = (uint8_t)(i / 2)};
		struct xsim f;
		xsim_init(&f, &s);
		size_t n = f.setup.words;
		double *before = calloc(n, sizeof *before), *after = calloc(n, sizeof *after);
		double drift = 0, worst = 0, before2 = xsim_consensus2(&f);
		assert_true(before && after);
		xsim_sums(&f, before);
		exchanges(&f, 1000);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		assert_int_equal(t.whole, 1000);
		xsim_sums(&f, after);
		for (size_t w = 0; w < n; w++) {
			double d = fabs(after[w] - before[w]);
			drift = fmax(drift, d / s.n);
			worst = fmax(worst, d / f.bound[w]);
		}
		print_message("# mean after 1000 exchanges, %s, clip %d: drift of at most %.2g, "
		              "%.2f of the bound; distance² %.3g to %.3g\n",
		        formats[s.format], s.clip, drift, worst, before2, xsim_consensus2(&f));
		assert_true(worst <= 1);
		assert_true((f.clipped > 10) == (s.clip != CLIP_NONE));
		assert_true(worst > 0);                         /* it did move */
		assert_true(xsim_consensus2(&f) < before2 / 2); /* also where it was clipped */
		free(before);
		free(after);
		xsim_close(&f);
	}
}

/* One random pair leaves 1 − 1/(n − 1) of the expected Ξ². */
static void test_consensus(void **unused)
{
	(void)unused;
	enum { SEEDS = 200, K_MAX = 32 };
	for (int format = 0; format < CONVERT_WORDS; format++)
		for (int n = 4; n <= 16; n *= 2) {
			double mean[K_MAX + 1] = {0}, worst = 0;
			for (uint64_t seed = 1; seed <= SEEDS; seed++) {
				struct xsim_setup s = {.n = n,
				        .seed = seed,
				        .words = 100,
				        .format = (uint8_t)format};
				struct xsim f;
				xsim_init(&f, &s);
				double first = xsim_consensus2(&f);
				for (int k = 0; k <= 2 * n; k++) {
					mean[k] += xsim_consensus2(&f) / first / SEEDS;
					exchanges(&f, 1);
				}
				xsim_close(&f);
			}
			for (int k = 1; k <= 2 * n; k++)
				worst = fmax(worst, mean[k] / pow(1 - 1.0 / (n - 1), k));
			print_message("# distance² of %d agents, %s, %d seeds: at most %.3f of "
			              "(1 − 1/(n − 1))^k up to k = %d\n",
			        n, formats[format], SEEDS, worst, 2 * n);
			assert_true(worst <= 1.2);
			assert_true(worst > 0.5); /* nor is it too good to be true */
		}
}

/* The floor: where all round to the same number nothing moves any more, so within one rounding step
 * of the format; RMS deviation is at most half of that. For fp32 the additions round as well. */
static void test_floor(void **unused)
{
	(void)unused;
	for (int format = 0; format < CONVERT_WORDS; format++) {
		struct xsim_setup s = {.n = 8, .seed = 3, .format = (uint8_t)format};
		struct xsim f;
		double norm2 = 0, last, now;
		xsim_init(&f, &s);
		now = xsim_consensus2(&f);
		int k = 0;
		do {
			last = now;
			exchanges(&f, 100);
			k += 100;
			now = xsim_consensus2(&f);
		} while (now < last * 0.9 && k < 3000);
		for (size_t w = 0; w < f.setup.words; w++)
			norm2 += (double)f.agent[0].v[w] * (double)f.agent[0].v[w];
		double floor = sqrt(now / norm2);
		print_message("# floor of %s, 8 agents: distance %.3g of the norm, after %d\n",
		        formats[format], floor, k);
		assert_true(floor < (format == CONVERT_BF16 ? 0x1p-8 : 0x1p-23));
		xsim_close(&f);
	}
}

/* ---- what it does to accounts */

/* Streams that break with what is under way, transfers that fail, connections that cannot be
 * opened, words that come late: both sides agree in the end, always. */
static void test_drops(void **unused)
{
	(void)unused;
	uint32_t whole = 0, broken = 0;
	uint64_t unsettled = 0;
	for (uint64_t seed = 1; seed <= 6000; seed++) {
		struct xsim_setup s = {.n = 2 + (int)(seed % 3),
		        .seed = seed,
		        .words = 16,
		        .mode = seed % 11 == 0   ? EXCHANGE_PUSH
		                : seed % 11 == 1 ? EXCHANGE_PULL
		                                 : EXCHANGE_PAIR,
		        .format = (uint8_t)(seed & 1),
		        .clip = CLIP_RANDOM,
		        .break_chance = 0.05 + 0.05 * (double)(seed % 5),
		        .lose_chance = seed % 4 == 0 ? 0.05 : 0,
		        .fail_chance = 0.05,
		        .dial_chance = 0.2,
		        .slow_chance = 0.15,
		        .start_ms = 200};
		struct xsim f;
		xsim_init(&f, &s);
		while (f.now_ms < 5000) { /* as many as come about */
			xsim_run(&f, f.now_ms + 20);
			for (int i = 0; i < s.n; i++)
				unsettled += exchange_state(f.agent[i].x) == EXCHANGE_UNSETTLED;
		}
		f.setup.break_chance = f.setup.lose_chance = 0;
		settled(&f);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		whole += t.whole;
		broken += t.broken;
		xsim_close(&f);
	}
	print_message(
	        "# 6000 seeds of drops: %u exchanges whole, %u without effect\n", whole, broken);
	assert_true(whole > 10000 && broken > 10000 && unsettled > 1000);
}

/* Peers who are out of reach for seconds after a break: meanwhile there are exchanges with others,
 * and when they are back each one that was put aside is settled as it really was. */
static void test_away(void **unused)
{
	(void)unused;
	uint64_t late[OUTCOMES] = {0}, meanwhile = 0;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct xsim_setup s = {.n = 4,
		        .seed = seed,
		        .words = 16,
		        .clip = CLIP_RANDOM,
		        .break_chance = 0.1,
		        .slow_chance = seed % 2 ? 0.1 : 0,
		        .away_ms = 8000,
		        .start_ms = 100};
		struct xsim f;
		xsim_init(&f, &s);
		while (f.now_ms < 12000) {
			xsim_run(&f, f.now_ms + 20);
			if (f.now_ms >= 5000)
				f.setup.break_chance = 0;
			for (int i = 0; i < s.n; i++)
				meanwhile += exchange_unsettled(f.agent[i].x) > 0 &&
				             exchange_state(f.agent[i].x) == EXCHANGE_ACKING;
		}
		settled(&f);
		truth_check(&f);
		fine(&f);
		for (int i = 0; i < s.n; i++)
			for (int o = 0; o < OUTCOMES; o++)
				late[o] += f.agent[i].late[o];
		xsim_close(&f);
	}
	print_message("# 1000 seeds of peers who were away: settled late %llu exchanged, %llu "
	              "broken, %llu one-sided\n",
	        (unsigned long long)late[OUTCOME_EXCHANGED],
	        (unsigned long long)late[OUTCOME_BROKEN],
	        (unsigned long long)late[OUTCOME_ONE_SIDED]);
	assert_true(late[OUTCOME_EXCHANGED] > 20 && late[OUTCOME_BROKEN] > 20);
	assert_true(late[OUTCOME_ONE_SIDED] > 20 && meanwhile > 100);
}

/* Drops, and peers who are said to be dead and are not: one-sided ones are all accounted for. */
static void test_false_deaths(void **unused)
{
	(void)unused;
	struct xsim_sum sum = {0};
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		struct xsim_setup s = {.n = 3,
		        .seed = seed,
		        .words = 16,
		        .clip = CLIP_RANDOM,
		        .break_chance = 0.2,
		        .slow_chance = 0.2,
		        .false_gone = 0.4,
		        .start_ms = 200};
		struct xsim f;
		xsim_init(&f, &s);
		xsim_run(&f, 5000);
		f.setup.break_chance = 0;
		settled(&f);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		sum.one_sided += t.one_sided;
		sum.counted += t.counted;
		sum.uncertain += t.uncertain;
		xsim_close(&f);
	}
	print_message(
	        "# 2000 seeds of false deaths: %u one-sided, %u accounts of one-sided ones, %u of "
	        "them of exchanges that were not\n",
	        sum.one_sided, sum.counted, sum.uncertain);
	assert_true(sum.one_sided > 20);
}

/* Killed on entering each state, as either role, before or after the words of that step are out,
 * restarted or not, and the survivor told or not. */
static void test_deaths(void **unused)
{
	(void)unused;
	struct xsim_sum sum = {0};
	int struck[2][EXCHANGE_STATES] = {{0}};
	for (int i = 0; i < 2 * 2 * EXCHANGE_STATES * 4 * 40; i++) {
		struct xsim_setup s = {.n = 2,
		        .seed = (uint64_t)i + 1,
		        .words = 16,
		        .mode = i % 7 == 6 ? EXCHANGE_PUSH : EXCHANGE_PAIR,
		        .format = (uint8_t)(i % 3 == 0),
		        .clip = CLIP_RANDOM,
		        .kill = true,
		        .kill_offerer = i & 1,
		        .kill_silent = i & 2,
		        .kill_state = (uint8_t)(i / 4 % EXCHANGE_STATES),
		        .restart_ms = i / (4 * EXCHANGE_STATES) & 1 ? 6000 : 0,
		        .gone_ms = i / (4 * EXCHANGE_STATES) & 2 ? 4000 : 0,
		        .slow_chance = 0.1};
		struct xsim f;
		if (s.kill_state == EXCHANGE_UNSETTLED || i % 5 == 0)
			s.break_chance = 0.15;
		xsim_init(&f, &s);
		for (int k = 0; k < 20 && !f.killed; k++) {
			xsim_start(&f, k & 1, !(k & 1));
			settled(&f);
		}
		f.setup.break_chance = f.setup.slow_chance = 0;
		xsim_run(&f, f.now_ms + 10000);
		if (s.restart_ms && f.killed) { /* life goes on */
			xsim_start(&f, 0, 1);
			uint32_t before = f.n_truths;
			settled(&f);
			if (f.truth[before - 1].outcome[0] != OUTCOME_EXCHANGED)
				fail_msg("seed %d: no exchange after the restart", i + 1);
		}
		settled(&f);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		struck[s.kill_offerer][s.kill_state] += f.killed;
		sum.whole += t.whole;
		sum.one_sided += t.one_sided;
		sum.counted += t.counted;
		sum.uncertain += t.uncertain;
		xsim_close(&f);
	}
	for (int s = EXCHANGE_OFFERED; s < EXCHANGE_STATES; s++)
		assert_true(struck[0][s] + (s == EXCHANGE_OFFERED) > 0 && struck[1][s] > 0);
	print_message(
	        "# deaths in every state: %u one-sided, %u accounts of one-sided ones, %u of them "
	        "of exchanges that were not\n",
	        sum.one_sided, sum.counted, sum.uncertain);
	assert_true(sum.one_sided > 20 && sum.whole > 0);
}

/* Two who offer to each other at the same time: one exchange comes about. */
static void test_crossing(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct xsim_setup s = {.n = 2, .seed = seed, .words = 16};
		struct xsim f;
		xsim_init(&f, &s);
		xsim_start(&f, 0, 1);
		xsim_start(&f, 1, 0);
		settled(&f);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		assert_int_equal(f.n_truths, 2);
		assert_int_equal(t.whole, 1);
		int lower = memcmp(&f.agent[0].id, &f.agent[1].id, 32) < 0 ? 0 : 1;
		assert_int_equal(f.agent[!lower].by_outcome[OUTCOME_CROSSED], 1);
		assert_int_equal(f.agent[lower].by_outcome[OUTCOME_CROSSED], 0);
		assert_int_equal(f.agent[0].by_outcome[OUTCOME_EXCHANGED], 1);
		assert_int_equal(f.agent[1].by_outcome[OUTCOME_EXCHANGED], 1);
		xsim_close(&f);
	}
}

/* Every tenth word breaks its stream, and still it never comes to a stop for anybody. */
static void test_goes_on(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct xsim_setup s = {.n = 8,
		        .seed = seed,
		        .words = 64,
		        .clip = CLIP_REAL,
		        .format = CONVERT_BF16,
		        .break_chance = 0.1,
		        .start_ms = 500};
		struct xsim f;
		uint64_t least = UINT64_MAX;
		xsim_init(&f, &s);
		for (int minute = 0; minute < 10; minute++) {
			uint64_t before[8], got;
			for (int i = 0; i < s.n; i++)
				before[i] = f.agent[i].by_outcome[OUTCOME_EXCHANGED];
			xsim_run(&f, f.now_ms + 60000);
			fine(&f);
			for (int i = 0; i < s.n; i++) {
				got = f.agent[i].by_outcome[OUTCOME_EXCHANGED] - before[i];
				least = got < least ? got : least;
			}
		}
		f.setup.break_chance = 0;
		settled(&f);
		struct xsim_sum t = truth_check(&f);
		fine(&f);
		print_message(
		        "# 8 agents, a tenth of words lost, 10 minutes: %u exchanges, %llu by the "
		        "idlest in its worst minute\n",
		        t.whole, (unsigned long long)least);
		assert_true(least > 0);
		xsim_close(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_mean_stays),
	        cmocka_unit_test(test_consensus),
	        cmocka_unit_test(test_floor),
	        cmocka_unit_test(test_drops),
	        cmocka_unit_test(test_away),
	        cmocka_unit_test(test_false_deaths),
	        cmocka_unit_test(test_deaths),
	        cmocka_unit_test(test_crossing),
	        cmocka_unit_test(test_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
