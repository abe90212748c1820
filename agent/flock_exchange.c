/* SPDX-License-Identifier: MIT */
/* Exchanges: gate and partners decide that one is tried, the pure machine (gossip/exchange.h) says
 * what comes when, and here is what it asks for: snapshots from the learner, a connection and a
 * transfer from the network, the application by the learner.
 *
 *     steps ──► gate ──► partners ──► machine ──► OFFER …
 *     peer's OFFER ──► willing? ──► machine ──► snapshot, bulk, END, COMMIT, apply, ACK
 *
 * Two vectors are all the memory that this takes: our snapshot as it travels, Q(s), and staging,
 * which receives y − Q(s) while it comes in. There is room for a snapshot in fp32, since peers may
 * want that and the end does; one in bf16 touches half of it. They are free for the next exchange
 * when learner, worker and transfer have let go of them; until then offers are answered with
 * "engaged". How far away the peer is the transfer measures, or the learner's device where it can.
 *
 * What can fail: everything on the peer's side. The machine ends each exchange in one result, which
 * is told to gate (bytes, debts), partners (deadline, back-off, quarantine), clipping and ledger.
 */
#include "agent/base/log.h"
#include "agent/flock_core.h"

#include <assert.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_TELL_FACTOR 1.0f
#define IN_TOUCH_MS 15000
#define FAR 1.0 /* of our length: who trains on other data is nearer than that */

void flock__wire_used(struct flock_wire *w)
{
	sodium_memzero(w, sizeof *w);
	w->fd = -1;
}

void flock__wire_close(struct flock_wire *w)
{
	if (w->fd >= 0)
		close(w->fd);
	flock__wire_used(w);
}

static void step(struct flock_agent *f, struct exchange_event e);

double flock__moved(const struct flock_agent *f)
{
	return f->last.moved;
}

/* ---- what the machine asks for */

void flock__snapshot_taken(struct flock_agent *f, uint64_t at)
{
	f->snapping = false;
	flock__snapshot_sketched(f, at);
	if (f->snap_matters)
		step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_SNAPSHOT});
	f->snap_matters = false;
}

static void fill_terms(struct flock_agent *f, struct exchange_terms *t, bool final)
{
	const struct config *c = f->c.config;
	*t = (struct exchange_terms){.manifest = f->manifest,
	        .step = f->last.r.step,
	        .samples = flock__samples(f),
	        .clock = flock__clock(f),
	        .mode = final ? EXCHANGE_PAIR : (uint8_t)c->gossip.exchange,
	        .format = final ? CONVERT_FP32 : (uint8_t)c->gossip.wire,
	        .final = final,
	        .beta = final ? 0.5f : (float)c->gossip.beta};
	if (f->has_sketch) {
		t->sketch_length = SKETCH_BUCKETS * 4;
		sketch_pack(&f->sketch, t->sketch);
	}
}

static uint64_t transfer_ms(const struct flock_agent *f, const struct peer_id *id, uint8_t format)
{
	return partners_deadline(f->partners, id, f->n_total * convert_word(format));
}

void flock__exchange_measured(struct flock_agent *f, const double *group2)
{
	double sum = 0;
	memcpy(f->distance2, group2, (size_t)f->groups->n * sizeof *group2);
	for (int g = 0; g < f->groups->n; g++)
		sum += group2[g];
	f->has_distance2 = true;
	f->own_factor =
	        clip_factors(&f->clip, f->distance2, flock__moved(f), f->moved.moved.factor);
	f->moved.moved.distance = sqrt(sum);
}

