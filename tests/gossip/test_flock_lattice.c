/* SPDX-License-Identifier: MIT */
/* Exchanges modulo a lattice, as the flock judges them: rounding excuses no distance, scales follow
 * what is used and nothing else, and blocks that were left out are no agreement. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

#define RUNS 32
#define BF16 1
#define MOD8 2
#define MOD4 3

static struct bed b;
static uint64_t number;
static bool measured_scales;
static int8_t theirs[RUNS]; /* scales of whoever offers */

/* What a transfer brings. */
struct came {
	double distance, rounding2;
	int8_t found; /* of each run */
	uint64_t wrapped;
	struct sketch at;
};

static uint8_t wire = MOD4; /* ours */

static struct flock_config lattice_config(void)
{
	struct flock_config c = bed_config();
	c.rate_cap = 1e12;
	c.stale = 10; /* of the run: never */
	c.lr_peak = 0.1;
	c.momentum = 0.9;
	/* Nobody answers our own offers: the peer's, of a lower id, cross them. */
	c.membership.self = bed_id(9);
	c.manifest.count = RUNS * SCALES_BLOCK;
	c.manifest.formats = 15;
	c.scaled = 1 << MOD8 | 1 << MOD4;
	c.plain = BF16;
	c.merge = MOD8;
	c.format = wire;
	c.format_why = FORMAT_STATED;
	c.n_formats = 4;
	for (int i = 0; i < 4; i++)
		c.exchange_bytes[i] = 4 * c.manifest.count;
	return c;
}

static int open_bed(void **state)
{
	struct flock_config c = lattice_config();
	(void)state;
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	bed_train(&b, 20, 0.1);
	memset(theirs, -10, sizeof theirs);
	number = 0;
	return 0;
}

static int open_plain(void **state)
{
	wire = BF16;
	int rc = open_bed(state);
	wire = MOD4;
	return rc;
}

static int close_bed(void **state)
{
	(void)state;
	bed_close(&b);
	return 0;
}

/* Never the same place twice. */
static struct came near_by(void)
{
	static int n;
	return (struct came){
	        .distance = 0.2, .found = -10, .at = bed_place(10, 0.01 * (n++ % 7 + 1))};
}

/* The peer offers; what we accept. */
static const struct exchange_terms *offered(uint8_t format, bool final)
{
	struct exchange_message m = bed_offer(&b, ++number);
	bed_pass(&b, 100);
	m.terms.final = final;
	m.terms.format = format;
	m.terms.n_scales = format >= MOD8 ? RUNS : 0;
	memcpy(m.terms.scales, theirs, sizeof theirs);
	m.terms.clock = final ? BED_TOTAL : 0;
	bed_hear(&b, 1, &m);
	assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
	return &bed_sent(&b, EXCHANGE_ACCEPT)->terms;
}

static void step_bulk(uint8_t kind, int code)
{
	struct flock_event e = {.kind = kind, .peer = bed_id(1), .exchange = number, .code = code};
	if (kind == FLOCK_EVENT_BULK)
		e.bulk = BULK_CAME;
	else {
		e.transferred.use = USE_EXCHANGE;
		e.transferred.received = code ? 0 : b.c.manifest.count;
	}
	bed_step(&b, e);
}

static void measured(const struct came *came, bool lattice)
{
	static int8_t found[RUNS], size[RUNS];
	struct flock_event e = {.kind = FLOCK_EVENT_MEASURED};
	memset(found, came->found, sizeof found);
	memset(size, 4, sizeof size);
	e.measured.slot = SLOT_STAGING;
	e.measured.finite = true;
	e.measured.distance2[0] = came->distance * came->distance;
	e.measured.rounding2 = came->rounding2;
	e.measured.sketch = &came->at;
	e.measured.found = found;
	e.measured.size = size;
	e.measured.n_scales = measured_scales ? RUNS : 0;
	e.measured.blocks = lattice ? RUNS : 0;
	e.measured.wrapped = came->wrapped;
	bed_step(&b, e);
}

