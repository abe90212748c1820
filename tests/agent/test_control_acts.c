/* SPDX-License-Identifier: MIT */
/* What else can be asked of an agent that trains: its ledger, its exchanges, and to pause, resume
 * or write a checkpoint. */
#include "agent/base/textlist.h"
#include "agent/node/token.h"
#include "net/bulk/convert.h"
#include "tests/agent/control_fixture.h"

/* ---- ledger and exchanges */

static void check_numbers(struct fixture *f, const char *request, int count, double newest)
{
	cJSON *o = ask(f, request);
	const cJSON *e;
	assert_int_equal(cJSON_GetArraySize(at(o, "entries")), count);
	cJSON_ArrayForEach(e, at(o, "entries"))
	{
		EXPECT(e, "number", newest--);
	}
	cJSON_Delete(o);
}

static void test_ledger(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	check_numbers(&f, "{\"cmd\":\"ledger\"}", 0, 0);
	for (uint64_t i = 1; i <= 600; i++) {
		/* One after the other different, so that each is an entry. */
		struct gate_decision d = {.reason = i % 2 ? REASON_LOCAL : REASON_CAP};
		ledger_decision(&f.ledger, i, i, &d, 1000);
		if (i == 70) {
			check_numbers(&f, "{\"cmd\":\"ledger\",\"max\":512}", 70, 70);
			check_numbers(&f, "{\"cmd\":\"ledger\"}", CONTROL_ENTRIES, 70);
		}
	}
	check_numbers(&f, "{\"cmd\":\"ledger\",\"max\":1}", 1, 600);
	check_numbers(&f, "{\"cmd\":\"ledger\",\"max\":512}", LEDGER_ENTRIES, 600);
	cJSON *o = ask(&f, "{\"cmd\":\"ledger\",\"max\":1}");
	const cJSON *e = cJSON_GetArrayItem(at(o, "entries"), 0);
	NULLS(e, "change", "peer", "outcome");
	expect_text(e, "reason", "cap");
	EXPECT(e, "ago_s", (NOW_MS - 600) / 1000.0);
	EXPECT(e, "bytes", 0);
	EXPECT(e, "saved", 1000);
	cJSON_Delete(o);
	end(&f);
}

/* While an exchange is under way its outcome is not known. */
static void test_ledger_under_way(void **state)
{
	struct fixture f;
	struct gate_decision d = {.exchange = true, .reason = REASON_SILENCE};
	struct peer_id peer = id_of(9);
	(void)state;
	begin(&f);
	uint64_t n = ledger_decision(&f.ledger, 1, 1, &d, 1000);
	ledger_tried(&f.ledger, n, &peer);
	cJSON *o = ask(&f, "{\"cmd\":\"ledger\"}");
	expect_id(cJSON_GetArrayItem(at(o, "entries"), 0), "peer", 9);
	NULLS(cJSON_GetArrayItem(at(o, "entries"), 0), "outcome");
	cJSON_Delete(o);
	end(&f);
}

static void test_exchanges(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	check_numbers(&f, "{\"cmd\":\"exchanges\"}", 0, 0);
	f.flock.core.n_recent = 70;
	check_numbers(&f, "{\"cmd\":\"exchanges\"}", CONTROL_ENTRIES, 70);
	check_numbers(&f, "{\"cmd\":\"exchanges\",\"max\":128}", 70, 70);
	f.flock.core.n_recent = FLOCK_RECENT + 3;
	check_numbers(&f, "{\"cmd\":\"exchanges\",\"max\":128}", FLOCK_RECENT, FLOCK_RECENT + 3);
	f.recent[2] = (struct exchange_result){.peer = id_of(2),
	        .ours = true,
	        .final = true,
	        .moved = true,
	        .mode = EXCHANGE_PUSH,
	        .format = CONVERT_BF16,
	        .outcome = OUTCOME_UNLIKE,
	        .why = EXCHANGE_UNLIKE,
	        .words = "another \"run\"\x1b\xff",
	        .step = 71,
	        .bytes_sent = 1,
	        .bytes_received = 2,
	        .began_ms = NOW_MS - 5000,
	        .took_ms = 2000,
	        .deadline_ms = 9000,
	        .distance = 1.5,
	        .factor = 0.5f};
	cJSON *o = ask(&f, "{\"cmd\":\"exchanges\",\"max\":1}");
	const cJSON *x = cJSON_GetArrayItem(at(o, "entries"), 0);
	expect_id(x, "peer", 2);
	assert_true(cJSON_IsTrue(at(x, "ours")) && cJSON_IsTrue(at(x, "final")));
	assert_true(cJSON_IsTrue(at(x, "moved")));
	expect_text(x, "mode", "push");
	expect_text(x, "format", "bf16");
	expect_text(x, "outcome", "unlike");
	expect_text(x, "why", "unlike");
	expect_text(x, "words", "another \"run\"\x1b\xef\xbf\xbd");
	EXPECT(x, "step", 71);
	EXPECT(x, "bytes_sent", 1);
	EXPECT(x, "bytes_received", 2);
	EXPECT(x, "ago_s", 3);
	EXPECT(x, "took_ms", 2000);
	EXPECT(x, "deadline_ms", 9000);
	EXPECT(x, "distance", 1.5);
	EXPECT(x, "factor", 0.5);
	cJSON_Delete(o);
	end(&f);
}

