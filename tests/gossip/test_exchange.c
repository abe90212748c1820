/* SPDX-License-Identifier: MIT */
/* One machine fed by hand: each rule of an exchange up to COMMIT, from both sides. What comes after
 * is test_exchange_settle's, what many machines do under faults test_exchange_sim's. */
#include "tests/gossip/exchange_support.h"

#include <math.h>

/* ---- the way it goes */

static void test_pair_whole(void **unused)
{
	(void)unused;
	for (int ours = 0; ours < 2; ours++) {
		struct fixture f;
		reach(&f, EXCHANGE_PREPARING, ours, EXCHANGE_PAIR, false);
		assert_true(f.a.timer_ms == f.now + (ours ? 8000 : 9000));
		f.now += 100;
		event(&f, EXCHANGE_EVENT_SNAPSHOT);
		assert_false(f.a.move);
		bulk(&f, BULK_CAME);
		assert_true(f.a.move && f.a.sends && f.a.receives && f.a.format == 1);
		assert_true(f.a.exchange == f.number);
		assert_true(f.a.deadline_ms_left == (ours ? 7900 : 8900));
		moved(&f, 0);
		const struct exchange_message *m = sent(&f, EXCHANGE_END);
		assert_int_equal(m->end.n, GROUPS);
		assert_true(m->end.factor[1] == 0.5f);
		say(&f, EXCHANGE_END);
		sent(&f, EXCHANGE_COMMIT);
		assert_false(f.a.apply);
		say(&f, EXCHANGE_COMMIT);
		assert_true(f.a.apply && f.a.n_groups == GROUPS);
		assert_true(f.a.k[0] == 0.125f && f.a.k[1] == 0.25f && f.a.k[2] == 0.25f);
		assert_int_equal(f.a.n_sends, 0);
		event(&f, EXCHANGE_EVENT_APPLIED);
		sent(&f, EXCHANGE_ACK);
		assert_int_equal(state(&f), EXCHANGE_ACKING);
		say(&f, EXCHANGE_ACK);
		ended(&f, OUTCOME_EXCHANGED, true);
		assert_false(f.a.cancel);
		const struct exchange_result *r = &f.a.result;
		assert_true(r->ours == ours && r->bytes_sent == 10 && r->bytes_received == 20);
		assert_true(r->distance == 3 && r->factor == 0.25f && r->step == 77);
		assert_true(r->took_ms == 100 && r->deadline_ms == (ours ? 8000 : 9000));
		end(&f);
	}
}

/* Partners tell each other an estimate; whether the partner was chosen because it is far is for
 * the one to say who chose. */
static void test_words_for_the_guard(void **unused)
{
	(void)unused;
	for (int i = 0; i < 8; i++) {
		bool ours = i & 1, far = i & 2, theirs = i & 4;
		struct fixture f;
		struct exchange_terms t = terms(EXCHANGE_PAIR);
		struct exchange_event e = {.kind = EXCHANGE_EVENT_MOVED};
		struct exchange_message m = word(EXCHANGE_END);
		begin(&f);
		if (ours) {
			step(&f, (struct exchange_event){.kind = EXCHANGE_EVENT_START,
			                 .peer = f.peer,
			                 .start = {.ours = &t, .deadline_ms = 8000, .far = far}});
			f.number = f.a.send[0].message.exchange;
			say(&f, EXCHANGE_ACCEPT);
		} else {
			struct exchange_message offer = word(EXCHANGE_OFFER);
			f.number = offer.exchange = NUMBER;
			hear(&f, offer);
		}
		bulk(&f, BULK_CAME);
		event(&f, EXCHANGE_EVENT_SNAPSHOT);
		e.moved.n = GROUPS;
		e.moved.x2 = 3;
		e.moved.lr = 0.5f;
		step(&f, e);
		struct exchange_word said = sent(&f, EXCHANGE_END)->end.word;
		assert_true(said.x2 == 3 && said.lr == 0.5f);
		assert_int_equal(said.far, ours && far);
		m.end.word = (struct exchange_word){.x2 = 7, .lr = 0.25f, .far = theirs};
		hear(&f, m);
		say(&f, EXCHANGE_COMMIT);
		event(&f, EXCHANGE_EVENT_APPLIED);
		say(&f, EXCHANGE_ACK);
		ended(&f, OUTCOME_EXCHANGED, true);
		const struct exchange_word *heard = &f.a.result.word;
		assert_true(heard->x2 == 7 && heard->lr == 0.25f);
		assert_int_equal(heard->far, ours ? far : theirs);
		end(&f);
	}
}

