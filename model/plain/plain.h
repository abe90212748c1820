/* SPDX-License-Identifier: MIT */
/* Inside the plain backend: an op as its definition. */
#ifndef DUNLIN_MODEL_PLAIN_PLAIN_H
#define DUNLIN_MODEL_PLAIN_PLAIN_H

#include "model/device/device.h"

/* forward: y is zeros before. backward: dx[0] is zeros before (dx[1] is to be written), parameters'
 * gradients are added to, and dy may be used up. */
struct plain_op {
	void (*forward)(const struct program *p, struct op *op);
	void (*backward)(const struct program *p, struct op *op);
};

#define X(KIND, name) extern const struct plain_op plain_op_##name;
LAYER_LIST(X)
#undef X

#endif
