/* SPDX-License-Identifier: MIT */
/* What a status tells of an agent that trains. */
#include "net/bulk/convert.h"
#include "tests/agent/control_fixture.h"

static const struct flock_eval some_eval = {
        .loss = 0.3, .correct = 900, .count = 1000, .step = 70, .clock = 7000, .whole = true};

static void fill_training(struct agent_view *v)
{
	v->core.phase = FLOCK_JOINING;
	v->parameters = 101770;
	v->exchange_bytes = 203540;
	v->core.step = 71;
	v->core.samples = 4544;
	v->core.clock = 1ull << 40;
	v->core.total = 1ull << 41;
	v->epoch = 0.5;
	v->core.has_loss = true;
	v->core.loss = 0.25;
	v->core.lr = 0.05;
	v->samples_per_s = 1234.5;
	v->core.has_eval = v->core.has_local = v->core.has_merged = true;
	v->core.eval = v->core.local = v->core.merged = some_eval;
	v->has_validation = true;
	v->validation =
	        (struct learner_eval){.validation = {.loss = 0.75, .correct = 30, .count = 40},
	                .best_step = 60,
	                .best_loss = 0.5,
	                .step = 70};
	v->core.local.whole = false;
	v->core.merged.correct = 950;
	v->core.merge_rounds = 6;
	v->core.donor = id_of(3);
	v->core.join_count = 10;
	v->core.join_total = 20;
	v->core.joined = v->resumed = true;
	v->core.saved_step = 64;
	v->saved_ago_ms = 1500;
	v->core.saves = 2;
	v->steps_dropped = 5;
	snprintf(v->health, sizeof v->health, "well: \"training\" with 3 peers");
}

static void fill_rest(struct fixture *f)
{
	struct agent_view *v = &f->flock;
	struct gate_decision d = {
	        .exchange = true, .reason = REASON_SIGNIFICANT, .has_change = true};
	v->gate = (struct gate_view){.mode = GATE_BUDGET,
	        .warm = true,
	        .has_change = true,
	        .owed = true,
	        .change = 0.02,
	        .delta = 0.1,
	        .average = 3.5,
	        .local = 90,
	        .communicating = 10,
	        .budget_left = 0,
	        .cap_left = 1e6,
	        .day_bytes = 77};
	for (int i = 0; i < REASONS; i++)
		v->gate.by_reason[i] = (uint64_t)i + 1;
	d.change = 0.5;
	d.delta = 0.1;
	struct peer_id peer = id_of(4);
	uint64_t entry = ledger_decision(&f->ledger, 70, NOW_MS - 2500, &d, 1000);
	ledger_tried(&f->ledger, entry, &peer);
	ledger_outcome(&f->ledger, entry, OUTCOME_EXCHANGED, 1000);
	v->core.guards = true;
	v->core.guard = (struct guard_view){
	        .known = true, .consensus = 0.5, .target = 0.25, .interval_samples = 480};
	v->step_samples = 32;
	v->core.has_distance = true;
	v->core.distance = 1.5;
	v->core.distance_rms = 1.25;
	v->core.radius = 4;
	v->sketches = 3;
	v->consensus = 0.75;
	v->core.exchange_state = EXCHANGE_MOVING;
	v->core.exchange_peer = id_of(5);
	v->core.format = CONVERT_MOD8;
	v->core.format_why = FORMAT_PACKS;
	v->core.counts = (struct flock_counts){.begun = 11,
	        .taken = 12,
	        .busy_given = 13,
	        .clipped = 14,
	        .bytes_sent = 15,
	        .bytes_received = 16,
	        .donations = 17,
	        .donated_bytes = 18,
	        .adoptions = 19};
	for (int i = 0; i < OUTCOMES; i++)
		v->core.counts.by_outcome[i] = (uint64_t)i + 20;
	v->core.timed = true;
	v->core.delay = 1.5;
	v->core.delay_decided = 3;
	v->core.candidates = 3;
	v->core.unlike = 1;
	v->core.quarantined = 1;
	v->core.capped = 2;
	peer = id_of(6);
	partners_quarantine(f->partners, &peer, "its \"parameters\"", NOW_MS);
}

static void check_accuracy(const cJSON *o, double correct, bool whole)
{
	EXPECT(o, "value", correct / 1000);
	EXPECT(o, "correct", correct);
	EXPECT(o, "count", 1000);
	EXPECT(o, "step", 70);
	EXPECT(o, "clock", 7000);
	assert_int_equal(cJSON_IsTrue(at(o, "whole")), whole);
}

