/* SPDX-License-Identifier: MIT */
/* An exchange between two agents: who says what when, and when may the weights move.
 *
 *     A                                   B
 *     OFFER ────────────────────────────► willing?           BUSY: no, and why
 *     ◄─────────────────────────── ACCEPT
 *     snapshot s_A                        snapshot s_B        (between two steps of each trainer)
 *     ◄═══════ bulk: Q(s_A), Q(s_B) ════► each checks what came, whole, into staging
 *     END {factors} ────────◄───────────► END {factors}       what each will allow the other
 *     COMMIT ───────────────◄───────────► COMMIT              sent once staging and END are there
 *     apply, ACK ───────────◄───────────► apply, ACK          once both COMMITs are there
 *
 * Both apply x += β·min(c)·(Q(y) − Q(s)) with the same numbers, so the sum of the two vectors stays
 * (Jin et al. 2016; delayed averaging as in AD-PSGD). Before an agent has sent COMMIT it may forget
 * the exchange at any time and nothing has happened on either side. After that only the peer's word
 * can settle it: when the connection is lost, each tells the other after the reconnect what it has
 * done (SETTLE), and who has not applied applies if the other has. A peer that does not come back,
 * or comes back without memory, leaves it unsettled: counted as one-sided, never hidden.
 *
 * A peer that stays away blocks nobody: after hold_ms the exchange is put aside and the next one
 * may begin. Whether our parameters have moved is final then; when the peer returns, the two still
 * settle how to count it.
 *
 * One exchange at a time, in or out. Of two offers that cross the one of the lower id survives. In
 * push and pull only one side moves; there is no COMMIT, and ACK ends it.
 *
 * Pure, like gossip.h: events with the time in, actions out, no clock, no socket, no weights. */
#ifndef DUNLIN_GOSSIP_EXCHANGE_EXCHANGE_H
#define DUNLIN_GOSSIP_EXCHANGE_EXCHANGE_H

#include "agent/base/err.h"
#include "agent/base/rng.h"
#include "gossip/exchange/manifest.h"
#include "gossip/exchange/scales.h"
#include "gossip/membership/gossip.h"

#define EXCHANGE_GROUPS_MAX 32 /* groups of layers that are clipped by themselves */
#define EXCHANGE_WORDS_MAX 160 /* bytes of text in a refusal, NUL not included */
#define EXCHANGE_REMEMBERED 16 /* finished ones of which a late question is answered */
#define EXCHANGE_ASIDE_MAX 16  /* unsettled ones that are put aside */
#define EXCHANGE_HOLD_MS 4000  /* that a silent peer keeps others waiting after COMMIT */
_Static_assert(EXCHANGE_HOLD_MS <= 5000, "the place is free within 5 s");
#define EXCHANGE_SENDS_MAX 4 /* of one step */

enum exchange_mode { EXCHANGE_PAIR, EXCHANGE_PUSH, EXCHANGE_PULL, EXCHANGE_MODES };

struct exchange_terms {
	struct manifest manifest;
	uint64_t step, samples; /* the speaker's own */
	uint64_t clock;         /* the run's, as it knows it */
	uint8_t mode;           /* enum exchange_mode, as the one who offers sees it */
	uint8_t format;         /* enum convert_format */
	bool final;             /* a merge round: training is over */
	float beta;             /* in (0, 1] */
	uint16_t sketch_length; /* bytes; 0: none */
	uint8_t sketch[GOSSIP_SKETCH_BYTES];
	uint16_t n_scales; /* with a format that needs them; 0: none */
	int8_t scales[SCALES_MAX];
	uint32_t step_ms; /* that a step of the speaker takes; 0: not long, or not known */
};

