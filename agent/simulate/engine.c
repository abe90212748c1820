/* SPDX-License-Identifier: MIT */
/* The loop: takes the next entry of the queue, sets the clock to its time, and does what it says.
 *
 * The happy path: the method starts the agents; steps end, notes arrive, and the method goes on,
 * until the run's clock is full and nothing is under way. What can fail: training that leaves the
 * finite numbers, memory, the trace; and a run in which nothing more happens, because all agents
 * are gone or wait for one that is. */
#include "agent/simulate/engine_internal.h"

#include "agent/base/exit_code.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define METHOD(name) extern const struct sim_method sim_##name;
#include "agent/simulate/sim_methods.h"

const struct sim_method *const sim_methods[] = {
#define METHOD(name) &sim_##name,
#include "agent/simulate/sim_methods.h"
};
const char *const sim_method_names[] = {
#define METHOD(name) #name,
#include "agent/simulate/sim_methods.h"
        NULL};

void sim_set_state(struct sim *s, void *state)
{
	s->state = state;
}

void *sim_state(const struct sim *s)
{
	return s->state;
}

const struct scenario *sim_scenario(const struct sim *s)
{
	return s->scenario;
}

struct fleet *sim_fleet(const struct sim *s)
{
	return s->fleet;
}

uint64_t sim_now(const struct sim *s)
{
	return s->now_us;
}

uint32_t sim_agents(const struct sim *s)
{
	return s->n;
}

uint32_t sim_server(const struct sim *s)
{
	return s->n;
}

double sim_lr(const struct sim *s)
{
	return s->scenario->config.train.optim.lr * schedule_factor(&s->schedule, s->samples);
}

uint64_t sim_samples(const struct sim *s)
{
	return s->samples;
}

uint64_t sim_total(const struct sim *s)
{
	return s->total;
}

bool sim_over(const struct sim *s)
{
	return s->samples >= s->total;
}

bool sim_over_soon(const struct sim *s)
{
	const uint64_t batch = (uint64_t)s->scenario->config.train.batch;

	return s->samples + s->n_computing * batch >= s->total;
}

double sim_done(const struct sim *s)
{
	const double done = (double)s->samples / (double)s->total;

	return done < 1 ? done : 1;
}

static uint64_t epochs_to_samples(const struct sim *s, double epochs)
{
	return (uint64_t)llround(epochs * (double)fleet_samples(s->fleet));
}

/* Samples come before the step that needs them; the busiest link counts. */
static void plan_injection(struct sim *s)
{
	const struct scenario *c = s->scenario;
	double in, out;

	fleet_injected(s->fleet, &in, &out);
	s->injected_bytes = (uint64_t)llround(in);
	s->injected_us =
	        (uint64_t)llround(8 * fmax(in / c->network.down_mbit, out / c->network.up_mbit));
}

static void plan(struct sim *s)
{
	const struct config *c = &s->scenario->config;
	const uint64_t step = epochs_to_samples(s, c->train.step_epochs);

	s->total = epochs_to_samples(s, c->train.epochs);
	s->total = s->total > 0 ? s->total : 1;
	s->schedule = (struct schedule){
	        .kind = (enum schedule_kind)c->train.schedule,
	        .warmup = epochs_to_samples(s, c->train.warmup_epochs),
	        .total = s->total,
	        .step = step > 0 ? step : 1,
	        .step_factor = c->train.step_factor,
	        .floor = c->train.lr_floor,
	};
}

int sim_new(struct sim **out, const struct scenario *c, const struct sim_options *o, int *exit,
        struct err *e)
{
	struct sim *s = calloc(1, sizeof *s);
	int rc;

	*out = NULL;
	*exit = EXIT_FAILED;
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory for a simulation");
	s->scenario = c;
	s->options = *o;
	s->n = (uint32_t)c->agents.count;
	s->method = sim_methods[c->method.kind];
	rc = sim__links_open(s, e);
	if (rc == 0)
		rc = fleet_new(&s->fleet, c, o->seed, o->threads, exit, e);
	if (rc)
		goto fail;
	const size_t floats = c->record.train ? fleet_arch(s->fleet)->n_total : 1;

	s->agent = calloc(s->n, sizeof *s->agent);
	s->live = calloc(s->n, sizeof *s->live);
	s->mean = calloc(floats, sizeof *s->mean);
	s->run.met = calloc((size_t)s->n * s->n, sizeof *s->run.met);
	*exit = EXIT_FAILED;
	if (!s->agent || !s->live || !s->mean || !s->run.met) {
		rc = err_set(e, ERR_NOMEM, "no memory for %u agents", s->n);
		goto fail;
	}
	s->run.seed = o->seed;
	s->run.agents = s->n;
	s->run.parameters = c->record.parameters ? (uint64_t)c->record.parameters : floats;
	s->run.target_s = s->xi_left = NAN;
	s->run.fp32_s = s->run.fp32_bytes = s->run.bf16_s = s->run.bf16_bytes = NAN;
	plan(s);
	plan_injection(s);
	rc = sim__agents_open(s, e);
	if (rc)
		goto fail;
	*out = s;
	return 0;
fail:
	sim_free(s);
	return rc;
}

void sim_free(struct sim *s)
{
	if (!s)
		return;
	fleet_free(s->fleet);
	sim__links_close(s);
	queue_close(&s->queue);
	sim_run_close(&s->run);
	free(s->agent);
	free(s->live);
	free(s->mean);
	free(s);
}

