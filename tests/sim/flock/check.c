/* SPDX-License-Identifier: MIT */
/* The truth about each exchange, and what must hold after every event. */
#include "tests/sim/flock/flock_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXCHANGE_MAX_MS 120000 /* no exchange takes longer: every wait has a deadline */
#define AGREE 1e-3

struct fsim_reach fsim_reached;

static struct fsim_truth *truth_of(struct fsim *w, int i, const struct peer_id *peer, uint64_t x)
{
	int with = world_find(w, peer);
	for (uint32_t k = w->n_truths; k-- > 0;) {
		struct fsim_truth *t = &w->truth[k];
		if (t->exchange == x && (t->who[0] == i || t->who[1] == i))
			return t;
	}
	if (w->n_truths == w->room_truths) {
		w->room_truths = w->room_truths ? 2 * w->room_truths : 64;
		w->truth = realloc(w->truth, w->room_truths * sizeof *w->truth);
		if (!w->truth)
			abort();
	}
	struct fsim_truth *t = &w->truth[w->n_truths++];
	memset(t, 0, sizeof *t);
	t->exchange = x;
	t->who[0] = i;
	t->who[1] = with;
	return t;
}

void check_applied(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_truth *t = truth_of(w, i, &a->peer, a->exchange);
	int s = t->who[0] == i ? 0 : 1;
	if (t->applied[s])
		fsim_fail(w, "agent %d applies one exchange twice", i);
	t->applied[s] = true;
	t->life[s] = g->life;
	memcpy(t->k[s], a->apply.k, sizeof t->k[s]);
	memcpy(t->d[s], g->staging, sizeof t->d[s]);
	if (!t->applied[!s])
		return;
	for (int p = 0; p < w->params; p++)
		if (t->d[0][p] != -t->d[1][p]) {
			fsim_fail(w, "agents %d and %d move by differences that are not opposite",
			        t->who[0], t->who[1]);
			return;
		}
	if (memcmp(t->k[0], t->k[1], sizeof t->k[0]) != 0)
		fsim_fail(w, "agents %d and %d move by different shares", t->who[0], t->who[1]);
}

void check_result(struct fsim *w, int i, const struct exchange_result *r)
{
	struct fsim_truth *t;
	int s;
	if (r->outcome == OUTCOME_EXCHANGED)
		w->exchanges++;
	w->one_sided += r->outcome == OUTCOME_ONE_SIDED;
	if (!r->moved && r->outcome != OUTCOME_EXCHANGED && r->outcome != OUTCOME_ONE_SIDED)
		return;
	t = truth_of(w, i, &r->peer, r->exchange);
	s = t->who[0] == i ? 0 : 1;
	if (t->reported[s] && t->life[s] == w->agent[i].life)
		fsim_fail(w, "agent %d reports one exchange twice", i);
	t->reported[s] = true;
	t->outcome[s] = r->outcome;
	if (r->moved != t->applied[s] && t->life[s] == w->agent[i].life)
		fsim_fail(w, "agent %d says that it has%s moved, and has%s", i,
		        r->moved ? "" : " not", t->applied[s] ? "" : " not");
	if (r->outcome == OUTCOME_EXCHANGED && !t->applied[s])
		fsim_fail(w, "agent %d calls an exchange done that it has not applied", i);
}

/* An exchange of which only one side has moved must be counted as such by somebody who lived to
 * tell. */
static void check_truths(struct fsim *w)
{
	for (uint32_t k = 0; k < w->n_truths; k++) {
		const struct fsim_truth *t = &w->truth[k];
		if (t->applied[0] == t->applied[1] || !t->reported[0] || !t->reported[1])
			continue;
		if (t->outcome[0] != OUTCOME_ONE_SIDED && t->outcome[1] != OUTCOME_ONE_SIDED)
			fsim_fail(w, "only one of %d and %d has moved, and neither has counted it",
			        t->who[0], t->who[1]);
	}
}

/* ---- buffers */

void check_owner(struct fsim *w, int i, enum flock_slot s, enum fsim_owner from, enum fsim_owner to)
{
	static const char *const slot[] = {"snapshot", "staging", "donated", "fetched"};
	static const char *const owner[] = {"nobody", "the learner", "a transfer", "a worker"};
	struct fsim_agent *g = &w->agent[i];
	if (g->owner[s] != from)
		fsim_fail(w, "agent %d: %s wants the buffer %s, which %s holds", i, owner[to],
		        slot[s], owner[g->owner[s]]);
	g->owner[s] = to;
}

