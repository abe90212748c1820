/* SPDX-License-Identifier: MIT */
/* A guest: a training script of the user's (deploy/python/dunlin_flock), behind the learner's table
 * of functions. The script trains, and this side of a socket does all the rest:
 *
 *     driver ──► learner_ops ──► jobs ─► worker ─► request ═══► guest, between two steps
 *       ▲                          │                              │
 *       └── callbacks ◄── worker ◄─┴───────────── answer ◄════════┘
 *
 * guest_wait blocks until a script has come and said what it trains; from learner_begin on all of
 * it is the loop's. Jobs are done one at a time, in order; a worker of libuv does what takes long
 * (rounding, copying, writing files), never while the guest may touch the same memory. */
#ifndef DUNLIN_AGENT_GUEST_GUEST_H
#define DUNLIN_AGENT_GUEST_GUEST_H

#include "agent/guest/guest_wire.h"
#include "agent/train/learner.h"
#include "agent/train/run_dir.h"

#include <uv.h>

#define GUEST_STALL_MS 10000 /* without a word from a guest that trains */

struct guest_config {
	uv_loop_t *loop;     /* borrowed */
	const char *path;    /* of the socket; copied */
	const char *run;     /* the agent's; borrowed */
	struct run_dir *dir; /* borrowed: weights; open before learner_begin */
	uint64_t stall_ms;   /* GUEST_STALL_MS */
	void *arg;
	/* The guest is gone, or has said what no guest says: nothing is trained any more. Once. */
	void (*gone_cb)(void *arg);
	/* It says nothing for long, or speaks again. */
	void (*stalled_cb)(void *arg, bool stalled);
};

/* Listens, and waits for a guest whose HELLO can be used; others are told why not. ERR_BUSY: an
 * agent answers at that path. */
int guest_wait(struct learner **out, const struct guest_config *c, struct err *e) MUST_CHECK;

/* What it said; of a learner that guest_wait made. */
const struct guest_hello *guest_said_hello(const struct learner *l);

/* arg and the callbacks, before learner_begin. */
void guest_callbacks(struct learner *l, void *arg, void (*gone_cb)(void *arg),
        void (*stalled_cb)(void *arg, bool stalled));

#endif
