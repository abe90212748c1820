/* SPDX-License-Identifier: MIT */
/* Any bytes as the life of an exchange machine: events of any kind at any time, messages of any
 * content from a handful of peers, its own id among them. The caller's part of the contract is
 * kept: it starts only when idle, and says that a snapshot, a transfer or an application is done
 * only after it was asked for. Whatever comes, parameters of a pair move only after our COMMIT and
 * a word of the peer's, once for each exchange, with factors in range; every exchange ends once;
 * and the machine always knows when it wants to be called. The memory is exactly what exchange_size
 * asks for, so that AddressSanitizer sees the first byte beyond. */
#include "gossip/exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IDS 4
#define EVENTS_MAX 2000
#define GROUPS 2

static const struct manifest ours = {1, 2, 3, 4, 5, 1, EXCHANGE_PAIR, 3, 0, 0};

struct input {
	const uint8_t *at;
	size_t left;
};

/* What the caller knows of the exchange under way. */
struct life {
	struct exchange *x;
	struct exchange_actions a;
	struct peer_id self, peer;
	uint64_t exchange, now;
	bool snapshot, move, apply; /* asked for, and not yet done */
	bool stopped, committed, agreed, word, applied;
	bool one_way;
};

static uint8_t take(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

static void demand(bool held)
{
	if (!held)
		abort();
}

static struct peer_id take_id(struct input *in)
{
	struct peer_id id;
	memset(&id, 0x11 * (take(in) % IDS + 1), sizeof id);
	return id;
}

/* Mostly what is right; now and then any bits. */
static float take_factor(struct input *in)
{
	uint8_t b = take(in);
	uint32_t bits = (uint32_t)take(in) << 24 | (uint32_t)take(in) << 16;
	float any;
	memcpy(&any, &bits, sizeof any);
	return b < 0xe0 ? (float)b / 0xdf : any;
}

static struct exchange_terms take_terms(struct input *in)
{
	uint8_t b = take(in);
	struct exchange_terms t = {.manifest = ours,
	        .mode = b < 0xf0 ? b % EXCHANGE_MODES : b,
	        .format = b >> 2 & 1,
	        .final = b & 0x10,
	        .beta = 0.5f};
	if (b >= 0xe8) {
		t.manifest.total = b & 1 ? 6 : 5;
		t.manifest.formats = b & 4 ? 6 : 3;
		t.format = b & 2 ? b : 0;
		t.beta = take_factor(in);
	}
	return t;
}

static void take_message(struct input *in, struct life *l, struct exchange_message *m)
{
	uint8_t b = take(in);
	memset(m, 0, sizeof *m);
	m->kind = b < 0xf0 ? b % EXCHANGE_FETCH : b;
	/* Of this exchange, of a few that are remembered or made up, or none. */
	m->exchange = b < 0xc0 ? l->exchange : take(in) % 24;
	switch (m->kind) {
	case EXCHANGE_OFFER:
	case EXCHANGE_ACCEPT:
		m->terms = take_terms(in);
		if (m->kind == EXCHANGE_OFFER)
			m->exchange = take(in);
		break;
	case EXCHANGE_BUSY:
	case EXCHANGE_ABORT:
		m->busy.why = take(in);
		m->busy.manifest = ours;
		m->busy.manifest.optimizer = b & 1;
		memset(m->busy.words, b, sizeof m->busy.words);
		break;
	case EXCHANGE_END:
		m->end.n = b & 0x80 ? take(in) : GROUPS;
		for (int g = 0; g < GROUPS; g++)
			m->end.factor[g] = take_factor(in);
		break;
	case EXCHANGE_SETTLE:
		m->settlement = take(in) % 4;
		break;
	default:
		break;
	}
}

/* What the machine has asked of its caller, against what it may ask. */
static void check_actions(struct life *l, enum exchange_state before)
{
	const struct exchange_actions *a = &l->a;
	enum exchange_state s = exchange_state(l->x);
	demand(a->n_sends >= 0 && a->n_sends <= EXCHANGE_SENDS_MAX);
	for (int i = 0; i < a->n_sends; i++) {
		const struct exchange_message *m = &a->send[i].message;
		demand(m->kind < EXCHANGE_FETCH && m->exchange != 0);
		demand(!peer_id_equal(&a->send[i].to, &l->self));
		if (m->kind == EXCHANGE_BUSY || m->kind == EXCHANGE_ABORT)
			demand(memchr(m->busy.words, 0, sizeof m->busy.words) != NULL);
		if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) {
			l->exchange = m->exchange;
			l->peer = a->send[i].to;
			l->one_way = m->terms.mode != EXCHANGE_PAIR;
			l->committed = l->word = l->applied = false;
		}
		if (m->kind == EXCHANGE_COMMIT) {
			demand(!l->committed && !l->one_way);
			l->committed = true;
		}
	}
	demand(!a->snapshot || s == EXCHANGE_PREPARING);
	demand(!a->move || (s == EXCHANGE_MOVING && (a->sends || a->receives)));
	if (a->apply) {
		demand(s == EXCHANGE_APPLYING && !l->applied && !l->apply && a->n_groups == GROUPS);
		demand(l->one_way || (l->committed && l->word));
		for (int g = 0; g < GROUPS; g++)
			demand(a->k[g] >= 0 && a->k[g] <= 1);
	}
	demand(!a->done || a->result.outcome < OUTCOMES);
	if (a->done && a->result.exchange == l->exchange && before != EXCHANGE_IDLE &&
	        !a->result.late)
		demand(a->result.moved == l->applied);
	bool aside = exchange_unsettled(l->x) > 0;
	demand(!a->aside || (s == EXCHANGE_IDLE && before >= EXCHANGE_COMMITTED));
	demand(s != EXCHANGE_IDLE || aside || a->timer_ms == UINT64_MAX);
	demand(s == EXCHANGE_IDLE || before == s || !a->done || before == EXCHANGE_OFFERED ||
	        a->result.late);
	/* Nothing is awaited without an end, but the trainer. */
	if ((s != EXCHANGE_IDLE && s != EXCHANGE_APPLYING) || aside)
		demand(a->timer_ms != UINT64_MAX);
	if (a->cancel || s == EXCHANGE_IDLE)
		l->snapshot = l->move = l->apply = false;
	l->snapshot |= a->snapshot;
	l->move |= a->move;
	l->apply |= a->apply;
}

