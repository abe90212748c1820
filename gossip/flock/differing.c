/* SPDX-License-Identifier: MIT */
/* Peers with another manifest than ours: they are asked for it, each difference is told in words,
 * and a newcomer that finds nobody else in its run ends, since waiting would not help it.
 *
 * A FETCH asks: it carries our manifest, and a peer that has another one answers with its own at
 * any time, however busy it is. Should it give its state instead, nobody takes it.
 *
 * What can fail: no answer (the peer is asked again), a lie. A peer speaks only for itself, and it
 * takes two of them, or one that is the only one, to end a newcomer. An agent that began alone, has
 * trained with anybody, went on from a checkpoint or has trained for a while is no newcomer:
 * strangers do not end it. */
#include "gossip/flock/flock_internal.h"

static const struct manifest *manifest_of(const struct exchange_message *m)
{
	switch ((enum exchange_message_kind)m->kind) {
	case EXCHANGE_OFFER:
	case EXCHANGE_ACCEPT:
		return &m->terms.manifest;
	case EXCHANGE_FETCH:
		return &m->fetch.manifest;
	case EXCHANGE_GIFT:
		return &m->gift.manifest;
	case EXCHANGE_BUSY:
	case EXCHANGE_ABORT:
		return m->busy.why == EXCHANGE_UNLIKE ? &m->busy.manifest : NULL;
	default:
		return NULL;
	}
}

void flock__unlike_heard(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m)
{
	const struct manifest *theirs = manifest_of(m);
	struct member_view v;
	if (!theirs || !gossip_find(f->membership, from, &v) || v.record.status.model == 0)
		return;
	if (!unlike_heard(&f->unlike, from, v.record.status.model,
	            manifest_compare(theirs, &f->c.manifest), f->now_ms))
		return;
	f->candidates.at_ms = 0;
	struct flock_say *s = flock__say(f, SAY_UNLIKE);
	s->peer = *from;
	manifest_words(theirs, &f->c.manifest, s->words);
}

/* One that is suspected may be fine. */
static bool trains(const struct member_view *v)
{
	bool here = v->state == MEMBER_ALIVE || v->state == MEMBER_SUSPECT;
	return here && v->record.status.model != 0;
}

static bool newcomer(const struct flock *f)
{
	return !f->c.alone && !f->c.resumed && !f->joined &&
	       f->counts.begun + f->counts.taken == 0 && flock__samples(f) < f->c.fresh;
}

void flock__unlike_tick(struct flock *f)
{
	if (f->now_ms < f->unlike_ms)
		return;
	uint32_t n = gossip_count(f->membership), first = f->unlike_at;
	for (uint32_t k = 0; k < n; k++) { /* in turn: one may be silent for ever */
		uint32_t i = (first + k) % n;
		struct member_view v = gossip_member(f->membership, i);
		if (!trains(&v) || v.record.status.model == f->model_hash ||
		        !unlike_ask(&f->unlike, &v.record.id, v.record.status.model, f->now_ms))
			continue;
		struct exchange_message m = {.kind = EXCHANGE_FETCH};
		m.fetch.manifest = f->c.manifest;
		m.exchange = rng_u64(&f->wire_rng) | 1; /* never 0 */
		flock__send(f, &v.record.id, &m);
		f->unlike_at = i + 1;
		f->unlike_ms = newcomer(f) ? 0 : f->now_ms + UNLIKE_EVERY_MS;
		return;
	}
}

struct unlike_count flock__unlike_count(const struct flock *f)
{
	struct unlike_count c = {0};
	for (uint32_t i = 0; i < gossip_count(f->membership); i++) {
		struct member_view v = gossip_member(f->membership, i);
		if (trains(&v))
			unlike_count(
			        &f->unlike, &c, &v.record.id, v.record.status.model, f->model_hash);
	}
	return c;
}

bool flock__unlike_all(struct flock *f)
{
	if (!newcomer(f))
		return false;
	struct unlike_count c = flock__unlike_count(f);
	uint32_t differs = unlike_verdict(&c);
	if (differs == 0)
		return false;
	struct flock_say *s = flock__say(f, SAY_ALL_UNLIKE);
	s->a = c.unlike;
	_Static_assert(sizeof s->words > MANIFEST_KEYS_MAX, "all keys fit");
	manifest_keys(differs, s->words);
	f->finish.refused = true;
	flock__leave(f, ERR_MISMATCH);
	return true;
}
