/* SPDX-License-Identifier: MIT */
/* The handshake: two agents prove the flock's secret and their identities to each other.
 *
 * The happy path of a control connection:
 *
 *     dialler                                        listener
 *       opening 1: psk, e + HELLO (versions, ciphers) ►  a right psk, and the budget allows it
 *       ◄ opening 2: e, ee, s, es + HELLO (… identity)   vouched for by its signature
 *       opening 3: s, se + HELLO (… identity) ►          alike; both split, frames from here on
 *       FRAME_MESSAGE … ◄►  and in the end BYE, END
 *
 * How it fails. Before the psk is proven: the listener sends nothing, so that a stranger learns
 * nothing; the dialler concludes from the silence. After it: by a message with a reason (REFUSE
 * instead of a HELLO, BYE in a frame). On an unexpected byte, an exceeded limit or a timeout the
 * connection is closed without a message. What was queued on it is dropped: membership repeats
 * itself. */
#include "net/transport/transport_internal.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool put_noise(struct conn *c, const struct wire_message *m)
{
	uint8_t payload[WIRE_BYTES_MAX], out[OPENING_BYTES_MAX];
	size_t len, written;
	if (wire_encode(m, payload, WIRE_HELLO_MAX, &len) != 0 ||
	        noise_write(&c->noise, payload, len, out, sizeof out, &written) != 0)
		return false;
	return conn__put_opening(c, OPENING_HANDSHAKE, out, written);
}

static struct wire_message hello(const struct conn *c, bool identified)
{
	const struct transport_config *k = &c->t->config;
	struct wire_message m = {.kind = WIRE_HELLO};
	m.hello = (struct wire_hello){.protocol_min = k->protocol_min,
	        .protocol_max = k->protocol_max,
	        .n_ciphers = k->ciphers->n,
	        .identified = identified};
	memcpy(m.hello.cipher, k->ciphers->id, k->ciphers->n);
	if (identified) {
		m.hello.id = k->identity->id;
		memcpy(m.hello.signature, k->identity->static_signature, sizeof m.hello.signature);
		m.hello.generation = k->generation;
		m.hello.addrs = k->advertise;
		m.hello.dialable = k->dialable;
		certificates__put(c->t, &m.hello);
	}
	return m;
}

static int begin_noise(struct conn *c, int secret)
{
	const struct transport_config *k = &c->t->config;
	struct {
		char name[16];
		struct flock_id flock;
	} prologue = {"dunlin control", k->secrets->flock[secret]};
	struct noise_config n = {.protocol = NOISE_PROTOCOL,
	        .initiator = c->initiator,
	        .prologue = &prologue,
	        .prologue_len = sizeof prologue,
	        .static_secret = identity_static_secret(k->identity),
	        .static_public = k->identity->static_public,
	        .psks = &k->secrets->secret[secret],
	        .n_psks = 1};
	return noise_init(&c->noise, &n, NULL);
}

/* In words, in place of the HELLO that is due; then the end. */
static void refuse(struct conn *c, enum wire_why why, const char *words)
{
	struct wire_message m = {.kind = WIRE_REFUSE};
	m.refusal.why = (uint16_t)why;
	snprintf(m.refusal.words, sizeof m.refusal.words, "%s", words);
	if (put_noise(c, &m)) {
		c->state = CONN_CLOSING;
		c->closing_ms = transport__now(c->t);
	} else {
		conn__close(c);
	}
}

/* A version and a cipher in common; false: it was refused, in words. */
static bool agree(struct conn *c, const struct wire_hello *h)
{
	const struct transport_config *k = &c->t->config;
	struct aead_order theirs = {.n = h->n_ciphers};
	enum aead_id cipher;
	char words[WIRE_WORDS_MAX + 1];
	memcpy(theirs.id, h->cipher, h->n_ciphers);
	uint16_t least = h->protocol_min > k->protocol_min ? h->protocol_min : k->protocol_min;
	uint16_t most = h->protocol_max < k->protocol_max ? h->protocol_max : k->protocol_max;
	if (least > most) {
		snprintf(words, sizeof words,
		        "you speak protocol %u to %u, I speak %u to %u: upgrade the older of us",
		        h->protocol_min, h->protocol_max, k->protocol_min, k->protocol_max);
		refuse(c, WHY_PROTOCOL, words);
		return false;
	}
	if (aead_choose(k->ciphers, &theirs, &cipher) != 0) {
		refuse(c, WHY_PROTOCOL, "no cipher in common");
		return false;
	}
	c->aead = aead_by_id(k->ciphers, cipher);
	return true;
}

