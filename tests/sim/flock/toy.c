/* SPDX-License-Identifier: MIT */
/* The learner: a noisy quadratic, ½‖x − x*‖², by SGD with momentum. The optimum x* moves with the
 * run's clock, so that a state tells how old it is, and flocks that trained apart are apart. As the
 * product's, it does what it is asked for between two steps, in order, answers later, and stops by
 * itself at the end of the run. */
#include "tests/sim/flock/byzantine.h"

#include <math.h>
#include <string.h>

#define LR 0.008f
#define MOMENTUM 0.9f
#define NOISE 0.3
#define FLOOR 0.25 /* of the loss, by parameter: data are never fitted to the end */

/* How far from the initial weights an agent begins that does not train. */
static float off(struct fsim *w, int i, int p)
{
	static const float places[] = {0, 2, 3, 1};
	switch (fsim_still_kind(w)) {
	case STILL_LINE: /* means of some can be the place of another */
		return places[i % 4] / 20 * w->way[p];
	case STILL_ROUNDED: /* bf16 tells no difference; 1 is half way between two of its numbers */
		return world_chance(w, 0.5) ? 0.0035f * w->initial[p] : 0;
	case STILL_TWO: /* are as far from the others' place, which is the mean */
		return i < 2 ? (i == 0 ? 0.4f : -0.4f) * w->way[p] : 0;
	default:
		return (float)(0.02 * rng_normal(&w->rng));
	}
}

void toy_open(struct fsim *w, int i, const struct fsim_checkpoint *from)
{
	struct fsim_toy *t = &w->agent[i].toy;
	uint32_t turn = t->turn, step_ms = t->step_ms;
	memset(t, 0, sizeof *t);
	t->turn = turn + 1;
	t->step_ms = step_ms;
	memcpy(t->x, w->initial, sizeof t->x);
	for (int p = 0; p < w->params && w->setup.still; p++) {
		t->x[p] += off(w, i, p);
		w->sum[p] += (double)t->x[p];
	}
	if (!from->there)
		return;
	memcpy(t->x, from->state, (size_t)w->params * sizeof(float));
	memcpy(t->m, from->state + w->params, (size_t)w->params * sizeof(float));
	t->step = t->set_step = from->step;
	t->samples = from->samples;
	t->others = from->others;
	t->optim_steps = from->optim_steps;
}

static void turn_in(struct fsim *w, int i, uint64_t after_ms)
{
	world_push(w, after_ms, FSIM_TURN, (uint32_t)i, ++w->agent[i].toy.turn);
}

void toy_wake(struct fsim *w, int i)
{
	turn_in(w, i, 0);
}

static void answer(struct fsim *w, uint32_t item, uint64_t after_ms)
{
	struct fsim_toy *t = &w->agent[world_get(w, item)->parcel.to].toy;
	uint64_t at_ms = w->now_ms + after_ms;
	t->answered_ms = at_ms > t->answered_ms ? at_ms : t->answered_ms;
	world_later(w, item, t->answered_ms - w->now_ms);
}

void toy_ask(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_toy *t = &w->agent[i].toy;
	bool never = a->kind == FLOCK_DO_APPLY || a->kind == FLOCK_DO_STOP; /* has its own place */
	if (!never && (t->n >= FSIM_QUEUE - 2 || world_chance(w, w->full_chance / 4))) {
		uint32_t item = world_item(w, i, FLOCK_EVENT_REFUSED);
		world_get(w, item)->e.refused = a->kind;
		world_later(w, item, 0);
		return;
	}
	if (a->kind == FLOCK_DO_SNAPSHOT) {
		check_owner(w, i, SLOT_SNAPSHOT, OWNER_NONE, OWNER_LEARNER);
		if (a->snapshot.n_scales > 0)
			w->agent[i].scale = a->snapshot.scales[0];
	}
	if (a->kind == FLOCK_DO_APPLY)
		check_owner(w, i, SLOT_STAGING, OWNER_NONE, OWNER_LEARNER);
	if (a->kind == FLOCK_DO_TAKE_STATE) {
		check_owner(w, i, SLOT_DONATED, OWNER_NONE, OWNER_LEARNER);
		if (w->agent[i].readers > 0)
			fsim_fail(w, "agent %d writes a state that joiners still read", i);
	}
	if (a->kind == FLOCK_DO_ADOPT || a->kind == FLOCK_DO_TRY)
		check_owner(w, i, SLOT_FETCHED, OWNER_NONE, OWNER_LEARNER);
	t->request[t->n++] = *a;
	if (!t->training || t->done)
		turn_in(w, i, 1);
}

