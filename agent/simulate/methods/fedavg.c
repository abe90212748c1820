/* SPDX-License-Identifier: MIT */
/* FedAvg(C, E) (McMahan et al. 2017), as SelSync compares with it: after E local epochs the models
 * of ⌈C·n⌉ agents, drawn anew each round, are averaged with weights |D_i|, and all take the result.
 * With method.only_chosen the others do not train in that round. An epoch is of the agent's own
 * part; where every agent has all samples, of an n-th of them. */
#include "agent/simulate/methods/collective.h"

#include <math.h>
#include <stdlib.h>

struct fedavg {
	struct collective c;
	bool *chosen;    /* owned, by agent */
	double *weight;  /* owned, by agent */
	uint32_t *order; /* owned */
};

static uint64_t local_steps(const struct sim *s, uint32_t i)
{
	const struct scenario *c = sim_scenario(s);
	const bool all = c->agents.split == SPLIT_IID || c->agents.split == SPLIT_SHARED;
	const double samples =
	        (double)fleet_agent_samples(sim_fleet(s), i) / (all ? (double)c->agents.count : 1);
	const double steps = c->method.local_epochs * samples / (double)c->config.train.batch;

	return steps < 1 ? 1 : (uint64_t)llround(steps);
}

static bool more(struct sim *s, uint32_t i, const struct fleet_result *r)
{
	const struct fedavg *f = sim_state(s);

	(void)r;
	return f->c.round_steps[i] < local_steps(s, i) && !sim_over_soon(s);
}

/* ⌈C·members⌉ of them. */
static void choose(struct sim *s)
{
	struct fedavg *f = sim_state(s);
	const uint32_t n = sim_agents(s);
	uint32_t members = 0, wanted;

	for (uint32_t i = 0; i < n; i++) {
		f->chosen[i] = false;
		if (f->c.in[i])
			f->order[members++] = i;
	}
	wanted = (uint32_t)ceil(sim_scenario(s)->method.fraction * members);
	wanted = wanted > 0 ? wanted : 1;
	if (wanted < members)
		rng_shuffle(sim_rng(s), f->order, members);
	for (uint32_t k = 0; k < wanted && k < members; k++)
		f->chosen[f->order[k]] = true;
	for (uint32_t i = 0; i < n && sim_scenario(s)->method.only_chosen; i++)
		f->c.in[i] = f->c.in[i] && f->chosen[i];
}

/* The chosen ones send their models to a server, which sends one to each live agent; the server's
 * link carries all of them. */
static uint64_t cost(struct sim *s)
{
	const struct fedavg *f = sim_state(s);
	const struct scenario *c = sim_scenario(s);
	const double bytes = (double)sim_model_bytes(s), byte_s = 8 / 1e6;
	double up = 0;

	for (uint32_t i = 0; i < sim_agents(s); i++) {
		up += f->chosen[i] && sim_live(s, i);
		if (f->c.in[i])
			sim_met(s, i);
	}
	const double down = sim_n_live(s);
	const double seconds = fmax(bytes * byte_s / c->network.up_mbit,
	                               up * bytes * byte_s / c->network.server_mbit) +
	                       fmax(bytes * byte_s / c->network.down_mbit,
	                               down * bytes * byte_s / c->network.server_mbit) +
	                       2 * c->network.latency_ms / 1000;

	sim_count(s, (uint64_t)llround((up + down) * bytes), 1);
	return (uint64_t)llround(seconds * SIM_S);
}

static int meet(struct sim *s, struct err *e)
{
	struct fedavg *f = sim_state(s);
	struct fleet *fleet = sim_fleet(s);
	float *mean;
	double sum = 0;

	for (uint32_t i = 0; i < sim_agents(s); i++) {
		f->chosen[i] = f->chosen[i] && f->c.in[i];
		f->weight[i] = f->chosen[i] ? (double)fleet_agent_samples(fleet, i) : 0;
		sum += f->weight[i];
	}
	if (sum <= 0)
		return 0; /* all of them are gone: the round is lost */
	for (uint32_t i = 0; i < sim_agents(s); i++)
		f->weight[i] /= sum;
	mean = malloc((fleet_arch(fleet)->n_total + 1) * sizeof *mean);
	if (!mean)
		return err_set(e, ERR_NOMEM, "no memory for a mean");
	fleet_mean(fleet, f->chosen, f->weight, mean);
	for (uint32_t i = 0; i < sim_agents(s); i++) /* those who did not train take it, too */
		f->c.in[i] = f->c.in[i] || (sim_live(s, i) && !sim_computes(s, i));
	collective_spread(s, mean);
	free(mean);
	return 0;
}

static void stop(struct sim *s)
{
	struct fedavg *f = sim_state(s);

	if (f) {
		free(f->chosen);
		free(f->weight);
		free(f->order);
	}
	collective_stop(s);
}

static int start(struct sim *s, struct err *e)
{
	const uint32_t n = sim_agents(s);
	struct fedavg *f = calloc(1, sizeof *f);

	sim_set_state(s, f);
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	f->chosen = calloc(n, sizeof *f->chosen);
	f->weight = calloc(n, sizeof *f->weight);
	f->order = calloc(n, sizeof *f->order);
	if (!f->chosen || !f->weight || !f->order)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	f->c.task = FLEET_STEP;
	f->c.more = more;
	f->c.cost = cost;
	f->c.meet = meet;
	f->c.choose = choose;
	return collective_start(s, f, e);
}

const struct sim_method sim_fedavg = {
        .name = "fedavg",
        .help = "local epochs, then a weighted mean of some agents' models for all",
        .run_vectors = 1,
        .start = start,
        .stop = stop,
        .stepped = collective_stepped,
        .noted = collective_noted,
        .drop = collective_drop,
        .changed = collective_changed,
};
