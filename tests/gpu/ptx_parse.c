/* SPDX-License-Identifier: MIT */
/* PTX as text: module directives, kernels with their parameters, variables, labels and statements.
 * Comments are blanked first, so that line numbers stay. Statements end with a semicolon; braces
 * that open one belong to a scope, and scopes are flat here since nvcc numbers its registers. */
#include "tests/gpu/ptx.h"
#include "tests/gpu/standin.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_GAP 64 /* between variables, so that running over one shows */
#define MODULE_VARIABLES_MAX 64

struct variable {
	char name[160];
	size_t bytes, align;
};

struct parser {
	char *at;
	int line;
	struct ptx_module *module;
	struct variable shared[MODULE_VARIABLES_MAX];
	int n_shared;
};

static void blank_comments(char *s)
{
	for (; *s; s++) {
		if (s[0] == '/' && s[1] == '/')
			while (*s && *s != '\n')
				*s++ = ' ';
		else if (s[0] == '/' && s[1] == '*')
			for (; *s && !(s[0] == '*' && s[1] == '/'); s++)
				*s = *s == '\n' ? '\n' : ' ';
		if (s[0] == '*' && s[1] == '/')
			s[0] = s[1] = ' ';
		if (!*s)
			return;
	}
}

static void skip_space(struct parser *p)
{
	for (; isspace((unsigned char)*p->at); p->at++)
		p->line += *p->at == '\n';
}

/* The text up to one of these characters, which is passed over; ended by a 0 in its place. */
static char *take(struct parser *p, const char *until, char *end)
{
	char *from = p->at;
	p->at += strcspn(p->at, until);
	if (!*p->at)
		gpu_die("PTX line %d: it ends early", p->line);
	*end = *p->at;
	for (char *c = from; c < p->at; c++)
		p->line += *c == '\n';
	*p->at++ = 0;
	return from;
}

/* ".shared .align 8 .b8 name[2048]" */
static struct variable declaration(const char *text, int line)
{
	struct variable v = {.align = 1};
	size_t element = 0;
	char copy[512], *rest = copy, *word, *count = NULL;
	snprintf(copy, sizeof copy, "%s", text);
	while ((word = strsep(&rest, " \t\n")) != NULL) {
		int type = *word == '.' ? ptx_type_of(word + 1) : T_NONE;
		if (strcmp(word, ".align") == 0 && rest) {
			v.align = strtoul(strsep(&rest, " \t\n"), NULL, 10);
		} else if (type != T_NONE) {
			element = (size_t)ptx_size(type);
		} else if (*word && *word != '.') {
			count = strchr(word, '[');
			if (count)
				*count++ = 0;
			snprintf(v.name, sizeof v.name, "%s", word);
		} else if (*word && strcmp(word, ".extern") != 0 && strcmp(word, ".shared") != 0 &&
		           strcmp(word, ".local") != 0 && strcmp(word, ".param") != 0 &&
		           strcmp(word, ".ptr") != 0 && strcmp(word, ".global") != 0) {
			gpu_die("PTX line %d: unknown directive %s", line, word);
		}
	}
	if (!element || !v.name[0])
		gpu_die("PTX line %d: not understood: %s", line, text);
	v.bytes = element * (count ? strtoul(count, NULL, 10) : 1);
	if (v.align < element)
		v.align = element;
	return v;
}

static size_t aligned(size_t at, size_t to)
{
	return (at + to - 1) / to * to;
}

static void parameter(struct ptx_context *c, const char *text)
{
	struct ptx_kernel *k = c->kernel;
	struct variable v = declaration(text, c->line);
	if (k->n_params == PTX_PARAMS_MAX)
		gpu_die("PTX line %d: more than %d parameters", c->line, PTX_PARAMS_MAX);
	size_t at = aligned(k->param_bytes, v.align);
	k->params[k->n_params++] = (struct ptx_part){at, v.bytes};
	k->param_bytes = at + v.bytes;
	ptx_name_set(c->names, NAME_SYMBOL, v.name, (int64_t)at);
}

static void shared_variable(struct ptx_context *c, const struct variable *v)
{
	struct ptx_kernel *k = c->kernel;
	if (!v->bytes) {
		ptx_name_set(c->names, NAME_SYMBOL, v->name, PTX_DYNAMIC);
		return;
	}
	if (k->n_shared == PTX_VARIABLES_MAX)
		gpu_die("PTX line %d: more than %d variables", c->line, PTX_VARIABLES_MAX);
	size_t at = aligned(k->shared_bytes, v->align);
	k->shared[k->n_shared++] = (struct ptx_part){at, v->bytes};
	k->shared_bytes = at + v->bytes + SHARED_GAP;
	ptx_name_set(c->names, NAME_SYMBOL, v->name, (int64_t)(PTX_SHARED + at));
}

