/* SPDX-License-Identifier: MIT */
/* Inside the flock: its state, and what its files ask of each other.
 *
 *     flock.c           phases, the learner's answers, the node's news, time
 *     flock_clock.c     the run's clock, and what of it we missed
 *     flock_end.c       merging, finished, leaving
 *     flock_exchange.c  exchanges: gate and partners in front, the pure machine, what it asks for
 *     flock_heard.c     what a partner sent, before it is believed
 *     flock_near.c      where we are, and how far from the others
 *     flock_unlike.c    peers with another manifest
 *     flock_join.c      taking a peer's state
 *     flock_gift.c      giving ours
 *     flock_view.c      what can be told of it
 */
#ifndef DUNLIN_AGENT_FLOCK_CORE_H
#define DUNLIN_AGENT_FLOCK_CORE_H

#include "agent/flock.h"
#include "gossip/meetings.h"
#include "gossip/unlike.h"
#include "net/bulk.h"
#include "net/convert.h"

#define FLOCK_CANDIDATES 1024 /* peers to draw partners from; of more, the first known */
#define FLOCK_EVENTS 16       /* of the machine, that came inside a step of it */
#define FLOCK_GIFTS 4         /* joiners served at one time */
#define FLOCK_MERGE_NEAR 8    /* partners that must be near for a merge to be over */
#define FLOCK_SHUNNED 8       /* donors that a join has tried in vain */
#define FLOCK_SKETCHES 64     /* of peers, as they last told us */
_Static_assert(FLOCK_SKETCHES <= SKETCH_PEERS_MAX, "all can be compared");

/* A bulk connection that came before it was needed. */
struct flock_wire {
	int fd; /* owned; -1: none */
	bool we_dialled;
	struct frame_bulk keys;
	const struct aead *aead;
};

/* A state on its way to us. */
struct flock_join {
	bool active;
	bool merging_flocks; /* it trained before, and gives that up */
	struct peer_id donor;
	bool has_donor;
	uint64_t exchange; /* number of this attempt */
	uint64_t snapshot; /* that words are of; 0: none yet */
	uint64_t began_ms;
	struct learner_state info;
	float radius[EXCHANGE_GROUPS_MAX + 1];
	int n_radius;
	struct sketch donor_sketch; /* when the snapshot was begun */
	bool has_donor_sketch;
	float *state; /* owned; vectors × n_total */
	size_t words, total;
	bool mixed;         /* words are of more than one donor's */
	struct sketch side; /* merging flocks: whom to adopt */
	bool has_side;
	struct bulk *bulk; /* NULL: none */
	struct flock_wire wire;
	bool checking, adopting;
	uint64_t retry_ms; /* when to try again; 0: an answer is awaited until deadline_ms */
	uint64_t deadline_ms;
	int attempts;
	struct peer_id shunned[FLOCK_SHUNNED];
	int n_shunned;
	uv_work_t work;
	struct sketch result;
};

struct flock_gift {
	struct flock_agent *f;
	bool used;
	bool waiting; /* for the snapshot */
	struct peer_id to;
	uint64_t exchange, offset, since_ms;
	struct bulk *bulk; /* NULL: not yet */
};

struct flock_agent {
	struct flock_config c;
	struct node *node; /* borrowed; set by flock_start */
	struct learner *learner;
	enum flock_phase phase;
	bool stopping; /* a handle or a thread is still to end */
	uv_timer_t tick, exchange_timer, leave_timer;
	int handles;
	uint64_t now_ms; /* refreshed by every entry */
	void (*left_cb)(void *arg);

	/* the run */
	struct manifest manifest;
	uint64_t model_hash, total;
	size_t n_total;
	const struct learner_groups *groups;
	uint64_t samples_base;    /* trained before, beyond what the checkpoint knows */
	struct learner_step last; /* step 0: none yet */
	double loss;              /* smoothed */
	bool has_loss;
	uint64_t rate_ms, rate_samples;
	double samples_per_s;
	bool has_eval, has_validation, has_local, has_merged;
	struct learner_eval eval, validation, local, merged;
	uint64_t saves, saved_step, saved_ms;
	uint64_t others_last;
	uint64_t others_told;            /* at least so many, by a peer's view of the clock */
	uint64_t clock_known, clock_mid; /* the run's, as it was CLOCK_NEWS_MS ago or earlier */
	uint64_t clock_ms;
	uint64_t others_kept; /* by the checkpoint that we went on from */
	/* Samples of others and our own when we last were in touch with them. */
	uint64_t others_then, own_then;
	uint64_t others_snap, own_snap; /* the same at the snapshot of an exchange under way */
	uint64_t followed_ms;    /* when we last looked, also by a suspended machine's clock */
	uint64_t apart_until_ms; /* what we hear of until then was trained without us */

