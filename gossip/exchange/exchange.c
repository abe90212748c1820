/* SPDX-License-Identifier: MIT */
/* An exchange up to COMMIT. Until then nothing has moved on either side, so whatever goes wrong
 * ends the same way: ABORT to the peer, the transfer is cancelled, and it is as if nothing had
 * been.
 *
 * Happy path, as seen by the one who offers (the other has no OFFERED, and does not open):
 *
 *     START ──► OFFERED ──ACCEPT──► PREPARING ──snapshot and connection──► MOVING
 *           ──MOVED: END──► ENDING ──the peer's END: COMMIT──► COMMITTED, which is settle.c's
 *
 * In push and pull there is neither END nor COMMIT: the one that receives applies once all is there
 * and checked, and its ACK ends the wait of the other. If that ACK is lost the sender counts a
 * broken exchange though the receiver has moved; nothing of its own depends on it.
 *
 * What can fail: no answer (offer_ms), a refusal, no connection from either side, the deadline, the
 * stream, the peer's manners. A message that makes no sense in its state is a bad peer's, not worth
 * guessing at. One about another exchange than the current one is answered from memory, so that
 * whoever waits for us need not wait long.
 *
 * Crossing: two agents offer to each other at once. Both see it when the other's OFFER comes while
 * their own is out: the one of the lower id ignores it, the other lets its own offer go and takes
 * the lower's. Neither says a word about it. */
#include "gossip/exchange/exchange.h"

#include "gossip/exchange/exchange_internal.h"

#include <assert.h>
#include <string.h>

_Static_assert(EXCHANGE_SENDS_MAX >= 2, "END and COMMIT go out in one step");

size_t exchange_size(void)
{
	return sizeof(struct exchange);
}

void exchange_init(struct exchange *x, const struct exchange_config *c)
{
	assert(c->n_groups >= 1 && c->n_groups <= EXCHANGE_GROUPS_MAX);
	memset(x, 0, sizeof *x);
	x->config = *c;
	rng_seed(&x->rng, c->seed, 0x65786368);
}

enum exchange_state exchange_state(const struct exchange *x)
{
	return (enum exchange_state)x->state;
}

struct peer_id exchange_peer(const struct exchange *x)
{
	return x->cur.peer;
}

bool exchange_final(const struct exchange *x)
{
	return x->cur.final;
}

/* ---- what settle.c leans on, too */

uint64_t exchange__after(uint64_t now, uint64_t ms)
{
	return ms < UINT64_MAX - now ? now + ms : UINT64_MAX;
}

/* Which way parameters go, and so who moves. */
static bool sends(const struct exchange *x)
{
	const struct exchange__current *c = &x->cur;
	return c->mode == EXCHANGE_PAIR || (c->mode == EXCHANGE_PUSH) == c->ours;
}

static bool receives(const struct exchange *x)
{
	const struct exchange__current *c = &x->cur;
	return c->mode == EXCHANGE_PAIR || (c->mode == EXCHANGE_PULL) == c->ours;
}

struct exchange_message *exchange__send(struct exchange *x, const struct peer_id *to,
        enum exchange_message_kind k, uint64_t exchange)
{
	assert(x->out->n_sends < EXCHANGE_SENDS_MAX);
	int i = x->out->n_sends++;
	x->out->send[i].to = *to;
	x->out->send[i].message.kind = (uint8_t)k;
	x->out->send[i].message.exchange = exchange;
	return &x->out->send[i].message;
}

static void send_words(struct exchange *x, const struct peer_id *to, enum exchange_message_kind k,
        uint64_t exchange, enum exchange_why why, const char *words)
{
	struct exchange_message *m = exchange__send(x, to, k, exchange);
	m->busy.why = (uint8_t)why;
	m->busy.manifest = x->config.manifest;
	exchange__words(m->busy.words, words);
}

void exchange__abort_to(struct exchange *x, const struct peer_id *to, uint64_t exchange,
        enum exchange_why why, const char *words)
{
	send_words(x, to, EXCHANGE_ABORT, exchange, why, words);
}

