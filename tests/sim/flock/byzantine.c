/* SPDX-License-Identifier: MIT */
/* The script of a seed with liars, and what must hold for the honest. */
#include "tests/sim/flock/byzantine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OFF_MOST 0.6      /* of the optimum's way: how far a result may be from its end anyway */
#define KEPT_STEPS 100    /* after which a state has been kept */
#define SETTLED_MS 20000  /* after which a host that started or moved on is known to all */
#define LOOK_STEPS 16     /* membership is looked through at one step of so many */
#define DEAD_MS 10000     /* in which who is called dead has denied it, and is heard */
#define LOOKS 60          /* that say something about how often a member is suspected */
#define SUSPECT_MOST 0.45 /* of them; and so much more for each liar, which is heard once */
#define SUSPECT_LIAR 0.05
#define PATHS 4 /* own paths that a radius or one peer's pulls may be long */
#define RADII 4 /* that one peer may move us by in all merge rounds */
#define ROUNDED 1.001
#define SHRUNK 1.1 /* a radius, between two exchanges at most so many times shorter */
#define RETURN 0.08 /* of the way back to the optimum, in one step of the learner */
#define FASTER 1.5  /* than the fastest of all: what one peer may claim to train */

static const char *const names[BYZ_LIES] = {[BYZ_SKETCH] = "sketch",
        [BYZ_NO_SKETCH] = "no-sketch",
        [BYZ_SAMPLES] = "samples",
        [BYZ_CLOCK] = "clock",
        [BYZ_ACCUSE] = "accuse",
        [BYZ_STALL] = "stall",
        [BYZ_DONOR] = "donor",
        [BYZ_RADIUS] = "radius",
        [BYZ_SETTLE] = "settle",
        [BYZ_BUSY_STALE] = "busy-stale",
        [BYZ_BUSY_APART] = "busy-apart",
        [BYZ_ANSWER_STALE] = "answer-stale",
        [BYZ_ANSWER_APART] = "answer-apart",
        [BYZ_MODE] = "mode",
        [BYZ_BETA] = "beta",
        [BYZ_FINAL] = "final",
        [BYZ_NAN] = "nan",
        [BYZ_FAR] = "far",
        [BYZ_PULL] = "pull",
        [BYZ_FETCHES] = "fetches"};

const char *byz_lie_name(int lie)
{
	return lie >= 0 && lie < BYZ_LIES ? names[lie] : "none";
}

bool byz_is_liar(const struct fsim *w, int i)
{
	return w->lies[i] != 0;
}

bool byz_lies(const struct fsim *w, int i, enum byz_lie lie)
{
	return w->lies[i] >> lie & 1;
}

/* ---- the script */

static void fault(struct fsim *w, uint8_t kind, int who, uint64_t from_ms, uint64_t to_ms)
{
	uint32_t i = (uint32_t)w->n_faults++;
	w->fault[i] = (struct fsim_fault){kind, who, from_ms, to_ms};
	world_push(w, from_ms, FSIM_FAULT, i, 0);
	world_push(w, to_ms, FSIM_FAULT, i, 1);
	if (to_ms > w->faults_end_ms)
		w->faults_end_ms = to_ms;
}

/* Some of the honest ones come late or sleep, so that states are taken. */
static void draw_starts(struct fsim *w)
{
	double per_ms = 0;
	for (int i = 0; i < w->n; i++)
		per_ms += FSIM_BATCH / (1.125 * w->agent[i].toy.step_ms);
	uint64_t run = (uint64_t)((double)w->total / per_ms);
	for (int i = 1; i < w->n; i++) {
		uint64_t start = world_between(w, 0, 2000);
		uint64_t from = world_between(w, 1000 + run / 10, 1000 + run / 3);
		bool can = !byz_is_liar(w, i) && w->n_faults < FSIM_FAULTS - 1;
		if (can && world_chance(w, 0.25)) /* an even time: its clock goes on */
			fault(w, FSIM_FREEZE, i, from & ~1ull,
			        from + world_between(w, run / 6, run / 3));
		else if (can && world_chance(w, 0.25))
			start = from;
		world_push(w, start, FSIM_STARTS, (uint32_t)i, 0);
	}
	world_push(w, 0, FSIM_STARTS, 0, 0);
}

