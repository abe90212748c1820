/* SPDX-License-Identifier: MIT */
/* Inside the drivers. */
#ifndef DUNLIN_AGENT_DRIVERS_DRIVER_INTERNAL_H
#define DUNLIN_AGENT_DRIVERS_DRIVER_INTERNAL_H

#include "agent/drivers/driver.h"
#include "net/bulk/bulk.h"
#include "net/bulk/convert.h"
#include "net/transport/verify_budget.h"

#define DRIVER_LAG_KEPT 512
#define DRIVER_QUEUED 256    /* events that came inside a step */
#define DRIVER_CONNECTIONS 8 /* bulk connections that came and are not used yet */
#define DRIVER_USES (USE_DONATE + FLOCK_DONATIONS)
_Static_assert(DRIVER_QUEUED > GOSSIP_SENDS_MAX + FLOCK_SENDS_MAX + 2 * FLOCK_ACTIONS_MAX,
        "every send and every action may cause an event");

/* A bulk connection that came. */
struct driver_connection {
	int fd; /* owned; −1: none */
	bool we_dialled, kept;
	struct frame_bulk keys;
	const struct aead *aead;
	struct peer_id peer;
	uint64_t exchange;
};

struct driver_transfer {
	struct driver *d;
	struct bulk *bulk; /* NULL: none under way */
	struct peer_id peer;
	uint64_t exchange;
	uint8_t use;
	bool kept; /* its connection has carried another before */
};

struct driver {
	struct driver_config c;
	struct aead_order ciphers;
	struct transport *transport; /* owned; NULL: closed, and the next two are as they were */
	struct peer_addr bound;
	struct transport_counters counters;
	struct flock *core;            /* in memory */
	void *memory;                  /* owned */
	struct flock_actions *actions; /* owned */
	uv_timer_t timer, lag_timer;
	uint64_t started_ms;
	bool stepping, closing;
	struct flock_event queued[DRIVER_QUEUED];
	int n_queued;
	int resolving, handles;
	struct verify_budget verify;

	/* the loop's lateness */
	uint64_t lag_due_us, lag_last_us, lag_max_us, slow;
	uint32_t lag_us[DRIVER_LAG_KEPT];
	uint32_t n_lag;

	/* bulk */
	struct driver_connection connection[DRIVER_CONNECTIONS];
	struct driver_transfer transfer[DRIVER_USES];
	double distance2[EXCHANGE_GROUPS_MAX]; /* of the last exchange, as its transfer measured */
	double rounding2;                      /* the same */
	enum convert_format format;            /* of it */
	size_t wrapped;                        /* the same: blocks */
	int8_t found[SCALES_MAX];              /* the same: for scales_learn, with lattice.size */
	int8_t scales[SCALES_MAX];             /* that the last snapshot was packed by */
	struct learner_lattice lattice;        /* of it */
	bool notes;                            /* for scales_learn: the core has asked for it */

	/* the learner, and memory by slot; owned, of learner_buffer (the first two) or malloc */
	void *snapshot;
	float *staging, *donated, *fetched;
	size_t n_total, vectors;
	bool sketch_asked;        /* of the snapshot on its way */
	bool measuring;           /* the device does */
	bool save_refused;        /* the learner did not take the last one */
	struct sketch own;        /* of the last snapshot */
	struct sketch heard;      /* of what came */
	struct sketch fetched_of; /* of SLOT_FETCHED */
	struct learner_measure measure;
	struct learner_trial trial;
	uv_work_t staging_work, fetched_work;
	bool staging_busy, fetched_busy; /* a worker reads the slot */
	bool has_validation;
	struct learner_eval validation; /* the last one */
	uint64_t rate_ms, rate_samples;
	double samples_per_s;
};

/* driver.c */
void driver__event(struct driver *d, struct flock_event e); /* at once, or after the one at hand */
void driver__maybe_closed(struct driver *d);

/* on_transport.c */
int driver__open_transport(struct driver *d, struct err *e) MUST_CHECK;
void driver__membership_actions(struct driver *d, struct gossip_actions *a);
/* Tells the core of a certificate, unless it knows all of that; known may be NULL. */
void driver__certify(struct driver *d, const struct peer_id *id, const struct member_view *known);
bool driver__post(struct driver *d, const struct peer_id *to, const struct exchange_message *m);

/* on_bulk.c */
void driver__bulk_came(void *arg, const struct peer_id *id, uint64_t exchange, int fd,
        bool we_dialled, bool kept, const struct frame_bulk *keys, const struct aead *aead);
void driver__bulk_action(struct driver *d, const struct flock_action *a);
void driver__bulk_close(struct driver *d);

/* on_learner.c */
int driver__open_learner(struct driver *d, struct err *e) MUST_CHECK;
void driver__begin_learner(struct driver *d);
void driver__learner_action(struct driver *d, const struct flock_action *a);
void driver__close_learner(struct driver *d);

/* say.c */
void driver__say(const struct driver *d, const struct flock_say *s);
void driver__notice(const struct driver *d, const struct gossip_notice *x);

#endif
