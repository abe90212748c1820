/* SPDX-License-Identifier: MIT */
/* What strangers may cost. Everybody who connects is a stranger until the handshake is done; until
 * then it holds a slot, of which there are few, fewer for one address, and its handshake is paid
 * from two purses, the address's and everybody's. The figures are in net/limits.h.
 *
 *     accept ──► budget_gives_way ──► budget_enter ──► budget_bytes … ──► budget_leave
 *                  close that one                        no: close          any end, once
 *     its first message ──► budget_handshake ──► (psk right) budget_dh
 *                             no: close            no: close
 *
 * Slots are never a reason to turn a newcomer away: where none is left, the oldest connection of
 * the prefix (IPv4 /24, IPv6 /48) that holds most of them goes, there of the address with most, and
 * before all one that has not shown the flock's psk. So who is silent holds nobody up, and who has
 * few connections of a prefix is the last to go. Addresses where an agent has proved itself have
 * slots of their own, among which the same rule holds. A bulk connection pays nothing: its token is
 * looked up, no more.
 *
 * An address is an IPv4 address or an IPv6 /64. A handshake that succeeds gives back what it paid,
 * so a large flock behind one address is never slowed down; what fails is paid for. A replayed
 * first message has the right psk: hence a purse of its own for Diffie-Hellmans. The purses of all
 * are not asked where an agent has proved itself: strangers elsewhere may have emptied them. Those
 * behind such an address whose own purse is empty have another, of all such addresses: a stranger
 * may share it.
 *
 * It has no clock, socket or memory of its own: the time comes in, and never runs backwards. */
#ifndef DUNLIN_NET_TRANSPORT_BUDGET_H
#define DUNLIN_NET_TRANSPORT_BUDGET_H

#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum budget_verdict {
	BUDGET_OK,
	BUDGET_NO_SLOT,         /* of all */
	BUDGET_NO_SLOT_ADDRESS, /* of this address */
	BUDGET_RATE_ADDRESS,    /* too many failed handshakes from this address */
	BUDGET_RATE_OVERALL,
	BUDGET_BYTES_OVER,
	BUDGET_TIME_OVER,
	BUDGET_DH_ADDRESS, /* too many replays from this address */
	BUDGET_DH_OVERALL,
	BUDGET_VERDICTS,
};

/* "too many failed handshakes from this address": for a log. */
const char *budget_text(enum budget_verdict v);

/* A purse: milli-tokens, since a rate per second is the same number of these per millisecond. */
struct budget_purse {
	uint64_t level, at_ms;
};

struct budget_address {
	uint64_t prefix[2]; /* the family, and the address or its /64 */
	uint16_t slots;
	bool known; /* an agent has proved itself here */
	struct budget_purse handshakes, dhs;
	uint16_t chain_next;         /* of the same hash */
	uint16_t lru_prev, lru_next; /* least recently used first */
};

struct budget_slot {
	bool used, known;
	uint8_t paid, dh; /* from which purses; dh: it has shown the psk */
	uint16_t address;
	uint16_t crowd; /* hash of its /24 or /48 */
	uint32_t bytes;
	uint64_t deadline_ms;
	uint16_t prev, next; /* free ones, or the used in the order of their deadlines */
};

#define BUDGET_CHAINS 1024
#define BUDGET_CROWDS 4096
#define BUDGET_SLOTS_ALL (BUDGET_SLOTS + BUDGET_SLOTS_KNOWN)

struct budget {
	uint8_t key[16];
	struct budget_purse handshakes, dhs;
	struct budget_purse handshakes_known, dhs_known;
	uint16_t n_slots, slot_free, slot_first, slot_last;
	uint16_t n_known_slots; /* of n_slots */
	uint16_t n_addresses, lru_first, lru_last;
	uint16_t n_known;              /* of n_addresses */
	uint16_t slots_max, known_max; /* BUDGET_SLOTS and _KNOWN, or fewer where sockets are few */
	uint16_t chain[BUDGET_CHAINS];
	uint16_t crowd[2][BUDGET_CROWDS]; /* slots of a /24 or /48: of strangers, of known */
	struct budget_slot slot[BUDGET_SLOTS_ALL];
	struct budget_address address[BUDGET_ADDRESSES];
	uint64_t refused[BUDGET_VERDICTS]; /* how often each was said */
};

/* key is random: strangers must not know which addresses share a chain. */
void budget_init(struct budget *b, const uint8_t key[16], uint64_t now_ms);

/* A connection came in from there: the slot whose connection must be closed and left first; -1:
 * none. Ask until there is none. */
int budget_gives_way(struct budget *b, const struct peer_addr *from, uint64_t now_ms);

/* A connection came in. On BUDGET_OK *slot is its own until budget_leave. */
enum budget_verdict budget_enter(
        struct budget *b, const struct peer_addr *from, uint64_t now_ms, int *slot);

/* n more bytes have come (or are about to be read) before it has proved itself. */
enum budget_verdict budget_bytes(struct budget *b, int slot, size_t n, uint64_t now_ms);

/* How many more it may send. */
size_t budget_bytes_left(const struct budget *b, int slot);

/* Its first message has come and is no bulk token: may we try our secrets on it? Asked once. */
enum budget_verdict budget_handshake(struct budget *b, int slot, uint64_t now_ms);

/* Its first message has the flock's psk: may we do the Diffie-Hellmans? Asked once. */
enum budget_verdict budget_dh(struct budget *b, int slot, uint64_t now_ms);

/* The handshake is over. proved: it was completed, so that this was no replay. */
void budget_leave(struct budget *b, int slot, bool proved);

/* An agent has proved itself at this address, whoever dialled. */
void budget_known(struct budget *b, const struct peer_addr *at, uint64_t now_ms);

#endif
