/* SPDX-License-Identifier: MIT */
/* Results on disk, means over seeds, tables and pages, of simulations that never ran. */
#include "agent/report/page.h"
#include "agent/report/report.h"
#include "agent/report/table.h"
#include "tests/agent/sim_fixture.h"
#include "tests/agent/xml_check.h"

#define VOID " meta "
static const char hostile[] = "</pre><script>x()</script>&\"'";

static int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *s = text; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

/* ---- means */

static void means_and_errors(void **state)
{
	(void)state;
	const double v[] = {1, 2, NAN, 3};
	struct mean m = mean_of(v, 4);
	assert_int_equal(m.n, 3);
	assert_true(fabs(m.mean - 2) < 1e-12);
	assert_true(fabs(m.error - 1 / sqrt(3)) < 1e-12);
	m = mean_of(v, 1);
	assert_true(m.mean == 1 && isnan(m.error));
	m = mean_of(v + 2, 1);
	assert_true(m.n == 0 && isnan(m.mean));
}

static void curves_are_means_of_points(void **state)
{
	(void)state;
	struct sim_result r;
	struct curve c;
	fixture_result(&r, "a", "gossip_pair", 0.1, 3, 0.8, 1);
	r.runs[2].n_points = 10; /* it was stopped */
	assert_int_equal(curve_new(&c, &r, CURVE_TIME, CURVE_ACCURACY), 0);
	assert_int_equal(c.n, 10);
	assert_true(fabs(c.y[0] - 0.12) < 1e-9); /* 0.1 and 0.01 times the mean of 1, 2, 3 */
	assert_true(fabs(c.high[0] - c.y[0] - 0.01 / sqrt(3)) < 1e-9);
	assert_true(c.x[1] == r.runs[0].points[1].time_s);
	curve_close(&c);
	sim_result_close(&r);
}

/* ---- the best learning rate, and labels */

static void the_best_rate_of_each_method(void **state)
{
	(void)state;
	struct sim_result r[5];
	struct summary s[5];
	struct err e;
	fixture_result(&r[0], "a", "gossip_pair", 0.05, 2, 0.80, 1);
	fixture_result(&r[1], "b", "gossip_pair", 0.10, 2, 0.85, 1);
	fixture_result(&r[2], "c", "gossip_pair", 0.20, 2, 0.99, 1);
	fixture_result(&r[3], "d", "bsp", 0.10, 2, 0.70, 1);
	fixture_result(&r[4], "e", "bsp", 0.10, 2, 0.75, 1);
	/* The highest one failed; and the last differs in more than its rate. */
	strcpy(r[2].runs[1].failed, "diverged");
	r[3].scenario.method.every = r[4].scenario.method.every = 7;
	r[4].scenario.agents.step_ms = 3;
	assert_int_equal(summarise(s, r, 5, true, &e), 3);
	assert_ptr_equal(s[0].result, &r[1]);
	assert_int_equal(s[0].tried, 3);
	assert_string_equal(s[0].label, "b");
	assert_ptr_equal(s[1].result, &r[3]);
	assert_int_equal(s[1].tried, 1);
	assert_ptr_equal(s[2].result, &r[4]);
	assert_int_equal(summarise(s, r, 5, false, &e), 5);
	for (int i = 0; i < 5; i++)
		sim_result_close(&r[i]);
}

static void labels_differ(void **state)
{
	(void)state;
	struct sim_result r[5];
	struct summary s[5];
	struct err e;
	fixture_result(&r[0], "same", "bsp", 0.05, 1, 0.8, 1);
	fixture_result(&r[1], "same", "fedavg", 0.05, 1, 0.8, 1);
	fixture_result(&r[2], "same", "fedavg", 0.10, 1, 0.8, 1);
	fixture_result(&r[3], "same", "fedavg", 0.10, 1, 0.8, 1);
	fixture_result(&r[4], "other", "bsp", 0.05, 1, 0.8, 1);
	assert_int_equal(summarise(s, r, 5, false, &e), 5);
	assert_string_equal(s[0].label, "same bsp");
	assert_string_equal(s[1].label, "same fedavg lr 0.05");
	assert_string_equal(s[2].label, "same fedavg lr 0.1 #3");
	assert_string_equal(s[3].label, "same fedavg lr 0.1 #4");
	assert_string_equal(s[4].label, "other");
	for (int i = 0; i < 5; i++)
		sim_result_close(&r[i]);
}

