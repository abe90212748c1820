/* SPDX-License-Identifier: MIT */
/* One core of a flock in a test's hands: its peers say what the test lets them say, its learner
 * answers what it is asked for at once. */
#ifndef DUNLIN_TESTS_GOSSIP_FLOCK_BED_H
#define DUNLIN_TESTS_GOSSIP_FLOCK_BED_H

#include "gossip/flock/flock.h"
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

#define BED_TOTAL 1000000
#define BED_COUNT 256

struct bed {
	struct flock_config c;
	struct flock *core;
	void *memory;
	struct flock_actions *a;
	uint64_t now_ms, step, samples;
	double moved, loss;
	bool earlier;        /* peers have trained in an earlier life alone: they tell no steps */
	struct sketch place; /* of its parameters */
};

static inline struct peer_id bed_id(int i)
{
	struct peer_id id;
	memset(&id, 0x10 + i, sizeof id);
	return id;
}

/* A place that far from the origin along one direction, or, off, aside of it. */
static inline struct sketch bed_place(double along, double off)
{
	struct sketch s;
	for (int i = 0; i < SKETCH_BUCKETS; i++)
		s.bucket[i] = (float)((along + (i % 2 ? off : -off)) / 16);
	return s;
}

static inline void bed_step(struct bed *b, struct flock_event e);

/* What the learner is asked for. */
static inline void bed_answer(struct bed *b, const struct flock_action *x)
{
	struct flock_event e = {0};
	if (x->kind == FLOCK_DO_SNAPSHOT) {
		e.kind = FLOCK_EVENT_SNAPSHOT;
		e.snapshot.step = b->step;
		e.snapshot.sketch = x->snapshot.sketch ? &b->place : NULL;
		bed_step(b, e);
	}
}

static inline void bed_step(struct bed *b, struct flock_event e)
{
	struct flock_actions *mine = malloc(sizeof *mine);
	assert_non_null(mine);
	e.now_ms = e.awake_ms = b->now_ms;
	flock_step(b->core, &e, b->a);
	*mine = *b->a;
	for (int i = 0; i < mine->n_actions; i++)
		bed_answer(b, &mine->action[i]);
	*b->a = *mine;
	free(mine);
}

static inline void bed_pass(struct bed *b, uint64_t ms)
{
	for (uint64_t end = b->now_ms + ms; b->now_ms < end;) {
		b->now_ms += 50;
		bed_step(b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	}
}

static inline void bed_train(struct bed *b, int steps, double each)
{
	for (int i = 0; i < steps; i++) {
		struct flock_trained s = {.step = ++b->step,
		        .samples = b->samples += 32,
		        .loss = b->loss,
		        .lr = 0.1,
		        .grad_norm = 1,
		        .moved = b->moved += each};
		struct flock_event e = {.kind = FLOCK_EVENT_STEPS};
		e.steps.list = &s;
		e.steps.n = 1;
		bed_step(b, e);
	}
}

/* Membership hears a peer's record, which refutes that it is suspected: nobody answers probes. */
static inline void bed_word(struct bed *b, int i, uint64_t samples, float loss, bool left)
{
	static uint64_t version;
	struct gossip_message m = {.kind = MESSAGE_SYNC, .n_updates = 1};
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct member_record *r = &m.update[0].record;
	m.update[0].kind = UPDATE_RECORD;
	m.update[0].raw.length = 1;
	version++;
	*r = (struct member_record){.id = bed_id(i),
	        .generation = 1,
	        .nonce = (uint64_t)i + 1,
	        .incarnation = version,
	        .version = version,
	        .left = left,
	        .dialable = true,
	        .addrs = {1, {{.family = 4, .ip = {127, 0, 0, 1}, .port = (uint16_t)(1000 + i)}}},
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .status = {.model = manifest_hash(&b->c.manifest),
	                .step = b->earlier ? 0 : samples / 32,
	                .samples = samples,
	                .loss = loss}};
	e.membership.kind = EVENT_RECEIVED;
	e.membership.received.from = r->id;
	e.membership.received.channel = CHANNEL_STREAM;
	e.membership.received.message = &m;
	bed_step(b, e);
}

static inline void bed_record(struct bed *b, int i, uint64_t samples, float loss)
{
	bed_word(b, i, samples, loss, false);
}

static inline void bed_hear(struct bed *b, int from, const struct exchange_message *m)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MESSAGE, .peer = bed_id(from)};
	e.message = m;
	bed_step(b, e);
}

