/* SPDX-License-Identifier: MIT */
/* The flock: everything that an agent decides, as one pure function.
 *
 *                events                                actions
 *     transport ─┐                                 ┌─► send, open, transfer, cancel
 *     learner ───┼─►  flock_step (pure, seeded)  ──┼─► snapshot, measure, apply, adopt …
 *     user ──────┤                                 ├─► say (a code with fields)
 *     time ──────┘                                 └─► wake me at …
 *
 * It composes membership (who is there), the run's clock (how far is the run), the gate and the
 * partners (when, and with whom), the exchange (one pair, its messages and states), clipping and
 * verification (what came, before it is used), divergence (flocks that were apart), joining and
 * donating (a state for a late joiner), finishing and leaving.
 *
 * It has no clock, socket, thread, allocator or parameters: events carry the time and what
 * happened, actions are bounded arrays of what to do. The same configuration and events give the
 * same actions. No action returns a value: what cannot be done comes back as an event. A driver
 * carries out the actions of one step in order and never calls flock_step from inside an action.
 *
 * Memory for parameters is the driver's. Actions and events name it by slot:
 *
 *     SNAPSHOT  our parameters as they travel       STAGING  the difference that a partner sent
 *     DONATED   a state for joiners                 FETCHED  a donor's state
 */
#ifndef DUNLIN_GOSSIP_FLOCK_FLOCK_H
#define DUNLIN_GOSSIP_FLOCK_FLOCK_H

#include "gossip/exchange/exchange.h"
#include "gossip/exchange/manifest.h"
#include "gossip/membership/gossip.h"
#include "gossip/policy/clip.h"
#include "gossip/policy/format.h"
#include "gossip/policy/gate.h"
#include "gossip/policy/guard.h"
#include "gossip/policy/ledger.h"
#include "gossip/policy/partners.h"
#include "gossip/policy/sketch.h"

#define FLOCK_FORMATS_MAX 8 /* wire formats */
#define FLOCK_DONATIONS 4   /* joiners served at one time */
#define FLOCK_RECENT 128    /* exchanges that are listed */
#define FLOCK_ACTIONS_MAX 32
#define FLOCK_SENDS_MAX 24
#define FLOCK_SAYS_MAX 32

enum flock_phase {
	FLOCK_LOOKING, /* for peers, before the first step */
	FLOCK_JOINING, /* a donor's state is on its way */
	FLOCK_TRAINING,
	FLOCK_PAUSED,
	FLOCK_MERGING,  /* all samples are trained: merge rounds */
	FLOCK_FINISHED, /* the result is written; stays for the others for a while */
	FLOCK_LEAVING,
	FLOCK_PHASES
};
const char *flock_phase_text(enum flock_phase p); /* "looking", "joining", … */

struct flock_config {
	struct gossip_config membership;
	bool learner; /* false: this agent trains nothing, and the rest does not matter */
	bool alone;   /* there is nobody to look for before the first step */

	/* The run. */
	struct manifest manifest; /* count: parameters; total: samples of the whole run */
	uint8_t n_groups;         /* of parameters that are clipped together */
	uint8_t optimizer, vectors;
	bool evaluates; /* there is something to evaluate a model on */
	/* Agents begin with weights of their own, which the manifest does not tell: those of the
	 * first one count, and the others take them before their first step. */
	bool first_weights;
	bool resumed;   /* from a checkpoint, as follows; else zeros */
	uint64_t step, samples, others;
	uint64_t samples_before; /* ours in this run beyond what the checkpoint knows */