/* A transfer breaks before anything has come. */
static void lose(struct fixture *f, bool again)
{
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_MOVED,
	                .moved = {.code = ERR_IO, .again = again, .bytes_sent = 10}});
}

/* A connection that was kept turns out broken: another one is opened by whoever opened the first,
 * within the deadline, and once. */
static void test_a_kept_connection_is_broken(void **unused)
{
	(void)unused;
	for (int ours = 0; ours < 2; ours++) {
		struct fixture f;
		reach(&f, EXCHANGE_MOVING, ours, EXCHANGE_PAIR, false);
		f.now += 100;
		lose(&f, true);
		assert_int_equal(state(&f), EXCHANGE_PREPARING);
		assert_true(f.a.open == ours && f.a.fresh == ours && f.a.n_sends == 0);
		assert_false(f.a.snapshot || f.a.cancel || f.a.done);
		assert_true(f.a.timer_ms == f.now + (ours ? 7900 : 8900));
		bulk(&f, BULK_CAME);
		assert_true(f.a.move && f.a.deadline_ms_left == (ours ? 7900 : 8900));
		if (ours) {
			moved(&f, 0);
			sent(&f, EXCHANGE_END);
			say(&f, EXCHANGE_END);
			say(&f, EXCHANGE_COMMIT);
			event(&f, EXCHANGE_EVENT_APPLIED);
			say(&f, EXCHANGE_ACK);
			ended(&f, OUTCOME_EXCHANGED, true);
			assert_true(f.a.result.bytes_sent == 20);
		} else {
			lose(&f, true);
			sent(&f, EXCHANGE_ABORT);
			ended(&f, OUTCOME_BROKEN, false);
		}
		end(&f);
	}
}

/* Where the peer has more of it than we, or nobody can dial, it is over; nobody is to blame. */
static void test_a_kept_connection_is_broken_for_one(void **unused)
{
	(void)unused;
	for (int how = 0; how < 5; how++) {
		struct fixture f;
		reach(&f, EXCHANGE_MOVING, how != 2,
		        how == 1 || how == 4 ? EXCHANGE_PUSH : EXCHANGE_PAIR, false);
		if (how == 0)
			say(&f, EXCHANGE_END);
		if (how == 4)
			say(&f, EXCHANGE_ACK);
		lose(&f, true);
		if (how == 1)
			say(&f, EXCHANGE_ACK);
		else if (how == 2)
			say(&f, EXCHANGE_END);
		else if (how == 3)
			bulk(&f, BULK_CANNOT_DIAL);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_BROKEN, false);
		end(&f);
	}
	struct fixture f;
	reach(&f, EXCHANGE_MOVING, true, EXCHANGE_PAIR, false);
	lose(&f, false); /* a fresh one */
	sent(&f, EXCHANGE_ABORT);
	ended(&f, OUTCOME_BROKEN, false);
	end(&f);
	/* It was the peer's to open, since we cannot dial; so is the next. */
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	bulk(&f, BULK_CANNOT_DIAL);
	sent(&f, EXCHANGE_OPEN);
	bulk(&f, BULK_CAME);
	event(&f, EXCHANGE_EVENT_SNAPSHOT);
	lose(&f, true);
	assert_false(f.a.open);
	bulk(&f, BULK_CAME);
	assert_true(f.a.move);
	end(&f);
}

/* Snapshot and connection are there when the time is up, and the timer has not been called yet: a
 * transfer without a deadline would be none that ends by itself. */
