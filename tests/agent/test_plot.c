/* SPDX-License-Identifier: MIT */
/* Axes, escaping and drawings. */
#include "agent/report/plot.h"
#include "tests/agent/xml_check.h"
#include "tests/support.h"

#include <math.h>

static const char *const hostile = "<b onload=\"x()\">&'\x01\xff]]>\xef\xbf\xbf";

static int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *s = text; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

/* ---- axes */

static struct axis axis_of(enum axis_unit unit, bool log, double low, double high)
{
	struct axis a;
	axis_init(&a, unit, log);
	axis_add(&a, low);
	axis_add(&a, high);
	axis_finish(&a, 5);
	return a;
}

static void assert_ticks(const struct axis *a, const char *wanted)
{
	char all[512] = "", one[AXIS_TEXT];
	for (int i = 0; i < a->n_ticks; i++) {
		strcat(all, i ? "|" : "");
		strcat(all, axis_tick_text(a, i, one));
	}
	assert_string_equal(all, wanted);
}

static void ticks_are_round(void **state)
{
	(void)state;
	struct axis a = axis_of(AXIS_NUMBER, false, 0.13, 0.92);
	assert_ticks(&a, "0.0|0.2|0.4|0.6|0.8|1.0");
	a = axis_of(AXIS_NUMBER, false, -3, 4);
	assert_ticks(&a, "-4|-2|0|2|4");
	a = axis_of(AXIS_PERCENT, false, 0.7125, 0.87);
	assert_ticks(&a, "70|75|80|85|90");
	a = axis_of(AXIS_PERCENT, false, 0.981, 0.999);
	assert_ticks(&a, "98.0|98.5|99.0|99.5|100.0");
	a = axis_of(AXIS_COUNT, false, 0, 360000);
	assert_ticks(&a, "0|100k|200k|300k|400k");
	a = axis_of(AXIS_SECONDS, false, 0, 1800);
	assert_string_equal(a.per, "min");
	assert_ticks(&a, "0|10|20|30");
	a = axis_of(AXIS_BYTES, false, 0, 3.2e9);
	assert_string_equal(a.per, "GB");
	assert_ticks(&a, "0|1|2|3|4");
}

static void logarithmic_ticks(void **state)
{
	(void)state;
	struct axis a = axis_of(AXIS_BYTES, true, 2e5, 3e9);
	assert_ticks(&a, "1 MB|10 MB|100 MB|1 GB");
	a = axis_of(AXIS_NUMBER, true, 0.3, 4);
	assert_ticks(&a, "0.2|0.5|1|2|5");
	assert_true(fabs(axis_at(&a, a.low)) < 1e-12);
	assert_true(fabs(axis_at(&a, a.high) - 1) < 1e-12);
	assert_false(axis_shows(&a, 0));
	assert_false(axis_shows(&a, -1));
}

/* No tick outside the range, none twice, at most as many as there is room for. */
static void any_range_has_ticks(void **state)
{
	(void)state;
	const double values[] = {0, 1, -1, 5e-324, 1e-300, 1e300, -1e308, 1.7e308, 1e-7, 123456789,
	        1 + 1e-15, NAN, INFINITY, -INFINITY};
	const size_t n = sizeof values / sizeof *values;
	for (size_t i = 0; i < n * n * 2 * AXIS_UNITS; i++) {
		struct axis a = axis_of((enum axis_unit)(i / n / n / 2), i / n / n % 2,
		        values[i % n], values[i / n % n]);
		assert_true(isfinite(a.low) && isfinite(a.high) && a.low < a.high);
		assert_true(a.n_ticks >= 1 && a.n_ticks <= AXIS_TICKS_MAX);
		for (int k = 0; k < a.n_ticks; k++) {
			double at = axis_at(&a, a.tick[k]);
			assert_true(at > -1e-6 && at < 1 + 1e-6);
			assert_true(k == 0 || a.tick[k] > a.tick[k - 1]);
		}
	}
}

static void values_in_words(void **state)
{
	(void)state;
	char t[AXIS_TEXT];
	assert_string_equal(axis_text(AXIS_BYTES, 1.5e9, t), "1.50 GB");
	assert_string_equal(axis_text(AXIS_BYTES, 12, t), "12 B");
	assert_string_equal(axis_text(AXIS_PERCENT, 0.8423, t), "84.23 %");
	assert_string_equal(axis_text(AXIS_SECONDS, 300, t), "5.00 min");
	assert_string_equal(axis_text(AXIS_SECONDS, 0.25, t), "0.25 s");
	assert_string_equal(axis_text(AXIS_COUNT, 17, t), "17");
	assert_string_equal(axis_text(AXIS_COUNT, 360000, t), "360 k");
	assert_string_equal(axis_text(AXIS_NUMBER, NAN, t), "–");
	axis_text(AXIS_BYTES, 1.7e308, t);
}

/* ---- markup */