	/* Settings. */
	struct gate_config gate;
	bool guard;               /* the consensus guard begins exchanges, too */
	double momentum, lr_peak; /* of the optimizer; the highest learning rate of the run */
	double floor2[FLOCK_FORMATS_MAX]; /* of Ξ² by rounding, relative to our length² */
	struct gate_quota quota;
	uint64_t wall_s; /* now, for the quota */
	double peer_rate; /* exchanges a second that a peer may begin; 0: one for each own step */
	double rate_cap; /* samples a second that one peer's count grows by; 0: by what is usual */
	uint8_t mode, format; /* enum exchange_mode; the number of a wire format */
	uint8_t format_why;     /* enum format_why: of that format, to be told */
	uint8_t n_formats;
	uint64_t scaled; /* formats that send parameters modulo a lattice: 1 << number of each */
	uint8_t plain;   /* instead of such a format, where it cannot be */
	uint8_t merge;   /* one of them, for merge rounds that are not nearly done */
	uint64_t exchange_bytes[FLOCK_FORMATS_MAX]; /* of all parameters in each format */
	float beta;
	double stale;     /* share of the run: who has missed more joins anew */
	uint64_t fresh;   /* samples: who has trained fewer has nothing to give */
	uint64_t join_ms; /* looking for peers before the first step */
	uint64_t merge_ms, stay_ms, leave_ms;

	uint64_t seed;      /* of partners, witnesses and jitter */
	uint64_t wire_seed; /* of numbers that peers see */
};

/* ---- events */

struct flock_trained { /* one step */
	uint64_t step, samples;
	double loss, lr, grad_norm, layer_norms;
	double moved; /* own path since the parameters were set, merges left out */
	/* With a batch that adapts (policy/batch.h), else 0: samples of the step; of the norm
	 * test the averages S and G, 0 while they are not known. */
	uint64_t batch;
	double noise, signal;
	bool no_loss; /* loss is not known */
};

struct flock_state { /* a whole state: parameters and the optimizer's vectors */
	uint64_t step, samples, clock, optim_steps;
	uint8_t optimizer, vectors;
	uint64_t batch; /* as of flock_trained; 0: the donor says nothing */
	double noise, signal;
};

/* What parameters that were fetched are worth, beside our own and the initial ones: mean losses on
 * the same samples. A learner measures; whether the state is believed is decided here. */
struct flock_trial {
	double loss, own, initial; /* NaN: not measured, or not a number */
	bool test;                 /* of samples that nobody trains on; else of our training part */
};

struct flock_eval {
	double loss;
	int64_t correct, count;
	uint64_t step, clock;
	bool whole, asked; /* the whole test set; by an action of ours */
	double seconds;
};

enum flock_slot { SLOT_SNAPSHOT, SLOT_STAGING, SLOT_DONATED, SLOT_FETCHED };

/* What a bulk connection and its transfer are for. */
enum flock_use { USE_EXCHANGE, USE_FETCH, USE_DONATE /* + number of the donation */ };

enum flock_wish { WISH_PAUSE, WISH_RESUME, WISH_SAVE, WISH_LEAVE };

enum flock_event_kind {
	FLOCK_EVENT_START, /* first */
	FLOCK_EVENT_TIMER,
	FLOCK_EVENT_MEMBERSHIP, /* an event of membership, in `membership` */
	FLOCK_EVENT_MESSAGE,    /* of an exchange, from a peer with whom a session stands */
	FLOCK_EVENT_UNSENT,     /* a message to that peer could not be sent or queued */
	FLOCK_EVENT_BULK,       /* a connection came, or what OPEN asked for did not */
	FLOCK_EVENT_TRANSFERRED,
	FLOCK_EVENT_STEPS, /* the learner has trained */
	FLOCK_EVENT_SNAPSHOT,
	FLOCK_EVENT_MEASURED,
	FLOCK_EVENT_APPLIED,
	FLOCK_EVENT_STATE,   /* DONATED holds a state */
	FLOCK_EVENT_TRIED,   /* FETCHED has been measured on samples; code: it could not be */
	FLOCK_EVENT_ADOPTED, /* or not: code */
	FLOCK_EVENT_EVALUATED,
	FLOCK_EVENT_SAVED,
	FLOCK_EVENT_EXPORTED,
	FLOCK_EVENT_DONE,    /* the learner trains no more: `clock` of the run, or run.stop_after */
	FLOCK_EVENT_FAILED,  /* the same, with a code */
	FLOCK_EVENT_REFUSED, /* the learner could not take an action (its queue is full) */
	FLOCK_EVENT_STOPPED, /* the learner has ended */
	FLOCK_EVENT_WISH,    /* of the user */
};

