/* SPDX-License-Identifier: MIT */
/* What a worker of the fleet does: the batch of an agent, a gradient, an update; a part of an
 * evaluation. Everything that it computes with is its own or the agent's, and its device has one
 * thread and makes no choice by timing: the bits do not depend on which worker it is.
 *
 * The loader converts samples of every kind. It is asked for one batch at a time, in the order
 * given, and the index that it reads is filled before each. */
#include "agent/base/rng.h"
#include "agent/simulate/fleet_internal.h"
#include "model/graph/optim.h"
#include "model/graph/outer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The update alone: of a graph it needs the vectors, not the program. What is behind n_train in g
 * is how far the running statistics go. */
static int update(struct fleet_worker *w, struct fleet_agent *a, const float *g, double lr,
        double *norm, struct err *e)
{
	struct graph vectors = {.arch = &w->fleet->arch,
	        .dev = w->dev,
	        .params = a->x,
	        .grads = (float *)(uintptr_t)g}; /* only read */
	struct optim o = {.config = w->fleet->scenario->config.train.optim,
	        .net = &vectors,
	        .m = a->m,
	        .v = a->v,
	        .steps = a->optim_steps,
	        .qgm = w->fleet->scenario->config.gossip.outer == OUTER_QGM};
	int rc = optim_step(&o, lr, norm, e);

	a->optim_steps = o.steps;
	for (size_t j = w->fleet->arch.n_train; j < w->fleet->arch.n_total && rc == 0; j++)
		a->x[j] += g[j];
	return rc;
}

int fleet_apply(struct fleet *f, uint32_t i, const float *g, double lr, struct err *e)
{
	double norm;

	if (!f->scenario->record.train)
		return 0;
	return update(&f->worker[f->n_workers], &f->agent[i], g, lr, &norm, e);
}

/* The square of the length of what is there, as the gradient of a mean: it was scaled by 1/times.
 */
static int probe(struct fleet_worker *w, struct fleet_agent *a, double times, struct err *e)
{
	int rc = w->dev->backend->sum_squares(
	        w->dev, w->net->grads, w->fleet->arch.n_train, &a->result.part2, e);

	a->result.part2 *= times * times;
	return rc;
}

/* Micro-batch k of a step; for the norm test as agent/train/trainer.c does it. */
static int micro_batch(
        struct fleet_worker *w, struct fleet_agent *a, uint32_t i, uint64_t k, struct err *e)
{
	struct fleet *f = w->fleet;
	const uint32_t micro = (uint32_t)f->scenario->config.train.batch;
	const uint64_t seed = rng_mix(f->dropout_key, i, a->batches);
	struct loss_result r = {0};
	const struct batch *b;
	int rc = 0;

	fleet_data_batch(&f->data, i, a->batches, w->index, micro);
	loader_rewind(w->loader);
	b = loader_next(w->loader);
	if (!b) {
		rc = loader_failed(w->loader, e);
		assert(rc);
		return rc;
	}
	assert(b->count == (int64_t)micro);
	if (a->tested && a->micros == 1) {
		const int64_t half = micro / 2;

		a->result.part = (uint64_t)half;
		rc = graph_train_part(w->net, b, half, 1.0f / (float)half, seed, &r, e);
		rc = rc ? rc : graph_wait(w->net, e);
		rc = rc ? rc : probe(w, a, 1, e);
	}
	if (rc == 0)
		rc = graph_train_begin(
		        w->net, b, k > 0, 1.0f / (float)(a->micros * micro), seed, &r, e);
	if (rc == 0)
		rc = graph_wait(w->net, e);
	if (rc == 0 && a->tested && a->micros > 1 && k == 0) {
		a->result.part = micro;
		rc = probe(w, a, (double)a->micros, e);
	}
	a->batches++;
	a->result.loss += r.loss_sum;
	a->result.correct += r.correct;
	a->result.count += r.count;
	return rc;
}

/* How far the forward passes have moved the running statistics, behind the gradient. */
static void find_stats(struct fleet_worker *w, const struct fleet_agent *a)
{
	const struct arch *arch = &w->fleet->arch;

	for (size_t j = arch->n_train; j < arch->n_total; j++)
		w->net->grads[j] = w->net->params[j] - a->x[j];
}

static int gradient(struct fleet_worker *w, struct fleet_agent *a, uint32_t i, struct err *e)
{
	int rc = 0;

	a->result = (struct fleet_result){0};
	graph_set_params(w->net, a->x);
	w->evaluated = 0;
	for (uint64_t k = 0; k < a->micros && rc == 0; k++)
		rc = micro_batch(w, a, i, k, e);
	if (rc)
		return rc;
	a->result.loss /= (double)a->result.count;
	if (!isfinite(a->result.loss))
		return err_set(e, ERR_NONFINITE, "agent %u: the loss is not a finite number", i);
	find_stats(w, a);
	return 0;
}

