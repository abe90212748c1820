/* SPDX-License-Identifier: MIT */
/* The process's log: lines on stderr, as text for people or as JSON for machines. main sets it up
 * once, before there is a second thread; after that any thread may log. Before that, or without it,
 * text of level info is written. */
#ifndef DUNLIN_AGENT_BASE_LOG_H
#define DUNLIN_AGENT_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* What is at or above the chosen level (error is the highest) is written. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVELS };
enum log_format { LOG_TEXT, LOG_JSON };

#define LOG_NAME_MAX 64   /* bytes of a name that are kept, NUL included */
#define LOG_LINE_MAX 1024 /* bytes of a message that are kept, NUL included */

struct log_config {
	enum log_level level;
	enum log_format format;
	const char *name; /* of this agent, put before every message; copied; NULL: none */
};

/* Colours are used when stderr is a terminal that knows them and NO_COLOR is not set. */
void log_setup(const struct log_config *c);

/* Whether a message of that level would be written: to spare work that only feeds one. */
bool log_enabled(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* For lines that others can cause, by what they send: each place in the code has a rate, and lines
 * over it are counted and left out. How many were left out is told before the next line of that
 * place, or by log_left_out. All of it on one thread, the loop's. */
struct log_rate {
	uint64_t level, at_ms; /* thousandths of a line that may be written; when that was so */
	uint32_t left_out;
	bool begun, listed;
	const char *like; /* the form of what was left out */
	struct log_rate *next;
};

#define log_limited(level, ...)                                \
	do {                                                   \
		static struct log_rate rate_;                  \
		log_write_limited(&rate_, level, __VA_ARGS__); \
	} while (0)
void log_write_limited(struct log_rate *r, enum log_level level, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Whether one more line may be written; if not it is counted. */
bool log_rate_take(struct log_rate *r, enum log_level level, uint64_t now_ms);

/* Tells what was left out where the flood is over. To be called now and then. */
void log_left_out(void);

#endif
