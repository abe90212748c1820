/* SPDX-License-Identifier: MIT */
/* Exchanges: gate and partners decide that one is tried, the exchange machine says what comes when,
 * and its wishes become actions.
 *
 *     steps ──► gate ──► partners ──► machine ──► OFFER …
 *     a peer's OFFER ──► offers.c ──► machine ──► snapshot, open, transfer, END, COMMIT, apply, ACK
 *
 * Two buffers are all that this takes: our snapshot as it travels, and staging, which receives the
 * difference. They are free for the next exchange when learner, worker and transfer have let go of
 * them; until then offers are answered with "engaged".
 *
 * What can fail: everything on the peer's side. The machine ends each exchange in one result, which
 * is told to gate (bytes, debts), partners (deadline, back-off, quarantine), clipping and ledger.
 */
#include "gossip/flock/flock_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define FAR 1.0       /* of our length: who trains on other data is nearer than that */
#define FAR_OF 3      /* drawn, of which the farthest is taken */
#define IN_TOUCH 0.5f /* the factor from which on an exchange makes up for what was missed */

#define STEP_MS 500 /* steps that take less are not worth a word */
#define STEP_MS_MAX 200000
#define STEP_TOLD_MS 4500 /* of a peer's word, unless our own steps are longer */
#define STEPS_WAITED 3    /* snapshot, and in push and pull apply, wait for the end of a step */

bool flock__idle(const struct flock *f)
{
	return exchange_state(f->exchange) == EXCHANGE_IDLE && f->x.snapshot == SNAPSHOT_NONE &&
	       f->x.incoming == INCOMING_NONE;
}

/* ---- what the machine asks for */

struct flock_action *flock__snapshot(struct flock *f, enum flock__snapshot use, uint8_t format)
{
	struct flock_action *a = flock__do(f, FLOCK_DO_SNAPSHOT);
	assert(f->x.snapshot == SNAPSHOT_NONE && f->x.incoming == INCOMING_NONE);
	f->x.snapshot = use;
	f->x.tells_sketch = flock__sketch_due(f);
	if (use == SNAPSHOT_EXCHANGE)
		flock__clock_snapshot(f);
	/* One exchange makes up for little of what a stale agent has missed. */
	if (use == SNAPSHOT_EXCHANGE && flock__stale(f))
		f->clock.others_snapshot = f->clock.others_then;
	a->snapshot.format = format;
	a->snapshot.sketch = f->x.tells_sketch;
	return a;
}

void flock__snapshot_taken(struct flock *f, const struct flock_event *e)
{
	enum flock__snapshot use = f->x.snapshot;
	f->x.snapshot = SNAPSHOT_NONE;
	if (f->x.tells_sketch && e->snapshot.sketch)
		flock__own_sketch(f, e->snapshot.sketch, e->snapshot.step);
	f->x.snapshot_step = e->snapshot.step;
	if (use == SNAPSHOT_EXCHANGE)
		flock__exchange(f, &(struct exchange_event){.kind = EXCHANGE_EVENT_SNAPSHOT});
}

bool flock__scaled(const struct flock *f, uint8_t format)
{
	return format < 64 && f->c.scaled >> format & 1;
}

uint8_t flock__plain(const struct flock *f)
{
	return flock__scaled(f, f->c.format) ? f->c.plain : f->c.format;
}

/* Scales are told whenever there are some: a partner may ask for a format that needs them. */
static bool tells_scales(const struct flock *f, uint8_t mode, const struct peer_id *peer)
{
	const struct partner *p = partners_find(f->partners, peer);
	return f->x.scales.n > 0 && mode == EXCHANGE_PAIR && (!p || p->plain == PLAIN_NOT);
}

static void tell_scales(const struct flock *f, struct exchange_terms *t, const struct peer_id *peer)
{
	if (!tells_scales(f, t->mode, peer))
		return;
	t->n_scales = f->x.scales.n;
	memcpy(t->scales, f->x.scales.scale, t->n_scales);
}

/* What we would offer. scales: the peer is to be told some. */
static uint8_t format_of(const struct flock *f, bool final, bool scales)
{
	bool lattice = flock__scaled(f, f->c.format);
	uint8_t format = f->c.format;
	if (final)
		format = lattice && !f->finish.fine ? f->c.merge : 0;
	if (flock__scaled(f, format) && !scales)
		format = final ? 0 : f->c.plain;
	return format;
}