static void test_move_at_the_deadline(void **unused)
{
	(void)unused;
	struct fixture f;
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	event(&f, EXCHANGE_EVENT_SNAPSHOT);
	f.now = f.a.timer_ms;
	bulk(&f, BULK_CAME);
	assert_true(f.a.move && f.a.deadline_ms_left > 0);
	until_timer(&f);
	ended(&f, OUTCOME_TIMEOUT, false);
	end(&f);
	/* The connection comes in that millisecond, before the timer: 0 would be no deadline. */
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	event(&f, EXCHANGE_EVENT_SNAPSHOT);
	f.now += 8000;
	bulk(&f, BULK_CAME);
	assert_true(f.a.move);
	assert_int_equal(f.a.deadline_ms_left, 1);
	end(&f);
}

/* The peer was faster at each turn: END before our MOVED, ACK before our APPLIED. */
static void test_pair_late(void **unused)
{
	(void)unused;
	struct fixture f;
	reach(&f, EXCHANGE_MOVING, true, EXCHANGE_PAIR, false);
	say(&f, EXCHANGE_END);
	assert_int_equal(f.a.n_sends, 0);
	moved(&f, 0);
	assert_int_equal(f.a.n_sends, 2);
	assert_int_equal(f.a.send[0].message.kind, EXCHANGE_END);
	assert_int_equal(f.a.send[1].message.kind, EXCHANGE_COMMIT);
	say(&f, EXCHANGE_COMMIT);
	assert_true(f.a.apply);
	say(&f, EXCHANGE_ACK);
	assert_false(f.a.done);
	event(&f, EXCHANGE_EVENT_APPLIED);
	sent(&f, EXCHANGE_ACK);
	ended(&f, OUTCOME_EXCHANGED, true);
	end(&f);
}

static void test_one_way(void **unused)
{
	(void)unused;
	for (int i = 0; i < 4; i++) {
		bool ours = i & 1;
		enum exchange_mode mode = i & 2 ? EXCHANGE_PUSH : EXCHANGE_PULL;
		bool receives = (mode == EXCHANGE_PULL) == ours;
		struct fixture f;
		reach(&f, EXCHANGE_MOVING, ours, mode, false);
		assert_true(f.a.receives == receives && f.a.sends == !receives);
		moved(&f, 0);
		assert_int_equal(f.a.n_sends, 0);
		assert_int_equal(f.a.apply, receives);
		if (receives) {
			assert_true(f.a.k[0] == 0.5f && f.a.k[1] == 0.25f);
			event(&f, EXCHANGE_EVENT_DOWN);
			event(&f, EXCHANGE_EVENT_GONE);
			event(&f, EXCHANGE_EVENT_STOP);
			assert_int_equal(state(&f), EXCHANGE_APPLYING);
			event(&f, EXCHANGE_EVENT_APPLIED);
			sent(&f, EXCHANGE_ACK);
		} else {
			assert_true(f.a.timer_ms != UINT64_MAX);
			say(&f, EXCHANGE_ACK);
		}
		ended(&f, OUTCOME_EXCHANGED, receives);
		end(&f);
		if (receives)
			continue;
		reach(&f, EXCHANGE_MOVING, ours, mode, false);
		say(&f, EXCHANGE_ACK);
		assert_false(f.a.done);
		moved(&f, 0);
		ended(&f, OUTCOME_EXCHANGED, false);
		end(&f);
		reach(&f, EXCHANGE_ENDING, ours, mode, false);
		until_timer(&f);
		ended(&f, OUTCOME_TIMEOUT, false);
		end(&f);
	}
}

/* ---- offers and refusals */

static void begin_scaled(struct fixture *f)
{
	struct exchange_config c = {.self = id(5),
	        .manifest = like,
	        .n_groups = GROUPS,
	        .scaled = 4,
	        .plain = 1,
	        .seed = 1,
	        .offer_ms = 3000,
	        .hold_ms = EXCHANGE_HOLD_MS,
	        .settle_ms = 15000};
	begin(f);
	c.manifest.formats = 7;
	exchange_init(f->x, &c);
}

static void offer_with(struct fixture *f, struct exchange_terms t, struct exchange_terms ours)
{
	struct exchange_message m = {.kind = EXCHANGE_OFFER, .exchange = 99, .terms = t};
	f->number = 99;
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_RECEIVED,
	                .peer = f->peer,
	                .received = {.message = &m, .ours = &ours, .deadline_ms = 9000}});
}

