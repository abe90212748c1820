/* SPDX-License-Identifier: MIT */
/* An insider who lies: a node without a core, with a valid key. It overhears updates and sends what
 * it likes: others' records altered (their signatures no longer fit), old ones again, in any order
 * (they are genuine, and must not raise the dead), accusations of the living, signed by itself
 * (they must be refuted), nonsense at the ends of the number range, and floods. With sybils it
 * makes up more members than there is room for. It answers pings when it feels like it. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define CAUGHT 256

static const uint64_t edges[] = {0, 1, 2, 1000, UINT64_MAX - 1, UINT64_MAX};

static uint64_t edge(struct sim *s, uint64_t near)
{
	switch (sim_between(s, 0, 3)) {
	case 0:
		return edges[sim_between(s, 0, 5)];
	case 1:
		return near + 1;
	case 2:
		return near ? near - 1 : 0;
	default:
		return near;
	}
}

static void overhear(struct sim *s, const struct gossip_update *u)
{
	if (s->n_caught < CAUGHT)
		s->caught[s->n_caught++] = *u;
	else
		s->caught[sim_between(s, 0, CAUGHT - 1)] = *u;
}

static struct gossip_update own_record(
        struct sim *s, uint32_t key, uint32_t n, uint64_t generation, uint64_t version)
{
	struct gossip_update u = {.kind = UPDATE_RECORD};
	struct member_record *r = &u.record;
	r->id = s->key[key].id;
	r->generation = generation;
	r->nonce = key;
	r->version = version;
	r->dialable = true;
	r->addrs = s->node[n].told;
	r->protocol_min = r->protocol_max = 1;
	r->status.samples = version;
	if (sim_chance(s, 0.02)) {
		/* A count that falls again: who heard the higher one keeps it, and the clocks of
		 * the others cannot be equal to theirs. */
		r->status.samples = edge(s, 0);
		s->liar = true;
	}
	r->left = sim_chance(s, 0.02);
	truth_sign(s, key, &u);
	return u;
}

/* A false accusation of somebody who was overheard. */
static bool accuse(struct sim *s, uint32_t n, struct gossip_update *u)
{
	if (!s->n_caught)
		return false;
	const struct gossip_update *about = &s->caught[sim_between(s, 0, s->n_caught - 1)];
	if (about->kind != UPDATE_RECORD)
		return false;
	bool wild = sim_chance(s, 0.2);
	u->kind = UPDATE_ACCUSATION;
	u->accusation = (struct accusation){.about = about->record.id,
	        .generation = wild ? edge(s, about->record.generation) : about->record.generation,
	        .incarnation =
	                wild ? edge(s, about->record.incarnation) : about->record.incarnation,
	        .by = s->key[s->node[n].key].id,
	        .dead = sim_chance(s, 0.5)};
	truth_sign(s, s->node[n].key, u);
	return true;
}

/* Somebody's record, changed; the signature is what it was, or the forger's. */
static bool alter(struct sim *s, uint32_t n, struct gossip_update *u)
{
	if (!s->n_caught)
		return false;
	*u = s->caught[sim_between(s, 0, s->n_caught - 1)];
	if (u->kind == UPDATE_RECORD) {
		u->record.incarnation++;
		u->record.addrs = s->node[n].told;
		u->record.status.samples += 1000;
		u->record.left = sim_chance(s, 0.3);
	} else {
		u->accusation.incarnation++;
		u->accusation.dead = true;
	}
	u->ours = sim_chance(s, 0.2); /* what comes in has no say in this */
	return true;
}

static bool lie(struct sim *s, uint32_t n, struct gossip_update *u)
{
	memset(u, 0, sizeof *u);
	switch (sim_between(s, 0, 4)) {
	case 0:
		*u = own_record(s, s->node[n].key, n, s->node[n].generation, ++s->node[n].samples);
		/* After its last word it is another process. */
		s->node[n].generation += u->record.left;
		return true;
	case 1:
		return accuse(s, n, u);
	case 2:
		return alter(s, n, u);
	case 3:
		if (s->sybils) {
			uint32_t first = s->n_nodes;
			uint32_t key = (uint32_t)sim_between(s, first, s->n_keys - 1);
			s->key[key].forger = true;
			*u = own_record(s, key, n, 1, 1 + sim_between(s, 0, 3));
			return true;
		}
		return accuse(s, n, u);
	default:
		if (!s->n_caught)
			return false;
		*u = s->caught[sim_between(s, 0, s->n_caught - 1)];
		return true;
	}
}

static void send_to(struct sim *s, uint32_t n, uint32_t to, struct gossip_message *m)
{
	if (m->kind != MESSAGE_SYNC && m->kind != MESSAGE_SKETCH) {
		network_datagram(s, n, to, m);
		return;
	}
	uint32_t i = network_packet(s, n, to, PACKET_MESSAGE);
	struct sim_packet *p = sim_packet(s, i);
	p->channel = CHANNEL_STREAM;
	sim_message_copy(&p->message, m);
	sim_push(s, s->now_ms + 1, SIM_ARRIVE, i, 0);
}

void forger_act(struct sim *s, uint32_t n)
{
	if (!s->node[n].alive)
		return;
	static const uint8_t kinds[] = {MESSAGE_GOSSIP, MESSAGE_GOSSIP, MESSAGE_SYNC, MESSAGE_PING,
	        MESSAGE_ACK, MESSAGE_NACK, MESSAGE_PING_REQ};
	int messages = sim_chance(s, 0.05) ? 50 : 2;
	while (messages-- > 0) {
		uint32_t to = (uint32_t)sim_between(s, 0, s->config.nodes - 1);
		struct gossip_message m = {.kind = kinds[sim_between(s, 0, sizeof kinds - 1)]};
		m.nonce = sim_between(s, 0, 3);
		m.want_reply = sim_chance(s, 0.3);
		/* Whom to ping may be anybody, the one asked as well. */
		uint32_t target = (uint32_t)sim_between(s, 0, s->config.nodes - 1);
		m.target = s->key[m.kind == MESSAGE_PING ? s->node[to].key : target].id;
		m.address = s->node[target].addr;
		size_t want = (size_t)sim_between(s, 1, GOSSIP_UPDATES_MAX);
		while (want-- > 0)
			m.n_updates = (uint8_t)(m.n_updates + lie(s, n, &m.update[m.n_updates]));
		if (s->node[to].alive && !s->node[to].forger)
			send_to(s, n, to, &m);
	}
	sim_push(s, s->now_ms + sim_between(s, 100, 1000), SIM_FORGE, n, 0);
}

void forger_receive(struct sim *s, uint32_t n, const struct sim_packet *p)
{
	if (p->kind != PACKET_MESSAGE)
		return;
	for (int i = 0; i < p->message.n_updates; i++)
		overhear(s, &p->message.update[i]);
	if (p->message.kind != MESSAGE_PING || sim_chance(s, 0.3))
		return;
	struct gossip_message m = {.kind = MESSAGE_ACK, .nonce = p->message.nonce};
	network_datagram(s, n, p->parcel.from, &m);
}

void forger_start(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	if (!s->caught)
		s->caught = calloc(CAUGHT, sizeof *s->caught);
	if (!s->caught)
		abort();
	p->forger = p->alive = true;
	p->generation++;
	s->key[p->key].forger = true;
	p->life++;
	sim_say(s, "n%u: forges", n);
	sim_push(s, s->now_ms, SIM_FORGE, n, 0);
}

void forger_stop(struct sim *s, uint32_t n)
{
	if (s->node[n].alive)
		sim_say(s, "n%u: has forged enough", n);
	s->node[n].alive = false;
}
