/* SPDX-License-Identifier: MIT */
/* What follows from having met: who stands still, how far two may be apart, and which of two flocks
 * that were apart adopts the other's parameters. */
#include "gossip/policy/adoption.h"
#include "gossip/policy/meetings.h"
#include "tests/support.h"

#include <math.h>

static struct peer_id id_of(int i)
{
	struct peer_id id = {{0}};
	id.bytes[0] = (uint8_t)i;
	return id;
}

/* At a place on a line, as sketches are linear; 100 long in another direction. */
static struct sketch sketch_at(double place)
{
	struct sketch s = {{0}};
	s.bucket[0] = 100;
	s.bucket[1] = (float)place;
	return s;
}

/* ---- meetings */

static void test_last_meeting_counts(void **state)
{
	struct meetings t = {0};
	struct peer_id a = id_of(1), nobody = id_of(0);
	(void)state;
	assert_null(meetings_find(&t, &a));
	assert_null(meetings_find(&t, &nobody)); /* an empty place is not its */
	meetings_enter(&t, &(struct meeting){.id = a, .at_ms = 10, .moved = 1});
	meetings_enter(&t, &(struct meeting){.id = id_of(2), .at_ms = 11, .moved = 2});
	meetings_enter(&t, &(struct meeting){.id = a, .at_ms = 12, .moved = 3});
	assert_true(meetings_find(&t, &a)->moved == 3);
}

static void test_the_oldest_is_forgotten(void **state)
{
	struct meetings t = {0};
	(void)state;
	for (int i = 1; i <= MEETINGS_MAX; i++)
		meetings_enter(&t, &(struct meeting){.id = id_of(i), .at_ms = (uint64_t)i});
	meetings_enter(&t, &(struct meeting){.id = id_of(1), .at_ms = 100}); /* met again */
	meetings_enter(&t, &(struct meeting){.id = id_of(200), .at_ms = 101});
	struct peer_id first = id_of(1), second = id_of(2), third = id_of(3), new = id_of(200);
	assert_non_null(meetings_find(&t, &first));
	assert_null(meetings_find(&t, &second));
	assert_non_null(meetings_find(&t, &third));
	assert_non_null(meetings_find(&t, &new));
}

static void test_stands_still(void **state)
{
	struct sketch here = sketch_at(0), rounded = sketch_at(5e-4), moved = sketch_at(0.01);
	struct meeting m = {.at_ms = 1, .sketch = here, .way = 2};
	(void)state;
	assert_true(meeting_stands_still(&m, &here));
	assert_true(meeting_stands_still(&m, &rounded));
	assert_false(meeting_stands_still(&m, &moved)); /* a little is enough to be honest */
	m.way = 0.5; /* it was hardly to move: one that has converged may stand still */
	assert_false(meeting_stands_still(&m, &here));
	m.way = 0; /* a push, or an exchange that came to nothing */
	assert_false(meeting_stands_still(&m, &here));
	assert_false(meeting_stands_still(NULL, &here));
}

static void test_may_be_apart(void **state)
{
	struct meeting m = {.at_ms = 1, .moved = 10, .own = 1000, .theirs = 5000};
	(void)state;
	/* Both as fast: each has gone what we have gone since. */
	assert_true(fabs(meeting_may_be_apart(&m, 14, 3000, 7000) - 8) < 1e-12);
	/* It has trained five times as much since we met: five times our way, and ours. */
	assert_true(fabs(meeting_may_be_apart(&m, 14, 3000, 15000) - 24) < 1e-12);
	/* One that is slower is given no less. */
	assert_true(fabs(meeting_may_be_apart(&m, 14, 3000, 5100) - 8) < 1e-12);
	/* Never met: all of both ways. */
	assert_true(fabs(meeting_may_be_apart(NULL, 14, 3000, 6000) - 42) < 1e-12);
	/* Just met: not at all. */
	assert_true(meeting_may_be_apart(&m, 10, 1000, 5000) == 0);
	/* Our path began anew, with a state that we adopted. */
	assert_true(fabs(meeting_may_be_apart(&m, 4, 3000, 3000) - 8) < 1e-12);
	/* Samples that went down, by its word, or up without ours moving: nothing follows. */
	assert_true(fabs(meeting_may_be_apart(&m, 14, 3000, 0) - 8) < 1e-12);
	assert_true(fabs(meeting_may_be_apart(&m, 14, 900, 1u << 30) - 8) < 1e-12);
}

/* ---- sides */

#define FRESH 100