/* ---- status */

static void test_training(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	fill_training(&f.flock);
	cJSON *o = ask(&f, "{\"cmd\":\"status\",\"tag\":7}");
	const cJSON *t = at(o, "training"), *final = at(t, "final");
	expect_text(at(o, "health"), "words", "well: \"training\" with 3 peers");
	EXPECT(at(o, "health"), "score", 0);
	expect_text(t, "phase", "joining");
	expect_text(t, "run", "fashion");
	expect_text(t, "model", "cnn");
	expect_text(t, "device", "cpu");
	expect_text(t, "out", "runs/a");
	EXPECT(t, "parameters", 101770);
	EXPECT(t, "step", 71);
	EXPECT(t, "samples", 4544);
	EXPECT(t, "clock", 1ull << 40);
	EXPECT(t, "total", 1ull << 41);
	assert_true(cJSON_IsNull(at(t, "tokens"))); /* of images */
	assert_true(cJSON_IsNull(at(at(t, "accuracy"), "perplexity")));
	EXPECT(t, "epoch", 0.5);
	EXPECT(t, "loss", 0.25);
	EXPECT(t, "lr", 0.05);
	EXPECT(t, "samples_per_s", 1234.5);
	check_accuracy(at(t, "accuracy"), 900, true);
	EXPECT(at(t, "validation"), "loss", 0.75);
	EXPECT(at(t, "validation"), "accuracy", 0.75);
	EXPECT(at(t, "validation"), "count", 40);
	EXPECT(at(t, "validation"), "step", 70);
	EXPECT(at(t, "validation"), "best_loss", 0.5);
	EXPECT(at(t, "validation"), "best_step", 60);
	assert_true(cJSON_IsTrue(at(t, "resumed")));
	assert_true(cJSON_IsTrue(at(t, "joined")));
	expect_id(at(t, "join"), "donor", 3);
	EXPECT(at(t, "join"), "words", 10);
	EXPECT(at(t, "join"), "total", 20);
	EXPECT(at(t, "checkpoint"), "step", 64);
	EXPECT(at(t, "checkpoint"), "ago_s", 1.5);
	EXPECT(at(t, "checkpoint"), "count", 2);
	check_accuracy(at(final, "local"), 900, false);
	check_accuracy(at(final, "merged"), 950, true);
	EXPECT(final, "rounds", 6);
	EXPECT(t, "steps_dropped", 5);
	cJSON_Delete(o);
	end(&f);
}

static void test_training_on_tokens(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	fill_training(&f.flock);
	f.flock.context = 128;
	cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
	const cJSON *t = at(o, "training");
	EXPECT(t, "samples", 4544);
	EXPECT(t, "tokens", 4544 * 128);
	EXPECT(at(t, "accuracy"), "perplexity", exp(0.3));
	EXPECT(at(t, "validation"), "perplexity", exp(0.75));
	cJSON_Delete(o);
	end(&f);
}

static void test_gate_and_distance(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	fill_rest(&f);
	cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
	const cJSON *g = at(o, "gate"), *last = cJSON_GetArrayItem(at(g, "last"), 0);
	expect_text(g, "mode", "budget");
	assert_true(cJSON_IsTrue(at(g, "warm")));
	assert_true(cJSON_IsTrue(at(g, "owed")));
	EXPECT(g, "change", 0.02);
	EXPECT(g, "delta", 0.1);
	EXPECT(g, "average", 3.5);
	EXPECT(g, "lssr", 0.9);
	EXPECT(g, "local", 90);
	EXPECT(g, "communicating", 10);
	EXPECT(g, "budget_left", 0); /* empty, which is not the same as none */
	EXPECT(g, "cap_left", 1e6);
	EXPECT(g, "day_bytes", 77);
	EXPECT(at(g, "reasons"), "local", 1);
	EXPECT(at(g, "reasons"), "warm-up", 2);
	EXPECT(at(g, "reasons"), "cap", 8);
	EXPECT(at(g, "reasons"), "guard", 9);
	assert_true(cJSON_IsTrue(at(at(o, "guard"), "on")));
	EXPECT(at(o, "guard"), "consensus", 0.5);
	EXPECT(at(o, "guard"), "target", 0.25);
	EXPECT(at(o, "guard"), "interval", 15); /* in steps */
	assert_int_equal(cJSON_GetArraySize(at(g, "last")), 1);
	EXPECT(last, "number", 1);
	EXPECT(last, "step", 70);
	EXPECT(last, "ago_s", 2.5);
	EXPECT(last, "steps", 1);
	expect_text(last, "reason", "significant");
	EXPECT(last, "change", 0.5);
	EXPECT(last, "delta", 0.1);
	expect_id(last, "peer", 4);
	expect_text(last, "outcome", "exchanged");
	EXPECT(last, "bytes", 1000);
	EXPECT(last, "saved", 0);
	EXPECT(at(o, "distance"), "last", 1.5);
	EXPECT(at(o, "distance"), "rms", 1.25);
	EXPECT(at(o, "distance"), "radius", 4);
	EXPECT(at(o, "distance"), "consensus", 0.75);
	EXPECT(at(o, "distance"), "sketches", 3);
	cJSON_Delete(o);
	end(&f);
}

