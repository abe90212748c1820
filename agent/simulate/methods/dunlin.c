/* SPDX-License-Identifier: MIT */
/* The method "dunlin": what the product itself does. See flock/world.h. */
#include "agent/simulate/flock/world.h"
#include "agent/train/core_settings.h"

#include <stdlib.h>
#include <string.h>

#define START_MS 200 /* within which the agents of the beginning start */

static void tick_at(struct world *w)
{
	uint64_t at = w->queue.n > 0 ? w->queue.entry[0].at_ms : SIMNET_NEVER;
	struct sim_note n = {
	        .tag = WORLD_TICK, .from = sim_server(w->sim), .to = sim_server(w->sim)};
	uint64_t ns = at * (SIM_S / 1000), now = sim_now(w->sim);
	struct err e = {0};
	if (at == SIMNET_NEVER || at >= w->tick_ms)
		return;
	w->tick_ms = at;
	int rc = sim_timer(w->sim, ns > now ? ns - now : 0, &n, &e);
	if (rc)
		world_fail(w, rc, e.msg);
}

/* Around everything that the engine calls. */
static struct world *begin(struct sim *s, struct err *e)
{
	struct world *w = sim_state(s);
	*e = (struct err){0};
	w->failed = e;
	w->now_ms = sim_now(s) / (SIM_S / 1000);
	return w;
}

static int end(struct world *w)
{
	tick_at(w);
	int rc = w->failed->code;
	w->failed = NULL;
	return rc;
}

/* ---- entries */

static uint32_t host_of(const struct world *w, const struct sim_entry *e)
{
	if (e->kind == WORLD_DELIVER)
		return world_get(w, e->a)->parcel.to;
	if (e->kind == WORLD_END)
		return e->a / WORLD_CONNS;
	return e->kind == WORLD_TIMER || e->kind == WORLD_TURN ? e->a : WORLD_NOBODY;
}

/* An agent that is paused hears of it all later, in the same order. */
static bool held(struct world *w, const struct sim_entry *e)
{
	uint32_t i = host_of(w, e);
	if (i == WORLD_NOBODY || !sim_paused(w->sim, i) || !sim_live(w->sim, i))
		return false;
	struct world_agent *a = &w->agent[i];
	if (a->n_held == a->room_held) {
		a->room_held = a->room_held ? 2 * a->room_held : 64;
		a->held = reallocarray(a->held, a->room_held, sizeof *a->held);
		if (!a->held)
			abort();
	}
	a->held[a->n_held++] = *e;
	return true;
}

static void resume(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	for (uint32_t k = 0; k < a->n_held; k++)
		simnet_push(&w->net, 0, a->held[k].kind, a->held[k].a, a->held[k].b);
	a->n_held = 0;
}

static void deliver(struct world *w, uint32_t item)
{
	struct world_item *x = world_get(w, item);
	const struct simnet_parcel *p = &x->parcel;
	struct world_agent *a = &w->agent[p->to];
	bool late = x->stream && simnet_way(&w->net, p->from, p->to)->epoch != p->epoch;
	if (a->alive && a->life == p->life && !late)
		world_step(w, p->to, &x->e);
	simnet_parcel_free(&w->net, item);
}

static void handle(struct world *w, const struct sim_entry *e)
{
	struct world_agent *a =
	        &w->agent[e->kind == WORLD_TIMER || e->kind == WORLD_TURN || e->kind == WORLD_STARTS
	                          ? e->a
	                          : 0];
	switch (e->kind) {
	case WORLD_DELIVER:
		deliver(w, e->a);
		break;
	case WORLD_TIMER:
		if (a->alive && a->life == e->b)
			world_timer(w, e->a);
		break;
	case WORLD_TURN:
		if (a->alive && a->life == e->b)
			world_turn(w, e->a);
		break;
	case WORLD_DIAL:
		world_dial(w, e->a, e->b);
		break;
	case WORLD_BREAK:
		world_break(w, e->a, e->b);
		break;
	case WORLD_END:
		world_bulk_ends(w, e->a / WORLD_CONNS, (int)(e->a % WORLD_CONNS), e->b);
		break;
	case WORLD_STARTS:
		if (a->life == e->b && sim_live(w->sim, e->a))
			world_start(w, e->a);
		break;
	}
}

static void tick(struct world *w)
{
	struct sim_entry e;
	uint64_t now = w->now_ms;
	if (now < w->tick_ms) /* left over: an earlier one was asked for after it, and has been */
		return;
	w->tick_ms = SIMNET_NEVER;
	while (w->failed->code == 0 && simnet_next(&w->net, now, &e))
		if (!held(w, &e))
			handle(w, &e);
}

/* ---- what the engine calls */

static void fill_base(struct world *w)
{
	const struct scenario *s = sim_scenario(w->sim);
	const struct arch *a = fleet_arch(sim_fleet(w->sim));
	struct flock_config *f = &w->base;
	w->n_total = a->n_total;
	w->n_train = a->n_train;
	w->trains = s->record.train;
	w->vectors = s->config.train.optim.kind == OPTIM_ADAMW ? 3 : 2;
	w->total = sim_total(w->sim);
	w->adapts = w->trains && s->config.train.batch_adapt != BATCH_ADAPT_OFF;
	w->batch = (struct batch_config){.eta = s->config.train.batch_eta,
	        .micro = (uint64_t)s->config.train.batch,
	        .first = (uint64_t)s->config.train.batch,
	        .most = (uint64_t)s->config.train.batch_max};
	learner_groups_of(&w->groups, a);
	f->learner = true;
	f->manifest = (struct manifest){.run = 1,
	        .model = 2,
	        .init = 3,
	        .count = s->record.parameters > 0 ? (uint64_t)s->record.parameters : a->n_total,
	        .total = w->total,
	        .optimizer = (uint64_t)s->config.train.optim.kind,
	        .mode = (uint64_t)s->config.gossip.exchange,
	        .formats = (1u << CONVERT_FORMATS) - 1,
	        .outer = (uint64_t)s->config.gossip.outer};
	if (a->n_train != a->n_total) /* as of a real one: see fill_info of agent/train/learner.c */
		f->manifest.formats &= ~(uint64_t)CONVERT_LATTICES;
	core_settings(f, &s->config);
	f->n_groups = w->trains ? (uint8_t)w->groups.n : 1;
	f->vectors = (uint8_t)w->vectors;
	f->membership = (struct gossip_config){
	        .profile = s->config.agent.profile == PROFILE_WAN ? gossip_wan : gossip_lan,
	        .dialable = true,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .members_max = w->n < 16 ? 16 : w->n};
}

