/* SPDX-License-Identifier: MIT */
/* Sockets, who is connected with whom, and what comes in. What goes out is in transport_send.c.
 *
 * When both of a pair dial at once, each sees two connections. Both keep the one that the lower id
 * has dialled and say goodbye on the other, which stays readable until its end, so nothing that was
 * sent on it is lost. A second connection long after the first means that the peer restarted: the
 * newer one is kept.
 *
 * Possible failures: an address that does not answer (the log says what that may mean, at first and
 * then seldom; it is left alone for a while); a socket error on the listener (said, the rest goes
 * on). */
#include "net/transport/transport.h"

#include "net/transport/transport_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS 500
#define BACKLOG 512
#define TOGETHER_MS 10000 /* two connections so close in time were dialled at once */
#define SAY_PER_SECOND 5

uint64_t transport__now(const struct transport *t)
{
	return uv_now(t->config.loop);
}

void transport__say(struct transport *t, enum transport_level level, const char *fmt, ...)
{
	char text[300];
	va_list ap;
	if (!t->config.callbacks.say_cb || t->closing)
		return;
	/* Strangers cause most of these: they must not fill a disk. */
	uint64_t second = transport__now(t) / 1000;
	if (second != t->said_second) {
		t->said_second = second;
		t->said = 0;
	}
	if (t->said++ >= SAY_PER_SECOND) {
		t->unsaid++;
		return;
	}
	va_start(ap, fmt);
	int n = vsnprintf(text, 256, fmt, ap);
	va_end(ap);
	if (t->unsaid > 0 && n >= 0) {
		n = n < 255 ? n : 255;
		snprintf(text + n, sizeof text - (size_t)n, " (%u more were left out)", t->unsaid);
		t->unsaid = 0;
	}
	t->config.callbacks.say_cb(t->config.callbacks.arg, level, text);
}

/* ---- who is connected */

static struct conn **chain_of(struct transport *t, const struct peer_id *id)
{
	uint16_t h;
	memcpy(&h, id->bytes, sizeof h);
	return &t->chain[h % CONN_CHAINS];
}

struct conn *transport__find(const struct transport *t, const struct peer_id *id)
{
	struct conn *c = *chain_of((struct transport *)(uintptr_t)t, id);
	while (c && !peer_id_equal(&c->id, id))
		c = c->chain;
	return c;
}

bool transport__permits(const struct transport *t, const struct peer_id *id)
{
	return (!t->config.lists || lists_permit(t->config.lists, id)) &&
	       certificates__admit(t, id);
}

bool transport_permits(const struct transport *t, const struct peer_id *id)
{
	return transport__permits(t, id);
}

void transport__refuse(struct conn *c)
{
	struct transport *t = c->t;
	char a[64];
	if (t->config.lists && !lists_permit(t->config.lists, &c->id)) {
		conn__bye(c, WHY_LIST, "you are not on my list of agents");
		return;
	}
	const char *words = admission_words(admission_look(t->config.admission, &c->id));
	transport__say(t, c->initiator ? TRANSPORT_WARN : TRANSPORT_INFO, "%s is not admitted: %s",
	        peer_addr_text(&c->remote, a), words);
	conn__bye(c, WHY_CERTIFICATE, words);
}

void transport_revoked(struct transport *t)
{
	certificates__pass_on_list(t);
	transport_recheck(t);
}

static void list(struct transport *t, struct conn *c)
{
	struct conn **at = chain_of(t, &c->id);
	c->chain = *at;
	*at = c;
	c->listed = true;
}

static void unlist(struct transport *t, struct conn *c)
{
	struct conn **at = chain_of(t, &c->id);
	if (!c->listed)
		return;
	while (*at != c)
		at = &(*at)->chain;
	*at = c->chain;
	c->listed = false;
}

/* Of two connections of a pair, whether the new one stays. */
static bool newer_stays(const struct transport *t, const struct conn *old, const struct conn *new)
{
	if (old->initiator == new->initiator || new->up_ms - old->up_ms > TOGETHER_MS)
		return true;
	bool we_are_lower = memcmp(&t->config.identity->id, &new->id, sizeof new->id) < 0;
	return new->initiator == we_are_lower;
}

