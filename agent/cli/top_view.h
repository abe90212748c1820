/* SPDX-License-Identifier: MIT */
/* What `dunlin top` shows of the agents that it watches: a table for people, lines for plots. */
#ifndef DUNLIN_AGENT_CLI_TOP_VIEW_H
#define DUNLIN_AGENT_CLI_TOP_VIEW_H

#include "agent/control/watch.h"

/* Appends a line of headings and one for each agent, none of them wider than width columns: where
 * there is no room, the columns that matter least are left out. */
int top_table(struct buf *out, const struct watched *w, int n, int width, bool colour) MUST_CHECK;

/* Tab-separated: time, name, state, phase, reason, then watch_names; - is what is not known. */
int top_log_header(struct buf *out) MUST_CHECK;
int top_log_line(struct buf *out, const struct watched *w, double time_s) MUST_CHECK;

#endif