/* ---- what is done */

static void expect_error(struct fixture *f, const char *request, const char *part)
{
	cJSON *o = ask(f, request);
	assert_true(cJSON_IsFalse(at(o, "ok")));
	if (!strstr(at(o, "error")->valuestring, part))
		fail_msg("%s gave %s", request, at(o, "error")->valuestring);
	cJSON_Delete(o);
}

static void test_acts(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	f.flock.core.step = 71;
	cJSON *o = ask(&f, "{\"cmd\":\"pause\",\"tag\":\"p\"}");
	assert_true(cJSON_IsTrue(at(o, "ok")));
	EXPECT(o, "step", 71);
	expect_text(o, "tag", "p");
	cJSON_Delete(o);
	assert_true(f.acts[WISH_PAUSE] == 1 && !f.acts[WISH_RESUME]);
	cJSON_Delete(ask(&f, "{\"cmd\":\"resume\"}"));
	assert_true(f.acts[WISH_RESUME] == 1 && !f.acts[WISH_SAVE]);
	o = ask(&f, "{\"cmd\":\"checkpoint\"}");
	assert_true(f.acts[WISH_SAVE] == 1 && f.acts[WISH_PAUSE] == 1);
	NULLS(o, "last");
	EXPECT(o, "count", 0);
	cJSON_Delete(o);
	f.flock.core.saved_step = 64;
	f.flock.core.saves = 3;
	o = ask(&f, "{\"cmd\":\"checkpoint\"}");
	EXPECT(o, "last", 64);
	EXPECT(o, "count", 3);
	cJSON_Delete(o);
	/* Refused: in the flock's own words, and with the tag. */
	f.refuse = ERR_INVALID;
	expect_error(&f, "{\"cmd\":\"pause\"}", "not \"now\"");
	expect_error(&f, "{\"cmd\":\"resume\"}", "not \"now\"");
	o = ask(&f, "{\"tag\":5,\"cmd\":\"checkpoint\"}");
	assert_true(cJSON_IsFalse(at(o, "ok")));
	EXPECT(o, "tag", 5);
	cJSON_Delete(o);
	assert_true(f.acts[0] == 2 && f.acts[1] == 2 && f.acts[2] == 3);
	end(&f);
}

/* The token has the seeds and no secret; what it has of these is not asked for here. */
static void test_invite(void **state)
{
	struct fixture f;
	struct token t = {.run = "r"}, back;
	struct err e;
	char keys[64] = "";
	(void)state;
	begin(&f);
	cJSON *o = ask(&f, "{\"cmd\":\"invite\"}");
	NULLS(o, "token");
	assert_int_equal(cJSON_GetArraySize(at(o, "keys")), 0);
	cJSON_Delete(o);
	assert_int_equal(textlist_add(keys, sizeof keys, "/a.key"), 0);
	f.view.token = &t;
	f.view.keys = keys;
	o = ask(&f, "{\"cmd\":\"invite\"}");
	const char *text = at(o, "token")->valuestring;
	assert_int_equal(token_parse(&back, text, strlen(text), &e), 0);
	assert_string_equal(back.run, "r");
	assert_true(!back.has_secret && !back.has_invite && !back.has_owner);
	assert_string_equal(cJSON_GetArrayItem(at(o, "keys"), 0)->valuestring, "/a.key");
	cJSON_Delete(o);
	end(&f);
}

