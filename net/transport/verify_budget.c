/* SPDX-License-Identifier: MIT */
/* A table of sets of four: an id's set is a keyed hash of it, within a set the peer that was quiet
 * longest gives way. A peer's purse fills with time up to its burst. */
#include "net/transport/verify_budget.h"

#include "agent/base/rng.h"

#include <string.h>

#define MILLI 1000u
#define FULL ((uint64_t)VERIFY_BURST * MILLI)
#define SHARE_NS (SHARE_PCT * 10000) /* in a millisecond */
#define SHARE_FULL ((int64_t)SHARE_BURST_MS * 1000000)

_Static_assert((VERIFY_SETS & (VERIFY_SETS - 1)) == 0, "a mask");

void verify_init(struct verify_budget *b, uint64_t seed)
{
	memset(b, 0, sizeof *b);
	b->seed = seed;
}

/* Whether x should rather be forgotten than y. */
static bool rather(const struct verify_peer *x, const struct verify_peer *y, uint64_t now_ms)
{
	bool deaf_x = x->deaf_ms > now_ms, deaf_y = y->deaf_ms > now_ms;
	if (deaf_x != deaf_y)
		return deaf_y;
	return x->at_ms < y->at_ms;
}

static struct verify_peer *find(struct verify_budget *b, const struct peer_id *id, uint64_t now_ms)
{
	uint64_t key;
	memcpy(&key, id->bytes, sizeof key);
	key |= 1;
	struct verify_peer *set = b->peer[rng_mix(key, b->seed, 3) & (VERIFY_SETS - 1)], *p = set;
	for (int i = 0; i < VERIFY_WAYS; i++) {
		if (set[i].key == key)
			return &set[i];
		if (p->key != 0 && (set[i].key == 0 || rather(&set[i], p, now_ms)))
			p = &set[i];
	}
	*p = (struct verify_peer){.key = key,
	        .level = FULL,
	        .at_ms = now_ms,
	        .share_ns = SHARE_FULL,
	        .share_ms = now_ms};
	return p;
}

static void fill(struct verify_peer *p, uint64_t now_ms)
{
	uint64_t past = now_ms > p->at_ms ? now_ms - p->at_ms : 0;
	if (past >= FULL / VERIFY_RATE || p->level + past * VERIFY_RATE > FULL)
		p->level = FULL;
	else
		p->level += past * VERIFY_RATE;
	p->at_ms += past;
}

bool verify_may(struct verify_budget *b, const struct peer_id *from, bool datagram, uint64_t now_ms)
{
	struct verify_peer *p = find(b, from, now_ms);
	if (b->turn_ms != now_ms) {
		b->turn_ms = now_ms;
		b->turn_us = 0;
	}
	fill(p, now_ms);
	if (p->deaf_ms > now_ms || p->level < MILLI || (datagram && b->turn_us >= VERIFY_TURN_US)) {
		b->left_out++;
		return false;
	}
	p->level -= MILLI;
	return true;
}

bool verify_done(struct verify_budget *b, const struct peer_id *from, bool good, uint64_t took_us,
        uint64_t now_ms)
{
	b->turn_us += took_us;
	b->verified++;
	if (good)
		return false;
	struct verify_peer *p = find(b, from, now_ms);
	b->bad++;
	if (now_ms - p->bad_ms > VERIFY_DEAF_MS)
		p->bad = 0;
	p->bad_ms = now_ms;
	if (++p->bad < VERIFY_BAD_MAX)
		return false;
	p->bad = 0;
	p->deaf_ms = now_ms + VERIFY_DEAF_MS;
	return true;
}

bool verify_share(struct verify_budget *b, const struct peer_id *from, uint64_t ns, uint64_t now_ms)
{
	struct verify_peer *p = find(b, from, now_ms);
	uint64_t past = now_ms > p->share_ms ? now_ms - p->share_ms : 0;
	if (past > 2 * SHARE_FULL / SHARE_NS) /* one message may have taken more than there was */
		past = 2 * SHARE_FULL / SHARE_NS;
	p->share_ns += (int64_t)past * SHARE_NS;
	if (p->share_ns > SHARE_FULL)
		p->share_ns = SHARE_FULL;
	p->share_ms = now_ms;
	p->share_ns -= (int64_t)ns;
	return p->share_ns <= 0;
}
