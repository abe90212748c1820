/* SPDX-License-Identifier: MIT */
/* One request, one line of answer. The socket does not block: a stopped agent, whose backlog takes
 * connections that nobody accepts, must not hang a command, so each wait is a poll with a deadline.
 *
 * An agent closes its connections before it lets go of its lock and prints its last lines, so their
 * end is not its own. The kernel says which process listens, and a pidfd says when it has ended. It
 * is opened before anything is asked: whoever answers then is that process and not a later one with
 * its number. Without pidfds (Linux before 5.3, or forbidden) the number is looked at again and
 * again. If the agent's process cannot be seen from here, in another PID namespace, the end of the
 * connection must do.
 *
 * What can fail: no socket (no agent of that name), a socket without a listener (it was killed),
 * one of another user, an agent that is stopped or too busy to answer. */
#include "agent/control/client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define END_LOOK_MS 20

static int64_t clock_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int silent(struct err *e)
{
	return err_set(e, ERR_TIMEOUT, "the agent does not answer: it is stopped, or very busy");
}

/* Until fd is ready for events. */
static int await(int fd, short events, int64_t deadline, struct err *e)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
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

/* Which process listens, and that it is ours: in a folder that others may write to, anybody could
 * have put a socket of that name. Root may ask everybody's agents. */
static int find_process(struct client *c, const char *path, struct err *e)
{
	struct ucred who;
	socklen_t size = sizeof who;
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return err_errno(e, "%s", path);
	if (who.uid != geteuid() && who.uid != 0 && geteuid() != 0)
		return err_set(e, ERR_INVALID,
		        "who answers at %s is user %u, neither you nor root: not asked", path,
		        (unsigned)who.uid);
	if (who.pid <= 0)
		return 0;
	c->pid = who.pid;
#ifdef SYS_pidfd_open
	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
#endif
	return 0;
}

int client_open(struct client *c, const char *path, struct err *e)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	*c = (struct client){.fd = -1, .pidfd = -1};
	if (strlen(path) >= sizeof to.sun_path)
		return err_set(e, ERR_LIMIT, "%.120s: too long for a socket's path", path);
	strcpy(to.sun_path, path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return err_errno(e, "open a socket");
	if (connect(c->fd, (const struct sockaddr *)&to, sizeof to) == 0) {
		int rc = find_process(c, path, e);
		if (rc)
			client_close(c);
		return rc;
	}
	int cause = errno;
	client_close(c);
	if (cause == ENOENT || cause == ENOTDIR || cause == ECONNREFUSED)
		return err_set(e, ERR_NOTFOUND,
		        "no agent answers at %s: start one with `dunlin agent`, or name another "
		        "one with --name or --socket",
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
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->fd = c->pidfd = -1;
}

static int send_all(const struct client *c, const char *data, size_t len, struct err *e)
{
	int64_t deadline = clock_ms() + CLIENT_WAIT_MS;
	while (len > 0) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			int rc = await(c->fd, POLLOUT, deadline, e);
			if (rc)
				return rc;
		} else if (n < 0 && errno != EINTR) {
			return err_errno(e, "send to the agent");
		} else if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

int client_send(struct client *c, const char *request, struct err *e)
{
	int rc = send_all(c, request, strlen(request), e);
	return rc ? rc : send_all(c, "\n", 1, e);
}

int client_read(struct client *c, struct buf *answer, bool *whole, struct err *e)
{
	char part[16384];
	*whole = false;
	while (!*whole) {
		ssize_t n = recv(c->fd, part, sizeof part, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno != ECONNRESET)
			return err_errno(e, "read from the agent");
		if (n <= 0)
			return err_set(e, ERR_NOTFOUND, "the agent ended before it answered");
		const char *end = memchr(part, '\n', (size_t)n);
		size_t len = end ? (size_t)(end - part) : (size_t)n;
		/* Nothing follows an answer before the next request. */
		if (end && len + 1 != (size_t)n)
			return err_set(e, ERR_FORMAT, "this is not the answer of a Dunlin agent");
		int rc = buf_append(answer, part, len);
		if (rc)
			return err_set(e, rc, "the agent's answer: %s", err_text(rc));
		*whole = end != NULL;
	}
	return 0;
}

int client_ask(struct client *c, const char *request, struct buf *answer, struct err *e)
{
	bool whole = false;
	int rc = client_send(c, request, e);
	while (rc == 0 && !whole) {
		/* A long answer comes in parts, each of them in time. */
		rc = await(c->fd, POLLIN, clock_ms() + CLIENT_WAIT_MS, e);
		if (rc == 0)
			rc = client_read(c, answer, &whole, e);
	}
	return rc;
}

int client_wait_end(struct client *c, int64_t wait_ms, struct err *e)
{
	int64_t deadline = clock_ms() + wait_ms;
	char part[64];
	int rc = 0;
	if (c->pidfd >= 0)
		return await(c->pidfd, POLLIN, deadline, e);
	do
		rc = await(c->fd, POLLIN, deadline, e);
	while (rc == 0 && recv(c->fd, part, sizeof part, 0) > 0);
	while (rc == 0 && c->pid > 0 && kill(c->pid, 0) == 0) {
		if (clock_ms() >= deadline)
			return silent(e);
		poll(NULL, 0, END_LOOK_MS);
	}
	return rc;
}
