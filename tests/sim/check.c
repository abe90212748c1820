/* SPDX-License-Identifier: MIT */
/* What must hold after every step, for each process from its start to its end, whatever happens:
 *
 *     back        no (generation, incarnation, version) of a known member goes back, nor our own
 *     bounds      members, sends, notices; a datagram's bytes; nothing written beyond the memory
 *     self        we are not our own peer: never a member, pinged, accused or sent to
 *     resurrect   who is dead or has left comes back only by a higher (generation, incarnation)
 *     rush        who has spoken with us does not die at once by another's whole state, which may
 *                 be old: it is suspect first, and can say no
 *     invented    whatever a view holds was published by its subject; what is passed on is whole
 *     clock       the run's clock neither falls nor passes what was really trained
 *     ours        what goes out to be signed is our own record, or our own accusation
 *     vanish      a member is forgotten only when it is dead, and that is counted
 *     busy        no endless timers at one time (in sim.c)
 *
 * And once faults have stopped, within a minute: equal, all views are the same and true; and once
 * training stands still, so are the clocks, for which whole states may have to go round. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_started(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	free(p->shadow);
	p->shadow = calloc(s->n_keys, sizeof *p->shadow);
	if (!p->shadow)
		abort();
	p->self = (struct sim_shadow){0};
	p->clock = p->evicted = p->evicted_before = 0;
	p->known = 0;
}

/* −1, 0 or 1, as a record is older than what was seen, the same, or newer. */
static int compare(const struct member_record *r, const struct sim_shadow *w)
{
	if (r->generation != w->generation)
		return r->generation < w->generation ? -1 : 1;
	if (r->incarnation != w->incarnation)
		return r->incarnation < w->incarnation ? -1 : 1;
	if (r->version != w->version)
		return r->version < w->version ? -1 : 1;
	return 0;
}

static void remember(struct sim_shadow *w, const struct member_record *r)
{
	w->generation = r->generation;
	w->incarnation = r->incarnation;
	w->version = r->version;
}

static void check_self(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	const struct member_record *r = gossip_self(p->core);
	int order = compare(r, &p->self);
	if (order < 0)
		sim_fail(s, "back: n%u's own record", n);
	if (!peer_id_equal(&r->id, &s->key[p->key].id) || r->nonce != p->nonce)
		sim_fail(s, "self: n%u is no longer itself", n);
	if (r->status.samples > s->key[p->key].samples)
		sim_fail(s, "clock: n%u claims samples that it has not trained", n);
	p->self_before = p->self;
	if (order > 0) {
		truth_publish(s, r);
		remember(&p->self, r);
	}
}

/* As it is now, or was at some moment of this step. */
static bool is_own_record(
        const struct sim *s, const struct sim_node *p, const struct member_record *r)
{
	return peer_id_equal(&r->id, &s->key[p->key].id) && r->nonce == p->nonce &&
	       compare(r, &p->self_before) >= 0 && compare(r, &p->self) <= 0;
}

static bool is_down(uint8_t state)
{
	return state == MEMBER_DEAD || state == MEMBER_LEFT;
}

