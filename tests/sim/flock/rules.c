/* SPDX-License-Identifier: MIT */
/* The rules of gossip/README.md, seen from outside: by what an agent was told, has sent and said.
 *
 * Staleness is counted once more here, a little more leniently than the core does: whoever is stale
 * by this account must know it. */
#include "tests/sim/flock/flock_sim.h"

#include <string.h>

#define SLEPT_MS 1000
#define SLEPT_LONG_MS 5000
#define SEEN_MS 700
#define NEWS_MS 30000   /* in which what was trained is known to all */
#define STALE_MS 2500   /* that an idle agent may be stale and train: buffers come free late */
#define CUT_OFF_MS 1500 /* without a candidate */
#define JOIN_MS 32000   /* the longest wait of a join, 20 s of it for a donor's step; transfers and
                         * our own learner left out */
#define CONN_MS 60000   /* the longest life of a connection that nobody uses */
#define BACKOFF_MS 500  /* the shortest */
#define OFFER_MS 4200
#define PLACE_MS 15000 /* that a donor waits for a joiner's connection */
#define SETTLE_MS 30000
#define NEAR 0.9e-4 /* of its length: a little nearer than what the core takes for near */
#define LENIENT 1.3 /* the core looks at the clock ten times a second only */

static struct fsim_rules *rules_of(struct fsim *w, int i)
{
	return &w->agent[i].rules;
}

void rules_start(struct fsim *w, int i, const struct flock_config *c)
{
	struct fsim_rules *r = rules_of(w, i);
	uint64_t samples = r->samples;
	memset(r, 0, sizeof *r);
	r->samples = samples;
	r->others = r->then = c->others;
	r->own = r->known_own = c->samples + c->samples_before;
	r->at_ms = r->join_ms = w->now_ms;
	r->alone = c->alone;
}

static bool stale(const struct fsim *w, const struct fsim_rules *r, uint64_t others, uint64_t own)
{
	uint64_t missed = others > r->others ? others - r->others : 0;
	uint64_t trained = own > r->own ? own - r->own : 0;
	/* Being cut off is noticed half a second later here than by the core. */
	return (double)missed > LENIENT * FSIM_STALE * (double)w->total &&
	       (double)missed > LENIENT * (double)trained;
}

/* Our parameters have moved towards a partner's. */
static void exchanged(struct fsim_rules *r)
{
	if (r->snapshot_others <= r->then)
		return;
	r->then = r->snapshot_others;
	if (r->snapshot_others > r->others) {
		r->others = r->snapshot_others;
		r->own = r->snapshot_own;
	}
	if (r->snapshot_ms >= r->woke_ms) {
		r->apart_ms = 0;
		r->others = r->known; /* the core's next look takes this for news */
	}
}

/* ---- what was said */

static void said_exchange(struct fsim *w, int i, const struct exchange_result *x)
{
	struct fsim_rules *r = rules_of(w, i);
	int with = world_find(w, &x->peer);
	bool failed = x->outcome == OUTCOME_TIMEOUT || x->outcome == OUTCOME_BROKEN ||
	              x->outcome == OUTCOME_BAD || x->outcome == OUTCOME_ONE_SIDED;
	bool done = x->outcome == OUTCOME_EXCHANGED;
	if (done && !x->late)
		exchanged(r);
	if (failed || done)
		r->failed_ms[with] = failed ? w->now_ms : 0;
	r->offer_ms = w->now_ms;
	if (x->code == ERR_NONFINITE || x->code == ERR_FORMAT) {
		struct flock_view v;
		flock_view(w->agent[i].core, &v);
		const struct partner *p = partners_find(v.partners, &x->peer);
		if (!p || p->quarantine_ms <= w->now_ms - w->agent[i].behind_ms)
			fsim_fail(w, "agent %d does not quarantine %d, which sent what is none", i,
			        with);
	}
	if (x->outcome == OUTCOME_UNLIKE && i != w->stranger && with != w->stranger)
		fsim_fail(w, "agent %d believes that %d differs", i, with);
	/* What no step has taken yet nobody can tell. */
	bool first = w->setup.pace && (w->agent[i].toy.step < 2 || w->agent[with].toy.step < 2);
	if (w->n_faults == 0 && i != w->liar && with != w->liar && !first &&
	        (x->outcome == OUTCOME_TIMEOUT || x->outcome == OUTCOME_ONE_SIDED))
		fsim_fail(w, "agent %d: an exchange with %d is %s, and nothing was wrong", i, with,
		        exchange_outcome_text(x->outcome));
	if ((x->code == ERR_INVALID || x->code == ERR_MISMATCH) &&
	        x->distance < NEAR * check_distance(w, w->agent[i].toy.x, NULL))
		fsim_fail(w, "agent %d accuses %d, which is where it is itself", i, with);
	if (x->outcome == OUTCOME_CROSSED && memcmp(&w->agent[i].id, &x->peer, sizeof x->peer) < 0)
		fsim_fail(w, "agent %d gives way to the higher id", i);
}

