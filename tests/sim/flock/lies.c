/* SPDX-License-Identifier: MIT */
/* Lies, each a small function: of a message on its way out, of records and sketches, of parameters,
 * of what is not done, and of what nobody asked for. A liar's own core knows nothing of it. */
#include "tests/sim/flock/byzantine.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ACTS 0.05 /* chance at each of its steps */

bool byz_wants(struct fsim *w, int i, enum byz_lie lie, double chance)
{
	if (!byz_lies(w, i, lie) || !world_chance(w, chance))
		return false;
	w->lied[lie]++;
	return true;
}

static void remember(
        struct fsim *w, uint64_t exchange, enum byz_lie lie, const struct exchange_terms *t)
{
	struct byz_offer *o = &w->offer[w->n_offers++ % BYZ_OFFERS];
	*o = (struct byz_offer){exchange, (uint8_t)lie, t->mode, t->final, t->beta};
}

static const struct byz_offer *find(const struct fsim *w, uint64_t exchange)
{
	for (int k = 0; k < BYZ_OFFERS; k++)
		if (w->offer[k].exchange == exchange && exchange != 0)
			return &w->offer[k];
	return NULL;
}

enum byz_lie byz_offered(const struct fsim *w, uint64_t exchange)
{
	const struct byz_offer *o = find(w, exchange);
	return o ? (enum byz_lie)o->lie : BYZ_LIES;
}

/* ---- messages */

/* Somewhere else: mirrored, or far out. */
static void twist(struct fsim *w, uint8_t *bytes, uint16_t length)
{
	struct sketch s;
	if (!sketch_unpack(&s, bytes, length))
		return;
	float by = world_chance(w, 0.5) ? -1.0f : 8.0f;
	for (int k = 0; k < SKETCH_BUCKETS; k++)
		s.bucket[k] *= by;
	sketch_pack(&s, bytes);
}

/* One of these in an offer, so that it is known which was taken. */
static void dictate(struct fsim *w, int from, struct exchange_message *m)
{
	struct exchange_terms *t = &m->terms, was = *t;
	enum byz_lie lie = BYZ_LIES;
	if (byz_wants(w, from, BYZ_MODE, 0.3)) {
		lie = BYZ_MODE;
		t->mode = world_chance(w, 0.5) ? EXCHANGE_PUSH : EXCHANGE_PULL;
	} else if (byz_wants(w, from, BYZ_BETA, 0.3)) {
		lie = BYZ_BETA;
		t->beta = 1;
	} else if (!t->final && byz_wants(w, from, BYZ_FINAL, 0.3)) {
		lie = BYZ_FINAL;
		t->final = true;
		t->format = 0;
	} else if (byz_wants(w, from, BYZ_NO_SKETCH, 0.3)) {
		lie = BYZ_NO_SKETCH;
		t->sketch_length = 0;
	}
	if (lie != BYZ_LIES)
		remember(w, m->exchange, lie, &was);
}

static void refuse(struct exchange_message *m, uint8_t why)
{
	uint64_t exchange = m->exchange;
	memset(m, 0, sizeof *m);
	m->kind = EXCHANGE_BUSY;
	m->exchange = exchange;
	m->busy.why = why;
}

void byz_message(struct fsim *w, int from, struct exchange_message *m)
{
	bool terms = m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT;
	if (!byz_is_liar(w, from))
		return;
	if (terms && byz_wants(w, from, BYZ_CLOCK, 0.5))
		m->terms.clock += w->total;
	if (terms && byz_wants(w, from, BYZ_SAMPLES, 0.5))
		m->terms.samples += w->total;
	if (terms && byz_wants(w, from, BYZ_SKETCH, 0.5))
		twist(w, m->terms.sketch, m->terms.sketch_length);
	if (m->kind == EXCHANGE_OFFER)
		dictate(w, from, m);
	if (m->kind == EXCHANGE_ACCEPT && byz_wants(w, from, BYZ_ANSWER_STALE, 0.3))
		refuse(m, EXCHANGE_STALE);
	else if (m->kind == EXCHANGE_ACCEPT && byz_wants(w, from, BYZ_ANSWER_APART, 0.3))
		refuse(m, EXCHANGE_APART);
	if (m->kind == EXCHANGE_SETTLE && byz_wants(w, from, BYZ_SETTLE, 0.7))
		m->settlement = (uint8_t)world_between(w, SETTLE_UNKNOWN, SETTLE_APPLIED);
	if ((m->kind == EXCHANGE_COMMIT || m->kind == EXCHANGE_ACK) &&
	        byz_wants(w, from, BYZ_SETTLE, 0.2)) {
		m->kind = EXCHANGE_SETTLE;
		m->settlement = (uint8_t)world_between(w, SETTLE_UNKNOWN, SETTLE_APPLIED);
	}
	if (m->kind == EXCHANGE_GIFT && byz_wants(w, from, BYZ_RADIUS, 0.7))
		for (int k = 0; k <= EXCHANGE_GROUPS_MAX; k++)
			m->gift.radius[k] = FLT_MAX;
}

/* A liar's core would notice that it has not offered what is accepted. */
void byz_heard(struct fsim *w, int to, struct exchange_message *m)
{
	const struct byz_offer *o = find(w, m->exchange);
	if (m->kind != EXCHANGE_ACCEPT || !o || !byz_is_liar(w, to))
		return;
	m->terms.mode = o->mode;
	m->terms.final = o->final;
	m->terms.beta = o->beta;
}