struct flock_event {
	uint8_t kind;
	uint64_t now_ms;   /* monotonic */
	uint64_t awake_ms; /* the same, but it goes on while the machine is suspended */
	struct peer_id peer; /* MESSAGE, UNSENT, BULK */
	uint64_t exchange;   /* UNSENT, BULK, TRANSFERRED */
	int code;            /* of what can fail: 0, or an error */
	union {
		struct gossip_event membership;         /* now_ms is filled in */
		const struct exchange_message *message; /* borrowed for the call */
		uint8_t bulk;                           /* enum exchange_bulk */
		struct {
			uint8_t use;       /* enum flock_use */
			bool again;        /* EXCHANGE: see exchange.h */
			uint64_t received; /* parameters */
			uint64_t bytes_sent, bytes_received;
		} transferred;
		struct {
			const struct flock_trained *list; /* borrowed for the call */
			int n;
		} steps;
		struct {
			uint64_t step;
			const struct sketch *sketch; /* NULL unless it was asked for; borrowed */
		} snapshot;
		struct {
			uint8_t slot; /* STAGING: all of it; FETCHED: the sketch */
			bool finite;
			double distance2[EXCHANGE_GROUPS_MAX];
			double rounding2; /* of a scaled format: its share of their sum, about */
			const struct sketch *sketch; /* of what came; NULL: not made; borrowed */
			/* For scales_learn, borrowed; n_scales 0: not asked for, or not made. */
			const int8_t *found, *size;
			uint16_t n_scales;
			uint64_t blocks, wrapped; /* of a scaled format; else 0 */
		} measured;
		struct flock_state state;
		struct flock_trial tried;
		struct flock_eval eval;
		uint64_t saved_step;
		uint64_t applied_step; /* the last one before it; 0: not told */
		struct {
			uint64_t clock;
			bool stopped_early; /* by run.stop_after */
		} done;
		uint8_t refused; /* enum flock_action_kind */
		uint8_t wish;    /* enum flock_wish */
	};
};

/* ---- actions */

enum flock_action_kind {
	/* The network. */
	FLOCK_DO_OPEN,     /* a bulk connection to peer for exchange; then BULK */
	FLOCK_DO_CLOSE,    /* the connection that came is not wanted */
	FLOCK_DO_TRANSFER, /* over the connection that came; then TRANSFERRED */
	FLOCK_DO_CANCEL,   /* the transfer of that use; TRANSFERRED comes all the same */
	/* The learner; each is answered by its event, or by REFUSED. */
	FLOCK_DO_SNAPSHOT,
	FLOCK_DO_MEASURE,
	FLOCK_DO_APPLY,
	FLOCK_DO_TAKE_STATE,
	FLOCK_DO_TRY,      /* FETCHED, on samples; then TRIED. Our own parameters stay */
	FLOCK_DO_ADOPT,    /* and keep what was before, for some time, for RESTORE */
	FLOCK_DO_EVALUATE, /* the whole test set */
	FLOCK_DO_SAVE,
	FLOCK_DO_EXPORT,
	FLOCK_DO_STOP, /* for good; then STOPPED */
	/* These have no answer. */
	FLOCK_DO_TRAIN,
	FLOCK_DO_PAUSE,
	FLOCK_DO_CLOCK,   /* samples of all others */
	FLOCK_DO_RESTORE, /* the state from before the last ADOPT; a learner that failed since then
	                     because of numbers that are none trains again */
	FLOCK_DO_RELEASE, /* the slot's memory may go: DONATED, FETCHED */
	FLOCK_DO_LEAVE,   /* leaving has begun: because the run is over (code 0), or has failed */
	FLOCK_DO_LEFT,    /* goodbye is said: close everything */
};