uint64_t flock__merge_bytes(const struct flock *f)
{
	return f->c.exchange_bytes[format_of(f, true, f->x.scales.n > 0)];
}

struct format_choice flock__wire(const struct flock *f)
{
	bool final = f->phase == FLOCK_MERGING;
	struct format_choice w = {format_of(f, final, f->x.scales.n > 0), f->c.format_why};
	if (final)
		w.why = FORMAT_MERGE;
	else if (w.format != f->c.format)
		w.why = FORMAT_FIRST;
	return w;
}

/* ---- how long a step takes */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The learner begins one. */
void flock__steps_anew(struct flock *f)
{
	f->x.stepped_ms = f->now_ms;
	f->x.step_ms[0] = f->x.step_ms[1] = 0;
}

static void time_steps(struct flock *f, int n)
{
	struct flock__exchanging *x = &f->x;
	x->step_ms[1] = x->step_ms[0];
	x->step_ms[0] = most((f->now_ms - x->stepped_ms) / (uint64_t)n, 1);
	x->stepped_ms = f->now_ms;
}

/* The shorter of the last two, since a learner may evaluate between steps, or a process stop; or
 * what the one under way has taken so far. At most STEP_MS_MAX. */
uint64_t flock__step_ms(const struct flock *f)
{
	const uint64_t *took = f->x.step_ms;
	uint64_t ms = took[1] == 0 ? took[0] : least(took[0], took[1]);
	if (f->phase != FLOCK_TRAINING)
		return 0;
	ms = least(most(ms, f->now_ms - f->x.stepped_ms), STEP_MS_MAX);
	return ms < STEP_MS ? 0 : ms;
}

/* ---- terms */

void flock__terms(struct flock *f, struct exchange_terms *t, const struct peer_id *peer, bool final)
{
	*t = (struct exchange_terms){.manifest = f->c.manifest,
	        .step = f->clock.last.step,
	        .samples = flock__samples(f),
	        .clock = flock__clock(f),
	        .mode = final ? EXCHANGE_PAIR : f->c.mode,
	        .final = final,
	        .beta = final ? FLOCK_FINAL_BETA : f->c.beta,
	        .step_ms = (uint32_t)flock__step_ms(f)};
	tell_scales(f, t, peer);
	t->format = format_of(f, final, t->n_scales > 0);
	if (f->divergence.has_own) {
		t->sketch_length = SKETCH_BUCKETS * 4;
		sketch_pack(&f->divergence.own, t->sketch);
	}
}

uint64_t flock__transfer_ms(const struct flock *f, const struct peer_id *id, uint8_t format,
        bool final, uint64_t told_ms)
{
	/* A scaled format may become the plain one yet, or, in a merge round, fp32. */
	uint8_t known = format >= f->c.n_formats   ? 0
	                : flock__scaled(f, format) ? (final ? 0 : f->c.plain)
	                                           : format;
	uint64_t own_ms = flock__step_ms(f), step = least(told_ms, most(own_ms, STEP_TOLD_MS));
	return partners_deadline(f->partners, id, f->c.exchange_bytes[known]) +
	       STEPS_WAITED * most(own_ms, step);
}

static void transfer(struct flock *f, const struct exchange_actions *a)
{
	struct flock_action *t =
	        flock__do_bulk(f, FLOCK_DO_TRANSFER, USE_EXCHANGE, &a->peer, a->exchange);
	t->transfer.format = a->format;
	t->transfer.sends = a->sends;
	t->transfer.receives = a->receives;
	t->transfer.deadline_ms = a->deadline_ms_left;
	f->x.connected = false;
	f->x.incoming = INCOMING_TRANSFER;
	f->x.has_distance2 = f->x.has_heard = f->x.left_out = false;
	f->x.rounding2 = 0;
	f->x.own_factor = 1;
}

