/* SPDX-License-Identifier: MIT */
/* What an agent needs to train: a learner with its data and model, the folder of its results, the
 * last checkpoint, and the flock. Opened before anything is on the network, in the order in which a
 * user can mend what is wrong. */
#ifndef DUNLIN_AGENT_DAEMON_TRAINING_H
#define DUNLIN_AGENT_DAEMON_TRAINING_H

#include "agent/config/config.h"
#include "agent/drivers/driver.h"
#include "agent/node/state_dir.h"
#include "agent/train/run_dir.h"

struct training {
	char out[LIMIT_PATH];
	struct run_dir dir;
	uint64_t progress;       /* by which the state directory knows this run of this agent */
	struct learner *learner; /* owned; NULL: this agent trains nothing */
	bool resumed;
	struct flock_config core; /* what the core is to know of it */
	/* The settings; of a guest with what it said in place of some of them. */
	struct config config;
	bool guest;
};

/* status receives the exit code when it fails. */
int training_open(struct training *t, const struct config *c, uv_loop_t *loop,
        const struct peer_id *self, const struct state_dir *state, int *status,
        struct err *e) MUST_CHECK;
void training_close(struct training *t);

/* The same without writing, and without the folder's lock: what a start would find. from receives
 * the checkpoint that it would go on from, or stays empty. */
int training_rehearse(struct training *t, const struct config *c, uv_loop_t *loop,
        char from[RUN_DIR_PATH], int *status, struct err *e) MUST_CHECK;

/* Whose checkpoint this agent went on from, for the node's configuration; samples 0: nobody's. */
struct gossip_departed training_departed(const struct training *t);

/* For the state directory, now and then. */
struct state_dir_progress training_progress(const struct training *t, const struct flock *core);

/* The results, for people. */
void training_print(const struct training *t, const struct driver *d);

#endif
