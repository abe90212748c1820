/* SPDX-License-Identifier: MIT */
/* One connection from its first byte to its last.
 *
 * The happy path: a control connection is dialled, shakes hands (handshake.c), carries frames, and
 * ends with BYE and END. A bulk connection sends a token instead of a handshake; then its socket is
 * handed out. If anything fails the connection is closed, and what was queued on it is dropped:
 * membership repeats itself.
 *
 * A peer may have several addresses. They are dialled one after the other, and queued messages move
 * along: at once if an address refuses, after DIAL_NEXT_MS if it is silent, so that a dead address
 * does not use up the time that a message may wait. Dialling all at once would open connections
 * only to close them; the membership core puts the address that worked last first.
 *
 * Reads ask for exactly what the opening still lacks, so no byte of the frames after it is read
 * into the wrong buffer. */
#include "net/transport/transport_internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING_MAX 64             /* messages that wait for one connection */
#define QUEUE_BYTES_MAX (1u << 20) /* written but not yet taken by the kernel */
#define DIAL_MS BUDGET_HANDSHAKE_MS
#define DIAL_NEXT_MS 1000 /* without an answer: try another address of the same peer */
#define STUCK_MS 30000    /* a peer that reads nothing for so long is lost */
#define BYE_MS 2000
#define QUIET_MS 15000 /* of silence: then a ping, to find out what TCP has not noticed */

struct write {
	uv_write_t req; /* first */
	struct conn *c;
	size_t len;
	uint8_t bytes[];
};

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf);

static struct conn *of(void *handle)
{
	return handle;
}

static struct conn *conn_new(struct transport *t, bool initiator)
{
	struct conn *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->in = malloc(CONN_IN_BYTES);
	if (!c->in || uv_tcp_init(t->config.loop, &c->tcp) != 0) {
		free(c->in);
		free(c);
		return NULL;
	}
	c->t = t;
	c->initiator = initiator;
	c->slot = c->secret = -1;
	c->began_ms = c->heard_ms = c->wrote_ms = transport__now(t);
	c->next = t->conns;
	if (c->next)
		c->next->prev = c;
	t->conns = c;
	t->handles++;
	t->counters.connections++;
	kept__give_way(t);
	return c;
}

static void on_closed(uv_handle_t *h)
{
	struct conn *c = of(h);
	struct transport *t = c->t;
	if (c->prev)
		c->prev->next = c->next;
	else
		t->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	while (c->first) {
		struct pending *p = c->first;
		c->first = p->next;
		free(p);
	}
	noise_close(&c->noise);
	frame_writer_close(&c->writer);
	frame_reader_close(&c->reader);
	free(c->buf);
	free(c->in);
	sodium_memzero(c, sizeof *c);
	free(c);
	t->counters.connections--;
	transport__handle_closed(t);
}

void conn__close(struct conn *c)
{
	if (uv_is_closing((uv_handle_t *)&c->tcp))
		return;
	enum conn_state was = (enum conn_state)c->state;
	c->state = CONN_CLOSING;
	if (c->slot >= 0) {
		budget_leave(&c->t->budget, c->slot, false);
		c->slot = -1;
	}
	turn__forget(c);
	transport__down(c->t, c, was);
	uv_close((uv_handle_t *)&c->tcp, on_closed);
}

static void on_written(uv_write_t *req, int status)
{
	struct write *w = (struct write *)(void *)req;
	struct conn *c = w->c;
	c->wrote_ms = transport__now(c->t);
	free(w);
	if (uv_is_closing((uv_handle_t *)&c->tcp))
		return;
	if (status != 0)
		conn__close(c);
	else if (c->role == CONN_BULK && c->initiator)
		conn__hand_out(c, &c->id, &c->bulk, c->aead);
}

static bool put(struct conn *c, struct write *w)
{
	uv_buf_t b = uv_buf_init((char *)w->bytes, (unsigned)w->len);
	w->c = c;
	if (uv_write(&w->req, (uv_stream_t *)&c->tcp, &b, 1, on_written) != 0) {
		free(w);
		conn__close(c);
		return false;
	}
	c->t->counters.bytes_sent += w->len;
	return true;
}