static void on_moved(void *arg, const struct bulk_result *r)
{
	struct flock_agent *f = arg;
	struct exchange_event e = {.kind = EXCHANGE_EVENT_MOVED};
	f->now_ms = uv_now(f->c.loop);
	f->bulk = NULL;
	f->counts.bytes_sent += r->bytes_sent;
	f->counts.bytes_received += r->bytes_received;
	if (!f->bulk_matters) {
		gate_spent(f->gate, f->now_ms, r->bytes_sent, false, false);
		return;
	}
	e.moved.code = r->err.code;
	e.moved.bytes_sent = r->bytes_sent;
	e.moved.bytes_received = r->bytes_received;
	e.moved.n = (uint8_t)f->groups->n;
	for (int g = 0; g < f->groups->n; g++)
		e.moved.factor[g] = 1;
	if (r->err.code != 0)
		log_debug("transfer: %s", r->err.msg);
	f->moved = e;
	f->moved_waits = true;
	if (r->err.code == 0 && r->words > 0 && learner_measures(f->learner)) {
		f->measuring = learner_measure(f->learner, f->staging, &f->measure);
		if (!f->measuring) /* a full queue: the exchange runs into its deadline */
			log_warn("exchange: the learner's queue is full");
		return;
	}
	if (r->err.code == 0 && r->words > 0)
		flock__exchange_measured(f, r->group_distance2);
	flock__exchange_sketched(f);
}

static void begin_move(struct flock_agent *f, const struct exchange_actions *a)
{
	struct err e = {0};
	struct bulk_config b = {.loop = f->c.loop,
	        .fd = f->wire.fd,
	        .keys = &f->wire.keys,
	        .we_dialled = f->wire.we_dialled,
	        .aead = f->wire.aead,
	        .format = a->format,
	        .send = f->snapshot,
	        .send_count = a->sends ? f->n_total : 0,
	        .staging = f->staging,
	        .receive_count = a->receives ? f->n_total : 0,
	        .difference = true,
	        .unmeasured = learner_measures(f->learner),
	        .ours = f->snapshot,
	        .n_groups = a->receives ? f->groups->n : 0, /* nothing comes, nothing is compared */
	        .group_end = f->groups->end,
	        .deadline_ms = a->deadline_ms_left,
	        .arg = f,
	        .done_cb = on_moved};
	int rc = bulk_start(&f->bulk, &b, &e);
	flock__wire_used(&f->wire);
	f->bulk_matters = true;
	f->has_distance2 = f->has_heard = false;
	f->moving = a->format;
	f->own_factor = CANNOT_TELL_FACTOR;
	if (rc == 0)
		return;
	f->bulk = NULL;
	log_warn("exchange: %s", e.msg);
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_MOVED, .moved = {.code = rc}});
}

static void open_wire(struct flock_agent *f, const struct exchange_actions *a)
{
	struct err e = {0};
	int rc = node_bulk(f->node, &a->peer, a->exchange, &e);
	if (rc == 0)
		return;
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_BULK,
	                .peer = a->peer,
	                .bulk = {a->exchange,
	                        rc == ERR_UNSUPPORTED ? BULK_CANNOT_DIAL : BULK_FAILED}});
}

bool flock__exchange_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w)
{
	struct peer_id with = exchange_peer(f->exchange);
	/* Of an earlier one with the same peer it may come late. */
	if (exchange_state(f->exchange) != EXCHANGE_PREPARING || !peer_id_equal(&with, id) ||
	        exchange != f->actions.exchange || (w->fd >= 0 && f->wire.fd >= 0))
		return false;
	bool came = w->fd >= 0;
	if (came)
		f->wire = *w;
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_BULK,
	                .peer = *id,
	                .bulk = {exchange, came ? BULK_CAME : BULK_FAILED}});
	return true;
}

static void let_go(struct flock_agent *f)
{
	f->snap_matters = f->moved_waits = false;
	flock__wire_close(&f->wire);
	if (f->bulk) {
		f->bulk_matters = false;
		bulk_cancel(f->bulk);
	}
}

