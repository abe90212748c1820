/* SPDX-License-Identifier: MIT */
/* The log, read back from a file or a terminal that stands in for stderr. */
#include "agent/base/limits.h"
#include "agent/base/log.h"
#include "tests/support.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

static char got[65536];

/* Runs act with stderr going to fd's file; got receives what was written. */
static void capture(void (*act)(void))
{
	FILE *f = tmpfile();
	assert_non_null(f);
	int saved = dup(STDERR_FILENO);
	assert_true(saved >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	act();
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(f);
	got[fread(got, 1, sizeof got - 1, f)] = '\0';
	fclose(f);
}

static void setup(enum log_level level, enum log_format format, const char *name)
{
	log_setup(&(struct log_config){.level = level, .format = format, .name = name});
}

static void all_levels(void)
{
	log_error("e %d", 1);
	log_warn("w %d", 2);
	log_info("i %d", 3);
	log_debug("d %d", 4);
}

static void info_is_the_default(void **state)
{
	(void)state;
	capture(all_levels);
	assert_non_null(strstr(got, " error e 1\n"));
	assert_non_null(strstr(got, " warn  w 2\n"));
	assert_non_null(strstr(got, " info  i 3\n"));
	assert_null(strstr(got, "d 4"));
}

static void levels_are_kept(void **state)
{
	(void)state;
	setup(LOG_ERROR, LOG_TEXT, NULL);
	capture(all_levels);
	assert_string_equal(got + 8, " error e 1\n"); /* after hh:mm:ss */
	assert_true(log_enabled(LOG_ERROR));
	assert_false(log_enabled(LOG_WARN));
	setup(LOG_DEBUG, LOG_TEXT, NULL);
	capture(all_levels);
	assert_non_null(strstr(got, " debug d 4\n"));
}

static void one_warning(void)
{
	log_warn("a \"b\" \\ \n \x1b[31m \xff %s", "\u20ac");
}

static void text_is_made_harmless(void **state)
{
	(void)state;
	setup(LOG_INFO, LOG_TEXT, "he\nron");
	capture(one_warning);
	assert_string_equal(got + 8, " warn  he\\nron: a \"b\" \\ \\n \\u001b[31m \ufffd \u20ac\n");
}

static void json_is_valid(void **state)
{
	(void)state;
	int year, month, day, hour, minute, second, ms, at = 0;
	setup(LOG_INFO, LOG_JSON, "he\"ron");
	capture(one_warning);
	int n = sscanf(got, "{\"time\":\"%4d-%2d-%2dT%2d:%2d:%2d.%3dZ\"%n", &year, &month, &day,
	        &hour, &minute, &second, &ms, &at);
	assert_int_equal(n, 7);
	assert_int_equal(at, 34);
	assert_in_range(year, 2024, 9999);
	assert_string_equal(got + at,
	        ",\"level\":\"warn\",\"name\":\"he\\\"ron\",\"msg\":\"a \\\"b\\\" "
	        "\\\\ \\n \\u001b[31m \ufffd \u20ac\"}\n");
	setup(LOG_INFO, LOG_JSON, NULL);
	capture(one_warning);
	assert_null(strstr(got, "name"));
}

static char lots[3000];

static void one_long(void)
{
	log_error("%s", lots);
}

static void long_messages_are_cut(void **state)
{
	(void)state;
	setup(LOG_INFO, LOG_TEXT, NULL);
	memset(lots, 'x', sizeof lots - 1);
	capture(one_long);
	size_t n = strlen(got);
	assert_int_equal(n, strlen("00:00:00 error ") + LOG_LINE_MAX);
	assert_string_equal(got + n - 5, "x...\n");
	/* Two bytes each, so that one of the two lengths is cut inside a character. */
	for (size_t skip = 0; skip < 2; skip++) {
		memset(lots, 'x', skip);
		for (size_t i = skip; i + 2 < sizeof lots; i += 2)
			memcpy(lots + i, "\u00e4", 3);
		capture(one_long);
		assert_null(strstr(got, "\ufffd"));
		assert_non_null(strstr(got, "\u00e4...\n"));
	}
	/* Where every byte is escaped it is cut at what a pipe takes at once. */
	setup(LOG_INFO, LOG_JSON, NULL);
	memset(lots, 1, LOG_LINE_MAX - 1);
	lots[LOG_LINE_MAX - 1] = '\0';
	capture(one_long);
	n = strlen(got);
	assert_in_range(n, PIPE_BUF - 64, PIPE_BUF);
	assert_string_equal(got + n - 12, "\\u0001...\"}\n");
}

static void with_errno(void)
{
	errno = ENOTDIR;
	log_info("x");
	assert_int_equal(errno, ENOTDIR);
	close(STDERR_FILENO);
	errno = ENOTDIR;
	log_info("x");
	assert_int_equal(errno, ENOTDIR);
}

static void errno_survives(void **state)
{
	(void)state;
	setup(LOG_INFO, LOG_TEXT, NULL);
	capture(with_errno);
}

static void *log_many(void *arg)
{
	for (int i = 0; i < 100; i++)
		log_info("%s", (const char *)arg);
	return NULL;
}

static void from_two_threads(void)
{
	pthread_t a, b;
	assert_int_equal(pthread_create(&a, NULL, log_many, "aaaaaaaaaaaaaaaaaaaaaaaaa"), 0);
	assert_int_equal(pthread_create(&b, NULL, log_many, "bbbbbbbbbbbbbbbbbbbbbbbbb"), 0);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

static void lines_do_not_mix(void **state)
{
	(void)state;
	int lines = 0;
	setup(LOG_INFO, LOG_TEXT, NULL);
	capture(from_two_threads);
	for (char *s = strtok(got, "\n"); s; s = strtok(NULL, "\n"), lines++) {
		assert_true(!strcmp(s + 8, " info  aaaaaaaaaaaaaaaaaaaaaaaaa") ||
		            !strcmp(s + 8, " info  bbbbbbbbbbbbbbbbbbbbbbbbb"));
	}
	assert_int_equal(lines, 200);
}

/* Whether an error is coloured on a terminal, with that environment. */
static int coloured(const char *no_color, const char *term)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) || unlockpt(master))
		skip();
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
	assert_true(slave >= 0 && saved >= 0);
	if (no_color)
		setenv("NO_COLOR", no_color, 1);
	else
		unsetenv("NO_COLOR");
	setenv("TERM", term, 1);
	dup2(slave, STDERR_FILENO);
	setup(LOG_INFO, LOG_TEXT, NULL);
	log_error("x");
	dup2(saved, STDERR_FILENO);
	ssize_t n = read(master, got, sizeof got - 1);
	got[n > 0 ? n : 0] = '\0';
	close(slave);
	close(saved);
	close(master);
	assert_non_null(strstr(got, "error x"));
	return strstr(got, "\033[31m") && strstr(got, "\033[0m");
}

