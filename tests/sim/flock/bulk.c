/* SPDX-License-Identifier: MIT */
/* Bulk connections, and the transfers over them.
 *
 * A connection has two ends, one in each agent's table, found by the number of the exchange. A
 * transfer runs when both ends have started theirs; it may break at any number, and ends for both.
 * Some are kept from an earlier exchange: then the other end may be gone though this one came. */
#include "tests/sim/flock/byzantine.h"

#include <math.h>
#include <string.h>

static struct fsim_conn *find(struct fsim_agent *a, uint64_t exchange)
{
	for (int i = 0; i < FSIM_CONNS; i++)
		if (a->conn[i].exchange == exchange && exchange != 0)
			return &a->conn[i];
	return NULL;
}

static uint32_t number(const struct fsim_agent *a, const struct fsim_conn *c)
{
	return (uint32_t)(c - a->conn);
}

static void came(struct fsim *w, int i, int with, uint64_t exchange, uint8_t how, uint64_t after_ms)
{
	uint32_t item = world_item(w, i, FLOCK_EVENT_BULK);
	struct flock_event *e = &world_get(w, item)->e;
	e->peer = w->agent[with].id;
	e->exchange = exchange;
	e->bulk = how;
	world_later(w, item, after_ms);
}

/* A connection may come when the exchange that wanted it is long over. */
static uint64_t soon(struct fsim *w)
{
	return world_between(w, 1, world_odd(w, 0.03) ? 6000 : 20);
}

/* A fresh one takes the place of one that was kept and lost; the core was told of that. */
static bool replace(struct fsim *w, int i, uint64_t exchange)
{
	struct fsim_conn *c = find(&w->agent[i], exchange);
	if (!c || c->started || !c->kept)
		return false;
	c->kept = false;
	return true;
}

static bool make(struct fsim *w, int i, int with, uint64_t exchange)
{
	struct fsim_agent *a = &w->agent[i];
	struct fsim_conn *c = find(a, exchange);
	for (int k = 0; !c && k < FSIM_CONNS; k++)
		if (a->conn[k].exchange == 0)
			c = &a->conn[k];
	if (!c || c->exchange)
		return false;
	memset(c, 0, sizeof *c);
	c->exchange = exchange;
	c->with = with;
	c->since_ms = w->now_ms;
	c->there = true;
	c->op = ++a->ops;
	return true;
}

void bulk_open(struct fsim *w, int from, const struct flock_action *a)
{
	int to = world_find(w, &a->peer);
	if (to < 0)
		return;
	bool kept = a->use == USE_EXCHANGE && !a->fresh && world_odd(w, 0.3);
	if (!w->agent[to].dialable && !kept) {
		came(w, from, to, a->exchange, BULK_CANNOT_DIAL, 0);
		return;
	}
	bool works = world_way(w, from, to)->up && w->agent[to].alive &&
	             world_reaches(w, from, to) && !world_chance(w, w->bulk_break_chance);
	if ((works || kept) && make(w, from, to, a->exchange)) {
		find(&w->agent[from], a->exchange)->kept = kept;
		/* Nobody has seen yet that the other end is gone. */
		if (kept && (!works || world_odd(w, 0.1))) {
			came(w, from, to, a->exchange, BULK_CAME, soon(w));
			return;
		}
		bool again = replace(w, to, a->exchange);
		if (again || make(w, to, from, a->exchange)) {
			find(&w->agent[to], a->exchange)->kept = kept;
			if (!again)
				came(w, to, from, a->exchange, BULK_CAME, soon(w));
			came(w, from, to, a->exchange, BULK_CAME, soon(w));
			return;
		}
		find(&w->agent[from], a->exchange)->exchange = 0;
	}
	came(w, from, to, a->exchange, BULK_FAILED, works ? 1 : world_between(w, 1, 3000));
}

/* An end is gone: the other sees it. */
static void other_breaks(struct fsim *w, const struct fsim_conn *c)
{
	struct fsim_agent *b = &w->agent[c->with];
	struct fsim_conn *d = find(b, c->exchange);
	if (!d || !b->alive || !d->started)
		return;
	d->op = ++b->ops;
	d->how.kind = FLOCK_DO_CLOSE; /* broken */
	world_push(
	        w, world_between(w, 1, 50), FSIM_END, (uint32_t)c->with + 64 * number(b, d), d->op);
}

static void forget(struct fsim *w, struct fsim_conn *c)
{
	struct fsim_conn was = *c;
	c->exchange = 0;
	other_breaks(w, &was);
}

void bulk_close(struct fsim *w, int i, uint64_t exchange)
{
	struct fsim_conn *c = find(&w->agent[i], exchange);
	if (c && !c->started)
		forget(w, c);
}

