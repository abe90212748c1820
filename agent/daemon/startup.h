/* SPDX-License-Identifier: MIT */
/* What the settings ask of an agent, with the files that they name read and the names resolved. */
#ifndef DUNLIN_AGENT_DAEMON_STARTUP_H
#define DUNLIN_AGENT_DAEMON_STARTUP_H

#include "agent/config/config.h"
#include "agent/drivers/driver.h"
#include "net/crypto/secret.h"
#include "net/transport/lists.h"

struct startup {
	struct secrets secrets;
	struct lists lists;
	const char *allow, *block;           /* borrowed from the config; NULL: no such list */
	const char *seeds[GOSSIP_SEEDS_MAX]; /* the same */
	char socket[LIMIT_PATH];
	struct driver_config node; /* loop, identity and callbacks are left to the caller */
};

/* c must outlive it. May ask the DNS: not for the loop. The message begins with the setting. */
int startup_open(struct startup *w, const struct config *c, struct err *e) MUST_CHECK;
void startup_close(struct startup *w);

#endif
