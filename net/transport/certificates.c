/* SPDX-License-Identifier: MIT */
/* How certificates reach everyone, when the flock has an owner (admission.h).
 *
 *     HELLO (full)        one's own certificate
 *     CERTIFICATES, SYNC  those of the ids in a page of records go before the page
 *     WANT_CERTIFICATES   a record of an id without one has come, mostly in a datagram: it is held
 *                         back and the certificate asked for; with it the record goes on
 *     REVOKED             the owner's list, when a connection is up and when a newer one is known
 *
 * What waits is bounded, in number and in time, and so is what one peer may make wait. An honest
 * agent passes on only what it has verified: a forged certificate ends the connection it came on.
 */
#include "net/transport/transport_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAITING_OF_ONE (CERTIFICATES_WANTED / 4) /* records that one peer may have us hold */
#define ASK_AGAIN_MS 1000
#define ASK_MAX_MS 60000

struct transport_wanted {
	struct peer_id from; /* who spoke of it */
	struct peer_addr address;
	uint8_t channel;
	bool used;
	uint32_t asked;
	uint64_t ask_ms;  /* not before */
	uint64_t drop_ms; /* nobody has it, it seems */
	struct gossip_update update;
};

bool certificates__admit(const struct transport *t, const struct peer_id *id)
{
	const struct admission *a = t->config.admission;
	return !a || admission_look(a, id) == ADMITTED;
}

void certificates__tick(struct transport *t)
{
	if (t->config.admission)
		admission_time(t->config.admission, (uint64_t)time(NULL));
}

/* ---- the handshake */

void certificates__put(const struct transport *t, struct wire_hello *h)
{
	const uint8_t *own = t->config.admission ? admission_own(t->config.admission) : NULL;
	if (!own)
		return;
	h->certificate_length = CERTIFICATE_BYTES;
	memcpy(h->certificate, own, CERTIFICATE_BYTES);
}

void certificates__hello(struct transport *t, const struct wire_hello *h)
{
	struct admission *a = t->config.admission;
	struct certificate c;
	if (!a || certificate_read(&c, h->certificate, h->certificate_length))
		return;
	/* Another's proves nothing about this one; what is not taken is missed when it is looked
	 * at whether the peer is permitted. */
	int rc = ERR_MISMATCH;
	if (peer_id_equal(&c.id, &h->id))
		rc = admission_add(a, h->certificate, h->certificate_length, NULL);
	if (rc)
		transport__say(t, TRANSPORT_DEBUG, "a peer's certificate: %s", err_text(rc));
}

/* ---- sending */

static void send_one(struct conn *c, enum wire_kind kind, const struct wire_admission *what)
{
	struct wire_message m = {.kind = (uint8_t)kind, .admission = *what};
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	if (what->length > 0 && wire_encode(&m, bytes, sizeof bytes, &len) == 0)
		conn__send(c, NULL, bytes, len);
}

static void add(struct wire_admission *w, const void *bytes, size_t n)
{
	if (w->length + n > sizeof w->bytes)
		return;
	memcpy(w->bytes + w->length, bytes, n);
	w->length = (uint16_t)(w->length + n);
}

void certificates__before(struct conn *c, const struct gossip_message *m)
{
	const struct admission *a = c->t->config.admission;
	struct wire_admission w = {0};
	if (!a || m->kind != MESSAGE_SYNC)
		return;
	for (int i = 0; i < m->n_updates; i++) {
		const struct gossip_update *u = &m->update[i];
		const uint8_t *x =
		        u->kind == UPDATE_RECORD ? admission_find(a, &u->record.id) : NULL;
		if (x)
			add(&w, x, CERTIFICATE_BYTES);
	}
	send_one(c, WIRE_CERTIFICATES, &w);
}

static void answer(struct conn *c, const struct wire_admission *want)
{
	const struct admission *a = c->t->config.admission;
	struct wire_admission w = {0};
	struct peer_id id;
	for (size_t at = 0; at + sizeof id.bytes <= want->length; at += sizeof id.bytes) {
		memcpy(id.bytes, want->bytes + at, sizeof id.bytes);
		const uint8_t *x = admission_find(a, &id);
		if (x)
			add(&w, x, CERTIFICATE_BYTES);
	}
	send_one(c, WIRE_CERTIFICATES, &w);
}