/* ---- requests */

static void sketch_of(const struct fsim *w, const float *x, struct sketch *s)
{
	memset(s, 0, sizeof *s);
	sketch_add(s, x, 0, (size_t)w->params);
}

static void save(struct fsim *w, int i, struct flock_event *e)
{
	struct fsim_agent *g = &w->agent[i];
	const struct fsim_toy *t = &g->toy;
	struct fsim_checkpoint *c = &g->disk.now;
	e->saved_step = t->step;
	if (g->disk.full && world_chance(w, 0.7)) {
		e->code = ERR_IO;
		return;
	}
	if (c->there)
		g->disk.older = *c;
	c->there = true;
	memcpy(c->state, t->x, (size_t)w->params * sizeof(float));
	memcpy(c->state + w->params, t->m, (size_t)w->params * sizeof(float));
	c->step = t->step;
	c->samples = t->samples;
	c->others = t->others;
	c->optim_steps = t->optim_steps;
}

static void apply(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	check_applied(w, i, a);
	byz_applied(w, i, a);
	for (int p = 0, group = 0; p < w->params; p++) {
		group += (size_t)p >= w->group_end[group];
		g->toy.x[p] += a->apply.k[group] * g->staging[p];
	}
	check_owner(w, i, SLOT_STAGING, OWNER_LEARNER, OWNER_NONE);
}

static double loss_of(const struct fsim *w, const float *x, uint64_t clock)
{
	double loss = FLOOR * w->params;
	for (int p = 0; p < w->params; p++) {
		double off = (double)x[p] - (double)toy_optimum(w, p, clock);
		loss += 0.5 * off * off;
	}
	return loss;
}

/* By the clock that its sender may have: that of the run, in truth. */
static void try(struct fsim *w, int i, struct flock_trial *t)
{
	struct fsim_agent *g = &w->agent[i];
	*t = (struct flock_trial){.loss = loss_of(w, g->fetched, w->trained),
	        .own = loss_of(w, g->toy.x, w->trained),
	        .initial = loss_of(w, w->initial, w->trained),
	        .test = w->setup.seed % 2};
	check_owner(w, i, SLOT_FETCHED, OWNER_LEARNER, OWNER_NONE);
}

static void restore(struct fsim *w, int i)
{
	struct fsim_toy *t = &w->agent[i].toy;
	for (int p = 0; p < w->params; p++)
		w->sum[p] += (double)t->before[p] - (double)t->x[p];
	memcpy(t->x, t->before, (size_t)w->params * sizeof(float));
	memcpy(t->m, t->before + w->params, (size_t)w->params * sizeof(float));
	t->moved = 0;
	t->set_step = t->step;
	w->agent[i].lied_at = 0;
	memset(w->agent[i].pulled, 0, sizeof w->agent[i].pulled);
}

static void adopt(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	check_adopts(w, i);
	memcpy(g->toy.before, g->toy.x, (size_t)w->params * sizeof(float));
	memcpy(g->toy.before + w->params, g->toy.m, (size_t)w->params * sizeof(float));
	byz_adopts(w, i);
	for (int p = 0; p < w->params; p++)
		w->sum[p] += (double)g->fetched[p] - (double)g->toy.x[p];
	memcpy(g->toy.x, g->fetched, (size_t)w->params * sizeof(float));
	memcpy(g->toy.m, g->fetched + w->params, (size_t)w->params * sizeof(float));
	g->toy.optim_steps = a->adopt.optim_steps;
	g->toy.moved = 0;
	g->toy.set_step = g->toy.step;
	g->adoptions++;
	w->adoptions++;
	check_owner(w, i, SLOT_FETCHED, OWNER_LEARNER, OWNER_NONE);
}

