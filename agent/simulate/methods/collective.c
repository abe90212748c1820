/* SPDX-License-Identifier: MIT */
/* Rounds and meetings; see collective.h. Every agent has a place:
 *
 *     OUT ─join─► FETCHING ─► READY ─round begins─► RUNS ─step ends─► WAITS ─meeting─► READY
 *                                                     └──crash──► LOST ─timeout─► OUT
 *
 * A joiner whose donor is gone SEEKS another one. A meeting begins when nobody runs or is lost, and
 * all live agents reach each other. */
#include "agent/simulate/methods/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_MEET = 1, TAG_TIMEOUT, TAG_FETCHED };

uint32_t collective_members(const struct sim *s)
{
	const struct collective *c = sim_state(s);
	uint32_t n = 0;

	for (uint32_t i = 0; i < sim_agents(s); i++)
		n += c->in[i];
	return n;
}

static int begin_round(struct sim *s)
{
	struct collective *c = sim_state(s);
	const uint32_t n = sim_agents(s);

	c->meeting = false;
	if (sim_over(s))
		return 0;
	for (uint32_t i = 0; i < n; i++)
		c->in[i] = sim_live(s, i) && c->place[i] == COLLECTIVE_READY;
	if (c->choose)
		c->choose(s);
	for (uint32_t i = 0; i < n; i++) {
		if (!c->in[i])
			continue;
		c->place[i] = COLLECTIVE_RUNS;
		c->round_steps[i] = 0;
		sim_step(s, i, c->task);
	}
	return 0;
}

/* The meeting, if everybody is there for it. */
static int try_meeting(struct sim *s, struct err *e)
{
	struct collective *c = sim_state(s);
	const struct sim_note note = {.tag = TAG_MEET, .from = sim_server(s)};
	uint32_t waiting = 0;

	if (c->meeting)
		return 0;
	for (uint32_t i = 0; i < sim_agents(s); i++) {
		if (c->place[i] == COLLECTIVE_RUNS || c->place[i] == COLLECTIVE_LOST)
			return 0;
		waiting += c->place[i] == COLLECTIVE_WAITS;
	}
	if (waiting == 0)
		return begin_round(s);
	if (!sim_whole(s))
		return 0;
	c->meeting = true;
	return sim_timer(s, c->cost(s), &note, e);
}

static int end_meeting(struct sim *s, struct err *e)
{
	struct collective *c = sim_state(s);
	int rc = collective_members(s) > 0 ? c->meet(s, e) : 0;
	int64_t donor = -1;

	c->rounds++;
	if (rc == 0 && c->again) {
		c->again = c->meeting = false;
		return try_meeting(s, e);
	}
	for (uint32_t i = 0; i < sim_agents(s); i++) {
		if (c->place[i] == COLLECTIVE_WAITS) {
			c->place[i] = COLLECTIVE_READY;
			donor = donor < 0 ? (int64_t)i : donor;
		}
	}
	for (uint32_t i = 0; i < sim_agents(s) && donor >= 0; i++)
		if (c->place[i] == COLLECTIVE_READY && !c->in[i] && c->round_steps[i] == UINT64_MAX)
			fleet_copy(sim_fleet(s), i, donor);
	return rc ? rc : begin_round(s);
}

int collective_start(struct sim *s, void *state, struct err *e)
{
	struct collective *c = state;
	const uint32_t n = sim_agents(s);

	sim_set_state(s, state);
	c->in = calloc(n, sizeof *c->in);
	c->round_steps = calloc(n, sizeof *c->round_steps);
	c->place = calloc(n, sizeof *c->place);
	if (!c->in || !c->round_steps || !c->place)
		return err_set(e, ERR_NOMEM, "no memory for the rounds");
	for (uint32_t i = 0; i < n; i++)
		c->place[i] = sim_live(s, i) ? COLLECTIVE_READY : COLLECTIVE_OUT;
	return begin_round(s);
}

void collective_stop(struct sim *s)
{
	struct collective *c = sim_state(s);

	if (!c)
		return;
	free(c->in);
	free(c->round_steps);
	free(c->place);
	free(c);
}

int collective_stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	struct collective *c = sim_state(s);

	c->round_steps[i]++;
	if (c->more && c->more(s, i, r)) {
		sim_step(s, i, c->task);
		return 0;
	}
	c->place[i] = COLLECTIVE_WAITS;
	return try_meeting(s, e);
}

static int fetched(struct sim *s, uint32_t i, struct err *e)
{
	struct collective *c = sim_state(s);

	c->place[i] = COLLECTIVE_READY;
	c->round_steps[i] = UINT64_MAX; /* its state is still to be copied */
	return try_meeting(s, e);
}

