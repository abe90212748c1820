/* SPDX-License-Identifier: MIT */
/* Inside the flock: its state, and what its files ask of each other. Nobody else includes this.
 *
 *     flock.c       the step: events in, time, phases, looking for peers
 *     out.c         actions, sends and says of the step at hand; membership's turn
 *     claims.c      what peers say that they have trained
 *     labels.c      whose agents they are, and what all of one label count for
 *     run_clock.c   samples of all agents; who is a candidate for an exchange
 *     exchanging.c  gate and partners in front of the exchange machine, and what it asks for
 *     throttle.c    how often peers may begin one, and how soon we try again
 *     offers.c      what we think of a peer's offer and of its refusals
 *     verify.c      what a partner sent, before it is used
 *     differing.c   peers with another manifest
 *     divergence.c  our sketch and the peers'; flocks that were apart
 *     join.c        taking a donor's state
 *     trial.c       whether it is believed, and whether it stays so
 *     donate.c      giving ours
 *     finish.c      merge rounds, the result, leaving
 *     view.c        what can be told
 */
#ifndef DUNLIN_GOSSIP_FLOCK_FLOCK_INTERNAL_H
#define DUNLIN_GOSSIP_FLOCK_FLOCK_INTERNAL_H

#include "agent/base/rng.h"
#include "gossip/flock/flock.h"
#include "gossip/policy/meetings.h"
#include "gossip/policy/unlike.h"

#define FLOCK_CANDIDATES 1024 /* peers to draw partners from; of more, the first known */
#define FLOCK_MERGE_NEAR 8    /* partners that must be near for a merge to be over */
#define FLOCK_SHUNNED 8       /* donors that a join has tried in vain */
#define FLOCK_COUNTED 1024    /* peers whose claims are told apart */
#define FLOCK_COUNTED_SLOTS (2 * FLOCK_COUNTED)
#define FLOCK_LABELS 256      /* whose ids are counted together */
#define FLOCK_FINAL_BETA 0.5f /* of merge rounds */
#define FLOCK_SKETCHES 64     /* of peers, as they last told us */
#define FLOCK_PAST 16         /* sketches of our own, for comparison at an equal clock */
#define FLOCK_BEGUN 3         /* exchanges that must follow one before its peer's next counts */
#define FLOCK_CLAIMS 8        /* counts that peers told us, on their way to membership */
_Static_assert(FLOCK_SKETCHES <= SKETCH_PEERS_MAX, "all can be compared");

/* The run's clock, and our part of it. */
struct flock__clock {
	uint64_t base;             /* trained before, beyond what the checkpoint knows */
	struct flock_trained last; /* step 0: none yet */
	double loss;               /* smoothed */
	bool has_loss;
	uint64_t kept;       /* samples of others, by the checkpoint that we went on from */
	uint64_t others;     /* as last looked at */
	uint64_t own;        /* our own at the last news of others */
	uint64_t learner;    /* as the learner was last told */
	uint64_t told;       /* samples of others, at least, by a partner's view of the clock */
	uint64_t known, mid; /* the run's, as it was CLOCK_NEWS_MS ago or earlier */
	uint64_t at_ms;
	/* Samples of others and our own when we last were in touch with them, and at the snapshot
	 * of the exchange under way, or of the state that comes in. */
	uint64_t others_then, own_then, others_snapshot, own_snapshot, snapshot_ms;
	/* The same when an exchange last moved us, or a state was taken. */
	uint64_t others_met, own_met;
	uint64_t own_join;       /* our own when a stale agent began to join; 0: it does not */
	uint64_t set_step;       /* our step when the parameters were last set */
	uint64_t followed_ms;    /* when we last looked, also by a suspended machine's clock */
	uint64_t slept_ms;       /* when that was noticed last */
	uint64_t lonely_ms;      /* when there last was a candidate, or we began */
	uint64_t apart_until_ms; /* what we hear of until then was trained without us */
};

