/* SPDX-License-Identifier: MIT */
/* What becomes of a message.
 *
 * Datagrams are lost, doubled, late and out of order. Streams are reliable and in order while they
 * stand: loss only makes them late, by a retransmission of 200 ms to 1 s each time. The first
 * stream send dials; once a stream stands both sides are told. Where nothing comes through for a
 * while, or nobody answers the dial, the stream is given up and its ends are told that the peer is
 * down.
 *
 *     send ──► no stream ──► dialling ──► up ──► packet after packet, the first one first
 *                               │          │
 *                               └──────────┴───► given up: PEER_DOWN, what was under way is lost
 *
 * A node that cannot be dialled sits behind a NAT: streams only by its own dialling, datagrams only
 * in answer to its own. A paused process keeps its streams, for its host answers; it dials and
 * accepts nothing. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define DIAL_TIMEOUT_MS 5000
#define DIAL_NEXT_MS 1000 /* until another address of the same peer is tried */
#define STALL_TIMEOUT_MS 8000

struct sim_packet *sim_packet(struct sim *s, uint32_t i)
{
	return simnet_parcel(&s->net, i);
}

uint32_t network_packet(struct sim *s, uint32_t from, uint32_t to, uint8_t kind)
{
	uint32_t i = simnet_parcel_new(&s->net, from, to);
	struct sim_packet *p = sim_packet(s, i);
	size_t at = offsetof(struct sim_packet, kind);
	memset((uint8_t *)p + at, 0, offsetof(struct sim_packet, message) - at);
	p->kind = kind;
	return i;
}

/* Only what is there: most messages carry few updates, and hardly any a sketch. */
void sim_message_copy(struct gossip_message *to, const struct gossip_message *from)
{
	size_t n = from->n_updates < GOSSIP_UPDATES_MAX ? from->n_updates : GOSSIP_UPDATES_MAX;
	memcpy(to, from, offsetof(struct gossip_message, update) + n * sizeof from->update[0]);
	to->n_updates = (uint8_t)n;
	if (from->kind == MESSAGE_SKETCH)
		to->sketch = from->sketch;
}

static uint64_t retransmission(struct sim *s)
{
	return sim_between(s, 200, 1000);
}

static int node_at(const struct sim *s, const struct peer_addr *a)
{
	const uint8_t *last = a->ip + (a->family == 6 ? 14 : 2);
	uint32_t n = (uint32_t)last[0] << 8 | last[1];
	return n < s->n_nodes && peer_addr_equal(&s->node[n].addr, a) ? (int)n : -1;
}

/* The first of the addresses at which somebody is; *tried: how many of them were looked at. */
static int node_at_one_of(const struct sim *s, const struct peer_addrs *a, uint32_t *tried)
{
	for (*tried = 1; *tried <= a->n; ++*tried)
		if (node_at(s, &a->at[*tried - 1]) >= 0)
			return node_at(s, &a->at[*tried - 1]);
	return -1;
}

static uint32_t pack(struct sim *s, uint32_t from, uint32_t to, const struct gossip_message *m)
{
	uint32_t i = network_packet(s, from, to, PACKET_MESSAGE), key = s->node[from].key;
	struct sim_packet *p = sim_packet(s, i);
	sim_message_copy(&p->message, m);
	/* A forger signs what it likes itself. */
	for (uint32_t u = 0; u < p->message.n_updates; u++)
		if (p->message.update[u].ours && !s->node[from].forger)
			truth_sign(s, key, &p->message.update[u]);
	if (m->kind == MESSAGE_SKETCH && p->message.sketch.ours)
		truth_sign_sketch(s, key, &p->message.sketch);
	return i;
}

void network_datagram(struct sim *s, uint32_t from, uint32_t to, const struct gossip_message *m)
{
	uint64_t after_ms[2];
	int n = simnet_datagram(&s->net, from, to, after_ms);
	for (int k = 0; k < n; k++) {
		uint32_t i = pack(s, from, to, m);
		struct sim_packet *p = sim_packet(s, i);
		p->channel = CHANNEL_DATAGRAM;
		p->source = s->node[from].addr;
		simnet_push(&s->net, after_ms[k], SIM_ARRIVE, i, 0);
	}
}

