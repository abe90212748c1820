/* SPDX-License-Identifier: MIT */
/* An exchange from COMMIT on: when both apply, and what becomes of it when the two cannot speak.
 *
 * Happy path: COMMIT is sent, the peer's comes, the trainer applies, ACK is sent, the peer's comes.
 *
 * What can fail is that a message is lost, and then neither knows what the other has done. So:
 *
 *   - Whoever holds the peer's COMMIT applies. Its ACK, or SETTLE{APPLIED}, says that it has.
 *   - Whoever does not is in doubt. When the connection is lost, or half the time has passed, it
 *     says SETTLE{DOUBT}: "I have not moved, and will only if you have". From that word on a COMMIT
 *     that was under way all the time no longer counts: the peer may already have relied on the
 *     doubt. Only the news that the peer has applied does.
 *   - Whoever hears of doubt and has applied says so, and the other follows. Whoever hears of it
 *     and is in doubt itself, or never sent COMMIT, gives it up and says ABORT: "I have not moved
 *     and never will", after which the other gives it up as well.
 *
 * All three words stay true once said, so that it does not matter how late they are heard, or how
 * often: DOUBT can only be followed by moving if the hearer has moved, APPLIED and ABORT are final.
 * ABORT and ACK are never answered, so no answer goes on for ever.
 *
 * An exchange whose peer says nothing for hold_ms makes room for the next one: see aside.c.
 *
 * Finished exchanges are remembered for a while, for peers who ask again. SETTLE{UNKNOWN} comes
 * from a peer that has restarted and no longer knows what it did. That, a peer that is gone, and
 * silence until settle_ms end an exchange as one-sided, whichever side we are: both may have moved,
 * but we cannot know. If the peer returns later and settles its half from our memory, the count
 * stays: it is an upper bound. */
#include "gossip/exchange/exchange_internal.h"

#include <string.h>

/* ---- what is over */

void exchange__remember(
        struct exchange *x, const struct peer_id *peer, uint64_t exchange, bool moved)
{
	x->memory[x->n_memories++ % EXCHANGE_REMEMBERED] =
	        (struct exchange__memory){.peer = *peer, .exchange = exchange, .moved = moved};
}

const struct exchange__memory *exchange__recall(
        const struct exchange *x, const struct peer_id *peer, uint64_t exchange)
{
	for (int i = 0; i < EXCHANGE_REMEMBERED; i++)
		if (x->memory[i].exchange == exchange && exchange != 0 &&
		        peer_id_equal(&x->memory[i].peer, peer))
			return &x->memory[i];
	return NULL;
}

void exchange__say_settle(
        struct exchange *x, const struct peer_id *to, uint64_t exchange, enum exchange_settlement s)
{
	exchange__send(x, to, EXCHANGE_SETTLE, exchange)->settlement = (uint8_t)s;
}

void exchange__late_message(
        struct exchange *x, const struct peer_id *from, const struct exchange_message *m)
{
	struct exchange__aside *aside = exchange__find_aside(x, from, m->exchange);
	if (aside) {
		exchange__aside_message(x, aside, m);
		return;
	}
	const struct exchange__memory *known = exchange__recall(x, from, m->exchange);
	bool applied = m->kind == EXCHANGE_SETTLE && m->settlement == SETTLE_APPLIED;
	switch (m->kind) {
	case EXCHANGE_ACCEPT:
	case EXCHANGE_OPEN:
	case EXCHANGE_END:
		if (!known || !known->moved)
			exchange__abort_to(x, from, m->exchange, EXCHANGE_UNKNOWN,
			        known ? "it was given up" : "no such exchange");
		break;
	case EXCHANGE_SETTLE:
		if (!applied && m->settlement != SETTLE_DOUBT)
			break;
		/* fall through */
	case EXCHANGE_COMMIT:
		if (!known)
			exchange__say_settle(x, from, m->exchange, SETTLE_UNKNOWN);
		else if (!known->moved)
			exchange__abort_to(
			        x, from, m->exchange, EXCHANGE_UNKNOWN, "it was given up");
		else if (applied)
			exchange__send(x, from, EXCHANGE_ACK, m->exchange);
		else
			exchange__say_settle(x, from, m->exchange, SETTLE_APPLIED);
		break;
	default: /* BUSY, ACK, ABORT: there is nothing to add */
		break;
	}
}

/* ---- COMMIT, apply, ACK */

/* Waits for the peer's word: half the time in silence, then asking. */
static void await(struct exchange *x, enum exchange_state s)
{
	x->state = (uint8_t)s;
	x->cur.timer_ms = exchange__after(x->now, x->config.hold_ms / 2);
	x->cur.until_ms = exchange__after(x->now, x->config.settle_ms);
}

void exchange__commit(struct exchange *x)
{
	exchange__send(x, &x->cur.peer, EXCHANGE_COMMIT, x->cur.exchange);
	await(x, EXCHANGE_COMMITTED);
}

