/* SPDX-License-Identifier: MIT */
/* Time and the network. A datagram comes late, or not at all. A stream is dialled when something is
 * to be sent, delivers in order, and is given up some seconds after nothing gets through. */
#include "tests/sim/flock/flock_sim.h"

#include <stdlib.h>
#include <string.h>

#define WAITING_MAX 32

void world_push(struct fsim *w, uint64_t after_ms, uint32_t kind, uint32_t a, uint32_t b)
{
	queue_push(&w->queue,
	        (struct sim_entry){.at_ms = w->now_ms + after_ms, .kind = kind, .a = a, .b = b});
}

bool world_chance(struct fsim *w, double p)
{
	return p > 0 && rng_f64(&w->rng) < p;
}

bool world_odd(struct fsim *w, double p)
{
	return w->now_ms < w->faults_end_ms && w->n_faults > 0 && world_chance(w, p);
}

uint64_t world_between(struct fsim *w, uint64_t low, uint64_t high)
{
	return low + rng_below(&w->rng, high - low + 1);
}

/* ---- items */

struct fsim_item *world_get(struct fsim *w, uint32_t item)
{
	return w->item[item - 1];
}

uint32_t world_item(struct fsim *w, int to, uint8_t kind)
{
	uint32_t i = w->free_item;
	if (i)
		w->free_item = world_get(w, i)->next;
	else {
		i = ++w->n_items;
		w->item = realloc(w->item, w->n_items * sizeof *w->item);
		if (!w->item || !(w->item[i - 1] = malloc(sizeof **w->item)))
			abort();
	}
	struct fsim_item *x = world_get(w, i);
	x->next = 0;
	x->to = to;
	x->life = w->agent[to].life;
	x->stream_from = -1;
	memset(&x->e, 0, sizeof x->e);
	x->e.kind = kind;
	return i;
}

void world_free(struct fsim *w, uint32_t item)
{
	world_get(w, item)->next = w->free_item;
	w->free_item = item;
}

void world_later(struct fsim *w, uint32_t item, uint64_t after_ms)
{
	world_push(w, after_ms, FSIM_DELIVER, item, 0);
}

/* ---- who is where */

bool world_reaches(const struct fsim *w, int from, int to)
{
	return w->agent[from].group == w->agent[to].group;
}

int world_find(const struct fsim *w, const struct peer_id *id)
{
	for (int i = 0; i < w->n; i++)
		if (peer_id_equal(&w->agent[i].id, id))
			return i;
	return -1;
}

static int at_address(const struct fsim *w, const struct peer_addr *a)
{
	for (int i = 0; i < w->n; i++)
		if (a->family == 4 && a->port == w->agent[i].addr.port)
			return i;
	return -1;
}

struct fsim_link *world_link(struct fsim *w, int a, int b)
{
	return a < b ? &w->link[a][b] : &w->link[b][a];
}

/* ---- streams */

static void tell(struct fsim *w, int who, int of, bool up, uint64_t after_ms)
{
	uint32_t x = world_item(w, who, FLOCK_EVENT_MEMBERSHIP);
	struct flock_event *e = &world_get(w, x)->e;
	e->membership.kind = up ? EVENT_PEER_UP : EVENT_PEER_DOWN;
	e->membership.peer.id = w->agent[of].id;
	world_later(w, x, after_ms);
}

static void drop_waiting(struct fsim *w, struct fsim_link *l)
{
	for (int s = 0; s < 2; s++)
		while (l->waiting[s]) {
			uint32_t x = l->waiting[s];
			l->waiting[s] = world_get(w, x)->next;
			world_free(w, x);
		}
	l->n_waiting = 0;
}

static void deliver(struct fsim *w, struct fsim_link *l, uint32_t item)
{
	struct fsim_item *x = world_get(w, item);
	int side = x->to > x->stream_from;
	uint64_t at = w->now_ms + world_between(w, 1, 20);
	bool reset = world_chance(w, w->loss / 20);
	if (l->stalled || reset || !world_reaches(w, x->stream_from, x->to)) {
		l->stalled = true;
		/* Lost with the stream, which is given up soon. */
		world_push(w, reset ? world_between(w, 1, 500) : world_between(w, 3000, 8000),
		        FSIM_BREAK, (uint32_t)(x->stream_from + 64 * x->to), l->epoch);
		world_free(w, item);
		return;
	}
	at = at < l->last_ms[side] ? l->last_ms[side] : at;
	l->last_ms[side] = at;
	x->epoch = l->epoch;
	world_later(w, item, at - w->now_ms);
}

