/* SPDX-License-Identifier: MIT */
/* What an agent does on its user's wish, at the end of its run, and for those who join: what is
 * written and when, what a decision's entry in the ledger tells, who gets which state. */
#include "tests/gossip/flock_bed.h"

static struct bed b;

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

static struct flock_config config(void)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12; /* any claim of samples counts */
	c.stale = 10;      /* of the run: never */
	return c;
}

static void open_with(const struct flock_config *c, int peers)
{
	bed_open(&b, c);
	bed_train_with(&b, peers);
	bed_train(&b, 10, 0.1);
}

static void wish(uint8_t w)
{
	struct flock_event e = {.kind = FLOCK_EVENT_WISH};
	e.wish = w;
	bed_step(&b, e);
}

static int did(uint8_t kind)
{
	int n = 0;
	for (int i = 0; i < b.a->n_actions; i++)
		n += b.a->action[i].kind == kind;
	return n;
}

/* ---- the user's wishes */

static void test_save(void **state)
{
	struct flock_config c = config();
	struct flock_event e = {.kind = FLOCK_EVENT_SAVED};
	(void)state;
	open_with(&c, 0);
	wish(WISH_SAVE);
	assert_int_equal(did(FLOCK_DO_SAVE), 1);
	assert_true(bed_did(&b, FLOCK_DO_SAVE)->wished);
	e.saved_step = 10;
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).saves, 1);
	assert_int_equal(bed_view(&b).saved_step, 10);
	assert_int_equal(bed_view(&b).saved_ms, b.now_ms);
	/* One that failed is none. */
	e.saved_step = 20;
	e.code = ERR_IO;
	bed_step(&b, e);
	assert_int_equal(bed_view(&b).saves, 1);
	assert_int_equal(bed_view(&b).saved_step, 10);
}

/* Only what trains can pause, and only what has paused goes on. */
static void test_pause(void **state)
{
	struct flock_config c = config();
	(void)state;
	bed_open(&b, &c);
	bed_record(&b, 1, 0, 1);
	wish(WISH_PAUSE);
	assert_int_equal(did(FLOCK_DO_PAUSE), 0);
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	bed_train_with(&b, 1);
	wish(WISH_RESUME);
	assert_int_equal(did(FLOCK_DO_TRAIN), 0);
	for (int i = 0; i < 2; i++) {
		wish(WISH_PAUSE);
		assert_int_equal(did(FLOCK_DO_PAUSE), i == 0);
		assert_int_equal(b.a->n_says, i == 0 ? 2 : 0);
		assert_int_equal(bed_view(&b).phase, FLOCK_PAUSED);
	}
	assert_null(bed_said(&b, SAY_PAUSED));
	wish(WISH_RESUME);
	assert_int_equal(did(FLOCK_DO_TRAIN), 1);
	assert_non_null(bed_said(&b, SAY_RESUMED));
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
}

/* In the middle of a run there is no result: a checkpoint only. */
static void test_leave_in_training(void **state)
{
	struct flock_config c = config();
	(void)state;
	open_with(&c, 0);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_SAVE), 1);
	assert_false(bed_did(&b, FLOCK_DO_SAVE)->wished); /* it finds a place, whatever waits */
	assert_int_equal(did(FLOCK_DO_EXPORT), 0);
	assert_int_equal(did(FLOCK_DO_STOP), 1);
	assert_true(flock_unsaved(b.core));
	wish(WISH_SAVE); /* it is under way, and the last one */
	assert_int_equal(did(FLOCK_DO_SAVE), 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_SAVED});
	assert_false(flock_unsaved(b.core));
}

/* What a peer asks of a learner that has stopped gets no answer. */
static void test_messages_after_the_learner(void **state)
{
	struct flock_config c = config();
	struct exchange_message m;
	(void)state;
	open_with(&c, 1);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_STOP), 1);
	m = bed_offer(&b, 5);
	bed_hear(&b, 1, &m);
	assert_int_equal(b.a->n_sends, 0);
	assert_int_equal(bed_view(&b).counts.busy_given, 0);
}