static void take_snapshot(struct flock_agent *f, enum convert_format format)
{
	/* or we would have been engaged */
	assert(!f->snapping && !f->sketching && !f->measuring);
	f->snap_matters = true;
	f->others_snap = f->others_last;
	f->own_snap = flock__samples(f);
	if (!flock__snapshot(f, format)) /* a full queue: the exchange runs into its deadline */
		log_warn("exchange: the learner's queue is full");
}

/* ---- results */

static void tell(const struct flock_agent *f, const struct exchange_result *r)
{
	char id[13];
	node_short_id(&r->peer, id);
	switch (r->outcome) {
	case OUTCOME_BAD:
		log_warn("bad %s: what it sent was not usable (%s, distance %.4g); not used", id,
		        err_text(r->code), r->distance);
		break;
	case OUTCOME_ONE_SIDED:
		log_warn("one-sided %s: it was lost after our word; ours %s", id,
		        r->moved ? "has moved, its own perhaps not"
		                 : "has not moved, its own perhaps");
		break;
	case OUTCOME_EXCHANGED:
		log_debug("exchange %s: exchanged, %llu ms, distance %.4g, factor %.3g (ours %.3g)",
		        id, (unsigned long long)r->took_ms, r->distance, (double)r->factor,
		        (double)f->own_factor);
		break;
	default:
		log_debug("exchange %s: %s%s%s%s%s, %llu ms", id, exchange_outcome_text(r->outcome),
		        r->why ? ", " : "", r->why ? exchange_why_text(r->why) : "",
		        r->words[0] ? ": " : "", r->words, (unsigned long long)r->took_ms);
		break;
	}
}

static void learn_distance(struct flock_agent *f, const struct exchange_result *r)
{
	double sum = 0;
	uint32_t n = f->clip.all.n < CLIP_HISTORY ? f->clip.all.n : CLIP_HISTORY;
	f->last_distance = r->distance;
	f->has_distance = true;
	for (uint32_t i = 0; i < n; i++)
		sum += (double)f->clip.all.distance[i] * f->clip.all.distance[i];
	f->rms = n > 0 ? sqrt(sum / n) : 0;
}

static void judge(struct flock_agent *f, const struct exchange_result *r)
{
	const struct partner *p = partners_find(f->partners, &r->peer);
	uint32_t before = p ? p->quarantines : 0;
	char id[13];
	partners_result(f->partners, r, f->now_ms);
	p = partners_find(f->partners, &r->peer);
	node_short_id(&r->peer, id);
	if (p && p->quarantines > before)
		log_warn("quarantine %s: %s; for %llu s", id, p->reason,
		        (unsigned long long)(p->quarantine_ms - f->now_ms) / 1000);
}

/* Our parameters have moved, whatever the partner's did. */
static void learn(struct flock_agent *f, const struct exchange_result *r)
{
	if (r->moved && f->has_distance2) {
		clip_enter(&f->clip, f->distance2, flock__moved(f));
		learn_distance(f, r);
		flock__heard(f, r);
	}
	f->has_distance2 = false;
}

static void on_result(struct flock_agent *f, const struct exchange_result *r)
{
	bool done = r->outcome == OUTCOME_EXCHANGED;
	struct exchange_result judged = *r;
	f->counts.by_outcome[r->outcome]++;
	f->recent[f->n_recent++ % FLOCK_RECENT] = *r;
	tell(f, r);
	if (r->entry != 0)
		ledger_outcome(&f->ledger, r->entry, r->outcome, r->bytes_sent);
	if (r->outcome == OUTCOME_CROSSED)
		return;
	/* A peer is judged by what we ourselves would have clipped, only once we know what is
	 * usual, and only if it is far away indeed: to be a little apart is no offence, nor is to
	 * be as far as two can get who have trained apart on other data since they last met. */
	bool far = f->has_sketch && r->distance > FAR * sketch_norm(&f->sketch) &&
	           r->distance > flock__may_be_apart(f, &r->peer);
	judged.factor = far && !r->late && f->clip.all.n >= CLIP_WARM ? f->own_factor : 1;
	judge(f, &judged);
	gate_spent(f->gate, f->now_ms, r->bytes_sent, r->ours, done);
	if (r->ours && !done && !r->final)
		gate_owed(f->gate, f->now_ms);
	if (!r->late)
		learn(f, r);
	if (!done)
		return;
	*(r->ours ? &f->counts.begun : &f->counts.taken) += 1;
	f->counts.clipped += r->factor < 1;
	f->exchanged_ms = f->idle_since_ms = f->now_ms;
	if (!r->late && f->others_snap > f->others_then) {
		f->others_then = f->others_snap;
		f->own_then = f->own_snap;
		f->apart_until_ms = 0;
	}
	flock__merge_result(f, r);
}

