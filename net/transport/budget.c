/* SPDX-License-Identifier: MIT */
/* Three bounded structures, all in one struct, no pointer in it:
 *
 *     slots      an array; the used ones in a list by deadline, which is the order of arrival
 *     addresses  an array; found by a keyed hash and a chain; in a list by last use
 *     purses     two for each address, two for all, two for all known addresses; they fill with
 *                time up to a burst
 *
 * When all addresses are taken the least recently used that holds no slot and is not known is
 * forgotten; there is one, as there are fewer slots and known ones than addresses. Forgetting
 * refills a purse: somebody with thousands of addresses gains by that, and meets the purses of all
 * instead.
 *
 * At worst strangers use up the purses of all: handshakes of newcomers then wait, but neither
 * established connections are affected nor those from known addresses. */
#include "net/transport/budget.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define NONE UINT16_MAX
#define MILLI 1000u

_Static_assert(BUDGET_ADDRESSES < NONE && BUDGET_SLOTS_ALL < NONE, "indices of 16 bits");
_Static_assert((BUDGET_CHAINS & (BUDGET_CHAINS - 1)) == 0, "a mask");
_Static_assert((BUDGET_CROWDS & (BUDGET_CROWDS - 1)) == 0, "a mask");

static const char *const texts[BUDGET_VERDICTS] = {
        [BUDGET_OK] = "allowed",
        [BUDGET_NO_SLOT] = "too many handshakes under way",
        [BUDGET_NO_SLOT_ADDRESS] = "too many handshakes under way from this address",
        [BUDGET_RATE_ADDRESS] = "too many failed handshakes from this address",
        [BUDGET_RATE_OVERALL] = "too many failed handshakes",
        [BUDGET_BYTES_OVER] = "too many bytes before the handshake's end",
        [BUDGET_TIME_OVER] = "the handshake took too long",
        [BUDGET_DH_ADDRESS] = "too many repeated first messages from this address",
        [BUDGET_DH_OVERALL] = "too many repeated first messages",
};

const char *budget_text(enum budget_verdict v)
{
	return (unsigned)v < BUDGET_VERDICTS ? texts[v] : "unknown";
}

static enum budget_verdict refuse(struct budget *b, enum budget_verdict v)
{
	b->refused[v]++;
	return v;
}

/* ---- purses */

static void purse_fill(struct budget_purse *p, uint32_t rate, uint32_t burst, uint64_t now_ms)
{
	uint64_t full = (uint64_t)burst * MILLI;
	uint64_t past = now_ms > p->at_ms ? now_ms - p->at_ms : 0;
	if (past > 0)
		p->at_ms = now_ms;
	if (past >= full / rate || p->level + past * rate > full)
		p->level = full;
	else
		p->level += past * rate;
}

/* Fills the purse; whether there is a token in it. */
static bool purse_has(struct budget_purse *p, uint32_t rate, uint32_t burst, uint64_t now_ms)
{
	purse_fill(p, rate, burst, now_ms);
	return p->level >= MILLI;
}

/* A purse that got a token back may hold one too many until it is filled next. */
static void purse_return(struct budget_purse *p)
{
	p->level += MILLI;
}

/* ---- addresses */

static void prefix_of(const struct peer_addr *a, uint64_t out[2])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *ip = a->ip;
	size_t n = a->family == 4 ? 4 : 8;
	out[0] = a->family;
	out[1] = 0;
	if (a->family == 6 && memcmp(ip, mapped, sizeof mapped) == 0) {
		ip += sizeof mapped; /* or all of IPv4 would be one /64 */
		n = 4;
		out[0] = 4;
	}
	memcpy(&out[1], ip, n);
}

static uint32_t hash(const struct budget *b, const uint64_t prefix[2])
{
	uint8_t h[crypto_shorthash_BYTES];
	uint32_t n;
	crypto_shorthash(h, (const uint8_t *)prefix, 16, b->key);
	memcpy(&n, h, sizeof n);
	return n;
}

