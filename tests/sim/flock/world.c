/* SPDX-License-Identifier: MIT */
/* The network. A datagram comes late, or not at all. A stream is dialled when something is
 * to be sent, delivers in order, and is given up some seconds after nothing gets through. */
#include "tests/sim/flock/byzantine.h"

#include <string.h>

#define WAITING_MAX 32

void world_push(struct fsim *w, uint64_t after_ms, uint32_t kind, uint32_t a, uint32_t b)
{
	simnet_push(&w->net, after_ms, kind, a, b);
}

bool world_chance(struct fsim *w, double p)
{
	return simnet_chance(&w->net, p);
}

bool world_odd(struct fsim *w, double p)
{
	return w->now_ms < w->faults_end_ms && w->n_faults > 0 && world_chance(w, p);
}

uint64_t world_between(struct fsim *w, uint64_t low, uint64_t high)
{
	return simnet_between(&w->net, low, high);
}

/* ---- items */

struct fsim_item *world_get(struct fsim *w, uint32_t item)
{
	return simnet_parcel(&w->net, item);
}

static uint32_t item_from(struct fsim *w, int from, int to, uint8_t kind)
{
	uint32_t i = simnet_parcel_new(&w->net, (uint32_t)from, (uint32_t)to);
	struct fsim_item *x = world_get(w, i);
	x->parcel.life = w->agent[to].life;
	x->stream = false;
	memset(&x->e, 0, sizeof x->e);
	x->e.kind = kind;
	return i;
}

uint32_t world_item(struct fsim *w, int to, uint8_t kind)
{
	return item_from(w, to, to, kind);
}

void world_later(struct fsim *w, uint32_t item, uint64_t after_ms)
{
	world_push(w, after_ms, FSIM_DELIVER, item, 0);
}

/* ---- who is where */

bool world_reaches(const struct fsim *w, int from, int to)
{
	return simnet_open(&w->net, (uint32_t)from, (uint32_t)to);
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

struct simnet_way *world_way(struct fsim *w, int from, int to)
{
	return simnet_way(&w->net, (uint32_t)from, (uint32_t)to);
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

static void deliver(struct fsim *w, uint32_t item)
{
	struct fsim_item *x = world_get(w, item);
	int from = (int)x->parcel.from, to = (int)x->parcel.to;
	struct simnet_way *way = world_way(w, from, to);
	uint64_t at = w->now_ms + world_between(w, 1, 20);
	if (w->far_ms > 0 && w->now_ms < w->faults_end_ms + 10000)
		at += rng_below(&w->more, w->far_ms);
	bool reset = world_chance(w, w->loss / 20);
	if (way->stalled || reset || !world_reaches(w, from, to)) {
		simnet_stall(&w->net, way);
		simnet_stall(&w->net, world_way(w, to, from));
		/* Lost with the stream, which is given up soon. */
		world_push(w, reset ? world_between(w, 1, 500) : world_between(w, 3000, 8000),
		        FSIM_BREAK, simnet_way_number(&w->net, x->parcel.from, x->parcel.to),
		        way->epoch);
		simnet_parcel_free(&w->net, item);
		return;
	}
	x->parcel.epoch = way->epoch;
	world_later(w, item, simnet_in_order(&way->last_ms, at) - w->now_ms);
}

/* False: there is no way. The item is used up either way. */
static bool post(struct fsim *w, uint32_t item)
{
	struct fsim_item *x = world_get(w, item);
	int from = (int)x->parcel.from, to = (int)x->parcel.to;
	const struct simnet_way *way = world_way(w, from, to), *back = world_way(w, to, from);
	bool dialling = way->dialling || back->dialling;
	x->stream = true;
	if (way->up) {
		deliver(w, item);
		return true;
	}
	if ((!dialling && !w->agent[to].dialable) || way->n + back->n >= WAITING_MAX) {
		simnet_parcel_free(&w->net, item);
		return false;
	}
	simnet_append(&w->net, item);
	if (!dialling) {
		bool there = world_reaches(w, from, to);
		simnet_dial(&w->net, (uint32_t)from, (uint32_t)to,
		        there ? world_between(w, 2, 60) : 5000, FSIM_DIAL);
	}
	return true;
}

void world_dial(struct fsim *w, uint32_t way, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&w->net, way), to = simnet_way_to(&w->net, way);
	int a = (int)from, b = (int)to;
	if (!simnet_dials(&w->net, way, epoch))
		return;
	if (!w->agent[a].alive || !w->agent[b].alive || !world_reaches(w, a, b)) {
		simnet_cut(&w->net, from, to);
		if (w->agent[a].alive)
			tell(w, a, b, false, 0);
		return;
	}
	simnet_connect(&w->net, from, to);
	tell(w, a, b, true, 0);
	tell(w, b, a, true, 0);
	/* What has waited goes out, that of the lower number first. */
	for (int s = 0; s < 2; s++) {
		struct simnet_way *l =
		        (a < b) == (s == 0) ? world_way(w, a, b) : world_way(w, b, a);
		for (uint32_t x; (x = simnet_take(&w->net, l)) != 0;)
			deliver(w, x);
	}
}

void world_break(struct fsim *w, uint32_t way, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&w->net, way), to = simnet_way_to(&w->net, way);
	const struct simnet_way *l = &w->net.way[way];
	if (l->epoch != epoch || !l->up || !l->stalled)
		return;
	simnet_cut(&w->net, from, to);
	tell(w, (int)from, (int)to, false, 0);
	tell(w, (int)to, (int)from, false, world_between(w, 0, 3000));
}

