/* SPDX-License-Identifier: MIT */
/* Who may take part: an allow-list and a block-list of ids, both optional. A list is a text file:
 *
 *     # the lab's machines
 *     3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29   # heron
 *
 * An id on the block-list is refused, whatever the other list says. With an allow-list, even an
 * empty one, everybody who is not on it is refused. */
#ifndef DUNLIN_NET_TRANSPORT_LISTS_H
#define DUNLIN_NET_TRANSPORT_LISTS_H

#include "agent/base/err.h"
#include "gossip/membership/gossip.h"
#include "net/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_list {
	struct peer_id *id; /* owned; sorted, each once */
	size_t n;
};

struct lists {
	bool only_allowed; /* there is an allow-list */
	struct id_list allow, block;
};

void lists_init(struct lists *l); /* everybody is permitted */
void lists_close(struct lists *l);

/* Replaces both lists by the files' (NULL: no such list). When anything is wrong with either,
 * nothing changes, and the error names file and line. */
int lists_load(
        struct lists *l, const char *allow_path, const char *block_path, struct err *e) MUST_CHECK;

bool lists_permit(const struct lists *l, const struct peer_id *id);

/* One list from text in memory; ERR_FORMAT begins with "line N: ". *out is the caller's to close.
 */
int id_list_parse(struct id_list *out, const char *text, size_t len, struct err *e) MUST_CHECK;
void id_list_close(struct id_list *l);
bool id_list_has(const struct id_list *l, const struct peer_id *id);

#endif