	/* deciding */
	struct gate *gate;         /* owned */
	struct partners *partners; /* owned */
	struct exchange *exchange; /* owned */
	struct clip clip;
	struct ledger ledger;
	struct peer_id candidate[FLOCK_CANDIDATES];
	int n_candidates;
	uint32_t n_unlike;
	uint64_t candidates_ms;
	struct unlike unlike;
	uint64_t unlike_ms; /* when to ask the next one of them */
	uint64_t entry;     /* of the ledger, for the offer that begins now; 0: none */

	/* an exchange's means */
	/* Owned, of learner_buffer: ours as it travels, n_total words of either format; and what
	 * came, n_total differences. */
	void *snapshot;
	float *staging;
	bool snapping;      /* the learner writes snapshot */
	bool snap_matters;  /* the exchange still wants the one on its way */
	bool snap_sketched; /* it makes a sketch that is to be told */
	bool sketching;     /* a worker reads snapshot and staging */
	bool measuring;     /* the device reads staging */
	struct learner_measure measure;
	struct bulk *bulk; /* NULL: none under way */
	bool bulk_matters;
	struct exchange_event moved; /* that waits for distances or a sketch */
	bool moved_waits;
	enum convert_format moving;
	struct flock_wire wire;
	double distance2[EXCHANGE_GROUPS_MAX];
	bool has_distance2;
	float own_factor;
	struct exchange_event queued[FLOCK_EVENTS];
	int n_queued;
	bool stepping;
	struct exchange_actions actions;

	/* where we are */
	uv_work_t sketch_work;
	struct sketch sketch, sketch_next;
	bool has_sketch;
	uint64_t sketch_ms;
	double sketch_moved; /* our path until then */
	struct {
		struct peer_id id;
		uint64_t at_ms; /* 0: free */
		struct sketch sketch;
	} told[FLOCK_SKETCHES]; /* with offers, so fresher than what membership carries */
	struct sketch heard;    /* of what came in this exchange */
	bool has_heard;
	struct meetings meetings;
	double last_distance, rms;
	bool has_distance;
	uint64_t exchanged_ms; /* when the last one came about */

	struct flock_counts counts;
	struct exchange_result recent[FLOCK_RECENT];
	uint64_t n_recent;

	/* looking and joining */
	bool sought; /* there was somebody to look for */
	uint64_t look_until_ms, seen_ms;
	bool joined;
	struct flock_join join;
	uint64_t adopt_ms; /* when to give up our own for another flock's; 0: not to */
	uint64_t adopted_ms;
	struct peer_id adopt_from;

	/* giving */
	float *gift; /* owned; the frozen state, NULL: none */
	uint64_t gift_id, gift_ms;
	bool gift_ready, gift_taking;
	struct learner_state gift_info;
	float gift_radius[EXCHANGE_GROUPS_MAX + 1];
	struct flock_gift gifts[FLOCK_GIFTS];

	/* the end */
	bool run_over; /* all samples are trained */
	uint64_t merge_until_ms, merge_next_ms;
	uint64_t merge_rounds;
	/* With whom a round found hardly any distance, since one last found some. */
	struct peer_id merge_near[FLOCK_MERGE_NEAR];
	int n_merge_near;
	bool merge_evaluated;
	uint64_t idle_since_ms;
	uint64_t leave_until_ms; /* until then an exchange may still end by itself */
	bool learner_stopping, learner_stopped, learner_failed;
	bool refused;       /* nobody trains what we do: what we have is worth nothing */
	bool owes;          /* something is to be written before it may leave with success */
	bool kept;          /* what it owes is in a checkpoint */
	bool finished;      /* the result is written */
	bool result_asked;  /* the learner writes the result and its checkpoint */
	bool exported;      /* of these two, the first was answered */
	uint64_t result_ms; /* when to ask again */
	int result_tries;
};

static inline bool flock__exchange_idle(const struct flock_agent *f)
{
	return exchange_state(f->exchange) == EXCHANGE_IDLE && !f->snapping && !f->sketching &&
	       !f->measuring && !f->bulk;
}

/* flock.c */
void flock__phase(struct flock_agent *f, enum flock_phase p);
uint64_t flock__fresh(const struct flock_agent *f); /* so many samples are worth joining for */
void flock__candidates(struct flock_agent *f);      /* looks again if it is time to */
void flock__joined(struct flock_agent *f, bool from_donor);

/* flock_clock.c */
uint64_t flock__samples(const struct flock_agent *f); /* own, as peers are told */
uint64_t flock__clock(const struct flock_agent *f);
void flock__told_clock(struct flock_agent *f, uint64_t clock); /* by a peer of our run */
uint64_t flock__missed(const struct flock_agent *f); /* samples of others, while out of touch */
bool flock__stale(const struct flock_agent *f);      /* so many that a peer's state is needed */
void flock__in_touch(struct flock_agent *f);         /* nothing is missed, from now on */
void flock__tell_status(struct flock_agent *f);      /* to peers, and the clock to the learner */