static void test_exchanges_and_partners(void **state)
{
	static const char *const counted[] = {"begun", "taken", "busy_given", "clipped"};
	static const char *const more[] = {
	        "bytes_sent", "bytes_received", "gifts", "gift_bytes", "adoptions"};
	struct fixture f;
	(void)state;
	begin(&f);
	fill_rest(&f);
	cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
	const cJSON *x = at(o, "exchanges"), *p = at(o, "partners");
	expect_text(x, "state", "moving");
	expect_id(x, "peer", 5);
	for (int i = 0; i < 4; i++)
		EXPECT(x, counted[i], 11 + i);
	for (int i = 0; i < 5; i++)
		EXPECT(x, more[i], 15 + i);
	EXPECT(x, "delay", 1.5);
	EXPECT(x, "delay_decided", 3);
	EXPECT(x, "one_sided", 20 + OUTCOME_ONE_SIDED);
	EXPECT(at(x, "outcomes"), "exchanged", 20);
	EXPECT(at(x, "outcomes"), "one-sided", 20 + OUTCOME_ONE_SIDED);
	EXPECT(p, "candidates", 3);
	EXPECT(p, "unlike", 1);
	EXPECT(p, "capped", 2);
	EXPECT(p, "in_quarantine", 1);
	const cJSON *q = cJSON_GetArrayItem(at(p, "quarantined"), 0);
	expect_id(q, "id", 6);
	assert_true(number(q, "for_s") > 0);
	expect_text(q, "reason", "its \"parameters\"");
	EXPECT(q, "times", 1);
	const cJSON *d = cJSON_GetArrayItem(at(p, "deadlines"), 0);
	struct peer_id id = id_of(6);
	expect_id(d, "id", 6);
	EXPECT(d, "ms", partners_deadline(f.partners, &id, f.flock.exchange_bytes));
	EXPECT(d, "exchanged", 0);
	EXPECT(d, "failed", partners_find(f.partners, &id)->failed);
	EXPECT(d, "stretch", partners_find(f.partners, &id)->stretch);
	cJSON_Delete(o);
	end(&f);
}

static void test_what_is_not_known_is_null(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
	NULLS(at(o, "training"), "loss", "accuracy", "validation", "join", "checkpoint", "final");
	NULLS(at(o, "gate"), "change", "lssr", "budget_left", "cap_left");
	NULLS(at(o, "distance"), "last", "rms", "radius", "consensus");
	NULLS(at(o, "exchanges"), "peer", "delay", "delay_decided");
	assert_int_equal(cJSON_GetArraySize(at(at(o, "gate"), "last")), 0);
	cJSON_Delete(o);
	f.view.flock = NULL;
	o = ask(&f, "{\"cmd\":\"status\"}");
	NULLS(o, "training", "gate", "distance", "exchanges", "partners");
	expect_text(at(o, "health"), "words", "no peers yet: looking for them");
	cJSON_Delete(o);
	end(&f);
}

/* What is not finite is null too, wherever it is. */
static void test_not_finite(void **state)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct fixture f;
		begin(&f);
		fill_training(&f.flock);
		fill_rest(&f);
		struct agent_view *v = &f.flock;
		v->epoch = v->core.loss = v->core.lr = v->samples_per_s = bad[i];
		v->gate.change = v->gate.delta = v->gate.average = bad[i];
		v->gate.budget_left = v->gate.cap_left = bad[i];
		v->core.distance = v->core.distance_rms = v->core.radius = v->consensus = bad[i];
		v->core.eval.count = 0;
		f.ledger.entry[1].change = f.ledger.entry[1].delta = bad[i];
		f.recent[0].distance = bad[i];
		f.recent[0].factor = (float)bad[i];
		v->core.n_recent = 1;
		cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
		NULLS(at(o, "training"), "epoch", "loss", "lr", "samples_per_s");
		NULLS(at(at(o, "training"), "accuracy"), "value");
		NULLS(at(o, "gate"), "change", "delta", "average", "budget_left", "cap_left");
		NULLS(cJSON_GetArrayItem(at(at(o, "gate"), "last"), 0), "change", "delta");
		NULLS(at(o, "distance"), "last", "rms", "radius", "consensus");
		cJSON_Delete(o);
		o = ask(&f, "{\"cmd\":\"exchanges\"}");
		NULLS(cJSON_GetArrayItem(at(o, "entries"), 0), "distance", "factor");
		cJSON_Delete(o);
		end(&f);
	}
}

