/* SPDX-License-Identifier: MIT */
/* Exchanges as the flock makes them: what is sent to whom and when, which connection and which
 * transfer is whose, what is paid, counted and tried again. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;
static int n_peers;
static uint64_t numbers;
static struct sketch told_place; /* of whoever offers */

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static void open_with(uint32_t every, int peers)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.stale = 10; /* of the run: never */
	c.gate.every_samples = every * UINT64_C(32);
	c.format = 1;
	n_peers = peers;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, peers);
}

static int did(uint8_t kind)
{
	int n = 0;
	for (int i = 0; i < b.a->n_actions; i++)
		n += b.a->action[i].kind == kind;
	return n;
}

static void say(int from, uint8_t kind, uint64_t number)
{
	struct exchange_message m = {.kind = kind, .exchange = number};
	if (kind == EXCHANGE_END) {
		m.end.n = b.c.n_groups;
		for (int g = 0; g < b.c.n_groups; g++)
			m.end.factor[g] = 1;
	}
	if (kind == EXCHANGE_BUSY) {
		m.busy.why = EXCHANGE_ENGAGED;
		m.busy.manifest = b.c.manifest;
	}
	bed_hear(&b, from, &m);
}

static void bulk(int with, uint64_t number, uint8_t how)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(with), .exchange = number};
	e.bulk = how;
	bed_step(&b, e);
}

static void transferred(uint64_t number, int code, uint64_t sent)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .exchange = number, .code = code};
	e.transferred.use = USE_EXCHANGE;
	e.transferred.received = code ? 0 : BED_COUNT;
	e.transferred.bytes_sent = sent;
	e.transferred.bytes_received = 900;
	bed_step(&b, e);
}

/* Its parameters are that far from ours. */
static void measured(double distance)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	static double aside;
	struct sketch at = bed_place(10, aside += 0.01);
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = true;
	e.measured.distance2[0] = 0.36 * distance * distance;
	e.measured.distance2[1] = 0.64 * distance * distance;
	e.measured.sketch = &at;
	bed_step(&b, e);
}

/* From the snapshots on, until we have moved. */
static void applied(int with, uint64_t number, double distance)
{
	transferred(number, 0, 1000);
	assert_int_equal(did(FLOCK_DO_MEASURE), 1);
	assert_int_equal(bed_did(&b, FLOCK_DO_MEASURE)->slot, SLOT_STAGING);
	measured(distance);
	assert_non_null(bed_sent(&b, EXCHANGE_END));
	if (bed_view(&b).guards && b.step > 0) /* the learning rate of the last step goes along */
		assert_true(bed_sent(&b, EXCHANGE_END)->end.word.lr == 0.1f);
	say(with, EXCHANGE_END, number);
	assert_non_null(bed_sent(&b, EXCHANGE_COMMIT));
	say(with, EXCHANGE_COMMIT, number);
	assert_int_equal(did(FLOCK_DO_APPLY), 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
}

/* To the end. */
static void whole(int with, uint64_t number, double distance)
{
	applied(with, number, distance);
	say(with, EXCHANGE_ACK, number);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

/* They offer, and the transfer begins. */
static uint64_t theirs(int from)
{
	struct exchange_message m = bed_offer(&b, ++numbers);
	m.terms.clock = 0;
	sketch_pack(&told_place, m.terms.sketch);
	bed_hear(&b, from, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	bulk(from, numbers, BULK_CAME);
	const struct flock_action *t = bed_did(&b, FLOCK_DO_TRANSFER);
	assert_non_null(t);
	assert_int_equal(t->use, USE_EXCHANGE);
	assert_true(t->transfer.sends && t->transfer.receives && t->transfer.deadline_ms > 0);
	return numbers;
}

/* How many own steps, one each 50 ms, it takes until we offer; to whom, and its number. */
static int steps_to_offer(int most, int *to, uint64_t *number)
{
	for (int k = 1; k <= most; k++) {
		for (int i = 1; i <= n_peers; i++)
			bed_record(&b, i, 320, 1);
		bed_pass(&b, 50);
		bed_train(&b, 1, 0.1);
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_OFFER) {
				*to = b.a->send[i].to.bytes[0] - 0x10;
				*number = b.a->send[i].message.exchange;
				return k;
			}
	}
	return 0;
}

static void accept(int from, uint64_t number)
{
	struct exchange_message m = *bed_sent(&b, EXCHANGE_OFFER);
	m.kind = EXCHANGE_ACCEPT;
	m.exchange = number;
	bed_hear(&b, from, &m);
}

/* How many that peer may begin at once, by asking for our state: the first takes the place. */
static int may_begin(int from)
{
	struct exchange_message m = {.kind = EXCHANGE_FETCH};
	m.fetch.manifest = b.c.manifest;
	for (int n = 0;; n++) {
		m.exchange = ++numbers;
		bed_hear(&b, from, &m);
		if (bed_did(&b, FLOCK_DO_TAKE_STATE)) {
			struct flock_event e = {.kind = FLOCK_EVENT_STATE};
			e.state = (struct flock_state){.step = 10, .vectors = 2};
			bed_step(&b, e);
			continue;
		}
		assert_true(n < 2000);
		const struct exchange_message *busy = bed_sent(&b, EXCHANGE_BUSY);
		if (busy && busy->busy.why == EXCHANGE_RATE)
			return n;
	}
}

/* So many own steps each 50 ms, for a second. */
static void train_fast(int steps)
{
	for (int k = 0; k < 20; k++) {
		bed_train(&b, steps, 0.1);
		bed_pass(&b, 50);
	}
}

/* A peer may begin as many a second as we make steps, between bounds, or as many as is stated. */
static void test_as_many_as_steps(void **state)
{
	static const struct {
		int steps;
		double stated;
		int least, most;
	} row[] = {{1, 0, 50, 50}, {20, 0, 380, 420}, {200, 0, 1000, 1000}, {20, 7, 7, 7}};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct flock_config c = bed_config();
		c.rate_cap = 1e12;
		c.stale = 10;
		c.peer_rate = row[i].stated;
		bed_open(&b, &c);
		bed_train_with(&b, 2);
		bed_train(&b, 1, 0.1);
		assert_int_equal(may_begin(1), c.peer_rate > 0 ? 7 : 50);
		train_fast(row[i].steps);
		train_fast(row[i].steps);
		assert_in_range(may_begin(1), row[i].least, row[i].most);
		bed_close(&b);
	}
	open_with(40, 2);
}

/* What was refused is tried again after about an own step. */
static void test_sooner_with_short_steps(void **state)
{
	(void)state;
	open_with(2000, 2);
	train_fast(39); /* 780 steps a second */
	for (int k = 0; k < 4000 && !bed_sent(&b, EXCHANGE_OFFER); k++)
		bed_train(&b, 1, 0.1);
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	say(b.a->send[0].to.bytes[0] - 0x10, EXCHANGE_BUSY, bed_sent(&b, EXCHANGE_OFFER)->exchange);
	b.now_ms += 5;
	bed_train(&b, 1, 0.1);
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
}

/* Own steps until the merge: from our offer, or from taking theirs, and from the snapshot, which
 * the bed takes at once. */
static void test_delays(void **state)
{
	static const int after_offer[] = {1, 5, 2}, after_snapshot[] = {4, 0, 7};
	struct flock_event applied = {.kind = FLOCK_EVENT_APPLIED};
	int to = 1;
	uint64_t number;
	(void)state;
	open_with(40, 2);
	assert_false(bed_view(&b).timed);
	for (int i = 0; i < 3; i++) {
		if (i == 1) {
			number = theirs(to);
		} else {
			assert_true(steps_to_offer(60, &to, &number) > 0);
			struct exchange_message m = *bed_sent(&b, EXCHANGE_OFFER);
			bed_train(&b, after_offer[i], 0.1);
			m.kind = EXCHANGE_ACCEPT;
			bed_hear(&b, to, &m);
			bulk(to, number, BULK_CAME);
		}
		bed_train(&b, after_snapshot[i], 0.1);
		transferred(number, 0, 1000);
		measured(0.1);
		say(to, EXCHANGE_END, number);
		say(to, EXCHANGE_COMMIT, number);
		applied.applied_step = b.step;
		bed_train(&b, 3, 0.1); /* told later: no matter */
		bed_step(&b, applied);
		say(to, EXCHANGE_ACK, number);
		struct flock_view v = bed_view(&b);
		const struct exchange_result *r = &v.recent[v.n_recent - 1];
		assert_true(r->timed && r->delay == (uint64_t)after_snapshot[i]);
		assert_int_equal(
		        r->delay_decided, after_snapshot[i] + (i == 1 ? 0 : after_offer[i]));
		assert_true(v.timed && v.delay == (i == 1 ? 2 : 4));
		assert_true(v.delay_decided == (i == 1 ? 2.5 : 5));
		bed_pass(&b, 1000);
	}
	/* One that has not moved us says nothing. */
	number = theirs(1);
	say(1, EXCHANGE_ABORT, number);
	transferred(number, ERR_CANCELLED, 100);
	struct flock_view v = bed_view(&b);
	assert_false(v.recent[v.n_recent - 1].timed);
	assert_true(v.timed && v.delay == 4);
}

/* A kept connection breaks before anything has come: the core asks for a fresh one, and what was
 * paid counts. */
static void test_a_kept_connection_breaks(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .code = ERR_IO};
	int to;
	(void)state;
	open_with(40, 2);
	assert_true(steps_to_offer(60, &to, &e.exchange) > 0);
	accept(to, e.exchange);
	assert_false(bed_did(&b, FLOCK_DO_OPEN)->fresh);
	bulk(to, e.exchange, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
	e.transferred.use = USE_EXCHANGE;
	e.transferred.again = true;
	e.transferred.bytes_sent = 300;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_OPEN), 1);
	assert_true(bed_did(&b, FLOCK_DO_OPEN)->fresh);
	assert_int_equal(b.a->n_sends, 0);
	bulk(to, e.exchange, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
	whole(to, e.exchange, 0.1);
	assert_true(bed_view(&b).counts.bytes_sent == 1300);
}

