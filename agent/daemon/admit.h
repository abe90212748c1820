/* SPDX-License-Identifier: MIT */
/* An agent's own admission, where its flock has an owner: the setting agent.owner, the certificate
 * and the list of revocations, from the files of the settings and from the state directory. */
#ifndef DUNLIN_AGENT_DAEMON_ADMIT_H
#define DUNLIN_AGENT_DAEMON_ADMIT_H

#include "agent/config/config.h"
#include "agent/node/state_dir.h"
#include "net/crypto/identity.h"
#include "net/transport/admission.h"

/* NULL in *out: there is no owner. Any error is one of the settings or of a file that they name:
 * forged, expired, revoked, missing. save: whether the certificate is kept; nothing else is
 * written. */
int admit_open(struct admission **out, const struct config *c, const struct state_dir *state,
        const struct identity *i, bool save, struct err *e) MUST_CHECK;

/* For the log: the list of the settings is older than the one in force. */
void admit_outdated(uint64_t version, uint64_t in_force);

#endif
