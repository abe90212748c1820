/* SPDX-License-Identifier: MIT */
/* D-PSGD (Lian et al. 2017): an own step, then x_i ← Σ_j w_ij·x_j over the neighbours of a fixed
 * graph. With method.average_first in the paper's order: the gradient at x_i, the average, then
 * the gradient is applied to it. Graphs (method.topology), over the ranks r of the members, in
 * the order of their numbers:
 *
 *     ring             r − 1, r, r + 1, a third each
 *     exponential      r and all r + 2^k, equal weights (Ying et al. 2021)
 *     one_peer         r and r + 2^k, a half each; k moves on by one with each round
 *     complete         all: the mean
 *
 * Every graph but the last is the same offsets for all ranks, so weights sum to 1 both ways and
 * the mean of the models stays. Rounds are those of collective.h: all wait for the slowest, and
 * the exchange follows the step (the paper's order would let it run beside the gradient). Further
 * rounds may follow before the next step: see xi_control.h. */
#include "agent/simulate/methods/collective.h"
#include "agent/simulate/methods/xi_control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIX_PART 512 /* floats that are summed at a time: they stay in the cache */
#define OFFSETS_MAX 16 /* itself and 2^k below SCENARIO_AGENTS_MAX */
_Static_assert(SCENARIO_AGENTS_MAX <= 1 << (OFFSETS_MAX - 1), "an offset for each power of 2");

struct dpsgd {
	struct collective c;
	struct xi_control control;
	struct sim *s;
	bool estimates;    /* control works by the agents' estimate of Ξ */
	double norm;       /* sum of the gradients' norms in this round */
	double *moved;     /* owned, by rank: ‖Σ w_ij x_j − x_i‖² */
	double lr;         /* as the round began */
	uint32_t *member;  /* owned, by rank */
	uint64_t *crosses; /* owned: models out of and into each region in a round */
	float *next;       /* owned, n_total floats for each rank */
	uint32_t n;        /* members */
	uint32_t offset[OFFSETS_MAX], n_offsets;
};

static void choose(struct sim *s)
{
	struct dpsgd *d = sim_state(s);

	d->lr = sim_lr(s);
	d->norm = 0;
}

static bool more(struct sim *s, uint32_t i, const struct fleet_result *r)
{
	struct dpsgd *d = sim_state(s);

	(void)i;
	d->norm += r->grad_norm;
	return false;
}

static uint32_t rounds_of(uint32_t n)
{
	uint32_t k = 0;

	while (1u << k < n)
		k++;
	return k;
}

/* Ranks of the members, and the offsets of this round's neighbours. */
static void connect(struct sim *s)
{
	struct dpsgd *d = sim_state(s);
	const int topology = sim_scenario(s)->method.topology;
	uint32_t powers;

	d->n = 0;
	for (uint32_t i = 0; i < sim_agents(s); i++)
		if (d->c.in[i])
			d->member[d->n++] = i;
	powers = rounds_of(d->n);
	d->n_offsets = 0;
	d->offset[d->n_offsets++] = 0;
	if (topology == TOPOLOGY_RING) {
		if (d->n > 1)
			d->offset[d->n_offsets++] = 1;
		if (d->n > 2)
			d->offset[d->n_offsets++] = d->n - 1;
	} else if (topology == TOPOLOGY_EXPONENTIAL) {
		for (uint32_t k = 0; k < powers; k++)
			d->offset[d->n_offsets++] = 1u << k;
	} else if (powers > 0) {
		d->offset[d->n_offsets++] = 1u << d->c.rounds % powers;
	}
}

