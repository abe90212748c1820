/* SPDX-License-Identifier: MIT */
/* What the core asks of a learner. The fleet trains; here is what happens between two steps, by the
 * arithmetic that the product's own learner and transfers use (net/bulk/convert.h).
 *
 * As the product's, it does what it is asked for between two steps, in order, and stops by itself
 * at the end of the run. Without training there are no vectors: everything is answered, distances
 * are 0, and only bytes and time are left. */
#include "agent/simulate/flock/world.h"
#include "gossip/policy/outer.h"
#include "model/arch/arch.h"
#include "model/graph/optim.h"
#include "model/graph/outer.h"
#include "model/graph/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 4096
#define LOOK_FIRST 16 /* as trainer.c has it */
#define LOOK_EVERY 16
#define TRY_SAMPLES 512

float *world_vector(size_t n)
{
	float *p = calloc(n, sizeof *p);
	if (!p)
		abort();
	return p;
}

/* ---- beginning and end */

static int outer_of(const struct world *w)
{
	return w->trains ? sim_scenario(w->sim)->config.gossip.outer : OUTER_NONE;
}

/* As agent/train does it, when parameters were set. */
static void outer_begins(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	a->learner.since_outer = 0;
	a->learner.lr = 0;
	if (outer_of(w) != OUTER_NOLOCO)
		return;
	if (!a->phi) {
		a->phi = world_vector(w->n_train);
		a->outer = world_vector(w->n_train);
	}
	memcpy(a->phi, fleet_x(sim_fleet(w->sim), i), w->n_train * sizeof(float));
	memset(a->outer, 0, w->n_train * sizeof(float));
}

/* As agent/train/trainer.c: no step holds a sample twice. */
static struct batch_config batch_of(const struct world *w, uint32_t i)
{
	struct batch_config c = w->batch;
	uint64_t samples = fleet_agent_samples(sim_fleet(w->sim), i);
	c.most = c.most < samples ? c.most : samples;
	c.most = c.most > c.first ? c.most : c.first;
	return c;
}

void world_learner_open(struct world *w, uint32_t i)
{
	struct world_learner *l = &w->agent[i].learner;
	bool stepping = l->stepping;
	memset(l, 0, sizeof *l);
	l->stepping = stepping;
	l->agents = 1;
	l->batch_config = batch_of(w, i);
	batch_start(&l->batch, &l->batch_config);
	outer_begins(w, i);
}

void world_learner_close(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	free(a->learner.before);
	free(a->snapshot);
	free(a->noise);
	free(a->staging);
	free(a->donated);
	free(a->fetched);
	free(a->phi);
	free(a->outer);
	a->learner.before = a->staging = a->donated = a->fetched = a->phi = a->outer = NULL;
	a->snapshot = a->noise = NULL;
	a->learner.n = 0;
	a->learner.training = false;
}

static void params_set(struct world_learner *l)
{
	l->moved = l->momentum_norm = 0;
	l->since_set = 0;
}

/* ---- vectors */

static void sketch_wire(const struct world *w, enum convert_format f, const uint8_t *wire,
        const float *add, struct sketch *out)
{
	const struct convert *c = convert_best();
	float y[PIECE];
	memset(out, 0, sizeof *out);
	for (size_t at = 0; at < w->n_train; at += PIECE) {
		size_t k = w->n_train - at < PIECE ? w->n_train - at : PIECE;
		struct convert_sums sums = {0};
		c->take(f, y, wire + at * convert_word(f), NULL, k, TAKE_WORDS, &sums);
		if (add)
			c->add(y, add + at, 1, k);
		sketch_add(out, y, at, k);
	}
}

/* ---- a lattice: see net/bulk/lattice.h */

static void pack(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_agent *g = &w->agent[i];
	const float *x = fleet_x(sim_fleet(w->sim), i);
	memcpy(g->last.used, a->snapshot.scales, a->snapshot.n_scales);
	g->last.l = (struct lattice){.bits = convert_rows[g->last.format].bits,
	        .count = w->n_total,
	        .shift = scales_shift(w->n_total),
	        .scale = g->last.used};
	memset(g->last.size, SCALES_LEAST, sizeof g->last.size);
	g->last.refused = !lattice_pack(&g->last.l, g->snapshot, x, 0, w->n_total, g->last.size);
	memset(&g->last.sketch, 0, sizeof g->last.sketch);
	sketch_add(&g->last.sketch, x, 0, w->n_train);
}

