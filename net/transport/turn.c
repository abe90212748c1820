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
 * share only. A peer whose messages have taken SHARE_PCT of a core rests: it is not read for some
 * milliseconds, so that a flood costs training no more than that.
 *
 * A turn is libuv's: timers, then those that wait (an idle handle, which also keeps the loop from
 * sleeping), then what can be read. While that handle runs it alone begins a turn, so that reads do
 * not come on top; else a turn is known by the loop's time. */
#include "net/transport/transport_internal.h"

#include <time.h>

#define REST_MS 20

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

uint64_t turn__cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* On a busy machine a message takes longer than its work: of that the peer bears nothing. */
void turn__spent(struct conn *c, uint64_t ns, uint64_t cpu_ns)
{
	struct transport *t = c->t;
	t->turn_ns += ns;
	(void)verify_share(&t->shares, &c->id, cpu_ns < ns ? cpu_ns : ns, transport__now(t));
}

bool turn__rests(struct conn *c)
{
	return verify_share(&c->t->shares, &c->id, 0, transport__now(c->t));
}

/* Those that rest wait for a turn once their peers may be heard again. */
static void on_rest(uv_timer_t *timer)
{
	struct transport *t = timer->data;
	bool more = false;
	for (struct conn *c = t->conns; c; c = c->next) {
		if (!c->resting)
			continue;
		if (turn__rests(c)) {
			more = true;
			continue;
		}
		c->resting = false;
		turn__wait(c);
	}
	if (!more)
		uv_timer_stop(&t->rest);
}

static void rest(struct conn *c)
{
	struct transport *t = c->t;
	c->resting = true;
	if (!uv_is_active((uv_handle_t *)&t->rest) && !uv_is_closing((uv_handle_t *)&t->rest))
		uv_timer_start(&t->rest, on_rest, REST_MS, REST_MS);
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
	if (turn__rests(c)) {
		rest(c);
		return;
	}
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
	c->resting = false;
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