/* Models that the busiest trunk of a region carries in one direction. */
static uint64_t crossings(struct dpsgd *d, uint32_t regions)
{
	uint64_t most = 0;

	memset(d->crosses, 0, 2 * (size_t)regions * sizeof *d->crosses);
	for (uint32_t r = 0; r < d->n; r++)
		for (uint32_t k = 1; k < d->n_offsets; k++) {
			const uint32_t to = d->member[r] % regions;
			const uint32_t from = d->member[(r + d->offset[k]) % d->n] % regions;

			d->crosses[2 * from] += from != to;
			d->crosses[2 * to + 1] += from != to;
		}
	for (uint32_t g = 0; g < 2 * regions; g++)
		most = d->crosses[g] > most ? d->crosses[g] : most;
	return most;
}

/* Every member sends its model to each neighbour: d·S/B + λ, or what the trunks need. */
static uint64_t cost(struct sim *s)
{
	struct dpsgd *d = sim_state(s);
	const struct scenario *c = sim_scenario(s);
	const double bytes = (double)sim_model_bytes(s), byte_s = 8 / 1e6;
	const uint32_t regions = (uint32_t)c->network.regions;
	double seconds, trunk_s = 0;

	if (c->method.topology == TOPOLOGY_COMPLETE)
		return collective_allreduce(s);
	connect(s);
	if (d->n < 2)
		return 0;
	for (uint32_t r = 0; r < d->n; r++)
		sim_met(s, d->member[r]);
	seconds = (d->n_offsets - 1) * bytes * byte_s /
	          fmin(c->network.up_mbit, c->network.down_mbit);
	if (regions > 1 && c->network.region_mbit > 0)
		trunk_s = (double)crossings(d, regions) * bytes * byte_s / c->network.region_mbit;
	seconds = fmax(seconds, trunk_s) + c->network.latency_ms / 1000;
	if (regions > 1)
		seconds += c->network.region_latency_ms / 1000;
	sim_count(s, (uint64_t)d->n * (d->n_offsets - 1) * sim_model_bytes(s), 1);
	return (uint64_t)llround(seconds * SIM_S);
}

static void mix_one(void *arg, uint32_t r)
{
	struct dpsgd *d = arg;
	struct fleet *f = sim_fleet(d->s);
	const size_t n = fleet_arch(f)->n_total;
	const double weight = 1.0 / d->n_offsets;
	const float *x[OFFSETS_MAX];
	float *next = d->next + n * r;
	double moved = 0;

	for (uint32_t k = 0; k < d->n_offsets; k++)
		x[k] = fleet_x(f, d->member[(r + d->offset[k]) % d->n]);
	for (size_t from = 0; from < n; from += MIX_PART) {
		const size_t count = n - from < MIX_PART ? n - from : MIX_PART;
		double sum[MIX_PART];

		memset(sum, 0, count * sizeof *sum);
		for (uint32_t k = 0; k < d->n_offsets; k++)
			for (size_t p = 0; p < count; p++)
				sum[p] += (double)x[k][from + p];
		for (size_t p = 0; p < count; p++)
			next[from + p] = (float)(weight * sum[p]);
	}
	for (size_t p = 0; p < fleet_arch(f)->n_train && d->estimates; p++)
		moved += ((double)next[p] - x[0][p]) * ((double)next[p] - x[0][p]);
	d->moved[r] = moved;
}

static void take_one(void *arg, uint32_t r)
{
	struct dpsgd *d = arg;
	const size_t n = fleet_arch(sim_fleet(d->s))->n_total;

	memcpy(fleet_x(sim_fleet(d->s), d->member[r]), d->next + n * r, n * sizeof *d->next);
}

/* p of a graph whose matrix has the same offsets for all ranks: 1 − |λ|², λ the largest of
 * (1/d) Σ_k exp(2πi·offset_k·j/n), j from 1 on. */
static double mixing(const struct dpsgd *d)
{
	const double pi = acos(-1);
	double largest = 0;

	for (uint32_t j = 1; j < d->n; j++) {
		double re = 0, im = 0;

		for (uint32_t k = 0; k < d->n_offsets; k++) {
			const double turn = 2 * pi * d->offset[k] * j / d->n;

			re += cos(turn) / d->n_offsets;
			im += sin(turn) / d->n_offsets;
		}
		largest = fmax(largest, re * re + im * im);
	}
	return 1 - largest;
}