static void test_agent_without_a_learner(void **state)
{
	struct flock_config c = config();
	struct exchange_message m;
	(void)state;
	c.learner = false;
	bed_open(&b, &c);
	bed_record(&b, 1, 0, 1);
	m = bed_offer(&b, 5);
	bed_hear(&b, 1, &m);
	assert_int_equal(b.a->n_sends, 0);
	b.now_ms += 5000; /* probes are due: goodbye does not wait for them */
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_LEFT), 1);
}

/* What of a day's quota was used before counts on. */
static void test_quota_of_an_earlier_life(void **state)
{
	struct flock_config c = config();
	(void)state;
	c.quota = (struct gate_quota){.day_start_s = 86400, .bytes = 700};
	c.wall_s = 86400 + 1000;
	bed_open(&b, &c);
	assert_int_equal(flock_quota(b.core, c.wall_s).bytes, 700);
	assert_int_equal(flock_quota(b.core, c.wall_s).day_start_s, 86400);
	assert_int_equal(flock_quota(b.core, c.wall_s + 86400).bytes, 0);
}

/* ---- the result */

/* A full disk: some tries, one more at the very end, then it goes all the same. */
static void test_result_that_cannot_be_written(void **state)
{
	struct flock_event failed = {.kind = FLOCK_EVENT_EXPORTED, .code = ERR_IO};
	struct flock_config c = config();
	int tries = 0;
	(void)state;
	c.alone = true;
	open_with(&c, 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	for (int i = 0; i < 1200 && did(FLOCK_DO_STOP) == 0; i++) {
		if (i > 0 && did(FLOCK_DO_EXPORT) > 0) {
			tries++;
			bed_step(&b, failed);
			bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_SAVED});
		}
		bed_pass(&b, 50);
	}
	assert_int_equal(did(FLOCK_DO_STOP), 1);
	assert_int_equal(tries, 4);
	assert_int_equal(did(FLOCK_DO_EXPORT), 1);
	assert_int_equal(bed_view(&b).phase, FLOCK_LEAVING);
	assert_true(flock_unsaved(b.core));
}

static void test_result_is_written_when_the_learner_has_room(void **state)
{
	struct flock_config c = config();
	struct flock_event e = {.kind = FLOCK_EVENT_REFUSED};
	(void)state;
	c.alone = true;
	bed_open(&b, &c);
	bed_train_with(&b, 0);
	bed_train(&b, 10, 0.1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	for (int i = 0; i < 20 && !bed_did(&b, FLOCK_DO_EXPORT); i++)
		bed_pass(&b, 50);
	assert_non_null(bed_did(&b, FLOCK_DO_EXPORT));
	e.refused = FLOCK_DO_EXPORT;
	bed_step(&b, e);
	assert_non_null(bed_said(&b, SAY_UNWRITTEN));
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_SAVED});
	for (int i = 0; i < 100 && !bed_did(&b, FLOCK_DO_EXPORT); i++)
		bed_pass(&b, 50);
	assert_non_null(bed_did(&b, FLOCK_DO_EXPORT));
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_EXPORTED});
	assert_true(bed_view(&b).finished);
}

/* ---- the ledger */

/* The gate's wish becomes an offer; returns to whom, and its number. */
static int offered(uint64_t *number)
{
	for (int k = 0; k < 200; k++) {
		for (int i = 0; i < b.a->n_sends; i++)
			if (b.a->send[i].message.kind == EXCHANGE_OFFER) {
				*number = b.a->send[i].message.exchange;
				return b.a->send[i].to.bytes[0] - 0x10;
			}
		for (int i = 1; i <= 2; i++)
			bed_record(&b, i, 0, 1);
		bed_pass(&b, 50);
		if (bed_view(&b).phase == FLOCK_TRAINING)
			bed_train(&b, 1, 0.1);
	}
	fail();
	return 0;
}

static const struct ledger_entry *last_tried(void)
{
	const struct ledger *l = bed_view(&b).ledger;
	for (uint32_t i = 0; i < ledger_count(l); i++)
		if (ledger_get(l, i)->tried)
			return ledger_get(l, i);
	return NULL;
}

static void busy(int from, uint64_t number)
{
	struct exchange_message m = {.kind = EXCHANGE_BUSY, .exchange = number};
	m.busy.why = EXCHANGE_ENGAGED;
	m.busy.manifest = b.c.manifest;
	bed_hear(&b, from, &m);
}