enum exchange_message_kind {
	EXCHANGE_OFFER,
	EXCHANGE_ACCEPT,
	EXCHANGE_BUSY,
	EXCHANGE_OPEN, /* I cannot dial you: open the bulk connection yourself */
	EXCHANGE_END,
	EXCHANGE_COMMIT,
	EXCHANGE_ACK,
	EXCHANGE_ABORT,  /* I have not moved and never will; needs no answer */
	EXCHANGE_SETTLE, /* what I have done about it */
	EXCHANGE_FETCH,  /* a joiner's: send me your state; see flock/join.c */
	EXCHANGE_GIFT,   /* the donor's: here it comes */
	EXCHANGE_SOON,   /* the donor's: when the step under way has ended */
	EXCHANGE_KINDS
};

/* Why an offer or a fetch is not taken, or given up. */
enum exchange_why {
	EXCHANGE_WILLING,
	EXCHANGE_OTHER,
	EXCHANGE_ENGAGED, /* in another exchange */
	EXCHANGE_BUDGET,  /* over its cap */
	EXCHANGE_RATE,    /* you begin too many */
	EXCHANGE_JOINING,
	EXCHANGE_PAUSED,
	EXCHANGE_LEAVING,
	EXCHANGE_STALE, /* your clock is too far from mine */
	EXCHANGE_APART, /* our parameters are too far from each other */
	EXCHANGE_QUARANTINED,
	EXCHANGE_UNLIKE,  /* manifests differ */
	EXCHANGE_UNKNOWN, /* no such exchange, snapshot or format */
	EXCHANGE_WHYS
};
const char *exchange_why_text(enum exchange_why w); /* "engaged", "budget", … */

enum exchange_settlement {
	SETTLE_UNKNOWN, /* I have no memory of it: I was started anew */
	SETTLE_DOUBT,   /* I have not moved, and will only if you have */
	SETTLE_APPLIED  /* I have moved */
};

/* What partners tell each other in END for the consensus guard; see policy/guard.h. */
struct exchange_word {
	float x2, lr; /* x2 0: nothing is said */
	bool far;     /* who offered chose the partner because it is far */
};

struct exchange_message {
	uint8_t kind;
	uint64_t exchange; /* chosen at random by the one who offers; never 0 */
	union {
		struct exchange_terms terms; /* OFFER, ACCEPT */
		struct {
			uint8_t why; /* BUSY, ABORT; a number from a later version is EXCHANGE_OTHER
			              */
			char words[EXCHANGE_WORDS_MAX + 1];
			struct manifest manifest; /* with EXCHANGE_UNLIKE: the speaker's, to be
			                             compared by who hears it */
		} busy;
		struct {
			uint8_t n;
			float factor[EXCHANGE_GROUPS_MAX]; /* c by group, each in [0, 1] */
			struct exchange_word word;
		} end;
		uint8_t settlement;
		struct {
			struct manifest manifest;
			uint64_t snapshot; /* 0: any; else to go on with that one */
			uint64_t offset;   /* numbers of it that the joiner has already */
		} fetch;
		struct {
			struct manifest manifest;
			uint64_t snapshot, offset; /* as will be sent */
			uint64_t step, samples, clock, optim_steps;
			uint8_t optimizer,
			        vectors; /* the parameters, then the optimizer's: 2 or 3 */
			uint8_t n;       /* groups: one radius more */
			float radius[EXCHANGE_GROUPS_MAX +
			             1]; /* clip's τ: overall, then by group */
			uint64_t batch;  /* of a batch that adapts; 0: not said */
			float noise, signal;
		} gift;
		uint32_t step_ms; /* SOON: that a step of the speaker takes */
	};
};

enum exchange_event_kind {
	EXCHANGE_EVENT_START,    /* offer an exchange to that peer; only when idle */
	EXCHANGE_EVENT_RECEIVED, /* one of the messages above but FETCH, GIFT and SOON */
	EXCHANGE_EVENT_SNAPSHOT, /* ours is taken */
	EXCHANGE_EVENT_BULK,     /* the connection came, or did not */
	EXCHANGE_EVENT_MOVED,    /* the transfer has ended */
	EXCHANGE_EVENT_APPLIED,  /* the trainer has applied what `apply` asked for */
	EXCHANGE_EVENT_UP,       /* a stream with that peer stands */
	EXCHANGE_EVENT_DOWN,     /* the last one is gone */
	EXCHANGE_EVENT_GONE,     /* membership says that it is dead or has left */
	EXCHANGE_EVENT_TIMER,
	EXCHANGE_EVENT_STOP, /* take no more; give up what may be given up */
};