/* ---- frames */

static bool put_frame(struct conn *c, enum frame_type type, const uint8_t *bytes, size_t len)
{
	struct write *w = malloc(sizeof *w + len + FRAME_OVERHEAD_MAX);
	if (!w)
		return false;
	if (frame_seal(&c->writer, type, bytes, len, w->bytes, &w->len) != 0) {
		free(w);
		conn__close(c);
		return false;
	}
	return put(c, w);
}

bool conn__send(struct conn *c, const struct peer_id *to, const uint8_t *bytes, size_t len)
{
	if (c->state == CONN_UP) {
		if (uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp) + len > QUEUE_BYTES_MAX)
			return false;
		return put_frame(c, FRAME_MESSAGE, bytes, len);
	}
	if (c->state == CONN_CLOSING || c->n_pending == PENDING_MAX)
		return false;
	struct pending *p = malloc(sizeof *p + len);
	if (!p)
		return false;
	p->next = NULL;
	p->addressed = to;
	p->to = to ? *to : (struct peer_id){0};
	p->len = len;
	memcpy(p->bytes, bytes, len);
	*(c->last ? &c->last->next : &c->first) = p;
	c->last = p;
	c->n_pending++;
	return true;
}

void conn__flush(struct conn *c)
{
	while (c->first && c->state == CONN_UP) {
		struct pending *p = c->first;
		c->first = p->next;
		c->n_pending--;
		if (!p->addressed || peer_id_equal(&p->to, &c->id))
			put_frame(c, FRAME_MESSAGE, p->bytes, p->len);
		else
			c->t->counters.messages_dropped++;
		free(p);
	}
	if (!c->first)
		c->last = NULL;
}

void conn__bye(struct conn *c, enum wire_why why, const char *words)
{
	uint8_t bytes[WIRE_BYTES_MAX];
	struct wire_message m = {.kind = WIRE_BYE};
	size_t len;
	if (c->state != CONN_UP) {
		conn__close(c);
		return;
	}
	m.refusal.why = (uint16_t)why;
	snprintf(m.refusal.words, sizeof m.refusal.words, "%s", words);
	if (wire_encode(&m, bytes, sizeof bytes, &len) != 0 ||
	        !put_frame(c, FRAME_MESSAGE, bytes, len) || !put_frame(c, FRAME_END, NULL, 0))
		return;
	/* From now on only what is queued goes out, and what still comes in is read. */
	c->state = CONN_CLOSING;
	c->closing_ms = transport__now(c->t);
	transport__down(c->t, c, CONN_UP);
}

static void on_frame(struct conn *c, const struct frame *f)
{
	if (f->type == FRAME_MESSAGE)
		transport__received(c->t, c, f->payload, f->len);
	else if (f->type == FRAME_END)
		conn__close(c);
	else
		conn__bye(c, WHY_BROKEN, "chunks do not belong on a control connection");
}

/* The next whole frame, if there is one and the connection stands after it. */
static bool read_frame(struct conn *c)
{
	struct transport *t = c->t;
	struct frame f;
	struct err e = {0};
	uint64_t from = uv_hrtime(), cpu = turn__cpu_ns();
	int rc = frame_read(&c->reader, &f, &e);
	if (rc == 1)
		on_frame(c, &f);
	if (rc < 0) {
		transport__say(
		        t, TRANSPORT_WARN, "a connection was tampered with or broken: %s", e.msg);
		conn__close(c);
	}
	turn__spent(c, uv_hrtime() - from, turn__cpu_ns() - cpu);
	return rc == 1 && !uv_is_closing((uv_handle_t *)&c->tcp);
}

static void read_frames(struct conn *c)
{
	while (!turn__over(c->t) && !turn__rests(c))
		if (!read_frame(c))
			return;
	turn__wait(c);
}

