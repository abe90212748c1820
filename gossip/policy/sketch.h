/* SPDX-License-Identifier: MIT */
/* A CountSketch of the parameters (Charikar, Chen, Farach-Colton 2002): each coordinate is added,
 * with a hashed sign, into one of 256 buckets. Linear, so the distance of two sketches estimates
 * that of two vectors, with a relative error of about √(2/256) = 9 % in the square. The same
 * seed at every agent, the same bits on every machine. On the wire: 256 little-endian fp32. */
#ifndef DUNLIN_GOSSIP_POLICY_SKETCH_H
#define DUNLIN_GOSSIP_POLICY_SKETCH_H

#include "agent/base/sketch_hash.h"
#include "gossip/membership/gossip.h"

#include <stddef.h>

#define SKETCH_PEERS_MAX 64 /* that a joiner's gift is held against */
_Static_assert(SKETCH_BUCKETS * sizeof(float) <= GOSSIP_SKETCH_BYTES, "it rides on push-pull");

struct sketch {
	float bucket[SKETCH_BUCKETS];
};

/* Adds x[0 .. n) as the coordinates at, at + 1, …; begin with zeros. Any split into calls gives the
 * same up to rounding; buckets are summed in double inside one call. */
void sketch_add(struct sketch *s, const float *x, size_t at, size_t n);

double sketch_distance(const struct sketch *a, const struct sketch *b); /* estimates ‖a − b‖ */
double sketch_norm(const struct sketch *s);
bool sketch_nearer(const struct sketch *s, const struct sketch *to, const struct sketch *than);

/* From and to bytes. False: not a sketch, or not finite. */
void sketch_pack(const struct sketch *s, uint8_t out[SKETCH_BUCKETS * 4]);
bool sketch_unpack(struct sketch *s, const uint8_t *bytes, size_t len);

/* The flock's consensus distance Ξ from n sketches: Ξ² = mean of ‖s − their mean‖². 0: n < 2. */
double sketch_consensus(const struct sketch *s, int n);

/* A joiner's last check: is the state that it was given one of the flock's models? It is compared
 * with the sketches of some peers (the first SKETCH_PEERS_MAX), all finite. True if the median of
 * its distances to them is at most 4 × their spread (like Ξ, but from medians, which a liar cannot
 * widen), or at most half of their median norm (sketches are old, and young flocks move fast). n =
 * 0: true. A sketch that is not finite: false. */
bool sketch_plausible(const struct sketch *given, const struct sketch *peers, int n);

#endif
