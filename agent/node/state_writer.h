/* SPDX-License-Identifier: MIT */
/* What an agent does with its files while it runs. Disks take their time, so all of it is done on
 * libuv's threads, one job after the other, and the loop only hears of the end. */
#ifndef DUNLIN_AGENT_NODE_STATE_WRITER_H
#define DUNLIN_AGENT_NODE_STATE_WRITER_H

#include "agent/base/err.h"
#include "agent/node/state_dir.h"
#include "gossip/membership/gossip.h"
#include "net/crypto/identity.h"
#include "net/crypto/owner.h"
#include "net/transport/lists.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct state_writer_peers {
	struct peer_addr addr[STATE_DIR_PEERS];
	int n;
};

struct state_writer {
	/* set by the caller */
	uv_loop_t *loop;               /* borrowed */
	const struct state_dir *state; /* borrowed */
	struct identity
	        *identity;   /* borrowed; its generation is raised by state_writer_generation */
	struct lists *lists; /* borrowed; replaced by state_writer_lists */
	const char *allow, *block;       /* borrowed; NULL: no such list */
	struct state_writer_peers known; /* of earlier runs, then as last saved */
	void *arg;
	void (*lists_cb)(void *arg); /* on the loop: lists is new */
	const char *revoked;         /* borrowed: a list of revocations; NULL: none */
	/* On the loop: it was read anew, with the lists; not verified. */
	void (*revoked_cb)(void *arg, const struct revocations_text *list);
	/* its own */
	uv_work_t work;
	bool busy, want_peers, want_lists, want_progress, want_revoked;
	struct revocations_text revoked_list;
	uint64_t want_generation; /* 0: none */
	struct state_writer_peers next;
	struct state_dir_progress progress;
	struct state_writer_job {
		bool peers, lists, keep_progress, keep_revoked;
		struct revocations_text revoked, revoked_read;
		struct state_dir_progress progress;
		uint64_t generation;
		struct state_writer_peers save;
		struct lists fresh;
		struct identity identity;
		/* code 0: it worked */
		struct err peers_failed, lists_failed, generation_failed, progress_failed;
		struct err revoked_failed, revoked_unread;
	} job;
};

/* Keeps where peers are: those of g, and after them those that were known before. */
void state_writer_peers(struct state_writer *u, const struct gossip *g);

void state_writer_progress(struct state_writer *u, const struct state_dir_progress *p);

/* Persists a generation. */
void state_writer_generation(struct state_writer *u, uint64_t generation);

/* Keeps the owner's list of revocations. */
void state_writer_revoked(struct state_writer *u, const struct revocations_text *list);

/* Reads allow- and block-list anew, and the list of revocations. If anything is wrong with them,
 * the old ones stay; the log says so. */
void state_writer_lists(struct state_writer *u);

/* Whom to remember, best first: peers alive, others that may come back, further addresses of both,
 * then those of before; each address once. */
void state_writer_choose(struct state_writer_peers *out, const struct gossip *g,
        const struct state_writer_peers *before);

#endif
