/* SPDX-License-Identifier: MIT */
/* Sealed datagrams between two members that may never have been connected.
 *
 *     ┌ version u8 ┬ hint (8) ┬ nonce (24) ┬ sealed: number u64, payload ┬ tag (16) ┐
 *     └── associated data ────┘
 *
 * The hint is a keyed hash of the sender's id: who has the flock's secret finds the sender, and
 * which of several secrets was used, by one look-up; who has not learns nothing, not even that two
 * agents are the same. The nonce is random, so no state needs to survive a restart. The sealed
 * number counts the datagrams of the sending process; the receiver's window lets each one pass
 * once.
 *
 * Each direction has a key of its own, made from
 *
 *     the Diffie-Hellman of the two ids, the flock's secret, both ids, both generations
 *
 * so a datagram returned to its sender does not open, nor one from before a restart of either.
 *
 * What does not open gets no answer of any kind. */
#ifndef DUNLIN_NET_CODEC_DATAGRAM_H
#define DUNLIN_NET_CODEC_DATAGRAM_H

#include "agent/base/err.h"
#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATAGRAM_VERSION 1
#define DATAGRAM_OVERHEAD (1 + 8 + 24 + 8 + 16)
#define DATAGRAM_PAYLOAD_MAX (GOSSIP_DATAGRAM_BYTES - DATAGRAM_OVERHEAD)

/* What tells replays: the numbers up to `top` that were seen, as far as the window goes back. */
struct datagram_window {
	uint64_t top; /* 0: none yet; numbers begin with 1 */
	uint64_t seen[DATAGRAM_WINDOW / 64];
};

/* Us and one peer, for one pair of generations and one secret. Holds keys: wipe it by
 * datagram_close. */
struct datagram_link {
	uint8_t send_key[32], recv_key[32];
	uint64_t send_hint, recv_hint;
	struct datagram_window window;
};

struct datagram_pair {
	const uint8_t *shared; /* 32 bytes: the Diffie-Hellman's result, see datagram_shared */
	const uint8_t *secret; /* 32 bytes: the flock's */
	struct peer_id self, peer;
	uint64_t self_generation, peer_generation;
};

/* The Diffie-Hellman of our identity and a peer's id, both Ed25519 keys taken to Curve25519: the
 * id is all that is known of a peer that was never dialled. The costly part: do it once for a peer.
 * ERR_INVALID: the id is not a key. */
int datagram_shared(
        uint8_t out[32], const uint8_t identity_secret[64], const struct peer_id *peer) MUST_CHECK;

void datagram_init(struct datagram_link *l, const struct datagram_pair *p);
void datagram_close(struct datagram_link *l);

/* The hint under which an agent sends with that secret. */
uint64_t datagram_hint(const uint8_t secret[32], const struct peer_id *sender);

/* Seals len bytes, at most DATAGRAM_PAYLOAD_MAX (else ERR_LIMIT), into len + DATAGRAM_OVERHEAD.
 * number is raised first: one counter serves all links of a process, so that a link that was
 * forgotten and made anew does not repeat a number. It starts at 0 with each generation. */
int datagram_seal(const struct datagram_link *l, uint64_t *number, const uint8_t *payload,
        size_t len, uint8_t *out) MUST_CHECK;

/* The hint of a packet, to find the link. ERR_FORMAT: too short or too long, or another version. */
int datagram_peek(const uint8_t *packet, size_t len, uint64_t *hint) MUST_CHECK;

/* Opens into out, which has room for len - DATAGRAM_OVERHEAD; *out_len receives that. ERR_FORMAT as
 * above; ERR_MISMATCH: does not open with this link; ERR_BUSY: seen before, or too old to tell. */
int datagram_open(struct datagram_link *l, const uint8_t *packet, size_t len, uint8_t *out,
        size_t *out_len) MUST_CHECK;

/* True, and remembered, if the number was not seen before. */
bool datagram_window_take(struct datagram_window *w, uint64_t number);

/* ---- who sends under a hint: a table in the caller's memory. A look-up takes the same few steps
 * whatever hints strangers make up: places come from a hash with a random key. */

struct datagram_table;

/* Memory for n hints, and a table in it; key is random. The memory is aligned as malloc's. */
size_t datagram_table_size(uint32_t n);
struct datagram_table *datagram_table_init(void *memory, uint32_t n, const uint8_t key[16]);

/* Value is the caller's, below UINT32_MAX: an index. One hint may have DATAGRAM_SAME_HINT values.
 * ERR_LIMIT: no room, or too many of that hint. Adding what is there already does nothing. */
int datagram_table_add(struct datagram_table *t, uint64_t hint, uint32_t value) MUST_CHECK;
void datagram_table_remove(struct datagram_table *t, uint64_t hint, uint32_t value);

/* All values of a hint, in no order. Returns how many. */
int datagram_table_find(
        const struct datagram_table *t, uint64_t hint, uint32_t value[DATAGRAM_SAME_HINT]);

#endif
