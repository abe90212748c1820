/* SPDX-License-Identifier: MIT */
/* What goes out, and over which socket.
 *
 * The happy path: a message for a peer finds the pair's stream and goes out as a frame; where there
 * is none its addresses are dialled, and the message waits in that connection's queue. A datagram
 * finds the peer's link.
 *
 * An address is not an agent: whoever answers there proves an id of its own. Gossip is for anybody,
 * a posted message only for the one it is addressed to, so that what waits for a connection knows
 * its addressee.
 *
 * Possible failures: an address that failed lately (left alone for a while), a full queue, a peer
 * that the lists forbid: the message is dropped and counted, and who posted it is told. */
#include "net/transport/transport_internal.h"

#include <stdlib.h>
#include <string.h>

#define DATAGRAMS_AT_ONCE 64

static void on_datagram_sent(uv_udp_send_t *req, int status)
{
	(void)status; /* lost is lost: probes find out */
	free(req);
}

static void send_datagram(struct transport *t, const struct gossip_send *s)
{
	struct {
		uv_udp_send_t req;
		uint8_t bytes[GOSSIP_DATAGRAM_BYTES];
	} * d;
	uint8_t payload[WIRE_BYTES_MAX];
	struct sockaddr_storage to;
	size_t len;
	if (s->addrs.n == 0 || uv_udp_get_send_queue_count(&t->udp) > DATAGRAMS_AT_ONCE ||
	        wire_encode_gossip(&s->message, payload, sizeof payload, &len) != 0) {
		t->counters.messages_dropped++;
		return;
	}
	d = malloc(sizeof *d);
	size_t n = d ? links_seal(t, &s->id, payload, len, d->bytes) : 0;
	if (n == 0) {
		free(d);
		t->counters.messages_dropped++;
		return;
	}
	struct peer_addr a = s->addrs.at[0];
	if (t->dual_stack)
		peer_addr_map(&a);
	peer_addr_to(&a, &to);
	uv_buf_t b = uv_buf_init((char *)d->bytes, (unsigned)n);
	if (uv_udp_send(&d->req, &t->udp, &b, 1, (struct sockaddr *)&to, on_datagram_sent) != 0) {
		free(d);
		t->counters.messages_dropped++;
		return;
	}
	t->counters.datagrams_sent++;
	t->counters.bytes_sent += n;
}

static bool among(const struct peer_addr *a, const struct peer_addrs *all)
{
	for (int i = 0; i < all->n; i++)
		if (peer_addr_equal(a, &all->at[i]))
			return true;
	return false;
}

/* A connection that is on its way to that peer, or there. */
static struct conn *find_dialling(
        const struct transport *t, const struct peer_id *id, const struct peer_addrs *a)
{
	for (struct conn *c = t->conns; c; c = c->next)
		if (c->initiator && c->role == CONN_CONTROL && c->state < CONN_UP &&
		        (among(&c->remote, a) ||
		                (id && c->expects_id && peer_id_equal(&c->id, id))))
			return c;
	return NULL;
}

/* A stream to whoever is at an address: there may be one already. */
static struct conn *find_at(const struct transport *t, const struct peer_addrs *a)
{
	for (struct conn *c = t->conns; c && a->n > 0; c = c->next)
		if (c->listed && (among(&c->remote, a) ||
		                         (c->peer_dialable && among(&a->at[0], &c->advertised))))
			return c;
	return NULL;
}

static void send_stream(struct transport *t, const struct gossip_send *s)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	const struct peer_id *id = s->to_id ? &s->id : NULL;
	struct conn *c = id ? transport__find(t, id) : find_at(t, &s->addrs);
	if (!c && s->addrs.n > 0) {
		c = find_dialling(t, id, &s->addrs);
		if (!c)
			c = conn__dial(t, &s->addrs, id);
		if (!c && id && cb->down_cb)
			cb->down_cb(cb->arg, id);
	}
	if (c) {
		c->used_ms = transport__now(t);
		certificates__before(c, &s->message);
	}
	if (!c || wire_encode_gossip(&s->message, bytes, sizeof bytes, &len) != 0 ||
	        !conn__send(c, NULL, bytes, len))
		t->counters.messages_dropped++;
}

void transport_send(struct transport *t, const struct gossip_send *s)
{
	if (t->closing)
		return;
	if (s->to_id && !transport__permits(t, &s->id))
		return;
	if (s->channel == CHANNEL_DATAGRAM)
		send_datagram(t, s);
	else
		send_stream(t, s);
}

/* The pair's stream, or one that is dialled for it; NULL: none is to be had. */
static struct conn *stream_to(
        struct transport *t, const struct peer_id *to, const struct peer_addrs *addrs)
{
	if (t->closing || !transport__permits(t, to))
		return NULL;
	struct conn *c = transport__find(t, to);
	if (!c && addrs->n > 0)
		c = find_dialling(t, to, addrs);
	return c ? c : conn__dial(t, addrs, to);
}

bool transport_post(struct transport *t, const struct peer_id *to, const struct peer_addrs *addrs,
        const struct exchange_message *m)
{
	struct wire_message w = {.kind = WIRE_EXCHANGE, .exchange = *m};
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	struct conn *c = stream_to(t, to, addrs);
	if (c)
		c->used_ms = transport__now(t);
	if (c && wire_encode(&w, bytes, sizeof bytes, &len) == 0 && conn__send(c, to, bytes, len))
		return true;
	t->counters.messages_dropped++;
	return false;
}

int transport_bulk(
        struct transport *t, const struct peer_id *id, uint64_t exchange, bool fresh, struct err *e)
{
	struct conn *c = transport__find(t, id);
	if (!c)
		return err_set(e, ERR_NOTFOUND, "no stream with that peer");
	/* Not by a kept one either: whoever opens one must be able to replace it. */
	if (conn__where(c).n == 0)
		return err_set(
		        e, ERR_UNSUPPORTED, "that peer cannot be dialled: it must open the bulk");
	struct conn *kept = fresh ? NULL : kept__find(t, id);
	if (kept) {
		conn__reopen(kept, c, exchange);
		return 0;
	}
	if (!conn__dial_bulk(t, c, exchange))
		return err_set(e, ERR_IO, "the bulk connection cannot be dialled");
	return 0;
}
