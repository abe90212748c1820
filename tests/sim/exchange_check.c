/* SPDX-License-Identifier: MIT */
/* The truth about each exchange, as only the simulator knows it. While it runs:
 *
 *     commit    parameters of a pair move only after both have sent COMMIT
 *     once      and only once on each side, with whole staging of that very exchange
 *     alike     both sides by the same k, of the same difference with opposite signs
 *     one       an agent takes part in one exchange at a time: a result ends the only one
 *     slot      nobody waits for a silent peer for longer than hold_ms, then the next may begin
 *
 * and at the end:
 *
 *     hidden    where only one of a pair has moved, whoever lived through it says so
 *     apart     where neither died, both have moved or neither has, and both say the same; only
 *               where one was put aside in doubt may the other have moved alone
 *     invented  a one-sided one is accounted for only by who has sent COMMIT, and only where
 *               one of the two died or was said to, or as before: drops alone are always settled */
#include "tests/sim/exchange_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void xsim_fail(struct xsim *f, const char *fmt, ...)
{
	va_list ap;
	if (f->failure[0])
		return;
	va_start(ap, fmt);
	vsnprintf(f->failure, sizeof f->failure, fmt, ap);
	va_end(ap);
}

struct xsim_truth *truth_find(struct xsim *f, uint64_t exchange)
{
	for (uint32_t i = f->n_truths; i-- > 0;)
		if (f->truth[i].exchange == exchange)
			return &f->truth[i];
	return NULL;
}

static int side(const struct xsim_truth *t, int i)
{
	return t->who[0] == i ? 0 : 1;
}

void truth_sent(struct xsim *f, int from, int to, const struct exchange_message *m)
{
	struct xsim_truth *t = truth_find(f, m->exchange);
	if (m->kind == EXCHANGE_OFFER) {
		if (t)
			xsim_fail(f, "once: a number came twice");
		if (f->n_truths == f->room_truths) {
			f->room_truths = f->room_truths ? 2 * f->room_truths : 64;
			f->truth = realloc(f->truth, f->room_truths * sizeof *f->truth);
			if (!f->truth)
				abort();
		}
		f->truth[f->n_truths++] = (struct xsim_truth){.exchange = m->exchange,
		        .who = {from, to},
		        .life = {f->agent[from].life, 0},
		        .mode = m->terms.mode,
		        .outcome = {-1, -1}};
	} else if (m->kind == EXCHANGE_ACCEPT && t) {
		t->life[1] = f->agent[from].life;
	} else if (m->kind == EXCHANGE_COMMIT && t) {
		if (t->committed[side(t, from)])
			xsim_fail(f, "once: COMMIT twice");
		t->committed[side(t, from)] = true;
	}
}

void truth_aside(struct xsim *f, int i, const struct exchange_result *so_far)
{
	struct xsim_truth *t = truth_find(f, so_far->exchange);
	int me = t ? side(t, i) : 0;
	if (!t || !t->committed[me] || t->outcome[me] >= 0 || so_far->moved != t->moved[me])
		xsim_fail(f, "one: agent %d puts aside what is not under way", i);
	else
		t->dropped[me] = !so_far->moved;
}

void truth_moved(struct xsim *f, int i, uint64_t exchange, const float *k, uint64_t hash)
{
	struct xsim_truth *t = truth_find(f, exchange);
	if (!t) {
		xsim_fail(f, "once: moved by an exchange that nobody offered");
		return;
	}
	int me = side(t, i);
	if (t->mode == EXCHANGE_PAIR && (!t->committed[0] || !t->committed[1]))
		xsim_fail(f, "commit: agent %d moved without both", i);
	if (t->moved[me] || t->dropped[me] || !f->agent[i].staged ||
	        f->agent[i].exchange != exchange)
		xsim_fail(f, "once: agent %d moved twice, or by what is not whole", i);
	t->moved[me] = true;
	memcpy(t->k[me], k, sizeof t->k[me]);
	t->hash[me] = hash;
	if (t->moved[!me] && memcmp(t->k[0], t->k[1], sizeof t->k[0]) != 0)
		xsim_fail(f, "alike: k differs");
	if (t->moved[!me] && t->hash[0] != t->hash[1])
		xsim_fail(f, "alike: the differences are not each other's");
}