/* What peers claim, and what of it counts: claims.c. */
struct flock__claims {
	struct flock__counted {
		bool used;
		struct peer_id id;
		uint64_t since_ms, grew_ms, say_ms; /* grew: its count, last */
		uint64_t first, claimed, counted;
		/* Of claimed, when an exchange with it first moved us by too little since one moved
		 * us enough; 0: none has. */
		uint64_t clipped, clipped_then; /* then: when a state was taken last */
		uint64_t first_claim, label;
		double allowed;    /* what may be counted by now */
		bool before;       /* it had trained before we did */
		bool judged;       /* its first claim, by the age of the run */
	} of[FLOCK_COUNTED_SLOTS]; /* by hash */
	uint64_t key;
	uint32_t n, capped;
	uint64_t since_ms, at_ms, heard_ms; /* the first look, the last, and the first claim */
	bool trains, late;          /* has trained in this life; the run was there before it did */
	uint64_t slept_ms;          /* when we last woke up */
	uint64_t own_first, own_ms; /* samples before this life; time that we trained in it */
	uint64_t folded;            /* of ids that are no longer in the table */
	uint64_t full_ms;           /* when there was last no room, and none to be made; 0: never */
	uint64_t others;            /* samples of all others that count */
};

/* What one agent may count by now as a first claim, and since we last looked. */
struct flock__pace {
	bool known; /* some rate has been measured, or is stated */
	bool aged;  /* the age of the run is as well known as it will be */
	double first, growth;
	double run_s, s; /* the run's age, and since we last looked */
};

/* Whose agents they are: labels.c. */
struct flock__labels {
	struct flock__label {
		uint64_t label, rate;
		uint32_t agents;       /* that it stands for */
		uint32_t granted;      /* of them, whose first claims are in allowed */
		uint32_t live, barred; /* ids that could count; in quarantine */
		bool full; /* more live than may count: those with a key up to last do */
		uint32_t may;
		uint64_t last;
		double allowed; /* samples of all its ids */
		uint64_t counted;
		bool judged;    /* its first claims, by the age of the run */
		uint32_t voted; /* ids that had a say in the median at hand */
		double tokens;  /* exchanges that its ids may still begin with us */
		uint64_t tokens_ms;
		bool admitted;
	} of[FLOCK_LABELS];
	int n;
	bool many;  /* else agents count singly */
	bool owned; /* who has no label yet does not count */
};

struct flock__candidates {
	struct peer_id id[FLOCK_CANDIDATES];
	int n;
	uint32_t unlike;
	uint64_t at_ms;
};

/* What SLOT_SNAPSHOT is being filled for. */
enum flock__snapshot { SNAPSHOT_NONE, SNAPSHOT_EXCHANGE, SNAPSHOT_SKETCH, SNAPSHOT_DROPPED };

/* Who holds SLOT_STAGING. Dropped: the exchange is over, but the holder has not let go. */
enum flock__incoming {
	INCOMING_NONE,
	INCOMING_TRANSFER,
	INCOMING_MEASURE,
	INCOMING_TRANSFER_DROPPED,
	INCOMING_MEASURE_DROPPED,
};

/* The exchange under way, beside what the machine knows of it. */
struct flock__exchanging {
	enum flock__snapshot snapshot;
	bool tells_sketch; /* that of the snapshot on its way becomes ours */
	enum flock__incoming incoming;
	bool connected;              /* its bulk connection came and was not used yet */
	uint64_t batch;              /* samples of the last step; 0: always as many */
	uint64_t number;             /* of the exchange */
	/* Own steps: when it was decided on by us, or by a peer and accepted; of the snapshot; and
	 * of the merge, 0: none yet. */
	uint64_t offered_step, accepted_step, snapshot_step, applied_step;
	uint64_t entry;              /* of the ledger, for the offer that begins now; 0: none */
	struct exchange_event moved; /* to be told to the machine once it is verified */
	double distance2[EXCHANGE_GROUPS_MAX];
	double rounding2; /* share of their sum */
	bool has_distance2;
	struct sketch heard; /* of what came */
	bool has_heard;
	float own_factor;
	struct peer_id begun[FLOCK_BEGUN]; /* by whom, the last that count, in a ring */
	uint32_t n_begun;                  /* ever */
	uint64_t timer_ms;
	struct {
		uint64_t since_ms; /* when the window began; 0: none has */
		uint64_t steps;    /* ours in it */
		double rate;       /* ours, a second, in the one before; 0: not known */
	} throttle;
	struct scales scales;    /* ours; none until an exchange has filled them */
	int8_t used[SCALES_MAX]; /* by the exchange under way */
	bool left_out;           /* some of its blocks were */
	bool asked;              /* for a format with scales, by a peer, ever */
	uint64_t stepped_ms;     /* when the learner last ended a step, or the phase began */
	uint64_t step_ms[2];     /* that its last steps in this phase took; 0: none yet */
	struct exchange_actions actions;
};