/* ---- ours */

static void test_offer_of_ours(void **state)
{
	int to;
	uint64_t number;
	(void)state;
	open_with(40, 2);
	assert_int_equal(steps_to_offer(60, &to, &number), 40);
	const struct exchange_terms t = bed_sent(&b, EXCHANGE_OFFER)->terms;
	assert_int_equal(t.step, 40);
	assert_true(!t.final && t.format == b.c.format && t.mode == b.c.mode);
	accept(to, number);
	assert_int_equal(did(FLOCK_DO_OPEN), 1);
	assert_int_equal(did(FLOCK_DO_SNAPSHOT), 1);
	bulk(to, number, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
	whole(to, number, 0.5);
	struct flock_view v = bed_view(&b);
	assert_int_equal(v.counts.begun, 1);
	assert_int_equal(v.counts.taken, 0);
	assert_int_equal(v.counts.clipped, 0);
	assert_int_equal(v.counts.by_outcome[OUTCOME_EXCHANGED], 1);
	assert_int_equal(v.exchanged_ms, b.now_ms);
	assert_int_equal(v.n_recent, 1);
	assert_int_equal(v.recent[0].step, 40);
	assert_true(v.has_distance && fabs(v.distance - 0.5) < 1e-9);
	assert_true(fabs(v.distance_rms - 0.5) < 1e-6);
	assert_int_equal(v.counts.bytes_sent, 1000);
	assert_int_equal(v.counts.bytes_received, 900);
	/* And the next after as many steps again. */
	assert_int_equal(steps_to_offer(60, &to, &number), 40);
}

/* One that has exchanged, whoever began, has a part in the run: strangers do not end it. */
static void test_no_newcomer_after_an_exchange(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY};
	uint64_t number;
	int to;
	(void)state;
	open_with(5, 1);
	assert_int_equal(steps_to_offer(10, &to, &number), 5);
	accept(to, number);
	bulk(to, number, BULK_CAME);
	whole(to, number, 0.5);
	whole(1, theirs(1), 0.5);
	assert_int_equal(bed_view(&b).counts.begun, 1);
	assert_int_equal(bed_view(&b).counts.taken, 1);
	assert_true(bed_view(&b).samples < b.c.fresh);
	bed_word(&b, 1, 320, 1, true);
	m.busy.why = EXCHANGE_UNLIKE;
	b.c.manifest.model++;
	m.busy.manifest = b.c.manifest;
	for (int i = 2; i <= 3; i++) {
		bed_record(&b, i, 320, 1);
		m.exchange = ++numbers;
		bed_hear(&b, i, &m);
	}
	bed_pass(&b, 500);
	assert_int_equal(bed_view(&b).unlike, 2);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
}

/* What could not be sent counts as a lost connection, if it is of the exchange under way. */
static void test_offer_that_was_not_sent(void **state)
{
	int to;
	uint64_t number;
	struct flock_event e = {.kind = FLOCK_EVENT_UNSENT};
	(void)state;
	open_with(40, 1);
	assert_int_equal(steps_to_offer(60, &to, &number), 40);
	e.peer = bed_id(to);
	e.exchange = number + 2;
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_OFFERED);
	e.exchange = number;
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	assert_int_equal(bed_view(&b).counts.by_outcome[OUTCOME_BROKEN], 1);
}

/* What came to nothing is wanted still, and soon. */
static void test_refused_offer_is_owed(void **state)
{
	int to;
	uint64_t number;
	(void)state;
	open_with(40, 1);
	assert_int_equal(steps_to_offer(60, &to, &number), 40);
	say(to, EXCHANGE_BUSY, number);
	int again = steps_to_offer(60, &to, &number);
	assert_in_range(again, 1, 20);
	assert_int_equal(bed_view(&b).counts.by_outcome[OUTCOME_BUSY], 1);
	assert_int_equal(bed_view(&b).counts.begun, 0);
}

/* A want of ours while a peer's exchange goes on waits for its end; that one pays for it. */
static void test_want_while_engaged_is_owed(void **state)
{
	int to;
	uint64_t number;
	(void)state;
	open_with(40, 2);
	assert_int_equal(steps_to_offer(35, &to, &number), 0);
	uint64_t other = theirs(1);
	bed_train(&b, 10, 0.1);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_MOVING);
	say(1, EXCHANGE_ABORT, other);
	transferred(other, ERR_CANCELLED, 100);
	assert_in_range(steps_to_offer(30, &to, &number), 1, 10);
}

/* With nobody free there is no offer; and the entry of that decision stays untried, also when merge
 * rounds, which are no decision of the gate's, are offered later. */
static void test_entry_of_a_want_without_a_partner(void **state)
{
	int to;
	uint64_t number;
	(void)state;
	open_with(5, 1);
	assert_int_equal(steps_to_offer(10, &to, &number), 5);
	say(to, EXCHANGE_ABORT, number); /* the peer is left alone for half a second at least */
	assert_int_equal(steps_to_offer(8, &to, &number), 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	for (int k = 0; k < 40 && !bed_sent(&b, EXCHANGE_OFFER); k++) {
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 50);
	}
	assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
	assert_true(bed_sent(&b, EXCHANGE_OFFER)->terms.final);
	int tried = 0;
	const struct ledger *l = bed_view(&b).ledger;
	for (uint32_t i = 0; i < ledger_count(l); i++)
		tried += ledger_get(l, i)->tried;
	assert_int_equal(tried, 1);
}

/* What its guard wants of an agent that nobody can be met by is not asked at each step. */
static void test_guard_of_one_that_is_alone(void **state)
{
	int to;
	uint64_t number;
	struct flock_config c = bed_config();
	(void)state;
	c.rate_cap = 1e12;
	c.guard = c.alone = true;
	bed_open(&b, &c);
	bed_pass(&b, 1500);
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_train(&b, 100, 0.1);
	assert_int_equal(gate_view(bed_view(&b).gate, b.now_ms).communicating, 0);
	assert_int_equal(ledger_count(bed_view(&b).ledger), 1);
	assert_int_equal(ledger_get(bed_view(&b).ledger, 0)->steps, 100);
	n_peers = 1;
	assert_in_range(steps_to_offer(20, &to, &number), 1, 10);
	assert_int_equal(ledger_get(bed_view(&b).ledger, 0)->reason, REASON_GUARD);
}

