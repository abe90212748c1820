/* SPDX-License-Identifier: MIT */
/* EASGD(τ, α) (Zhang, Choromanska, LeCun 2015), asynchronous: every τ own steps (method.every) an
 * agent sends its model to the server, which moves its centre x̃ towards it by d = α(x_i − x̃), and
 * gets d back; the agent subtracts it. The agent waits for that. The centre is reported. */
#include "agent/simulate/engine.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_UP = 1, TAG_DOWN };

struct easgd {
	float *centre;   /* owned, n_total floats */
	uint64_t *since; /* owned, by agent: own steps since its last exchange */
};

static void go_on(struct sim *s, uint32_t i)
{
	if (sim_live(s, i) && !sim_computes(s, i) && !sim_over_soon(s))
		sim_step(s, i, FLEET_STEP);
}

static int stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	struct easgd *m = sim_state(s);
	const struct sim_note note = {
	        .tag = TAG_UP, .from = i, .to = sim_server(s), .bytes = sim_model_bytes(s)};

	(void)r;
	if (++m->since[i] >= (uint64_t)sim_scenario(s)->method.every) {
		m->since[i] = 0;
		return sim_send(s, &note, false, e);
	}
	go_on(s, i);
	return 0;
}

/* d is the server's to work out: both move here, when the agent's model has arrived. It has not
 * moved meanwhile, since it waits. */
static void exchange(struct sim *s, uint32_t i)
{
	struct easgd *m = sim_state(s);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;
	const float alpha = (float)sim_scenario(s)->method.alpha;
	float *x = fleet_x(sim_fleet(s), i);

	for (size_t k = 0; k < n; k++) {
		const float d = alpha * (x[k] - m->centre[k]);

		x[k] -= d;
		m->centre[k] += d;
	}
}

static int noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	const struct sim_note back = {
	        .tag = TAG_DOWN, .from = n->to, .to = n->from, .bytes = n->bytes};

	if (n->tag == TAG_DOWN) {
		go_on(s, n->to);
		return 0;
	}
	exchange(s, n->from);
	sim_count(s, 0, 1);
	sim_met(s, n->from);
	return sim_send(s, &back, false, e);
}

/* The server cannot be reached: the agent trains on alone. */
static void drop(struct sim *s, const struct sim_note *n)
{
	const uint32_t i = n->tag == TAG_UP ? n->from : n->to;

	if (!sim_over(s))
		go_on(s, i);
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	const struct easgd *m = sim_state(s);
	const size_t n = fleet_arch(sim_fleet(s))->n_total;

	(void)e;
	if (what != SIM_JOINED)
		return 0;
	if (n > 0)
		memcpy(fleet_x(sim_fleet(s), i), m->centre, n * sizeof *m->centre);
	go_on(s, i);
	return 0;
}

static const float *model(struct sim *s)
{
	const struct easgd *m = sim_state(s);

	return m ? m->centre : NULL;
}

static int start(struct sim *s, struct err *e)
{
	const uint32_t n = sim_agents(s);
	const size_t floats = fleet_arch(sim_fleet(s))->n_total;
	struct easgd *m = calloc(1, sizeof *m);

	sim_set_state(s, m);
	if (m) {
		m->since = calloc(n, sizeof *m->since);
		m->centre = calloc(floats + 1, sizeof *m->centre);
	}
	if (!m || !m->since || !m->centre)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	if (floats > 0) /* all begin alike */
		memcpy(m->centre, fleet_x(sim_fleet(s), 0), floats * sizeof *m->centre);
	for (uint32_t i = 0; i < n; i++)
		go_on(s, i);
	return 0;
}

static void stop(struct sim *s)
{
	struct easgd *m = sim_state(s);

	if (m) {
		free(m->since);
		free(m->centre);
	}
	free(m);
}

const struct sim_method sim_easgd = {
        .name = "easgd",
        .help = "elastic averaging with the centre of a parameter server",
        .run_vectors = 1,
        .start = start,
        .stop = stop,
        .stepped = stepped,
        .noted = noted,
        .drop = drop,
        .changed = changed,
        .model = model,
};
