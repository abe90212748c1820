/* SPDX-License-Identifier: MIT */
/* An agent's part in the training of its flock: when to exchange, with whom, what came of it; how
 * it joins, and how it ends. Brings learner, gate, partners, clipping and exchanges together on the
 * loop. Everything here is called on the loop's thread and returns at once. */
#ifndef DUNLIN_AGENT_FLOCK_H
#define DUNLIN_AGENT_FLOCK_H

#include "agent/config.h"
#include "agent/learner.h"
#include "agent/node.h"
#include "gossip/clip.h"
#include "gossip/exchange.h"
#include "gossip/gate.h"
#include "gossip/ledger.h"
#include "gossip/partners.h"
#include "gossip/sketch.h"

#define FLOCK_RECENT 128 /* exchanges that are listed */

enum flock_phase {
	FLOCK_LOOKING, /* for peers, before the first step */
	FLOCK_JOINING, /* a peer's state is on its way */
	FLOCK_TRAINING,
	FLOCK_PAUSED,
	FLOCK_MERGING,  /* all samples are trained: merge rounds */
	FLOCK_FINISHED, /* the result is written; stays for the others for a while */
	FLOCK_LEAVING,
	FLOCK_FAILED,
	FLOCK_PHASES
};
const char *flock_phase_text(enum flock_phase p); /* "looking", "joining", … */

struct flock_counts {
	uint64_t by_outcome[OUTCOMES];       /* of exchanges, ours and others' */
	uint64_t begun, taken;               /* exchanged: by us, by peers */
	uint64_t busy_given;                 /* offers of peers that we did not take */
	uint64_t clipped;                    /* exchanged with a factor under 1 */
	uint64_t bytes_sent, bytes_received; /* of parameters, sealed, all transfers included */
	uint64_t gifts, gift_bytes;          /* states sent to joiners */
	uint64_t adoptions;                  /* states taken from peers */
};

/* What status, ledger and exchanges tell. Pointers are borrowed for the call. */
struct flock_view {
	enum flock_phase phase;
	const char *run, *model, *device, *out; /* out: the folder */
	uint64_t parameters;
	uint64_t exchange_bytes; /* that one exchange uploads */
	uint64_t step, samples, clock, total;
	double epoch; /* of the whole set, by the run's clock */
	bool has_loss;
	double loss, lr, samples_per_s; /* loss: smoothed over about 50 steps; per s: own */
	bool has_eval, has_validation;
	struct learner_eval eval, validation; /* the last ones */
	struct gate_view gate;
	const struct ledger *ledger;
	const struct partners *partners;
	uint8_t exchange_state; /* enum exchange_state */
	struct peer_id exchange_peer;
	bool has_distance;
	double distance;     /* of the last exchange, between us and that peer: not Ξ */
	double distance_rms; /* of the last ones */
	double radius;       /* τ: what is farther is clipped; 0: not known */
	int sketches;        /* of peers, known */
	double consensus;    /* Ξ as estimated from them and ours; with sketches > 0 */
	struct flock_counts counts;
	const struct exchange_result *recent; /* ring; number n at (n − 1) % FLOCK_RECENT */
	uint64_t n_recent;                    /* ever entered */
	uint32_t candidates;                  /* alive peers of our run */
	uint32_t unlike;                      /* alive peers of another run or model */
	uint32_t quarantined;
	struct peer_id donor;            /* JOINING */
	uint64_t join_words, join_total; /* JOINING: floats that have come, of how many */
	bool joined;                     /* from a donor, not from the initial weights */
	bool resumed;                    /* from a checkpoint */
	uint64_t saved_step;             /* of the last checkpoint; 0: none */
	uint64_t saves;                  /* checkpoints written by this process */
	uint64_t saved_ago_ms;
	uint64_t steps_dropped; /* that the loop did not hear of in time */
	bool finished;          /* the result is written */
	bool has_local, has_merged;
	struct learner_eval local, merged; /* at the end: before and after the merge rounds */
	uint64_t merge_rounds;
	char health[200]; /* in words: what is going on, and what to do about it if anything */
};

struct flock_agent;

struct flock_config {
	uv_loop_t *loop;             /* borrowed */
	const struct config *config; /* borrowed */
	struct learner *learner;     /* borrowed; open, not begun */
	struct outdir *dir;          /* borrowed */
	struct peer_id self;
	struct manifest manifest;
	/* As persisted: what we have trained in this run, and what of a day's quota is spent. */
	uint64_t samples;
	struct gate_quota quota;
	bool resumed; /* from a checkpoint */
	void *arg;
	void (*finished_cb)(
	        void *arg, int code); /* the run is over: 0, or why it failed; leave now */
};

int flock_new(struct flock_agent **out, const struct flock_config *c, struct err *e) MUST_CHECK;

/* For the node's configuration. */
struct member_status flock_status(const struct flock_agent *f);
/* To be persisted now and then. */
uint64_t flock_samples(const struct flock_agent *f);
struct gate_quota flock_quota(const struct flock_agent *f, uint64_t wall_s);

/* Begins: the learner's callbacks come from now on. alone: there is nobody to look for. */
void flock_start(struct flock_agent *f, struct node *node, bool alone);

/* Ends exchange and learner, with a checkpoint; then left_cb, with flock_config's arg. The node
 * must live until then. */
void flock_leave(struct flock_agent *f, void (*left_cb)(void *arg));
/* From flock_leave on: the last checkpoint, or the run's result, is not written. */
bool flock_unsaved(const struct flock_agent *f);
void flock_free(struct flock_agent *f); /* after left_cb, or before flock_start */

/* What the node hears. */
void flock_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m);
void flock_bulk(struct flock_agent *f, const struct peer_id *id, uint64_t exchange, int fd,
        bool we_dialled, const struct frame_bulk *keys, const struct aead *aead);
void flock_up(
        struct flock_agent *f, const struct peer_id *id, bool up); /* a stream stands, or is gone */
void flock_gone(struct flock_agent *f, const struct peer_id *id);  /* dead, or it has left */

/* What a user asks for. ERR_INVALID says why not. */
int flock_pause(struct flock_agent *f, struct err *e) MUST_CHECK;
int flock_resume(struct flock_agent *f, struct err *e) MUST_CHECK;
int flock_checkpoint(struct flock_agent *f, struct err *e) MUST_CHECK;

/* After left_cb the membership's part is empty. */
void flock_view(const struct flock_agent *f, struct flock_view *out);

/* One line for people. */
void flock_line(const struct flock_view *v, char out[200]);

#endif
