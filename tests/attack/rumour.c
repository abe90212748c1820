/* SPDX-License-Identifier: MIT */
/* Members that spread rumours for as long as they are let: news that nobody has signed, one
 * accusation after the other, a record with somebody else's address, thousands of ids that came and
 * went. Each goes on for SECONDS and reaches all agents named by PORT, as in starve.c. */
#include "tests/attack/member.h"

#include "net/transport/transport.h"
#include "tests/net/wire_fill.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- news that nobody has signed */

/* A real signature of other words: what is no key or no signature costs an agent little. */
static void forged_page(struct wire_message *w)
{
	memset(w, 0, sizeof *w);
	w->kind = w->gossip.kind = MESSAGE_SYNC;
	w->gossip.n_updates = GOSSIP_UPDATES_MAX;
	for (int i = 0; i < GOSSIP_UPDATES_MAX; i++) {
		struct gossip_update *u = &w->gossip.update[i];
		uint8_t secret[64], signature[64];
		crypto_sign_keypair(u->record.id.bytes, secret);
		crypto_sign_detached(signature, NULL, secret, sizeof secret, secret);
		u->record.generation = 1;
		u->record.status.samples = 1u << 20;
		forge(u, signature);
	}
}

static void forge_on(struct siege *s)
{
	struct wire_message *pages = calloc(64, sizeof *pages);
	if (!pages)
		return;
	for (int i = 0; i < 64; i++)
		forged_page(&pages[i]);
	while (now_ms() < s->end_ms) {
		struct member m = {0};
		struct wire_message w;
		int rc = member_open(&m, s);
		for (unsigned n = 0; rc == 0 && now_ms() < s->end_ms; n++) {
			rc = session_send(&m.session, &pages[n % 64]);
			s->done += rc == 0 ? GOSSIP_UPDATES_MAX : 0;
			if (n % 16 == 15 && member_serve(&m, 0, &w) < 0)
				rc = ERR_IO;
		}
		member_close(&m);
	}
	free(pages);
}

/* forge-on SECONDS PORT… */
int attack_forge_on(struct attack *k)
{
	long done = besiege(k, 1, forge_on);
	printf("# %ld forged updates\n", done);
	return done < 0 ? -1 : 0;
}

/* ---- accusations without end */

#define ACCUSE_MS 100

static void accuse_on(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	struct peer_id about;
	const char *id = getenv("ATTACK_ID");
	if (!id || parse_id(id, &about) != 0)
		return;
	while (now_ms() < s->end_ms) {
		struct gossip_update u = {.kind = UPDATE_ACCUSATION};
		if (!m.open && member_open(&m, s) != 0)
			continue;
		(void)member_serve(&m, ACCUSE_MS, &w);
		const struct member_record *r = member_find(&m, &about);
		if (!m.open || !r)
			continue;
		u.accusation = (struct accusation){.about = about,
		        .generation = r->generation,
		        .incarnation = r->incarnation,
		        .by = m.self.id,
		        .dead = true};
		wire_sign_update(&s->attacker->identity, &u);
		s->done += member_say(&m, &u) == 0;
	}
	member_close(&m);
}

/* accuse-on SECONDS PORT…: of the member whose id ATTACK_ID has. */
int attack_accuse_on(struct attack *k)
{
	long done = besiege(k, 1, accuse_on);
	printf("# %ld accusations\n", done);
	return done <= 0 ? -1 : 0;
}

/* ---- somebody else's address */

static void claim_address(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	const char *port = getenv("ATTACK_PORT");
	m.self.dialable = true;
	m.self.addrs.n = 1;
	m.self.addrs.at[0] = (struct peer_addr){.family = 4, .ip = {127, 0, 0, 1}};
	m.self.addrs.at[0].port = (uint16_t)(port ? atoi(port) : 0);
	while (port && now_ms() < s->end_ms) {
		if (!m.open && member_open(&m, s) != 0)
			continue;
		s->done = 1;
		(void)member_serve(&m, 500, &w);
	}
	member_close(&m);
}

/* claim-address SECONDS PORT…: the one of 127.0.0.1, with the port that ATTACK_PORT has. */
int attack_claim_address(struct attack *k)
{
	long done = besiege(k, 1, claim_address);
	printf("# %ld agents were told of an address that is another's\n", done);
	return done <= 0 ? -1 : 0;
}

/* ---- ids that came and went */

/* More than the 8,192 that an agent remembers by default; the same ones at all agents. */
#define RETIRE_IDS 12000
#define RETIRE_AT_ONCE 4 /* pages between two looks at what the agent says */

static void came_and_went(struct gossip_update *u, uint64_t model, uint64_t number)
{
	uint8_t public[32], secret[64], none[64] = {0}, seed[32] = "came and went";
	uint8_t text[17 + GOSSIP_UPDATE_BYTES] = "dunlin update v1";
	memset(u, 0, sizeof *u);
	memcpy(seed + 16, &number, sizeof number);
	crypto_sign_seed_keypair(public, secret, seed);
	memcpy(u->record.id.bytes, public, sizeof public);
	u->record.generation = u->record.nonce = u->record.incarnation = 1;
	u->record.protocol_min = u->record.protocol_max = PROTOCOL_MAX;
	u->record.status.model = model;
	u->record.status.step = u->record.status.samples = 1;
	u->record.left = true;
	forge(u, none);
	size_t n = u->raw.length - 66u;
	memcpy(text + 17, u->raw.bytes, n);
	crypto_sign_detached(u->raw.bytes + n + 2, NULL, text, 17 + n, secret);
}

static void retire_on(struct siege *s)
{
	struct member m = {0};
	struct wire_message w;
	while (now_ms() < s->end_ms) {
		if (!m.open && member_open(&m, s) != 0)
			continue;
		/* Once the table is full, slowly: what matters then is who comes later. */
		if (member_serve(&m, s->done < RETIRE_IDS ? 20 : 1000, &w) < 0)
			continue;
		for (int i = 0; m.open && m.self.status.model != 0 && i < RETIRE_AT_ONCE; i++) {
			memset(&w, 0, sizeof w);
			w.kind = w.gossip.kind = MESSAGE_SYNC;
			w.gossip.n_updates = GOSSIP_UPDATES_MAX;
			for (int j = 0; j < GOSSIP_UPDATES_MAX; j++)
				came_and_went(&w.gossip.update[j], m.self.status.model,
				        (uint64_t)(s->done + j) % RETIRE_IDS);
			if (session_send(&m.session, &w) != 0)
				member_close(&m);
			s->done += GOSSIP_UPDATES_MAX;
		}
	}
	member_close(&m);
}

/* retire-on SECONDS PORT… */
int attack_retire_on(struct attack *k)
{
	long done = besiege(k, 1, retire_on);
	printf("# %ld ids that came and went\n", done);
	return done <= 0 ? -1 : 0;
}