struct exchange_result exchange__describe(const struct exchange *x)
{
	const struct exchange__current *c = &x->cur;
	return (struct exchange_result){.peer = c->peer,
	        .exchange = c->exchange,
	        .ours = c->ours,
	        .final = c->final,
	        .moved = c->applied,
	        .mode = c->mode,
	        .format = c->format,
	        .step = c->step,
	        .entry = c->entry,
	        .bytes_sent = c->bytes_sent,
	        .bytes_received = c->bytes_received,
	        .began_ms = c->began_ms,
	        .took_ms = x->now > c->began_ms ? x->now - c->began_ms : 0,
	        .deadline_ms = c->deadline_ms,
	        .distance = c->distance,
	        .factor = c->applied ? c->smallest : 1,
	        .word = c->word};
}

void exchange__finish(struct exchange *x, enum exchange_outcome o, enum exchange_why why,
        const char *words, int code)
{
	struct exchange_result *r = &x->out->result;
	x->out->done = true;
	*r = exchange__describe(x);
	r->outcome = (uint8_t)o;
	r->why = (uint8_t)why;
	r->code = code;
	exchange__words(r->words, words);
	if (x->state >= EXCHANGE_PREPARING) {
		x->out->cancel = x->state <= EXCHANGE_MOVING;
		exchange__remember(x, &x->cur.peer, x->cur.exchange, x->cur.applied);
	}
	memset(&x->cur, 0, sizeof x->cur);
	x->state = EXCHANGE_IDLE;
}

/* We give it up, before COMMIT. */
static void give_up(struct exchange *x, enum exchange_outcome o, enum exchange_why why,
        const char *words, int code)
{
	exchange__abort_to(x, &x->cur.peer, x->cur.exchange, why, words);
	exchange__finish(x, o, why, words, code);
}

static void bad_peer(struct exchange *x, const char *words)
{
	give_up(x, OUTCOME_BAD, EXCHANGE_OTHER, words, ERR_FORMAT);
}

static bool committed(const struct exchange *x)
{
	return x->state >= EXCHANGE_COMMITTED;
}

/* ---- offers */

static bool accepts(const struct exchange *x, uint8_t format)
{
	return format < 64 && x->config.manifest.formats >> format & 1;
}

static bool scaled(const struct exchange *x, uint8_t format)
{
	return format < 64 && x->config.scaled >> format & 1;
}

/* Instead of one that needs scales; 64: there is none that both accept. Merge rounds are in the
 * most exact one: rounding would hide what is left between two, and they would end. */
static uint8_t plain_with(const struct exchange *x, const struct manifest *theirs, bool final)
{
	uint64_t both = x->config.manifest.formats & theirs->formats & ~x->config.scaled;
	if (!final && both >> x->config.plain & 1)
		return x->config.plain;
	uint8_t lowest = 0;
	while (lowest < 64 && !(both >> lowest & 1))
		lowest++;
	return lowest;
}

/* An offer may ask for a format that needs scales which one of the two does not have yet, or that
 * we do not accept. It is then answered with a plain one that both accept. */
uint8_t exchange_agrees(const struct exchange *x, const struct exchange_terms *theirs,
        const struct exchange_terms *ours)
{
	if (!scaled(x, theirs->format) ||
	        (accepts(x, theirs->format) && theirs->mode == EXCHANGE_PAIR &&
	                ours->n_scales > 0 && ours->n_scales == theirs->n_scales))
		return theirs->format;
	return plain_with(x, &theirs->manifest, theirs->final);
}

static void keep_scales(struct exchange *x, const struct exchange_terms *theirs)
{
	x->cur.n_scales = scaled(x, x->cur.format) ? theirs->n_scales : 0;
	memcpy(x->cur.scales, theirs->scales, x->cur.n_scales);
}