static void local_variable(struct ptx_context *c, const struct variable *v)
{
	size_t at = aligned(c->kernel->local_bytes, v->align);
	c->kernel->local_bytes = at + v->bytes;
	ptx_name_set(c->names, NAME_SYMBOL, v->name, (int64_t)(PTX_LOCAL + at));
}

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Variables of the module take room in the kernels that name them. */
static void module_variables(struct parser *p, struct ptx_context *c, const char *text)
{
	for (int i = 0; i < p->n_shared; i++)
		if (strstr(text, p->shared[i].name) &&
		        ptx_name_get(c->names, NAME_SYMBOL, p->shared[i].name) < 0)
			shared_variable(c, &p->shared[i]);
}

static void statement(struct parser *p, struct ptx_context *c, char *text)
{
	if (starts(text, ".reg") || starts(text, ".pragma") || starts(text, ".loc"))
		return;
	if (starts(text, ".shared") || starts(text, ".local")) {
		struct variable v = declaration(text, c->line);
		if (text[1] == 's')
			shared_variable(c, &v);
		else
			local_variable(c, &v);
	} else if (*text == '.') {
		gpu_die("PTX line %d: unknown directive: %s", c->line, text);
	} else {
		module_variables(p, c, text);
		ptx_instruction(c, text);
	}
}

static void body(struct parser *p, struct ptx_context *c)
{
	for (int depth = 1; depth > 0;) {
		skip_space(p);
		c->line = p->line;
		if (*p->at == '{' || *p->at == '}') {
			depth += *p->at++ == '{' ? 1 : -1;
			continue;
		}
		size_t n = strcspn(p->at, " \t\n:;");
		if (p->at[n] == ':') {
			p->at[n] = 0;
			ptx_name_set(c->names, NAME_LABEL, p->at, c->kernel->n_code);
			p->at += n + 1;
			continue;
		}
		char end;
		statement(p, c, take(p, ";", &end));
	}
}

/* ".visible .entry name(.param …, .param …) .maxntid 256" */
static void entry(struct parser *p, char *head)
{
	struct ptx_kernel *k = calloc(1, sizeof *k);
	struct ptx_context c = {.kernel = k, .names = ptx_names_new(), .line = p->line};
	if (!k)
		gpu_die("no memory");
	char *name = strstr(head, ".entry") + 6, *open = strchr(head, '(');
	char *after = open ? strrchr(head, ')') : NULL, *directive;
	name += strspn(name, " \t\n");
	k->name = strndup(name, strcspn(name, "( \t\n"));
	if (open && after) {
		*after++ = 0;
		char *rest = open + 1, *one;
		while ((one = strsep(&rest, ",")) != NULL)
			if (one[strspn(one, " \t\n")])
				parameter(&c, one);
		directive = strstr(after, ".maxntid");
		if (directive)
			k->threads_max = (unsigned)strtoul(directive + 8, NULL, 10);
	}
	body(p, &c);
	ptx_link(&c);
	ptx_names_free(c.names);
	k->next = p->module->kernels;
	p->module->kernels = k;
}

static void module(struct parser *p)
{
	for (skip_space(p); *p->at; skip_space(p)) {
		char end, *text;
		if (starts(p->at, ".version") || starts(p->at, ".target") ||
		        starts(p->at, ".address_size")) {
			take(p, "\n", &end);
			p->line++;
			continue;
		}
		text = take(p, ";{", &end);
		if (end == '{' && strstr(text, ".entry")) {
			entry(p, text);
		} else if (end == ';' && strstr(text, ".shared")) {
			if (p->n_shared == MODULE_VARIABLES_MAX)
				gpu_die("PTX line %d: too many variables", p->line);
			p->shared[p->n_shared++] = declaration(text, p->line);
		} else {
			gpu_die("PTX line %d: not understood: %.200s", p->line, text);
		}
	}
}

struct ptx_module *ptx_load(const char *text)
{
	struct parser p = {.line = 1, .module = calloc(1, sizeof *p.module)};
	char *copy = strdup(text);
	if (!copy || !p.module)
		gpu_die("no memory");
	blank_comments(copy);
	p.at = copy;
	module(&p);
	free(copy);
	return p.module;
}

const struct ptx_kernel *ptx_find(const struct ptx_module *m, const char *name)
{
	for (const struct ptx_kernel *k = m ? m->kernels : NULL; k; k = k->next)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}
