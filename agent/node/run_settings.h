/* SPDX-License-Identifier: MIT */
/* The settings that all agents of a run have alike, as they travel to one who joins:
 *
 *     ┌ manifest without formats, 9 × u64 ┬ a JSON object ┐
 *
 * Paths are never in it, nor is the owner, who is in the token. A token has the hash of these
 * bytes, so whoever sends others is found out. */
#ifndef DUNLIN_AGENT_NODE_RUN_SETTINGS_H
#define DUNLIN_AGENT_NODE_RUN_SETTINGS_H

#include "agent/base/buf.h"
#include "agent/config/config.h"
#include "gossip/exchange/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_SETTINGS_HASH 16

/* Whether the setting at that place of the table travels. */
bool run_settings_travels(int setting);

/* Appends the bytes. ERR_LIMIT: the model has too many layers for them. */
int run_settings_print(
        const struct config *c, const struct manifest *m, struct buf *out) MUST_CHECK;

void run_settings_hash(const void *bytes, size_t len, uint8_t out[RUN_SETTINGS_HASH]);

/* Reads what anyone may have sent, to the letter: a key that does not travel, another spelling or
 * order are refused. theirs gets defaults for the rest, and is to be config_close'd in any case;
 * the formats of m are 0. */
int run_settings_read(struct config *theirs, struct manifest *m, const void *bytes, size_t len,
        struct err *e) MUST_CHECK;

/* What travels, from theirs into c; theirs loses its layers. given, by setting: what a flag has
 * said must be the same there: ERR_MISMATCH names the flag. */
int run_settings_take(
        struct config *c, struct config *theirs, const bool *given, struct err *e) MUST_CHECK;

/* A config file of what travels and what is not at its default. all false: only what travels and is
 * not at its default. */
int run_settings_file(const struct config *c, bool all, struct buf *out) MUST_CHECK;

#endif