void transport__up(struct transport *t, struct conn *c)
{
	struct conn *old = transport__find(t, &c->id);
	if (old && !newer_stays(t, old, c)) {
		conn__flush(c); /* the peer still reads it */
		conn__bye(c, WHY_DUPLICATE, "another connection of ours stands");
		return;
	}
	if (old) {
		unlist(t, old);
		old->announced = false; /* its successor is the announced one */
		c->announced = true;
		list(t, c);
		conn__bye(old, WHY_DUPLICATE, "another connection of ours stands");
		return;
	}
	list(t, c);
	c->announced = true;
	struct peer_addr none = {0};
	if (t->config.callbacks.up_cb && !t->closing)
		t->config.callbacks.up_cb(
		        t->config.callbacks.arg, &c->id, c->initiator ? &c->remote : &none);
}

/* Not worth a line while there is another address to try. */
static void explain(struct transport *t, struct conn *c, enum conn_state was, bool next)
{
	char a[64];
	uint32_t failures = backoff_failed(&t->backoff, &c->remote, transport__now(t));
	enum transport_level level = failures == 1 && !next ? TRANSPORT_WARN : TRANSPORT_DEBUG;
	peer_addr_text(&c->remote, a);
	if (c->explained)
		return;
	if (was == CONN_DIALLING && c->heard)
		transport__say(t, level,
		        "%s: connection refused: no agent listens there; check the port, and that "
		        "it runs",
		        a);
	else if (was == CONN_DIALLING)
		transport__say(t, level,
		        "%s: no connection: the machine is off, the address wrong, or a firewall "
		        "is "
		        "between",
		        a);
	else
		transport__say(t, level,
		        "%s: no answer: wrong key, another flock, or not a Dunlin agent; compare "
		        "the "
		        "key files",
		        a);
}

void transport__down(struct transport *t, struct conn *c, enum conn_state was)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	unlist(t, c);
	if (t->closing)
		return;
	if (was == CONN_UP) {
		bool tell = c->announced;
		if (!transport__find(t, &c->id))
			kept__forget(t, &c->id);
		c->announced = false;
		if (tell && cb->down_cb && !transport__find(t, &c->id))
			cb->down_cb(cb->arg, &c->id);
		settings__down(c);
		return;
	}
	if (!c->initiator || was == CONN_CLOSING)
		return;
	bool next = conn__dial_next(c);
	if (c->role == CONN_BULK) {
		/* transport_bulk has reported an immediate failure; then there is no cipher yet. */
		if (!next && !c->handed_out && c->aead && cb->bulk_cb)
			cb->bulk_cb(cb->arg, &c->id, c->bulk_open.exchange, -1, true, false, NULL,
			        NULL);
		return;
	}
	explain(t, c, was, next);
	settings__down(c);
	if (!next && c->expects_id && cb->down_cb && !transport__find(t, &c->id))
		cb->down_cb(cb->arg, &c->id);
}

/* A stranger who makes up a session costs no more than comparing it. Attempts that were lost on the
 * way leave holes in the window, which harm nobody: any later one is accepted, and each once. */
struct conn *transport__bulk_owner(
        struct transport *t, const struct wire_bulk_open *open, struct frame_bulk *keys)
{
	struct conn *c = t->conns;
	while (c && (c->state != CONN_UP ||
	                    sodium_memcmp(c->session, open->session, sizeof c->session) != 0))
		c = c->next;
	if (!c)
		return NULL;
	frame_bulk(keys, c->exporter,
	        &(struct frame_bulk_use){open->exchange, open->attempt, !c->initiator});
	if (sodium_memcmp(keys->token, open->token, sizeof keys->token) == 0 &&
	        datagram_window_take(&c->bulk_taken, open->attempt))
		return c;
	sodium_memzero(keys, sizeof *keys);
	return NULL;
}

/* ---- messages */

