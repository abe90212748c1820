/* SPDX-License-Identifier: MIT */
/* Whole states, on streams: records, then accusations, then sketches, page by page.
 *
 *     A ── SYNC (want_reply) ─ SYNC ─ … ─ SKETCH … ──► B
 *     A ◄───── SYNC ─ SYNC ─ … ─ SKETCH … ──────────── B
 *
 * Each page stands for itself: what is lost with a broken stream comes with the next sync. Records
 * go before accusations, since an accuser counts only if it is known.
 *
 * Healing is why no partition lasts: for ever, with jitter, one of the dead, one that only others
 * reach, one seed (its name resolved anew) and one remembered address are tried. Where two halves
 * have given each other up, the first such sync tells each side what the other says of it; the
 * accused refute, and within seconds of gossip the halves are one. */
#include "gossip/membership/gossip_internal.h"

#include <math.h>
#include <string.h>

#define ALONE_FASTER 6 /* times faster healing while nobody is there */
#define START_TRIES 4  /* remembered addresses that are tried at once */

static void sync_to(
        struct gossip *g, const struct peer_id *id, const struct peer_addrs *a, bool want_reply)
{
	struct sync *slot = NULL;
	for (int i = 0; i < GOSSIP_SYNCS; i++) {
		struct sync *s = &g->sync[i];
		bool same =
		        s->used && (id ? s->to_id && peer_id_equal(&s->id, id)
		                       : !s->to_id && peer_addr_equal(&s->addrs.at[0], &a->at[0]));
		if (same)
			return; /* one is under way */
		if (!s->used && !slot)
			slot = s;
	}
	if (!slot) {
		g->counters.dropped_syncs++;
		return;
	}
	*slot = (struct sync){.used = true, .to_id = id != NULL, .want_reply = want_reply};
	if (id)
		slot->id = *id;
	slot->addrs = *a;
	gossip__publish(g);
}

void gossip__sync_back(struct gossip *g, const struct gossip_event *e, bool want_reply)
{
	const struct peer_addr *a = &e->received.address;
	struct peer_addrs here = {a->family != 0, {*a}};
	sync_to(g, &e->received.from, &here, want_reply);
}

static void sync_member(struct gossip *g, const struct member *m)
{
	struct peer_addrs a = gossip__addrs(m);
	sync_to(g, &m->record.id, &a, true);
}

static void sync_address(struct gossip *g, const struct peer_addr *a)
{
	struct peer_addrs one = {1, {*a}};
	sync_to(g, NULL, &one, true);
}

bool gossip__sync_busy(const struct gossip *g)
{
	for (int i = 0; i < GOSSIP_SYNCS; i++)
		if (g->sync[i].used)
			return true;
	return false;
}

static bool in_phase(const struct gossip *g, uint32_t i, uint8_t phase)
{
	const struct member *m = &g->members[i];
	if (m->forbidden || phase == SYNC_RECORDS)
		return !m->forbidden;
	if (phase == SYNC_ACCUSATIONS)
		return m->state == MEMBER_SUSPECT || m->state == MEMBER_DEAD;
	return g->sketches[i].length > 0 && gossip__present(m);
}

/* The next thing to send after the cursor; index members_max is ourselves, told first. */
static uint32_t next_item(const struct gossip *g, struct sync *s)
{
	for (;;) {
		if (s->phase == SYNC_DONE)
			return NONE;
		if (s->cursor == 0) {
			s->cursor = 1;
			if (s->phase != SYNC_ACCUSATIONS && in_phase(g, g->members_max, s->phase))
				return g->members_max;
		}
		while (s->cursor <= g->n_members)
			if (in_phase(g, s->cursor++ - 1, s->phase))
				return s->cursor - 2;
		s->phase++;
		s->cursor = 0;
	}
}

/* One phase to a page: an accusation would be thrown away beside the record that makes its accuser
 * known, since a page is judged as a whole before it is taken in. */
static void fill_page(struct gossip *g, struct sync *s, struct gossip_message *m)
{
	uint8_t phase = s->phase;
	while (m->n_updates < GOSSIP_UPDATES_MAX) {
		struct sync before = *s;
		uint32_t i = next_item(g, s);
		if (s->phase != phase) {
			if (m->n_updates > 0 || s->phase > SYNC_ACCUSATIONS) {
				uint8_t reached = s->phase;
				*s = before;
				s->phase = reached;
				s->cursor = 0;
				return;
			}
			phase = s->phase;
		}
		if (phase == SYNC_RECORDS)
			gossip__put_record(g, m, i);
		else
			gossip__put_accusation(g, m, i);
	}
}

static void address_send(struct gossip_send *send, const struct sync *s)
{
	gossip__send_to(send, s->to_id ? &s->id : NULL, &s->addrs);
}

