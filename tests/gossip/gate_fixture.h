/* SPDX-License-Identifier: MIT */
/* A gate on a table: the tests of its rules and of its long runs begin with this. */
#ifndef DUNLIN_TESTS_GOSSIP_GATE_FIXTURE_H
#define DUNLIN_TESTS_GOSSIP_GATE_FIXTURE_H

#include "gossip/policy/gate.h"
#include "tests/support.h"

#include <math.h>

#define KB UINT64_C(1000)
#define BATCH 32

struct fixture {
	struct gate *g;
	uint64_t now, samples;
};

static inline struct gate_config defaults(enum gate_mode mode)
{
	return (struct gate_config){.mode = mode,
	        .delta = 0.1,
	        .smooth = 0.16,
	        .slow = 0.02,
	        .warm = 0,
	        .every_samples = 10 * BATCH,
	        .chance = 0.25,
	        .incoming_share = 0.5,
	        .exchange_bytes = 100 * KB,
	        .step_samples = BATCH,
	        .seed = 7};
}

static inline void begin(struct fixture *f, struct gate_config c)
{
	struct err e;
	*f = (struct fixture){.g = malloc(gate_size()), .now = 1000000, .samples = 500 * BATCH};
	memset(f->g, 0xa5, gate_size());
	assert_int_equal(gate_init(f->g, &c, f->now, &e), 0);
}

static inline void end(struct fixture *f)
{
	free(f->g);
}

/* One step, ms later, k − 1 steps left out. */
static inline struct gate_decision step(struct fixture *f, uint64_t ms, uint64_t k, double norm2)
{
	f->now += ms;
	f->samples += k * BATCH;
	struct gate_step s = {
	        .samples = f->samples, .now_ms = f->now, .norm2 = norm2, .layer_norms = norm2};
	return gate_step(f->g, &s);
}

static inline void expect(struct gate_decision d, bool exchange, enum gate_reason r)
{
	assert_string_equal(gate_reason_text(d.reason), gate_reason_text(r));
	assert_int_equal(d.exchange, exchange);
}

static inline void near(double x, double y, double relative)
{
	if (!(fabs(x - y) <= relative * fabs(y)))
		fail_msg("%.12g is not %.12g within %g", x, y, relative);
}

#endif
