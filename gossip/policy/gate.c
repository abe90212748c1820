/* SPDX-License-Identifier: MIT */
/* The gate (Tyagi & Swany 2023, "SelSync"; per agent here, not by a collective flag).
 *
 * A step goes through four questions, in this order:
 *
 *     look    what do the averages make of its gradient?     → warming up, Δ, or nothing to go by
 *     rule    does the mode want an exchange, or the guard?  → a reason, or local
 *     decide  back-off, longest silence, owed, cap, budget   → yes, or the reason why not
 *     follow  budget mode: δ moves towards what the target can pay for
 *
 * Budget. Tokens come in at the target rate, one pays for one exchange. Two buckets share them, for
 * exchanges that we begin and for those of others; what one cannot hold flows into the other, so a
 * share that nobody claims is not lost. δ is a quantile of Δ, tracked by stochastic approximation
 * (Robbins & Monro 1951) on its logarithm, where steps of one size are in proportion to δ whatever
 * the scale of Δ: up by GAIN for each exchange that significance got, down by GAIN for each token
 * that came in. Both even out just when exchanges cost what comes in; how many steps a second that
 * is spread over never enters. The level of the bucket weighs the tokens, so that wants which came
 * to nothing, or forced exchanges, even out too. A least spacing keeps bursts of Δ, which is
 * autocorrelated, from emptying the bucket at once.
 *
 * Cap. A bucket of bytes, in which an exchange must be paid for whole before it begins: over any
 * time no more than cap × time and one bucket goes out, as long as an exchange costs what
 * exchange_bytes says. What costs more leaves a debt that is paid off first.
 *
 * A gradient that is not finite is left out of every average and is never significant. Time that
 * goes back stands still; a number of samples that goes back counts as one step like the last. */
#include "gossip/policy/gate.h"

#include <math.h>
#include <string.h>

#define AVERAGE_LEAST 1e-30 /* what is less is as good as nothing */

#define BUCKET 8.0         /* tokens that a bucket of the budget holds */
#define SPACING 0.5        /* least time between wants, in intervals of the target rate */
#define GAIN 0.2           /* of log δ for one exchange */
#define SCALE_SMOOTH 0.02  /* of the average of Δ, which bounds δ: */
#define SCALE_RANGE 100.0  /* it stays within this factor of it */
#define SCALE_OUTLIER 10.0 /* and a Δ counts for at most so many averages */
#define SCALE_LEAST 1e-12
#define DELTA_FIRST 0.1 /* where the budget's δ begins unless told */

#define CAP_BURST_S 2.0
#define DAY_S 86400u
#define DAY_MS (DAY_S * UINT64_C(1000))
#define DAY_HASTE 2.0 /* how much faster than evenly the rest of a day's quota may be spent */

#define RETRY_FIRST_MS 50u /* the shortest first wait for an owed exchange; then doubled up to */
#define RETRY_MOST_MS 5000u

struct window { /* the newest W */
	double value[GATE_WINDOW_MAX];
	uint32_t n, next;
};

struct gate {
	struct gate_config config;
	struct rng rng;
	uint64_t now;     /* the latest that was told */
	uint64_t trained; /* the trainer's number at the latest step */
	uint64_t gained;  /* of the latest step */
	uint64_t samples; /* passed since the first, steps left out too: never goes back */
	bool begun;

	uint32_t seen; /* gradients in the average */
	double average, slow;
	struct window norms, changes; /* selsync's two */
	bool has_change;
	double change; /* the last there was */

	uint64_t wish_samples, wish_ms; /* when an exchange was last asked for */
	bool wished;
	uint64_t done_samples, done_ms; /* when one last came about */
	bool owed;
	uint32_t first_ms;     /* the shortest first wait */
	uint32_t owed_wait_ms; /* the longest next wait */
	uint64_t retry_ms;

	double own, incoming; /* tokens */
	double income;        /* of `own` since the last step */
	double log_delta, scale;

	double cap_left;     /* bytes */
	uint64_t day_age_ms; /* of the quota's current day */
	uint64_t day_bytes;
	uint64_t day_start_s; /* wall clock */
	bool day_known;       /* day_start_s is */

	uint64_t by_reason[REASONS], local, communicating;
};

static double least(double a, double b)
{
	return a < b ? a : b;
}

static double most(double a, double b)
{
	return a > b ? a : b;
}

