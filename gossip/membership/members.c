/* SPDX-License-Identifier: MIT */
/* The table of peers, and the rules by which news changes it (SWIM, section 4.2; ALGORITHMS in
 * Lifeguard's paper for the suspicion's time).
 *
 *                 record of a higher incarnation
 *         ┌───────────────────────────────────────────────┐
 *         ▼                                               │
 *     ┌───────┐  accused of this incarnation  ┌─────────┐ │  time is up, or
 *     │ ALIVE │ ────────────────────────────► │ SUSPECT │ ┼──────────────────► ┌──────┐
 *     └───────┘                               └─────────┘ │  never seen alive  │ DEAD │
 *         │ its own last word                             └─────────────────── └──────┘
 *         ▼
 *     ┌──────┐
 *     │ LEFT │   a higher generation (a new process) begins anew from any state
 *     └──────┘
 *
 * A peer's word alone kills nobody: a member that is said to be dead becomes suspect for the
 * shortest time, in which it can refute. An accuser that was refuted lately is ignored about that
 * member for a while, so that one accuser cannot keep it suspect.
 *
 * Records are ordered by (generation, incarnation, version), and only a later one counts. A
 * member is never removed; when the table is full the one longest dead or gone gives its place to a
 * newcomer, and its samples go on counting in a smaller table. So the dead stay as tombstones that
 * old news cannot lift, and as addresses that healing tries for ever. */
#include "gossip/membership/gossip_internal.h"

#include <math.h>
#include <string.h>

#define TELL_INTERVAL 1000   /* ms between two hints to a peer that lost its generation */
#define REFUTED_MS 60000     /* so long an accuser is not heard about one who refuted it */
#define RAISE_INTERVAL 10000 /* ms between two raises of ours once another process has our key */