/* One that begins often neither makes its own distance the usual one, nor keeps our guard from
 * beginning; with nobody else there it is all there is. */
static bool begins_often(int peers)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.stale = 10;
	c.guard = true;
	n_peers = peers;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, peers);
	bed_train(&b, 1, 0.1);
	for (int k = 0; k < 30; k++) {
		whole(1, theirs(1), 0.01);
		for (int i = 1; i <= peers; i++)
			bed_record(&b, i, 320, 1);
		bed_pass(&b, 100);
		bed_train(&b, 1, 0.1);
		if (bed_sent(&b, EXCHANGE_OFFER))
			return true;
	}
	return false;
}

static void test_one_that_begins_often(void **state)
{
	(void)state;
	assert_true(begins_often(3));
	assert_false(bed_view(&b).radius_warm);
	bed_close(&b);
	assert_false(begins_often(1));
	assert_true(bed_view(&b).radius_warm);
	bed_close(&b);
	/* One of four that count, at most, is of its own beginning. */
	open_with(32000, 4);
	for (int k = 0; k < 20; k++) {
		int by = k % 4 ? 1 : 2 + k / 4 % 3;
		for (int i = 1; i <= 4; i++)
			bed_record(&b, i, 320, 1);
		bed_pass(&b, 250);
		whole(by, theirs(by), 0.01);
	}
	assert_false(bed_view(&b).radius_warm);
}

/* Offers to partners that were chosen because they are far, of 20 with the guard on. */
static int far_offers(uint8_t mode, int peers)
{
	struct flock_config c = bed_config();
	int to, far = 0;
	uint64_t number;
	c.rate_cap = 1e12;
	c.stale = 10;
	c.guard = true;
	c.mode = mode;
	c.gate.every_samples = 32;
	n_peers = peers;
	bed_open(&b, &c);
	bed_train_with(&b, n_peers);
	for (int k = 0; k < 20; k++) {
		for (int i = 1; i <= n_peers; i++) { /* refused, but it tells where they are */
			struct exchange_message m = bed_offer(&b, ++numbers);
			m.terms.beta = 1;
			m.terms.clock = bed_view(&b).clock;
			bed_hear(&b, i, &m);
		}
		assert_true(steps_to_offer(110, &to, &number) > 0);
		say(to, EXCHANGE_BUSY, number);
		const struct flock_say *s = bed_said(&b, SAY_EXCHANGE);
		assert_non_null(s);
		far += s->result->word.far;
	}
	bed_close(&b);
	return far;
}

/* Who is pushed to measures the distance, and is not told how its sender chose: uniformly. */
static void test_pushes_are_uniform(void **state)
{
	(void)state;
	assert_in_range(far_offers(EXCHANGE_PAIR, 4), 3, 17);
	assert_in_range(far_offers(EXCHANGE_PULL, 4), 3, 17);
	assert_int_equal(far_offers(EXCHANGE_PUSH, 4), 0);
	/* Of three the last one is left out: two are a choice, one is none. */
	assert_in_range(far_offers(EXCHANGE_PAIR, 3), 3, 17);
	assert_int_equal(far_offers(EXCHANGE_PAIR, 2), 0);
}

/* ---- connections */

static void test_connection_of_another_is_not_taken(void **state)
{
	struct exchange_message m;
	(void)state;
	open_with(1000000, 2);
	bed_train(&b, 10, 0.1);
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 1, &m);
	bulk(2, numbers, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 0);
	assert_int_equal(did(FLOCK_DO_CLOSE), 1);
	bulk(1, numbers, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
	/* A second one of the same is closed, and the first goes on. */
	bulk(1, numbers, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_CLOSE), 1);
	whole(1, numbers, 0.5);
}

/* It came, and the exchange is given up before both are ready to use it. */
static void test_connection_without_an_exchange_is_closed(void **state)
{
	struct exchange_message m;
	struct flock_event e = {.kind = FLOCK_EVENT_REFUSED};
	(void)state;
	open_with(1000000, 2);
	bed_train(&b, 10, 0.1);
	m = bed_offer(&b, ++numbers);
	struct flock_event offer = {.kind = FLOCK_EVENT_MESSAGE, .peer = bed_id(1)};
	offer.message = &m;
	offer.now_ms = offer.awake_ms = b.now_ms;
	flock_step(b.core, &offer, b.a); /* the learner keeps the snapshot waiting */
	assert_int_equal(did(FLOCK_DO_SNAPSHOT), 1);
	bulk(1, numbers, BULK_CAME);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 0);
	say(1, EXCHANGE_ABORT, numbers);
	assert_int_equal(did(FLOCK_DO_CLOSE), 1);
	assert_int_equal(did(FLOCK_DO_CANCEL), 0);
	/* Until the snapshot is taken, or refused, nothing else may begin. */
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 2, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_ENGAGED);
	e.refused = FLOCK_DO_SNAPSHOT;
	bed_step(&b, e);
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 2, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
}

/* ---- transfers */

/* One that is given up in the middle: buffers and bytes are its until it has ended. */
static void test_dropped_transfer_is_paid(void **state)
{
	struct exchange_message m;
	(void)state;
	open_with(1000000, 2);
	bed_train(&b, 10, 0.1);
	uint64_t number = theirs(1);
	say(1, EXCHANGE_ABORT, number);
	assert_int_equal(did(FLOCK_DO_CANCEL), 1);
	assert_int_equal(did(FLOCK_DO_CLOSE), 0);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 2, &m);
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_ENGAGED);
	uint64_t before = flock_quota(b.core, 0).bytes;
	transferred(number, ERR_CANCELLED, 700);
	assert_int_equal(did(FLOCK_DO_MEASURE), 0);
	assert_int_equal(flock_quota(b.core, 0).bytes - before, 700);
	assert_int_equal(bed_view(&b).counts.bytes_sent, 700);
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 2, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
}

/* The same for what is being measured; the next exchange's measurement is another. */
static void test_dropped_measurement(void **state)
{
	struct exchange_message m;
	(void)state;
	open_with(1000000, 2);
	bed_train(&b, 10, 0.1);
	uint64_t number = theirs(1);
	transferred(number, 0, 1000);
	assert_int_equal(did(FLOCK_DO_MEASURE), 1);
	say(1, EXCHANGE_ABORT, number);
	assert_int_equal(did(FLOCK_DO_CANCEL), 0);
	m = bed_offer(&b, ++numbers);
	bed_hear(&b, 2, &m);
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_ENGAGED);
	measured(0.5);
	assert_int_equal(b.a->n_sends, 0);
	assert_false(bed_view(&b).has_distance);
	whole(2, theirs(2), 0.5);
	assert_int_equal(bed_view(&b).counts.taken, 1);
}

/* A transfer that broke is no measurement, whatever of it came. */
static void test_broken_transfer(void **state)
{
	(void)state;
	open_with(1000000, 1);
	bed_train(&b, 10, 0.1);
	uint64_t number = theirs(1);
	transferred(number, ERR_IO, 500);
	assert_int_equal(did(FLOCK_DO_MEASURE), 0);
	assert_non_null(bed_sent(&b, EXCHANGE_ABORT));
	assert_int_equal(bed_view(&b).counts.by_outcome[OUTCOME_BROKEN], 1);
	assert_int_equal(bed_view(&b).quarantined, 0);
	const struct flock_say *s = bed_said(&b, SAY_EXCHANGE);
	assert_non_null(s);
	assert_int_equal(s->result->code, ERR_IO);
	assert_int_equal(s->result->bytes_sent, 500);
	/* Also if all of it came, or if it ended well and nothing did. */
	for (int i = 0; i < 2; i++) {
		struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED};
		bed_pass(&b, 3000);
		bed_record(&b, 1, 320, 1);
		bed_train(&b, 1, 0.1);
		e.exchange = theirs(1);
		e.transferred.use = USE_EXCHANGE;
		e.transferred.received = i == 0 ? BED_COUNT : 0;
		e.code = i == 0 ? ERR_IO : 0;
		bed_step(&b, e);
		assert_int_equal(did(FLOCK_DO_MEASURE), 0);
		if (i == 0)
			assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	}
}

