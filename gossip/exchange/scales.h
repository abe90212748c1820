/* SPDX-License-Identifier: MIT */
/* How far apart partners' parameters may be, run by run, in the wire formats that send parameters
 * modulo a lattice (mod8, mod4). Each agent keeps a scale for each run of blocks: 1.25 times the
 * largest difference that the last exchange found, up at once, down by at most 29 % an exchange.
 * The two agents of a pair tell each other theirs in OFFER and ACCEPT, and both use the larger:
 *
 *     OFFER {scales a} ──► B: scales_agree(b, a) ┐
 *     A: scales_agree(a, b) ◄── ACCEPT {scales b}┴ the same numbers: the steps of this exchange
 *
 * A scale is in half octaves: s stands for M = 2^(s/2). What a peer says of its own makes the steps
 * of an exchange coarser by at most four octaves. A run that was further apart ("wrapped") was left
 * out; its scale is four times as large the next time.
 *
 * Pure: no clock, no allocation, no parameters. */
#ifndef DUNLIN_GOSSIP_EXCHANGE_SCALES_H
#define DUNLIN_GOSSIP_EXCHANGE_SCALES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCALES_BLOCK 256   /* parameters */
#define SCALES_MAX 2048    /* runs: they travel in OFFER and ACCEPT */
#define SCALES_ABOVE 8     /* half octaves that the peer's may be above the lower of two */
#define SCALES_LEAST -120  /* 2^-60 */
#define SCALES_MOST 120    /* 2^60 */
#define SCALES_WRAPPED 127 /* found: further apart than the lattice can tell */

struct scales {
	uint16_t n; /* runs; 0: unknown, no exchange has filled them yet */
	int8_t scale[SCALES_MAX];
};

/* A run is 2^shift blocks: one block as far as SCALES_MAX goes. */
int scales_shift(size_t count);
size_t scales_count(size_t count);

/* The smallest s with v ≤ 2^(s/2), within the bounds above; v ≥ 0. */
int8_t scales_of(float v);

/* What both use: the larger of the two, but at most SCALES_ABOVE over the smaller. The same at
 * both. Whatever theirs are, the result is within the bounds. May be done in place. */
void scales_agree(int8_t *out, const int8_t *ours, const int8_t *theirs, size_t n);

/* After an exchange whose parameters were found good. n: runs of the model. found: of each run
 * scales_of(1.25·max |D|), or SCALES_WRAPPED; size: scales_of(max |x|), below 2^-20 of which no
 * scale goes; used: what scales_agree gave, NULL for an exchange in another format. clipped: the
 * parameters were further away than is usual, and a scale grows four times as large at most.
 * Unknown scales begin with an exchange in another format that was not clipped. */
void scales_learn(struct scales *s, const int8_t *found, const int8_t *size, const int8_t *used,
        size_t n, bool clipped);

#endif