static void foreign_text_is_escaped(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 1000);
	struct markup m = {.buf = &b};
	markup_text(&m, hostile);
	markup_text(&m, NULL);
	assert_int_equal(m.rc, 0);
	assert_string_equal(b.data, "&lt;b onload=&quot;x()&quot;&gt;&amp;&#39; \xef\xbf\xbd"
	                            "]]&gt;\xef\xbf\xbd");
	b.len = 0;
	markup_cut(&m, "äöüß", 4);
	markup_cut(&m, "äöüßx", 4);
	assert_string_equal(b.data, "äöüßäöü…");
	buf_close(&b);
}

static void an_error_sticks(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 10);
	struct markup m = {.buf = &b};
	markup_put(&m, "0123456789");
	markup_text(&m, "&");
	assert_int_equal(m.rc, ERR_LIMIT);
	markup_put(&m, "%s", "");
	assert_int_equal(m.rc, ERR_LIMIT);
	assert_int_equal(b.len, 10);
	buf_close(&b);
}

static void the_check_finds_what_is_wrong(void **state)
{
	(void)state;
	assert_true(xml_well_formed("<a b=\"&lt;\">x<c/></a>\n", ""));
	const char *const wrong[] = {"", "<a>", "<a></b>", "<a b=\"<\"/>", "<a>&x;</a>", "<a/><a/>",
	        "<a b=\"1\" b=\"2\"/>", "<a>\x01</a>", "<a>\xff</a>", "x<a/>", "<a b=1/>"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(xml_well_formed(wrong[i], ""));
}

/* ---- drawings */

static const double xs[] = {0, 1, 2, 3, 4}, ys[] = {1, 3, NAN, 2, 4};
static const double lows[] = {0.5, 2, NAN, 1, 3}, highs[] = {1.5, 4, NAN, 3, 5};

static char *drawn(const struct plot *p)
{
	struct buf b;
	buf_init(&b, 4u << 20);
	assert_int_equal(plot_lines(&b, p), 0);
	assert_true(xml_well_formed(b.data, ""));
	assert_null(strstr(b.data, "nan"));
	assert_null(strstr(b.data, "inf"));
	return b.data; /* the caller frees it */
}

static void a_gap_ends_a_piece(void **state)
{
	(void)state;
	const struct plot_series s = {.name = "a", .x = xs, .y = ys, .n = 5};
	char *svg = drawn(&(struct plot){.title = "t", .series = &s, .n_series = 1});
	char *line = strstr(svg, "class=\"l k0 d0\" d=\"");
	assert_non_null(line);
	*strstr(line, "\"><title>") = '\0';
	assert_int_equal(count(line, "M"), 2);
	assert_int_equal(count(line, "L"), 2);
	free(svg);
}

static void one_point_is_a_dot(void **state)
{
	(void)state;
	const struct plot_series s = {.name = "a", .x = xs, .y = ys, .n = 1};
	char *svg = drawn(&(struct plot){.title = "t", .series = &s, .n_series = 1});
	assert_int_equal(count(svg, "h0\""), 1);
	free(svg);
}

static void nothing_is_said(void **state)
{
	(void)state;
	const double none[] = {NAN, INFINITY};
	const struct plot_series s[] = {{.name = "a"}, {.name = "b", .x = none, .y = none, .n = 2}};
	char *svg = drawn(&(struct plot){.title = "t", .series = s, .n_series = 2});
	assert_non_null(strstr(svg, "no values"));
	free(svg);
	svg = drawn(&(struct plot){0});
	assert_non_null(strstr(svg, "no values"));
	free(svg);
}

static void steps_and_bands(void **state)
{
	(void)state;
	const struct plot_series s = {.name = "a",
	        .x = xs,
	        .y = ys,
	        .low = lows,
	        .high = highs,
	        .n = 5,
	        .step = true,
	        .dashed = true,
	        .colour = 9};
	char *svg = drawn(&(struct plot){
	        .title = "t", .series = &s, .n_series = 1, .y_log = true, .alone = true});
	assert_non_null(strstr(svg, "class=\"l k1 d1 d\""));
	assert_int_equal(count(svg, "class=\"b f1\""), 1);
	assert_int_equal(count(svg, "Z"), 2);
	assert_int_equal(count(svg, "<style>"), 1);
	free(svg);
}

static void names_cannot_break_out(void **state)
{
	(void)state;
	const struct plot_series s = {.name = hostile, .x = xs, .y = ys, .n = 5};
	const struct plot_mark mark = {1.5, hostile};
	char *svg = drawn(&(struct plot){.title = hostile,
	        .x_text = hostile,
	        .y_text = hostile,
	        .series = &s,
	        .n_series = 1,
	        .marks = &mark,
	        .n_marks = 1,
	        .alone = true});
	assert_null(strstr(svg, "<b"));
	assert_int_equal(count(svg, "class=\"mark\""), 1);
	free(svg);
}

/* A million points are a few for each column of pixels, and the highest is among them. */
static void long_lines_are_thinned(void **state)
{
	(void)state;
	const size_t n = 1000000;
	double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
	assert_non_null(x);
	assert_non_null(y);
	for (size_t i = 0; i < n; i++) {
		x[i] = (double)i;
		y[i] = sin((double)i);
	}
	y[500001] = 100;
	const struct plot_series s = {.name = "a", .x = x, .y = y, .low = y, .high = y, .n = n};
	char *svg = drawn(&(struct plot){.title = "t", .series = &s, .n_series = 1});
	assert_true(strlen(svg) < 100000);
	assert_non_null(strstr(svg, " 50.0L")); /* the top of the drawing */
	free(svg);
	free(x);
	free(y);
}

static void too_many_series_are_told(void **state)
{
	(void)state;
	struct plot_series s[PLOT_SERIES_MAX + 3];
	for (unsigned i = 0; i < PLOT_SERIES_MAX + 3; i++)
		s[i] = (struct plot_series){.name = "a", .x = xs, .y = ys, .n = 5, .colour = i};
	char *svg =
	        drawn(&(struct plot){.title = "t", .series = s, .n_series = PLOT_SERIES_MAX + 3});
	assert_int_equal(count(svg, "</title></path>"), PLOT_SERIES_MAX);
	assert_non_null(strstr(svg, "and 3 more"));
	free(svg);
}

static void membership(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 1u << 20);
	const char *const names[] = {"one", hostile};
	const char *const kinds[] = {"there", "away"};
	const struct plot_span spans[] = {
	        {0, 0, 10, 0}, {1, -5, 5, 1}, {1, NAN, 5, 1}, {2, 0, 1, 0}, {1, 20, 30, 0}};
	struct plot_spans p = {.title = "t",
	        .x_text = "time",
	        .x_unit = AXIS_SECONDS,
	        .x_high = 10,
	        .names = names,
	        .n_rows = 2,
	        .spans = spans,
	        .n_spans = 5,
	        .kinds = kinds,
	        .n_kinds = 2};
	assert_int_equal(plot_spans(&b, &p), 0);
	assert_true(xml_well_formed(b.data, ""));
	assert_int_equal(
	        count(b.data, "height=\"20.0\""), 2); /* the others are not in the picture */
	assert_null(strstr(b.data, "nan"));
	b.len = 0;
	p = (struct plot_spans){.title = "empty"};
	assert_int_equal(plot_spans(&b, &p), 0);
	assert_true(xml_well_formed(b.data, ""));
	buf_close(&b);
}

