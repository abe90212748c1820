/* SPDX-License-Identifier: MIT */
/* dunlin top: a live view of one agent or several, a row each.
 *
 * Every second all of them are asked, at once. When all have answered, or half a second later, what
 * is known goes to the log and to the screen: on a terminal over what was drawn before (cursor up,
 * and each line erased behind its end), elsewhere as a block of lines every so often. With --notes
 * the lines that come on stdin are printed above the table, so that a script can tell what it does
 * beside a view that stays in its place.
 *
 * What can fail: the log or stdout takes no more (exit 1), and at the first look nobody is there
 * (exit 9). An agent that does not answer is a row that says so. SIGINT and SIGTERM end it with 0;
 * nothing of the terminal was changed that would have to be undone. */
#include "agent/cli/cli.h"
#include "agent/cli/top_view.h"
#include "agent/config/paths.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define ASK_EVERY_MS 1000
#define ANSWERS_MS 500   /* that answers are waited for */
#define PLAIN_EVERY_S 10 /* without a terminal */
#define PLAIN_WIDTH 200  /* the same: no column is left out */
#define NOTE_MAX 4096    /* bytes of a line on stdin; a longer one comes in pieces */
#define EVERY_MAX 86400

struct top {
	struct config config;
	struct cli_args args;
	char path[LIMIT_PATH]; /* of the only agent, if none was named */
	struct watched agent[CLI_ARGS_MAX];
	bool told_gone[CLI_ARGS_MAX]; /* the log has the end of this one */
	int n;
	FILE *log;            /* owned; NULL: none */
	const char *log_path; /* borrowed */
	bool terminal, colour, until_gone, notes;
	int64_t every_ms;
	int64_t ask_ms, show_ms,
	        draw_ms; /* when to ask; when to show at the latest; when to draw */
	bool due;        /* asked, and not yet shown */
	bool met;        /* somebody was there */
	int drawn;       /* lines of the table on the terminal */
	int width;       /* of the terminal, when they were drawn */
	char note[NOTE_MAX];
	size_t note_len;
};

static volatile sig_atomic_t stopped;

static void on_stop(int sig)
{
	(void)sig;
	stopped = 1;
}

