/* SPDX-License-Identifier: MIT */
/* The settings of the config that the core of an agent goes by: the same for an agent of its own
 * process and for a simulated one. */
#ifndef DUNLIN_AGENT_TRAIN_CORE_SETTINGS_H
#define DUNLIN_AGENT_TRAIN_CORE_SETTINGS_H

#include "agent/config/config.h"
#include "gossip/flock/flock.h"

/* Fills in what section gossip, the optimizer and the batch say. manifest.count must be set. */
void core_settings(struct flock_config *f, const struct config *c);

#endif
