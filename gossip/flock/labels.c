/* SPDX-License-Identifier: MIT */
/* Whose agents they are: what a label may count for.
 *
 * In a flock with an owner every member has a label, whose invites state a number of agents and
 * perhaps a rate. Whoever has an invite can make any number of ids. So everything that ids could
 * multiply counts by label:
 *
 *     who counts    of a label's live ids the lowest, as many as it has agents: as candidates for
 *                   exchanges, as witnesses, on a side of a flock that was apart. One in quarantine
 *                   keeps its place taken: a new id does not come in its stead
 *     claims        the samples of all its ids, gone ones included, are at most agents × (first +
 *                   rate × time); claims.c has the same for one id
 *     medians       as many of its ids as it has agents have a say in how old the run is and how
 *                   fast agents are
 *     offers        its ids together begin as many exchanges with us as its agents may
 *     pulls         they move us by no more than its agents may (partners.h)
 *     donations     half of the places at most, and no more than it has agents
 *
 * An id whose label is not known yet does not count. Several invites with one label add up. With
 * one label in the flock its agents count singly, and so they do where there is no owner.
 *
 * What can fail: of more than FLOCK_LABELS labels, each of which the owner has signed, the later
 * ones count singly, too. */
#include "gossip/flock/flock_internal.h"

static struct flock__label *row(struct flock *f, uint64_t label)
{
	struct flock__labels *t = &f->labels;
	for (int i = 0; label != 0 && i < t->n; i++)
		if (t->of[i].label == label)
			return &t->of[i];
	if (label == 0 || t->n == FLOCK_LABELS)
		return NULL;
	t->of[t->n] = (struct flock__label){.label = label, .tokens_ms = f->now_ms};
	return &t->of[t->n++];
}

/* NULL: its id counts for itself alone. */
static struct flock__label *row_of(struct flock *f, const struct peer_id *id)
{
	struct member_view v;
	return f->labels.many && gossip_find(f->membership, id, &v) ? row(f, v.label) : NULL;
}

/* ---- who counts */

/* Ids in their order, by their first bytes: who makes two that are alike there has one more. */
static uint64_t key_of(const struct peer_id *id)
{
	uint64_t k = 0;
	for (int i = 0; i < 8; i++)
		k = k << 8 | id->bytes[i];
	return k;
}

/* The smallest key that at least so many of them do not exceed. */
static uint64_t lowest(const uint64_t *key, uint32_t n, uint32_t many)
{
	uint64_t low = 0, high = UINT64_MAX;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		uint32_t under = 0;
		for (uint32_t i = 0; i < n; i++)
			under += key[i] <= middle;
		if (under >= many)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool is_live(const struct flock *f, const struct member_view *v)
{
	return v->state == MEMBER_ALIVE && v->record.status.model == f->model_hash &&
	       !flock__quarantined(f, &v->record.id);
}

/* More live than may count. */
static void find_last(struct flock *f, struct flock__label *r, uint32_t may)
{
	uint64_t key[FLOCK_CANDIDATES];
	uint32_t n = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership) && n < FLOCK_CANDIDATES; i++) {
		struct member_view v = gossip_member(f->membership, i);
		if (v.label == r->label && is_live(f, &v))
			key[n++] = key_of(&v.record.id);
	}
	r->full = n > may;
	r->may = may;
	r->last = r->full ? lowest(key, n, may) : 0;
}

void flock__labels_look(struct flock *f)
{
	struct flock__labels *t = &f->labels;
	t->many = gossip_many_labels(f->membership);
	t->owned = gossip_label(f->membership) != 0;
	for (int i = 0; i < t->n; i++)
		t->of[i].agents = t->of[i].live = t->of[i].barred = 0;
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view v = gossip_member(f->membership, i);
		struct flock__label *r = row(f, v.label);
		if (!r)
			continue;
		/* They differ while an invite has just become known. */
		r->agents = v.agents > r->agents ? v.agents : r->agents;
		r->rate = v.rate;
		partners_label(f->partners, &v.record.id, v.label);
		r->live += is_live(f, &v);
	}
	for (uint32_t i = 0; i < partners_count(f->partners); i++) {
		const struct partner *p = partners_get(f->partners, i);
		struct flock__label *r = p->quarantine_ms > f->now_ms ? row(f, p->label) : NULL;
		if (r)
			r->barred++;
	}
	for (int i = 0; i < t->n; i++) {
		struct flock__label *r = &t->of[i];
		uint32_t may = r->agents > r->barred ? r->agents - r->barred : 0;
		r->full = false;
		if (t->many && r->live > may)
			find_last(f, r, may);
	}
}

