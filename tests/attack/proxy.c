/* SPDX-License-Identifier: MIT */
/* Somebody on the way between two agents, who flips one bit of what passes.
 *
 *     our transport ──dials──► a relay, here ──dials──► the agent
 *         ping ───────────────────────────────────────►
 *         ◄─────────────────────────────────────── ack
 *
 * The dialler is the code that agents dial with (net/transport/transport.h), on a loop of its own,
 * so this is about both ends: whatever byte is flipped, from the first of the handshake to the last
 * of the ping, or in the other direction to the end of the shortest frame, the answer must not
 * arrive. Each position takes a new relay, on a new port, since a dialler leaves an address alone
 * for a while where it has failed.
 *
 * A flipped length may leave an end waiting for bytes that never come; so the relay gives up when
 * nothing has passed for a while, which ends the connection for both. */
#include "tests/attack/attack.h"

#include "net/transport/transport.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_MS 60000
#define ACCEPT_MS 2000 /* nobody comes to a port that the dialler has seen fail before */
#define QUIET_MS 200
#define SHORTEST (4 + 16) /* [1, nonce, []] and its tag */

/* One connection through us, on a thread of its own. */
struct relay {
	pthread_t thread;
	struct sockaddr_in target;
	int listener;
	uint16_t port;
	long flip[2];     /* position in what the dialler, and what the agent says; -1: none */
	size_t passed[2]; /* bytes so far */
	int quiet_ms;
	uv_async_t *over_cb; /* borrowed: woken at the end */
	atomic_bool over;
};

static bool pass(struct relay *r, int from, int to, int way)
{
	uint8_t bytes[4096];
	ssize_t n = recv(from, bytes, sizeof bytes, 0);
	long at = r->flip[way] - (long)r->passed[way];
	if (n <= 0)
		return false;
	if (r->flip[way] >= 0 && at >= 0 && at < n)
		bytes[at] ^= (uint8_t)(1u << (r->flip[way] % 8));
	r->passed[way] += (size_t)n;
	return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *run_relay(void *arg)
{
	struct relay *r = arg;
	struct pollfd wait = {.fd = r->listener, .events = POLLIN};
	int near = -1, far = -1;
	if (poll(&wait, 1, ACCEPT_MS) == 1)
		near = accept(r->listener, NULL, NULL);
	if (near >= 0)
		far = dial_from(6 + r->port % 1000u, &r->target);
	struct pollfd p[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
	while (near >= 0 && far >= 0 && poll(p, 2, r->quiet_ms) > 0)
		if ((p[0].revents && !pass(r, near, far, 0)) ||
		        (p[1].revents && !pass(r, far, near, 1)))
			break;
	if (near >= 0)
		close(near);
	if (far >= 0)
		close(far);
	atomic_store(&r->over, true);
	uv_async_send(r->over_cb);
	return NULL;
}

static int relay_start(struct relay *r)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->listener < 0 || bind(r->listener, (struct sockaddr *)&a, sizeof a) != 0 ||
	        listen(r->listener, 4) != 0 ||
	        getsockname(r->listener, (struct sockaddr *)&a, &len) != 0 ||
	        (r->port = ntohs(a.sin_port)) == 0 ||
	        pthread_create(&r->thread, NULL, run_relay, r) != 0) {
		if (r->listener >= 0)
			close(r->listener);
		return -1;
	}
	return 0;
}

/* ---- the dialler */

struct dialler {
	uv_loop_t loop;
	uv_async_t async;
	uv_timer_t timer; /* keeps the loop turning while a connection goes away */
	struct transport *transport;
	uint64_t nonce;
	bool answered;
	int ups;
};

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	struct dialler *d = arg;
	(void)from, (void)address, (void)channel;
	if (m->kind == MESSAGE_ACK && m->nonce == d->nonce)
		d->answered = true;
}

static void on_up(void *arg, const struct peer_id *id, const struct peer_addr *dialled)
{
	(void)id, (void)dialled;
	((struct dialler *)arg)->ups++;
}

static void on_nothing(uv_async_t *a)
{
	(void)a; /* the loop has turned: that was all */
}

static void on_tick(uv_timer_t *t)
{
	(void)t;
}

static int dialler_init(struct dialler *d, const struct attacker *a, struct err *e)
{
	struct transport_config c = {.loop = &d->loop,
	        .identity = &a->identity,
	        .secrets = a->secrets,
	        .ciphers = a->ciphers,
	        .generation = a->identity.generation,
	        .protocol_min = PROTOCOL_MIN,
	        .protocol_max = PROTOCOL_MAX,
	        .peers_max = 16,
	        .callbacks = {.arg = d, .message_cb = on_message, .up_cb = on_up}};
	struct sockaddr_in any = {.sin_family = AF_INET};
	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(&c.listen, &any, sizeof any);
	memset(d, 0, sizeof *d);
	if (uv_loop_init(&d->loop) != 0 || uv_async_init(&d->loop, &d->async, on_nothing) != 0 ||
	        uv_timer_init(&d->loop, &d->timer) != 0 ||
	        uv_timer_start(&d->timer, on_tick, 50, 50) != 0)
		return err_set(e, ERR_SYSTEM, "no event loop");
	return transport_new(&d->transport, &c, e);
}

