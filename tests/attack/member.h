/* SPDX-License-Identifier: MIT */
/* A member of the flock that is no agent: it has the secret and a record, answers what keeps it
 * alive, hears what agents say of themselves, and leaves the rest to an attack. Attacks that go on
 * for a while are made of these, one for each agent that is attacked, each on a thread. */
#ifndef DUNLIN_TESTS_ATTACK_MEMBER_H
#define DUNLIN_TESTS_ATTACK_MEMBER_H

#include "tests/attack/attack.h"

#include <stdatomic.h>

#define MEMBER_KNOWN 16

struct member {
	struct session session;
	const struct attacker *attacker; /* borrowed */
	struct sockaddr_in target;
	unsigned from; /* the address that it dials from, see dial_from */
	bool open;
	bool takes_offers; /* the attack answers them; else they are refused at once */
	struct member_record self;
	struct member_record known[MEMBER_KNOWN]; /* the newest of each id */
	int n_known;
	struct manifest manifest; /* of the run, from an agent's own words; run 0: not known */
	uint64_t clock;           /* of the run, as the agent last said */
	uint16_t sketch_length;
	uint8_t sketch[GOSSIP_SKETCH_BYTES]; /* the agent's last one: ours looks the same */
	uint64_t number;                     /* of exchanges */
};

/* One agent under attack. */
struct siege {
	struct attack *attack;
	const struct attacker *attacker; /* borrowed: who this thread is */
	struct sockaddr_in target;
	unsigned thread;
	long long end_ms;
	atomic_long done; /* what the attack counts */
};

/* `SECONDS PORT…` follow the usual arguments: the attack is made on all agents, on `each` threads
 * for each of them, the i-th as attacker i; returns the sum of what they have done, -1 for bad
 * arguments. Each second a line says how much that is so far. */
long besiege(struct attack *k, int each, void (*run)(struct siege *s));

/* Becomes a member, or waits a moment and fails. The record is the caller's to fill in before:
 * id, generation and protocol are set here. */
int member_open(struct member *m, const struct siege *s);
void member_close(struct member *m);

/* Serves until something of an exchange comes (1, in out), ms are over (0), or the session has
 * ended (negative: it is closed). */
int member_serve(struct member *m, int ms, struct wire_message *out);

/* 0, or the session is closed. */
int member_say(struct member *m, const struct gossip_update *u);
int member_post(struct member *m, const struct exchange_message *x);

/* Terms that look like the agent's own. */
void member_terms(const struct member *m, struct exchange_terms *t);

/* The newest record of that id; NULL: never heard. */
const struct member_record *member_find(const struct member *m, const struct peer_id *id);

#endif
