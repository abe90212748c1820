/* SPDX-License-Identifier: MIT */
/* What we think of a peer's offer, and of its refusals of ours. */
#include "gossip/flock/flock_internal.h"

#define IN_TOUCH_MS 15000

/* A sudden distance to a peer with whom we exchange all the time is not a partition that has
 * healed: it is clipped, and judged. */
static bool in_touch(const struct flock *f, const struct peer_id *id)
{
	const struct partner *p = partners_find(f->partners, id);
	return p && p->exchanged > 0 && f->now_ms - p->last_ms < IN_TOUCH_MS;
}

static enum exchange_why phase_allows(const struct flock *f)
{
	switch (f->phase) {
	case FLOCK_LOOKING:
	case FLOCK_JOINING:
		return EXCHANGE_JOINING;
	case FLOCK_PAUSED:
		return EXCHANGE_PAUSED;
	case FLOCK_LEAVING:
		return EXCHANGE_LEAVING;
	default:
		return EXCHANGE_WILLING;
	}
}

/* Who offers chooses the time and the wire format, nothing else. A merge round is in time once our
 * own clock says that the run is over, or we are done; a partner's word lifts that clock a little
 * (run_clock.c), so one that knows the last samples before we do is not refused. */
static enum exchange_why not_ours(
        const struct flock *f, const struct exchange_terms *t, const char **words)
{
	bool over = f->phase == FLOCK_MERGING || f->phase == FLOCK_FINISHED ||
	            flock__clock(f) >= f->c.manifest.total;
	if (t->final && !over) {
		*words = "a merge round before the run is over";
		return EXCHANGE_OTHER;
	}
	if (t->mode != (t->final ? EXCHANGE_PAIR : f->c.mode)) {
		*words = "another mode than the run's (gossip.exchange)";
		return EXCHANGE_UNKNOWN;
	}
	if (!(t->beta <= (t->final ? FLOCK_FINAL_BETA : f->c.beta))) {
		*words = "a larger weight of the merge than mine (gossip.beta)";
		return EXCHANGE_UNKNOWN;
	}
	return EXCHANGE_WILLING;
}

/* Without it nothing says where the peer is before its parameters come. */
static bool tells_sketch(const struct exchange_terms *t, struct sketch *out)
{
	return sketch_unpack(out, t->sketch, t->sketch_length);
}

/* What an exchange by that offer sends. */
static uint64_t bytes_of(
        const struct flock *f, const struct exchange_terms *t, const struct exchange_terms *ours)
{
	uint8_t format = exchange_agrees(f->exchange, t, ours);
	return f->c.exchange_bytes[format < f->c.n_formats ? format : 0];
}

static enum exchange_why willing(struct flock *f, const struct peer_id *from,
        const struct exchange_terms *t, const struct exchange_terms *ours, const char **words)
{
	struct sketch theirs;
	*words = NULL;
	if (manifest_compare(&t->manifest, &f->c.manifest) != 0)
		return EXCHANGE_WILLING; /* the machine refuses it, in words */
	enum exchange_why why = phase_allows(f);
	if (why == EXCHANGE_WILLING)
		why = not_ours(f, t, words);
	if (why != EXCHANGE_WILLING)
		return why;
	if (!tells_sketch(t, &theirs)) {
		*words = "no sketch";
		return EXCHANGE_UNKNOWN;
	}
	if (flock__joining(f) || flock__adopted_unproven(f) ||
	        (f->phase == FLOCK_TRAINING && (flock__stale(f) || flock__behind(f))))
		return EXCHANGE_JOINING; /* or as soon as the next tick */
	if (exchange_state(f->exchange) == EXCHANGE_OFFERED) {
		struct peer_id with = exchange_peer(f->exchange);
		if (peer_id_equal(&with, from))
			return EXCHANGE_WILLING; /* offers cross: the machine decides */
	}
	if (!flock__idle(f) || !f->divergence.has_own)
		return EXCHANGE_ENGAGED;
	why = flock__admit(f, from);
	if (why != EXCHANGE_WILLING)
		return why;
	if (!gate_admits(f->gate, f->now_ms, bytes_of(f, t, ours)))
		return EXCHANGE_BUDGET;
	/* By what everybody should have heard of by now. */
	double behind = (double)f->clock.known - (double)t->clock;
	if (!t->final && behind > f->c.stale * (double)f->c.manifest.total) {
		*words = "your clock is far behind the run's";
		return EXCHANGE_STALE;
	}
	if (flock__apart(f, &theirs) && !in_touch(f, from)) {
		*words = "your parameters are far from mine";
		flock__consider_adopting(f, from, &theirs);
		return f->divergence.adopt_ms ? EXCHANGE_JOINING : EXCHANGE_APART;
	}
	return EXCHANGE_WILLING;
}

/* A peer says that our parameters are far from its own: our own sketches decide. Only as an answer
 * to our offer: who says it unasked could choose the time. */
static void told_apart(struct flock *f, const struct peer_id *from, uint64_t exchange)
{
	struct sketch theirs;
	if (exchange_state(f->exchange) != EXCHANGE_OFFERED || exchange != f->x.number)
		return;
	struct peer_id asked = exchange_peer(f->exchange);
	if (peer_id_equal(&asked, from) && f->divergence.has_own &&
	        flock__peer_sketch(f, from, &theirs))
		flock__consider_adopting(f, from, &theirs);
}

void flock__exchange_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m)
{
	struct exchange_terms ours;
	const char *words;
	struct exchange_event e = {.kind = EXCHANGE_EVENT_RECEIVED, .peer = *from};
	e.received.message = m;
	if ((m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT) &&
	        manifest_compare(&m->terms.manifest, &f->c.manifest) == 0) {
		flock__claim(f, from, m->terms.samples);
		flock__told_clock(f, m->terms.clock);
		flock__keep_sketch(f, from, &m->terms);
	}
	if (m->kind == EXCHANGE_OFFER) {
		f->x.asked = f->x.asked || flock__scaled(f, m->terms.format);
		flock__terms(f, &ours, from, m->terms.final);
		e.received.ours = &ours;
		e.received.why = (uint8_t)willing(f, from, &m->terms, &ours, &words);
		e.received.words = words;
		f->counts.busy_given += e.received.why != EXCHANGE_WILLING;
	}
	if (m->kind == EXCHANGE_OFFER || m->kind == EXCHANGE_ACCEPT)
		e.received.deadline_ms = flock__transfer_ms(
		        f, from, m->terms.format, m->terms.final, m->terms.step_ms);
	struct sketch theirs;
	if (m->kind == EXCHANGE_ACCEPT && !tells_sketch(&m->terms, &theirs)) {
		e.received.why = EXCHANGE_UNKNOWN;
		e.received.words = "no sketch";
	}
	if (m->kind == EXCHANGE_BUSY && m->busy.why == EXCHANGE_APART)
		told_apart(f, from, m->exchange);
	flock__exchange(f, &e);
}