static void note(int8_t *scale, int8_t s)
{
	*scale = s > *scale ? s : *scale;
}

static void measure_lattice(struct world *w, struct world_agent *b)
{
	size_t at = 0;
	for (int g = 0; g < w->groups.n; g++)
		for (; at < w->groups.end[g]; at++)
			b->distance2[g] += (double)b->staging[at] * (double)b->staging[at];
}

/* Block by block, into staging as numbers: memory is no matter here. */
static void receive_packed(struct world *w, struct world_agent *b, const uint8_t *records)
{
	const struct lattice *l = &b->last.l;
	const size_t record = lattice_record(l->bits), blocks = lattice_blocks(l->count);
	uint8_t *packed = malloc(lattice_difference(l->bits, l->count));
	if (!packed)
		abort();
	memset(b->last.found, SCALES_LEAST, sizeof b->last.found);
	b->last.wrapped = 0;
	b->last.rounding2 = 0;
	for (size_t k = 0; k < blocks; k++) {
		struct lattice_found f;
		double step = (double)lattice_step(l, k);
		lattice_take(l, packed + k * 32 * (size_t)l->bits, &f, records + k * record,
		        b->snapshot + k * record, 1);
		note(&b->last.found[k >> l->shift], lattice_scale(l, k, &f));
		if (f.top == LATTICE_WRAPPED)
			b->last.wrapped++;
		else
			b->last.rounding2 += step * step * LATTICE_BLOCK / 6;
	}
	lattice_unpack(l, b->staging, packed, 0, l->count);
	free(packed);
	measure_lattice(w, b);
}

/* What an exchange of numbers says about scales: staging is y − ours. */
static void note_scales(struct world *w, struct world_agent *g)
{
	const enum convert_format f = (enum convert_format)g->last.format;
	const size_t word = convert_word(f);
	const int shift = scales_shift(w->n_total);
	memset(g->last.found, SCALES_LEAST, sizeof g->last.found);
	memset(g->last.size, SCALES_LEAST, sizeof g->last.size);
	for (size_t at = 0; at < w->n_total; at++) {
		struct convert_sums sums = {0};
		size_t run = at / SCALES_BLOCK >> shift;
		float ours;
		convert_best()->take(f, &ours, g->snapshot + at * word, NULL, 1, TAKE_WORDS, &sums);
		note(&g->last.found[run], scales_of(fabsf(1.25f * g->staging[at])));
		note(&g->last.size[run], scales_of(fabsf(ours)));
	}
}

static void tell_scales(struct world *w, struct world_agent *g, struct flock_event *e)
{
	bool lattice = g->last.format >= CONVERT_WORDS;
	if (!lattice && w->base.format < CONVERT_WORDS)
		return; /* nobody would use them */
	if (!lattice)
		note_scales(w, g);
	e->measured.found = g->last.found;
	e->measured.size = g->last.size;
	e->measured.n_scales = (uint16_t)scales_count(w->n_total);
	e->measured.blocks = lattice ? lattice_blocks(w->n_total) : 0;
	e->measured.wrapped = lattice ? g->last.wrapped : 0;
	e->measured.rounding2 = lattice ? g->last.rounding2 : 0;
	e->code = lattice && g->last.refused ? ERR_LIMIT : 0;
}

/* What a bad agent sends instead. It is as large as its parameters, and made now: when it is sent a
 * step may be changing them. */
static void make_noise(struct world *w, uint32_t i, enum convert_format f)
{
	struct world_agent *g = &w->agent[i];
	if (!sim_bad(w->sim, i))
		return;
	if (!g->noise)
		g->noise = (uint8_t *)world_vector(w->n_total + LATTICE_BLOCK);
	const float *x = sim_sent(w->sim, i, fleet_x(sim_fleet(w->sim), i), w->room);
	if (f >= CONVERT_WORDS)
		(void)!lattice_pack(&g->last.l, g->noise, x, 0, w->n_total, NULL);
	else
		convert_best()->pack(f, g->noise, x, w->n_total);
}

