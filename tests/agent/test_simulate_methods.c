/* SPDX-License-Identifier: MIT */
/* Methods on graphs, by flags, and one way: what each must come to the same as. The data is made
 * here: two blobs of points. */
#include "agent/base/rng.h"
#include "agent/simulate/engine.h"
#include "agent/simulate/fleet_internal.h"
#include "gossip/policy/gate.h"
#include "tests/support.h"

#include <math.h>

#define SAMPLES 512
#define SIDE 4
#define ALONE ", \"every\": 1000000, \"beta\": 0"
#define FLAT ", \"schedule\": \"constant\", \"warmup_epochs\": 0"

static const char *folder;
static const char *fleet = "", *record = ""; /* more members of the sections agents and record */
static const char *norm = "";                /* layers between the first dense one and its relu */
static void (*look)(struct sim *s);          /* at what a run leaves */

/* With --wrap the core calls this gate. */
static bool gate_broken;
struct gate_decision __real_gate_step(struct gate *g, const struct gate_step *s);
struct gate_decision __wrap_gate_step(struct gate *g, const struct gate_step *s);
struct gate_decision __wrap_gate_step(struct gate *g, const struct gate_step *s)
{
	struct gate_decision d = __real_gate_step(g, s);

	d.exchange = d.exchange && !gate_broken;
	return d;
}

static void write_set(const char *name)
{
	static uint8_t pixels[16 + SAMPLES * SIDE * SIDE] = {
	        0, 0, 8, 3, 0, 0, SAMPLES >> 8, 0, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
	static uint8_t labels[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, SAMPLES >> 8, 0};
	char path[400];
	struct rng r;

	rng_seed(&r, 1, 1);
	for (int i = 0; i < SAMPLES; i++) {
		labels[8 + i] = (uint8_t)(i % 2);
		for (int k = 0; k < SIDE * SIDE; k++)
			pixels[16 + i * SIDE * SIDE + k] =
			        (uint8_t)(rng_below(&r, 128) + (i % 2 == k % 2 ? 100 : 0));
	}
	snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", folder, name);
	write_file(path, pixels, sizeof pixels);
	snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", folder, name);
	write_file(path, labels, sizeof labels);
}

static int set_up(void **state)
{
	if (make_folder(state))
		return -1;
	folder = *state;
	write_set("train");
	write_set("t10k");
	return 0;
}

/* A run of that method; `more` are members of its section, `train` of the section train. */
static struct sim_run run_as(
        const char *method, int agents, int threads, const char *more, const char *train)
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
	        "\"units\": 8}, %s{\"type\": \"relu\"}, {\"type\": \"dense\", \"units\": 2}]},"
	        "\"data\": {\"path\": \"%s\", \"classes\": 2},"
	        "\"train\": {\"epochs\": 3, \"batch\": 8, \"lr\": 0.05%s},"
	        "\"agents\": {\"count\": %d%s}, \"record\": {\"points\": 24%s},"
	        "\"method\": {\"kind\": \"%s\"%s}}",
	        norm, folder, train, agents, fleet, record, method, more);
	scenario_defaults(&s);
	config_problems_init(&p, NULL);
	if (scenario_read(&s, text, strlen(text), &p) || scenario_check(&s, &p))
		fail_msg("%s", p.list[0].text);
	assert_int_equal(sim_new(&sim, &s, &o, &exit, &e), 0);
	assert_int_equal(sim_run(sim, &out, &exit, &e), 0);
	if (look)
		look(sim);
	sim_free(sim);
	scenario_close(&s);
	assert_true(out.complete && out.n_points > 0);
	return out;
}

static struct sim_run run(const char *method, int agents, const char *more)
{
	return run_as(method, agents, 1, more, "");
}

static const struct sim_point *last(const struct sim_run *r)
{
	return &r->points[r->n_points - 1];
}

/* Both runs go the same way, to rounding. */
static void same(struct sim_run a, struct sim_run b)
{
	assert_int_equal(a.n_points, b.n_points);
	for (int k = 0; k < a.n_points; k++) {
		assert_true(a.points[k].samples == b.points[k].samples);
		assert_true(a.points[k].exchanges == b.points[k].exchanges);
		assert_true(fabs(a.points[k].loss - b.points[k].loss) < 1e-5);
		assert_true(fabs(a.points[k].xi - b.points[k].xi) < 1e-4);
	}
	assert_true(last(&a)->accuracy > 0.9);
	sim_run_close(&a);
	sim_run_close(&b);
}