void bulk_dead(struct fsim *w, int i)
{
	for (int k = 0; k < FSIM_CONNS; k++)
		if (w->agent[i].conn[k].exchange)
			forget(w, &w->agent[i].conn[k]);
}

static void run(struct fsim *w, int i, struct fsim_conn *c)
{
	struct fsim_agent *a = &w->agent[i], *b = &w->agent[c->with];
	struct fsim_conn *d = find(b, c->exchange);
	uint64_t deadline = c->how.transfer.deadline_ms;
	if (!b->alive || !d) { /* the other end is gone */
		c->how.kind = FLOCK_DO_CLOSE;
		world_push(w, world_between(w, 1, 50), FSIM_END, (uint32_t)i + 64 * number(a, c),
		        c->op);
		return;
	}
	if (!d->started) { /* it may never start */
		world_push(w, deadline, FSIM_END, (uint32_t)i + 64 * number(a, c), c->op);
		return;
	}
	bool state = c->how.use != USE_EXCHANGE;
	if (state && c->how.transfer.offset != d->how.transfer.offset)
		fsim_fail(w, "agents %d and %d mean other parts of a state", i, c->with);
	bool breaks = world_chance(w, w->bulk_break_chance) || !world_reaches(w, i, c->with) ||
	              world_odd(w, state ? 0.2 : 0.01);
	uint64_t most = world_odd(w, state ? 0.2 : 0.02) ? (state ? 30000 : 4000) : 300;
	uint64_t ms = world_between(w, 5, most);
	struct fsim_conn *end[2] = {c, d};
	int who[2] = {i, c->with};
	for (int s = 0; s < 2; s++) {
		uint64_t at = ms + world_between(w, 0, 50);
		uint64_t last = end[s]->how.transfer.deadline_ms;
		end[s]->op = ++w->agent[who[s]].ops;
		end[s]->n_in = end[!s]->n_data;
		end[s]->tag_in = end[!s]->tag;
		memcpy(end[s]->in, end[!s]->data, sizeof end[s]->in);
		if (breaks)
			end[s]->how.kind = FLOCK_DO_CLOSE;
		else if (at < last)
			end[s]->how.kind = FLOCK_DO_MEASURE; /* both run */
		world_push(w, at < last ? at : last, FSIM_END,
		        (uint32_t)who[s] + 64 * number(&w->agent[who[s]], end[s]), end[s]->op);
	}
	if (state)
		script_donates(w, who[c->how.use == USE_FETCH], who[c->how.use != USE_FETCH], ms);
}

float bulk_step(const struct fsim_agent *g, uint8_t format)
{
	int octaves = (g->scale - (g->scale & 1)) / 2;
	return ldexpf(1, octaves - (format == FSIM_MOD4 ? 2 : 6));
}

static float quantised(const struct fsim_agent *g, float v, uint8_t format)
{
	uint32_t bits;
	if (format == 0)
		return v;
	if (format >= FSIM_MOD8)
		return bulk_step(g, format) * rintf(v / bulk_step(g, format));
	memcpy(&bits, &v, sizeof bits);
	bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
	memcpy(&v, &bits, sizeof v);
	return v;
}

void bulk_transfer(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_conn *c = find(g, a->exchange);
	if (a->use == USE_EXCHANGE) {
		check_owner(w, i, SLOT_STAGING, OWNER_NONE, OWNER_TRANSFER);
		check_owner(w, i, SLOT_SNAPSHOT, OWNER_NONE, OWNER_TRANSFER);
	} else if (a->use == USE_FETCH)
		check_owner(w, i, SLOT_FETCHED, OWNER_NONE, OWNER_TRANSFER);
	else
		g->readers++;
	if (!c || c->started) {
		fsim_fail(w, "agent %d transfers over a connection that it has not", i);
		return;
	}
	c->started = true;
	c->how = *a;
	c->op = ++g->ops;
	if (a->use == USE_EXCHANGE && a->transfer.sends) {
		c->n_data = (uint64_t)w->params;
		for (int p = 0; p < w->params; p++)
			c->data[p] = quantised(g, g->snapshot[p], a->transfer.format);
	} else if (a->use >= USE_DONATE) {
		c->n_data = FSIM_VECTORS * (uint64_t)w->params - a->transfer.offset;
		memcpy(c->data, g->donated + a->transfer.offset, c->n_data * sizeof(float));
		c->tag = g->tag;
	}
	liar_data(w, i, c);
	byz_data(w, i, c);
	run(w, i, c);
}

