/* SPDX-License-Identifier: MIT */
/* One machine fed by hand, from COMMIT on: each way in which an exchange is settled, what is
 * remembered, and every message in every state, from both sides. */
#include "tests/gossip/exchange_support.h"

/* ---- after COMMIT only the peer's word counts */

static void test_doubt(void **unused)
{
	(void)unused;
	for (int ours = 0; ours < 2; ours++) {
		struct fixture f;
		reach(&f, EXCHANGE_COMMITTED, ours, EXCHANGE_PAIR, false);
		event(&f, EXCHANGE_EVENT_STOP); /* goes on to its end */
		assert_int_equal(state(&f), EXCHANGE_COMMITTED);
		event(&f, EXCHANGE_EVENT_DOWN);
		assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_DOUBT);
		assert_int_equal(state(&f), EXCHANGE_UNSETTLED);
		assert_true(f.a.timer_ms == f.now + 1000);
		until_timer(&f); /* once a second */
		assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_DOUBT);
		f.now += 10;
		event(&f, EXCHANGE_EVENT_UP); /* and when there is a chance */
		assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_DOUBT);
		say(&f, EXCHANGE_COMMIT); /* too late: the doubt may have been relied on */
		assert_true(!f.a.apply && f.a.n_sends == 0);
		assert_int_equal(state(&f), EXCHANGE_UNSETTLED);
		settle(&f, SETTLE_APPLIED);
		assert_true(f.a.apply && f.a.k[0] == 0.125f);
		event(&f, EXCHANGE_EVENT_APPLIED);
		sent(&f, EXCHANGE_ACK);
		ended(&f, OUTCOME_EXCHANGED, true);
		end(&f);
	}
}

static void test_both_in_doubt(void **unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		struct fixture f;
		reach(&f, i ? EXCHANGE_UNSETTLED : EXCHANGE_COMMITTED, true, EXCHANGE_PAIR, false);
		settle(&f, SETTLE_DOUBT);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_BROKEN, false);
		/* Nothing that comes later moves anything. */
		say(&f, EXCHANGE_COMMIT);
		sent(&f, EXCHANGE_ABORT);
		say(&f, EXCHANGE_ACK);
		assert_int_equal(f.a.n_sends, 0);
		settle(&f, SETTLE_APPLIED); /* then it is one-sided, and the peer learns it */
		sent(&f, EXCHANGE_ABORT);
		settle(&f, SETTLE_DOUBT);
		sent(&f, EXCHANGE_ABORT);
		assert_int_equal(f.applies, 0);
		assert_int_equal(f.dones, 1);
		end(&f);
	}
}

static void test_applied_and_alone(void **unused)
{
	(void)unused;
	struct fixture f;
	reach(&f, EXCHANGE_UNSETTLED, true, EXCHANGE_PAIR, true);
	assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_APPLIED);
	settle(&f, SETTLE_DOUBT);
	assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_APPLIED);
	say(&f, EXCHANGE_ACK);
	ended(&f, OUTCOME_EXCHANGED, true);
	end(&f);
	/* Both have, and only the last words were lost. */
	reach(&f, EXCHANGE_UNSETTLED, true, EXCHANGE_PAIR, true);
	settle(&f, SETTLE_APPLIED);
	sent(&f, EXCHANGE_ACK);
	ended(&f, OUTCOME_EXCHANGED, true);
	end(&f);
	/* While the trainer applies nothing is forgotten. */
	for (int i = 0; i < 4; i++) {
		reach(&f, EXCHANGE_APPLYING, i & 1, EXCHANGE_PAIR, false);
		assert_true(f.a.timer_ms == UINT64_MAX);
		event(&f, EXCHANGE_EVENT_STOP);
		event(&f, EXCHANGE_EVENT_DOWN);
		settle(&f, SETTLE_DOUBT);
		assert_int_equal(f.a.n_sends, 0);
		f.now += 1000000;
		event(&f, EXCHANGE_EVENT_TIMER);
		if (i & 2)
			event(&f, EXCHANGE_EVENT_GONE);
		assert_int_equal(state(&f), EXCHANGE_APPLYING);
		event(&f, EXCHANGE_EVENT_APPLIED);
		sent(&f, EXCHANGE_ACK);
		if (i & 2)
			ended(&f, OUTCOME_ONE_SIDED, true);
		else
			assert_int_equal(state(&f), EXCHANGE_ACKING);
		end(&f);
	}
}