void check_action(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	if (a->kind == FLOCK_DO_LEFT && g->owner[SLOT_STAGING] == OWNER_TRANSFER)
		fsim_fail(w, "agent %d has left while a transfer holds its memory", i);
	if (a->kind == FLOCK_DO_RELEASE && a->slot == SLOT_DONATED && g->readers > 0)
		fsim_fail(w, "agent %d gives up a state that joiners still read", i);
	if (a->kind == FLOCK_DO_EVALUATE && g->merging_ms == 0)
		g->merging_ms = w->now_ms;
}

/* A worker is done when its answer is heard. */
static void release_worker(struct fsim *w, int i, const struct flock_event *e)
{
	if (e->kind == FLOCK_EVENT_MEASURED)
		check_owner(w, i, e->measured.slot, OWNER_WORKER, OWNER_NONE);
}

/* ---- after every event */

static void reach(struct fsim *w, enum flock_phase p, uint8_t event)
{
	fsim_reached.by[p][event][FSIM_FAULT_KINDS] += w->active == 0;
	for (int k = 0; k < FSIM_FAULT_KINDS; k++)
		fsim_reached.by[p][event][k] += w->active >> k & 1;
}

void check_step(struct fsim *w, int i, const struct flock_event *e)
{
	struct fsim_agent *g = &w->agent[i];
	struct flock_view v;
	flock_view(g->core, &v);
	reach(w, v.phase, e->kind);
	release_worker(w, i, e);
	if (v.clock < g->clock)
		fsim_fail(w, "agent %d: the run's clock falls from %llu to %llu", i,
		        (unsigned long long)g->clock, (unsigned long long)v.clock);
	g->clock = v.clock;
	for (size_t k = 0; k < 64; k++)
		if (g->memory[g->memory_bytes + k] != 0xa5)
			fsim_fail(w, "agent %d writes behind its memory", i);
	if (w->actions.wake_ms == UINT64_MAX && v.phase != FLOCK_LEAVING)
		fsim_fail(w, "agent %d never wants to wake", i);
	uint64_t now = v.exchange_state == EXCHANGE_IDLE ? 0 : 1 + v.n_recent;
	if (now != g->exchange_number) {
		g->exchange_number = now;
		g->exchange_since_ms = w->now_ms;
	}
	if (now != 0 && w->now_ms - g->exchange_since_ms > EXCHANGE_MAX_MS)
		fsim_fail(w, "agent %d waits for ever in state %s", i,
		        exchange_state_text(v.exchange_state));
}

void check_exported(struct fsim *w, int i)
{
	struct fsim_agent *g = &w->agent[i];
	g->exported = true;
	g->exported_ms = w->now_ms;
	g->exported_fault = w->faults_changed;
	memcpy(g->result, g->toy.x, sizeof g->result);
}

/* ---- at the end */

static double norm(const struct fsim *w, const float *x, const float *y)
{
	double sum = 0;
	for (int p = 0; p < w->params; p++) {
		double d = (double)x[p] - (y ? (double)y[p] : 0);
		sum += d * d;
	}
	return sqrt(sum);
}

void check_end(struct fsim *w)
{
	check_truths(w);
	for (int i = 0; i < w->n; i++) {
		struct fsim_agent *a = &w->agent[i];
		if (a->alive) {
			struct flock_view v;
			flock_view(a->core, &v);
			fsim_fail(w, "agent %d is still %s at the end, at %.1f %% of the run", i,
			        flock_phase_text(v.phase),
			        100.0 * (double)v.clock / (double)w->total);
		}
		for (int k = 0; k < i; k++) {
			struct fsim_agent *b = &w->agent[k];
			double apart = norm(w, a->result, b->result);
			uint64_t between = a->exported_ms > b->exported_ms
			                           ? a->exported_ms - b->exported_ms
			                           : b->exported_ms - a->exported_ms;
			if (!a->exported || !b->exported || between > 2000 ||
			        (!a->dialable && !b->dialable) ||
			        a->exported_fault != b->exported_fault ||
			        a->exported_ms < w->faults_end_ms + 30000 ||
			        b->exported_ms < w->faults_end_ms + 30000)
				continue;
			if (apart > AGREE * norm(w, a->result, NULL))
				fsim_fail(w, "agents %d and %d finish %.2g of their length apart",
				        k, i, apart / norm(w, a->result, NULL));
		}
	}
}
