/* SPDX-License-Identifier: MIT */
/* The settings of a run, for one who has its token and is about to join.
 *
 * The happy path: the joiner dials, asks for the bytes from 0 on, gets a part and their number, and
 * asks for the next part; it compares the hash of all of them with its token's. They are settings
 * that all agents of a run have alike, and every member knows them.
 *
 * What can fail: nobody answers (settings_cb with NULL); a peer of an earlier version that ignores
 * the question (the joiner has a deadline); an answer that nobody asked for (ignored). A question
 * costs one message, of what a connection may queue. */
#include "net/transport/transport_internal.h"

#include <string.h>

static bool send_one(struct conn *c, const struct wire_message *m)
{
	uint8_t bytes[WIRE_BYTES_MAX];
	size_t len;
	if (wire_encode(m, bytes, sizeof bytes, &len) == 0 && conn__send(c, NULL, bytes, len))
		return true;
	c->t->counters.messages_dropped++;
	return false;
}

static void answer(struct conn *c, uint32_t offset)
{
	const struct transport_config *t = &c->t->config;
	struct wire_message m = {.kind = WIRE_SETTINGS};
	struct wire_settings *s = &m.settings;
	if (offset > t->settings_length)
		return;
	uint32_t left = t->settings_length - offset;
	s->offset = offset;
	s->total = t->settings_length;
	s->length = (uint16_t)(left < SETTINGS_PART ? left : SETTINGS_PART);
	if (s->length > 0)
		memcpy(s->bytes, t->settings + offset, s->length);
	send_one(c, &m);
}

void settings__received(struct conn *c, const struct wire_message *m)
{
	const struct transport_callbacks *cb = &c->t->config.callbacks;
	if (c->t->closing)
		return;
	if (m->kind == WIRE_WANT_SETTINGS)
		answer(c, m->settings.offset);
	else if (m->kind == WIRE_SETTINGS && c->for_settings && cb->settings_cb)
		cb->settings_cb(cb->arg, &c->remote, &m->settings);
}

void settings__down(struct conn *c)
{
	const struct transport_callbacks *cb = &c->t->config.callbacks;
	if (c->for_settings && !c->t->closing && cb->settings_cb)
		cb->settings_cb(cb->arg, &c->remote, NULL);
}

bool transport_ask_settings(struct transport *t, const struct peer_addr *at, uint32_t offset)
{
	const struct wire_message m = {.kind = WIRE_WANT_SETTINGS, .settings = {.offset = offset}};
	const struct peer_addrs one = {.at = {*at}, .n = 1};
	struct conn *c = t->conns;
	if (t->closing)
		return false;
	while (c && !(c->for_settings && c->state <= CONN_UP && peer_addr_equal(&c->remote, at)))
		c = c->next;
	if (!c && (c = conn__dial(t, &one, NULL)))
		c->for_settings = true;
	return c && send_one(c, &m);
}
