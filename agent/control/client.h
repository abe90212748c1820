/* SPDX-License-Identifier: MIT */
/* The client of an agent's control socket. client_ask waits for the answer, but never longer than
 * CLIENT_WAIT_MS for its next part; client_send and client_read are its halves, for a caller that
 * waits for several agents at once. */
#ifndef DUNLIN_AGENT_CONTROL_CLIENT_H
#define DUNLIN_AGENT_CONTROL_CLIENT_H

#include "agent/base/buf.h"
#include "agent/base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CLIENT_WAIT_MS 10000
#define CLIENT_REPLY_MAX (64u << 20) /* bytes of an answer: every member of the largest flock */

struct client {
	int fd;    /* owned; -1: closed */
	int pidfd; /* owned: the agent's process; -1: none */
	pid_t pid; /* the same; 0: not to be seen */
};

/* ERR_NOTFOUND: no agent is there. ERR_TIMEOUT: one is there, but it does not answer. The message
 * says what to do. */
int client_open(struct client *c, const char *path, struct err *e) MUST_CHECK;
void client_close(struct client *c);

/* Sends a request, a line without its newline. It only waits if the agent has not read the last one
 * yet. */
int client_send(struct client *c, const char *request, struct err *e) MUST_CHECK;

/* Appends what has come of the answer, without its newline, and does not wait. *whole: that was all
 * of it. ERR_NOTFOUND: the agent closed the connection. ERR_FORMAT: more than an answer came. */
int client_read(struct client *c, struct buf *answer, bool *whole, struct err *e) MUST_CHECK;

/* Sends a request and waits for its answer; fails as the three above do. */
int client_ask(struct client *c, const char *request, struct buf *answer, struct err *e) MUST_CHECK;

/* Waits until the agent's process has ended. ERR_TIMEOUT: it has not, in this time. */
int client_wait_end(struct client *c, int64_t wait_ms, struct err *e) MUST_CHECK;

#endif
