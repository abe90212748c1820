/* SPDX-License-Identifier: MIT */
/* The network's news as events, and the core's sends as messages.
 *
 * What peers say is verified before the core sees it, and only if the core would care: most news is
 * old, and a signature costs as much as a thousand look-ups. What is ours is signed here. */
#include "agent/base/log.h"
#include "agent/config/hostport.h"
#include "agent/drivers/driver_internal.h"
#include "net/codec/wire.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void membership(struct driver *d, struct gossip_event e)
{
	driver__event(d, (struct flock_event){.kind = FLOCK_EVENT_MEMBERSHIP, .membership = e});
}

/* ---- seeds */

struct resolve {
	uv_getaddrinfo_t req; /* first */
	struct driver *d;
	int seed;
};

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct resolve *r = (struct resolve *)(void *)req;
	struct driver *d = r->d;
	struct gossip_event e = {.kind = EVENT_RESOLVED, .resolved = {.seed = r->seed}};
	for (struct addrinfo *a = status == 0 ? res : NULL; a; a = a->ai_next)
		if (e.resolved.n < GOSSIP_SEED_ADDRESSES)
			e.resolved.address[e.resolved.n++] = peer_addr_from(a->ai_addr);
	uv_freeaddrinfo(res);
	if (status != 0 && status != UV_ECANCELED)
		log_warn("seed %s: cannot be resolved: %s", d->c.seeds[r->seed],
		        uv_strerror(status));
	free(r);
	d->resolving--;
	if (d->closing)
		driver__maybe_closed(d);
	else
		membership(d, e);
}

static void resolve_seed(struct driver *d, int seed)
{
	char port[8];
	struct hostport h;
	struct err e;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct resolve *r = calloc(1, sizeof *r);
	if (!r)
		return;
	r->d = d;
	r->seed = seed;
	/* It was checked when the settings were read. */
	int rc = hostport_parse(d->c.seeds[seed], &h, &e);
	snprintf(port, sizeof port, "%u", h.port);
	/* Each time anew: names outlive addresses. */
	if (rc || uv_getaddrinfo(d->c.loop, &r->req, on_resolved, h.host, port, &hints) != 0)
		free(r);
	else
		d->resolving++;
}

/* ---- sending */

static void sign(struct driver *d, struct gossip_message *m)
{
	for (int i = 0; i < m->n_updates; i++)
		if (m->update[i].ours)
			wire_sign_update(d->c.identity, &m->update[i]);
	if (m->kind == MESSAGE_SKETCH && m->sketch.ours)
		wire_sign_sketch(d->c.identity, &m->sketch);
}

static void keep_generation(struct driver *d)
{
	const struct member_record *self = gossip_self(driver_gossip(d));
	transport_set_self(d->transport, self->generation, &self->addrs, self->dialable);
	if (d->c.generation_cb)
		d->c.generation_cb(d->c.arg, self->generation);
}

/* Of an invite's ids those that live count (net/transport/admission.h). */
static void keep_live(struct driver *d, const struct gossip_notice *n)
{
	if (d->c.admission && n->kind == NOTICE_JOINED)
		admission_live(d->c.admission, &n->id, true);
	else if (d->c.admission && (n->kind == NOTICE_FAILED || n->kind == NOTICE_LEFT))
		admission_live(d->c.admission, &n->id, false);
}

void driver__membership_actions(struct driver *d, struct gossip_actions *a)
{
	for (int i = 0; i < a->n_notices; i++) {
		driver__notice(d, &a->notice[i]);
		if (a->notice[i].kind == NOTICE_GENERATION)
			keep_generation(d);
		keep_live(d, &a->notice[i]);
	}
	for (int i = 0; i < a->n_sends; i++) {
		sign(d, &a->send[i].message);
		transport_send(d->transport, &a->send[i]);
	}
	for (int i = 0; i < a->n_resolve && !d->closing; i++)
		resolve_seed(d, a->resolve[i]);
}

bool driver__post(struct driver *d, const struct peer_id *to, const struct exchange_message *m)
{
	struct member_view v;
	struct peer_addrs at = {0};
	if (gossip_find(driver_gossip(d), to, &v) && v.record.dialable)
		at = v.addrs;
	return transport_post(d->transport, to, &at, m);
}

/* ---- receiving */

/* The core knows whose agent it is, and the rate that the owner states for it. */
void driver__certify(struct driver *d, const struct peer_id *id, const struct member_view *known)
{
	struct gossip_event e = {.kind = EVENT_CERTIFIED, .certified.id = *id};
	struct invite v;
	if (!d->c.admission || !admission_label(d->c.admission, id, &v))
		return;
	crypto_generichash((uint8_t *)&e.certified.label, sizeof e.certified.label,
	        (const uint8_t *)v.label, strlen(v.label), NULL, 0);
	e.certified.rate = v.rate;
	e.certified.agents = v.agents;
	if (!known || e.certified.label != known->label || v.rate != known->rate ||
	        v.agents != known->agents)
		membership(d, e);
}

/* A member's generation opens its datagrams. */
static void learn(struct driver *d, const struct peer_id *id)
{
	struct member_view v;
	if (!gossip_find(driver_gossip(d), id, &v))
		return;
	transport_generation(d->transport, id, v.record.generation);
	driver__certify(d, id, &v);
}

/* The outcome of one signature. */
static bool verified(struct driver *d, const struct peer_id *from, int rc, uint64_t began_ns)
{
	uint64_t took_us = (uv_hrtime() - began_ns) / 1000;
	if (verify_done(&d->verify, from, rc == 0, took_us, uv_now(d->c.loop)))
		transport_expel(d->transport, from, "your news has bad signatures");
	return rc == 0;
}

