/* SPDX-License-Identifier: MIT */
/* 16-bit floats as files have them. Every value of theirs is a float. */
#ifndef DUNLIN_MODEL_IO_HALF_H
#define DUNLIN_MODEL_IO_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half__bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* IEEE's binary16. */
static inline float half_to_float(uint16_t h)
{
	const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, m = h & 1023u;
	if (exponent == 0)
		return (sign ? -0x1p-24f : 0x1p-24f) * (float)m;
	return half__bits(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | m << 13);
}

static inline float bf16_to_float(uint16_t h)
{
	return half__bits((uint32_t)h << 16);
}

#endif