void flock__exchange_transferred(struct flock *f, const struct flock_event *e)
{
	struct exchange_event m = {.kind = EXCHANGE_EVENT_MOVED};
	struct guard_word says = guard_says(&f->guard);
	m.moved.x2 = says.x2;
	m.moved.lr = says.lr;
	f->counts.bytes_sent += e->transferred.bytes_sent;
	f->counts.bytes_received += e->transferred.bytes_received;
	if (f->x.incoming != INCOMING_TRANSFER) {
		f->x.incoming = INCOMING_NONE;
		gate_spent(f->gate, f->now_ms, e->transferred.bytes_sent, false, false);
		return;
	}
	m.moved.code = e->code;
	m.moved.again = e->transferred.again;
	m.moved.bytes_sent = e->transferred.bytes_sent;
	m.moved.bytes_received = e->transferred.bytes_received;
	m.moved.n = f->c.n_groups;
	for (int g = 0; g < f->c.n_groups; g++)
		m.moved.factor[g] = 1;
	if (e->code == 0 && e->transferred.received > 0) {
		f->x.moved = m;
		f->x.incoming = INCOMING_MEASURE;
		struct flock_action *a = flock__do(f, FLOCK_DO_MEASURE);
		a->slot = SLOT_STAGING;
		a->scales = f->x.asked || flock__scaled(f, f->c.format);
		return;
	}
	f->x.incoming = INCOMING_NONE;
	flock__exchange(f, &m);
}

bool flock__exchange_bulk(struct flock *f, const struct flock_event *e)
{
	struct exchange_event m = {.kind = EXCHANGE_EVENT_BULK, .peer = e->peer};
	/* May be a late connection from an earlier exchange with this peer. */
	if (exchange_state(f->exchange) != EXCHANGE_PREPARING || e->exchange != f->x.number)
		return false;
	struct peer_id with = exchange_peer(f->exchange);
	if (!peer_id_equal(&with, &e->peer) || (e->bulk == BULK_CAME && f->x.connected))
		return false;
	f->x.connected = f->x.connected || e->bulk == BULK_CAME;
	m.bulk.exchange = e->exchange;
	m.bulk.bulk = e->bulk;
	flock__exchange(f, &m);
	return true;
}

static void cancel(struct flock *f, const struct exchange_actions *a)
{
	if (f->x.snapshot == SNAPSHOT_EXCHANGE)
		f->x.snapshot = SNAPSHOT_DROPPED;
	if (f->x.connected)
		flock__do_bulk(f, FLOCK_DO_CLOSE, USE_EXCHANGE, &a->peer, f->x.number);
	f->x.connected = false;
	if (f->x.incoming == INCOMING_TRANSFER) {
		f->x.incoming = INCOMING_TRANSFER_DROPPED;
		flock__do_bulk(f, FLOCK_DO_CANCEL, USE_EXCHANGE, &a->peer, f->x.number);
	} else if (f->x.incoming == INCOMING_MEASURE)
		f->x.incoming = INCOMING_MEASURE_DROPPED;
}

/* ---- results */

static void learn_distance(struct flock *f, const struct exchange_result *r)
{
	double sum = 0;
	uint32_t n = f->clip.all.n < CLIP_HISTORY ? f->clip.all.n : CLIP_HISTORY;
	f->last_distance = r->distance;
	f->has_distance = true;
	for (uint32_t i = 0; i < n; i++)
		sum += (double)f->clip.all.distance[i] * f->clip.all.distance[i];
	f->rms = n > 0 ? sqrt(sum / n) : 0;
}

/* A peer is judged by what we ourselves would have clipped, only once we know what is usual, and
 * only if it is far away: to be a little apart is no offence, nor is to be as far as two can get
 * who have trained apart on other data since they last met. */
static void judge(struct flock *f, const struct exchange_result *r)
{
	struct exchange_result judged = *r;
	const struct partner *p = partners_find(f->partners, &r->peer);
	uint32_t before = p ? p->quarantines : 0;
	bool far = f->divergence.has_own && r->distance > FAR * sketch_norm(&f->divergence.own) &&
	           r->distance > flock__may_be_apart(f, &r->peer);
	judged.factor = far && !r->late && f->clip.all.n >= CLIP_WARM ? f->x.own_factor : 1;
	partners_result(f->partners, &judged, f->now_ms);
	p = partners_find(f->partners, &r->peer);
	if (!p || p->quarantines == before)
		return;
	struct flock_say *s = flock__say(f, SAY_QUARANTINE);
	s->peer = r->peer;
	s->a = p->quarantine_ms - f->now_ms;
	memcpy(s->words, p->reason, sizeof p->reason);
}