static void in_touch(struct fsim_rules *r, uint64_t others, uint64_t own)
{
	r->others = r->then = others;
	r->own = own;
	r->apart_ms = 0;
	r->stale = false;
}

static void said(struct fsim *w, int i, const struct flock_say *s, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	uint64_t own = flock_samples(w->agent[i].core), others = v->clock - own;
	switch (s->code) {
	case SAY_EXCHANGE:
		said_exchange(w, i, s->result);
		break;
	case SAY_JOINED:
		r->joined = true;
		in_touch(r, others, own);
		break;
	case SAY_JOIN_NOBODY:
	case SAY_NO_RESULT:
		r->gave_up = true;
		in_touch(r, others, own);
		break;
	case SAY_PHASE:
		if (r->phase == FLOCK_LOOKING && s->a != FLOCK_LEAVING && r->looks_ms != 0 &&
		        w->now_ms < r->looks_ms + SEEN_MS - 100)
			fsim_fail(w, "agent %d goes by what it saw before it slept", i);
		if (r->phase == FLOCK_JOINING && s->a != FLOCK_LEAVING && !r->joined) {
			if (!r->gave_up)
				fsim_fail(w, "agent %d is %s while it joins", i,
				        flock_phase_text((enum flock_phase)s->a));
			if (v->clock >= w->total && stale(w, r, others, own))
				fsim_fail(w, "agent %d has no part of the run's end, and is %s", i,
				        flock_phase_text((enum flock_phase)s->a));
		}
		if (r->stale && s->a == FLOCK_MERGING)
			fsim_fail(w, "agent %d is stale, and merges", i);
		if (r->phase <= FLOCK_JOINING && s->a != FLOCK_JOINING) {
			in_touch(r, others, own);
		}
		r->joined = r->gave_up = false;
		r->phase = (uint8_t)s->a;
		break;
	default:
		break;
	}
	if (s->code >= SAY_JOIN_ASKING && s->code <= SAY_JOINED)
		r->join_ms = w->now_ms;
}

/* ---- time */

static void follow(struct fsim *w, int i, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	uint64_t own = flock_samples(w->agent[i].core), others = v->clock - own;
	uint64_t gap = w->now_ms - r->at_ms;
	if (gap > SLEPT_MS) {
		r->woke_ms = r->apart_ms = r->stale_ms = r->lonely_ms = r->join_ms = w->now_ms;
		w->agent[i].exchange_since_ms = w->now_ms;
		for (int k = 0; k < FSIM_CONNS; k++)
			w->agent[i].conn[k].since_ms = w->now_ms;
	}
	if (gap > SLEPT_LONG_MS && v->phase == FLOCK_LOOKING)
		r->looks_ms = w->now_ms;
	if (v->candidates > 0 || (others == 0 && r->alone))
		r->lonely_ms = w->now_ms;
	if (w->now_ms - r->lonely_ms > CUT_OFF_MS)
		r->apart_ms = w->now_ms;
	if (v->phase == FLOCK_TRAINING && others > r->known &&
	        (r->apart_ms == 0 || w->now_ms >= r->apart_ms + NEWS_MS)) {
		r->others += others - r->known;
		r->then += others - r->known;
		r->own += own - r->known_own;
	}
	if (others != r->known)
		r->known_own = own;
	r->known = others;
	r->at_ms = w->now_ms;
}

