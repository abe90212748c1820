/* SPDX-License-Identifier: MIT */
/* SSP(s) (Ho et al. 2013): a server has the parameters. A worker computes a gradient at its cached
 * copy, sends γ/n·(g + decay), and gets the server's parameters back; it may begin its step c + 1
 * only if c − min c ≤ s, c being the steps that a worker has completed. No momentum: the server
 * adds what comes. With s = 0 and equal speeds this is BSP without momentum. */
#include "agent/simulate/engine.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_UP = 1, TAG_DOWN };

struct ssp {
	float *server;   /* owned, n_total floats */
	uint64_t *clock; /* owned, by agent: steps whose gradient the server has */
	double *lr;      /* owned, by agent: as its step began */
	bool *waits;     /* owned, by agent: for the slowest, or for its parameters */
	bool *fetching;  /* owned, by agent */
};

static void begin(struct sim *s, uint32_t i)
{
	struct ssp *m = sim_state(s);

	m->waits[i] = false;
	m->lr[i] = sim_lr(s);
	sim_step(s, i, FLEET_GRAD);
}

static bool may_begin(const struct sim *s, uint32_t i)
{
	const struct ssp *m = sim_state(s);
	uint64_t least = UINT64_MAX;

	for (uint32_t j = 0; j < sim_agents(s); j++)
		if (sim_live(s, j) && m->clock[j] < least)
			least = m->clock[j];
	return m->clock[i] - least <= (uint64_t)sim_scenario(s)->method.staleness;
}

/* The server answers whoever waited for the slowest; the parameters are those of now. */
static int release(struct sim *s, struct err *e)
{
	struct ssp *m = sim_state(s);
	int rc = 0;

	for (uint32_t i = 0; i < sim_agents(s) && rc == 0; i++) {
		const struct sim_note note = {.tag = TAG_DOWN,
		        .from = sim_server(s),
		        .to = i,
		        .bytes = sim_model_bytes(s)};

		if (!m->waits[i] || m->fetching[i] || !sim_live(s, i) || sim_over_soon(s) ||
		        !may_begin(s, i))
			continue;
		m->fetching[i] = true;
		rc = sim_send(s, &note, false, e);
	}
	return rc;
}

static int stepped(struct sim *s, uint32_t i, const struct fleet_result *r, struct err *e)
{
	const struct sim_note note = {
	        .tag = TAG_UP, .from = i, .to = sim_server(s), .bytes = sim_model_bytes(s)};

	(void)r;
	return sim_send(s, &note, false, e);
}

static void apply(struct sim *s, uint32_t i)
{
	struct ssp *m = sim_state(s);
	const struct arch *a = fleet_arch(sim_fleet(s));
	const float k = (float)(m->lr[i] / sim_n_live(s));
	const float decay = (float)sim_scenario(s)->config.train.optim.weight_decay;
	const float *g = fleet_g(sim_fleet(s), i), *x = fleet_x(sim_fleet(s), i);

	for (size_t j = 0; j < a->n_train; j++)
		m->server[j] -= k * (g[j] + (j < a->n_decay ? decay * x[j] : 0));
	for (size_t j = a->n_train; j < a->n_total; j++) /* running statistics */
		m->server[j] += g[j] / (float)sim_n_live(s);
}

static int noted(struct sim *s, const struct sim_note *n, struct err *e)
{
	struct ssp *m = sim_state(s);
	const size_t bytes = fleet_arch(sim_fleet(s))->n_total * sizeof(float);

	if (n->tag == TAG_UP) {
		apply(s, n->from);
		m->clock[n->from]++;
		m->waits[n->from] = true;
		sim_count(s, 0, 1);
		sim_met(s, n->from);
		return release(s, e);
	}
	m->fetching[n->to] = false;
	if (bytes > 0)
		memcpy(fleet_x(sim_fleet(s), n->to), m->server, bytes);
	if (!sim_over_soon(s))
		begin(s, n->to);
	return 0;
}

/* The server cannot be reached: it waits, and asks again when that changes. */
static void drop(struct sim *s, const struct sim_note *n)
{
	struct ssp *m = sim_state(s);
	const uint32_t i = n->tag == TAG_UP ? n->from : n->to;

	m->waits[i] = true;
	m->fetching[i] = false;
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct ssp *m = sim_state(s);
	uint64_t least = UINT64_MAX;

	if (what == SIM_JOINED) {
		for (uint32_t j = 0; j < sim_agents(s); j++)
			if (j != i && sim_live(s, j) && m->clock[j] < least)
				least = m->clock[j];
		m->clock[i] = least == UINT64_MAX ? 0 : least;
		m->waits[i] = true;
	}
	return release(s, e);
}

static const float *model(struct sim *s)
{
	const struct ssp *m = sim_state(s);

	return m ? m->server : NULL;
}

static int start(struct sim *s, struct err *e)
{
	const uint32_t n = sim_agents(s);
	const size_t floats = fleet_arch(sim_fleet(s))->n_total;
	struct ssp *m = calloc(1, sizeof *m);

	sim_set_state(s, m);
	if (m) {
		m->server = calloc(floats + 1, sizeof *m->server);
		m->clock = calloc(n, sizeof *m->clock);
		m->lr = calloc(n, sizeof *m->lr);
		m->waits = calloc(n, sizeof *m->waits);
		m->fetching = calloc(n, sizeof *m->fetching);
	}
	if (!m || !m->server || !m->clock || !m->lr || !m->waits || !m->fetching)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	if (floats > 0) /* all begin alike */
		memcpy(m->server, fleet_x(sim_fleet(s), 0), floats * sizeof *m->server);
	for (uint32_t i = 0; i < n; i++)
		if (sim_live(s, i) && !sim_over_soon(s))
			begin(s, i);
	return 0;
}

static void stop(struct sim *s)
{
	struct ssp *m = sim_state(s);

	if (m) {
		free(m->server);
		free(m->clock);
		free(m->lr);
		free(m->waits);
		free(m->fetching);
	}
	free(m);
}

const struct sim_method sim_ssp = {
        .name = "ssp",
        .help = "a parameter server with bounded staleness",
        .run_vectors = 1,
        .start = start,
        .stop = stop,
        .stepped = stepped,
        .noted = noted,
        .drop = drop,
        .changed = changed,
        .model = model,
};
