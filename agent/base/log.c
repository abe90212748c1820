/* SPDX-License-Identifier: MIT */
/* A line is put together on the stack and handed to one write(2): lines of several threads, and of
 * several agents that share a terminal or a file, never mix, and logging works when memory is out.
 * Nothing here can fail in a way that a caller could act on; a log that cannot be written is lost.
 *
 * No caller waits for whoever reads stderr: a line that does not fit into a pipe, a socket or a
 * terminal at once is left out, and the next one that fits is preceded by their number. A pipe that
 * can be written to takes PIPE_BUF bytes, so no line is longer. The descriptor stays as it is: to
 * make it non-blocking would do so for the shell and everybody who shares it.
 *
 *     text   03:04:05 warn  heron: checkpoint took 12 s
 *     JSON   {"time":"2026-01-02T03:04:05.678Z","level":"warn","name":"heron","msg":"checkpoint …"}
 *
 * Messages carry file names, and will carry what peers sent: control characters are escaped, so
 * that they can neither forge a line nor command the reader's terminal. */
#include "agent/base/log.h"

#include "agent/base/buf.h"
#include "agent/base/limits.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
	enum log_level level;
	enum log_format format;
	bool colour;
	char name[LOG_NAME_MAX];
} setup = {.level = LOG_INFO};

static const char *const level_names[LOG_LEVELS] = {"error", "warn", "info", "debug"};
static const char *const level_colours[LOG_LEVELS] = {"\033[31m", "\033[33m", "", "\033[2m"};

/* A message of which every byte is escaped does not fit: it is cut. */
#define LINE_END 32 /* room for what stands behind a message */
struct line {
	size_t len;
	char text[PIPE_BUF];
};

static void put(struct line *l, const char *s)
{
	size_t n = strlen(s), room = sizeof l->text - l->len;
	if (n > room)
		n = room;
	memcpy(l->text + l->len, s, n);
	l->len += n;
}

static void put_escaped(struct line *l, const char *s)
{
	while (*s) {
		char c[BUF__ESCAPE_MAX + 1];
		if (l->len + BUF__ESCAPE_MAX + 1 > sizeof l->text - LINE_END) {
			put(l, "...");
			return;
		}
		if (setup.format == LOG_JSON && (*s == '"' || *s == '\\'))
			put(l, "\\");
		c[buf__escape(&s, c)] = '\0';
		put(l, c);
	}
}

static void put_text(struct line *l, enum log_level level, const char *msg)
{
	struct timespec now;
	struct tm tm;
	char head[32];
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	snprintf(head, sizeof head, "%02d:%02d:%02d %-5s ", tm.tm_hour, tm.tm_min, tm.tm_sec,
	        level_names[level]);
	bool colour = setup.colour && level_colours[level][0];
	if (colour)
		put(l, level_colours[level]);
	put(l, head);
	if (setup.name[0]) {
		put_escaped(l, setup.name);
		put(l, ": ");
	}
	put_escaped(l, msg);
	if (colour)
		put(l, "\033[0m");
}

static void put_json(struct line *l, enum log_level level, const char *msg)
{
	struct timespec now;
	struct tm tm;
	char date[32], head[96];
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(head, sizeof head, "{\"time\":\"%s.%03ldZ\",\"level\":\"", date,
	        now.tv_nsec / 1000000);
	put(l, head);
	put(l, level_names[level]);
	if (setup.name[0]) {
		put(l, "\",\"name\":\"");
		put_escaped(l, setup.name);
	}
	put(l, "\",\"msg\":\"");
	put_escaped(l, msg);
	put(l, "\"}");
}

void log_setup(const struct log_config *c)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	setup.level = c->level;
	setup.format = c->format;
	setup.colour = c->format == LOG_TEXT && !(no && *no) && term && strcmp(term, "dumb") != 0 &&
	               isatty(STDERR_FILENO);
	snprintf(setup.name, sizeof setup.name, "%s", c->name ? c->name : "");
}

bool log_enabled(enum log_level level)
{
	return level <= setup.level;
}