#define GRAPH(name) ", \"topology\": \"" name "\""
#define LATE ", \"average_first\": true"

static void test_dpsgd_on_the_complete_graph_is_local_sgd(void **state)
{
	(void)state;
	same(run("dpsgd", 4, GRAPH("complete")), run("local_sgd", 4, ", \"every\": 1"));
}

/* Graphs so small that each is complete. */
static void test_dpsgd_on_small_graphs_is_local_sgd(void **state)
{
	(void)state;
	same(run("dpsgd", 3, GRAPH("ring")), run("local_sgd", 3, ", \"every\": 1"));
	same(run("dpsgd", 3, GRAPH("exponential")), run("local_sgd", 3, ", \"every\": 1"));
	same(run("dpsgd", 2, GRAPH("one_peer")), run("local_sgd", 2, ", \"every\": 1"));
	same(run("dpsgd", 3, GRAPH("ring") LATE), run("dpsgd", 3, GRAPH("complete") LATE));
}

/* Ξ over its value when the learning rate has fallen to nothing, so many rounds later. The mean
 * stays where it is. */
static double left(const char *more, int rounds)
{
	struct sim_run r = run_as("dpsgd", 8, 1, more,
	        ", \"schedule\": \"step\", \"step_epochs\": 1, \"step_factor\": 1e-9");
	const struct sim_point *p = r.points, *end = r.points + r.n_points;
	double xi;

	while (p < end &&
	        p->samples < SAMPLES) /* the last round of steps has ended, nobody has averaged */
		p++;
	assert_true(p + rounds < end && p->xi > 0);
	for (int k = 1; k <= rounds; k++) {
		assert_true(p[k].exchanges == p->exchanges + (uint64_t)k); /* a point a round */
		assert_true(fabs(p[k].loss - p->loss) < 1e-5);
	}
	xi = p[rounds].xi / p->xi;
	sim_run_close(&r);
	return xi;
}

/* 8 agents: a ring's second eigenvalue is (1 + 2 cos 45°)/3 = 0.805, the exponential graph's is
 * 1/2, and three rounds of one-peer exponential averaging are exact. */
static void test_graphs_contract_as_they_must(void **state)
{
	(void)state;
	assert_true(left(GRAPH("ring"), 3) < 0.805 * 0.805 * 0.805 + 1e-3);
	assert_true(left(GRAPH("ring"), 3) > 0.01);
	assert_true(left(GRAPH("exponential"), 3) < 0.125 + 1e-3);
	assert_true(left(GRAPH("exponential"), 3) > 1e-3);
	assert_true(left(GRAPH("one_peer"), 2) > 0.01);
	assert_true(left(GRAPH("one_peer"), 3) < 1e-4);
}

static void test_selsync_of_every_step_is_local_sgd(void **state)
{
	(void)state;
	same(run("selsync", 4, ", \"delta\": 0"), run("local_sgd", 4, ", \"every\": 1"));
	same(run("selsync", 4, ", \"delta\": 0" LATE), run("dpsgd", 4, GRAPH("complete") LATE));
}

static void test_selsync_that_never_fires_leaves_agents_alone(void **state)
{
	struct sim_run a = run_as("selsync", 4, 1, ", \"delta\": 1e9", FLAT);
	struct sim_run b = run_as("gossip_pair", 4, 1, ALONE, FLAT);
	struct sim_run c = run_as("selsync", 4, 1, ", \"delta\": 1e9" LATE, FLAT);

	(void)state;
	assert_true(last(&a)->exchanges == 0 && a.synchronised == 0);
	assert_true(last(&a)->bytes > 0); /* flags */
	assert_true(last(&a)->xi > 0 && fabs(last(&a)->xi - last(&b)->xi) < 1e-6);
	assert_true(fabs(last(&a)->xi - last(&c)->xi) < 1e-6);
	sim_run_close(&a);
	sim_run_close(&b);
	sim_run_close(&c);
}