static void check_stale(struct fsim *w, int i, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	/* What comes with an offer is believed after it is judged; and own steps may make up for
	 * what was missed. */
	r->was_stale = r->stale;
	r->stale = v->phase == FLOCK_TRAINING && stale(w, r, r->known, r->samples);
	if (!r->stale || v->joining || v->exchange_state != EXCHANGE_IDLE ||
	        w->agent[i].owner[SLOT_SNAPSHOT] != OWNER_NONE)
		r->stale_ms = w->now_ms;
	if (w->now_ms - r->stale_ms > STALE_MS)
		fsim_fail(w, "agent %d is stale, and trains on", i);
}

/* A join waits for a donor's answer, or its connection, for so long at most. */
static void check_join(struct fsim *w, int i, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	if (!v->joining || w->agent[i].owner[SLOT_FETCHED] != OWNER_NONE)
		r->join_ms = w->now_ms;
	if (w->now_ms - r->join_ms > JOIN_MS)
		fsim_fail(w, "agent %d waits for a donor for ever", i);
}

static void check_conns(struct fsim *w, int i)
{
	for (int k = 0; k < FSIM_CONNS; k++) {
		const struct fsim_conn *c = &w->agent[i].conn[k];
		if (c->exchange && !c->started && w->now_ms - c->since_ms > CONN_MS)
			fsim_fail(w, "agent %d neither uses nor closes a connection", i);
	}
}

/* An offer is answered soon, or given up. */
static void check_waits(struct fsim *w, int i, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	if (v->exchange_state != EXCHANGE_OFFERED || w->now_ms - r->at_ms > SLEPT_MS)
		r->offer_ms = w->now_ms;
	if (w->now_ms - r->offer_ms > OFFER_MS)
		fsim_fail(w, "agent %d waits for an answer for ever", i);
	bool settles =
	        v->exchange_state >= EXCHANGE_COMMITTED && v->exchange_state != EXCHANGE_APPLYING;
	if (!settles || w->now_ms - r->at_ms > SLEPT_MS)
		r->settle_ms = w->now_ms;
	if (w->now_ms - r->settle_ms > 2 * EXCHANGE_HOLD_MS)
		fsim_fail(w, "agent %d keeps the place of an unsettled exchange", i);
}

/* ---- exchanges that are not settled */

static bool told(const struct fsim *w, uint64_t exchange, bool done)
{
	for (int k = 0; k < w->actions.n_says; k++) {
		const struct flock_say *s = &w->actions.say[k];
		if (s->code == SAY_EXCHANGE && s->result->exchange == exchange &&
		        (!done || s->result->outcome == OUTCOME_EXCHANGED))
			return true;
	}
	return false;
}

/* Who hears that its partner has applied applies, or has. */
static void check_follows(
        struct fsim *w, int i, const struct flock_event *e, const struct flock_view *v)
{
	const struct fsim_rules *r = rules_of(w, i);
	const struct exchange_message *m = e->message;
	if (e->kind != FLOCK_EVENT_MESSAGE || r->state < EXCHANGE_COMMITTED ||
	        m->exchange != r->exchange || v->phase == FLOCK_LEAVING)
		return;
	bool applied = m->kind == EXCHANGE_ACK ||
	               (m->kind == EXCHANGE_SETTLE && m->settlement == SETTLE_APPLIED);
	if (applied && v->exchange_state != EXCHANGE_APPLYING && !told(w, m->exchange, true))
		fsim_fail(w, "agent %d does not follow %d, which has moved", i,
		        world_find(w, &e->peer));
}

/* What is put aside ends, too. */
static void check_aside(struct fsim *w, int i, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	bool slept = w->now_ms - r->at_ms > SLEPT_MS;
	bool put = r->state == EXCHANGE_UNSETTLED && v->exchange_state < EXCHANGE_COMMITTED &&
	           !told(w, r->exchange, false);
	if (put && r->applied == r->exchange)
		exchanged(r);
	for (int k = 0; k < EXCHANGE_ASIDE_MAX; k++) {
		if (put && r->aside[k].exchange == 0) {
			r->aside[k].exchange = r->exchange;
			r->aside[k].since_ms = w->now_ms;
			put = false;
		}
		if (slept)
			r->aside[k].since_ms = w->now_ms;
		if (told(w, r->aside[k].exchange, false))
			r->aside[k].exchange = 0;
		if (r->aside[k].exchange != 0 && v->phase != FLOCK_LEAVING &&
		        w->now_ms - r->aside[k].since_ms > SETTLE_MS + SLEPT_MS)
			fsim_fail(w, "agent %d never tells how an exchange ended", i);
	}
	r->state = (uint8_t)v->exchange_state;
}