/* ---- stepping the machine */

static void on_timer(uv_timer_t *t)
{
	struct flock_agent *f = t->data;
	f->now_ms = uv_now(f->c.loop);
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_TIMER});
}

static void act(struct flock_agent *f, struct exchange_event *e)
{
	struct exchange_actions *a = &f->actions;
	e->now_ms = f->now_ms;
	exchange_step(f->exchange, e, a);
	for (int i = 0; i < a->n_sends; i++)
		node_post(f->node, &a->send[i].to, &a->send[i].message);
	if (a->aside) {
		a->so_far.outcome = OUTCOME_ONE_SIDED; /* as far as we know */
		learn(f, &a->so_far);
	}
	if (a->done)
		on_result(f, &a->result);
	if (a->cancel)
		let_go(f);
	if (a->snapshot)
		take_snapshot(f, (enum convert_format)a->format);
	if (a->open)
		open_wire(f, a);
	if (a->move)
		begin_move(f, a);
	if (a->apply && !learner_apply(f->learner, f->staging, a->k, a->n_groups)) {
		/* Never: the queue has room for one of each kind. */
		log_error("exchange: the learner's queue is full");
		abort();
	}
	if (a->timer_ms == UINT64_MAX)
		uv_timer_stop(&f->exchange_timer);
	else
		uv_timer_start(&f->exchange_timer, on_timer,
		        a->timer_ms > f->now_ms ? a->timer_ms - f->now_ms : 0, 0);
}

static void step(struct flock_agent *f, struct exchange_event e)
{
	if (f->stepping) {
		assert(f->n_queued < FLOCK_EVENTS);
		f->queued[f->n_queued++] = e;
		return;
	}
	f->stepping = true;
	act(f, &e);
	for (int i = 0; i < f->n_queued; i++)
		act(f, &f->queued[i]);
	f->n_queued = 0;
	f->stepping = false;
}

void flock__exchange_event(struct flock_agent *f, const struct exchange_event *e)
{
	step(f, *e);
}

/* ---- offers of peers */

/* Of one with whom we exchange all the time a sudden distance is no partition that has healed: it
 * is clipped, and judged. */
static bool in_touch(const struct flock_agent *f, const struct peer_id *id)
{
	const struct partner *p = partners_find(f->partners, id);
	return p && p->exchanged > 0 && f->now_ms - p->last_ms < IN_TOUCH_MS;
}

