/* SPDX-License-Identifier: MIT */
/* The run's clock, and what of it this agent's model has no part of.
 *
 * The clock is the samples of all agents. While we train and hear of the others all the time, what
 * they train reaches our model by exchanges, however rare these are. It does not when we slept (a
 * stopped process, a suspended laptop) or were cut off from everybody: what we hear of afterwards,
 * until the next exchange, was missed. So it is when we were paused, or started from a checkpoint.
 * An agent that has missed more than gossip.stale of the run, and more than it trained by itself
 * meanwhile, is stale: its model is not the flock's, and it takes a peer's state. Of two that were
 * cut off from each other only one can be.
 *
 * What cannot be known: whoever wakes up, or starts from an old checkpoint, when all others are
 * gone and nobody is left who has heard of their samples, has no reason to think that it missed
 * any. It trains what is left of the run by its own account. */
#include "agent/flock_core.h"

#include <math.h>
#include <time.h>

#define CLOCK_NEWS_MS 30000 /* in which samples that somebody trained are known to all */
#define SLEPT_MS 1000       /* between two ticks */

uint64_t flock__samples(const struct flock_agent *f)
{
	return f->samples_base + f->last.r.samples;
}

/* By their records, which take seconds to spread, but no fewer than our own checkpoint knew of; and
 * by what partners have heard, which takes one exchange. A partner's word counts for no more than a
 * share of the run beyond the records. */
static uint64_t others(const struct flock_agent *f)
{
	if (!f->node)
		return f->others_last;
	const struct gossip *g = node_gossip(f->node);
	uint64_t ours = gossip_self(g)->status.samples, clock = gossip_clock(g);
	uint64_t known = clock > ours ? clock - ours : 0;
	if (known < f->others_kept)
		known = f->others_kept;
	uint64_t most = known + (uint64_t)(f->c.config->gossip.stale * (double)f->total);
	uint64_t told = f->others_told < most ? f->others_told : most;
	return told > known ? told : known;
}

void flock__told_clock(struct flock_agent *f, uint64_t clock)
{
	/* Our own part of that clock is at most what we know of it now. */
	uint64_t ours = flock__samples(f), least = clock > ours ? clock - ours : 0;
	if (least > f->others_told)
		f->others_told = least;
}

uint64_t flock__clock(const struct flock_agent *f)
{
	return others(f) + flock__samples(f);
}

uint64_t flock__missed(const struct flock_agent *f)
{
	uint64_t now = others(f);
	return now > f->others_then ? now - f->others_then : 0;
}

bool flock__stale(const struct flock_agent *f)
{
	uint64_t missed = flock__missed(f), own = flock__samples(f) - f->own_then;
	return (double)missed > f->c.config->gossip.stale * (double)f->total && missed > own;
}

void flock__in_touch(struct flock_agent *f)
{
	f->others_then = others(f);
	f->own_then = flock__samples(f);
	f->apart_until_ms = 0;
}

/* Also counts the time that a machine is suspended, which the loop's clock does not. */
static uint64_t wall_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void follow(struct flock_agent *f)
{
	uint64_t now = others(f), wall = wall_ms();
	bool slept = f->followed_ms != 0 && wall - f->followed_ms > SLEPT_MS;
	/* Who is alone from the beginning hears of nobody's samples. */
	bool cut_off = f->n_candidates == 0 && now > 0;
	f->followed_ms = wall;
	if (slept || cut_off)
		f->apart_until_ms = f->now_ms + CLOCK_NEWS_MS;
	if (f->phase == FLOCK_TRAINING && f->now_ms >= f->apart_until_ms && now > f->others_last) {
		f->others_then += now - f->others_last;
		f->own_then = flock__samples(f);
	}
	f->others_last = now;
}

void flock__tell_status(struct flock_agent *f)
{
	struct member_status s = {.model = f->model_hash,
	        .step = f->last.r.step,
	        .samples = flock__samples(f),
	        .loss = f->has_loss ? (float)f->loss : NAN};
	node_status(f->node, &s);
	follow(f);
	/* The samples of others that a checkpoint names are those that its model has a part of. */
	if (!flock__stale(f))
		learner_others(f->learner, f->others_last + f->samples_base);
	if (f->now_ms - f->clock_ms >= CLOCK_NEWS_MS) {
		f->clock_ms = f->now_ms;
		f->clock_known = f->clock_mid;
		f->clock_mid = flock__clock(f);
	}
}
