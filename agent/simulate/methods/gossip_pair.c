/* SPDX-License-Identifier: MIT */
/* Gossip by pairs (Jin, Yuan, Iandola, Keutzer 2016, with symmetric moves and overlapped
 * application): every method.every own steps an agent asks a random peer; both take a snapshot
 * between two of their steps, both send it, and once both have arrived each adds β·(other − own
 * snapshot) between two steps. Training goes on meanwhile. Moves are equal and opposite: the sum of
 * the parameters is conserved.
 *
 *     i: step ─ snapshot ──── steps ──────────────── adds ─ step
 *          └ asks, a round trip ┐   both transfers ┘
 *     j: step ─ step ───── snapshot ─ step ───────── adds ─ step
 *
 * An agent is in one exchange at a time. A peer that is in another is not asked; the wish stays
 * and is tried after the next step. While its distance is controlled (xi_control.h) it is tried
 * after the next exchange, too. */
#include "agent/simulate/methods/xi_control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ASKED = 1, TAG_ARRIVED };

struct side {
	bool busy;     /* in an exchange */
	bool owes;     /* a snapshot, between its next two steps */
	bool snapped;  /* it has taken it */
	bool received; /* the other's is here */
	bool ready;    /* both are: to be added between its next two steps */
	uint32_t peer;
	uint64_t since;  /* own steps since it last began an exchange */
	float *snapshot; /* owned, n_total floats; kept from one exchange to the next */
	float *other;    /* owned, the same: what the peer sent */
};

struct pairs {
	struct xi_control control;
	struct side *side; /* owned, by agent */
};

static struct side *side_of(struct sim *s, uint32_t i)
{
	struct pairs *p = sim_state(s);

	return &p->side[i];
}

static struct xi_control *control_of(struct sim *s)
{
	struct pairs *p = sim_state(s);

	return &p->control;
}

static void give_up(struct sim *s, uint32_t i)
{
	struct side *a = side_of(s, i);

	a->busy = a->owes = a->snapped = a->received = a->ready = false;
}

static int send_one(struct sim *s, uint32_t from, uint32_t to, struct err *e)
{
	const struct sim_note note = {
	        .tag = TAG_ARRIVED, .from = from, .to = to, .bytes = sim_model_bytes(s)};

	return sim_send(s, &note, true, e);
}

/* Between two steps of i. Once both have one, both send it. */
static int snapshot(struct sim *s, uint32_t i, struct err *e)
{
	struct side *a = side_of(s, i), *b = side_of(s, a->peer);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;
	int rc;

	a->owes = false;
	a->snapped = true;
	if (n > 0 && !a->snapshot) {
		a->snapshot = malloc(n * sizeof *a->snapshot);
		a->other = malloc(n * sizeof *a->other);
		if (!a->snapshot || !a->other)
			return err_set(e, ERR_NOMEM, "no memory for a snapshot");
	}
	if (n > 0)
		memcpy(a->snapshot, fleet_x(sim_fleet(s), i), n * sizeof *a->snapshot);
	if (!b->snapped)
		return 0;
	sim_count(s, 0, 1);
	rc = send_one(s, i, a->peer, e);
	return rc ? rc : send_one(s, a->peer, i, e);
}

static int begin(struct sim *s, uint32_t i, uint32_t j, struct err *e)
{
	struct side *a = side_of(s, i), *b = side_of(s, j);
	const struct sim_note note = {.tag = TAG_ASKED, .from = i, .to = j};
	int rc;

	a->since = 0;
	a->busy = b->busy = true;
	a->peer = j;
	b->peer = i;
	rc = snapshot(s, i, e);
	return rc ? rc : sim_timer(s, 2 * sim_latency(s, i, j), &note, e);
}

/* A uniformly drawn peer that is free; -1: the drawn one is not. */
static int64_t draw(struct sim *s, uint32_t i)
{
	const uint32_t n = sim_agents(s);
	uint32_t others = 0, k;

	for (uint32_t j = 0; j < n; j++)
		others += j != i && sim_reaches(s, i, j);
	if (others == 0)
		return -1;
	k = (uint32_t)rng_below(sim_agent_rng(s, i), others);
	for (uint32_t j = 0; j < n; j++)
		if (j != i && sim_reaches(s, i, j) && k-- == 0)
			return side_of(s, j)->busy ? -1 : (int64_t)j;
	return -1;
}

static void add(struct sim *s, uint32_t i)
{
	struct side *a = side_of(s, i);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;
	const float beta = (float)sim_scenario(s)->method.beta;
	float *x = fleet_x(sim_fleet(s), i);

	for (size_t k = 0; k < n; k++)
		x[k] += beta * (a->other[k] - a->snapshot[k]);
	control_of(s)->moved = true;
	sim_met(s, i);
	give_up(s, i);
}

static bool busy(struct sim *s, uint32_t i)
{
	return side_of(s, i)->busy;
}

static int exchange(struct sim *s, uint32_t i, struct err *e)
{
	const int64_t j = draw(s, i);

	return j < 0 ? 0 : begin(s, i, (uint32_t)j, e);
}