static void snapshot(
        struct world *w, uint32_t i, const struct flock_action *a, struct world_item *x)
{
	struct world_agent *g = &w->agent[i];
	enum convert_format f = (enum convert_format)a->snapshot.format;
	x->e.snapshot.step = g->learner.step;
	x->e.snapshot.sketch = a->snapshot.sketch ? &x->sketch : NULL;
	memset(&x->sketch, 0, sizeof x->sketch);
	if (!w->trains)
		return;
	if (!g->snapshot)
		g->snapshot = (uint8_t *)world_vector(w->n_total + LATTICE_BLOCK);
	g->last.format = a->snapshot.format;
	if (f >= CONVERT_WORDS) {
		pack(w, i, a);
		make_noise(w, i, f);
		x->sketch = g->last.sketch;
		return;
	}
	convert_best()->pack(f, g->snapshot, fleet_x(sim_fleet(w->sim), i), w->n_total);
	make_noise(w, i, f);
	if (a->snapshot.sketch)
		sketch_wire(w, f, g->snapshot, NULL, &x->sketch);
}

void world_receive(struct world *w, uint32_t from, uint32_t to, uint8_t format)
{
	struct world_agent *a = &w->agent[from], *b = &w->agent[to];
	enum convert_format f = (enum convert_format)format;
	const struct convert *c = convert_best();
	const uint8_t *wire = a->noise ? a->noise : a->snapshot;
	size_t at = 0, word = f < CONVERT_WORDS ? convert_word(f) : 0;
	memset(b->distance2, 0, sizeof b->distance2);
	b->finite = true;
	if (!w->trains || !a->snapshot || !b->snapshot)
		return;
	if (!b->staging)
		b->staging = world_vector(w->n_total);
	if (f >= CONVERT_WORDS) {
		receive_packed(w, b, wire);
		return;
	}
	for (int g = 0; g <= w->groups.n; g++) {
		size_t end = g < w->groups.n ? w->groups.end[g] : w->n_total;
		struct convert_sums sums = {0};
		c->take(f, b->staging + at, wire + at * word, b->snapshot + at * word, end - at,
		        TAKE_DIFFERENCE, &sums);
		if (g < w->groups.n)
			b->distance2[g] = sums.distance2;
		b->finite = b->finite && convert_finite(&sums);
		at = end;
	}
}

static void measure(struct world *w, uint32_t i, uint8_t slot)
{
	struct world_agent *g = &w->agent[i];
	uint32_t item = world_item(w, i, FLOCK_EVENT_MEASURED);
	struct world_item *x = world_get(w, item);
	x->e.measured.slot = slot;
	x->e.measured.finite = slot == SLOT_FETCHED || g->finite;
	memcpy(x->e.measured.distance2, g->distance2, sizeof g->distance2);
	memset(&x->sketch, 0, sizeof x->sketch);
	if (slot == SLOT_FETCHED && g->fetched)
		sketch_add(&x->sketch, g->fetched, 0, w->n_train);
	else if (slot == SLOT_STAGING && g->staging && g->last.format >= CONVERT_WORDS) {
		x->sketch = g->last.sketch;
		sketch_add(&x->sketch, g->staging, 0, w->n_train);
	} else if (slot == SLOT_STAGING && g->staging)
		sketch_wire(w, (enum convert_format)g->last.format, g->snapshot, g->staging,
		        &x->sketch);
	if (slot == SLOT_STAGING && g->staging)
		tell_scales(w, g, &x->e);
	x->e.measured.sketch = &x->sketch;
	world_later(w, item, 1);
}

static void merge_part(struct world *w, uint32_t i, float *follows, size_t at, size_t n, float k)
{
	struct world_agent *g = &w->agent[i];
	const struct optim_config *o = &sim_scenario(w->sim)->config.train.optim;
	float *x = fleet_x(sim_fleet(w->sim), i);
	convert_best()->add(x + at, g->staging + at, k, n);
	if (follows)
		outer_follow(follows + at, g->staging + at, n, k);
	if (outer_of(w) == OUTER_QGM && g->learner.lr > 0)
		outer_qgm_merged(fleet_m(sim_fleet(w->sim), i) + at, g->staging + at, n, k,
		        (float)o->momentum, (float)outer_qgm_rate(g->learner.lr, o->lr));
}

static void merge_stats(struct world *w, uint32_t i, float k)
{
	const size_t at = w->n_train, n = w->n_total - at;
	float *x = fleet_x(sim_fleet(w->sim), i) + at;
	stats_steps(fleet_arch(sim_fleet(w->sim)), x, w->agent[i].staging + at, at, n, k, w->room);
	convert_best()->add(x, w->room, 1, n);
}

