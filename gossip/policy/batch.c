/* SPDX-License-Identifier: MIT */
/* The norm test without vectors of its own: s = (‖g₁‖² − ‖g‖²)/(1/m − 1/b) has the mean S, and
 * ‖g‖² − s/b the mean G. Either is noisy, and may be negative; so they are averaged apart and
 * divided last. */
#include "gossip/policy/batch.h"

#include <math.h>

#define TEST_EVERY 8      /* steps */
#define DECIDE_EVERY 64   /* steps */
#define TESTS 32          /* before the averages count; and while a donor's do */
#define KEEP 0.97         /* of the averages, at a test */
#define SIGNAL_LEAST 0.05 /* of S/b: a G under it is lost in its own noise */
#define GROW_BLIND 1.5    /* then */
#define END_SHARE 100     /* of the run: its last part */

static uint64_t round_up(uint64_t samples, uint64_t micro)
{
	return (samples + micro - 1) / micro * micro;
}

static uint64_t bounded(const struct batch_config *c, uint64_t size)
{
	uint64_t most = c->most / c->micro * c->micro;
	size = size < c->most ? round_up(size, c->micro) : most;
	size = size < most ? size : most;
	return size > c->first ? size : c->first;
}

void batch_start(struct batch_state *b, const struct batch_config *c)
{
	*b = (struct batch_state){.size = c->first};
}

static bool sane(double noise, double signal)
{
	return isfinite(noise) && isfinite(signal);
}

void batch_restored(struct batch_state *b, const struct batch_config *c)
{
	if (!sane(b->noise, b->signal) || !sane(b->given_noise, b->given_signal))
		batch_start(b, c);
	b->size = bounded(c, b->size);
	b->may_fall = b->may_fall != 0;
}

void batch_given(struct batch_state *b, const struct batch_config *c, uint64_t size, double noise,
        double signal)
{
	if (size == 0)
		return;
	*b = (struct batch_state){.size = bounded(c, size), .may_fall = 1};
	if (sane(noise, signal) && noise > 0) {
		b->given_noise = noise;
		b->given_signal = signal;
	}
}

bool batch_tested(uint64_t step)
{
	return step % TEST_EVERY == 0;
}

void batch_test(struct batch_state *b, uint64_t part, double part2, uint64_t whole, double whole2)
{
	double noise = (part2 - whole2) / (1 / (double)part - 1 / (double)whole);
	double signal = whole2 - noise / (double)whole;
	if (!sane(noise, signal))
		return;
	b->noise = KEEP * b->noise + (1 - KEEP) * noise;
	b->signal = KEEP * b->signal + (1 - KEEP) * signal;
	b->tests++;
}

bool batch_known(const struct batch_state *b, double *noise, double *signal)
{
	double left = pow(KEEP, (double)b->tests); /* weight that the own tests leave */
	if (b->given_noise > 0 && b->tests < TESTS) {
		*noise = b->noise + left * b->given_noise;
		*signal = b->signal + left * b->given_signal;
		return true;
	}
	*noise = b->tests > 0 ? b->noise / (1 - left) : 0;
	*signal = b->tests > 0 ? b->signal / (1 - left) : 0;
	return b->tests >= TESTS;
}

/* Of what is wanted; no number that a double may have is too large for it. */
static uint64_t samples_of(double want, uint64_t most)
{
	return want < (double)most ? (uint64_t)ceil(want) : most;
}

bool batch_decide(
        struct batch_state *b, const struct batch_config *c, uint64_t step, uint64_t agents)
{
	uint64_t most = c->most < 2 * b->size ? c->most : 2 * b->size, was = b->size;
	double noise, signal, size = (double)b->size;
	if (step % DECIDE_EVERY != 0 || !batch_known(b, &noise, &signal))
		return false;
	bool own = b->tests >= TESTS, blind = signal <= SIGNAL_LEAST * noise / size;
	if (noise > 0) {
		double want = blind ? GROW_BLIND * size
		                    : noise / (c->eta * c->eta * signal * (double)agents);
		uint64_t next = bounded(c, samples_of(want, most));
		if (next > b->size || b->may_fall)
			b->size = next;
	}
	if (own && noise > 0) /* else nothing was decided of what a donor said */
		b->may_fall = 0;
	return b->size != was;
}

uint64_t batch_now(const struct batch_state *b, const struct batch_config *c, uint64_t agents,
        uint64_t left, uint64_t total)
{
	uint64_t size = b->size;
	while (left <= total / END_SHARE && size > c->micro && size * agents > left)
		size = round_up(size / 2, c->micro);
	return size;
}