static void begin(struct exchange *x, const struct peer_id *peer, uint64_t exchange, bool ours,
        const struct exchange_terms *agreed, uint64_t step, uint64_t deadline_ms)
{
	memset(&x->cur, 0, sizeof x->cur);
	x->cur.peer = *peer;
	x->cur.exchange = exchange;
	x->cur.ours = ours;
	x->cur.mode = agreed->mode;
	x->cur.format = agreed->format;
	x->cur.final = agreed->final;
	x->cur.beta = agreed->beta;
	x->cur.step = step;
	x->cur.began_ms = x->now;
	x->cur.deadline_ms = deadline_ms;
}

static void await_connection(struct exchange *x)
{
	x->state = EXCHANGE_PREPARING;
	x->cur.timer_ms = exchange__after(x->now, x->config.open_ms);
	if (x->cur.timer_ms > x->cur.until_ms || x->config.open_ms == 0)
		x->cur.timer_ms = x->cur.until_ms;
}

static void prepare(struct exchange *x)
{
	x->cur.until_ms = exchange__after(x->now, x->cur.deadline_ms);
	await_connection(x);
	x->out->snapshot = true;
	x->out->scales = x->cur.n_scales > 0 ? x->cur.scales : NULL;
}

static void start(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_terms *ours = e->start.ours;
	assert(x->state == EXCHANGE_IDLE && !peer_id_equal(&e->peer, &x->config.self));
	assert(ours->mode < EXCHANGE_MODES && accepts(x, ours->format));
	assert(ours->beta > 0 && ours->beta <= 1);
	uint64_t exchange = 0;
	while (exchange == 0)
		exchange = rng_u64(&x->rng);
	begin(x, &e->peer, exchange, true, ours, ours->step, e->start.deadline_ms);
	x->cur.entry = e->start.entry;
	x->cur.word.far = e->start.far;
	x->cur.n_scales = ours->n_scales;
	if (x->stopped) {
		exchange__finish(x, OUTCOME_BUSY, EXCHANGE_LEAVING, NULL, 0);
		return;
	}
	x->state = EXCHANGE_OFFERED;
	x->cur.timer_ms = exchange__after(x->now, x->config.offer_ms);
	exchange__send(x, &e->peer, EXCHANGE_OFFER, exchange)->terms = *ours;
}

/* Both learn why, and both tell their users. */
static void refuse_unlike(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_message *m = e->received.message;
	char words[EXCHANGE_WORDS_MAX + 1];
	send_words(x, &e->peer, EXCHANGE_BUSY, m->exchange, EXCHANGE_UNLIKE, NULL);
	exchange__unlike(&m->terms.manifest, &x->config.manifest, words);
	if (x->state == EXCHANGE_IDLE) /* else our own offer crossed this one, and ends with it */
		begin(x, &e->peer, m->exchange, false, &m->terms, 0, 0);
	exchange__finish(x, OUTCOME_UNLIKE, EXCHANGE_UNLIKE, words, 0);
}

/* Why not, as far as it is for us to say; EXCHANGE_WILLING otherwise. */
static enum exchange_why judge(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_terms *t = &e->received.message->terms;
	uint64_t number = e->received.message->exchange;
	if (manifest_compare(&t->manifest, &x->config.manifest) != MANIFEST_SAME)
		return EXCHANGE_UNLIKE;
	if ((!accepts(x, t->format) && !scaled(x, t->format)) || t->mode >= EXCHANGE_MODES)
		return EXCHANGE_UNKNOWN;
	if (!(t->beta > 0 && t->beta <= 1) || exchange__recall(x, &e->peer, number) ||
	        exchange__find_aside(x, &e->peer, number))
		return EXCHANGE_OTHER;
	return EXCHANGE_WILLING;
}

