/* SPDX-License-Identifier: MIT */
/* Watching agents on this machine through their control sockets, several at once. Nothing here
 * waits: an agent that is stopped is silent, and holds up nobody. */
#ifndef DUNLIN_AGENT_CONTROL_WATCH_H
#define DUNLIN_AGENT_CONTROL_WATCH_H

#include "agent/control/client.h"
#include "agent/json/jsontext.h"

#include <stdbool.h>
#include <stdint.h>

#define WATCH_SILENT_MS 2500       /* without an answer */
#define WATCH_REPLY_MAX (1u << 20) /* bytes of an answer */

/* The numbers that are kept: their name, and where they are in the answer to status. What is not
 * there, or null, is NAN. */
#define WATCH_FIELDS(X)                                             \
	X(STEP, "step", "training.step")                            \
	X(SAMPLES, "samples", "training.samples")                   \
	X(CLOCK, "clock", "training.clock")                         \
	X(TOTAL, "total", "training.total")                         \
	X(LOSS, "loss", "training.loss")                            \
	X(LR, "lr", "training.lr")                                  \
	X(SPEED, "samples_per_s", "training.samples_per_s")         \
	X(ACCURACY, "accuracy", "training.accuracy.value")          \
	X(ACCURACY_STEP, "accuracy_step", "training.accuracy.step") \
	X(LOCAL, "local_accuracy", "training.final.local.value")    \
	X(MERGED, "merged_accuracy", "training.final.merged.value") \
	X(PEERS, "peers", "peers.alive")                            \
	X(CHANGE, "change", "gate.change")                          \
	X(DELTA, "delta", "gate.delta")                             \
	X(LSSR, "lssr", "gate.lssr")                                \
	X(LOCAL_STEPS, "local_steps", "gate.local")                 \
	X(DISTANCE, "distance", "distance.last")                    \
	X(CONSENSUS, "consensus", "distance.consensus")             \
	X(BEGUN, "begun", "exchanges.begun")                        \
	X(TAKEN, "taken", "exchanges.taken")                        \
	X(SENT, "bytes_sent", "exchanges.bytes_sent")               \
	X(RECEIVED, "bytes_received", "exchanges.bytes_received")   \
	X(NET_SENT, "net_bytes_sent", "net.bytes_sent")             \
	X(SAVED, "saved_bytes", "")                                 \
	X(XI, "guard_consensus", "guard.consensus")                 \
	X(TARGET, "guard_target", "guard.target")                   \
	X(INTERVAL, "guard_interval", "guard.interval")

enum watch_field {
#define X(id, name, path) WATCH_##id,
	WATCH_FIELDS(X)
#undef X
	        WATCH_FIELD_COUNT
};
extern const char *const watch_names[WATCH_FIELD_COUNT];

enum watch_state {
	WATCH_ABSENT, /* nobody has answered there yet */
	WATCH_UP,
	WATCH_SILENT, /* somebody is there who does not answer */
	WATCH_GONE,   /* and what is known of it was its last */
	WATCH_STATES
};
const char *watch_state_text(enum watch_state s);

struct watched {
	const char *path;     /* borrowed */
	struct client client; /* owned */
	enum watch_state state;
	bool asked; /* and not yet answered */
	int64_t asked_ms;
	struct buf answer; /* as far as it has come */
	/* Of the last answer; text is fit to be shown. */
	char name[JSON_SHOWN];
	char phase[JSON_SHOWN];  /* "member": it does not train */
	char mode[JSON_SHOWN];   /* of the gate; "": none */
	char reason[JSON_SHOWN]; /* of its last decision; "": none */
	double value[WATCH_FIELD_COUNT];
	double exchange_bytes; /* that an exchange takes; 0: not known yet */
};

void watch_init(struct watched *w, const char *path);
void watch_close(struct watched *w);

/* Asks for its status, if nothing is asked already; dials first where that is needed. Times are
 * those of any one clock. */
void watch_ask(struct watched *w, int64_t now_ms);

/* Its fd can be read. */
void watch_read(struct watched *w);

#endif
