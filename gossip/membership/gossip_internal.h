/* SPDX-License-Identifier: MIT */
/* Inside the membership core: its state, and what its files ask of each other.
 *
 *     gossip.c   the step: time, events, timers, looking around
 *     members.c  the table: records and accusations come in, states change, suspicions run out
 *     queue.c    what is news, and on which message it rides
 *     probe.c    SWIM's probes, and helping with others'
 *     addrs.c    which of its addresses a member is reached by
 *     sync.c     whole states: joining, healing, push-pull
 */
#ifndef DUNLIN_GOSSIP_MEMBERSHIP_GOSSIP_INTERNAL_H
#define DUNLIN_GOSSIP_MEMBERSHIP_GOSSIP_INTERNAL_H

#include "agent/base/rng.h"
#include "gossip/membership/gossip.h"

#define NONE UINT32_MAX
#define NEVER UINT64_MAX

/* News about a change goes first; a fresher status only fills what room is left. */
enum news { NEWS_CHANGE, NEWS_STATUS, NEWS_CLASSES, NEWS_NONE = NEWS_CLASSES };

/* An accuser whom the accused has shown to be wrong. */
struct refuted {
	uint64_t key; /* its id's first bytes; 0: none */
	uint64_t at;
};

struct member {
	struct member_record record;
	struct signed_bytes record_raw;
	struct accusation accusation; /* of a suspect or a dead one */
	struct signed_bytes accusation_raw;
	bool accusation_ours;
	uint8_t state;
	uint64_t since;   /* when the state began */
	uint64_t samples; /* the highest count that was seen */
	bool hearsay;     /* known from a whole state alone: we have seen no sign of life */
	uint64_t told_at; /* when it was last told that it lost its generation */

	uint64_t suspect_since, suspect_until;
	bool said_dead;       /* another holds this suspect dead */
	uint64_t label, rate; /* see EVENT_CERTIFIED */
	uint32_t agents;
	uint32_t n_accusers;
	struct peer_id accuser[GOSSIP_ACCUSERS];
	struct refuted refuted[GOSSIP_REFUTED];
	uint8_t next_refuted; /* modulo the table's size: the oldest one gives way */

	uint8_t news;     /* enum news: the class in which it is queued */
	bool record_news; /* of an accused: its record is news too, beside the accusation */
	uint8_t transmits;
	uint32_t queue_prev, queue_next;

	uint8_t in_use; /* of the record's addresses */
	bool proven;    /* that one has answered us since it last failed */
	uint8_t misses; /* probes in a row that only others' help brought home */
	bool unreachable;
	bool forbidden; /* by our lists: as if it were not there */
	bool connected;
	bool met;       /* it was connected with us since it last had to refute */
	uint64_t heard; /* when a later record of it came */
	uint64_t spoke; /* when a message came from it itself; 0: never */
};

struct probe {
	uint32_t target;      /* NONE: no probe under way */
	struct peer_addrs at; /* pinged by datagram, or could be; none: by stream alone */
	/* One for each of these, so that an answer says which address works. The first one is the
	 * helpers' and the stream's too. */
	uint64_t nonce[MEMBER_ADDRS_MAX];
	uint64_t ask_helpers_at; /* NEVER once asked */
	uint64_t end_at;
	uint32_t nacks_wanted, nacks;
};

struct relay {
	uint64_t nonce; /* of our ping; 0: free */
	uint64_t their_nonce;
	struct peer_id from, target;
	struct peer_addr address;
	uint8_t channel;
	uint64_t end_at;
};

enum sync_phase { SYNC_RECORDS, SYNC_ACCUSATIONS, SYNC_SKETCHES, SYNC_DONE };

struct sync {
	bool used;
	bool to_id;
	bool want_reply;
	struct peer_id id;
	struct peer_addrs addrs;
	uint8_t phase;
	uint32_t cursor;
};

/* A process that spoke with our key and is not us. */
struct stranger {
	uint64_t nonce, generation;
};
#define STRANGERS 4

struct retired {
	uint64_t key; /* the id's first bytes; 0: free */
	uint64_t samples;
};

struct gossip {
	struct gossip_config config;
	struct rng rng;
	struct gossip_actions *out; /* borrowed during a step */
	bool started, left;

	/* Time: `now` never jumps; what the caller's clock leapt is left out of it. */
	uint64_t now, caller_now, deadline;

	uint32_t members_max, n_members;
	struct member *members;         /* [members_max] is ourselves */
	struct member_sketch *sketches; /* alike; length 0: none */
	uint32_t *table;                /* id → member, open addressing, NONE: free */
	uint32_t table_mask;
	uint32_t *order; /* of probing, reshuffled when it is through */
	uint32_t n_order, order_next;
	uint32_t n_state[4];
	/* Two tables, open addressing: the younger one is filled; when it is full the older one is
	 * forgotten and takes its part. */
	struct retired *retired[2];
	uint32_t retired_mask, n_retired; /* n: in retired[0], the younger */
	bool folded;                      /* some were forgotten: of them only the clock knows */
	uint64_t clock;

	uint32_t queue_head[NEWS_CLASSES][GOSSIP_TRANSMITS_MAX];
	uint32_t n_queued[NEWS_CLASSES];

	uint32_t health;
	struct probe probe;
	struct relay relay[GOSSIP_RELAYS];
	uint64_t probe_at, gossip_at, sync_at, heal_at, status_at;
	uint64_t suspects_at; /* the first suspicion that runs out, or earlier */

