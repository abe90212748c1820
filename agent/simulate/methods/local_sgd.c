/* SPDX-License-Identifier: MIT */
/* Local SGD(H): H own steps (method.every), then every agent takes the mean of the parameters.
 * Momentum stays the agent's own. */
#include "agent/simulate/methods/collective.h"

#include <stdlib.h>

static bool more(struct sim *s, uint32_t i, const struct fleet_result *r)
{
	const struct collective *c = sim_state(s);

	(void)r;
	return c->round_steps[i] < (uint64_t)sim_scenario(s)->method.every && !sim_over_soon(s);
}

static uint64_t cost(struct sim *s)
{
	return collective_allreduce(s);
}

static int start(struct sim *s, struct err *e)
{
	struct collective *c = calloc(1, sizeof *c);

	if (!c)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	*c = (struct collective){
	        .task = FLEET_STEP, .more = more, .cost = cost, .meet = collective_average};
	return collective_start(s, c, e);
}

const struct sim_method sim_local_sgd = {
        .name = "local_sgd",
        .help = "own steps, then the mean of the parameters",
        .run_vectors = 1,
        .start = start,
        .stop = collective_stop,
        .stepped = collective_stepped,
        .noted = collective_noted,
        .drop = collective_drop,
        .changed = collective_changed,
};
