/* SPDX-License-Identifier: MIT */
/* Who says it: signatures of updates and sketches.
 *
 * A signature is over a domain of its own, NUL included, and the very bytes that travel, from the
 * array's head up to the signature, which is the update's last element:
 *
 *     update  [kind, field …, signature]      sketch  [6, id, generation, step, bytes, signature]
 *              └── signed ──┘                          └────────── signed ─────────┘
 *
 * So elements that only a later version knows are signed as well, and whoever passes the update on
 * passes on these bytes. The decoder accepts one form of each known field only.
 *
 * The flock is not signed: its id changes when the secret is rotated, and the record must not. An
 * agent that is in two flocks with one key would be heard of in both, which is what it asked for.
 *
 * Ed25519 verification works on public data only and needs no constant time; libsodium refuses
 * keys of small order and signatures that are not canonical. */
#include "net/codec/wire.h"
#include "net/codec/wire_table.h"
#include "net/crypto/identity.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define UPDATE_DOMAIN "dunlin update v1"
#define SKETCH_DOMAIN "dunlin sketch v1"
#define DOMAIN_BYTES 17
#define TAIL_BYTES (2 + SIGNATURE_BYTES) /* the signature as an element */
_Static_assert(sizeof UPDATE_DOMAIN == DOMAIN_BYTES && sizeof SKETCH_DOMAIN == DOMAIN_BYTES,
        "with its NUL");

static int verify(const struct peer_id *by, const uint8_t *text, size_t len,
        const uint8_t signature[SIGNATURE_BYTES])
{
	return crypto_sign_ed25519_verify_detached(signature, text, len, by->bytes) ? ERR_MISMATCH
	                                                                            : 0;
}

/* ---- updates */

static const struct peer_id *signer(const struct gossip_update *u)
{
	return u->kind == UPDATE_RECORD ? &u->record.id : &u->accusation.by;
}

void wire_sign_update(const struct identity *i, struct gossip_update *u)
{
	uint8_t text[DOMAIN_BYTES + GOSSIP_UPDATE_BYTES] = UPDATE_DOMAIN;
	uint8_t *bytes = text + DOMAIN_BYTES;
	const struct wire__head h = {1, {u->kind}, 1};
	assert(u->kind <= UPDATE_ACCUSATION && peer_id_equal(signer(u), &i->id));
	size_t n = wire__put(bytes, GOSSIP_UPDATE_BYTES - TAIL_BYTES, &h, &wire__updates[u->kind],
	        u->kind == UPDATE_RECORD ? (const void *)&u->record : &u->accusation);
	assert(n > 0);
	bytes[n] = 0xc4; /* MessagePack: bytes, their number */
	bytes[n + 1] = SIGNATURE_BYTES;
	identity__sign(i, text, DOMAIN_BYTES + n, bytes + n + 2);
	u->raw.length = (uint16_t)(n + TAIL_BYTES);
	memcpy(u->raw.bytes, bytes, u->raw.length);
}

int wire_verify_update(const struct gossip_update *u)
{
	uint8_t text[DOMAIN_BYTES + GOSSIP_UPDATE_BYTES] = UPDATE_DOMAIN;
	if (u->raw.length <= TAIL_BYTES || u->raw.length > sizeof u->raw.bytes)
		return ERR_FORMAT;
	size_t n = u->raw.length - (size_t)TAIL_BYTES;
	memcpy(text + DOMAIN_BYTES, u->raw.bytes, n);
	return verify(signer(u), text, DOMAIN_BYTES + n, u->raw.bytes + n + 2);
}

/* ---- sketches: their fields are all there is, so the bytes can be written again */

#define SKETCH_TEXT_BYTES (DOMAIN_BYTES + GOSSIP_SKETCH_BYTES + 160)

static size_t sketch_text(uint8_t text[SKETCH_TEXT_BYTES], const struct member_sketch *s)
{
	const struct wire__head h = {1, {MESSAGE_SKETCH}, 0};
	const struct wire__layout *l = &wire__messages[MESSAGE_SKETCH];
	assert(l->n == l->least); /* the signature comes last */
	memcpy(text, SKETCH_DOMAIN, DOMAIN_BYTES);
	size_t n = wire__put(text + DOMAIN_BYTES, SKETCH_TEXT_BYTES - DOMAIN_BYTES, &h, l, s);
	assert(n > TAIL_BYTES);
	return DOMAIN_BYTES + n - TAIL_BYTES;
}

void wire_sign_sketch(const struct identity *i, struct member_sketch *s)
{
	uint8_t text[SKETCH_TEXT_BYTES];
	assert(peer_id_equal(&s->id, &i->id));
	identity__sign(i, text, sketch_text(text, s), s->signature);
}

int wire_verify_sketch(const struct member_sketch *s)
{
	uint8_t text[SKETCH_TEXT_BYTES];
	return verify(&s->id, text, sketch_text(text, s), s->signature);
}
