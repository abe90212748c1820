/* SPDX-License-Identifier: MIT */
/* The simulator by identities: methods that must come to the same, and bits that must not depend on
 * the number of threads. The data is made here: two blobs of points, as IDX files. */
#include "agent/simulate/engine.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES 512
#define SIDE 4

static char folder[64];

static void put32(FILE *f, uint32_t v)
{
	const unsigned char b[] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
	        (unsigned char)(v >> 8), (unsigned char)v};

	assert_int_equal(fwrite(b, 1, 4, f), 4);
}

static int write_data(void **state)
{
	char path[128];
	struct rng r;
	FILE *images, *labels;

	(void)state;
	snprintf(folder, sizeof folder, "/tmp/dunlin-simulate-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/images", folder);
	images = fopen(path, "w");
	snprintf(path, sizeof path, "%s/labels", folder);
	labels = fopen(path, "w");
	assert_true(images && labels);
	put32(images, 0x803);
	put32(images, SAMPLES);
	put32(images, SIDE);
	put32(images, SIDE);
	put32(labels, 0x801);
	put32(labels, SAMPLES);
	rng_seed(&r, 1, 1);
	for (int i = 0; i < SAMPLES; i++) {
		putc(i % 2, labels);
		for (int k = 0; k < SIDE * SIDE; k++)
			putc((int)rng_below(&r, 128) + (i % 2 == k % 2 ? 100 : 0), images);
	}
	assert_int_equal(fclose(images) | fclose(labels), 0);
	return 0;
}

static int remove_data(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof path, "%s/images", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/labels", folder);
	unlink(path);
	return rmdir(folder);
}

/* A run of that method; `more` are members of the scenario. */
static struct sim_run run(const char *method, int agents, int batch, int threads, const char *more)
{
	char text[2048];
	struct scenario s;
	struct config_problems p;
	struct sim_options o = {.seed = 3, .threads = threads};
	struct sim_run out;
	struct sim *sim;
	struct err e;
	int exit;

	snprintf(text, sizeof text,
	        "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", "
	        "\"units\": 8}, {\"type\": "
	        "\"relu\"}, {\"type\": \"dense\", \"units\": 2}]},"
	        "\"data\": {\"train_images\": \"%s/images\", \"train_labels\": \"%s/labels\","
	        "\"test_images\": \"%s/images\", \"test_labels\": \"%s/labels\"},"
	        "\"train\": {\"epochs\": 2, \"batch\": %d, \"lr\": 0.05, \"momentum\": 0,"
	        "\"nesterov\": false},"
	        "\"agents\": {\"count\": %d, \"split\": \"shared\"},"
	        "\"method\": {\"kind\": \"%s\"%s}}",
	        folder, folder, folder, folder, batch, agents, method, more);
	scenario_defaults(&s);
	config_problems_init(&p, NULL);
	if (scenario_read(&s, text, strlen(text), &p) || scenario_check(&s, &p))
		fail_msg("%s", p.list[0].text);
	assert_int_equal(sim_new(&sim, &s, &o, &exit, &e), 0);
	assert_int_equal(sim_run(sim, &out, &exit, &e), 0);
	sim_free(sim);
	scenario_close(&s);
	assert_true(out.complete && out.n_points > 0);
	return out;
}

static const struct sim_point *last(const struct sim_run *r)
{
	return &r->points[r->n_points - 1];
}

/* Both runs end with the same model, to rounding. */
static void same_end(struct sim_run a, struct sim_run b)
{
	assert_true(last(&a)->samples == last(&b)->samples);
	assert_true(fabs(last(&a)->loss - last(&b)->loss) < 1e-5);
	assert_true(last(&a)->accuracy > 0.9);
	sim_run_close(&a);
	sim_run_close(&b);
}

static void test_bsp_is_one_process_with_a_larger_batch(void **state)
{
	(void)state;
	same_end(run("bsp", 4, 8, 1, ""), run("bsp", 1, 32, 1, ""));
}

static void test_ssp_without_staleness_is_bsp(void **state)
{
	(void)state;
	same_end(run("ssp", 4, 8, 1, ", \"staleness\": 0"), run("bsp", 4, 8, 1, ""));
}

/* 512 samples, of which each of 4 agents has 128: an epoch is 16 steps of 8. */
static void test_fedavg_of_all_is_local_sgd(void **state)
{
	(void)state;
	same_end(run("fedavg", 4, 8, 1, ", \"fraction\": 1, \"local_epochs\": 1"),
	        run("local_sgd", 4, 8, 1, ", \"every\": 16"));
}

/* With α = 0 the centre stays and the agents are alone: exactly as pairs that never meet. */
static void test_easgd_without_elasticity_leaves_agents_alone(void **state)
{
	struct sim_run a = run("easgd", 4, 8, 1, ", \"alpha\": 0, \"every\": 4");
	struct sim_run b = run("gossip_pair", 4, 8, 1, ", \"every\": 1000000, \"beta\": 0");

	(void)state;
	assert_true(last(&a)->xi > 0 && fabs(last(&a)->xi - last(&b)->xi) < 1e-3);
	assert_true(a.points[0].loss == last(&a)->loss); /* of the centre */
	sim_run_close(&a);
	sim_run_close(&b);
}