static void send_list(struct conn *c)
{
	const struct revocations_text *list = admission_revoked(c->t->config.admission);
	struct wire_admission w = {0};
	add(&w, list->bytes, list->len);
	send_one(c, WIRE_REVOKED, &w);
}

void certificates__up(struct conn *c)
{
	if (c->t->config.admission)
		send_list(c);
}

void certificates__pass_on_list(struct transport *t)
{
	for (struct conn *c = t->conns; c; c = c->next)
		if (c->state == CONN_UP && c->listed)
			send_list(c);
}

/* ---- records that wait */

static struct transport_wanted *place_for(
        struct transport *t, const struct peer_id *from, const struct peer_id *about)
{
	struct transport_wanted *best = NULL;
	int theirs = 0;
	for (int i = 0; i < CERTIFICATES_WANTED; i++) {
		struct transport_wanted *w = &t->wanted[i];
		if (w->used && peer_id_equal(&w->update.record.id, about))
			return w;
		theirs += w->used && peer_id_equal(&w->from, from);
		if (!best || (best->used && (!w->used || w->asked > best->asked)))
			best = w; /* a free one, or the one that was asked for most often in vain */
	}
	return theirs < WAITING_OF_ONE ? best : NULL;
}

bool certificates__hold(struct transport *t, const struct peer_id *from,
        const struct peer_addr *address, enum gossip_channel channel, const struct gossip_update *u)
{
	const struct admission *a = t->config.admission;
	if (!a || u->kind != UPDATE_RECORD)
		return false;
	enum admission_verdict v = admission_look(a, &u->record.id);
	if (v != ADMISSION_UNKNOWN && v != ADMISSION_EXPIRED)
		return false;
	if (!t->wanted)
		t->wanted = calloc(CERTIFICATES_WANTED, sizeof *t->wanted);
	struct transport_wanted *w = t->wanted ? place_for(t, from, &u->record.id) : NULL;
	if (!w)
		return false;
	bool again = w->used && peer_id_equal(&w->update.record.id, &u->record.id);
	*w = (struct transport_wanted){.from = *from,
	        .address = *address,
	        .channel = (uint8_t)channel,
	        .used = true,
	        .asked = again ? w->asked : 0,
	        .ask_ms = again ? w->ask_ms : 0,
	        .drop_ms = again ? w->drop_ms : transport__now(t) + CERTIFICATES_HELD_MS,
	        .update = *u};
	return true;
}

/* A dial to that peer that is under way; how many there are in all that certificates made. */
static struct conn *dialled(const struct transport *t, const struct peer_id *to, int *n)
{
	struct conn *found = NULL;
	*n = 0;
	for (struct conn *c = t->conns; c; c = c->next) {
		bool under_way = c->initiator && c->role == CONN_CONTROL && c->state < CONN_UP;
		*n += under_way && c->for_certificates;
		if (under_way && c->expects_id && peer_id_equal(&c->id, to))
			found = c;
	}
	return found;
}

/* Of the one who spoke of it, who must know; else of anybody; else its address is dialled, of which
 * there are few at one time: whoever has a name for us to ask for may have many. */
static struct conn *whom_to_ask(struct transport *t, const struct transport_wanted *w)
{
	struct peer_addrs a = {.n = 1, .at = {w->address}};
	struct conn *c = transport__find(t, &w->from);
	int n;
	for (struct conn *o = t->conns; o && !c; o = o->next)
		if (o->state == CONN_UP && o->listed)
			c = o;
	if (!c)
		c = dialled(t, &w->from, &n);
	if (c || n >= CERTIFICATES_DIALS || !peer_addr_usable(&w->address))
		return c;
	c = conn__dial(t, &a, &w->from);
	if (c)
		c->for_certificates = true;
	return c;
}

