/* SPDX-License-Identifier: MIT */
/* Converts one sample from bytes to normalised floats and augments it. Internal to the loader; the
 * GPU's version is tested against it. */
#ifndef DUNLIN_MODEL_DATA_AUGMENT_H
#define DUNLIN_MODEL_DATA_AUGMENT_H

#include "model/data/data.h"
#include "model/data/move.h"

/* Checks the settings' ranges, and that a shift leaves a part of an image of that shape. */
int augment_check(const struct augment *a, const struct shape *s, struct err *e) MUST_CHECK;

/* Draws a move; takes from r only what the settings ask for. */
void augment_draw(const struct augment *a, struct rng *r, struct augment_move *m);

/* src (H, W, C) bytes to dst (H, W, C) floats. table gives the value of each byte; what comes from
 * outside the image counts as byte 0. */
void augment_apply(const struct augment_move *m, const struct shape *s, const float table[256],
        const uint8_t *src, float *dst);

/* The same for samples that are floats already; outside has the value of each channel outside the
 * image. */
void augment_apply_floats(const struct augment_move *m, const struct shape *s,
        const float *outside, const float *src, float *dst);

#endif