int collective_noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	struct collective *c = sim_state(s);

	if (n->tag == TAG_MEET)
		return end_meeting(s, e);
	if (n->tag == TAG_FETCHED)
		return fetched(s, n->to, e);
	if (c->place[n->to] == COLLECTIVE_LOST)
		c->place[n->to] = COLLECTIVE_OUT;
	return try_meeting(s, e);
}

/* From the first agent that has the run's state. If there is none, the joiner begins anew. */
static int joined(struct sim *s, uint32_t i, struct err *e)
{
	struct collective *c = sim_state(s);

	for (uint32_t j = 0; j < sim_agents(s); j++) {
		const struct sim_note note = {
		        .tag = TAG_FETCHED, .from = j, .to = i, .bytes = 2 * sim_model_bytes(s)};

		if (j == i || !sim_reaches(s, j, i) || c->place[j] < COLLECTIVE_READY)
			continue;
		c->place[i] = COLLECTIVE_FETCHING;
		return sim_send(s, &note, false, e);
	}
	c->place[i] = COLLECTIVE_READY;
	return try_meeting(s, e);
}

void collective_drop(struct sim *s, const struct sim_note *n)
{
	struct collective *c = sim_state(s);

	if (n->tag == TAG_FETCHED)
		c->place[n->to] = COLLECTIVE_SEEKS;
}

int collective_changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct collective *c = sim_state(s);
	const struct sim_note note = {.tag = TAG_TIMEOUT, .from = sim_server(s), .to = i};
	const double timeout_s = sim_scenario(s)->method.timeout_s;
	int rc = 0;

	for (uint32_t j = 0; j < sim_agents(s) && rc == 0; j++)
		if (c->place[j] == COLLECTIVE_SEEKS && sim_live(s, j) && j != i)
			rc = joined(s, j, e);
	if (rc)
		return rc;
	switch (what) {
	case SIM_JOINED:
		return joined(s, i, e);
	case SIM_LEFT:
	case SIM_CRASHED:
		c->in[i] = false;
		if (what == SIM_CRASHED && !c->meeting &&
		        (c->place[i] == COLLECTIVE_RUNS || c->place[i] == COLLECTIVE_WAITS)) {
			c->place[i] = COLLECTIVE_LOST;
			return sim_timer(s, (uint64_t)llround(timeout_s * SIM_S), &note, e);
		}
		c->place[i] = COLLECTIVE_OUT;
		return try_meeting(s, e);
	case SIM_RESUMED:
	case SIM_HEALED:
	case SIM_PARTED:
		return try_meeting(s, e);
	case SIM_PAUSED:
	case SIM_SLOWED:
	case SIM_TURNED_BAD:
		break;
	}
	return 0;
}

uint64_t collective_allreduce(struct sim *s)
{
	const struct collective *c = sim_state(s);

	for (uint32_t i = 0; i < sim_agents(s); i++)
		if (c->in[i])
			sim_met(s, i);
	return sim_allreduce_model(s);
}

struct spread {
	struct sim *s;
	const float *x;
	size_t bytes;
};

static void spread_one(void *arg, uint32_t i)
{
	const struct spread *p = arg;
	const struct collective *c = sim_state(p->s);

	if (c->in[i])
		memcpy(fleet_x(sim_fleet(p->s), i), p->x, p->bytes);
}

void collective_spread(struct sim *s, const float *x)
{
	struct fleet *f = sim_fleet(s);
	struct spread p = {s, x, fleet_arch(f)->n_total * sizeof *x};

	if (sim_scenario(s)->record.train)
		fleet_each(f, sim_agents(s), spread_one, &p);
}

int collective_average(struct sim *s, struct err *e)
{
	const struct collective *c = sim_state(s);
	struct fleet *f = sim_fleet(s);
	float *mean = malloc((fleet_arch(f)->n_total + 1) * sizeof *mean);

	if (!mean)
		return err_set(e, ERR_NOMEM, "no memory for a mean");
	fleet_mean(f, c->in, NULL, mean);
	collective_spread(s, mean);
	free(mean);
	return 0;
}

int collective_apply(struct sim *s, double lr, struct err *e)
{
	const struct collective *c = sim_state(s);
	struct fleet *f = sim_fleet(s);
	int rc = 0;

	for (uint32_t i = 0; i < sim_agents(s) && rc == 0; i++)
		if (c->in[i])
			rc = fleet_apply(f, i, fleet_g(f, i), lr, e);
	return rc;
}