/* Where we are, and where the others are. */
struct flock__divergence {
	struct sketch own;
	bool has_own, news; /* news: membership has not heard of it */
	uint64_t at_ms, step;
	double moved; /* our path until then */
	struct {
		struct peer_id id;
		uint64_t at_ms;       /* 0: free */
		uint64_t step, clock; /* the peer's, and the run's as it knew it */
		struct sketch sketch;
	} told[FLOCK_SKETCHES]; /* with offers, so fresher than what membership carries */
	struct {
		uint64_t clock;
		struct sketch sketch;
	} past[FLOCK_PAST]; /* our own, in a ring */
	uint32_t n_past;    /* ever */
	uint64_t adopt_ms;  /* when to give up our state for a donor's; 0: not to */
	struct peer_id adopt_from;
	uint64_t adopted_ms;
};

enum flock__join_stage {
	JOIN_NONE,
	JOIN_RETRY,    /* at at_ms */
	JOIN_ASKED,    /* DONATE is awaited until at_ms */
	JOIN_OPENING,  /* the connection is, until at_ms */
	JOIN_TRANSFER, /* a transfer holds SLOT_FETCHED */
	JOIN_MEASURE,  /* a worker reads it */
	JOIN_WITNESS,  /* another's sketch is awaited, looked for at at_ms */
	JOIN_TRY,      /* the learner does */
	JOIN_ADOPT,    /* the same */
	JOIN_ENDING,   /* given up, the holder has not let go */
};

struct flock__join {
	enum flock__join_stage stage;
	bool anew; /* it trained before, and gives that up */
	struct peer_id donor;
	bool has_donor;
	uint64_t exchange; /* number of this attempt */
	uint64_t snapshot; /* id of the donor's snapshot being received; 0: none yet */
	uint64_t began_ms, at_ms;
	bool soon;           /* the donor has asked for patience, in this attempt */
	uint64_t witness_ms; /* until then a sketch of another is awaited; 0: not yet */
	struct flock_state info;
	float radius[EXCHANGE_GROUPS_MAX + 1];
	int n_radius;
	struct sketch donor_sketch; /* when the snapshot was begun */
	bool has_donor_sketch;
	uint64_t count, total; /* numbers that have come, of how many */
	bool mixed;            /* they are of more than one donor */
	int n_witnesses;       /* that the state was held against */
	bool apart;            /* the state of a flock far from us is wanted */
	int attempts;
	struct peer_id shunned[FLOCK_SHUNNED];
	int n_shunned;
	int turns; /* times that all donors were asked */
	struct sketch result;
	struct flock_trial trial;
};

/* The state that was adopted last, while the learner still has the one before it. */
struct flock__adopted {
	bool on, due; /* due: the one before is wanted back */
	struct peer_id donor;
	uint64_t since, until; /* own steps */
	double trial, own;     /* losses: as tried, and of the state before */
	double sum, first;     /* of the losses since; the first of them */
	uint64_t others_then, own_then, others_met, own_met;
	bool joined;
};

enum flock__donation_stage {
	DONATION_FREE,
	DONATION_WAITING,
	DONATION_ANNOUNCED,
	DONATION_TRANSFER
};
enum flock__donated { DONATED_NONE, DONATED_TAKING, DONATED_READY };

/* Of a donor's word, how long its steps are, unless our own are longer: a state is copied between
 * two of them. */
#define FLOCK_SOON_MS 20000

struct flock__donate {
	enum flock__donated slot; /* what SLOT_DONATED holds */
	uint64_t id, at_ms;
	bool broke; /* a transfer of it: somebody may ask for the rest */
	struct flock_state info;
	float radius[EXCHANGE_GROUPS_MAX + 1];
	struct flock__donation {
		enum flock__donation_stage stage;
		struct peer_id to;
		uint64_t exchange, offset, since_ms;
	} to[FLOCK_DONATIONS];
	struct peer_id next; /* for whom another gives way, until next_ms */
	uint64_t next_ms;
};

enum flock__written { WRITTEN_NOT, WRITTEN_ASKED, WRITTEN_YES, WRITTEN_FAILED };
enum flock__merge { MERGE_NONE, MERGE_LOCAL, MERGE_ROUNDS, MERGE_OVER };
enum flock__leave { LEAVE_NONE, LEAVE_EXCHANGE, LEAVE_LEARNER, LEAVE_MEMBERSHIP, LEAVE_LEFT };