static void start_with(struct fixture *f, struct exchange_terms t)
{
	step(f, (struct exchange_event){.kind = EXCHANGE_EVENT_START,
	                .peer = f->peer,
	                .start = {.ours = &t, .deadline_ms = 8000}});
	f->number = f->a.send[0].message.exchange;
}

static void test_accept_terms(void **unused)
{
	(void)unused;
	struct fixture f;
	struct exchange_terms t = terms(EXCHANGE_PULL);
	begin(&f);
	t.beta = 0.75f;
	t.final = true;
	t.format = 0;
	t.step = 5;
	offer(&f, t, EXCHANGE_WILLING);
	const struct exchange_terms *got = &sent(&f, EXCHANGE_ACCEPT)->terms;
	assert_true(got->beta == 0.75f && got->final && got->format == 0);
	assert_true(got->mode == EXCHANGE_PULL && got->step == 77);
	end(&f);
	/* And the one who offered takes no other terms than its own. */
	for (int i = 0; i < 5; i++) {
		struct exchange_message m = word(EXCHANGE_ACCEPT);
		m.terms.mode = i == 0 ? EXCHANGE_PUSH : EXCHANGE_PAIR;
		m.terms.format = i == 1 ? 0 : 1;
		m.terms.final = i == 2;
		m.terms.beta = i == 3 ? 0.6f : 0.5f;
		m.terms.manifest.model += i == 4;
		reach(&f, EXCHANGE_OFFERED, true, EXCHANGE_PAIR, false);
		hear(&f, m);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, i == 4 ? OUTCOME_UNLIKE : OUTCOME_BAD, false);
		end(&f);
	}
}

/* A format that needs scales: both must have them, and as many; else the plain format is agreed on,
 * and no scales are told. */
static void test_scales_agreed(void **unused)
{
	(void)unused;
	struct fixture f;
	for (int i = 0; i < 6; i++) {
		struct exchange_terms t = terms(EXCHANGE_PAIR), ours = t;
		int n = i == 0 ? 2 : i == 5 ? 1 : 0;
		begin_scaled(&f);
		t.manifest.formats = i == 3 ? 1 | 4 : 7; /* 3: the plain one is not common */
		t.format = 2;
		t.n_scales = 2;
		t.scales[0] = 11;
		ours.n_scales = i == 1 ? 0 : i == 2 ? 3 : 2;
		ours.scales[1] = 12;
		if (i == 3)
			ours.n_scales = 0;
		if (i == 4)
			t.n_scales = ours.n_scales = 0;
		if (i == 5)
			t.n_scales = ours.n_scales = 1;
		offer_with(&f, t, ours);
		const struct exchange_terms *got = &sent(&f, EXCHANGE_ACCEPT)->terms;
		assert_true(f.a.snapshot);
		assert_int_equal(got->format, n > 0 ? 2 : i == 3 ? 0 : 1);
		assert_int_equal(f.a.format, got->format);
		assert_int_equal(got->n_scales, n);
		assert_true((f.a.scales != NULL) == (n > 0));
		if (i == 0)
			assert_true(f.a.scales[0] == 11 && got->scales[1] == 12);
		end(&f);
	}
	/* Where no other is common there is no exchange. */
	for (int i = 0; i < 2; i++) {
		struct exchange_terms t = terms(EXCHANGE_PAIR), ours = t;
		begin_scaled(&f);
		t.manifest.formats = i == 0 ? 4 : 4 | 8;
		t.format = 2;
		t.n_scales = 2;
		offer_with(&f, t, ours);
		assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_UNKNOWN);
		assert_int_equal(state(&f), EXCHANGE_IDLE);
		end(&f);
	}
	/* The one who offers takes the plain format instead, but not other scales or formats: fp32
	 * only from who has no better plain one. */
	for (int i = 0; i < 7; i++) {
		struct exchange_message m = word(EXCHANGE_ACCEPT);
		struct exchange_terms t = terms(EXCHANGE_PAIR);
		begin_scaled(&f);
		t.manifest.formats = m.terms.manifest.formats = 7;
		t.format = 2;
		t.n_scales = 2;
		start_with(&f, t);
		m.terms.format = i == 0 ? 1 : i == 1 || i == 6 ? 0 : i == 2 ? 3 : 2;
		m.terms.n_scales = i == 3 ? 2 : i == 4 ? 3 : 0;
		m.terms.scales[1] = 9;
		if (i == 6)
			m.terms.manifest.formats = 1 | 4;
		hear(&f, m);
		bool good = i == 0 || i == 3 || i == 6;
		assert_int_equal(state(&f), good ? EXCHANGE_PREPARING : EXCHANGE_IDLE);
		if (good) {
			assert_int_equal(f.a.format, m.terms.format);
			assert_true((f.a.scales != NULL) == (i == 3));
		} else
			ended(&f, OUTCOME_BAD, false);
		end(&f);
	}
}

