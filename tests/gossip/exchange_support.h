/* SPDX-License-Identifier: MIT */
/* One exchange machine, fed by hand: what test_exchange and test_exchange_settle share. */
#ifndef DUNLIN_TESTS_GOSSIP_EXCHANGE_SUPPORT_H
#define DUNLIN_TESTS_GOSSIP_EXCHANGE_SUPPORT_H

#include "gossip/exchange/exchange.h"
#include "tests/support.h"

#define GROUPS 3
#define NUMBER 0xabcdu /* of a peer's exchange */

struct fixture {
	struct exchange *x;
	struct exchange_actions a;
	uint64_t now, number; /* of the exchange under way */
	struct peer_id peer;
	int applies, dones;
};

static inline struct peer_id id(uint8_t n)
{
	struct peer_id p = {{n}};
	return p;
}

static const struct manifest like = {.run = 1,
        .model = 2,
        .init = 3,
        .count = 4,
        .total = 1200000,
        .optimizer = 1,
        .mode = EXCHANGE_PAIR,
        .formats = 3};

static inline struct exchange_terms terms(enum exchange_mode mode)
{
	return (struct exchange_terms){
	        .manifest = like, .step = 77, .mode = (uint8_t)mode, .format = 1, .beta = 0.5f};
}

static inline void begin(struct fixture *f)
{
	struct exchange_config c = {.self = id(5),
	        .manifest = like,
	        .n_groups = GROUPS,
	        .seed = 1,
	        .offer_ms = 3000,
	        .hold_ms = EXCHANGE_HOLD_MS,
	        .settle_ms = 15000};
	memset(f, 0, sizeof *f);
	f->x = malloc(exchange_size());
	assert_non_null(f->x);
	exchange_init(f->x, &c);
	f->now = 1000;
	f->peer = id(7);
}

static inline void end(struct fixture *f)
{
	free(f->x);
}

static inline void step(struct fixture *f, struct exchange_event e)
{
	e.now_ms = f->now;
	exchange_step(f->x, &e, &f->a);
	assert_true(f->a.n_sends <= EXCHANGE_SENDS_MAX);
	f->applies += f->a.apply;
	f->dones += f->a.done;
	assert_true(f->applies <= 1);
}

static inline enum exchange_state state(const struct fixture *f)
{
	return exchange_state(f->x);
}

static inline void event(struct fixture *f, enum exchange_event_kind k)
{
	step(f, (struct exchange_event){.kind = (uint8_t)k, .peer = f->peer});
}

static inline void start(struct fixture *f, enum exchange_mode mode)
{
	struct exchange_terms t = terms(mode);
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_START,
	                .peer = f->peer,
	                .start = {.ours = &t, .deadline_ms = 8000}});
	if (f->a.n_sends)
		f->number = f->a.send[0].message.exchange;
}

/* Any message of the current exchange, willing in case it is an offer. */
static inline void hear(struct fixture *f, struct exchange_message m)
{
	struct exchange_terms ours = terms(EXCHANGE_PAIR);
	if (m.exchange == 0)
		m.exchange = f->number;
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_RECEIVED,
	                .peer = f->peer,
	                .received = {.message = &m,
	                        .ours = &ours,
	                        .deadline_ms = m.kind == EXCHANGE_OFFER ? 9000 : 7000}});
}

static inline struct exchange_message word(enum exchange_message_kind k)
{
	struct exchange_message m = {.kind = (uint8_t)k};
	if (k == EXCHANGE_OFFER || k == EXCHANGE_ACCEPT)
		m.terms = terms(EXCHANGE_PAIR);
	if (k == EXCHANGE_END) {
		m.end.n = GROUPS;
		m.end.factor[0] = 0.25f;
		m.end.factor[1] = 1;
		m.end.factor[2] = 0.5f;
	}
	return m;
}

static inline void say(struct fixture *f, enum exchange_message_kind k)
{
	hear(f, word(k));
}

static inline void settle(struct fixture *f, enum exchange_settlement s)
{
	hear(f, (struct exchange_message){.kind = EXCHANGE_SETTLE, .settlement = (uint8_t)s});
}

static inline void bulk(struct fixture *f, enum exchange_bulk b)
{
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_BULK,
	                .peer = f->peer,
	                .bulk = {.exchange = f->number, .bulk = (uint8_t)b}});
}

