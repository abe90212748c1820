/* SPDX-License-Identifier: MIT */
/* An HTML page with drawings and tables that needs nothing from elsewhere. It can be read without
 * its script, which shows the values under the pointer. */
#ifndef DUNLIN_AGENT_REPORT_PAGE_H
#define DUNLIN_AGENT_REPORT_PAGE_H

#include "agent/report/markup.h"

#define PAGE_BYTES_MAX (64u << 20)

void page_begin(struct markup *m, const char *title, const char *below);
void page_section(struct markup *m, const char *title); /* a heading */
void page_plots_begin(struct markup *m);                /* drawings side by side */
void page_plot_begin(struct markup *m);                 /* before each one */
void page_plot_end(struct markup *m);
void page_plots_end(struct markup *m);
void page_end(struct markup *m, const char *version);

/* Replaces the file with the text; never a part of it. */
int page_save(const struct buf *text, const char *path, struct err *e) MUST_CHECK;

#endif
