/* SPDX-License-Identifier: MIT */
/* How one sample is augmented when it is converted to floats. The GPU's compiler reads this header
 * too, and moves are copied to the GPU byte by byte: the assertions below check the layout. */
#ifndef DUNLIN_MODEL_DATA_MOVE_H
#define DUNLIN_MODEL_DATA_MOVE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Mirrored first, then resized about its centre, then shifted. */
struct augment_move {
	bool flip;
	int64_t dx, dy; /* pixels to the right and down */
	double zoom;    /* 1: as it is */
};
static_assert(sizeof(struct augment_move) == 32 && offsetof(struct augment_move, flip) == 0 &&
                      sizeof(bool) == 1 && offsetof(struct augment_move, dx) == 8 &&
                      offsetof(struct augment_move, dy) == 16 &&
                      offsetof(struct augment_move, zoom) == 24,
        "every compiler lays a move out alike");

#endif