/* Fills the rest of an event of that kind; false: the caller may not say this now. */
static bool take_event(struct input *in, struct life *l, struct exchange_event *e,
        struct exchange_message *m, struct exchange_terms *t)
{
	switch (e->kind) {
	case EXCHANGE_EVENT_START:
		*t = (struct exchange_terms){
		        .manifest = ours, .mode = take(in) % EXCHANGE_MODES, .beta = 0.5f};
		e->start.ours = t;
		e->start.deadline_ms = take(in) * 100u;
		return exchange_state(l->x) == EXCHANGE_IDLE && !peer_id_equal(&e->peer, &l->self);
	case EXCHANGE_EVENT_RECEIVED:
		take_message(in, l, m);
		*t = (struct exchange_terms){.manifest = ours, .beta = 0.5f};
		e->received.message = m;
		e->received.why = take(in) & 0x80 ? take(in) : EXCHANGE_WILLING;
		e->received.ours = t;
		e->received.deadline_ms = take(in) * 100u;
		if (m->exchange == l->exchange && peer_id_equal(&e->peer, &l->peer))
			l->word |= m->kind == EXCHANGE_COMMIT || m->kind == EXCHANGE_ACK ||
			           (m->kind == EXCHANGE_SETTLE && m->settlement == SETTLE_APPLIED);
		return true;
	case EXCHANGE_EVENT_SNAPSHOT: {
		bool asked = l->snapshot;
		l->snapshot = false;
		return asked;
	}
	case EXCHANGE_EVENT_BULK:
		e->bulk.exchange = take(in) & 0x80 ? take(in) : l->exchange;
		e->bulk.bulk = take(in) % 3;
		return true;
	case EXCHANGE_EVENT_MOVED: {
		bool asked = l->move;
		uint8_t b = take(in);
		l->move = false;
		e->moved.code = b < 0xc0 ? 0 : -(b & 15);
		e->moved.n = GROUPS;
		for (int g = 0; g < GROUPS; g++)
			e->moved.factor[g] = take_factor(in);
		return asked;
	}
	case EXCHANGE_EVENT_APPLIED: {
		bool asked = l->apply;
		l->apply = false;
		l->applied |= asked;
		return asked;
	}
	default:
		return true;
	}
}

/* Left alone it comes to an end. */
static void run_out(struct life *l)
{
	for (int i = 0; exchange_state(l->x) != EXCHANGE_IDLE || exchange_unsettled(l->x) > 0;
	        i++) {
		enum exchange_state before = exchange_state(l->x);
		struct exchange_event e = {.kind = EXCHANGE_EVENT_TIMER};
		demand(i < 1000);
		if (before == EXCHANGE_APPLYING) {
			e.kind = EXCHANGE_EVENT_APPLIED;
			l->apply = false;
			l->applied = true;
		} else {
			l->now = l->a.timer_ms > l->now ? l->a.timer_ms : l->now;
		}
		e.now_ms = l->now;
		exchange_step(l->x, &e, &l->a);
		check_actions(l, before);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct exchange_message m;
	static struct exchange_terms t;
	static struct life l;
	struct input in = {data, size};
	memset(&l, 0, sizeof l);
	l.self = take_id(&in);
	struct exchange_config c = {.self = l.self,
	        .manifest = ours,
	        .n_groups = GROUPS,
	        .seed = take(&in),
	        .offer_ms = 3000,
	        .hold_ms = EXCHANGE_HOLD_MS,
	        .settle_ms = 15000};
	l.x = malloc(exchange_size());
	demand(l.x != NULL);
	exchange_init(l.x, &c);
	l.a.timer_ms = UINT64_MAX;
	for (int i = 0; i < EVENTS_MAX && in.left > 0; i++) {
		uint8_t b = take(&in);
		struct exchange_event e = {.kind = b % 12};
		enum exchange_state before = exchange_state(l.x);
		if (b & 0x80)
			l.now = l.a.timer_ms != UINT64_MAX ? l.a.timer_ms : l.now;
		else
			l.now += (uint64_t)b << 3;
		e.now_ms = l.now;
		e.peer = b & 0x40 ? take_id(&in) : l.peer;
		if (!take_event(&in, &l, &e, &m, &t))
			continue;
		exchange_step(l.x, &e, &l.a);
		check_actions(&l, before);
	}
	run_out(&l);
	free(l.x);
	return 0;
}
