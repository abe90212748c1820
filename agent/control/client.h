/* SPDX-License-Identifier: MIT */
/* Asking an agent on this machine, over its control socket. Blocks, but never for longer than
 * CLIENT_WAIT_MS, unless told. */
#ifndef DUNLIN_AGENT_CONTROL_CLIENT_H
#define DUNLIN_AGENT_CONTROL_CLIENT_H

#include "agent/base/buf.h"
#include "agent/base/err.h"

#include <stdint.h>
#include <sys/types.h>

#define CLIENT_WAIT_MS 10000
#define CLIENT_REPLY_MAX (64u << 20) /* bytes of an answer: every member of the largest flock */

struct client {
	int fd;    /* owned; -1: closed */
	int pidfd; /* owned: the agent's process; -1: none */
	pid_t pid; /* the same; 0: not to be seen */
};

/* ERR_NOTFOUND: nobody is there, or nobody answers; the message says what to do. */
int client_open(struct client *c, const char *path, struct err *e) MUST_CHECK;
void client_close(struct client *c);

/* Sends a request, a line without its newline, and appends the answer, the same. */
int client_ask(struct client *c, const char *request, struct buf *answer, struct err *e) MUST_CHECK;

/* Waits until the agent's process has ended. ERR_NOTFOUND: it has not, in this time. */
int client_wait_end(struct client *c, int64_t wait_ms, struct err *e) MUST_CHECK;

#endif