void world_dead(struct fsim *w, int i)
{
	for (int k = 0; k < w->n; k++) {
		const struct simnet_way *l = world_way(w, i, k);
		if (k == i)
			continue;
		if (l->up && w->agent[k].alive)
			tell(w, k, i, false,
			        world_reaches(w, i, k) ? world_between(w, 1, 100) : 8000);
		if ((l->dialling || world_way(w, k, i)->dialling) && w->agent[k].alive)
			tell(w, k, i, false, world_between(w, 1, 100));
		simnet_cut(&w->net, (uint32_t)i, (uint32_t)k);
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
	uint64_t after_ms[2] = {0};
	if (to < 0 || to == from)
		return;
	if (s->channel == CHANNEL_DATAGRAM &&
	        simnet_datagram(&w->net, (uint32_t)from, (uint32_t)to, after_ms) == 0)
		return;
	uint32_t item = item_from(w, from, to, FLOCK_EVENT_MEMBERSHIP);
	struct fsim_item *x = world_get(w, item);
	struct gossip_event *g = &x->e.membership;
	copy_gossip(&x->gossip, &s->message);
	liar_record(w, &x->gossip);
	byz_gossip(w, from, &x->gossip);
	g->kind = EVENT_RECEIVED;
	g->received.from = w->agent[from].id;
	g->received.address = w->agent[from].addr;
	g->received.channel = s->channel;
	g->received.message = &x->gossip;
	if (s->channel == CHANNEL_DATAGRAM)
		world_later(w, item, after_ms[0]);
	else
		post(w, item);
}

void world_post(
        struct fsim *w, int from, const struct peer_id *to, const struct exchange_message *m)
{
	int k = world_find(w, to);
	bool sent = false;
	if (k >= 0)
		rules_sent(w, from, k, m);
	if (liar_swallows(w, from, m))
		return;
	byz_sent(w, from, m);
	/* What comes after a message that could not be queued is not sent either, until the core
	 * has heard of it: a peer would take what is left for malice. */
	if (k >= 0 && w->agent[from].unsent[k] == 0 && !world_chance(w, w->full_chance)) {
		uint32_t item = item_from(w, from, k, FLOCK_EVENT_MESSAGE);
		struct fsim_item *x = world_get(w, item);
		x->exchange = *m;
		liar_message(w, from, &x->exchange);
		byz_message(w, from, &x->exchange);
		byz_heard(w, k, &x->exchange);
		x->e.peer = w->agent[from].id;
		x->e.message = &x->exchange;
		sent = post(w, item);
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

void world_inject(struct fsim *w, int from, int to, const struct exchange_message *m)
{
	uint32_t item = item_from(w, from, to, FLOCK_EVENT_MESSAGE);
	struct fsim_item *x = world_get(w, item);
	x->exchange = *m;
	x->e.peer = w->agent[from].id;
	x->e.message = &x->exchange;
	post(w, item);
}
