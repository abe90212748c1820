/* SPDX-License-Identifier: MIT */
/* What goes wrong in a seed, and when. */
#include "tests/sim/flock/flock_sim.h"

static const char *const names[FSIM_FAULT_KINDS] = {[FSIM_PARTITION] = "partition",
        [FSIM_TWO_FLOCKS] = "two-flocks",
        [FSIM_CRASH] = "crash",
        [FSIM_CRASH_FOR_GOOD] = "crash-for-good",
        [FSIM_CRASH_ACTION] = "crash-action",
        [FSIM_LOST_DISK] = "lost-disk",
        [FSIM_STALE_DISK] = "stale-disk",
        [FSIM_FREEZE] = "freeze",
        [FSIM_SLEEP] = "sleep",
        [FSIM_SLOW] = "slow",
        [FSIM_FULL_DISK] = "full-disk",
        [FSIM_FULL_QUEUES] = "full-queues",
        [FSIM_BROKEN_BULK] = "broken-bulk",
        [FSIM_LOSS] = "loss",
        [FSIM_USER_PAUSE] = "user-pause",
        [FSIM_USER_LEAVE] = "user-leave",
        [FSIM_USER_RETURN] = "user-return",
        [FSIM_LATE_JOIN] = "late-join",
        [FSIM_CRASH_DONOR] = "crash-donor"};

const char *fsim_fault_name(int kind)
{
	return kind < FSIM_FAULT_KINDS ? names[kind] : "none";
}

const char *fsim_event_name(int event)
{
	static const char *const event_names[] = {"start", "timer", "membership", "message",
	        "unsent", "bulk", "transferred", "steps", "snapshot", "measured", "applied",
	        "state", "tried", "adopted", "evaluated", "saved", "exported", "done", "failed",
	        "refused", "stopped", "wish"};
	return event_names[event];
}

/* How long all together take for the run; without that one (−1: with all). */
static uint64_t run_ms(const struct fsim *w, int without)
{
	double per_ms = 0;
	for (int i = 0; i < w->n; i++)
		if (i != without)
			per_ms += FSIM_BATCH / (1.125 * w->agent[i].toy.step_ms);
	return (uint64_t)((double)w->total / per_ms);
}

#define SLOW 24 /* times as slow */

static bool dies(int kind)
{
	return (kind >= FSIM_CRASH && kind <= FSIM_STALE_DISK) || kind == FSIM_USER_RETURN ||
	       kind == FSIM_LATE_JOIN || kind == FSIM_CRASH_DONOR;
}

/* Some take longer than others. */
static void stretch(struct fsim *w, struct fsim_fault *f)
{
	uint64_t run = run_ms(w, -1), rest = run_ms(w, f->who);
	if (f->kind == FSIM_TWO_FLOCKS) { /* they meet while there is something left to train */
		f->from_ms = world_chance(w, 0.6) ? 1 : world_between(w, 1000, 5000);
		f->to_ms = f->from_ms + world_between(w, run / 4, run * 3 / 4);
		if (rng_f64(&w->more) < 0.3) /* or when hardly anything is */
			f->to_ms = f->from_ms + run * 3 / 4 + rng_below(&w->more, run / 4 + 1);
	} else if (f->kind == FSIM_SLEEP && world_chance(w, 0.3)) { /* while it looks for peers */
		f->from_ms = world_between(w, 100, 2500);
		f->to_ms = f->from_ms + world_between(w, 2000, run);
	} else if (f->kind == FSIM_SLEEP) { /* for most of the run, or until just after it */
		bool after = world_chance(w, 0.5);
		f->from_ms = world_between(w, 1000, 2000 + run / 3);
		f->to_ms = after ? rest + world_between(w, 0, 8000)
		                 : f->from_ms + world_between(w, run / 5, rest);
		if (rng_f64(&w->more) < 0.2) { /* for its end only */
			f->from_ms = run * 3 / 4 + rng_below(&w->more, run / 5 + 1);
			f->to_ms = run + rng_below(&w->more, 6000);
		}
		f->to_ms = f->to_ms > f->from_ms ? f->to_ms : f->from_ms + 1;
	}
	if ((f->kind == FSIM_FULL_QUEUES || f->kind == FSIM_FULL_DISK) && world_chance(w, 0.5))
		f->to_ms = run + world_between(w, 5000, 20000); /* when results are written */
	if (f->to_ms > w->faults_end_ms)
		w->faults_end_ms = f->to_ms;
}