/* ---- the table */

static void table_of(const struct report *r, struct buf *out)
{
	struct err e;
	buf_init(out, 1u << 20);
	assert_int_equal(report_table(r, out, &e), 0);
}

static void a_row_for_each_result(void **state)
{
	(void)state;
	struct sim_result r[2];
	struct buf b;
	fixture_result(&r[0], "a", "gossip_pair", 0.1, 3, 0.8, 1);
	fixture_result(&r[1], "b\x1b[2J", "bsp", 0.1, 1, 0.8, 5);
	r[1].runs[0].complete = false;
	r[0].scenario.record.target = r[1].scenario.record.target = 0.8;
	r[0].runs[1].target_s = r[1].runs[0].target_s = NAN;
	r[1].runs[0].fp32_s = 1000;
	r[1].runs[0].fp32_bytes = 2e9;
	r[1].runs[0].bf16_s = 400;
	r[1].runs[0].bf16_bytes = 1e9;
	table_of(&(struct report){.results = r, .n_results = 2}, &b);
	assert_int_equal(count(b.data, "\n"), 4);
	/* 600 · 5 s in fp32 */
	assert_non_null(strstr(b.data, "\nb?[2J: all-reduce of fp32: 2.00 GB in 16.7 min, the run "
	                               "50.0 min; of bf16: 1.00 GB in 6.67 min, the run 40.0 min"));
	/* 0.8 − 0.7·e⁻⁸ + 0.02, and 0.01/√3 */
	assert_non_null(strstr(b.data, "81.98 ± 0.58 %"));
	assert_non_null(strstr(b.data, "40.0 s (2 of 3)"));
	assert_non_null(strstr(b.data, "not reached"));
	assert_non_null(strstr(b.data, "0 of 1"));
	assert_non_null(strstr(b.data, "4.00 GB"));
	assert_null(strstr(b.data, "\x1b"));
	assert_null(strstr(b.data, "  lr  ")); /* they do not differ */
	buf_close(&b);
	sim_result_close(&r[0]);
	sim_result_close(&r[1]);
}

static void cut_cells_stay_utf8(void **state)
{
	(void)state;
	struct table t;
	char lots[200] = "";
	for (int i = 0; i < 60; i++)
		strcat(lots, i % 7 ? "ä" : "x");
	assert_int_equal(table_init(&t, 2, 1), 0);
	table_set(&t, 1, 0, "%s", lots);
	for (const char *s = t.cell[1][0]; *s; s += utf8_bytes(s))
		assert_true(utf8_bytes(s) > 0);
	table_close(&t);
	assert_int_equal(table_init(&t, TABLE_ROWS + 1, 1), ERR_LIMIT);
}

/* ---- the page */

static char *page_of(const struct report *r)
{
	struct buf b;
	struct err e;
	buf_init(&b, PAGE_BYTES_MAX);
	assert_int_equal(report_page(r, &b, &e), 0);
	const char *html = strstr(b.data, "<html");
	assert_non_null(html);
	assert_true(xml_well_formed(html, VOID));
	assert_null(strstr(b.data, "nan"));
	return b.data; /* the caller frees it */
}

static void one_result(void **state)
{
	(void)state;
	struct sim_result r;
	fixture_result(&r, "home", "gossip_pair", 0.1, 3, 0.8, 1);
	char *page = page_of(&(struct report){.results = &r,
	        .n_results = 1,
	        .version = "1.2.3",
	        .command = "dunlin simulate home.json"});
	const char *const titles[] = {"Accuracy against time", "Accuracy against bytes",
	        "Accuracy against samples", "Loss", "Consensus distance", "Bytes against time",
	        "Agents that are there", "Membership", "Who sent to whom"};
	for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
		assert_int_equal(count(page, titles[i]), 2); /* the title, and for who cannot see */
	assert_int_equal(count(page, "<svg"), 9);
	assert_non_null(strstr(page, "<title>target</title>"));
	assert_non_null(strstr(page, "2 crashed"));
	assert_non_null(strstr(page, "1.2.3"));
	assert_non_null(strstr(page, "dunlin simulate home.json"));
	assert_non_null(strstr(page, "Seeds 1 2 3."));
	assert_non_null(strstr(page, "&quot;step_ms&quot;")); /* the scenario */
	assert_null(strstr(page, "http"));                    /* nothing from elsewhere */
	free(page);
	sim_result_close(&r);
}