/* In a merge round the plain format is the most exact one: bf16 would hide what is left. */
static void test_merge_rounds_are_not_rounded(void **unused)
{
	(void)unused;
	struct fixture f;
	struct exchange_terms t = terms(EXCHANGE_PAIR), ours = t;
	begin_scaled(&f);
	t.manifest.formats = 7;
	t.format = 2;
	t.n_scales = 2;
	t.final = true;
	offer_with(&f, t, ours);
	assert_int_equal(sent(&f, EXCHANGE_ACCEPT)->terms.format, 0);
	end(&f);
	for (uint8_t format = 0; format < 2; format++) {
		struct exchange_message m = word(EXCHANGE_ACCEPT);
		begin_scaled(&f);
		start_with(&f, t);
		m.terms.manifest.formats = 7;
		m.terms.format = format;
		m.terms.final = true;
		hear(&f, m);
		assert_int_equal(state(&f), format == 0 ? EXCHANGE_PREPARING : EXCHANGE_IDLE);
		end(&f);
	}
}

static void test_refusals(void **unused)
{
	(void)unused;
	struct fixture f;
	begin(&f);
	offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_BUDGET);
	const struct exchange_message *m = sent(&f, EXCHANGE_BUSY);
	assert_int_equal(m->busy.why, EXCHANGE_BUDGET);
	assert_string_equal(m->busy.words, "so it is");
	struct exchange_terms t = terms(EXCHANGE_PAIR);
	t.format = 2;
	offer(&f, t, EXCHANGE_WILLING);
	assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_UNKNOWN);
	t = terms(EXCHANGE_MODES);
	offer(&f, t, EXCHANGE_WILLING);
	assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_UNKNOWN);
	const float beta[] = {0, -1, 1.5f, NAN, INFINITY};
	for (size_t i = 0; i < sizeof beta / sizeof *beta; i++) {
		t = terms(EXCHANGE_PAIR);
		t.beta = beta[i];
		offer(&f, t, EXCHANGE_WILLING);
		assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_OTHER);
	}
	offer(&f, t, EXCHANGE_BUDGET); /* what it would be refused for later is not told */
	assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_OTHER);
	assert_int_equal(f.dones, 0);
	assert_int_equal(state(&f), EXCHANGE_IDLE);
	end(&f);
	/* One at a time. */
	for (int s = EXCHANGE_OFFERED; s < EXCHANGE_STATES; s++) {
		reach(&f, (enum exchange_state)s, true, EXCHANGE_PAIR, false);
		f.peer = id(8);
		offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_WILLING);
		assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_ENGAGED);
		assert_int_equal(state(&f), s);
		assert_false(f.a.done);
		end(&f);
	}
	/* From the other side. */
	for (int why = 0; why <= EXCHANGE_WHYS; why++) {
		struct exchange_message b = {.kind = EXCHANGE_BUSY};
		b.busy.why = (uint8_t)why;
		memset(b.busy.words, 'w', sizeof b.busy.words); /* without an end */
		reach(&f, EXCHANGE_OFFERED, true, EXCHANGE_PAIR, false);
		b.busy.manifest = like; /* so it is not unlike, whatever it says */
		hear(&f, b);
		ended(&f, OUTCOME_BUSY, false);
		bool other =
		        why == EXCHANGE_WILLING || why == EXCHANGE_WHYS || why == EXCHANGE_UNLIKE;
		assert_int_equal(f.a.result.why, other ? EXCHANGE_OTHER : why);
		assert_int_equal(strlen(f.a.result.words), EXCHANGE_WORDS_MAX);
		end(&f);
	}
}

