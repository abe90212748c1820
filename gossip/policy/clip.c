/* SPDX-License-Identifier: MIT */
/* Clipped gossip (He, Karimireddy, Jaggi 2022) for pairs. A peer may pull us no further than peers
 * usually do. The usual distance is the root mean square of the smaller half of the last 32; two
 * and a half times that is the radius τ.
 *
 *     sorted:   o o o o … o o o o │ x x x x … x x x x     of 32 the smaller 16 count
 *
 * Whatever is in the larger half, so up to half of the partners, has no say in it. That matters
 * most at the beginning, when nothing is clipped by a history yet: with a mean over nearly all, one
 * bad partner of three that is there from the first step makes its own distance the usual one.
 *
 * The happy path: clip_factors before the exchange, and clip_enter with the same distances once it
 * came about. Distances over τ enter as a part of τ, so a bad partner hardly widens its door, while
 * a flock that really drifts apart is followed: when all are clipped, τ grows by a half with each
 * turn of the history.
 *
 * But how far apart partners come depends on how often they meet, and the first steps of a run
 * exchange most often. Who goes by the history alone takes the distances of rarer exchanges for an
 * attack, averages less, and so is farther away the next time, without end. So what the agent has
 * moved by itself since the last exchange is always allowed. A bad partner gains little by it: the
 * path of training is a few times the usual distance, as the radius is.
 *
 * A history of zeros (a group of layers that has never moved) says nothing of what is usual, and
 * would never let anything in again: it counts as no history. What is not finite should not come
 * here; it gets the factor 0 and is not entered. */
#include "gossip/policy/clip.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define RADIUS 2.5 /* times what is usual */

/* What a clipped distance enters as, of τ: more than what is usual, so that a flock which drifts
 * apart is followed, and less than τ, so that it takes its time. */
#define CLIPPED 0.75

#define INHERITED 4 /* times the own path since joining, at most */

_Static_assert(CLIP_WARM <= CLIP_HISTORY, "the history can become warm");

void clip_init(struct clip *c, int n_groups)
{
	assert(n_groups >= 0 && n_groups <= EXCHANGE_GROUPS_MAX);
	memset(c, 0, sizeof *c);
	c->n_groups = n_groups;
}

static const struct clip_series *series_of(const struct clip *c, int group)
{
	assert(group >= -1 && group < c->n_groups);
	return group < 0 ? &c->all : &c->group[group];
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

static bool usable(double distance2)
{
	return isfinite(distance2) && distance2 >= 0;
}

/* The root mean square of the smaller half. */
static double usual(const struct clip_series *s)
{
	float sorted[CLIP_HISTORY];
	int n = s->n < CLIP_HISTORY ? (int)s->n : CLIP_HISTORY, half = n - n / 2;
	for (int i = 0; i < n; i++) {
		int k = i;
		for (; k > 0 && sorted[k - 1] > s->distance[i]; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = s->distance[i];
	}
	double sum = 0;
	for (int i = 0; i < half; i++)
		sum += (double)sorted[i] * (double)sorted[i];
	return sqrt(sum / half);
}

/* The own path since something was last entered; after a join it begins anew. Of a group it is the
 * share that the group usually has of the distance. */
static double since(const struct clip *c, const struct clip_series *s, double moved)
{
	double path = moved >= c->moved ? moved - c->moved : moved, all = c->all.usual;
	return all > 0 ? path * least(s->usual / all, 1) : path;
}

/* A donor's τ; 0: none. */
static double inherited_of(const struct clip *c, int group, double moved)
{
	double most = c->most > INHERITED * moved ? c->most : INHERITED * moved;
	return least((double)c->inherited[group + 1], most);
}

float clip_radius(const struct clip *c, int group, double moved)
{
	const struct clip_series *s = series_of(c, group);
	double inherited = inherited_of(c, group, moved);
	double radius = s->n >= CLIP_WARM ? RADIUS * s->usual : 0;
	if (radius <= 0)
		radius = inherited > 0 ? inherited : moved;
	else if (radius < since(c, s, moved))
		radius = since(c, s, moved);
	if (!(radius > 0))
		return INFINITY;
	return radius < (double)FLT_MAX ? (float)radius : FLT_MAX;
}

static double factor_of(const struct clip *c, int group, double distance2, double moved)
{
	if (!usable(distance2))
		return 0;
	double distance = sqrt(distance2), radius = (double)clip_radius(c, group, moved);
	return distance <= radius ? 1 : radius / distance;
}

static double sum_of(const struct clip *c, const double *distance2)
{
	double sum = 0;
	for (int g = 0; g < c->n_groups; g++)
		sum += distance2[g];
	return sum;
}

float clip_factors(const struct clip *c, const double *distance2, double moved, float *factor)
{
	double overall = factor_of(c, -1, sum_of(c, distance2), moved), min = overall;
	for (int g = 0; g < c->n_groups; g++) {
		double f = least(overall, factor_of(c, g, distance2[g], moved));
		factor[g] = (float)f;
		min = least(min, f);
	}
	return (float)min;
}

static void enter(struct clip_series *s, double distance2, float radius)
{
	double distance = least(sqrt(distance2), (double)FLT_MAX);
	if (distance > (double)radius)
		distance = CLIPPED * (double)radius;
	s->distance[s->n % CLIP_HISTORY] = (float)distance;
	s->n++;
	s->usual = usual(s);
}

void clip_enter(struct clip *c, const double *distance2, double moved)
{
	double sum = sum_of(c, distance2);
	for (int g = 0; g < c->n_groups; g++)
		if (!usable(distance2[g]))
			return;
	if (!usable(sum))
		return;
	enter(&c->all, sum, clip_radius(c, -1, moved));
	for (int g = 0; g < c->n_groups; g++)
		enter(&c->group[g], distance2[g], clip_radius(c, g, moved));
	c->moved = moved;
}

void clip_export(const struct clip *c, double moved, float *radius)
{
	for (int g = -1; g < c->n_groups; g++) {
		float r = clip_radius(c, g, moved);
		radius[g + 1] = isfinite(r) ? r : 0;
	}
}

void clip_inherit(struct clip *c, const float *radius, int n)
{
	for (int i = 0; i <= c->n_groups; i++) {
		bool known = i < n && isfinite(radius[i]) && radius[i] > 0;
		c->inherited[i] = known ? radius[i] : 0;
	}
}

void clip_cap(struct clip *c, double most)
{
	c->most = isfinite(most) && most > 0 ? most : 0;
}