/* Blocks that were further apart than the lattice can tell are left out; of too many nothing is
 * used, which is no offence. */
static void test_too_many_wrapped_blocks(void **state)
{
	struct sketch at = bed_place(10, 0.5);
	(void)state;
	for (uint64_t wrapped = 10; wrapped <= 11; wrapped++) {
		struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
		open_with(1000000, 1);
		bed_train(&b, 10, 0.1);
		transferred(theirs(1), 0, 1000);
		e.measured.slot = SLOT_STAGING;
		e.measured.finite = true;
		e.measured.sketch = &at;
		e.measured.blocks = 160;
		e.measured.wrapped = wrapped;
		bed_step(&b, e);
		assert_int_equal(bed_sent(&b, EXCHANGE_END) != NULL, wrapped == 10);
		assert_int_equal(bed_view(&b).quarantined, 0);
		if (wrapped > 10)
			assert_int_equal(bed_said(&b, SAY_EXCHANGE)->result->code, ERR_LIMIT);
		bed_close(&b);
	}
}

/* The scales of a lattice are learnt from what a measurement found, and told from then on; but not
 * from one whose exchange has been given up, or that failed. */
static void test_scales_are_learnt(void **state)
{
	static const int8_t found[3] = {5, 6, 7}, size[3] = {0, 0, 0};
	struct flock_config c = bed_config();
	(void)state;
	c.stale = 10;
	c.format = 1;
	c.scaled = 1 << 1;
	c.gate.every_samples = 40 * 32;
	n_peers = 1;
	for (int i = 0; i < 3; i++) {
		struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
		uint64_t number;
		int to;
		bed_open(&b, &c);
		told_place = b.place;
		bed_train_with(&b, 1);
		number = theirs(1);
		transferred(number, 0, 1000);
		e.measured.slot = SLOT_STAGING;
		e.code = i == 2 ? ERR_NOMEM : 0;
		e.measured.finite = true;
		e.measured.n_scales = 3;
		e.measured.found = found;
		e.measured.size = size;
		if (i == 1)
			say(1, EXCHANGE_ABORT, number);
		bed_step(&b, e);
		say(1, EXCHANGE_ABORT, number);
		assert_true(steps_to_offer(60, &to, &number) > 0);
		const struct exchange_terms *t = &bed_sent(&b, EXCHANGE_OFFER)->terms;
		assert_int_equal(t->n_scales, i == 0 ? 3 : 0);
		assert_int_equal(t->format, i == 0 ? 1 : 0); /* the plain one without */
		if (i == 0)
			assert_memory_equal(t->scales, found, 3);
		bed_close(&b);
	}
}

/* Merge rounds go in a lattice of their own while there is some way to go, with scales; else in
 * fp32. */
static void test_format_of_merge_rounds(void **state)
{
	static const int8_t found[3] = {5, 6, 7}, size[3] = {0, 0, 0};
	struct flock_config c = bed_config();
	(void)state;
	c.stale = 10;
	c.n_formats = 4;
	c.format = 2;
	c.merge = 3;
	c.plain = 1;
	c.scaled = 1 << 2 | 1 << 3;
	c.manifest.formats = 15;
	for (int k = 2; k < 4; k++)
		c.exchange_bytes[k] = BED_COUNT;
	n_peers = 1;
	for (int i = 0; i < 2; i++) {
		struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
		bed_open(&b, &c);
		told_place = b.place;
		bed_train_with(&b, 1);
		uint64_t number = theirs(1);
		transferred(number, 0, 1000);
		e.measured.slot = SLOT_STAGING;
		e.measured.finite = true;
		e.measured.n_scales = i == 1 ? 3 : 0;
		e.measured.found = found;
		e.measured.size = size;
		bed_step(&b, e);
		say(1, EXCHANGE_ABORT, number);
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
		for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_OFFER); k++) {
			bed_record(&b, 1, BED_TOTAL, 1);
			bed_pass(&b, 50);
		}
		assert_non_null(bed_sent(&b, EXCHANGE_OFFER));
		assert_true(bed_sent(&b, EXCHANGE_OFFER)->terms.final);
		assert_int_equal(bed_sent(&b, EXCHANGE_OFFER)->terms.format, i == 1 ? 3 : 0);
		bed_close(&b);
	}
}

/* What is not finite is never used, and held against who sent it. */
static void test_not_finite(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	struct peer_id id = bed_id(1);
	(void)state;
	open_with(1000000, 1);
	bed_train(&b, 10, 0.1);
	transferred(theirs(1), 0, 1000);
	e.measured.slot = SLOT_STAGING;
	bed_step(&b, e);
	assert_null(bed_sent(&b, EXCHANGE_END));
	const struct flock_say *s = bed_said(&b, SAY_QUARANTINE);
	assert_non_null(s);
	assert_memory_equal(&s->peer, &id, sizeof id);
	assert_string_equal(s->words, "sent numbers that are not finite");
	assert_int_equal(s->a, 60000);
	assert_int_equal(bed_view(&b).quarantined, 1);
	struct exchange_message m = bed_offer(&b, ++numbers);
	bed_hear(&b, 1, &m);
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_QUARANTINED);
}

/* Also by one that we had never met before, and that we asked. */
static void test_first_meeting_is_a_bad_one(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	uint64_t number;
	int to;
	(void)state;
	open_with(40, 2);
	assert_true(steps_to_offer(60, &to, &number) > 0);
	accept(to, number);
	bulk(to, number, BULK_CAME);
	transferred(number, 0, 1000);
	e.measured.slot = SLOT_STAGING;
	bed_step(&b, e);
	const struct flock_say *s = bed_said(&b, SAY_QUARANTINE);
	assert_non_null(s);
	assert_int_equal(s->peer.bytes[0] - 0x10, to);
	assert_int_equal(s->a, 60000);
}

/* ---- distances */

static void meet(double distance)
{
	whole(1, theirs(1), distance);
	bed_pass(&b, 2000); /* it begins no more than it may */
	bed_record(&b, 1, 320, 1);
	bed_train(&b, 1, 0.1);
}

static void usually_near(void)
{
	open_with(1000000, 1);
	bed_train(&b, 10, 0.1);
	for (int i = 0; i < CLIP_WARM; i++)
		meet(0.2);
}

/* Of a partner that is far from where partners usually are a part is taken; it is counted. */
static void test_far_partner_is_clipped(void **state)
{
	(void)state;
	usually_near();
	assert_int_equal(bed_view(&b).counts.clipped, 0);
	assert_true(bed_view(&b).radius_warm);
	assert_true(fabs(bed_view(&b).radius - 0.5) < 0.01); /* 2.5 times what is usual */
	whole(1, theirs(1), 1);
	assert_int_equal(bed_view(&b).counts.clipped, 1);
	const struct flock_say *s = bed_said(&b, SAY_EXCHANGE);
	assert_non_null(s);
	assert_int_equal(s->peer.bytes[0] - 0x10, 1);
	assert_true(fabs((double)s->result->factor - 0.5) < 0.01);
	assert_true(fabs((double)s->own_factor - 0.5) < 0.01);
	assert_int_equal(bed_view(&b).quarantined, 0);
	/* The next one breaks before anything could be clipped. */
	bed_pass(&b, 2000);
	bed_record(&b, 1, 320, 1);
	transferred(theirs(1), ERR_IO, 500);
	assert_true(bed_said(&b, SAY_EXCHANGE)->own_factor == 1);
}

/* ---- donations */

/* No memory for a copy: all who wait for it are told, also who got the last place for having
 * exchanged with us. */
static void test_all_who_wait_for_a_copy_are_told(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_REFUSED};
	struct exchange_message m = {.kind = EXCHANGE_FETCH};
	(void)state;
	open_with(1000000, FLOCK_DONATIONS);
	bed_train(&b, 10, 0.1);
	whole(1, theirs(1), 0.5);
	m.fetch.manifest = b.c.manifest;
	for (int i = FLOCK_DONATIONS; i > 0; i--) {
		m.exchange = ++numbers;
		bed_hear(&b, i, &m);
		assert_int_equal(b.a->n_sends, 0);
	}
	e.refused = FLOCK_DO_TAKE_STATE;
	bed_step(&b, e);
	assert_int_equal(b.a->n_sends, FLOCK_DONATIONS);
	assert_int_equal(did(FLOCK_DO_RELEASE), 1);
}

