/* SPDX-License-Identifier: MIT */
/* Runs the instructions of one thread. The common ones are cases of one switch over operation and
 * type; what is rare is found more slowly. */
#include "tests/gpu/ptx_thread.h"

#include <math.h>
#include <string.h>

static void enter_warp(struct ptx_thread *t, const struct ptx_ins *n)
{
	t->offers = t->r[n->s[0]];
	t->mask = (uint32_t)t->r[n->s[3]];
	t->state = THREAD_IN_WARP;
	if (!(t->mask >> t->number % PTX_WARP & 1) && ptx_tell())
		gpu_fault("shuffle", "%s: PTX line %d: a lane is not in its own mask",
		        ptx_block.kernel->name, n->line);
}

static void load(struct ptx_thread *t, const struct ptx_ins *n)
{
	size_t bytes = (size_t)ptx_size(n->type);
	for (int i = 0; i < n->n_d; i++) {
		uint64_t v = 0;
		memcpy(&v, ptx_at(t, n, (size_t)i, bytes, ACCESS_READ), bytes);
		/* A narrow signed value fills its register, which is of 16 bits or more. */
		if (n->type == T_S8 || n->type == T_S16)
			v = (uint32_t)ptx_signed(v, n->type);
		t->r[n->d[i]] = v;
	}
}

static void store(struct ptx_thread *t, const struct ptx_ins *n)
{
	size_t bytes = (size_t)ptx_size(n->type);
	for (int i = 0; i < n->n_s; i++)
		memcpy(ptx_at(t, n, (size_t)i, bytes, ACCESS_WRITE), &t->r[n->s[i]], bytes);
}

static float f32(uint64_t v)
{
	union {
		uint32_t u;
		float f;
	} x = {.u = (uint32_t)v};
	return x.f;
}

static uint64_t b32(float f)
{
	union {
		float f;
		uint32_t u;
	} x = {.f = f};
	return x.u;
}

static double f64(uint64_t v)
{
	union {
		uint64_t u;
		double f;
	} x = {.u = v};
	return x.f;
}

static uint64_t b64(double f)
{
	union {
		double f;
		uint64_t u;
	} x = {.f = f};
	return x.u;
}

static void atomic(struct ptx_thread *t, const struct ptx_ins *n)
{
	size_t bytes = (size_t)ptx_size(n->type);
	uint64_t old = 0, by = t->r[n->s[0]], sum;
	unsigned char *p = ptx_at(t, n, 0, bytes, ACCESS_ATOMIC);
	if (n->mode != 1)
		gpu_die("PTX line %d: an atomic that is not known", n->line);
	memcpy(&old, p, bytes);
	sum = n->type == T_F32   ? b32(f32(old) + f32(by))
	      : n->type == T_F64 ? b64(f64(old) + f64(by))
	                         : old + by;
	memcpy(p, &sum, bytes);
	if (n->n_d)
		t->r[n->d[0]] = old;
}

static void set_pred(struct ptx_thread *t, const struct ptx_ins *n)
{
	bool p = ptx_compare(n, t->r[n->s[0]], t->r[n->s[1]]), q = !p;
	if (n->combine) {
		bool c = (t->r[n->s[2]] != 0) != n->not_source;
		p = n->combine == COMBINE_AND ? p && c : n->combine == COMBINE_OR ? p || c : p != c;
		q = n->combine == COMBINE_AND ? q && c : n->combine == COMBINE_OR ? q || c : q != c;
	}
	t->r[n->d[0]] = p;
	if (n->n_d > 1)
		t->r[n->d[1]] = q;
}

static void pack(struct ptx_thread *t, const struct ptx_ins *n, bool into_one)
{
	int bits = 8 * ptx_size(n->type) / (into_one ? n->n_s : n->n_d);
	uint64_t low = ((uint64_t)1 << bits) - 1, v = into_one ? 0 : t->r[n->s[0]];
	if (!into_one) {
		for (int i = 0; i < n->n_d; i++)
			t->r[n->d[i]] = v >> (i * bits) & low;
		return;
	}
	for (int i = 0; i < n->n_s; i++)
		v |= (t->r[n->s[i]] & low) << (i * bits);
	t->r[n->d[0]] = v;
}