struct flock__finish {
	bool run_over; /* all samples are trained */
	enum flock__merge merge;
	uint64_t merge_until_ms, rounds;
	bool fine; /* a partner was so near that what is left goes in fp32 */
	/* With whom a round found hardly any distance, since one last found some. */
	struct peer_id near[FLOCK_MERGE_NEAR];
	int n_near;
	bool owes;    /* something is to be written before it may leave with success */
	bool refused; /* nobody trains what we do: what we have is worth nothing */
	enum flock__written exported, saved;
	int tries;
	uint64_t retry_ms, idle_since_ms;
	enum flock__leave leave;
	uint64_t leave_until_ms;
	bool learner_failed, learner_stopped;
};

struct flock {
	struct flock_config c;
	uint64_t now_ms, awake_ms;
	enum flock_phase phase;
	uint64_t model_hash;
	struct rng rng, wire_rng;
	uint64_t tick_ms;
	uint64_t look_until_ms, seen_ms;
	bool joined; /* by a donor's state */
	uint64_t exchanged_ms;
	uint64_t saves, saved_step, saved_ms;
	bool has_eval, has_local, has_merged;
	struct flock_eval eval, local, merged;

	/* in our memory */
	struct gossip *membership;
	struct gate *gate;
	struct partners *partners;
	struct exchange *exchange;

	uint64_t membership_ms; /* its deadline */
	bool membership_stepped, status_news;
	struct {
		struct peer_id id;
		uint64_t samples;
	} claim[FLOCK_CLAIMS];
	int n_claims;

	struct unlike unlike;
	uint64_t unlike_ms; /* when to ask the next one of them */
	uint32_t unlike_at; /* the member after the one that was asked last */
	struct clip clip;
	struct guard guard;
	struct ledger ledger;
	struct meetings meetings;
	struct flock__clock clock;
	struct flock__claims claims;
	struct flock__labels labels;
	struct flock__candidates candidates;
	struct flock__exchanging x;
	struct flock__divergence divergence;
	struct flock__join join;
	struct flock__adopted adopted;
	struct flock__donate donate;
	struct flock__finish finish;

	double last_distance, rms;
	bool has_distance;
	struct flock_counts counts;
	struct exchange_result recent[FLOCK_RECENT];
	uint64_t n_recent;

	struct flock_actions *out; /* of the step at hand */
};

/* flock.c */
void flock__phase(struct flock *f, enum flock_phase p);
void flock__look(struct flock *f);                    /* for peers, from now on */
void flock__joined(struct flock *f, bool from_donor); /* train, or merge if the run is over */

/* throttle.c */
void flock__throttle(struct flock *f, int steps); /* of ours, just heard of */
double flock__peer_rate(const struct flock *f);   /* exchanges a second that a peer may begin */
double flock__burst(double rate);                 /* and at once */

/* out.c */
struct flock_action *flock__do(struct flock *f, enum flock_action_kind kind);
struct flock_action *flock__do_bulk(struct flock *f, enum flock_action_kind kind, uint8_t use,
        const struct peer_id *peer, uint64_t exchange);
void flock__send(struct flock *f, const struct peer_id *to, const struct exchange_message *m);
struct flock_say *flock__say(struct flock *f, enum flock_say_code code);
void flock__say_of(struct flock *f, enum flock_say_code code, const struct peer_id *peer,
        uint64_t a, uint64_t b);
/* One event of membership, at most once in a step. */
void flock__membership(struct flock *f, struct gossip_event *e);
/* What membership has not heard of, if it had no turn yet. */
void flock__membership_turn(struct flock *f);
bool flock__membership_owed(const struct flock *f);
void flock__claim(struct flock *f, const struct peer_id *id, uint64_t samples);

/* claims.c */
void flock__count(struct flock *f); /* looks at all claims again */
uint64_t flock__may_claim(struct flock *f, const struct peer_id *id, uint64_t samples);
/* NULL: not known. */
struct flock__counted *flock__counted(struct flock *f, const struct peer_id *id);

/* Of one whose certificate states a rate; 0: the usual one. */
struct flock__pace flock__pace_at(const struct flock__pace *usual, uint64_t rate);

