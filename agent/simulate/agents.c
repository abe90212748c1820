/* SPDX-License-Identifier: MIT */
/* Who is there, how fast each agent is, and the events of the scenario.
 *
 * Speeds are drawn once, from a stream that nothing else uses: another method has the same fleet. A
 * step's time is known when it begins; a pause moves its end. */
#include "agent/simulate/engine_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define CHURN_IDLE_MAX 100

enum { STREAM_SPEED = 101, STREAM_METHOD, STREAM_AGENT, STREAM_CHURN };

int sim__agents_open(struct sim *s, struct err *e)
{
	const struct scenario *c = s->scenario;
	const uint32_t slow = (uint32_t)llround(c->agents.slow_share * s->n);
	uint32_t *order = malloc(s->n * sizeof *order);
	struct rng r;

	if (!order)
		return err_set(e, ERR_NOMEM, "no memory for %u agents", s->n);
	rng_seed(&r, s->options.seed, STREAM_SPEED);
	rng_seed(&s->rng, s->options.seed, STREAM_METHOD);
	rng_seed(&s->churn, s->options.seed, STREAM_CHURN);
	for (uint32_t i = 0; i < s->n; i++) {
		struct sim_agent *a = &s->agent[i];

		a->step_ms = c->agents.step_ms;
		if (c->agents.speed == SPEED_UNIFORM)
			a->step_ms *= 1 + c->agents.spread * (2 * rng_f64(&r) - 1);
		else if (c->agents.speed == SPEED_LOGNORMAL)
			a->step_ms *= exp(c->agents.spread * rng_normal(&r));
		a->slow = 1;
		rng_seed(&a->rng, rng_mix(s->options.seed, i, 0), STREAM_AGENT);
		order[i] = i;
		a->live = s->live[i] = i < s->n - (uint32_t)c->agents.absent;
		s->n_live += a->live;
	}
	rng_shuffle(&r, order, s->n);
	for (uint32_t k = 0; k < slow; k++)
		s->agent[order[k]].step_ms *= c->agents.slow_factor;
	free(order);
	return 0;
}

bool sim_live(const struct sim *s, uint32_t i)
{
	return s->agent[i].live;
}

bool sim_paused(const struct sim *s, uint32_t i)
{
	return s->agent[i].paused;
}

bool sim_bad(const struct sim *s, uint32_t i)
{
	return s->agent[i].bad;
}

bool sim_computes(const struct sim *s, uint32_t i)
{
	return s->agent[i].computing;
}

uint32_t sim_n_live(const struct sim *s)
{
	return s->n_live;
}

const bool *sim_live_set(const struct sim *s)
{
	return s->live;
}

bool sim_reaches(const struct sim *s, uint32_t a, uint32_t b)
{
	const struct sim_agent *x = &s->agent[a == s->n ? 0 : a];
	const struct sim_agent *y = &s->agent[b == s->n ? 0 : b];

	return (a == s->n || x->live) && (b == s->n || y->live) && x->side == y->side;
}

bool sim_whole(const struct sim *s)
{
	uint32_t side = 0;
	bool first = true;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct sim_agent *a = &s->agent[i];

		if (!a->live)
			continue;
		if (a->paused || (!first && a->side != side))
			return false;
		side = a->side;
		first = false;
	}
	return true;
}

struct rng *sim_rng(struct sim *s)
{
	return &s->rng;
}

struct rng *sim_agent_rng(struct sim *s, uint32_t i)
{
	return &s->agent[i].rng;
}

uint64_t sim_steps(const struct sim *s, uint32_t i)
{
	return s->agent[i].steps;
}

void sim_step(struct sim *s, uint32_t i, enum fleet_task task)
{
	struct sim_agent *a = &s->agent[i];
	const double noise = s->scenario->agents.noise;
	const uint64_t micros =
	        fleet_step_samples(s->fleet, i) / (uint64_t)s->scenario->config.train.batch;
	double ms = a->step_ms * a->slow * (double)micros;

	assert(a->live && !a->computing);
	if (noise > 0)
		ms *= 1 + noise * (2 * rng_f64(&a->rng) - 1);
	a->step_us = (ms * 1000 < 1 ? 1 : (uint64_t)llround(ms * 1000)) + s->injected_us;
	a->step_end_us = s->now_us + a->step_us;
	if (a->paused)
		a->step_end_us = a->paused_until_us + a->step_us;
	a->computing = true;
	a->task = task;
	s->n_computing++;
	fleet_begin(s->fleet, i, task, sim_lr(s));
	sim__push(s, a->step_end_us, SIM_STEP, i, ++a->turn);
}

static int gone(struct sim *s, uint32_t i, enum sim_change what, struct err *e)
{
	struct sim_agent *a = &s->agent[i];
	struct err unused;

	if (!a->live)
		return 0;
	if (a->computing && fleet_wait(s->fleet, i, NULL, &unused)) {
		/* whatever it was: the agent is gone */
	}
	s->n_computing -= a->computing;
	a->live_us += s->now_us - a->since_us;
	a->live = a->computing = a->paused = s->live[i] = false;
	a->turn++;
	a->pause++;
	s->n_live--;
	sim__drop_unreachable(s);
	return sim__membership(s, i, what, e);
}

