/* SPDX-License-Identifier: MIT */
/* Operations that are rare: conversions, comparisons, bit fiddling, and float arithmetic with
 * another rounding, saturation or flushing of tiny numbers. What PTX calls approximate is computed
 * exactly: a test's tolerance has to cover the device's error anyway. */
#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

static const int sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 4};

int ptx_size(int type)
{
	return sizes[type];
}

static bool is_float(int type)
{
	return type == T_F32 || type == T_F64;
}

static bool is_signed(int type)
{
	return type >= T_S8 && type <= T_S64;
}

int64_t ptx_signed(uint64_t v, int type)
{
	int unused = 64 - 8 * sizes[type];
	return (int64_t)(v << unused) >> unused;
}

uint64_t ptx_cut(uint64_t v, int type)
{
	int unused = 64 - 8 * sizes[type];
	return type == T_PRED ? v & 1 : v << unused >> unused;
}

static double as_double(uint64_t v, int type)
{
	if (type == T_F32) {
		uint32_t low = (uint32_t)v;
		float f;
		memcpy(&f, &low, sizeof f);
		return f;
	}
	double d;
	memcpy(&d, &v, sizeof d);
	return d;
}

static uint64_t from_float(float f)
{
	uint32_t v;
	memcpy(&v, &f, sizeof v);
	return v;
}

static uint64_t from_double(double d)
{
	uint64_t v;
	memcpy(&v, &d, sizeof v);
	return v;
}

static float flushed(float x, bool flush)
{
	return flush && fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* The operands are volatile so that no compiler computes under another rounding than asked for. */
static float odd_float(const struct ptx_ins *n, float a, float b, float c)
{
	volatile float x = a, y = b, z = c, r;
	switch (n->op) {
	case OP_ADD:
		r = x + y;
		break;
	case OP_SUB:
		r = x - y;
		break;
	case OP_MUL:
		r = x * y;
		break;
	case OP_DIV:
		r = x / y;
		break;
	case OP_FMA:
	case OP_MAD:
		r = fmaf(x, y, z);
		break;
	case OP_RCP:
		r = 1 / x;
		break;
	case OP_SQRT:
		r = sqrtf(x);
		break;
	case OP_RSQRT:
		r = (float)(1 / sqrt((double)x));
		break;
	case OP_EX2:
		r = exp2f(x);
		break;
	case OP_LG2:
		r = log2f(x);
		break;
	case OP_MIN:
		r = fminf(x, y);
		break;
	case OP_MAX:
		r = fmaxf(x, y);
		break;
	case OP_NEG:
		r = -x;
		break;
	case OP_ABS:
		r = fabsf(x);
		break;
	default:
		gpu_die("PTX line %d: odd arithmetic that is not known", n->line);
	}
	return r;
}

static double odd_double(const struct ptx_ins *n, double a, double b, double c)
{
	volatile double x = a, y = b, z = c, r;
	switch (n->op) {
	case OP_ADD:
		r = x + y;
		break;
	case OP_SUB:
		r = x - y;
		break;
	case OP_MUL:
		r = x * y;
		break;
	case OP_FMA:
		r = fma(x, y, z);
		break;
	case OP_RCP:
		r = 1 / x;
		if (n->flush) /* rcp.approx.ftz.f64 works on the upper half alone */
			r = as_double(from_double(r) & 0xffffffff00000000u, T_F64);
		break;
	default:
		gpu_die("PTX line %d: odd arithmetic that is not known", n->line);
	}
	return r;
}

uint64_t ptx_odd(const struct ptx_ins *n, uint64_t a, uint64_t b, uint64_t c)
{
	static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
	uint64_t out;
	fesetround(modes[n->round]);
	if (n->type == T_F32) {
		float r = odd_float(n, flushed((float)as_double(a, T_F32), n->flush),
		        flushed((float)as_double(b, T_F32), n->flush),
		        flushed((float)as_double(c, T_F32), n->flush));
		if (n->saturate)
			r = r > 0 ? (r < 1 ? r : 1) : 0;
		out = from_float(flushed(r, n->flush));
	} else {
		out = from_double(odd_double(
		        n, as_double(a, T_F64), as_double(b, T_F64), as_double(c, T_F64)));
	}
	fesetround(FE_TONEAREST);
	return out;
}

static double to_integer(double x, int round)
{
	return round == ROUND_ZERO   ? trunc(x)
	       : round == ROUND_DOWN ? floor(x)
	       : round == ROUND_UP   ? ceil(x)
	                             : nearbyint(x);
}

static uint64_t float_to_int(const struct ptx_ins *n, double x)
{
	int bits = 8 * sizes[n->type];
	bool sign = is_signed(n->type);
	double low = sign ? -ldexp(1, bits - 1) : 0, high = ldexp(1, bits - sign);
	x = to_integer(x, n->round);
	if (isnan(x))
		return 0;
	if (x >= high)
		return ptx_cut(sign ? ((uint64_t)1 << (bits - 1)) - 1 : UINT64_MAX, n->type);
	if (x < low)
		x = low;
	return ptx_cut(sign ? (uint64_t)(int64_t)x : (uint64_t)x, n->type);
}

uint64_t ptx_convert(const struct ptx_ins *n, uint64_t v)
{
	int to = n->type, from = n->from_type;
	if (!is_float(to) && !is_float(from))
		return ptx_cut(
		        is_signed(from) ? (uint64_t)ptx_signed(v, from) : ptx_cut(v, from), to);
	if (!is_float(to))
		return float_to_int(n, as_double(v, from));
	if (n->round != ROUND_NEAR && !n->integer)
		gpu_die("PTX line %d: a conversion with another rounding", n->line);
	if (!is_float(from)) {
		if (is_signed(from)) {
			int64_t i = ptx_signed(v, from);
			return to == T_F32 ? from_float((float)i) : from_double((double)i);
		}
		uint64_t u = ptx_cut(v, from);
		return to == T_F32 ? from_float((float)u) : from_double((double)u);
	}
	double x = as_double(v, from);
	if (n->integer)
		x = to_integer(x, n->round);
	if (n->saturate)
		x = x > 0 ? (x < 1 ? x : 1) : 0;
	return to == T_F32 ? from_float(flushed((float)x, n->flush)) : from_double(x);
}

static bool compare_float(int how, double x, double y)
{
	bool unordered = isnan(x) || isnan(y);
	switch (how) {
	case CMP_EQ:
		return x == y;
	case CMP_NE:
		return !unordered && x != y;
	case CMP_LT:
		return x < y;
	case CMP_LE:
		return x <= y;
	case CMP_GT:
		return x > y;
	case CMP_GE:
		return x >= y;
	case CMP_EQU:
		return unordered || x == y;
	case CMP_NEU:
		return x != y;
	case CMP_LTU:
		return unordered || x < y;
	case CMP_LEU:
		return unordered || x <= y;
	case CMP_GTU:
		return unordered || x > y;
	case CMP_GEU:
		return unordered || x >= y;
	case CMP_NUM:
		return !unordered;
	default:
		return unordered;
	}
}

bool ptx_compare(const struct ptx_ins *n, uint64_t a, uint64_t b)
{
	if (is_float(n->type))
		return compare_float(n->compare, as_double(a, n->type), as_double(b, n->type));
	int64_t x = ptx_signed(a, n->type), y = ptx_signed(b, n->type);
	a = ptx_cut(a, n->type), b = ptx_cut(b, n->type);
	bool less = is_signed(n->type) ? x < y : a < b;
	switch (n->compare) {
	case CMP_EQ:
		return a == b;
	case CMP_NE:
		return a != b;
	case CMP_LT:
		return less;
	case CMP_LE:
		return less || a == b;
	case CMP_GT:
		return !less && a != b;
	case CMP_GE:
		return !less;
	default:
		gpu_die("PTX line %d: a comparison of integers that is not known", n->line);
	}
}

static uint32_t permute(uint64_t pair, uint32_t selector)
{
	uint32_t out = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t which = selector >> (4 * i) & 15;
		uint32_t byte = (uint32_t)(pair >> (8 * (which & 7))) & 255;
		if (which & 8)
			byte = byte & 128 ? 255 : 0;
		out |= byte << (8 * i);
	}
	return out;
}

