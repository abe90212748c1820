/* SPDX-License-Identifier: MIT */
/* One statement becomes one instruction: "@!%p1 fma.rn.f32 %f3, %f1, 0f3F800000, %f2". The first
 * word is an opcode and modifiers, each of which must be known; then come operands: registers,
 * special registers, constants, symbols, {vectors} and [addresses]. While a kernel is read,
 * operands of the three kinds are told apart by sign and size; ptx_link lays them out as ptx.h
 * says. */
#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 16384
#define CONSTANT_FROM 1000000 /* index of the first constant, until linked */
#define SPECIAL_FROM 2000000

struct name {
	char *text;
	enum ptx_name kind;
	int64_t value;
};
struct ptx_names {
	struct name slots[NAMES_MAX];
	int n;
	struct {
		int at;
		char *label;
	} * branches; /* to be linked */
	int n_branches;
};

struct ptx_names *ptx_names_new(void)
{
	struct ptx_names *n = calloc(1, sizeof *n);
	if (!n)
		gpu_die("no memory");
	return n;
}

void ptx_names_free(struct ptx_names *n)
{
	for (int i = 0; i < NAMES_MAX; i++)
		free(n->slots[i].text);
	for (int i = 0; i < n->n_branches; i++)
		free(n->branches[i].label);
	free(n->branches);
	free(n);
}

static unsigned slot_of(const struct ptx_names *n, enum ptx_name kind, const char *text)
{
	uint32_t h = 2166136261u + (uint32_t)kind;
	for (const char *c = text; *c; c++)
		h = (h ^ (unsigned char)*c) * 16777619u;
	unsigned i = h % NAMES_MAX;
	while (n->slots[i].text &&
	        (n->slots[i].kind != kind || strcmp(n->slots[i].text, text) != 0))
		i = (i + 1) % NAMES_MAX;
	return i;
}

int64_t ptx_name_get(const struct ptx_names *n, enum ptx_name kind, const char *name)
{
	const struct name *s = &n->slots[slot_of(n, kind, name)];
	return s->text ? s->value : -1;
}

void ptx_name_set(struct ptx_names *n, enum ptx_name kind, const char *name, int64_t value)
{
	struct name *s = &n->slots[slot_of(n, kind, name)];
	if (!s->text) {
		if (++n->n > NAMES_MAX / 2)
			gpu_die("PTX: more than %d names", NAMES_MAX / 2);
		s->text = strdup(name);
		s->kind = kind;
	}
	s->value = value;
}

int ptx_type_of(const char *text)
{
	static const struct {
		const char *name;
		int type;
	} types[] = {{"b8", T_U8}, {"b16", T_U16}, {"b32", T_U32}, {"b64", T_U64}, {"u8", T_U8},
	        {"u16", T_U16}, {"u32", T_U32}, {"u64", T_U64}, {"s8", T_S8}, {"s16", T_S16},
	        {"s32", T_S32}, {"s64", T_S64}, {"f32", T_F32}, {"f64", T_F64}, {"pred", T_PRED}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strcmp(text, types[i].name) == 0)
			return types[i].type;
	return T_NONE;
}

static int index_of(const char *text, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, list[i]) == 0)
			return i;
	return -1;
}

static int find_op(const char *text)
{
	static const char *const names[] = {
#define X(op, text) #text,
	        PTX_OPS(X)
#undef X
	};
	int i = index_of(text, names, sizeof names / sizeof *names);
	return i < 0 ? OP_NONE : i;
}

/* ---- operands */

static int constant(struct ptx_kernel *k, uint64_t v)
{
	for (int i = 0; i < k->n_constants; i++)
		if (k->constants[i] == v)
			return CONSTANT_FROM + i;
	k->constants = realloc(k->constants, ((size_t)k->n_constants + 1) * sizeof v);
	if (!k->constants)
		gpu_die("no memory");
	k->constants[k->n_constants] = v;
	return CONSTANT_FROM + k->n_constants++;
}

static int reg(struct ptx_context *c, const char *name)
{
	int64_t i = ptx_name_get(c->names, NAME_REGISTER, name);
	if (i < 0) {
		i = c->kernel->n_registers++;
		ptx_name_set(c->names, NAME_REGISTER, name, i);
	}
	return (int)i;
}

