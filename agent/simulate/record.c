/* SPDX-License-Identifier: MIT */
/* The record of a run: points, membership, the trace, and progress.
 *
 * A point is taken when the run's clock passes a mark. Steps that are under way then are computed
 * to their end first, so that a point does not depend on how far the workers are: it is of models
 * up to one step ahead of its time. */
#include "agent/simulate/engine_internal.h"
#include "agent/simulate/result.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const sim_change_names[] = {"joined", "left", "crashed", "paused", "resumed", "slowed",
        "parted", "healed", "bad", NULL};
_Static_assert(SIM_TURNED_BAD == 8, "the list above follows enum sim_change");

uint64_t sim__real_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void sim__progress(struct sim *s, bool now)
{
	const uint64_t real_us = sim__real_us();

	if (!s->options.progress || (!now && real_us - s->told_us < 1000000))
		return;
	s->told_us = real_us;
	s->options.progress(s->options.arg, s);
}

int sim_trace(struct sim *s, const char *what, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	if (!s->options.trace)
		return 0;
	n = snprintf(
	        line, sizeof line, "{\"t\":%.6f,\"what\":\"%s\",", (double)s->now_us / SIM_S, what);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof line - 1)
		return ERR_LIMIT;
	line[n++] = '}';
	return s->options.trace(s->options.arg, line, (size_t)n, NULL);
}

static const char *number(double v, char out[32])
{
	snprintf(out, 32, "%.9g", v);
	return isfinite(v) ? out : "null";
}

int sim__membership(struct sim *s, uint32_t agent, enum sim_change what, struct err *e)
{
	struct sim_run *r = &s->run;
	int rc;

	if (r->n_membership == s->membership_room) {
		const int room = s->membership_room ? 2 * s->membership_room : 16;
		struct sim_membership *more = realloc(r->membership, (size_t)room * sizeof *more);

		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for the record");
		r->membership = more;
		s->membership_room = room;
	}
	r->membership[r->n_membership++] = (struct sim_membership){
	        .time_s = (double)s->now_us / SIM_S, agent, what, s->n_live};
	rc = sim_trace(s, sim_change_names[what], "\"agent\":%u,\"live\":%u", agent, s->n_live);
	if (rc)
		return err_set(e, rc, "the trace cannot be written");
	return s->method->changed ? s->method->changed(s, agent, what, e) : 0;
}

static int trace_point(struct sim *s, const struct sim_point *p)
{
	char loss[32], acc[32], xi[32], train[32];

	return sim_trace(s, "point",
	        "\"samples\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"bytes\":%" PRIu64
	        ",\"exchanges\":%" PRIu64 ",\"live\":%" PRIu64 ",\"train_loss\":%s,\"loss\":%s,"
	        "\"accuracy\":%s,\"xi\":%s",
	        p->samples, p->steps, p->bytes, p->exchanges, p->live, number(p->train_loss, train),
	        number(p->loss, loss), number(p->accuracy, acc), number(p->xi, xi));
}

double sim_distance(struct sim *s)
{
	fleet_settle(s->fleet);
	fleet_mean(s->fleet, s->live, NULL, s->mean);
	return sqrt(fleet_spread(s->fleet, s->live, s->mean));
}

void sim_measured(struct sim *s, double xi)
{
	s->xi_left = fmax(s->xi_left, xi); /* NaN gives way */
}

/* Means over the live agents, each by its own model. */
static int evaluate_local(struct sim *s, uint32_t most, struct fleet_eval *v, struct err *e)
{
	struct fleet_eval one;
	int rc = 0;

	*v = (struct fleet_eval){0};
	for (uint32_t i = 0; i < s->n && rc == 0; i++) {
		if (!s->live[i])
			continue;
		rc = fleet_evaluate(s->fleet, fleet_x(s->fleet, i), most, &one, e);
		v->loss += one.loss / s->n_live;
		v->accuracy += one.accuracy / s->n_live;
	}
	return rc;
}

static int evaluate(struct sim *s, bool last, struct sim_point *p, struct err *e)
{
	const struct scenario *c = s->scenario;
	const float *x = s->method->model ? s->method->model(s) : NULL;
	const uint32_t most = last ? 0 : (uint32_t)c->record.test_samples;
	struct fleet_eval v;
	int rc;

	p->loss = p->accuracy = p->xi = NAN;
	if (!c->record.train || s->n_live == 0)
		return 0;
	p->xi = sim_distance(s);
	if (c->record.local)
		rc = evaluate_local(s, most, &v, e);
	else
		rc = fleet_evaluate(s->fleet, x ? x : s->mean, most, &v, e);
	p->loss = v.loss;
	p->accuracy = v.accuracy;
	return rc;
}

int sim__point(struct sim *s, bool last, struct err *e)
{
	struct sim_run *r = &s->run;
	struct sim_point p = {.time_s = (double)s->now_us / SIM_S,
	        .samples = s->samples,
	        .steps = s->steps,
	        .bytes = s->bytes,
	        .exchanges = s->exchanges,
	        .live = s->n_live,
	        .train_loss = s->loss_n ? s->loss_sum / (double)s->loss_n : NAN,
	        .xi_target = s->method->xi_target ? s->method->xi_target(s) : NAN,
	        .xi_left = s->xi_left};
	int rc = evaluate(s, last, &p, e);

	if (rc)
		return rc;
	if (r->n_points == s->points_room) {
		const int room = s->points_room ? 2 * s->points_room : 32;
		struct sim_point *more = realloc(r->points, (size_t)room * sizeof *more);

		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for the record");
		r->points = more;
		s->points_room = room;
	}
	s->loss_sum = 0;
	s->loss_n = 0;
	s->xi_left = NAN;
	r->points[r->n_points++] = p;
	if (s->scenario->record.target > 0 && isnan(r->target_s) &&
	        p.accuracy >= s->scenario->record.target) {
		r->target_s = p.time_s;
		r->target_bytes = p.bytes;
		r->target_samples = p.samples;
	}
	rc = trace_point(s, &p);
	sim__progress(s, true);
	return rc ? err_set(e, rc, "the trace cannot be written") : 0;
}

const struct sim_point *sim_last(const struct sim *s)
{
	return s->run.n_points ? &s->run.points[s->run.n_points - 1] : NULL;
}

void sim_count(struct sim *s, uint64_t bytes, uint64_t exchanges)
{
	s->bytes += bytes;
	s->exchanges += exchanges;
}

void sim_met(struct sim *s, uint32_t i)
{
	s->agent[i].met = true;
}

void sim_run_close(struct sim_run *r)
{
	free(r->points);
	free(r->membership);
	free(r->met);
	memset(r, 0, sizeof *r);
}
