/* SPDX-License-Identifier: MIT */
/* Where agents begin with weights of their own, those of the first one count: the others wait for
 * it, and take its state before their first step. And: a loss that nobody told is none. */
#include "tests/gossip/flock_bed.h"

#include <math.h>

static struct bed b;

/* An agent with that place in the order of ids, and a peer that has trained nothing yet. */
static void open_as(int self, bool first)
{
	struct flock_config c = bed_config();
	c.membership.self = bed_id(self);
	c.first_weights = first;
	bed_open(&b, &c);
	bed_record(&b, 3, 0, NAN);
}

/* Whether it asked for a state while the time passed. */
static bool asks(uint64_t ms)
{
	bool asked = false;
	for (uint64_t end = b.now_ms + ms; b.now_ms < end;) {
		bed_pass(&b, 50);
		asked = asked || bed_sent(&b, EXCHANGE_FETCH);
		bed_record(&b, 3, 0, NAN); /* it lives */
	}
	return asked;
}

static void the_lowest_id_is_first(void **state)
{
	(void)state;
	open_as(0, true);
	assert_false(asks(2500));
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	assert_false(asks(2000));
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_close(&b);
}

static void the_others_wait_for_it(void **state)
{
	(void)state;
	open_as(5, true);
	assert_false(asks(20000));
	assert_int_equal(bed_view(&b).phase, FLOCK_LOOKING);
	bed_record(&b, 3, 32, 2); /* its first step */
	bed_pass(&b, 1000);
	assert_int_equal(bed_view(&b).phase, FLOCK_JOINING);
	bed_close(&b);
}

static void who_never_begins_is_not_waited_for(void **state)
{
	(void)state;
	open_as(5, true);
	assert_false(asks(70000));
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_close(&b);
}

static void whose_weights_are_agreed_on_waits_for_nobody(void **state)
{
	(void)state;
	open_as(5, false);
	assert_false(asks(1000));
	assert_int_equal(bed_view(&b).phase, FLOCK_TRAINING);
	bed_close(&b);
}

static void train(double loss, bool no_loss)
{
	struct flock_trained s = {.step = ++b.step,
	        .samples = b.samples += 32,
	        .loss = loss,
	        .lr = 0.1,
	        .grad_norm = 1,
	        .moved = b.moved += 0.1,
	        .no_loss = no_loss};
	struct flock_event e = {.kind = FLOCK_EVENT_STEPS};
	e.steps.list = &s;
	e.steps.n = 1;
	bed_step(&b, e);
}

static void a_loss_that_is_not_told_is_none(void **state)
{
	(void)state;
	open_as(0, false);
	assert_false(asks(1000));
	train(5, true);
	assert_false(bed_view(&b).has_loss);
	train(2, false);
	train((double)NAN, false);
	train(5, true);
	assert_true(bed_view(&b).has_loss && bed_view(&b).loss == 2);
	assert_int_equal(bed_view(&b).step, 4);
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_lowest_id_is_first),
	        cmocka_unit_test(the_others_wait_for_it),
	        cmocka_unit_test(who_never_begins_is_not_waited_for),
	        cmocka_unit_test(whose_weights_are_agreed_on_waits_for_nobody),
	        cmocka_unit_test(a_loss_that_is_not_told_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