/* Silence, a death, and a peer without memory: counted, whichever half is ours. */
static void test_one_sided(void **unused)
{
	(void)unused;
	for (int i = 0; i < 4; i++) {
		bool applied = i & 1, down = i & 2;
		struct fixture f;
		enum exchange_state s = down      ? EXCHANGE_UNSETTLED
		                        : applied ? EXCHANGE_ACKING
		                                  : EXCHANGE_COMMITTED;
		reach(&f, s, true, EXCHANGE_PAIR, applied);
		uint64_t from = f.now;
		int asked = 0;
		while (!f.a.done) {
			until_timer(&f);
			if (f.a.done)
				break;
			assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement,
			        applied ? SETTLE_APPLIED : SETTLE_DOUBT);
			assert_true(down || asked > 0 || f.now == from + 2000);
			asked++;
			/* Meanwhile it is put aside, once. */
			assert_int_equal(f.a.aside, f.now == from + 4000);
			assert_int_equal(state(&f) == EXCHANGE_IDLE, f.now >= from + 4000);
		}
		ended(&f, OUTCOME_ONE_SIDED, applied);
		assert_true(f.a.result.late && f.now == from + 15000);
		assert_string_equal(f.a.result.words, "the peer did not come back");
		assert_int_equal(asked, down ? 14 : 13);
		/* Who comes back too late hears the truth. */
		settle(&f, SETTLE_DOUBT);
		if (applied)
			assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_APPLIED);
		else
			sent(&f, EXCHANGE_ABORT);
		end(&f);
		reach(&f, s, true, EXCHANGE_PAIR, applied);
		event(&f, EXCHANGE_EVENT_GONE);
		ended(&f, OUTCOME_ONE_SIDED, applied);
		end(&f);
		reach(&f, s, true, EXCHANGE_PAIR, applied);
		settle(&f, SETTLE_UNKNOWN);
		ended(&f, OUTCOME_ONE_SIDED, applied);
		end(&f);
		reach(&f, s, true, EXCHANGE_PAIR, applied);
		say(&f, EXCHANGE_ABORT);
		ended(&f, applied ? OUTCOME_ONE_SIDED : OUTCOME_BROKEN, applied);
		end(&f);
	}
}

/* ---- put aside */

/* The peer says nothing for hold_ms. */
static void reach_aside(struct fixture *f, bool ours, bool applied)
{
	reach(f, EXCHANGE_UNSETTLED, ours, EXCHANGE_PAIR, applied);
	uint64_t from = f->now;
	while (!f->a.aside)
		until_timer(f);
	assert_true(f->now == from + 4000 && !f->a.done);
	assert_true(f->a.so_far.exchange == f->number && f->a.so_far.moved == applied);
	assert_int_equal(state(f), EXCHANGE_IDLE);
	assert_int_equal(exchange_unsettled(f->x), 1);
}

/* What becomes of another peer is no news of it. */
static void test_another_peer_while_put_aside(void **unused)
{
	static const enum exchange_event_kind kinds[] = {
	        EXCHANGE_EVENT_UP, EXCHANGE_EVENT_DOWN, EXCHANGE_EVENT_GONE};
	(void)unused;
	for (int i = 0; i < 3; i++) {
		struct fixture f;
		reach_aside(&f, true, true);
		step(&f, (struct exchange_event){.kind = (uint8_t)kinds[i], .peer = id(77)});
		assert_int_equal(f.a.n_sends, 0);
		assert_false(f.a.done);
		assert_int_equal(exchange_unsettled(f.x), 1);
		event(&f, kinds[i]);
		if (kinds[i] == EXCHANGE_EVENT_UP)
			sent(&f, EXCHANGE_SETTLE);
		assert_int_equal(f.a.done, kinds[i] == EXCHANGE_EVENT_GONE);
		end(&f);
	}
}

/* From the loss of the connection on there are settle_ms, whatever time had passed before. */
static void test_time_to_settle(void **unused)
{
	(void)unused;
	for (int applied = 0; applied < 2; applied++) {
		struct fixture f;
		reach(&f, applied ? EXCHANGE_ACKING : EXCHANGE_COMMITTED, true, EXCHANGE_PAIR,
		        applied);
		f.now += 1000;
		event(&f, EXCHANGE_EVENT_DOWN);
		uint64_t lost = f.now;
		while (!f.a.done && f.now < lost + 60000)
			until_timer(&f);
		assert_int_equal(f.now - lost, 15000);
		ended(&f, OUTCOME_ONE_SIDED, applied);
		end(&f);
	}
}