static void check_member(
        struct sim *s, uint32_t n, const struct member_view *v, const struct gossip_event *e)
{
	struct sim_node *p = &s->node[n];
	int key = truth_key(s, &v->record.id);
	if (key < 0) {
		sim_fail(s, "invented: n%u knows a peer that does not exist", n);
		return;
	}
	if ((uint32_t)key == p->key)
		sim_fail(s, "self: n%u is its own peer", n);
	struct sim_shadow *w = &p->shadow[key];
	if (w->seen == p->stamp)
		sim_fail(s, "bounds: n%u holds n%d twice", n, key);
	w->seen = p->stamp;
	/* Who was forgotten and met again within one step begins anew. */
	if (w->known && p->evicted != p->evicted_before) {
		w->known = false;
		p->known--;
	}
	int order = w->known ? compare(&v->record, w) : 1;
	if (order < 0)
		sim_fail(s, "back: n%u's record of n%d, from %llu.%llu.%llu to %llu.%llu.%llu", n,
		        key, (unsigned long long)w->generation, (unsigned long long)w->incarnation,
		        (unsigned long long)w->version, (unsigned long long)v->record.generation,
		        (unsigned long long)v->record.incarnation,
		        (unsigned long long)v->record.version);
	if (order > 0 && !truth_published(s, &v->record))
		sim_fail(s, "invented: n%u's record of n%d was never published", n, key);
	if (v->state > MEMBER_LEFT)
		sim_fail(s, "bounds: n%u has n%d in state %d", n, key, v->state);
	bool higher =
	        v->record.generation > w->generation ||
	        (v->record.generation == w->generation && v->record.incarnation > w->incarnation);
	if (w->known && is_down(w->state) && !is_down(v->state) && !higher)
		sim_fail(s, "resurrect: n%u brings n%d back at %llu.%llu", n, key,
		        (unsigned long long)v->record.generation,
		        (unsigned long long)v->record.incarnation);
	bool whole_state = e->kind == EVENT_RECEIVED && e->received.message->kind == MESSAGE_SYNC;
	if (w->known && w->spoke && whole_state && w->state == MEMBER_ALIVE &&
	        v->state == MEMBER_DEAD)
		sim_fail(s, "rush: n%u lets n%d die by hearsay", n, key);
	if (!w->known) {
		p->known++;
		w->spoke = false;
	}
	if (e->kind == EVENT_RECEIVED && peer_id_equal(&e->received.from, &v->record.id))
		w->spoke = true;
	w->known = true;
	w->state = v->state;
	remember(w, &v->record);
}

/* A peer may die and be forgotten in one step; then it was told. */
static bool told_down(const struct sim *s, const struct peer_id *id)
{
	for (int i = 0; i < s->actions.n_notices; i++) {
		const struct gossip_notice *t = &s->actions.notice[i];
		if ((t->kind == NOTICE_FAILED || t->kind == NOTICE_LEFT) &&
		        peer_id_equal(&t->id, id))
			return true;
	}
	return false;
}

/* Those of whom nothing was seen in this step. */
static void check_vanished(struct sim *s, uint32_t n)
{
	struct sim_node *p = &s->node[n];
	uint64_t gone = 0, evicted = p->evicted - p->evicted_before;
	for (uint32_t i = 0; i < s->n_keys; i++) {
		struct sim_shadow *w = &p->shadow[i];
		if (!w->known || w->seen == p->stamp)
			continue;
		if (!is_down(w->state) && !told_down(s, &s->key[i].id))
			sim_fail(s, "vanish: n%u forgets n%u, which was not dead", n, i);
		w->known = false;
		p->known--;
		gone++;
	}
	if (gone > evicted)
		sim_fail(s, "vanish: n%u forgets %llu peers and counts %llu", n,
		        (unsigned long long)gone, (unsigned long long)evicted);
}

static void check_members(struct sim *s, uint32_t n, const struct gossip_event *e)
{
	struct sim_node *p = &s->node[n];
	uint32_t count = gossip_count(p->core), by_state[4] = {0};
	struct gossip_counters counters = gossip_counters(p->core);
	if (count > s->config.members_max)
		sim_fail(s, "bounds: n%u knows %u of %u", n, count, s->config.members_max);
	p->stamp++;
	p->evicted_before = p->evicted;
	p->evicted = counters.evicted;
	for (uint32_t i = 0; i < count && !s->failed; i++) {
		struct member_view v = gossip_member(p->core, i);
		check_member(s, n, &v, e);
		by_state[v.state & 3]++;
	}
	for (int i = 0; i < 4; i++)
		if (gossip_count_state(p->core, (enum member_state)i) != by_state[i])
			sim_fail(s, "bounds: n%u counts its members of state %d wrongly", n, i);
	if (p->known != count)
		check_vanished(s, n);
	if (gossip_health(p->core) > GOSSIP_HEALTH_MAX)
		sim_fail(s, "bounds: n%u's health is %u", n, gossip_health(p->core));
}

