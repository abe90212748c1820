/* SPDX-License-Identifier: MIT */
/* The optimisers, as PyTorch defines them: SGD (momentum, Nesterov; decay added to the gradient)
 * and AdamW (decay decoupled). One call per range of the flat vector: weights with decay, then
 * biases and norms without. */
#include "model/optim.h"

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

int optim_init(struct optim *o, const struct optim_config *c, struct net *n, struct err *e)
{
	size_t bytes = n->arch->n_total * sizeof(float);
	const struct backend *k = n->dev->backend;
	memset(o, 0, sizeof *o);
	o->config = *c;
	o->net = n;
	o->m = k->alloc(n->dev, bytes);
	if (c->kind == OPTIM_ADAMW)
		o->v = k->alloc(n->dev, bytes);
	if (!o->m || (c->kind == OPTIM_ADAMW && !o->v)) {
		optim_close(o);
		return err_set(
		        e, ERR_NOMEM, "no memory for the optimiser's state, %zu MB", bytes >> 20);
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
	struct net *n = o->net;
	const struct backend *k = n->dev->backend;
	if (from == to)
		return 0;
	if (o->config.kind == OPTIM_ADAMW)
		return k->adamw(n->dev, n->params + from, o->m + from, o->v + from, n->grads + from,
		        to - from, a, e);
	return k->sgd(n->dev, n->params + from, o->m + from, n->grads + from, to - from, a, e);
}

int optim_step(struct optim *o, double lr, double *norm, struct err *e)
{
	struct net *n = o->net;
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
	if ((rc = update(o, 0, a->n_decay, &args, e)) != 0)
		return rc;
	args.weight_decay = 0;
	return update(o, a->n_decay, a->n_train, &args, e);
}