void truth_result(struct xsim *f, int i, const struct exchange_result *r)
{
	struct xsim_truth *t = truth_find(f, r->exchange);
	if (!t) { /* the offer did not get out */
		return;
	}
	int me = side(t, i);
	if (t->outcome[me] >= 0)
		xsim_fail(f, "one: two results of one exchange");
	t->outcome[me] = r->outcome;
	if (r->moved != t->moved[me])
		xsim_fail(f, "one: a result that does not know whether it moved");
	if (r->outcome == OUTCOME_EXCHANGED && t->mode == EXCHANGE_PAIR &&
	        (!t->moved[0] || !t->moved[1]))
		xsim_fail(f, "hidden: exchanged, says one, but only one has moved");
	if (r->outcome != OUTCOME_EXCHANGED && r->outcome != OUTCOME_ONE_SIDED && r->moved)
		xsim_fail(f, "hidden: moved, and the outcome says that nothing has");
}

static bool lived(const struct xsim *f, const struct xsim_truth *t, int s)
{
	return t->life[s] > 0 && f->agent[t->who[s]].alive &&
	       f->agent[t->who[s]].life == t->life[s];
}

struct xsim_sum truth_check(struct xsim *f)
{
	struct xsim_sum sum = {0};
	for (uint32_t i = 0; i < f->n_truths; i++) {
		const struct xsim_truth *t = &f->truth[i];
		/* Nobody died in this one, nor was said to. */
		bool quiet = lived(f, t, 0) && lived(f, t, 1) && f->setup.false_gone <= 0;
		bool one = t->moved[0] != t->moved[1];
		if (one && t->dropped[t->moved[0]]) /* by who has not moved */
			quiet = false;
		if (t->mode != EXCHANGE_PAIR) {
			sum.whole += one;
			if (t->moved[0] && t->moved[1])
				xsim_fail(f, "alike: both moved in push or pull");
			continue;
		}
		sum.whole += t->moved[0] && t->moved[1];
		sum.broken += !t->moved[0] && !t->moved[1];
		sum.one_sided += one;
		if (one && !t->committed[0] && !t->committed[1])
			xsim_fail(f, "commit: one-sided before any COMMIT");
		for (int s = 0; s < 2; s++) {
			if (t->outcome[s] == OUTCOME_ONE_SIDED) {
				sum.counted++;
				sum.uncertain += !one;
				if (!t->committed[s])
					xsim_fail(f, "invented: one-sided before our COMMIT");
				if (quiet)
					xsim_fail(f, "invented: one-sided, and nobody died");
			}
			if (!lived(f, t, s))
				continue;
			if (one && t->outcome[s] != OUTCOME_ONE_SIDED)
				xsim_fail(f, "hidden: exchange %u, moved %d %d, outcome %d", i,
				        t->moved[0], t->moved[1], t->outcome[s]);
			if (t->outcome[s] < 0)
				xsim_fail(f, "one: exchange %u has no end at side %d", i, s);
			if (quiet && (t->outcome[s] == OUTCOME_EXCHANGED) != t->moved[0])
				xsim_fail(f, "apart: exchange %u, outcomes %d %d", i, t->outcome[0],
				        t->outcome[1]);
		}
		if (quiet && one)
			xsim_fail(
			        f, "apart: exchange %u, moved %d %d", i, t->moved[0], t->moved[1]);
	}
	return sum;
}

void xsim_sums(const struct xsim *f, double *sum)
{
	memset(sum, 0, f->setup.words * sizeof *sum);
	for (int i = 0; i < f->setup.n; i++)
		for (size_t w = 0; w < f->setup.words; w++)
			sum[w] += (double)f->agent[i].v[w];
}

double xsim_consensus2(const struct xsim *f)
{
	double total = 0;
	for (size_t w = 0; w < f->setup.words; w++) {
		double mean = 0;
		for (int i = 0; i < f->setup.n; i++)
			mean += (double)f->agent[i].v[w] / f->setup.n;
		for (int i = 0; i < f->setup.n; i++)
			total += ((double)f->agent[i].v[w] - mean) *
			         ((double)f->agent[i].v[w] - mean) / f->setup.n;
	}
	return total;
}
