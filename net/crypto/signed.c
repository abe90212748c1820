/* SPDX-License-Identifier: MIT */
/* What is signed, to the byte.
 *
 * Both sides of a signature must see the same bytes, whatever their compiler, version of msgpack or
 * order of fields on the wire: so they are written out here, and nowhere else. Each kind begins
 * with a domain of its own, NUL included, none of which begins another, and has one length only
 * (a sketch says its own), so that no bytes can be read as two things.
 *
 *     record      id 32  generation 8  nonce 8  incarnation 8  version 8  left 1  dialable 1
 *                 addresses 1  4 times: family 1  ip 16  port 2 (zeros where there is none)
 *                 protocol_min 2  protocol_max 2
 *                 model 8  step 8  samples 8  loss 4 (its bits)
 *     accusation  about 32  generation 8  incarnation 8  by 32  dead 1
 *     sketch      id 32  generation 8  step 8  length 2  bytes
 *
 * The flock is not signed: its id changes when the secret is rotated, and the record must not. An
 * agent that is in two flocks with one key would be heard of in both, which is what it asked for.
 *
 * Ed25519 verification works on public data only and needs no constant time; libsodium refuses
 * keys of small order and signatures that are not canonical. */
#include "net/crypto/identity.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

struct out {
	uint8_t *at;
};

static void put(struct out *o, const void *bytes, size_t n)
{
	memcpy(o->at, bytes, n);
	o->at += n;
}

static void put_number(struct out *o, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*o->at++ = (uint8_t)(v >> (8 * i));
}

static void put_address(struct out *o, const struct peer_addr *a)
{
	static const uint8_t zero[sizeof a->ip];
	size_t used = a->family == 4 ? 4 : a->family == 6 ? 16 : 0;
	put_number(o, a->family, 1);
	put(o, a->ip, used);
	put(o, zero, sizeof zero - used);
	put_number(o, used ? a->port : 0, 2);
}

static void put_record(struct out *o, const struct member_record *r)
{
	static const struct peer_addr none;
	uint32_t loss;
	memcpy(&loss, &r->status.loss, sizeof loss);
	put(o, "dunlin member record v2", 24);
	put(o, r->id.bytes, sizeof r->id.bytes);
	put_number(o, r->generation, 8);
	put_number(o, r->nonce, 8);
	put_number(o, r->incarnation, 8);
	put_number(o, r->version, 8);
	put_number(o, r->left, 1);
	put_number(o, r->dialable, 1);
	put_number(o, r->addrs.n, 1);
	for (int i = 0; i < MEMBER_ADDRS_MAX; i++)
		put_address(o, i < r->addrs.n ? &r->addrs.at[i] : &none);
	put_number(o, r->protocol_min, 2);
	put_number(o, r->protocol_max, 2);
	put_number(o, r->status.model, 8);
	put_number(o, r->status.step, 8);
	put_number(o, r->status.samples, 8);
	put_number(o, loss, 4);
}

static void put_accusation(struct out *o, const struct accusation *a)
{
	put(o, "dunlin accusation v1", 21);
	put(o, a->about.bytes, sizeof a->about.bytes);
	put_number(o, a->generation, 8);
	put_number(o, a->incarnation, 8);
	put(o, a->by.bytes, sizeof a->by.bytes);
	put_number(o, a->dead, 1);
}

size_t signed__update(uint8_t out[SIGNED_BYTES_MAX], const struct gossip_update *u)
{
	struct out o = {out};
	if (u->kind == UPDATE_ACCUSATION) {
		put_accusation(&o, &u->accusation);
	} else if (u->kind == UPDATE_RECORD) {
		const struct peer_addrs *a = &u->record.addrs;
		if (a->n > MEMBER_ADDRS_MAX)
			return 0;
		for (int i = 0; i < a->n; i++)
			if (a->at[i].family != 0 && a->at[i].family != 4 && a->at[i].family != 6)
				return 0;
		put_record(&o, &u->record);
	}
	return (size_t)(o.at - out);
}

size_t signed__sketch(uint8_t out[SIGNED_BYTES_MAX], const struct member_sketch *s)
{
	struct out o = {out};
	if (s->length > GOSSIP_SKETCH_BYTES)
		return 0;
	put(&o, "dunlin member sketch v1", 24);
	put(&o, s->id.bytes, sizeof s->id.bytes);
	put_number(&o, s->generation, 8);
	put_number(&o, s->step, 8);
	put_number(&o, s->length, 2);
	put(&o, s->bytes, s->length);
	return (size_t)(o.at - out);
}

static const struct peer_id *signer(const struct gossip_update *u)
{
	return u->kind == UPDATE_RECORD ? &u->record.id : &u->accusation.by;
}

void identity_sign_update(const struct identity *i, struct gossip_update *u)
{
	uint8_t bytes[SIGNED_BYTES_MAX];
	size_t len = signed__update(bytes, u);
	assert(len && memcmp(signer(u), &i->id, sizeof i->id) == 0);
	identity__sign(i, bytes, len, u->signature);
}

void identity_sign_sketch(const struct identity *i, struct member_sketch *s)
{
	uint8_t bytes[SIGNED_BYTES_MAX];
	size_t len = signed__sketch(bytes, s);
	assert(len && memcmp(&s->id, &i->id, sizeof i->id) == 0);
	identity__sign(i, bytes, len, s->signature);
}

static int verify(const struct peer_id *by, const uint8_t *bytes, size_t len,
        const uint8_t signature[SIGNATURE_BYTES])
{
	if (len == 0)
		return ERR_FORMAT;
	return crypto_sign_ed25519_verify_detached(signature, bytes, len, by->bytes) ? ERR_MISMATCH
	                                                                             : 0;
}

int update_verify(const struct gossip_update *u)
{
	uint8_t bytes[SIGNED_BYTES_MAX];
	return verify(signer(u), bytes, signed__update(bytes, u), u->signature);
}

int sketch_verify(const struct member_sketch *s)
{
	uint8_t bytes[SIGNED_BYTES_MAX];
	return verify(&s->id, bytes, signed__sketch(bytes, s), s->signature);
}
