/* SPDX-License-Identifier: MIT */
/* What a step asks for, and membership's part in it.
 *
 * Membership takes one event in a step, so that its actions need no second buffer: the step's own
 * event if it is one of membership's; else, of what it has not heard of yet, one thing at a time.
 * While anything is owed to it the step asks to be woken at once. */
#include "gossip/flock/flock_internal.h"

#include <assert.h>
#include <string.h>

struct flock_action *flock__do(struct flock *f, enum flock_action_kind kind)
{
	struct flock_actions *a = f->out;
	assert(a->n_actions < FLOCK_ACTIONS_MAX);
	struct flock_action *x = &a->action[a->n_actions++];
	memset(x, 0, sizeof *x);
	x->kind = (uint8_t)kind;
	return x;
}

struct flock_action *flock__do_bulk(struct flock *f, enum flock_action_kind kind, uint8_t use,
        const struct peer_id *peer, uint64_t exchange)
{
	struct flock_action *x = flock__do(f, kind);
	x->use = use;
	x->peer = *peer;
	x->exchange = exchange;
	return x;
}

void flock__send(struct flock *f, const struct peer_id *to, const struct exchange_message *m)
{
	struct flock_actions *a = f->out;
	assert(a->n_sends < FLOCK_SENDS_MAX);
	a->send[a->n_sends].to = *to;
	a->send[a->n_sends++].message = *m;
}

struct flock_say *flock__say(struct flock *f, enum flock_say_code code)
{
	struct flock_actions *a = f->out;
	/* Of too many, the last place is written over: words are not worth an assertion. */
	int at = a->n_says < FLOCK_SAYS_MAX ? a->n_says++ : FLOCK_SAYS_MAX - 1;
	struct flock_say *s = &a->say[at];
	memset(s, 0, sizeof *s);
	s->code = (uint8_t)code;
	return s;
}

void flock__say_of(struct flock *f, enum flock_say_code code, const struct peer_id *peer,
        uint64_t a, uint64_t b)
{
	struct flock_say *s = flock__say(f, code);
	s->peer = *peer;
	s->a = a;
	s->b = b;
}

/* ---- membership */

void flock__membership(struct flock *f, struct gossip_event *e)
{
	struct gossip_actions *a = &f->out->membership;
	e->now_ms = f->now_ms;
	gossip_step(f->membership, e, a);
	f->membership_ms = a->deadline_ms;
	f->membership_stepped = true;
}

bool flock__membership_owed(const struct flock *f)
{
	return f->status_news || f->divergence.news || f->n_claims > 0 ||
	       f->membership_ms <= f->now_ms;
}

void flock__claim(struct flock *f, const struct peer_id *id, uint64_t samples)
{
	int i = 0;
	samples = flock__may_claim(f, id, samples);
	if (samples == 0)
		return;
	while (i < f->n_claims && !peer_id_equal(&f->claim[i].id, id))
		i++;
	if (i == FLOCK_CLAIMS)
		return; /* its record brings it */
	f->n_claims += i == f->n_claims;
	f->claim[i].id = *id;
	f->claim[i].samples = samples;
}

static void tell_sketch(struct flock *f)
{
	uint8_t bytes[SKETCH_BUCKETS * 4];
	struct gossip_event e = {.kind = EVENT_SKETCH};
	sketch_pack(&f->divergence.own, bytes);
	e.sketch.step = f->divergence.step;
	e.sketch.length = sizeof bytes;
	e.sketch.bytes = bytes;
	f->divergence.news = false;
	flock__membership(f, &e);
}

static void tell_status(struct flock *f)
{
	struct gossip_event e = {.kind = EVENT_STATUS};
	e.status.model = f->model_hash;
	e.status.step = f->clock.last.step;
	e.status.samples = flock__samples(f);
	e.status.loss = f->clock.has_loss ? (float)f->clock.loss : __builtin_nanf("");
	f->status_news = false;
	flock__membership(f, &e);
}

static void tell_claim(struct flock *f)
{
	struct gossip_event e = {.kind = EVENT_SAMPLES};
	e.samples.id = f->claim[0].id;
	e.samples.count = f->claim[0].samples;
	f->n_claims--;
	memmove(&f->claim[0], &f->claim[1], (size_t)f->n_claims * sizeof f->claim[0]);
	flock__membership(f, &e);
}

void flock__membership_turn(struct flock *f)
{
	if (f->membership_stepped || f->finish.leave >= LEAVE_MEMBERSHIP)
		return;
	if (f->membership_ms <= f->now_ms)
		flock__membership(f, &(struct gossip_event){.kind = EVENT_TIMER});
	else if (f->status_news)
		tell_status(f);
	else if (f->n_claims > 0)
		tell_claim(f);
	else if (f->divergence.news)
		tell_sketch(f);
}