/* What is farther than the clip radius counts as that: one peer may be anywhere. Rounding is no
 * distance. */
static void guard(struct flock *f, const struct exchange_result *r)
{
	double d2 = r->distance * r->distance - f->x.rounding2, d = d2 > 0 ? sqrt(d2) : 0;
	double radius = (double)clip_radius(&f->clip, -1, flock__moved(f));
	double norm = f->divergence.has_own ? sketch_norm(&f->divergence.own) : 0;
	struct guard_meeting m = {.distance2 = -1,
	        .uniform = !r->word.far,
	        .agents = (uint32_t)f->candidates.n + 1,
	        .floor2 = r->format < f->c.n_formats ? f->c.floor2[r->format] * norm * norm : 0,
	        .theirs = {r->word.x2, r->word.lr}};
	if (radius > 0 && d > radius)
		d = radius;
	if (f->x.has_distance2)
		m.distance2 = d * d;
	guard_met(&f->guard, &m);
}

/* When we meet whom is for the guard to say, and what is usual for all whom we meet. A peer that
 * begins often would keep the one from ever beginning, and make its own distance the other; so of
 * four exchanges in a row that count one peer has begun one at most, while there are others. */
static bool counts(struct flock *f, const struct exchange_result *r)
{
	struct flock__exchanging *x = &f->x;
	uint32_t others = f->candidates.n > 0 ? (uint32_t)f->candidates.n - 1 : 0;
	uint32_t n = x->n_begun < FLOCK_BEGUN ? x->n_begun : FLOCK_BEGUN;
	n = n < others ? n : others;
	for (uint32_t i = 1; i <= n && !r->ours; i++)
		if (peer_id_equal(&x->begun[(x->n_begun - i) % FLOCK_BEGUN], &r->peer))
			return false;
	x->begun[x->n_begun++ % FLOCK_BEGUN] = r->ours ? f->c.membership.self : r->peer;
	return true;
}

/* The exchange came about, as far as is known, or our parameters have moved, whatever the partner's
 * did. */
static void learn(struct flock *f, const struct exchange_result *r, bool done)
{
	bool moved = r->moved && f->x.has_distance2;
	/* Merge rounds shrink every distance: a radius that went along would shut out whoever comes
	 * a little later. */
	bool count = (done || moved) && !r->final && counts(f, r);
	if (done && count)
		guard(f, r);
	if (moved) {
		if (count)
			clip_enter(&f->clip, f->x.distance2, flock__moved(f));
		learn_distance(f, r);
		flock__met(f, r);
	}
	f->x.has_distance2 = false;
}

/* A late one's steps are another's by now, and a learner may begin again at an earlier step. */
static void note_delay(const struct flock *f, struct exchange_result *r)
{
	const struct flock__exchanging *x = &f->x;
	uint64_t decided = r->ours ? x->offered_step : x->accepted_step;
	r->timed = r->moved && !r->late && x->applied_step >= x->snapshot_step &&
	           x->snapshot_step >= decided && x->applied_step > 0;
	r->delay = r->timed ? x->applied_step - x->snapshot_step : 0;
	r->delay_decided = r->timed ? x->applied_step - decided : 0;
}

/* By half of the distance or more; else it shows that we may be too slow for that peer. */
static void carried(struct flock *f, const struct exchange_result *r)
{
	if (r->factor >= IN_TOUCH)
		flock__clock_exchanged(f);
	else if (r->moved)
		flock__clock_clipped(f, &r->peer);
}

