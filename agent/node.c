/* SPDX-License-Identifier: MIT */
/* The agent's core and its network on one loop.
 *
 *     transport ── message, up, down ──► gossip_step ──► sends (signed here) ──► transport
 *     uv_timer  ── the core's deadline ──►    │
 *     getaddrinfo ── seeds ──►                └──► notices ──► log
 *
 * Every event goes through step(): the core decides, what is ours is signed, and it is sent. What
 * peers say is verified before the core sees it, and only if the core would care: most news is old,
 * and a signature costs as much as a thousand look-ups.
 *
 * Steps can nest: a send may find a connection broken and report it at once. Such events are kept
 * in a short queue and handled after the step that caused them. */
#include "agent/node.h"

#include "agent/base/log.h"
#include "agent/hostport.h"
#include "net/aead.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAG_EVERY_MS 100
#define LAG_KEPT 512
#define SLOW_US 5000
#define QUEUED_MAX 256

struct node {
	struct node_config config;
	struct aead_order ciphers;
	struct transport *transport; /* owned */
	struct gossip *gossip;       /* in memory */
	void *memory;                /* owned */
	uv_timer_t timer, lag_timer;
	uint64_t started_ms;
	bool leaving, stepping;
	struct gossip_actions actions;
	/* events that came inside a step */
	struct gossip_event queued[QUEUED_MAX];
	int n_queued;
	/* the loop's lateness */
	uint64_t lag_due_us, lag_last_us, lag_max_us, slow;
	uint32_t lag_us[LAG_KEPT];
	uint32_t n_lag;
	int resolving, handles;
};

static uint64_t now_us(void)
{
	return uv_hrtime() / 1000;
}

static void step(struct node *n, struct gossip_event e);
static void maybe_left(struct node *n);

/* ---- what the core says to people */

const char *node_short_id(const struct peer_id *id, char out[13])
{
	sodium_bin2hex(out, 13, id->bytes, 6);
	return out;
}

static void tell(struct node *n, const struct gossip_notice *x)
{
	static const char *const name[] = {[NOTICE_JOINED] = "joined",
	        [NOTICE_SUSPECT] = "suspect",
	        [NOTICE_FAILED] = "failed",
	        [NOTICE_LEFT] = "left",
	        [NOTICE_UPDATED] = "updated",
	        [NOTICE_UNREACHABLE] = "unreachable",
	        [NOTICE_REACHABLE] = "reachable",
	        [NOTICE_REFUTED] = "refuted",
	        [NOTICE_SAME_KEY] = "same-key",
	        [NOTICE_GENERATION] = "generation",
	        [NOTICE_REFUSED] = "refused",
	        [NOTICE_TIME_JUMP] = "time-jump"};
	char id[13], addr[64] = "";
	struct member_view v;
	node_short_id(&x->id, id);
	if (gossip_find(n->gossip, &x->id, &v))
		peer_addr_text(&v.addrs.at[0], addr);
	switch (x->kind) {
	case NOTICE_SAME_KEY:
		log_error("same-key %s: this agent's identity was copied, and another process runs "
		          "with it: stop one of the two, remove identity.key from its state "
		          "directory, and start it again",
		        id);
		break;
	case NOTICE_REFUSED:
		log_warn("refused %s: no room for another member, see --members-max", id);
		break;
	case NOTICE_TIME_JUMP:
		log_warn("time-jump: the clock leapt, or this process stood still, for %.1f s",
		        (double)x->value / 1000);
		break;
	case NOTICE_GENERATION:
		log_warn("generation %llu: peers knew a later one of this agent than its state "
		         "directory: that is an old copy, or another process runs with it",
		        (unsigned long long)x->value);
		break;
	default:
		log_info("%s %s %s", name[x->kind], id, addr);
		break;
	}
}

/* A member's generation opens its datagrams. */
static void learn(struct node *n, const struct peer_id *id)
{
	struct member_view v;
	if (gossip_find(n->gossip, id, &v))
		transport_generation(n->transport, id, v.record.generation);
}

static void on_notices(struct node *n, const struct gossip_actions *a)
{
	for (int i = 0; i < a->n_notices; i++) {
		const struct gossip_notice *x = &a->notice[i];
		tell(n, x);
		if ((x->kind == NOTICE_FAILED || x->kind == NOTICE_LEFT) && n->config.gone_cb &&
		        !n->leaving)
			n->config.gone_cb(n->config.arg, &x->id);
		if (x->kind != NOTICE_GENERATION)
			continue;
		const struct member_record *self = gossip_self(n->gossip);
		transport_set_self(n->transport, self->generation, &self->addrs, self->dialable);
		if (n->config.generation_cb)
			n->config.generation_cb(n->config.arg, self->generation);
	}
}

