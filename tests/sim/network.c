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

#define CHUNK 64
#define DIAL_TIMEOUT_MS 5000
#define DIAL_NEXT_MS 1000 /* until another address of the same peer is tried */
#define STALL_TIMEOUT_MS 8000
#define NAT_DOOR_MS 30000

struct sim_packet *sim_packet(struct sim *s, uint32_t i)
{
	return &s->chunk[(i - 1) / CHUNK][(i - 1) % CHUNK];
}

uint32_t sim_packet_new(struct sim *s)
{
	if (!s->free_packet) {
		s->chunk = reallocarray(s->chunk, s->n_chunks + 1, sizeof *s->chunk);
		struct sim_packet *chunk = calloc(CHUNK, sizeof *chunk);
		if (!s->chunk || !chunk)
			abort();
		s->chunk[s->n_chunks] = chunk;
		for (uint32_t i = CHUNK; i-- > 0;) {
			chunk[i].next = s->free_packet;
			s->free_packet = s->n_chunks * CHUNK + i + 1;
		}
		s->n_chunks++;
	}
	uint32_t i = s->free_packet;
	struct sim_packet *p = sim_packet(s, i);
	s->free_packet = p->next;
	memset(p, 0, offsetof(struct sim_packet, message));
	return i;
}

void sim_packet_free(struct sim *s, uint32_t i)
{
	sim_packet(s, i)->next = s->free_packet;
	s->free_packet = i;
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

struct sim_link *sim_link(struct sim *s, uint32_t from, uint32_t to)
{
	return &s->link[from * s->n_nodes + to];
}

static uint32_t link_number(const struct sim *s, uint32_t from, uint32_t to)
{
	return from * s->n_nodes + to;
}

/* Whether the rules let anything through that way. */
static bool open_way(struct sim *s, uint32_t from, uint32_t to)
{
	const struct sim_node *a = &s->node[from], *b = &s->node[to];
	return a->group == b->group && !a->isolated && !b->isolated &&
	       !sim_link(s, from, to)->blocked;
}

static bool open_both(struct sim *s, uint32_t a, uint32_t b)
{
	return open_way(s, a, b) && open_way(s, b, a);
}

static uint64_t delay(struct sim *s)
{
	return s->weather.delay_ms + sim_between(s, 0, s->weather.jitter_ms);
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
	uint32_t i = sim_packet_new(s), key = s->node[from].key;
	struct sim_packet *p = sim_packet(s, i);
	p->kind = PACKET_MESSAGE;
	p->from = from;
	p->to = to;
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
	const struct sim_node *target = &s->node[to];
	sim_link(s, from, to)->datagram_ms = s->now_ms + 1;
	uint64_t door = sim_link(s, to, from)->datagram_ms;
	bool nat = !target->dialable && (door == 0 || s->now_ms - (door - 1) > NAT_DOOR_MS);
	int copies = 1 + sim_chance(s, s->weather.duplicate);
	if (nat || !target->running || !open_way(s, from, to)) {
		s->stats.lost++;
		return;
	}
	while (copies-- > 0) {
		if (sim_chance(s, s->weather.loss)) {
			s->stats.lost++;
			continue;
		}
		uint32_t i = pack(s, from, to, m);
		struct sim_packet *p = sim_packet(s, i);
		p->channel = CHANNEL_DATAGRAM;
		p->source = s->node[from].addr;
		sim_push(s, s->now_ms + delay(s), SIM_ARRIVE, i, 0);
	}
}

/* Tells a process that a peer is up or down, soon. */
static void tell_at(struct sim *s, uint32_t to, uint8_t kind, const struct peer_id *id,
        uint64_t in_ms, const struct peer_addr *at)
{
	if (!s->node[to].running)
		return;
	uint32_t i = sim_packet_new(s);
	struct sim_packet *p = sim_packet(s, i);
	p->kind = kind;
	p->to = to;
	p->life = s->node[to].life;
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
		if (sim_link(s, n, s->key[key].node[i])->up)
			return (int)s->key[key].node[i];
	return -1;
}

static void clear(struct sim *s, struct sim_link *l)
{
	while (l->head) {
		uint32_t next = sim_packet(s, l->head)->next;
		sim_packet_free(s, l->head);
		l->head = next;
	}
	l->tail = 0;
	l->epoch++;
	l->up = l->dialling = l->moving = l->stalled = false;
}

/* Ends a stream, and tells the ends whose last one with that key it was. */
static void give_up(struct sim *s, uint32_t a, uint32_t b)
{
	bool was_up = sim_link(s, a, b)->up;
	clear(s, sim_link(s, a, b));
	clear(s, sim_link(s, b, a));
	if (was_up && stands_with(s, a, s->node[b].key) < 0)
		tell(s, a, PACKET_DOWN, &s->key[s->node[b].key].id, 0);
	if (was_up && stands_with(s, b, s->node[a].key) < 0)
		tell(s, b, PACKET_DOWN, &s->key[s->node[a].key].id, 0);
}

static void move(struct sim *s, uint32_t from, uint32_t to)
{
	struct sim_link *l = sim_link(s, from, to);
	if (!l->up || l->moving || !l->head)
		return;
	uint64_t at = sim_packet(s, l->head)->at_ms;
	l->moving = true;
	sim_push(
	        s, at > s->now_ms ? at : s->now_ms, SIM_STREAM, link_number(s, from, to), l->epoch);
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
			        wrong ? 2 * delay(s) : DIAL_TIMEOUT_MS);
		return;
	}
	/* A handshake with one's own key is refused, whether it is oneself or another. */
	if (s->node[to].key == s->node[from].key)
		return;
	struct sim_link *l = sim_link(s, from, (uint32_t)to);
	uint32_t i = pack(s, from, (uint32_t)to, &send->message);
	struct sim_packet *p = sim_packet(s, i);
	p->channel = CHANNEL_STREAM;
	p->at_ms = s->now_ms + delay(s);
	if (l->tail)
		sim_packet(s, l->tail)->next = i;
	else
		l->head = i;
	l->tail = i;
	move(s, from, (uint32_t)to);
	if (!l->up && !l->dialling) {
		l->dialling = true;
		l->since_ms = s->now_ms;
		l->by_id = send->to_id;
		l->at = s->node[to].addr;
		sim_push(s, s->now_ms + 2 * delay(s) + DIAL_NEXT_MS * (tried - 1), SIM_DIAL,
		        link_number(s, from, (uint32_t)to), l->epoch);
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
		s->stats.lost++;
}

