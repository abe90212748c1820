/* SPDX-License-Identifier: MIT */
/* An agent: what a core's actions set off, as drivers would do it; life, death and disk. */
#include "tests/sim/flock/byzantine.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 64 /* bytes behind a core's memory that it must not touch */

/* A third of the runs each: mod8, mod4, and what each agent chooses by itself; of these one in
 * three cannot pack. */
bool fsim_packs(const struct fsim *w, int i)
{
	return w->setup.lattice && (w->setup.seed % 3 != 2 || i % 3 != 2);
}

static void choose_format(const struct fsim *w, int i, struct flock_config *f)
{
	static const int stated[] = {FSIM_MOD8, FSIM_MOD4, FORMAT_AUTO};
	struct format_config c = {.stated = stated[w->setup.seed % 3],
	        .scaled = f->scaled,
	        .fine = FSIM_MOD8,
	        .plain = f->plain};
	if (!fsim_packs(w, i))
		f->manifest.formats &= ~f->scaled;
	c.accepted = f->manifest.formats;
	struct format_choice choice = format_choose(&c);
	f->format = choice.format;
	f->format_why = choice.why;
}

static struct flock_config config_of(struct fsim *w, int i)
{
	struct fsim_agent *a = &w->agent[i];
	const struct fsim_checkpoint *c = &a->disk.now;
	enum fsim_still kind = fsim_still_kind(w);
	bool rounds = kind == STILL_ROUNDED || (kind != STILL_TWO && w->setup.seed / 2 % 2);
	struct flock_config f = {.learner = true,
	        .alone = i == 0 && a->life == 1,
	        .manifest = w->manifest,
	        .n_groups = FSIM_GROUPS,
	        .vectors = FSIM_VECTORS,
	        .evaluates = w->setup.seed % 2,
	        .resumed = c->there,
	        .peer_rate = w->peer_rate,
	        .rate_cap = w->rate_cap,
	        .format = rounds,
	        .n_formats = 2,
	        .exchange_bytes = {4 * (uint64_t)w->params, 2 * (uint64_t)w->params},
	        .beta = 0.5f,
	        .stale = FSIM_STALE,
	        .fresh = 20 * FSIM_BATCH,
	        .join_ms = 3000,
	        .merge_ms = FSIM_MERGE_MS,
	        .stay_ms = 3000,
	        .leave_ms = 20000,
	        .seed = rng_u64(&w->rng),
	        .wire_seed = rng_u64(&w->rng)};
	if (w->setup.lattice) {
		f.scaled = 1 << FSIM_MOD8 | 1 << FSIM_MOD4;
		f.plain = 1;
		f.merge = FSIM_MOD8;
		f.n_formats = 4;
		f.exchange_bytes[FSIM_MOD8] = (uint64_t)w->params;
		f.exchange_bytes[FSIM_MOD4] = ((uint64_t)w->params + 1) / 2;
		choose_format(w, i, &f);
	}
	f.guard = f.seed & 1; /* agents with and without it understand each other */
	f.lr_peak = 0.1;
	f.gate = (struct gate_config){.mode = GATE_EVERY,
	        .every_samples = 4 * FSIM_BATCH,
	        .warm = 25,
	        .smooth = 0.16,
	        .slow = 0.02,
	        .delta = 0.35,
	        .silence_ms = 5000,
	        .exchange_bytes = f.exchange_bytes[f.format],
	        .cap_bytes_per_s = w->cap,
	        .step_samples = FSIM_BATCH,
	        .seed = rng_u64(&w->rng)};
	if (w->setup.pace == PACE_MIXED) {
		f.guard = true;
		f.gate.mode = GATE_SIGNIFICANCE;
		f.gate.silence_ms = 30000;
		f.gate.silence_samples = 2000 * FSIM_BATCH;
	}
	f.membership = (struct gossip_config){.profile = gossip_lan,
	        .self = a->id,
	        .generation = a->disk.generation,
	        .nonce = rng_u64(&w->rng),
	        .seed = rng_u64(&w->rng),
	        .addrs = {1, {a->addr}},
	        .dialable = a->dialable,
	        .protocol_min = 1,
	        .protocol_max = 1,
	        .n_seeds = i > 0 || a->life > 1 ? 2 : 0,
	        .members_max = 64};
	if (i == w->stranger)
		f.manifest.init++;
	if (c->there) {
		f.step = c->step;
		f.samples = c->samples;
		f.others = c->others;
	}
	if (a->disk.progress > f.samples)
		f.samples_before = a->disk.progress - f.samples;
	return f;
}