/* ---- seeds */

struct resolve {
	uv_getaddrinfo_t req; /* first */
	struct node *n;
	int seed;
};

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct resolve *r = (struct resolve *)(void *)req;
	struct node *n = r->n;
	struct gossip_event e = {.kind = EVENT_RESOLVED, .resolved = {.seed = r->seed}};
	for (struct addrinfo *a = status == 0 ? res : NULL; a; a = a->ai_next)
		if (e.resolved.n < GOSSIP_SEED_ADDRESSES)
			e.resolved.address[e.resolved.n++] = peer_addr_from(a->ai_addr);
	uv_freeaddrinfo(res);
	if (status != 0 && status != UV_ECANCELED)
		log_warn("seed %s: cannot be resolved: %s", n->config.seeds[r->seed],
		        uv_strerror(status));
	free(r);
	n->resolving--;
	if (n->leaving)
		maybe_left(n);
	else
		step(n, e);
}

static void resolve_seed(struct node *n, int seed)
{
	char port[8];
	struct hostport h;
	struct err e;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct resolve *r = calloc(1, sizeof *r);
	if (!r)
		return;
	r->n = n;
	r->seed = seed;
	/* It was checked when the settings were read. */
	int rc = hostport_parse(n->config.seeds[seed], &h, &e);
	snprintf(port, sizeof port, "%u", h.port);
	/* Each time anew: names outlive addresses. */
	if (rc || uv_getaddrinfo(n->config.loop, &r->req, on_resolved, h.host, port, &hints) != 0)
		free(r);
	else
		n->resolving++;
}

/* ---- stepping */

static void sign(struct node *n, struct gossip_message *m)
{
	for (int i = 0; i < m->n_updates; i++)
		if (m->update[i].ours)
			identity_sign_update(n->config.identity, &m->update[i]);
	if (m->kind == MESSAGE_SKETCH && m->sketch.ours)
		identity_sign_sketch(n->config.identity, &m->sketch);
}

static void on_timer(uv_timer_t *t)
{
	struct node *n = t->data;
	step(n, (struct gossip_event){.kind = EVENT_TIMER});
}

static void act(struct node *n, struct gossip_event *e)
{
	struct gossip_actions *a = &n->actions;
	e->now_ms = uv_now(n->config.loop);
	gossip_step(n->gossip, e, a);
	on_notices(n, a);
	for (int i = 0; i < a->n_sends; i++) {
		sign(n, &a->send[i].message);
		transport_send(n->transport, &a->send[i]);
	}
	for (int i = 0; i < a->n_resolve && !n->leaving; i++)
		resolve_seed(n, a->resolve[i]);
	uint64_t now = uv_now(n->config.loop);
	if (a->deadline_ms != UINT64_MAX && !n->leaving)
		uv_timer_start(
		        &n->timer, on_timer, a->deadline_ms > now ? a->deadline_ms - now : 0, 0);
}

static void step(struct node *n, struct gossip_event e)
{
	if (n->stepping) {
		/* RECEIVED borrows its message, but no message comes while we send. */
		if (n->n_queued < QUEUED_MAX && e.kind != EVENT_RECEIVED)
			n->queued[n->n_queued++] = e;
		return;
	}
	n->stepping = true;
	uint64_t from = now_us();
	act(n, &e);
	for (int i = 0; i < n->n_queued; i++)
		act(n, &n->queued[i]);
	n->n_queued = 0;
	n->stepping = false;
	if (now_us() - from > SLOW_US)
		n->slow++;
}

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	struct node *n = arg;
	uint8_t kept = 0;
	if (n->leaving)
		return;
	for (int i = 0; i < m->n_updates; i++) {
		if (!gossip_wants(n->gossip, &m->update[i]) || update_verify(&m->update[i]) != 0)
			continue;
		if (kept != i)
			m->update[kept] = m->update[i];
		m->update[kept++].ours = false;
	}
	m->n_updates = kept;
	if (m->kind == MESSAGE_SKETCH &&
	        (!gossip_wants_sketch(n->gossip, &m->sketch) || sketch_verify(&m->sketch) != 0))
		return;
	m->sketch.ours = false;
	step(n, (struct gossip_event){.kind = EVENT_RECEIVED,
	                .received = {*from, *address, (uint8_t)channel, m}});
	for (int i = 0; i < kept; i++)
		if (m->update[i].kind == UPDATE_RECORD)
			learn(n, &m->update[i].record.id);
}

