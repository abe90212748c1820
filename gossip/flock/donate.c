/* SPDX-License-Identifier: MIT */
/* Giving our state to those who join: parameters and the optimizer's vectors, as they were between
 * two steps, in fp32.
 *
 * The happy path: FETCH comes, the learner copies its state (one copy for all who ask while it is
 * fresh; where steps are slow the joiner is told to wait), the answer says what will be sent, the
 * joiner opens a bulk connection, the state goes out. A joiner whose connection broke asks for the
 * rest of the same copy, so then it is kept for a while.
 *
 * What can fail: the joiner goes (its place is freed by the transfer's end or by time), too many
 * ask at once or the upload cap is reached (BUSY), there is no memory for the copy (BUSY). */
#include "gossip/flock/flock_internal.h"

#include <float.h>
#include <string.h>

#define FRESH_MS 15000     /* a copy so old is not given to somebody new */
#define KEEP_MS 60000      /* but kept so long if somebody has a part of it */
#define OPEN_MS 15000      /* from the answer to the connection */
#define TRANSFER_MS 600000 /* of a whole state, at most */
#define TRANSFER_MS_MIN 10000
#define RATE_MIN 4096 /* bytes a second: who takes less lets us wait */
#define KEPT 1        /* places that only peers get with whom we have exchanged */
#define TURN_MS 5000  /* that a joiner keeps its place, whoever else asks */
#define REST_MS 30000 /* after its turn: nobody gives way to it */
#define NEXT_MS 3000  /* that a place is kept for whom another gave way */

static void refuse(struct flock *f, const struct peer_id *to, uint64_t exchange,
        enum exchange_why why, const char *words)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = exchange};
	m.busy.why = (uint8_t)why;
	m.busy.manifest = f->c.manifest;
	for (size_t i = 0; i < EXCHANGE_WORDS_MAX && words[i]; i++)
		m.busy.words[i] = words[i];
	flock__send(f, to, &m);
}

static void announce(struct flock *f, struct flock__donation *g)
{
	const struct flock__donate *d = &f->donate;
	struct exchange_message m = {.kind = EXCHANGE_GIFT, .exchange = g->exchange};
	if (g->offset >= f->c.manifest.count * d->info.vectors)
		g->offset = 0;
	m.gift.manifest = f->c.manifest;
	m.gift.snapshot = d->id;
	m.gift.offset = g->offset;
	m.gift.step = d->info.step;
	m.gift.samples = d->info.samples;
	m.gift.clock = d->info.clock;
	m.gift.optim_steps = d->info.optim_steps;
	m.gift.optimizer = d->info.optimizer;
	m.gift.vectors = d->info.vectors;
	m.gift.batch = d->info.batch;
	if (d->info.noise > 0 && d->info.noise < FLT_MAX && d->info.signal > -FLT_MAX &&
	        d->info.signal < FLT_MAX) {
		m.gift.noise = (float)d->info.noise;
		m.gift.signal = (float)d->info.signal;
	}
	m.gift.n = f->c.n_groups;
	memcpy(m.gift.radius, d->radius, sizeof m.gift.radius);
	g->stage = DONATION_ANNOUNCED;
	g->since_ms = f->now_ms;
	flock__send(f, &g->to, &m);
}

/* The learner copies at the end of its step: who asked would not wait for a slow one. */
static void tell_soon(struct flock *f, const struct flock__donation *g)
{
	uint64_t ms = flock__step_ms(f);
	if (ms == 0)
		return;
	struct exchange_message m = {
	        .kind = EXCHANGE_SOON, .exchange = g->exchange, .step_ms = (uint32_t)ms};
	flock__send(f, &g->to, &m);
}

/* A copy is on its way, or there is one that will do. */
static void have_copy(struct flock *f)
{
	struct flock__donate *d = &f->donate;
	bool read = false;
	for (int i = 0; i < FLOCK_DONATIONS; i++)
		read = read || d->to[i].stage >= DONATION_ANNOUNCED;
	if (d->slot == DONATED_TAKING)
		return;
	/* While somebody reads the old one it serves once more. In a short run little time is a
	 * long way: a joiner would take a copy of its beginning for no model of this flock. */
	bool fresh = f->now_ms - d->at_ms < FRESH_MS && d->info.step >= f->clock.last.step / 2;
	if (d->slot == DONATED_READY && (read || fresh))
		return;
	d->slot = DONATED_TAKING;
	flock__do(f, FLOCK_DO_TAKE_STATE);
}