static uint16_t *chain_of(struct budget *b, const uint64_t prefix[2])
{
	return &b->chain[hash(b, prefix) & (BUDGET_CHAINS - 1)];
}

/* Who goes together when slots are needed: an IPv4 /24, an IPv6 /48, by its hash. Whoever has a
 * host has a /64 of IPv6, and whoever has a site a /48. */
static uint16_t crowd_of(const struct budget *b, const struct budget_address *a)
{
	uint64_t wide[2] = {a->prefix[0], a->prefix[1]};
	uint8_t *ip = (uint8_t *)&wide[1];
	if (wide[0] == 4)
		ip[3] = 0;
	else
		ip[6] = ip[7] = 0;
	return (uint16_t)(hash(b, wide) & (BUDGET_CROWDS - 1));
}

static void lru_unlink(struct budget *b, uint16_t i)
{
	struct budget_address *a = &b->address[i];
	*(a->lru_prev == NONE ? &b->lru_first : &b->address[a->lru_prev].lru_next) = a->lru_next;
	*(a->lru_next == NONE ? &b->lru_last : &b->address[a->lru_next].lru_prev) = a->lru_prev;
}

static void lru_append(struct budget *b, uint16_t i)
{
	struct budget_address *a = &b->address[i];
	a->lru_prev = b->lru_last;
	a->lru_next = NONE;
	*(b->lru_last == NONE ? &b->lru_first : &b->address[b->lru_last].lru_next) = i;
	b->lru_last = i;
}

static void forget(struct budget *b, uint16_t i)
{
	struct budget_address *a = &b->address[i];
	uint16_t *at = chain_of(b, a->prefix);
	while (*at != i)
		at = &b->address[*at].chain_next;
	*at = a->chain_next;
	lru_unlink(b, i);
}

/* An entry that may be filled anew: a fresh one, or that of the address longest not seen. */
static uint16_t make_room(struct budget *b)
{
	if (b->n_addresses < BUDGET_ADDRESSES)
		return b->n_addresses++;
	uint16_t i = b->lru_first;
	while (b->address[i].slots > 0 || b->address[i].known)
		i = b->address[i].lru_next;
	forget(b, i);
	return i;
}

static uint16_t find_address(struct budget *b, const struct peer_addr *from, uint64_t now_ms)
{
	uint64_t prefix[2];
	prefix_of(from, prefix);
	uint16_t *chain = chain_of(b, prefix);
	for (uint16_t i = *chain; i != NONE; i = b->address[i].chain_next)
		if (memcmp(b->address[i].prefix, prefix, sizeof prefix) == 0) {
			lru_unlink(b, i);
			lru_append(b, i);
			return i;
		}
	uint16_t i = make_room(b);
	b->address[i] = (struct budget_address){
	        .prefix = {prefix[0], prefix[1]},
	        .handshakes = {(uint64_t)BUDGET_BURST * MILLI, now_ms},
	        .dhs = {(uint64_t)BUDGET_DH_BURST * MILLI, now_ms},
	        .chain_next = *chain, /* read after make_room, which may have changed it */
	};
	*chain = i;
	lru_append(b, i);
	return i;
}

/* ---- slots */

void budget_init(struct budget *b, const uint8_t key[16], uint64_t now_ms)
{
	memset(b, 0, sizeof *b);
	memcpy(b->key, key, sizeof b->key);
	b->slots_max = BUDGET_SLOTS;
	b->known_max = BUDGET_SLOTS_KNOWN;
	b->handshakes = (struct budget_purse){(uint64_t)BUDGET_BURST_ALL * MILLI, now_ms};
	b->dhs = (struct budget_purse){(uint64_t)BUDGET_DH_BURST_ALL * MILLI, now_ms};
	b->handshakes_known = b->handshakes;
	b->dhs_known = b->dhs;
	for (int i = 0; i < BUDGET_CHAINS; i++)
		b->chain[i] = NONE;
	for (uint16_t i = 0; i < BUDGET_SLOTS_ALL; i++)
		b->slot[i].next = i + 1 < BUDGET_SLOTS_ALL ? (uint16_t)(i + 1) : NONE;
	b->slot_first = b->slot_last = b->lru_first = b->lru_last = NONE;
}