static void apply(struct world *w, uint32_t i, const struct flock_action *a)
{
	const struct config *c = &sim_scenario(w->sim)->config;
	struct world_agent *g = &w->agent[i];
	struct world_learner *l = &g->learner;
	size_t at = 0;
	float least = a->apply.n > 0 ? a->apply.k[0] : 0;
	if (!w->trains || !g->staging)
		return;
	struct outer_plan plan = outer_plan(
	        c->gossip.outer_momentum, l->since_outer, l->samples + l->others, w->total);
	float *x = fleet_x(sim_fleet(w->sim), i), *follows = plan.step ? NULL : g->phi;
	for (int k = 0; k < w->groups.n && k < a->apply.n; k++) {
		least = a->apply.k[k] < least ? a->apply.k[k] : least;
		merge_part(w, i, follows, at, w->groups.end[k] - at, a->apply.k[k]);
		at = w->groups.end[k];
	}
	if (at < w->n_train)
		merge_part(w, i, follows, at, w->n_train - at, least);
	if (w->n_train < w->n_total)
		merge_stats(w, i, least);
	if (!g->phi || !plan.step)
		return;
	memcpy(w->room, x, w->n_train * sizeof *x);
	outer_noloco(w->room, g->phi, g->outer, w->n_train, (float)plan.momentum,
	        (float)c->gossip.outer_rate);
	convert_best()->add(x, w->room, 1, w->n_train);
	l->since_outer = 0;
}

/* ---- whole states */

static void state_get(struct world *w, uint32_t i, float *to)
{
	struct fleet *f = sim_fleet(w->sim);
	size_t bytes = w->n_total * sizeof *to;
	memcpy(to, fleet_x(f, i), bytes);
	memcpy(to + w->n_total, fleet_m(f, i), bytes);
	if (w->vectors > 2)
		memcpy(to + 2 * w->n_total, fleet_v(f, i), bytes);
}

static void state_set(struct world *w, uint32_t i, const float *from, uint64_t optim_steps)
{
	struct fleet *f = sim_fleet(w->sim);
	size_t bytes = w->n_total * sizeof *from;
	memcpy(fleet_x(f, i), from, bytes);
	memcpy(fleet_m(f, i), from + w->n_total, bytes);
	if (w->vectors > 2)
		memcpy(fleet_v(f, i), from + 2 * w->n_total, bytes);
	*fleet_optim_steps(f, i) = optim_steps;
	params_set(&w->agent[i].learner);
	outer_begins(w, i);
}

static void take_state(struct world *w, uint32_t i, struct flock_state *s)
{
	struct world_agent *g = &w->agent[i];
	*s = (struct flock_state){.step = g->learner.step,
	        .samples = g->learner.samples,
	        .clock = g->learner.samples + g->learner.others,
	        .optimizer = w->base.optimizer,
	        .vectors = w->base.vectors};
	if (!w->trains)
		return;
	s->optim_steps = *fleet_optim_steps(sim_fleet(w->sim), i);
	if (w->adapts) {
		s->batch = g->learner.batch.size;
		if (!batch_known(&g->learner.batch, &s->noise, &s->signal))
			s->noise = s->signal = 0;
	}
	if (!g->donated)
		g->donated = world_vector((size_t)w->vectors * w->n_total);
	state_get(w, i, g->donated);
}

static double loss_of(struct world *w, const float *x)
{
	struct fleet_eval r;
	struct err e;
	return fleet_evaluate(sim_fleet(w->sim), x, TRY_SAMPLES, &r, &e) ? NAN : r.loss;
}

static void try(struct world *w, uint32_t i, struct flock_trial *t)
{
	*t = (struct flock_trial){.test = true};
	if (!w->trains || !w->agent[i].fetched)
		return;
	t->loss = loss_of(w, w->agent[i].fetched);
	t->own = loss_of(w, fleet_x(sim_fleet(w->sim), i));
	t->initial = loss_of(w, w->initial);
}

static void adopt(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_agent *g = &w->agent[i];
	if (!w->trains || !g->fetched)
		return;
	if (!g->learner.before)
		g->learner.before = world_vector((size_t)w->vectors * w->n_total);
	state_get(w, i, g->learner.before);
	g->learner.before_optim_steps = *fleet_optim_steps(sim_fleet(w->sim), i);
	state_set(w, i, g->fetched, a->adopt.optim_steps);
	batch_given(&g->learner.batch, &g->learner.batch_config, a->adopt.batch, a->adopt.noise,
	        a->adopt.signal);
}

