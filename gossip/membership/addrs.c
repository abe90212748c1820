/* SPDX-License-Identifier: MIT */
/* Which of its addresses a member is reached by.
 *
 * A member says where it is, in its order of preference. One of these addresses is in use: the
 * first at the beginning, then the one that last answered us. Only an answer proves an address: an
 * ACK that echoes a nonce which was sent there and nowhere else, or a stream that we dialled there.
 *
 *     record:  10.0.0.5:13865  [fd00::5]:13865       in use: 0, not proven: both are pinged
 *                  no answer       ACK          ──►  in use: 1, proven: it alone is pinged
 *                                  no answer    ──►  not proven: the next one is in use
 *
 * So an address that does not work costs one lost ping and not a probe, and is then left alone
 * until the one in use fails. A record is what its owner signed: addresses at which nobody can be
 * stay in it, and are never used. */
#include "gossip/membership/gossip_internal.h"

#include <string.h>

bool peer_addr_equal(const struct peer_addr *a, const struct peer_addr *b)
{
	if (a->family != b->family || a->port != b->port)
		return false;
	size_t n = a->family == 4 ? 4 : a->family == 6 ? 16 : 0;
	return memcmp(a->ip, b->ip, n) == 0;
}

bool peer_addr_usable(const struct peer_addr *a)
{
	/* All zeros: the wildcard. With ff ff behind them: IPv4 in disguise. */
	static const uint8_t zero[16], mapped[12] = {[10] = 0xff, 0xff};
	if (a->port == 0)
		return false;
	if (a->family == 4)
		return a->ip[0] != 0 && a->ip[0] < 224; /* multicast, reserved, broadcast */
	return a->family == 6 && a->ip[0] != 0xff && memcmp(a->ip, zero, 16) != 0 &&
	       memcmp(a->ip, mapped, 12) != 0;
}

struct peer_addrs gossip__usable(const struct member_record *r, uint8_t first)
{
	struct peer_addrs out = {0};
	if (first < r->addrs.n && peer_addr_usable(&r->addrs.at[first]))
		out.at[out.n++] = r->addrs.at[first];
	for (uint8_t i = 0; i < r->addrs.n; i++)
		if (i != first && peer_addr_usable(&r->addrs.at[i]))
			out.at[out.n++] = r->addrs.at[i];
	return out;
}

struct peer_addrs gossip__addrs(const struct member *m)
{
	return gossip__usable(&m->record, m->in_use);
}

void gossip__send_member(struct gossip_send *s, const struct member *m)
{
	struct peer_addrs a = gossip__addrs(m);
	gossip__send_to(s, &m->record.id, &a);
}

static int place_of(const struct member_record *r, const struct peer_addr *a)
{
	for (int i = 0; i < r->addrs.n; i++)
		if (peer_addr_equal(&r->addrs.at[i], a))
			return i;
	return -1;
}

bool gossip__is_at(const struct member_record *r, const struct peer_addr *a)
{
	return place_of(r, a) >= 0;
}

bool gossip__proven_at(const struct member *m, const struct peer_addr *a)
{
	return m->proven && peer_addr_equal(&m->record.addrs.at[m->in_use], a);
}

void gossip__replace_record(struct member *m, const struct member_record *r)
{
	int now = m->record.addrs.n ? place_of(r, &m->record.addrs.at[m->in_use]) : -1;
	m->record = *r;
	m->in_use = now < 0 ? 0 : (uint8_t)now;
	m->proven = m->proven && now >= 0;
}

void gossip__answered(struct member *m, const struct peer_addr *a)
{
	int now = place_of(&m->record, a);
	if (now < 0)
		return;
	m->in_use = (uint8_t)now;
	m->proven = true;
}

/* A hint where nothing is proven: what comes from there may well be answered there. */
void gossip__spoke_from(struct member *m, const struct peer_addr *a)
{
	int now = m->proven ? -1 : place_of(&m->record, a);
	if (now >= 0)
		m->in_use = (uint8_t)now;
}

void gossip__silent(struct member *m)
{
	m->proven = false;
	if (m->record.addrs.n > 1)
		m->in_use = (uint8_t)((m->in_use + 1) % m->record.addrs.n);
}