static int operand(struct ptx_context *c, const char *text, int type)
{
	static const char *const specials[] = {"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y",
	        "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y",
	        "%nctaid.z", "%laneid", "WARP_SZ"};
	int special = index_of(text, specials, SPECIALS);
	int64_t symbol = ptx_name_get(c->names, NAME_SYMBOL, text);
	size_t n = strlen(text);
	if (special >= 0)
		return SPECIAL_FROM + special;
	if ((n == 10 && text[0] == '0' && (text[1] | 32) == 'f') ||
	        (n == 18 && text[0] == '0' && (text[1] | 32) == 'd'))
		return constant(c->kernel, strtoull(text + 2, NULL, 16));
	if (isdigit((unsigned char)*text) || *text == '-') {
		char *end;
		uint64_t v =
		        *text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
		if (*end && strcmp(end, "U") != 0)
			gpu_die("PTX line %d: not a number: %s", c->line, text);
		return constant(c->kernel, ptx_cut(v, type));
	}
	if (symbol >= 0)
		return constant(c->kernel, (uint64_t)symbol);
	if (*text == '%' && strchr(text, '.'))
		gpu_die("PTX line %d: unknown register %s", c->line, text);
	return reg(c, text);
}

/* Splits at commas outside of brackets; blanks are left out. */
static int split(char *text, char **parts, int max)
{
	int n = 0, depth = 0;
	char *to = text;
	parts[0] = text;
	for (char *c = text; *c; c++) {
		if (isspace((unsigned char)*c))
			continue;
		depth += (*c == '[' || *c == '{') - (*c == ']' || *c == '}');
		if (*c == ',' && depth == 0) {
			*to++ = 0;
			if (++n == max)
				gpu_die("PTX: too many operands");
			parts[n] = to;
		} else {
			*to++ = *c;
		}
	}
	*to = 0;
	return *parts[n] ? n + 1 : n;
}

static int vector(struct ptx_context *c, char *text, int type, int *out)
{
	char *parts[PTX_OPERANDS];
	if (*text != '{') {
		out[0] = operand(c, text, type);
		return 1;
	}
	text[strlen(text) - 1] = 0;
	int n = split(text + 1, parts, PTX_OPERANDS);
	for (int i = 0; i < n; i++)
		out[i] = operand(c, parts[i], type);
	return n;
}

static void address(struct ptx_context *c, struct ptx_ins *n, char *text)
{
	if (*text != '[')
		gpu_die("PTX line %d: not an address: %s", c->line, text);
	text[strlen(text) - 1] = 0;
	text++;
	char *sign = strpbrk(text, "+");
	n->offset = sign ? strtoll(sign + 1, NULL, 0) : 0;
	if (sign)
		*sign = 0;
	int64_t symbol = ptx_name_get(c->names, NAME_SYMBOL, text);
	n->base = -1;
	if (symbol >= 0)
		n->offset += symbol;
	else
		n->base = reg(c, text);
}

/* ---- the opcode's modifiers */

static bool modifier(struct ptx_ins *n, const char *m)
{
	static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu",
	        "ltu", "leu", "gtu", "geu", "num", "nan"};
	static const char *const unsigned_compares[] = {"lo", "ls", "hi", "hs"};
	static const uint8_t same_as[] = {CMP_LT, CMP_LE, CMP_GT, CMP_GE};
	static const char *const combines[] = {"", "and", "or", "xor"};
	static const char *const spaces[] = {"", "global", "shared", "local", "param"};
	static const char *const rounds[] = {"rn", "rz", "rm", "rp"};
	static const char *const integers[] = {"rni", "rzi", "rmi", "rpi"};
	static const char *const shuffles[] = {"down", "up", "bfly", "idx"};
	static const char *const none[] = {"sync", "uni", "to", "nc", "aligned", "approx", "v2",
	        "v4", "full", "relaxed", "gpu", "cta", "volatile", "gl", "shared::cta"};
	int i;
	if (n->op == OP_SETP && (i = index_of(m, compares, 14)) >= 0)
		n->compare = (uint8_t)i;
	else if (n->op == OP_SETP && (i = index_of(m, unsigned_compares, 4)) >= 0)
		n->compare = same_as[i];
	else if (n->op == OP_SETP && (i = index_of(m, combines, 4)) > 0)
		n->combine = (uint8_t)i;
	else if ((n->op == OP_ATOM || n->op == OP_RED) && strcmp(m, "add") == 0)
		n->mode = 1;
	else if (n->op == OP_SHFL && (i = index_of(m, shuffles, 4)) >= 0)
		n->mode = (uint8_t)i;
	else if (n->op == OP_SHF && (strcmp(m, "l") == 0 || strcmp(m, "r") == 0))
		n->mode = *m == 'r';
	else if (n->op == OP_SHF && strcmp(m, "wrap") == 0)
		n->wrap = true;
	else if (n->op == OP_MUL && strcmp(m, "wide") == 0)
		n->op = OP_WIDE;
	else if (n->op == OP_MUL && strcmp(m, "hi") == 0)
		n->op = OP_HIGH;
	else if (n->op == OP_MAD && strcmp(m, "wide") == 0)
		n->op = OP_MAD_WIDE;
	else if (n->op == OP_MAD && strcmp(m, "hi") == 0)
		n->op = OP_MAD_HIGH;
	else if ((n->op == OP_MUL || n->op == OP_MAD) && strcmp(m, "lo") == 0)
		return true;
	else if ((i = index_of(m, spaces, 5)) > 0)
		n->space = (uint8_t)i;
	else if ((i = index_of(m, rounds, 4)) >= 0)
		n->round = (uint8_t)i;
	else if ((i = index_of(m, integers, 4)) >= 0)
		n->round = (uint8_t)i, n->integer = true;
	else if (strcmp(m, "ftz") == 0)
		n->flush = true;
	else if (strcmp(m, "sat") == 0)
		n->saturate = true;
	else
		return index_of(m, none, sizeof none / sizeof *none) >= 0;
	return true;
}