static int step_ended(struct sim *s, uint32_t i, struct err *e)
{
	struct sim_agent *a = &s->agent[i];
	struct fleet_result r;
	int rc = fleet_wait(s->fleet, i, &r, e);

	a->computing = false;
	s->n_computing--;
	if (rc)
		return rc;
	a->computed_us += a->step_us - s->injected_us;
	s->bytes += s->injected_bytes;
	a->steps++;
	a->met_steps += a->met;
	a->met = false;
	s->steps++;
	s->samples += fleet_step_samples(s->fleet, i);
	if (isfinite(r.loss)) {
		s->loss_sum += r.loss;
		s->loss_n++;
	}
	return s->method->stepped(s, i, &r, e);
}

/* The marks that the clock has passed. The end of the run has a point of its own. */
static int points_due(struct sim *s, struct err *e)
{
	const uint64_t points = (uint64_t)s->scenario->record.points;
	const uint64_t mark = s->total / points * (uint64_t)(s->next_point + 1);

	if (s->samples < mark || sim_over(s))
		return 0;
	s->next_point = (int)(s->samples / (s->total / points + (s->total < points)));
	return sim__point(s, false, e);
}

static int handle(struct sim *s, const struct sim_entry *n, struct err *e)
{
	switch ((enum sim_kind)n->kind) {
	case SIM_STEP:
		return s->agent[n->a].turn == n->b && s->agent[n->a].computing
		               ? step_ended(s, n->a, e)
		               : 0;
	case SIM_RESUME:
		return s->agent[n->a].pause == n->b ? sim__resume(s, n->a, e) : 0;
	case SIM_NOTE:
		return sim__deliver(s, n->a, n->b, false, e);
	case SIM_LOST:
		return sim__deliver(s, n->a, n->b, true, e);
	case SIM_FLOW:
		return sim__flow_ended(s, n->a, n->b, e);
	case SIM_EVENT:
		return sim__event(s, &s->scenario->events[n->a], e);
	case SIM_CHURN:
		return sim__churn(s, false, e);
	case SIM_REPLACE:
		return sim__replace(s, n->a, e);
	case SIM_END:
		s->ended = true;
	}
	return 0;
}

static bool finished(struct sim *s)
{
	if (s->ended)
		return true;
	if (!sim_over(s) || s->n_computing > 0)
		return false;
	return s->method->finished ? s->method->finished(s) : s->n_used == 0;
}

static int loop(struct sim *s, struct err *e)
{
	struct sim_entry entry;
	int rc = 0;

	while (rc == 0 && !finished(s)) {
		if (s->options.stop && atomic_load(s->options.stop))
			return err_set(e, ERR_CANCELLED, "stopped by a signal");
		if (!queue_pop(&s->queue, &entry))
			return err_set(e, ERR_STALE,
			        "nothing happens any more after %.1f s: agents are gone, or wait "
			        "for others that are",
			        (double)s->now_us / SIM_S);
		s->now_us = entry.at_ms;
		rc = handle(s, &entry, e);
		if (rc == 0)
			rc = points_due(s, e);
		sim__progress(s, false);
	}
	return rc;
}

static void summarise(struct sim *s)
{
	uint64_t steps = 0, met = 0, computed = 0, lived = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct sim_agent *a = &s->agent[i];

		steps += a->steps;
		met += a->met_steps;
		computed += a->computed_us;
		lived += a->live_us + (a->live ? s->now_us - a->since_us : 0);
	}
	s->run.synchronised = steps ? (double)met / (double)steps : NAN;
	s->run.compute_s = (double)computed / SIM_S / s->n;
	s->run.wait_s = ((double)lived - (double)computed) / SIM_S / s->n;
	if (s->run.wait_s < 0)
		s->run.wait_s = 0; /* a run that ended within a step */
}

int sim_run(struct sim *s, struct sim_run *out, int *exit, struct err *e)
{
	const struct scenario *c = s->scenario;
	const uint64_t began_us = sim__real_us();
	struct err second;
	int rc;

	for (int k = 0; k < c->n_events; k++)
		sim__push(
		        s, (uint64_t)llround(c->events[k].at_s * SIM_S), SIM_EVENT, (uint32_t)k, 0);
	if (c->record.max_s > 0)
		sim__push(s, (uint64_t)llround(c->record.max_s * SIM_S), SIM_END, 0, 0);
	rc = sim__churn(s, true, e);
	if (rc == 0)
		rc = s->method->start(s, e);
	if (rc == 0)
		rc = loop(s, e);
	/* What there is: of a run that failed or was stopped, too. */
	fleet_settle(s->fleet);
	if (rc != ERR_NONFINITE && sim__point(s, true, rc ? &second : e) && rc == 0)
		rc = e->code;
	summarise(s);
	sim__drop_all(s);
	s->method->stop(s);
	s->run.complete = rc == 0;
	if (rc)
		snprintf(s->run.failed, sizeof s->run.failed, "%.159s", e->msg);
	s->run.real_s = (double)(sim__real_us() - began_us) / 1e6;
	*exit = rc ? exit_code(rc, EXIT_FAILED) : EXIT_OK;
	*out = s->run;
	s->run = (struct sim_run){0};
	return rc;
}