static void test_an_agent_that_does_not_train(void **state)
{
	static const char *const cmds[] = {
	        "pause", "resume", "checkpoint", "ledger", "exchanges", "invite"};
	struct fixture f;
	(void)state;
	begin(&f);
	f.view.flock = NULL;
	for (size_t i = 0; i < sizeof cmds / sizeof *cmds; i++) {
		char request[64];
		snprintf(request, sizeof request, "{\"cmd\":\"%s\"}", cmds[i]);
		expect_error(&f, request, "this agent does not train (--no-train)");
	}
	assert_true(!f.acts[0] && !f.acts[1] && !f.acts[2]);
	end(&f);
}

/* What is refused for its form does not fit the schema of requests either, and does nothing. */
static void test_requests(void **state)
{
	static const char *const bad[][2] = {
	        {"{\"cmd\":\"ledger\",\"max\":0}", "\"max\" must be a whole number from 1 to 512"},
	        {"{\"cmd\":\"ledger\",\"max\":513}", "from 1 to 512"},
	        {"{\"cmd\":\"exchanges\",\"max\":1.5}", "from 1 to 128"},
	        {"{\"cmd\":\"exchanges\",\"max\":129}", "from 1 to 128"},
	        {"{\"cmd\":\"ledger\",\"max\":1e300}", "from 1 to 512"},
	        {"{\"cmd\":\"ledger\",\"max\":\"8\"}", "from 1 to 512"},
	        {"{\"cmd\":\"ledger\",\"max\":null}", "from 1 to 512"},
	        {"{\"cmd\":\"status\",\"max\":8}", "status takes no \"max\""},
	        {"{\"cmd\":\"pause\",\"max\":64}", "pause takes no \"max\""},
	        {"{\"cmd\":\"pause\",\"step\":8}", "\"step\" is unknown"},
	        {"{\"cmd\":\"pause\",\"tag\":true}", "\"tag\" must be"},
	        {"{\"cmd\":\"paws\"}", "did you mean \"pause\"?"},
	        {"{\"max\":8}", "\"cmd\" must be one of status, peers, ledger"},
	};
	struct fixture f;
	char why[SCHEMA_WHY];
	(void)state;
	begin(&f);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		expect_error(&f, bad[i][0], bad[i][1]);
		cJSON *request = cJSON_Parse(bad[i][0]);
		if (schema_fits(reply_schema(), "request", request, why))
			fail_msg("%s fits", bad[i][0]);
		cJSON_Delete(request);
	}
	cJSON *o = ask(&f, "{\"tag\":1,\"cmd\":\"pause\",\"max\":1}");
	EXPECT(o, "tag", 1);
	cJSON_Delete(o);
	assert_true(!f.acts[0] && !f.acts[1] && !f.acts[2]);
	cJSON_Delete(ask(&f, "{\"cmd\":\"peers\"}"));
	cJSON_Delete(ask(&f, "{\"cmd\":\"version\"}"));
	cJSON_Delete(ask(&f, "{\"cmd\":\"leave\"}"));
	end(&f);
}

/* A new request must have its forms in the schema. The agent lists its requests in an error. */
static void test_every_request_has_its_forms(void **state)
{
	struct fixture f;
	char why[SCHEMA_WHY], names[256], request[64];
	int n = 0;
	(void)state;
	begin(&f);
	cJSON *o = ask(&f, "{}");
	const char *list = strstr(at(o, "error")->valuestring, "one of ");
	assert_non_null(list);
	snprintf(names, sizeof names, "%s", list + strlen("one of "));
	for (char *rest, *name = strtok_r(names, ", ", &rest); name;
	        name = strtok_r(NULL, ", ", &rest), n++) {
		snprintf(request, sizeof request, "{\"cmd\":\"%s\"}", name);
		cJSON *r = cJSON_Parse(request);
		if (!schema_fits(reply_schema(), "request", r, why))
			fail_msg("%s: %s", request, why);
		cJSON_Delete(r);
		cJSON_Delete(ask(&f, request)); /* checks the answer against NAME_reply */
	}
	assert_true(n >= 9);
	cJSON_Delete(o);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ledger),
	        cmocka_unit_test(test_ledger_under_way),
	        cmocka_unit_test(test_exchanges),
	        cmocka_unit_test(test_acts),
	        cmocka_unit_test(test_invite),
	        cmocka_unit_test(test_an_agent_that_does_not_train),
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_every_request_has_its_forms),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
