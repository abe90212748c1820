/* SPDX-License-Identifier: MIT */
/* News. A member has at most one thing to tell of it, the newest, so being queued is a property of
 * the member: a class, and how often it was sent. Each (class, count) is a list, newest first, so
 * what was sent least goes first, and picking costs nothing however large the flock.
 *
 *     change:  [0] ● ─ ● ─ ●   [1] ●   [2] …  [limit − 1]    then forgotten
 *     status:  [0] ● ─ ●       [1] …
 *
 * The limit is memberlist's 4·ceil(log10(n + 1)) for a change. A status is replaced by a newer one
 * soon anyway: it gets half of that, and room that is left over. */
#include "gossip/membership/gossip_internal.h"

#include <math.h>

/* What an encoder needs at most (a bound that its tests hold it to) for what is ours, and for
 * others' that have no more fields than ours. */
#define HEADER_BYTES 160
#define RECORD_BYTES(addresses) (197u + 20u * (addresses)) /* of IPv6 */
#define ACCUSATION_BYTES 160
#define SKETCH_EXTRA_BYTES 140

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static size_t record_bytes(const struct member_record *r, const struct signed_bytes *raw)
{
	size_t n = RECORD_BYTES(r->addrs.n);
	for (int i = 0; i < r->addrs.n; i++)
		n -= r->addrs.at[i].family == 4 ? 12 : 0;
	return larger(n, raw->length);
}

static size_t accusation_bytes(const struct signed_bytes *raw)
{
	return larger(ACCUSATION_BYTES, raw->length);
}

size_t gossip_message_bytes(const struct gossip_message *m)
{
	size_t n = HEADER_BYTES;
	for (int i = 0; i < m->n_updates; i++) {
		const struct gossip_update *u = &m->update[i];
		n += u->kind == UPDATE_RECORD ? record_bytes(&u->record, &u->raw)
		                              : accusation_bytes(&u->raw);
	}
	if (m->kind == MESSAGE_SKETCH)
		n += m->sketch.length + (size_t)SKETCH_EXTRA_BYTES;
	return n;
}

_Static_assert(HEADER_BYTES + 4 * RECORD_BYTES(2) <= GOSSIP_DATAGRAM_BYTES, "a datagram of news");
_Static_assert(HEADER_BYTES + 3 * GOSSIP_UPDATE_BYTES <= GOSSIP_DATAGRAM_BYTES,
        "a datagram of news that is as long as it may be");
_Static_assert(RECORD_BYTES(MEMBER_ADDRS_MAX) <= GOSSIP_UPDATE_BYTES, "our own fits");

void gossip__queue_init(struct gossip *g)
{
	for (int c = 0; c < NEWS_CLASSES; c++)
		for (int t = 0; t < GOSSIP_TRANSMITS_MAX; t++)
			g->queue_head[c][t] = NONE;
}

static uint32_t limit(const struct gossip *g, enum news n)
{
	uint32_t digits = (uint32_t)ceil(gossip__log10_flock(g, 2)); /* us, and n + 1 */
	uint32_t most = g->config.profile.retransmit_mult * digits;
	if (n == NEWS_STATUS)
		most = most / 2 + 1;
	return most < GOSSIP_TRANSMITS_MAX ? most : GOSSIP_TRANSMITS_MAX;
}

static void unlink_member(struct gossip *g, uint32_t i)
{
	struct member *m = &g->members[i];
	if (m->queue_prev != NONE)
		g->members[m->queue_prev].queue_next = m->queue_next;
	else
		g->queue_head[m->news][m->transmits] = m->queue_next;
	if (m->queue_next != NONE)
		g->members[m->queue_next].queue_prev = m->queue_prev;
}

static void link_member(struct gossip *g, uint32_t i)
{
	struct member *m = &g->members[i];
	uint32_t *head = &g->queue_head[m->news][m->transmits];
	m->queue_prev = NONE;
	m->queue_next = *head;
	if (*head != NONE)
		g->members[*head].queue_prev = i;
	*head = i;
}

void gossip__unqueue(struct gossip *g, uint32_t i)
{
	struct member *m = &g->members[i];
	if (m->news == NEWS_NONE)
		return;
	unlink_member(g, i);
	g->n_queued[m->news]--;
	m->news = NEWS_NONE;
	m->record_news = false;
}

