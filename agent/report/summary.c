/* SPDX-License-Identifier: MIT */
/* Sums over seeds, in their order, so that equal runs give equal bits. */
#include "agent/report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCENARIO_TEXT_MAX (1u << 20)

struct mean mean_of(const double *values, int n)
{
	struct mean s = {.mean = NAN, .error = NAN};
	double sum = 0, squares = 0;
	for (int i = 0; i < n; i++) {
		if (isfinite(values[i])) {
			sum += values[i];
			s.n++;
		}
	}
	if (s.n == 0)
		return s;
	s.mean = sum / s.n;
	for (int i = 0; i < n; i++)
		if (isfinite(values[i]))
			squares += (values[i] - s.mean) * (values[i] - s.mean);
	if (s.n > 1)
		s.error = sqrt(squares / (s.n - 1) / s.n);
	return s;
}

static double field_of(const struct sim_run *r, enum summary_field f)
{
	const struct sim_point *last = r->n_points > 0 ? &r->points[r->n_points - 1] : NULL;
	double busy = r->compute_s + r->wait_s;
	bool reached = isfinite(r->target_s);
	switch (f) {
	case SUMMARY_TARGET_TIME:
		return r->target_s;
	case SUMMARY_TARGET_BYTES:
		return reached ? (double)r->target_bytes : NAN;
	case SUMMARY_SYNCHRONISED:
		return r->synchronised;
	case SUMMARY_WAITING:
		return busy > 0 ? r->wait_s / busy : NAN;
	case SUMMARY_FP32_TIME:
		return r->fp32_s;
	case SUMMARY_FP32_BYTES:
		return r->fp32_bytes;
	case SUMMARY_BF16_TIME:
		return r->bf16_s;
	case SUMMARY_BF16_BYTES:
		return r->bf16_bytes;
	default:
		break;
	}
	if (!last)
		return NAN;
	switch (f) {
	case SUMMARY_ACCURACY:
		return last->accuracy;
	case SUMMARY_LOSS:
		return last->loss;
	case SUMMARY_TIME:
		return last->time_s;
	case SUMMARY_BYTES:
		return (double)last->bytes;
	case SUMMARY_SAMPLES:
		return (double)last->samples;
	case SUMMARY_EXCHANGES:
		return (double)last->exchanges;
	case SUMMARY_XI:
		return last->xi;
	default:
		return NAN;
	}
}

static void summary_of(struct summary *out, const struct sim_result *r)
{
	double values[SCENARIO_SEEDS_MAX];
	int n = r->n_runs < SCENARIO_SEEDS_MAX ? r->n_runs : SCENARIO_SEEDS_MAX;
	*out = (struct summary){.result = r, .tried = 1};
	for (int f = 0; f < SUMMARY_FIELDS; f++) {
		for (int i = 0; i < n; i++)
			values[i] = field_of(&r->runs[i], (enum summary_field)f);
		out->field[f] = mean_of(values, n);
	}
	for (int i = 0; i < n; i++) {
		out->complete += r->runs[i].complete;
		out->failed += r->runs[i].failed[0] != '\0';
	}
}

/* ---- the best learning rate */

/* The scenario as text, without name and learning rate. */
static int text_without_lr(const struct sim_result *r, struct buf *out)
{
	struct scenario s = r->scenario; /* borrows what it points to */
	s.name[0] = '\0';
	s.config.train.optim.lr = 1;
	return scenario_print(&s, false, out);
}

/* One that did not get to its end is worse than any that did. */
static bool better(const struct summary *a, const struct summary *b)
{
	double x = a->field[SUMMARY_ACCURACY].mean, y = b->field[SUMMARY_ACCURACY].mean;
	if (a->failed != b->failed)
		return a->failed < b->failed;
	return isfinite(x) && (!isfinite(y) || x > y);
}

static int keep_best(struct summary *list, int n, struct err *e)
{
	struct buf *text = calloc((size_t)(n > 0 ? n : 1), sizeof *text);
	int kept = 0, rc = text ? 0 : ERR_NOMEM;
	for (int i = 0; i < n && !rc; i++) {
		buf_init(&text[i], SCENARIO_TEXT_MAX);
		rc = text_without_lr(list[i].result, &text[i]);
	}
	for (int i = 0; i < n && !rc; i++) {
		int k = 0;
		while (k < kept && strcmp(text[k].data, text[i].data) != 0)
			k++;
		if (k == kept) {
			struct buf swap = text[kept];
			text[kept] = text[i];
			text[i] = swap;
			list[kept++] = list[i];
			continue;
		}
		int tried = list[k].tried + 1;
		if (better(&list[i], &list[k]))
			list[k] = list[i];
		list[k].tried = tried;
	}
	for (int i = 0; text && i < n; i++)
		buf_close(&text[i]);
	free(text);
	return rc ? err_set(e, rc, "comparing scenarios: %s", err_text(rc)) : kept;
}