static int join(struct sim *s, uint32_t i, struct err *e)
{
	struct sim_agent *a = &s->agent[i];

	if (a->live)
		return 0;
	a->live = s->live[i] = true;
	a->since_us = s->now_us;
	a->side = 0;
	s->n_live++;
	fleet_copy(s->fleet, i, -1);
	return sim__membership(s, i, SIM_JOINED, e);
}

int sim__replace(struct sim *s, uint32_t i, struct err *e)
{
	s->agent[i].bad = false; /* it is another machine */
	s->agent[i].slow = 1;
	return join(s, i, e);
}

/* The time after which nothing has been trained for so long that nothing will be is an end too: the
 * loop finds an empty queue then. */
int sim__churn(struct sim *s, bool begin, struct err *e)
{
	const struct scenario *c = s->scenario;
	uint32_t *order, n = 0;
	int rc = 0;

	if (c->agents.churn_every_s <= 0)
		return 0;
	s->churn_idle = s->steps == s->churn_steps ? s->churn_idle + 1 : 0;
	s->churn_steps = s->steps;
	if (s->churn_idle > CHURN_IDLE_MAX)
		return 0;
	sim__push(
	        s, s->now_us + (uint64_t)llround(c->agents.churn_every_s * SIM_S), SIM_CHURN, 0, 0);
	order = begin ? NULL : malloc(s->n * sizeof *order);
	if (begin || !order)
		return begin ? 0 : err_set(e, ERR_NOMEM, "no memory for %u agents", s->n);
	for (uint32_t i = 0; i < s->n; i++)
		if (s->live[i])
			order[n++] = i;
	rng_shuffle(&s->churn, order, n);
	/* Somebody stays. */
	const uint32_t wanted = (uint32_t)llround(c->agents.churn_share * n);

	for (uint32_t k = 0; k < wanted && k + 1 < n && rc == 0; k++) {
		rc = gone(s, order[k], SIM_CRASHED, e);
		sim__push(s, s->now_us + (uint64_t)llround(c->agents.churn_gap_s * SIM_S),
		        SIM_REPLACE, order[k], 0);
	}
	free(order);
	return rc;
}

static int pause_agent(struct sim *s, uint32_t i, double for_s, struct err *e)
{
	struct sim_agent *a = &s->agent[i];
	const uint64_t until = s->now_us + (uint64_t)llround(for_s * SIM_S);
	const uint64_t from = a->paused ? a->paused_until_us : s->now_us;

	if (!a->live || until <= from)
		return 0;
	if (a->computing) {
		a->step_end_us += until - from;
		sim__push(s, a->step_end_us, SIM_STEP, i, ++a->turn);
	}
	a->paused = true;
	a->paused_until_us = until;
	sim__push(s, until, SIM_RESUME, i, ++a->pause);
	return sim__membership(s, i, SIM_PAUSED, e);
}

int sim__resume(struct sim *s, uint32_t i, struct err *e)
{
	s->agent[i].paused = false;
	return sim__membership(s, i, SIM_RESUMED, e);
}

static int part_or_heal(struct sim *s, const struct scenario_event *v, struct err *e)
{
	for (uint32_t i = 0; i < s->n; i++)
		s->agent[i].side = 0;
	for (uint32_t k = 0; k < v->n_agents; k++)
		s->agent[v->agents[k]].side = 1;
	sim__drop_unreachable(s);
	return sim__membership(s, v->n_agents ? v->agents[0] : 0,
	        v->what == EVENT_HEAL ? SIM_HEALED : SIM_PARTED, e);
}

static int one(struct sim *s, const struct scenario_event *v, uint32_t i, struct err *e)
{
	struct sim_agent *a = &s->agent[i];

	switch (v->what) {
	case EVENT_JOIN:
		return join(s, i, e);
	case EVENT_LEAVE:
		return gone(s, i, SIM_LEFT, e);
	case EVENT_CRASH:
		return gone(s, i, SIM_CRASHED, e);
	case EVENT_PAUSE:
		return pause_agent(s, i, v->for_s, e);
	case EVENT_SLOW:
		a->slow = v->factor;
		return sim__membership(s, i, SIM_SLOWED, e);
	case EVENT_BAD:
		a->bad = true;
		a->noise = v->factor;
		return sim__membership(s, i, SIM_TURNED_BAD, e);
	case EVENT_PARTITION:
	case EVENT_HEAL:
		break;
	}
	return 0;
}

int sim__event(struct sim *s, const struct scenario_event *v, struct err *e)
{
	int rc = 0;

	if (v->what == EVENT_PARTITION || v->what == EVENT_HEAL)
		return part_or_heal(s, v, e);
	for (uint32_t k = 0; k < v->n_agents && rc == 0; k++)
		rc = one(s, v, v->agents[k], e);
	return rc;
}

const float *sim_sent(struct sim *s, uint32_t i, const float *x, float *room)
{
	const size_t n = fleet_arch(s->fleet)->n_total;
	double squares = 0;

	if (!s->agent[i].bad || !x)
		return x;
	for (size_t j = 0; j < n; j++)
		squares += (double)x[j] * (double)x[j];
	const double scale = s->agent[i].noise * sqrt(squares / (double)n);

	for (size_t j = 0; j < n; j++)
		room[j] = (float)(scale * rng_normal(&s->agent[i].rng));
	return room;
}