static void take_memory(struct fsim_agent *a, const struct flock_config *c)
{
	size_t n = flock_size(c);
	free(a->memory);
	a->memory = calloc(1, n + GUARD);
	if (!a->memory)
		abort();
	memset(a->memory + n, 0xa5, GUARD);
	a->memory_bytes = n;
}

void process_start(struct fsim *w, int i)
{
	struct fsim_agent *a = &w->agent[i];
	struct err e;
	if (a->alive)
		return;
	a->alive = true;
	a->left = a->leaving = false;
	a->life++;
	a->disk.generation++;
	memset(a->owner, 0, sizeof a->owner);
	memset(a->conn, 0, sizeof a->conn);
	a->readers = 0;
	memset(a->unsent, 0, sizeof a->unsent);
	a->clock = 0;
	a->began_ms = w->now_ms;
	memset(a->judged, 0, sizeof a->judged);
	a->exchange_number = 0;
	a->merging_ms = 0;
	a->adoptions = 0;
	a->phase = FLOCK_LOOKING;
	a->may_join = a->joins = a->finished = false;
	a->was_full = a->disk.full || w->full_chance > 0;
	toy_open(w, i, &a->disk.now);
	struct flock_config c = config_of(w, i);
	take_memory(a, &c);
	rules_start(w, i, &c);
	if (flock_init(&a->core, a->memory, a->memory_bytes, &c, w->now_ms - a->behind_ms, &e)) {
		fsim_fail(w, "agent %d does not start: %s", i, e.msg);
		return;
	}
	fsim_trace(
	        w, "agent %d starts, life %u, step %llu", i, a->life, (unsigned long long)c.step);
	process_step(w, i, &(struct flock_event){.kind = FLOCK_EVENT_START});
}

void process_kill(struct fsim *w, int i)
{
	struct fsim_agent *a = &w->agent[i];
	if (!a->alive)
		return;
	fsim_trace(w, "agent %d dies", i);
	a->alive = false;
	a->toy.turn++;
	a->timer++;
	w->crashes++;
	bulk_dead(w, i);
	world_dead(w, i);
}

/* It said goodbye, and its process ends. */
static void left(struct fsim *w, int i)
{
	struct fsim_agent *a = &w->agent[i];
	check_left(w, i);
	a->alive = false;
	a->left = true;
	a->toy.turn++;
	a->timer++;
	bulk_dead(w, i);
	world_dead(w, i);
}

/* ---- actions */

/* A name of all who can be dialled, as far as there is room. */
static void resolve(struct fsim *w, int i, int seed)
{
	uint32_t item = world_item(w, i, FLOCK_EVENT_MEMBERSHIP);
	struct gossip_event *e = &world_get(w, item)->e.membership;
	e->kind = EVENT_RESOLVED;
	e->resolved.seed = seed;
	for (int k = 0; k < w->n && e->resolved.n < GOSSIP_SEED_ADDRESSES; k++)
		if (k != i && w->agent[k].dialable)
			e->resolved.address[e->resolved.n++] = w->agent[k].addr;
	world_later(w, item, world_between(w, 1, 50));
}

static void act(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	check_action(w, i, a);
	if (byz_withholds(w, i, a))
		return;
	switch (a->kind) {
	case FLOCK_DO_OPEN:
		bulk_open(w, i, a);
		break;
	case FLOCK_DO_CLOSE:
		bulk_close(w, i, a->exchange);
		break;
	case FLOCK_DO_TRANSFER:
		bulk_transfer(w, i, a);
		break;
	case FLOCK_DO_CANCEL:
		bulk_cancel_use(w, i, a);
		break;
	case FLOCK_DO_MEASURE:
		toy_measure(w, i, a->slot);
		break;
	case FLOCK_DO_TRAIN:
		g->toy.training = true;
		toy_wake(w, i);
		break;
	case FLOCK_DO_PAUSE:
		g->toy.training = false;
		if (g->toy.n > 0)
			toy_wake(w, i);
		break;
	case FLOCK_DO_RESTORE:
		g->toy.restores = true;
		toy_wake(w, i);
		break;
	case FLOCK_DO_CLOCK:
		if (a->others > g->toy.others)
			g->toy.others = a->others;
		/* One that is done by the others' work notices it without training. */
		if (g->toy.training && !g->toy.done && g->toy.samples + g->toy.others >= w->total)
			toy_wake(w, i);
		break;
	case FLOCK_DO_RELEASE:
		check_owner(w, i, a->slot, OWNER_NONE, OWNER_NONE);
		break;
	case FLOCK_DO_LEAVE:
		g->leaving = true;
		g->exit_code = a->code;
		break;
	case FLOCK_DO_LEFT:
		left(w, i);
		break;
	default:
		toy_ask(w, i, a);
		break;
	}
}