static struct adoption apart(void)
{
	struct adoption s = {.ours = sketch_at(0),
	        .theirs = sketch_at(50),
	        .self = id_of(1),
	        .peer = id_of(2),
	        .fresh = FRESH};
	return s;
}

static void add(struct adoption *s, int id, double place, uint64_t samples)
{
	struct peer_id i = id_of(id);
	struct sketch at = sketch_at(place);
	adoption_add(s, &i, &at, samples);
}

static void test_fewer_agents_adopt(void **state)
{
	struct adoption s = apart();
	(void)state;
	add(&s, 1, 0, 1000000);
	add(&s, 2, 50, 200);
	assert_int_equal(
	        adoption_decide(&s), ADOPTION_STAY); /* as many, and we have trained more */
	add(&s, 3, 40, 200);
	assert_int_equal(adoption_decide(&s), ADOPTION_ADOPT); /* however much we have trained */
	add(&s, 4, 10, 200);
	assert_int_equal(adoption_decide(&s), ADOPTION_STAY);
	assert_int_equal(s.we.agents, 2);
	assert_int_equal(s.they.agents, 2);
	assert_int_equal(s.we.samples, 1000200);
	assert_int_equal(s.they.samples, 400);
	add(&s, 5, -10, 200);
	assert_int_equal(adoption_decide(&s), ADOPTION_STAY);
}

/* An agent that has trained far meets two that have not begun: they join it, not it them. */
static void test_who_has_hardly_trained_counts_for_nobody(void **state)
{
	struct adoption s = apart();
	(void)state;
	add(&s, 1, 0, 1000000);
	add(&s, 2, 50, FRESH - 1);
	add(&s, 3, 50, 0);
	assert_int_equal(adoption_decide(&s), ADOPTION_NONE);
	add(&s, 4, 50, FRESH);
	assert_int_equal(adoption_decide(&s), ADOPTION_STAY);
	add(&s, 5, 50, FRESH);
	assert_int_equal(adoption_decide(&s), ADOPTION_ADOPT);
	add(&s, 6, 0, FRESH - 1); /* nor for us */
	assert_int_equal(s.we.agents, 1);
}

/* We count ourselves even if we have hardly trained: else nobody would be there to adopt. */
static void test_we_count(void **state)
{
	struct adoption s = apart();
	(void)state;
	add(&s, 1, 0, 0);
	add(&s, 2, 50, 200);
	assert_int_equal(s.we.agents, 1);
	assert_int_equal(adoption_decide(&s), ADOPTION_ADOPT);
}

static void test_without_a_sketch(void **state)
{
	struct adoption s = apart();
	struct peer_id peer = id_of(2), other = id_of(3);
	(void)state;
	add(&s, 1, 0, 200);
	adoption_add(&s, &peer, NULL, 300); /* whom we found far needs none */
	adoption_add(&s, &other, NULL, 300);
	assert_int_equal(s.they.agents, 1);
	assert_int_equal(s.we.agents, 1);
	assert_int_equal(adoption_decide(&s), ADOPTION_ADOPT); /* as many, fewer samples */
}

/* Of the two sides of one meeting exactly one adopts, by whichever of the rules. */
static void test_both_sides_agree(void **state)
{
	(void)state;
	for (uint64_t ours = 100; ours <= 300; ours += 100)
		for (int n = 0; n < 3; n++) {
			struct adoption a = apart(), b = apart();
			b.ours = a.theirs;
			b.theirs = a.ours;
			b.self = a.peer;
			b.peer = a.self;
			add(&a, 1, 0, ours);
			add(&a, 2, 50, 200);
			add(&b, 1, 0, ours);
			add(&b, 2, 50, 200);
			for (int i = 0; i < n; i++) {
				add(&a, 3 + i, i == 0 ? 10 : 40, 200);
				add(&b, 3 + i, i == 0 ? 10 : 40, 200);
			}
			assert_int_equal(adoption_decide(&a) + adoption_decide(&b), ADOPTION_ADOPT);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_last_meeting_counts),
	        cmocka_unit_test(test_the_oldest_is_forgotten),
	        cmocka_unit_test(test_stands_still),
	        cmocka_unit_test(test_may_be_apart),
	        cmocka_unit_test(test_fewer_agents_adopt),
	        cmocka_unit_test(test_who_has_hardly_trained_counts_for_nobody),
	        cmocka_unit_test(test_we_count),
	        cmocka_unit_test(test_without_a_sketch),
	        cmocka_unit_test(test_both_sides_agree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