/* False: there is no way. The item is used up either way. */
static bool post(struct fsim *w, int from, uint32_t item)
{
	struct fsim_item *x = world_get(w, item);
	struct fsim_link *l = world_link(w, from, x->to);
	x->stream_from = from;
	if (l->up) {
		deliver(w, l, item);
		return true;
	}
	if ((!l->dialling && !w->agent[x->to].dialable) || l->n_waiting >= WAITING_MAX) {
		world_free(w, item);
		return false;
	}
	uint32_t *at = &l->waiting[from > x->to];
	while (*at)
		at = &world_get(w, *at)->next;
	*at = item;
	x->next = 0;
	l->n_waiting++;
	if (!l->dialling) {
		l->dialling = true;
		bool there = world_reaches(w, from, x->to);
		world_push(w, there ? world_between(w, 2, 60) : 5000, FSIM_DIAL,
		        (uint32_t)(from + 64 * x->to), l->epoch);
	}
	return true;
}

void world_dial(struct fsim *w, int from, int to, uint32_t epoch)
{
	struct fsim_link *l = world_link(w, from, to);
	if (l->epoch != epoch || !l->dialling)
		return;
	l->dialling = false;
	if (!w->agent[from].alive || !w->agent[to].alive || !world_reaches(w, from, to)) {
		drop_waiting(w, l);
		l->epoch++;
		if (w->agent[from].alive)
			tell(w, from, to, false, 0);
		return;
	}
	l->up = true;
	l->stalled = false;
	l->epoch++;
	l->last_ms[0] = l->last_ms[1] = w->now_ms;
	tell(w, from, to, true, 0);
	tell(w, to, from, true, 0);
	for (int s = 0; s < 2; s++)
		while (l->waiting[s]) {
			uint32_t x = l->waiting[s];
			l->waiting[s] = world_get(w, x)->next;
			deliver(w, l, x);
		}
	l->n_waiting = 0;
}

void world_break(struct fsim *w, int from, int to, uint32_t epoch)
{
	struct fsim_link *l = world_link(w, from, to);
	if (l->epoch != epoch || !l->up || !l->stalled)
		return;
	l->up = false;
	l->epoch++;
	tell(w, from, to, false, 0);
	tell(w, to, from, false, world_between(w, 0, 3000));
}

void world_dead(struct fsim *w, int i)
{
	for (int k = 0; k < w->n; k++) {
		struct fsim_link *l = world_link(w, i, k);
		if (k == i)
			continue;
		if (l->up && w->agent[k].alive)
			tell(w, k, i, false,
			        world_reaches(w, i, k) ? world_between(w, 1, 100) : 8000);
		if (l->dialling && w->agent[k].alive)
			tell(w, k, i, false, world_between(w, 1, 100));
		drop_waiting(w, l);
		l->up = l->dialling = false;
		l->epoch++;
	}
}

/* ---- messages */

static void copy_gossip(struct gossip_message *to, const struct gossip_message *from)
{
	*to = *from;
	for (int i = 0; i < to->n_updates; i++)
		to->update[i].ours = false;
	to->sketch.ours = false;
}

void world_gossip(struct fsim *w, int from, const struct gossip_send *s)
{
	int to = s->to_id ? world_find(w, &s->id) : at_address(w, &s->addrs.at[0]);
	if (to < 0 || to == from)
		return;
	if (s->channel == CHANNEL_DATAGRAM &&
	        (!w->agent[to].alive || !world_reaches(w, from, to) || world_chance(w, w->loss)))
		return;
	uint32_t item = world_item(w, to, FLOCK_EVENT_MEMBERSHIP);
	struct fsim_item *x = world_get(w, item);
	struct gossip_event *g = &x->e.membership;
	copy_gossip(&x->gossip, &s->message);
	liar_record(w, &x->gossip);
	g->kind = EVENT_RECEIVED;
	g->received.from = w->agent[from].id;
	g->received.address = w->agent[from].addr;
	g->received.channel = s->channel;
	g->received.message = &x->gossip;
	if (s->channel == CHANNEL_DATAGRAM)
		world_later(w, item, world_between(w, 1, 30));
	else
		post(w, from, item);
}

void world_post(
        struct fsim *w, int from, const struct peer_id *to, const struct exchange_message *m)
{
	int k = world_find(w, to);
	bool sent = false;
	if (k >= 0)
		rules_sent(w, from, k, m);
	/* What comes after a message that could not be queued is not sent either, until the core
	 * has heard of it: a peer would take what is left for malice. */
	if (k >= 0 && w->agent[from].unsent[k] == 0 && !world_chance(w, w->full_chance)) {
		uint32_t item = world_item(w, k, FLOCK_EVENT_MESSAGE);
		struct fsim_item *x = world_get(w, item);
		x->exchange = *m;
		liar_message(w, from, &x->exchange);
		x->e.peer = w->agent[from].id;
		x->e.message = &x->exchange;
		sent = post(w, from, item);
	}
	if (sent)
		return;
	uint32_t item = world_item(w, from, FLOCK_EVENT_UNSENT);
	struct flock_event *e = &world_get(w, item)->e;
	e->peer = *to;
	e->exchange = m->exchange;
	if (k >= 0)
		w->agent[from].unsent[k]++;
	world_later(w, item, 0);
}