void bulk_cancel_use(struct fsim *w, int i, const struct flock_action *a)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_conn *c = find(g, a->exchange);
	if (!c)
		return; /* its end is on its way to the core */
	if (!c->started) {
		fsim_fail(w, "agent %d cancels a transfer that is not there", i);
		return;
	}
	c->op = ++g->ops;
	c->how.kind = FLOCK_DO_CANCEL;
	/* Whoever works on it may take its time to notice. */
	world_push(w, world_odd(w, 0.3) ? world_between(w, 1, 1500) : 1, FSIM_END,
	        (uint32_t)i + 64 * number(g, c), c->op);
}

/* ---- the end of one */

/* The difference, as far as it has come. */
static void receive_exchange(struct fsim *w, int i, const struct fsim_conn *c, uint64_t n)
{
	struct fsim_agent *g = &w->agent[i];
	g->format = c->how.transfer.format;
	g->wrapped = false;
	float most = g->format < FSIM_MOD8
	                     ? INFINITY
	                     : bulk_step(g, g->format) * (g->format == FSIM_MOD4 ? 7 : 127);
	for (uint64_t p = 0; p < n; p++) {
		/* Of what was packed by other steps than ours nothing can be made. */
		float in = g->format < FSIM_MOD8 ? c->in[p] : quantised(g, c->in[p], g->format);
		g->staging[p] = in - quantised(g, g->snapshot[p], g->format);
		g->wrapped = g->wrapped || fabsf(g->staging[p]) > most;
	}
	if (g->wrapped) /* both see it */
		memset(g->staging, 0, sizeof g->staging);
}

/* What comes goes on where the same state ended, or another one that is near it. */
static void receive_state(struct fsim *w, int i, const struct fsim_conn *c, uint64_t n)
{
	struct fsim_agent *g = &w->agent[i];
	uint64_t offset = c->how.transfer.offset;
	if (n > 0 && offset == 0)
		g->mixes = false;
	else if (n > 0 && !g->mixes && ((g->from[offset - 1] ^ c->tag_in) & ~FSIM_STATE_LIE) != 0)
		fsim_fail(w, "agent %d takes the rest of another state", i);
	memcpy(g->fetched + offset, c->in, n * sizeof(float));
	for (uint64_t k = 0; k < n; k++)
		g->from[offset + k] = c->tag_in;
}

void bulk_ends(struct fsim *w, int i, int conn, uint32_t op)
{
	struct fsim_agent *g = &w->agent[i];
	struct fsim_conn *c = &g->conn[conn];
	uint8_t use = c->how.use;
	if (!g->alive || c->exchange == 0 || c->op != op)
		return;
	int code = c->how.kind == FLOCK_DO_MEASURE  ? 0
	           : c->how.kind == FLOCK_DO_CLOSE  ? ERR_IO
	           : c->how.kind == FLOCK_DO_CANCEL ? ERR_CANCELLED
	                                            : ERR_TIMEOUT;
	uint32_t item = world_item(w, i, FLOCK_EVENT_TRANSFERRED);
	struct flock_event *e = &world_get(w, item)->e;
	uint64_t wanted = use == USE_EXCHANGE
	                          ? (uint64_t)w->params
	                          : FSIM_VECTORS * (uint64_t)w->params - c->how.transfer.offset;
	uint64_t n = c->how.transfer.receives ? c->n_in : 0;
	if (code != 0 && n > 0) /* broken at any number */
		n = rng_below(&w->rng, n + 1);
	else if (code == 0 && c->how.transfer.receives && n != wanted)
		code = ERR_IO;
	n = n < wanted ? n : wanted;
	if (c->kept && code == ERR_IO && world_odd(w, 0.5))
		n = 0;
	if (use == USE_EXCHANGE) {
		check_owner(w, i, SLOT_STAGING, OWNER_TRANSFER, OWNER_NONE);
		check_owner(w, i, SLOT_SNAPSHOT, OWNER_TRANSFER, OWNER_NONE);
		receive_exchange(w, i, c, n);
	} else if (use == USE_FETCH) {
		check_owner(w, i, SLOT_FETCHED, OWNER_TRANSFER, OWNER_NONE);
		receive_state(w, i, c, n);
	} else
		g->readers--;
	e->exchange = c->exchange;
	e->code = code;
	e->transferred.use = use;
	e->transferred.received = n;
	uint64_t each = use == USE_EXCHANGE && c->how.transfer.format >= FSIM_MOD8 ? 1 : 4;
	e->transferred.bytes_sent = each * c->n_data;
	e->transferred.bytes_received = each * n;
	e->transferred.again = c->kept && code == ERR_IO && n == 0;
	if (code != 0)
		forget(w, c);
	c->exchange = 0;
	world_later(w, item, 0);
}