/* Every agent's core has a table of all agents, and the network has ways for each pair. */
static double other_bytes(const struct scenario *s)
{
	const double n = (double)s->agents.count;
	const struct flock_config f = {.membership = {.members_max = n < 16 ? 16 : (uint32_t)n}};

	return n * ((double)flock_size(&f) + n * sizeof(struct simnet_way));
}

static void name_agents(struct world *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct world_agent *a = &w->agent[i];
		for (int k = 0; k < 29; k++)
			a->id.bytes[k] = (uint8_t)rng_u64(&w->rng);
		for (int k = 0; k < 3; k++)
			a->id.bytes[29 + k] = a->addr.ip[1 + k] = (uint8_t)(i >> 8 * (2 - k));
		a->addr.family = 4;
		a->addr.ip[0] = 10;
		a->addr.port = 7400;
		a->dialable = true;
		a->wake_ms = a->armed_ms = SIMNET_NEVER;
	}
}

static int flock_start(struct sim *s, struct err *e)
{
	struct world *w = calloc(1, sizeof *w);
	uint32_t n = sim_agents(s);
	struct world_agent *agents = calloc(n, sizeof *agents);
	if (!w || !agents)
		abort();
	simnet_init(&w->net, n, agents, sizeof *agents, sizeof(struct world_item));
	w->sim = s;
	w->n = n;
	w->agent = agents;
	w->tick_ms = SIMNET_NEVER;
	sim_set_state(s, w);
	begin(s, e);
	rng_seed(&w->rng, rng_u64(sim_rng(s)), 1);
	fill_base(w);
	name_agents(w);
	w->actions = calloc(1, sizeof *w->actions);
	w->room = world_vector(w->trains ? w->n_total : 1);
	w->initial = world_vector(w->trains ? w->n_total : 1);
	if (!w->actions)
		abort();
	if (w->trains)
		memcpy(w->initial, fleet_x(sim_fleet(s), 0), w->n_total * sizeof(float));
	for (uint32_t i = 0; i < n; i++)
		if (sim_live(s, i))
			simnet_push(&w->net, i == 0 ? 0 : simnet_between(&w->net, 1, START_MS),
			        WORLD_STARTS, i, 0);
	return end(w);
}

static void flock_stop(struct sim *s)
{
	struct world *w = sim_state(s);
	for (uint32_t i = 0; w && i < w->n; i++) {
		world_learner_close(w, i);
		free(w->agent[i].memory);
		free(w->agent[i].held);
	}
	if (!w)
		return;
	free(w->agent);
	free(w->actions);
	free(w->room);
	free(w->initial);
	simnet_close(&w->net);
	free(w);
	sim_set_state(s, NULL);
}

static int flock_stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	struct world *w = begin(s, e);
	world_stepped(w, i, r);
	return end(w);
}

static int flock_noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	struct world *w = begin(s, e);
	if (n->tag == WORLD_TICK)
		tick(w);
	else
		world_bytes(w, n, true);
	return end(w);
}

static void flock_drop(struct sim *s, const struct sim_note *n)
{
	struct err e;
	if (n->tag != WORLD_BYTES)
		return;
	struct world *w = begin(s, &e);
	world_bytes(w, n, false);
	w->failed = NULL;
}

static int flock_changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct world *w = begin(s, e);
	struct world_agent *a = &w->agent[i];
	if (what == SIM_JOINED)
		simnet_push(&w->net, 0, WORLD_STARTS, i, a->life);
	if (what == SIM_RESUMED)
		resume(w, i);
	if (what == SIM_CRASHED || what == SIM_LEFT)
		a->learner.stepping = false;
	if (what == SIM_CRASHED) {
		world_kill(w, i);
		resume(w, i); /* and nobody is there to hear it */
	}
	if (what == SIM_LEFT && a->alive) {
		a->leaving = true;
		uint32_t item = world_item(w, i, FLOCK_EVENT_WISH);
		world_get(w, item)->e.wish = WISH_LEAVE;
		world_later(w, item, 0);
		resume(w, i);
	}
	return end(w);
}

/* Merge rounds follow the last sample; the run is over when all agents have written their result.
 * That they stay for others for a while is not waited for. */
static bool flock_finished(struct sim *s)
{
	const struct world *w = sim_state(s);
	for (uint32_t i = 0; i < w->n; i++)
		if (w->agent[i].alive && w->agent[i].phase < FLOCK_FINISHED)
			return false;
	return true;
}

const struct sim_method sim_dunlin = {
        .name = "dunlin",
        .help = "the agent's own core: membership, gate, exchanges, joining, merging",
        .agent_vectors = 4,
        .run_vectors = 3,
        .other_bytes = other_bytes,
        .start = flock_start,
        .stop = flock_stop,
        .stepped = flock_stepped,
        .noted = flock_noted,
        .drop = flock_drop,
        .changed = flock_changed,
        .finished = flock_finished,
};