static bool is_full(const struct budget *b, bool known)
{
	return known ? b->n_known_slots >= b->known_max
	             : b->n_slots - b->n_known_slots >= b->slots_max;
}

/* Who goes first: one that has not shown the psk, of the largest crowd, and there of the address
 * with most slots. */
static uint64_t rank(const struct budget *b, const struct budget_slot *s)
{
	return (uint64_t)!s->dh << 32 | (uint64_t)b->crowd[s->known][s->crowd] << 16 |
	       b->address[s->address].slots;
}

int budget_gives_way(struct budget *b, const struct peer_addr *from, uint64_t now_ms)
{
	uint16_t k = find_address(b, from, now_ms);
	const struct budget_address *a = &b->address[k];
	bool of_address = a->slots == BUDGET_SLOTS_PREFIX;
	int best = -1;
	uint64_t most = 0;
	if (!of_address && !is_full(b, a->known))
		return -1;
	/* The oldest comes first. */
	for (uint16_t i = b->slot_first; i != NONE; i = b->slot[i].next) {
		const struct budget_slot *s = &b->slot[i];
		bool fits = of_address ? s->address == k : s->known == a->known;
		if (!fits || rank(b, s) <= most)
			continue;
		best = i;
		most = rank(b, s);
	}
	return best;
}

enum budget_verdict budget_enter(
        struct budget *b, const struct peer_addr *from, uint64_t now_ms, int *slot)
{
	*slot = -1;
	uint16_t k = find_address(b, from, now_ms);
	struct budget_address *a = &b->address[k];
	if (is_full(b, a->known))
		return refuse(b, BUDGET_NO_SLOT);
	if (a->slots == BUDGET_SLOTS_PREFIX)
		return refuse(b, BUDGET_NO_SLOT_ADDRESS);
	a->slots++;

	uint16_t i = b->slot_free;
	struct budget_slot *s = &b->slot[i];
	b->slot_free = s->next;
	*s = (struct budget_slot){.used = true,
	        .known = a->known,
	        .address = k,
	        .crowd = crowd_of(b, a),
	        .deadline_ms = now_ms + BUDGET_HANDSHAKE_MS,
	        .prev = b->slot_last,
	        .next = NONE};
	*(b->slot_last == NONE ? &b->slot_first : &b->slot[b->slot_last].next) = i;
	b->slot_last = i;
	b->n_slots++;
	b->n_known_slots += s->known;
	b->crowd[s->known][s->crowd]++;
	*slot = i;
	return BUDGET_OK;
}

static struct budget_slot *slot_at(struct budget *b, int slot)
{
	assert(slot >= 0 && slot < BUDGET_SLOTS_ALL && b->slot[slot].used);
	return &b->slot[slot];
}

size_t budget_bytes_left(const struct budget *b, int slot)
{
	assert(slot >= 0 && slot < BUDGET_SLOTS_ALL && b->slot[slot].used);
	return BUDGET_BYTES - b->slot[slot].bytes;
}

enum budget_verdict budget_bytes(struct budget *b, int slot, size_t n, uint64_t now_ms)
{
	struct budget_slot *s = slot_at(b, slot);
	if (now_ms >= s->deadline_ms)
		return refuse(b, BUDGET_TIME_OVER);
	if (n > BUDGET_BYTES - s->bytes)
		return refuse(b, BUDGET_BYTES_OVER);
	s->bytes += (uint32_t)n;
	return BUDGET_OK;
}

/* Who pays: the address and everybody. Where an agent has proved itself everybody's purse is not
 * asked; and whoever shares its address and has emptied that one leaves those behind it the purse
 * of all such addresses. */
enum { PAID_ADDRESS = 1, PAID_ALL = 2, PAID_KNOWN = 4 };

struct budget_price {
	uint32_t rate, burst, rate_all, burst_all;
	enum budget_verdict no_address, no_all;
};

