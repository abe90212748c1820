/* SPDX-License-Identifier: MIT */
/* SelSync(δ) (Tyagi, Swany 2023) with its collective: each agent smooths the squared norm of its
 * gradients, e ← (1 − a)·e + a·‖g‖² (method.smoothing), and raises a flag where the relative
 * change Δ = |e − e'|/e' is at least δ (method.delta). The flags are all-reduced after every
 * step; one flag, and all take the mean of the parameters. An agent's first gradient has Δ = 0:
 * there is nothing to compare it with. With method.average_first the gradient is applied after
 * the average, as the authors' scripts do. Their SelDP, all samples in an order of each agent's
 * own, is agents.split iid.
 *
 * With method.gate_noise the gate sees e^(sd·N(0, 1)) in place of ‖g‖², drawn anew for each step:
 * what it does where nothing ever changes. The trace has every ‖g‖² that it sees, and Δ. */
#include "agent/simulate/methods/collective.h"

#include <math.h>
#include <stdlib.h>

#define FLAG_BYTES 1

struct selsync {
	struct collective c;
	double lr;      /* as the round began */
	double *smooth; /* owned, by agent: e; below 0: no gradient yet */
	bool *flag;     /* owned, by agent: of this round */
	bool average;   /* one of them was raised */
	int rc;         /* of the trace */
};

static void choose(struct sim *s)
{
	struct selsync *y = sim_state(s);

	y->lr = sim_lr(s);
}

/* Every round is one step; its gradient raises the flag or not. */
static bool more(struct sim *s, uint32_t i, const struct fleet_result *r)
{
	struct selsync *y = sim_state(s);
	const double a = sim_scenario(s)->method.smoothing;
	const double noise = sim_scenario(s)->method.gate_noise;
	const double before = y->smooth[i];
	double square = r->grad_norm * r->grad_norm, change = 0;
	int rc;

	if (noise > 0)
		square = exp(noise * rng_normal(sim_agent_rng(s, i)));
	if (before < 0) {
		y->smooth[i] = square;
	} else {
		y->smooth[i] = (1 - a) * before + a * square;
		if (before > 0)
			change = fabs(y->smooth[i] - before) / before;
	}
	y->flag[i] = change >= sim_scenario(s)->method.delta;
	rc = sim_trace(s, "gate", "\"agent\":%u,\"square\":%.9g,\"change\":%.9g", i, square,
	        change);
	y->rc = y->rc ? y->rc : rc;
	return false;
}

static uint64_t cost(struct sim *s)
{
	struct selsync *y = sim_state(s);
	uint64_t total, us = sim_allreduce(s, FLAG_BYTES, &total);

	sim_count(s, total, 0);
	y->average = false;
	for (uint32_t i = 0; i < sim_agents(s); i++)
		y->average = y->average || (y->c.in[i] && y->flag[i]);
	return us + (y->average ? collective_allreduce(s) : 0);
}

static int meet(struct sim *s, struct err *e)
{
	const struct selsync *y = sim_state(s);
	int rc = y->average ? collective_average(s, e) : 0;

	if (y->rc)
		return err_set(e, y->rc, "the trace cannot be written");
	if (rc == 0 && sim_scenario(s)->method.average_first)
		rc = collective_apply(s, y->lr, e);
	return rc;
}

static int changed(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct selsync *y = sim_state(s);

	if (what == SIM_JOINED)
		y->smooth[i] = -1;
	return collective_changed(s, i, what, e);
}

static void check(const struct scenario *s, struct config_problems *p)
{
	if (!s->record.train)
		config_problem(p, 0, "method: selsync decides by gradients: it needs record.train");
}

static void stop(struct sim *s)
{
	struct selsync *y = sim_state(s);

	if (y) {
		free(y->smooth);
		free(y->flag);
	}
	collective_stop(s);
}

static int start(struct sim *s, struct err *e)
{
	const uint32_t n = sim_agents(s);
	struct selsync *y = calloc(1, sizeof *y);

	sim_set_state(s, y);
	if (!y)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	y->smooth = calloc(n, sizeof *y->smooth);
	y->flag = calloc(n, sizeof *y->flag);
	if (!y->smooth || !y->flag)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	for (uint32_t i = 0; i < n; i++)
		y->smooth[i] = -1;
	y->c.task = sim_scenario(s)->method.average_first ? FLEET_GRAD : FLEET_STEP;
	y->c.more = more;
	y->c.cost = cost;
	y->c.meet = meet;
	y->c.choose = choose;
	return collective_start(s, y, e);
}

const struct sim_method sim_selsync = {
        .name = "selsync",
        .help = "all average when the gradient of one has changed enough",
        .run_vectors = 1,
        .check = check,
        .start = start,
        .stop = stop,
        .stepped = collective_stepped,
        .noted = collective_noted,
        .drop = collective_drop,
        .changed = changed,
};