static void take_state(struct fsim *w, int i, struct flock_state *s)
{
	struct fsim_agent *g = &w->agent[i];
	const struct fsim_toy *t = &g->toy;
	memcpy(g->donated, t->x, (size_t)w->params * sizeof(float));
	memcpy(g->donated + w->params, t->m, (size_t)w->params * sizeof(float));
	*s = (struct flock_state){.step = t->step,
	        .samples = t->samples,
	        .clock = t->samples + t->others,
	        .optim_steps = t->optim_steps,
	        .optimizer = 0,
	        .vectors = FSIM_VECTORS};
	g->tag = ++w->states;
	check_owner(w, i, SLOT_DONATED, OWNER_LEARNER, OWNER_NONE);
}

static void serve(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_toy *t = &g->toy;
	static const uint8_t kinds[] = {[FLOCK_DO_SNAPSHOT] = FLOCK_EVENT_SNAPSHOT,
	        [FLOCK_DO_APPLY] = FLOCK_EVENT_APPLIED,
	        [FLOCK_DO_TAKE_STATE] = FLOCK_EVENT_STATE,
	        [FLOCK_DO_TRY] = FLOCK_EVENT_TRIED,
	        [FLOCK_DO_ADOPT] = FLOCK_EVENT_ADOPTED,
	        [FLOCK_DO_EVALUATE] = FLOCK_EVENT_EVALUATED,
	        [FLOCK_DO_SAVE] = FLOCK_EVENT_SAVED,
	        [FLOCK_DO_EXPORT] = FLOCK_EVENT_EXPORTED,
	        [FLOCK_DO_STOP] = FLOCK_EVENT_STOPPED};
	uint32_t item = world_item(w, i, kinds[a->kind]);
	struct fsim_item *x = world_get(w, item);
	switch (a->kind) {
	case FLOCK_DO_SNAPSHOT:
		memcpy(g->snapshot, t->x, sizeof g->snapshot);
		sketch_of(w, t->x, &x->sketch);
		x->e.snapshot.step = t->step;
		x->e.snapshot.sketch = a->snapshot.sketch ? &x->sketch : NULL;
		check_owner(w, i, SLOT_SNAPSHOT, OWNER_LEARNER, OWNER_NONE);
		break;
	case FLOCK_DO_APPLY:
		apply(w, i, a);
		break;
	case FLOCK_DO_TAKE_STATE:
		take_state(w, i, &x->e.state);
		break;
	case FLOCK_DO_TRY:
		try(w, i, &x->e.tried);
		break;
	case FLOCK_DO_ADOPT:
		adopt(w, i, a);
		break;
	case FLOCK_DO_EVALUATE:
		x->e.eval = (struct flock_eval){
		        .correct = 1, .count = 1, .step = t->step, .whole = true, .asked = true};
		break;
	case FLOCK_DO_SAVE:
		save(w, i, &x->e);
		break;
	case FLOCK_DO_EXPORT:
		x->e.code = g->disk.full && world_chance(w, 0.7) ? ERR_IO : 0;
		if (x->e.code == 0) {
			check_exported(w, i);
			byz_exported(w, i);
		}
		break;
	default:
		t->stopped = true;
		break;
	}
	answer(w, item, world_between(w, 0, 2));
}

/* ---- steps */

float toy_optimum(const struct fsim *w, int p, uint64_t clock)
{
	float share = (float)((double)clock / (double)w->total);
	return w->optimum[p] + (share < 1 ? share : 1) * w->way[p];
}

static void train(struct fsim *w, int i)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_toy *t = &g->toy;
	double norm2 = 0, step2 = 0, loss = FLOOR * w->params;
	check_trains(w, i);
	float lr = w->setup.still ? 0 : LR;
	float share = 2 * (float)t->samples * (float)w->n / (float)w->total;
	share = share < 1 ? share : 1;
	for (int p = 0; p < w->params; p++) {
		float off = t->x[p] - toy_optimum(w, p, t->samples + t->others);
		/* The two sides of a partition train on other data. */
		off -= g->group ? share * w->elsewhere[p] : 0;
		float grad = off + (float)(NOISE * rng_normal(&w->noise));
		t->m[p] = MOMENTUM * t->m[p] + grad;
		t->x[p] -= lr * t->m[p];
		norm2 += (double)grad * grad;
		/* Also of a learner that stands still. */
		step2 += (double)(LR * t->m[p]) * (LR * t->m[p]);
		loss += 0.5 * (double)off * off;
	}
	t->step++;
	t->optim_steps++;
	t->samples += FSIM_BATCH;
	w->trained += FSIM_BATCH;
	t->moved += sqrt(step2);
	byz_trained(w, i);
	uint32_t item = world_item(w, i, FLOCK_EVENT_STEPS);
	struct fsim_item *x = world_get(w, item);
	x->step = (struct flock_trained){.step = t->step,
	        .samples = t->samples,
	        .loss = loss,
	        .lr = (double)LR,
	        .grad_norm = sqrt(norm2),
	        .moved = t->moved};
	x->e.steps.list = &x->step;
	x->e.steps.n = 1;
	answer(w, item, w->setup.pace ? t->step_ms : world_between(w, 0, 2));
}