/* A joiner goes by our radius until it has one of its own. */
static void test_gift_tells_the_radius(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_STATE};
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = 7};
	(void)state;
	usually_near();
	m.fetch.manifest = b.c.manifest;
	bed_hear(&b, 1, &m);
	assert_int_equal(did(FLOCK_DO_TAKE_STATE), 1);
	e.state = (struct flock_state){.step = 10, .vectors = 2};
	bed_step(&b, e);
	const struct exchange_message *g = bed_sent(&b, EXCHANGE_GIFT);
	assert_non_null(g);
	assert_int_equal(g->gift.n, 2);
	assert_true(fabs((double)g->gift.radius[0] - bed_view(&b).radius) < 1e-6);
	assert_true(fabs((double)g->gift.radius[1] - 0.6 * bed_view(&b).radius) < 1e-3);
	assert_true(fabs((double)g->gift.radius[2] - 0.8 * bed_view(&b).radius) < 1e-3);
}

/* ---- peers with other settings */

/* Of two that say nothing each is asked, in turn. */
static void test_silent_strangers_are_asked_in_turn(void **state)
{
	int asked[4] = {0};
	(void)state;
	open_with(1000000, 1);
	bed_train(&b, 30, 0.1); /* no newcomer any more */
	for (int i = 0; i < 900; i++) {
		bed_record(&b, 1, 320, 1);
		b.c.manifest.model++;
		bed_record(&b, 2, 320, 1);
		bed_record(&b, 3, 320, 1);
		b.c.manifest.model--;
		bed_pass(&b, 50);
		for (int k = 0; k < b.a->n_sends; k++)
			if (b.a->send[k].message.kind == EXCHANGE_FETCH)
				asked[b.a->send[k].to.bytes[0] - 0x10]++;
	}
	assert_int_equal(asked[1], 0);
	assert_in_range(asked[2] + asked[3], 4, 6); /* one each ten seconds */
	assert_in_range(asked[2], 2, 3);
	assert_in_range(asked[3], 2, 3);
}

/* ---- sketches */

/* Where no exchange takes a snapshot, one of its own every eight seconds says where it is. */
static void test_own_sketch_every_eight_seconds(void **state)
{
	int n = 0;
	(void)state;
	open_with(1000000, 1);
	bed_train(&b, 10, 0.001);
	for (int i = 0; i < 400; i++) {
		bed_record(&b, 1, 320, 1);
		bed_train(&b, 1, 0.0001);
		b.now_ms += 100;
		bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
		const struct flock_action *x = bed_did(&b, FLOCK_DO_SNAPSHOT);
		n += x && x->snapshot.sketch;
	}
	assert_in_range(n, 4, 6);
	/* And sooner after a long way. */
	bed_train(&b, 1, 0.6);
	bed_pass(&b, 1200);
	n = 0;
	for (int i = 0; i < 30; i++) {
		bed_record(&b, 1, 320, 1);
		bed_train(&b, 1, 0.06);
		b.now_ms += 100;
		bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
		n += bed_did(&b, FLOCK_DO_SNAPSHOT) != NULL;
	}
	assert_in_range(n, 2, 4);
}

/* ---- merging */

static void merges(int with)
{
	struct exchange_message m = bed_offer(&b, ++numbers);
	m.terms.final = true;
	m.terms.beta = 0.5f;
	for (int i = 1; i <= n_peers; i++)
		bed_record(&b, i, BED_TOTAL / 2, 1);
	bed_hear(&b, with, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	bulk(with, numbers, BULK_CAME);
	whole(with, numbers, 0);
	b.now_ms += 100; /* the next tick, before we offer by ourselves */
}

static enum flock_phase after_merging_with(int a, int c)
{
	open_with(1000000, 2);
	bed_train(&b, 10, 0.1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	merges(a);
	merges(c);
	assert_int_equal(bed_view(&b).merge_rounds, 2);
	for (int i = 1; i <= 2; i++)
		bed_record(&b, i, BED_TOTAL / 2, 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
	return bed_view(&b).phase;
}

/* Near one of them, however often, is not near all. */
static void test_near_one_is_not_near_all(void **state)
{
	(void)state;
	assert_int_equal(after_merging_with(1, 1), FLOCK_MERGING);
	bed_close(&b);
	assert_int_equal(after_merging_with(1, 2), FLOCK_FINISHED);
}

/* ---- the gate */

/* The upload cap holds for merge rounds, too. */
static void test_cap_in_merge_rounds(void **state)
{
	struct flock_config c = bed_config();
	int offers = 0;
	(void)state;
	c.rate_cap = 1e12;
	c.stale = 10;
	c.gate.cap_bytes_per_s = 1;
	n_peers = 1;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.1);
	uint64_t number = theirs(1);
	transferred(number, ERR_IO, 1000); /* of 1024 that there are at once */
	bed_record(&b, 1, BED_TOTAL, 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	for (int i = 0; i < 60; i++) {
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 50);
		offers += bed_sent(&b, EXCHANGE_OFFER) != NULL;
	}
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	assert_int_equal(offers, 0);
}

/* A gradient of fewer samples has more noise: its average follows the batch. */
static void test_another_batch_is_no_change(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_STEPS};
	struct flock_trained s = {.loss = 1, .lr = 0.1, .noise = 4};
	(void)state;
	open_with(1000000, 1);
	e.steps.list = &s;
	e.steps.n = 1;
	for (int i = 0; i < 50; i++) {
		s.batch = i < 49 ? 4 : 1;
		s.grad_norm = i < 49 ? 1 : 2;
		s.step++;
		s.samples += s.batch;
		bed_step(&b, e);
	}
	assert_true(fabs(gate_view(bed_view(&b).gate, b.now_ms).average - 4) < 1e-9);
	assert_int_equal(bed_view(&b).batch, 1);
	assert_true(bed_view(&b).noise <= 0); /* over a signal, which there is not */
	s.signal = 2;
	s.step++;
	bed_step(&b, e);
	assert_true(fabs(bed_view(&b).noise - 2) < 1e-9);
}

/* What rounding alone keeps apart is no target for the guard. */
static void test_guard_aims_above_rounding(void **state)
{
	struct flock_config c = bed_config();
	(void)state;
	c.stale = 10;
	c.guard = true;
	c.floor2[0] = 0.01;
	n_peers = 1;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, 1);
	bed_train(&b, 10, 0.001);
	assert_true(bed_view(&b).guard.target < 0.1);
	uint64_t number = theirs(1);
	whole(1, number, 0.01);
	double floor = 0.1 * sketch_norm(&b.place);
	double target = bed_view(&b).guard.target;
	assert_true(target >= 0.9 * floor && target < 1.2 * floor);
}

/* With the guard half of the partners are drawn for being far; of whom nobody has told where it is
 * since we met, none is. */
static void test_unknown_places_are_not_far(void **state)
{
	struct flock_config c = bed_config();
	uint64_t number;
	int to;
	(void)state;
	c.rate_cap = 1e12;
	c.stale = 10;
	c.gate.every_samples = 20 * 32;
	c.guard = true;
	n_peers = 3;
	bed_open(&b, &c);
	bed_train_with(&b, 3);
	for (int i = 0; i < 8; i++) {
		assert_true(steps_to_offer(100, &to, &number) > 0);
		accept(to, number);
		bulk(to, number, BULK_CAME);
		whole(to, number, 0.5);
		struct flock_view v = bed_view(&b);
		assert_false(v.recent[(v.n_recent - 1) % FLOCK_RECENT].word.far);
	}
}

/* Of so many offers, how many go to the first of eight peers, which tells that it is far from where
 * we are; or from where nobody knows that we were. */