static void say(struct fsim *w, int i, const struct flock_say *s)
{
	static const char *const name[] = {"phase", "alone", "joins", "trains at once", "stale",
	        "no result", "run trained", "stopped early", "paused", "resumed", "exchange",
	        "quarantine", "apart", "join asking", "join busy", "join unfit", "join broken",
	        "join other donor", "join implausible", "join worse", "join taken",
	        "join adopt failed", "join nobody", "joined", "restored", "donated",
	        "donation broken", "refused", "failed", "unwritten", "unlike", "capped",
	        "all unlike"};
	check_said(w, i, s);
	byz_said(w, i, s);
	if (s->code == SAY_EXCHANGE) {
		check_result(w, i, s->result);
		fsim_trace(w, "agent %d: exchange with %d: %s %s, distance %.3g, factor %.3g", i,
		        world_find(w, &s->peer), exchange_outcome_text(s->result->outcome),
		        s->result->outcome == OUTCOME_BUSY ? exchange_why_text(s->result->why)
		                                           : s->result->words,
		        s->result->distance, (double)s->result->factor);
	} else
		fsim_trace(w, "agent %d: %s %llu %llu %s", i,
		        s->code == SAY_PHASE ? flock_phase_text((enum flock_phase)s->a)
		                             : name[s->code],
		        (unsigned long long)s->a, (unsigned long long)s->b, s->words);
}

/* Notices that must be kept. */
static void notices(struct fsim *w, int i)
{
	const struct gossip_actions *g = &w->actions.membership;
	for (int k = 0; k < g->n_notices; k++)
		if (g->notice[k].kind == NOTICE_GENERATION)
			w->agent[i].disk.generation = g->notice[k].value;
}

static bool crashes_here(struct fsim *w, int i)
{
	if (w->crash_action_agent != i || !world_chance(w, w->crash_action_chance))
		return false;
	w->crashes_between++;
	process_kill(w, i);
	return true;
}

static void hash(struct fsim *w, uint64_t v)
{
	w->hash = rng_mix(w->hash, v, w->now_ms);
}

static void carry_out(struct fsim *w, int i)
{
	struct flock_actions *a = &w->actions;
	struct fsim_agent *g = &w->agent[i];
	for (int k = 0; k < a->n_says; k++)
		say(w, i, &a->say[k]);
	notices(w, i);
	for (int k = 0; k < a->membership.n_sends && g->alive; k++)
		if (!crashes_here(w, i))
			world_gossip(w, i, &a->membership.send[k]);
	for (int k = 0; k < a->membership.n_resolve && g->alive; k++)
		resolve(w, i, a->membership.resolve[k]);
	for (int k = 0; k < a->n_sends && g->alive; k++)
		if (!crashes_here(w, i)) {
			hash(w, a->send[k].message.kind);
			world_post(w, i, &a->send[k].to, &a->send[k].message);
		}
	for (int k = 0; k < a->n_actions && g->alive; k++)
		if (!crashes_here(w, i)) {
			hash(w, a->action[k].kind);
			act(w, i, &a->action[k]);
		}
}

void process_step(struct fsim *w, int i, struct flock_event *e)
{
	struct fsim_agent *g = &w->agent[i];
	e->now_ms = w->now_ms - g->behind_ms;
	e->awake_ms = w->now_ms;
	flock_step(g->core, e, &w->actions);
	w->steps++;
	check_step(w, i, e);
	g->wake_ms = w->actions.wake_ms;
	/* The state directory is kept up to date by now and then; here at once. */
	g->disk.progress = flock_samples(g->core);
	carry_out(w, i);
	if (w->setup.byzantine) {
		byz_step(w, i);
		byz_acts(w, i);
	}
	if (g->alive && g->wake_ms != UINT64_MAX)
		world_push(w, g->wake_ms > e->now_ms ? g->wake_ms - e->now_ms : 0, FSIM_TIMER,
		        (uint32_t)i, ++g->timer);
}