/* One that joins, or waits for its first step, has nothing that is the flock's. */
static bool gives(const struct flock *f)
{
	bool trained = f->clock.last.step > 0 || f->joined;
	return trained && f->phase >= FLOCK_TRAINING && f->phase < FLOCK_LEAVING &&
	       !flock__joining(f) && !flock__adopted_unproven(f);
}

void flock__donate_state(struct flock *f, const struct flock_state *s)
{
	struct flock__donate *d = &f->donate;
	if (!gives(f)) { /* any more */
		flock__donate_refused(f);
		return;
	}
	d->slot = DONATED_READY;
	d->broke = false;
	d->info = *s;
	d->at_ms = f->now_ms;
	d->id = rng_u64(&f->wire_rng) | 1;
	clip_export(&f->clip, flock__moved(f), d->radius);
	for (int i = 0; i < FLOCK_DONATIONS; i++)
		if (d->to[i].stage == DONATION_WAITING)
			announce(f, &d->to[i]);
}

void flock__donate_refused(struct flock *f)
{
	struct flock__donate *d = &f->donate;
	d->slot = DONATED_NONE;
	flock__do(f, FLOCK_DO_RELEASE)->slot = SLOT_DONATED;
	for (int i = 0; i < FLOCK_DONATIONS; i++)
		if (d->to[i].stage == DONATION_WAITING) {
			d->to[i].stage = DONATION_FREE;
			refuse(f, &d->to[i].to, d->to[i].exchange, EXCHANGE_OTHER,
			        "no copy of the state could be taken");
		}
}

/* Whether somebody has a place for so long that it gives way: it may ask for the rest later. */
static bool give_way(struct flock *f)
{
	struct flock__donation *out = NULL;
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		struct flock__donation *g = &f->donate.to[i];
		bool holds = g->stage == DONATION_ANNOUNCED || g->stage == DONATION_TRANSFER;
		if (holds && f->now_ms - g->since_ms >= TURN_MS &&
		        (!out || g->since_ms < out->since_ms))
			out = g;
	}
	if (!out)
		return false;
	if (out->stage == DONATION_TRANSFER) {
		uint8_t use = (uint8_t)(USE_DONATE + (out - f->donate.to));
		flock__do_bulk(f, FLOCK_DO_CANCEL, use, &out->to, out->exchange);
	} else {
		out->stage = DONATION_FREE;
		partners_given(f->partners, &out->to, f->now_ms);
	}
	return true;
}

/* Strangers, of whom there may be any number, do not get the last place. Where all are taken, who
 * has held one for a while gives way to somebody who had none lately; the newcomer asks again, and
 * finds that place kept for it. So a few that read slowly, over and over, keep nobody out. */
static struct flock__donation *place_or_turn(
        struct flock *f, const struct peer_id *to, struct flock__donation *open, int n_open)
{
	struct flock__donate *d = &f->donate;
	const struct partner *p = partners_find(f->partners, to);
	bool kept = f->now_ms < d->next_ms, next = kept && peer_id_equal(&d->next, to);
	bool known = p && p->exchanged > 0;
	bool rested = !p || p->given_ms == 0 || f->now_ms - p->given_ms >= REST_MS;
	if (n_open > (known ? 0 : KEPT) + (kept && !next ? 1 : 0)) {
		if (next)
			d->next_ms = 0;
		return open;
	}
	if (!kept && rested && give_way(f)) {
		d->next = *to;
		d->next_ms = f->now_ms + NEXT_MS;
	}
	return NULL;
}

