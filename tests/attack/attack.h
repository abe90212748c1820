/* SPDX-License-Identifier: MIT */
/* Ways to attack an agent. Each prints what it saw as TAP diagnostics, and returns 0 if the agent
 * withstood it; if not, a line without # says why. */
#ifndef DUNLIN_TESTS_ATTACK_ATTACK_H
#define DUNLIN_TESTS_ATTACK_ATTACK_H

#include "tests/attack/session.h"

#include <stdbool.h>

#define ATTACKERS 8 /* identities, and threads where an attack has several */

struct attack {
	struct attacker attacker[ATTACKERS];
	struct secrets secrets;
	struct aead_order ciphers;
	int argc; /* what follows on the command line */
	char **argv;
};

/* From 64 hex digits; -1 for anything else. */
int parse_id(const char *text, struct peer_id *id);

/* damage.c: flips and cuts at every byte */
int attack_honest(struct attack *k);
int attack_flip_sent(struct attack *k);
int attack_flip_received(struct attack *k);
int attack_cut(struct attack *k);

/* proxy.c: a flip of every byte between two agents */
int attack_proxy(struct attack *k);

/* stranger.c: without the key, or with somebody else's words */
int attack_wrong_key(struct attack *k);
int attack_replay(struct attack *k);
int attack_half_open(struct attack *k);
int attack_slow(struct attack *k);
int attack_noise(struct attack *k);

/* insider.c: with the key, and mad */
int attack_bombs(struct attack *k);
int attack_floods(struct attack *k);
int attack_forge(struct attack *k);
int attack_forge_flood(struct attack *k);
int attack_accuse(struct attack *k);
int attack_sessions(struct attack *k);

/* Those that go on for a while, for tests/bench/bench-attack; the arguments are SECONDS PORT….
 * starve.c: members that take time and give nothing */
int attack_stall(struct attack *k);
int attack_other_run(struct attack *k);
int attack_fetch(struct attack *k);

/* rumour.c: members that spread rumours */
int attack_forge_on(struct attack *k);
int attack_accuse_on(struct attack *k);
int attack_claim_address(struct attack *k);
int attack_retire_on(struct attack *k);

/* crowd.c: those who only take room */
int attack_strangers(struct attack *k);
int attack_idle(struct attack *k);

/* path.c: between the agents, without a key */
int attack_path(struct attack *k);

#endif
