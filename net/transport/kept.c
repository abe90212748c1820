/* SPDX-License-Identifier: MIT */
/* Bulk connections that are kept between two exchanges of a pair, so that the next one costs no
 * dial: one round trip and some turns of both loops less.
 *
 * The happy path: a transfer has ended in order on both sides, so no byte is under way. Each side
 * hands its end back and reads. Whoever opens a bulk connection next sends BULK_OPEN on it, as the
 * first bytes of a new connection, and hands it out again; so does the other once it has read that.
 * Token and keys follow from exchange, attempt and side, and no attempt is accepted twice: bytes
 * that were recorded, cut or taken from another connection open nothing.
 *
 * What can fail: the peer closes its end, or the way is cut. Read, that is the end of the kept
 * connection. If it is opened before that is seen, the transfer breaks before anything has come,
 * and the exchange dials. Where both sides open it at once, each reads an opening where a frame
 * had to come, which is the same.
 *
 * They are a convenience, so they give way to everything: at most BULK_KEPT, one for a peer, the
 * one that was kept first goes first; none without a session, none when descriptors are short. */
#include "net/transport/transport_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static bool waits(const struct conn *c)
{
	return c->kept && !c->initiator && !c->handed_out && c->state == CONN_OPENING;
}

/* Nothing has come on it, not even its end. */
static bool is_quiet(struct conn *c)
{
	uv_os_fd_t fd;
	char byte;
	return c->in_len == 0 && uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0 &&
	       recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EWOULDBLOCK);
}

struct conn *kept__find(struct transport *t, const struct peer_id *id)
{
	for (struct conn *c = t->conns; c; c = c->next)
		if (waits(c) && peer_id_equal(&c->id, id) && is_quiet(c))
			return c;
	return NULL;
}

void kept__forget(struct transport *t, const struct peer_id *id)
{
	for (struct conn *c = t->conns, *next; c; c = next) {
		next = c->next; /* closing is asynchronous: the list stays as it is */
		if (waits(c) && (!id || peer_id_equal(&c->id, id)))
			conn__close(c);
	}
}

static bool is_short(const struct transport *t)
{
	return t->config.connections_max > 0 &&
	       t->counters.connections >= t->config.connections_max;
}

void kept__give_way(struct transport *t)
{
	if (is_short(t))
		kept__forget(t, NULL);
}

static struct conn *oldest(const struct transport *t, int *n)
{
	struct conn *first = NULL;
	*n = 0;
	for (struct conn *c = t->conns; c; c = c->next) {
		if (!waits(c))
			continue;
		*n += 1;
		if (!first || c->began_ms <= first->began_ms) /* newer ones are in front */
			first = c;
	}
	return first;
}

void transport_bulk_keep(struct transport *t, const struct peer_id *id, int fd)
{
	int n;
	if (t->closing || is_short(t) || !transport__find(t, id)) {
		close(fd);
		return;
	}
	kept__forget(t, id);
	struct conn *first = oldest(t, &n);
	if (n >= BULK_KEPT)
		conn__close(first);
	conn__keep(t, id, fd);
}