static void a_comparison(void **state)
{
	(void)state;
	struct sim_result r[2];
	fixture_result(&r[0], "a", "gossip_pair", 0.1, 2, 0.8, 1);
	fixture_result(&r[1], "b", "bsp", 0.1, 2, 0.8, 5);
	char *page = page_of(&(struct report){.results = r, .n_results = 2, .version = ""});
	assert_non_null(strstr(page, "2 simulations side by side"));
	assert_int_equal(count(page, "<details"), 2);
	assert_int_equal(count(page, "class=\"b f0\""), 7); /* one of a in each drawing */
	free(page);
	sim_result_close(&r[0]);
	sim_result_close(&r[1]);
}

/* Without training, events and pairs no drawing is left empty. */
static void what_is_not_there_is_not_drawn(void **state)
{
	(void)state;
	struct sim_result r;
	fixture_result(&r, "a", "bsp", 0.1, 1, 0.8, 1);
	struct sim_run *run = &r.runs[0];
	for (int k = 0; k < run->n_points; k++) {
		struct sim_point *p = &run->points[k];
		p->accuracy = p->loss = p->train_loss = p->xi = p->xi_target = NAN;
		p->live = 16;
	}
	memset(run->met, 0, (size_t)16 * 16 * sizeof *run->met);
	run->n_membership = 0;
	char *page = page_of(&(struct report){.results = &r, .n_results = 1, .version = ""});
	assert_int_equal(count(page, "<svg"), 2); /* bytes, and who was there */
	free(page);
	run->n_points = 0;
	page = page_of(&(struct report){.results = &r, .n_results = 1, .version = ""});
	free(page);
	sim_result_close(&r);
}

static void names_cannot_break_out(void **state)
{
	(void)state;
	struct sim_result r[2];
	fixture_result(&r[0], hostile, hostile, 0.1, 1, 0.8, 1);
	fixture_result(&r[1], "b", "bsp", 0.1, 1, 0.8, 1);
	r[0].runs[0].complete = false;
	strcpy(r[0].runs[0].failed, hostile);
	for (int n = 1; n <= 2; n++) {
		char *page = page_of(&(struct report){
		        .results = r, .n_results = n, .version = hostile, .command = hostile});
		assert_int_equal(count(page, "<script"), 1);
		assert_non_null(strstr(page, "class=\"note\""));
		free(page);
	}
	sim_result_close(&r[0]);
	sim_result_close(&r[1]);
}

static void a_page_is_saved_whole(void **state)
{
	char path[300];
	struct sim_result r;
	struct err e;
	struct buf b;
	fixture_result(&r, "a", "bsp", 0.1, 1, 0.8, 1);
	const struct report p = {.results = &r, .n_results = 1, .version = ""};
	snprintf(path, sizeof path, "%s/report.html", (char *)*state);
	assert_int_equal(report_save(&p, path, &e), 0);
	buf_init(&b, PAGE_BYTES_MAX);
	assert_int_equal(file_read(&b, path, &e), 0);
	assert_non_null(strstr(b.data, "</html>\n"));
	buf_close(&b);
	snprintf(path, sizeof path, "%s/none/report.html", (char *)*state);
	assert_int_equal(report_save(&p, path, &e), ERR_IO);
	const struct report none = {.results = &r};
	buf_init(&b, 1000);
	assert_int_equal(report_page(&none, &b, &e), ERR_LIMIT);
	buf_close(&b);
	sim_result_close(&r);
}

/* ---- results on disk */

static void save_text(const char *folder, const char *text, size_t len, char path[300])
{
	snprintf(path, 300, "%s/%s", folder, RESULT_FILE);
	write_file(path, text, len);
}