static void finish(struct fsim *w, int i)
{
	struct fsim_toy *t = &w->agent[i].toy;
	uint32_t item = world_item(w, i, FLOCK_EVENT_DONE);
	t->done = true;
	world_get(w, item)->e.done.clock = t->samples + t->others;
	bool late = w->n_faults > 0 && rng_f64(&w->more) < 0.3;
	answer(w, item, 3 + (late ? rng_below(&w->more, 3000) : 0));
}

void toy_turn(struct fsim *w, int i, uint32_t turn)
{
	struct fsim_toy *t = &w->agent[i].toy;
	struct flock_action request[FSIM_QUEUE];
	int n = t->n;
	if (t->restores) {
		t->restores = false;
		restore(w, i);
	}
	if (!w->agent[i].alive || turn != t->turn || t->stopped)
		return;
	memcpy(request, t->request, sizeof request);
	t->n = 0;
	for (int k = 0; k < n && !t->stopped; k++)
		serve(w, i, &request[k]);
	if (t->stopped || !t->training || t->done)
		return;
	if (t->samples + t->others >= w->total) {
		finish(w, i);
		return;
	}
	train(w, i);
	turn_in(w, i, t->step_ms + rng_below(&w->rng, t->step_ms / 4 + 1));
}

/* ---- a worker */

/* As of net/bulk/lattice.h, with all parameters in one block. */
static void tell_scales(struct fsim *w, const struct fsim_agent *g, struct fsim_item *x)
{
	struct flock_event *e = &x->e;
	bool lattice = g->format >= FSIM_MOD8;
	float far = 0, size = 0, step = lattice ? bulk_step(g, g->format) : 0;
	for (int p = 0; p < w->params; p++) {
		far = fmaxf(far, fabsf(g->staging[p]));
		size = fmaxf(size, fabsf(g->snapshot[p]));
	}
	x->found = g->wrapped    ? SCALES_WRAPPED
	           : far <= step ? SCALES_LEAST
	                         : scales_of(1.25f * far);
	x->size = scales_of(size);
	e->measured.found = &x->found;
	e->measured.size = &x->size;
	e->measured.n_scales = 1;
	e->measured.blocks = lattice;
	e->measured.wrapped = lattice && g->wrapped;
	e->measured.rounding2 = (double)step * (double)step * w->params / 6;
}

void toy_measure(struct fsim *w, int i, uint8_t slot)
{
	struct fsim_agent *g = &w->agent[i];
	uint32_t item = world_item(w, i, FLOCK_EVENT_MEASURED);
	struct fsim_item *x = world_get(w, item);
	float y[FSIM_PARAMS];
	check_owner(w, i, slot, OWNER_NONE, OWNER_WORKER);
	x->e.measured.slot = slot;
	x->e.measured.finite = true;
	for (int p = 0, group = 0; p < w->params; p++) {
		group += (size_t)p >= w->group_end[group];
		y[p] = slot == SLOT_FETCHED ? g->fetched[p] : g->snapshot[p] + g->staging[p];
		x->e.measured.finite = x->e.measured.finite && isfinite(y[p]);
		x->e.measured.distance2[group] += (double)g->staging[p] * g->staging[p];
	}
	sketch_of(w, y, &x->sketch);
	x->e.measured.sketch = &x->sketch;
	if (slot == SLOT_STAGING && w->setup.lattice)
		tell_scales(w, g, x);
	world_later(w, item, world_between(w, 1, world_odd(w, 0.05) ? 600 : 10));
}