static bool good_update(struct driver *d, const struct peer_id *from, enum gossip_channel channel,
        const struct gossip_update *u)
{
	uint64_t now_ms = uv_now(d->c.loop), began = uv_hrtime();
	return gossip_wants(driver_gossip(d), u) &&
	       verify_may(&d->verify, from, channel == CHANNEL_DATAGRAM, now_ms) &&
	       verified(d, from, wire_verify_update(u), began);
}

static bool good_sketch(struct driver *d, const struct peer_id *from, const struct member_sketch *s)
{
	uint64_t now_ms = uv_now(d->c.loop), began = uv_hrtime();
	return gossip_wants_sketch(driver_gossip(d), s) &&
	       verify_may(&d->verify, from, false, now_ms) &&
	       verified(d, from, wire_verify_sketch(s), began);
}

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	struct driver *d = arg;
	uint8_t kept = 0;
	for (int i = 0; i < m->n_updates; i++) {
		if (!good_update(d, from, channel, &m->update[i]))
			continue;
		if (kept != i)
			m->update[kept] = m->update[i];
		m->update[kept++].ours = false;
	}
	m->n_updates = kept;
	if (m->kind == MESSAGE_SKETCH && !good_sketch(d, from, &m->sketch))
		return;
	m->sketch.ours = false;
	membership(d, (struct gossip_event){.kind = EVENT_RECEIVED,
	                      .received = {*from, *address, (uint8_t)channel, m}});
	for (int i = 0; i < kept; i++)
		if (m->update[i].kind == UPDATE_RECORD)
			learn(d, &m->update[i].record.id);
}

static void on_up(void *arg, const struct peer_id *id, const struct peer_addr *dialled)
{
	membership(arg, (struct gossip_event){.kind = EVENT_PEER_UP, .peer = {*id, *dialled}});
}

/* A send to a peer that cannot be dialled now says so at once, each time: in a step that sends it
 * many messages, once is enough. */
static void on_down(void *arg, const struct peer_id *id)
{
	const struct driver *d = arg;
	for (int i = 0; d->stepping && i < d->n_queued; i++) {
		const struct flock_event *e = &d->queued[i];
		if (e->kind == FLOCK_EVENT_MEMBERSHIP && e->membership.kind == EVENT_PEER_DOWN &&
		        peer_id_equal(&e->membership.peer.id, id))
			return;
	}
	membership(arg, (struct gossip_event){.kind = EVENT_PEER_DOWN, .peer.id = *id});
}

static void on_exchange(void *arg, const struct peer_id *from, const struct exchange_message *m)
{
	struct driver *d = arg;
	if (d->c.learner)
		driver__event(d, (struct flock_event){
		                         .kind = FLOCK_EVENT_MESSAGE, .peer = *from, .message = m});
}

static bool is_member(void *arg, const struct peer_id *id)
{
	struct member_view v;
	const struct driver *d = arg;
	return d->core && gossip_find(driver_gossip(d), id, &v);
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

/* ---- the beginning */

int driver__open_transport(struct driver *d, struct err *e)
{
	const struct driver_config *c = &d->c;
	struct transport_config t = {.loop = c->loop,
	        .identity = c->identity,
	        .secrets = c->secrets,
	        .ciphers = &d->ciphers,
	        .lists = c->lists,
	        .admission = c->admission,
	        .listen = c->listen,
	        .dual_stack = c->dual_stack,
	        .generation = c->generation,
	        .advertise = c->advertise,
	        .dialable = c->dialable,
	        .settings = c->settings,
	        .settings_length = c->settings_length,
	        .protocol_min = c->protocol_min,
	        .protocol_max = c->protocol_max,
	        .peers_max = c->members_max ? c->members_max : GOSSIP_MEMBERS,
	        .connections_max = c->connections_max,
	        .callbacks = {.arg = d,
	                .message_cb = on_message,
	                .up_cb = on_up,
	                .down_cb = on_down,
	                .exchange_cb = on_exchange,
	                .bulk_cb = driver__bulk_came,
	                .member_cb = is_member,
	                .say_cb = on_say}};
	return transport_new(&d->transport, &t, e);
}

void driver_recheck(struct driver *d)
{
	const struct gossip *g = driver_gossip(d);
	if (d->closing)
		return;
	transport_recheck(d->transport);
	for (uint32_t i = 0; i < gossip_count(g); i++) {
		struct member_view v = gossip_member(g, i);
		bool live = v.state == MEMBER_ALIVE || v.state == MEMBER_SUSPECT;
		if (d->c.admission)
			admission_live(d->c.admission, &v.record.id, live);
		if (!transport_permits(d->transport, &v.record.id))
			membership(d, (struct gossip_event){
			                      .kind = EVENT_FORBIDDEN, .peer.id = v.record.id});
	}
}

void driver_revoked(struct driver *d)
{
	if (d->closing)
		return;
	transport_revoked(d->transport);
	driver_recheck(d);
}

struct peer_addr driver_address(const struct driver *d)
{
	return d->transport ? transport_bound(d->transport) : d->bound;
}

struct transport_counters driver_counters(const struct driver *d)
{
	struct transport_counters c = d->transport ? transport_counters(d->transport) : d->counters;
	c.news_forged = d->verify.bad;
	c.news_unverified = d->verify.left_out;
	return c;
}