/* What each word makes of it: as letters in test_every_message, and x: ABORT, one-sided. */
static void test_put_aside(void **unused)
{
	(void)unused;
	/* OFFER ACCEPT BUSY OPEN END COMMIT ACK ABORT, SETTLE 0 1 2 */
	static const char *const follows[] = {"r.....1B1bx", "r.....E11ae"};
	static const struct {
		char letter;
		int sends, outcome;
	} t[] = {{'.', -1, -1}, {'r', EXCHANGE_BUSY, -1}, {'a', EXCHANGE_SETTLE, -1},
	        {'B', -1, OUTCOME_BROKEN}, {'b', EXCHANGE_ABORT, OUTCOME_BROKEN},
	        {'E', -1, OUTCOME_EXCHANGED}, {'e', EXCHANGE_ACK, OUTCOME_EXCHANGED},
	        {'1', -1, OUTCOME_ONE_SIDED}, {'x', EXCHANGE_ABORT, OUTCOME_ONE_SIDED}};
	for (int i = 0; i < 4 * 11; i++) {
		struct fixture f;
		bool applied = i & 1;
		int k = i / 4;
		reach_aside(&f, i & 2, applied);
		if (k < EXCHANGE_SETTLE)
			say(&f, (enum exchange_message_kind)k);
		else
			settle(&f, (enum exchange_settlement)(k - EXCHANGE_SETTLE));
		size_t at = 0;
		while (t[at].letter != follows[applied][k])
			assert_true(++at < sizeof t / sizeof *t);
		if (t[at].sends >= 0)
			sent(&f, (enum exchange_message_kind)t[at].sends);
		else
			assert_int_equal(f.a.n_sends, 0);
		assert_false(f.a.apply); /* staging is another's */
		assert_int_equal(f.a.done, t[at].outcome >= 0);
		if (f.a.done) {
			ended(&f, (enum exchange_outcome)t[at].outcome, applied);
			assert_true(f.a.result.late);
			settle(&f, SETTLE_DOUBT); /* it is remembered as it was */
			sent(&f, applied ? EXCHANGE_SETTLE : EXCHANGE_ABORT);
		}
		end(&f);
	}
}

/* A reason that we do not know is some other one. */
static void test_reason_of_an_abort_put_aside(void **unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		struct fixture f;
		struct exchange_message m = {.kind = EXCHANGE_ABORT};
		m.busy.why = i == 0 ? EXCHANGE_BUDGET : EXCHANGE_WHYS;
		strcpy(m.busy.words, "so it is");
		reach_aside(&f, true, false);
		hear(&f, m);
		assert_int_equal(f.a.result.why, i == 0 ? EXCHANGE_BUDGET : EXCHANGE_OTHER);
		assert_string_equal(f.a.result.words, "so it is");
		end(&f);
	}
}

/* The next exchange, with the same peer, goes its way. */
static void test_next_one(void **unused)
{
	(void)unused;
	for (int applied = 0; applied < 2; applied++) {
		struct fixture f;
		reach_aside(&f, true, applied);
		uint64_t first = f.number;
		f.applies = 0;
		start(&f, EXCHANGE_PAIR);
		uint64_t second = f.number;
		assert_true(second != first);
		say(&f, EXCHANGE_ACCEPT);
		bulk(&f, BULK_CAME);
		event(&f, EXCHANGE_EVENT_SNAPSHOT);
		f.number = first;
		settle(&f, SETTLE_APPLIED); /* in the middle of it */
		assert_true(f.a.done && f.a.result.late && f.a.result.exchange == first);
		assert_int_equal(
		        f.a.result.outcome, applied ? OUTCOME_EXCHANGED : OUTCOME_ONE_SIDED);
		sent(&f, applied ? EXCHANGE_ACK : EXCHANGE_ABORT);
		assert_true(!f.a.apply && !f.a.cancel);
		assert_int_equal(state(&f), EXCHANGE_MOVING);
		f.number = second;
		moved(&f, 0);
		say(&f, EXCHANGE_END);
		say(&f, EXCHANGE_COMMIT);
		assert_true(f.a.apply);
		event(&f, EXCHANGE_EVENT_APPLIED);
		say(&f, EXCHANGE_ACK);
		ended(&f, OUTCOME_EXCHANGED, true);
		assert_false(f.a.result.late);
		end(&f);
	}
}

