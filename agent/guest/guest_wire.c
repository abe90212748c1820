/* SPDX-License-Identifier: MIT */
/* A cursor walks over the packet; once it has run over the end everything reads as zero and the
 * packet is malformed, so that a layout is a list of fields and one question at its end. */
#include "agent/guest/guest_wire.h"

#include <stdlib.h>
#include <string.h>

#define TENSORS_AT_ONCE 256 /* that memory grows by */

struct cursor {
	const uint8_t *at;
	size_t left;
	bool over;
};

static void take(struct cursor *c, void *to, size_t n)
{
	if (n > c->left) {
		c->over = true;
		memset(to, 0, n);
		return;
	}
	memcpy(to, c->at, n);
	c->at += n;
	c->left -= n;
}

static uint64_t take_int(struct cursor *c, size_t n)
{
	uint8_t b[8];
	uint64_t x = 0;
	take(c, b, n);
	for (size_t i = n; i-- > 0;)
		x = x << 8 | b[i];
	return x;
}

static double take_real(struct cursor *c)
{
	const uint64_t bits = take_int(c, 8);
	double x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* A text behind its length, NUL-terminated in out; false: longer than room, or more than one line
 * of ASCII. */
static bool take_text(struct cursor *c, size_t length_bytes, char *out, size_t room)
{
	const size_t n = (size_t)take_int(c, length_bytes);
	out[0] = '\0';
	if (n >= room || n > c->left)
		return false;
	take(c, out, n);
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (out[i] < ' ' || out[i] > '~')
			return false;
	return true;
}

static bool ended(const struct cursor *c)
{
	return !c->over && c->left == 0;
}

/* ---- HELLO */

static int read_head(struct guest_hello *h, struct cursor *c, struct err *e)
{
	const uint64_t magic = take_int(c, 4), version = take_int(c, 2);
	if (c->over || magic != GUEST_MAGIC)
		return err_set(e, ERR_FORMAT, "no HELLO of a guest");
	if (version != GUEST_VERSION)
		return err_set(e, ERR_UNSUPPORTED,
		        "dunlin_flock speaks version %u of the protocol, this agent %d: install "
		        "the "
		        "two of one version",
		        (unsigned)version, GUEST_VERSION);
	h->optimizer = (uint8_t)take_int(c, 1);
	h->vectors = (uint8_t)take_int(c, 1);
	h->evaluates = take_int(c, 1) != 0;
	h->n_tensors = (uint32_t)take_int(c, 4);
	h->total = take_int(c, 8);
	h->step_samples = take_int(c, 8);
	h->step = take_int(c, 8);
	h->samples = take_int(c, 8);
	h->others = take_int(c, 8);
	h->lr = take_real(c);
	h->momentum = take_real(c);
	if (!take_text(c, 1, h->run, sizeof h->run) ||
	        !take_text(c, 1, h->optimizer_name, sizeof h->optimizer_name) || !ended(c))
		return err_set(e, ERR_FORMAT, "HELLO: malformed");
	if (h->n_tensors < 1 || h->n_tensors > LIMIT_TENSORS)
		return err_set(e, ERR_LIMIT, "%u tensors: an agent takes 1 to %d", h->n_tensors,
		        LIMIT_TENSORS);
	if (h->total < 1 || h->total > INT64_MAX / 4 || h->step_samples < 1 ||
	        h->step_samples > LIMIT_BATCH)
		return err_set(e, ERR_INVALID,
		        "budget or samples_per_step: out of range (a step has 1 to %d samples)",
		        LIMIT_BATCH);
	if (h->vectors < 2 || h->vectors > 3 || h->samples > INT64_MAX / 4 ||
	        h->others > INT64_MAX / 4 || h->step > h->samples ||
	        !(h->lr >= 0 && h->lr <= 1e12) || !(h->momentum >= 0 && h->momentum < 1))
		return err_set(e, ERR_INVALID, "HELLO: a number is out of range");
	return 0;
}

static int make_room(struct guest_hello *h, struct err *e)
{
	const uint32_t room = h->room + TENSORS_AT_ONCE;
	struct guest_tensor *p;
	if (h->n < h->room)
		return 0;
	p = realloc(h->tensor, room * sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory for a model's tensors");
	h->tensor = p;
	h->room = room;
	return 0;
}

static int read_tensor(struct guest_hello *h, struct cursor *c, struct err *e)
{
	struct guest_tensor t = {.offset = h->n_total, .count = 1};
	const struct guest_tensor *last = h->n > 0 ? &h->tensor[h->n - 1] : NULL;
	char name[LIMIT_TENSOR_NAME];
	t.kind = (enum guest_kind)take_int(c, 1);
	t.rank = (int)take_int(c, 1);
	if (c->over || t.kind > GUEST_STATISTIC || t.rank > LIMIT_TENSOR_RANK)
		return err_set(
		        e, ERR_LIMIT, "a tensor has at most %d dimensions", LIMIT_TENSOR_RANK);
	for (int i = 0; i < t.rank; i++) {
		const uint64_t d = take_int(c, 8);
		if (d < 1 || d > LIMIT_PARAMS / t.count)
			return err_set(e, ERR_LIMIT, "a tensor is empty or too large");
		t.dim[i] = (int64_t)d;
		t.count *= (size_t)d;
	}
	if (!take_text(c, 2, name, sizeof name) || c->over || !name[0])
		return err_set(e, ERR_FORMAT, "a tensor's name has 1 to %d ASCII characters",
		        LIMIT_TENSOR_NAME - 1);
	if (t.count > LIMIT_PARAMS - h->n_total)
		return err_set(e, ERR_LIMIT, "more than %llu parameters", LIMIT_PARAMS);
	if ((t.kind == GUEST_WEIGHT && t.rank < 2) || (t.kind == GUEST_PLAIN && t.rank > 1) ||
	        (last && t.kind < last->kind))
		return err_set(e, ERR_FORMAT, "the tensors are not in the canonical order");
	int rc = make_room(h, e);
	if (rc)
		return rc;
	t.name = strdup(name);
	if (!t.name)
		return err_set(e, ERR_NOMEM, "no memory for a model's tensors");
	h->tensor[h->n++] = t;
	h->n_total += t.count;
	h->n_train += t.kind < GUEST_STATISTIC ? t.count : 0;
	h->n_decay += t.kind == GUEST_WEIGHT ? t.count : 0;
	return 0;
}

static int read_tensors(struct guest_hello *h, struct cursor *c, struct err *e)
{
	const uint32_t n = (uint32_t)take_int(c, 2);
	if (n < 1 || n > h->n_tensors - h->n)
		return err_set(e, ERR_FORMAT, "other tensors than HELLO has announced");
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = read_tensor(h, c, e);
	if (rc == 0 && !ended(c))
		rc = err_set(e, ERR_FORMAT, "TENSORS: malformed");
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct guest_hello *h, struct err *e)
{
	const char **name = malloc(h->n * sizeof *name);
	int rc = 0;
	if (!name)
		return err_set(e, ERR_NOMEM, "no memory for a model's tensors");
	for (uint32_t i = 0; i < h->n; i++)
		name[i] = h->tensor[i].name;
	qsort(name, h->n, sizeof *name, by_name);
	for (uint32_t i = 1; i < h->n && rc == 0; i++)
		if (strcmp(name[i - 1], name[i]) == 0)
			rc = err_set(e, ERR_FORMAT, "two tensors are named %.100s", name[i]);
	free(name);
	return rc;
}

int guest_hello_read(
        struct guest_hello *h, const uint8_t *bytes, size_t len, bool *whole, struct err *e)
{
	struct cursor c = {.at = bytes, .left = len};
	const uint64_t kind = take_int(&c, 1);
	int rc;
	*whole = false;
	if (len > GUEST_MESSAGE_MAX)
		return err_set(e, ERR_LIMIT, "a message of more than %d bytes", GUEST_MESSAGE_MAX);
	if (h->n_tensors == 0) {
		if (kind != GUEST_HELLO)
			return err_set(e, ERR_FORMAT, "no HELLO of a guest");
		rc = read_head(h, &c, e);
		if (rc)
			h->n_tensors = 0;
		return rc;
	}
	if (kind != GUEST_TENSORS)
		return err_set(e, ERR_FORMAT, "HELLO is not whole");
	rc = read_tensors(h, &c, e);
	if (rc || h->n < h->n_tensors)
		return rc;
	if (h->n_train == 0)
		return err_set(e, ERR_INVALID, "the model has no parameter to train");
	*whole = true;
	return check_names(h, e);
}

void guest_hello_close(struct guest_hello *h)
{
	for (uint32_t i = 0; i < h->n; i++)
		free(h->tensor[i].name);
	free(h->tensor);
	*h = (struct guest_hello){0};
}

int guest_hello_print(const struct guest_hello *h, struct buf *out)
{
	int rc = 0;
	for (uint32_t i = 0; i < h->n && rc == 0; i++) {
		const struct guest_tensor *t = &h->tensor[i];
		rc = buf_printf(
		        out, "%s%s f32 [", t->name, t->kind == GUEST_STATISTIC ? " statistic" : "");
		for (int k = 0; k < t->rank && rc == 0; k++)
			rc = buf_printf(out, "%s%lld", k ? "," : "", (long long)t->dim[k]);
		if (rc == 0)
			rc = buf_printf(out, "]\n");
	}
	return rc;
}

/* ---- what a guest says */

static bool sane(double x)
{
	return x >= 0 && x <= 1e300;
}

static int read_step(struct guest_step *s, struct cursor *c, struct err *e)
{
	s->step = take_int(c, 8);
	s->samples = take_int(c, 8);
	s->loss = take_real(c);
	s->lr = take_real(c);
	s->grad_norm = take_real(c);
	s->moved = take_real(c);
	s->seconds = take_real(c);
	s->has_loss = take_int(c, 1) != 0;
	if (!ended(c))
		return err_set(e, ERR_FORMAT, "STEP: malformed");
	if (s->samples > INT64_MAX / 4 || s->step > s->samples || !sane(s->lr) ||
	        !sane(s->grad_norm) || !sane(s->moved) || !sane(s->seconds))
		return err_set(e, ERR_INVALID, "STEP: a number is out of range");
	return 0;
}

static int read_answer(struct guest_answer *a, struct cursor *c, struct err *e)
{
	a->serial = (uint32_t)take_int(c, 4);
	a->failed = take_int(c, 1) != 0;
	a->number = take_int(c, 8);
	a->loss = take_real(c);
	a->own = take_real(c);
	a->correct = (int64_t)take_int(c, 8);
	a->count = (int64_t)take_int(c, 8);
	if (!take_text(c, 1, a->words, sizeof a->words) || !ended(c))
		return err_set(e, ERR_FORMAT, "ANSWER: malformed");
	if (a->number > INT64_MAX || a->count < 0 || a->correct < 0 || a->correct > a->count)
		return err_set(e, ERR_INVALID, "ANSWER: a number is out of range");
	return 0;
}

int guest_read(struct guest_message *m, const uint8_t *bytes, size_t len, struct err *e)
{
	struct cursor c = {.at = bytes, .left = len};
	*m = (struct guest_message){.kind = (enum guest_said)take_int(&c, 1)};
	switch (m->kind) {
	case GUEST_STEP:
		return read_step(&m->step, &c, e);
	case GUEST_ANSWER:
		return read_answer(&m->answer, &c, e);
	case GUEST_BYE:
		if (take_text(&c, 1, m->words, sizeof m->words) && ended(&c))
			return 0;
		return err_set(e, ERR_FORMAT, "BYE: malformed");
	default:
		return err_set(e, ERR_FORMAT, "a message of an unknown kind");
	}
}

/* ---- what it is told */

static size_t put(uint8_t *out, size_t at, uint64_t x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[at + i] = (uint8_t)(x >> 8 * i);
	return at + n;
}

size_t guest_tell(uint8_t out[GUEST_TOLD_MAX], enum guest_told kind)
{
	return put(out, 0, kind, 1);
}

size_t guest_tell_welcome(
        uint8_t out[GUEST_TOLD_MAX], uint64_t bytes, uint64_t at_out, uint64_t at_in)
{
	size_t n = put(out, 0, GUEST_WELCOME, 1);
	n = put(out, n, bytes, 8);
	n = put(out, n, at_out, 8);
	return put(out, n, at_in, 8);
}

size_t guest_tell_words(
        uint8_t out[GUEST_TOLD_MAX], enum guest_told kind, bool flag, const char *words)
{
	size_t len = strlen(words);
	len = len < GUEST_WORDS_MAX ? len : GUEST_WORDS_MAX;
	size_t n = put(out, 0, kind, 1);
	n = put(out, n, flag, 1);
	n = put(out, n, len, 1);
	memcpy(out + n, words, len);
	return n + len;
}

size_t guest_tell_request(uint8_t out[GUEST_TOLD_MAX], enum guest_what what, uint32_t serial,
        uint64_t number, uint64_t bytes)
{
	size_t n = put(out, 0, GUEST_REQUEST, 1);
	n = put(out, n, what, 1);
	n = put(out, n, serial, 4);
	n = put(out, n, number, 8);
	return put(out, n, bytes, 8);
}

size_t guest_tell_clock(uint8_t out[GUEST_TOLD_MAX], uint64_t others, uint64_t agents)
{
	size_t n = put(out, 0, GUEST_CLOCK, 1);
	n = put(out, n, others, 8);
	return put(out, n, agents, 8);
}
