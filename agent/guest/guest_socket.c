/* SPDX-License-Identifier: MIT */
/* The socket that a training script comes to, and the handshake.
 *
 *     listen ─► accept ─► the same user? ─► HELLO, TENSORS … ─► can it train? ─► WELCOME, memory
 *        ▲                    └────────────────┴────────────────────┴─► REFUSED, in words ─┐
 *        └─────────────────────────────────────────────────────────────────────────────────┘
 *
 * All of this comes before the agent is on the network, and blocks: there is nothing else to do. A
 * guest that says nothing for HELLO_MS is given up. */
#include "agent/guest/guest_internal.h"

#include "agent/base/log.h"
#include "agent/node/state_dir.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HELLO_MS 10000
#define PAGE_FLOATS 16384 /* 64 kB: whole pages on every machine */

/* ---- packets */

bool guest__send(struct guest *g, const uint8_t *bytes, size_t len, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof fd)];
	} control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd >= 0) {
		memset(&control, 0, sizeof control);
		m.msg_control = control.room;
		m.msg_controllen = sizeof control.room;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
		        .cmsg_type = SCM_RIGHTS,
		        .cmsg_len = CMSG_LEN(sizeof fd)};
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t n;
	do
		n = sendmsg(g->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	/* Of any other failure the socket tells when it is read. */
	return n >= 0 || (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS);
}