/* One more, by the peer, that is put aside in doubt. */
static void one_more_aside(struct fixture *f, uint64_t number)
{
	f->number = number;
	say(f, EXCHANGE_OFFER);
	bulk(f, BULK_CAME);
	event(f, EXCHANGE_EVENT_SNAPSHOT);
	moved(f, 0);
	say(f, EXCHANGE_END);
	event(f, EXCHANGE_EVENT_DOWN);
	f->now += 4000;
	event(f, EXCHANGE_EVENT_TIMER);
	assert_true(f->a.aside && f->a.so_far.exchange == number);
}

/* More than there is room for, or all over at once: each has its result, one a step, and what is
 * sent in a step is bounded. */
static void test_many_aside(void **unused)
{
	(void)unused;
	struct fixture f;
	struct exchange_config c = {.self = id(5),
	        .manifest = like,
	        .n_groups = GROUPS,
	        .offer_ms = 3000,
	        .hold_ms = 4000,
	        .settle_ms = 1000000};
	begin(&f);
	exchange_init(f.x, &c);
	for (uint64_t i = 1; i <= EXCHANGE_ASIDE_MAX + 2; i++) {
		one_more_aside(&f, i);
		assert_int_equal(f.a.done, i > EXCHANGE_ASIDE_MAX);
		if (f.a.done) {
			assert_true(f.a.result.exchange == i - EXCHANGE_ASIDE_MAX);
			assert_int_equal(f.a.result.outcome, OUTCOME_ONE_SIDED);
		}
	}
	assert_int_equal(exchange_unsettled(f.x), EXCHANGE_ASIDE_MAX);
	int asked = 0;
	f.now += 10;
	event(&f, EXCHANGE_EVENT_UP);
	for (asked = f.a.n_sends; f.a.timer_ms == f.now; asked += f.a.n_sends)
		event(&f, EXCHANGE_EVENT_TIMER);
	assert_int_equal(asked, EXCHANGE_ASIDE_MAX);
	event(&f, EXCHANGE_EVENT_GONE);
	while (exchange_unsettled(f.x) > 0) {
		assert_true(f.a.done && f.a.timer_ms == f.now);
		assert_int_equal(f.a.result.outcome, OUTCOME_ONE_SIDED);
		event(&f, EXCHANGE_EVENT_TIMER);
	}
	assert_int_equal(f.dones, EXCHANGE_ASIDE_MAX + 2);
	assert_true(f.a.timer_ms == UINT64_MAX);
	end(&f);
}

/* A machine that slept through everything asks before it gives up. */
static void test_overslept(void **unused)
{
	(void)unused;
	struct fixture f;
	reach(&f, EXCHANGE_COMMITTED, true, EXCHANGE_PAIR, false);
	f.now += 1000000;
	event(&f, EXCHANGE_EVENT_TIMER);
	assert_int_equal(sent(&f, EXCHANGE_SETTLE)->settlement, SETTLE_DOUBT);
	assert_int_equal(state(&f), EXCHANGE_UNSETTLED);
	settle(&f, SETTLE_APPLIED);
	assert_true(f.a.apply);
	end(&f);
}

/* ---- memory */

/* One more exchange, by the peer, that is refused by it at the end: forgotten or moved. */
static void another(struct fixture *f, uint64_t number, bool whole)
{
	f->number = number;
	f->applies = 0;
	say(f, EXCHANGE_OFFER);
	sent(f, EXCHANGE_ACCEPT);
	bulk(f, BULK_CAME);
	event(f, EXCHANGE_EVENT_SNAPSHOT);
	if (!whole) {
		moved(f, ERR_IO);
		ended(f, OUTCOME_BROKEN, false);
		return;
	}
	moved(f, 0);
	say(f, EXCHANGE_END);
	say(f, EXCHANGE_COMMIT);
	event(f, EXCHANGE_EVENT_APPLIED);
	say(f, EXCHANGE_ACK);
	ended(f, OUTCOME_EXCHANGED, true);
}