static void on_stream(
        struct node *n, const struct peer_id *id, bool up, const struct peer_addr *dialled)
{
	step(n, (struct gossip_event){
	                .kind = up ? EVENT_PEER_UP : EVENT_PEER_DOWN, .peer = {*id, *dialled}});
	if (n->config.stream_cb && !n->leaving)
		n->config.stream_cb(n->config.arg, id, up);
}

static void on_up(void *arg, const struct peer_id *id, const struct peer_addr *dialled)
{
	on_stream(arg, id, true, dialled);
}

static void on_down(void *arg, const struct peer_id *id)
{
	on_stream(arg, id, false, &(struct peer_addr){0});
}

static void on_exchange(void *arg, const struct peer_id *from, const struct exchange_message *m)
{
	struct node *n = arg;
	if (n->config.exchange_cb && !n->leaving)
		n->config.exchange_cb(n->config.arg, from, m);
}

static void on_bulk(void *arg, const struct peer_id *id, uint64_t exchange, int fd, bool we_dialled,
        const struct frame_bulk *keys, const struct aead *aead)
{
	struct node *n = arg;
	if (n->config.bulk_cb && !n->leaving)
		n->config.bulk_cb(n->config.arg, id, exchange, fd, we_dialled, keys, aead);
	else if (fd >= 0)
		close(fd);
}

static void on_say(void *arg, enum transport_level level, const char *text)
{
	(void)arg;
	if (level == TRANSPORT_WARN)
		log_warn("%s", text);
	else if (level == TRANSPORT_INFO)
		log_info("%s", text);
	else
		log_debug("%s", text);
}

/* ---- the loop's lateness */