/* ---- requests */

static void serve(struct world *w, uint32_t i, const struct flock_action *a)
{
	static const uint8_t kinds[] = {[FLOCK_DO_SNAPSHOT] = FLOCK_EVENT_SNAPSHOT,
	        [FLOCK_DO_APPLY] = FLOCK_EVENT_APPLIED,
	        [FLOCK_DO_TAKE_STATE] = FLOCK_EVENT_STATE,
	        [FLOCK_DO_TRY] = FLOCK_EVENT_TRIED,
	        [FLOCK_DO_ADOPT] = FLOCK_EVENT_ADOPTED,
	        [FLOCK_DO_EVALUATE] = FLOCK_EVENT_EVALUATED,
	        [FLOCK_DO_SAVE] = FLOCK_EVENT_SAVED,
	        [FLOCK_DO_EXPORT] = FLOCK_EVENT_EXPORTED,
	        [FLOCK_DO_STOP] = FLOCK_EVENT_STOPPED};
	struct world_learner *l = &w->agent[i].learner;
	if (a->kind == FLOCK_DO_RESTORE) {
		if (l->before)
			state_set(w, i, l->before, l->before_optim_steps);
		return;
	}
	uint32_t item = world_item(w, i, kinds[a->kind]);
	struct world_item *x = world_get(w, item);
	if (a->kind == FLOCK_DO_SNAPSHOT)
		snapshot(w, i, a, x);
	else if (a->kind == FLOCK_DO_APPLY)
		apply(w, i, a);
	else if (a->kind == FLOCK_DO_TAKE_STATE)
		take_state(w, i, &x->e.state);
	else if (a->kind == FLOCK_DO_TRY)
		try(w, i, &x->e.tried);
	else if (a->kind == FLOCK_DO_ADOPT)
		adopt(w, i, a);
	else if (a->kind == FLOCK_DO_EVALUATE)
		x->e.eval = (struct flock_eval){.step = l->step, .whole = true, .asked = true};
	else if (a->kind == FLOCK_DO_SAVE)
		x->e.saved_step = l->step;
	l->stopped = l->stopped || a->kind == FLOCK_DO_STOP;
	world_later(w, item, 0);
}

static void turn_soon(struct world *w, uint32_t i)
{
	struct world_agent *a = &w->agent[i];
	if (a->learner.turn || a->learner.stepping)
		return;
	a->learner.turn = true;
	simnet_push(&w->net, 0, WORLD_TURN, i, a->life);
}

void world_ask(struct world *w, uint32_t i, const struct flock_action *a)
{
	struct world_agent *g = &w->agent[i];
	struct world_learner *l = &g->learner;
	if (a->kind == FLOCK_DO_MEASURE)
		measure(w, i, a->slot);
	else if (a->kind == FLOCK_DO_TRAIN)
		l->training = true;
	else if (a->kind == FLOCK_DO_PAUSE)
		l->training = false;
	else if (a->kind == FLOCK_DO_RELEASE) {
		float **p = a->slot == SLOT_DONATED ? &g->donated : &g->fetched;
		free(*p);
		*p = NULL;
	} else if (l->n < WORLD_REQUESTS)
		l->request[l->n++] = *a;
	else {
		uint32_t item = world_item(w, i, FLOCK_EVENT_REFUSED);
		world_get(w, item)->e.refused = a->kind;
		world_later(w, item, 0);
	}
	turn_soon(w, i);
}

/* ---- steps */

static void finish(struct world *w, uint32_t i, uint64_t clock)
{
	struct world_learner *l = &w->agent[i].learner;
	uint32_t item = world_item(w, i, FLOCK_EVENT_DONE);
	l->done = true;
	world_get(w, item)->e.done.clock = clock;
	world_later(w, item, 0);
}