/* Ξ after this round; by estimate, of what went into it. */
static double distance(struct sim *s)
{
	struct dpsgd *d = sim_state(s);
	double sum = 0;

	if (!d->estimates)
		return sim_distance(s);
	if (d->n < 2)
		return 0;
	for (uint32_t r = 0; r < d->n; r++)
		sum += d->moved[r];
	return 2 / mixing(d) * sqrt(sum / d->n);
}

static int meet(struct sim *s, struct err *e)
{
	struct dpsgd *d = sim_state(s);
	const struct scenario *c = sim_scenario(s);
	int rc = 0;

	if (c->method.topology == TOPOLOGY_COMPLETE) {
		rc = collective_average(s, e);
	} else if (c->record.train) {
		connect(s); /* again: a member may have crashed since */
		fleet_each(sim_fleet(s), d->n, mix_one, d);
		fleet_each(sim_fleet(s), d->n, take_one, d);
		if (d->norm > 0)
			xi_control_gradient(s, &d->control, d->norm / d->n);
		d->norm = 0;
		d->c.again =
		        xi_control_measures(s) && xi_control_again(s, &d->control, distance(s));
		if (d->c.again)
			return 0;
	}
	if (rc == 0 && c->method.average_first)
		rc = collective_apply(s, d->lr, e);
	return rc;
}

static double xi_target(struct sim *s)
{
	const struct dpsgd *d = sim_state(s);

	return d ? xi_control_bound(s, &d->control) : NAN;
}

static void check(const struct scenario *s, struct config_problems *p)
{
	const int t = s->method.topology;

	if (s->method.control == CONTROL_NONE)
		return;
	if (t == TOPOLOGY_COMPLETE)
		config_problem(p, 0, "method.control: on a complete graph nothing is left to do");
	if (s->method.control_by == CONTROL_BY_ESTIMATE && t == TOPOLOGY_ONE_PEER)
		config_problem(p, 0,
		        "method.control_by: an estimate needs a graph that stays, such as ring");
}

static void stop(struct sim *s)
{
	struct dpsgd *d = sim_state(s);

	if (d) {
		free(d->member);
		free(d->crosses);
		free(d->next);
		free(d->moved);
	}
	collective_stop(s);
}

static int start(struct sim *s, struct err *e)
{
	const struct scenario *c = sim_scenario(s);
	const size_t n = sim_agents(s), floats = fleet_arch(sim_fleet(s))->n_total;
	struct dpsgd *d = calloc(1, sizeof *d);

	sim_set_state(s, d);
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	d->s = s;
	d->member = calloc(n, sizeof *d->member);
	d->crosses = calloc(2 * (size_t)c->network.regions, sizeof *d->crosses);
	d->next = calloc(n * floats + 1, sizeof *d->next);
	d->moved = calloc(n, sizeof *d->moved);
	d->estimates =
	        c->method.control != CONTROL_NONE && c->method.control_by == CONTROL_BY_ESTIMATE;
	if (!d->member || !d->crosses || !d->next || !d->moved)
		return err_set(e, ERR_NOMEM, "no memory for a method");
	d->c.task = c->method.average_first ? FLEET_GRAD : FLEET_STEP;
	d->c.more = more;
	d->c.cost = cost;
	d->c.meet = meet;
	d->c.choose = choose;
	return collective_start(s, d, e);
}

const struct sim_method sim_dpsgd = {
        .name = "dpsgd",
        .help = "a step, then a weighted mean with the neighbours of a graph",
        .agent_vectors = 1,
        .run_vectors = 1,
        .check = check,
        .start = start,
        .stop = stop,
        .stepped = collective_stepped,
        .noted = collective_noted,
        .drop = collective_drop,
        .changed = collective_changed,
        .controlled = true,
        .xi_target = xi_target,
};