/* As the owner of a run states it who does not trust all: what is usual says little of a short run
 * (net/SECURITY.md). */
static double draw_rate_cap(const struct fsim *w)
{
	double most = 0;
	for (int i = 0; i < w->n; i++)
		most = fmax(most, 1000.0 * FSIM_BATCH / w->agent[i].toy.step_ms);
	return FASTER * most;
}

void byz_draw(struct fsim *w)
{
	int liars = (int)world_between(w, 1, (uint64_t)w->n / 3);
	w->faults_end_ms = 1000;
	while (liars > 0) {
		int i = (int)world_between(w, 1, (uint64_t)w->n - 1);
		if (byz_is_liar(w, i))
			continue;
		for (int k = 0; k < BYZ_LIES; k++)
			w->lies[i] |= (uint32_t)world_chance(w, 0.2) << k;
		w->lies[i] |= 1u << rng_below(&w->rng, BYZ_LIES);
		if (w->setup.lie >= 0)
			w->lies[i] = 1u << w->setup.lie;
		if (byz_lies(w, i, BYZ_SAMPLES))
			w->rate_cap = draw_rate_cap(w);
		liars--;
	}
	draw_starts(w);
	if (world_chance(w, 0.3))
		fault(w, FSIM_LOSS, 0, 5000, 15000);
}

/* ---- what must hold */

static void fail(struct fsim *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct fsim *w, const char *fmt, ...)
{
	char words[240];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(words, sizeof words, fmt, ap);
	va_end(ap);
	fsim_fail_always(w, "%s", words);
}

/* The rest are liars, or there are none. */
static bool judged(const struct fsim *w, int i)
{
	return w->setup.byzantine && !byz_is_liar(w, i);
}

void byz_sent(struct fsim *w, int from, const struct exchange_message *m)
{
	struct flock_view v;
	if ((m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) && m->terms.final)
		w->agent[from].final = m->exchange;
	enum byz_lie lie = byz_offered(w, m->exchange);
	if (!judged(w, from) || m->kind != EXCHANGE_ACCEPT || lie == BYZ_LIES)
		return;
	flock_view(w->agent[from].core, &v);
	if (lie != BYZ_FINAL || (v.phase < FLOCK_MERGING && v.clock < w->total))
		fail(w, "agent %d accepts an offer that lies: %s", from, byz_lie_name((int)lie));
}

/* The lower median of what it has heard is a lie (gossip/flock/claims.c). */
static bool outvoted(const struct fsim *w, int i)
{
	const struct gossip *g = flock_membership(w->agent[i].core);
	struct member_view v;
	int n = 0, honest = 0;
	for (int k = 0; k < w->n; k++) {
		bool claims = k != i && gossip_find(g, &w->agent[k].id, &v) &&
		              v.record.status.samples > 0;
		n += claims;
		honest += claims && !byz_lies(w, k, BYZ_SAMPLES);
	}
	return n > 0 && honest < (n - 1) / 2 + 1;
}

/* All samples that are trained, and what liars' words may add: a share of the run beyond the
 * records, and for each who lies about its own count the stated rate since the run began. */
static void check_clock(struct fsim *w, int i, const struct flock_view *v)
{
	if (v->phase < FLOCK_TRAINING) /* what counts may still fall */
		w->agent[i].outvoted = outvoted(w, i);
	if (v->phase < FLOCK_TRAINING || w->agent[i].outvoted)
		return;
	double most = (double)w->trained + FSIM_STALE * (double)w->total;
	for (int k = 0; k < w->n; k++)
		if (byz_lies(w, k, BYZ_SAMPLES))
			most += w->rate_cap * (1 + (double)w->now_ms / 1000);
	if ((double)v->clock > most)
		fail(w,
		        "agent %d: the run's clock says %llu, over %.0f, and %llu samples are "
		        "trained",
		        i, (unsigned long long)v->clock, most, (unsigned long long)w->trained);
}

/* Runs for long enough to be known, and has not stood still lately. */
static bool steady(const struct fsim *w, int i)
{
	const struct fsim_agent *a = &w->agent[i];
	return a->alive && !a->leaving && !byz_is_liar(w, i) &&
	       w->now_ms > a->began_ms + SETTLED_MS && w->now_ms > a->frozen_until + SETTLED_MS;
}

