/* SPDX-License-Identifier: MIT */
/* An agent: its core, what the core's actions set off, its timer; life and death.
 *
 * The state folder of a process outlives it: its generation, and what it has trained. A checkpoint
 * does not: an agent that comes back takes a peer's state. */
#include "agent/simulate/flock/world.h"

#include <stdlib.h>
#include <string.h>

struct world_agent *world_agent(struct world *w, uint32_t i)
{
	return &w->agent[i];
}

void world_fail(struct world *w, int code, const char *what)
{
	if (w->failed && w->failed->code == 0)
		err_set(w->failed, code, "%s", what);
}

/* ---- items */

struct world_item *world_get(const struct world *w, uint32_t item)
{
	return simnet_parcel(&w->net, item);
}

uint32_t world_item(struct world *w, uint32_t to, uint8_t kind)
{
	uint32_t i = simnet_parcel_new(&w->net, to, to);
	struct world_item *x = world_get(w, i);
	x->parcel.life = w->agent[to].life;
	x->stream = false;
	memset(&x->e, 0, sizeof x->e);
	x->e.kind = kind;
	return i;
}

void world_later(struct world *w, uint32_t item, uint64_t after_ms)
{
	simnet_push(&w->net, after_ms, WORLD_DELIVER, item, 0);
}

/* ---- the beginning */

static struct flock_config config_of(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	struct rng *r = sim_agent_rng(w->sim, i);
	struct flock_config f = w->base;
	uint32_t present = 0;
	for (uint32_t k = 0; k < w->n; k++)
		present += k != i && w->agent[k].alive;
	f.alone = present == 0;
	f.samples_before = a->progress;
	f.seed = rng_u64(r);
	f.wire_seed = rng_u64(r);
	f.gate.seed = rng_u64(r);
	f.membership.self = a->id;
	f.membership.generation = a->generation;
	f.membership.nonce = rng_u64(r);
	f.membership.seed = rng_u64(r);
	f.membership.addrs = (struct peer_addrs){1, {a->addr}};
	f.membership.n_seeds = present > 0;
	return f;
}

void world_start(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	struct err e;
	if (a->alive)
		return;
	struct flock_config c = config_of(w, i);
	size_t bytes = flock_size(&c);
	a->alive = true;
	a->leaving = false;
	a->phase = FLOCK_LOOKING;
	a->life++;
	c.membership.generation = ++a->generation;
	a->wake_ms = a->armed_ms = SIMNET_NEVER;
	memset(a->conn, 0, sizeof a->conn);
	world_learner_open(w, i);
	free(a->memory);
	a->memory = calloc(1, bytes);
	if (!a->memory)
		abort();
	int rc = flock_init(&a->core, a->memory, bytes, &c, w->now_ms, &e);
	if (rc) {
		world_fail(w, rc, e.msg);
		a->alive = false;
		return;
	}
	world_step(w, i, &(struct flock_event){.kind = FLOCK_EVENT_START});
}

/* ---- the end */

static void ends(struct world *w, uint32_t i, bool closes)
{
	struct world_agent *a = &w->agent[i];
	a->progress = flock_samples(a->core);
	a->alive = false;
	a->leaving = false;
	world_bulk_gone(w, i);
	world_gone(w, i, closes);
	world_learner_close(w, i);
	free(a->memory);
	a->memory = NULL;
	a->core = NULL;
}

void world_kill(struct world *w, uint32_t i)
{
	if (w->agent[i].alive)
		ends(w, i, false);
}

/* ---- actions */

