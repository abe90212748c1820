/* SPDX-License-Identifier: MIT */
/* How often a peer may begin exchanges with us, and how soon an own one is tried again: as fast as
 * we train. An exchange cannot be applied more often than once in a step, so a limit of its own in
 * seconds would hold back fast models and say nothing to slow ones.
 *
 * Between two bounds, so that neither a clock nor a very fast trainer decides alone: 50 to 1000
 * begun a second, the first wait 2 to 50 ms. A stated gossip.peer_rate takes the place of the
 * first. The rate of steps is counted in windows, since steps are told several at a time. */
#include "gossip/flock/flock_internal.h"

#define WINDOW_MS 250
#define RATE_MIN 50
#define RATE_MAX 1000
#define RETRY_MS_MIN 2
#define RETRY_MS_MAX 50

static double within(double x, double least, double most)
{
	return x < least ? least : x > most ? most : x;
}

double flock__peer_rate(const struct flock *f)
{
	if (f->c.peer_rate > 0)
		return f->c.peer_rate;
	return within(f->x.throttle.rate, RATE_MIN, RATE_MAX);
}

double flock__burst(double rate)
{
	return rate < 4 ? 4 : rate;
}

void flock__throttle(struct flock *f, int steps)
{
	uint64_t ms = f->now_ms - f->x.throttle.since_ms;
	f->x.throttle.steps += (uint64_t)steps;
	if (f->x.throttle.since_ms != 0 && ms < WINDOW_MS)
		return;
	if (f->x.throttle.since_ms != 0) {
		f->x.throttle.rate = (double)f->x.throttle.steps * 1000 / (double)ms;
		double step_ms = 1000 / f->x.throttle.rate, rate = flock__peer_rate(f);
		uint32_t retry_ms = (uint32_t)within(step_ms, RETRY_MS_MIN, RETRY_MS_MAX);
		partners_pace(f->partners, rate, flock__burst(rate), retry_ms);
		gate_retry(f->gate, retry_ms);
	}
	f->x.throttle.since_ms = f->now_ms > 0 ? f->now_ms : 1;
	f->x.throttle.steps = 0;
}
