/* SPDX-License-Identifier: MIT */
/* What an agent does with its files while it runs. Disks take their time, so all of it is done on
 * libuv's threads, one job after the other, and the loop only hears of the end. */
#ifndef DUNLIN_AGENT_UPKEEP_H
#define DUNLIN_AGENT_UPKEEP_H

#include "agent/base/err.h"
#include "agent/statedir.h"
#include "gossip/gossip.h"
#include "net/identity.h"
#include "net/lists.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct upkeep_peers {
	struct peer_addr addr[STATEDIR_PEERS];
	int n;
};

struct upkeep {
	/* set by the caller */
	uv_loop_t *loop;              /* borrowed */
	const struct statedir *state; /* borrowed */
	struct identity *identity;    /* borrowed; its generation is raised by upkeep_generation */
	struct lists *lists;          /* borrowed; replaced by upkeep_lists */
	const char *allow, *block;    /* borrowed; NULL: no such list */
	struct upkeep_peers known;    /* of earlier runs, then as last saved */
	void *arg;
	void (*lists_cb)(void *arg); /* on the loop: lists is new */
	/* its own */
	uv_work_t work;
	bool busy, want_peers, want_lists, want_progress;
	uint64_t want_generation; /* 0: none */
	struct upkeep_peers next;
	struct statedir_progress progress;
	struct upkeep_job {
		bool peers, lists, keep_progress;
		struct statedir_progress progress;
		uint64_t generation;
		struct upkeep_peers save;
		struct lists fresh;
		struct identity identity;
		/* code 0: it worked */
		struct err peers_failed, lists_failed, generation_failed, progress_failed;
	} job;
};

/* Keeps where peers are: those of g, and after them those that were known before. */
void upkeep_peers(struct upkeep *u, const struct gossip *g);

void upkeep_progress(struct upkeep *u, const struct statedir_progress *p);

/* Persists a generation. */
void upkeep_generation(struct upkeep *u, uint64_t generation);

/* Reads allow- and block-list anew. If anything is wrong with them, the old ones stay; the log says
 * so. */
void upkeep_lists(struct upkeep *u);

/* Whom to remember, best first: peers alive, others that may come back, further addresses of both,
 * then those of before; each address once. */
void upkeep_choose(
        struct upkeep_peers *out, const struct gossip *g, const struct upkeep_peers *before);

#endif