/* Seeds are some that start before it, so that no agent is asked by all; or whoever there is. */
static void resolve(struct world *w, uint32_t i, int seed)
{
	uint32_t item = world_item(w, i, FLOCK_EVENT_MEMBERSHIP);
	struct gossip_event *e = &world_get(w, item)->e.membership;
	const uint32_t wanted[] = {i / 2, i > 0 ? i - 1 : 0, 0, i + 1, i / 4};
	e->kind = EVENT_RESOLVED;
	e->resolved.seed = seed;
	for (uint32_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
		if (wanted[k] < w->n && wanted[k] != i && w->agent[wanted[k]].alive)
			e->resolved.address[e->resolved.n++] = w->agent[wanted[k]].addr;
	for (uint32_t k = 0; k < w->n && e->resolved.n == 0; k++)
		if (k != i && w->agent[k].alive)
			e->resolved.address[e->resolved.n++] = w->agent[k].addr;
	world_later(w, item, 1);
}

static void act(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_learner *l = &w->agent[i].learner;
	switch (a->kind) {
	case FLOCK_DO_OPEN:
	case FLOCK_DO_CLOSE:
	case FLOCK_DO_TRANSFER:
	case FLOCK_DO_CANCEL:
		world_bulk(w, i, a);
		break;
	case FLOCK_DO_LEAVE:
		break;
	case FLOCK_DO_LEFT:
		ends(w, i, true);
		break;
	case FLOCK_DO_CLOCK:
		l->others = a->others > l->others ? a->others : l->others;
		l->agents = a->agents;
		break;
	default:
		world_ask(w, i, a);
		break;
	}
}

static void say(struct world *w, uint32_t i, const struct flock_say *s)
{
	static const char *const name[] = {[SAY_JOINS] = "joins",
	        [SAY_STALE] = "stale",
	        [SAY_QUARANTINE] = "quarantine",
	        [SAY_APART] = "apart",
	        [SAY_JOINED] = "joined",
	        [SAY_DONATED] = "donated",
	        [SAY_FAILED] = "failed"};
	int rc = 0;
	if (s->code == SAY_PHASE) {
		w->agent[i].phase = (uint8_t)s->a;
		rc = sim_trace(w->sim, "phase", "\"agent\":%u,\"phase\":\"%s\"", i,
		        flock_phase_text((enum flock_phase)s->a));
	} else if (s->code == SAY_EXCHANGE) {
		const struct exchange_result *r = s->result;
		bool done = r->outcome == OUTCOME_EXCHANGED;
		if (done && r->ours)
			sim_count(w->sim, 0, 1);
		if (done)
			sim_met(w->sim, i);
		rc = sim_trace(w->sim, "exchange",
		        "\"agent\":%u,\"peer\":%u,\"ours\":%s,\"outcome\":\"%s\","
		        "\"distance\":%.6g,\"factor\":%.6g",
		        i, world_find(w, &s->peer), r->ours ? "true" : "false",
		        exchange_outcome_text(r->outcome), r->distance, (double)r->factor);
	} else if (s->code < sizeof name / sizeof *name && name[s->code])
		rc = sim_trace(w->sim, name[s->code], "\"agent\":%u,\"peer\":%d", i,
		        (int)world_find(w, &s->peer));
	if (rc)
		world_fail(w, rc, "the trace could not be written");
}

static void carry_out(struct world *w, uint32_t i)
{
	struct flock_actions *a = w->actions;
	struct world_agent *g = &w->agent[i];
	for (int k = 0; k < a->n_says; k++)
		say(w, i, &a->say[k]);
	for (int k = 0; k < a->membership.n_notices; k++)
		if (a->membership.notice[k].kind == NOTICE_GENERATION)
			g->generation = a->membership.notice[k].value;
	for (int k = 0; k < a->membership.n_sends; k++)
		world_gossip(w, i, &a->membership.send[k]);
	for (int k = 0; k < a->membership.n_resolve; k++)
		resolve(w, i, a->membership.resolve[k]);
	for (int k = 0; k < a->n_sends; k++)
		world_post(w, i, &a->send[k].to, &a->send[k].message);
	for (int k = 0; k < a->n_actions && g->alive; k++)
		act(w, i, &a->action[k]);
}

/* ---- steps */

/* One entry at a time, the earliest: most events move the time at which a core wants to wake. */
static void arm(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	if (a->wake_ms >= a->armed_ms)
		return;
	a->armed_ms = a->wake_ms;
	simnet_push(&w->net, a->wake_ms > w->now_ms ? a->wake_ms - w->now_ms : 0, WORLD_TIMER, i,
	        a->life);
}

void world_step(struct world *w, uint32_t i, struct flock_event *e)
{
	struct world_agent *a = &w->agent[i];
	e->now_ms = e->awake_ms = w->now_ms;
	flock_step(a->core, e, w->actions);
	w->steps++;
	a->wake_ms = w->actions->wake_ms;
	carry_out(w, i);
	if (a->alive)
		arm(w, i);
}

void world_timer(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	a->armed_ms = SIMNET_NEVER;
	if (a->wake_ms <= w->now_ms)
		world_step(w, i, &(struct flock_event){.kind = FLOCK_EVENT_TIMER});
	else
		arm(w, i);
}
