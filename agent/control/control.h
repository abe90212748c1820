/* SPDX-License-Identifier: MIT */
/* The agent's local socket: one JSON object a line, one line of answer for each.
 *
 *     {"cmd":"status"}             {"ok":true,"name":"agent","peers":{"alive":3,…},…}
 *     {"cmd":"peers","tag":7}      {"ok":true,"tag":7,"peers":[{"id":"3b6a…",…},…]}
 *     {"cmd":"leaf"}               {"ok":false,"error":"unknown cmd \"leaf\"; did you mean …"}
 *
 * control.schema.json has the form of every request and every answer.
 *
 * Only the owner of the agent can connect. Everything runs on the loop's thread. */
#ifndef DUNLIN_AGENT_CONTROL_CONTROL_H
#define DUNLIN_AGENT_CONTROL_CONTROL_H

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/base/limits.h"
#include "agent/drivers/driver.h"
#include "gossip/membership/gossip.h"
#include "net/transport/transport.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct agent_view; /* agent/drivers/driver.h */
struct token;      /* agent/node/token.h */

#define CONTROL_IDLE_MS 60000 /* a client idle for so long gives way when there are too many */
#define CONTROL_SLICE 128     /* members printed before the loop may do something else */
#define CONTROL_ENTRIES 64    /* of ledger or exchanges, where a request does not say */

/* What an answer can tell of the agent, at this moment. */
struct control_view {
	const char *name, *version;  /* borrowed for the call */
	const struct gossip *gossip; /* borrowed for the call */
	struct peer_addr listen;     /* that was bound */
	bool wan;
	double leave_s;  /* longest time that leaving takes */
	uint64_t now_ms; /* as the core's events have it */
	uint64_t uptime_ms, rss_kb;
	struct transport_counters net;
	struct driver_lag lag;
	/* What joins the run, without secret and seeds, and the files of the flock's secret, a
	 * list; borrowed; NULL: there is none. */
	const struct token *token;
	const char *keys;
	const struct agent_view *flock; /* borrowed; NULL: this agent only keeps membership */
};

struct control_config {
	uv_loop_t *loop;  /* borrowed */
	const char *path; /* copied */
	uint64_t idle_ms; /* CONTROL_IDLE_MS; a test may be less patient */
	void *arg;
	void (*look_cb)(void *arg, struct control_view *out);
	void (*leave_cb)(void *arg); /* asked for; the answer is on its way */
	/* Only called when the view has a flock. 0: it will be done; else why not, in e. */
	int (*act_cb)(void *arg, enum flock_wish wish, struct err *e);
};

struct control;

/* Listens at once. A socket that an agent left behind is replaced; ERR_BUSY: one answers there. */
int control_new(struct control **out, const struct control_config *c, struct err *e) MUST_CHECK;

/* Closes all connections and removes the socket; closed_cb (may be NULL) is called on the loop when
 * the memory is gone. */
void control_close(struct control *c, void (*closed_cb)(void *arg), void *arg);

/* ---- one request and its answer; for control.c and tests */

/* Members that an answer is still to print: a copy of what was known when it was asked for. */
struct control_rows {
	struct control_row *row; /* owned; NULL: none */
	uint32_t n, at;
};

enum control_then { CONTROL_THEN_NOTHING, CONTROL_THEN_ROWS, CONTROL_THEN_LEAVE };

/* Answers a line, its newline not included; of c only arg and act_cb are used. With
 * CONTROL_THEN_ROWS the answer goes on with control_rows_print. ERR_LIMIT, ERR_NOMEM: there is no
 * answer. */
int control_answer(const struct control_config *c, const struct control_view *v, const char *line,
        size_t len, struct buf *out, struct control_rows *rows, enum control_then *then) MUST_CHECK;

/* Up to max more rows; behind the last one the end of the answer, and rows is closed. */
int control_rows_print(struct control_rows *rows, uint32_t max, struct buf *out) MUST_CHECK;
void control_rows_close(struct control_rows *rows);

/* {"ok":false,"error":text} and a newline. */
int control_error(struct buf *out, const char *text) MUST_CHECK;

#endif
