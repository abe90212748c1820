/* SPDX-License-Identifier: MIT */
/* The settings of a run, from its peers, for one who is about to join. */
#ifndef DUNLIN_AGENT_DAEMON_FETCH_H
#define DUNLIN_AGENT_DAEMON_FETCH_H

#include "agent/base/buf.h"
#include "agent/node/token.h"
#include "net/crypto/identity.h"
#include "net/transport/admission.h"

#define FETCH_MS 15000 /* for all seeds together */

struct fetch {
	const struct identity *identity; /* borrowed, as all of these */
	const struct secrets *secrets;
	struct admission *admission; /* NULL: the flock has no owner */
	const struct token *token;
	uint64_t wait_ms; /* FETCH_MS, unless a test is less patient */
};

/* Asks all seeds of the token at once, and appends the first answer that has the token's hash; from
 * is where it came from. The log says what is wrong with a seed. ERR_NOTFOUND: nobody answers;
 * ERR_MISMATCH: only agents of other runs do. May ask the DNS; runs a loop of its own. */
int fetch_settings(const struct fetch *f, struct buf *out, char from[64], struct err *e) MUST_CHECK;

#endif