static int64_t clock_ms(clockid_t which)
{
	struct timespec t;
	clock_gettime(which, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- output */

static int out_of_memory(void)
{
	return cli_fail(EXIT_FAILED, "%s", err_text(ERR_NOMEM));
}

static int write_log(struct top *t)
{
	struct buf text;
	int rc = 0, status = EXIT_OK;
	double now = (double)clock_ms(CLOCK_REALTIME) / 1000;
	if (!t->log)
		return EXIT_OK;
	buf_init(&text, 1 << 20);
	for (int i = 0; i < t->n && rc == 0; i++) {
		const struct watched *w = &t->agent[i];
		bool gone = w->state == WATCH_GONE;
		/* Of an agent that is absent nothing is known; the end of one is told once. */
		if (w->state != WATCH_ABSENT && !isnan(w->value[WATCH_PEERS]) &&
		        !(gone && t->told_gone[i]))
			rc = top_log_line(&text, w, now);
		t->told_gone[i] = gone;
	}
	if (rc)
		status = out_of_memory();
	else if (text.len > 0 &&
	         (fwrite(text.data, 1, text.len, t->log) != text.len || fflush(t->log) != 0))
		status = cli_fail(EXIT_FAILED, "write %s: %s", t->log_path, strerror(errno));
	buf_close(&text);
	return status;
}

static struct winsize terminal_size(void)
{
	struct winsize size;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
		return (struct winsize){.ws_col = 80, .ws_row = 24};
	return size;
}

/* The notes, then the table if it is wanted. On a terminal the old table goes first. */
static int draw(struct top *t, const char *notes, bool table)
{
	struct winsize size = terminal_size();
	struct buf out;
	/* A full last column makes some terminals wrap; a table that does not fit cannot be
	 * drawn over. */
	int width = t->terminal ? size.ws_col - 1 : PLAIN_WIDTH;
	int rows = t->terminal && size.ws_row - 2 < t->n ? size.ws_row - 2 : t->n;
	int rc = 0, status = EXIT_OK;
	buf_init(&out, 1 << 20);
	if (t->drawn > 0 && t->width == width)
		rc = buf_printf(&out, "\033[%dA\r\033[J", t->drawn);
	if (rc == 0)
		rc = buf_printf(&out, "%s", notes);
	if (rc == 0 && table)
		rc = top_table(&out, t->agent, rows > 0 ? rows : 0, width, t->colour);
	if (rc == 0 && table && !t->terminal)
		rc = buf_append(&out, "\n", 1);
	t->drawn = t->terminal && table ? (rows > 0 ? rows : 0) + 1 : 0;
	t->width = width;
	if (rc)
		status = out_of_memory();
	else
		status = cli_print(&out);
	buf_close(&out);
	return status;
}

/* What is known now. */
static int show(struct top *t, int64_t now, bool last)
{
	int status = write_log(t);
	t->due = false;
	if (status != EXIT_OK || (now < t->draw_ms && !last))
		return status;
	t->draw_ms = now + t->every_ms - ASK_EVERY_MS / 2;
	return draw(t, "", true);
}

/* ---- notes */

/* Adds a line, made fit to be shown. */
static int add_note(struct buf *out, const char *line)
{
	int rc = 0;
	while (*line && rc == 0) {
		char c[BUF__ESCAPE_MAX];
		size_t n = buf__escape(&line, c);
		rc = buf_append(out, c, n);
	}
	return rc ? rc : buf_append(out, "\n", 1);
}

/* stdin can be read: whole lines are told, the rest of one waits for its end. */
static int read_notes(struct top *t)
{
	struct buf out;
	int rc = 0, status = EXIT_OK;
	ssize_t n = read(STDIN_FILENO, t->note + t->note_len, sizeof t->note - 1 - t->note_len);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return EXIT_OK;
	t->notes = n > 0;
	t->note_len += n > 0 ? (size_t)n : 0;
	t->note[t->note_len] = '\0';
	buf_init(&out, 1 << 20);
	char *line = t->note;
	for (char *end;
	        rc == 0 && (end = memchr(line, '\n', t->note_len - (size_t)(line - t->note)));
	        line = end + 1) {
		*end = '\0';
		rc = add_note(&out, line);
	}
	t->note_len -= (size_t)(line - t->note);
	memmove(t->note, line, t->note_len);
	bool full = t->note_len == sizeof t->note - 1;
	if (rc == 0 && t->note_len > 0 && (full || !t->notes)) {
		t->note[t->note_len] = '\0';
		t->note_len = 0;
		rc = add_note(&out, t->note);
	}
	if (rc)
		status = out_of_memory();
	else if (out.len > 0)
		status = draw(t, out.data, t->terminal && t->drawn > 0);
	buf_close(&out);
	return status;
}

/* ---- the loop */

static bool all_gone(const struct top *t)
{
	for (int i = 0; i < t->n; i++)
		if (t->agent[i].state == WATCH_UP || t->agent[i].state == WATCH_SILENT)
			return false;
	return t->met;
}

static bool pending(const struct top *t)
{
	for (int i = 0; i < t->n; i++)
		if (t->agent[i].asked && t->agent[i].state != WATCH_SILENT)
			return true;
	return false;
}

static bool anybody(const struct top *t)
{
	for (int i = 0; i < t->n; i++)
		if (t->agent[i].client.fd >= 0 || t->agent[i].state != WATCH_ABSENT)
			return true;
	return false;
}

static void ask_all(struct top *t, int64_t now)
{
	for (int i = 0; i < t->n; i++)
		watch_ask(&t->agent[i], now);
	t->due = true;
	t->show_ms = now + ANSWERS_MS;
	t->ask_ms = now + ASK_EVERY_MS;
}

/* Until something can be read, a signal comes or it is time for the next thing. */
static int wait_and_read(struct top *t, const sigset_t *open)
{
	struct pollfd p[CLI_ARGS_MAX + 1];
	int64_t until = t->due && t->show_ms < t->ask_ms ? t->show_ms : t->ask_ms;
	int64_t left = until - clock_ms(CLOCK_MONOTONIC);
	struct timespec wait = {0};
	if (left > 0)
		wait = (struct timespec){.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
	for (int i = 0; i < t->n; i++)
		p[i] = (struct pollfd){.fd = t->agent[i].client.fd, .events = POLLIN};
	p[t->n] = (struct pollfd){.fd = t->notes ? STDIN_FILENO : -1, .events = POLLIN};
	int n = ppoll(p, (nfds_t)t->n + 1, &wait, open);
	if (n < 0 && errno != EINTR)
		return cli_fail(EXIT_FAILED, "wait for the agents: %s", strerror(errno));
	for (int i = 0; i < t->n && n > 0; i++)
		if (p[i].revents)
			watch_read(&t->agent[i]);
	for (int i = 0; i < t->n; i++)
		t->met = t->met || t->agent[i].state == WATCH_UP;
	return n > 0 && p[t->n].revents ? read_notes(t) : EXIT_OK;
}

static int watch_all(struct top *t, const sigset_t *open)
{
	int status = EXIT_OK;
	ask_all(t, clock_ms(CLOCK_MONOTONIC));
	if (!anybody(t))
		return cli_fail(EXIT_NO_AGENT,
		        "no agent answers at %s: start one with `dunlin agent`, or name "
		        "another socket",
		        t->agent[0].path);
	while (status == EXIT_OK && !stopped) {
		status = wait_and_read(t, open);
		int64_t now = clock_ms(CLOCK_MONOTONIC);
		if (status == EXIT_OK && now >= t->ask_ms)
			ask_all(t, now);
		bool last = t->until_gone && !pending(t) && all_gone(t);
		if (status == EXIT_OK && t->due && (!pending(t) || now >= t->show_ms))
			status = show(t, now, last);
		if (last)
			break;
	}
	if (stopped && t->terminal)
		putchar('\n'); /* behind the ^C that the terminal has shown */
	return status;
}

/* ---- the beginning */

static int open_log(struct top *t)
{
	struct buf head;
	int status = EXIT_OK;
	if (!t->log_path)
		return EXIT_OK;
	t->log = fopen(t->log_path, "ae");
	if (!t->log || fseek(t->log, 0, SEEK_END) != 0)
		return cli_fail(EXIT_FAILED, "%s: %s", t->log_path, strerror(errno));
	if (ftell(t->log) > 0)
		return EXIT_OK;
	buf_init(&head, 65536);
	if (top_log_header(&head))
		status = out_of_memory();
	else if (fwrite(head.data, 1, head.len, t->log) != head.len || fflush(t->log) != 0)
		status = cli_fail(EXIT_FAILED, "write %s: %s", t->log_path, strerror(errno));
	buf_close(&head);
	return status;
}

static int read_flags(struct top *t)
{
	const char *every = cli_own(&t->args, CMD_TOP, "--every"), *term = getenv("TERM");
	const char *plain = getenv("NO_COLOR");
	char *end = NULL, shown[JSON_SHOWN];
	double s = every ? strtod(every, &end) : 0;
	t->terminal = isatty(STDOUT_FILENO) && (!term || strcmp(term, "dumb") != 0);
	t->colour = t->terminal && !(plain && plain[0]);
	t->until_gone = cli_own(&t->args, CMD_TOP, "--until-gone") != NULL;
	t->notes = cli_own(&t->args, CMD_TOP, "--notes") != NULL;
	t->log_path = cli_own(&t->args, CMD_TOP, "--log");
	if (every && (*end || !(s >= 1 && s <= EVERY_MAX)))
		return cli_usage_error(CMD_TOP, "--every must be from 1 to %d seconds, not \"%s\"",
		        EVERY_MAX, json_shown(every, shown));
	t->every_ms = every ? (int64_t)(1000 * s) : t->terminal ? 1000 : 1000 * PLAIN_EVERY_S;
	return EXIT_OK;
}

static int open_agents(struct top *t)
{
	struct err e;
	if (t->args.n_files == 0) {
		if (paths_socket(&t->config, t->path, &e))
			return cli_fail(EXIT_CONFIG, "%s", e.msg);
		t->args.file[t->args.n_files++] = t->path;
	}
	for (; t->n < t->args.n_files; t->n++)
		watch_init(&t->agent[t->n], t->args.file[t->n]);
	return EXIT_OK;
}

/* Signals come only while it waits, so that none is missed between a look and a wait. */
static void open_signals(sigset_t *open)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction stop = {.sa_handler = on_stop};
	sigset_t held;
	sigemptyset(&held);
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		sigaction(ends[i], &stop, NULL);
		sigaddset(&held, ends[i]);
	}
	sigprocmask(SIG_BLOCK, &held, open);
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
		sigdelset(open, ends[i]);
}

int cmd_top(int argc, char **argv)
{
	sigset_t open;
	int status = EXIT_FAILED;
	struct top *t = calloc(1, sizeof *t);
	if (!t)
		return out_of_memory();
	if (cli_begin(&t->config, &t->args, CMD_TOP, argc, argv, &status)) {
		status = read_flags(t);
		if (status == EXIT_OK)
			status = open_agents(t);
		if (status == EXIT_OK)
			status = open_log(t);
		if (status == EXIT_OK) {
			open_signals(&open);
			status = watch_all(t, &open);
		}
		for (int i = 0; i < t->n; i++)
			watch_close(&t->agent[i]);
		if (t->log && fclose(t->log) != 0 && status == EXIT_OK)
			status =
			        cli_fail(EXIT_FAILED, "write %s: %s", t->log_path, strerror(errno));
		config_close(&t->config);
	}
	free(t);
	return status;
}