void certificates__ask(struct transport *t, uint64_t now_ms)
{
	for (int i = 0; t->wanted && !t->closing && i < CERTIFICATES_WANTED; i++) {
		struct transport_wanted *w = &t->wanted[i];
		if (w->used && now_ms >= w->drop_ms)
			w->used = false;
		if (!w->used || now_ms < w->ask_ms)
			continue;
		uint64_t wait = (uint64_t)ASK_AGAIN_MS << (w->asked < 6 ? w->asked : 6);
		w->ask_ms = now_ms + (wait < ASK_MAX_MS ? wait : ASK_MAX_MS);
		w->asked++;
		struct wire_admission want = {0};
		add(&want, w->update.record.id.bytes, sizeof w->update.record.id.bytes);
		struct conn *c = whom_to_ask(t, w);
		if (c)
			send_one(c, WIRE_WANT_CERTIFICATES, &want);
	}
}

int certificates__held(const struct transport *t)
{
	int n = 0;
	for (int i = 0; t->wanted && i < CERTIFICATES_WANTED; i++)
		n += t->wanted[i].used;
	return n;
}

/* The record that waited for this certificate, if one did. */
static void release(struct transport *t, const struct peer_id *id)
{
	const struct transport_callbacks *cb = &t->config.callbacks;
	static struct gossip_message m; /* the loop's thread alone is here */
	for (int i = 0; t->wanted && i < CERTIFICATES_WANTED; i++) {
		struct transport_wanted *w = &t->wanted[i];
		if (!w->used || !peer_id_equal(&w->update.record.id, id))
			continue;
		w->used = false;
		if (!transport__permits(t, id) || !transport__permits(t, &w->from) || t->closing)
			return;
		m = (struct gossip_message){.kind = MESSAGE_GOSSIP, .n_updates = 1};
		m.update[0] = w->update;
		cb->message_cb(cb->arg, &w->from, &w->address, (enum gossip_channel)w->channel, &m);
		return;
	}
}

/* ---- receiving */

/* False: the peer has had us verify enough in this second; what it sends is asked for again. */
static bool affordable(struct conn *c)
{
	uint64_t second = transport__now(c->t) / 1000;
	if (second != c->certificates_second) {
		c->certificates_second = second;
		c->certificates = 0;
	}
	return c->certificates < CERTIFICATES_RATE;
}

static void take(struct conn *c, const struct wire_admission *w)
{
	struct transport *t = c->t;
	struct certificate x;
	for (size_t at = 0; at < w->length; at += CERTIFICATE_BYTES) {
		if (c->state != CONN_UP || !affordable(c))
			return;
		const uint8_t *bytes = w->bytes + at;
		size_t left = w->length - at,
		       n = left < CERTIFICATE_BYTES ? left : CERTIFICATE_BYTES;
		bool worked;
		int rc = admission_add(t->config.admission, bytes, n, &worked);
		c->certificates += worked;
		if (rc == ERR_FORMAT || rc == ERR_MISMATCH) {
			transport__say(t, TRANSPORT_WARN, "a peer sends a forged certificate");
			conn__bye(c, WHY_BROKEN, "that certificate is not the owner's");
			return;
		}
		if (rc == 0 && certificate_read(&x, bytes, n) == 0)
			release(t, &x.id);
	}
}

static void take_list(struct conn *c, const struct wire_admission *w)
{
	struct transport *t = c->t;
	struct err e = {0};
	int rc = admission_revoke(t->config.admission, w->bytes, w->length, &e);
	if (rc == 0) {
		transport__say(t, TRANSPORT_INFO, "the owner's list of revoked agents is new");
		certificates__pass_on_list(t);
		transport_recheck(t);
	} else if (rc == ERR_FORMAT || rc == ERR_MISMATCH) {
		transport__say(t, TRANSPORT_WARN, "a peer sends a forged list: %s", e.msg);
		conn__bye(c, WHY_BROKEN, "that list of revoked agents is not the owner's");
	}
}

void certificates__received(struct conn *c, const struct wire_message *m)
{
	if (!c->t->config.admission || c->t->closing)
		return;
	if (m->kind == WIRE_CERTIFICATES)
		take(c, &m->admission);
	else if (m->kind == WIRE_WANT_CERTIFICATES)
		answer(c, &m->admission);
	else if (m->kind == WIRE_REVOKED)
		take_list(c, &m->admission);
}
