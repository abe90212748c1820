/* SPDX-License-Identifier: MIT */
/* PTX as text becomes kernels of decoded instructions, and kernels are run. What is not known is
 * never guessed at: the process ends and names it.
 *
 * A thread's registers are one array of 64-bit words, special registers and constants first, so
 * that every operand is an index into it:
 *
 *     | tid, ntid, ctaid, … | constants | registers of the program |
 *
 * Values narrower than a word are kept zero-extended. */
#ifndef DUNLIN_TESTS_GPU_PTX_H
#define DUNLIN_TESTS_GPU_PTX_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_type {
	T_U8,
	T_U16,
	T_U32,
	T_U64,
	T_S8,
	T_S16,
	T_S32,
	T_S64,
	T_F32,
	T_F64,
	T_PRED,
	T_NONE
};

#define PTX_OPS(X)            \
	X(MOV, mov)           \
	X(LD, ld)             \
	X(ST, st)             \
	X(ADD, add)           \
	X(SUB, sub)           \
	X(MUL, mul)           \
	X(MAD, mad)           \
	X(DIV, div)           \
	X(REM, rem)           \
	X(MIN, min)           \
	X(MAX, max)           \
	X(ABS, abs)           \
	X(NEG, neg)           \
	X(AND, and)           \
	X(OR, or)             \
	X(XOR, xor)           \
	X(NOT, not )          \
	X(SHL, shl)           \
	X(SHR, shr)           \
	X(FMA, fma)           \
	X(SETP, setp)         \
	X(SELP, selp)         \
	X(CVT, cvt)           \
	X(CVTA, cvta)         \
	X(RCP, rcp)           \
	X(SQRT, sqrt)         \
	X(RSQRT, rsqrt)       \
	X(EX2, ex2)           \
	X(LG2, lg2)           \
	X(COPYSIGN, copysign) \
	X(BRA, bra)           \
	X(RET, ret)           \
	X(EXIT, exit)         \
	X(BAR, bar)           \
	X(BARRIER, barrier)   \
	X(SHFL, shfl)         \
	X(ATOM, atom)         \
	X(RED, red)           \
	X(TRAP, trap)         \
	X(LOP3, lop3)         \
	X(SHF, shf)           \
	X(PRMT, prmt)         \
	X(BFE, bfe)           \
	X(BFI, bfi)           \
	X(POPC, popc)         \
	X(CLZ, clz)           \
	X(MEMBAR, membar)

enum ptx_op {
#define X(op, text) OP_##op,
	PTX_OPS(X)
#undef X
	        OP_WIDE, /* mul.wide */
	OP_HIGH,         /* mul.hi */
	OP_MAD_WIDE,
	OP_MAD_HIGH,
	OP_PACK, /* mov.b64 d, {a, b} and back */
	OP_UNPACK,
	OP_ODD, /* float arithmetic with a rounding, a saturation or a flush: by ptx_odd */
	OP_NONE
};

enum ptx_space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };
enum ptx_round { ROUND_NEAR, ROUND_ZERO, ROUND_DOWN, ROUND_UP };
enum ptx_compare {
	CMP_EQ,
	CMP_NE,
	CMP_LT,
	CMP_LE,
	CMP_GT,
	CMP_GE,
	CMP_EQU,
	CMP_NEU,
	CMP_LTU,
	CMP_LEU,
	CMP_GTU,
	CMP_GEU,
	CMP_NUM,
	CMP_NAN
};
enum ptx_combine { COMBINE_NONE, COMBINE_AND, COMBINE_OR, COMBINE_XOR };
enum ptx_shuffle { SHUFFLE_DOWN, SHUFFLE_UP, SHUFFLE_BFLY, SHUFFLE_IDX };
enum ptx_special {
	SPECIAL_TID_X,
	SPECIAL_TID_Y,
	SPECIAL_TID_Z,
	SPECIAL_NTID_X,
	SPECIAL_NTID_Y,
	SPECIAL_NTID_Z,
	SPECIAL_CTAID_X,
	SPECIAL_CTAID_Y,
	SPECIAL_CTAID_Z,
	SPECIAL_NCTAID_X,
	SPECIAL_NCTAID_Y,
	SPECIAL_NCTAID_Z,
	SPECIAL_LANEID,
	SPECIAL_WARPSZ,
	SPECIALS
};

#define PTX_OPERANDS 4
struct ptx_ins {
	uint16_t code; /* op << 4 | type */
	uint16_t op;   /* the one that the text names */
	uint8_t type, from_type, space, compare, combine, round, mode;
	bool negate, flush, saturate, integer, wrap;
	bool not_source; /* setp's third source is negated */
	uint8_t n_d, n_s;
	int pred;   /* register, or -1 */
	int target; /* of a branch */
	int line;
	int base; /* of an address: register, or -1 */
	int64_t offset;
	int d[PTX_OPERANDS], s[PTX_OPERANDS + 1];
};
#define PTX_CODE(op, type) ((op) << 4 | (type))

/* Addresses of what is not global, far below those of the device. */
#define PTX_SHARED 0x01000000u
#define PTX_DYNAMIC 0x02000000u
#define PTX_LOCAL 0x04000000u

struct ptx_part {
	size_t at, bytes;
};

#define PTX_PARAMS_MAX 64
#define PTX_VARIABLES_MAX 32
struct ptx_kernel {
	char *name;
	struct ptx_part params[PTX_PARAMS_MAX], shared[PTX_VARIABLES_MAX];
	int n_params, n_shared;
	size_t param_bytes, shared_bytes, local_bytes;
	unsigned threads_max; /* 0: not told */
	struct ptx_ins *code;
	int n_code, max_code;
	uint64_t *constants;
	int n_constants;
	int n_registers; /* without specials and constants */
	struct ptx_kernel *next;
};

struct ptx_module {
	struct ptx_kernel *kernels;
};

struct ptx_module *ptx_load(const char *text);
const struct ptx_kernel *ptx_find(const struct ptx_module *m, const char *name);

/* Runs a whole grid, blocks in random order. */
void ptx_run(const struct ptx_kernel *k, const unsigned char *arguments, dim3 grid, dim3 block,
        size_t dynamic);

/* ptx_math.c: what is rare enough to be slow */
uint64_t ptx_odd(const struct ptx_ins *n, uint64_t a, uint64_t b, uint64_t c);
uint64_t ptx_convert(const struct ptx_ins *n, uint64_t v);
bool ptx_compare(const struct ptx_ins *n, uint64_t a, uint64_t b);
uint64_t ptx_bits(const struct ptx_ins *n, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
int64_t ptx_signed(uint64_t v, int type);
uint64_t ptx_cut(uint64_t v, int type);
int ptx_size(int type);

/* ptx_decode.c, for ptx_parse.c */
struct ptx_names;
struct ptx_context {
	struct ptx_kernel *kernel;
	struct ptx_names *names;
	int line;
};
void ptx_instruction(struct ptx_context *c, char *text);
struct ptx_names *ptx_names_new(void);
void ptx_names_free(struct ptx_names *n);
/* A symbol's address, a label's place, or a register's number; -1: not known. */
enum ptx_name { NAME_REGISTER, NAME_SYMBOL, NAME_LABEL };
int64_t ptx_name_get(const struct ptx_names *n, enum ptx_name kind, const char *name);
void ptx_name_set(struct ptx_names *n, enum ptx_name kind, const char *name, int64_t value);
int ptx_type_of(const char *text);
/* Branches to labels and indices of operands, when all is known. */
void ptx_link(struct ptx_context *c);

#endif