static void told_no(struct conn *c, const struct wire_refusal *r)
{
	char a[64];
	transport__say(
	        c->t, TRANSPORT_WARN, "%s refuses us: %s", peer_addr_text(&c->remote, a), r->words);
	c->explained = true;
	conn__close(c);
}

/* Whether the peer is who it says, and welcome. */
static bool identify(struct conn *c, const struct wire_hello *h)
{
	const uint8_t *key = noise_remote_static(&c->noise);
	char a[64];
	if (!h->identified || !key || identity_verify_static(&h->id, key, h->signature) != 0) {
		transport__say(c->t, TRANSPORT_WARN, "%s does not prove its identity",
		        peer_addr_text(&c->remote, a));
		conn__close(c);
		return false;
	}
	if (c->expects_id && !peer_id_equal(&c->id, &h->id)) {
		transport__say(c->t, TRANSPORT_DEBUG, "another agent is at %s now",
		        peer_addr_text(&c->remote, a));
		conn__dial_next(c); /* the one that is meant may be there */
	}
	c->rest.n = 0;
	c->id = h->id;
	for (int i = 0; i < h->addrs.n; i++)
		if (peer_addr_usable(&h->addrs.at[i]))
			c->advertised.at[c->advertised.n++] = h->addrs.at[i];
	c->peer_dialable = h->dialable;
	certificates__hello(c->t, h);
	if (transport__permits(c->t, &h->id))
		links_set(c->t, &h->id, h->generation, false);
	return true;
}

/* A dialler that hears its own id: is the listener one of our own connections? */
static void look_for_ourselves(struct conn *c)
{
	for (struct conn *o = c->t->conns; o; o = o->next)
		if (!o->initiator && noise_meets(&c->noise, &o->noise))
			c->ourselves = o->ourselves = true;
}

/* The peer has our key: it is this process, by a seed that is its own address, or a copy. */
static void meet_ourselves(struct conn *c)
{
	char a[64];
	peer_addr_text(&c->remote, a);
	if (c->ourselves) {
		transport__say(c->t, TRANSPORT_DEBUG, "%s is this agent itself", a);
		conn__bye(c, WHY_SELF, "you dialled yourself");
		return;
	}
	transport__say(c->t, TRANSPORT_WARN,
	        "copied identity: another process, at %s, runs with this agent's identity: stop "
	        "one "
	        "of the two, remove identity.key from its state directory, and start it again",
	        a);
	conn__bye(c, WHY_SELF, "your identity is a copy of mine, or mine of yours");
}

static void finish(struct conn *c)
{
	uint8_t send[32], receive[32], hash[NOISE_HASH_BYTES];
	const bool self = peer_id_equal(&c->id, &c->t->config.identity->id);
	if (self && c->initiator)
		look_for_ourselves(c);
	int rc = noise_split(&c->noise, send, receive, hash);
	if (rc == 0)
		rc = frame_writer_init(&c->writer, c->aead, send, 0);
	if (rc == 0)
		rc = frame_reader_init(
		        &c->reader, c->aead, receive, 0, c->t->frames, sizeof c->t->frames);
	frame_exporter(
	        c->exporter, c->initiator ? send : receive, c->initiator ? receive : send, hash);
	sodium_memzero(send, sizeof send);
	sodium_memzero(receive, sizeof receive);
	if (rc != 0) {
		conn__close(c);
		return;
	}
	c->framed = true;
	free(c->in); /* an idle session holds no buffer */
	c->in = NULL;
	if (c->slot >= 0)
		budget_leave(&c->t->budget, c->slot, true);
	c->slot = -1;
	frame_session(c->session, c->exporter);
	budget_known(&c->t->budget, &c->remote, transport__now(c->t));
	room__for_session(c->t, c);
	c->state = CONN_UP;
	c->up_ms = c->used_ms = transport__now(c->t);
	if (c->initiator)
		backoff_worked(&c->t->backoff, &c->remote);
	if (self)
		meet_ourselves(c);
	else if (!transport__permits(c->t, &c->id))
		transport__refuse(c);
	else
		transport__up(c->t, c);
	if (c->state == CONN_UP)
		certificates__up(c);
	conn__flush(c);
}