bool conn__put_opening(struct conn *c, enum opening_kind kind, const uint8_t *bytes, size_t len)
{
	struct write *w = malloc(sizeof *w + OPENING_HEADER_BYTES + len);
	if (!w)
		return false;
	opening_header(w->bytes, kind, len);
	memcpy(w->bytes + OPENING_HEADER_BYTES, bytes, len);
	w->len = OPENING_HEADER_BYTES + len;
	return put(c, w);
}

/* The socket itself leaves the loop: bulk transfers have threads of their own. */
void conn__hand_out(struct conn *c, const struct peer_id *id, const struct frame_bulk *keys,
        const struct aead *aead)
{
	uv_os_fd_t fd;
	int mine = -1;
	const struct transport_callbacks *cb = &c->t->config.callbacks;
	if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0)
		mine = dup(fd);
	c->handed_out = true;
	c->rest.n = 0;
	if (cb->bulk_cb && !c->t->closing)
		cb->bulk_cb(cb->arg, id, c->bulk_open.exchange, mine, c->initiator, c->kept, keys,
		        aead);
	else if (mine >= 0)
		close(mine);
	conn__close(c);
}

/* Another connection reads into the shared buffer next: what is left there moves out. */
static void keep_part(struct conn *c)
{
	if (uv_is_closing((uv_handle_t *)&c->tcp))
		return;
	if (frame_held(&c->reader) == 0) {
		frame_reader_move(&c->reader, c->t->frames, sizeof c->t->frames);
		free(c->buf);
		c->buf = NULL;
	} else if (!c->buf) {
		c->buf = malloc(CONN_BUF_BYTES);
		if (c->buf)
			frame_reader_move(&c->reader, c->buf, CONN_BUF_BYTES);
		else
			conn__close(c);
	}
}

void conn__resume(struct conn *c)
{
	if (read_frame(c))
		turn__wait(c);
	else if (!uv_is_closing((uv_handle_t *)&c->tcp) &&
	         uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
		conn__close(c);
	keep_part(c);
}

/* ---- reading */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct conn *c = of(h);
	size_t n;
	(void)suggested;
	if (c->framed) {
		buf->base = (char *)frame_room(&c->reader, &n);
		buf->len = n;
	} else {
		size_t want = c->in_len < OPENING_HEADER_BYTES
		                      ? OPENING_HEADER_BYTES
		                      : OPENING_HEADER_BYTES + (size_t)c->opening.length;
		buf->base = (char *)c->in + c->in_len;
		buf->len = want - c->in_len;
	}
}

static void read_opening(struct conn *c, size_t n)
{
	size_t before = c->in_len;
	c->in_len += n;
	if (c->slot >= 0 &&
	        budget_bytes(&c->t->budget, c->slot, n, transport__now(c->t)) != BUDGET_OK) {
		conn__close(c);
		return;
	}
	if (before < OPENING_HEADER_BYTES && c->in_len == OPENING_HEADER_BYTES &&
	        opening_parse(c->in, &c->opening) != 0)
		conn__close(c);
	else if (c->in_len > OPENING_HEADER_BYTES &&
	         c->in_len == OPENING_HEADER_BYTES + (size_t)c->opening.length)
		handshake__read(c);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct conn *c = of(s);
	(void)buf;
	if (n == 0)
		return;
	if (n < 0) {
		conn__close(c);
		return;
	}
	c->t->counters.bytes_received += (uint64_t)n;
	c->heard_ms = transport__now(c->t);
	if (c->state == CONN_CLOSING && !c->framed)
		return; /* refused already */
	if (!c->framed) {
		read_opening(c, (size_t)n);
	} else {
		frame_fed(&c->reader, (size_t)n);
		read_frames(c);
		keep_part(c);
	}
}

/* ---- beginnings */

static void prepare_socket(struct conn *c)
{
	uv_tcp_nodelay(&c->tcp, 1);
	uv_tcp_keepalive(&c->tcp, 1, 30);
}

