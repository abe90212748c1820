/* SPDX-License-Identifier: MIT */
/* Writing JSON member by member. The first error sticks and makes the rest do nothing, so that it
 * is looked at once, in the end. */
#ifndef DUNLIN_AGENT_JSON_JSONOUT_H
#define DUNLIN_AGENT_JSON_JSONOUT_H

#include "agent/base/buf.h"
#include "gossip/membership/gossip.h"

#include <stdbool.h>
#include <stdint.h>

struct json_out {
	struct buf *buf; /* borrowed */
	int rc;          /* 0, or why it is not whole */
};

/* Each writes the comma where one is due, then the key (NULL: an item of a list), then the value.
 */
void json_open(struct json_out *j, const char *key, char bracket); /* { or [ */
void json_close(struct json_out *j, char bracket);                 /* } or ] */
void json_null(struct json_out *j, const char *key);
void json_bool(struct json_out *j, const char *key, bool v);
void json_count(struct json_out *j, const char *key, uint64_t v);
void json_real(struct json_out *j, const char *key, double v); /* null if it is not finite */
void json_seconds(struct json_out *j, const char *key, uint64_t ms);
void json_text(struct json_out *j, const char *key, const char *v); /* NULL: null */
void json_id(struct json_out *j, const char *key, const struct peer_id *v);

/* 64 digits and a NUL. */
#define ID_HEX 65
const char *id_hex(const struct peer_id *id, char out[ID_HEX]);

#endif