static void on_result(struct flock *f, const struct exchange_result *r)
{
	bool done = r->outcome == OUTCOME_EXCHANGED;
	f->counts.by_outcome[r->outcome]++;
	struct exchange_result *kept = &f->recent[f->n_recent++ % FLOCK_RECENT];
	*kept = *r;
	note_delay(f, kept);
	struct flock_say *s = flock__say(f, SAY_EXCHANGE);
	s->peer = r->peer;
	s->result = kept;
	s->own_factor = f->x.own_factor;
	if (r->entry != 0)
		ledger_outcome(&f->ledger, r->entry, r->outcome, r->bytes_sent);
	if (r->outcome == OUTCOME_CROSSED)
		return;
	judge(f, r);
	gate_spent(f->gate, f->now_ms, r->bytes_sent, r->ours, done);
	if (r->ours && !done && !r->final)
		gate_owed(f->gate, f->now_ms);
	if (!r->late)
		learn(f, r, done);
	if (!done)
		return;
	*(r->ours ? &f->counts.begun : &f->counts.taken) += 1;
	f->counts.clipped += r->factor < 1;
	f->exchanged_ms = f->finish.idle_since_ms = f->now_ms;
	if (!r->late)
		carried(f, r);
	flock__merge_result(f, r);
}

/* Its result comes late, when snapshot and staging are another's: what our own move tells is taken
 * now. A partner whose steps are longer than the hold will have moved as well. */
static void put_aside(struct flock *f, struct exchange_result *so_far)
{
	so_far->outcome = OUTCOME_ONE_SIDED; /* as far as we know */
	learn(f, so_far, so_far->moved);
	if (so_far->moved)
		carried(f, so_far);
}

/* ---- the machine */

static void snapshot(struct flock *f, const struct exchange_actions *a)
{
	struct flock_action *s = flock__snapshot(f, SNAPSHOT_EXCHANGE, a->format);
	f->x.accepted_step = f->clock.last.step;
	f->x.applied_step = 0;
	if (!a->scales)
		return;
	scales_agree(f->x.used, f->x.scales.scale, a->scales, f->x.scales.n);
	s->snapshot.n_scales = f->x.scales.n;
	s->snapshot.scales = f->x.used;
}

void flock__exchange(struct flock *f, struct exchange_event *e)
{
	struct exchange_actions *a = &f->x.actions;
	e->now_ms = f->now_ms;
	exchange_step(f->exchange, e, a);
	for (int i = 0; i < a->n_sends; i++)
		flock__send(f, &a->send[i].to, &a->send[i].message);
	if (a->aside)
		put_aside(f, &a->so_far);
	if (a->done)
		on_result(f, &a->result);
	if (a->cancel)
		cancel(f, a);
	f->x.number = a->exchange;
	f->x.timer_ms = a->timer_ms;
	if (a->snapshot)
		snapshot(f, a);
	if (a->open) /* a kept one that is dead is found out too late where steps are long */
		flock__do_bulk(f, FLOCK_DO_OPEN, USE_EXCHANGE, &a->peer, a->exchange)->fresh =
		        a->fresh || flock__step_ms(f) > 0;
	if (a->move)
		transfer(f, a);
	if (a->apply) {
		flock__pulled(f, a);
		struct flock_action *x =
		        flock__do_bulk(f, FLOCK_DO_APPLY, USE_EXCHANGE, &a->peer, a->exchange);
		x->apply.n = a->n_groups;
		memcpy(x->apply.k, a->k, sizeof x->apply.k);
	}
}

/* ---- offers of ours */

static void offer(struct flock *f, const struct peer_id *to, bool final, bool far)
{
	struct exchange_terms ours;
	struct exchange_event e = {.kind = EXCHANGE_EVENT_START, .peer = *to};
	flock__terms(f, &ours, to, final);
	if (!flock__scaled(f, ours.format))
		ours.n_scales = 0;
	e.start.ours = &ours;
	e.start.deadline_ms = flock__transfer_ms(f, to, ours.format, ours.final, 0);
	e.start.entry = f->x.entry;
	e.start.far = far;
	f->x.entry = 0;
	f->x.offered_step = f->clock.last.step;
	if (e.start.entry != 0)
		ledger_tried(&f->ledger, e.start.entry, to);
	flock__exchange(f, &e);
}

