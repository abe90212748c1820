/* SPDX-License-Identifier: MIT */
/* Gossip one way (Jin, Yuan, Iandola, Keutzer 2016): every method.every own steps an agent draws a
 * random peer. Pull: it asks for the peer's model and moves itself. Push: it sends its own, and the
 * peer moves. The receiver sets x ← (1 − β)·x + β·y between two of its steps; a model leaves
 * between two steps of its sender. Training goes on meanwhile.
 *
 *     pull, i:  asks ─ latency ─► j: between two steps ── transfer ──► i: between two steps
 *     push, i:  ──────────────────────────────────────── transfer ──► j: between two steps
 *
 * An agent has one exchange of its own under way at a time. The sum of the models is kept only on
 * average, over the draws. */
#include "agent/simulate/methods/xi_control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ASKED = 1, TAG_ARRIVED };

struct parcel {
	struct parcel *next; /* in an inbox, owned */
	uint32_t began;      /* the agent whose exchange it is */
	float x[];           /* n_total */
};

struct side {
	bool busy;            /* with an exchange that it began */
	uint32_t asks;        /* pull: number + 1 of the peer that owes it a model; 0: none */
	uint64_t since;       /* own steps since it last began an exchange */
	struct parcel *inbox; /* owned: arrived, the oldest first */
};

struct ways {
	struct xi_control control;
	bool push;
	struct side *side; /* owned, by agent */
};

static struct side *side_of(struct sim *s, uint32_t i)
{
	struct ways *w = sim_state(s);

	return &w->side[i];
}

static struct xi_control *control_of(struct sim *s)
{
	struct ways *w = sim_state(s);

	return &w->control;
}

static bool busy(struct sim *s, uint32_t i)
{
	return side_of(s, i)->busy;
}

static void empty(struct side *a)
{
	while (a->inbox) {
		struct parcel *p = a->inbox;

		a->inbox = p->next;
		free(p);
	}
}

static int send_model(struct sim *s, uint32_t from, uint32_t to, uint32_t began, struct err *e)
{
	const size_t bytes = fleet_arch(sim_fleet(s))->n_total * sizeof(float);
	struct parcel *p = calloc(1, sizeof *p + bytes);
	const struct sim_note note = {
	        .tag = TAG_ARRIVED, .from = from, .to = to, .bytes = sim_model_bytes(s), .arg = p};
	int rc;

	if (!p)
		return err_set(e, ERR_NOMEM, "no memory for a model on its way");
	p->began = began;
	if (bytes > 0) {
		const float *x = sim_sent(s, from, fleet_x(sim_fleet(s), from), p->x);

		if (x != p->x)
			memcpy(p->x, x, bytes);
	}
	rc = sim_send(s, &note, true, e);
	if (rc)
		free(p);
	return rc;
}

static int64_t draw(struct sim *s, uint32_t i)
{
	uint32_t others = 0, k;

	for (uint32_t j = 0; j < sim_agents(s); j++)
		others += j != i && sim_reaches(s, i, j);
	if (others == 0)
		return -1;
	k = (uint32_t)rng_below(sim_agent_rng(s, i), others);
	for (uint32_t j = 0; j < sim_agents(s); j++)
		if (j != i && sim_reaches(s, i, j) && k-- == 0)
			return j;
	return -1;
}

static int begin(struct sim *s, uint32_t i, struct err *e)
{
	const struct ways *w = sim_state(s);
	struct side *a = side_of(s, i);
	const int64_t j = draw(s, i);
	const struct sim_note note = {.tag = TAG_ASKED, .from = i, .to = (uint32_t)j};

	if (j < 0)
		return 0;
	a->since = 0;
	a->busy = true;
	if (w->push)
		return send_model(s, i, (uint32_t)j, i, e);
	return sim_timer(s, sim_latency(s, i, (uint32_t)j), &note, e);
}

static void take(struct sim *s, uint32_t i)
{
	struct side *a = side_of(s, i);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;
	const float beta = (float)sim_scenario(s)->method.beta;
	float *x = fleet_x(sim_fleet(s), i);

	control_of(s)->moved = control_of(s)->moved || a->inbox;
	for (const struct parcel *p = a->inbox; p; p = p->next) {
		for (size_t k = 0; k < n; k++)
			x[k] += beta * (p->x[k] - x[k]);
		sim_met(s, i);
	}
	empty(a);
}

