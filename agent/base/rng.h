/* SPDX-License-Identifier: MIT */
/* Seeded pseudo-random numbers, the same on every machine. Never for keys. */
#ifndef DUNLIN_AGENT_BASE_RNG_H
#define DUNLIN_AGENT_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t s[4];
};

/* Different (seed, stream) pairs give unrelated sequences. */
void rng_seed(struct rng *r, uint64_t seed, uint64_t stream);

uint64_t rng_u64(struct rng *r);

/* Uniform in [0, n), without bias; n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);

/* Uniform in [0, 1): 24 and 53 random bits. */
float rng_f32(struct rng *r);
double rng_f64(struct rng *r);

/* Standard normal, and Gamma(shape, 1) for shape > 0. These use libm, so the last bit may differ
 * between C libraries: fine for data splits, not for initial weights. */
double rng_normal(struct rng *r);
double rng_gamma(struct rng *r, double shape);

/* Fisher-Yates. */
void rng_shuffle(struct rng *r, uint32_t *v, size_t n);

/* A stateless mix of up to three words, for values that must not depend on call order. */
uint64_t rng_mix(uint64_t a, uint64_t b, uint64_t c);

#endif
