/* SPDX-License-Identifier: MIT */
/* An agent's state directory.
 *
 *     .lock          held while an agent runs; holds its process id
 *     identity.key   see net/crypto/identity.h
 *     generation     see net/crypto/identity.h
 *     peers.json     where peers were last met, so that an agent can return without any seed
 *     progress       samples trained in which run, those after the last checkpoint included,
 *                    since the run's clock counts them; and what a day's quota has spent
 *     certificate    where the flock has an owner: that this agent is admitted
 *     revoked        alike: the owner's newest list of revocations
 *     run/           checkpoints and results, unless run.out says otherwise */
#ifndef DUNLIN_AGENT_NODE_STATE_DIR_H
#define DUNLIN_AGENT_NODE_STATE_DIR_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "gossip/membership/gossip.h"
#include "net/crypto/owner.h"

#define STATE_DIR_PEERS GOSSIP_REMEMBERED /* addresses that are kept */

struct state_dir {
	char path[LIMIT_PATH];
	int lock; /* owned; -1: closed */
};

/* Creates the folder (0700) where it is missing and takes its lock. ERR_BUSY: another agent has it;
 * the message says which process. */
int state_dir_open(struct state_dir *d, const char *path, struct err *e) MUST_CHECK;
void state_dir_close(struct state_dir *d);

/* The addresses of earlier runs, at most STATE_DIR_PEERS, into out. No file is no error; a damaged
 * one is renamed to peers.json.damaged, and damage says why (code 0: it was not). */
int state_dir_load_peers(const struct state_dir *d, struct peer_addr *out, int *n,
        struct err *damage, struct err *e) MUST_CHECK;

/* Replaces them. May be called on any thread, one at a time. */
int state_dir_save_peers(
        const struct state_dir *d, const struct peer_addr *peers, int n, struct err *e) MUST_CHECK;

struct state_dir_progress {
	uint64_t run, samples;           /* run: a hash of it and of the agent that trained */
	uint64_t day_start_s, day_bytes; /* see gate_quota */
};

/* All zeros where there is none, or none that can be read: it is a help, not a need. */
void state_dir_load_progress(const struct state_dir *d, struct state_dir_progress *out);
/* On any thread, one at a time. */
int state_dir_save_progress(
        const struct state_dir *d, const struct state_dir_progress *p, struct err *e) MUST_CHECK;

/* The owner's list of revocations; alike. */
int state_dir_save_revoked(const struct state_dir *d, const struct revocations_text *list,
        struct err *e) MUST_CHECK;

/* The text of peers.json, both ways; for the above and for tests. ERR_FORMAT says what is wrong. */
int peers_print(const struct peer_addr *peers, int n, struct buf *out) MUST_CHECK;
int peers_parse(
        const char *text, size_t len, struct peer_addr *out, int *n, struct err *e) MUST_CHECK;

/* Creates a folder for its owner alone, 0700, those above it as usual. One that is there is taken
 * as it is. */
int folder_make_private(const char *path, struct err *e) MUST_CHECK;

#endif
