/* SPDX-License-Identifier: MIT */
/* Escaping. What XML 1.0 cannot hold even as an entity (most control characters, U+FFFE, U+FFFF)
 * is replaced, so a name out of a file cannot make a drawing that no program reads. */
#include "agent/report/markup.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define PIECE_MAX 1024

void markup_put(struct markup *m, const char *fmt, ...)
{
	char text[PIECE_MAX];
	va_list ap;

	if (m->rc)
		return;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof text)
		m->rc = ERR_LIMIT;
	else
		m->rc = buf_append(m->buf, text, (size_t)n);
}

/* The next character of *text, escaped. */
static void put_character(struct markup *m, const char **text)
{
	static const char special[] = "&<>\"'";
	static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
	const char *at = *text, *found = strchr(special, *at);
	size_t n = utf8_bytes(at);

	*text += n ? n : 1;
	if (found) {
		const char *e = entity[found - special];
		m->rc = buf_append(m->buf, e, strlen(e));
	} else if (n == 1 &&
	           (((unsigned char)*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)) {
		m->rc = buf_append(m->buf, " ", 1);
	} else if (!n ||
	           (n == 3 && (!memcmp(at, "\xef\xbf\xbe", 3) || !memcmp(at, "\xef\xbf\xbf", 3)))) {
		m->rc = buf_append(m->buf, REPLACEMENT, 3);
	} else {
		m->rc = buf_append(m->buf, at, n);
	}
}

void markup_text(struct markup *m, const char *text)
{
	markup_cut(m, text, SIZE_MAX);
}

size_t markup_length(const char *text)
{
	size_t length = 0;
	for (; text && *text; length++) {
		size_t n = utf8_bytes(text);
		text += n ? n : 1;
	}
	return length;
}

void markup_cut(struct markup *m, const char *text, size_t characters)
{
	size_t length = markup_length(text);
	bool cut = length > characters;

	for (size_t n = cut ? characters - 1 : length; n > 0 && !m->rc; n--)
		put_character(m, &text);
	if (cut && !m->rc)
		m->rc = buf_append(m->buf, "…", strlen("…"));
}