static void on_lag_timer(uv_timer_t *t)
{
	struct node *n = t->data;
	uint64_t now = now_us(), late = now > n->lag_due_us ? now - n->lag_due_us : 0;
	n->lag_last_us = late;
	n->lag_max_us = late > n->lag_max_us ? late : n->lag_max_us;
	n->lag_us[n->n_lag++ % LAG_KEPT] = late > UINT32_MAX ? UINT32_MAX : (uint32_t)late;
	n->lag_due_us = now + LAG_EVERY_MS * 1000;
	uv_timer_start(t, on_lag_timer, LAG_EVERY_MS, 0);
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

struct node_lag node_lag(const struct node *n)
{
	uint32_t sorted[LAG_KEPT], k = n->n_lag < LAG_KEPT ? n->n_lag : LAG_KEPT;
	struct node_lag lag = {
	        .max_us = n->lag_max_us, .last_us = n->lag_last_us, .slow_callbacks = n->slow};
	if (k > 0) {
		memcpy(sorted, n->lag_us, k * sizeof *sorted);
		qsort(sorted, k, sizeof *sorted, compare_u32);
		lag.p99_us = sorted[k - 1 - k / 100];
	}
	return lag;
}

/* ---- beginning and end */

static int open_gossip(struct node *n, const struct peer_addrs *addrs, struct err *e)
{
	const struct node_config *c = &n->config;
	struct gossip_config g = {.profile = c->wan ? gossip_wan : gossip_lan,
	        .self = c->identity->id,
	        .generation = c->generation,
	        .addrs = *addrs,
	        .dialable = c->dialable,
	        .protocol_min = c->protocol_min,
	        .protocol_max = c->protocol_max,
	        .n_seeds = c->n_seeds,
	        .members_max = c->members_max,
	        .departed = c->departed,
	        .status = c->status};
	randombytes_buf(&g.nonce, sizeof g.nonce);
	randombytes_buf(&g.seed, sizeof g.seed);
	n->memory = calloc(1, gossip_size(&g));
	if (!n->memory)
		return err_set(e, ERR_NOMEM, "no memory for %u members", c->members_max);
	return gossip_init(&n->gossip, n->memory, gossip_size(&g), &g, e);
}

static void node_free(struct node *n)
{
	free(n->memory);
	free(n);
}

/* Everything that points at us is gone: handles, and names that are still being resolved. */
static void maybe_left(struct node *n)
{
	if (n->handles > 0 || n->resolving > 0)
		return;
	void (*left_cb)(void *) = n->config.left_cb;
	void *arg = n->config.arg;
	node_free(n);
	if (left_cb)
		left_cb(arg);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct node *n = h->data;
	n->handles--;
	maybe_left(n);
}

static void close_timers(void *arg)
{
	struct node *n = arg;
	uv_close((uv_handle_t *)&n->timer, on_handle_closed);
	uv_close((uv_handle_t *)&n->lag_timer, on_handle_closed);
}

int node_new(struct node **out, const struct node_config *c, struct err *e)
{
	struct node *n = calloc(1, sizeof *n);
	int rc;
	*out = NULL;
	if (!n)
		return err_set(e, ERR_NOMEM, "no memory for an agent");
	n->config = *c;
	if ((rc = aead_measure(&n->ciphers, e)) != 0) {
		free(n);
		return rc;
	}
	struct transport_config t = {.loop = c->loop,
	        .identity = c->identity,
	        .secrets = c->secrets,
	        .ciphers = &n->ciphers,
	        .lists = c->lists,
	        .listen = c->listen,
	        .dual_stack = c->dual_stack,
	        .generation = c->generation,
	        .advertise = c->advertise,
	        .dialable = c->dialable,
	        .protocol_min = c->protocol_min,
	        .protocol_max = c->protocol_max,
	        .peers_max = c->members_max ? c->members_max : GOSSIP_MEMBERS,
	        .callbacks = {.arg = n,
	                .message_cb = on_message,
	                .up_cb = on_up,
	                .down_cb = on_down,
	                .exchange_cb = on_exchange,
	                .bulk_cb = on_bulk,
	                .say_cb = on_say}};
	if ((rc = transport_new(&n->transport, &t, e)) != 0) {
		free(n);
		return rc;
	}
	struct peer_addr bound = transport_bound(n->transport);
	struct peer_addrs addrs = c->advertise;
	if (addrs.n == 0)
		addrs.at[addrs.n++] = bound;
	for (int i = 0; i < addrs.n; i++)
		if (addrs.at[i].port == 0)
			addrs.at[i].port = bound.port;
	transport_set_self(n->transport, c->generation, &addrs, c->dialable);
	n->timer.data = n->lag_timer.data = n;
	n->started_ms = uv_now(c->loop);
	if ((rc = open_gossip(n, &addrs, e)) != 0 || uv_timer_init(c->loop, &n->timer) != 0 ||
	        uv_timer_init(c->loop, &n->lag_timer) != 0) {
		transport_close(n->transport, NULL, NULL);
		node_free(n);
		return rc ? rc : err_set(e, ERR_SYSTEM, "the event loop takes no timer");
	}
	n->handles = 2;
	for (int i = 0; i < c->n_remembered; i++)
		step(n, (struct gossip_event){
		                .kind = EVENT_REMEMBER, .remember = c->remembered[i]});
	*out = n;
	return 0;
}

void node_start(struct node *n)
{
	n->lag_due_us = now_us() + LAG_EVERY_MS * 1000;
	uv_timer_start(&n->lag_timer, on_lag_timer, LAG_EVERY_MS, 0);
	step(n, (struct gossip_event){.kind = EVENT_START});
}

void node_leave(struct node *n)
{
	if (n->leaving)
		return;
	n->leaving = true;
	step(n, (struct gossip_event){.kind = EVENT_LEAVE});
	uv_timer_stop(&n->timer);
	uv_timer_stop(&n->lag_timer);
	transport_close(n->transport, close_timers, n);
}

void node_recheck(struct node *n)
{
	if (!n->leaving)
		transport_recheck(n->transport);
}

/* ---- for those who exchange parameters */

void node_status(struct node *n, const struct member_status *s)
{
	if (!n->leaving)
		step(n, (struct gossip_event){.kind = EVENT_STATUS, .status = *s});
}

/* The core borrows the bytes for the step, so it must be now; nobody calls this from inside one. */
void node_sketch(struct node *n, uint64_t at, const uint8_t *bytes, size_t len)
{
	if (!n->leaving && !n->stepping)
		step(n, (struct gossip_event){
		                .kind = EVENT_SKETCH, .sketch = {at, (uint16_t)len, bytes}});
}

void node_samples(struct node *n, const struct peer_id *id, uint64_t samples)
{
	if (!n->leaving)
		step(n, (struct gossip_event){.kind = EVENT_SAMPLES, .samples = {*id, samples}});
}

bool node_post(struct node *n, const struct peer_id *to, const struct exchange_message *m)
{
	struct member_view v;
	struct peer_addrs at = {0};
	if (n->leaving)
		return false;
	if (gossip_find(n->gossip, to, &v) && v.record.dialable)
		at = v.addrs;
	return transport_post(n->transport, to, &at, m);
}

int node_bulk(struct node *n, const struct peer_id *id, uint64_t exchange, struct err *e)
{
	if (n->leaving)
		return err_set(e, ERR_CANCELLED, "leaving");
	return transport_bulk(n->transport, id, exchange, e);
}

const struct gossip *node_gossip(const struct node *n)
{
	return n->gossip;
}

struct peer_addr node_address(const struct node *n)
{
	return transport_bound(n->transport);
}

struct transport_counters node_counters(const struct node *n)
{
	return transport_counters(n->transport);
}

uint64_t node_uptime_ms(const struct node *n)
{
	return uv_now(n->config.loop) - n->started_ms;
}