static bool permits_news(const struct transport *t, const struct gossip_update *u)
{
	if (u->kind == UPDATE_RECORD) /* of ourselves: another process may have our key */
		return transport__permits(t, &u->record.id) ||
		       peer_id_equal(&u->record.id, &t->config.identity->id);
	return transport__permits(t, &u->accusation.about) &&
	       transport__permits(t, &u->accusation.by);
}

/* What others say of those whom the lists forbid is not heard, and so not passed on. */
static void on_message(struct transport *t, const struct peer_id *from,
        const struct peer_addr *address, enum gossip_channel channel, struct wire_message *m)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	struct gossip_message *g = &m->gossip;
	uint8_t kept = 0;
	if (m->kind >= WIRE_HELLO || t->closing)
		return;
	for (int i = 0; i < g->n_updates; i++)
		if (permits_news(t, &g->update[i]))
			g->update[kept++] = g->update[i];
		else
			certificates__hold(t, from, address, channel, &g->update[i]);
	certificates__ask(t, transport__now(t));
	t->counters.news_forbidden += g->n_updates - kept;
	g->n_updates = kept;
	if (g->kind == MESSAGE_SKETCH && !transport__permits(t, &g->sketch.id))
		t->counters.news_forbidden++;
	else
		cb->message_cb(cb->arg, from, address, channel, g);
}

static void session_message(struct transport *t, struct conn *c, const struct wire_message *m)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	uint8_t bytes[32];
	size_t len;
	if (m->kind == WIRE_PING) {
		struct wire_message pong = {.kind = WIRE_PONG, .nonce = m->nonce};
		if (wire_encode(&pong, bytes, sizeof bytes, &len) == 0)
			conn__send(c, NULL, bytes, len);
	} else if (m->kind == WIRE_EXCHANGE) {
		if (cb->exchange_cb && !t->closing)
			cb->exchange_cb(cb->arg, &c->id, &m->exchange);
	} else if (m->kind >= WIRE_WANT_SETTINGS) {
		settings__received(c, m);
	} else if (m->kind > WIRE_EXCHANGE) {
		certificates__received(c, m);
	} else if (m->kind == WIRE_BYE) {
		/* SELF was logged by meet_ourselves. */
		if (m->refusal.why != WHY_DUPLICATE && m->refusal.why != WHY_LEAVING &&
		        m->refusal.why != WHY_SELF)
			transport__say(
			        t, TRANSPORT_WARN, "a peer says goodbye: %s", m->refusal.words);
		c->explained = true;
		conn__close(c);
	}
}

void transport__received(struct transport *t, struct conn *c, const uint8_t *bytes, size_t len)
{
	struct wire_message m;
	struct err e = {0};
	/* A peer that the lists forbid was told so; its messages are ignored until it is gone. */
	if (!transport__permits(t, &c->id))
		return;
	int rc = wire_decode(bytes, len, &m, &e);
	if (rc == ERR_UNSUPPORTED)
		return; /* from a later version */
	if (rc != 0) {
		transport__say(t, TRANSPORT_WARN, "a peer's message is malformed: %s", e.msg);
		conn__bye(c, WHY_BROKEN, e.msg);
		return;
	}
	if (m.kind < WIRE_HELLO || m.kind == WIRE_EXCHANGE)
		c->used_ms = transport__now(t);
	if (m.kind >= WIRE_HELLO) {
		session_message(t, c, &m);
		return;
	}
	/* Where an answer can be sent: its advertised address, or where it dialled from. */
	struct peer_addrs where = conn__where(c);
	struct peer_addr from = where.n > 0 ? where.at[0] : c->remote;
	on_message(t, &c->id, &from, CHANNEL_STREAM, &m);
}

/* ---- sockets */

static void on_connection(uv_stream_t *s, int status)
{
	struct transport *t = s->data;
	if (status == 0 && !t->closing)
		conn__accept(t);
}

static void on_datagram_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct transport *t = h->data;
	(void)suggested;
	*buf = uv_buf_init((char *)t->datagram, sizeof t->datagram);
}