struct exchange_event {
	uint8_t kind;
	uint64_t now_ms;
	struct peer_id peer; /* START, RECEIVED, BULK, UP, DOWN, GONE */
	union {
		struct {
			const struct exchange_terms *ours; /* borrowed for the call */
			uint64_t deadline_ms;              /* from ACCEPT to COMMIT */
			uint64_t entry; /* the caller's number of it, for the result */
			bool far;       /* for END, and the result */
		} start;
		struct {
			const struct exchange_message *message; /* borrowed for the call */
			/* Of an OFFER or ACCEPT: what the caller thinks of it. */
			uint8_t why;       /* EXCHANGE_WILLING, or the reason against it */
			const char *words; /* borrowed; NULL: none */
			/* Of an OFFER: what we would answer. */
			const struct exchange_terms *ours;
			uint64_t deadline_ms; /* of an ACCEPT: one under START's is not used */
		} received;
		struct {
			uint64_t exchange;
			uint8_t bulk; /* enum exchange_bulk */
		} bulk;
		struct {
			int code; /* 0, or an error: staging is worth nothing */
			bool again; /* with ERR_IO: nothing had come, and the connection was one
			             * that was kept; a fresh one may do better */
			uint64_t bytes_sent, bytes_received;
			double distance; /* ‖y − Q(s)‖ */
			uint8_t n;
			float factor[EXCHANGE_GROUPS_MAX]; /* what clipping allows, by group */
			float x2, lr;                      /* for END */
		} moved;
	};
};
enum exchange_bulk { BULK_CAME, BULK_FAILED, BULK_CANNOT_DIAL };

enum exchange_outcome {
	OUTCOME_EXCHANGED,
	OUTCOME_BUSY,
	OUTCOME_UNLIKE,  /* another model or run */
	OUTCOME_CROSSED, /* our offer gave way to the peer's */
	OUTCOME_TIMEOUT,
	OUTCOME_BROKEN,    /* the connection or the peer was lost; nothing has moved */
	OUTCOME_BAD,       /* what came was malformed or not finite; nothing has moved */
	OUTCOME_ONE_SIDED, /* after our COMMIT: only one of the two may have moved */
	OUTCOME_CANCELLED, /* by us: leaving */
	OUTCOMES
};
const char *exchange_outcome_text(enum exchange_outcome o); /* "exchanged", "one-sided", … */

struct exchange_result {
	struct peer_id peer;
	uint64_t exchange;
	bool ours; /* we offered */
	bool final;
	bool moved; /* our parameters have moved */
	bool late;  /* it was put aside before: snapshot and staging are another's by now */
	uint8_t mode, format;
	uint8_t outcome, why; /* why: of BUSY */
	char words[EXCHANGE_WORDS_MAX + 1];
	uint64_t step;  /* ours, in the terms */
	uint64_t entry; /* as START gave it; 0: a peer's */
	uint64_t bytes_sent, bytes_received;
	uint64_t began_ms, took_ms, deadline_ms; /* deadline: how long it was given */
	double distance;                         /* 0: not known */
	float factor;              /* the smallest that was applied; 1 where nothing was clipped */
	struct exchange_word word; /* the peer's, but far is of whoever offered */
	int code;                  /* of the transfer, for BAD and BROKEN */
	/* Filled in by the flock: own steps from the snapshot, and from the decision to begin or
	 * accept it, until the difference was applied. */
	bool timed;
	uint64_t delay, delay_decided;
};