/* False when this step has no room left. */
static bool send_next(struct gossip *g, struct sync *s)
{
	if (g->out->n_sends == GOSSIP_SENDS_MAX)
		return false;
	if (s->phase < SYNC_SKETCHES) {
		struct gossip_send *send = gossip__send(g, MESSAGE_SYNC, CHANNEL_STREAM);
		address_send(send, s);
		send->message.want_reply = s->want_reply;
		s->want_reply = false;
		fill_page(g, s, &send->message);
		if (send->message.n_updates == 0 && !send->message.want_reply)
			g->out->n_sends--;
		return true;
	}
	uint32_t i = next_item(g, s);
	if (i == NONE) {
		s->used = false;
		return true;
	}
	struct gossip_send *send = gossip__send(g, MESSAGE_SKETCH, CHANNEL_STREAM);
	address_send(send, s);
	send->message.sketch = g->sketches[i];
	return true;
}

void gossip__sync_pump(struct gossip *g)
{
	for (int i = 0; i < GOSSIP_SYNCS; i++)
		while (g->sync[i].used)
			if (!send_next(g, &g->sync[i]))
				return;
}

static bool can_sync(const struct gossip *g, const struct member *m)
{
	(void)g;
	return m->state == MEMBER_ALIVE && (m->record.dialable || m->connected);
}

void gossip__sync_timer(struct gossip *g)
{
	/* Rarer in a large flock, as memberlist: a whole state is as large as the flock. */
	double n = gossip__n_present(g) + 1;
	uint64_t stretch = n > 32 ? (uint64_t)(ceil(log2(n) - 5)) + 1 : 1;
	uint64_t every = g->config.profile.sync_interval * stretch;
	g->sync_at = g->now + every - every / 8 + rng_below(&g->rng, every / 4 + 1);
	uint32_t i = gossip__pick(g, can_sync);
	if (i != NONE)
		sync_member(g, &g->members[i]);
}

static bool is_dead(const struct gossip *g, const struct member *m)
{
	(void)g;
	return m->state == MEMBER_DEAD && (m->record.dialable || m->connected);
}

static bool is_cut_off(const struct gossip *g, const struct member *m)
{
	(void)g;
	return gossip__present(m) && m->unreachable;
}

/* Only an address that is proven counts: anybody can write another's into its record. */
static bool known_alive(const struct gossip *g, const struct peer_addr *a)
{
	if (gossip__is_at(&g->members[g->members_max].record, a))
		return true;
	for (uint32_t i = 0; i < g->n_members; i++)
		if (gossip__present(&g->members[i]) && gossip__proven_at(&g->members[i], a))
			return true;
	return false;
}

static void try_remembered(struct gossip *g)
{
	while (g->n_remembered > 0) {
		uint32_t i = (uint32_t)rng_below(&g->rng, g->n_remembered);
		if (!known_alive(g, &g->remembered[i])) {
			sync_address(g, &g->remembered[i]);
			return;
		}
		g->remembered[i] = g->remembered[--g->n_remembered]; /* found */
	}
}

static void resolve(struct gossip *g, int seed)
{
	if (g->out->n_resolve < GOSSIP_RESOLVES_MAX)
		g->out->resolve[g->out->n_resolve++] = seed;
}

void gossip__heal(struct gossip *g)
{
	uint64_t every = g->config.profile.heal_interval;
	if (gossip__n_present(g) == 0)
		every /= ALONE_FASTER;
	g->heal_at = g->now + every - every / 4 + rng_below(&g->rng, every / 2 + 1);
	uint32_t i = gossip__pick(g, is_dead);
	if (i != NONE)
		sync_member(g, &g->members[i]);
	i = gossip__pick(g, is_cut_off);
	if (i != NONE)
		sync_member(g, &g->members[i]);
	/* A random one; an agent that is alone asks for several at once. */
	int first =
	        g->config.n_seeds > 0 ? (int)rng_below(&g->rng, (uint64_t)g->config.n_seeds) : 0;
	int wanted = gossip__n_present(g) == 0 ? GOSSIP_RESOLVES_MAX : 1;
	for (int k = 0; k < wanted && k < g->config.n_seeds; k++)
		resolve(g, (first + k) % g->config.n_seeds);
	try_remembered(g);
}

void gossip__start(struct gossip *g)
{
	for (int i = 0; i < g->config.n_seeds && i < GOSSIP_RESOLVES_MAX; i++)
		resolve(g, i);
	for (int i = 0; i < START_TRIES; i++)
		try_remembered(g);
}

void gossip__resolved(struct gossip *g, const struct gossip_event *e)
{
	int n = e->resolved.n < GOSSIP_SEED_ADDRESSES ? e->resolved.n : GOSSIP_SEED_ADDRESSES;
	if (n < 1)
		return;
	int first = (int)rng_below(&g->rng, (uint64_t)n),
	    wanted = gossip__n_present(g) == 0 ? n : 1;
	for (int k = 0; k < wanted; k++) {
		const struct peer_addr *a = &e->resolved.address[(first + k) % n];
		if (!known_alive(g, a))
			sync_address(g, a);
	}
}

void gossip__remember(struct gossip *g, const struct peer_addr *a)
{
	for (uint32_t i = 0; i < g->n_remembered; i++)
		if (peer_addr_equal(&g->remembered[i], a))
			return;
	if (g->n_remembered < GOSSIP_REMEMBERED && a->family != 0)
		g->remembered[g->n_remembered++] = *a;
}
