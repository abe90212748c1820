/* SPDX-License-Identifier: MIT */
/* Walking is all there is to it: lists are of a few dozen items, read once. */
#include "agent/base/textlist.h"

#include <assert.h>
#include <string.h>

const char *textlist_next(const char *list, const char *item)
{
	const char *next = item ? item + strlen(item) + 1 : list;
	return *next ? next : NULL;
}

int textlist_count(const char *list)
{
	int n = 0;
	for (const char *i = NULL; (i = textlist_next(list, i));)
		n++;
	return n;
}

int textlist_add(char *list, size_t size, const char *item)
{
	size_t used = 0, len = strlen(item);
	assert(len > 0);
	for (const char *i = NULL; (i = textlist_next(list, i));)
		used += strlen(i) + 1;
	if (len + 2 > size - used)
		return ERR_LIMIT;
	memcpy(list + used, item, len + 1);
	list[used + len + 1] = '\0';
	return 0;
}

int textlist_items(const char *list, const char **items, int max)
{
	int n = 0;
	for (const char *i = NULL; n < max && (i = textlist_next(list, i));)
		items[n++] = i;
	return n;
}