static void take_offer(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_message *m = e->received.message;
	enum exchange_why why = judge(x, e);
	const char *words = why == EXCHANGE_UNKNOWN ? "no such format or mode" : NULL;
	if (why == EXCHANGE_UNLIKE) {
		refuse_unlike(x, e);
		return;
	}
	if (why == EXCHANGE_WILLING && e->received.why != EXCHANGE_WILLING) {
		why = e->received.why < EXCHANGE_WHYS ? e->received.why : EXCHANGE_OTHER;
		words = e->received.words;
	}
	if (why != EXCHANGE_WILLING) {
		send_words(x, &e->peer, EXCHANGE_BUSY, m->exchange, why, words);
		return;
	}
	assert(e->received.ours);
	uint8_t format = exchange_agrees(x, &m->terms, e->received.ours);
	if (!accepts(x, format)) {
		send_words(x, &e->peer, EXCHANGE_BUSY, m->exchange, EXCHANGE_UNKNOWN,
		        "no such format or mode");
		return;
	}
	begin(x, &e->peer, m->exchange, false, &m->terms, e->received.ours->step,
	        e->received.deadline_ms);
	struct exchange_terms *t =
	        &exchange__send(x, &e->peer, EXCHANGE_ACCEPT, m->exchange)->terms;
	*t = *e->received.ours;
	t->mode = m->terms.mode;
	t->format = x->cur.format = format;
	if (!scaled(x, format))
		t->n_scales = 0;
	keep_scales(x, &m->terms);
	t->final = m->terms.final;
	t->beta = m->terms.beta;
	prepare(x);
}

static void on_offer(struct exchange *x, const struct exchange_event *e)
{
	struct exchange__current *c = &x->cur;
	const struct exchange_message *m = e->received.message;
	if (x->state == EXCHANGE_OFFERED && peer_id_equal(&e->peer, &c->peer)) {
		if (memcmp(&x->config.self, &e->peer, sizeof e->peer) < 0)
			return;
		if (judge(x, e) == EXCHANGE_UNLIKE) {
			refuse_unlike(x, e);
			return;
		}
		exchange__finish(x, OUTCOME_CROSSED, EXCHANGE_OTHER, NULL, 0);
	}
	if (x->stopped)
		send_words(x, &e->peer, EXCHANGE_BUSY, m->exchange, EXCHANGE_LEAVING, NULL);
	else if (x->state != EXCHANGE_IDLE)
		send_words(x, &e->peer, EXCHANGE_BUSY, m->exchange, EXCHANGE_ENGAGED, NULL);
	else
		take_offer(x, e);
}

/* ---- answers, connection, transfer */

static void on_accept(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange__current *c = &x->cur;
	const struct exchange_terms *t = &e->received.message->terms;
	char words[EXCHANGE_WORDS_MAX + 1];
	if (manifest_compare(&t->manifest, &x->config.manifest) != MANIFEST_SAME) {
		exchange__unlike(&t->manifest, &x->config.manifest, words);
		give_up(x, OUTCOME_UNLIKE, EXCHANGE_UNLIKE, words, 0);
		return;
	}
	/* Any other would cost more than was paid for. */
	bool plainer = scaled(x, c->format) && accepts(x, t->format) &&
	               t->format == plain_with(x, &t->manifest, c->final);
	bool same =
	        t->format == c->format && t->n_scales == (scaled(x, c->format) ? c->n_scales : 0);
	if (t->mode != c->mode || (!same && !plainer) || t->final != c->final ||
	        !(t->beta >= c->beta && t->beta <= c->beta)) {
		bad_peer(x, "accepted what was not offered");
		return;
	}
	if (e->received.why != EXCHANGE_WILLING) {
		give_up(x, OUTCOME_BROKEN, e->received.why, e->received.words, 0);
		return;
	}
	x->cur.format = t->format;
	keep_scales(x, t);
	if (x->cur.deadline_ms < e->received.deadline_ms) /* the peer may be slower than we knew */
		x->cur.deadline_ms = e->received.deadline_ms;
	prepare(x);
	x->cur.opened = true;
	x->out->open = true;
}