	struct sync sync[GOSSIP_SYNCS];
	struct peer_addr remembered[GOSSIP_REMEMBERED];
	uint32_t n_remembered;

	struct member_status status; /* the newest; published now and then */
	uint64_t samples_before;     /* of our own earlier lives, as others remember them */
	bool status_pending;
	struct stranger stranger[STRANGERS];
	uint64_t raised_at; /* when our generation was last raised */
	struct gossip_counters counters;
};

static inline struct member *gossip__self(struct gossip *g)
{
	return &g->members[g->members_max];
}

/* Those that take part: alive or suspect. */
static inline bool gossip__present(const struct member *m)
{
	return m->state == MEMBER_ALIVE || m->state == MEMBER_SUSPECT;
}

static inline uint32_t gossip__n_present(const struct gossip *g)
{
	return g->n_state[MEMBER_ALIVE] + g->n_state[MEMBER_SUSPECT];
}

/* gossip.c */
void gossip__notice(struct gossip *g, enum notice_kind k, const struct peer_id *id, uint64_t value);
/* Room for one more send in this step, or NULL. The message is empty but for its kind. */
struct gossip_send *gossip__send(struct gossip *g, enum message_kind kind, enum gossip_channel c);
void gossip__send_to(struct gossip_send *s, const struct peer_id *id, const struct peer_addrs *a);
void gossip__send_back(struct gossip_send *s, const struct peer_id *id, const struct peer_addr *a);
void gossip__publish(struct gossip *g); /* the newest status becomes our record */
double gossip__log10_flock(const struct gossip *g, uint32_t plus);
/* A random member for which fit says yes, or NONE. */
uint32_t gossip__pick(struct gossip *g, bool (*fit)(const struct gossip *, const struct member *));

/* members.c */
uint32_t gossip__find(const struct gossip *g, const struct peer_id *id);
void gossip__count_samples(struct gossip *g, struct member *m, uint64_t samples);
/* One that was never a member of this process's flock, before the first event. */
void gossip__depart(struct gossip *g, const struct gossip_departed *d);
void gossip__forbid(struct gossip *g, const struct peer_id *id);
void gossip__certify(struct gossip *g, const struct gossip_event *e);
void gossip__record(struct gossip *g, const struct gossip_update *u, const struct peer_id *from,
        const struct peer_addr *address, uint8_t channel, bool whole_state);
void gossip__accuse(struct gossip *g, const struct gossip_update *u, bool whole_state);
void gossip__suspect(struct gossip *g, uint32_t i); /* by our own probe */
void gossip__expire_suspects(struct gossip *g);
bool gossip__wants_record(const struct gossip *g, const struct member_record *r);
bool gossip__wants_accusation(const struct gossip *g, const struct accusation *a);

/* addrs.c */
/* Those that can be used: of a record, the one numbered first before the others; of a member, the
 * one in use. */
struct peer_addrs gossip__usable(const struct member_record *r, uint8_t first);
struct peer_addrs gossip__addrs(const struct member *m);
void gossip__send_member(struct gossip_send *s, const struct member *m);
bool gossip__is_at(const struct member_record *r, const struct peer_addr *a);
bool gossip__proven_at(const struct member *m, const struct peer_addr *a);
/* A new record takes the place of the old one: the address in use stays if it is still there. */
void gossip__replace_record(struct member *m, const struct member_record *r);
void gossip__answered(struct member *m, const struct peer_addr *a); /* there: it is in use now */
void gossip__spoke_from(struct member *m, const struct peer_addr *a);
void gossip__silent(struct member *m); /* the address in use gave no answer in time */

/* queue.c */
void gossip__queue_init(struct gossip *g);
void gossip__queue(struct gossip *g, uint32_t i, enum news n);
void gossip__unqueue(struct gossip *g, uint32_t i);
/* Fills what room the datagram has with news, never a record of the receiver's own. */
void gossip__piggyback(struct gossip *g, struct gossip_message *m, const struct peer_id *to);
/* What we know of a member, as an update. */
void gossip__put_record(const struct gossip *g, struct gossip_message *m, uint32_t i);
void gossip__put_accusation(const struct gossip *g, struct gossip_message *m, uint32_t i);
void gossip__spread(struct gossip *g); /* every gossip interval */

/* probe.c */
void gossip__probe_timers(struct gossip *g);
uint64_t gossip__probe_deadline(const struct gossip *g);
void gossip__probe_add(struct gossip *g, uint32_t i);
void gossip__on_ping(struct gossip *g, const struct gossip_event *e);
void gossip__on_ping_req(struct gossip *g, const struct gossip_event *e);
void gossip__on_ack(struct gossip *g, const struct gossip_event *e);
void gossip__on_nack(struct gossip *g, const struct gossip_event *e);

/* sync.c */
void gossip__sync_back(struct gossip *g, const struct gossip_event *e, bool want_reply);
void gossip__sync_pump(struct gossip *g);
bool gossip__sync_busy(const struct gossip *g);
void gossip__sync_timer(struct gossip *g);
void gossip__heal(struct gossip *g);
void gossip__start(struct gossip *g);
void gossip__resolved(struct gossip *g, const struct gossip_event *e);
void gossip__remember(struct gossip *g, const struct peer_addr *a);

#endif