/* A joiner that asks anew has lost the transfer before: its place comes free with the end of it. */
static struct flock__donation *place_for(struct flock *f, const struct peer_id *to)
{
	struct flock__donation *open = NULL;
	int n_open = 0;
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		struct flock__donation *g = &f->donate.to[i];
		bool same = g->stage != DONATION_FREE && peer_id_equal(&g->to, to);
		if (same && g->stage != DONATION_TRANSFER)
			return g;
		if (same)
			flock__do_bulk(
			        f, FLOCK_DO_CANCEL, (uint8_t)(USE_DONATE + i), to, g->exchange);
		if (g->stage == DONATION_FREE) {
			open = g;
			n_open++;
		}
	}
	return place_or_turn(f, to, open, n_open);
}

static enum exchange_why may_fetch(struct flock *f, const struct peer_id *from)
{
	enum exchange_why why = flock__admit(f, from);
	if (why == EXCHANGE_WILLING && !flock__label_may_fetch(f, from))
		why = EXCHANGE_ENGAGED;
	if (why == EXCHANGE_WILLING && !gate_admits(f->gate, f->now_ms, f->c.gate.exchange_bytes))
		why = EXCHANGE_BUDGET;
	return why;
}

static void on_fetch(struct flock *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct flock__donate *d = &f->donate;
	if (manifest_compare(&m->fetch.manifest, &f->c.manifest) != 0) {
		refuse(f, from, m->exchange, EXCHANGE_UNLIKE, "another run or model");
		return;
	}
	if (!gives(f)) {
		refuse(f, from, m->exchange, EXCHANGE_JOINING, "nothing to give now");
		return;
	}
	enum exchange_why why = may_fetch(f, from);
	struct flock__donation *g = why == EXCHANGE_WILLING ? place_for(f, from) : NULL;
	if (!g) {
		refuse(f, from, m->exchange, why == EXCHANGE_WILLING ? EXCHANGE_ENGAGED : why,
		        "no state to give now");
		return;
	}
	*g = (struct flock__donation){.stage = DONATION_WAITING,
	        .to = *from,
	        .exchange = m->exchange,
	        .since_ms = f->now_ms};
	/* The rest of the copy that it has a part of; or of any, when its donor is gone. */
	bool rest = d->slot == DONATED_READY && m->fetch.snapshot == d->id;
	if (rest || m->fetch.snapshot == 0)
		g->offset = m->fetch.offset;
	if (!rest)
		have_copy(f);
	if (d->slot == DONATED_READY)
		announce(f, g);
	else
		tell_soon(f, g);
}

static int find(const struct flock *f, const struct peer_id *id, uint64_t exchange)
{
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		const struct flock__donation *g = &f->donate.to[i];
		if (g->stage != DONATION_FREE && g->exchange == exchange &&
		        peer_id_equal(&g->to, id))
			return i;
	}
	return -1;
}

bool flock__donate_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m)
{
	if (m->kind == EXCHANGE_FETCH) {
		on_fetch(f, from, m);
		return true;
	}
	int i = find(f, from, m->exchange);
	if (i < 0)
		return false;
	struct flock__donation *g = &f->donate.to[i];
	if (m->kind == EXCHANGE_OPEN && g->stage == DONATION_ANNOUNCED) /* it cannot dial us */
		flock__do_bulk(f, FLOCK_DO_OPEN, (uint8_t)(USE_DONATE + i), from, m->exchange);
	if (m->kind == EXCHANGE_ABORT && g->stage != DONATION_TRANSFER)
		g->stage = DONATION_FREE;
	return true;
}

void flock__donate_unsent(struct flock *f, const struct flock_event *e)
{
	int i = find(f, &e->peer, e->exchange);
	if (i >= 0 && f->donate.to[i].stage != DONATION_TRANSFER)
		f->donate.to[i].stage = DONATION_FREE;
}

/* Four joiners may share a slow upload of ours: only who takes next to nothing is left alone. Who
 * is merely slow gives way when others wait, and asks for the rest. */
static uint64_t transfer_ms(const struct flock *f, uint64_t offset)
{
	uint64_t left = f->c.manifest.count * f->donate.info.vectors - offset;
	uint64_t ms = left * sizeof(float) / (RATE_MIN / 1000);
	return ms < TRANSFER_MS_MIN ? TRANSFER_MS_MIN : ms < TRANSFER_MS ? ms : TRANSFER_MS;
}