static void opcode(struct ptx_context *c, struct ptx_ins *n, char *word)
{
	char copy[80], *rest = word, *m = strsep(&rest, ".");
	snprintf(copy, sizeof copy, "%s%s%s", m, rest ? "." : "", rest ? rest : "");
	n->op = (uint16_t)find_op(m);
	n->type = n->from_type = T_NONE;
	if (n->op == OP_NONE)
		gpu_die("PTX line %d: unknown opcode %s", c->line, copy);
	while ((m = strsep(&rest, ".")) != NULL) {
		int type = ptx_type_of(m);
		if (type != T_NONE && n->type == T_NONE)
			n->type = (uint8_t)type;
		else if (type != T_NONE)
			n->from_type = (uint8_t)type;
		else if (!modifier(n, m))
			gpu_die("PTX line %d: unknown opcode %s (.%s)", c->line, copy, m);
	}
}

/* Types that make no difference to an operation become one. */
static uint8_t plain_type(int op, uint8_t type)
{
	static const int any_sign[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAD, OP_AND, OP_OR, OP_XOR,
	        OP_NOT, OP_SHL, OP_NEG, OP_MOV, OP_ST, OP_SELP, OP_CVTA, OP_SHFL, OP_PACK,
	        OP_UNPACK};
	bool moves = op == OP_MOV || op == OP_ST || op == OP_SELP || op == OP_LD;
	if (moves && type == T_F32)
		return T_U32;
	if (moves && type == T_F64)
		return T_U64;
	for (size_t i = 0; i < sizeof any_sign / sizeof *any_sign; i++)
		if (op == any_sign[i] && type >= T_S8 && type <= T_S64)
			return (uint8_t)(type - T_S8 + T_U8);
	return type;
}

static void settle(struct ptx_ins *n)
{
	bool floats = n->type == T_F32 || n->type == T_F64;
	bool moves = n->op == OP_MOV || n->op == OP_LD || n->op == OP_ST || n->op == OP_SELP ||
	             n->op == OP_CVT || n->op == OP_SETP || n->op == OP_ATOM || n->op == OP_RED;
	int op = n->op;
	if (op == OP_MAD && floats)
		op = OP_FMA;
	if (op == OP_MOV && n->n_d > 1)
		op = OP_UNPACK;
	if (op == OP_MOV && n->n_s > 1)
		op = OP_PACK;
	if (floats && !moves && (n->round != ROUND_NEAR || n->flush || n->saturate))
		op = OP_ODD;
	if (op == OP_EXIT)
		op = OP_RET;
	if (op == OP_BARRIER)
		op = OP_BAR;
	if (op == OP_RED)
		op = OP_ATOM;
	uint8_t type = plain_type(op, n->type);
	n->code = (uint16_t)PTX_CODE(op, type);
}

/* ---- statements */