void fleet__run_task(struct fleet_worker *w, struct fleet_agent *a, uint32_t i)
{
	const struct arch *arch = &w->fleet->arch;
	double squares = 0;
	int rc = gradient(w, a, i, &a->err);

	if (rc == 0 && a->task == FLEET_STEP) {
		rc = update(w, a, w->net->grads, a->lr, &a->result.grad_norm, &a->err);
	} else if (rc == 0) {
		w->dev->backend->download(
		        w->dev, a->g, w->net->grads, arch->n_total * sizeof *a->g);
		rc = w->dev->backend->sum_squares(w->dev, a->g, arch->n_train, &squares, &a->err);
		a->result.grad_norm = sqrt(squares);
		if (rc == 0 && !isfinite(squares))
			rc = err_set(
			        &a->err, ERR_NONFINITE, "agent %u: the gradient is not finite", i);
	}
	a->rc = rc;
}

int fleet__worker_open(struct fleet_worker *w, bool computes, struct err *e)
{
	struct fleet *f = w->fleet;
	const struct config *c = &f->scenario->config;
	const struct device_config dc = {.threads = 1, .deterministic = true};
	struct loader_config lc = {.data = &f->data.train,
	        .n_index = (uint32_t)c->train.batch,
	        .batch = c->train.batch,
	        .norm = f->data.norm};
	const struct loader_position start = {0};
	int rc = device_open(&w->dev, "cpu", &dc, NULL, e);

	if (rc || !computes)
		return rc;
	w->index = calloc((size_t)c->train.batch, sizeof *w->index);
	if (!w->index)
		return err_set(e, ERR_NOMEM, "no memory for a batch");
	lc.index = w->index;
	lc.dev = w->dev;
	rc = graph_new(&w->net, &f->arch, w->dev, c->train.batch, e);
	if (rc == 0)
		rc = loader_new(&w->loader, &lc, start, e);
	lc.data = f->data.has_test ? &f->data.test : &f->data.train;
	if (rc == 0)
		rc = loader_new(&w->eval_loader, &lc, start, e);
	return rc;
}

void fleet__worker_close(struct fleet_worker *w)
{
	loader_free(w->eval_loader);
	loader_free(w->loader);
	graph_free(w->net);
	if (w->dev)
		device_close(w->dev);
	free(w->index);
}

/* An evaluation: batches of the test set, each a part. */
struct evaluation {
	struct fleet *f;
	const float *x;
	uint64_t number;
	uint32_t most;
	struct loss_result *of; /* by part */
	int rc;                 /* under the fleet's mutex */
	struct err err;
};

static void evaluate_part(void *arg, struct fleet_worker *w, uint32_t k)
{
	struct evaluation *v = arg;
	const struct fleet_data *d = &v->f->data;
	const uint64_t batch = (uint64_t)v->f->scenario->config.train.batch;
	const uint64_t from = k * batch, left = v->most - from;
	const uint64_t n = left < batch ? left : batch;
	const struct batch *b;
	struct batch part;
	struct err e;
	int rc;

	if (w->evaluated != v->number)
		graph_set_params(w->net, v->x);
	w->evaluated = v->number;
	for (uint64_t j = 0; j < batch; j++)
		w->index[j] = d->eval[(from + (j < n ? j : 0)) * d->n_eval / v->most];
	loader_rewind(w->eval_loader);
	b = loader_next(w->eval_loader);
	rc = b ? 0 : loader_failed(w->eval_loader, &e);
	assert(b || rc);
	if (rc == 0) {
		part = *b;
		part.count = (int64_t)n;
		rc = graph_eval_begin(w->net, &part, &v->of[k], &e);
	}
	if (rc == 0)
		rc = graph_wait(w->net, &e);
	if (rc) {
		pthread_mutex_lock(&v->f->mutex);
		v->rc = rc;
		v->err = e;
		pthread_mutex_unlock(&v->f->mutex);
	}
}

int fleet_evaluate(
        struct fleet *f, const float *x, uint32_t most, struct fleet_eval *r, struct err *e)
{
	const uint32_t batch = (uint32_t)f->scenario->config.train.batch;
	struct evaluation v = {.f = f, .x = x, .number = ++f->evaluations};
	double loss = 0;

	*r = (struct fleet_eval){.loss = NAN, .accuracy = NAN};
	if (!f->scenario->record.train)
		return 0;
	v.most = most == 0 || most > f->data.n_eval ? f->data.n_eval : most;
	const uint32_t parts = (v.most + batch - 1) / batch;

	v.of = calloc(parts, sizeof *v.of);
	if (!v.of)
		return err_set(e, ERR_NOMEM, "no memory for an evaluation");
	fleet__parts(f, parts, evaluate_part, &v);
	for (uint32_t k = 0; k < parts; k++) {
		loss += v.of[k].loss_sum;
		r->correct += v.of[k].correct;
		r->count += v.of[k].count;
	}
	free(v.of);
	r->loss = loss / (double)r->count;
	r->accuracy = (double)r->correct / (double)r->count;
	if (v.rc && e)
		*e = v.err;
	return v.rc;
}
