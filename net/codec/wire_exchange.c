/* SPDX-License-Identifier: MIT */
/* The messages of an exchange, as wire_decode.c reads the others: every field in its order, of its
 * type, in its range. A peer's numbers will move weights, so each float is checked here, where it
 * enters: beta in (0, 1], factors in [0, 1], radii finite and not negative. What a number means to
 * us (is that our model? do we know that format?) is the core's to judge.
 *
 * BUSY and ABORT have one element more where the reason is "unlike": the speaker's manifest.
 *
 * What can fail: a kind from a later version (ERR_UNSUPPORTED, the message is ignored), and all
 * that can be wrong with a field. A reason from a later version is read as "other". */
#include "gossip/exchange/exchange.h"
#include "net/codec/wire_scan.h"
#include "net/limits.h"

#include <float.h>

#define ANY UINT64_MAX

static void get_manifest(struct wire_in *in, struct manifest *m)
{
	uint32_t n = wire__array(in, "manifest", 8, WIRE_VALUES_MAX);
	m->run = wire__uint(in, "run", ANY);
	m->model = wire__uint(in, "model", ANY);
	m->init = wire__uint(in, "init", ANY);
	m->count = wire__uint(in, "count", ANY);
	m->total = wire__uint(in, "total", ANY);
	m->optimizer = wire__uint(in, "optimizer", ANY);
	m->mode = wire__uint(in, "mode", ANY);
	m->formats = wire__uint(in, "formats", ANY);
	if (in->code == 0)
		wire__skip(in, n - 8);
}

/* From 0 to most; a NaN is not. */
static float get_float(struct wire_in *in, const char *name, float most)
{
	float x = wire__float(in, name);
	if (x >= 0 && x <= most)
		return x;
	wire__wrong(in, ERR_FORMAT, "%s: %g is not from 0 to %g", name, (double)x, (double)most);
	return 0;
}

/* Returns how many there are. */
static uint32_t get_floats(
        struct wire_in *in, const char *name, float *out, uint32_t least, uint32_t max, float most)
{
	uint32_t n = wire__array(in, name, least, max);
	for (uint32_t i = 0; i < n; i++)
		out[i] = get_float(in, name, most);
	return n;
}

static void get_terms(struct wire_in *in, struct exchange_terms *t)
{
	get_manifest(in, &t->manifest);
	t->step = wire__uint(in, "step", ANY);
	t->samples = wire__uint(in, "samples", ANY);
	t->clock = wire__uint(in, "clock", ANY);
	t->mode = (uint8_t)wire__uint(in, "mode", UINT8_MAX);
	t->format = (uint8_t)wire__uint(in, "format", UINT8_MAX);
	t->final = wire__bool(in, "final");
	t->beta = get_float(in, "beta", 1);
	if (t->beta == 0)
		wire__wrong(in, ERR_FORMAT, "beta: 0, over 0 to 1");
	t->sketch_length = (uint16_t)wire__blob(in, "sketch", t->sketch, sizeof t->sketch);
}

/* Returns how many elements it has: one more with a manifest. */
static uint32_t get_busy(struct wire_in *in, uint32_t n, struct exchange_message *m)
{
	uint64_t why = wire__uint(in, "why", ANY);
	m->busy.why = why < EXCHANGE_WHYS ? (uint8_t)why : EXCHANGE_OTHER;
	wire__words(in, m->busy.words, EXCHANGE_WORDS_MAX);
	if (m->busy.why != EXCHANGE_UNLIKE)
		return 5;
	if (n < 6)
		wire__wrong(in, ERR_FORMAT, "%u elements, at least 6", n);
	else
		get_manifest(in, &m->busy.manifest);
	return 6;
}

static void get_fetch(struct wire_in *in, struct exchange_message *m)
{
	get_manifest(in, &m->fetch.manifest);
	m->fetch.snapshot = wire__uint(in, "snapshot", ANY);
	m->fetch.offset = wire__uint(in, "offset", ANY);
}

