/* SPDX-License-Identifier: MIT */
/* What the control socket tells of training, gate, distance, exchanges and partners. Inside of
 * control_reply.c's answers. */
#ifndef DUNLIN_AGENT_CONTROL_CONTROL_FLOCK_H
#define DUNLIN_AGENT_CONTROL_CONTROL_FLOCK_H

#include "agent/control/control.h"
#include "agent/json/jsonout.h"

#define CONTROL_LAST 8      /* ledger entries in a status */
#define CONTROL_PARTNERS 64 /* partners in each list of a status */

/* The members training, gate, distance, exchanges and partners of a status; f NULL: all null. */
void control__flock(struct json_out *j, const struct agent_view *f, uint64_t now_ms);

/* The newest entries, newest first: the member `entries`. */
int control__ledger(const struct control_view *v, uint32_t max, struct buf *out) MUST_CHECK;
int control__exchanges(const struct control_view *v, uint32_t max, struct buf *out) MUST_CHECK;

#endif