/* What an agent does between two steps: takes what has come, then sends what it owes. */
static int between(struct sim *s, uint32_t i, struct err *e)
{
	int rc = 0;

	take(s, i);
	for (uint32_t k = 0; k < sim_agents(s) && rc == 0; k++) {
		if (side_of(s, k)->asks != i + 1)
			continue;
		side_of(s, k)->asks = 0;
		rc = send_model(s, i, k, k, e);
	}
	return rc;
}

static int stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	struct side *a = side_of(s, i);
	int rc;

	a->since++;
	xi_control_gradient(s, control_of(s), r->grad_norm);
	rc = between(s, i, e);
	if (rc == 0 && !a->busy && a->since >= (uint64_t)sim_scenario(s)->method.every)
		rc = begin(s, i, e);
	return rc ? rc : xi_control_step(s, control_of(s), i, e);
}

static int take_note(struct sim *s, const struct sim_note *n, struct err *e)
{
	struct side *a = side_of(s, n->to);
	struct parcel *p = n->arg, **last = &a->inbox;

	if (n->tag == TAG_ASKED) {
		if (sim_reaches(s, n->from, n->to))
			side_of(s, n->from)->asks = n->to + 1;
		else
			side_of(s, n->from)->busy = false;
	} else {
		sim_count(s, 0, 1);
		side_of(s, p->began)->busy = false;
		while (*last)
			last = &(*last)->next;
		*last = p;
	}
	return !sim_live(s, n->to) || sim_computes(s, n->to) ? 0 : between(s, n->to, e);
}

static int noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	int rc = take_note(s, n, e);

	return rc ? rc : xi_control_wake(s, control_of(s), e);
}

static void drop(struct sim *s, const struct sim_note *n)
{
	struct parcel *p = n->arg;

	side_of(s, p ? p->began : n->from)->busy = false;
	free(p);
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct side *a = side_of(s, i);
	int64_t donor = -1;

	if (what == SIM_LEFT || what == SIM_CRASHED) {
		xi_control_gone(control_of(s), i);
		for (uint32_t k = 0; k < sim_agents(s); k++)
			if (side_of(s, k)->asks == i + 1) {
				side_of(s, k)->asks = 0;
				side_of(s, k)->busy = false;
			}
		empty(a);
		a->asks = 0;
		a->busy = false;
	}
	if (what != SIM_JOINED)
		return xi_control_wake(s, control_of(s), e);
	for (uint32_t j = 0; j < sim_agents(s) && donor < 0; j++)
		if (j != i && sim_reaches(s, i, j))
			donor = j;
	if (donor >= 0)
		fleet_settle(sim_fleet(s));
	fleet_copy(sim_fleet(s), i, donor);
	a->since = 0;
	return xi_control_step(s, control_of(s), i, e);
}

static int start_way(struct sim *s, bool push, struct err *e)
{
	const uint32_t n = sim_agents(s);
	struct ways *w = calloc(1, sizeof *w);

	if (w)
		w->side = calloc(n, sizeof *w->side);
	sim_set_state(s, w);
	if (!w || !w->side)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	w->push = push;
	w->control.busy = busy;
	w->control.exchange = begin;
	if (xi_control_open(s, &w->control, e))
		return e->code;
	/* Phases are spread, or all would exchange at the same step. */
	for (uint32_t i = 0; i < n; i++) {
		w->side[i].since =
		        rng_below(sim_agent_rng(s, i), (uint64_t)sim_scenario(s)->method.every);
		if (sim_live(s, i) && !sim_over_soon(s))
			sim_step(s, i, FLEET_STEP);
	}
	return 0;
}

static int start_pull(struct sim *s, struct err *e)
{
	return start_way(s, false, e);
}

static int start_push(struct sim *s, struct err *e)
{
	return start_way(s, true, e);
}

static double xi_target(struct sim *s)
{
	return sim_state(s) ? xi_control_bound(s, control_of(s)) : NAN;
}

static void stop(struct sim *s)
{
	struct ways *w = sim_state(s);

	for (uint32_t i = 0; w && w->side && i < sim_agents(s); i++)
		empty(&w->side[i]);
	if (w) {
		xi_control_close(&w->control);
		free(w->side);
	}
	free(w);
}

#define WAY(name_, help_, start_)                                                                \
	{                                                                                        \
		.name = name_, .help = help_, .agent_vectors = 2, .start = start_, .stop = stop, \
		.stepped = stepped, .noted = noted, .drop = drop, .changed = changed,            \
		.controlled = true, .xi_target = xi_target,                                      \
	}
const struct sim_method sim_gossip_pull =
        WAY("gossip_pull", "takes a random peer's model, and moves alone", start_pull);
const struct sim_method sim_gossip_push =
        WAY("gossip_push", "sends its model to a random peer, which moves alone", start_push);
