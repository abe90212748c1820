/* SPDX-License-Identifier: MIT */
/* One seed, from start to verdict. */
#include "tests/sim/flock/byzantine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_MS 120000 /* after the last fault; and what the run would take the slowest alone */
#define SLOWEST_MS 600  /* a step */
#define SLOWEST_PACE_MS 6250

static void fails(struct fsim *w, const char *fmt, va_list ap)
{
	if (w->failure[0])
		return;
	int n = snprintf(w->failure, sizeof w->failure, "at %.3f s: ", (double)w->now_ms / 1000);
	vsnprintf(w->failure + n, sizeof w->failure - (size_t)n, fmt, ap);
	fsim_trace(w, "FAILED %s", w->failure);
}

void fsim_fail(struct fsim *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (!w->setup.byzantine)
		fails(w, fmt, ap);
	va_end(ap);
}

void fsim_fail_always(struct fsim *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fails(w, fmt, ap);
	va_end(ap);
}

void fsim_trace(struct fsim *w, const char *fmt, ...)
{
	va_list ap;
	if (!w->setup.verbose)
		return;
	printf("%10.3f  ", (double)w->now_ms / 1000);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

enum fsim_still fsim_still_kind(const struct fsim *w)
{
	static const enum fsim_still kinds[] = {STILL_RANDOM, STILL_LINE, STILL_ROUNDED, STILL_TWO};
	return w->setup.still ? kinds[w->setup.seed % 4] : STILL_NONE;
}

static void open_agents(struct fsim *w)
{
	for (int i = 0; i < w->n; i++) {
		struct fsim_agent *a = &w->agent[i];
		a->id.bytes[0] = (uint8_t)rng_u64(&w->rng);
		a->id.bytes[31] = (uint8_t)(i + 1);
		a->addr = (struct peer_addr){.family = 4, .ip = {127, 0, 0, 1}};
		a->addr.port = (uint16_t)(1000 + i);
		a->dialable = i == 0 || !world_chance(w, 0.15);
		a->toy.step_ms = (uint32_t)world_between(w, 40, 160);
		if (!w->setup.byzantine)
			world_push(w, i == 0 ? 0 : world_between(w, 0, 2000), FSIM_STARTS,
			        (uint32_t)i, 0);
	}
}

/* Nothing else goes wrong there. Each of the slow makes some dozens of steps. */
static void set_pace(struct fsim *w)
{
	bool all = w->setup.pace == PACE_SLOW;
	uint64_t steps = all ? world_between(w, 30, 60) : world_between(w, 100, 150),
	         fast = world_between(w, 20, 40);
	uint64_t times = world_between(w, 30, 100);
	for (int i = 0; i < w->n; i++) {
		uint64_t ms = i == w->n - 1 ? times * fast : fast;
		w->agent[i].toy.step_ms = (uint32_t)(all ? world_between(w, 4000, 5000) : ms);
	}
	steps *= all ? (uint64_t)w->n : (uint64_t)(w->n - 1) * times + 1;
	w->total = w->manifest.total = FSIM_BATCH * steps;
	w->peer_rate = 50;
	w->cap = 0;
}

static void open_world(struct fsim *w, const struct fsim_setup *s)
{
	memset(w, 0, sizeof *w);
	simnet_init(&w->net, FSIM_AGENTS, w->agent, sizeof *w->agent, sizeof(struct fsim_item));
	w->delay_ms = 1; /* of a datagram */
	w->jitter_ms = 29;
	w->setup = *s;
	rng_seed(&w->rng, s->seed, 11);
	rng_seed(&w->noise, s->seed, 12);
	rng_seed(&w->more, s->seed, 13);
	bool slow = world_chance(w, 0.2); /* a long run of a few: news have time to spread */
	w->n = (int)world_between(w, 2, slow ? 4 : world_chance(w, 0.1) ? FSIM_AGENTS : 6);
	if (fsim_still_kind(w) == STILL_ROUNDED) /* few merge in a few rounds */
		w->n = (int)world_between(w, 2, 3);
	if (fsim_still_kind(w) == STILL_TWO) /* those who met meet others before they meet again */
		w->n = (int)world_between(w, 12, FSIM_AGENTS);
	if (s->byzantine)
		w->n = (int)world_between(w, 4, world_chance(w, 0.1) ? FSIM_AGENTS : 10);
	if (s->pace)
		w->n = (int)world_between(w, 2, 4);
	if (s->n > 0)
		w->n = s->n;
	w->params = (int)world_between(w, 8, FSIM_PARAMS);
	w->group_end[0] = (size_t)w->params / 3;
	w->group_end[1] = (size_t)w->params;
	for (int p = 0; p < w->params; p++) {
		/* Long, as those of a network are: training goes a part of their length. */
		w->initial[p] = world_chance(w, 0.5) ? 1 : -1;
		w->optimum[p] = w->initial[p] + (float)(0.1 * rng_normal(&w->rng));
		w->elsewhere[p] = (float)(1.0 * rng_normal(&w->rng));
		w->way[p] = (float)(0.5 * rng_normal(&w->rng));
	}
	w->crash_action_agent = -1;
	/* About half a minute of training for all together. */
	w->total = FSIM_BATCH * (uint64_t)w->n * world_between(w, 150, 500);
	w->faults_end_ms = world_between(w, 10000, 45000);
	if (slow)
		w->faults_end_ms *= 3;
	w->manifest = (struct manifest){.run = 1,
	        .model = 2,
	        .init = 3,
	        .count = (uint64_t)w->params,
	        .total = w->total,
	        .formats = s->lattice ? 15 : 3};
	w->peer_rate = world_chance(w, 0.1) ? 2 : 50;
	if (world_chance(w, 0.1))
		w->cap = 4.0 * w->params; /* one exchange a second */
	liar_draw(w);
	open_agents(w);
	for (int i = 0; i < w->n && slow; i++)
		w->agent[i].toy.step_ms *= 3;
	if (s->pace)
		set_pace(w);
	else if (s->byzantine)
		byz_draw(w);
	else
		script_draw(w);
	/* Offers cross, and are overtaken by the news of membership. */
	if (!s->byzantine && w->n_faults > 0 && rng_f64(&w->more) < (w->n < 4 ? 0.3 : 0.05))
		w->far_ms = 200 + rng_below(&w->more, 1000);
}

static void close_world(struct fsim *w)
{
	for (int i = 0; i < w->n; i++)
		free(w->agent[i].memory);
	free(w->truth);
	simnet_close(&w->net);
}

static void deliver(struct fsim *w, uint32_t item)
{
	struct fsim_item *x = world_get(w, item);
	const struct simnet_parcel *p = &x->parcel;
	struct fsim_agent *a = &w->agent[p->to];
	bool late = x->stream && simnet_way(&w->net, p->from, p->to)->epoch != p->epoch;
	if (x->e.kind == FLOCK_EVENT_UNSENT && a->life == p->life)
		a->unsent[world_find(w, &x->e.peer)]--;
	if (a->alive && a->life == p->life && !late)
		process_step(w, (int)p->to, &x->e);
	simnet_parcel_free(&w->net, item);
}

/* A process that stands still hears of it all later. */
static bool frozen(struct fsim *w, const struct sim_entry *e)
{
	bool own = e->kind == FSIM_TIMER || e->kind == FSIM_TURN || e->kind == FSIM_STARTS;
	if (e->kind == FSIM_DELIVER)
		return simnet_frozen(&w->net, world_get(w, e->a)->parcel.to, e);
	return own && simnet_frozen(&w->net, e->a, e);
}

static void handle(struct fsim *w, const struct sim_entry *e)
{
	struct fsim_agent *a = &w->agent[e->kind == FSIM_TIMER ? e->a : 0];
	switch (e->kind) {
	case FSIM_DELIVER:
		deliver(w, e->a);
		break;
	case FSIM_TIMER:
		if (a->alive && a->timer == e->b)
			process_step(
			        w, (int)e->a, &(struct flock_event){.kind = FLOCK_EVENT_TIMER});
		break;
	case FSIM_TURN:
		toy_turn(w, (int)e->a, e->b);
		break;
	case FSIM_DIAL:
		world_dial(w, e->a, e->b);
		break;
	case FSIM_BREAK:
		world_break(w, e->a, e->b);
		break;
	case FSIM_END:
		bulk_ends(w, (int)(e->a % 64), (int)(e->a / 64), e->b);
		break;
	case FSIM_FAULT:
		script_apply(w, e->a, e->b);
		break;
	case FSIM_STARTS:
		process_start(w, (int)e->a);
		break;
	case FSIM_DIES:
		if (w->agent[e->a].life == e->b)
			process_kill(w, (int)e->a);
		world_push(w, world_between(w, 50, 2500), FSIM_STARTS, e->a, 0);
		break;
	}
}

static bool anybody(const struct fsim *w)
{
	for (int i = 0; i < w->n; i++)
		if (w->agent[i].alive)
			return true;
	return false;
}

struct fsim_result fsim_seed(const struct fsim_setup *s)
{
	static struct fsim world; /* large */
	struct fsim *w = &world;
	struct sim_entry e;
	struct fsim_result r = {0};
	open_world(w, s);
	uint64_t slowest_ms = s->pace ? SLOWEST_PACE_MS : SLOWEST_MS;
	uint64_t until = w->faults_end_ms + QUIET_MS + w->total / FSIM_BATCH * slowest_ms;
	while (!w->failure[0] && !w->spoiled && simnet_next(&w->net, until, &e)) {
		if (!frozen(w, &e))
			handle(w, &e);
		if (w->now_ms > w->faults_end_ms && !anybody(w))
			break;
	}
	if (!w->failure[0] && w->setup.byzantine)
		byz_end(w);
	else if (!w->failure[0] && !w->spoiled)
		check_end(w);
	r.failed = w->failure[0] != '\0';
	snprintf(r.failure, sizeof r.failure, "seed %llu, %d agents: %s",
	        (unsigned long long)s->seed, w->n, w->failure);
	r.seed = s->seed;
	r.n = w->n;
	r.faults = w->occurred;
	r.hash = w->hash;
	r.steps = w->steps;
	r.virtual_ms = w->now_ms;
	r.exchanges = w->exchanges;
	r.trained_together = w->trained_together;
	r.lattices = w->lattices;
	r.last_exchanged = w->last_exchanged;
	r.adoptions = w->adoptions;
	r.one_sided = w->one_sided;
	r.met = w->met;
	r.crashes = w->crashes;
	r.crashes_between = w->crashes_between;
	r.no_results = w->no_results;
	memcpy(r.lied, w->lied, sizeof r.lied);
	r.lies_adopted = w->lies_adopted;
	r.worst_off = w->worst_off;
	close_world(w);
	return r;
}

/* A change of the world changes what a seed does: then another one has to be found. */
const struct fsim_setup fsim_kept[] = {
        /* A donor that had begun to join gave the state that it had taken before. */
        {.seed = 1050, .only = -1},
        /* A state that came when the run was over was taken for its end. */
        {.seed = 4663, .only = -1},
        {.seed = 15710, .only = -1},
        /* All states were lost, and initial weights were the result. */
        {.seed = 7290, .only = -1},
        /* News at the end of a pause were not missed. */
        {.seed = 12028, .only = -1},
        /* News set what was trained apart to nothing, and what was missed then stayed. */
        {.seed = 18944, .only = -1},
        /* A donor shut a joiner out for longer than its attempts lasted. */
        {.seed = 10780, .only = -1},
        /* In merge rounds one was doubted three times for staying where it was. */
        {.seed = 2888, .only = -1},
        /* Whose connection to a joiner had failed did not say so. */
        {.seed = 5560, .only = -1},
        /* One that exchanged nothing for want of steps was taken for in touch. */
        {.seed = 10460, .only = -1},
        /* A copy of the run's beginning was given at its end. */
        {.seed = 17433, .only = -1},
        /* The run's end was heard of just as a state from before a sleep came. */
        {.seed = 1508, .only = -1},
        {0},
};

void fsim_result_add(struct fsim_result *sum, const struct fsim_result *r)
{
	sum->faults |= r->faults;
	sum->steps += r->steps;
	sum->virtual_ms += r->virtual_ms;
	sum->exchanges += r->exchanges;
	sum->trained_together += r->trained_together;
	sum->lattices += r->lattices;
	sum->one_sided += r->one_sided;
	sum->adoptions += r->adoptions;
	sum->met += r->met;
	sum->crashes += r->crashes;
	sum->crashes_between += r->crashes_between;
	sum->no_results += r->no_results;
	for (int k = 0; k < BYZ_LIES; k++)
		sum->lied[k] += r->lied[k];
	sum->lies_adopted += r->lies_adopted;
	if (r->worst_off > sum->worst_off)
		sum->worst_off = r->worst_off;
}