/* The listener's first message: whose psk is it? Symmetric work only. */
static int read_first(struct conn *c, const uint8_t *bytes, size_t len, struct wire_message *m)
{
	uint8_t payload[OPENING_BYTES_MAX];
	size_t n;
	for (int i = 0; i < c->t->config.secrets->n; i++) {
		if (begin_noise(c, i) != 0)
			return ERR_INVALID;
		if (noise_read(&c->noise, bytes, len, payload, sizeof payload, &n) == 0) {
			c->secret = i;
			return wire_decode(payload, n, m, NULL);
		}
		noise_close(&c->noise);
	}
	return ERR_MISMATCH;
}

static int read_next(struct conn *c, const uint8_t *bytes, size_t len, struct wire_message *m)
{
	uint8_t payload[OPENING_BYTES_MAX];
	size_t n;
	int rc = noise_read(&c->noise, bytes, len, payload, sizeof payload, &n);
	return rc ? rc : wire_decode(payload, n, m, NULL);
}

static void listener_opening(struct conn *c, const uint8_t *bytes, size_t len)
{
	struct wire_message m, answer;
	if (c->secret < 0) {
		if (budget_handshake(&c->t->budget, c->slot, transport__now(c->t)) != BUDGET_OK ||
		        read_first(c, bytes, len, &m) != 0 || m.kind != WIRE_HELLO ||
		        budget_dh(&c->t->budget, c->slot, transport__now(c->t)) != BUDGET_OK) {
			c->t->counters.handshakes_failed++;
			conn__close(c);
			return;
		}
		if (!agree(c, &m.hello))
			return;
		answer = hello(c, true);
		if (!put_noise(c, &answer))
			conn__close(c);
		return;
	}
	if (read_next(c, bytes, len, &m) != 0) {
		c->t->counters.handshakes_failed++;
		conn__close(c);
	} else if (m.kind == WIRE_REFUSE) {
		told_no(c, &m.refusal);
	} else if (m.kind == WIRE_HELLO && identify(c, &m.hello)) {
		finish(c);
	} else {
		conn__close(c);
	}
}

static void dialler_opening(struct conn *c, const uint8_t *bytes, size_t len)
{
	struct wire_message m, answer;
	if (read_next(c, bytes, len, &m) != 0) {
		conn__close(c);
		return;
	}
	c->heard = true;
	if (m.kind == WIRE_REFUSE) {
		told_no(c, &m.refusal);
		return;
	}
	if (m.kind != WIRE_HELLO || !identify(c, &m.hello)) {
		conn__close(c);
		return;
	}
	if (!agree(c, &m.hello))
		return;
	answer = hello(c, true);
	if (put_noise(c, &answer))
		finish(c);
	else
		conn__close(c);
}

/* A bulk connection that a peer opens: the token says whose it is, and the socket is handed out.
 * One that was kept is opened by the same peer again, with an attempt of its own. */
static void bulk_opening(struct conn *c, const uint8_t *bytes, size_t len)
{
	struct wire_message m;
	struct frame_bulk keys;
	struct conn *owner = NULL;
	if (wire_decode(bytes, len, &m, NULL) == 0 && m.kind == WIRE_BULK_OPEN)
		owner = transport__bulk_owner(c->t, &m.bulk, &keys);
	if (!owner || (c->kept && !peer_id_equal(&c->id, &owner->id))) {
		sodium_memzero(&keys, sizeof keys);
		c->t->counters.handshakes_failed++;
		conn__close(c);
		return;
	}
	if (c->slot >= 0)
		budget_leave(&c->t->budget, c->slot, true);
	c->slot = -1;
	uv_read_stop((uv_stream_t *)&c->tcp);
	c->bulk_open = m.bulk;
	conn__hand_out(c, &owner->id, &keys, owner->aead);
	sodium_memzero(&keys, sizeof keys);
}

void handshake__read(struct conn *c)
{
	const uint8_t *bytes = c->in + OPENING_HEADER_BYTES;
	size_t len = c->opening.length;
	c->in_len = 0;
	if (!c->initiator && c->opening.kind == OPENING_BULK && c->secret < 0)
		bulk_opening(c, bytes, len);
	else if (c->opening.kind != OPENING_HANDSHAKE || c->kept)
		conn__close(c);
	else if (c->initiator)
		dialler_opening(c, bytes, len);
	else
		listener_opening(c, bytes, len);
}

bool handshake__begin(struct conn *c)
{
	struct wire_message m = hello(c, false);
	c->secret = 0;
	return begin_noise(c, 0) == 0 && put_noise(c, &m);
}