/* An offer that an honest peer could make. */
static inline struct exchange_message bed_offer(const struct bed *b, uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_OFFER, .exchange = number};
	m.terms = (struct exchange_terms){.manifest = b->c.manifest,
	        .step = 100,
	        .samples = 3200,
	        .clock = 6400,
	        .mode = b->c.mode,
	        .beta = b->c.beta,
	        .sketch_length = SKETCH_BUCKETS * 4};
	sketch_pack(&b->place, m.terms.sketch);
	return m;
}

static inline const struct exchange_message *bed_sent(const struct bed *b, uint8_t kind)
{
	for (int i = 0; i < b->a->n_sends; i++)
		if (b->a->send[i].message.kind == kind)
			return &b->a->send[i].message;
	return NULL;
}

static inline const struct flock_action *bed_did(const struct bed *b, uint8_t kind)
{
	for (int i = 0; i < b->a->n_actions; i++)
		if (b->a->action[i].kind == kind)
			return &b->a->action[i];
	return NULL;
}

static inline const struct flock_say *bed_said(const struct bed *b, uint8_t code)
{
	for (int i = 0; i < b->a->n_says; i++)
		if (b->a->say[i].code == code)
			return &b->a->say[i];
	return NULL;
}

static inline struct flock_view bed_view(const struct bed *b)
{
	struct flock_view v;
	flock_view(b->core, &v);
	return v;
}

static inline struct flock_config bed_config(void)
{
	struct flock_config c = {.learner = true,
	        .manifest = {.run = 1,
	                .model = 2,
	                .init = 3,
	                .count = BED_COUNT,
	                .total = BED_TOTAL,
	                .formats = 3},
	        .n_groups = 2,
	        .vectors = 2,
	        .peer_rate = 50,
	        .n_formats = 2,
	        .exchange_bytes = {4 * BED_COUNT, 2 * BED_COUNT},
	        .beta = 0.5f,
	        .stale = 0.1,
	        .fresh = 640,
	        .join_ms = 1000,
	        .merge_ms = 20000,
	        .stay_ms = 3000,
	        .leave_ms = 20000,
	        .seed = 1,
	        .wire_seed = 2};
	c.gate = (struct gate_config){.mode = GATE_EVERY,
	        .every_samples = 32000000,
	        .warm = 25,
	        .smooth = 0.16,
	        .slow = 0.02,
	        .delta = 0.35,
	        .exchange_bytes = 4 * BED_COUNT,
	        .step_samples = 32};
	c.membership = (struct gossip_config){.profile = gossip_lan,
	        .self = bed_id(0),
	        .generation = 1,
	        .nonce = 7,
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .members_max = 64};
	return c;
}

static inline void bed_open(struct bed *b, const struct flock_config *c)
{
	struct err e;
	memset(b, 0, sizeof *b);
	b->c = *c;
	b->now_ms = 100000;
	b->loss = 1;
	b->place = bed_place(10, 0);
	size_t n = flock_size(c);
	b->memory = calloc(1, n);
	b->a = malloc(sizeof *b->a);
	assert_non_null(b->memory);
	assert_non_null(b->a);
	memset(b->a, 0xa5, sizeof *b->a); /* what an action or a word does not say is zero */
	assert_int_equal(flock_init(&b->core, b->memory, n, c, b->now_ms, &e), 0);
	bed_step(b, (struct flock_event){.kind = FLOCK_EVENT_START});
}

/* With peers 1 … n of the run, and training, as one that is there from the start. */
static inline void bed_train_with(struct bed *b, int n)
{
	for (int i = 1; i <= n; i++)
		bed_record(b, i, 0, 1);
	bed_pass(b, 1500);
	assert_int_equal(bed_view(b).phase, FLOCK_TRAINING);
}

static inline void bed_close(struct bed *b)
{
	free(b->memory);
	free(b->a);
}

#endif