static void colour_is_for_terminals(void **state)
{
	(void)state;
	assert_true(coloured(NULL, "xterm"));
	assert_true(coloured("", "xterm"));
	assert_false(coloured("1", "xterm"));
	assert_false(coloured(NULL, "dumb"));
	unsetenv("NO_COLOR");
	setenv("TERM", "xterm", 1);
	setup(LOG_INFO, LOG_TEXT, NULL);
	capture(all_levels);
	assert_null(strchr(got, '\033'));
}

/* ---- nobody waits for whoever reads the log */

static void a_full_pipe_stops_nobody(void **state)
{
	int end[2], saved = dup(STDERR_FILENO);
	unsigned lines = 0, told = 0;
	char *at;
	(void)state;
	setup(LOG_INFO, LOG_TEXT, NULL);
	assert_int_equal(pipe(end), 0);
	assert_true(saved >= 0 && dup2(end[1], STDERR_FILENO) >= 0);
	alarm(60); /* it would wait for ever */
	for (int i = 0; i < 20000; i++)
		log_info("a line of some length, so that the pipe is soon full of them, %d", i);
	fcntl(end[0], F_SETFL, O_NONBLOCK);
	ssize_t n;
	while ((n = read(end[0], got, sizeof got)) > 0)
		for (ssize_t i = 0; i < n; i++)
			lines += got[i] == '\n';
	log_info("it flows again");
	n = read(end[0], got, sizeof got - 1);
	alarm(0);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(end[0]);
	close(end[1]);
	got[n > 0 ? n : 0] = '\0';
	assert_non_null(at = strstr(got, " warn  "));
	assert_int_equal(sscanf(at, " warn  %u lines of this log were left out", &told), 1);
	assert_int_equal(lines + told, 20000);
	assert_non_null(strstr(got, " info  it flows again\n"));
}

/* ---- lines that others cause */

static void flood(void)
{
	for (int i = 0; i < 115000; i++)
		log_limited(LOG_WARN, "unlike %d: another run", i);
	log_limited(LOG_WARN, "another place has a rate of its own");
}

static void a_flood_of_lines_is_cut(void **state)
{
	int lines = 0;
	(void)state;
	setup(LOG_INFO, LOG_TEXT, NULL);
	capture(flood);
	for (const char *s = got; (s = strchr(s, '\n')); s++)
		lines++;
	assert_in_range(lines, LIMIT_LOG_BURST + 1, 3 * LIMIT_LOG_BURST);
	assert_non_null(strstr(got, "another place has"));
}

static void what_was_left_out_is_counted(void **state)
{
	struct log_rate r = {0};
	uint64_t now = 1000000, written = 0;
	(void)state;
	for (int ms = 0; ms < 5000; ms++)
		for (int i = 0; i < 23; i++)
			written += log_rate_take(&r, LOG_WARN, now + (uint64_t)ms);
	assert_in_range(written, LIMIT_LOG_BURST, LIMIT_LOG_BURST + 5 * LIMIT_LOG_RATE);
	assert_int_equal(written + r.left_out, 5000 * 23);
	now += 3600000;
	assert_true(log_rate_take(&r, LOG_WARN, now));
	assert_true(r.level <= 1000ull * LIMIT_LOG_BURST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(info_is_the_default), /* first: nothing has been set up */
	        cmocka_unit_test(levels_are_kept),
	        cmocka_unit_test(text_is_made_harmless),
	        cmocka_unit_test(json_is_valid),
	        cmocka_unit_test(long_messages_are_cut),
	        cmocka_unit_test(errno_survives),
	        cmocka_unit_test(lines_do_not_mix),
	        cmocka_unit_test(colour_is_for_terminals),
	        cmocka_unit_test(a_full_pipe_stops_nobody),
	        cmocka_unit_test(a_flood_of_lines_is_cut),
	        cmocka_unit_test(what_was_left_out_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