/* Of some drawn at random the one that is farthest; far: there was something to choose by. */
static bool draw_far(struct flock *f, struct peer_id *to, bool *far)
{
	struct peer_id some[FAR_OF];
	double most = -1, d;
	int known = 0, n = partners_sample(f->partners, f->candidates.id, f->candidates.n,
	                       f->now_ms, FAR_OF, some);
	if (n == 0)
		return false;
	*to = some[rng_below(&f->rng, (uint64_t)n)]; /* the sample is fair, its order is not */
	for (int i = 0; i < n; i++) {
		if (!flock__was_apart(f, &some[i], &d))
			continue;
		known++;
		if (d <= most)
			continue;
		most = d;
		*to = some[i];
	}
	*far = known > 0 && n > 1;
	partners_drawn(f->partners, to);
	return true;
}

/* With the guard half of the draws are far: distances between groups that rarely meet shrink
 * sooner. The other half keeps the estimate true, and a liar that is always far gets at most twice
 * its share. Who is pushed to measures the distance, and is not told how it was drawn. */
static bool draw(struct flock *f, bool final, struct peer_id *to, bool *far)
{
	*far = false;
	if (f->c.guard && f->c.mode != EXCHANGE_PUSH && !final && rng_below(&f->rng, 2) == 0)
		return draw_far(f, to, far);
	return partners_draw(f->partners, f->candidates.id, f->candidates.n, f->now_ms, to);
}

/* The gate has paid for the usual format: a first meeting in the plain one takes more. A day's
 * quota is not to be exceeded. */
static bool pays(const struct flock *f, const struct peer_id *to)
{
	uint8_t format = format_of(f, false, tells_scales(f, f->c.mode, to));
	return format == f->c.format ||
	       gate_pays(f->gate, f->now_ms, f->c.exchange_bytes[format]);
}

bool flock__offer_any(struct flock *f, bool final)
{
	struct peer_id to;
	bool far;
	if (!flock__idle(f) || !f->divergence.has_own)
		return false;
	flock__candidates(f);
	if (!draw(f, final, &to, &far) || (!final && !pays(f, &to)))
		return false;
	offer(f, &to, final, far);
	return true;
}

/* A gradient of more samples has less noise: that alone is no change of it. */
static void follow_batch(struct flock *f, const struct flock_trained *s)
{
	if (f->x.batch > 0 && s->batch > 0 && s->batch != f->x.batch)
		gate_batch(f->gate, s->signal, s->noise, (double)f->x.batch, (double)s->batch);
	f->x.batch = s->batch;
}

static void decide(struct flock *f, const struct flock_trained *s)
{
	const struct guard_step own = {.step = s->step,
	        .samples = s->samples,
	        .lr = s->lr,
	        .moved = s->moved,
	        .done = (double)flock__clock(f) / (double)f->c.manifest.total};
	guard_step(&f->guard, &own);
	const struct gate_step g = {.samples = s->samples,
	        .now_ms = f->now_ms,
	        .due = f->c.guard && guard_due(&f->guard),
	        .alone = f->candidates.n == 0 || flock__stale(f) || flock__joining(f) ||
	                 flock__adopted_unproven(f),
	        .norm2 = s->grad_norm * s->grad_norm,
	        .layer_norms = s->layer_norms};
	struct gate_decision d = gate_step(f->gate, &g);
	uint64_t number = ledger_decision(
	        &f->ledger, s->step, f->now_ms, &d, f->c.exchange_bytes[f->c.format]);
	if (!d.exchange)
		return;
	bool engaged = !flock__idle(f);
	if (!engaged)
		f->x.entry = number;
	if (engaged || !flock__offer_any(f, false)) {
		if (!engaged)
			f->x.entry = 0;
		gate_owed(f->gate, f->now_ms);
	}
}

void flock__steps(struct flock *f, const struct flock_trained *s, int n)
{
	struct flock__clock *c = &f->clock;
	for (int i = 0; i < n; i++) {
		if (s[i].no_loss || !isfinite(s[i].loss))
			continue;
		c->loss = c->has_loss ? c->loss + (s[i].loss - c->loss) / 50 : s[i].loss;
		c->has_loss = true;
	}
	c->last = s[n - 1];
	flock__throttle(f, n);
	flock__path(f);
	flock__adopted_steps(f, s, n);
	if (f->phase != FLOCK_TRAINING)
		return;
	time_steps(f, n);
	flock__candidates(f);
	for (int i = 0; i < n; i++) {
		follow_batch(f, &s[i]);
		decide(f, &s[i]);
	}
}
