/* SPDX-License-Identifier: MIT */
/* The happy path: a transport that nobody can dial asks each seed, parts of the answer come and are
 * put together, their hash is the token's, the transport says goodbye.
 *
 * What can fail: names that cannot be resolved, peers that are silent, refuse us, train nothing, or
 * have other settings; then the next one counts. Nothing of an answer is looked at before its hash
 * was. Memory is taken for each seed as bytes come, SETTINGS_BYTES_MAX at most. */
#include "agent/daemon/fetch.h"

#include "agent/base/log.h"
#include "agent/config/hostport.h"
#include "agent/node/run_settings.h"
#include "net/codec/wire.h"
#include "net/crypto/aead.h"
#include "net/transport/transport.h"

#include <sodium.h>
#include <string.h>

_Static_assert(RUN_SETTINGS_HASH == TOKEN_HASH_BYTES, "one hash");

struct source {
	struct peer_addr at;
	struct buf got;
	bool over; /* nothing more is to come */
};

struct fetching {
	const struct fetch *f;
	uv_loop_t loop;
	uv_timer_t timer;
	struct transport *transport; /* owned */
	struct source source[TOKEN_SEEDS_MAX];
	int n, found; /* found: -1, or which */
	bool other;   /* somebody has other settings */
};

static void stop(struct fetching *g)
{
	if (uv_is_closing((uv_handle_t *)&g->timer))
		return;
	uv_close((uv_handle_t *)&g->timer, NULL);
	transport_close(g->transport, NULL, NULL);
}

static void on_timer(uv_timer_t *t)
{
	stop(t->data);
}

static void give_up(struct fetching *g, struct source *s)
{
	s->over = true;
	for (int i = 0; i < g->n; i++)
		if (!g->source[i].over)
			return;
	stop(g);
}

static void whole(struct fetching *g, struct source *s)
{
	uint8_t hash[RUN_SETTINGS_HASH];
	char text[64];
	run_settings_hash(s->got.data, s->got.len, hash);
	if (memcmp(hash, g->f->token->hash, sizeof hash) == 0) {
		g->found = (int)(s - g->source);
		stop(g);
		return;
	}
	log_warn("%s: an agent of another run, or with other settings than the token's",
	        peer_addr_text(&s->at, text));
	g->other = true;
	give_up(g, s);
}

static void on_settings(void *arg, const struct peer_addr *dialled, const struct wire_settings *m)
{
	struct fetching *g = arg;
	struct source *s = g->source;
	char text[64];
	while (s < g->source + g->n && !peer_addr_equal(&s->at, dialled))
		s++;
	if (s == g->source + g->n || s->over)
		return;
	if (!m) {
		give_up(g, s);
		return;
	}
	if (m->total == 0)
		log_warn("%s: that agent trains nothing", peer_addr_text(dialled, text));
	if (m->offset != s->got.len || m->length == 0 || m->length > m->total ||
	        m->offset > m->total - m->length || buf_append(&s->got, m->bytes, m->length) != 0)
		give_up(g, s);
	else if (s->got.len == m->total)
		whole(g, s);
	else if (!transport_ask_settings(g->transport, &s->at, (uint32_t)s->got.len))
		give_up(g, s);
}

static void on_message(void *arg, const struct peer_id *from, const struct peer_addr *address,
        enum gossip_channel channel, struct gossip_message *m)
{
	(void)arg, (void)from, (void)address, (void)channel, (void)m; /* we are no member yet */
}

static void on_say(void *arg, enum transport_level level, const char *text)
{
	(void)arg;
	if (level == TRANSPORT_WARN)
		log_warn("%s", text);
	else
		log_debug("%s", text);
}

static void find_sources(struct fetching *g)
{
	const struct token *t = g->f->token;
	for (int i = 0; i < t->n_seeds; i++) {
		struct source *s = &g->source[g->n];
		struct hostport h;
		struct err e;
		int rc = hostport_parse(t->seed[i], &h, &e);
		if (rc == 0)
			rc = hostport_resolve(&h, &s->at, &e);
		if (rc)
			log_warn("%s", e.msg);
		bool again = false;
		for (int k = 0; k < g->n; k++)
			again = again || peer_addr_equal(&g->source[k].at, &s->at);
		if (rc == 0 && !again)
			buf_init(&g->source[g->n++].got, SETTINGS_BYTES_MAX);
	}
}

static int open_transport(struct fetching *g, const struct aead_order *ciphers, struct err *e)
{
	const struct fetch *f = g->f;
	struct peer_addr here = hostport_loopback(4);
	struct transport_config t = {.loop = &g->loop,
	        .identity = f->identity,
	        .secrets = f->secrets,
	        .ciphers = ciphers,
	        .admission = f->admission,
	        .generation = f->identity->generation,
	        .protocol_min = PROTOCOL_MIN,
	        .protocol_max = PROTOCOL_MAX,
	        .peers_max = 16,
	        .callbacks = {.arg = g,
	                .message_cb = on_message,
	                .settings_cb = on_settings,
	                .say_cb = on_say}};
	peer_addr_to(&here, &t.listen);
	return transport_new(&g->transport, &t, e);
}

static void ask_all(struct fetching *g)
{
	uv_timer_init(&g->loop, &g->timer);
	g->timer.data = g;
	uv_timer_start(&g->timer, on_timer, g->f->wait_ms, 0);
	for (int i = 0; i < g->n && !uv_is_closing((uv_handle_t *)&g->timer); i++)
		if (!transport_ask_settings(g->transport, &g->source[i].at, 0))
			give_up(g, &g->source[i]);
	uv_run(&g->loop, UV_RUN_DEFAULT);
}

static int result(const struct fetching *g, struct buf *out, char from[64], struct err *e)
{
	if (g->found >= 0) {
		const struct source *s = &g->source[g->found];
		peer_addr_text(&s->at, from);
		int rc = buf_append(out, s->got.data, s->got.len);
		return rc ? err_set(e, rc, "%s", err_text(rc)) : 0;
	}
	if (g->other)
		return err_set(e, ERR_MISMATCH,
		        "the agents at the token's addresses are of another run, or have other "
		        "settings than the token says: ask for a new token");
	return err_set(e, ERR_NOTFOUND,
	        "no agent at the token's addresses answers, or none that is new enough for tokens: "
	        "ask for a new token, or name an agent with --seed");
}

int fetch_settings(const struct fetch *f, struct buf *out, char from[64], struct err *e)
{
	struct fetching g = {.f = f, .found = -1};
	struct aead_order ciphers;
	int rc = aead_measure(&ciphers, e);
	if (rc)
		return rc;
	rc = uv_loop_init(&g.loop);
	if (rc)
		return err_set(e, ERR_SYSTEM, "start an event loop: %s", uv_strerror(rc));
	find_sources(&g);
	if (g.n > 0 && (rc = open_transport(&g, &ciphers, e)) == 0)
		ask_all(&g);
	uv_run(&g.loop, UV_RUN_DEFAULT);
	if (rc == 0)
		rc = result(&g, out, from, e);
	for (int i = 0; i < g.n; i++)
		buf_close(&g.source[i].got);
	uv_loop_close(&g.loop);
	return rc;
}