/* Integer arithmetic whose sign matters, of any width. */
static uint64_t whole(const struct ptx_ins *n, uint64_t a, uint64_t b, uint64_t c)
{
	bool sign = n->type >= T_S8 && n->type <= T_S64;
	int bits = 8 * ptx_size(n->type);
	int64_t x = ptx_signed(a, n->type), y = ptx_signed(b, n->type);
	a = ptx_cut(a, n->type), b = ptx_cut(b, n->type);
	bool less = sign ? x < y : a < b;
	switch (n->code >> 4) {
	case OP_DIV:
		if (b == 0)
			return UINT64_MAX;
		return sign ? (y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y)) : a / b;
	case OP_REM:
		if (b == 0)
			return a;
		return sign ? (y == -1 ? 0 : (uint64_t)(x % y)) : a % b;
	case OP_MIN:
		return less ? a : b;
	case OP_MAX:
		return less ? b : a;
	case OP_ABS:
		return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
	case OP_SHR:
		b &= UINT32_MAX;
		if (b >= (uint64_t)bits)
			return sign && x < 0 ? UINT64_MAX : 0;
		return sign ? (uint64_t)(x >> b) : a >> b;
	case OP_HIGH:
	case OP_MAD_HIGH:
		if (sign)
			return (uint64_t)((__int128)x * y >> bits) + c;
		return (uint64_t)((unsigned __int128)a * b >> bits) + c;
	default:
		gpu_die("PTX line %d: %d is not known for integers", n->line, n->code >> 4);
	}
}

/* What the fast cases of step do not have. */
static void rare(struct ptx_thread *t, const struct ptx_ins *n)
{
	uint64_t s[4] = {0};
	uint64_t *r = t->r;
	for (int i = 0; i < n->n_s && i < 4; i++)
		s[i] = r[n->s[i]];
	switch (n->code >> 4) {
	case OP_ODD:
		r[n->d[0]] = ptx_odd(n, s[0], s[1], s[2]);
		break;
	case OP_RCP:
	case OP_RSQRT:
	case OP_EX2:
	case OP_LG2:
		r[n->d[0]] = ptx_odd(n, s[0], 0, 0);
		break;
	case OP_PACK:
	case OP_UNPACK:
		pack(t, n, n->code >> 4 == OP_PACK);
		break;
	case OP_LOP3:
	case OP_SHF:
	case OP_PRMT:
	case OP_BFE:
	case OP_BFI:
	case OP_POPC:
	case OP_CLZ:
		r[n->d[0]] = ptx_bits(n, s[0], s[1], s[2], s[3]);
		break;
	case OP_MEMBAR:
		break;
	case OP_TRAP:
		if (ptx_tell())
			gpu_fault("trap", "%s: block %u thread %u", ptx_block.kernel->name,
			        ptx_block.who.block, t->number);
		break;
	default:
		if (n->type == T_F32 || n->type == T_F64 || n->type == T_PRED)
			gpu_die("PTX line %d: operation %d is not known for type %d", n->line,
			        n->code >> 4, n->type);
		r[n->d[0]] = ptx_cut(whole(n, s[0], s[1], s[2]), n->type);
	}
}