static void test_ledger_tells_of_an_offer(void **state)
{
	struct flock_config c = config();
	uint64_t number;
	(void)state;
	c.gate.every_samples = 40 * 32;
	open_with(&c, 2);
	int to = offered(&number);
	const struct ledger_entry *e = last_tried();
	struct peer_id id = bed_id(to);
	assert_non_null(e);
	assert_true(e->wanted && !e->settled);
	assert_memory_equal(&e->peer, &id, sizeof id);
	assert_true(e->delta == 0); /* every so many steps: no change is too small */
	busy(to, number);
	e = last_tried();
	assert_true(e->settled);
	assert_int_equal(e->outcome, OUTCOME_BUSY);

	/* A merge round is no decision of the gate's: the entry stays as it is. */
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	offered(&number);
	bed_pass(&b, 5000);
	assert_true(bed_view(&b).counts.by_outcome[OUTCOME_TIMEOUT] > 0);
	assert_ptr_equal(last_tried(), e);
	const struct ledger *l = bed_view(&b).ledger;
	int tried = 0;
	for (uint32_t i = 0; i < ledger_count(l); i++)
		tried += ledger_get(l, i)->tried;
	assert_int_equal(tried, 1);
	assert_int_equal(e->outcome, OUTCOME_BUSY);
	assert_memory_equal(&e->peer, &id, sizeof id);
}

/* ---- donations */

static uint64_t numbers;

static void ask(int from, uint64_t snapshot, uint64_t offset)
{
	struct exchange_message m = {.kind = EXCHANGE_FETCH, .exchange = ++numbers};
	m.fetch.manifest = b.c.manifest;
	m.fetch.snapshot = snapshot;
	m.fetch.offset = offset;
	bed_hear(&b, from, &m);
}

static void state_taken(void)
{
	struct flock_event e = {.kind = FLOCK_EVENT_STATE};
	assert_int_equal(did(FLOCK_DO_TAKE_STATE), 1);
	e.state = (struct flock_state){.step = 10,
	        .samples = 320,
	        .clock = 400,
	        .optim_steps = 7,
	        .optimizer = 3,
	        .vectors = 2,
	        .batch = 96,
	        .noise = 0.5,
	        .signal = -0.25};
	bed_step(&b, e);
}

static void connected(int from, uint64_t number)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(from), .exchange = number};
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
}

static void unsent(int to, uint64_t number)
{
	bed_step(&b, (struct flock_event){
	                     .kind = FLOCK_EVENT_UNSENT, .peer = bed_id(to), .exchange = number});
}

/* The joiner's optimizer goes on from what the donor's has. */
static void test_gift_tells_what_it_is(void **state)
{
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	ask(1, 0, 100); /* of a donor that is gone it has a part */
	state_taken();
	const struct exchange_message *m = bed_sent(&b, EXCHANGE_GIFT);
	assert_non_null(m);
	assert_int_equal(m->gift.offset, 100);
	assert_int_equal(m->gift.step, 10);
	assert_int_equal(m->gift.samples, 320);
	assert_int_equal(m->gift.clock, 400);
	assert_int_equal(m->gift.optim_steps, 7);
	assert_int_equal(m->gift.optimizer, 3);
	assert_int_equal(m->gift.vectors, 2);
	assert_int_equal(m->gift.batch, 96);
	assert_true(m->gift.noise == 0.5f && m->gift.signal == -0.25f);
	ask(1, 0, 2 * BED_COUNT); /* it has more than there is */
	assert_int_equal(bed_sent(&b, EXCHANGE_GIFT)->gift.offset, 0);
}

/* No memory for a copy: who waits for it is told, once, and nobody else. */
static void test_copy_that_cannot_be_taken(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_REFUSED};
	struct flock_config c = config();
	struct peer_id first = bed_id(1);
	(void)state;
	open_with(&c, 2);
	ask(1, 0, 0);
	e.refused = FLOCK_DO_TAKE_STATE;
	bed_step(&b, e);
	assert_int_equal(bed_said(&b, SAY_REFUSED)->a, FLOCK_DO_TAKE_STATE);
	assert_int_equal(b.a->n_sends, 1);
	assert_int_equal(b.a->send[0].message.kind, EXCHANGE_BUSY);
	assert_int_equal(b.a->send[0].message.exchange, numbers);
	assert_memory_equal(&b.a->send[0].to, &first, sizeof first);
	/* The next who asks is served. */
	ask(2, 0, 0);
	state_taken();
	assert_int_equal(b.a->n_sends, 1);
	assert_int_equal(b.a->send[0].message.kind, EXCHANGE_GIFT);
}