static void check_members(struct fsim *w, int i)
{
	const struct gossip *g = flock_membership(w->agent[i].core);
	struct member_view v;
	for (int k = 0; k < w->n; k++) {
		/* Two that cannot dial each other have never met. Of whom one knows by hearsay
		 * alone, one word is believed (membership/members.c): not judged yet. */
		bool meet = w->agent[i].dialable || w->agent[k].dialable;
		bool known = k != i && meet && steady(w, k) && steady(w, i) &&
		             gossip_find(g, &w->agent[k].id, &v);
		bool dead = known && v.state == MEMBER_DEAD;
		w->agent[i].looks[k] += known;
		w->agent[i].suspects[k] += known && v.state != MEMBER_ALIVE;
		uint64_t *since = &w->agent[i].dead_since_ms[k];
		*since = !dead ? 0 : *since ? *since : w->now_ms;
		if (dead && w->now_ms - *since > DEAD_MS)
			fail(w, "agent %d holds %d dead for %d s, which is honest and runs", i, k,
			        DEAD_MS / 1000);
	}
}

static void check_quarantines(struct fsim *w, int i, const struct flock_view *v)
{
	for (uint32_t k = 0; v->quarantined > 0 && k < partners_count(v->partners); k++) {
		const struct partner *p = partners_get(v->partners, k);
		int who = world_find(w, &p->id);
		if (p->quarantine_ms > w->now_ms - w->agent[i].behind_ms && !byz_is_liar(w, who))
			fail(w, "agent %d has quarantined %d, which is honest: %s", i, who,
			        p->reason);
	}
}

static double norm(const struct fsim *w, const float *x, const float *y)
{
	double sum = 0;
	for (int p = 0; p < w->params; p++) {
		double d = (double)x[p] - (y ? (double)y[p] : 0);
		sum += d * d;
	}
	return sqrt(sum);
}

void byz_step(struct fsim *w, int i)
{
	struct flock_view v;
	if (!judged(w, i) || !w->agent[i].alive)
		return;
	flock_view(w->agent[i].core, &v);
	check_clock(w, i, &v);
	check_quarantines(w, i, &v);
	if (w->steps % LOOK_STEPS == 0)
		check_members(w, i);
	const struct fsim_toy *t = &w->agent[i].toy;
	double length = norm(w, t->x, NULL);
	/* Until the core hears that a state is adopted, its path is that of the model before. */
	if (!v.joining && v.radius > PATHS * t->moved + 2 * length)
		fail(w,
		        "agent %d clips nothing: a radius of %.3g, a length of %.3g, a path of "
		        "%.3g",
		        i, v.radius, length, t->moved);
}

void byz_said(struct fsim *w, int i, const struct flock_say *s)
{
	/* Claims may make newcomers ask each other for states that nobody has yet; then it trains
	 * from the initial weights, and has missed nothing. */
	bool missed = (double)w->trained > FSIM_STALE * (double)w->total;
	if (judged(w, i) && s->code == SAY_JOIN_NOBODY && !s->flag && missed)
		fail(w, "agent %d finds nobody to take a state from", i);
}

void byz_adopts(struct fsim *w, int i)
{
	struct fsim_agent *g = &w->agent[i];
	int lied = 0;
	/* Parameters: nobody tries the optimizer's vectors. What they lead to is seen later. */
	for (int k = 0; k < w->params; k++)
		lied += (g->from[k] & BYZ_STATE) != 0;
	if (lied > 0 && judged(w, i)) {
		fsim_trace(
		        w, "agent %d adopts a liar's state, %d of %d numbers", i, lied, w->params);
		w->lies_adopted++;
	}
	g->lied_at = lied > 0 ? g->toy.step + 1 : 0;
	memset(g->pulled, 0, sizeof g->pulled); /* a path begins */
}

void byz_trained(struct fsim *w, int i)
{
	const struct fsim_agent *g = &w->agent[i];
	if (judged(w, i) && g->lied_at != 0 && g->toy.step > g->lied_at + KEPT_STEPS)
		fail(w, "agent %d keeps a liar's state", i);
}

/* How far those who lie about parameters may lead an honest agent away: each by four times its
 * path, of which training takes RETURN back at every step; and by four radii in merge rounds, when
 * nobody trains. */