#define LOCAL "}, \"record\": {\"local\": true"

/* Agents that are alike are as good as their mean; others are not. */
static void test_each_own_model_is_evaluated(void **state)
{
	struct sim_run a = run("easgd", 4, 8, 1, ", \"alpha\": 0");
	struct sim_run b = run("easgd", 4, 8, 1, ", \"alpha\": 0" LOCAL);
	const struct sim_point *x = last(&a), *y = last(&b);

	(void)state;
	same_end(run("bsp", 4, 8, 1, ""), run("bsp", 4, 8, 1, LOCAL));
	assert_true(x->xi == y->xi && x->xi > 0);
	assert_true(fabs(x->loss - y->loss) > 1e-5);
	assert_true(y->accuracy > 0.9 && y->accuracy <= 1);
	sim_run_close(&a);
	sim_run_close(&b);
}

static void test_bits_do_not_depend_on_the_threads(void **state)
{
	static const char *const methods[] = {
	        "bsp", "local_sgd", "fedavg", "ssp", "easgd", "gossip_pair"};

	(void)state;
	for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
		struct sim_run a = run(methods[m], 5, 8, 1, ", \"every\": 3");
		struct sim_run b = run(methods[m], 5, 8, 2, ", \"every\": 3");

		assert_int_equal(a.n_points, b.n_points);
		assert_memory_equal(last(&a), last(&b), offsetof(struct sim_point, xi_target));
		sim_run_close(&a);
		sim_run_close(&b);
	}
}

static void wrong(const char *text, const char *said)
{
	struct scenario s;
	struct config_problems p;

	scenario_defaults(&s);
	config_problems_init(&p, NULL);
	if (scenario_read(&s, text, strlen(text), &p) == 0)
		assert_int_not_equal(scenario_check(&s, &p), 0);
	assert_true(p.n > 0);
	assert_non_null(strstr(p.list[0].text, said));
	scenario_close(&s);
}

static void test_wrong_scenarios_are_told(void **state)
{
	(void)state;
	wrong("{\"agents\": {\"cuont\": 3}}", "did you mean \"agents.count\"");
	wrong("{\"agents\": {\"count\": 0}}", "out of range");
	wrong("{\"agents\": {\"count\": 2}, \"agents\": {}}", "given twice");
	wrong("{\"method\": {\"kind\": \"bps\"}}", "did you mean \"bsp\"");
	wrong("{\"train\": {\"lrr\": 1}}", "did you mean");
	wrong("{\"evnts\": []}", "did you mean \"events\"");
	wrong("{\"events\": [{\"at_s\": 1, \"what\": \"crash\", \"agents\": [8]}]}", "agent 8");
	wrong("{\"events\": [{\"what\": \"heal\"}]}", "missing");
	wrong("[]", "must be an object");
	wrong("{", "column");
}

static void test_a_scenario_reads_back(void **state)
{
	struct scenario a, b;
	struct config_problems p;
	struct buf one, two;
	static const char text[] = "{\"name\": \"x\", \"agents\": {\"count\": 9, \"noise\": 0.25},"
	                           "\"events\": [{\"at_s\": 2.5, \"what\": \"pause\","
	                           "\"agents\": [2, 1], \"for_s\": 3}]}";

	(void)state;
	buf_init(&one, 1 << 20);
	buf_init(&two, 1 << 20);
	scenario_defaults(&a);
	scenario_defaults(&b);
	config_problems_init(&p, NULL);
	assert_int_equal(scenario_read(&a, text, strlen(text), &p), 0);
	for (int comments = 0; comments < 2; comments++) {
		one.len = two.len = 0;
		assert_int_equal(scenario_print(&a, comments, &one), 0);
		assert_int_equal(scenario_read(&b, one.data, one.len, &p), 0);
		assert_int_equal(scenario_print(&b, comments, &two), 0);
		assert_string_equal(one.data, two.data);
	}
	scenario_close(&a);
	scenario_close(&b);
	buf_close(&one);
	buf_close(&two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bsp_is_one_process_with_a_larger_batch),
	        cmocka_unit_test(test_ssp_without_staleness_is_bsp),
	        cmocka_unit_test(test_fedavg_of_all_is_local_sgd),
	        cmocka_unit_test(test_easgd_without_elasticity_leaves_agents_alone),
	        cmocka_unit_test(test_each_own_model_is_evaluated),
	        cmocka_unit_test(test_bits_do_not_depend_on_the_threads),
	        cmocka_unit_test(test_wrong_scenarios_are_told),
	        cmocka_unit_test(test_a_scenario_reads_back),
	};

	return cmocka_run_group_tests(tests, write_data, remove_data);
}