static enum exchange_why willing(struct flock_agent *f, const struct peer_id *from,
        const struct exchange_terms *t, const char **words)
{
	struct sketch theirs;
	const bool same = manifest_compare(&t->manifest, &f->manifest) == MANIFEST_SAME;
	*words = NULL;
	if (!same)
		return EXCHANGE_WILLING; /* the machine refuses it, in words */
	switch (f->phase) {
	case FLOCK_LOOKING:
	case FLOCK_JOINING:
		return EXCHANGE_JOINING;
	case FLOCK_PAUSED:
	case FLOCK_FAILED:
		return EXCHANGE_PAUSED;
	case FLOCK_LEAVING:
		return EXCHANGE_LEAVING;
	default:
		break;
	}
	if (exchange_state(f->exchange) == EXCHANGE_OFFERED) {
		struct peer_id with = exchange_peer(f->exchange);
		if (peer_id_equal(&with, from))
			return EXCHANGE_WILLING; /* crossing: the machine knows */
	}
	if (!flock__exchange_idle(f))
		return EXCHANGE_ENGAGED;
	if (f->phase == FLOCK_TRAINING && flock__stale(f))
		return EXCHANGE_JOINING; /* as soon as the next tick */
	enum exchange_why why = partners_admit(f->partners, from, f->now_ms);
	if (why != EXCHANGE_WILLING)
		return why;
	if (!gate_admits(f->gate, f->now_ms))
		return EXCHANGE_BUDGET;
	/* By what everybody should have heard of by now. */
	double behind = (double)f->clock_known - (double)t->clock;
	if (!t->final && behind > f->c.config->gossip.stale * (double)f->total) {
		*words = "your clock is far behind the run's";
		return EXCHANGE_STALE;
	}
	if (t->sketch_length > 0 && sketch_unpack(&theirs, t->sketch, t->sketch_length) &&
	        flock__apart(f, &theirs) && !in_touch(f, from)) {
		*words = "your parameters are far from mine";
		flock__consider_adopting(f, from, &theirs);
		return f->adopt_ms ? EXCHANGE_JOINING : EXCHANGE_APART;
	}
	return EXCHANGE_WILLING;
}

/* We are told that we are the odd one out. Our own eyes decide. */
static void told_apart(struct flock_agent *f, const struct peer_id *from)
{
	struct sketch theirs;
	if (f->has_sketch && flock__peer_sketch(f, from, &theirs))
		flock__consider_adopting(f, from, &theirs);
}

void flock__exchange_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct exchange_terms ours;
	struct exchange_event e = {.kind = EXCHANGE_EVENT_RECEIVED, .peer = *from};
	bool same = false;
	e.received.message = m;
	if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) {
		same = manifest_compare(&m->terms.manifest, &f->manifest) == MANIFEST_SAME;
		if (same) {
			node_samples(f->node, from, m->terms.samples);
			flock__told_clock(f, m->terms.clock);
			flock__keep_sketch(f, from, &m->terms);
		}
	}
	if (m->kind == EXCHANGE_OFFER) {
		const char *words;
		e.received.why = (uint8_t)willing(f, from, &m->terms, &words);
		e.received.words = words;
		if (e.received.why != EXCHANGE_WILLING)
			f->counts.busy_given++;
		fill_terms(f, &ours, m->terms.final);
		e.received.ours = &ours;
		e.received.deadline_ms = transfer_ms(f, from, m->terms.format ? 1 : 0);
	}
	if (m->kind == EXCHANGE_BUSY && m->busy.why == EXCHANGE_APART)
		told_apart(f, from);
	step(f, e);
}

/* ---- offers of ours */

void flock__exchange_offer(struct flock_agent *f, const struct peer_id *to, bool final)
{
	struct exchange_terms ours;
	struct exchange_event e = {.kind = EXCHANGE_EVENT_START, .peer = *to};
	fill_terms(f, &ours, final);
	e.start.ours = &ours;
	e.start.deadline_ms = transfer_ms(f, to, ours.format);
	e.start.entry = f->entry;
	f->entry = 0;
	if (e.start.entry != 0)
		ledger_tried(&f->ledger, e.start.entry, to);
	step(f, e);
}

bool flock__exchange_begin(struct flock_agent *f, bool final)
{
	struct peer_id to;
	if (!flock__exchange_idle(f) || f->stepping)
		return false;
	flock__candidates(f);
	if (!partners_draw(f->partners, f->candidate, f->n_candidates, f->now_ms, &to))
		return false;
	flock__exchange_offer(f, &to, final);
	return true;
}