static int offers_to_the_far_one(int offers, bool now)
{
	struct flock_config c = bed_config();
	uint64_t number;
	int to, n = 0;
	c.rate_cap = 1e12;
	c.stale = 10;
	c.gate.every_samples = 5 * 32;
	c.guard = true;
	n_peers = 8;
	bed_open(&b, &c);
	bed_train_with(&b, n_peers);
	for (int i = 0; i < offers; i++) {
		for (int k = 1; k <= n_peers; k++) { /* a round that is refused, but tells */
			struct exchange_message m = bed_offer(&b, ++numbers);
			struct sketch at = bed_place(10, k == 1 ? 3 : 0.1);
			m.terms.final = true;
			m.terms.clock = now ? bed_view(&b).clock : 10;
			sketch_pack(&at, m.terms.sketch);
			bed_hear(&b, k, &m);
		}
		assert_true(steps_to_offer(100, &to, &number) > 0);
		say(to, EXCHANGE_BUSY, number);
		n += to == 1;
	}
	bed_close(&b);
	return n;
}

/* Half of the draws take the farthest of three, by what is known of one time. */
static void test_far_partners_are_met_more_often(void **state)
{
	(void)state;
	assert_in_range(offers_to_the_far_one(60, true), 14, 30);
	assert_in_range(offers_to_the_far_one(60, false), 2, 12); /* an eighth, as all others */
}

/* The sketch that others pass on. */
static void membership_tells(int peer, uint64_t step, double off)
{
	static struct gossip_message m = {.kind = MESSAGE_SKETCH};
	struct flock_event e = {.kind = FLOCK_EVENT_MEMBERSHIP};
	struct sketch at = bed_place(10, off);
	m.sketch.id = bed_id(peer);
	m.sketch.generation = 1;
	m.sketch.step = step;
	m.sketch.length = SKETCH_BUCKETS * 4;
	sketch_pack(&at, m.sketch.bytes);
	e.membership.kind = EVENT_RECEIVED;
	e.membership.received.from = m.sketch.id;
	e.membership.received.channel = CHANNEL_STREAM;
	e.membership.received.message = &m;
	bed_step(&b, e);
}

/* Of 60 offers, how many go to the first of eight peers, which told at that step that it is near,
 * and of which membership knows a far place, of step 10, its last. */
static int offers_to_one_that_was_far(uint64_t step)
{
	struct flock_config c = bed_config();
	uint64_t number;
	int to, n = 0;
	c.rate_cap = 1e12;
	c.stale = 10;
	c.gate.every_samples = 5 * 32;
	c.guard = true;
	n_peers = 8;
	bed_open(&b, &c);
	bed_train_with(&b, n_peers);
	bed_record(&b, 1, 320, 1);
	membership_tells(1, 10, 3);
	for (int i = 0; i < 60; i++) {
		for (int k = 1; k <= n_peers; k++) { /* a round that is refused, but tells */
			struct exchange_message m = bed_offer(&b, ++numbers);
			struct sketch at = bed_place(10, k == 1 ? 0.01 : 0.1);
			m.terms.final = true;
			m.terms.step = step;
			m.terms.clock = bed_view(&b).clock;
			sketch_pack(&at, m.terms.sketch);
			bed_hear(&b, k, &m);
		}
		assert_true(steps_to_offer(100, &to, &number) > 0);
		say(to, EXCHANGE_BUSY, number);
		n += to == 1;
	}
	bed_close(&b);
	return n;
}

static void test_later_place_counts(void **state)
{
	(void)state;
	assert_in_range(offers_to_one_that_was_far(10), 0, 11);
	assert_in_range(offers_to_one_that_was_far(8), 14, 30);
}

/* ---- in touch */

#define MISSED 10000 /* samples of others: more are too many */

static uint64_t peers_samples;

static void in_touch_with(int peers, bool guard)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.stale = (double)MISSED / BED_TOTAL;
	c.guard = guard;
	n_peers = peers;
	peers_samples = 320;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, peers);
	bed_train(&b, 10, 0.1);
}

/* For 200 ms, or until it takes a state because of it. */
static void news(uint64_t samples)
{
	bool joining = bed_view(&b).joining;
	peers_samples += samples;
	bed_record(&b, 1, peers_samples, 1);
	for (int i = 0; i < 4 && bed_view(&b).joining == joining; i++)
		bed_pass(&b, 50);
}

static void sleeps(void)
{
	b.now_ms += 1100;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
}

/* It slept, hears of some samples that it missed, exchanges, and hears of more. */
static bool misses_after(bool sleeps_in_it, double distance)
{
	in_touch_with(1, false);
	for (int i = 0; distance > 0 && i < CLIP_WARM; i++)
		meet(0.2);
	peers_samples = 1000;
	sleeps();
	news(MISSED / 2);
	uint64_t number = theirs(1);
	if (sleeps_in_it)
		sleeps();
	whole(1, number, distance);
	news(MISSED + 1000);
	bool joining = bed_view(&b).joining;
	bed_close(&b);
	return joining;
}

/* An exchange makes up for what was missed, unless it began before, or hardly moved us. */
static void test_exchange_puts_in_touch(void **state)
{
	(void)state;
	assert_false(misses_after(false, 0));
	assert_true(misses_after(true, 0));
	assert_false(misses_after(false, 0.2));
	assert_true(misses_after(false, 8));
}

/* What was missed before an exchange is made up for, and what was trained before it is held against
 * nothing that is missed later. */
static void test_after_an_exchange_all_begins_anew(void **state)
{
	(void)state;
	in_touch_with(1, false);
	sleeps();
	news(MISSED - 1000);
	whole(1, theirs(1), 0.2);
	sleeps();
	news(2000);
	assert_false(bed_view(&b).joining);
	bed_close(&b);
	in_touch_with(1, false);
	bed_train(&b, 400, 0.1);
	sleeps();
	news(100);
	whole(1, theirs(1), 0.2);
	sleeps();
	news(MISSED + 1000);
	assert_true(bed_view(&b).joining);
}

/* An offer of ours is taken when we are stale: that one exchange makes up for little. */
static void test_stale_agent_stays_stale(void **state)
{
	struct flock_config c = bed_config();
	uint64_t number;
	int to;
	(void)state;
	c.rate_cap = 1e12;
	c.stale = (double)MISSED / BED_TOTAL;
	c.gate.every_samples = 40 * 32;
	n_peers = 1;
	peers_samples = 320;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, 1);
	assert_int_equal(steps_to_offer(60, &to, &number), 40);
	struct exchange_message m = *bed_sent(&b, EXCHANGE_OFFER);
	sleeps();
	news(MISSED + 1000);
	m.kind = EXCHANGE_ACCEPT;
	bed_hear(&b, 1, &m);
	assert_int_equal(did(FLOCK_DO_OPEN), 1);
	bulk(1, number, BULK_CAME);
	whole(1, number, 0.2);
	news(0);
	assert_true(bed_view(&b).joining);
}

/* A partner in the middle of a long step: the exchange is put aside, and later whole. What our own
 * move says counts at once, and once. */
static void test_own_move_counts_when_put_aside(void **state)
{
	struct flock_view v;
	(void)state;
	in_touch_with(1, true);
	for (int i = 0; i < CLIP_WARM; i++)
		meet(0.2);
	double before = bed_view(&b).guard.consensus;
	peers_samples = 1000;
	sleeps();
	news(MISSED / 2);
	uint64_t number = theirs(1);
	applied(1, number, 0.4);
	for (int i = 0; i < 5; i++) {
		bed_record(&b, 1, peers_samples, 1);
		bed_pass(&b, 1000);
	}
	v = bed_view(&b);
	assert_int_equal(v.exchange_state, EXCHANGE_IDLE);
	double after = v.guard.consensus;
	assert_true(after > 1.01 * before);
	say(1, EXCHANGE_ACK, number);
	v = bed_view(&b);
	assert_int_equal(v.counts.by_outcome[OUTCOME_EXCHANGED], CLIP_WARM + 1);
	assert_true(fabs(v.guard.consensus - after) < 1e-9);
	news(MISSED + 1000);
	assert_false(bed_view(&b).joining);
}