void guest__turn_away(int fd, const char *words)
{
	uint8_t out[GUEST_TOLD_MAX];
	const size_t n = guest_tell_words(out, GUEST_REFUSED, false, words);
	(void)!send(fd, out, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
}

/* ---- who comes */

/* Makes way at the path: 0, or an agent listens there, or it is something else. */
static int clear_path(const struct sockaddr_un *a, struct err *e)
{
	struct stat st;
	if (lstat(a->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : err_errno(e, "%s", a->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INVALID, "%s is there and is not a socket", a->sun_path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(e, "open a socket");
	int rc = connect(fd, (const struct sockaddr *)a, sizeof *a), cause = errno;
	close(fd);
	if (rc == 0 || cause != ECONNREFUSED)
		return err_set(e, ERR_BUSY, "an agent listens at %s: give this one another --name",
		        a->sun_path);
	return unlink(a->sun_path) == 0 ? 0 : err_errno(e, "remove %s", a->sun_path);
}

static int listen_at(struct guest *g, const char *path, struct err *e)
{
	char folder[sizeof g->address.sun_path];
	if (strlen(path) >= sizeof g->address.sun_path)
		return err_set(e, ERR_LIMIT,
		        "%.120s: too long for a socket's path: choose a shorter --socket", path);
	g->address.sun_family = AF_UNIX;
	strcpy(g->address.sun_path, path);
	strcpy(folder, path);
	char *slash = strrchr(folder, '/');
	int rc = 0;
	if (slash && slash != folder) {
		*slash = '\0';
		rc = folder_make_private(folder, e);
	}
	if (rc == 0)
		rc = clear_path(&g->address, e);
	if (rc)
		return rc;
	g->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (g->listener < 0)
		return err_errno(e, "open a socket");
	/* The mode before the name: there is no moment at which others could connect. */
	if (fchmod(g->listener, 0600) ||
	        bind(g->listener, (const struct sockaddr *)&g->address, sizeof g->address) ||
	        chmod(path, 0600) || listen(g->listener, 4))
		return err_errno(e, "%s", path);
	return 0;
}

int guest__accept(struct guest *g, int *pid)
{
	struct ucred who;
	socklen_t size = sizeof who;
	int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
	        (who.uid == geteuid() || who.uid == 0)) {
		*pid = who.pid;
		return fd;
	}
	guest__turn_away(fd, "this agent is another user's: only that user may train with it");
	return -1;
}

/* ---- the handshake */

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int hear(int fd, uint64_t until_ms, uint8_t *to, size_t *len, struct err *e)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const uint64_t now = now_ms();
	ssize_t n;
	if (now >= until_ms || poll(&p, 1, (int)(until_ms - now)) <= 0)
		return err_set(e, ERR_TIMEOUT, "HELLO took too long");
	n = recv(fd, to, GUEST_MESSAGE_MAX, MSG_TRUNC | MSG_DONTWAIT);
	if (n <= 0)
		return err_set(e, ERR_IO, "it went away");
	if (n > GUEST_MESSAGE_MAX)
		return err_set(e, ERR_LIMIT, "a message of more than %d bytes", GUEST_MESSAGE_MAX);
	*len = (size_t)n;
	return 0;
}

static int hear_hello(struct guest *g, struct err *e)
{
	const uint64_t until = now_ms() + HELLO_MS;
	uint8_t *packet = malloc(GUEST_MESSAGE_MAX);
	bool whole = false;
	size_t len = 0;
	int rc = packet ? 0 : err_set(e, ERR_NOMEM, "no memory");
	while (rc == 0 && !whole) {
		rc = hear(g->fd, until, packet, &len, e);
		if (rc == 0)
			rc = guest_hello_read(&g->hello, packet, len, &whole, e);
	}
	free(packet);
	if (rc == 0 && g->hello.run[0] && strcmp(g->hello.run, g->c.run) != 0)
		rc = err_set(e, ERR_MISMATCH,
		        "this agent is of run \"%s\", the script of run \"%s\": start it with "
		        "--run %s",
		        g->c.run, g->hello.run, g->hello.run);
	return rc;
}

static int welcome(struct guest *g, struct err *e)
{
	uint8_t out[GUEST_TOLD_MAX];
	const size_t n = g->hello.n_total;
	g->at_in = (n + PAGE_FLOATS - 1) / PAGE_FLOATS * PAGE_FLOATS;
	int rc = guest__memory_open(&g->shared, 2 * g->at_in, e);
	if (rc)
		return rc;
	const size_t len =
	        guest_tell_welcome(out, g->shared.bytes, 0, (uint64_t)(g->at_in * sizeof(float)));
	if (!guest__send(g, out, len, g->shared.fd))
		return err_set(e, ERR_IO, "it takes no message");
	return 0;
}

static void forget(struct guest *g)
{
	if (g->fd >= 0)
		close(g->fd);
	g->fd = -1;
	guest_hello_close(&g->hello);
	guest__memory_close(&g->shared);
}

static void wait_for_one(struct guest *g)
{
	struct err e = {0};
	for (;;) {
		g->fd = guest__accept(g, &g->pid);
		if (g->fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				poll(NULL, 0, 100);
			continue;
		}
		if (hear_hello(g, &e) == 0 && welcome(g, &e) == 0)
			return;
		log_warn("a script came that cannot be trained with: %s", e.msg);
		int fd = dup(g->fd);
		if (fd >= 0)
			guest__turn_away(fd, e.msg);
		forget(g);
	}
}

/* ---- beginning */

static void groups_of(struct learner_groups *to, const struct guest_hello *h)
{
	size_t *weights = malloc((h->n + 1) * sizeof *weights);
	int n = 0;
	assert(weights); /* HELLO itself was larger */
	for (uint32_t i = 0; i < h->n && h->tensor[i].kind == GUEST_WEIGHT; i++)
		weights[n++] = h->tensor[i].count;
	learner_groups_make(to, weights, n, h->n_train);
	free(weights);
}

int guest_wait(struct learner **out, const struct guest_config *c, struct err *e)
{
	struct guest *g = calloc(1, sizeof *g);
	*out = NULL;
	if (!g)
		return err_set(e, ERR_NOMEM, "no memory for a guest");
	g->base.ops = &guest__ops;
	g->c = *c;
	g->listener = g->fd = g->pidfd = -1;
	g->shared.fd = g->passed.fd = -1;
	int rc = listen_at(g, c->path, e);
	if (rc) {
		learner_free(&g->base);
		return rc;
	}
	log_info("waiting for a training script: dunlin_flock.attach(model, optimizer, "
	         "agent=\"%s\")",
	        c->path);
	wait_for_one(g);
	/* A worker that the script has forked may hold the socket longer than it lives. */
	g->pidfd = g->pid > 0 ? (int)syscall(SYS_pidfd_open, g->pid, 0) : -1;
	snprintf(g->device, sizeof g->device, "PyTorch, process %d", g->pid);
	g->base.info = (struct learner_info){.n_total = g->hello.n_total,
	        .n_train = g->hello.n_train,
	        .vectors = g->hello.vectors,
	        .total = g->hello.total,
	        .evaluates = g->hello.evaluates,
	        .model = "the script's",
	        .device = g->device};
	groups_of(&g->base.info.groups, &g->hello);
	g->last.step = g->hello.step;
	g->last.samples = g->hello.samples;
	g->others = g->hello.others;
	*out = &g->base;
	return 0;
}

const struct guest_hello *guest_said_hello(const struct learner *l)
{
	return &((const struct guest *)l)->hello;
}

void guest_callbacks(struct learner *l, void *arg, void (*gone_cb)(void *arg),
        void (*stalled_cb)(void *arg, bool stalled))
{
	struct guest *g = (struct guest *)l;
	g->c.arg = arg;
	g->c.gone_cb = gone_cb;
	g->c.stalled_cb = stalled_cb;
}
