/* SPDX-License-Identifier: MIT */
/* When to gossip again; see xi_control.h. */
#include "agent/simulate/methods/xi_control.h"

#include <math.h>
#include <stdlib.h>

#define PHI_SHARE 0.05 /* of the newest gradients in φ */

static bool in_phase(const struct sim *s)
{
	const struct scenario *c = sim_scenario(s);
	const double done = sim_done(s);

	return done >= c->method.control_from &&
	       (done < c->method.control_to || c->method.control_to >= 1);
}

bool xi_control_measures(const struct sim *s)
{
	return sim_scenario(s)->method.control != CONTROL_NONE && in_phase(s);
}

void xi_control_gradient(struct sim *s, struct xi_control *c, double mean_norm)
{
	if (sim_scenario(s)->method.control == CONTROL_GRADIENT)
		c->phi = c->phi > 0 ? c->phi + PHI_SHARE * (mean_norm - c->phi) : mean_norm;
	c->rounds = 0;
}

double xi_control_bound(struct sim *s, const struct xi_control *c)
{
	const struct scenario *o = sim_scenario(s);

	if (!xi_control_measures(s) || o->method.control == CONTROL_MEASURE)
		return NAN;
	if (o->method.control == CONTROL_SHARE)
		return o->method.control_factor * o->method.control_max;
	return c->phi > 0 ? o->method.control_factor * c->phi : NAN;
}

bool xi_control_again(struct sim *s, struct xi_control *c, double xi)
{
	const double bound = xi_control_bound(s, c);

	if (xi > bound && c->rounds < CONTROL_ROUNDS_MAX) {
		c->rounds++;
		return true;
	}
	sim_measured(s, xi);
	return false;
}

/* ---- agents that go their own ways */

int xi_control_open(struct sim *s, struct xi_control *c, struct err *e)
{
	c->moved = true;
	c->held = calloc(sim_agents(s), sizeof *c->held);
	return c->held ? 0 : err_set(e, ERR_NOMEM, "no memory for a method");
}

void xi_control_close(struct xi_control *c)
{
	free(c->held);
	c->held = NULL;
}

void xi_control_gone(struct xi_control *c, uint32_t i)
{
	c->n_held -= c->held[i];
	c->held[i] = false;
	c->moved = true;
}

static bool is_near(struct sim *s, struct xi_control *c)
{
	if (c->moved)
		c->near = !xi_control_again(s, c, sim_distance(s));
	c->moved = false;
	return c->near;
}

static void release(struct sim *s, struct xi_control *c)
{
	for (uint32_t i = 0; i < sim_agents(s) && c->n_held > 0; i++) {
		if (!c->held[i])
			continue;
		c->held[i] = false;
		c->n_held--;
		if (!sim_over_soon(s))
			sim_step(s, i, FLEET_STEP);
	}
}

int xi_control_wake(struct sim *s, struct xi_control *c, struct err *e)
{
	bool any = false;
	int rc = 0;

	if (c->n_held == 0)
		return 0;
	if (sim_over_soon(s) || !xi_control_measures(s) || is_near(s, c)) {
		release(s, c);
		return 0;
	}
	for (uint32_t i = 0; i < sim_agents(s) && rc == 0; i++)
		if (c->held[i] && !c->busy(s, i))
			rc = c->exchange(s, i, e);
	for (uint32_t i = 0; i < sim_agents(s) && !any; i++)
		any = sim_live(s, i) && c->busy(s, i);
	if (rc == 0 && !any)
		release(s, c);
	return rc;
}

int xi_control_step(struct sim *s, struct xi_control *c, uint32_t i, struct err *e)
{
	c->moved = true;
	if (sim_over_soon(s))
		return xi_control_wake(s, c, e);
	if (!xi_control_measures(s) || is_near(s, c)) {
		sim_step(s, i, FLEET_STEP);
		return xi_control_wake(s, c, e);
	}
	c->held[i] = true;
	c->n_held++;
	return xi_control_wake(s, c, e);
}