/* How large the next step is. One that is under way knows nothing of what comes meanwhile. */
static void plan_step(struct world *w, uint32_t i)
{
	struct world_learner *l = &w->agent[i].learner;
	const struct config *c = &sim_scenario(w->sim)->config;
	const uint64_t clock = l->samples + l->others;
	l->lr_times = 1;
	if (!w->adapts)
		return;
	uint64_t size = batch_now(&l->batch, &l->batch_config, l->agents,
	        w->total > clock ? w->total - clock : 0, w->total);
	double times = (double)size / (double)w->batch.first;
	if (c->train.batch_lr != BATCH_LR_KEEP)
		l->lr_times = c->train.batch_lr == BATCH_LR_SQRT ? sqrt(times) : times;
	fleet_plan(sim_fleet(w->sim), i, size, batch_tested(l->step + 1), l->lr_times);
}

static void learn_batch(
        struct world *w, uint32_t i, const struct fleet_result *r, struct flock_trained *t)
{
	struct world_learner *l = &w->agent[i].learner;
	if (!w->adapts)
		return;
	t->batch = fleet_step_samples(sim_fleet(w->sim), i);
	if (r->part > 0)
		batch_test(&l->batch, r->part, r->part2, t->batch, r->grad_norm * r->grad_norm);
	(void)batch_decide(&l->batch, &l->batch_config, l->step, l->agents);
	if (!batch_known(&l->batch, &t->noise, &t->signal))
		t->noise = t->signal = 0;
}

/* Requests, and then the next step. */
void world_turn(struct world *w, uint32_t i)
{
	struct world_learner *l = &w->agent[i].learner;
	l->turn = false;
	if (l->stepping || l->stopped)
		return;
	int n = l->n;
	l->n = 0;
	for (int k = 0; k < n && !l->stopped; k++) {
		struct flock_action a = l->request[k];
		serve(w, i, &a);
	}
	if (!l->training || l->done || l->stopped)
		return;
	if (l->samples + l->others >= w->total) {
		finish(w, i, l->samples + l->others);
		return;
	}
	if (!sim_live(w->sim, i))
		return;
	l->stepping = true;
	plan_step(w, i);
	sim_step(w->sim, i, FLEET_STEP);
}

static double norm2(const float *x, size_t n)
{
	double sum = 0;
	for (size_t k = 0; k < n; k++)
		sum += (double)x[k] * (double)x[k];
	return sum;
}

/* As trainer.c does: how far the step went, and what selsync's gate looks at. */
static double layer_norms(const struct world *w, uint32_t i)
{
	const struct arch *a = fleet_arch(sim_fleet(w->sim));
	const float *g = fleet_g(sim_fleet(w->sim), i);
	double sum = 0;
	for (int k = 0; g && k < a->n_views; k++)
		if (a->views[k].group != PARAM_STAT)
			sum += sqrt(norm2(g + a->views[k].offset, a->views[k].count));
	return sum;
}

static void moves(struct world *w, uint32_t i, double lr)
{
	struct world_learner *l = &w->agent[i].learner;
	uint64_t n = l->since_set++;
	if (!w->trains)
		return;
	if (w->base.optimizer == OPTIM_ADAMW) {
		l->moved += lr * sqrt((double)w->n_train);
		return;
	}
	if (n < LOOK_FIRST || n % LOOK_EVERY == 0)
		l->momentum_norm = sqrt(norm2(fleet_m(sim_fleet(w->sim), i), w->n_train));
	l->moved += lr * l->momentum_norm;
}

void world_stepped(struct world *w, uint32_t i, const struct fleet_result *r)
{
	struct world_agent *a = &w->agent[i];
	struct world_learner *l = &a->learner;
	double lr = sim_lr(w->sim) * l->lr_times;
	l->stepping = false;
	if (!a->alive)
		return;
	l->step++;
	l->samples += fleet_step_samples(sim_fleet(w->sim), i);
	l->since_outer++;
	l->lr = lr;
	moves(w, i, lr);
	uint32_t item = world_item(w, i, FLOCK_EVENT_STEPS);
	struct world_item *x = world_get(w, item);
	x->step = (struct flock_trained){.step = l->step,
	        .samples = l->samples,
	        .loss = w->trains ? r->loss : 1,
	        .lr = lr,
	        .grad_norm = w->trains ? r->grad_norm : 1,
	        .moved = l->moved};
	learn_batch(w, i, r, &x->step);
	if (w->trains && w->base.gate.mode == GATE_SELSYNC)
		x->step.layer_norms = layer_norms(w, i);
	x->e.steps.list = &x->step;
	x->e.steps.n = 1;
	world_later(w, item, 0);
	world_turn(w, i);
}