static double led_away(const struct fsim *w, int i)
{
	struct flock_view v;
	const struct fsim_toy *t = &w->agent[i].toy;
	int liars = 0;
	for (int k = 0; k < w->n; k++)
		liars += byz_lies(w, k, BYZ_PULL) || byz_lies(w, k, BYZ_FAR);
	flock_view(w->agent[i].core, &v);
	double step = t->moved / (double)(t->step - t->set_step + 1);
	return liars * (PATHS * step / RETURN + RADII * v.radius);
}

void byz_exported(struct fsim *w, int i)
{
	float end[FSIM_PARAMS];
	for (int p = 0; p < w->params; p++)
		end[p] = toy_optimum(w, p, w->total);
	double off = norm(w, w->agent[i].toy.x, end), way = norm(w, w->way, NULL);
	if (!judged(w, i))
		return;
	fsim_trace(w, "agent %d: off by %.3f, ways %.3f, led away by %.3f at most", i, off, way,
	        led_away(w, i));
	if (w->agent[i].outvoted)
		return; /* its run may have been short */
	if (!(off <= OFF_MOST * way + led_away(w, i)))
		fail(w, "agent %d exports a model that is %.2f of the run's way off", i, off / way);
	else if (off / way > w->worst_off)
		w->worst_off = off / way;
}

/* How far one peer may have moved an agent in all merge rounds by now, as gossip/README.md rule 22
 * has it. The core knows its length from a sketch, which may be older. */
static double most_merged(const struct fsim *w, int i, const struct flock_view *v)
{
	double most = RADII * v->radius, length = 2 * norm(w, w->agent[i].toy.x, NULL);
	return !v->radius_warm && most < length ? length : most;
}

/* How far an exchange moves an agent, whatever the partner sent: by no more than its radius, which
 * may have shrunk since the difference was cut to it. */
static void check_reach(struct fsim *w, int i, const struct flock_view *v, int who, double length)
{
	if (v->radius > 0 && length > SHRUNK * v->radius)
		fail(w, "agent %d is moved by %.3g by %d in one exchange, with a radius of %.3g", i,
		        length, who, v->radius);
}

/* Nobody trains while it merges, but those who still do exchange with it as in training: that
 * counts by its own path, merge rounds by themselves. */
void byz_applied(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	struct flock_view v;
	double sum = 0;
	int who = world_find(w, &a->peer);
	bool final = a->exchange == g->final;
	flock_view(g->core, &v);
	if (!judged(w, i))
		return;
	for (int p = 0, group = 0; p < w->params; p++) {
		group += (size_t)p >= w->group_end[group];
		double d = (double)a->apply.k[group] * (double)g->staging[p];
		sum += d * d;
	}
	check_reach(w, i, &v, who, sqrt(sum));
	/* Who has finished has its result: those who still train may move it as they like. */
	if (v.phase != FLOCK_MERGING)
		return;
	double *all = final ? &g->merged[who] : &g->pulled[who];
	double most = final ? most_merged(w, i, &v) : PATHS * g->toy.moved;
	*all += sqrt(sum);
	if (sum > 0 && *all > ROUNDED * most)
		fail(w, "agent %d is moved by %.3g by %d in %s, over %.3g", i, *all, who,
		        final ? "merge rounds" : "exchanges while it merges", most);
}

/* Whoever is accused again and again stays a member in good standing. */
static void check_suspects(struct fsim *w)
{
	double most = SUSPECT_MOST;
	for (int k = 0; k < w->n; k++)
		most += byz_lies(w, k, BYZ_ACCUSE) ? SUSPECT_LIAR : 0;
	for (int i = 0; i < w->n; i++)
		for (int k = 0; k < w->n; k++) {
			const struct fsim_agent *a = &w->agent[i];
			if (judged(w, i) && a->looks[k] >= LOOKS &&
			        a->suspects[k] > most * a->looks[k])
				fail(w, "agent %d suspects %d, which is honest, %d %% of the time",
				        i, k, (int)(100.0 * a->suspects[k] / a->looks[k]));
		}
}

void byz_end(struct fsim *w)
{
	check_suspects(w);
	for (int i = 0; i < w->n; i++)
		/* One that slept and found nobody to take a state from in time says so. */
		if (!byz_is_liar(w, i) && !w->agent[i].exported &&
		        w->agent[i].exit_code != ERR_STALE)
			fail(w, "agent %d, which is honest, has no result", i);
}