/* Between the two: some steps average, and fewer do with a larger δ. */
static void test_selsync_averages_less_with_a_larger_delta(void **state)
{
	struct sim_run a = run("selsync", 4, ", \"delta\": 0.1");
	struct sim_run b = run("selsync", 4, ", \"delta\": 0.14");

	(void)state;
	print_message("synchronised: %g and %g\n", a.synchronised, b.synchronised);
	assert_true(a.synchronised < 1 && b.synchronised > 0);
	assert_true(a.synchronised > b.synchronised);
	sim_run_close(&a);
	sim_run_close(&b);
}

/* Who weighs the other model with nothing is alone. */
/* Noise that hardly moves raises no flag, whatever the gradients do; more of it does. */
static void test_selsync_by_noise_takes_no_notice_of_gradients(void **state)
{
	struct sim_run a = run("selsync", 4, ", \"delta\": 0.01");
	struct sim_run b = run("selsync", 4, ", \"delta\": 0.01, \"gate_noise\": 1e-6");
	struct sim_run c = run("selsync", 4, ", \"delta\": 0.01, \"gate_noise\": 0.5");

	(void)state;
	assert_true(a.synchronised > 0.5);
	assert_true(b.synchronised == 0);
	assert_true(c.synchronised > 0.5);
	sim_run_close(&a);
	sim_run_close(&b);
	sim_run_close(&c);
}

static void test_one_way_without_weight_leaves_agents_alone(void **state)
{
	struct sim_run a = run_as("gossip_pull", 4, 1, ", \"every\": 2, \"beta\": 0", FLAT);
	struct sim_run b = run_as("gossip_push", 4, 1, ", \"every\": 2, \"beta\": 0", FLAT);
	struct sim_run c = run_as("gossip_pair", 4, 1, ALONE, FLAT);

	(void)state;
	assert_true(last(&a)->exchanges > 20 && last(&b)->exchanges > 20);
	assert_true(last(&a)->xi > 0 && fabs(last(&a)->xi - last(&c)->xi) < 1e-6);
	assert_true(fabs(last(&b)->xi - last(&c)->xi) < 1e-6);
	sim_run_close(&a);
	sim_run_close(&b);
	sim_run_close(&c);
}

/* One agent is slow, and so begins few exchanges: those who pull send more than they take, those
 * who push take more than they send. Models go one way. */
static void test_who_begins_pulls_or_pushes(void **state)
{
	static const char slow[] = ", \"every\": 1}, \"events\": [{\"at_s\": 0, \"what\": \"slow\","
	                           " \"agents\": [3], \"factor\": 8}], \"gossip\": {";
	struct sim_run r[] = {run("gossip_pull", 4, slow), run("gossip_push", 4, slow)};

	(void)state;
	for (int k = 0; k < 2; k++) {
		uint32_t in = 0, out = 0;

		for (uint32_t i = 0; i < 3; i++) {
			in += r[k].met[4 * i + 3];
			out += r[k].met[4 * 3 + i];
		}
		assert_true(k == 0 ? out > in && in > 0 : in > out && out > 0);
		assert_true(last(&r[k])->bytes == last(&r[k])->exchanges * 4 * r[k].parameters);
		sim_run_close(&r[k]);
	}
}

/* Without a learning rate they come together. */
static void test_one_way_contracts(void **state)
{
	static const char *const methods[] = {"gossip_pull", "gossip_push"};

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct sim_run r = run_as(methods[k], 4, 1, ", \"every\": 2",
		        ", \"schedule\": \"step\", \"step_epochs\": 1, \"step_factor\": 1e-9");
		const struct sim_point *p = r.points;

		while (p->samples < SAMPLES + 64)
			p++;
		assert_true(p->xi > 0 && last(&r)->xi < 0.1 * p->xi);
		sim_run_close(&r);
	}
}

static void test_adpsgd_alone_is_one_process(void **state)
{
	(void)state;
	struct sim_run a = run("adpsgd", 1, ""), b = run("bsp", 1, "");

	assert_true(last(&a)->accuracy > 0.9 && last(&a)->loss == last(&b)->loss);
	sim_run_close(&a);
	sim_run_close(&b);
}