static void on_datagram(
        uv_udp_t *u, ssize_t n, const uv_buf_t *buf, const struct sockaddr *from, unsigned flags)
{
	struct transport *t = u->data;
	uint8_t payload[GOSSIP_DATAGRAM_BYTES];
	struct wire_message m;
	struct peer_id id;
	size_t len;
	if (n <= 0 || !from || t->closing)
		return;
	if ((flags & UV_UDP_PARTIAL) || n > GOSSIP_DATAGRAM_BYTES ||
	        !links_open(t, (const uint8_t *)buf->base, (size_t)n, &id, payload, &len) ||
	        !transport__permits(t, &id) || wire_decode(payload, len, &m, NULL) != 0) {
		t->counters.datagrams_refused++;
		return;
	}
	t->counters.datagrams_received++;
	t->counters.bytes_received += (uint64_t)n;
	struct peer_addr a = peer_addr_from(from);
	if (m.kind != MESSAGE_SYNC && m.kind != MESSAGE_SKETCH)
		on_message(t, &id, &a, CHANNEL_DATAGRAM, &m);
}

static void on_tick(uv_timer_t *timer)
{
	struct transport *t = timer->data;
	uint64_t now = transport__now(t);
	uint32_t half_open = 0;
	for (struct conn *c = t->conns, *next; c; c = next) {
		next = c->next; /* closing is asynchronous: the list stays as it is */
		half_open += c->slot >= 0;
		conn__tick(c, now);
	}
	t->counters.half_open = half_open;
	if (t->accept_owed && !t->closing)
		conn__accept(t);
	certificates__tick(t);
	certificates__ask(t, transport__now(t));
}

static bool has_six(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Whether an IPv6 socket takes IPv4 is said for each of them: libuv says it for TCP, and for UDP
 * leaves one of the two choices to the system's. */
static int bind_sockets(struct transport *t, const struct sockaddr *a, struct sockaddr_storage *s)
{
	bool only = a->sa_family == AF_INET6 && !t->dual_stack;
	int len = sizeof *s, zero = 0, rc;
	uv_os_fd_t fd;
	if ((rc = uv_tcp_bind(&t->listener, a, only ? UV_TCP_IPV6ONLY : 0)) != 0 ||
	        (rc = uv_listen((uv_stream_t *)&t->listener, BACKLOG, on_connection)) != 0 ||
	        (rc = uv_tcp_getsockname(&t->listener, (struct sockaddr *)s, &len)) != 0)
		return rc;
	if (t->dual_stack && (rc = uv_fileno((uv_handle_t *)&t->udp, &fd)) == 0 &&
	        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) != 0)
		rc = uv_translate_sys_error(errno);
	return rc ? rc : uv_udp_bind(&t->udp, (struct sockaddr *)s, only ? UV_UDP_IPV6ONLY : 0);
}

static int listen_on(struct transport *t, const struct sockaddr *a, struct err *e)
{
	struct sockaddr_storage s;
	char text[64];
	struct peer_addr shown = peer_addr_from(a);
	int rc = bind_sockets(t, a, &s);
	if (rc == 0)
		rc = uv_udp_recv_start(&t->udp, on_datagram_alloc, on_datagram);
	if (rc == UV_EADDRINUSE)
		return err_set(e, ERR_IO,
		        "%s is in use: choose another port with --listen, or :0 for any that is "
		        "free",
		        peer_addr_text(&shown, text));
	if (rc != 0)
		return err_set(e, ERR_IO, "cannot listen on %s: %s", peer_addr_text(&shown, text),
		        uv_strerror(rc));
	t->bound = peer_addr_from((struct sockaddr *)&s);
	return 0;
}

static void on_handle_closed(uv_handle_t *h)
{
	transport__handle_closed(h->data);
}