static enum budget_verdict pay(struct budget_purse *address, struct budget_purse *all,
        struct budget_purse *known, bool is_known, const struct budget_price *x, uint64_t now_ms,
        uint8_t *paid)
{
	bool own = purse_has(address, x->rate, x->burst, now_ms);
	if (!own && !(is_known && purse_has(known, x->rate_all, x->burst_all, now_ms)))
		return x->no_address;
	if (!is_known && !purse_has(all, x->rate_all, x->burst_all, now_ms))
		return x->no_all;
	*paid = !is_known ? PAID_ADDRESS | PAID_ALL : own ? PAID_ADDRESS : PAID_KNOWN;
	address->level -= *paid & PAID_ADDRESS ? MILLI : 0;
	all->level -= *paid & PAID_ALL ? MILLI : 0;
	known->level -= *paid & PAID_KNOWN ? MILLI : 0;
	return BUDGET_OK;
}

static void pay_back(struct budget_purse *address, struct budget_purse *all,
        struct budget_purse *known, uint8_t paid)
{
	if (paid & PAID_ADDRESS)
		purse_return(address);
	if (paid & PAID_ALL)
		purse_return(all);
	if (paid & PAID_KNOWN)
		purse_return(known);
}

enum budget_verdict budget_handshake(struct budget *b, int slot, uint64_t now_ms)
{
	static const struct budget_price price = {BUDGET_RATE, BUDGET_BURST, BUDGET_RATE_ALL,
	        BUDGET_BURST_ALL, BUDGET_RATE_ADDRESS, BUDGET_RATE_OVERALL};
	struct budget_slot *s = slot_at(b, slot);
	assert(!s->paid);
	enum budget_verdict v = pay(&b->address[s->address].handshakes, &b->handshakes,
	        &b->handshakes_known, s->known, &price, now_ms, &s->paid);
	return v == BUDGET_OK ? v : refuse(b, v);
}

enum budget_verdict budget_dh(struct budget *b, int slot, uint64_t now_ms)
{
	static const struct budget_price price = {BUDGET_DH_RATE, BUDGET_DH_BURST,
	        BUDGET_DH_RATE_ALL, BUDGET_DH_BURST_ALL, BUDGET_DH_ADDRESS, BUDGET_DH_OVERALL};
	struct budget_slot *s = slot_at(b, slot);
	assert(!s->dh);
	if (now_ms >= s->deadline_ms)
		return refuse(b, BUDGET_TIME_OVER);
	enum budget_verdict v = pay(&b->address[s->address].dhs, &b->dhs, &b->dhs_known, s->known,
	        &price, now_ms, &s->dh);
	return v == BUDGET_OK ? v : refuse(b, v);
}

void budget_leave(struct budget *b, int slot, bool proved)
{
	struct budget_slot *s = slot_at(b, slot);
	struct budget_address *a = &b->address[s->address];
	a->slots--;
	if (proved) {
		pay_back(&a->handshakes, &b->handshakes, &b->handshakes_known, s->paid);
		pay_back(&a->dhs, &b->dhs, &b->dhs_known, s->dh);
	}
	*(s->prev == NONE ? &b->slot_first : &b->slot[s->prev].next) = s->next;
	*(s->next == NONE ? &b->slot_last : &b->slot[s->next].prev) = s->prev;
	b->n_known_slots -= s->known;
	b->crowd[s->known][s->crowd]--;
	*s = (struct budget_slot){.next = b->slot_free};
	b->slot_free = (uint16_t)slot;
	b->n_slots--;
}

void budget_known(struct budget *b, const struct peer_addr *at, uint64_t now_ms)
{
	struct budget_address *a = &b->address[find_address(b, at, now_ms)];
	if (a->known)
		return;
	a->known = true;
	if (b->n_known < BUDGET_KNOWN) {
		b->n_known++;
		return;
	}
	/* The one longest not seen; this one is the last in that order. */
	uint16_t i = b->lru_first;
	while (!b->address[i].known)
		i = b->address[i].lru_next;
	b->address[i].known = false;
}
