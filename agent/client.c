/* SPDX-License-Identifier: MIT */
/* One request, one line of answer. The socket does not block: a stopped agent, whose backlog takes
 * connections that nobody accepts, must not hang a command, so each wait is a poll with a deadline.
 *
 * What can fail: no socket (no agent of that name), a socket without a listener (it was killed),
 * one of another user, an agent that is stopped or too busy to answer. */
#include "agent/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int silent(struct err *e)
{
	return err_set(e, ERR_NOTFOUND, "the agent does not answer: it is stopped, or very busy");
}

/* Until the socket is ready for events. */
static int await(const struct client *c, short events, int64_t deadline, struct err *e)
{
	for (;;) {
		struct pollfd p = {.fd = c->fd, .events = events};
		int64_t left = deadline - clock_ms();
		int n = left > 0 ? poll(&p, 1, (int)left) : 0;
		if (n > 0)
			return 0;
		if (n == 0)
			return silent(e);
		if (errno != EINTR)
			return err_errno(e, "wait for the agent");
	}
}

int client_open(struct client *c, const char *path, struct err *e)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	c->fd = -1;
	if (strlen(path) >= sizeof to.sun_path)
		return err_set(e, ERR_LIMIT, "%.120s: too long for a socket's path", path);
	strcpy(to.sun_path, path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return err_errno(e, "open a socket");
	if (connect(c->fd, (const struct sockaddr *)&to, sizeof to) == 0)
		return 0;
	int cause = errno;
	client_close(c);
	if (cause == ENOENT || cause == ENOTDIR || cause == ECONNREFUSED)
		return err_set(e, ERR_NOTFOUND,
		        "no agent answers at %s: start one with `dunlin agent`, or say with --name "
		        "or "
		        "--socket which one is meant",
		        path);
	if (cause == EAGAIN)
		return silent(e);
	errno = cause;
	return err_errno(e, "%s", path);
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static int send_all(
        const struct client *c, const char *data, size_t len, int64_t deadline, struct err *e)
{
	while (len > 0) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			int rc = await(c, POLLOUT, deadline, e);
			if (rc)
				return rc;
		} else if (n < 0 && errno != EINTR) {
			return err_errno(e, "ask the agent");
		} else if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* One read, waited for. 0 bytes: the agent has closed the connection. */
static int receive(
        const struct client *c, char *out, size_t size, size_t *n, int64_t deadline, struct err *e)
{
	for (;;) {
		int rc = await(c, POLLIN, deadline, e);
		if (rc)
			return rc;
		ssize_t got = recv(c->fd, out, size, 0);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got < 0 && errno != ECONNRESET)
			return err_errno(e, "hear the agent");
		*n = got > 0 ? (size_t)got : 0;
		return 0;
	}
}

int client_ask(struct client *c, const char *request, struct buf *answer, struct err *e)
{
	char part[65536], *end = NULL;
	int rc = send_all(c, request, strlen(request), clock_ms() + CLIENT_WAIT_MS, e);
	if (rc == 0)
		rc = send_all(c, "\n", 1, clock_ms() + CLIENT_WAIT_MS, e);
	while (rc == 0 && !end) {
		size_t n;
		/* A long answer comes in pieces, each of them in time. */
		rc = receive(c, part, sizeof part, &n, clock_ms() + CLIENT_WAIT_MS, e);
		if (rc)
			break;
		if (n == 0)
			return err_set(e, ERR_NOTFOUND, "the agent ended before it answered");
		end = memchr(part, '\n', n);
		rc = buf_append(answer, part, end ? (size_t)(end - part) : n);
		if (rc)
			err_set(e, rc, "the agent's answer: %s", err_text(rc));
	}
	return rc;
}

int client_wait_end(struct client *c, int wait_ms, struct err *e)
{
	int64_t deadline = clock_ms() + wait_ms;
	char part[4096];
	size_t n = 1;
	int rc = 0;
	while (rc == 0 && n > 0)
		rc = receive(c, part, sizeof part, &n, deadline, e);
	return rc;
}
