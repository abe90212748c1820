/* SPDX-License-Identifier: MIT */
/* A CountSketch (Charikar, Chen, Farach-Colton 2002) of a parameter vector.
 *
 *     coordinate i ──► block i / 256, hashed: a turn, 256 signs        bucket[b] += ± x[i]
 *
 * The hash takes the block's number alone (agent/base/sketch_hash.h), so every agent has the same
 * one without agreeing on anything, and a vector may come in pieces. A block lands turned but whole
 * in the buckets, which is why its sum is a plain loop that the compiler vectorises and a GPU does
 * without atomics; and (by test) it is as good for this as a hash of each coordinate, also for
 * vectors that are smooth or constant. The additions of one call are in double and in order, so
 * that they round alike everywhere.
 *
 * Nothing here can fail but sketch_unpack. A vector that is not finite gives a sketch that is not,
 * and that one is no plausible model. */
#include "gossip/policy/sketch.h"

#include <math.h>
#include <string.h>

#define LANES SKETCH_HASH_LANES
#define SIGN (1ull << 63)

/* Buckets before they are folded: a turned block needs no wrapping round. */
struct shares {
	double sum[2 * SKETCH_BUCKETS];
};

static inline double turned(float x, uint64_t sign)
{
	double d = (double)x;
	uint64_t bits;
	memcpy(&bits, &d, sizeof bits);
	bits ^= sign & SIGN;
	memcpy(&d, &bits, sizeof d);
	return d;
}

/* x is a whole block. */
static void add_block(struct shares *s, const float *x, uint64_t block)
{
	double *sum = s->sum + sketch_hash_turn(block);
	uint64_t signs[LANES];
	for (unsigned l = 0; l < LANES; l++)
		signs[l] = sketch_hash_signs(block, l);
	for (unsigned j = 0; j < SKETCH_BUCKETS; j += LANES)
		for (unsigned l = 0; l < LANES; l++)
			sum[j + l] += turned(x[j + l], signs[l] << (63 - j / LANES));
}

/* A part of a block: zeros add nothing. */
static void add_part(struct shares *s, const float *x, size_t at, size_t n)
{
	float whole[SKETCH_BUCKETS] = {0};
	memcpy(whole + at % SKETCH_BUCKETS, x, n * sizeof *x);
	add_block(s, whole, at / SKETCH_BUCKETS);
}

void sketch_add(struct sketch *s, const float *x, size_t at, size_t n)
{
	struct shares shares = {{0}};
	size_t i = 0;
	while (i < n) {
		size_t room = SKETCH_BUCKETS - (at + i) % SKETCH_BUCKETS;
		size_t k = n - i < room ? n - i : room;
		if (k == SKETCH_BUCKETS)
			add_block(&shares, x + i, (at + i) / SKETCH_BUCKETS);
		else
			add_part(&shares, x + i, at + i, k);
		i += k;
	}
	for (int b = 0; b < SKETCH_BUCKETS; b++)
		s->bucket[b] += (float)(shares.sum[b] + shares.sum[b + SKETCH_BUCKETS]);
}

double sketch_distance(const struct sketch *a, const struct sketch *b)
{
	double sum = 0;
	for (int i = 0; i < SKETCH_BUCKETS; i++) {
		double d = (double)a->bucket[i] - (double)b->bucket[i];
		sum += d * d;
	}
	return sqrt(sum);
}

double sketch_norm(const struct sketch *s)
{
	static const struct sketch zero;
	return sketch_distance(s, &zero);
}

bool sketch_nearer(const struct sketch *s, const struct sketch *to, const struct sketch *than)
{
	return sketch_distance(s, to) < sketch_distance(s, than);
}

void sketch_pack(const struct sketch *s, uint8_t out[SKETCH_BUCKETS * 4])
{
	for (int i = 0; i < SKETCH_BUCKETS; i++) {
		uint32_t bits;
		memcpy(&bits, &s->bucket[i], 4);
		for (int k = 0; k < 4; k++)
			out[4 * i + k] = (uint8_t)(bits >> 8 * k);
	}
}

bool sketch_unpack(struct sketch *s, const uint8_t *bytes, size_t len)
{
	if (len != SKETCH_BUCKETS * 4)
		return false;
	bool finite = true;
	for (int i = 0; i < SKETCH_BUCKETS; i++) {
		uint32_t bits = 0;
		for (int k = 0; k < 4; k++)
			bits |= (uint32_t)bytes[4 * i + k] << 8 * k;
		memcpy(&s->bucket[i], &bits, 4);
		finite &= (bool)isfinite(s->bucket[i]);
	}
	return finite;
}

double sketch_consensus(const struct sketch *s, int n)
{
	if (n < 2)
		return 0;
	double sum = 0;
	for (int b = 0; b < SKETCH_BUCKETS; b++) {
		double mean = 0;
		for (int i = 0; i < n; i++)
			mean += (double)s[i].bucket[b];
		mean /= n;
		for (int i = 0; i < n; i++) {
			double d = (double)s[i].bucket[b] - mean;
			sum += d * d;
		}
	}
	return sqrt(sum / n);
}

/* The k-th smallest of n finite numbers; sorts them. */
static double rank(double *v, int n, int k)
{
	for (int i = 1; i < n; i++) {
		double x = v[i];
		int j = i;
		for (; j > 0 && v[j - 1] > x; j--)
			v[j] = v[j - 1];
		v[j] = x;
	}
	return v[k];
}

/* The peers' distance from their centre, like Ξ, but from medians: one liar's sketch can move Ξ
 * anywhere. Two random peers are √2·Ξ apart (for large n). */
static double spread(const struct sketch *peers, int n)
{
	double typical[SKETCH_PEERS_MAX], distance[SKETCH_PEERS_MAX];
	if (n < 2)
		return 0;
	for (int i = 0; i < n; i++) {
		int m = 0;
		for (int k = 0; k < n; k++)
			if (k != i)
				distance[m++] = sketch_distance(&peers[i], &peers[k]);
		typical[i] = rank(distance, m, (m - 1) / 2);
	}
	return rank(typical, n, (n - 1) / 2) / sqrt(2);
}

/* With an even number of peers, use the larger of the two middle distances and the smaller of the
 * two middle spreads and norms: in doubt, decide against the donor. */
bool sketch_plausible(const struct sketch *given, const struct sketch *peers, int n)
{
	double distance[SKETCH_PEERS_MAX], norm[SKETCH_PEERS_MAX];
	if (!isfinite(sketch_norm(given)))
		return false;
	if (n <= 0)
		return true;
	if (n > SKETCH_PEERS_MAX)
		n = SKETCH_PEERS_MAX;
	for (int i = 0; i < n; i++) {
		distance[i] = sketch_distance(given, &peers[i]);
		norm[i] = sketch_norm(&peers[i]);
	}
	double median = rank(distance, n, n / 2);
	return median <= 4 * spread(peers, n) || median <= rank(norm, n, (n - 1) / 2) / 2;
}