struct flock_action {
	uint8_t kind;
	uint8_t use;         /* of the network's */
	struct peer_id peer; /* the same */
	uint64_t exchange;   /* the same */
	union {
		bool fresh; /* OPEN: not one that was kept from an earlier exchange */
		struct {
			uint8_t format;
			bool sends, receives; /* EXCHANGE: which way parameters go */
			uint64_t offset;      /* FETCH, DONATE: parameters that are there already */
			uint64_t deadline_ms; /* from now */
		} transfer;
		struct {
			uint8_t format;
			bool sketch; /* of what travels, too */
			/* Of a scaled format, what both use; valid for the call. */
			uint16_t n_scales;
			const int8_t *scales;
		} snapshot;
		struct {
			uint8_t slot; /* MEASURE, RELEASE */
			bool scales;  /* MEASURE of STAGING: what scales_learn needs, too */
		};
		struct {
			uint8_t n;
			float k[EXCHANGE_GROUPS_MAX];
		} apply;
		struct flock_state adopt;
		struct {
			uint64_t others; /* CLOCK: samples */
			uint64_t agents; /* that train now, with us */
		};
		int code;    /* LEAVE */
		bool wished; /* SAVE: by a user, and not by ourselves */
	};
};

/* What people are told. Texts are the driver's. */
enum flock_say_code {
	SAY_PHASE,          /* a: the new one */
	SAY_ALONE,          /* training alone, and looking on */
	SAY_JOINS,          /* a: peers, b: samples missed */
	SAY_TRAINS_AT_ONCE, /* the same */
	SAY_STALE,          /* a: samples missed; flag: by exchanges that did not carry it along */
	SAY_NO_RESULT,      /* a: samples missed; nobody is left to take the result from */
	SAY_RUN_TRAINED,    /* a: the clock, b: own */
	SAY_STOPPED_EARLY,  /* run.stop_after */
	SAY_PAUSED,
	SAY_RESUMED,
	SAY_EXCHANGE,    /* peer; result is filled in */
	SAY_QUARANTINE,  /* peer; words: the reason, a: ms */
	SAY_APART,       /* peer; a, b: its side's agents and samples, c, d: ours; flag: we adopt */
	SAY_JOIN_ASKING, /* peer; a: parameters that are there */
	SAY_JOIN_BUSY,   /* peer; words */
	SAY_JOIN_UNFIT,  /* peer; code */
	SAY_JOIN_BROKEN, /* a of b parameters; code */
	SAY_JOIN_OTHER_DONOR,  /* flag: goes on, else starts over */
	SAY_JOIN_IMPLAUSIBLE,  /* peer; a: sketches */
	SAY_JOIN_WORSE,        /* peer; a: its loss, b: what is still believed, in millionths */
	SAY_JOIN_TAKEN,        /* peer; a: step, b: sketches */
	SAY_JOIN_ADOPT_FAILED, /* code */
	SAY_JOIN_NOBODY,       /* flag: from our own state, else from the initial weights */
	SAY_JOINED,            /* a: ms, b: clock */
	SAY_RESTORED, /* peer: who gave the state that is given up; a: its loss now, b: as tried */
	SAY_DONATED,  /* peer; a: step */
	SAY_DONATION_BROKEN, /* peer; code */
	SAY_REFUSED,         /* a: the action that the learner could not take */
	SAY_FAILED,          /* code: the learner's */
	SAY_UNWRITTEN,       /* code: the result could not be written; tried again */
	SAY_UNLIKE,          /* peer; words: in what its manifest differs */
	SAY_CAPPED,          /* peer; a: samples that it claims, b: those that count */
	SAY_ALL_UNLIKE,      /* a: peers of our run, all of another manifest; words: the keys */
};

struct flock_say {
	uint8_t code;
	bool flag;
	int error;
	struct peer_id peer;
	uint64_t a, b, c, d;
	float own_factor;                     /* EXCHANGE */
	const struct exchange_result *result; /* EXCHANGE; valid until the next step */
	char words[MANIFEST_WORDS_MAX + 1];
};

struct flock_actions {
	struct gossip_actions membership; /* sends are to be signed; notices; names to resolve */
	int n_sends;
	struct {
		struct peer_id to;
		struct exchange_message message;
	} send[FLOCK_SENDS_MAX]; /* in order: what follows one that could not be sent is not sent */
	int n_actions;
	struct flock_action action[FLOCK_ACTIONS_MAX]; /* in order, after the sends */
	int n_says;
	struct flock_say say[FLOCK_SAYS_MAX]; /* of more, the last is lost */
	uint64_t wake_ms;                     /* call TIMER then, or any event before */
};

