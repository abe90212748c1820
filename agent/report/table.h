/* SPDX-License-Identifier: MIT */
/* A table of texts, for a terminal and for a page. The first row is its head, the first column
 * flush left; columns in which no row has anything are left out. */
#ifndef DUNLIN_AGENT_REPORT_TABLE_H
#define DUNLIN_AGENT_REPORT_TABLE_H

#include "agent/report/markup.h"

#define TABLE_COLUMNS 16
#define TABLE_ROWS 1025
#define TABLE_CELL 64 /* bytes; a longer text is cut */

struct table {
	char (*cell)[TABLE_COLUMNS][TABLE_CELL]; /* owned */
	int n_rows, n_columns;
};

int table_init(struct table *t, int rows, int columns) MUST_CHECK; /* all cells are empty */
void table_close(struct table *t);
void table_set(struct table *t, int row, int column, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

int table_text(const struct table *t, struct buf *out) MUST_CHECK;
void table_html(const struct table *t, struct markup *m);
void table_html_list(const struct table *t, struct markup *m); /* of one row: columns as rows */

#endif