struct exchange_actions {
	int n_sends;
	struct {
		struct peer_id to;
		struct exchange_message message;
	} send[EXCHANGE_SENDS_MAX];
	bool snapshot; /* take one; then EVENT_SNAPSHOT */
	const int8_t
	        *scales; /* of snapshot: the peer's, valid until the next step; NULL: the format
	                         needs none */
	bool open;       /* open the bulk connection to `peer` for `exchange`; then EVENT_BULK */
	bool fresh;      /* of open: not one that was kept from an earlier exchange */
	bool move;   /* begin the transfer: snapshot and connection are there; then EVENT_MOVED */
	bool cancel; /* end snapshot wait, connection and transfer of this exchange: none of
	                  SNAPSHOT, BULK and MOVED may follow for it */
	bool apply;  /* x += k·staging by group; then EVENT_APPLIED. Cannot be taken back */
	struct peer_id peer; /* of all but send and result, which have their own */
	uint64_t exchange;
	bool sends, receives; /* of move: which way parameters go */
	uint8_t format;
	uint64_t deadline_ms_left; /* of move; never 0 */
	uint8_t n_groups;
	float k[EXCHANGE_GROUPS_MAX]; /* of apply: β·min(c) */
	bool done; /* an exchange has ended, or an offer of another run's was refused */
	struct exchange_result result;
	bool aside; /* the current one is put aside unsettled: its result will be late */
	struct exchange_result so_far; /* of that one: all but the outcome */
	uint64_t timer_ms;             /* call TIMER then; UINT64_MAX: no need */
};

struct exchange_config {
	struct peer_id self;
	struct manifest manifest; /* its formats are those that offers may ask for */
	uint64_t scaled;          /* formats that need scales: 1 << number of each */
	uint8_t plain;            /* agreed on instead of such a format; not in merge rounds */
	uint8_t n_groups;
	uint64_t seed;      /* random for each process: numbers must not come again */
	uint32_t offer_ms;  /* until an offer is given up: 3000 */
	uint32_t open_ms;   /* from ACCEPT to the bulk connection: 3000; 0: the whole deadline */
	uint32_t hold_ms;   /* until an unsettled one is put aside: EXCHANGE_HOLD_MS */
	uint32_t settle_ms; /* until an unsettled one is given up: 30000; longer than two steps of
	                       the slowest trainer, which applies only between them */
};

enum exchange_state {
	EXCHANGE_IDLE,
	EXCHANGE_OFFERED,
	EXCHANGE_PREPARING, /* agreed; snapshot and connection are on their way */
	EXCHANGE_MOVING,
	EXCHANGE_ENDING, /* ours is whole, END is sent, the peer's is awaited; or its ACK, in push
	                    and pull */
	EXCHANGE_COMMITTED, /* COMMIT is sent, the peer's is awaited */
	EXCHANGE_APPLYING,  /* both are there */
	EXCHANGE_ACKING,    /* applied, the peer's ACK is awaited */
	EXCHANGE_UNSETTLED, /* the connection was lost after our COMMIT; not put aside yet */
	EXCHANGE_STATES
};

struct exchange;
size_t exchange_size(void);
/* In memory of the caller's, aligned for any type. */
void exchange_init(struct exchange *x, const struct exchange_config *c);
void exchange_step(struct exchange *x, const struct exchange_event *e, struct exchange_actions *a);

/* Snapshot and staging are its own from PREPARING until it is IDLE again. */
enum exchange_state exchange_state(const struct exchange *x);
const char *exchange_state_text(enum exchange_state s);
/* How many are put aside, their results to come. */
int exchange_unsettled(const struct exchange *x);
/* The format in which an offer of theirs would be taken; none, if we do not know it. */
uint8_t exchange_agrees(const struct exchange *x, const struct exchange_terms *theirs,
        const struct exchange_terms *ours);
/* Whom with, and whether it is a merge round; only when not idle. */
struct peer_id exchange_peer(const struct exchange *x);
bool exchange_final(const struct exchange *x);

#endif