/* ---- membership */

void byz_gossip(struct fsim *w, int from, struct gossip_message *m)
{
	if (!byz_is_liar(w, from))
		return;
	for (int k = 0; k < m->n_updates; k++)
		if (m->update[k].kind == UPDATE_RECORD &&
		        world_find(w, &m->update[k].record.id) == from &&
		        byz_wants(w, from, BYZ_SAMPLES, 1))
			m->update[k].record.status.samples += w->total;
	if (m->kind == MESSAGE_SKETCH && world_find(w, &m->sketch.id) == from &&
	        byz_wants(w, from, BYZ_SKETCH, 0.5))
		twist(w, m->sketch.bytes, m->sketch.length);
}

static void accuse(struct fsim *w, int from, int to, int about)
{
	struct member_view v;
	struct gossip_send s = {.to_id = true,
	        .id = w->agent[to].id,
	        .channel = CHANNEL_STREAM,
	        .message = {.kind = MESSAGE_SYNC, .n_updates = 1}};
	const struct gossip *g = flock_membership(w->agent[from].core);
	if (!gossip_find(g, &w->agent[about].id, &v))
		return;
	s.message.update[0].kind = UPDATE_ACCUSATION;
	s.message.update[0].accusation = (struct accusation){.about = w->agent[about].id,
	        .generation = v.record.generation,
	        .incarnation = v.record.incarnation,
	        .by = w->agent[from].id,
	        .dead = world_chance(w, 0.7)};
	world_gossip(w, from, &s);
}

/* ---- parameters */

/* Just within what is not clipped, always in the same direction. */
static void pull(struct fsim *w, int from, struct fsim_conn *c)
{
	struct flock_view v;
	flock_view(w->agent[from].core, &v);
	double by = 0.9 * v.radius / sqrt((double)w->params);
	for (uint64_t p = 0; p < c->n_data; p++)
		c->data[p] += (float)(w->elsewhere[p] > 0 ? by : -by);
}

void byz_data(struct fsim *w, int from, struct fsim_conn *c)
{
	bool state = c->how.use != USE_EXCHANGE;
	if (!byz_is_liar(w, from) || c->n_data == 0)
		return;
	if (state && byz_wants(w, from, BYZ_DONOR, 0.8)) {
		float value = world_chance(w, 0.3) ? 0 : world_chance(w, 0.3) ? 1e25f : 4;
		for (uint64_t p = 0; p < c->n_data; p++)
			c->data[p] = world_chance(w, 0.5) ? value : -value;
		c->tag |= BYZ_STATE;
	} else if (!state && byz_wants(w, from, BYZ_NAN, 0.2))
		c->data[rng_below(&w->rng, c->n_data)] = NAN;
	else if (!state && byz_wants(w, from, BYZ_FAR, 0.5)) {
		bool nowhere = world_chance(w, 0.3); /* else nobody can say that it lies */
		for (uint64_t p = 0; p < c->n_data; p++)
			c->data[p] = (nowhere ? 0 : c->data[p]) +
			             (nowhere ? 4.0f : 0.6f) * (w->elsewhere[p] > 0 ? 1 : -1);
	} else if (!state && byz_wants(w, from, BYZ_PULL, 1))
		pull(w, from, c);
}

/* ---- what is not done, and what nobody asked for */

bool byz_withholds(struct fsim *w, int i, const struct flock_action *a)
{
	return a->kind == FLOCK_DO_OPEN && byz_wants(w, i, BYZ_STALL, 0.8);
}

static int somebody(struct fsim *w, int not )
{
	int k = (int)rng_below(&w->rng, (uint64_t)w->n);
	return k == not || byz_is_liar(w, k) || !w->agent[k].alive ? -1 : k;
}

/* Whom it accuses: always the same one. */
static int victim_of(const struct fsim *w, int i)
{
	int k = (i + 1) % w->n;
	while (byz_is_liar(w, k))
		k = (k + 1) % w->n;
	return k;
}

static void say(struct fsim *w, int from, int to, uint8_t kind, uint8_t why)
{
	struct exchange_message m = {.kind = kind, .exchange = rng_u64(&w->rng) | 1};
	if (kind == EXCHANGE_BUSY)
		m.busy.why = why;
	else
		m.fetch.manifest = w->manifest;
	world_inject(w, from, to, &m);
}

void byz_acts(struct fsim *w, int i)
{
	int to = somebody(w, i), about = victim_of(w, i);
	if (!byz_is_liar(w, i) || !w->agent[i].alive || to < 0)
		return;
	if (byz_wants(w, i, BYZ_BUSY_STALE, ACTS))
		say(w, i, to, EXCHANGE_BUSY, EXCHANGE_STALE);
	if (byz_wants(w, i, BYZ_BUSY_APART, ACTS))
		say(w, i, to, EXCHANGE_BUSY, EXCHANGE_APART);
	if (byz_wants(w, i, BYZ_FETCHES, ACTS))
		say(w, i, to, EXCHANGE_FETCH, 0);
	if (about != to && byz_wants(w, i, BYZ_ACCUSE, 4 * ACTS))
		accuse(w, i, to, about);
}