/* labels.c */
void flock__labels_look(struct flock *f); /* who is there of each label */
bool flock__label_counts(const struct flock *f, const struct member_view *v);
void flock__labels_grow(struct flock *f, const struct flock__pace *usual);
/* A peer's count grows from had to wants: to what its label has left, which is taken. */
uint64_t flock__label_count(
        struct flock *f, const struct peer_id *id, uint64_t had, uint64_t wants);
/* A median is taken; another id of that label has a say in it: as many as the label has agents. */
void flock__labels_poll(struct flock *f);
bool flock__label_votes(struct flock *f, uint64_t label);
enum exchange_why flock__admit(struct flock *f, const struct peer_id *id); /* as partners_admit */
bool flock__label_may_fetch(struct flock *f, const struct peer_id *id);
double flock__pull_left(struct flock *f, const struct peer_id *id); /* as partners_pull_left */

/* run_clock.c */
uint64_t flock__samples(const struct flock *f); /* own, as peers are told */
uint64_t flock__clock(const struct flock *f);
uint64_t flock__missed(const struct flock *f); /* samples of others, while out of touch */
bool flock__slept(const struct flock *f);      /* lately: what it knows of peers may be old */
bool flock__stale(const struct flock *f);      /* so many that a donor's state is needed */
bool flock__behind(const struct flock *f);     /* exchanges do not carry us along */
void flock__told_clock(struct flock *f, uint64_t clock); /* by a peer of our run */
void flock__tell_clock(struct flock *f);                 /* to membership and the learner */
bool flock__nearly_over(const struct flock *f); /* the run: an agent that is stale stays so */
/* Nothing is missed from now on; with a donor's state that comes at the run's end, from
 * flock__clock_snapshot on. */
void flock__in_touch(struct flock *f, bool from_donor);
void flock__clock_snapshot(struct flock *f);  /* for an exchange, or a donor's */
void flock__clock_exchanged(struct flock *f); /* it came about */
void flock__clock_clipped(struct flock *f, const struct peer_id *id); /* and hardly moved us */
double flock__moved(const struct flock *f);   /* our path since the parameters were set */
void flock__candidates(struct flock *f);      /* looks again if it is time to */
bool flock__is_candidate(const struct flock *f, const struct member_view *v);

/* exchanging.c */
bool flock__idle(const struct flock *f); /* no exchange, and nobody holds its buffers */
void flock__exchange(struct flock *f, struct exchange_event *e);
bool flock__offer_any(struct flock *f, bool final); /* false: nobody, or not now */
void flock__steps(struct flock *f, const struct flock_trained *s, int n);
bool flock__exchange_bulk(struct flock *f, const struct flock_event *e);
void flock__exchange_transferred(struct flock *f, const struct flock_event *e);
struct flock_action *flock__snapshot(struct flock *f, enum flock__snapshot use, uint8_t format);
bool flock__scaled(const struct flock *f, uint8_t format); /* it needs scales */
/* The wire format's number, or the plain one if that needs scales. */
uint8_t flock__plain(const struct flock *f);
struct format_choice flock__wire(const struct flock *f); /* that offers name now */
void flock__snapshot_taken(struct flock *f, const struct flock_event *e);
void flock__terms(
        struct flock *f, struct exchange_terms *t, const struct peer_id *peer, bool final);
uint64_t flock__merge_bytes(const struct flock *f); /* of a merge round that we would offer */
/* told_ms: that a step of the peer takes, by its own word. */
uint64_t flock__transfer_ms(const struct flock *f, const struct peer_id *id, uint8_t format,
        bool final, uint64_t told_ms);
/* That a step of ours takes, or has taken so far; 0: we make none, or they are short. */
uint64_t flock__step_ms(const struct flock *f);
void flock__steps_anew(struct flock *f); /* what steps took so far says nothing any more */

/* offers.c */
void flock__exchange_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m);

/* verify.c */
void flock__verify(struct flock *f, const struct flock_event *e); /* MEASURED, of STAGING */
void flock__met(struct flock *f, const struct exchange_result *r);
/* How far two may be from each other who have trained apart since they met. */
double flock__may_be_apart(const struct flock *f, const struct peer_id *id);
void flock__path(struct flock *f);                                     /* we have trained */
void flock__pulled(struct flock *f, const struct exchange_actions *a); /* it is applied now */

/* differing.c */
/* What a message says of its sender's manifest is compared with ours, and a difference is told. */
void flock__unlike_heard(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m);
void flock__unlike_tick(struct flock *f); /* asks a peer of another manifest for it */
struct unlike_count flock__unlike_count(const struct flock *f);
/* True: it is so with every peer of our run, we are the newcomer, and this agent ends. */
bool flock__unlike_all(struct flock *f);

