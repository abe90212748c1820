/* SPDX-License-Identifier: MIT */
/* A transfer has two threads of its own, one for each direction, on a blocking socket. Why: a
 * direction is then a plain loop (next chunk, send it; read, take it) with no state between calls
 * and no queue between threads. The two directions share only the socket, so sealing and opening
 * can use two cores. The kernel waits for the peer, and the loop's thread does nothing until the
 * end. An agent has one exchange at a time, so there are few such threads, and starting them takes
 * microseconds beside the milliseconds of a transfer. A thread pool would need queues of chunks
 * between threads, and would gain nothing.
 *
 * The happy path: bulk_start makes both directions' keys and buffers and starts the threads; the
 * sender ends when the kernel has taken END, the receiver when END has come and all is checked. The
 * last of the two wakes the loop, where the threads are joined, the socket is closed, or handed
 * back for the next transfer, and done_cb is called.
 *
 * What can fail: anything, on either thread, or the loop gives up (bulk_cancel, the deadline). The
 * first to say so leaves its reason and shuts the socket down, which wakes whoever waits in it;
 * later reasons are its consequences and are not kept. The socket is then closed with a reset, so
 * that the kernel does not go on sending to a peer that is not there. */
#include "net/bulk/bulk.h"

#include "gossip/exchange/exchange.h"
#include "net/bulk/bulk_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(BULK_GROUPS_MAX >= EXCHANGE_GROUPS_MAX, "an exchange's groups must fit");

struct bulk {
	struct bulk_plan plan;
	struct bulk_out out; /* the sender's, until it is joined */
	struct bulk_in in;   /* the receiver's */
	int fd;              /* owned; closed or handed back after both are joined */
	bool keep;

	uv_loop_t *loop; /* borrowed */
	uv_async_t wake;
	uv_timer_t deadline, unheard;
	uint64_t unheard_ms;
	int handles; /* open ones of the three */
	void *arg;
	bulk_done_cb done_cb;

	uv_thread_t sender, receiver;
	bool sender_started, receiver_started;
	atomic_int running; /* threads that have not ended; who brings it to 0 wakes the loop */
	atomic_uint_least64_t sent, received;

	atomic_bool failed; /* who sets it writes err, read after both are joined */
	struct err err;
};

/* On any thread. */
static void fail(struct bulk *b, int code, const char *msg)
{
	if (atomic_exchange(&b->failed, true))
		return;
	err_set(&b->err, code, "%s", msg);
	shutdown(b->fd, SHUT_RDWR);
}

static void fail_errno(struct bulk *b, const char *what)
{
	struct err e;
	err_errno(&e, "%s", what);
	fail(b, e.code, e.msg);
}

/* ---- the two threads */

static void ended(struct bulk *b)
{
	if (atomic_fetch_sub(&b->running, 1) == 1)
		uv_async_send(&b->wake);
}

static bool send_all(struct bulk *b, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(b->fd, bytes, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fail_errno(b, "send to the peer");
			return false;
		}
		bytes += n;
		len -= (size_t)n;
		atomic_fetch_add(&b->sent, (uint64_t)n);
	}
	return true;
}

static void run_sender(void *arg)
{
	struct bulk *b = arg;
	const uint8_t *bytes;
	size_t len;
	struct err e;
	int rc;
	pthread_setname_np(pthread_self(), "bulk-send");
	while ((rc = bulk_out_next(&b->out, &bytes, &len, &e)) > 0)
		if (!send_all(b, bytes, len))
			break;
	if (rc < 0)
		fail(b, e.code, e.msg);
	ended(b);
}

static void run_receiver(void *arg)
{
	struct bulk *b = arg;
	struct err e;
	int rc = 0;
	pthread_setname_np(pthread_self(), "bulk-receive");
	while (rc == 0) {
		size_t room;
		uint8_t *to = bulk_in_room(&b->in, &room);
		ssize_t n = recv(b->fd, to, room, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fail_errno(b, "receive from the peer");
			break;
		}
		if (n == 0) {
			fail(b, ERR_IO, "the peer closed the connection before the end");
			break;
		}
		atomic_fetch_add(&b->received, (uint64_t)n);
		rc = bulk_in_fed(&b->in, (size_t)n, &e);
	}
	if (rc < 0)
		fail(b, e.code, e.msg);
	ended(b);
}

/* ---- the loop's thread */

static void closed(uv_handle_t *h)
{
	struct bulk *b = h->data;
	if (--b->handles == 0)
		free(b);
}

