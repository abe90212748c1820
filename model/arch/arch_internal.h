/* SPDX-License-Identifier: MIT */
/* For the files that define kinds of layers: what resolve does with a node. */
#ifndef DUNLIN_MODEL_ARCH_ARCH_INTERNAL_H
#define DUNLIN_MODEL_ARCH_ARCH_INTERNAL_H

#include "model/arch/arch.h"

#define FIELDS(f) .fields = (f), .n_fields = (int)(sizeof(f) / sizeof *(f))
#define INT_FIELD(key, field, lo, hi, d)                                               \
	{                                                                              \
		key, FIELD_INT, offsetof(struct layer, field), lo, hi, d, false, false \
	}
#define INT_REQUIRED(key, field, lo, hi)                                              \
	{                                                                             \
		key, FIELD_INT, offsetof(struct layer, field), lo, hi, 0, true, false \
	}
#define BOOL_FIELD(key, field, d)                                                     \
	{                                                                             \
		key, FIELD_BOOL, offsetof(struct layer, field), 0, 1, d, false, false \
	}

#define REAL_FIELD(key, field, lo, hi, d)                                               \
	{                                                                               \
		key, FIELD_REAL, offsetof(struct layer, field), lo, hi, d, false, false \
	}
#define STD_FIELD                                                                      \
	{                                                                              \
		"std", FIELD_REAL, offsetof(struct layer, std), 0, 1e3, 0, false, true \
	}

/* Shape of input k of a node. */
const struct shape *arch__input(const struct arch *a, const struct arch_node *n, int k);

/* Every dimension in range and the product countable. */
bool arch__shape_sane(const struct shape *s);

/* One more parameter of node i, "NAME.suffix"; at most LAYER_PARAMS_MAX. */
void arch__param(struct arch *a, int i, const char *suffix, struct shape s, enum param_group group,
        enum param_init init, int64_t fan_in);

/* "weight" of shape w and, if the layer has one, "bias" of w.dim[0]: initially normal and 0 if the
 * layer has a std, else uniform. */
void arch__weights(struct arch *a, int i, struct shape w, int64_t fan_in);

/* Whether a node before i has that view too. */
bool arch__tied(const struct arch *a, int i, int view);

/* Names the layer and the shapes that led to it; returns code. */
int arch__complain(const struct arch *a, int i, struct err *e, int code, const char *what);

#endif