/* divergence.c */
bool flock__sketch_due(const struct flock *f);
void flock__sketch_soon(struct flock *f);
void flock__own_sketch(struct flock *f, const struct sketch *s, uint64_t step);
void flock__keep_sketch(struct flock *f, const struct peer_id *id, const struct exchange_terms *t);
bool flock__peer_sketch(const struct flock *f, const struct peer_id *id, struct sketch *out);
/* How far that peer was when we were as far in the run as it was; false: not known. */
bool flock__was_apart(const struct flock *f, const struct peer_id *id, double *distance);
int flock__peer_sketches(const struct flock *f, struct sketch *out, int max);
/* Those by which what a donor gave is judged: fresh, and not its own. apart: only of those who are
 * far from us, by our own sketch; the donor's says nothing about who is a witness. */
int flock__witnesses(const struct flock *f, const struct peer_id *donor, bool apart,
        struct sketch *out, int max);
/* A peer beside the donor has trained: it could be a witness, if its sketch were known. */
bool flock__others_live(const struct flock *f, const struct peer_id *donor);
bool flock__quarantined(const struct flock *f, const struct peer_id *id);
/* The peer's parameters, that far from ours, are not those that its sketch was made of. */
bool flock__lied(const struct flock *f, const struct peer_id *peer, double distance);
/* The peer's sketch says that we are not of one flock any more. */
bool flock__apart(const struct flock *f, const struct sketch *theirs);
void flock__consider_adopting(
        struct flock *f, const struct peer_id *peer, const struct sketch *theirs);
bool flock__catch_up(struct flock *f); /* takes a donor's state if it is stale */
bool flock__adopt_if_due(struct flock *f);

/* join.c */
void flock__join_begin(struct flock *f, const struct peer_id *from, bool anew);
bool flock__join_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m);
bool flock__join_bulk(struct flock *f, const struct flock_event *e);
void flock__join_unsent(struct flock *f, const struct flock_event *e);
void flock__join_transferred(struct flock *f, const struct flock_event *e);
void flock__join_measured(struct flock *f, const struct flock_event *e);
void flock__join_tried(struct flock *f, const struct flock_event *e);
void flock__join_adopted(struct flock *f, int code);
bool flock__joining(const struct flock *f); /* or is about to give a state up: no exchange now */
void flock__join_gone(struct flock *f, const struct peer_id *id);
void flock__join_tick(struct flock *f);
void flock__join_close(struct flock *f);

/* trial.c */
bool flock__believes(struct flock *f); /* what join.trial says of the state that was fetched */
void flock__adopted(struct flock *f);  /* it is ours: watch it */
void flock__adopted_steps(struct flock *f, const struct flock_trained *s, int n);
bool flock__adopted_unproven(const struct flock *f);   /* too few own steps since then */
bool flock__adopted_failed(struct flock *f, int code); /* true: the state before comes back */
void flock__adopted_tick(struct flock *f);

/* donate.c */
bool flock__donate_message(
        struct flock *f, const struct peer_id *from, const struct exchange_message *m);
bool flock__donate_bulk(struct flock *f, const struct flock_event *e);
void flock__donate_unsent(struct flock *f, const struct flock_event *e);
void flock__donate_transferred(struct flock *f, const struct flock_event *e);
void flock__donate_state(struct flock *f, const struct flock_state *s);
void flock__donate_refused(struct flock *f);
void flock__donate_tick(struct flock *f);
void flock__donate_close(struct flock *f);
bool flock__donate_busy(const struct flock *f);

/* finish.c */
void flock__run_over(struct flock *f, const struct flock_event *e);
void flock__no_result(struct flock *f); /* the run is over, and we have no part of its end */
void flock__merge_begin(struct flock *f);
/* The run is over, and our model is the flock's: merge. */
bool flock__merge_if_over(struct flock *f);
void flock__merge_result(struct flock *f, const struct exchange_result *r);
void flock__finish_tick(struct flock *f);
void flock__evaluated(struct flock *f, const struct flock_event *e);
void flock__saved(struct flock *f, const struct flock_event *e);
void flock__exported(struct flock *f, int code);
void flock__learner_failed(struct flock *f, int code);
void flock__leave(struct flock *f, int code);
void flock__leave_check(struct flock *f); /* after every event */

#endif
