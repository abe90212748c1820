/* SPDX-License-Identifier: MIT */
/* How far a peer may pull: clipped gossip (He, Karimireddy, Jaggi 2022) for pairs.
 *
 * c = min(1, τ / distance), τ = 2.5 × the root mean square of the smaller half of the last 32
 * distances, for all parameters together and for each group of layers by itself. A distance over
 * τ enters the history as ¾·τ: bad partners, up to half of all, cannot widen their own door.
 * Until 8 distances are known, τ is what the agent itself has moved since it joined (all begin
 * from the same weights); a joiner inherits its donor's, as far as its own steps bear it out, since
 * a donor may say anything. Check for finite numbers first, τ/∞ · ∞
 * is none: a distance that is not finite gets the factor 0, and nothing of its exchange is
 * entered. */
#ifndef DUNLIN_GOSSIP_POLICY_CLIP_H
#define DUNLIN_GOSSIP_POLICY_CLIP_H

#include "gossip/exchange/exchange.h"

#define CLIP_HISTORY 32
#define CLIP_WARM 8

struct clip_series {
	float distance[CLIP_HISTORY];
	uint32_t n;   /* ever entered */
	double usual; /* the root mean square of the smaller half; 0: none */
};

struct clip {
	int n_groups;
	struct clip_series all, group[EXCHANGE_GROUPS_MAX];
	float inherited[EXCHANGE_GROUPS_MAX + 1]; /* τ of a donor, overall then by group; 0: none */
	double most;  /* of an inherited τ; or four times the own path, if that is more */
	double moved; /* own path, when something was last entered */
};

void clip_init(struct clip *c, int n_groups);

/* τ now: overall (group −1) or of a group. moved: own path since joining (for a group: the same).
 * INFINITY: nothing is known to go by (no history, and moved is 0: e.g. a merge round of agents
 * that only began); the caller decides. */
float clip_radius(const struct clip *c, int group, double moved);

/* The factors for a transfer with these squared distances by group; their sum is the overall one.
 * factor[g] = min(overall, group's). Nothing is entered yet. Returns the smallest. */
float clip_factors(const struct clip *c, const double *distance2, double moved, float *factor);

/* The exchange came about: its distances enter the history, clipped ones as ¾·τ. */
void clip_enter(struct clip *c, const double *distance2, double moved);

/* For a gift, and from one: n_groups + 1 values of τ, finite and >= 0 (others are taken as 0). */
void clip_export(const struct clip *c, double moved, float *radius);
void clip_inherit(struct clip *c, const float *radius, int n);

/* The longest τ that may be inherited: before the first own step a part of the parameters' length,
 * beyond which join.c inherits nothing; then CLIP_OWN_STEPS own steps. 0, as at the beginning:
 * none. */
#define CLIP_OWN_STEPS 64
void clip_cap(struct clip *c, double most);

#endif
