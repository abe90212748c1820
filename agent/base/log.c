/* SPDX-License-Identifier: MIT */
/* A line is put together on the stack and handed to one write(2): lines of several threads, and of
 * several agents that share a terminal or a file, never mix, and logging works when memory is out.
 * Nothing here can fail in a way that a caller could act on; a log that cannot be written is lost.
 *
 *     text   03:04:05 warn  heron: checkpoint took 12 s
 *     JSON   {"time":"2026-01-02T03:04:05.678Z","level":"warn","name":"heron","msg":"checkpoint …"}
 *
 * Messages carry file names, and will carry what peers sent: control characters are escaped, so
 * that they can neither forge a line nor command the reader's terminal. */
#include "agent/base/log.h"

#include "agent/base/buf.h"

#include <errno.h>
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

/* Room for a name and a message of which every byte is escaped, and what stands around them. */
struct line {
	size_t len;
	char text[(LOG_LINE_MAX + LOG_NAME_MAX) * BUF__ESCAPE_MAX + 256];
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

void log_write(enum log_level level, const char *fmt, ...)
{
	if (!log_enabled(level))
		return;
	int cause = errno; /* so that a caller may log before it looks at errno */
	char msg[LOG_LINE_MAX];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(msg, sizeof msg, fmt, ap);
	va_end(ap);
	if (n < 0)
		snprintf(msg, sizeof msg, "%s", fmt);
	else if ((size_t)n >= sizeof msg) {
		/* Cut, visibly, and not inside a character. */
		size_t end = sizeof msg - 4;
		while (end > 0 && ((unsigned char)msg[end] & 0xc0) == 0x80)
			end--;
		memcpy(msg + end, "...", 4);
	}
	struct line l;
	l.len = 0;
	if (setup.format == LOG_JSON)
		put_json(&l, level, msg);
	else
		put_text(&l, level, msg);
	put(&l, "\n");
	while (write(STDERR_FILENO, l.text, l.len) < 0 && errno == EINTR)
		;
	errno = cause;
}