static double clamp(double x, double low, double high)
{
	return least(most(x, low), high);
}

/* ---- averages */

static void window_push(struct window *w, uint32_t width, double x)
{
	w->value[w->next] = x;
	w->next = (w->next + 1) % width;
	if (w->n < width)
		w->n++;
}

/* Weights (1 − a)^k, newest first, normalised. */
static double window_average(const struct window *w, uint32_t width, double a)
{
	double sum = 0, total = 0, weight = 1;
	for (uint32_t k = 1; k <= w->n; k++, weight *= 1 - a) {
		sum += weight * w->value[(w->next + width - k) % width];
		total += weight;
	}
	return sum / total;
}

enum sight { SIGHT_NOTHING, SIGHT_WARMING, SIGHT_VANISHED, SIGHT_CHANGE };

static enum sight change_is(struct gate_decision *d, double change)
{
	d->has_change = true;
	d->change = least(change, GATE_CHANGE_MAX);
	return SIGHT_CHANGE;
}

/* Plain means at first, so that the first gradient does not weigh for long in the slow one. */
static double averaged(double before, double x, double a, uint32_t seen)
{
	a = most(a, 1.0 / seen);
	return (1 - a) * before + a * x;
}

/* Two averages e of ‖g‖², a fast and a slow one: Δ = |ln(e_fast / e_slow)|. SelSync compares one
 * average with itself a step before; then a single ‖g‖² decides, which is minibatch noise: at
 * log-sd 0.5 that fires on 7 % of the steps of a stationary series, and on none with large
 * batches. */
static enum sight look_significance(
        struct gate *g, const struct gate_step *s, struct gate_decision *d)
{
	if (!isfinite(s->norm2) || s->norm2 < 0)
		return SIGHT_NOTHING;
	if (g->seen < UINT32_MAX)
		g->seen++;
	g->average = averaged(g->average, s->norm2, g->config.smooth, g->seen);
	g->slow = averaged(g->slow, s->norm2, g->config.slow, g->seen);
	if (g->seen > 1)
		change_is(d,
		        fabs(log(most(g->average, AVERAGE_LEAST) / most(g->slow, AVERAGE_LEAST))));
	return g->seen > 1 && g->seen > g->config.warm ? SIGHT_CHANGE : SIGHT_WARMING;
}

/* As in SelSync's scripts: s is the windowed average of n_t = Σ‖g_layer‖, and Δ of s is averaged
 * the same way. Their start, which divides by averages that are still 0, is not imitated: s exists
 * from the first full window, Δ from the second s. */
static enum sight look_selsync(struct gate *g, const struct gate_step *s, struct gate_decision *d)
{
	uint32_t width = g->config.warm;
	double before = g->average, a = g->config.smooth;
	if (!isfinite(s->layer_norms) || s->layer_norms < 0)
		return SIGHT_NOTHING;
	window_push(&g->norms, width, s->layer_norms);
	if (g->seen < UINT32_MAX)
		g->seen++;
	if (g->seen < width)
		return SIGHT_WARMING;
	g->average = window_average(&g->norms, width, a);
	if (g->seen == width)
		return SIGHT_WARMING;
	if (before < AVERAGE_LEAST)
		return SIGHT_VANISHED;
	enum sight sight = change_is(d, fabs(g->average - before) / before);
	window_push(&g->changes, width, d->change);
	d->change = window_average(&g->changes, width, a);
	return sight;
}

static bool is_warm(const struct gate *g)
{
	uint64_t first = g->config.warm + (g->config.mode == GATE_SELSYNC ? UINT64_C(1) : 0);
	return g->seen > 0 && g->seen >= first;
}

void gate_renew(struct gate *g)
{
	g->seen = 0;
	g->average = g->slow = 0;
	memset(&g->norms, 0, sizeof g->norms);
	memset(&g->changes, 0, sizeof g->changes);
	g->has_change = false;
	g->change = 0;
}

void gate_batch(struct gate *g, double signal, double noise, double from, double to)
{
	signal = signal < 0 ? 0 : signal; /* it is a difference of estimates */
	double scale = (signal + noise / to) / (signal + noise / from);
	if (!(from > 0 && to > 0 && scale > 0 && isfinite(scale)))
		return;
	/* selsync's are sums of norms, not of their squares */
	g->average *= g->config.mode == GATE_SELSYNC ? sqrt(scale) : scale;
	g->slow *= scale;
	for (uint32_t i = 0; i < g->norms.n; i++)
		g->norms.value[i] *= sqrt(scale);
}

