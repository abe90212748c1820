/* SPDX-License-Identifier: MIT */
/* The drivers: they turn what happens to an agent into events of its core (gossip/flock), and the
 * core's actions into calls. Nothing is decided here.
 *
 *     driver.c        one event after the other through flock_step; time; beginning and end
 *     on_transport.c  messages, sessions, seeds
 *     on_bulk.c       bulk connections and transfers
 *     on_learner.c    the learner's requests and answers, and what is measured by workers
 *     say.c           what the core says, in words
 *     view.c          what can be told of it
 *
 * Everything here is called on the loop's thread and returns at once. */
#ifndef DUNLIN_AGENT_DRIVERS_DRIVER_H
#define DUNLIN_AGENT_DRIVERS_DRIVER_H

#include "agent/base/err.h"
#include "agent/config/config.h"
#include "agent/train/learner.h"
#include "gossip/flock/flock.h"
#include "net/transport/transport.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct driver;

struct driver_config {
	uv_loop_t *loop;                 /* borrowed */
	const struct identity *identity; /* borrowed */
	const struct secrets *secrets;   /* borrowed */
	const struct lists *lists;       /* borrowed; may be NULL */
	struct admission *admission;     /* borrowed; NULL: the flock has no owner */
	uint64_t generation;             /* already raised and persisted */
	struct sockaddr_storage listen;
	bool dual_stack;             /* see transport.h */
	struct peer_addrs advertise; /* none: the bound address; port 0: the bound one */
	bool dialable;
	bool wan; /* the profile */
	uint16_t protocol_min, protocol_max;
	const uint8_t *settings; /* borrowed: as transport_config has them */
	uint32_t settings_length;
	const char *const *seeds; /* borrowed: as hostport_parse takes them */
	int n_seeds;
	const struct peer_addr *remembered; /* borrowed for driver_new */
	int n_remembered;
	uint32_t members_max;
	uint32_t connections_max; /* as transport_config has it */
	struct gossip_departed departed;
	/* Of an agent that trains; NULL and zeros: it keeps membership only. */
	struct learner *learner;     /* borrowed; open, not begun */
	const struct config *config; /* borrowed */
	const char *out;             /* borrowed: the folder of its results */
	struct flock_config core;    /* without membership, learner, seeds and alone */
	/* Called on the loop. */
	void *arg;
	void (*generation_cb)(void *arg, uint64_t generation); /* persist it */
	/* It leaves, since the run is over (0) or has failed (an error's code). */
	void (*leave_cb)(void *arg, int code);
	void (*left_cb)(void *arg); /* everything is closed; driver_free may be called */
};

/* The first of an id's digits, as logs have them; returns out. */
const char *short_id(const struct peer_id *id, char out[13]);

/* Opens the sockets; ERR_IO says which address. */
int driver_new(struct driver **out, const struct driver_config *c, struct err *e) MUST_CHECK;

/* Begins: it looks for peers, and the learner's callbacks come from now on. */
void driver_start(struct driver *d);

/* Ends exchange and learner with a checkpoint, says goodbye, closes; ends in left_cb. A second call
 * changes nothing. */
void driver_leave(struct driver *d);
void driver_free(struct driver *d); /* after left_cb, or before driver_start */

/* Whatever the lists forbid, and whoever is not admitted any more, is cut. */
void driver_recheck(struct driver *d);
/* A list of revocations is new in driver_config.admission, and not from a peer. */
void driver_revoked(struct driver *d);

/* What a user asks for, except to leave. ERR_INVALID says why it cannot be;
 * ERR_BUSY: not now. */
int driver_wish(struct driver *d, enum flock_wish wish, struct err *e) MUST_CHECK;

const struct flock *driver_core(const struct driver *d);
const struct gossip *driver_gossip(const struct driver *d);
struct peer_addr driver_address(const struct driver *d); /* bound, the real port; [::]: both */
struct transport_counters driver_counters(const struct driver *d);
uint64_t driver_uptime_ms(const struct driver *d);

/* How late the loop's timers come, in microseconds: the loop's own illness. */
struct driver_lag {
	uint64_t max_us, p99_us, last_us;
	uint64_t slow_callbacks; /* over 5 ms */
};
struct driver_lag driver_lag(const struct driver *d);

/* What status, ledger and exchanges tell of an agent that trains. Pointers are borrowed for the
 * call. */
struct agent_view {
	struct flock_view core;
	const char *run, *model, *device, *out; /* out: the folder */
	uint64_t parameters;
	uint64_t context;        /* tokens of a sample; 0: samples are no tokens */
	uint64_t exchange_bytes; /* that one exchange uploads */
	double epoch;            /* of the whole set, by the run's clock */
	double samples_per_s;    /* own */
	int sketches;            /* of peers, known */
	uint64_t step_samples;   /* of the first step, by the settings */
	double consensus;        /* Ξ as estimated from them and ours; with sketches > 0 */
	bool has_validation;
	struct learner_eval validation; /* the last one */
	struct gate_view gate;
	bool resumed; /* from a checkpoint */
	uint64_t saved_ago_ms;
	uint64_t steps_dropped; /* that the loop did not hear of in time */
	char health[200]; /* in words: what is going on, and what to do about it if anything */
};
void driver_view(const struct driver *d, struct agent_view *out);

/* One line for people. */
void agent_view_line(const struct agent_view *v, char out[200]);

#endif