bool flock__label_counts(const struct flock *f, const struct member_view *v)
{
	const struct flock__labels *t = &f->labels;
	if (t->owned && v->label == 0)
		return false;
	for (int i = 0; t->many && v->label != 0 && i < t->n; i++) {
		const struct flock__label *r = &t->of[i];
		if (r->label == v->label)
			return !r->full || (r->may > 0 && key_of(&v->record.id) <= r->last);
	}
	return true;
}

/* ---- claims */

void flock__labels_grow(struct flock *f, const struct flock__pace *usual)
{
	struct flock__labels *t = &f->labels;
	for (int i = 0; i < t->n; i++) {
		struct flock__label *r = &t->of[i];
		struct flock__pace p = flock__pace_at(usual, r->rate);
		double first = r->agents * p.first;
		if (r->agents > r->granted) { /* new ones, who may have trained before */
			r->allowed += (r->agents - r->granted) * p.first;
			r->granted = r->agents;
		} else {
			r->allowed += r->agents * p.growth;
			if (!r->judged && first > r->allowed)
				r->allowed = first;
		}
		r->judged = r->judged || (r->granted > 0 && p.aged);
	}
}

uint64_t flock__label_count(struct flock *f, const struct peer_id *id, uint64_t had, uint64_t wants)
{
	struct member_view v;
	struct flock__label *r = gossip_find(f->membership, id, &v) ? row(f, v.label) : NULL;
	if (!r || wants <= had)
		return wants;
	uint64_t most = (uint64_t)r->allowed, left = most > r->counted ? most - r->counted : 0;
	uint64_t more = !f->labels.many || wants - had < left ? wants - had : left;
	r->counted += more;
	return had + more;
}

void flock__labels_poll(struct flock *f)
{
	for (int i = 0; i < f->labels.n; i++)
		f->labels.of[i].voted = 0;
}

bool flock__label_votes(struct flock *f, uint64_t label)
{
	struct flock__label *r = f->labels.many ? row(f, label) : NULL;
	return !r || r->voted++ < r->agents;
}

/* ---- offers, donations, pulls */

enum exchange_why flock__admit(struct flock *f, const struct peer_id *id)
{
	enum exchange_why why = partners_admit(f->partners, id, f->now_ms);
	struct member_view v;
	if (!f->labels.many || why != EXCHANGE_WILLING)
		return why;
	/* One whose record we do not have yet could be any number of them. */
	if (!gossip_find(f->membership, id, &v) || !flock__label_counts(f, &v))
		return EXCHANGE_OTHER;
	struct flock__label *r = row(f, v.label);
	if (!r)
		return why;
	double rate = flock__peer_rate(f), most = r->agents * flock__burst(rate);
	r->tokens += r->agents * rate * (double)(f->now_ms - r->tokens_ms) / 1000;
	r->tokens_ms = f->now_ms;
	if (r->tokens > most || !r->admitted)
		r->tokens = most;
	r->admitted = true;
	if (r->tokens < 1)
		return EXCHANGE_RATE;
	r->tokens -= 1;
	return EXCHANGE_WILLING;
}

bool flock__label_may_fetch(struct flock *f, const struct peer_id *id)
{
	const struct flock__label *r = row_of(f, id);
	uint32_t n = 0;
	if (!r)
		return true;
	for (int i = 0; i < FLOCK_DONATIONS; i++) {
		const struct flock__donation *g = &f->donate.to[i];
		n += g->stage != DONATION_FREE && !peer_id_equal(&g->to, id) &&
		     row_of(f, &g->to) == r;
	}
	return n < r->agents && n < FLOCK_DONATIONS / 2;
}

double flock__pull_left(struct flock *f, const struct peer_id *id)
{
	const struct flock__label *r = row_of(f, id);
	double own = partners_pull_left(f->partners, id);
	double all = r ? partners_label_pull_left(f->partners, r->label, r->agents) : own;
	return all < own ? all : own;
}
