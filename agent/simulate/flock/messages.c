/* SPDX-License-Identifier: MIT */
/* Messages between agents, and the streams that carry some of them.
 *
 * A datagram goes out at once and may be lost. A stream is dialled by the first message, which
 * waits with those behind it; messages on one arrive in order. What cannot get through stalls the
 * stream, which both sides give up some seconds later, as the transport's own timeouts have it.
 * Sizes are those of the product's encoders: of membership's messages its own count, of an
 * exchange's the bytes that wire_encode makes. */
#include "agent/simulate/flock/world.h"
#include "net/codec/frame.h"
#include "net/codec/wire.h"

#include <math.h>
#include <string.h>

#define WAITING_MAX 64
#define STREAM_BYTES 900  /* a handshake, of both sides together */
#define RETRANSMIT_MS 200 /* TCP's least */
#define UNNOTICED_MS 8000 /* until a stream whose other end is silent is given up */
#define FRAME_BYTES (FRAME_HEADER_BYTES + 16)

/* ---- who is where */

/* Ids and addresses carry the agent's number. */
static uint32_t number_in(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
}

uint32_t world_find(const struct world *w, const struct peer_id *id)
{
	uint32_t i = number_in(id->bytes + 29);
	return i < w->n && peer_id_equal(&w->agent[i].id, id) ? i : WORLD_NOBODY;
}

static uint32_t at_address(const struct world *w, const struct peer_addr *a)
{
	uint32_t i = number_in(a->ip + 1);
	return i < w->n && peer_addr_equal(&w->agent[i].addr, a) ? i : WORLD_NOBODY;
}

/* One that leaves still says goodbye, though the engine has it no more. */
bool world_reaches(const struct world *w, uint32_t a, uint32_t b)
{
	if (!w->agent[a].alive || !w->agent[b].alive)
		return false;
	return w->agent[a].leaving || w->agent[b].leaving || sim_reaches(w->sim, a, b);
}

/* ---- what a message takes */

uint64_t world_latency_ms(const struct world *w, uint32_t a, uint32_t b, uint64_t bytes)
{
	const struct scenario *s = sim_scenario(w->sim);
	double ms = (double)sim_latency(w->sim, a, b) * 1000 / SIM_S;
	/* Beside the transfers that share the links. */
	ms += (double)bytes * (1 + w->agent[a].sending) / (s->network.up_mbit * 125);
	ms += (double)bytes * (1 + w->agent[b].receiving) / (s->network.down_mbit * 125);
	return ms < 1 ? 1 : (uint64_t)lround(ms);
}

static uint64_t round_trip_ms(const struct world *w, uint32_t a, uint32_t b)
{
	return world_latency_ms(w, a, b, 100) + world_latency_ms(w, b, a, 100);
}

static uint32_t exchange_bytes(const struct exchange_message *m)
{
	struct wire_message x;
	uint8_t out[WIRE_BYTES_MAX];
	size_t len = 0;
	x.kind = WIRE_EXCHANGE;
	x.exchange = *m;
	if (wire_encode(&x, out, sizeof out, &len))
		len = 0;
	return (uint32_t)len + FRAME_BYTES;
}

/* ---- streams */

static uint32_t item_from(struct world *w, uint32_t from, uint32_t to, uint8_t kind, uint32_t bytes)
{
	uint32_t i = world_item(w, to, kind);
	struct world_item *x = world_get(w, i);
	x->parcel.from = from;
	x->bytes = bytes;
	return i;
}

static void tell(struct world *w, uint32_t who, uint32_t of, bool up, uint64_t after_ms)
{
	uint32_t item = world_item(w, who, FLOCK_EVENT_MEMBERSHIP);
	struct gossip_event *e = &world_get(w, item)->e.membership;
	e->kind = up ? EVENT_PEER_UP : EVENT_PEER_DOWN;
	e->peer.id = w->agent[of].id;
	if (up)
		e->peer.address = w->agent[of].addr;
	world_later(w, item, after_ms);
}

/* On a stream that stands. */
static void carry(struct world *w, uint32_t item)
{
	struct world_item *x = world_get(w, item);
	uint32_t from = x->parcel.from, to = x->parcel.to;
	struct simnet_way *way = simnet_way(&w->net, from, to);
	double loss = sim_scenario(w->sim)->network.loss;
	sim_count(w->sim, x->bytes, 0);
	if (way->stalled || !world_reaches(w, from, to)) {
		if (!way->stalled)
			simnet_push(&w->net, simnet_between(&w->net, 3000, UNNOTICED_MS),
			        WORLD_BREAK, simnet_way_number(&w->net, from, to), way->epoch);
		simnet_stall(&w->net, way);
		simnet_stall(&w->net, simnet_way(&w->net, to, from));
		simnet_parcel_free(&w->net, item);
		return;
	}
	uint64_t ms = world_latency_ms(w, from, to, x->bytes);
	for (uint64_t wait = RETRANSMIT_MS; simnet_chance(&w->net, loss); wait *= 2)
		ms += wait + round_trip_ms(w, from, to);
	x->parcel.epoch = way->epoch;
	world_later(w, item, simnet_in_order(&way->last_ms, w->now_ms + ms) - w->now_ms);
}