static void test_crossing(void **unused)
{
	(void)unused;
	struct fixture f;
	begin(&f); /* we are the lower: not a word */
	start(&f, EXCHANGE_PAIR);
	uint64_t own = f.number;
	offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_WILLING);
	assert_true(f.a.n_sends == 0 && !f.a.done && !f.a.snapshot);
	f.number = own;
	say(&f, EXCHANGE_ACCEPT);
	assert_int_equal(state(&f), EXCHANGE_PREPARING);
	end(&f);
	begin(&f); /* the peer is: ours goes, theirs is taken */
	f.peer = id(3);
	start(&f, EXCHANGE_PAIR);
	own = f.number;
	offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_WILLING);
	sent(&f, EXCHANGE_ACCEPT);
	assert_true(f.a.done && f.a.snapshot && !f.a.open && f.a.exchange == NUMBER);
	assert_true(f.a.result.exchange == own && f.a.result.ours);
	assert_int_equal(f.a.result.outcome, OUTCOME_CROSSED);
	assert_false(f.a.cancel);
	assert_int_equal(state(&f), EXCHANGE_PREPARING);
	end(&f);
	begin(&f); /* or refused, and ours is still over: the peer ignores it */
	f.peer = id(3);
	start(&f, EXCHANGE_PAIR);
	offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_RATE);
	assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_RATE);
	assert_int_equal(f.a.result.outcome, OUTCOME_CROSSED);
	assert_int_equal(state(&f), EXCHANGE_IDLE);
	end(&f);
}

/* ---- what goes wrong before COMMIT: nothing has moved */

static void test_connection(void **unused)
{
	(void)unused;
	struct fixture f;
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	bulk(&f, BULK_CANNOT_DIAL);
	sent(&f, EXCHANGE_OPEN);
	assert_int_equal(state(&f), EXCHANGE_PREPARING);
	bulk(&f, BULK_CAME); /* the peer's */
	event(&f, EXCHANGE_EVENT_SNAPSHOT);
	assert_true(f.a.move);
	end(&f);
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	bulk(&f, BULK_CANNOT_DIAL);
	bulk(&f, BULK_CANNOT_DIAL);
	ended(&f, OUTCOME_BROKEN, false);
	end(&f);
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	say(&f, EXCHANGE_OPEN); /* who offers opens: nobody has to ask for that */
	assert_false(f.a.open);
	ended(&f, OUTCOME_BAD, false);
	end(&f);
	reach(&f, EXCHANGE_PREPARING, false, EXCHANGE_PAIR, false);
	say(&f, EXCHANGE_OPEN);
	say(&f, EXCHANGE_OPEN); /* twice */
	assert_false(f.a.open);
	ended(&f, OUTCOME_BAD, false);
	end(&f);
	reach(&f, EXCHANGE_PREPARING, false, EXCHANGE_PAIR, false);
	assert_false(f.a.open);
	say(&f, EXCHANGE_OPEN);
	assert_true(f.a.open && f.a.exchange == f.number);
	bulk(&f, BULK_CANNOT_DIAL);
	sent(&f, EXCHANGE_ABORT);
	ended(&f, OUTCOME_BROKEN, false);
	assert_true(f.a.cancel);
	end(&f);
	reach(&f, EXCHANGE_PREPARING, true, EXCHANGE_PAIR, false);
	f.number++; /* a late one of another exchange */
	bulk(&f, BULK_CAME);
	bulk(&f, BULK_FAILED);
	f.number--;
	event(&f, EXCHANGE_EVENT_SNAPSHOT);
	assert_true(!f.a.move && state(&f) == EXCHANGE_PREPARING);
	bulk(&f, BULK_FAILED);
	sent(&f, EXCHANGE_ABORT);
	ended(&f, OUTCOME_BROKEN, false);
	end(&f);
}