static void ask_about(struct fixture *f, uint64_t number, bool known, bool whole)
{
	f->number = number;
	static const enum exchange_message_kind kinds[] = {
	        EXCHANGE_COMMIT, EXCHANGE_SETTLE, EXCHANGE_SETTLE};
	for (int i = 0; i < 3; i++) {
		struct exchange_message m = {.kind = (uint8_t)kinds[i]};
		m.settlement = i == 2 ? SETTLE_APPLIED : SETTLE_DOUBT;
		hear(f, m);
		if (!known)
			assert_int_equal(sent(f, EXCHANGE_SETTLE)->settlement, SETTLE_UNKNOWN);
		else if (!whole)
			sent(f, EXCHANGE_ABORT);
		else if (i == 2)
			sent(f, EXCHANGE_ACK);
		else
			assert_int_equal(sent(f, EXCHANGE_SETTLE)->settlement, SETTLE_APPLIED);
	}
	settle(f, SETTLE_UNKNOWN);
	assert_int_equal(f->a.n_sends, 0);
	static const enum exchange_message_kind quiet[] = {
	        EXCHANGE_BUSY, EXCHANGE_ACK, EXCHANGE_ABORT};
	for (int i = 0; i < 3; i++) {
		say(f, quiet[i]);
		assert_int_equal(f->a.n_sends, 0);
	}
	static const enum exchange_message_kind early[] = {
	        EXCHANGE_ACCEPT, EXCHANGE_OPEN, EXCHANGE_END};
	for (int i = 0; i < 3; i++) {
		say(f, early[i]);
		if (known && whole)
			assert_int_equal(f->a.n_sends, 0);
		else
			assert_int_equal(sent(f, EXCHANGE_ABORT)->busy.why, EXCHANGE_UNKNOWN);
	}
}

static void test_memory(void **unused)
{
	(void)unused;
	struct fixture f;
	begin(&f);
	uint64_t n = EXCHANGE_REMEMBERED + 3;
	for (uint64_t i = 1; i <= n; i++)
		another(&f, i, i & 1);
	for (int busy = 0; busy < 2; busy++) { /* also while another is under way */
		if (busy) {
			f.number = 100;
			say(&f, EXCHANGE_OFFER);
		}
		f.dones = 0;
		for (uint64_t i = 1; i <= n + 1; i++)
			ask_about(&f, i, i > n - EXCHANGE_REMEMBERED && i <= n, i & 1);
		assert_int_equal(f.dones, 0);
		assert_int_equal(state(&f), busy ? EXCHANGE_PREPARING : EXCHANGE_IDLE);
	}
	event(&f, EXCHANGE_EVENT_STOP);
	f.peer = id(9); /* somebody else's numbers are their own */
	ask_about(&f, n, false, false);
	end(&f);
	/* A number does not come again while it is remembered. */
	begin(&f);
	another(&f, 5, true);
	say(&f, EXCHANGE_OFFER);
	assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_OTHER);
	end(&f);
}

/* ---- every message in every state */

/* What follows, by letter:
 *     .  nothing       P  preparing   R  busy          o  opens the connection
 *     C  COMMIT        A  apply       a  SETTLE{APPLIED}
 *     X  ABORT, bad    B  broken      b  ABORT, broken
 *     E  exchanged     e  ACK, exchanged              1  one-sided */
static void check(struct fixture *f, enum exchange_state s, char want, bool applied)
{
	static const struct {
		char letter;
		int sends, outcome; /* kind and outcome, or −1 */
	} t[] = {{'.', -1, -1}, {'P', -1, -1}, {'R', -1, OUTCOME_BUSY}, {'o', -1, -1},
	        {'C', EXCHANGE_COMMIT, -1}, {'A', -1, -1}, {'a', EXCHANGE_SETTLE, -1},
	        {'X', EXCHANGE_ABORT, OUTCOME_BAD}, {'B', -1, OUTCOME_BROKEN},
	        {'b', EXCHANGE_ABORT, OUTCOME_BROKEN}, {'E', -1, OUTCOME_EXCHANGED},
	        {'e', EXCHANGE_ACK, OUTCOME_EXCHANGED}, {'1', -1, OUTCOME_ONE_SIDED}};
	size_t i = 0;
	while (t[i].letter != want)
		assert_true(++i < sizeof t / sizeof *t);
	if (t[i].sends >= 0)
		sent(f, (enum exchange_message_kind)t[i].sends);
	else
		assert_int_equal(f->a.n_sends, 0);
	assert_int_equal(f->a.apply, want == 'A');
	assert_int_equal(f->a.open, want == 'o' || want == 'P');
	if (t[i].outcome >= 0)
		ended(f, (enum exchange_outcome)t[i].outcome, applied);
	else
		assert_false(f->a.done);
	if (want == '.' || want == 'o' || want == 'a')
		assert_int_equal(state(f), s);
}

/* Whatever was heard: left alone by the peer it comes to an end, once. */
static void run_out(struct fixture *f)
{
	for (int i = 0; state(f) != EXCHANGE_IDLE || exchange_unsettled(f->x) > 0; i++) {
		assert_true(i < 100);
		if (state(f) == EXCHANGE_APPLYING)
			event(f, EXCHANGE_EVENT_APPLIED);
		else
			until_timer(f);
	}
	assert_int_equal(f->dones, 1);
	assert_int_equal(f->a.result.moved, f->applies);
}