/* In doubt when it is put aside: nothing has moved us, so nothing is made up for. */
static void test_doubt_puts_in_no_touch(void **state)
{
	(void)state;
	in_touch_with(1, false);
	peers_samples = 1000;
	sleeps();
	news(MISSED / 2);
	uint64_t number = theirs(1);
	transferred(number, 0, 1000);
	measured(0.2);
	say(1, EXCHANGE_END, number);
	assert_non_null(bed_sent(&b, EXCHANGE_COMMIT));
	for (int i = 0; i < 5; i++) {
		bed_record(&b, 1, peers_samples, 1);
		bed_pass(&b, 1000);
	}
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	news(MISSED + 1000);
	assert_true(bed_view(&b).joining);
}

/* However far a partner is, for the guard it is no farther than the clip radius. */
static void test_guard_goes_by_the_radius(void **state)
{
	(void)state;
	in_touch_with(1, true);
	for (int i = 0; i < CLIP_WARM; i++)
		meet(0.2);
	assert_true(fabs(bed_view(&b).radius - 0.5) < 1e-6);
	assert_true(fabs(bed_view(&b).guard.consensus - 0.1) < 1e-6); /* half of it, of two */
	whole(1, theirs(1), 8);
	double consensus2 = 0.75 * 0.1 * 0.1 + 0.25 * 0.25 * 0.25;
	assert_true(fabs(bed_view(&b).guard.consensus - sqrt(consensus2)) < 1e-6);
}

/* Exchanges until it is known what is usual; all peers are there all the time. */
static void warm_up(void)
{
	for (int i = 0; i < CLIP_WARM; i++) {
		whole(1, theirs(1), 0.2);
		bed_train(&b, 1, 0.1);
		for (int k = 1; k <= n_peers; k++)
			bed_record(&b, k, 320, 1);
		bed_pass(&b, 250);
	}
}

/* Of two other peers the first trains that many samples with each step of ours, and so does the
 * second if it is as fast. Every five steps we exchange with the first, every other time with the
 * second if both are met, unless the distance is 0. */
static bool falls_behind(uint64_t each, bool both, double distance, bool meets_both)
{
	uint64_t slow = 320;
	bool joining = false;
	in_touch_with(2, false);
	warm_up();
	for (int k = 0; k < 60 && !joining; k++) {
		int with = meets_both && k % 10 == 9 ? 2 : 1;
		bed_train(&b, 1, 0.001);
		slow += both ? each : 32;
		bed_record(&b, 2, slow, 1);
		news(each);
		joining = bed_view(&b).joining;
		if (distance > 0 && k % 5 == 4 && !joining)
			whole(with, theirs(with), distance);
	}
	if (joining)
		assert_true(bed_said(&b, SAY_STALE)->flag);
	bed_close(&b);
	return joining;
}

/* Who is so much slower than others that exchanges do not carry it along takes their state. */
static void test_falls_behind(void **state)
{
	(void)state;
	assert_true(falls_behind(20 * 32, true, 8, true));   /* clipped to nearly nothing */
	assert_false(falls_behind(7 * 32, true, 8, true));   /* it is not as slow as that */
	assert_false(falls_behind(20 * 32, false, 8, true)); /* by the word of one of two */
	assert_false(falls_behind(20 * 32, true, 8, false)); /* nor is one that was not met slow */
	assert_false(falls_behind(20 * 32, true, 0.1, true));
	assert_false(falls_behind(20 * 32, true, 0, true)); /* no exchange has shown it */
}

/* In touch, and clipped by that peer. */
static void clipped_by(int peer)
{
	whole(peer, theirs(peer), 8);
	bed_pass(&b, 50);
}

/* Two halves of a flock were cut off from each other. Each was in touch with somebody all the time,
 * so on healing neither is behind, however much of the other's comes as news at once, and though
 * the halves are too far from each other for exchanges. */
static void test_news_of_a_cut_is_no_slowness(void **state)
{
	uint64_t ours = 320, theirs_then = 3 * MISSED;
	(void)state;
	in_touch_with(3, false);
	warm_up();
	for (int i = 0; i < 5; i++) {
		bed_train(&b, 10, 0.001);
		bed_record(&b, 1, ours += 320, 1);
		bed_pass(&b, 1000);
		whole(1, theirs(1), 0.2);
	}
	for (int i = 0; i < 20; i++) {
		bed_train(&b, 10, 0.001);
		theirs_then += 320;
		for (int k = 1; k <= 3; k++)
			bed_record(&b, k, k == 1 ? ours += 320 : theirs_then, 1);
		bed_pass(&b, 200);
		assert_false(bed_view(&b).joining);
		if (i == 1) {
			clipped_by(2);
			clipped_by(3);
		}
	}
	assert_true(bed_view(&b).clock > 6 * MISSED);
}

/* Two peers are as fast, and clip us, but the last that is heard of one is that it leaves. */
static void test_slower_than_one_that_left(void **state)
{
	(void)state;
	for (int left = 0; left < 2; left++) {
		in_touch_with(3, false);
		warm_up();
		for (int k = 1; k <= 3; k++)
			bed_record(&b, k, 400, 1);
		bed_pass(&b, 200);
		bed_train(&b, 1, 0.001);
		clipped_by(1);
		clipped_by(2);
		bed_record(&b, 3, 401, 1);
		bed_record(&b, 1, MISSED, 1);
		bed_word(&b, 2, MISSED, 1, left);
		bed_pass(&b, 200);
		assert_int_equal(bed_view(&b).candidates, 3 - left);
		assert_int_equal(bed_view(&b).joining, !left);
		bed_close(&b);
	}
}

/* What an exchange has shown is made up for by the next one that moves us, with the same news. */
static void test_carried_along_again(void **state)
{
	(void)state;
	for (int again = 0; again < 2; again++) {
		in_touch_with(1, false);
		warm_up();
		clipped_by(1);
		if (again)
			whole(1, theirs(1), 0.2);
		bed_train(&b, 1, 0.001);
		news(MISSED + 4000);
		assert_int_equal(bed_view(&b).joining, !again);
		bed_close(&b);
	}
}

/* It falls behind in the middle of an exchange, and takes no other one before it takes a state:
 * fast peers offer again sooner than it looks. */
static void test_behind_takes_no_offer(void **state)
{
	(void)state;
	in_touch_with(1, false);
	warm_up();
	bed_train(&b, 1, 0.001);
	clipped_by(1);
	uint64_t number = theirs(1);
	news(MISSED + 4000);
	assert_false(bed_view(&b).joining);
	whole(1, number, 8);
	struct exchange_message m = bed_offer(&b, ++numbers);
	bed_hear(&b, 1, &m);
	assert_null(bed_sent(&b, EXCHANGE_ACCEPT));
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->busy.why, EXCHANGE_JOINING);
	bed_pass(&b, 150);
	assert_true(bed_view(&b).joining);
}

/* A donor is asked, gives its state, and that is taken. */
static void takes_a_state(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK};
	struct exchange_message m = {.kind = EXCHANGE_GIFT};
	for (int k = 0; k < 100 && !bed_sent(&b, EXCHANGE_FETCH); k++)
		bed_pass(&b, 50);
	assert_int_equal(b.a->n_sends, 1);
	e.peer = b.a->send[0].to;
	e.exchange = m.exchange = b.a->send[0].message.exchange;
	m.gift.manifest = b.c.manifest;
	m.gift.snapshot = 5;
	m.gift.samples = m.gift.clock = MISSED;
	m.gift.step = MISSED / 32;
	m.gift.vectors = m.gift.n = 2;
	bed_hear(&b, e.peer.bytes[0] - 0x10, &m);
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	e.kind = FLOCK_EVENT_TRANSFERRED;
	e.transferred.use = USE_FETCH;
	e.transferred.received = 2 * BED_COUNT;
	bed_step(&b, e);
	e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
	e.measured.slot = SLOT_FETCHED;
	e.measured.finite = true;
	e.measured.sketch = &b.place;
	bed_step(&b, e);
	e = (struct flock_event){.kind = FLOCK_EVENT_TRIED};
	e.tried = (struct flock_trial){.loss = 1, .own = 2, .initial = 2};
	bed_step(&b, e);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_ADOPTED});
	assert_non_null(bed_said(&b, SAY_JOINED));
}