/* A new stream with a key takes the place of one with another process that has it. */
static void replace(struct sim *s, uint32_t n, uint32_t peer)
{
	const struct sim_key *key = &s->key[s->node[peer].key];
	for (int i = 0; i < key->n_nodes; i++) {
		uint32_t old = key->node[i];
		if (old != peer && sim_link(s, n, old)->up)
			give_up(s, n, old);
	}
}

/* A dial gets its answer, or tries again, or has tried long enough. */
void network_dial(struct sim *s, uint32_t number, uint32_t epoch)
{
	uint32_t from = number / s->n_nodes, to = number % s->n_nodes;
	struct sim_link *l = &s->link[number];
	struct sim_node *b = &s->node[to];
	if (l->epoch != epoch || !l->dialling)
		return;
	if (l->up) {
		l->dialling = false;
		return;
	}
	bool open = open_both(s, from, to) && b->dialable;
	bool refused = open && b->refuses && !b->running;
	if (open && b->running && !b->forger && s->now_ms >= b->paused_until_ms &&
	        !sim_chance(s, s->weather.loss)) {
		bool first_here = stands_with(s, from, b->key) < 0;
		bool first_there = stands_with(s, to, s->node[from].key) < 0;
		l->dialling = false;
		l->up = sim_link(s, to, from)->up = true;
		if (first_here)
			tell_at(s, from, PACKET_UP, &s->key[b->key].id, 0, &l->at);
		if (first_there)
			tell(s, to, PACKET_UP, &s->key[s->node[from].key].id, 0);
		replace(s, from, to);
		replace(s, to, from);
		move(s, from, to);
		move(s, to, from);
	} else if (refused || s->now_ms - l->since_ms > DIAL_TIMEOUT_MS) {
		bool by_id = l->by_id;
		clear(s, l);
		if (by_id)
			tell(s, from, PACKET_DOWN, &s->key[b->key].id, 0);
	} else {
		sim_push(s, s->now_ms + retransmission(s), SIM_DIAL, number, epoch);
	}
}

/* The first packet of a stream comes through, or waits for a retransmission. */
void network_stream(struct sim *s, uint32_t number, uint32_t epoch)
{
	uint32_t from = number / s->n_nodes, to = number % s->n_nodes;
	struct sim_link *l = &s->link[number];
	if (l->epoch != epoch || !l->up || !l->head)
		return;
	bool open = open_both(s, from, to) && s->node[to].running;
	if (!open || sim_chance(s, s->weather.loss)) {
		if (!l->stalled) {
			l->stalled = true;
			l->since_ms = s->now_ms;
		}
		if (s->now_ms - l->since_ms > STALL_TIMEOUT_MS)
			give_up(s, from, to);
		else
			sim_push(s, s->now_ms + retransmission(s), SIM_STREAM, number, epoch);
		return;
	}
	uint32_t i = l->head;
	l->stalled = l->moving = false;
	l->head = sim_packet(s, i)->next;
	if (!l->head)
		l->tail = 0;
	move(s, from, to);
	sim_packet(s, i)->life = s->node[to].life;
	sim_receive(s, i);
}

void network_break(struct sim *s, uint32_t number, uint32_t epoch)
{
	if (s->link[number].epoch == epoch && s->link[number].up)
		give_up(s, number / s->n_nodes, number % s->n_nodes);
}

/* A process is gone. If its host still answers, its peers know at once; else when their streams
 * have been silent for a while. */
void network_stopped(struct sim *s, uint32_t n, bool refuses)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_link *l = sim_link(s, n, i);
		if (l->up && refuses)
			give_up(s, n, i);
		else if (l->up)
			sim_push(s, s->now_ms + sim_between(s, 5000, 15000), SIM_BREAK,
			        link_number(s, n, i), l->epoch);
		else
			clear(s, l);
	}
}

/* Where a seed is now, with an address beside it where nobody ever was. */
void network_resolve(struct sim *s, uint32_t n, int seed)
{
	uint32_t i = sim_packet_new(s);
	struct sim_packet *p = sim_packet(s, i);
	p->kind = PACKET_RESOLVED;
	p->to = n;
	p->life = s->node[n].life;
	p->seed = seed;
	sim_push(s, s->now_ms + sim_between(s, 1, 50), SIM_ARRIVE, i, 0);
}
