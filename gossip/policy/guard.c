/* SPDX-License-Identifier: MIT */
/* The consensus guard: estimate, target, controller.
 *
 * Estimate. For a partner j that is drawn uniformly, E ½‖x_i − x_j‖²(n−1)/n = Ξ². Sketches would
 * say it without an exchange, but those that an agent has are of different ages, and overstate Ξ;
 * two snapshots of one exchange are of one moment. One distance is a noisy sample: each enters with
 * ¼, and the two partners go on with the mean of their estimates, which is gossip itself; where
 * their learning rates differ, in proportion to the squares of these. When our own rate falls, the
 * estimate stays until distances have followed: nobody is any nearer yet.
 *
 * Target. A step's length is u; with momentum μ, steps point the same way for a while, and what
 * they add up to is longer by √((1+μ)/(1−μ)). A target in proportion to that alone gains nothing
 * over equal intervals; one that falls more slowly than the learning rate does. In the last tenth
 * of the run it is tightened to the unit alone. An exchange waits for the end of a step, so Ξ²
 * grows with the interval and a part of a step; u² is added to the target's square for that, or a
 * cut of the learning rate would lengthen the interval by more than the target rises.
 *
 * Controller. The logarithm of the interval takes an eighth of the logarithm of target² over
 * estimate at each exchange, at most ±0.35. Ξ² is in proportion to the interval, and the estimate
 * lags by some four exchanges; with less weight for a sample, and more so with a higher gain, it
 * rings. Simulated, 16 agents, momentum 0.9, means of 50 seeds, as in tests/gossip/test_guard.c:
 *
 *                           estimate   Ξ / target after 30       learning rate / 10:
 *                           / Ξ        exchanges, from intervals  the interval becomes
 *                                      of 1 step   of 400 steps   so many times, at most
 *     as it is                1.14       0.91        1.04            9.91     11.17
 *     gain ¼                  1.15       0.86        1.04            9.47     15.50
 *     sample ⅛                1.09       0.97        0.63           11.26     14.63
 *     gain ¼, sample ⅛        1.14       0.76        0.56            9.49     22.70
 *     no u² in the target     1.13       0.91        1.05           10.20     11.47
 *
 * "At most" is the peak of the mean over agents in the 3,000 steps after the cut.
 *
 * What can fail: nothing. What is not finite or not positive says nothing. */
#include "gossip/policy/guard.h"

#include <math.h>
#include <string.h>

#define RHO 1.2
#define SLACK 16.0 /* c: the target² in units², at most, where the learning rate is low */
#define LAST 0.1   /* of the run, in which that falls to 1 */

#define LENGTH_OF 32.0 /* steps that u is averaged over */
#define SAMPLE 0.25
#define SAMPLE_MOST 16.0 /* times the estimate, that one sample counts for */
#define TRUST 4.0        /* the factor by which a partner's word may differ from ours */

#define GAIN 0.125
#define CHANGE_MOST 0.35
#define INTERVAL_FIRST 4.0 /* in first steps */
#define INTERVAL_MOST 4096.0

static double clamp(double x, double low, double high)
{
	return x < low ? low : x > high ? high : x;
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static bool positive(double x)
{
	return x > 0 && isfinite(x);
}

static void draw(struct guard *g)
{
	g->part = 0.75 + rng_f64(&g->rng) / 2;
}

void guard_init(struct guard *g, const struct guard_config *c)
{
	memset(g, 0, sizeof *g);
	g->config = *c;
	g->gained = c->step_samples;
	g->log_interval = log(INTERVAL_FIRST * (double)c->step_samples);
	rng_seed(&g->rng, c->seed, 0x6775617264); /* "guard" */
	draw(g);
}

/* ---- own steps */

static void measure(struct guard *g, const struct guard_step *s)
{
	uint64_t steps = s->step > g->step ? s->step - g->step : 1;
	double way = s->moved - g->moved;
	if (!positive(way)) /* the parameters were set, or it stands still */
		return;
	double each = way / (double)steps;
	g->lengths += g->lengths < (uint32_t)LENGTH_OF;
	g->length += (each - g->length) / g->lengths;
}

void guard_step(struct guard *g, const struct guard_step *s)
{
	if (g->begun && s->samples > g->trained)
		g->gained = s->samples - g->trained;
	g->samples += g->gained;
	g->trained = s->samples;
	if (g->begun)
		measure(g, s);
	g->moved = s->moved;
	g->step = s->step;
	g->begun = true;
	g->lr = s->lr;
	g->done = s->done;
}

bool guard_due(const struct guard *g)
{
	return (double)(g->samples - g->met_samples) >= g->part * exp(g->log_interval);
}

/* ---- estimate and target */

static double target2(const struct guard *g)
{
	double mu = clamp(g->config.momentum, 0, 0.9999);
	double unit2 = g->length * g->length * (1 + mu) / (1 - mu);
	double most = 1 + (SLACK - 1) * clamp((1 - g->done) / LAST, 0, 1);
	double slack = positive(g->lr) ? clamp(g->config.lr_peak / g->lr, 1, most) : most;
	return RHO * RHO * unit2 * slack;
}

/* What Ξ² is steered to. */
static double aim2(const struct guard *g)
{
	return target2(g) + g->length * g->length + g->floor2;
}

static void estimate(struct guard *g, const struct guard_meeting *m)
{
	double h = m->distance2 / 2 * (m->agents - 1) / m->agents;
	if (!positive(h))
		return;
	if (g->x2 <= 0)
		g->x2 = g->own = h;
	double ratio = g->lr / (double)m->theirs.lr, theirs = (double)m->theirs.x2 * ratio * ratio;
	if (!positive(ratio) || !positive(theirs))
		theirs = g->x2;
	theirs = clamp(theirs, g->x2 / TRUST, g->x2 * TRUST);
	double sample = least(h, SAMPLE_MOST * g->x2);
	g->own += SAMPLE * (least(h, SAMPLE_MOST * g->own) - g->own);
	g->x2 = (1 - SAMPLE) * (g->x2 + theirs) / 2 + SAMPLE * sample;
	g->x2 = clamp(g->x2, g->own / TRUST, g->own * TRUST);
}

struct guard_word guard_says(const struct guard *g)
{
	struct guard_word w = {(float)g->x2, (float)g->lr};
	if (!isfinite(w.x2) || !isfinite(w.lr))
		w = (struct guard_word){0};
	return w;
}

/* ---- controller */

void guard_met(struct guard *g, const struct guard_meeting *m)
{
	g->met_samples = g->samples;
	g->floor2 = positive(m->floor2) ? m->floor2 : 0;
	draw(g);
	if (m->uniform && m->distance2 >= 0 && m->agents > 1)
		estimate(g, m);
	double want = aim2(g);
	if (!positive(g->length) || !positive(want) || !positive(g->x2))
		return;
	double change = GAIN * log(want / g->x2);
	double one = log((double)g->config.step_samples);
	g->log_interval = clamp(g->log_interval + clamp(change, -CHANGE_MOST, CHANGE_MOST), one,
	        one + log(INTERVAL_MOST));
}

/* The interval stays: it is in samples of the same run, and the first samples correct it. */
void guard_renew(struct guard *g)
{
	g->lengths = 0;
	g->length = g->x2 = g->own = g->floor2 = 0;
}

struct guard_view guard_view(const struct guard *g)
{
	return (struct guard_view){.known = g->x2 > 0,
	        .consensus = sqrt(g->x2),
	        .target = g->lengths > 0 ? sqrt(aim2(g)) : 0,
	        .interval_samples = exp(g->log_interval)};
}