static void dialler_close(struct dialler *d)
{
	if (d->transport)
		transport_close(d->transport, NULL, NULL);
	uv_close((uv_handle_t *)&d->async, NULL);
	uv_close((uv_handle_t *)&d->timer, NULL);
	uv_run(&d->loop, UV_RUN_DEFAULT);
	uv_loop_close(&d->loop);
}

/* Pings the agent through a relay, until that is over and the connection gone. */
static int ping_through(struct dialler *d, struct relay *r, const struct peer_id *agent)
{
	struct gossip_send *s = calloc(1, sizeof *s);
	r->over_cb = &d->async;
	if (!s || relay_start(r) != 0) {
		free(s);
		return -1;
	}
	d->answered = false;
	d->ups = 0;
	s->channel = CHANNEL_STREAM;
	s->addrs = (struct peer_addrs){1, {{4, {127, 0, 0, 1}, r->port}}};
	s->message.kind = MESSAGE_PING;
	s->message.nonce = ++d->nonce;
	s->message.target = *agent;
	transport_send(d->transport, s);
	free(s);
	while (!atomic_load(&r->over) || transport_counters(d->transport).connections > 0)
		uv_run(&d->loop, UV_RUN_ONCE);
	pthread_join(r->thread, NULL);
	close(r->listener);
	return 0;
}

/* ---- every position */

struct work {
	struct attack *k;
	struct peer_id agent;
	size_t passed[2]; /* in an undamaged session, up to the answer at least */
	atomic_size_t next;
	atomic_int workers, bad, failed, ups, retries;
};

static void try_position(struct work *w, struct dialler *d, size_t i)
{
	int way = i >= w->passed[0];
	long at = (long)(way ? i - w->passed[0] : i);
	long long end = now_ms() + PATIENCE_MS;
	struct relay r;
	for (;;) {
		memset(&r, 0, sizeof r);
		r.target = w->k->attacker[0].target;
		r.quiet_ms = QUIET_MS;
		r.flip[way] = at;
		r.flip[!way] = -1;
		if (ping_through(d, &r, &w->agent) != 0) {
			atomic_fetch_add(&w->failed, 1);
			return;
		}
		/* An agent that has had enough of strangers closes without a word. */
		bool reached = r.passed[way] > (size_t)at;
		if (reached || now_ms() > end) {
			atomic_fetch_add(&w->failed, !reached);
			break;
		}
		atomic_fetch_add(&w->retries, 1);
		poll(NULL, 0, 100);
	}
	atomic_fetch_add(&w->ups, d->ups);
	if (d->answered) {
		printf("byte %ld %s: the flip was not seen\n", at, way ? "back" : "forth");
		atomic_fetch_add(&w->bad, 1);
	}
}

static void *worker(void *arg)
{
	struct work *w = arg;
	struct dialler *d = calloc(1, sizeof *d);
	struct err e = {0};
	int me = atomic_fetch_add(&w->workers, 1);
	size_t i, n = w->passed[0] + w->passed[1];
	if (!d || dialler_init(d, &w->k->attacker[me], &e) != 0) {
		printf("no dialler: %s\n", e.msg);
		atomic_fetch_add(&w->failed, 1);
	} else {
		while ((i = atomic_fetch_add(&w->next, 1)) < n)
			try_position(w, d, i);
	}
	if (d)
		dialler_close(d);
	free(d);
	return NULL;
}

/* Without damage it must work, or nothing else says anything. */
static int undamaged(struct work *w)
{
	struct dialler *d = calloc(1, sizeof *d);
	struct relay r = {.flip = {-1, -1}, .quiet_ms = 2000};
	struct session s;
	struct err e = {0};
	int rc = session_open(&s, &w->k->attacker[0], 5);
	w->agent = s.peer;
	size_t second = s.received;
	session_close(&s);
	r.target = w->k->attacker[0].target;
	if (rc == 0)
		rc = d ? dialler_init(d, &w->k->attacker[0], &e) : ERR_NOMEM;
	if (rc == 0)
		rc = ping_through(d, &r, &w->agent);
	if (rc == 0 && !d->answered) {
		puts("an undamaged ping is not answered");
		rc = -1;
	}
	w->passed[0] = r.passed[0];
	w->passed[1] = second + FRAME_HEADER_BYTES + SHORTEST;
	if (d && d->transport)
		dialler_close(d);
	free(d);
	return rc;
}

int attack_proxy(struct attack *k)
{
	struct work w = {.k = k};
	pthread_t thread[ATTACKERS];
	int n = 0;
	if (undamaged(&w) != 0)
		return -1;
	while (n < ATTACKERS && pthread_create(&thread[n], NULL, worker, &w) == 0)
		n++;
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	printf("# %zu bytes forth and %zu back: %d flips did harm, %d could not be made; %d tried "
	       "again\n",
	        w.passed[0], w.passed[1], w.bad, w.failed, w.retries);
	return n == 0 || w.bad > 0 || w.failed > 0;
}