int transport_new(struct transport **out, const struct transport_config *c, struct err *e)
{
	uint8_t key[16];
	uint64_t seed;
	struct transport *t = calloc(1, sizeof *t);
	*out = NULL;
	if (!t || links_init(&t->links, c->peers_max) != 0) {
		free(t);
		return err_set(e, ERR_NOMEM, "no memory for the network");
	}
	t->config = *c;
	t->dual_stack = c->dual_stack && has_six();
	if (c->dual_stack && !t->dual_stack) {
		struct peer_addr any = peer_addr_from((const struct sockaddr *)&c->listen);
		any.family = 4;
		peer_addr_to(&any, &t->config.listen);
	}
	randombytes_buf(key, sizeof key);
	budget_init(&t->budget, key, uv_now(c->loop));
	randombytes_buf(&seed, sizeof seed);
	verify_init(&t->shares, seed);
	room__init(t);
	t->listener.data = t->udp.data = t->tick.data = t->turn.data = t->rest.data = t;
	int rc = uv_tcp_init(c->loop, &t->listener);
	rc = rc ? rc : uv_udp_init_ex(c->loop, &t->udp, t->dual_stack ? AF_INET6 : AF_UNSPEC);
	rc = rc ? rc : uv_timer_init(c->loop, &t->tick);
	rc = rc ? rc : uv_idle_init(c->loop, &t->turn);
	rc = rc ? rc : uv_timer_init(c->loop, &t->rest);
	if (rc != 0) {
		links_close(&t->links);
		free(t);
		return err_set(e, ERR_SYSTEM, "the event loop: %s", uv_strerror(rc));
	}
	t->handles = 5;
	rc = listen_on(t, (const struct sockaddr *)&t->config.listen, e);
	if (rc == 0 && uv_timer_start(&t->tick, on_tick, TICK_MS, TICK_MS) != 0)
		rc = err_set(e, ERR_SYSTEM, "the event loop takes no timer");
	if (rc != 0) {
		transport_close(t, NULL, NULL);
		return rc;
	}
	*out = t;
	return 0;
}

void transport__handle_closed(struct transport *t)
{
	t->handles--;
	if (t->closing && t->handles == 3 && !uv_is_closing((uv_handle_t *)&t->tick)) {
		uv_close((uv_handle_t *)&t->tick, on_handle_closed);
		uv_close((uv_handle_t *)&t->turn, on_handle_closed);
		uv_close((uv_handle_t *)&t->rest, on_handle_closed);
	}
	if (t->handles > 0 || !t->closing)
		return;
	void (*closed_cb)(void *) = t->closed_cb;
	void *arg = t->closed_arg;
	links_close(&t->links);
	free(t->wanted);
	sodium_memzero(t, sizeof *t);
	free(t);
	if (closed_cb)
		closed_cb(arg);
}

void transport_close(struct transport *t, void (*closed_cb)(void *arg), void *arg)
{
	t->closing = true;
	t->closed_cb = closed_cb;
	t->closed_arg = arg;
	for (struct conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->state == CONN_UP)
			conn__bye(c, WHY_LEAVING, "I am leaving");
		else if (c->state != CONN_CLOSING)
			conn__close(c);
	}
	/* The tick goes on until the last goodbye is written, or has had its time. */
	uv_close((uv_handle_t *)&t->listener, on_handle_closed);
	uv_close((uv_handle_t *)&t->udp, on_handle_closed);
}

struct peer_addr transport_bound(const struct transport *t)
{
	return t->bound;
}

void transport_generation(struct transport *t, const struct peer_id *id, uint64_t generation)
{
	links_set(t, id, generation, true);
}

void transport_expel(struct transport *t, const struct peer_id *id, const char *words)
{
	struct conn *c = transport__find(t, id);
	char text[13];
	sodium_bin2hex(text, sizeof text, id->bytes, 6);
	transport__say(t, TRANSPORT_WARN, "the session with %s ends; it is told: %s", text, words);
	if (c)
		conn__bye(c, WHY_BROKEN, words);
}

void transport_recheck(struct transport *t)
{
	for (struct conn *c = t->conns, *next; c; c = next) {
		next = c->next;
		if (c->state == CONN_UP && !transport__permits(t, &c->id))
			transport__refuse(c);
	}
}

void transport_set_self(
        struct transport *t, uint64_t generation, const struct peer_addrs *advertise, bool dialable)
{
	bool renew = generation != t->config.generation;
	t->config.generation = generation;
	t->config.advertise = *advertise;
	t->config.dialable = dialable;
	if (renew)
		links_renew(t);
}

struct transport_counters transport_counters(const struct transport *t)
{
	return t->counters;
}