/* After an orderly end the kernel sends what it still holds, after any other end nothing. */
static void close_socket(struct bulk *b)
{
	if (atomic_load(&b->failed)) {
		struct linger reset = {.l_onoff = 1, .l_linger = 0};
		setsockopt(b->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	}
	close(b->fd);
}

static void on_wake(uv_async_t *h)
{
	struct bulk *b = h->data;
	struct bulk_result r = {0};
	if (atomic_load(&b->running) > 0)
		return;
	if (b->sender_started)
		uv_thread_join(&b->sender);
	if (b->receiver_started)
		uv_thread_join(&b->receiver);
	r.fd = b->keep && !atomic_load(&b->failed) ? b->fd : -1;
	if (r.fd < 0)
		close_socket(b);
	r.bytes_sent = atomic_load(&b->sent);
	r.bytes_received = atomic_load(&b->received);
	if (atomic_load(&b->failed))
		r.err = b->err;
	for (int g = 0; g < b->plan.n_groups && r.err.code == 0; g++)
		r.group_distance2[g] = b->in.sums[g].distance2;
	r.rounding2 = b->in.rounding2;
	r.found = b->in.found;
	r.wrapped = b->in.wrapped;
	r.words = b->in.next;
	bulk_out_close(&b->out);
	bulk_in_close(&b->in);
	uv_close((uv_handle_t *)&b->wake, closed);
	uv_close((uv_handle_t *)&b->deadline, closed);
	uv_close((uv_handle_t *)&b->unheard, closed);
	b->done_cb(b->arg, &r);
}

static void on_deadline(uv_timer_t *h)
{
	struct bulk *b = h->data;
	fail(b, ERR_TIMEOUT, "the transfer's time is over");
}

/* A connection that has stood idle may have been forgotten on the way, without a word: by a
 * firewall, or with the peer's machine. A peer that is only slow acknowledges what comes, until its
 * buffer is full. */
static void on_unheard(uv_timer_t *h)
{
	struct bulk *b = h->data;
	struct tcp_info i = {0};
	socklen_t len = sizeof i;
	if (atomic_load(&b->received) == 0 &&
	        getsockopt(b->fd, IPPROTO_TCP, TCP_INFO, &i, &len) == 0 && i.tcpi_unacked > 0 &&
	        i.tcpi_last_ack_recv >= b->unheard_ms)
		fail(b, ERR_IO, "the peer's machine acknowledges nothing");
}

void bulk_cancel(struct bulk *b)
{
	fail(b, ERR_CANCELLED, "given up by us");
}

/* ---- the beginning */

/* Keys and buffers of both directions. */
static int open_streams(struct bulk *b, const struct bulk_config *c, struct err *e)
{
	const struct frame_bulk *k = c->keys;
	int rc = bulk_out_init(
	        &b->out, &b->plan, c->we_dialled ? k->from_dialler : k->from_listener);
	if (rc)
		return err_set(e, rc, "bulk transfer: %s", err_text(rc));
	rc = bulk_in_init(&b->in, &b->plan, c->we_dialled ? k->from_listener : k->from_dialler);
	if (rc) {
		bulk_out_close(&b->out);
		return err_set(e, rc, "bulk transfer: %s", err_text(rc));
	}
	return 0;
}

/* The threads wait in the socket; the loop does not know of it. END is a small packet that must not
 * wait for the peer's word about the last large one (a socket that is not TCP has no such trouble).
 */
static int prepare_socket(int fd, struct err *e)
{
	int flags = fcntl(fd, F_GETFL), one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return err_errno(e, "bulk transfer: the socket");
	return 0;
}

static bool start_thread(struct bulk *b, uv_thread_t *t, void (*run)(void *))
{
	if (uv_thread_create(t, run, b) == 0)
		return true;
	fail(b, ERR_SYSTEM, "no thread for a bulk transfer: is a limit on threads too low?");
	ended(b);
	return false;
}

int bulk_start(struct bulk **out, const struct bulk_config *c, struct err *e)
{
	struct bulk *b = calloc(1, sizeof *b);
	int rc = b ? 0 : err_set(e, ERR_NOMEM, "bulk transfer: %s", err_text(ERR_NOMEM));
	if (rc)
		goto out;
	b->fd = c->fd;
	b->keep = c->keep;
	b->loop = c->loop;
	b->arg = c->arg;
	b->done_cb = c->done_cb;
	b->plan = (struct bulk_plan){
	        .aead = c->aead,
	        .format = c->format,
	        .chunk_bytes = c->chunk_bytes ? c->chunk_bytes : BULK_CHUNK_BYTES,
	        .send = c->send,
	        .send_count = c->send_count,
	        .staging = c->staging,
	        .packed = c->packed,
	        .scales = c->scales,
	        .receive_count = c->receive_count,
	        .ours = c->ours,
	        .difference = c->difference,
	        .unmeasured = c->unmeasured,
	        .n_groups = c->n_groups,
	        .group_end = c->group_end,
	};
	rc = prepare_socket(b->fd, e);
	if (rc)
		goto out;
	rc = open_streams(b, c, e);
	if (rc)
		goto out;
	rc = uv_async_init(b->loop, &b->wake, on_wake);
	if (rc) {
		rc = err_set(e, ERR_SYSTEM, "bulk transfer: %s", uv_strerror(rc));
		bulk_out_close(&b->out);
		bulk_in_close(&b->in);
		goto out;
	}
	uv_timer_init(b->loop, &b->deadline);
	uv_timer_init(b->loop, &b->unheard);
	b->wake.data = b->deadline.data = b->unheard.data = b;
	b->handles = 3;
	if (c->deadline_ms) {
		uv_update_time(b->loop);
		uv_timer_start(&b->deadline, on_deadline, c->deadline_ms, 0);
	}
	b->unheard_ms = c->unheard_ms;
	if (c->unheard_ms)
		uv_timer_start(&b->unheard, on_unheard, c->unheard_ms, c->unheard_ms);
	/* From here on it ends in done_cb, whatever fails. */
	atomic_store(&b->running, 2);
	b->sender_started = start_thread(b, &b->sender, run_sender);
	b->receiver_started = start_thread(b, &b->receiver, run_receiver);
	*out = b;
	return 0;
out:
	close(c->fd);
	free(b);
	return rc;
}