static void form(struct line *l, enum log_level level, const char *msg)
{
	l->len = 0;
	if (setup.format == LOG_JSON)
		put_json(l, level, msg);
	else
		put_text(l, level, msg);
	put(l, "\n");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long unread; /* lines left out since nobody took them */

/* False: it would have to wait. */
static bool put_out(const struct line *l)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	int n;
	while ((n = poll(&p, 1, 0)) < 0 && errno == EINTR)
		;
	if (n == 0)
		return false;
	while (write(STDERR_FILENO, l->text, l->len) < 0 && errno == EINTR)
		;
	return true;
}

static void write_line(enum log_level level, const char *msg)
{
	struct line l;
	pthread_mutex_lock(&lock);
	if (unread > 0) {
		char text[96];
		snprintf(text, sizeof text, "%lu lines of this log were left out: nobody read it",
		        unread);
		form(&l, LOG_WARN, text);
		if (put_out(&l))
			unread = 0;
	}
	if (unread == 0)
		form(&l, level, msg);
	if (unread > 0 || !put_out(&l))
		unread++;
	pthread_mutex_unlock(&lock);
}

static void write_args(enum log_level level, const char *fmt, va_list ap)
{
	int cause = errno; /* so that a caller may log before it looks at errno */
	char msg[LOG_LINE_MAX];
	int n = vsnprintf(msg, sizeof msg, fmt, ap);
	if (n < 0)
		snprintf(msg, sizeof msg, "%s", fmt);
	else if ((size_t)n >= sizeof msg) {
		/* Cut, visibly, and not inside a character. */
		size_t end = sizeof msg - 4;
		while (end > 0 && ((unsigned char)msg[end] & 0xc0) == 0x80)
			end--;
		memcpy(msg + end, "...", 4);
	}
	write_line(level, msg);
	errno = cause;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;
	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	write_args(level, fmt, ap);
	va_end(ap);
}

/* ---- lines that others can cause */

static struct log_rate *flooded; /* those with lines that were left out */

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Whether there is room for a line. */
static bool fill(struct log_rate *r, enum log_level level, uint64_t now)
{
	bool debug = level == LOG_DEBUG;
	uint64_t rate = debug ? LIMIT_LOG_DEBUG_RATE : LIMIT_LOG_RATE;
	uint64_t full = 1000ull * (debug ? LIMIT_LOG_DEBUG_BURST : LIMIT_LOG_BURST);
	uint64_t past = now > r->at_ms ? now - r->at_ms : 0;
	if (!r->begun || past > full / rate || r->level + past * rate > full)
		r->level = full;
	else
		r->level += past * rate;
	r->begun = true;
	r->at_ms = now;
	return r->level >= 1000;
}

bool log_rate_take(struct log_rate *r, enum log_level level, uint64_t now)
{
	if (!fill(r, level, now)) {
		r->left_out++;
		return false;
	}
	r->level -= 1000;
	return true;
}

static void tell(struct log_rate *r, enum log_level level)
{
	if (r->left_out > 0)
		log_write(level, "left out %u lines like \"%s\"", r->left_out, r->like);
	r->left_out = 0;
}

void log_write_limited(struct log_rate *r, enum log_level level, const char *fmt, ...)
{
	va_list ap;
	if (!log_enabled(level))
		return;
	if (!log_rate_take(r, level, now_ms())) {
		r->like = fmt;
		if (!r->listed) {
			r->listed = true;
			r->next = flooded;
			flooded = r;
		}
		return;
	}
	tell(r, level);
	va_start(ap, fmt);
	write_args(level, fmt, ap);
	va_end(ap);
}

void log_left_out(void)
{
	uint64_t now = flooded ? now_ms() : 0;
	for (struct log_rate **at = &flooded, *r = *at; r; r = *at) {
		/* Ten seconds without one: it is over. */
		if (r->left_out > 0 && now - r->at_ms < LIMIT_LOG_QUIET_MS) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->listed = false;
		tell(r, LOG_WARN);
	}
}
