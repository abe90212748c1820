/* SPDX-License-Identifier: MIT */
/* Questions to whoever sits at the terminal. */
#ifndef DUNLIN_AGENT_CLI_SETUP_PROMPT_H
#define DUNLIN_AGENT_CLI_SETUP_PROMPT_H

#include "agent/base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Reads stdin to its end, or from a terminal one line, which it does not show. ERR_LIMIT: it is
 * longer than size. The caller wipes text. */
int prompt_secret(
        const char *question, char *text, size_t size, size_t *len, struct err *e) MUST_CHECK;

/* Asks on the terminal, whatever stdin is, and reads a line without its newline. ERR_NOTFOUND:
 * there is no terminal, or it has ended. */
int prompt_line(const char *question, char *out, size_t size, struct err *e) MUST_CHECK;

/* The same for y or yes; everything else is no. */
int prompt_yes(const char *question, bool *yes, struct err *e) MUST_CHECK;

#endif
