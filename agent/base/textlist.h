/* SPDX-License-Identifier: MIT */
/* A list of strings inside a fixed array: one after the other, each with its NUL, and an empty one
 * at the end.
 *
 *     a.key\0b.key\0\0
 *
 * It needs no memory of its own, and a struct that holds one can be copied and cleared. */
#ifndef DUNLIN_AGENT_BASE_TEXTLIST_H
#define DUNLIN_AGENT_BASE_TEXTLIST_H

#include "agent/base/err.h"

#include <stddef.h>

/* The first item for NULL, the one behind item otherwise; NULL at the end. */
const char *textlist_next(const char *list, const char *item);

int textlist_count(const char *list);

/* Adds an item, which is not empty. ERR_LIMIT: it does not fit, nothing was changed. */
int textlist_add(char *list, size_t size, const char *item) MUST_CHECK;

/* Pointers to the items, at most max of them; returns how many. */
int textlist_items(const char *list, const char **items, int max);

#endif
