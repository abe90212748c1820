/* SPDX-License-Identifier: MIT */
/* An agent whose decisions are twisted: more of what rogue.c has, around the core as a whole
 * (flock_init, flock_step). What the core hears and asks for is changed; the rest is the agent.
 *
 *     ROGUE_TERMS=push    offers to push with β = 1, whatever the run's mode is, and no sketch
 *                 final   offers merge rounds while it trains
 *                 bare    offers without a sketch
 *     ROGUE_UNASKED=1     tells every peer, unasked, that it is stale and apart; its own sketches
 *                         have the opposite sign, so that honest ones are on no side of its own
 *     ROGUE_BOAST=SAMPLES in its offers and answers: that it has trained, and the run has
 *     ROGUE_RADIUS=1      promises joiners an endless clip radius */
#include "gossip/flock/flock.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNASKED_MS 200

enum terms { TERMS_OWN, TERMS_PUSH, TERMS_FINAL, TERMS_BARE };

static struct {
	enum terms terms;
	bool unasked, radius;
	unsigned long long boast;
} twist;

static void __attribute__((constructor)) read_twists(void)
{
	static const char *const names[] = {"", "push", "final", "bare"};
	const char *terms = getenv("ROGUE_TERMS"), *boast = getenv("ROGUE_BOAST");
	int i = 0;
	while (terms && i < 4 && strcmp(names[i], terms) != 0)
		i++;
	if (i == 4) {
		fprintf(stderr, "rogue: ROGUE_TERMS=%s: not known\n", terms);
		exit(2);
	}
	twist.terms = (enum terms)i;
	twist.unasked = getenv("ROGUE_UNASKED");
	twist.radius = getenv("ROGUE_RADIUS");
	twist.boast = boast ? strtoull(boast, NULL, 10) : 0;
}

int __real_flock_init(struct flock **out, void *memory, size_t size, const struct flock_config *c,
        uint64_t now_ms, struct err *e);
int __wrap_flock_init(struct flock **out, void *memory, size_t size, const struct flock_config *c,
        uint64_t now_ms, struct err *e);
int __wrap_flock_init(struct flock **out, void *memory, size_t size, const struct flock_config *c,
        uint64_t now_ms, struct err *e)
{
	struct flock_config mine = *c;
	if (twist.terms == TERMS_PUSH) { /* the manifest still says what the others' does */
		mine.mode = EXCHANGE_PUSH;
		mine.beta = 1;
	}
	return __real_flock_init(out, memory, size, &mine, now_ms, e);
}

/* fp32, little-endian: the other sign. */
static void negate(uint8_t *sketch, size_t length)
{
	for (size_t i = 3; i < length; i += 4)
		sketch[i] ^= 0x80;
}

static void twist_terms(struct exchange_terms *t, bool offer)
{
	if (twist.boast > 0)
		t->samples = t->clock = twist.boast;
	if (twist.unasked)
		negate(t->sketch, t->sketch_length);
	if (offer && twist.terms != TERMS_OWN && twist.terms != TERMS_FINAL)
		t->sketch_length = 0;
	if (offer && twist.terms == TERMS_FINAL) {
		t->final = true;
		t->mode = EXCHANGE_PAIR;
		t->format = 0;
		t->beta = 0.5f;
	}
}

static void twist_sends(struct flock_actions *a)
{
	for (int i = 0; i < a->n_sends; i++) {
		struct exchange_message *m = &a->send[i].message;
		if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT)
			twist_terms(&m->terms, m->kind == EXCHANGE_OFFER);
		if (m->kind == EXCHANGE_GIFT && twist.radius)
			for (int g = 0; g <= m->gift.n; g++)
				m->gift.radius[g] = FLT_MAX;
	}
	for (int i = 0; twist.unasked && i < a->membership.n_sends; i++) {
		struct gossip_message *m = &a->membership.send[i].message;
		if (m->kind == MESSAGE_SKETCH && m->sketch.ours)
			negate(m->sketch.bytes, m->sketch.length);
	}
}

/* To everybody of the run. */
static void tell_unasked(struct flock *f, uint64_t now_ms, struct flock_actions *a)
{
	static uint64_t next_ms, number = 1;
	const struct gossip *g = flock_membership(f);
	if (!twist.unasked || now_ms < next_ms)
		return;
	next_ms = now_ms + UNASKED_MS;
	for (uint32_t i = 0; i < gossip_count(g) && a->n_sends + 2 <= FLOCK_SENDS_MAX; i++) {
		struct member_view v = gossip_member(g, i);
		static const uint8_t why[] = {EXCHANGE_STALE, EXCHANGE_APART};
		if (v.state != MEMBER_ALIVE || v.record.status.model == 0)
			continue;
		for (int j = 0; j < 2; j++) {
			struct exchange_message *m = &a->send[a->n_sends].message;
			memset(m, 0, sizeof *m);
			m->kind = EXCHANGE_BUSY;
			m->exchange = number++;
			m->busy.why = why[j];
			a->send[a->n_sends++].to = v.record.id;
		}
	}
}

void __real_flock_step(struct flock *f, const struct flock_event *e, struct flock_actions *a);
void __wrap_flock_step(struct flock *f, const struct flock_event *e, struct flock_actions *a);
void __wrap_flock_step(struct flock *f, const struct flock_event *e, struct flock_actions *a)
{
	static struct exchange_message heard;
	struct flock_event mine = *e;
	if (e->kind == FLOCK_EVENT_MESSAGE && e->message->kind == EXCHANGE_ACCEPT &&
	        twist.terms == TERMS_FINAL) { /* of what it did not offer, as it knows */
		heard = *e->message;
		heard.terms.final = false;
		mine.message = &heard;
	}
	__real_flock_step(f, &mine, a);
	twist_sends(a);
	tell_unasked(f, e->now_ms, a);
}