static void matrices(void **state)
{
	(void)state;
	static double many[300 * 300];
	const double few[] = {0, 5, NAN, 1};
	struct buf b;
	buf_init(&b, 4u << 20);
	assert_int_equal(
	        plot_matrix(&b, &(struct plot_matrix){.title = "t", .value = few, .n = 2}), 0);
	assert_true(xml_well_formed(b.data, ""));
	assert_int_equal(count(b.data, "<path"), 2); /* two shades */
	b.len = 0;
	assert_int_equal(plot_matrix(&b, &(struct plot_matrix){.title = "none"}), 0);
	assert_true(xml_well_formed(b.data, ""));
	assert_non_null(strstr(b.data, ">none<"));
	b.len = 0;
	for (size_t i = 0; i < 300 * 300; i++)
		many[i] = (double)(i * 7919 % 97);
	const struct plot_matrix large = {.title = "t", .value = many, .n = 300};
	assert_int_equal(plot_matrix(&b, &large), 0);
	assert_true(b.len < 1000000);
	buf_close(&b);
}

static void a_full_buffer_is_an_error(void **state)
{
	(void)state;
	const struct plot_series s = {.name = "a", .x = xs, .y = ys, .n = 5};
	const struct plot p = {.title = "t", .series = &s, .n_series = 1};
	struct buf b;
	buf_init(&b, 600);
	assert_int_equal(plot_lines(&b, &p), ERR_LIMIT);
	buf_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ticks_are_round),
	        cmocka_unit_test(logarithmic_ticks),
	        cmocka_unit_test(any_range_has_ticks),
	        cmocka_unit_test(values_in_words),
	        cmocka_unit_test(foreign_text_is_escaped),
	        cmocka_unit_test(an_error_sticks),
	        cmocka_unit_test(the_check_finds_what_is_wrong),
	        cmocka_unit_test(a_gap_ends_a_piece),
	        cmocka_unit_test(one_point_is_a_dot),
	        cmocka_unit_test(nothing_is_said),
	        cmocka_unit_test(steps_and_bands),
	        cmocka_unit_test(names_cannot_break_out),
	        cmocka_unit_test(long_lines_are_thinned),
	        cmocka_unit_test(too_many_series_are_told),
	        cmocka_unit_test(membership),
	        cmocka_unit_test(matrices),
	        cmocka_unit_test(a_full_buffer_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