/* Tells a process that a peer is up or down, soon. */
static void tell_at(struct sim *s, uint32_t to, uint8_t kind, const struct peer_id *id,
        uint64_t in_ms, const struct peer_addr *at)
{
	if (!s->node[to].alive)
		return;
	uint32_t i = network_packet(s, to, to, kind);
	struct sim_packet *p = sim_packet(s, i);
	p->parcel.life = s->node[to].life;
	p->id = *id;
	p->source = *at;
	sim_push(s, s->now_ms + in_ms, SIM_ARRIVE, i, 0);
}

static void tell(struct sim *s, uint32_t to, uint8_t kind, const struct peer_id *id, uint64_t in_ms)
{
	tell_at(s, to, kind, id, in_ms, &(struct peer_addr){0});
}

/* The node at the other end of the stream with a key, or −1. */
static int stands_with(struct sim *s, uint32_t n, uint32_t key)
{
	for (int i = 0; i < s->key[key].n_nodes; i++)
		if (simnet_way(&s->net, n, s->key[key].node[i])->up)
			return (int)s->key[key].node[i];
	return -1;
}

/* Ends a stream, and tells the ends whose last one with that key it was. */
static void give_up(struct sim *s, uint32_t a, uint32_t b)
{
	bool was_up = simnet_cut(&s->net, a, b);
	if (was_up && stands_with(s, a, s->node[b].key) < 0)
		tell(s, a, PACKET_DOWN, &s->key[s->node[b].key].id, 0);
	if (was_up && stands_with(s, b, s->node[a].key) < 0)
		tell(s, b, PACKET_DOWN, &s->key[s->node[a].key].id, 0);
}

static void move(struct sim *s, uint32_t from, uint32_t to)
{
	struct simnet_way *l = simnet_way(&s->net, from, to);
	if (!l->up || l->moving || !l->first)
		return;
	uint64_t at = sim_packet(s, l->first)->parcel.at_ms;
	l->moving = true;
	sim_push(s, at > s->now_ms ? at : s->now_ms, SIM_STREAM,
	        simnet_way_number(&s->net, from, to), l->epoch);
}

static void send_stream(struct sim *s, uint32_t from, const struct gossip_send *send)
{
	int wanted = send->to_id ? truth_key(s, &send->id) : -1;
	int to = wanted >= 0 ? stands_with(s, from, (uint32_t)wanted) : -1;
	uint32_t tried = 1;
	if (to < 0)
		to = node_at_one_of(s, &send->addrs, &tried);
	bool wrong = to >= 0 && send->to_id && (int)s->node[to].key != wanted;
	if (to < 0 || wrong) {
		if (send->to_id)
			tell(s, from, PACKET_DOWN, &send->id,
			        wrong ? 2 * simnet_delay(&s->net) : DIAL_TIMEOUT_MS);
		return;
	}
	/* A handshake with one's own key is refused, whether it is oneself or another. */
	if (s->node[to].key == s->node[from].key)
		return;
	struct simnet_way *l = simnet_way(&s->net, from, (uint32_t)to);
	uint32_t i = pack(s, from, (uint32_t)to, &send->message);
	struct sim_packet *p = sim_packet(s, i);
	p->channel = CHANNEL_STREAM;
	p->parcel.at_ms = s->now_ms + simnet_delay(&s->net);
	simnet_append(&s->net, i);
	move(s, from, (uint32_t)to);
	if (!l->up && !l->dialling) {
		s->dial[simnet_way_number(&s->net, from, (uint32_t)to)] =
		        (struct sim_dial){send->to_id, s->node[to].addr};
		simnet_dial(&s->net, from, (uint32_t)to,
		        2 * simnet_delay(&s->net) + DIAL_NEXT_MS * (tried - 1), SIM_DIAL);
	}
}

void network_send(struct sim *s, uint32_t from, const struct gossip_send *send)
{
	if (send->channel == CHANNEL_STREAM) {
		send_stream(s, from, send);
		return;
	}
	int to = node_at(s, &send->addrs.at[0]);
	/* Sealed for another key it cannot be read. */
	if (to >= 0 && (int)s->node[to].key == truth_key(s, &send->id) && to != (int)from)
		network_datagram(s, from, (uint32_t)to, &send->message);
	else
		s->net.lost++;
}