/* False: there is no way. The item is used up either way. */
static bool post(struct world *w, uint32_t item)
{
	struct world_item *x = world_get(w, item);
	uint32_t from = x->parcel.from, to = x->parcel.to;
	const struct simnet_way *way = simnet_way(&w->net, from, to);
	const struct simnet_way *back = simnet_way(&w->net, to, from);
	x->stream = true;
	if (way->up) {
		carry(w, item);
		return true;
	}
	if (way->n + back->n >= WAITING_MAX) {
		simnet_parcel_free(&w->net, item);
		return false;
	}
	simnet_append(&w->net, item);
	/* TCP's handshake, and the one and a half round trips of our own. */
	if (!way->dialling && !back->dialling)
		simnet_dial(&w->net, from, to,
		        world_reaches(w, from, to) ? 5 * round_trip_ms(w, from, to) / 2 : 5000,
		        WORLD_DIAL);
	return true;
}

void world_dial(struct world *w, uint32_t way, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&w->net, way), to = simnet_way_to(&w->net, way);
	if (!simnet_dials(&w->net, way, epoch))
		return;
	if (!world_reaches(w, from, to)) {
		simnet_cut(&w->net, from, to);
		if (w->agent[from].alive)
			tell(w, from, to, false, 0);
		return;
	}
	sim_count(w->sim, STREAM_BYTES, 0);
	simnet_connect(&w->net, from, to);
	tell(w, from, to, true, 0);
	tell(w, to, from, true, 0);
	/* What has waited goes out, that of the lower number first. */
	for (int s = 0; s < 2; s++) {
		bool first = (from < to) == (s == 0);
		struct simnet_way *l = simnet_way(&w->net, first ? from : to, first ? to : from);
		for (uint32_t x; (x = simnet_take(&w->net, l)) != 0;)
			carry(w, x);
	}
}

void world_break(struct world *w, uint32_t way, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&w->net, way), to = simnet_way_to(&w->net, way);
	const struct simnet_way *l = &w->net.way[way];
	if (l->epoch != epoch || !l->up || !l->stalled)
		return;
	simnet_cut(&w->net, from, to);
	if (w->agent[from].alive)
		tell(w, from, to, false, 0);
	if (w->agent[to].alive)
		tell(w, to, from, false, simnet_between(&w->net, 0, 3000));
}

void world_gone(struct world *w, uint32_t i, bool closes)
{
	for (uint32_t k = 0; k < w->n; k++) {
		const struct simnet_way *l = simnet_way(&w->net, i, k);
		bool known = l->up || l->dialling || simnet_way(&w->net, k, i)->dialling;
		if (k == i || !known)
			continue;
		if (w->agent[k].alive)
			tell(w, k, i, false,
			        closes ? world_latency_ms(w, i, k, 100) : UNNOTICED_MS);
		simnet_cut(&w->net, i, k);
	}
}

/* ---- messages */

/* Only what is there: the struct has room for many updates and a sketch. */
static void copy_gossip(struct gossip_message *to, const struct gossip_message *from)
{
	memcpy(to, from, offsetof(struct gossip_message, update));
	for (int i = 0; i < from->n_updates; i++) {
		to->update[i] = from->update[i];
		to->update[i].ours = false;
	}
	if (from->kind == MESSAGE_SKETCH)
		to->sketch = from->sketch;
	to->sketch.ours = false;
}

void world_gossip(struct world *w, uint32_t from, const struct gossip_send *s)
{
	uint32_t to = s->to_id ? world_find(w, &s->id) : at_address(w, &s->addrs.at[0]);
	uint32_t bytes = (uint32_t)gossip_message_bytes(&s->message);
	bool datagram = s->channel == CHANNEL_DATAGRAM;
	if (to == WORLD_NOBODY || to == from)
		return;
	if (datagram) {
		sim_count(w->sim, bytes, 0);
		if (simnet_chance(&w->net, sim_scenario(w->sim)->network.loss) ||
		        !world_reaches(w, from, to))
			return;
	}
	uint32_t item = item_from(w, from, to, FLOCK_EVENT_MEMBERSHIP, bytes);
	struct world_item *x = world_get(w, item);
	struct gossip_event *g = &x->e.membership;
	copy_gossip(&x->gossip, &s->message);
	g->kind = EVENT_RECEIVED;
	g->received.from = w->agent[from].id;
	g->received.address = w->agent[from].addr;
	g->received.channel = s->channel;
	g->received.message = &x->gossip;
	if (datagram)
		world_later(w, item, world_latency_ms(w, from, to, bytes));
	else
		post(w, item);
}

void world_post(
        struct world *w, uint32_t from, const struct peer_id *id, const struct exchange_message *m)
{
	uint32_t to = world_find(w, id);
	if (to != WORLD_NOBODY) {
		uint32_t item = item_from(w, from, to, FLOCK_EVENT_MESSAGE, exchange_bytes(m));
		struct world_item *x = world_get(w, item);
		x->exchange = *m;
		x->e.peer = w->agent[from].id;
		x->e.message = &x->exchange;
		if (post(w, item))
			return;
	}
	uint32_t item = world_item(w, from, FLOCK_EVENT_UNSENT);
	struct flock_event *e = &world_get(w, item)->e;
	e->peer = *id;
	e->exchange = m->exchange;
	world_later(w, item, 0);
}