bool peer_id_equal(const struct peer_id *a, const struct peer_id *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* An id is a public key: its bytes are as good as a hash. */
static uint64_t id_key(const struct peer_id *id)
{
	uint64_t k;
	memcpy(&k, id->bytes, sizeof k);
	return k;
}

static uint32_t home(const struct gossip *g, const struct peer_id *id)
{
	return (uint32_t)rng_mix(id_key(id), g->config.seed, 1) & g->table_mask;
}

uint32_t gossip__find(const struct gossip *g, const struct peer_id *id)
{
	for (uint32_t at = home(g, id); g->table[at] != NONE; at = (at + 1) & g->table_mask)
		if (peer_id_equal(&g->members[g->table[at]].record.id, id))
			return g->table[at];
	return NONE;
}

static void table_add(struct gossip *g, uint32_t i)
{
	uint32_t at = home(g, &g->members[i].record.id);
	while (g->table[at] != NONE)
		at = (at + 1) & g->table_mask;
	g->table[at] = i;
}

/* Linear probing without tombstones: what follows moves up where it may. */
static void table_remove(struct gossip *g, uint32_t i)
{
	uint32_t at = home(g, &g->members[i].record.id), mask = g->table_mask;
	while (g->table[at] != i)
		at = (at + 1) & mask;
	for (uint32_t next = (at + 1) & mask; g->table[next] != NONE; next = (next + 1) & mask) {
		uint32_t wants = home(g, &g->members[g->table[next]].record.id);
		if (((next - wants) & mask) >= ((next - at) & mask)) {
			g->table[at] = g->table[next];
			at = next;
		}
	}
	g->table[at] = NONE;
}

/* ---- the run's clock */

/* Where an id is in a table of the forgotten, or would be. Half of a table is always free. */
static struct retired *retired_slot(const struct gossip *g, int table, const struct peer_id *id)
{
	uint64_t key = id_key(id) | 1; /* 0 means free */
	uint32_t at = (uint32_t)rng_mix(key, g->config.seed, 2) & g->retired_mask;
	while (g->retired[table][at].key != 0 && g->retired[table][at].key != key)
		at = (at + 1) & g->retired_mask;
	return &g->retired[table][at];
}

static const struct retired *find_retired(const struct gossip *g, const struct peer_id *id)
{
	for (int t = 0; t < 2; t++) {
		const struct retired *r = retired_slot(g, t, id);
		if (r->key != 0)
			return r;
	}
	return NULL;
}

/* When the table is full, the ids forgotten longest ago are dropped; the clock keeps their samples.
 */
static void retire(struct gossip *g, const struct peer_id *id, uint64_t samples)
{
	struct retired *r = retired_slot(g, 0, id);
	if (r->key == 0 && g->n_retired > g->retired_mask / 2) {
		struct retired *oldest = g->retired[1];
		for (uint32_t i = 0; i <= g->retired_mask; i++)
			g->folded |= oldest[i].key != 0;
		g->retired[1] = g->retired[0];
		g->retired[0] = memset(oldest, 0, (g->retired_mask + 1ull) * sizeof *oldest);
		g->n_retired = 0;
		r = retired_slot(g, 0, id);
	}
	g->n_retired += r->key == 0;
	*r = (struct retired){id_key(id) | 1, samples};
}

static void add_to_clock(struct gossip *g, uint64_t samples)
{
	g->clock = samples > UINT64_MAX - g->clock ? UINT64_MAX : g->clock + samples;
}

void gossip__count_samples(struct gossip *g, struct member *m, uint64_t samples)
{
	if (samples <= m->samples)
		return;
	add_to_clock(g, samples - m->samples);
	m->samples = samples;
}

void gossip__depart(struct gossip *g, const struct gossip_departed *d)
{
	if (d->samples == 0 || d->samples > GOSSIP_SAMPLES_MAX ||
	        peer_id_equal(&d->id, &g->config.self))
		return;
	retire(g, &d->id, d->samples);
	add_to_clock(g, d->samples);
}

/* ---- states */

static void set_state(struct gossip *g, uint32_t i, enum member_state s)
{
	struct member *m = &g->members[i];
	g->n_state[m->state]--;
	g->n_state[s]++;
	m->state = (uint8_t)s;
	m->since = g->now;
}

/* The member that has been dead or gone for the longest time, or NONE. */
static uint32_t oldest_absent(const struct gossip *g)
{
	uint32_t best = NONE;
	for (uint32_t i = 0; i < g->n_members; i++)
		if (!gossip__present(&g->members[i]) &&
		        (best == NONE || g->members[i].since < g->members[best].since))
			best = i;
	return best;
}

/* Forgets a member; its samples stay in the clock. */
static void evict(struct gossip *g, uint32_t i)
{
	struct member *m = &g->members[i];
	if (m->samples > 0)
		retire(g, &m->record.id, m->samples);
	gossip__unqueue(g, i);
	table_remove(g, i);
	g->n_state[m->state]--;
	g->counters.evicted++;
}

/* Samples of an unknown id that the clock has already. An id that was dropped cannot be told from a
 * newcomer, so once ids have been dropped, the first claim of either counts as known already. */
static uint64_t counted_before(const struct gossip *g, const struct member_record *r)
{
	const struct retired *known = find_retired(g, &r->id);
	if (known)
		return known->samples;
	return g->folded && r->status.model == g->status.model ? r->status.samples : 0;
}

/* A slot for a newcomer, or NONE. No member is forgotten for one that is known by hearsay only:
 * else the forgotten dead would return with every peer's whole state and push out others. */
static uint32_t add_member(struct gossip *g, const struct member_record *r, bool hearsay)
{
	uint32_t i = g->n_members;
	if (i == g->members_max && hearsay)
		return NONE;
	if (i == g->members_max) {
		i = oldest_absent(g);
		if (i == NONE) {
			g->counters.refused++;
			gossip__notice(g, NOTICE_REFUSED, &r->id, 0);
			return NONE;
		}
		evict(g, i);
	} else {
		g->n_members++;
	}
	struct member *m = &g->members[i];
	memset(m, 0, sizeof *m);
	g->sketches[i].length = 0;
	m->record.id = r->id;
	m->news = NEWS_NONE;
	m->since = g->now;
	m->state = MEMBER_ALIVE;
	m->samples = counted_before(g, r);
	g->n_state[MEMBER_ALIVE]++;
	table_add(g, i);
	gossip__probe_add(g, i);
	return i;
}

/* ---- records */

/* The accused has refuted: ignore its accusers about it for a while. Our own probes still count. */
static void refute_accusers(struct gossip *g, struct member *m)
{
	for (uint32_t i = 0; i < m->n_accusers; i++)
		if (!peer_id_equal(&m->accuser[i], &g->config.self))
			m->refuted[m->next_refuted++ % GOSSIP_REFUTED] =
			        (struct refuted){id_key(&m->accuser[i]), g->now};
	m->n_accusers = 0;
}

static int compare_records(const struct member_record *a, const struct member_record *b)
{
	if (a->generation != b->generation)
		return a->generation > b->generation ? 1 : -1;
	if (a->incarnation != b->incarnation)
		return a->incarnation > b->incarnation ? 1 : -1;
	return (a->version > b->version) - (a->version < b->version);
}

/* The record comes from a process that lost its generation, or that shares its key with another. */
static bool is_lost(const struct member *m, const struct member_record *r)
{
	return r->nonce != m->record.nonce && r->generation <= m->record.generation;
}

bool gossip__wants_record(const struct gossip *g, const struct member_record *r)
{
	const struct member *self = &g->members[g->members_max];
	if (r->status.samples > GOSSIP_SAMPLES_MAX || r->addrs.n > MEMBER_ADDRS_MAX)
		return false;
	if (peer_id_equal(&r->id, &self->record.id))
		return r->nonce != self->record.nonce && r->generation >= self->record.generation;
	uint32_t i = gossip__find(g, &r->id);
	if (i == NONE)
		return true;
	const struct member *m = &g->members[i];
	if (is_lost(m, r))
		return g->now - m->told_at >= TELL_INTERVAL;
	/* Of the dead too: it need not revive them, but their last sample count matters. */
	return compare_records(r, &m->record) > 0;
}

/* A record of our own id that we did not write. Either we lost our generation in a restart, or
 * another process uses our key; only the latter answers a raised generation with its own. */
static void meet_ourselves(struct gossip *g, const struct member_record *r)
{
	struct member *self = gossip__self(g);
	struct stranger *slot = &g->stranger[0];
	if (r->nonce == self->record.nonce || r->generation < self->record.generation)
		return;
	bool alive = false;
	for (int i = 0; i < STRANGERS; i++) {
		struct stranger *x = &g->stranger[i];
		if (x->nonce == r->nonce) {
			alive = r->generation > x->generation; /* it answered our raise */
			slot = x;
			break;
		}
		if (x->generation < slot->generation)
			slot = x;
	}
	if (alive) {
		if (g->now - g->raised_at < RAISE_INTERVAL)
			return;
		gossip__notice(g, NOTICE_SAME_KEY, &r->id, r->generation);
	}
	*slot = (struct stranger){r->nonce, r->generation};
	if (r->status.samples > g->samples_before + g->status.samples && !alive)
		g->samples_before = r->status.samples - g->status.samples;
	if (r->generation == UINT64_MAX)
		return; /* no honest process counts that far, and it cannot be raised */
	self->record.generation = r->generation + 1;
	self->record.incarnation = 1;
	self->record.version = 0;
	g->raised_at = g->now;
	g->status_pending = true;
	gossip__publish(g);
	gossip__queue(g, g->members_max, NEWS_CHANGE);
	gossip__notice(g, NOTICE_GENERATION, &r->id, self->record.generation);
}

/* Sends a member its own record as we know it, to the address that it claims: it may hear of it
 * from nobody else. */
static void tell(struct gossip *g, uint32_t i, const struct peer_addrs *at, uint8_t channel)
{
	struct member *m = &g->members[i];
	struct gossip_send *s = gossip__send(g, MESSAGE_GOSSIP, channel);
	m->told_at = g->now;
	if (!s)
		return;
	gossip__send_to(s, &m->record.id, at);
	gossip__put_record(g, &s->message, i);
}

static bool contact_changed(const struct member_record *a, const struct member_record *b)
{
	for (int i = 0; a->addrs.n == b->addrs.n && i < a->addrs.n; i++)
		if (!peer_addr_equal(&a->addrs.at[i], &b->addrs.at[i]))
			return true;
	return a->addrs.n != b->addrs.n || a->dialable != b->dialable ||
	       a->protocol_min != b->protocol_min || a->protocol_max != b->protocol_max;
}

void gossip__record(struct gossip *g, const struct gossip_update *u, const struct peer_id *from,
        const struct peer_addr *address, uint8_t channel, bool whole_state)
{
	const struct member_record *r = &u->record;
	if (!gossip__wants_record(g, r))
		return;
	if (peer_id_equal(&r->id, &g->config.self)) {
		meet_ourselves(g, r);
		return;
	}
	uint32_t i = gossip__find(g, &r->id);
	bool fresh = i == NONE;
	bool hearsay = whole_state && !peer_id_equal(from, &r->id);
	if (fresh && (i = add_member(g, r, hearsay)) == NONE)
		return;
	struct member *m = &g->members[i];
	if (!fresh && is_lost(m, r)) {
		bool itself = peer_id_equal(from, &r->id);
		struct peer_addrs at = {address->family != 0, {*address}};
		if (!itself)
			at = gossip__usable(r, 0);
		tell(g, i, &at, itself ? channel : CHANNEL_STREAM);
		return;
	}
	bool was_present = !fresh && gossip__present(m);
	bool anew = fresh || m->forbidden || r->generation > m->record.generation ||
	            r->incarnation > m->record.incarnation;
	bool moved = fresh || contact_changed(r, &m->record);
	m->forbidden = false;
	if (anew && m->state != MEMBER_ALIVE)
		set_state(g, i, MEMBER_ALIVE);
	if (anew) {
		if (m->n_accusers > 0 && !m->connected)
			m->met = false; /* leave probing it to others */
		refute_accusers(g, m);
		m->hearsay = hearsay && (fresh || m->hearsay);
	}
	gossip__replace_record(m, r);
	m->heard = g->now;
	m->record_raw = u->raw;
	/* Samples of another run or model are not part of this run's clock. */
	if (r->status.model == g->status.model)
		gossip__count_samples(g, m, r->status.samples);
	if (r->left && m->state != MEMBER_LEFT)
		set_state(g, i, MEMBER_LEFT);
	if (gossip__present(m) && !was_present)
		gossip__notice(g, NOTICE_JOINED, &r->id, 0);
	else if (was_present && m->state == MEMBER_LEFT)
		gossip__notice(g, NOTICE_LEFT, &r->id, 0);
	else if (was_present && moved)
		gossip__notice(g, NOTICE_UPDATED, &r->id, 0);
	gossip__queue(g, i, anew || moved || r->left ? NEWS_CHANGE : NEWS_STATUS);
	m->record_news = m->state == MEMBER_SUSPECT || m->state == MEMBER_DEAD;
}

/* The samples counted so far stay in the clock, which never falls; later ones do not count. */
void gossip__forbid(struct gossip *g, const struct peer_id *id)
{
	uint32_t i = gossip__find(g, id);
	if (i == NONE || g->members[i].forbidden)
		return;
	struct member *m = &g->members[i];
	gossip__unqueue(g, i);
	g->sketches[i].length = 0;
	m->forbidden = true;
	m->n_accusers = 0;
	m->unreachable = false;
	if (m->state == MEMBER_DEAD)
		return;
	set_state(g, i, MEMBER_DEAD);
	gossip__notice(g, NOTICE_FAILED, id, 0);
}

/* ---- accusations */

/* How many more accusers shorten a suspicion all the way (Lifeguard's k). */
static uint32_t accusers_wanted(const struct gossip *g)
{
	uint32_t k = g->config.profile.suspicion_mult - 2, n = gossip__n_present(g) + 1;
	return n < k + 2 ? 0 : k < GOSSIP_ACCUSERS - 1 ? k : GOSSIP_ACCUSERS - 1;
}

/* From the longest time with one accuser down to the shortest with k + 1, by the logarithm of their
 * number (Lifeguard, section IV-B). */
static uint64_t suspicion_ms(const struct gossip *g, uint32_t accusers)
{
	const struct gossip_profile *p = &g->config.profile;
	double scale = gossip__log10_flock(g, 1);
	double least = (double)p->suspicion_mult * (scale > 1 ? scale : 1) * p->probe_interval;
	double most = least * p->suspicion_max_mult;
	uint32_t k = accusers_wanted(g), more = accusers - 1;
	if (k == 0)
		return (uint64_t)least;
	double t = most - log((double)more + 1) / log((double)k + 1) * (most - least);
	return (uint64_t)(t > least ? t : least);
}

static bool was_refuted(const struct gossip *g, const struct member *m, const struct peer_id *by)
{
	for (int k = 0; k < GOSSIP_REFUTED; k++)
		if (m->refuted[k].key == id_key(by) && g->now - m->refuted[k].at < REFUTED_MS)
			return true;
	return false;
}

static bool is_accuser(const struct member *m, const struct peer_id *id)
{
	for (uint32_t i = 0; i < m->n_accusers; i++)
		if (peer_id_equal(&m->accuser[i], id))
			return true;
	return false;
}

void gossip__certify(struct gossip *g, const struct gossip_event *e)
{
	const struct peer_id *id = &e->certified.id;
	struct member *self = &g->members[g->members_max];
	uint32_t i = gossip__find(g, id);
	struct member *m = peer_id_equal(id, &self->record.id) ? self
	                   : i == NONE                         ? NULL
	                                                       : &g->members[i];
	if (m) {
		m->label = e->certified.label;
		m->rate = e->certified.rate;
		m->agents = e->certified.agents;
	}
}

static uint64_t label_of(const struct gossip *g, const struct peer_id *id)
{
	const struct member *self = &g->members[g->members_max];
	uint32_t i = gossip__find(g, id);
	return peer_id_equal(id, &self->record.id) ? self->label
	       : i == NONE                         ? 0
	                                           : g->members[i].label;
}

uint64_t gossip_label(const struct gossip *g)
{
	return g->members[g->members_max].label;
}

/* With one label in the flock its agents count singly. */
bool gossip_many_labels(const struct gossip *g)
{
	uint64_t ours = gossip_label(g);
	for (uint32_t i = 0; i < g->n_members; i++)
		if (gossip__present(&g->members[i]) && g->members[i].label != ours)
			return true;
	return false;
}

/* Agents of one label are one voice: whoever has an invite has all of them. */
static bool label_accuses(const struct gossip *g, const struct member *m, const struct peer_id *by)
{
	uint64_t label = label_of(g, by);
	if (label == 0 || !gossip_many_labels(g))
		return false;
	for (uint32_t i = 0; i < m->n_accusers; i++)
		if (label_of(g, &m->accuser[i]) == label)
			return true;
	return false;
}

bool gossip__wants_accusation(const struct gossip *g, const struct accusation *a)
{
	const struct member *self = &g->members[g->members_max];
	if (peer_id_equal(&a->about, &self->record.id))
		return !g->left && a->generation == self->record.generation &&
		       a->incarnation == self->record.incarnation;
	if (peer_id_equal(&a->by, &a->about))
		return false; /* nobody accuses itself */
	bool ours = peer_id_equal(&a->by, &self->record.id);
	uint32_t i = gossip__find(g, &a->about);
	if (i == NONE || (!ours && gossip__find(g, &a->by) == NONE))
		return false; /* an unknown accuser may be anybody's invention */
	const struct member *m = &g->members[i];
	/* Our own from elsewhere are ignored, unless an earlier process of ours made them. */
	if (ours && (!m->hearsay || !gossip__present(m)))
		return false;
	/* Accept only the incarnation that the accused has signed: a liar who could accuse a later
	 * one would put it out of the owner's reach. If we are behind, it will come again. */
	if (a->generation != m->record.generation || a->incarnation != m->record.incarnation)
		return false;
	if (was_refuted(g, m, &a->by))
		return false;
	if (m->state == MEMBER_SUSPECT)
		return (a->dead && !m->said_dead) ||
		       (m->n_accusers <= accusers_wanted(g) && !is_accuser(m, &a->by) &&
		               !label_accuses(g, m, &a->by));
	if (m->state == MEMBER_DEAD)
		return !a->dead && g->now - m->told_at >= TELL_INTERVAL; /* so that we tell it */
	return m->state == MEMBER_ALIVE;
}

/* raw is NULL for one of our own. */
static void keep_accusation(
        struct member *m, const struct accusation *a, const struct signed_bytes *raw)
{
	m->accusation = *a;
	m->accusation_ours = !raw;
	m->accusation_raw = raw ? *raw : (struct signed_bytes){0};
}

static void suspect(
        struct gossip *g, uint32_t i, const struct accusation *a, const struct signed_bytes *raw)
{
	struct member *m = &g->members[i];
	if (m->state == MEMBER_ALIVE) {
		set_state(g, i, MEMBER_SUSPECT);
		m->suspect_since = g->now;
		m->said_dead = false;
		m->n_accusers = 0;
		gossip__notice(g, NOTICE_SUSPECT, &m->record.id, 0);
	}
	/* Our own probe is no hearsay: it counts whatever our label has said. */
	if (m->n_accusers < GOSSIP_ACCUSERS && !is_accuser(m, &a->by) &&
	        (!raw || !label_accuses(g, m, &a->by)))
		m->accuser[m->n_accusers++] = a->by;
	m->said_dead |= a->dead;
	m->suspect_until =
	        m->suspect_since + suspicion_ms(g, m->said_dead ? GOSSIP_ACCUSERS : m->n_accusers);
	if (m->suspect_until < g->suspects_at)
		g->suspects_at = m->suspect_until;
	keep_accusation(m, a, raw);
	gossip__queue(g, i, NEWS_CHANGE);
}

static void declare_dead(
        struct gossip *g, uint32_t i, const struct accusation *a, const struct signed_bytes *raw)
{
	struct member *m = &g->members[i];
	keep_accusation(m, a, raw);
	set_state(g, i, MEMBER_DEAD);
	m->unreachable = false;
	m->misses = 0;
	gossip__queue(g, i, NEWS_CHANGE);
	gossip__notice(g, NOTICE_FAILED, &m->record.id, 0);
}

static void refute(struct gossip *g, const struct accusation *a)
{
	struct member *self = gossip__self(g);
	self->record.incarnation++;
	self->record.version++;
	gossip__queue(g, g->members_max, NEWS_CHANGE);
	if (g->health < GOSSIP_HEALTH_MAX)
		g->health++; /* we were not heard in time: we may be the slow one */
	g->counters.refutations++;
	gossip__notice(g, NOTICE_REFUTED, &a->by, a->incarnation);
}

/* Tells an accuser that the member is dead here already: alone it would wait long for others to
 * confirm its suspicion. */
static void tell_dead(struct gossip *g, uint32_t i, uint32_t accuser)
{
	const struct member *to = &g->members[accuser];
	struct gossip_send *s = gossip__send(
	        g, MESSAGE_GOSSIP, to->record.dialable ? CHANNEL_DATAGRAM : CHANNEL_STREAM);
	g->members[i].told_at = g->now;
	if (!s)
		return;
	gossip__send_member(s, to);
	gossip__put_accusation(g, &s->message, i);
}

void gossip__accuse(struct gossip *g, const struct gossip_update *u, bool whole_state)
{
	struct accusation a = u->accusation;
	if (!gossip__wants_accusation(g, &a))
		return;
	if (peer_id_equal(&a.about, &g->config.self)) {
		refute(g, &a);
		return;
	}
	uint32_t i = gossip__find(g, &a.about);
	if (g->members[i].state == MEMBER_DEAD) {
		tell_dead(g, i, gossip__find(g, &a.by));
		return;
	}
	/* A member that is dead elsewhere may be alive here, so it gets its time to refute, unless
	 * we never saw it alive: a newcomer takes the tombstones of others as they are. */
	if (a.dead && whole_state && g->members[i].hearsay)
		declare_dead(g, i, &a, &u->raw);
	else
		suspect(g, i, &a, &u->raw);
}

static struct accusation own_accusation(const struct gossip *g, const struct member *m, bool dead)
{
	return (struct accusation){.about = m->record.id,
	        .generation = m->record.generation,
	        .incarnation = m->record.incarnation,
	        .by = g->config.self,
	        .dead = dead};
}

void gossip__suspect(struct gossip *g, uint32_t i)
{
	struct member *m = &g->members[i];
	if (!gossip__present(m) || is_accuser(m, &g->config.self))
		return;
	struct accusation a = own_accusation(g, m, false);
	suspect(g, i, &a, NULL);
}

void gossip__expire_suspects(struct gossip *g)
{
	if (g->now < g->suspects_at)
		return;
	g->suspects_at = NEVER;
	for (uint32_t i = 0; i < g->n_members && g->n_state[MEMBER_SUSPECT] > 0; i++) {
		struct member *m = &g->members[i];
		if (m->state != MEMBER_SUSPECT)
			continue;
		if (g->now >= m->suspect_until) {
			struct accusation a = own_accusation(g, m, true);
			declare_dead(g, i, &a, NULL);
		} else if (m->suspect_until < g->suspects_at) {
			g->suspects_at = m->suspect_until;
		}
	}
}