/* Without a learning rate they come together, where their mean was. */
static void test_adpsgd_contracts_to_the_mean(void **state)
{
	struct sim_run r = run_as("adpsgd", 4, 1, "",
	        ", \"schedule\": \"step\", \"step_epochs\": 1, \"step_factor\": 1e-9");
	const struct sim_point *p = r.points;

	(void)state;
	while (p->samples < SAMPLES + 64)
		p++;
	assert_true(p->xi > 0 && last(&r)->xi < 0.01 * p->xi);
	assert_true(last(&r)->exchanges > 100 && last(&r)->accuracy > 0.9);
	assert_true(fabs(last(&r)->loss - p->loss) < 1e-5);
	sim_run_close(&r);
}

#define CONTROL(kind, more) ", \"control\": \"" kind "\"" more

/* The largest Ξ that exchanges left, and from where on in the run it was measured. */
static double most_left(const struct sim_run *r, double *first)
{
	double most = 0;

	*first = NAN;
	for (int k = 0; k < r->n_points; k++) {
		if (isnan(r->points[k].xi_left))
			continue;
		if (isnan(*first))
			*first = (double)r->points[k].samples / (double)last(r)->samples;
		most = fmax(most, r->points[k].xi_left);
	}
	return most;
}

static void test_measuring_changes_nothing(void **state)
{
	static const char *const methods[] = {
	        "dpsgd", "gossip_pair", "gossip_pull", "gossip_push", "adpsgd"};

	(void)state;
	for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
		struct sim_run a = run(methods[m], 8, ", \"every\": 1");
		struct sim_run b = run(methods[m], 8, ", \"every\": 1" CONTROL("measure", ""));
		double first;

		assert_int_equal(a.n_points, b.n_points);
		for (int k = 0; k < a.n_points; k++)
			assert_memory_equal(
			        &a.points[k], &b.points[k], offsetof(struct sim_point, xi_target));
		assert_true(most_left(&b, &first) > 0 && isnan(b.points[0].xi_target));
		sim_run_close(&a);
		sim_run_close(&b);
	}
}

/* In its phase no step begins above the bound; what is sent for it is counted. */
static void controlled(const char *method, int agents)
{
	struct sim_run a = run(method, agents, ", \"every\": 1" CONTROL("measure", ""));
	double first, bound = most_left(&a, &first) / 2;
	char more[256];

	snprintf(more, sizeof more,
	        ", \"every\": 1" CONTROL(
	                "share", ", \"control_factor\": 0.25, \"control_max\": %.17g"),
	        4 * bound);
	struct sim_run b = run(method, agents, more);

	assert_true(most_left(&b, &first) <= bound && first < 0.2);
	assert_true(last(&b)->exchanges > last(&a)->exchanges);
	assert_true(last(&b)->bytes > last(&a)->bytes && last(&b)->time_s > last(&a)->time_s);
	assert_true(fabs(b.points[3].xi_target - bound) < 1e-9);
	sim_run_close(&b);

	snprintf(more, sizeof more,
	        ", \"every\": 1" CONTROL("share",
	                ", \"control_factor\": 0.25, \"control_from\": 0.5, "
	                "\"control_max\": %.17g"),
	        4 * bound);
	b = run(method, agents, more);
	assert_true(most_left(&b, &first) <= bound && first >= 0.5);
	for (int k = 0; k < b.n_points / 2 - 1; k++)
		assert_memory_equal(
		        &a.points[k], &b.points[k], offsetof(struct sim_point, xi_target));
	sim_run_close(&a);
	sim_run_close(&b);
}

static void test_control_keeps_agents_near(void **state)
{
	(void)state;
	controlled("dpsgd", 8);
	controlled("gossip_pair", 8);
	controlled("gossip_pull", 8);
	controlled("gossip_push", 8);
	controlled("adpsgd", 8);
}

/* The agents' estimate is never below the truth. */
static void test_an_estimate_is_a_bound(void **state)
{
	static const char *const graphs[] = {GRAPH("ring"), GRAPH("exponential")};

	(void)state;
	for (int k = 0; k < 2; k++) {
		char more[256];
		double first;

		snprintf(more, sizeof more, "%s" CONTROL("measure", ""), graphs[k]);
		struct sim_run a = run("dpsgd", 8, more);

		snprintf(more, sizeof more,
		        "%s" CONTROL("measure", ", \"control_by\": \"estimate\""), graphs[k]);
		struct sim_run b = run("dpsgd", 8, more);

		assert_true(most_left(&b, &first) > most_left(&a, &first));
		assert_true(most_left(&b, &first) < 100 * most_left(&a, &first));
		sim_run_close(&a);
		sim_run_close(&b);
	}
}