static void get_gift(struct wire_in *in, struct exchange_message *m)
{
	get_manifest(in, &m->gift.manifest);
	m->gift.snapshot = wire__uint(in, "snapshot", ANY);
	m->gift.offset = wire__uint(in, "offset", ANY);
	m->gift.step = wire__uint(in, "step", ANY);
	m->gift.samples = wire__uint(in, "samples", ANY);
	m->gift.clock = wire__uint(in, "clock", ANY);
	m->gift.optim_steps = wire__uint(in, "optim_steps", ANY);
	m->gift.optimizer = (uint8_t)wire__uint(in, "optimizer", UINT8_MAX);
	m->gift.vectors = (uint8_t)wire__uint(in, "vectors", 3);
	if (m->gift.vectors < 2)
		wire__wrong(in, ERR_FORMAT, "vectors: %u, 2 or 3", m->gift.vectors);
	uint32_t n = get_floats(in, "radius", m->gift.radius, 1, EXCHANGE_GROUPS_MAX + 1, FLT_MAX);
	m->gift.n = n ? (uint8_t)(n - 1) : 0;
}

static void get_body(struct wire_in *in, struct exchange_message *m)
{
	switch ((enum exchange_message_kind)m->kind) {
	case EXCHANGE_OFFER:
	case EXCHANGE_ACCEPT:
		get_terms(in, &m->terms);
		return;
	case EXCHANGE_BUSY:
	case EXCHANGE_ABORT: /* wire__exchange's */
		return;
	case EXCHANGE_END:
		m->end.n =
		        (uint8_t)get_floats(in, "factor", m->end.factor, 0, EXCHANGE_GROUPS_MAX, 1);
		return;
	case EXCHANGE_SETTLE:
		m->settlement = (uint8_t)wire__uint(in, "settlement", SETTLE_APPLIED);
		return;
	case EXCHANGE_FETCH:
		get_fetch(in, m);
		return;
	case EXCHANGE_GIFT:
		get_gift(in, m);
		return;
	case EXCHANGE_OPEN:
	case EXCHANGE_COMMIT:
	case EXCHANGE_ACK:
	case EXCHANGE_KINDS:
		return;
	}
}

/* By kind: its name, and how many elements it has at least. */
static const struct {
	uint8_t fields;
	const char *name;
} kinds[EXCHANGE_KINDS] = {
        [EXCHANGE_OFFER] = {12, "offer"},
        [EXCHANGE_ACCEPT] = {12, "accept"},
        [EXCHANGE_BUSY] = {5, "busy"},
        [EXCHANGE_OPEN] = {3, "open"},
        [EXCHANGE_END] = {4, "end"},
        [EXCHANGE_COMMIT] = {3, "commit"},
        [EXCHANGE_ACK] = {3, "exchange ack"},
        [EXCHANGE_ABORT] = {5, "abort"},
        [EXCHANGE_SETTLE] = {4, "settle"},
        [EXCHANGE_FETCH] = {6, "fetch"},
        [EXCHANGE_GIFT] = {13, "gift"},
};

uint32_t wire__exchange(struct wire_in *in, uint32_t n, struct exchange_message *m)
{
	uint64_t kind = wire__uint(in, "kind", ANY);
	if (kind >= EXCHANGE_KINDS) {
		wire__wrong(in, ERR_UNSUPPORTED, "kind %llu is not known here",
		        (unsigned long long)kind);
		return n;
	}
	in->where = in->code ? in->where : kinds[kind].name;
	m->kind = (uint8_t)kind;
	m->exchange = wire__uint(in, "exchange", ANY);
	if (m->exchange == 0)
		wire__wrong(in, ERR_FORMAT, "exchange: 0, at least 1");
	if (n < kinds[kind].fields)
		wire__wrong(in, ERR_FORMAT, "%u elements, at least %u", n, kinds[kind].fields);
	if (in->code == 0 && (kind == EXCHANGE_BUSY || kind == EXCHANGE_ABORT))
		return get_busy(in, n, m);
	if (in->code == 0)
		get_body(in, m);
	return kinds[kind].fields;
}
