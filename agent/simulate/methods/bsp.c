/* SPDX-License-Identifier: MIT */
/* BSP: all agents compute a gradient at the same parameters, one optimizer applies their mean, by
 * an all-reduce at every step. With n agents and batch b this is one process with batch n·b. */
#include "agent/simulate/methods/collective.h"

#include <stdlib.h>

struct bsp {
	struct collective c;
	struct sim *s;
	uint32_t first;
	double lr; /* as the round began */
};

static void choose(struct sim *s)
{
	struct bsp *b = sim_state(s);

	b->lr = sim_lr(s);
}

static uint64_t cost(struct sim *s)
{
	return collective_allreduce(s);
}

static void copy_one(void *arg, uint32_t i)
{
	const struct bsp *b = arg;

	if (b->c.in[i] && i != b->first)
		fleet_copy(sim_fleet(b->s), i, b->first);
}

static int meet(struct sim *s, struct err *e)
{
	struct bsp *b = sim_state(s);
	struct fleet *f = sim_fleet(s);
	float *mean = malloc((fleet_arch(f)->n_total + 1) * sizeof *mean);
	int rc;

	if (!mean)
		return err_set(e, ERR_NOMEM, "no memory for a gradient");
	for (b->first = 0; !b->c.in[b->first];)
		b->first++;
	fleet_mean_gradient(f, b->c.in, NULL, mean);
	rc = fleet_apply(f, b->first, mean, b->lr, e);
	if (rc == 0)
		fleet_each(f, sim_agents(s), copy_one, b);
	free(mean);
	return rc;
}

static int start(struct sim *s, struct err *e)
{
	struct bsp *b = calloc(1, sizeof *b);

	if (!b)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	b->c = (struct collective){
	        .task = FLEET_GRAD, .cost = cost, .meet = meet, .choose = choose};
	b->s = s;
	return collective_start(s, b, e);
}

const struct sim_method sim_bsp = {
        .name = "bsp",
        .help = "all-reduce of the gradients at every step",
        .run_vectors = 1,
        .start = start,
        .stop = collective_stop,
        .stepped = collective_stepped,
        .noted = collective_noted,
        .drop = collective_drop,
        .changed = collective_changed,
};
