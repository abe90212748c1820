/* SPDX-License-Identifier: MIT */
/* What a partner sent, before it is believed.
 *
 *     transfer whole ──► a sketch of what came ──► judged ──► machine
 *
 * The sketch is made by a worker, or by a device that measures what came anyway: it tells that of
 * the difference, and sketches can be added.
 *
 * Two questions are asked. Is it near what the peer's own sketch has told (flock__lied)? And has
 * the peer moved since we last met? In a symmetric exchange both sides go towards each other, by a
 * way that both know; and they train. One that sends the same parameters again did neither: it
 * gives what it had long ago, for ever, while everybody else is drawn to it. Clipping does not help
 * at the end, when nobody trains any more: among those who average, the one that never moves wins.
 *
 * Only what is the same up to rounding counts, and only when the peer should have moved by much
 * more than that: no honest one comes back to the very place where it was. One that moves a little
 * each time is not noticed here; clipping bounds what it can do.
 *
 * What can fail: a worker may not start, then nothing is compared. One that is accused is not used,
 * and asked again later; after some accusations in a row it is quarantined. */
#include "agent/flock_core.h"

#include <assert.h>
#include <string.h>

#define CHUNK 4096 /* words, of which a worker makes what came */
#define LIES 2     /* failures in a row, before one more is held against a peer */

/* What came is kept as a difference from our own snapshot, which is kept as it travels. */
static void on_hear(uv_work_t *w)
{
	struct flock_agent *f = w->data;
	const struct convert *c = convert_best();
	size_t n = learner_trainer(f->learner)->arch.n_train, word = convert_word(f->moving);
	const uint8_t *ours = f->snapshot;
	float y[CHUNK];
	memset(&f->heard, 0, sizeof f->heard);
	for (size_t at = 0; at < n; at += CHUNK) {
		size_t k = n - at < CHUNK ? n - at : CHUNK;
		struct convert_sums sums = {0};
		c->take(f->moving, y, ours + at * word, NULL, k, TAKE_WORDS, &sums);
		c->add(y, f->staging + at, 1, k);
		sketch_add(&f->heard, y, at, k);
	}
}

static void on_heard(uv_work_t *w, int status)
{
	struct flock_agent *f = w->data;
	f->sketching = false;
	f->now_ms = uv_now(f->c.loop);
	f->has_heard = status == 0;
	if (f->node)
		flock__exchange_sketched(f);
}

void flock__measured(void *arg)
{
	struct flock_agent *f = arg;
	f->measuring = false;
	f->now_ms = uv_now(f->c.loop);
	if (!f->moved_waits || !f->node)
		return;
	if (f->measure.finite) {
		f->heard = f->sketch_next; /* of our snapshot, as it travelled */
		for (int i = 0; i < SKETCH_BUCKETS; i++)
			f->heard.bucket[i] += f->measure.sketch.bucket[i];
		f->has_heard = true;
		flock__exchange_measured(f, f->measure.group2);
	} else {
		f->moved.moved.code = ERR_NONFINITE;
	}
	flock__exchange_sketched(f);
}

/* Trained, by its own word. */
static uint64_t samples_of(const struct flock_agent *f, const struct peer_id *id)
{
	struct member_view v;
	return gossip_find(node_gossip(f->node), id, &v) ? v.record.status.samples : 0;
}

void flock__heard(struct flock_agent *f, const struct exchange_result *r)
{
	double beta = r->final ? 0.5 : f->c.config->gossip.beta;
	struct meeting m = {.id = r->peer,
	        .at_ms = f->now_ms,
	        .sketch = f->heard,
	        .moved = flock__moved(f),
	        .own = flock__samples(f),
	        .theirs = samples_of(f, &r->peer)};
	if (r->mode == EXCHANGE_PAIR && r->outcome == OUTCOME_EXCHANGED)
		m.way = beta * (double)r->factor * r->distance;
	if (f->has_heard)
		meetings_enter(&f->meetings, &m);
}

double flock__may_be_apart(const struct flock_agent *f, const struct peer_id *id)
{
	return meeting_may_be_apart(meetings_find(&f->meetings, id), flock__moved(f),
	        flock__samples(f), samples_of(f, id));
}

static bool stands_still(const struct flock_agent *f, const struct peer_id *id)
{
	return f->has_heard && meeting_stands_still(meetings_find(&f->meetings, id), &f->heard);
}

void flock__exchange_sketched(struct flock_agent *f)
{
	struct peer_id from = exchange_peer(f->exchange);
	const struct partner *p = partners_find(f->partners, &from);
	if (!f->moved_waits)
		return;
	if (f->has_distance2 && !f->has_heard) {
		assert(!f->sketching);
		f->sketch_work.data = f;
		f->sketching = uv_queue_work(f->c.loop, &f->sketch_work, on_hear, on_heard) == 0;
		if (f->sketching)
			return;
	}
	f->moved_waits = false;
	/* Its sketch may be older than its parameters, once; or it came back from an older
	 * checkpoint. One that goes on like that is not mistaken. */
	if (f->has_distance2 &&
	        (flock__lied(f, &from, f->moved.moved.distance) || stands_still(f, &from)))
		f->moved.moved.code = p && p->strikes >= LIES ? ERR_MISMATCH : ERR_INVALID;
	flock__exchange_event(f, &f->moved);
}