static void check_update(struct sim *s, uint32_t n, const struct gossip_update *u)
{
	const struct sim_node *p = &s->node[n];
	const struct peer_id *self = &s->key[p->key].id;
	if (u->kind != UPDATE_RECORD && u->kind != UPDATE_ACCUSATION)
		sim_fail(s, "bounds: n%u sends an update of kind %d", n, u->kind);
	else if (!u->ours && !truth_verify(s, u))
		sim_fail(s, "invented: n%u passes on what was never signed", n);
	else if (u->ours && u->kind == UPDATE_RECORD && !is_own_record(s, p, &u->record))
		sim_fail(s, "ours: n%u signs a record that is not its own", n);
	else if (u->ours && u->kind == UPDATE_ACCUSATION &&
	         (!peer_id_equal(&u->accusation.by, self) ||
	                 peer_id_equal(&u->accusation.about, self)))
		sim_fail(s, "ours: n%u signs an accusation by another, or of itself", n);
}

static void check_send(struct sim *s, uint32_t n, const struct gossip_send *send)
{
	const struct sim_node *p = &s->node[n];
	const struct peer_id *self = &s->key[p->key].id;
	const struct gossip_message *m = &send->message;
	if (m->n_updates > GOSSIP_UPDATES_MAX) {
		sim_fail(s, "bounds: n%u sends %d updates", n, m->n_updates);
		return;
	}
	if (send->to_id && peer_id_equal(&send->id, self))
		sim_fail(s, "self: n%u sends to itself", n);
	if ((m->kind == MESSAGE_PING || m->kind == MESSAGE_PING_REQ) &&
	        peer_id_equal(&m->target, self))
		sim_fail(s, "self: n%u pings itself", n);
	if (!send->to_id && peer_addr_equal(&send->addrs.at[0], &p->addr))
		sim_fail(s, "self: n%u dials itself", n);
	for (int i = 0; i < send->addrs.n && i < MEMBER_ADDRS_MAX; i++)
		if (send->addrs.at[i].family == 4 && send->addrs.at[i].ip[0] == 0)
			sim_fail(s, "bounds: n%u sends to where nobody can be", n);
	if (send->channel == CHANNEL_DATAGRAM) {
		size_t bytes = gossip_message_bytes(m);
		if (bytes > GOSSIP_DATAGRAM_BYTES)
			sim_fail(s, "bounds: n%u sends a datagram of %zu bytes", n, bytes);
		if (m->kind == MESSAGE_SYNC || m->kind == MESSAGE_SKETCH)
			sim_fail(s, "bounds: n%u sends kind %d as a datagram", n, m->kind);
		if (!send->to_id || send->addrs.n == 0 || send->addrs.at[0].family == 0)
			sim_fail(s, "bounds: n%u sends a datagram to nobody or nowhere", n);
	}
	for (int i = 0; i < m->n_updates; i++)
		check_update(s, n, &m->update[i]);
	if (m->kind != MESSAGE_SKETCH)
		return;
	if (m->sketch.length > GOSSIP_SKETCH_BYTES)
		sim_fail(s, "bounds: n%u sends a sketch of %u bytes", n, m->sketch.length);
	else if (m->sketch.ours ? !peer_id_equal(&m->sketch.id, self)
	                        : !truth_verify_sketch(s, &m->sketch))
		sim_fail(s, "invented: n%u sends a sketch that is nobody's", n);
}

static void check_canary(struct sim *s, uint32_t n)
{
	const uint8_t *canary = s->node[n].memory + s->node[n].memory_bytes;
	for (int i = 0; i < SIM_CANARY_BYTES; i++)
		if (canary[i] != SIM_CANARY)
			sim_fail(s, "bounds: n%u writes beyond its memory", n);
}

