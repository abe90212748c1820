/* SPDX-License-Identifier: MIT */
/* What goes out, and over which socket.
 *
 * The happy path: a message for a peer finds the pair's stream and goes out as a frame; where there
 * is none the address is dialled, and the message waits in that connection's queue. A datagram
 * finds the peer's link.
 *
 * An address is not an agent: whoever answers there proves an id of its own. Gossip is for anybody,
 * a posted message only for the one it is addressed to, so that what waits for a connection knows
 * its addressee.
 *
 * Possible failures: an address that failed lately (left alone for a while), a full queue, a peer
 * that the lists forbid: the message is dropped and counted, and who posted it is told. */
#include "net/transport_core.h"

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
	if (s->address.family == 0 || uv_udp_get_send_queue_count(&t->udp) > DATAGRAMS_AT_ONCE ||
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
	peer_addr_to(&s->address, &to);
	uv_buf_t b = uv_buf_init((char *)d->bytes, (unsigned)n);
	if (uv_udp_send(&d->req, &t->udp, &b, 1, (struct sockaddr *)&to, on_datagram_sent) != 0) {
		free(d);
		t->counters.messages_dropped++;
		return;
	}
	t->counters.datagrams_sent++;
	t->counters.bytes_sent += n;
}

static bool same_addr(const struct peer_addr *a, const struct peer_addr *b)
{
	return a->family == b->family && a->port == b->port &&
	       memcmp(a->ip, b->ip, a->family == 4 ? 4 : 16) == 0;
}

/* A connection that is on its way there. */
static struct conn *find_dialling(const struct transport *t, const struct peer_addr *a)
{
	for (struct conn *c = t->conns; c; c = c->next)
		if (c->initiator && c->role == CONN_CONTROL && c->state < CONN_UP &&
		        same_addr(&c->remote, a))
			return c;
	return NULL;
}

/* A stream to whoever is at an address: there may be one already. */
static struct conn *find_at(const struct transport *t, const struct peer_addr *a)
{
	for (struct conn *c = t->conns; c; c = c->next)
		if (c->listed && (same_addr(&c->remote, a) ||
		                         (c->peer_dialable && same_addr(&c->advertised, a))))
			return c;
	return NULL;
}

static void send_stream(struct transport *t, const struct gossip_send *s)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	struct conn *c = s->to_id ? transport__find(t, &s->id) : find_at(t, &s->address);
	if (!c && s->address.family != 0) {
		c = find_dialling(t, &s->address);
		if (!c && backoff_allows(&t->backoff, &s->address, transport__now(t)))
			c = conn__dial(t, &s->address, s->to_id ? &s->id : NULL);
		else if (!c && s->to_id && cb->down_cb)
			cb->down_cb(cb->arg, &s->id);
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
        struct transport *t, const struct peer_id *to, const struct peer_addr *address)
{
	if (t->closing || !transport__permits(t, to))
		return NULL;
	struct conn *c = transport__find(t, to);
	if (!c && address->family != 0)
		c = find_dialling(t, address);
	if (!c && address->family != 0 && backoff_allows(&t->backoff, address, transport__now(t)))
		c = conn__dial(t, address, to);
	return c;
}

bool transport_post(struct transport *t, const struct peer_id *to, const struct peer_addr *address,
        const struct exchange_message *m)
{
	struct wire_message w = {.kind = WIRE_EXCHANGE, .exchange = *m};
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	struct conn *c = stream_to(t, to, address);
	if (c && wire_encode(&w, bytes, sizeof bytes, &len) == 0 && conn__send(c, to, bytes, len))
		return true;
	t->counters.messages_dropped++;
	return false;
}

int transport_bulk(struct transport *t, const struct peer_id *id, uint64_t exchange, struct err *e)
{
	struct conn *c = transport__find(t, id);
	if (!c)
		return err_set(e, ERR_NOTFOUND, "no stream with that peer");
	if (!c->initiator && (!c->peer_dialable || c->advertised.family == 0))
		return err_set(
		        e, ERR_UNSUPPORTED, "that peer cannot be dialled: it must open the bulk");
	if (!conn__dial_bulk(t, c, exchange))
		return err_set(e, ERR_IO, "the bulk connection cannot be dialled");
	return 0;
}