void flock__exchange_steps(struct flock_agent *f, const struct learner_step *s, int n)
{
	flock__candidates(f);
	for (int i = 0; i < n; i++) {
		const struct gate_step g = {.step = s[i].r.step,
		        .now_ms = f->now_ms,
		        .norm2 = s[i].r.grad_norm * s[i].r.grad_norm,
		        .layer_norms = s[i].layer_norms};
		struct gate_decision d = gate_step(f->gate, &g);
		uint64_t number = ledger_decision(&f->ledger, s[i].r.step, f->now_ms, &d,
		        f->n_total * convert_word((enum convert_format)f->c.config->gossip.wire));
		if (!d.exchange || f->n_candidates == 0 || f->phase != FLOCK_TRAINING ||
		        flock__stale(f))
			continue;
		bool engaged = !flock__exchange_idle(f);
		if (!engaged)
			f->entry = number;
		if (engaged || !flock__exchange_begin(f, false)) {
			if (!engaged)
				f->entry = 0;
			gate_owed(f->gate, f->now_ms);
		}
	}
}

/* ---- beginning and end */

static int open_gate(struct flock_agent *f, struct err *e)
{
	const struct config *c = f->c.config;
	struct gate_config g = {.mode = (enum gate_mode)c->gossip.gate,
	        .delta = c->gossip.delta,
	        .smooth = c->gossip.gate == GATE_SELSYNC ? 0.01 : 0.16,
	        .warm = 25,
	        .every = (uint32_t)c->gossip.every,
	        .chance = c->gossip.chance,
	        .exchanges_per_s = c->gossip.exchanges_per_s,
	        .bytes_per_s = c->gossip.bytes_per_s,
	        .bytes_per_day = c->gossip.bytes_per_day,
	        .incoming_share = c->gossip.incoming_share,
	        .cap_bytes_per_s = c->gossip.upload_cap,
	        .silence_steps = (uint64_t)c->gossip.silence_steps,
	        .silence_ms = (uint64_t)(c->gossip.silence_s * 1000),
	        .exchange_bytes = f->n_total * convert_word((enum convert_format)c->gossip.wire)};
	randombytes_buf(&g.seed, sizeof g.seed);
	return gate_init(f->gate, &g, uv_now(f->c.loop), e);
}

int flock__exchange_open(struct flock_agent *f, struct err *e)
{
	const struct config *c = f->c.config;
	struct partners_config p = {.rate = c->gossip.peer_rate,
	        .burst = c->gossip.peer_rate < 4 ? 4 : c->gossip.peer_rate,
	        .per_byte_ms = 0.001};
	struct exchange_config x = {.self = f->c.self,
	        .manifest = f->manifest,
	        .n_groups = (uint8_t)f->groups->n,
	        .offer_ms = 3000,
	        .hold_ms = 4000,
	        .settle_ms = 30000};
	randombytes_buf(&p.seed, sizeof p.seed);
	randombytes_buf(&x.seed, sizeof x.seed);
	flock__wire_used(&f->wire);
	f->gate = calloc(1, gate_size());
	f->partners = calloc(1, partners_size());
	f->exchange = calloc(1, exchange_size());
	f->snapshot = learner_buffer(f->learner, f->n_total * sizeof(float));
	f->staging = learner_buffer(f->learner, f->n_total * sizeof(float));
	if (!f->gate || !f->partners || !f->exchange || !f->snapshot || !f->staging)
		return err_set(
		        e, ERR_NOMEM, "no memory for exchanges of %zu parameters", f->n_total);
	partners_init(f->partners, &p);
	exchange_init(f->exchange, &x);
	clip_init(&f->clip, f->groups->n);
	ledger_init(&f->ledger);
	return open_gate(f, e);
}

void flock__exchange_close(struct flock_agent *f)
{
	flock__wire_close(&f->wire);
	free(f->gate);
	free(f->partners);
	free(f->exchange);
	learner_buffer_free(f->learner, f->snapshot);
	learner_buffer_free(f->learner, f->staging);
}