void rules_step(struct fsim *w, int i, const struct flock_event *e, const struct flock_view *v)
{
	struct fsim_rules *r = rules_of(w, i);
	uint64_t own = flock_samples(w->agent[i].core);
	bool merged = false;
	if (own < r->samples)
		fsim_fail(w, "agent %d has trained %llu samples, and says %llu", i,
		        (unsigned long long)r->samples, (unsigned long long)own);
	r->samples = own;
	if (e->kind == FLOCK_EVENT_APPLIED)
		r->applied = r->exchange;
	check_waits(w, i, v);
	check_follows(w, i, e, v);
	check_aside(w, i, v);
	follow(w, i, v);
	for (int k = 0; k < w->actions.n_says; k++) {
		const struct flock_say *s = &w->actions.say[k];
		said(w, i, s, v);
		merged = merged || (s->code == SAY_EXCHANGE && s->result->final);
	}
	for (int k = 0; k < w->actions.n_actions; k++) {
		const struct flock_action *a = &w->actions.action[k];
		if (a->kind == FLOCK_DO_SNAPSHOT) {
			r->snapshot_ms = w->now_ms;
			r->snapshot_others = r->known;
			r->snapshot_own = own;
		}
		if (a->kind == FLOCK_DO_TRANSFER && a->use >= USE_DONATE)
			r->given_ms[world_find(w, &a->peer)] = 0;
		if (a->kind == FLOCK_DO_CLOSE && a->exchange == r->exchange &&
		        v->exchange_state == EXCHANGE_PREPARING)
			fsim_fail(w, "agent %d closes the connection that it waits for", i);
	}
	if (merged && v->radius > 0 && r->radius > 0 && v->radius < r->radius)
		fsim_fail(w, "agent %d: a merge round makes the radius smaller", i);
	r->radius = v->radius;
	r->was_joining = r->joining;
	r->joining = v->joining;
	check_stale(w, i, v);
	check_join(w, i, v);
	check_conns(w, i);
}

/* ---- what is sent */

static void sent_offer(struct fsim *w, int i, int to, const struct exchange_terms *t)
{
	struct fsim_rules *r = rules_of(w, i);
	bool merging = r->phase == FLOCK_MERGING;
	if (t->final != merging)
		fsim_fail(w, "agent %d offers a merge round while it is %s", i,
		        flock_phase_text((enum flock_phase)r->phase));
	bool exact = t->format == 0 || (w->setup.lattice && t->format == FSIM_MOD8);
	if (t->final && (!exact || t->mode != EXCHANGE_PAIR || t->beta != 0.5f))
		fsim_fail(w, "agent %d offers a merge round that is not exact", i);
	if (r->failed_ms[to] != 0 && w->now_ms < r->failed_ms[to] + BACKOFF_MS)
		fsim_fail(w, "agent %d asks %d again at once, which has failed", i, to);
}

/* What was just taken instead of an own offer: that one was allowed. */
static bool crossed(const struct fsim *w)
{
	for (int k = 0; k < w->actions.n_says; k++)
		if (w->actions.say[k].code == SAY_EXCHANGE &&
		        w->actions.say[k].result->outcome == OUTCOME_CROSSED)
			return true;
	return false;
}

/* A peer begins only so many exchanges a second with us. */
static void check_rate(struct fsim *w, int i, int with)
{
	struct fsim_rules *r = rules_of(w, i);
	if (crossed(w))
		return;
	double most = w->peer_rate < 4 ? 4 : w->peer_rate;
	double since = (double)(w->now_ms - r->tokens_ms[with]) / 1000;
	double tokens = r->tokens_ms[with] ? r->tokens[with] + w->peer_rate * since : most;
	r->tokens_ms[with] = w->now_ms;
	r->tokens[with] = (tokens < most ? tokens : most) - 1;
	if (r->tokens[with] < -0.1)
		fsim_fail(w, "agent %d lets %d begin too many exchanges", i, with);
}