/* Far below the norm of the gradients more is sent; far above it nothing changes. */
static void test_control_by_gradients(void **state)
{
	struct sim_run a = run("dpsgd", 8, "");
	struct sim_run b = run("dpsgd", 8, CONTROL("gradient", ", \"control_factor\": 1e6"));
	struct sim_run c = run("dpsgd", 8, CONTROL("gradient", ", \"control_factor\": 0.01"));

	(void)state;
	assert_true(last(&a)->exchanges == last(&b)->exchanges);
	assert_true(last(&a)->loss == last(&b)->loss);
	assert_true(last(&c)->exchanges > last(&a)->exchanges);
	sim_run_close(&a);
	sim_run_close(&b);
	sim_run_close(&c);
}

/* Both are told, whatever the run sends. */
static void test_all_reduce_in_both_formats(void **state)
{
	static const char *const wires[] = {"", ", \"wire\": \"bf16\""};

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct sim_run r = run("bsp", 4, wires[k]);

		assert_true(r.fp32_bytes == 2 * r.bf16_bytes && r.bf16_bytes > 0);
		assert_true((k == 0 ? r.fp32_bytes : r.bf16_bytes) == (double)last(&r)->bytes);
		assert_true(r.fp32_s > r.bf16_s && r.bf16_s > 0);
		/* One agent or another is always under way, or all meet. */
		assert_true(
		        fabs(last(&r)->time_s - r.compute_s - (k ? r.bf16_s : r.fp32_s)) < 1e-3);
		sim_run_close(&r);
	}
	struct sim_run r = run("gossip_pair", 4, "");

	assert_true(isnan(r.fp32_s) && isnan(r.bf16_bytes));
	sim_run_close(&r);
}

/* Agents crash all the time, and others come in their places: all methods get to their end. */
static void test_every_method_survives_churn(void **state)
{
	(void)state;
	fleet = ", \"churn_every_s\": 0.1, \"churn_share\": 0.4, \"churn_gap_s\": 0.03";
	for (int m = 0; sim_method_names[m]; m++) {
		struct sim_run a = run_as(
		        sim_method_names[m], 5, 1, ", \"every\": 2, \"timeout_s\": 0.05", "");
		struct sim_run b = run_as(
		        sim_method_names[m], 5, 2, ", \"every\": 2, \"timeout_s\": 0.05", "");
		int crashed = 0, joined = 0;

		for (int k = 0; k < a.n_membership; k++) {
			crashed += a.membership[k].what == SIM_CRASHED;
			joined += a.membership[k].what == SIM_JOINED;
		}
		print_message("%s: %d crashed, %d joined, accuracy %g\n", sim_method_names[m],
		        crashed, joined, last(&a)->accuracy);
		assert_true(crashed >= 4 && joined >= crashed - 2);
		assert_true(last(&a)->accuracy > 0.9 && last(&a)->loss == last(&b)->loss);
		assert_int_equal(a.n_membership, b.n_membership);
		sim_run_close(&a);
		sim_run_close(&b);
	}
	fleet = "";
}

/* The donor crashes while a joiner fetches from it: the joiner finds another one, and ends with the
 * model of all. */
static void test_a_joiner_finds_another_donor(void **state)
{
	struct sim_run r;

	(void)state;
	fleet = ", \"absent\": 1";
	r = run("bsp", 4,
	        ", \"timeout_s\": 0.05}, \"network\": {\"up_mbit\": 1, \"down_mbit\": 1}, "
	        "\"events\": [{\"at_s\": 0.1, \"what\": \"join\", \"agents\": [3]}, "
	        "{\"at_s\": 0.105, \"what\": \"crash\", \"agents\": [0]}], \"gossip\": {");
	fleet = "";
	assert_true(last(&r)->live == 3 && last(&r)->xi == 0 && last(&r)->accuracy > 0.9);
	sim_run_close(&r);
}

