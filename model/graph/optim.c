/* SPDX-License-Identifier: MIT */
/* The optimizers, as PyTorch defines them: SGD (momentum, Nesterov; decay added to the gradient)
 * and AdamW (decay decoupled). One call per range of the flat vector: weights with decay, then
 * biases and norms without. If a peer's difference is added after the update, there is one call
 * for each of its groups. */
#include "model/graph/optim.h"

#include "model/graph/outer.h"
#include "model/graph/stats.h"

#include <math.h>
#include <string.h>

double schedule_factor(const struct schedule *s, uint64_t samples)
{
	if (samples < s->warmup)
		return (double)(samples + 1) / (double)(s->warmup + 1);
	if (s->kind == SCHEDULE_STEP && s->step > 0)
		return pow(s->step_factor, (double)(samples / s->step));
	if (s->kind == SCHEDULE_COSINE && s->total > s->warmup) {
		double t = (double)(samples - s->warmup) / (double)(s->total - s->warmup);
		double c = 0.5 * (1 + cos(3.14159265358979323846 * (t < 1 ? t : 1)));
		return s->floor + (1 - s->floor) * c;
	}
	return 1;
}

int optim_init(struct optim *o, const struct optim_config *c, struct graph *n, struct err *e)
{
	size_t bytes = n->arch->n_total * sizeof(float);
	const struct backend *k = n->dev->backend;
	memset(o, 0, sizeof *o);
	o->config = *c;
	o->net = n;
	if (k->reserve) {
		struct device_room r;
		int rc = k->reserve(n->dev, NULL, (const size_t[]){bytes, bytes},
		        c->kind == OPTIM_ADAMW ? 2 : 1, &r, e);
		if (rc == ERR_NOMEM)
			err_prefix(e, "no room for the optimiser's state, try a smaller batch");
		if (rc)
			return rc;
	}
	o->m = k->alloc(n->dev, bytes);
	if (c->kind == OPTIM_ADAMW)
		o->v = k->alloc(n->dev, bytes);
	if (!o->m || (c->kind == OPTIM_ADAMW && !o->v)) {
		int rc = graph_check(n, e);
		optim_close(o);
		return rc ? rc
		          : err_set(e, ERR_NOMEM, "no memory for the optimiser's state, %zu MB",
		                    bytes >> 20);
	}
	return 0;
}

void optim_close(struct optim *o)
{
	if (!o->net)
		return;
	const struct backend *k = o->net->dev->backend;
	k->release(o->net->dev, o->m);
	k->release(o->net->dev, o->v);
	memset(o, 0, sizeof *o);
}

static int update(
        struct optim *o, size_t from, size_t to, const struct optim_args *a, struct err *e)
{
	struct graph *n = o->net;
	const struct backend *k = n->dev->backend;
	if (from == to)
		return 0;
	if (o->qgm) {
		outer_qgm_step(n->params + from, o->m + from, n->grads + from, to - from, a,
		        (float)o->rate);
		return 0;
	}
	if (o->config.kind == OPTIM_ADAMW)
		return k->adamw(n->dev, n->params + from, o->m + from, o->v + from, n->grads + from,
		        to - from, a, e);
	return k->sgd(n->dev, n->params + from, o->m + from, n->grads + from, to - from, a, e);
}

/* The end of the group that m.at is in, and its factor. */
static size_t next_group(const struct optim_merge *m, size_t n_total, float *k)
{
	*k = m->n > 0 ? m->k[0] : 0;
	for (int g = 0; g < m->n; g++) {
		if (m->at < m->end[g]) {
			*k = m->k[g];
			return m->end[g];
		}
		*k = m->k[g] < *k ? m->k[g] : *k;
	}
	return n_total;
}

/* As update, and adds the merge's difference for that range. */
static int update_merge(
        struct optim *o, size_t from, size_t to, struct optim_args *a, struct err *e)
{
	struct optim_merge *m = &o->merge;
	if (!m->difference)
		return update(o, from, to, a, e);
	while (m->at < to) {
		size_t at = m->at, end = next_group(m, o->net->arch->n_total, &a->add_k);
		end = end < to ? end : to;
		a->add = m->difference + at;
		int rc = update(o, at, end, a, e);
		if (rc)
			return rc;
		m->at = end;
	}
	return 0;
}

int optim_add(struct optim *o, struct err *e)
{
	struct graph *n = o->net;
	struct optim_merge *m = &o->merge;
	const size_t n_train = n->arch->n_train, n_total = n->arch->n_total;
	float k;
	int rc = 0;
	while (!rc && m->difference && m->at < n_train) {
		size_t at = m->at, end = next_group(m, n_train, &k);
		rc = n->dev->backend->add(
		        n->dev, n->params + at, m->difference + at, end - at, k, e);
		if (rc == 0 && o->qgm && o->rate > 0)
			outer_qgm_merged(o->m + at, m->difference + at, end - at, k,
			        (float)o->config.momentum, (float)o->rate);
		m->at = end;
	}
	if (!rc && m->difference) {
		(void)next_group(m, n_total, &k);
		rc = stats_add(n, m->difference + n_train, n_train, n_total - n_train, k, e);
	}
	*m = (struct optim_merge){0};
	return rc;
}

int optim_step(struct optim *o, double lr, double *norm, struct err *e)
{
	struct graph *n = o->net;
	const struct optim_config *c = &o->config;
	const struct arch *a = n->arch;
	double squares;
	int rc = n->dev->backend->sum_squares(n->dev, n->grads, a->n_train, &squares, e);
	if (rc)
		return rc;
	*norm = sqrt(squares);
	if (!isfinite(*norm))
		return err_set(e, ERR_NONFINITE, "the gradient is not finite");
	o->steps++;
	o->rate = outer_qgm_rate(lr, c->lr);
	struct optim_args args = {
	        .lr = (float)lr,
	        .momentum = (float)c->momentum,
	        .nesterov = c->nesterov,
	        .weight_decay = (float)c->weight_decay,
	        .beta1 = (float)c->beta1,
	        .beta2 = (float)c->beta2,
	        .eps = (float)c->eps,
	        .bias1 = (float)(1 - pow(c->beta1, (double)o->steps)),
	        .bias2 = (float)(1 - pow(c->beta2, (double)o->steps)),
	        .grad_scale = c->clip > 0 && *norm > c->clip ? (float)(c->clip / *norm) : 1,
	};
	if ((rc = update_merge(o, 0, a->n_decay, &args, e)) != 0)
		return rc;
	args.weight_decay = 0;
	return update_merge(o, a->n_decay, a->n_train, &args, e);
}