/* A form of the schema lists as many words as its enum has, and each fits where it stands. */
static int words_of(const char *def)
{
	const cJSON *d = at(at(reply_schema()->root, "$defs"), def);
	return cJSON_GetArraySize(at(d, "enum"));
}

static void test_every_word(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	fill_rest(&f);
	f.flock.core.n_recent = 1;
	assert_int_equal(words_of("phase"), FLOCK_PHASES);
	assert_int_equal(words_of("reason"), REASONS);
	assert_int_equal(words_of("outcome"), OUTCOMES);
	assert_int_equal(words_of("why"), EXCHANGE_WHYS - 1);
	assert_int_equal(words_of("exchange_state"), EXCHANGE_STATES);
	assert_int_equal(words_of("format_why"), FORMAT_WHYS);
	for (uint8_t i = 0; i < EXCHANGE_WHYS; i++) {
		f.flock.core.phase = i < FLOCK_PHASES ? i : FLOCK_LOOKING;
		f.flock.gate.mode = i < GATE_MODES ? i : 0;
		f.flock.core.format = i < CONVERT_FORMATS ? i : 0;
		f.flock.core.format_why = i < FORMAT_WHYS ? i : 0;
		f.flock.core.exchange_state = i < EXCHANGE_STATES ? i : 0;
		f.ledger.entry[1].reason = i < REASONS ? i : 0;
		f.ledger.entry[1].outcome = f.recent[0].outcome = i < OUTCOMES ? i : 0;
		f.recent[0].why = i;
		f.recent[0].mode = f.recent[0].format = i;
		cJSON_Delete(ask(&f, "{\"cmd\":\"status\"}"));
		cJSON *o = ask(&f, "{\"cmd\":\"exchanges\"}");
		const cJSON *x = cJSON_GetArrayItem(at(o, "entries"), 0);
		assert_int_equal(cJSON_IsNull(at(x, "why")), i == EXCHANGE_WILLING);
		assert_int_equal(cJSON_IsNull(at(x, "mode")), i >= EXCHANGE_MODES);
		assert_int_equal(cJSON_IsNull(at(x, "format")), i >= CONVERT_FORMATS);
		cJSON_Delete(o);
	}
	end(&f);
}

/* Lists that could grow with the flock do not. */
static void test_many_partners(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f);
	for (uint32_t i = 0; i < 300; i++) {
		/* In an order of its own: 7 has no common divisor with 300. */
		struct peer_id id = id_of(i * 7 % 300);
		partners_quarantine(f.partners, &id, "x", 1000 + i * 7 % 300);
	}
	f.view.now_ms = 2000;
	f.flock.core.quarantined = 300;
	cJSON *o = ask(&f, "{\"cmd\":\"status\"}");
	const cJSON *p = at(o, "partners"), *d;
	assert_int_equal(cJSON_GetArraySize(at(p, "quarantined")), 64);
	EXPECT(p, "in_quarantine", 300);
	uint32_t n = 0;
	cJSON_ArrayForEach(d, at(p, "deadlines"))
	{
		expect_id(d, "id", 299 - n++);
	}
	assert_int_equal(n, 64);
	cJSON_Delete(o);
	/* Until it is over, and no longer. */
	f.view.now_ms = 1000000000;
	o = ask(&f, "{\"cmd\":\"status\"}");
	assert_int_equal(cJSON_GetArraySize(at(at(o, "partners"), "quarantined")), 0);
	cJSON_Delete(o);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_training),
	        cmocka_unit_test(test_training_on_tokens),
	        cmocka_unit_test(test_gate_and_distance),
	        cmocka_unit_test(test_exchanges_and_partners),
	        cmocka_unit_test(test_what_is_not_known_is_null),
	        cmocka_unit_test(test_not_finite),
	        cmocka_unit_test(test_every_word),
	        cmocka_unit_test(test_many_partners),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