void exchange__apply(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	bool pair = c->mode == EXCHANGE_PAIR;
	c->smallest = 1;
	for (int g = 0; g < x->config.n_groups; g++) {
		/* The same two numbers at both, in the same arithmetic: the sum of the pair stays.
		 */
		float f = pair && c->theirs[g] < c->factor[g] ? c->theirs[g] : c->factor[g];
		x->out->k[g] = c->beta * f;
		c->smallest = f < c->smallest ? f : c->smallest;
	}
	x->out->apply = true;
	x->state = EXCHANGE_APPLYING;
	c->timer_ms = UINT64_MAX;
}

void exchange__applied(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	c->applied = true;
	exchange__send(x, &c->peer, EXCHANGE_ACK, c->exchange);
	/* In push and pull only we move: one-sided by design, and whole. */
	if (c->has_ack || c->mode != EXCHANGE_PAIR)
		exchange__finish(x, OUTCOME_EXCHANGED, EXCHANGE_WILLING, NULL, 0);
	else if (c->lost)
		exchange__finish(x, OUTCOME_ONE_SIDED, EXCHANGE_OTHER, "the peer was lost", 0);
	else
		await(x, EXCHANGE_ACKING);
}

/* ---- what the peer says */

/* It has applied. */
static void peer_applied(struct exchange *x)
{
	x->cur.has_ack = true;
	if (x->state == EXCHANGE_APPLYING)
		return;
	if (x->cur.applied)
		exchange__finish(x, OUTCOME_EXCHANGED, EXCHANGE_WILLING, NULL, 0);
	else
		exchange__apply(x);
}

/* It never will, or nobody knows. */
static void peer_lost(struct exchange *x, bool never, enum exchange_why why, const char *words)
{
	if (x->state == EXCHANGE_APPLYING)
		x->cur.lost = true;
	else if (never && !x->cur.applied)
		exchange__finish(x, OUTCOME_BROKEN, why, words, 0);
	else
		exchange__finish(x, OUTCOME_ONE_SIDED, why, words, 0);
}

static void peer_doubts(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	if (x->state == EXCHANGE_APPLYING)
		return; /* ACK will follow */
	if (c->applied) {
		exchange__say_settle(x, &c->peer, c->exchange, SETTLE_APPLIED);
		return;
	}
	exchange__abort_to(x, &c->peer, c->exchange, EXCHANGE_OTHER, "neither has moved");
	exchange__finish(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "neither has moved", 0);
}

void exchange__settle_message(struct exchange *x, const struct exchange_message *m)
{
	struct exchange__current *c = &x->cur;
	if (c->mode != EXCHANGE_PAIR)
		return; /* we apply, and ask nobody */
	switch (m->kind) {
	case EXCHANGE_COMMIT:
		if (x->state == EXCHANGE_COMMITTED)
			exchange__apply(x);
		break;
	case EXCHANGE_ACK:
		peer_applied(x);
		break;
	case EXCHANGE_ABORT:
		peer_lost(x, true, m->busy.why < EXCHANGE_WHYS ? m->busy.why : EXCHANGE_OTHER,
		        m->busy.words);
		break;
	case EXCHANGE_SETTLE:
		if (m->settlement == SETTLE_APPLIED) {
			if (c->applied)
				exchange__send(x, &c->peer, EXCHANGE_ACK, c->exchange);
			peer_applied(x);
		} else if (m->settlement == SETTLE_DOUBT) {
			peer_doubts(x);
		} else if (m->settlement == SETTLE_UNKNOWN) {
			peer_lost(x, false, EXCHANGE_UNKNOWN, "the peer was started anew");
		}
		break;
	default: /* too late to give up because of bad manners */
		break;
	}
}

/* ---- what happens to the connection */

static void ask(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	exchange__say_settle(x, &c->peer, c->exchange, c->applied ? SETTLE_APPLIED : SETTLE_DOUBT);
	c->ask_ms = exchange__after(x->now, EXCHANGE__ASK_MS);
}

static void unsettle(struct exchange *x, uint64_t ms)
{
	x->state = EXCHANGE_UNSETTLED;
	x->cur.timer_ms = exchange__after(x->now, ms);
	ask(x);
}

void exchange__settle_up(struct exchange *x)
{
	if (x->state == EXCHANGE_UNSETTLED)
		ask(x);
}

void exchange__settle_down(struct exchange *x)
{
	if (x->state != EXCHANGE_COMMITTED && x->state != EXCHANGE_ACKING)
		return;
	x->cur.until_ms = exchange__after(x->now, x->config.settle_ms);
	unsettle(x, x->config.hold_ms);
}

void exchange__settle_gone(struct exchange *x)
{
	if (x->cur.mode == EXCHANGE_PAIR)
		peer_lost(x, false, EXCHANGE_OTHER, "the peer is gone");
}

void exchange__settle_timer(struct exchange *x)
{
	if (x->state != EXCHANGE_UNSETTLED) {
		if (x->now >= x->cur.timer_ms)
			unsettle(x, x->config.hold_ms - x->config.hold_ms / 2);
	} else if (x->now >= x->cur.timer_ms) {
		exchange__put_aside(x);
	} else if (x->now >= x->cur.ask_ms) {
		ask(x);
	}
}