static void test_every_message(void **unused)
{
	(void)unused;
	enum { OURS = 1, THEIRS = 2, APPLIED = 4 };
	static const struct {
		enum exchange_state s;
		enum exchange_mode mode;
		int who;
		const char *follows; /* OFFER ACCEPT BUSY OPEN END COMMIT ACK ABORT, SETTLE 0 1 2,
		                        none */
	} t[] = {
	        {EXCHANGE_OFFERED, EXCHANGE_PAIR, OURS, "XPRXXXXBXXX."},
	        {EXCHANGE_PREPARING, EXCHANGE_PAIR, OURS, "XXXXXXXBbbX."},
	        {EXCHANGE_PREPARING, EXCHANGE_PAIR, THEIRS, "XXXoXXXBbbX."},
	        {EXCHANGE_MOVING, EXCHANGE_PAIR, OURS | THEIRS, "XXXX.XXBbbX."},
	        {EXCHANGE_ENDING, EXCHANGE_PAIR, OURS | THEIRS, "XXXXCXXBbbX."},
	        {EXCHANGE_COMMITTED, EXCHANGE_PAIR, OURS | THEIRS, ".....AAB1bA."},
	        {EXCHANGE_APPLYING, EXCHANGE_PAIR, OURS | THEIRS, "............"},
	        {EXCHANGE_ACKING, EXCHANGE_PAIR, OURS | THEIRS | APPLIED, "......E11ae."},
	        {EXCHANGE_UNSETTLED, EXCHANGE_PAIR, OURS | THEIRS, "......AB1bA."},
	        {EXCHANGE_UNSETTLED, EXCHANGE_PAIR, OURS | THEIRS | APPLIED, "......E11ae."},
	        {EXCHANGE_PREPARING, EXCHANGE_PUSH, OURS, "XXXXXXXBbbX."},
	        {EXCHANGE_PREPARING, EXCHANGE_PUSH, THEIRS, "XXXoXXXBbbX."},
	        {EXCHANGE_MOVING, EXCHANGE_PUSH, OURS, "XXXXXX.BbbX."},
	        {EXCHANGE_MOVING, EXCHANGE_PUSH, THEIRS, "XXXXXXXBbbX."},
	        {EXCHANGE_ENDING, EXCHANGE_PUSH, OURS, "XXXXXXEBbbX."},
	        {EXCHANGE_APPLYING, EXCHANGE_PUSH, THEIRS, "............"},
	        {EXCHANGE_MOVING, EXCHANGE_PULL, OURS, "XXXXXXXBbbX."},
	        {EXCHANGE_MOVING, EXCHANGE_PULL, THEIRS, "XXXXXX.BbbX."},
	        {EXCHANGE_ENDING, EXCHANGE_PULL, THEIRS, "XXXXXXEBbbX."},
	        {EXCHANGE_APPLYING, EXCHANGE_PULL, OURS, "............"},
	};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++)
		for (int ours = 0; ours < 2; ours++)
			for (int k = 0; k < 12; k++) {
				struct fixture f;
				bool applied = t[i].who & APPLIED;
				if (!(t[i].who & (ours ? OURS : THEIRS)))
					continue;
				reach(&f, t[i].s, ours, t[i].mode, applied);
				assert_int_equal(state(&f), t[i].s);
				if (k < EXCHANGE_SETTLE)
					say(&f, (enum exchange_message_kind)k);
				else if (k < 11)
					settle(&f, (enum exchange_settlement)(k - EXCHANGE_SETTLE));
				else
					say(&f, EXCHANGE_KINDS);
				check(&f, t[i].s, t[i].follows[k], applied);
				run_out(&f);
				end(&f);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_doubt),
	        cmocka_unit_test(test_both_in_doubt),
	        cmocka_unit_test(test_applied_and_alone),
	        cmocka_unit_test(test_one_sided),
	        cmocka_unit_test(test_another_peer_while_put_aside),
	        cmocka_unit_test(test_time_to_settle),
	        cmocka_unit_test(test_put_aside),
	        cmocka_unit_test(test_reason_of_an_abort_put_aside),
	        cmocka_unit_test(test_next_one),
	        cmocka_unit_test(test_many_aside),
	        cmocka_unit_test(test_overslept),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_every_message),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