/* ---- time: what it brings into the buckets */

static double cap_most(const struct gate *g)
{
	return most(g->config.cap_bytes_per_s * CAP_BURST_S, (double)g->config.exchange_bytes);
}

static double day_left(const struct gate *g)
{
	return most(g->config.bytes_per_day - (double)g->day_bytes, 0);
}

/* Exchanges per second, ours and the peers' together: the strictest target. For the day's quota,
 * only what is left of the day counts. */
static double target_rate(const struct gate *g)
{
	const struct gate_config *c = &g->config;
	double rate = INFINITY, bytes = (double)c->exchange_bytes;
	if (c->exchanges_per_s > 0)
		rate = c->exchanges_per_s;
	if (c->bytes_per_s > 0)
		rate = least(rate, c->bytes_per_s / bytes);
	if (c->bytes_per_day > 0) {
		double evenly = c->bytes_per_day / DAY_S;
		double now = day_left(g) * 1000 / (double)(DAY_MS - g->day_age_ms);
		rate = least(rate, least(now, DAY_HASTE * evenly) / bytes);
	}
	return rate;
}

static void pour(struct gate *g, double tokens)
{
	double kept = tokens * g->config.incoming_share, ours = tokens - kept;
	g->incoming += kept;
	if (g->incoming > BUCKET) {
		ours += g->incoming - BUCKET;
		g->incoming = BUCKET;
	}
	g->income += ours;
	g->own += ours;
	if (g->own > BUCKET) {
		g->incoming = least(g->incoming + g->own - BUCKET, BUCKET);
		g->own = BUCKET;
	}
}

static void advance(struct gate *g, uint64_t now_ms)
{
	if (now_ms <= g->now)
		return;
	uint64_t ms = now_ms - g->now;
	double seconds = (double)ms / 1000;
	g->now = now_ms;
	if (g->config.cap_bytes_per_s > 0)
		g->cap_left = least(g->cap_left + g->config.cap_bytes_per_s * seconds, cap_most(g));
	if (g->config.mode == GATE_BUDGET)
		pour(g, target_rate(g) * seconds);
	uint64_t age = g->day_age_ms + ms, days = age / DAY_MS;
	g->day_age_ms = age % DAY_MS;
	if (days > 0) {
		g->day_start_s += days * DAY_S;
		g->day_bytes = 0;
	}
}

/* ---- decisions */

static double current_delta(const struct gate *g)
{
	switch (g->config.mode) {
	case GATE_SIGNIFICANCE:
	case GATE_SELSYNC:
		return g->config.delta;
	case GATE_BUDGET:
		return exp(g->log_delta);
	default:
		return 0;
	}
}

static enum gate_reason rule(struct gate *g, enum sight sight, const struct gate_decision *d)
{
	bool yes = false;
	switch (g->config.mode) {
	case GATE_EVERY:
		yes = g->samples - g->wish_samples >= g->config.every_samples;
		break;
	case GATE_ALWAYS:
		yes = true;
		break;
	case GATE_RANDOM:
		yes = rng_f64(&g->rng) < g->config.chance;
		break;
	default:
		if (sight == SIGHT_WARMING)
			return REASON_WARMUP;
		if (sight == SIGHT_VANISHED || (sight == SIGHT_CHANGE && d->change >= d->delta))
			return REASON_SIGNIFICANT;
		return REASON_LOCAL;
	}
	return yes ? REASON_MODE : REASON_LOCAL;
}

static bool too_silent(const struct gate *g)
{
	const struct gate_config *c = &g->config;
	return (c->silence_samples > 0 && g->samples - g->done_samples >= c->silence_samples) ||
	       (c->silence_ms > 0 && g->now - g->done_ms >= c->silence_ms);
}

/* What is more than the bucket holds is paid by a full one, and leaves a debt. */
static bool cap_pays(const struct gate *g, uint64_t bytes)
{
	return g->config.cap_bytes_per_s <= 0 || g->cap_left >= least((double)bytes, cap_most(g));
}

/* A day's quota is a hard limit like the cap: it also holds after the longest silence. */
static bool quota_pays(const struct gate *g, uint64_t bytes)
{
	return g->config.mode != GATE_BUDGET || g->config.bytes_per_day <= 0 ||
	       day_left(g) >= (double)bytes;
}