void conn__accept(struct transport *t)
{
	struct conn *c = conn_new(t, false);
	struct sockaddr_storage s;
	int len = sizeof s;
	t->accept_owed = !c; /* libuv offers no other connection before this one is taken */
	if (!c)
		return;
	if (uv_accept((uv_stream_t *)&t->listener, (uv_stream_t *)&c->tcp) != 0 ||
	        uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&s, &len) != 0) {
		conn__close(c);
		return;
	}
	c->remote = peer_addr_from((struct sockaddr *)&s);
	c->state = CONN_OPENING;
	t->counters.streams_accepted++;
	room__for_accepted(t);
	int crowded;
	while ((crowded = budget_gives_way(&t->budget, &c->remote, transport__now(t))) >= 0) {
		t->counters.strangers_refused++;
		conn__close(t->half_open[crowded]);
	}
	if (budget_enter(&t->budget, &c->remote, transport__now(t), &c->slot) != BUDGET_OK) {
		c->slot = -1;
		conn__close(c);
		return;
	}
	t->half_open[c->slot] = c;
	prepare_socket(c);
	if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
		conn__close(c);
}

static void put_bulk_open(struct conn *c)
{
	uint8_t bytes[WIRE_BYTES_MAX];
	struct wire_message m = {.kind = WIRE_BULK_OPEN, .bulk = c->bulk_open};
	size_t len;
	if (wire_encode(&m, bytes, sizeof bytes, &len) != 0 ||
	        !conn__put_opening(c, OPENING_BULK, bytes, len))
		conn__close(c);
}