/* It offers and sends that; true: it is used. */
static bool comes(uint8_t format, const struct came *came, bool final)
{
	bool lattice = offered(format, final)->format >= MOD8;
	step_bulk(FLOCK_EVENT_BULK, 0);
	assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
	step_bulk(FLOCK_EVENT_TRANSFERRED, 0);
	assert_non_null(bed_did(&b, FLOCK_DO_MEASURE));
	measured_scales = bed_did(&b, FLOCK_DO_MEASURE)->scales;
	measured(came, lattice);
	return bed_sent(&b, EXCHANGE_END) != NULL;
}

/* The same, to its end; returns our factor. */
static double exchange(uint8_t format, const struct came *came, bool final)
{
	struct exchange_message m = {.kind = EXCHANGE_END};
	assert_true(comes(format, came, final));
	double factor = (double)bed_sent(&b, EXCHANGE_END)->end.factor[0];
	m.exchange = number;
	m.end.n = 2;
	m.end.factor[0] = m.end.factor[1] = 1;
	bed_hear(&b, 1, &m);
	m = (struct exchange_message){.kind = EXCHANGE_COMMIT, .exchange = number};
	bed_hear(&b, 1, &m);
	assert_non_null(bed_did(&b, FLOCK_DO_APPLY));
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_APPLIED});
	m = (struct exchange_message){.kind = EXCHANGE_ACK, .exchange = number};
	bed_hear(&b, 1, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
	return factor;
}

/* After a failure it is left alone for a while. */
static void wait_for_it(void)
{
	for (int i = 0; i < 10; i++) {
		bed_record(&b, 1, 320, 1);
		bed_pass(&b, 1000);
	}
}

static void say_abort(void)
{
	struct exchange_message m = {.kind = EXCHANGE_ABORT, .exchange = number};
	bed_hear(&b, 1, &m);
	assert_int_equal(bed_view(&b).exchange_state, EXCHANGE_IDLE);
}

static void give_up(void)
{
	say_abort();
	wait_for_it();
}

/* As an offer in a lattice is answered. */
static int our_scale(void)
{
	const struct exchange_terms *t = offered(MOD4, false);
	assert_int_equal(t->format, MOD4);
	assert_int_equal(t->n_scales, RUNS);
	for (int i = 1; i < RUNS; i++)
		assert_int_equal(t->scales[i], t->scales[0]);
	int scale = t->scales[0];
	give_up();
	return scale;
}

static void usually_near(void)
{
	for (int i = 0; i < CLIP_WARM; i++) {
		struct came c = near_by();
		assert_true(exchange(BF16, &c, false) >= 1);
		bed_train(&b, 1, 0.1);
	}
	assert_true(fabs(bed_view(&b).radius - 0.5) < 0.01);
	assert_int_equal(our_scale(), -10);
}

/* ---- distances */

/* However coarse a peer has made the steps: what it moves us by is as far as it is. Only the
 * guard's estimate leaves the rounding out. */
static void test_rounding_excuses_nothing(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	assert_false(bed_view(&b).guard.known);
	c.distance = 1;
	c.rounding2 = 0.99;
	assert_true(fabs(exchange(MOD4, &c, false) - 0.5) < 0.01);
	assert_int_equal(bed_view(&b).counts.clipped, 1);
	assert_true(fabs(bed_view(&b).distance - 1) < 1e-9);
	assert_true(fabs(bed_view(&b).guard.consensus - 0.05) < 1e-9); /* two agents, 0.1 apart */
}

/* ---- scales */

static void test_scales_follow_what_is_used(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	c.found = -7;
	exchange(MOD4, &c, false);
	assert_int_equal(our_scale(), -7);
	c = near_by();
	c.found = -20;
	exchange(MOD4, &c, false);
	assert_int_equal(our_scale(), -8);
}

