/* SPDX-License-Identifier: MIT */
/* Tables. Widths are counted in characters; control characters of a foreign name are made visible
 * on the terminal (buf__escape) and blank in a page. */
#include "agent/report/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int table_init(struct table *t, int rows, int columns)
{
	*t = (struct table){0};
	if (rows < 1 || rows > TABLE_ROWS || columns < 1 || columns > TABLE_COLUMNS)
		return ERR_LIMIT;
	t->cell = calloc((size_t)rows, sizeof *t->cell);
	if (!t->cell)
		return ERR_NOMEM;
	t->n_rows = rows;
	t->n_columns = columns;
	return 0;
}

void table_close(struct table *t)
{
	free(t->cell);
	*t = (struct table){0};
}

void table_set(struct table *t, int row, int column, const char *fmt, ...)
{
	char *out = t->cell[row][column];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(out, TABLE_CELL, fmt, ap);
	va_end(ap);
	/* A character that was cut in two goes as a whole. */
	size_t len = strlen(out), at = len;
	while (at > 0 && ((unsigned char)out[at - 1] & 0xc0) == 0x80)
		at--;
	if (at > 0 && len == TABLE_CELL - 1 && !utf8_bytes(out + at - 1))
		out[at - 1] = '\0';
}

static bool used(const struct table *t, int column)
{
	for (int i = 1; i < t->n_rows; i++)
		if (t->cell[i][column][0])
			return true;
	return t->n_rows == 1;
}

/* The cell as it is printed, and its width in characters. */
static int shown(const char *cell, char out[TABLE_CELL * BUF__ESCAPE_MAX])
{
	size_t n = 0;
	while (*cell)
		n += buf__escape(&cell, out + n);
	out[n] = '\0';
	return (int)markup_length(out);
}

int table_text(const struct table *t, struct buf *out)
{
	char text[TABLE_CELL * BUF__ESCAPE_MAX];
	int width[TABLE_COLUMNS] = {0}, rc = 0, last = 0;
	for (int k = 0; k < t->n_columns; k++) {
		if (used(t, k))
			last = k;
		for (int i = 0; i < t->n_rows; i++) {
			int n = shown(t->cell[i][k], text);
			width[k] = n > width[k] ? n : width[k];
		}
	}
	for (int i = 0; i < t->n_rows && !rc; i++) {
		for (int k = 0; k <= last && !rc; k++) {
			if (!used(t, k))
				continue;
			int pad = width[k] - shown(t->cell[i][k], text);
			if (k == 0)
				rc = buf_printf(out, "%s%*s", text, last ? pad : 0, "");
			else
				rc = buf_printf(out, "  %*s%s", pad, "", text);
		}
		if (!rc)
			rc = buf_append(out, "\n", 1);
	}
	return rc;
}

void table_html(const struct table *t, struct markup *m)
{
	markup_put(m, "<div class=\"wide\"><table>\n");
	for (int i = 0; i < t->n_rows; i++) {
		const char *tag = i ? "td" : "th";
		markup_put(m, "<tr>");
		for (int k = 0; k < t->n_columns; k++) {
			if (!used(t, k))
				continue;
			markup_put(m, "<%s>", tag);
			markup_text(m, t->cell[i][k]);
			markup_put(m, "</%s>", tag);
		}
		markup_put(m, "</tr>\n");
	}
	markup_put(m, "</table></div>\n");
}

void table_html_list(const struct table *t, struct markup *m)
{
	markup_put(m, "<div class=\"wide list\"><table>\n");
	for (int k = 0; k < t->n_columns; k++) {
		if (!used(t, k) || t->n_rows < 2)
			continue;
		markup_put(m, "<tr><th>");
		markup_text(m, t->cell[0][k]);
		markup_put(m, "</th><td>");
		markup_text(m, t->cell[1][k]);
		markup_put(m, "</td></tr>\n");
	}
	markup_put(m, "</table></div>\n");
}