/* A joiner that was promised a copy gets this one, also when it has become old meanwhile. */
static void test_promised_copy_stays(void **state)
{
	struct flock_config c = config();
	(void)state;
	open_with(&c, 3);
	ask(1, 0, 0);
	state_taken();
	uint64_t copy = bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot;
	bed_pass(&b, 8000);
	ask(2, 0, 0);
	assert_int_equal(bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot, copy);
	bed_pass(&b, 8000);
	ask(3, 0, 0);
	assert_int_equal(did(FLOCK_DO_TAKE_STATE), 0);
	assert_int_equal(bed_sent(&b, EXCHANGE_GIFT)->gift.snapshot, copy);
}

/* A minute long a joiner whose transfer broke finds the rest of it. */
static void test_copy_is_kept_for_a_minute(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED, .code = ERR_IO};
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	ask(1, 0, 0);
	state_taken();
	uint64_t taken_ms = b.now_ms;
	connected(1, numbers);
	e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	e.exchange = numbers;
	bed_step(&b, e);
	while (did(FLOCK_DO_RELEASE) == 0 && b.now_ms - taken_ms < 70000)
		bed_pass(&b, 50);
	assert_in_range(b.now_ms - taken_ms, 60000, 60200);
	assert_int_equal(bed_did(&b, FLOCK_DO_RELEASE)->slot, SLOT_DONATED);
	/* And as long as somebody reads it. */
	ask(1, 0, 0);
	state_taken();
	taken_ms = b.now_ms;
	connected(1, numbers);
	e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	e.exchange = numbers;
	while (did(FLOCK_DO_RELEASE) == 0 && b.now_ms - taken_ms < 70000)
		bed_pass(&b, 50);
	assert_int_equal(did(FLOCK_DO_RELEASE), 0);
	bed_step(&b, e);
	bed_pass(&b, 50);
	int released = did(FLOCK_DO_RELEASE);
	bed_pass(&b, 50);
	assert_int_equal(released + did(FLOCK_DO_RELEASE), 1);
}

/* Where all have it whole nobody asks for the rest, and nobody new gets it after 15 s. */
static void test_whole_copy_goes_sooner(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED};
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	for (int i = 0; i < 3; i++) { /* broken, and whole again: each copy for itself */
		ask(1, 0, 0);
		state_taken();
		uint64_t taken_ms = b.now_ms;
		connected(1, numbers);
		e.code = i == 1 ? ERR_IO : 0;
		e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
		e.exchange = numbers;
		bed_step(&b, e);
		while (did(FLOCK_DO_RELEASE) == 0 && b.now_ms - taken_ms < 70000)
			bed_pass(&b, 50);
		uint64_t ms = i == 1 ? 60000 : 15000;
		assert_in_range(b.now_ms - taken_ms, ms, ms + 200);
		assert_int_equal(bed_did(&b, FLOCK_DO_RELEASE)->slot, SLOT_DONATED);
		bed_record(&b, 1, 320, 1);
	}
}

/* In a short run a few seconds are a long way: one of half our steps is no model of the flock. */
static void test_copy_of_the_beginning_is_old(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED};
	struct flock_config c = config();
	(void)state;
	open_with(&c, 2);
	ask(1, 0, 0);
	state_taken();
	connected(1, numbers);
	e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	e.exchange = numbers;
	bed_step(&b, e);
	bed_train(&b, 11, 0.1); /* 21 now, and 10 in the copy */
	ask(2, 0, 0);
	assert_int_equal(did(FLOCK_DO_TAKE_STATE), 0);
	e.exchange = numbers;
	connected(2, numbers);
	e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	bed_step(&b, e);
	bed_train(&b, 1, 0.1);
	ask(1, 0, 0);
	assert_int_equal(did(FLOCK_DO_TAKE_STATE), 1);
}