void check_step(struct sim *s, uint32_t n, const struct gossip_event *e)
{
	struct sim_node *p = &s->node[n];
	const struct gossip_actions *a = &s->actions;
	if (a->n_sends < 0 || a->n_sends > GOSSIP_SENDS_MAX || a->n_notices < 0 ||
	        a->n_notices > GOSSIP_NOTICES_MAX || a->n_resolve < 0 ||
	        a->n_resolve > GOSSIP_RESOLVES_MAX) {
		sim_fail(s, "bounds: n%u's actions after event %d", n, e->kind);
		return;
	}
	check_canary(s, n);
	check_self(s, n);
	for (int i = 0; i < a->n_sends && !s->failed; i++)
		check_send(s, n, &a->send[i]);
	for (int i = 0; i < a->n_resolve; i++)
		if (a->resolve[i] < 0 || a->resolve[i] >= p->n_seeds)
			sim_fail(s, "bounds: n%u resolves seed %d", n, a->resolve[i]);
	if (!s->failed)
		check_members(s, n, e);
	uint64_t clock = gossip_clock(p->core), most = truth_clock(s);
	if (clock < p->clock)
		sim_fail(s, "clock: n%u's falls from %llu to %llu", n, (unsigned long long)p->clock,
		        (unsigned long long)clock);
	if (clock > most)
		sim_fail(s, "clock: n%u's says %llu, trained were %llu", n,
		        (unsigned long long)clock, (unsigned long long)most);
	p->clock = clock;
}

/* The one process of a key; −1 if it is none, −2 if there are two. */
static int process_of(const struct sim *s, uint32_t key)
{
	int found = -1;
	for (int i = 0; i < s->key[key].n_nodes; i++)
		if (s->node[s->key[key].node[i]].alive && s->node[s->key[key].node[i]].core)
			found = found == -1 ? (int)s->key[key].node[i] : -2;
	return found;
}

/* Whether an observer is right about a key. */
static bool sees_right(struct sim *s, uint32_t n, uint32_t key, char *why, size_t bytes)
{
	static const char *const name[] = {"alive", "suspect", "dead", "left"};
	struct member_view v;
	int process = process_of(s, key);
	bool found = gossip_find(s->node[n].core, &s->key[key].id, &v);
	if (key == s->node[n].key || process == -2)
		return true;
	if (process == -1) {
		if (!found || is_down(v.state))
			return true;
		snprintf(why, bytes, "for n%u the absent n%u is %s", n, key, name[v.state & 3]);
		return false;
	}
	const struct member_record *self = gossip_self(s->node[process].core);
	if (!found || v.state != MEMBER_ALIVE) {
		snprintf(why, bytes, "for n%u the running n%u is %s", n, key,
		        found ? name[v.state & 3] : "unknown");
		return false;
	}
	if (v.record.generation == self->generation && v.record.incarnation == self->incarnation)
		return true;
	snprintf(why, bytes, "n%u holds n%u at %llu.%llu, it is at %llu.%llu", n, key,
	        (unsigned long long)v.record.generation, (unsigned long long)v.record.incarnation,
	        (unsigned long long)self->generation, (unsigned long long)self->incarnation);
	return false;
}

/* Those whose views are compared: one process for each key. */
static bool counts(const struct sim *s, uint32_t n)
{
	const struct sim_node *p = &s->node[n];
	return p->alive && p->core && process_of(s, p->key) != -2;
}

bool check_views_equal(struct sim *s, char *why, size_t bytes)
{
	for (uint32_t n = 0; n < s->n_nodes; n++)
		for (uint32_t key = 0; counts(s, n) && key < s->n_keys; key++)
			if (!sees_right(s, n, key, why, bytes))
				return false;
	return true;
}

/* Nothing is said where somebody lied about its count, or found no room. */
bool check_clocks_equal(struct sim *s, char *why, size_t bytes)
{
	int first = -1;
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		struct gossip_counters c;
		if (!counts(s, n))
			continue;
		c = gossip_counters(s->node[n].core);
		if (s->liar || c.evicted || c.refused)
			return true;
		if (first < 0)
			first = (int)n;
	}
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		if (!counts(s, n))
			continue;
		uint64_t a = gossip_clock(s->node[first].core), b = gossip_clock(s->node[n].core);
		if (a != b) {
			snprintf(why, bytes, "the run's clock: n%d's says %llu, n%u's %llu", first,
			        (unsigned long long)a, n, (unsigned long long)b);
			return false;
		}
	}
	return true;
}

/* Whether all who run know that a key's process is gone. */
bool check_knows_dead(const struct sim *s, uint32_t key)
{
	struct member_view v;
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		const struct sim_node *p = &s->node[n];
		if (!p->alive || !p->core || !gossip_find(p->core, &s->key[key].id, &v))
			continue;
		if (!is_down(v.state))
			return false;
	}
	return true;
}