/* That we are unlike is not believed: its manifest says it. */
static void on_busy(struct exchange *x, const struct exchange_message *m)
{
	enum exchange_why why = m->busy.why < EXCHANGE_WHYS ? m->busy.why : EXCHANGE_OTHER;
	bool same = manifest_compare(&m->busy.manifest, &x->config.manifest) == MANIFEST_SAME;
	char words[EXCHANGE_WORDS_MAX + 1];
	if (why == EXCHANGE_UNLIKE && !same) {
		exchange__unlike(&m->busy.manifest, &x->config.manifest, words);
		exchange__finish(x, OUTCOME_UNLIKE, why, words, 0);
		return;
	}
	if (why == EXCHANGE_WILLING || why == EXCHANGE_UNLIKE)
		why = EXCHANGE_OTHER;
	exchange__finish(x, OUTCOME_BUSY, why, m->busy.words, 0);
}

static void on_open(struct exchange *x)
{
	if (x->state != EXCHANGE_PREPARING || x->cur.opened || x->cur.bulk) {
		bad_peer(x, "asked for a connection out of turn");
		return;
	}
	x->cur.opened = true;
	x->out->open = true;
}

static void move_if_ready(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	if (x->state != EXCHANGE_PREPARING || !c->snapshot || !c->bulk)
		return;
	x->state = EXCHANGE_MOVING;
	x->out->move = true;
	x->out->sends = sends(x);
	x->out->receives = receives(x);
	/* Never 0, which would be no deadline, even if the time is up and the timer late. */
	x->out->deadline_ms_left = c->timer_ms > x->now ? c->timer_ms - x->now : 1;
}

static void on_bulk(struct exchange *x, const struct exchange_event *e)
{
	struct exchange__current *c = &x->cur;
	if (x->state != EXCHANGE_PREPARING || c->bulk || e->bulk.exchange != c->exchange ||
	        !peer_id_equal(&e->peer, &c->peer))
		return;
	if (e->bulk.bulk == BULK_CAME) {
		c->bulk = true;
		c->timer_ms = c->until_ms;
		move_if_ready(x);
	} else if (e->bulk.bulk == BULK_CANNOT_DIAL && c->ours && !c->asked && !c->again) {
		c->asked = true;
		exchange__send(x, &c->peer, EXCHANGE_OPEN, c->exchange);
	} else {
		give_up(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "no connection for the parameters", 0);
	}
}

static bool factors_fit(const float *factor, int n)
{
	for (int g = 0; g < n; g++)
		if (!(factor[g] >= 0 && factor[g] <= 1)) /* a NaN is neither */
			return false;
	return true;
}

/* The connection was one that was kept, and broke before the peer's first parameters. Both take
 * another one, within the deadline, if the peer has seen as little of ours; else it gives up. */
static void move_again(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	c->again = true;
	c->bulk = false;
	await_connection(x);
	x->out->open = x->out->fresh = c->opened && !c->asked;
}

static void on_moved(struct exchange *x, const struct exchange_event *e)
{
	struct exchange__current *c = &x->cur;
	int n = x->config.n_groups, code = e->moved.code;
	if (x->state != EXCHANGE_MOVING)
		return;
	c->bytes_sent += e->moved.bytes_sent;
	c->bytes_received += e->moved.bytes_received;
	if (code != 0 && e->moved.again && !c->again && !c->has_end && !c->has_ack) {
		move_again(x);
		return;
	}
	c->distance = e->moved.distance;
	if (code == 0 && receives(x) && (e->moved.n != n || !factors_fit(e->moved.factor, n)))
		code = ERR_NONFINITE;
	if (code != 0) {
		enum exchange_outcome o =
		        code == ERR_TIMEOUT ? OUTCOME_TIMEOUT
		        : code == ERR_NONFINITE || code == ERR_FORMAT || code == ERR_MISMATCH
		                ? OUTCOME_BAD
		                : OUTCOME_BROKEN;
		x->state = EXCHANGE_ENDING; /* there is no transfer left to cancel */
		give_up(x, o, EXCHANGE_OTHER, err_text(code), code);
		return;
	}
	x->state = EXCHANGE_ENDING;
	if (receives(x))
		memcpy(c->factor, e->moved.factor, (size_t)n * sizeof *c->factor);
	if (c->mode != EXCHANGE_PAIR) {
		if (receives(x))
			exchange__apply(x);
		else if (c->has_ack)
			exchange__finish(x, OUTCOME_EXCHANGED, EXCHANGE_WILLING, NULL, 0);
		return;
	}
	struct exchange_message *m = exchange__send(x, &c->peer, EXCHANGE_END, c->exchange);
	m->end.n = (uint8_t)n;
	memcpy(m->end.factor, c->factor, (size_t)n * sizeof *c->factor);
	m->end.word = (struct exchange_word){
	        .x2 = e->moved.x2, .lr = e->moved.lr, .far = c->ours && c->word.far};
	if (c->has_end)
		exchange__commit(x);
}

