/* SPDX-License-Identifier: MIT */
/* What an agent prints when it is up: who it is, and the command lines that join it. */
#ifndef DUNLIN_AGENT_NODE_JOIN_HINT_H
#define DUNLIN_AGENT_NODE_JOIN_HINT_H

#include "agent/base/buf.h"
#include "agent/config/config.h"
#include "agent/node/token.h"
#include "gossip/membership/gossip.h"
#include "net/crypto/secret.h"

struct join_hint {
	const struct config *config; /* borrowed */
	const char *config_path;     /* borrowed; NULL: none was given */
	const bool *given;           /* borrowed; by setting: its flag was given; NULL: none was */
	const char *device;          /* borrowed; which, and why; NULL: it does not train */
	const struct token *token;   /* borrowed; without seeds; NULL: there is none */
	struct peer_id id;
	struct flock_id flock;
	struct peer_addr listen, advertise[MEMBER_ADDRS_MAX];
	int n_advertise;
};

int join_hint_print(const struct join_hint *g, struct buf *out) MUST_CHECK;

#endif