/* What an agent does between two steps. */
static int between(struct sim *s, uint32_t i, struct err *e)
{
	struct side *a = side_of(s, i);
	int rc = 0;

	if (a->ready)
		add(s, i);
	if (a->owes)
		rc = snapshot(s, i, e);
	if (rc == 0 && !a->busy && a->since >= (uint64_t)sim_scenario(s)->method.every)
		rc = exchange(s, i, e);
	return rc;
}

static int stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	int rc;

	side_of(s, i)->since++;
	xi_control_gradient(s, control_of(s), r->grad_norm);
	rc = between(s, i, e);
	return rc ? rc : xi_control_step(s, control_of(s), i, e);
}

/* Both ends have what the other sent: each keeps a copy, and adds it when it can. */
static int arrived(struct sim *s, const struct sim_note *n, struct err *e)
{
	struct side *a = side_of(s, n->to), *b = side_of(s, n->from);
	const size_t bytes = fleet_arch(sim_fleet(s))->n_total * sizeof(float);
	int rc = 0;

	a->received = true;
	if (!b->received)
		return 0;
	if (bytes > 0) {
		float *room_a = a->other, *room_b = b->other;
		const float *sent_b = sim_sent(s, n->from, b->snapshot, room_a);
		const float *sent_a = sim_sent(s, n->to, a->snapshot, room_b);

		if (sent_b != room_a)
			memcpy(room_a, sent_b, bytes);
		if (sent_a != room_b)
			memcpy(room_b, sent_a, bytes);
	}
	a->ready = b->ready = true;
	if (!sim_computes(s, n->to))
		rc = between(s, n->to, e);
	if (rc == 0 && !sim_computes(s, n->from))
		rc = between(s, n->from, e);
	return rc;
}

static int take_note(struct sim *s, const struct sim_note *n, struct err *e)
{
	if (n->tag == TAG_ARRIVED)
		return arrived(s, n, e);
	struct side *b = side_of(s, n->to);

	if (!sim_reaches(s, n->from, n->to) || !b->busy || b->peer != n->from) {
		give_up(s, n->from);
		return 0;
	}
	b->owes = true;
	return sim_computes(s, n->to) ? 0 : between(s, n->to, e);
}

static int noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	int rc = take_note(s, n, e);

	return rc ? rc : xi_control_wake(s, control_of(s), e);
}

/* Lost before both had arrived: nobody moves. */
static void drop(struct sim *s, const struct sim_note *n)
{
	if (n->from < sim_agents(s))
		give_up(s, n->from);
	give_up(s, n->to);
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct side *a = side_of(s, i);
	int64_t donor = -1;

	if (what == SIM_LEFT || what == SIM_CRASHED) {
		xi_control_gone(control_of(s), i);
		if (a->busy && !a->ready && side_of(s, a->peer)->peer == i)
			give_up(s, a->peer);
		give_up(s, i);
	}
	if (what != SIM_JOINED)
		return xi_control_wake(s, control_of(s), e);
	for (uint32_t j = 0; j < sim_agents(s) && donor < 0; j++)
		if (j != i && sim_reaches(s, i, j) && !sim_computes(s, j))
			donor = j;
	for (uint32_t j = 0; j < sim_agents(s) && donor < 0; j++)
		if (j != i && sim_reaches(s, i, j))
			donor = j;
	if (donor >= 0)
		fleet_settle(sim_fleet(s));
	fleet_copy(sim_fleet(s), i, donor);
	a->since = 0;
	return xi_control_step(s, control_of(s), i, e);
}

static int start(struct sim *s, struct err *e)
{
	const uint32_t n = sim_agents(s);
	struct pairs *p = calloc(1, sizeof *p);

	if (p)
		p->side = calloc(n, sizeof *p->side);
	sim_set_state(s, p);
	if (!p || !p->side)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	p->control.busy = busy;
	p->control.exchange = exchange;
	if (xi_control_open(s, &p->control, e))
		return e->code;
	/* Phases are spread, or all would exchange at the same step. */
	for (uint32_t i = 0; i < n; i++) {
		p->side[i].since =
		        rng_below(sim_agent_rng(s, i), (uint64_t)sim_scenario(s)->method.every);
		if (sim_live(s, i) && !sim_over_soon(s))
			sim_step(s, i, FLEET_STEP);
	}
	return 0;
}

static double xi_target(struct sim *s)
{
	return sim_state(s) ? xi_control_bound(s, control_of(s)) : NAN;
}

static void stop(struct sim *s)
{
	struct pairs *p = sim_state(s);

	for (uint32_t i = 0; p && p->side && i < sim_agents(s); i++) {
		free(p->side[i].snapshot);
		free(p->side[i].other);
	}
	if (p) {
		xi_control_close(&p->control);
		free(p->side);
	}
	free(p);
}

const struct sim_method sim_gossip_pair = {
        .name = "gossip_pair",
        .help = "with a random peer, both move",
        .agent_vectors = 2,
        .start = start,
        .stop = stop,
        .stepped = stepped,
        .noted = noted,
        .drop = drop,
        .changed = changed,
        .controlled = true,
        .xi_target = xi_target,
};
