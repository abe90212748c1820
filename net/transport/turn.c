/* SPDX-License-Identifier: MIT */
/* How long peers' messages may keep the loop in one turn.
 *
 * A peer may send more in an instant than can be handled in one: whole states with a signature in
 * every record, or a flood. Timers, probes and the other peers must not wait for that. So when the
 * messages of one turn have taken TURN_US, whoever has more to say waits: its socket is not read,
 * and its frames stay in its buffer until the next turn. Nothing is lost; TCP slows the sender.
 *
 *     read ─► frame ─► frame ─► (time is up) ─► waits ─► next turn: a frame for each that waits
 *
 * Those that wait are served in order, one frame at a time, so a flood delays the others by its
 * share only. A turn is libuv's: timers, then those that wait (an idle handle, which also keeps the
 * loop from sleeping), then what can be read. While that handle runs it alone begins a turn, so
 * that reads do not come on top; else a turn is known by the loop's time. */
#include "net/transport/transport_internal.h"

static void begin(struct transport *t)
{
	t->turn_ms = transport__now(t);
	t->turn_ns = 0;
}

bool turn__over(struct transport *t)
{
	if (!t->turning && t->turn_ms != transport__now(t))
		begin(t);
	return t->turn_ns >= TURN_US * 1000ull;
}

void turn__spent(struct transport *t, uint64_t ns)
{
	t->turn_ns += ns;
}

static void on_turn(uv_idle_t *h)
{
	struct transport *t = h->data;
	begin(t);
	if (!t->waiting_first) {
		t->turning = false;
		uv_idle_stop(&t->turn);
	}
	while (t->waiting_first && t->turn_ns < TURN_US * 1000ull) {
		struct conn *c = t->waiting_first;
		turn__forget(c);
		conn__resume(c);
	}
}

void turn__wait(struct conn *c)
{
	struct transport *t = c->t;
	uv_read_stop((uv_stream_t *)&c->tcp);
	if (!t->turning)
		uv_idle_start(&t->turn, on_turn);
	t->turning = true;
	c->waiting = true;
	c->wait_next = NULL;
	*(t->waiting_last ? &t->waiting_last->wait_next : &t->waiting_first) = c;
	t->waiting_last = c;
}

void turn__forget(struct conn *c)
{
	struct transport *t = c->t;
	struct conn **at = &t->waiting_first, *before = NULL;
	if (!c->waiting)
		return;
	while (*at != c) {
		before = *at;
		at = &before->wait_next;
	}
	*at = c->wait_next;
	if (t->waiting_last == c)
		t->waiting_last = before;
	c->waiting = false;
}
