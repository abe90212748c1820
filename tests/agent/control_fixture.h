/* SPDX-License-Identifier: MIT */
/* An agent that trains, as the control socket sees it: a view filled by hand, real ledger and
 * partners, no socket. Every answer is checked against the schema. */
#ifndef DUNLIN_TESTS_AGENT_CONTROL_FIXTURE_H
#define DUNLIN_TESTS_AGENT_CONTROL_FIXTURE_H

#include "agent/control/control.h"
#include "agent/drivers/driver.h"
#include "agent/json/jsontext.h"
#include "tests/agent/replies.h"

#include <math.h>

#define NOW_MS 100000

struct fixture {
	struct gossip *g;
	void *memory;
	struct partners *partners;
	struct ledger ledger;
	struct exchange_result recent[FLOCK_RECENT];
	struct agent_view flock;
	struct control_view view;
	struct control_config config;
	int acts[3], refuse; /* how often each was asked for; refuse: with this code */
};

static inline struct peer_id id_of(uint32_t n)
{
	struct peer_id id = {{0xab, (uint8_t)(n >> 8), (uint8_t)n}};
	return id;
}

static inline int on_act(void *arg, enum flock_wish wish, struct err *e)
{
	struct fixture *f = arg;
	f->acts[wish]++;
	return f->refuse ? err_set(e, f->refuse, "not \"now\"") : 0;
}

/* A flock of which nothing is known yet. */
static inline void begin(struct fixture *f)
{
	struct gossip_config c = {.profile = gossip_lan,
	        .self = {{0xee}},
	        .generation = 4,
	        .protocol_min = 1,
	        .protocol_max = 2,
	        .members_max = 8};
	struct partners_config p = {.seed = 1, .rate = 1, .burst = 4, .per_byte_ms = 0.001};
	memset(f, 0, sizeof *f);
	f->memory = calloc(1, gossip_size(&c));
	f->partners = calloc(1, partners_size());
	assert_true(f->memory && f->partners);
	assert_int_equal(gossip_init(&f->g, f->memory, gossip_size(&c), &c, NULL), 0);
	partners_init(f->partners, &p);
	ledger_init(&f->ledger);
	f->flock = (struct agent_view){.run = "fashion",
	        .model = "cnn",
	        .device = "cpu",
	        .out = "runs/a",
	        .core = {.phase = FLOCK_LOOKING,
	                .ledger = &f->ledger,
	                .partners = f->partners,
	                .recent = f->recent},
	        .gate = {.budget_left = -1, .cap_left = -1}};
	f->view = (struct control_view){.name = "heron",
	        .version = "1.2",
	        .gossip = f->g,
	        .now_ms = NOW_MS,
	        .flock = &f->flock};
	f->config = (struct control_config){.arg = f, .act_cb = on_act};
}

static inline void end(struct fixture *f)
{
	free(f->memory);
	free(f->partners);
}

static inline cJSON *ask(struct fixture *f, const char *request)
{
	struct control_rows rows;
	enum control_then then;
	struct json_fault fault;
	struct buf out;
	buf_init(&out, LIMIT_CONTROL_OUT);
	assert_int_equal(
	        control_answer(&f->config, &f->view, request, strlen(request), &out, &rows, &then),
	        0);
	if (rows.row)
		assert_int_equal(control_rows_print(&rows, 100, &out), 0);
	cJSON *o = json_parse(out.data, out.len, false, &fault);
	if (!o)
		fail_msg("%s: %s: %s", request, fault.text, out.data);
	reply_check(request, o);
	buf_close(&out);
	return o;
}

static inline const cJSON *at(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
	if (!v)
		fail_msg("no %s", key);
	return v;
}

static inline double number(const cJSON *o, const char *key)
{
	assert_true(cJSON_IsNumber(at(o, key)));
	return at(o, key)->valuedouble;
}

static inline void expect_number(const cJSON *o, const char *key, double value)
{
	double got = number(o, key);
	if (!(fabs(got - value) <= 1e-8 * fabs(value)))
		fail_msg("%s is %.12g, not %.12g", key, got, value);
}
#define EXPECT(o, key, value) expect_number(o, key, (double)(value))

static inline void expect_text(const cJSON *o, const char *key, const char *value)
{
	assert_true(cJSON_IsString(at(o, key)));
	assert_string_equal(at(o, key)->valuestring, value);
}

static inline void expect_id(const cJSON *o, const char *key, uint32_t n)
{
	char hex[9];
	assert_int_equal(strlen(at(o, key)->valuestring), 64);
	snprintf(hex, sizeof hex, "ab%04x00", n);
	assert_memory_equal(at(o, key)->valuestring, hex, 8);
}

static inline void expect_nulls(const cJSON *o, const char *const *keys)
{
	for (; *keys; keys++)
		if (!cJSON_IsNull(at(o, *keys)))
			fail_msg("%s is not null", *keys);
}
#define NULLS(o, ...) expect_nulls(o, (const char *const[]){__VA_ARGS__, NULL})

#endif