void script_draw(struct fsim *w)
{
	uint64_t length = w->faults_end_ms;
	w->n_faults = (int)world_between(w, 0, FSIM_FAULTS - 1);
	if (w->setup.only >= 0)
		w->n_faults = 3;
	if (fsim_still_kind(w) >= STILL_ROUNDED)
		w->n_faults = 0;
	for (int i = 0; i < w->n_faults; i++) {
		struct fsim_fault *f = &w->fault[i];
		f->kind = (uint8_t)rng_below(&w->rng, FSIM_FAULT_KINDS);
		if (i == 0 && w->n >= 4 && world_chance(w, 0.3))
			f->kind = FSIM_TWO_FLOCKS; /* it takes some agents to make two */
		if (w->setup.only >= 0)
			f->kind = (uint8_t)w->setup.only;
		f->who = (int)rng_below(&w->rng, (uint64_t)w->n);
		f->from_ms = world_between(w, 100, length - 100);
		f->to_ms = world_between(w, f->from_ms + 10, length);
		if (f->kind == FSIM_LATE_JOIN && (f->who == 0 || w->n < 3))
			f->kind = FSIM_LOSS;
		if (f->kind == FSIM_CRASH_FOR_GOOD && w->n < 3)
			f->kind = FSIM_CRASH;
		if (w->setup.still && dies(f->kind))
			f->kind = FSIM_LOSS;
		stretch(w, f);
		queue_push(&w->queue,
		        (struct sim_entry){
		                .at_ms = f->from_ms, .kind = FSIM_FAULT, .a = (uint32_t)i});
		queue_push(&w->queue,
		        (struct sim_entry){
		                .at_ms = f->to_ms, .kind = FSIM_FAULT, .a = (uint32_t)i, .b = 1});
	}
}

static void wish(struct fsim *w, int i, enum flock_wish what)
{
	if (!w->agent[i].alive)
		return;
	uint32_t item = world_item(w, i, FLOCK_EVENT_WISH);
	world_get(w, item)->e.wish = (uint8_t)what;
	world_later(w, item, 0);
}

static void start_soon(struct fsim *w, int i)
{
	if (!w->agent[i].alive && !w->agent[i].exported)
		world_push(w, 1, FSIM_STARTS, (uint32_t)i, 0);
}

/* Many die at once, and come back at once: they all want a state. */
static void storm(struct fsim *w, const struct fsim_fault *f, bool ends)
{
	for (int i = 1; i < w->n; i++)
		if (i == f->who || (f->from_ms % 2 == 0 && i > w->n / 3)) {
			if (ends)
				start_soon(w, i);
			else
				process_kill(w, i);
		}
}

void script_donates(struct fsim *w, int donor, int joiner, uint64_t ms)
{
	/* Its donor has another copy by then. */
	uint64_t *until = &w->agent[joiner].frozen_until;
	if (w->active != 0 && world_odd(w, 0.1) && *until <= w->now_ms)
		*until = w->now_ms + world_between(w, 5000, 25000);
	if (w->active & 1u << FSIM_CRASH_DONOR && world_chance(w, 0.5))
		world_push(w, world_between(w, 0, ms), FSIM_DIES, (uint32_t)donor,
		        w->agent[donor].life);
}

/* A process that stands still; or a machine, whose clock stands still as well. One that stands
 * still already wakes up as it would have: what has waited for it must arrive in order. */
static void freeze(struct fsim *w, const struct fsim_fault *f)
{
	struct fsim_agent *a = &w->agent[f->who];
	if (a->frozen_until > w->now_ms || f->to_ms <= w->now_ms)
		return;
	if (f->from_ms % 2)
		a->behind_ms += f->to_ms - w->now_ms;
	a->frozen_until = f->to_ms;
}