/* A joiner that cannot dial us would wait long for the connection that we cannot make. */
static void test_joiner_that_is_not_reached_is_told(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(1)};
	struct exchange_message m = {.kind = EXCHANGE_OPEN};
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	ask(1, 0, 0);
	state_taken();
	m.exchange = numbers;
	bed_hear(&b, 1, &m);
	assert_int_equal(did(FLOCK_DO_OPEN), 1);
	e.exchange = numbers;
	e.bulk = BULK_FAILED;
	bed_step(&b, e);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(bed_sent(&b, EXCHANGE_BUSY)->exchange, numbers);
	/* And its place is free: a connection that comes now is nobody's. */
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 0);
	assert_int_equal(did(FLOCK_DO_CLOSE), 1);
}

/* A transfer reads memory until it has ended, whatever could not be said to its joiner. */
static void test_transfer_is_waited_for(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_TRANSFERRED};
	struct flock_config c = config();
	int left = 0;
	(void)state;
	open_with(&c, 1);
	ask(1, 0, 0);
	state_taken();
	connected(1, numbers);
	e.transferred.use = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	e.exchange = numbers;
	unsent(1, numbers);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_CANCEL), 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_SAVED});
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STOPPED});
	for (int i = 0; i < 20; i++) {
		left += did(FLOCK_DO_LEFT);
		bed_pass(&b, 50);
	}
	assert_int_equal(left, 0);
	bed_step(&b, e);
	for (int i = 0; i < 20; i++) {
		left += did(FLOCK_DO_LEFT);
		bed_pass(&b, 50);
	}
	assert_int_equal(left, 1);
}

/* Who leaves ends each transfer, by the use that it began with. */
static void test_leaving_ends_all_transfers(void **state)
{
	struct flock_config c = config();
	uint8_t use[2];
	uint64_t number[2];
	(void)state;
	open_with(&c, 2);
	for (int i = 0; i < 2; i++) {
		ask(i + 1, 0, 0);
		if (i == 0)
			state_taken();
		number[i] = numbers;
		connected(i + 1, numbers);
		use[i] = bed_did(&b, FLOCK_DO_TRANSFER)->use;
	}
	assert_int_not_equal(use[0], use[1]);
	wish(WISH_LEAVE);
	assert_int_equal(did(FLOCK_DO_CANCEL), 2);
	for (int i = 0; i < b.a->n_actions; i++) {
		const struct flock_action *a = &b.a->action[i];
		int to = a->peer.bytes[0] - 0x11;
		if (a->kind != FLOCK_DO_CANCEL)
			continue;
		assert_in_range(to, 0, 1);
		assert_int_equal(a->use, use[to]);
		assert_int_equal(a->exchange, number[to]);
	}
}

/* One copy is taken for all who ask while it is on its way. */
static void test_one_copy_for_all(void **state)
{
	struct flock_config c = config();
	(void)state;
	open_with(&c, 3);
	for (int i = 1; i <= 3; i++) {
		ask(i, 0, 0);
		assert_int_equal(did(FLOCK_DO_TAKE_STATE), i == 1);
		assert_int_equal(b.a->n_sends, 0);
	}
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STATE,
	                     .state = {.step = 10, .vectors = 2}});
	assert_int_equal(b.a->n_sends, 3);
}

/* A joiner has its 15 s from our answer on, however long the copy took. */
static void test_joiner_has_time_from_the_answer_on(void **state)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(1)};
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	ask(1, 0, 0);
	b.now_ms += 10000;
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STATE,
	                     .state = {.step = 10, .vectors = 2}});
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
	bed_pass(&b, 14000);
	connected(1, numbers);
	bed_close(&b);
	/* And no longer. */
	open_with(&c, 1);
	ask(1, 0, 0);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_STATE,
	                     .state = {.step = 10, .vectors = 2}});
	bed_pass(&b, 15200);
	e.exchange = numbers;
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 0);
}