static void sources(struct ptx_context *c, struct ptx_ins *n, char **parts, int count, int type)
{
	for (int i = 0; i < count; i++) {
		char *text = parts[i];
		if (*text == '!') {
			n->not_source = true;
			text++;
		}
		/* What mad.wide adds is twice as wide. */
		int own = n->op == OP_MAD_WIDE && i == 2 ? T_U64 : type;
		n->n_s += (uint8_t)vector(c, text, own, n->s + n->n_s);
	}
}

static void operands(struct ptx_context *c, struct ptx_ins *n, char **parts, int count)
{
	char *second;
	switch (n->op) {
	case OP_BRA:
		c->names->branches = realloc(c->names->branches,
		        ((size_t)c->names->n_branches + 1) * sizeof *c->names->branches);
		if (!c->names->branches)
			gpu_die("no memory");
		c->names->branches[c->names->n_branches].at = c->kernel->n_code;
		c->names->branches[c->names->n_branches++].label = strdup(parts[0]);
		break;
	case OP_RET:
	case OP_EXIT:
	case OP_TRAP:
	case OP_MEMBAR:
		break;
	case OP_BAR:
	case OP_BARRIER:
		if (count != 1 || strcmp(parts[0], "0") != 0)
			gpu_die("PTX line %d: only barrier 0 of all threads is known", c->line);
		break;
	case OP_ST:
	case OP_RED:
		address(c, n, parts[0]);
		sources(c, n, parts + 1, count - 1, n->type);
		break;
	case OP_LD:
	case OP_ATOM:
		n->n_d = (uint8_t)vector(c, parts[0], n->type, n->d);
		address(c, n, parts[1]);
		sources(c, n, parts + 2, count - 2, n->type);
		break;
	case OP_SETP:
	case OP_SHFL:
		second = strchr(parts[0], '|');
		if (second)
			*second++ = 0;
		n->d[n->n_d++] = operand(c, parts[0], n->type);
		if (second)
			n->d[n->n_d++] = operand(c, second, T_PRED);
		sources(c, n, parts + 1, count - 1, n->op == OP_SHFL ? T_U32 : n->type);
		break;
	default:
		n->n_d = (uint8_t)vector(c, parts[0], n->type, n->d);
		sources(c, n, parts + 1, count - 1, n->op == OP_CVT ? n->from_type : n->type);
	}
}

void ptx_instruction(struct ptx_context *c, char *text)
{
	struct ptx_kernel *k = c->kernel;
	struct ptx_ins n = {.pred = -1, .target = -1, .base = -1, .line = c->line};
	char *parts[8], *word = text, *rest;
	if (*word == '@') {
		rest = word + strcspn(word, " \t");
		*rest++ = 0;
		n.negate = word[1] == '!';
		n.pred = reg(c, word + 1 + n.negate);
		word = rest + strspn(rest, " \t");
	}
	rest = word + strcspn(word, " \t\n");
	if (*rest)
		*rest++ = 0;
	opcode(c, &n, word);
	operands(c, &n, parts, split(rest, parts, 8));
	settle(&n);
	if (k->n_code == k->max_code) {
		k->max_code = k->max_code ? k->max_code * 2 : 256;
		k->code = realloc(k->code, (size_t)k->max_code * sizeof *k->code);
		if (!k->code)
			gpu_die("no memory");
	}
	k->code[k->n_code++] = n;
}

static int placed(const struct ptx_kernel *k, int i)
{
	if (i >= SPECIAL_FROM)
		return i - SPECIAL_FROM;
	if (i >= CONSTANT_FROM)
		return SPECIALS + i - CONSTANT_FROM;
	return i < 0 ? i : SPECIALS + k->n_constants + i;
}

void ptx_link(struct ptx_context *c)
{
	struct ptx_kernel *k = c->kernel;
	for (int i = 0; i < c->names->n_branches; i++) {
		const char *label = c->names->branches[i].label;
		int64_t to = ptx_name_get(c->names, NAME_LABEL, label);
		if (to < 0)
			gpu_die("PTX: %s: no label %s", k->name, label);
		k->code[c->names->branches[i].at].target = (int)to;
	}
	for (int i = 0; i < k->n_code; i++) {
		struct ptx_ins *n = &k->code[i];
		n->pred = placed(k, n->pred);
		n->base = placed(k, n->base);
		for (int j = 0; j < n->n_d; j++)
			n->d[j] = placed(k, n->d[j]);
		for (int j = 0; j < n->n_s; j++)
			n->s[j] = placed(k, n->s[j]);
	}
}
