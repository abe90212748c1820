/* SPDX-License-Identifier: MIT */
/* A small table without order: it is looked at a few times a second. */
#include "gossip/policy/unlike.h"

/* u->n: it is not there. */
static uint32_t find(const struct unlike *u, const struct peer_id *id)
{
	uint32_t i = 0;
	while (i < u->n && !peer_id_equal(&u->peer[i].id, id))
		i++;
	return i;
}

/* NULL: it has not been heard with that hash. */
static const struct unlike_peer *known(
        const struct unlike *u, const struct peer_id *id, uint64_t hash)
{
	uint32_t i = find(u, id);
	bool heard = i < u->n && u->peer[i].hash == hash && u->peer[i].heard_ms != 0;
	return heard ? &u->peer[i] : NULL;
}

static uint64_t last_ms(const struct unlike_peer *p)
{
	return p->heard_ms > p->asked_ms ? p->heard_ms : p->asked_ms;
}

/* Its entry, with that hash; anew if it has none. */
static struct unlike_peer *entry(struct unlike *u, const struct peer_id *id, uint64_t hash)
{
	uint32_t at = find(u, id);
	if (at < u->n && u->peer[at].hash == hash)
		return &u->peer[at];
	if (at == UNLIKE_PEERS) {
		at = 0;
		for (uint32_t i = 1; i < UNLIKE_PEERS; i++)
			if (last_ms(&u->peer[i]) < last_ms(&u->peer[at]))
				at = i;
	} else if (at == u->n) {
		u->n++;
	}
	u->peer[at] = (struct unlike_peer){.id = *id, .hash = hash};
	return &u->peer[at];
}

bool unlike_heard(struct unlike *u, const struct peer_id *id, uint64_t hash, uint32_t differs,
        uint64_t now_ms)
{
	if (differs == MANIFEST_SAME && find(u, id) == u->n)
		return false; /* nearly all: nothing to remember */
	struct unlike_peer *p = entry(u, id, hash);
	bool news = p->heard_ms == 0 || p->differs != differs;
	p->heard_ms = now_ms > 0 ? now_ms : 1;
	p->differs = differs;
	if (!news || differs == MANIFEST_SAME ||
	        (p->told_ms != 0 && now_ms - p->told_ms < UNLIKE_EVERY_MS))
		return false;
	p->told_ms = p->heard_ms;
	return true;
}

bool unlike_ask(struct unlike *u, const struct peer_id *id, uint64_t hash, uint64_t now_ms)
{
	struct unlike_peer *p = entry(u, id, hash);
	if (p->heard_ms != 0 || (p->asked_ms != 0 && now_ms - p->asked_ms < UNLIKE_EVERY_MS))
		return false;
	p->asked_ms = now_ms > 0 ? now_ms : 1;
	return true;
}

uint32_t unlike_differs(const struct unlike *u, const struct peer_id *id, uint64_t hash)
{
	const struct unlike_peer *p = known(u, id, hash);
	return p ? p->differs : 0;
}

void unlike_count(const struct unlike *u, struct unlike_count *c, const struct peer_id *id,
        uint64_t hash, uint64_t our_hash)
{
	const struct unlike_peer *p = known(u, id, hash);
	if (p ? p->differs == MANIFEST_SAME : hash == our_hash) {
		c->like++;
	} else if (!p) {
		c->unknown++;
	} else if (p->differs & MANIFEST_BIT(MANIFEST_RUN)) {
		c->other_run++;
	} else {
		c->unlike++;
		c->differs |= p->differs;
	}
}

uint32_t unlike_verdict(const struct unlike_count *c)
{
	bool all = c->unlike >= 2 || (c->unlike == 1 && c->unknown == 0);
	return all && c->like == 0 ? c->differs : 0;
}