static void on_end(struct exchange *x, const struct exchange_message *m)
{
	struct exchange__current *c = &x->cur;
	int n = x->config.n_groups;
	if (c->mode != EXCHANGE_PAIR || c->has_end || x->state < EXCHANGE_MOVING) {
		bad_peer(x, "END out of turn");
		return;
	}
	if (m->end.n != n || !factors_fit(m->end.factor, n)) {
		bad_peer(x, "END with other groups, or factors that are none");
		return;
	}
	c->has_end = true;
	memcpy(c->theirs, m->end.factor, (size_t)n * sizeof *c->theirs);
	c->word.x2 = m->end.word.x2;
	c->word.lr = m->end.word.lr;
	if (!c->ours)
		c->word.far = m->end.word.far;
	if (x->state == EXCHANGE_ENDING)
		exchange__commit(x);
}

static void on_ack(struct exchange *x)
{
	struct exchange__current *c = &x->cur;
	if (receives(x) || x->state < EXCHANGE_MOVING) {
		bad_peer(x, "ACK out of turn");
		return;
	}
	c->has_ack = true; /* it may come before we hear that our own end of the transfer is over */
	if (x->state == EXCHANGE_ENDING)
		exchange__finish(x, OUTCOME_EXCHANGED, EXCHANGE_WILLING, NULL, 0);
}

static void on_settle(struct exchange *x, const struct exchange_message *m)
{
	/* Its doubt is about us: we have not sent COMMIT, and it will not take one any more. */
	if (m->settlement == SETTLE_APPLIED)
		bad_peer(x, "applied what we did not commit to");
	else
		give_up(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "the peer has lost the thread", 0);
}

/* ---- events */

/* About the current exchange, which is not committed yet. */
static void on_message(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_message *m = e->received.message;
	bool offered = x->state == EXCHANGE_OFFERED;
	if (m->kind == EXCHANGE_ABORT) {
		exchange__finish(x, OUTCOME_BROKEN,
		        m->busy.why < EXCHANGE_WHYS ? m->busy.why : EXCHANGE_OTHER, m->busy.words,
		        0);
		return;
	}
	/* It has all of our parameters by the connection that broke, and we have none of its. */
	if (x->state == EXCHANGE_PREPARING && x->cur.again &&
	        (m->kind == EXCHANGE_END || m->kind == EXCHANGE_ACK)) {
		give_up(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "the connection was lost", 0);
		return;
	}
	if (offered != (m->kind == EXCHANGE_ACCEPT || m->kind == EXCHANGE_BUSY)) {
		bad_peer(x, "an answer out of turn");
		return;
	}
	switch (m->kind) {
	case EXCHANGE_ACCEPT:
		on_accept(x, e);
		break;
	case EXCHANGE_BUSY:
		on_busy(x, m);
		break;
	case EXCHANGE_OPEN:
		on_open(x);
		break;
	case EXCHANGE_END:
		on_end(x, m);
		break;
	case EXCHANGE_ACK:
		on_ack(x);
		break;
	case EXCHANGE_SETTLE:
		on_settle(x, m);
		break;
	default: /* COMMIT: with both ENDs there we would have sent ours */
		bad_peer(x, "COMMIT before END");
		break;
	}
}