static void test_transfer_fails(void **unused)
{
	(void)unused;
	static const struct {
		int code;
		enum exchange_outcome outcome;
	} t[] = {{ERR_TIMEOUT, OUTCOME_TIMEOUT}, {ERR_NONFINITE, OUTCOME_BAD},
	        {ERR_FORMAT, OUTCOME_BAD}, {ERR_MISMATCH, OUTCOME_BAD}, {ERR_IO, OUTCOME_BROKEN},
	        {ERR_CANCELLED, OUTCOME_BROKEN}};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++)
		for (int mode = 0; mode < EXCHANGE_MODES; mode++) {
			struct fixture f;
			reach(&f, EXCHANGE_MOVING, i & 1, (enum exchange_mode)mode, false);
			if (mode == EXCHANGE_PAIR && i & 2)
				say(&f, EXCHANGE_END);
			moved(&f, t[i].code);
			sent(&f, EXCHANGE_ABORT);
			ended(&f, t[i].outcome, false);
			assert_int_equal(f.a.result.code, t[i].code);
			assert_int_equal(f.a.result.bytes_sent, 10);
			end(&f);
		}
}

/* Factors that are none come neither in from a peer nor out of our own clipping. */
static void test_factors(void **unused)
{
	(void)unused;
	const float wrong[] = {-0.1f, 1.1f, NAN, INFINITY, -INFINITY};
	for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
		struct fixture f;
		struct exchange_message m = word(EXCHANGE_END);
		struct exchange_event e = {.kind = EXCHANGE_EVENT_MOVED, .moved.n = GROUPS};
		if (i < sizeof wrong / sizeof *wrong)
			m.end.factor[2] = e.moved.factor[1] = wrong[i];
		else
			m.end.n = e.moved.n = GROUPS - 1;
		reach(&f, EXCHANGE_ENDING, true, EXCHANGE_PAIR, false);
		hear(&f, m);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_BAD, false);
		end(&f);
		reach(&f, EXCHANGE_MOVING, true, EXCHANGE_PAIR, false);
		step(&f, e);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_BAD, false);
		end(&f);
	}
}

/* Each way to end it, in each state before COMMIT. */
static void test_given_up(void **unused)
{
	(void)unused;
	for (int i = 0; i < 2 * EXCHANGE_ENDING; i++) {
		enum exchange_state s = (enum exchange_state)(EXCHANGE_OFFERED + i / 2);
		bool ours = i & 1;
		bool cancels = s == EXCHANGE_PREPARING || s == EXCHANGE_MOVING;
		struct fixture f;
		if (s == EXCHANGE_OFFERED && !ours)
			continue;
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		event(&f, EXCHANGE_EVENT_TIMER); /* too early */
		assert_int_equal(state(&f), s);
		until_timer(&f);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_TIMEOUT, false);
		assert_int_equal(f.a.cancel, cancels);
		assert_int_equal(f.now, s == EXCHANGE_OFFERED ? 4000 : ours ? 9000 : 10000);
		end(&f);
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		event(&f, EXCHANGE_EVENT_UP);
		f.peer = id(9); /* not the peer of this exchange */
		event(&f, EXCHANGE_EVENT_DOWN);
		event(&f, EXCHANGE_EVENT_GONE);
		assert_int_equal(state(&f), s);
		f.peer = id(7);
		event(&f, EXCHANGE_EVENT_DOWN);
		sent(&f, EXCHANGE_ABORT);
		ended(&f, OUTCOME_BROKEN, false);
		assert_int_equal(f.a.result.code, 0); /* no error of ours */
		end(&f);
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		event(&f, EXCHANGE_EVENT_GONE);
		assert_int_equal(f.a.n_sends, 0);
		ended(&f, OUTCOME_BROKEN, false);
		assert_int_equal(f.a.result.code, 0);
		assert_int_equal(f.a.cancel, cancels);
		end(&f);
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		event(&f, EXCHANGE_EVENT_STOP);
		assert_int_equal(sent(&f, EXCHANGE_ABORT)->busy.why, EXCHANGE_LEAVING);
		ended(&f, OUTCOME_CANCELLED, false);
		/* And no more. */
		offer(&f, terms(EXCHANGE_PAIR), EXCHANGE_WILLING);
		assert_int_equal(sent(&f, EXCHANGE_BUSY)->busy.why, EXCHANGE_LEAVING);
		start(&f, EXCHANGE_PAIR);
		assert_true(f.a.done && f.a.n_sends == 0 && state(&f) == EXCHANGE_IDLE);
		assert_int_equal(f.a.result.outcome, OUTCOME_BUSY);
		assert_int_equal(f.a.result.why, EXCHANGE_LEAVING);
		end(&f);
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		struct exchange_message m = {.kind = EXCHANGE_ABORT};
		m.busy.why = EXCHANGE_UNKNOWN;
		hear(&f, m);
		assert_int_equal(f.a.n_sends, 0);
		ended(&f, OUTCOME_BROKEN, false);
		assert_int_equal(f.a.result.why, EXCHANGE_UNKNOWN);
		end(&f);
		reach(&f, s, ours, EXCHANGE_PAIR, false);
		m.busy.why = EXCHANGE_WHYS; /* of a newer version */
		hear(&f, m);
		assert_int_equal(f.a.result.why, EXCHANGE_OTHER);
		end(&f);
	}
}