/* Exchanges with it to the end: it is a stranger no more. */
static void meet(int who)
{
	struct flock_event e = {.kind = FLOCK_EVENT_BULK, .peer = bed_id(who)};
	struct sketch at = bed_place(10, 0.01 * who);
	struct exchange_message m = bed_offer(&b, ++numbers);
	m.terms.clock = 0;
	bed_hear(&b, who, &m);
	e.exchange = numbers;
	e.bulk = BULK_CAME;
	bed_step(&b, e);
	assert_int_equal(did(FLOCK_DO_TRANSFER), 1);
	e = (struct flock_event){.kind = FLOCK_EVENT_TRANSFERRED, .exchange = numbers};
	e.transferred.use = USE_EXCHANGE;
	e.transferred.received = BED_COUNT;
	e.transferred.bytes_sent = 5000;
	e.transferred.bytes_received = 5100;
	bed_step(&b, e);
	e = (struct flock_event){.kind = FLOCK_EVENT_MEASURED};
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = true;
	e.measured.distance2[0] = 0.01;
	e.measured.sketch = &at;
	bed_step(&b, e);
	m = (struct exchange_message){.kind = EXCHANGE_END, .exchange = numbers};
	m.end.n = b.c.n_groups;
	for (int g = 0; g < b.c.n_groups; g++)
		m.end.factor[g] = 1;
	bed_hear(&b, who, &m);
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = numbers};
	bed_hear(&b, who, &m);
	assert_int_equal(did(FLOCK_DO_APPLY), 1);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	m = (struct exchange_message){.kind = EXCHANGE_ACK, .exchange = numbers};
	bed_hear(&b, who, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

/* What an exchange sent is taken from the user's budget, and is in the counts. */
static void test_bytes_are_paid(void **state)
{
	struct flock_config c = config();
	(void)state;
	c.n_groups = EXCHANGE_GROUPS_MAX;
	open_with(&c, 1);
	assert_int_equal(flock_quota(b.core, 0).bytes, 0);
	meet(1);
	assert_int_equal(flock_quota(b.core, 0).bytes, 5000);
	assert_int_equal(bed_view(&b).counts.bytes_sent, 5000);
	assert_int_equal(bed_view(&b).counts.bytes_received, 5100);
	assert_int_equal(bed_view(&b).counts.taken, 1);
}

/* All four places: strangers have three, one that we know the last. */
static uint64_t fill_places(void)
{
	struct flock_config c = config();
	open_with(&c, 6);
	meet(4);
	meet(5);
	bed_train(&b, 1, 0.1);
	ask(1, 0, 0);
	state_taken();
	for (int i = 2; i <= 4; i++) {
		ask(i, 0, 0);
		assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
	}
	return numbers;
}

/* Who has had a place for longest gives way, whichever it is. */
static void test_longest_gives_way(void **state)
{
	struct peer_id fourth = bed_id(4);
	(void)state;
	uint64_t last = fill_places();
	connected(4, last);
	bed_pass(&b, 2000);
	for (int i = 1; i <= 3; i++)
		ask(i, 0, 0); /* anew */
	bed_pass(&b, 6000);
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(did(FLOCK_DO_CANCEL), 1);
	assert_memory_equal(&bed_did(&b, FLOCK_DO_CANCEL)->peer, &fourth, sizeof fourth);
}

/* Each place hears its joiner, the last one, too. */
static void test_all_places_hear(void **state)
{
	struct exchange_message m = {.kind = EXCHANGE_OPEN};
	(void)state;
	uint64_t last = fill_places();
	for (int i = 1; i <= 4; i++) {
		m.exchange = last - 4 + (uint64_t)i;
		bed_hear(&b, i, &m);
		assert_int_equal(did(FLOCK_DO_OPEN), 1);
	}
}

/* The place is kept for the one for whom it was made, until it has it, and no longer. */
static void test_place_is_kept_once(void **state)
{
	(void)state;
	uint64_t last = fill_places();
	bed_pass(&b, 6000);
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
	unsent(2, last - 2);
	unsent(3, last - 1);
	ask(6, 0, 0); /* a stranger: of two places one is for those that we know */
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
}

/* Where nobody gives way yet, no place is kept for who asked. */
static void test_nobody_gives_way_at_once(void **state)
{
	(void)state;
	uint64_t last = fill_places();
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	assert_int_equal(did(FLOCK_DO_CANCEL), 0);
	unsent(4, last);
	ask(4, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
}

/* A place whose joiner could not be told of it is free. */
static void test_gift_that_was_not_sent(void **state)
{
	(void)state;
	uint64_t last = fill_places();
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_BUSY));
	unsent(4, last);
	ask(5, 0, 0);
	assert_non_null(bed_sent(&b, EXCHANGE_GIFT));
}

/* ---- status */