/* What is begun keeps to the upload cap, merge rounds too. */
static void check_cap(struct fsim *w, int i)
{
	const struct fsim_agent *g = &w->agent[i];
	struct flock_view v;
	double least = w->setup.lattice ? 0.5 * w->params : 2.0 * w->params;
	if (w->cap <= 0 || crossed(w))
		return;
	flock_view(g->core, &v);
	if (gate_view(v.gate, w->now_ms - g->behind_ms).cap_left < least)
		fsim_fail(w, "agent %d begins what its upload cap has no room for", i);
}

/* Who offers chooses the time and the format only. */
static void check_terms(struct fsim *w, int i, int to, const struct exchange_message *m)
{
	const struct fsim_rules *r = rules_of(w, i);
	bool over = r->phase >= FLOCK_MERGING || w->agent[i].clock >= w->total;
	if (to == w->liar && liar_said(w, m->exchange))
		fsim_fail(w, "agent %d accepts terms that are not the run's", i);
	if (m->terms.final && !over)
		fsim_fail(w, "agent %d accepts a merge round before the run is over", i);
	if (r->failed_ms[to] != 0 && w->now_ms < r->failed_ms[to] + BACKOFF_MS && !crossed(w))
		fsim_fail(w, "agent %d lets %d begin, which has just stalled", i, to);
}

/* The last place is for those with whom it has exchanged. Who was given one before, and has not
 * opened its connection yet, asks for no other. */
static void check_place(struct fsim *w, int i, int to)
{
	struct fsim_rules *r = rules_of(w, i);
	struct flock_view v;
	bool has = r->given_ms[to] != 0 && w->now_ms - r->given_ms[to] <= PLACE_MS;
	r->given_ms[to] = w->now_ms;
	if (has)
		return;
	flock_view(w->agent[i].core, &v);
	const struct partner *p = partners_find(v.partners, &w->agent[to].id);
	if (w->agent[i].readers >= FLOCK_DONATIONS - 1 && !(p && p->exchanged > 0))
		fsim_fail(w, "agent %d gives its last place to %d, a stranger", i, to);
}

void rules_sent(struct fsim *w, int i, int to, const struct exchange_message *m)
{
	struct fsim_rules *r = rules_of(w, i);
	const struct fsim_agent *g = &w->agent[i];
	if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT)
		r->exchange = m->exchange;
	if ((m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) && r->was_stale && r->stale)
		fsim_fail(w, "agent %d is stale, and %s an exchange", i,
		        m->kind == EXCHANGE_OFFER ? "offers" : "accepts");
	if ((m->kind == EXCHANGE_ACCEPT || m->kind == EXCHANGE_GIFT) &&
	        (i == w->stranger) != (to == w->stranger))
		fsim_fail(w, "agent %d has another manifest than %d, and takes its offer", i, to);
	if (m->kind == EXCHANGE_ACCEPT)
		check_rate(w, i, to);
	if (m->kind == EXCHANGE_ACCEPT)
		check_terms(w, i, to, m);
	if (m->kind == EXCHANGE_GIFT)
		check_place(w, i, to);
	if ((m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) && r->was_joining &&
	        r->joining)
		fsim_fail(w, "agent %d takes another's state, and exchanges meanwhile", i);
	if (m->kind == EXCHANGE_ACCEPT || m->kind == EXCHANGE_OFFER)
		check_cap(w, i);
	if (m->kind == EXCHANGE_OFFER)
		sent_offer(w, i, to, &m->terms);
	if (m->kind == EXCHANGE_GIFT && (r->phase < FLOCK_TRAINING || r->phase >= FLOCK_LEAVING ||
	                                        (g->toy.step == 0 && g->adoptions == 0)))
		fsim_fail(w, "agent %d has nothing to give, and gives it: it is %s", i,
		        flock_phase_text((enum flock_phase)r->phase));
}