void gossip__queue(struct gossip *g, uint32_t i, enum news n)
{
	struct member *m = &g->members[i];
	if (n == NEWS_STATUS && m->news == NEWS_CHANGE)
		n = NEWS_CHANGE; /* it goes out with the change, from the start again */
	gossip__unqueue(g, i);
	m->news = (uint8_t)n;
	m->transmits = 0;
	g->n_queued[n]++;
	link_member(g, i);
}

void gossip__put_record(const struct gossip *g, struct gossip_message *m, uint32_t i)
{
	struct gossip_update *u = &m->update[m->n_updates++];
	u->kind = UPDATE_RECORD;
	u->ours = i == g->members_max;
	u->record = g->members[i].record;
	u->raw = g->members[i].record_raw;
}

void gossip__put_accusation(const struct gossip *g, struct gossip_message *m, uint32_t i)
{
	if (g->members[i].forbidden)
		return; /* nobody has accused it */
	struct gossip_update *u = &m->update[m->n_updates++];
	u->kind = UPDATE_ACCUSATION;
	u->ours = g->members[i].accusation_ours;
	u->accusation = g->members[i].accusation;
	u->raw = g->members[i].accusation_raw;
}

static bool accused(const struct member *m)
{
	return m->state == MEMBER_SUSPECT || m->state == MEMBER_DEAD;
}

void gossip__piggyback(struct gossip *g, struct gossip_message *m, const struct peer_id *to)
{
	uint32_t sent[GOSSIP_UPDATES_MAX];
	int n = 0;
	for (int c = 0; c < NEWS_CLASSES; c++) {
		uint32_t most = limit(g, (enum news)c), left = g->n_queued[c];
		for (uint32_t t = 0; t < GOSSIP_TRANSMITS_MAX && left > 0; t++) {
			for (uint32_t i = g->queue_head[c][t], next; i != NONE; i = next) {
				struct member *x = &g->members[i];
				size_t room = GOSSIP_DATAGRAM_BYTES - gossip_message_bytes(m);
				size_t record = record_bytes(&x->record, &x->record_raw);
				size_t accusation = accusation_bytes(&x->accusation_raw);
				size_t need = accused(x) ? larger(accusation, record) : record;
				next = x->queue_next;
				left--;
				if (t >= most) { /* the flock shrank */
					gossip__unqueue(g, i);
					continue;
				}
				if (m->n_updates == GOSSIP_UPDATES_MAX || room < need)
					goto full;
				if (accused(x)) {
					gossip__put_accusation(g, m, i);
					room -= accusation;
					if (x->record_news && room >= record &&
					        m->n_updates < GOSSIP_UPDATES_MAX)
						gossip__put_record(g, m, i);
				} else if (to && peer_id_equal(&x->record.id, to))
					continue;
				else
					gossip__put_record(g, m, i);
				sent[n++] = i;
			}
		}
	}
full:
	/* Counted afterwards, or the walk would meet them again one list further on. */
	for (int k = 0; k < n; k++) {
		struct member *x = &g->members[sent[k]];
		unlink_member(g, sent[k]);
		x->transmits++;
		if (x->transmits < limit(g, (enum news)x->news)) {
			link_member(g, sent[k]);
		} else {
			g->n_queued[x->news]--;
			x->news = NEWS_NONE;
			x->record_news = false;
		}
	}
}

/* Those who can use a datagram from us, also the freshly dead: one that is not will want to know
 * what is said of it. */
static bool hears(const struct gossip *g, const struct member *m)
{
	if (m->state == MEMBER_LEFT || m->forbidden || (!m->record.dialable && !m->connected))
		return false;
	if (m->state == MEMBER_DEAD)
		return g->now - m->since < g->config.profile.sync_interval;
	return !m->unreachable || m->connected;
}

void gossip__spread(struct gossip *g)
{
	uint32_t targets = g->n_queued[NEWS_CHANGE] > 0 ? g->config.profile.gossip_fanout : 1;
	for (uint32_t k = 0; k < targets; k++) {
		if (g->n_queued[NEWS_CHANGE] + g->n_queued[NEWS_STATUS] == 0)
			return;
		uint32_t i = gossip__pick(g, hears);
		if (i == NONE)
			return;
		struct member *m = &g->members[i];
		struct gossip_send *s = gossip__send(
		        g, MESSAGE_GOSSIP, m->record.dialable ? CHANNEL_DATAGRAM : CHANNEL_STREAM);
		if (!s)
			return;
		gossip__send_member(s, m);
		gossip__piggyback(g, &s->message, &m->record.id);
		if (s->message.n_updates == 0)
			g->out->n_sends--; /* nothing that it does not know itself */
	}
}