/* Agents without parameters send and wait as if they had some. */
static void test_every_method_runs_without_training(void **state)
{
	(void)state;
	record = ", \"train\": false, \"parameters\": 1000, \"samples\": 512";
	for (int m = 0; sim_method_names[m]; m++) {
		struct sim_run r;

		if (strcmp(sim_method_names[m], "selsync") == 0)
			continue; /* it is refused */
		r = run(sim_method_names[m], 4, ", \"every\": 2");
		assert_true(last(&r)->samples >= 3 * 512 && last(&r)->bytes > 0);
		assert_true(isnan(last(&r)->accuracy) && isnan(last(&r)->xi));
		sim_run_close(&r);
	}
	record = "";
}

/* Two agents have one label and two the other. At each step two of the four give half of their
 * samples to all others: half of a batch is the agent's own. */
static void test_injected_samples_are_of_others(void **state)
{
	struct scenario s;
	struct config_problems p;
	struct fleet_data d = {0};
	struct err e;
	char text[1000];
	uint32_t index[8];
	int other_labels = 0;

	(void)state;
	snprintf(text, sizeof text,
	        "{\"data\": {\"path\": \"%s\", \"classes\": 2}, \"train\": {\"batch\": 8}, "
	        "\"agents\": {\"count\": 4, \"split\": \"labels\", \"labels\": 1, "
	        "\"inject_alpha\": 0.5, \"inject_beta\": 0.5}, "
	        "\"method\": {\"kind\": \"selsync\"}}",
	        folder);
	scenario_defaults(&s);
	config_problems_init(&p, NULL);
	assert_int_equal(scenario_read(&s, text, strlen(text), &p), 0);
	assert_int_equal(scenario_check(&s, &p), 0);
	assert_int_equal(fleet_data_open(&d, &s, 1, &e), 0);
	assert_int_equal(fleet_data_own(&d, 8), 4);
	assert_int_equal(fleet_data_givers(&d), 2);
	for (uint32_t i = 0; i < 4; i++)
		for (uint64_t k = 0; k < 50; k++) {
			const int32_t own = d.train.labels[d.part[i][0]];

			fleet_data_batch(&d, i, k, index, 8);
			for (int j = 0; j < 4; j++)
				assert_int_equal(d.train.labels[index[j]], own);
			for (int j = 4; j < 8; j++)
				other_labels += d.train.labels[index[j]] != own;
		}
	/* Of the three others two have the other label. */
	assert_in_range(other_labels, 800 * 2 / 3 - 80, 800 * 2 / 3 + 80);
	fleet_data_close(&d);
	scenario_close(&s);
}

static void test_injection_helps_and_costs_bytes(void **state)
{
	struct sim_run r[2];

	(void)state;
	for (int k = 0; k < 2; k++) {
		fleet = k ? ", \"split\": \"labels\", \"labels\": 1, \"inject_alpha\": 0.5"
		          : ", \"split\": \"labels\", \"labels\": 1";
		r[k] = run_as("gossip_pair", 4, 1, ALONE, FLAT);
	}
	fleet = "";
	assert_true(last(&r[1])->xi < last(&r[0])->xi);
	/* 4 of 8 samples, of one byte a pixel, for each step. */
	assert_true(last(&r[1])->bytes == last(&r[1])->steps * 4 * SIDE * SIDE);
	assert_true(last(&r[1])->time_s > last(&r[0])->time_s);
	sim_run_close(&r[0]);
	sim_run_close(&r[1]);
}

/* A gate that never lets an exchange begin changes what the agent's core does, and nothing else. */
static void test_a_broken_core_changes_its_own_rows(void **state)
{
	(void)state;
	for (int m = 0; sim_method_names[m]; m++) {
		struct sim_run a = run(sim_method_names[m], 4, ", \"every\": 2");
		gate_broken = true;
		struct sim_run b = run(sim_method_names[m], 4, ", \"every\": 2");
		gate_broken = false;
		bool same = a.n_points == b.n_points;

		for (int k = 0; k < a.n_points && same; k++)
			same = memcmp(&a.points[k], &b.points[k],
			               offsetof(struct sim_point, xi_target)) == 0;
		assert_int_equal(same, strcmp(sim_method_names[m], "dunlin") != 0);
		sim_run_close(&a);
		sim_run_close(&b);
	}
}

/* Inputs have variances of about 1, and 16 of them go into each unit. */
static void assert_learnt(struct sim *s)
{
	const struct arch *a = fleet_arch(sim_fleet(s));
	const struct param_view *var = &a->views[a->n_views - 3]; /* then the last layer's */

	assert_string_equal(var->name, "norm1.running_var");
	for (uint32_t i = 0; i < sim_agents(s); i++)
		for (size_t k = 0; k < var->count; k++)
			assert_true(fleet_x(sim_fleet(s), i)[var->offset + k] > 16);
}

