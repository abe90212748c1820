/* SPDX-License-Identifier: MIT */
/* AD-PSGD (Lian et al. 2018): an agent computes a gradient at a snapshot of its model, averages its
 * model with a random peer's, whatever the peer is doing, and then applies the gradient.
 *
 *     i:  gradient at the snapshot ── sends x_i ──► j: x_i, x_j ← their mean ──► i: applies, next
 *
 * Both move at once when x_i has arrived, so the sum is kept; i waits for the answer. If either
 * transfer is lost, the gradient is too. The fleet's x is the snapshot while a gradient is under
 * way, so Ξ of the record lacks what peers have changed since then; the mean does not. */
#include "agent/simulate/methods/xi_control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_UP = 1, TAG_DOWN };

struct adpsgd {
	struct xi_control control;
	float *x;    /* owned, n_total floats for each agent: the models */
	double *lr;  /* owned, by agent: as its step began */
	float *mean; /* owned, n_total floats: room for model */
};

static float *model_of(struct sim *s, uint32_t i)
{
	struct adpsgd *m = sim_state(s);

	return m->x + fleet_arch(sim_fleet(s))->n_total * i;
}

static void show(struct sim *s, uint32_t i)
{
	const size_t n = fleet_arch(sim_fleet(s))->n_total;

	if (n > 0)
		memcpy(fleet_x(sim_fleet(s), i), model_of(s, i), n * sizeof(float));
}

static void begin(struct sim *s, uint32_t i)
{
	struct adpsgd *m = sim_state(s);

	if (!sim_live(s, i) || sim_computes(s, i) || sim_over_soon(s))
		return;
	show(s, i);
	m->lr[i] = sim_lr(s);
	sim_step(s, i, FLEET_GRAD);
}

static int apply(struct sim *s, uint32_t i, struct err *e)
{
	const struct adpsgd *m = sim_state(s);
	struct fleet *f = sim_fleet(s);
	const size_t n = fleet_arch(f)->n_total;
	int rc;

	show(s, i);
	rc = fleet_apply(f, i, fleet_g(f, i), m->lr[i], e);
	if (n > 0)
		memcpy(model_of(s, i), fleet_x(f, i), n * sizeof(float));
	if (rc == 0)
		begin(s, i);
	return rc;
}

static int meet(struct sim *s, uint32_t i, struct err *e)
{
	struct sim_note note = {.tag = TAG_UP, .from = i, .bytes = sim_model_bytes(s)};
	uint32_t others = 0, k;

	for (uint32_t j = 0; j < sim_agents(s); j++)
		others += j != i && sim_reaches(s, i, j);
	if (others == 0)
		return apply(s, i, e);
	k = (uint32_t)rng_below(sim_agent_rng(s, i), others);
	for (uint32_t j = 0; j < sim_agents(s); j++)
		if (j != i && sim_reaches(s, i, j) && k-- == 0)
			note.to = j;
	return sim_send(s, &note, true, e);
}

static int stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	struct adpsgd *m = sim_state(s);

	xi_control_gradient(s, &m->control, r->grad_norm);
	return meet(s, i, e);
}

static const float *model(struct sim *s);

/* Ξ of the models, which the fleet's are not while gradients are under way. */
static double distance(struct sim *s)
{
	const struct adpsgd *m = sim_state(s);
	const struct arch *a = fleet_arch(sim_fleet(s));
	const size_t n = a->n_total;
	const float *mean = model(s);
	double sum = 0;

	for (uint32_t i = 0; i < sim_agents(s) && mean; i++)
		for (size_t k = 0; k < a->n_train && sim_live(s, i); k++) {
			const double d = (double)m->x[n * i + k] - (double)mean[k];

			sum += d * d;
		}
	return sqrt(sum / sim_n_live(s));
}

static void average(struct sim *s, uint32_t i, uint32_t j)
{
	const size_t n = fleet_arch(sim_fleet(s))->n_total;
	float *x = model_of(s, i), *y = model_of(s, j);

	for (size_t k = 0; k < n; k++)
		x[k] = y[k] = 0.5f * (x[k] + y[k]);
	if (!sim_computes(s, i))
		show(s, i);
	if (!sim_computes(s, j))
		show(s, j);
}

static int noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	const struct sim_note back = {
	        .tag = TAG_DOWN, .from = n->to, .to = n->from, .bytes = n->bytes};

	struct adpsgd *m = sim_state(s);

	if (n->tag == TAG_DOWN && xi_control_measures(s) && !sim_over_soon(s) &&
	        xi_control_again(s, &m->control, distance(s)))
		return meet(s, n->to, e);
	if (n->tag == TAG_DOWN)
		return apply(s, n->to, e);
	average(s, n->from, n->to);
	sim_count(s, 0, 1);
	sim_met(s, n->from);
	sim_met(s, n->to);
	return sim_send(s, &back, true, e);
}

static void drop(struct sim *s, const struct sim_note *n)
{
	if (!sim_over(s))
		begin(s, n->tag == TAG_UP ? n->from : n->to);
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	const size_t n = fleet_arch(sim_fleet(s))->n_total;

	(void)e;
	if (what != SIM_JOINED)
		return 0;
	for (uint32_t j = 0; j < sim_agents(s); j++) {
		if (j == i || !sim_reaches(s, i, j))
			continue;
		if (n > 0)
			memcpy(model_of(s, i), model_of(s, j), n * sizeof(float));
		break;
	}
	begin(s, i);
	return 0;
}

static const float *model(struct sim *s)
{
	struct adpsgd *m = sim_state(s);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;

	if (!m || !m->x || !m->mean || sim_n_live(s) == 0)
		return NULL;
	for (size_t k = 0; k < n; k++) {
		double sum = 0;

		for (uint32_t i = 0; i < sim_agents(s); i++)
			sum += sim_live(s, i) ? m->x[n * i + k] : 0;
		m->mean[k] = (float)(sum / sim_n_live(s));
	}
	return m->mean;
}

static double xi_target(struct sim *s)
{
	const struct adpsgd *m = sim_state(s);

	return m ? xi_control_bound(s, &m->control) : NAN;
}

static int start(struct sim *s, struct err *e)
{
	const size_t n = sim_agents(s), floats = fleet_arch(sim_fleet(s))->n_total;
	struct adpsgd *m = calloc(1, sizeof *m);

	sim_set_state(s, m);
	if (m) {
		m->x = calloc(n * floats + 1, sizeof *m->x);
		m->mean = calloc(floats + 1, sizeof *m->mean);
		m->lr = calloc(n, sizeof *m->lr);
	}
	if (!m || !m->x || !m->mean || !m->lr)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	for (uint32_t i = 0; i < n; i++)
		if (floats > 0)
			memcpy(model_of(s, i), fleet_x(sim_fleet(s), i), floats * sizeof *m->x);
	for (uint32_t i = 0; i < n; i++)
		begin(s, i);
	return 0;
}

static void stop(struct sim *s)
{
	struct adpsgd *m = sim_state(s);

	if (m) {
		free(m->x);
		free(m->mean);
		free(m->lr);
	}
	free(m);
}

const struct sim_method sim_adpsgd = {
        .name = "adpsgd",
        .help = "a gradient at a snapshot, the mean with a random peer, then the step",
        .agent_vectors = 1,
        .run_vectors = 1,
        .start = start,
        .stop = stop,
        .stepped = stepped,
        .noted = noted,
        .drop = drop,
        .changed = changed,
        .controlled = true,
        .xi_target = xi_target,
        .model = model,
};