static bool budget_pays(const struct gate *g, enum gate_reason r)
{
	if (g->config.mode != GATE_BUDGET || r == REASON_SILENCE)
		return true;
	if (g->own < 1)
		return false;
	return r == REASON_OWED || !g->wished ||
	       (double)(g->now - g->wish_ms) * target_rate(g) >= SPACING * 1000;
}

/* An agent that is alone would be asked by silence, debt and guard at every step. What its mode
 * wants is told, so that δ follows it, and comes to nothing. */
static void decide(struct gate *g, enum gate_reason wish, bool alone, struct gate_decision *d)
{
	const uint64_t bytes = g->config.exchange_bytes;
	bool silent = !alone && too_silent(g);
	/* One debt, however many would like to add to it. */
	if (g->owed && (alone || g->now < g->retry_ms)) {
		bool more = silent || wish != REASON_LOCAL;
		d->reason = more ? REASON_OWED : REASON_LOCAL;
		if (more)
			g->wish_samples = g->samples;
		return;
	}
	if (silent)
		wish = REASON_SILENCE;
	else if (g->owed)
		wish = REASON_OWED;
	d->reason = (uint8_t)wish;
	if (wish == REASON_LOCAL)
		return;
	if (!cap_pays(g, bytes)) {
		d->reason = REASON_CAP;
	} else if (!quota_pays(g, bytes) || !budget_pays(g, wish)) {
		d->reason = REASON_BUDGET;
	} else {
		d->exchange = !alone;
		g->wished = true;
		g->wish_samples = g->samples;
		g->wish_ms = g->now;
	}
}

/* Moves δ by what has come in and gone out since the last step. While the average warms up Δ only
 * tells its scale. */
static void follow(struct gate *g, enum sight sight, const struct gate_decision *d)
{
	double level = most(g->own, 0) / (BUCKET / 2);
	double due = least(g->income * level * level, 1);
	g->income = 0;
	if (!d->has_change)
		return;
	if (g->scale <= SCALE_LEAST)
		g->scale = d->change;
	g->scale += SCALE_SMOOTH * (least(d->change, SCALE_OUTLIER * g->scale) - g->scale);
	g->scale = most(g->scale, SCALE_LEAST);
	if (sight != SIGHT_CHANGE)
		return;
	bool spent = d->reason == REASON_SIGNIFICANT;
	g->log_delta = clamp(g->log_delta + GAIN * ((spent ? 1 : 0) - due),
	        log(g->scale / SCALE_RANGE), log(g->scale * SCALE_RANGE));
}

static void pass(struct gate *g, uint64_t trained)
{
	if (g->begun && trained > g->trained)
		g->gained = trained - g->trained;
	g->samples += g->gained;
	g->trained = trained;
	g->begun = true;
}

struct gate_decision gate_step(struct gate *g, const struct gate_step *s)
{
	struct gate_decision d = {.delta = current_delta(g)};
	advance(g, s->now_ms);
	pass(g, s->samples);

	enum sight sight = g->config.mode == GATE_SELSYNC ? look_selsync(g, s, &d)
	                                                  : look_significance(g, s, &d);
	if (d.has_change) {
		g->has_change = true;
		g->change = d.change;
	}
	enum gate_reason wish = rule(g, sight, &d);
	if (wish == REASON_LOCAL && s->due && !s->alone)
		wish = REASON_GUARD;
	decide(g, wish, s->alone, &d);
	if (g->config.mode == GATE_BUDGET)
		follow(g, sight, &d);
	g->by_reason[d.reason]++;
	if (d.exchange)
		g->communicating++;
	else
		g->local++;
	return d;
}

/* ---- what came of it */

void gate_owed(struct gate *g, uint64_t now_ms)
{
	advance(g, now_ms);
	uint32_t wait = g->owed ? g->owed_wait_ms : 2 * g->first_ms;
	g->owed = true;
	g->retry_ms = g->now + wait / 2 + rng_below(&g->rng, wait / 2 + 1);
	g->owed_wait_ms = wait < RETRY_MOST_MS / 2 ? wait * 2 : RETRY_MOST_MS;
}

void gate_retry(struct gate *g, uint32_t retry_ms)
{
	g->first_ms = retry_ms;
}