uint64_t ptx_bits(const struct ptx_ins *n, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t out = 0;
	uint32_t by;
	switch (n->op) {
	case OP_LOP3:
		for (int i = 0; i < 32; i++) {
			uint64_t which = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
			out |= (d >> which & 1) << i;
		}
		return out;
	case OP_SHF:
		by = n->wrap ? (uint32_t)c & 31 : c > 32 ? 32 : (uint32_t)c;
		out = b << 32 | a;
		return (uint32_t)(n->mode ? out >> by : out << by >> 32);
	case OP_PRMT:
		return permute(b << 32 | a, (uint32_t)c);
	case OP_BFE:
		b &= 255, c &= 255;
		if (is_signed(n->type) || ptx_size(n->type) != 4)
			break;
		return c == 0 || b > 31 ? 0 : a >> b & (c > 31 ? UINT32_MAX : (1u << c) - 1);
	case OP_BFI: { /* d bits of a into b, from bit c on */
		uint64_t field = d > 31 ? UINT32_MAX : ((uint64_t)1 << d) - 1;
		if (ptx_size(n->type) != 4)
			break;
		return c > 31 ? b : (uint32_t)((b & ~(field << c)) | (a & field) << c);
	}
	case OP_POPC:
		return (uint64_t)__builtin_popcountll(ptx_cut(a, n->type));
	case OP_CLZ:
		a = ptx_cut(a, n->type);
		by = 8 * (uint32_t)ptx_size(n->type);
		return a ? (uint64_t)__builtin_clzll(a) - (64 - by) : by;
	default:
		break;
	}
	gpu_die("PTX line %d: bits that are not known", n->line);
}
