/* SPDX-License-Identifier: MIT */
/* The idea: a difference that was rounded to a step in proportion to itself loses nothing that the
 * next exchange does not make up for. So scales follow the differences, upwards at once, since a
 * block that wraps is lost for an exchange, and downwards slowly, since the next partner may be
 * further away than this one.
 *
 * A peer has a say in them. So they follow what passed as a partner's parameters only, and where
 * that had to be clipped, or a peer says that a block has wrapped, upwards by little.
 *
 * Two floors. Under 2^-20 of the parameters' own size a difference is rounding. And a run that has
 * not moved at all yet (the weights of a dead unit) must not need dozens of exchanges to be heard
 * when it does: nothing is kept further than 2^-12 under the largest of all. */
#include "gossip/exchange/scales.h"

#include <assert.h>
#include <string.h>

#define UNDER_SIZE 40 /* half octaves: 2^-20 */
#define UNDER_MOST 24 /* 2^-12 */
#define DOWN 1        /* an exchange */
#define UP_WRAPPED 4  /* times four */

int scales_shift(size_t count)
{
	size_t blocks = (count + SCALES_BLOCK - 1) / SCALES_BLOCK;
	int shift = 0;
	while ((blocks + ((size_t)1 << shift) - 1) >> shift > SCALES_MAX)
		shift++;
	return shift;
}

size_t scales_count(size_t count)
{
	size_t blocks = (count + SCALES_BLOCK - 1) / SCALES_BLOCK;
	int shift = scales_shift(count);
	return (blocks + ((size_t)1 << shift) - 1) >> shift;
}

static int bounded(int s)
{
	return s < SCALES_LEAST ? SCALES_LEAST : s > SCALES_MOST ? SCALES_MOST : s;
}

int8_t scales_of(float v)
{
	const uint32_t root2 = 0x3504f3u; /* of the fraction: √2 rounded down */
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	uint32_t fraction = u & 0x7fffffu;
	int exponent = (int)(u >> 23 & 255) - 127;
	return (int8_t)bounded(2 * exponent + (fraction > root2 ? 2 : fraction > 0 ? 1 : 0));
}

void scales_agree(int8_t *out, const int8_t *ours, const int8_t *theirs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int a = bounded(ours[i]), b = bounded(theirs[i]);
		int low = a < b ? a : b, high = a < b ? b : a;
		out[i] = (int8_t)(high > low + SCALES_ABOVE ? low + SCALES_ABOVE : high);
	}
}

/* Of a run that wrapped. What the peer said of it may have made the steps too fine, and that is no
 * reason for coarser ones; nor is what has made them coarser than ours a reason for more. */
static int wrapped(int now, int used)
{
	int next = (used < now ? used : now) + UP_WRAPPED;
	return next > now ? next : now;
}

void scales_learn(struct scales *s, const int8_t *found, const int8_t *size, const int8_t *used,
        size_t n, bool clipped)
{
	assert(n >= 1 && n <= SCALES_MAX && (s->n == 0 || s->n == n));
	bool first = s->n == 0;
	int most = SCALES_LEAST;
	if (first && (used || clipped))
		return;
	for (size_t i = 0; i < n; i++) {
		int now = s->scale[i], next = found[i];
		if (next == SCALES_WRAPPED && used)
			next = wrapped(now, used[i]);
		else if (!first && next < now - DOWN)
			next = now - DOWN;
		else if (clipped && next > now + UP_WRAPPED)
			next = now + UP_WRAPPED;
		if (next < size[i] - UNDER_SIZE)
			next = size[i] - UNDER_SIZE;
		s->scale[i] = (int8_t)bounded(next);
		most = s->scale[i] > most ? s->scale[i] : most;
	}
	for (size_t i = 0; i < n; i++)
		if (s->scale[i] < most - UNDER_MOST)
			s->scale[i] = (int8_t)bounded(most - UNDER_MOST);
	s->n = (uint16_t)n;
}