static void on_connected(uv_connect_t *req, int status)
{
	struct conn *c = req->data;
	free(req);
	if (uv_is_closing((uv_handle_t *)&c->tcp))
		return;
	if (status != 0) {
		c->heard = status == UV_ECONNREFUSED; /* its machine did answer */
		conn__close(c);
		return;
	}
	prepare_socket(c);
	c->state = CONN_OPENING;
	if (c->role == CONN_BULK) {
		put_bulk_open(c);
		return;
	}
	if (!handshake__begin(c) || uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
		conn__close(c);
}

static struct conn *dial_one(struct transport *t, const struct peer_addr *a, enum conn_role role)
{
	struct sockaddr_storage s;
	if (!room__for_dial(t))
		return NULL;
	struct conn *c = conn_new(t, true);
	uv_connect_t *req = malloc(sizeof *req);
	if (!c || !req) {
		free(req);
		if (c)
			conn__close(c);
		return NULL;
	}
	c->state = CONN_DIALLING;
	c->role = (uint8_t)role;
	c->remote = *a;
	req->data = c;
	peer_addr_to(a, &s);
	t->counters.streams_dialled++;
	if (uv_tcp_connect(req, &c->tcp, (struct sockaddr *)&s, on_connected) != 0) {
		free(req);
		conn__close(c);
		return NULL;
	}
	return c;
}

static struct conn *dial(struct transport *t, const struct peer_addrs *a, enum conn_role role)
{
	for (uint8_t i = 0; i < a->n; i++) {
		if (role == CONN_CONTROL &&
		        !backoff_allows(&t->backoff, &a->at[i], transport__now(t)))
			continue;
		struct conn *c = dial_one(t, &a->at[i], role);
		if (!c)
			continue;
		for (uint8_t k = i + 1; k < a->n; k++)
			c->rest.at[c->rest.n++] = a->at[k];
		return c;
	}
	return NULL;
}

/* Each dial is an attempt of its own: whoever was at the last address has seen its token. */
static void set_bulk(struct conn *c, struct conn *control, uint64_t exchange)
{
	struct frame_bulk_use use = {exchange, ++control->bulk_attempts, control->initiator};
	c->id = control->id;
	c->aead = control->aead;
	frame_bulk(&c->bulk, control->exporter, &use);
	c->bulk_open = (struct wire_bulk_open){.exchange = exchange, .attempt = use.attempt};
	memcpy(c->bulk_open.session, control->session, sizeof control->session);
	memcpy(c->bulk_open.token, c->bulk.token, sizeof c->bulk.token);
}

bool conn__dial_next(struct conn *c)
{
	struct transport *t = c->t;
	struct conn *control = c->role == CONN_BULK ? transport__find(t, &c->id) : NULL;
	struct conn *n = NULL;
	if (!t->closing && (control || c->role == CONN_CONTROL))
		n = dial(t, &c->rest, (enum conn_role)c->role);
	c->rest.n = 0;
	if (!n)
		return false;
	if (control) {
		set_bulk(n, control, c->bulk_open.exchange);
		return true;
	}
	n->id = c->id;
	n->expects_id = c->expects_id;
	n->first = c->first;
	n->last = c->last;
	n->n_pending = c->n_pending;
	c->first = c->last = NULL;
	c->n_pending = 0;
	return true;
}

struct peer_addrs conn__where(const struct conn *c)
{
	struct peer_addrs out = {0};
	if (c->initiator) {
		out.at[out.n++] = c->remote;
		return out;
	}
	/* Prefer the address that it dialled from, if it is among them. */
	for (int pass = 0; pass < 2 && c->peer_dialable; pass++)
		for (int i = 0; i < c->advertised.n; i++) {
			const struct peer_addr *a = &c->advertised.at[i];
			struct peer_addr there = c->remote; /* on whatever port */
			there.port = a->port;
			if (peer_addr_equal(a, &there) == (pass == 0))
				out.at[out.n++] = *a;
		}
	return out;
}

struct conn *conn__dial(struct transport *t, const struct peer_addrs *a, const struct peer_id *id)
{
	struct conn *c = dial(t, a, CONN_CONTROL);
	if (c && id) {
		c->id = *id;
		c->expects_id = true;
	}
	return c;
}

struct conn *conn__dial_bulk(struct transport *t, struct conn *control, uint64_t exchange)
{
	struct peer_addrs a = conn__where(control);
	struct conn *c = dial(t, &a, CONN_BULK);
	if (!c)
		return NULL;
	set_bulk(c, control, exchange);
	return c;
}

void conn__keep(struct transport *t, const struct peer_id *id, int fd)
{
	struct conn *c = conn_new(t, false);
	if (!c || uv_tcp_open(&c->tcp, fd) != 0) {
		close(fd);
		if (c)
			conn__close(c);
		return;
	}
	c->state = CONN_OPENING;
	c->role = CONN_BULK;
	c->kept = true;
	c->id = *id;
	if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
		conn__close(c);
}

/* If it cannot even be written the peer is dialled instead. */
void conn__reopen(struct conn *c, struct conn *control, uint64_t exchange)
{
	uv_read_stop((uv_stream_t *)&c->tcp);
	c->initiator = true;
	c->began_ms = transport__now(c->t);
	c->rest = conn__where(control);
	set_bulk(c, control, exchange);
	put_bulk_open(c);
}

static void ping(struct conn *c, uint64_t now_ms)
{
	uint8_t bytes[32];
	struct wire_message m = {.kind = WIRE_PING, .nonce = now_ms};
	size_t len;
	c->pinged_ms = now_ms;
	if (wire_encode(&m, bytes, sizeof bytes, &len) == 0)
		conn__send(c, NULL, bytes, len);
}

void conn__tick(struct conn *c, uint64_t now_ms)
{
	uint64_t quiet = now_ms - c->heard_ms;
	bool queued = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp) > 0;
	if (uv_is_closing((uv_handle_t *)&c->tcp))
		return;
	uint64_t dial_ms = c->state == CONN_DIALLING && c->rest.n > 0 ? DIAL_NEXT_MS
	                   : c->kept && !c->initiator                 ? BULK_KEPT_MS
	                                                              : DIAL_MS;
	if ((c->state < CONN_UP && now_ms - c->began_ms > dial_ms) ||
	        (c->state == CONN_CLOSING && now_ms - c->closing_ms > BYE_MS) ||
	        (c->state == CONN_UP && queued && now_ms - c->wrote_ms > STUCK_MS) ||
	        (c->state == CONN_UP && quiet > STUCK_MS))
		conn__close(c);
	else if (c->state == CONN_UP && quiet > QUIET_MS && now_ms - c->pinged_ms > QUIET_MS / 3)
		ping(c, now_ms);
}