static inline void moved(struct fixture *f, int code)
{
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_MOVED,
	                .moved = {.code = code,
	                        .bytes_sent = 10,
	                        .bytes_received = 20,
	                        .distance = 3,
	                        .n = GROUPS,
	                        .factor = {1, 0.5f, 0.5f}}});
}

/* That one message was sent, of that kind, about the exchange under way. */
static inline const struct exchange_message *sent(
        const struct fixture *f, enum exchange_message_kind k)
{
	assert_int_equal(f->a.n_sends, 1);
	assert_int_equal(f->a.send[0].message.kind, k);
	assert_true(f->a.send[0].message.exchange == f->number);
	assert_true(peer_id_equal(&f->a.send[0].to, &f->peer));
	return &f->a.send[0].message;
}

static inline void ended(const struct fixture *f, enum exchange_outcome o, bool has_moved)
{
	assert_true(f->a.done);
	assert_int_equal(f->a.result.outcome, o);
	assert_int_equal(f->a.result.moved, has_moved);
	if (o != OUTCOME_TIMEOUT && o != OUTCOME_BROKEN && o != OUTCOME_BAD)
		assert_int_equal(f->a.result.code, 0);
	assert_true(f->a.result.exchange == f->number);
	assert_true(peer_id_equal(&f->a.result.peer, &f->peer));
	assert_int_equal(state(f), EXCHANGE_IDLE);
	assert_true(f->a.timer_ms == UINT64_MAX);
}

static inline void until_timer(struct fixture *f)
{
	assert_true(f->a.timer_ms != UINT64_MAX);
	f->now = f->a.timer_ms;
	event(f, EXCHANGE_EVENT_TIMER);
}

/* Brings a machine into a state as one of the two roles; applied: of UNSETTLED. */
static inline void reach(
        struct fixture *f, enum exchange_state s, bool ours, enum exchange_mode mode, bool applied)
{
	begin(f);
	if (s == EXCHANGE_IDLE)
		return;
	if (ours) {
		start(f, mode);
		if (s == EXCHANGE_OFFERED)
			return;
		struct exchange_message m = word(EXCHANGE_ACCEPT);
		m.terms = terms(mode);
		hear(f, m);
	} else {
		struct exchange_message m = word(EXCHANGE_OFFER);
		m.terms = terms(mode);
		f->number = m.exchange = NUMBER;
		hear(f, m);
		sent(f, EXCHANGE_ACCEPT);
	}
	assert_true(f->a.snapshot && f->a.open == ours);
	if (s == EXCHANGE_PREPARING)
		return;
	bulk(f, BULK_CAME);
	event(f, EXCHANGE_EVENT_SNAPSHOT);
	assert_true(f->a.move);
	if (s == EXCHANGE_MOVING)
		return;
	moved(f, 0);
	if (s == EXCHANGE_ENDING || mode != EXCHANGE_PAIR)
		return;
	say(f, EXCHANGE_END);
	sent(f, EXCHANGE_COMMIT);
	if (s == EXCHANGE_UNSETTLED && !applied) {
		event(f, EXCHANGE_EVENT_DOWN);
		return;
	}
	if (s == EXCHANGE_COMMITTED)
		return;
	say(f, EXCHANGE_COMMIT);
	assert_true(f->a.apply);
	if (s == EXCHANGE_APPLYING)
		return;
	event(f, EXCHANGE_EVENT_APPLIED);
	if (s == EXCHANGE_UNSETTLED)
		event(f, EXCHANGE_EVENT_DOWN);
}

/* One of the peer's to us; why: what we think of it. */
static inline void offer(struct fixture *f, struct exchange_terms t, enum exchange_why why)
{
	struct exchange_message m = {.kind = EXCHANGE_OFFER, .exchange = NUMBER, .terms = t};
	struct exchange_terms ours = terms(EXCHANGE_PAIR);
	f->number = NUMBER;
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_RECEIVED,
	                .peer = f->peer,
	                .received = {.message = &m,
	                        .ours = &ours,
	                        .why = (uint8_t)why,
	                        .words = "so it is",
	                        .deadline_ms = 9000}});
}

#endif