static void test_every_method_learns_statistics(void **state)
{
	(void)state;
	norm = "{\"type\": \"dense\", \"units\": 8, \"std\": 4}, {\"type\": \"batch_norm\"}, ";
	look = assert_learnt;
	for (int m = 0; sim_method_names[m]; m++) {
		struct sim_run a = run_as(sim_method_names[m], 4, 1, "", "");
		struct sim_run b = run_as(sim_method_names[m], 4, 2, "", "");

		assert_true(last(&a)->accuracy > 0.9 && last(&a)->loss == last(&b)->loss);
		sim_run_close(&a);
		sim_run_close(&b);
	}
	norm = "";
	look = NULL;
}

static void test_bits_do_not_depend_on_the_threads(void **state)
{
	static const char *const methods[][2] = {
	        {"dpsgd", GRAPH("ring")},
	        {"dpsgd", GRAPH("exponential") LATE},
	        {"dpsgd", GRAPH("one_peer")},
	        {"dpsgd", GRAPH("complete")},
	        {"dpsgd", CONTROL("gradient", ", \"control_factor\": 0.01")},
	        {"selsync", ", \"delta\": 0.14"},
	        {"selsync", ", \"delta\": 0.14" LATE},
	        {"adpsgd", ""},
	        {"adpsgd", CONTROL("gradient", ", \"control_factor\": 0.01")},
	        {"gossip_pair", CONTROL("gradient", ", \"control_factor\": 0.01")},
	        {"gossip_push", CONTROL("gradient", ", \"control_factor\": 0.01")},
	        {"gossip_pull", ", \"every\": 3"},
	        {"gossip_push", ", \"every\": 3"},
	};

	(void)state;
	for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
		struct sim_run a = run_as(methods[m][0], 5, 1, methods[m][1], "");
		struct sim_run b = run_as(methods[m][0], 5, 2, methods[m][1], "");

		assert_int_equal(a.n_points, b.n_points);
		for (int k = 0; k < a.n_points; k++)
			assert_memory_equal(
			        &a.points[k], &b.points[k], offsetof(struct sim_point, xi_target));
		sim_run_close(&a);
		sim_run_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_dpsgd_on_the_complete_graph_is_local_sgd),
	        cmocka_unit_test(test_dpsgd_on_small_graphs_is_local_sgd),
	        cmocka_unit_test(test_graphs_contract_as_they_must),
	        cmocka_unit_test(test_selsync_of_every_step_is_local_sgd),
	        cmocka_unit_test(test_selsync_that_never_fires_leaves_agents_alone),
	        cmocka_unit_test(test_selsync_averages_less_with_a_larger_delta),
	        cmocka_unit_test(test_selsync_by_noise_takes_no_notice_of_gradients),
	        cmocka_unit_test(test_one_way_without_weight_leaves_agents_alone),
	        cmocka_unit_test(test_who_begins_pulls_or_pushes),
	        cmocka_unit_test(test_one_way_contracts),
	        cmocka_unit_test(test_adpsgd_alone_is_one_process),
	        cmocka_unit_test(test_adpsgd_contracts_to_the_mean),
	        cmocka_unit_test(test_measuring_changes_nothing),
	        cmocka_unit_test(test_control_keeps_agents_near),
	        cmocka_unit_test(test_an_estimate_is_a_bound),
	        cmocka_unit_test(test_control_by_gradients),
	        cmocka_unit_test(test_all_reduce_in_both_formats),
	        cmocka_unit_test(test_every_method_survives_churn),
	        cmocka_unit_test(test_a_joiner_finds_another_donor),
	        cmocka_unit_test(test_every_method_runs_without_training),
	        cmocka_unit_test(test_injected_samples_are_of_others),
	        cmocka_unit_test(test_injection_helps_and_costs_bytes),
	        cmocka_unit_test(test_a_broken_core_changes_its_own_rows),
	        cmocka_unit_test(test_every_method_learns_statistics),
	        cmocka_unit_test(test_bits_do_not_depend_on_the_threads),
	};

	return cmocka_run_group_tests(tests, set_up, remove_folder);
}