bool flock__donate_bulk(struct flock *f, const struct flock_event *e)
{
	int i = find(f, &e->peer, e->exchange);
	if (i < 0 || f->donate.to[i].stage != DONATION_ANNOUNCED)
		return false;
	struct flock__donation *g = &f->donate.to[i];
	if (e->bulk != BULK_CAME) { /* the joiner, which cannot dial us, would wait for it */
		g->stage = DONATION_FREE;
		refuse(f, &g->to, g->exchange, EXCHANGE_OTHER, "no connection");
		return true;
	}
	struct flock_action *t = flock__do_bulk(
	        f, FLOCK_DO_TRANSFER, (uint8_t)(USE_DONATE + i), &g->to, g->exchange);
	t->transfer.sends = true;
	t->transfer.offset = g->offset;
	t->transfer.deadline_ms = transfer_ms(f, g->offset);
	g->stage = DONATION_TRANSFER;
	g->since_ms = f->now_ms;
	return true;
}

void flock__donate_transferred(struct flock *f, const struct flock_event *e)
{
	struct flock__donation *g = &f->donate.to[e->transferred.use - USE_DONATE];
	f->donate.broke = f->donate.broke || e->code != 0;
	uint64_t least = (f->now_ms - g->since_ms) / 1000 * RATE_MIN;
	g->stage = DONATION_FREE;
	partners_given(f->partners, &g->to, f->now_ms);
	if (e->code == ERR_TIMEOUT && e->transferred.bytes_sent < least)
		partners_stalled(f->partners, &g->to, f->now_ms);
	f->counts.bytes_sent += e->transferred.bytes_sent;
	f->counts.bytes_received += e->transferred.bytes_received;
	f->counts.donated_bytes += e->transferred.bytes_sent;
	f->counts.donations += e->code == 0;
	gate_spent(f->gate, f->now_ms, e->transferred.bytes_sent, false, false);
	struct flock_say *s = flock__say(f, e->code ? SAY_DONATION_BROKEN : SAY_DONATED);
	s->peer = g->to;
	s->a = f->donate.info.step;
	s->error = e->code;
}

/* That somebody may keep a place without a connection. While the copy is not there that is not
 * the joiner's fault. */
static uint64_t place_ms(const struct flock *f, const struct flock__donation *g)
{
	uint64_t step_ms = g->stage == DONATION_WAITING ? flock__step_ms(f) : 0;
	return OPEN_MS + (step_ms < FLOCK_SOON_MS ? step_ms : FLOCK_SOON_MS);
}

void flock__donate_tick(struct flock *f)
{
	struct flock__donate *d = &f->donate;
	bool used = false;
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		struct flock__donation *g = &d->to[i];
		if (g->stage != DONATION_FREE && g->stage != DONATION_TRANSFER &&
		        f->now_ms - g->since_ms > place_ms(f, g)) {
			if (g->stage == DONATION_ANNOUNCED)
				partners_stalled(f->partners, &g->to, f->now_ms);
			g->stage = DONATION_FREE;
		}
		used = used || g->stage != DONATION_FREE;
	}
	if (used)
		f->finish.idle_since_ms = f->now_ms; /* a finished agent stays for them, too */
	uint64_t keep_ms = d->broke ? KEEP_MS : FRESH_MS;
	if (d->slot == DONATED_READY && !used && f->now_ms - d->at_ms > keep_ms) {
		d->slot = DONATED_NONE;
		flock__do(f, FLOCK_DO_RELEASE)->slot = SLOT_DONATED;
	}
}

void flock__donate_close(struct flock *f)
{
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		struct flock__donation *g = &f->donate.to[i];
		if (g->stage == DONATION_TRANSFER)
			flock__do_bulk(
			        f, FLOCK_DO_CANCEL, (uint8_t)(USE_DONATE + i), &g->to, g->exchange);
		else
			g->stage = DONATION_FREE;
	}
}

bool flock__donate_busy(const struct flock *f)
{
	for (int i = 0; i < FLOCK_DONATIONS; i++)
		if (f->donate.to[i].stage == DONATION_TRANSFER)
			return true;
	return false;
}
