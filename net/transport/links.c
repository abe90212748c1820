/* SPDX-License-Identifier: MIT */
/* A datagram link with every member whose generation is known: keys for each of the flock's secrets
 * that we hold, found by id when we send and by the sender's hint when we receive. The
 * Diffie-Hellman is done once for a member; new generations only derive new keys.
 *
 * Links of members that the core has forgotten are used no more, and give way to newer ones. */
#include "net/transport/transport_internal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NO_LINK UINT32_MAX

static uint32_t chain_of(const struct links *l, const struct peer_id *id)
{
	uint32_t h;
	memcpy(&h, id->bytes + 4, sizeof h); /* a public key: as good as a hash */
	return h & l->chain_mask;
}

static uint32_t find(const struct links *l, const struct peer_id *id)
{
	uint32_t i = l->chain[chain_of(l, id)];
	while (i != NO_LINK && !peer_id_equal(&l->link[i].id, id))
		i = l->link[i].next;
	return i;
}

int links_init(struct links *l, uint32_t max)
{
	uint8_t key[16];
	uint32_t chains = 64;
	memset(l, 0, sizeof *l);
	while (chains < max)
		chains *= 2;
	l->max = max;
	l->chain_mask = chains - 1;
	l->link = calloc(max, sizeof *l->link);
	l->chain = malloc(chains * sizeof *l->chain);
	l->memory = malloc(datagram_table_size(max * SECRETS_MAX));
	if (!l->link || !l->chain || !l->memory) {
		links_close(l);
		return ERR_NOMEM;
	}
	memset(l->chain, 0xff, chains * sizeof *l->chain);
	randombytes_buf(key, sizeof key);
	l->table = datagram_table_init(l->memory, max * SECRETS_MAX, key);
	return 0;
}

void links_close(struct links *l)
{
	if (l->link)
		sodium_memzero(l->link, l->max * sizeof *l->link);
	free(l->link);
	free(l->chain);
	free(l->memory);
	memset(l, 0, sizeof *l);
}

static void forget_keys(struct links *l, uint32_t i)
{
	for (int k = 0; k < SECRETS_MAX; k++) {
		struct link_key *x = &l->link[i].with[k];
		if (!x->ready)
			continue;
		datagram_table_remove(l->table, x->link.recv_hint, i);
		datagram_close(&x->link);
		x->ready = false;
	}
}

static void make_keys(struct transport *t, uint32_t i)
{
	struct links *l = &t->links;
	struct peer_link *p = &l->link[i];
	forget_keys(l, i);
	for (int k = 0; k < t->config.secrets->n; k++) {
		struct datagram_pair pair = {.shared = p->shared,
		        .secret = t->config.secrets->secret[k],
		        .self = t->config.identity->id,
		        .peer = p->id,
		        .self_generation = t->config.generation,
		        .peer_generation = p->generation};
		datagram_init(&p->with[k].link, &pair);
		p->with[k].ready = datagram_table_add(l->table, p->with[k].link.recv_hint, i) == 0;
	}
}

static void forget(struct links *l, uint32_t i)
{
	uint32_t *at = &l->chain[chain_of(l, &l->link[i].id)];
	while (*at != i)
		at = &l->link[*at].next;
	*at = l->link[i].next;
	forget_keys(l, i);
	sodium_memzero(&l->link[i], sizeof l->link[i]);
}

/* There are as many places as the core holds members, but the core also refuses and forgets, and
 * whoever proved the secret has said HELLO. */
static uint32_t make_room(struct links *l)
{
	uint32_t oldest = 0;
	if (l->n < l->max)
		return l->n++;
	for (uint32_t i = 1; i < l->n; i++) {
		const struct peer_link *x = &l->link[i], *y = &l->link[oldest];
		if (x->member != y->member ? y->member : x->used < y->used)
			oldest = i;
	}
	forget(l, oldest);
	return oldest;
}

void links_set(struct transport *t, const struct peer_id *id, uint64_t generation, bool member)
{
	struct links *l = &t->links;
	uint32_t i = find(l, id);
	uint8_t shared[32];
	if (i != NO_LINK) {
		l->link[i].member |= member;
		l->link[i].used = ++l->clock;
		if (l->link[i].generation == generation)
			return;
		l->link[i].generation = generation;
		make_keys(t, i);
		return;
	}
	if (datagram_shared(shared, identity_sign_secret(t->config.identity), id) != 0)
		return; /* not a key: it will be reached by streams, if it can prove itself there */
	i = make_room(l);
	struct peer_link *p = &l->link[i];
	memcpy(p->shared, shared, sizeof p->shared);
	sodium_memzero(shared, sizeof shared);
	p->id = *id;
	p->member = member;
	p->used = ++l->clock;
	p->generation = generation;
	p->next = l->chain[chain_of(l, id)];
	l->chain[chain_of(l, id)] = i;
	make_keys(t, i);
}

void links_renew(struct transport *t)
{
	t->links.number = 0;
	for (uint32_t i = 0; i < t->links.n; i++)
		make_keys(t, i);
}

size_t links_seal(struct transport *t, const struct peer_id *to, const uint8_t *payload, size_t len,
        uint8_t out[GOSSIP_DATAGRAM_BYTES])
{
	uint32_t i = find(&t->links, to);
	if (i == NO_LINK || !t->links.link[i].with[0].ready || len > DATAGRAM_PAYLOAD_MAX)
		return 0;
	t->links.link[i].used = ++t->links.clock;
	if (datagram_seal(&t->links.link[i].with[0].link, &t->links.number, payload, len, out) != 0)
		return 0;
	return len + DATAGRAM_OVERHEAD;
}

bool links_open(struct transport *t, const uint8_t *packet, size_t len, struct peer_id *from,
        uint8_t *out, size_t *out_len)
{
	uint32_t who[DATAGRAM_SAME_HINT];
	uint64_t hint;
	if (datagram_peek(packet, len, &hint) != 0)
		return false;
	int n = datagram_table_find(t->links.table, hint, who);
	for (int i = 0; i < n; i++) {
		struct peer_link *p = &t->links.link[who[i]];
		for (int k = 0; k < SECRETS_MAX; k++) {
			struct link_key *x = &p->with[k];
			if (!x->ready || x->link.recv_hint != hint)
				continue;
			if (datagram_open(&x->link, packet, len, out, out_len) == 0) {
				*from = p->id;
				p->used = ++t->links.clock;
				return true;
			}
		}
	}
	return false;
}