/* A new stream with a key takes the place of one with another process that has it. */
static void replace(struct sim *s, uint32_t n, uint32_t peer)
{
	const struct sim_key *key = &s->key[s->node[peer].key];
	for (int i = 0; i < key->n_nodes; i++) {
		uint32_t old = key->node[i];
		if (old != peer && simnet_way(&s->net, n, old)->up)
			give_up(s, n, old);
	}
}

/* A dial gets its answer, or tries again, or has tried long enough. */
void network_dial(struct sim *s, uint32_t number, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&s->net, number), to = simnet_way_to(&s->net, number);
	struct simnet_way *l = &s->net.way[number];
	struct sim_node *b = &s->node[to];
	if (!simnet_dials(&s->net, number, epoch))
		return;
	bool open = simnet_open_both(&s->net, from, to) && b->dialable;
	bool refused = open && b->refuses && !b->alive;
	if (open && b->alive && !b->forger && s->now_ms >= b->frozen_until &&
	        !sim_chance(s, s->loss)) {
		bool first_here = stands_with(s, from, b->key) < 0;
		bool first_there = stands_with(s, to, s->node[from].key) < 0;
		simnet_connect(&s->net, from, to);
		if (first_here)
			tell_at(s, from, PACKET_UP, &s->key[b->key].id, 0, &s->dial[number].at);
		if (first_there)
			tell(s, to, PACKET_UP, &s->key[s->node[from].key].id, 0);
		replace(s, from, to);
		replace(s, to, from);
		move(s, from, to);
		move(s, to, from);
	} else if (refused || s->now_ms - l->since_ms > DIAL_TIMEOUT_MS) {
		simnet_clear(&s->net, l);
		if (s->dial[number].by_id)
			tell(s, from, PACKET_DOWN, &s->key[b->key].id, 0);
	} else {
		sim_push(s, s->now_ms + retransmission(s), SIM_DIAL, number, epoch);
	}
}

/* The first packet of a stream comes through, or waits for a retransmission. */
void network_stream(struct sim *s, uint32_t number, uint32_t epoch)
{
	uint32_t from = simnet_way_from(&s->net, number), to = simnet_way_to(&s->net, number);
	struct simnet_way *l = &s->net.way[number];
	if (l->epoch != epoch || !l->up || !l->first)
		return;
	bool open = simnet_open_both(&s->net, from, to) && s->node[to].alive;
	if (!open || sim_chance(s, s->loss)) {
		simnet_stall(&s->net, l);
		if (s->now_ms - l->since_ms > STALL_TIMEOUT_MS)
			give_up(s, from, to);
		else
			sim_push(s, s->now_ms + retransmission(s), SIM_STREAM, number, epoch);
		return;
	}
	uint32_t i = simnet_take(&s->net, l);
	l->stalled = l->moving = false;
	move(s, from, to);
	sim_packet(s, i)->parcel.life = s->node[to].life;
	sim_receive(s, i);
}

void network_break(struct sim *s, uint32_t number, uint32_t epoch)
{
	if (s->net.way[number].epoch == epoch && s->net.way[number].up)
		give_up(s, simnet_way_from(&s->net, number), simnet_way_to(&s->net, number));
}

/* A process is gone. If its host still answers, its peers know at once; else when their streams
 * have been silent for a while. */
void network_stopped(struct sim *s, uint32_t n, bool refuses)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct simnet_way *l = simnet_way(&s->net, n, i);
		if (l->up && refuses)
			give_up(s, n, i);
		else if (l->up)
			sim_push(s, s->now_ms + sim_between(s, 5000, 15000), SIM_BREAK,
			        simnet_way_number(&s->net, n, i), l->epoch);
		else
			simnet_clear(&s->net, l);
	}
}

/* Where a seed is now, with an address beside it where nobody ever was. */
void network_resolve(struct sim *s, uint32_t n, int seed)
{
	uint32_t i = network_packet(s, n, n, PACKET_RESOLVED);
	struct sim_packet *p = sim_packet(s, i);
	p->parcel.life = s->node[n].life;
	p->seed = seed;
	sim_push(s, s->now_ms + sim_between(s, 1, 50), SIM_ARRIVE, i, 0);
}