/* flock_end.c */
void flock__end_stale(struct flock_agent *f); /* the run is over, and we have no part of its end */
void flock__merge_begin(struct flock_agent *f);
void flock__merge_result(struct flock_agent *f, const struct exchange_result *r);
void flock__merge_tick(struct flock_agent *f);
void flock__stay_tick(struct flock_agent *f);
void flock__learner_stopped(void *arg);

/* flock_exchange.c */
int flock__exchange_open(struct flock_agent *f, struct err *e) MUST_CHECK;
void flock__exchange_close(struct flock_agent *f);
void flock__exchange_event(struct flock_agent *f, const struct exchange_event *e);
void flock__exchange_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m);
/* Takes the connection if it is the exchange's; else the caller closes it. */
bool flock__exchange_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w);
void flock__exchange_steps(struct flock_agent *f, const struct learner_step *s, int n);
bool flock__exchange_begin(struct flock_agent *f, bool final); /* false: nobody, or not now */
void flock__exchange_offer(struct flock_agent *f, const struct peer_id *to, bool final);
void flock__snapshot_taken(struct flock_agent *f, uint64_t step);
void flock__exchange_measured(struct flock_agent *f, const double *group2); /* what came */

/* flock_heard.c */
void flock__measured(void *arg); /* the learner has */
/* What came is sketched, judged, and goes on; without anything that waits, nothing. */
void flock__exchange_sketched(struct flock_agent *f);
void flock__heard(struct flock_agent *f, const struct exchange_result *r); /* it came about */
/* How far two may be from each other who have trained apart since they met. */
double flock__may_be_apart(const struct flock_agent *f, const struct peer_id *id);

/* flock_near.c */
/* Asks the learner for a snapshot, with a sketch of it if it is time for one. False: its queue is
 * full. */
bool flock__snapshot(struct flock_agent *f, enum convert_format format);
void flock__snapshot_sketched(struct flock_agent *f, uint64_t step); /* it is there: told on */
void flock__keep_sketch(
        struct flock_agent *f, const struct peer_id *id, const struct exchange_terms *t);
void flock__sketch_soon(
        struct flock_agent *f); /* a fresh sketch of ourselves, when there is time */
double flock__moved(const struct flock_agent *f);
/* The peer's parameters, that far from ours, are not those that its sketch was made of. */
bool flock__lied(const struct flock_agent *f, const struct peer_id *peer, double distance);
/* The peer's sketch says that we are not of one flock any more. */
bool flock__apart(const struct flock_agent *f, const struct sketch *theirs);
void flock__consider_adopting(
        struct flock_agent *f, const struct peer_id *peer, const struct sketch *theirs);
bool flock__peer_sketch(const struct flock_agent *f, const struct peer_id *id, struct sketch *out);
int flock__peer_sketches(const struct flock_agent *f, struct sketch *out, int max);
/* Those by which what a donor gave is judged: fresh, and not its own. side: only of those who are
 * nearer to it than to us; NULL: of all. */
int flock__witnesses(const struct flock_agent *f, const struct peer_id *donor,
        const struct sketch *side, struct sketch *out, int max);

/* flock_unlike.c */
/* What a message says of its sender's manifest is compared with ours, and a difference is told. */
void flock__unlike_heard(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m);
void flock__unlike_tick(struct flock_agent *f); /* asks one of another manifest for it */
struct unlike_count flock__unlike_count(const struct flock_agent *f);
/* True: it is so with every peer of our run, we are the newcomer, and this agent ends. */
bool flock__unlike_all(struct flock_agent *f);

/* flock_join.c */
void flock__join_begin(struct flock_agent *f, const struct peer_id *from, bool merging_flocks);
/* True: it was the join's. */
bool flock__join_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m);
bool flock__join_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w);
void flock__join_gone(struct flock_agent *f, const struct peer_id *id);
void flock__join_tick(struct flock_agent *f);
void flock__join_adopted(struct flock_agent *f, const struct err *e);
void flock__join_close(
        struct flock_agent *f); /* cancels; join.bulk and work may still have to end */
bool flock__join_busy(const struct flock_agent *f);

/* flock_gift.c */
bool flock__gift_message(
        struct flock_agent *f, const struct peer_id *from, const struct exchange_message *m);
bool flock__gift_wire(
        struct flock_agent *f, const struct peer_id *id, uint64_t exchange, struct flock_wire *w);
void flock__gift_state(struct flock_agent *f, const struct learner_state *s);
void flock__gift_tick(struct flock_agent *f);
void flock__gift_close(struct flock_agent *f);
bool flock__gift_busy(const struct flock_agent *f);

/* A wire that is not wanted, or was used. */
void flock__wire_close(struct flock_wire *w);
void flock__wire_used(struct flock_wire *w); /* its fd is another's now */

#endif
