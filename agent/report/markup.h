/* SPDX-License-Identifier: MIT */
/* XML and HTML text. The first error sticks and makes the rest do nothing, so that it is looked at
 * once, in the end. */
#ifndef DUNLIN_AGENT_REPORT_MARKUP_H
#define DUNLIN_AGENT_REPORT_MARKUP_H

#include "agent/base/buf.h"

#include <stddef.h>

struct markup {
	struct buf *buf; /* borrowed */
	int rc;          /* 0, or why it is not whole */
};

/* Markup of our own, as it is. */
void markup_put(struct markup *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text of anybody's, fit for an element or for an attribute in double quotes: & < > " ' become
 * entities, control characters a space (newline and tab stay), bytes that are not UTF-8 U+FFFD.
 * NULL is nothing. */
void markup_text(struct markup *m, const char *text);

/* The same, cut with … to that many characters if it is longer. */
void markup_cut(struct markup *m, const char *text, size_t characters);

/* Characters of the text, each byte that is not UTF-8 being one. */
size_t markup_length(const char *text);

#endif
