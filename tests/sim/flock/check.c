/* SPDX-License-Identifier: MIT */
/* The truth about each exchange, and what must hold after every event. */
#include "tests/sim/flock/flock_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXCHANGE_MAX_MS 120000 /* no exchange takes longer: every wait has a deadline */
#define AGREE 1e-3
#define STALE_MOST 0.6 /* of the way of the optimum */
#define TOGETHER_MS 60000
#define MERGE_STRIKES 4
#define BACK_MS 30000

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
	if (liar_said(w, a->exchange) && i != w->liar)
		fsim_fail(w, "agent %d applies what a liar sent", i);
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

/* A liar's pull is passed on by those whom it has pulled. */
static void met(struct fsim *w, int i, int with)
{
	struct fsim_agent *a = &w->agent[i];
	const struct fsim_agent *b = &w->agent[with];
	a->met_ms[with] = w->now_ms;
	if (liar_is_odd(w, with))
		a->pulled_ms = w->now_ms;
	else if (b->pulled_ms > a->pulled_ms)
		a->pulled_ms = b->pulled_ms;
}

void check_result(struct fsim *w, int i, const struct exchange_result *r)
{
	struct fsim_truth *t;
	int s;
	if (r->outcome == OUTCOME_EXCHANGED)
		w->exchanges++;
	bool together = r->outcome == OUTCOME_EXCHANGED && !r->final;
	w->trained_together += together;
	w->last_exchanged += together && i == w->n - 1;
	w->lattices += r->outcome == OUTCOME_EXCHANGED && r->format >= FSIM_MOD8;
	if (r->outcome == OUTCOME_EXCHANGED && r->format >= FSIM_MOD8 && !fsim_packs(w, i))
		fsim_fail(w, "agent %d exchanges in a format that it cannot pack", i);
	w->one_sided += r->outcome == OUTCOME_ONE_SIDED;
	if (r->outcome != OUTCOME_EXCHANGED && r->outcome != OUTCOME_ONE_SIDED) {
		if (r->moved)
			fsim_fail(w, "agent %d has moved, and calls the exchange %s", i,
			        exchange_outcome_text(r->outcome));
		return;
	}
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
	if (r->outcome == OUTCOME_EXCHANGED && !t->applied[!s])
		fsim_fail(w, "agent %d calls an exchange done that its partner has not applied", i);
	if (r->outcome == OUTCOME_EXCHANGED)
		met(w, i, world_find(w, &r->peer));
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
	for (int s = 0; s < 4 && a->kind == FLOCK_DO_LEFT; s++)
		if (g->owner[s] != OWNER_NONE || g->readers > 0)
			fsim_fail(w, "agent %d has left while its memory is in use", i);
	if (a->kind == FLOCK_DO_RELEASE && a->slot == SLOT_FETCHED)
		memset(g->from, 0, sizeof g->from);
	if (a->kind == FLOCK_DO_RELEASE && a->slot == SLOT_DONATED && g->readers > 0)
		fsim_fail(w, "agent %d gives up a state that joiners still read", i);
}

/* A state that is adopted is whole: every number has come, and the optimizer's vectors are of one
 * donor's state. Parameters may be of two that are near each other. */
void check_adopts(struct fsim *w, int i)
{
	const struct fsim_agent *g = &w->agent[i];
	for (int k = 0; k < FSIM_VECTORS * w->params; k++)
		if (g->from[k] == 0 || (k >= w->params && g->from[k] != g->from[w->params])) {
			fsim_fail(w, "agent %d adopts a state in parts", i);
			return;
		}
}

void check_trains(struct fsim *w, int i)
{
	enum flock_phase p = (enum flock_phase)w->agent[i].phase;
	if (p != FLOCK_TRAINING)
		fsim_fail(w, "agent %d trains while it is %s", i, flock_phase_text(p));
}