static void test_clipped_raises_by_little(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	c.distance = 1;
	c.found = 20;
	assert_true(exchange(MOD4, &c, false) < 0.6);
	assert_int_equal(our_scale(), -6);
}

/* Without scales an offer in a lattice becomes bf16, in a merge round fp32: it gets the time of its
 * bytes. */
static void test_time_of_what_it_becomes(void **state)
{
	(void)state;
	for (int final = 0; final < 2; final++) {
		struct flock_config c = lattice_config();
		for (int i = 0; i < 4; i++)
			c.exchange_bytes[i] = 40000000u >> i;
		bed_close(&b);
		bed_open(&b, &c);
		bed_train_with(&b, 1);
		bed_train(&b, 20, 0.1);
		struct exchange_message m = bed_offer(&b, ++number);
		m.terms.final = final;
		m.terms.format = MOD8;
		m.terms.clock = final ? BED_TOTAL : 0;
		bed_hear(&b, 1, &m);
		assert_non_null(bed_sent(&b, EXCHANGE_ACCEPT));
		assert_int_equal(bed_sent(&b, EXCHANGE_ACCEPT)->terms.format, final ? 0 : BF16);
		step_bulk(FLOCK_EVENT_BULK, 0);
		assert_non_null(bed_did(&b, FLOCK_DO_TRANSFER));
		assert_int_equal(bed_did(&b, FLOCK_DO_TRANSFER)->transfer.deadline_ms,
		        final ? 40000 : 20000); /* 1 MB a second */
	}
}

/* The steps of an exchange follow the larger scale of the two. */
static void test_larger_scale_is_used(void **state)
{
	(void)state;
	usually_near();
	for (int i = 0; i < RUNS; i++)
		theirs[i] = i % 2 ? -7 : -12;
	assert_int_equal(offered(MOD4, false)->format, MOD4);
	const struct flock_action *s = bed_did(&b, FLOCK_DO_SNAPSHOT);
	assert_non_null(s);
	assert_int_equal(s->snapshot.n_scales, RUNS);
	for (int i = 0; i < RUNS; i++)
		assert_int_equal(s->snapshot.scales[i], i % 2 ? -7 : -10);
}

/* What is not believed teaches nothing; and it is looked at in numbers, until it is believed. */
static void test_doubted_teaches_nothing(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	c.distance = 0.4;
	exchange(MOD4, &c, false);
	c.found = 20; /* and where it was before */
	assert_false(comes(MOD4, &c, false));
	wait_for_it();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(offered(MOD4, false)->format, BF16);
		give_up();
	}
	c = near_by();
	exchange(BF16, &c, false);
	assert_int_equal(our_scale(), -10);
}

/* Nor does garbage, of which all blocks wrap; the next exchange is in numbers, once. */
static void test_garbage_teaches_nothing(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	c.found = SCALES_WRAPPED;
	c.wrapped = RUNS;
	assert_false(comes(MOD4, &c, false));
	wait_for_it();
	c = near_by();
	assert_int_equal(offered(MOD4, false)->format, BF16);
	give_up();
	exchange(BF16, &c, false);
	assert_int_equal(our_scale(), -10);
}

/* Nor does what is given up before it is measured. */
static void test_given_up_teaches_nothing(void **state)
{
	struct came c = near_by();
	(void)state;
	usually_near();
	c.found = 20;
	(void)offered(MOD4, false);
	step_bulk(FLOCK_EVENT_BULK, 0);
	step_bulk(FLOCK_EVENT_TRANSFERRED, 0);
	say_abort();
	measured(&c, true);
	wait_for_it();
	assert_int_equal(our_scale(), -10);
}

/* To learn them takes a worker's time: who offers plain formats does so once a peer has asked for
 * another. */