/* More results than are kept: the last ones are, and none of them has moved us. */
static void test_results_are_a_ring(void **state)
{
	struct flock_config c = config();
	(void)state;
	open_with(&c, 1);
	for (int i = 0; i < FLOCK_RECENT + 10; i++) {
		struct exchange_message m = bed_offer(&b, ++numbers);
		m.terms.manifest.model++;
		bed_hear(&b, 1, &m);
	}
	struct flock_view v = bed_view(&b);
	assert_int_equal(v.n_recent, FLOCK_RECENT + 10);
	assert_int_equal(v.counts.by_outcome[OUTCOME_UNLIKE], FLOCK_RECENT + 10);
	assert_int_equal(v.recent[(v.n_recent - 1) % FLOCK_RECENT].exchange, numbers);
	assert_int_equal(v.recent[v.n_recent % FLOCK_RECENT].exchange, numbers - FLOCK_RECENT + 1);
	assert_false(v.timed);
}

/* It asks to be woken when there is something to do, and then does it: nothing is due twice. */
static void test_wakes_when_something_is_due(void **state)
{
	struct flock_config c = config();
	int same = 0;
	(void)state;
	c.gate.every_samples = 32;
	open_with(&c, 2);
	uint64_t end = b.now_ms + 30000, began = b.now_ms;
	for (int n = 0; b.now_ms < end; n++) {
		uint64_t wake_ms = b.a->wake_ms;
		assert_true(wake_ms >= b.now_ms && wake_ms < b.now_ms + 1000);
		same = wake_ms == b.now_ms ? same + 1 : 0;
		assert_true(same < 10 && n < 3000);
		b.now_ms = wake_ms;
		bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_TIMER});
		if (b.now_ms > began + 500) {
			began = b.now_ms;
			bed_record(&b, 1, 320, 1);
			bed_train(&b, 1, 0.1);
		}
	}
	/* Offers that nobody answers are given up on time. */
	assert_in_range(bed_view(&b).counts.by_outcome[OUTCOME_TIMEOUT], 2, 10);
}

static void test_consensus(void **state)
{
	struct flock_config c = config();
	double distance = -1;
	(void)state;
	open_with(&c, 2);
	assert_int_equal(flock_consensus(b.core, &distance), 0);
	assert_true(distance == 0);
	for (int i = 1; i <= 2; i++)
		bed_record(&b, i, 3200, 1);
	for (int i = 1; i <= 2; i++) {
		struct sketch at = bed_place(10, i);
		struct exchange_message m = bed_offer(&b, ++numbers);
		sketch_pack(&at, m.terms.sketch);
		bed_hear(&b, i, &m);
	}
	assert_int_equal(flock_consensus(b.core, &distance), 2);
	assert_true(distance > 0.1 && distance < 10);
	bed_word(&b, 2, 3200, 1, true); /* who has left is nowhere */
	assert_int_equal(flock_consensus(b.core, &distance), 1);
}

#define TEST(x) cmocka_unit_test_teardown(x, close_bed)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_save),
	        TEST(test_pause),
	        TEST(test_leave_in_training),
	        TEST(test_messages_after_the_learner),
	        TEST(test_agent_without_a_learner),
	        TEST(test_quota_of_an_earlier_life),
	        TEST(test_result_that_cannot_be_written),
	        TEST(test_result_is_written_when_the_learner_has_room),
	        TEST(test_ledger_tells_of_an_offer),
	        TEST(test_gift_tells_what_it_is),
	        TEST(test_copy_that_cannot_be_taken),
	        TEST(test_promised_copy_stays),
	        TEST(test_copy_is_kept_for_a_minute),
	        TEST(test_whole_copy_goes_sooner),
	        TEST(test_copy_of_the_beginning_is_old),
	        TEST(test_joiner_that_is_not_reached_is_told),
	        TEST(test_transfer_is_waited_for),
	        TEST(test_leaving_ends_all_transfers),
	        TEST(test_one_copy_for_all),
	        TEST(test_joiner_has_time_from_the_answer_on),
	        TEST(test_bytes_are_paid),
	        TEST(test_longest_gives_way),
	        TEST(test_all_places_hear),
	        TEST(test_place_is_kept_once),
	        TEST(test_nobody_gives_way_at_once),
	        TEST(test_gift_that_was_not_sent),
	        TEST(test_results_are_a_ring),
	        TEST(test_wakes_when_something_is_due),
	        TEST(test_consensus),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