static void receive(struct exchange *x, const struct exchange_event *e)
{
	const struct exchange_message *m = e->received.message;
	if (m->exchange == 0 || m->kind >= EXCHANGE_FETCH ||
	        peer_id_equal(&e->peer, &x->config.self))
		return;
	bool current = x->state != EXCHANGE_IDLE && m->exchange == x->cur.exchange &&
	               peer_id_equal(&e->peer, &x->cur.peer);
	if (m->kind == EXCHANGE_OFFER && !current)
		on_offer(x, e);
	else if (!current)
		exchange__late_message(x, &e->peer, m);
	else if (committed(x))
		exchange__settle_message(x, m);
	else
		on_message(x, e);
}

static void on_timer(struct exchange *x)
{
	if (committed(x))
		exchange__settle_timer(x);
	else if (x->state != EXCHANGE_IDLE && x->now >= x->cur.timer_ms)
		give_up(x, OUTCOME_TIMEOUT, EXCHANGE_OTHER, err_text(ERR_TIMEOUT), ERR_TIMEOUT);
}

/* UP, DOWN and GONE of the current peer. */
static void on_link(struct exchange *x, const struct exchange_event *e)
{
	exchange__aside_link(x, e);
	if (x->state == EXCHANGE_IDLE || !peer_id_equal(&e->peer, &x->cur.peer))
		return;
	bool gone = e->kind == EXCHANGE_EVENT_GONE;
	if (e->kind == EXCHANGE_EVENT_UP)
		exchange__settle_up(x);
	else if (committed(x) && gone)
		exchange__settle_gone(x);
	else if (committed(x))
		exchange__settle_down(x);
	else if (gone) /* nobody to tell */
		exchange__finish(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "the peer is gone", 0);
	else
		give_up(x, OUTCOME_BROKEN, EXCHANGE_OTHER, "the connection was lost", 0);
}

static void handle(struct exchange *x, const struct exchange_event *e)
{
	switch (e->kind) {
	case EXCHANGE_EVENT_START:
		start(x, e);
		break;
	case EXCHANGE_EVENT_RECEIVED:
		receive(x, e);
		break;
	case EXCHANGE_EVENT_SNAPSHOT:
		x->cur.snapshot = x->state == EXCHANGE_PREPARING || x->cur.snapshot;
		move_if_ready(x);
		break;
	case EXCHANGE_EVENT_BULK:
		on_bulk(x, e);
		break;
	case EXCHANGE_EVENT_MOVED:
		on_moved(x, e);
		break;
	case EXCHANGE_EVENT_APPLIED:
		if (x->state == EXCHANGE_APPLYING)
			exchange__applied(x);
		break;
	case EXCHANGE_EVENT_UP:
	case EXCHANGE_EVENT_DOWN:
	case EXCHANGE_EVENT_GONE:
		on_link(x, e);
		break;
	case EXCHANGE_EVENT_TIMER:
		on_timer(x);
		break;
	case EXCHANGE_EVENT_STOP:
		x->stopped = true;
		if (x->state != EXCHANGE_IDLE && !committed(x))
			give_up(x, OUTCOME_CANCELLED, EXCHANGE_LEAVING, NULL, 0);
		break;
	default:
		break;
	}
}

void exchange_step(struct exchange *x, const struct exchange_event *e, struct exchange_actions *a)
{
	const struct exchange__current before = x->cur;
	memset(a, 0, sizeof *a);
	x->out = a;
	x->now = e->now_ms;
	handle(x, e);
	uint64_t aside_ms = exchange__aside_time(x);
	x->out = NULL;
	const struct exchange__current *c = x->state == EXCHANGE_IDLE ? &before : &x->cur;
	a->peer = c->peer;
	a->exchange = c->exchange;
	a->format = c->format;
	a->n_groups = x->config.n_groups;
	a->timer_ms = UINT64_MAX;
	if (x->state != EXCHANGE_IDLE)
		a->timer_ms = c->timer_ms;
	if (x->state == EXCHANGE_UNSETTLED && c->ask_ms < a->timer_ms)
		a->timer_ms = c->ask_ms;
	if (aside_ms < a->timer_ms)
		a->timer_ms = aside_ms;
}