static void begin(struct fsim *w, const struct fsim_fault *f)
{
	struct fsim_agent *a = &w->agent[f->who];
	switch (f->kind) {
	case FSIM_PARTITION:
		for (int i = 0; i < w->n; i++)
			w->agent[i].group = world_chance(w, 0.4);
		w->together_ms = UINT64_MAX / 2;
		break;
	case FSIM_TWO_FLOCKS:
		for (int i = 0; i < w->n; i++)
			w->agent[i].group = (uint32_t)(f->who % 2 ? i % 3 == 1 : i % 2);
		w->together_ms = UINT64_MAX / 2;
		break;
	case FSIM_CRASH_ACTION:
		w->crash_action_agent = f->who;
		w->crash_action_chance = 0.02;
		break;
	case FSIM_FREEZE:
	case FSIM_SLEEP:
		freeze(w, f);
		break;
	case FSIM_LATE_JOIN:
		storm(w, f, false);
		break;
	case FSIM_CRASH_DONOR:
		break;
	case FSIM_SLOW:
		a->toy.step_ms *= SLOW;
		break;
	case FSIM_FULL_DISK:
		a->disk.full = a->was_full = true;
		break;
	case FSIM_FULL_QUEUES:
		w->full_chance = 0.2;
		for (int i = 0; i < w->n; i++)
			w->agent[i].was_full = true;
		break;
	case FSIM_BROKEN_BULK:
		w->bulk_break_chance = 0.3;
		break;
	case FSIM_LOSS:
		w->loss = 0.3;
		break;
	case FSIM_USER_PAUSE:
		wish(w, f->who, WISH_PAUSE);
		break;
	case FSIM_USER_LEAVE:
	case FSIM_USER_RETURN:
		wish(w, f->who, WISH_LEAVE);
		break;
	default:
		process_kill(w, f->who);
		break;
	}
}

static void end(struct fsim *w, const struct fsim_fault *f)
{
	struct fsim_agent *a = &w->agent[f->who];
	switch (f->kind) {
	case FSIM_PARTITION:
	case FSIM_TWO_FLOCKS:
		w->together_ms = w->now_ms;
		for (int i = 0; i < w->n; i++)
			w->agent[i].group = 0;
		break;
	case FSIM_CRASH_ACTION:
		w->crash_action_chance = 0;
		start_soon(w, f->who);
		break;
	case FSIM_SLOW:
		a->toy.step_ms /= SLOW;
		break;
	case FSIM_FULL_DISK:
		a->disk.full = false;
		break;
	case FSIM_FULL_QUEUES:
		w->full_chance = 0;
		break;
	case FSIM_BROKEN_BULK:
		w->bulk_break_chance = 0;
		break;
	case FSIM_LOSS:
		w->loss = 0;
		break;
	case FSIM_USER_PAUSE:
		wish(w, f->who, WISH_RESUME);
		break;
	case FSIM_LOST_DISK:
		a->disk.now.there = a->disk.older.there = false;
		start_soon(w, f->who);
		break;
	case FSIM_STALE_DISK:
		if (a->disk.older.there)
			a->disk.now = a->disk.older;
		start_soon(w, f->who);
		break;
	case FSIM_CRASH:
	case FSIM_USER_RETURN:
		start_soon(w, f->who);
		break;
	case FSIM_LATE_JOIN:
		storm(w, f, true);
		break;
	default:
		break;
	}
}

void script_apply(struct fsim *w, uint32_t fault, bool ends)
{
	const struct fsim_fault *f = &w->fault[fault];
	fsim_trace(w, "-- %s %s of %d", fsim_fault_name(f->kind), ends ? "ends" : "begins", f->who);
	w->faults_changed++;
	for (int i = 0; i < w->n; i++)
		w->agent[i].parted |= f->kind == FSIM_PARTITION || f->kind == FSIM_TWO_FLOCKS;
	if (ends) {
		w->active &= ~(1u << f->kind);
		end(w, f);
	} else {
		w->active |= 1u << f->kind;
		w->occurred |= 1u << f->kind;
		begin(w, f);
	}
}