/* Who leaves in peace has written what it should. */
void check_left(struct fsim *w, int i)
{
	const struct fsim_agent *g = &w->agent[i];
	const struct fsim_checkpoint *c = &g->disk.now;
	bool unsaved = flock_unsaved(g->core);
	if (g->exit_code == 0 && !unsaved && g->finished && !g->exported)
		fsim_fail(w, "agent %d leaves as if it had written a result", i);
	/* A finished agent still helps others to merge: its result is what it had before. */
	bool anything = (g->toy.step > 0 || g->adoptions > 0) && !g->finished;
	if (g->exit_code == 0 && !g->was_full && anything &&
	        (!c->there || c->step != g->toy.step ||
	                memcmp(c->state, g->toy.x, (size_t)w->params * sizeof(float)) != 0))
		fsim_fail(w, "agent %d leaves without a checkpoint of what it has", i);
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

/* Nobody lies but one, whose own judgement is worth nothing: its core does not know that its offers
 * are changed on their way, and holds an honest answer to them against the peer.
 * But a peer that has come back with an older state cannot be told from one that never
 * moves; and when two flocks have just met, a state of one is no model of the other. */
static void check_quarantines(struct fsim *w, int i, const struct flock_view *v)
{
	bool parted = w->agent[i].parted;
	if (i == w->liar)
		return;
	for (uint32_t k = 0; v->quarantined > 0 && k < partners_count(v->partners); k++) {
		const struct partner *p = partners_get(v->partners, k);
		int who = world_find(w, &p->id);
		bool back = w->now_ms < w->agent[who].began_ms + BACK_MS &&
		            w->agent[who].life > 1 && strstr(p->reason, "something else");
		bool met = parted && strstr(p->reason, "gave a state");
		if (p->quarantines > w->agent[i].judged[who] && !back && !met && who != w->liar)
			fsim_fail(w, "agent %d has quarantined %d, which is honest: %s", i, who,
			        p->reason);
		w->agent[i].judged[who] = p->quarantines;
	}
}

/* A liar's word counts for a little; and once more after each start from a checkpoint. */
static double clock_most(const struct fsim *w)
{
	uint32_t lives = 0;
	for (int i = 0; i < w->n; i++)
		lives = w->agent[i].life > lives ? w->agent[i].life : lives;
	return (double)w->trained + (w->liar < 0 ? 0 : lives * FSIM_STALE * (double)w->total);
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
	if (v.counts.adoptions > g->adoptions || v.counts.adoptions + 1 < g->adoptions)
		fsim_fail(w, "agent %d has adopted %llu states, and says %llu", i,
		        (unsigned long long)g->adoptions, (unsigned long long)v.counts.adoptions);
	if ((double)v.clock > clock_most(w))
		fsim_fail(w, "agent %d: the run's clock says %llu, and %llu samples are trained", i,
		        (unsigned long long)v.clock, (unsigned long long)w->trained);
	rules_step(w, i, e, &v);
	check_quarantines(w, i, &v);
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

/* Of two flocks the smaller follows: fewer agents, or as many and fewer samples. */
void check_said(struct fsim *w, int i, const struct flock_say *s)
{
	struct fsim_agent *g = &w->agent[i];
	if (s->code == SAY_JOINS || s->code == SAY_STALE || (s->code == SAY_APART && s->flag))
		g->may_join = true;
	g->joins = g->joins || s->code == SAY_JOINS;
	if (s->code == SAY_PHASE) {
		if (g->joins && s->a != FLOCK_JOINING && s->a != FLOCK_LEAVING)
			fsim_fail(w, "agent %d does not join, as it has said", i);
		g->joins = false;
		g->phase = (uint8_t)s->a;
		g->finished = g->finished || s->a == FLOCK_FINISHED;
		if (s->a == FLOCK_JOINING && !g->may_join)
			fsim_fail(w, "agent %d joins, and has not said why", i);
		g->may_join = g->may_join && s->a != FLOCK_JOINING;
	}
	if (s->code == SAY_PHASE && s->a == FLOCK_MERGING)
		w->agent[i].merging_ms = w->now_ms;
	if (s->code == SAY_JOIN_TAKEN && liar_gave(w, i) > 0) {
		w->spoiled = true; /* by a few numbers nobody can tell */
		if (liar_gave(w, i) == FSIM_VECTORS * w->params) /* its trial does, at least */
			fsim_fail(w, "agent %d takes a liar's state", i);
	}
	if (s->code == SAY_JOIN_OTHER_DONOR)
		g->mixes = s->flag;
	if (s->code == SAY_ALL_UNLIKE && i != w->stranger && w->n_faults == 0)
		fsim_fail(w, "agent %d ends for one stranger", i);
	if (s->code == SAY_NO_RESULT)
		w->no_results++;
	if (s->code != SAY_APART)
		return;
	w->met += s->flag;
	bool smaller = s->c < s->a || (s->c == s->a && s->d < s->b);
	bool larger = s->c > s->a || (s->c == s->a && s->d > s->b);
	if (s->flag ? larger : smaller)
		fsim_fail(w, "agent %d: the larger of two flocks follows", i);
}

double check_distance(const struct fsim *w, const float *x, const float *y)
{
	double sum = 0;
	for (int p = 0; p < w->params; p++) {
		double d = (double)x[p] - (y ? (double)y[p] : 0);
		sum += d * d;
	}
	return sqrt(sum);
}

/* A result is a model of the run's end, whoever trained it: the optimum moves with the clock. */
static void check_stale(struct fsim *w, int i)
{
	float end[FSIM_PARAMS];
	for (int p = 0; p < w->params; p++)
		end[p] = toy_optimum(w, p, w->total);
	double off = check_distance(w, w->agent[i].result, end);
	double way = check_distance(w, w->way, NULL);
	/* Flocks that meet just before the end have had no time to come together. */
	if (w->now_ms < w->together_ms + TOGETHER_MS || w->setup.still || liar_is_odd(w, i))
		return;
	if (off > STALE_MOST * way)
		fsim_fail(w, "agent %d exports a model that is %.2f of the run's way off", i,
		        off / way);
}

void check_exported(struct fsim *w, int i)
{
	struct fsim_agent *g = &w->agent[i];
	struct flock_view v;
	flock_view(g->core, &v);
	g->exported = true;
	g->exported_ms = w->now_ms;
	memcpy(g->met_then_ms, g->met_ms, sizeof g->met_ms);
	g->in_time = w->now_ms - g->merging_ms < FSIM_MERGE_MS;
	bool well = w->n_faults == 0 && w->liar < 0 && w->cap <= 0 && w->peer_rate > 10;
	for (int k = 0; k < w->n; k++) /* many are often engaged */
		well = well && w->agent[k].dialable && w->n <= 4;
	if (!g->in_time && well)
		fsim_fail(w, "agent %d merges until time is up, and nothing was wrong", i);
	g->exported_fault = w->faults_changed;
	g->knew = 0;
	for (int k = 0; k < w->n; k++) {
		struct member_view m;
		const struct partner *p = partners_find(v.partners, &w->agent[k].id);
		/* One that has failed too often is not waited for. */
		if (gossip_find(flock_membership(g->core), &w->agent[k].id, &m) &&
		        !(p && p->strikes >= MERGE_STRIKES))
			g->knew |= 1u << k;
	}
	memcpy(g->result, g->toy.x, sizeof g->result);
	check_stale(w, i);
}

/* ---- at the end */

/* Without training, only adoptions and exchanges that one side alone applied change the sum. */
static void check_sum(struct fsim *w)
{
	double most = 0;
	for (int p = 0; p < w->params; p++) {
		double sum = -w->sum[p];
		for (int i = 0; i < w->n; i++)
			sum += (double)w->agent[i].toy.x[p];
		for (uint32_t k = 0; k < w->n_truths; k++) {
			const struct fsim_truth *t = &w->truth[k];
			int s = t->applied[1], group = (size_t)p >= w->group_end[0];
			if (t->applied[0] != t->applied[1])
				sum -= (double)t->k[s][group] * (double)t->d[s][p];
		}
		most = fabs(sum) > most ? fabs(sum) : most;
	}
	if (most > 1e-4 * w->n)
		fsim_fail(w, "the sum over all agents has changed by %.2g", most);
}

/* A stranger learns that it is one from those that it can ask. */
static bool stranger_can_know(const struct fsim *w)
{
	bool all = w->n_faults == 0;
	for (int i = 0; i < w->n; i++)
		all = all && (i == w->stranger || w->agent[i].dialable);
	return all;
}

void check_end(struct fsim *w)
{
	bool knows = w->stranger < 0 || stranger_can_know(w);
	uint64_t quiet_ms = w->n_faults == 0 ? 0 : w->faults_end_ms + 30000;
	check_truths(w);
	/* All together train the run once, and a little more while the news spreads. */
	if (w->occurred == 0 && knows && (double)w->trained > 1.5 * (double)w->total)
		fsim_fail(w, "%.2f times as much is trained as the run is long",
		        (double)w->trained / (double)w->total);
	if (w->setup.still)
		check_sum(w);
	if (w->stranger >= 0 && knows && w->agent[w->stranger].exit_code != ERR_MISMATCH)
		fsim_fail(w, "the stranger %d does not end", w->stranger);
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
			double apart = check_distance(w, a->result, b->result);
			uint64_t between = a->exported_ms > b->exported_ms
			                           ? a->exported_ms - b->exported_ms
			                           : b->exported_ms - a->exported_ms;
			/* Those who cannot meet need not agree, nor one that a liar has pulled
			 * since the other, which wrote its result then, last met it: that one
			 * had reason to think that they agree. */
			bool a_first = a->exported_ms < b->exported_ms;
			if (a_first ? b->pulled_ms > a->met_then_ms[k]
			            : a->pulled_ms > b->met_then_ms[i])
				continue;
			if (liar_is_odd(w, i) || liar_is_odd(w, k) || !(a->knew >> k & 1) ||
			        !(b->knew >> i & 1) || (!a->dialable && !b->dialable))
				continue;
			if (!a->in_time || !b->in_time || between > 2000 ||
			        a->exported_fault != b->exported_fault ||
			        a->exported_ms < quiet_ms || b->exported_ms < quiet_ms)
				continue;
			if (apart > AGREE * check_distance(w, a->result, NULL))
				fsim_fail(w, "agents %d and %d finish %.2g of their length apart",
				        k, i, apart / check_distance(w, a->result, NULL));
		}
	}
}