static void test_scales_are_measured_where_needed(void **state)
{
	struct came c = near_by();
	(void)state;
	assert_true(comes(BF16, &c, false));
	assert_false(measured_scales);
	give_up();
	assert_int_equal(offered(MOD4, false)->format, BF16);
	give_up();
	assert_true(comes(BF16, &c, false));
	assert_true(measured_scales);
}

/* ---- a day's quota */

/* Offers of an agent that has met nobody yet, whose quota of 1000 bytes was used up but for so
 * many: an exchange in mod4 takes 100, in bf16 400. */
static int offers(uint64_t left)
{
	struct flock_config c = lattice_config();
	int n = 0;
	c.exchange_bytes[BF16] = c.gate.first_bytes = 400;
	c.exchange_bytes[MOD4] = c.gate.exchange_bytes = 100;
	c.gate.mode = GATE_BUDGET;
	c.gate.bytes_per_day = 1000;
	c.gate.silence_samples = 320;
	c.wall_s = 86400 * 100 + 1000;
	c.quota = (struct gate_quota){.day_start_s = 86400 * 100, .bytes = 1000 - left};
	bed_open(&b, &c);
	bed_train_with(&b, 1);
	for (int i = 0; i < 60; i++) {
		bed_train(&b, 1, 0.1);
		n += bed_sent(&b, EXCHANGE_OFFER) != NULL;
		bed_record(&b, 1, 320, 1);
		bed_pass(&b, 100);
	}
	bed_close(&b);
	return n;
}

/* The first meeting is in bf16: it is not begun by what an exchange in mod4 would take. */
static void test_quota_holds_for_the_first_meeting(void **state)
{
	(void)state;
	assert_true(offers(450) > 0);
	assert_int_equal(offers(350), 0);
}

/* ---- what is told of it */

static void told(int format, enum format_why why)
{
	struct flock_view v = bed_view(&b);
	assert_int_equal(v.format, format);
	assert_int_equal(v.format_why, why);
}

static void test_format_is_told(void **state)
{
	(void)state;
	told(BF16, FORMAT_FIRST);
	usually_near();
	told(MOD4, FORMAT_STATED);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	told(MOD8, FORMAT_MERGE);
}

static void test_plain_format_is_told(void **state)
{
	(void)state;
	told(BF16, FORMAT_STATED);
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	told(0, FORMAT_MERGE);
}

/* ---- the end */

/* Who is near but for what was left out may be anywhere in that. */
static void test_left_out_is_not_near(void **state)
{
	(void)state;
	usually_near();
	bed_step(&b, (struct flock_event){.kind = FLOCK_EVENT_DONE});
	assert_int_equal(bed_view(&b).phase, FLOCK_MERGING);
	struct came c = near_by();
	c.distance = 0;
	c.at = b.place;
	for (int left_out = 1; left_out >= 0; left_out--) {
		c.wrapped = (uint64_t)left_out;
		exchange(MOD8, &c, true);
		bed_record(&b, 1, BED_TOTAL, 1);
		bed_pass(&b, 100);
		assert_int_equal(bed_view(&b).phase, left_out ? FLOCK_MERGING : FLOCK_FINISHED);
	}
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, open_bed, close_bed)
	const struct CMUnitTest tests[] = {
	        TEST(test_rounding_excuses_nothing),
	        TEST(test_scales_follow_what_is_used),
	        TEST(test_clipped_raises_by_little),
	        TEST(test_time_of_what_it_becomes),
	        TEST(test_larger_scale_is_used),
	        TEST(test_doubted_teaches_nothing),
	        TEST(test_garbage_teaches_nothing),
	        TEST(test_given_up_teaches_nothing),
	        cmocka_unit_test_setup_teardown(
	                test_scales_are_measured_where_needed, open_plain, close_bed),
	        cmocka_unit_test(test_quota_holds_for_the_first_meeting),
	        TEST(test_format_is_told),
	        cmocka_unit_test_setup_teardown(
	                test_plain_format_is_told, open_plain, close_bed),
	        TEST(test_left_out_is_not_near),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
