/* SPDX-License-Identifier: MIT */
/* One packet at a time, sealed and opened; the drawing is in datagram.h.
 *
 * The happy path of a receiver is datagram_peek, a look-up of the hint, datagram_open. Noise from
 * the Internet fails at the look-up. Somebody who has seen a true hint can make us try to open a
 * packet, one pass of XChaCha20-Poly1305 over 1.2 kB, and no more. A replay opens, and is told by
 * its number, which is believed only after the tag was checked: so nobody else can move the window.
 *
 * The cipher is fixed, not negotiated: there is no handshake in which it could be, and at these
 * sizes none is faster by a measure that anyone notices. Extended nonces of 192 bits may be drawn
 * at random without a thought about how many were drawn before. */
#include "net/codec/datagram.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define HEADER 9 /* version and hint */
#define NONCE 24

_Static_assert(DATAGRAM_OVERHEAD == HEADER + crypto_aead_xchacha20poly1305_ietf_NPUBBYTES + 8 +
                                            crypto_aead_xchacha20poly1305_ietf_ABYTES,
        "the drawing and libsodium agree");
_Static_assert(NONCE == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, "as above");

static void put_u64(uint8_t *out, uint64_t n)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(n >> 8 * i);
}

static uint64_t get_u64(const uint8_t *in)
{
	uint64_t n = 0;
	for (int i = 0; i < 8; i++)
		n |= (uint64_t)in[i] << 8 * i;
	return n;
}

int datagram_shared(uint8_t out[32], const uint8_t identity_secret[64], const struct peer_id *peer)
{
	uint8_t ours[32], theirs[32];
	int rc = ERR_INVALID;
	/* Refuses small orders and points off the prime-order group; scalarmult refuses a zero. */
	if (crypto_sign_ed25519_pk_to_curve25519(theirs, peer->bytes) == 0 &&
	        crypto_sign_ed25519_sk_to_curve25519(ours, identity_secret) == 0 &&
	        crypto_scalarmult(out, ours, theirs) == 0)
		rc = 0;
	else
		memset(out, 0, 32);
	sodium_memzero(ours, sizeof ours);
	return rc;
}

static void direction_key(uint8_t out[32], const struct datagram_pair *p, bool sending)
{
	static const char label[] = "dunlin datagram key v1";
	const struct peer_id *from = sending ? &p->self : &p->peer;
	const struct peer_id *to = sending ? &p->peer : &p->self;
	uint8_t generations[16];
	put_u64(generations, sending ? p->self_generation : p->peer_generation);
	put_u64(generations + 8, sending ? p->peer_generation : p->self_generation);

	crypto_generichash_state s;
	crypto_generichash_init(&s, p->secret, 32, 32);
	crypto_generichash_update(&s, (const uint8_t *)label, sizeof label);
	crypto_generichash_update(&s, p->shared, 32);
	crypto_generichash_update(&s, from->bytes, sizeof from->bytes);
	crypto_generichash_update(&s, to->bytes, sizeof to->bytes);
	crypto_generichash_update(&s, generations, sizeof generations);
	crypto_generichash_final(&s, out, 32);
	sodium_memzero(&s, sizeof s);
}

uint64_t datagram_hint(const uint8_t secret[32], const struct peer_id *sender)
{
	static const char label[] = "dunlin datagram hint v1";
	uint8_t h[16];
	crypto_generichash_state s;
	crypto_generichash_init(&s, secret, 32, sizeof h);
	crypto_generichash_update(&s, (const uint8_t *)label, sizeof label);
	crypto_generichash_update(&s, sender->bytes, sizeof sender->bytes);
	crypto_generichash_final(&s, h, sizeof h);
	sodium_memzero(&s, sizeof s);
	return get_u64(h);
}

void datagram_init(struct datagram_link *l, const struct datagram_pair *p)
{
	memset(l, 0, sizeof *l);
	direction_key(l->send_key, p, true);
	direction_key(l->recv_key, p, false);
	l->send_hint = datagram_hint(p->secret, &p->self);
	l->recv_hint = datagram_hint(p->secret, &p->peer);
}

void datagram_close(struct datagram_link *l)
{
	sodium_memzero(l, sizeof *l);
}

int datagram_seal(const struct datagram_link *l, uint64_t *number, const uint8_t *payload,
        size_t len, uint8_t *out)
{
	uint8_t plain[8 + DATAGRAM_PAYLOAD_MAX];
	if (len > DATAGRAM_PAYLOAD_MAX)
		return ERR_LIMIT;
	put_u64(plain, ++*number);
	if (len > 0)
		memcpy(plain + 8, payload, len);
	out[0] = DATAGRAM_VERSION;
	put_u64(out + 1, l->send_hint);
	randombytes_buf(out + HEADER, NONCE);
	crypto_aead_xchacha20poly1305_ietf_encrypt(out + HEADER + NONCE, NULL, plain, 8 + len, out,
	        HEADER, NULL, out + HEADER, l->send_key);
	return 0;
}

int datagram_peek(const uint8_t *packet, size_t len, uint64_t *hint)
{
	if (len < DATAGRAM_OVERHEAD || len > GOSSIP_DATAGRAM_BYTES || packet[0] != DATAGRAM_VERSION)
		return ERR_FORMAT;
	*hint = get_u64(packet + 1);
	return 0;
}

int datagram_open(
        struct datagram_link *l, const uint8_t *packet, size_t len, uint8_t *out, size_t *out_len)
{
	uint8_t plain[8 + DATAGRAM_PAYLOAD_MAX];
	uint64_t hint;
	*out_len = 0;
	int rc = datagram_peek(packet, len, &hint);
	if (rc)
		return rc;
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, packet + HEADER + NONCE,
	            len - HEADER - NONCE, packet, HEADER, packet + HEADER, l->recv_key) != 0)
		return ERR_MISMATCH;
	if (!datagram_window_take(&l->window, get_u64(plain)))
		return ERR_BUSY;
	*out_len = len - DATAGRAM_OVERHEAD;
	if (*out_len > 0)
		memcpy(out, plain + 8, *out_len);
	return 0;
}

/* The window is a ring of bits, number n at n mod DATAGRAM_WINDOW; moving on clears what the ring
 * takes up anew. */
bool datagram_window_take(struct datagram_window *w, uint64_t number)
{
	if (number == 0)
		return false;
	if (number > w->top) {
		uint64_t fresh = number - w->top;
		if (fresh >= DATAGRAM_WINDOW)
			memset(w->seen, 0, sizeof w->seen);
		else
			for (uint64_t k = 1; k <= fresh; k++) { /* number may be the last */
				uint64_t n = w->top + k;
				w->seen[n / 64 % (DATAGRAM_WINDOW / 64)] &= ~(1ull << n % 64);
			}
		w->top = number;
	} else if (w->top - number >= DATAGRAM_WINDOW) {
		return false; /* too long ago to tell */
	}
	uint64_t *word = &w->seen[number / 64 % (DATAGRAM_WINDOW / 64)], bit = 1ull << number % 64;
	if (*word & bit)
		return false;
	*word |= bit;
	return true;
}
