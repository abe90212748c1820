/* SPDX-License-Identifier: MIT */
/* What was really said. A signature here is a keyed hash of the content, made only where the core
 * hands out an update as its own, so nobody else's word can be altered unseen. Every record that
 * its owner made is remembered by its hash: whatever a view holds must be among them.
 *
 * The hash is one multiplication a word. It stands for Ed25519 against a core that has a bug, not
 * against an adversary. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

uint64_t truth_hash(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9fb21c651e98df25u;
	return h ^ h >> 32;
}

uint64_t truth_hash_bytes(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	uint64_t word = 0;
	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&word, p, 8);
		h = truth_hash(h, word);
	}
	word = n;
	memcpy(&word, p, n);
	return n ? truth_hash(h, word) : h;
}

/* The key's number is in the last four bytes, the rest is random. */
void truth_make_id(struct sim *s, uint32_t key)
{
	struct sim_key *k = &s->key[key];
	for (size_t i = 0; i < 28; i += 4) {
		uint32_t word = (uint32_t)rng_u64(&s->rng);
		memcpy(k->id.bytes + i, &word, 4);
	}
	memcpy(k->id.bytes + 28, &key, 4);
	k->secret = rng_u64(&s->rng);
}

int truth_key(const struct sim *s, const struct peer_id *id)
{
	uint32_t key;
	memcpy(&key, id->bytes + 28, 4);
	if (key >= s->n_keys || memcmp(&s->key[key].id, id, sizeof *id) != 0)
		return -1;
	return (int)key;
}

static uint64_t hash_addr(uint64_t h, const struct peer_addr *a)
{
	h = truth_hash(h, a->family);
	h = truth_hash_bytes(h, a->ip, a->family == 6 ? 16 : a->family == 4 ? 4 : 0);
	return truth_hash(h, a->port);
}

uint64_t truth_record(const struct member_record *r)
{
	uint32_t loss;
	uint64_t h = truth_hash_bytes(1, r->id.bytes, sizeof r->id.bytes);
	h = truth_hash(h, r->generation);
	h = truth_hash(h, r->nonce);
	h = truth_hash(h, r->incarnation);
	h = truth_hash(h, r->version);
	h = truth_hash(h, (uint64_t)r->left << 1 | r->dialable);
	h = truth_hash(h, r->addrs.n);
	for (int i = 0; i < r->addrs.n; i++)
		h = hash_addr(h, &r->addrs.at[i]);
	h = truth_hash(h, (uint64_t)r->protocol_min << 16 | r->protocol_max);
	h = truth_hash(h, r->status.model);
	h = truth_hash(h, r->status.step);
	h = truth_hash(h, r->status.samples);
	memcpy(&loss, &r->status.loss, sizeof loss);
	return truth_hash(h, loss);
}

uint64_t truth_update(const struct gossip_update *u)
{
	if (u->kind == UPDATE_RECORD)
		return truth_record(&u->record);
	const struct accusation *a = &u->accusation;
	uint64_t h = truth_hash_bytes(2, a->about.bytes, sizeof a->about.bytes);
	h = truth_hash(h, a->generation);
	h = truth_hash(h, a->incarnation);
	h = truth_hash_bytes(h, a->by.bytes, sizeof a->by.bytes);
	return truth_hash(h, a->dead);
}

uint64_t truth_sketch(const struct member_sketch *k)
{
	uint64_t h = truth_hash_bytes(3, k->id.bytes, sizeof k->id.bytes);
	h = truth_hash(h, k->generation);
	h = truth_hash(h, k->step);
	h = truth_hash(h, k->length);
	return truth_hash_bytes(h, k->bytes, k->length);
}

static void seal(const struct sim *s, uint32_t key, uint64_t content, uint8_t out[64])
{
	uint64_t word[2] = {
	        truth_hash(content, s->key[key].secret), truth_hash(content, ~s->key[key].secret)};
	memset(out, 0, 64);
	memcpy(out, word, sizeof word);
}

void truth_sign(struct sim *s, uint32_t key, struct gossip_update *u)
{
	if (u->kind == UPDATE_RECORD)
		truth_publish(s, &u->record);
	seal(s, key, truth_update(u), u->raw.bytes);
	u->raw.length = 64;
	u->ours = false;
}

void truth_sign_sketch(struct sim *s, uint32_t key, struct member_sketch *k)
{
	seal(s, key, truth_sketch(k), k->signature);
	k->ours = false;
}

bool truth_verify(const struct sim *s, const struct gossip_update *u)
{
	if (u->kind != UPDATE_RECORD && u->kind != UPDATE_ACCUSATION)
		return false;
	uint8_t right[64];
	int key = truth_key(s, u->kind == UPDATE_RECORD ? &u->record.id : &u->accusation.by);
	if (key < 0)
		return false;
	seal(s, (uint32_t)key, truth_update(u), right);
	return memcmp(right, u->raw.bytes, sizeof right) == 0;
}

bool truth_verify_sketch(const struct sim *s, const struct member_sketch *k)
{
	uint8_t right[64];
	int key = truth_key(s, &k->id);
	if (key < 0 || k->length > GOSSIP_SKETCH_BYTES)
		return false;
	seal(s, (uint32_t)key, truth_sketch(k), right);
	return memcmp(right, k->signature, sizeof right) == 0;
}

/* An open hash of contents; 0 marks an empty place. */
static bool seek(const struct sim *s, uint64_t content, size_t *place)
{
	size_t mask = s->room_published - 1, i = content & mask;
	while (s->published[i] && s->published[i] != content)
		i = (i + 1) & mask;
	*place = i;
	return s->published[i] == content;
}

static void grow(struct sim *s)
{
	uint64_t *old = s->published;
	size_t n = s->room_published, place;
	s->room_published = n ? 2 * n : 1024;
	s->published = calloc(s->room_published, sizeof *s->published);
	if (!s->published)
		abort();
	for (size_t i = 0; i < n; i++)
		if (old[i] && !seek(s, old[i], &place))
			s->published[place] = old[i];
	free(old);
}

void truth_publish(struct sim *s, const struct member_record *r)
{
	if (!s->config.check)
		return;
	if (2 * s->n_published >= s->room_published)
		grow(s);
	size_t place;
	uint64_t content = truth_record(r) | 1;
	if (seek(s, content, &place))
		return;
	s->published[place] = content;
	s->n_published++;
	int key = truth_key(s, &r->id);
	if (key >= 0 && r->status.samples > s->key[key].samples && s->key[key].forger)
		s->key[key].samples = r->status.samples;
}

bool truth_published(const struct sim *s, const struct member_record *r)
{
	size_t place;
	return s->room_published && seek(s, truth_record(r) | 1, &place);
}

uint64_t truth_clock(const struct sim *s)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < s->n_keys; i++)
		if (__builtin_add_overflow(sum, s->key[i].samples, &sum))
			return UINT64_MAX;
	return sum;
}