static void a_result_reads_back(void **state)
{
	char path[300];
	struct sim_result r, again;
	struct buf b, other;
	struct err e;
	fixture_result(&r, "a \"b\"", "gossip_pair", 0.1, 2, 0.8, 1);
	r.runs[1].complete = false;
	strcpy(r.runs[1].failed, "no memory");
	r.runs[1].target_s = NAN;
	buf_init(&b, RESULT_BYTES_MAX);
	buf_init(&other, RESULT_BYTES_MAX);
	assert_int_equal(sim_result_print(&r, &b), 0);
	save_text(*state, b.data, b.len, path);
	assert_int_equal(sim_result_load(&again, *state, &e), 0); /* the folder; and the file: */
	sim_result_close(&again);
	assert_int_equal(sim_result_load(&again, path, &e), 0);
	assert_int_equal(sim_result_print(&again, &other), 0);
	assert_string_equal(b.data, other.data);
	assert_int_equal(again.runs[0].n_membership, 6);
	assert_int_equal(again.runs[0].membership[2].what, SIM_CRASHED);
	assert_memory_equal(again.runs[0].met, r.runs[0].met, sizeof(uint32_t) * 16 * 16);
	assert_true(isnan(again.runs[1].target_s));
	assert_true(again.scenario.config.train.optim.lr == 0.1);
	buf_close(&b);
	buf_close(&other);
	sim_result_close(&r);
	sim_result_close(&again);
}

/* The text with the first `from` in it replaced. */
static void broken(
        void **state, const char *text, const char *from, const char *to, const char *complaint)
{
	char path[300];
	struct sim_result r;
	struct err e = {0};
	struct buf b;
	const char *at = strstr(text, from);
	assert_non_null(at);
	buf_init(&b, RESULT_BYTES_MAX);
	assert_int_equal(buf_append(&b, text, (size_t)(at - text)), 0);
	assert_int_equal(buf_printf(&b, "%s", to), 0);
	assert_int_equal(buf_append(&b, at + strlen(from), strlen(at + strlen(from))), 0);
	save_text(*state, b.data, b.len, path);
	assert_true(sim_result_load(&r, path, &e) < 0);
	if (!strstr(e.msg, complaint))
		fail_msg("%s → %s: %s", from, to, e.msg);
	buf_close(&b);
}

static void bad_results_are_refused(void **state)
{
	struct sim_result r;
	struct buf b;
	fixture_result(&r, "a", "gossip_pair", 0.1, 1, 0.8, 1);
	buf_init(&b, RESULT_BYTES_MAX);
	assert_int_equal(sim_result_print(&r, &b), 0);
	broken(state, b.data, RESULT_FORMAT, "dunlin-simulate-9", "not a result");
	broken(state, b.data, "\"runs\":1", "\"runs\":2", "not whole");
	broken(state, b.data, "\"runs\":1", "\"runs\":0", "more runs");
	broken(state, b.data, "\"runs\":1", "\"runs\":1e9", "wrong");
	broken(state, b.data, "\"agents\":16", "\"agents\":4294967295", "number of agents");
	broken(state, b.data, "\"seed\":1", "\"seed\":-1", "seed");
	broken(state, b.data, "\"live\":16", "\"live\":17", "more agents live");
	broken(state, b.data, "\"samples\":0", "\"samples\":0.5", "samples");
	broken(state, b.data, "\"what\":\"paused\"", "\"what\":\"eaten\"", "cannot be");
	broken(state, b.data, "\"agent\":1", "\"agent\":16", "cannot be");
	broken(state, b.data, "{\"met\":[0,", "{\"met\":[16,", "numbers of agents");
	broken(state, b.data, "{\"met\":[0,", "{\"met\":[0,0,", "an agent and a count");
	broken(state, b.data, "{\"met\"", "{\"mat\"", "neither run");
	broken(state, b.data, "{\"point\"", "\"point\"", ":3: ");
	broken(state, "x", "x", "", "not whole");
	buf_close(&b);
	sim_result_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(means_and_errors),
	        cmocka_unit_test(curves_are_means_of_points),
	        cmocka_unit_test(the_best_rate_of_each_method),
	        cmocka_unit_test(labels_differ),
	        cmocka_unit_test(a_row_for_each_result),
	        cmocka_unit_test(cut_cells_stay_utf8),
	        cmocka_unit_test(one_result),
	        cmocka_unit_test(a_comparison),
	        cmocka_unit_test(what_is_not_there_is_not_drawn),
	        cmocka_unit_test(names_cannot_break_out),
	        cmocka_unit_test(a_page_is_saved_whole),
	        cmocka_unit_test(a_result_reads_back),
	        cmocka_unit_test(bad_results_are_refused),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
