/* SPDX-License-Identifier: MIT */
/* What the settings ask of an agent, with the files that they name read and the names resolved. */
#ifndef DUNLIN_AGENT_WANTED_H
#define DUNLIN_AGENT_WANTED_H

#include "agent/config.h"
#include "agent/drivers/driver.h"
#include "net/lists.h"
#include "net/secret.h"

struct wanted {
	struct secrets secrets;
	struct lists lists;
	const char *allow, *block;           /* borrowed from the config; NULL: no such list */
	const char *seeds[GOSSIP_SEEDS_MAX]; /* the same */
	char socket[LIMIT_PATH];
	struct driver_config node; /* loop, identity and callbacks are left to the caller */
};

/* c must outlive it. May ask the DNS: not for the loop. The message begins with the setting. */
int wanted_open(struct wanted *w, const struct config *c, struct err *e) MUST_CHECK;
void wanted_close(struct wanted *w);

#endif