#define D r[n->d[0]]
#define A r[n->s[0]]
#define B r[n->s[1]]
#define C r[n->s[2]]
#define IS(op, type, e)                   \
	case PTX_CODE(OP_##op, T_##type): \
		D = (e);                  \
		break
#define INT(op, e)                  \
	IS(op, U16, (uint16_t)(e)); \
	IS(op, U32, (uint32_t)(e)); \
	IS(op, U64, e)
#define REAL(op, e32, e64)     \
	IS(op, F32, b32(e32)); \
	IS(op, F64, b64(e64))

/* Runs a thread until it waits or ends. */
void ptx_step(struct ptx_thread *t)
{
	uint64_t *const r = t->r;
	for (;; t->pc++) {
		const struct ptx_ins *n = &ptx_block.kernel->code[t->pc];
		if (t->pc >= ptx_block.kernel->n_code) {
			t->state = THREAD_DONE;
			return;
		}
		ptx_block.n_instructions++;
		if (n->pred >= 0 && (r[n->pred] != 0) == n->negate)
			continue;
		switch (n->code) {
			INT(ADD, A + B);
			INT(SUB, A - B);
			INT(MUL, A * B);
			INT(MAD, A * B + C);
			INT(AND, A & B);
			INT(OR, A | B);
			INT(XOR, A ^ B);
			INT(NOT, ~A);
			INT(NEG, 0 - A);
			INT(MOV, A);
			INT(CVTA, A);
			INT(SELP, C ? A : B);
			REAL(ADD, f32(A) + f32(B), f64(A) + f64(B));
			REAL(SUB, f32(A) - f32(B), f64(A) - f64(B));
			REAL(MUL, f32(A) * f32(B), f64(A) * f64(B));
			REAL(DIV, f32(A) / f32(B), f64(A) / f64(B));
			REAL(FMA, fmaf(f32(A), f32(B), f32(C)), fma(f64(A), f64(B), f64(C)));
			REAL(MIN, fminf(f32(A), f32(B)), fmin(f64(A), f64(B)));
			REAL(MAX, fmaxf(f32(A), f32(B)), fmax(f64(A), f64(B)));
			REAL(SQRT, sqrtf(f32(A)), sqrt(f64(A)));
			/* the sign of b on a, in that order in PTX: copysign d, sign, value */
			REAL(COPYSIGN, copysignf(f32(B), f32(A)), copysign(f64(B), f64(A)));
			IS(NEG, F32, A ^ 0x80000000u);
			IS(NEG, F64, A ^ 0x8000000000000000u);
			IS(ABS, F32, A & 0x7fffffffu);
			IS(ABS, F64, A & 0x7fffffffffffffffu);
			IS(AND, PRED, A & B);
			IS(OR, PRED, A | B);
			IS(XOR, PRED, A ^ B);
			IS(NOT, PRED, !A);
			IS(MOV, PRED, A);
			IS(SHL, U16, B > 15 ? 0 : (uint16_t)(A << B));
			IS(SHL, U32, B > 31 ? 0 : (uint32_t)(A << B));
			IS(SHL, U64, (uint32_t)B > 63 ? 0 : A << (uint32_t)B);
			IS(WIDE, U16, (uint32_t)(A * B));
			IS(WIDE, S16, (uint32_t)((int32_t)(int16_t)A * (int16_t)B));
			IS(WIDE, U32, (uint64_t)(uint32_t)A * (uint32_t)B);
			IS(WIDE, S32, (uint64_t)((int64_t)(int32_t)A * (int32_t)B));
			IS(MAD_WIDE, U32, (uint64_t)(uint32_t)A * (uint32_t)B + C);
			IS(MAD_WIDE, S32, (uint64_t)((int64_t)(int32_t)A * (int32_t)B) + C);
		case PTX_CODE(OP_BRA, T_NONE):
			t->pc = n->target - 1;
			break;
		case PTX_CODE(OP_RET, T_NONE):
			t->state = THREAD_DONE;
			return;
		case PTX_CODE(OP_BAR, T_NONE):
			t->state = THREAD_AT_BARRIER;
			return;
		case PTX_CODE(OP_SHFL, T_U32):
			enter_warp(t, n);
			return;
		default:
			switch (n->code >> 4) {
			case OP_LD:
				load(t, n);
				break;
			case OP_ST:
				store(t, n);
				break;
			case OP_ATOM:
				atomic(t, n);
				break;
			case OP_SETP:
				set_pred(t, n);
				break;
			case OP_CVT:
				D = ptx_convert(n, A);
				break;
			default:
				rare(t, n);
			}
		}
	}
}