/* ---- the core */

struct flock;

/* Memory that it takes with this configuration; it never takes more. */
size_t flock_size(const struct flock_config *c);

/* Makes one in memory of the caller's, aligned for any type and of flock_size bytes, zeroed. Fails
 * as gate_check and gossip_init do. */
int flock_init(struct flock **out, void *memory, size_t size, const struct flock_config *c,
        uint64_t now_ms, struct err *e) MUST_CHECK;

/* actions is overwritten. */
void flock_step(struct flock *f, const struct flock_event *e, struct flock_actions *a);

/* ---- looking around, between steps */

const struct gossip *flock_membership(const struct flock *f);
uint64_t flock_samples(const struct flock *f); /* own, to be persisted */
struct gate_quota flock_quota(const struct flock *f, uint64_t wall_s);
/* Once it leaves: the last checkpoint, or the run's result, is not written. */
bool flock_unsaved(const struct flock *f);

struct flock_counts {
	uint64_t by_outcome[OUTCOMES];       /* of exchanges, ours and others' */
	uint64_t begun, taken;               /* exchanged: by us, by peers */
	uint64_t busy_given;                 /* offers of peers that we did not take */
	uint64_t clipped;                    /* exchanged with a factor under 1 */
	uint64_t bytes_sent, bytes_received; /* of parameters, sealed, all transfers included */
	uint64_t donations, donated_bytes;   /* states sent to joiners */
	uint64_t adoptions;                  /* states taken from donors */
	uint64_t tried, refused;             /* states that were tried; of them, not believed */
	uint64_t restored;                   /* that were taken, and given up again */
};

struct flock_view {
	enum flock_phase phase;
	uint64_t step, samples, clock, total;
	bool has_loss;
	double loss, lr; /* loss: smoothed over about 50 steps */
	uint64_t batch;  /* as of flock_trained */
	double noise;    /* S/G: samples; 0: not known */
	uint8_t outer;   /* enum outer_kind */
	bool has_eval, has_local, has_merged;
	struct flock_eval eval, local, merged; /* last; before and after the merge rounds */
	const struct gate *gate;
	const struct ledger *ledger;
	const struct partners *partners;
	enum exchange_state exchange_state;
	struct peer_id exchange_peer; /* unless idle */
	bool has_distance;
	double distance;     /* of the last exchange, between us and that peer: not Ξ */
	double distance_rms; /* of the last ones */
	double radius;       /* τ: what is farther is clipped; 0: not known */
	bool radius_warm;    /* it rests on enough distances, not on a path or a donor's word */
	bool guards;         /* the consensus guard is on */
	struct guard_view guard;
	uint8_t format, format_why; /* that offers name now; enum format_why */
	struct flock_counts counts;
	bool timed; /* the next two are known: medians of the recent ones, in own steps */
	double delay, delay_decided;          /* see struct exchange_result */
	const struct exchange_result *recent; /* ring; number n at (n − 1) % FLOCK_RECENT */
	uint64_t n_recent;                    /* ever entered */
	uint32_t candidates;                  /* alive peers of our run */
	uint32_t unlike;                      /* alive peers of another run or model */
	uint32_t differs;                     /* in what those of our run do, see manifest.h */
	uint32_t quarantined;
	uint32_t capped;                 /* peers that claim more samples than count */
	struct peer_id donor;            /* JOINING */
	uint64_t join_count, join_total; /* JOINING: numbers that have come, of how many */
	bool joining;                    /* a donor's state is on its way, in whatever phase */
	bool joined;                     /* from a donor, not from the initial weights */
	uint64_t saved_step, saves, saved_ms;
	uint64_t exchanged_ms; /* when the last exchange came about */
	bool finished;         /* the result is written */
	uint64_t merge_rounds;
	bool rounds_over; /* what is evaluated from now on is the merged model */
};
void flock_view(const struct flock *f, struct flock_view *out);

/* Ξ as estimated from our own sketch and those of peers; returns how many of theirs are known, 0:
 * nothing can be said. Dearer than a view. */
int flock_consensus(const struct flock *f, double *consensus);

#endif