/* The state that it took because it was behind is no good, and the one before comes back. */
static void test_behind_again_when_restored(void **state)
{
	(void)state;
	in_touch_with(3, false);
	warm_up();
	bed_train(&b, 1, 0.001);
	for (int k = 1; k <= 3; k++)
		clipped_by(k);
	for (int k = 1; k <= 3; k++)
		bed_record(&b, k, MISSED, 1);
	takes_a_state();
	bed_train(&b, 2, 0.1);
	bed_pass(&b, 200);
	assert_false(bed_view(&b).joining);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_FAILED, .code = ERR_NONFINITE});
	bed_pass(&b, 100);
	for (int k = 0; k < 4 && !bed_view(&b).joining; k++)
		bed_pass(&b, 50);
	for (int i = 0; i < 4 && !bed_view(&b).joining; i++) {
		for (int k = 1; k <= 3; k++)
			bed_record(&b, k, MISSED, 1);
		bed_pass(&b, 50);
	}
	assert_int_equal(bed_view(&b).counts.restored, 1);
	assert_true(bed_view(&b).joining);
}

/* After a sleep the others are as far ahead; the reason that the user hears is the sleep. */
static void test_slept_is_not_slow(void **state)
{
	(void)state;
	in_touch_with(1, false);
	warm_up();
	clipped_by(1);
	sleeps();
	bed_train(&b, 1, 0.001);
	news(MISSED + 4000);
	assert_true(bed_view(&b).joining);
	assert_false(bed_said(&b, SAY_STALE)->flag);
}

/* Who is slow takes a state at the end of the run too: its model would be a part of the mean. */
static void test_behind_when_the_run_is_over(void **state)
{
	(void)state;
	in_touch_with(1, false);
	warm_up();
	news(0);
	bed_train(&b, 1, 0.001);
	clipped_by(1);
	bed_record(&b, 1, peers_samples + MISSED + 4000, 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_pass(&b, 200);
	assert_true(bed_view(&b).joining);
	/* Nobody gives one: then it merges what it has. */
	peers_samples += MISSED + 4000;
	for (int i = 0; i < 1000 && bed_view(&b).phase == FLOCK_TRAINING; i++)
		news(0);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
}

/* Stale when its run is over, in the middle of an exchange that brings it in touch: it merges. */
static void test_in_touch_when_the_run_is_over(void **state)
{
	(void)state;
	in_touch_with(1, false);
	sleeps();
	news(MISSED - 1000);
	uint64_t number = theirs(1);
	news(2000);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	whole(1, number, 0.2);
	news(0);
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
}

/* ---- doubts */

/* What a peer sent is not what it told: doubted, and let in again. That its exchanges failed before
 * adds nothing to it. */
static void test_failures_are_no_doubts(void **state)
{
	(void)state;
	open_with(1000000, 1);
	bed_train(&b, 10, 0.1);
	for (int i = 0; i < 3; i++) {
		uint64_t number = theirs(1);
		say(1, EXCHANGE_ABORT, number);
		transferred(number, ERR_CANCELLED, 0);
		for (int k = 0; k < 100; k++) { /* it may not begin the next at once */
			bed_record(&b, 1, 320, 1);
			bed_pass(&b, 100);
		}
	}
	transferred(theirs(1), 0, 1000);
	measured(14);
	assert_null(bed_sent(&b, EXCHANGE_END));
	assert_int_equal(bed_view(&b).quarantined, 0);
	assert_int_equal(bed_said(&b, SAY_EXCHANGE)->result->code, ERR_INVALID);
}

/* ---- rates */

/* We train ten times as fast as the two with whom we exchange: theirs is the usual rate, by which a
 * third one's claims count. */
static void test_partners_rates_are_usual(void **state)
{
	struct flock_config c = bed_config();
	uint64_t its = 0, before = 0;
	(void)state;
	c.manifest.total = 1ull << 40;
	bed_open(&b, &c);
	told_place = b.place;
	bed_train_with(&b, 3);
	for (int k = 1; k <= 120; k++) {
		bed_train(&b, 10, 0.01);
		its += 32;
		for (int i = 1; i <= 2; i++)
			bed_record(&b, i, its, 1);
		bed_record(&b, 3, k > 60 ? 1ull << 39 : 0, 1);
		bed_pass(&b, 100);
		if (k == 30 || k == 40)
			whole(k / 10 - 2, theirs(k / 10 - 2), 0.2);
		if (k == 70)
			before = bed_view(&b).clock - bed_view(&b).samples;
	}
	uint64_t grown = bed_view(&b).clock - bed_view(&b).samples - before;
	/* 5 s of 256 times that; by ours it would be ten times as much. */
	assert_in_range(grown, 5 * 256 * 320 / 2, 5 * 256 * 320 * 4);
}

/* To be clipped hard is no offence for one that is nearer than our own length: it may train on
 * other data. For one that is farther it is, the third time. */
static void test_far_and_clipped_hard_is_an_offence(void **state)
{
	(void)state;
	usually_near();
	told_place = bed_place(10, 6);
	for (int i = 0; i < 4; i++)
		meet(8);
	assert_int_equal(bed_view(&b).quarantined, 0);
	assert_int_equal(bed_view(&b).counts.clipped, 4);
	bed_close(&b);
	usually_near();
	told_place = bed_place(10, 6);
	meet(12);
	meet(12);
	assert_int_equal(bed_view(&b).quarantined, 0);
	meet(12);
	assert_int_equal(bed_view(&b).quarantined, 1);
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_delays),
	        TEST(test_as_many_as_steps),
	        TEST(test_sooner_with_short_steps),
	        TEST(test_a_kept_connection_breaks),
	        TEST(test_offer_of_ours),
	        TEST(test_no_newcomer_after_an_exchange),
	        TEST(test_offer_that_was_not_sent),
	        TEST(test_refused_offer_is_owed),
	        TEST(test_want_while_engaged_is_owed),
	        TEST(test_entry_of_a_want_without_a_partner),
	        TEST(test_guard_of_one_that_is_alone),
	        TEST(test_one_that_begins_often),
	        cmocka_unit_test(test_pushes_are_uniform),
	        TEST(test_connection_of_another_is_not_taken),
	        TEST(test_connection_without_an_exchange_is_closed),
	        TEST(test_dropped_transfer_is_paid),
	        TEST(test_dropped_measurement),
	        TEST(test_broken_transfer),
	        cmocka_unit_test(test_too_many_wrapped_blocks),
	        cmocka_unit_test(test_scales_are_learnt),
	        cmocka_unit_test(test_format_of_merge_rounds),
	        TEST(test_not_finite),
	        TEST(test_first_meeting_is_a_bad_one),
	        TEST(test_far_partner_is_clipped),
	        TEST(test_guard_goes_by_the_radius),
	        cmocka_unit_test(test_later_place_counts),
	        TEST(test_far_and_clipped_hard_is_an_offence),
	        TEST(test_all_who_wait_for_a_copy_are_told),
	        TEST(test_gift_tells_the_radius),
	        TEST(test_silent_strangers_are_asked_in_turn),
	        TEST(test_own_sketch_every_eight_seconds),
	        TEST(test_near_one_is_not_near_all),
	        TEST(test_cap_in_merge_rounds),
	        TEST(test_another_batch_is_no_change),
	        TEST(test_guard_aims_above_rounding),
	        TEST(test_unknown_places_are_not_far),
	        cmocka_unit_test(test_far_partners_are_met_more_often),
	        cmocka_unit_test(test_exchange_puts_in_touch),
	        TEST(test_after_an_exchange_all_begins_anew),
	        TEST(test_stale_agent_stays_stale),
	        TEST(test_own_move_counts_when_put_aside),
	        TEST(test_doubt_puts_in_no_touch),
	        cmocka_unit_test(test_falls_behind),
	        TEST(test_news_of_a_cut_is_no_slowness),
	        cmocka_unit_test(test_slower_than_one_that_left),
	        cmocka_unit_test(test_carried_along_again),
	        TEST(test_behind_takes_no_offer),
	        TEST(test_behind_again_when_restored),
	        TEST(test_slept_is_not_slow),
	        TEST(test_behind_when_the_run_is_over),
	        TEST(test_in_touch_when_the_run_is_over),
	        TEST(test_failures_are_no_doubts),
	        TEST(test_partners_rates_are_usual),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