/* Deadlines at the end of time do not come round, and numbers are of one's own. */
static void test_numbers(void **unused)
{
	(void)unused;
	struct fixture f, g;
	struct exchange_terms t = terms(EXCHANGE_PAIR);
	begin(&f);
	step(&f, (struct exchange_event){.kind = EXCHANGE_EVENT_START,
	                 .peer = f.peer,
	                 .start = {.ours = &t, .deadline_ms = UINT64_MAX}});
	f.number = f.a.send[0].message.exchange;
	say(&f, EXCHANGE_ACCEPT);
	assert_true(f.a.timer_ms == UINT64_MAX);
	begin(&g);
	start(&g, EXCHANGE_PAIR);
	assert_true(g.number == f.number && g.number != 0); /* same seed, same choices */
	event(&g, EXCHANGE_EVENT_DOWN);
	start(&g, EXCHANGE_PAIR);
	assert_true(g.number != f.number && g.number != 0);
	end(&f);
	end(&g);
}

static void test_texts(void **unused)
{
	(void)unused;
	assert_string_equal(exchange_why_text(EXCHANGE_ENGAGED), "engaged");
	assert_string_equal(exchange_why_text((enum exchange_why)99), "other");
	assert_string_equal(exchange_outcome_text(OUTCOME_ONE_SIDED), "one-sided");
	assert_string_equal(exchange_outcome_text(OUTCOMES), "unknown");
	assert_string_equal(exchange_state_text(EXCHANGE_STATES), "unknown");
	assert_string_equal(exchange_why_text(EXCHANGE_WHYS), "other");
	for (int i = 0; i < EXCHANGE_WHYS; i++)
		assert_true(strlen(exchange_why_text((enum exchange_why)i)) > 3);
	for (int i = 0; i < OUTCOMES; i++)
		assert_true(strlen(exchange_outcome_text((enum exchange_outcome)i)) >= 3);
	for (int i = 0; i < EXCHANGE_STATES; i++)
		assert_true(strlen(exchange_state_text((enum exchange_state)i)) > 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_pair_whole),
	        cmocka_unit_test(test_words_for_the_guard),
	        cmocka_unit_test(test_a_kept_connection_is_broken),
	        cmocka_unit_test(test_a_kept_connection_is_broken_for_one),
	        cmocka_unit_test(test_move_at_the_deadline),
	        cmocka_unit_test(test_pair_late),
	        cmocka_unit_test(test_one_way),
	        cmocka_unit_test(test_accept_terms),
	        cmocka_unit_test(test_scales_agreed),
	        cmocka_unit_test(test_merge_rounds_are_not_rounded),
	        cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_crossing),
	        cmocka_unit_test(test_connection),
	        cmocka_unit_test(test_transfer_fails),
	        cmocka_unit_test(test_factors),
	        cmocka_unit_test(test_given_up),
	        cmocka_unit_test(test_numbers),
	        cmocka_unit_test(test_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