void gate_spent(struct gate *g, uint64_t now_ms, uint64_t bytes, bool ours, bool done)
{
	advance(g, now_ms);
	g->day_bytes = bytes < UINT64_MAX - g->day_bytes ? g->day_bytes + bytes : UINT64_MAX;
	if (g->config.cap_bytes_per_s > 0)
		g->cap_left -= (double)bytes;
	if (g->config.mode == GATE_BUDGET) {
		double cost = (double)bytes / (double)g->config.exchange_bytes;
		double *bucket = ours ? &g->own : &g->incoming;
		if (done && g->config.exchanges_per_s > 0)
			cost = most(cost, 1); /* these are counted, whatever they weigh */
		*bucket = most(*bucket - cost, -BUCKET);
	}
	if (done) {
		g->owed = false;
		g->done_samples = g->samples;
		g->done_ms = g->now;
	}
}

bool gate_pays(struct gate *g, uint64_t now_ms, uint64_t bytes)
{
	advance(g, now_ms);
	return cap_pays(g, bytes) && quota_pays(g, bytes);
}

/* Of the budget one token is enough: what costs more leaves a debt of tokens. */
bool gate_admits(struct gate *g, uint64_t now_ms, uint64_t bytes)
{
	return gate_pays(g, now_ms, bytes) && (g->config.mode != GATE_BUDGET || g->incoming >= 1);
}

struct gate_view gate_view(const struct gate *g, uint64_t now_ms)
{
	struct gate x = *g;
	advance(&x, now_ms);
	struct gate_view v = {.mode = (uint8_t)x.config.mode,
	        .warm = is_warm(&x),
	        .has_change = x.has_change,
	        .owed = x.owed,
	        .change = x.change,
	        .delta = current_delta(&x),
	        .average = x.average,
	        .local = x.local,
	        .communicating = x.communicating,
	        .budget_left = -1,
	        .cap_left = x.config.cap_bytes_per_s > 0 ? most(x.cap_left, 0) : -1,
	        .day_bytes = x.day_bytes};
	memcpy(v.by_reason, x.by_reason, sizeof v.by_reason);
	if (x.config.mode == GATE_BUDGET) {
		double tokens = most(x.own, 0) + most(x.incoming, 0);
		v.budget_left = tokens * (double)x.config.exchange_bytes;
		if (x.config.bytes_per_day > 0)
			v.budget_left = least(v.budget_left, day_left(&x));
	}
	return v;
}

/* ---- the day's quota */

static struct gate_quota quota_at(struct gate_quota q, uint64_t wall_s)
{
	if (wall_s < q.day_start_s) /* the clock went back: what was used stays used */
		q.day_start_s = wall_s;
	uint64_t days = (wall_s - q.day_start_s) / DAY_S;
	if (days > 0) {
		q.day_start_s += days * DAY_S;
		q.bytes = 0;
	}
	return q;
}

void gate_quota_set(struct gate *g, const struct gate_quota *q, uint64_t wall_s)
{
	struct gate_quota now = quota_at(*q, wall_s);
	g->day_start_s = now.day_start_s;
	g->day_known = true;
	g->day_bytes = now.bytes;
	g->day_age_ms = (wall_s - now.day_start_s) * 1000;
}

struct gate_quota gate_quota_get(const struct gate *g, uint64_t wall_s)
{
	uint64_t age_s = g->day_age_ms / 1000;
	uint64_t start = g->day_known ? g->day_start_s : wall_s - (age_s < wall_s ? age_s : wall_s);
	return quota_at((struct gate_quota){start, g->day_bytes}, wall_s);
}

/* ---- beginning */

size_t gate_size(void)
{
	return sizeof(struct gate);
}

int gate_init(struct gate *g, const struct gate_config *c, uint64_t now_ms, struct err *e)
{
	int rc = gate_check(c, e);
	if (rc < 0)
		return rc;
	memset(g, 0, sizeof *g);
	g->config = *c;
	rng_seed(&g->rng, c->seed, 0x67617465); /* "gate" */
	g->gained = c->step_samples;
	g->now = g->done_ms = now_ms;
	g->first_ms = RETRY_FIRST_MS;
	g->own = g->incoming = BUCKET / 2;
	g->log_delta = log(c->delta > 0 ? c->delta : DELTA_FIRST);
	g->cap_left = cap_most(g);
	return 0;
}
