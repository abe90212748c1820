/* SPDX-License-Identifier: MIT */
/* A secret that is typed at a terminal: a pair of ends made here, a child at one of them. */
#include "agent/cli/setup/prompt.h"

#include "tests/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

struct desk {
	int keys, terminal, words; /* what types, what is typed at, what the child says */
	pid_t child;
};

/* The child's exit: 0 if it has read "secret". */
static void ask(const struct desk *d, int words)
{
	char text[64];
	size_t len = 0;
	struct err e;
	alarm(20);
	if (setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) || setsid() < 0 ||
	        ioctl(d->terminal, TIOCSCTTY, 0) || dup2(d->terminal, 0) < 0 || dup2(words, 2) < 0)
		_exit(99);
	if (prompt_secret("token: ", text, sizeof text, &len, &e))
		_exit(98);
	_exit(len == 7 && memcmp(text, "secret\n", 7) == 0 ? 0 : 97);
}

static void open_desk(struct desk *d)
{
	int pair[2];
	assert_true((d->keys = posix_openpt(O_RDWR | O_NOCTTY)) >= 0);
	assert_int_equal(grantpt(d->keys), 0);
	assert_int_equal(unlockpt(d->keys), 0);
	assert_true((d->terminal = open(ptsname(d->keys), O_RDWR | O_NOCTTY)) >= 0);
	assert_int_equal(pipe(pair), 0);
	d->child = fork();
	assert_true(d->child >= 0);
	if (d->child == 0)
		ask(d, pair[1]);
	close(pair[1]);
	d->words = pair[0];
}

static void await_question(const struct desk *d)
{
	char text[8] = "";
	for (size_t n = 0; n < 7;) {
		ssize_t got = read(d->words, text + n, 7 - n);
		assert_true(got > 0);
		n += (size_t)got;
	}
	assert_string_equal(text, "token: ");
}

static bool shows(const struct desk *d)
{
	struct termios t;
	assert_int_equal(tcgetattr(d->terminal, &t), 0);
	return t.c_lflag & ECHO;
}

static void type(const struct desk *d, const char *text)
{
	assert_int_equal(write(d->keys, text, strlen(text)), (ssize_t)strlen(text));
}

static int close_desk(const struct desk *d)
{
	int status;
	assert_int_equal(waitpid(d->child, &status, 0), d->child);
	assert_true(shows(d));
	close(d->keys);
	close(d->terminal);
	close(d->words);
	return status;
}

static void what_is_typed_is_hidden(void **state)
{
	struct desk d;
	(void)state;
	open_desk(&d);
	await_question(&d);
	assert_false(shows(&d));
	type(&d, "secret\n");
	assert_int_equal(close_desk(&d), 0);
}

static void signals_leave_a_terminal_that_shows(void **state)
{
	static const int signals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct desk d;
		open_desk(&d);
		await_question(&d);
		assert_false(shows(&d));
		if (signals[i] == SIGINT)
			type(&d, "sec\003");
		else
			assert_int_equal(kill(d.child, signals[i]), 0);
		int status = close_desk(&d);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), signals[i]);
	}
}

/* A session of one process is never stopped: it is asked anew at once. */
static void a_stop_asks_anew(void **state)
{
	struct desk d;
	(void)state;
	open_desk(&d);
	await_question(&d);
	type(&d, "sec\032");
	await_question(&d);
	assert_false(shows(&d));
	type(&d, "secret\n");
	assert_int_equal(close_desk(&d), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_typed_is_hidden),
	        cmocka_unit_test(signals_leave_a_terminal_that_shows),
	        cmocka_unit_test(a_stop_asks_anew),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
