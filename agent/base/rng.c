/* SPDX-License-Identifier: MIT */
/* xoshiro256** (Blackman & Vigna 2018), seeded through splitmix64. */
#include "agent/base/rng.h"

#include <math.h>

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = (*x += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t rng_mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a;
	x = splitmix(&x) ^ b;
	x = splitmix(&x) ^ c;
	return splitmix(&x);
}

void rng_seed(struct rng *r, uint64_t seed, uint64_t stream)
{
	uint64_t x = rng_mix(seed, stream, 0);
	for (int i = 0; i < 4; i++)
		r->s[i] = splitmix(&x);
}

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return out;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	/* Reject the uneven tail; at most one try in two is lost. */
	uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
	do
		x = rng_u64(r);
	while (x >= limit);
	return x % n;
}

float rng_f32(struct rng *r)
{
	return (float)(rng_u64(r) >> 40) * 0x1p-24f;
}

double rng_f64(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *r)
{
	double u = 1 - rng_f64(r), v = rng_f64(r);
	return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

double rng_gamma(struct rng *r, double shape)
{
	/* Marsaglia & Tsang 2000; below 1 by boosting the shape. */
	if (shape < 1) {
		double u = 1 - rng_f64(r);
		return rng_gamma(r, shape + 1) * pow(u, 1 / shape);
	}
	double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double x = rng_normal(r), v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		double u = 1 - rng_f64(r);
		if (log(u) < 0.5 * x * x + d - d * v + d * log(v))
			return d * v;
	}
}

void rng_shuffle(struct rng *r, uint32_t *v, size_t n)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = (size_t)rng_below(r, i);
		uint32_t t = v[i - 1];
		v[i - 1] = v[j];
		v[j] = t;
	}
}