/* ---- labels */

static bool taken(const struct summary *list, int n, int i)
{
	for (int k = 0; k < n; k++)
		if (k != i && strcmp(list[k].label, list[i].label) == 0)
			return true;
	return false;
}

/* Each step names those that are still alike more exactly. */
static void set_labels(struct summary *list, int n)
{
	for (int i = 0; i < n; i++) {
		const struct sim_result *r = list[i].result;
		snprintf(list[i].label, sizeof list[i].label, "%s",
		        r->name[0] ? r->name : r->method);
	}
	for (int step = 0; step < 3; step++) {
		for (int i = 0; i < n; i++)
			list[i].alike = taken(list, n, i);
		for (int i = 0; i < n; i++) {
			const struct sim_result *r = list[i].result;
			char *out = list[i].label;
			const size_t room = sizeof list[i].label;
			if (!list[i].alike)
				continue;
			if (step == 0)
				snprintf(out, room, "%.40s %.36s", r->name, r->method);
			else if (step == 1)
				snprintf(out, room, "%.36s %.20s lr %.4g", r->name, r->method,
				        r->scenario.config.train.optim.lr);
			else
				snprintf(out, room, "%.30s %.16s lr %.4g #%d", r->name, r->method,
				        r->scenario.config.train.optim.lr, i + 1);
		}
	}
}

int summarise(
        struct summary *out, const struct sim_result *results, int n, bool best_lr, struct err *e)
{
	for (int i = 0; i < n; i++)
		summary_of(&out[i], &results[i]);
	if (best_lr) {
		n = keep_best(out, n, e);
		if (n < 0)
			return n;
	}
	set_labels(out, n);
	return n;
}

/* ---- curves */

static double value_of(const struct sim_point *p, enum curve_of what)
{
	switch (what) {
	case CURVE_TIME:
		return p->time_s;
	case CURVE_BYTES:
		return (double)p->bytes;
	case CURVE_SAMPLES:
		return (double)p->samples;
	case CURVE_ACCURACY:
		return p->accuracy;
	case CURVE_LOSS:
		return p->loss;
	case CURVE_TRAIN_LOSS:
		return p->train_loss;
	case CURVE_XI:
		return p->xi;
	case CURVE_XI_TARGET:
		return p->xi_target;
	case CURVE_LIVE:
		return (double)p->live;
	}
	return NAN;
}

int curve_new(struct curve *c, const struct sim_result *r, enum curve_of x, enum curve_of y)
{
	double values[SCENARIO_SEEDS_MAX];
	int n = r->n_runs < SCENARIO_SEEDS_MAX ? r->n_runs : SCENARIO_SEEDS_MAX;
	int points = n > 0 ? r->runs[0].n_points : 0;
	for (int i = 1; i < n; i++)
		points = r->runs[i].n_points < points ? r->runs[i].n_points : points;
	*c = (struct curve){.n = points};
	c->x = calloc((size_t)points * 4 + 1, sizeof *c->x);
	if (!c->x)
		return ERR_NOMEM;
	c->y = c->x + points;
	c->low = c->y + points;
	c->high = c->low + points;
	for (int k = 0; k < points; k++) {
		for (int i = 0; i < n; i++)
			values[i] = value_of(&r->runs[i].points[k], x);
		c->x[k] = mean_of(values, n).mean;
		for (int i = 0; i < n; i++)
			values[i] = value_of(&r->runs[i].points[k], y);
		struct mean s = mean_of(values, n);
		double error = isfinite(s.error) ? s.error : 0;
		c->y[k] = s.mean;
		c->low[k] = s.mean - error;
		c->high[k] = s.mean + error;
		c->any = c->any || isfinite(s.mean);
	}
	return 0;
}

void curve_close(struct curve *c)
{
	free(c->x);
	*c = (struct curve){0};
}
